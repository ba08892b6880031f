//! [`MbufChain`]: bytes in packet memory, as an application holds them, and sending and receiving them without a copy.
//!
//! A `write` copies into clusters of the pool and a `read` copies out of them. A program that has the same bytes for many connections,
//! passes on received data, or hands that to a system call, needs neither: it holds views of the clusters themselves. This is `sosend`
//! with a chain in place of a `uio`, and `soreceive` likewise, as kernels have it for their own use (BSD).
//!
//! Invariant: the content of an application's chain never changes; the clusters behind it may be shared with buffers,
//! segments under way and other chains. They count against the stack's memory as long as any of those lives.
//!
//! Does not depend on the protocol. Tests: `tests/suite/mbufs.rs`, `tests/tokio/shape.rs`.

use std::fmt;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;

use sockeye_mbuf::{CLUSTER_MAX, Chain};

use super::{SendFlags, TcpStream};
use crate::rt::env::Env;
use crate::rt::handle::Stack;
use crate::rt::memory;
use crate::tcp::conn::user;

/// A run of bytes in packet memory: references to parts of clusters, in order (BSD's mbuf chain).
///
/// Cloning and cutting copy references and never bytes. Nothing here blocks.
///
/// Any part of a cluster reserves all of it, up to 64 KiB, and counts against
/// [`Config::memory_max`](crate::Config::memory_max): a program that keeps small parts for long should copy them.
///
/// ```
/// use std::io::Read;
/// use sockeye::{MbufChain, Stack, TcpListener, TcpStream};
///
/// let listener = TcpListener::bind("127.0.0.1:0")?;
/// let page = MbufChain::copied(&Stack::current(), b"the same for everybody")?;
/// for _ in 0..3 {
///     let mut client = TcpStream::connect(listener.local_addr()?)?;
///     let (server, _) = listener.accept()?;
///     server.send_mbufs(&mut page.clone())?;
///     drop(server);
///     let mut text = String::new();
///     client.read_to_string(&mut text)?;
///     assert_eq!(text, "the same for everybody");
/// }
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Default)]
pub struct MbufChain(Chain);

impl MbufChain {
    /// No bytes.
    pub const fn new() -> Self {
        Self(Chain::new())
    }

    /// A copy of `bytes` in `stack`'s packet memory.
    ///
    /// # Errors
    /// `OutOfMemory` at [`Config::memory_max`](crate::Config::memory_max).
    pub fn copied(stack: &Stack, bytes: &[u8]) -> io::Result<Self> {
        let env: &Env = stack.core()?;
        let copy = || {
            let mut chain = Chain::new();
            // Fewer are taken at the cap.
            let taken = chain.extend_from_slice(&env.pool, bytes).unwrap_or(0);
            if taken == bytes.len() { Ok(chain) } else { Err(()) }
        };
        memory::obtain(env, copy).map(Self).map_err(|()| {
            let (wanted, cap) = (bytes.len(), env.config.memory_max);
            io::Error::new(
                io::ErrorKind::OutOfMemory,
                format!(
                    "no room for {wanted} bytes in packet memory, whose cap is {cap} bytes: raise \
                     Config::memory_max, or drop chains that are held"
                ),
            )
        })
    }

