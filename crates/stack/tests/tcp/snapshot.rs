//! The list of a stack's sockets.

use std::io::Write;
use std::net::SocketAddr;
use std::time::Duration;

use sockeye::{SocketInfo, SocketKind, Stack, TcpListener, TcpStream, TimerKind, UdpSocket};

fn only(stack: &Stack, kind: SocketKind) -> Vec<SocketInfo> {
    let mut sockets = stack.sockets(true);
    sockets.retain(|socket| socket.kind == kind);
    sockets
}

#[test]
fn every_socket_is_listed_with_its_queues_and_state() {
    let stack = crate::common::stack_with(|_| {});
    assert!(stack.sockets(true).is_empty());
    let listener = TcpListener::bind_on(&stack, "127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let mut client = TcpStream::connect_on(&stack, at).unwrap();
    crate::common::eventually("the connection waits to be accepted", || {
        only(&stack, SocketKind::TcpListener)[0].recv_queue == 1
    });
    let [listening] = &only(&stack, SocketKind::TcpListener)[..] else { panic!("one listener") };
    assert_eq!((listening.state, listening.local, listening.remote), ("LISTEN", at, None));
    assert_eq!(listening.send_queue, 128);
    let (server, _) = listener.accept().unwrap();
    client.write_all(&[1; 1000]).unwrap();
    let of = |local: SocketAddr| {
        only(&stack, SocketKind::Tcp).into_iter().find(|socket| socket.local == local).unwrap()
    };
    crate::common::eventually("the bytes have arrived", || of(at).recv_queue == 1000);
    let (ours, theirs) = (of(client.local_addr().unwrap()), of(at));
    assert_eq!((ours.remote, theirs.remote), (Some(at), Some(ours.local)));
    assert_eq!((ours.state, theirs.state), ("ESTABLISHED", "ESTABLISHED"));
    assert_ne!(ours.serial, theirs.serial);
    assert!(ours.is_held && ours.tcp.is_some_and(|info| info.cwnd > 0));
    assert!(stack.sockets(false).iter().all(|socket| socket.tcp.is_none()));
    // The server has unread data, so its close resets; a shutdown on both sides leaves a name to rest.
    drop((client, server));
    crate::common::eventually("both are gone", || only(&stack, SocketKind::Tcp).is_empty());
}

#[test]
fn buffers_are_listed_with_their_bounds() {
    let stack = crate::common::stack_with(|c| c.workers = 0);
    let listener = crate::common::listener(&stack);
    let client = TcpStream::connect_on(&stack, listener.local_addr().unwrap()).unwrap();
    let socket = UdpSocket::bind_on(&stack, "127.0.0.1:0").unwrap();
    let (tcp, udp) = (only(&stack, SocketKind::Tcp), only(&stack, SocketKind::Udp));
    let ours = tcp.iter().find(|one| one.local == client.local_addr().unwrap()).unwrap();
    // Getters of options return twice the bytes, as Linux.
    assert_eq!(2 * ours.send_buffer, client.send_buffer_size().unwrap());
    assert_eq!(2 * ours.recv_buffer, client.recv_buffer_size().unwrap());
    assert_eq!((2 * udp[0].recv_buffer, udp[0].send_buffer, udp[0].drops), (socket.recv_buffer_size(), 0, 0));
    assert!(udp[0].timer.is_none() && only(&stack, SocketKind::TcpListener)[0].recv_buffer == 0);
}

#[test]
fn a_connection_in_time_wait_is_listed() {
    let stack = crate::common::stack_with(|c| c.workers = 0);
    let listener = crate::common::listener(&stack);
    let at = listener.local_addr().unwrap();
    let client = TcpStream::connect_on(&stack, at).unwrap();
    let (server, from) = listener.accept().unwrap();
    drop(client);
    drop(server);
    let [rest] = &only(&stack, SocketKind::TcpTimeWait)[..] else { panic!("one name at rest") };
    assert_eq!((rest.state, rest.local, rest.remote), ("TIME-WAIT", from, Some(at)));
    assert!(!rest.is_held && rest.tcp.is_none());
    let timer = rest.timer.unwrap();
    assert_eq!(timer.kind, TimerKind::TimeWait);
    assert!(timer.left > Duration::ZERO);
}
