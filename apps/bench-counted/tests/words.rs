//! Hand-offs are counted, each once, and nothing else is.
//!
//! The counts are global to the process, so the tests run one at a time. Threads alternate through channels, which are
//! not counted, so each test knows the exact number.

use std::panic::resume_unwind;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex as Turns, PoisonError};
use std::thread;

use sockeye_sync::count::{self, Handoffs, Kind};
use sockeye_sync::facade::{
    Arc, AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Mutex, OnceLock, Ordering, RwLock, memory_read,
    memory_written,
};
use sockeye_sync::{Counters, Squeue};

/// Rounds of two threads that alternate.
const ROUNDS: u64 = 100;

/// A word and nothing else on its lines.
#[repr(align(128))]
struct Alone<T>(T);

static TURNS: Turns<()> = Turns::new(());

/// Runs `test` while no other one runs, on a thread of its own. That thread has ended before the next test begins, with
/// its thread-local values, whose drop may hand lines over too.
fn alone(test: impl FnOnce() + Send) {
    let _turn = TURNS.lock().unwrap_or_else(PoisonError::into_inner);
    count::reset();
    thread::scope(|scope| scope.spawn(test).join()).unwrap_or_else(|panic| resume_unwind(panic));
}

/// Runs `here` on this thread and `there` on another one in turn, [`ROUNDS`] times each, `here` first; returns the
/// counts. Both have run once before, `here` last: reused memory still has its lines' history.
fn in_turn(here: impl Fn(), there: impl Fn() + Send) -> Handoffs {
    let (go, going): (Sender<()>, Receiver<()>) = channel();
    let (back, coming) = channel();
    let run_there = |go: &Sender<()>| {
        go.send(()).expect("the other thread listens");
        coming.recv().expect("the other thread answers");
    };
    thread::scope(|scope| {
        let other = scope.spawn(move || {
            for () in going {
                there();
                back.send(()).expect("this thread listens");
            }
        });
        run_there(&go);
        here();
        count::reset();
        for _ in 0..ROUNDS {
            here();
            run_there(&go);
        }
        let counted = count::snapshot();
        // The other thread's loop ends. The scope alone would not wait for its thread-local values.
        drop(go);
        other.join().expect("the other thread does not panic");
        counted
    })
}

#[test]
fn two_threads_that_write_one_word_in_turn_hand_it_over_each_time_but_the_first() {
    alone(|| {
        let word = Alone(AtomicU32::new(0));
        let write = || word.0.store(1, Ordering::Relaxed);
        let counted = in_turn(write, write);
        let seen = (counted.total(), counted.other, counted.transfers);
        assert_eq!(seen, (2 * ROUNDS - 1, 2 * ROUNDS - 1, 0));
    });
}

#[test]
fn each_kind_of_write_counts_failed_exchanges_too() {
    alone(|| {
        let (word, flag) = (Alone(AtomicU64::new(0)), Alone(AtomicBool::new(false)));
        let pointer = Alone(AtomicPtr::<u8>::new(std::ptr::null_mut()));
        let relaxed = Ordering::Relaxed;
        let writes: [&(dyn Fn() + Sync); 8] = [
            &|| _ = word.0.swap(1, relaxed),
            &|| _ = word.0.fetch_add(1, relaxed),
            &|| _ = word.0.fetch_max(1, relaxed),
            &|| assert!(word.0.compare_exchange(u64::MAX, 0, relaxed, relaxed).is_err()),
            &|| assert!(word.0.compare_exchange_weak(u64::MAX, 0, relaxed, relaxed).is_err()),
            &|| assert!(word.0.fetch_update(relaxed, relaxed, |_| None).is_err()),
            &|| _ = flag.0.fetch_or(true, relaxed),
            &|| _ = pointer.0.swap(std::ptr::null_mut(), relaxed),
        ];
        word.0.store(0, relaxed);
        flag.0.store(false, relaxed);
        pointer.0.store(std::ptr::null_mut(), relaxed);
        for (index, write) in writes.into_iter().enumerate() {
            let before = count::snapshot();
            write();
            thread::scope(|scope| scope.spawn(write).join().expect("no panic"));
            let counted = (count::snapshot() - before).total();
            // The main thread's write is a hand-off too where the thread before wrote the same word.
            let is_known = [1, 2, 3, 4, 5].contains(&index);
            assert_eq!(counted, 1 + u64::from(is_known), "write {index}");
        }
    });
}

#[test]
fn words_on_lines_of_their_own_are_not_handed_over() {
    alone(|| {
        let words = [Alone(AtomicU64::new(0)), Alone(AtomicU64::new(0))];
        let add = |index: usize| {
            words[index].0.fetch_add(1, Ordering::Relaxed);
        };
        assert_eq!(in_turn(|| add(0), || add(1)), Handoffs::default());
    });
}

#[test]
fn two_words_on_one_line_are_handed_over_as_one() {
    alone(|| {
        let words = Alone([AtomicU64::new(0), AtomicU64::new(0)]);
        let add = |index: usize| {
            words.0[index].fetch_add(1, Ordering::Relaxed);
        };
        assert_eq!(in_turn(|| add(0), || add(1)).total(), 2 * ROUNDS - 1);
        // Both words at once: the second one is on a line that the first has fetched.
        let add_both = || {
            add(0);
            add(1);
        };
        assert_eq!(in_turn(add_both, add_both).total(), 2 * ROUNDS - 1);
    });
}

