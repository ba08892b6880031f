//! What crossed the links, kept for a pcap-ng file.
//!
//! A packet is kept as it came to the link, with the virtual time and, if it did not simply pass, a comment on what
//! became of it. By default the last [`KEPT_BYTES`] are kept, so that a failure can be looked at; older ones go.
//! The file is that of draft-ietf-opsawg-pcapng: a section, an interface for each direction of a link, and an enhanced
//! packet block for each packet, in nanoseconds since the start. Nothing of the machine or the day goes in, so equal
//! runs give equal files. Tests: below, `tests/determinism.rs`.

use std::collections::VecDeque;
use std::io::{self, Write};

use crate::event::Nanos;

/// How much is kept of what crosses the links.
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
    bytes: Box<[u8]>,
    note: Option<&'static str>,
}

/// See the module's head.
#[derive(Default)]
pub(crate) struct Tape {
    records: VecDeque<Record>,
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

    pub fn push(&mut self, pipe: usize, at: Nanos, bytes: Box<[u8]>, note: Option<&'static str>) {
        self.kept += RECORD_BYTES + bytes.len();
        self.records.push_back(Record { pipe, at, bytes, note });
        while self.kept > self.limit {
            let Some(oldest) = self.records.pop_front() else { break };
            self.kept -= RECORD_BYTES + oldest.bytes.len();
            self.forgotten += 1;
        }
    }

    /// Writes a pcap-ng file with an interface for each of `pipes`.
    pub fn write<'a>(&self, pipes: impl Iterator<Item = &'a str>, out: &mut dyn Write) -> io::Result<()> {
        // Section header: byte-order magic, version 1.0, length unknown.
        let mut body = Vec::new();
        body.extend(0x1a2b_3c4d_u32.to_le_bytes());
        body.extend([1, 0, 0, 0]);
        body.extend(u64::MAX.to_le_bytes());
        block(out, SECTION_HEADER, &body)?;
        for name in pipes {
            body.clear();
            body.extend(LINKTYPE_RAW.to_le_bytes());
            // Reserved, and no limit on the length of packets.
            body.extend([0; 6]);
            option(&mut body, OPTION_IF_NAME, name.as_bytes());
            option(&mut body, OPTION_IF_TSRESOL, &[TSRESOL_NANOS]);
            option(&mut body, OPTION_END, &[]);
            block(out, INTERFACE, &body)?;
        }
        for record in &self.records {
            let len = u32::try_from(record.bytes.len()).unwrap_or(u32::MAX).to_le_bytes();
            body.clear();
            body.extend(u32::try_from(record.pipe).unwrap_or(u32::MAX).to_le_bytes());
            body.extend(((record.at >> 32) as u32).to_le_bytes());
            body.extend((record.at as u32).to_le_bytes());
            // Captured and original length: packets are kept whole.
            body.extend(len);
            body.extend(len);
            body.extend(&record.bytes);
            pad(&mut body);
            if let Some(note) = record.note {
                option(&mut body, OPTION_COMMENT, note.as_bytes());
                option(&mut body, OPTION_END, &[]);
            }
            block(out, ENHANCED_PACKET, &body)?;
        }
        out.flush()
    }
}

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const ENHANCED_PACKET: u32 = 6;
/// Packets begin with an IP header.
const LINKTYPE_RAW: u16 = 101;
const OPTION_END: u16 = 0;
const OPTION_COMMENT: u16 = 1;
const OPTION_IF_NAME: u16 = 2;
const OPTION_IF_TSRESOL: u16 = 9;
/// Timestamps count in 10^-9 seconds.
const TSRESOL_NANOS: u8 = 9;

/// Bytes of a block's type and its two lengths.
const BLOCK_FRAME: u32 = 12;

fn block(out: &mut dyn Write, kind: u32, body: &[u8]) -> io::Result<()> {
    let len = (u32::try_from(body.len()).unwrap_or(u32::MAX - BLOCK_FRAME) + BLOCK_FRAME).to_le_bytes();
    out.write_all(&kind.to_le_bytes())?;
    out.write_all(&len)?;
    out.write_all(body)?;
    out.write_all(&len)
}

fn option(body: &mut Vec<u8>, code: u16, value: &[u8]) {
    body.extend(code.to_le_bytes());
    body.extend(u16::try_from(value.len()).unwrap_or(u16::MAX).to_le_bytes());
    body.extend(value);
    pad(body);
}

/// Blocks and options end at a multiple of four bytes.
fn pad(body: &mut Vec<u8>) {
    body.resize(body.len().next_multiple_of(4), 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_latest_packets_are_kept() {
        let mut tape = Tape::new(Capture::Last(3 * (RECORD_BYTES + 10)));
        (0..5).for_each(|at| tape.push(0, at, vec![0; 10].into(), None));
        assert_eq!((tape.records.len(), tape.forgotten), (3, 2));
        assert_eq!(tape.records.front().map(|record| record.at), Some(2));
        assert!(!Tape::new(Capture::Off).is_on());
    }

    #[test]
    fn the_file_is_the_one_that_the_format_asks_for() {
        let mut tape = Tape::new(Capture::All);
        tape.push(1, 0x1_0000_0002, vec![0x45, 1, 2, 3, 4].into(), Some("loss"));
        let mut file = Vec::new();
        tape.write(["a → b", "b → a"].into_iter(), &mut file).unwrap();
        let mut blocks = Vec::new();
        let mut rest = &file[..];
        while !rest.is_empty() {
            let word = |at: usize| u32::from_le_bytes(rest[at..at + 4].try_into().unwrap());
            let len = word(4) as usize;
            assert_eq!((len % 4, word(len - 4) as usize), (0, len));
            blocks.push((word(0), rest[8..len - 4].to_vec()));
            rest = &rest[len..];
        }
        let kinds: Vec<u32> = blocks.iter().map(|(kind, _)| *kind).collect();
        assert_eq!(kinds, [SECTION_HEADER, INTERFACE, INTERFACE, ENHANCED_PACKET]);
        let packet = &blocks[3].1;
        assert_eq!(packet[..20], [1, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 5, 0, 0, 0, 5, 0, 0, 0]);
        assert_eq!(packet[20..28], [0x45, 1, 2, 3, 4, 0, 0, 0]);
        assert_eq!(packet[28..], [1, 0, 4, 0, b'l', b'o', b's', b's', 0, 0, 0, 0]);
    }
}
