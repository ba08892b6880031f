//! Helper processes: this program again, with a hidden subcommand.
//!
//! Purpose: the kernel's side needs more descriptors than one process may have, and memory is best
//! measured in a process that has done nothing else. Parent and child exchange lines over the child's
//! standard input and output.
//!
//! Does not depend on the protocol.
//!
//! Invariants: no child outlives its parent. A child ends when its standard input does ([`requests`]),
//! and that closes however the parent ends; dropping a [`Child`] also waits for it, and kills it if
//! it has not ended after [`EXIT_PATIENCE`].
//!
//! Tests: `tests/bench`, through the workloads that use it.

use std::io::{self, BufRead, BufReader, Write};
use std::process::{self, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// A running helper.
pub struct Child {
    process: process::Child,
    requests: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Child {
    /// Starts this program with `arguments`.
    pub fn start(arguments: &[String]) -> io::Result<Self> {
        let mut process = Command::new(std::env::current_exe()?)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let requests = process.stdin.take();
        let Some(stdout) = process.stdout.take() else {
            return Err(io::Error::other("a helper process has no standard output"));
        };
        Ok(Self { process, requests, answers: BufReader::new(stdout) })
    }

    /// The child's next line, without its end. Blocks.
    pub fn answer(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.answers.read_line(&mut line)? == 0 {
            return Err(io::Error::other("a helper process ended early; its message is above"));
        }
        Ok(line.trim_end().to_owned())
    }

    /// The child's next line as a number.
    pub fn answer_number(&mut self) -> io::Result<u64> {
        let line = self.answer()?;
        line.parse()
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, format!("a helper answered {line:?}")))
    }

    /// Sends a line.
    pub fn request(&mut self, line: &str) -> io::Result<()> {
        match self.requests.as_mut() {
            Some(requests) => writeln!(requests, "{line}"),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.requests = None;
        end(&mut self.process);
    }
}

/// Waits for a process that has been asked to end, and kills it if it does not within [`EXIT_PATIENCE`].
pub fn end(process: &mut process::Child) {
    let deadline = Instant::now() + EXIT_PATIENCE;
    while Instant::now() < deadline {
        match process.try_wait() {
            Ok(Some(_)) | Err(_) => return,
            Ok(None) => thread::sleep(EXIT_POLL),
        }
    }
    // Both can only fail because the process has ended.
    let _ = process.kill();
    let _ = process.wait();
}

/// In a child: the parent's lines as they arrive. The process exits when the parent closes them,
/// whatever its other threads are doing.
pub fn requests() -> io::Result<mpsc::Receiver<String>> {
    let (sender, receiver) = mpsc::channel();
    thread::Builder::new().name("requests".to_owned()).spawn(move || {
        for line in io::stdin().lines() {
            let Ok(line) = line else { break };
            if sender.send(line).is_err() {
                break;
            }
        }
        process::exit(0);
    })?;
    Ok(receiver)
}

/// In a child: sends a line to the parent.
pub fn reply(line: impl std::fmt::Display) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{line}")?;
    stdout.flush()
}

/// How long a helper may take to end by itself; ten thousand sockets take a while to close.
const EXIT_PATIENCE: Duration = Duration::from_secs(10);
const EXIT_POLL: Duration = Duration::from_millis(5);
