//! Leaving without draining: nothing is stranded, nothing runs twice, no sleeping thread is popped, and nothing runs
//! in a squeue that its connection has left.
//!
//! The stack never moves a connection to another squeue. The last two models show why the check of an item's home
//! would be needed if it did: with the check all items run at home, without it (the counter-example) an item runs in
//! the wrong squeue.

use std::sync::atomic::{AtomicBool as PlainBool, Ordering as PlainOrdering};

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;
use sockeye_sync::{Entry, Inside, Outcome, RunQueue, Served, Squeue};

use crate::support::Guarded;
use crate::{check, check_bounded};

/// An item: the connection it is for, its maker, and its number.
type Item = (usize, usize, usize);

/// A squeue that connections share, the items that were run in it, and the notifications of its worker.
struct Shared {
    squeue: Squeue<Item>,
    ran: Guarded<Vec<Item>>,
    scheduled: RunQueue<()>,
}

/// The connection that a thread serves.
struct One<'s> {
    shared: &'s Shared,
    connection: usize,
}

impl Served<Item> for One<'_> {
    fn is_own(&self, item: &Item) -> bool {
        item.0 == self.connection
    }

    fn is_other_end(&self, item: &Item) -> bool {
        item.0 == other_end(self.connection)
    }

    fn run(&mut self, inside: &mut Inside<'_, Item>, max: usize) -> usize {
        let head = inside.pop().expect("there is a head");
        let mut ran = 1;
        self.shared.ran.with(inside, |ran| ran.push(head));
        while ran < max
            && let Some(next) = inside.pop_if(|next| next.0 == head.0)
        {
            self.shared.ran.with(inside, |ran| ran.push(next));
            ran += 1;
        }
        ran
    }
}

/// Connections 2 and 3 are the ends of one; the others have theirs elsewhere.
fn other_end(connection: usize) -> usize {
    if connection == 2 { 3 } else { usize::MAX }
}

impl Shared {
    fn new() -> Arc<Self> {
        let squeue = Squeue::new();
        let ran = Guarded::new(Vec::new());
        Arc::new(Self { squeue, ran, scheduled: RunQueue::new() })
    }

    fn leave(&self, inside: Inside<'_, Item>, connection: usize, elide: bool) {
        let mut one = One { shared: self, connection };
        match inside.leave_undrained(&mut one, elide, 2).outcome {
            Outcome::Left => {}
            Outcome::HandOffNeeded => {
                self.scheduled.push(());
            }
        }
    }

    fn enter(&self, item: Item, elide: bool) {
        match self.squeue.enter(item) {
            Entry::Queued => {}
            Entry::Poisoned(_) => panic!("no thread panicked"),
            Entry::Inside(mut inside, item) => {
                self.ran.with(&mut inside, |ran| ran.push(item));
                self.leave(inside, item.0, elide);
            }
        }
    }

    /// The synchronous section of connection 0.
    fn enter_blocking(&self) {
        let mut inside = self.squeue.enter_blocking().expect("no thread panicked");
        self.ran.with(&mut inside, |ran| ran.push((0, 9, 0)));
        self.leave(inside, 0, true);
    }

    /// A worker's turn.
    fn work(&self) {
        for () in self.scheduled.take_all() {
            if let Some(inside) = self.squeue.resume() {
                let outcome =
                    inside.drain(usize::MAX, |inside, item| self.ran.with(inside, |ran| ran.push(item)));
                assert_eq!(outcome, Outcome::Left);
            }
        }
    }

    /// The items that were run, sorted, when all threads are done.
    fn finish(&self) -> Vec<Item> {
        self.work();
        let mut inside = self.squeue.try_enter().expect("all threads have left");
        let mut ran = self.ran.with(&mut inside, std::mem::take);
        assert!(inside.leave().is_ok());
        for producer in 0..10 {
            let own = ran.iter().filter(|item| item.1 == producer).map(|item| item.2);
            assert!(own.is_sorted(), "producer {producer} out of order: {ran:?}");
        }
        ran.sort_unstable();
        ran
    }
}

#[test]
fn items_that_an_eliding_thread_leaves_run_once_and_in_order() {
    for elide in [true, false] {
        check(move || {
            let shared = Shared::new();
            let other = shared.clone();
            // The other thread has something for the first one's connection, and for one of its own.
            let thread = thread::spawn(move || {
                other.enter((0, 1, 0), elide);
                other.enter((1, 1, 1), elide);
            });
            shared.enter((0, 0, 0), elide);
            shared.work();
            thread.join().unwrap();
            assert!(shared.finish().into_iter().eq([(0, 0, 0), (0, 1, 0), (1, 1, 1)]));
        });
    }
}

#[test]
fn both_ends_of_a_connection_may_be_served_by_one_leaving_thread() {
    check(|| {
        let shared = Shared::new();
        let other = shared.clone();
        let thread = thread::spawn(move || (0..2).for_each(|n| other.enter((3, 1, n), true)));
        shared.enter((2, 0, 0), true);
        thread.join().unwrap();
        assert!(shared.finish().into_iter().eq([(2, 0, 0), (3, 1, 0), (3, 1, 1)]));
    });
}

