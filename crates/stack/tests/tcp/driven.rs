//! A stack without threads: `workers = 0`, driven by `Stack::poll` with a time of its own.
//!
//! Nothing sleeps here. Sockets do not block, and the time is a number that jumps to the deadline that `poll` returns, so
//! hours of TIME-WAIT, keepalive and retransmission pass in microseconds and every run is the same.

use crate::common::settings::{GRAINS, Setting};
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::{Random, hash_of, scaled};
use crate::host::{Host, THEIRS};
use sha2::{Digest, Sha256};
use sockeye::{Stack, TcpKeepalive, TcpListener, TcpSocket, TcpStream};

/// A driven stack and its time.
struct World {
    stack: Stack,
    now: Duration,
}

impl World {
    fn new(change: impl FnOnce(&mut sockeye::Config)) -> Self {
        let stack = crate::common::stack_with(|c| {
            c.workers = 0;
            change(c);
        });
        Self { stack, now: Duration::ZERO }
    }

    /// Runs the due work, and advances the time to the next deadline.
    fn turn(&mut self) {
        if let Some(next) = self.stack.poll(self.now) {
            self.now = self.now.max(next);
        }
    }

    /// Advances the time by `time` and runs everything that becomes due.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(next) = self.stack.poll(self.now).filter(|next| *next <= end) {
            // A call must not be wanted for a time that has been.
            self.now = next.max(self.now + Duration::from_micros(1));
        }
        self.now = end;
        self.stack.poll(self.now);
    }

    fn listener(&self) -> TcpListener {
        let listener = crate::common::listener(&self.stack);
        listener.set_nonblocking(true).unwrap();
        listener
    }

    fn connect(&self, to: &TcpListener) -> TcpStream {
        let mut socket = TcpSocket::new_v4(&self.stack);
        socket.set_nonblocking(true);
        socket.connect(to.local_addr().unwrap()).unwrap()
    }

    fn pair(&mut self) -> (TcpStream, TcpStream) {
        let listener = self.listener();
        let client = self.connect(&listener);
        loop {
            self.turn();
            if let Ok((server, _)) = listener.accept() {
                server.set_nonblocking(true).unwrap();
                return (client, server);
            }
        }
    }
}

/// One direction of a transfer.
struct Flow {
    data: Vec<u8>,
    sent: usize,
    shut: bool,
    got: usize,
    hash: Sha256,
    done: bool,
}

impl Flow {
    fn new(data: Vec<u8>) -> Self {
        Self { data, sent: 0, shut: false, got: 0, hash: Sha256::new(), done: false }
    }

    /// Writes and reads without blocking; true if any bytes moved.
    fn step(&mut self, mut from: &TcpStream, mut to: &TcpStream, random: &mut Random) -> bool {
        let mut moved = false;
        if self.sent < self.data.len() {
            let len = random.size(100_000).min(self.data.len() - self.sent);
            match from.write(&self.data[self.sent..self.sent + len]) {
                Ok(taken) => (self.sent, moved) = (self.sent + taken, true),
                Err(e) => assert_eq!(e.kind(), ErrorKind::WouldBlock),
            }
        } else if !self.shut {
            from.shutdown(Shutdown::Write).unwrap();
            (self.shut, moved) = (true, true);
        }
        let mut buf = vec![0; random.size(100_000)];
        match to.read(&mut buf) {
            Ok(0) => (self.done, moved) = (true, moved || !self.done),
            Ok(got) => {
                self.hash.update(&buf[..got]);
                (self.got, moved) = (self.got + got, true);
            }
            Err(e) => assert_eq!(e.kind(), ErrorKind::WouldBlock),
        }
        moved
    }

    fn check(self) {
        assert_eq!(self.got, self.data.len());
        let got: crate::common::Hash = self.hash.finalize().into();
        assert_eq!(got, hash_of(&self.data));
    }
}

