//! Options of the receiving side: SO_RCVLOWAT, TCP_WINDOW_CLAMP, TCP_INQ, SO_INCOMING_CPU, and the scale that SO_RCVBUF leads to.

use std::io::{ErrorKind, Read, Write};
use std::thread;
use std::time::Duration;

use crate::common::watchdog;
use sockeye::poll::{Events, Interest, Poll, Token, Trigger};
use sockeye::{Config, Stack, TcpSocket, TcpStream};

fn stack() -> Stack {
    Stack::new(Config::default()).unwrap()
}

/// Both ends of a connection within the stack, made by sockets that `set` has seen.
fn pair(stack: &Stack, set: impl Fn(&mut TcpSocket)) -> (TcpStream, TcpStream) {
    let mut listening = TcpSocket::new_v4(stack);
    set(&mut listening);
    listening.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = listening.listen(1).unwrap();
    let mut connecting = TcpSocket::new_v4(stack);
    set(&mut connecting);
    let client = connecting.connect(listener.local_addr().unwrap()).unwrap();
    (client, listener.accept().unwrap().0)
}

/// Whether the stream is readable now.
fn is_readable(poll: &Poll, events: &mut Events) -> bool {
    poll.wait(events, Some(Duration::ZERO)).unwrap();
    events.iter().any(|event| event.is_readable())
}

#[test]
fn a_stream_is_readable_from_the_low_water_mark_on_and_a_read_that_does_not_block_takes_less() {
    let _watchdog =
        watchdog("a_stream_is_readable_from_the_low_water_mark_on_and_a_read_that_does_not_block_takes_less");
    let stack = stack();
    let (mut client, mut server) = pair(&stack, |_| {});
    server.set_nonblocking(true).unwrap();
    server.set_rcvlowat(100).unwrap();
    assert_eq!((server.rcvlowat().unwrap(), client.rcvlowat().unwrap()), (100, 1));
    let poll = Poll::new(Duration::ZERO);
    let mut events = Events::with_capacity(4);
    poll.register(&server, Token(1), Interest::READABLE, Trigger::Level).unwrap();
    client.write_all(&[7; 99]).unwrap();
    assert!(!is_readable(&poll, &mut events));
    client.write_all(&[7; 1]).unwrap();
    assert!(is_readable(&poll, &mut events));
    let mut buf = [0; 60];
    assert_eq!(server.read(&mut buf).unwrap(), 60);
    assert!(!is_readable(&poll, &mut events), "forty are left");
    server.set_rcvlowat(40).unwrap();
    assert!(is_readable(&poll, &mut events), "a lower mark");
    server.set_rcvlowat(1_000).unwrap();
    assert_eq!(server.read(&mut buf).unwrap(), 40);
    assert_eq!(server.read(&mut buf).unwrap_err().kind(), ErrorKind::WouldBlock);
    drop(client);
    assert!(is_readable(&poll, &mut events), "the end of the stream");
    assert_eq!(server.read(&mut buf).unwrap(), 0);
}

#[test]
fn a_stream_that_was_readable_is_not_below_a_higher_mark() {
    let _watchdog = watchdog("a_stream_that_was_readable_is_not_below_a_higher_mark");
    let stack = stack();
    let (mut client, server) = pair(&stack, |_| {});
    let poll = Poll::new(Duration::ZERO);
    let mut events = Events::with_capacity(4);
    poll.register(&server, Token(1), Interest::READABLE, Trigger::Level).unwrap();
    client.write_all(&[7; 99]).unwrap();
    assert!(is_readable(&poll, &mut events));
    server.set_rcvlowat(100).unwrap();
    assert!(!is_readable(&poll, &mut events), "a higher mark");
    client.write_all(&[7; 1]).unwrap();
    assert!(is_readable(&poll, &mut events));
}

#[test]
fn a_blocking_read_waits_for_the_mark_or_for_what_it_asks_for() {
    let _watchdog = watchdog("a_blocking_read_waits_for_the_mark_or_for_what_it_asks_for");
    let stack = stack();
    let (mut client, mut server) = pair(&stack, |socket| socket.set_rcvlowat(100));
    assert_eq!(server.rcvlowat().unwrap(), 100, "a listener's connections have its mark");
    client.write_all(&[7; 60]).unwrap();
    let mut few = [0; 10];
    assert_eq!(server.read(&mut few).unwrap(), 10);
    let reader = thread::spawn(move || {
        let mut buf = [0; 300];
        let taken = server.read(&mut buf).unwrap();
        (server, taken)
    });
    client.write_all(&[7; 30]).unwrap();
    client.write_all(&[7; 70]).unwrap();
    let (mut server, taken) = reader.join().unwrap();
    assert!(taken >= 100, "{taken}");
    let mut buf = [0; 300];
    client.write_all(&[7; 10]).unwrap();
    server.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    let left = 10 + 150 - taken;
    assert_eq!(server.read(&mut buf).unwrap(), left, "at the end of the time it gets what there is");
    server.set_read_timeout(None).unwrap();
    client.write_all(&[7; 20]).unwrap();
    drop(client);
    assert_eq!(server.read(&mut buf).unwrap(), 20, "so at the end of the stream");
    assert_eq!(server.read(&mut buf).unwrap(), 0);
}

