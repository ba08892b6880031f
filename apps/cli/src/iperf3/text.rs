//! A test as iperf3 prints it: lines on the way, and a table at the end.
//!
//! Columns and units are those of iperf 3.12: bytes by 1,024, bits by 1,000. Does not depend on how it is
//! measured. Tests: below.

use std::fmt::Write as _;

use crate::services::iperf3::client::{Ends, Interval, Measured, Moved, Show, Wishes};
use crate::services::iperf3::protocol::{Params, StreamResult};

/// Prints as it goes.
pub struct Text {
    wishes: Wishes,
}

impl Text {
    pub fn new(wishes: &Wishes) -> Self {
        Self { wishes: wishes.clone() }
    }

    /// The table at the end: each stream at its sender and at its receiver, and their sums.
    pub fn end(&self, measured: &Measured) -> String {
        let params = &self.wishes.params;
        let mut out = format!("{RULE}\n");
        let head = if params.udp {
            HEAD_DATAGRAMS
        } else if has_retransmits(measured) {
            HEAD_RETR
        } else {
            HEAD
        };
        push_head(&mut out, head, params);
        for sends in [true, false] {
            let ends: Vec<_> = measured.ends(params).into_iter().filter(|(own, _)| *own == sends).collect();
            for (_, pair) in &ends {
                let name = format!("{:>3}", pair[0].id);
                last_lines(&mut out, params, (&name, sends), measured.lasted, pair);
            }
            if ends.len() > 1 {
                let of = |end: usize| ends.iter().map(move |(_, pair)| &pair[end]);
                let sums = [0, 1].map(|end| StreamResult::sum(of(end)));
                last_lines(&mut out, params, ("SUM", sends), measured.lasted, &sums);
            }
        }
        out.push_str("\nDone.\n");
        out
    }
}

impl Show for Text {
    fn connected(&mut self, params: &Params, streams: &[Ends]) {
        self.wishes.params = params.clone();
        let to = self.wishes.to;
        let mut out = format!("Connecting to host {}, port {}\n", self.wishes.host, to.port());
        if params.reverse {
            out.push_str(&format!("Reverse mode, remote host {} is sending\n", to.ip()));
        }
        for ends in streams {
            let (id, local, remote) = (ends.id, ends.local, ends.remote);
            push(
                &mut out,
                format_args!(
                    "[{id:>3}] local {} port {} connected to {} port {}\n",
                    local.ip(),
                    local.port(),
                    remote.ip(),
                    remote.port()
                ),
            );
        }
        if !self.wishes.every.is_zero() {
            let head = match (params.udp, params.reverse) {
                (false, false) => HEAD_CWND,
                (false, true) => HEAD,
                (true, false) if !params.bidirectional => HEAD_SENT,
                (true, false | true) => HEAD_DATAGRAMS,
            };
            push_head(&mut out, head, params);
        }
        print(&out);
    }

    fn passed(&mut self, interval: &Interval) {
        print(&lines(interval, &self.wishes.params));
    }
}

/// To standard output. A closed output does not stop a test.
fn print(text: &str) {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    drop(out.write_all(text.as_bytes()).and_then(|()| out.flush()));
}

/// Writing to a string cannot fail.
fn push(out: &mut String, arguments: std::fmt::Arguments<'_>) {
    let _ = out.write_fmt(arguments);
}

const RULE: &str = "- - - - - - - - - - - - - - - - - - - - - - - - -";
/// Prefix of heads.
const HEAD_ID: &str = "[ ID]";
const HEAD: &str = "[ ID] Interval           Transfer     Bitrate\n";
const HEAD_RETR: &str = "[ ID] Interval           Transfer     Bitrate         Retr\n";
const HEAD_CWND: &str = "[ ID] Interval           Transfer     Bitrate         Retr  Cwnd\n";
const HEAD_SENT: &str = "[ ID] Interval           Transfer     Bitrate         Total Datagrams\n";
const HEAD_DATAGRAMS: &str =
    "[ ID] Interval           Transfer     Bitrate         Jitter    Lost/Total Datagrams\n";

/// With the column for the direction, in a test of both.
fn push_head(out: &mut String, head: &str, params: &Params) {
    match head.strip_prefix(HEAD_ID).filter(|_| params.bidirectional) {
        Some(rest) => push(out, format_args!("{HEAD_ID}[Role]{rest}")),
        None => out.push_str(head),
    }
}

