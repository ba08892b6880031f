//! Reports on sent and received bytes: completions of zero-copy sends and time stamps, over loopback and over a device.
//!
//! The stacks have no threads and a time of their own, so every time stamp is known.

use std::io::{ErrorKind, IoSlice, Read, Write};
use std::time::Duration;

use crate::common;
use sockeye::poll::{Events, Interest, Poll, Token, Trigger};
use sockeye::{MbufChain, Report, SendFlags, Stack, TcpListener, TcpSocket, TcpStream, Timestamping};

/// Both ends of a connection within a stack without threads.
struct World {
    stack: Stack,
    listener: TcpListener,
    client: TcpStream,
    server: TcpStream,
}

impl World {
    fn new(set: impl Fn(&mut TcpSocket)) -> Self {
        Self::with(false, set)
    }

    fn with(encode: bool, set: impl Fn(&mut TcpSocket)) -> Self {
        let stack = common::stack_with(|c| (c.workers, c.loopback_encode) = (0, encode));
        let mut socket = TcpSocket::new_v4(&stack);
        set(&mut socket);
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = socket.listen(16).unwrap();
        listener.set_nonblocking(true).unwrap();
        let (client, server) = Self::connect(&stack, &listener, set);
        Self { stack, listener, client, server }
    }

    fn connect(
        stack: &Stack,
        listener: &TcpListener,
        set: impl Fn(&mut TcpSocket),
    ) -> (TcpStream, TcpStream) {
        let mut socket = TcpSocket::new_v4(stack);
        set(&mut socket);
        socket.set_nonblocking(true);
        let client = socket.connect(listener.local_addr().unwrap()).unwrap();
        let _ = stack.poll(Duration::ZERO);
        let (server, _) = listener.accept().unwrap();
        server.set_nonblocking(true).unwrap();
        (client, server)
    }

    fn poll(&self, millis: u64) {
        let _ = self.stack.poll(Duration::from_millis(millis));
    }

    /// The peer reads all, and what that brings about has happened.
    fn read(&self, millis: u64) -> usize {
        let mut all = vec![0; 1 << 20];
        let len = (&self.server).read(&mut all).unwrap_or(0);
        self.poll(millis);
        len
    }
}

fn reports(stream: &TcpStream) -> Vec<Report> {
    std::iter::from_fn(|| match stream.recv_report() {
        Ok(report) => Some(report),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::WouldBlock);
            None
        }
    })
    .collect()
}

fn zerocopy(first: u32, last: u32, copied: bool) -> Report {
    Report::ZeroCopy { first, last, copied }
}

fn is_error(poll: &Poll) -> bool {
    let mut events = Events::with_capacity(4);
    poll.wait(&mut events, Some(Duration::ZERO)).unwrap();
    events.iter().any(|event| event.is_error())
}

#[test]
fn a_chain_that_was_sent_without_a_copy_is_reported_once_it_is_acknowledged() {
    for encode in [false, true] {
        let world = World::with(encode, |socket| socket.set_zerocopy(true));
        assert!(world.client.zerocopy().unwrap() && world.server.zerocopy().unwrap());
        let page = MbufChain::copied(&world.stack, &[7; 5000]).unwrap();
        for _ in 0..2 {
            let taken = world.client.send_mbufs_with(&mut page.clone(), SendFlags::ZEROCOPY).unwrap();
            assert_eq!(taken, 5000);
        }
        world.poll(1);
        assert_eq!(world.read(50) + world.read(100), 10_000);
        assert_eq!(reports(&world.client), [zerocopy(0, 1, false)], "encode {encode}");
        assert_eq!(reports(&world.server), []);
    }
}

#[test]
fn bytes_in_slices_are_reported_as_copied_and_only_if_both_option_and_flag_are_set() {
    let world = World::new(|_| {});
    let bufs = [IoSlice::new(b"one"), IoSlice::new(b"two")];
    world.client.send_with(&bufs, SendFlags::ZEROCOPY).unwrap();
    world.read(50);
    assert_eq!(reports(&world.client), [], "the option is off");
    world.client.set_zerocopy(true).unwrap();
    world.client.send_with(&bufs, SendFlags::NONE).unwrap();
    world.client.send_with(&[], SendFlags::ZEROCOPY).unwrap();
    world.client.send_with(&bufs, SendFlags::ZEROCOPY).unwrap();
    world.read(100);
    assert_eq!(reports(&world.client), [zerocopy(0, 0, true)]);
    world.client.set_zerocopy(false).unwrap();
    world.client.send_with(&bufs, SendFlags::ZEROCOPY).unwrap();
    world.read(150);
    assert_eq!(reports(&world.client), []);
}

#[test]
fn a_listener_passes_the_option_on_to_later_connections() {
    let world = World::new(|_| {});
    assert!(!world.server.zerocopy().unwrap());
    world.listener.set_zerocopy(true).unwrap();
    let (client, server) = World::connect(&world.stack, &world.listener, |_| {});
    assert!(server.zerocopy().unwrap() && !client.zerocopy().unwrap());
}

#[test]
fn the_end_of_a_connection_completes_what_was_never_acknowledged() {
    let world = World::new(|socket| {
        socket.set_zerocopy(true);
        socket.set_recv_buffer_size(4096);
    });
    let mut page = MbufChain::copied(&world.stack, &vec![7; 100_000]).unwrap();
    world.client.send_mbufs_with(&mut page, SendFlags::ZEROCOPY).unwrap();
    world.poll(1);
    assert_eq!(reports(&world.client), []);
    world.server.set_linger(Some(Duration::ZERO)).unwrap();
    drop(world.server);
    let _ = world.stack.poll(Duration::from_millis(2));
    assert_eq!(world.client.recv_report().unwrap(), zerocopy(0, 0, false));
}

