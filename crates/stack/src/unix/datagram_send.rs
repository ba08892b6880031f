//! Sending datagrams: to the peer, or to a name.
//!
//! The receiver's errors for the sender, in Linux's order: EPERM (it receives from another socket only),
//! ECONNREFUSED (it has closed), EPIPE (it has shut its reading), EAGAIN (the sender's flow is full). Flows
//! are in `flows.rs`.
//!
//! Does not depend on public types. Tests: `tests/unix*`.

use std::io::IoSlice;

use rustix::io::Errno;
use sockeye_sync::facade::{Arc, Ordering};
use sockeye_sync::{Ticket, WaitQueue};

use super::addr::SocketAddr;
use super::ancillary::{MsgFlags, SendAncillary, UCred};
use super::locking::{Chosen, Locking};
use super::pcb::{Kind, Pcb, So};
use super::send::{Cargo, Message, Refusal, SMALL_MESSAGE_MAX, after_sending, take_alert};
use super::sock::Sock;
use super::wait::{Timeout, wait, wait_for_memory};
use super::wakes::Wakes;
use super::{contain, datagram_link};

/// Why a datagram was not appended.
enum Unsent {
    /// The flow is full. If the call blocks: where to wait.
    Full(Option<(Arc<WaitQueue>, Ticket)>, u32),
    NoMemory,
    /// The receiver, of this id, has closed.
    Dead(usize),
    Failed(Errno),
}

impl From<Refusal> for Unsent {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Full { ticket: _, cpu } => Self::Full(None, cpu),
            Refusal::NoMemory => Self::NoMemory,
            Refusal::Failed(errno) => Self::Failed(errno),
        }
    }
}

/// send(2) on a datagram socket.
#[inline]
pub(crate) fn send_bytes(sock: &Sock, buf: &[u8]) -> Result<usize, Errno> {
    contain::call(sock, "send", || send_bytes_now(sock, buf))
}

#[inline]
fn send_bytes_now(sock: &Sock, buf: &[u8]) -> Result<usize, Errno> {
    let (core, pcb) = (sock.core(), &sock.pcb);
    let wants = |pcb: &Pcb| pcb.options.passcred.load(Ordering::Relaxed);
    if buf.len() <= SMALL_MESSAGE_MAX && !pcb.alert.load(Ordering::Acquire) && !wants(pcb) {
        let mut wakes = Wakes::new(core);
        let sndbuf = pcb.options.sndbuf.load(Ordering::Relaxed) as usize;
        let hint = pcb.flow_hint.load(Ordering::Relaxed);
        let is_sent = Chosen::with_datagram_peer(core, pcb, sock.peer.as_ref(), |peer| {
            contain::section(peer, Errno::IO, &mut wakes, |so, wakes| {
                let is_taken = !so.takes_nothing() && (so.flows.only == 0 || so.flows.only == pcb.id());
                if !is_taken || wants(peer) {
                    return false;
                }
                let Some(flow) = so.flows.find(pcb, hint) else { return false };
                if !so.flows.has_room(flow, sndbuf) || !so.push_record(&core.pool, buf, flow) {
                    return false;
                }
                so.flows.charge(flow, buf.len());
                wakes.readers(peer, so);
                true
            })
        });
        wakes.fire();
        if is_sent == Some(true) {
            return Ok(buf.len());
        }
    }
    send(sock, &[IoSlice::new(buf)], None, None, MsgFlags::NONE)
}

