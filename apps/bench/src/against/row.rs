//! A row as both builds understand it.
//!
//! Purpose: the arguments that request it, and the parsing of an answer. A request has all its parameters on the command line, so
//! builds with other defaults measure the same. An answer matches the request if the workload has the same name and no parameter
//! that both builds name differs; a build may name more parameters than another.
//!
//! Does not depend on how a build is started.
//!
//! Tests: below.

use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use crate::args::{BenchArgs, On};
use crate::plan::Case;
use crate::provider::Side;
use crate::tun;
use crate::watchdog;
use crate::workloads::{Params, Workload, http};

/// The request to both builds.
#[derive(Clone, Debug)]
pub struct Row {
    /// The workload.
    pub workload: String,
    /// Its parameters as a person reads them.
    pub label: String,
    /// The command line.
    pub words: Vec<String>,
    /// The implementation of the sockets.
    on: &'static str,
    /// Whether a ratio of two values is meaningful.
    pub has_ratio: bool,
    /// Which program is asked, and how it answers.
    pub asked: Asked,
    /// How long one turn should take.
    pub planned: Duration,
    /// How long it may take: longer than a build's own watchdog lets it.
    pub limit: Duration,
}

/// Which program is asked for a row, and how it answers.
#[derive(Clone, Debug, PartialEq)]
pub enum Asked {
    /// The bench, which answers with a line for each side.
    Bench,
    /// The bench, for `tun`, which answers with a line for each kind of work.
    Tun,
    /// The build's program of the applications, which takes one sample, so many times.
    Apps {
        /// Samples of a turn.
        samples: usize,
        /// Parameters of the row.
        params: Params,
    },
}

/// One value of a row.
#[derive(Clone, Debug, Deserialize, PartialEq)]
pub struct Reading {
    /// The workload's name.
    pub workload: String,
    /// Its parameters.
    pub params: Params,
    on: String,
    /// Unit of the value.
    pub unit: String,
    /// Whether more is better.
    pub higher_is_better: bool,
    /// The median of the samples.
    #[serde(rename = "median")]
    pub value: f64,
}

/// Why there is no value.
#[derive(Clone, Debug, PartialEq)]
pub enum Fault {
    /// The build does not know the row.
    Unknown(String),
    /// It does, and failed.
    Failed(String),
}

impl Row {
    /// Of a case, with so many samples a turn. The kernel's sockets are only measured if nothing else is asked for.
    pub fn of(case: &Case, on: On, samples: usize) -> Self {
        let side = match on {
            On::Sockeye | On::Both => Side::Sockeye,
            On::Kernel => Side::Kernel,
        };
        let (asked, words) = match &case.workload {
            Workload::Http(spec) => (
                Asked::Apps { samples, params: case.workload.params() },
                http::words(side, spec, case.timing),
            ),
            _ => {
                let mut words = case.words();
                words.extend(["--on".to_owned(), side.name().to_owned()]);
                words.extend(sampling(samples, case.timing.timed.as_secs_f64()));
                (Asked::Bench, words)
            }
        };
        let planned = case.planned_time() * u32::try_from(samples).unwrap_or(u32::MAX) + START;
        Self {
            workload: case.workload.name().as_str().to_owned(),
            label: case.label(),
            words,
            on: side.name(),
            asked,
            has_ratio: case.workload.has_ratio(),
            planned,
            limit: planned + watchdog::GRACE * 2,
        }
    }

    /// Of a kind of work through a TUN device, with so many samples a turn.
    pub fn of_tun(args: &BenchArgs, work: tun::Work, samples: usize, seconds: f64) -> Self {
        let mut words = ["tun", "--work", work.name(), "--far", "sockeye"].map(str::to_owned).to_vec();
        let mut label = work.name().to_owned();
        if let Some(mtu) = args.mtu {
            words.extend(["--mtu".to_owned(), mtu.bytes().to_string()]);
            label += &format!(", MTU {}", mtu.bytes());
        }
        if let Some(time) = args.spin_us {
            let us = time.duration().as_micros().to_string();
            label += &format!(", spin {us} us");
            words.extend(["--spin-us".to_owned(), us]);
        }
        words.extend(sampling(samples, seconds));
        let one = Duration::from_secs_f64(seconds * (1.0 + tun::WARM_UP_SHARE));
        let planned = one * u32::try_from(samples).unwrap_or(u32::MAX) + START_OF_DEVICE;
        Self {
            workload: "tun".to_owned(),
            label,
            words,
            on: Side::Sockeye.name(),
            has_ratio: true,
            asked: Asked::Tun,
            planned,
            limit: planned + watchdog::GRACE * 2,
        }
    }

