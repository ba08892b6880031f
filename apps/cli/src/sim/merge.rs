//! `sockeye sim merge`: joins the results of seeds that several machines ran.
//!
//! Each line of a file is a seed's outcome, as `SOCKEYE_SIM_RESULTS` has tests write it. What counts is whether every seed was run, whether all passed, and whether a seed that was
//! run twice was the same run. Does not depend on the simulator. Tests: below, `apps/cli/tests/cli/merge.rs`.

use std::collections::BTreeMap;
use std::fmt;
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
    /// Seeds that each test must have, in each of its calls of Seeds::run, as FIRST..END
    #[arg(long, value_parser = range)]
    seeds: Option<Range<u64>>,
    /// Write all results, ordered by test, call and seed, each once
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// A seed's outcome.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
struct Outcome {
    #[serde(flatten)]
    key: Key,
    seed: u64,
    outcome: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    simulated_ns: u64,
    events: u64,
    digest: String,
}

/// Which call of `Seeds::run` an outcome is of: that of a test in a program, and how many calls of the test were before. Lines of earlier revisions have the test alone.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Key {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    binary: String,
    test: String,
    #[serde(default, skip_serializing_if = "is_first")]
    call: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_first(call: &u64) -> bool {
    *call == 0
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { binary, test, call } = self;
        if !binary.is_empty() {
            write!(f, "{binary} ")?;
        }
        f.write_str(test)?;
        if *call > 0 { write!(f, " (call {} of Seeds::run)", call + 1) } else { Ok(()) }
    }
}

impl Key {
    /// The command that plays a seed again.
    fn replay(&self, seed: u64) -> String {
        let package = self.binary.split_once('/').map(|(package, _)| format!("-p {package} "));
        let package = package.unwrap_or_default();
        format!("SOCKEYE_SIM_SEED={seed} cargo test {package}-- --exact {}", self.test)
    }
}

/// All outcomes of a call.
#[derive(Default)]
struct Test {
    seeds: BTreeMap<u64, Outcome>,
    /// Seeds of which two runs were not the same.
    unsteady: Vec<u64>,
}

type Tests = BTreeMap<Key, Test>;

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
        let test = tests.entry(one.key.clone()).or_default();
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
    for (key, test) in tests {
        let failed: Vec<&Outcome> = test.seeds.values().filter(|one| one.outcome != "passed").collect();
        let hours =
            test.seeds.values().map(|one| u128::from(one.simulated_ns)).sum::<u128>() / 3_600_000_000_000;
        let (all, bad) = (test.seeds.len(), failed.len());
        text += &format!("{key}: {all} seeds, {bad} failed, {hours} h of simulated time\n");
        for one in failed.iter().take(LISTED_MAX) {
            let message = one.message.as_deref().unwrap_or_default().lines().next().unwrap_or_default();
            text += &format!("  seed {}: {message}\n", one.seed);
        }
        if let Some(first) = failed.first() {
            text += &format!("  replay: {}\n", key.replay(first.seed));
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
    fn calls_and_programs_are_told_apart() {
        let line = |binary: &str, call: u64, seed: u64| {
            let more = format!(r#"{{"binary":"{binary}","test":"a","call":{call},"#);
            passed(seed, 100 * u32::try_from(call).unwrap() + 7).replace(r#"{"test":"a","#, &more)
        };
        let of_seeds = |seeds: [u64; 3]| seeds.map(|seed| line("p/net", 1, seed));
        let mut all = [0, 1, 2].map(|seed| line("p/net", 0, seed)).to_vec();
        all.extend(of_seeds([0, 1, 2]));
        all.extend([0, 1, 2].map(|seed| line("p/hosts", 0, seed)));
        let (text, is_good) = report(&of(&all), Some(&(0..3)));
        assert!(is_good, "{text}");
        let heads = ["p/hosts a: 3 seeds,", "p/net a: 3 seeds,", "p/net a (call 2 of Seeds::run): 3 seeds,"];
        assert!(text.lines().zip(heads).all(|(line, head)| line.starts_with(head)), "{text}");
        // They come out as they went in, but for what is the default.
        assert!(lines(&of(&all)).unwrap().contains(&line("p/net", 1, 2)));
        let gone = all.iter().position(|one| *one == line("p/net", 1, 1)).unwrap();
        all.remove(gone);
        let (text, is_good) = report(&of(&all), Some(&(0..3)));
        assert!(
            !is_good
                && text.ends_with(
                    "(call 2 of Seeds::run): 2 seeds, 0 failed, 2 h of simulated time\n  missing: 1\n"
                ),
            "{text}"
        );
        let failed = line("p/net", 1, 1).replace(r#""passed""#, r#""failed""#);
        let (text, _) = report(&of(&[failed]), None);
        assert!(text.contains("  replay: SOCKEYE_SIM_SEED=1 cargo test -p p -- --exact a\n"), "{text}");
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
