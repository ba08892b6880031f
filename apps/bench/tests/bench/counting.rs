//! Hand-offs between cores, with a script in the place of the program that counts them.

use std::fs;

use serde_json::{Value, json};
use sockeye_shared::testing::script;

use super::apps::Folder;
use super::*;

const LINE: &str = "wake --clients 1 --variants elide --samples 2 --seconds 0.05";

/// Adds a program beside the bench that records its arguments and then runs the script `answer`.
fn program(folder: &Folder, answer: &str) {
    let log = folder.0.join("log");
    let lines = format!("for word; do echo \"$word\" >> {}; done\n{answer}", log.display());
    script(&folder.0.join("sockeye-bench-counted"), &lines);
}

#[test]
fn a_lane_is_counted_by_the_program_that_gets_the_command_line() {
    let folder = Folder::new("counted");
    let found = json!({
        "operations": 10.0,
        "counters": { "handoffs_lock": 25, "transfers": 5 },
        "top": [["tcp/conn/serve.rs:1 (lock)", 0.5]],
    });
    program(&folder, &format!("echo '{found}'"));
    let output = run(folder.bench(&format!("{LINE} --json")));
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let lines: Vec<Value> = stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let ours = lines.iter().find(|line| line["variant"] == "wake=elide").unwrap();
    assert_eq!(
        (&ours["counters"]["handoffs_lock"], &ours["counters"]["counting_operations"]),
        (&json!(25), &json!(10))
    );
    let kernel = lines.iter().find(|line| line["on"] == "kernel").unwrap();
    assert!(kernel["counters"].get("handoffs_lock").is_none());
    let log = fs::read_to_string(folder.0.join("log")).unwrap();
    let words: Vec<&str> = log.lines().collect();
    assert_eq!((words[0], words[2], words[3]), ("wake", "elide", "--"));
    let line = format!("{LINE} --json");
    assert_eq!(words[4..4 + line.split(' ').count()].join(" "), line);
    let text = stdout(&run(folder.bench(LINE)));
    assert!(text.contains("hand-offs with elide: tcp/conn/serve.rs:1 (lock) 50 %"), "{text}");
}

#[test]
fn an_error_of_the_counting_program_fails_the_run() {
    let folder = Folder::new("not-counted");
    program(&folder, "echo 'error: no thread: bound reached' >&2; exit 1");
    let output = run(folder.bench(LINE));
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("no thread: bound reached"), "{}", stderr(&output));
}

#[test]
fn without_the_program_the_rest_is_measured_and_the_message_has_the_command_that_builds_it() {
    let output = run(Folder::new("uncounted").bench(LINE));
    assert_eq!(output.status.code(), Some(0));
    let message = stderr(&output);
    for part in ["hand-offs between cores are not counted", "--manifest-path apps/bench-counted/Cargo.toml"] {
        assert!(message.contains(part), "{message}");
    }
    assert!(!stdout(&output).contains("hand-offs with"), "{}", stdout(&output));
}
