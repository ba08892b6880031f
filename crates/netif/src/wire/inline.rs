//! The sender's thread has the other end's stack take the frames that it has put into a lane.
//!
//! To wake the input thread for them would be one switch of threads, and for that thread to wake the one that waits for the data another.
//! A pair of the kernel's veth devices has only the second, since the sender's thread runs the receiver's protocols; so does this.
//!
//! # Which thread takes the frames
//!
//! | the lane's input thread | the thread that rings |
//! |---|---|
//! | sleeps in `wait` | has the stack take them ([`Taking::take`](crate::Taking::take)), and wakes the input thread if that cannot be or frames are left |
//! | the same, and the frames are a stream's, or threads compete | wakes the input thread |
//! | is awake, or defers to callers | leaves them to it, as every thread does with other interfaces |
//!
//! A stream is better handled by two threads at once, in long batches. It is more than [`BYTES_MAX`] in [`STREAM_TIME`], or the [`IN_A_ROW_MAX`]th ring in a row that finds the input
//! thread asleep within [`PACE`] of the one before. Then both ways are left to the input threads for [`LEFT_FOR`], and looked at again. Messages that are answered, or that come with pauses, are no stream.
//!
//! Threads compete if one finds another at work there; the lane is left as long. A program may have more threads than cores, and what one of them was about to take waits for as long as that
//! thread does not run. An input thread runs soon after it was woken.
//!
//! # No recursion, and a bound
//! Frames that are taken cause answers, and these ring the lane of the way back on the same thread, which may have made them deep inside a call. It then
//! notes that lane only ([`NOTED_MAX`]; beyond, the input thread is woken), and its outermost ring takes the noted lanes one after the other. After
//! [`ROUNDS_MAX`] of them it wakes the input threads of the others: its own program waits meanwhile.
//!
//! # Why nothing is stranded
//! A frame is in the lane before its sender rings. If the stack says that the queue is empty, a thread that had the queue for itself has found it empty after
//! that, so the frame was taken. In every other case the sender ends with `Sleeper::wake_if_sleeping`, which is the argument of the wire's head. A noted lane is
//! handled like that before the outermost ring returns, or unwinds.
//!
//! Does not depend on stacks. No lock is held while a stack is called. Tests: below; `crates/stack/tests/wire/senders.rs`.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

use sockeye_sync::facade::Arc;

use super::{Lane, Side};
use crate::{Taken, TxFrame};

/// Lanes that a thread notes at most.
const NOTED_MAX: usize = 16;
/// Lanes that an outermost ring has taken, the first among them.
const ROUNDS_MAX: usize = 16;

/// Time from one ring to the next within which they are of one stream: an answer takes two switches of threads, which is longer.
const PACE: Duration = Duration::from_micros(5);
/// Such rings in a row after which a stream has begun.
const IN_A_ROW_MAX: u32 = 4;
/// Bytes after which a stream has begun, if they are rung for in [`STREAM_TIME`].
const BYTES_MAX: usize = 512 << 10;
const STREAM_TIME: Duration = Duration::from_millis(1);
/// Time for which input threads are woken from then on.
const LEFT_FOR: Duration = Duration::from_millis(2);

/// The rings of a lane that have found its input thread asleep.
#[derive(Debug, Default)]
pub(super) struct Pace {
    last: Option<Instant>,
    /// Rings before it, each within [`PACE`] of the next.
    in_a_row: u32,
    /// Bytes rung for since then.
    bytes: (Option<Instant>, usize),
    /// When frames were last left to the input thread, since they are a stream's or threads compete.
    left: Option<Instant>,
}

impl Pace {
    /// A ring for so many bytes, or one inside another. Whether it is one of a stream's.
    fn note(&mut self, now: Instant, bytes: usize, is_nested: bool) -> bool {
        if !is_nested {
            let is_soon = is_within(PACE, self.last.replace(now), now);
            self.in_a_row = if is_soon { self.in_a_row.saturating_add(1) } else { 0 };
        }
        if !is_within(STREAM_TIME, self.bytes.0, now) {
            self.bytes = (Some(now), 0);
        }
        self.bytes.1 = self.bytes.1.saturating_add(bytes);
        (!is_nested && self.in_a_row >= IN_A_ROW_MAX) || self.bytes.1 > BYTES_MAX
    }
}

fn is_within(time: Duration, earlier: Option<Instant>, now: Instant) -> bool {
    earlier.is_some_and(|earlier| now.duration_since(earlier) < time)
}

