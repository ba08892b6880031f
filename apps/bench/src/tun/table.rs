//! The figures as a table, or as JSON lines.
//!
//! Does not depend on how anything was measured.
//!
//! Invariant: the result of a kind of work is written as soon as it is available.
//!
//! Tests: below.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Write};

use serde_json::{Value, json};
use sockeye_shared::file;

use super::{Goal, Row};
use crate::args::BenchArgs;
use crate::machine::Machine;
use crate::stats::Ratio;

/// Where the figures go: standard output, and a file for JSON lines if one is named.
pub struct Output {
    json: bool,
    file: Option<File>,
    shows_goals: bool,
}

impl Output {
    pub fn new(args: &BenchArgs) -> io::Result<Self> {
        let file = args.out.as_deref().map(file::create).transpose()?;
        Ok(Self { json: args.json, file, shows_goals: args.goals })
    }

    /// The kinds of work to be measured, and the machine.
    pub fn begin(&mut self, machine: &Machine, samples: usize, seconds: f64) -> io::Result<()> {
        let mut text = format!(
            "{machine}\nmethod: {samples} interleaved samples of {seconds} s each, the kernel's TCP with each far end; \
             medians; ratios of medians with their 95 % intervals; cores of both ends together, and the value for each of them\n"
        );
        push(
            &mut text,
            format_args!(
                "\n{:<16} {:<10}{:>6} {:>12} {:>6} {:>10}  {:<24}{}\n",
                "far end does",
                "far end",
                "MTU",
                "",
                "cores",
                "by core",
                "sockeye / it",
                if self.shows_goals { "goal" } else { "" }
            ),
        );
        if self.json {
            eprint!("{text}");
            return Ok(());
        }
        flushed(&text)
    }

    /// One kind of work.
    pub fn row(&mut self, row: &Row) -> io::Result<()> {
        let line = format!("{}\n", object(row));
        if let Some(file) = &mut self.file {
            file.write_all(line.as_bytes())?;
        }
        flushed(&if self.json { line } else { text(row, self.shows_goals) })
    }
}

