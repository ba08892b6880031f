//! Outcomes of experiments as people read them in a terminal.
//!
//! Purpose: for each row the output of `ministat`, the counters of all lanes side by side, the document's result, and whether
//! the row reaches its goal.
//!
//! Does not depend on how anything was measured.
//!
//! Invariants: a row is written whole when it is done. No line is wider than it must be for its numbers.
//!
//! Tests: below.

use crate::experiment::Measured;
use crate::experiment::counters::{cell, is_known, lines, value};
use crate::experiment::counting::Counted;
use crate::experiment::figures::DISCLAIMER;
use crate::experiment::goals::verdict;
use crate::experiment::model::{Figure, KERNEL, Line};
use crate::experiment::plan::Plan;
use crate::experiment::run::{LaneResult, Outcome};
use crate::experiment::scale::{ASSUMPTIONS, CORES, Curve, Prediction};
use crate::machine::Machine;
use crate::stats::ministat::{self, Difference, general};

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
    for goal in one.goals() {
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
            one.goals().iter().map(|goal| verdict(goal, one.part.experiment, &one.outcome).reached)
        })
        .collect();
    let judged = verdicts.iter().flatten().count();
    if judged == 0 {
        return String::new();
    }
    let reached = verdicts.iter().filter(|reached| **reached == Some(true)).count();
    format!("\ngoals reached: {reached} of {judged}\n")
}

/// A prediction, with its check and its assumptions.
pub fn prediction(of: &Prediction<'_>) -> String {
    let mut text =
        format!("\n{}: PREDICTED {} over cores, {}\n", of.experiment.name, of.row.unit, of.row.label);
    if of.curves.is_empty() {
        return text
            + "  nothing to predict from: this needs two cores, and work that was done on one and on all\n";
    }
    let mut line = |name: &str, values: &mut dyn Iterator<Item = String>| {
        text += &format!("  {name:<42}");
        values.for_each(|value| text += &format!(" {value:>19}"));
        text.push('\n');
    };
    line("", &mut of.curves.iter().map(|curve| curve.lane.name().to_owned()));
    for (index, name) in measured_on(of).iter().enumerate() {
        let figure = |curve: &Curve| curve.points.get(index).map_or(String::new(), |point| general(point.1));
        line(name, &mut of.curves.iter().map(figure));
    }
    for cores in CORES.into_iter().skip(1) {
        let predicted = |curve: &Curve| predicted(curve, cores, general);
        line(&format!("predicted, {cores} cores"), &mut of.curves.iter().map(predicted));
    }
    for (name, values) in parameters(of) {
        line(&name, &mut values.into_iter());
    }
    let held: Vec<Vec<(usize, f64)>> = of.curves.iter().map(|curve| curve.held().collect()).collect();
    for (index, (cores, _)) in held.first().into_iter().flatten().enumerate() {
        let ratio = |of: &Vec<(usize, f64)>| cell(of.get(index).map(|(_, ratio)| *ratio));
        line(&format!("foretold by 2 / measured, {cores} cores"), &mut held.iter().map(ratio));
    }
    if held.iter().all(Vec::is_empty) {
        text += NOT_HELD;
    }
    if CORES.into_iter().any(|cores| of.curves.iter().any(|curve| curve.range(cores).is_none())) {
        text += &format!("  {UNTOLD}: cannot be told from this run\n");
    }
    for failure in &of.failures {
        text += &format!("  {} failed: {}\n", failure.lane.name(), failure.error);
    }
    text
}

/// The range that is predicted for so many cores, or that it cannot be told.
pub fn predicted(curve: &Curve, cores: usize, shown: impl Fn(f64) -> String) -> String {
    match curve.range(cores) {
        Some((low, high)) => format!("{}-{}", shown(low), shown(high)),
        None => UNTOLD.to_owned(),
    }
}

/// Stands where a prediction would.
const UNTOLD: &str = "?";
/// Of a machine with two cores.
const NOT_HELD: &str = "  not checked: the curve goes through both figures of this machine, so nothing here can contradict it; \
                        bench scale on a machine with more cores can\n";

/// The text under all predictions.
pub fn assumptions() -> String {
    let lines: String = ASSUMPTIONS.iter().map(|line| format!("  * {line}\n")).collect();
    format!("\nassumed:\n{lines}")
}

/// The names of the measurements for a prediction: on how many cores.
pub fn measured_on(of: &Prediction<'_>) -> Vec<String> {
    let points = of.curves.first().map_or(&[][..], |curve| &curve.points);
    points.iter().map(|(cores, _)| format!("measured, {cores} core(s)")).collect()
}

