//! The figures as a table, or as JSON lines.
//!
//! Must not know: how anything was measured.
//!
//! Invariant: a row is written as soon as it is there.
//!
//! Tests: below.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use serde_json::{Value, json};

use super::Row;
use crate::bench::machine::Machine;
use crate::bench::stats::Ratio;

/// Where the figures go: standard output, and a file for JSON lines if one is named.
pub struct Output {
    json: bool,
    file: Option<File>,
}

impl Output {
    pub fn new(json: bool, file: Option<&Path>) -> io::Result<Self> {
        Ok(Self { json, file: file.map(File::create).transpose()? })
    }

    /// What is going to be measured, and on what.
    pub fn begin(
        &mut self,
        machine: &Machine,
        names: &[&str],
        samples: usize,
        seconds: f64,
    ) -> io::Result<()> {
        let mut text = format!(
            "{machine}\nmethod: {samples} interleaved samples of {seconds} s each; the kernel's TCP with {}; medians; \
             ratios of medians with their 95 % intervals; cores of both ends together\n\n",
            names.join(", ")
        );
        text.push_str(&heading(names));
        if self.json {
            eprint!("{text}");
            return Ok(());
        }
        flushed(&text)
    }

    /// One kind of work.
    pub fn row(&mut self, names: &[&str], row: &Row) -> io::Result<()> {
        let line = format!("{}\n", object(names, row));
        if let Some(file) = &mut self.file {
            file.write_all(line.as_bytes())?;
        }
        flushed(&if self.json { line } else { text(names, row) })
    }
}

fn flushed(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

fn heading(names: &[&str]) -> String {
    let mut text = format!("{:<16}", "far end does");
    names.iter().for_each(|name| push(&mut text, format_args!("{name:>12} {:>6}", "cores")));
    names.iter().skip(1).for_each(|name| push(&mut text, format_args!("  {:<24}", format!("/ {name}"))));
    text.push_str("goal\n");
    text
}

fn text(names: &[&str], row: &Row) -> String {
    let mut text = format!("{:<16}", format!("{} {}", row.work.name(), row.work.unit()));
    for end in 0..names.len() {
        let median = row.summary(end).map_or(f64::NAN, |summary| summary.median);
        let digits = usize::from(median < 1000.0);
        let cores = row.cores(end).unwrap_or(f64::NAN);
        push(&mut text, format_args!("{median:>12.digits$} {cores:>6.2}"));
    }
    for end in 1..names.len() {
        push(&mut text, format_args!("  {:<24}", row.ratio(end).map_or_else(String::new, shown)));
    }
    let reached = row.ratio(1).is_some_and(|ratio| ratio.ratio >= row.work.goal());
    let verdict = if reached { "reached" } else { "missed" };
    push(&mut text, format_args!("{:.2} of {}: {verdict}\n", row.work.goal(), names[1]));
    text
}

fn shown(ratio: Ratio) -> String {
    let interval = ratio.interval.map_or_else(String::new, |(low, high)| format!(" ({low:.2} to {high:.2})"));
    format!("{:.2}{interval}", ratio.ratio)
}

fn object(names: &[&str], row: &Row) -> Value {
    let ends = names.iter().enumerate().map(|(end, name)| {
        let samples: Vec<f64> = row.samples[end].iter().map(|sample| sample.value).collect();
        let ratio = (end > 0).then(|| row.ratio(end)).flatten();
        json!({
            "name": name,
            "median": row.summary(end).map(|summary| summary.median),
            "min": row.summary(end).map(|summary| summary.min),
            "max": row.summary(end).map(|summary| summary.max),
            "cores": row.cores(end),
            "samples": samples,
            "sockeye_over_it": ratio.map(|ratio| ratio.ratio),
            "interval": ratio.and_then(|ratio| ratio.interval),
        })
    });
    json!({
        "bench": "tun",
        "work": row.work.name(),
        "unit": row.work.unit(),
        "goal": row.work.goal(),
        "ends": ends.collect::<Vec<_>>(),
    })
}

/// Writing to a string cannot fail.
fn push(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    let _ = text.write_fmt(arguments);
}

#[cfg(test)]
mod tests {
    use super::super::Work;
    use super::super::client::Sample;
    use super::*;

    #[test]
    fn a_row_says_whether_the_goal_was_reached_and_holds_every_sample() {
        let of = |value| vec![Sample { value, cores: 1.5 }; 3];
        let names = ["sockeye", "trivial", "kernel"];
        let row = Row { work: Work::Receive, samples: vec![of(51.0), of(60.0), of(40.0)] };
        let line = text(&names, &row);
        assert!(line.contains("0.85 (0.85 to 0.85)") && line.contains("1.27"), "{line}");
        assert!(line.ends_with("0.85 of trivial: reached\n"), "{line}");
        let slow = Row { work: Work::Receive, samples: vec![of(50.0), of(60.0), of(40.0)] };
        assert!(text(&names, &slow).ends_with("missed\n"));
        let object = object(&names, &row);
        assert_eq!(object["ends"][2]["samples"], json!([40.0, 40.0, 40.0]));
        assert_eq!(object["ends"][0]["sockeye_over_it"], Value::Null);
    }
}
