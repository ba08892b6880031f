//! TCP Fast Open, as applications see it: which client has a cookie, the text on the SYN, and how much of it a listener
//! accepts.

use std::io::{ErrorKind, Read, Write};
use std::time::Duration;

use crate::common::counter;
use sockeye::fastopen::{CLIENT, CLIENT_WITHOUT_COOKIE, Keys, SERVER, SERVER_ALL, SERVER_WITHOUT_COOKIE};
use sockeye::netif::{ChannelConfig, ChannelPort, channel};
use tokio::io::AsyncWriteExt as _;

use sockeye::{FastOpenFail, SendFlags, Stack, SynCookies, TcpListener, TcpSocket, TcpStream};

/// A stack without threads, in which no time passes, and a listener that does Fast Open.
struct World {
    stack: Stack,
    listener: TcpListener,
}

impl World {
    fn new(fastopen: u32, queue_len: usize) -> Self {
        Self::with(queue_len, |c| c.tcp.fastopen = fastopen)
    }

    fn with(queue_len: usize, change: impl FnOnce(&mut sockeye::Config)) -> Self {
        let stack = crate::common::stack_with(|c| {
            c.workers = 0;
            change(c);
        });
        let mut socket = TcpSocket::new_v4(&stack);
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        socket.set_fastopen(queue_len);
        let listener = socket.listen(16).unwrap();
        listener.set_nonblocking(true).unwrap();
        Self { stack, listener }
    }

    fn socket(&self) -> TcpSocket {
        let mut socket = TcpSocket::new_v4(&self.stack);
        socket.set_nonblocking(true);
        socket
    }

    /// Connects with `data` and lets everything be done that takes no time.
    fn send(&self, data: &[u8]) -> TcpStream {
        let (stream, taken) = self.socket().connect_with(self.listener.local_addr().unwrap(), data).unwrap();
        assert_eq!(taken, data.len());
        self.stack.poll(Duration::ZERO);
        stream
    }

    fn accept(&self) -> TcpStream {
        let (stream, _) = self.listener.accept().unwrap();
        stream.set_nonblocking(true).unwrap();
        stream
    }

    fn count(&self, name: &str) -> u64 {
        counter(&self.stack, &format!("fastopen_{name}"))
    }
}

/// The bytes that can be read now.
fn read(mut stream: &TcpStream) -> Vec<u8> {
    let mut all = vec![0; 100_000];
    let len = match stream.read(&mut all) {
        Ok(len) => len,
        Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
        Err(error) => panic!("{error}"),
    };
    all.truncate(len);
    all
}

#[test]
fn the_first_connect_gets_a_cookie_and_the_second_sends_with_its_syn() {
    for encode in [false, true] {
        let world = World::with(8, |c| (c.tcp.fastopen, c.loopback_encode) = (CLIENT | SERVER, encode));
        let first = world.send(b"plain");
        assert_eq!(read(&world.accept()), b"plain");
        assert_eq!((world.count("cookie_reqd"), world.count("passive")), (1, 0));
        let second = world.send(b"early");
        let server = world.accept();
        assert_eq!(read(&server), b"early");
        assert_eq!((world.count("cookie_reqd"), world.count("passive"), world.count("active")), (1, 1, 1));
        (&server).write_all(b"answer").unwrap();
        world.stack.poll(Duration::ZERO);
        assert_eq!(read(&second), b"answer");
        drop((first, second, server));
    }
}

#[test]
fn bytes_that_do_not_fit_into_the_syn_follow_after_the_handshake() {
    let world = World::new(CLIENT | SERVER, 8);
    drop(world.send(b"x"));
    drop(world.accept());
    let data: Vec<u8> = (0..100_000u32).map(|n| (n % 251) as u8).collect();
    let client = world.send(&data);
    let server = world.accept();
    let mut got = Vec::new();
    while got.len() < data.len() {
        world.stack.poll(Duration::ZERO);
        let more = read(&server);
        assert!(!more.is_empty(), "{} of {}", got.len(), data.len());
        got.extend(more);
    }
    assert!(got == data);
    assert_eq!(world.count("active"), 1);
    drop(client);
}

