//! Receiving: streams, packets, datagrams, and ancillary data.
//!
//! A receive takes its own buffer's mutex and, in `direct`, no other. Up to a few kilobytes are copied
//! under it; more is unlinked as mbufs and copied after. Rights land, and buffers are given back, outside.
//!
//! Does not depend on public types. Invariants: a byte, record or right is received once (a peek duplicates);
//! room is announced in the section that makes it. Tests: `tests/unix*`.

use rustix::io::Errno;
use sockeye_mbuf::Chain;
use sockeye_sync::Ticket;
use sockeye_sync::facade::{Arc, Ordering};

use super::addr::Name;
use super::ancillary::{MsgFlags, RecvAncillary, UCred};
use super::bytes::{COPY_LOCKED_MAX, Scatter, Sink};
use super::contain;
use super::locking::{Chosen, Locking};
use super::pcb::{Kind, Pcb, So};
use super::rights::{InFlight, Right, close_rights};
use super::sock::{Sock, settle_alert};
use super::wait::{Timeout, wait};
use super::wakes::Wakes;
use crate::rt::failpoints::{self, Point};

/// Result of a receive.
#[derive(Default)]
pub(crate) struct Received {
    pub bytes: usize,
    pub flags: MsgFlags,
    pub sender: Option<Arc<Name>>,
}

/// Arguments of a receive.
struct Request<'r> {
    /// Bytes that there is room for.
    wanted: usize,
    is_peek: bool,
    blocks: bool,
    wants_creds: bool,
    /// Rights that there is room for.
    rights_max: usize,
    flags: MsgFlags,
    ancillary: Option<&'r mut RecvAncillary>,
}

/// Result of one look at the buffer.
enum Found {
    /// Nothing: wait, if there is a ticket.
    Nothing { ticket: Option<Ticket>, cpu: u32 },
    /// No more will come.
    End,
    /// It is in the part.
    Some,
}

/// Some bytes, or one record. Stands outside of all locks: its content is dropped with it when a panic ends the call.
#[derive(Default)]
struct Part {
    bytes: usize,
    /// The record's whole length.
    len: usize,
    /// Bytes still to be copied.
    chain: Option<Chain>,
    rights: Option<InFlight>,
    duplicates: Vec<Right>,
    /// More rights than there is room for were seen by a peek.
    is_cut: bool,
    creds: Option<UCred>,
    sender: Option<Arc<Name>>,
    /// The receive ends here.
    is_end: bool,
}

impl<'r> Request<'r> {
    fn new(
        sock: &Sock,
        wanted: usize,
        mut ancillary: Option<&'r mut RecvAncillary>,
        flags: MsgFlags,
    ) -> Self {
        if let Some(ancillary) = &mut ancillary {
            close_rights(ancillary.take_rights());
            ancillary.creds = None;
        }
        Self {
            wanted,
            is_peek: flags.contains(MsgFlags::PEEK),
            blocks: sock.blocks() && !flags.contains(MsgFlags::DONTWAIT),
            wants_creds: sock.pcb.options.passcred.load(Ordering::Relaxed),
            rights_max: ancillary.as_ref().map_or(0, |a| a.capacity()),
            flags,
            ancillary,
        }
    }

    /// Hands over ancillary data; returns whether some was cut off.
    fn deliver(&mut self, part: &mut Part) -> MsgFlags {
        let mut flags = MsgFlags::CTRUNC.when(part.is_cut);
        let mut rights = std::mem::take(&mut part.duplicates);
        if let Some(landed) = part.rights.take() {
            rights = landed.land();
            if rights.len() > self.rights_max {
                flags |= MsgFlags::CTRUNC;
                close_rights(rights.split_off(self.rights_max));
            }
        }
        match &mut self.ancillary {
            Some(ancillary) => {
                ancillary.rights.append(&mut rights);
                if self.wants_creds {
                    ancillary.creds = Some(part.creds.unwrap_or(UCred::UNKNOWN));
                }
            }
            None => flags |= MsgFlags::CTRUNC.when(self.wants_creds),
        }
        flags
    }
}

