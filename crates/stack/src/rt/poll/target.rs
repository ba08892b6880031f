//! The socket behind a registration: where its list is, and what it is ready for now.
//!
//! Must not know polls' insides. Tests: `tests/suite/poll.rs`, `tests/unix/`, `tests/udp/`.

use std::io;

use sockeye_sync::facade::Arc;

use super::ready::Ready;
use super::registration::{self, Registration};
use super::table::Queue;
use crate::rt::failpoints::{self, Point};
use crate::tcp::conn::Conn;
use crate::tcp::conn::outbox::Wake;
use crate::tcp::conn::sockbuf::Buffers;
use crate::tcp::handshake::listen::Listener;
use crate::udp::pcb::Pcb;
use crate::unix::ready::End;

/// The socket behind a registration.
#[derive(Clone)]
pub(crate) enum Target {
    Conn(Arc<Conn>),
    Listener(Arc<Listener>),
    Unix(End),
    Udp(Arc<Pcb>),
}

impl Target {
    /// Lists a registration, and marks it with what the socket is ready for.
    pub(super) fn add(&self, registration: &Arc<Registration>, wakes: &mut Vec<Wake>) -> io::Result<()> {
        match self {
            Self::Conn(conn) => {
                // In one section: the mark may be of an owned word.
                let mut so = conn.so.lock();
                registration::add(&mut so.waiters, registration)?;
                failpoints::hit(Point::PollAdd, registration.token.0 as u64);
                Registration::mark(registration, Self::of_buffers(conn, &so), wakes);
                return Ok(());
            }
            Self::Listener(listener) => {
                listener.with_waiters(|list| registration::add(list, registration))?
            }
            Self::Unix(end) => end.add(registration)?,
            Self::Udp(pcb) => registration::add(&mut pcb.receive.so.lock().waiters, registration)?,
        }
        failpoints::hit(Point::PollAdd, registration.token.0 as u64);
        Registration::mark(registration, self.ready(), wakes);
        Ok(())
    }

    pub(super) fn remove(&self, queue: &Arc<Queue>) -> Option<Arc<Registration>> {
        match self {
            Self::Conn(conn) => registration::remove(&mut conn.so.lock().waiters, queue),
            Self::Listener(listener) => listener.with_waiters(|list| registration::remove(list, queue)),
            Self::Unix(end) => end.remove(queue),
            Self::Udp(pcb) => registration::remove(&mut pcb.receive.so.lock().waiters, queue),
        }
    }

    /// Readiness now, from the buffers themselves.
    pub(super) fn ready(&self) -> Ready {
        match self {
            Self::Conn(conn) => Self::of_buffers(conn, &conn.so.lock()),
            Self::Listener(listener) => Ready::READABLE.when(listener.is_readable()),
            Self::Unix(end) => end.ready(),
            Self::Udp(pcb) => pcb.readiness(),
        }
    }

    /// Readiness of a connection with these buffers.
    pub(super) fn of_buffers(conn: &Conn, so: &Buffers) -> Ready {
        let read = Ready::READABLE
            .when(so.rcv.is_readable())
            .with(Ready::PRIORITY.when(so.rcv.has_urgent()))
            .with(Ready::READ_CLOSED.when(so.rcv.eof || so.rcv.shut));
        let write = Ready::WRITABLE.when(so.snd.is_writable()).with(Ready::WRITE_CLOSED.when(so.snd.shut));
        read.with(write).with(Ready::ERROR.when(conn.has_error()))
    }
}

pub(crate) mod sealed {
    use super::Target;

    /// What a socket tells a set about itself.
    pub trait Source {
        #[doc(hidden)]
        #[allow(private_interfaces)]
        fn target(&self) -> std::io::Result<Target>;

        /// Its stack.
        #[doc(hidden)]
        fn owner(&self) -> &crate::Stack;
    }
}
