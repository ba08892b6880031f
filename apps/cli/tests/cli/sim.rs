//! `sockeye sim`: its output, files and refused arguments; equal arguments give equal results.

use serde_json::Value;

use super::*;

const LINE: &str = "sim --rtt 20ms --rate 20mbit --loss 0.5% --reorder 1% --streams 2 --seconds 3";

#[test]
fn results_are_json_that_the_seed_decides() {
    let json = |line: &str| stdout(&run(sockeye(&format!("{line} --json"))));
    let first = json(&format!("{LINE} --seed 7"));
    assert_eq!(first, json(&format!("{LINE} --seed 7")));
    assert_ne!(first, json(&format!("{LINE} --seed 8")));
    let value: Value = serde_json::from_str(first.trim()).unwrap();
    let rate = value["goodput_bits"].as_f64().unwrap();
    assert!(rate > 1e6 && rate < 20e6, "{rate}");
    assert_eq!(value["streams"].as_array().unwrap().len(), 2);
    assert!(value["link"]["lost"].as_u64().unwrap() > 0);
    for stream in value["streams"].as_array().unwrap() {
        let again = &stream["retransmitted"];
        let count = |name: &str| again[name].as_u64().unwrap();
        assert!(count("segments") > 0);
        assert_eq!(count("segments"), count("on_ack") + count("by_timer"));
        let samples = stream["samples"].as_array().unwrap();
        assert!(samples.len() > 100);
        assert!(samples.iter().all(|sample| sample["srtt_ms"].as_f64().unwrap() >= 20.0));
        let received: Vec<u64> = samples.iter().map(|sample| sample["received"].as_u64().unwrap()).collect();
        assert!(received.is_sorted() && received.last().unwrap() * 8 / 3 <= 20_000_000);
    }
}

#[test]
fn a_queue_that_marks_is_answered_without_a_loss() {
    let output = run(sockeye("sim --rtt 20ms --rate 20mbit --seconds 5 --ecn --mark 30K --queue 1M --json"));
    let value: Value = serde_json::from_str(stdout(&output).trim()).unwrap();
    assert_eq!((&value["retransmitted"], &value["link"]["queue_full"]), (&Value::from(0), &Value::from(0)));
    let (marked, answered) = (&value["link"]["marked"], &value["streams"][0]["marks_answered"]);
    assert!(answered.as_u64().unwrap() > 2 && marked.as_u64() >= answered.as_u64(), "{marked} {answered}");
}

#[test]
fn a_path_without_faults_loses_nothing_and_is_filled() {
    let output = run(sockeye("sim --rtt 10ms --rate 10mbit --queue 1M --buffer 256K --seconds 5 --json"));
    let value: Value = serde_json::from_str(stdout(&output).trim()).unwrap();
    assert_eq!(value["retransmitted"], 0, "the queue holds more than the window");
    // 1,448 of 1,500 bytes are payload.
    assert!(value["utilisation"].as_f64().unwrap() > 0.93, "{}", value["utilisation"]);
}

#[test]
fn a_chart_is_a_page_of_its_own_and_a_capture_is_pcapng() {
    let path = |name: &str| std::env::temp_dir().join(format!("sockeye-{}-{name}", std::process::id()));
    let (chart, pcap) = (path("chart.html"), path("course.pcapng"));
    let line = format!("{LINE} --chart {} --pcap {}", chart.display(), pcap.display());
    let output = run(sockeye(&line));
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stdout(&output);
    for part in ["goodput", "needless", "Jain's index", "cwnd", "queue full"] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    let page = std::fs::read_to_string(&chart).unwrap();
    std::fs::remove_file(&chart).unwrap();
    let (doctype, document) = page.split_once('\n').unwrap();
    assert_eq!(doctype, "<!DOCTYPE html>");
    let document = roxmltree::Document::parse(document).unwrap();
    let count = |name: &str| document.descendants().filter(|node| node.has_tag_name(name)).count();
    assert_eq!((count("svg"), count("polyline")), (3, 6));
    assert!(!page.contains("http"), "the page needs nothing else");
    let file = std::fs::read(&pcap).unwrap();
    std::fs::remove_file(&pcap).unwrap();
    assert_eq!(file[..4], [0x0a, 0x0d, 0x0d, 0x0a]);
    assert!(file.len() > 1_000_000, "{} bytes", file.len());
}

#[test]
fn figures_survive_files_that_cannot_be_written_and_the_error_names_them() {
    for flag in ["--chart", "--pcap"] {
        let output = run(sockeye(&format!("sim --seconds 1 --rate 1mbit {flag} /nonexistent/folder/file")));
        assert_eq!(output.status.code(), Some(1), "{flag}");
        assert!(stdout(&output).contains("goodput"), "{flag}: {}", stdout(&output));
        let text = stderr(&output);
        assert!(text.contains("/nonexistent/folder/file: No such file"), "{flag}: {text}");
    }
}

#[test]
fn invalid_quantities_are_refused_with_an_example() {
    for (line, part) in [
        ("sim --rtt 100", "100ms"),
        ("sim --rate fast", "1gbit"),
        ("sim --loss 101%", "0.1%"),
        ("sim --streams 0", "--streams"),
        ("sim --cc none", "newreno"),
    ] {
        let output = run(sockeye(line));
        assert_eq!(output.status.code(), Some(2), "{line}");
        assert!(stderr(&output).contains(part), "{line}: {}", stderr(&output));
    }
}

/// A handshake of which a packet is lost takes a second or more. Whatever the other streams could send meanwhile is not of the measured time.
#[test]
fn streams_begin_together_when_all_are_connected() {
    for seed in 1..5 {
        let line =
            format!("sim --streams 20 --rate 2mbit --rtt 100ms --loss 8% --seconds 3 --json --seed {seed}");
        let output = run(sockeye(&line));
        let value: Value = serde_json::from_str(stdout(&output).trim()).unwrap();
        let streams = value["streams"].as_array().unwrap();
        for stream in streams {
            assert_eq!(stream["samples"][0]["received"], 0, "seed {seed}: {stream}");
        }
        assert!(value["utilisation"].as_f64().unwrap() <= 1.0, "seed {seed}: {value}");
    }
}