#[test]
fn a_mark_larger_than_the_buffer_does_not_stall_the_peer() {
    let _watchdog = watchdog("a_mark_larger_than_the_buffer_does_not_stall_the_peer");
    let stack = stack();
    let (mut client, mut server) = pair(&stack, |socket| socket.set_recv_buffer_size(4096));
    server.set_rcvlowat(u32::MAX).unwrap();
    assert_eq!(server.rcvlowat().unwrap(), 4096);
    let writer = thread::spawn(move || client.write_all(&[7; 100_000]).unwrap());
    let mut all = Vec::new();
    server.read_to_end(&mut all).unwrap();
    assert_eq!(all.len(), 100_000);
    writer.join().unwrap();
    // A buffer that the program has not set follows the mark.
    let (_client, server) = pair(&stack, |_| {});
    server.set_rcvlowat(1 << 20).unwrap();
    assert!(server.recv_buffer_size().unwrap() >= 2 << 20);
}

#[test]
fn the_buffer_of_a_connection_follows_the_mark_that_its_socket_had() {
    let _watchdog = watchdog("the_buffer_of_a_connection_follows_the_mark_that_its_socket_had");
    const MARK: usize = 1 << 20;
    let stack = stack();
    let (mut client, mut server) = pair(&stack, |socket| socket.set_rcvlowat(MARK as u32));
    for end in [&client, &server] {
        assert!(end.recv_buffer_size().unwrap() >= 2 * MARK, "it is not smaller");
    }
    let writer = thread::spawn(move || {
        client.write_all(&vec![7; MARK]).unwrap();
        client
    });
    let mut buf = vec![0; MARK];
    let taken = server.read(&mut buf).unwrap();
    assert!(taken > MARK - 65_536, "{taken} bytes wait, and the window has room for a segment");
    server.read_exact(&mut buf[taken..]).unwrap();
    writer.join().unwrap();
}

#[test]
fn the_window_scale_is_that_of_a_buffer_that_was_set_or_of_a_clamp() {
    let _watchdog = watchdog("the_window_scale_is_that_of_a_buffer_that_was_set_or_of_a_clamp");
    let stack = stack();
    let scales = |set: &dyn Fn(&mut TcpSocket)| {
        let (client, server) = pair(&stack, set);
        [client, server].map(|end| end.info().unwrap().wscale.map(|(_, ours)| ours))
    };
    // Linux: ilog2 of the largest window, less 15.
    let most = stack.config().rcvbuf_max.ilog2() - 15;
    assert_eq!(scales(&|_| {}), [Some(most as u8); 2]);
    for (bytes, scale) in [(60_000, 0), (65_536, 1), (262_143, 2), (262_144, 3)] {
        assert_eq!(scales(&|socket| socket.set_recv_buffer_size(bytes)), [Some(scale); 2], "{bytes}");
        assert_eq!(
            scales(&|socket| socket.set_window_clamp(Some(bytes as u32))),
            [Some(scale); 2],
            "{bytes}"
        );
    }
}

#[test]
fn a_clamp_bounds_the_window() {
    let _watchdog = watchdog("a_clamp_bounds_the_window");
    let stack = stack();
    let (mut client, server) = pair(&stack, |socket| socket.set_window_clamp(Some(1)));
    assert_eq!(server.window_clamp().unwrap(), 1_152);
    client.write_all(&[7; 10_000]).unwrap();
    assert_eq!(server.available().unwrap(), 10_000, "it bounds the window, not the buffer");
    assert_eq!(client.info().unwrap().snd_wnd, 1_152);
    assert_eq!(server.set_window_clamp(0).unwrap_err().raw_os_error(), Some(22));
    server.set_window_clamp(5_000).unwrap();
    assert_eq!(server.window_clamp().unwrap(), 5_000);
}

#[test]
fn inq_tells_what_is_left_and_counts_the_end_as_one() {
    let _watchdog = watchdog("inq_tells_what_is_left_and_counts_the_end_as_one");
    let stack = stack();
    let (mut client, mut server) = pair(&stack, |_| {});
    assert_eq!((server.inq().unwrap(), server.incoming_cpu().unwrap()), (0, None));
    client.write_all(&[7; 50]).unwrap();
    assert!(server.incoming_cpu().unwrap().is_some());
    let mut buf = [0; 30];
    assert_eq!((server.read(&mut buf).unwrap(), server.inq().unwrap()), (30, 20));
    drop(client);
    assert_eq!((server.read(&mut buf).unwrap(), server.inq().unwrap()), (20, 1));
    assert_eq!(server.read(&mut buf).unwrap(), 0);
}
