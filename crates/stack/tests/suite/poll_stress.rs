//! A search for lost readiness: many connections, few threads, random sizes; if one event is lost, the
//! stress does not end and the watchdog says so.

use crate::common::settings::{Setting, grains};
use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::{self, Random, hash_of, join_all, scaled, stack_with, watchdog};
use sha2::{Digest, Sha256};
use sockeye::TcpStream;
use sockeye::poll::{Events, Interest, Poll, Token, Trigger};

const SPIN: Duration = Duration::from_micros(20);
const BOTH: Interest = Interest::READABLE.with(Interest::WRITABLE);

/// One end of a connection in an event loop: sends `data` and hashes the received bytes.
struct End {
    stream: TcpStream,
    data: Vec<u8>,
    sent: usize,
    shut: bool,
    hash: Sha256,
    over: bool,
}

impl End {
    fn new(stream: TcpStream, data: Vec<u8>) -> Self {
        stream.set_nonblocking(true).unwrap();
        Self { stream, data, sent: 0, shut: false, hash: Sha256::new(), over: false }
    }

    fn done(&self) -> bool {
        self.shut && self.over
    }

    /// Writes until it would block or the data ends. A level-triggered end writes once.
    fn write(&mut self, random: &mut Random, once: bool) {
        while self.sent < self.data.len() {
            let len = random.size(30_000).min(self.data.len() - self.sent);
            match self.stream.write(&self.data[self.sent..self.sent + len]) {
                Ok(taken) => self.sent += taken,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Err(e) => panic!("{e}"),
            }
            if once {
                break;
            }
        }
        if self.sent == self.data.len() && !self.shut {
            self.stream.shutdown(Shutdown::Write).unwrap();
            self.shut = true;
        }
    }

    fn read(&mut self, random: &mut Random, once: bool) {
        let mut buf = vec![0; 30_000];
        while !self.over {
            let room = random.size(buf.len());
            match self.stream.read(&mut buf[..room]) {
                Ok(0) => self.over = true,
                Ok(got) => self.hash.update(&buf[..got]),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Err(e) => panic!("{e}"),
            }
            if once {
                return;
            }
        }
    }
}

/// Serves ends until all are done; returns the hash of the bytes that each received.
fn serve(
    mut ends: HashMap<usize, End>,
    trigger: Trigger,
    mut random: Random,
) -> HashMap<usize, common::Hash> {
    let poll = Poll::new(SPIN);
    let interest = |end: &End| match (end.over, end.shut) {
        (false, false) => BOTH,
        (true, false) => Interest::WRITABLE,
        (_, true) => Interest::READABLE,
    };
    for (number, end) in &ends {
        poll.register(&end.stream, Token(*number), BOTH, trigger).unwrap();
    }
    let once = trigger == Trigger::Level;
    let mut hashes = HashMap::new();
    let mut events = Events::with_capacity(1 + random.below(32));
    while !ends.is_empty() {
        poll.wait(&mut events, None).unwrap();
        for event in &events {
            let number = event.token().0;
            let Some(end) = ends.get_mut(&number) else {
                continue;
            };
            let before = interest(end);
            if event.is_writable() {
                end.write(&mut random, once);
            }
            if event.is_readable() {
                end.read(&mut random, once);
            }
            if end.done() {
                let end = ends.remove(&number).unwrap();
                hashes.insert(number, end.hash.finalize().into());
            } else if once && interest(end) != before {
                // A level that is no longer of interest must be deregistered.
                poll.reregister(&end.stream, Token(number), interest(end), trigger).unwrap();
            }
        }
    }
    hashes
}

