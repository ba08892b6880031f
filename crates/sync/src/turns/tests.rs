//! Turns on the machine: who gets one, what ends one, and that nobody waits for ever. The rules of the list are tested in
//! `rota.rs`, the interleavings in `tests/loom/turns.rs`.

use super::*;
use std::thread;

const CPU: u32 = 3;

fn full() -> Full {
    Full { reader: CPU, deadline: None, moves: false }
}

/// Turns of one core, for a crowd that is there.
fn turns() -> Turns {
    let turns = Turns::new(1, 0);
    turns.waiting.store(1, Ordering::Relaxed);
    turns
}

fn holds(turns: &Turns, holder: &Holder) -> bool {
    matches!(turns.rota.lock().place(holder.id.get()), Place::Holds(_))
}

#[test]
fn who_is_not_in_a_crowd_takes_no_turn() {
    let (turns, holder) = (Turns::new(1, 1), Holder::new());
    turns.parked(|| {
        assert_eq!(turns.ask(&holder, &full()), Asked::Alone);
        turns.parked(|| assert_eq!(turns.ask(&holder, &full()), Asked::Waited));
        assert!(holds(&turns, &holder));
    });
}

#[test]
fn a_turn_is_so_many_rounds_and_ends_when_the_crowd_is_gone() {
    let (turns, holder) = (turns(), Holder::new());
    assert_eq!(turns.ask(&holder, &full()), Asked::Waited);
    let first = holder.id.get();
    for _ in 1..ROUNDS_MAX {
        assert_eq!(turns.ask(&holder, &full()), Asked::Holds);
    }
    assert_eq!(turns.ask(&holder, &full()), Asked::Waited, "nobody else wants it");
    assert_ne!(holder.id.get(), first);
    turns.waiting.store(0, Ordering::Relaxed);
    for _ in 1..ROUNDS_MAX {
        assert_eq!(turns.ask(&holder, &full()), Asked::Holds);
    }
    assert_eq!(turns.ask(&holder, &full()), Asked::Alone);
    assert!(!holds(&turns, &holder));
}

#[test]
fn a_turn_that_is_given_back_goes_to_who_waits() {
    let (turns, holder) = (turns(), Holder::new());
    assert_eq!(turns.ask(&holder, &full()), Asked::Waited);
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            let holder = Holder::new();
            let asked = turns.ask(&holder, &full());
            (asked, holds(&turns, &holder))
        });
        while turns.waiting.load(Ordering::Relaxed) < 2 {
            thread::yield_now();
        }
        turns.give_back(&holder);
        turns.give_back(&holder);
        assert_eq!(other.join().expect("no panic"), (Asked::Waited, true));
    });
}

#[test]
fn a_deadline_ends_the_wait_for_a_turn() {
    let (turns, holder, other) = (turns(), Holder::new(), Holder::new());
    turns.rota.lock().look(Usage { at: u64::MAX, used: 0 });
    assert_eq!(turns.ask(&holder, &full()), Asked::Waited);
    // On a busy machine a deadline may pass before the call.
    let timed = loop {
        let timed = Full { deadline: Some(Instant::now() + Duration::from_millis(5)), ..full() };
        if turns.ask(&other, &timed) == Asked::Waited {
            break timed;
        }
    };
    assert!(!holds(&turns, &other) && holds(&turns, &holder));
    assert_eq!(turns.ask(&other, &timed), Asked::Alone, "there is no time left");
    turns.give_back(&holder);
    assert_eq!(turns.ask(&other, &full()), Asked::Waited);
}

#[test]
#[cfg_attr(miri, ignore = "the interpreter's clock is too slow for turns to become old")]
fn a_turn_that_stays_with_somebody_stops_nobody() {
    let (turns, sleeper) = (turns(), Holder::new());
    assert_eq!(turns.ask(&sleeper, &full()), Asked::Waited);
    // Each of them keeps its turn as well, so somebody has to look for each.
    for _ in 0..3 {
        assert_eq!(turns.ask(&Holder::new(), &full()), Asked::Waited);
    }
}

#[test]
fn many_writers_on_few_cores_all_come_to_an_end() {
    let (turns, rounds) = (Turns::new(2, 0), if cfg!(miri) { 20 } else { 2_000 });
    turns.waiting.store(1, Ordering::Relaxed);
    let waited: u32 = thread::scope(|scope| {
        let writers: Vec<_> = (0..8u32)
            .map(|index| {
                let turns = &turns;
                scope.spawn(move || {
                    let holder = Holder::new();
                    let full = Full { reader: index % 3, ..full() };
                    let waited = (0..rounds).filter(|_| turns.ask(&holder, &full) == Asked::Waited).count();
                    turns.give_back(&holder);
                    waited as u32
                })
            })
            .collect();
        writers.into_iter().map(|writer| writer.join().expect("no panic")).sum()
    });
    assert!(waited >= 8 * rounds / ROUNDS_MAX, "{waited}");
    assert_eq!(turns.waiting.load(Ordering::Relaxed), 1);
}

#[test]
fn a_thread_that_ends_leaves_its_turn() {
    let turns = Turns::of_process();
    // Other tests of this process do not use these.
    turns.waiting.fetch_add(turns.crowd + 1, Ordering::Relaxed);
    let id = thread::spawn(|| {
        assert_eq!(ask(&full()), Asked::Waited);
        give_back();
        assert_eq!(ask(&full()), Asked::Waited);
        OWN.with(|own| own.0.id.get())
    })
    .join()
    .expect("no panic");
    assert_eq!(turns.rota.lock().place(id), Place::Gone);
    turns.waiting.fetch_sub(turns.crowd + 1, Ordering::Relaxed);
    assert_eq!(ask(&full()), Asked::Alone);
}
