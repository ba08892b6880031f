//! Outcomes as a table.
//!
//! Purpose: a readable table: one row a case, both sides, their ratio with its interval, the cores
//! each used, and whether the goal was reached.
//!
//! Invariants: columns have fixed widths, so that a row can be written before the next one is known.
//!
//! Tests: below.

use std::fmt::Write;

use crate::plan::{Case, Goal, Plan};
use crate::provider::Side;
use crate::run::{Outcome, SideResult};
use crate::stats::Ratio;
use crate::workloads::{Workload, stream};

/// The machine and the method, each line ended.
pub fn method(plan: &Plan) -> String {
    let sides: Vec<&str> = plan.sides.iter().map(|side| side.name()).collect();
    let mut text = String::new();
    let (least, most) = plan
        .cases
        .iter()
        .fold((usize::MAX, 0), |(least, most), case| (least.min(case.samples), most.max(case.samples)));
    let count = if least < most { format!("{least} to {most}") } else { most.to_string() };
    let seconds = plan.cases.first().map_or(0.0, |case| case.timing.timed.as_secs_f64());
    push(
        &mut text,
        format_args!(
            "method: {} in one process, {count} interleaved samples of {seconds} s each; medians; \
             ratio of medians with its 95 % interval\n\
             threads: left to the scheduler, but \"same core\" pins both ends of a connection to \
             one core and \"two cores\" to two\n",
            sides.join(" and "),
        ),
    );
    if plan.cases.iter().any(|case| matches!(case.workload, Workload::Mem(_))) {
        text.push_str(
            "mem: sockeye by the resident set of a fresh process, kernel by the machine's slab \
             over several processes\n",
        );
    }
    text
}

/// The names of the columns, and a line below.
pub fn heading(goals: bool) -> String {
    let heading = format!(
        "{:<8} {:<38} {:>20} {:>20} {:>7} {:<15} {:>11}  {}",
        "workload",
        "case",
        "sockeye",
        "kernel",
        "ratio",
        "95 %",
        "cores",
        if goals { "goal" } else { "" }
    );
    let heading = heading.trim_end();
    let rule = "-".repeat(heading.len() + if goals { GOAL_WIDTH } else { 0 });
    format!("{heading}\n{rule}\n")
}

/// Makes rows, and remembers the values that goals compare across them.
#[derive(Default)]
pub struct Table {
    /// Bulk rates of Sockeye's side, by the case's connections.
    bulk: Vec<(usize, f64)>,
    reached: usize,
    missed: usize,
    undecided: usize,
    /// Threads that other programs had runnable when the run began.
    load: Option<f64>,
    /// Whether goals are shown and counted.
    shows_goals: bool,
}

/// The cells of a row, as text. A cell without a value is empty.
pub struct Cells {
    /// Sockeye's median, in the workload's unit.
    pub ours: String,
    /// The kernel's.
    pub theirs: String,
    /// Of the medians.
    pub ratio: String,
    /// Of the ratio.
    pub interval: String,
    /// Used by each side.
    pub cores: String,
    /// The goal and whether it was reached.
    pub goal: String,
    /// Both medians in a second unit.
    pub more: Option<(String, String)>,
}

/// Whether a goal was reached.
enum Verdict {
    Reached,
    Missed,
    /// The ratio's interval has the goal inside.
    Undecided,
}

impl Verdict {
    fn of(is_reached: bool) -> Self {
        if is_reached { Self::Reached } else { Self::Missed }
    }

    fn of_ratio(found: Ratio, least: f64) -> Self {
        match found.interval {
            Some((low, high)) if low < least && least <= high => Self::Undecided,
            _ => Self::of(found.ratio >= least),
        }
    }
}

impl Table {
    /// An empty table of a machine with this load, which an undecided goal names.
    pub fn under(load: Option<f64>, shows_goals: bool) -> Self {
        Self { load, shows_goals, ..Self::default() }
    }

    /// The cells of a case.
    pub fn cells(&mut self, case: &Case, outcome: &Outcome) -> Cells {
        let (ours, theirs) = (outcome.of(Side::Sockeye), outcome.of(Side::Kernel));
        if let (Workload::Stream(spec), Some(ours)) = (&case.workload, ours)
            && !spec.counts_writes()
        {
            self.bulk.push((spec.connections, ours.summary.median));
        }
        let cell = |side, result: Option<&SideResult>| match result {
            Some(result) => value(&case.workload, result.summary.median),
            None if outcome.failures.iter().any(|f| f.side == side) => "failed".to_owned(),
            None => "-".to_owned(),
        };
        let (ratio, interval) = ratio_cells(outcome.ratio);
        let more = match &case.workload {
            Workload::Stream(spec) if spec.counts_writes() => {
                Some((in_gbit(spec, ours), in_gbit(spec, theirs)))
            }
            _ => None,
        };
        Cells {
            ours: cell(Side::Sockeye, ours),
            theirs: cell(Side::Kernel, theirs),
            ratio,
            interval,
            cores: format!("{} / {}", cores(ours), cores(theirs)),
            goal: self.goal(case, outcome),
            more,
        }
    }

