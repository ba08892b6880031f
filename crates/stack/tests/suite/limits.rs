//! Behavior at every bound: a clear error or back-pressure, and normal operation afterwards.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::time::Duration;

use crate::common::{
    self, Random, assert_empty, counter, hash_of, join, join_all, scaled, stack_with, watchdog,
};
use sockeye::poll::{Interest, Poll, Token, Trigger};
use sockeye::{Config, Stack, TcpListener, TcpSocket, TcpStream};

fn listen_with_backlog(stack: &Stack, backlog: usize) -> TcpListener {
    let mut socket = TcpSocket::new_v4(stack);
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    socket.listen(backlog).unwrap()
}

#[test]
fn a_small_backlog_delays_clients_and_loses_none() {
    let _guard = watchdog("a_small_backlog_delays_clients_and_loses_none");
    // Most of it is waiting, so all at once.
    let at_once = [1, 2, 4].map(|backlog| std::thread::spawn(move || delays_clients_and_loses_none(backlog)));
    join_all(at_once.into());
}

fn delays_clients_and_loses_none(backlog: usize) {
    let stack = common::stack();
    let listener = listen_with_backlog(&stack, backlog);
    // Dropped SYNs are repeated after 1, 2, 4 seconds; many clients: `driven.rs`, with simulated time.
    let clients = backlog + common::scaled(3);
    let threads = (0..clients as u32).map(|number| {
        let (stack, addr) = (stack.clone(), listener.local_addr().unwrap());
        std::thread::spawn(move || {
            let mut client = TcpStream::connect_on(&stack, addr).unwrap();
            // Data that arrives before there is room must not be lost either.
            client.write_all(&number.to_be_bytes()).unwrap();
            let mut back = [0; 4];
            client.read_exact(&mut back).unwrap();
            assert_eq!(u32::from_be_bytes(back), number);
        })
    });
    let threads: Vec<_> = threads.collect();
    let mut seen = Vec::new();
    for _ in 0..clients {
        let (mut server, _) = listener.accept().unwrap();
        let mut number = [0; 4];
        server.read_exact(&mut number).unwrap();
        server.write_all(&number).unwrap();
        seen.push(u32::from_be_bytes(number));
    }
    join_all(threads);
    seen.sort_unstable();
    assert_eq!(seen, (0..clients as u32).collect::<Vec<_>>());
    assert_empty(&stack);
}

#[test]
fn no_more_connections_than_the_backlog_wait_for_accept() {
    let _guard = watchdog("no_more_connections_than_the_backlog_wait_for_accept");
    let stack = common::stack();
    let listener = listen_with_backlog(&stack, 3);
    let addr = listener.local_addr().unwrap();
    let waiting: Vec<_> = (0..3).map(|_| common::connect(&stack, &listener)).collect();
    // A connect ends with the SYN-ACK; the place in the backlog is taken by the third segment, which may be a worker's.
    common::eventually("all three wait", || counter(&stack, "passive_opens") == 3);
    let error = TcpSocket::new_v4(&stack).connect_timeout(addr, Duration::from_millis(50)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert!(counter(&stack, "listen_overflows") > 0);
    let mut came: Vec<_> = waiting.iter().map(|client| client.local_addr().unwrap()).collect();
    let mut served: Vec<_> = waiting.iter().map(|_| listener.accept().unwrap().1).collect();
    if !common::settings::callers_run_queues(stack.config()) {
        // Third segments are run by several workers.
        came.sort_unstable();
        served.sort_unstable();
    }
    assert_eq!(served, came, "first come, first served");
}

#[test]
fn a_connect_to_a_closed_port_does_not_connect_to_itself() {
    let _guard = watchdog("a_connect_to_a_closed_port_does_not_connect_to_itself");
    let stack = stack_with(|c| c.port_range = 40000..=40001);
    for addr in ["127.0.0.1:40000", "127.0.0.1:40001"] {
        for _ in 0..20 {
            let error = TcpStream::connect_on(&stack, addr).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        }
    }
    assert_empty(&stack);
    // An explicit bind to the port succeeds.
    let mut socket = TcpSocket::new_v4(&stack);
    socket.bind("127.0.0.1:40000".parse().unwrap()).unwrap();
    let mut alone = socket.connect("127.0.0.1:40000".parse().unwrap()).unwrap();
    alone.write_all(b"echo").unwrap();
    let mut back = [0; 4];
    alone.read_exact(&mut back).unwrap();
    assert_eq!(&back, b"echo");
}

#[test]
fn a_connect_without_a_free_port_fails_and_works_again_later() {
    let _guard = watchdog("a_connect_without_a_free_port_fails_and_works_again_later");
    let stack = stack_with(|c| c.port_range = 40000..=40003);
    let listener = TcpListener::bind_on(&stack, "127.0.0.1:80").unwrap();
    let mut ends: Vec<_> =
        (0..4).map(|_| (common::connect(&stack, &listener), listener.accept().unwrap().0)).collect();
    let addr = listener.local_addr().unwrap();
    let error = TcpStream::connect_on(&stack, addr).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AddrNotAvailable);
    assert!(error.to_string().contains("port_range"), "the message names the remedy: {error}");
    let error = TcpListener::bind_on(&stack, "127.0.0.1:0").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AddrNotAvailable);
    assert_eq!(stack.connection_count(), 8, "failed connects are not counted");
    // A 4-tuple is a name: the same ports serve another destination.
    let other = TcpListener::bind_on(&stack, "127.0.0.1:81").unwrap();
    common::connect(&stack, &other);
    // The server closes first, so that no port of the client's rests.
    let (client, server) = ends.pop().unwrap();
    drop(server);
    common::eventually("the end is seen", || client.state_name() == "CLOSE-WAIT");
    drop(client);
    // The last acknowledgment may be a worker's.
    common::eventually("a port is free again", || TcpStream::connect_on(&stack, addr).is_ok());
}

