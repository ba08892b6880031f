//! Memory for objects, taken for many at once and handed out without a stride.
//!
//! Objects made one after the other have a constant distance in memory, and are often used one after the other: the
//! connections of a poller, its registrations. A prefetcher learns the distance, in virtual addresses, and runs past the
//! last of them, four objects deep, into whatever lies there: another thread's, out of another core's cache, each
//! time round. (Seen on AMD family 26: of 50 connections the other core's walk slowed down a dozen to three times their
//! time.) So the pieces of a batch are handed out in an order in which no distance between two in a row, or between every
//! second, third and so on, occurs twice: a Costas array, the powers of 3 modulo 17 (Welch's construction).
//!
//! Must not know what the objects are. Bound: memory for one batch. Tests: below and in `scatter.rs`, also under miri.

use core::mem::MaybeUninit;

use crate::facade::unmodelled::Arc;

/// Regions among which the objects of a batch are dealt. One less than a prime, for [`round`].
pub(super) const REGIONS: usize = 16;
/// Its powers are all numbers from 1 to [`REGIONS`], modulo the prime.
const GENERATOR: usize = 3;

/// Memory for objects to come; see the head of the file.
pub struct Shells<T> {
    /// In the reverse of the order in which it is handed out.
    shells: Vec<Shell<T>>,
    per_region: usize,
}

/// Memory for one object.
pub struct Shell<T>(Arc<MaybeUninit<T>>);

impl<T> Shells<T> {
    /// With no memory yet; later for `per_region` objects, at least 1, in each of 16 regions, between which the objects that are
    /// made in a row alternate.
    pub const fn new(per_region: usize) -> Self {
        Self { shells: Vec::new(), per_region }
    }

    /// The next piece. Allocates a batch when there is none.
    pub fn take(&mut self) -> Shell<T> {
        if self.shells.is_empty() {
            self.shells = Self::allocate(self.per_region.max(1));
        }
        self.shells.pop().unwrap_or_else(|| Shell(Arc::new_uninit()))
    }

    /// How many pieces lie ready.
    pub fn len(&self) -> usize {
        self.shells.len()
    }

    /// True if the next piece comes from a new batch.
    pub fn is_empty(&self) -> bool {
        self.shells.is_empty()
    }

    fn allocate(per_region: usize) -> Vec<Shell<T>> {
        let mut shells: Vec<_> = (0..REGIONS * per_region).map(|_| Arc::<T>::new_uninit()).collect();
        shells.sort_unstable_by_key(|shell| Arc::as_ptr(shell).addr());
        let mut places: Vec<Option<Arc<MaybeUninit<T>>>> = shells.into_iter().map(Some).collect();
        let order = (0..per_region).flat_map(|first| round().map(move |region| region * per_region + first));
        order.filter_map(|place| places[place].take().map(Shell)).collect()
    }
}

impl<T> Default for Shells<T> {
    /// Of objects side by side.
    fn default() -> Self {
        Self::new(1)
    }
}

impl<T> Shell<T> {
    /// The object, as `Arc::new` would make it.
    pub fn fill(mut self, value: T) -> Arc<T> {
        match Arc::get_mut(&mut self.0) {
            Some(slot) => slot.write(value),
            None => unreachable!("a shell is in nobody else's hands"),
        };
        // SAFETY: the slot has just been written.
        unsafe { self.0.assume_init() }
    }
}

/// All regions, in an order without a stride; see the head of the file.
fn round() -> impl Iterator<Item = usize> {
    core::iter::successors(Some(1), |power| Some(power * GENERATOR % (REGIONS + 1)))
        .map(|power| power - 1)
        .take(REGIONS)
}

impl<T> core::fmt::Debug for Shells<T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Shells").field("ready", &self.len()).finish_non_exhaustive()
    }
}

impl<T> core::fmt::Debug for Shell<T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Shell").finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_round_has_every_region_and_no_distance_twice() {
        let regions: Vec<_> = round().collect();
        let mut sorted = regions.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..REGIONS).collect::<Vec<_>>());
        for lag in 1..REGIONS {
            let ways = || regions.iter().zip(&regions[lag..]).map(|(&from, &to)| to.wrapping_sub(from));
            let different: std::collections::HashSet<usize> = ways().collect();
            assert_eq!(different.len(), ways().count(), "every {lag}. of {regions:?}");
        }
    }

    #[test]
    fn a_batch_goes_on_with_another_one() {
        let mut shells = Shells::new(0);
        assert!(shells.is_empty());
        let made: Vec<_> = (0..3 * REGIONS).map(|n| shells.take().fill(n)).collect();
        assert!(made.iter().enumerate().all(|(n, object)| **object == n));
        assert!(shells.is_empty());
        let _one_more = shells.take();
        assert_eq!(shells.len(), REGIONS - 1);
    }
}
