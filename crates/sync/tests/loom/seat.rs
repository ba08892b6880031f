//! A queue of frames that an input thread and a waiting caller take from (`stack/src/inet/input/busy.rs`): no frame is
//! stranded, and the caller who gives up and parks is woken.
//!
//! The caller's spin is [`LOOKS`] looks long; the input thread that stands aside has a deadline, and waits at its interface
//! without one. Loom reports anybody who sleeps for ever as a deadlock: a caller who parks although his frame has
//! come, or an input thread that waits at an interface which has a frame. Without the
//! deadline it finds one: a frame that comes when the caller has gone, between the input thread's look at the mark and its sleep.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;
use std::time::{Duration, Instant};

use sockeye_sync::{Mutex, Sleeper, Spin, WaitQueue};

use crate::check_bounded;

/// Looks of a caller before he parks: one that finds nothing, and one behind which something may have come.
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
    seat: Mutex<()>,
    served: AtomicBool,
    bed: Sleeper,
    /// Bytes that the caller waits for, and where he does.
    buffer: Mutex<usize>,
    wait: WaitQueue,
}

impl World {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            device: Device::default(),
            seat: Mutex::new(()),
            served: AtomicBool::new(false),
            bed: Sleeper::new(),
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

    /// Takes a frame, if there is one, and wakes whoever waits for it. The seat is held.
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

    /// The input thread, until `count` frames were taken by anybody.
    fn input(&self, count: usize) {
        loop {
            let held = if self.served.load(Ordering::Relaxed) { None } else { self.seat.try_lock() };
            let Some(seat) = held else {
                self.served.store(false, Ordering::Relaxed);
                self.bed.prepare_sleep().sleep(later(), Spin::OFF);
                continue;
            };
            let found = self.turn();
            drop(seat);
            if *self.buffer.lock() == count {
                return;
            }
            let mut frames = self.device.frames.lock().unwrap();
            while !found && *frames == (0, false) {
                frames = self.device.changed.wait(frames).unwrap();
            }
        }
    }

    fn mark(&self) {
        if !self.served.load(Ordering::Relaxed) {
            self.served.store(true, Ordering::Relaxed);
        }
    }

    /// The caller, until he has bytes of `count` frames.
    fn read(&self, count: usize) {
        loop {
            let buffer = self.buffer.lock();
            if *buffer >= count {
                return;
            }
            let ticket = self.wait.prepare();
            drop(buffer);
            if !self.looks(|| self.wait.is_over(ticket)) {
                self.served.store(false, Ordering::Relaxed);
                self.bed.wake_if_sleeping();
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
            match self.seat.try_lock() {
                Some(seat) => {
                    if self.turn() {
                        self.mark();
                    }
                    drop(seat);
                }
                None => self.mark(),
            }
        }
        is_over()
    }
}

fn later() -> Option<Instant> {
    Some(Instant::now() + Duration::from_micros(200))
}

/// One frame that the caller waits for, and one that nobody does, which comes before it, behind it, or when the caller has gone.
/// The input thread ends once both were taken.
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
fn whoever_takes_frames_none_is_stranded_and_who_parks_is_woken() {
    check_bounded(two_frames);
}
