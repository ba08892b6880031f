//! The checkers on some hundred seeds: part of every test run. `soak` runs more.

use sockeye_sim::check::{Summary, run_seed};

/// Seeds of one of the tests below, which run side by side.
const SEEDS: u64 = 200;

fn run(first: u64) {
    let (mut sum, mut calm) = (Summary::default(), 0);
    for seed in first..first + SEEDS {
        let one = run_seed(seed, None);
        sum.conversations += one.conversations;
        sum.clean += one.clean;
        sum.bytes += one.bytes;
        sum.faults += one.faults;
        sum.retransmitted += one.retransmitted;
        sum.crashes += one.crashes;
        sum.unix_bytes += one.unix_bytes;
        sum.requests += one.requests;
        calm += u64::from(one.faults == 0);
    }
    // The plans are varied enough: they contain enough of everything.
    assert!(sum.conversations > 2 * SEEDS && sum.clean > sum.conversations / 3, "{sum:?}");
    assert!(sum.bytes > 10_000_000 && sum.faults > 1000 && sum.retransmitted > 100, "{sum:?}");
    assert!(sum.unix_bytes > 5_000_000 && sum.requests > 5 * SEEDS, "{sum:?}");
    assert!(sum.crashes > SEEDS / 20 && calm > SEEDS / 8, "{sum:?}, {calm} of {SEEDS} seeds without a fault");
}

#[test]
fn the_first_two_hundred_seeds_keep_every_rule() {
    run(0);
}

#[test]
fn the_second_two_hundred_seeds_keep_every_rule() {
    run(1000);
}

#[test]
fn the_third_two_hundred_seeds_keep_every_rule() {
    run(2000);
}

#[test]
fn a_seed_has_the_same_result_twice() {
    assert_eq!(run_seed(5, None), run_seed(5, None));
}

#[test]
fn soak_runs_seeds_reports_their_results_and_refuses_unknown_arguments() {
    let soak = |args: &[&str]| {
        std::process::Command::new(env!("CARGO_BIN_EXE_soak")).args(args).output().expect("soak starts")
    };
    let done = soak(&["--first", "3", "--seeds", "4"]);
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    assert_eq!(done.status.code(), Some(0), "{text}");
    assert!(text.contains("4 seeds in") && text.contains("0 failed"), "{text}");
    let refused = soak(&["--sedes", "4"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("usage: soak"));
}
