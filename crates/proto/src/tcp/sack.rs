//! SACK blocks: which bytes beyond SEG.ACK the sender of a segment holds (RFC 2018), or has received
//! twice (RFC 2883).
//!
//! Plain values, as in the option. They come from the peer, and must not be trusted before they are compared with the
//! sent data (`loss/ack.rs`). Tests: `wire/tests.rs`, `tests/sack.rs`.

use crate::seq::SeqNum;

use super::segment::SACK_BLOCKS_MAX;

/// A range of sequence numbers, from `start` up to but not including `end`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SackBlock {
    /// Left edge.
    pub start: SeqNum,
    /// Right edge.
    pub end: SeqNum,
}

/// The blocks of one segment, in the order of the option: the most recent one first.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct SackBlocks {
    count: u8,
    blocks: [SackBlock; SACK_BLOCKS_MAX],
}

impl SackBlocks {
    /// No block.
    pub const NONE: Self = {
        let zero = SeqNum::new(0);
        Self { count: 0, blocks: [SackBlock { start: zero, end: zero }; SACK_BLOCKS_MAX] }
    };

    /// Appends a block; does nothing when there are [`SACK_BLOCKS_MAX`].
    pub fn push(&mut self, block: SackBlock) {
        if let Some(slot) = self.blocks.get_mut(usize::from(self.count)) {
            *slot = block;
            self.count += 1;
        }
    }

    /// Blocks held.
    pub const fn len(&self) -> usize {
        self.count as usize
    }

    /// True if there are none.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The blocks, the most recent one first.
    pub fn as_slice(&self) -> &[SackBlock] {
        self.blocks.get(..self.len()).unwrap_or_default()
    }
}

impl core::fmt::Debug for SackBlocks {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_list().entries(self.as_slice()).finish()
    }
}

impl FromIterator<SackBlock> for SackBlocks {
    /// The first [`SACK_BLOCKS_MAX`] blocks.
    fn from_iter<I: IntoIterator<Item = SackBlock>>(blocks: I) -> Self {
        let mut all = Self::NONE;
        blocks.into_iter().take(SACK_BLOCKS_MAX).for_each(|block| all.push(block));
        all
    }
}
