//! The calls of applications on a connection: send, receive. Those that begin and end it are in `connect.rs` and `close.rs`.
//!
//! A call takes the connection's lock, and runs protocol code under it only if output or a window update is due, as the agreements in
//! [`sockbuf`](super::sockbuf) say; before it lets go it runs the backlog. Blocking calls wait on the wait queue: a ticket is taken
//! under the lock that found nothing to do, so an event in between ends the wait.

use std::hint::cold_path;
use std::io::{self, IoSlice, IoSliceMut};

use rustix::io::Errno;
use sockeye_mbuf::{Chain, Exhausted, Freed};
use sockeye_proto::tcp::push::Then;
use sockeye_sync::facade::{Arc, Ordering};
use sockeye_sync::reserved::Reservation;
use sockeye_sync::{Lent, Ticket};

use super::outbox::Context;
use super::parted::Parted;
use super::sockbuf::{Buffers, Socket};
#[cfg(feature = "tokio")]
use super::transfer::Pieces;
use super::transfer::{Scatter, Sink, Slices, Source};
use super::{Conn, Locked, connect, contain, cork, rcvd, reports, reserved, serve};
use crate::base::errno;
use crate::inet::input::busy::{self, Written};
use crate::inet::input::leader::{self, Waiters};
use crate::rt::blocking::{self, Timeout};
use crate::rt::counter;
use crate::rt::discipline::{self, Discipline as _};
use crate::rt::failpoints::{self, Point};
use crate::rt::poll::registration;
use crate::tcp::Core;
use crate::tcp::discipline::{Chosen, Discipline};
use crate::tcp::socket::SendFlags;

/// Bytes that a send copies before it appends them, at most: a segment's worth, so that the receiver
/// can start on the first while the second is being copied.
const CHUNK_MAX: usize = 64 << 10;
/// The same where an interface takes as much at once: some such segments, as the way through the protocol is then gone once
/// for all of them, and few enough to lie in a core's cache until they have left.
const LARGE_CHUNK_MAX: usize = 256 << 10;

/// Sends `bufs`: all of it if the socket blocks, as much as fits if not. Returns the bytes taken. With
/// nothing taken the error is reported; otherwise it stays pending for the next call.
pub(crate) fn send(core: &Core, ends: &Ends<'_>, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
    let rest = Rest::of(Slices::new(bufs));
    send_or(core, ends, rest, |timeout| wait_for_memory(core, ends.conn, timeout))
}

/// [`send`] of data in packet memory: not copied. The bytes taken are gone from `chain`.
pub(crate) fn send_chain(
    core: &Core,
    ends: &Ends<'_>,
    chain: &mut Chain,
    flags: SendFlags,
) -> io::Result<usize> {
    let no_memory = |timeout: &mut Timeout| wait_for_memory(core, ends.conn, timeout);
    if flags.has(SendFlags::ZEROCOPY) {
        return send_or(core, ends, Rest { flags, ..Rest::of(Parted::new(chain)) }, no_memory);
    }
    send_or(core, ends, Rest { flags, ..Rest::of(chain) }, no_memory)
}

/// [`send`] with MSG_OOB: the bytes taken are urgent up to the last.
pub(crate) fn send_urgent(core: &Core, ends: &Ends<'_>, buf: &[u8]) -> io::Result<usize> {
    let bufs = [IoSlice::new(buf)];
    let rest = Rest { is_urgent: true, ..Rest::of(Slices::new(&bufs)) };
    send_or(core, ends, rest, |timeout| wait_for_memory(core, ends.conn, timeout))
}

