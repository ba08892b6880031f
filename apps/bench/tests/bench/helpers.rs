//! The processes that some workloads start: they end with their parent, and their output is one result.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::*;

/// Enough for the command itself and about a hundred connections with both ends.
const DESCRIPTORS: usize = 300;

#[test]
fn rr_takes_a_second_process_when_descriptors_run_out() {
    let output =
        run(bench_limited(DESCRIPTORS, "rr --connections 150 --on kernel --samples 2 --seconds 0.1 --json"));
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let result: Value = serde_json::from_str(stdout(&output).trim()).unwrap();
    assert!(result["median"].as_f64().unwrap() > 0.0);
    assert!(result["cpu"].as_f64().unwrap() > 0.0);
    assert!(!stderr(&output).contains("error"), "{}", stderr(&output));
}

#[test]
fn mem_takes_as_many_processes_as_it_needs() {
    let output = run(bench_limited(DESCRIPTORS, "mem --connections 250 --on kernel --samples 1 --json"));
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let result: Value = serde_json::from_str(stdout(&output).trim()).unwrap();
    assert_eq!(result["counters"]["processes"], 3);
    assert_eq!(result["cpu"], Value::Null);
}

#[test]
fn a_side_without_enough_descriptors_fails_with_a_remedy_and_exit_code_1() {
    let output =
        run(bench_limited(DESCRIPTORS, "stream --connections 200 --on kernel --samples 1 --seconds 0.05"));
    assert_eq!(output.status.code(), Some(1));
    for text in [stdout(&output), stderr(&output)] {
        assert!(text.contains("200 connections") && text.contains("ulimit -n"), "{text}");
    }
}

#[test]
fn helpers_end_when_the_command_is_killed() {
    let mut command = bench_limited(DESCRIPTORS, "rr --connections 150 --on kernel --samples 1 --seconds 20");
    let mut parent = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let helper = wait_for(|| children_of(parent.id()).first().copied());
    parent.kill().unwrap();
    parent.wait().unwrap();
    let helper = helper.expect("no helper process was started");
    let ended = wait_for(|| (!alive(helper)).then_some(()));
    assert!(ended.is_some(), "helper {helper} outlived its parent");
}

pub fn wait_for<T>(mut condition: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + Duration::from_secs(10);
    while Instant::now() < deadline {
        if let Some(found) = condition() {
            return Some(found);
        }
        thread::sleep(Duration::from_millis(10));
    }
    None
}

/// State and parent of a process: the fields after the name's closing bracket.
fn stat(pid: u32) -> Option<(String, u32)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit(')').next()?.split_whitespace();
    Some((fields.next()?.to_owned(), fields.next()?.parse().ok()?))
}

pub fn alive(pid: u32) -> bool {
    stat(pid).is_some_and(|(state, _)| state != "Z")
}

pub fn children_of(parent: u32) -> Vec<u32> {
    let pids = fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|&pid| stat(pid).is_some_and(|(_, ppid)| ppid == parent)).collect()
}
