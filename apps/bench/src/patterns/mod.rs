//! `sockeye bench patterns`: traffic drawn from a seed, to find patterns that are slow by surprise.
//!
//! Purpose: [`draw`] makes a pattern from seed and number, [`places`] runs it on either side over `play`, which checks every byte, [`rank`]
//! says how Sockeye's times compare with the kernel's, [`report`] shows the worst.
//!
//! A pattern is run once on each side. One that looks worse than [`LEAST`] is run again on both sides in turns, and only the
//! rounds of those runs count: it is slow if each of them is.
//!
//! Does not depend on the inside of either stack.
//!
//! Invariants: sides take turns, and take turns in being first. A byte that is wrong ends the command with an error.
//!
//! Tests: in the modules; `tests/bench/patterns.rs` for the command.

pub mod args;
mod content;
mod draw;
mod net;
mod places;
mod play;
mod rank;
mod report;
mod runner;

use std::io::{self, Write};
use std::process::ExitCode;

use sockeye_shared::end::CommandError;
use sockeye_shared::file;
use sockeye_shared::progress::Progress;

use super::args::BenchArgs;
use super::machine::Machine;
use super::provider::Side;
use draw::Pattern;
use places::{Measured, Places};
use rank::Ranked;

/// The ratio of the kernel's time to Sockeye's below which a pattern is slow.
const LEAST: f64 = 0.8;
/// Runs of each side after a pattern looked slow.
const REPEATS: usize = 5;
/// Patterns that are drawn, and those that are shown.
const COUNT: usize = 200;
const WORST: usize = 10;

/// Draws, measures and reports. Blocks until everything is done.
///
/// # Errors
/// A side that fails, and a byte that is not what it should be.
pub fn bench(args: &BenchArgs) -> Result<ExitCode, CommandError> {
    args.check_plain("patterns").map_err(CommandError::Usage)?;
    args.check_absent("patterns", &["--seconds", "--goals"]).map_err(CommandError::Usage)?;
    let asked = &args.patterns;
    let seed = asked.seed.unwrap_or(1);
    let numbers: Vec<usize> = match asked.only {
        Some(number) => vec![number],
        None => {
            let first = asked.from.unwrap_or(0);
            (first..first + asked.count.unwrap_or(COUNT)).collect()
        }
    };
    let patterns: Vec<Pattern> =
        numbers.into_iter().map(|number| Pattern::draw(seed, number, args.quick)).collect();
    if asked.list {
        let mut out = io::stdout().lock();
        for pattern in &patterns {
            writeln!(out, "{:>5}  {pattern}", pattern.number)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let repeats = args.samples.unwrap_or(if args.quick { 0 } else { REPEATS });
    let mut file = args.out.as_deref().map(file::create).transpose()?;
    let machine = Machine::read()?;
    let places = Places::open()?;
    if let Some(reason) = places.missing() {
        eprintln!("skipped: patterns over wire, TUN and veth: {reason}");
    }
    let (here, skipped): (Vec<Pattern>, Vec<Pattern>) =
        patterns.into_iter().partition(|pattern| places.has(pattern.place));
    let progress = Progress::of(here.len(), here.len());
    let mut all = Vec::with_capacity(here.len());
    for (index, pattern) in here.into_iter().enumerate() {
        progress.step(index, &format!("pattern {}", pattern.number), &pattern.to_string());
        // Of no kind: a broken pipe would be taken for a reader of the results that has seen enough.
        let ranked = compare(&places, pattern, asked.only.is_some(), repeats)
            .map_err(|error| io::Error::other(error.to_string()))?;
        progress.sample();
        let line = format!("{}\n", report::object(seed, &ranked));
        if let Some(file) = &mut file {
            file.write_all(line.as_bytes())?;
        }
        if args.json {
            progress.suspend(|| io::stdout().lock().write_all(line.as_bytes()))?;
        }
        all.push(ranked);
    }
    progress.end();
    let slow = all.iter().filter(|ranked| ranked.is_slow()).count();
    let text = report::text(&machine, seed, &mut all, skipped.len(), asked.worst.unwrap_or(WORST));
    if args.json {
        eprint!("{text}")
    } else {
        io::stdout().lock().write_all(text.as_bytes())?
    }
    Ok(if asked.check && slow > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Runs a pattern on both sides; again if it looks slow, or if `forced`.
fn compare(places: &Places, pattern: Pattern, forced: bool, repeats: usize) -> io::Result<Ranked> {
    let round = |index: usize| -> io::Result<[Measured; 2]> {
        Ok(if (pattern.number + index).is_multiple_of(2) {
            let ours = places.run(&pattern, Side::Sockeye)?;
            [ours, places.run(&pattern, Side::Kernel)?]
        } else {
            let theirs = places.run(&pattern, Side::Kernel)?;
            [places.run(&pattern, Side::Sockeye)?, theirs]
        })
    };
    let first = Ranked::new(pattern.clone(), vec![round(0)?]);
    if repeats == 0 || (!forced && !first.looks_slow()) {
        return Ok(first);
    }
    let rounds = (1..=repeats).map(round).collect::<io::Result<Vec<_>>>()?;
    Ok(Ranked::new(pattern, rounds))
}
