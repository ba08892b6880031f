//! One hostile host on a link answers for many addresses: honest hosts keep working.

use std::net::Ipv4Addr;
use std::time::Duration;

use sockeye::TcpListener;
use sockeye_proto::arp;
use sockeye_proto::icmp::{Family, Message};
use sockeye_proto::ip::Sum;
use sockeye_proto::neighbor::ENTRIES_MAX;

use crate::hostile::packet;
use crate::lab::{ARP, IPV4, Lab, frame, mac};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_host_that_answers_for_a_thousand_addresses_blocks_no_new_neighbor() {
    let mut lab = Lab::new(&[&["10.0.0.1/16"], &["10.0.0.2/16"], &["10.0.0.3/16"]]);
    lab.pass(SECOND * 15);
    let (mut client, mut server) = lab.connected("10.0.0.2:80");
    assert!(lab.ping(&mut client, &mut server, SECOND));
    let mut ask = Message::EchoRequest { id: 7, seq: 9 }.emit(Family::V4).unwrap().to_vec();
    let sum = Sum::of(&ask).checksum();
    ask[2..4].copy_from_slice(&sum.to_be_bytes());
    let ours = Ipv4Addr::new(10, 0, 0, 1);
    for number in 0..2000u32 {
        let src = Ipv4Addr::new(10, 0, 1 + (number >> 7) as u8, 1 + (number & 127) as u8);
        let from = [2, 7, 0, (number >> 16) as u8, (number >> 8) as u8, number as u8];
        // It sends requests, and answers solicitations for its address.
        lab.inject(0, frame(mac(0), mac(8), IPV4, &packet(&src.to_string(), "10.0.0.1", 1, 64, &ask)));
        lab.turn();
        let reply = arp::Packet { operation: arp::Operation::Reply, ..arp::Packet::request(from, src, ours) };
        lab.inject(0, frame(mac(0), mac(8), ARP, &reply.emit()));
        lab.turn();
        if number % 16 == 0 {
            // Meanwhile the connection makes progress without any delay.
            assert!(lab.ping(&mut client, &mut server, Duration::from_millis(50)), "{number}");
        }
    }
    assert!(lab.count(0, "icmp_out_echo_reps") > 900, "{}", lab.count(0, "icmp_out_echo_reps"));
    assert!(lab.stacks[0].neighbors().len() <= ENTRIES_MAX);
    assert!(lab.count(0, "neighbor_evicted") > 0);
    assert_eq!(lab.count(0, "neighbor_table_full"), 0);
    let listener = TcpListener::bind_on(&lab.stacks[2], "10.0.0.3:80").unwrap();
    listener.set_nonblocking(true).unwrap();
    let mut client = lab.connect("10.0.0.3:80");
    lab.turn();
    let (mut server, _) = listener.accept().expect("a newcomer");
    server.set_nonblocking(true).unwrap();
    assert!(lab.ping(&mut client, &mut server, SECOND));
}
