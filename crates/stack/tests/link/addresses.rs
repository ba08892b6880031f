//! Addresses of our own: probed, announced, defended, given up.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use sockeye::netif::{Addressing, LinkOptions, MacAddr};
use sockeye_proto::arp;
use sockeye_proto::ndp::wire::{self, Message, NeighborAdvert};

use crate::lab::{ALL, ARP, IPV6, Lab, ethertype, frame, in_a_fragment, mac};

/// The ARP packets that the host at port 0 has sent, without times: only their order matters.
fn arps(lab: &mut Lab) -> Vec<arp::Packet> {
    let log = lab.take_log();
    log.iter()
        .filter(|(from, frame)| *from == 0 && ethertype(frame) == ARP)
        .map(|(_, frame)| arp::Packet::parse(&frame[14..]).unwrap())
        .collect()
}

/// Probes of IPv6 addresses by the host at port 0.
fn probes(lab: &mut Lab) -> Vec<Ipv6Addr> {
    let log = lab.take_log();
    log.iter()
        .filter(|(from, frame)| *from == 0 && ethertype(frame) == IPV6 && frame[20] == 58)
        .filter_map(|(_, frame)| {
            let addr = |at: usize| Ipv6Addr::from(<[u8; 16]>::try_from(&frame[at..at + 16]).unwrap());
            match wire::parse(addr(22), addr(38), frame[21], &frame[54..]) {
                Ok(Message::NeighborSolicit { target, lladdr: None, nonce: Some(_) }) => Some(target),
                _ => None,
            }
        })
        .collect()
}

#[test]
fn an_ipv4_address_is_probed_three_times_and_announced_twice() {
    let mut lab = Lab::new(&[&["10.0.0.1/24"]]);
    lab.pass(Duration::from_secs(15));
    let addr = "10.0.0.1".parse().unwrap();
    let (probe, announcement) =
        (arp::Packet::probe(mac(0).0, addr), arp::Packet::announcement(mac(0).0, addr));
    assert_eq!(arps(&mut lab), [probe, probe, probe, announcement, announcement]);
    assert_eq!(lab.count(0, "address_conflicts"), 0);
}

#[test]
fn without_detection_an_address_is_only_announced() {
    let options = LinkOptions { detect_duplicates: false, ..LinkOptions::default() };
    let mut lab = Lab::with(&[&["10.0.0.1/24"]], &options);
    lab.pass(Duration::from_secs(15));
    let announcement = arp::Packet::announcement(mac(0).0, "10.0.0.1".parse().unwrap());
    assert_eq!(arps(&mut lab), [announcement, announcement]);
}

#[test]
fn an_address_that_answers_a_probe_is_abandoned() {
    let mut lab = Lab::new(&[&["10.0.0.1/24"]]);
    lab.pass(Duration::from_millis(1500));
    let theirs = arp::Packet {
        operation: arp::Operation::Reply,
        sender_lladdr: mac(9).0,
        sender: "10.0.0.1".parse().unwrap(),
        target_lladdr: mac(0).0,
        target: "0.0.0.0".parse().unwrap(),
    };
    lab.inject(0, frame(mac(0), mac(9), ARP, &theirs.emit()));
    lab.turn();
    assert_eq!(lab.count(0, "address_conflicts"), 1);
    lab.take_log();
    lab.pass(Duration::from_secs(20));
    // Neither announced nor answered for.
    let request = arp::Packet::request(mac(7).0, "10.0.0.7".parse().unwrap(), "10.0.0.1".parse().unwrap());
    lab.inject(0, frame(ALL, mac(7), ARP, &request.emit()));
    lab.turn();
    assert_eq!(arps(&mut lab), []);
}

#[test]
fn an_address_in_use_is_defended_once_in_ten_seconds() {
    let mut lab = Lab::new(&[&["10.0.0.1/24"]]);
    lab.pass(Duration::from_secs(15));
    lab.take_log();
    let claim = arp::Packet::announcement(mac(9).0, "10.0.0.1".parse().unwrap());
    let defence = arp::Packet::announcement(mac(0).0, "10.0.0.1".parse().unwrap());
    for expected in [vec![defence], vec![]] {
        lab.inject(0, frame(ALL, mac(9), ARP, &claim.emit()));
        lab.pass(Duration::from_secs(3));
        assert_eq!(arps(&mut lab), expected);
    }
    assert_eq!(lab.count(0, "address_conflicts"), 2);
}

