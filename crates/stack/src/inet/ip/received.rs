//! A packet that has come in and is not a whole TCP segment, on its way to the protocol that it carries.
//!
//! Its payload lies in packet memory of our own, its headers beside it: both are needed again when an ICMP error
//! quotes it. It does not depend on any protocol. Invariants: the addresses are of one family; the payload is as
//! long as the headers say, without padding. Tests: `tests/ip/`.

use sockeye_mbuf::Chain;
use sockeye_proto::ip;
use sockeye_proto::ip::fragment::Fragment;

use crate::inet::netif::table::NetifId;
use crate::inet::netif::{Checksum, MacAddr};

/// Bytes of headers that are kept for quoting: IPv4 with all options, or IPv6 with some extension headers.
/// Longer chains of extension headers are quoted up to here.
const HEAD_MAX: usize = 128;

/// The kind of destination of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cast {
    /// To an address of ours.
    Unicast,
    /// To all on the link.
    Broadcast,
    /// To a group.
    Multicast,
}

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Received {
    /// Where it came in; [`NetifId::LOOPBACK`] if this stack has sent it.
    pub netif: NetifId,
    /// The sender of the frame, where links have addresses.
    pub link_src: Option<MacAddr>,
    pub header: ip::Header,
    /// Its place in a datagram, if it is not one.
    pub fragment: Option<Fragment>,
    /// It was in fragments, or in one that is all of it.
    pub was_in_fragments: bool,
    /// Of IP's destination, or of the link's where that says less than unicast.
    pub cast: Cast,
    /// Which side has looked at the checksum of the protocol inside.
    pub checksum: Checksum,
    /// Bytes of text of each datagram but the last, if a device has joined several of UDP to this one; else 0.
    pub gso_size: u16,
    /// The IP headers as they came.
    pub head: Head,
    /// The bytes behind them.
    pub payload: Chain,
}

impl Received {
    /// A packet to one host whose headers were not kept, for an error that quotes it: they are written anew. `None` if the payload is too long for one packet.
    pub fn rewritten(netif: NetifId, header: ip::Header, payload: Chain) -> Option<Self> {
        let mut head = [0; crate::inet::netif::HEAD_MAX];
        let head_len = ip::emit(&header, payload.len(), &mut head).ok()?;
        Some(Self {
            netif,
            link_src: None,
            header,
            fragment: None,
            was_in_fragments: false,
            cast: Cast::Unicast,
            checksum: Checksum::Device,
            gso_size: 0,
            head: Head::of(&head[..head_len]),
            payload,
        })
    }

    /// The first bytes of the payload, as many as there are up to `N`.
    pub fn first<const N: usize>(&self) -> ([u8; N], usize) {
        let mut bytes = [0; N];
        let len = self.payload.copy_to(0, &mut bytes);
        (bytes, len)
    }

    /// Whether the payload sums up with the pseudo header in front of it: the checksum of UDP, TCP and ICMPv6.
    pub fn checksum_holds(&self) -> bool {
        match self.checksum {
            Checksum::Device => true,
            Checksum::Software => {
                let Ok(len) = u32::try_from(self.payload.len()) else { return false };
                let pseudo = self.header.addresses.pseudo_header(self.header.protocol, len);
                self.sum(pseudo).is_valid()
            }
        }
    }

    /// `sum` with all bytes of the payload behind it.
    pub fn sum(&self, sum: ip::Sum) -> ip::Sum {
        self.payload.iter().fold(sum, |sum, piece| sum.add_bytes(piece))
    }
}

/// The headers of a packet, as far as they are kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    bytes: [u8; HEAD_MAX],
    len: u8,
    is_whole: bool,
}

impl Head {
    /// The first bytes of `headers`.
    pub fn of(headers: &[u8]) -> Self {
        let len = headers.len().min(HEAD_MAX);
        let mut bytes = [0; HEAD_MAX];
        bytes[..len].copy_from_slice(&headers[..len]);
        Self { bytes, len: len as u8, is_whole: len == headers.len() }
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// Adds headers that stand behind these.
    pub fn extend(&mut self, more: &[u8]) {
        let len = usize::from(self.len);
        let taken = if self.is_whole { more.len().min(HEAD_MAX - len) } else { 0 };
        self.bytes[len..len + taken].copy_from_slice(&more[..taken]);
        self.is_whole &= taken == more.len();
        self.len = (len + taken) as u8;
    }

    /// Whether nothing was left out, so that the payload follows these bytes.
    pub fn is_whole(&self) -> bool {
        self.is_whole
    }
}
