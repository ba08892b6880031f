//! UNIX-domain sockets of several stacks in one process: each belongs to one stack, which the call names or which is the
//! current one; names are a stack's own; a socket in flight keeps its stack, over whichever stack it travels.

use std::any::Any;
use std::fmt::Debug;
use std::io::{IoSlice, IoSliceMut, Read, Result, Write};
use std::net::IpAddr;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use crate::common::settings::{Setting, UnixLocking};
use rustix::io::Errno;
use sockeye::netif::{ChannelConfig, ChannelPort, Prefix, channel};
use sockeye::tokio::unix as tasks;
use sockeye::unix::{
    MsgFlags, RecvAncillary, Right, SendAncillary, SocketAddr, UnixDatagram, UnixListener, UnixSeqListener,
    UnixSeqpacket, UnixSocket, UnixStream,
};
use sockeye::{Config, Stack};

/// A stack without threads: it has ended as soon as its last handle is dropped, and not some time later.
fn stack() -> Stack {
    stack_locking(UnixLocking::Direct)
}

fn stack_locking(unix_locking: UnixLocking) -> Stack {
    crate::common::stack_with(|config| {
        config.workers = 0;
        unix_locking.set(config);
    })
}

/// The value of a future that does not wait.
fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("the future waits"),
    }
}

fn errno(result: Result<impl Debug>) -> Option<Errno> {
    Errno::from_io_error(&result.expect_err("this must not work"))
}

fn path_addr(path: &str) -> SocketAddr {
    SocketAddr::from_pathname(path).unwrap()
}

fn abstract_addr(name: &str) -> SocketAddr {
    SocketAddr::from_abstract_name(name).unwrap()
}

/// A way to make a socket without naming a stack, and how many sockets it makes.
type Constructor = (&'static str, usize, fn() -> Result<Box<dyn Any>>);

fn boxed<T: 'static>(made: Result<T>) -> Result<Box<dyn Any>> {
    made.map(|made| Box::new(made) as Box<dyn Any>)
}

/// All of them. Those that connect find a listener at `/stream` and `/packet`, and at abstract names of the same letters.
const CONSTRUCTORS: &[Constructor] = &[
    ("UnixStream::connect", 2, || boxed(UnixStream::connect("/stream"))),
    ("UnixStream::connect_addr", 2, || boxed(UnixStream::connect_addr(&abstract_addr("stream")))),
    ("UnixStream::pair", 2, || boxed(UnixStream::pair())),
    ("UnixListener::bind", 1, || boxed(UnixListener::bind("/free"))),
    ("UnixListener::bind_addr", 1, || boxed(UnixListener::bind_addr(&abstract_addr("free")))),
    ("UnixSeqpacket::connect", 2, || boxed(UnixSeqpacket::connect("/packet"))),
    ("UnixSeqpacket::connect_addr", 2, || boxed(UnixSeqpacket::connect_addr(&abstract_addr("packet")))),
    ("UnixSeqpacket::pair", 2, || boxed(UnixSeqpacket::pair())),
    ("UnixSeqListener::bind", 1, || boxed(UnixSeqListener::bind("/free"))),
    ("UnixSeqListener::bind_addr", 1, || boxed(UnixSeqListener::bind_addr(&abstract_addr("free")))),
    ("UnixDatagram::bind", 1, || boxed(UnixDatagram::bind("/free"))),
    ("UnixDatagram::bind_addr", 1, || boxed(UnixDatagram::bind_addr(&abstract_addr("free")))),
    ("UnixDatagram::unbound", 1, || boxed(UnixDatagram::unbound())),
    ("UnixDatagram::pair", 2, || boxed(UnixDatagram::pair())),
    ("tokio UnixStream::connect", 2, || boxed(now(tasks::UnixStream::connect("/stream")))),
    ("tokio UnixStream::pair", 2, || boxed(tasks::UnixStream::pair())),
    ("tokio UnixListener::bind", 1, || boxed(tasks::UnixListener::bind("/free"))),
    ("tokio UnixSeqpacket::connect", 2, || boxed(now(tasks::UnixSeqpacket::connect("/packet")))),
    ("tokio UnixSeqpacket::pair", 2, || boxed(tasks::UnixSeqpacket::pair())),
    ("tokio UnixSeqListener::bind", 1, || boxed(tasks::UnixSeqListener::bind("/free"))),
    ("tokio UnixDatagram::bind", 1, || boxed(tasks::UnixDatagram::bind("/free"))),
    ("tokio UnixDatagram::unbound", 1, || boxed(tasks::UnixDatagram::unbound())),
    ("tokio UnixDatagram::pair", 2, || boxed(tasks::UnixDatagram::pair())),
];

