//! `sockeye why`: one sentence about the limit of a connection now, and one about received bytes that nobody has read.
//!
//! Does not depend on how a stack decides; it says what the stack decided, with the figures that it decided by. Tests:
//! below.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::str::FromStr;

use clap::Args;
use serde_json::{Map, Value};
use sockeye_diag::Socket;

/// Which connections to explain.
#[derive(Args, Debug)]
pub struct WhyArgs {
    /// One end as ADDR:PORT, the port of either end, or #ID with the number that `sockeye ss` prints
    #[arg(value_name = "CONN")]
    conn: Which,

    /// The other end, as ADDR:PORT
    #[arg(value_name = "PEER", value_parser = end)]
    peer: Option<SocketAddr>,
}

/// How a connection is named.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Which {
    End(SocketAddr),
    Port(u16),
    Serial(u64),
}

impl FromStr for Which {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let serial = text.strip_prefix('#').map(|number| number.parse().map(Which::Serial));
        let named = serial.and_then(Result::ok);
        let named = named.or_else(|| text.parse().ok().map(Which::Port));
        let named = named.or_else(|| text.parse().ok().map(Which::End));
        named.ok_or_else(|| "give an address and port, as 10.9.0.2:80, a port, or #ID".to_owned())
    }
}

fn end(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "give an address and port, as 10.9.0.1:40000 or [fd09::1]:40000".to_owned())
}

impl WhyArgs {
    fn names(&self, socket: &Socket) -> bool {
        let ends = [Some(socket.local), socket.remote];
        let has = |addr: SocketAddr| ends.contains(&Some(addr));
        let is_it = match self.conn {
            Which::End(addr) => has(addr),
            Which::Port(port) => ends.iter().flatten().any(|end| end.port() == port),
            Which::Serial(serial) => socket.serial == serial,
        };
        is_it && self.peer.is_none_or(has)
    }
}

/// Connections that are explained at most.
const SHOWN_MAX: usize = 16;

/// Prints a sentence for each connection that is meant. Exit code 1 if there is none.
///
/// # Errors
/// If no program may be asked, or standard output is closed.
pub fn why(args: &WhyArgs) -> io::Result<ExitCode> {
    let (reports, code) = super::reports()?;
    let mut out = io::stdout().lock();
    let sockets = || reports.iter().flat_map(|report| &report.sockets);
    let is_meant =
        |socket: &&Socket| socket.remote.is_some() && socket.protocol == "tcp" && args.names(socket);
    let found: Vec<&Socket> = sockets().filter(is_meant).collect();
    for socket in found.iter().take(SHOWN_MAX) {
        let remote = socket.remote.map_or_else(String::new, |remote| remote.to_string());
        writeln!(out, "{} to {remote}: {}", socket.local, sentence(socket))?;
    }
    if found.len() > SHOWN_MAX {
        writeln!(out, "and {} more: name one by #ID, as sockeye ss prints it", found.len() - SHOWN_MAX)?;
    }
    if found.is_empty() {
        eprintln!("no running stack of this user has such a connection; sockeye ss lists them");
        return Ok(ExitCode::FAILURE);
    }
    Ok(code)
}

/// The limits of the connection in both directions, as the stack has them.
fn sentence(socket: &Socket) -> String {
    let sending = sending(socket);
    match receiving(socket) {
        Some(receiving) => format!("{sending} Receiving: {receiving}"),
        None => sending,
    }
}

/// The bytes that have arrived and wait to be read; none if there are none.
fn receiving(socket: &Socket) -> Option<String> {
    let (waiting, bound) = (socket.recv_queue as u64, socket.recv_buffer as u64);
    if waiting == 0 {
        return None;
    }
    let window = bytes(figure(&socket.tcp, "rcv_wnd"));
    let so_much = format!("{} of a buffer of {} wait to be read", bytes(waiting), bytes(bound));
    Some(if 2 * waiting >= bound {
        format!("{so_much}: the application is slow, and the peer may send only {window} more.")
    } else {
        format!("{so_much}, and the peer may send {window} more.")
    })
}

/// The limit of sending.
fn sending(socket: &Socket) -> String {
    let figures = &socket.bottleneck;
    if figures.is_empty() {
        return format!("it is in state {} and sends nothing any more.", socket.state);
    }
    let of = |name: &str| bytes(figure(figures, name));
    let explained = match figures.get("by").and_then(Value::as_str) {
        Some("application") => format!(
            "the application: all that it wrote is sent, and {} are on their way with room for {} in the peer's \
             window and {} in the congestion window.",
            of("in_flight"),
            of("snd_wnd"),
            of("cwnd"),
        ),
        Some("receive_window") => format!(
            "the receive window: the peer takes {} and {} are on their way, while {} wait; its application reads no \
             faster, or its buffer is too small for the path.",
            of("snd_wnd"),
            of("in_flight"),
            of("not_sent"),
        ),
        Some("congestion_window") => format!(
            "the congestion window: {} of its {} are on their way and {} wait; it still grows (slow start up to \
             {}), so more round trips would help.",
            of("in_flight"),
            of("cwnd"),
            of("not_sent"),
            threshold(figures),
        ),
        Some("send_buffer") => format!(
            "the send buffer: all {} of its {} are not acknowledged yet ({} on their way), and the windows would \
             take more.",
            of("buffered"),
            of("sndbuf"),
            of("in_flight"),
        ),
        Some("path") => format!(
            "the path: losses, marks or the pace leave a congestion window of {}, {} are on their way and {} wait.",
            of("cwnd"),
            of("in_flight"),
            of("not_sent"),
        ),
        Some(other) => format!("{other}."),
        None => "nothing: there is nothing to send and nothing on its way.".to_owned(),
    };
    format!("{explained}{}", round_trip(&socket.tcp))
}

