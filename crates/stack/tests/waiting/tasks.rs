//! Any number of tasks wait for one socket, and tasks that give up take nothing from the others.

use std::future::Future;
use std::io::Write;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use sockeye::tokio::unix::{UnixDatagram, UnixListener, UnixStream};
use sockeye::tokio::{IcmpSocket, TcpListener, TcpStream, UdpSocket};
use sockeye::{Stack, unix};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::common::{pair, stack};
use crate::{Count, poll};

type Wait<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// Has four tasks wait, of which the first and the third then give up; ends the wait, and asks whether the others are woken.
fn all_are_woken<'a>(name: &str, wait: impl Fn() -> Wait<'a>, end: impl FnOnce()) {
    let mut tasks: Vec<_> = (0..4).map(|_| (Some(wait()), Count::new())).collect();
    for (future, (_, waker)) in &mut tasks {
        let future = future.as_mut().unwrap();
        assert!(poll(future.as_mut(), waker).is_pending(), "{name}");
        assert!(poll(future.as_mut(), waker).is_pending(), "{name}: once more");
    }
    tasks[0].0 = None;
    tasks[2].0 = None;
    end();
    for at in [1, 3] {
        assert!(tasks[at].1.0.is_woken(), "{name}: task {at}");
        assert_eq!(tasks[at].1.0.get(), 1, "{name}: task {at}");
    }
    assert_eq!(tasks[0].1.0.get() + tasks[2].1.0.get(), 0, "{name}: the cancelled tasks");
    let mut done =
        tasks.iter_mut().filter_map(|(future, (_, waker))| Some(poll(future.as_mut()?.as_mut(), waker)));
    assert!(done.any(|polled| polled.is_ready()), "{name}");
}

fn tcp(stack: &Stack) -> (TcpStream, sockeye::TcpStream) {
    let (client, server) = pair(stack);
    server.set_nonblocking(true).unwrap();
    (TcpStream::from_std(client).unwrap(), server)
}

#[test]
fn any_number_of_tasks_waits_for_one_stream() {
    let stack = stack();
    let (client, server) = tcp(&stack);
    let end = || assert_eq!((&server).write(b"x").unwrap(), 1);
    all_are_woken("readable", || Box::pin(async { client.readable().await.unwrap() }), end);
    while client.try_write(&[0; 65536]).is_ok() {}
    let end = || while std::io::Read::read(&mut &server, &mut [0; 1 << 20]).is_ok_and(|n| n == 1 << 20) {};
    all_are_woken("writable", || Box::pin(async { client.writable().await.unwrap() }), end);
    let (client, server) = tcp(&stack);
    let peek = || -> Wait<'_> {
        Box::pin(async {
            let _ = client.peek(&mut [0; 9]).await;
        })
    };
    all_are_woken("peek", peek, || drop(server));
}

#[test]
fn any_number_of_tasks_waits_for_one_listener() {
    let stack = stack();
    let listener = crate::common::listener(&stack);
    let addr = listener.local_addr().unwrap();
    let listener = TcpListener::from_std(listener).unwrap();
    let mut client = None;
    let end = || client = Some(sockeye::TcpStream::connect_on(&stack, addr).unwrap());
    all_are_woken("accept", || Box::pin(async { drop(listener.accept().await.unwrap()) }), end);
    let name = unix::SocketAddr::from_abstract_name(b"tasks").unwrap();
    let listener = sockeye::tokio::unix::UnixListener::bind_addr_on(&stack, &name).unwrap();
    let mut client = None;
    let end = || client = Some(unix::UnixStream::connect_addr_on(&stack, &name).unwrap());
    all_are_woken("UNIX accept", || Box::pin(async { drop(listener.accept().await.unwrap()) }), end);
}

