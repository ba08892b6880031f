//! Input from interfaces: one thread for each receive queue, and their mutual exclusion.
//!
//! ```text
//!   queue 0 ─► input thread 0 ─┐   parse, check, copy into        a run of packets of one connection
//!   queue 1 ─► input thread 1 ─┤   buffers of this thread   ─►    takes its lock once        ─►  outbox
//!   …                          ┘   (`parse`)                      (`tcp/input.rs`, `conn/run.rs`)
//! ```
//!
//! A flow's frames come in one queue, so they are handled by one thread and in order. Input threads run in parallel: they share no lock
//! but those of the connections. Loopback is not concerned: the sender's own thread hands its segments to the receiver (`conn/emit.rs`).
//!
//! A thread that waits for a connection takes frames from its queue too, for as long as it is busy; `busy.rs` says how the
//! two get on. That thread then calls wakers and listeners' hooks for the frames.
//!
//! An input thread is the stack's own and enters like a worker: it runs the queue that it finds.
//!
//! # Sleeping
//! A thread takes at most [`BATCH_MAX`] frames (or [`BATCH_BYTES_MAX`] bytes), handles them, and takes again; when there are none it waits in
//! [`Netif::wait`](crate::netif::Netif::wait), whose contract is that of `sockeye_sync::Sleeper`: announce, look once
//! more, sleep. When the stack ends, `stop` is set *before* each queue is interrupted, and the interruption stays:
//! a thread that looked at `stop` too early finds its wait ended. Before a thread waits it gives back the remote-free list
//! of its core.
//!
//! With `workers = 0` there is no input thread: [`Input::poll`] takes one batch of each queue, or a few of short frames, and then says whether there may be more. What its
//! driver does for them comes before the next, so it finds the bytes in its cache, and queues of datagrams do not overflow meanwhile.
//!
//! Tests: `tests/wire/transfers.rs`, `tests/wire/faults.rs`.

pub(crate) mod busy;
#[cfg_attr(not(feature = "experiments"), allow(dead_code, reason = "one counts what only older settings do"))]
pub(crate) mod count;
mod ethernet;
pub(crate) mod leader;
mod parse;
mod transport;

use std::ops::ControlFlow;

use sockeye_proto::icmp;
use sockeye_sync::Counters;
use sockeye_sync::facade::{AtomicBool, Ordering};

use crate::inet::Core;
use crate::inet::context::Context;
use crate::inet::ip::{self, Received};
use crate::inet::link;
use crate::inet::netif::device::{Device, FAULTS_MAX, pause_after};
use crate::inet::netif::table::NetifId;
use crate::inet::netif::{RxFrame, down};
use crate::rt::discipline::{Chosen, Discipline};
use crate::rt::failpoints::{self, Point};
use crate::rt::panics::{self, Caught, PanicSource};
use crate::rt::threads::{self, Role};

pub(crate) use busy::Place;
use parse::Parsed;
pub(crate) use parse::{Packet, is_for_all, problem};
pub(crate) use transport::Transport;

/// Most frames that are handled between two looks at the queue.
pub(crate) const BATCH_MAX: usize = 64;
/// Bytes after which a batch ends before that: acknowledgments of a batch reach the other side at its end, and should be
/// a part of a window only.
const BATCH_BYTES_MAX: usize = 1 << 20;
/// The same for the first batch after a wait; each one after it may be twice as long. A thread that has slept until something came
/// then begins with it while the rest is being taken.
const BATCH_BYTES_MIN: usize = 64 << 10;

/// State that input threads share.
pub(crate) struct Input {
    stop: AtomicBool,
    queues: busy::PolledQueues,
    counters: Counters<{ count::COUNT }>,
}

impl Input {
    pub fn new() -> Self {
        Self { stop: AtomicBool::new(false), queues: busy::PolledQueues::new(), counters: Counters::new() }
    }

    /// Counts `amount`.
    #[inline]
    pub fn count(&self, index: usize, amount: u64) {
        self.counters.add(index, amount);
    }

