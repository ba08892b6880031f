//! Network errors for sockets of UDP and ICMP: a waiting receiver is notified.
//!
//! Each error is reported to one receiver, so the tests do not let several threads wait.

use std::sync::Arc;

use sockeye::{IcmpSocket, UdpSocket};
use sockeye_proto::icmp::{Error, Unreachable};

use crate::host::{OURS, THEIRS};
use crate::lab::Lab;
use crate::matrix::{Case, Kind, Setting, check, setting};
use crate::peer::{Peer, report};
use crate::subjects::{Both, Way};

const CASES: [Case; 7] = [
    error("UDP over a wire: port unreachable", another_stack),
    error("UDP: port unreachable of a peer", || udp(Error::Unreachable(Unreachable::Port))),
    error("UDP: prohibited", || udp(Error::Unreachable(Unreachable::Prohibited))),
    error("ICMP: host unreachable", || icmp(Error::Unreachable(Unreachable::Host))),
    error("ICMP: prohibited", || icmp(Error::Unreachable(Unreachable::Prohibited))),
    error("ICMP: time exceeded", || icmp(Error::HopLimitExceeded)),
    error("ICMP: protocol unreachable", || icmp(Error::Unreachable(Unreachable::Protocol))),
];

const fn error(name: &'static str, make: fn() -> Setting) -> Case {
    let kinds = &[Kind::Thread, Kind::PollFunction, Kind::Tasks, Kind::Level, Kind::Edge];
    Case { name, kinds, make }
}

#[test]
fn a_waiting_receiver_is_notified_of_errors() {
    check(&CASES);
}

/// The other stack has no socket at that port.
fn another_stack() -> Setting {
    let lab = Arc::new(Lab::new(&Default::default(), |_| {}));
    let socket = UdpSocket::bind_on(&lab.stacks[0], "10.9.0.1:0").unwrap();
    socket.connect(lab.addr(9)).unwrap();
    let (sender, kept) = (socket.try_clone().unwrap(), Arc::clone(&lab));
    setting(Both::new(socket, Way::Read), move || assert_eq!(sender.send(b"x").unwrap(), 1), (lab, kept))
}

fn udp(error: Error) -> Setting {
    let peer = Peer::new();
    let socket = UdpSocket::bind_on(&peer.host().stack, (OURS[0], 0)).unwrap();
    socket.connect((THEIRS[0], 9)).unwrap();
    let (sender, own) = (socket.try_clone().unwrap(), peer.clone());
    let end = move || {
        assert_eq!(sender.send(b"x").unwrap(), 1);
        peer.react(report(error));
    };
    setting(Both::new(socket, Way::Read), end, own)
}

fn icmp(error: Error) -> Setting {
    let peer = Peer::new();
    let socket = IcmpSocket::bind_on(&peer.host().stack, OURS[0].parse().unwrap()).unwrap();
    let (sender, own) = (socket.try_clone().unwrap(), peer.clone());
    let end = move || {
        sender.send_to(1, b"x", THEIRS[0].parse().unwrap()).unwrap();
        peer.react(report(error));
    };
    setting(Both::new(socket, Way::Read), end, own)
}