/// In that column.
fn role(params: &Params, sends: bool) -> &'static str {
    match (params.bidirectional, sends) {
        (false, _) => "",
        (true, true) => "[TX-C]",
        (true, false) => "[RX-C]",
    }
}

/// Some time on the way.
fn lines(interval: &Interval, params: &Params) -> String {
    let mut out = String::new();
    for sends in [true, false] {
        let streams: Vec<_> = interval.streams.iter().filter(|moved| moved.sends == sends).collect();
        let mut sum = Moved { sends, ..Moved::default() };
        for moved in &streams {
            line(&mut out, &format!("{:>3}", moved.id), interval, moved, params);
            sum.bytes += moved.bytes;
            sum.packets += moved.packets;
            sum.errors += moved.errors;
            sum.jitter += moved.jitter / streams.len() as f64;
            let own = moved.tcp.map_or(0, |(again, _)| again);
            sum.tcp = sum.tcp.map_or(moved.tcp, |(again, window)| Some((again + own, window)));
        }
        if streams.len() > 1 {
            line(&mut out, "SUM", interval, &sum, params);
        }
    }
    if interval.streams.len() > 1 {
        push(&mut out, format_args!("{RULE}\n"));
    }
    out
}

fn line(out: &mut String, name: &str, interval: &Interval, moved: &Moved, params: &Params) {
    begin(out, (name, role(params, moved.sends)), interval.start, interval.end, moved.bytes);
    match (params.udp, moved.tcp) {
        (true, _) if !moved.sends => datagrams(out, moved.jitter, moved.errors, moved.packets),
        (true, _) => push(out, format_args!("  {}", moved.packets)),
        // Windows of several streams make no sum.
        (false, Some((again, _))) if name == "SUM" => push(out, format_args!("  {again:>3}")),
        (false, Some((again, window))) => {
            push(out, format_args!("  {again:>3}   {}", amount(f64::from(window), 1024.0, "Bytes")));
        }
        (false, None) => {}
    }
    out.push('\n');
}

/// Both ends of a stream in the table.
fn last_lines(
    out: &mut String,
    params: &Params,
    (name, sends): (&str, bool),
    lasted: f64,
    ends: &[StreamResult; 2],
) {
    for (end, side) in ends.iter().zip(["sender", "receiver"]) {
        begin(out, (name, role(params, sends)), 0.0, lasted, end.bytes);
        if params.udp {
            datagrams(out, end.jitter, end.errors, end.packets);
        } else if side == "sender" && end.retransmits >= 0 {
            push(out, format_args!("  {:>3}             ", end.retransmits));
        } else {
            out.push_str("                  ");
        }
        push(out, format_args!("  {side}\n"));
    }
}

/// Prefix of all lines.
fn begin(out: &mut String, (name, role): (&str, &str), start: f64, end: f64, bytes: u64) {
    let span = (end - start).max(f64::MIN_POSITIVE);
    push(
        out,
        format_args!(
            "[{name}]{role} {start:>6.2}-{end:<6.2} sec  {}  {}/sec",
            amount(bytes as f64, 1024.0, "Bytes"),
            amount(8.0 * bytes as f64 / span, 1000.0, "bits"),
        ),
    );
}

fn datagrams(out: &mut String, jitter: f64, lost: u64, all: u64) {
    let percent = if all > 0 { 100.0 * lost as f64 / all as f64 } else { 0.0 };
    let jitter_ms = 1e3 * jitter;
    push(out, format_args!("  {jitter_ms:>5.3} ms  {lost}/{all} ({percent:.2}%)"));
}

/// Whether a sender says how much it has sent again.
fn has_retransmits(measured: &Measured) -> bool {
    let both = measured.own.streams.iter().chain(&measured.server.streams);
    both.into_iter().any(|stream| stream.retransmits >= 0)
}

