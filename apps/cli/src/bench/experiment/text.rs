//! Outcomes of experiments as people read them in a terminal.
//!
//! Purpose: for each row what `ministat` would print, the counters of every lane beside each other, what the document found,
//! and whether the row shows what it should.
//!
//! Must not know: how anything was measured.
//!
//! Invariants: a row is written whole when it is done. No line is wider than it must be for its numbers.
//!
//! Tests: below.

use crate::bench::experiment::Measured;
use crate::bench::experiment::counters::{cell, is_known, value};
use crate::bench::experiment::figures::DISCLAIMER;
use crate::bench::experiment::goals::verdict;
use crate::bench::experiment::model::{Figure, KERNEL};
use crate::bench::experiment::plan::Plan;
use crate::bench::experiment::run::{LaneResult, Outcome};
use crate::bench::machine::Machine;
use crate::bench::ministat::{self, Difference};

/// The machine, the method and the time it takes.
pub fn header(machine: &Machine, plan: &Plan) -> String {
    let names: Vec<&str> = plan.parts.iter().map(|part| part.experiment.name).collect();
    let mut text = format!("{machine}\nexperiments: {}\n", names.join(", "));
    if plan.measures {
        text += &format!(
            "method: every setting in this process, {} interleaved samples of {} s each; differences by Student's t\n\
             time: about {}\n",
            plan.samples,
            plan.timing.timed.as_secs_f64(),
            minutes(plan.planned_time().as_secs()),
        );
    }
    if !plan.given.is_empty() {
        text += &format!("set: {}\n", pairs(&plan.given));
    }
    text
}

fn minutes(seconds: u64) -> String {
    if seconds < 100 { format!("{} s", seconds.max(1)) } else { format!("{} minutes", seconds.div_ceil(60)) }
}

/// `key=value` of each, with spaces between.
pub fn pairs<K: AsRef<str>, V: AsRef<str>>(pairs: &[(K, V)]) -> String {
    let one = |(key, value): &(K, V)| format!("{}={}", key.as_ref(), value.as_ref());
    pairs.iter().map(one).collect::<Vec<_>>().join(" ")
}

/// One row's outcome.
pub fn row(one: &Measured<'_>) -> String {
    let experiment = one.part.experiment;
    let mut text = format!("\n{}: {}, in {}\n", experiment.name, one.row.label, one.row.unit);
    if !one.row.base.is_empty() {
        text += &format!("with {}\n", pairs(one.row.base));
    }
    text += &lists(&one.outcome);
    text += &differences(&one.outcome);
    text += &counters(one);
    text += &figure(experiment.figure);
    for goal in &one.row.goals {
        let found = verdict(goal, experiment, &one.outcome);
        text += &format!("goal: {} {}\n", found.text, found.word());
    }
    for failure in &one.outcome.failures {
        text += &format!("{} failed: {}\n", failure.lane.name(), failure.error);
    }
    text
}

/// How many goals were reached.
pub fn footer(measured: &[Measured<'_>]) -> String {
    let verdicts: Vec<Option<bool>> = measured
        .iter()
        .flat_map(|one| {
            one.row.goals.iter().map(|goal| verdict(goal, one.part.experiment, &one.outcome).reached)
        })
        .collect();
    let judged = verdicts.iter().flatten().count();
    if judged == 0 {
        return String::new();
    }
    let reached = verdicts.iter().filter(|reached| **reached == Some(true)).count();
    format!("\ngoals reached: {reached} of {judged}\n")
}

fn lists(outcome: &Outcome) -> String {
    let mut text = String::new();
    for (index, lane) in outcome.lanes.iter().enumerate() {
        text += &format!("{} {}\n", mark(index), lane.lane.name());
    }
    text += &ministat::heading();
    for (index, lane) in outcome.lanes.iter().enumerate() {
        text += &ministat::row(mark(index), &lane.moments);
    }
    text
}

fn differences(outcome: &Outcome) -> String {
    let Some(base) = outcome.base() else { return String::new() };
    let mut text = String::new();
    for other in &outcome.lanes[1..] {
        text += &format!("{} against {}:\n", other.lane.name(), base.lane.name());
        text += &match Difference::of(&base.moments, &other.moments) {
            Some(difference) => difference.lines(),
            None => "  too few samples to tell\n".to_owned(),
        };
    }
    text
}

fn counters(one: &Measured<'_>) -> String {
    let lanes: Vec<&LaneResult> =
        one.outcome.lanes.iter().filter(|lane| lane.lane.name() != KERNEL).collect();
    if lanes.is_empty() {
        return String::new();
    }
    let lines = one.part.experiment.lines;
    let width = lines.iter().map(|line| line.name.len()).max().unwrap_or(0).max("cores used".len());
    let mut text = format!("{:<width$}", format!("(an operation is a {})", one.row.operation));
    for lane in &lanes {
        text += &format!(" {:>15}", lane.lane.name());
    }
    text.push('\n');
    let mut absent = Vec::new();
    for line in lines {
        if !is_known(line, &one.outcome.lanes) {
            absent.push(line.name);
            continue;
        }
        text += &format!("{:<width$}", line.name);
        for lane in &lanes {
            text += &format!(" {:>15}", cell(value(line, lane)));
        }
        text.push('\n');
    }
    text += &format!("{:<width$}", "cores used");
    for lane in &lanes {
        text += &format!(" {:>15}", cell(lane.cpu));
    }
    text.push('\n');
    if !absent.is_empty() {
        text += &format!("not counted (-): {}\n", absent.join("; "));
    }
    text
}

fn figure(figure: &Figure) -> String {
    let found: Vec<String> = figure
        .found
        .iter()
        .map(|(name, value, ratio)| {
            if ratio.is_empty() { format!("{name}: {value}") } else { format!("{name}: {value} (x {ratio})") }
        })
        .collect();
    format!(
        "document: {}; {}; {}\n  {}\n  {DISCLAIMER}\n",
        figure.source,
        figure.workload,
        figure.machine,
        found.join("\n  ")
    )
}

/// A lane's mark, as `ministat` gives them out.
fn mark(index: usize) -> char {
    MARKS.get(index).copied().unwrap_or('?')
}

const MARKS: [char; 7] = ['x', '+', '*', '%', '#', '@', 'O'];
