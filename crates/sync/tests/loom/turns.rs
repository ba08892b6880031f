//! Turns of writers (`turns.rs`): a turn goes from one to the next, and nobody sleeps while it is free.
//!
//! Loom reports a writer who sleeps for ever as a deadlock; nobody looks around in the model. If a turn that ends were not
//! given out in the same section, or the ticket taken in another one than the place in the queue, these would find one.

use std::time::{Duration, Instant};

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;
use sockeye_sync::turns::{Asked, Full, Holder, ROUNDS_MAX, Turns};

use crate::{check, check_bounded};

fn full() -> Full {
    Full { reader: 0, deadline: None, moves: false }
}

/// One core with its turn, in a crowd, and how many have the turn.
struct World {
    turns: Turns,
    holding: AtomicU32,
}

impl World {
    fn new() -> Arc<Self> {
        Arc::new(Self { turns: Turns::new(1, 0), holding: AtomicU32::new(0) })
    }

    /// Takes `count` turns and gives the last one back.
    fn write(&self, count: u32) {
        let holder = Holder::new();
        for _ in 0..count {
            assert_eq!(self.turns.ask(&holder, &full()), Asked::Waited);
            assert_eq!(self.holding.fetch_add(1, Ordering::Relaxed), 0, "one at a time");
            for _ in 1..ROUNDS_MAX {
                assert_eq!(self.turns.ask(&holder, &full()), Asked::Holds);
            }
            self.holding.fetch_sub(1, Ordering::Relaxed);
        }
        self.turns.give_back(&holder);
    }
}

#[test]
fn two_writers_take_turns() {
    check_bounded(|| {
        let world = World::new();
        let other = world.clone();
        world.turns.parked(|| {
            let writer = thread::spawn(move || other.write(2));
            world.write(1);
            writer.join().unwrap();
        });
    });
}

#[test]
fn three_writers_all_get_one() {
    check_bounded(|| {
        let world = World::new();
        world.turns.parked(|| {
            let writers: Vec<_> = (0..2)
                .map(|_| {
                    let other = world.clone();
                    thread::spawn(move || other.write(1))
                })
                .collect();
            world.write(1);
            writers.into_iter().for_each(|writer| writer.join().unwrap());
        });
    });
}

/// A turn that is handed to a writer whose time is over at that moment is his or the next one's, and never nobody's.
#[test]
fn a_turn_is_not_lost_to_who_gives_up() {
    check(|| {
        let world = World::new();
        let other = world.clone();
        world.turns.parked(|| {
            let writer = thread::spawn(move || other.write(1));
            let (holder, deadline) = (Holder::new(), Some(Instant::now() + Duration::from_secs(3600)));
            assert_eq!(world.turns.ask(&holder, &Full { deadline, ..full() }), Asked::Waited);
            world.turns.give_back(&holder);
            writer.join().unwrap();
            world.write(1);
        });
    });
}