/// read(2) on a stream.
#[inline]
pub(crate) fn read(sock: &Sock, buf: &mut [u8]) -> Result<usize, Errno> {
    contain::call(sock, "read", || read_now(sock, buf))
}

#[inline]
fn read_now(sock: &Sock, buf: &mut [u8]) -> Result<usize, Errno> {
    if buf.is_empty() {
        return Ok(0);
    }
    let pcb = &sock.pcb;
    let mut wakes = Wakes::new(sock.core());
    let taken = Chosen::receiving(sock.core(), pcb, || {
        contain::section(pcb, Errno::IO, &mut wakes, |so, wakes| {
            let take = so.data.len().min(buf.len());
            if take == 0 || take > COPY_LOCKED_MAX || so.ancillary.is_some() {
                return 0;
            }
            so.data.take_front(&mut buf[..take]);
            failpoints::hit(Point::UnixReceive, 0);
            so.head += take as u64;
            if so.has_room() {
                wakes.writers(pcb, so);
            }
            take
        })
    });
    wakes.fire();
    if taken > 0 {
        return Ok(taken);
    }
    let bufs = &mut [std::io::IoSliceMut::new(buf)];
    recv(sock, Scatter::new(bufs), None, MsgFlags::NONE).map(|received| received.bytes)
}

/// recvmsg(2) on a stream.
pub(crate) fn recv(
    sock: &Sock,
    sink: impl Sink,
    ancillary: Option<&mut RecvAncillary>,
    flags: MsgFlags,
) -> Result<Received, Errno> {
    contain::call(sock, "receive", || recv_now(sock, sink, ancillary, flags))
}

fn recv_now(
    sock: &Sock,
    mut sink: impl Sink,
    ancillary: Option<&mut RecvAncillary>,
    flags: MsgFlags,
) -> Result<Received, Errno> {
    let peer = sock.peer.as_ref().ok_or(Errno::INVAL)?;
    let (core, pcb) = (sock.core(), &sock.pcb);
    let mut request = Request::new(sock, sink.capacity(), ancillary, flags);
    let mut timeout = Timeout::of(&pcb.options.read_timeout);
    let mut received = Received::default();
    loop {
        let mut part = Part::default();
        let mut wakes = Wakes::new(core);
        let found = Chosen::receiving(core, pcb, || {
            contain::section(pcb, Errno::IO, &mut wakes, |so, wakes| {
                let found = take_stream(pcb, so, &mut sink, &request, received.bytes, &mut part)?;
                if part.bytes > 0 && so.has_room() {
                    wakes.writers(pcb, so);
                }
                Ok(found)
            })
        });
        wakes.fire();
        match found {
            Err(_) if received.bytes > 0 => return Ok(received),
            Err(errno) => return Err(errno),
            Ok(Found::End) => return Ok(received),
            Ok(Found::Some) => {}
            Ok(Found::Nothing { ticket, cpu }) => {
                match wait(core, &pcb.rcv_wait, ticket, cpu, &mut timeout) {
                    Err(_) if received.bytes > 0 => return Ok(received),
                    waited => waited?,
                }
                continue;
            }
        }
        if let Some(chain) = part.chain.take() {
            sink.put_chain(chain);
        }
        received.bytes += part.bytes;
        received.sender = peer.name.get().cloned();
        received.flags |= request.deliver(&mut part);
        let is_enough = received.bytes == request.wanted || !flags.contains(MsgFlags::WAITALL);
        if part.is_end || is_enough {
            return Ok(received);
        }
    }
}