/// [`send`] with flags of send(2).
pub(crate) fn send_with(
    core: &Core,
    ends: &Ends<'_>,
    bufs: &[IoSlice<'_>],
    flags: SendFlags,
) -> io::Result<usize> {
    send_slices(core, ends, bufs, flags, |timeout| wait_for_memory(core, ends.conn, timeout))
}

/// [`send_with`], with a handler for the case that there is no packet memory.
pub(crate) fn send_slices(
    core: &Core,
    ends: &Ends<'_>,
    bufs: &[IoSlice<'_>],
    flags: SendFlags,
    no_memory: impl Fn(&mut Timeout) -> io::Result<()>,
) -> io::Result<usize> {
    let source = Slices::new(bufs);
    if flags.has(SendFlags::ZEROCOPY) {
        return send_or(core, ends, Rest { flags, ..Rest::of(Parted::new(source)) }, no_memory);
    }
    send_or(core, ends, Rest { flags, ..Rest::of(source) }, no_memory)
}

/// The two ends of a connection, as a handle of the application holds them: the one that sends, and the one that receives if it is known.
pub(crate) struct Ends<'a> {
    pub conn: &'a Arc<Conn>,
    pub peer: Option<Lent<'a, Conn>>,
}

impl Ends<'_> {
    /// Both, if the other one is known.
    #[inline]
    pub fn both(&self) -> Option<(&Arc<Conn>, &Arc<Conn>)> {
        self.peer.as_deref().map(|peer| (self.conn, peer))
    }
}

/// [`send`], with a handler for the case that there is no packet memory.
fn send_or<S: Source>(
    core: &Core,
    ends: &Ends<'_>,
    rest: Rest<S>,
    no_memory: impl Fn(&mut Timeout) -> io::Result<()>,
) -> io::Result<usize> {
    contain::call(core, ends.conn, "write", || send_rest(core, ends, rest, no_memory))
}

fn send_rest<S: Source>(
    core: &Core,
    ends: &Ends<'_>,
    mut rest: Rest<S>,
    no_memory: impl Fn(&mut Timeout) -> io::Result<()>,
) -> io::Result<usize> {
    let conn = ends.conn;
    let mut timeout = Timeout::of(&conn.options.write_timeout);
    let (wanted, mut earlier) = (rest.source.len(), None);
    if wanted == 0 {
        connect::send_nothing(core, conn, &mut timeout)?;
    }
    while rest.source.len() > 0 {
        let before = rest.source.len();
        let refusal = match append(core, ends, &mut rest) {
            Ok(buffered) => {
                if !conn.options.nonblocking.load(Ordering::Relaxed) {
                    let bytes = (before - rest.source.len()) as u32; // At most a chunk.
                    let earlier = *earlier.get_or_insert(buffered.saturating_sub(bytes));
                    busy::has_written(core, &conn.input_at, Written { earlier, buffered, bytes });
                }
                continue;
            }
            Err(refusal) => refusal,
        };
        let waited = match refusal {
            Refusal::Failed(error) => Err(error),
            Refusal::Full(ticket) => wait_for_space(core, conn, ticket, &mut timeout),
            // Memory on remote-free lists goes back before a caller waits for memory or fails for want of it.
            Refusal::NoMemory if Chosen::reclaim(core) => Ok(()),
            Refusal::NoMemory => {
                core.pruner.ask(core);
                no_memory(&mut timeout)
            }
        };
        match waited {
            Ok(()) => {}
            Err(_) if rest.source.len() < wanted => break,
            Err(error) => return Err(error),
        }
    }
    if let Some(call) = rest.report {
        Context::run(core, |cx| reports::close(cx, &mut conn.so.lock(), call));
    }
    Ok(wanted - rest.source.len())
}

/// The rest of a send.
pub(super) struct Rest<S> {
    source: S,
    /// Something was taken.
    is_begun: bool,
    /// The pointer is to stand behind the bytes taken, none of which leaves before (`tcp_sendmsg_locked`).
    is_urgent: bool,
    /// It does not yet: more of the write is to come.
    is_unmarked: bool,
    flags: SendFlags,
    /// Its number among sends that have reports.
    report: Option<u32>,
}

impl<S> Rest<S> {
    pub fn of(source: S) -> Self {
        let flags = SendFlags::NONE;
        Self { source, is_begun: false, is_urgent: false, is_unmarked: false, flags, report: None }
    }
}

/// Why nothing was appended.
pub(super) enum Refusal {
    /// The buffer is full (or the handshake not done); the ticket waits for a change.
    Full(Option<(Ticket, u32)>),
    /// The memory cap is reached.
    NoMemory,
    Failed(io::Error),
}

