//! Statistics of lists of samples.
//!
//! Purpose: all statistics of the bench: median and extremes here, ratios with bootstrap intervals in [`ratio`], and the
//! lines of FreeBSD's `ministat` in [`ministat`].
//!
//! Does not depend on the measurement.
//!
//! Invariants: pure, and random numbers have a fixed seed, so equal samples give equal results.
//!
//! Tests: below, and in the parts.

pub mod ministat;
pub mod ratio;

pub use ratio::Ratio;

/// Median and extremes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// The middle, or the mean of the two in the middle.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

impl Summary {
    /// Of `samples`; `None` if there are none.
    pub fn of(samples: &[f64]) -> Option<Self> {
        let mut sorted = samples.to_vec();
        let median = median(&mut sorted)?;
        Some(Self { median, min: *sorted.first()?, max: *sorted.last()? })
    }
}

/// The median of `samples`, which it sorts; `None` if there are none.
fn median(samples: &mut [f64]) -> Option<f64> {
    samples.sort_by(f64::total_cmp);
    let half = samples.len() / 2;
    let middle = *samples.get(half)?;
    Some(if samples.len().is_multiple_of(2) { f64::midpoint(samples[half - 1], middle) } else { middle })
}

/// Steele, Lea and Flood's generator: small, seedable, and good enough to pick rounds with.
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// Equal seeds give equal numbers.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Uniform in `0..bound`, by multiplication; `bound` is far below 2^64.
    pub fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.draw()) * bound as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_of_known_numbers() {
        let odd = Summary::of(&[3.0, 1.0, 2.0]).unwrap();
        assert_eq!(odd, Summary { median: 2.0, min: 1.0, max: 3.0 });
        let even = Summary::of(&[4.0, 1.0, 3.0, 2.0]).unwrap();
        assert_eq!(even, Summary { median: 2.5, min: 1.0, max: 4.0 });
        assert_eq!(Summary::of(&[5.0]).unwrap().median, 5.0);
        assert_eq!(Summary::of(&[]), None);
    }

    #[test]
    fn the_generator_gives_its_published_first_number() {
        assert_eq!(SplitMix64(1_234_567).draw(), 6_457_827_717_110_365_317);
    }

    #[test]
    fn the_generator_reaches_every_index_and_no_other() {
        let mut random = SplitMix64(1);
        let mut seen = [0_u32; 7];
        for _ in 0..7000 {
            seen[random.below(7)] += 1;
        }
        assert!(seen.iter().all(|&n| (800..1200).contains(&n)), "{seen:?}");
    }
}
