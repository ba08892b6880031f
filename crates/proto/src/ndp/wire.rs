//! Neighbor Discovery messages as bytes.
//!
//! Reading checks everything that RFC 4861 requires (sections 6.1, 7.1, 8.1): hop limit 255, which no packet from behind
//! a router has, code, checksum, lengths, and which senders and destinations a message may have. The fixed parts are
//! read and written by smoltcp's accessors; options are walked here, as a router may send several prefixes. The bytes
//! may be anything. Tests: `wire/tests.rs`.

#[cfg(test)]
mod tests;

use core::net::Ipv6Addr;
use core::time::Duration;

use smallvec::SmallVec;
use smoltcp::wire::{Icmpv6Message, Icmpv6Packet, NdiscNeighborFlags};

use crate::ip;
use crate::neighbor::LinkAddr;

/// Protocol number of ICMPv6.
pub const PROTOCOL_ICMPV6: u8 = 58;
/// The hop limit of every message.
pub const HOP_LIMIT: u8 = 255;
/// Most prefixes that are taken from one advertisement; more are passed over.
pub const PREFIXES_MAX: usize = 16;

/// A message that has passed the checks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Message {
    /// A host asks for routers.
    RouterSolicit {
        /// Its link-layer address.
        lladdr: Option<LinkAddr>,
    },
    /// A router advertisement.
    RouterAdvert(RouterAdvert),
    /// A host asks for a neighbor, or whether an address is free.
    NeighborSolicit {
        /// The address that is asked for.
        target: Ipv6Addr,
        /// The asker's link-layer address.
        lladdr: Option<LinkAddr>,
        /// Tells a probe of ours that a loop brought back from another's (RFC 7527).
        nonce: Option<Nonce>,
    },
    /// A neighbor says where it is.
    NeighborAdvert(NeighborAdvert),
    /// A router knows a better first hop.
    Redirect {
        /// The better first hop; the destination itself if that is on the link.
        target: Ipv6Addr,
        /// Where to.
        destination: Ipv6Addr,
        /// The target's link-layer address.
        lladdr: Option<LinkAddr>,
    },
}

/// A random number of a probe.
pub type Nonce = [u8; 6];

/// A neighbor advertisement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NeighborAdvert {
    /// The address that is advertised.
    pub target: Ipv6Addr,
    /// Its link-layer address.
    pub lladdr: Option<LinkAddr>,
    /// It is a router.
    pub router: bool,
    /// It was asked.
    pub solicited: bool,
    /// The override flag: the cached address is wrong.
    pub overrides: bool,
}

/// A router advertisement.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RouterAdvert {
    /// The hop limit to use; 0 if it does not say.
    pub hop_limit: u8,
    /// For how long it is a default router; 0: it is none.
    pub lifetime: Duration,
    /// BaseReachableTime; 0 if it does not say.
    pub reachable: Duration,
    /// RetransTimer; 0 if it does not say.
    pub retrans: Duration,
    /// Its link-layer address.
    pub lladdr: Option<LinkAddr>,
    /// The link's MTU, bytes.
    pub mtu: Option<u32>,
    /// The prefixes of the link, and those to make addresses of.
    pub prefixes: SmallVec<[PrefixInfo; 2]>,
}

/// A prefix that a router advertises (RFC 4861 section 4.6.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PrefixInfo {
    /// The prefix; bits behind its length are to be ignored.
    pub prefix: Ipv6Addr,
    /// Its length, bits, at most 128.
    pub len: u8,
    /// Its addresses are on the link.
    pub on_link: bool,
    /// Hosts may make addresses of it.
    pub autonomous: bool,
    /// For how long it holds; [`Duration::MAX`]: for ever.
    pub valid: Duration,
    /// For how long its addresses are preferred, likewise.
    pub preferred: Duration,
}

/// Why a message is dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// Too short, a code that is not 0, or none of these messages.
    Malformed,
    /// An option of no length, or one that ends behind the message.
    OptionLen,
    /// Its checksum is wrong.
    Checksum,
    /// It has come from behind a router, or says that it has.
    HopLimit,
    /// From or to a host that may not send it so, or of an address that cannot be.
    Addresses,
}

