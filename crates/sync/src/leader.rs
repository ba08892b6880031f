//! Leader and follower at a device (the pattern of POSA2): the thread that waits there, and its stand-in.
//!
//! A *follower*, a thread of the stack, sleeps at a device and handles its frames. A caller that is about to park may
//! take its place: it becomes the *leader*, and sleeps at the device instead of on the word of its [`WaitQueue`]. A
//! frame then wakes the leader at once, and no other thread has to wake it in turn. Two things must not be lost: a
//! `notify` of the leader's queue by another thread, and the device when the leader goes away.
//!
//! # States of the slot, one word
//!
//! | from → to | by |
//! |---|---|
//! | vacant → taken | a caller: [`LeaderSlot::try_lead`] |
//! | taken → waiting (the address of its queue) | the leader: [`Leader::begin`], before each sleep |
//! | waiting → taken | the leader: [`Leader::pause`], after it; or a thread that ends its wait and then owes a kick: [`LeaderSlot::relieve`] |
//! | taken or waiting → vacant | the leader: dropping the [`Leader`] |
//!
//! # Why no wake-up is lost
//!
//! *A notify of the leader's queue.* The leader first names its queue and then sets `PARKED` in the queue's word
//! ([`WaitQueue::announce`], a read-modify-write each time). The notifier changes the same word. If the notifier comes first, the
//! announcement fails and the leader does not sleep. If it comes later, it reads `PARKED`, so it owes a wake, and it sees the name
//! of the queue: [`LeaderSlot::relieve`] finds it, and the notifier kicks the device. A kick is a level that stays until a leader
//! takes it away, which the leader does before it looks at its ticket. So a kick that was meant for another thread, or that comes
//! late, costs one needless look and hides no other.
//!
//! *The device.* While there is a leader, the follower needs no deadline ([`LeaderSlot::follow`]). The follower says that it follows, announces its
//! sleep, and looks at the slot again; the leader first leaves the slot and then looks whether the follower follows. Between write
//! and look there is a sequentially consistent fence on either side, so one of the two sees the other. If the
//! follower sees a leader, that leader has not left yet, and wakes it when it does. A follower that sleeps elsewhere sets
//! its own deadline.
//!
//! Does not depend on the device, or on which thread handles frames. Invariant: there is at most one leader,
//! and one follower. Tests: `tests/loom/leader.rs`, and below.

use core::marker::PhantomData;

use crate::facade::{AtomicBool, AtomicU32, AtomicUsize, Ordering, fence};
use crate::sleeper::Sleeper;
use crate::spin::Spin;
use crate::wait::{Ticket, WaitQueue};

/// The leader's place at a device.
#[derive(Debug, Default)]
pub struct LeaderSlot {
    /// (a) `VACANT`, `TAKEN`, or the address of the queue on which the leader waits.
    state: AtomicUsize,
    /// (a) Sleeps of leaders; written by the leader.
    sleeps: AtomicU32,
    /// (a) The follower sleeps without a deadline, or is about to.
    is_following: AtomicBool,
    sleeper: Sleeper,
}

/// The right to wait at the device. Dropping it leaves the device to the follower.
#[must_use = "the leader has to wait at the device"]
#[derive(Debug)]
pub struct Leader<'l> {
    slot: &'l LeaderSlot,
    queue: &'l WaitQueue,
    /// It belongs to one thread.
    _not_sync: PhantomData<*const ()>,
}

/// A leader's sleep, to be told from another one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seen(u32);

impl LeaderSlot {
    /// There is no leader.
    pub fn new() -> Self {
        Self {
            state: AtomicUsize::new(VACANT),
            sleeps: AtomicU32::new(0),
            is_following: AtomicBool::new(false),
            sleeper: Sleeper::new(),
        }
    }

    /// Makes the caller, which waits on `queue`, the leader; `None` if there is one. Never blocks.
    pub fn try_lead<'l>(&'l self, queue: &'l WaitQueue) -> Option<Leader<'l>> {
        // Acquire: with the release of the last leader when it left, so that sleeps are counted on.
        let taken = self.state.compare_exchange(VACANT, TAKEN, Ordering::Acquire, Ordering::Relaxed);
        taken.ok().map(|_vacant| Leader { slot: self, queue, _not_sync: PhantomData })
    }

