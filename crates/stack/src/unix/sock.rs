//! [`Sock`]: a counted handle of a socket; common operations of every type: connecting two, shutting down,
//! closing.
//!
//! A handle of a connected socket holds both pcbs. So a send follows a pointer that cannot change, without
//! a lock and without counting a reference, and pcbs need not point at each other. (With the settings
//! `global` and `pair` they do, through `Pcb::link`.)
//!
//! Does not depend on names (`names.rs`) or how data moves. Invariants: `users` is the number of handles; the
//! last one closes, once; nothing is woken or dropped under a lock. Tests: `tests/unix*`.

use std::io;
use std::task::Waker;

use rustix::io::Errno;
use sockeye_sync::Key;
use sockeye_sync::facade::{Arc, Ordering};

use super::addr::Name;
use super::listen::phase;
use super::locking::{Chosen, Locking};
use super::names;
use super::pcb::{Contents, Kind, Pcb, So};
use super::rights::dispose;
use super::wakes::Wakes;
use super::{collect, datagram_link};
use crate::rt::env::Env;
use crate::rt::fork::Held;
use crate::rt::handle::Stack;
use crate::rt::panics::{self, PanicSource};
use crate::rt::poll::Ready;
use crate::rt::poll::registration::{self, Gone};
use crate::rt::tasks::{Listed, Want};

/// See the module's head.
pub(crate) struct Sock {
    pub pcb: Arc<Pcb>,
    /// Of a connected socket its peer; of a datagram socket the one that it was made with.
    pub peer: Option<Arc<Pcb>>,
    pub stack: Stack,
}

impl Clone for Sock {
    fn clone(&self) -> Self {
        // SeqCst: see `collect`.
        self.pcb.users.fetch_add(1, Ordering::SeqCst);
        Self { pcb: Arc::clone(&self.pcb), peer: self.known_peer(), stack: self.stack.clone() }
    }
}

impl Drop for Sock {
    fn drop(&mut self) {
        // SeqCst: the thread that takes the count to 0 has seen the writes of the other handles; and see
        // `collect`.
        if self.pcb.users.fetch_sub(1, Ordering::SeqCst) == 1 {
            let peer = self.known_peer();
            panics::contain(self.core(), PanicSource::Protocol, "close", || {
                close(self.core(), &self.pcb, peer.as_ref());
            });
        } else if collect::is_suspect(&self.pcb) {
            collect::collect(&self.pcb);
        }
    }
}

impl Sock {
    /// The first handle of a new socket.
    ///
    /// # Errors
    /// That of a stack which this process may not use.
    pub fn new(stack: &Stack, kind: Kind) -> io::Result<Self> {
        stack.core::<Env>()?;
        Ok(Self::make(stack, kind))
    }

    /// The same for a handle whose constructor cannot fail: its calls then do.
    pub fn held(stack: &Stack, kind: Kind) -> Held<Self> {
        Held::try_new(stack, || Self::make(stack, kind))
    }

    /// A socket of the same kind and stack.
    pub fn another(&self) -> Self {
        Self::make(&self.stack, self.pcb.kind)
    }

    fn make(stack: &Stack, kind: Kind) -> Self {
        let core = stack.core_in_use();
        let pcb =
            super::shared(core).registry.enter(core.cpu(), |serial| Pcb::new(kind, stack.config(), serial));
        Self { pcb, peer: None, stack: stack.clone() }
    }

    /// Two sockets that are connected to each other.
    pub fn pair(stack: &Stack, kind: Kind) -> io::Result<(Self, Self)> {
        let core = stack.core()?;
        let (mut a, mut b) = (Self::make(stack, kind), Self::make(stack, kind));
        if kind.is_connected() {
            connect_pcbs(core, &a.pcb, &b.pcb);
            for end in [&a, &b] {
                end.pcb.phase.store(phase::CONNECTED, Ordering::Release);
            }
        } else {
            datagram_link::link_pair(core, &a.pcb, &b.pcb);
        }
        a.peer = Some(Arc::clone(&b.pcb));
        b.peer = Some(Arc::clone(&a.pcb));
        Ok((a, b))
    }

    /// Another handle of the same socket, without its peer.
    pub fn clone_parts(&self) -> Self {
        self.pcb.users.fetch_add(1, Ordering::SeqCst);
        Self { pcb: Arc::clone(&self.pcb), peer: None, stack: self.stack.clone() }
    }

    pub fn core(&self) -> &Env {
        self.stack.core_in_use()
    }

