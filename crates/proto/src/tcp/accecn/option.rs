//! The option of accurate ECN (RFC 9768 section 3.2.3).
//!
//! Bytes that came are read as far as they are whole counters, and never refused. Tests: `tests.rs`.

use super::FIRST;

/// The option (RFC 9768 section 3.2.3): up to three counters of bytes of text modulo 2^24, by the ECN field that they came with.
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

    /// The option's bytes behind its length. What is behind the third counter, or is less than one, is not looked at.
    pub(in crate::tcp) fn parse(kind: u8, data: &[u8]) -> Self {
        let (fields, _) = data.as_chunks::<3>();
        let mut option = Self { is_order_1: kind == Self::KIND_1, count: 0, fields: [[0; 3]; 3] };
        for (to, from) in option.fields.iter_mut().zip(fields) {
            *to = *from;
            option.count += 1;
        }
        option
    }

    /// One of the first `count` of these counters, that have their first values already.
    pub(super) fn new(counters: [u32; 3], count: u8) -> Self {
        let low = |value: u32| value.to_be_bytes().last_chunk::<3>().copied().unwrap_or_default();
        Self { is_order_1: true, count, fields: counters.map(low) }
    }

    /// That of a SYN-ACK: nothing was counted.
    pub(in crate::tcp) fn first() -> Self {
        Self::new(FIRST, 3)
    }

    /// The same with at most so many bytes, padding included; `None` if not even a counter fits.
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

    /// Whether a counter that cannot be 0 at first is: a middlebox has cleared it.
    pub(super) fn is_cleared(&self) -> bool {
        let is_zero = |at: usize| self.fields().get(at) == Some(&[0; 3]);
        is_zero(0) || is_zero(2)
    }
}

fn padded_len(count: u8) -> usize {
    (2 + 3 * usize::from(count)).next_multiple_of(4)
}
