//! The calls that a case may make on a UNIX-domain socket, as one trait over both implementations.
//!
//! Purpose: every case is written once, over [`Provider`], and run on the kernel and on Sockeye. The trait
//! is as low as the system calls are: one kind of handle, flags, errno. A library with a type for each kind
//! of socket cannot express every call (`accept` on a datagram socket); its provider then answers
//! [`Refusal::Inexpressible`], which the comparison leaves out and counts.
//!
//! Does not depend on any provider or case.
//!
//! Invariants: names are logical; a provider puts them into a folder or behind a prefix of its own, and removes
//! that again when it reports one. A provider belongs to one run of one case.

use std::os::fd::OwnedFd;
use std::time::Duration;

/// SOCK_STREAM, SOCK_DGRAM or SOCK_SEQPACKET.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Stream,
    Datagram,
    Seqpacket,
}

/// All three.
pub const KINDS: [Kind; 3] = [Kind::Stream, Kind::Datagram, Kind::Seqpacket];
/// Those with connections, listeners and an end of file.
pub const CONNECTED: [Kind; 2] = [Kind::Stream, Kind::Seqpacket];

/// An address, before a provider has put it in its own place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Name {
    /// No address; to `bind` it means: choose one.
    Unnamed,
    /// A pathname in the provider's folder.
    Path(String),
    /// A pathname that is padded to this many bytes as a whole.
    PathOf(usize),
    /// A name in the abstract namespace.
    Abstract(String),
    /// An abstract name that is padded to this many bytes as a whole, the leading zero byte not counted.
    AbstractOf(usize),
    /// The address that `bind` chose; only ever reported.
    Chosen,
}

/// A pathname.
pub fn path(name: &str) -> Name {
    Name::Path(name.to_owned())
}

/// An abstract name.
pub fn hidden(name: &str) -> Name {
    Name::Abstract(name.to_owned())
}

/// Why a call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Linux's number.
    Errno(i32),
    /// An error that carries none: always a difference from the kernel.
    Numberless(std::io::ErrorKind),
    /// The library's types have no such call on such a socket.
    Inexpressible,
}

pub type Answer<T> = Result<T, Refusal>;

impl From<std::io::Error> for Refusal {
    fn from(error: std::io::Error) -> Self {
        error.raw_os_error().map_or(Refusal::Numberless(error.kind()), Refusal::Errno)
    }
}

impl From<rustix::io::Errno> for Refusal {
    fn from(errno: rustix::io::Errno) -> Self {
        Refusal::Errno(errno.raw_os_error())
    }
}

/// MSG_* as far as they mean something here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    pub dont_wait: bool,
    pub peek: bool,
    pub wait_all: bool,
    pub trunc: bool,
    pub end_of_record: bool,
}

/// Something that can be put into a message.
#[derive(Clone, Copy)]
pub enum Carried<'a, S> {
    Socket(&'a S),
    File(&'a OwnedFd),
}

/// Something that came out of a message.
pub enum Handle<S> {
    Socket(S),
    File(OwnedFd),
}

/// A message to send.
pub struct Outgoing<'a, S> {
    pub data: &'a [u8],
    pub to: Option<&'a Name>,
    /// `None` for a message without SCM_RIGHTS; an empty list is one with none in it.
    pub rights: Option<Vec<Carried<'a, S>>>,
    pub flags: Flags,
}

/// The buffers to receive into.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    pub data: usize,
    /// Room for this many descriptors.
    pub rights: usize,
    /// Room for SCM_CREDENTIALS besides.
    pub credentials: bool,
    pub flags: Flags,
}

/// pid, uid and gid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credentials {
    pub pid: i32,
    pub uid: u32,
    pub gid: u32,
}

/// A received message.
pub struct Incoming<S> {
    /// The value that the call returned, which may exceed the length of the data with MSG_TRUNC.
    pub len: usize,
    pub data: Vec<u8>,
    pub truncated: bool,
    pub control_truncated: bool,
    pub end_of_record: bool,
    pub from: Option<Name>,
    pub rights: Vec<Handle<S>>,
    pub credentials: Option<Credentials>,
}

/// poll(2)'s answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Readiness {
    pub readable: bool,
    pub writable: bool,
    pub read_hang_up: bool,
    pub hang_up: bool,
    pub error: bool,
}

/// Which side to shut down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Read,
    Write,
    Both,
}

/// Which buffer, or which timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Send,
    Receive,
}

/// A place where sockets live.
pub trait Provider: Sized + Send + Sync + 'static {
    type Socket: Send + Sync + 'static;

    /// A file that was received in a message; the sender declares whether it is a socket.
    fn adopt(file: OwnedFd, is_socket: bool) -> Handle<Self::Socket>;

    fn socket(&self, kind: Kind) -> Answer<Self::Socket>;
    fn pair(&self, kind: Kind) -> Answer<(Self::Socket, Self::Socket)>;
    fn bind(&self, socket: &Self::Socket, to: &Name) -> Answer<()>;
    fn listen(&self, socket: &Self::Socket, backlog: i32) -> Answer<()>;
    fn connect(&self, socket: &Self::Socket, to: &Name) -> Answer<()>;
    /// `connect` to AF_UNSPEC.
    fn disconnect(&self, socket: &Self::Socket) -> Answer<()>;
    fn accept(&self, socket: &Self::Socket) -> Answer<(Self::Socket, Name)>;
    fn local(&self, socket: &Self::Socket) -> Answer<Name>;
    fn peer(&self, socket: &Self::Socket) -> Answer<Name>;
    fn unlink(&self, name: &Name) -> Answer<()>;

    fn send(&self, socket: &Self::Socket, message: Outgoing<'_, Self::Socket>) -> Answer<usize>;
    fn receive(&self, socket: &Self::Socket, room: Room) -> Answer<Incoming<Self::Socket>>;
    fn shutdown(&self, socket: &Self::Socket, side: Side) -> Answer<()>;

    fn poll(&self, socket: &Self::Socket) -> Answer<Readiness>;
    /// SO_ERROR: taken, 0 if there is none.
    fn take_error(&self, socket: &Self::Socket) -> Answer<i32>;
    /// SIOCINQ.
    fn unread(&self, socket: &Self::Socket) -> Answer<usize>;
    fn set_nonblocking(&self, socket: &Self::Socket, on: bool) -> Answer<()>;
    fn set_timeout(&self, socket: &Self::Socket, direction: Direction, timeout: Duration) -> Answer<()>;
    fn set_buffer(&self, socket: &Self::Socket, direction: Direction, bytes: usize) -> Answer<()>;
    fn set_passcred(&self, socket: &Self::Socket, on: bool) -> Answer<()>;
    fn passcred(&self, socket: &Self::Socket) -> Answer<bool>;
    fn peer_credentials(&self, socket: &Self::Socket) -> Answer<Credentials>;
}
