//! Samples of each kind, short ones: that each program runs in each simulator from its one source, and its work is counted.

use std::process::{Command, Output};

use serde_json::Value;

fn run(line: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sockeye-bench-sim")).args(line.split(' ')).output().unwrap()
}

/// The sample, whose process wrote nothing else: no panic of a task that its library caught.
fn sample(line: &str) -> Value {
    let output = run(line);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && stderr.is_empty(), "{line}: {stderr}");
    let sample: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(
        ["wall", "cpu"].iter().all(|key| sample[key].as_f64().is_some_and(|value| value > 0.0)),
        "{sample}"
    );
    sample
}

#[test]
fn each_program_makes_its_calls_in_each_simulator() {
    for (program, sides) in [
        ("kv", &["turmoil", "tokio", "native"][..]),
        ("axum", &["turmoil", "tokio"]),
        ("tonic", &["turmoil", "tokio"]),
    ] {
        for on in sides {
            for (hosts, calls, latency) in [(2, 6, " --latency 1"), (6, 3, " --latency 10"), (4, 5, "")] {
                let line = format!("calls {program} --on {on} --hosts {hosts} --calls {calls}{latency}");
                let sample = sample(&line);
                assert_eq!(sample["work"].as_f64(), Some(f64::from(hosts / 2 * calls)), "{line}: {sample}");
                // A call takes a round trip at least, and no side waits for a timer in it.
                let trip = match latency {
                    " --latency 1" => 0.002,
                    " --latency 10" => 0.02,
                    _ => 0.0,
                };
                let simulated = sample["simulated"].as_f64().unwrap();
                let least = f64::from(calls) * trip;
                assert!(simulated >= least, "{line}: {sample}");
                assert!(trip == 0.0 || simulated < least + 3.0 * trip, "{line}: {sample}");
            }
        }
    }
}

#[test]
fn an_idle_world_waits_for_its_whole_time() {
    for on in ["turmoil", "tokio", "native"] {
        let seconds = if on == "turmoil" { 2 } else { 86_400 };
        let sample = sample(&format!("idle --on {on} --seconds {seconds}"));
        let simulated = sample["simulated"].as_f64().unwrap();
        assert!((f64::from(seconds)..f64::from(seconds) + 1.0).contains(&simulated), "{sample}");
    }
}

#[test]
fn all_seeds_run_and_their_times_add_up() {
    for on in ["tokio", "native"] {
        let sample = sample(&format!("seeds kv --on {on} --hosts 4 --calls 3 --latency 10 --seeds 5"));
        assert_eq!(sample["work"].as_f64(), Some(5.0));
        // Each of the five: a handshake and three calls.
        let simulated = sample["simulated"].as_f64().unwrap();
        assert!((0.39..0.41).contains(&simulated), "{sample}");
    }
}

#[test]
fn invalid_arguments_are_refused_and_the_message_says_what_to_write() {
    for (line, code, part) in [
        ("calls redis --on tokio --hosts 2 --calls 1", 2, "possible values"),
        ("calls kv --on tokio --hosts 3 --calls 1", 1, "write an even number"),
        ("calls axum --on native --hosts 2 --calls 1", 1, "write --on tokio"),
        ("seeds kv --on turmoil --hosts 2 --calls 1 --seeds 1", 1, "turmoil has no runner of seeds"),
        ("calls kv --on turmoil --hosts 2 --calls 1 --latency 0", 2, "--latency"),
    ] {
        let output = run(line);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(code) && stderr.contains(part), "{line}: {stderr}");
    }
}