/// Whether the frames of the lane that is rung are left to the input thread. Those of the way back then are, too.
fn are_left(back: &Side, lane: &Lane, queue: usize) -> bool {
    let now = Instant::now();
    let mut arrived = lane.arrived.lock();
    let bytes = arrived.frames.iter().map(TxFrame::len).sum();
    let is_nested = WORK.try_with(|work| work.is_at_work.get()).unwrap_or(true);
    let is_stream = arrived.pace.note(now, bytes, is_nested);
    if !is_stream {
        return is_within(LEFT_FOR, arrived.pace.left, now);
    }
    arrived.pace.left = Some(now);
    drop(arrived);
    leave(back, queue, now);
    true
}

/// Input threads are to be woken for this lane.
fn leave(side: &Side, queue: usize, now: Instant) {
    if let Some(lane) = side.lanes.get(queue) {
        lane.arrived.lock().pace.left = Some(now);
    }
}

/// What a thread is doing.
struct Work {
    is_at_work: Cell<bool>,
    noted: RefCell<VecDeque<(Arc<Side>, usize)>>,
}

thread_local! {
    static WORK: Work = const { Work { is_at_work: Cell::new(false), noted: RefCell::new(VecDeque::new()) } };
}

/// Role of a thread that rings.
enum Role {
    Outermost,
    /// It has noted the lane.
    Noted,
    /// Too many are noted, or the thread is ending.
    None,
}

/// Sees to it that the frames of a lane are taken: by this thread, or by the input thread. `back` has the lanes of the way back.
pub(super) fn ring((back, to): (&Side, &Arc<Side>), queue: usize) {
    let Some(lane) = to.lanes.get(queue) else { return };
    let may_be_ours = lane.sleeper.is_sleeping() && to.taking.get().is_some();
    if !may_be_ours || are_left(back, lane, queue) {
        return wake(to, queue);
    }
    match role(to, queue) {
        Role::Noted => {}
        Role::None => wake(to, queue),
        Role::Outermost => {
            let end = End;
            take(to, queue);
            for _ in 1..ROUNDS_MAX {
                let Some((side, queue)) = next() else { break };
                take(&side, queue);
            }
            drop(end);
        }
    }
}

fn role(to: &Arc<Side>, queue: usize) -> Role {
    let find = |work: &Work| {
        if !work.is_at_work.replace(true) {
            return Role::Outermost;
        }
        let mut noted = work.noted.borrow_mut();
        let is_noted = noted.iter().any(|(side, at)| *at == queue && Arc::ptr_eq(side, to));
        if !is_noted && noted.len() == NOTED_MAX {
            return Role::None;
        }
        if !is_noted {
            noted.push_back((Arc::clone(to), queue));
        }
        Role::Noted
    };
    WORK.try_with(find).unwrap_or(Role::None)
}

fn next() -> Option<(Arc<Side>, usize)> {
    WORK.try_with(|work| work.noted.borrow_mut().pop_front()).ok().flatten()
}

/// Frames that are left to the input thread, until they are taken.
struct Left<'a> {
    side: &'a Side,
    queue: usize,
    are_left: bool,
}

impl Drop for Left<'_> {
    fn drop(&mut self) {
        if self.are_left {
            wake(self.side, self.queue);
        }
    }
}

fn take(side: &Side, queue: usize) {
    let mut left = Left { side, queue, are_left: true };
    let taken = side.taking.get().map_or(Taken::Left, |taking| taking.take(queue));
    left.are_left = taken == Taken::Left;
    if taken != Taken::All {
        leave(side, queue, Instant::now());
    }
}

fn wake(side: &Side, queue: usize) {
    if let Some(lane) = side.lanes.get(queue) {
        lane.sleeper.wake_if_sleeping();
    }
}

/// The end of an outermost ring: what is still noted is left to the input threads.
struct End;

impl Drop for End {
    fn drop(&mut self) {
        while let Some((side, queue)) = next() {
            wake(&side, queue);
        }
        let _ = WORK.try_with(|work| work.is_at_work.set(false));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Checksum, Netif, Taking, WireConfig, WireEnd, wire};
    use sockeye_mbuf::Chain;
    use sockeye_sync::facade::{AtomicUsize, Ordering};

    fn put(end: &WireEnd, count: usize) {
        let frame = |_| TxFrame::new(&[0; 100], Chain::new(), Checksum::Software).unwrap();
        assert_eq!(end.transmit(0, &mut (0..count).map(frame).collect()).dropped_count, 0);
    }

    /// Calls `f` while the input threads of both ends sleep.
    fn asleep(ends: [&WireEnd; 2], f: impl FnOnce()) {
        std::thread::scope(|scope| {
            for end in ends {
                scope.spawn(|| end.wait(0, Duration::ZERO));
                while !end.from.lanes[0].sleeper.is_sleeping() {
                    std::thread::yield_now();
                }
            }
            let _woken = Interrupts(ends);
            f();
        });
    }

