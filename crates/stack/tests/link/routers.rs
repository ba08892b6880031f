//! Router advertisements: solicited, accepted, expired.

use std::net::Ipv6Addr;
use std::time::Duration;

use sockeye::UdpSocket;
use sockeye::netif::{Addressing, LinkOptions, MacAddr};
use sockeye_proto::ip;
use sockeye_proto::ndp::solicited_node;
use sockeye_proto::ndp::wire::{self, Message};
use sockeye_proto::tcp::wire as tcp;

use crate::lab::{IPV6, Lab, ethertype, frame, in_a_fragment, mac};

const ROUTER: &str = "fe80::99";
const ALL_NODES: MacAddr = MacAddr([0x33, 0x33, 0, 0, 0, 1]);

/// An advertisement of a prefix with these lifetimes, seconds.
fn advert(lifetime: u16, prefix: &str, valid: u32, preferred: u32) -> Vec<u8> {
    let mut body = vec![134, 0, 0, 0, 64, 0];
    body.extend(lifetime.to_be_bytes());
    body.extend([0; 8]);
    body.extend([1, 1]);
    body.extend(mac(0x98).0);
    body.extend([3, 4, 64, 0xc0]);
    body.extend(valid.to_be_bytes());
    body.extend(preferred.to_be_bytes());
    body.extend([0; 4]);
    body.extend(prefix.parse::<Ipv6Addr>().unwrap().octets());
    sealed(body)
}

/// An advertisement of a hop limit and an MTU.
fn numbers(hop_limit: u8, mtu: u32) -> Vec<u8> {
    let mut body = vec![134, 0, 0, 0, hop_limit, 0, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0, 5, 1, 0, 0];
    body.extend(mtu.to_be_bytes());
    sealed(body)
}

/// The router's message, with its checksum, as a frame to all nodes.
fn sealed(mut body: Vec<u8>) -> Vec<u8> {
    let addresses =
        ip::Addresses::new(ROUTER.parse().unwrap(), "ff02::1".parse().unwrap()).expect("one family");
    let sum = addresses.pseudo_header(58, body.len() as u32).add_bytes(&body);
    body[2..4].copy_from_slice(&sum.checksum().to_be_bytes());
    let header = ip::Header { addresses, protocol: 58, hop_limit: 255, traffic_class: 0, flow_label: 0 };
    let mut packet = vec![0; 40];
    ip::emit(&header, body.len(), &mut packet).unwrap();
    packet.extend(body);
    frame(ALL_NODES, mac(0x98), IPV6, &packet)
}

fn lab() -> Lab {
    let options = LinkOptions { addressing: Addressing::Eui64, ..LinkOptions::default() };
    Lab::with(&[&[]], &options)
}

fn solicits(lab: &mut Lab) -> usize {
    let log = lab.take_log();
    log.iter().filter(|(_, frame)| ethertype(frame) == IPV6 && frame[20] == 58 && frame[54] == 133).count()
}

#[test]
fn routers_are_solicited_three_times_and_no_more_after_an_answer() {
    let mut silent = lab();
    silent.pass(Duration::from_secs(60));
    assert_eq!(solicits(&mut silent), 3);
    let mut answered = lab();
    answered.pass(Duration::from_millis(1100));
    assert_eq!(solicits(&mut answered), 1);
    answered.inject(0, advert(1800, "2001:db8::", 7200, 3600));
    answered.pass(Duration::from_secs(60));
    assert_eq!(solicits(&mut answered), 0);
}

#[test]
fn an_advertised_prefix_gives_an_address_and_a_default_route() {
    let mut lab = lab();
    lab.pass(Duration::from_secs(2));
    lab.inject(0, advert(1800, "2001:db8::", 7200, 3600));
    lab.pass(Duration::from_secs(3));
    assert_eq!(lab.count(0, "router_adverts_in"), 1);
    let neighbor = lab.neighbor(0, ROUTER).unwrap();
    assert!(neighbor.is_router && neighbor.lladdr == Some(mac(0x98)));
    lab.take_log();
    // A SYN to a remote host is sent to the router, from the new address.
    let _far = lab.connect("[2001:db8:ffff::1]:80");
    lab.turn();
    let log = lab.take_log();
    let syn = log.iter().map(|(_, frame)| frame).find(|frame| frame[20] == 6).expect("a SYN");
    assert_eq!(syn[..6], mac(0x98).0);
    assert_eq!(syn[22..38], "2001:db8::ff:fe00:1".parse::<Ipv6Addr>().unwrap().octets());
}

#[test]
fn an_advertisement_in_a_fragment_is_refused() {
    let mut lab = lab();
    lab.pass(Duration::from_secs(2));
    lab.inject(0, in_a_fragment(advert(1800, "2001:db8::", 7200, 3600)));
    lab.pass(Duration::from_secs(3));
    let counted = ["ip_reasm_oks", "ndp_refused", "ndp_fragmented", "router_adverts_in"];
    assert_eq!(counted.map(|name| lab.count(0, name)), [1, 1, 1, 0]);
    assert_eq!(lab.stacks[0].addresses().len(), 1, "only the link-local one");
}

