//! The table of the worst patterns, and an object for each pattern.
//!
//! Does not depend on how patterns are run. Tests: below.

use std::fmt::Write;

use serde_json::{Value, json};

use super::LEAST;
use super::rank::{Compared, Ranked};
use crate::machine::Machine;

/// The summary and the table. Sorts `all`, the worst first.
pub fn text(machine: &Machine, seed: u64, all: &mut [Ranked], skipped: usize, worst: usize) -> String {
    all.sort_by(|one, other| one.worst().total_cmp(&other.worst()));
    let slow = all.iter().filter(|ranked| ranked.is_slow()).count();
    let undecided = all.iter().filter(|ranked| ranked.looks_slow()).count() - slow;
    let mut times: Vec<f64> = all.iter().filter_map(|ranked| Some(ranked.time()?.ratio)).collect();
    times.sort_by(f64::total_cmp);
    let mut text = format!("{machine}\npatterns: seed {seed}, {} run, {skipped} skipped\n", all.len());
    let part = |share: usize| times.get(times.len() * share / 100).copied().unwrap_or(f64::NAN);
    // Writing to a string does not fail.
    let _ = writeln!(
        text,
        "the kernel's time over Sockeye's: median {:.2}, of one in ten less than {:.2}, of one in a hundred less than {:.2}\n\
         slower than {LEAST} of the kernel in time or in the 99th percentile of latency, in each repeated run: {slow}; in their median only: {undecided}\n",
        part(50),
        part(10),
        part(1)
    );
    let _ = writeln!(
        text,
        "{:>5}  {:<22}{:>8}{:>8}  {:<22}{:>8}{:>8}  pattern",
        "", "time: ratio (spread)", "sockeye", "kernel", "p99: ratio (spread)", "sockeye", "kernel"
    );
    for ranked in all.iter().take(worst) {
        let [time, p99] = [ranked.time(), ranked.p99()].map(columns);
        let _ = writeln!(text, "{:>5}  {time}  {p99}  {}", ranked.pattern.number, ranked.pattern);
    }
    text.push_str("times in ms; ratios below 1: Sockeye takes longer\n");
    text
}

fn columns(compared: Option<Compared>) -> String {
    let Some(Compared { ours, theirs, ratio, spread: (low, high) }) = compared else {
        return format!("{:<22}{:>8}{:>8}", "-", "", "");
    };
    let ratio = format!("{ratio:.2} ({low:.2} to {high:.2})");
    format!("{ratio:<22}{:>8}{:>8}", millis(ours.median), millis(theirs.median))
}

fn millis(value: f64) -> String {
    if value < 10.0 { format!("{value:.3}") } else { format!("{value:.1}") }
}

/// One pattern for a program.
pub fn object(seed: u64, ranked: &Ranked) -> Value {
    let compared = |compared: Option<Compared>| {
        let compared = compared?;
        Some(json!({
            "ratio": compared.ratio, "spread": [compared.spread.0, compared.spread.1],
            "sockeye_ms": compared.ours.median, "kernel_ms": compared.theirs.median,
        }))
    };
    let pattern = &ranked.pattern;
    json!({
        "bench": "patterns",
        "seed": seed,
        "pattern": pattern.number,
        "about": pattern.to_string(),
        "place": pattern.place.name(),
        "runner": pattern.runner.name(),
        "connections": pattern.connections,
        "runs": ranked.rounds.len(),
        "slow": ranked.is_slow(),
        "undecided": ranked.looks_slow() && !ranked.is_slow(),
        "time": compared(ranked.time()),
        "p99": compared(ranked.p99()),
        "counters": ranked.counters(),
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::draw::Pattern;
    use super::super::places::Measured;
    use super::*;
    use crate::provider::Counters;

    fn ranked(number: usize, ours: u64, theirs: u64) -> Ranked {
        let of =
            |millis| Measured { time: Duration::from_millis(millis), p99: None, counters: Counters::new() };
        Ranked::new(Pattern::draw(1, number, false), vec![[of(ours), of(theirs)]])
    }

    #[test]
    fn the_table_begins_with_the_worst_and_counts_the_slow() {
        let mut all = vec![ranked(1, 10, 20), ranked(2, 41, 1), ranked(3, 10, 7)];
        let text = text(&Machine::read().unwrap(), 1, &mut all, 4, 2);
        assert!(
            text.contains("3 run, 4 skipped")
                && text.contains("in each repeated run: 2; in their median only: 0"),
            "{text}"
        );
        let rows: Vec<&str> = text.lines().filter(|line| line.contains(" to ")).collect();
        assert!(rows[0].starts_with("    2  0.02 (0.02 to 0.02)") && rows[0].contains("41.0"), "{text}");
        assert!(rows[1].starts_with("    3  0.70") && rows.len() == 2, "{text}");
    }

    #[test]
    fn an_object_has_the_pattern_in_words_and_its_figures() {
        let ranked = ranked(2, 20, 10);
        let object = object(1, &ranked);
        assert_eq!(object["about"], ranked.pattern.to_string());
        assert_eq!((object["time"]["ratio"].as_f64(), &object["slow"]), (Some(0.5), &json!(true)));
        assert!(object["p99"].is_null());
    }
}
