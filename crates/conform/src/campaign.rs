//! Many scenarios: run on both sides, repeated where the kernel's run was disturbed or differs, and sorted.
//!
//! The kernel's runs are not all the same, since its timers meet the scenario's events at different ticks. So a scenario differs only if the
//! stack's trace is none of the kernel's in [`RUNS`] undisturbed runs. Tests: `tests/random.rs`.

use std::collections::BTreeMap;
use std::io;

use crate::compare::{Comparison, compare};
use crate::scenario::Scenario;
use crate::shrink::shrink;
use crate::trace::Trace;
use crate::{driven, kernel};

/// Undisturbed runs of the kernel of which none is like the stack's.
pub const RUNS: usize = 3;
/// Runs of the kernel, disturbed or not.
pub const TRIES: usize = 12;

/// A scenario's outcome.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// No difference but those with these names.
    Same(Vec<&'static str>),
    /// They differ: the kernel's trace and the first difference.
    Differs(Box<(Trace, Comparison)>),
    /// The machine was too busy each time.
    Disturbed,
}

/// Runs all of them on both sides. **Blocks**.
///
/// # Errors
/// The system's, if there can be no namespace or device.
pub fn run(scenarios: &[Scenario]) -> io::Result<Vec<Outcome>> {
    let stack: Vec<Trace> = scenarios.iter().map(driven::run).collect();
    let mut outcomes: Vec<Outcome> = scenarios.iter().map(|_| Outcome::Disturbed).collect();
    let mut runs = vec![0; scenarios.len()];
    let mut open: Vec<usize> = (0..scenarios.len()).collect();
    for _ in 0..TRIES {
        if open.is_empty() {
            break;
        }
        let these: Vec<&Scenario> = open.iter().map(|index| &scenarios[*index]).collect();
        for (index, trace) in open.iter().zip(kernel::run(&these)?) {
            if trace.is_disturbed {
                continue;
            }
            let comparison = compare(&scenarios[*index], &trace, &stack[*index]);
            runs[*index] += 1;
            outcomes[*index] = match comparison.difference {
                None => Outcome::Same(comparison.known),
                Some(_) => Outcome::Differs(Box::new((trace, comparison))),
            };
        }
        open.retain(|index| match outcomes[*index] {
            Outcome::Same(_) => false,
            Outcome::Differs(_) => runs[*index] < RUNS,
            Outcome::Disturbed => true,
        });
    }
    Ok(outcomes)
}

/// A smaller scenario with the same kind of difference.
///
/// # Errors
/// The system's.
pub fn shrunk(scenario: &Scenario, kind: &str) -> io::Result<Scenario> {
    shrink(scenario, |candidates| {
        let outcomes = run(candidates)?;
        let is_so = |outcome: Outcome| match outcome {
            Outcome::Differs(found) => found.1.difference.is_some_and(|difference| difference.kind() == kind),
            Outcome::Same(_) | Outcome::Disturbed => false,
        };
        Ok(outcomes.into_iter().map(is_so).collect())
    })
}

/// How often each known difference was met.
pub fn count_known(outcomes: &[Outcome]) -> BTreeMap<&'static str, usize> {
    let mut counts = BTreeMap::new();
    for outcome in outcomes {
        let names = match outcome {
            Outcome::Same(names) => names,
            Outcome::Differs(found) => &found.1.known,
            Outcome::Disturbed => continue,
        };
        names.iter().for_each(|name| *counts.entry(*name).or_default() += 1);
    }
    counts
}
