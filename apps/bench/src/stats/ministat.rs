//! Comparison of two lists of samples, as by FreeBSD's `ministat`.
//!
//! Purpose: N, extremes, median, average and deviation of each, and whether their averages differ at 95 %
//! confidence by Student's t with a pooled deviation.
//!
//! Does not depend on the measurement.
//!
//! Invariants: pure. A difference is only called proven with at least two samples a side. Values of t are rounded
//! to three places, as printed tables have them and as `ministat` uses them, so that its published lines
//! come out to the last digit.
//!
//! The error of a difference in per cent is that of a quotient: both averages are uncertain, so it is a little larger
//! than the absolute error over the base.
//!
//! Tests: below, on lines that `ministat` printed.

use std::f64::consts::PI;

use super::Summary;

/// One list of samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moments {
    /// How many.
    pub count: usize,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// The one in the middle, or the mean of the two there.
    pub median: f64,
    /// Their mean.
    pub average: f64,
    /// The sample's standard deviation (n − 1); 0 of one sample.
    pub deviation: f64,
}

impl Moments {
    /// Of `samples`; `None` if there are none.
    pub fn of(samples: &[f64]) -> Option<Self> {
        let Summary { median, min, max } = Summary::of(samples)?;
        let count = samples.len();
        let average = samples.iter().sum::<f64>() / count as f64;
        let squares: f64 = samples.iter().map(|x| (x - average) * (x - average)).sum();
        let deviation = if count > 1 { (squares / (count - 1) as f64).sqrt() } else { 0.0 };
        Some(Self { count, min, max, median, average, deviation })
    }

    /// Half the width of the average's 95 % interval; `None` of one sample.
    pub fn error_95(&self) -> Option<f64> {
        let freedom = self.count.checked_sub(1).filter(|&freedom| freedom > 0)?;
        Some(student_t_95(freedom) * self.deviation / (self.count as f64).sqrt())
    }

    fn squares(&self) -> f64 {
        (self.count - 1) as f64 * self.deviation * self.deviation
    }
}

/// The result about a difference at 95 % confidence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Difference {
    /// Average less the base's average.
    pub difference: f64,
    /// Half the width of its interval.
    pub error: f64,
    /// The difference in per cent of the base's average.
    pub percent: f64,
    /// Half the width of that one's interval.
    pub percent_error: f64,
    /// The pooled standard deviation.
    pub pooled: f64,
    /// Whether the interval leaves zero out.
    pub proven: bool,
}

impl Difference {
    /// Of `other` to `base`; `None` with fewer than two samples on a side, or if the base's average is zero.
    pub fn of(base: &Moments, other: &Moments) -> Option<Self> {
        if base.count < 2 || other.count < 2 || base.average == 0.0 {
            return None;
        }
        let freedom = base.count + other.count - 2;
        let (n, m) = (base.count as f64, other.count as f64);
        let t = student_t_95(freedom);
        let pooled = ((base.squares() + other.squares()) / freedom as f64).sqrt();
        let spread = (1.0 / n + 1.0 / m).sqrt();
        let (difference, error) = (other.average - base.average, t * pooled * spread);
        // First-order error of the quotient of two averages: the base's own deviation counts with the quotient's square.
        let quotient = other.average / base.average;
        let squares = other.squares() + base.squares() * quotient * quotient;
        let percent_error = t * (squares / freedom as f64).sqrt() * spread / base.average.abs() * 100.0;
        Some(Self {
            difference,
            error,
            percent: difference / base.average * 100.0,
            percent_error,
            pooled,
            proven: difference.abs() > error,
        })
    }

    /// The lines that `ministat` prints, each ended, two spaces in.
    pub fn lines(&self) -> String {
        if !self.proven {
            return "  No difference proven at 95.0% confidence\n".to_owned();
        }
        format!(
            "  Difference at 95.0% confidence\n    {} +/- {}\n    {}% +/- {}%\n    (Student's t, pooled s = {})\n",
            general(self.difference),
            general(self.error),
            general(self.percent),
            general(self.percent_error),
            general(self.pooled)
        )
    }
}

/// The heading over [`row`]s.
pub fn heading() -> String {
    format!("    {:>4} {:>13} {:>13} {:>13} {:>13} {:>13}\n", "N", "Min", "Max", "Median", "Avg", "Stddev")
}

/// One list's line, ended, with its mark.
pub fn row(mark: char, of: &Moments) -> String {
    let Moments { count, min, max, median, average, deviation } = of;
    let numbers = [min, max, median, average, deviation].map(|x| format!("{:>13}", figures(*x, 8)));
    format!("{mark}   {count:>4} {}\n", numbers.join(" "))
}

/// A number with six significant figures, as C's `%g` writes it.
pub fn general(value: f64) -> String {
    figures(value, 6)
}

/// A number with so many significant figures, without zeros at its end, as C's `%.*g` writes it.
fn figures(value: f64, significant: i32) -> String {
    if value == 0.0 || !value.is_finite() {
        return format!("{value}");
    }
    // The exponent after rounding, so that 999999.9 becomes 1e+06 and not 1000000.
    let places = usize::try_from(significant - 1).unwrap_or(0);
    let scientific = format!("{value:.places$e}");
    let Some((mantissa, exponent)) = scientific.split_once('e') else { return scientific };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if exponent < -4 || exponent >= significant {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", trimmed(mantissa), exponent.abs());
    }
    let places = usize::try_from(significant - 1 - exponent).unwrap_or(0);
    trimmed(&format!("{value:.places$}")).to_owned()
}

fn trimmed(digits: &str) -> &str {
    if digits.contains('.') { digits.trim_end_matches('0').trim_end_matches('.') } else { digits }
}

