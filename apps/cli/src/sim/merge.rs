//! `sockeye sim merge`: joins the results of seeds that several machines ran.
//!
//! Each line of a file is a seed's outcome, as `SOCKEYE_SIM_RESULTS` has tests write it. What counts is whether every seed was run, whether all passed, and whether a seed that was
//! run twice was the same run. Does not depend on the simulator. Tests: below, `apps/cli/tests/cli/merge.rs`.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde::{Deserialize, Serialize};
use sockeye_shared::file;

/// The files, and what to make of them.
#[derive(Args, Clone, Debug)]
pub struct MergeArgs {
    /// Files of results, one JSON object a line; of a folder all files that end in .jsonl
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Seeds that each test must have, as FIRST..END
    #[arg(long, value_parser = range)]
    seeds: Option<Range<u64>>,
    /// Write all results, ordered by test and seed, each once
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// A seed's outcome.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
struct Outcome {
    test: String,
    seed: u64,
    outcome: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    simulated_ns: u64,
    events: u64,
    digest: String,
}

/// All outcomes of a test.
#[derive(Default)]
struct Test {
    seeds: BTreeMap<u64, Outcome>,
    /// Seeds of which two runs were not the same.
    unsteady: Vec<u64>,
}

type Tests = BTreeMap<String, Test>;

/// Seeds that are listed of each kind.
const LISTED_MAX: usize = 20;

fn range(text: &str) -> Result<Range<u64>, String> {
    let ends = text.split_once("..").and_then(|(first, end)| Some((first.parse().ok()?, end.parse().ok()?)));
    match ends {
        Some((first, end)) if first < end => Ok(first..end),
        _ => Err("expected FIRST..END, such as 0..1000".into()),
    }
}

/// Joins the files, and reports. Exit code 1 if a seed failed, is missing, or was not the same twice.
///
/// # Errors
/// If a file cannot be read or written, or has a line that is no result.
pub fn merge(args: &MergeArgs) -> io::Result<ExitCode> {
    let mut tests = Tests::new();
    for path in &args.files {
        for path in files_of(path).map_err(|error| file::at(path, error))? {
            let text = fs::read_to_string(&path).map_err(|error| file::at(&path, error))?;
            add(&mut tests, &text)
                .map_err(|error| file::at(&path, io::Error::new(io::ErrorKind::InvalidData, error)))?;
        }
    }
    let (report, is_good) = report(&tests, args.seeds.as_ref());
    io::stdout().lock().write_all(report.as_bytes())?;
    if let Some(path) = &args.out {
        file::write(path, lines(&tests)?)?;
    }
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn files_of(path: &Path) -> io::Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(path)? {
        let file = entry?.path();
        if file.extension().is_some_and(|ending| ending == "jsonl") {
            files.push(file);
        }
    }
    files.sort();
    Ok(files)
}

fn add(tests: &mut Tests, text: &str) -> Result<(), String> {
    for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty()) {
        let one: Outcome = serde_json::from_str(line).map_err(|error| format!("line {number}: {error}"))?;
        let test = tests.entry(one.test.clone()).or_default();
        let known = test.seeds.entry(one.seed).or_insert_with(|| one.clone());
        if *known != one && !test.unsteady.contains(&one.seed) {
            test.unsteady.push(one.seed);
        }
        // Of different outcomes, the failure counts.
        if one.outcome != "passed" {
            *known = one;
        }
    }
    Ok(())
}

fn list(seeds: &[u64]) -> String {
    let mut listed: Vec<String> = seeds.iter().take(LISTED_MAX).map(u64::to_string).collect();
    if seeds.len() > LISTED_MAX {
        listed.push(format!("and {} more", seeds.len() - LISTED_MAX));
    }
    listed.join(", ")
}

/// The report, and whether all is good.
fn report(tests: &Tests, wanted: Option<&Range<u64>>) -> (String, bool) {
    let (mut text, mut is_good) = (String::new(), true);
    for (name, test) in tests {
        let failed: Vec<&Outcome> = test.seeds.values().filter(|one| one.outcome != "passed").collect();
        let hours =
            test.seeds.values().map(|one| u128::from(one.simulated_ns)).sum::<u128>() / 3_600_000_000_000;
        let (all, bad) = (test.seeds.len(), failed.len());
        text += &format!("{name}: {all} seeds, {bad} failed, {hours} h of simulated time\n");
        for one in failed.iter().take(LISTED_MAX) {
            let message = one.message.as_deref().unwrap_or_default().lines().next().unwrap_or_default();
            text += &format!("  seed {}: {message}\n", one.seed);
        }
        if let Some(first) = failed.first() {
            text += &format!("  replay: SOCKEYE_SIM_SEED={} cargo test -- --exact {name}\n", first.seed);
        }
        if !test.unsteady.is_empty() {
            text += &format!("  not the same each time: {}\n", list(&test.unsteady));
        }
        let missing: Vec<u64> =
            wanted.into_iter().flat_map(Range::clone).filter(|seed| !test.seeds.contains_key(seed)).collect();
        if !missing.is_empty() {
            text += &format!("  missing: {}\n", list(&missing));
        }
        is_good &= failed.is_empty() && test.unsteady.is_empty() && missing.is_empty();
    }
    if tests.is_empty() {
        text += "no results\n";
    }
    (text, is_good && !tests.is_empty())
}

fn lines(tests: &Tests) -> io::Result<String> {
    let mut text = String::new();
    for one in tests.values().flat_map(|test| test.seeds.values()) {
        text += &serde_json::to_string(one)?;
        text.push('\n');
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed(seed: u64, digest: u32) -> String {
        format!(
            r#"{{"test":"a","seed":{seed},"outcome":"passed","simulated_ns":3600000000000,"events":2,"digest":"{digest:016x}"}}"#
        )
    }

    fn of(lines: &[String]) -> Tests {
        let mut tests = Tests::new();
        add(&mut tests, &lines.join("\n")).unwrap();
        tests
    }

    #[test]
    fn seeds_that_all_passed_are_good_and_come_out_in_order_and_once() {
        let tests = of(&[passed(2, 7), passed(0, 8), String::new(), passed(1, 9), passed(0, 8)]);
        let (text, is_good) = report(&tests, Some(&(0..3)));
        assert_eq!((text.as_str(), is_good), ("a: 3 seeds, 0 failed, 3 h of simulated time\n", true));
        let expected = [passed(0, 8), passed(1, 9), passed(2, 7), String::new()].join("\n");
        assert_eq!(lines(&tests).unwrap(), expected);
    }

    #[test]
    fn failed_missing_and_unsteady_seeds_are_told() {
        let failed = passed(1, 3).replace(r#""passed""#, r#""failed","message":"bad\nluck""#);
        let (text, is_good) = report(&of(&[passed(0, 1), failed, passed(0, 2)]), Some(&(0..30)));
        assert!(!is_good);
        assert!(text.contains("2 seeds, 1 failed") && text.contains("  seed 1: bad\n"), "{text}");
        assert!(text.contains("not the same each time: 0\n"), "{text}");
        assert!(text.contains("missing: 2, 3,") && text.contains("and 8 more\n"), "{text}");
        assert!(!report(&Tests::new(), None).1, "no result is no success");
        assert!(add(&mut Tests::new(), "{}").unwrap_err().starts_with("line 1:"));
        assert!(range("5..5").is_err() && range("x").is_err() && range("0..9") == Ok(0..9));
    }
}