#[test]
fn with_fastopen_connect_the_syn_waits_for_the_first_write() {
    let world = World::new(CLIENT | SERVER, 8);
    drop(world.send(b"x"));
    drop(world.accept());
    let mut socket = world.socket();
    socket.set_nonblocking(false);
    socket.set_fastopen_connect(true);
    let sent = counter(&world.stack, "segments_out");
    let mut stream = socket.connect(world.listener.local_addr().unwrap()).unwrap();
    assert_eq!(
        counter(&world.stack, "segments_out"),
        sent,
        "nothing leaves before there is something to say"
    );
    assert_eq!(stream.state_name(), "SYN-SENT");
    stream.set_nodelay(true).unwrap();
    stream.set_notsent_lowat(Some(1000)).unwrap();
    assert_eq!(counter(&world.stack, "segments_out"), sent, "an option is no write");
    stream.write_all(b"hello").unwrap();
    let server = world.accept();
    assert_eq!(read(&server), b"hello");
    assert_eq!((world.count("active"), stream.state_name()), (1, "ESTABLISHED"));
}

#[tokio::test]
async fn with_fastopen_connect_a_task_that_writes_nothing_connects() {
    let world = World::new(CLIENT | SERVER, 8);
    drop(world.send(b"x"));
    drop(world.accept());
    let mut socket = world.socket();
    socket.set_fastopen_connect(true);
    let stream = socket.connect(world.listener.local_addr().unwrap()).unwrap();
    assert_eq!(stream.state_name(), "SYN-SENT");
    let mut stream = sockeye::tokio::TcpStream::from_std(stream).unwrap();
    assert_eq!(stream.write(b"").await.unwrap(), 0);
    assert_eq!((stream.get_ref().state_name(), world.count("active")), ("ESTABLISHED", 0));
    drop(world.accept());
}

#[test]
fn without_a_cookie_fastopen_connect_is_a_plain_connect_that_asks_for_one() {
    let world = World::new(CLIENT | SERVER, 8);
    let mut socket = world.socket();
    socket.set_fastopen_connect(true);
    let stream = socket.connect(world.listener.local_addr().unwrap()).unwrap();
    assert_eq!((stream.state_name(), world.count("cookie_reqd")), ("ESTABLISHED", 1));
}

#[test]
fn each_side_does_fast_open_only_if_it_is_enabled() {
    for (bits, queue_len) in [(0, 8), (CLIENT, 8), (SERVER, 8), (CLIENT | SERVER, 0)] {
        let world = World::new(bits, queue_len);
        for _ in 0..3 {
            let client = world.send(b"text");
            assert_eq!(read(&world.accept()), b"text", "{bits:#x}");
            drop(client);
        }
        assert_eq!((world.count("active"), world.count("passive")), (0, 0), "{bits:#x} {queue_len}");
    }
    let world = World::new(CLIENT | SERVER | SERVER_ALL, 0);
    (0..2).for_each(|_| drop((world.send(b"text"), world.accept())));
    assert_eq!(world.count("passive"), 1);
}

#[test]
fn no_cookie_is_needed_if_both_sides_waive_it() {
    let world = World::new(CLIENT | SERVER | CLIENT_WITHOUT_COOKIE | SERVER_WITHOUT_COOKIE, 8);
    let client = world.send(b"at once");
    assert_eq!(read(&world.accept()), b"at once");
    assert_eq!((world.count("active"), world.count("passive"), world.count("cookie_reqd")), (1, 1, 0));
    drop(client);
    // A server that requires a cookie drops the data, which the client sends again after the handshake.
    let world = World::new(CLIENT | SERVER | CLIENT_WITHOUT_COOKIE, 8);
    let client = world.send(b"at once");
    assert_eq!(read(&world.accept()), b"at once");
    assert_eq!((world.count("active_fail"), world.count("passive")), (1, 0));
    drop(client);
}

#[test]
fn a_cookie_outlives_one_rotation_of_the_key_and_is_replaced() {
    let world = World::new(CLIENT | SERVER, 8);
    let connect = || drop((world.send(b"text"), world.accept()));
    connect();
    world.stack.rotate_fastopen_key();
    connect();
    assert_eq!(world.count("passive"), 1, "the old cookie was good");
    world.stack.rotate_fastopen_key();
    connect();
    assert_eq!(world.count("passive"), 2, "a new one came with it");
    world.stack.rotate_fastopen_key();
    world.stack.rotate_fastopen_key();
    connect();
    assert_eq!((world.count("passive"), world.count("passive_fail")), (2, 1));
    connect();
    assert_eq!(world.count("passive"), 3, "a refusal brings a new one too");
}

#[test]
fn syn_cookies_allow_no_early_connection() {
    let world =
        World::with(8, |c| (c.tcp.fastopen, c.tcp.syn_cookies) = (CLIENT | SERVER, SynCookies::Always));
    for _ in 0..2 {
        let client = world.send(b"text");
        assert_eq!(read(&world.accept()), b"text");
        drop(client);
    }
    assert_eq!(world.count("passive"), 0);
}

