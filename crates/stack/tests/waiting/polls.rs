//! A `Poll` that is dropped is registered nowhere any more.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sockeye::poll::{Events, Interest, Poll, Pollable, Token, Trigger};
use sockeye::unix::{UnixDatagram, UnixStream};
use sockeye::{TcpListener, UdpSocket};

use crate::common::{assert_empty, pair, stack};
use crate::in_time;

const BOTH: Interest = Interest::READABLE.with(Interest::WRITABLE);

fn in_many_polls(name: &str, socket: &impl Pollable) {
    for n in 0..200 {
        let poll = Poll::new(Duration::ZERO);
        let trigger = if n % 2 == 0 { Trigger::Level } else { Trigger::Edge };
        poll.register(socket, Token(0), BOTH, trigger)
            .unwrap_or_else(|error| panic!("{name}: Poll {n}: {error}"));
    }
}

#[test]
fn a_socket_may_be_in_any_number_of_polls_one_after_the_other() {
    let stack = stack();
    let (client, server) = pair(&stack);
    in_many_polls("TCP", &client);
    in_many_polls("listener", &TcpListener::bind_on(&stack, "127.0.0.1:0").unwrap());
    in_many_polls("UDP", &UdpSocket::bind_on(&stack, "127.0.0.1:0").unwrap());
    let (a, b) = UnixStream::pair_on(&stack).unwrap();
    in_many_polls("UNIX stream", &a);
    in_many_polls("its other end", &b);
    in_many_polls("UNIX datagram", &UnixDatagram::pair_on(&stack).unwrap().0);
    drop((client, server));
    assert_empty(&stack);
}

#[test]
fn a_dropped_poll_keeps_no_socket_and_another_continues() {
    let stack = stack();
    let (client, server) = pair(&stack);
    let (kept, dropped) = (Poll::new(Duration::ZERO), Poll::new(Duration::ZERO));
    for poll in [&kept, &dropped] {
        poll.register(&client, Token(7), Interest::READABLE, Trigger::Level).unwrap();
    }
    drop(dropped);
    (&server).write_all(b"x").unwrap();
    let mut events = Events::with_capacity(4);
    assert_eq!(kept.wait(&mut events, Some(crate::LONG)).unwrap(), 1);
    drop((client, server));
    assert_empty(&stack);
}

/// Polls are created and dropped while their socket receives bytes, and while it closes.
#[test]
fn a_poll_may_be_dropped_during_deliveries_and_closes() {
    in_time(|| {
        let stack = stack();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..20 {
                let (client, server) = pair(&stack);
                let (a, b) = UnixStream::pair_on(&stack).unwrap();
                let polls: Vec<_> = (0..8).map(|_| Poll::new(Duration::ZERO)).collect();
                for poll in &polls {
                    poll.register(&client, Token(0), BOTH, Trigger::Level).unwrap();
                    poll.register(&a, Token(1), BOTH, Trigger::Edge).unwrap();
                }
                let is_over = &is_over;
                let writer = scope.spawn(move || {
                    for _ in 0..50 {
                        if is_over.load(Ordering::Relaxed) {
                            break;
                        }
                        let _ = ((&server).write(b"x"), (&b).write(b"x"));
                    }
                });
                let dropper = scope.spawn(move || drop(polls));
                drop((client, a));
                dropper.join().unwrap();
                writer.join().unwrap();
            }
            is_over.store(true, Ordering::Relaxed);
        });
        assert_empty(&stack);
    });
}
