//! From a flow's frames to its interface, outside of all locks.
//!
//! An interface is foreign code and is called with no lock held. Yet frames of one flow must leave in the order in which they
//! were made, and they were made under a socket lock, or the mutex of a link.
//!
//! So each interface has lanes, one for each of its queues, and a flow keeps to one by its hash. Frames are [offered](offer)
//! to the lane under the locks, and [depart] after them. A lane is an [`Outlet`](sockeye_sync::Outlet), whose head has the
//! argument for order and that no frame is stranded: a thread that finds none there carries the lane. It keeps its frames in
//! [`Departures`], hands them over when its locks are released, and then those that others have left in the lane meanwhile.
//! After [`CARRY_MAX`] of those it leaves the rest to a worker, by a timer that is due at once. Bells are rung last, once for
//! each queue and call.
//!
//! # Interfaces that do what they should not
//! One that blocks in `transmit` holds up the thread that carries the lane, one for each lane. The others leave their frames, up
//! to [`LANE_BOUNDS`], and go on; those that do not fit are dropped and counted. A thread carries lanes of one interface at a
//! time, and its frames for another one are queued meanwhile for any thread to carry. One that calls the stack back from
//! `transmit` finds its own frames queued behind those it is just given.
//!
//! Does not depend on the content of frames. Bounds: as said for a lane; a thread keeps no more than its connections'
//! windows allow. Tests: `tests/wire/transfers.rs`, `tests/panics/netifs.rs`; the orders in `crates/sync/tests/loom/outlet.rs`.

use std::collections::VecDeque;

use sockeye_sync::outlet::{Bounds, Claim, Offer};

use super::TxFrame;
use super::device::Device;
use super::table::NetifId;
use crate::inet::context::Context;
use crate::inet::input::count;
use crate::rt::timers::TimerKey;

/// A lane of an interface, by which frames leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Exit {
    pub netif: NetifId,
    pub lane: u8,
}

impl Exit {
    /// The timer for frames that were left there.
    fn timer(self) -> TimerKey {
        TimerKey::Frames { netif: self.netif.index() as u16, lane: self.lane }
    }

    /// Whose timer that is.
    pub fn of_timer(netif: u16, lane: u8) -> Option<Self> {
        Some(Self { netif: NetifId::from_index(usize::from(netif))?, lane })
    }
}

/// A frame that waits, with the hash of its flow.
pub(crate) struct Queued {
    pub flow: u64,
    pub frame: TxFrame,
}

/// Frames that one call has to hand over to interfaces when its locks are released. The lists keep their memory between
/// calls.
#[derive(Default)]
pub(crate) struct Departures {
    /// Lanes that this thread carries, or is to pick up.
    exits: Vec<(Exit, Carries)>,
    /// Frames that it has kept, oldest first.
    kept: Vec<Kept>,
    /// Lists without frames.
    spares: Vec<Vec<TxFrame>>,
    /// The frames taken from an outlet. Empty but while it is carried.
    taken: VecDeque<Queued>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Carries {
    Now,
    Later,
}

/// Frames of one flow.
struct Kept {
    exit: Exit,
    flow: u64,
    frames: Vec<TxFrame>,
}

/// Frames that may wait in a lane for the thread that carries it, and their bytes.
const LANE_BOUNDS: Bounds = Bounds { count: 8192, weight: 64 << 20 };
/// Frames after which a thread leaves frames that others have put into a lane to a worker: it has work of its
/// own.
const CARRY_MAX: usize = 1024;
/// Lists without frames that a thread keeps.
const SPARES_MAX: usize = 8;

impl Departures {
    /// Role of this thread for the lane: it carries those of one interface at a time, so that one that blocks keeps
    /// nothing of the others'.
    fn claim(&self, exit: Exit) -> Claim {
        let known = self.exits.iter().find(|(known, _)| *known == exit);
        match known {
            Some((_, Carries::Now)) => Claim::Carrier,
            Some((_, Carries::Later)) => Claim::No,
            None if self.exits.iter().any(|(other, _)| other.netif != exit.netif) => Claim::No,
            None => Claim::Wanted,
        }
    }

    fn note(&mut self, exit: Exit, carries: Carries) {
        if !self.exits.iter().any(|(known, _)| *known == exit) {
            self.exits.push((exit, carries));
        }
    }

    /// Keeps frames, all there are.
    fn keep(&mut self, exit: Exit, flow: u64, frames: &mut Vec<TxFrame>) {
        match self.kept.last_mut() {
            Some(last) if (last.exit, last.flow) == (exit, flow) => last.frames.append(frames),
            _ => {
                let frames = std::mem::replace(frames, self.spares.pop().unwrap_or_default());
                self.kept.push(Kept { exit, flow, frames });
            }
        }
    }

    /// The oldest of the frames that were kept for a lane.
    fn next_kept(&mut self, exit: Exit) -> Option<Kept> {
        let at = self.kept.iter().position(|kept| kept.exit == exit)?;
        Some(self.kept.remove(at))
    }

