//! Throughput as a function of cores.
//!
//! Purpose: N. J. Gunther's universal scalability law, X(N) = λN / (1 + ρ(1−1/N) + σ(N−1) + κN(N−1)), with G. Amdahl's as its
//! case κ = 0: λ is the throughput of one core, σ the share of an operation that only one core at a time can do, κ the cost
//! of each pair of cores to each other. ρ is ours, and 0 in the law itself: the cost of an operation whose two ends run on
//! different cores, which of N cores they do with probability 1−1/N.
//!
//! Does not depend on where the figures come from.
//!
//! Invariants: pure. λ is positive and the others are not negative, so a curve is finite for every N from 1 up.
//!
//! Tests: below, on curves with known parameters.

/// A curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Usl {
    /// Throughput of one core.
    pub lambda: f64,
    /// Paid by operations whose ends are on two cores, in parts of an operation.
    pub rho: f64,
    /// The serial share.
    pub sigma: f64,
    /// The cost of each pair of cores, in parts of an operation.
    pub kappa: f64,
}

impl Usl {
    /// X(N).
    pub fn throughput(&self, cores: f64) -> f64 {
        let others = cores - 1.0;
        let apart = self.rho * (1.0 - 1.0 / cores);
        self.lambda * cores / (1.0 + apart + self.sigma * others + self.kappa * cores * others)
    }

    /// The number of cores with the most throughput; `None` if that is beyond [`PEAK_MAX`].
    pub fn peak(&self) -> Option<u32> {
        let at = |cores: &u32| self.throughput(f64::from(*cores));
        let best = (1..=PEAK_MAX).max_by(|a, b| at(a).total_cmp(&at(b)))?;
        (best < PEAK_MAX).then_some(best)
    }

    /// Passes through the throughput of one and of `cores` cores. Of the share of an operation that is lost between them, `serial` for
    /// each further core is serial, as far as so much is lost at all; the rest is paid once, by operations whose ends run on
    /// different cores. `None` without a positive throughput or a second core.
    pub fn through(one: f64, many: f64, cores: usize, serial: f64) -> Option<Self> {
        if !(one > 0.0 && many > 0.0 && cores > 1) {
            return None;
        }
        let n = cores as f64;
        let lost = (n * one / many - 1.0).max(0.0);
        let sigma = serial.min(lost / (n - 1.0)).min(1.0);
        let rho = (lost - sigma * (n - 1.0)) / (1.0 - 1.0 / n);
        Some(Self { lambda: one, rho, sigma, kappa: 0.0 })
    }

    /// The curve with ρ = 0 that fits these pairs of cores and throughput best, by least squares of N/X; parameters that
    /// would be negative are 0. `None` with fewer than two different numbers of cores.
    pub fn fit(points: &[(f64, f64)]) -> Option<Self> {
        let usable: Vec<(f64, f64)> = points.iter().copied().filter(|(n, x)| *n >= 1.0 && *x > 0.0).collect();
        let mut cores: Vec<f64> = usable.iter().map(|(n, _)| *n).collect();
        cores.sort_by(f64::total_cmp);
        cores.dedup();
        if cores.len() < 2 {
            return None;
        }
        // N/X is linear in the parameters over λ. Of the subsets of them that are not negative, the best fit.
        let mut subsets: Vec<&[usize]> = vec![&[0, 1], &[0, 2], &[0]];
        if cores.len() > 2 {
            subsets.push(&[0, 1, 2]);
        }
        let fits = subsets.into_iter().filter_map(|subset| fit_of(&usable, subset));
        let best = fits.min_by(|(a, _), (b, _)| a.total_cmp(b));
        best.map(|(_, [base, serial, pairs])| Self {
            lambda: 1.0 / base,
            rho: 0.0,
            sigma: serial / base,
            kappa: pairs / base,
        })
    }
}

/// Where a curve is looked at for its peak, at most.
pub const PEAK_MAX: u32 = 4096;

/// The least squares with only these terms: the squared residual and the coefficients, if none is negative.
fn fit_of(points: &[(f64, f64)], subset: &[usize]) -> Option<(f64, [f64; 3])> {
    let terms = |n: f64| [1.0, n - 1.0, n * (n - 1.0)];
    // The normal equations, with the right side as the last column.
    let mut rows = vec![vec![0.0; subset.len() + 1]; subset.len()];
    for &(n, x) in points {
        let all = terms(n);
        for (i, &a) in subset.iter().enumerate() {
            for (j, &b) in subset.iter().enumerate() {
                rows[i][j] += all[a] * all[b];
            }
            rows[i][subset.len()] += all[a] * n / x;
        }
    }
    let solved = solve(rows)?;
    let mut found = [0.0; 3];
    for (&term, value) in subset.iter().zip(solved) {
        found[term] = value;
    }
    if found[0] <= 0.0 || found.iter().any(|value| *value < 0.0) {
        return None;
    }
    let residual = |&(n, x): &(f64, f64)| {
        let model: f64 = terms(n).iter().zip(found).map(|(term, value)| term * value).sum();
        (model - n / x) * (model - n / x)
    };
    Some((points.iter().map(residual).sum(), found))
}

