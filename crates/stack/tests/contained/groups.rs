//! Panics over the groups of a link, over echo requests and over the MTU of a path.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use rustix::io::Errno;
use sockeye::failpoints::{arm, fired};
use sockeye::netif::MacAddr;
use sockeye::{IcmpSocket, UdpSocket};
use sockeye_proto::icmp::{Error, Family, Message};
use sockeye_proto::ip::{self, Addresses, Header};

use crate::common::{self, counter};
use crate::host::{Host, icmp, inwards};
use crate::hub::{self, IPV4, Lab};
use crate::world::{Medium, World};

const GROUPS: [Ipv4Addr; 2] = [Ipv4Addr::new(239, 1, 2, 3), Ipv4Addr::new(239, 1, 2, 4)];
const GROUP_V6: Ipv6Addr = Ipv6Addr::new(0xff05, 0, 0, 0, 0, 0, 1, 0x1234);
const OURS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

/// A packet of a third host to a group, as a frame.
fn to_group(group: Ipv4Addr, protocol: u8, body: &[u8]) -> Vec<u8> {
    let addresses = Addresses::new("10.0.0.9".parse().unwrap(), group.into()).unwrap();
    let header = Header { addresses, protocol, hop_limit: 1, traffic_class: 0, flow_label: 0 };
    let mut packet = vec![0; 20];
    ip::emit(&header, body.len(), &mut packet).unwrap();
    packet.extend(body);
    let [_, b, c, d] = group.octets();
    hub::frame(MacAddr([1, 0, 0x5e, b & 0x7f, c, d]), hub::mac(8), IPV4, &packet)
}

/// Whether a datagram to the group is received.
fn arrives(lab: &mut Lab, receiver: &UdpSocket, group: Ipv4Addr) -> bool {
    let datagram = [&[0x13, 0x88, 0x13, 0x88, 0, 14, 0, 0], &b"to all"[..]].concat();
    lab.inject(1, to_group(group, 17, &datagram));
    lab.turn();
    receiver.recv(&mut [0; 16]).is_ok()
}

/// IGMPv3's question for the members of one group.
fn query(group: Ipv4Addr) -> Vec<u8> {
    let mut body = [&[0x11, 10, 0, 0], &group.octets()[..], &[2, 125, 0, 0]].concat();
    let sum: u32 = body.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
    body[2..4].copy_from_slice(&(!(sum + (sum >> 16)) as u16).to_be_bytes());
    to_group(group, 2, &body)
}

/// Whether a query for the group is answered by the second host.
fn is_answered(lab: &mut Lab, group: Ipv4Addr) -> bool {
    lab.take_log();
    lab.inject(1, query(group));
    lab.pass(Duration::from_secs(3));
    let names = |frame: &[u8]| frame.windows(4).any(|part| part == group.octets());
    lab.take_log().iter().any(|(from, frame)| *from == 1 && frame[23] == 2 && names(frame))
}

fn is_panic(called: std::io::Result<()>) -> bool {
    called.is_err_and(|error| error.raw_os_error() == Some(Errno::IO.raw_os_error()))
}

#[test]
fn a_panic_in_group_code_forgets_only_that_group() {
    let _turn = crate::turn();
    let _guard = common::watchdog("panics over groups");
    let mut lab = Lab::pair();
    lab.may_panic = true;
    let receiver = UdpSocket::bind_on(&lab.stacks[1], "0.0.0.0:5000").unwrap();
    receiver.set_nonblocking(true).unwrap();
    let [first, second] = GROUPS;
    receiver.join_multicast_v4(&second, &OURS).unwrap();
    arm("groups.change", 0, 1, 0x0203);
    assert!(is_panic(receiver.join_multicast_v4(&first, &OURS)));
    assert!(!arrives(&mut lab, &receiver, first) && arrives(&mut lab, &receiver, second));
    receiver.join_multicast_v4(&first, &OURS).unwrap();
    assert!(arrives(&mut lab, &receiver, first) && arrives(&mut lab, &receiver, second));
    // Its state machine, over a query.
    lab.pass(Duration::from_secs(3));
    arm("groups.query", 0, 1, 0);
    let before = fired("groups.query");
    lab.inject(1, query(first));
    lab.turn();
    assert_eq!(fired("groups.query") - before, 1);
    assert!(!is_answered(&mut lab, first) && is_answered(&mut lab, second));
    receiver.leave_multicast_v4(&first, &OURS).unwrap();
    receiver.join_multicast_v4(&first, &OURS).unwrap();
    assert!(arrives(&mut lab, &receiver, first) && arrives(&mut lab, &receiver, second));
    lab.pass(Duration::from_secs(3));
    assert!(is_answered(&mut lab, first) && is_answered(&mut lab, second));
    arm("groups.change", 0, 1, 0x0204);
    assert!(is_panic(receiver.leave_multicast_v4(&second, &OURS)), "it is left all the same");
    assert!(arrives(&mut lab, &receiver, first) && !arrives(&mut lab, &receiver, second));
    receiver.join_multicast_v4(&second, &OURS).unwrap();
    assert!(arrives(&mut lab, &receiver, first) && arrives(&mut lab, &receiver, second));
    assert_eq!(counter(&lab.stacks[1], "panics_protocol"), 3);
}

