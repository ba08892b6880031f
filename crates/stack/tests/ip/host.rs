//! A stack with one interface, and the other side of it as bytes.

use std::net::IpAddr;
use std::time::Duration;

use sockeye::netif::{ChannelConfig, ChannelPort, LinkOptions, MacAddr, Medium, NetifId, TxFrame, channel};
use sockeye::{Config, Stack};
use sockeye_proto::icmp::{Family, HEADER_LEN, Message};
use sockeye_proto::ip::{self, Addresses, Header, Sum};

use crate::common;

/// The stack's addresses.
pub const OURS: [&str; 2] = ["10.9.0.1", "fd09::1"];
/// The other side's.
pub const THEIRS: [&str; 2] = ["10.9.0.2", "fd09::2"];
pub const MTU: u32 = 1500;

/// The stack's address on Ethernet, and the other side's.
pub const MACS: [MacAddr; 2] = [MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2])];

/// See the module's head.
pub struct Host {
    pub stack: Stack,
    pub netif: NetifId,
    pub now: Duration,
    /// The other side, until it is unplugged.
    port: Option<ChannelPort>,
}

impl Host {
    pub fn new() -> Self {
        Self::with(|_| {})
    }

    pub fn with(change: impl FnOnce(&mut Config)) -> Self {
        Self::on(Medium::Ip, false, change)
    }

    /// On Ethernet, after the stack has sent all its unsolicited packets.
    pub fn ethernet() -> Self {
        let mut host = Self::on(Medium::Ethernet(MACS[0]), false, |_| {});
        // It has reported its groups, and announced its addresses.
        host.pass(Duration::from_secs(15));
        host
    }

    /// `offload`: the interface completes checksums, and segments have none here.
    pub fn on(medium: Medium, offload: bool, change: impl FnOnce(&mut Config)) -> Self {
        let stack = common::stack_with(|config| {
            config.workers = 0;
            change(config);
        });
        let now = Duration::from_secs(1);
        stack.poll(now);
        let config =
            ChannelConfig { mtu: MTU, medium, offload, queue_len: 1 << 16, ..ChannelConfig::default() };
        let (channel, mut ports) = channel(&config).unwrap();
        let prefixes = [format!("{}/24", OURS[0]), format!("{}/64", OURS[1])].map(|p| p.parse().unwrap());
        let quiet = LinkOptions {
            accept_ra: false,
            link_local: false,
            detect_duplicates: false,
            ..LinkOptions::default()
        };
        let netif = stack.attach_with(channel, &prefixes, &quiet).unwrap();
        Self { stack, netif, now, port: ports.pop() }
    }

    /// Gives the stack a packet and returns the answers.
    pub fn send(&mut self, packet: &[u8]) -> Vec<Vec<u8>> {
        self.port.as_ref().unwrap().try_send(packet).unwrap();
        self.turn()
    }

    /// Advances the time by `time`, and returns the packets that the stack sends meanwhile.
    pub fn pass(&mut self, time: Duration) -> Vec<Vec<u8>> {
        let end = self.now + time;
        let mut sent = Vec::new();
        while let Some(next) = self.stack.poll(self.now).filter(|next| *next <= end) {
            self.now = next.max(self.now + Duration::from_micros(1));
            sent.extend(self.turn());
        }
        self.now = end;
        sent.extend(self.turn());
        sent
    }

    /// Runs the due work.
    pub fn turn(&mut self) -> Vec<Vec<u8>> {
        for _ in 0..100 {
            if self.stack.poll(self.now).is_none_or(|next| next > self.now) {
                break;
            }
        }
        let frames = std::iter::from_fn(|| self.port.as_ref()?.try_recv());
        frames.map(|frame| bytes_of(&frame)).collect()
    }

    /// The device vanishes.
    pub fn unplug(&mut self) {
        self.port = None;
    }

    pub fn count(&self, name: &str) -> u64 {
        common::counter(&self.stack, name)
    }
}

/// A frame as it is on the wire.
pub fn bytes_of(frame: &TxFrame) -> Vec<u8> {
    let mut bytes = frame.head().to_vec();
    frame.payload.iter().for_each(|piece| bytes.extend_from_slice(piece));
    bytes
}

/// Addresses from the other side to the stack.
pub fn inwards(family: Family) -> Addresses {
    match family {
        Family::V4 => between(THEIRS[0], OURS[0]),
        Family::V6 => between(THEIRS[1], OURS[1]),
    }
}

pub fn between(src: &str, dst: &str) -> Addresses {
    let addr = |text: &str| text.parse::<IpAddr>().unwrap();
    Addresses::new(addr(src), addr(dst)).unwrap()
}

/// A packet.
pub fn packet(addresses: Addresses, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let header = Header { addresses, protocol, hop_limit: 64, traffic_class: 0, flow_label: 0 };
    let mut packet = vec![0; addresses.header_len()];
    ip::emit(&header, payload.len(), &mut packet).unwrap();
    packet.extend_from_slice(payload);
    packet
}

/// A frame from the other side, or from the host at `src`.
pub fn frame(dst: MacAddr, src: MacAddr, ethertype: u16, packet: &[u8]) -> Vec<u8> {
    [&dst.0[..], &src.0, &ethertype.to_be_bytes(), packet].concat()
}

/// An ICMP message as a packet.
pub fn icmp(addresses: Addresses, message: Message, data: &[u8]) -> Vec<u8> {
    let (family, protocol) = match addresses {
        Addresses::V4 { .. } => (Family::V4, ip::PROTOCOL_ICMP),
        Addresses::V6 { .. } => (Family::V6, ip::PROTOCOL_ICMPV6),
    };
    let mut payload = message.emit(family).unwrap().to_vec();
    payload.extend_from_slice(data);
    let sum = match family {
        Family::V4 => Sum::ZERO,
        Family::V6 => addresses.pseudo_header(protocol, payload.len() as u32),
    };
    let checksum = sum.add_bytes(&payload).checksum();
    payload[2..4].copy_from_slice(&checksum.to_be_bytes());
    packet(addresses, protocol, &payload)
}

/// An ICMP message, read and with its checksums checked: addresses, message, data.
pub fn read_icmp(packet: &[u8]) -> (Addresses, Message, Vec<u8>) {
    let (header, range) = ip::parse(packet, ip::HeaderChecksum::Verify).unwrap();
    let payload = &packet[range];
    let (family, sum) = match header.protocol {
        ip::PROTOCOL_ICMP => (Family::V4, Sum::ZERO),
        ip::PROTOCOL_ICMPV6 => {
            (Family::V6, header.addresses.pseudo_header(header.protocol, payload.len() as u32))
        }
        other => panic!("protocol {other} is no ICMP"),
    };
    assert!(sum.add_bytes(payload).is_valid(), "the message does not sum up");
    let (head, data) = payload.split_first_chunk::<HEADER_LEN>().unwrap();
    (header.addresses, Message::parse(family, *head), data.to_vec())
}
