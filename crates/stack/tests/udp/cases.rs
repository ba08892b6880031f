//! Sending, receiving, connecting, errors, readiness.

use std::io;

use crate::provider::{Before, Net, Socket};
use crate::story::{Story, cases};

cases! {
    datagrams_keep_their_bounds_and_carry_their_sender,
    data_that_does_not_fit_is_truncated,
    an_empty_datagram_is_one,
    a_peek_consumes_nothing,
    a_connected_socket_receives_only_from_its_peer,
    datagrams_queued_before_a_connect_are_still_received,
    a_connect_chooses_the_local_address_and_a_disconnect_undoes_it,
    connecting_again_keeps_the_local_address,
    a_bound_socket_keeps_its_port_through_a_disconnect,
    a_connected_socket_gets_one_error_for_a_closed_port,
    the_pending_error_is_reported_before_the_data,
    an_unconnected_socket_gets_no_error_for_a_closed_port,
    a_receiver_that_returns_is_reached_again,
    destinations_that_cannot_be,
    a_datagram_has_a_largest_size,
    broadcast_has_to_be_asked_for,
    both_families_on_one_socket,
    ipv6_sockets,
    readiness_follows_the_queue,
    a_full_buffer_drops_the_newest,
    the_wildcard_means_this_host,
    time_to_live_has_bounds,
    a_socket_that_was_never_bound,
}

fn datagrams_keep_their_bounds_and_carry_their_sender<N: Net>(net: &N, story: &mut Story) {
    let (a, b) = (net.at("127.0.0.1:0"), net.at("127.0.0.1:0"));
    story.name("a", &a);
    story.name("b", &b);
    for bytes in [&b"one"[..], b"two", &[7; 9000]] {
        story.note("a sends", a.send_to(bytes, b.local()));
    }
    for _ in 0..3 {
        story.recv("b", &b, 10_000);
    }
    story.recv("b", &b, 10);
    story.note("b answers", b.send_to(b"back", a.local()));
    story.recv("a", &a, 10);
    story.addresses("a", &a);
}

fn data_that_does_not_fit_is_truncated<N: Net>(net: &N, story: &mut Story) {
    let (a, b) = (net.at("127.0.0.1:0"), net.at("127.0.0.1:0"));
    for room in [(0, 0), (1, 2), (2, 8), (8, 0)] {
        story.note("a sends", a.send_to(b"abcde", b.local()));
        let (mut first, mut second) = (vec![0; room.0], vec![0; room.1]);
        let got = b.recv_two(&mut first, &mut second);
        story.note("b receives", got.map(|got| (got, first, second)));
    }
    story.note("a sends", a.send_to(b"abcde", b.local()));
    story.recv("b", &b, 0);
    story.recv("b", &b, 3);
}

fn an_empty_datagram_is_one<N: Net>(net: &N, story: &mut Story) {
    let (a, b) = (net.at("127.0.0.1:0"), net.at("127.0.0.1:0"));
    story.note("a sends", a.send_to(b"", b.local()));
    story.note("b is ready", Ok(b.ready()));
    story.note("a sends", a.send_to(b"x", b.local()));
    story.peek("b", &b, 8);
    story.recv("b", &b, 8);
    story.recv("b", &b, 8);
    story.recv("b", &b, 8);
}

fn a_peek_consumes_nothing<N: Net>(net: &N, story: &mut Story) {
    let (a, b) = (net.at("127.0.0.1:0"), net.at("127.0.0.1:0"));
    story.name("a", &a);
    story.name("b", &b);
    story.peek("b", &b, 8);
    a.send_to(b"first", b.local()).unwrap();
    a.send_to(b"second", b.local()).unwrap();
    story.peek("b", &b, 2);
    story.peek("b", &b, 8);
    story.recv("b", &b, 2);
    story.peek("b", &b, 8);
    story.recv("b", &b, 8);
}

fn a_connected_socket_receives_only_from_its_peer<N: Net>(net: &N, story: &mut Story) {
    let (a, b, c) = (net.at("127.0.0.1:0"), net.at("127.0.0.1:0"), net.at("127.0.0.1:0"));
    for (name, socket) in [("a", &a), ("b", &b), ("c", &c)] {
        story.name(name, socket);
    }
    story.note("a sends to an unbound port", a.send(b"?"));
    story.note("a connects", a.connect(b.local()));
    story.note("a sends", a.send(b"hello"));
    story.recv("b", &b, 8);
    story.note("c sends", c.send_to(b"stranger", a.local()));
    story.note("b sends", b.send_to(b"friend", a.local()));
    story.recv("a", &a, 16);
    story.recv("a", &a, 16);
    // No socket matches another sender; it gets no error, as it is not connected.
    story.state("c", &c);
    story.note("a sends past its peer", a.send_to(b"aside", c.local()));
    story.recv("c", &c, 8);
    story.addresses("a", &a);
}

