//! Panics while a table of the transport layer is locked: the entry is removed, the other entries and the table stay usable.

use std::io::{Read, Write};

use sockeye::failpoints::{arm, fired};
use sockeye::{TcpListener, TcpSocket, TcpStream};

use crate::common;
use crate::world::{End, Medium, World, end_of};

/// How a client learns that the handshake has failed.
fn failure(world: &World, mut client: &TcpStream) -> End {
    world.until("the client hears of it", || {
        end_of(client.read(&mut [0]), true).or_else(|| end_of(client.write(b"x"), false))
    })
}

/// The key by which points identify the listener.
fn port(world: &World) -> u64 {
    u64::from(world.listener.local_addr().unwrap().port())
}

/// A handshake with a panic at `point`, after `skip` hits, whose connection is established nevertheless.
fn survives(medium: Medium, point: &str, skip: u32, of: impl Fn(&World) -> u64) {
    let world = World::new(medium, |c| c.workers = 0);
    let other = world.pair();
    arm(point, skip, 1, of(&world));
    let before = fired(point);
    let pair = world.pair();
    pair.works(&world);
    assert_eq!(fired(point) - before, 1, "{point}");
    other.works(&world);
    drop((pair, other));
    world.end(1);
}

/// A handshake with a panic at `point`, after `skip` hits, which ends with a reset; the next one succeeds.
fn is_reset(medium: Medium, point: &str, skip: u32) {
    let world = World::new(medium, |c| c.workers = 0);
    let other = world.pair();
    arm(point, skip, 1, port(&world));
    let before = fired(point);
    let client = world.connect();
    let end = failure(&world, &client);
    assert!(end.is_reset(), "{point}: {end:?}");
    assert_eq!(fired(point) - before, 1, "{point}");
    drop(client);
    world.pair().works(&world);
    other.works(&world);
    drop(other);
    world.end(1);
}

#[test]
fn a_panic_over_a_handshake_removes_its_entry() {
    let _turn = crate::turn();
    let _guard = common::watchdog("panics over handshakes");
    for medium in [Medium::Loopback, Medium::Wire] {
        // Over the SYN, which the client repeats.
        survives(medium, "syncache.segment", 0, port);
        survives(medium, "demux.look_up", 0, port);
        // The panic is over the acknowledgment of the SYN-ACK: the client regards the connection as established, and gets a reset.
        is_reset(medium, "syncache.segment", 1);
        is_reset(medium, "demux.establish", 0);
        is_reset(medium, "listener.push", 0);
    }
    survives(Medium::Wire, "input.frame", 0, |_| 0);
}

#[test]
fn a_syn_ack_whose_repetition_panics_is_given_up() {
    let _turn = crate::turn();
    let _guard = common::watchdog("a panic over a SYN-ACK");
    let world = World::new(Medium::Wire, |c| c.workers = 0);
    let other = world.pair();
    arm("syncache.repeat", 0, 1, port(&world));
    let client = world.connect();
    // The client stands still, so that the SYN-ACK is not answered.
    let before = fired("syncache.repeat");
    while fired("syncache.repeat") == before {
        world.turn_of(&world.stacks[1..]);
    }
    let end = failure(&world, &client);
    assert!(end.is_reset(), "{end:?}");
    drop(client);
    world.pair().works(&world);
    other.works(&world);
    drop(other);
    world.end(1);
}

#[test]
fn a_panic_over_a_time_wait_entry_frees_its_addresses() {
    let _turn = crate::turn();
    let _guard = common::watchdog("a panic over TIME-WAIT");
    let world = World::new(Medium::Wire, |c| c.workers = 0);
    let other = world.pair();
    let pair = world.pair();
    let from = pair.0[0].local_addr().unwrap();
    let [client, server] = pair.0;
    // The server closes first, and its name rests.
    drop(server);
    world.until("the client sees the end", || end_of((&client).read(&mut [0]), true));
    drop(client);
    world.until("only the other is left", || (world.stacks[0].connection_count() == 1).then_some(()));
    arm("demux.time_wait", 0, 1, port(&world));
    let before = fired("demux.time_wait");
    let mut again = TcpSocket::new_v4(&world.stacks[0]);
    again.set_reuse_address(true);
    again.set_nonblocking(true);
    again.bind(from).unwrap();
    let again = world.accept(again.connect(world.listener.local_addr().unwrap()).unwrap());
    again.works(&world);
    assert_eq!(fired("demux.time_wait") - before, 1);
    other.works(&world);
    drop((again, other));
    world.end(1);
}

#[test]
fn a_call_that_panics_over_names_fails_and_leaves_no_trace() {
    let _turn = crate::turn();
    let _guard = common::watchdog("panics over names");
    let world = World::new(Medium::Loopback, |c| c.workers = 1);
    let stack = &world.stacks[0];
    let addr = world.listener.local_addr().unwrap();
    let panicked = |error: std::io::Error| assert!(error.to_string().contains("panicked"), "{error}");
    arm("demux.connect", 0, 1, u64::from(addr.port()));
    panicked(TcpStream::connect_on(stack, addr).unwrap_err());
    assert_eq!(stack.connection_count(), 0, "its place is given back");
    arm("ports.bind", 0, 1, 777);
    panicked(TcpListener::bind_on(stack, "127.0.0.1:777").unwrap_err());
    arm("listeners.add", 3, 1, 777);
    panicked(TcpListener::bind_on(stack, "127.0.0.1:777").unwrap_err());
    // No copy of the table has it.
    let refused = TcpStream::connect_on(stack, "127.0.0.1:777").unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    let listener = TcpListener::bind_on(stack, "127.0.0.1:777").unwrap();
    let client = TcpStream::connect_on(stack, "127.0.0.1:777").unwrap();
    drop((listener.accept().unwrap(), client));
    drop(listener);
    world.pair().works(&world);
    world.end(3);
}

#[test]
fn a_timer_wheel_that_panics_loses_no_timer() {
    let _turn = crate::turn();
    let _guard = common::watchdog("a wheel that panics");
    let world = World::new(Medium::Wire, |c| c.workers = 0);
    let sent = || common::counter(&world.stacks[0], "segments_out");
    let before = sent();
    let clients = [world.connect(), world.connect()];
    // The SYNs are not answered: the timer wheel repeats each, and panics the first time.
    arm("timers.advance", 0, 1, 0);
    while sent() - before < 6 {
        world.turn_of(&world.stacks[..1]);
    }
    assert_eq!(world.reports().len(), 1);
    let pairs = clients.map(|client| world.accept(client));
    pairs.iter().for_each(|pair| pair.works(&world));
    drop(pairs);
    world.end(1);
}
