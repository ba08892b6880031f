//! Outcomes as JSON, one object a line.
//!
//! Purpose: a stable form for programs. A result has the keys of [`ResultLine`], a comparison those of
//! [`CompareLine`], and neither has any other.
//!
//! Invariants: the `params` of a comparison equal those of the two results it compares.
//!
//! Tests: below; `tests/bench` on the command's output.

use std::io;

use serde::Serialize;
use serde_json::Value;

use crate::experiment::Measured;
use crate::experiment::model::{Lane, Row};
use crate::experiment::plan::Plan;
use crate::experiment::text::pairs;
use crate::machine::Machine;
use crate::plan::Case;
use crate::provider::{Counters, Side};
use crate::providers::handoffs::TRANSFERS;
use crate::providers::kernel::congestion;
use crate::run::Outcome;
use crate::stats::Ratio;
use crate::workloads::Params;

/// One side of one case.
#[derive(Serialize)]
struct ResultLine<'a> {
    workload: &'a str,
    params: &'a Params,
    on: Side,
    variant: Option<String>,
    unit: &'a str,
    higher_is_better: bool,
    samples: &'a [f64],
    median: f64,
    min: f64,
    max: f64,
    /// Cores used; null where no CPU time is measured.
    cpu: Option<f64>,
    counters: &'a Counters,
}

/// Two sides or settings of one case, sampled in the same rounds.
#[derive(Serialize)]
struct CompareLine<'a> {
    workload: &'a str,
    params: &'a Params,
    compare: [&'a str; 2],
    ratio: f64,
    /// The ends of the 95 % interval; null with too few rounds to tell.
    ratio_lo: Option<f64>,
    ratio_hi: Option<f64>,
    higher_is_better: bool,
}

/// The lines of one case, each ended.
pub fn lines(case: &Case, outcome: &Outcome, machine: &Machine) -> io::Result<String> {
    let params = case.params(machine);
    let (workload, higher_is_better) = (case.workload.name().as_str(), case.workload.higher_is_better());
    let mut text = String::new();
    for result in &outcome.results {
        let line = ResultLine {
            workload,
            params: &params,
            on: result.side,
            variant: case.variant(result.side),
            unit: case.workload.unit(),
            higher_is_better,
            samples: &result.samples,
            median: result.summary.median,
            min: result.summary.min,
            max: result.summary.max,
            cpu: result.cpu,
            counters: &result.counters,
        };
        push(&mut text, &line)?;
    }
    if let Some(ratio) = outcome.ratio {
        let line = CompareLine {
            workload,
            params: &params,
            compare: [Side::Sockeye.name(), Side::Kernel.name()],
            ratio: ratio.ratio,
            ratio_lo: ratio.interval.map(|(lo, _)| lo),
            ratio_hi: ratio.interval.map(|(_, hi)| hi),
            higher_is_better,
        };
        push(&mut text, &line)?;
    }
    Ok(text)
}

/// The lines of one row of an experiment, each ended: its lanes, each setting against the first, and each against the
/// kernel.
pub fn experiment_lines(plan: &Plan, machine: &Machine, one: &Measured<'_>) -> io::Result<String> {
    let (experiment, outcome) = (one.part.experiment, &one.outcome);
    let params = row_params(plan, machine, one.row);
    let name = |lane: &Lane| match lane {
        Lane::Setting(setting) => format!("{}={setting}", experiment.key),
        Lane::Kernel => Side::Kernel.name().to_owned(),
    };
    let mut text = String::new();
    for lane in &outcome.lanes {
        let (on, variant) = match lane.lane {
            Lane::Setting(_) => (Side::Sockeye, Some(name(&lane.lane))),
            Lane::Kernel => (Side::Kernel, None),
        };
        let mut counters = lane.counters.clone();
        counters.insert("operations".to_owned(), lane.operations.round() as u64);
        if let Some(counted) = &lane.counted {
            let handed_off = |(name, _): &(&String, &u64)| name.starts_with("handoffs") || *name == TRANSFERS;
            let pairs = counted.counters.iter().filter(handed_off);
            counters.extend(pairs.map(|(name, value)| (name.clone(), *value)));
            counters.insert("counting_operations".to_owned(), counted.operations.round() as u64);
        }
        let line = ResultLine {
            workload: experiment.name,
            params: &params,
            on,
            variant,
            unit: one.row.unit,
            higher_is_better: true,
            samples: &lane.samples,
            median: lane.moments.median,
            min: lane.moments.min,
            max: lane.moments.max,
            cpu: lane.cpu,
            counters: &counters,
        };
        push(&mut text, &line)?;
    }
    for (first, second) in one.compared() {
        let Some(ratio) = Ratio::of_rounds(&first.samples, &second.samples) else { continue };
        let names = [name(&first.lane), name(&second.lane)];
        let line = CompareLine {
            workload: experiment.name,
            params: &params,
            compare: [&names[0], &names[1]],
            ratio: ratio.ratio,
            ratio_lo: ratio.interval.map(|(lo, _)| lo),
            ratio_hi: ratio.interval.map(|(_, hi)| hi),
            higher_is_better: true,
        };
        push(&mut text, &line)?;
    }
    Ok(text)
}

