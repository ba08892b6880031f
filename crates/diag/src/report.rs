//! The report of a stack.
//!
//! Plain data, written as one line of JSON. Fields may be added: a reader skips unknown fields, and missing ones
//! are empty. Tests: `tests/diag.rs`.

use std::collections::HashMap;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use sockeye::{SocketInfo, SocketKind, Stack, unix};

use crate::fields;

/// A stack at one moment.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Report {
    /// The process.
    pub pid: u32,
    /// Its program's name.
    pub program: String,
    /// Its name for the stack.
    pub name: String,
    /// Seconds since the stack was published.
    pub uptime_s: f64,
    /// Bytes of packet memory in use by data, and their cap.
    pub memory_in_use: usize,
    /// See `memory_in_use`.
    pub memory_max: usize,
    /// Every counter, zero or not.
    pub counters: Vec<Counter>,
    /// Every socket of TCP and UDP.
    pub sockets: Vec<Socket>,
    /// Every UNIX-domain socket.
    pub unix: Vec<UnixSocket>,
}

/// One counter.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Counter {
    /// Sockeye's name of it.
    pub name: String,
    /// The kernel's MIB's, if it has the same.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub mib: String,
    /// Events since the stack began.
    pub value: u64,
}

/// One socket.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Socket {
    /// `tcp` or `udp`; the state shows the kind of socket.
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
    /// Number that names the connection; 0 for other sockets.
    pub serial: u64,
    /// Whether an application still holds it.
    pub is_held: bool,
    /// See [`SocketInfo::recv_buffer`].
    #[serde(default)]
    pub recv_buffer: usize,
    /// See [`SocketInfo::send_buffer`].
    #[serde(default)]
    pub send_buffer: usize,
    /// See [`SocketInfo::drops`].
    #[serde(default)]
    pub drops: u32,
    /// The timer that runs: `kind` as `ss -o` names it, `left_us` and `expiries`, if one does.
    #[serde(default, skip_serializing_if = "serde_json::Map::is_empty")]
    pub timer: serde_json::Map<String, serde_json::Value>,
    /// Protocol state by the names of [`sockeye::TcpInfo`], if it could be seen.
    #[serde(default, skip_serializing_if = "serde_json::Map::is_empty")]
    pub tcp: serde_json::Map<String, serde_json::Value>,
    /// Its limit and the figures behind that, by the names of [`sockeye::Bottleneck`]; likewise. `by` is none while there
    /// is nothing to send.
    #[serde(default, skip_serializing_if = "serde_json::Map::is_empty")]
    pub bottleneck: serde_json::Map<String, serde_json::Value>,
}

/// One UNIX-domain socket.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct UnixSocket {
    /// `u_str`, `u_seq` or `u_dgr`, as `ss` writes them.
    pub protocol: String,
    /// The state, as `ss` writes it: `ESTAB`, `LISTEN` or `UNCONN`.
    pub state: String,
    /// Its name: a pathname, an abstract name behind `@`, or `*`.
    pub name: String,
    /// Its number, unique in the stack.
    pub serial: u64,
    /// Its peer's name, likewise.
    pub peer_name: String,
    /// Its peer's number; none if there is no peer, or it has closed.
    pub peer: Option<u64>,
    /// See [`sockeye::unix::SocketInfo::recv_queue`].
    pub recv_queue: usize,
    /// See [`sockeye::unix::SocketInfo::send_queue`].
    pub send_queue: usize,
    /// Whether an application holds it.
    pub is_held: bool,
}

impl Report {
    /// Looks at `stack`.
    pub(crate) fn of(stack: &Stack, name: &str, uptime_s: f64) -> Self {
        let mib: HashMap<_, _> = Stack::mib_names().into_iter().collect();
        let counter = |(name, value): (&'static str, u64)| Counter {
            name: name.to_owned(),
            mib: mib.get(name).copied().unwrap_or_default().to_owned(),
            value,
        };
        Self {
            pid: std::process::id(),
            program: program(),
            name: name.to_owned(),
            uptime_s,
            memory_in_use: stack.memory_in_use(),
            memory_max: stack.config().memory_max,
            counters: stack.counters().into_iter().map(counter).collect(),
            sockets: stack.sockets(true).iter().map(Socket::of).collect(),
            unix: stack.unix_sockets().iter().map(UnixSocket::of).collect(),
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
                SocketKind::Udp => "udp".to_owned(),
            },
            state: short(socket.state).to_owned(),
            local: socket.local,
            remote: socket.remote,
            recv_queue: socket.recv_queue,
            send_queue: socket.send_queue,
            serial: socket.serial,
            is_held: socket.is_held,
            tcp: socket.tcp.as_ref().map(fields::tcp).unwrap_or_default(),
            recv_buffer: socket.recv_buffer,
            send_buffer: socket.send_buffer,
            drops: socket.drops,
            timer: socket.timer.as_ref().map(fields::timer).unwrap_or_default(),
            bottleneck: socket.bottleneck.as_ref().map(fields::bottleneck).unwrap_or_default(),
        }
    }
}

impl UnixSocket {
    fn of(socket: &unix::SocketInfo) -> Self {
        let protocol = match socket.kind {
            unix::SocketKind::Stream => "u_str",
            unix::SocketKind::Seqpacket => "u_seq",
            unix::SocketKind::Datagram => "u_dgr",
        };
        Self {
            protocol: protocol.to_owned(),
            state: short(socket.state).to_owned(),
            name: shown(&socket.name),
            serial: socket.serial,
            peer_name: shown(&socket.peer_name),
            peer: socket.peer,
            recv_queue: socket.recv_queue,
            send_queue: socket.send_queue,
            is_held: socket.is_held,
        }
    }
}

/// A name as `ss` writes it. Bytes that are no text are shown by their values.
fn shown(name: &unix::SocketAddr) -> String {
    match (name.as_pathname(), name.as_abstract_name()) {
        (Some(path), _) => path.to_string_lossy().into_owned(),
        (None, Some(name)) => format!("@{}", String::from_utf8_lossy(name)),
        (None, None) => "*".to_owned(),
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

/// The name of this process's program.
fn program() -> String {
    let path = std::env::current_exe().ok();
    let name = path.as_deref().and_then(|path| path.file_name());
    name.map_or_else(|| "?".to_owned(), |name| name.to_string_lossy().into_owned())
}
