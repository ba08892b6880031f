//! The name of a published stack's socket in the folder.
//!
//! Invariants: a name that a program answers at is never taken away, and a name is only removed by this process while the
//! file is the one that it has made. A socket listens before it gets its final name, so that a process that sweeps up
//! unanswered names does not meet it too early. Tests: `tests/hostile.rs`.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::folder::at;

/// Names that are tried.
const TRIES_MAX: u32 = 1024;

/// A name, and which file it stands for.
#[derive(Debug)]
pub(crate) struct Name {
    path: PathBuf,
    file: (u64, u64),
}

impl Name {
    /// Makes a socket that listens, under the first name of this process that is not answered at.
    ///
    /// # Errors
    /// `AddrInUse` if there is none; the system's.
    pub fn take(folder: &Path) -> io::Result<(UnixListener, Self)> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        for _ in 0..TRIES_MAX {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let name = format!("{}-{number}.sock", std::process::id());
            let (path, unfinished) = (folder.join(&name), folder.join(name + ".new"));
            let listener = match UnixListener::bind(&unfinished) {
                Ok(listener) => listener,
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => continue,
                Err(error) => return Err(at(&unfinished, error)),
            };
            let linked = link(&unfinished, &path);
            let file = file_of(&unfinished);
            let _ = std::fs::remove_file(&unfinished);
            match linked {
                Ok(()) => {
                    return Ok((listener, Self { file: file.map_err(|error| at(&path, error))?, path }));
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(at(&path, error)),
            }
        }
        let message = format!("{}: {TRIES_MAX} names are taken: remove what is not in use", folder.display());
        Err(io::Error::new(io::ErrorKind::AddrInUse, message))
    }

    /// Removes the name if it still stands for the file that was made. The caller has its socket open, so that no other file has
    /// the same number.
    pub fn remove(&self) {
        if file_of(&self.path).is_ok_and(|file| file == self.file) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Gives a socket a second name that is not in use. A name that a dead program has left is removed first.
fn link(from: &Path, to: &Path) -> io::Result<()> {
    match std::fs::hard_link(from, to) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && is_dead(to) => {
            std::fs::remove_file(to)?;
            std::fs::hard_link(from, to)
        }
        result => result,
    }
}

fn file_of(path: &Path) -> io::Result<(u64, u64)> {
    std::fs::symlink_metadata(path).map(|meta| (meta.dev(), meta.ino()))
}

/// Whether no program listens at `path` any more.
fn is_dead(path: &Path) -> bool {
    connect(path).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

/// Connects without waiting for a place in the other's queue.
///
/// # Errors
/// `WouldBlock` if that queue is full; the system's.
pub(crate) fn connect(path: &Path) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(socket.as_fd(), &SocketAddrUnix::new(path)?)?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}
