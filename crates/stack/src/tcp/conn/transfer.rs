//! Where the bytes of a send come from and where those of a receive go: an application's memory, by a copy, or packet memory
//! that changes hands.
//!
//! Few bytes are copied under the socket lock, since taking it twice would be longer; many without it.
//!
//! Does not depend on waiting, or on the protocol. Tests: `tests/suite/{transfer,mbufs}.rs`.

use std::io::{IoSlice, IoSliceMut};

use sockeye_mbuf::{Chain, Exhausted, Freed, Pool};

use super::sockbuf::Socket;

/// Bytes up to which a copy is made under the socket lock: shorter than taking it twice.
const COPY_LOCKED_MAX: usize = 4096;
/// Bytes of a page of memory, which is one part.
const PAGE_LEN: usize = 4096;

/// Bytes to be sent.
pub(super) trait Source {
    /// Whether they are copied.
    const COPIES: bool = true;
    /// Whether packets may end within it.
    const IN_PACKETS: bool = false;
    /// As many are taken under the socket lock, at most.
    const LOCKED_MAX: usize;
    /// A place in it.
    type Mark: Copy;

    /// Bytes that are not taken yet.
    fn len(&self) -> usize;

    /// Bytes of them that may be appended together to the buffer of `so`.
    #[inline(always)]
    fn most(&mut self, _so: &Socket) -> usize {
        self.len()
    }

    /// Whether a packet ends with the bytes taken, and others follow.
    #[inline(always)]
    fn ends_packet(&self) -> bool {
        false
    }

    /// Moves the next `bytes` bytes, of which there are as many, to the end of `into`: fewer at the memory cap.
    ///
    /// # Errors
    /// None could be moved.
    fn take(&mut self, pool: &Pool, bytes: usize, into: &mut Chain) -> Result<(), Exhausted>;

    /// Where it stands.
    fn mark(&self) -> Self::Mark;

    /// Goes back to `mark`. Only copied bytes are still here.
    fn reset(&mut self, mark: Self::Mark);
}

/// A source in parts, each of which a device gathers by itself.
pub(super) trait Parts {
    /// Bytes of the next `most` parts, or of all.
    fn parts_len(&self, most: usize) -> usize;
}

/// The buffers of a vectored send, without the bytes taken.
#[derive(Clone, Copy)]
pub(super) struct Slices<'a> {
    bufs: &'a [IoSlice<'a>],
    /// Bytes of the first of `bufs` that are taken already.
    offset: usize,
    len: usize,
}

impl<'a> Slices<'a> {
    pub fn new(bufs: &'a [IoSlice<'a>]) -> Self {
        let len = bufs.iter().map(|b| b.len()).fold(0usize, usize::saturating_add);
        Self { bufs, offset: 0, len }
    }
}

impl Source for Slices<'_> {
    const LOCKED_MAX: usize = COPY_LOCKED_MAX;
    type Mark = Self;

    #[inline]
    fn len(&self) -> usize {
        self.len
    }

    #[inline]
    fn take(&mut self, pool: &Pool, bytes: usize, into: &mut Chain) -> Result<(), Exhausted> {
        let mut total = 0;
        while total < bytes
            && let Some(first) = self.bufs.first()
        {
            let piece = &first[self.offset..];
            let piece = &piece[..piece.len().min(bytes - total)];
            let taken = match into.extend_from_slice(pool, piece) {
                Ok(taken) => taken,
                Err(_) if total > 0 => break,
                Err(error) => return Err(error),
            };
            total += taken;
            self.len -= taken;
            self.offset += taken;
            if taken < piece.len() {
                break;
            }
            if self.offset == first.len() {
                self.bufs = &self.bufs[1..];
                self.offset = 0;
            }
        }
        Ok(())
    }

    fn mark(&self) -> Self {
        *self
    }

    fn reset(&mut self, mark: Self) {
        *self = mark;
    }
}

