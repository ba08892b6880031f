//! Bytes of one connection, both ways.
//!
//! Outward, the host's kernel copies straight from packet memory. Inward, it copies into a buffer of the thread, and the stack copies that
//! into packet memory. A side that does not read stops the one that writes: nothing is read before what was read has been taken.
//!
//! The end of one direction is passed on and leaves the other alone. An error ends both by a reset on each side, as it would have been
//! without a gateway.

use std::cell::RefCell;
use std::io::{self, ErrorKind, IoSlice};
use std::net::Shutdown;

use socket2::SockRef;
use sockeye::tokio::TcpStream;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream as Onward;

use super::CHUNK;
use crate::flows::Flow;

/// Pieces of packet memory that one call writes.
const PIECES: usize = 64;

thread_local! {
    /// Where bytes to the inside stand between two calls. In use within one poll of a task only.
    static BUFFER: RefCell<Box<[u8]>> = RefCell::new(vec![0; CHUNK].into());
}

/// Relays until both directions have ended, or one has failed.
pub async fn run(mut inner: TcpStream, outer: Onward, mut flow: Flow) {
    let ended = {
        let (mut from_inside, mut to_inside) = inner.split();
        let both = (outward(&mut from_inside, &outer, &flow), inward(&outer, &mut to_inside, &flow));
        tokio::try_join!(both.0, both.1)
    };
    if ended.is_err() {
        flow.ends_by("reset");
        let _ = (inner.set_zero_linger(), SockRef::from(&outer).set_linger(Some(std::time::Duration::ZERO)));
    }
}

async fn outward(
    inner: &mut sockeye::tokio::tcp::ReadHalf<'_>,
    outer: &Onward,
    flow: &Flow,
) -> io::Result<()> {
    loop {
        let mut chain = inner.as_ref().recv_mbufs(CHUNK).await?;
        if chain.is_empty() {
            return ended(SockRef::from(outer).shutdown(Shutdown::Write));
        }
        flow.note_sent(chain.len());
        while !chain.is_empty() {
            let mut pieces = [IoSlice::new(&[]); PIECES];
            let count = chain.fill_io_slices(&mut pieces);
            match outer.try_write_vectored(&pieces[..count]) {
                Ok(written) => chain.advance(written),
                Err(error) if error.kind() == ErrorKind::WouldBlock => outer.writable().await?,
                Err(error) => return Err(error),
            }
        }
    }
}

async fn inward(
    outer: &Onward,
    inner: &mut sockeye::tokio::tcp::WriteHalf<'_>,
    flow: &Flow,
) -> io::Result<()> {
    /// What one read has brought.
    enum Read {
        End,
        Nothing,
        /// The bytes that the stack has not taken.
        Left(Vec<u8>),
    }
    loop {
        outer.readable().await?;
        let read = BUFFER.with_borrow_mut(|buffer| -> io::Result<Read> {
            let len = match outer.try_read(buffer) {
                Ok(0) => return Ok(Read::End),
                Ok(len) => len,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Read::Nothing),
                Err(error) => return Err(error),
            };
            flow.note_received(len);
            let taken = match inner.try_write(&buffer[..len]) {
                Ok(taken) => taken,
                Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
                Err(error) => return Err(error),
            };
            Ok(Read::Left(buffer[taken..len].to_vec()))
        })?;
        match read {
            Read::End => return ended(inner.shutdown().await),
            Read::Nothing => {}
            Read::Left(bytes) if bytes.is_empty() => {}
            Read::Left(bytes) => inner.write_all(&bytes).await?,
        }
    }
}

/// Passing an end on fails if the other side is gone already, which is no error of this direction.
fn ended(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(error) if error.kind() != ErrorKind::NotConnected => Err(error),
        _ => Ok(()),
    }
}
