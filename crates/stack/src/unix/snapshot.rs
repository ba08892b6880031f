//! The UNIX-domain sockets of a stack, as `ss -x` shows them.
//!
//! The sockets are collected first and looked at one by one: the mutex of no two is held at once. Must not change anything.
//! Tests: `tests/unix/sockets.rs`.

use std::collections::HashMap;

use sockeye_sync::facade::{Arc, Ordering};

use super::SocketAddr;
use super::pcb::{Kind, Pcb};
use crate::rt::env::Env;
use crate::rt::handle::Stack;

/// Kind of a UNIX-domain socket.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SocketKind {
    /// SOCK_STREAM.
    Stream,
    /// SOCK_SEQPACKET.
    Seqpacket,
    /// SOCK_DGRAM.
    Datagram,
}

/// One UNIX-domain socket at one moment.
#[derive(Clone, Debug)]
pub struct SocketInfo {
    /// Its kind.
    pub kind: SocketKind,
    /// `LISTEN`; `ESTABLISHED` with a peer (for a connection also after the peer has closed); otherwise `CLOSED`.
    pub state: &'static str,
    /// Its name.
    pub name: SocketAddr,
    /// A number by which to name it, unique in the stack.
    pub serial: u64,
    /// Its peer's name; unnamed if there is none.
    pub peer_name: SocketAddr,
    /// Its peer's number, if it has a peer that still exists.
    pub peer: Option<u64>,
    /// Bytes that wait to be read; for a listener, connections that were not accepted.
    pub recv_queue: usize,
    /// Bytes written that its peer has not read; for a listener, its backlog.
    pub send_queue: usize,
    /// Whether an application holds it, and not only a backlog or a message in which it was sent.
    pub is_held: bool,
}

impl Stack {
    /// The UNIX-domain sockets, by their numbers: for diagnosis, not for a hot path. Each entry is a consistent view of
    /// one moment, but the list as a whole is not.
    pub fn unix_sockets(&self) -> Vec<SocketInfo> {
        self.core().map_or_else(|_lost| Vec::new(), sockets)
    }
}

fn sockets(core: &Env) -> Vec<SocketInfo> {
    let all = super::shared(core).registry.all();
    let by_serial: HashMap<u64, &Arc<Pcb>> = all.iter().map(|pcb| (pcb.serial, pcb)).collect();
    all.iter().map(|pcb| look(pcb, &by_serial)).collect()
}

fn look(pcb: &Pcb, all: &HashMap<u64, &Arc<Pcb>>) -> SocketInfo {
    let peer = peer_of(pcb).and_then(|serial| all.get(&serial).copied());
    let sent = peer.map_or(0, |peer| unread_of(pcb, peer));
    let so = pcb.so.lock();
    let (state, recv_queue, send_queue) = match &so.backlog {
        Some(backlog) => ("LISTEN", backlog.ready.len(), backlog.max),
        None => {
            let is_connected = if pcb.kind.is_connected() { so.is_connected } else { peer.is_some() };
            (if is_connected { "ESTABLISHED" } else { "CLOSED" }, so.data.len(), sent)
        }
    };
    drop(so);
    // Relaxed: two figures for people, which may be of two moments.
    let held = pcb.users.load(Ordering::Relaxed) > pcb.in_flight.load(Ordering::Relaxed);
    SocketInfo {
        kind: match pcb.kind {
            Kind::Stream => SocketKind::Stream,
            Kind::Seqpacket => SocketKind::Seqpacket,
            Kind::Datagram => SocketKind::Datagram,
        },
        state,
        name: SocketAddr(pcb.name.get().cloned()),
        serial: pcb.serial,
        peer_name: SocketAddr(peer.and_then(|peer| peer.name.get().cloned())),
        peer: peer.map(|peer| peer.serial),
        recv_queue,
        send_queue,
        is_held: held,
    }
}

/// The number of the socket that `pcb` sends to.
fn peer_of(pcb: &Pcb) -> Option<u64> {
    if pcb.kind.is_connected() {
        return Some(pcb.peer_serial.load(Ordering::Relaxed)).filter(|serial| *serial != 0);
    }
    pcb.link.peer().map(|peer| peer.serial)
}

/// Bytes of `pcb` that its peer has not read.
fn unread_of(pcb: &Pcb, peer: &Pcb) -> usize {
    let so = peer.so.lock();
    if pcb.kind.is_connected() { so.data.len() } else { so.flows.bytes_of(pcb) }
}