/// The t that 95 % of Student's distribution with that many degrees of freedom lies within, to three places.
fn student_t_95(freedom: usize) -> f64 {
    let (mut low, mut high) = (1.0, 16.0);
    for _ in 0..HALVINGS {
        let middle = f64::midpoint(low, high);
        if within(middle, freedom) < 0.95 {
            low = middle;
        } else {
            high = middle;
        }
    }
    (high * 1e3).round() / 1e3
}

/// The probability of |T| <= t, by the finite series for whole degrees of freedom (Abramowitz and Stegun 26.7.3 and
/// 26.7.4).
fn within(t: f64, freedom: usize) -> f64 {
    let angle = (t / (freedom as f64).sqrt()).atan();
    let (sine, cosine) = angle.sin_cos();
    let odd = !freedom.is_multiple_of(2);
    let (mut term, mut sum) = if odd { (cosine, 0.0) } else { (1.0, 0.0) };
    let mut k = if odd { 1 } else { 0 };
    while k + 2 <= freedom {
        sum += term;
        term *= cosine * cosine * (k + 1) as f64 / (k + 2) as f64;
        k += 2;
    }
    if odd { 2.0 / PI * (angle + sine * sum) } else { sine * sum }
}

/// Enough to bring an interval of 15 below the precision of three places, many times over.
const HALVINGS: u32 = 60;

#[cfg(test)]
mod tests {
    use super::*;

    fn moments(count: usize, average: f64, deviation: f64) -> Moments {
        Moments { count, min: 0.0, max: 0.0, median: 0.0, average, deviation }
    }

    #[test]
    fn t_is_that_of_the_printed_tables() {
        for (freedom, t) in [
            (1, 12.706),
            (2, 4.303),
            (3, 3.182),
            (4, 2.776),
            (5, 2.571),
            (9, 2.262),
            (10, 2.228),
            (18, 2.101),
            (19, 2.093),
            (30, 2.042),
            (60, 2.0),
            (100, 1.984),
            (1998, 1.961),
        ] {
            assert_eq!(student_t_95(freedom), t, "{freedom}");
        }
    }

    /// The four comparisons that came with the change that gave unix sockets locks of their own.
    #[test]
    fn published_differences_are_reproduced_to_the_last_digit() {
        for (base, other, lines) in [
            (
                moments(11, 1_692_766.3, 2971.1702),
                moments(10, 69_576_423.0, 2_374_684.6),
                ["6.78837e+07 +/- 1.49463e+06", "4010.22% +/- 88.4246%", "pooled s = 1.63437e+06)"],
            ),
            (
                moments(10, 1_190_369.3, 20_651.839),
                moments(10, 1_204_827.9, 353.27404),
                ["14458.6 +/- 13723", "1.21463% +/- 1.16683%", "pooled s = 14605.2)"],
            ),
            (
                moments(10, 2_030_443.8, 21_367.694),
                moments(10, 2_401_172.7, 385.40024),
                ["370729 +/- 14198.9", "18.2585% +/- 0.826943%", "pooled s = 15111.7)"],
            ),
            (
                moments(10, 3_989_985.2, 1300.0164),
                moments(10, 4_805_194.0, 1990.6625),
                ["815209 +/- 1579.64", "20.4314% +/- 0.0421713%", "pooled s = 1681.19)"],
            ),
        ] {
            let text = Difference::of(&base, &other).unwrap().lines();
            assert!(text.contains("Difference at 95.0% confidence"), "{text}");
            for line in lines {
                assert!(text.contains(line), "{line} is not in {text}");
            }
        }
    }

    /// The example of `ministat`'s manual: 50, 200, 150, 400, 750, 400, 150 and 50, 150, 400, 720, 930, 720, 100,
    /// which it finds no difference between.
    #[test]
    fn the_manuals_example_has_its_moments_and_no_proven_difference() {
        let iguana = Moments::of(&[50.0, 200.0, 150.0, 400.0, 750.0, 400.0, 150.0]).unwrap();
        let chameleon = Moments::of(&[150.0, 400.0, 720.0, 500.0, 930.0]).unwrap();
        assert_eq!(
            row('x', &iguana),
            "x      7            50           750           200           300     238.04761\n"
        );
        assert_eq!(
            row('+', &chameleon),
            "+      5           150           930           500           540     299.08193\n"
        );
        let found = Difference::of(&iguana, &chameleon).unwrap();
        assert_eq!(found.lines(), "  No difference proven at 95.0% confidence\n");
        assert!(!found.proven && (found.difference - 240.0).abs() < 1e-9);
    }

    #[test]
    fn too_few_samples_prove_nothing_and_have_no_error() {
        let one = Moments::of(&[3.0]).unwrap();
        assert_eq!((one.deviation, one.error_95()), (0.0, None));
        assert_eq!(Difference::of(&one, &one), None);
        assert_eq!(Moments::of(&[]), None);
        let two = Moments::of(&[0.0, 0.0]).unwrap();
        assert_eq!(Difference::of(&two, &two), None);
    }

    #[test]
    fn the_averages_interval_is_that_of_its_own_t() {
        let four = Moments::of(&[1.0, 2.0, 3.0, 4.0]).unwrap();
        assert!((four.error_95().unwrap() - 3.182 * (5.0_f64 / 3.0).sqrt() / 2.0).abs() < 1e-12);
    }

    #[test]
    fn numbers_are_written_as_c_writes_them() {
        for (value, text) in [
            (1.5, "1.5"),
            (100_000.0, "100000"),
            (1_000_000.0, "1e+06"),
            (999_999.9, "1e+06"),
            (0.000_012_34, "1.234e-05"),
            (-0.25, "-0.25"),
            (0.0, "0"),
        ] {
            assert_eq!(general(value), text);
        }
    }
}
