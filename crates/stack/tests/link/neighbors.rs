//! Neighbors that are found, disappear, return, and are set by hand.

use std::io::ErrorKind;
use std::time::Duration;

use sockeye::netif::NeighborState;
use sockeye::{UdpSocket, Unsent};
use sockeye_proto::arp;
use sockeye_proto::ndp::wire::{self, Message};

use crate::lab::{ARP, IPV6, Lab, ethertype, mac};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn two_hosts_find_each_other_in_both_families() {
    for (addr, theirs) in [("10.0.0.2:80", "10.0.0.2"), ("[fd00::2]:80", "fd00::2")] {
        let mut lab = Lab::pair();
        lab.take_log();
        let (mut client, mut server) = lab.connected(addr);
        assert!(lab.ping(&mut client, &mut server, SECOND));
        let neighbor = lab.neighbor(0, theirs).unwrap();
        assert_eq!((neighbor.lladdr, neighbor.state), (Some(mac(1)), NeighborState::Reachable));
        // The other side has learned our address from our request, and progress of TCP has confirmed it.
        assert_eq!(lab.count(0, "neighbor_solicits_out"), 1);
        assert_eq!(lab.count(1, "neighbor_adverts_out"), 1);
        assert_eq!(lab.count(1, "neighbor_solicits_out"), 0);
        let log = lab.take_log();
        let to_them = log.iter().filter(|(from, frame)| *from == 0 && frame[..6] == mac(1).0);
        assert!(to_them.count() >= 3, "segments go to the neighbor alone");
    }
}

#[test]
fn an_absent_host_is_asked_for_three_times_a_second_apart() {
    for (addr, theirs) in [("10.0.0.9:80", "10.0.0.9"), ("[fd00::9]:80", "fd00::9")] {
        let mut lab = Lab::pair();
        lab.take_log();
        let stream = lab.connect(addr);
        lab.turn();
        assert_eq!(lab.neighbor(0, theirs).unwrap().state, NeighborState::Incomplete);
        // The SYN is repeated after one second, and after three more; it waits behind the first.
        lab.pass(Duration::from_millis(2900));
        assert_eq!(lab.count(0, "neighbor_solicits_out"), 3);
        lab.pass(Duration::from_millis(200));
        assert_eq!(lab.neighbor(0, theirs), None);
        assert_eq!(lab.count(0, "neighbor_unreachable"), 1);
        assert!(lab.count(0, "neighbor_pending_dropped") >= 1);
        let asked = |(from, frame): &(usize, Vec<u8>)| *from == 0 && is_solicit(frame);
        assert_eq!(lab.take_log().iter().filter(|sent| asked(sent)).count(), 3);
        drop(stream);
    }
}

#[test]
fn a_datagram_to_an_absent_host_is_reported_also_if_it_was_sent_in_fragments() {
    for (any, to) in [("0.0.0.0:0", "10.0.0.9:9"), ("[::]:0", "[fd00::9]:9")] {
        for len in [100, 3000] {
            let mut lab = Lab::pair();
            let socket = UdpSocket::bind_on(&lab.stacks[0], any).unwrap();
            socket.set_recv_err(true).unwrap();
            socket.send_to(&vec![1; len], to).unwrap();
            lab.pass(4 * SECOND);
            let report = socket.recv_err(&mut []).map(|error| error.what);
            assert_eq!(report, Some(Unsent::HostUnreachable), "{len} bytes to {to}");
        }
    }
}

fn is_solicit(frame: &[u8]) -> bool {
    match ethertype(frame) {
        ARP => {
            arp::Packet::parse(&frame[14..]).is_ok_and(|packet| packet.operation == arp::Operation::Request)
        }
        IPV6 => frame[20] == 58 && frame[54] == 135,
        _ => false,
    }
}

#[test]
fn a_neighbor_that_disappears_is_deleted_and_found_again_when_it_returns() {
    let mut lab = Lab::pair();
    let (mut client, mut server) = lab.connected("10.0.0.2:80");
    assert!(lab.ping(&mut client, &mut server, SECOND));
    lab.plug(1, false);
    // Reachable, stale, then probed; after three probes it is deleted, and solicited again with each retransmission.
    assert!(!lab.ping(&mut client, &mut server, Duration::from_secs(90)));
    assert!(lab.count(0, "neighbor_unreachable") >= 1);
    let state = lab.neighbor(0, "10.0.0.2").map(|neighbor| neighbor.state);
    assert!(matches!(state, None | Some(NeighborState::Incomplete)), "{state:?}");
    lab.plug(1, true);
    assert!(lab.ping(&mut client, &mut server, Duration::from_secs(120)), "TCP has repeated it");
    assert!(lab.ping(&mut client, &mut server, SECOND));
    assert_eq!(lab.neighbor(0, "10.0.0.2").unwrap().lladdr, Some(mac(1)));
}

