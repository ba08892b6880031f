//! Listeners: binding, listening, connecting to one, accepting.
//!
//! A connection is whole when it is put into the backlog: its client may write at once. There is room for one
//! more than the backlog says, as on Linux. A place is taken first, under the listener's `so`, then the
//! connection is made, then it is put there; a listener that closes in between refuses.
//!
//! Does not depend on public types. Bound: [`BACKLOG_MAX`]. Lock order: `locking.rs`. Tests: `tests/unix*`.

use std::cell::Cell;
use std::collections::VecDeque;

use rustix::io::Errno;
use sockeye_sync::Ticket;
use sockeye_sync::facade::{Arc, Ordering};

use super::addr::SocketAddr;
use super::contain;
use super::locking::{Chosen, Locking};
use super::pcb::{Backlog, Kind, Pcb};
use super::ready;
use super::sock::{Sock, connect_pcbs};
use super::wait::{Timeout, wait};
use super::wakes::Wakes;
use crate::config::BACKLOG_MAX;
use crate::rt::env::Env;
use crate::rt::failpoints::{self, Point};
#[cfg(feature = "tokio")]
use crate::rt::handle::Stack;
use crate::rt::panics::{self, PanicSource};
#[cfg(feature = "tokio")]
use crate::rt::poll::Waiters;
#[cfg(feature = "tokio")]
use crate::rt::tasks::{Waitable, Want};

/// Kind of a socket, as far as it may still change.
pub(crate) mod phase {
    /// Neither connected nor listening.
    pub const FRESH: u8 = 0;
    /// Connected, or becoming so.
    pub const CONNECTED: u8 = 1;
    pub const LISTENING: u8 = 2;
}

/// listen(2). A listener may be given another backlog.
///
/// # Errors
/// EOPNOTSUPP (datagrams), EINVAL (unbound, or connected).
pub(crate) fn listen(sock: &Sock, backlog: usize) -> Result<(), Errno> {
    contain::call(sock, "listen", || listen_now(sock, backlog))
}

fn listen_now(sock: &Sock, backlog: usize) -> Result<(), Errno> {
    let pcb = &sock.pcb;
    if !pcb.kind.is_connected() {
        return Err(Errno::OPNOTSUPP);
    }
    if pcb.name.get().is_none() {
        return Err(Errno::INVAL);
    }
    let claim =
        pcb.phase.compare_exchange(phase::FRESH, phase::LISTENING, Ordering::AcqRel, Ordering::Acquire);
    if claim == Err(phase::CONNECTED) {
        return Err(Errno::INVAL);
    }
    let max = backlog.min(BACKLOG_MAX);
    let mut wakes = Wakes::new(sock.core());
    let mut so = pcb.so.lock();
    match &mut so.backlog {
        Some(backlog) => backlog.max = max,
        None => so.backlog = Some(Box::new(Backlog { ready: VecDeque::new(), taken: 0, max })),
    }
    wakes.writers(pcb, &mut so);
    drop(so);
    wakes.fire();
    Ok(())
}

/// A listener without room, and the ticket of a call that blocks.
pub(crate) struct Full {
    listener: Arc<Pcb>,
    ticket: Option<Ticket>,
    /// Where room was made last.
    cpu: u32,
}

/// Why a place was not taken.
enum NoPlace {
    Full(Option<Ticket>, u32),
    /// The socket of that name has closed since it was looked up.
    Gone,
    Failed(Errno),
}

/// connect(2) to a listener. The handle is the connected one.
///
/// # Errors
/// As for names; ECONNREFUSED (no listener), EAGAIN (backlog full), EISCONN, EINVAL (a listener).
pub(crate) fn connect(sock: &Sock, addr: &SocketAddr) -> Result<Sock, Errno> {
    contain::call(sock, "connect", || connect_now(sock, addr))
}

