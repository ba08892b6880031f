//! Other stacks as far ends: gVisor's netstack and smoltcp, each in a process of its own.
//!
//! Purpose: a peer is a program of `benches/peers`. It gets the device as its standard input and a socket as its standard
//! output, says a line when it is ready, and answers with the CPU time that it has used. [`build`] makes the programs.
//!
//! Does not depend on the measurement, or on how a peer does its work.
//!
//! Invariants: no peer outlives this process: it ends when its socket closes for any reason. Dropping a [`Peer`] also
//! waits for it, and ends it by its id if it does not end by itself. Every answer is bounded in time.
//!
//! Tests: below; with the real programs in `tests/bench/tun.rs`, where asked for.

mod build;

use std::fmt;
use std::io::{self, BufRead, BufReader, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::str::FromStr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sockeye_drivers::Tun;

use super::{Mtu, Work};
use crate::child;

/// The source of the programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// They are built from this repository.
    Build,
    /// They are in this folder, each under its name.
    Folder(PathBuf),
}

impl FromStr for Source {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(if text.is_empty() { Source::Build } else { Source::Folder(text.into()) })
    }
}

/// Which stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// gVisor's netstack, in Go.
    Gvisor,
    /// smoltcp, in Rust.
    Smoltcp,
}

impl Kind {
    /// In the order of the table.
    pub const ALL: [Kind; 2] = [Kind::Gvisor, Kind::Smoltcp];

    /// Its name, and its program's.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Gvisor => "gvisor",
            Kind::Smoltcp => "smoltcp",
        }
    }

    /// Bytes of the largest packet with which it does this work fastest. Both let the device cut their segments and take
    /// incoming ones uncut, so larger packets are not always better.
    pub fn mtu(self, work: Work) -> Mtu {
        match (self, work) {
            (Kind::Gvisor, Work::Receive | Work::Rr) => Mtu::default(),
            (Kind::Gvisor, Work::Send | Work::Lent) | (Kind::Smoltcp, _) => Mtu::MAX,
        }
    }

    /// Bytes of a socket's buffers with which it is fastest.
    fn buffer(self) -> usize {
        match self {
            Kind::Gvisor => 1 << 20,
            Kind::Smoltcp => 512 << 10,
        }
    }

    /// How long it looks for packets before it sleeps, for the best: the netstack's goroutines only lose by it.
    pub fn spin(self) -> Duration {
        match self {
            Kind::Gvisor => Duration::ZERO,
            Kind::Smoltcp => Duration::from_micros(50),
        }
    }
}

/// The programs, in the order of [`Kind::ALL`]. Blocks while they are built.
///
/// # Errors
/// The missing part, and a remedy.
pub fn programs(source: &Source) -> io::Result<Vec<(Kind, PathBuf)>> {
    let program = |kind: Kind| {
        let path = match source {
            Source::Build => build::build(kind)?,
            Source::Folder(folder) => folder.join(kind.name()),
        };
        if !path.is_file() {
            return Err(io::Error::new(io::ErrorKind::NotFound, format!("there is no {}", path.display())));
        }
        Ok((kind, path))
    };
    Kind::ALL.into_iter().map(program).collect()
}

/// A running peer.
pub struct Peer {
    process: Child,
    socket: Mutex<BufReader<UnixStream>>,
    about: String,
}

impl Peer {
    /// Starts `program` on a device, with this address and network, which is busy for `spin` before it sleeps.
    /// Blocks until it is ready.
    ///
    /// # Errors
    /// The system's; the program's standard error is passed on.
    pub fn start(
        kind: Kind,
        program: &Path,
        tun: &Tun,
        addr: &str,
        (mtu, spin): (Mtu, Duration),
    ) -> io::Result<Self> {
        let Some(device) = tun.descriptors().next() else {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        };
        let mut command = Command::new(program);
        command.args(["--addr", addr]).stdin(Stdio::from(device.try_clone_to_owned()?));
        for (flag, value) in [
            ("--mtu", u64::from(mtu.bytes())),
            ("--buffer", kind.buffer() as u64),
            ("--spin-us", spin.as_micros() as u64),
        ] {
            command.arg(flag).arg(value.to_string());
        }
        for work in [Work::Receive, Work::Send, Work::Rr] {
            command.arg(format!("--{}", work.name())).arg(work.port().to_string());
        }
        Self::spawn(command)
    }

