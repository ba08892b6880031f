//! The thread that waits at a device: one of the stack's, or a caller that waits for what the device brings.
//!
//! A *deputy*, a thread of the stack's, sleeps at a device and handles what comes. A caller that is about to park may
//! take the deputy's place: it becomes the *watcher*, and sleeps at the device instead of on the word of its
//! [`WaitQueue`]. What comes then wakes the watcher at once, and no other thread has to wake it in turn. Two things must
//! not be lost: a `notify` of the watcher's queue by another thread, and the device when the watcher goes away.
//!
//! # States of the watch, one word
//!
//! | from → to | by |
//! |---|---|
//! | vacant → taken | a caller: [`Lookout::take`] |
//! | taken → waiting (the address of its queue) | the watcher: [`Watch::begin`], before each sleep |
//! | waiting → taken | the watcher: [`Watch::pause`], after it; or a thread that ends its wait and then owes a kick: [`Lookout::relieve`] |
//! | taken or waiting → vacant | the watcher: dropping the [`Watch`] |
//!
//! # Why no wake-up is lost
//!
//! *A notify of the watcher's queue.* The watcher names its queue first and sets `PARKED` in the queue's word after that
//! ([`WaitQueue::announce`], a read-modify-write each time). The notifier changes the same word. If the notifier comes first the
//! announcement fails, and the watcher does not sleep. If it comes later it reads `PARKED`, so a wake is owed, and with it the name
//! of the queue: [`Lookout::relieve`] finds it, and the device is kicked. A kick is a level that stays until a watcher has taken it
//! away, which it does before it looks at its ticket; so one that was meant for another thread, or that comes late, costs one
//! needless look and hides none.
//!
//! *The device.* While there is a watcher the deputy needs no deadline ([`Lookout::trust`]). It says so, announces its sleep,
//! and looks at the watch again; the watcher leaves the watch first and then looks whether it was trusted. Between the two
//! writes and the two looks there is a sequentially consistent fence on either side: of the two, one sees the other. If the
//! deputy sees a watcher, that one's way out is still to come, and wakes it. A deputy that does not sleep so looks by itself
//! before long, which is its own business.
//!
//! Must not know what the device is, nor which thread handles what comes. Invariant: there is one watcher at most, and
//! one deputy. Tests: `tests/loom/lookout.rs`, and below.

use core::marker::PhantomData;

use crate::facade::{AtomicBool, AtomicU32, AtomicUsize, Ordering, fence};
use crate::sleeper::Sleeper;
use crate::spin::Spin;
use crate::wait::{Ticket, WaitQueue};

/// The place at a device.
#[derive(Debug, Default)]
pub struct Lookout {
    /// (a) `VACANT`, `TAKEN`, or the address of the queue on which the watcher waits.
    watch: AtomicUsize,
    /// (a) Sleeps of watchers; written by the watcher.
    sleeps: AtomicU32,
    /// (a) The deputy sleeps without a deadline, or is about to.
    is_trusted: AtomicBool,
    bed: Sleeper,
}

/// The watch. Dropping it leaves the device to the deputy.
#[must_use = "whoever takes the watch has to wait at the device"]
#[derive(Debug)]
pub struct Watch<'l> {
    lookout: &'l Lookout,
    queue: &'l WaitQueue,
    /// A thread's own.
    _not_sync: PhantomData<*const ()>,
}

/// A sleep of a watcher, to be told from another one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seen(u32);

impl Lookout {
    /// Nobody watches.
    pub fn new() -> Self {
        Self {
            watch: AtomicUsize::new(VACANT),
            sleeps: AtomicU32::new(0),
            is_trusted: AtomicBool::new(false),
            bed: Sleeper::new(),
        }
    }

    /// Takes the watch for a caller who waits on `queue`; `None` if somebody else has it. Never blocks.
    pub fn take<'l>(&'l self, queue: &'l WaitQueue) -> Option<Watch<'l>> {
        // Acquire: with the release of the last watcher's way out, so that sleeps are counted on.
        let taken = self.watch.compare_exchange(VACANT, TAKEN, Ordering::Acquire, Ordering::Relaxed);
        taken.ok().map(|_vacant| Watch { lookout: self, queue, _not_sync: PhantomData })
    }

