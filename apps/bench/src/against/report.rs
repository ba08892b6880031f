//! The results, as a table or as lines of JSON.
//!
//! Purpose: a line for each row, then the geometric mean, then the rows that could not be compared. A ratio above 1 means that
//! this build is better, also if less is better.
//!
//! Does not depend on how samples are taken.
//!
//! Invariant: every requested row is in the output.
//!
//! Tests: below; `tests/bench/against.rs`.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use sockeye_shared::file;

use super::build::Build;
use super::rounds::{Course, OTHER, THIS, geometric_mean, spelled};
use super::row::Fault;
use crate::machine::Machine;
use crate::report::thousands;
use crate::stats::{Ratio, Summary};

/// The destination: standard output, and a file for JSON lines if one is named.
pub struct Report {
    json: bool,
    file: Option<File>,
    names: [String; 2],
}

impl Report {
    /// To standard output, and to `file` if given.
    pub fn new(json: bool, file: Option<&Path>, builds: &[Build; 2]) -> io::Result<Self> {
        let names = [builds[THIS].name.clone(), builds[OTHER].name.clone()];
        Ok(Self { json, file: file.map(file::create).transpose()?, names })
    }

    /// Prints the rows to be measured, the machine, and the estimated time.
    pub fn begin(&self, machine: &Machine, rows: usize, rounds: usize, planned: Duration) -> io::Result<()> {
        let text = format!(
            "{machine}\n\
             method: {} and {} in turns, {rounds} rounds in the order ABBA, each turn in a process of its own; ratio above 1: \
             this build is better; median of the rounds' ratios with its 95 % interval\n\
             {rows} row(s), planned for {}\n",
            self.names[THIS],
            self.names[OTHER],
            spelled(planned)
        );
        if self.json {
            eprint!("{text}");
            return Ok(());
        }
        written(&text)
    }

    /// Everything that came out.
    pub fn end(&mut self, courses: &[Course]) -> io::Result<()> {
        let lines: String = self.objects(courses).iter().map(|object| format!("{object}\n")).collect();
        if let Some(file) = &mut self.file {
            file.write_all(lines.as_bytes())?;
        }
        written(&if self.json { lines } else { text(courses) })
    }

    fn objects(&self, courses: &[Course]) -> Vec<Value> {
        let against = &self.names[OTHER];
        let mut objects: Vec<Value> = courses.iter().map(|course| object(course, against)).collect();
        let (mean, rows) = geometric_mean(courses);
        objects.push(json!({
            "against": against,
            "geometric_mean": mean.map(|mean| mean.ratio),
            "ratio_lo": low(mean),
            "ratio_hi": high(mean),
            "rows": rows,
            "below": below(courses),
        }));
        objects
    }
}

