//! UNIX-domain sockets: streams, datagrams and sequenced packets, in the shapes of `std::os::unix::net`.
//!
//! ```
//! use std::io::{Read, Write};
//! use sockeye::unix::UnixStream;
//!
//! let (mut a, mut b) = UnixStream::pair()?;
//! a.write_all(b"hello")?;
//! let mut hello = [0; 5];
//! b.read_exact(&mut hello)?;
//! assert_eq!(&hello, b"hello");
//! # std::io::Result::Ok(())
//! ```
//!
//! Constructors that do not name a stack make sockets of the current one ([`Stack::current`](crate::Stack::current)). Names
//! are a stack's own: pathnames do not touch the file system, and sockets of different stacks do not meet. Semantics are Linux's (unix(7)), bounds and differences are in `docs/unix.md`. Errors have
//! the numbers that Linux gives (`io::Error::raw_os_error`).
//!
//! | file | content |
//! |---|---|
//! | `locking.rs` | **the lock protocol**: read this first |
//! | `experiments/` | its older settings |
//! | `pcb.rs`, `bytes.rs`, `stream_ancillary.rs`, `flows.rs` | a socket and its receive buffer |
//! | `sock.rs`, `listen.rs`, `datagram_link.rs`, `names.rs`, `addr.rs` | handles, connecting, names |
//! | `send.rs`, `datagram_send.rs`, `recv.rs`, `wait.rs`, `wakes.rs` | the way of the data |
//! | `ancillary.rs`, `rights.rs`, `collect.rs` | ancillary data, and the collector of lost sockets |
//! | `ready.rs` | readiness, for polls and tasks |
//! | `registry.rs`, `snapshot.rs` | the list of all sockets, for diagnosis |
//! | `common.rs`, `stream.rs`, `seqpacket.rs`, `datagram.rs`, `listener.rs`, `socket.rs` | public types |
//!
//! It takes no connection's lock. Tests: at the ends of files, `tests/unix*`.

mod addr;
mod ancillary;
pub(crate) mod bytes;
mod collect;
mod common;
mod contain;
mod datagram;
mod datagram_link;
mod datagram_send;
#[cfg(feature = "experiments")]
mod experiments;
mod flows;
pub(crate) mod listen;
mod listener;
mod locking;
mod names;
pub(crate) mod pcb;
pub(crate) mod ready;
mod records;
mod recv;
mod registry;
pub(crate) mod rights;
mod send;
mod seqpacket;
mod snapshot;
pub(crate) mod sock;
mod socket;
mod stream;
mod stream_ancillary;
mod wait;
mod wakes;

use std::io;
use std::path::Path;

use sockeye_sync::facade::Arc;

pub use addr::SocketAddr;
pub use ancillary::{MsgFlags, RIGHTS_MAX, RecvAncillary, RecvMsg, SendAncillary, UCred};
pub use datagram::UnixDatagram;
pub use listener::{Incoming, SeqIncoming, UnixListener, UnixSeqListener};
pub use rights::{Foreign, IN_FLIGHT_MAX, Right};
pub use seqpacket::UnixSeqpacket;
pub use snapshot::{SocketInfo, SocketKind};
pub use socket::UnixSocket;
pub use stream::UnixStream;

use crate::base::addr::HashKey;
use crate::rt::env::{Env, Kept};
use crate::rt::panics;
use locking::{Chosen, Locking};

/// State that the UNIX-domain sockets of a stack share.
pub(crate) struct Shared {
    pub names: names::Names,
    pub registry: registry::Registry,
    pub budget: Arc<sockeye_sync::Credits>,
    /// State of the setting `unix_locking`.
    #[cfg_attr(not(feature = "experiments"), allow(dead_code, reason = "the default one keeps nothing"))]
    locking: <Chosen as Locking>::OfStack,
}

/// State that the UNIX-domain sockets of a stack share.
pub(crate) fn shared(env: &Env) -> &Shared {
    env.kept()
}

impl Kept for Shared {
    const AT: usize = 0;
}

impl Shared {
    pub fn new(key: HashKey) -> Self {
        Self {
            names: names::Names::new(key),
            registry: registry::Registry::new(),
            budget: Arc::new(sockeye_sync::Credits::new(rights::IN_FLIGHT_MAX)),
            locking: Default::default(),
        }
    }

    /// Rights in flight.
    pub fn in_flight(&self) -> usize {
        self.budget.in_use()
    }
}

/// unlink(2) of a pathname.
pub(crate) fn unlink(core: &Env, path: &Path) -> io::Result<()> {
    let addr = SocketAddr::from_pathname(path)?;
    Ok(panics::call_or_errno(core, "unlink", || shared(core).names.unlink(&addr))?)
}
