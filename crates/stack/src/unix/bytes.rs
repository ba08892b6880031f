//! The bytes of a receive buffer: a few in place, the others in mbufs.
//!
//! A buffer that holds little, as in a conversation of small messages, needs no mbuf: the bytes stand in
//! [`SMALL`] bytes of the buffer itself. They come before those in the chain, so once the chain holds
//! something nothing is added in place until it is empty again.
//!
//! Does not depend on records or sockets. Invariants: `start <= end <= SMALL`; an empty `small` has both at
//! 0. Tests: below.

use std::io::IoSliceMut;

#[cfg(feature = "tokio")]
use smallvec::SmallVec;
use sockeye_mbuf::{Chain, Exhausted, Pool};

/// Bytes kept in place.
const SMALL: usize = 120;
/// Bytes up to which a copy out is made under the buffer's mutex: shorter than taking it twice.
pub(crate) const COPY_LOCKED_MAX: usize = 4096;

/// See the module's head.
#[repr(C)]
pub(crate) struct Bytes {
    start: u8,
    end: u8,
    small: [u8; SMALL],
    chain: Chain,
}

impl Bytes {
    pub const fn new() -> Self {
        Self { start: 0, end: 0, small: [0; SMALL], chain: Chain::new() }
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.small_len() + self.chain.len()
    }

    #[inline]
    fn small_len(&self) -> usize {
        usize::from(self.end - self.start)
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.start == self.end && self.chain.is_empty()
    }

    /// Appends a copy of `bytes`; returns how many were taken.
    ///
    /// # Errors
    /// If the pool had no memory for the first of them.
    #[inline]
    pub fn push(&mut self, pool: &Pool, bytes: &[u8]) -> Result<usize, Exhausted> {
        let at = usize::from(self.end);
        if bytes.len() <= SMALL - at && self.chain.is_empty() {
            self.small[at..at + bytes.len()].copy_from_slice(bytes);
            // At most `SMALL`.
            self.end += bytes.len() as u8;
            return Ok(bytes.len());
        }
        self.chain.extend_from_slice(pool, bytes)
    }

    /// Appends bytes that were copied before.
    pub fn push_chain(&mut self, chain: Chain) {
        self.chain.append(chain);
    }

    /// Removes the last `bytes` bytes again.
    pub fn undo(&mut self, bytes: usize) {
        let from_chain = bytes.min(self.chain.len());
        self.chain.truncate(self.chain.len() - from_chain);
        self.end -= (bytes - from_chain).min(self.small_len()) as u8;
        self.settle();
    }

    fn settle(&mut self) {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Takes `bytes` bytes (there are as many) out into `sink`. Data that is too long to copy under a mutex
    /// comes back as a chain, to be given to [`Sink::put_chain`] after unlocking.
    #[inline]
    pub fn take(&mut self, mut bytes: usize, sink: &mut impl Sink) -> Option<Chain> {
        let start = usize::from(self.start);
        let small = self.small_len().min(bytes);
        if small > 0 {
            sink.put(&self.small[start..start + small]);
            self.start += small as u8;
            self.settle();
            bytes -= small;
        }
        if bytes == 0 {
            return None;
        }
        if bytes > COPY_LOCKED_MAX {
            return Some(self.chain.split_front(bytes));
        }
        sink.copy_from(&self.chain, 0, bytes);
        self.chain.trim_front(bytes);
        None
    }

    /// Takes as many bytes as `into` is long (there are as many) out.
    #[inline]
    pub fn take_front(&mut self, into: &mut [u8]) {
        let start = usize::from(self.start);
        let small = self.small_len().min(into.len());
        let (first, rest) = into.split_at_mut(small);
        first.copy_from_slice(&self.small[start..start + small]);
        self.start += small as u8;
        self.settle();
        if !rest.is_empty() {
            self.chain.take_into(rest);
        }
    }

    /// Copies `bytes` bytes from `offset` on into `sink`, and keeps them.
    pub fn peek(&self, offset: usize, bytes: usize, sink: &mut impl Sink) {
        let small = &self.small[usize::from(self.start)..usize::from(self.end)];
        let from_small = small.get(offset..).unwrap_or_default();
        let from_small = &from_small[..from_small.len().min(bytes)];
        sink.put(from_small);
        let skipped = offset.saturating_sub(small.len());
        sink.copy_from(&self.chain, skipped, bytes - from_small.len());
    }

    /// Drops the first `bytes` bytes.
    pub fn skip(&mut self, bytes: usize) {
        let small = self.small_len().min(bytes);
        self.start += small as u8;
        self.settle();
        self.chain.trim_front(bytes - small);
    }

    /// Everything; the mbufs are to be dropped after unlocking.
    pub fn clear(&mut self) -> Chain {
        (self.start, self.end) = (0, 0);
        std::mem::take(&mut self.chain)
    }
}

/// Where received bytes go.
pub(crate) trait Sink {
    /// How many bytes there is room for.
    fn capacity(&self) -> usize;

    /// Copies `bytes`; the part that does not fit is left out.
    fn put(&mut self, bytes: &[u8]);

    /// Takes a whole chain, outside all locks.
    fn put_chain(&mut self, chain: Chain) {
        for piece in &chain {
            self.put(piece);
        }
    }

