//! ARP for IPv4 over Ethernet (RFC 826): packets, and their meaning to a host.
//!
//! The bytes may be anything: a packet that is not ARP for IPv4 over Ethernet, or names an address that cannot be
//! a host's, is refused with the reason. Formats are smoltcp's. The table of neighbors is `neighbor`'s, the
//! defence of our own addresses `dad`'s. Tests stand at the end.

use core::net::Ipv4Addr;

use smoltcp::wire::{ArpHardware, ArpOperation, ArpPacket, ArpRepr, EthernetAddress, EthernetProtocol};

use crate::ip::martian;
use crate::neighbor::LinkAddr;

/// Bytes of a packet.
pub const LEN: usize = 28;

/// Request or reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// Asks for the host that has the target's address.
    Request,
    /// The sender has.
    Reply,
}

/// A packet. Its sender is a host's address, or unspecified in a probe (RFC 5227 section 1.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packet {
    /// The operation.
    pub operation: Operation,
    /// The sender's link-layer address.
    pub sender_lladdr: LinkAddr,
    /// The sender's address.
    pub sender: Ipv4Addr,
    /// The target's link-layer address; meaningless in a request.
    pub target_lladdr: LinkAddr,
    /// The target's address.
    pub target: Ipv4Addr,
}

/// Why a packet is not for us to understand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// Too short, or not IPv4 over Ethernet, or neither request nor reply.
    Malformed,
    /// The sender's address, or its link-layer address, cannot be a host's: multicast, broadcast, loopback.
    BadSender,
}

impl Packet {
    /// Reads one.
    ///
    /// # Errors
    /// See [`Refusal`].
    pub fn parse(bytes: &[u8]) -> Result<Self, Refusal> {
        let packet = ArpPacket::new_checked(bytes).map_err(|_| Refusal::Malformed)?;
        if packet.hardware_type() != ArpHardware::Ethernet || packet.hardware_len() != 6 {
            return Err(Refusal::Malformed);
        }
        let repr = ArpRepr::parse(&packet).map_err(|_| Refusal::Malformed)?;
        let ArpRepr::EthernetIpv4 {
            operation,
            source_hardware_addr,
            source_protocol_addr,
            target_hardware_addr,
            target_protocol_addr,
        } = repr
        else {
            return Err(Refusal::Malformed);
        };
        let operation = match operation {
            ArpOperation::Request => Operation::Request,
            ArpOperation::Reply => Operation::Reply,
            ArpOperation::Unknown(_) => return Err(Refusal::Malformed),
        };
        let packet = Self {
            operation,
            sender_lladdr: source_hardware_addr.0,
            sender: source_protocol_addr,
            target_lladdr: target_hardware_addr.0,
            target: target_protocol_addr,
        };
        if packet.sender_is_sane() { Ok(packet) } else { Err(Refusal::BadSender) }
    }

    fn sender_is_sane(&self) -> bool {
        let (addr, lladdr) = (self.sender, EthernetAddress(self.sender_lladdr));
        let is_probe = addr.is_unspecified() && self.operation == Operation::Request;
        lladdr.is_unicast() && self.sender_lladdr != [0; 6] && (is_probe || martian::is_host(addr.into()))
    }

    /// A request for `target`, by us.
    pub fn request(lladdr: LinkAddr, sender: Ipv4Addr, target: Ipv4Addr) -> Self {
        let operation = Operation::Request;
        Self { operation, sender_lladdr: lladdr, sender, target_lladdr: [0; 6], target }
    }

    /// A probe for `addr` (RFC 5227 section 2.1.1).
    pub fn probe(lladdr: LinkAddr, addr: Ipv4Addr) -> Self {
        Self::request(lladdr, Ipv4Addr::UNSPECIFIED, addr)
    }

    /// An announcement of `addr` (RFC 5227 section 2.3).
    pub fn announcement(lladdr: LinkAddr, addr: Ipv4Addr) -> Self {
        Self::request(lladdr, addr, addr)
    }