fn datagrams_queued_before_a_connect_are_still_received<N: Net>(net: &N, story: &mut Story) {
    let (a, b, c) = (net.at("127.0.0.1:0"), net.at("127.0.0.1:0"), net.at("127.0.0.1:0"));
    story.name("b", &b);
    story.name("c", &c);
    c.send_to(b"early", a.local()).unwrap();
    story.note("a connects", a.connect(b.local()));
    story.recv("a", &a, 8);
}

fn a_connect_chooses_the_local_address_and_a_disconnect_undoes_it<N: Net>(net: &N, story: &mut Story) {
    let b = net.at("127.0.0.1:0");
    story.name("b", &b);
    let a = net.unbound(Before::default());
    story.addresses("a", &a);
    story.note("a connects", a.connect(b.local()));
    story.name("a", &a);
    story.addresses("a", &a);
    a.disconnect();
    story.addresses("a", &a);
    story.note("a sends", a.send(b"x"));
    story.note("a sends to b", a.send_to(b"x", b.local()));
    story.addresses("a", &a);
    let a = net.at("0.0.0.0:0");
    story.name("a", &a);
    story.note("a connects", a.connect(b.local()));
    story.addresses("a", &a);
    a.disconnect();
    story.addresses("a", &a);
}

fn connecting_again_keeps_the_local_address<N: Net>(net: &N, story: &mut Story) {
    let (b, c) = (net.at("127.0.0.1:0"), net.at("127.0.0.2:0"));
    story.name("b", &b);
    story.name("c", &c);
    let a = net.unbound(Before::default());
    a.connect(b.local()).unwrap();
    story.name("a", &a);
    story.note("a connects again", a.connect(c.local()));
    story.addresses("a", &a);
    a.send(b"hello").unwrap();
    story.recv("c", &c, 8);
    b.send_to(b"old friend", a.local()).unwrap();
    story.recv("a", &a, 16);
}

fn a_bound_socket_keeps_its_port_through_a_disconnect<N: Net>(net: &N, story: &mut Story) {
    let (a, b) = (net.at("127.0.0.1:0"), net.at("127.0.0.1:0"));
    story.name("a", &a);
    story.name("b", &b);
    story.note("a connects", a.connect(b.local()));
    a.disconnect();
    story.addresses("a", &a);
    story.note("b sends", b.send_to(b"still?", a.local()));
    story.recv("a", &a, 8);
}

/// A port without a socket.
fn unbound<N: Net>(net: &N) -> std::net::SocketAddr {
    net.at("127.0.0.1:0").local()
}

fn a_connected_socket_gets_one_error_for_a_closed_port<N: Net>(net: &N, story: &mut Story) {
    let a = net.at("127.0.0.1:0");
    a.connect(unbound(net)).unwrap();
    story.note("a sends", a.send(b"x"));
    story.note("a is ready", Ok(a.ready()));
    story.note("a sends", a.send(b"x"));
    story.note("a sends", a.send(b"x"));
    story.recv("a", &a, 8);
    story.recv("a", &a, 8);
    story.note("a sends", a.send(b"x"));
    story.state("a", &a);
    story.state("a", &a);
    story.note("a sends", a.send(b"x"));
    story.peek("a", &a, 8);
    story.peek("a", &a, 8);
}

fn the_pending_error_is_reported_before_the_data<N: Net>(net: &N, story: &mut Story) {
    let (a, b) = (net.at("127.0.0.1:0"), net.at("127.0.0.1:0"));
    story.name("a", &a);
    story.name("b", &b);
    a.connect(b.local()).unwrap();
    b.send_to(b"left behind", a.local()).unwrap();
    drop(b);
    story.note("a sends", a.send(b"x"));
    story.note("a is ready", Ok(a.ready()));
    story.recv("a", &a, 16);
    story.recv("a", &a, 16);
    story.recv("a", &a, 16);
}