    /// Copies `bytes` bytes of the chain, after the first `skip`.
    fn copy_from(&mut self, chain: &Chain, skip: usize, bytes: usize) {
        chain.pieces(skip, bytes).for_each(|piece| self.put(piece));
    }
}

/// The caller's buffers, filled one after the other.
pub(crate) struct Scatter<'a, 'b> {
    bufs: &'a mut [IoSliceMut<'b>],
    index: usize,
    offset: usize,
}

impl<'a, 'b> Scatter<'a, 'b> {
    pub fn new(bufs: &'a mut [IoSliceMut<'b>]) -> Self {
        Self { bufs, index: 0, offset: 0 }
    }
}

impl Sink for Scatter<'_, '_> {
    fn capacity(&self) -> usize {
        self.bufs.iter().map(|b| b.len()).fold(0, usize::saturating_add)
    }

    #[inline]
    fn put(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty()
            && let Some(buf) = self.bufs.get_mut(self.index)
        {
            let room = &mut buf[self.offset..];
            let count = room.len().min(bytes.len());
            room[..count].copy_from_slice(&bytes[..count]);
            bytes = &bytes[count..];
            self.offset += count;
            if count == room.len() {
                self.index += 1;
                self.offset = 0;
            }
        }
    }
}

/// A function that is called with the bytes piece by piece, also under the mutex, of which there is room for `room`: a task's `ReadBuf` is appended
/// to, and need not be initialized before.
#[cfg(feature = "tokio")]
pub(crate) struct Pieces<F> {
    pub room: usize,
    pub put: F,
}

#[cfg(feature = "tokio")]
impl<F: FnMut(&[u8])> Sink for Pieces<F> {
    fn capacity(&self) -> usize {
        self.room
    }

    fn put(&mut self, bytes: &[u8]) {
        (self.put)(bytes);
    }
}

/// Bytes of one receive, for code that is called when it is over: those copied under the mutex, and the rest as it lay
/// in packet memory. Bounds: `room` bytes; the first part [`COPY_LOCKED_MAX`].
#[cfg(feature = "tokio")]
pub(crate) struct Taken {
    room: usize,
    copied: SmallVec<[u8; COPY_LOCKED_MAX]>,
    rest: Chain,
}

#[cfg(feature = "tokio")]
impl Taken {
    pub fn new(room: usize) -> Self {
        Self { room, copied: SmallVec::new(), rest: Chain::new() }
    }

    /// The bytes, piece by piece.
    pub fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        let copied = Some(&*self.copied).filter(|copied| !copied.is_empty());
        copied.into_iter().chain(&self.rest)
    }
}

#[cfg(feature = "tokio")]
impl Sink for &mut Taken {
    fn capacity(&self) -> usize {
        self.room
    }

    fn put(&mut self, bytes: &[u8]) {
        self.copied.extend_from_slice(bytes);
    }

    fn put_chain(&mut self, chain: Chain) {
        self.rest.append(chain);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sockeye_mbuf::PoolConfig;

    fn taken(bytes: &mut Bytes, count: usize, pieces: &mut [&mut [u8]]) {
        let mut bufs: Vec<_> = pieces.iter_mut().map(|p| IoSliceMut::new(p)).collect();
        let mut sink = Scatter::new(&mut bufs);
        if let Some(rest) = bytes.take(count, &mut sink) {
            sink.put_chain(rest);
        }
    }

    #[test]
    fn bytes_are_read_in_order_across_the_place_and_the_chain_and_across_buffers() {
        let pool = Pool::new(PoolConfig::default());
        let (mut bytes, mut model, mut next) = (Bytes::new(), Vec::new(), 0u8);
        for round in 0..400usize {
            let count = [1, 50, 119, 121, 5000, 20_000][round % 6];
            let data: Vec<u8> = (0..count).map(|i| (next as usize + i) as u8).collect();
            next = next.wrapping_add(count as u8).wrapping_add(7);
            assert_eq!(bytes.push(&pool, &data).unwrap(), count);
            model.extend_from_slice(&data);
            let out = [1, 51, 7000, 30_000][round % 4].min(model.len());
            let (mut first, mut second) = (vec![0; out / 3], vec![0; out - out / 3]);
            let skipped = out / 2;
            let mut seen = vec![0; out - skipped];
            bytes.peek(skipped, out - skipped, &mut Scatter::new(&mut [IoSliceMut::new(&mut seen)]));
            taken(&mut bytes, out, &mut [&mut first, &mut second]);
            let expected: Vec<u8> = model.drain(..out).collect();
            assert_eq!([first, second].concat(), expected);
            assert_eq!(seen, expected[skipped..]);
            assert_eq!((bytes.len(), bytes.is_empty()), (model.len(), model.is_empty()));
        }
    }

    #[test]
    fn the_last_append_can_be_undone_and_the_first_bytes_skipped() {
        let pool = Pool::new(PoolConfig::default());
        let mut bytes = Bytes::new();
        bytes.push(&pool, b"abc").unwrap();
        bytes.push(&pool, &[1; 300]).unwrap();
        bytes.undo(301);
        bytes.skip(1);
        let mut out = [0; 1];
        taken(&mut bytes, 1, &mut [&mut out]);
        assert_eq!((out, bytes.is_empty()), (*b"b", true));
    }
}