    /// After a notify of `queue` that owes a wake: true if a watcher waits for it at the device, which the caller then has to
    /// kick. A load if not; never blocks.
    #[inline]
    pub fn relieve(&self, queue: &WaitQueue) -> bool {
        let name = name(queue);
        // Relaxed: the notify has read `PARKED`, and with it, by its acquire, the name that was written before.
        self.watch.load(Ordering::Relaxed) == name
            && self.watch.compare_exchange(name, TAKEN, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// For the deputy: the sleep in which a watcher is; `None` if there is no watcher, or one who is at work.
    pub fn seen(&self) -> Option<Seen> {
        // Acquire: with the release of `begin`, so that the number is at least that of this sleep.
        let is_waiting = self.watch.load(Ordering::Acquire) > TAKEN;
        is_waiting.then(|| Seen(self.sleeps.load(Ordering::Relaxed)))
    }

    /// The deputy sleeps without a deadline, as long as the watcher that it has `seen` is there; not at all if the watcher
    /// has slept anew since. **Blocks**.
    pub fn trust(&self, seen: Seen) {
        // Relaxed: the fence in `prepare_sleep` is between this and the look at the watch.
        self.is_trusted.store(true, Ordering::Relaxed);
        let drowsy = self.bed.prepare_sleep();
        let is_there = self.watch.load(Ordering::Acquire) != VACANT;
        if is_there && self.sleeps.load(Ordering::Relaxed) == seen.0 {
            drowsy.sleep(None, Spin::OFF);
        } else {
            drowsy.cancel();
        }
        self.is_trusted.store(false, Ordering::Relaxed);
    }

    /// Where the deputy sleeps otherwise.
    pub fn bed(&self) -> &Sleeper {
        &self.bed
    }
}

impl Watch<'_> {
    /// The last step before a sleep at the device. False if the wait of `ticket` is over, and there is to be none. Never
    /// blocks.
    pub fn begin(&self, ticket: Ticket) -> bool {
        let sleeps = self.lookout.sleeps.load(Ordering::Relaxed);
        self.lookout.sleeps.store(sleeps.wrapping_add(1), Ordering::Relaxed);
        // Release: with the acquire of `seen`.
        self.lookout.watch.store(name(self.queue), Ordering::Release);
        self.queue.announce(ticket)
    }

    /// The first step after it: nobody needs to kick the device any more. Never blocks.
    pub fn pause(&self) {
        // Relaxed: to be kicked although one is awake costs a look.
        self.lookout.watch.store(TAKEN, Ordering::Relaxed);
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        // Release: with the acquire of `take`.
        self.lookout.watch.store(VACANT, Ordering::Release);
        // Between the two, with the fence of `Sleeper::prepare_sleep` in `trust`.
        fence(Ordering::SeqCst);
        if self.lookout.is_trusted.load(Ordering::Relaxed) {
            self.lookout.bed.wake_if_sleeping();
        }
    }
}

fn name(queue: &WaitQueue) -> usize {
    core::ptr::from_ref(queue).addr()
}

const VACANT: usize = 0;
const TAKEN: usize = 1;
// No queue has these for its address.
const _: () = assert!(align_of::<WaitQueue>() > TAKEN);

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn one_caller_has_the_watch_at_a_time() {
        let (lookout, one, other) = (Lookout::new(), WaitQueue::new(), WaitQueue::new());
        let watch = lookout.take(&one).unwrap();
        assert!(lookout.take(&other).is_none());
        drop(watch);
        assert!(lookout.take(&other).is_some());
    }

    #[test]
    fn who_notifies_the_watchers_queue_kicks_once_and_nobody_else_does() {
        let (lookout, queue, other) = (Lookout::new(), WaitQueue::new(), WaitQueue::new());
        let watch = lookout.take(&queue).unwrap();
        assert!(watch.begin(queue.prepare()));
        assert!(queue.notify().is_wake_owed());
        assert!(!lookout.relieve(&other));
        assert!(lookout.relieve(&queue));
        assert!(!lookout.relieve(&queue));
        watch.pause();
        assert!(!lookout.relieve(&queue));
    }

    #[test]
    fn a_wait_that_is_over_is_not_begun() {
        let (lookout, queue) = (Lookout::new(), WaitQueue::new());
        let watch = lookout.take(&queue).unwrap();
        let ticket = queue.prepare();
        assert!(!queue.notify().is_wake_owed());
        assert!(!watch.begin(ticket));
    }

    #[test]
    fn a_deputy_trusts_only_the_sleep_that_it_has_seen() {
        let (lookout, queue) = (Lookout::new(), WaitQueue::new());
        let watch = lookout.take(&queue).unwrap();
        assert_eq!(lookout.seen(), None);
        assert!(watch.begin(queue.prepare()));
        let seen = lookout.seen().unwrap();
        assert_eq!(lookout.seen(), Some(seen));
        watch.pause();
        assert_eq!(lookout.seen(), None);
        assert!(watch.begin(queue.prepare()));
        assert_ne!(lookout.seen(), Some(seen));
        // Each returns at once, else this test would not end.
        lookout.trust(seen);
        let now = lookout.seen().unwrap();
        drop(watch);
        lookout.trust(now);
    }

    #[test]
    fn a_deputy_that_trusts_is_woken_when_the_watcher_goes() {
        let lookout = std::sync::Arc::new(Lookout::new());
        let queue = WaitQueue::new();
        let watch = lookout.take(&queue).unwrap();
        assert!(watch.begin(queue.prepare()));
        let seen = lookout.seen().unwrap();
        let deputy = {
            let lookout = std::sync::Arc::clone(&lookout);
            std::thread::spawn(move || lookout.trust(seen))
        };
        while !lookout.bed().is_sleeping() {
            std::thread::yield_now();
        }
        drop(watch);
        deputy.join().unwrap();
    }
}
