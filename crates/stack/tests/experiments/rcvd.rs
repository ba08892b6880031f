//! How a reader reports new space (`Config::rcvd`): every receive is accounted for, no update is lost, no thread waits
//! for itself.

use std::io::{Read, Write};
use std::sync::mpsc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::common::settings::{Entry, GRAINS, Rcvd, Setting};
use crate::common::{Random, assert_empty, counter, hash_of, join, pair, scaled, stack_with, watchdog};
use sockeye::{Config, Stack};
use tokio::io::{AsyncRead, ReadBuf};

/// A stack for each setting of `rcvd` and way of entering, with the changes that the test wants.
fn stacks(change: impl Fn(&mut Config)) -> impl Iterator<Item = (Rcvd, Entry, Stack)> {
    let all = Rcvd::ALL.iter().flat_map(|rcvd| Entry::ALL.iter().map(move |entry| (*rcvd, *entry)));
    all.map(move |(rcvd, entry)| {
        let stack = stack_with(|c| {
            change(c);
            rcvd.set(c);
            entry.set(c);
        });
        (rcvd, entry, stack)
    })
}

/// Reads to the end in pieces; returns how many receives took bytes.
fn drain(mut from: &sockeye::TcpStream, piece: usize) -> u64 {
    let mut buf = vec![0; piece];
    let mut count = 0;
    while from.read(&mut buf).unwrap() > 0 {
        count += 1;
    }
    count
}

#[test]
fn every_receive_that_took_bytes_is_counted_once() {
    let _guard = watchdog("every_receive_that_took_bytes_is_counted_once");
    for (rcvd, entry, stack) in stacks(|_| {}) {
        let (mut client, server) = pair(&stack);
        let writer = std::thread::spawn(move || client.write_all(&vec![7; scaled(500_000)]));
        let receives = drain(&server, 1000);
        join(writer).unwrap();
        let count = |name| counter(&stack, name);
        let messages = count("rcvd_sent") + count("rcvd_coalesced");
        assert_eq!(messages + count("rcvd_skipped"), receives, "{rcvd} {entry}");
        match rcvd {
            Rcvd::Sync => assert_eq!((count("rcvd_sleeps"), messages), (receives, receives), "{entry}"),
            Rcvd::Async => assert_eq!((count("rcvd_sleeps"), messages), (0, receives), "{entry}"),
            Rcvd::Precheck => {
                assert_eq!(count("rcvd_sleeps"), 0, "{entry}");
                // 64 KiB is a quarter of the buffer, from which on an update pays. Until a worker has sent it, further
                // receives find it due as well, and that it is on its way.
                let sent = count("rcvd_sent");
                assert!(sent * 10 <= receives.max(10), "{entry}: {sent} of {receives}");
            }
        }
    }
}

#[test]
fn a_read_of_more_than_the_buffer_holds_opens_the_window_before_it_sleeps() {
    let _guard = watchdog("a_read_of_more_than_the_buffer_holds_opens_the_window_before_it_sleeps");
    let mut random = Random::new("wait for all");
    let data = random.bytes(scaled(2 << 20));
    for grain in GRAINS {
        // The window is shut again and again. An update that is lost would cost a persist timeout of 200 ms, and
        // hundreds of them more time than the watchdog has.
        for (rcvd, entry, stack) in stacks(|c| {
            grain.set(c);
            c.rcvbuf = 8 << 10;
        }) {
            let (mut client, mut server) = pair(&stack);
            client.set_nodelay(true).unwrap();
            let sent = data.clone();
            let writer = std::thread::spawn(move || client.write_all(&sent));
            let mut got = vec![0; data.len()];
            server.read_exact(&mut got).unwrap();
            join(writer).unwrap();
            assert!(got == data, "{grain:?} {rcvd} {entry}");
        }
    }
}

