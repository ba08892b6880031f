//! UNIX-domain sockets under load, with each locking: many threads connect, send, reconnect, pass each other's
//! sockets and close. At the end every byte and every right is accounted for: nothing in flight, no byte of
//! memory in use.
//!
//! The random numbers come from a seed that is printed. `SOCKEYE_TEST_SCALE` scales the rounds.

use std::io::{ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::settings::{Setting, UnixLocking};
use crate::common::{Random, join_all, scaled, stack_with, watchdog};
use sockeye::Stack;
use sockeye::poll::{Events, Interest, Poll, Token, Trigger};
use sockeye::unix::{
    MsgFlags, RecvAncillary, Right, SendAncillary, SocketAddr, UnixDatagram, UnixListener, UnixSeqpacket,
    UnixStream,
};

/// Threads of each test: more than there are cores.
const THREADS: usize = 4;

fn on_each(test: impl Fn(&Stack, &mut Random), name: &'static str) {
    let _guard = watchdog(name);
    let mut random = Random::new(name);
    for locking in UnixLocking::ALL {
        let stack = stack_with(|c| {
            locking.set(c);
            c.sndbuf = 32 << 10;
        });
        test(&stack, &mut random);
        assert_eq!(stack.unix_rights_in_flight(), 0, "{locking}");
        crate::common::assert_empty(&stack);
    }
}

/// The byte at a place of a stream.
fn byte_at(place: usize) -> u8 {
    (place % 251) as u8
}

#[test]
fn streams_carry_every_byte_in_order_between_threads() {
    on_each(
        |stack, random| {
            let len = scaled(1 << 20);
            let threads = (0..THREADS).flat_map(|_| {
                let (mut a, mut b) = UnixStream::pair_on(stack).unwrap();
                let (mut writing, mut reading) = (random.fork(), random.fork());
                let writer = std::thread::spawn(move || {
                    let mut at = 0;
                    while at < len {
                        let count = writing.size(100_000).min(len - at);
                        let data: Vec<u8> = (at..at + count).map(byte_at).collect();
                        at += a.write(&data).unwrap();
                    }
                });
                let reader = std::thread::spawn(move || {
                    let (mut at, mut buf) = (0, vec![0; 100_000]);
                    loop {
                        let room = reading.size(100_000);
                        let got = b.read(&mut buf[..room]).unwrap();
                        if got == 0 {
                            break;
                        }
                        assert!(buf[..got].iter().enumerate().all(|(i, byte)| *byte == byte_at(at + i)));
                        at += got;
                    }
                    assert_eq!(at, len);
                });
                [writer, reader]
            });
            join_all(threads.collect());
        },
        "streams_carry_every_byte_in_order_between_threads",
    );
}

#[test]
fn packets_stay_whole_between_threads_that_poll() {
    on_each(
        |stack, random| {
            let count = scaled(4000);
            let (a, b) = UnixSeqpacket::pair_on(stack).unwrap();
            let mut writing = random.fork();
            let writer = std::thread::spawn(move || {
                let mut sum = 0;
                for _ in 0..count {
                    let packet = vec![7; writing.size(10_000)];
                    sum += a.send(&packet).unwrap();
                }
                sum
            });
            let poll = Poll::new(Duration::from_micros(20));
            b.set_nonblocking(true).unwrap();
            let trigger = random.pick(&[Trigger::Edge, Trigger::Level]);
            poll.register(&b, Token(0), Interest::READABLE, trigger).unwrap();
            let (mut events, mut buf) = (Events::with_capacity(4), vec![0; 20_000]);
            let (mut packets, mut sum) = (0, 0);
            'reading: loop {
                poll.wait(&mut events, None).unwrap();
                loop {
                    match b.recv(&mut buf) {
                        Ok(0) => break 'reading,
                        Ok(got) => (packets, sum) = (packets + 1, sum + got),
                        Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                        Err(error) => panic!("{error}"),
                    }
                }
            }
            assert_eq!((packets, sum), (count, crate::common::join(writer)));
        },
        "packets_stay_whole_between_threads_that_poll",
    );
}