#[test]
fn no_readiness_is_lost_between_event_loops() {
    let _guard = watchdog("no_readiness_is_lost_between_event_loops");
    let mut random = Random::new("loops");
    for grain in grains() {
        for trigger in [Trigger::Level, Trigger::Edge] {
            let (sndbuf, rcvbuf) = (4096 + random.size(100_000) as u32, 4096 + random.size(100_000) as u32);
            let stack = stack_with(|c| {
                grain.set(c);
                c.sndbuf = sndbuf;
                c.rcvbuf = rcvbuf;
            });
            let mut loops: Vec<HashMap<usize, End>> = (0..4).map(|_| HashMap::new()).collect();
            let mut expected = HashMap::new();
            for number in 0..scaled(40) {
                let (client, server) = common::pair(&stack);
                let (there, back) = (random.size(200_000), random.size(200_000));
                let (there, back) = (random.bytes(there), random.bytes(back));
                expected.insert(2 * number, hash_of(&back));
                expected.insert(2 * number + 1, hash_of(&there));
                // Nagle and a delayed acknowledgment at every turn would only make it slow.
                client.set_nodelay(true).unwrap();
                server.set_nodelay(true).unwrap();
                loops[number % 2].insert(2 * number, End::new(client, there));
                loops[2 + number % 2].insert(2 * number + 1, End::new(server, back));
            }
            let threads = loops.into_iter().map(|ends| {
                let random = random.fork();
                std::thread::spawn(move || serve(ends, trigger, random))
            });
            let got: HashMap<_, _> = join_all(threads.collect()).into_iter().flatten().collect();
            assert_eq!(got, expected);
            common::assert_empty(&stack);
        }
    }
}

#[test]
fn several_waiters_on_one_set_share_the_events() {
    let _guard = watchdog("several_waiters_on_one_set_share_the_events");
    let stack = common::stack();
    let (poll, turns) = (Arc::new(Poll::new(SPIN)), scaled(3000));
    let pairs: Vec<_> = (0..8).map(|_| common::pair(&stack)).collect();
    let (clients, servers): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
    for (number, server) in servers.iter().enumerate() {
        server.set_nonblocking(true).unwrap();
        poll.register(server, Token(number), Interest::READABLE, Trigger::Edge).unwrap();
    }
    let (servers, answered) = (Arc::new(servers), Arc::new(AtomicUsize::new(0)));
    let waiters = (0..3).map(|_| {
        let (poll, servers, answered) = (poll.clone(), servers.clone(), answered.clone());
        std::thread::spawn(move || {
            let mut events = Events::with_capacity(4);
            while answered.load(Ordering::Relaxed) < 8 * turns {
                poll.wait(&mut events, Some(Duration::from_secs(60))).unwrap();
                for event in &events {
                    let mut server = &servers[event.token().0];
                    let mut byte = [0; 8];
                    while let Ok(got @ 1..) = server.read(&mut byte) {
                        server.write_all(&byte[..got]).unwrap();
                        answered.fetch_add(got, Ordering::Relaxed);
                    }
                }
            }
            // The others wait for events that will never be reported.
            poll.wake();
        })
    });
    let waiters: Vec<_> = waiters.collect();
    let askers = clients.into_iter().map(|mut client| {
        std::thread::spawn(move || {
            client.set_nodelay(true).unwrap();
            for turn in 0..turns {
                client.write_all(&[turn as u8]).unwrap();
                let mut back = [0];
                client.read_exact(&mut back).unwrap();
                assert_eq!(back[0], turn as u8);
            }
        })
    });
    join_all(askers.collect());
    poll.wake();
    join_all(waiters);
}

#[test]
fn registering_during_traffic_loses_nothing() {
    let _guard = watchdog("registering_during_traffic_loses_nothing");
    let mut random = Random::new("register");
    let stack = common::stack();
    for _ in 0..scaled(2000) {
        let (mut client, server) = common::pair(&stack);
        let poll = Poll::new(SPIN);
        let pause = random.below(200);
        let writer = std::thread::spawn(move || {
            (0..pause).for_each(|_| std::hint::spin_loop());
            client.write_all(b"x").unwrap();
            client
        });
        let trigger = if random.chance(2) { Trigger::Edge } else { Trigger::Level };
        poll.register(&server, Token(0), Interest::READABLE, trigger).unwrap();
        if random.chance(2) {
            poll.reregister(&server, Token(0), Interest::READABLE, trigger).unwrap();
        }
        let mut events = Events::with_capacity(1);
        // An event lost here would never be repeated: nothing else happens to this socket.
        poll.wait(&mut events, None).unwrap();
        assert!(events.iter().next().unwrap().is_readable());
        drop(common::join(writer));
    }
}
