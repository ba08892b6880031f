//! Makes a differing scenario small: events are taken out while the difference stays.
//!
//! The kernel's time is real, so all candidates of a round run at once. Tests: below.

use std::io;

use crate::scenario::Scenario;

/// The largest number of rounds: each halves the rest, or takes one event out.
const ROUNDS_MAX: usize = 40;

/// A smaller scenario for which `differs` is still true. `differs` is called with many scenarios at once, and answers for each.
///
/// # Errors
/// Those of `differs`.
pub fn shrink(
    scenario: &Scenario,
    mut differs: impl FnMut(&[Scenario]) -> io::Result<Vec<bool>>,
) -> io::Result<Scenario> {
    let mut best = scenario.clone();
    for _ in 0..ROUNDS_MAX {
        let candidates = candidates(&best);
        let verdicts = differs(&candidates)?;
        let passing = candidates.into_iter().zip(verdicts).filter(|(_, differs)| *differs);
        match passing.map(|(candidate, _)| candidate).min_by_key(|candidate| candidate.events.len()) {
            Some(smaller) => best = smaller,
            None => break,
        }
    }
    Ok(best)
}

/// The scenario without one or more events that follow one another, or without its settings.
fn candidates(scenario: &Scenario) -> Vec<Scenario> {
    let count = scenario.events.len();
    let mut lens = vec![1];
    while lens.last().is_some_and(|len| len * 2 < count) {
        lens.push(lens[lens.len() - 1] * 2);
    }
    let ranges = lens
        .into_iter()
        .flat_map(|len| (0..count).step_by(len).map(move |from| from..(from + len).min(count)));
    ranges
        .map(|range| {
            let mut smaller = scenario.clone();
            smaller.events.drain(range);
            smaller
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Action;

    #[test]
    fn what_a_difference_does_not_need_goes() {
        let text = "0 connect\n1 wait\n2 write 1\n3 wait\n4 close\n5 wait";
        let needs = |scenario: &Scenario| {
            scenario.any(|action| *action == Action::Connect)
                && scenario.any(|action| *action == Action::Close)
        };
        let smaller =
            shrink(&text.parse().unwrap(), |candidates| Ok(candidates.iter().map(needs).collect())).unwrap();
        assert_eq!(smaller.to_string(), "0      connect\n4      close\n");
    }
}