    /// After a notify of `queue` that owes a wake: true if a leader waits for it at the device, which the caller then has to
    /// kick. A load if not; never blocks.
    #[inline]
    pub fn relieve(&self, queue: &WaitQueue) -> bool {
        let name = name(queue);
        // Relaxed: the notify has read `PARKED`, and with it, by its acquire, the name that was written before.
        self.state.load(Ordering::Relaxed) == name
            && self.state.compare_exchange(name, TAKEN, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// For the follower: the leader's present sleep; `None` if there is no leader, or it is at work.
    pub fn seen(&self) -> Option<Seen> {
        // Acquire: with the release of `begin`, so that the number is at least that of this sleep.
        let is_waiting = self.state.load(Ordering::Acquire) > TAKEN;
        is_waiting.then(|| Seen(self.sleeps.load(Ordering::Relaxed)))
    }

    /// The follower sleeps without a deadline until the leader that it has `seen` leaves; not at all if the leader has
    /// begun another sleep since. **Blocks**.
    pub fn follow(&self, seen: Seen) {
        // Relaxed: the fence in `prepare_sleep` is between this and the look at the state.
        self.is_following.store(true, Ordering::Relaxed);
        let drowsy = self.sleeper.prepare_sleep();
        let is_there = self.state.load(Ordering::Acquire) != VACANT;
        if is_there && self.sleeps.load(Ordering::Relaxed) == seen.0 {
            drowsy.sleep(None, Spin::OFF);
        } else {
            drowsy.cancel();
        }
        self.is_following.store(false, Ordering::Relaxed);
    }

    /// Where the follower sleeps otherwise.
    pub fn sleeper(&self) -> &Sleeper {
        &self.sleeper
    }
}

impl Leader<'_> {
    /// The last step before a sleep at the device. False if the wait of `ticket` is over, and there is to be none. Never
    /// blocks.
    pub fn begin(&self, ticket: Ticket) -> bool {
        let sleeps = self.slot.sleeps.load(Ordering::Relaxed);
        self.slot.sleeps.store(sleeps.wrapping_add(1), Ordering::Relaxed);
        // Release: with the acquire of `seen`.
        self.slot.state.store(name(self.queue), Ordering::Release);
        self.queue.announce(ticket)
    }

    /// The first step after it: no thread needs to kick the device any more. Never blocks.
    pub fn pause(&self) {
        // Relaxed: a kick of a leader that is awake costs a look.
        self.slot.state.store(TAKEN, Ordering::Relaxed);
    }
}

impl Drop for Leader<'_> {
    fn drop(&mut self) {
        // Release: with the acquire of `try_lead`.
        self.slot.state.store(VACANT, Ordering::Release);
        // Between the two, with the fence of `Sleeper::prepare_sleep` in `follow`.
        fence(Ordering::SeqCst);
        if self.slot.is_following.load(Ordering::Relaxed) {
            self.slot.sleeper.wake_if_sleeping();
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
    fn there_is_one_leader_at_a_time() {
        let (slot, one, other) = (LeaderSlot::new(), WaitQueue::new(), WaitQueue::new());
        let leader = slot.try_lead(&one).unwrap();
        assert!(slot.try_lead(&other).is_none());
        drop(leader);
        assert!(slot.try_lead(&other).is_some());
    }

    #[test]
    fn only_a_notifier_of_the_leaders_queue_kicks_and_once() {
        let (slot, queue, other) = (LeaderSlot::new(), WaitQueue::new(), WaitQueue::new());
        let leader = slot.try_lead(&queue).unwrap();
        assert!(leader.begin(queue.prepare()));
        assert!(queue.notify().is_wake_owed());
        assert!(!slot.relieve(&other));
        assert!(slot.relieve(&queue));
        assert!(!slot.relieve(&queue));
        leader.pause();
        assert!(!slot.relieve(&queue));
    }

    #[test]
    fn a_wait_that_is_over_is_not_begun() {
        let (slot, queue) = (LeaderSlot::new(), WaitQueue::new());
        let leader = slot.try_lead(&queue).unwrap();
        let ticket = queue.prepare();
        assert!(!queue.notify().is_wake_owed());
        assert!(!leader.begin(ticket));
    }

    #[test]
    fn a_follower_follows_only_the_sleep_that_it_has_seen() {
        let (slot, queue) = (LeaderSlot::new(), WaitQueue::new());
        let leader = slot.try_lead(&queue).unwrap();
        assert_eq!(slot.seen(), None);
        assert!(leader.begin(queue.prepare()));
        let seen = slot.seen().unwrap();
        assert_eq!(slot.seen(), Some(seen));
        leader.pause();
        assert_eq!(slot.seen(), None);
        assert!(leader.begin(queue.prepare()));
        assert_ne!(slot.seen(), Some(seen));
        // Each returns at once, else this test would not end.
        slot.follow(seen);
        let now = slot.seen().unwrap();
        drop(leader);
        slot.follow(now);
    }

    #[test]
    fn a_follower_is_woken_when_the_leader_leaves() {
        let slot = std::sync::Arc::new(LeaderSlot::new());
        let queue = WaitQueue::new();
        let leader = slot.try_lead(&queue).unwrap();
        assert!(leader.begin(queue.prepare()));
        let seen = slot.seen().unwrap();
        let follower = {
            let slot = std::sync::Arc::clone(&slot);
            std::thread::spawn(move || slot.follow(seen))
        };
        while !slot.sleeper().is_sleeping() {
            std::thread::yield_now();
        }
        drop(leader);
        follower.join().unwrap();
    }
}
