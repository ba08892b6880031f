//! IGMP messages as bytes (RFC 1112, 2236, 3376). The bytes may be anything. Tests: `group/tests.rs`.

use core::net::{IpAddr, Ipv4Addr};
use core::time::Duration;

use smoltcp::wire::IgmpPacket;

use super::{Level, Query, Record, Send, floating};
use crate::ip::Sum;

/// Protocol number of IGMP.
pub const PROTOCOL: u8 = 2;

/// A message that concerns hosts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Message {
    /// A router asks.
    Query(Query),
    /// Another host reports a group, in version 1 or 2.
    Report(IpAddr),
    /// Of no concern to us: version 3's reports, leaves.
    Other,
}

/// Why a message is dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// Of a length that it cannot have (RFC 3376 section 7.1), or of no kind that there is (MLD).
    Malformed,
    /// Its checksum is wrong.
    Checksum,
    /// It may have come from behind a router: by its hop limit, its destination (IGMP), or its source (MLD).
    OffLink,
    /// It names an address that is no group.
    Group,
}

const QUERY: u8 = 0x11;
const REPORT_V1: u8 = 0x12;
const REPORT_V2: u8 = 0x16;
const LEAVE: u8 = 0x17;
const REPORT_V3: u8 = 0x22;

/// Reads a message of a packet to `dst`. All have a TTL of 1 (RFC 3376 section 4). A sender behind routers can choose one of which 1 is left here, so a
/// message must be to 224.0.0.1, which they never forward, or to the group that it is about. A query about a group, which
/// multicast routers may forward, does not change the version (section 7.2.1).
///
/// # Errors
/// See [`Refusal`].
pub fn parse(dst: Ipv4Addr, ttl: u8, bytes: &[u8]) -> Result<Message, Refusal> {
    let packet = IgmpPacket::new_checked(bytes).map_err(|_| Refusal::Malformed)?;
    if ttl != 1 {
        return Err(Refusal::OffLink);
    }
    if !Sum::of(bytes).is_valid() {
        return Err(Refusal::Checksum);
    }
    let kind = *bytes.first().ok_or(Refusal::Malformed)?;
    let (code, group) = (packet.max_resp_code(), packet.group_addr());
    let is_for = |to: Ipv4Addr| if dst == to || dst == ALL_HOSTS { Ok(()) } else { Err(Refusal::OffLink) };
    match kind {
        QUERY => {
            let asked = (!group.is_unspecified()).then_some(IpAddr::V4(group));
            if asked.is_some_and(|group| !group.is_multicast()) {
                return Err(Refusal::Group);
            }
            is_for(if asked.is_some() { group } else { ALL_HOSTS })?;
            let (level, tenths) = match (bytes.len(), code) {
                (12.., _) => (Level::Current, floating(u16::from(code), 8)),
                (8, _) if asked.is_some() => (Level::Current, u32::from(code)),
                (8, 0) => (Level::Oldest, V1_RESPONSE_TENTHS),
                (8, _) => (Level::Older, u32::from(code)),
                // RFC 3376 section 7.1: others are ignored.
                _ => return Err(Refusal::Malformed),
            };
            let robustness = bytes.get(8).map_or(0, |byte| byte & 7);
            let max_response = Duration::from_millis(100) * tenths;
            Ok(Message::Query(Query { level, group: asked, max_response, robustness }))
        }
        REPORT_V1 | REPORT_V2 if group.is_multicast() => {
            is_for(group)?;
            Ok(Message::Report(group.into()))
        }
        REPORT_V1 | REPORT_V2 => Err(Refusal::Group),
        _ => Ok(Message::Other),
    }
}

/// Version 1's answers come within 10 s (RFC 2236 section 4).
const V1_RESPONSE_TENTHS: u32 = 100;
/// Where version 3's reports go.
const ROUTERS_V3: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 22);
/// The group of all hosts of the link.
const ALL_HOSTS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 1);
/// The group of all routers.
const ALL_ROUTERS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 2);
/// Records of one report, so that it fits the smallest MTU.
pub(super) const RECORDS_MAX: usize = 50;

/// The IPv4 packets of the reports to be sent, each with its destination.
pub fn emit(src: Ipv4Addr, send: &Send) -> Vec<(Ipv4Addr, Vec<u8>)> {
    let old = |kind: u8, group: Ipv4Addr| {
        let mut body = vec![kind, 0, 0, 0];
        body.extend(group.octets());
        body
    };
    match send {
        Send::Report(records) => {
            let reports = records.chunks(RECORDS_MAX);
            reports.map(|records| (ROUTERS_V3, packet(src, ROUTERS_V3, report(records)))).collect()
        }
        Send::Older(level, IpAddr::V4(group)) => {
            let kind = if *level == Level::Oldest { REPORT_V1 } else { REPORT_V2 };
            vec![(*group, packet(src, *group, old(kind, *group)))]
        }
        Send::Leave(IpAddr::V4(group)) => vec![(ALL_ROUTERS, packet(src, ALL_ROUTERS, old(LEAVE, *group)))],
        Send::Older(_, IpAddr::V6(_)) | Send::Leave(IpAddr::V6(_)) => Vec::new(),
    }
}

/// RFC 3376 section 4.2.
fn report(records: &[(IpAddr, Record)]) -> Vec<u8> {
    let mut body = vec![REPORT_V3, 0, 0, 0, 0, 0, 0, 0];
    let mut count = 0u16;
    for (group, record) in records {
        if let IpAddr::V4(group) = group {
            body.extend([record_kind(*record), 0, 0, 0]);
            body.extend(group.octets());
            count += 1;
        }
    }
    body[6..8].copy_from_slice(&count.to_be_bytes());
    body
}

/// The record's type, the same in IGMPv3 and MLDv2.
pub(super) fn record_kind(record: Record) -> u8 {
    match record {
        Record::IsMember => 2,
        Record::Joins => 4,
        Record::Leaves => 3,
    }
}

/// A packet with a TTL of 1 and the router alert option (RFC 2113), whose checksums are complete.
fn packet(src: Ipv4Addr, dst: Ipv4Addr, mut body: Vec<u8>) -> Vec<u8> {
    let checksum = Sum::of(&body).checksum();
    body[2..4].copy_from_slice(&checksum.to_be_bytes());
    let total = u16::try_from(HEADER_LEN + body.len()).unwrap_or(u16::MAX);
    let mut bytes = vec![0x46, 0xc0, 0, 0, 0, 0, 0x40, 0, 1, PROTOCOL, 0, 0];
    bytes[2..4].copy_from_slice(&total.to_be_bytes());
    bytes.extend(src.octets());
    bytes.extend(dst.octets());
    bytes.extend(ROUTER_ALERT);
    let checksum = Sum::of(&bytes).checksum();
    bytes[10..12].copy_from_slice(&checksum.to_be_bytes());
    bytes.append(&mut body);
    bytes
}

/// An IPv4 header with the router alert option, bytes.
pub(super) const HEADER_LEN: usize = 24;
const ROUTER_ALERT: [u8; 4] = [0x94, 4, 0, 0];