/// A quantity with three digits or so and the unit that makes that possible.
fn amount(mut value: f64, step: f64, unit: &str) -> String {
    let mut prefix = "";
    for larger in ["K", "M", "G", "T"] {
        if value < step {
            break;
        }
        value /= step;
        prefix = larger;
    }
    let digits = match value {
        small if small < 9.995 => 2,
        middle if middle < 99.95 => 1,
        _ => 0,
    };
    let unit = if prefix.is_empty() { format!(" {unit}") } else { format!("{prefix}{unit}") };
    format!("{value:>4.digits$} {unit}")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::services::iperf3::protocol::Results;

    fn wishes(params: Params) -> Wishes {
        Wishes {
            host: "10.9.0.1".to_owned(),
            to: "10.9.0.1:5201".parse().unwrap(),
            params,
            every: Duration::from_secs(1),
        }
    }

    #[test]
    fn amounts_have_three_digits_and_the_unit_that_fits() {
        assert_eq!(amount(1.1 * 1024.0 * 1024.0 * 1024.0, 1024.0, "Bytes"), "1.10 GBytes");
        assert_eq!(amount(112.0 * 1024.0 * 1024.0, 1024.0, "Bytes"), " 112 MBytes");
        assert_eq!(amount(94.2e6, 1000.0, "bits"), "94.2 Mbits");
        assert_eq!(amount(0.0, 1000.0, "bits"), "0.00  bits");
    }

    #[test]
    fn interval_lines_cover_each_stream_and_all() {
        let moved =
            |id| Moved { id, sends: true, bytes: 1 << 30, tcp: Some((3, 1 << 20)), ..Moved::default() };
        let interval = Interval { start: 1.0, end: 2.0, streams: vec![moved(1), moved(3)] };
        let shown = lines(&interval, &Params::default());
        let shown: Vec<_> = shown.lines().collect();
        assert_eq!(shown[0], "[  1]   1.00-2.00   sec  1.00 GBytes  8.59 Gbits/sec    3   1.00 MBytes");
        assert_eq!(shown[2], "[SUM]   1.00-2.00   sec  2.00 GBytes  17.2 Gbits/sec    6");
        let datagrams =
            Moved { id: 1, bytes: 1000, packets: 10, errors: 1, jitter: 2e-5, ..Moved::default() };
        let interval = Interval { start: 0.0, end: 1.0, streams: vec![datagrams] };
        let reverse = Params { udp: true, reverse: true, ..Params::default() };
        assert!(lines(&interval, &reverse).ends_with("0.020 ms  1/10 (10.00%)\n"));
        let back = Moved { sends: false, tcp: None, ..moved(3) };
        let interval = Interval { start: 1.0, end: 2.0, streams: vec![moved(1), back] };
        let both = Params { bidirectional: true, parallel: 1, ..Params::default() };
        let shown = lines(&interval, &both);
        let shown: Vec<_> = shown.lines().collect();
        assert_eq!(shown[0], "[  1][TX-C]   1.00-2.00   sec  1.00 GBytes  8.59 Gbits/sec    3   1.00 MBytes");
        assert_eq!(shown[1], "[  3][RX-C]   1.00-2.00   sec  1.00 GBytes  8.59 Gbits/sec");
    }

    #[test]
    fn the_table_has_both_ends_of_each_stream_and_sums_of_several() {
        let result =
            |id, bytes, retransmits| StreamResult { id, bytes, retransmits, ..StreamResult::default() };
        let results = |streams| Results { streams, ..Results::default() };
        let measured = Measured {
            lasted: 10.0,
            own: results(vec![result(1, 1000, 2), result(3, 2000, 5)]),
            server: results(vec![result(3, 1900, -1), result(1, 900, -1)]),
        };
        let shown = Text::new(&wishes(Params::default())).end(&measured);
        let shown: Vec<_> = shown.lines().collect();
        assert_eq!(shown[1], HEAD_RETR.trim_end());
        assert!(shown[2].starts_with("[  1]   0.00-10.00  sec  1000  Bytes") && shown[2].ends_with("sender"));
        assert!(shown[3].contains(" 900  Bytes") && shown[3].ends_with("receiver"), "{shown:?}");
        assert!(
            shown[6].starts_with("[SUM]") && shown[6].contains("2.93 KBytes") && shown[6].contains("    7  ")
        );
        assert!(shown[7].contains("2.73 KBytes") && shown[7].ends_with("receiver"), "{shown:?}");
        let both = Params { bidirectional: true, parallel: 1, ..Params::default() };
        let shown = Text::new(&wishes(both)).end(&measured);
        let shown: Vec<_> = shown.lines().collect();
        assert!(shown[1].starts_with("[ ID][Role] Interval"), "{shown:?}");
        assert!(shown[2].starts_with("[  1][TX-C]") && shown[2].contains("1000  Bytes"), "{shown:?}");
        assert!(shown[4].starts_with("[  3][RX-C]") && shown[4].contains("1.86 KBytes"), "{shown:?}");
        assert!(shown[5].contains("1.95 KBytes") && shown[5].ends_with("receiver"), "{shown:?}");
    }
}