impl From<Exhausted> for Refusal {
    fn from(_: Exhausted) -> Self {
        Self::NoMemory
    }
}

/// Appends as much as fits now, at most a chunk, and runs output if it is due. Returns how many bytes were buffered before the output.
pub(super) fn append<S: Source>(core: &Core, ends: &Ends<'_>, rest: &mut Rest<S>) -> Result<u32, Refusal> {
    let conn = ends.conn;
    Chosen::before_write(core, conn);
    let (begun, mut so) = contain::section(core, conn, conn.so.enter(), |so| begin(core, conn, so, rest));
    let (take, reservation) = match begun {
        Ok(begun) => begun,
        Err(refusal) => {
            cold_path();
            refused(core, ends, so, rest);
            return Err(refusal);
        }
    };
    if let Some(reservation) = reservation {
        serve::release(core, ends, so);
        let (mut chain, before) = (Chain::new(), rest.source.mark());
        let copied = rest.source.take(&core.pool, take, &mut chain);
        so = reserved::give_back(core, conn, conn.so.enter(), (reservation, chain.len()));
        // Bytes that were copied and cannot be sent any more do not count as taken.
        let appends = copied
            .map_err(Refusal::from)
            .and_then(|()| check(conn, &so, rest.is_begun).inspect_err(|_| rest.source.reset(before)));
        if let Err(refusal) = appends {
            refused(core, ends, so, rest);
            return Err(refusal);
        }
        ((), so) = contain::section(core, conn, so, |so| {
            let before = so.snd.len();
            so.snd.chain.append(chain);
            appended(conn, so, rest, before);
        });
    }
    if so.snd.defers_syn {
        cold_path();
        // The SYN takes along the written bytes; from here on this is a connect like any other.
        so.snd.defers_syn = false;
        so.pcb.hold_syn(false);
        // It keeps its PSH if it is sent again behind the SYN, as on Linux.
        let text_len = so.pcb.syn_text_max().min(so.snd.len());
        so.snd.note_pushed(text_len);
        serve::release(core, ends, so);
        connect::start(core, conn);
        return Ok(0);
    }
    let buffered = so.snd.len();
    if rest.flags.has(SendFlags::MORE) && buffered >= so.snd.due_at {
        cold_path();
        // Of a write in pieces the next one comes at once.
        so.snd.rare_mut().more = true;
    }
    // Nagle's algorithm does not hold back urgent data, or a packet that others follow, so `due_at` does not decide.
    let may_follow_packet = S::IN_PACKETS && so.snd.counts_parts();
    if rest.is_unmarked {
        serve::release(core, ends, so);
    } else if (rest.is_urgent || may_follow_packet) && so.snd.connected {
        send_now(core, ends, so);
    } else if buffered < so.snd.due_at {
        serve::release(core, ends, so);
    } else if let Some(so) = cork::hold_back(core, ends, so, take) {
        send_now(core, ends, so);
    }
    Ok(buffered)
}

/// A write is refused, and lets go. What an urgent one has appended is urgent up to there, and leaves.
#[cold]
fn refused<S>(core: &Core, ends: &Ends<'_>, mut so: Locked<'_>, rest: &mut Rest<S>) {
    let was_unmarked = std::mem::take(&mut rest.is_unmarked);
    if !was_unmarked {
        return serve::release(core, ends, so);
    }
    so.snd.note_urgent(true);
    send_now(core, ends, so);
}

/// Runs output under the lock that a write has, and lets go.
#[inline]
fn send_now(core: &Core, ends: &Ends<'_>, so: Locked<'_>) {
    Context::run(core, |cx| {
        cx.ends = ends.both();
        Chosen::output(cx, ends.conn, so);
    });
}

