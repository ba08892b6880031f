//! `sockeye ss`: sockets of running stacks, as ss(8) shows the kernel's.
//!
//! Names of figures are those of `ss -ti`; windows and thresholds are in segments there, and here. As there, listeners, closed sockets, connections
//! in TIME-WAIT and those that are not accepted yet are hidden unless they are asked for. Does not depend on where figures come from. Tests: below.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Args;
use serde_json::{Map, Value};
use sockeye_diag::{Report, Socket, UnixSocket};
use sockeye_shared::end::{CommandError, UsageError};

use super::filter::{BUCKET, Filter};

/// Options of the output.
#[derive(Args, Debug, Default)]
pub struct SsArgs {
    /// Show TCP sockets
    #[arg(short, long)]
    tcp: bool,

    /// Show UDP sockets
    #[arg(short, long)]
    udp: bool,

    /// Show UNIX-domain sockets
    #[arg(short = 'x', long)]
    unix: bool,

    /// Show only listeners and datagram sockets without a peer
    #[arg(short, long)]
    listening: bool,

    /// Show all sockets: also listeners, and connections in TIME-WAIT or not accepted yet
    #[arg(short, long, conflicts_with = "listening")]
    all: bool,

    /// Show only IPv4 sockets
    #[arg(short = '4', long)]
    ipv4: bool,

    /// Show only IPv6 sockets
    #[arg(short = '6', long)]
    ipv6: bool,

    /// Show how many sockets of each kind there are, and no sockets
    #[arg(short, long, conflicts_with_all = [
        "tcp", "udp", "unix", "listening", "all", "ipv4", "ipv6", "info", "options", "memory", "filter",
    ])]
    summary: bool,

    /// Do not resolve names. They never are; for the habit of ss(8)
    #[arg(short, long)]
    numeric: bool,

    /// Show programs. They always are, in the last column; for the habit of ss(8)
    #[arg(short, long)]
    processes: bool,

    /// Show the state of each TCP connection: window, round trip, bytes, retransmissions
    #[arg(short, long)]
    info: bool,

    /// Show the timer that runs: its name, the time until it expires, and how often it has expired since the last answer
    #[arg(short, long)]
    options: bool,

    /// Show bytes in the receive (r) and send (w) buffer, their bounds (rb, tb), and datagrams dropped for want of space (d)
    #[arg(short, long)]
    memory: bool,

    /// Print one JSON object a line for each stack, with all fields
    #[arg(long)]
    json: bool,

    /// States and an expression, in the words of ss(8): state time-wait, or '( dport = :80 or dst 10.0.0.0/8 )'
    filter: Vec<String>,
}

/// Prints the sockets of every stack.
///
/// # Errors
/// If the filter is wrong, no program may be asked, or standard output is closed.
pub fn ss(args: &SsArgs) -> Result<ExitCode, CommandError> {
    let filter = Filter::read(&args.filter).map_err(|error| CommandError::Usage(UsageError(error)))?;
    let (mut reports, code) = super::reports()?;
    let mut out = io::stdout().lock();
    if args.summary {
        for report in &reports {
            let counts = Counts::of(report);
            if args.json {
                writeln!(out, "{}", counts.json(report))?
            } else {
                counts.print(report, &mut out)?
            }
        }
        return Ok(code);
    }
    for report in &mut reports {
        report.sockets.retain(|socket| args.shows(&filter, socket));
        report.unix.retain(|socket| args.shows_unix(&filter, socket));
        if args.json {
            let line = serde_json::json!({
                "pid": report.pid, "program": report.program, "stack": report.name, "sockets": report.sockets,
                "unix": report.unix,
            });
            writeln!(out, "{line}")?;
        }
    }
    if !args.json {
        table(args, &reports, &mut out)?;
    }
    Ok(code)
}

impl SsArgs {
    /// As with ss, the kinds are all if none is named.
    fn shows(&self, filter: &Filter, socket: &Socket) -> bool {
        let is_named = match socket.protocol.as_str() {
            "tcp" => self.tcp,
            "udp" => self.udp,
            _ => false,
        };
        let is_family = if socket.local.is_ipv4() { self.ipv4 } else { self.ipv6 };
        (is_named || self.names_none())
            && (is_family || !(self.ipv4 || self.ipv6))
            && self.wants(filter, &socket.state, socket.remote.is_none())
            && filter.matches(socket)
    }

