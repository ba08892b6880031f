//! Tests of membership, with a clock that jumps, and of the messages. smoltcp's parser reads the messages written here.

use super::igmp::Message;
use super::*;
use core::net::{Ipv4Addr, Ipv6Addr};
use proptest::prelude::*;
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{Icmpv6Packet, Icmpv6Repr, IgmpPacket, IgmpRepr, Ipv4Packet, Ipv6Packet, MldRepr};

const GROUP: IpAddr = IpAddr::V4(Ipv4Addr::new(239, 1, 2, 3));
const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(239, 1, 2, 4));
const ALL_HOSTS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 1);
const GROUP_V6: Ipv6Addr = Ipv6Addr::new(0xff05, 0, 0, 0, 0, 0, 0, 7);

fn at(millis: u64) -> Instant {
    Instant::from_micros(1_000_000) + Duration::from_millis(millis)
}

fn query(level: Level, group: Option<IpAddr>) -> Query {
    Query { level, group, max_response: Duration::from_secs(10), robustness: 0 }
}

/// Everything that is sent from now on, with its time in milliseconds.
fn sent(membership: &mut Membership, random: u16) -> Vec<(u64, Send)> {
    let mut seen = Vec::new();
    while let Some(due) = membership.deadline() {
        let millis = due.since(at(0)).as_millis() as u64;
        seen.extend(membership.on_timer(due, || random).into_iter().map(|send| (millis, send)));
        assert!(seen.len() < 50);
    }
    seen
}

#[test]
fn joining_and_leaving_are_reported_twice_within_a_second() {
    let mut membership = Membership::new();
    assert!(membership.join(GROUP, at(0)) && membership.has(&GROUP));
    let report = |record| Send::Report(vec![(GROUP, record)]);
    assert_eq!(sent(&mut membership, 0x8000), [(0, report(Record::Joins)), (500, report(Record::Joins))]);
    assert!(membership.join(GROUP, at(1000)), "another socket");
    assert!(sent(&mut membership, 0).is_empty());
    assert!(membership.leave(GROUP, at(2000)) && membership.has(&GROUP));
    assert!(sent(&mut membership, 0).is_empty());
    assert!(membership.leave(GROUP, at(3000)) && !membership.has(&GROUP));
    assert_eq!(
        sent(&mut membership, 0x8000),
        [(3000, report(Record::Leaves)), (3500, report(Record::Leaves))]
    );
    assert!(!membership.leave(GROUP, at(4000)));
    assert_eq!(membership.list().count(), 0);
}

#[test]
fn queries_that_arrive_faster_than_allowed_answers_are_answered_together() {
    let mut membership = Membership::new();
    membership.join(GROUP, at(0));
    membership.join(OTHER, at(0));
    sent(&mut membership, 0);
    let at_once = |group| Query { max_response: Duration::ZERO, ..query(Level::Current, group) };
    let mut answered = Vec::new();
    for millis in 2000..2200 {
        membership.on_query(
            &at_once([None, Some(GROUP), Some(OTHER)][millis as usize % 3]),
            at(millis),
            || 0,
        );
        let due = membership.deadline().filter(|due| *due <= at(millis));
        answered.extend(due.map(|due| (millis, membership.on_timer(due, || 0).len())));
    }
    assert_eq!(answered, [(2000, 1), (2100, 1)]);
}

#[test]
fn a_general_query_is_answered_once_for_all_groups_and_a_specific_one_for_its_own() {
    let mut membership = Membership::new();
    membership.join(GROUP, at(0));
    membership.join(OTHER, at(0));
    sent(&mut membership, 0);
    membership.on_query(&query(Level::Current, None), at(0), || 0x8000);
    let all = Send::Report(vec![(GROUP, Record::IsMember), (OTHER, Record::IsMember)]);
    assert_eq!(sent(&mut membership, 0), [(5000, all)]);
    membership.on_query(&query(Level::Current, Some(OTHER)), at(6000), || 0x4000);
    assert_eq!(sent(&mut membership, 0), [(8500, Send::Report(vec![(OTHER, Record::IsMember)]))]);
    let absent = IpAddr::V4(Ipv4Addr::new(239, 9, 9, 9));
    membership.on_query(&query(Level::Current, Some(absent)), at(9000), || 0);
    assert!(sent(&mut membership, 0).is_empty());
}

