//! Creates UNIX sockets in the file system and removes them at the end; tells whose requests are heard at one.
//!
//! The user of a command inside is the user of the gateway, with the same files, so the file's mode does not keep the command from a socket. What it cannot have is a socket of the network
//! namespace outside: to enter that, it would need rights there. So a request is heard only from a client whose socket is of the gateway's own network ([`serve_clients`]).
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
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, chmod, open, statat, unlinkat};
use rustix::net::{
    AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with,
};
use serde_json::Value;
use sockeye_drivers::network_of;
use tokio::sync::Semaphore;
use tokio::time::sleep;

/// Clients that wait to be accepted.
const BACKLOG: i32 = 16;
/// Clients of a socket for requests that are served at a time; further ones wait.
const CLIENTS_MAX: usize = 16;
/// Between two tries to accept when there are no descriptors for it.
const RETRY: Duration = Duration::from_millis(50);
/// What a client hears that may be inside.
const REFUSED: &str = "refused: this client is in another network namespace than the gateway, as what the gateway restricts is; \
                       ask from the network namespace in which the gateway was started";

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

/// Serves the clients of a socket for requests, on the runtime of the caller: [`CLIENTS_MAX`] at a time, each on a task. A client of another network is told why its requests are not
/// heard, in the words of the protocol (`refused`), and takes nobody's place.
///
/// # Errors
/// `Unsupported` where the system does not tell the network of a socket; the system's.
pub fn serve_clients<Served: Future + Send + 'static>(
    listener: UnixListener,
    refused: fn(&str) -> Value,
    serve: impl Fn(tokio::net::UnixStream) -> Served + Send + 'static,
) -> io::Result<()> {
    let own = network_of(&listener).map_err(|error| {
        let message = format!("cannot tell who is inside (a socket for requests needs Linux 5.14): {error}");
        io::Error::new(io::ErrorKind::Unsupported, message)
    })?;
    listener.set_nonblocking(true)?;
    let listener = tokio::net::UnixListener::from_std(listener)?;
    tokio::spawn(async move {
        let places = Arc::new(Semaphore::new(CLIENTS_MAX));
        // The semaphore is never closed.
        while let Ok(place) = Arc::clone(&places).acquire_owned().await {
            let Ok((client, _)) = listener.accept().await else {
                sleep(RETRY).await;
                continue;
            };
            if let Some(why) = refusal(own, &client) {
                // It is told if it has room for that; its socket is new.
                let said = format!("{}\n", refused(&why));
                let _ =
                    rustix::net::send(&client, said.as_bytes(), SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
                continue;
            }
            let serving = serve(client);
            tokio::spawn(async move {
                serving.await;
                drop(place);
            });
        }
    });
    Ok(())
}

/// Why the requests of a client are not heard, if they are not.
fn refusal(own: u64, client: impl AsFd) -> Option<String> {
    match network_of(client) {
        Ok(network) if network == own => None,
        Ok(_) => Some(REFUSED.to_owned()),
        Err(error) => Some(error.to_string()),
    }
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
    /// The folder, in which the file will be removed; another descriptor of it may take its place.
    pub fn folder(&mut self) -> &mut OwnedFd {
        &mut self.folder
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
