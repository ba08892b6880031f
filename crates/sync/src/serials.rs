//! Numbers that no two objects have, without a line that all cores write.
//!
//! Each lane counts for itself; the lane is the low part of the number. Does not depend on the numbered things.
//! Tests: below.

use crossbeam_utils::CachePadded;

use crate::facade::unmodelled::{AtomicU64, Ordering};

/// See the module's head.
#[derive(Debug)]
pub struct Serials([CachePadded<AtomicU64>; LANES]);

/// Cores that count apart; of a larger machine some share a lane.
const LANES: usize = 16;

impl Serials {
    /// With no number given out.
    pub const fn new() -> Self {
        Self([const { CachePadded::new(AtomicU64::new(0)) }; LANES])
    }

    /// A number that has not been given out before, for a caller on CPU `cpu`. 2^60 of a lane do not run out.
    #[inline]
    pub fn next(&self, cpu: u32) -> u64 {
        let lane = cpu as usize % LANES;
        // Relaxed: a number, which orders nothing.
        let made = self.0[lane].fetch_add(1, Ordering::Relaxed) + 1;
        made * LANES as u64 + lane as u64
    }
}

impl Default for Serials {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn no_number_is_given_out_twice() {
        let serials = Serials::new();
        let numbers: std::collections::HashSet<u64> = (0..1_000).map(|n| serials.next(n % 20)).collect();
        assert_eq!(numbers.len(), 1_000);
    }
}
