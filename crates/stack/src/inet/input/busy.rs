//! Busy polling: which thread takes frames from a receive queue, its input thread or a call that waits for their data.
//!
//! A thread that blocks in a read or write is busy for a while before it parks. If its connection is over an interface,
//! it spends that time at the queue where the connection's frames come in: it takes a batch, handles it as the
//! input thread would, and often finds that its own wait is over. That saves two switches of threads for each answer, and
//! payload is copied out on the core that has just copied it in. (On sockets of the kernel this is SO_BUSY_POLL.)
//!
//! # Ownership
//! The thread that has the batch of the queue ([`BusyPoll`]) owns the queue and takes frames. A caller and the input thread both only try to get it: if
//! they fail, another thread is at work there. It comes before all locks; a thread that tries it holds none.
//!
//! # Deferring to callers
//! A frame that a caller takes would also wake an input thread that waits in its interface. So a caller says that it prefers to poll when it has
//! found frames, when it finds the batch taken, and when it writes faster than its peer takes ([`has_written`]): the next frames are the
//! caller's. A caller that has read much does not say so: one that pauses before each read would keep frames waiting. An input thread that finds this, or the batch taken, clears it
//! and sleeps for [`DEFER_MAX`] instead of going on: if no caller has said so again by then, it takes its turn and goes back to its interface.
//! Where callers have polled for long it sleeps longer, [`DEFER_LONG_MAX`]. A caller that gives up and parks clears the preference and wakes it,
//! and so does one that parks elsewhere: in accept, for a datagram, for a handshake whose queue is not known ([`leave_all`]).
//!
//! # Why nothing is stranded
//! Between two turns of any thread, a frame waits for the input thread no longer than these bounds: its sleep has that end, and after a sleep during
//! which no caller has polled it takes a turn before it waits in its interface, which reports waiting frames by level. That bound also covers the
//! race of a caller that leaves between the input thread's look at the preference and its sleep; `sync/tests/loom/busy_poll.rs` runs every order of
//! the two on [`BusyPoll`]. A caller that parks has a ticket from before its last look, and the thread that delivers its data ends the wait. A caller
//! that sleeps at the interface instead (`leader.rs`) is a reason to defer too, and the only one to do so without that bound.
//!
//! Tests: `tests/wire/transfers.rs`, `tests/wire/busy_polling.rs`, `drivers/tests/transfers.rs`; the orders in `crates/sync/tests/loom/busy_poll.rs`.

use std::time::{Duration, Instant};

use sockeye_sync::busy_poll::{BusyPoll, Turn};
use sockeye_sync::facade::{AtomicBool, AtomicU16, OnceLock, Ordering};
use sockeye_sync::{LeaderSlot, Seen, Spin};

use super::{BATCH_BYTES_MAX, Batch, Transport, count, turn, turn_filled};
use crate::inet::Core;
use crate::inet::netif::NetifId;
use crate::inet::netif::table::{NETIFS_MAX, Via};
use crate::rt::discipline::{Chosen, Discipline};

/// The longest that an input thread defers without a look at the queue. A frame that comes while the callers are
/// elsewhere waits so long at most.
const DEFER_MAX: Duration = Duration::from_micros(200);
/// The same where callers have polled for [`DEFER_MANY`] such looks in a row: to look is a switch of threads each time.
const DEFER_LONG_MAX: Duration = Duration::from_millis(1);
const DEFER_MANY: u32 = 8;

/// Bytes of earlier writes that a writer finds in its buffer, and bytes that it adds, from which on it is expected back.
const STREAM_MIN: u32 = 32 << 10;
/// Bytes in a socket's buffer from which on its writer looks whether some of them were acknowledged.
const LOOK_MIN: u32 = 192 << 10;
/// Bytes after which a caller looks whether its wait is over. Fewer than an input thread takes: the caller is about to read the
/// data, which should still be in its core's cache then.
const CALLER_BYTES_MAX: usize = 128 << 10;
/// Frames after which the driver of a stack without threads does what they are for, if there were not [`CALLER_BYTES_MAX`] bytes before.
const DRIVER_FRAMES_MAX: usize = 256;
/// Frames that it takes in any case: [`BATCH_BYTES_MAX`] bytes of a device's largest.
const DRIVER_FRAMES_MIN: usize = 16;