/// The packets of the stack at port 0 for a SYN and a datagram of 1,400 bytes from two sockets: hop limits, lengths, MSS.
fn sent_with(lab: &mut Lab, dst: &str) -> (Vec<(u8, usize)>, u16) {
    lab.take_log();
    let socket = UdpSocket::bind_on(&lab.stacks[0], "[::]:0").unwrap();
    let _syn = lab.connect(&format!("[{dst}]:80"));
    socket.send_to(&[1; 1400], format!("[{dst}]:9")).unwrap();
    lab.turn();
    let dst = dst.parse::<Ipv6Addr>().unwrap().octets();
    let log = lab.take_log().into_iter().map(|(_, frame)| frame);
    let sent: Vec<_> = log.filter(|frame| ethertype(frame) == IPV6 && frame[38..54] == dst).collect();
    let syn = sent.iter().find(|frame| frame[20] == 6).unwrap();
    let (_, header, _) = tcp::parse(&syn[54..], tcp::ChecksumIn::Trusted).unwrap();
    let of_udp = sent.iter().filter(|frame| frame[20] != 6).map(|frame| (frame[21], frame.len() - 14));
    (std::iter::once((syn[21], 0)).chain(of_udp).collect(), header.options.mss.unwrap())
}

#[test]
fn an_advertised_hop_limit_and_mtu_apply_to_ipv6() {
    let mut lab = Lab::with(&[&["10.0.0.1/24", "fd00::1/64"]], &LinkOptions::default());
    lab.stacks[0].set_neighbor(lab.ids[0], "fd00::2".parse().unwrap(), mac(7)).unwrap();
    lab.stacks[0].set_neighbor(lab.ids[0], "10.0.0.2".parse().unwrap(), mac(7)).unwrap();
    lab.pass(Duration::from_secs(3));
    assert_eq!(sent_with(&mut lab, "fd00::2"), (vec![(64, 0), (64, 1448)], 1440));
    lab.inject(0, numbers(99, 1400));
    lab.turn();
    let (sent, mss) = sent_with(&mut lab, "fd00::2");
    assert_eq!((sent.len(), mss), (3, 1340), "the datagram is sent in two fragments");
    assert!(sent.iter().all(|(hops, len)| *hops == 99 && *len <= 1400), "{sent:?}");

    // An option of the socket overrides them, and IPv4 has values of its own.
    let socket = UdpSocket::bind_on(&lab.stacks[0], "[::]:0").unwrap();
    socket.set_unicast_hops_v6(64).unwrap();
    socket.send_to(&[1; 100], "[fd00::2]:9").unwrap();
    let v4 = UdpSocket::bind_on(&lab.stacks[0], "0.0.0.0:0").unwrap();
    v4.send_to(&[1; 1472], "10.0.0.2:9").unwrap();
    lab.turn();
    let log = lab.take_log();
    let [(_, v6), (_, v4)] = &log[..] else { panic!("{} frames", log.len()) };
    assert_eq!((v6[21], v4[22], v4.len()), (64, 64, 1514));

    // Impossible values are ignored: too few hops, an MTU out of bounds.
    for (hop_limit, mtu) in [(1, 1279), (31, 1501), (0, 0)] {
        lab.inject(0, numbers(hop_limit, mtu));
        lab.turn();
        assert_eq!(sent_with(&mut lab, "fd00::2"), (sent.clone(), 1340));
    }
}

#[test]
fn a_router_says_in_its_neighbor_advertisements_that_it_is_one() {
    for router in [false, true] {
        let options = LinkOptions { router, detect_duplicates: false, ..LinkOptions::default() };
        let mut lab = Lab::with(&[&["fd00::1/64"]], &options);
        let (target, asker): (Ipv6Addr, Ipv6Addr) = ("fd00::1".parse().unwrap(), "fd00::7".parse().unwrap());
        let ask = Message::NeighborSolicit { target, lladdr: Some(mac(7).0), nonce: None };
        let packet = wire::emit(asker, solicited_node(target), &ask).unwrap();
        let group = MacAddr([0x33, 0x33, 0xff, 0, 0, 1]);
        lab.take_log();
        lab.inject(0, frame(group, mac(7), IPV6, &packet));
        lab.turn();
        let said = lab.take_log().into_iter().find_map(|(_, frame)| {
            let is_advert = ethertype(&frame) == IPV6 && frame[20] == 58 && frame[54] == 136;
            is_advert.then(|| frame[58] & 0x80 != 0)
        });
        assert_eq!(said, Some(router));
    }
}
