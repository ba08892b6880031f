//! Sending on connections: streams and packets. Datagrams are in `datagram_send.rs`.
//!
//! Small data is copied into the peer's buffer under that buffer's mutex; more is copied into mbufs first:
//! of a stream after its place was reserved, of a packet, which goes whole or not at all, at once. In `direct`
//! that mutex is the only one (`locking.rs`).
//!
//! Does not depend on public types. Invariants: rights that were not appended go back to the caller; the thread
//! that waits is notified in the section that appends. Tests: `tests/unix*`.

use std::io::IoSlice;

use rustix::io::Errno;
use sockeye_mbuf::{Chain, Pool};
use sockeye_sync::Ticket;
use sockeye_sync::facade::{Arc, Ordering};
use sockeye_sync::reserved::Reservation;

use super::ancillary::{MsgFlags, SendAncillary, UCred};
use super::bytes::COPY_LOCKED_MAX;
use super::locking::{Chosen, Locking};
use super::pcb::{Extra, Kind, Pcb, Record, So};
use super::rights::InFlight;
use super::sock::{Sock, settle_alert};
use super::wait::{Timeout, wait, wait_for_memory};
use super::wakes::Wakes;
use super::{collect, contain};
use crate::rt::env::Env;
use crate::rt::failpoints::{self, Point};

/// Bytes of a stream that are copied and appended at a time: the reader can start on the first while the second
/// is being copied.
const CHUNK_MAX: usize = 64 << 10;
/// The part of SO_SNDBUF that a message cannot use (Linux's EMSGSIZE).
const MESSAGE_MARGIN: usize = 32;

/// Messages up to this length, bytes, are sent without any ado: no SO_SNDBUF is too small for them, and they are
/// copied under the mutex.
pub(super) const SMALL_MESSAGE_MAX: usize = crate::config::BUFFER_MIN as usize - MESSAGE_MARGIN;

/// Why nothing was appended.
pub(super) enum Refusal {
    /// There is no room; the ticket, if the call blocks, waits for some. Where it will be made ran last on `cpu`.
    Full {
        ticket: Option<Ticket>,
        cpu: u32,
    },
    NoMemory,
    Failed(Errno),
}

/// Ancillary data of a send.
#[derive(Default)]
pub(super) struct Cargo {
    pub rights: Option<InFlight>,
    /// The sender has named credentials of its own.
    pub creds: Option<UCred>,
}

impl Cargo {
    /// Checks and counts the rights in `ancillary`, which is empty afterwards.
    pub fn load(core: &Env, ancillary: Option<&mut SendAncillary>) -> Result<Self, Errno> {
        let Some(ancillary) = ancillary else { return Ok(Self::default()) };
        if let Some(creds) = ancillary.creds
            && creds != UCred::of_process()
            && creds != UCred::of_process_effective()
            && !rustix::process::geteuid().is_root()
        {
            return Err(Errno::PERM);
        }
        let rights = match ancillary.take_rights() {
            rights if rights.is_empty() => None,
            rights => match InFlight::launch(core, rights) {
                Ok(rights) => Some(rights),
                Err((errno, rights)) => {
                    ancillary.rights = rights;
                    return Err(errno);
                }
            },
        };
        Ok(Self { rights, creds: ancillary.creds })
    }

    /// Gives back rights that were not sent, if the send failed; closes it if nothing had to be sent.
    pub fn unload(self, ancillary: Option<&mut SendAncillary>, is_sent: bool) {
        let rights = self.rights.map(InFlight::land).unwrap_or_default();
        let Some(ancillary) = ancillary else { return };
        if is_sent {
            ancillary.creds = None;
            super::rights::close_rights(rights);
        } else {
            ancillary.rights = rights;
        }
    }

    /// The sockets that will be in flight: to be looked at once they are.
    pub fn sockets(&self) -> Vec<Arc<Pcb>> {
        let sockets = self.rights.iter().flat_map(|rights| rights.sockets());
        sockets.map(|sock| Arc::clone(&sock.pcb)).collect()
    }

    /// Whether there are any.
    pub fn carries_sockets(&self) -> bool {
        self.rights.as_ref().is_some_and(|rights| rights.sockets().next().is_some())
    }

    fn is_empty(&self) -> bool {
        self.rights.is_none() && self.creds.is_none()
    }
}

