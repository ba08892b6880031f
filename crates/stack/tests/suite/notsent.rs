//! TCP_NOTSENT_LOWAT with threads: a writer that waits for sending is unblocked, and no wake-up is lost; if one is, the
//! test does not end and the watchdog reports it.
//!
//! The conditions that unblock a writer are tested step by step in `tests/tcp/notsent.rs`.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::time::Duration;

use crate::common::{self, Random, hash_of, join, join_all, scaled, stack_with, watchdog};
use sockeye::poll::{Events, Interest, Poll, Token, Trigger};
use sockeye::{TcpSocket, TcpStream};

/// Marks of all sorts: a segment at a time, less and more than a segment, more than the buffers.
const LOWATS: [u32; 5] = [1, 1000, 16_384, 100_000, 1 << 20];

fn pair_with(lowat: u32, (sndbuf, rcvbuf): (u32, u32), nodelay: bool) -> (TcpStream, TcpStream) {
    let stack = stack_with(|c| (c.sndbuf, c.rcvbuf, c.tcp.notsent_lowat) = (sndbuf, rcvbuf, lowat));
    let (client, server) = common::pair(&stack);
    client.set_nodelay(nodelay).unwrap();
    (client, server)
}

#[test]
fn streams_with_any_mark_arrive_whole_in_both_directions() {
    let _guard = watchdog("streams_with_any_mark_arrive_whole_in_both_directions");
    for (round, lowat) in LOWATS.into_iter().enumerate() {
        for sizes in [(256 << 10, 256 << 10), (8192, 8192), (64 << 10, 3000)] {
            let ends = pair_with(lowat, sizes, round % 2 == 0);
            let mut threads = Vec::new();
            for (from, to) in [(&ends.0, &ends.1), (&ends.1, &ends.0)] {
                let mut random = Random::new("marks");
                let data = random.bytes(scaled(400_000));
                let expected = (data.len(), hash_of(&data));
                let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                let mut reads = random.fork();
                threads.push(std::thread::spawn(move || {
                    common::send_chunked(&from, &data, 60_000, &mut random);
                }));
                threads.push(std::thread::spawn(move || {
                    assert_eq!(common::receive_chunked(&to, 20_000, true, &mut reads), expected);
                }));
            }
            join_all(threads);
        }
    }
}

#[test]
fn several_blocked_writers_of_one_connection_all_continue() {
    let _guard = watchdog("several_blocked_writers_of_one_connection_all_continue");
    for lowat in LOWATS {
        let (client, mut server) = pair_with(lowat, (32 << 10, 8192), true);
        let each = scaled(100_000);
        let writers = (0..3).map(|_| {
            let mut client = client.try_clone().unwrap();
            std::thread::spawn(move || client.write_all(&vec![1; each]).unwrap())
        });
        let writers: Vec<_> = writers.collect();
        server.read_exact(&mut vec![0; 3 * each]).unwrap();
        join_all(writers);
    }
}

#[test]
fn a_blocking_write_waits_while_there_is_room_but_too_much_is_unsent() {
    let _guard = watchdog("a_blocking_write_waits_while_there_is_room_but_too_much_is_unsent");
    let lowat = 16_384;
    let (mut client, mut server) = pair_with(lowat, (1 << 20, 8192), true);
    client.set_write_timeout(Some(Duration::from_millis(30))).unwrap();
    let mut written = client.write(&[1; 500_000]).unwrap();
    // The window, the mark, and a segment that goes beyond.
    assert!(written < 200_000, "{written}");
    loop {
        // A window probe may make room for a few bytes more.
        match client.write(&[1; 500_000]) {
            Ok(more) => written += more,
            Err(error) => break assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
    }
    client.set_write_timeout(None).unwrap();
    let writer = std::thread::spawn(move || client.write_all(&[2; 500_000]));
    server.read_exact(&mut vec![0; written + 500_000]).unwrap();
    join(writer).unwrap();
}

#[test]
fn changing_or_removing_the_mark_unblocks_a_writer() {
    let _guard = watchdog("changing_or_removing_the_mark_unblocks_a_writer");
    for other in [None, Some(10_000_000)] {
        for pause_ms in [0, 20] {
            let (mut client, server) = pair_with(1000, (1 << 20, 8192), false);
            let setter = client.try_clone().unwrap();
            let writer = std::thread::spawn(move || client.write_all(&[1; 500_000]).unwrap());
            std::thread::sleep(Duration::from_millis(pause_ms));
            setter.set_notsent_lowat(other).unwrap();
            // No thread reads: it fits the buffer.
            join(writer);
            drop((setter, server));
        }
    }
}

/// A loop that writes when the socket is reported writable, and then until a write would block.
fn write_when_notified(stream: &TcpStream, data: &[u8], trigger: Trigger) {
    stream.set_nonblocking(true).unwrap();
    let poll = Poll::new(Duration::from_micros(20));
    poll.register(stream, Token(0), Interest::WRITABLE, trigger).unwrap();
    let (mut sent, mut events) = (0, Events::with_capacity(4));
    while sent < data.len() {
        poll.wait(&mut events, None).unwrap();
        while sent < data.len() {
            match { stream }.write(&data[sent..]) {
                Ok(taken) => sent += taken,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => panic!("{error}"),
            }
        }
    }
    stream.shutdown(Shutdown::Write).unwrap();
}

#[test]
fn level_and_edge_triggered_loops_lose_no_event_about_room() {
    let _guard = watchdog("level_and_edge_triggered_loops_lose_no_event_about_room");
    for lowat in LOWATS {
        for trigger in [Trigger::Level, Trigger::Edge] {
            for nodelay in [false, true] {
                let (client, server) = pair_with(lowat, (128 << 10, 16 << 10), nodelay);
                let mut random = Random::new("told of room");
                let data = random.bytes(scaled(400_000));
                let expected = (data.len(), hash_of(&data));
                let writer = std::thread::spawn(move || write_when_notified(&client, &data, trigger));
                assert_eq!(common::receive_chunked(&server, 10_000, true, &mut random), expected);
                join(writer);
            }
        }
    }
}

#[test]
fn urgent_bytes_and_a_mark_do_not_interfere() {
    let _guard = watchdog("urgent_bytes_and_a_mark_do_not_interfere");
    let stack = common::stack();
    let listener = common::listener(&stack);
    let mut socket = TcpSocket::new_v4(&stack);
    socket.set_notsent_lowat(Some(1)).unwrap();
    let mut client = socket.connect(listener.local_addr().unwrap()).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    for round in 0..50 {
        client.write_all(&[round; 3]).unwrap();
        assert_eq!(client.send_urgent(&[round]).unwrap(), 1);
        let mut got = [0; 4];
        server.read_exact(&mut got).unwrap();
        assert_eq!(got, [round; 4]);
    }
    assert_eq!(client.notsent_lowat().unwrap(), Some(1));
    client.set_notsent_lowat(None).unwrap();
    client.send_urgent(b"!").unwrap();
    server.read_exact(&mut [0]).unwrap();
}
