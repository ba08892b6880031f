//! The calls of applications on a connection: send, receive, shut down, close.
//!
//! A call takes a buffer's mutex, never the perimeter, unless output or a window update is due, which
//! the agreements in [`sockbuf`](super::sockbuf) tell it under that mutex. Blocking calls wait on the
//! buffer's wait queue: a ticket is taken under the mutex that found nothing to do, so what happens
//! in between ends the wait.

use std::io::{self, IoSlice, IoSliceMut};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant as StdInstant};

use sockeye_proto::tcp::state::State;
use sockeye_sync::{Spin, Ticket, WaitQueue, Woken};

use super::outbox::Context;
use super::{Conn, LINGER_OFF, engine, reason};
use crate::stack::{Core, counter};
use crate::workers::deadline_after;

/// Bytes up to which a copy is made under the buffer's mutex: shorter than taking it twice.
const COPY_LOCKED_MAX: usize = 4096;
/// Bytes that a send copies before it appends them, at most: a segment's worth, so that the receiver
/// can start on the first while the second is being copied.
const CHUNK_MAX: usize = 64 << 10;

/// What one attempt to append did.
struct Appended {
    taken: usize,
    /// Output must run.
    due: bool,
}

/// Sends `bufs`: all of it if the socket blocks, what fits if not. Returns the bytes taken.
pub(crate) fn send(core: &Core, conn: &Arc<Conn>, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
    let mut deadline = Timeout::of(&conn.options.write_timeout);
    let (mut total, mut due) = (0, false);
    for buf in bufs {
        let mut rest: &[u8] = buf;
        while !rest.is_empty() {
            match append(core, conn, rest) {
                Ok(appended) => {
                    total += appended.taken;
                    due |= appended.due;
                    rest = &rest[appended.taken..];
                    // Two chunks may be on their way at once; the last one's output is below.
                    if due && !rest.is_empty() {
                        kick(core, conn);
                        due = false;
                    }
                }
                Err(Refusal::Failed(error)) => return partial(core, conn, total, due, error),
                Err(Refusal::Full(ticket)) => {
                    if std::mem::take(&mut due) {
                        kick(core, conn);
                    }
                    if let Err(error) = wait(core, &conn.snd_wait, ticket, &mut deadline) {
                        return partial(core, conn, total, due, error);
                    }
                }
                Err(Refusal::NoMemory) => {
                    if std::mem::take(&mut due) {
                        kick(core, conn);
                    }
                    if let Err(error) = wait_for_memory(core, conn, &mut deadline) {
                        return partial(core, conn, total, due, error);
                    }
                }
            }
        }
    }
    if due {
        kick(core, conn);
    }
    Ok(total)
}

/// Bytes that were taken are reported, and the error comes again with the next call.
fn partial(core: &Core, conn: &Arc<Conn>, total: usize, due: bool, error: io::Error) -> io::Result<usize> {
    if due {
        kick(core, conn);
    }
    if total > 0 { Ok(total) } else { Err(error) }
}

/// Runs output, or leaves it to whoever is inside.
fn kick(core: &Core, conn: &Arc<Conn>) {
    Context::run(core, |cx| engine::notify(cx, conn, reason::OUTPUT));
}

/// Why nothing was appended.
enum Refusal {
    /// The buffer is full (or the handshake not done); the ticket waits for a change.
    Full(Option<(Ticket, u32)>),
    /// The memory cap is reached.
    NoMemory,
    Failed(io::Error),
}

/// Appends as much of `bytes` as fits now, at most a chunk.
fn append(core: &Core, conn: &Arc<Conn>, bytes: &[u8]) -> Result<Appended, Refusal> {
    let mut snd = conn.snd.lock();
    if let Some(error) = conn.take_error() {
        return Err(Refusal::Failed(error.into()));
    }
    if snd.shut {
        return Err(Refusal::Failed(io::ErrorKind::BrokenPipe.into()));
    }
    let space = if snd.connected { snd.space() as usize } else { 0 };
    if space == 0 {
        let blocks = !conn.options.nonblocking.load(Ordering::Relaxed);
        return Err(Refusal::Full(blocks.then(|| (conn.snd_wait.prepare(), snd.cpu))));
    }
    let take = bytes.len().min(space).min(CHUNK_MAX);
    let bytes = &bytes[..take];
    if take <= COPY_LOCKED_MAX {
        let taken = match snd.chain.extend_from_slice(&core.pool, bytes) {
            Ok(taken) if taken > 0 => taken,
            Ok(_) | Err(_) => return Err(Refusal::NoMemory),
        };
        return Ok(Appended { taken, due: snd.len() >= snd.due_at });
    }
    // The space is ours while we copy without the mutex.
    snd.reserved += take as u32;
    drop(snd);
    let copied = core.pool.copy_in(bytes);
    let mut snd = conn.snd.lock();
    snd.reserved -= take as u32;
    let Ok(chain) = copied else { return Err(Refusal::NoMemory) };
    if snd.shut {
        return Err(Refusal::Failed(io::ErrorKind::BrokenPipe.into()));
    }
    snd.chain.append(chain);
    Ok(Appended { taken: take, due: snd.len() >= snd.due_at })
}