    /// [`peer`](Self::peer), or that of a socket which has connected since this handle was made.
    fn known_peer(&self) -> Option<Arc<Pcb>> {
        self.peer.clone().or_else(|| self.pcb.connected_since())
    }

    /// The peer of a connected socket, whichever of its handles this is.
    pub fn connection(&self) -> Option<Arc<Pcb>> {
        self.known_peer().filter(|_| self.pcb.kind.is_connected())
    }

    /// The peer of a connected socket, by a handle of the connection.
    #[inline]
    pub fn connected(&self) -> Result<&Arc<Pcb>, Errno> {
        self.peer.as_ref().ok_or(Errno::NOTCONN)
    }

    /// Where senders of this handle wait for room: at the peer of a connection.
    pub fn room(&self) -> &Arc<Pcb> {
        self.peer.as_ref().filter(|_| self.pcb.kind.is_connected()).unwrap_or(&self.pcb)
    }

    /// Whether calls block.
    #[inline]
    pub fn blocks(&self) -> bool {
        // Relaxed: an option, which orders nothing.
        !self.pcb.options.nonblocking.load(Ordering::Relaxed)
    }

    /// Closes a connection that was not accepted: its peer is reset even if nothing is lost.
    pub fn close_unaccepted(self) {
        // The handle's own drop does the rest.
        let mut wakes = Wakes::new(self.core());
        if let Some(peer) = &self.peer {
            peer.so.lock().error = Some(Errno::CONNRESET);
            peer.alert.store(true, Ordering::Release);
            announce(peer, Some(&self.pcb), &mut wakes);
        }
        wakes.fire();
    }

    /// The name of a connected socket's peer.
    pub fn connected_name(&self) -> Option<Arc<Name>> {
        self.peer.as_ref().filter(|_| self.pcb.kind.is_connected())?.name.get().cloned()
    }

    /// SO_ERROR.
    pub fn take_error(&self) -> Option<Errno> {
        let mut so = self.pcb.so.lock();
        let error = so.error.take();
        settle_alert(&self.pcb, &so);
        error
    }

    /// shutdown(2): reading, writing.
    pub fn shutdown(&self, read: bool, write: bool) {
        let (pcb, peer) = (&self.pcb, self.connection());
        let mut wakes = Wakes::new(self.core());
        Chosen::exclusive(self.core(), pcb, peer.as_deref(), || {
            if read {
                shut(pcb, &mut wakes);
            }
            if write {
                match &peer {
                    Some(peer) => shut(peer, &mut wakes),
                    None => {
                        pcb.so.lock().send_shut = true;
                        pcb.alert.store(true, Ordering::Release);
                    }
                }
            }
        });
        announce(pcb, peer.as_ref(), &mut wakes);
        if let Some(peer) = &peer {
            announce(peer, Some(pcb), &mut wakes);
        }
        wakes.fire();
    }
}

/// Connects two pcbs that no other thread knows yet, or whose connecting side no other thread uses.
pub(crate) fn connect_pcbs(core: &Env, a: &Arc<Pcb>, b: &Arc<Pcb>) {
    Chosen::link(core, a, b);
    for (own, peer) in [(a, b), (b, a)] {
        // Relaxed: for diagnosis.
        own.peer_serial.store(peer.serial, Ordering::Relaxed);
        let mut so = own.so.lock();
        so.is_connected = true;
        so.hiwat = peer.options.sndbuf.load(Ordering::Relaxed) as usize;
        so.wants_creds = wants_creds(own, peer);
    }
}

/// Whether one of two connected sockets wants credentials. For the flag of either, under its mutex: of several threads that set an option and then the
/// flags, the last one in there finds what all have set.
pub(crate) fn wants_creds(a: &Pcb, b: &Pcb) -> bool {
    // Relaxed: the mutex orders the stores of earlier sections' threads before this.
    [a, b].iter().any(|pcb| pcb.options.passcred.load(Ordering::Relaxed))
}

/// `alert` says whether senders have to look into `so`.
pub(crate) fn settle_alert(pcb: &Pcb, so: &So) {
    pcb.alert.store(so.error.is_some() || so.send_shut, Ordering::Release);
}

/// Nothing more comes into `pcb`.
fn shut(pcb: &Arc<Pcb>, wakes: &mut Wakes<'_>) {
    let mut so = pcb.so.lock();
    so.shut = true;
    wakes.readers(pcb, &mut so);
    wakes.writers(pcb, &mut so);
    let unblocked = so.flows.unblock_all();
    drop(so);
    wakes.senders(unblocked);
}

