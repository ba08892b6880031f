//! Where free clusters wait besides caches and the depot: in the product, nowhere.
//!
//! [`Discipline`] has a function for each place at which remote-free lists make a difference. Without the feature `experiments` a pool has the
//! defaults, as code that the compiler sees through. With it, [`Chosen`] has the lists (`experiments/`), which stay empty as long as the
//! pool's user puts nothing there. The stack has the same for its layers, in files of this name.
//!
//! Does not depend on which code puts something there. Tests: at the end; those of the callers.

use crate::cache::ThreadCache;
use crate::class::Class;
use crate::stats::{ClassStats, Shard};
use crate::store::Store;

/// See the module's head.
pub(crate) trait Discipline {
    /// Clusters kept for a pool.
    type OfPool: Send + Sync;

    /// Events that are counted besides those of every pool.
    const EVENT_COUNT: usize = 0;

    /// That of a new pool of at most `memory_max` bytes.
    fn of_pool(memory_max: usize) -> Self::OfPool;

    /// `cache` has no cluster of the wanted class: takes those that wait for the thread's core into it.
    #[inline]
    fn collect(cache: &ThreadCache) {
        let _ = cache;
    }

    /// Waiting clusters go to the system: the pool is trimmed or closed, or a caller was refused.
    #[inline]
    fn drain(store: &Store) {
        let _ = store;
    }

    /// Clusters that wait: not in use any more, and not freed yet.
    #[inline]
    fn waiting(stats: &ClassStats) -> u64 {
        let _ = stats;
        0
    }

    /// Adds the counts of `shard` other than the events of every pool.
    #[inline]
    fn add_to(shard: &Shard, class: Class, stats: &mut ClassStats) {
        let (_, _, _) = (shard, class, stats);
    }
}

/// The product's discipline.
#[cfg(not(feature = "experiments"))]
pub(crate) struct Product;

#[cfg(not(feature = "experiments"))]
impl Discipline for Product {
    type OfPool = ();

    fn of_pool(_: usize) {}
}

/// The discipline that pools have.
#[cfg(not(feature = "experiments"))]
pub(crate) type Chosen = Product;
#[cfg(feature = "experiments")]
pub(crate) type Chosen = crate::experiments::RemoteFree;

#[cfg(all(test, not(loom), not(feature = "experiments")))]
mod tests {
    use super::*;

    /// `sockeye-tidy` looks for this test's name where it has the library built and tested without the feature.
    #[test]
    fn without_the_feature_a_pool_has_no_remote_free_lists() {
        assert_eq!(size_of::<<Chosen as Discipline>::OfPool>(), 0);
        assert_eq!(Chosen::EVENT_COUNT, 0);
    }
}
