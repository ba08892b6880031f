//! Relays the bytes of one connection in both directions.
//!
//! Outward, the host's kernel copies directly from packet memory. Inward, it copies directly into packet memory while a bulk transfer lasts; otherwise into a buffer of the thread, from which the stack
//! copies. A receiver that stops reading stops the sender: the relay reads no more before everything it has read is written.
//!
//! Urgent data keeps its mark in both directions.
//!
//! The end of one direction is passed on and does not affect the other. If the end arrives together with data, both go into the same segment. An error resets both sides, as it would
//! without a gateway; data that arrived from outside before a reset is delivered before the reset, as far as the stack takes it at once. What it takes has no gap: bytes that were read and not
//! taken stand in [`Left`], which outlives both directions, and nothing overtakes them.
//!
//! The client's reset is found by a read. Where the relay does not read, because the server takes no more or the client has ended, it waits for the reset itself ([`reset`]). The server's reset
//! waits behind the bytes before it while the client does not read.
//!
//! A loop that ends drops its relays. Then neither side is to take that for the other one's end: a side that has not been told of the end of what it gets is reset ([`Relayed`]).
//!
//! Tests: `relay/tests.rs`; `tests/gateway.rs`, `tests/gateway/flows.rs`.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::io::{self, ErrorKind, IoSlice};
use std::net::Shutdown;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use socket2::SockRef;
use sockeye::tokio::TcpStream;
use sockeye::tokio::tcp::{ReadHalf, WriteHalf};
use sockeye::{MbufChain, SendFlags};
use tokio::io::{AsyncWriteExt, Interest};

use super::{CHUNK, looks, scratch};
use crate::flows::{Flow, Outward};
use crate::host::{HostStream, Readable};
use crate::rates::Way;
use crate::upstream::Connected;

/// Bytes that are read straight into packet memory at a time, at most: its largest piece.
const IN_PLACE: usize = 64 << 10;
/// Pieces of packet memory that one call writes.
const PIECES: usize = 64;

/// A connection that is relayed.
struct Relayed {
    inner: TcpStream,
    outer: HostStream,
    flow: Flow,
    /// Both directions have ended, or one has failed.
    is_over: bool,
}

impl Relayed {
    /// Has both sides' sockets reset when they are closed. It fails if they are reset already.
    fn reset(&self) {
        let _ = (self.inner.set_zero_linger(), SockRef::from(&self.outer).set_linger(Some(Duration::ZERO)));
    }
}

impl Drop for Relayed {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        if self.flow.record.outward() == Outward::Ended {
            // The far end has everything, or its kernel and ours will see to that. Closing the socket with bytes unread would reset the connection.
            scratch::with(|buffer| self.outer.discard(buffer));
            let _ = self.inner.set_zero_linger();
        } else {
            self.flow.ends_by("cut off");
            self.reset();
        }
    }
}

/// Relays until both directions have ended, or one has failed.
pub async fn run(inner: TcpStream, onward: Connected, flow: Flow) {
    let Connected { stream: outer, was_reset } = onward;
    let socket = SockRef::from(&outer);
    // What fails here makes a connection slower, lets a dead one stay, or takes an urgent byte out of the stream.
    let _ = (socket.set_tcp_nodelay(true), socket.set_keepalive(true), socket.set_out_of_band_inline(true));
    let mut left = Left::default();
    let mut relayed = Relayed { inner, outer, flow, is_over: false };
    let Relayed { inner, outer, flow, is_over } = &mut relayed;
    let ended = match was_reset {
        true => Err(ErrorKind::ConnectionReset.into()),
        false => both(inner, outer, &mut left, flow).await,
    };
    *is_over = true;
    if ended.is_err() {
        flow.ends_by("reset");
        if left.send_now(inner) {
            pass_rest(outer, inner, flow);
        }
        relayed.reset();
    }
}

/// Both directions, until both have ended, or one has failed.
async fn both(inner: &mut TcpStream, outer: &HostStream, left: &mut Left, flow: &Flow) -> io::Result<()> {
    let (from_inside, mut to_inside) = inner.split();
    let inward_is_over = Cell::new(false);
    let mut outward = pin!(outward(&from_inside, outer, flow, &inward_is_over));
    let mut inward = pin!(inward(outer, &mut to_inside, left, flow));
    tokio::select! {
        done = &mut outward => {
            done?;
            tokio::select! {
                done = inward => done,
                error = reset(from_inside.as_ref()) => Err(error),
            }
        }
        done = &mut inward => {
            done?;
            inward_is_over.set(true);
            outward.await
        }
    }
}

/// Waits for the client's reset, or another error of its connection. On the heap, since few flows wait for it at a time.
fn reset(inner: &TcpStream) -> Pin<Box<impl Future<Output = io::Error>>> {
    Box::pin(async {
        let error = inner.ready(Interest::ERROR).await.and_then(|_| inner.take_error());
        error.unwrap_or_else(Some).unwrap_or_else(|| ErrorKind::ConnectionReset.into())
    })
}

