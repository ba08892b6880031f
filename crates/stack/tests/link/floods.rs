//! Floods of Neighbor Discovery, of routers and of queries: tables keep their bounds, answers their rate, and connections
//! in use keep working. Floods of ARP: `hostile.rs`.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use sockeye::UdpSocket;
use sockeye::netif::MacAddr;
use sockeye_proto::group::RESPONSE_GAP;
use sockeye_proto::ip::{Addresses, PROTOCOL_ICMPV6, PROTOCOL_IGMP};
use sockeye_proto::ndp::host::{ADDRESSES_MAX, ON_LINK_MAX, ROUTERS_MAX};
use sockeye_proto::neighbor::LEARNED_MAX;

use crate::hostile::packet;
use crate::lab::{IPV4, IPV6, Lab, frame, mac};

const SECOND: Duration = Duration::from_secs(1);
const ALL_NODES: MacAddr = MacAddr([0x33, 0x33, 0, 0, 0, 1]);
const ALL_HOSTS: MacAddr = MacAddr([1, 0, 0x5e, 0, 0, 1]);

/// A neighbor of the link that does not exist.
fn forged(number: u32) -> Ipv6Addr {
    let [a, b, c, d] = number.to_be_bytes();
    Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 9, u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]))
}

/// Its Ethernet address.
fn forged_mac(number: u32) -> [u8; 6] {
    let [a, b, c, d] = number.to_be_bytes();
    [2, 9, a, b, c, d]
}

/// An ICMPv6 message with the checksum that it needs, as a frame.
fn message(src: &str, dst: &str, to: MacAddr, hop_limit: u8, mut body: Vec<u8>) -> Vec<u8> {
    let addresses = Addresses::new(src.parse().unwrap(), dst.parse().unwrap()).unwrap();
    let sum = addresses.pseudo_header(PROTOCOL_ICMPV6, body.len() as u32).add_bytes(&body);
    body[2..4].copy_from_slice(&sum.checksum().to_be_bytes());
    frame(to, mac(8), IPV6, &packet(src, dst, PROTOCOL_ICMPV6, hop_limit, &body))
}

/// A pair of hosts, and a connection between them that is used before `flood` and after it, without new solicitations.
fn beside_a_connection(flood: impl FnOnce(&mut Lab)) -> Lab {
    let mut lab = Lab::pair();
    let (mut client, mut server) = lab.connected("[fd00::2]:80");
    assert!(lab.ping(&mut client, &mut server, SECOND));
    let slow = lab.count(0, "neighbor_slow_lookups");
    flood(&mut lab);
    assert!(lab.ping(&mut client, &mut server, SECOND));
    assert_eq!(lab.neighbor(0, "fd00::2").unwrap().lladdr, Some(mac(1)));
    assert_eq!(lab.count(0, "neighbor_slow_lookups"), slow);
    assert_eq!(lab.stacks[0].memory_in_use(), 0);
    lab
}

#[test]
fn solicitations_from_forged_neighbors_are_answered_and_few_create_entries() {
    const COUNT: u32 = 20_000;
    let lab = beside_a_connection(|lab| {
        let before = lab.count(0, "neighbor_solicits_out");
        for number in 0..COUNT {
            let mut body = vec![135, 0, 0, 0, 0, 0, 0, 0];
            body.extend("fd00::1".parse::<Ipv6Addr>().unwrap().octets());
            body.extend([1, 1]);
            body.extend(forged_mac(number));
            lab.inject(0, message(&forged(number).to_string(), "fd00::1", mac(0), 255, body));
            if number % 500 == 0 {
                lab.turn();
            }
        }
        lab.turn();
        let learned = lab.stacks[0].neighbors().len();
        assert!((LEARNED_MAX..=LEARNED_MAX + 4).contains(&learned), "{learned} neighbors");
        assert_eq!(lab.count(0, "neighbor_solicits_out"), before, "no neighbor is solicited");
    });
    assert!(lab.count(0, "neighbor_adverts_out") >= u64::from(COUNT));
}

#[test]
fn unsolicited_advertisements_create_no_neighbors() {
    let lab = beside_a_connection(|lab| {
        let known = lab.stacks[0].neighbors().len();
        for number in 0..20_000 {
            let addr = forged(number);
            let mut body = vec![136, 0, 0, 0, 0x60, 0, 0, 0];
            body.extend(addr.octets());
            body.extend([2, 1]);
            body.extend(forged_mac(number));
            lab.inject(0, message(&addr.to_string(), "fd00::1", mac(0), 255, body));
            if number % 500 == 0 {
                lab.turn();
            }
        }
        lab.turn();
        assert_eq!(lab.stacks[0].neighbors().len(), known);
    });
    assert!(lab.count(0, "ndp_in") >= 20_000);
    assert_eq!(lab.count(0, "ndp_refused"), 0);
}

