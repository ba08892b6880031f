//! Segments as packets of IPv4 and IPv6, and packets as segments.
//!
//! It is separate from the stack's codec, so that a fault of that one is noticed. It knows one connection's addresses and initial numbers, [`Names`].
//! Tests: below.

mod ip;

use std::hash::Hasher;
use std::net::{IpAddr, Ipv4Addr};

use siphasher::sip::SipHasher24;

use self::ip::{Head, folded, header, ipv4_body, ipv6_body, octets, sum, u16_at, u32_at};
use crate::segment::{Cookie, Echo, Flags, Ip, Opt, Segment, pattern};

/// Where the numbers of a connection begin, and its addresses.
#[derive(Clone, Debug)]
pub struct Names {
    /// The peer's address and port.
    pub peer: (IpAddr, u16),
    /// The tested side's address and port. If it connects, its port is known from its first segment on.
    pub local: (IpAddr, u16),
    /// The peer's first sequence number.
    pub peer_isn: u32,
    /// The tested side's, once it was seen.
    pub isn: Option<u32>,
    /// The tested side's first timestamp that contains the time.
    pub ts_first: Option<u32>,
    /// Its latest.
    pub ts_last: u32,
    /// The flow label of its latest segment.
    label: Option<u32>,
    /// The time of the event, and the latest timestamp before it.
    arrival: (u32, Option<u32>),
    /// The tested side's next SYN belongs to another connection.
    is_over: bool,
    /// The Fast Open cookie that the tested side gives the peer.
    cookie: Vec<u8>,
    /// The timestamps of SYN-ACKs carry options in their low bits instead of the time.
    has_cookies: bool,
}

/// The key of the tested side's Fast Open cookies, as `tcp_fastopen_key` has it, and its bytes.
pub const COOKIE_KEY: &str = "00000001-00000002-00000003-00000004";
const COOKIE_KEY_BYTES: [u8; 16] = [1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0];
/// The number that identifies Fast Open among the experiments that share an option kind.
const FAST_OPEN_EXPERIMENT: [u8; 2] = [0xf9, 0x89];

/// The peer's first sequence number: a few thousand bytes later the numbers wrap.
const PEER_ISN: u32 = u32::MAX - 3000;
const TCP: u8 = 6;
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;

/// A packet of the tested side.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Packet {
    /// A segment.
    Tcp(Segment),
    /// An ICMP message of this type and code, and the word behind its checksum.
    Icmp(u8, u8, u32),
    /// What the codec cannot read, and why.
    Malformed(&'static str),
}

/// An error that a router, or the peer's host, reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Report {
    /// What it says.
    pub what: Reported,
    /// The sequence number of the segment that it is about.
    pub seq: u32,
}

/// What a report says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reported {
    /// "Destination unreachable" with this code, which is not 4 over IPv4.
    Unreachable(u8),
    /// The packet is longer than the next hop accepts; with the MTU of that hop, bytes.
    TooBig(u32),
    /// "Time exceeded" with this code.
    TimeExceeded(u8),
    /// "Parameter problem" with this code, about the packet's first byte.
    ParameterProblem(u8),
}

impl Reported {
    /// Its type, its code and the second word of the message.
    fn words(self, is_ipv6: bool) -> (u8, u8, u32) {
        match (self, is_ipv6) {
            (Self::Unreachable(code), false) => (3, code, 0),
            (Self::TooBig(mtu), false) => (3, 4, mtu),
            (Self::TimeExceeded(code), false) => (11, code, 0),
            (Self::ParameterProblem(code), false) => (12, code, 0),
            (Self::Unreachable(code), true) => (1, code, 0),
            (Self::TooBig(mtu), true) => (2, 0, mtu),
            (Self::TimeExceeded(code), true) => (3, code, 0),
            (Self::ParameterProblem(code), true) => (4, code, 0),
        }
    }
}

/// The device's MTU, bytes.
pub const MTU: usize = 1_500;
/// Bytes of the longest packet that the device makes of several.
pub const PACKET_MAX: usize = 65_535;
/// The most bytes of options in a segment.
pub const OPTIONS_MAX: usize = 40;
/// Bytes of the headers of IPv4, IPv6 and TCP, options aside.
const IPV4_HEADER: usize = 20;
const IPV6_HEADER: usize = 40;
const TCP_HEADER: usize = 20;

