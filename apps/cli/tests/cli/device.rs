//! A `sockeye tun` on a device in a namespace of its own, and programs on the kernel's side of it.
//!
//! The stack publishes itself in a folder of its own. Without the right to create these, or without a client program,
//! a test prints that it is skipped; with `CI` set a missing program fails. Does not depend on the tests.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdout};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use sockeye_drivers::Namespace;
use sockeye_drivers::testing::{skip, skipped};

use super::*;

/// How long anything may take that has to happen.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A `sockeye tun` in a namespace.
pub struct Tun {
    pub namespace: Namespace,
    child: Child,
    stdout: BufReader<ChildStdout>,
    pub folder: PathBuf,
}

impl Tun {
    /// Starts it and waits until it prints the commands to try. `None`, with a message, if it cannot run here.
    pub fn start(line: &str) -> Option<Self> {
        if skipped() {
            return None;
        }
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("sockeye-tun-test-{}-{number}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
        let namespace = Namespace::new().unwrap();
        let mut command = sockeye(&format!("tun {line}"));
        command.env("SOCKEYE_DIAG_DIR", &folder).stdout(Stdio::piped());
        let mut child = namespace.run(|| command.spawn()).unwrap().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let mut tun = Self { namespace, child, stdout, folder };
        tun.read_until("Try:");
        Some(tun)
    }

    /// Reads its output up to a line that begins with `start`.
    pub fn read_until(&mut self, start: &str) -> String {
        let mut text = String::new();
        loop {
            let begin = text.len();
            assert!(self.stdout.read_line(&mut text).unwrap() > 0, "no {start:?} in {text:?}");
            if text[begin..].starts_with(start) {
                return text;
            }
        }
    }

    /// Runs a program on the kernel's side, for as long as anything may take; `None` if it is not installed.
    pub fn client(&self, line: &str) -> Option<Output> {
        let mut words = line.split_whitespace();
        let program = words.next().unwrap();
        let mut command = Command::new("timeout");
        command.arg(PATIENCE.as_secs().to_string()).arg(program).args(words).stdin(Stdio::null());
        let output = self.namespace.run(|| command.output()).unwrap().unwrap();
        // The exit code of timeout(1) for a program that it does not find.
        if output.status.code() == Some(127) {
            skip(&format!("{program} is not installed"));
            return None;
        }
        assert!(output.status.success(), "{line}: {}{}", stdout(&output), stderr(&output));
        Some(output)
    }

    /// A test of iperf3's: the sum of the received bytes.
    pub fn iperf3(&self, line: &str) -> Option<Value> {
        let output = self.client(&format!("iperf3 -J {line}"))?;
        let result: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(result["error"], Value::Null, "{line}");
        Some(result)
    }

    /// Another command of ours that looks at it.
    pub fn look(&self, line: &str) -> Output {
        let mut command = sockeye(line);
        command.env("SOCKEYE_DIAG_DIR", &self.folder);
        run(command)
    }

    /// Runs `why` until its output contains `expected`.
    pub fn shows_why(&self, line: &str, expected: &str) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let text = stdout(&self.look(line));
            if text.contains(expected) {
                return;
            }
            assert!(Instant::now() < deadline, "{text}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// A connection of the kernel's.
    pub fn connect(&self, addr: &str) -> TcpStream {
        let addr: SocketAddr = addr.parse().unwrap();
        let stream = self.namespace.run(|| TcpStream::connect_timeout(&addr, PATIENCE)).unwrap().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    pub fn devices(&self) -> String {
        let read = || fs::read_to_string("/proc/thread-self/net/dev");
        self.namespace.run(read).unwrap().unwrap()
    }

    /// Ends it by a signal and returns its output and status.
    pub fn end(&mut self, signal: Signal) -> (String, Option<i32>) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).unwrap();
        let mut text = String::new();
        self.stdout.read_to_string(&mut text).unwrap();
        (text, self.child.wait().unwrap().code())
    }
}

impl Drop for Tun {
    fn drop(&mut self) {
        // Both fail if it has ended by itself.
        drop(self.child.kill());
        drop(self.child.wait());
        drop(fs::remove_dir_all(&self.folder));
    }
}