/// Appends bytes that can be copied under the socket lock, or reserves room for more. Returns how many bytes those are.
#[inline(always)]
fn begin<S: Source>(
    core: &Core,
    conn: &Conn,
    so: &mut Socket,
    rest: &mut Rest<S>,
) -> Result<(usize, Option<Reservation>), Refusal> {
    check(conn, so, rest.is_begun)?;
    if rest.flags.has(SendFlags::ZEROCOPY) && !rest.is_begun && so.snd.refuses_zerocopy() {
        return Err(Refusal::Failed(Errno::NOBUFS.into()));
    }
    let blocks = !conn.options.nonblocking.load(Ordering::Relaxed);
    let want = rest.source.most(so).min(so.snd.chunk(CHUNK_MAX, LARGE_CHUNK_MAX));
    // At most a chunk, so it fits.
    // As on Linux a write that does not block takes as much as the SYN does, whatever else may wait to be sent.
    let is_of_syn = so.snd.defers_syn && !blocks;
    let room = if is_of_syn {
        so.snd.space().min(want as u32).min(so.pcb.syn_text_max())
    } else {
        so.snd.room(want as u32, blocks)
    };
    if room == 0 {
        if rest.is_begun {
            so.snd.note_interrupted();
        }
        refuse(core, so);
        return Err(Refusal::Full(blocks.then(|| (conn.snd_wait.prepare(), so.snd.cpu))));
    }
    let take = if is_of_syn {
        room as usize
    } else {
        so.snd.whole(room as usize, || so.pcb.unsent_in_record(so.snd.len()) as usize)
    };
    if take <= S::LOCKED_MAX {
        let before = so.snd.len();
        rest.source.take(&core.pool, take, &mut so.snd.chain)?;
        appended(conn, so, rest, before);
        return Ok((take, None));
    }
    // The space is ours while we copy without the lock. At most a chunk.
    Ok((take, Some(so.snd.reserved.take(take as u32))))
}

/// Bytes of a send are in the buffer, which had `before`.
#[inline(always)]
fn appended<S: Source>(conn: &Conn, so: &mut Socket, rest: &mut Rest<S>, before: u32) {
    rest.is_begun = true;
    if rest.is_urgent {
        cold_path();
        rest.is_unmarked = rest.source.len() > 0;
        so.snd.note_urgent(!rest.is_unmarked);
    }
    if so.snd.rare.is_some() || rest.flags != SendFlags::NONE {
        note_appended(so, rest, before);
    }
    failpoints::hit(Point::Write, failpoints::of_conn(conn));
}

/// Takes note of bytes that a send has appended to a buffer of `before`: by its flags, and in the state that hardly any connection on loopback has.
#[inline(never)]
fn note_appended<S: Source>(so: &mut Socket, rest: &mut Rest<S>, before: u32) {
    let len = so.snd.len();
    let then = match rest.source.len() {
        0 if rest.flags.has(SendFlags::MORE) => Then::More,
        0 => Then::Ends,
        _ => Then::GoesOn,
    };
    let ends_packet = rest.source.ends_packet();
    so.snd.note_written(len - before, if ends_packet { Then::Ends } else { then });
    if let Some(reports) = so.snd.reports() {
        let zerocopy = rest.flags.has(SendFlags::ZEROCOPY);
        rest.report = reports.appended(rest.report, len, zerocopy, S::COPIES);
        if then != Then::GoesOn
            && let Some(call) = rest.report.take()
        {
            // None of its bytes has left yet, so there is nothing to announce.
            reports.close(call);
        }
    }
    if ends_packet || (then != Then::GoesOn && rest.flags.has(SendFlags::EOR)) {
        so.pcb.end_record(len);
        so.snd.note_record_end();
        // It waits for no more company.
        so.snd.due_at = so.snd.due_at.min(len.saturating_add(1));
    }
}

/// A writer finds no space, which may be all that keeps the connection from sending more: `TCP_INFO` counts the time.
#[cold]
fn refuse(core: &Core, so: &mut Socket) {
    if so.snd.takes_bytes() && so.pcb.is_metered() {
        so.pcb.meter_refusal(core.clock.now());
    }
}

/// Whether the connection can take bytes at all.
pub(super) fn check(conn: &Conn, so: &Buffers, is_begun: bool) -> Result<(), Refusal> {
    // The pending error is for a call that can report it.
    if !is_begun && let Some(error) = conn.take_error() {
        return Err(Refusal::Failed(error.into()));
    }
    if so.snd.shut {
        return Err(Refusal::Failed(errno::PIPE.into()));
    }
    Ok(())
}

