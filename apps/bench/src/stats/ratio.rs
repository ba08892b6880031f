//! Ratios of two sides, and how uncertain they are.
//!
//! Purpose: the ratio of two medians, the median of paired ratios, and the geometric mean of several rows' medians. Each interval is a
//! percentile bootstrap over rounds: a round is one sample of each side, taken one after the other, and of all rows where there are
//! several. Resampling whole rounds keeps the effects of one disturbance together.
//!
//! Does not depend on the measurement.
//!
//! Tests: below.

use super::{SplitMix64, median};

/// A ratio of two sides.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// First over second.
    pub ratio: f64,
    /// The 95 % interval, if there are at least [`ROUNDS_FOR_INTERVAL`] rounds.
    pub interval: Option<(f64, f64)>,
}

impl Ratio {
    /// The ratio of the medians of samples taken in the same rounds: `first[i]` and `second[i]` belong together. `None` if
    /// there is no round or the second median is not positive.
    pub fn of_rounds(first: &[f64], second: &[f64]) -> Option<Self> {
        let rounds = first.len().min(second.len());
        let (mut a, mut b) = (Vec::with_capacity(rounds), Vec::with_capacity(rounds));
        Self::of(rounds, |picked| {
            let denominator = median_of(&mut b, second, picked)?;
            let numerator = median_of(&mut a, first, picked)?;
            (denominator > 0.0).then(|| numerator / denominator)
        })
    }

    /// The median of ratios, one of each round. `None` if there is no round.
    pub fn of_pairs(ratios: &[f64]) -> Option<Self> {
        let mut buffer = Vec::with_capacity(ratios.len());
        Self::of(ratios.len(), |picked| median_of(&mut buffer, ratios, picked))
    }

    /// The geometric mean of the medians of several rows' ratios: `rows[r][i]` is the ratio of row `r` in round `i`. `None` if there is
    /// no row or no round, or if a row has fewer rounds than another. A row whose median is zero makes it zero.
    pub fn geometric_mean(rows: &[Vec<f64>]) -> Option<Self> {
        let rounds = rows.first()?.len();
        if rows.iter().any(|row| row.len() != rounds) {
            return None;
        }
        let mut buffer = Vec::with_capacity(rounds);
        Self::of(rounds, |picked| {
            let logs = rows.iter().map(|row| median_of(&mut buffer, row, picked).map(f64::ln));
            let sum = logs.sum::<Option<f64>>()?;
            // Zero in one row and no bound in another have no mean.
            Some((sum / rows.len() as f64).exp()).filter(|mean| !mean.is_nan())
        })
    }

    /// `statistic` of all rounds, given by their indices, with the interval of its values for resampled ones.
    fn of(rounds: usize, mut statistic: impl FnMut(&[usize]) -> Option<f64>) -> Option<Self> {
        let all: Vec<usize> = (0..rounds).collect();
        let ratio = statistic(&all)?;
        let interval = (rounds >= ROUNDS_FOR_INTERVAL).then(|| bootstrap(rounds, statistic)).flatten();
        Some(Self { ratio, interval })
    }
}

/// Below this many rounds an interval would promise more than the samples show.
pub const ROUNDS_FOR_INTERVAL: usize = 3;

/// The median of the values at the indices `picked`.
fn median_of(buffer: &mut Vec<f64>, values: &[f64], picked: &[usize]) -> Option<f64> {
    buffer.clear();
    buffer.extend(picked.iter().map(|&round| values[round]));
    median(buffer)
}

fn bootstrap(rounds: usize, mut statistic: impl FnMut(&[usize]) -> Option<f64>) -> Option<(f64, f64)> {
    let mut random = SplitMix64::new(SEED);
    let mut picked = vec![0; rounds];
    let mut found = Vec::with_capacity(RESAMPLES);
    for _ in 0..RESAMPLES {
        picked.fill_with(|| random.below(rounds));
        found.push(statistic(&picked)?);
    }
    found.sort_by(f64::total_cmp);
    let outside = RESAMPLES * TAIL_PER_MILLE / 1000;
    Some((found[outside], found[RESAMPLES - 1 - outside]))
}

const RESAMPLES: usize = 4000;

/// Cut off at each end: 2.5 %, so that 95 % lie between.
const TAIL_PER_MILLE: usize = 25;

const SEED: u64 = 0x50C_EE7E;

#[cfg(test)]
mod tests {
    use super::*;

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

    /// For 21 values the chance that a resample's median is at most the k-th smallest is that of at least 11 among 21 draws with
    /// chance k/21 each: 0.018 for k = 6, 0.056 for 7, 0.944 for 14, 0.982 for 15.
    #[test]
    fn the_interval_of_a_median_lies_where_the_binomial_distribution_has_it() {
        // In an order that is none: 8 and 21 have no common factor.
        let ratios: Vec<f64> = (0..21).map(|n| 0.9 + 0.01 * f64::from(n * 8 % 21)).collect();
        let found = Ratio::of_pairs(&ratios).unwrap();
        let (low, high) = found.interval.unwrap();
        assert!((found.ratio - 1.0).abs() < 1e-12, "{found:?}");
        assert!((low - 0.96).abs() < 1e-12 && (high - 1.04).abs() < 1e-12, "{found:?}");
    }

    #[test]
    fn a_pairs_ratio_is_not_that_of_the_medians() {
        let (first, second) = ([1.0, 2.0, 9.0], [1.0, 4.0, 3.0]);
        let pairs: Vec<f64> = first.iter().zip(second).map(|(a, b)| a / b).collect();
        assert_eq!(Ratio::of_pairs(&pairs).unwrap().ratio, 1.0);
        assert!((Ratio::of_rounds(&first, &second).unwrap().ratio - 2.0 / 3.0).abs() < 1e-12);
    }

    #[test]
    fn the_geometric_mean_multiplies_and_resamples_rows_together() {
        // One row loses in each round as much as the other gains: their product is always 1.
        let gains: Vec<f64> = (0..21).map(|n| 1.0 + 0.05 * f64::from(n)).collect();
        let losses: Vec<f64> = gains.iter().map(|gain| 1.0 / gain).collect();
        let mean = Ratio::geometric_mean(&[gains.clone(), losses]).unwrap();
        let (low, high) = mean.interval.unwrap();
        assert!([mean.ratio, low, high].iter().all(|x| (x - 1.0).abs() < 1e-12), "{mean:?}");
        // A single row's geometric mean is its median.
        let (mean, alone) =
            (Ratio::geometric_mean(std::slice::from_ref(&gains)).unwrap(), Ratio::of_pairs(&gains).unwrap());
        assert!((mean.ratio - alone.ratio).abs() < 1e-12);
        assert!((mean.interval.unwrap().1 - alone.interval.unwrap().1).abs() < 1e-12);
    }

    #[test]
    fn no_rows_and_rows_of_unequal_length_have_no_mean_and_a_row_of_zero_makes_it_zero() {
        let extremes = vec![vec![0.0; 3], vec![f64::INFINITY; 3]];
        for rows in [vec![], vec![vec![]], vec![vec![1.0, 1.0], vec![1.0]], extremes] {
            assert_eq!(Ratio::geometric_mean(&rows), None, "{rows:?}");
        }
        assert_eq!(Ratio::geometric_mean(&[vec![0.0; 3], vec![2.0; 3]]).unwrap().ratio, 0.0);
        assert_eq!(Ratio::of_pairs(&[]), None);
        let unbounded = Ratio::of_pairs(&[1.0, f64::INFINITY, 2.0]).unwrap();
        assert_eq!(unbounded.ratio, 2.0);
    }
}