/// Looks for garbage among sockets that were just sent to `to`. As long as that has a handle
/// outside of messages they can be received; the thread that drops its last one looks then.
///
/// A socket that became garbage lies in `to`'s buffer, so `to` is garbage, too: the search begins there. The sockets may be
/// of other stacks.
pub(super) fn after_sending(to: &Arc<Pcb>, sockets: &[Arc<Pcb>]) {
    if collect::is_suspect(to) && sockets.iter().any(collect::may_close_a_cycle) {
        collect::collect(to);
    }
}

/// The bytes of a vectored send that are still to go.
#[derive(Clone, Copy)]
pub(super) struct Gather<'a> {
    bufs: &'a [IoSlice<'a>],
    offset: usize,
    pub len: usize,
}

impl<'a> Gather<'a> {
    pub fn new(bufs: &'a [IoSlice<'a>]) -> Self {
        let len = bufs.iter().map(|b| b.len()).fold(0usize, usize::saturating_add);
        Self { bufs, offset: 0, len }
    }

    /// Gives the next `bytes` bytes to `put` in pieces; `put` says how many of a piece it took, and less than
    /// all of one ends it. Returns how many were taken.
    pub fn take(&mut self, bytes: usize, mut put: impl FnMut(&[u8]) -> usize) -> usize {
        let mut total = 0;
        while total < bytes
            && let Some(first) = self.bufs.first()
        {
            let piece = &first[self.offset..];
            let piece = &piece[..piece.len().min(bytes - total)];
            let taken = put(piece);
            total += taken;
            self.offset += taken;
            if taken < piece.len() {
                break;
            }
            if self.offset == first.len() {
                self.bufs = &self.bufs[1..];
                self.offset = 0;
            }
        }
        self.len -= total;
        total
    }

    /// Copies `bytes` bytes into mbufs; fewer if memory is short.
    pub fn copy(&mut self, pool: &Pool, bytes: usize) -> Chain {
        let mut chain = Chain::new();
        self.take(bytes, |piece| chain.extend_from_slice(pool, piece).unwrap_or(0));
        chain
    }
}

/// write(2) on a stream.
#[inline]
pub(crate) fn write(sock: &Sock, buf: &[u8]) -> Result<usize, Errno> {
    contain::call(sock, "write", || write_now(sock, buf))
}

#[inline]
fn write_now(sock: &Sock, buf: &[u8]) -> Result<usize, Errno> {
    let peer = sock.connected()?;
    let core = sock.core();
    if buf.len() <= COPY_LOCKED_MAX {
        let mut wakes = Wakes::new(core);
        let taken = Chosen::sending(core, &sock.pcb, peer, || {
            contain::section(peer, Errno::CONNRESET, &mut wakes, |so, wakes| {
                let is_plain = so.ancillary.is_none() && !so.wants_creds;
                if so.takes_nothing() || so.space() < buf.len() || buf.is_empty() || !is_plain {
                    return 0;
                }
                let taken = so.data.push(&core.pool, buf).unwrap_or(0);
                failpoints::hit(Point::UnixSend, 0);
                wakes.readers(peer, so);
                taken
            })
        });
        wakes.fire();
        if let Some(taken) = taken
            && taken > 0
        {
            return Ok(taken);
        }
    }
    send(sock, &[IoSlice::new(buf)], None, MsgFlags::NONE)
}