fn connect_now(sock: &Sock, addr: &SocketAddr) -> Result<Sock, Errno> {
    let mut timeout = Timeout::of(&sock.pcb.options.write_timeout);
    loop {
        match attempt(sock, addr)? {
            Ok(connected) => return Ok(connected),
            Err(Full { listener, ticket, cpu }) => {
                wait(sock.core(), &listener.snd_wait, ticket, cpu, &mut timeout)?;
            }
        }
    }
}

/// [`connect`] for a task, which waits for [`Room`] although its socket does not block.
///
/// # Errors
/// As for [`connect`], but for EAGAIN.
#[cfg(feature = "tokio")]
pub(crate) fn connect_for_task(sock: &Sock, addr: &SocketAddr) -> Result<Result<Sock, Full>, Errno> {
    contain::call(sock, "connect", || attempt(sock, addr))
}

/// Connects, if the listener has room.
fn attempt(sock: &Sock, addr: &SocketAddr) -> Result<Result<Sock, Full>, Errno> {
    let (core, pcb) = (sock.core(), &sock.pcb);
    if addr.is_unnamed() {
        return Err(Errno::INVAL);
    }
    if pcb.options.passcred.load(Ordering::Relaxed) {
        super::shared(core).names.autobind(pcb)?;
    }
    loop {
        let listener = super::shared(core).names.find(addr, pcb.kind)?;
        match take_place(&listener, sock.blocks()) {
            Ok(()) => {}
            Err(NoPlace::Gone) => continue,
            Err(NoPlace::Failed(errno)) => return Err(errno),
            Err(NoPlace::Full(ticket, cpu)) => return Ok(Err(Full { listener, ticket, cpu })),
        }
        let place = Place { core, listener, is_taken: Cell::new(true) };
        let claim =
            pcb.phase.compare_exchange(phase::FRESH, phase::CONNECTED, Ordering::AcqRel, Ordering::Acquire);
        if let Err(is) = claim {
            return Err(if is == phase::CONNECTED { Errno::ISCONN } else { Errno::INVAL });
        }
        return finish(sock, &place).map(Ok);
    }
}

fn take_place(listener: &Arc<Pcb>, blocks: bool) -> Result<(), NoPlace> {
    let mut so = listener.so.lock();
    if so.closed {
        return Err(NoPlace::Gone);
    }
    let (is_shut, cpu) = (so.shut, so.room_cpu);
    let Some(backlog) = so.backlog.as_mut().filter(|_| !is_shut) else {
        return Err(NoPlace::Failed(Errno::CONNREFUSED));
    };
    if backlog.is_full() {
        let ticket = blocks.then(|| listener.snd_wait.prepare());
        return Err(NoPlace::Full(ticket, cpu));
    }
    backlog.taken += 1;
    Ok(())
}

/// A place that was taken in a backlog. Dropped outside all locks, also by the unwinding of a panic, it is given back unless it was filled.
struct Place<'c> {
    core: &'c Env,
    listener: Arc<Pcb>,
    is_taken: Cell<bool>,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if !self.is_taken.get() {
            return;
        }
        let mut wakes = Wakes::new(self.core);
        let mut so = self.listener.so.lock();
        if let Some(backlog) = &mut so.backlog {
            backlog.taken -= 1;
        }
        wakes.writers(&self.listener, &mut so);
        drop(so);
        wakes.fire();
    }
}

/// A connection in the making: undone on drop, should it come to nothing.
#[derive(Default)]
struct Embryo {
    /// The listener's side, until that is queued.
    server: Option<Sock>,
    /// Its pcb, from when the two sides know of each other.
    peer: Option<Arc<Pcb>>,
}

/// Makes the connection, and puts its other end into the reserved place. If that fails, or panics, the client is as it
/// was.
fn finish(sock: &Sock, place: &Place<'_>) -> Result<Sock, Errno> {
    let mut embryo = Embryo::default();
    let made = panics::catch(PanicSource::Protocol, "connect", || make(sock, place, &mut embryo));
    if let Ok(Some(connected)) = made {
        return Ok(connected);
    }
    undo(sock, &place.listener, embryo);
    made.map_or_else(|caught| caught.resume(), |_refused| Err(Errno::CONNREFUSED))
}

