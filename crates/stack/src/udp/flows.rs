//! UDP by flow: the datagrams between one pair of addresses and ports as a socket of their own, as `accept` gives connections.
//!
//! A *listener of flows* is a bound socket to which no datagram is ever appended. The first datagram of a pair that no socket is
//! connected for [begins](begin) a *flow*: a socket with that pair as its name, which the datagram is appended to, and which is queued at
//! the listener. All further ones find the flow as they find any connected socket (`table.rs`), without a look at the listener. So a flow
//! is a connected socket that the stack has made: receiving, sending, errors, polls and tasks are those of sockets.
//!
//! # States of a flow, and who moves it
//!
//! | state | the table | a place in [`Live`] | the owner | moved by |
//! |---|---|---|---|---|
//! | waiting | yes | yes | none: it is in the listener's queue | `begin`, under the bind table's lock |
//! | accepted | yes | yes | a handle | `accept`, under the listener's `so` |
//! | ended | no | no | a handle, or the queue | the timer (idle), or `begin` (displaced), under the bind table's lock |
//! | closed | no | no | none | the last handle's drop, or the listener's for those that wait |
//!
//! Nothing leads back: a datagram of the pair of a flow that has ended or closed begins another one. So a flow that has ended sends nothing any
//! more: its peer would take that for the other one's, whose owner knows nothing of it. As names change under the
//! bind table's lock only, two threads with the first datagrams of one pair make one flow: the second finds it.
//!
//! # Why no wake-up is lost
//! The queue of flows is under the listener's `so`, beside the queue of datagrams of other sockets, and is waited for by the same means
//! (`pcb.rs`): a thread that finds nothing is listed in the section that found it so.
//!
//! # Bounds
//! Flows at a time and flows that wait, of each listener ([`UdpFlowConfig`]). Datagrams that wait in each flow: SO_RCVBUF. In all flows of a
//! listener: [`ALLOWANCE`] bytes in each, and beyond that [`UdpFlowConfig::queued_max`] bytes in all, of which a flow takes [`CHUNK`]s; so
//! flows whose owner keeps up write no word that they share.
//!
//! Rank: `naming` → bind table → copies of the table; bind table → a `so` → nothing; [`Flows::live`] is a leaf. Does not depend on
//! handles. Tests: `tests/udp/flows.rs`; a model in `fuzz/lib/src/flows`.

use std::num::NonZeroU32;
use std::time::Duration;

use rustix::io::Errno;
use sockeye_proto::time::Instant;
use sockeye_sync::Mutex;
use sockeye_sync::facade::{Arc, AtomicBool, AtomicU64, AtomicUsize, Ordering};

use super::builder::{Place, Reuse};
use super::deliver::{self, Flow, Loads};
use super::flow::UdpFlowConfig;
use super::name::Name;
use super::pcb::{Init, Pcb, Protocol, Role};
use super::table::Table;
use super::{Shared, count};
use crate::base::addr::FourTuple;
use crate::inet::Core;
use crate::inet::context::Context;
use crate::rt::panics::{self, PanicSource};
use crate::rt::poll::Ready;
use crate::rt::timers::TimerKey;
use crate::rt::wake::Wake;

/// Bytes of its buffer that each flow may use without asking.
pub(crate) const ALLOWANCE: usize = 4096;
/// Bytes that it asks for at once.
const CHUNK: usize = 16 << 10;
/// Flows of which the one that was idle longest is displaced.
const SAMPLE: usize = 16;

/// What the flows of a listener share.
pub(crate) struct Flows {
    pub config: UdpFlowConfig,
    live: Mutex<Live>,
    /// (a) Bytes that flows have taken beyond their allowances. Relaxed: a number that orders nothing.
    queued: AtomicUsize,
}

/// The flows that there are. Changed under the bind table's lock, but for the end of a handle.
#[derive(Default)]
struct Live {
    places: Vec<Option<Arc<Pcb>>>,
    free: Vec<usize>,
    /// Where the last look for an idle one ended.
    hand: usize,
}

/// What a flow has beyond a socket.
pub(crate) struct Part {
    flows: Arc<Flows>,
    /// (c) Its place in [`Live`].
    place: usize,
    /// (c) Distinguishes it from others whose names have the same hash.
    pub serial: u32,
    /// (c) The interface by which its first datagram came.
    pub interface: u32,
    /// (a) When a datagram last went either way, microseconds, as far as [`note`](Self::note) says.
    active_at: AtomicU64,
    /// (b) written, (a) read: how long it may be idle, microseconds; 0 for ever.
    idle_us: AtomicU64,
    /// (b) written, (a) read: the call of the wheel that counts.
    timer_at: AtomicU64,
    /// (b) written, (a) read: it has ended, as the errno in `so` says. Shows it to senders, which otherwise do not look there.
    has_ended: AtomicBool,
}

