//! The list of a stack's UNIX-domain sockets, under each setting of the locks.

use std::io::Write;

use crate::common::settings::{Setting, UnixLocking};
use sockeye::unix::{SocketInfo, SocketKind, UnixDatagram, UnixListener, UnixSeqpacket, UnixStream};
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
