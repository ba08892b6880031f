//! Wakers are the application's code: they may panic, and may use any socket when they are called or dropped.

use std::future::{Future, poll_fn};
use std::io::Write;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use sockeye::tokio::unix::{UnixDatagram, UnixListener, UnixSeqpacket, UnixStream};
use sockeye::tokio::{IcmpSocket, TcpListener, TcpStream, UdpSocket};
use sockeye::{Stack, unix};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::common::{counter, pair, stack};
use crate::{Count, in_time, poll};

/// A waker that owns a socket, as a task does in a plain executor: the thread that drops the last of it closes the
/// socket.
struct Owner(#[allow(dead_code, reason = "only to be dropped")] Mutex<Option<Box<dyn Send>>>);

impl Wake for Owner {
    fn wake(self: Arc<Self>) {}
}

fn owner(socket: impl Send + 'static) -> Waker {
    Waker::from(Arc::new(Owner(Mutex::new(Some(Box::new(socket))))))
}

struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("a waker that panics");
    }
}

struct PanicsInDrop;

impl Wake for PanicsInDrop {
    fn wake(self: Arc<Self>) {}
}

impl Drop for PanicsInDrop {
    fn drop(&mut self) {
        panic!("a waker that panics when it is dropped");
    }
}

/// A socket, and how a task waits for it by a poll function.
type Waits = Box<dyn FnMut(&mut Context<'_>) -> Poll<()> + Send>;

/// Its name, its wait, its other end, and the event that ends the wait.
type Socket = (&'static str, Waits, Box<dyn Send>, Box<dyn FnOnce() + Send>);

/// A stream that is written until it takes no more.
fn fill(mut stream: impl Write) {
    while stream.write(&[0; 65536]).is_ok_and(|n| n > 0) {}
}

/// Each kind of socket and direction.
fn sockets(stack: &Stack) -> Vec<Socket> {
    let mut all: Vec<Socket> = Vec::new();
    let read = |stream: Arc<Mutex<TcpStream>>| -> Waits {
        Box::new(move |cx| {
            let mut buf = [0; 10];
            Pin::new(&mut *stream.lock().unwrap()).poll_read(cx, &mut ReadBuf::new(&mut buf)).map(|_| ())
        })
    };
    let (client, server) = pair(stack);
    let client = Arc::new(Mutex::new(TcpStream::from_std(client).unwrap()));
    let other = server.try_clone().unwrap();
    let ends = move || drop((&other).write(b"x"));
    all.push(("TCP read", read(client), Box::new(server), Box::new(ends)));
    let (client, server) = pair(stack);
    client.set_nonblocking(true).unwrap();
    fill(&client);
    let mut client = TcpStream::from_std(client).unwrap();
    let other = server.try_clone().unwrap();
    let ends =
        move || while std::io::Read::read(&mut &other, &mut [0; 1 << 20]).is_ok_and(|n| n == 1 << 20) {};
    let wait = move |cx: &mut Context<'_>| Pin::new(&mut client).poll_write(cx, b"x").map(|_| ());
    all.push(("TCP write", Box::new(wait), Box::new(server), Box::new(ends)));
    let listener = sockeye::TcpListener::bind_on(stack, "127.0.0.1:0").unwrap();
    let (addr, on) = (listener.local_addr().unwrap(), stack.clone());
    let listener = TcpListener::from_std(listener).unwrap();
    // The listener may be closed while the connection is made.
    let ends = move || drop(sockeye::TcpStream::connect_on(&on, addr));
    all.push((
        "accept",
        Box::new(move |cx| listener.poll_accept(cx).map(|_| ())),
        Box::new(()),
        Box::new(ends),
    ));
    let udp = |at| sockeye::UdpSocket::bind_on(stack, at).unwrap();
    let (one, other) = (udp("127.0.0.1:0"), udp("127.0.0.1:0"));
    let (addr, sender) = (one.local_addr().unwrap(), other.try_clone().unwrap());
    let one = UdpSocket::from_std(one).unwrap();
    let ends = move || drop(sender.send_to(b"x", addr));
    all.push((
        "UDP",
        Box::new(move |cx| one.poll_recv_ready(cx).map(|_| ())),
        Box::new(other),
        Box::new(ends),
    ));
    let icmp = IcmpSocket::bind_on(stack, [127, 0, 0, 1].into()).unwrap();
    let icmp = Arc::new(icmp);
    let sender = icmp.clone();
    let ends = move || sender.get_ref().send_to(1, b"x", [127, 0, 0, 1].into()).unwrap();
    all.push((
        "ICMP",
        Box::new(move |cx| icmp.poll_recv_ready(cx).map(|_| ())),
        Box::new(()),
        Box::new(ends),
    ));
    let (mut a, b) = UnixStream::pair_on(stack).unwrap();
    let b = b.into_std().unwrap();
    let other = b.try_clone().unwrap();
    let wait = move |cx: &mut Context<'_>| {
        Pin::new(&mut a).poll_read(cx, &mut ReadBuf::new(&mut [0; 1])).map(|_| ())
    };
    let ends = move || drop((&other).write(b"x"));
    all.push(("UNIX read", Box::new(wait), Box::new(b), Box::new(ends)));
    let (a, b) = unix::UnixDatagram::pair_on(stack).unwrap();
    let (other, a) = (b.try_clone().unwrap(), UnixDatagram::from_std(a).unwrap());
    let wait = move |cx: &mut Context<'_>| a.poll_recv(cx, &mut ReadBuf::new(&mut [0; 1])).map(|_| ());
    all.push(("UNIX datagram", Box::new(wait), Box::new(b), Box::new(move || drop(other.send(b"x")))));
    all
}

#[test]
fn a_waker_that_is_replaced_or_left_behind_is_dropped_outside_all_locks() {
    in_time(|| {
        let stack = stack();
        for (name, mut wait, other_end, ends) in sockets(&stack) {
            // The executor of the first task has given it up, so its waker is the last that holds it.
            drop(ends);
            assert!(wait(&mut Context::from_waker(&owner(other_end))).is_pending(), "{name}");
            let _maybe = wait(&mut Context::from_waker(Waker::noop()));
        }
        for (name, mut wait, other_end, ends) in sockets(&stack) {
            drop(ends);
            assert!(wait(&mut Context::from_waker(&owner(other_end))).is_pending(), "{name}");
            drop(wait);
        }
    });
}

#[test]
fn a_future_that_is_dropped_drops_its_waker_outside_all_locks() {
    in_time(|| {
        let stack = stack();
        let (client, server) = pair(&stack);
        let client = TcpStream::from_std(client).unwrap();
        let mut future = Box::pin(client.readable());
        assert!(poll(future.as_mut(), &owner(server)).is_pending());
        drop(future);
        let (a, b) = UnixSeqpacket::pair_on(&stack).unwrap();
        let mut future = Box::pin(a.readable());
        assert!(poll(future.as_mut(), &owner(b)).is_pending());
        drop(future);
    });
}

#[test]
fn a_waker_that_panics_prevents_no_other_wake_up_and_reaches_no_caller() {
    in_time(|| {
        let stack = stack();
        for (name, mut wait, _other_end, ends) in sockets(&stack) {
            let before = counter(&stack, "panics_foreign");
            assert!(wait(&mut Context::from_waker(&Waker::from(Arc::new(Panics)))).is_pending());
            ends();
            crate::common::eventually(name, || counter(&stack, "panics_foreign") == before + 1);
            assert!(wait(&mut Context::from_waker(Waker::noop())).is_ready(), "{name}");
        }
    });
}

#[test]
fn a_waker_that_panics_in_its_drop_is_counted() {
    in_time(|| {
        let stack = stack();
        for (name, mut wait, _other_end, _ends) in sockets(&stack) {
            let before = counter(&stack, "panics_foreign");
            let waker = Waker::from(Arc::new(PanicsInDrop));
            assert!(wait(&mut Context::from_waker(&waker)).is_pending());
            drop(waker);
            assert!(wait(&mut Context::from_waker(Waker::noop())).is_pending(), "{name}");
            assert_eq!(counter(&stack, "panics_foreign"), before + 1, "{name}");
        }
    });
}

/// One task's waker panics between two others, of threads and tasks that wait for the same thing.
#[test]
fn all_other_waiters_are_woken_when_one_waker_panics() {
    in_time(|| {
        let stack = stack();
        let listener = sockeye::TcpListener::bind_on(&stack, "127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let listener = TcpListener::from_std(listener).unwrap();
        let unix =
            UnixListener::bind_addr_on(&stack, &unix::SocketAddr::from_abstract_name(b"panics").unwrap());
        let unix = unix.unwrap();
        let mut accepts: Vec<Pin<Box<dyn Future<Output = ()>>>> = Vec::new();
        for _ in 0..3 {
            accepts.push(Box::pin(async { drop(listener.accept().await) }));
            accepts.push(Box::pin(async { drop(unix.accept().await) }));
        }
        let counts: Vec<_> = accepts.iter().map(|_| Count::new()).collect();
        let panics = Waker::from(Arc::new(Panics));
        for (at, accept) in accepts.iter_mut().enumerate() {
            let waker = if at / 2 == 1 { &panics } else { &counts[at].1 };
            assert!(poll(accept.as_mut(), waker).is_pending());
        }
        let _client = sockeye::TcpStream::connect_on(&stack, addr).unwrap();
        let name = unix::SocketAddr::from_abstract_name(b"panics").unwrap();
        let _client = unix::UnixStream::connect_addr_on(&stack, &name).unwrap();
        for (at, (count, _)) in counts.iter().enumerate() {
            assert!(at / 2 == 1 || count.is_woken(), "{at}");
        }
        assert_eq!(counter(&stack, "panics_foreign"), 2);
    });
}

/// A task that closes its own socket while it is woken for it.
#[test]
fn a_waker_may_close_the_socket_that_wakes_it() {
    struct Closes(Mutex<Option<Waits>>);
    impl Wake for Closes {
        fn wake(self: Arc<Self>) {
            drop(self.0.lock().unwrap().take());
        }
    }
    in_time(|| {
        let stack = stack();
        for (name, wait, _other_end, ends) in sockets(&stack) {
            let closes = Arc::new(Closes(Mutex::new(Some(wait))));
            let waker = Waker::from(closes.clone());
            let mut future =
                poll_fn(|cx| closes.0.lock().unwrap().as_mut().map_or(Poll::Pending, |wait| wait(cx)));
            assert!(poll(Pin::new(&mut future), &waker).is_pending(), "{name}");
            ends();
            crate::common::eventually(name, || closes.0.lock().unwrap().is_none());
        }
    });
}
