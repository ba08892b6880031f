//! Many threads on one connection: reader, writer, closer, option setters and pollers at once, clones
//! dropped in any order, stacks dropped before their sockets. Nothing hangs, nothing is lost or mixed up.

use crate::common::settings::{Setting, grains};
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::{
    self, Random, assert_empty, hash_of, join, join_all, pair, scaled, send_chunked, stack_with, watchdog,
};
use sha2::{Digest, Sha256};
use sockeye::poll::{Events, Interest, Poll, Token, Trigger};
use sockeye::{Stack, TcpStream};

/// Waits a random moment, from nothing to some hundred microseconds.
fn moment(random: &mut Random) {
    match random.below(4) {
        0 => {}
        1 => std::thread::yield_now(),
        2 => (0..random.below(2000)).for_each(|_| std::hint::spin_loop()),
        _ => std::thread::sleep(Duration::from_micros(random.below(300) as u64)),
    }
}

/// Ends that an application may meet when another thread shuts or resets under its hands.
fn is_an_end(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset | ErrorKind::NotConnected | ErrorKind::WouldBlock
    )
}

/// How the closer of a round ends the connection.
fn end(stream: &TcpStream, random: &mut Random) {
    moment(random);
    let how = random.pick(&[Shutdown::Read, Shutdown::Write, Shutdown::Both]);
    if random.chance(4) {
        stream.set_linger(Some(Duration::ZERO)).unwrap();
        return;
    }
    if let Err(error) = stream.shutdown(how) {
        assert!(is_an_end(&error), "{error}");
    }
}

/// Reads until it ends; returns the bytes.
fn drain(mut stream: TcpStream) -> usize {
    let (mut buf, mut total) = (vec![0; 10_000], 0);
    loop {
        match stream.read(&mut buf) {
            Ok(0) => return total,
            Ok(got) => total += got,
            Err(error) => {
                assert!(is_an_end(&error), "{error}");
                return total;
            }
        }
    }
}

/// Writes until it ends; returns the bytes.
fn flood(mut stream: TcpStream, mut random: Random) -> usize {
    let (data, mut total) = (vec![1; 50_000], 0);
    loop {
        match stream.write(&data[..random.size(50_000)]) {
            Ok(got) => total += got,
            Err(error) => {
                assert!(is_an_end(&error), "{error}");
                return total;
            }
        }
    }
}

fn tinker(stream: TcpStream, over: &AtomicBool, mut random: Random) {
    let poll = Poll::new(Duration::ZERO);
    let mut events = Events::with_capacity(1);
    while !over.load(Ordering::Relaxed) {
        match random.below(8) {
            0 => stream.set_nodelay(random.chance(2)).unwrap(),
            1 => stream.set_keepalive(random.chance(2)).unwrap(),
            2 => stream.set_send_buffer_size(random.size(1 << 20)).unwrap(),
            3 => stream.set_recv_buffer_size(random.size(1 << 20)).unwrap(),
            4 => drop(stream.peer_addr()),
            5 => drop((stream.available().unwrap(), stream.unacknowledged().unwrap())),
            6 => drop(format!("{stream:?}")),
            _ => {
                let trigger = random.pick(&[Trigger::Level, Trigger::Edge]);
                let both = Interest::READABLE.with(Interest::WRITABLE);
                poll.register(&stream, Token(0), both, trigger).unwrap();
                poll.wait(&mut events, Some(Duration::from_micros(200))).unwrap();
                poll.deregister(&stream).unwrap();
            }
        }
    }
}

/// One connection, a reader, a writer, a closer and a tinkerer at each end.
fn round(stack: &Stack, random: &mut Random) {
    let (client, server) = pair(stack);
    let over = Arc::new(AtomicBool::new(false));
    let (mut working, mut tinkering) = (Vec::new(), Vec::new());
    for stream in [client, server] {
        let clone = || stream.try_clone().unwrap();
        let (reading, writing, closing, setting) = (clone(), clone(), clone(), clone());
        let (mut numbers, writer) = (random.fork(), random.fork());
        working.push(std::thread::spawn(move || drain(reading)));
        working.push(std::thread::spawn(move || flood(writing, writer)));
        let (over, tinkerer) = (over.clone(), random.fork());
        tinkering.push(std::thread::spawn(move || tinker(setting, &over, tinkerer)));
        // Both directions end eventually, in either order.
        working.push(std::thread::spawn(move || {
            end(&closing, &mut numbers);
            moment(&mut numbers);
            let _ = closing.shutdown(Shutdown::Both);
            0
        }));
    }
    join_all(working);
    over.store(true, Ordering::Relaxed);
    join_all(tinkering);
}