impl Flows {
    pub fn new(config: &UdpFlowConfig) -> Arc<Self> {
        let config = UdpFlowConfig { flows_max: config.flows_max.max(1), ..config.clone() };
        Arc::new(Self { config, live: Mutex::default(), queued: AtomicUsize::new(0) })
    }

    /// A place for another flow, if need be that of one that was idle long, which ends. Under the bind table's lock.
    fn reserve(&self, udp: &Shared, wakes: &mut Vec<Wake>) -> Reserved<'_> {
        loop {
            // Not in the `match` itself: its mutex would be held for as long.
            let place = self.live.lock().place(self.config.flows_max);
            match place {
                Ok(place) => return Reserved { flows: self, place: Some(place) },
                Err(idle) => {
                    udp.count(count::FLOWS_DISPLACED, 1);
                    end_named(&udp.table, &idle, Errno::CONNABORTED, wakes);
                }
            }
        }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        let live = self.live.lock();
        live.places.len() - live.free.len()
    }
}

/// A place in [`Live`] that a flow is being made for. It is free again if that panics.
struct Reserved<'f> {
    flows: &'f Flows,
    /// `None` once a flow has it.
    place: Option<usize>,
}

impl Reserved<'_> {
    fn index(&self) -> usize {
        self.place.expect("only `give_to`, which takes it, takes the place out")
    }

    fn give_to(mut self, pcb: &Arc<Pcb>) {
        if let Some(place) = self.place.take() {
            self.flows.live.lock().places[place] = Some(Arc::clone(pcb));
        }
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            self.flows.live.lock().free.push(place);
        }
    }
}

impl Live {
    /// A place for another flow. If there is none, one that was idle long, which has to end first.
    fn place(&mut self, max: usize) -> Result<usize, Arc<Pcb>> {
        if let Some(place) = self.free.pop() {
            return Ok(place);
        }
        if self.places.len() < max {
            self.places.push(None);
            return Ok(self.places.len() - 1);
        }
        let count = self.places.len();
        let sample = (0..SAMPLE.min(count)).filter_map(|n| self.places[(self.hand + n) % count].as_ref());
        let idle =
            sample.min_by_key(|pcb| pcb.role.flow().map_or(0, |part| part.active_at.load(Ordering::Relaxed)));
        let idle = idle.cloned().expect("a place that is not free has a flow");
        self.hand = (self.hand + SAMPLE) % count;
        Err(idle)
    }

    fn give_back(&mut self, place: usize, pcb: &Arc<Pcb>) {
        if let Some(own) = self.places.get_mut(place)
            && own.as_ref().is_some_and(|own| Arc::ptr_eq(own, pcb))
        {
            *own = None;
            self.free.push(place);
        }
    }
}

impl Part {
    /// A datagram has gone either way. The word is written only if the time has moved on by a part of the time-out, so that a busy flow's
    /// threads rarely write it.
    #[inline]
    pub fn note(&self, now: Instant) {
        let (now, before) = (now.as_micros(), self.active_at.load(Ordering::Relaxed));
        if now.saturating_sub(before) > self.slack() {
            self.active_at.store(now, Ordering::Relaxed);
        }
    }

    /// Microseconds by which `active_at` may be behind.
    fn slack(&self) -> u64 {
        self.idle_us.load(Ordering::Relaxed) / 16
    }

    /// When it will have been idle too long, microseconds.
    fn ends_at(&self) -> Option<u64> {
        let idle = self.idle_us.load(Ordering::Relaxed);
        let active_at = self.active_at.load(Ordering::Relaxed);
        (idle > 0).then(|| active_at.saturating_add(idle).saturating_add(self.slack()))
    }

    /// How long it may be idle.
    pub fn idle_timeout(&self) -> Option<Duration> {
        let idle = self.idle_us.load(Ordering::Relaxed);
        (idle > 0).then(|| Duration::from_micros(idle))
    }

    /// The handle is gone.
    pub fn leave(&self, pcb: &Arc<Pcb>) {
        self.flows.live.lock().give_back(self.place, pcb);
    }
}

/// What a flow has taken of what all of its listener may queue. It is given back with it.
pub(crate) struct Share {
    flows: Arc<Flows>,
    taken: usize,
}

