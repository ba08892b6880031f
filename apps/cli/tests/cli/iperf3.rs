//! `sockeye iperf3` against a stock server in the kernel, over a device.
//!
//! Skipped, with the reason, where there is no right to make devices or no iperf3.

use std::fs;
use std::process::Child;
use std::time::{Duration, Instant};

use serde_json::Value;
use sockeye_drivers::Namespace;
use sockeye_drivers::testing::{skip, skipped};

use super::*;

/// How long the server may take to listen.
const PATIENCE: Duration = Duration::from_secs(60);
/// Its port as the kernel writes it in /proc/net/tcp6, and the state of a listener.
const LISTENS: [&str; 2] = [":1451 ", " 0A "];

/// A stock server in a namespace of its own.
struct Server {
    namespace: Namespace,
    child: Child,
}

impl Server {
    /// `None`, with a message, if there can be none here.
    fn start() -> Option<Self> {
        if skipped() {
            return None;
        }
        let namespace = Namespace::new().unwrap();
        let mut command = Command::new("iperf3");
        command.arg("-s").stdin(Stdio::null()).stdout(Stdio::null());
        let child = match namespace.run(|| command.spawn()).unwrap() {
            Ok(child) => child,
            Err(error) => {
                skip(&format!("iperf3: {error}"));
                return None;
            }
        };
        let deadline = Instant::now() + PATIENCE;
        while !listens(&namespace) {
            assert!(Instant::now() < deadline, "the server does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
        Some(Self { namespace, child })
    }

    /// Our client beside it, in the same namespace.
    fn client(&self, line: &str) -> Output {
        let mut command = sockeye(&format!("iperf3 {line}"));
        self.namespace.run(|| command.output()).unwrap().unwrap()
    }

    /// The measurements of our client.
    fn measures(&self, line: &str) -> Value {
        let output = self.client(&format!("{line} --json"));
        assert_eq!(output.status.code(), Some(0), "{line}: {}{}", stdout(&output), stderr(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn listens(namespace: &Namespace) -> bool {
    let read = || fs::read_to_string("/proc/thread-self/net/tcp6");
    let table = namespace.run(read).unwrap().unwrap();
    table.lines().any(|line| LISTENS.iter().all(|part| line.contains(part)))
}

const V4: &str = "-c 10.9.0.1 --addr 10.9.0.2/24 -t 1";

#[test]
fn streams_both_ways_are_measured_as_a_stock_server_counts_them() {
    let Some(server) = Server::start() else { return };
    for (line, count) in [("", 1), ("-R", 1), ("-P 10", 10), ("-P 10 -R", 10), ("-b 100M -l 8K -N", 1)] {
        let result = server.measures(&format!("{V4} {line}"));
        let end = &result["end"];
        let [sent, received] = ["sum_sent", "sum_received"].map(|sum| end[sum]["bytes"].as_f64().unwrap());
        assert!(sent >= received && received > 1e6, "{line}: {result}");
        // Bytes in flight at the end were sent and are not counted.
        assert!(received > 0.5 * sent, "{line}: {result}");
        assert_eq!(end["streams"].as_array().unwrap().len(), count, "{line}");
        assert!(end["sum_sent"]["retransmits"].is_u64(), "{line}: {result}");
        assert!(end["sender_tcp_congestion"].is_string(), "{line}: {result}");
        let passed: f64 =
            result["intervals"].as_array().unwrap().iter().map(|i| i["sum"]["bytes"].as_f64().unwrap()).sum();
        assert!(passed > 0.0, "{line}: {result}");
    }
    let limited = server.measures(&format!("{V4} -b 8M"));
    let rate = limited["end"]["sum_received"]["bits_per_second"].as_f64().unwrap();
    assert!((1e6..40e6).contains(&rate), "{limited}");
}

#[test]
fn datagrams_both_ways_are_numbered_and_the_missing_counted() {
    let Some(server) = Server::start() else { return };
    for line in ["-u -b 20M", "-u -b 20M -P 2 -R", "-u -b 10M -l 5000"] {
        let result = server.measures(&format!("{V4} {line}"));
        let sum = &result["end"]["sum"];
        assert!(sum["bytes"].as_f64().unwrap() > 100_000.0, "{line}: {result}");
        assert!(sum["packets"].as_u64().unwrap() > 20, "{line}: {result}");
        let lost = sum["lost_percent"].as_f64().unwrap();
        assert!((0.0..100.0).contains(&lost), "{line}: {result}");
    }
}

#[test]
fn a_test_ends_after_its_bytes_and_both_ends_may_send_at_once() {
    let Some(server) = Server::start() else { return };
    let line = "-c 10.9.0.1 --addr 10.9.0.2/24";
    const BYTES: f64 = (20 << 20) as f64;
    for way in ["", "-R", "-P 3", "-u -b 1G", "-u -b 1G -R"] {
        let result = server.measures(&format!("{line} -n 20M {way}"));
        let of = |sum: &str| result["end"][sum]["bytes"].as_f64().unwrap();
        // The side that counts to the end is us; a sender ends with a block.
        let own = if way.contains("-R") { of("sum_received") } else { of("sum_sent") };
        assert!((BYTES..BYTES + 4e6).contains(&own), "{way}: {own} {result}");
        assert_eq!(result["start"]["test_start"]["bytes"].as_f64(), Some(BYTES), "{way}");
    }
    for way in ["", "-P 2 -w 200K", "-u -b 20M"] {
        let result = server.measures(&format!("{line} -t 1 --bidir {way}"));
        for sum in ["sum_sent", "sum_received", "sum_sent_bidir_reverse", "sum_received_bidir_reverse"] {
            let bytes = result["end"][sum]["bytes"].as_f64().unwrap();
            assert!(bytes > 100_000.0, "{way}: {sum}: {result}");
        }
        let count = if way.contains("-P") { 4 } else { 2 };
        assert_eq!(result["end"]["streams"].as_array().unwrap().len(), count, "{way}");
    }
    let output = server.client(&format!("{line} -t 1 --bidir -P 2"));
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{text}{}", stderr(&output));
    for expected in ["[ ID][Role] Interval", "][TX-C]", "][RX-C]", "[SUM][TX-C]", "[SUM][RX-C]", "Done."] {
        assert!(text.contains(expected), "{expected:?}: {text}");
    }
}

#[test]
fn the_table_is_iperf3s_over_ipv6_and_ethernet_and_a_record_is_kept() {
    let Some(server) = Server::start() else { return };
    let path = std::env::temp_dir().join(format!("sockeye-iperf3-test-{}.pcapng", std::process::id()));
    let line = format!(
        "-c fd09::1 --addr fd09::2/64 --tap -t 1 -P 2 -i 0.5 --pcap {} --pcap-max 64K --snaplen 96",
        path.display()
    );
    let output = server.client(&line);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{text}{}", stderr(&output));
    for expected in [
        "Connecting to host fd09::1, port 5201",
        "local fd09::2 port",
        "Retr  Cwnd",
        "[SUM]   0.00-",
        "sec",
        "Bytes",
        "bits/sec",
        "sender\n",
        "receiver\n",
        "Done.",
    ] {
        assert!(text.contains(expected), "{expected:?}: {text}");
    }
    // At least one line of each of two streams and their sum, and the table with both ends of the three.
    assert!(text.lines().filter(|line| line.contains("bits/sec")).count() >= 3 + 6, "{text}");
    assert!(stderr(&output).contains("recorded"), "{}", stderr(&output));
    let record = fs::read(&path).unwrap();
    fs::remove_file(&path).unwrap();
    assert!(record.starts_with(&[0x0a, 0x0d, 0x0d, 0x0a]) && record.len() > 1000);
}

/// Two clients at once; returns whether the second one, which prints JSON, found the server busy with the first.
fn is_the_second_turned_away(server: &Server) -> bool {
    std::thread::scope(|scope| {
        let first = scope.spawn(|| server.client("-c 10.9.1.1 --addr 10.9.1.2/24 -t 2 -b 1M"));
        std::thread::sleep(Duration::from_millis(500));
        let second = server.client("-c 10.9.0.1 --addr 10.9.0.2/24 -t 1 -b 1M -J");
        let first = first.join().unwrap();
        assert!([Some(0), Some(1)].contains(&first.status.code()), "{}", stderr(&first));
        let text: Value = serde_json::from_slice(&second.stdout).unwrap();
        second.status.code() == Some(1) && text["error"].as_str().unwrap().contains("busy")
    })
}

#[test]
fn a_busy_or_absent_server_is_reported() {
    let Some(server) = Server::start() else { return };
    let deadline = Instant::now() + PATIENCE;
    // The second one is refused; that has to be the one with JSON output.
    while !is_the_second_turned_away(&server) {
        assert!(Instant::now() < deadline, "the server was never busy");
    }
    let output = server.client("-c 10.9.0.1 --addr 10.9.0.2/24 -p 5999");
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("10.9.0.1:5999") && stderr(&output).contains("refused"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn an_unsupported_test_is_a_usage_error() {
    for (line, expected) in [
        ("iperf3 --addr 10.9.0.2/24", "--client"),
        ("iperf3 -c 10.9.0.1", "--addr"),
        ("iperf3 -c fd09::1 --addr 10.9.0.2/24", "IPv6"),
    ] {
        let output = run(sockeye(line));
        assert_eq!(output.status.code(), Some(2), "{line}");
        assert!(stderr(&output).contains(expected), "{line}: {}", stderr(&output));
    }
}
