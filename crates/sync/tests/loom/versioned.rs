//! `Versioned`: a reader sees the words of one write, whatever the interleaving, and the last one once it is done.

use loom::thread;
use sockeye_sync::Versioned;
use sockeye_sync::facade::Arc;

use super::check;

#[test]
fn a_reader_never_mixes_two_writes() {
    check(|| {
        let words = Arc::new(Versioned::<2>::new());
        let writer = {
            let words = Arc::clone(&words);
            thread::spawn(move || {
                // Two writes: the words of the first are overwritten while they are read.
                words.write([1, 1]);
                words.write([2, 2]);
            })
        };
        if let Some((version, [first, second])) = words.read() {
            assert_eq!(first, second);
            assert_eq!(version, first * 2);
        }
        writer.join().unwrap();
        assert_eq!(words.read(), Some((4, [2, 2])));
    });
}
