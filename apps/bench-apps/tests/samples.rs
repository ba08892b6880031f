//! Samples of each row, short ones: that calls are answered on both sides and counted.

use std::process::{Command, Output};

use serde_json::Value;

fn run(line: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sockeye-bench-apps")).args(line.split(' ')).output().unwrap()
}

#[test]
fn calls_are_answered_over_each_protocol_in_one_runtime_and_in_two() {
    for version in ["http1", "http2"] {
        for on in ["sockeye", "kernel"] {
            for runtimes in [1, 2] {
                for connections in [1, 20] {
                    let line = format!(
                        "{version} --on {on} --connections {connections} --runtimes {runtimes} --warm-up 0.01 --seconds 0.05"
                    );
                    let output = run(&line);
                    let stderr = String::from_utf8_lossy(&output.stderr);
                    assert!(output.status.success(), "{line}: {stderr}");
                    let sample: Value = serde_json::from_slice(&output.stdout).unwrap();
                    assert!(sample["value"].as_f64().is_some_and(|value| value >= 0.0), "{line}: {sample}");
                    assert!(sample["cpu"].as_f64().is_some_and(|cpu| cpu > 0.0), "{line}: {sample}");
                }
            }
        }
    }
}

#[test]
fn invalid_arguments_are_a_usage_error() {
    for line in [
        "http3 --on kernel --connections 1 --runtimes 1 --warm-up 0 --seconds 1",
        "http1 --on kernel --connections 0 --runtimes 1 --warm-up 0 --seconds 1",
        "http1 --on kernel --connections 1 --runtimes 3 --warm-up 0 --seconds 1",
    ] {
        assert_eq!(run(line).status.code(), Some(2), "{line}");
    }
}