/// sendmsg(2) on a stream. With some bytes taken an error is left for the next call.
pub(crate) fn send(
    sock: &Sock,
    bufs: &[IoSlice<'_>],
    ancillary: Option<&mut SendAncillary>,
    flags: MsgFlags,
) -> Result<usize, Errno> {
    contain::call(sock, "send", || send_now(sock, bufs, ancillary, flags))
}

fn send_now(
    sock: &Sock,
    bufs: &[IoSlice<'_>],
    mut ancillary: Option<&mut SendAncillary>,
    flags: MsgFlags,
) -> Result<usize, Errno> {
    let (core, peer) = (sock.core(), sock.connected()?);
    let mut cargo = Cargo::load(core, ancillary.as_deref_mut())?;
    let sockets = cargo.sockets();
    let blocks = sock.blocks() && !flags.contains(MsgFlags::DONTWAIT);
    let mut timeout = Timeout::of(&sock.pcb.options.write_timeout);
    let mut rest = Gather::new(bufs);
    let wanted = rest.len;
    let mut has_waited = false;
    let result = loop {
        let refusal = match append(core, sock, peer, &mut rest, &mut cargo, blocks) {
            Ok(()) if rest.len == 0 => break Ok(()),
            Ok(()) => continue,
            Err(refusal) => refusal,
        };
        let waited = match refusal {
            // A sender that was waiting gets ECONNRESET; one that comes later gets EPIPE (Linux).
            Refusal::Failed(errno) if has_waited => break Err(take_alert(&sock.pcb).err().unwrap_or(errno)),
            Refusal::Failed(errno) => Err(errno),
            Refusal::Full { ticket, cpu } => wait(core, &peer.snd_wait, ticket, cpu, &mut timeout),
            Refusal::NoMemory => wait_for_memory(core, blocks, &mut timeout),
        };
        has_waited = true;
        if let Err(errno) = waited {
            break Err(errno);
        }
    };
    let taken = wanted - rest.len;
    cargo.unload(ancillary, result.is_ok() || taken > 0);
    after_sending(peer, &sockets);
    match result {
        Err(errno) if taken == 0 => Err(errno),
        Ok(()) | Err(_) => Ok(taken),
    }
}

/// Appends as much as fits now, at most a chunk.
fn append(
    core: &Env,
    sock: &Sock,
    peer: &Arc<Pcb>,
    rest: &mut Gather<'_>,
    cargo: &mut Cargo,
    blocks: bool,
) -> Result<(), Refusal> {
    let want = rest.len.min(CHUNK_MAX);
    let is_small = want <= COPY_LOCKED_MAX;
    let reserved = if is_small { None } else { Some(reserve(peer, want, blocks)?) };
    let before = *rest;
    let mut copy = reserved.map(|reserved| (rest.copy(&core.pool, reserved.bytes()), reserved));
    let mut wakes = Wakes::new(core);
    let attempt = |so: &mut So, wakes: &mut Wakes<'_>| {
        let result = match copy.take() {
            None => check(so).and_then(|()| {
                let room = room(peer, so, want, blocks)?;
                let taken = rest.take(room, |piece| so.data.push(&core.pool, piece).unwrap_or(0));
                if taken == 0 && want > 0 { Err(Refusal::NoMemory) } else { Ok(taken) }
            }),
            Some((chain, reserved)) => {
                let taken = chain.len();
                let is_open = check(so);
                // Another writer may wait for room that we had reserved and do not use.
                if so.reserved.give_back(reserved, if is_open.is_ok() { taken } else { 0 }) {
                    wakes.writers(peer, so);
                }
                match is_open {
                    Ok(()) if taken == 0 => Err(Refusal::NoMemory),
                    Ok(()) => {
                        so.data.push_chain(chain);
                        Ok(taken)
                    }
                    Err(refusal) => Err(refusal),
                }
            }
        };
        result.map(|taken| {
            if taken > 0 {
                note(so, taken, cargo);
                failpoints::hit(Point::UnixSend, 0);
                wakes.readers(peer, so);
            }
        })
    };
    let done = Chosen::sending(core, &sock.pcb, peer, || {
        contain::section(peer, Errno::CONNRESET, &mut wakes, attempt)
    })
    .unwrap_or(Err(Refusal::Failed(Errno::PIPE)));
    wakes.fire();
    // Bytes that were copied and cannot be sent any more do not count as taken.
    done.inspect_err(|_| *rest = before)
}

/// Whether the peer takes anything.
fn check(so: &So) -> Result<(), Refusal> {
    if so.takes_nothing() { Err(Refusal::Failed(Errno::PIPE)) } else { Ok(()) }
}

/// How many bytes may be added now.
fn room(peer: &Pcb, so: &So, want: usize, blocks: bool) -> Result<usize, Refusal> {
    let space = so.space();
    // A blocking writer waits for room that is worth it; the thread that makes the peer's buffer `has_room` makes as
    // much.
    let worth = if blocks { want.min(so.hiwat - so.hiwat / 4) } else { want.min(1) };
    if space < worth {
        let ticket = blocks.then(|| peer.snd_wait.prepare());
        return Err(Refusal::Full { ticket, cpu: so.room_cpu });
    }
    Ok(want.min(space))
}

/// Takes room for a copy that is made without the mutex.
fn reserve(peer: &Pcb, want: usize, blocks: bool) -> Result<Reservation, Refusal> {
    let mut so = peer.so.lock();
    check(&so)?;
    let room = room(peer, &so, want, blocks)?;
    // At most a chunk.
    Ok(so.reserved.take(room as u32))
}

/// Notes the ancillary data of the last `taken` bytes of a stream.
fn note(so: &mut So, taken: usize, cargo: &mut Cargo) {
    if cargo.is_empty() && !so.wants_creds && so.ancillary.is_none() {
        return;
    }
    let end = so.head + so.data.len() as u64;
    let start = end - taken as u64;
    let creds = cargo.creds.or_else(|| so.wants_creds.then(UCred::of_process));
    let ancillary = so.ancillary.get_or_insert_default();
    ancillary.note_creds(start, creds);
    if let Some(rights) = cargo.rights.take() {
        so.sockets_held += count_sockets(&rights);
        ancillary.note_rights(start, end, rights);
    }
}

fn count_sockets(rights: &InFlight) -> u32 {
    // At most `RIGHTS_MAX`.
    rights.sockets().count() as u32
}

/// A message that goes whole or not at all.
pub(super) struct Message<'a> {
    pub gather: Gather<'a>,
    pub len: usize,
    /// The bytes, if they were copied before.
    pub copied: Option<Chain>,
    pub cargo: Cargo,
    /// Where a datagram that carries sockets went.
    pub receiver: Option<Arc<Pcb>>,
}

