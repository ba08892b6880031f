//! Both ends may vanish in every state, and nothing is left: no connection, no memory, no thread.

use crate::common::settings::{Setting, grains};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::{self, Random, assert_empty, join_all, scaled, stack_with, watchdog};
use sockeye::{Stack, TcpListener, TcpSocket, TcpStream};

/// Actions of one end before it is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Nothing,
    Write,
    WriteMuch,
    ReadSome,
    Shut,
    WriteAndShut,
    ShutAndReadAll,
    ShutRead,
    Reset,
    WriteAndReset,
    PeekAndLeave,
}

const ACTS: [Act; 11] = [
    Act::Nothing,
    Act::Write,
    Act::WriteMuch,
    Act::ReadSome,
    Act::Shut,
    Act::WriteAndShut,
    Act::ShutAndReadAll,
    Act::ShutRead,
    Act::Reset,
    Act::WriteAndReset,
    Act::PeekAndLeave,
];

/// Errors are the point of the exercise, so none of them counts.
fn live(mut stream: TcpStream, act: Act) {
    let short = Some(Duration::from_millis(5));
    stream.set_read_timeout(short).unwrap();
    stream.set_write_timeout(short).unwrap();
    let mut buf = [0; 4096];
    match act {
        Act::Nothing => {}
        Act::Write => drop(stream.write(&buf)),
        Act::WriteMuch => drop(stream.write(&vec![0; 1 << 20])),
        Act::ReadSome => drop(stream.read(&mut buf[..100])),
        Act::Shut => drop(stream.shutdown(Shutdown::Write)),
        Act::WriteAndShut => {
            let _ = stream.write(&buf);
            let _ = stream.shutdown(Shutdown::Write);
        }
        Act::ShutAndReadAll => {
            let _ = stream.shutdown(Shutdown::Write);
            while stream.read(&mut buf).is_ok_and(|n| n > 0) {}
        }
        Act::ShutRead => drop(stream.shutdown(Shutdown::Read)),
        Act::Reset => stream.set_linger(Some(Duration::ZERO)).unwrap(),
        Act::WriteAndReset => {
            let _ = stream.write(&buf);
            stream.set_linger(Some(Duration::ZERO)).unwrap();
        }
        Act::PeekAndLeave => drop(stream.peek(&mut buf)),
    }
}

#[test]
fn every_pair_of_ends_leaves_nothing_behind() {
    let _guard = watchdog("every_pair_of_ends_leaves_nothing_behind");
    for encode in [false, true] {
        for grain in grains() {
            let stack = stack_with(|c| {
                grain.set(c);
                c.loopback_encode = encode;
            });
            for one in ACTS {
                for other in ACTS {
                    let (client, server) = common::pair(&stack);
                    let thread = std::thread::spawn(move || live(server, other));
                    live(client, one);
                    common::join(thread);
                }
            }
            assert_empty(&stack);
        }
    }
}

#[test]
fn ends_that_leave_one_after_the_other_leave_nothing_behind() {
    let _guard = watchdog("ends_that_leave_one_after_the_other_leave_nothing_behind");
    let stack = common::stack();
    for one in ACTS {
        for other in ACTS {
            let (client, server) = common::pair(&stack);
            live(client, one);
            live(server, other);
        }
    }
    assert_empty(&stack);
}

