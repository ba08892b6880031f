//! Bytes that are sent and received as packet memory, without a copy: whole, in order and once, in any pieces, mixed with
//! copies; shared by many connections; held back, returned and refused.

use std::io::{self, Read, Write};
use std::net::Shutdown;

use sha2::{Digest, Sha256};
use sockeye::{MbufChain, Stack, TcpStream};

use crate::common::{
    self, Hash, Random, assert_empty, connect, eventually, hash_of, join, join_all, listener, pair, scaled,
    stack, stack_with,
};

#[test]
fn what_a_system_call_reads_into_packet_memory_is_sent_as_it_is() {
    let stack = stack();
    let (near, far) = pair(&stack);
    let (from, to) = std::os::unix::net::UnixStream::pair().unwrap();
    (&to).write_all(b"read in place").unwrap();
    for (most, expected) in [(4, &b"read"[..]), (1 << 20, b" in place")] {
        let read = MbufChain::filled(&stack, most, |room| Ok(rustix::io::read(&from, room)?.0));
        let mut chain = read.unwrap();
        assert_eq!(chain.len(), expected.len());
        near.send_mbufs(&mut chain).unwrap();
        let mut got = vec![0; expected.len()];
        (&far).read_exact(&mut got).unwrap();
        assert_eq!(got, expected);
    }
    drop(to);
    let end = MbufChain::filled(&stack, 9, |room| Ok(rustix::io::read(&from, room)?.0));
    assert!(end.unwrap().is_empty());
    let fails = MbufChain::filled(&stack, 9, |_room| Err(io::ErrorKind::Interrupted.into()));
    assert_eq!(fails.unwrap_err().kind(), io::ErrorKind::Interrupted);
}

/// Writes `data` in random pieces, some copied, some lent, some cut from lent ones, and ends the direction.
fn send_mixed(mut to: &TcpStream, data: &[u8], random: &mut Random) {
    let mut rest = data;
    while !rest.is_empty() {
        let len = random.size(200 << 10).min(rest.len());
        let (piece, behind) = rest.split_at(len);
        rest = behind;
        if random.chance(3) {
            to.write_all(piece).unwrap();
            continue;
        }
        let mut chain = lent(to.stack(), piece);
        if random.chance(2) {
            let mut first = chain.split_to(random.below(len + 1));
            assert_eq!(to.send_mbufs(&mut first).unwrap() + chain.len(), len);
        }
        to.send_mbufs(&mut chain).unwrap();
        assert!(chain.is_empty(), "a blocking send takes all");
    }
    to.shutdown(Shutdown::Write).unwrap();
}

/// Reads to the end, now with a copy and now without.
fn receive_mixed(mut from: &TcpStream, random: &mut Random) -> Hash {
    let (mut hash, mut buffer) = (Sha256::new(), vec![0; 100 << 10]);
    // Chains that are kept for a while: their content does not change.
    let mut kept: Vec<(MbufChain, Hash)> = Vec::new();
    loop {
        let room = random.size(buffer.len());
        let got = if random.chance(3) {
            let got = from.read(&mut buffer[..room]).unwrap();
            hash.update(&buffer[..got]);
            got
        } else {
            let chain = from.recv_mbufs(room).unwrap();
            chain.pieces().for_each(|piece| hash.update(piece));
            let got = chain.len();
            assert!(got <= room);
            if random.chance(4) {
                kept.push((chain.clone(), hash_of(&flat(&chain))));
            }
            got
        };
        if kept.len() > 16 || got == 0 {
            kept.drain(..).for_each(|(chain, was)| assert_eq!(hash_of(&flat(&chain)), was));
        }
        if got == 0 {
            return hash.finalize().into();
        }
    }
}

fn flat(chain: &MbufChain) -> Vec<u8> {
    let mut bytes = vec![0; chain.len()];
    assert_eq!(chain.copy_to(&mut bytes), chain.len());
    bytes
}

fn lent(stack: &Stack, bytes: &[u8]) -> MbufChain {
    MbufChain::copied(stack, bytes).unwrap()
}

#[test]
fn lent_and_copied_bytes_arrive_in_order_in_both_directions() {
    let _guard = common::watchdog("mixed transfers");
    let mut random = Random::new("mixed transfers");
    let stack = stack();
    for _ in 0..scaled(8) {
        let (client, server) = pair(&stack);
        let ends = [client, server].map(|end| {
            let (data, mut numbers, mut other) = (random.bytes(2 << 20), random.fork(), random.fork());
            let sent = hash_of(&data);
            let writing = end.try_clone().unwrap();
            let writer = std::thread::spawn(move || send_mixed(&writing, &data, &mut numbers));
            let reader = std::thread::spawn(move || receive_mixed(&end, &mut other));
            (sent, writer, reader)
        });
        let [one, two] = ends.map(|(sent, writer, reader)| {
            join(writer);
            (sent, join(reader))
        });
        assert_eq!((one.0, two.0), (two.1, one.1));
    }
    assert_empty(&stack);
}