#[test]
fn an_older_querier_is_answered_in_its_version_until_it_is_silent_for_long() {
    let mut membership = Membership::new();
    membership.join(GROUP, at(0));
    sent(&mut membership, 0);
    membership.on_query(&query(Level::Older, None), at(0), || 0);
    assert_eq!(sent(&mut membership, 0), [(0, Send::Older(Level::Older, GROUP))]);
    membership.leave(GROUP, at(100));
    assert_eq!(sent(&mut membership, 0), [(100, Send::Leave(GROUP))]);
    membership.on_query(&query(Level::Oldest, None), at(200), || 0);
    membership.join(GROUP, at(200));
    let reports = sent(&mut membership, 0);
    assert!(reports.iter().all(|(_, send)| *send == Send::Older(Level::Oldest, GROUP)), "{reports:?}");
    membership.leave(GROUP, at(300));
    assert!(sent(&mut membership, 0).is_empty(), "version 1 does not leave");
    assert_eq!(membership.level(at(260_199)), Level::Oldest);
    assert_eq!(membership.level(at(260_200)), Level::Current);
}

#[test]
fn another_hosts_report_in_an_older_version_is_enough() {
    let mut membership = Membership::new();
    membership.join(GROUP, at(0));
    sent(&mut membership, 0);
    membership.on_query(&query(Level::Older, Some(GROUP)), at(0), || 0x8000);
    membership.on_report(&GROUP);
    assert!(sent(&mut membership, 0).is_empty());
    membership.leave(GROUP, at(100));
    assert!(sent(&mut membership, 0).is_empty(), "our report was not the last one");
}

#[test]
fn groups_of_all_nodes_are_joined_and_not_reported() {
    let mut membership = Membership::new();
    for group in ["224.0.0.1", "ff02::1", "ff01::5"] {
        let group: IpAddr = group.parse().unwrap();
        assert!(membership.join(group, at(0)) && membership.has(&group));
        assert_eq!(membership.deadline(), None);
        assert!(membership.leave(group, at(0)) && !membership.has(&group));
    }
    assert!(!membership.join("10.0.0.1".parse().unwrap(), at(0)));
}

#[test]
fn groups_are_bounded() {
    let mut membership = Membership::new();
    let group = |number: usize| IpAddr::V4(Ipv4Addr::from(0xef00_0000 + number as u32));
    assert!((0..GROUPS_MAX).all(|number| membership.join(group(number), at(0))));
    assert!(!membership.join(group(GROUPS_MAX), at(0)) && membership.join(group(0), at(0)));
}

#[test]
fn a_queriers_robustness_is_adopted() {
    let mut membership = Membership::new();
    membership.on_query(&Query { robustness: 4, ..query(Level::Current, None) }, at(0), || 0);
    sent(&mut membership, 0);
    membership.join(GROUP, at(0));
    assert_eq!(sent(&mut membership, 0x8000).len(), 4);
}

#[test]
fn response_times_in_floating_point_are_those_of_the_rfcs() {
    assert_eq!([floating(127, 8), floating(0x80, 8), floating(0xff, 8)], [127, 128, 31744]);
    assert_eq!([floating(0x7fff, 16), floating(0x8000, 16), floating(0xffff, 16)], [32767, 32768, 8_387_584]);
}

fn v4_body(mut body: Vec<u8>) -> Vec<u8> {
    let checksum = crate::ip::Sum::of(&body).checksum();
    body[2..4].copy_from_slice(&checksum.to_be_bytes());
    body
}

