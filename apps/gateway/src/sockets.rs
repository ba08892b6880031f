//! Creates UNIX sockets in the file system and removes them at the end.
//!
//! Invariant: this module removes only sockets, and only if nobody listens on them. It keeps the folder open, so that it can remove the file when the process has no
//! file system any more (`sandbox.rs`).
//!
//! Does not depend on the protocol spoken over them. Tests: below.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, chmod, open, statat, unlinkat};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};

/// Clients that wait to be accepted.
const BACKLOG: i32 = 16;

/// A socket's file, which goes with this.
#[derive(Debug)]
pub struct SocketFile {
    folder: OwnedFd,
    name: OsString,
    identity: Identity,
}

/// Device, number and time of change of an inode: numbers are given out again.
type Identity = (u64, u64, i64, u64);

fn identity(folder: BorrowedFd<'_>, name: &OsStr) -> io::Result<Identity> {
    let stat = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok((stat.st_dev, stat.st_ino, stat.st_ctime, stat.st_ctime_nsec))
}

/// Listens at `path`, for this user alone. A socket that nobody listens at is replaced.
///
/// # Errors
/// `AlreadyExists` if another kind of file is there, `AddrInUse` if somebody listens; the system's. Each with the path.
pub fn listen_at(path: &Path) -> io::Result<(UnixListener, SocketFile)> {
    let said = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    let (Some(name), Some(folder)) = (path.file_name(), path.parent()) else {
        return Err(said(io::ErrorKind::InvalidInput.into()));
    };
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let folder = open(folder, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .map_err(|error| said(error.into()))?;
    make_room(path, folder.as_fd(), name).map_err(said)?;
    let made = || -> io::Result<(UnixListener, Identity)> {
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        bind(&socket, &SocketAddrUnix::new(path)?)?;
        // Nobody can connect before it listens.
        chmod(path, Mode::RUSR | Mode::WUSR)?;
        listen(&socket, BACKLOG)?;
        Ok((UnixListener::from(socket), identity(folder.as_fd(), name)?))
    };
    let (listener, identity) = made().map_err(said)?;
    Ok((listener, SocketFile { folder, name: name.to_owned(), identity }))
}

/// Connects to who listens at `path`. `None` if nobody does, or there is nothing.
///
/// # Errors
/// The system's, with the path.
pub fn connect_to(path: &Path) -> io::Result<Option<UnixStream>> {
    match UnixStream::connect(path) {
        Ok(stream) => Ok(Some(stream)),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
            Ok(None)
        }
        Err(error) => Err(io::Error::new(error.kind(), format!("{}: {error}", path.display()))),
    }
}

/// Removes a socket that nobody listens at.
fn make_room(path: &Path, folder: BorrowedFd<'_>, name: &OsStr) -> io::Result<()> {
    let Ok(stat) = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) else { return Ok(()) };
    if FileType::from_raw_mode(stat.st_mode) != FileType::Socket {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "is there and is no socket"));
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            Ok(unlinkat(folder, name, AtFlags::empty())?)
        }
        Err(error) => Err(error),
        Ok(_) => Err(io::Error::new(io::ErrorKind::AddrInUse, "another program listens there")),
    }
}

impl SocketFile {
    /// The folder, in which the file will be removed.
    pub fn folder(&self) -> BorrowedFd<'_> {
        self.folder.as_fd()
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Another program may have put its own there.
        if identity(self.folder.as_fd(), &self.name).is_ok_and(|now| now == self.identity) {
            // Nobody to tell: it is gone, or the folder may not be written any more.
            let _ = unlinkat(&self.folder, &self.name, AtFlags::empty());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn only_sockets_that_nobody_listens_at_are_replaced_and_the_own_one_goes() {
        let folder = std::env::temp_dir().join(format!("sockeye-gateway-sockets-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let path = folder.join("ctl");
        fs::write(&path, "a file").unwrap();
        assert_eq!(listen_at(&path).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&path).unwrap(), b"a file");
        fs::remove_file(&path).unwrap();

        let (listener, file) = listen_at(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let second = listen_at(&path).unwrap_err();
        assert_eq!(second.kind(), io::ErrorKind::AddrInUse);
        assert!(second.to_string().contains("ctl"), "{second}");
        drop(listener);
        // Stale now: it is replaced, and its first owner leaves it alone.
        let (_listener, own) = listen_at(&path).unwrap();
        drop(file);
        assert!(path.exists());
        drop(own);
        assert!(!path.exists());
        fs::remove_dir(&folder).unwrap();
    }
}