#[test]
fn one_chain_is_sent_to_many_and_stays_unchanged() {
    let _guard = common::watchdog("one for many");
    let mut random = Random::new("one for many");
    let stack = stack();
    let listener = listener(&stack);
    let data = random.bytes(300_000);
    let page = lent(&stack, &data);
    let clients: Vec<_> = (0..scaled(20))
        .map(|_| {
            let mut client = connect(&stack, &listener);
            std::thread::spawn(move || {
                let mut all = Vec::new();
                client.read_to_end(&mut all).unwrap();
                all
            })
        })
        .collect();
    for index in 0..clients.len() {
        let (mut server, _) = listener.accept().unwrap();
        server.send_mbufs(&mut page.clone()).unwrap();
        // The next bytes may be behind the page in its last cluster, which no other chain uses.
        server.write_all(&index.to_ne_bytes()).unwrap();
    }
    let mut numbers: Vec<usize> = join_all(clients)
        .into_iter()
        .map(|all| {
            let (page, number) = all.split_at(data.len());
            assert!(page == data);
            usize::from_ne_bytes(number.try_into().unwrap())
        })
        .collect();
    numbers.sort_unstable();
    assert!(numbers.into_iter().eq(0..scaled(20)));
    assert!(flat(&page) == data);
    drop(page);
    drop(listener);
    assert_empty(&stack);
}

#[test]
fn a_received_chain_can_be_sent_on_a_connection_of_another_stack() {
    let _guard = common::watchdog("forwarding");
    let mut random = Random::new("forwarding");
    let (near, far) = (stack(), stack());
    let (client, from) = pair(&near);
    let (to, server) = pair(&far);
    let data = random.bytes(scaled(100) * 50_000);
    let (sent, mut numbers) = (hash_of(&data), random.fork());
    let writer = std::thread::spawn(move || send_mixed(&client, &data, &mut numbers));
    let forwarder = std::thread::spawn(move || {
        loop {
            let mut chain = from.recv_mbufs(1 << 20).unwrap();
            if chain.is_empty() {
                return to.shutdown(Shutdown::Write).unwrap();
            }
            to.send_mbufs(&mut chain).unwrap();
        }
    });
    assert_eq!(receive_mixed(&server, &mut random), sent);
    join(writer);
    join(forwarder);
    drop(server);
    [near, far].iter().for_each(assert_empty);
}

#[test]
fn a_full_buffer_leaves_the_rest_in_the_chain() {
    let _guard = common::watchdog("rest");
    let stack = stack_with(|c| (c.sndbuf, c.rcvbuf) = (64 << 10, 64 << 10));
    let (client, mut server) = pair(&stack);
    client.set_nonblocking(true).unwrap();
    server.set_nonblocking(true).unwrap();
    let data = Random::new("rest").bytes(1 << 20);
    let mut chain = lent(&stack, &data);
    let (mut left, mut got) = (data.len(), Vec::new());
    while got.len() < data.len() {
        match client.send_mbufs(&mut chain) {
            Ok(0) => assert!(chain.is_empty()),
            Ok(taken) => left -= taken,
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
        }
        assert_eq!(chain.len(), left);
        let mut part = vec![0; 10_000];
        match server.read(&mut part) {
            Ok(read) => got.extend_from_slice(&part[..read]),
            // All accepted bytes have been read, and the sender has not been notified yet.
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
        }
    }
    assert!(got == data);
}

#[test]
fn ends_and_errors_are_those_of_reads_and_writes() {
    let _guard = common::watchdog("ends");
    let stack = stack();
    let (client, server) = pair(&stack);
    assert!(client.recv_mbufs(0).unwrap().is_empty(), "nothing is asked for");
    assert_eq!(client.send_mbufs(&mut MbufChain::new()).unwrap(), 0);
    client.set_nonblocking(true).unwrap();
    assert_eq!(client.recv_mbufs(1).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    client.shutdown(Shutdown::Write).unwrap();
    assert!(server.recv_mbufs(1).unwrap().is_empty(), "the end of the stream");
    let mut chain = lent(&stack, b"too late");
    assert_eq!(client.send_mbufs(&mut chain).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    assert_eq!(flat(&chain), b"too late", "the refused bytes are still in the chain");
}

#[test]
fn memory_is_counted_while_any_view_exists() {
    let _guard = common::watchdog("memory of chains");
    let stack = stack_with(|c| c.memory_max = 1 << 20);
    let held = lent(&stack, &[7; 700_000]);
    let in_use = stack.memory_in_use();
    assert!(in_use >= 700_000, "{in_use}");
    let error = MbufChain::copied(&stack, &[7; 700_000]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::OutOfMemory);
    assert!(
        error.to_string().contains("700000 bytes") && error.to_string().contains("memory_max"),
        "{error}"
    );
    assert_eq!(stack.memory_in_use(), in_use, "none of the bytes that did not fit are left");
    let mut part = held.clone();
    part.advance(100);
    part.truncate(10);
    drop(held);
    assert!(stack.memory_in_use() > 0);
    // A chain may outlive its stack, and the connection that it is sent on.
    let (other, (client, mut server)) = (stack_with(|_| {}), pair(&stack));
    client.send_mbufs(&mut part.clone()).unwrap();
    let mut got = [0; 10];
    server.read_exact(&mut got).unwrap();
    assert_eq!(got, [7; 10]);
    drop((client, server));
    eventually("the connection is gone", || stack.connection_count() == 0);
    drop(stack);
    assert_eq!(flat(&part), [7; 10]);
    let (client, server) = pair(&other);
    client.send_mbufs(&mut part).unwrap();
    assert_eq!(flat(&server.recv_mbufs(100).unwrap()), [7; 10]);
}
