//! What is told of a stack.
//!
//! Plain data, written as one line of JSON. Fields may be added: a reader skips what it does not know, and what is
//! missing is empty. Tests: `tests/diag.rs`.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use sockeye::{SocketInfo, SocketKind, Stack};

/// A stack at one moment.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Report {
    /// The process.
    pub pid: u32,
    /// Its program's name.
    pub program: String,
    /// What it calls the stack.
    pub name: String,
    /// Seconds since the stack was published.
    pub uptime_s: f64,
    /// Bytes of packet memory in use by data, and their cap.
    pub memory_in_use: usize,
    /// See `memory_in_use`.
    pub memory_max: usize,
    /// Every counter, zero or not.
    pub counters: Vec<Counter>,
    /// Every socket.
    pub sockets: Vec<Socket>,
}

/// One counter.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Counter {
    /// Sockeye's name of it.
    pub name: String,
    /// Events since the stack began.
    pub value: u64,
}

/// One socket.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Socket {
    /// `tcp`, and what kind of socket the state tells.
    pub protocol: String,
    /// The state, as `ss` writes it: `ESTAB`, `LISTEN`, `TIME-WAIT`, ...
    pub state: String,
    /// Our end.
    pub local: SocketAddr,
    /// The other end; none of a listener.
    pub remote: Option<SocketAddr>,
    /// See [`SocketInfo::recv_queue`].
    pub recv_queue: usize,
    /// See [`SocketInfo::send_queue`].
    pub send_queue: usize,
    /// By which the connection can be named; 0 for what is none.
    pub serial: u64,
    /// Whether an application still holds it.
    pub is_held: bool,
    /// Protocol state by the names of [`sockeye::TcpInfo`], if it could be seen.
    #[serde(default, skip_serializing_if = "serde_json::Map::is_empty")]
    pub tcp: serde_json::Map<String, serde_json::Value>,
}

impl Report {
    /// Looks at `stack`.
    pub(crate) fn of(stack: &Stack, name: &str, uptime_s: f64) -> Self {
        let counters = stack.counters();
        Self {
            pid: std::process::id(),
            program: program(),
            name: name.to_owned(),
            uptime_s,
            memory_in_use: stack.memory_in_use(),
            memory_max: stack.config().memory_max,
            counters: counters
                .into_iter()
                .map(|(name, value)| Counter { name: name.to_owned(), value })
                .collect(),
            sockets: stack.sockets(true).iter().map(Socket::of).collect(),
        }
    }
}

impl Socket {
    fn of(socket: &SocketInfo) -> Self {
        Self {
            protocol: match socket.kind {
                SocketKind::Tcp
                | SocketKind::TcpListener
                | SocketKind::TcpHalfOpen
                | SocketKind::TcpTimeWait => "tcp".to_owned(),
            },
            state: short(socket.state).to_owned(),
            local: socket.local,
            remote: socket.remote,
            recv_queue: socket.recv_queue,
            send_queue: socket.send_queue,
            serial: socket.serial,
            is_held: socket.is_held,
            tcp: socket.tcp.as_ref().map(crate::report::tcp).unwrap_or_default(),
        }
    }
}

/// A state as `ss` writes it.
fn short(state: &'static str) -> &'static str {
    match state {
        "ESTABLISHED" => "ESTAB",
        "SYN-RECEIVED" => "SYN-RECV",
        "FIN-WAIT-1" | "FIN-WAIT-2" | "CLOSE-WAIT" | "LAST-ACK" | "CLOSING" | "SYN-SENT" => state,
        "CLOSED" => "UNCONN",
        other => other,
    }
}

/// Protocol state, durations in microseconds.
fn tcp(info: &sockeye::TcpInfo) -> serde_json::Map<String, serde_json::Value> {
    let micros = |time: std::time::Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    let fields = [
        ("snd_mss", u64::from(info.snd_mss).into()),
        ("rtt_us", info.srtt.map(micros).into()),
        ("rto_us", micros(info.rto).into()),
        ("cwnd", u64::from(info.cwnd).into()),
        ("ssthresh", u64::from(info.ssthresh).into()),
        ("in_flight", u64::from(info.in_flight).into()),
        ("snd_wnd", u64::from(info.snd_wnd).into()),
        ("rcv_wnd", u64::from(info.rcv_wnd).into()),
        ("not_sent", u64::from(info.not_sent).into()),
        ("rexmt_bytes", info.rexmt_bytes.into()),
    ];
    fields.into_iter().map(|(name, value): (_, serde_json::Value)| (name.to_owned(), value)).collect()
}

/// The name of this process's program.
fn program() -> String {
    let path = std::env::current_exe().ok();
    let name = path.as_deref().and_then(|path| path.file_name());
    name.map_or_else(|| "?".to_owned(), |name| name.to_string_lossy().into_owned())
}
