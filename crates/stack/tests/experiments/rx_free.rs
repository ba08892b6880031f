//! Receive-buffer recycling: with every setting the same bytes arrive, memory on remote-free lists stays within its bounds, is
//! returned before any caller is refused, and an idle stack holds none. The two ends run on different cores if there
//! are two; on one core no buffer is put on a list, and the other properties still hold.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::time::Duration;

use crate::common::settings::{Grain, RxFree, Setting};
use crate::common::{
    Random, assert_empty, connect, cores, counter, eventually, hash_of, join, join_all, listener, pair,
    receive_chunked, run_on, scaled, send_chunked, stack_with, watchdog,
};
use sockeye::{Config, Stack, TcpStream};

/// The largest cluster with its header, bytes.
const CLUSTER: usize = (64 << 10) + 64;

fn stack(setting: RxFree) -> Stack {
    stack_with(|c| setting.set(c))
}

fn assert_lists_are_empty(stack: &Stack) {
    eventually("the lists are empty", || stack.memory_remote_listed() == 0);
}

/// Bytes that `connections` ends may have on their lists.
fn bound(config: &Config, connections: usize) -> usize {
    let lists = 2 * connections;
    match config.experiments.rx_free {
        RxFree::Inline => 0,
        RxFree::Slot => lists * CLUSTER,
        RxFree::SocketList => lists * 4 * CLUSTER,
        RxFree::CoreList => config.memory_max / 8,
    }
}

/// Sends `data` from one core to the other and checks the received bytes.
fn transfer(from: TcpStream, to: TcpStream, data: &[u8], random: &mut Random, slow: bool) {
    let (first, second) = cores();
    let (mut writer, mut reader) = (random.fork(), random.fork());
    std::thread::scope(|scope| {
        scope.spawn(move || {
            run_on(first);
            send_chunked(&from, data, 200_000, &mut writer);
        });
        scope.spawn(move || {
            run_on(second);
            let got = receive_chunked(&to, 150_000, slow, &mut reader);
            assert_eq!(got, (data.len(), hash_of(data)));
        });
    });
}

#[test]
fn the_same_bytes_arrive_with_every_setting_and_no_list_keeps_any() {
    let _guard = watchdog("the_same_bytes_arrive_with_every_setting_and_no_list_keeps_any");
    let mut random = Random::new("the_same_bytes_arrive_with_every_setting_and_no_list_keeps_any");
    let data = random.bytes(scaled(8 << 20));
    for setting in RxFree::ALL {
        for grain in [Grain::PerSocket, Grain::PerCore] {
            let stack = stack_with(|c| {
                setting.set(c);
                grain.set(c);
            });
            for slow in [false, true] {
                let (client, server) = pair(&stack);
                let back = (server.try_clone().unwrap(), client.try_clone().unwrap());
                transfer(client, server, &data, &mut random, slow);
                transfer(back.0, back.1, &data[..data.len() / 8], &mut random, slow);
                assert!(stack.memory_remote_listed() <= bound(stack.config(), 2), "{setting}");
            }
            assert_empty(&stack);
            assert_lists_are_empty(&stack);
            assert_eq!(
                counter(&stack, "mbuf_remote_listed"),
                counter(&stack, "mbuf_remote_taken"),
                "{setting}"
            );
            assert!(*setting != RxFree::Inline || counter(&stack, "mbuf_remote_listed") == 0);
        }
    }
}

/// One byte there and back, `count` times, from one core to the other.
fn ping_pong(client: TcpStream, server: TcpStream, count: usize) {
    let (first, second) = cores();
    let echo = std::thread::spawn(move || {
        run_on(second);
        let (mut server, mut byte) = (server, [0]);
        for _ in 0..count {
            server.read_exact(&mut byte).unwrap();
            server.write_all(&byte).unwrap();
        }
        server
    });
    let ask = std::thread::spawn(move || {
        run_on(first);
        let mut client = client;
        for round in 0..count {
            client.write_all(&[round as u8]).unwrap();
            let mut back = [0];
            client.read_exact(&mut back).unwrap();
            assert_eq!(back, [round as u8]);
        }
        client
    });
    drop((join(ask), join(echo)));
}

#[test]
fn buffers_return_to_their_core_unless_they_are_freed_inline() {
    let _guard = watchdog("buffers_return_to_their_core_unless_they_are_freed_inline");
    let (first, second) = cores();
    let count = scaled(5000);
    for setting in RxFree::ALL {
        let stack = stack(*setting);
        let (client, server) = pair(&stack);
        ping_pong(client, server, count);
        assert_empty(&stack);
        assert_lists_are_empty(&stack);
        let [local, remote, listed] =
            ["mbuf_local_frees", "mbuf_remote_frees", "mbuf_remote_listed"].map(|name| counter(&stack, name));
        match setting {
            _ if first == second => assert_eq!(listed, 0),
            RxFree::Inline => assert!(remote > local, "{remote} remote, {local} local"),
            RxFree::Slot | RxFree::SocketList | RxFree::CoreList => {
                assert!(remote < local, "{setting}: {remote} remote, {local} local, {listed} listed");
            }
        }
    }
}