#[test]
fn a_slow_reader_stops_the_writer_and_then_lets_it_continue() {
    let _guard = watchdog("a_slow_reader_stops_the_writer_and_then_lets_it_continue");
    let mut random = Random::new("slow reader");
    for (rcvd, entry, stack) in stacks(|c| (c.sndbuf, c.rcvbuf) = (16 << 10, 16 << 10)) {
        let (client, mut server) = pair(&stack);
        let data = random.bytes(300_000);
        let sent = hash_of(&data);
        let mut numbers = random.fork();
        let writer =
            std::thread::spawn(move || crate::common::send_chunked(&client, &data, 50_000, &mut numbers));
        let mut got = Vec::new();
        // The buffer is full each time before it is emptied.
        let full = 16 << 10;
        while got.len() + 2 * full < 300_000 {
            crate::common::eventually("so_rcv is nearly full", || server.available().unwrap() >= full / 2);
            let mut piece = vec![0; server.available().unwrap()];
            server.read_exact(&mut piece).unwrap();
            got.extend(piece);
        }
        server.read_to_end(&mut got).unwrap();
        join(writer);
        assert_eq!(hash_of(&got), sent, "{rcvd} {entry}");
    }
}

#[test]
fn connections_that_end_during_reads_leave_nothing_behind() {
    let _guard = watchdog("connections_that_end_during_reads_leave_nothing_behind");
    let mut random = Random::new("drop race");
    for grain in GRAINS {
        for (_, _, stack) in stacks(|c| grain.set(c)) {
            for _ in 0..scaled(15) {
                let (mut client, server) = pair(&stack);
                let other = server.try_clone().unwrap();
                let read = |mut from: sockeye::TcpStream, mut random: Random| {
                    let mut buf = vec![0; 3000];
                    let receives = random.below(60);
                    let _ = (0..receives).all(|_| from.read(&mut buf).is_ok_and(|got| got > 0));
                };
                let numbers = [random.fork(), random.fork()];
                let [one, two] = numbers;
                let readers = vec![
                    std::thread::spawn(move || read(server, one)),
                    std::thread::spawn(move || read(other, two)),
                ];
                if random.chance(2) {
                    client.set_linger(Some(Duration::ZERO)).unwrap();
                }
                let writes = random.below(60);
                let _ = (0..writes).all(|_| client.write_all(&[1; 3000]).is_ok());
                drop(client);
                crate::common::join_all(readers);
            }
            assert_empty(&stack);
        }
    }
}

/// A waker that receives on the thread that wakes.
struct Receiver {
    stream: sockeye::TcpStream,
    done: mpsc::Sender<usize>,
}

impl std::task::Wake for Receiver {
    fn wake(self: std::sync::Arc<Self>) {
        let mut buf = [0; 64];
        self.done.send((&self.stream).read(&mut buf).unwrap()).unwrap();
    }
}

#[test]
fn a_worker_that_receives_does_not_wait_for_itself() {
    let _guard = watchdog("a_worker_that_receives_does_not_wait_for_itself");
    for entry in Entry::ALL {
        let stack = stack_with(|c| {
            Rcvd::Sync.set(c);
            entry.set(c);
            c.workers = 1;
        });
        let (mut client, server) = pair(&stack);
        let (done, receives) = mpsc::channel();
        let waker = Waker::from(std::sync::Arc::new(Receiver { stream: server.try_clone().unwrap(), done }));
        let mut task = Context::from_waker(&waker);
        let mut polled = std::pin::pin!(sockeye::tokio::TcpStream::from_std(server).unwrap());
        let mut room = [0; 8];
        assert!(matches!(polled.as_mut().poll_read(&mut task, &mut ReadBuf::new(&mut room)), Poll::Pending));
        // With `fill` it is the worker that delivers and wakes; with the others, this thread.
        client.write_all(b"hello").unwrap();
        assert_eq!(receives.recv().unwrap(), 5);
    }
}

#[test]
fn the_driver_of_a_stack_without_workers_waits_for_no_other_thread() {
    let _guard = watchdog("the_driver_of_a_stack_without_workers_waits_for_no_other_thread");
    for rcvd in Rcvd::ALL {
        let stack = stack_with(|c| {
            rcvd.set(c);
            Entry::Fill.set(c);
            c.workers = 0;
        });
        let (mut client, mut server) = pair(&stack);
        client.set_nodelay(true).unwrap();
        for _ in 0..100 {
            client.write_all(&[1; 10_000]).unwrap();
            server.read_exact(&mut [0; 10_000]).unwrap();
        }
        assert_eq!(counter(&stack, "rcvd_sleeps"), 0);
    }
}