#[test]
fn a_dropped_listener_resets_unaccepted_connections() {
    let _guard = watchdog("a_dropped_listener_resets_unaccepted_connections");
    let stack = common::stack();
    let listener = common::listener(&stack);
    let mut clients: Vec<TcpStream> = (0..20).map(|_| common::connect(&stack, &listener)).collect();
    clients[7].write_all(b"into the void").unwrap();
    drop(listener);
    for client in &mut clients {
        let error = client.read(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    }
    drop(clients);
    assert_empty(&stack);
}

#[test]
fn a_connect_may_be_cancelled_during_its_handshake() {
    let _guard = watchdog("a_connect_may_be_cancelled_during_its_handshake");
    let stack = common::stack();
    let mut socket = TcpSocket::new_v4(&stack);
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let start = || {
        let mut socket = TcpSocket::new_v4(&stack);
        socket.set_nonblocking(true);
        socket.connect(listener.local_addr().unwrap()).unwrap()
    };
    let first = start();
    for _ in 0..100 {
        drop(start());
    }
    drop((first, listener));
    assert_empty(&stack);
}

#[test]
fn a_listener_may_be_dropped_during_handshakes() {
    let _guard = watchdog("a_listener_may_be_dropped_during_handshakes");
    let stack = common::stack();
    for _ in 0..scaled(50) {
        let listener = common::listener(&stack);
        let addr = listener.local_addr().unwrap();
        let clients = (0..4).map(|_| {
            let stack = stack.clone();
            std::thread::spawn(move || {
                if let Ok(mut client) = TcpStream::connect_on(&stack, addr) {
                    // Never accepted: the reset arrives, or has arrived.
                    let _ = client.write(b"hello");
                    while client.read(&mut [0; 16]).is_ok_and(|n| n > 0) {}
                }
            })
        });
        let clients: Vec<_> = clients.collect();
        drop(listener);
        join_all(clients);
    }
    assert_empty(&stack);
}

/// Connects, exchanges a few bytes and closes, repeatedly; some ends reset.
fn churn(stack: &Stack, listener: &TcpListener, count: usize, mut random: Random) -> usize {
    let mut served = 0;
    for _ in 0..count {
        let mut client = common::connect(stack, listener);
        let question = random.bytes(1 + random.clone().below(64));
        client.write_all(&question).unwrap();
        let mut answer = vec![0; question.len()];
        client.read_exact(&mut answer).unwrap();
        assert!(answer == question);
        served += 1;
        match random.below(3) {
            0 => client.set_linger(Some(Duration::ZERO)).unwrap(),
            1 => client.shutdown(Shutdown::Write).unwrap(),
            _ => {}
        }
    }
    served
}

#[test]
fn thousands_of_connects_and_closes_at_once_are_all_served() {
    let _guard = watchdog("thousands_of_connects_and_closes_at_once_are_all_served");
    let mut random = Random::new("churn");
    for grain in grains() {
        let stack = stack_with(|c| grain.set(c));
        let listener = common::listener(&stack);
        let (clients, each) = (8, scaled(400));
        let answered = std::sync::Arc::new(AtomicUsize::new(0));
        let servers = (0..4).map(|_| {
            let (listener, answered) = (listener.try_clone().unwrap(), answered.clone());
            std::thread::spawn(move || {
                while answered.fetch_add(1, Ordering::Relaxed) < clients * each {
                    let (mut stream, _) = listener.accept().unwrap();
                    let mut buf = [0; 64];
                    while let Ok(got @ 1..) = stream.read(&mut buf) {
                        if stream.write_all(&buf[..got]).is_err() {
                            break;
                        }
                    }
                }
            })
        });
        let servers: Vec<_> = servers.collect();
        let threads = (0..clients).map(|_| {
            let (stack, listener, random) = (stack.clone(), listener.try_clone().unwrap(), random.fork());
            std::thread::spawn(move || churn(&stack, &listener, each, random))
        });
        let served: usize = join_all(threads.collect()).into_iter().sum();
        assert_eq!(served, clients * each);
        join_all(servers);
        assert_empty(&stack);
    }
}

#[test]
fn two_sockets_may_connect_to_each_other_at_once() {
    let _guard = watchdog("two_sockets_may_connect_to_each_other_at_once");
    let stack = common::stack();
    for _ in 0..scaled(50) {
        let bound = || {
            let mut socket = TcpSocket::new_v4(&stack);
            socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
            (socket.local_addr().unwrap(), socket)
        };
        let ((one_at, one), (other_at, other)) = (bound(), bound());
        let thread = std::thread::spawn(move || other.connect(one_at));
        let one = one.connect(other_at);
        let other = common::join(thread);
        // They connect, or the first SYN arrived before the other socket was there and was refused.
        if let (Ok(mut one), Ok(mut other)) = (one, other) {
            one.write_all(b"both").unwrap();
            let mut got = [0; 4];
            other.read_exact(&mut got).unwrap();
            assert_eq!(&got, b"both");
        }
    }
    assert_empty(&stack);
}

#[test]
fn an_abort_with_unsent_bytes_after_both_shut_down_resets_the_peer() {
    let _guard = watchdog("an_abort_with_unsent_bytes_after_both_shut_down_resets_the_peer");
    let stack = common::stack();
    let (mut client, mut server) = common::pair(&stack);
    client.shutdown(Shutdown::Write).unwrap();
    server.set_nonblocking(true).unwrap();
    while server.write(&[1; 50_000]).is_ok() {}
    // LAST-ACK, but neither the rest of the bytes nor the FIN has left.
    server.shutdown(Shutdown::Write).unwrap();
    server.set_linger(Some(Duration::ZERO)).unwrap();
    drop(server);
    let mut got = Vec::new();
    let error = client.read_to_end(&mut got).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    drop(client);
    assert_empty(&stack);
}
