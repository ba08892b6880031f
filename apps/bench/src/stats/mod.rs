//! Medians and the uncertainty of a ratio of medians.
//!
//! Purpose: what a list of samples says. The interval of a ratio is a percentile bootstrap over
//! rounds: a round is one sample of each side, taken one after the other, so resampling whole rounds
//! keeps what disturbed both of them together.
//!
//! Must not know: what was measured.
//!
//! Invariants: pure, and the random numbers have a fixed seed, so equal samples give equal intervals.
//!
//! Tests: below.

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
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        Some(Self { median: middle(&sorted), min, max })
    }
}

/// A ratio of two medians.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// First median over second.
    pub ratio: f64,
    /// The 95 % interval, if there are at least [`ROUNDS_FOR_INTERVAL`] rounds.
    pub interval: Option<(f64, f64)>,
}

impl Ratio {
    /// Of samples taken in the same rounds: `first[i]` and `second[i]` belong together. `None` if
    /// there is no round or the second median is not positive.
    pub fn of_rounds(first: &[f64], second: &[f64]) -> Option<Self> {
        let rounds = first.len().min(second.len());
        let (first, second) = (&first[..rounds], &second[..rounds]);
        let ratio = ratio_of_medians(&mut first.to_vec(), &mut second.to_vec())?;
        let interval = (rounds >= ROUNDS_FOR_INTERVAL).then(|| bootstrap(first, second)).flatten();
        Some(Self { ratio, interval })
    }
}

/// Below this many rounds an interval would promise what the samples cannot tell.
pub const ROUNDS_FOR_INTERVAL: usize = 3;

fn bootstrap(first: &[f64], second: &[f64]) -> Option<(f64, f64)> {
    let mut random = SplitMix64(SEED);
    let rounds = first.len();
    let (mut a, mut b) = (Vec::with_capacity(rounds), Vec::with_capacity(rounds));
    let mut ratios = Vec::with_capacity(RESAMPLES);
    for _ in 0..RESAMPLES {
        a.clear();
        b.clear();
        for _ in 0..rounds {
            let round = random.below(rounds);
            a.push(first[round]);
            b.push(second[round]);
        }
        ratios.push(ratio_of_medians(&mut a, &mut b)?);
    }
    ratios.sort_by(f64::total_cmp);
    let outside = RESAMPLES * TAIL_PER_MILLE / 1000;
    Some((ratios[outside], ratios[RESAMPLES - 1 - outside]))
}

fn ratio_of_medians(a: &mut [f64], b: &mut [f64]) -> Option<f64> {
    if a.is_empty() || b.is_empty() {
        return None;
    }
    a.sort_by(f64::total_cmp);
    b.sort_by(f64::total_cmp);
    let denominator = middle(b);
    (denominator > 0.0).then(|| middle(a) / denominator)
}

/// The median of a sorted slice that is not empty.
fn middle(sorted: &[f64]) -> f64 {
    let half = sorted.len() / 2;
    if sorted.len().is_multiple_of(2) { f64::midpoint(sorted[half - 1], sorted[half]) } else { sorted[half] }
}

/// Steele, Lea and Flood's generator: small, seedable, and good enough to pick rounds with.
struct SplitMix64(u64);

impl SplitMix64 {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Uniform in `0..bound`, by multiplication; `bound` is a count of samples, far below 2^64.
    fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }
}

const RESAMPLES: usize = 4000;

/// Cut off at each end: 2.5 %, so that 95 % lie between.
const TAIL_PER_MILLE: usize = 25;

const SEED: u64 = 0x50C_EE7E;

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
        assert_eq!(SplitMix64(1_234_567).next(), 6_457_827_717_110_365_317);
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

    #[test]
    fn a_constant_ratio_has_no_width() {
        let first: Vec<f64> = (1..=10).map(|n| 3.0 * f64::from(n)).collect();
        let second: Vec<f64> = (1..=10).map(f64::from).collect();
        let ratio = Ratio::of_rounds(&first, &second).unwrap();
        assert!((ratio.ratio - 3.0).abs() < 1e-12);
        // Rounds are resampled whole, so every resample has the same ratio.
        let (lo, hi) = ratio.interval.unwrap();
        assert!((lo - 3.0).abs() < 1e-12 && (hi - 3.0).abs() < 1e-12);
    }

    #[test]
    fn the_interval_holds_the_ratio_and_grows_with_the_spread() {
        let second = [100.0; 11];
        let narrow: Vec<f64> = (0..11).map(|n| 200.0 + f64::from(n)).collect();
        let wide: Vec<f64> = (0..11).map(|n| 150.0 + 11.0 * f64::from(n)).collect();
        let width = |samples: &[f64]| {
            let found = Ratio::of_rounds(samples, &second).unwrap();
            let (lo, hi) = found.interval.unwrap();
            assert!(lo <= found.ratio && found.ratio <= hi);
            hi - lo
        };
        assert!(width(&narrow) > 0.0);
        assert!(width(&wide) > 5.0 * width(&narrow));
    }

    #[test]
    fn equal_samples_give_equal_intervals() {
        let (first, second) = ([5.0, 7.0, 6.0, 9.0], [2.0, 3.0, 2.5, 2.0]);
        assert_eq!(Ratio::of_rounds(&first, &second), Ratio::of_rounds(&first, &second));
    }

    #[test]
    fn too_few_rounds_have_a_ratio_and_no_interval() {
        let ratio = Ratio::of_rounds(&[2.0, 4.0], &[1.0, 1.0]).unwrap();
        assert_eq!(ratio, Ratio { ratio: 3.0, interval: None });
        assert_eq!(Ratio::of_rounds(&[1.0], &[0.0]), None);
        assert_eq!(Ratio::of_rounds(&[], &[]), None);
    }
}