impl Share {
    /// Whether a queue of `charge` bytes is covered, if need be by taking more.
    pub fn covers(&mut self, charge: usize) -> bool {
        let Some(missing) = charge.checked_sub(ALLOWANCE + self.taken).filter(|missing| *missing > 0) else {
            return true;
        };
        let wanted = missing.next_multiple_of(CHUNK);
        let most = self.flows.config.queued_max;
        let more = |queued: usize| queued.checked_add(wanted).filter(|sum| *sum <= most);
        let queued = &self.flows.queued;
        let taken = queued.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok();
        self.taken += if taken { wanted } else { 0 };
        taken
    }

    /// The queue is empty.
    #[inline]
    pub fn give_back(&mut self) {
        if self.taken > 0 {
            self.flows.queued.fetch_sub(std::mem::take(&mut self.taken), Ordering::Relaxed);
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.give_back();
    }
}

/// What became of the first datagrams of a pair.
pub(crate) enum Begun {
    /// They have a receiver. So many were dropped, and the wheel was asked for a call.
    Delivered { dropped: u64, is_armed: bool },
    /// There is no socket for them any more.
    Nobody,
}

/// A run for a listener of flows: makes a flow of it, unless another thread has. With no lock held.
#[cold]
pub(crate) fn begin(core: &Core, cpu: u32, flow: &Flow, loads: &mut Loads, wakes: &mut Vec<Wake>) -> Begun {
    let udp = super::shared(core);
    let ports = udp.ports.lock();
    let Some(found) = udp.table.with(cpu, |copy| udp.table.find(copy, &flow.tuple).cloned()) else {
        return Begun::Nobody;
    };
    let Role::Listener(flows) = &found.role else {
        drop(ports);
        return Begun::Delivered {
            dropped: deliver::append(core, &found, flow, loads, wakes),
            is_armed: false,
        };
    };
    if found.receive.so.lock().flows.len() >= flows.config.backlog {
        let dropped = loads.iter().map(deliver::Load::count).sum();
        udp.count(count::FLOW_OVERFLOWS, dropped);
        return Begun::Delivered { dropped: 0, is_armed: false };
    }
    let reserved = flows.reserve(udp, wakes);
    let pcb = of_flow(core, &found, flows, flow, reserved.index());
    // Before it can be found: the first datagrams are the first in its queue.
    let dropped = deliver::append(core, &pcb, flow, loads, wakes);
    let name = Name { local: flow.tuple.local, remote: Some(flow.tuple.remote) };
    let named = panics::catch(PanicSource::Protocol, "the table of UDP", || {
        udp.table.rename(&pcb, None, Some(&name));
    });
    if let Err(caught) = named {
        udp.table.rename(&pcb, Some(&name), None);
        drop((reserved, ports));
        caught.resume();
    }
    reserved.give_to(&pcb);
    {
        let mut so = found.receive.so.lock();
        so.flows.push_back(Arc::clone(&pcb));
        Pcb::announce(&found, &mut so, Ready::READABLE, wakes);
    }
    drop(ports);
    udp.count(count::FLOWS, 1);
    Begun::Delivered { dropped, is_armed: arm(core, cpu, &pcb) }
}

/// The socket of a flow, with what it has of its listener.
fn of_flow(core: &Core, listener: &Arc<Pcb>, flows: &Arc<Flows>, flow: &Flow, place: usize) -> Arc<Pcb> {
    let idle = flows.config.idle.map_or(0, |idle| u64::try_from(idle.as_micros()).unwrap_or(u64::MAX).max(1));
    let part = Part {
        flows: Arc::clone(flows),
        place,
        serial: super::shared(core).flow_serials.next(core.cpu()) as u32,
        interface: flow.interface,
        active_at: AtomicU64::new(core.clock.now().as_micros()),
        idle_us: AtomicU64::new(idle),
        timer_at: AtomicU64::new(0),
        has_ended: AtomicBool::new(false),
    };
    let so_rcvbuf = listener.receive.so.lock().rcvbuf;
    let pcb = Pcb::new(Init {
        protocol: Protocol::Udp,
        is_v6: listener.is_v6,
        canonical: !listener.is_mapped,
        reuse: Reuse { addr: false, port: false, v6_only: listener.v6_only },
        place: if listener.transparent { Place::Transparent } else { Place::Own },
        rcvbuf: u32::try_from(so_rcvbuf).unwrap_or(u32::MAX),
        role: Role::Flow(Box::new(part)),
    });
    pcb.receive.so.lock().share = Some(Share { flows: Arc::clone(flows), taken: 0 });
    pcb.name.store(&Name { local: flow.tuple.local, remote: Some(flow.tuple.remote) });
    pcb
}

/// Asks the wheel for a call when the flow will have been idle. False if there is none to be asked for.
fn arm(core: &Core, cpu: u32, pcb: &Arc<Pcb>) -> bool {
    let Some((at, key)) = next_call(core, pcb) else { return false };
    core.workers.arm(cpu, at, key);
    true
}

/// The call of the wheel that counts from now on.
fn next_call(core: &Core, pcb: &Pcb) -> Option<(u64, TimerKey)> {
    let part = pcb.role.flow()?;
    let hash = super::shared(core).table.hash(&pcb.name.load().tuple()?);
    // Of two threads here, the one that comes second sees what the first has changed.
    let _so = pcb.receive.so.lock();
    let at = part.ends_at()?;
    part.timer_at.store(at, Ordering::Relaxed);
    Some((at, TimerKey::Flow { hash, serial: part.serial }))
}

/// How long the flow may be idle from now on; `None` for ever.
pub(crate) fn set_idle_timeout(core: &Core, pcb: &Arc<Pcb>, idle: Option<Duration>) {
    let Some(part) = pcb.role.flow() else { return };
    let idle = idle.map_or(0, |idle| u64::try_from(idle.as_micros()).unwrap_or(u64::MAX).max(1));
    // The word may be behind by a part of the former time, which may be all of a shorter one: no flow ends early.
    let behind = part.active_at.load(Ordering::Relaxed).saturating_add(part.slack());
    part.active_at.fetch_max(behind.min(core.clock.now().as_micros()), Ordering::Relaxed);
    part.idle_us.store(idle, Ordering::Relaxed);
    if arm(core, core.cpu(), pcb) {
        core.workers.tell_driver(core);
    }
}

/// The calls of the wheel that there may be.
pub(crate) fn timers(core: &Core) -> Vec<(u64, TimerKey)> {
    let flows = super::shared(core).sockets(core.cpu());
    flows.iter().filter_map(|pcb| next_call(core, pcb)).collect()
}

/// Whether a call of the wheel at `at` would be for a flow that is there, and the one that it has asked for last.
pub(crate) fn counts(core: &Core, (hash, serial): (u64, u32), at: u64) -> bool {
    let counts = |pcb: &Arc<Pcb>| {
        let asked = |part: &Part| part.serial == serial && part.timer_at.load(Ordering::Relaxed) == at;
        pcb.role.flow().is_some_and(asked)
    };
    super::shared(core).table.with(core.cpu(), |copy| copy.of_hash(hash).any(counts))
}

/// The wheel has called, at `at`: a flow that was idle too long ends.
pub(crate) fn on_timer(cx: &mut Context<'_>, (hash, serial): (u64, u32), at: u64) {
    let udp = super::shared(cx.core);
    let is_it = |pcb: &Arc<Pcb>| pcb.role.flow().is_some_and(|part| part.serial == serial);
    let pcb = udp.table.with(cx.cpu, |copy| copy.of_hash(hash).find(|pcb| is_it(pcb)).cloned());
    let Some(pcb) = pcb else { return };
    let Some(part) = pcb.role.flow().filter(|part| part.timer_at.load(Ordering::Relaxed) == at) else {
        return;
    };
    if part.ends_at().is_some_and(|at| at <= cx.now.as_micros()) {
        udp.count(count::FLOWS_IDLE, 1);
        let _ports = udp.ports.lock();
        end_named(&udp.table, &pcb, Errno::TIMEDOUT, &mut cx.due.wakes);
        return;
    }
    let next = next_call(cx.core, &pcb);
    cx.due.timers.extend(next);
}

/// Ends a flow: it is found no more, and its owner is told. Under the bind table's lock.
fn end_named(table: &Table, pcb: &Arc<Pcb>, why: Errno, wakes: &mut Vec<Wake>) {
    let Some(part) = pcb.role.flow() else { return };
    table.rename(pcb, Some(&pcb.name.load()), None);
    part.leave(pcb);
    let mut so = pcb.receive.so.lock();
    so.ended = NonZeroU32::new(why.raw_os_error().unsigned_abs());
    // Relaxed: a send beside the end may go before it.
    part.has_ended.store(true, Ordering::Relaxed);
    Pcb::announce(pcb, &mut so, Ready::READABLE, wakes);
}

/// Why nothing can be sent on a socket any more: it is a flow that has ended.
#[inline]
pub(crate) fn sending_ended(pcb: &Pcb) -> Option<Errno> {
    let part = pcb.role.flow()?;
    if !part.has_ended.load(Ordering::Relaxed) {
        return None;
    }
    pcb.receive.so.lock().ended_errno()
}

/// The name of a flow.
pub(crate) fn tuple_of(pcb: &Pcb) -> Option<FourTuple> {
    pcb.role.flow()?;
    pcb.name.load().tuple()
}