async fn outward(
    inner: &ReadHalf<'_>,
    outer: &HostStream,
    flow: &Flow,
    inward_is_over: &Cell<bool>,
) -> io::Result<()> {
    loop {
        let (mut chain, is_urgent) = poll_fn(|task| take(inner, task)).await?;
        if chain.is_empty() {
            flow.note_outward(Outward::Ended);
            if inward_is_over.get() {
                // The socket is closed at once, which says it too.
                return Ok(());
            }
            return ended(outer.get_ref().shutdown(Shutdown::Write));
        }
        let len = chain.len();
        flow.note_sent(len);
        flow.note_outward(Outward::Waits);
        while would_block(give(outer, &mut chain, is_urgent))? {
            tokio::select! {
                biased;
                writable = poll_fn(|task| outer.poll_writable(task)) => writable?,
                error = reset(inner.as_ref()) => return Err(error),
            }
        }
        flow.pay(Way::Out, len).await;
        flow.note_outward(Outward::Idle);
    }
}

/// Whether it is to be tried again later.
fn would_block(done: io::Result<()>) -> io::Result<bool> {
    match done {
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(true),
        done => done.map(|()| false),
    }
}

/// What has come from inside: the last byte of urgent data by itself, or what stands before it.
fn take(inner: &ReadHalf<'_>, task: &mut Context<'_>) -> Poll<io::Result<(MbufChain, bool)>> {
    loop {
        ready!(inner.as_ref().poll_read_ready(task))?;
        let stream = inner.as_ref().get_ref();
        // A read that does not begin at the mark ends there.
        let is_urgent = stream.at_mark()?;
        match stream.recv_mbufs(if is_urgent { 1 } else { CHUNK }) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            taken => return Poll::Ready(taken.map(|chain| (chain, is_urgent))),
        }
    }
}

/// Writes as much of it to the host's socket as that takes; `WouldBlock` if that is not all.
fn give(outer: &HostStream, chain: &mut MbufChain, is_urgent: bool) -> io::Result<()> {
    while !chain.is_empty() {
        let mut pieces = [IoSlice::new(&[]); PIECES];
        let count = chain.fill_io_slices(&mut pieces);
        let written = match is_urgent {
            false => outer.try_write(&pieces[..count]),
            true => outer.try_write_urgent(&pieces[0]),
        };
        chain.advance(written?);
    }
    Ok(())
}

/// What was read from outside and the stack has not taken: bytes or pieces, or nothing.
#[derive(Default)]
struct Left {
    bytes: Vec<u8>,
    /// How many of the bytes it has taken.
    taken: usize,
    is_urgent: bool,
    pieces: MbufChain,
}

impl Left {
    /// These bytes, behind nothing.
    fn put(&mut self, bytes: &[u8], is_urgent: bool) {
        (self.bytes, self.taken, self.is_urgent) = (bytes.to_vec(), 0, is_urgent);
    }

    /// Sends all of it.
    async fn send(&mut self, inner: &TcpStream) -> io::Result<()> {
        while self.taken < self.bytes.len() {
            let rest = &self.bytes[self.taken..];
            self.taken += match self.is_urgent {
                true => send_urgent(inner, rest).await?,
                false => inner.send_with(&[IoSlice::new(rest)], SendFlags::NONE).await?,
            };
        }
        // A flow that waits keeps no memory for them.
        (self.bytes, self.taken) = (Vec::new(), 0);
        while !self.pieces.is_empty() {
            inner.send_mbufs(&mut self.pieces).await?;
        }
        Ok(())
    }

    /// Sends what the stack takes at once. Whether that is all.
    fn send_now(&mut self, inner: &TcpStream) -> bool {
        let (inner, rest) = (inner.get_ref(), &self.bytes[self.taken..]);
        let are_taken = match self.is_urgent {
            _ if rest.is_empty() => true,
            true => inner.send_urgent(rest).is_ok(),
            false => {
                inner.send_with(&[IoSlice::new(rest)], SendFlags::NONE).is_ok_and(|taken| taken == rest.len())
            }
        };
        // An error leaves the pieces where they are.
        are_taken
            && (self.pieces.is_empty()
                || inner.send_mbufs(&mut self.pieces).is_ok() && self.pieces.is_empty())
    }
}

async fn inward(
    outer: &HostStream,
    inner: &mut WriteHalf<'_>,
    left: &mut Left,
    flow: &Flow,
) -> io::Result<()> {
    let mut are_many = false;
    loop {
        let mut readable = outer.readable().await?;
        looks::note();
        let is_urgent = readable.is_at_mark()?;
        if are_many && !is_urgent {
            are_many = inward_in_place(readable, inner, left, flow).await?;
            continue;
        }
        let passed = match is_urgent {
            true => take_urgent(&mut readable, left, flow),
            false => scratch::with(|buffer| pass_in(&mut readable, inner, left, (flow, buffer))),
        };
        let Passed { len, end } = match passed {
            Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
            passed => passed?,
        };
        left.send(inner.as_ref()).await?;
        if end? {
            return ended(inner.shutdown().await);
        }
        are_many = len >= IN_PLACE;
        flow.pay(Way::In, len).await;
    }
}