#[test]
fn endless_routers_and_prefixes_only_fill_their_tables() {
    let lab = beside_a_connection(|lab| {
        let (routes, addresses) = (lab.stacks[0].routes().len(), lab.stacks[0].addresses().len());
        for number in 0..2000u32 {
            // Each time a new router with a new prefix, with infinite lifetimes.
            let mut body = vec![134, 0, 0, 0, 64, 0, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0];
            body.extend([1, 1]);
            body.extend(forged_mac(number));
            body.extend([3, 4, 64, 0xc0]);
            body.extend([0xff; 8]);
            body.extend([0; 4]);
            body.extend(Ipv6Addr::new(0x2001, 0xdb8, 0, number as u16, 0, 0, 0, 0).octets());
            lab.inject(0, message(&forged(number).to_string(), "ff02::1", ALL_NODES, 255, body));
            if number % 100 == 0 {
                lab.turn();
            }
        }
        lab.turn();
        let stack = &lab.stacks[0];
        // Each address brings the route to its network along.
        assert!(stack.routes().len() <= routes + ROUTERS_MAX + ON_LINK_MAX + ADDRESSES_MAX);
        assert!(stack.addresses().len() <= addresses + ADDRESSES_MAX);
        assert!(stack.routes().len() >= routes + ROUTERS_MAX, "some were believed");
    });
    assert_eq!(lab.count(0, "router_adverts_in"), 2000);
}

#[test]
fn endless_queries_are_answered_ten_times_a_second() {
    // Together with the steps before it less than the 15 s after which a neighbor may have to be probed (RFC 4861 section 6.3.2).
    const SECONDS: u64 = 9;
    let groups = |lab: &Lab| {
        let socket = UdpSocket::bind_on(&lab.stacks[0], "[::]:5000").unwrap();
        for last in 0..30u16 {
            let group = Ipv4Addr::new(239, 1, 2, last as u8);
            socket.join_multicast_v4(&group, &Ipv4Addr::new(10, 0, 0, 1)).unwrap();
            let group = Ipv6Addr::new(0xff05, 0, 0, 0, 0, 0, 0, 0x100 + last);
            socket.join_multicast_v6(&group, lab.ids[0].interface_index()).unwrap();
        }
        socket
    };
    // To be answered at once: all groups, and one of them.
    let igmp = |group: [u8; 4]| {
        let mut body = vec![0x11, 0, 0, 0];
        body.extend(group);
        body.extend([0, 0, 0, 0]);
        let checksum = sockeye_proto::ip::Sum::of(&body).checksum();
        body[2..4].copy_from_slice(&checksum.to_be_bytes());
        frame(ALL_HOSTS, mac(8), IPV4, &packet("10.0.0.9", "224.0.0.1", PROTOCOL_IGMP, 1, &body))
    };
    let mld = |group: Ipv6Addr| {
        let mut body = vec![130, 0, 0, 0, 0, 0, 0, 0];
        body.extend(group.octets());
        body.extend([0, 0, 0, 0]);
        message("fe80::9", "ff02::1", ALL_NODES, 1, body)
    };
    let mut kept = None;
    let lab = beside_a_connection(|lab| {
        kept = Some(groups(lab));
        lab.pass(SECOND * 5);
        let (before, heard) = (lab.count(0, "group_messages_out"), lab.count(0, "group_messages_in"));
        for number in 0..SECONDS * 1000 {
            let one = (number % 30) as u8;
            lab.inject(0, igmp([0; 4]));
            lab.inject(0, igmp([239, 1, 2, one]));
            lab.inject(0, mld(Ipv6Addr::UNSPECIFIED));
            lab.inject(0, mld(Ipv6Addr::new(0xff05, 0, 0, 0, 0, 0, 0, 0x100 + u16::from(one))));
            lab.pass(Duration::from_millis(1));
        }
        assert_eq!(lab.count(0, "group_messages_in") - heard, SECONDS * 4000);
        let sent = lab.count(0, "group_messages_out") - before;
        let most = 2 * (Duration::from_secs(SECONDS).as_millis() / RESPONSE_GAP.as_millis() + 2) as u64;
        assert!((most / 2..=most).contains(&sent), "{sent} reports");
    });
    drop(kept);
    assert_eq!(lab.count(0, "group_messages_refused"), 0);
}
