//! `sockeye bench patterns`: that the bytes of patterns are true on both sides, and the command's output. Nothing here depends on
//! time: the figures of a loaded machine mean nothing.

use serde_json::Value;
use sockeye_drivers::testing::unavailable;

use super::*;

#[test]
fn the_bytes_of_a_hundred_patterns_are_true_on_both_sides() {
    let output = run(bench("patterns --seed 18 --count 100 --quick --json"));
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let rows: Vec<Value> = stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let here = |row: &Value| row["place"] == "loopback";
    match unavailable() {
        Some(reason) => {
            println!("skipped: {reason}");
            assert!(
                stderr(&output).contains("skipped: patterns over wire, TUN and veth"),
                "{}",
                stderr(&output)
            );
            assert!(!rows.is_empty() && rows.iter().all(here));
        }
        None => {
            assert_eq!(rows.len(), 100);
            assert!(rows.iter().any(here) && !rows.iter().all(here));
        }
    }
    for row in &rows {
        for side in ["sockeye_ms", "kernel_ms"] {
            assert!(row["time"][side].as_f64().unwrap() > 0.0, "{row}");
        }
    }
}

#[test]
fn a_pattern_can_be_named_and_repeated() {
    let list = run(bench("patterns --seed 3 --from 5 --count 2 --list"));
    assert_eq!(list.status.code(), Some(0));
    let list = stdout(&list);
    let listed: Vec<&str> = list.lines().map(|line| &line[7..]).collect();
    assert_eq!(listed.len(), 2);
    let alone = run(bench("patterns --seed 3 --only 6 --list"));
    assert_eq!(stdout(&alone).trim_end(), format!("    6  {}", listed[1]));
    // One that runs over loopback, so anywhere.
    let output = run(bench("patterns --seed 18 --only 5 --quick --samples 2 --json"));
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let row: Value = serde_json::from_str(stdout(&output).trim()).unwrap();
    assert_eq!((&row["pattern"], &row["runs"]), (&5.into(), &2.into()));
}

#[test]
fn flags_of_patterns_belong_to_patterns() {
    for line in ["stream --seed 1", "--check", "tun --only 3"] {
        let output = run(bench(line));
        assert_eq!(output.status.code(), Some(2), "{line}");
        assert!(stderr(&output).contains("sockeye bench patterns --"), "{}", stderr(&output));
    }
    assert_eq!(run(bench("patterns --only 1 --count 2")).status.code(), Some(2));
}