/// `None` if the listener has closed meanwhile.
fn make(sock: &Sock, place: &Place<'_>, embryo: &mut Embryo) -> Option<Sock> {
    let (core, listener) = (place.core, &place.listener);
    let server = embryo.server.insert(sock.another());
    server.pcb.phase.store(phase::CONNECTED, Ordering::Release);
    if let Some(name) = listener.name.get() {
        let _first = server.pcb.name.set(Arc::clone(name));
    }
    let passcred = listener.options.passcred.load(Ordering::Relaxed);
    server.pcb.options.passcred.store(passcred, Ordering::Relaxed);
    let peer = Arc::clone(&server.pcb);
    // SeqCst, before it is there: see `collect`.
    peer.in_flight.fetch_add(1, Ordering::SeqCst);
    embryo.peer = Some(Arc::clone(&peer));
    connect_pcbs(core, &sock.pcb, &peer);
    server.peer = Some(Arc::clone(&sock.pcb));
    failpoints::hit(Point::UnixConnect, 0);
    let mut connected = sock.clone_parts();
    connected.peer = Some(Arc::clone(&peer));
    let mut wakes = Wakes::new(core);
    let is_queued = Chosen::exclusive(core, listener, None, || {
        let mut so = listener.so.lock();
        let is_shut = so.shut;
        let Some(backlog) = so.backlog.as_mut().filter(|_| !is_shut) else { return false };
        backlog.taken -= 1;
        place.is_taken.set(false);
        backlog.ready.extend(embryo.server.take());
        so.sockets_held += 1;
        wakes.readers(listener, &mut so);
        true
    });
    wakes.fire();
    failpoints::hit(Point::UnixQueued, 0);
    if !is_queued {
        return None;
    }
    // For a handle without a peer, which may be the last to close, and for registrations.
    let _first = sock.pcb.peer.set(Arc::downgrade(&peer));
    let mut wakes = Wakes::new(core);
    ready::follow(&sock.pcb, &peer, &mut wakes);
    wakes.fire();
    Some(connected)
}

/// Undoes a connection that failed. If its other end has already been accepted, both ends are closed.
#[cold]
fn undo(sock: &Sock, listener: &Arc<Pcb>, embryo: Embryo) {
    let core = sock.core();
    let Embryo { server, peer } = embryo;
    if let Some(peer) = peer {
        let Some(server) = server.or_else(|| take_back(core, listener, &peer)) else {
            let _first = sock.pcb.peer.set(Arc::downgrade(&peer));
            return contain::break_both(core, &sock.pcb, &peer);
        };
        peer.in_flight.fetch_sub(1, Ordering::SeqCst);
        Chosen::unlink(core, &sock.pcb, &peer);
        drop(server);
    }
    // The client is as it was.
    sock.pcb.peer_serial.store(0, Ordering::Relaxed);
    let mut so = sock.pcb.so.lock();
    (so.is_connected, so.shut, so.error) = (false, false, None);
    drop(so);
    sock.pcb.alert.store(false, Ordering::Release);
    sock.pcb.phase.store(phase::FRESH, Ordering::Release);
}

/// Takes a connection that was not accepted out of the backlog.
fn take_back(core: &Env, listener: &Arc<Pcb>, peer: &Arc<Pcb>) -> Option<Sock> {
    let mut wakes = Wakes::new(core);
    Chosen::exclusive(core, listener, None, || {
        let mut so = listener.so.lock();
        let ready = &mut so.backlog.as_mut()?.ready;
        let at = ready.iter().position(|queued| Arc::ptr_eq(&queued.pcb, peer))?;
        let server = ready.remove(at)?;
        so.sockets_held -= 1;
        wakes.writers(listener, &mut so);
        Some(server)
    })
}