    /// Names and counts.
    pub fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        count::NAMES.iter().enumerate().map(|(index, name)| (*name, self.counters.sum(index)))
    }

    /// Ends the input threads. Returns the interfaces that could not be told.
    pub fn stop(&self, core: &Core) -> Vec<NetifId> {
        self.stop.store(true, Ordering::Release);
        let mut deaf = Vec::new();
        for (id, netif) in core.netifs.each() {
            // All of its queues, whichever panics.
            let interrupted = (0..netif.queue_count()).filter(|queue| netif.interrupt(core, *queue)).count();
            deaf.extend((interrupted < netif.queue_count()).then_some(id));
        }
        self.queues.wake_all();
        deaf
    }

    /// Makes room for the queues of an interface. Before its input threads are started.
    pub fn add(&self, netif: NetifId, queues: usize) {
        self.queues.add(netif, queues);
    }

    /// An input thread's life.
    pub fn run<T: Transport>(&self, core: &T, netif: NetifId, queue: usize) {
        threads::enter(Role::Input);
        let at = Place { netif, queue };
        let (mut bytes_max, mut follower) = (BATCH_BYTES_MIN, busy::Follower::default());
        let mut faults = Faults::default();
        while !self.stop.load(Ordering::Acquire) {
            let step = || {
                if faults.are_too_many(core, at) && down::is_gone(core, netif) {
                    return ControlFlow::Break(());
                }
                self.step(core, at, &mut bytes_max, &mut follower)
            };
            // A panic here ends its batch at most, and never the thread.
            if let Some(ControlFlow::Break(())) = panics::contain(core, PanicSource::Protocol, "input", step)
            {
                return;
            }
        }
    }

    /// An input thread takes a batch, or defers to callers, or waits. `Break` if the interface is gone.
    fn step<T: Transport>(
        &self,
        core: &T,
        at: Place,
        bytes_max: &mut usize,
        follower: &mut busy::Follower,
    ) -> ControlFlow<()> {
        if busy::turn_or_defer(core, at, *bytes_max, follower) != Some(0) {
            *bytes_max = BATCH_BYTES_MAX.min(*bytes_max * 2);
            return ControlFlow::Continue(());
        }
        *bytes_max = BATCH_BYTES_MIN;
        if down::is_gone(core, at.netif) {
            return ControlFlow::Break(());
        }
        if let Some(netif) = core.netifs.netif(at.netif) {
            self.count(count::SLEEPS, 1);
            Chosen::before_wait(core);
            netif.wait(core, at.queue, core.config.spin_max);
        }
        ControlFlow::Continue(())
    }

    /// Handles a turn's arrived frames of each queue (`busy.rs`), for a stack without threads. True if there may be more.
    pub fn poll<T: Transport>(&self, core: &T) -> bool {
        let mut more = false;
        for (id, netif) in core.netifs.each() {
            for queue in 0..netif.queue_count() {
                let at = Place { netif: id, queue };
                more |= busy::turn_of_driver(core, at);
            }
            down::is_gone(core, id);
        }
        more
    }
}

/// An input thread's record of its interface's panics.
#[derive(Default)]
struct Faults {
    /// The interface's count, as it was last seen.
    seen: u32,
    /// Looks in a row that found it changed.
    in_a_row: u32,
}

impl Faults {
    /// Pauses, if the interface has panicked since the last look, or gives it up and says so: see `netif/device.rs`.
    fn are_too_many(&mut self, core: &Core, at: Place) -> bool {
        let Some(netif) = core.netifs.netif(at.netif) else { return false };
        let seen = netif.fault_count();
        if seen == std::mem::replace(&mut self.seen, seen) {
            self.in_a_row = 0;
            return false;
        }
        self.in_a_row += 1;
        let too_many = self.in_a_row >= FAULTS_MAX;
        if too_many {
            netif.give_up();
        } else {
            busy::pause(core, at, pause_after(self.in_a_row));
        }
        too_many
    }
}

/// The frames taken from a queue at a time. The lists keep their memory between turns.
#[derive(Default)]
pub(crate) struct Batch {
    /// Whole TCP segments.
    pub packets: Vec<Packet>,
    /// Everything else, which is handled after them.
    others: Vec<Received>,
    /// Packets whose senders are to hear why they were refused.
    refused: Vec<(Received, icmp::Error)>,
    /// ARP packets.
    arps: Vec<[u8; sockeye_proto::arp::LEN]>,
    /// Whether one connection has the queue for itself.
    sole: leader::Sole,
    /// Panics over frames, which were dropped. Told when the interface is done.
    caught: Vec<Caught>,
}

/// What a turn has taken.
struct Taken {
    frames: usize,
    /// Of all of them.
    bytes: usize,
    /// There were fewer than were asked for.
    is_empty: bool,
}