/// Gauss's elimination with the largest pivot; `None` if there is no single solution.
fn solve(mut rows: Vec<Vec<f64>>) -> Option<Vec<f64>> {
    let count = rows.len();
    for column in 0..count {
        let pivot =
            (column..count).max_by(|&a, &b| rows[a][column].abs().total_cmp(&rows[b][column].abs()))?;
        rows.swap(column, pivot);
        let head = rows[column].clone();
        if head[column].abs() < f64::MIN_POSITIVE {
            return None;
        }
        for (index, row) in rows.iter_mut().enumerate() {
            if index != column {
                let factor = row[column] / head[column];
                for (value, of_head) in row.iter_mut().zip(&head) {
                    *value -= factor * of_head;
                }
            }
        }
    }
    Some(rows.iter().enumerate().map(|(index, row)| row[count] / row[index]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() <= 1e-9 * b.abs().max(1.0)
    }

    fn curve(of: Usl) -> Vec<(f64, f64)> {
        [1.0, 2.0, 4.0, 8.0, 16.0, 48.0].map(|n| (n, of.throughput(n))).to_vec()
    }

    #[test]
    fn a_curve_is_recovered_from_its_points() {
        for (sigma, kappa) in [(0.0, 0.0), (0.05, 0.0), (0.0, 0.002), (0.02, 0.0005), (0.3, 0.01)] {
            let want = Usl { lambda: 1e6, rho: 0.0, sigma, kappa };
            let found = Usl::fit(&curve(want)).unwrap();
            assert!((found.lambda / want.lambda - 1.0).abs() < 1e-6, "{found:?}");
            assert!((found.sigma - sigma).abs() < 1e-6 && (found.kappa - kappa).abs() < 1e-6, "{found:?}");
        }
    }

    #[test]
    fn noisy_points_give_a_curve_near_them() {
        let want = Usl { lambda: 100.0, rho: 0.0, sigma: 0.04, kappa: 0.001 };
        let mut points = curve(want);
        for (index, point) in points.iter_mut().enumerate() {
            point.1 *= if index % 2 == 0 { 1.01 } else { 0.99 };
        }
        let found = Usl::fit(&points).unwrap();
        for (n, _) in points {
            assert!((found.throughput(n) / want.throughput(n) - 1.0).abs() < 0.1, "{found:?}");
        }
    }

    #[test]
    fn superlinear_scaling_counts_as_linear_and_one_core_count_gives_no_curve() {
        let found = Usl::fit(&[(1.0, 10.0), (2.0, 25.0), (4.0, 60.0)]).unwrap();
        assert_eq!((found.sigma, found.kappa), (0.0, 0.0));
        assert_eq!(Usl::fit(&[(2.0, 10.0), (2.0, 11.0)]), None);
        assert_eq!(Usl::fit(&[(1.0, 0.0), (2.0, 0.0)]), None);
    }

    #[test]
    fn the_loss_is_serial_as_far_as_it_is_known_to_be_and_the_rest_is_paid_once() {
        let amdahl = Usl::through(100.0, 160.0, 2, f64::INFINITY).unwrap();
        assert!(close(amdahl.sigma, 0.25) && amdahl.rho == 0.0 && close(amdahl.throughput(2.0), 160.0));
        assert!(amdahl.throughput(1e9) < 400.0 + 1e-3);
        let counted = Usl::through(100.0, 160.0, 2, 0.1).unwrap();
        assert!(close(counted.sigma, 0.1) && close(counted.rho, 0.3), "{counted:?}");
        assert!(close(counted.throughput(2.0), 160.0) && close(counted.throughput(1.0), 100.0));
        assert!(counted.throughput(128.0) > amdahl.throughput(128.0));
        // No more is serial than was lost.
        assert!(close(Usl::through(100.0, 160.0, 2, 0.5).unwrap().sigma, 0.25));
        let more = Usl::through(100.0, 210.0, 2, 0.5).unwrap();
        assert_eq!((more.rho, more.sigma), (0.0, 0.0));
        assert_eq!(Usl::through(100.0, 160.0, 1, 0.0), None);
        assert_eq!(Usl::through(0.0, 160.0, 2, 0.0), None);
    }

    #[test]
    fn the_peak_is_where_the_curve_turns() {
        let curve = Usl { lambda: 1.0, rho: 0.0, sigma: 0.1, kappa: 0.001 };
        assert_eq!(curve.peak(), Some(30));
        assert_eq!(Usl { rho: 1.0, kappa: 0.0, ..curve }.peak(), None);
    }
}