    /// An expression is about addresses, which these sockets do not have.
    fn shows_unix(&self, filter: &Filter, socket: &UnixSocket) -> bool {
        (self.unix || self.names_none())
            && !(self.ipv4 || self.ipv6 || filter.has_expression())
            && self.wants(filter, &socket.state, socket.state != "ESTAB")
    }

    fn names_none(&self) -> bool {
        !self.tcp && !self.udp && !self.unix
    }

    /// The states that the filter names, or else those that are not hidden.
    fn wants(&self, filter: &Filter, state: &str, is_waiting: bool) -> bool {
        if filter.names_states() {
            return filter.has_state(state);
        }
        self.all || (self.listening == is_waiting && !BUCKET.contains(&state))
    }
}

/// Numbers of sockets of a stack.
struct Counts {
    total: usize,
    estab: usize,
    closed: usize,
    orphaned: usize,
    timewait: usize,
    tcp: [usize; 2],
    udp: [usize; 2],
    unix: usize,
}

impl Counts {
    fn of(report: &Report) -> Self {
        let count = |protocol: &str, is_wanted: &dyn Fn(&Socket) -> bool| {
            report.sockets.iter().filter(|socket| socket.protocol == protocol && is_wanted(socket)).count()
        };
        let with_state = |state: &str| count("tcp", &|socket| socket.state == state);
        let families = |protocol: &str| {
            [true, false].map(|is_ipv4| count(protocol, &|socket| socket.local.is_ipv4() == is_ipv4))
        };
        Self {
            total: report.sockets.len() + report.unix.len(),
            estab: with_state("ESTAB"),
            closed: with_state("UNCONN"),
            orphaned: count("tcp", &|socket| !socket.is_held && !BUCKET.contains(&socket.state.as_str())),
            timewait: with_state("TIME-WAIT"),
            tcp: families("tcp"),
            udp: families("udp"),
            unix: report.unix.len(),
        }
    }

    /// In the form of `ss -s`.
    fn print(&self, report: &Report, out: &mut impl Write) -> io::Result<()> {
        let Self { estab, closed, orphaned, timewait, .. } = self;
        writeln!(out, "{}", super::title(report))?;
        writeln!(out, "Total: {}", self.total)?;
        writeln!(
            out,
            "TCP:   {} (estab {estab}, closed {closed}, orphaned {orphaned}, timewait {timewait})",
            self.tcp.iter().sum::<usize>()
        )?;
        writeln!(out, "\n{:<10}{:<10}{:<10}IPv6", "Transport", "Total", "IP")?;
        for (name, [v4, v6]) in [("UDP", self.udp), ("TCP", self.tcp)] {
            writeln!(out, "{name:<10}{:<10}{v4:<10}{v6}", v4 + v6)?;
        }
        writeln!(out, "{:<10}{}\n", "UNIX", self.unix)
    }

    fn json(&self, report: &Report) -> Value {
        let Self { estab, closed, orphaned, timewait, .. } = self;
        serde_json::json!({
            "pid": report.pid, "program": report.program, "stack": report.name, "total": self.total,
            "tcp": {
                "ipv4": self.tcp[0], "ipv6": self.tcp[1], "estab": estab, "closed": closed, "orphaned": orphaned,
                "timewait": timewait,
            },
            "udp": { "ipv4": self.udp[0], "ipv6": self.udp[1] },
            "unix": self.unix,
        })
    }
}

/// A line of the table: its cells, the stack, and what `--info` and `--memory` show below it.
struct Row {
    cells: [String; 7],
    stack: String,
    more: String,
}