/// Takes a batch of frames, until they have `bytes_max` bytes, and handles it. It asks for as many frames at a time as would have so many bytes if each were as long as the
/// interface allows. That may be one, so it goes on while they are short: a caller that pauses before each read would otherwise get each write of its peer singly.
fn turn<T: Transport>(core: &T, at: Place, bytes_max: usize, batch: &mut Batch) -> usize {
    let Some(netif) = core.netifs.netif(at.netif) else { return 0 };
    turn_filled(core, at, (batch_max(netif, bytes_max), bytes_max), batch).frames
}

/// Takes a batch of `most` frames, and as many again for as long as those so far have fewer than `filled` bytes, [`BATCH_MAX`] in all; and handles it. It ends where the queue is
/// empty, or, if the interface does not say so, where there were fewer than asked for.
fn turn_filled<T: Transport>(
    core: &T,
    at: Place,
    (most, filled): (usize, usize),
    batch: &mut Batch,
) -> Taken {
    let (id, queue) = (at.netif, at.queue);
    let Some(netif) = core.netifs.netif(id) else { return Taken { frames: 0, bytes: 0, is_empty: true } };
    let tables = core.netifs.tables();
    let from = parse::Origin { netif: id, medium: netif.medium(), tables: &tables };
    let (mut frames, mut bytes, mut is_empty) = (0, 0, false);
    while !is_empty && (frames == 0 || bytes < filled && frames < BATCH_MAX) {
        let most = most.min(BATCH_MAX - frames);
        let taken = netif.receive(core, queue, most, |frame| {
            bytes += frame.len();
            sort(core, from, batch, frame);
        });
        (frames, is_empty) = (frames + taken, taken < most);
    }
    drop(tables);
    if frames == 0 {
        return Taken { frames, bytes, is_empty };
    }
    core.input.count(count::FRAMES_IN, frames as u64);
    core.input.count(count::BATCHES, 1);
    core.input.count(count::PACKETS, batch.packets.len() as u64);
    T::input(core, at, batch);
    Taken { frames, bytes, is_empty }
}

/// Frames of a batch of so many bytes, if each is as long as can be.
fn batch_max(netif: &Device, bytes_max: usize) -> usize {
    let largest = netif.mtu().max(netif.segment_max()).max(netif.udp_segment_max()).max(1) as usize;
    (bytes_max / largest).clamp(1, BATCH_MAX)
}

/// Reads a frame, and sorts its packet by kind. The caller is the interface, which a panic must not reach.
fn sort(core: &Core, from: parse::Origin<'_>, batch: &mut Batch, frame: RxFrame<'_>) {
    let sorted = panics::catch(PanicSource::Protocol, "a frame", || sort_frame(core, from, batch, frame));
    batch.caught.extend(sorted.err());
}

fn sort_frame(core: &Core, from: parse::Origin<'_>, batch: &mut Batch, frame: RxFrame<'_>) {
    failpoints::hit(Point::Frame, 0);
    let parsed = parse::packet(core, from, frame);
    batch.sole.note(match &parsed {
        Ok(Parsed::Segment(packet)) => Some(packet.to),
        Ok(Parsed::Other(_) | Parsed::Arp(_) | Parsed::Refused(..)) | Err(_) => None,
    });
    match parsed {
        Ok(Parsed::Segment(packet)) => batch.packets.push(packet),
        Ok(Parsed::Other(received)) => batch.others.push(received),
        Ok(Parsed::Arp(bytes)) => batch.arps.push(bytes),
        Ok(Parsed::Refused(received, why)) => batch.refused.push((received, why)),
        Err(reason) => core.input.count(reason, 1),
    }
}

/// Handles the packets that come before the segments of a batch.
pub(crate) fn before(cx: &mut Context<'_>, at: Place, batch: &mut Batch) {
    cx.due.caught.append(&mut batch.caught);
    // A packet whose handling panics is dropped, and the rest goes on.
    let mut arps = batch.arps.drain(..);
    cx.drain("ARP input", |cx| arps.by_ref().for_each(|bytes| link::arp::input(cx, at.netif, &bytes)));
}

/// Handles the packets that come after the segments of a batch.
pub(crate) fn after(cx: &mut Context<'_>, batch: &mut Batch) {
    let mut others = batch.others.drain(..);
    cx.drain("packet input", |cx| others.by_ref().for_each(|received| ip::input(cx, received)));
    let mut refused = batch.refused.drain(..);
    cx.drain("an error report", |cx| {
        refused.by_ref().for_each(|(received, why)| ip::icmp::error(cx, &received, why));
    });
}