fn flushed(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

/// A line for each end.
fn text(row: &Row, shows_goals: bool) -> String {
    let mut text = String::new();
    for (far, about) in row.ends.iter().zip(&row.about) {
        if let Some(about) = about {
            push(&mut text, format_args!("{}: {about}\n", far.name()));
        }
    }
    for (index, far) in row.ends.iter().enumerate() {
        let work = format!("{} {}", row.work.name(), row.work.unit());
        let work = if index == 0 { work.as_str() } else { "" };
        let value = match row.summary(index) {
            Some(found) if row.is_whole(index) => figure(found.median),
            Some(_) | None => "failed".to_owned(),
        };
        let cores = row.cores(index).unwrap_or(f64::NAN);
        let by_core = row.by_core(index).map_or_else(String::new, figure);
        let ratio = row.ratio(index);
        let (shown, goal) =
            (ratio.map(shown), far.goal(row.work).filter(|_| shows_goals).map(|goal| verdict(goal, ratio)));
        let mut line = String::new();
        push(
            &mut line,
            format_args!(
                "{work:<16} {:<10}{:>6} {value:>12} {cores:>6.2} {by_core:>10}  {:<24}{}",
                far.name(),
                row.mtus[index].bytes(),
                shown.unwrap_or_default(),
                goal.unwrap_or_default()
            ),
        );
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// With as many digits as mean something.
fn figure(value: f64) -> String {
    let digits = usize::from(value < 1000.0);
    format!("{value:.digits$}")
}

/// The goal and its outcome.
fn verdict(goal: Goal, ratio: Option<Ratio>) -> String {
    let word = |least: f64| match ratio {
        Some(ratio) if ratio.ratio >= least => "reached",
        Some(_) => "MISSED",
        None => "not measured",
    };
    let must = format!(">= {} {}", goal.must, word(goal.must));
    goal.aim.map_or(must.clone(), |aim| format!("{must}, aim {aim} {}", word(aim).to_lowercase()))
}

fn shown(ratio: Ratio) -> String {
    let interval = ratio.interval.map_or_else(String::new, |(low, high)| format!(" ({low:.2} to {high:.2})"));
    format!("{:.2}{interval}", ratio.ratio)
}

fn object(row: &Row) -> Value {
    let ends = row.ends.iter().enumerate().map(|(end, far)| {
        let samples: Vec<f64> = row.samples[end].iter().map(|sample| sample.value).collect();
        let (ratio, goal) = (row.ratio(end), far.goal(row.work));
        json!({
            "name": far.name(),
            "mtu": row.mtus[end].bytes(),
            "about": row.about[end],
            "median": row.summary(end).map(|summary| summary.median),
            "min": row.summary(end).map(|summary| summary.min),
            "max": row.summary(end).map(|summary| summary.max),
            "cores": row.cores(end),
            "by_core": row.by_core(end),
            "failed": !row.is_whole(end),
            "samples": samples,
            "sockeye_over_it": ratio.map(|ratio| ratio.ratio),
            "interval": ratio.and_then(|ratio| ratio.interval),
            "goal": goal.map(|goal| goal.must),
            "aim": goal.and_then(|goal| goal.aim),
        })
    });
    json!({
        "bench": "tun",
        "work": row.work.name(),
        "unit": row.work.unit(),
        "ends": ends.collect::<Vec<_>>(),
    })
}

/// Writing to a string cannot fail.
fn push(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    let _ = text.write_fmt(arguments);
}

#[cfg(test)]
mod tests {
    use super::super::client::Sample;
    use super::super::{Far, Mtu, Work, peers};
    use super::*;

    fn row(work: Work, values: [f64; 4]) -> Row {
        let ends = vec![Far::Sockeye, Far::Trivial, Far::Kernel, Far::Peer(peers::Kind::Gvisor)];
        let samples = values.map(|value| vec![Sample { value, cores: 1.5 }; 3]).to_vec();
        let about = vec![None, None, None, Some("a stack".to_owned())];
        let mtus = vec![Mtu::default(), Mtu::default(), Mtu::default(), Mtu::MAX];
        Row { work, ends, mtus, about, samples }
    }

    #[test]
    fn each_end_has_a_line_with_its_ratio_and_goal_and_json_has_every_sample() {
        let found = row(Work::Receive, [51.0, 60.0, 40.0, 17.0]);
        let text = text(&found, true);
        let (peers, lines) = text.split_once('\n').unwrap();
        assert_eq!(peers, "gvisor: a stack");
        let lines: Vec<&str> = lines.lines().collect();
        assert!(
            lines[0].starts_with("receive Gbit/s   sockeye     1500 ")
                && lines[0].ends_with("1.50       34.0"),
            "{lines:?}"
        );
        assert!(lines[1].ends_with("0.85 (0.85 to 0.85)     >= 0.85 reached"), "{lines:?}");
        assert!(lines[2].ends_with("1.27 (1.27 to 1.27)"), "{lines:?}");
        assert!(lines[3].ends_with("3.00 (3.00 to 3.00)     >= 2 reached, aim 4 missed"), "{lines:?}");
        let object = object(&found);
        assert_eq!(object["ends"][2]["samples"], json!([40.0, 40.0, 40.0]));
        assert_eq!((&object["ends"][0]["mtu"], &object["ends"][3]["mtu"]), (&json!(1500), &json!(65_535)));
        assert_eq!(object["ends"][0]["sockeye_over_it"], Value::Null);
        assert_eq!((&object["ends"][3]["goal"], &object["ends"][3]["aim"]), (&json!(2.0), &json!(4.0)));
        assert_eq!((&object["ends"][1]["aim"], &object["ends"][2]["goal"]), (&Value::Null, &Value::Null));
    }

    #[test]
    fn goals_are_missed_below_their_value_and_open_if_an_end_failed() {
        let text_of = |work, values| text(&row(work, values), true);
        assert!(text_of(Work::Send, [44.0, 60.0, 40.0, 30.0]).contains(">= 0.75 MISSED"));
        assert!(text_of(Work::Send, [45.0, 60.0, 40.0, 30.0]).contains(">= 0.75 reached"));
        assert!(text_of(Work::Rr, [2000.0, 2000.0, 1.0, 500.0]).contains("aim 4 reached"));
        let mut short = row(Work::Rr, [2000.0, 2000.0, 1.0, 500.0]);
        // In a later round, and in all.
        for rounds in [1, 0] {
            short.samples[3].truncate(rounds);
            let text = text(&short, true);
            assert!(
                text.contains("failed") && text.ends_with(">= 2 not measured, aim 4 not measured\n"),
                "{text}"
            );
            let end = &object(&short)["ends"][3];
            assert_eq!((&end["failed"], &end["sockeye_over_it"]), (&json!(true), &Value::Null));
        }
    }
}
