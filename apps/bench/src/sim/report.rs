//! Rows as a table, or as JSON lines.
//!
//! A lane's rate is the median of its samples; a ratio is that of medians, with its interval over rounds. Tests: `tests/bench/sim.rs`.

use std::fs::File;
use std::io::{self, Write};

use clap::ValueEnum;
use serde_json::json;
use sockeye_shared::file;

use super::rows::{Goal, Row};
use super::{Measured, Sample};
use crate::args::BenchArgs;
use crate::machine::Machine;
use crate::report::thousands;
use crate::stats::{Ratio, Summary};

/// Where results go.
pub struct Report {
    machine: Machine,
    json: bool,
    shows_goals: bool,
    file: Option<File>,
}

/// A lane beside the first one of its row.
struct Compared {
    cpu: Option<Ratio>,
    wall: Option<Ratio>,
}

impl Report {
    /// To standard output, and to the file that the command line names.
    ///
    /// # Errors
    /// The file cannot be made.
    pub fn new(args: &BenchArgs, machine: Machine) -> io::Result<Self> {
        let file = args.out.as_deref().map(file::create).transpose()?;
        Ok(Self { machine, json: args.json, shows_goals: args.goals, file })
    }

    /// The machine, the method and the names of the columns.
    pub fn begin(&self, rounds: usize) -> io::Result<()> {
        let goal = if self.shows_goals { "goal" } else { "" };
        let heading = format!(
            "{:<8} {:>16} {:>14}  {:<22} {:<22} {goal}",
            "", "work per CPU s", "per s", "ratio, CPU (95 %)", "ratio, time (95 %)"
        );
        let heading = heading.trim_end();
        let text = format!("{}\n{METHOD}\n{rounds} samples of each\n\n{heading}\n", self.machine);
        if self.json {
            eprint!("{text}");
            return Ok(());
        }
        let mut stdout = io::stdout().lock();
        stdout.write_all(text.as_bytes())?;
        stdout.flush()
    }

