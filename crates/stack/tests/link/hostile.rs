//! Floods and arbitrary bytes on the link: bounds hold, and connections in use keep working.

use std::net::Ipv4Addr;
use std::time::Duration;

use proptest::prelude::*;
use sockeye::netif::MacAddr;
use sockeye_proto::arp;
use sockeye_proto::ip::Addresses;
use sockeye_proto::neighbor::{INCOMPLETE_MAX, LEARNED_MAX};

use crate::lab::{ALL, ARP, IPV4, IPV6, Lab, frame, mac};

const SECOND: Duration = Duration::from_secs(1);

fn host(number: u32) -> Ipv4Addr {
    Ipv4Addr::from(0x0a00_0000 + number)
}

#[test]
fn a_flood_of_arp_requests_from_forged_senders_stays_within_its_bound() {
    let mut lab = Lab::new(&[&["10.0.0.1/8"], &["10.0.0.2/8"]]);
    lab.pass(Duration::from_secs(15));
    let (mut client, mut server) = lab.connected("10.0.0.2:80");
    assert!(lab.ping(&mut client, &mut server, SECOND));
    for number in 1000..21_000u32 {
        let [_, b, c, d] = number.to_be_bytes();
        let forged = arp::Packet::request([2, 9, 9, b, c, d], host(number), host(1));
        lab.inject(0, frame(ALL, mac(5), ARP, &forged.emit()));
        if number % 500 == 0 {
            lab.turn();
        }
    }
    lab.turn();
    assert_eq!(lab.stacks[0].neighbors().len(), 1 + LEARNED_MAX);
    let (solicits, slow) = (lab.count(0, "neighbor_solicits_out"), lab.count(0, "neighbor_slow_lookups"));
    assert!(lab.ping(&mut client, &mut server, SECOND));
    assert_eq!(lab.neighbor(0, "10.0.0.2").unwrap().lladdr, Some(mac(1)));
    assert_eq!(lab.count(0, "neighbor_solicits_out"), solicits);
    assert_eq!(lab.count(0, "neighbor_slow_lookups"), slow);
}

#[test]
fn a_flood_of_packets_to_absent_hosts_stays_within_its_bound_and_gives_its_memory_back() {
    let mut lab = Lab::new(&[&["10.0.0.1/8"], &["10.0.0.2/8"]]);
    lab.pass(Duration::from_secs(15));
    let (mut client, mut server) = lab.connected("10.0.0.2:80");
    assert!(lab.ping(&mut client, &mut server, SECOND));
    for number in 1000..3000u32 {
        drop(lab.connect(&format!("{}:80", host(number))));
        assert!(lab.stacks[0].neighbors().len() <= 1 + INCOMPLETE_MAX);
    }
    assert!(lab.ping(&mut client, &mut server, SECOND));
    lab.pass(Duration::from_secs(10));
    assert_eq!(lab.stacks[0].neighbors().len(), 1);
    drop((client, server));
    lab.pass(Duration::from_secs(200));
    assert_eq!(lab.stacks[0].memory_in_use(), 0);
}

#[test]
fn claiming_a_broadcast_address_diverts_no_broadcast() {
    let mut lab = Lab::new(&[&["10.0.0.1/24"], &["10.0.0.2/24"]]);
    lab.pass(Duration::from_secs(15));
    for sender in ["10.0.0.255", "10.0.0.0", "255.255.255.255", "240.0.0.1", "0.1.2.3", "127.0.0.1"] {
        let refused = lab.count(0, "arp_bad_sender");
        let forged = arp::Packet::request([2, 9, 9, 9, 9, 9], sender.parse().unwrap(), host(1));
        lab.inject(0, frame(ALL, mac(5), ARP, &forged.emit()));
        lab.turn();
        assert!(lab.neighbor(0, sender).is_none(), "{sender}");
        assert_eq!(lab.count(0, "arp_bad_sender"), refused + 1, "{sender}");
    }
}

/// Bytes with the right checksum for where they go, so that they get past it.
fn summed(family: u8, mut body: Vec<u8>) -> Vec<u8> {
    body[2..4].fill(0);
    let addresses = Addresses::new("fe80::9".parse().unwrap(), "ff02::1".parse().unwrap()).unwrap();
    let sum = match family {
        4 => sockeye_proto::ip::Sum::ZERO,
        _ => addresses.pseudo_header(58, body.len() as u32),
    };
    let checksum = sum.add_bytes(&body).checksum();
    body[2..4].copy_from_slice(&checksum.to_be_bytes());
    body
}

pub fn packet(src: &str, dst: &str, protocol: u8, hop_limit: u8, body: &[u8]) -> Vec<u8> {
    let addresses = Addresses::new(src.parse().unwrap(), dst.parse().unwrap()).unwrap();
    let header =
        sockeye_proto::ip::Header { addresses, protocol, hop_limit, traffic_class: 0, flow_label: 0 };
    let mut packet = vec![0; addresses.header_len()];
    sockeye_proto::ip::emit(&header, body.len(), &mut packet).unwrap();
    packet.extend(body);
    packet
}

fn arbitrary_frame() -> impl Strategy<Value = Vec<u8>> {
    let bytes = || prop::collection::vec(any::<u8>(), 8..90);
    let nodes = MacAddr([0x33, 0x33, 0, 0, 0, 1]);
    let hosts = MacAddr([1, 0, 0x5e, 0, 0, 1]);
    prop_oneof![
        (bytes(), any::<bool>()).prop_map(|(bytes, well_begun)| {
            let mut bytes = bytes;
            if well_begun {
                bytes[..8].copy_from_slice(&[0, 1, 8, 0, 6, 4, 0, 1]);
            }
            frame(ALL, mac(9), ARP, &bytes)
        }),
        (bytes(), 133u8..138).prop_map(move |(mut bytes, kind)| {
            (bytes[0], bytes[1]) = (kind, 0);
            frame(nodes, mac(9), IPV6, &packet("fe80::9", "ff02::1", 58, 255, &summed(6, bytes)))
        }),
        (bytes(), prop::sample::select(vec![130u8, 131, 132, 143])).prop_map(move |(mut bytes, kind)| {
            bytes[0] = kind;
            frame(nodes, mac(9), IPV6, &packet("fe80::9", "ff02::1", 58, 1, &summed(6, bytes)))
        }),
        (bytes(), prop::sample::select(vec![0x11u8, 0x12, 0x16, 0x22])).prop_map(move |(mut bytes, kind)| {
            bytes[0] = kind;
            frame(hosts, mac(9), IPV4, &packet("10.0.0.9", "224.0.0.1", 2, 1, &summed(4, bytes)))
        }),
        bytes().prop_map(|bytes| bytes),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    /// Nothing panics, the connection is undisturbed, tables stay within bounds, memory is returned.
    #[test]
    fn arbitrary_frames_change_no_other_state(frames in prop::collection::vec(arbitrary_frame(), 1..150)) {
        let mut lab = Lab::pair();
        // Set by hand, so that a lucky forgery does not cut the connection.
        lab.stacks[0].set_neighbor(lab.ids[0], "10.0.0.2".parse().unwrap(), mac(1)).unwrap();
        let (mut client, mut server) = lab.connected("10.0.0.2:80");
        for frame in frames {
            lab.inject(0, frame);
        }
        lab.turn();
        prop_assert!(lab.ping(&mut client, &mut server, SECOND));
        prop_assert!(lab.stacks[0].neighbors().len() <= 2 + LEARNED_MAX);
        drop((client, server));
        lab.pass(Duration::from_secs(300));
        prop_assert_eq!(lab.stacks[0].memory_in_use(), 0);
    }
}