/// At the memory cap: a blocking send waits for memory; a non-blocking one is told to come back if its
/// own bytes will free some, and otherwise that the cap is in the way.
fn wait_for_memory(core: &Core, conn: &Arc<Conn>, timeout: &mut Timeout) -> io::Result<()> {
    core.count(counter::MEMORY_WAITS);
    if conn.options.nonblocking.load(Ordering::Relaxed) {
        let mut snd = conn.snd.lock();
        if snd.chain.is_empty() {
            return Err(io::Error::new(
                io::ErrorKind::OutOfMemory,
                format!(
                    "packet memory is at its cap of {} bytes: raise Config::memory_max, or read what \
                     other connections have received",
                    core.config.memory_max
                ),
            ));
        }
        snd.due_at = snd.due_at.min(snd.len());
        return Err(io::ErrorKind::WouldBlock.into());
    }
    let until = timeout.until();
    // Looked at again from time to time: the connection may fail while memory stays short.
    let slice = StdInstant::now() + MEMORY_WAIT;
    core.pool.wait_freed(Some(until.map_or(slice, |u| u.min(slice))));
    if until.is_some_and(|u| StdInstant::now() >= u) {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    Ok(())
}

/// How long a send waits for memory before it looks at its connection again.
const MEMORY_WAIT: Duration = Duration::from_millis(50);

/// Receives into `bufs`. 0 means the end of the stream (or empty buffers).
pub(crate) fn recv(core: &Core, conn: &Arc<Conn>, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
    let wanted = bufs.iter().map(|b| b.len()).fold(0usize, usize::saturating_add);
    if wanted == 0 {
        return Ok(0);
    }
    let mut timeout = Timeout::of(&conn.options.read_timeout);
    loop {
        let mut rcv = conn.rcv.lock();
        let take = rcv.chain.len().min(wanted);
        if take == 0 {
            let ticket = match at_end(conn, &rcv)? {
                true => return Ok(0),
                false => ticket(conn, &conn.rcv_wait, rcv.cpu),
            };
            drop(rcv);
            wait(core, &conn.rcv_wait, ticket, &mut timeout)?;
            continue;
        }
        let due = if take <= COPY_LOCKED_MAX {
            scatter(&mut rcv.chain, bufs, take);
            let due = rcv.update_due();
            drop(rcv);
            due
        } else {
            let mut taken = rcv.chain.split_front(take);
            // In the same section as the unlinking: see `sockbuf`.
            let due = rcv.update_due();
            drop(rcv);
            scatter(&mut taken, bufs, take);
            due
        };
        if due {
            Context::run(core, |cx| engine::notify(cx, conn, reason::RCVD));
        }
        return Ok(take);
    }
}

fn scatter(chain: &mut sockeye_mbuf::Chain, bufs: &mut [IoSliceMut<'_>], mut bytes: usize) {
    for buf in bufs {
        let part = bytes.min(buf.len());
        chain.take_into(&mut buf[..part]);
        bytes -= part;
    }
}

/// Copies the first bytes without taking them (MSG_PEEK).
pub(crate) fn peek(core: &Core, conn: &Arc<Conn>, buf: &mut [u8]) -> io::Result<usize> {
    let mut timeout = Timeout::of(&conn.options.read_timeout);
    while !buf.is_empty() {
        let rcv = conn.rcv.lock();
        if !rcv.chain.is_empty() {
            return Ok(rcv.chain.copy_to(0, buf));
        }
        if at_end(conn, &rcv)? {
            return Ok(0);
        }
        let ticket = ticket(conn, &conn.rcv_wait, rcv.cpu);
        drop(rcv);
        wait(core, &conn.rcv_wait, ticket, &mut timeout)?;
    }
    Ok(0)
}

/// With nothing to read: the pending error, `true` at the end of the stream, else `false`.
fn at_end(conn: &Conn, rcv: &super::sockbuf::RecvBuf) -> io::Result<bool> {
    match conn.take_error() {
        Some(error) => Err(error.into()),
        None => Ok(rcv.eof || rcv.shut),
    }
}

/// A ticket for a blocking socket. Called under the mutex that guards `queue`.
fn ticket(conn: &Conn, queue: &WaitQueue, cpu: u32) -> Option<(Ticket, u32)> {
    let blocks = !conn.options.nonblocking.load(Ordering::Relaxed);
    blocks.then(|| (queue.prepare(), cpu))
}

/// Waits with a ticket; without one (non-blocking) or at the end of the time: `WouldBlock`.
fn wait(
    core: &Core,
    queue: &WaitQueue,
    ticket: Option<(Ticket, u32)>,
    timeout: &mut Timeout,
) -> io::Result<()> {
    let Some((ticket, cpu)) = ticket else { return Err(io::ErrorKind::WouldBlock.into()) };
    core.count(counter::SLEEPS);
    let spin = Spin::up_to(core.config.spin_max).woken_from(Some(cpu));
    match queue.wait(ticket, timeout.until(), spin) {
        Woken::Spinning | Woken::Parked => Ok(()),
        Woken::TimedOut => Err(io::ErrorKind::WouldBlock.into()),
    }
}

/// SO_RCVTIMEO or SO_SNDTIMEO: counted from the first time that a call has to wait.
struct Timeout {
    timeout: Option<Duration>,
    until: Option<StdInstant>,
}

impl Timeout {
    fn of(micros: &std::sync::atomic::AtomicU64) -> Self {
        let micros = micros.load(Ordering::Relaxed);
        Self { timeout: (micros > 0).then(|| Duration::from_micros(micros)), until: None }
    }

    fn until(&mut self) -> Option<StdInstant> {
        if self.until.is_none() {
            self.until = deadline_after(self.timeout);
        }
        self.until
    }
}

/// Sends the SYN.
pub(crate) fn start_connect(core: &Core, conn: &Arc<Conn>) {
    core.count(counter::ACTIVE_OPENS);
    kick(core, conn);
}

/// Waits until the handshake is over, well or not.
pub(crate) fn finish_connect(core: &Core, conn: &Arc<Conn>, timeout: Option<Duration>) -> io::Result<()> {
    let mut timeout = Timeout { timeout, until: None };
    loop {
        let snd = conn.snd.lock();
        if let Some(error) = conn.take_error() {
            return Err(error.into());
        }
        if snd.connected {
            return Ok(());
        }
        if snd.shut {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        let ticket = (conn.snd_wait.prepare(), snd.cpu);
        drop(snd);
        if wait(core, &conn.snd_wait, Some(ticket), &mut timeout).is_err() {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
}

/// shutdown(2).
pub(crate) fn shutdown(core: &Core, conn: &Arc<Conn>, how: std::net::Shutdown) -> io::Result<()> {
    use std::net::Shutdown;
    let (read, write) = match how {
        Shutdown::Read => (true, false),
        Shutdown::Write => (false, true),
        Shutdown::Both => (true, true),
    };
    if conn.state() == State::Closed {
        return Err(io::ErrorKind::NotConnected.into());
    }
    Context::run(core, |cx| {
        if read {
            let mut rcv = conn.rcv.lock();
            rcv.shut = true;
            engine::wake_readers(cx, conn, rcv);
        }
        if write {
            let mut snd = conn.snd.lock();
            snd.shut = true;
            engine::wake_writers(cx, conn, snd);
            engine::notify(cx, conn, reason::SHUTDOWN);
        }
    });
    Ok(())
}

/// The last handle is gone: close(2). With unread bytes or SO_LINGER 0 the connection is reset.
pub(crate) fn close(core: &Core, conn: &Arc<Conn>) {
    conn.watch.clear();
    let unread = {
        let mut rcv = conn.rcv.lock();
        rcv.closed = true;
        rcv.waker = None;
        std::mem::take(&mut rcv.chain)
    };
    let linger_ms = conn.options.linger_ms.load(Ordering::Relaxed);
    let abort = !unread.is_empty() || linger_ms == 0;
    drop(unread);
    let mut snd = conn.snd.lock();
    snd.shut = true;
    snd.waker = None;
    drop(snd);
    let why = if abort { reason::ABORT } else { reason::CLOSE };
    Context::run(core, |cx| engine::notify(cx, conn, why));
    if !abort && linger_ms != LINGER_OFF && !conn.options.nonblocking.load(Ordering::Relaxed) {
        linger(core, conn, Duration::from_millis(u64::from(linger_ms)));
    }
}

/// SO_LINGER: waits until everything has been acknowledged, or the time is over.
fn linger(core: &Core, conn: &Arc<Conn>, time: Duration) {
    let mut timeout = Timeout { timeout: Some(time), until: None };
    loop {
        let snd = conn.snd.lock();
        if snd.chain.is_empty() || conn.is_dead() {
            return;
        }
        let ticket = (conn.snd_wait.prepare(), snd.cpu);
        drop(snd);
        if wait(core, &conn.snd_wait, Some(ticket), &mut timeout).is_err() {
            return;
        }
    }
}
