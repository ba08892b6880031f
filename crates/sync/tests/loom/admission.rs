//! The admission limit of writers (`admission.rs`): a token is passed from one to the next, and no writer sleeps while it is free.
//!
//! Loom reports a writer that sleeps for ever as a deadlock; waiters do not poll in the model. If a free token were not given
//! out in the same section, or the ticket not taken in the section that queues the writer, these models would find one.

use std::time::{Duration, Instant};

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;
use sockeye_sync::admission::{Admission, Full, ROUNDS_MAX, Writer};

use crate::{check, check_bounded};

const FULL: Full = Full { reader: 0, deadline: None };

/// One core with its token, in a crowd, and how many have the token.
struct World {
    admission: Admission,
    holding: AtomicU32,
}

impl World {
    fn new() -> Arc<Self> {
        Arc::new(Self { admission: Admission::new(1, 0), holding: AtomicU32::new(0) })
    }

    /// Takes the token `count` times and gives the last one back.
    fn write(&self, count: u32) {
        let writer = Writer::new();
        for _ in 0..count {
            assert!(self.admission.ask(&writer, &FULL));
            assert_eq!(self.holding.fetch_add(1, Ordering::Relaxed), 0, "one at a time");
            for _ in 1..ROUNDS_MAX {
                assert!(!self.admission.ask(&writer, &FULL));
            }
            self.holding.fetch_sub(1, Ordering::Relaxed);
        }
        self.admission.give_back(&writer);
    }
}

#[test]
fn two_writers_take_the_token_in_turn() {
    check_bounded(|| {
        let world = World::new();
        let other = world.clone();
        world.admission.parked(|| {
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
        world.admission.parked(|| {
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

/// A token that is handed to a writer whose time runs out at that moment stays with it or is passed on, and is never lost.
#[test]
fn a_writer_that_gives_up_loses_no_token() {
    check(|| {
        let world = World::new();
        let other = world.clone();
        world.admission.parked(|| {
            let thread = thread::spawn(move || other.write(1));
            let (writer, deadline) = (Writer::new(), Some(Instant::now() + Duration::from_secs(3600)));
            assert!(world.admission.ask(&writer, &Full { deadline, ..FULL }));
            world.admission.give_back(&writer);
            thread.join().unwrap();
            world.write(1);
        });
    });
}