#[test]
fn igmp_queries_are_distinguished_by_length_and_code() {
    let level = |body| match igmp::parse(ALL_HOSTS, 1, &v4_body(body)) {
        Ok(Message::Query(query)) => Some((query.level, query.max_response.as_millis())),
        _ => None,
    };
    assert_eq!(level(vec![0x11, 0, 0, 0, 0, 0, 0, 0]), Some((Level::Oldest, 10_000)));
    assert_eq!(level(vec![0x11, 100, 0, 0, 0, 0, 0, 0]), Some((Level::Older, 10_000)));
    assert_eq!(level(vec![0x11, 20, 0, 0, 0, 0, 0, 0, 2, 125, 0, 0]), Some((Level::Current, 2000)));
    assert_eq!(level(vec![0x11, 100, 0, 0, 0, 0, 0, 0, 0, 0]), None);
    assert_eq!(level(vec![0x11, 100, 0, 0, 10, 0, 0, 1]), None);
    let report = v4_body(vec![0x16, 0, 0, 0, 239, 1, 2, 3]);
    assert_eq!(igmp::parse(ALL_HOSTS, 1, &report), Ok(Message::Report(GROUP)));
    let mut damaged = report;
    damaged[7] ^= 1;
    assert_eq!(igmp::parse(ALL_HOSTS, 1, &damaged), Err(igmp::Refusal::Checksum));
}

#[test]
fn igmp_messages_from_behind_a_router_are_refused() {
    let query = v4_body(vec![0x11, 0, 0, 0, 0, 0, 0, 0]);
    let Ok(Message::Query(_)) = igmp::parse(ALL_HOSTS, 1, &query) else { panic!("it is a query") };
    let (host, group) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(239, 1, 2, 3));
    for (dst, ttl) in [(ALL_HOSTS, 0), (ALL_HOSTS, 2), (ALL_HOSTS, 64), (host, 1), (group, 1)] {
        assert_eq!(igmp::parse(dst, ttl, &query), Err(igmp::Refusal::OffLink), "{dst} {ttl}");
    }
    // About a group: only to that group, and in no older version from then on.
    for kind in [0x11, 0x12, 0x16] {
        let message = v4_body(vec![kind, 0, 0, 0, 239, 1, 2, 3]);
        for dst in [host, Ipv4Addr::new(239, 1, 2, 4)] {
            assert_eq!(igmp::parse(dst, 1, &message), Err(igmp::Refusal::OffLink), "{kind} {dst}");
        }
        match igmp::parse(group, 1, &message) {
            Ok(Message::Query(query)) => {
                assert_eq!((query.level, query.group), (Level::Current, Some(GROUP)))
            }
            read => assert_eq!(read, Ok(Message::Report(GROUP))),
        }
    }
}

#[test]
fn igmp_packets_are_whole_and_read_by_smoltcp() {
    let src = Ipv4Addr::new(10, 0, 0, 1);
    for (send, dst) in [
        (Send::Older(Level::Older, GROUP), "239.1.2.3"),
        (Send::Leave(GROUP), "224.0.0.2"),
        (Send::Report(vec![(GROUP, Record::Joins)]), "224.0.0.22"),
    ] {
        let [(to, bytes)] = &igmp::emit(src, &send)[..] else { panic!("{send:?}") };
        assert_eq!(to.to_string(), dst);
        let packet = Ipv4Packet::new_checked(&bytes[..]).unwrap();
        assert!(packet.verify_checksum() && packet.hop_limit() == 1 && packet.dst_addr() == *to);
        assert_eq!(bytes[20..24], [0x94, 4, 0, 0]);
        let body = IgmpPacket::new_checked(packet.payload()).unwrap();
        assert!(body.verify_checksum());
        match send {
            Send::Older(..) => assert!(matches!(
                IgmpRepr::parse(&body),
                Ok(IgmpRepr::MembershipReport { group_addr, .. }) if IpAddr::V4(group_addr) == GROUP
            )),
            Send::Leave(_) => assert!(matches!(IgmpRepr::parse(&body), Ok(IgmpRepr::LeaveGroup { .. }))),
            Send::Report(_) => assert_eq!(packet.payload()[6..], [0, 1, 4, 0, 0, 0, 239, 1, 2, 3]),
        }
    }
}

