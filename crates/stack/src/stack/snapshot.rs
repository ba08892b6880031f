//! The sockets of a stack, as `ss` shows them.
//!
//! Goes through the tables and copies the visible state. Connections are taken out of their shard as references
//! first and looked at afterwards, since their socket locks and buffers rank differently. Must not change anything.
//! Tests: `tests/tcp/snapshot.rs`.

use std::net::SocketAddr;

use sockeye_proto::tcp::info::{RunningTimer, TcpInfo, TimerKind};
use sockeye_proto::time::Instant;
use sockeye_sync::facade::{Arc, Ordering};

use super::Core;
use crate::base::addr::FourTuple;
use crate::inet::input::count as frames;
use crate::inet::ip::count as ip;
use crate::inet::link::count as link;
use crate::rt::counter;
use crate::rt::handle::Stack;
use crate::tcp::conn::Conn;
use crate::tcp::socket::{Bottleneck, info};
use crate::tcp::tables::demux::Resting;
use crate::udp;

/// Kind of a socket.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SocketKind {
    /// A TCP listener.
    TcpListener,
    /// A TCP connection.
    Tcp,
    /// A handshake that a listener has answered and the peer has not finished.
    TcpHalfOpen,
    /// A TCP connection in TIME-WAIT.
    TcpTimeWait,
    /// A UDP socket that has a port, or a ping socket.
    Udp,
}

/// One socket at one moment.
#[derive(Clone, Debug)]
pub struct SocketInfo {
    /// Its kind.
    pub kind: SocketKind,
    /// The state's name in RFC 9293 section 3.3.2; for a UDP socket, `ESTABLISHED` if it is connected, else `CLOSED`.
    pub state: &'static str,
    /// Our end.
    pub local: SocketAddr,
    /// The other end; `None` for a listener.
    pub remote: Option<SocketAddr>,
    /// For a connection: bytes that have arrived and were not read. For a listener: connections that were not accepted.
    pub recv_queue: usize,
    /// For a connection: bytes written and not acknowledged. For a listener: its backlog.
    pub send_queue: usize,
    /// A number that identifies the connection, unique in the stack; 0 for other sockets.
    pub serial: u64,
    /// Whether an application still holds it.
    pub is_held: bool,
    /// Present size of the receive buffer, bytes; 0 for a socket that has none.
    pub recv_buffer: usize,
    /// Present size of the send buffer, likewise.
    pub send_buffer: usize,
    /// Datagrams that were dropped because the receive buffer was full, modulo 2^32; 0 for TCP.
    pub drops: u32,
    /// The running timer, if there is one: of a connection, or of TIME-WAIT.
    pub timer: Option<RunningTimer>,
    /// Its protocol state, if it was requested and available.
    pub tcp: Option<TcpInfo>,
    /// The limit of its sender, likewise.
    pub bottleneck: Option<Bottleneck>,
}

/// All sockets.
pub(crate) fn sockets(core: &Core, details: bool) -> Vec<SocketInfo> {
    let mut list: Vec<SocketInfo> =
        core.ports.listeners().iter().map(|listener| listening(listener)).collect();
    let mut conns = Vec::new();
    core.demux.each_shard(|shard| {
        conns.extend(shard.conns().cloned());
        list.extend(shard.resting().map(|record| resting(record, core.clock.now())));
        // Goes through all of them; none is dropped.
        shard.half_open.retain(|tuple, _| {
            list.push(of_tuple(SocketKind::TcpHalfOpen, "SYN-RECEIVED", *tuple));
            true
        });
    });
    list.extend(conns.iter().map(|conn| connection(core, conn, details)));
    list.extend(crate::udp::shared(core).sockets(core.cpu()).iter().map(|pcb| datagrams(pcb)));
    list
}

fn datagrams(pcb: &udp::pcb::Pcb) -> SocketInfo {
    let name = pcb.name.load();
    let state = if name.remote.is_some() { "ESTABLISHED" } else { "CLOSED" };
    let remote = name.remote.map(|remote| remote.to_socket_addr(pcb.is_mapped));
    let so = pcb.receive.so.lock();
    SocketInfo {
        recv_queue: so.queue.iter().map(|datagram| datagram.payload.len()).sum(),
        recv_buffer: so.rcvbuf,
        drops: so.drops,
        is_held: true,
        ..named(SocketKind::Udp, state, name.local.to_socket_addr(pcb.is_mapped), remote)
    }
}

impl Stack {
    /// The kernel MIB's names for the counters of [`Stack::counters`], as `nstat` shows them: our name and the MIB's,
    /// for counters that have one.
    pub fn mib_names() -> Vec<(&'static str, &'static str)> {
        let own = counter::MIB.iter().map(|(index, mib)| (counter::NAMES[*index], *mib));
        let others = ip::NAMES.iter().chain(&udp::count::NAMES).chain(&link::NAMES).copied();
        let input = frames::MIB.iter().map(|(index, mib)| (frames::NAMES[*index], *mib));
        own.chain(input).chain(others.filter(|(_, mib)| !mib.is_empty())).collect()
    }
}

fn listening(listener: &crate::tcp::handshake::listen::Listener) -> SocketInfo {
    let (recv_queue, send_queue) = listener.depth();
    let local = listener.local.to_socket_addr(listener.is_mapped);
    SocketInfo {
        recv_queue,
        send_queue,
        is_held: true,
        ..named(SocketKind::TcpListener, "LISTEN", local, None)
    }
}

fn resting(resting: &Resting, now: Instant) -> SocketInfo {
    let left = resting.record.deadline().since(now);
    SocketInfo {
        timer: Some(RunningTimer { kind: TimerKind::TimeWait, left, expiries: 0 }),
        ..of_tuple(SocketKind::TcpTimeWait, "TIME-WAIT", resting.tuple)
    }
}

/// The data of a connection without a socket.
fn of_tuple(kind: SocketKind, state: &'static str, tuple: FourTuple) -> SocketInfo {
    named(kind, state, tuple.local.to_socket_addr(false), Some(tuple.remote.to_socket_addr(false)))
}

/// The data that names alone give.
fn named(kind: SocketKind, state: &'static str, local: SocketAddr, remote: Option<SocketAddr>) -> SocketInfo {
    SocketInfo {
        kind,
        state,
        local,
        remote,
        recv_queue: 0,
        send_queue: 0,
        serial: 0,
        is_held: false,
        recv_buffer: 0,
        send_buffer: 0,
        drops: 0,
        timer: None,
        tcp: None,
        bottleneck: None,
    }
}

fn connection(core: &Core, conn: &Arc<Conn>, details: bool) -> SocketInfo {
    let is_mapped = conn.options.is_mapped;
    let remote = conn.tuple.remote.to_socket_addr(is_mapped);
    let local = conn.tuple.local.to_socket_addr(is_mapped);
    let bare = {
        let so = conn.so.lock();
        SocketInfo {
            recv_queue: so.rcv.chain.len(),
            send_queue: so.snd.chain.len(),
            recv_buffer: so.rcv.hiwat as usize,
            send_buffer: so.snd.hiwat as usize,
            timer: so.pcb.running_timer(core.clock.now()),
            ..named(SocketKind::Tcp, conn.state_name(&so), local, Some(remote))
        }
    };
    SocketInfo {
        serial: conn.serial,
        is_held: conn.users.load(Ordering::Relaxed) > 0,
        tcp: if details { info::of(core, conn).ok() } else { None },
        bottleneck: if details { Bottleneck::of(conn).ok() } else { None },
        ..bare
    }
}
