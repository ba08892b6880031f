//! Whether a history of reads and writes of registers is linearizable: Wing and Gong's search, each register on its own, with the states it has seen left out.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

/// Operations on one register at most: a bit each.
const OPERATIONS_MAX: usize = 128;

#[derive(Clone, Debug)]
pub struct Operation {
    pub key: String,
    pub action: Action,
    pub call: Duration,
    /// `None`: nobody knows whether it has happened, or when. Only a write can be so.
    pub end: Option<Duration>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    Write(u64),
    Read(Option<u64>),
}

/// # Errors
/// The operations of the first register that is not linearizable, in words.
pub fn check(history: &[Operation]) -> Result<(), String> {
    let mut registers: BTreeMap<&str, Vec<&Operation>> = BTreeMap::new();
    for operation in history {
        registers.entry(&operation.key).or_default().push(operation);
    }
    for (key, mut operations) in registers {
        operations.sort_by_key(|operation| operation.call);
        assert!(operations.len() <= OPERATIONS_MAX, "{} operations on {key}", operations.len());
        if !is_linearizable(&operations) {
            let lines: Vec<String> = operations.iter().map(|operation| format!("{operation:?}")).collect();
            return Err(format!("{key} is not linearizable:\n{}", lines.join("\n")));
        }
    }
    Ok(())
}

fn is_linearizable(operations: &[&Operation]) -> bool {
    let needed = (0..operations.len()).filter(|at| operations[*at].end.is_some());
    let needed = needed.fold(0u128, |bits, at| bits | 1 << at);
    let mut seen = HashSet::new();
    let mut open = vec![(0u128, None)];
    while let Some((done, value)) = open.pop() {
        if done & needed == needed {
            return true;
        }
        if !seen.insert((done, value)) {
            continue;
        }
        let left = || (0..operations.len()).filter(|at| done >> at & 1 == 0);
        // What has ended before another began comes before it.
        let first_end = left().filter_map(|at| operations[at].end).min();
        for at in left().filter(|at| first_end.is_none_or(|end| operations[*at].call <= end)) {
            match operations[at].action {
                Action::Write(new) => open.push((done | 1 << at, Some(new))),
                Action::Read(got) if got == value => open.push((done | 1 << at, value)),
                Action::Read(_) => {}
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(action: Action, call: u64, end: Option<u64>) -> Operation {
        let at = Duration::from_secs;
        Operation { key: "x".into(), action, call: at(call), end: end.map(at) }
    }

    #[test]
    fn a_read_may_see_a_concurrent_write_and_must_not_see_what_was_overwritten() {
        let write = |value, call, end| operation(Action::Write(value), call, Some(end));
        let read = |value, call, end| operation(Action::Read(value), call, Some(end));
        for (is_right, history) in [
            (true, vec![write(1, 0, 4), read(None, 1, 2), read(Some(1), 3, 5)]),
            (false, vec![write(1, 0, 4), read(Some(1), 1, 2), read(None, 3, 5)]),
            (false, vec![write(1, 0, 1), write(2, 2, 3), read(Some(1), 4, 5)]),
            (false, vec![write(1, 0, 1), read(None, 2, 3)]),
            (true, vec![write(1, 0, 3), write(2, 1, 2), read(Some(1), 4, 5)]),
        ] {
            assert_eq!(check(&history).is_ok(), is_right, "{history:?}");
        }
    }

    #[test]
    fn a_write_of_unknown_end_may_happen_late_or_never() {
        let unknown = operation(Action::Write(1), 0, None);
        let read = |value, call| operation(Action::Read(value), call, Some(call + 1));
        assert!(check(&[unknown.clone(), read(None, 1), read(Some(1), 8)]).is_ok());
        assert!(check(&[unknown.clone(), read(None, 1)]).is_ok());
        assert!(check(&[unknown, read(Some(1), 1), read(None, 8)]).is_err());
    }
}