#[test]
fn a_panic_in_ipv6_group_code_forgets_only_that_group() {
    let _turn = crate::turn();
    let _guard = common::watchdog("a panic over a group of IPv6");
    let mut lab = Lab::pair();
    lab.may_panic = true;
    let interface = lab.ids[1].interface_index();
    let receiver = UdpSocket::bind_on(&lab.stacks[1], "[::]:5000").unwrap();
    arm("groups.change", 0, 1, 0x1234);
    assert!(is_panic(receiver.join_multicast_v6(&GROUP_V6, interface)));
    lab.take_log();
    receiver.join_multicast_v6(&GROUP_V6, interface).unwrap();
    lab.pass(Duration::from_secs(3));
    let names = |frame: &[u8]| frame.windows(16).any(|part| part == GROUP_V6.octets());
    assert!(lab.take_log().iter().any(|(from, frame)| *from == 1 && names(frame)), "it is reported");
    assert_eq!(counter(&lab.stacks[1], "panics_protocol"), 1);
}

#[test]
fn a_panic_over_an_echo_request_fails_one_call() {
    let _turn = crate::turn();
    let _guard = common::watchdog("panics over echo requests");
    let world = World::new(Medium::Loopback, |c| c.workers = 1);
    let here: IpAddr = "127.0.0.1".parse().unwrap();
    arm("udp.name", 0, 1, 0);
    assert!(IcmpSocket::bind_on(&world.stacks[0], here).unwrap_err().to_string().contains("panicked"));
    let ping = IcmpSocket::bind_on(&world.stacks[0], here).unwrap();
    let id = u64::from(ping.id());
    let works = |seq| {
        ping.send_to(seq, b"ask", here).unwrap();
        assert_eq!(ping.recv(&mut [0; 8]).unwrap().seq, seq);
    };
    works(1);
    arm("echo.request", 0, 1, id);
    assert!(is_panic(ping.send_to(2, b"ask", here)));
    works(3);
    // The datagram is queued and the receiver notified, although the panic was in the notification.
    arm("udp.deliver", 0, 1, id);
    let _ = ping.send_to(4, b"ask", here);
    assert_eq!(ping.recv(&mut [0; 8]).unwrap().seq, 4);
    arm("udp.receive", 0, 1, id);
    ping.send_to(5, b"lost", here).unwrap();
    assert!(is_panic(ping.recv(&mut [0; 8]).map(|_| ())));
    works(6);
    drop(ping);
    world.end(4);
}

#[test]
fn a_path_mtu_report_that_panics_is_ignored_and_the_next_one_is_not() {
    let _turn = crate::turn();
    let _guard = common::watchdog("a panic over the MTU of a path");
    let mut host = Host::new();
    let socket = UdpSocket::bind_on(&host.stack, "0.0.0.0:0").unwrap();
    socket.connect("10.9.0.2:9").unwrap();
    socket.send(&[1; 1400]).unwrap();
    let sent = host.turn().remove(0);
    let report = icmp(inwards(Family::V4), Message::Error(Error::PacketTooBig(1300)), &sent);
    arm("path_mtu.learn", 0, 1, 2);
    host.send(&report);
    assert_eq!((host.count("panics_protocol"), socket.path_mtu().unwrap()), (1, 1500));
    host.send(&report);
    assert_eq!((host.count("panics_protocol"), socket.path_mtu().unwrap()), (1, 1300));
}