/// Reads a message: ICMPv6 from its first byte on.
///
/// # Errors
/// See [`Refusal`].
pub fn parse(src: Ipv6Addr, dst: Ipv6Addr, hop_limit: u8, bytes: &[u8]) -> Result<Message, Refusal> {
    let packet = Icmpv6Packet::new_checked(bytes).map_err(|_| Refusal::Malformed)?;
    let kind = packet.msg_type();
    let fixed_len = match kind {
        Icmpv6Message::RouterSolicit => 8,
        Icmpv6Message::RouterAdvert => 16,
        Icmpv6Message::NeighborSolicit | Icmpv6Message::NeighborAdvert => 24,
        Icmpv6Message::Redirect => 40,
        _ => return Err(Refusal::Malformed),
    };
    if hop_limit != HOP_LIMIT {
        return Err(Refusal::HopLimit);
    }
    if !is_summed_up(src, dst, bytes) {
        return Err(Refusal::Checksum);
    }
    if packet.msg_code() != 0 || bytes.len() < fixed_len {
        return Err(Refusal::Malformed);
    }
    let options = Options::parse(bytes.get(fixed_len..).unwrap_or_default())?;
    let message = match kind {
        Icmpv6Message::RouterSolicit => Message::RouterSolicit { lladdr: options.source },
        Icmpv6Message::RouterAdvert => Message::RouterAdvert(RouterAdvert {
            hop_limit: packet.current_hop_limit(),
            lifetime: packet.router_lifetime().into(),
            reachable: packet.reachable_time().into(),
            retrans: packet.retrans_time().into(),
            lladdr: options.source,
            mtu: options.mtu,
            prefixes: options.prefixes,
        }),
        Icmpv6Message::NeighborSolicit => Message::NeighborSolicit {
            target: packet.target_addr(),
            lladdr: options.source,
            nonce: options.nonce,
        },
        Icmpv6Message::NeighborAdvert => {
            let flags = packet.neighbor_flags();
            Message::NeighborAdvert(NeighborAdvert {
                target: packet.target_addr(),
                lladdr: options.target,
                router: flags.contains(NdiscNeighborFlags::ROUTER),
                solicited: flags.contains(NdiscNeighborFlags::SOLICITED),
                overrides: flags.contains(NdiscNeighborFlags::OVERRIDE),
            })
        }
        _ => Message::Redirect {
            target: packet.target_addr(),
            destination: packet.dest_addr(),
            lladdr: options.target,
        },
    };
    if may_say(src, dst, &message) { Ok(message) } else { Err(Refusal::Addresses) }
}

/// Whether an ICMPv6 message and its pseudo header sum up.
pub(crate) fn is_summed_up(src: Ipv6Addr, dst: Ipv6Addr, bytes: &[u8]) -> bool {
    let Ok(len) = u32::try_from(bytes.len()) else { return false };
    ip::Addresses::V6 { src, dst }.pseudo_header(PROTOCOL_ICMPV6, len).add_bytes(bytes).is_valid()
}

/// The rules about addresses: RFC 4861 sections 6.1.1, 6.1.2, 7.1.1, 7.1.2 and 8.1.
fn may_say(src: Ipv6Addr, dst: Ipv6Addr, message: &Message) -> bool {
    if src.is_multicast() {
        return false;
    }
    match message {
        Message::RouterSolicit { lladdr } => !(src.is_unspecified() && lladdr.is_some()),
        Message::RouterAdvert(_) => is_link_local(src),
        Message::NeighborSolicit { target, lladdr, .. } => {
            let is_probe = src.is_unspecified();
            let probe_is_right = is_solicited_node(dst) && lladdr.is_none();
            is_host(*target) && (!is_probe || probe_is_right)
        }
        Message::NeighborAdvert(advert) => {
            is_host(advert.target) && !src.is_unspecified() && !(dst.is_multicast() && advert.solicited)
        }
        Message::Redirect { target, destination, .. } => {
            is_link_local(src) && is_host(*destination) && (is_link_local(*target) || target == destination)
        }
    }
}

fn is_host(addr: Ipv6Addr) -> bool {
    !addr.is_multicast() && !addr.is_unspecified() && !addr.is_loopback()
}

/// `fe80::/10`.
pub const fn is_link_local(addr: Ipv6Addr) -> bool {
    addr.segments()[0] & 0xffc0 == 0xfe80
}

fn is_solicited_node(addr: Ipv6Addr) -> bool {
    addr.octets()[..13] == [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff]
}

/// Options that we know, of all messages.
#[derive(Default)]
struct Options {
    source: Option<LinkAddr>,
    target: Option<LinkAddr>,
    mtu: Option<u32>,
    nonce: Option<Nonce>,
    prefixes: SmallVec<[PrefixInfo; 2]>,
}

const OPTION_SOURCE: u8 = 1;
const OPTION_TARGET: u8 = 2;
const OPTION_PREFIX: u8 = 3;
const OPTION_MTU: u8 = 5;
/// RFC 3971 section 5.3.2.
const OPTION_NONCE: u8 = 14;

impl Options {
    /// Unknown options, and known ones of another length than theirs, are passed over (RFC 4861 section 4.6).
    fn parse(mut bytes: &[u8]) -> Result<Self, Refusal> {
        let mut options = Self::default();
        while !bytes.is_empty() {
            let &[kind, units, ..] = bytes else { return Err(Refusal::OptionLen) };
            let len = usize::from(units) * 8;
            if len == 0 {
                return Err(Refusal::OptionLen);
            }
            let (option, rest) = bytes.split_at_checked(len).ok_or(Refusal::OptionLen)?;
            options.take(kind, option);
            bytes = rest;
        }
        Ok(options)
    }

