//! Which binds conflict, and which of the sockets that share a port receives a datagram.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU16, Ordering};

use crate::provider::{Before, Kernel, Net, Ours, Socket};
use crate::story::{Story, cases, errno};

cases! {
    the_last_one_bound_with_reuse_address_receives,
    the_most_specific_receives,
    sockets_with_reuse_port_share_out,
    addresses_that_are_not_ours,
}

/// Every pair of binds to one port, over addresses of both families and both options.
#[test]
fn each_pair_of_binds_has_the_kernels_result() {
    let _guard = crate::common::watchdog("binds");
    let ours = Ours::new();
    let (mut found, mut compared) = (Vec::new(), 0);
    let befores = || {
        let flags = [false, true];
        flags.into_iter().flat_map(move |addr| flags.map(move |port| (addr, port)))
    };
    let addrs = ["0.0.0.0", "127.0.0.1", "127.0.0.2", "::", "::1", "::/only"];
    for (first, second) in addrs.iter().flat_map(|a| addrs.iter().map(move |b| (*a, *b))) {
        for (one, two) in befores().flat_map(|a| befores().map(move |b| (a, b))) {
            let port = unused_kernel_port(&addrs);
            let kernel = pair(&Kernel, port, (first, one), (second, two));
            let sockeye = pair(&ours, port, (first, one), (second, two));
            compared += 1;
            if kernel != sockeye {
                found.push(format!("{first} {one:?} then {second} {two:?}: {kernel}, here {sockeye}"));
            }
        }
    }
    assert_eq!(compared, 36 * 16);
    assert!(found.is_empty(), "{} differences:\n{}", found.len(), found.join("\n"));
}

/// The result of the second bind to the first one's port.
fn pair<N: Net>(net: &N, port: u16, first: (&str, (bool, bool)), second: (&str, (bool, bool))) -> String {
    let (before, addr) = parse(first, port);
    let _one = net.bind(before, addr).unwrap();
    let (before, addr) = parse(second, port);
    match net.bind(before, addr) {
        Ok(_) => "bound".to_string(),
        Err(error) => errno(&error),
    }
}

fn parse((addr, (reuse_addr, reuse_port)): (&str, (bool, bool)), port: u16) -> (Before, SocketAddr) {
    let (addr, v6_only) = addr.strip_suffix("/only").map_or((addr, false), |addr| (addr, true));
    let addr = SocketAddr::new(addr.parse().unwrap(), port);
    (Before { is_v6: addr.is_ipv6(), reuse_addr, reuse_port, v6_only }, addr)
}

/// A port at which the kernel has no socket on any of `addrs`, each only once. It is below the ephemeral ports, so
/// that no socket of another test or program gets it meanwhile, on an address that the first bind does not cover.
fn unused_kernel_port(addrs: &[&str]) -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(10_000);
    let is_free = |port| {
        addrs.iter().all(|addr| {
            let (before, addr) = parse((*addr, (false, false)), port);
            Kernel.bind(before, addr).is_ok()
        })
    };
    loop {
        let port = NEXT.fetch_add(1, Ordering::Relaxed);
        assert!(port < 32_000, "no port below the ephemeral ones is free on all of {addrs:?}");
        if is_free(port) {
            return port;
        }
    }
}

fn with_reuse(reuse_addr: bool, reuse_port: bool) -> Before {
    Before { reuse_addr, reuse_port, ..Before::default() }
}

fn the_last_one_bound_with_reuse_address_receives<N: Net>(net: &N, story: &mut Story) {
    let one = net.bind(with_reuse(true, false), "127.0.0.1:0".parse().unwrap()).unwrap();
    let two = net.bind(with_reuse(true, false), one.local()).unwrap();
    let three = net.bind(with_reuse(true, false), one.local()).unwrap();
    let a = net.at("127.0.0.1:0");
    story.name("a", &a);
    for _ in 0..2 {
        a.send_to(b"x", one.local()).unwrap();
    }
    for (who, socket) in [("one", &one), ("two", &two), ("three", &three), ("three", &three)] {
        story.recv(who, socket, 8);
    }
    drop(three);
    a.send_to(b"y", one.local()).unwrap();
    story.recv("one", &one, 8);
    story.recv("two", &two, 8);
}

fn the_most_specific_receives<N: Net>(net: &N, story: &mut Story) {
    let reuse = with_reuse(true, false);
    let six = net.bind(Before { is_v6: true, ..reuse }, "[::]:0".parse().unwrap()).unwrap();
    let port = six.local().port();
    let at = |addr: &str| SocketAddr::new(addr.parse().unwrap(), port);
    let a = net.at("127.0.0.1:0");
    story.name("a", &a);
    let send = || a.send_to(b"x", at("127.0.0.1")).unwrap();
    send();
    story.recv("six", &six, 8);
    let wild = net.bind(reuse, at("0.0.0.0")).unwrap();
    send();
    story.recv("wild", &wild, 8);
    let own = net.bind(reuse, at("127.0.0.1")).unwrap();
    send();
    story.recv("own", &own, 8);
    let connected = net.bind(reuse, at("127.0.0.1")).unwrap();
    connected.connect(a.local()).unwrap();
    send();
    story.recv("connected", &connected, 8);
    let b = net.at("127.0.0.1:0");
    story.name("b", &b);
    b.send_to(b"y", at("127.0.0.1")).unwrap();
    story.recv("own", &own, 8);
    b.send_to(b"z", at("127.0.0.2")).unwrap();
    story.recv("wild", &wild, 8);
    for (who, socket) in [("six", &six), ("wild", &wild), ("own", &own), ("connected", &connected)] {
        story.recv(who, socket, 8);
    }
}

fn sockets_with_reuse_port_share_out<N: Net>(net: &N, story: &mut Story) {
    let reuse = with_reuse(false, true);
    let first = net.bind(reuse, "127.0.0.1:0".parse().unwrap()).unwrap();
    let to = first.local();
    let mut group = vec![first];
    group.extend((0..3).map(|_| net.bind(reuse, to).unwrap()));
    let senders: Vec<_> = (0..64).map(|_| net.at("127.0.0.1:0")).collect();
    for round in 0..2 {
        for sender in &senders {
            sender.send_to(&[round], to).unwrap();
        }
    }
    // Each sender has one receiver, and each receiver some senders.
    let mut seen = Vec::new();
    for (place, socket) in group.iter().enumerate() {
        socket.set_nonblocking(true);
        let mut buf = [0; 8];
        while let Ok((_, from)) = socket.recv(&mut buf) {
            seen.push((from, place));
        }
    }
    story.note("all arrive", Ok(seen.len()));
    seen.sort_unstable();
    seen.dedup();
    story.note("each sender has one receiver", Ok(seen.len()));
    let busy = (0..4).filter(|place| seen.iter().any(|(_, of)| of == place)).count();
    story.note("all receivers have some", Ok(busy));
}

fn addresses_that_are_not_ours<N: Net>(net: &N, story: &mut Story) {
    for addr in
        ["192.0.2.1:0", "[2001:db8::1]:0", "127.9.9.9:0", "[::2]:0", "224.0.0.7:0", "255.255.255.255:0"]
    {
        let addr: SocketAddr = addr.parse().unwrap();
        story.note(&format!("{addr}"), net.bind(Before::of(addr), addr).map(|_| ()));
    }
    let a = net.at("127.0.0.1:0");
    story.name("a", &a);
    story.addresses("a", &a);
}