#[test]
fn one_connection_survives_concurrent_reads_writes_closes_and_option_changes() {
    let _guard = watchdog("one_connection_survives_concurrent_reads_writes_closes_and_option_changes");
    let mut random = Random::new("meeting");
    for grain in grains() {
        let stack = stack_with(|c| grain.set(c));
        for _ in 0..scaled(60) {
            round(&stack, &mut random);
        }
        assert_empty(&stack);
    }
}

#[test]
fn several_writers_on_one_connection_lose_nothing() {
    let _guard = watchdog("several_writers_on_one_connection_lose_nothing");
    let stack = stack_with(|c| c.sndbuf = 20_000);
    let (client, mut server) = pair(&stack);
    let (writers, each) = (4u8, scaled(400) as u32);
    let threads: Vec<_> = (0..writers)
        .map(|writer| {
            let mut stream = client.try_clone().unwrap();
            std::thread::spawn(move || {
                for number in 0..each {
                    let mut record = [writer; 8];
                    record[4..].copy_from_slice(&number.to_be_bytes());
                    stream.write_all(&record).unwrap();
                }
            })
        })
        .collect();
    drop(client);
    let mut bytes = Vec::new();
    server.read_to_end(&mut bytes).unwrap();
    join_all(threads);
    assert_eq!(bytes.len(), usize::from(writers) * each as usize * 8);
    // 20,000 is a multiple of 8 and every write has 8 bytes, so no write is ever torn: each is
    // appended whole under the socket lock, and each writer's bytes stay in order.
    let mut next = [0; 4];
    for record in bytes.chunks(8) {
        let (writer, number) = record.split_at(4);
        assert!(writer.iter().all(|b| *b == writer[0]), "a torn record: {record:?}");
        let next = &mut next[usize::from(writer[0])];
        assert_eq!(number, u32::to_be_bytes(*next), "writer {} out of order", writer[0]);
        *next += 1;
    }
    assert_eq!(next, [each; 4]);
}

#[test]
fn several_readers_on_one_connection_share_the_stream() {
    let _guard = watchdog("several_readers_on_one_connection_share_the_stream");
    let mut random = Random::new("readers");
    let stack = common::stack();
    let (mut client, server) = pair(&stack);
    // Every byte's sum counts once, whichever thread gets it.
    let data = random.bytes(4 << 20);
    let sum: u64 = data.iter().map(|b| u64::from(*b)).sum();
    let readers: Vec<_> = (0..4)
        .map(|_| {
            let mut stream = server.try_clone().unwrap();
            std::thread::spawn(move || {
                let (mut buf, mut len, mut sum) = (vec![0; 7000], 0, 0u64);
                loop {
                    let got = stream.read(&mut buf).unwrap();
                    if got == 0 {
                        return (len, sum);
                    }
                    len += got;
                    sum += buf[..got].iter().map(|b| u64::from(*b)).sum::<u64>();
                }
            })
        })
        .collect();
    client.write_all(&data).unwrap();
    drop(client);
    let parts = join_all(readers);
    assert_eq!(parts.iter().map(|p| p.0).sum::<usize>(), data.len());
    assert_eq!(parts.iter().map(|p| p.1).sum::<u64>(), sum);
}

#[test]
fn several_readers_that_sleep_share_small_messages() {
    let _guard = watchdog("several_readers_that_sleep_share_small_messages");
    let stack = stack_with(|c| c.spin_max = Duration::ZERO);
    let (client, server) = pair(&stack);
    client.set_nodelay(true).unwrap();
    let readers = (0..3).map(|_| {
        let mut server = server.try_clone().unwrap();
        std::thread::spawn(move || {
            let (mut part, mut sum) = ([0; 4], 0);
            loop {
                match server.read(&mut part).unwrap() {
                    0 => return sum,
                    len => sum += len,
                }
            }
        })
    });
    let readers: Vec<_> = readers.collect();
    let count = scaled(20_000);
    for _ in 0..count {
        { &client }.write_all(&[1, 2]).unwrap();
    }
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(join_all(readers).into_iter().sum::<usize>(), 2 * count);
    drop((client, server));
    assert_empty(&stack);
}

