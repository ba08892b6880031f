//! The loopback interface: 127.0.0.0/8 and ::1, with an MTU of 64 KiB.
//!
//! With `Config::loopback_encode` each segment is written as an IP packet and parsed again, so that anything
//! that the codec cannot carry does not arrive. That costs a copy and is for tests.

use std::net::IpAddr;

use sockeye_proto::ip;
use sockeye_proto::tcp::segment::Header;
use sockeye_proto::tcp::wire;

use crate::base::addr::{Endpoint, FourTuple};
use crate::base::payload::Data;
use crate::inet::netif::table::Link;
use crate::rt::counter;
use crate::rt::env::Env;
use crate::rt::memory;

/// See the module's head.
pub(crate) struct Loopback {
    mtu: u32,
    encode: bool,
}

/// A segment on its way: the connection's name as its receiver has it, header and text.
pub(crate) type Carried = (FourTuple, Header, Data);

/// The largest MSS, bytes: half of the largest segment, so that one that is handed over as a whole counts as two
/// full ones and is acknowledged at once. (Timestamps take 12 bytes of it. Announcing 12 more, so that a write of
/// 64 KiB is cut without a tail, was tried: acknowledgments then come half as often and streams stall.)
const MSS_MAX: u16 = 32 << 10;
/// The largest segment that is handed over as one, bytes: two full ones in a row, as a driver with segmentation
/// offload would take them.
const SEGMENT_MAX: u32 = 64 << 10;
impl Loopback {
    pub fn new(mtu: u32, encode: bool) -> Self {
        Self { mtu, encode }
    }

    /// Whether segments go through the codec.
    pub fn encodes(&self) -> bool {
        self.encode
    }

    /// Facts for its connections.
    pub fn link(&self, addr: IpAddr) -> Link {
        let link = Link::of_mtu(self.mtu, addr);
        let mss = link.mss.min(MSS_MAX);
        // The codec writes one IP packet for each segment.
        Link { mss, segment_max: if self.encode { u32::from(mss) } else { SEGMENT_MAX }, ..link }
    }

    /// Carries a segment to its receiver, which is named by `to`. `None` if it is lost.
    pub fn carry(&self, env: &Env, segment: Carried) -> Option<Carried> {
        if !self.encode {
            return Some(segment);
        }
        let carried = self.through_bytes(env, &segment);
        if carried.is_none() {
            env.count(counter::SEGMENTS_LOST);
        }
        carried
    }
}

impl Loopback {
    /// Writes the segment as one IP packet and reads that.
    fn through_bytes(&self, env: &Env, (to, header, payload): &Carried) -> Option<Carried> {
        let payload = &payload.0;
        let (src, dst) = (to.remote, to.local);
        let addresses = ip::Addresses::new(src.addr, dst.addr)?;
        let header_len = wire::header_len(header);
        let tcp_len = header_len + payload.len();
        let ip_header = ip::Header {
            addresses,
            protocol: ip::PROTOCOL_TCP,
            hop_limit: HOP_LIMIT,
            traffic_class: 0,
            flow_label: 0,
        };
        let mut packet = vec![0; addresses.header_len() + tcp_len];
        let ip_len = ip::emit(&ip_header, tcp_len, &mut packet).ok()?;
        payload.copy_to(0, packet.get_mut(ip_len + header_len..)?);
        let pseudo = addresses.pseudo_header(ip::PROTOCOL_TCP, u32::try_from(tcp_len).ok()?);
        let sum = pseudo.join(ip::Sum::of(packet.get(ip_len + header_len..)?));
        let ports = wire::Ports { src: src.port, dst: dst.port };
        wire::emit(ports, header, wire::ChecksumOut::Full(sum), packet.get_mut(ip_len..)?).ok()?;
        let (from, header, payload) = self.parse(env, &packet)?;
        let to = FourTuple {
            local: Endpoint::new(from.dst().0, from.dst().1),
            remote: Endpoint::new(from.src().0, from.src().1),
        };
        Some((to, header, payload))
    }

    /// A packet as bytes: its addresses, its header, its payload in mbufs.
    fn parse(&self, env: &Env, packet: &[u8]) -> Option<(Path, Header, Data)> {
        let (ip_header, tcp) = ip::parse(packet, ip::HeaderChecksum::Verify).ok()?;
        let segment = packet.get(tcp)?;
        let addresses = ip_header.addresses;
        let pseudo = addresses.pseudo_header(ip_header.protocol, u32::try_from(segment.len()).ok()?);
        let (ports, header, range) = wire::parse(segment, wire::ChecksumIn::Verify(pseudo)).ok()?;
        // Without memory for it the segment is lost, as in an interface without buffers.
        let bytes = segment.get(range)?;
        let payload = memory::obtain(env, || env.pool.copy_in(bytes)).ok()?;
        Some((Path { addresses, ports }, header, Data(payload)))
    }
}

/// Where a packet comes from and goes to.
struct Path {
    addresses: ip::Addresses,
    ports: wire::Ports,
}

impl Path {
    fn src(&self) -> (IpAddr, u16) {
        (self.addresses.src(), self.ports.src)
    }

    fn dst(&self) -> (IpAddr, u16) {
        (self.addresses.dst(), self.ports.dst)
    }
}

/// TTL of packets that never leave the host.
const HOP_LIMIT: u8 = 64;