#[test]
fn packets_to_an_idle_neighbor_leave_at_once_and_it_is_probed() {
    let mut lab = Lab::pair();
    let (mut client, mut server) = lab.connected("[fd00::2]:80");
    assert!(lab.ping(&mut client, &mut server, SECOND));
    lab.pass(Duration::from_secs(50));
    assert_eq!(lab.neighbor(0, "fd00::2").unwrap().state, NeighborState::Stale);
    lab.take_log();
    assert!(lab.ping(&mut client, &mut server, Duration::from_millis(100)));
    assert!(
        !lab.take_log().iter().any(|(_, frame)| is_solicit(frame)),
        "no neighbor is solicited before a packet for it"
    );
    // Progress of TCP has confirmed the neighbor as a probe would have.
    lab.pass(Duration::from_secs(10));
    assert_eq!(lab.count(0, "neighbor_solicits_out"), 1);
}

#[test]
fn a_neighbor_with_another_link_layer_address_is_followed() {
    let mut lab = Lab::pair();
    let (mut client, mut server) = lab.connected("10.0.0.2:80");
    assert!(lab.ping(&mut client, &mut server, SECOND));
    let moved = sockeye::netif::MacAddr([2, 0, 0, 0, 0, 0x77]);
    let announcement = arp::Packet::announcement(moved.0, "10.0.0.2".parse().unwrap());
    lab.inject(0, crate::lab::frame(crate::lab::ALL, moved, ARP, &announcement.emit()));
    lab.turn();
    let neighbor = lab.neighbor(0, "10.0.0.2").unwrap();
    assert_eq!((neighbor.lladdr, neighbor.state), (Some(moved), NeighborState::Stale));
    lab.take_log();
    assert!(!lab.ping(&mut client, &mut server, Duration::from_millis(10)));
    assert!(lab.take_log().iter().any(|(from, frame)| *from == 0 && frame[..6] == moved.0));
}

#[test]
fn a_neighbor_set_by_hand_is_neither_asked_for_nor_changed_nor_forgotten() {
    let mut lab = Lab::pair();
    let (id, addr) = (lab.ids[0], "10.0.0.2".parse().unwrap());
    lab.stacks[0].set_neighbor(id, addr, mac(1)).unwrap();
    let (mut client, mut server) = lab.connected("10.0.0.2:80");
    assert!(lab.ping(&mut client, &mut server, SECOND));
    assert_eq!(lab.count(0, "neighbor_solicits_out"), 0);
    let forged = arp::Packet::announcement([2, 0, 0, 0, 0, 0x66], "10.0.0.2".parse().unwrap());
    lab.inject(0, crate::lab::frame(crate::lab::ALL, mac(5), ARP, &forged.emit()));
    lab.stacks[0].flush_neighbors(id).unwrap();
    assert!(lab.ping(&mut client, &mut server, Duration::from_secs(100)));
    assert_eq!(lab.neighbor(0, "10.0.0.2").unwrap().state, NeighborState::Permanent);
    assert!(lab.stacks[0].remove_neighbor(id, addr).unwrap());
    assert!(!lab.stacks[0].remove_neighbor(id, addr).unwrap());
    assert!(lab.ping(&mut client, &mut server, SECOND));
    assert_eq!(lab.count(0, "neighbor_solicits_out"), 1);
    let refused = lab.stacks[0].set_neighbor(id, "224.0.0.5".parse().unwrap(), mac(1)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidInput);
}

#[test]
fn a_request_is_answered_to_its_sender_alone() {
    let mut lab = Lab::pair();
    lab.take_log();
    let request = arp::Packet::request(mac(7).0, "10.0.0.7".parse().unwrap(), "10.0.0.1".parse().unwrap());
    lab.inject(0, crate::lab::frame(crate::lab::ALL, mac(7), ARP, &request.emit()));
    let src = "fe80::7".parse().unwrap();
    let target = "fd00::1".parse().unwrap();
    let solicit = Message::NeighborSolicit { target, lladdr: Some(mac(7).0), nonce: None };
    let packet = wire::emit(src, "ff02::1:ff00:1".parse().unwrap(), &solicit).unwrap();
    let group = sockeye::netif::MacAddr([0x33, 0x33, 0xff, 0, 0, 1]);
    lab.inject(0, crate::lab::frame(group, mac(7), IPV6, &packet));
    lab.turn();
    let log = lab.take_log();
    let [(0, reply), (0, advert)] = &log[..] else { panic!("{log:?}") };
    assert_eq!(arp::Packet::parse(&reply[14..]), Ok(request.reply(mac(0).0)));
    assert_eq!((&reply[..6], &advert[..6]), (&mac(7).0[..], &mac(7).0[..]));
    let Ok(Message::NeighborAdvert(advert)) = wire::parse(target, src, 255, &advert[54..]) else { panic!() };
    assert!(advert.solicited && advert.overrides && advert.lladdr == Some(mac(0).0));
}