#[test]
fn any_number_of_tasks_waits_for_datagrams() {
    let stack = stack();
    let socket = sockeye::UdpSocket::bind_on(&stack, "127.0.0.1:0").unwrap();
    let (addr, sender) = (socket.local_addr().unwrap(), socket.try_clone().unwrap());
    let socket = UdpSocket::from_std(socket).unwrap();
    let wait = || -> Wait<'_> { Box::pin(async { assert_eq!(socket.recv(&mut [0; 9]).await.unwrap(), 1) }) };
    all_are_woken("UDP", wait, || assert_eq!(sender.send_to(b"x", addr).unwrap(), 1));
    let (a, b) = UnixDatagram::pair_on(&stack).unwrap();
    let wait = || -> Wait<'_> { Box::pin(async { assert_eq!(a.recv(&mut [0; 9]).await.unwrap(), 1) }) };
    all_are_woken("UNIX datagram", wait, || assert_eq!(b.try_send(b"x").unwrap(), 1));
    while a.try_send(b"x").is_ok() {}
    let wait = || -> Wait<'_> { Box::pin(async { a.writable().await.unwrap() }) };
    all_are_woken("UNIX datagram's room", wait, || while b.try_recv(&mut [0; 9]).is_ok() {});
}

#[test]
fn any_number_of_tasks_waits_for_one_unix_stream() {
    let stack = stack();
    let (a, b) = UnixStream::pair_on(&stack).unwrap();
    let wait = || -> Wait<'_> { Box::pin(async { a.readable().await.unwrap() }) };
    all_are_woken("UNIX readable", wait, || assert_eq!(b.try_write(b"x").unwrap(), 1));
    while a.try_write(&[0; 4096]).is_ok() {}
    let wait = || -> Wait<'_> { Box::pin(async { a.writable().await.unwrap() }) };
    all_are_woken("UNIX writable", wait, || while b.try_read(&mut [0; 65536]).is_ok() {});
}

/// A poll function and futures wait beside each other; of the tasks that polled, the last is woken, as in tokio.
#[test]
fn the_last_task_that_polled_is_woken_together_with_those_in_futures() {
    let stack = stack();
    let (client, server) = tcp(&stack);
    let (future, first, last) = (Count::new(), Count::new(), Count::new());
    let mut other = TcpStream::from_std(client.get_ref().try_clone().unwrap()).unwrap();
    let mut readable = Box::pin(client.readable());
    assert!(poll(readable.as_mut(), &future.1).is_pending());
    for (_, waker) in [&first, &last] {
        let mut context = std::task::Context::from_waker(waker);
        let mut buf = [0; 9];
        assert!(Pin::new(&mut other).poll_read(&mut context, &mut ReadBuf::new(&mut buf)).is_pending());
    }
    (&server).write_all(b"x").unwrap();
    assert!(future.0.is_woken() && last.0.is_woken());
    assert_eq!(first.0.get(), 0);
}

