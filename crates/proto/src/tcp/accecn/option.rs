//! The option of accurate ECN (RFC 9768 section 3.2.3).
//!
//! Received bytes are read as far as they are complete counters, and are never refused. Tests: `tests.rs`.

use super::FIRST;

/// The option (RFC 9768 section 3.2.3): up to three counters of bytes of text modulo 2^24, one for each ECN field with
/// which they arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AccEcnOption {
    is_order_1: bool,
    pub(super) count: u8,
    fields: [[u8; 3]; 3],
}

impl AccEcnOption {
    /// ECT(0) comes first.
    pub const KIND_0: u8 = 172;
    /// ECT(1) comes first.
    pub const KIND_1: u8 = 174;
    /// Bytes of the longest, padding included.
    pub const LEN_MAX: usize = 12;

    /// Reads the option's bytes after its length. Bytes after the third counter, and incomplete counters, are ignored.
    pub(in crate::tcp) fn parse(kind: u8, data: &[u8]) -> Self {
        let (fields, _) = data.as_chunks::<3>();
        let mut option = Self { is_order_1: kind == Self::KIND_1, count: 0, fields: [[0; 3]; 3] };
        for (to, from) in option.fields.iter_mut().zip(fields) {
            *to = *from;
            option.count += 1;
        }
        option
    }

    /// An option with the first `count` of these counters, which already include their initial values.
    pub(super) fn new(counters: [u32; 3], count: u8) -> Self {
        let low = |value: u32| value.to_be_bytes().last_chunk::<3>().copied().unwrap_or_default();
        Self { is_order_1: true, count, fields: counters.map(low) }
    }

    /// The option of a SYN-ACK: nothing was counted yet.
    pub(in crate::tcp) fn first() -> Self {
        Self::new(FIRST, 3)
    }

    /// The same with at most this many bytes, including padding; `None` if not even one counter fits.
    pub(in crate::tcp) fn within(self, room: usize) -> Option<Self> {
        let fits = (1..=self.count).rev().find(|count| padded_len(*count) <= room)?;
        Some(Self { count: fits, ..self })
    }

    /// Bytes in a header, padding included.
    pub(in crate::tcp) fn padded_len(&self) -> usize {
        padded_len(self.count)
    }

    /// Its kind.
    pub(in crate::tcp) fn kind(&self) -> u8 {
        if self.is_order_1 { Self::KIND_1 } else { Self::KIND_0 }
    }

    /// The counters that are there, as bytes.
    pub(in crate::tcp) fn fields(&self) -> &[[u8; 3]] {
        self.fields.get(..usize::from(self.count)).unwrap_or_default()
    }

    /// The value of a counter by its [index](super::IpEcn::index), if it is there.
    pub(super) fn value(&self, index: usize) -> Option<u32> {
        let at = if self.is_order_1 { index } else { 2 - index };
        self.fields().get(at).map(|[a, b, c]| u32::from_be_bytes([0, *a, *b, *c]))
    }

    /// Whether a counter is 0 that cannot be 0 at first: a middlebox has cleared it.
    pub(super) fn is_cleared(&self) -> bool {
        let is_zero = |at: usize| self.fields().get(at) == Some(&[0; 3]);
        is_zero(0) || is_zero(2)
    }
}

fn padded_len(count: u8) -> usize {
    (2 + 3 * usize::from(count)).next_multiple_of(4)
}