/// Context for the other figures: the round trip and the retransmissions.
fn round_trip(tcp: &Map<String, Value>) -> String {
    let Some(rtt) = tcp.get("rtt_us").and_then(Value::as_u64) else { return String::new() };
    let again = figure(tcp, "rexmt_bytes");
    let again = if again > 0 { format!(", {} sent again so far", bytes(again)) } else { String::new() };
    format!(" (Round trip {:.3} ms{again}.)", rtt as f64 / 1e3)
}

fn figure(figures: &Map<String, Value>, name: &str) -> u64 {
    figures.get(name).and_then(Value::as_u64).unwrap_or(0)
}

/// The slow start threshold, if there is one yet.
fn threshold(figures: &Map<String, Value>) -> String {
    match figure(figures, "ssthresh") {
        unset if unset >= 1 << 30 => "the first loss".to_owned(),
        bytes_len => bytes(bytes_len),
    }
}

/// A size in the unit that makes it readable.
fn bytes(size: u64) -> String {
    let units = [(1 << 20, "MiB"), (1 << 10, "KiB")];
    match units.iter().find(|(unit, _)| size >= *unit) {
        Some((unit, name)) if size < 100 * unit => format!("{:.1} {name}", size as f64 / *unit as f64),
        Some((unit, name)) => format!("{} {name}", size / unit),
        None => format!("{size} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn socket(by: Value) -> Socket {
        serde_json::from_value(serde_json::json!({
            "protocol": "tcp", "state": "ESTAB", "local": "10.9.0.2:80", "remote": "10.9.0.1:40000", "recv_queue": 0,
            "send_queue": 0, "serial": 7, "is_held": true,
            "tcp": { "rtt_us": 1500, "rexmt_bytes": 20_480 },
            "bottleneck": { "by": by, "cwnd": 14_480, "ssthresh": 1_073_741_824, "in_flight": 9000, "snd_wnd": 65_536,
                "not_sent": 20_971_520, "sndbuf": 262_144, "buffered": 262_144 },
        }))
        .unwrap()
    }

    #[test]
    fn each_limit_has_a_sentence_with_its_figures() {
        for (by, expected) in [
            ("application", "8.8 KiB are on their way with room for 64.0 KiB"),
            ("receive_window", "the peer takes 64.0 KiB and 8.8 KiB are on their way, while 20.0 MiB wait"),
            ("congestion_window", "8.8 KiB of its 14.1 KiB are on their way and 20.0 MiB wait"),
            ("send_buffer", "all 256 KiB of its 256 KiB"),
            ("path", "a congestion window of 14.1 KiB"),
        ] {
            let explained = sentence(&socket(by.into()));
            assert!(
                explained.contains(expected)
                    && explained.ends_with("(Round trip 1.500 ms, 20.0 KiB sent again so far.)"),
                "{explained}"
            );
        }
        assert!(sentence(&socket(Value::Null)).starts_with("nothing"));
    }

    #[test]
    fn what_waits_to_be_read_is_told_and_blamed_on_the_application_from_half_a_buffer_on() {
        let of = |recv_queue, recv_buffer, rcv_wnd: u64| {
            let mut socket = socket(Value::Null);
            (socket.recv_queue, socket.recv_buffer) = (recv_queue, recv_buffer);
            socket.tcp.insert("rcv_wnd".into(), rcv_wnd.into());
            sentence(&socket)
        };
        let slow = of(3_000_000, 3_145_728, 0);
        let told = "2.9 MiB of a buffer of 3.0 MiB wait to be read: the application is slow, and the peer may send only 0 bytes more.";
        assert!(slow.ends_with(&format!("Receiving: {told}")) && slow.starts_with("nothing"), "{slow}");
        let busy = of(20_000, 131_072, 65_536);
        assert!(
            busy.ends_with(
                "19.5 KiB of a buffer of 128 KiB wait to be read, and the peer may send 64.0 KiB more."
            ),
            "{busy}"
        );
        assert!(!of(0, 131_072, 65_536).contains("Receiving"));
    }

    #[test]
    fn a_connection_is_named_by_an_end_both_ends_a_port_or_its_number() {
        let names = |conn: &str, peer: Option<&str>| {
            let args = WhyArgs { conn: conn.parse().unwrap(), peer: peer.map(|peer| peer.parse().unwrap()) };
            args.names(&socket(Value::Null))
        };
        assert!(names("10.9.0.2:80", None) && names("10.9.0.1:40000", None));
        assert!(names("80", None) && names("40000", None) && names("#7", None));
        assert!(names("10.9.0.2:80", Some("10.9.0.1:40000")));
        assert!(!names("10.9.0.2:80", Some("10.9.0.1:1")) && !names("81", None) && !names("#8", None));
        assert!("10.9.0.2".parse::<Which>().is_err() && "#x".parse::<Which>().is_err());
    }
}