    /// Bytes that `fill` writes directly into `stack`'s packet memory, such as a reading system call does; at most
    /// `max` and 64 KiB. `fill` gets room for them and returns those that it has written, from the first on, as
    /// `rustix::io::read` does. Does not block, unless `fill` does.
    ///
    /// The room, up to 64 KiB, counts as used memory as long as any of the bytes exists: copy small amounts instead.
    ///
    /// # Errors
    /// `OutOfMemory` at [`Config::memory_max`](crate::Config::memory_max); those of `fill`.
    ///
    /// # Panics
    /// If `fill` returns other bytes than the first of the room.
    pub fn filled(
        stack: &Stack,
        max: usize,
        fill: impl for<'r> FnOnce(&'r mut [MaybeUninit<u8>]) -> io::Result<&'r mut [u8]>,
    ) -> io::Result<Self> {
        let env: &Env = stack.core()?;
        let mut mbuf = memory::obtain(env, || env.pool.alloc(max.clamp(1, CLUSTER_MAX)))
            .map_err(|_exhausted| io::Error::from(io::ErrorKind::OutOfMemory))?;
        let len = mbuf.fill(max, fill)?;
        Ok(if len == 0 { Self::new() } else { Self(mbuf.into()) })
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The bytes in order, piece by piece. No piece is empty.
    pub fn pieces(&self) -> impl DoubleEndedIterator<Item = &[u8]> {
        self.0.iter()
    }

    /// Fills `into` with the pieces, for `writev` and its like. Returns how many were filled: all of `into` if there may be
    /// more.
    pub fn fill_io_slices<'a>(&'a self, into: &mut [IoSlice<'a>]) -> usize {
        self.0.fill_io_slices(into)
    }

    /// Copies bytes from the front into `into`; the chain keeps them. Returns how many: fewer than requested if the
    /// chain ends.
    pub fn copy_to(&self, into: &mut [u8]) -> usize {
        self.0.copy_to(0, into)
    }

    /// Removes and returns the first `n` bytes, or all if there are fewer.
    #[must_use = "the bytes are in what is returned; `advance` drops them"]
    pub fn split_to(&mut self, n: usize) -> Self {
        Self(self.0.split_front(n))
    }

    /// Drops the first `n` bytes, or all if there are fewer.
    pub fn advance(&mut self, n: usize) {
        self.0.trim_front(n);
    }

    /// Keeps the first `n` bytes, or all if there are no more.
    pub fn truncate(&mut self, n: usize) {
        self.0.truncate(n);
    }

    /// Appends all of `other`.
    pub fn append(&mut self, other: Self) {
        self.0.append(other.0);
    }
}

impl fmt::Debug for MbufChain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Payload is the users' business, not a log's.
        f.debug_struct("MbufChain").field("len", &self.len()).finish_non_exhaustive()
    }
}

impl TcpStream {
    /// Sends bytes in packet memory without copying them. Removes the bytes taken from the front of `chain`: all, if
    /// the socket blocks and no error occurs; as many as fit, if it is non-blocking. Blocks, and counts against the
    /// send buffer, like a write. Returns the bytes taken.
    ///
    /// The chain may have been received from a connection of this or another stack; it counts against the memory of the one that it
    /// came from.
    ///
    /// # Errors
    /// As for a write, if nothing was taken; otherwise the error stays pending for the next call.
    pub fn send_mbufs(&self, chain: &mut MbufChain) -> io::Result<usize> {
        self.send_mbufs_with(chain, SendFlags::NONE)
    }

    /// [`send_mbufs`](Self::send_mbufs) with flags of send(2). With [`SendFlags::ZEROCOPY`], and SO_ZEROCOPY on
    /// ([`set_zerocopy`](Self::set_zerocopy)), a [`Report`](crate::Report) shows when the stack no longer needs the
    /// bytes.
    ///
    /// # Errors
    /// As for [`send_with`](Self::send_with).
    pub fn send_mbufs_with(&self, chain: &mut MbufChain, flags: SendFlags) -> io::Result<usize> {
        let (core, ends) = self.sending()?;
        user::send_chain(core, &ends, &mut chain.0, flags)
    }

    /// Receives at most `max` bytes in packet memory without copying them; an empty chain means the end of the stream
    /// (or `max` was 0). Blocks like a read, and opens the window like one: the bytes then belong to the caller, and
    /// use memory until the caller drops them.
    ///
    /// # Errors
    /// As for a read.
    pub fn recv_mbufs(&self, max: usize) -> io::Result<MbufChain> {
        let (core, ends) = self.receiving()?;
        user::recv_chain(core, &ends, max).map(MbufChain)
    }
}