    fn take(&mut self, kind: u8, option: &[u8]) {
        let six = || option.get(2..8)?.try_into().ok().filter(|_| option.len() == 8);
        match kind {
            OPTION_SOURCE => self.source = six().or(self.source),
            OPTION_TARGET => self.target = six().or(self.target),
            OPTION_NONCE => self.nonce = six().or(self.nonce),
            OPTION_MTU if option.len() == 8 => self.mtu = word(option, 4),
            OPTION_PREFIX if option.len() == 32 && self.prefixes.len() < PREFIXES_MAX => {
                self.prefixes.extend(prefix_info(option));
            }
            _ => {}
        }
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn prefix_info(option: &[u8]) -> Option<PrefixInfo> {
    let lifetime = |at| {
        let seconds = word(option, at)?;
        Some(if seconds == u32::MAX { Duration::MAX } else { Duration::from_secs(u64::from(seconds)) })
    };
    let octets: [u8; 16] = option.get(16..32)?.try_into().ok()?;
    let (len, flags) = (*option.get(2)?, *option.get(3)?);
    (len <= 128).then_some(PrefixInfo {
        prefix: octets.into(),
        len,
        on_link: flags & 0x80 != 0,
        autonomous: flags & 0x40 != 0,
        valid: lifetime(4)?,
        preferred: lifetime(8)?,
    })
}

/// A whole IPv6 packet with a message that a host sends. `None` for messages that only routers send.
pub fn emit(src: Ipv6Addr, dst: Ipv6Addr, message: &Message) -> Option<Vec<u8>> {
    let mut body = [0; 40];
    let mut packet = Icmpv6Packet::new_unchecked(&mut body[..]);
    let (fixed_len, kind, lladdr, nonce) = match message {
        Message::RouterSolicit { lladdr } => (8, Icmpv6Message::RouterSolicit, lladdr, None),
        Message::NeighborSolicit { target, lladdr, nonce } => {
            packet.set_target_addr(*target);
            (24, Icmpv6Message::NeighborSolicit, lladdr, *nonce)
        }
        Message::NeighborAdvert(advert) => {
            let mut flags = NdiscNeighborFlags::empty();
            flags.set(NdiscNeighborFlags::ROUTER, advert.router);
            flags.set(NdiscNeighborFlags::SOLICITED, advert.solicited);
            flags.set(NdiscNeighborFlags::OVERRIDE, advert.overrides);
            packet.set_neighbor_flags(flags);
            packet.set_target_addr(advert.target);
            (24, Icmpv6Message::NeighborAdvert, &advert.lladdr, None)
        }
        Message::RouterAdvert(_) | Message::Redirect { .. } => return None,
    };
    packet.set_msg_type(kind);
    let mut bytes = body.get(..fixed_len)?.to_vec();
    if let Some(lladdr) = lladdr {
        let of = if kind == Icmpv6Message::NeighborAdvert { OPTION_TARGET } else { OPTION_SOURCE };
        bytes.extend([of, 1]);
        bytes.extend(lladdr);
    }
    if let Some(nonce) = nonce {
        bytes.extend([OPTION_NONCE, 1]);
        bytes.extend(nonce);
    }
    sealed(src, dst, bytes)
}

/// An ICMPv6 message with its checksum, in an IPv6 packet of [`HOP_LIMIT`].
pub(crate) fn sealed(src: Ipv6Addr, dst: Ipv6Addr, mut body: Vec<u8>) -> Option<Vec<u8>> {
    let addresses = ip::Addresses::V6 { src, dst };
    seal_checksum(src, dst, &mut body)?;
    let header = ip::Header {
        addresses,
        protocol: PROTOCOL_ICMPV6,
        hop_limit: HOP_LIMIT,
        traffic_class: 0,
        flow_label: 0,
    };
    let mut bytes = vec![0; ip::V6_HEADER_LEN];
    ip::emit(&header, body.len(), &mut bytes).ok()?;
    bytes.append(&mut body);
    Some(bytes)
}

/// Fills in the checksum of an ICMPv6 message, whose field has to be 0.
pub(crate) fn seal_checksum(src: Ipv6Addr, dst: Ipv6Addr, body: &mut [u8]) -> Option<()> {
    let len = u32::try_from(body.len()).ok()?;
    let sum = ip::Addresses::V6 { src, dst }.pseudo_header(PROTOCOL_ICMPV6, len).add_bytes(body);
    body.get_mut(2..4)?.copy_from_slice(&sum.checksum().to_be_bytes());
    Some(())
}
