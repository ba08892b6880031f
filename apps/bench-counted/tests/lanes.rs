//! The program as the bench starts it.

use std::process::{Command, Output};

use serde_json::Value;

fn count(lane: [&str; 3], line: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sockeye-bench-counted"));
    command.args(lane).arg("--").args(line.split_whitespace()).output().expect("it starts")
}

fn counted(lane: [&str; 3], line: &str) -> Value {
    let output = count(lane, &format!("{line} --quick --seconds 0.2 --json --out /nonexistent/never-opened"));
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{lane:?}: {message}");
    serde_json::from_slice(&output.stdout).expect("a line of JSON")
}

/// The label of an experiment's first row that has `part` in it.
fn row(experiment: &str, part: &str, line: &str) -> String {
    let output = count([experiment, "", ""], line);
    assert_eq!(output.status.code(), Some(2), "there is no row without a name");
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    let rows = message.split("give one of: ").nth(1).expect("the message names the rows");
    let mut rows = rows.lines().next().expect("rows").split("; ");
    rows.find(|row| row.contains(part)).expect("such a row").to_owned()
}

#[test]
fn over_loopback_an_interface_and_unix_sockets_hand_offs_are_counted_and_placed() {
    for (experiment, part, setting, line) in [
        ("rcvd", "", "sync", "rcvd --connections 2"),
        ("input", "", "batched", "input --connections 2 --threads 2"),
        ("unix", "ping-pong", "pair", "all"),
    ] {
        let found = counted([experiment, &row(experiment, part, line), setting], line);
        let of = |name: &str| found["counters"][name].as_u64().unwrap_or_else(|| panic!("{name}: {found}"));
        assert!(found["operations"].as_f64().expect("a number") > 0.0, "{found}");
        assert!(of("handoffs_lock") > 0 && of("transfers") > 0, "{found}");
        let top = found["top"].as_array().expect("a list");
        // The drop of a reference has no line of ours.
        let is_ours = |place: &Value| {
            let place = place[0].as_str().expect("a place");
            place.starts_with("crates/") || place.starts_with("drop of a reference to sockeye")
        };
        assert!(!top.is_empty() && top.iter().all(is_ours), "{found}");
    }
}

#[test]
fn a_missing_lane_is_named() {
    for (lane, line, part) in [
        (["rcvd", "nowhere", "sync"], "rcvd", "row \"nowhere\" of rcvd"),
        (["wake", "nowhere", "sync"], "rcvd", "experiment \"wake\""),
        (["rcvd", "nowhere", "sync"], "stream", "no experiment in the command line"),
    ] {
        let output = count(lane, line);
        assert_eq!(output.status.code(), Some(2));
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(message.contains(part), "{message}");
    }
}
