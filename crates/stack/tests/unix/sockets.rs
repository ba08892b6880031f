//! The list of a stack's UNIX-domain sockets, under each setting of the locks.

use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::net::Shutdown;
use std::time::Duration;

use crate::common::settings::{Setting, UnixLocking};
use sockeye::poll::{Events, Interest, Poll, Token, Trigger};
use sockeye::unix::{
    MsgFlags, RecvAncillary, SocketAddr, SocketInfo, SocketKind, UnixDatagram, UnixListener, UnixSeqpacket,
    UnixSocket, UnixStream,
};
use sockeye::{Config, Stack};

fn stacks() -> impl Iterator<Item = Stack> {
    UnixLocking::ALL.iter().map(|locking| {
        let mut config = Config::default();
        locking.set(&mut config);
        Stack::new(config).unwrap()
    })
}

fn named(stack: &Stack, path: &str) -> Vec<SocketInfo> {
    let mut sockets = stack.unix_sockets();
    sockets.retain(|socket| socket.name.as_pathname().is_some_and(|name| name.to_str() == Some(path)));
    sockets
}

#[test]
fn listeners_and_both_ends_of_connections_are_listed_with_their_queues_and_peers() {
    for stack in stacks() {
        assert!(stack.unix_sockets().is_empty());
        let listener = UnixListener::bind_on(&stack, "/run/x").unwrap();
        let mut client = UnixStream::connect_on(&stack, "/run/x").unwrap();
        let of = named(&stack, "/run/x");
        let [listening, waiting] = &of[..] else { panic!("a listener and its connection: {of:?}") };
        assert_eq!((listening.state, listening.recv_queue, listening.send_queue), ("LISTEN", 1, 4096));
        assert!(listening.is_held && !waiting.is_held);
        let (server, _) = listener.accept().unwrap();
        client.write_all(&[1; 1000]).unwrap();
        let all = stack.unix_sockets();
        assert_eq!(all.len(), 3);
        let ours = all.iter().find(|socket| socket.name.is_unnamed()).unwrap();
        let theirs = all.iter().find(|socket| socket.peer == Some(ours.serial)).unwrap();
        assert_eq!((ours.kind, ours.state), (SocketKind::Stream, "ESTABLISHED"));
        assert_eq!((ours.send_queue, ours.recv_queue), (1000, 0));
        assert_eq!((theirs.send_queue, theirs.recv_queue), (0, 1000));
        assert_eq!(ours.peer, Some(theirs.serial));
        assert_eq!(ours.peer_name.as_pathname(), theirs.name.as_pathname());
        drop(server);
        let left = stack.unix_sockets();
        let left = left.iter().find(|socket| socket.serial == ours.serial).unwrap();
        assert_eq!((left.state, left.peer, left.send_queue), ("ESTABLISHED", None, 0));
        drop((client, listener));
        assert!(stack.unix_sockets().is_empty());
    }
}

#[test]
fn pairs_and_datagram_sockets_are_listed_with_their_destinations() {
    for stack in stacks() {
        let (a, _b) = UnixSeqpacket::pair_on(&stack).unwrap();
        a.send(&[0; 10]).unwrap();
        let packets: Vec<_> = stack.unix_sockets();
        assert!(packets.iter().all(|socket| socket.kind == SocketKind::Seqpacket && socket.peer.is_some()));
        assert_eq!(packets.iter().map(|socket| socket.recv_queue).sum::<usize>(), 10);
        let receiver = UnixDatagram::bind_on(&stack, "/run/log").unwrap();
        let sender = UnixDatagram::unbound_on(&stack).unwrap();
        let lone = || {
            stack.unix_sockets().into_iter().find(|socket| socket.name.is_unnamed() && is_datagram(socket))
        };
        assert_eq!(lone().map(|socket| (socket.state, socket.peer)), Some(("CLOSED", None)));
        sender.connect("/run/log").unwrap();
        sender.send(&[0; 7]).unwrap();
        let receiving = &named(&stack, "/run/log")[0];
        assert_eq!((receiving.state, receiving.peer, receiving.recv_queue), ("CLOSED", None, 7));
        let sending = lone().unwrap();
        assert_eq!(
            (sending.state, sending.peer, sending.send_queue),
            ("ESTABLISHED", Some(receiving.serial), 7)
        );
        drop((receiver, sender));
        assert!(!stack.unix_sockets().iter().any(is_datagram));
    }
}

