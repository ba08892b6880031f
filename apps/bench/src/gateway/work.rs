//! The kinds of work, and how a sample of each is taken.
//!
//! Does not depend on how a gateway is started. Tests: below, of what the programs print.

use std::fs;
use std::io::{self, Read};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use serde_json::Value;

use super::GatewayBenchArgs;
use super::peers::{Gateway, Kind};
use super::place::{HOLD_PORT, HTTP_PORT, IPERF_PORT, Place};

/// For flows of earlier work to be gone from a gateway.
const SETTLE_MAX: Duration = Duration::from_secs(60);
/// For iperf3's server to be free.
const SERVER_PATIENCE: Duration = Duration::from_secs(10);
/// For datagrams of an earlier sample to be gone from all queues: `iperf3` takes the first that comes for its client's.
const DATAGRAMS_PAUSE: Duration = Duration::from_millis(500);
/// Between two tries.
const SERVER_PAUSE: Duration = Duration::from_millis(300);
/// Descriptors of a gateway without flows, at most: four loops have some 80.
const FEW_DESCRIPTORS: f64 = 120.0;

/// See the module's head.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Work {
    /// iperf3, from the inside out
    Out,
    /// iperf3, from outside in
    In,
    /// iperf3, four connections out
    #[value(name = "out-4")]
    Out4,
    /// iperf3, four connections in
    #[value(name = "in-4")]
    In4,
    /// ab, one connection that stays
    #[value(name = "keep-alive-1")]
    KeepAlive1,
    /// ab, 32 connections that stay
    #[value(name = "keep-alive-32")]
    KeepAlive32,
    /// ab, a connection for each request
    #[value(name = "connect-1")]
    Connect1,
    /// The same, 32 at a time
    #[value(name = "connect-32")]
    Connect32,
    /// iperf3, datagrams of 64 bytes out
    UdpSmall,
    /// iperf3, datagrams of 8 KiB out
    UdpLarge,
    /// Memory of the gateway for connections that do nothing
    Idle,
    /// Open descriptors of the gateway for each of them
    Descriptors,
    /// From the gateway's start to the first byte through it
    Start,
}

impl Work {
    /// In the order of the table.
    pub const ALL: [Work; 13] = [
        Work::Out,
        Work::In,
        Work::Out4,
        Work::In4,
        Work::KeepAlive1,
        Work::KeepAlive32,
        Work::Connect1,
        Work::Connect32,
        Work::UdpSmall,
        Work::UdpLarge,
        // Memory first: a second batch of flows finds that of the first.
        Work::Idle,
        Work::Descriptors,
        Work::Start,
    ];