impl Listed for Sock {
    fn take_off(&self, want: Want, key: Key) -> Option<Waker> {
        match want {
            Want::Write | Want::Connect => self.room().so.lock().writers.remove(key),
            Want::Read | Want::Priority | Want::Error => self.pcb.so.lock().readers.remove(key),
        }
    }
}

impl Held<Sock> {
    /// For an application.
    pub fn of(sock: Sock) -> Self {
        Self::new(sock.stack.clone(), sock)
    }
}

/// Content that a close takes out of the buffers, to be dropped after all locks: a registration may be the last to hold a
/// socket.
#[derive(Default)]
struct Leftovers {
    contents: Contents,
    registrations: Vec<Gone>,
}

/// The last handle is gone.
fn close(core: &Env, pcb: &Arc<Pcb>, peer: Option<&Arc<Pcb>>) {
    super::shared(core).registry.leave(pcb.serial);
    // The socket is closed whatever becomes of its name.
    panics::contain(core, PanicSource::Protocol, "the end of a name", || names::forget(core, pcb));
    let (mut wakes, mut left) = (Wakes::new(core), Leftovers::default());
    let connected = peer.filter(|_| pcb.kind.is_connected());
    Chosen::exclusive(core, pcb, connected.map(|peer| &**peer), || {
        let is_lossy = close_own(pcb, &mut wakes, &mut left);
        if let Some(peer) = connected {
            close_peer(peer, is_lossy, &mut wakes, &mut left);
        }
        // After the peer has its error, which its waiting writers report.
        wakes.writers(pcb, &mut pcb.so.lock());
    });
    match connected {
        Some(peer) => {
            Chosen::unlink(core, pcb, peer);
            announce(peer, Some(pcb), &mut wakes);
        }
        None if pcb.kind == Kind::Datagram => datagram_link::unlink(core, pcb, &mut wakes),
        None => {}
    }
    wakes.fire();
    let Leftovers { contents, registrations } = left;
    drop(registrations);
    dispose(contents);
}

/// Effects of closing on the socket itself. Whether bytes are lost.
fn close_own(pcb: &Arc<Pcb>, wakes: &mut Wakes<'_>, left: &mut Leftovers) -> bool {
    let mut so = pcb.so.lock();
    (so.closed, so.shut, so.send_shut) = (true, true, true);
    left.contents = so.empty();
    so.backlog = None;
    so.flows.only = 0;
    wakes.senders(so.flows.clear(true));
    // Registrations of the closed socket itself end; its peer's stay where they are until that closes.
    left.registrations.extend(registration::clear(&mut so.readers, wakes.list()));
    if pcb.kind == Kind::Datagram {
        // Of tasks that wanted to write through it.
        left.registrations.extend(registration::clear(&mut so.writers, wakes.list()));
    }
    so.is_connected && left.contents.was_unread
}

/// Effects of closing on the peer.
fn close_peer(peer: &Arc<Pcb>, is_reset: bool, wakes: &mut Wakes<'_>, left: &mut Leftovers) {
    let mut so = peer.so.lock();
    so.shut = true;
    if is_reset && !so.closed {
        so.error = Some(Errno::CONNRESET);
        peer.alert.store(true, Ordering::Release);
    }
    wakes.readers(peer, &mut so);
    // The closed socket wanted to write here: its registrations and tasks end.
    left.registrations.extend(registration::clear(&mut so.writers, wakes.list()));
}

/// Readiness of a connected socket, or of one that has no peer.
pub(crate) fn readiness(pcb: &Pcb, peer: Option<&Arc<Pcb>>) -> Ready {
    let (own, is_shut, is_send_shut, is_listening) = {
        let so = pcb.so.lock();
        (so.readiness(), so.shut, so.send_shut, so.backlog.is_some())
    };
    let (has_room, is_peer_shut) = match peer {
        Some(peer) => {
            let so = peer.so.lock();
            (so.has_room(), so.takes_nothing())
        }
        None => (!is_listening, is_send_shut),
    };
    let hung_up = (is_shut && is_peer_shut) || (pcb.kind.is_connected() && peer.is_none() && !is_listening);
    own.with(Ready::WRITABLE.when(has_room))
        .with(Ready::WRITE_CLOSED.when(is_peer_shut))
        .with(Ready::HUNG_UP.when(hung_up))
}

/// Tells the polls of a socket its readiness now.
pub(crate) fn announce(pcb: &Pcb, peer: Option<&Arc<Pcb>>, wakes: &mut Wakes<'_>) {
    let ready = readiness(pcb, peer);
    pcb.so.lock().readers.mark(ready.bits(), wakes.list());
}