fn an_unconnected_socket_gets_no_error_for_a_closed_port<N: Net>(net: &N, story: &mut Story) {
    let a = net.at("127.0.0.1:0");
    let to = unbound(net);
    for _ in 0..2 {
        story.note("a sends", a.send_to(b"x", to));
    }
    story.state("a", &a);
    story.recv("a", &a, 8);
}

fn a_receiver_that_returns_is_reached_again<N: Net>(net: &N, story: &mut Story) {
    let (a, b) = (net.at("127.0.0.1:0"), net.at("127.0.0.1:0"));
    story.name("a", &a);
    story.name("b", &b);
    let at = b.local();
    a.connect(at).unwrap();
    drop(b);
    story.note("a sends", a.send(b"1"));
    let b = net.bind(Before::default(), at).unwrap();
    story.note("a sends", a.send(b"2"));
    story.note("a sends", a.send(b"3"));
    story.recv("b", &b, 8);
    story.recv("b", &b, 8);
}

fn destinations_that_cannot_be<N: Net>(net: &N, story: &mut Story) {
    let a = net.at("127.0.0.1:0");
    story.name("a", &a);
    for to in ["127.0.0.1:0", "[::1]:9", "255.255.255.255:9", "127.255.255.255:9", "[::ffff:127.0.0.1]:9"] {
        let to = to.parse().unwrap();
        story.note(&format!("a sends to {to}"), a.send_to(b"x", to));
        story.note(&format!("a connects to {to}"), a.connect(to));
        let peer = a.peer().map(|peer| peer.to_string());
        story.note("a has the peer", peer);
    }
    a.disconnect();
    story.note("a connects to port 0", a.connect("127.0.0.1:0".parse().unwrap()));
    story.note("a sends", a.send(b"x"));
    story.state("a", &a);
}

fn a_datagram_has_a_largest_size<N: Net>(net: &N, story: &mut Story) {
    for at in ["127.0.0.1:0", "[::1]:0"] {
        let (a, b) = (net.at(at), net.at(at));
        for len in [65_507, 65_508, 65_527, 65_528, 65_536, 70_000] {
            story.note(&format!("{len} bytes to {at}"), a.send_to(&vec![1; len], b.local()));
        }
        let mut buf = vec![0; 70_000];
        story.note("the first arrives whole", b.recv(&mut buf).map(|(len, _)| len));
    }
}

fn broadcast_has_to_be_asked_for<N: Net>(net: &N, story: &mut Story) {
    let b = net.at("0.0.0.0:0");
    let c = net.at("127.0.0.1:0");
    let a = net.at("127.0.0.1:0");
    story.name("a", &a);
    let to = |socket: &N::Socket| {
        let port = socket.local().port();
        std::net::SocketAddr::new("127.255.255.255".parse().unwrap(), port)
    };
    story.note("a sends", a.send_to(b"x", to(&b)));
    a.set_broadcast(true);
    story.note("a sends", a.send_to(b"x", to(&b)));
    story.recv("b", &b, 8);
    story.note("a sends to who is bound to another address", a.send_to(b"x", to(&c)));
    story.recv("c", &c, 8);
    story.state("a", &a);
    story.note("a connects", a.connect(to(&b)));
    story.note("a sends", a.send(b"y"));
    story.recv("b", &b, 8);
}

fn both_families_on_one_socket<N: Net>(net: &N, story: &mut Story) {
    let (a, b) = (net.at("[::]:0"), net.at("127.0.0.1:0"));
    story.name("a", &a);
    story.name("b", &b);
    let mapped = std::net::SocketAddr::new("::ffff:127.0.0.1".parse().unwrap(), b.local().port());
    story.note("a sends mapped", a.send_to(b"mapped", mapped));
    story.recv("b", &b, 8);
    story.note("a sends", a.send_to(b"plain", b.local()));
    story.recv("b", &b, 8);
    let to = std::net::SocketAddr::new("127.0.0.1".parse().unwrap(), a.local().port());
    story.note("b sends", b.send_to(b"back", to));
    story.recv("a", &a, 8);
    story.note("a connects", a.connect(mapped));
    story.addresses("a", &a);
    a.disconnect();
    story.addresses("a", &a);
    let only = Before { is_v6: true, v6_only: true, ..Before::default() };
    for at in ["[::ffff:127.0.0.1]:0", "127.0.0.1:0"] {
        story.note(&format!("only IPv6 binds to {at}"), net.bind(only, at.parse().unwrap()).map(drop));
    }
    let c = net.bind(only, "[::]:0".parse().unwrap()).unwrap();
    story.note("c sends mapped", c.send_to(b"x", mapped));
    story.note("c connects mapped", c.connect(mapped));
    b.connect(std::net::SocketAddr::new("127.0.0.1".parse().unwrap(), c.local().port())).unwrap();
    story.note("b sends", b.send(b"x"));
    story.state("b", &b);
}

