//! Everything at once: many senders and one receiver, sockets that are created and dropped during traffic. Every datagram
//! was received or counted as dropped, each sender's datagrams are in order, and no packet memory is left.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::common::{Random, counter, join_all, scaled, watchdog};
use sockeye::{Outgoing, SendMeta, Stack, UdpBuilder, UdpSocket};

const SENDERS: usize = 4;

fn bind(stack: &Stack) -> UdpSocket {
    UdpSocket::bind_on(stack, "127.0.0.1:0").unwrap()
}

/// Sends `count` numbered datagrams, one by one, in batches and as cut buffers; each is sender, number and filling.
fn flood(socket: &UdpSocket, who: u32, to: SocketAddr, count: u32, mut random: Random) {
    let datagram = |number: u32, len: usize| {
        let mut bytes = vec![who as u8; len.max(8)];
        bytes[..4].copy_from_slice(&who.to_be_bytes());
        bytes[4..8].copy_from_slice(&number.to_be_bytes());
        bytes
    };
    let mut number = 0;
    while number < count {
        match random.below(3) {
            0 => {
                socket.send_to(&datagram(number, random.size(2000)), to).unwrap();
                number += 1;
            }
            1 => {
                let many: Vec<_> = (0..random.below(40) as u32).map(|i| datagram(number + i, 64)).collect();
                let batch: Vec<_> =
                    many.iter().map(|bytes| Outgoing { bytes, meta: SendMeta::to(to) }).collect();
                assert_eq!(socket.send_batch(&batch).unwrap(), many.len());
                number += many.len() as u32;
            }
            _ => {
                let many: Vec<u8> = (0..20).flat_map(|i| datagram(number + i, 100)).collect();
                let meta = SendMeta { segment_size: Some(100), ..SendMeta::to(to) };
                socket.send_msg(&[std::io::IoSlice::new(&many)], &meta).unwrap();
                number += 20;
            }
        }
    }
    socket.send_to(&[], to).unwrap();
}

#[test]
fn datagrams_of_many_senders_are_received_in_order_or_counted() {
    let _guard = watchdog("datagrams_of_many_senders_are_received_in_order_or_counted");
    let stack = crate::common::stack();
    let receiver = bind(&stack);
    let to = receiver.local_addr().unwrap();
    let count = scaled(20_000) as u32;
    let mut random = Random::new("udp flood");
    let done = Arc::new(AtomicBool::new(false));
    receiver.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let reader = {
        let done = Arc::clone(&done);
        std::thread::spawn(move || {
            let (mut last, mut received) = ([None; SENDERS], 0u64);
            let mut buf = [0; 4096];
            loop {
                match receiver.recv(&mut buf) {
                    Ok(len) => {
                        received += 1;
                        if len == 0 {
                            continue;
                        }
                        let word = |at: usize| u32::from_be_bytes(buf[at..at + 4].try_into().unwrap());
                        let (who, number) = (word(0) as usize, word(4));
                        assert!(buf[8..len].iter().all(|byte| *byte == who as u8), "another's bytes");
                        assert!(last[who].is_none_or(|last| last < number), "sender {who} out of order");
                        last[who] = Some(number);
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        if done.load(Ordering::Acquire) {
                            return received;
                        }
                    }
                    Err(error) => panic!("{error}"),
                }
            }
        })
    };
    // Two of them send on one socket: sends take no lock of it.
    let shared = Arc::new(bind(&stack));
    let senders = (0..SENDERS as u32)
        .map(|who| {
            let socket = if who < 2 { Arc::clone(&shared) } else { Arc::new(bind(&stack)) };
            let random = random.fork();
            std::thread::spawn(move || flood(&socket, who, to, count, random))
        })
        .collect();
    join_all(senders);
    done.store(true, Ordering::Release);
    let received = crate::common::join(reader);
    let (sent, dropped) = (counter(&stack, "udp_out_datagrams"), counter(&stack, "udp_rcvbuf_errors"));
    assert_eq!(sent, received + dropped, "sent, received and dropped");
    assert_eq!(counter(&stack, "udp_in_datagrams"), received);
    assert!(received > 0 && sent >= u64::from(count) * SENDERS as u64);
    drop(shared);
    crate::common::eventually("all packet memory is back", || stack.memory_in_use() == 0);
}

#[test]
fn sockets_are_created_and_dropped_during_traffic() {
    let _guard = watchdog("sockets_are_created_and_dropped_during_traffic");
    let stack = crate::common::stack();
    let stop = Arc::new(AtomicBool::new(false));
    let anchor = UdpBuilder::new_v4(&stack).reuse_port(true).bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let to = anchor.local_addr().unwrap();
    let sent = Arc::new(AtomicU64::new(0));
    let mut threads = Vec::new();
    for _ in 0..2 {
        let (stack, stop, sent) = (stack.clone(), Arc::clone(&stop), Arc::clone(&sent));
        threads.push(std::thread::spawn(move || {
            let socket = bind(&stack);
            while !stop.load(Ordering::Relaxed) {
                socket.send_to(&[7; 300], to).unwrap();
                sent.fetch_add(1, Ordering::Relaxed);
                // Connected sockets are refused now and then, when their receiver is closed.
                socket.connect(to).unwrap();
                let _refused_or_sent = socket.send(&[7; 300]);
                let _pending = socket.take_error().unwrap();
                socket.disconnect();
            }
        }));
    }
    while sent.load(Ordering::Relaxed) == 0 {
        std::thread::yield_now();
    }
    let mut random = Random::new("udp come and go");
    for _ in 0..scaled(600) {
        let member = UdpBuilder::new_v4(&stack).reuse_port(true).bind(to).unwrap();
        member.set_nonblocking(true).unwrap();
        let clone = member.try_clone().unwrap();
        for _ in 0..random.below(20) {
            match clone.recv(&mut [0; 512]) {
                Ok(len) => assert_eq!(len, 300),
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
        }
        if random.chance(3) {
            member.connect("127.0.0.1:9").unwrap();
        }
    }
    stop.store(true, Ordering::Relaxed);
    join_all(threads);
    assert!(sent.load(Ordering::Relaxed) > 0);
    anchor.set_nonblocking(true).unwrap();
    while anchor.recv(&mut [0; 512]).is_ok() {}
    drop(anchor);
    crate::common::eventually("all packet memory is back", || stack.memory_in_use() == 0);
    // Every port was given back.
    UdpSocket::bind_on(&stack, to).unwrap();
}
