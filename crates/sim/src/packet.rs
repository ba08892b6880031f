//! A packet on a link, as predicates and observers see it.
//!
//! Reads the headers that the stack wrote; anything else has no [`Segment`]. Tests: `tests/net/links.rs`.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use sockeye_proto::ip;
use sockeye_proto::tcp::segment::{Flags, Header};
use sockeye_proto::tcp::wire;

/// A packet on its way.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// The time at which it came to the link, since the start.
    pub at: Duration,
    /// How many came to this direction of the link before it.
    pub index: u64,
    /// The packet's first bytes: all of its headers.
    pub head: &'a [u8],
    /// Bytes of the whole packet.
    pub len: usize,
}

/// The TCP segment in a packet.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    /// Where it comes from.
    pub src: SocketAddr,
    /// Where it goes to.
    pub dst: SocketAddr,
    /// Its header.
    pub header: Header,
    /// Bytes of payload.
    pub len: u32,
}

impl Segment {
    /// Whether the SYN flag is set.
    pub fn is_syn(&self) -> bool {
        self.header.flags.has(Flags::SYN)
    }

    /// Whether the FIN flag is set.
    pub fn is_fin(&self) -> bool {
        self.header.flags.has(Flags::FIN)
    }

    /// Whether the RST flag is set.
    pub fn is_rst(&self) -> bool {
        self.header.flags.has(Flags::RST)
    }

    /// Sequence numbers that it takes: its payload, and one each for SYN and FIN.
    pub fn seq_len(&self) -> u32 {
        self.len + u32::from(self.is_syn()) + u32::from(self.is_fin())
    }
}

impl Packet<'_> {
    /// The TCP segment in it, if it is one that can be read.
    pub fn segment(&self) -> Option<Segment> {
        let (header, range) = ip::parse_head(self.head, self.len, ip::HeaderChecksum::Trusted).ok()?;
        if header.protocol != ip::PROTOCOL_TCP {
            return None;
        }
        let tcp = self.head.get(range.start..self.head.len().min(range.end))?;
        let (ports, tcp_header, payload) = wire::parse(tcp, wire::ChecksumIn::Trusted).ok()?;
        let addresses = header.addresses;
        let len = range.end.checked_sub(range.start)?.checked_sub(payload.start)?;
        Some(Segment {
            src: SocketAddr::new(addresses.src(), ports.src),
            dst: SocketAddr::new(addresses.dst(), ports.dst),
            header: tcp_header,
            len: u32::try_from(len).ok()?,
        })
    }

    /// The address that the packet is from, if it is an IP packet.
    pub fn src(&self) -> Option<IpAddr> {
        let (header, _) = ip::parse_head(self.head, self.len, ip::HeaderChecksum::Trusted).ok()?;
        Some(header.addresses.src())
    }

    /// The address that the packet is for, if it is an IP packet.
    pub fn dst(&self) -> Option<IpAddr> {
        let (header, _) = ip::parse_head(self.head, self.len, ip::HeaderChecksum::Trusted).ok()?;
        Some(header.addresses.dst())
    }
}