#[test]
fn transfers_in_both_directions_need_no_thread_and_no_real_time() {
    let _guard = crate::common::watchdog("transfers_in_both_directions_need_no_thread_and_no_real_time");
    let mut random = Random::new("driven");
    for round in 0..scaled(12) {
        let encode = random.chance(2);
        let mut world = World::new(|c| {
            GRAINS[round % GRAINS.len()].set(c);
            c.loopback_encode = encode;
            (c.sndbuf, c.rcvbuf) = (2048 + random.size(1 << 20) as u32, 2048 + random.size(1 << 20) as u32);
        });
        let (client, server) = world.pair();
        let mut there = Flow::new(random.bytes(500_000));
        let mut back = Flow::new(random.bytes(500_000));
        let mut stuck = 0;
        while !(there.done && back.done) {
            let moved = there.step(&client, &server, &mut random) | back.step(&server, &client, &mut random);
            stuck = if moved { 0 } else { stuck + 1 };
            assert!(stuck < 1000, "nothing moves any more at {:?}", world.now);
            world.turn();
        }
        there.check();
        back.check();
        drop((client, server));
        world.turn();
        assert_eq!((world.stack.connection_count(), world.stack.memory_in_use()), (0, 0));
    }
}

#[test]
fn settings_of_tcp_that_are_replaced_count_for_later_connections() {
    let mut world = World::new(|_| {});
    let (before, _server) = world.pair();
    let mut tcp = world.stack.tcp_config();
    tcp.syn_retries = 200;
    assert_eq!(world.stack.set_tcp_config(tcp).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(world.stack.tcp_config().syn_retries, 6);
    tcp.syn_retries = 6;
    tcp.timestamps = false;
    world.stack.set_tcp_config(tcp).unwrap();
    let (after, accepted) = world.pair();
    let has = |stream: &TcpStream| stream.info().unwrap().timestamps;
    assert_eq!((has(&before), has(&after), has(&accepted)), (true, false, false));
    assert!(world.stack.config().tcp.timestamps, "those of the beginning");
}

#[test]
fn poll_of_an_empty_stack_has_no_deadline() {
    let world = World::new(|_| {});
    assert_eq!(world.stack.poll(Duration::from_secs(5)), None);
}

#[test]
fn an_idle_connection_has_no_deadline() {
    let mut world = World::new(|_| {});
    let (client, server) = world.pair();
    world.pass(Duration::from_secs(600));
    assert_eq!(world.stack.poll(world.now), None, "{client:?} {server:?}");
}

#[test]
fn time_wait_ends_when_its_time_is_over_and_not_before() {
    let mut world = World::new(|c| {
        c.tcp.time_wait = Duration::from_secs(60);
        c.port_range = 40000..=40000;
    });
    let listener = TcpListener::bind_on(&world.stack, "127.0.0.1:80").unwrap();
    let client = world.connect(&listener);
    world.turn();
    let (server, _) = listener.accept().unwrap();
    drop(client);
    drop(server);
    world.pass(Duration::from_secs(59));
    // The port is in TIME-WAIT: it cannot be bound without SO_REUSEADDR.
    let bind = |world: &World| TcpSocket::new_v4(&world.stack).bind("127.0.0.1:40000".parse().unwrap());
    assert_eq!(bind(&world).unwrap_err().kind(), ErrorKind::AddrInUse);
    world.pass(Duration::from_secs(2));
    bind(&world).unwrap();
}

#[test]
fn a_port_in_time_wait_is_reused_if_there_is_no_other_and_its_timestamps_have_advanced() {
    let mut world = World::new(|c| c.port_range = 40000..=40001);
    let listener = TcpListener::bind_on(&world.stack, "127.0.0.1:80").unwrap();
    listener.set_nonblocking(true).unwrap();
    for round in 0..6u8 {
        if round >= 2 && round.is_multiple_of(2) {
            // Both have sent in this millisecond, and RFC 6191 wants a newer timestamp.
            let mut socket = TcpSocket::new_v4(&world.stack);
            socket.set_nonblocking(true);
            let refused = socket.connect(listener.local_addr().unwrap()).unwrap_err();
            assert_eq!((round, refused.kind()), (round, ErrorKind::AddrNotAvailable));
            world.pass(Duration::from_millis(1));
        }
        let mut client = world.connect(&listener);
        world.pass(Duration::ZERO);
        let mut server = listener.accept().unwrap().0;
        client.write_all(&[round]).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        world.pass(Duration::ZERO);
        let mut got = Vec::new();
        server.read_to_end(&mut got).unwrap();
        assert_eq!(got, [round]);
        drop(server);
        world.pass(Duration::ZERO);
        assert_eq!(client.read(&mut [0]).unwrap(), 0);
    }
}

#[test]
fn keepalive_uses_the_times_that_were_set_on_the_socket() {
    let mut world = World::new(|c| c.tcp.keepalive_time = Duration::from_secs(50));
    let listener = world.listener();
    let client = world.connect(&listener);
    world.pass(Duration::from_secs(1));
    let (server, _) = listener.accept().unwrap();
    assert_eq!(client.keepalive_time().unwrap(), Duration::from_secs(50));
    let probes = |world: &mut World, seconds| {
        let before = crate::common::counter(&world.stack, "segments_out");
        world.pass(Duration::from_secs(seconds));
        // Each probe has its answer.
        (crate::common::counter(&world.stack, "segments_out") - before) / 2
    };
    assert_eq!(probes(&mut world, 200), 0, "it is off");
    let (time, interval) = (Duration::from_secs(10), Duration::from_secs(2));
    client.set_tcp_keepalive(&TcpKeepalive::new().with_time(time).with_interval(interval)).unwrap();
    assert!(client.keepalive().unwrap());
    assert_eq!(probes(&mut world, 105), 10);
    // Another option does not begin the silence anew.
    for _ in 0..21 {
        client.set_nodelay(!client.nodelay().unwrap()).unwrap();
        assert!(probes(&mut world, 5) <= 1);
    }
    let wrong = TcpKeepalive::new().with_retries(128);
    assert_eq!(client.set_tcp_keepalive(&wrong).unwrap_err().kind(), ErrorKind::InvalidInput);
    let all = TcpKeepalive::new().with_interval(Duration::from_secs(3)).with_retries(4);
    client.set_tcp_keepalive(&all).unwrap();
    assert_eq!(client.keepalive_interval().unwrap(), Duration::from_secs(3));
    assert_eq!(
        (client.keepalive_time().unwrap(), client.keepalive_retries().unwrap()),
        (Duration::from_secs(10), 4)
    );
    drop(server);
}

#[test]
fn keepalive_uses_the_settings_where_a_socket_has_none() {
    let second = Duration::from_secs(1);
    let mut world = World::new(|c| {
        (c.tcp.keepalive_time, c.tcp.keepalive_intvl, c.tcp.keepalive_probes) = (50 * second, 7 * second, 3);
    });
    let (client, _server) = world.pair();
    let times = (client.keepalive_time().unwrap(), client.keepalive_interval().unwrap());
    assert_eq!((times, client.keepalive_retries().unwrap()), ((50 * second, 7 * second), 3));
}

#[test]
fn a_user_timeout_is_rounded_up_on_a_socket_too() {
    let stack = crate::common::stack_with(|c| c.workers = 0);
    let listener = TcpListener::bind_on(&stack, "127.0.0.1:0").unwrap();
    let mut socket = TcpSocket::new_v4(&stack);
    socket.set_user_timeout(Some(Duration::from_micros(500))).unwrap();
    let millisecond = Some(Duration::from_millis(1));
    assert_eq!(socket.user_timeout(), millisecond);
    let stream = socket.connect(listener.local_addr().unwrap()).unwrap();
    assert_eq!(stream.user_timeout().unwrap(), millisecond);
    stream.set_nodelay(true).unwrap();
    assert_eq!(stream.user_timeout().unwrap(), millisecond);
}

/// Zero would reset the connection.
#[test]
fn a_linger_time_is_rounded_up() {
    let stack = crate::common::stack_with(|c| c.workers = 0);
    let listener = TcpListener::bind_on(&stack, "127.0.0.1:0").unwrap();
    let mut socket = TcpSocket::new_v4(&stack);
    socket.set_linger(Some(Duration::from_nanos(1))).unwrap();
    let millisecond = Some(Duration::from_millis(1));
    assert_eq!(socket.linger(), millisecond);
    let stream = socket.connect(listener.local_addr().unwrap()).unwrap();
    assert_eq!(stream.linger().unwrap(), millisecond);
    stream.set_linger(Some(Duration::from_micros(1001))).unwrap();
    assert_eq!(stream.linger().unwrap(), Some(Duration::from_millis(2)));
    stream.set_linger(Some(Duration::ZERO)).unwrap();
    assert_eq!(stream.linger().unwrap(), Some(Duration::ZERO));
}

#[test]
fn a_user_timeout_ends_a_connection_whose_data_stays_unacknowledged() {
    let mut world = World::new(|_| {});
    let listener = world.listener();
    let mut client = world.connect(&listener);
    world.pass(Duration::from_secs(1));
    let (server, _) = listener.accept().unwrap();
    client.set_user_timeout(Some(Duration::from_secs(30))).unwrap();
    assert_eq!(client.user_timeout().unwrap(), Some(Duration::from_secs(30)));
    // The reader does not read: the window shuts, and the remaining bytes wait for it.
    while client.write(&[7; 4096]).is_ok() {}
    world.pass(Duration::from_secs(1));
    let waiting = client.unacknowledged().unwrap();
    world.pass(Duration::from_secs(28));
    assert!(client.take_error().unwrap().is_none());
    assert_eq!(client.unacknowledged().unwrap(), waiting, "a probe brings no byte through a shut window");
    world.pass(Duration::from_secs(3));
    assert_eq!(client.take_error().unwrap().map(|error| error.kind()), Some(ErrorKind::TimedOut));
    drop(server);
}

#[test]
fn keepalive_probes_an_idle_connection_after_two_hours_and_the_peer_answers() {
    let mut world = World::new(|_| {});
    let (client, server) = world.pair();
    client.set_keepalive(true).unwrap();
    let before = crate::common::counter(&world.stack, "segments_out");
    world.pass(Duration::from_secs(7199));
    assert_eq!(crate::common::counter(&world.stack, "segments_out"), before, "too early");
    world.pass(Duration::from_secs(2));
    assert_eq!(crate::common::counter(&world.stack, "segments_out"), before + 2, "a probe and its answer");
    assert_eq!((client.state_name(), server.state_name()), ("ESTABLISHED", "ESTABLISHED"));
}

#[test]
fn an_unanswered_connect_times_out_after_its_retries() {
    let mut world = World::new(|c| c.tcp.syn_retries = 3);
    let mut socket = TcpSocket::new_v4(&world.stack);
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let first = world.connect(&listener);
    world.turn();
    assert_eq!(first.state_name(), "ESTABLISHED");
    // The backlog is full, so that this one's SYNs are dropped: 1 + 2 + 4 + 8 seconds.
    let second = world.connect(&listener);
    world.pass(Duration::from_secs(14));
    assert_eq!(second.state_name(), "SYN-SENT");
    world.pass(Duration::from_secs(2));
    assert_eq!(second.state_name(), "CLOSED");
    assert_eq!(second.take_error().unwrap().unwrap().kind(), ErrorKind::TimedOut);
}

#[test]
fn a_closed_window_is_probed_and_opens_when_the_reader_returns_after_an_hour() {
    let mut world = World::new(|c| (c.sndbuf, c.rcvbuf) = (64 << 10, 4 << 10));
    let (mut client, mut server) = world.pair();
    let data = Random::new("persist").bytes(64 << 10);
    let taken = client.write(&data).unwrap();
    world.pass(Duration::from_secs(3600));
    assert_eq!(client.state_name(), "ESTABLISHED", "a peer that answers probes is not given up");
    let mut got = Vec::new();
    let mut buf = [0; 1000];
    while got.len() < taken {
        match server.read(&mut buf) {
            Ok(n) => got.extend_from_slice(&buf[..n]),
            Err(e) => {
                assert_eq!(e.kind(), ErrorKind::WouldBlock);
                world.turn();
            }
        }
    }
    assert!(got == data[..taken]);
}

#[test]
fn a_backlog_of_one_serves_every_client_that_does_not_give_up() {
    for encode in [false, true] {
        let mut world = World::new(|c| c.loopback_encode = encode);
        let mut socket = TcpSocket::new_v4(&world.stack);
        socket.set_nonblocking(true);
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = socket.listen(1).unwrap();
        let clients: Vec<TcpStream> = (0..30).map(|_| world.connect(&listener)).collect();
        let (mut served, mut outcomes) = (0, vec![Outcome::NotYet; clients.len()]);
        while world.now < Duration::from_secs(400) {
            if let Ok((mut server, _)) = listener.accept() {
                server.set_nonblocking(true).unwrap();
                let mut number = [0; 1];
                // The bytes that the client wrote after its handshake have been kept.
                while server.read(&mut number).is_err_and(|e| e.kind() == ErrorKind::WouldBlock) {
                    write_once(&clients, &mut outcomes);
                    world.pass(Duration::from_millis(10));
                }
                assert_eq!(
                    clients[usize::from(number[0])].local_addr().unwrap(),
                    server.peer_addr().unwrap()
                );
                served += 1;
            }
            write_once(&clients, &mut outcomes);
            world.pass(Duration::from_millis(50));
        }
        let failed = outcomes.iter().filter(|t| **t == Outcome::TimedOut).count();
        assert_eq!(served + failed, clients.len());
        assert!(served >= 7, "one for each time that the SYN is sent: {served}");
    }
}

/// The outcome for a client.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    NotYet,
    Wrote,
    TimedOut,
}

