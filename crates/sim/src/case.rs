//! The size of a test's case: what a seed draws that can be made smaller, and how.
//!
//! A run draws numbers by name ([`Net::pick`](crate::Net::pick)) and a schedule of faults (`faults.rs`). A [`Case`] replaces such numbers by others, and
//! leaves faults out. Everything else still follows from the seed, and each draw has its own stream, so a smaller case does not change the rest. A failure is made smaller by
//! trying: first fewer faults, then smaller numbers, as long as the run fails in the same way. Tests: below, `tests/rules.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use crate::network::Net;

/// Names what of a seed's case is left out or smaller.
pub const CASE_VARIABLE: &str = "SOCKEYE_SIM_CASE";

/// See the module's head.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Case {
    /// Numbers by name.
    pub picks: BTreeMap<String, u64>,
    /// The faults that happen; all, if it does not say.
    pub faults: Option<BTreeSet<usize>>,
}

/// What a run drew.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Drawn {
    pub picks: BTreeMap<String, Pick>,
    /// The faults that happen, by number, in words.
    pub faults: BTreeMap<usize, String>,
    /// Schedules of faults.
    pub schedules: usize,
}

/// A number that was drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Pick {
    pub low: u64,
    pub value: u64,
}

/// The name under which a case has its faults.
const FAULTS: &str = "faults";

impl Net {
    /// A number from the range, which the seed decides: the size of something, such as hosts or requests. If the run fails, smaller ones are tried.
    /// An equal name has an equal number.
    ///
    /// # Panics
    /// If the name has other characters than letters, digits, `-`, `_` and `.`, or is `faults`.
    pub fn pick(&self, name: &str, range: RangeInclusive<u64>) -> u64 {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        assert!(name != FAULTS && name.bytes().all(is_plain), "{name:?} cannot be the name of a number");
        let (low, high) = (*range.start(), *range.end());
        let mut rng = self.rng(&format!("pick {name}"));
        let mut state = self.world.lock();
        let given = state.case.picks.get(name).map(|value| (*value).clamp(low, high.max(low)));
        let value = given.unwrap_or_else(|| rng.between(low, high));
        state.drawn.picks.insert(name.to_owned(), Pick { low, value });
        value
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let picks = self.picks.iter().map(|(name, value)| format!("{name}={value}"));
        let list = |faults: &BTreeSet<usize>| {
            let numbers: Vec<String> = faults.iter().map(usize::to_string).collect();
            format!("{FAULTS}={}", numbers.join("+"))
        };
        let all: Vec<String> = self.faults.iter().map(list).chain(picks).collect();
        f.write_str(&all.join(","))
    }
}

impl FromStr for Case {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut case = Self::default();
        for part in text.split(',').filter(|part| !part.trim().is_empty()) {
            let wrong = || format!("{part:?} is not NAME=NUMBER or {FAULTS}=NUMBER+NUMBER");
            let (name, value) = part.trim().split_once('=').ok_or_else(wrong)?;
            if name == FAULTS {
                let numbers = value.split('+').filter(|number| !number.is_empty()).map(str::parse);
                case.faults = Some(numbers.collect::<Result<_, _>>().map_err(|_| wrong())?);
            } else {
                case.picks.insert(name.to_owned(), value.parse().map_err(|_| wrong())?);
            }
        }
        Ok(case)
    }
}

/// Makes a case smaller, as long as `fails` is true for it: called `calls_max` times at most. `drawn` is what the failing run drew.
pub(crate) fn shrink(
    drawn: &Drawn,
    start: &Case,
    calls_max: usize,
    mut fails: impl FnMut(&Case) -> bool,
) -> (Case, usize) {
    let mut best = start.clone();
    let mut calls = 0;
    let mut attempt = |best: &mut Case, case: Case| {
        if calls == calls_max || case == *best {
            return false;
        }
        calls += 1;
        let still = fails(&case);
        if still {
            *best = case;
        }
        still
    };
    let all: BTreeSet<usize> = best.faults.clone().unwrap_or_else(|| drawn.faults.keys().copied().collect());
    if !all.is_empty() {
        // Half of them at a time, then a quarter, and so on to one.
        let mut kept: Vec<usize> = all.into_iter().collect();
        let mut size = kept.len();
        while size > 0 {
            let mut from = 0;
            while from < kept.len() {
                let mut fewer = kept.clone();
                fewer.drain(from..(from + size).min(kept.len()));
                let case = Case { faults: Some(fewer.iter().copied().collect()), ..best.clone() };
                if attempt(&mut best, case) {
                    kept = fewer;
                } else {
                    from += size;
                }
            }
            size /= 2;
        }
    }
    for (name, Pick { low, value }) in &drawn.picks {
        let with = |best: &Case, value: u64| {
            let mut case = best.clone();
            case.picks.insert(name.clone(), value);
            case
        };
        let (mut passes, mut failing) = (*low, best.picks.get(name).copied().unwrap_or(*value));
        let lowest = with(&best, *low);
        if failing <= *low || attempt(&mut best, lowest) {
            continue;
        }
        // Not all larger numbers need to fail; the one that is found does.
        while failing - passes > 1 {
            let middle = passes + (failing - passes) / 2;
            let case = with(&best, middle);
            if attempt(&mut best, case) { failing = middle } else { passes = middle }
        }
    }
    (best, calls)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_is_read_as_it_is_written() {
        for text in ["", "faults=", "faults=0+3,hosts=3,steps=12", "a.b-c_d=0"] {
            assert_eq!(text.parse::<Case>().unwrap().to_string(), text);
        }
        for wrong in ["hosts", "hosts=x", "faults=1+x", "=,"] {
            assert!(wrong.parse::<Case>().is_err(), "{wrong}");
        }
    }

    fn drawn() -> Drawn {
        let pick = |name: &str, low, value| (name.to_owned(), Pick { low, value });
        Drawn {
            picks: [pick("hosts", 3, 7), pick("steps", 1, 1000)].into(),
            faults: (0..12).map(|number| (number, number.to_string())).collect(),
            schedules: 1,
        }
    }

    #[test]
    fn the_faults_and_numbers_remain_that_the_failure_needs() {
        let needs = |case: &Case| {
            let faults = case.faults.clone().unwrap_or_else(|| (0..12).collect());
            faults.contains(&2)
                && faults.contains(&9)
                && case.picks.get("steps").is_none_or(|steps| *steps >= 137)
        };
        let (case, calls) = shrink(&drawn(), &Case::default(), 200, needs);
        assert_eq!(case.to_string(), "faults=2+9,hosts=3,steps=137");
        assert!(calls < 60, "{calls}");
        let (case, calls) = shrink(&drawn(), &Case::default(), 3, needs);
        assert_eq!(calls, 3);
        assert!(needs(&case));
    }

    #[test]
    fn a_failure_that_needs_nothing_becomes_the_smallest_case() {
        let (case, _) = shrink(&drawn(), &Case::default(), 100, |_| true);
        assert_eq!(case.to_string(), "faults=,hosts=3,steps=1");
        let (case, _) = shrink(&drawn(), &Case::default(), 100, |_| false);
        assert_eq!(case, Case::default());
    }
}