    /// What it is called on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Work::Out => "out",
            Work::In => "in",
            Work::Out4 => "out-4",
            Work::In4 => "in-4",
            Work::KeepAlive1 => "keep-alive-1",
            Work::KeepAlive32 => "keep-alive-32",
            Work::Connect1 => "connect-1",
            Work::Connect32 => "connect-32",
            Work::UdpSmall => "udp-small",
            Work::UdpLarge => "udp-large",
            Work::Idle => "idle",
            Work::Descriptors => "descriptors",
            Work::Start => "start",
        }
    }

    /// Unit of its values.
    pub fn unit(self) -> &'static str {
        match self {
            Work::Out | Work::In | Work::Out4 | Work::In4 => "Gbit/s",
            Work::KeepAlive1 | Work::KeepAlive32 | Work::Connect1 | Work::Connect32 => "requests/s",
            Work::UdpSmall | Work::UdpLarge => "datagrams/s",
            Work::Idle => "MiB",
            Work::Descriptors => "each",
            Work::Start => "ms",
        }
    }

    /// The ratio to the best peer that is wanted, or the most of a value where less is better.
    pub fn goal(self) -> Goal {
        match self {
            Work::Out | Work::In | Work::Out4 | Work::In4 | Work::KeepAlive1 | Work::KeepAlive32 => {
                Goal::Ratio(1.3)
            }
            Work::Connect1 | Work::Connect32 => Goal::Ratio(1.2),
            Work::UdpSmall | Work::UdpLarge => Goal::Ratio(1.0),
            Work::Idle => Goal::Most(64.0),
            Work::Descriptors => Goal::Most(1.01),
            Work::Start => Goal::Most(100.0),
        }
    }

    /// Whether one sample says as much as many.
    pub fn is_steady(self) -> bool {
        matches!(self, Work::Idle | Work::Descriptors)
    }

    /// Whether there is such a thing with this gateway, or without one. So many idle flows are more than some peers have room for, and have a bound instead of a
    /// ratio.
    pub fn applies_to(self, kind: Kind) -> bool {
        match self {
            Work::Idle | Work::Descriptors => kind == Kind::Sockeye,
            Work::Start => kind != Kind::None,
            _ => true,
        }
    }

    pub fn needs_http(self) -> bool {
        matches!(self, Work::KeepAlive1 | Work::KeepAlive32 | Work::Connect1 | Work::Connect32)
    }

    pub fn needs_iperf(self) -> bool {
        !self.needs_http() && !self.is_steady() && self != Work::Start
    }

    /// Takes a sample. **Blocks** for its time.
    ///
    /// # Errors
    /// A program failed, with what it said; the system's.
    pub fn sample(self, args: &GatewayBenchArgs, gateway: &Gateway, place: &Place) -> io::Result<f64> {
        let seconds = args.seconds();
        match self {
            Work::Out => stream(gateway, seconds, &[]),
            Work::In => stream(gateway, seconds, &["-R"]),
            Work::Out4 => stream(gateway, seconds, &["-P", "4"]),
            Work::In4 => stream(gateway, seconds, &["-R", "-P", "4"]),
            Work::KeepAlive1 => requests(gateway, seconds, 1, &["-k"]),
            Work::KeepAlive32 => requests(gateway, seconds, 32, &["-k"]),
            Work::Connect1 => requests(gateway, seconds, 1, &[]),
            Work::Connect32 => requests(gateway, seconds, 32, &[]),
            Work::UdpSmall => datagrams(gateway, seconds, 64),
            Work::UdpLarge => datagrams(gateway, seconds, 8192),
            Work::Idle => idle(args.flows, gateway, |pid| Ok(resident(pid)? / 1024.0)),
            Work::Descriptors => {
                idle(args.flows, gateway, descriptors).map(|all| all / f64::from(args.flows))
            }
            // Another one of its kind, which ends at once.
            Work::Start => {
                let another = Gateway::start(gateway.kind, args, place)?;
                Ok(another.first_byte.as_secs_f64() * 1000.0)
            }
        }
    }
}

/// What is wanted.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Goal {
    /// So many times the best peer.
    Ratio(f64),
    /// A value that is no larger.
    Most(f64),
}

/// Runs a program inside. Returns what it printed.
fn run(gateway: &Gateway, program: &str, args: &[&str]) -> io::Result<String> {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null());
    let ran = gateway.inside.run(|| command.output())?;
    let ran = ran.map_err(|error| io::Error::new(error.kind(), format!("{program}: {error}")))?;
    let text = String::from_utf8_lossy(&ran.stdout).into_owned();
    // iperf3 says in its report what has failed.
    if ran.status.success() || text.starts_with('{') {
        return Ok(text);
    }
    let said = String::from_utf8_lossy(&ran.stderr);
    let last = said.lines().chain(text.lines()).rfind(|line| !line.trim().is_empty()).unwrap_or_default();
    Err(io::Error::other(format!("{program} through {}: {last}", gateway.kind.name())))
}

fn iperf3(gateway: &Gateway, seconds: u32, more: &[&str]) -> io::Result<Value> {
    let (port, seconds) = (IPERF_PORT.to_string(), seconds.to_string());
    let args = [&["-c", gateway.host, "-p", &port, "-t", &seconds, "-J"], more].concat();
    let deadline = Instant::now() + SERVER_PATIENCE;
    loop {
        let report: Value =
            serde_json::from_str(&run(gateway, "iperf3", &args)?).map_err(io::Error::other)?;
        match report.get("error").and_then(Value::as_str) {
            None => return Ok(report),
            // Its server serves one client, and takes a while to see that the one before has gone.
            Some(error) if error.contains("busy") && Instant::now() < deadline => thread::sleep(SERVER_PAUSE),
            Some(error) => {
                let said = format!("iperf3 through {}: {error}", gateway.kind.name());
                return Err(io::Error::other(said));
            }
        }
    }
}

fn stream(gateway: &Gateway, seconds: u32, more: &[&str]) -> io::Result<f64> {
    received(&iperf3(gateway, seconds, more)?)
}