/// The message of a client: a stream whose other end only it has, and a number.
fn carry(client: &UnixStream, stack: &Stack, number: u64) -> UnixStream {
    let (kept, sent) = UnixStream::pair_on(stack).unwrap();
    let mut ancillary = SendAncillary::new();
    ancillary.add_right(sent);
    // The server may have closed: then the right is still in the ancillary data, and is dropped with it.
    let _ = client.send_msg(&[IoSlice::new(&number.to_ne_bytes())], None, &mut ancillary, MsgFlags::NONE);
    kept
}

/// Accepts until stopped; returns the sum of the received numbers.
fn serve(listener: &UnixListener, over: &AtomicBool, mut random: Random) -> u64 {
    let mut sum = 0;
    while !over.load(Ordering::Relaxed) {
        let mut server = match listener.accept() {
            Ok((server, _)) => server,
            Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
            Err(error) => panic!("{error}"),
        };
        if random.chance(5) {
            continue;
        }
        let (mut number, mut ancillary) = ([0; 8], RecvAncillary::with_capacity(random.below(2)));
        let got =
            server.recv_msg(&mut [IoSliceMut::new(&mut number)], &mut ancillary, MsgFlags::WAITALL).unwrap();
        if got.bytes == 8 {
            sum += u64::from_ne_bytes(number);
        }
        if let Some(Right::Stream(mut stream)) = ancillary.take_rights().pop() {
            // The client may have closed its end.
            let _ = stream.write(b"thanks");
        }
        let _ = server.write(b"done");
    }
    sum
}

#[cfg(feature = "experiments")]
#[test]
fn each_locking_takes_the_locks_in_its_name() {
    let taken = |locking: UnixLocking| {
        let stack = stack_with(|c| locking.set(c));
        let (mut a, mut b) = UnixStream::pair_on(&stack).unwrap();
        let (c, d) = UnixDatagram::pair_on(&stack).unwrap();
        let count = |name| crate::common::counter(&stack, name);
        let before = (count("unix_global_locks"), count("unix_pcb_locks"));
        for _ in 0..10 {
            a.write_all(b"x").unwrap();
            b.read_exact(&mut [0]).unwrap();
            c.send(b"y").unwrap();
            d.recv(&mut [0]).unwrap();
        }
        (count("unix_global_locks") - before.0, count("unix_pcb_locks") - before.1)
    };
    assert_eq!(taken(UnixLocking::Direct), (0, 0));
    // Two to send and one to receive.
    assert_eq!(taken(UnixLocking::Pair), (0, 60));
    assert_eq!(taken(UnixLocking::Global), (20, 50));
}

#[test]
fn thousands_connect_pass_sockets_and_close() {
    on_each(
        |stack, random| {
            let name = SocketAddr::from_abstract_name("service").unwrap();
            let listener = UnixListener::bind_addr_on(stack, &name).unwrap();
            listener.set_backlog(8).unwrap();
            listener.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
            let over = Arc::new(AtomicBool::new(false));
            let servers: Vec<_> = (0..2)
                .map(|_| {
                    let (listener, over) = (listener.try_clone().unwrap(), over.clone());
                    let random = random.fork();
                    std::thread::spawn(move || serve(&listener, &over, random))
                })
                .collect();
            let sent = Arc::new(AtomicU64::new(0));
            let clients = (0..THREADS).map(|_| {
                let (stack, name, sent) = (stack.clone(), name.clone(), sent.clone());
                let mut random = random.fork();
                std::thread::spawn(move || {
                    for number in 0..scaled(400) as u64 {
                        let mut client = UnixStream::connect_addr_on(&stack, &name).unwrap();
                        let kept = carry(&client, &stack, number);
                        sent.fetch_add(number, Ordering::Relaxed);
                        if random.chance(2) {
                            // The server answers, closes, or resets.
                            let _ = client.read(&mut [0; 4]);
                        }
                        drop(kept);
                    }
                })
            });
            join_all(clients.collect());
            over.store(true, Ordering::Relaxed);
            drop(listener);
            let received: u64 = join_all(servers).into_iter().sum();
            assert!(received <= sent.load(Ordering::Relaxed));
        },
        "thousands_connect_pass_sockets_and_close",
    );
}