    fn spare(&mut self, mut frames: Vec<TxFrame>) {
        frames.clear();
        if self.spares.len() < SPARES_MAX {
            self.spares.push(frames);
        }
    }
}

/// A bell to ring: the queue of an interface.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Doorbell {
    netif: NetifId,
    queue: usize,
}

/// Has frames, whole with their link header if they need one, handed to an interface after all locks are released. Returns
/// how many were dropped, for which there was no room. May be called under any lock.
pub(crate) fn offer(
    cx: &mut Context<'_>,
    id: NetifId,
    netif: &Device,
    hash: u64,
    frames: &mut Vec<TxFrame>,
) -> usize {
    let exit = Exit { netif: id, lane: netif.lane_of(hash) };
    let Some(outlet) = netif.outlet(exit.lane) else { return frames.len() };
    let departures = &mut cx.due.departures;
    let queued = |frame| Queued { flow: hash, frame };
    match outlet.offer(frames, departures.claim(exit), LANE_BOUNDS, queued, TxFrame::len) {
        Offer::Keep => {
            departures.note(exit, Carries::Now);
            departures.keep(exit, hash, frames);
        }
        Offer::Carry => departures.note(exit, Carries::Now),
        Offer::Later => departures.note(exit, Carries::Later),
        Offer::Left => {}
    }
    let dropped = frames.len();
    if dropped > 0 {
        cx.core.input.count(count::QUEUE_FULL, dropped as u64);
        frames.clear();
    }
    dropped
}

/// Hands over the frames that this call has kept, and those that other threads have left to it meanwhile. Outside all
/// locks: interfaces are called.
#[inline]
pub(crate) fn depart(cx: &mut Context<'_>) {
    if !cx.due.departures.exits.is_empty() {
        depart_all(cx);
    }
}

#[inline(never)]
fn depart_all(cx: &mut Context<'_>) {
    while let Some((exit, carries)) = cx.due.departures.exits.first().copied() {
        carry(cx, exit, carries);
        cx.due.departures.exits.remove(0);
    }
}

/// Sees to frames that were left in a lane without a thread to carry it. They leave at the end of the call.
pub(crate) fn pick_up(cx: &mut Context<'_>, exit: Exit) {
    cx.due.departures.note(exit, Carries::Later);
}

fn carry(cx: &mut Context<'_>, exit: Exit, carries: Carries) {
    let core = cx.core;
    let Some(netif) = core.netifs.netif(exit.netif) else { return };
    let Some(outlet) = netif.outlet(exit.lane) else { return };
    if carries == Carries::Later {
        if !outlet.pick_up() {
            return;
        }
        if let Some(first) = cx.due.departures.exits.first_mut() {
            first.1 = Carries::Now;
        }
    }
    while let Some(mut kept) = cx.due.departures.next_kept(exit) {
        transmit(cx, exit.netif, netif, kept.flow, &mut kept.frames);
        cx.due.departures.spare(kept.frames);
    }
    let mut taken = std::mem::take(&mut cx.due.departures.taken);
    let mut carried = 0;
    while outlet.next(&mut taken) {
        carried += taken.len();
        transmit_queued(cx, exit.netif, netif, &mut taken);
        if carried >= CARRY_MAX {
            if outlet.put_down() {
                cx.due.timers.push((cx.now.as_micros(), exit.timer()));
            }
            break;
        }
    }
    cx.due.departures.taken = taken;
}

/// Hands over the queued frames, each run of frames of one flow together.
fn transmit_queued(cx: &mut Context<'_>, id: NetifId, netif: &Device, taken: &mut VecDeque<Queued>) {
    let mut frames = cx.due.departures.spares.pop().unwrap_or_default();
    while let Some(Queued { flow, frame }) = taken.pop_front() {
        frames.push(frame);
        if taken.front().is_none_or(|next| next.flow != flow) {
            transmit(cx, id, netif, flow, &mut frames);
            frames.clear();
        }
    }
    cx.due.departures.spare(frames);
}

/// Gives frames of one flow to an interface, and notes whose bell to ring.
fn transmit(cx: &mut Context<'_>, id: NetifId, netif: &Device, flow: u64, frames: &mut Vec<TxFrame>) {
    let (core, count) = (cx.core, frames.len());
    let Some(sent) = netif.transmit(core, flow, frames) else {
        return core.input.count(count::NETIF_PANICKED, count as u64);
    };
    let dropped = sent.dropped_count.min(count);
    core.input.count(count::FRAMES_OUT, (count - dropped) as u64);
    if dropped > 0 {
        core.input.count(count::QUEUE_FULL, dropped as u64);
    }
    let bell = Doorbell { netif: id, queue: sent.queue };
    if !cx.due.doorbells.contains(&bell) {
        cx.due.doorbells.push(bell);
    }
}

/// Rings. Outside all locks.
#[inline]
pub(crate) fn ring(cx: &mut Context<'_>) {
    if !cx.due.doorbells.is_empty() {
        ring_all(cx);
    }
}

#[inline(never)]
fn ring_all(cx: &mut Context<'_>) {
    for bell in cx.due.doorbells.drain(..) {
        if let Some(netif) = cx.core.netifs.netif(bell.netif) {
            netif.ring(cx.core, bell.queue);
        }
    }
}