#[test]
fn a_link_local_address_that_is_in_use_is_replaced() {
    let mut lab = Lab::new(&[&[]]);
    let mut seen = Vec::new();
    for _ in 0..4 {
        while seen.len() < 10 {
            let found = probes(&mut lab);
            if let Some(target) = found.last() {
                seen.push(*target);
                break;
            }
            lab.pass(Duration::from_millis(100));
        }
        let target = *seen.last().unwrap();
        let advert = NeighborAdvert {
            target,
            lladdr: Some(mac(9).0),
            router: false,
            solicited: false,
            overrides: true,
        };
        // The owner announces the address from the address itself.
        let packet =
            wire::emit(target, "ff02::1".parse().unwrap(), &Message::NeighborAdvert(advert)).unwrap();
        lab.inject(0, frame(MacAddr([0x33, 0x33, 0, 0, 0, 1]), mac(9), IPV6, &packet));
        lab.turn();
    }
    assert_eq!(lab.count(0, "address_conflicts"), 4);
    assert!((1..4).all(|place| !seen[..place].contains(&seen[place])), "{seen:?}");
    lab.pass(Duration::from_secs(5));
    assert_eq!(probes(&mut lab), [] as [Ipv6Addr; 0], "there are no more to try");
}

#[test]
fn another_hosts_probe_for_the_same_address_is_a_conflict_and_our_own_looped_back_is_not() {
    let options = LinkOptions { addressing: Addressing::Eui64, ..LinkOptions::default() };
    let mut lab = Lab::with(&[&[]], &options);
    let target: Ipv6Addr = "fe80::ff:fe00:1".parse().unwrap();
    let is_probe = |frame: &[u8]| {
        ethertype(frame) == IPV6 && frame[20] == 58 && frame[54] == 135 && frame[62..78] == target.octets()
    };
    // In small steps: a second after its probe the address is not tentative any more.
    let ours = (0..11).find_map(|_| {
        lab.pass(Duration::from_millis(100));
        lab.take_log().into_iter().map(|(_, frame)| frame).find(|frame| is_probe(frame))
    });
    let ours = ours.expect("a probe within a second");
    // By a loop: once as it was, once with another sender on the link.
    lab.inject(0, ours.clone());
    let mut relayed = ours;
    relayed[6..12].copy_from_slice(&mac(8).0);
    lab.inject(0, relayed);
    lab.turn();
    assert_eq!(lab.count(0, "address_conflicts"), 0);
    let probe = Message::NeighborSolicit { target, lladdr: None, nonce: Some([9; 6]) };
    let group = sockeye_proto::ndp::solicited_node(target);
    let packet = wire::emit(Ipv6Addr::UNSPECIFIED, group, &probe).unwrap();
    let probe = frame(MacAddr([0x33, 0x33, 0xff, 0, 0, 1]), mac(8), IPV6, &packet);
    for (probe, conflicts) in [(in_a_fragment(probe.clone()), 0), (probe, 1)] {
        lab.inject(0, probe);
        lab.turn();
        assert_eq!(lab.count(0, "address_conflicts"), conflicts);
    }
}

#[test]
fn joined_groups_are_reported_to_the_routers_of_the_link() {
    let mut lab = Lab::new(&[&["fd00::1/64"]]);
    lab.pass(Duration::from_secs(15));
    let log = lab.take_log();
    let reports: Vec<_> =
        log.iter().map(|(_, frame)| frame).filter(|frame| frame[20] == 0 && frame[62] == 143).collect();
    assert!(!reports.is_empty() && lab.count(0, "group_messages_out") >= 2);
    let group: Ipv6Addr = "ff02::1:ff00:1".parse().unwrap();
    assert!(reports.iter().any(|frame| frame.windows(16).any(|part| part == group.octets())));
    assert!(reports.iter().all(|frame| frame[..6] == [0x33, 0x33, 0, 0, 0, 0x16]));
}

/// Whether the host at port 0 answers another that asks for its link-layer address.
fn is_answered(lab: &mut Lab, addr: &str) -> bool {
    let asked = match addr.parse().unwrap() {
        IpAddr::V4(v4) => {
            frame(ALL, mac(7), ARP, &arp::Packet::request(mac(7).0, "10.0.0.7".parse().unwrap(), v4).emit())
        }
        IpAddr::V6(target) => {
            let group = sockeye_proto::ndp::solicited_node(target);
            let ask = Message::NeighborSolicit { target, lladdr: Some(mac(7).0), nonce: None };
            let packet = wire::emit("fd00::7".parse().unwrap(), group, &ask).unwrap();
            let [.., a, b, c, d] = group.octets();
            frame(MacAddr([0x33, 0x33, a, b, c, d]), mac(7), IPV6, &packet)
        }
    };
    let before = lab.count(0, "neighbor_adverts_out");
    lab.inject(0, asked);
    lab.turn();
    lab.count(0, "neighbor_adverts_out") > before
}

