//! `sockeye sim --on kernel`: the kernel's TCP over the emulated link, if that is allowed, and the message if it is not.

use serde_json::Value;
use sockeye_drivers::testing::{skipped, unavailable};

use super::*;

#[test]
fn the_kernel_sends_over_the_emulated_link_or_the_command_names_what_is_missing() {
    let record = std::env::temp_dir().join(format!("sockeye-sim-kernel-{}.pcapng", std::process::id()));
    let line = "sim --on kernel --rtt 10ms --rate 10mbit --loss 1% --reorder 2% --seconds 1 --json --pcap";
    let output = run(sockeye(&format!("{line} {}", record.display())));
    let packets = std::fs::read(&record).unwrap();
    std::fs::remove_file(&record).unwrap();
    if unavailable().is_some() {
        assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
        let message = stderr(&output);
        assert!(message.contains("needs root") && message.contains("/dev/net/tun"), "{message}");
        return;
    }
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(packets.starts_with(&[0x0a, 0x0d, 0x0d, 0x0a]) && packets.len() > 10_000, "{}", packets.len());
    let value: Value = serde_json::from_str(stdout(&output).trim()).unwrap();
    let count = |name: &str| value["link"][name].as_u64().unwrap();
    assert!(count("delivered") > 0 && count("delivered") <= count("offered"), "{value}");
    let course = value["course"].as_array().unwrap();
    let received: Vec<u64> = course.iter().map(|sample| sample["received"].as_u64().unwrap()).collect();
    assert!(received.is_sorted() && *received.last().unwrap() > 0);
    assert!(value["late_ms"]["most"].as_f64().unwrap() >= value["late_ms"]["median"].as_f64().unwrap());
    assert_eq!(value["params"]["rtt_ms"], 10.0);
}

#[test]
fn the_kernels_connection_asks_for_ecn_if_it_is_told_to() {
    if skipped() {
        return;
    }
    let output = run(sockeye("sim --on kernel --ecn --mark 5K --rtt 10ms --rate 10mbit --seconds 1 --json"));
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let value: Value = serde_json::from_str(stdout(&output).trim()).unwrap();
    let marked = value["counters"]["TcpExt.TCPDeliveredCE"].as_u64();
    assert!(marked.is_some_and(|marked| marked > 0), "{value}");
}

#[test]
fn options_of_the_simulator_only_are_refused() {
    let refused = [
        ("--streams 2", "stream"),
        ("--chart none.html", "--chart"),
        ("--pacing on", "--pacing"),
        ("--autotune", "--autotune"),
    ];
    for (line, part) in refused {
        let output = run(sockeye(&format!("sim --on kernel --seconds 1 {line}")));
        assert_eq!(output.status.code(), Some(1), "{line}");
        assert!(stderr(&output).contains(part), "{line}: {}", stderr(&output));
    }
}