    /// Whether it takes the program of the applications.
    pub fn takes_apps(&self) -> bool {
        matches!(self.asked, Asked::Apps { .. })
    }

    /// The value in a build's lines of JSON.
    pub fn reading(&self, lines: &str) -> Result<Reading, Fault> {
        let nothing =
            || Fault::Unknown(format!("its answer has no line of {} on {}", self.workload, self.on));
        match &self.asked {
            Asked::Bench => self.line_of_bench(lines).ok_or_else(nothing),
            Asked::Tun => lines.lines().find_map(line_of_tun).ok_or_else(nothing),
            Asked::Apps { params, .. } => http::value(lines)
                .map(|value| Reading {
                    workload: self.workload.clone(),
                    params: params.clone(),
                    on: self.on.to_owned(),
                    unit: http::UNIT.to_owned(),
                    higher_is_better: true,
                    value,
                })
                .ok_or_else(nothing),
        }
    }

    fn line_of_bench(&self, lines: &str) -> Option<Reading> {
        let mut readings = lines.lines().filter_map(|line| serde_json::from_str::<Reading>(line).ok());
        readings.find(|one| one.on == self.on && one.workload == self.workload)
    }
}

/// The words that every build of the bench understands.
fn sampling(samples: usize, seconds: f64) -> [String; 5] {
    [
        "--samples".to_owned(),
        samples.to_string(),
        "--seconds".to_owned(),
        seconds.to_string(),
        "--json".to_owned(),
    ]
}

/// The far end's value in a line of `tun`.
fn line_of_tun(line: &str) -> Option<Reading> {
    let line: Value = serde_json::from_str(line).ok()?;
    let end = line.get("ends")?.as_array()?.iter().find(|end| end["name"] == "sockeye")?;
    let params = [("work", line.get("work")?), ("mtu", end.get("mtu")?)];
    Some(Reading {
        workload: "tun".to_owned(),
        params: params.map(|(name, value)| (name.to_owned(), value.clone())).into_iter().collect(),
        on: "sockeye".to_owned(),
        unit: line.get("unit")?.as_str()?.to_owned(),
        higher_is_better: true,
        value: end.get("median")?.as_f64()?,
    })
}

impl Reading {
    /// The first parameter in which another reading is of something else, as a sentence.
    pub fn differs_from(&self, other: &Reading) -> Option<String> {
        if self.unit != other.unit || self.higher_is_better != other.higher_is_better {
            return Some(format!("it measures in {} instead of {}", other.unit, self.unit));
        }
        let differing = |(name, value): (&String, _)| {
            let theirs = other.params.get(name).filter(|theirs| *theirs != value)?;
            Some(format!("it measures with {name} {theirs} instead of {value}"))
        };
        self.params.iter().find_map(differing)
    }
}

/// For a process to start and to end.
const START: Duration = Duration::from_millis(20);
/// For the namespaces and the device as well.
const START_OF_DEVICE: Duration = Duration::from_millis(150);

#[cfg(test)]
mod tests {
    use clap::Parser;
    use serde_json::{Value, json};

