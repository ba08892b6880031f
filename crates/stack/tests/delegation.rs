//! Readers who run what comes for them while they wait (`Config::delegate_input`): that they do, that the bytes are the same, and
//! that nothing hangs or is lost when their waits end in other ways. The argument is at the head of `sync/src/socket_lock/delegate.rs`.

mod common;

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::time::Duration;

use common::{
    Random, assert_empty, cores, counter, eventually, hash_of, join, pair, receive_chunked, run_on, scaled,
    send_chunked, watchdog,
};
use sockeye::{Config, Stack, TcpStream};

/// A stack whose readers run what comes, with `change` applied.
fn stack_with(change: impl FnOnce(&mut Config)) -> Stack {
    common::stack_with(|c| {
        c.delegate_input = true;
        change(c);
    })
}

/// One byte to and fro, from two cores if there are two.
fn ping_pong(client: &TcpStream, server: &TcpStream, count: usize) {
    let (first, second) = cores();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            run_on(first);
            for i in 0..count {
                { client }.write_all(&[i as u8]).unwrap();
                let mut byte = [!(i as u8)];
                { client }.read_exact(&mut byte).unwrap();
                assert_eq!(byte, [i as u8]);
            }
        });
        scope.spawn(move || {
            run_on(second);
            for _ in 0..count {
                let mut byte = [0];
                { server }.read_exact(&mut byte).unwrap();
                { server }.write_all(&byte).unwrap();
            }
        });
    });
}

/// Segments left with readers by some round trips under this configuration.
fn delegated(change: impl FnOnce(&mut Config)) -> u64 {
    let stack = stack_with(change);
    let (client, server) = pair(&stack);
    ping_pong(&client, &server, scaled(2000).max(200));
    drop((client, server));
    assert_empty(&stack);
    counter(&stack, "segments_delegated")
}

#[test]
fn readers_on_two_cores_run_what_comes_and_only_with_the_settings_that_say_so() {
    let _guard = watchdog("delegated round trips");
    let (first, second) = cores();
    // A reader that does not wait yet when the segment comes gets it as ever: some are enough.
    assert_eq!(delegated(|_| {}) > 0, first != second);
    assert_eq!(delegated(|c| c.spin_max = Duration::ZERO) > 0, first != second);
    assert_eq!(delegated(|c| c.delegate_input = false), 0);
}

#[cfg(feature = "experiments")]
#[test]
fn with_older_settings_no_reader_runs_what_comes() {
    use crate::common::settings::{Entry, Grain, Rcvd, RxFree, Setting, Wake};

    let _guard = watchdog("round trips with older settings");
    assert_eq!(delegated(|c| Grain::Global.set(c)), 0);
    assert_eq!(delegated(|c| Entry::Fill.set(c)), 0);
    assert_eq!(delegated(|c| Rcvd::Async.set(c)), 0);
    assert_eq!(delegated(|c| Wake::Immediate.set(c)), 0);
    assert_eq!(delegated(|c| RxFree::Slot.set(c)), 0);
}

#[test]
fn a_reader_who_waits_hears_of_every_end() {
    let _guard = watchdog("ends of waits");
    for end in ["shutdown", "close", "abort", "own shutdown"] {
        for spin_max in [Duration::ZERO, Duration::from_millis(1)] {
            let stack = stack_with(|c| c.spin_max = spin_max);
            let (client, server) = pair(&stack);
            ping_pong(&client, &server, 50);
            let before = counter(&stack, "user_sleeps");
            let reader = {
                let mut server = server.try_clone().unwrap();
                std::thread::spawn(move || server.read(&mut [0; 8]).map_err(|error| error.kind()))
            };
            eventually("a reader waits", || counter(&stack, "user_sleeps") > before || reader.is_finished());
            match end {
                "shutdown" => client.shutdown(Shutdown::Write).unwrap(),
                "abort" => client.set_linger(Some(Duration::ZERO)).unwrap(),
                "own shutdown" => server.shutdown(Shutdown::Read).unwrap(),
                _ => {}
            }
            if end == "close" || end == "abort" {
                drop(client);
            }
            let want = if end == "abort" { Err(ErrorKind::ConnectionReset) } else { Ok(0) };
            assert_eq!(join(reader), want, "{end}");
        }
    }
}