#[test]
fn an_idle_stack_holds_nothing_though_its_connections_live() {
    let _guard = watchdog("an_idle_stack_holds_nothing_though_its_connections_live");
    let (first, second) = cores();
    for setting in RxFree::ALL {
        let stack = stack(*setting);
        let pairs: Vec<_> = (0..20).map(|_| pair(&stack)).collect();
        std::thread::scope(|scope| {
            for (core, up) in [(first, true), (second, false)] {
                let pairs = &pairs;
                scope.spawn(move || {
                    run_on(core);
                    for (client, server) in pairs {
                        match up {
                            true => { client }.write_all(&[7; 100_000]).unwrap(),
                            false => { server }.read_exact(&mut [0; 100_000]).unwrap(),
                        }
                    }
                });
            }
        });
        assert!(stack.memory_remote_listed() <= bound(stack.config(), 40));
        assert_lists_are_empty(&stack);
        eventually("all is acknowledged", || stack.memory_in_use() == 0);
        assert_eq!(stack.connection_count(), 40);
        // And it fills its list again when it is used again.
        let listed = counter(&stack, "mbuf_remote_listed");
        let (client, server) = &pairs[0];
        let ends = (client.try_clone().unwrap(), server.try_clone().unwrap());
        ping_pong(ends.0, ends.1, 200);
        let again = counter(&stack, "mbuf_remote_listed") > listed;
        assert_eq!(again, *setting != RxFree::Inline && first != second, "{setting}");
        assert_lists_are_empty(&stack);
    }
}

#[test]
fn without_threads_the_driver_returns_unclaimed_buffers() {
    let _guard = watchdog("without_threads_the_driver_returns_unclaimed_buffers");
    let (first, second) = cores();
    for setting in RxFree::ALL {
        let stack = stack_with(|c| {
            setting.set(c);
            c.workers = 0;
        });
        let (client, server) = pair(&stack);
        let (mut from, mut to) = (&client, &server);
        std::thread::scope(|scope| {
            let written = scope.spawn(move || {
                run_on(first);
                from.write_all(&[1; 100_000]).unwrap();
            });
            written.join().unwrap();
            scope.spawn(move || {
                run_on(second);
                to.read_exact(&mut [0; 100_000]).unwrap();
            });
        });
        let mut now = Duration::ZERO;
        let mut calls = 0;
        while let Some(at) = stack.poll(now) {
            now = at;
            calls += 1;
            assert!(calls < 1000, "{setting}: always another call");
        }
        assert_eq!((stack.memory_remote_listed(), stack.memory_in_use()), (0, 0), "{setting}");
    }
}

#[test]
fn memory_on_lists_is_returned_before_a_caller_is_refused() {
    let _guard = watchdog("memory_on_lists_is_returned_before_a_caller_is_refused");
    let (first, second) = cores();
    for setting in RxFree::ALL {
        let stack = stack_with(|c| {
            setting.set(c);
            c.memory_max = 4 << 20;
        });
        let pairs: Vec<_> = (0..12).map(|_| pair(&stack)).collect();
        // These are filled, and not the ones above: traffic takes the buffers that are on the lists.
        let fillers: Vec<_> = (0..12).map(|_| pair(&stack)).collect();
        let last = pair(&stack);
        std::thread::scope(|scope| {
            let (pairs, fillers, writing) = (&pairs, &fillers, &last.0);
            let traffic = scope.spawn(move || {
                run_on(first);
                for (client, _) in pairs {
                    { client }.write_all(&[1; 64 << 10]).unwrap();
                }
            });
            traffic.join().unwrap();
            let reading = scope.spawn(move || {
                run_on(second);
                for (_, server) in pairs {
                    { server }.read_exact(&mut [0; 64 << 10]).unwrap();
                }
            });
            reading.join().unwrap();
            let lists = *setting != RxFree::Inline && first != second;
            assert_eq!(counter(&stack, "mbuf_remote_listed") > 0, lists, "{setting}");
            // No thread reads any more: memory runs out.
            for (client, _) in fillers {
                client.set_nonblocking(true).unwrap();
                while { client }.write(&[2; 64 << 10]).is_ok() {}
            }
            writing.set_nonblocking(true).unwrap();
            let error =
                std::iter::repeat_with(|| { writing }.write(&[3; 64 << 10])).find_map(Result::err).unwrap();
            assert!(matches!(error.kind(), ErrorKind::OutOfMemory | ErrorKind::WouldBlock), "{error}");
        });
        assert!(counter(&stack, "memory_waits") > 0, "{setting}: the cap was not reached");
        assert_eq!(stack.memory_remote_listed(), 0, "{setting}");
        drop((pairs, fillers, last));
        assert_empty(&stack);
        assert_lists_are_empty(&stack);
    }
}

#[test]
fn connections_that_close_under_traffic_leave_the_lists_empty() {
    let _guard = watchdog("connections_that_close_under_traffic_leave_the_lists_empty");
    let mut random = Random::new("connections_that_close_under_traffic_leave_the_lists_empty");
    let (first, second) = cores();
    for setting in RxFree::ALL {
        let stack = stack(*setting);
        let listener = listener(&stack);
        let mut threads = Vec::new();
        for _ in 0..scaled(60) {
            let client = connect(&stack, &listener);
            let (server, _) = listener.accept().unwrap();
            let (reads, how) = (random.below(40), random.below(3));
            let size = random.size(100_000);
            threads.push(std::thread::spawn(move || {
                run_on(first);
                let data = vec![5; size];
                // Until the other end has closed.
                while { &client }.write_all(&data).is_ok() {}
            }));
            threads.push(std::thread::spawn(move || {
                run_on(second);
                let mut buf = vec![0; 50_000];
                for _ in 0..reads {
                    if !matches!({ &server }.read(&mut buf), Ok(1..)) {
                        break;
                    }
                }
                match how {
                    0 => {}
                    1 => server.set_linger(Some(Duration::ZERO)).unwrap(),
                    _ => drop(server.shutdown(Shutdown::Both)),
                }
            }));
        }
        join_all(threads);
        assert_empty(&stack);
        assert_lists_are_empty(&stack);
    }
}
