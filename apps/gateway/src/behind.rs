//! Running in the background: the program returns when the network is ready, and a second process of it goes on serving.
//!
//! ```text
//! caller ── the program ── starts itself with --behind N ──► serves; its standard streams are the caller's
//!               │                                              │ ready: streams to /dev/null, "1" to N
//!               ◄──────────────────────────────────────────────┘
//!               exits with success, or with the status of the second process if that exits first
//! ```
//!
//! The second process has its own session, so it receives no signals from the terminal. Tests: `tests/names`.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::setsid;
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};

/// Starts the program with these arguments, and returns when its network is served.
///
/// # Errors
/// The system's.
pub fn start(words: &[OsString]) -> io::Result<ExitCode> {
    let (ours, theirs) = pipe_with(PipeFlags::CLOEXEC)?;
    fcntl_setfd(&theirs, FdFlags::empty())?;
    let mut other = Command::new("/proc/self/exe");
    other.arg0("sockeye-gateway").arg(format!("--behind={}", theirs.as_raw_fd())).args(words);
    let mut child = other.spawn()?;
    drop(theirs);
    let mut byte = [0];
    if rustix::io::retry_on_intr(|| rustix::io::read(&ours, &mut byte))? > 0 {
        return Ok(ExitCode::SUCCESS);
    }
    let code = child.wait()?.code().and_then(|code| u8::try_from(code).ok());
    Ok(ExitCode::from(code.unwrap_or(1)))
}

/// The other process's part.
pub struct Behind {
    ready: OwnedFd,
    nowhere: OwnedFd,
}

impl Behind {
    /// Leaves the caller's session. `ready` is the pipe's end.
    ///
    /// # Errors
    /// The system's.
    pub fn leave(ready: OwnedFd) -> io::Result<Self> {
        // It fails where the process leads a session already.
        let _ = setsid();
        let nowhere = OpenOptions::new().read(true).write(true).open("/dev/null")?.into();
        Ok(Self { ready, nowhere })
    }

    /// The network is served: the caller's standard streams are not used any more, and it goes on.
    ///
    /// # Errors
    /// The system's.
    pub fn served(self) -> io::Result<()> {
        let nowhere = self.nowhere.as_fd();
        dup2_stdin(nowhere)?;
        dup2_stdout(nowhere)?;
        dup2_stderr(nowhere)?;
        rustix::io::write(self.ready, b"1")?;
        Ok(())
    }
}