/// At the memory cap: a blocking send waits for memory; a non-blocking one gets `WouldBlock` if its own bytes
/// will free some, and otherwise `OutOfMemory`.
fn wait_for_memory(core: &Core, conn: &Arc<Conn>, timeout: &mut Timeout) -> io::Result<()> {
    core.count(counter::MEMORY_WAITS);
    if conn.options.nonblocking.load(Ordering::Relaxed) {
        if conn.so.lock().snd.chain.is_empty() {
            return Err(io::Error::new(
                io::ErrorKind::OutOfMemory,
                format!(
                    "packet memory is at its cap of {} bytes: raise Config::memory_max, or read what \
                     other connections have received",
                    core.config.memory_max
                ),
            ));
        }
        return Err(Errno::AGAIN.into());
    }
    if blocking::wait_for_memory(core, timeout) { Ok(()) } else { Err(Errno::AGAIN.into()) }
}

/// Receives into `bufs`. 0 means the end of the stream (or empty buffers).
pub(crate) fn recv(core: &Core, ends: &Ends<'_>, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
    let wanted = bufs.iter().map(|b| b.len()).fold(0usize, usize::saturating_add);
    contain::call(core, ends.conn, "read", || recv_into(core, ends, wanted, &mut Scatter::new(bufs)))
}

/// [`recv`] of at most `wanted` bytes, which `put` gets piece by piece: not foreign code, as it may be called under the socket lock.
#[cfg(feature = "tokio")]
pub(crate) fn recv_pieces(
    core: &Core,
    ends: &Ends<'_>,
    wanted: usize,
    put: impl FnMut(&[u8]),
) -> io::Result<usize> {
    contain::call(core, ends.conn, "read", || recv_into(core, ends, wanted, &mut Pieces(put)))
}

/// [`recv`] of at most `wanted` bytes as they lie in packet memory: not copied.
pub(crate) fn recv_chain(core: &Core, ends: &Ends<'_>, wanted: usize) -> io::Result<Chain> {
    contain::call(core, ends.conn, "read", || {
        let mut taken = Chain::new();
        recv_into(core, ends, wanted, &mut taken)?;
        Ok(taken)
    })
}

pub(super) fn recv_into<S: Sink>(
    core: &Core,
    ends: &Ends<'_>,
    wanted: usize,
    sink: &mut S,
) -> io::Result<usize> {
    if wanted == 0 {
        return Ok(0);
    }
    let conn = ends.conn;
    let mut timeout = Timeout::of(&conn.options.read_timeout);
    let mut takes_few = conn.options.nonblocking.load(Ordering::Relaxed);
    loop {
        let so = conn.so.enter();
        let take = so.rcv.readable(wanted);
        if take == 0 || (!takes_few && so.rcv.waits_for_more(wanted) && !conn.has_error()) {
            if so.has_backlog() {
                // It may bring bytes.
                cold_path();
                serve::run_left(core, ends, so, None);
                continue;
            }
            let at_end = if take == 0 { at_end(conn, &so) } else { Ok(false) };
            let ticket = ticket(conn, &so);
            serve::release(core, ends, so);
            if at_end? {
                return Ok(0);
            }
            let waited = wait(core, conn, conn.readers(), ticket, &mut timeout);
            if take > 0 && waited.is_err() {
                // At the end of the time it gets what there is.
                takes_few = true;
            } else {
                waited?;
            }
            continue;
        }
        let mut freed = Freed::new();
        let ((unlinked, owes), so) = contain::section(core, conn, so, |so| {
            let unlinked = sink.unlink(&mut so.rcv.chain, take, &mut freed);
            failpoints::hit(Point::Read, failpoints::of_conn(conn));
            if so.rcv.urgent.is_some() {
                cold_path();
                so.rcv.pass_mark();
            }
            reports::read(so);
            if !so.waiters.pollers().is_empty() && !so.rcv.is_readable() {
                registration::lower_readable(&so.waiters);
            }
            // In the same section as the unlinking: see `sockbuf`.
            (unlinked, Chosen::owes_message(core, so))
        });
        let runs_own = owes && Chosen::runs_own_message(core, conn);
        match runs_own.then(|| rcvd::message(core, conn)).flatten() {
            Some(work) => serve::run_left(core, ends, so, Some(work)),
            None => serve::release(core, ends, so),
        }
        sink.take(unlinked, take, &mut freed);
        Chosen::release_read(core, conn, freed);
        if !owes {
            core.count(counter::RCVD_SKIPPED);
        } else if !runs_own {
            Chosen::bring_message(core, ends);
        }
        return Ok(take);
    }
}

