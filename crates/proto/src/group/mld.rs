//! MLD messages as bytes (RFC 2710, 3810). The bytes may be anything. Tests: `group/tests.rs`.

use core::net::{IpAddr, Ipv6Addr};
use core::time::Duration;

use super::igmp::record_kind;
use super::{Level, Query, Record, Send, floating};
use crate::ip;
use crate::ndp::ALL_ROUTERS;
use crate::ndp::wire::{PROTOCOL_ICMPV6, is_link_local, is_summed_up, seal_checksum};

pub use super::igmp::{Message, Refusal};

const QUERY: u8 = 130;
const REPORT_V1: u8 = 131;
const DONE: u8 = 132;
const REPORT_V2: u8 = 143;

/// Whether an ICMPv6 type is one of these messages.
pub const fn is_mld(kind: u8) -> bool {
    matches!(kind, QUERY | REPORT_V1 | DONE | REPORT_V2)
}

/// Reads a message: ICMPv6 from its first byte on (RFC 3810 section 5.1.14).
///
/// # Errors
/// See [`Refusal`].
pub fn parse(src: Ipv6Addr, dst: Ipv6Addr, hop_limit: u8, bytes: &[u8]) -> Result<Message, Refusal> {
    let Some((&[kind, _, _, _, code_high, code_low, _, _], rest)) = bytes.split_first_chunk() else {
        return Err(Refusal::Malformed);
    };
    let group = Ipv6Addr::from(*rest.first_chunk::<16>().ok_or(Refusal::Malformed)?);
    if hop_limit != 1 {
        return Err(Refusal::OffLink);
    }
    if !is_summed_up(src, dst, bytes) {
        return Err(Refusal::Checksum);
    }
    let code = u16::from_be_bytes([code_high, code_low]);
    match kind {
        QUERY | REPORT_V1 if !is_link_local(src) => Err(Refusal::OffLink),
        QUERY => {
            let asked = (!group.is_unspecified()).then_some(IpAddr::V6(group));
            if asked.is_some_and(|group| !group.is_multicast()) {
                return Err(Refusal::Group);
            }
            let (level, millis) = match bytes.len() {
                28.. => (Level::Current, floating(code, 16)),
                24 => (Level::Older, u32::from(code)),
                _ => return Err(Refusal::Malformed),
            };
            let robustness = bytes.get(24).map_or(0, |byte| byte & 7);
            let max_response = Duration::from_millis(u64::from(millis));
            Ok(Message::Query(Query { level, group: asked, max_response, robustness }))
        }
        REPORT_V1 if group.is_multicast() => Ok(Message::Report(group.into())),
        REPORT_V1 => Err(Refusal::Group),
        DONE | REPORT_V2 => Ok(Message::Other),
        _ => Err(Refusal::Malformed),
    }
}

/// Where version 2's reports go.
const ROUTERS_V2: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x16);
/// Records of one report, so that it fits the smallest MTU.
const RECORDS_MAX: usize = super::igmp::RECORDS_MAX;

/// The IPv6 packets of the reports to be sent, each with its destination. `src` is the interface's link-local
/// address, or unspecified while it has none.
pub fn emit(src: Ipv6Addr, send: &Send) -> Vec<(Ipv6Addr, Vec<u8>)> {
    let old = |kind: u8, group: &Ipv6Addr| {
        let mut body = vec![kind, 0, 0, 0, 0, 0, 0, 0];
        body.extend(group.octets());
        body
    };
    let one = |dst: Ipv6Addr, body| packet(src, dst, body).map(|bytes| (dst, bytes)).into_iter().collect();
    match send {
        Send::Report(records) => {
            let reports = records.chunks(RECORDS_MAX);
            reports.filter_map(|part| Some((ROUTERS_V2, packet(src, ROUTERS_V2, report(part))?))).collect()
        }
        Send::Older(_, IpAddr::V6(group)) => one(*group, old(REPORT_V1, group)),
        Send::Leave(IpAddr::V6(group)) => one(ALL_ROUTERS, old(DONE, group)),
        Send::Older(_, IpAddr::V4(_)) | Send::Leave(IpAddr::V4(_)) => Vec::new(),
    }
}

/// RFC 3810 section 5.2.
fn report(records: &[(IpAddr, Record)]) -> Vec<u8> {
    let mut body = vec![REPORT_V2, 0, 0, 0, 0, 0, 0, 0];
    let mut count = 0u16;
    for (group, record) in records {
        if let IpAddr::V6(group) = group {
            body.extend([record_kind(*record), 0, 0, 0]);
            body.extend(group.octets());
            count += 1;
        }
    }
    body[6..8].copy_from_slice(&count.to_be_bytes());
    body
}

/// A packet with a hop limit of 1 and the router alert option (RFC 2711) in a hop-by-hop header.
fn packet(src: Ipv6Addr, dst: Ipv6Addr, mut body: Vec<u8>) -> Option<Vec<u8>> {
    seal_checksum(src, dst, &mut body)?;
    let addresses = ip::Addresses::V6 { src, dst };
    let header =
        ip::Header { addresses, protocol: HOP_BY_HOP, hop_limit: 1, traffic_class: 0, flow_label: 0 };
    let mut bytes = vec![0; ip::V6_HEADER_LEN];
    ip::emit(&header, ROUTER_ALERT.len() + body.len(), &mut bytes).ok()?;
    bytes.extend(ROUTER_ALERT);
    bytes.append(&mut body);
    Some(bytes)
}

const HOP_BY_HOP: u8 = 0;
/// Next header, length, router alert (5) for MLD, padding.
const ROUTER_ALERT: [u8; 8] = [PROTOCOL_ICMPV6, 0, 5, 2, 0, 0, 1, 0];
