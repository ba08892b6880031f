//! Ancillary data of a datagram, in both directions: the typed form of `cmsg`s.
//!
//! Receiving returns all of it at no cost, so there is nothing to be switched on first, but for the time of arrival. Tests: `tests/udp/`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use crate::base::report::Timestamping;

/// The two low bits of a traffic class: explicit congestion notification (RFC 3168 section 5).
const ECN_MASK: u8 = 0b11;

/// Ancillary data of a send. `None`: the socket's option applies.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SendMeta {
    /// The destination; `None` for the peer of a connected socket.
    pub to: Option<SocketAddr>,
    /// The source address: one of the stack's own (IP_PKTINFO), or any host's if the socket is transparent
    /// ([`UdpBuilder::transparent`](crate::UdpBuilder::transparent)).
    pub src: Option<IpAddr>,
    /// The source port: required for a socket that is bound to every port, and not allowed for others.
    pub src_port: Option<u16>,
    /// The number of the interface for sending to a group or a link-local address: 1 is the loopback, others have
    /// [`NetifId::interface_index`](crate::netif::NetifId::interface_index). `None`: by the scope id of `to`, else by
    /// the socket's option or the routes.
    pub interface: Option<u32>,
    /// DSCP and ECN (IP_TOS, IPV6_TCLASS).
    pub traffic_class: Option<u8>,
    /// TTL or hop limit (IP_TTL, IPV6_HOPLIMIT).
    pub hop_limit: Option<u8>,
    /// Cuts the buffer into datagrams of this many bytes; the last may be shorter (UDP_SEGMENT). `Some(0)`: one
    /// datagram, regardless of the option.
    pub segment_size: Option<u16>,
    /// Which times of this send are reported, instead of those set for the socket (SO_TIMESTAMPING):
    /// [`Timestamping::SCHEDULED`], [`Timestamping::SENT`]. It has an effect only while
    /// [`UdpSocket::set_timestamping`](crate::UdpSocket::set_timestamping) has set something.
    pub timestamping: Option<Timestamping>,
}

impl SendMeta {
    /// To `addr`, with the socket's options for everything else.
    pub fn to(addr: SocketAddr) -> Self {
        Self { to: Some(addr), ..Self::default() }
    }
}

/// Metadata of a received datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct RecvMeta {
    /// The sender.
    pub from: SocketAddr,
    /// Bytes that were copied.
    pub len: usize,
    /// Bytes of the datagram: more than `len` if the buffer was too short (MSG_TRUNC).
    pub datagram_len: usize,
    /// If not 0, these are several consecutive datagrams of this many bytes each; the last may be shorter (UDP_GRO).
    /// Only for sockets that have asked for it ([`UdpSocket::set_gro`](crate::UdpSocket::set_gro)).
    pub segment_size: u16,
    /// The destination address (IP_PKTINFO).
    pub dst: IpAddr,
    /// The destination port: the socket's own, except for a socket that is bound to every port.
    pub dst_port: u16,
    /// The number of the interface by which it arrived; see [`SendMeta::interface`].
    pub interface: u32,
    /// DSCP and ECN (IP_RECVTOS, IPV6_RECVTCLASS).
    pub traffic_class: u8,
    /// TTL or hop limit on arrival (IP_RECVTTL, IPV6_RECVHOPLIMIT).
    pub hop_limit: u8,
    /// Number of datagrams that this socket had dropped because its buffer was full, when this one arrived, modulo 2^32
    /// (SO_RXQ_OVFL).
    pub drops: u32,
    /// When it arrived, or the last of joined ones, as the time since the stack was made
    /// ([`Stack::now`](crate::Stack::now)); `None` if the socket had not asked for that ([`Timestamping::RECEIVED`]).
    /// (SCM_TIMESTAMP, SCM_TIMESTAMPNS, SCM_TIMESTAMPING)
    pub received_at: Option<Duration>,
}

impl RecvMeta {
    /// For an array that [`UdpSocket::recv_batch`](crate::UdpSocket::recv_batch) fills.
    pub const EMPTY: Self = Self {
        from: SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0),
        len: 0,
        datagram_len: 0,
        segment_size: 0,
        dst: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        dst_port: 0,
        interface: 0,
        traffic_class: 0,
        hop_limit: 0,
        drops: 0,
        received_at: None,
    };

    /// Whether bytes were cut off (MSG_TRUNC).
    pub fn is_truncated(&self) -> bool {
        self.len < self.datagram_len
    }

    /// ECN: 0 not capable, 1 and 2 capable, 3 congestion experienced.
    pub fn ecn(&self) -> u8 {
        self.traffic_class & ECN_MASK
    }

    /// Number of datagrams in the buffer, including those cut off: 1, except for joined ones.
    pub fn segment_count(&self) -> usize {
        match self.segment_size {
            0 => 1,
            size => self.datagram_len.div_ceil(usize::from(size)).max(1),
        }
    }
}

impl Default for RecvMeta {
    fn default() -> Self {
        Self::EMPTY
    }
}

/// A datagram to be sent with others ([`UdpSocket::send_batch`](crate::UdpSocket::send_batch)).
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    /// Its bytes; those of several datagrams if there is a segment size.
    pub bytes: &'a [u8],
    /// Its destination and ancillary data.
    pub meta: SendMeta,
}