    /// A row that is done.
    pub fn row(&mut self, row: &Row, measured: &[Measured<'_>]) -> io::Result<()> {
        let (mut lines, mut text) = (String::new(), format!("{} ({})\n", row.label, row.unit));
        for one in measured {
            let compared = compare(measured, one);
            lines.push_str(&format!("{}\n", self.object(row, one, &compared)));
            text.push_str(&self.line(one, &compared));
        }
        if let Some(file) = &mut self.file {
            file.write_all(lines.as_bytes())?;
        }
        let mut stdout = io::stdout().lock();
        stdout.write_all(if self.json { lines } else { text }.as_bytes())?;
        stdout.flush()
    }

    fn line(&self, one: &Measured<'_>, compared: &Compared) -> String {
        if one.failure.is_some() {
            return format!("{:<8} failed\n", one.lane.name);
        }
        let [cpu, wall] = [per_cpu, per_second].map(|rate| number(median(one, rate)));
        let [of_cpu, of_wall] = [compared.cpu, compared.wall].map(ratio_text);
        let goal = one.lane.goal.filter(|_| self.shows_goals).map_or_else(String::new, |goal| {
            let found = match is_reached(one, goal, compared) {
                Some(true) => "reached",
                Some(false) => "missed",
                None => "nothing to compare with",
            };
            format!("{}: {found}", goal_text(goal))
        });
        let line = format!("{:<8} {cpu:>16} {wall:>14}  {of_cpu:<22} {of_wall:<22} {goal}", one.lane.name);
        format!("{}\n", line.trim_end())
    }

    fn object(&self, row: &Row, one: &Measured<'_>, compared: &Compared) -> serde_json::Value {
        let name = row.name.to_possible_value();
        let rates = |rate: fn(&Sample) -> f64| one.samples.iter().map(rate).collect::<Vec<f64>>();
        let ratio = |ratio: Option<Ratio>| json!({"ratio": ratio.map(|ratio| ratio.ratio), "interval": ratio.and_then(|ratio| ratio.interval)});
        json!({
            "bench": "sim",
            "row": name.as_ref().map(|name| name.get_name()),
            "label": row.label,
            "lane": one.lane.name,
            "unit": row.unit,
            "command": one.lane.words.join(" "),
            "threads": one.lane.threads,
            "per_cpu_second": {"median": median(one, per_cpu), "samples": rates(per_cpu)},
            "per_second": {"median": median(one, per_second), "samples": rates(per_second)},
            "simulated_seconds": one.samples.first().map(|sample| sample.simulated),
            "seconds": {"median": median(one, seconds), "samples": rates(seconds)},
            "cpu": ratio(compared.cpu),
            "wall": ratio(compared.wall),
            "goal": one.lane.goal.map(goal_text),
            "reached": one.lane.goal.and_then(|goal| is_reached(one, goal, compared)),
            "failure": one.failure,
            "load": self.machine.load,
        })
    }
}

fn per_cpu(sample: &Sample) -> f64 {
    sample.work / sample.cpu
}

fn per_second(sample: &Sample) -> f64 {
    sample.work / sample.wall
}

fn seconds(sample: &Sample) -> f64 {
    sample.wall
}

/// `None` if the lane has no sample.
fn median(one: &Measured<'_>, value: fn(&Sample) -> f64) -> Option<f64> {
    let values: Vec<f64> = one.samples.iter().map(value).collect();
    Summary::of(&values).map(|summary| summary.median)
}

/// A lane beside the first; nothing if it is the first itself, or one of the two failed.
fn compare(measured: &[Measured<'_>], one: &Measured<'_>) -> Compared {
    let base = measured.first().filter(|base| base.lane.name != one.lane.name);
    let base = base.filter(|base| base.failure.is_none() && one.failure.is_none());
    let ratio = |rate: fn(&Sample) -> f64| {
        let [first, second] = [one, base?].map(|side| side.samples.iter().map(rate).collect::<Vec<f64>>());
        Ratio::of_rounds(&first, &second)
    };
    Compared { cpu: ratio(per_cpu), wall: ratio(per_second) }
}

/// `None` if the other side of a ratio failed.
fn is_reached(one: &Measured<'_>, goal: Goal, compared: &Compared) -> Option<bool> {
    let at_least = |ratio: Option<Ratio>, goal: f64| ratio.map(|ratio| ratio.ratio >= goal);
    match goal {
        Goal::Cpu(goal) => at_least(compared.cpu, goal),
        Goal::Wall(goal) => at_least(compared.wall, goal),
        Goal::Seconds(goal) => median(one, seconds).map(|seconds| seconds <= goal),
    }
}

fn goal_text(goal: Goal) -> String {
    match goal {
        Goal::Cpu(goal) => format!(">= {goal} by CPU"),
        Goal::Wall(goal) => format!(">= {goal} by time"),
        Goal::Seconds(goal) => format!("<= {goal} s"),
    }
}

fn ratio_text(ratio: Option<Ratio>) -> String {
    let Some(Ratio { ratio, interval }) = ratio else { return String::new() };
    let digits = if ratio < 100.0 { 2 } else { 0 };
    match interval {
        Some((low, high)) => format!("{ratio:.digits$} ({low:.digits$} to {high:.digits$})"),
        None => format!("{ratio:.digits$}"),
    }
}

fn number(value: Option<f64>) -> String {
    match value {
        Some(value) if value < 100.0 => format!("{value:.2}"),
        Some(value) => thousands(value),
        None => "-".to_owned(),
    }
}

const METHOD: &str = "\
method: a process for each sample, the lanes of a row in turns; the same source of each program, only the sockets are swapped; medians; ratio of the medians to turmoil's
tokio: Sockeye's simulator with a runtime of tokio for each host; native: with its own tasks
turmoil steps every host once in each simulated millisecond, so links of 1 ms are its best case; its own default draws a latency up to 100 ms, 20 ms in the mean";