/// Gbit/s that arrived.
fn received(report: &Value) -> io::Result<f64> {
    let bits = report.pointer("/end/sum_received/bits_per_second").and_then(Value::as_f64);
    bits.map(|bits| bits / 1e9).ok_or_else(|| io::Error::other("iperf3 reports no bits_per_second"))
}

fn datagrams(gateway: &Gateway, seconds: u32, len: usize) -> io::Result<f64> {
    thread::sleep(DATAGRAMS_PAUSE);
    let len = len.to_string();
    delivered(&iperf3(gateway, seconds, &["-u", "-b", "0", "-l", &len])?)
}

/// Datagrams a second that arrived.
fn delivered(report: &Value) -> io::Result<f64> {
    let of = |field: &str| report.pointer("/end/sum").and_then(|sum| sum.get(field)).and_then(Value::as_f64);
    match (of("packets"), of("lost_packets"), of("seconds")) {
        (Some(sent), Some(lost), Some(seconds)) if seconds > 0.0 => Ok((sent - lost) / seconds),
        _ => Err(io::Error::other("iperf3 reports no datagrams")),
    }
}

fn requests(gateway: &Gateway, seconds: u32, clients: u32, more: &[&str]) -> io::Result<f64> {
    let (seconds, clients) = (seconds.to_string(), clients.to_string());
    let url = format!("http://{}:{HTTP_PORT}/", gateway.host);
    let args = [&["-q", "-t", &seconds, "-n", "100000000", "-c", &clients], more, &[&url]].concat();
    requests_of(&run(gateway, "ab", &args)?)
}

/// Requests a second that `ab` counts.
fn requests_of(text: &str) -> io::Result<f64> {
    let failed = text.lines().find_map(|line| line.strip_prefix("Failed requests:"));
    if failed.is_some_and(|count| count.trim() != "0") {
        return Err(io::Error::other(format!("ab counts failed requests:{}", failed.unwrap_or_default())));
    }
    let line = text.lines().find_map(|line| line.strip_prefix("Requests per second:"));
    let number = line.and_then(|rest| rest.split_ascii_whitespace().next());
    number
        .and_then(|number| number.parse().ok())
        .ok_or_else(|| io::Error::other("ab reports no requests per second"))
}

/// What `of` its process is more with idle flows than without.
fn idle(flows: u32, gateway: &Gateway, of: impl Fn(u32) -> io::Result<f64>) -> io::Result<f64> {
    let Some(pid) = gateway.pid else { return Ok(0.0) };
    let before = settled(pid, &of)?;
    let held = gateway.inside.run(|| -> io::Result<Vec<TcpStream>> {
        (0..flows)
            .map(|_| {
                let mut stream = TcpStream::connect((gateway.host, HOLD_PORT))?;
                stream.read_exact(&mut [0])?;
                Ok(stream)
            })
            .collect()
    })??;
    let after = of(pid)?;
    drop(held);
    Ok(after - before)
}

/// The value once the flows of earlier work are gone.
fn settled(pid: u32, of: &impl Fn(u32) -> io::Result<f64>) -> io::Result<f64> {
    let deadline = Instant::now() + SETTLE_MAX;
    while descriptors(pid)? > FEW_DESCRIPTORS && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(100));
    }
    of(pid)
}

/// Resident memory, KiB.
fn resident(pid: u32) -> io::Result<f64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|rest| rest.split_ascii_whitespace().next());
    number.and_then(|number| number.parse().ok()).ok_or_else(|| io::Error::other("no VmRSS"))
}

fn descriptors(pid: u32) -> io::Result<f64> {
    Ok(fs::read_dir(format!("/proc/{pid}/fd"))?.count() as f64)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn reports_of_the_programs_are_read() {
        let text = "Failed requests:        0\nRequests per second:    3901.22 [#/sec] (mean)\n";
        assert_eq!(requests_of(text).unwrap(), 3901.22);
        assert!(requests_of("Failed requests:        3\nRequests per second:    1.0\n").is_err());
        assert!(requests_of("").is_err());
        let report = json!({ "end": { "sum_received": { "bits_per_second": 2.5e9 } } });
        assert_eq!(received(&report).unwrap(), 2.5);
        let report = json!({ "end": { "sum": { "packets": 100, "lost_packets": 20, "seconds": 2.0 } } });
        assert_eq!(delivered(&report).unwrap(), 40.0);
        assert!(received(&json!({})).is_err() && delivered(&json!({})).is_err());
    }
}