    /// The answer of the host at `lladdr` to this request.
    #[must_use]
    pub fn reply(&self, lladdr: LinkAddr) -> Self {
        Self {
            operation: Operation::Reply,
            sender_lladdr: lladdr,
            sender: self.target,
            target_lladdr: self.sender_lladdr,
            target: self.sender,
        }
    }

    /// As bytes.
    pub fn emit(&self) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        let operation = match self.operation {
            Operation::Request => ArpOperation::Request,
            Operation::Reply => ArpOperation::Reply,
        };
        let mut packet = ArpPacket::new_unchecked(&mut bytes[..]);
        packet.set_hardware_type(ArpHardware::Ethernet);
        packet.set_protocol_type(EthernetProtocol::Ipv4);
        packet.set_hardware_len(6);
        packet.set_protocol_len(4);
        packet.set_operation(operation);
        packet.set_source_hardware_addr(&self.sender_lladdr);
        packet.set_source_protocol_addr(&self.sender.octets());
        packet.set_target_hardware_addr(&self.target_lladdr);
        packet.set_target_protocol_addr(&self.target.octets());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HERE: LinkAddr = [2, 0, 0, 0, 0, 1];
    const THERE: LinkAddr = [2, 0, 0, 0, 0, 2];

    #[test]
    fn a_request_is_written_as_in_rfc_826_and_answered_to_its_sender() {
        let request = Packet::request(HERE, Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        let bytes = request.emit();
        assert_eq!(bytes[..8], [0, 1, 8, 0, 6, 4, 0, 1]);
        assert_eq!(bytes[8..18], [2, 0, 0, 0, 0, 1, 10, 0, 0, 1]);
        assert_eq!(Packet::parse(&bytes), Ok(request));
        let reply = request.reply(THERE);
        assert_eq!((reply.sender, reply.target), (request.target, request.sender));
        assert_eq!((reply.sender_lladdr, reply.target_lladdr), (THERE, HERE));
        assert_eq!(Packet::parse(&reply.emit()), Ok(reply));
    }

    #[test]
    fn a_sender_with_an_invalid_host_address_is_refused() {
        let good = Packet::request(HERE, Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        for sender in ["224.0.0.1", "255.255.255.255", "127.0.0.1", "0.0.0.1", "240.0.0.1"] {
            let bad = Packet { sender: sender.parse().unwrap(), ..good };
            assert_eq!(Packet::parse(&bad.emit()), Err(Refusal::BadSender), "{sender}");
        }
        for lladdr in [[0xff; 6], [1, 0, 0, 0, 0, 1], [0; 6]] {
            let bad = Packet { sender_lladdr: lladdr, ..good };
            assert_eq!(Packet::parse(&bad.emit()), Err(Refusal::BadSender));
        }
        let probe = Packet::probe(HERE, good.target);
        assert_eq!(Packet::parse(&probe.emit()), Ok(probe));
        let without_sender = Packet { operation: Operation::Reply, ..probe };
        assert_eq!(Packet::parse(&without_sender.emit()), Err(Refusal::BadSender));
    }

    #[test]
    fn other_hardware_protocols_lengths_and_operations_are_refused() {
        let good = Packet::request(HERE, Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2)).emit();
        for (place, value) in [(1, 6), (2, 0x86), (4, 8), (5, 16), (7, 3)] {
            let mut bad = good;
            bad[place] = value;
            assert_eq!(Packet::parse(&bad), Err(Refusal::Malformed), "byte {place}");
        }
        assert_eq!(Packet::parse(&good[..27]), Err(Refusal::Malformed));
        // Ethernet pads to 60 bytes.
        assert!(Packet::parse(&[&good[..], &[0; 18]].concat()).is_ok());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            if let Ok(packet) = Packet::parse(&bytes) {
                // Except for meaningless bytes, a parsed packet is emitted unchanged.
                prop_assert_eq!(&packet.emit()[..], &bytes[..LEN]);
            }
        }

        #[test]
        fn a_damaged_request_never_panics(place in 0usize..LEN, value: u8) {
            let mut bytes =
                Packet::request(HERE, Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2)).emit();
            bytes[place] = value;
            if let Ok(packet) = Packet::parse(&bytes) {
                prop_assert_eq!(packet.emit(), bytes);
            }
        }
    }
}