/// A poll function of a handle.
type PollFn = Box<dyn FnMut(&mut Context<'_>) -> Poll<()>>;

/// Has the poll functions of three handles of a socket wait, of which the second is then dropped; ends the wait, and asks whether the others are woken.
fn each_handle_is_woken(name: &str, handle: impl Fn() -> PollFn, end: impl FnOnce()) {
    let mut handles = [(); 3].map(|()| (Some(handle()), Count::new()));
    for (wait, (_, waker)) in &mut handles {
        for _ in 0..2 {
            assert!(wait.as_mut().unwrap()(&mut Context::from_waker(waker)).is_pending(), "{name}");
        }
    }
    handles[1].0 = None;
    assert_eq!(Arc::strong_count(&handles[1].1.0), 2, "{name}: it has left the list");
    end();
    for at in [0, 2] {
        assert!(handles[at].1.0.is_woken(), "{name}: handle {at}");
        assert_eq!(handles[at].1.0.get(), 1, "{name}: handle {at}");
    }
    assert_eq!(handles[1].1.0.get(), 0, "{name}: the dropped handle");
    let mut done = handles
        .iter_mut()
        .filter_map(|(wait, (_, waker))| Some(wait.as_mut()?(&mut Context::from_waker(waker))));
    assert!(done.any(|polled| polled.is_ready()), "{name}");
}

fn reads(mut stream: impl AsyncRead + Unpin + 'static) -> PollFn {
    Box::new(move |cx| Pin::new(&mut stream).poll_read(cx, &mut ReadBuf::new(&mut [0; 9])).map(|_| ()))
}

fn writes(mut stream: impl AsyncWrite + Unpin + 'static) -> PollFn {
    Box::new(move |cx| Pin::new(&mut stream).poll_write(cx, b"x").map(|_| ()))
}

#[test]
fn each_handle_of_a_stream_waits_for_itself() {
    let stack = stack();
    let (client, server) = tcp(&stack);
    let handle = || TcpStream::from_std(client.get_ref().try_clone().unwrap()).unwrap();
    each_handle_is_woken("read", || reads(handle()), || assert_eq!((&server).write(b"x").unwrap(), 1));
    while client.try_write(&[0; 65536]).is_ok() {}
    let end = || while std::io::Read::read(&mut &server, &mut [0; 1 << 20]).is_ok_and(|n| n == 1 << 20) {};
    each_handle_is_woken("write", || writes(handle()), end);
    let (a, b) = UnixStream::pair_on(&stack).unwrap();
    let handle = || UnixStream::from_std(a.get_ref().try_clone().unwrap()).unwrap();
    each_handle_is_woken("UNIX read", || reads(handle()), || assert_eq!(b.try_write(b"x").unwrap(), 1));
    while a.try_write(&[0; 4096]).is_ok() {}
    let end = || while b.try_read(&mut [0; 65536]).is_ok() {};
    each_handle_is_woken("UNIX write", || writes(handle()), end);
}

#[test]
fn each_handle_of_a_listener_waits_for_itself() {
    let stack = stack();
    let listener = crate::common::listener(&stack);
    let handle = || -> PollFn {
        let listener = TcpListener::from_std(listener.try_clone().unwrap()).unwrap();
        Box::new(move |cx| listener.poll_accept(cx).map(|_| ()))
    };
    let (addr, mut client) = (listener.local_addr().unwrap(), None);
    let end = || client = Some(sockeye::TcpStream::connect_on(&stack, addr).unwrap());
    each_handle_is_woken("accept", handle, end);
    let name = unix::SocketAddr::from_abstract_name(b"handles").unwrap();
    let listener = unix::UnixListener::bind_addr_on(&stack, &name).unwrap();
    let handle = || -> PollFn {
        let listener = UnixListener::from_std(listener.try_clone().unwrap()).unwrap();
        Box::new(move |cx| listener.poll_accept(cx).map(|_| ()))
    };
    let mut client = None;
    let end = || client = Some(unix::UnixStream::connect_addr_on(&stack, &name).unwrap());
    each_handle_is_woken("UNIX accept", handle, end);
}

#[test]
fn each_handle_of_a_datagram_socket_waits_for_itself() {
    let stack = stack();
    let socket = sockeye::UdpSocket::bind_on(&stack, "127.0.0.1:0").unwrap();
    let addr = socket.local_addr().unwrap();
    let handle = || -> PollFn {
        let socket = UdpSocket::from_std(socket.try_clone().unwrap()).unwrap();
        Box::new(move |cx| socket.poll_recv(cx, &mut ReadBuf::new(&mut [0; 9])).map(|_| ()))
    };
    each_handle_is_woken("UDP", handle, || assert_eq!(socket.send_to(b"x", addr).unwrap(), 1));
    let socket = sockeye::IcmpSocket::bind_on(&stack, [127, 0, 0, 1].into()).unwrap();
    let handle = || -> PollFn {
        let socket = IcmpSocket::from_std(socket.try_clone().unwrap()).unwrap();
        Box::new(move |cx| socket.poll_recv(cx, &mut [0; 9]).map(|_| ()))
    };
    each_handle_is_woken("ICMP", handle, || socket.send_to(1, b"x", [127, 0, 0, 1].into()).unwrap());
    let (a, b) = unix::UnixDatagram::pair_on(&stack).unwrap();
    b.set_nonblocking(true).unwrap();
    let handle = || -> PollFn {
        let socket = UnixDatagram::from_std(a.try_clone().unwrap()).unwrap();
        Box::new(move |cx| socket.poll_recv(cx, &mut ReadBuf::new(&mut [0; 9])).map(|_| ()))
    };
    each_handle_is_woken("UNIX datagram", handle, || assert_eq!(b.send(b"x").unwrap(), 1));
    while a.send(b"x").is_ok() {}
    let handle = || -> PollFn {
        let socket = UnixDatagram::from_std(a.try_clone().unwrap()).unwrap();
        Box::new(move |cx| socket.poll_send(cx, b"x").map(|_| ()))
    };
    each_handle_is_woken(
        "UNIX datagram's room",
        handle,
        || while b.recv(&mut [0; 9]).is_ok_and(|n| n == 1) {},
    );
}