/// sendmsg(2) on a datagram socket.
pub(crate) fn send(
    sock: &Sock,
    bufs: &[IoSlice<'_>],
    to: Option<&SocketAddr>,
    ancillary: Option<&mut SendAncillary>,
    flags: MsgFlags,
) -> Result<usize, Errno> {
    contain::call(sock, "send", || send_now(sock, bufs, to, ancillary, flags))
}

fn send_now(
    sock: &Sock,
    bufs: &[IoSlice<'_>],
    to: Option<&SocketAddr>,
    mut ancillary: Option<&mut SendAncillary>,
    flags: MsgFlags,
) -> Result<usize, Errno> {
    let (core, pcb) = (sock.core(), &sock.pcb);
    if to.is_some_and(SocketAddr::is_unnamed) {
        return Err(Errno::INVAL);
    }
    if pcb.options.passcred.load(Ordering::Relaxed) {
        super::shared(core).names.autobind(pcb)?;
    }
    // In Linux's order: errors of the message and of the socket, then of the peer.
    let mut message = Message::new(pcb, bufs)?;
    take_alert(pcb)?;
    message.cargo = Cargo::load(core, ancillary.as_deref_mut())?;
    let sockets = message.cargo.sockets();
    let blocks = sock.blocks() && !flags.contains(MsgFlags::DONTWAIT);
    let result = until_sent(sock, &mut message, to, blocks);
    message.cargo.unload(ancillary, result.is_ok());
    if let Some(receiver) = message.receiver {
        after_sending(&receiver, &sockets);
    }
    result.map(|()| message.len)
}

fn until_sent(
    sock: &Sock,
    message: &mut Message<'_>,
    to: Option<&SocketAddr>,
    blocks: bool,
) -> Result<(), Errno> {
    let (core, pcb) = (sock.core(), &sock.pcb);
    let mut timeout = Timeout::of(&pcb.options.write_timeout);
    loop {
        if !message.copy(&core.pool) {
            wait_for_memory(core, blocks, &mut timeout)?;
            continue;
        }
        let mut wakes = Wakes::new(core);
        let done = match to {
            None => Chosen::with_datagram_peer(core, pcb, sock.peer.as_ref(), |peer| {
                append(sock, peer, message, blocks, &mut wakes)
            })
            .unwrap_or(Err(Unsent::Failed(Errno::NOTCONN))),
            Some(addr) => {
                let found = super::shared(core).names.find(addr, Kind::Datagram)?;
                Chosen::sending_to(core, &found, || append(sock, &found, message, blocks, &mut wakes))
            }
        };
        wakes.fire();
        match done {
            Ok(()) => return Ok(()),
            Err(Unsent::Failed(errno)) => return Err(errno),
            Err(Unsent::NoMemory) => wait_for_memory(core, blocks, &mut timeout)?,
            Err(Unsent::Full(None, _)) => return Err(Errno::AGAIN),
            Err(Unsent::Full(Some((queue, ticket)), cpu)) => {
                wait(core, &queue, Some(ticket), cpu, &mut timeout)?;
            }
            Err(Unsent::Dead(id)) if to.is_none() => {
                datagram_link::lose(core, pcb, id);
                return Err(Errno::CONNREFUSED);
            }
            // The name has gone, or has a new socket, since it was looked up.
            Err(Unsent::Dead(_)) => {}
        }
    }
}

/// One attempt under the receiver's mutex.
fn append(
    sock: &Sock,
    to: &Arc<Pcb>,
    message: &mut Message<'_>,
    blocks: bool,
    wakes: &mut Wakes<'_>,
) -> Result<(), Unsent> {
    contain::section(to, Errno::IO, wakes, |so, wakes| append_to(sock, (to, so), message, blocks, wakes))
}

fn append_to(
    sock: &Sock,
    (to, so): (&Arc<Pcb>, &mut So),
    message: &mut Message<'_>,
    blocks: bool,
    wakes: &mut Wakes<'_>,
) -> Result<(), Unsent> {
    let (core, pcb) = (sock.core(), &sock.pcb);
    // Relaxed: an option, and a hint.
    let sndbuf = pcb.options.sndbuf.load(Ordering::Relaxed) as usize;
    let hint = pcb.flow_hint.load(Ordering::Relaxed);
    if so.flows.only != 0 && so.flows.only != pcb.id() {
        return Err(Unsent::Failed(Errno::PERM));
    }
    if so.closed {
        return Err(Unsent::Dead(to.id()));
    }
    if so.shut {
        return Err(Unsent::Failed(Errno::PIPE));
    }
    let flow = so.flows.find_or_make(pcb, hint);
    if flow != hint {
        pcb.flow_hint.store(flow, Ordering::Relaxed);
    }
    if !so.flows.has_room(flow, sndbuf) {
        let cpu = so.room_cpu;
        if !blocks {
            so.flows.block(flow);
            return Err(Unsent::Full(None, cpu));
        }
        let queue = so.flows.block_thread(flow);
        // Under the same mutex as the notify.
        return Err(Unsent::Full(queue.map(|queue| (Arc::clone(&queue), queue.prepare())), cpu));
    }
    let wants = |pcb: &Pcb| pcb.options.passcred.load(Ordering::Relaxed);
    let creds = (wants(pcb) || wants(to)).then(UCred::of_process);
    let carries_sockets = message.cargo.carries_sockets();
    if let Err(refusal) = message.append(core, so, flow, creds) {
        so.flows.drop_if_idle(flow);
        return Err(refusal.into());
    }
    so.flows.charge(flow, message.len);
    wakes.readers(to, so);
    message.receiver = carries_sockets.then(|| Arc::clone(to));
    Ok(())
}