fn table(args: &SsArgs, reports: &[Report], out: &mut impl Write) -> io::Result<()> {
    let heads = ["Netid", "State", "Recv-Q", "Send-Q", "Local Address:Port", "Peer Address:Port", "Id"];
    let mut rows =
        vec![Row { cells: heads.map(str::to_owned), stack: "Stack".to_owned(), more: String::new() }];
    for report in reports {
        for socket in &report.sockets {
            let timer = Some(timer(&socket.timer)).filter(|text| args.options && !text.is_empty());
            let stack =
                [Some(super::title(report)), timer].into_iter().flatten().collect::<Vec<_>>().join(" ");
            let memory = args.memory.then(|| memory(socket));
            let info = (args.info && !socket.tcp.is_empty()).then(|| details(&socket.tcp));
            let more = memory.into_iter().chain(info).collect::<Vec<_>>().join(" ");
            rows.push(Row { cells: cells(socket), stack, more });
        }
        rows.extend(report.unix.iter().map(|socket| Row {
            cells: unix_cells(socket),
            stack: super::title(report),
            more: String::new(),
        }));
    }
    let mut widths = WIDTHS;
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(&row.cells) {
            // A blank stands between any two cells, so that they can be told apart.
            *width = (*width).max(cell.chars().count() + 1);
        }
    }
    for Row { cells, stack, more } in &rows {
        for (cell, width) in cells.iter().zip(widths) {
            write!(out, "{cell:<width$}")?;
        }
        writeln!(out, "{stack}")?;
        if !more.is_empty() {
            writeln!(out, "\t {more}")?;
        }
    }
    Ok(())
}

/// Least widths of the columns.
const WIDTHS: [usize; 7] = [6, 12, 10, 10, 28, 28, 8];

fn cells(socket: &Socket) -> [String; 7] {
    [
        socket.protocol.clone(),
        socket.state.clone(),
        socket.recv_queue.to_string(),
        socket.send_queue.to_string(),
        socket.local.to_string(),
        socket.remote.map_or_else(|| "*:*".to_owned(), |remote| remote.to_string()),
        // Listeners and datagram sockets have no number.
        if socket.serial == 0 { "-".to_owned() } else { socket.serial.to_string() },
    ]
}

/// A name and a number at each end, as ss has them; a peer that is none has the number 0.
fn unix_cells(socket: &UnixSocket) -> [String; 7] {
    [
        socket.protocol.clone(),
        socket.state.clone(),
        socket.recv_queue.to_string(),
        socket.send_queue.to_string(),
        format!("{} {}", socket.name, socket.serial),
        format!("{} {}", socket.peer_name, socket.peer.unwrap_or(0)),
        socket.serial.to_string(),
    ]
}

/// The timer that runs, as `ss -o` shows it; empty if none does.
fn timer(timer: &Map<String, Value>) -> String {
    let number = |name: &str| timer.get(name).and_then(Value::as_u64).unwrap_or(0);
    let kind = timer.get("kind").and_then(Value::as_str);
    kind.map_or_else(String::new, |kind| {
        format!("timer:({kind},{},{})", left(number("left_us").div_ceil(1000)), number("expiries"))
    })
}

/// A time until something, as precise as anyone wants to know it.
fn left(ms: u64) -> String {
    match (ms / 60_000, ms / 1000 % 60) {
        (0, 0) => format!("{ms}ms"),
        (0, secs @ 1..10) => format!("{secs}.{:03}sec", ms % 1000),
        (0, secs) => format!("{secs}sec"),
        (mins @ 1..10, secs @ 1..) => format!("{mins}min{secs}sec"),
        (mins, _) => format!("{mins}min"),
    }
}

/// The bytes in the buffers and their bounds, in the words of `ss -m`.
fn memory(socket: &Socket) -> String {
    // The queues of a listener are counts of connections.
    let (recv, send) = if socket.state == "LISTEN" { (0, 0) } else { (socket.recv_queue, socket.send_queue) };
    format!("skmem:(r{recv},rb{},w{send},tb{},d{})", socket.recv_buffer, socket.send_buffer, socket.drops)
}