/// Reads until the end, in slices of time that often end while bytes arrive.
fn read_impatiently(stream: &TcpStream) -> Vec<u8> {
    let (mut all, mut part) = (Vec::new(), vec![0; 3000]);
    loop {
        match { stream }.read(&mut part) {
            Ok(0) => return all,
            Ok(len) => all.extend_from_slice(&part[..len]),
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
    }
}

#[test]
fn reads_that_time_out_lose_nothing_though_writers_of_the_same_end_come_and_go() {
    let _guard = watchdog("reads_that_time_out_lose_nothing_though_writers_of_the_same_end_come_and_go");
    for spin_max in [Duration::ZERO, Duration::from_micros(20)] {
        let stack = stack_with(|c| c.spin_max = spin_max);
        let pairs: Vec<_> = (0..3).map(|_| pair(&stack)).collect();
        let threads = pairs.into_iter().enumerate().flat_map(|(number, (client, server))| {
            for end in [&client, &server] {
                end.set_nodelay(true).unwrap();
                end.set_read_timeout(Some(Duration::from_micros(50))).unwrap();
            }
            // Both ends write and read, each by a thread of its own.
            [(client.try_clone().unwrap(), server.try_clone().unwrap()), (server, client)].map(
                |(from, to)| {
                    let mut random = Random::new(&format!("impatient {number} {spin_max:?}"));
                    let data = random.bytes(scaled(300_000));
                    let sent = hash_of(&data);
                    let sender = std::thread::spawn(move || {
                        send_chunked(&from, &data, 200, &mut random);
                    });
                    std::thread::spawn(move || {
                        assert!(hash_of(&read_impatiently(&to)) == sent);
                        join(sender);
                    })
                },
            )
        });
        join_all(threads.collect());
        assert_empty(&stack);
    }
}

#[test]
fn clones_may_be_dropped_in_any_order_on_any_thread() {
    let _guard = watchdog("clones_may_be_dropped_in_any_order_on_any_thread");
    let mut random = Random::new("clones");
    let stack = common::stack();
    for _ in 0..scaled(100) {
        let (client, mut server) = pair(&stack);
        let data = random.bytes(1000);
        (&client).write_all(&data).unwrap();
        let clones: Vec<_> = (0..5).map(|_| client.try_clone().unwrap()).collect();
        drop(client);
        let threads: Vec<_> = clones
            .into_iter()
            .map(|clone| {
                let mut random = random.fork();
                std::thread::spawn(move || {
                    moment(&mut random);
                    drop(clone);
                })
            })
            .collect();
        // The stream ends when the last clone is dropped, after all bytes.
        let mut got = Vec::new();
        server.read_to_end(&mut got).unwrap();
        assert!(got == data);
        join_all(threads);
    }
    assert_empty(&stack);
}

#[test]
fn sockets_outlive_every_handle_of_their_stack() {
    let _guard = watchdog("sockets_outlive_every_handle_of_their_stack");
    let mut random = Random::new("outlive");
    let (client, server) = pair(&common::stack());
    let data = random.bytes(2 << 20);
    let sent = hash_of(&data);
    let writer =
        std::thread::spawn(move || common::send_chunked(&client, &data, 30_000, &mut Random::new("w")));
    let (_, got) = common::receive_chunked(&server, 30_000, true, &mut random);
    join(writer);
    assert_eq!(got, sent);
}

#[test]
fn a_stack_may_be_dropped_while_its_sockets_are_busy_on_other_threads() {
    let _guard = watchdog("a_stack_may_be_dropped_while_its_sockets_are_busy_on_other_threads");
    let mut random = Random::new("drop stack");
    for _ in 0..scaled(30) {
        let stack = common::stack();
        let (client, server) = pair(&stack);
        let listener = common::listener(&stack);
        let writer = {
            let random = random.fork();
            std::thread::spawn(move || flood(client, random))
        };
        let reader = std::thread::spawn(move || {
            let mut buf = [0; 50_000];
            let mut hash = Sha256::new();
            for _ in 0..20 {
                let got = (&server).read(&mut buf).unwrap();
                hash.update(&buf[..got]);
            }
        });
        moment(&mut random);
        drop(stack);
        drop(listener);
        join(reader);
        join(writer);
    }
}

#[test]
fn a_stack_may_be_dropped_by_any_of_many_threads() {
    let _guard = watchdog("a_stack_may_be_dropped_by_any_of_many_threads");
    for _ in 0..scaled(50) {
        let stack = common::stack();
        let threads = (0..6).map(|_| {
            let stack = stack.clone();
            std::thread::spawn(move || drop(pair(&stack)))
        });
        let threads: Vec<_> = threads.collect();
        drop(stack);
        join_all(threads);
    }
}
