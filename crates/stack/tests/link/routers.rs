//! What routers advertise: solicited, believed, expired.

use std::net::Ipv6Addr;
use std::time::Duration;

use sockeye::netif::{Addressing, LinkOptions, MacAddr};
use sockeye_proto::ip;

use crate::lab::{IPV6, Lab, ethertype, frame, mac};

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
    let addresses =
        ip::Addresses::new(ROUTER.parse().unwrap(), "ff02::1".parse().unwrap()).expect("one family");
    let sum = addresses.pseudo_header(58, body.len() as u32).add_bytes(&body);
    body[2..4].copy_from_slice(&sum.checksum().to_be_bytes());
    let header = ip::Header { addresses, protocol: 58, hop_limit: 255, traffic_class: 0 };
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
fn an_advertised_prefix_gives_an_address_and_a_way_out() {
    let mut lab = lab();
    lab.pass(Duration::from_secs(2));
    lab.inject(0, advert(1800, "2001:db8::", 7200, 3600));
    lab.pass(Duration::from_secs(3));
    assert_eq!(lab.count(0, "router_adverts_in"), 1);
    let neighbor = lab.neighbor(0, ROUTER).unwrap();
    assert!(neighbor.is_router && neighbor.lladdr == Some(mac(0x98)));
    lab.take_log();
    // A SYN to somewhere far goes to the router, from the new address.
    let _far = lab.connect("[2001:db8:ffff::1]:80");
    lab.turn();
    let log = lab.take_log();
    let syn = log.iter().map(|(_, frame)| frame).find(|frame| frame[20] == 6).expect("a SYN");
    assert_eq!(syn[..6], mac(0x98).0);
    assert_eq!(syn[22..38], "2001:db8::ff:fe00:1".parse::<Ipv6Addr>().unwrap().octets());
}
