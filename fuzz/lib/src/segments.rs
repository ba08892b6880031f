//! Segments and payload that a fuzzer's bytes decide: near the expected values of a connection, most of the time.
//!
//! The peer's stream is a function of the sequence number, so a payload is a piece of sequence space ([`Text`]), and a
//! byte at the wrong place is one that does not continue its neighbor. Tests: with the targets.

use arbitrary::{Result, Unstructured};
use sockeye_proto::seq::SeqNum;
use sockeye_proto::tcp::sack::{SackBlock, SackBlocks};
use sockeye_proto::tcp::segment::{Flags, Header, Options, Payload, SACK_BLOCKS_MAX, Timestamps};

/// A piece of the peer's stream.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Text {
    /// The sequence number of its first byte.
    pub start: SeqNum,
    pub len: u32,
}

impl Payload for Text {
    fn len(&self) -> usize {
        self.len as usize
    }

    fn trim_front(&mut self, bytes: usize) {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX).min(self.len);
        self.start += bytes;
        self.len -= bytes;
    }

    fn truncate(&mut self, bytes: usize) {
        self.len = self.len.min(u32::try_from(bytes).unwrap_or(u32::MAX));
    }

    fn append(&mut self, tail: Self) {
        if self.len == 0 {
            *self = tail;
        } else if tail.len > 0 {
            assert_eq!(self.start + self.len, tail.start, "bytes that do not follow each other are joined");
            self.len += tail.len;
        }
    }
}

/// A distance: mostly a few bytes, sometimes segments, a window, or anything.
pub fn near(u: &mut Unstructured<'_>) -> Result<i32> {
    Ok(match u.int_in_range(0..=9u8)? {
        0..=2 => 0,
        3..=4 => u.int_in_range(-4..=4)?,
        5..=6 => i32::from(u.int_in_range(-3i8..=3)?) * 1448,
        7..=8 => u.int_in_range(-70_000..=70_000)?,
        _ => u.arbitrary()?,
    })
}

/// A number at some distance.
pub fn place(from: SeqNum, by: i32) -> SeqNum {
    SeqNum::new(from.raw().wrapping_add_signed(by))
}

/// The state of a connection that a peer may know.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// The sequence number that it would send next.
    pub seq: SeqNum,
    /// The number that it would acknowledge.
    pub ack: SeqNum,
    /// The first byte that it has not acknowledged.
    pub una: SeqNum,
    /// Its clock.
    pub clock: u32,
    /// Whether it uses timestamps.
    pub timestamps: bool,
}

/// A segment, polite or not, and the length of its payload.
pub fn segment(u: &mut Unstructured<'_>, known: &Known) -> Result<(Header, u16)> {
    let is_polite = u.ratio(2, 3)?;
    let flags = if is_polite { Flags::ACK } else { Flags::from_bits(u.arbitrary()?) };
    let seq = if is_polite { known.seq } else { place(known.seq, near(u)?) };
    let ack = if u.ratio(2, 3)? { known.ack } else { place(known.ack, near(u)?) };
    let window = match u.int_in_range(0..=4u8)? {
        0 => 0,
        1 => u.int_in_range(1..=3000)?,
        _ => u.arbitrary()?,
    };
    let ts = Timestamps { val: known.clock, ecr: u.arbitrary()? };
    let strange = Timestamps { val: known.clock.wrapping_add_signed(near(u)?), ..ts };
    let timestamps = match u.int_in_range(0..=7u8)? {
        0 => Some(strange).filter(|_| !known.timestamps),
        1 => Some(strange),
        _ => Some(ts).filter(|_| known.timestamps),
    };
    let mut sack = SackBlocks::NONE;
    for _ in 0..u.int_in_range(0..=SACK_BLOCKS_MAX * 2)?.saturating_sub(SACK_BLOCKS_MAX) {
        let start = place(known.una, near(u)?);
        sack.push(SackBlock { start, end: place(start, near(u)?) });
    }
    let mss = if flags.has(Flags::SYN) { Some(u.arbitrary()?) } else { None };
    let options = Options { timestamps, sack, mss, ..Options::default() };
    let len = match u.int_in_range(0..=3u8)? {
        0 => 0,
        1 => u.int_in_range(1..=3)?,
        2 => 1448,
        _ => u.int_in_range(1..=3000)?,
    };
    let urgent = if is_polite { 0 } else { u.arbitrary()? };
    // What a device says of a joined segment need not fit its text.
    let gso_size = if is_polite { 0 } else { u.arbitrary()? };
    Ok((Header { seq, ack, flags, window, urgent, gso_size, options }, len))
}