/// The row's own parameters, and those of the run.
fn row_params(plan: &Plan, machine: &Machine, row: &Row) -> Params {
    let mut params = row.params.clone();
    let mut settings: Vec<(&str, &str)> = row.base.to_vec();
    settings.extend(plan.given.iter().map(|(key, value)| (key.as_str(), value.as_str())));
    params.insert("row".to_owned(), Value::from(row.label.as_str()));
    params.insert("set".to_owned(), Value::from(pairs(&settings)));
    params.insert("seconds".to_owned(), Value::from(plan.timing.timed.as_secs_f64()));
    params.insert("cores".to_owned(), Value::from(machine.cores.len()));
    params.insert("kernel_congestion".to_owned(), Value::from(congestion().name()));
    params
}

fn push(text: &mut String, line: &impl Serialize) -> io::Result<()> {
    text.push_str(&serde_json::to_string(line)?);
    text.push('\n');
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::plan::{Effort, default_set};
    use crate::run::SideResult;
    use crate::stats::Summary;

    fn outcome() -> Outcome {
        let result = |side, samples: &[f64]| SideResult {
            side,
            samples: samples.to_vec(),
            summary: Summary::of(samples).unwrap(),
            cpu: Some(1.5),
            counters: Counters::from([("acks".to_owned(), 3)]),
        };
        let (ours, theirs) = ([4.0, 6.0, 5.0], [2.0, 3.0, 2.5]);
        Outcome {
            results: vec![result(Side::Sockeye, &ours), result(Side::Kernel, &theirs)],
            ratio: Ratio::of_rounds(&ours, &theirs),
            failures: Vec::new(),
        }
    }

    fn keys(line: &Value) -> BTreeSet<&str> {
        line.as_object().unwrap().keys().map(String::as_str).collect()
    }

    #[test]
    fn a_case_is_two_results_and_a_comparison_with_exactly_these_keys() {
        let machine = Machine::read().unwrap();
        for case in default_set(None, Effort::QUICK) {
            let text = lines(&case, &outcome(), &machine).unwrap();
            let parsed: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            let [ours, theirs, compared] = parsed.as_slice() else { panic!("{text}") };
            for result in [ours, theirs] {
                let want = BTreeSet::from([
                    "workload",
                    "params",
                    "on",
                    "variant",
                    "unit",
                    "higher_is_better",
                    "samples",
                    "median",
                    "min",
                    "max",
                    "cpu",
                    "counters",
                ]);
                assert_eq!(keys(result), want);
                assert_eq!(result["params"], compared["params"]);
            }
            let want = BTreeSet::from([
                "workload",
                "params",
                "compare",
                "ratio",
                "ratio_lo",
                "ratio_hi",
                "higher_is_better",
            ]);
            assert_eq!(keys(compared), want);
            assert_eq!(compared["compare"], serde_json::json!(["sockeye", "kernel"]));
            assert_eq!(compared["ratio"], 2.0);
            assert_eq!(ours["median"], 5.0);
            assert_eq!(theirs["on"], "kernel");
        }
    }

    #[test]
    fn a_side_alone_is_not_compared() {
        let machine = Machine::read().unwrap();
        let case = &default_set(None, Effort::QUICK)[0];
        let mut alone = outcome();
        alone.results.remove(0);
        alone.ratio = None;
        assert_eq!(lines(case, &alone, &machine).unwrap().lines().count(), 1);
    }
}