/// Listeners for the constructors that connect.
fn listeners(stack: &Stack) -> impl Sized {
    let streams = [path_addr("/stream"), abstract_addr("stream")]
        .map(|addr| UnixListener::bind_addr_on(stack, &addr).unwrap());
    let packets = [path_addr("/packet"), abstract_addr("packet")]
        .map(|addr| UnixSeqListener::bind_addr_on(stack, &addr).unwrap());
    (streams, packets)
}

#[test]
fn every_constructor_takes_the_stack_of_the_innermost_scope() {
    for (name, count, make) in CONSTRUCTORS {
        let (inner, outer) = (stack(), stack());
        let _found = (listeners(&inner), listeners(&outer));
        let sockets = || [&inner, &outer].map(|stack| stack.unix_sockets().len());
        let [before, other] = sockets();
        let made = outer.scope(|| inner.scope(make)).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(sockets(), [before + count, other], "{name}");
        // The scope has ended, the socket has not; its name is not another stack's.
        drop(outer.scope(make).unwrap_or_else(|error| panic!("{name} on the other stack: {error}")));
        drop(made);
    }
}

#[test]
fn two_stacks_may_use_the_same_names_without_interfering() {
    for name in [path_addr("/run/service"), abstract_addr("service")] {
        let stacks = [stack(), stack()];
        let servers = stacks.each_ref().map(|stack| UnixListener::bind_addr_on(stack, &name).unwrap());
        let datagrams = [path_addr("/run/log"), abstract_addr("log")];
        let logs = stacks.each_ref().map(|stack| {
            stack.scope(|| datagrams.each_ref().map(|addr| UnixDatagram::bind_addr(addr).unwrap()))
        });
        for (place, stack) in stacks.iter().enumerate() {
            let (mut client, sender) =
                stack.scope(|| (UnixStream::connect_addr(&name).unwrap(), UnixDatagram::unbound().unwrap()));
            client.write_all(&[place as u8]).unwrap();
            // A socket stays on its stack in every scope.
            stacks[1 - place].scope(|| {
                for addr in &datagrams {
                    sender.send_to_addr(&[place as u8], addr).unwrap();
                }
                sender.connect_addr(&datagrams[0]).unwrap();
                sender.send(&[place as u8]).unwrap();
            });
        }
        for (place, server) in servers.iter().enumerate() {
            server.set_nonblocking(true).unwrap();
            let mut byte = [7];
            server.accept().unwrap().0.read_exact(&mut byte).unwrap();
            assert_eq!(usize::from(byte[0]), place);
            assert_eq!(errno(server.accept()), Some(Errno::AGAIN));
            for (log, count) in logs[place].iter().zip([2, 1]) {
                log.set_nonblocking(true).unwrap();
                for _ in 0..count {
                    assert_eq!(log.recv(&mut byte).map(|len| (len, byte[0])).unwrap(), (1, place as u8));
                }
                assert_eq!(errno(log.recv(&mut byte)), Some(Errno::AGAIN));
            }
        }
    }
}

