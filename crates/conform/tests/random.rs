//! Random scenarios.
//!
//! Where the test may not make a namespace and a device, it says so and runs them on Sockeye alone.

mod common;

use std::collections::BTreeMap;

use sockeye_conform::campaign::{self, Outcome};
use sockeye_conform::compare::report;
use sockeye_conform::driven;
use sockeye_conform::generate::generate;
use sockeye_conform::scenario::Scenario;

/// Seeds of a run.
const COUNT: u64 = 2000;

/// Kinds of differences that are still open, in figures and times of recovery, congestion control and what a write takes. No other kind is accepted:
/// a wrong byte, state, readiness, count of bytes or acknowledgment number fails.
const OPEN: [&str; 15] = [
    "backoff",
    "ca_state",
    "flags",
    "length",
    "options",
    "sequence number",
    "snd_cwnd",
    "snd_ssthresh",
    "the kernel sends an acknowledgment with SACK, the stack waits",
    "the kernel sends an acknowledgment, the stack waits",
    "the kernel sends text, the stack waits",
    "the kernel waits, the stack sends an acknowledgment",
    "the kernel waits, the stack sends an acknowledgment with SACK",
    "the kernel waits, the stack sends text",
    "time",
];

/// How many scenarios may have such a difference: the current count, and a few more because of the kernel's timers. It only goes down.
const OPEN_MAX: usize = 2;

#[test]
fn random_scenarios_have_no_difference_but_known_and_open_ones() {
    let scenarios: Vec<Scenario> = (0..COUNT).map(generate).collect();
    let Some(outcomes) = common::outcomes("random scenarios", &scenarios) else { return };
    let (mut open, mut other) = (BTreeMap::new(), String::new());
    for (scenario, outcome) in scenarios.iter().zip(&outcomes) {
        let Outcome::Differs(found) = outcome else { continue };
        let difference = found.1.difference.as_ref().unwrap();
        match OPEN.iter().find(|kind| **kind == difference.kind()) {
            Some(kind) => *open.entry(*kind).or_insert(0) += 1,
            None => other += &report(scenario, &found.0, &driven::run(scenario), difference),
        }
    }
    let busy = outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Disturbed)).count();
    println!("{COUNT} scenarios, {busy} on a machine too busy; open: {open:?}");
    println!("known: {:?}", campaign::count_known(&outcomes));
    assert!(other.is_empty(), "{other}");
    let count: usize = open.values().sum();
    assert!(count <= OPEN_MAX, "{count} scenarios have an open difference, at most {OPEN_MAX}: {open:?}");
}

#[test]
fn a_random_scenario_goes_the_same_way_each_time() {
    for seed in 0..300 {
        let scenario = generate(seed);
        assert_eq!(driven::run(&scenario).records, driven::run(&scenario).records, "seed {seed}");
    }
}
