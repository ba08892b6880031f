//! UDP sockets for every port and with other hosts' addresses, as a proxy uses them.

use std::io::{ErrorKind, IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::time::Duration;

use crate::common::watchdog;
use crate::lab::Lab;
use sockeye::netif::{WireConfig, wire};
use sockeye::{Config, RecvMeta, SendMeta, Stack, UdpBuilder, UdpSocket};

/// Receives one datagram, and answers in the name of the address that it was for.
fn answer(any: &UdpSocket, bytes: &[u8]) -> RecvMeta {
    let mut buf = [0; 64];
    let meta = any.recv_msg(&mut [IoSliceMut::new(&mut buf)]).unwrap();
    let back = SendMeta { src: Some(meta.dst), src_port: Some(meta.dst_port), ..SendMeta::to(meta.from) };
    any.send_msg(&[IoSlice::new(bytes)], &back).unwrap();
    meta
}

fn patient(socket: UdpSocket) -> UdpSocket {
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    socket
}

fn any(builder: UdpBuilder) -> UdpSocket {
    patient(builder.transparent(true).bind_any().unwrap())
}

/// A client with a way everywhere, and a proxy behind it.
fn pair() -> [Stack; 2] {
    let (here, there) = wire(&WireConfig::default()).unwrap();
    let stacks = [0, 1].map(|_| Stack::new(Config::default()).unwrap());
    let parse = |text: &str| text.parse().unwrap();
    let out = stacks[0].attach(here, &[parse("10.0.0.1/24"), parse("fd00::1/64")]).unwrap();
    stacks[0].add_route(parse("0.0.0.0/0"), out).unwrap();
    stacks[0].add_route(parse("::/0"), out).unwrap();
    let device = stacks[1].attach(there, &[parse("10.0.0.2/24"), parse("fd00::2/64")]).unwrap();
    stacks[1].add_route(parse("10.0.0.1/32"), device).unwrap();
    stacks[1].set_any_address(device, true).unwrap();
    stacks
}

#[test]
fn a_socket_for_every_port_answers_from_the_address_that_was_asked() {
    let _guard = watchdog("a_socket_for_every_port_answers_from_the_address_that_was_asked");
    let [client, proxy] = pair();
    let all = any(UdpBuilder::new_v6(&proxy));
    for (own, to) in [("0.0.0.0:0", "198.51.100.7:53"), ("[::]:0", "[2001:db8::7]:4711")] {
        let to: SocketAddr = to.parse().unwrap();
        let socket = patient(UdpSocket::bind_on(&client, own).unwrap());
        // Once connected, it receives only from its peer.
        socket.connect(to).unwrap();
        socket.send(b"who?").unwrap();
        let meta = answer(&all, b"me");
        assert_eq!((meta.dst.to_canonical(), meta.dst_port), (to.ip(), to.port()));
        assert_eq!(meta.len, 4);
        let mut buf = [0; 8];
        assert_eq!(socket.recv(&mut buf).unwrap(), 2);
    }
}

#[test]
fn a_socket_for_every_port_is_matched_last_and_hides_closed_ports() {
    let _guard = watchdog("a_socket_for_every_port_is_matched_last_and_hides_closed_ports");
    let lab = Lab::new(&WireConfig::default(), |_| {});
    let one = patient(UdpSocket::bind_on(&lab.stacks[1], "10.9.0.2:53").unwrap());
    let all = any(UdpBuilder::new_v4(&lab.stacks[1]));
    let client = patient(UdpSocket::bind_on(&lab.stacks[0], "0.0.0.0:0").unwrap());
    client.send_to(b"one", "10.9.0.2:53").unwrap();
    client.send_to(b"all", "10.9.0.2:54").unwrap();
    let mut buf = [0; 8];
    assert_eq!(one.recv(&mut buf).unwrap(), 3);
    assert_eq!(answer(&all, b"yes").dst_port, 54);
    assert_eq!(client.recv_from(&mut buf).unwrap(), (3, "10.9.0.2:54".parse().unwrap()));
    drop(all);
    client.connect("10.9.0.2:54").unwrap();
    client.send(b"gone").unwrap();
    assert_eq!(client.recv(&mut buf).unwrap_err().kind(), ErrorKind::ConnectionRefused);
}

#[test]
fn operations_that_a_socket_for_every_port_lacks_are_refused() {
    let stack = crate::common::stack_with(|_| {});
    let invalid =
        |result: std::io::Result<usize>| assert_eq!(result.unwrap_err().kind(), ErrorKind::InvalidInput);
    let unasked = UdpBuilder::new_v4(&stack).bind_any().unwrap_err();
    assert!(unasked.to_string().contains("transparent"), "{unasked}");
    let all = any(UdpBuilder::new_v4(&stack));
    let again = UdpBuilder::new_v4(&stack).transparent(true).bind_any().unwrap_err();
    assert_eq!(again.kind(), ErrorKind::AddrInUse);
    assert_eq!(all.connect("127.0.0.1:1").unwrap_err().kind(), ErrorKind::InvalidInput);
    let to = SendMeta::to("127.0.0.1:9".parse().unwrap());
    invalid(all.send_msg(&[], &to));
    invalid(all.send_msg(&[], &SendMeta { src_port: Some(0), ..to }));
    let bound = UdpSocket::bind_on(&stack, "127.0.0.1:0").unwrap();
    invalid(bound.send_msg(&[], &SendMeta { src_port: Some(1), ..to }));
    drop(all);
    let shared = || UdpBuilder::new_v4(&stack).reuse_port(true).transparent(true).bind_any().unwrap();
    let _two = [shared(), shared()];
}

#[test]
fn a_transparent_socket_is_bound_to_another_hosts_address() {
    let _guard = watchdog("a_transparent_socket_is_bound_to_another_hosts_address");
    let [client, proxy] = pair();
    let at: SocketAddr = "198.51.100.7:53".parse().unwrap();
    let plain = UdpBuilder::new_v4(&proxy).bind(at).unwrap_err();
    assert_eq!(plain.kind(), ErrorKind::AddrNotAvailable);
    let named = patient(UdpBuilder::new_v4(&proxy).transparent(true).bind(at).unwrap());
    let socket = patient(UdpSocket::bind_on(&client, "0.0.0.0:0").unwrap());
    socket.send_to(b"to", at).unwrap();
    let mut buf = [0; 8];
    let (len, from) = named.recv_from(&mut buf).unwrap();
    assert_eq!(len, 2);
    named.send_to(b"fro", from).unwrap();
    assert_eq!(socket.recv_from(&mut buf).unwrap(), (3, at));
}
