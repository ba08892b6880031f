//! Which thread runs the items that a thread leaves behind (`Config::wake`, `Config::entry`).

use std::io::{Read, Write};
use std::sync::{Arc, Barrier};
use std::task::{Context, Waker};

use crate::common::settings::{Entry, GRAINS, Grain, Setting, Wake};
use crate::common::{Random, assert_empty, counter, join_all, pair, scaled, stack_with, watchdog};
use sockeye::{Config, Stack, TcpListener};
use tokio::io::{AsyncRead, ReadBuf};

/// Connects, asks, answers and closes from both sides, all on the calling thread.
fn cycle(stack: &Stack, listener: &TcpListener) {
    let mut client = crate::common::connect(stack, listener);
    let (mut server, _) = listener.accept().unwrap();
    client.write_all(&[1; 100]).unwrap();
    server.read_exact(&mut [0; 100]).unwrap();
    server.write_all(&[2; 512]).unwrap();
    drop(server);
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).unwrap();
    assert_eq!(answer, [2; 512]);
}

/// How often workers were woken during cycles on a stack whose connections share squeues, and how often without need.
fn wakes_of_cycles(wake: Wake, count: usize) -> (u64, u64) {
    let stack = stack_with(|c| {
        Grain::PerCore.set(c);
        Entry::NoDrain.set(c);
        wake.set(c);
    });
    let listener = crate::common::listener(&stack);
    for _ in 0..count {
        cycle(&stack, &listener);
    }
    assert_empty(&stack);
    (counter(&stack, "worker_wakes"), counter(&stack, "worker_wakes_needless"))
}

#[test]
fn elision_saves_nearly_all_wakes_of_a_connect_and_close_cycle() {
    let _guard = watchdog("elision_saves_nearly_all_wakes_of_a_connect_and_close_cycle");
    let count = scaled(1000);
    let (immediate, needless) = wakes_of_cycles(Wake::Immediate, count);
    let (elide, still_needless) = wakes_of_cycles(Wake::Elide, count);
    assert!(immediate >= count as u64, "each close wakes: {immediate} wakes for {count} cycles");
    assert!(elide * 20 <= immediate, "{elide} wakes with elision, {immediate} without");
    assert!(
        needless >= count as u64 && needless <= immediate,
        "{needless} of {immediate} wakes were needless"
    );
    assert_eq!(still_needless, 0, "of {elide} wakes with elision");
    assert_eq!(wakes_of_cycles(Wake::Delayed, scaled(50)), (0, 0), "with a delay no worker is woken");
}

#[test]
fn leaves_are_counted_by_the_queue_that_was_found() {
    let _guard = watchdog("leaves_are_counted_by_the_queue_that_was_found");
    let sum = |stack: &Stack, prefix: &str| -> u64 {
        stack.counters().iter().filter(|(name, _)| name.starts_with(prefix)).map(|(_, n)| n).sum()
    };
    for grain in GRAINS {
        let stack = stack_with(|c| {
            grain.set(c);
            Entry::NoDrain.set(c);
        });
        let listener = crate::common::listener(&stack);
        let threads = (0..4).map(|_| {
            let (stack, listener) = (stack.clone(), listener.try_clone().unwrap());
            std::thread::spawn(move || {
                (0..scaled(100)).for_each(|_| drop(crate::common::connect(&stack, &listener)))
            })
        });
        let threads: Vec<_> = threads.collect();
        (0..4 * scaled(100)).for_each(|_| drop(listener.accept().unwrap()));
        join_all(threads);
        assert_empty(&stack);
        assert_eq!(sum(&stack, "connect_left_"), counter(&stack, "active_opens"), "{grain:?}");
        assert!(sum(&stack, "left_") > 0);
    }
}

/// A waker that holds up the thread that wakes until it is let go.
struct HoldUp {
    is_held: Barrier,
    may_go: Barrier,
}

impl std::task::Wake for HoldUp {
    fn wake(self: Arc<Self>) {
        self.is_held.wait();
        self.may_go.wait();
    }
}

#[test]
fn with_fill_only_workers_run_protocol_code() {
    let _guard = watchdog("with_fill_only_workers_run_protocol_code");
    for grain in GRAINS {
        let stack = stack_with(|c| {
            grain.set(c);
            Entry::Fill.set(c);
            c.workers = 1;
        });
        let (mut client, server) = pair(&stack);
        let (mut other, mut other_server) = pair(&stack);
        let hold_up = Arc::new(HoldUp { is_held: Barrier::new(2), may_go: Barrier::new(2) });
        let waker = Waker::from(hold_up.clone());
        let mut polled = std::pin::pin!(sockeye::tokio::TcpStream::from_std(server).unwrap());
        let mut room = [0; 8];
        let pending =
            polled.as_mut().poll_read(&mut Context::from_waker(&waker), &mut ReadBuf::new(&mut room));
        assert!(pending.is_pending());
        client.write_all(b"held up by").unwrap();
        hold_up.is_held.wait();
        // The only worker is busy. Callers leave their work and go on.
        let before = counter(&stack, "segments_out");
        other.write_all(b"later").unwrap();
        assert_eq!(counter(&stack, "segments_out"), before, "{grain:?}: a caller has run protocol code");
        hold_up.may_go.wait();
        other_server.read_exact(&mut [0; 5]).unwrap();
        assert!(counter(&stack, "segments_out") > before);
    }
}

#[test]
fn work_left_with_a_delay_is_done_eventually() {
    let _guard = watchdog("work_left_with_a_delay_is_done_eventually");
    let mut random = Random::new("delayed");
    let all = |c: &mut Config| {
        Wake::Delayed.set(c);
        Entry::NoDrain.set(c);
    };
    for grain in GRAINS {
        let stack = stack_with(|c| {
            all(c);
            grain.set(c);
        });
        let threads = (0..4).map(|_| {
            let (stack, mut random) = (stack.clone(), random.fork());
            std::thread::spawn(move || {
                let (client, server) = pair(&stack);
                let data = random.bytes(scaled(300_000));
                let sent = crate::common::hash_of(&data);
                let mut numbers = random.fork();
                let writer = std::thread::spawn(move || {
                    crate::common::send_chunked(&client, &data, 30_000, &mut numbers)
                });
                assert_eq!(crate::common::receive_chunked(&server, 30_000, false, &mut random).1, sent);
                crate::common::join(writer);
            })
        });
        join_all(threads.collect());
        assert_empty(&stack);
    }
}
