//! A value that is read as a whole, without a lock and without writing a line that another core reads, and replaced as a
//! whole: for tables that every packet asks and that change when the application configures something.
//!
//! It is `arc-swap` behind the facade. A reader keeps the value that it has read, however often it is replaced
//! meanwhile; a replaced value is dropped by the thread that lets go of it last. No model checker sees it: its
//! protocol is that crate's, and no protocol of ours rests on when a replacement is seen. Tests: below.

use std::ops::Deref;
use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};

use super::{memory_read, memory_written};

/// See the module's head.
pub struct Snapshot<T>(ArcSwap<T>);

/// The value of a [`Snapshot`] when it was read.
pub struct Read<T>(Guard<Arc<T>>);

impl<T> Deref for Read<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> Snapshot<T> {
    /// Holds `value`.
    pub fn new(value: T) -> Self {
        Self(ArcSwap::from_pointee(value))
    }

    /// The current value. Never blocks. Not to be kept for long: a thread that keeps more than a few pays a
    /// reference count for each.
    #[inline]
    pub fn read(&self) -> Read<T> {
        memory_read(self);
        Read(self.0.load())
    }

    /// Replaces it. A caller that makes the new value from the old one has to exclude others that do.
    pub fn replace(&self, value: T) {
        memory_written(self);
        self.0.store(Arc::new(value));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_reader_keeps_what_it_has_read_and_the_next_one_sees_the_new_value() {
        let snapshot = Snapshot::new(vec![1]);
        let before = snapshot.read();
        snapshot.replace(vec![2, 2]);
        assert_eq!((&before[..], &snapshot.read()[..]), (&[1][..], &[2, 2][..]));
    }

    #[test]
    fn readers_see_whole_values_in_order_and_the_last_reference_drops_them() {
        let token = Arc::new(());
        let snapshot = Snapshot::new((0, 0, Arc::clone(&token)));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let mut last = 0;
                    while last < 2000 {
                        let seen = snapshot.read();
                        let (one, other, _) = &*seen;
                        assert!(one == other && *one >= last);
                        last = *one;
                    }
                });
            }
            (1..=2000).for_each(|n| snapshot.replace((n, n, Arc::clone(&token))));
        });
        assert_eq!(Arc::strong_count(&token), 2);
        drop(snapshot);
        assert_eq!(Arc::strong_count(&token), 1);
    }
}
