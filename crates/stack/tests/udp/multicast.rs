//! Groups on the loopback, as far as Linux's takes part in them.

use std::net::{IpAddr, SocketAddr};

use crate::provider::{Before, Net, Ours, Socket};
use crate::story::{Story, cases};

cases! {
    members_receive_and_so_do_sockets_that_take_all_groups,
    a_group_without_members_is_silent,
    nothing_is_looped_back_without_multicast_loop,
    joins_and_leaves_that_cannot_be,
    bound_to_the_group,
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

const SHARED: Before = Before { is_v6: false, reuse_addr: true, reuse_port: false, v6_only: false };

/// A sender into groups on the loopback.
fn sender<N: Net>(net: &N) -> N::Socket {
    let a = net.at("127.0.0.1:0");
    a.set_multicast_if_lo(false);
    a
}

fn members_receive_and_so_do_sockets_that_take_all_groups<N: Net>(net: &N, story: &mut Story) {
    let group = ip("239.11.12.13");
    let one = net.bind(SHARED, "0.0.0.0:0".parse().unwrap()).unwrap();
    let to = SocketAddr::new(group, one.local().port());
    let all = net.bind(SHARED, one.local()).unwrap();
    let picky = net.bind(SHARED, one.local()).unwrap();
    picky.set_multicast_all(false);
    let elsewhere = net.bind(SHARED, SocketAddr::new(ip("127.0.0.1"), to.port())).unwrap();
    one.join(group, ip("127.0.0.1")).unwrap();
    let a = sender(net);
    story.name("a", &a);
    story.note("a sends", a.send_to(b"all", to));
    for (who, socket) in [("one", &one), ("all", &all), ("picky", &picky), ("elsewhere", &elsewhere)] {
        story.recv(who, socket, 8);
    }
    picky.join(group, ip("127.0.0.1")).unwrap();
    story.note("a sends", a.send_to(b"two", to));
    for (who, socket) in [("one", &one), ("all", &all), ("picky", &picky)] {
        story.recv(who, socket, 8);
    }
}

fn a_group_without_members_is_silent<N: Net>(net: &N, story: &mut Story) {
    let group = ip("239.11.12.14");
    let one = net.at("0.0.0.0:0");
    let to = SocketAddr::new(group, one.local().port());
    let a = sender(net);
    story.name("a", &a);
    story.note("a sends", a.send_to(b"x", to));
    story.recv("one", &one, 8);
    one.join(group, ip("127.0.0.1")).unwrap();
    story.note("a sends", a.send_to(b"y", to));
    story.recv("one", &one, 8);
    one.leave(group, ip("127.0.0.1")).unwrap();
    story.note("a sends", a.send_to(b"z", to));
    story.recv("one", &one, 8);
    story.state("a", &a);
    // A port without a socket sends no error.
    one.join(group, ip("127.0.0.1")).unwrap();
    a.connect(SocketAddr::new(group, 9)).unwrap();
    story.note("a sends", a.send(b"x"));
    story.state("a", &a);
}

fn nothing_is_looped_back_without_multicast_loop<N: Net>(net: &N, story: &mut Story) {
    let group = ip("239.11.12.15");
    let one = net.at("0.0.0.0:0");
    one.join(group, ip("127.0.0.1")).unwrap();
    let a = sender(net);
    story.name("a", &a);
    for on in [false, true] {
        a.set_multicast_loop(false, on);
        story.note("a sends", a.send_to(b"x", SocketAddr::new(group, one.local().port())));
        story.recv("one", &one, 8);
    }
}

fn joins_and_leaves_that_cannot_be<N: Net>(net: &N, story: &mut Story) {
    let one = net.at("0.0.0.0:0");
    let lo = ip("127.0.0.1");
    let group = ip("239.11.12.16");
    story.note("joins no group", one.join(ip("10.0.0.1"), lo));
    story.note("leaves what it has not joined", one.leave(group, lo));
    story.note("joins", one.join(group, lo));
    story.note("joins again", one.join(group, lo));
    story.note("joins elsewhere", one.join(group, ip("192.0.2.77")));
    story.note("leaves", one.leave(group, lo));
    story.note("leaves again", one.leave(group, lo));
    let six = net.at("[::]:0");
    story.note("joins", six.join(ip("ff05::1:3"), ip("::1")));
    story.note("joins again", six.join(ip("ff05::1:3"), ip("::1")));
    story.note("joins no group", six.join(ip("fd00::1"), ip("::1")));
    story.note("leaves", six.leave(ip("ff05::1:3"), ip("::1")));
    story.note("leaves again", six.leave(ip("ff05::1:3"), ip("::1")));
}

/// Linux's loopback has no route for groups of IPv6.
#[test]
fn an_ipv6_group_on_the_loopback_reaches_only_members() {
    let (net, group) = (Ours::new(), ip("ff05::1:7"));
    let (one, a) = (net.at("[::]:0"), net.at("[::1]:0"));
    a.set_multicast_if_lo(true);
    let to = SocketAddr::new(group, one.local().port());
    let mut buf = [0; 8];
    a.send_to(b"x", to).unwrap();
    assert_eq!(one.recv(&mut buf).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    one.join(group, ip("::1")).unwrap();
    a.send_to(b"yy", to).unwrap();
    assert_eq!(one.recv_from(&mut buf).unwrap(), (2, a.local()));
    drop(one);
    let other = net.at("[::]:0");
    a.send_to(b"z", SocketAddr::new(group, other.local().port())).unwrap();
    assert_eq!(other.recv(&mut buf).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
}

fn bound_to_the_group<N: Net>(net: &N, story: &mut Story) {
    let group = ip("239.11.12.17");
    let own = net.bind(SHARED, SocketAddr::new(group, 0)).unwrap();
    let to = own.local();
    let wild = net.bind(SHARED, SocketAddr::new(ip("0.0.0.0"), to.port())).unwrap();
    own.join(group, ip("127.0.0.1")).unwrap();
    let a = sender(net);
    story.name("a", &a);
    story.name("own", &own);
    story.note("a sends", a.send_to(b"x", to));
    story.recv("own", &own, 8);
    story.recv("wild", &wild, 8);
    story.note("a sends", a.send_to(b"y", SocketAddr::new(ip("127.0.0.1"), to.port())));
    story.recv("wild", &wild, 8);
    story.addresses("own", &own);
    story.note("own sends", own.send_to(b"from where?", a.local()));
    story.recv("a", &a, 16);
}
