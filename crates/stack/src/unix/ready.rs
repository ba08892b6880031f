//! Readiness of UNIX-domain sockets, for polls and tasks: what Linux's `unix_poll` and `unix_dgram_poll` say.
//!
//! | socket | is |
//! |---|---|
//! | readable | something is there, or nothing more comes in |
//! | writable | at most a quarter of what may wait at the peer is there; a datagram socket's flow has room |
//! | read closed (RDHUP) | nothing more comes in: the peer closed or shut, or we did |
//! | hung up (HUP) | neither direction goes any more; also a stream socket that is not connected |
//! | in error (ERR) | an error is pending |
//!
//! Whether a socket is writable depends on its *peer's* buffer, so a registration stands in two lists: with
//! the socket (everything) and with the peer's buffer (room). Each list is under its buffer's mutex, and who
//! changes the buffer marks it in the same section. A datagram socket's room is told by its flow
//! (`flows.rs`): who finds none says so there, under the receiver's mutex, and is told when there is.
//!
//! Must not know polls' insides. Why no wake-up is lost: `poll.rs`; first listed, then looked at. Tests:
//! `tests/unix/`.

use std::io;

use sockeye_sync::facade::{Arc, Ordering};

use super::pcb::{Kind, Pcb};
use super::sock::{self, Sock};
use crate::poll::{Queue, Ready, Registration};

/// A socket as a poll holds it: no handle, so it does not keep the socket open.
#[derive(Clone)]
pub(crate) struct End {
    pcb: Arc<Pcb>,
    peer: Option<Arc<Pcb>>,
}

impl End {
    pub fn of(sock: &Sock) -> Self {
        Self { pcb: Arc::clone(&sock.pcb), peer: sock.peer.clone() }
    }

    /// The peer of a connected socket.
    fn connected(&self) -> Option<&Arc<Pcb>> {
        self.peer.as_ref().filter(|_| self.pcb.kind.is_connected())
    }

    /// Lists a registration.
    pub fn add(&self, registration: &Arc<Registration>) -> io::Result<()> {
        self.pcb.so.lock().watch.add(registration)?;
        let Some(peer) = self.connected() else { return Ok(()) };
        let added = peer.so.lock().out_watch.add(registration);
        if added.is_err() {
            self.pcb.so.lock().watch.remove(registration.queue());
        }
        added
    }

    /// Takes a registration out of the lists.
    pub fn remove(&self, queue: &Arc<Queue>) -> Option<Arc<Registration>> {
        let gone = self.pcb.so.lock().watch.remove(queue);
        if let Some(peer) = self.connected() {
            let second = peer.so.lock().out_watch.remove(queue);
            drop(second);
        }
        gone
    }

    /// Readiness now, from the buffers themselves.
    pub fn ready(&self) -> Ready {
        match self.pcb.kind {
            Kind::Stream | Kind::Seqpacket => sock::readiness(&self.pcb, self.connected()),
            Kind::Datagram => self.datagram_ready(),
        }
    }

    fn datagram_ready(&self) -> Ready {
        let (own, is_shut, is_send_shut) = {
            let so = self.pcb.so.lock();
            (so.readiness(), so.shut, so.send_shut)
        };
        own.with(Ready::WRITABLE.when(self.has_flow_room()))
            .with(Ready::WRITE_CLOSED.when(is_send_shut))
            .with(Ready::HUNG_UP.when(is_shut && is_send_shut))
    }

    /// Whether a datagram to the peer has room. If not, the flow tells when it has.
    fn has_flow_room(&self) -> bool {
        let Some(peer) = self.pcb.link.peer() else { return true };
        let sndbuf = self.pcb.options.sndbuf.load(Ordering::Relaxed) as usize;
        let mut so = peer.so.lock();
        let hint = self.pcb.flow_hint.load(Ordering::Relaxed);
        let Some(flow) = so.flows.find(&self.pcb, hint) else { return true };
        let has_room = so.closed || so.flows.is_writable(flow, sndbuf);
        if !has_room {
            so.flows.block(flow);
        }
        has_room
    }
}

#[cfg(feature = "tokio")]
pub(crate) use tasks::{poll_accept, poll_readable, poll_writable};

/// Waiting without a thread. A waker is stored under the mutex of the condition, in the section that found
/// it false; whoever makes it true takes the wakers out under the same mutex. (For a datagram's room the
/// waker is stored first, and the flow told afterwards.)
#[cfg(feature = "tokio")]
mod tasks {
    use std::task::{Poll, Waker};

    use super::super::listen;
    use super::super::pcb::{Kind, remember};
    use super::super::sock::Sock;
    use super::End;
    use crate::poll::Ready;

    impl Sock {
        /// Has `waker` woken when a flow of this datagram socket that was full has room.
        pub fn remember_writer(&self, waker: &Waker) {
            let early = remember(&mut self.pcb.so.lock().write_wakers, waker);
            early.into_iter().for_each(Waker::wake);
        }
    }

    /// Ready once a receive would not block.
    pub(crate) fn poll_readable(sock: &Sock, waker: &Waker) -> Poll<()> {
        let mut so = sock.pcb.so.lock();
        if so.is_readable() || so.error.is_some() {
            return Poll::Ready(());
        }
        let early = remember(&mut so.read_wakers, waker);
        drop(so);
        early.into_iter().for_each(Waker::wake);
        Poll::Pending
    }

    /// Ready once a send would not block.
    pub(crate) fn poll_writable(sock: &Sock, waker: &Waker) -> Poll<()> {
        let early = match (sock.pcb.kind, &sock.peer) {
            (Kind::Stream | Kind::Seqpacket, Some(peer)) => {
                let mut so = peer.so.lock();
                if so.has_room() || so.takes_nothing() {
                    return Poll::Ready(());
                }
                remember(&mut so.write_wakers, waker)
            }
            (Kind::Stream | Kind::Seqpacket, None) => return Poll::Ready(()),
            (Kind::Datagram, _) => {
                let early = remember(&mut sock.pcb.so.lock().write_wakers, waker);
                if End::of(sock).ready().any(Ready::WRITABLE.with(Ready::WRITE_CLOSED).with(Ready::ERROR)) {
                    return Poll::Ready(());
                }
                early
            }
        };
        early.into_iter().for_each(Waker::wake);
        Poll::Pending
    }

    /// The next connection of a listener.
    pub(crate) fn poll_accept(sock: &Sock, waker: &Waker) -> Poll<std::io::Result<Sock>> {
        loop {
            match listen::accept(sock) {
                Err(rustix::io::Errno::AGAIN) => {}
                done => return Poll::Ready(done.map_err(std::io::Error::from)),
            }
            if poll_readable(sock, waker).is_pending() {
                return Poll::Pending;
            }
        }
    }
}
