//! The admission limit of writers (`Config::writer_admission`): tokens are taken, every byte arrives, and no thread has to wait
//! for one that does something else with its token. Which thread gets a token is tested in `sync/src/admission`.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::common::{
    Random, assert_empty, counter, eventually, hash_of, join, join_all, pair, receive_chunked, scaled,
    send_chunked, stack_with, watchdog,
};
use sockeye::{Config, Stack, TcpStream};

/// More writers than may wait without being a crowd, by some that are awake.
fn crowd_len() -> usize {
    8 * thread::available_parallelism().map_or(1, usize::from) + 8
}

/// Bytes that fill both buffers some fifty times.
const MANY: usize = 1 << 20;

/// Small buffers, so that few bytes make many rounds.
fn crowded_stack(change: impl FnOnce(&mut Config)) -> Stack {
    stack_with(|config| {
        (config.sndbuf, config.rcvbuf) = (8 << 10, 8 << 10);
        change(config);
    })
}

fn pairs(stack: &Stack, count: usize) -> (Vec<TcpStream>, Vec<TcpStream>) {
    (0..count).map(|_| pair(stack)).unzip()
}

fn writer(mut stream: TcpStream, len: usize) -> JoinHandle<()> {
    thread::spawn(move || stream.write_all(&vec![7; len]).expect("the peer reads to the end"))
}

fn reader(mut stream: TcpStream) -> JoinHandle<usize> {
    thread::spawn(move || {
        let (mut buf, mut total) = (vec![0; 32 << 10], 0);
        loop {
            match stream.read(&mut buf).expect("the peer sends to the end") {
                0 => return total,
                got => total += got,
            }
        }
    })
}

#[test]
fn many_writers_are_admitted_in_turn_and_every_byte_arrives() {
    let _guard = watchdog("many_writers_are_admitted_in_turn_and_every_byte_arrives");
    let mut random = Random::new("many_writers_are_admitted_in_turn_and_every_byte_arrives");
    let stack = crowded_stack(|_| {});
    let (clients, servers) = pairs(&stack, crowd_len());
    // They wait for late readers, and cause the contention.
    let (len, late) = (scaled(MANY), Arc::new(Barrier::new(crowd_len() + 1)));
    let (mut sent, mut received) = (Vec::new(), Vec::new());
    for (client, server) in clients.into_iter().zip(servers) {
        let (mut of_writer, mut of_reader) = (random.fork(), random.fork());
        let data = random.bytes(len);
        sent.push((data.len(), hash_of(&data)));
        thread::spawn(move || send_chunked(&client, &data, 64 << 10, &mut of_writer));
        let late = Arc::clone(&late);
        received.push(thread::spawn(move || {
            late.wait();
            receive_chunked(&server, 64 << 10, false, &mut of_reader)
        }));
    }
    eventually("all writers wait", || counter(&stack, "user_sleeps") >= crowd_len() as u64);
    // In the middle of the crowd some have a reader at once.
    let few: Vec<_> = (0..4).map(|_| pair(&stack)).collect();
    let few: Vec<_> = few
        .into_iter()
        .map(|(mut client, server)| {
            let stack = stack.clone();
            let writer = thread::spawn(move || {
                while counter(&stack, "writers_admitted") == 0 {
                    client.write_all(&[7; 16 << 10]).expect("the peer reads to the end");
                }
            });
            (writer, reader(server))
        })
        .collect();
    few.into_iter().for_each(|(writer, reader)| {
        join(writer);
        join(reader);
    });
    late.wait();
    assert_eq!(join_all(received), sent);
    assert_empty(&stack);
}

#[test]
fn a_thread_that_sleeps_with_a_token_blocks_no_other() {
    let _guard = watchdog("a_thread_that_sleeps_with_a_token_blocks_no_other");
    let (stack, count) = (crowded_stack(|_| {}), crowd_len());
    let (clients, servers) = pairs(&stack, 2 * count);
    let readers: Vec<_> = servers.into_iter().map(reader).collect();
    let (len, done) = (scaled(MANY), Arc::new(AtomicUsize::new(0)));
    let writers: Vec<_> = clients
        .into_iter()
        .enumerate()
        .map(|(index, mut client)| {
            let done = Arc::clone(&done);
            thread::spawn(move || {
                for part in 0..4 {
                    client.write_all(&vec![7; len / 4]).expect("the peer reads to the end");
                    // Every second one waits for something that only the others can bring about.
                    if index % 2 == 0 && part == 1 {
                        eventually("the others end", || done.load(Ordering::Relaxed) == count);
                    }
                }
                done.fetch_add(index % 2, Ordering::Relaxed);
                client.shutdown(Shutdown::Write).expect("an open direction");
            })
        })
        .collect();
    join_all(writers);
    assert!(join_all(readers).into_iter().all(|total| total == len / 4 * 4));
    assert_empty(&stack);
}

#[test]
fn a_chain_of_readers_that_write_makes_progress_under_the_limit() {
    let _guard = watchdog("a_chain_of_readers_that_write_makes_progress_under_the_limit");
    let (stack, len) = (crowded_stack(|_| {}), scaled(MANY));
    let (clients, servers) = pairs(&stack, crowd_len());
    let writers: Vec<_> = clients.into_iter().map(|client| writer(client, len)).collect();
    let (onward, ends) = pairs(&stack, crowd_len());
    let relays: Vec<_> = servers
        .into_iter()
        .zip(onward)
        .map(|(mut from, mut to)| {
            thread::spawn(move || std::io::copy(&mut from, &mut to).expect("both ends are there"))
        })
        .collect();
    let readers: Vec<_> = ends.into_iter().map(reader).collect();
    join_all(writers);
    assert!(join_all(relays).into_iter().all(|total| total == len as u64));
    assert!(join_all(readers).into_iter().all(|total| total == len));
    assert_empty(&stack);
}

#[test]
fn a_write_timeout_ends_a_wait_for_admission() {
    let _guard = watchdog("a_write_timeout_ends_a_wait_for_admission");
    let stack = crowded_stack(|_| {});
    // No thread reads.
    let (clients, servers) = pairs(&stack, 2 * crowd_len());
    let writers: Vec<_> = clients
        .into_iter()
        .map(|mut client| {
            client.set_write_timeout(Some(Duration::from_millis(40))).expect("a timeout");
            thread::spawn(move || client.write_all(&[7; MANY]).expect_err("nobody reads").kind())
        })
        .collect();
    assert!(join_all(writers).into_iter().all(|kind| kind == ErrorKind::WouldBlock));
    drop(servers);
    assert_empty(&stack);
}

#[test]
fn no_token_is_taken_if_admission_is_off() {
    let _guard = watchdog("no_token_is_taken_if_admission_is_off");
    let (stack, len) = (crowded_stack(|config| config.writer_admission = false), scaled(MANY));
    let (clients, servers) = pairs(&stack, 2 * crowd_len());
    let writers: Vec<_> = clients.into_iter().map(|client| writer(client, len)).collect();
    let readers: Vec<_> = servers.into_iter().map(reader).collect();
    join_all(writers);
    assert!(join_all(readers).into_iter().all(|total| total == len));
    assert_eq!(counter(&stack, "writers_admitted"), 0);
    assert_empty(&stack);
}
