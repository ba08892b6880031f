//! The side of the program that looks.
//!
//! Goes through the folder and asks every program in it. A program that does not answer in time is listed and left out; the
//! name of one that has ended is removed. Tests: `tests/diag.rs`, `tests/hostile.rs`.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::folder::{at, check, folder};
use crate::name::connect;
use crate::report::Report;

/// How long a program may take to send all of its report.
const PROGRAM_TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes that are read at once.
const PIECE: usize = 64 << 10;
/// Bytes of the longest report that is read: some 100,000 sockets.
pub const REPORT_MAX: u64 = 64 << 20;

/// A program that did not answer, and why.
#[derive(Debug)]
pub struct Unreachable {
    /// Its socket.
    pub path: PathBuf,
    /// Why it gave no report.
    pub error: io::Error,
}

/// Reports of all stacks that this user's programs show, by process, and the processes of which there is none. Blocks for
/// up to five seconds for each program that hangs.
///
/// # Errors
/// `PermissionDenied` if the folder is not this user's alone. A folder that does not exist is one without programs.
pub fn reports() -> io::Result<(Vec<Report>, Vec<Unreachable>)> {
    reports_in(&folder())
}

/// [`reports`] of another folder.
///
/// # Errors
/// As for [`reports`].
pub fn reports_in(folder: &Path) -> io::Result<(Vec<Report>, Vec<Unreachable>)> {
    let (mut reports, mut unreachable) = (Vec::new(), Vec::new());
    match check(folder) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((reports, unreachable)),
        Err(error) => return Err(error),
    }
    for entry in std::fs::read_dir(folder).map_err(|error| at(folder, error))? {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "sock") {
            continue;
        }
        match ask(&path) {
            Ok(report) => reports.push(report),
            // No program listens: the one that did has ended without tidying up.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                drop(std::fs::remove_file(&path))
            }
            // It ended while we looked.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => unreachable.push(Unreachable { path, error }),
        }
    }
    reports.sort_by(|a, b| (a.pid, &a.name).cmp(&(b.pid, &b.name)));
    Ok((reports, unreachable))
}

fn ask(path: &Path) -> io::Result<Report> {
    let deadline = Instant::now() + PROGRAM_TIMEOUT;
    let mut stream = match connect(path) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            return Err(late("it accepts no clients and its queue is full"));
        }
        connected => connected?,
    };
    let mut text = Vec::new();
    let mut piece = vec![0; PIECE];
    while text.len() < REPORT_MAX as usize {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(late(&format!("{} bytes came in {} ms", text.len(), PROGRAM_TIMEOUT.as_millis())));
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut piece) {
            Ok(0) => break,
            Ok(len) => text.extend_from_slice(&piece[..len]),
            // The loop finds that the time is over.
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(error) => return Err(error),
        }
    }
    serde_json::from_slice(&text).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

fn late(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("no report: {why}"))
}