    fn spawn(mut command: Command) -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_read_timeout(Some(ANSWER_MAX))?;
        let process = command.stdout(Stdio::from(OwnedFd::from(theirs))).spawn()?;
        // This drops our copy of the other end, so that the socket closes with the process.
        drop(command);
        let mut peer = Self { process, socket: Mutex::new(BufReader::new(ours)), about: String::new() };
        let line = read_line(&mut peer.lock())?;
        let Some(about) = line.strip_prefix("ready ") else {
            return Err(io::Error::other(format!("a peer began with {line:?}")));
        };
        peer.about = about.to_owned();
        Ok(peer)
    }

    /// Version and settings, in its own words.
    pub fn about(&self) -> &str {
        &self.about
    }

    /// CPU time that it has used so far.
    ///
    /// # Errors
    /// The peer is gone, or does not answer in time.
    pub fn cpu(&self) -> io::Result<Duration> {
        let mut socket = self.lock();
        writeln!(socket.get_mut(), "cpu")?;
        let line = read_line(&mut socket)?;
        let nanos = line.parse().map_err(|_| io::Error::other(format!("a peer answered {line:?}")))?;
        Ok(Duration::from_nanos(nanos))
    }

    fn lock(&self) -> MutexGuard<'_, BufReader<UnixStream>> {
        self.socket.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Peer({}, {})", self.process.id(), self.about)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // It can only fail because the other side has closed.
        let _ = self.lock().get_ref().shutdown(Shutdown::Both);
        child::end(&mut self.process);
    }
}

fn read_line(socket: &mut BufReader<UnixStream>) -> io::Result<String> {
    let mut line = String::new();
    match socket.read_line(&mut line) {
        Ok(0) => Err(io::Error::other("a peer ended early; its message is above")),
        Ok(_) => Ok(line.trim_end().to_owned()),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            let message = format!("a peer did not answer within {} s", ANSWER_MAX.as_secs());
            Err(io::Error::new(io::ErrorKind::TimedOut, message))
        }
        Err(error) => Err(error),
    }
}

/// How long a peer may take to begin, or to answer.
const ANSWER_MAX: Duration = Duration::from_secs(20);

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> io::Result<Peer> {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::null()).stderr(Stdio::null());
        Peer::spawn(command)
    }

    #[test]
    fn a_peer_identifies_itself_answers_and_ends_with_its_socket() {
        let peer = shell("echo ready a stack; while read -r line; do echo 1500; done <&1").unwrap();
        assert_eq!(peer.about(), "a stack");
        assert_eq!(peer.cpu().unwrap(), Duration::from_nanos(1500));
        let stat = PathBuf::from(format!("/proc/{}", peer.process.id()));
        assert!(stat.exists());
        drop(peer);
        assert!(!stat.exists(), "it has outlived its handle");
    }

    #[test]
    fn a_peer_that_ends_or_sends_nonsense_is_an_error() {
        assert!(shell("exit 1").unwrap_err().to_string().contains("ended early"));
        assert!(shell("echo hello").unwrap_err().to_string().contains("hello"));
        let peer = shell("echo ready; read -r line <&1; echo much").err();
        assert!(peer.is_some(), "a peer has to identify itself");
        let peer = shell("echo ready x; read -r line <&1; echo much").unwrap();
        assert!(peer.cpu().unwrap_err().to_string().contains("much"));
        assert!(peer.cpu().is_err());
    }

    #[test]
    fn prebuilt_programs_are_looked_for_by_their_names() {
        assert_eq!("".parse(), Ok(Source::Build));
        let folder = "/nonexistent/peers".parse::<Source>().unwrap();
        assert!(programs(&folder).unwrap_err().to_string().contains("/nonexistent/peers/gvisor"));
    }
}