/// The parameters of a prediction's curves by name, one for each curve.
pub fn parameters(of: &Prediction<'_>) -> Vec<(String, Vec<String>)> {
    let each =
        |value: &dyn Fn(&Curve) -> Option<f64>| of.curves.iter().map(|curve| cell(value(curve))).collect();
    let ns = |seconds: f64| seconds * 1e9;
    let mut parameters = vec![
        ("operation on 1 core, ns of CPU".to_owned(), each(&|curve| Some(ns(curve.operation)))),
        ("of these one core at a time, ns".to_owned(), each(&|curve| Some(ns(curve.serial())))),
        (
            "moves of words between cores, an operation".to_owned(),
            each(&|curve| Some(curve.handoffs?.paired)),
        ),
        ("moves of words that all share".to_owned(), each(&|curve| Some(curve.handoffs?.shared))),
        ("one move here, ns".to_owned(), each(&|_| of.handoff.map(ns))),
        ("most throughput at cores".to_owned(), each(&|curve| curve.usl.peak().map(f64::from))),
    ];
    let points = of.curves.first().map_or(0, |curve| curve.points.len());
    for index in 1..points {
        let cores = of.curves[0].points[index].0;
        let check = |curve: &Curve| curve.checks().nth(index).map(|(_, check)| check);
        parameters.push((format!("check: predicted / measured at {cores}"), each(&check)));
    }
    parameters
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
    let lines: Vec<&Line> = lines(one.part.experiment).collect();
    let width = lines.iter().map(|line| line.name.len()).max().unwrap_or(0).max("cores used".len());
    let mut text = format!("{:<width$}", format!("(an operation is a {})", one.row.operation));
    for lane in &lanes {
        text += &format!(" {:>15}", lane.lane.name());
    }
    text.push('\n');
    let mut absent = Vec::new();
    for line in lines {
        if !is_known(line, &one.outcome.lanes) {
            absent.push(line.name.trim());
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
    for lane in lanes {
        if let Some(counted) = lane.counted.as_ref().filter(|counted| !counted.top.is_empty()) {
            text += &format!("hand-offs with {}: {}\n", lane.lane.name(), places(counted));
        }
    }
    text
}

/// Where hand-offs come from, the most first.
pub fn places(counted: &Counted) -> String {
    let place = |(site, share): &(String, f64)| format!("{site} {:.0} %", share * 100.0);
    counted.top.iter().map(place).collect::<Vec<_>>().join(", ")
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{BenchArgs, Target};
    use crate::experiment::run::tests::lane;
    use crate::experiment::scale::usl::Usl;

    fn plan() -> Plan {
        Plan::of(&BenchArgs { quick: true, goals: true, ..BenchArgs::default() }, Target::Experiment(0))
            .unwrap()
    }

    #[test]
    fn a_row_has_the_lists_differences_counters_figure_and_goals() {
        let plan = plan();
        let counted = [("segments_in", 50), ("rcvd_sent", 1), ("rcvd_coalesced", 0), ("rcvd_skipped", 3)];
        let lanes = vec![
            lane("sync", &[99.0, 100.0, 101.0], &counted),
            lane("async", &[119.0, 120.0, 121.0], &counted),
            lane("kernel", &[100.0, 99.0, 101.0], &[]),
        ];
        let outcome = Outcome { lanes, failures: Vec::new() };
        let one = Measured { part: &plan.parts[0], row: &plan.parts[0].rows[0], outcome };
        let text = row(&one);
        for part in [
            "x sync\n+ async\n* kernel\n",
            "async against sync:\n  Difference at 95.0% confidence\n    20 +/- 2.2",
            "kernel against sync:\n  No difference proven",
            "segments in per operation",
            "0.250",
            "not counted (-): sleeps for rcvd per receive",
            "i7-2600",
            "do not compare",
            "goal: async >= 1.12 x sync: is 1.200 reached",
            "goal: precheck >= 1 x async not measured",
        ] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
        assert_eq!(footer(&[one]), "\ngoals reached: 1 of 1\n");
    }

    #[test]
    fn a_prediction_is_labelled_and_has_its_check() {
        let plan = plan();
        let part = &plan.parts[0];
        let usl = Usl { lambda: 100.0, rho: 0.0, sigma: 0.25, kappa: 0.0 };
        let curve = Curve {
            lane: part.lanes[0].clone(),
            points: vec![(1, 100.0), (2, 160.0)],
            operation: 1e-6,
            handoffs: None,
            usl,
            early: None,
            band: Some((usl, usl)),
        };
        let mut of = Prediction {
            experiment: part.experiment,
            row: &part.rows[0],
            curves: vec![curve],
            handoff: None,
            failures: Vec::new(),
        };
        let text = prediction(&of);
        for part in [
            "PREDICTED",
            "predicted, 128 cores",
            "one core at a time, ns",
            " 250\n",
            "390.84-390.84",
            "check: predicted / measured at 2",
            "not checked",
        ] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
        of.curves.clear();
        assert!(prediction(&of).contains("needs two cores"));
        assert!(ASSUMPTIONS.iter().all(|line| assumptions().contains(line)));
    }
}
