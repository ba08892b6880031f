//! Which calls block, for how long, and which events end the wait.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::time::{Duration, Instant};

use crate::common::{self, pair, stack, watchdog};
use sockeye::{TcpListener, TcpSocket, TcpStream};

/// A timeout that is short for a test and long for a scheduler.
const SHORT: Duration = Duration::from_millis(60);
/// Later than this is not the timeout's doing, on however busy a machine.
const LATE: Duration = Duration::from_secs(60);

fn timed<T>(call: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    (call(), start.elapsed())
}

#[test]
fn a_read_times_out() {
    let _guard = watchdog("a_read_times_out");
    let (client, mut server) = pair(&stack());
    server.set_read_timeout(Some(SHORT)).unwrap();
    let (result, took) = timed(|| server.read(&mut [0; 8]));
    assert_eq!(result.unwrap_err().kind(), ErrorKind::WouldBlock);
    assert!((SHORT..LATE).contains(&took), "{took:?}");
    let (result, took) = timed(|| server.peek(&mut [0; 8]));
    assert_eq!(result.unwrap_err().kind(), ErrorKind::WouldBlock);
    assert!((SHORT..LATE).contains(&took), "{took:?}");
    (&client).write_all(b"late").unwrap();
    assert_eq!(server.read(&mut [0; 8]).unwrap(), 4, "and the connection lives on");
}

