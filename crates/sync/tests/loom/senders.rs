//! Threads that put frames into a queue and take them themselves (`BusyPoll::send`), beside the input thread that sleeps for
//! them (`Sleeper`) and a caller: no frame is stranded.
//!
//! The input thread sleeps without a deadline, and whoever takes the last frame ends it: if a frame is left by all, loom reports a deadlock. What a sender does after it has
//! put a frame there is what `netif/src/wire/inline.rs` does.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use loom::sync::Arc;
use loom::thread;
use sockeye_sync::busy_poll::{BusyPoll, Taken, Turn};
use sockeye_sync::{Mutex, Sleeper, Spin};

use crate::{check_bounded, check_three};

/// As many as find every frame of a model, and one look more.
const TURNS_MAX: usize = 4;

#[derive(Default)]
struct Frames {
    waiting: usize,
    taken: usize,
}

struct World {
    frames: Mutex<Frames>,
    /// Frames in all.
    count: usize,
    busy: BusyPoll<()>,
    /// Where the input thread waits for frames, and where it defers.
    wait: Sleeper,
    deferring: Sleeper,
}

impl World {
    fn new(count: usize) -> Arc<Self> {
        Arc::new(Self {
            frames: Mutex::new(Frames::default()),
            count,
            busy: BusyPoll::new(()),
            wait: Sleeper::new(),
            deferring: Sleeper::new(),
        })
    }

    /// Takes a frame. How many there were.
    fn turn(&self) -> usize {
        let mut frames = self.frames.lock();
        let found = frames.waiting.min(1);
        frames.waiting -= found;
        frames.taken += found;
        let is_last = found > 0 && frames.taken == self.count;
        drop(frames);
        if is_last {
            self.wait.wake_if_sleeping();
        }
        found
    }

    fn put(&self) {
        self.frames.lock().waiting += 1;
    }

    fn send(&self) {
        self.put();
        self.ring(|()| self.turn() == 0);
    }

    fn ring(&self, turn: impl FnMut(&mut ()) -> bool) {
        let taken = || if self.wait.is_sleeping() { self.busy.send(TURNS_MAX, turn) } else { Taken::Left };
        if catch_unwind(AssertUnwindSafe(taken)).unwrap_or(Taken::Left) == Taken::Left {
            self.wait.wake_if_sleeping();
        }
    }

    /// The input thread, until all frames were taken.
    fn input(&self) {
        loop {
            let found = match self.busy.turn(false) {
                Turn::Own(_batch) => self.turn(),
                Turn::Deferred { .. } => {
                    let until = Instant::now() + Duration::from_micros(200);
                    BusyPoll::<()>::defer(&self.deferring, Some(until));
                    continue;
                }
            };
            let drowsy = self.wait.prepare_sleep();
            let frames = self.frames.lock();
            let (is_done, is_empty) = (frames.taken == self.count, frames.waiting == 0);
            drop(frames);
            if is_done {
                return;
            }
            if found == 0 && is_empty {
                drowsy.sleep(None, Spin::OFF);
            }
        }
    }
}

/// Each of two finds the other at work, or the input thread awake, or neither.
#[test]
fn frames_of_two_senders_are_all_taken() {
    check_three(|| {
        let world = World::new(2);
        let (input, sender) = (world.clone(), world.clone());
        let input = thread::spawn(move || input.input());
        let sender = thread::spawn(move || sender.send());
        world.send();
        sender.join().unwrap();
        input.join().unwrap();
        assert!(world.busy.try_take().is_some());
    });
}

/// Without an input thread that is awake: what one leaves, the other takes.
#[test]
fn what_a_sender_leaves_to_another_is_taken_before_that_one_ends() {
    check_bounded(|| {
        let world = World::new(2);
        let other = world.clone();
        let send = |world: &World| {
            world.put();
            world.busy.send(TURNS_MAX, |()| world.turn() == 0)
        };
        let other = thread::spawn(move || send(&other));
        assert!(send(&world) != Taken::Left && other.join().unwrap() != Taken::Left);
        assert_eq!(world.frames.lock().taken, 2);
    });
}

/// A caller has the queue when a sender tries to.
#[test]
fn frames_of_a_sender_are_taken_beside_a_caller() {
    check_three(|| {
        let world = World::new(1);
        let (input, caller) = (world.clone(), world.clone());
        let input = thread::spawn(move || input.input());
        let caller = thread::spawn(move || {
            caller.busy.look(|()| caller.turn());
            caller.busy.leave(&caller.deferring);
        });
        world.send();
        caller.join().unwrap();
        input.join().unwrap();
    });
}

/// The sender's turn panics after it has taken one of two frames: the other one is the input thread's.
#[test]
fn a_turn_that_panics_leaves_the_rest_to_the_input_thread() {
    check_bounded(|| {
        let world = World::new(2);
        let other = world.clone();
        let input = thread::spawn(move || other.input());
        world.put();
        world.put();
        world.ring(|()| if world.turn() > 0 { panic!("of a model") } else { true });
        input.join().unwrap();
        assert_eq!(world.busy.send(TURNS_MAX, |()| true), Taken::All, "a sender is at work for ever");
    });
}
