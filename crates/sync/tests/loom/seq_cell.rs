//! Every interleaving of a reader of a `SeqCell` and its writer.

use loom::thread;
use sockeye_sync::SeqCell;
use sockeye_sync::facade::Arc;

use crate::{check, check_bounded};

#[test]
fn a_reader_sees_the_words_of_one_store_and_all_writes_before_it() {
    check(|| {
        let cell = Arc::new(SeqCell::new([1, 1]));
        let writer = {
            let cell = Arc::clone(&cell);
            thread::spawn(move || cell.store([2, 2]))
        };
        let [a, b] = cell.load();
        assert_eq!(a, b, "words of two stores");
        writer.join().unwrap();
        assert_eq!(cell.load(), [2, 2], "a store that has ended is seen");
    });
}

#[test]
fn two_stores_in_a_row_do_not_look_like_none() {
    check_bounded(|| {
        let cell = Arc::new(SeqCell::new([0, 0]));
        let writer = {
            let cell = Arc::clone(&cell);
            thread::spawn(move || {
                cell.store([1, 1]);
                cell.store([2, 2]);
            })
        };
        let [a, b] = cell.load();
        assert_eq!(a, b, "words of two stores");
        writer.join().unwrap();
    });
}
