//! Segments as IPv4 packets, and packets as segments.
//!
//! A codec of its own, so that a fault of the stack's codec shows. It knows one connection's names and first numbers, [`Names`]. Tests: below.

use std::net::Ipv4Addr;

use crate::segment::{Echo, Flags, Opt, Segment, pattern};

/// Where the numbers of a connection begin, and its addresses.
#[derive(Clone, Debug)]
pub struct Names {
    /// The peer's address and port.
    pub peer: (Ipv4Addr, u16),
    /// The tested side's. The port of one that connects is known from its first segment on.
    pub local: (Ipv4Addr, u16),
    /// The peer's first sequence number.
    pub peer_isn: u32,
    /// The tested side's, once it was seen.
    pub isn: Option<u32>,
    /// The tested side's first timestamp.
    pub ts_first: Option<u32>,
    /// Its latest.
    pub ts_last: u32,
}

/// The peer's first sequence number: a few thousand bytes later the numbers wrap.
const PEER_ISN: u32 = u32::MAX - 3000;
const TCP: u8 = 6;
const ICMP: u8 = 1;

/// A packet of the tested side.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Packet {
    /// A segment.
    Tcp(Segment),
    /// An ICMP message of this type and code.
    Icmp(u8, u8),
    /// What the codec cannot read, and why.
    Malformed(&'static str),
}

/// An error that a router, or the peer's host, reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Report {
    /// The ICMP code of "destination unreachable".
    pub code: u8,
    /// The MTU of the next hop, for "fragmentation needed".
    pub mtu: u16,
    /// The sequence number of the segment that it is about.
    pub seq: u32,
}

/// The device's MTU, bytes.
pub const MTU: usize = 1_500;
/// The most bytes of options in a segment.
pub const OPTIONS_MAX: usize = 40;
/// Bytes of the headers of a segment, options aside: IPv4's and TCP's.
const HEADERS: usize = 40;

/// Bytes of the options of a segment of the peer, and of the whole packet.
pub fn sizes(segment: &Segment) -> (usize, usize) {
    let nobody = (Ipv4Addr::UNSPECIFIED, 0);
    let options = Names::new(nobody, nobody).options(segment).len();
    (options, HEADERS + options + segment.len as usize)
}

impl Names {
    /// Of a connection of which nothing was sent.
    pub fn new(peer: (Ipv4Addr, u16), local: (Ipv4Addr, u16)) -> Self {
        Self { peer, local, peer_isn: PEER_ISN, isn: None, ts_first: None, ts_last: 0 }
    }

    /// The bytes of a segment of the peer.
    pub fn encode(&self, segment: &Segment) -> Vec<u8> {
        let options = self.options(segment);
        let mut tcp = Vec::with_capacity(20 + options.len() + segment.len as usize);
        tcp.extend(self.peer.1.to_be_bytes());
        tcp.extend(self.local.1.to_be_bytes());
        tcp.extend(self.peer_isn.wrapping_add(segment.seq).to_be_bytes());
        let ack =
            if segment.flags.has(Flags::ACK) { self.isn.unwrap_or(0).wrapping_add(segment.ack) } else { 0 };
        tcp.extend(ack.to_be_bytes());
        let [high, low] = segment.flags.0.to_be_bytes();
        tcp.extend([((20 + options.len()) as u8 / 4) << 4 | high, low]);
        tcp.extend(segment.win.to_be_bytes());
        tcp.extend([0, 0]);
        tcp.extend(segment.urg.to_be_bytes());
        tcp.extend(options);
        let first = segment.seq.wrapping_add(u32::from(segment.flags.has(Flags::SYN))).wrapping_sub(1);
        tcp.extend((0..segment.len).map(|at| pattern(first.wrapping_add(at))));
        let sum = self.pseudo_sum(tcp.len()) + sum(&tcp);
        let sum = folded(sum);
        tcp[16..18].copy_from_slice(&(!sum).to_be_bytes());
        self.packet(TCP, segment.ecn, &tcp)
    }

    /// The bytes of an ICMP error about a segment of the tested side.
    pub fn encode_report(&self, report: Report) -> Vec<u8> {
        let mut about = vec![0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, TCP, 0, 0];
        about.extend(self.local.0.octets());
        about.extend(self.peer.0.octets());
        let header = folded(sum(&about));
        about[10..12].copy_from_slice(&(!header).to_be_bytes());
        about.extend(self.local.1.to_be_bytes());
        about.extend(self.peer.1.to_be_bytes());
        about.extend(self.isn.unwrap_or(0).wrapping_add(report.seq).to_be_bytes());
        let mut icmp = vec![3, report.code, 0, 0, 0, 0];
        icmp.extend(report.mtu.to_be_bytes());
        icmp.extend(about);
        let whole = folded(sum(&icmp));
        icmp[2..4].copy_from_slice(&(!whole).to_be_bytes());
        self.packet(ICMP, 0, &icmp)
    }