#[test]
fn who_thinks_before_he_answers_answers_all_the_same() {
    let _guard = watchdog("slow answers");
    let stack = stack_with(|c| c.spin_max = Duration::ZERO);
    let (client, server) = pair(&stack);
    let (first, second) = cores();
    let mut random = Random::new("slow answers");
    let count = scaled(3000).max(200);
    let answering = std::thread::spawn(move || {
        run_on(second);
        let mut request = [0; 3];
        while { &server }.read_exact(&mut request).is_ok() {
            match random.below(20) {
                0 => std::thread::sleep(Duration::from_micros(random.below(300) as u64)),
                // Another thread's turn, now and then.
                1 => std::thread::yield_now(),
                // In two pieces, of which the second may be held back until the first is acknowledged.
                2 => {
                    { &server }.write_all(&request[..1]).unwrap();
                    { &server }.write_all(&request[1..]).unwrap();
                    continue;
                }
                _ => {}
            }
            { &server }.write_all(&request).unwrap();
        }
    });
    run_on(first);
    for i in 0..count {
        let request = (i as u32).to_ne_bytes();
        { &client }.write_all(&request[..3]).unwrap();
        let mut answer = [0; 3];
        { &client }.read_exact(&mut answer).unwrap();
        assert_eq!(answer, request[..3]);
    }
    client.shutdown(Shutdown::Both).unwrap();
    join(answering);
}

#[test]
fn acknowledgments_do_not_disturb_a_reader() {
    let _guard = watchdog("acknowledgments beside a reader");
    let (first, second) = cores();
    let stack = stack_with(|c| c.spin_max = Duration::ZERO);
    let (client, server) = pair(&stack);
    ping_pong(&client, &server, 50);
    let before = ["user_sleeps", "segments_delegated"].map(|name| counter(&stack, name));
    let reader = {
        let mut client = client.try_clone().unwrap();
        std::thread::spawn(move || {
            run_on(first);
            let mut byte = [0];
            client.read_exact(&mut byte).unwrap();
            byte
        })
    };
    eventually("a reader waits", || counter(&stack, "user_sleeps") > before[0]);
    let len = scaled(4_000_000);
    let sink = std::thread::spawn(move || {
        run_on(second);
        // It does not wait in its reads, so that nothing is left with it.
        server.set_nonblocking(true).unwrap();
        let (mut part, mut left) = (vec![0; 64 << 10], len);
        while left > 0 {
            match { &server }.read(&mut part) {
                Ok(some) => left -= some,
                Err(_) => std::thread::sleep(Duration::from_micros(20)),
            }
        }
        server
    });
    { &client }.write_all(&vec![1; len]).unwrap();
    let server = join(sink);
    assert!(!reader.is_finished());
    assert_eq!(counter(&stack, "segments_delegated"), before[1], "what came had no text");
    { &server }.write_all(&[9]).unwrap();
    assert_eq!(join(reader), [9]);
}

#[test]
fn segments_of_every_size_arrive_in_order_whoever_runs_them() {
    let _guard = watchdog("mixed sizes");
    let stack = stack_with(|_| {});
    let (client, server) = pair(&stack);
    client.set_nodelay(true).unwrap();
    let mut random = Random::new("mixed sizes");
    let data = random.bytes(scaled(20) * 200_000);
    let sent = hash_of(&data);
    let reader =
        std::thread::spawn(move || receive_chunked(&server, 40_000, false, &mut Random::new("reads")));
    // Below and above what is left with readers.
    send_chunked(&client, &data, 9000, &mut random);
    assert!(join(reader).1 == sent);
    drop(client);
    assert_empty(&stack);
}