/// Copies the first bytes without taking them (MSG_PEEK).
pub(crate) fn peek(core: &Core, conn: &Arc<Conn>, buf: &mut [u8]) -> io::Result<usize> {
    contain::call(core, conn, "peek", || peek_into(core, conn, buf))
}

fn peek_into(core: &Core, conn: &Arc<Conn>, buf: &mut [u8]) -> io::Result<usize> {
    let mut timeout = Timeout::of(&conn.options.read_timeout);
    while !buf.is_empty() {
        let so = conn.so.lock();
        if !so.rcv.chain.is_empty() {
            let most = so.rcv.readable(buf.len());
            return Ok(so.rcv.chain.copy_to(0, &mut buf[..most]));
        }
        if at_end(conn, &so)? {
            return Ok(0);
        }
        let ticket = ticket(conn, &so);
        drop(so);
        wait(core, conn, conn.readers(), ticket, &mut timeout)?;
    }
    Ok(0)
}

/// With nothing to read: the pending error, `true` at the end of the stream, else `false`.
fn at_end(conn: &Conn, so: &Buffers) -> io::Result<bool> {
    if so.rcv.fin {
        // A reset after the peer's FIN takes nothing from the reader; the error is the writer's (Linux).
        return Ok(true);
    }
    match conn.take_error() {
        Some(error) => Err(error.into()),
        None => Ok(so.rcv.eof || so.rcv.shut),
    }
}

/// A ticket for a reader, if the socket blocks, and where the thread that will notify it ran last.
fn ticket(conn: &Conn, so: &Buffers) -> Option<(Ticket, u32)> {
    let blocks = !conn.options.nonblocking.load(Ordering::Relaxed);
    blocks.then(|| (conn.rcv_wait.prepare(), so.rcv.cpu().unwrap_or(u32::MAX)))
}

/// Waits with a ticket; without one (non-blocking) or at the end of the time: `WouldBlock`.
pub(super) fn wait(
    core: &Core,
    conn: &Conn,
    waiters: Waiters<'_>,
    ticket: Option<(Ticket, u32)>,
    timeout: &mut Timeout,
) -> io::Result<()> {
    let (ticket, cpu) = ticket.ok_or(Errno::AGAIN)?;
    discipline::Chosen::before_wait(core);
    let woken = match busy::place_of(core, &conn.input_at, conn.via.last()) {
        Some(at) => leader::wait_polling(core, (waiters, ticket), (at, &conn.tuple), timeout),
        None => blocking::wait(core, waiters.queue, ticket, cpu, timeout),
    };
    if woken { Ok(()) } else { Err(Errno::AGAIN.into()) }
}

/// [`wait`] of a writer whose buffer is full. A peer on loopback may admit it; on a wire it waits for an acknowledgment.
fn wait_for_space(
    core: &Core,
    conn: &Conn,
    ticket: Option<(Ticket, u32)>,
    timeout: &mut Timeout,
) -> io::Result<()> {
    let Some((ticket, cpu)) = ticket.filter(|_| !conn.via.last().is_wire()) else {
        return wait(core, conn, conn.writers(), ticket, timeout);
    };
    discipline::Chosen::before_wait(core);
    let woken = blocking::wait_for_reader(core, &conn.snd_wait, ticket, cpu, timeout);
    if woken { Ok(()) } else { Err(Errno::AGAIN.into()) }
}
