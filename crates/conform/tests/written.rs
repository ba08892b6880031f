//! The written scenarios, on the kernel and on Sockeye.
//!
//! Where the test may not make a namespace and a device, it says so and runs them on Sockeye alone.

mod common;

use std::path::{Path, PathBuf};

use sockeye_conform::campaign::{self, Outcome};
use sockeye_conform::compare::report;
use sockeye_conform::driven;
use sockeye_conform::known::KNOWN;
use sockeye_conform::scenario::Scenario;
use sockeye_conform::trace::What;

const PAGE: &str = include_str!("../../../docs/reference/differences.md");

/// How often a scenario that has not shown its known difference is run again. Some show it only at most phases of the kernel's ticks:
/// `round-trip-of-a-repetition` in five runs of six.
const TRIES_TO_SHOW: usize = 8;

fn written() -> Vec<(String, Scenario)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = entries.filter(|path| path.is_file()).collect();
    files.sort();
    let read = |path: PathBuf| {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&path).unwrap();
        let scenario = text.parse().unwrap_or_else(|error| panic!("{name}: {error}"));
        (name, scenario)
    };
    files.into_iter().map(read).collect()
}

#[test]
fn written_scenarios_go_as_on_linux() {
    let (names, scenarios): (Vec<String>, Vec<Scenario>) = written().into_iter().unzip();
    assert!(scenarios.len() > 40, "the scenarios were not found");
    let Some(outcomes) = common::outcomes("written scenarios", &scenarios) else { return };
    let mut differing = String::new();
    for ((name, scenario), outcome) in names.iter().zip(&scenarios).zip(&outcomes) {
        if let Outcome::Differs(found) = outcome {
            let difference = found.1.difference.as_ref().unwrap();
            differing +=
                &format!("{name}:\n{}\n", report(scenario, &found.0, &driven::run(scenario), difference));
        }
    }
    assert!(differing.is_empty(), "{differing}");
    let busy = outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Disturbed)).count();
    println!("{} scenarios, {busy} of them on a machine too busy", names.len());
    let mut hidden: Vec<(&str, Scenario)> = Vec::new();
    for known in KNOWN {
        let index = names.iter().position(|name| name == known.scenario);
        let index = index.unwrap_or_else(|| panic!("{}: no scenario {}", known.name, known.scenario));
        if !shows(&outcomes[index], known.name) {
            hidden.push((known.name, scenarios[index].clone()));
        }
    }
    for _ in 0..TRIES_TO_SHOW {
        let again: Vec<Scenario> = hidden.iter().map(|(_, scenario)| scenario.clone()).collect();
        let mut outcomes = campaign::run(&again).unwrap().into_iter();
        hidden.retain(|(name, _)| !shows(&outcomes.next().unwrap(), name));
    }
    let names: Vec<&str> = hidden.iter().map(|(name, _)| *name).collect();
    assert!(names.is_empty(), "the scenarios of these known differences do not show them: {names:?}");
}

/// Whether this outcome shows a known difference. Where the machine was too busy, this is not known.
fn shows(outcome: &Outcome, name: &str) -> bool {
    match outcome {
        Outcome::Same(met) => met.contains(&name),
        Outcome::Disturbed => true,
        Outcome::Differs(_) => false,
    }
}

#[test]
fn each_known_difference_has_its_row() {
    for known in KNOWN {
        let is_row = |line: &str| {
            line.starts_with(&format!("| {} |", known.name))
                && line.ends_with(&format!("| `{}` |", known.scenario))
        };
        assert!(
            PAGE.lines().any(is_row),
            "differences.md has no row of {:?} with {:?}",
            known.name,
            known.scenario
        );
    }
}

/// An event without a socket does nothing on either side.
#[test]
fn each_call_of_a_written_scenario_has_a_socket() {
    for (name, scenario) in written() {
        for record in driven::run(&scenario).records {
            let is_lost = matches!(&record.what, What::Returned(_, Err(number)) if *number == libc::EBADF);
            assert!(!is_lost, "{name}: {}", record.line(&scenario));
        }
    }
}

#[test]
fn a_run_on_sockeye_is_the_same_each_time() {
    for (name, scenario) in written() {
        assert_eq!(driven::run(&scenario).records, driven::run(&scenario).records, "{name}");
    }
}
