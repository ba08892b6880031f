//! Ethernet with the kernel on the other side: neighbors that expire, disappear and return with another address.

use std::io::{Read, Write};
use std::time::Duration;

use sockeye::UdpSocket;
use sockeye_drivers::Layer;

use crate::common::{KERNEL, addr, bytes, eventually, hash, skipped};
use crate::testbed::{PATIENCE, Testbed, content, program};

const LEN: usize = 2_000_000;

/// A connection opened by the stack, both ends.
fn connection(testbed: &Testbed, v6: bool) -> (sockeye::TcpStream, std::net::TcpStream) {
    let at = testbed.lab.kernel_addr(v6, 0);
    let listener = testbed.lab.kernel(move || std::net::TcpListener::bind(at).unwrap()).join().unwrap();
    let ours = sockeye::TcpStream::connect_on(&testbed.lab.stack, listener.local_addr().unwrap()).unwrap();
    (ours, listener.accept().unwrap().0)
}

/// Sends from us to the kernel, and does something after a third of it.
fn send_and(testbed: &Testbed, v6: bool, meanwhile: impl FnOnce()) {
    let (mut ours, mut theirs) = connection(testbed, v6);
    let data = bytes(5, LEN);
    let expected = hash(&data);
    let sender = std::thread::spawn(move || ours.write_all(&data).unwrap());
    let mut got = vec![0; LEN];
    let (first, rest) = got.split_at_mut(LEN / 3);
    theirs.read_exact(first).unwrap();
    meanwhile();
    theirs.read_exact(rest).unwrap();
    sender.join().unwrap();
    assert_eq!(hash(&got), expected);
}

#[test]
fn each_side_deletes_its_neighbor_during_a_transfer_and_resolves_it_again() {
    if skipped("forgotten neighbors") {
        return;
    }
    let testbed = Testbed::new(Layer::Ethernet);
    for v6 in [false, true] {
        let asked = testbed.lab.count("neighbor_solicits_out");
        send_and(&testbed, v6, || testbed.lab.stack.flush_neighbors(testbed.netif).unwrap());
        assert!(testbed.lab.count("neighbor_solicits_out") > asked);
        let device = testbed.device();
        send_and(&testbed, v6, || {
            drop(program(&testbed.lab.namespace, &format!("ip neigh flush dev {device}")))
        });
    }
}

#[test]
fn old_entries_are_confirmed_by_probes() {
    if skipped("old neighbors") {
        return;
    }
    let testbed = Testbed::new(Layer::Ethernet);
    let device = testbed.device();
    for version in ["ipv4", "ipv6"] {
        testbed.sysctl(&format!("{version}/neigh/{device}/base_reachable_time_ms"), "100");
        testbed.sysctl(&format!("{version}/neigh/{device}/delay_first_probe_time"), "1");
    }
    for v6 in [false, true] {
        let ours = UdpSocket::bind_on(&testbed.lab.stack, testbed.lab.stack_addr(v6, 0)).unwrap();
        ours.set_read_timeout(Some(PATIENCE)).unwrap();
        let (at, to) = (testbed.lab.kernel_addr(v6, 0), ours.local_addr().unwrap());
        let theirs = testbed.lab.kernel(move || std::net::UdpSocket::bind(at).unwrap()).join().unwrap();
        let heard = if v6 { "ndp_in" } else { "arp_in" };
        let before = testbed.lab.count(heard);
        // No service answers, so that only our answers to solicitations confirm to the kernel that we are reachable.
        let asked_again = (0..200_u32).any(|number| {
            theirs.send_to(&number.to_be_bytes(), to).unwrap();
            let mut got = [0; 4];
            assert_eq!((ours.recv(&mut got).unwrap(), got), (4, number.to_be_bytes()));
            std::thread::sleep(Duration::from_millis(100));
            testbed.lab.count(heard) >= before + 2
        });
        assert!(asked_again, "{heard}: {} after {before}", testbed.lab.count(heard));
    }
}

#[test]
fn a_transfer_continues_when_the_kernels_interface_returns_with_another_address() {
    if skipped("a neighbor that goes away") {
        return;
    }
    let testbed = Testbed::new(Layer::Ethernet);
    let device = testbed.device();
    if program(&testbed.lab.namespace, "ip -V").is_none() {
        return;
    }
    // It announces its new address; otherwise a recently confirmed neighbor stays valid for up to 45 s.
    testbed.sysctl(&format!("ipv4/conf/{device}/arp_notify"), "1");
    let ip = |words: &str| drop(content(&testbed.lab.namespace, &format!("ip {words}")));
    send_and(&testbed, false, || {
        ip(&format!("link set {device} down"));
        std::thread::sleep(Duration::from_millis(300));
        ip(&format!("link set {device} address 02:00:00:00:00:77"));
        ip(&format!("link set {device} up"));
    });
    let known = || {
        let neighbors = testbed.lab.stack.neighbors();
        neighbors.iter().find(|n| n.addr == addr(KERNEL[0])).and_then(|n| n.lladdr)
    };
    eventually("the new address is known", || known().is_some_and(|mac| mac.0 == [2, 0, 0, 0, 0, 0x77]));
}

#[test]
fn a_host_that_is_not_there_is_unreachable() {
    if skipped("an absent neighbor") {
        return;
    }
    let testbed = Testbed::new(Layer::Ethernet);
    for to in ["10.9.0.99:80", "[fd09::99]:80"] {
        let error = sockeye::TcpStream::connect_on(&testbed.lab.stack, to).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::HostUnreachable, "{to}: {error:?}");
    }
}