fn ipv6_sockets<N: Net>(net: &N, story: &mut Story) {
    let (a, b) = (net.at("[::1]:0"), net.at("[::]:0"));
    story.name("a", &a);
    story.name("b", &b);
    let to = std::net::SocketAddr::new("::1".parse().unwrap(), b.local().port());
    story.note("a sends", a.send_to(b"six", to));
    story.recv("b", &b, 8);
    story.note("b connects", b.connect(a.local()));
    story.addresses("b", &b);
    story.note("b sends", b.send(b"six"));
    story.recv("a", &a, 8);
    drop(a);
    story.note("b sends", b.send(b"six"));
    story.state("b", &b);
    story.note("b sends to ::", b.send_to(b"x", std::net::SocketAddr::new("::".parse().unwrap(), 9)));
}

fn readiness_follows_the_queue<N: Net>(net: &N, story: &mut Story) {
    let (a, b) = (net.at("127.0.0.1:0"), net.at("127.0.0.1:0"));
    story.state("b", &b);
    a.send_to(b"1", b.local()).unwrap();
    a.send_to(b"2", b.local()).unwrap();
    story.state("b", &b);
    b.recv(&mut [0; 8]).unwrap();
    story.state("b", &b);
    b.recv(&mut [0; 8]).unwrap();
    story.state("b", &b);
    b.set_nonblocking(true);
    story.note("b receives", b.recv(&mut [0; 8]).map(|(len, _)| len));
}

fn a_full_buffer_drops_the_newest<N: Net>(net: &N, story: &mut Story) {
    let (a, b) = (net.at("127.0.0.1:0"), net.at("127.0.0.1:0"));
    b.set_rcvbuf(4096);
    b.set_nonblocking(true);
    let sent: io::Result<Vec<usize>> = (0..200u8).map(|i| a.send_to(&[i; 1000], b.local())).collect();
    story.note("all sends succeed", sent.map(|sent| sent.iter().all(|len| *len == 1000)));
    let mut got = Vec::new();
    let mut buf = [0; 2000];
    while let Ok((len, _)) = b.recv(&mut buf) {
        got.push((len, buf[0]));
    }
    // How many there are is each stack's own affair; they are the first ones, in order.
    let is_prefix = got.iter().enumerate().all(|(i, got)| *got == (1000, i as u8));
    story.note("some arrive and some do not", Ok((!got.is_empty(), got.len() < 200, is_prefix)));
    a.send_to(b"room again", b.local()).unwrap();
    story.recv("b", &b, 16);
}

fn the_wildcard_means_this_host<N: Net>(net: &N, story: &mut Story) {
    let (a, b) = (net.at("0.0.0.0:0"), net.at("0.0.0.0:0"));
    story.name("a", &a);
    story.name("b", &b);
    story.note("a sends", a.send_to(b"x", b.local()));
    story.recv("b", &b, 8);
    story.note("a connects", a.connect(b.local()));
    story.addresses("a", &a);
    story.note(
        "a sends",
        a.send_to(b"x", std::net::SocketAddr::new("127.0.0.5".parse().unwrap(), b.local().port())),
    );
    story.recv("b", &b, 8);
}

fn time_to_live_has_bounds<N: Net>(net: &N, story: &mut Story) {
    let a = net.at("127.0.0.1:0");
    for ttl in [0, 1, 255, 256] {
        story.note(&format!("a sets {ttl}"), a.set_ttl(ttl));
    }
}

fn a_socket_that_was_never_bound<N: Net>(net: &N, story: &mut Story) {
    for is_v6 in [false, true] {
        let a = net.unbound(Before { is_v6, ..Before::default() });
        story.addresses("a", &a);
        story.recv("a", &a, 8);
        story.note("a sends", a.send(b"x"));
        // That took a port, though nothing was sent.
        story.note("a has a port", Ok(a.local().port() != 0));
        a.disconnect();
        story.note("a has a port", Ok(a.local().port() != 0));
    }
}