    fn pseudo_sum(&self, len: usize) -> u32 {
        sum(&self.peer.0.octets()) + sum(&self.local.0.octets()) + u32::from(TCP) + len as u32
    }

    fn packet(&self, protocol: u8, ecn: u8, payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0x45, ecn & 3];
        bytes.extend((20 + payload.len() as u16).to_be_bytes());
        bytes.extend([0, 0, 0x40, 0, 64, protocol, 0, 0]);
        bytes.extend(self.peer.0.octets());
        bytes.extend(self.local.0.octets());
        let header = folded(sum(&bytes));
        bytes[10..12].copy_from_slice(&(!header).to_be_bytes());
        bytes.extend(payload);
        bytes
    }

    fn options(&self, segment: &Segment) -> Vec<u8> {
        let mut bytes = Vec::new();
        for option in &segment.options {
            match option {
                Opt::Mss(mss) => {
                    bytes.extend([2, 4]);
                    bytes.extend(mss.to_be_bytes());
                }
                Opt::Wscale(shift) => bytes.extend([3, 3, *shift]),
                Opt::SackOk => bytes.extend([4, 2]),
                Opt::Sack(blocks) => {
                    bytes.extend([5, 2 + 8 * blocks.len() as u8]);
                    for end in blocks.iter().flat_map(|&(from, to)| [from, to]) {
                        bytes.extend(self.isn.unwrap_or(0).wrapping_add(end).to_be_bytes());
                    }
                }
                Opt::Ts(value, echo) => {
                    let echo = match echo {
                        Echo::Last => self.ts_last,
                        Echo::Is(0) if self.ts_first.is_none() => 0,
                        Echo::Is(after) => self.ts_first.unwrap_or(0).wrapping_add(*after),
                    };
                    bytes.extend([8, 10]);
                    bytes.extend(value.to_be_bytes());
                    bytes.extend(echo.to_be_bytes());
                }
                Opt::FastOpen(cookie) => {
                    bytes.extend([34, 2 + cookie.len() as u8]);
                    bytes.extend(cookie);
                }
                Opt::Nop => bytes.push(1),
                Opt::Raw(kind, value) => {
                    bytes.extend([*kind, 2 + value.len() as u8]);
                    bytes.extend(value);
                }
            }
        }
        bytes.resize(bytes.len().next_multiple_of(4), 1);
        bytes
    }

    /// Reads a packet of the tested side, and learns its first numbers from it.
    pub fn decode(&mut self, packet: &[u8]) -> Packet {
        match self.read(packet) {
            Ok(packet) => packet,
            Err(why) => Packet::Malformed(why),
        }
    }

    fn read(&mut self, packet: &[u8]) -> Result<Packet, &'static str> {
        let header_len = usize::from(*packet.first().ok_or("no bytes")? & 15) * 4;
        let total = usize::from(u16_at(packet, 2)?);
        let header =
            packet.get(..header_len).filter(|header| header.len() >= 20).ok_or("a short IP header")?;
        let body = packet.get(header_len..total).ok_or("a packet shorter than it says")?;
        if packet[0] >> 4 != 4 || folded(sum(header)) != 0xffff {
            return Err("no IPv4 header, or a wrong sum of one");
        }
        if header[9] == ICMP {
            return Ok(Packet::Icmp(*body.first().ok_or("no ICMP")?, *body.get(1).ok_or("no ICMP")?));
        }
        if header[9] != TCP {
            return Err("neither TCP nor ICMP");
        }
        if folded(self.pseudo_sum(body.len()) + sum(body)) != 0xffff {
            return Err("a wrong sum of TCP");
        }
        self.segment(header[1] & 3, body).map(Packet::Tcp)
    }

    fn segment(&mut self, ecn: u8, body: &[u8]) -> Result<Segment, &'static str> {
        let flags = Flags(u16_at(body, 12)? & 0x1ff);
        let header_len = usize::from(body[12] >> 4) * 4;
        let options = body.get(20..header_len).ok_or("options that are not there")?;
        let (seq, ack) = (u32_at(body, 4)?, u32_at(body, 8)?);
        if flags.has(Flags::SYN) && !flags.has(Flags::RST) {
            self.isn.get_or_insert(seq);
        }
        self.local.1 = u16_at(body, 0)?;
        let mut segment = Segment {
            flags,
            // An answer to what belongs to no connection begins at nothing.
            seq: if flags.has(Flags::RST) && seq == 0 { 0 } else { seq.wrapping_sub(self.isn.unwrap_or(0)) },
            len: (body.len() - header_len) as u32,
            ack: if flags.has(Flags::ACK) { ack.wrapping_sub(self.peer_isn) } else { ack },
            win: u16_at(body, 14)?,
            urg: u16_at(body, 18)?,
            options: Vec::new(),
            ecn,
            is_corrupt: false,
        };
        let first = segment.seq.wrapping_add(u32::from(flags.has(Flags::SYN))).wrapping_sub(1);
        let text = body[header_len..].iter().zip(0_u32..);
        segment.is_corrupt = text.into_iter().any(|(byte, at)| *byte != pattern(first.wrapping_add(at)));
        segment.options = self.read_options(options)?;
        Ok(segment)
    }

    fn read_options(&mut self, mut bytes: &[u8]) -> Result<Vec<Opt>, &'static str> {
        let mut options = Vec::new();
        while let [kind, rest @ ..] = bytes {
            if *kind == 1 {
                options.push(Opt::Nop);
                bytes = rest;
                continue;
            }
            if *kind == 0 {
                options.push(Opt::Raw(0, Vec::new()));
                break;
            }
            let len = usize::from(*rest.first().ok_or("an option without a length")?);
            let value = bytes.get(2..len).ok_or("an option longer than the header")?;
            options.push(self.option(*kind, value)?);
            bytes = &bytes[len..];
        }
        Ok(options)
    }

    fn option(&mut self, kind: u8, value: &[u8]) -> Result<Opt, &'static str> {
        Ok(match (kind, value.len()) {
            (2, 2) => Opt::Mss(u16_at(value, 0)?),
            (3, 1) => Opt::Wscale(value[0]),
            (4, 0) => Opt::SackOk,
            (5, 8 | 16 | 24 | 32) => {
                let at = |at| u32_at(value, at).map(|number| number.wrapping_sub(self.peer_isn));
                let blocks = (0..value.len() / 8).map(|block| Ok((at(8 * block)?, at(8 * block + 4)?)));
                Opt::Sack(blocks.collect::<Result<_, &'static str>>()?)
            }
            (8, 8) => {
                let ts = u32_at(value, 0)?;
                self.ts_last = ts;
                let first = *self.ts_first.get_or_insert(ts);
                Opt::Ts(ts.wrapping_sub(first), Echo::Is(u32_at(value, 4)?))
            }
            (34, _) => Opt::FastOpen(value.to_vec()),
            _ => Opt::Raw(kind, value.to_vec()),
        })
    }
}

