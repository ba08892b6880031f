//! Machines with a card of virtio, by vhost-user: the machine is a stack of this process behind rings in a file of memory (`front.rs`), and hostile rings.

use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sockeye::netif::{LinkOptions, Prefix};
use sockeye::{Config, Stack};

use crate::common::{Gateway, echo_server, eventually, temporary};
use crate::front::{
    CSUM, Driver, EVENT_IDX, Front, GUEST_CSUM, HOST_TSO4, MERGED, PAIRS, PROTOCOL, SIZE, Seen, VERSION_1,
    guest_addr,
};
use crate::socket::{connected, echo};

/// A machine with the first address.
fn machine(socket: UnixStream, features: u64) -> (Stack, Arc<Seen>) {
    let (stack, seen, _front) = machine_with_front(socket, features);
    (stack, seen)
}

fn machine_with_front(socket: UnixStream, features: u64) -> (Stack, Arc<Seen>, Arc<Mutex<Front>>) {
    let (stack, seen) = (Stack::new(Config::default()).unwrap(), Arc::default());
    let driver = Driver::new(Front::new(socket, features), &seen);
    let front = driver.front();
    let options = LinkOptions { accept_ra: false, detect_duplicates: false, ..LinkOptions::default() };
    let addrs: [Prefix; 2] = ["10.0.2.100/24", "fd00::100/64"].map(|addr| addr.parse().unwrap());
    stack.attach_with(driver, &addrs, &options).unwrap();
    (stack, seen, front)
}

fn start(path: &Path, more: &[&str]) -> Gateway {
    let options = ["--vhost-user", path.to_str().unwrap(), "--allow", "127.0.0.1"];
    Gateway::start(&[&options[..], more].concat(), &[])
}

#[test]
fn bytes_of_machines_pass_through_their_memory_whatever_they_negotiate() {
    let (server, port) = echo_server();
    let path = temporary("vhost.socket");
    let mut gateway = start(&path, &[]);
    let all = VERSION_1 | MERGED | EVENT_IDX | PROTOCOL | CSUM | HOST_TSO4 | GUEST_CSUM;
    for (features, bytes) in [(all, 3_000_000), (VERSION_1 | MERGED, 300_000), (MERGED | EVENT_IDX, 300_000)]
    {
        let (stack, seen) = machine(connected(&path), features);
        echo(&stack, &format!("10.0.2.2:{port}"), bytes);
        assert!(seen.merged.load(Ordering::Relaxed) > 0, "no frame took two buffers");
        assert_eq!(seen.missed.load(Ordering::Relaxed), 0, "frames without an interrupt");
    }
    server.finish(3);
    gateway.terminate();
    assert_eq!(gateway.wait(), Some(0));
    assert!(!path.exists());
}

#[test]
fn a_machine_with_pairs_of_rings_uses_those_that_it_enables() {
    let (server, port) = echo_server();
    let path = temporary("vhost-pairs.socket");
    let mut gateway = start(&path, &[]);
    let features = VERSION_1 | MERGED | EVENT_IDX | PROTOCOL | PAIRS;
    let (stack, seen, front) = machine_with_front(connected(&path), features);
    let received = || seen.received.each_ref().map(|count| count.load(Ordering::Relaxed));
    // Flows choose a pair by their hash, so some take the other one: that all do not is as likely as 20 equal throws of a coin.
    (0..20).for_each(|_| echo(&stack, &format!("10.0.2.2:{port}"), 100_000));
    assert!(received().iter().all(|count| *count > 0), "{:?}", received());
    // As a driver that uses one pair from now on.
    front.lock().unwrap().disable(2);
    let before = front.lock().unwrap().used(2);
    (0..20).for_each(|_| echo(&stack, &format!("10.0.2.2:{port}"), 100_000));
    assert_eq!(front.lock().unwrap().used(2), before, "frames in a ring that is disabled");
    assert_eq!(seen.missed.load(Ordering::Relaxed), 0, "frames without an interrupt");
    drop((stack, server));
    gateway.terminate();
    assert_eq!(gateway.wait(), Some(0));
}

#[test]
fn a_front_end_that_listens_is_connected_to() {
    let (_server, port) = echo_server();
    let path = temporary("vhost-listens.socket");
    let listener = UnixListener::bind(&path).unwrap();
    let mut gateway = start(&path, &[]);
    let (stack, _) = machine(listener.accept().unwrap().0, VERSION_1 | MERGED | PROTOCOL);
    echo(&stack, &format!("10.0.2.2:{port}"), 100_000);
    drop(stack);
    assert_eq!(gateway.wait(), Some(0), "its only machine has gone");
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn hostile_rings_and_messages_harm_nobody_and_the_next_machine_is_served() {
    let (server, port) = echo_server();
    let path = temporary("vhost-hostile.socket");
    let mut gateway = start(&path, &[]);
    let features = VERSION_1 | MERGED;
    // Frames of nonsense, which are used up.
    let mut front = Front::new(connected(&path), features);
    let places = [(0, 64), (guest_addr(64 << 20), 64), (guest_addr((64 << 20) - 8), 64), (u64::MAX - 4, 64)];
    for (count, place) in (0..2000u16).zip(places.iter().cycle()) {
        front.describe(1, count % SIZE, *place, 1 | (count & 6), count.wrapping_mul(7) % (SIZE + 3));
        front.offer(1, count, count % SIZE);
        front.kick(1);
        if count % SIZE == SIZE - 1 {
            eventually("the ring is served", || front.used(1) == count.wrapping_add(1));
        }
    }
    eventually("all are used up", || front.used(1) == 2000);
    // An index further ahead than the ring is long: it is left alone.
    front.set_available(1, 2000 + SIZE + 1);
    front.kick(1);
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!((front.used(1), front.stop(1)), (2000, 2000));
    assert!(gateway.runs_still());
    front.babble();
    assert!(front.hung_up());
    drop(front);
    // Rings that are nowhere, a table of memory that is longer than its file.
    let mut front = Front::new(connected(&path), features);
    front.say(9, &[&[0; 8][..], &[0xf0; 32]].concat(), &[]);
    assert!(front.hung_up(), "a ring behind the memory");
    drop(front);
    let mut front = Front::new(connected(&path), features);
    let table = [1u64, 0, 1 << 40, 0, 0].map(u64::to_le_bytes).concat();
    let short = rustix::fs::memfd_create("short", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    front.say(5, &table, &[&short]);
    assert!(front.hung_up(), "memory behind the end of its file");
    drop(front);
    // A machine that goes in the middle of a connection, and one that stays.
    let (stack, _) = machine(connected(&path), features);
    echo(&stack, &format!("10.0.2.2:{port}"), 100_000);
    drop(stack);
    let (stack, _) = machine(connected(&path), features);
    echo(&stack, &format!("10.0.2.2:{port}"), 100_000);
    server.finish(2);
    drop(stack);
    gateway.terminate();
    assert_eq!(gateway.wait(), Some(0));
}
