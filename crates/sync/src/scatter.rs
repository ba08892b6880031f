//! Where shared objects lie in memory: those made one after the other are kept a page apart.
//!
//! Objects that are made in turn are often used in turn by threads on different cores: connections that an
//! acceptor deals out to its workers. If they lie side by side, the cores disturb each other although they share
//! no cache line: while one core walks its object, its prefetcher fetches the lines around it, out of the other
//! core's cache. (Seen on AMD family 26: connections dealt to two threads in turn ran at 0.7 M round trips a second
//! and core, and at 1.6 M with pages between them.)
//!
//! So memory is taken for a batch of objects at once ([`Shells`]) and handed out in an order that goes from region to region,
//! 16 of them. That is a power of two, so that objects, or pairs of them, dealt in turn to two, four or
//! eight threads share their region with the same thread's only. The objects themselves are ordinary `Arc`s; nothing
//! is ever put back.
//!
//! Must not know what the objects are. Bound: memory for one batch lies ready for each core that
//! makes objects, some 16 times [`REGION_BYTES`]. A mutex, one for each of [`LANES`] cores, is a leaf and orders
//! nothing but its batch; it is not modelled. Tests: below, also under miri.

mod shells;

use crate::facade::unmodelled::{Arc, Mutex};

pub use shells::Shells;

/// Makes `Arc`s whose memory is spread; see the head of the file.
pub struct Scatter<T> {
    lanes: Box<[Lane<T>]>,
}

/// What makers on one core write, on lines of its own.
#[repr(align(128))]
struct Lane<T>(Mutex<Store<T>>);

struct Store<T> {
    shells: Shells<T>,
    made: u64,
}

/// Makers on so many cores do not meet; cores beyond share.
const LANES: usize = 16;
/// How far apart two objects in a row shall be, bytes: what prefetchers regard as one region.
const REGION_BYTES: usize = 4096;
/// Objects count as no smaller than this, bytes, so that a batch of small ones has a bound too.
const MIN_BYTES: usize = 64;

impl<T> Scatter<T> {
    /// With no memory yet.
    pub fn new() -> Self {
        let lane = |_| Lane(Mutex::new(Store { shells: Shells::new(Self::per_region()), made: 0 }));
        Self { lanes: (0..LANES).map(lane).collect() }
    }

    /// What `value` makes of a number that no other object of this place has, on the heap, as `Arc::new` puts it there, but
    /// not next to the one before that was made on `cpu`. Does not block for long: the lock is held for a batch of
    /// allocations at most.
    pub fn make(&self, cpu: u32, value: impl FnOnce(u64) -> T) -> Arc<T> {
        let (shell, number) = {
            let lane = cpu as usize % LANES;
            let mut store = self.lanes[lane].0.lock();
            store.made += 1;
            (store.shells.take(), store.made * LANES as u64 + lane as u64)
        };
        shell.fill(value(number))
    }

    /// Objects that fill a region.
    fn per_region() -> usize {
        REGION_BYTES.div_ceil(size_of::<T>().max(MIN_BYTES))
    }
}

impl<T> Default for Scatter<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> core::fmt::Debug for Scatter<T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Scatter")
            .field("ready", &self.lanes.iter().map(|lane| lane.0.lock().shells.len()).sum::<usize>())
            .finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::shells::REGIONS;
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn objects_keep_their_values_and_are_dropped_once() {
        static DROPPED: AtomicUsize = AtomicUsize::new(0);
        struct Counted(usize);
        impl Drop for Counted {
            fn drop(&mut self) {
                DROPPED.fetch_add(1, Ordering::Relaxed);
            }
        }
        let scatter = Scatter::new();
        let count = 3 * REGIONS * Scatter::<Counted>::per_region();
        let made: Vec<_> = (0..count).map(|n| scatter.make(0, |_| Counted(n))).collect();
        let weak = Arc::downgrade(&made[0]);
        assert!(made.iter().enumerate().all(|(n, object)| object.0 == n));
        drop(made);
        assert_eq!(DROPPED.load(Ordering::Relaxed), count);
        assert!(weak.upgrade().is_none());
        // What is left in store holds no values.
        drop(scatter);
        assert_eq!(DROPPED.load(Ordering::Relaxed), count);
    }

    #[test]
    fn objects_in_a_row_are_a_region_apart_within_a_batch() {
        let scatter = Scatter::new();
        let batch = REGIONS * Scatter::<[u8; 640]>::per_region();
        let made: Vec<_> = (0..batch).map(|_| scatter.make(7, |_| [0u8; 640])).collect();
        let places: Vec<_> = made.iter().map(|object| Arc::as_ptr(object).addr()).collect();
        let near = places.windows(2).filter(|pair| pair[0].abs_diff(pair[1]) < REGION_BYTES).count();
        // The order is by address, so only where the batch itself is in pieces can neighbours be near.
        assert!(near <= batch / 8, "{near} of {batch} are near: {places:?}");
    }

    #[test]
    fn no_two_objects_have_a_number() {
        let scatter = Scatter::new();
        let numbers: std::collections::HashSet<u64> =
            (0..1_000).map(|n| *scatter.make(n % 20, |number| number)).collect();
        assert_eq!(numbers.len(), 1_000);
    }

    #[test]
    fn large_objects_and_small_ones_fit() {
        let large = Scatter::new();
        assert_eq!(large.make(0, |_| [7u8; 10_000])[9_999], 7);
        let nothing = Scatter::new();
        nothing.make(0, |_| ());
        assert_eq!(*Scatter::new().make(u32::MAX, |_| 5u8), 5);
    }
}
