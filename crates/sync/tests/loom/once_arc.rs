//! Every interleaving of two threads that set a `OnceArc`, and of one that reads it meanwhile.

use loom::thread;
use sockeye_sync::OnceArc;
use sockeye_sync::facade::{Arc, AtomicBool, Ordering};

use crate::check;

/// A value that records its drop; its word is written before it is shared, with relaxed ordering.
struct Value {
    word: AtomicBool,
}

fn value() -> Arc<Value> {
    let value = Arc::new(Value { word: AtomicBool::new(false) });
    value.word.store(true, Ordering::Relaxed);
    value
}

#[test]
fn two_setters_agree_and_no_reference_is_lost_or_dropped_twice() {
    check(|| {
        let cell = Arc::new(OnceArc::new());
        let other = {
            let cell = Arc::clone(&cell);
            thread::spawn(move || {
                let value = value();
                (Arc::ptr_eq(&cell.get_or_set(Arc::clone(&value)), &value), value)
            })
        };
        let ours = value();
        let is_ours = Arc::ptr_eq(&cell.get_or_set(Arc::clone(&ours)), &ours);
        let (is_theirs, theirs) = other.join().unwrap();
        assert!(is_ours != is_theirs, "one of the two");
        let count = |value, is_set| assert_eq!(Arc::strong_count(value), 1 + usize::from(is_set));
        count(&ours, is_ours);
        count(&theirs, is_theirs);
        drop(cell);
        count(&ours, false);
        count(&theirs, false);
    });
}

#[test]
fn a_thread_that_sees_the_value_sees_earlier_writes() {
    check(|| {
        let cell = Arc::new(OnceArc::new());
        let other = {
            let cell = Arc::clone(&cell);
            thread::spawn(move || drop(cell.get_or_set(value())))
        };
        if let Some(lent) = cell.get() {
            assert!(lent.word.load(Ordering::Relaxed), "the value as it was made");
        }
        other.join().unwrap();
    });
}