#[test]
fn a_reader_takes_the_line_over_once_for_each_write() {
    alone(|| {
        let word = Alone(AtomicU32::new(0));
        let read_twice = || {
            word.0.load(Ordering::Relaxed);
            word.0.load(Ordering::Relaxed);
        };
        let counted = in_turn(|| word.0.store(1, Ordering::Relaxed), read_twice);
        assert_eq!((counted.total(), counted.transfers), (0, ROUNDS));
        let own = || word.0.store(word.0.load(Ordering::Relaxed), Ordering::Relaxed);
        assert_eq!(in_turn(own, || ()), Handoffs::default());
    });
}

#[test]
fn a_lock_and_its_data_on_one_line_are_one_hand_over() {
    alone(|| {
        let small = Alone(Mutex::new(0_u8));
        let lock = || *small.0.lock() += 1;
        let counted = in_turn(lock, lock);
        assert_eq!((counted.lock, counted.total()), (2 * ROUNDS - 1, 2 * ROUNDS - 1));
        let shared = Alone(RwLock::new(0_u8));
        let read = || drop(shared.0.read());
        assert_eq!(in_turn(read, read).lock, 2 * ROUNDS - 1);
    });
}

#[test]
fn data_that_a_lock_guards_counts_as_one_more_line_if_it_is_on_another() {
    alone(|| {
        let large = Alone(Mutex::new(Alone([0_u8; 256])));
        let lock = || large.0.lock().0[200] += 1;
        let counted = in_turn(lock, lock);
        assert_eq!((counted.lock, counted.total()), (2 * ROUNDS - 1, 2 * (2 * ROUNDS - 1)));
    });
}

#[test]
fn references_are_handed_over_by_the_thread_that_makes_or_drops_one() {
    alone(|| {
        let shared = Arc::new(Alone(0));
        let clone = || drop(Arc::clone(&shared));
        let counted = in_turn(clone, clone);
        assert_eq!((counted.references, counted.total()), (2 * ROUNDS - 1, 2 * ROUNDS - 1));
        let weak = Arc::downgrade(&shared);
        let upgrade = || assert!(weak.upgrade().is_some());
        assert_eq!(in_turn(upgrade, upgrade).references, 2 * ROUNDS - 1);
        assert_eq!(Arc::strong_count(&shared), 1);
    });
}

#[test]
fn the_last_reference_returns_the_value() {
    alone(|| {
        let shared = Arc::new(5);
        let other = Arc::clone(&shared);
        let shared = Arc::try_unwrap(shared).expect_err("there is another one");
        assert_eq!(Arc::strong_count(&shared), 2);
        drop(other);
        assert_eq!(Arc::try_unwrap(shared), Ok(5));
    });
}

#[test]
fn hand_offs_of_memory_and_late_values_are_counted() {
    alone(|| {
        let bytes = Alone([0_u8; 64]);
        let place = &bytes.0;
        let counted = in_turn(|| memory_written(place), || memory_read(place));
        assert_eq!((counted.total(), counted.transfers), (0, ROUNDS));
        let counted = in_turn(|| memory_written(place), || memory_written(place));
        assert_eq!((counted.buffer, counted.total()), (2 * ROUNDS - 1, 2 * ROUNDS - 1));
        let late = Alone(OnceLock::new());
        let counted = in_turn(|| _ = late.0.set(1), || _ = late.0.get());
        assert_eq!((counted.total(), counted.transfers), (0, 1));
    });
}

#[test]
fn per_thread_counters_are_not_handed_over() {
    alone(|| {
        let counters = Counters::<2>::new();
        let count = || counters.inc(0);
        let counted = in_turn(count, count);
        assert_eq!(counted.total(), 0);
        // The table of shards may be seen anew once, since the other thread's shard was entered.
        assert!(counted.transfers <= 1, "{counted:?}");
    });
}

#[test]
fn a_squeue_is_one_line_and_its_items_another() {
    alone(|| {
        let squeue = Alone(Squeue::<u64>::new());
        let enter = || {
            let inside = squeue.0.try_enter().expect("free");
            assert!(inside.leave().is_ok());
        };
        let counted = in_turn(enter, enter);
        assert_eq!((counted.lock, counted.total()), (2 * ROUNDS - 1, 2 * ROUNDS - 1));
        let guarded = Alone(AtomicU32::new(0));
        let open = || {
            let inside = squeue.0.try_enter().expect("free");
            guarded.0.store(1, Ordering::Relaxed);
            assert!(inside.leave().is_ok());
        };
        let counted = in_turn(open, open);
        assert_eq!((counted.lock, counted.total()), (2 * ROUNDS - 1, 2 * (2 * ROUNDS - 1)));
    });
}

#[test]
fn the_top_list_names_the_place_and_is_in_order() {
    alone(|| {
        let (often, seldom) = (Alone(AtomicU32::new(0)), Alone(AtomicU32::new(0)));
        seldom.0.store(1, Ordering::Relaxed);
        let line = line!() + 1;
        let write_often = || often.0.store(1, Ordering::Relaxed);
        in_turn(write_often, write_often);
        thread::scope(|scope| scope.spawn(|| seldom.0.store(1, Ordering::Relaxed)).join().expect("no panic"));
        let places = count::top(2);
        assert_eq!(places.len(), 2);
        assert!(places[0].site.ends_with(&format!("words.rs:{line}")), "{places:?}");
        assert_eq!((places[0].handoffs, places[0].kind), (2 * ROUNDS - 1, Kind::Other));
        assert_eq!((places[1].handoffs, places[1].transfers), (1, 0));
        assert_eq!(count::top(0), []);
        count::reset();
        assert_eq!((count::top(9), count::snapshot()), (vec![], Handoffs::default()));
    });
}
