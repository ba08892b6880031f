//! Messages in one direction, without answers: each arrives at once, although the sender uses Nagle's algorithm and the
//! receiver may delay acknowledgments.

use std::io::{Read, Write};
use std::time::Duration;

use crate::common::counter;
use crate::common::settings::{GRAINS, Rcvd, Setting};
use sockeye::{Stack, TcpListener, TcpSocket, TcpStream};

/// More than the acknowledgments that a new connection sends at once anyway.
const MESSAGES: u8 = 200;

/// A stack without threads, and its time, which passes only while nothing else happens.
struct Driven {
    stack: Stack,
    now: Duration,
}

impl Driven {
    fn new(change: impl FnOnce(&mut sockeye::Config)) -> Self {
        let stack = crate::common::stack_with(|c| {
            c.workers = 0;
            change(c);
        });
        Self { stack, now: Duration::ZERO }
    }

    fn pair(&mut self) -> (TcpStream, TcpStream) {
        let listener: TcpListener = crate::common::listener(&self.stack);
        listener.set_nonblocking(true).unwrap();
        let mut socket = TcpSocket::new_v4(&self.stack);
        socket.set_nonblocking(true);
        let client = socket.connect(listener.local_addr().unwrap()).unwrap();
        loop {
            if let Ok((server, _)) = listener.accept() {
                server.set_nonblocking(true).unwrap();
                return (client, server);
            }
            self.turn();
        }
    }

    /// Lets the time pass until something is due, and does it.
    fn turn(&mut self) {
        if let Some(next) = self.stack.poll(self.now) {
            self.now = self.now.max(next);
            self.stack.poll(self.now);
        }
    }

    /// Reads `len` bytes; time passes while there are none.
    fn read(&mut self, mut from: &TcpStream, len: usize) -> Vec<u8> {
        let mut buf = vec![0; len];
        let mut got = 0;
        while got < len {
            match from.read(&mut buf[got..]) {
                Ok(bytes) => got += bytes,
                Err(_) => self.turn(),
            }
        }
        buf
    }

    /// How long it takes until all messages are there, each written when the one before has been read.
    fn time_of_messages(&mut self, mut from: &TcpStream, to: &TcpStream, len: usize) -> Duration {
        let begun = self.now;
        for tag in 0..MESSAGES {
            from.write_all(&vec![tag; len]).unwrap();
            assert_eq!(self.read(to, len), vec![tag; len]);
        }
        self.now - begun
    }
}

#[test]
fn unanswered_messages_wait_for_no_timer() {
    for grain in GRAINS {
        for rcvd in Rcvd::ALL {
            let mut driven = Driven::new(|c| {
                grain.set(c);
                rcvd.set(c);
            });
            let (client, server) = driven.pair();
            let time = driven.time_of_messages(&client, &server, 64);
            assert_eq!(time, Duration::ZERO, "{grain:?} {rcvd}");
        }
    }
}

#[test]
fn unanswered_messages_with_a_short_last_segment_or_read_in_parts_wait_for_no_timer() {
    let mut driven = Driven::new(|_| {});
    let (client, server) = driven.pair();
    for len in [1, 1000, 100_001] {
        assert_eq!(driven.time_of_messages(&client, &server, len), Duration::ZERO, "{len}");
    }
    let begun = driven.now;
    for _ in 0..MESSAGES {
        (&client).write_all(b"in parts").unwrap();
        for _ in 0..4 {
            driven.read(&server, 2);
        }
    }
    assert_eq!(driven.now, begun);
}

#[test]
fn one_way_messages_after_a_request_response_exchange_wait_once() {
    let mut driven = Driven::new(|_| {});
    let delack = sockeye::Config::default().tcp.delack;
    let (client, server) = driven.pair();
    for _ in 0..50 {
        (&client).write_all(b"question").unwrap();
        driven.read(&server, 8);
        (&server).write_all(b"answer").unwrap();
        driven.read(&client, 6);
    }
    // The server has answered so far, so its first acknowledgment waits for an answer.
    assert_eq!(driven.time_of_messages(&client, &server, 64), delack);
}

#[test]
fn a_request_response_exchange_sends_no_pure_acknowledgments() {
    let mut driven = Driven::new(|_| {});
    let (client, server) = driven.pair();
    let ask = |driven: &mut Driven| {
        (&client).write_all(b"question").unwrap();
        driven.read(&server, 8);
        (&server).write_all(b"answer").unwrap();
        driven.read(&client, 6);
    };
    ask(&mut driven);
    ask(&mut driven);
    let before = counter(&driven.stack, "segments_in");
    for _ in 0..100 {
        ask(&mut driven);
    }
    assert_eq!(counter(&driven.stack, "segments_in") - before, 200);
    assert_eq!(driven.now, Duration::ZERO);
}