/// Takes (or peeks at) the bytes of a stream; `done` bytes were received before.
fn take_stream(
    pcb: &Pcb,
    so: &mut So,
    sink: &mut impl Sink,
    request: &Request<'_>,
    done: usize,
    part: &mut Part,
) -> Result<Found, Errno> {
    let offset = if request.is_peek { done } else { 0 };
    let there = so.data.len().saturating_sub(offset);
    if there == 0 {
        return nothing(pcb, so, request, done);
    }
    let at = so.head + offset as u64;
    part.bytes = there.min(request.wanted - done);
    let mut has_rights = false;
    if let Some(ancillary) = &so.ancillary {
        let stop = ancillary.stop(at, part.bytes, request.wants_creds);
        (part.bytes, part.is_end, has_rights) = (stop.bytes, stop.is_end, stop.has_rights);
        part.creds = ancillary.creds_at(at);
    }
    if request.is_peek {
        so.data.peek(offset, part.bytes, sink);
        let span =
            so.ancillary.as_ref().filter(|_| has_rights).and_then(|ancillary| ancillary.rights.front());
        if let Some(span) = span {
            part.duplicates = span.rights.duplicates(request.rights_max);
            part.is_cut = part.duplicates.len() < span.rights.len();
        }
        return Ok(Found::Some);
    }
    part.chain = so.data.take(part.bytes, sink);
    failpoints::hit(Point::UnixReceive, 0);
    so.head += part.bytes as u64;
    let head = so.head;
    if let Some(ancillary) = &mut so.ancillary {
        if has_rights {
            part.rights = ancillary.rights.pop_front().map(|span| span.rights);
            failpoints::hit(Point::UnixRights, 0);
        }
        ancillary.advance(head);
        if ancillary.is_idle() {
            so.ancillary = None;
        }
        so.sockets_held -= part.rights.as_ref().map_or(0, |rights| rights.sockets().count() as u32);
    }
    Ok(Found::Some)
}

/// With nothing to read: the pending error, the end, or a ticket.
fn nothing(pcb: &Pcb, so: &mut So, request: &Request<'_>, done: usize) -> Result<Found, Errno> {
    // An error is for a call that can report it.
    if done == 0
        && let Some(errno) = so.error.take()
    {
        settle_alert(pcb, so);
        return Err(errno);
    }
    // A datagram socket that does not block gets `WouldBlock`, as on Linux.
    if so.shut && (pcb.kind.is_connected() || request.blocks) {
        return Ok(Found::End);
    }
    let ticket = request.blocks.then(|| so.readers.prepare(&pcb.rcv_wait));
    Ok(Found::Nothing { ticket, cpu: so.data_cpu })
}

/// recv(2) on a datagram or packet socket.
#[inline]
pub(crate) fn recv_bytes(sock: &Sock, buf: &mut [u8]) -> Result<usize, Errno> {
    contain::call(sock, "receive", || recv_bytes_now(sock, buf))
}

#[inline]
fn recv_bytes_now(sock: &Sock, buf: &mut [u8]) -> Result<usize, Errno> {
    let pcb = &sock.pcb;
    let mut wakes = Wakes::new(sock.core());
    let taken = Chosen::receiving(sock.core(), pcb, || {
        contain::section(pcb, Errno::IO, &mut wakes, |so, wakes| {
            let (len, flow) = so.records.first()?;
            if so.error.is_some() || so.records.first_extra().is_some() || len > COPY_LOCKED_MAX {
                return None;
            }
            let take = len.min(buf.len());
            so.data.take_front(&mut buf[..take]);
            so.data.skip(len - take);
            failpoints::hit(Point::UnixRecord, 0);
            so.records.pop_front();
            if pcb.kind == Kind::Datagram {
                wakes.senders(so.flows.discharge(flow, len));
            } else if so.has_room() {
                wakes.writers(pcb, so);
            }
            failpoints::hit(Point::UnixReceive, 0);
            Some(take)
        })
    });
    wakes.fire();
    match taken {
        Some(taken) => Ok(taken),
        None => {
            let bufs = &mut [std::io::IoSliceMut::new(buf)];
            recv_record(sock, Scatter::new(bufs), None, MsgFlags::NONE).map(|received| received.bytes)
        }
    }
}