/// TCP's data, in the words and the order of `ss -ti`. Unknown and zero values are left out, as there.
fn details(tcp: &Map<String, Value>) -> String {
    let number = |name: &str| tcp.get(name).and_then(Value::as_u64);
    let nonzero = |name: &str| number(name).filter(|value| *value > 0);
    let is_set = |name: &str| tcp.get(name).and_then(Value::as_bool).unwrap_or(false);
    let mss = number("snd_mss").unwrap_or(1).max(1);
    let segments = |name: &str| nonzero(name).map(|bytes| bytes.div_ceil(mss));
    let mut parts = Vec::new();
    let switches = [("timestamps", "ts"), ("sack", "sack"), ("ecn", "ecn")].into_iter();
    parts.extend(switches.filter(|(name, _)| is_set(name)).map(|(_, word)| word.to_owned()));
    parts.extend(tcp.get("congestion_control").and_then(Value::as_str).map(str::to_owned));
    let mut put =
        |name: &str, value: Option<String>| parts.extend(value.map(|value| format!("{name}:{value}")));
    let text = |value: Option<u64>| value.map(|value| value.to_string());
    let wscale = number("snd_wscale").zip(number("rcv_wscale"));
    put("wscale", wscale.map(|(snd, rcv)| format!("{snd},{rcv}")));
    put("rto", number("rto_us").map(millis));
    put("backoff", text(nonzero("backoff")));
    let rtt = number("rtt_us").zip(number("rttvar_us"));
    put("rtt", rtt.map(|(rtt, var)| format!("{}/{}", millis(rtt), millis(var))));
    put("ato", nonzero("ato_us").map(millis));
    put("mss", text(number("snd_mss")));
    for (name, field) in [("pmtu", "pmtu"), ("rcvmss", "rcv_mss"), ("advmss", "advmss")] {
        put(name, text(nonzero(field)));
    }
    put("cwnd", text(segments("cwnd")));
    // No threshold yet is a very large one.
    let threshold = number("ssthresh").filter(|bytes| *bytes < THRESHOLD_UNSET);
    put("ssthresh", text(threshold.map(|bytes| bytes.div_ceil(mss))));
    for (name, field) in COUNTS {
        put(name, text(nonzero(field)));
    }
    put("pacing_rate", nonzero("pacing_rate").map(bits_per_second));
    put("delivery_rate", nonzero("delivery_rate").map(bits_per_second));
    for (name, field) in
        [("busy", "busy_us"), ("rwnd_limited", "rwnd_limited_us"), ("sndbuf_limited", "sndbuf_limited_us")]
    {
        put(name, nonzero(field).map(|us| format!("{}ms", millis(us))));
    }
    put("unacked", text(segments("in_flight")));
    put("lost", text(segments("lost")));
    put("sacked", text(segments("sacked")));
    put("notsent", text(nonzero("not_sent")));
    put("minrtt", number("min_rtt_us").map(millis));
    for (name, field) in [("rcv_ssthresh", "rcv_ssthresh"), ("snd_wnd", "snd_wnd"), ("rcv_wnd", "rcv_wnd")] {
        put(name, text(nonzero(field)));
    }
    parts.join(" ")
}

/// A slow start threshold from which on there is none.
const THRESHOLD_UNSET: u64 = 1 << 30;
/// Counts as ss calls them, and as reports do.
const COUNTS: [(&str, &str); 9] = [
    ("bytes_sent", "bytes_sent"),
    ("bytes_retrans", "rexmt_bytes"),
    ("bytes_acked", "bytes_acked"),
    ("bytes_received", "bytes_received"),
    ("segs_out", "segs_out"),
    ("segs_in", "segs_in"),
    ("data_segs_out", "data_segs_out"),
    ("data_segs_in", "data_segs_in"),
    ("dsack_dups", "dsack_count"),
];