/// Bytes of the headers of a segment without options.
pub fn headers(is_ipv6: bool) -> usize {
    TCP_HEADER + if is_ipv6 { IPV6_HEADER } else { IPV4_HEADER }
}

/// Bytes of the options of a segment of the peer, and of the whole packet.
pub fn sizes(segment: &Segment, is_ipv6: bool) -> (usize, usize) {
    let options = options_of(segment).len();
    (options, headers(is_ipv6) + options + segment.len as usize)
}

/// The options of a segment of the peer, with placeholders for echoes and cookies.
pub fn options_of(segment: &Segment) -> Vec<u8> {
    let nobody = (Ipv4Addr::UNSPECIFIED.into(), 0);
    Names::new(nobody, nobody).options(segment)
}

impl Names {
    /// Of a connection of which nothing was sent.
    pub fn new(peer: (IpAddr, u16), local: (IpAddr, u16)) -> Self {
        let cookie = cookie_of(peer.0, local.0);
        Self {
            peer,
            local,
            peer_isn: PEER_ISN,
            isn: None,
            ts_first: None,
            ts_last: 0,
            label: None,
            arrival: (0, None),
            is_over: false,
            cookie,
            has_cookies: false,
        }
    }

    /// Sets whether the tested side answers SYNs with cookies.
    #[must_use]
    pub fn with_cookies(self, has_cookies: bool) -> Self {
        Self { has_cookies, ..self }
    }

    /// The tested side's next SYN begins another connection, and numbers count from it.
    pub fn begin_anew(&mut self) {
        self.is_over = true;
    }

    /// An event is due. Segments of one time arrive together, and none of them echoes a timestamp that was sent in response to another one of them.
    pub fn begin_event(&mut self, at_ms: u32) {
        if self.arrival.0 != at_ms {
            self.arrival = (at_ms, self.ts_first.map(|_| self.ts_last));
        }
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
        let sum = self.pseudo_sum(TCP, tcp.len()) + sum(&tcp);
        let sum = folded(sum);
        tcp[16..18].copy_from_slice(&(!sum).to_be_bytes());
        self.packet(TCP, segment.ecn, &tcp)
    }

    /// The bytes of an ICMP error about a segment of the tested side.
    pub fn encode_report(&self, report: Report) -> Vec<u8> {
        let is_ipv6 = self.peer.0.is_ipv6();
        let mut tcp = self.local.1.to_be_bytes().to_vec();
        tcp.extend(self.peer.1.to_be_bytes());
        tcp.extend(self.isn.unwrap_or(0).wrapping_add(report.seq).to_be_bytes());
        let (kind, code, word) = report.what.words(is_ipv6);
        let mut icmp = vec![kind, code, 0, 0];
        icmp.extend(word.to_be_bytes());
        icmp.extend(header(self.local.0, self.peer.0, TCP, 0, TCP_HEADER));
        icmp.extend(tcp);
        let protocol = if is_ipv6 { ICMPV6 } else { ICMP };
        let pseudo = if is_ipv6 { self.pseudo_sum(protocol, icmp.len()) } else { 0 };
        let whole = folded(pseudo + sum(&icmp));
        icmp[2..4].copy_from_slice(&(!whole).to_be_bytes());
        self.packet(protocol, 0, &icmp)
    }

    fn pseudo_sum(&self, protocol: u8, len: usize) -> u32 {
        sum(&octets(self.peer.0)) + sum(&octets(self.local.0)) + u32::from(protocol) + len as u32
    }