impl Parts for Slices<'_> {
    fn parts_len(&self, mut most: usize) -> usize {
        let (mut len, mut offset) = (0, self.offset);
        for buf in self.bufs {
            let buf = &buf[std::mem::take(&mut offset)..];
            let into = buf.as_ptr().addr() % PAGE_LEN;
            let pages = if buf.is_empty() { 0 } else { (into + buf.len()).div_ceil(PAGE_LEN) };
            if pages > most {
                return len + if most > 0 { most * PAGE_LEN - into } else { 0 };
            }
            (len, most) = (len + buf.len(), most - pages);
        }
        len
    }
}

impl Parts for &mut Chain {
    fn parts_len(&self, most: usize) -> usize {
        self.iter().take(most).map(<[u8]>::len).sum()
    }
}

impl Source for &mut Chain {
    const COPIES: bool = false;
    /// Nothing is copied.
    const LOCKED_MAX: usize = usize::MAX;
    type Mark = ();

    fn len(&self) -> usize {
        Chain::len(self)
    }

    fn take(&mut self, _pool: &Pool, bytes: usize, into: &mut Chain) -> Result<(), Exhausted> {
        into.append(self.split_front(bytes));
        Ok(())
    }

    fn mark(&self) {}

    fn reset(&mut self, (): ()) {}
}

/// Room for received bytes.
pub(super) trait Sink {
    /// As many are taken under the socket lock, at most.
    const LOCKED_MAX: usize = COPY_LOCKED_MAX;

    /// Moves the first `bytes` bytes, of which there are as many, out of `chain`. Clusters that are used up go to `freed`: the caller may
    /// hold the lock.
    fn fill(&mut self, chain: &mut Chain, bytes: usize, freed: &mut Freed);

    /// Takes the first `bytes` bytes out of `chain`, under the socket lock, or lets them be taken later: returns those.
    #[inline]
    fn unlink(&mut self, chain: &mut Chain, bytes: usize, freed: &mut Freed) -> Chain {
        if bytes > Self::LOCKED_MAX {
            return chain.split_front(bytes);
        }
        self.fill(chain, bytes, freed);
        Chain::new()
    }

    /// Takes the chain that [`Sink::unlink`] returned, of `bytes` bytes in all, outside the socket lock.
    #[inline]
    fn take(&mut self, mut unlinked: Chain, bytes: usize, freed: &mut Freed) {
        if bytes > Self::LOCKED_MAX {
            self.fill(&mut unlinked, bytes, freed);
        }
    }
}

/// The buffers of a vectored receive.
pub(super) struct Scatter<'a, 'b> {
    bufs: &'a mut [IoSliceMut<'b>],
}

impl<'a, 'b> Scatter<'a, 'b> {
    pub fn new(bufs: &'a mut [IoSliceMut<'b>]) -> Self {
        Self { bufs }
    }
}

impl Sink for Scatter<'_, '_> {
    fn fill(&mut self, chain: &mut Chain, mut bytes: usize, freed: &mut Freed) {
        for buf in &mut *self.bufs {
            let part = bytes.min(buf.len());
            chain.take_into_releasing(&mut buf[..part], freed);
            bytes -= part;
        }
    }
}

/// A function that is called with the bytes piece by piece, also under the socket lock: a task's `ReadBuf` is appended to, and need not be initialized before.
#[cfg(feature = "tokio")]
pub(super) struct Pieces<F>(pub F);

#[cfg(feature = "tokio")]
impl<F: FnMut(&[u8])> Sink for Pieces<F> {
    fn fill(&mut self, chain: &mut Chain, bytes: usize, freed: &mut Freed) {
        chain.pieces(0, bytes).for_each(&mut self.0);
        chain.trim_front_releasing(bytes, freed);
    }
}

impl Sink for Chain {
    /// Nothing is copied.
    const LOCKED_MAX: usize = usize::MAX;

    fn fill(&mut self, chain: &mut Chain, bytes: usize, _freed: &mut Freed) {
        *self = chain.split_front(bytes);
    }
}