#[test]
fn a_listener_may_do_without_cookies_by_itself() {
    let world = World::new(CLIENT | SERVER, 8);
    world.listener.set_fastopen_no_cookie(true).unwrap();
    let mut socket = world.socket();
    socket.set_fastopen_no_cookie(true);
    let (client, taken) = socket.connect_with(world.listener.local_addr().unwrap(), b"at once").unwrap();
    world.stack.poll(Duration::ZERO);
    let server = world.accept();
    assert_eq!((taken, read(&server)), (7, b"at once".to_vec()));
    assert_eq!((world.count("active"), world.count("passive"), world.count("cookie_reqd")), (1, 1, 0));
    assert!(client.info().unwrap().syn_text_taken && server.info().unwrap().syn_text_taken);
    // The next asks for a cookie, and is taken as if it had brought one.
    let (client, _) = world.socket().connect_with(world.listener.local_addr().unwrap(), b"").unwrap();
    assert_eq!((world.count("passive"), world.count("cookie_reqd")), (2, 1));
    assert_eq!(client.info().unwrap().fast_open_fail, Some(FastOpenFail::CookieUnavailable));
}

#[test]
fn keys_of_a_listener_come_before_those_of_the_stack_and_may_have_a_backup() {
    let config = Keys { primary: [1; 16], backup: None };
    let world = World::with(8, |c| {
        (c.tcp.fastopen, c.tcp.fastopen_key) = (CLIENT | SERVER, Some(config));
    });
    assert_eq!(world.listener.fastopen_keys().unwrap(), None);
    let connect = || drop((world.send(b"text"), world.accept()));
    connect();
    connect();
    assert_eq!(world.count("passive"), 1);
    let own = Keys { primary: [2; 16], backup: Some([1; 16]) };
    world.listener.set_fastopen_keys(own).unwrap();
    assert_eq!(world.listener.fastopen_keys().unwrap(), Some(own));
    connect();
    assert_eq!(world.count("passive"), 2, "the stack's key is the backup");
    world.listener.set_fastopen_keys(Keys { primary: [2; 16], backup: None }).unwrap();
    connect();
    assert_eq!((world.count("passive"), world.count("passive_fail")), (3, 0), "a new cookie came with it");
    world.stack.set_fastopen_keys(Keys { primary: [9; 16], backup: None });
    connect();
    assert_eq!(world.count("passive"), 4, "the listener has its own");
    world.stack.clear_fastopen_cache();
    connect();
    assert_eq!((world.count("passive"), world.count("cookie_reqd")), (4, 2));
}

#[test]
fn a_connect_without_data_asks_for_a_cookie_and_brings_one() {
    let world = World::new(CLIENT | SERVER, 8);
    let connect = || world.socket().connect_with(world.listener.local_addr().unwrap(), b"").unwrap().0;
    let first = connect();
    assert_eq!((world.count("cookie_reqd"), world.count("passive")), (1, 0));
    let second = connect();
    assert_eq!((world.count("cookie_reqd"), world.count("passive"), world.count("active")), (1, 1, 0));
    assert!(!second.info().unwrap().syn_text_taken);
    assert_eq!((first.state_name(), second.state_name()), ("ESTABLISHED", "ESTABLISHED"));
}

#[test]
fn a_listener_without_a_place_answers_no_request_for_a_cookie() {
    let world = World::new(CLIENT | SERVER, 0);
    let mut waits = Vec::new();
    world.listener.set_fastopen(1).unwrap();
    waits.push(world.send(b"x"));
    world.listener.set_fastopen(0).unwrap();
    world.stack.clear_fastopen_cache();
    waits.push(world.send(b"x"));
    assert_eq!((world.count("cookie_reqd"), world.count("listen_overflows")), (2, 0));
    waits.push(world.send(b"x"));
    assert_eq!(world.count("active"), 0);
}

/// A stack on a link without any other host, and for each SYN that it has sent whether it carried data.
struct Silence {
    stack: Stack,
    port: ChannelPort,
    now: Duration,
}

impl Silence {
    fn new() -> Self {
        let (netif, mut ports) = channel(&ChannelConfig::default()).unwrap();
        let stack = crate::common::stack_with(|c| {
            c.workers = 0;
            c.tcp.syn_retries = 2;
            c.tcp.fastopen = CLIENT | CLIENT_WITHOUT_COOKIE;
        });
        stack.attach(netif, &["10.9.0.1/24".parse().unwrap()]).unwrap();
        Self { stack, port: ports.remove(0), now: Duration::ZERO }
    }