/// The destination of an IPv4 packet.
pub fn destination(packet: &[u8]) -> Option<Ipv4Addr> {
    let bytes: [u8; 4] = packet.get(16..20)?.try_into().ok()?;
    (packet[0] >> 4 == 4).then(|| Ipv4Addr::from(bytes))
}

fn u16_at(bytes: &[u8], at: usize) -> Result<u16, &'static str> {
    bytes.get(at..at + 2).map(|two| u16::from_be_bytes([two[0], two[1]])).ok_or("a short header")
}

fn u32_at(bytes: &[u8], at: usize) -> Result<u32, &'static str> {
    Ok(u32::from(u16_at(bytes, at)?) << 16 | u32::from(u16_at(bytes, at + 2)?))
}

/// The sum of RFC 1071, not folded yet.
fn sum(bytes: &[u8]) -> u32 {
    let pairs = bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)));
    pairs.sum()
}

fn folded(sum: u32) -> u16 {
    let once = (sum & 0xffff) + (sum >> 16);
    ((once & 0xffff) + (once >> 16)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        Names::new((Ipv4Addr::new(10, 128, 0, 1), 9), (Ipv4Addr::new(10, 9, 0, 1), 80))
    }

    #[test]
    fn a_segment_is_read_as_it_was_written() {
        let mut names = names();
        names.isn = Some(names.peer_isn);
        names.ts_first = Some(0);
        let segment = Segment {
            flags: Flags::ACK.with(Flags::PSH),
            seq: 2990,
            len: 100,
            ack: 7,
            win: 512,
            options: vec![
                Opt::Nop,
                Opt::Nop,
                Opt::Ts(4, Echo::Is(5)),
                Opt::Nop,
                Opt::Nop,
                Opt::Sack(vec![(20, 30), (5, 6)]),
            ],
            ecn: 2,
            ..Segment::default()
        };
        assert_eq!(names.clone().decode(&names.encode(&segment)), Packet::Tcp(segment));
    }

    #[test]
    fn broken_packets_are_told_apart_from_segments() {
        let mut names = names();
        let bytes = names.encode(&Segment { len: 3, ..Segment::default() });
        for cut in 0..bytes.len() {
            assert!(matches!(names.decode(&bytes[..cut]), Packet::Malformed(_)));
        }
        let mut wrong = bytes.clone();
        wrong[42] ^= 1;
        assert_eq!(names.decode(&wrong), Packet::Malformed("a wrong sum of TCP"));
    }
}
