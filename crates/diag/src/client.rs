//! The side of who looks.
//!
//! Goes through the folder and asks every program in it. What does not answer is told and left out; what is no more is
//! removed. Tests: `tests/diag.rs`.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::folder::{at, check, folder};
use crate::report::Report;

/// How long a program may keep silent.
const PROGRAM_TIMEOUT: Duration = Duration::from_secs(1);
/// Bytes of the longest report that is read: some 100,000 sockets.
pub const REPORT_MAX: u64 = 64 << 20;

/// A program that did not tell, and why.
#[derive(Debug)]
pub struct Unreachable {
    /// Its socket.
    pub path: PathBuf,
    /// Why it gave no report.
    pub error: io::Error,
}

/// Reports of all stacks that this user's programs show, by process, and of whom there is none. Blocks for up to a second
/// for each program that hangs.
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
            // Nobody listens: its program has ended without tidying up.
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
    let stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(PROGRAM_TIMEOUT))?;
    let mut text = Vec::new();
    stream.take(REPORT_MAX).read_to_end(&mut text)?;
    serde_json::from_slice(&text).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}