    fn connect(&self) -> TcpStream {
        self.socket().connect_with("10.9.0.2:7".parse().unwrap(), &[7; 300]).unwrap().0
    }

    fn socket(&self) -> TcpSocket {
        let mut socket = TcpSocket::new_v4(&self.stack);
        socket.set_nonblocking(true);
        socket
    }

    /// Lets `seconds` pass; returns for each SYN whether it carried data.
    fn pass(&mut self, seconds: u64) -> Vec<bool> {
        let mut sent = Vec::new();
        for _ in 0..=seconds * 10 {
            self.stack.poll(self.now);
            while let Some(frame) = self.port.try_recv() {
                sent.push(frame.len() >= 300);
            }
            self.now += Duration::from_millis(100);
        }
        sent
    }
}

#[test]
fn an_unanswered_syn_with_data_disables_fast_open_to_the_server() {
    let mut link = Silence::new();
    let given_up = link.connect();
    assert_eq!(link.pass(2), [true, false]);
    drop(given_up);
    let patient = link.connect();
    assert_eq!(link.pass(0), [false]);
    assert_eq!(link.pass(60), [false, false]);
    assert_eq!(patient.take_error().unwrap().map(|error| error.kind()), Some(ErrorKind::TimedOut));
    let again = link.connect();
    assert_eq!(link.pass(10), [true, false, false]);
    assert_eq!(again.take_error().unwrap().map(|error| error.kind()), Some(ErrorKind::TimedOut));
    let _third = link.connect();
    assert_eq!(link.pass(0), [false], "for twice as long");
    assert_eq!(counter(&link.stack, "fastopen_blackhole"), 2);
}

#[test]
fn a_write_that_does_not_block_takes_what_the_syn_has_room_for() {
    let mut link = Silence::new();
    let addr = "10.9.0.2:7".parse().unwrap();
    let (mut stream, taken) = link.socket().connect_with(addr, &[7; 5000]).unwrap();
    assert_eq!(link.pass(0), [true], "it is one segment, though the peer may be thought to take 536 bytes");
    assert_eq!(taken, 1420, "an MSS of 1460 less the longest options");
    assert_eq!(stream.write(b"more").unwrap_err().kind(), ErrorKind::WouldBlock);
    let mut socket = link.socket();
    socket.set_fastopen_connect(true);
    let mut stream = socket.connect(addr).unwrap();
    assert_eq!(stream.write(&[7; 5000]).unwrap(), 1420);
    assert_eq!(link.pass(0), [true]);
    assert_eq!(stream.write(b"more").unwrap_err().kind(), ErrorKind::WouldBlock);
    let mut socket = link.socket();
    socket.set_fastopen_connect(true);
    let mut stream = socket.connect(addr).unwrap();
    assert_eq!((link.pass(0), stream.write(b"").unwrap()), (vec![], 0));
    assert_eq!(link.pass(0), [false], "a write of nothing connects without text");
}

#[test]
fn without_fast_open_a_connect_that_does_not_block_takes_nothing() {
    for bits in [0, CLIENT] {
        let (netif, _ports) = channel(&ChannelConfig::default()).unwrap();
        let stack = crate::common::stack_with(|c| (c.workers, c.tcp.fastopen) = (0, bits));
        stack.attach(netif, &["10.9.0.1/24".parse().unwrap()]).unwrap();
        let mut socket = TcpSocket::new_v4(&stack);
        socket.set_nonblocking(true);
        let (stream, taken) = socket.connect_with("10.9.0.2:7".parse().unwrap(), &[7; 300]).unwrap();
        assert_eq!((taken, stream.state_name()), (0, "SYN-SENT"));
    }
}

#[test]
fn flags_of_send_count_for_the_text_of_a_connect() {
    for (flags, at_once) in [(SendFlags::NONE, "text"), (SendFlags::MORE, "")] {
        let world = World::new(CLIENT | SERVER, 8);
        let mut socket = world.socket();
        socket.set_nonblocking(false);
        let addr = world.listener.local_addr().unwrap();
        let (mut client, taken) = socket.connect_send(addr, b"text", flags).unwrap();
        let server = world.accept();
        assert_eq!((taken, read(&server)), (4, at_once.into()));
        client.write_all(b"!").unwrap();
        assert_eq!(read(&server), "text!".as_bytes()[at_once.len()..]);
    }
}
