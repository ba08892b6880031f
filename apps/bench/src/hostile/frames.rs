//! The peer's segments as bytes, and the fields that it reads of the stack's: IPv4 and TCP by hand.
//!
//! By hand, because a hostile peer sends headers that no header library would write. Checksums of TCP are left to the device, which
//! is this program. Does not depend on the use of the segments. Tests: below.

/// Fields of a segment from the peer.
#[derive(Clone, Copy, Debug)]
pub struct Segment<'a> {
    pub src_port: u16,
    pub seq: u32,
    pub ack: u32,
    pub flags: u8,
    pub window: u16,
    /// At most 40 bytes, in whole words.
    pub options: &'a [u8],
    /// Bytes of payload, all the same.
    pub len: usize,
}

pub const FIN: u8 = 1;
pub const SYN: u8 = 2;
pub const RST: u8 = 4;
pub const ACK: u8 = 16;

/// The stack's address and port, and the peer's address.
pub const OURS: [u8; 4] = [10, 0, 0, 1];
pub const THEIRS: [u8; 4] = [10, 0, 0, 2];
pub const PORT: u16 = 80;

const IP_LEN: usize = 20;
const TCP_LEN: usize = 20;

/// The packet.
pub fn packet(segment: &Segment<'_>) -> Vec<u8> {
    let head = IP_LEN + TCP_LEN + segment.options.len();
    let mut packet = vec![0x5a; head + segment.len];
    let total = u16::try_from(packet.len()).expect("packets are shorter than an MTU");
    packet[..12].copy_from_slice(&[0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 6, 0, 0]);
    packet[2..4].copy_from_slice(&total.to_be_bytes());
    packet[12..16].copy_from_slice(&THEIRS);
    packet[16..20].copy_from_slice(&OURS);
    let sum = ip_checksum(&packet[..IP_LEN]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    let tcp = &mut packet[IP_LEN..];
    tcp[..2].copy_from_slice(&segment.src_port.to_be_bytes());
    tcp[2..4].copy_from_slice(&PORT.to_be_bytes());
    tcp[4..8].copy_from_slice(&segment.seq.to_be_bytes());
    tcp[8..12].copy_from_slice(&segment.ack.to_be_bytes());
    // At most 15 words.
    tcp[12] = ((TCP_LEN + segment.options.len()) / 4 * 16) as u8;
    tcp[13] = segment.flags;
    tcp[14..16].copy_from_slice(&segment.window.to_be_bytes());
    tcp[16..20].fill(0);
    tcp[TCP_LEN..TCP_LEN + segment.options.len()].copy_from_slice(segment.options);
    packet
}

fn ip_checksum(header: &[u8]) -> u16 {
    let words = header.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    // Ten words carry once more at most.
    !(((folded & 0xffff) + (folded >> 16)) as u16)
}

/// The fields that the peer reads of a segment of the stack's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Heard {
    /// Behind its last byte.
    pub end: u32,
    pub ack: u32,
    pub flags: u8,
    pub port: u16,
}

/// Reads the headers of a packet of `len` bytes that the stack wrote.
pub fn read(head: &[u8], len: usize) -> Option<Heard> {
    let tcp = head.get(IP_LEN..)?;
    let word = |at: usize| Some(u32::from_be_bytes(*tcp.get(at..)?.first_chunk()?));
    let (offset, flags) = (usize::from(*tcp.get(12)? >> 4) * 4, *tcp.get(13)?);
    let payload = u32::try_from(len.checked_sub(IP_LEN + offset)?).ok()?;
    let controls = u32::from(flags & SYN != 0) + u32::from(flags & FIN != 0);
    let port = u16::from_be_bytes(*tcp.get(2..)?.first_chunk()?);
    Some(Heard { end: word(4)?.wrapping_add(payload + controls), ack: word(8)?, flags, port })
}

/// A SACK option with these blocks, in whole words.
pub fn sack(blocks: &[(u32, u32)]) -> Vec<u8> {
    // At most four blocks of eight bytes.
    let mut option = vec![1, 1, 5, (2 + 8 * blocks.len()) as u8];
    for (start, end) in blocks {
        option.extend_from_slice(&start.to_be_bytes());
        option.extend_from_slice(&end.to_be_bytes());
    }
    option
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_frames_are_read_back_unchanged() {
        let options = sack(&[(1, 2), (7, 9)]);
        let segment = Segment {
            src_port: PORT,
            seq: u32::MAX,
            ack: 5,
            flags: ACK | FIN,
            window: 9,
            options: &options,
            len: 100,
        };
        let packet = packet(&segment);
        assert_eq!(packet.len(), 20 + 20 + 20 + 100);
        let expected = Heard { end: 100, ack: 5, flags: ACK | FIN, port: PORT };
        assert_eq!(read(&packet, packet.len()), Some(expected));
        assert_eq!(ip_checksum(&packet[..20]), 0, "a header with its checksum sums up to nothing");
        assert_eq!(read(&packet[..30], packet.len()), None);
    }
}