impl So {
    /// Appends a record that brings nothing but bytes; false, and nothing is changed, if memory is short.
    #[inline]
    pub fn push_record(&mut self, pool: &Pool, buf: &[u8], flow: u32) -> bool {
        let taken = self.data.push(pool, buf).unwrap_or(0);
        if taken < buf.len() {
            self.data.undo(taken);
            return false;
        }
        failpoints::hit(Point::UnixRecord, 0);
        // Short: see `SMALL_MESSAGE_MAX`.
        self.records.push_back(Record { len: buf.len() as u32, flow, extra: None });
        true
    }
}

impl<'a> Message<'a> {
    /// # Errors
    /// EMSGSIZE if it is too long for the sender's SO_SNDBUF.
    pub fn new(pcb: &Pcb, bufs: &'a [IoSlice<'a>]) -> Result<Self, Errno> {
        let gather = Gather::new(bufs);
        let sndbuf = pcb.options.sndbuf.load(Ordering::Relaxed) as usize;
        if gather.len > sndbuf - MESSAGE_MARGIN {
            return Err(Errno::MSGSIZE);
        }
        Ok(Self { len: gather.len, gather, copied: None, cargo: Cargo::default(), receiver: None })
    }

    /// Copies a long message, before any lock. False if memory is short.
    pub fn copy(&mut self, pool: &Pool) -> bool {
        if self.copied.is_some() || self.len <= COPY_LOCKED_MAX {
            return true;
        }
        let mut gather = Gather { bufs: self.gather.bufs, offset: 0, len: self.len };
        let chain = gather.copy(pool, self.len);
        let is_whole = chain.len() == self.len;
        self.copied = is_whole.then_some(chain);
        is_whole
    }

    /// Appends it to `so`. Nothing changes if memory is short.
    pub fn append(
        &mut self,
        core: &Env,
        so: &mut So,
        flow: u32,
        creds: Option<UCred>,
    ) -> Result<(), Refusal> {
        match self.copied.take() {
            Some(chain) => so.data.push_chain(chain),
            None => {
                let mut gather = Gather { bufs: self.gather.bufs, offset: 0, len: self.len };
                let taken = gather.take(self.len, |piece| so.data.push(&core.pool, piece).unwrap_or(0));
                if taken < self.len {
                    so.data.undo(taken);
                    return Err(Refusal::NoMemory);
                }
            }
        }
        failpoints::hit(Point::UnixRecord, 0);
        let rights = self.cargo.rights.take();
        so.sockets_held += rights.as_ref().map_or(0, count_sockets);
        let creds = self.cargo.creds.or(creds);
        let has_extra = rights.is_some() || creds.is_some();
        let extra = has_extra.then(|| Box::new(Extra { rights, creds }));
        // A message is shorter than SO_SNDBUF, which is a `u32`.
        so.records.push_back(Record { len: self.len as u32, flow, extra });
        Ok(())
    }
}

/// send(2) on a sequenced-packet socket.
#[inline]
pub(crate) fn send_bytes(sock: &Sock, buf: &[u8]) -> Result<usize, Errno> {
    contain::call(sock, "send", || send_bytes_now(sock, buf))
}