fn is_datagram(socket: &SocketInfo) -> bool {
    socket.kind == SocketKind::Datagram
}

/// A socket, the stream that it has become, and the stream that was accepted.
fn connected(stack: &Stack) -> (UnixSocket, UnixStream, UnixStream) {
    let name = SocketAddr::from_abstract_name("handles").unwrap();
    let listener = UnixListener::bind_addr_on(stack, &name).unwrap();
    let socket = UnixSocket::new_stream(stack);
    let stream = socket.connect(&name).unwrap();
    let server = listener.accept().unwrap().0;
    server.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    (socket, stream, server)
}

#[test]
fn a_socket_remains_a_handle_of_the_stream_that_it_becomes() {
    for stack in stacks() {
        let (socket, mut stream, mut server) = connected(&stack);
        socket.set_passcred(true).unwrap();
        server.write_all(b"x").unwrap();
        let mut ancillary = RecvAncillary::with_capacity(0);
        let mut byte = [0];
        let bufs = &mut [std::io::IoSliceMut::new(&mut byte)];
        stream.recv_msg(bufs, &mut ancillary, MsgFlags::NONE).unwrap();
        assert!(
            ancillary.credentials().is_some_and(|creds| creds.pid != 0),
            "its peer knows that they are wanted"
        );
        socket.shutdown(Shutdown::Write).unwrap();
        assert_eq!(server.read(&mut [0]).unwrap(), 0, "the peer is told");
        assert_eq!(stream.write(b"x").unwrap_err().kind(), std::io::ErrorKind::BrokenPipe);
    }
}

#[test]
fn a_set_has_a_stream_once_whichever_handle_it_was_given_by() {
    for stack in stacks() {
        let (socket, stream, _server) = connected(&stack);
        let poll = Poll::new(Duration::ZERO);
        let mut events = Events::with_capacity(8);
        let writable = (Token(1), Interest::WRITABLE, Trigger::Level);
        poll.register(&socket, writable.0, writable.1, writable.2).unwrap();
        assert_eq!(poll.wait(&mut events, Some(Duration::ZERO)).unwrap(), 1);
        let event = events.iter().next().unwrap();
        assert!(event.is_writable() && !event.is_hung_up());
        stream.set_nonblocking(true).unwrap();
        while (&stream).write(&[0; 4096]).is_ok() {}
        assert_eq!(poll.wait(&mut events, Some(Duration::ZERO)).unwrap(), 0, "it is full");
        poll.deregister(&stream).unwrap();
        for _ in 0..2 {
            poll.register(&stream, writable.0, writable.1, writable.2).unwrap();
            poll.deregister(&socket).unwrap();
        }
    }
}

/// As `a_set_has_a_stream_once_...`, but the socket connects afterwards.
#[test]
fn a_registration_goes_on_when_its_socket_connects() {
    for stack in stacks() {
        for trigger in [Trigger::Level, Trigger::Edge] {
            let name = SocketAddr::from_abstract_name(format!("{trigger:?}")).unwrap();
            let listener = UnixListener::bind_addr_on(&stack, &name).unwrap();
            let socket = UnixSocket::new_stream(&stack);
            let poll = Poll::new(Duration::ZERO);
            let mut events = Events::with_capacity(8);
            let mut next = || {
                let count = poll.wait(&mut events, Some(Duration::ZERO)).unwrap();
                assert!(count <= 1, "it is in the set once");
                events
                    .iter()
                    .next()
                    .map(|event| (event.is_readable(), event.is_writable(), event.is_hung_up()))
            };
            poll.register(&socket, Token(1), Interest::READABLE | Interest::WRITABLE, trigger).unwrap();
            assert_eq!(next().map(|(_, _, hung_up)| hung_up), Some(true), "as unix_poll has it");
            let stream = socket.connect(&name).unwrap();
            let (mut server, _) = listener.accept().unwrap();
            assert_eq!(next(), Some((false, true, false)));
            stream.set_nonblocking(true).unwrap();
            let mut written = 0;
            while let Ok(len) = (&stream).write(&[0; 4096]) {
                written += len;
            }
            let _of_the_writes = next();
            assert_eq!(next(), None, "it is full");
            server.read_exact(&mut vec![0; written]).unwrap();
            assert_eq!(next(), Some((false, true, false)), "there is room at the peer");
            server.write_all(b"x").unwrap();
            assert_eq!(next().map(|(readable, ..)| readable), Some(true));
            poll.deregister(&stream).unwrap();
            written = 0;
            while let Ok(len) = (&stream).write(&[0; 4096]) {
                written += len;
            }
            server.read_exact(&mut vec![0; written]).unwrap();
            assert_eq!(next(), None, "it is in neither list");
            poll.register(&socket, Token(1), Interest::WRITABLE, trigger).unwrap();
        }
    }
}