fn written(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

fn low(ratio: Option<Ratio>) -> Option<f64> {
    ratio?.interval.map(|(low, _)| low)
}

fn high(ratio: Option<Ratio>) -> Option<f64> {
    ratio?.interval.map(|(_, high)| high)
}

/// Whether the whole interval lies below the mark.
fn is_below(course: &Course) -> bool {
    high(course.ratio()).is_some_and(|high| high < MARK)
}

/// The rows that do.
fn below(courses: &[Course]) -> Vec<String> {
    courses.iter().filter(|course| is_below(course)).map(name).collect()
}

fn name(course: &Course) -> String {
    format!("{} ({})", course.row.workload, course.row.label)
}

fn object(course: &Course, against: &str) -> Value {
    let (workload, row) = (&course.row.workload, &course.row.label);
    if let Some((index, fault)) = &course.end {
        let build = if *index == THIS { "this" } else { "other" };
        let (kind, why) = match fault {
            Fault::Unknown(why) => ("unknown", why),
            Fault::Failed(why) => ("failed", why),
        };
        return json!({"against": against, "workload": workload, "row": row, "out": kind, "build": build, "why": why});
    }
    let side = |index: usize| {
        let values = &course.values[index];
        json!({"median": Summary::of(values).map(|summary| summary.median), "samples": values})
    };
    let ratio = course.ratio();
    json!({
        "against": against,
        "workload": workload,
        "row": row,
        "params": course.first.as_ref().map(|first| &first.params),
        "unit": course.first.as_ref().map(|first| &first.unit),
        "higher_is_better": course.first.as_ref().map(|first| first.higher_is_better),
        "this": side(THIS),
        "other": side(OTHER),
        "ratio": ratio.map(|ratio| ratio.ratio),
        "ratio_lo": low(ratio),
        "ratio_hi": high(ratio),
        "below": is_below(course),
    })
}

fn text(courses: &[Course]) -> String {
    let mut text = format!(
        "\n{:<8} {:<32} {:>12} {:>12} {:<14} {:>7} {:<16}\n",
        "workload", "row", "this", "other", "", "ratio", "95 %"
    );
    for course in courses.iter().filter(|course| course.end.is_none()) {
        let unit = course.first.as_ref().map_or("", |first| first.unit.as_str());
        let value =
            |index: usize| figure(Summary::of(&course.values[index]).map(|summary| summary.median), unit);
        let (ratio, mark) = (course.ratio(), if is_below(course) { "BELOW 0.85" } else { "" });
        let line = format!(
            "{:<8} {:<32} {:>12} {:>12} {unit:<14} {:>7} {:<16}{mark}",
            course.row.workload,
            course.row.label,
            value(THIS),
            value(OTHER),
            ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{:.3}", ratio.ratio)),
            interval(ratio),
        );
        text += line.trim_end();
        text.push('\n');
    }
    let (mean, rows) = geometric_mean(courses);
    if let Some(mean) = mean {
        text += format!("\ngeometric mean of {rows} row(s): {:.3} {}", mean.ratio, interval(Some(mean)))
            .trim_end();
        text.push('\n');
    }
    text += &match below(courses).as_slice() {
        [] => "below 0.85 with the whole interval: none\n".to_owned(),
        names => format!("below 0.85 with the whole interval: {}\n", names.join(", ")),
    };
    for course in courses {
        if let Some((index, fault)) = &course.end {
            let build = if *index == THIS { "this build" } else { "the other build" };
            let reason = match fault {
                Fault::Unknown(why) => format!("{build} does not know it: {why}"),
                Fault::Failed(why) => format!("{build} failed: {why}"),
            };
            text += &format!("not compared: {}: {reason}\n", name(course));
        }
    }
    text
}

fn interval(ratio: Option<Ratio>) -> String {
    ratio
        .and_then(|ratio| ratio.interval)
        .map_or_else(String::new, |(low, high)| format!("[{low:.3}-{high:.3}]"))
}

/// With as many digits as mean something.
fn figure(value: Option<f64>, unit: &str) -> String {
    match value {
        Some(value) if matches!(unit, "Gbit/s" | "CPU ms/s") => format!("{value:.2}"),
        Some(value) => thousands(value),
        None => "-".to_owned(),
    }
}

/// A row that is below this with its whole interval is marked.
const MARK: f64 = 0.85;

#[cfg(test)]
mod tests {
    use super::super::rounds;
    use super::*;

    #[test]
    fn every_row_is_in_the_output_and_those_below_are_marked() {
        let worse = rounds::testing::after("rr", &[(80.0, 100.0); 20]);
        let better = rounds::testing::after("crr", &[(3000.0, 1000.0); 20]);
        let mut out = rounds::testing::after("one-way", &[]);
        out.end = Some((OTHER, Fault::Unknown("invalid value".to_owned())));
        let mut failed = rounds::testing::after("mem", &[]);
        failed.end = Some((THIS, Fault::Failed("no memory".to_owned())));
        let courses = [worse, better, out, failed];
        let text = text(&courses);
        let line = |start: &str| text.lines().find(|line| line.starts_with(start)).unwrap_or_default();
        assert!(line("rr ").ends_with("0.800 [0.800-0.800]   BELOW 0.85"), "{text}");
        assert!(line("crr ").contains("3,000") && line("crr ").ends_with("3.000 [3.000-3.000]"), "{text}");
        assert!(line("geometric mean of 2 row(s)").contains("1.549 [1.549-1.549]"), "{text}");
        assert!(line("below 0.85").contains("rr (") && !line("below 0.85").contains("crr"), "{text}");
        for part in [
            "not compared: one-way (1 conn): the other build does not know it: invalid value",
            "not compared: mem (1 conn): this build failed: no memory",
        ] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
        let report = Report { json: true, file: None, names: ["this build".to_owned(), "old".to_owned()] };
        let objects = report.objects(&courses);
        assert_eq!(objects.len(), 5);
        assert_eq!((&objects[0]["below"], &objects[1]["below"]), (&json!(true), &json!(false)));
        assert_eq!((&objects[2]["out"], &objects[3]["out"]), (&json!("unknown"), &json!("failed")));
        assert_eq!((&objects[4]["rows"], &objects[4]["below"]), (&json!(2), &json!(["rr (1 conn)"])));
        assert!(objects.iter().all(|object| object["against"] == "old"));
    }

    #[test]
    fn an_interval_that_reaches_the_mark_is_not_marked() {
        let rounds: Vec<(f64, f64)> = (0..20).map(|n| (if n < 10 { 70.0 } else { 90.0 }, 100.0)).collect();
        let course = rounds::testing::after("rr", &rounds);
        assert!(course.ratio().unwrap().ratio < MARK && !is_below(&course));
    }
}
