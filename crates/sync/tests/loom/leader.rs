//! A caller that waits at a device as its leader, in place of the input thread (`sync/src/leader.rs`,
//! `stack/src/inet/input/leader.rs`): a notify by another thread ends its sleep, and when it leaves, the follower takes over
//! the device.
//!
//! Loom reports a thread that sleeps for ever as a deadlock.

use loom::sync::Arc;
use loom::thread;

use sockeye_sync::{LeaderSlot, Mutex, Ticket, WaitQueue};

use crate::{check, check_bounded};

/// A device that is waited at by level, and can be kicked.
#[derive(Default)]
struct Device {
    state: loom::sync::Mutex<Level>,
    changed: loom::sync::Condvar,
}

#[derive(Default)]
struct Level {
    frames: usize,
    is_kicked: bool,
}

impl Device {
    fn arrive(&self) {
        self.state.lock().unwrap().frames += 1;
        self.changed.notify_all();
    }

    fn kick(&self) {
        self.state.lock().unwrap().is_kicked = true;
        self.changed.notify_all();
    }

    /// The leader's wait: for frames or a kick, which it takes away.
    fn wait_for_caller(&self) {
        let mut level = self.state.lock().unwrap();
        while level.frames == 0 && !level.is_kicked {
            level = self.changed.wait(level).unwrap();
        }
        level.is_kicked = false;
    }

    /// The follower's wait, which kicks do not end.
    fn wait(&self) {
        let mut level = self.state.lock().unwrap();
        while level.frames == 0 {
            level = self.changed.wait(level).unwrap();
        }
    }

    fn take(&self) -> bool {
        let mut level = self.state.lock().unwrap();
        let found = level.frames > 0;
        level.frames -= usize::from(found);
        found
    }
}

struct World {
    device: Device,
    slot: LeaderSlot,
    /// The condition that the leader waits for.
    is_done: Mutex<bool>,
    wait: WaitQueue,
}

impl World {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            device: Device::default(),
            slot: LeaderSlot::new(),
            is_done: Mutex::new(false),
            wait: WaitQueue::new(),
        })
    }

    /// Makes the condition true, as a thread that is not at the device does it.
    fn finish(&self) {
        let mut is_done = self.is_done.lock();
        *is_done = true;
        let owed = self.wait.notify().is_wake_owed();
        drop(is_done);
        if owed {
            self.wait.wake();
            if self.slot.relieve(&self.wait) {
                self.device.kick();
            }
        }
    }

    /// A caller that waits until the condition is true. Whether it took a frame meanwhile.
    fn lead(&self) -> bool {
        let mut took = false;
        loop {
            let is_done = self.is_done.lock();
            if *is_done {
                return took;
            }
            let ticket = self.wait.prepare();
            drop(is_done);
            took |= self.sleep(ticket);
        }
    }

    fn sleep(&self, ticket: Ticket) -> bool {
        let leader = self.slot.try_lead(&self.wait).unwrap();
        let mut took = false;
        while leader.begin(ticket) {
            self.device.wait_for_caller();
            leader.pause();
            took |= self.device.take();
        }
        took
    }

    /// The thread that looks after the device, until it has taken a frame.
    fn follow(&self) {
        loop {
            match self.slot.seen() {
                Some(seen) => self.slot.follow(seen),
                None if self.device.take() => return,
                None => self.device.wait(),
            }
        }
    }
}

#[test]
fn a_leader_at_the_device_is_notified_by_others() {
    check(|| {
        let world = World::new();
        let caller = world.clone();
        let caller = thread::spawn(move || caller.lead());
        world.finish();
        assert!(!caller.join().unwrap());
    });
}

#[test]
fn a_kick_that_is_stale_hides_no_other() {
    check(|| {
        let world = World::new();
        world.device.kick();
        let caller = world.clone();
        let caller = thread::spawn(move || caller.lead());
        world.finish();
        caller.join().unwrap();
    });
}

#[test]
fn frames_end_a_leaders_sleep_too() {
    check_bounded(|| {
        let world = World::new();
        let (caller, other) = (world.clone(), world.clone());
        let caller = thread::spawn(move || caller.lead());
        let other = thread::spawn(move || other.finish());
        world.device.arrive();
        let took = caller.join().unwrap();
        other.join().unwrap();
        assert_ne!(took, world.device.take(), "a frame is taken once");
    });
}

/// The frame arrives after the leader has left: the follower takes it, whatever it has observed of the leader.
#[test]
fn a_leader_that_leaves_hands_the_device_to_the_follower() {
    check_bounded(|| {
        let world = World::new();
        let (caller, follower) = (world.clone(), world.clone());
        let follower = thread::spawn(move || follower.follow());
        let caller = thread::spawn(move || caller.lead());
        world.finish();
        assert!(!caller.join().unwrap());
        world.device.arrive();
        follower.join().unwrap();
    });
}