/// A queue of an interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub netif: NetifId,
    pub queue: usize,
}

/// A [`Place`], or none, in one word.
#[derive(Debug, Default)]
pub(crate) struct PlaceCell(AtomicU16);

impl PlaceCell {
    /// Remembers a place. The line is shared with readers of other fields: it is written only on a change.
    #[inline]
    pub fn store(&self, place: Place) {
        let word = Self::word(place);
        // Relaxed, here and below: a hint where to look.
        if self.0.load(Ordering::Relaxed) != word {
            self.0.store(word, Ordering::Relaxed);
        }
    }

    /// Remembers a place, if there is none.
    pub fn try_take(&self, place: Place) -> bool {
        // Relaxed: a thread that has to see it reads a word that is written after it.
        self.0.compare_exchange(0, Self::word(place), Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Forgets it.
    pub fn clear(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    fn word(place: Place) -> u16 {
        // At most 16 interfaces of 64 queues.
        (place.netif.index() * QUEUES_SHIFTED + place.queue + 1) as u16
    }

    /// The place that was remembered last.
    #[inline]
    pub fn load(&self) -> Option<Place> {
        let word = (self.0.load(Ordering::Relaxed) as usize).checked_sub(1)?;
        let netif = NetifId::from_index(word / QUEUES_SHIFTED)?;
        Some(Place { netif, queue: word % QUEUES_SHIFTED })
    }
}

/// Numbers of queues in a [`PlaceCell`].
const QUEUES_SHIFTED: usize = sockeye_netif::QUEUES_MAX;
const _: () = assert!(NETIFS_MAX * QUEUES_SHIFTED < u16::MAX as usize);

/// State of an input thread while it defers.
#[derive(Default)]
pub(super) struct Follower {
    /// The sleep of a leader that it has found the last time.
    last: Option<Seen>,
    /// Looks in a row that found callers at work.
    looks: u32,
}

impl Follower {
    /// It has found a leader, or none. True if it was the same sleep the last time: then the leader has slept for so
    /// long that no deadline is needed.
    fn knows(&mut self, seen: Option<Seen>) -> bool {
        let is_known = seen.is_some() && self.last == seen;
        self.last = seen;
        is_known
    }

    /// It defers, for so long.
    fn defer(&mut self) -> Duration {
        self.looks = self.looks.saturating_add(1);
        if self.looks > DEFER_MANY { DEFER_LONG_MAX } else { DEFER_MAX }
    }

    /// It takes its turn.
    fn reset(&mut self) {
        *self = Self::default();
    }
}

/// Which thread takes frames from a queue.
#[derive(Default)]
pub(super) struct PolledQueue {
    /// The batch, and whether callers take frames.
    pub poll: BusyPoll<Batch>,
    /// A caller that sleeps at the interface; the input thread is its follower, and sleeps there when it defers.
    pub leader: LeaderSlot,
    /// (a) The interface lets no caller sleep in it.
    pub has_no_place: AtomicBool,
}

/// The queues of all interfaces.
pub(super) struct PolledQueues([OnceLock<Box<[PolledQueue]>>; NETIFS_MAX]);

impl PolledQueues {
    pub fn new() -> Self {
        Self(std::array::from_fn(|_| OnceLock::new()))
    }

    /// Makes those of an interface.
    pub fn add(&self, netif: NetifId, queues: usize) {
        if let Some(made) = self.0.get(netif.index()) {
            let _ = made.set((0..queues).map(|_| PolledQueue::default()).collect());
        }
    }

    fn at(&self, place: Place) -> Option<&PolledQueue> {
        self.0.get(place.netif.index())?.get()?.get(place.queue)
    }

    fn all(&self) -> impl Iterator<Item = &PolledQueue> {
        self.0.iter().filter_map(|queues| queues.get()).flat_map(|queues| queues.iter())
    }

    /// Wakes the input threads that defer to callers, but for a leader.
    fn leave(&self) {
        for queue in self.all().filter(|queue| queue.poll.is_preferred()) {
            queue.poll.leave(queue.leader.sleeper());
        }
    }

    /// Wakes all input threads that defer.
    pub fn wake_all(&self) {
        for queue in self.all() {
            queue.leader.sleeper().wake_if_sleeping();
        }
    }
}

/// The queue, if callers may poll it. Not in a stack without threads: its driver may wait for an edge, and no thread would look again for what a caller leaves.
pub(super) fn polled_queue(core: &Core, at: Place) -> Option<&PolledQueue> {
    let has_threads = core.config.workers > 0;
    core.input.queues.at(at).filter(|_| has_threads && Chosen::takes_frames_in_calls(core))
}

/// The input thread's turn, of at most so many bytes: how many frames there were; `None` if it deferred to callers, after
/// some sleep.
pub(super) fn turn_or_defer<T: Transport>(
    core: &T,
    at: Place,
    bytes_max: usize,
    follower: &mut Follower,
) -> Option<usize> {
    let queue = core.input.queues.at(at)?;
    let leader = queue.leader.seen();
    let mut batch = match queue.poll.turn(leader.is_some()) {
        Turn::Own(batch) => batch,
        Turn::Deferred { was_preferred } => {
            core.input.count(count::DEFERRED, 1);
            match leader.filter(|_| follower.knows(leader) && !was_preferred) {
                Some(seen) => queue.leader.follow(seen),
                None => {
                    let until = Instant::now() + follower.defer();
                    BusyPoll::<Batch>::defer(queue.leader.sleeper(), Some(until));
                }
            }
            return None;
        }
    };
    follower.reset();
    Some(turn(core, at, bytes_max, &mut batch))
}

/// The turn of a driver of a stack without threads: whether there may be more frames. There are none for it while another thread is at the queue, or the
/// driver itself: an interface that polls the stack when it is asked for frames. Where frames are short and the interface says when its queue is empty, a few full
/// batches are taken: the tasks that one wakes may take longer than the queue has room for.
pub(super) fn turn_of_driver<T: Transport>(core: &T, at: Place) -> bool {
    let Some(mut batch) = core.input.queues.at(at).and_then(|queue| queue.poll.try_take()) else {
        return false;
    };
    let Some(netif) = core.netifs.netif(at.netif) else { return false };
    if !netif.receives_all() {
        return turn(core, at, BATCH_BYTES_MAX, &mut batch) > 0;
    }
    let (mut frames, mut bytes) = (0, 0);
    while frames < DRIVER_FRAMES_MAX && bytes < CALLER_BYTES_MAX {
        let taken = turn_filled(core, at, (DRIVER_FRAMES_MIN, CALLER_BYTES_MAX), &mut batch);
        if taken.is_empty {
            return false;
        }
        (frames, bytes) = (frames + taken.frames, bytes + taken.bytes);
    }
    true
}

/// An input thread does nothing for so long, or until the stack ends.
pub(super) fn pause(core: &Core, at: Place, time: Duration) {
    if let Some(queue) = core.input.queues.at(at) {
        queue.leader.sleeper().prepare_sleep().sleep(Some(Instant::now() + time), Spin::OFF);
    }
}

/// A caller takes the next frames, or is about to: the input thread is to defer.
pub(super) fn prefer(queue: &PolledQueue) {
    queue.poll.prefer();
}

/// How far a write has come.
#[derive(Clone, Copy)]
pub(crate) struct Written {
    /// Bytes in the buffer when the write began.
    pub earlier: u32,
    /// Bytes in the buffer after the last were added, before any of them was sent.
    pub buffered: u32,
    /// Bytes that were added last.
    pub bytes: u32,
}

/// A caller has handed over so much that answers to earlier data may be there: it takes them itself, and the memory that they
/// acknowledge is in its core's cache for its next bytes. It does not look before the buffered bytes are many: a look is a system call or
/// two. If its buffer had much of earlier writes, it writes faster than its peer takes, and will soon be back or wait for room: the next frames are
/// its own, too. A writer that pauses between its writes finds the buffer empty. Called without locks.
#[inline]
pub(crate) fn has_written<T: Transport>(core: &T, at: &PlaceCell, written: Written) {
    let Written { earlier, buffered, bytes } = written;
    if bytes < STREAM_MIN {
        return;
    }
    let Some((at, queue)) = at.load().and_then(|at| Some((at, polled_queue(core, at)?))) else { return };
    if earlier >= STREAM_MIN {
        prefer(queue);
    }
    if buffered >= LOOK_MIN
        && let Some(mut batch) = queue.poll.try_take()
        && turn(core, at, BATCH_BYTES_MAX, &mut batch) > 0
    {
        core.input.count(count::BY_CALLERS, 1);
    }
}

/// Is busy until `done`, as far as `spin` allows, and takes frames meanwhile. Whether it was done; if not, the caller calls
/// [`leave`] before it parks. Called without locks.
pub(crate) fn until<T: Transport>(core: &T, at: Place, spin: Spin, done: impl Fn() -> bool) -> bool {
    let Some(queue) = polled_queue(core, at) else { return spin.until(done) };
    spin.until(|| {
        if done() {
            return true;
        }
        if queue.poll.look(|batch| turn_of_caller(core, at, batch)) > 0 {
            core.input.count(count::BY_CALLERS, 1);
        }
        done()
    })
}

/// A caller gives up and parks: the input thread need not defer any longer.
pub(crate) fn leave(core: &Core, at: Place) {
    if let Some(queue) = polled_queue(core, at) {
        queue.poll.leave(queue.leader.sleeper());
    }
}

/// A caller parks without a look at any queue, and what it waits for may come in at each of them: no input thread is to defer to callers
/// that are not there. Called without locks.
pub(crate) fn leave_all(core: &Core) {
    core.input.queues.leave();
}

/// Where the frames of a connection come in: as the last one did; before the first one, in the only queue of the interface that it goes
/// out by. `None` on loopback, and where the interface has several queues: then no input thread is to defer. Called without locks.
pub(crate) fn place_of(core: &Core, input_at: &PlaceCell, via: Via) -> Option<Place> {
    if let Some(at) = input_at.load() {
        return Some(at);
    }
    if !via.is_wire() {
        return None;
    }
    let netif = via.netif();
    if core.netifs.netif(netif)?.queue_count() == 1 {
        return Some(Place { netif, queue: 0 });
    }
    leave_all(core);
    None
}

/// A caller's turn: how many frames there were.
pub(super) fn turn_of_caller<T: Transport>(core: &T, at: Place, batch: &mut Batch) -> usize {
    turn(core, at, CALLER_BYTES_MAX, batch)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_that_parks_elsewhere_leaves_every_queue() {
        let queues = PolledQueues::new();
        let netif = NetifId::from_index(1).unwrap();
        queues.add(netif, 2);
        let at = |queue| queues.at(Place { netif, queue }).unwrap();
        prefer(at(1));
        assert!(matches!(at(1).poll.turn(false), Turn::Deferred { was_preferred: true }));
        prefer(at(1));
        queues.leave();
        assert!(matches!(at(0).poll.turn(false), Turn::Own(_)));
        assert!(matches!(at(1).poll.turn(false), Turn::Own(_)));
    }
}
