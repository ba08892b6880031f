//! Experiments: their results, the output formats, and refused arguments.

use std::collections::BTreeSet;

use serde_json::Value;

use super::*;

/// Short and small: these tests are about the form.
const SHORT: &str = "--quick --samples 2 --seconds 0.05";

fn json(line: &str) -> Vec<Value> {
    let output = run(bench(line));
    assert_eq!(output.status.code(), Some(0), "{line}: {}", stderr(&output));
    stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn rcvd_gives_a_result_for_each_lane_and_compares_them_by_name() {
    let lines = json(&format!("rcvd --connections 2 {SHORT} --json"));
    let rows: BTreeSet<&str> = lines.iter().map(|line| line["params"]["row"].as_str().unwrap()).collect();
    assert_eq!(rows.len(), 4);
    for row in rows {
        let of_row: Vec<&Value> = lines.iter().filter(|line| line["params"]["row"] == row).collect();
        let (results, compared) = of_row.split_at(4);
        let variants: Vec<Option<&str>> = results.iter().map(|line| line["variant"].as_str()).collect();
        assert_eq!(variants, [Some("rcvd=sync"), Some("rcvd=async"), Some("rcvd=precheck"), None]);
        for result in results {
            assert_eq!(result["workload"], "rcvd");
            assert_eq!(result["unit"], "Gbit/s");
            assert_eq!(result["samples"].as_array().unwrap().len(), 2);
            let kernel = result["variant"].is_null();
            assert_eq!(result["on"], if kernel { "kernel" } else { "sockeye" });
            let counters = result["counters"].as_object().unwrap();
            assert!(counters.contains_key("operations"));
            assert_eq!(counters.contains_key("segments_in"), !kernel);
        }
        let pairs: Vec<&Value> = compared.iter().map(|line| &line["compare"]).collect();
        let want = [
            ["rcvd=async", "rcvd=sync"],
            ["rcvd=precheck", "rcvd=sync"],
            ["rcvd=sync", "kernel"],
            ["rcvd=async", "kernel"],
            ["rcvd=precheck", "kernel"],
        ];
        assert_eq!(pairs, want.map(|pair| serde_json::json!(pair)).iter().collect::<Vec<_>>());
        assert!(compared.iter().all(|line| line["ratio"].as_f64().unwrap() > 0.0));
        assert!(compared.iter().all(|line| line["params"] == results[0]["params"]));
    }
}

#[test]
fn a_terminal_gets_ministats_lines_counters_documents_and_goals() {
    let line =
        format!("wake --clients 2 --variants immediate,elide --on sockeye {SHORT} --set delack=1ms --goals");
    let output = run(bench(&line));
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stdout(&output);
    for part in [
        "x immediate\n+ elide\n",
        "Stddev\nx      2 ",
        "elide against immediate:\n",
        "at 95.0% confidence",
        "lock or squeue entries per operation",
        "hand-offs per operation",
        "illumos, OS-6344",
        "goal: elide >= 1.16 x immediate: is",
        "set: delack=1ms",
        "time: about",
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    assert!(!text.contains("delayed\n") && stderr(&output).contains("[1/"), "{text}");
}

#[test]
fn input_runs_over_its_wire_and_a_report_has_the_prediction() {
    let file = std::env::temp_dir().join(format!("sockeye-report-{}.html", std::process::id()));
    let mut command = bench(&format!("input --connections 2 --threads 2 {SHORT} --report"));
    command.arg(&file);
    let output = run(command);
    let page = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stdout(&output);
    for part in
        ["acquisitions per packet", "PREDICTED", "predicted, 128 cores", "assumed:", "one core at a time"]
    {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    let options = roxmltree::ParsingOptions { allow_dtd: true, ..Default::default() };
    let document = roxmltree::Document::parse_with_options(&page, options).unwrap();
    assert!(document.descendants().any(|node| node.has_tag_name("polyline")));
    assert!(page.contains("sockeye bench input --connections 2") && page.contains("OpenBSD"));
}

#[test]
fn invalid_choices_are_refused_with_the_valid_ones() {
    for (line, parts) in [
        ("rcvd --variants asink", &["--variants", "asink", "sync,async,precheck"][..]),
        ("all --variants sync", &["--variants", "bench rcvd"]),
        ("rcvd --set sndbuf", &["--set", "KEY=VALUE"]),
        ("rcvd --set sendbuf=64K", &["sendbuf", "sndbuf"]),
        ("rcvd --set sndbuf=lots", &["sndbuf", "lots", "256K"]),
        ("rcvd --set sndbuf=1", &["sndbuf", "2048"]),
        ("rcvd --set rcvd=sync", &["rcvd", "--variants"]),
        ("rcvd --clients 3", &["--clients", "rcvd", "--connections"]),
        ("rxfree --spin off", &["--spin", "--set spin_max=0"]),
        ("input --threads 65", &["--threads", "64"]),
        ("scale --size 3", &["--size", "scale"]),
        ("stream --variants sync", &["--variants", "rcvd"]),
    ] {
        let output = run(bench(line));
        assert_eq!(output.status.code(), Some(2), "{line}");
        assert!(output.stdout.is_empty(), "{line}");
        for part in parts {
            let text = stderr(&output);
            assert!(text.contains(part), "{line}: {part} is not in {text}");
        }
    }
}