    /// A case as text, with a line below for each side that failed and for a second unit.
    pub fn row(case: &Case, outcome: &Outcome, cells: &Cells) -> String {
        let Cells { ours, theirs, ratio, interval, cores, goal, more } = cells;
        let mut text = format!(
            "{:<8} {:<38} {ours:>20} {theirs:>20} {ratio:>7} {interval:<15} {cores:>11}  {goal}",
            case.workload.name().as_str(),
            case.label(),
        );
        text.truncate(text.trim_end().len());
        text.push('\n');
        if let Some((ours, theirs)) = more {
            push(&mut text, format_args!("{:<8} {:<38} {ours:>20} {theirs:>20}\n", "", ""));
        }
        for failure in &outcome.failures {
            let (side, error) = (failure.side.name(), &failure.error);
            push(&mut text, format_args!("         {side} failed: {error}\n"));
        }
        text
    }

    /// How many goals were reached.
    pub fn footer(&self) -> String {
        let all = self.reached + self.missed + self.undecided;
        match (all, self.undecided) {
            (0, _) => String::new(),
            (_, 0) => format!("goals reached: {} of {all}\n", self.reached),
            (_, undecided) => format!("goals reached: {} of {all}, undecided: {undecided}\n", self.reached),
        }
    }

    fn goal(&mut self, case: &Case, outcome: &Outcome) -> String {
        let Some(goal) = case.goal.filter(|_| self.shows_goals) else {
            return String::new();
        };
        let ours = outcome.of(Side::Sockeye).map(|result| result.summary.median);
        let (wanted, verdict) = match goal {
            Goal::Ratio(least) => {
                (format!(">= {least}x"), outcome.ratio.map(|found| Verdict::of_ratio(found, least)))
            }
            Goal::AtMost(most) => {
                (format!("<= {}", value(&case.workload, most)), ours.map(|ours| Verdict::of(ours <= most)))
            }
            Goal::ShareOf { share, connections } => {
                let base = self.bulk.iter().find(|(count, _)| *count == connections);
                let found = ours.zip(base).map(|(ours, (_, base))| ours / base);
                let now = found.map_or(String::new(), |found| format!(", is {found:.2}"));
                (
                    format!(">= {share} of {connections} conns{now}"),
                    found.map(|found| Verdict::of(found >= share)),
                )
            }
        };
        match verdict {
            Some(Verdict::Reached) => {
                self.reached += 1;
                format!("{wanted} reached")
            }
            Some(Verdict::Missed) => {
                self.missed += 1;
                format!("{wanted} MISSED")
            }
            Some(Verdict::Undecided) => {
                self.undecided += 1;
                let load = self.load.map_or(String::new(), |load| format!(" (load {load})"));
                format!("{wanted} undecided{load}")
            }
            None => wanted,
        }
    }
}

fn ratio_cells(ratio: Option<Ratio>) -> (String, String) {
    match ratio {
        Some(Ratio { ratio, interval: Some((lo, hi)) }) => {
            (format!("{ratio:.2}x"), format!("[{lo:.2}-{hi:.2}]"))
        }
        Some(Ratio { ratio, interval: None }) => (format!("{ratio:.2}x"), String::new()),
        None => (String::new(), String::new()),
    }
}

fn in_gbit(spec: &stream::Spec, result: Option<&SideResult>) -> String {
    result.map_or("-".to_owned(), |result| {
        format!("{:.3} Gbit/s", result.summary.median * spec.size as f64 * 8.0 / 1e9)
    })
}

fn cores(result: Option<&SideResult>) -> String {
    result.and_then(|result| result.cpu).map_or("-".to_owned(), |cpu| format!("{cpu:.2}"))
}

fn value(workload: &Workload, value: f64) -> String {
    match workload {
        Workload::Stream(spec) if !spec.counts_writes() => format!("{value:.2} Gbit/s"),
        Workload::Stream(_) => format!("{} writes/s", thousands(value)),
        Workload::Rr(_) => format!("{} trans/s", thousands(value)),
        Workload::OneWay(_) => format!("{} msgs/s", thousands(value)),
        Workload::Crr(_) => format!("{} conns/s", thousands(value)),
        Workload::Mem(_) => format!("{} bytes", thousands(value)),
        Workload::Idle(_) => format!("{value:.2} CPU ms/s"),
        Workload::Http(_) => format!("{} calls/s", thousands(value)),
    }
}

