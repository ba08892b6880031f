//! A queue of frames that an input thread and a waiting caller take from (`busy_poll.rs`): no frame is
//! stranded, and a caller that gives up and parks is woken.
//!
//! The caller's spin is [`LOOKS`] looks long; the input thread that defers has a deadline, and waits at its interface
//! without one. Loom reports a thread that sleeps for ever as a deadlock: a caller that parks although its frame has
//! arrived, or an input thread that waits at an interface that has a frame. Without the deadline loom finds one: a frame
//! that arrives after the caller has left, between the input thread's load of *preferred* and its sleep.

use std::panic::{AssertUnwindSafe, catch_unwind};

use loom::sync::Arc;
use loom::thread;
use std::time::{Duration, Instant};

use sockeye_sync::busy_poll::{BusyPoll, Turn};
use sockeye_sync::{Mutex, Sleeper, WaitQueue};

use crate::check_bounded;

/// Checks of a caller before it parks: one that finds nothing, and one after which a frame may have arrived.
const LOOKS: usize = 2;

/// An interface with a level to wait for.
#[derive(Default)]
struct Device {
    /// How many there are, and whether waits are to end.
    frames: loom::sync::Mutex<(usize, bool)>,
    changed: loom::sync::Condvar,
}

struct World {
    device: Device,
    busy: BusyPoll<()>,
    sleeper: Sleeper,
    /// Bytes that the caller waits for, and where it does.
    buffer: Mutex<usize>,
    wait: WaitQueue,
}

impl World {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            device: Device::default(),
            busy: BusyPoll::new(()),
            sleeper: Sleeper::new(),
            buffer: Mutex::new(0),
            wait: WaitQueue::new(),
        })
    }

    fn arrive(&self) {
        self.device.frames.lock().unwrap().0 += 1;
        self.device.changed.notify_all();
    }

    /// Ends waits at the interface.
    fn end(&self) {
        self.device.frames.lock().unwrap().1 = true;
        self.device.changed.notify_all();
    }

    /// Takes a frame, if there is one, and wakes the thread that waits for it. The batch is held.
    fn turn(&self) -> bool {
        let mut frames = self.device.frames.lock().unwrap();
        if frames.0 == 0 {
            return false;
        }
        frames.0 -= 1;
        drop(frames);
        let mut buffer = self.buffer.lock();
        *buffer += 1;
        let owed = self.wait.notify().is_wake_owed();
        drop(buffer);
        if owed {
            self.wait.wake();
        }
        true
    }

    /// The input thread, until `count` frames were taken.
    fn input(&self, count: usize) {
        loop {
            let Turn::Own(batch) = self.busy.turn(false) else {
                BusyPoll::<()>::defer(&self.sleeper, later());
                continue;
            };
            let found = self.turn();
            drop(batch);
            if *self.buffer.lock() == count {
                return;
            }
            let mut frames = self.device.frames.lock().unwrap();
            while !found && *frames == (0, false) {
                frames = self.device.changed.wait(frames).unwrap();
            }
        }
    }

    /// The caller, until it has bytes of `count` frames.
    fn read(&self, count: usize) {
        loop {
            let buffer = self.buffer.lock();
            if *buffer >= count {
                return;
            }
            let ticket = self.wait.prepare();
            drop(buffer);
            if !self.looks(|| self.wait.is_over(ticket)) {
                self.busy.leave(&self.sleeper);
                self.wait.park(ticket, None);
            }
        }
    }

    /// The busy part of a wait. Whether it was over.
    fn looks(&self, is_over: impl Fn() -> bool) -> bool {
        for _ in 0..LOOKS {
            if is_over() {
                return true;
            }
            self.busy.look(|()| usize::from(self.turn()));
        }
        is_over()
    }
}

fn later() -> Option<Instant> {
    Some(Instant::now() + Duration::from_micros(200))
}

/// One frame that the caller waits for, and one for which no thread waits, which arrives before it, after it, or when the
/// caller has left. The input thread ends once both were taken.
fn two_frames() {
    let world = World::new();
    let (input, caller) = (world.clone(), world.clone());
    let input = thread::spawn(move || input.input(2));
    let caller = thread::spawn(move || caller.read(1));
    world.arrive();
    world.arrive();
    caller.join().unwrap();
    // If it waits at the interface, the caller has taken the last frame: let it look once more.
    world.end();
    input.join().unwrap();
    assert_eq!(*world.buffer.lock(), 2);
}

#[test]
fn no_frame_is_stranded_and_a_caller_that_parks_is_woken() {
    check_bounded(two_frames);
}

/// A caller's turn panics when it has taken a frame, while the input thread looks: the queue is free again, and the other frame is taken.
#[test]
fn a_turn_that_panics_leaves_the_queue_free() {
    check_bounded(|| {
        let world = World::new();
        world.arrive();
        world.arrive();
        let other = world.clone();
        let input = thread::spawn(move || other.input(2));
        let look = || world.busy.look(|()| if world.turn() { panic!("of a model") } else { 0 });
        let _or_found_nothing = catch_unwind(AssertUnwindSafe(look));
        world.busy.leave(&world.sleeper);
        world.end();
        input.join().unwrap();
        assert!(world.busy.try_take().is_some() && *world.buffer.lock() == 2);
    });
}