#[test]
fn a_name_of_another_stack_is_not_found() {
    let (here, there) = (stack(), stack());
    let _found = listeners(&there);
    let _log = there.scope(|| [UnixDatagram::bind("/log"), UnixDatagram::bind_addr(&abstract_addr("log"))]);
    here.scope(|| {
        assert_eq!(errno(UnixStream::connect("/stream")), Some(Errno::NOENT));
        assert_eq!(errno(UnixSeqpacket::connect("/packet")), Some(Errno::NOENT));
        assert_eq!(errno(now(tasks::UnixStream::connect("/stream"))), Some(Errno::NOENT));
        assert_eq!(errno(now(tasks::UnixSeqpacket::connect("/packet"))), Some(Errno::NOENT));
        let sender = UnixDatagram::unbound().unwrap();
        assert_eq!(errno(sender.connect("/log")), Some(Errno::NOENT));
        assert_eq!(errno(sender.send_to(b"x", "/log")), Some(Errno::NOENT));
        assert_eq!(errno(here.unix_unlink("/log")), Some(Errno::NOENT));
        // Linux's error for a missing abstract name.
        let refused = Some(Errno::CONNREFUSED);
        assert_eq!(errno(UnixStream::connect_addr(&abstract_addr("stream"))), refused);
        assert_eq!(errno(sender.send_to_addr(b"x", &abstract_addr("log"))), refused);
        // A closed socket's pathname is left in its own stack only.
        drop(UnixListener::bind("/left").unwrap());
        assert_eq!(errno(UnixStream::connect("/left")), refused);
    });
    assert_eq!(errno(there.scope(|| UnixStream::connect("/left"))), Some(Errno::NOENT));
}

#[test]
fn each_stack_gives_out_all_automatic_names() {
    let seeded = |seed| Stack::seeded(Config { workers: 0, ..crate::common::base() }, [seed; 16]).unwrap();
    let auto = |stack: &Stack| {
        let addr = path_addr("");
        let bound = stack.scope(|| UnixDatagram::bind_addr(&addr)).unwrap();
        (bound.local_addr().unwrap(), bound)
    };
    let (one, twin, other) = (seeded(1), seeded(1), seeded(2));
    let (first, _held) = auto(&one);
    // It is taken in its own stack only.
    assert_eq!(auto(&twin).0, first);
    assert_ne!(auto(&other).0, first);
    assert_ne!(auto(&one).0, first);
}

fn send(over: &UnixStream, right: impl Into<Right>) {
    let mut ancillary = SendAncillary::new();
    ancillary.add_right(right);
    over.send_msg(&[IoSlice::new(b"x")], None, &mut ancillary, MsgFlags::NONE).unwrap();
}

fn receive(from: &UnixStream) -> Right {
    let mut ancillary = RecvAncillary::with_capacity(1);
    from.recv_msg(&mut [IoSliceMut::new(&mut [0])], &mut ancillary, MsgFlags::NONE).unwrap();
    ancillary.take_rights().remove(0)
}

/// An interface that reports when its stack has ended.
fn life(stack: &Stack) -> ChannelPort {
    let (netif, mut ports) = channel(&ChannelConfig::default()).unwrap();
    let addr = Prefix::new(IpAddr::from([10, 0, 0, 1]), 24).unwrap();
    stack.attach(netif, &[addr]).unwrap();
    ports.remove(0)
}

fn is_over(life: &ChannelPort) -> bool {
    while life.try_recv().is_some() {}
    matches!(life.poll_recv(&mut Context::from_waker(Waker::noop())), Poll::Ready(None))
}

