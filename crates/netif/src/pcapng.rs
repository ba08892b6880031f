//! The pcap-ng file format, as far as packets are written: a section, its interfaces, a block for each packet.
//!
//! By draft-ietf-opsawg-pcapng; times are in nanoseconds. Blocks are appended to a byte string, which cannot fail; the
//! caller writes it where it likes. It does not depend on files, clocks or interfaces. Tests: below, `sockeye-sim`'s,
//! which read the files with another project's reader.

/// Link type of packets, by tcpdump.org's registry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkType {
    /// An Ethernet header.
    Ethernet,
    /// An IP header.
    Raw,
}

impl LinkType {
    fn number(self) -> u16 {
        match self {
            Self::Ethernet => 1,
            Self::Raw => 101,
        }
    }
}

/// Which way a packet went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// It arrived.
    Inbound,
    /// It was sent.
    Outbound,
}

/// Data of a packet's block beside its bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Packet<'a> {
    /// Number of its interface, in the order of [`interface`]'s calls.
    pub interface: u32,
    /// Nanoseconds, since the epoch if the reader is to show dates.
    pub at: u64,
    /// Bytes that it had, of which fewer may have been kept.
    pub len: usize,
    /// Which way it went, if that is to be said.
    pub direction: Option<Direction>,
    /// A remark.
    pub note: Option<&'a str>,
}

/// Begins a section, which is the first block of a file.
pub fn section(into: &mut Vec<u8>) {
    block(into, SECTION_HEADER, |body| {
        // Byte-order magic, version 1.0, length unknown.
        body.extend(0x1a2b_3c4d_u32.to_le_bytes());
        body.extend([1, 0, 0, 0]);
        body.extend(u64::MAX.to_le_bytes());
    });
}

/// Adds an interface to the section. `snaplen`: bytes of a packet that are kept at most, 0 for all.
pub fn interface(into: &mut Vec<u8>, name: &str, link: LinkType, snaplen: u32) {
    block(into, INTERFACE, |body| {
        body.extend(link.number().to_le_bytes());
        body.extend([0; 2]);
        body.extend(snaplen.to_le_bytes());
        option(body, OPTION_IF_NAME, name.as_bytes());
        option(body, OPTION_IF_TSRESOL, &[TSRESOL_NANOS]);
        option(body, OPTION_END, &[]);
    });
}

/// Adds a packet whose kept bytes are `pieces`, one behind the other.
pub fn packet<'b>(into: &mut Vec<u8>, packet: &Packet<'_>, pieces: impl Iterator<Item = &'b [u8]>) {
    block(into, ENHANCED_PACKET, |body| {
        body.extend(packet.interface.to_le_bytes());
        body.extend(((packet.at >> 32) as u32).to_le_bytes());
        body.extend((packet.at as u32).to_le_bytes());
        let captured_at = body.len();
        body.extend([0; 4]);
        body.extend(length(packet.len));
        let start = body.len();
        pieces.for_each(|piece| body.extend_from_slice(piece));
        let captured = length(body.len() - start);
        body[captured_at..captured_at + 4].copy_from_slice(&captured);
        pad(body, start);
        if packet.note.is_none() && packet.direction.is_none() {
            return;
        }
        if let Some(note) = packet.note {
            option(body, OPTION_COMMENT, note.as_bytes());
        }
        if let Some(direction) = packet.direction {
            option(body, OPTION_EPB_FLAGS, &flags(direction).to_le_bytes());
        }
        option(body, OPTION_END, &[]);
    });
}

fn flags(direction: Direction) -> u32 {
    match direction {
        Direction::Inbound => 1,
        Direction::Outbound => 2,
    }
}

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const ENHANCED_PACKET: u32 = 6;
const OPTION_END: u16 = 0;
const OPTION_COMMENT: u16 = 1;
const OPTION_IF_NAME: u16 = 2;
const OPTION_EPB_FLAGS: u16 = 2;
const OPTION_IF_TSRESOL: u16 = 9;
/// Timestamps count in 10^-9 seconds.
const TSRESOL_NANOS: u8 = 9;

/// A block: its type, its length, the bytes that `write` appends, its length again.
fn block(into: &mut Vec<u8>, kind: u32, write: impl FnOnce(&mut Vec<u8>)) {
    let start = into.len();
    into.extend(kind.to_le_bytes());
    into.extend([0; 4]);
    write(into);
    let len = length(into.len() - start + 4);
    into[start + 4..start + 8].copy_from_slice(&len);
    into.extend(len);
}

fn option(into: &mut Vec<u8>, code: u16, value: &[u8]) {
    into.extend(code.to_le_bytes());
    into.extend(u16::try_from(value.len()).unwrap_or(u16::MAX).to_le_bytes());
    let start = into.len();
    into.extend(value);
    pad(into, start);
}

/// Pads the part that began at `start` to a multiple of four bytes.
fn pad(into: &mut Vec<u8>, start: usize) {
    let len = (into.len() - start).next_multiple_of(4);
    into.resize(start + len, 0);
}

fn length(len: usize) -> [u8; 4] {
    u32::try_from(len).unwrap_or(u32::MAX).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_has_the_bytes_that_the_format_requires() {
        let mut file = Vec::new();
        section(&mut file);
        interface(&mut file, "a → b", LinkType::Raw, 0);
        interface(&mut file, "eth", LinkType::Ethernet, 96);
        let one = Packet { interface: 1, at: 0x1_0000_0002, len: 9, direction: None, note: Some("loss") };
        packet(&mut file, &one, [&[0x45, 1, 2][..], &[3, 4]].into_iter());
        let plain = Packet { direction: Some(Direction::Outbound), note: None, ..one };
        packet(&mut file, &plain, std::iter::empty());
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
        assert_eq!(kinds, [SECTION_HEADER, INTERFACE, INTERFACE, ENHANCED_PACKET, ENHANCED_PACKET]);
        assert_eq!(blocks[2].1[..8], [1, 0, 0, 0, 96, 0, 0, 0]);
        let first = &blocks[3].1;
        assert_eq!(first[..20], [1, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 5, 0, 0, 0, 9, 0, 0, 0]);
        assert_eq!(first[20..28], [0x45, 1, 2, 3, 4, 0, 0, 0]);
        assert_eq!(first[28..], [1, 0, 4, 0, b'l', b'o', b's', b's', 0, 0, 0, 0]);
        assert_eq!(blocks[4].1[12..], [0, 0, 0, 0, 9, 0, 0, 0, 2, 0, 4, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
    }
}