#[test]
fn a_synchronous_section_is_granted_and_never_popped() {
    check_bounded(|| {
        let shared = Shared::new();
        let (sleeper, producer) = (shared.clone(), shared.clone());
        let sleeper = thread::spawn(move || sleeper.enter_blocking());
        // For the very connection that waits: an item of its own does not make its waiting an item.
        let producer = thread::spawn(move || producer.enter((0, 1, 0), true));
        shared.enter((0, 0, 0), true);
        producer.join().unwrap();
        shared.work();
        sleeper.join().unwrap();
        assert!(shared.finish().into_iter().eq([(0, 0, 0), (0, 1, 0), (0, 9, 0)]));
    });
}

/// Two squeues and a connection that moves from the first to the second. An item is its number.
struct World {
    places: [Squeue<usize>; 2],
    /// Written only by a thread inside the place it names.
    home: AtomicUsize,
    /// The connection's state, which loom watches: only a thread inside its home may touch it.
    state: UnsafeCell<usize>,
    scheduled: RunQueue<usize>,
    /// Whether elision asks for the home.
    asks: bool,
    is_misplaced: std::sync::Arc<PlainBool>,
}

struct Mover<'w> {
    world: &'w World,
    place: usize,
}

impl Served<usize> for Mover<'_> {
    fn is_own(&self, _item: &usize) -> bool {
        // There is one connection, so the identity is right anyway.
        !self.world.asks || self.world.is_home(self.place)
    }

    fn is_other_end(&self, _item: &usize) -> bool {
        false
    }

    fn run(&mut self, inside: &mut Inside<'_, usize>, _max: usize) -> usize {
        inside.pop().expect("there is a head");
        if self.world.is_home(self.place) {
            self.world.count();
        } else {
            self.world.is_misplaced.store(true, PlainOrdering::Relaxed);
        }
        1
    }
}

impl World {
    fn is_home(&self, place: usize) -> bool {
        // Acquire: the changes made at the former home.
        self.home.load(Ordering::Acquire) == place
    }

    /// Runs the connection's code. For a thread inside its home.
    fn count(&self) {
        // SAFETY: a thread inside the home is alone; loom fails the model if not.
        self.state.with_mut(|state| unsafe { *state += 1 });
    }

    fn leave(&self, inside: Inside<'_, usize>, place: usize) {
        let mut mover = Mover { world: self, place };
        if inside.leave_undrained(&mut mover, true, 1).outcome == Outcome::HandOffNeeded {
            self.scheduled.push(place);
        }
    }

    /// Brings an item to the connection, wherever it is.
    fn deliver(&self, item: usize) {
        let mut item = item;
        loop {
            let place = self.home.load(Ordering::Acquire);
            match self.places[place].enter(item) {
                Entry::Queued => return,
                Entry::Poisoned(_) => panic!("no thread panicked"),
                Entry::Inside(inside, back) => {
                    let is_here = self.is_home(place);
                    if is_here {
                        self.count();
                    }
                    self.leave(inside, place);
                    if is_here {
                        return;
                    }
                    item = back;
                }
            }
        }
    }

    /// One run of a worker: it forwards moved items after leaving.
    fn work(&self) {
        while let Some(place) = self.scheduled.take_all().next() {
            let mut moved = Vec::new();
            if let Some(inside) = self.places[place].resume() {
                let run = |_: &mut Inside<'_, usize>, item| {
                    if self.is_home(place) { self.count() } else { moved.push(item) }
                };
                assert_eq!(inside.drain(usize::MAX, run), Outcome::Left);
            }
            moved.into_iter().for_each(|item| self.deliver(item));
        }
    }
}

/// A thread inside the first squeue moves the connection to the second and leaves, while another brings an item.
fn move_against_elision(asks: bool, is_misplaced: std::sync::Arc<PlainBool>) {
    let world = Arc::new(World {
        places: [Squeue::new(), Squeue::new()],
        home: AtomicUsize::new(0),
        state: UnsafeCell::new(0),
        scheduled: RunQueue::new(),
        asks,
        is_misplaced,
    });
    let inside = world.places[0].try_enter().expect("no other thread is here yet");
    let other = world.clone();
    let thread = thread::spawn(move || other.deliver(1));
    world.count();
    // Release: the changes made here, for the thread that finds the item at the new home.
    world.home.store(1, Ordering::Release);
    world.leave(inside, 0);
    thread.join().unwrap();
    world.work();
    if asks {
        // SAFETY: all threads are done.
        assert_eq!(world.state.with(|state| unsafe { *state }), 2, "every item is run once");
    }
}

#[test]
fn a_connection_that_moves_is_run_only_by_its_home_core() {
    check(|| {
        let is_misplaced = std::sync::Arc::new(PlainBool::new(false));
        move_against_elision(true, is_misplaced.clone());
        assert!(!is_misplaced.load(PlainOrdering::Relaxed));
    });
}

#[test]
fn identity_without_the_home_would_run_it_elsewhere() {
    let is_misplaced = std::sync::Arc::new(PlainBool::new(false));
    let found = is_misplaced.clone();
    check(move || move_against_elision(false, found.clone()));
    assert!(is_misplaced.load(PlainOrdering::Relaxed), "the model would not notice a misplaced item");
}
