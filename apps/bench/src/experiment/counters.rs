//! Counters as they are read: divided by the operations done meanwhile.
//!
//! Purpose: the value of a [`Line`] in one lane. A counter that the stack does not have is absent, which is not the
//! same as zero.
//!
//! Does not depend on how a table is laid out.
//!
//! Tests: below.

use crate::experiment::model::{Experiment, Line, Per};
use crate::experiment::run::LaneResult;
use crate::provider::Counters;
use crate::providers::handoffs::NAMES;

/// An experiment's lines, and those of hand-offs.
pub fn lines(experiment: &Experiment) -> impl Iterator<Item = &'static Line> {
    experiment.lines.iter().chain(HANDOFFS)
}

/// The line's value; `None` if a counter it needs does not exist in this lane, or nothing was done. Lines of hand-offs take
/// their figures from the counting pass.
pub fn value(line: &Line, lane: &LaneResult) -> Option<f64> {
    if HANDOFFS.iter().any(|known| known.name == line.name) {
        let counted = lane.counted.as_ref().filter(|counted| counted.operations > 0.0)?;
        return Some(sum(&counted.counters, line.of)? / counted.operations);
    }
    let above = sum(&lane.counters, line.of)?;
    let below = match line.per {
        Per::Operation => lane.operations,
        Per::Counters(names) => sum(&lane.counters, names)?,
    };
    (below > 0.0).then(|| above / below)
}

/// As it is printed: `-` if absent.
pub fn cell(value: Option<f64>) -> String {
    match value {
        None => ABSENT.to_owned(),
        Some(0.0) => "0".to_owned(),
        Some(value) if value.abs() < 0.000_05 => format!("{value:.1e}"),
        Some(value) if value.abs() < 0.01 => format!("{value:.5}"),
        Some(value) if value.abs() < 100.0 => format!("{value:.3}"),
        Some(value) => format!("{value:.0}"),
    }
}

/// Whether any lane has the line.
pub fn is_known(line: &Line, lanes: &[LaneResult]) -> bool {
    lanes.iter().any(|lane| value(line, lane).is_some())
}

fn sum(counters: &Counters, names: &[&str]) -> Option<f64> {
    names.iter().map(|name| counters.get(*name).map(|&value| value as f64)).sum()
}

/// Hand-offs of cache lines between threads, from the counting pass.
pub const HANDOFFS: &[Line] = &[
    Line { name: HANDOFFS_ALL, of: &NAMES, per: Per::Operation },
    Line { name: HANDOFFS_LOCK, of: &["handoffs_lock"], per: Per::Operation },
    Line { name: "  of queues and wake words", of: &["handoffs_queue"], per: Per::Operation },
    Line { name: "  of statistics and quotas", of: &["handoffs_counter"], per: Per::Operation },
    Line { name: "  of reference counts", of: &["handoffs_references"], per: Per::Operation },
    Line { name: "  of buffers", of: &["handoffs_buffer"], per: Per::Operation },
    Line { name: "  of what locks guard", of: &["handoffs_guarded"], per: Per::Operation },
    Line { name: "  of other words", of: &["handoffs_other"], per: Per::Operation },
    Line { name: "lines read after another's write", of: &["transfers"], per: Per::Operation },
];

/// All of them.
pub const HANDOFFS_ALL: &str = "hand-offs per operation";
/// Those of locks alone.
pub const HANDOFFS_LOCK: &str = "  of locks and squeues";

/// For a counter that is not there.
pub const ABSENT: &str = "-";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::counting::Counted;
    use crate::experiment::run::tests::lane;
    use crate::providers::handoffs::TRANSFERS;

    const TWO: Line = Line { name: "two", of: &["a", "b"], per: Per::Operation };

    #[test]
    fn a_line_is_the_sum_of_its_counters_over_operations_or_over_another() {
        let found = lane("sync", &[1.0], &[("a", 30), ("b", 10), ("c", 5)]);
        assert_eq!(value(&TWO, &found), Some(4.0));
        let per_c = Line { per: Per::Counters(&["c"]), ..TWO };
        assert_eq!(value(&per_c, &found), Some(8.0));
    }

    #[test]
    fn uncounted_events_are_absent_and_events_that_did_not_happen_are_zero() {
        assert_eq!(value(&TWO, &lane("sync", &[1.0], &[("a", 30)])), None);
        let none = lane("sync", &[1.0], &[("a", 0), ("b", 0)]);
        assert_eq!(value(&TWO, &none), Some(0.0));
        assert_eq!(value(&Line { per: Per::Counters(&["a"]), ..TWO }, &none), None);
        assert_eq!([cell(None), cell(Some(0.0)), cell(Some(0.001))], ["-", "0", "0.00100"]);
        assert_eq!([cell(Some(1e-7)), cell(Some(1.5)), cell(Some(12_345.0))], ["1.0e-7", "1.500", "12345"]);
        assert!(is_known(&TWO, &[none]));
    }

    #[test]
    fn hand_offs_come_from_the_counting_pass_and_every_kind_has_its_line() {
        assert!(HANDOFFS.iter().any(|line| line.of == [TRANSFERS]));
        for name in NAMES {
            assert!(HANDOFFS.iter().any(|line| line.of == [name]), "{name}");
        }
        let mut found = lane("sync", &[1.0], &[]);
        assert_eq!(value(&HANDOFFS[0], &found), None);
        let counters = NAMES.iter().map(|name| ((*name).to_owned(), 2)).collect();
        found.counted = Some(Counted { operations: 7.0, counters, top: Vec::new() });
        assert_eq!(value(&HANDOFFS[0], &found), Some(2.0));
    }
}