    /// The threads end, though the test fails.
    struct Interrupts<'a>([&'a WireEnd; 2]);

    impl Drop for Interrupts<'_> {
        fn drop(&mut self) {
            self.0.iter().for_each(|end| end.interrupt(0));
        }
    }

    fn is_asleep(end: &WireEnd) -> bool {
        end.from.lanes[0].sleeper.is_sleeping()
    }

    #[test]
    fn an_answer_is_taken_after_what_it_answers_and_not_inside_it() {
        let (left, right) = wire(&WireConfig::default()).unwrap();
        let (left, right) = (Arc::new(left), Arc::new(right));
        let events = Arc::new(sockeye_sync::Mutex::new(Vec::new()));
        let (seen, from) = (Arc::clone(&events), Arc::clone(&right));
        right.takes_by(&Taking::by(move |queue| {
            seen.lock().push("right begins");
            let count = from.receive(queue, 10, &mut |_| {});
            (0..count).for_each(|_| put(&from, 1));
            from.ring(queue);
            from.ring(queue);
            seen.lock().push("right ends");
            Taken::All
        }));
        let (seen, from) = (Arc::clone(&events), Arc::clone(&left));
        left.takes_by(&Taking::by(move |queue| {
            assert_eq!(from.receive(queue, 10, &mut |_| {}), 2);
            seen.lock().push("left");
            Taken::All
        }));
        asleep([&left, &right], || {
            put(&left, 2);
            left.ring(0);
            assert_eq!(*events.lock(), ["right begins", "right ends", "left"]);
            assert!(is_asleep(&left) && is_asleep(&right));
        });
    }

    #[test]
    fn two_stacks_that_always_answer_are_left_to_their_input_threads() {
        let (left, right) = wire(&WireConfig::default()).unwrap();
        let (left, right) = (Arc::new(left), Arc::new(right));
        let rounds = Arc::new(AtomicUsize::new(0));
        for end in [&left, &right] {
            let (from, rounds) = (Arc::clone(end), Arc::clone(&rounds));
            end.takes_by(&Taking::by(move |queue| {
                rounds.fetch_add(1, Ordering::Relaxed);
                put(&from, from.receive(queue, 10, &mut |_| {}));
                from.ring(queue);
                Taken::All
            }));
        }
        asleep([&left, &right], || {
            put(&left, 1);
            left.ring(0);
            assert_eq!(rounds.load(Ordering::Relaxed), ROUNDS_MAX);
            assert!(!(is_asleep(&left) && is_asleep(&right)), "nobody takes the last answer");
        });
    }

    #[test]
    fn what_the_stack_leaves_wakes_the_input_thread_and_so_does_a_panic() {
        for panics in [false, true] {
            let (left, right) = wire(&WireConfig::default()).unwrap();
            right.takes_by(&Taking::by(move |_| if panics { panic!("of a stack") } else { Taken::Left }));
            asleep([&left, &right], || {
                put(&left, 1);
                let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| left.ring(0)));
                assert!(is_asleep(&left) && !is_asleep(&right));
            });
            // The thread is at work no longer.
            assert!(!WORK.with(|work| work.is_at_work.get()));
        }
    }

    #[test]
    fn a_stream_is_left_to_the_input_threads_of_both_ways() {
        let (left, right) = wire(&WireConfig::default()).unwrap();
        for end in [&left, &right] {
            end.takes_by(&Taking::by(|_| panic!("a stream is taken by its sender")));
        }
        asleep([&left, &right], || {
            put(&left, BYTES_MAX / 100 + 1);
            left.ring(0);
            assert!(!is_asleep(&right));
            put(&right, 1);
            right.ring(0);
            assert!(!is_asleep(&left));
        });
    }

    #[test]
    fn rings_close_together_or_of_many_bytes_are_a_stream_after_a_few() {
        let start = Instant::now();
        let seen = |rings: &[(u64, usize)]| -> Vec<bool> {
            let mut pace = Pace::default();
            let at = |micros| start + Duration::from_micros(micros);
            rings.iter().map(|(micros, bytes)| pace.note(at(*micros), *bytes, false)).collect()
        };
        // A pause ends it.
        let close = [0, 4, 8, 12, 16, 20, 40, 44, 48].map(|micros| (micros, 1));
        assert_eq!(seen(&close), [false, false, false, false, true, true, false, false, false]);
        let large = [0, 300, 600, 1000, 1300, 1600].map(|micros| (micros, 200 << 10));
        assert_eq!(seen(&large), [false, false, true, false, false, true]);
    }
}