#[test]
fn datagrams_meet_reconnects_disconnects_and_closes() {
    on_each(
        |stack, random| {
            let names: Vec<_> =
                (0..3).map(|i| SocketAddr::from_abstract_name(format!("ring{i}")).unwrap()).collect();
            let (names, received) = (Arc::new(names), Arc::new(AtomicU64::new(0)));
            let threads = (0..THREADS).map(|index| {
                let (stack, names, mut random) = (stack.clone(), names.clone(), random.fork());
                let received = received.clone();
                std::thread::spawn(move || {
                    let own = &names[index % names.len()];
                    for _ in 0..scaled(150) {
                        // Two threads share a name: one binds it, the other stays unnamed.
                        let socket = UnixDatagram::bind_addr_on(&stack, own)
                            .or_else(|_| UnixDatagram::unbound_on(&stack))
                            .unwrap();
                        socket.set_nonblocking(true).unwrap();
                        for _ in 0..random.size(60) {
                            turn(&socket, &names, &mut random, &received);
                        }
                    }
                })
            });
            join_all(threads.collect());
            assert!(received.load(Ordering::Relaxed) > 0, "nothing ever arrived");
        },
        "datagrams_meet_reconnects_disconnects_and_closes",
    );
}

/// One random call. All of them may fail, with errors that say why.
fn turn(socket: &UnixDatagram, names: &[SocketAddr], random: &mut Random, received: &AtomicU64) {
    let mut buf = [0; 6000];
    let to = &names[random.below(names.len())];
    let done = match random.below(8) {
        0 => socket.connect_addr(to).map(|()| 0),
        1 => socket.disconnect().map(|()| 0),
        2 => socket.send_to_addr(&[1; 10], to),
        3 => socket.send(&[2; 5000]),
        4 | 5 => socket.send(&[3; 100]),
        _ => socket.recv(&mut buf).inspect(|got| {
            assert!([10, 100, 5000].contains(got), "a torn datagram of {got}");
            assert!(buf[..*got].iter().all(|byte| *byte == buf[0]), "two datagrams in one");
            received.fetch_add(1, Ordering::Relaxed);
        }),
    };
    let Err(error) = done else { return };
    // EAGAIN, ECONNREFUSED, ENOTCONN, EPERM, ECONNRESET, EPIPE
    let number = error.raw_os_error().unwrap();
    assert!([11, 111, 107, 1, 104, 32].contains(&number), "{error}");
}

#[test]
fn a_blocking_ring_of_datagram_sockets_makes_progress_and_a_socket_may_send_to_itself() {
    on_each(
        |stack, _| {
            let (rounds, hops) = (scaled(2000), 3);
            let name = |i: usize| SocketAddr::from_abstract_name(format!("hop{i}")).unwrap();
            let sockets: Vec<_> =
                (0..hops).map(|i| UnixDatagram::bind_addr_on(stack, &name(i)).unwrap()).collect();
            for (i, socket) in sockets.iter().enumerate() {
                socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
                // Each receives from its predecessor, so the ring is connected after all are bound.
                assert!(socket.send_to_addr(b"", &name(i)).is_ok());
                assert_eq!(socket.recv(&mut [0]).unwrap(), 0);
            }
            sockets[0].send_to_addr(&0u64.to_ne_bytes(), &name(1)).unwrap();
            let threads = sockets.into_iter().enumerate().map(|(i, socket)| {
                std::thread::spawn(move || {
                    let mut number = [0; 8];
                    for _ in 0..rounds {
                        assert_eq!(socket.recv(&mut number).unwrap(), 8);
                        let next = u64::from_ne_bytes(number) + 1;
                        socket.send_to_addr(&next.to_ne_bytes(), &name((i + 1) % hops)).unwrap();
                    }
                    socket
                })
            });
            let sockets = join_all(threads.collect());
            let mut number = [0; 8];
            sockets[1].recv(&mut number).unwrap();
            assert_eq!(u64::from_ne_bytes(number), (rounds * hops) as u64);
            let (own, _) = (&sockets[2], ());
            own.connect_addr(&name(2)).unwrap();
            own.send(b"me").unwrap();
            assert_eq!(own.recv(&mut number).unwrap(), 2);
        },
        "a_blocking_ring_of_datagram_sockets_makes_progress_and_a_socket_may_send_to_itself",
    );
}

