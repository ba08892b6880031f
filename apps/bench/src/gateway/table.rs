//! The figures as a table, or as JSON lines.
//!
//! Does not depend on how anything was measured. Tests: below.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use serde_json::{Value, json};
use sockeye_shared::file;

use super::peers::Kind;
use super::work::{Goal, Work};
use crate::machine::Machine;
use crate::stats::{Ratio, Summary};

/// The samples of a kind of work.
pub struct Row {
    pub work: Work,
    pub gateways: Vec<(Kind, Vec<f64>)>,
    /// Those through which the work failed, and how. They have no samples.
    pub failed: Vec<(Kind, String)>,
}

/// Where the figures go.
pub struct Output {
    json: bool,
    file: Option<File>,
}

impl Output {
    pub fn new(json: bool, out: Option<&Path>) -> io::Result<Self> {
        Ok(Self { json, file: out.map(file::create).transpose()? })
    }

    /// The machine, and what is measured.
    pub fn begin(
        &mut self,
        machine: &Machine,
        versions: &[String],
        rounds: u32,
        seconds: u32,
    ) -> io::Result<()> {
        let text = format!(
            "{machine}\ngateways: {}\nmethod: {rounds} interleaved rounds, samples of {seconds} s; medians [least-most]; the ratio is of medians, to the best \
             peer, with its 95 % interval\n\n{:<14} {:<12} {:<12} {:>28}  {}\n",
            versions.join("; "),
            "work",
            "unit",
            "gateway",
            "",
            "sockeye / best peer"
        );
        if self.json {
            eprint!("{text}")
        } else {
            io::stdout().write_all(text.as_bytes())?;
        }
        io::stdout().flush()
    }

    /// One kind of work.
    pub fn row(&mut self, row: &Row) -> io::Result<()> {
        let line = format!("{}\n", row.object());
        if let Some(file) = &mut self.file {
            file.write_all(line.as_bytes())?;
        }
        let mut stdout = io::stdout().lock();
        stdout.write_all(if self.json { line } else { row.text() }.as_bytes())?;
        stdout.flush()
    }
}

impl Row {
    fn samples(&self, kind: Kind) -> Option<&[f64]> {
        self.gateways.iter().find(|(it, _)| *it == kind).map(|(_, samples)| samples.as_slice())
    }

    /// The peer that is the best at it.
    fn best(&self) -> Option<(Kind, &[f64])> {
        let is_less_better = matches!(self.work.goal(), Goal::Most(_));
        let median = |samples: &[f64]| Summary::of(samples).map_or(0.0, |summary| summary.median);
        let peers = self.gateways.iter().filter(|(kind, _)| kind.is_peer());
        let by = |a: &&(Kind, Vec<f64>), b: &&(Kind, Vec<f64>)| median(&a.1).total_cmp(&median(&b.1));
        let best = if is_less_better { peers.min_by(by) } else { peers.max_by(by) };
        best.map(|(kind, samples)| (*kind, samples.as_slice()))
    }

    fn ratio(&self) -> Option<(Kind, Ratio)> {
        let (kind, peer) = self.best()?;
        Some((kind, Ratio::of_rounds(self.samples(Kind::Sockeye)?, peer)?))
    }

    /// Whether the goal is reached; `None` if there is nothing to compare with.
    fn reaches(&self) -> Option<bool> {
        match self.work.goal() {
            Goal::Ratio(goal) => self.ratio().map(|(_, ratio)| ratio.ratio >= goal),
            Goal::Most(most) => {
                Summary::of(self.samples(Kind::Sockeye)?).map(|summary| summary.median <= most)
            }
        }
    }