/// Every client writes its number once, as soon as it is connected.
fn write_once(clients: &[TcpStream], outcomes: &mut [Outcome]) {
    for ((number, mut client), outcomes) in clients.iter().enumerate().zip(outcomes) {
        if *outcomes == Outcome::NotYet {
            *outcomes = match client.write(&[number as u8]) {
                Ok(_) => Outcome::Wrote,
                Err(e) if e.kind() == ErrorKind::WouldBlock => Outcome::NotYet,
                Err(e) => {
                    assert_eq!(e.kind(), ErrorKind::TimedOut);
                    Outcome::TimedOut
                }
            };
        }
    }
}

#[test]
fn the_driver_is_notified_only_if_it_is_needed_earlier() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let taken = || calls.swap(0, Ordering::Relaxed);
    let mut world = World::new(|_| {});
    world.stack.set_driver_wake(Some(move || {
        let _ = counted.fetch_add(1, Ordering::Relaxed);
    }));
    let listener = world.listener();
    let client = world.connect(&listener);
    let (server, _) = listener.accept().unwrap();
    assert_eq!(taken(), 0, "the driver that has not polled yet has no deadline that could become outdated");
    world.pass(Duration::from_secs(10));
    // Nothing is under way: the answer was "never".
    assert_eq!(world.stack.poll(world.now), None);
    (&client).write_all(&[1; 100]).unwrap();
    assert_eq!(taken(), 1, "a timer was set (a delayed acknowledgment, a retransmission)");
    (&client).write_all(&[1; 100]).unwrap();
    assert_eq!(taken(), 0, "the driver has been notified and has not polled yet");
    let next = world.stack.poll(world.now).expect("a timer is set");
    assert!(next > world.now);
    let mut bytes = [0; 200];
    (&server).read_exact(&mut bytes).unwrap();
    assert_eq!(taken(), 0, "nothing that is due earlier");
    world.stack.set_driver_wake(None::<fn()>);
    drop((client, server));
    assert_eq!(taken(), 0);
}

