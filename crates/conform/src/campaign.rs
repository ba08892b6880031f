//! Many scenarios: run on both sides, repeated where the kernel's run was disturbed or differs, and sorted.
//!
//! The kernel's runs are not all the same, since the scenario's events fall at different times between the kernel's timer ticks. So a scenario counts
//! as different only if the stack's trace agrees with none of [`RUNS`] undisturbed runs of the kernel. Tests: `tests/random.rs`.

use std::collections::BTreeMap;
use std::io;

use crate::compare::{Comparison, compare};
use crate::scenario::Scenario;
use crate::shrink::shrink;
use crate::trace::Trace;
use crate::wheel::PHASES;
use crate::{driven, kernel};

/// A scenario differs if none of this many undisturbed runs of the kernel agrees with the stack's.
pub const RUNS: usize = 6;
/// The largest number of runs of the kernel, disturbed or not.
pub const TRIES: usize = 12;
/// The same for a scenario of which each run was disturbed.
pub const TRIES_DISTURBED: usize = 6;
/// The percentage of scenarios that may be disturbed in all tries without a message from a test.
pub const DISTURBED_MAX_PERCENT: usize = 5;
/// With a higher percentage, a test under continuous integration fails, because it would compare too little. A virtual machine that was denied a
/// tenth of its time by its host disturbed a third of the scenarios in all tries.
pub const DISTURBED_MAX_PERCENT_CI: usize = 50;
/// How many more times a test tries the disturbed ones, with [`TRIES_DISTURBED`] runs each.
const REPEATS: usize = 2;

/// A scenario's outcome.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// No differences except the known ones with these names.
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
    for tried in 1..=TRIES {
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
                Some(_) => at_some_phase(&scenarios[*index], &trace)
                    .map_or_else(|| Outcome::Differs(Box::new((trace, comparison))), Outcome::Same),
            };
        }
        open.retain(|index| match outcomes[*index] {
            Outcome::Same(_) => false,
            Outcome::Differs(_) => runs[*index] < RUNS,
            Outcome::Disturbed => tried < TRIES_DISTURBED,
        });
    }
    // Fewer runs prove nothing: the machine may have paused during one of them without any thread of ours noticing.
    for index in open {
        outcomes[index] = Outcome::Disturbed;
    }
    Ok(outcomes)
}

/// The known differences, if the stack's trace at one of the phases of the kernel's ticks agrees with the kernel's trace.
fn at_some_phase(scenario: &Scenario, kernel: &Trace) -> Option<Vec<&'static str>> {
    (0..PHASES).find_map(|phase| {
        let comparison = compare(scenario, kernel, &driven::run_at_phase(scenario, phase));
        comparison.difference.is_none().then_some(comparison.known)
    })
}

/// [`run`], and again for those that were disturbed each time, for tests. Returns the outcomes, and a message if too few scenarios were compared.
/// **Blocks**.
///
/// # Errors
/// The system's; with `is_strict`, where more than [`DISTURBED_MAX_PERCENT_CI`] were still disturbed.
pub fn run_as_test(scenarios: &[Scenario], is_strict: bool) -> io::Result<(Vec<Outcome>, Option<String>)> {
    let mut outcomes = run(scenarios)?;
    for _ in 0..REPEATS {
        let disturbed: Vec<usize> =
            (0..scenarios.len()).filter(|index| matches!(outcomes[*index], Outcome::Disturbed)).collect();
        let again: Vec<Scenario> = disturbed.iter().map(|index| scenarios[*index].clone()).collect();
        for (index, outcome) in disturbed.into_iter().zip(run(&again)?) {
            outcomes[index] = outcome;
        }
    }
    let too_few = too_few_compared(&outcomes, is_strict).map_err(io::Error::other)?;
    Ok((outcomes, too_few))
}

/// The message if too many scenarios were disturbed because the machine was too busy; `Err` if nothing was tested.
fn too_few_compared(outcomes: &[Outcome], is_strict: bool) -> Result<Option<String>, String> {
    let disturbed = outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Disturbed)).count();
    let percent = disturbed * 100 / outcomes.len().max(1);
    let text =
        || format!("{disturbed} of {} scenarios were not compared: the machine is too busy", outcomes.len());
    match percent {
        0..=DISTURBED_MAX_PERCENT => Ok(None),
        _ if is_strict && percent > DISTURBED_MAX_PERCENT_CI => Err(text()),
        _ => Ok(Some(text())),
    }
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

/// How often each known difference occurred.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_machine_is_said_and_under_continuous_integration_no_success() {
        let outcomes = |disturbed: usize| -> Vec<Outcome> {
            (0..100)
                .map(|at| if at < disturbed { Outcome::Disturbed } else { Outcome::Same(Vec::new()) })
                .collect()
        };
        for (disturbed, is_strict, says, fails) in [
            (0, true, false, false),
            (5, true, false, false),
            (6, true, true, false),
            (50, true, true, false),
            (51, true, false, true),
            (100, false, true, false),
        ] {
            let said = too_few_compared(&outcomes(disturbed), is_strict);
            assert_eq!((said.is_err(), said.is_ok_and(|text| text.is_some())), (fails, says), "{disturbed}");
        }
    }
}