#[test]
fn a_write_times_out_and_reports_the_bytes_that_it_wrote() {
    let _guard = watchdog("a_write_times_out_and_reports_the_bytes_that_it_wrote");
    let (mut client, mut server) = pair(&stack());
    client.set_write_timeout(Some(SHORT)).unwrap();
    let data = vec![1; 4 << 20];
    let (written, took) = timed(|| client.write(&data));
    let mut written = written.unwrap();
    assert!(written > 0 && written < data.len(), "{written}");
    assert!((SHORT..LATE).contains(&took), "{took:?}");
    // A window probe may make room for a few bytes more.
    let error = loop {
        match client.write(&data) {
            Ok(more) => written += more,
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    client.shutdown(Shutdown::Write).unwrap();
    let mut got = Vec::new();
    server.read_to_end(&mut got).unwrap();
    assert_eq!(got.len(), written);
}

#[test]
fn no_operation_blocks_on_a_non_blocking_socket() {
    let _guard = watchdog("no_operation_blocks_on_a_non_blocking_socket");
    let stack = stack();
    let listener = common::listener(&stack);
    listener.set_nonblocking(true).unwrap();
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
    let mut client = common::connect(&stack, &listener);
    client.set_nonblocking(true).unwrap();
    assert_eq!(client.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    assert_eq!(client.peek(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    let mut written = 0;
    let error = loop {
        match client.write(&[0; 50_000]) {
            Ok(taken) => written += taken,
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    // Where handshakes are left to workers, that may take a while.
    let mut accepted = None;
    common::eventually("the connection comes to be accepted", || {
        accepted = listener.accept().ok();
        accepted.is_some()
    });
    let (mut server, _) = accepted.unwrap();
    let mut got = vec![0; written];
    server.read_exact(&mut got).unwrap();
    common::eventually("there is room to write again", || client.write(&[0]).is_ok());
}

#[test]
fn a_stream_that_becomes_blocking_blocks() {
    let _guard = watchdog("a_stream_that_becomes_blocking_blocks");
    let (client, mut server) = pair(&stack());
    server.set_nonblocking(true).unwrap();
    assert_eq!(server.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    server.set_nonblocking(false).unwrap();
    let reader = std::thread::spawn(move || server.read(&mut [0]));
    std::thread::sleep(Duration::from_millis(20));
    (&client).write_all(b"x").unwrap();
    assert_eq!(common::join(reader).unwrap(), 1);
}

#[test]
fn a_connect_to_a_closed_port_is_refused() {
    let stack = stack();
    let error = TcpStream::connect_on(&stack, "127.0.0.1:1").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    let error = TcpStream::connect_on(&stack, "[::1]:1").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    common::assert_empty(&stack);
}

#[test]
fn a_connect_beyond_the_loopback_is_unreachable() {
    let error = TcpStream::connect_on(&stack(), "192.0.2.1:80").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NetworkUnreachable);
    assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::NETUNREACH.raw_os_error()));
}

#[test]
fn a_connect_tries_every_address() {
    let stack = stack();
    let listener = common::listener(&stack);
    let addrs = [SocketAddr::from(([127, 0, 0, 1], 1)), listener.local_addr().unwrap()];
    let stream = TcpStream::connect_on(&stack, &addrs[..]).unwrap();
    assert_eq!(stream.peer_addr().unwrap(), addrs[1]);
    assert_eq!(TcpStream::connect_on(&stack, &[][..]).unwrap_err().kind(), ErrorKind::InvalidInput);
}

/// A listener with a backlog of one, and the connection that fills it.
fn full_listener(stack: &sockeye::Stack) -> (TcpListener, TcpStream) {
    let mut socket = TcpSocket::new_v4(stack);
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let first = common::connect(stack, &listener);
    (listener, first)
}

#[test]
fn a_connect_to_a_full_listener_times_out() {
    let _guard = watchdog("a_connect_to_a_full_listener_times_out");
    let stack = stack();
    let (listener, _first) = full_listener(&stack);
    let addr = listener.local_addr().unwrap();
    let (result, took) = timed(|| TcpSocket::new_v4(&stack).connect_timeout(addr, SHORT));
    assert_eq!(result.unwrap_err().kind(), ErrorKind::TimedOut);
    assert!((SHORT..LATE).contains(&took), "{took:?}");
    common::eventually("the connection that was given up is gone", || stack.connection_count() == 2);
}

#[test]
fn a_connect_with_no_time_is_refused() {
    let stack = stack();
    let (listener, _first) = full_listener(&stack);
    let addr = listener.local_addr().unwrap();
    let refused = TcpSocket::new_v4(&stack).connect_timeout(addr, Duration::ZERO).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidInput);
    assert_eq!(stack.connection_count(), 2, "nothing was begun");
}

#[test]
fn a_connect_is_not_connected_while_its_handshake_lasts() {
    let _guard = watchdog("a_connect_is_not_connected_while_its_handshake_lasts");
    let stack = stack();
    let (listener, _first) = full_listener(&stack);
    let mut socket = TcpSocket::new_v4(&stack);
    socket.set_nonblocking(true);
    let mut second = socket.connect(listener.local_addr().unwrap()).unwrap();
    assert_eq!(second.state_name(), "SYN-SENT");
    assert_eq!(second.peer_addr().unwrap_err().kind(), ErrorKind::NotConnected);
    assert_eq!(second.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    assert_eq!(second.write(&[0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    assert!(second.take_error().unwrap().is_none());
    listener.accept().unwrap();
    common::eventually("the repeated SYN finds room", || second.peer_addr().is_ok());
    listener.accept().unwrap();
}

#[test]
fn a_blocked_accept_takes_the_next_connection() {
    let _guard = watchdog("a_blocked_accept_takes_the_next_connection");
    let stack = stack();
    let listener = common::listener(&stack);
    let acceptors: Vec<_> = (0..4)
        .map(|_| {
            let listener = listener.try_clone().unwrap();
            std::thread::spawn(move || listener.accept().unwrap().1)
        })
        .collect();
    let clients: Vec<TcpStream> = (0..4).map(|_| common::connect(&stack, &listener)).collect();
    let mut seen = common::join_all(acceptors);
    let mut made: Vec<SocketAddr> = clients.iter().map(|c| c.local_addr().unwrap()).collect();
    seen.sort();
    made.sort();
    assert_eq!(seen, made, "each connection was accepted once");
}

#[test]
fn shutdown_of_reading_ends_a_blocked_read_of_another_thread() {
    let _guard = watchdog("shutdown_of_reading_ends_a_blocked_read_of_another_thread");
    for how in [Shutdown::Read, Shutdown::Both] {
        let (_client, mut server) = pair(&stack());
        let other = server.try_clone().unwrap();
        let reader = std::thread::spawn(move || server.read(&mut [0]));
        std::thread::sleep(Duration::from_millis(20));
        other.shutdown(how).unwrap();
        assert_eq!(common::join(reader).unwrap(), 0);
    }
}

#[test]
fn shutdown_of_writing_ends_a_blocked_write_of_another_thread() {
    let _guard = watchdog("shutdown_of_writing_ends_a_blocked_write_of_another_thread");
    let (mut client, server) = pair(&stack());
    let other = client.try_clone().unwrap();
    let writer = std::thread::spawn(move || {
        let mut total = 0;
        loop {
            match client.write(&[0; 100_000]) {
                Ok(n) => total += n,
                Err(e) => return (total, e.kind()),
            }
        }
    });
    common::eventually("something was written", || server.available().unwrap() > 0);
    std::thread::sleep(Duration::from_millis(50));
    other.shutdown(Shutdown::Write).unwrap();
    let (total, kind) = common::join(writer);
    assert!(total > 0);
    assert_eq!(kind, ErrorKind::BrokenPipe);
}

#[test]
fn a_reset_ends_blocked_reads_and_writes() {
    let _guard = watchdog("a_reset_ends_blocked_reads_and_writes");
    let (client, server) = pair(&stack());
    let mut reading = client.try_clone().unwrap();
    let mut writing = client;
    let reader = std::thread::spawn(move || reading.read(&mut [0]).map_err(|e| e.kind()));
    let writer = std::thread::spawn(move || {
        loop {
            if let Err(error) = writing.write(&[0; 100_000]) {
                return error.kind();
            }
        }
    });
    std::thread::sleep(Duration::from_millis(50));
    server.set_linger(Some(Duration::ZERO)).unwrap();
    drop(server);
    let (read, written) = (common::join(reader), common::join(writer));
    // SO_ERROR is reported to the first thread; the other gets the end of the stream or a broken pipe.
    let first_read = read == Err(ErrorKind::ConnectionReset) && written == ErrorKind::BrokenPipe;
    let first_write = read == Ok(0) && written == ErrorKind::ConnectionReset;
    assert!(first_read || first_write, "{read:?} {written:?}");
}

#[test]
fn a_lingering_close_waits_for_the_reader_or_times_out() {
    let _guard = watchdog("a_lingering_close_waits_for_the_reader_or_times_out");
    let stack = stack();
    let (mut client, mut server) = pair(&stack);
    client.set_linger(Some(Duration::from_secs(20))).unwrap();
    client.set_nonblocking(true).unwrap();
    let mut written = 0;
    while let Ok(taken) = client.write(&[3; 50_000]) {
        written += taken;
    }
    client.set_nonblocking(false).unwrap();
    let closer = std::thread::spawn(move || drop(client));
    std::thread::sleep(Duration::from_millis(50));
    assert!(!closer.is_finished(), "the last bytes have not been read yet");
    let mut got = Vec::new();
    server.read_to_end(&mut got).unwrap();
    common::join(closer);
    assert_eq!(got.len(), written);

    let (mut client, _server) = pair(&stack);
    client.set_linger(Some(SHORT)).unwrap();
    client.set_write_timeout(Some(SHORT)).unwrap();
    let _ = client.write(&vec![0; 4 << 20]).unwrap();
    let ((), took) = timed(|| drop(client));
    assert!((SHORT..LATE).contains(&took), "{took:?}");
}

/// Accepts when its thread ends, and says what came of that.
struct AcceptsAtTheEnd(TcpListener, std::sync::mpsc::Sender<std::io::Result<()>>);

impl Drop for AcceptsAtTheEnd {
    fn drop(&mut self) {
        let _ = self.1.send(self.0.accept().map(drop));
    }
}

thread_local! {
    static AT_THE_END: std::cell::RefCell<Option<AcceptsAtTheEnd>> = const { std::cell::RefCell::new(None) };
}

#[test]
fn a_thread_that_ends_can_accept() {
    let _guard = watchdog("a_thread_that_ends_can_accept");
    let stack = stack();
    let (say, said) = std::sync::mpsc::channel();
    let listener = common::listener(&stack);
    let to = listener.local_addr().unwrap();
    let accepts = std::thread::spawn(move || {
        // It is there before whatever an accept keeps for its thread, so it goes after that.
        AT_THE_END
            .with(|place| *place.borrow_mut() = Some(AcceptsAtTheEnd(listener.try_clone().unwrap(), say)));
        listener.accept().map(drop)
    });
    let _clients = [(); 2].map(|()| TcpStream::connect_on(&stack, to).unwrap());
    accepts.join().unwrap().unwrap();
    said.recv().unwrap().unwrap();
}