/// Registrations come and go while their socket connects: none is left in a list, and none is missing.
#[test]
fn registrations_come_and_go_while_their_socket_connects() {
    for stack in stacks() {
        let name = SocketAddr::from_abstract_name("meanwhile").unwrap();
        let listener = UnixListener::bind_addr_on(&stack, &name).unwrap();
        for _ in 0..300 {
            let socket = UnixSocket::new_stream(&stack);
            let (kept, gone) = (Poll::new(Duration::ZERO), Poll::new(Duration::ZERO));
            let mut events = Events::with_capacity(8);
            let edge = |poll: &Poll| poll.register(&socket, Token(1), Interest::WRITABLE, Trigger::Edge);
            edge(&gone).unwrap();
            let stream = std::thread::scope(|scope| {
                let others = scope.spawn(|| {
                    gone.deregister(&socket).unwrap();
                    edge(&kept).unwrap();
                });
                let stream = socket.connect(&name).unwrap();
                others.join().unwrap();
                stream
            });
            let (mut server, _) = listener.accept().unwrap();
            stream.set_nonblocking(true).unwrap();
            let mut written = 0;
            while let Ok(len) = (&stream).write(&[0; 4096]) {
                written += len;
            }
            kept.wait(&mut events, Some(Duration::ZERO)).unwrap();
            server.read_exact(&mut vec![0; written]).unwrap();
            assert_eq!(kept.wait(&mut events, Some(Duration::ZERO)).unwrap(), 1, "there is room");
            assert_eq!(gone.wait(&mut events, Some(Duration::ZERO)).unwrap(), 0, "it is in no list");
        }
    }
}

#[test]
fn messages_of_several_buffers_are_one() {
    for stack in stacks() {
        let parts = [b"one ".as_slice(), b"", b"message"].map(IoSlice::new);
        let mut into = [[0; 3], [0; 3], [0; 3], [0; 3]];
        let expected = [*b"one", *b" me", *b"ssa", *b"ge\0"];
        let (from, to) = UnixDatagram::pair_on(&stack).unwrap();
        assert_eq!(from.send_vectored(&parts).unwrap(), 11);
        let mut bufs = into.each_mut().map(|buf| IoSliceMut::new(buf));
        assert_eq!(to.recv_vectored(&mut bufs).unwrap(), 11);
        assert_eq!(into, expected);
        let (from, to) = UnixSeqpacket::pair_on(&stack).unwrap();
        assert_eq!(from.send_vectored(&parts).unwrap(), 11);
        assert_eq!(from.send_vectored(&parts[..1]).unwrap(), 4);
        into = Default::default();
        let mut bufs = into.each_mut().map(|buf| IoSliceMut::new(buf));
        // Each is received by a call of its own.
        assert_eq!(to.recv_vectored(&mut bufs).unwrap(), 11);
        assert_eq!(to.recv_vectored(&mut bufs[3..]).unwrap(), 3, "what does not fit is cut off");
        assert_eq!((into[2], into[3]), (*b"ssa", *b"one"));
    }
}