/// What one step has taken from outside.
struct Passed {
    len: usize,
    /// Whether the end is behind it, or an error.
    end: io::Result<bool>,
}

/// Reads the urgent byte.
fn take_urgent(outer: &mut Readable<'_>, left: &mut Left, flow: &Flow) -> io::Result<Passed> {
    let mut byte = [0];
    let len = outer.read(&mut byte)?;
    flow.note_received(len);
    left.put(&byte[..len], true);
    Ok(Passed { len, end: Ok(len == 0) })
}

async fn send_urgent(inner: &TcpStream, byte: &[u8]) -> io::Result<usize> {
    loop {
        match inner.get_ref().send_urgent(byte) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => inner.writable().await?,
            sent => return sent,
        }
    }
}

/// Reads, and sends that. Where the end is known to be there too, it is read at once, and goes on with the bytes.
fn pass_in(
    outer: &mut Readable<'_>,
    inner: &WriteHalf<'_>,
    left: &mut Left,
    (flow, buffer): (&Flow, &mut [u8]),
) -> io::Result<Passed> {
    let mut len = outer.read(buffer)?;
    let mut end = Ok(len == 0);
    if len > 0 && len < buffer.len() && outer.is_last() {
        // An error comes behind the bytes that came before it.
        end = match outer.read(&mut buffer[len..]) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
            again => again.map(|more| {
                len += more;
                more == 0
            }),
        };
    }
    let bytes = &buffer[..len];
    if bytes.is_empty() {
        return Ok(Passed { len, end });
    }
    flow.note_received(len);
    let flags = if matches!(end, Ok(true)) { SendFlags::MORE } else { SendFlags::NONE };
    // Without memory as without room: whoever sends the rest waits for it.
    let taken = match inner.as_ref().get_ref().send_with(&[IoSlice::new(bytes)], flags) {
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::OutOfMemory) => 0,
        taken => taken?,
    };
    if taken < len {
        left.put(&bytes[taken..], false);
    }
    Ok(Passed { len, end })
}

/// Has the kernel copy straight into packet memory, so many bytes as fill segments. Returns whether there were as many as it takes: few bytes would keep much memory.
async fn inward_in_place(
    outer: Readable<'_>,
    inner: &WriteHalf<'_>,
    left: &mut Left,
    flow: &Flow,
) -> io::Result<bool> {
    let (pieces, are_many) = fill(outer, inner);
    let len = pieces.len();
    flow.note_received(len);
    left.pieces = pieces;
    left.send(inner.as_ref()).await?;
    flow.pay(Way::In, len).await;
    are_many
}

/// What is there, in pieces that are full but for the last: they go in as one segment where the device takes such. It ends before an urgent byte. Behind it an error, or whether there may
/// be as much again.
fn fill(mut outer: Readable<'_>, inner: &WriteHalf<'_>) -> (MbufChain, io::Result<bool>) {
    let inner = inner.as_ref().get_ref();
    let mut chain = MbufChain::new();
    let segment = match inner.maxseg() {
        Ok(segment) => usize::from(segment).clamp(1, IN_PLACE),
        Err(error) => return (chain, Err(error)),
    };
    let most = IN_PLACE / segment * segment;
    while chain.len() + most <= CHUNK {
        match outer.is_at_mark() {
            Ok(false) => {}
            is_at_mark => return (chain, is_at_mark),
        }
        let piece = match MbufChain::filled(inner.stack(), most, |room| outer.read_uninit(room)) {
            Ok(piece) => piece,
            // Nothing there, or no memory, which is waited for elsewhere.
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::OutOfMemory) => {
                return (chain, Ok(false));
            }
            Err(error) => return (chain, Err(error)),
        };
        let is_full = piece.len() == most;
        chain.append(piece);
        if !is_full {
            return (chain, Ok(false));
        }
    }
    (chain, Ok(true))
}

/// Passes in what stands before a reset, as far as the stack takes it at once. One side is gone, so this comes to an end.
fn pass_rest(outer: &HostStream, inner: &TcpStream, flow: &Flow) {
    let is_passed = |buffer: &mut [u8]| match rustix::io::read(outer, &mut *buffer) {
        Ok(len) if len > 0 => {
            flow.note_received(len);
            let bytes = [IoSlice::new(&buffer[..len])];
            inner.get_ref().send_with(&bytes, SendFlags::NONE).is_ok_and(|taken| taken == len)
        }
        _ => false,
    };
    while scratch::with(is_passed) {}
}

/// Passing an end on fails if the other side is gone already, which is no error of this direction.
fn ended(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(error) if error.kind() != ErrorKind::NotConnected => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