    fn packet(&self, protocol: u8, ecn: u8, payload: &[u8]) -> Vec<u8> {
        let mut bytes = header(self.peer.0, self.local.0, protocol, ecn, payload.len());
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
                        Echo::Last => self.arrival.1.unwrap_or(self.ts_last),
                        Echo::Nothing => 0,
                        Echo::Is(0) if self.ts_first.is_none() => 0,
                        Echo::Is(after) => self.ts_first.unwrap_or(0).wrapping_add(*after),
                    };
                    bytes.extend([8, 10]);
                    bytes.extend(value.to_be_bytes());
                    bytes.extend(echo.to_be_bytes());
                }
                Opt::FastOpen(cookie) => {
                    let cookie = self.bytes_of(cookie);
                    bytes.extend([34, 2 + cookie.len() as u8]);
                    bytes.extend(cookie);
                }
                Opt::FastOpenExperiment(cookie) => {
                    let cookie = self.bytes_of(cookie);
                    bytes.extend([254, 4 + cookie.len() as u8]);
                    bytes.extend(FAST_OPEN_EXPERIMENT);
                    bytes.extend(cookie);
                }
                Opt::Nop => bytes.push(1),
                Opt::Bytes(others) => bytes.extend(others),
                Opt::Raw(kind, value) => {
                    bytes.extend([*kind, 2 + value.len() as u8]);
                    bytes.extend(value);
                }
            }
        }
        bytes.resize(bytes.len().next_multiple_of(4), 1);
        bytes
    }

    fn bytes_of<'a>(&'a self, cookie: &'a Cookie) -> &'a [u8] {
        match cookie {
            Cookie::Good => &self.cookie,
            Cookie::Is(bytes) => bytes,
        }
    }

    fn read_cookie(&self, bytes: &[u8]) -> Cookie {
        if bytes == self.cookie { Cookie::Good } else { Cookie::Is(bytes.to_vec()) }
    }

    /// Reads a packet of the tested side, and learns its first numbers from it.
    pub fn decode(&mut self, packet: &[u8]) -> Packet {
        match self.read(packet) {
            Ok(packet) => packet,
            Err(why) => Packet::Malformed(why),
        }
    }

    fn read(&mut self, packet: &[u8]) -> Result<Packet, &'static str> {
        let (head, body) = match *packet.first().ok_or("no bytes")? >> 4 {
            4 => ipv4_body(packet)?,
            6 => ipv6_body(packet)?,
            _ => return Err("neither IPv4 nor IPv6"),
        };
        if (head.from, head.to) != (self.local.0, self.peer.0) {
            return Err("other addresses");
        }
        if matches!(head.protocol, ICMP | ICMPV6) {
            return self.icmp(head.protocol, body);
        }
        if head.protocol != TCP {
            return Err("neither TCP nor ICMP");
        }
        if folded(self.pseudo_sum(TCP, body.len()) + sum(body)) != 0xffff {
            return Err("a wrong sum of TCP");
        }
        let mut segment = self.segment(head.class & 3, body)?;
        segment.ip = self.rest_of(&head, segment.flags.has(Flags::RST));
        Ok(Packet::Tcp(segment))
    }

    fn icmp(&self, protocol: u8, body: &[u8]) -> Result<Packet, &'static str> {
        let word = u32_at(body, 4)?;
        let pseudo = if protocol == ICMPV6 { self.pseudo_sum(protocol, body.len()) } else { 0 };
        if folded(pseudo + sum(body)) != 0xffff {
            return Err("a wrong sum of ICMP");
        }
        Ok(Packet::Icmp(body[0], body[1], word))
    }

    /// The other fields of a header, and whether its flow label differs from the previous one. A reset's label is not remembered, since its socket
    /// may be gone.
    fn rest_of(&mut self, head: &Head, is_reset: bool) -> Ip {
        let before = if is_reset { self.label } else { self.label.replace(head.label) };
        Ip {
            dscp: head.class >> 2,
            ttl: head.ttl,
            is_whole: head.is_whole,
            is_labelled: head.label != 0,
            is_relabelled: before.is_some_and(|before| before != head.label),
        }
    }

    fn segment(&mut self, ecn: u8, body: &[u8]) -> Result<Segment, &'static str> {
        // With the bits that are reserved.
        let flags = Flags(u16_at(body, 12)? & 0xfff);
        let header_len = usize::from(body[12] >> 4) * 4;
        let options = body.get(20..header_len).ok_or("options that are not there")?;
        let (seq, ack) = (u32_at(body, 4)?, u32_at(body, 8)?);
        if flags.has(Flags::SYN) && !flags.has(Flags::RST) {
            if std::mem::take(&mut self.is_over) {
                (self.isn, self.ts_first, self.label, self.arrival.1) = (None, None, None, None);
            }
            if self.isn.is_none() && !flags.has(Flags::ACK) {
                self.local.1 = u16_at(body, 0)?;
            }
            self.isn.get_or_insert(seq);
        }
        if (u16_at(body, 0)?, u16_at(body, 2)?) != (self.local.1, self.peer.1) {
            return Err("other ports");
        }
        let mut segment = Segment {
            flags,
            // An answer to a segment that belongs to no connection has no initial number.
            seq: if flags.has(Flags::RST) && seq == 0 { 0 } else { seq.wrapping_sub(self.isn.unwrap_or(0)) },
            len: (body.len() - header_len) as u32,
            ack: if flags.has(Flags::ACK) { ack.wrapping_sub(self.peer_isn) } else { ack },
            win: u16_at(body, 14)?,
            urg: u16_at(body, 18)?,
            options: Vec::new(),
            gso_size: 0,
            burst: 0,
            ecn,
            ip: Ip::default(),
            is_corrupt: false,
        };
        let first = segment.seq.wrapping_add(u32::from(flags.has(Flags::SYN))).wrapping_sub(1);
        let text = body[header_len..].iter().zip(0_u32..);
        segment.is_corrupt = text.into_iter().any(|(byte, at)| *byte != pattern(first.wrapping_add(at)));
        segment.options = self.read_options(options, self.has_cookies && flags.has(Flags::SYN))?;
        Ok(segment)
    }

    /// With `is_cookie`, a timestamp does not contain the time, and is read as 0.
    fn read_options(&mut self, mut bytes: &[u8], is_cookie: bool) -> Result<Vec<Opt>, &'static str> {
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
            options.push(self.option(*kind, value, is_cookie)?);
            bytes = &bytes[len..];
        }
        Ok(options)
    }

    fn option(&mut self, kind: u8, value: &[u8], is_cookie: bool) -> Result<Opt, &'static str> {
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
                if is_cookie {
                    return Ok(Opt::Ts(0, Echo::Is(u32_at(value, 4)?)));
                }
                let first = *self.ts_first.get_or_insert(ts);
                Opt::Ts(ts.wrapping_sub(first), Echo::Is(u32_at(value, 4)?))
            }
            (34, _) => Opt::FastOpen(self.read_cookie(value)),
            (254, 2..) if value.starts_with(&FAST_OPEN_EXPERIMENT) => {
                Opt::FastOpenExperiment(self.read_cookie(&value[FAST_OPEN_EXPERIMENT.len()..]))
            }
            _ => Opt::Raw(kind, value.to_vec()),
        })
    }
}

