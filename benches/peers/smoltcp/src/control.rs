//! The socket to the bench: one line when all is ready, an answer to each line, and the end when the other side closes.
//!
//! Does not depend on the stack.
//!
//! Invariant: the process does not outlive the bench, however that ends.
//!
//! Tests: the bench's own.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::process;
use std::thread;

use rustix::time::{ClockId, clock_gettime};

/// Reports that everything is ready, and answers requests from now on, on a thread of its own.
///
/// # Errors
/// The system's.
pub fn start(ready: &str) -> io::Result<()> {
    let mut socket = UnixStream::from(rustix::stdio::stdout().try_clone_to_owned()?);
    writeln!(socket, "{ready}")?;
    thread::Builder::new().name("requests".to_owned()).spawn(move || {
        let code = i32::from(answer(socket).is_err());
        process::exit(code);
    })?;
    Ok(())
}

fn answer(mut socket: UnixStream) -> io::Result<()> {
    for request in BufReader::new(socket.try_clone()?).lines() {
        if request? != "cpu" {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let used = clock_gettime(ClockId::ProcessCPUTime);
        writeln!(socket, "{}", used.tv_sec * NANOS_PER_SECOND + used.tv_nsec)?;
    }
    Ok(())
}

/// The versions that this program was built with.
pub fn version() -> &'static str {
    let lock = include_str!("../Cargo.lock");
    let found = lock.split_once("name = \"smoltcp\"\nversion = \"").map(|(_, rest)| rest);
    found.and_then(|rest| rest.split('"').next()).unwrap_or("(unknown version)")
}

const NANOS_PER_SECOND: i64 = 1_000_000_000;