    fn object(&self) -> Value {
        let gateways = self.gateways.iter().map(|(kind, samples)| {
            let median = Summary::of(samples).map(|summary| summary.median);
            json!({ "gateway": kind.name(), "median": median, "samples": samples })
        });
        let failed = self.failed.iter().map(|(kind, how)| json!({ "gateway": kind.name(), "error": how }));
        let ratio = self.ratio().map(
            |(kind, ratio)| json!({ "to": kind.name(), "ratio": ratio.ratio, "interval": ratio.interval }),
        );
        json!({
            "benchmark": "gateway",
            "work": self.work.name(),
            "unit": self.work.unit(),
            "gateways": gateways.collect::<Vec<_>>(),
            "failed": failed.collect::<Vec<_>>(),
            "ratio": ratio,
            "reached": self.reaches(),
        })
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for (index, (kind, samples)) in self.gateways.iter().enumerate() {
            let Some(summary) = Summary::of(samples) else { continue };
            let [median, min, max] = [summary.median, summary.min, summary.max].map(figure);
            let (work, unit) = if index == 0 { (self.work.name(), self.work.unit()) } else { ("", "") };
            let values = format!("{median} [{min}-{max}]");
            let ratio = if *kind == Kind::Sockeye { self.verdict() } else { String::new() };
            let line = format!("{work:<14} {unit:<12} {:<12} {values:>28}  {ratio}", kind.name());
            text += line.trim_end();
            text.push('\n');
        }
        for (kind, how) in &self.failed {
            let work = if text.is_empty() { self.work.name() } else { "" };
            text += &format!("{work:<14} {:<12} {:<12} {:>28}  {how}\n", "", kind.name(), "failed");
        }
        text
    }

    fn verdict(&self) -> String {
        let mut text = match self.ratio() {
            Some((kind, ratio)) => {
                let interval = ratio.interval.map(|(lo, hi)| format!(" [{lo:.2}-{hi:.2}]"));
                format!("{:.2}{} of {}", ratio.ratio, interval.unwrap_or_default(), kind.name())
            }
            None => String::new(),
        };
        let goal = match self.work.goal() {
            Goal::Ratio(goal) => format!("goal {goal}"),
            Goal::Most(most) => format!("goal at most {most}"),
        };
        let said = match self.reaches() {
            Some(true) => "reached",
            Some(false) => "missed",
            None => "not to be told",
        };
        if !text.is_empty() {
            text += ", ";
        }
        text + &format!("{goal}: {said}")
    }
}

/// Three digits or more.
fn figure(value: f64) -> String {
    match value.abs() {
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_names_the_best_peer_and_whether_the_goal_is_reached() {
        let row = Row {
            work: Work::KeepAlive1,
            gateways: vec![
                (Kind::Sockeye, vec![140.0, 130.0, 135.0]),
                (Kind::Slirp4netns, vec![100.0, 100.0, 100.0]),
                (Kind::Pasta, vec![50.0, 50.0, 50.0]),
                (Kind::None, vec![500.0, 500.0, 500.0]),
            ],
            failed: Vec::new(),
        };
        let text = row.text();
        assert!(text.contains("1.35 [1.30-1.40] of slirp4netns, goal 1.3: reached"), "{text}");
        assert_eq!(text.lines().count(), 4);
        assert_eq!(row.object()["reached"], true);
        let alone = Row { work: Work::Idle, gateways: vec![(Kind::Sockeye, vec![70.0])], failed: Vec::new() };
        assert!(alone.text().contains("goal at most 64: missed"), "{}", alone.text());
        assert_eq!(alone.object()["ratio"], Value::Null);
    }

    #[test]
    fn a_peer_that_fails_is_named_and_the_others_are_compared() {
        let row = Row {
            work: Work::Out,
            gateways: vec![(Kind::Sockeye, vec![9.0, 9.0]), (Kind::Pasta, vec![3.0, 3.0])],
            failed: vec![(Kind::Slirp4netns, "iperf3: no".to_owned())],
        };
        let text = row.text();
        assert!(text.contains("3.00") && text.contains("of pasta"), "{text}");
        let failed = text.lines().find(|line| line.contains("slirp4netns"));
        assert!(failed.is_some_and(|line| line.contains("failed  iperf3: no")), "{text}");
        assert_eq!(row.object()["failed"][0]["gateway"], "slirp4netns");
        let ours =
            Row { work: Work::Out, gateways: Vec::new(), failed: vec![(Kind::Sockeye, String::new())] };
        assert!(ours.text().starts_with("out ") && ours.object()["reached"].is_null());
    }
}
