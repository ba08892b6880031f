//! Errors have the kernel's number where the kernel has one, and its kind.

use std::io::{Error, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::time::Duration;

use crate::common::watchdog;
use crate::host::{Host, THEIRS};
use rustix::io::Errno;
use sockeye::poll::{Events, Interest, Poll, Token, Trigger};
use sockeye::unix::UnixStream;
use sockeye::{TcpKeepalive, TcpListener, TcpSocket, TcpStream, UdpSocket};

#[track_caller]
fn is<T>(result: Result<T, Error>, errno: Errno, kind: Option<ErrorKind>) {
    let Err(error) = result else { panic!("it did not fail") };
    assert_eq!(error.raw_os_error(), Some(errno.raw_os_error()), "{error}");
    if let Some(kind) = kind {
        assert_eq!(error.kind(), kind);
    }
}

fn addr(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

#[test]
fn naming_a_socket_fails_with_the_kernels_numbers() {
    let _guard = watchdog("naming_a_socket_fails_with_the_kernels_numbers");
    let stack = crate::common::stack();
    let listener = TcpListener::bind_on(&stack, "127.0.0.1:0").unwrap();
    let taken = listener.local_addr().unwrap();
    is(TcpListener::bind_on(&stack, taken), Errno::ADDRINUSE, Some(ErrorKind::AddrInUse));
    is(TcpListener::bind_on(&stack, "192.0.2.1:1"), Errno::ADDRNOTAVAIL, Some(ErrorKind::AddrNotAvailable));
    let udp = UdpSocket::bind_on(&stack, "127.0.0.1:0").unwrap();
    is(UdpSocket::bind_on(&stack, udp.local_addr().unwrap()), Errno::ADDRINUSE, Some(ErrorKind::AddrInUse));
    let mut socket = TcpSocket::new_v4(&stack);
    is(socket.bind(addr("[::1]:1")), Errno::AFNOSUPPORT, None);
    socket.bind(addr("127.0.0.1:0")).unwrap();
    is(socket.bind(addr("127.0.0.1:0")), Errno::INVAL, Some(ErrorKind::InvalidInput));
    is(TcpSocket::new_v6(&stack).bind(addr("127.0.0.1:0")), Errno::INVAL, Some(ErrorKind::InvalidInput));
}

#[test]
fn connecting_fails_with_the_kernels_numbers() {
    let _guard = watchdog("connecting_fails_with_the_kernels_numbers");
    let stack = crate::common::stack();
    let closed = TcpListener::bind_on(&stack, "127.0.0.1:0").unwrap().local_addr().unwrap();
    let connect = |to: SocketAddr| TcpStream::connect_on(&stack, to);
    is(connect(closed), Errno::CONNREFUSED, Some(ErrorKind::ConnectionRefused));
    is(connect(addr("127.0.0.1:0")), Errno::CONNREFUSED, Some(ErrorKind::ConnectionRefused));
    is(connect(addr("192.0.2.1:1")), Errno::NETUNREACH, Some(ErrorKind::NetworkUnreachable));
    is(connect(addr("224.0.0.1:1")), Errno::NETUNREACH, Some(ErrorKind::NetworkUnreachable));
    is(UnixStream::connect_on(&stack, "/nowhere"), Errno::NOENT, Some(ErrorKind::NotFound));
}

#[test]
fn a_connections_calls_fail_with_the_kernels_numbers() {
    let _guard = watchdog("a_connections_calls_fail_with_the_kernels_numbers");
    let stack = crate::common::stack();
    let listener = TcpListener::bind_on(&stack, "127.0.0.1:0").unwrap();
    let mut client = TcpStream::connect_on(&stack, listener.local_addr().unwrap()).unwrap();
    let (server, _) = listener.accept().unwrap();
    listener.set_nonblocking(true).unwrap();
    is(listener.accept(), Errno::AGAIN, Some(ErrorKind::WouldBlock));
    client.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    is(client.read(&mut [0]), Errno::AGAIN, Some(ErrorKind::WouldBlock));
    client.set_nonblocking(true).unwrap();
    is(client.read(&mut [0]), Errno::AGAIN, Some(ErrorKind::WouldBlock));
    let fills = |mut stream: &TcpStream| (0..100_000).find_map(|_| stream.write(&[0; 4096]).err());
    is(fills(&client).map_or(Ok(()), Err), Errno::AGAIN, Some(ErrorKind::WouldBlock));
    is(client.set_ttl(0), Errno::INVAL, Some(ErrorKind::InvalidInput));
    let keepalive = TcpKeepalive::new().with_retries(128);
    is(client.set_tcp_keepalive(&keepalive), Errno::INVAL, Some(ErrorKind::InvalidInput));
    client.shutdown(Shutdown::Write).unwrap();
    is(client.write(b"x"), Errno::PIPE, Some(ErrorKind::BrokenPipe));
    // Data that the server has not read resets the connection.
    drop(server);
    client.set_nonblocking(false).unwrap();
    client.set_read_timeout(None).unwrap();
    is(client.read(&mut [0; 9]), Errno::CONNRESET, Some(ErrorKind::ConnectionReset));
    is(client.peer_addr(), Errno::NOTCONN, Some(ErrorKind::NotConnected));
    is(client.shutdown(Shutdown::Both), Errno::NOTCONN, Some(ErrorKind::NotConnected));
}

/// The local ends of a connection, too, are errors that a set reports as such.
#[test]
fn an_edge_of_a_connection_that_ends_here_has_the_error() {
    type End = fn(&mut Host, &TcpStream);
    let ends: [(&str, End); 2] = [
        ("the interface vanishes", |host, _| {
            host.unplug();
            host.turn();
        }),
        ("a connect is given up", |_, stream| stream.shutdown(Shutdown::Both).unwrap()),
    ];
    for (name, end) in ends {
        let mut host = Host::new();
        let mut socket = TcpSocket::new_v4(&host.stack);
        socket.set_nonblocking(true);
        let stream = socket.connect(addr(&format!("{}:9", THEIRS[0]))).unwrap();
        assert_eq!(host.turn().len(), 1, "a SYN");
        let poll = Poll::new(Duration::ZERO);
        poll.register(&stream, Token(1), Interest::READABLE.with(Interest::WRITABLE), Trigger::Edge).unwrap();
        let mut events = Events::with_capacity(1);
        assert_eq!(poll.wait(&mut events, Some(Duration::ZERO)).unwrap(), 0);
        end(&mut host, &stream);
        poll.wait(&mut events, Some(Duration::ZERO)).unwrap();
        let event = events.iter().next().expect(name);
        assert!(event.is_error() && event.is_read_closed() && event.is_write_closed(), "{name}: {event:?}");
        assert!(stream.take_error().unwrap().is_some(), "{name}");
    }
}
