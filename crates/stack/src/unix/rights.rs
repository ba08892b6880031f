//! Rights in flight: sockets and file descriptors on their way in a message (SCM_RIGHTS).
//!
//! A right is a handle that its sender gave away. From the append to the receive it lies in an
//! [`InFlight`] in the receiver's buffer; a UNIX-domain socket counts such handles (`in_flight`, of its
//! `users`), for the collector (`collect.rs`).
//!
//! # Several stacks
//! A message travels within one stack, and its rights may be of others. A socket in flight is a handle like any other: it
//! keeps its own stack, names and all, until it is received and dropped, or disposed of. It does not keep the stack that it
//! travels over, whose own sockets do that: when the last handle of the receiving one goes, so does the content of its buffer.
//! The bound below is counted with the stack that the message travels over.
//!
//! # Bounds
//! [`RIGHTS_MAX`] in a message (EINVAL), [`IN_FLIGHT_MAX`] in a stack (ETOOMANYREFS; Linux
//! allows the user's RLIMIT_NOFILE). The second is dealt out in credits, so that threads which pass rights do not write one line.
//!
//! # Disposal
//! Rights that are never received are closed outside all locks, and one after the other: closing a socket can
//! set others free, which go to the end of the line ([`dispose`]) and are not closed inside its own
//! close. So a chain of a million sockets, each in the buffer of the next, needs no deep stack.
//!
//! Tests: `tests/unix/rights.rs`, `tests/unix/stress.rs`.

use std::any::Any;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt::{self, Debug, Formatter};
use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use sockeye_sync::Credits;
use sockeye_sync::facade::{Arc, Ordering};

use super::ancillary::RIGHTS_MAX;
use super::pcb::Contents;
use super::sock::Sock;
use super::{UnixDatagram, UnixListener, UnixSeqListener, UnixSeqpacket, UnixSocket, UnixStream};
use crate::rt::env::Env;

/// Something that a message can carry: a socket of any stack, or a file descriptor of the kernel.
#[derive(Debug)]
#[non_exhaustive]
pub enum Right {
    /// A stream socket.
    Stream(UnixStream),
    /// A stream listener.
    Listener(UnixListener),
    /// A datagram socket.
    Datagram(UnixDatagram),
    /// A sequenced-packet socket.
    Seqpacket(UnixSeqpacket),
    /// A sequenced-packet listener.
    SeqListener(UnixSeqListener),
    /// A socket that may be neither connected nor listening yet.
    Socket(UnixSocket),
    /// A socket of another family, TCP's for now: [`TcpStream`](crate::TcpStream) and [`TcpListener`](crate::TcpListener) are made of a right
    /// by `try_from`, which gives back a right of another kind.
    Foreign(Foreign),
    /// A file descriptor.
    Fd(OwnedFd),
}

/// A handle of a socket of another family. The sender and the receiver know its kind.
pub struct Foreign(Box<dyn Passed>);

/// A handle of another family in a message: it is only kept, and duplicated by a peek.
pub(crate) trait Passed: Any + Debug + Send + Sync {
    /// Another handle of the same.
    fn duplicate(&self) -> io::Result<Foreign>;
}

impl Foreign {
    pub(crate) fn new(socket: impl Passed) -> Self {
        Self(Box::new(socket))
    }

    /// The handle, if it is of this type.
    pub(crate) fn into_inner<T: Passed>(self) -> Result<T, Self> {
        if !(&*self.0 as &dyn Any).is::<T>() {
            return Err(self);
        }
        let Ok(socket) = (self.0 as Box<dyn Any>).downcast::<T>() else { unreachable!("it is of this type") };
        Ok(*socket)
    }
}

impl Debug for Foreign {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

macro_rules! right_from {
    ($($from:ty => $variant:ident),+ $(,)?) => {
        $(impl From<$from> for Right {
            fn from(socket: $from) -> Self {
                Self::$variant(socket)
            }
        })+
    };
}

right_from! {
    UnixStream => Stream,
    UnixListener => Listener,
    UnixDatagram => Datagram,
    UnixSeqpacket => Seqpacket,
    UnixSeqListener => SeqListener,
    UnixSocket => Socket,
    Foreign => Foreign,
    OwnedFd => Fd,
}

impl Right {
    /// The handle, if it is a UNIX-domain socket: only those can hold rights themselves.
    fn unix(&self) -> Option<&Sock> {
        match self {
            Self::Stream(socket) => socket.sock.unless_lost(),
            Self::Listener(socket) => socket.sock.unless_lost(),
            Self::Datagram(socket) => socket.sock.unless_lost(),
            Self::Seqpacket(socket) => socket.sock.unless_lost(),
            Self::SeqListener(socket) => socket.sock.unless_lost(),
            Self::Socket(socket) => socket.sock.unless_lost(),
            Self::Foreign(_) | Self::Fd(_) => None,
        }
    }