/// accept(2).
///
/// # Errors
/// EAGAIN (the call does not block), EINVAL (shut down).
pub(crate) fn accept(sock: &Sock) -> Result<Sock, Errno> {
    contain::call(sock, "accept", || accept_now(sock))
}

fn accept_now(sock: &Sock) -> Result<Sock, Errno> {
    let (core, pcb) = (sock.core(), &sock.pcb);
    let mut timeout = Timeout::of(&pcb.options.read_timeout);
    loop {
        match take_connection(sock, sock.blocks())? {
            Ok(accepted) => return Ok(accepted),
            Err((ticket, cpu)) => wait(core, &pcb.rcv_wait, ticket, cpu, &mut timeout)?,
        }
    }
}

/// [`accept`] for a task, which waits although its socket does not block.
///
/// # Errors
/// As for [`accept`].
#[cfg(feature = "tokio")]
pub(crate) fn accept_for_task(sock: &Sock) -> Result<Sock, Errno> {
    take_connection(sock, true)?.map_err(|_ticket| Errno::AGAIN)
}

/// The next connection, or a ticket if the call blocks.
fn take_connection(sock: &Sock, waits: bool) -> Result<Result<Sock, (Option<Ticket>, u32)>, Errno> {
    let pcb = &sock.pcb;
    // After a panic it is closed outside the locks.
    let mut taken = None;
    let mut wakes = Wakes::new(sock.core());
    let found = Chosen::receiving(sock.core(), pcb, || {
        let mut so = pcb.so.lock();
        let (is_shut, cpu) = (so.shut, so.data_cpu);
        let Some(backlog) = so.backlog.as_mut() else { return Err(Errno::INVAL) };
        let was_full = backlog.is_full();
        taken = backlog.ready.pop_front();
        let Some(next) = &taken else {
            // A call that does not wait is only told that there is nothing, as on Linux.
            if is_shut && waits {
                return Err(Errno::INVAL);
            }
            let ticket = sock.blocks().then(|| so.readers.prepare(&pcb.rcv_wait));
            return Ok((ticket, cpu));
        };
        so.sockets_held -= 1;
        next.pcb.in_flight.fetch_sub(1, Ordering::SeqCst);
        if was_full {
            wakes.writers(pcb, &mut so);
        }
        failpoints::hit(Point::UnixAccept, 0);
        Ok((None, cpu))
    });
    wakes.fire();
    Ok(taken.ok_or(found?))
}

impl Backlog {
    fn is_full(&self) -> bool {
        self.ready.len() + self.taken > self.max
    }
}

/// How tasks wait for room: on the list of waiting writers of the listener, under the mutex that guards its backlog. Every change that makes room,
/// and every one that ends the listener, notifies that list in the section that makes it ([`Wakes::writers`]).
#[cfg(feature = "tokio")]
pub(crate) struct Room<'a> {
    stack: &'a Stack,
    listener: Arc<Pcb>,
}

#[cfg(feature = "tokio")]
impl<'a> Room<'a> {
    /// The wait for a place of a listener that had none.
    pub fn of(stack: &'a Stack, full: Full) -> Self {
        Self { stack, listener: full.listener }
    }
}

#[cfg(feature = "tokio")]
impl Waitable for Room<'_> {
    fn env(&self) -> std::io::Result<&Env> {
        self.stack.core()
    }

    fn with_list<R>(&self, _want: Want, f: impl FnOnce(bool, &mut Waiters) -> R) -> std::io::Result<R> {
        let mut so = self.listener.so.lock();
        // Without a backlog, closed or shut an attempt has another answer.
        let is_full = so.backlog.as_ref().is_some_and(|backlog| backlog.is_full());
        let is_over = so.closed || so.shut || !is_full;
        Ok(f(is_over, &mut so.writers))
    }
}

/// Whether a kind can be listened on; for the public types.
pub(crate) fn require(sock: &Sock, kind: Kind) -> Result<(), Errno> {
    if sock.pcb.kind == kind { Ok(()) } else { Err(Errno::OPNOTSUPP) }
}
