//! Readiness of UNIX-domain sockets, for polls and tasks: as Linux's `unix_poll` and `unix_dgram_poll`.
//!
//! | socket | is |
//! |---|---|
//! | readable | something is there, or nothing more comes in |
//! | writable | at most a quarter of the bound at the peer is there; a datagram socket's flow has room |
//! | read closed (RDHUP) | nothing more comes in: the peer closed or shut, or we did |
//! | hung up (HUP) | neither direction goes any more; also a stream socket that is not connected |
//! | in error (ERR) | an error is pending |
//!
//! Whether a socket is writable depends on its *peer's* buffer, so a registration stands in two lists: with
//! the socket (everything) and with the peer's buffer (room). Each list is under its buffer's mutex, and a thread that
//! changes the buffer marks it in the same section. A datagram socket's flow announces its room
//! (`flows.rs`): a sender that finds none says so there, under the receiver's mutex, and is notified when there is some.
//!
//! A socket can be registered before it connects; then [`follow`] lists its registrations with the peer. Of a registration
//! that comes or goes meanwhile, one of the two threads sees the other, as both look at the socket's list under its mutex:
//!
//! ```text
//!   connect   set Pcb::peer   copy the own list        list each with the peer   own list: is it still there? else off the peer's
//!   register                  list in the own list     peer known? list with it
//!   deregister                off the own list         peer known? off its list
//! ```
//!
//! Does not depend on polls' insides. Why no wake-up is lost: `poll.rs`; first listed, then looked at. Tests:
//! `tests/unix/`.

use std::io;

use smallvec::SmallVec;
use sockeye_sync::facade::{Arc, Ordering};

use super::pcb::{Kind, Pcb};
use super::sock::{self, Sock};
use super::wakes::Wakes;
use crate::rt::poll::{self, Queue, Ready, Registration, Target, registration};
use crate::rt::wake::Wake;

/// A socket as a poll holds it: no handle, so it does not keep the socket open.
#[derive(Clone)]
pub(crate) struct End {
    pcb: Arc<Pcb>,
    /// Of a connected socket.
    peer: Option<Arc<Pcb>>,
}

/// A socket has connected, and [`Pcb::peer`] says so: lists the registrations that it had before with its peer's buffer, and
/// tells them what is ready now.
pub(crate) fn follow(pcb: &Arc<Pcb>, peer: &Arc<Pcb>, wakes: &mut Wakes<'_>) {
    let listed: SmallVec<[Arc<Registration>; 1]> = pcb.so.lock().readers.pollers().into();
    for registration in &listed {
        registration::join(&mut peer.so.lock().writers, registration);
        if !registration::is_in(&pcb.so.lock().readers, registration) {
            let gone = registration::leave(&mut peer.so.lock().writers, registration);
            drop(gone);
        }
    }
    if !listed.is_empty() {
        sock::announce(pcb, Some(peer), wakes);
    }
}

impl End {
    pub fn of(sock: &Sock) -> Self {
        Self { pcb: Arc::clone(&sock.pcb), peer: sock.connection() }
    }

    /// Calls `f` with the peer, which the socket may have got since this was made.
    fn with_peer<R>(&self, f: impl FnOnce(Option<&Arc<Pcb>>) -> R) -> R {
        match &self.peer {
            Some(peer) => f(Some(peer)),
            None if self.pcb.kind.is_connected() => f(self.pcb.connected_since().as_ref()),
            None => f(None),
        }
    }

    /// Lists a registration.
    fn list(&self, registration: &Arc<Registration>) -> io::Result<()> {
        registration::add(&mut self.pcb.so.lock().readers, registration)?;
        self.with_peer(|peer| {
            if let Some(peer) = peer {
                registration::join(&mut peer.so.lock().writers, registration);
            }
        });
        Ok(())
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

    /// Whether a datagram to the peer has room. If not, the flow notifies the sender when it has.
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

impl Target for End {
    fn add(&self, registration: &Arc<Registration>, wakes: &mut Vec<Wake>) -> io::Result<()> {
        self.list(registration)?;
        poll::mark(registration, self.ready(), wakes);
        Ok(())
    }

    fn remove(&self, queue: &Arc<Queue>) -> Option<Arc<Registration>> {
        let gone = registration::remove(&mut self.pcb.so.lock().readers, queue);
        self.with_peer(|peer| {
            let second = peer.and_then(|peer| registration::remove(&mut peer.so.lock().writers, queue));
            drop(second);
        });
        gone
    }

    fn ready(&self) -> Ready {
        match self.pcb.kind {
            Kind::Stream | Kind::Seqpacket => self.with_peer(|peer| sock::readiness(&self.pcb, peer)),
            Kind::Datagram => self.datagram_ready(),
        }
    }
}

/// How tasks wait.
#[cfg(feature = "tokio")]
mod tasks {
    use std::io;

    use super::super::pcb::Kind;
    use super::super::sock::Sock;
    use super::End;
    use crate::rt::env::Env;
    use crate::rt::fork::Held;
    use crate::rt::poll::Target as _;
    use crate::rt::poll::{Ready, Waiters};
    use crate::rt::tasks::{Waitable, Want};

    impl Sock {
        /// Whether nothing is there and nothing more comes.
        pub fn is_at_end(&self) -> bool {
            let so = self.pcb.so.lock();
            so.shut && so.data.is_empty() && so.records.is_empty() && so.error.is_none()
        }
    }

    impl Waitable for Held<Sock> {
        fn env(&self) -> io::Result<&Env> {
            Ok(self.enter()?.0)
        }

        fn with_list<R>(&self, want: Want, f: impl FnOnce(bool, &mut Waiters) -> R) -> io::Result<R> {
            let sock = self.open()?;
            Ok(match want {
                Want::Write | Want::Connect => {
                    let mut so = sock.room().so.lock();
                    let is_over = match (sock.pcb.kind.is_connected(), &sock.peer) {
                        (true, Some(_)) => so.has_room() || so.takes_nothing(),
                        _ => sock.pcb.kind != Kind::Datagram,
                    };
                    f(is_over, &mut so.writers)
                }
                Want::Read => {
                    let mut so = sock.pcb.so.lock();
                    let is_over = so.is_readable() || so.error.is_some();
                    f(is_over, &mut so.readers)
                }
                Want::Priority | Want::Error => {
                    let mut so = sock.pcb.so.lock();
                    let is_over = so.error.is_some() || (want == Want::Priority && so.shut);
                    f(is_over, &mut so.readers)
                }
            })
        }

        /// The room for datagrams is its receiver's. A flow without any notifies its sender when it has some, from
        /// this question on.
        fn is_ready_elsewhere(&self, want: Want) -> io::Result<bool> {
            let sock = self.open()?;
            let is_asked = want == Want::Write && sock.pcb.kind == Kind::Datagram;
            Ok(is_asked
                && End::of(sock).ready().any(Ready::WRITABLE.with(Ready::WRITE_CLOSED).with(Ready::ERROR)))
        }
    }
}