#[test]
fn a_report_that_waits_is_an_error_to_pollers_and_none_to_readers() {
    for trigger in [Trigger::Level, Trigger::Edge] {
        let world = World::new(|socket| socket.set_zerocopy(true));
        let poll = Poll::new(Duration::ZERO);
        poll.register(&world.client, Token(1), Interest::WRITABLE, trigger).unwrap();
        assert!(!is_error(&poll));
        world.client.send_with(&[IoSlice::new(b"bytes")], SendFlags::ZEROCOPY).unwrap();
        world.read(50);
        assert!(is_error(&poll));
        assert_eq!(is_error(&poll), trigger == Trigger::Level);
        assert!(world.client.take_error().unwrap().is_none());
        let read = (&world.client).read(&mut [0]);
        assert_eq!(read.unwrap_err().kind(), ErrorKind::WouldBlock);
        assert_eq!(reports(&world.client), [zerocopy(0, 0, true)]);
        assert!(!is_error(&poll));
    }
}

#[test]
fn a_zero_copy_send_fails_while_too_many_reports_wait_and_takes_nothing() {
    let world = World::new(|socket| {
        socket.set_zerocopy(true);
        socket.set_timestamping(Timestamping::ACKED);
        socket.set_nodelay(true);
    });
    let mut now = 1;
    while reports_fit(&world) {
        now += 50;
        world.read(now);
        assert!(now < 200_000, "the queue has no bound");
    }
    let mut chain = MbufChain::copied(&world.stack, b"more").unwrap();
    let error = world.client.send_mbufs_with(&mut chain, SendFlags::ZEROCOPY).unwrap_err();
    assert_eq!((error.raw_os_error(), chain.len()), (Some(105), 4));
    assert_eq!(world.client.send_mbufs_with(&mut chain, SendFlags::NONE).unwrap(), 4, "without a report");
    let told = reports(&world.client);
    assert!(told.len() >= 1024);
    assert!(reports_fit(&world), "there is room again");
}

/// Sends a byte that is to be reported.
fn reports_fit(world: &World) -> bool {
    world.client.send_with(&[IoSlice::new(b"x")], SendFlags::ZEROCOPY).is_ok()
}

#[test]
fn time_stamps_of_a_send_are_those_of_its_last_byte() {
    let all = Timestamping::SCHEDULED.with(Timestamping::SENT).with(Timestamping::ACKED);
    let world = World::new(|_| {});
    (&world.client).write_all(b"earlier").unwrap();
    world.read(50);
    world.client.set_timestamping(all.with(Timestamping::NUMBERED)).unwrap();
    world.poll(100);
    (&world.client).write_all(&[7; 2000]).unwrap();
    world.read(200);
    let at = |millis| Duration::from_millis(millis);
    let stamp = |what, key, millis| Report::Timestamp { what, key, at: at(millis) };
    let told = reports(&world.client);
    let sent = [stamp(Timestamping::SCHEDULED, 1999, 100), stamp(Timestamping::SENT, 1999, 100)];
    assert_eq!(told[..2], sent);
    let Some(Report::Timestamp { what: Timestamping::ACKED, key: 1999, at: acked }) = told.get(2) else {
        panic!("{told:?}")
    };
    assert!(*acked >= at(100) && *acked <= at(200));
    assert_eq!((told.len(), world.stack.now()), (3, at(200)));
}

#[test]
fn a_read_has_the_time_at_which_its_last_byte_came() {
    for encode in [false, true] {
        let world = World::with(encode, |socket| {
            socket.set_timestamping(Timestamping::RECEIVED);
            socket.set_nodelay(true);
        });
        assert_eq!(world.server.recv_timestamp().unwrap(), None);
        for (millis, text) in [(10, b"first"), (20, b"other")] {
            world.poll(millis);
            (&world.client).write_all(text).unwrap();
            world.poll(millis);
        }
        world.poll(90);
        let read = |len: usize| {
            assert_eq!((&world.server).read(&mut vec![0; len]).unwrap(), len);
            world.server.recv_timestamp().unwrap().map(|at| at.as_millis())
        };
        assert_eq!([read(5), read(1), read(4)], [Some(10), Some(20), Some(20)], "encode {encode}");
    }
}

#[test]
fn reports_of_a_send_that_is_only_partly_taken_are_of_what_was() {
    let world = World::new(|socket| {
        socket.set_zerocopy(true);
        socket.set_send_buffer_size(4096);
        socket.set_recv_buffer_size(4096);
    });
    let numbered = Timestamping::ACKED.with(Timestamping::NUMBERED);
    world.client.set_timestamping(numbered).unwrap();
    let mut page = MbufChain::copied(&world.stack, &vec![7; 100_000]).unwrap();
    let taken = world.client.send_mbufs_with(&mut page, SendFlags::ZEROCOPY).unwrap();
    assert!(taken < 100_000);
    let mut now = 1;
    while reports_are_missing(&world) {
        now += 50;
        let _ = world.read(now);
        assert!(now < 100_000, "no report comes");
    }
    let told = reports(&world.client);
    let Some(Report::Timestamp { key, .. }) = told.first() else { panic!("{told:?}") };
    assert_eq!((*key as usize, told.last()), (taken - 1, Some(&zerocopy(0, 0, false))));
}

fn reports_are_missing(world: &World) -> bool {
    let poll = Poll::new(Duration::ZERO);
    poll.register(&world.client, Token(1), Interest::WRITABLE, Trigger::Level).unwrap();
    !is_error(&poll)
}
