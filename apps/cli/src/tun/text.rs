//! The output of `sockeye tun`.
//!
//! Does not depend on the device. Tests: below.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use sockeye_drivers::QueueCounts;

use crate::services::{Kind, Service};

/// Commands that reach the stack, the best first.
pub fn suggestions(addrs: &[IpAddr], services: &[Service]) -> Vec<String> {
    let mut lines = Vec::new();
    for addr in addrs {
        lines.push(format!("ping {addr}"));
        lines.extend(services.iter().map(|service| {
            let port = service.port;
            match &service.kind {
                Kind::Echo => format!("echo hello | nc -N {addr} {port}"),
                Kind::Discard => format!("head -c 1G /dev/zero | nc -N {addr} {port}"),
                Kind::Chargen => format!("nc {addr} {port} </dev/null | head -3"),
                Kind::Http(_) => format!("curl http://{}/", SocketAddr::new(*addr, port)),
                Kind::Iperf3 if port == Kind::IPERF3_PORT => {
                    format!("iperf3 -c {addr}        (-R, -P 4, -u -b 1G, --bidir)")
                }
                Kind::Iperf3 => format!("iperf3 -c {addr} -p {port}"),
            }
        }));
    }
    lines.push("sockeye ss -ti; sockeye nstat; sockeye why PORT".to_owned());
    lines
}

/// A line about the last `time`.
pub fn rates(before: &[QueueCounts], now: &[QueueCounts], time: Duration, connections: usize) -> String {
    let (before, now) = (sum(before), sum(now));
    let seconds = time.as_secs_f64();
    let rate = |before: u64, now: u64| now.saturating_sub(before) as f64 / seconds;
    let way = |bytes: f64, frames: f64| format!("{} {frames:.0} frames/s", bits(8.0 * bytes));
    format!(
        "{connections} connections   in {}   out {}",
        way(rate(before.bytes_in, now.bytes_in), rate(before.frames_in, now.frames_in)),
        way(rate(before.bytes_out, now.bytes_out), rate(before.frames_out, now.frames_out)),
    )
}

/// Traffic in all.
pub fn total(counts: &[QueueCounts]) -> String {
    let all = sum(counts);
    format!(
        "in {} frames, {} bytes; out {} frames, {} bytes; {} not taken by the kernel",
        all.frames_in, all.bytes_in, all.frames_out, all.bytes_out, all.refused
    )
}

fn sum(counts: &[QueueCounts]) -> QueueCounts {
    let of = |field: fn(&QueueCounts) -> u64| counts.iter().map(field).sum();
    QueueCounts {
        frames_in: of(|c| c.frames_in),
        bytes_in: of(|c| c.bytes_in),
        frames_out: of(|c| c.frames_out),
        bytes_out: of(|c| c.bytes_out),
        refused: of(|c| c.refused),
        failed_reads: of(|c| c.failed_reads),
        sleeps: of(|c| c.sleeps),
    }
}

/// A rate in the unit that makes it readable.
pub fn bits(rate: f64) -> String {
    let units = [(1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s")];
    match units.iter().find(|(unit, _)| rate >= *unit) {
        Some((unit, name)) => format!("{:.2} {name}", rate / unit),
        None => format!("{rate:.0} bit/s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_service_of_each_address_has_a_line_to_try() {
        let services = ["echo", "discard", "chargen", "http=/", "iperf3"].map(|text| text.parse().unwrap());
        let lines = suggestions(&["10.9.0.2".parse().unwrap(), "fd09::2".parse().unwrap()], &services);
        assert_eq!(lines.len(), 2 * (1 + services.len()) + 1);
        assert_eq!(lines[0], "ping 10.9.0.2");
        assert!(lines.iter().any(|line| line.starts_with("iperf3 -c fd09::2")));
        assert!(lines.contains(&"curl http://[fd09::2]:80/".to_owned()));
        let moved = suggestions(&["10.9.0.2".parse().unwrap()], &["iperf3:99".parse().unwrap()]);
        assert_eq!(moved[1], "iperf3 -c 10.9.0.2 -p 99");
    }

    #[test]
    fn rates_are_those_of_all_queues_and_of_the_time() {
        let queue = |bytes_in| QueueCounts { bytes_in, frames_in: bytes_in / 1000, ..QueueCounts::default() };
        let line = rates(&[queue(0), queue(1000)], &[queue(250_000), queue(1000)], Duration::from_secs(2), 3);
        assert_eq!(line, "3 connections   in 1.00 Mbit/s 125 frames/s   out 0 bit/s 0 frames/s");
        assert!(total(&[queue(5000), queue(1000)]).starts_with("in 6 frames, 6000 bytes"));
        assert_eq!([bits(2.5e9), bits(1e3)], ["2.50 Gbit/s", "1.00 kbit/s"]);
    }
}
