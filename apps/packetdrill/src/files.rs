//! Files by descriptor.
//!
//! Each has a descriptor of the kernel's own, an eventfd that nobody uses: packetdrill closes those that a script left open with the `close` of
//! libc, and makes of no two files one number. Which descriptors are ours is known without a lock, since the interposed calls of libc ask about every
//! descriptor, also on threads that hold the lock. Tests: `tests/interface.rs`.

use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::epoll::Epoll;
use crate::error::{Call, Errno};
use crate::pipe::PipeEnd;
use crate::socket::Socket;

/// What a descriptor stands for.
pub(crate) enum File {
    Socket(Box<Socket>),
    Epoll(Epoll),
    Pipe(PipeEnd),
}

/// The table.
#[derive(Default)]
pub(crate) struct Files {
    open: BTreeMap<RawFd, (Descriptor, File)>,
}

/// A number of the kernel's.
struct Descriptor(OwnedFd);

/// Descriptors below this can be ours.
const FD_MAX: usize = 4096;
/// Whether a descriptor is ours. Relaxed: the thread that asks was given the number by the one that opened it.
static IS_OURS: [AtomicBool; FD_MAX] = [const { AtomicBool::new(false) }; FD_MAX];

/// Whether a descriptor is one of the adapter's.
pub(crate) fn is_ours(fd: RawFd) -> bool {
    usize::try_from(fd)
        .ok()
        .and_then(|fd| IS_OURS.get(fd))
        .is_some_and(|is_ours| is_ours.load(Ordering::Relaxed))
}

impl Descriptor {
    fn new() -> Call<Self> {
        // SAFETY: no pointers.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
        if fd < 0 {
            return Err(Errno(libc::EMFILE));
        }
        // SAFETY: the call has just opened it, and nothing else has it.
        let owned = unsafe { OwnedFd::from_raw_fd(fd) };
        let ours = usize::try_from(fd).ok().and_then(|fd| IS_OURS.get(fd)).ok_or(Errno(libc::EMFILE))?;
        ours.store(true, Ordering::Relaxed);
        Ok(Self(owned))
    }
}

impl Drop for Descriptor {
    /// Before it is closed: our own close must find it to be the kernel's.
    fn drop(&mut self) {
        if let Some(ours) = IS_OURS.get(self.0.as_raw_fd() as usize) {
            ours.store(false, Ordering::Relaxed);
        }
    }
}

impl Files {
    /// Gives a file a descriptor.
    ///
    /// # Errors
    /// EMFILE.
    pub fn add(&mut self, file: File) -> Call<RawFd> {
        let descriptor = Descriptor::new()?;
        let fd = descriptor.0.as_raw_fd();
        let _ = self.open.insert(fd, (descriptor, file));
        Ok(fd)
    }

    /// The file of a descriptor.
    ///
    /// # Errors
    /// EBADF.
    pub fn get(&mut self, fd: RawFd) -> Call<&mut File> {
        self.open.get_mut(&fd).map(|(_, file)| file).ok_or(Errno(libc::EBADF))
    }

    /// The socket of a descriptor.
    ///
    /// # Errors
    /// EBADF, or ENOTSOCK.
    pub fn socket(&mut self, fd: RawFd) -> Call<&mut Socket> {
        match self.get(fd)? {
            File::Socket(socket) => Ok(socket),
            File::Epoll(_) | File::Pipe(_) => Err(Errno(libc::ENOTSOCK)),
        }
    }

    /// Takes a file out, and gives its number back.
    ///
    /// # Errors
    /// EBADF.
    pub fn remove(&mut self, fd: RawFd) -> Call<File> {
        for (_, file) in self.open.values_mut() {
            if let File::Epoll(epoll) = file {
                epoll.forget(fd);
            }
        }
        self.open.remove(&fd).map(|(_, file)| file).ok_or(Errno(libc::EBADF))
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (RawFd, &File)> {
        self.open.iter().map(|(fd, (_, file))| (*fd, file))
    }

    /// Two different files at once, for a look at one from the other.
    ///
    /// # Errors
    /// EBADF if one is not there, EINVAL if they are the same.
    pub fn two(&mut self, one: RawFd, other: RawFd) -> Call<(&mut File, &mut File)> {
        if one == other {
            return Err(Errno(libc::EINVAL));
        }
        let mut found = (None, None);
        for (fd, (_, file)) in &mut self.open {
            if *fd == one {
                found.0 = Some(file);
            } else if *fd == other {
                found.1 = Some(file);
            }
        }
        match found {
            (Some(one), Some(other)) => Ok((one, other)),
            (_, _) => Err(Errno(libc::EBADF)),
        }
    }
}