    /// Another handle of the same (dup(2)).
    ///
    /// # Errors
    /// EMFILE, for a file descriptor.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(match self {
            Self::Stream(socket) => Self::Stream(socket.try_clone()?),
            Self::Listener(socket) => Self::Listener(socket.try_clone()?),
            Self::Datagram(socket) => Self::Datagram(socket.try_clone()?),
            Self::Seqpacket(socket) => Self::Seqpacket(socket.try_clone()?),
            Self::SeqListener(socket) => Self::SeqListener(socket.try_clone()?),
            Self::Socket(socket) => Self::Socket(socket.try_clone()?),
            Self::Foreign(socket) => Self::Foreign(socket.0.duplicate()?),
            Self::Fd(fd) => Self::Fd(fd.try_clone()?),
        })
    }
}

/// The rights of one message, counted. To be [landed](InFlight::land); dropped, as by a panic in the call that has them in hand, they land
/// and are closed. Not to be dropped under a lock.
pub(crate) struct InFlight {
    rights: Vec<Right>,
    /// That of the stack over which they were sent.
    budget: Arc<Credits>,
}

impl InFlight {
    /// Counts `rights`, which are given back if there are too many.
    pub fn launch(core: &Env, rights: Vec<Right>) -> Result<Self, (Errno, Vec<Right>)> {
        if rights.len() > RIGHTS_MAX {
            return Err((Errno::INVAL, rights));
        }
        if !super::shared(core).budget.take(rights.len()) {
            return Err((Errno::TOOMANYREFS, rights));
        }
        for sock in rights.iter().filter_map(Right::unix) {
            // SeqCst, with the load in `collect`: see there.
            sock.pcb.in_flight.fetch_add(1, Ordering::SeqCst);
        }
        Ok(Self { rights, budget: Arc::clone(&super::shared(core).budget) })
    }

    /// They have arrived, or come back.
    pub fn land(mut self) -> Vec<Right> {
        self.settle()
    }

    fn settle(&mut self) -> Vec<Right> {
        for sock in self.sockets() {
            sock.pcb.in_flight.fetch_sub(1, Ordering::SeqCst);
        }
        let rights = std::mem::take(&mut self.rights);
        self.budget.give(rights.len());
        rights
    }

    pub fn len(&self) -> usize {
        self.rights.len()
    }

    /// The UNIX-domain sockets among them.
    pub fn sockets(&self) -> impl Iterator<Item = &Sock> {
        self.rights.iter().filter_map(Right::unix)
    }

    /// Duplicates of the first `max`, for a peek.
    pub fn duplicates(&self, max: usize) -> Vec<Right> {
        self.rights.iter().take(max).map_while(|right| right.try_clone().ok()).collect()
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        // Those that have landed have left none.
        if !self.rights.is_empty() {
            close_rights(self.settle());
        }
    }
}

/// Rights that may be in flight over a stack at once.
pub const IN_FLIGHT_MAX: usize = 16_384;
/// Handles that wait to be closed.
enum Doomed {
    Right(Right),
    Embryo(Sock),
}

thread_local! {
    /// The line of this thread; there is one while a caller below us on the stack is closing.
    static LINE: RefCell<Option<VecDeque<Doomed>>> = const { RefCell::new(None) };
}

/// Closes rights in the contents of a socket that will never be received. Outside all locks.
pub(crate) fn dispose(contents: Contents) {
    if contents.is_empty() {
        return;
    }
    let mut contents = contents;
    let mut doomed: Vec<Doomed> = contents.embryos.drain(..).map(Doomed::Embryo).collect();
    for embryo in &doomed {
        if let Doomed::Embryo(sock) = embryo {
            sock.pcb.in_flight.fetch_sub(1, Ordering::SeqCst);
        }
    }
    doomed.extend(contents.into_rights().flat_map(InFlight::land).map(Doomed::Right));
    close_in_line(doomed);
}

/// The same for rights that have landed.
pub(crate) fn close_rights(rights: Vec<Right>) {
    if !rights.is_empty() {
        close_in_line(rights.into_iter().map(Doomed::Right).collect());
    }
}

fn close_in_line(doomed: Vec<Doomed>) {
    let is_first = LINE.try_with(|line| {
        let mut line = line.borrow_mut();
        let is_first = line.is_none();
        (is_first, line.get_or_insert_default().len())
    });
    // A thread whose locals are gone closes in place: it is ending, and has no line.
    let Ok((is_first, _)) = is_first else {
        drop(doomed);
        return;
    };
    let mut doomed = Some(doomed);
    let _ = LINE.try_with(|line| {
        if let Some(line) = line.borrow_mut().as_mut() {
            line.extend(doomed.take().into_iter().flatten());
        }
    });
    if !is_first {
        return;
    }
    loop {
        let next = LINE.try_with(|line| {
            let mut line = line.borrow_mut();
            let next = line.as_mut().and_then(VecDeque::pop_front);
            if next.is_none() {
                *line = None;
            }
            next
        });
        match next {
            Ok(Some(Doomed::Right(right))) => drop(right),
            Ok(Some(Doomed::Embryo(sock))) => sock.close_unaccepted(),
            Ok(None) | Err(_) => return,
        }
    }
}