#[test]
fn a_loop_that_sleeps_until_its_deadline_or_a_wake_up_finishes_the_work_of_other_threads() {
    let _watchdog = crate::common::watchdog("a loop that sleeps until it is told or woken");
    let stack = crate::common::stack_with(|c| c.workers = 0);
    let (wake, woken) = std::sync::mpsc::sync_channel(1);
    // Full: the driver polls anyway.
    stack.set_driver_wake(Some(move || {
        let _ = wake.try_send(());
    }));
    let stop = Arc::new(AtomicBool::new(false));
    let driver = {
        let (stack, stop) = (stack.clone(), Arc::clone(&stop));
        std::thread::spawn(move || {
            let start = std::time::Instant::now();
            while !stop.load(Ordering::Acquire) {
                match stack.poll(start.elapsed()) {
                    // A minute means that a wake-up was lost: the watchdog ends the test before.
                    None => drop(woken.recv_timeout(Duration::from_secs(60))),
                    Some(next) => drop(woken.recv_timeout(next.saturating_sub(start.elapsed()))),
                }
            }
        })
    };
    let listener = crate::common::listener(&stack);
    let to = listener.local_addr().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..scaled(200) {
                let (mut server, _) = listener.accept().unwrap();
                let mut bytes = Vec::new();
                server.read_to_end(&mut bytes).unwrap();
                server.write_all(&bytes).unwrap();
            }
        });
        for round in 0..scaled(200) {
            let mut client = TcpStream::connect_on(&stack, to).unwrap();
            client.write_all(&vec![round as u8; 10_000]).unwrap();
            client.shutdown(Shutdown::Write).unwrap();
            let mut bytes = Vec::new();
            client.read_to_end(&mut bytes).unwrap();
            assert_eq!(bytes.len(), 10_000);
        }
    });
    stop.store(true, Ordering::Release);
    // An operation that sets a timer, so that the driver polls once more and sees it.
    let last = TcpStream::connect_on(&stack, to).unwrap();
    (&last).write_all(b"x").unwrap();
    driver.join().unwrap();
}

