//! The program's standard output: the table, and JSON with exactly the keys that programs rely on.

use std::collections::BTreeSet;

use serde_json::Value;

use super::*;

const RESULT_KEYS: &[&str] = &[
    "workload",
    "params",
    "on",
    "variant",
    "unit",
    "samples",
    "median",
    "min",
    "max",
    "cpu",
    "counters",
    "higher_is_better",
];

const COMPARE_KEYS: &[&str] =
    &["workload", "params", "compare", "ratio", "ratio_lo", "ratio_hi", "higher_is_better"];

fn json(line: &str) -> Vec<Value> {
    let output = run(bench(line));
    assert_eq!(output.status.code(), Some(0), "{line}: {}", stderr(&output));
    stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn keys(line: &Value) -> BTreeSet<&str> {
    line.as_object().unwrap().keys().map(String::as_str).collect()
}

#[test]
fn every_workload_gives_results_of_both_sides_and_their_ratio() {
    for (line, rows, unit) in [
        ("stream --connections 1,3", 2, "Gbit/s"),
        ("stream --size 128 --nodelay --pin same", 1, "writes/s"),
        ("rr --pin same", 1, "transactions/s"),
        ("rr --connections 20 --threads 3 --size 100", 1, "transactions/s"),
        ("crr --clients 1,4", 2, "connections/s"),
        ("mem --connections 4000 --touch", 1, "bytes"),
    ] {
        let lines = json(&format!("{line} --samples 3 --seconds 0.05 --json"));
        assert_eq!(lines.len(), 3 * rows, "{line}");
        for row in lines.chunks(3) {
            check_result(&row[0], "sockeye", unit);
            check_result(&row[1], "kernel", unit);
            check_comparison(&row[2], &row[0], &row[1]);
        }
    }
}

#[test]
fn a_report_is_the_table_as_a_page_or_its_ratios_as_a_picture() {
    let path = |name: &str| std::env::temp_dir().join(format!("sockeye-bench-{}-{name}", std::process::id()));
    let report = |path: &std::path::Path, more: &str| {
        let line = format!("rr --pin same --samples 3 --seconds 0.02 {more} --report {}", path.display());
        let output = run(bench(&line));
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let text = std::fs::read_to_string(path).unwrap();
        std::fs::remove_file(path).unwrap();
        (stdout(&output), text)
    };
    let (table, page) = report(&path("table.html"), "");
    assert!(table.contains("1 conn, same core") && page.contains("1 conn, same core"), "{table}{page}");
    assert!(page.starts_with("<!DOCTYPE html>") && page.contains("<svg") && !page.contains(">goal<"));
    let document = roxmltree::Document::parse(page.split_once('\n').unwrap().1).unwrap();
    assert_eq!(document.descendants().filter(|node| node.tag_name().name() == "circle").count(), 1);
    let (_, picture) = report(&path("ratios.svg"), "--goals");
    assert!(
        roxmltree::Document::parse(&picture)
            .unwrap()
            .root_element()
            .has_tag_name(("http://www.w3.org/2000/svg", "svg"))
    );
    let output = run(bench("rr --pin same --report /nonexistent/folder/page.html"));
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0));
    assert!(stderr(&output).contains("/nonexistent/folder/page.html: No such file"));
}

#[test]
fn goals_are_shown_if_they_are_asked_for() {
    let table = |more: &str| stdout(&run(bench(&format!("one-way --samples 1 --seconds 0.02 {more}"))));
    assert!(!table("").contains("goal") && table("--goals").contains("goals reached: "));
}

#[test]
fn idle_has_results_and_no_ratio() {
    let lines = json("idle --connections 20 --samples 1 --json");
    assert_eq!(lines.len(), 2);
    check_result(&lines[0], "sockeye", "CPU ms/s");
    check_result(&lines[1], "kernel", "CPU ms/s");
}

fn check_result(result: &Value, on: &str, unit: &str) {
    assert_eq!(keys(result), BTreeSet::from_iter(RESULT_KEYS.iter().copied()));
    assert_eq!(result["on"], on);
    assert_eq!(result["unit"], unit);
    assert_eq!(result["variant"], Value::Null);
    let samples: Vec<f64> =
        result["samples"].as_array().unwrap().iter().map(|sample| sample.as_f64().unwrap()).collect();
    let [min, median, max] = ["min", "median", "max"].map(|key| result[key].as_f64().unwrap());
    assert!(samples.iter().all(|sample| (min..=max).contains(sample)) && min <= median);
    assert!(samples.contains(&max) && samples.contains(&min) && median <= max && min >= 0.0);
    let rate = result["higher_is_better"].as_bool().unwrap();
    assert_eq!(rate, unit != "bytes" && unit != "CPU ms/s");
    // A window of milliseconds may pass without the threads running, if the machine has other work.
    assert!(!rate || max > 0.0, "{result}");
    assert!(result["params"]["cores"].as_u64().unwrap() >= 1);
}

fn check_comparison(compared: &Value, ours: &Value, theirs: &Value) {
    assert_eq!(keys(compared), BTreeSet::from_iter(COMPARE_KEYS.iter().copied()));
    for key in ["workload", "params", "higher_is_better"] {
        assert_eq!(compared[key], ours[key]);
        assert_eq!(compared[key], theirs[key]);
    }
    assert_eq!(compared["compare"], serde_json::json!(["sockeye", "kernel"]));
    let [lo, ratio, hi] = ["ratio_lo", "ratio", "ratio_hi"].map(|key| compared[key].as_f64().unwrap());
    let want = ours["median"].as_f64().unwrap() / theirs["median"].as_f64().unwrap();
    assert!((ratio - want).abs() < 1e-9 * want && lo <= ratio && ratio <= hi, "{compared}");
}

#[test]
fn parameters_are_those_of_the_request() {
    let lines = json(
        "stream --connections 2 --size 4K --nodelay --pin same --spin off --on kernel \
         --samples 1 --seconds 0.05 --json",
    );
    let params = &lines[0]["params"];
    assert_eq!(params["connections"], 2);
    assert_eq!(params["size"], 4096);
    assert_eq!(params["nodelay"], true);
    assert_eq!(params["pin"], "same");
    assert_eq!(params["spin"], "off");
    assert_eq!(params["seconds"], 0.05);
}

#[test]
fn json_is_written_to_the_named_file_and_the_table_to_stdout() {
    let file = std::env::temp_dir().join(format!("sockeye-cli-{}.jsonl", std::process::id()));
    let mut command = bench("rr --pin same --on kernel --samples 2 --seconds 0.05 --out");
    command.arg(&file);
    let output = run(command);
    let written = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let table = stdout(&output);
    for part in ["machine:", "TCP_CONGESTION=", "2 interleaved samples", "same core", "trans/s"] {
        assert!(table.contains(part), "{part} is not in {table}");
    }
    let line: Value = serde_json::from_str(written.trim()).unwrap();
    assert_eq!(line["samples"].as_array().unwrap().len(), 2);
}

#[test]
fn standard_output_has_only_results_and_standard_error_the_progress() {
    let output = run(bench("rr --pin same --on kernel --samples 1 --seconds 0.05 --json"));
    assert_eq!(stdout(&output).lines().count(), 1);
    let progress = stderr(&output);
    assert!(progress.contains("[1/1] rr: 1 conn, same core"), "{progress}");
    assert!(progress.contains("machine:"), "{progress}");
}
