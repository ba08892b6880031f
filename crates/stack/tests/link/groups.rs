//! Groups that sockets join: reported to the routers, passed by the filter, left again.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use sockeye::UdpSocket;
use sockeye::netif::MacAddr;
use sockeye_proto::ip::{self, Addresses, Header};

use crate::lab::{IPV4, IPV6, Lab, ethertype, frame, mac};

const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);
const GROUP_V6: Ipv6Addr = Ipv6Addr::new(0xff05, 0, 0, 0, 0, 0, 1, 0x1234);

fn socket(lab: &Lab, stack: usize, addr: &str) -> UdpSocket {
    let socket = UdpSocket::bind_on(&lab.stacks[stack], addr).unwrap();
    socket.set_nonblocking(true).unwrap();
    socket
}

/// The types of records that the second host has reported for a group, by IGMPv3 or MLDv2.
fn reported(lab: &mut Lab, group: &[u8]) -> Vec<u8> {
    let log = lab.take_log();
    let sent = log.iter().filter(|(from, _)| *from == 1).map(|(_, frame)| frame);
    let of_type = |frame: &&Vec<u8>| match ethertype(frame) {
        IPV4 => frame[23] == 2 && frame[38] == 0x22,
        IPV6 => frame[20] == 0 && frame[62] == 143,
        _ => false,
    };
    let record = |frame: &Vec<u8>| {
        let at = frame.windows(group.len()).rposition(|part| part == group)?;
        Some(frame[at - 4])
    };
    sent.filter(of_type).filter_map(record).collect()
}

/// A datagram to the group's port 5000, of a third host, without a checksum.
fn datagram() -> Vec<u8> {
    let addresses = Addresses::new("10.0.0.9".parse().unwrap(), GROUP.into()).unwrap();
    let header = Header { addresses, protocol: 17, hop_limit: 1, traffic_class: 0, flow_label: 0 };
    let udp = [&[0x13, 0x88, 0x13, 0x88, 0, 14, 0, 0], &b"to all"[..]].concat();
    let mut packet = vec![0; 20];
    ip::emit(&header, udp.len(), &mut packet).unwrap();
    packet.extend(udp);
    frame(MacAddr([1, 0, 0x5e, 1, 2, 3]), mac(8), IPV4, &packet)
}

#[test]
fn a_group_is_received_between_join_and_leave_and_both_are_reported() {
    let mut lab = Lab::pair();
    let receiver = socket(&lab, 1, "0.0.0.0:5000");
    let mut buffer = [0; 16];
    let mut send = |lab: &mut Lab| {
        lab.inject(1, datagram());
        lab.turn();
        receiver.recv_from(&mut buffer).map(|(len, _)| len).map_err(|error| error.kind())
    };
    assert_eq!(send(&mut lab), Err(ErrorKind::WouldBlock));
    lab.take_log();
    receiver.join_multicast_v4(&GROUP, &Ipv4Addr::new(10, 0, 0, 2)).unwrap();
    lab.pass(Duration::from_secs(3));
    assert_eq!(reported(&mut lab, &GROUP.octets()), [4, 4], "CHANGE_TO_EXCLUDE_MODE, and again");
    assert_eq!(send(&mut lab), Ok(6));
    lab.take_log();
    receiver.leave_multicast_v4(&GROUP, &Ipv4Addr::new(10, 0, 0, 2)).unwrap();
    lab.pass(Duration::from_secs(3));
    assert_eq!(reported(&mut lab, &GROUP.octets()), [3, 3], "CHANGE_TO_INCLUDE_MODE, and again");
    assert_eq!(send(&mut lab), Err(ErrorKind::WouldBlock));
}

#[test]
fn a_socket_that_is_dropped_leaves_its_groups_in_both_families() {
    let mut lab = Lab::pair();
    let interface = lab.ids[1].interface_index();
    let receiver = socket(&lab, 1, "[::]:5000");
    lab.take_log();
    receiver.join_multicast_v6(&GROUP_V6, interface).unwrap();
    lab.pass(Duration::from_secs(3));
    assert_eq!(reported(&mut lab, &GROUP_V6.octets()), [4, 4]);
    drop(receiver);
    lab.pass(Duration::from_secs(3));
    assert_eq!(reported(&mut lab, &GROUP_V6.octets()), [3, 3]);
}
