//! One buffer for many datagrams of one flow: how it is cut on the way out (UDP_SEGMENT, GSO) and when datagrams are
//! joined on the way in (UDP_GRO).
//!
//! A joined buffer is cut every `size` bytes; only its last datagram may be shorter, and none is empty. These are
//! lengths alone: bytes are others' business. Tests: `tests.rs`.

use core::num::NonZeroU16;
use core::ops::Range;

/// Most datagrams that one buffer stands for (Linux: UDP_MAX_SEGMENTS).
pub const SEGMENTS_MAX: usize = 128;

/// The ranges of a buffer that are datagrams of their own.
#[derive(Clone, Debug)]
pub struct Segments {
    next: usize,
    len: usize,
    size: usize,
}

impl Segments {
    /// Cuts `len` bytes every `size`. An empty buffer is one empty datagram. `None` if that makes more than
    /// [`SEGMENTS_MAX`].
    pub fn new(len: usize, size: NonZeroU16) -> Option<Self> {
        let size = usize::from(size.get());
        // An empty datagram is a datagram: the iterator yields it once.
        (len.div_ceil(size) <= SEGMENTS_MAX).then_some(Self { next: 0, len, size })
    }

    /// How many are still to come.
    pub fn count_left(&self) -> usize {
        if self.len == 0 && self.next == 0 {
            1
        } else {
            self.len.saturating_sub(self.next).div_ceil(self.size)
        }
    }
}

impl Iterator for Segments {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        if self.count_left() == 0 {
            return None;
        }
        let range = self.next..(self.next + self.size).min(self.len);
        // One byte on at least, so that the empty datagram comes once.
        self.next = range.end.max(self.next + 1);
        Some(range)
    }
}

/// Decides whether the next datagram of a flow joins those before it.
#[derive(Clone, Copy, Debug)]
pub struct Joiner {
    size: usize,
    len: usize,
    count: usize,
    /// The last one was shorter: nothing follows it.
    is_closed: bool,
}

impl Joiner {
    /// Goes on with a buffer of `len` bytes, joined of datagrams of `size` bytes each; 0: it is one datagram. An empty
    /// one stays alone.
    pub fn new(len: usize, size: u16) -> Self {
        let size = if size == 0 { len } else { usize::from(size) };
        let count = len.div_ceil(size.max(1)).max(1);
        Self { size, len, count, is_closed: len == 0 || !len.is_multiple_of(size) }
    }

    /// Whether a datagram of `len` bytes may follow; if so it has been added.
    pub fn add(&mut self, len: usize, bytes_max: usize) -> bool {
        let fits = len > 0 && len <= self.size && self.len + len <= bytes_max && self.count < SEGMENTS_MAX;
        if self.is_closed || !fits {
            return false;
        }
        self.is_closed = len < self.size;
        self.len += len;
        self.count += 1;
        true
    }

    /// Bytes of each datagram but the last; 0 while there is only one.
    pub fn size(&self) -> u16 {
        if self.count > 1 { u16::try_from(self.size).unwrap_or(u16::MAX) } else { 0 }
    }
}