#[test]
fn too_many_connections_are_refused_with_a_reason_and_accepted_later() {
    let _guard = watchdog("too_many_connections_are_refused_with_a_reason_and_accepted_later");
    let stack = stack_with(|c| c.connections_max = 4);
    let listener = common::listener(&stack);
    let one = (common::connect(&stack, &listener), listener.accept().unwrap().0);
    let two = (common::connect(&stack, &listener), listener.accept().unwrap().0);
    let error = TcpStream::connect_on(&stack, listener.local_addr().unwrap()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    assert!(error.to_string().contains("connections_max"), "{error}");
    drop(one);
    common::eventually("there is room again", || stack.connection_count() == 2);
    let three = (common::connect(&stack, &listener), listener.accept().unwrap().0);
    drop((two, three));
    assert_empty(&stack);
}

#[test]
fn connections_beyond_the_time_wait_limit_close_without_it() {
    let _guard = watchdog("connections_beyond_the_time_wait_limit_close_without_it");
    let stack = stack_with(|c| c.tcp.time_wait_max = 0);
    let listener = common::listener(&stack);
    for _ in 0..20 {
        let client = common::connect(&stack, &listener);
        let (server, _) = listener.accept().unwrap();
        drop(client);
        drop(server);
    }
    // One end of each, or both if they closed at once.
    common::eventually("all are closed", || counter(&stack, "time_wait_overflows") >= 20);
    assert_empty(&stack);
}

#[test]
fn half_open_connections_are_bounded_and_the_stack_keeps_working() {
    let _guard = watchdog("half_open_connections_are_bounded_and_the_stack_keeps_working");
    // A stack without threads, and a time that does not pass: handshakes stay where they are.
    let stack = stack_with(|c| (c.workers, c.tcp.syn_backlog) = (0, 1));
    let listener = listen_with_backlog(&stack, 1);
    let start = || {
        let mut socket = TcpSocket::new_v4(&stack);
        socket.set_nonblocking(true);
        socket.connect(listener.local_addr().unwrap()).unwrap()
    };
    let clients: Vec<_> = (0..500).map(|_| start()).collect();
    listener.set_nonblocking(true).unwrap();
    let mut now = Duration::ZERO;
    let mut served = 0;
    while served < clients.len() && now < Duration::from_secs(600) {
        while listener.accept().is_ok() {
            served += 1;
        }
        now += Duration::from_millis(100);
        stack.poll(now);
    }
    let failed = clients.iter().filter(|c| c.take_error().unwrap().is_some()).count();
    assert!(served > 0 && served + failed >= clients.len(), "{served} served, {failed} failed with an error");
}

/// One writer's share of a stack whose memory does not suffice for all.
fn push(mut client: TcpStream, data: Vec<u8>) {
    client.write_all(&data).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
}

#[test]
fn at_the_memory_cap_writers_wait_and_nothing_is_lost() {
    let _guard = watchdog("at_the_memory_cap_writers_wait_and_nothing_is_lost");
    let mut random = Random::new("memory cap");
    let stack = stack_with(|c| c.memory_max = 1 << 20);
    let listener = common::listener(&stack);
    let mut writers = Vec::new();
    let mut readers = Vec::new();
    for _ in 0..scaled(16) {
        let client = common::connect(&stack, &listener);
        let (server, _) = listener.accept().unwrap();
        let data = random.bytes(512 << 10);
        let sent = hash_of(&data);
        writers.push(std::thread::spawn(move || push(client, data)));
        readers.push((server, sent));
    }
    // No thread reads until the memory is full: 16 times 512 KiB are written for a cap of 1 MiB.
    if readers.len() >= 8 {
        common::eventually("a writer waits for memory", || counter(&stack, "memory_waits") > 0);
    }
    assert!(stack.memory_in_use() <= 1 << 20);
    let readers: Vec<_> = readers
        .into_iter()
        .map(|(server, sent)| {
            let mut random = random.fork();
            std::thread::spawn(move || {
                let (_, got) = common::receive_chunked(&server, 9000, true, &mut random);
                assert_eq!(got, sent);
            })
        })
        .collect();
    join_all(readers);
    join_all(writers);
    assert_empty(&stack);
}

#[test]
fn a_non_blocking_write_at_the_memory_cap_fails_with_the_reason() {
    let _guard = watchdog("a_non_blocking_write_at_the_memory_cap_fails_with_the_reason");
    let stack = stack_with(|c| {
        c.memory_max = 1 << 20;
        (c.sndbuf, c.rcvbuf) = (4 << 20, 4 << 20);
    });
    let (mut hog, mut hog_peer) = common::pair(&stack);
    hog.set_nonblocking(true).unwrap();
    let mut hogged = 0;
    let error = loop {
        match hog.write(&[1; 30_000]) {
            Ok(taken) => hogged += taken,
            Err(error) => break error,
        }
    };
    assert!(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::OutOfMemory), "{error}");
    assert!(stack.memory_in_use() <= 1 << 20);
    // Another connection has no bytes of its own to wait for: it gets the error.
    let (mut poor, mut poor_peer) = common::pair(&stack);
    poor.set_nonblocking(true).unwrap();
    let mut given = 0;
    let error = loop {
        match poor.write(&[2; 30_000]) {
            Ok(taken) => given += taken,
            Err(error) => break error,
        }
    };
    assert!(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::OutOfMemory), "{error}");
    if error.kind() == ErrorKind::OutOfMemory {
        assert!(error.to_string().contains("memory_max"), "{error}");
    }
    // Reading frees the memory, and the accepted bytes arrive.
    hog_peer.read_exact(&mut vec![0; hogged]).unwrap();
    poor_peer.read_exact(&mut vec![0; given]).unwrap();
    common::eventually("memory is back", || stack.memory_in_use() == 0);
    assert!(poor.write(&[2; 30_000]).is_ok_and(|n| n > 0));
}