    use super::*;
    use crate::args::BenchArgs;
    use crate::machine::Machine;
    use crate::plan::{Effort, apps, default_set};

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: BenchArgs,
    }

    fn parse(words: &[String]) -> BenchArgs {
        Line::try_parse_from(std::iter::once("bench").chain(words.iter().map(String::as_str))).unwrap().args
    }

    #[test]
    fn the_words_of_each_row_ask_for_that_row_and_no_other() {
        let machine = Machine::read().unwrap();
        let shaped = [
            "stream --connections 3 --size 128 --nodelay --pin same --spin off",
            "rr --connections 7 --threads 3 --size 100",
            "rr --connections 1 --threads 1",
            "one-way --size 1K --nodelay",
            "crr --clients 3 --threads 2 --size 5",
            "mem --connections 50 --touch",
            "idle --connections 4 --spin off",
        ];
        let shaped = shaped.map(|line| {
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            parse(&words).plan().unwrap().cases.remove(0)
        });
        for case in default_set(None, Effort::QUICK).into_iter().chain(shaped) {
            let row = Row::of(&case, On::Both, 2);
            let plan = parse(&row.words).plan().unwrap();
            let [asked] = plan.cases.as_slice() else { panic!("{:?}", row.words) };
            assert_eq!(
                (asked.label(), asked.samples, plan.sides.len()),
                (case.label(), 2, 1),
                "{:?}",
                row.words
            );
            let same_time = asked.timing.timed == case.timing.timed;
            assert!(asked.params(&machine) == case.params(&machine) && same_time, "{:?}", row.words);
        }
    }

    fn row() -> Row {
        Row::of(&default_set(None, Effort::QUICK)[0], On::Both, 1)
    }

    fn line(workload: &str, on: &str, params: Value) -> Value {
        json!({"workload": workload, "on": on, "params": params, "unit": "Gbit/s", "higher_is_better": true,
            "median": 2.5, "samples": [2.5], "more": null})
    }

    #[test]
    fn the_line_of_the_right_workload_and_side_is_taken() {
        let lines = [
            "a line that is no JSON".to_owned(),
            line("rr", "sockeye", json!({})).to_string(),
            line("stream", "kernel", json!({})).to_string(),
            line("stream", "sockeye", json!({"size": 64})).to_string(),
            json!({"workload": "stream", "compare": ["sockeye", "kernel"]}).to_string(),
        ];
        let found = row().reading(&lines.join("\n")).unwrap();
        assert_eq!((found.value, found.params["size"].as_u64()), (2.5, Some(64)));
        for bad in
            ["", lines[1].as_str(), lines[2].as_str(), "{\"workload\": \"stream\", \"on\": \"sockeye\"}"]
        {
            let fault = row().reading(bad).unwrap_err();
            assert!(matches!(&fault, Fault::Unknown(why) if why.contains("stream on sockeye")), "{fault:?}");
        }
    }

    #[test]
    fn a_row_of_tun_asks_for_one_far_end_and_reads_its_median() {
        let args = parse(&["tun", "--mtu", "65535", "--spin-us", "0"].map(str::to_owned));
        let row = Row::of_tun(&args, tun::Work::Rr, 1, 0.05);
        let asked = parse(&row.words);
        assert_eq!(
            (asked.work.as_slice(), asked.far.len(), asked.samples),
            (&[tun::Work::Rr][..], 1, Some(1))
        );
        assert_eq!((asked.mtu, asked.spin_us.map(|time| time.duration())), (args.mtu, Some(Duration::ZERO)));
        assert_eq!(row.label, "rr, MTU 65535, spin 0 us");
        let ends = json!([{"name": "trivial", "mtu": 1500, "median": 9.0}, {"name": "sockeye", "mtu": 65535, "median": 3.0}]);
        let line = json!({"bench": "tun", "work": "rr", "unit": "1/s", "ends": ends});
        let found = row.reading(&format!("a line\n{line}\n")).unwrap();
        assert_eq!((found.value, found.unit.as_str(), &found.params["mtu"]), (3.0, "1/s", &json!(65535)));
        assert!(matches!(row.reading("{}"), Err(Fault::Unknown(_))));
    }

    #[test]
    fn a_row_of_an_application_is_one_sample_of_its_program() {
        let case = apps(Effort::QUICK).next().unwrap();
        let row = Row::of(&case, On::Kernel, 3);
        assert!(
            row.takes_apps() && row.words.starts_with(&["http1", "--on", "kernel"].map(str::to_owned)),
            "{row:?}"
        );
        let found = row.reading("{\"value\": 7.5, \"cpu\": 1.0}\n").unwrap();
        assert_eq!((found.value, &found.params), (7.5, &case.workload.params()));
        assert!(matches!(row.reading("no answer"), Err(Fault::Unknown(_))));
    }

    #[test]
    fn a_parameter_that_one_build_does_not_name_is_no_difference_and_another_value_is() {
        let of = |params| serde_json::from_value::<Reading>(line("stream", "sockeye", params)).unwrap();
        let ours = of(json!({"size": 64, "connections": 1}));
        assert_eq!(ours.differs_from(&of(json!({"size": 64, "reading": "plain"}))), None);
        let other = ours.differs_from(&of(json!({"size": 128, "connections": 1}))).unwrap();
        assert!(other.contains("size 128 instead of 64"), "{other}");
        let mut counted = of(json!({}));
        counted.unit = "writes/s".to_owned();
        assert!(ours.differs_from(&counted).unwrap().contains("writes/s instead of Gbit/s"));
    }
}
