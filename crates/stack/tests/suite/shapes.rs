//! Single shapes of reading, writing and closing: half-close, peek, vectored, empty, options, queries.

use std::io::{ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::Shutdown;
use std::time::Duration;

use crate::common::{self, Random, pair, stack, watchdog};
use sockeye::{TcpListener, TcpSocket, TcpStream};

#[test]
fn after_a_half_close_the_other_direction_still_carries() {
    let _guard = watchdog("after_a_half_close_the_other_direction_still_carries");
    let (mut client, mut server) = pair(&stack());
    client.write_all(b"question").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let mut question = String::new();
    server.read_to_string(&mut question).unwrap();
    assert_eq!(question, "question");
    let answer = Random::new("half-close").bytes(3_000_000);
    let sent = answer.clone();
    let writer = std::thread::spawn(move || server.write_all(&answer).map(|()| drop(server)));
    let mut got = Vec::new();
    client.read_to_end(&mut got).unwrap();
    common::join(writer).unwrap();
    assert!(got == sent);
    assert_eq!(client.write(b"x").unwrap_err().kind(), ErrorKind::BrokenPipe, "our own direction is shut");
}

#[test]
fn peek_copies_and_takes_nothing() {
    let _guard = watchdog("peek_copies_and_takes_nothing");
    let mut random = Random::new("peek");
    let (mut client, mut server) = pair(&stack());
    let data = random.bytes(100_000);
    client.write_all(&data).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let (mut got, mut first, mut second) = (Vec::new(), vec![0; 9000], vec![0; 9000]);
    loop {
        let room = random.size(9000);
        let peeked = server.peek(&mut first[..room]).unwrap();
        assert!(server.available().unwrap() >= peeked);
        let read = server.read(&mut second[..room.min(peeked.max(1))]).unwrap();
        assert_eq!(first[..read], second[..read]);
        if peeked == 0 {
            assert_eq!(read, 0, "peek reports the end, and so does read");
            break;
        }
        got.extend_from_slice(&second[..read]);
    }
    assert!(got == data);
}

#[test]
fn peek_blocks_until_there_is_something() {
    let _guard = watchdog("peek_blocks_until_there_is_something");
    let (mut client, server) = pair(&stack());
    let peeker = std::thread::spawn(move || {
        let mut byte = [0];
        (server.peek(&mut byte).unwrap(), byte[0])
    });
    std::thread::sleep(Duration::from_millis(20));
    client.write_all(b"!").unwrap();
    assert_eq!(common::join(peeker), (1, b'!'));
}

#[test]
fn vectored_writes_and_reads_keep_the_order_of_their_parts() {
    let _guard = watchdog("vectored_writes_and_reads_keep_the_order_of_their_parts");
    let mut random = Random::new("vectored");
    let (mut client, mut server) = pair(&stack());
    let data = random.bytes(400_000);
    let sent = data.clone();
    let mut numbers = random.fork();
    let writer = std::thread::spawn(move || {
        let mut rest = &data[..];
        while !rest.is_empty() {
            let cut = |rest: &mut &[u8], random: &mut Random| -> Vec<u8> {
                let len = if random.chance(5) { 0 } else { random.size(9000).min(rest.len()) };
                let (head, tail) = rest.split_at(len);
                *rest = tail;
                head.to_vec()
            };
            let parts: Vec<Vec<u8>> = (0..4).map(|_| cut(&mut rest, &mut numbers)).collect();
            let slices: Vec<IoSlice<'_>> = parts.iter().map(|p| IoSlice::new(p)).collect();
            let total: usize = parts.iter().map(Vec::len).sum();
            assert_eq!(client.write_vectored(&slices).unwrap(), total, "a blocking write takes everything");
        }
    });
    let mut got = Vec::new();
    loop {
        let (mut a, mut b, mut c) = (vec![0; random.size(5000)], Vec::new(), vec![0; random.size(70_000)]);
        let (a_len, c_len) = (a.len(), c.len());
        let mut parts = [IoSliceMut::new(&mut a), IoSliceMut::new(&mut b), IoSliceMut::new(&mut c)];
        let read = server.read_vectored(&mut parts).unwrap();
        if read == 0 {
            break;
        }
        assert!(read <= a_len + c_len);
        got.extend_from_slice(&a[..read.min(a_len)]);
        got.extend_from_slice(&c[..read.saturating_sub(a_len)]);
    }
    common::join(writer);
    assert!(got == sent);
}

#[test]
fn empty_reads_and_writes_do_nothing_and_do_not_block() {
    let _guard = watchdog("empty_reads_and_writes_do_nothing_and_do_not_block");
    let (mut client, mut server) = pair(&stack());
    assert_eq!(client.write(&[]).unwrap(), 0);
    assert_eq!(server.read(&mut []).unwrap(), 0);
    assert_eq!(server.read_vectored(&mut []).unwrap(), 0);
    assert_eq!(server.peek(&mut []).unwrap(), 0);
    client.write_all(b"a").unwrap();
    assert_eq!(server.read(&mut []).unwrap(), 0, "nor take anything");
    assert_eq!(server.read(&mut [0; 9]).unwrap(), 1);
}

#[test]
fn options_are_read_back_as_they_were_set() {
    let (client, _server) = pair(&stack());
    assert!(!client.nodelay().unwrap() && !client.keepalive().unwrap());
    client.set_nodelay(true).unwrap();
    client.set_keepalive(true).unwrap();
    assert!(client.nodelay().unwrap() && client.keepalive().unwrap());
    let second = Some(Duration::from_millis(1500));
    client.set_read_timeout(second).unwrap();
    client.set_write_timeout(second).unwrap();
    client.set_linger(second).unwrap();
    assert_eq!(client.read_timeout().unwrap(), second);
    assert_eq!(client.write_timeout().unwrap(), second);
    assert_eq!(client.linger().unwrap(), second);
    client.set_linger(None).unwrap();
    client.set_read_timeout(None).unwrap();
    assert_eq!((client.linger().unwrap(), client.read_timeout().unwrap()), (None, None));
    assert_eq!(client.set_read_timeout(Some(Duration::ZERO)).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(
        client.set_linger(Some(Duration::from_secs(1 << 40))).unwrap_err().kind(),
        ErrorKind::InvalidInput
    );
    for (asked, given) in [(0, 2048), (5000, 5000), (usize::MAX, 64 << 20)] {
        client.set_send_buffer_size(asked).unwrap();
        client.set_recv_buffer_size(asked).unwrap();
        assert_eq!(client.send_buffer_size().unwrap(), 2 * given);
        assert_eq!(client.recv_buffer_size().unwrap(), 2 * given);
    }
}

#[test]
fn children_inherit_the_options_of_the_listening_socket() {
    let stack = stack();
    let mut socket = TcpSocket::new_v4(&stack);
    socket.set_nodelay(true);
    socket.set_send_buffer_size(10_000);
    socket.set_recv_buffer_size(20_000);
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(8).unwrap();
    let _client = common::connect(&stack, &listener);
    let (child, _) = listener.accept().unwrap();
    assert!(child.nodelay().unwrap());
    assert_eq!((child.send_buffer_size().unwrap(), child.recv_buffer_size().unwrap()), (20_000, 40_000));
}

#[test]
fn queues_are_counted_on_both_sides() {
    let _guard = watchdog("queues_are_counted_on_both_sides");
    let (mut client, mut server) = pair(&stack());
    client.set_nodelay(true).unwrap();
    client.write_all(&[7; 1000]).unwrap();
    common::eventually("the bytes have arrived", || server.available().unwrap() == 1000);
    server.read_exact(&mut [0; 400]).unwrap();
    assert_eq!(server.available().unwrap(), 600);
    common::eventually("the delayed acknowledgment has come", || client.unacknowledged().unwrap() == 0);
}

#[test]
fn addresses_of_both_ends_mirror_each_other() {
    let (client, server) = pair(&stack());
    assert_eq!(client.local_addr().unwrap(), server.peer_addr().unwrap());
    assert_eq!(client.peer_addr().unwrap(), server.local_addr().unwrap());
}

#[test]
fn the_default_stack_serves_programs_that_create_none() {
    let _guard = watchdog("the_default_stack_serves_programs_that_create_none");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let client = TcpStream::connect(addr).unwrap();
    let server = listener.incoming().next().unwrap().unwrap();
    assert_eq!(server.peer_addr().unwrap(), client.local_addr().unwrap());
    let other = stack();
    let refused = TcpStream::connect_on(&other, addr).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused, "stacks do not meet");
}