#[test]
fn a_flooder_does_not_keep_others_from_sending() {
    on_each(
        |stack, _| {
            let name = SocketAddr::from_abstract_name("sink").unwrap();
            let sink = UnixDatagram::bind_addr_on(stack, &name).unwrap();
            let over = Arc::new(AtomicBool::new(false));
            let flooder = {
                let (socket, over) = (UnixDatagram::unbound_on(stack).unwrap(), over.clone());
                socket.connect_addr(&name).unwrap();
                std::thread::spawn(move || {
                    while !over.load(Ordering::Relaxed) {
                        if socket.send(b"flood").is_err() {
                            break;
                        }
                    }
                })
            };
            let count = scaled(500);
            let seldom = UnixDatagram::unbound_on(stack).unwrap();
            let sender = std::thread::spawn(move || {
                for _ in 0..count {
                    seldom.send_to_addr(b"x", &name).unwrap();
                }
            });
            let (mut buf, mut got) = ([0; 10], 0);
            while got < count {
                got += usize::from(sink.recv(&mut buf).unwrap() == 1);
            }
            over.store(true, Ordering::Relaxed);
            drop(sink);
            join_all(vec![flooder, sender]);
        },
        "a_flooder_does_not_keep_others_from_sending",
    );
}

#[test]
fn sockets_that_carry_each_other_are_all_collected_at_the_end() {
    on_each(
        |stack, random| {
            // A table of streams that all threads put into, take from, and send each other through.
            let table: Arc<Vec<Mutex<Option<UnixStream>>>> =
                Arc::new((0..12).map(|_| Mutex::new(None)).collect());
            let threads = (0..THREADS).map(|_| {
                let (stack, table, mut random) = (stack.clone(), table.clone(), random.fork());
                std::thread::spawn(move || {
                    for _ in 0..scaled(4000) {
                        tangle(&stack, &table, &mut random);
                    }
                })
            });
            join_all(threads.collect());
            // Dropped out of order, with messages still in each other's buffers.
            drop(table);
        },
        "sockets_that_carry_each_other_are_all_collected_at_the_end",
    );
}

fn tangle(stack: &Stack, table: &[Mutex<Option<UnixStream>>], random: &mut Random) {
    let take = |random: &mut Random| table[random.below(table.len())].lock().unwrap().take();
    let put = |random: &mut Random, stream: UnixStream| {
        let old = table[random.below(table.len())].lock().unwrap().replace(stream);
        drop(old);
    };
    match random.below(5) {
        0 => {
            let (a, b) = UnixStream::pair_on(stack).unwrap();
            put(random, a);
            put(random, b);
        }
        1 | 2 => {
            let (Some(through), Some(right)) = (take(random), take(random)) else { return };
            through.set_nonblocking(true).unwrap();
            let mut ancillary = SendAncillary::new();
            ancillary.add_right(right);
            // A closed peer or a full buffer refuses: the right is dropped with the ancillary.
            let _ = through.send_msg(&[IoSlice::new(b"r")], None, &mut ancillary, MsgFlags::DONTWAIT);
            if random.chance(2) {
                put(random, through);
            }
        }
        3 => {
            let Some(from) = take(random) else { return };
            let mut ancillary = RecvAncillary::with_capacity(1);
            let flags = if random.chance(4) { MsgFlags::PEEK } else { MsgFlags::NONE };
            let mut byte = [0];
            let _ = from.recv_msg(
                &mut [IoSliceMut::new(&mut byte)],
                &mut ancillary,
                flags.with(MsgFlags::DONTWAIT),
            );
            for right in ancillary.take_rights() {
                if let Right::Stream(stream) = right {
                    put(random, stream);
                }
            }
            put(random, from);
        }
        _ => {
            let Some(stream) = take(random) else { return };
            put(random, stream.try_clone().unwrap());
            if random.chance(2) {
                put(random, stream);
            }
        }
    }
}
