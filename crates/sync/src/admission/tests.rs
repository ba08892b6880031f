//! Tokens with real threads: which writer gets one, which events end one, and that no writer waits for ever. The rules of the
//! lists are tested in `limit.rs`, the interleavings in `tests/loom/admission.rs`.

use super::*;
use std::thread;

const FULL: Full = Full { reader: 3, deadline: None };

/// One core's token, for a crowd that is there.
fn crowded() -> Admission {
    let admission = Admission::new(1, 0);
    admission.waiting.store(1, Ordering::Relaxed);
    admission
}

/// No token is taken back from now on, however long its holder is kept from running.
fn never_look(admission: &Admission) {
    admission.limit.lock().look(Usage { at: u64::MAX, used: 0 });
}

fn holds(admission: &Admission, writer: &Writer) -> bool {
    admission.limit.lock().place(writer.id.get()) == Place::Holds
}

#[test]
fn a_writer_without_contention_takes_no_token() {
    let (admission, writer) = (Admission::new(1, 1), Writer::new());
    admission.parked(|| {
        assert!(!admission.ask(&writer, &FULL));
        admission.parked(|| assert!(admission.ask(&writer, &FULL)));
        assert!(holds(&admission, &writer));
    });
}

#[test]
fn a_token_lasts_a_number_of_rounds_and_ends_with_the_contention() {
    let (admission, writer) = (crowded(), Writer::new());
    assert!(admission.ask(&writer, &FULL));
    let first = writer.id.get();
    for _ in 1..ROUNDS_MAX {
        assert!(!admission.ask(&writer, &FULL));
    }
    assert!(admission.ask(&writer, &FULL), "no other writer waits for it");
    assert_ne!(writer.id.get(), first);
    admission.waiting.store(0, Ordering::Relaxed);
    for _ in 1..ROUNDS_MAX {
        assert!(!admission.ask(&writer, &FULL));
    }
    assert!(!admission.ask(&writer, &FULL));
    assert!(!holds(&admission, &writer));
}

#[test]
fn a_returned_token_is_given_to_a_waiting_writer() {
    let (admission, writer) = (crowded(), Writer::new());
    never_look(&admission);
    assert!(admission.ask(&writer, &FULL));
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            let writer = Writer::new();
            let asked = admission.ask(&writer, &FULL);
            (asked, holds(&admission, &writer))
        });
        while admission.waiting.load(Ordering::Relaxed) < 2 {
            thread::yield_now();
        }
        admission.give_back(&writer);
        admission.give_back(&writer);
        assert_eq!(other.join().expect("no panic"), (true, true));
    });
}

#[test]
fn a_deadline_ends_the_wait_for_a_token() {
    let (admission, writer, other) = (crowded(), Writer::new(), Writer::new());
    never_look(&admission);
    assert!(admission.ask(&writer, &FULL));
    // On a busy machine a deadline may pass before the call.
    let timed = loop {
        let timed = Full { deadline: Some(Instant::now() + Duration::from_millis(5)), ..FULL };
        if admission.ask(&other, &timed) {
            break timed;
        }
    };
    assert!(!holds(&admission, &other) && holds(&admission, &writer));
    assert!(!admission.ask(&other, &timed), "there is no time left");
    admission.give_back(&writer);
    assert!(admission.ask(&other, &FULL));
}

#[test]
#[cfg_attr(miri, ignore = "the interpreter's clock is too slow for tokens to become old")]
fn a_token_that_a_thread_keeps_blocks_no_other() {
    let (admission, sleeper) = (crowded(), Writer::new());
    assert!(admission.ask(&sleeper, &FULL));
    // Each of them keeps its token as well, so each has to be looked for.
    for _ in 0..3 {
        assert!(admission.ask(&Writer::new(), &FULL));
    }
}

#[test]
fn many_writers_on_few_cores_all_finish() {
    let (admission, rounds) = (Admission::new(2, 0), if cfg!(miri) { 20 } else { 2_000 });
    admission.waiting.store(1, Ordering::Relaxed);
    let waited: u32 = thread::scope(|scope| {
        let writers: Vec<_> = (0..8u32)
            .map(|index| {
                let admission = &admission;
                scope.spawn(move || {
                    let writer = Writer::new();
                    let full = Full { reader: index % 3, ..FULL };
                    let waited = (0..rounds).filter(|_| admission.ask(&writer, &full)).count();
                    admission.give_back(&writer);
                    waited as u32
                })
            })
            .collect();
        writers.into_iter().map(|writer| writer.join().expect("no panic")).sum()
    });
    assert!(waited >= 8 * rounds / ROUNDS_MAX, "{waited}");
    assert_eq!(admission.waiting.load(Ordering::Relaxed), 1);
}

#[test]
fn a_thread_that_ends_returns_its_token() {
    let admission = Admission::of_process();
    // Other tests of this process do not use it.
    admission.waiting.fetch_add(admission.crowd + 1, Ordering::Relaxed);
    let id = thread::spawn(|| {
        assert!(ask(&FULL));
        give_back();
        assert!(ask(&FULL));
        OWN.with(|own| own.0.id.get())
    })
    .join()
    .expect("no panic");
    assert_eq!(admission.limit.lock().place(id), Place::Gone);
    admission.waiting.fetch_sub(admission.crowd + 1, Ordering::Relaxed);
    assert!(!ask(&FULL));
}