#[inline]
fn send_bytes_now(sock: &Sock, buf: &[u8]) -> Result<usize, Errno> {
    let (core, peer) = (sock.core(), sock.connected()?);
    if buf.len() <= SMALL_MESSAGE_MAX && !sock.pcb.alert.load(Ordering::Acquire) {
        let mut wakes = Wakes::new(core);
        let is_sent = Chosen::sending(core, &sock.pcb, peer, || {
            contain::section(peer, Errno::CONNRESET, &mut wakes, |so, wakes| {
                let is_sent = !so.takes_nothing()
                    && so.used() < so.hiwat
                    && !so.wants_creds
                    && so.push_record(&core.pool, buf, 0);
                if is_sent {
                    wakes.readers(peer, so);
                }
                is_sent
            })
        });
        wakes.fire();
        if is_sent == Some(true) {
            return Ok(buf.len());
        }
    }
    send_packet(sock, &[IoSlice::new(buf)], None, MsgFlags::NONE)
}

/// sendmsg(2) on a sequenced-packet socket.
pub(crate) fn send_packet(
    sock: &Sock,
    bufs: &[IoSlice<'_>],
    ancillary: Option<&mut SendAncillary>,
    flags: MsgFlags,
) -> Result<usize, Errno> {
    contain::call(sock, "send", || send_packet_now(sock, bufs, ancillary, flags))
}

fn send_packet_now(
    sock: &Sock,
    bufs: &[IoSlice<'_>],
    mut ancillary: Option<&mut SendAncillary>,
    flags: MsgFlags,
) -> Result<usize, Errno> {
    debug_assert_eq!(sock.pcb.kind, Kind::Seqpacket);
    let (core, peer) = (sock.core(), sock.connected()?);
    take_alert(&sock.pcb)?;
    let blocks = sock.blocks() && !flags.contains(MsgFlags::DONTWAIT);
    let mut timeout = Timeout::of(&sock.pcb.options.write_timeout);
    let mut message = Message::new(&sock.pcb, bufs)?;
    message.cargo = Cargo::load(core, ancillary.as_deref_mut())?;
    let sockets = message.cargo.sockets();
    let result = loop {
        let refusal = match append_packet(core, sock, peer, &mut message, blocks) {
            Ok(()) => break Ok(message.len),
            Err(refusal) => refusal,
        };
        let waited = match refusal {
            Refusal::Failed(errno) => Err(errno),
            Refusal::Full { ticket, cpu } => wait(core, &peer.snd_wait, ticket, cpu, &mut timeout),
            Refusal::NoMemory => wait_for_memory(core, blocks, &mut timeout),
        };
        if let Err(errno) = waited {
            break Err(errno);
        }
    };
    message.cargo.unload(ancillary, result.is_ok());
    after_sending(peer, &sockets);
    result
}

fn append_packet(
    core: &Env,
    sock: &Sock,
    peer: &Arc<Pcb>,
    message: &mut Message<'_>,
    blocks: bool,
) -> Result<(), Refusal> {
    if !message.copy(&core.pool) {
        return Err(Refusal::NoMemory);
    }
    let mut wakes = Wakes::new(core);
    let done = Chosen::sending(core, &sock.pcb, peer, || {
        contain::section(peer, Errno::CONNRESET, &mut wakes, |so, wakes| {
            check(so)?;
            if so.used() >= so.hiwat {
                let ticket = blocks.then(|| peer.snd_wait.prepare());
                return Err(Refusal::Full { ticket, cpu: so.room_cpu });
            }
            let creds = so.wants_creds.then(UCred::of_process);
            message.append(core, so, 0, creds)?;
            wakes.readers(peer, so);
            Ok(())
        })
    });
    wakes.fire();
    done.unwrap_or(Err(Refusal::Failed(Errno::PIPE)))
}

/// The pending error, if there is one; EPIPE if a datagram socket's writes are shut.
pub(super) fn take_alert(pcb: &Pcb) -> Result<(), Errno> {
    // Acquire, with the release in `settle_alert` and where an error is set.
    if !pcb.alert.load(Ordering::Acquire) {
        return Ok(());
    }
    let mut so = pcb.so.lock();
    let error = so.error.take();
    settle_alert(pcb, &so);
    match error {
        Some(errno) => Err(errno),
        None if so.send_shut => Err(Errno::PIPE),
        None => Ok(()),
    }
}