/// The Fast Open cookie of a client at a server: SipHash-2-4 of both addresses.
fn cookie_of(client: IpAddr, server: IpAddr) -> Vec<u8> {
    let mut hasher = SipHasher24::new_with_key(&COOKIE_KEY_BYTES);
    hasher.write(&[octets(client), octets(server)].concat());
    hasher.finish().to_le_bytes().to_vec()
}

/// The destination of a packet.
pub fn destination(packet: &[u8]) -> Option<IpAddr> {
    match packet.first()? >> 4 {
        4 => Some(<[u8; 4]>::try_from(packet.get(16..20)?).ok()?.into()),
        6 => Some(<[u8; 16]>::try_from(packet.get(24..40)?).ok()?.into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both() -> [Names; 2] {
        [false, true].map(|is_ipv6| Names::new((crate::peer(is_ipv6, 1), 9), (crate::local(is_ipv6), 80)))
    }

    /// The names with which the other side reads what these write.
    fn turned(names: &Names) -> Names {
        let isn = names.isn.or(Some(names.peer_isn));
        let ts_first = names.ts_first.or(Some(0));
        Names { isn, ts_first, ..Names::new(names.local, names.peer) }
    }

    #[test]
    fn a_segment_is_read_as_it_was_written() {
        for mut names in both() {
            names.isn = Some(names.peer_isn);
            names.ts_first = Some(0);
            let options = vec![
                Opt::Nop,
                Opt::Nop,
                Opt::Ts(4, Echo::Is(5)),
                Opt::Nop,
                Opt::Nop,
                Opt::Sack(vec![(20, 30), (5, 6)]),
            ];
            let flags = Flags::ACK.with(Flags::PSH);
            let segment = Segment {
                flags,
                seq: 2990,
                len: 100,
                ack: 7,
                win: 512,
                options,
                ecn: 2,
                ..Segment::default()
            };
            let bytes = names.encode(&segment);
            assert_eq!(bytes.len(), sizes(&segment, names.peer.0.is_ipv6()).1);
            assert_eq!(destination(&bytes), Some(names.local.0));
            assert_eq!(turned(&names).decode(&bytes), Packet::Tcp(segment));
        }
    }

    #[test]
    fn broken_packets_are_told_apart_from_segments() {
        for names in both() {
            let bytes = names.encode(&Segment { len: 3, ..Segment::default() });
            let mut names = turned(&names);
            for cut in 0..bytes.len() {
                assert!(matches!(names.decode(&bytes[..cut]), Packet::Malformed(_)));
            }
            let mut wrong = bytes.clone();
            *wrong.last_mut().unwrap() ^= 1;
            assert_eq!(names.decode(&wrong), Packet::Malformed("a wrong sum of TCP"));
        }
    }

    #[test]
    fn a_report_quotes_a_segment_of_the_tested_side() {
        for (mut names, (kind, len)) in both().into_iter().zip([(3, 56), (2, 96)]) {
            names.isn = Some(7);
            let bytes = names.encode_report(Report { what: Reported::TooBig(1400), seq: 3 });
            assert_eq!(bytes.len(), len);
            let read = turned(&names).decode(&bytes);
            assert!(matches!(read, Packet::Icmp(found, _, 1400) if found == kind), "{read:?}");
            let mut wrong = bytes.clone();
            *wrong.last_mut().unwrap() ^= 1;
            assert_eq!(turned(&names).decode(&wrong), Packet::Malformed("a wrong sum of ICMP"));
            assert_eq!(bytes[len - 8..], [0, 80, 0, 9, 0, 0, 0, 10]);
        }
    }

    #[test]
    fn what_belongs_to_another_connection_is_no_segment_of_this_one() {
        for names in both() {
            let bytes = names.encode(&Segment { flags: Flags::ACK, ..Segment::default() });
            let own = turned(&names);
            assert!(matches!(own.clone().decode(&bytes), Packet::Tcp(_)));
            let others = [(own.peer.0, own.peer.1 + 1), (crate::peer(own.peer.0.is_ipv6(), 2), own.peer.1)];
            for other in others {
                // The sums are right.
                let changed = Names { local: other, ..names.clone() };
                let bytes = changed.encode(&Segment { flags: Flags::ACK, ..Segment::default() });
                assert!(matches!(own.clone().decode(&bytes), Packet::Malformed(_)), "{other:?}");
                let changed = Names { peer: other, ..names.clone() };
                let bytes = changed.encode(&Segment { flags: Flags::ACK, ..Segment::default() });
                assert!(matches!(own.clone().decode(&bytes), Packet::Malformed(_)), "{other:?}");
            }
            // The SYN of a socket that connects tells its port, and later segments have the same.
            let syn = |port| {
                Names { peer: (names.peer.0, port), ..names.clone() }
                    .encode(&Segment { flags: Flags::SYN, ..Segment::default() })
            };
            let mut own = Names { isn: None, ..own };
            assert!(matches!(own.decode(&syn(5)), Packet::Tcp(_)));
            assert_eq!(own.local.1, 5);
            assert_eq!(own.decode(&syn(6)), Packet::Malformed("other ports"));
        }
    }

    #[test]
    fn reserved_bits_are_flags() {
        for names in both() {
            let flags = Flags(Flags::ACK.0 | 0x800);
            let bytes = names.encode(&Segment { flags, ..Segment::default() });
            assert!(matches!(turned(&names).decode(&bytes), Packet::Tcp(read) if read.flags == flags));
        }
    }
}