/// Whether the host at port 0 has reported the group of those who ask for `target`.
fn reports_group_of(lab: &mut Lab, target: &str) -> bool {
    let group = sockeye_proto::ndp::solicited_node(target.parse().unwrap()).octets();
    let log = lab.take_log();
    let reports = log.iter().map(|(_, frame)| frame).filter(|frame| frame[20] == 0 && frame[62] == 143);
    reports.clone().any(|frame| frame.windows(16).any(|part| part == group))
}

#[test]
fn an_address_that_is_added_is_probed_and_answered_as_one_of_attach() {
    let mut lab = Lab::new(&[&["10.0.0.1/24", "fd00::1/64"]]);
    lab.pass(Duration::from_secs(15));
    assert!(!is_answered(&mut lab, "10.0.0.9") && !is_answered(&mut lab, "fd00::9"));
    lab.take_log();
    let (id, v4) = (lab.ids[0], "10.0.0.9".parse().unwrap());
    lab.stacks[0].add_address(id, "10.0.0.9/24".parse().unwrap()).unwrap();
    lab.pass(Duration::from_secs(15));
    let (probe, announcement) = (arp::Packet::probe(mac(0).0, v4), arp::Packet::announcement(mac(0).0, v4));
    assert_eq!(arps(&mut lab), [probe, probe, probe, announcement, announcement]);
    for twice in ["fd00::9/64", "10.0.0.9/24"] {
        lab.stacks[0].add_address(id, "fd00::9/64".parse().unwrap()).err();
        let again = lab.stacks[0].add_address(id, twice.parse().unwrap()).unwrap_err();
        assert_eq!(again.kind(), ErrorKind::InvalidInput);
    }
    lab.pass(Duration::from_millis(1500));
    assert_eq!(probes(&mut lab), ["fd00::9".parse::<Ipv6Addr>().unwrap()]);
    assert!(is_answered(&mut lab, "10.0.0.9") && is_answered(&mut lab, "fd00::9"));
    lab.pass(Duration::from_secs(15));
    lab.take_log();
    lab.stacks[0].add_address(id, "fd00::8/64".parse().unwrap()).unwrap();
    lab.pass(Duration::from_secs(15));
    assert!(reports_group_of(&mut lab, "fd00::8"));
}

#[test]
fn an_address_that_is_removed_is_neither_answered_nor_defended() {
    let mut lab = Lab::new(&[&["10.0.0.1/24", "10.0.0.2/24", "fd00::1/64", "fd00::2/64"]]);
    lab.pass(Duration::from_secs(15));
    for (gone, stays) in [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")] {
        assert!(is_answered(&mut lab, gone) && is_answered(&mut lab, stays));
        lab.stacks[0].remove_address(gone.parse().unwrap()).unwrap();
        assert!(!is_answered(&mut lab, gone) && is_answered(&mut lab, stays));
        let again = lab.stacks[0].remove_address(gone.parse().unwrap()).unwrap_err();
        assert_eq!(again.kind(), ErrorKind::NotFound);
    }
    lab.pass(Duration::from_secs(15));
    assert!(reports_group_of(&mut lab, "fd00::1"), "the host has left it");
    let claim = arp::Packet::announcement(mac(9).0, "10.0.0.1".parse().unwrap());
    lab.inject(0, frame(ALL, mac(9), ARP, &claim.emit()));
    lab.pass(Duration::from_secs(3));
    assert_eq!((arps(&mut lab), lab.count(0, "address_conflicts")), (vec![], 0));
}

#[test]
fn an_address_that_was_anothers_can_be_added_again_and_is_probed_again() {
    let mut lab = Lab::new(&[&["10.0.0.1/24"]]);
    let v4 = "10.0.0.1".parse().unwrap();
    lab.pass(Duration::from_millis(1500));
    let claim = arp::Packet::announcement(mac(9).0, v4);
    lab.inject(0, frame(ALL, mac(9), ARP, &claim.emit()));
    lab.pass(Duration::from_secs(15));
    assert!(lab.stacks[0].addresses().iter().all(|own| own.prefix.addr() != IpAddr::V4(v4)));
    lab.take_log();
    lab.stacks[0].add_address(lab.ids[0], "10.0.0.1/24".parse().unwrap()).unwrap();
    lab.pass(Duration::from_secs(15));
    let (probe, announcement) = (arp::Packet::probe(mac(0).0, v4), arp::Packet::announcement(mac(0).0, v4));
    assert_eq!(arps(&mut lab), [probe, probe, probe, announcement, announcement]);
    assert!(is_answered(&mut lab, "10.0.0.1"));
}