#[test]
fn a_socket_is_in_64_polls_at_most() {
    let stack = common::stack();
    let listener = common::listener(&stack);
    let polls: Vec<_> = (0..64).map(|_| Poll::new(Duration::ZERO)).collect();
    let add = |poll: &Poll| poll.register(&listener, Token(1), Interest::READABLE, Trigger::Level);
    polls.iter().for_each(|poll| add(poll).unwrap());
    let another = Poll::new(Duration::ZERO);
    assert_eq!(add(&another).unwrap_err().kind(), ErrorKind::QuotaExceeded);
    polls[7].deregister(&listener).unwrap();
    add(&another).unwrap();
}

#[test]
fn a_writer_that_waits_for_memory_gets_the_error_of_a_reset() {
    let _guard = watchdog("a_writer_that_waits_for_memory_gets_the_error_of_a_reset");
    let stack = stack_with(|c| {
        c.memory_max = 1 << 20;
        (c.sndbuf, c.rcvbuf) = (8 << 20, 8 << 20);
    });
    let (mut client, server) = common::pair(&stack);
    let writer = std::thread::spawn(move || client.write_all(&vec![0; 4 << 20]).map_err(|e| e.kind()));
    common::eventually("it waits", || counter(&stack, "memory_waits") > 0);
    drop(server);
    let error = join(writer).unwrap_err();
    assert!(matches!(error, ErrorKind::ConnectionReset | ErrorKind::BrokenPipe), "{error:?}");
    assert_empty(&stack);
}

#[test]
fn the_memory_cap_holds_for_transfers_through_the_codec() {
    let _guard = watchdog("the_memory_cap_holds_for_transfers_through_the_codec");
    let mut random = Random::new("codec cap");
    let config = Config { memory_max: 1 << 20, loopback_encode: true, ..common::base() };
    let stack = Stack::new(config).unwrap();
    let (client, server) = common::pair(&stack);
    let data = random.bytes(1 << 20);
    let sent = hash_of(&data);
    let writer = std::thread::spawn(move || push(client, data));
    let (_, got) = common::receive_chunked(&server, 50_000, true, &mut random);
    join(writer);
    assert_eq!(got, sent);
}