/// Microseconds as milliseconds, without needless zeros.
fn millis(us: u64) -> String {
    let text = format!("{}.{:03}", us / 1000, us % 1000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn bits_per_second(bytes: u64) -> String {
    format!("{}bps", bytes.saturating_mul(8))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn socket(value: Value) -> Socket {
        let mut whole = serde_json::json!({
            "protocol": "tcp", "state": "ESTAB", "local": "10.9.0.2:7", "remote": null, "recv_queue": 1,
            "send_queue": 2, "serial": 0, "is_held": true,
        });
        whole.as_object_mut().unwrap().extend(value.as_object().unwrap().clone());
        serde_json::from_value(whole).unwrap()
    }

    #[test]
    fn kinds_and_states_are_selected_as_by_ss() {
        let listener = socket(serde_json::json!({ "state": "LISTEN" }));
        let conn = socket(serde_json::json!({ "remote": "10.9.0.1:40000" }));
        let datagrams = socket(serde_json::json!({ "protocol": "udp", "state": "UNCONN" }));
        let shown = |args: SsArgs| {
            [&listener, &conn, &datagrams].map(|socket| args.shows(&Filter::default(), socket))
        };
        assert_eq!(shown(SsArgs::default()), [false, true, false]);
        assert_eq!(shown(SsArgs { all: true, ..SsArgs::default() }), [true, true, true]);
        assert_eq!(shown(SsArgs { listening: true, ..SsArgs::default() }), [true, false, true]);
        assert_eq!(shown(SsArgs { listening: true, udp: true, ..SsArgs::default() }), [false, false, true]);
        assert_eq!(shown(SsArgs { all: true, tcp: true, ..SsArgs::default() }), [true, true, false]);
    }

    #[test]
    fn time_wait_is_hidden_unless_asked_for_and_families_and_filters_select() {
        let waiting = socket(serde_json::json!({ "state": "TIME-WAIT", "remote": "10.9.0.1:80" }));
        let v6 = socket(serde_json::json!({ "local": "[fd00::2]:7", "remote": "[fd00::1]:80" }));
        let shown = |args: SsArgs, filter: &str| {
            let words: Vec<_> = filter.split_whitespace().map(str::to_owned).collect();
            let filter = Filter::read(&words).unwrap();
            [&waiting, &v6].map(|socket| args.shows(&filter, socket))
        };
        assert_eq!(shown(SsArgs::default(), ""), [false, true]);
        assert_eq!(shown(SsArgs { all: true, ..SsArgs::default() }, ""), [true, true]);
        assert_eq!(shown(SsArgs { all: true, ipv4: true, ..SsArgs::default() }, ""), [true, false]);
        assert_eq!(shown(SsArgs { ipv6: true, ..SsArgs::default() }, ""), [false, true]);
        assert_eq!(shown(SsArgs::default(), "state time-wait"), [true, false]);
        assert_eq!(shown(SsArgs::default(), "dport = :80 src fd00::/16"), [false, true]);
        let unix = UnixSocket { state: "ESTAB".into(), ..UnixSocket::default() };
        assert!(
            !SsArgs::default()
                .shows_unix(&Filter::read(&["dport".into(), "=".into(), "1".into()]).unwrap(), &unix)
        );
    }

    #[test]
    fn a_summary_counts_kinds_families_and_states() {
        let sockets = vec![
            socket(serde_json::json!({ "state": "TIME-WAIT", "is_held": false })),
            socket(serde_json::json!({ "local": "[fd00::2]:7", "is_held": false })),
            socket(serde_json::json!({ "protocol": "udp", "state": "UNCONN" })),
        ];
        let report = Report { sockets, unix: vec![UnixSocket::default()], ..Report::default() };
        let mut out = Vec::new();
        let counts = Counts::of(&report);
        counts.print(&report, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        for line in [
            "Total: 4",
            "TCP:   2 (estab 1, closed 0, orphaned 1, timewait 1)",
            "UDP       1         1         0",
            "TCP       2         1         1",
            "UNIX      1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}: {text}");
        }
        let json = counts.json(&report);
        assert_eq!((&json["total"], &json["tcp"]["ipv6"], &json["unix"]), (&4.into(), &1.into(), &1.into()));
    }

    #[test]
    fn long_addresses_and_numbers_stay_cells_of_their_own() {
        let (local, remote) =
            ("[2001:db8:1:2:3456:78ff:fe9a:bcde]:40000", "[2001:db8:1:2:3456:78ff:fe9a:bcdf]:65535");
        let conn =
            socket(serde_json::json!({ "local": local, "remote": remote, "serial": 12_345_678_901_u64 }));
        let mut out = Vec::new();
        let report = Report { sockets: vec![conn], ..Report::default() };
        table(&SsArgs::default(), &[report], &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let cells: Vec<_> = lines[1].split_whitespace().collect();
        assert_eq!(cells[4..7], [local, remote, "12345678901"]);
        assert_eq!(lines[0].find("Peer"), lines[1].find(remote), "{text}");
    }

    #[test]
    fn unix_domain_sockets_have_names_and_numbers_and_are_selected_in_the_same_way() {
        let socket = |state: &str, peer| UnixSocket {
            protocol: "u_str".into(),
            state: state.into(),
            name: "/run/x".into(),
            serial: 17,
            peer_name: "*".into(),
            peer,
            ..UnixSocket::default()
        };
        let (listener, conn, widowed) =
            (socket("LISTEN", None), socket("ESTAB", Some(33)), socket("ESTAB", None));
        let shown = |args: SsArgs| {
            [&listener, &conn, &widowed].map(|socket| args.shows_unix(&Filter::default(), socket))
        };
        assert_eq!(shown(SsArgs::default()), [false, true, true]);
        assert_eq!(shown(SsArgs { unix: true, listening: true, ..SsArgs::default() }), [true, false, false]);
        assert_eq!(shown(SsArgs { tcp: true, all: true, ..SsArgs::default() }), [false; 3]);
        let mut out = Vec::new();
        let report = Report { unix: vec![conn, widowed], ..Report::default() };
        table(&SsArgs::default(), &[report], &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<Vec<_>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[1][..8], ["u_str", "ESTAB", "0", "0", "/run/x", "17", "*", "33"]);
        assert_eq!(lines[2][7], "0");
    }

    #[test]
    fn details_are_in_the_words_and_units_of_ss() {
        let tcp = serde_json::json!({
            "congestion_control": "cubic", "timestamps": true, "sack": true, "ecn": false, "snd_wscale": 7,
            "rcv_wscale": 10, "rto_us": 201_500, "rtt_us": 40, "rttvar_us": 20, "snd_mss": 1448, "cwnd": 14_480,
            "ssthresh": 1_073_741_824, "in_flight": 1449, "not_sent": 0, "rexmt_bytes": 5, "pacing_rate": 1000,
        });
        assert_eq!(
            details(tcp.as_object().unwrap()),
            "ts sack cubic wscale:7,10 rto:201.5 rtt:0.04/0.02 mss:1448 cwnd:10 bytes_retrans:5 pacing_rate:8000bps \
             unacked:2"
        );
    }

    #[test]
    fn timers_and_buffers_are_shown_when_they_are_asked_for() {
        let conn = socket(serde_json::json!({
            "timer": { "kind": "on", "left_us": 199_500, "expiries": 2 }, "recv_buffer": 100, "send_buffer": 200,
        }));
        let quiet = socket(serde_json::json!({ "protocol": "udp", "state": "UNCONN", "drops": 3 }));
        let report = [Report { sockets: vec![conn, quiet], ..Report::default() }];
        let shown = |args: SsArgs| {
            let mut out = Vec::new();
            table(&args, &report, &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        let text = shown(SsArgs { options: true, memory: true, ..SsArgs::default() });
        let lines: Vec<_> = text.lines().collect();
        assert!(lines[1].ends_with("timer:(on,200ms,2)") && !lines[3].contains("timer"), "{text}");
        assert_eq!(lines[2], "\t skmem:(r1,rb100,w2,tb200,d0)");
        assert_eq!(lines[4], "\t skmem:(r1,rb0,w2,tb0,d3)");
        assert!(
            !shown(SsArgs::default()).contains("timer:") && shown(SsArgs::default()).lines().count() == 3
        );
        let times = [0, 999, 1500, 59_000, 62_000, 120_000, 7_200_000].map(left);
        assert_eq!(times, ["0ms", "999ms", "1.500sec", "59sec", "1min2sec", "2min", "120min"]);
    }

    #[test]
    fn a_table_has_a_line_for_each_socket_and_one_for_its_details() {
        let report = Report {
            name: "sock0".into(),
            program: "sockeye".into(),
            pid: 9,
            sockets: vec![socket(serde_json::json!({ "tcp": { "snd_mss": 100 } }))],
            ..Report::default()
        };
        let mut out = Vec::new();
        table(&SsArgs { info: true, ..SsArgs::default() }, &[report], &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 3);
        assert!(lines[1].contains("ESTAB") && lines[1].ends_with("sock0 sockeye/9"), "{text}");
        assert_eq!(lines[2], "\t mss:100");
    }
}