/// A minute after the last turn a thread connects, and the loop comes a moment later.
#[test]
fn a_call_is_made_when_the_drivers_clock_says_if_the_stack_has_it() {
    for (has_clock, syns) in [(false, 2), (true, 1)] {
        let mut host = Host::new();
        let start = std::time::Instant::now() - Duration::from_secs(60);
        host.stack.set_driver_clock(has_clock.then_some(start));
        let mut socket = TcpSocket::new_v4(&host.stack);
        socket.set_nonblocking(true);
        // Before the call: no time passes from it to the turn, however slow this machine is.
        host.now = start.elapsed();
        let _stream = socket.connect(format!("{}:9", THEIRS[0]).parse().unwrap()).unwrap();
        assert_eq!(host.turn().len(), syns, "with the clock: {has_clock}");
    }
}

/// As on Linux, where such a write tells whether the handshake is over.
#[test]
fn a_write_of_nothing_during_the_handshake_would_block() {
    let mut host = Host::new();
    let mut socket = TcpSocket::new_v4(&host.stack);
    socket.set_nonblocking(true);
    let mut stream = socket.connect(format!("{}:9", THEIRS[0]).parse().unwrap()).unwrap();
    assert_eq!(host.turn().len(), 1, "the SYN");
    for _ in 0..2 {
        assert_eq!(stream.write(b"").unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    }
    // One that blocks waits for the end of the connect.
    stream.set_nonblocking(false).unwrap();
    stream.set_write_timeout(Some(Duration::from_millis(20))).unwrap();
    assert_eq!(stream.write(b"").unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
}