#[test]
fn a_socket_sent_over_another_stack_stays_on_its_own_stack() {
    let (home, way) = (stack(), stack());
    let (near, far) = way.scope(UnixStream::pair).unwrap();
    let _log = home.scope(|| UnixDatagram::bind("/log")).unwrap();
    let _listener = home.scope(|| UnixListener::bind("/listener")).unwrap();
    send(&near, UnixSocket::new_stream(&home));
    send(&near, home.scope(UnixDatagram::unbound).unwrap());
    assert_eq!((home.unix_rights_in_flight(), way.unix_rights_in_flight()), (0, 2));
    way.scope(|| {
        let Right::Socket(socket) = receive(&far) else { panic!("a socket was sent") };
        assert!(socket.connect(&path_addr("/listener")).is_ok());
        let Right::Datagram(datagram) = receive(&far) else { panic!("a datagram socket was sent") };
        datagram.send_to(b"x", "/log").unwrap();
    });
    assert_eq!((home.unix_sockets().len(), way.unix_sockets().len()), (2 + 1, 2), "one is in the backlog");
}

#[test]
fn a_socket_in_flight_keeps_its_stack_and_the_last_one_ends_it() {
    let way = stack();
    let (near, far) = UnixStream::pair_on(&way).unwrap();
    let home = stack();
    let life = life(&home);
    let (one, other) = UnixStream::pair_on(&home).unwrap();
    drop(home);
    send(&near, one);
    send(&near, other);
    assert!(!is_over(&life), "both ends are in a message");
    let (Right::Stream(mut one), Right::Stream(mut other)) = (receive(&far), receive(&far)) else {
        panic!("two streams were sent")
    };
    one.write_all(b"!").unwrap();
    other.read_exact(&mut [0]).unwrap();
    drop(one);
    send(&near, other);
    assert!(!is_over(&life));
    // Closing the receiver of the message closes the sockets in it.
    drop(far);
    assert!(is_over(&life));
    assert_eq!(way.unix_rights_in_flight(), 0);
}

#[test]
fn a_cycle_through_two_stacks_is_collected_and_counted_where_it_was_sent() {
    for locking in UnixLocking::ALL {
        let stacks = [stack_locking(*locking), stack_locking(*locking)];
        let in_flight = || stacks.each_ref().map(Stack::unix_rights_in_flight);
        let [(a_near, a), (b_near, b)] = stacks.each_ref().map(|stack| UnixStream::pair_on(stack).unwrap());
        // Both are in flight over each stack, twice over the first.
        send(&a_near, b.try_clone().unwrap());
        send(&a_near, b.try_clone().unwrap());
        send(&b_near, a.try_clone().unwrap());
        assert_eq!(in_flight(), [2, 1], "{locking}");
        drop(a);
        assert_eq!(in_flight(), [2, 1], "{locking}: b can still be received from");
        drop(b);
        assert_eq!(in_flight(), [0, 0], "{locking}");
        assert_eq!(stacks.each_ref().map(|stack| stack.unix_sockets().len()), [1, 1], "{locking}");
        let lives = stacks.each_ref().map(life);
        drop((a_near, b_near, stacks));
        assert!(lives.iter().all(is_over), "{locking}: collected sockets keep no stack alive");
    }
}

#[test]
fn the_last_send_closes_a_cycle_of_two_stacks() {
    let check = |close: fn([UnixStream; 4])| {
        let stacks = [stack(), stack()];
        let [(a_near, a), (b_near, b)] = stacks.each_ref().map(|stack| UnixStream::pair_on(stack).unwrap());
        let kept = [a_near.try_clone().unwrap(), b_near.try_clone().unwrap()];
        close([a_near, a, b_near, b]);
        assert_eq!(stacks.each_ref().map(Stack::unix_rights_in_flight), [0, 0]);
        assert_eq!(stacks.each_ref().map(|stack| stack.unix_sockets().len()), [1, 1]);
        drop(kept);
    };
    // The last one is of the stack that it is sent over.
    check(|[a_near, a, b_near, b]| {
        send(&b_near, a.try_clone().unwrap());
        send(&a_near, b);
        send(&a_near, a);
    });
    // It is of the other one.
    check(|[a_near, a, b_near, b]| {
        send(&b_near, a);
        send(&a_near, b);
    });
}
