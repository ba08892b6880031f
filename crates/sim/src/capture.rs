//! Packets of the links, kept for a pcap-ng file.
//!
//! A packet is kept as it came to the link, with the virtual time and, if it did not simply pass, a comment on its fate. By default the last
//! [`KEPT_BYTES`] are kept, so that a failure can be looked at; older ones go. The file (`sockeye::netif::pcapng`) has an interface for each
//! direction of a link, and times in nanoseconds since the start. Nothing of the machine or the day goes in, so equal runs give equal files. Tests:
//! below, `tests/hosts/determinism.rs`.

use std::collections::VecDeque;
use std::io::{self, Write};

use sockeye::netif::pcapng::{self, LinkType, Packet};

use crate::event::Nanos;

/// How much of the links' packets is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Capture {
    /// Nothing.
    Off,
    /// The latest packets, at most so many bytes of them.
    Last(usize),
    /// Everything.
    All,
}

impl Default for Capture {
    fn default() -> Self {
        Self::Last(KEPT_BYTES)
    }
}

/// Bytes of packets that are kept by default.
const KEPT_BYTES: usize = 32 << 20;
/// Bytes that a kept packet takes beside its own.
const RECORD_BYTES: usize = size_of::<Record>();

/// A packet that crossed a link.
struct Record {
    pipe: usize,
    at: Nanos,
    /// Bytes of it.
    len: usize,
    note: Option<&'static str>,
}

/// See the module's head.
#[derive(Default)]
pub(crate) struct Tape {
    records: VecDeque<Record>,
    /// The packets, one behind the other.
    bytes: VecDeque<u8>,
    kept: usize,
    limit: usize,
    /// Packets that had to go, and are missing at the beginning.
    pub forgotten: u64,
}

impl Tape {
    pub fn new(capture: Capture) -> Self {
        let limit = match capture {
            Capture::Off => 0,
            Capture::Last(bytes) => bytes,
            Capture::All => usize::MAX,
        };
        Self { limit, ..Self::default() }
    }

    /// Whether packets are kept at all.
    pub fn is_on(&self) -> bool {
        self.limit > 0
    }

    /// Keeps a packet, given in pieces.
    pub fn push<'a>(
        &mut self,
        pipe: usize,
        at: Nanos,
        pieces: impl Iterator<Item = &'a [u8]>,
        note: Option<&'static str>,
    ) {
        let before = self.bytes.len();
        pieces.for_each(|piece| self.bytes.extend(piece));
        let len = self.bytes.len() - before;
        self.kept += RECORD_BYTES + len;
        self.records.push_back(Record { pipe, at, len, note });
        while self.kept > self.limit {
            let Some(oldest) = self.records.pop_front() else { break };
            self.bytes.drain(..oldest.len);
            self.kept -= RECORD_BYTES + oldest.len;
            self.forgotten += 1;
        }
    }

    /// So many bytes from there on, in two pieces where they lie around the ring's end.
    fn pieces(&self, from: usize, len: usize) -> impl Iterator<Item = &[u8]> {
        let (first, second) = self.bytes.as_slices();
        let split = first.len();
        let part = |slice: &'_ [u8], from: usize, to: usize| from.min(slice.len())..to.min(slice.len());
        let first_part = part(first, from, from + len);
        let second_part = part(second, from.saturating_sub(split), (from + len).saturating_sub(split));
        [&first[first_part], &second[second_part]].into_iter().filter(|piece| !piece.is_empty())
    }

    /// Writes a pcap-ng file with an interface for each of `pipes`.
    pub fn write<'a>(&self, pipes: impl Iterator<Item = &'a str>, out: &mut dyn Write) -> io::Result<()> {
        let mut blocks = Vec::new();
        pcapng::section(&mut blocks);
        // No limit on the length of packets.
        pipes.for_each(|name| pcapng::interface(&mut blocks, name, LinkType::Raw, 0));
        let mut from = 0;
        for record in &self.records {
            let packet = Packet {
                interface: u32::try_from(record.pipe).unwrap_or(u32::MAX),
                at: record.at,
                len: record.len,
                direction: None,
                note: record.note,
            };
            pcapng::packet(&mut blocks, &packet, self.pieces(from, record.len));
            from += record.len;
            if blocks.len() > BATCH_BYTES {
                out.write_all(&blocks)?;
                blocks.clear();
            }
        }
        out.write_all(&blocks)?;
        out.flush()
    }
}

/// Bytes after which the finished part is written.
const BATCH_BYTES: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_latest_packets_are_kept() {
        let mut tape = Tape::new(Capture::Last(3 * (RECORD_BYTES + 10)));
        (0..50u8).for_each(|at| {
            let pieces = [&[at; 4][..], &[at; 6]];
            tape.push(0, at.into(), pieces.into_iter(), None);
            // Whole packets, also where the ring has come around.
            let kept: Vec<u8> = tape.pieces(0, usize::MAX >> 1).flatten().copied().collect();
            let expected: Vec<u8> = (at.saturating_sub(2)..=at).flat_map(|at| [at; 10]).collect();
            assert_eq!(kept, expected);
            let last: Vec<u8> = tape.pieces(kept.len() - 10, 10).flatten().copied().collect();
            assert_eq!(last, [at; 10]);
        });
        assert_eq!((tape.records.len(), tape.forgotten), (3, 47));
        assert_eq!(tape.records.front().map(|record| record.at), Some(47));
        assert!(!Tape::new(Capture::Off).is_on());
    }
}