/// recvmsg(2) on a datagram or packet socket: one record.
pub(crate) fn recv_record(
    sock: &Sock,
    sink: impl Sink,
    ancillary: Option<&mut RecvAncillary>,
    flags: MsgFlags,
) -> Result<Received, Errno> {
    contain::call(sock, "receive", || recv_record_now(sock, sink, ancillary, flags))
}

fn recv_record_now(
    sock: &Sock,
    mut sink: impl Sink,
    ancillary: Option<&mut RecvAncillary>,
    flags: MsgFlags,
) -> Result<Received, Errno> {
    let (core, pcb) = (sock.core(), &sock.pcb);
    if pcb.kind == Kind::Seqpacket && sock.peer.is_none() {
        return Err(Errno::NOTCONN);
    }
    let mut request = Request::new(sock, sink.capacity(), ancillary, flags);
    let mut timeout = Timeout::of(&pcb.options.read_timeout);
    loop {
        let mut part = Part::default();
        let mut wakes = Wakes::new(core);
        let found = Chosen::receiving(core, pcb, || {
            contain::section(pcb, Errno::IO, &mut wakes, |so, wakes| {
                let found = take_record(pcb, so, &mut sink, &request, wakes, &mut part)?;
                if matches!(found, Found::Some) && so.has_room() {
                    wakes.writers(pcb, so);
                }
                Ok(found)
            })
        });
        wakes.fire();
        match found? {
            Found::End => return Ok(Received::default()),
            Found::Some => {}
            Found::Nothing { ticket, cpu } => {
                wait(core, &pcb.rcv_wait, ticket, cpu, &mut timeout)?;
                continue;
            }
        }
        if let Some(chain) = part.chain.take() {
            sink.put_chain(chain);
        }
        let mut reported = request.deliver(&mut part);
        reported |= MsgFlags::TRUNC.when(part.len > part.bytes);
        let bytes = if request.flags.contains(MsgFlags::TRUNC) { part.len } else { part.bytes };
        let sender = part.sender.take().or_else(|| sock.connected_name());
        return Ok(Received { bytes, flags: reported, sender });
    }
}

/// Takes (or peeks at) the first record.
fn take_record(
    pcb: &Pcb,
    so: &mut So,
    sink: &mut impl Sink,
    request: &Request<'_>,
    wakes: &mut Wakes<'_>,
    part: &mut Part,
) -> Result<Found, Errno> {
    // An error comes before waiting data, other than in a stream.
    if let Some(errno) = so.error.take() {
        settle_alert(pcb, so);
        return Err(errno);
    }
    let Some((len, flow)) = so.records.first() else { return nothing(pcb, so, request, 0) };
    (part.len, part.bytes) = (len, len.min(request.wanted));
    part.creds = so.records.first_extra().and_then(|extra| extra.creds);
    if pcb.kind == Kind::Datagram {
        part.sender = so.flows.sender(flow).and_then(|sender| sender.name.get().cloned());
    }
    if request.is_peek {
        if let Some(rights) = so.records.first_extra().and_then(|extra| extra.rights.as_ref()) {
            part.duplicates = rights.duplicates(request.rights_max);
            part.is_cut = part.duplicates.len() < rights.len();
        }
        so.data.peek(0, part.bytes, sink);
        return Ok(Found::Some);
    }
    part.chain = so.data.take(part.bytes, sink);
    so.data.skip(len - part.bytes);
    failpoints::hit(Point::UnixRecord, 0);
    let extra = so.records.pop_front().and_then(|record| record.extra);
    part.rights = extra.and_then(|extra| extra.rights);
    if part.rights.is_some() {
        failpoints::hit(Point::UnixRights, 0);
    }
    so.sockets_held -= part.rights.as_ref().map_or(0, |rights| rights.sockets().count() as u32);
    if pcb.kind == Kind::Datagram {
        wakes.senders(so.flows.discharge(flow, len));
    }
    failpoints::hit(Point::UnixReceive, 0);
    Ok(Found::Some)
}