/// Rounded to a whole number, in groups of three digits. Rates and sizes are not negative.
pub fn thousands(value: f64) -> String {
    let digits = format!("{:.0}", value.max(0.0));
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn push(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    // Writing into a String cannot fail.
    let _ = text.write_fmt(arguments);
}

/// Room for the longest goal, in characters.
const GOAL_WIDTH: usize = 24;

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::plan::{Effort, default_set};
    use crate::provider::Counters;
    use crate::run::Failure;
    use crate::stats::Summary;
    use crate::workloads::Name;

    fn result(side: Side, value: f64) -> SideResult {
        SideResult {
            side,
            samples: vec![value; 3],
            summary: Summary::of(&[value]).unwrap(),
            cpu: Some(1.25),
            counters: Counters::new(),
        }
    }

    fn both(ours: f64, theirs: f64) -> Outcome {
        Outcome {
            results: vec![result(Side::Sockeye, ours), result(Side::Kernel, theirs)],
            ratio: Ratio::of_rounds(&[ours; 3], &[theirs; 3]),
            failures: Vec::new(),
        }
    }

    fn shown(table: &mut Table, case: &Case, outcome: &Outcome) -> String {
        Table::row(case, outcome, &table.cells(case, outcome))
    }

    #[test]
    fn goals_are_shown_and_counted_only_if_they_are_asked_for() {
        let mut table = Table::under(None, false);
        let case = &default_set(Some(Name::Stream), Effort::QUICK)[0];
        let row = shown(&mut table, case, &both(100.0, 50.0));
        assert!(row.trim_end().ends_with("1.25 / 1.25") && table.footer().is_empty(), "{row}");
        assert!(heading(true).contains("goal") && !heading(false).contains("goal"));
    }

    #[test]
    fn a_row_shows_values_ratio_cores_and_goal() {
        let mut table = Table::under(None, true);
        let case = &default_set(Some(Name::Stream), Effort::QUICK)[0];
        let row = shown(&mut table, case, &both(100.0, 50.0));
        for part in [
            "stream",
            "1 conn, 64K writes",
            "100.00 Gbit/s",
            "2.00x",
            "[2.00-2.00]",
            "1.25 / 1.25",
            ">= 1.5x reached",
        ] {
            assert!(row.contains(part), "{part} is not in {row}");
        }
        assert!(shown(&mut table, case, &both(60.0, 50.0)).contains("MISSED"));
        assert_eq!(table.footer(), "goals reached: 1 of 2\n");
    }

    #[test]
    fn a_goal_inside_the_interval_is_undecided() {
        let mut table = Table::under(Some(3.2), true);
        let case = &default_set(Some(Name::Stream), Effort::QUICK)[0];
        let mut outcome = both(100.0, 50.0);
        outcome.ratio = Some(Ratio { ratio: 2.0, interval: Some((1.2, 2.4)) });
        assert!(shown(&mut table, case, &outcome).contains(">= 1.5x undecided (load 3.2)"));
        outcome.ratio = Some(Ratio { ratio: 1.3, interval: Some((1.2, 1.4)) });
        assert!(shown(&mut table, case, &outcome).contains(">= 1.5x MISSED"));
        assert_eq!(table.footer(), "goals reached: 0 of 2, undecided: 1\n");
    }

    /// The row of the default set with this label.
    fn stream_case(label: &str) -> Case {
        let cases = default_set(Some(Name::Stream), Effort::QUICK);
        cases.into_iter().find(|case| case.label() == label).expect("a row of the default set")
    }

    #[test]
    fn a_share_goal_is_compared_with_the_row_that_it_names() {
        let mut table = Table::under(None, true);
        let [base, many] = ["32 conns, 64K writes", "96 conns, 64K writes"].map(stream_case);
        shown(&mut table, &base, &both(100.0, 50.0));
        assert!(shown(&mut table, &many, &both(79.0, 50.0)).contains("is 0.79 MISSED"));
        assert!(shown(&mut table, &many, &both(81.0, 50.0)).contains("is 0.81 reached"));
    }

    #[test]
    fn small_writes_are_given_in_bits_too() {
        let case = stream_case("1 conn, 128 B writes");
        let row = shown(&mut Table::default(), &case, &both(2e6, 1e6));
        assert!(row.contains("2,000,000 writes/s") && row.contains("2.048 Gbit/s"), "{row}");
    }

    #[test]
    fn a_failed_side_shows_its_error_and_has_no_ratio() {
        let case = &default_set(Some(Name::Crr), Effort::QUICK)[0];
        let outcome = Outcome {
            results: vec![result(Side::Kernel, 30_000.0)],
            ratio: None,
            failures: vec![Failure { side: Side::Sockeye, error: io::Error::other("no ports") }],
        };
        let row = shown(&mut Table::default(), case, &outcome);
        assert!(row.contains("sockeye failed: no ports") && row.contains("30,000 conns/s"));
    }

    #[test]
    fn rows_fit_their_columns() {
        let width = heading(true).lines().next().unwrap().find("goal").unwrap();
        let mut table = Table::under(None, true);
        for case in default_set(None, Effort::QUICK) {
            let row = shown(&mut table, &case, &both(123_456.0, 12_345.0));
            let goal = row.lines().next().unwrap().find("= ").unwrap() - 1;
            assert_eq!(goal, width, "{row}");
        }
    }

    #[test]
    fn digits_are_grouped() {
        assert_eq!(thousands(0.4), "0");
        assert_eq!(thousands(999.0), "999");
        assert_eq!(thousands(1_234_567.4), "1,234,567");
    }
}