#[test]
fn mld_packets_are_whole_and_read_by_smoltcp() {
    let src: Ipv6Addr = "fe80::1".parse().unwrap();
    let send = Send::Report(vec![(GROUP_V6.into(), Record::Joins)]);
    let [(dst, bytes)] = &mld::emit(src, &send)[..] else { panic!() };
    let packet = Ipv6Packet::new_checked(&bytes[..]).unwrap();
    assert_eq!((packet.hop_limit(), bytes[40], bytes[42..44].to_vec()), (1, 58, vec![5, 2]));
    let icmp = Icmpv6Packet::new_checked(&packet.payload()[8..]).unwrap();
    let repr = Icmpv6Repr::parse(&src, dst, &icmp, &ChecksumCapabilities::default()).unwrap();
    assert!(matches!(repr, Icmpv6Repr::Mld(MldRepr::Report { nr_mcast_addr_rcrds: 1, .. })), "{repr:?}");
    assert_eq!(mld::parse(src, *dst, 1, &bytes[48..]), Ok(Message::Other));
    let older = Send::Older(Level::Older, GROUP_V6.into());
    let [(dst, bytes)] = &mld::emit(src, &older)[..] else { panic!() };
    assert_eq!(
        (*dst, mld::parse(src, *dst, 1, &bytes[48..])),
        (GROUP_V6, Ok(Message::Report(GROUP_V6.into())))
    );
    assert_eq!(mld::parse(src, *dst, 2, &bytes[48..]), Err(mld::Refusal::OffLink), "from behind a router");
    let done = &mld::emit(src, &Send::Leave(GROUP_V6.into()))[..];
    assert!(matches!(done, [(dst, _)] if *dst == crate::ndp::ALL_ROUTERS));
}

#[test]
fn many_groups_are_reported_in_packets_that_fit() {
    let records: Vec<_> = (0..GROUPS_MAX as u32)
        .map(|number| (IpAddr::V6((u128::from(GROUP_V6) + u128::from(number)).into()), Record::IsMember))
        .collect();
    let packets = mld::emit("fe80::1".parse().unwrap(), &Send::Report(records));
    assert!(packets.iter().all(|(_, bytes)| bytes.len() <= 1280));
    assert_eq!(packets.len(), 6);
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(mut bytes in prop::collection::vec(any::<u8>(), 0..64), kind: u8) {
        let (src, dst): (Ipv6Addr, _) = ("fe80::1".parse().unwrap(), crate::ndp::ALL_NODES);
        let _ = (igmp::parse(ALL_HOSTS, 1, &bytes), mld::parse(src, dst, 1, &bytes));
        if bytes.len() >= 8 {
            bytes[0] = kind;
            bytes[2..4].fill(0);
            let _ = igmp::parse(ALL_HOSTS, 1, &v4_body(bytes.clone()));
            bytes[0] = [130, 131, 132, 143][usize::from(kind % 4)];
            bytes[2..4].fill(0);
            crate::ndp::wire::seal_checksum(src, dst, &mut bytes).unwrap();
            let _ = mld::parse(src, dst, 1, &bytes);
        }
    }

    /// For any joins, leaves and queries, members are counted correctly, and reports end.
    #[test]
    fn arbitrary_events_keep_the_count(events in prop::collection::vec((0u8..4, 0u8..4, 0u64..3000), 1..100)) {
        let mut membership = Membership::new();
        let (mut now, mut counts) = (at(0), [0u32; 4]);
        for (kind, number, wait) in events {
            let group = IpAddr::V4(Ipv4Addr::new(239, 0, 0, number));
            let count = &mut counts[usize::from(number)];
            match kind {
                0 => { prop_assert!(membership.join(group, now)); *count += 1; }
                1 => { prop_assert_eq!(membership.leave(group, now), *count > 0); *count = count.saturating_sub(1); }
                2 => membership.on_query(
                    &query([Level::Current, Level::Older, Level::Oldest][usize::from(number % 3)], None), now, || 77),
                _ => { now = now + Duration::from_millis(wait); membership.on_timer(now, || 99); }
            }
            prop_assert_eq!(membership.has(&group), counts[usize::from(number)] > 0);
        }
        let mut turns = 0;
        while let Some(due) = membership.deadline() {
            now = now.max(due);
            membership.on_timer(now, || 1);
            turns += 1;
            prop_assert!(turns < 1000);
        }
    }
}
