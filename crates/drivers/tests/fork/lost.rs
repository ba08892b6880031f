//! Stacks with threads: every call of the child fails, every drop is harmless, and the parent notices nothing.

use std::future::Future;
use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::net::{IpAddr, Shutdown};
use std::pin::pin;
use std::task::{Context, Poll as Polled, Waker};
use std::time::{Duration, Instant};

use sockeye::netif::SendError;
use sockeye::poll::{Events, Interest, Poll, Token, Trigger};
use sockeye::tokio as tasks;
use sockeye::unix::{MsgFlags, RecvAncillary, SendAncillary, UnixDatagram, UnixListener, UnixStream};
use sockeye::{
    Config, IcmpSocket, MbufChain, SendMeta, Stack, TcpListener, TcpSocket, TcpStream, UdpBuilder, UdpSocket,
};

use crate::child::{alone, end, exit, fork};
use crate::world::{Hammers, World, refused, unix_name};

const ANY: &str = "127.0.0.1:0";
/// How long children are made of a busy parent.
const FORKING: Duration = Duration::from_millis(1500);
const FORKS_MIN: usize = 20;

#[test]
fn every_call_and_drop_in_a_child_of_a_busy_parent_is_harmless() {
    alone("lost::every_call_and_drop_in_a_child_of_a_busy_parent_is_harmless", || {
        let (world, hammers) = World::busy();
        call_in_children(&world, &hammers);
        drop_in_children(world, &hammers);
        hammers.stop();
    });
}

fn call_in_children(world: &World, hammers: &Hammers) {
    // A future that began in the parent.
    let mut waits = pin!(world.in_task.0.readable());
    assert!(waits.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    let (start, mut forks) = (Instant::now(), 0);
    while forks < FORKS_MIN || start.elapsed() < FORKING {
        match fork() {
            Ok(child) => drop(child.answer()),
            Err(_) => end(|| {
                match waits.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                    Polled::Ready(done) => refused(done),
                    Polled::Pending => panic!("a task in a child never completes"),
                }
                calls(world);
            }),
        }
        forks += 1;
        let before = hammers.rounds();
        // However busy the machine is, some thread makes progress.
        while hammers.rounds() == before {
            std::thread::yield_now();
        }
    }
    println!("{forks} children that call");
}

fn drop_in_children(world: World, hammers: &Hammers) {
    let published = format!("{}-0.sock", std::process::id());
    let published = crate::world::folder().join(published);
    let (start, mut forks) = (Instant::now(), 0_usize);
    while forks < FORKS_MIN || start.elapsed() < FORKING {
        match fork() {
            Ok(child) => drop(child.answer()),
            // Every second one ends as programs do.
            Err(_) if forks % 2 == 0 => end(move || drop(world)),
            Err(_) => {
                drop(world);
                exit();
            }
        }
        forks += 1;
    }
    println!("{forks} children that drop");
    assert!(published.exists(), "a child has removed its parent's name");
    let folder = crate::world::folder();
    let (reports, unreachable) = sockeye_diag::reports_in(&folder).expect("the folder is there");
    assert_eq!(reports.len(), 1, "the parent's stack is shown: {unreachable:?}");
    assert!(hammers.rounds() > 0);
    drop(world);
    assert!(!published.exists());
    std::fs::remove_dir_all(folder).expect("it is ours");
}

/// All kinds of calls on all kinds of things.
fn calls(world: &World) {
    of_stack(world);
    of_tcp(world);
    of_datagrams(world);
    of_unix(world);
    of_tasks(world);
    of_polls(world);
    of_interfaces(world);
    for shown in [format!("{world:?}", world = world.stream), format!("{:?} {:?}", world.udp, world.unix)] {
        assert!(!shown.is_empty());
    }
}

fn of_stack(world: &World) {
    let stack = &world.stack;
    let prefix = "10.7.9.1/24".parse().unwrap();
    let (left, _right) = sockeye::netif::wire(&sockeye::netif::WireConfig::default()).unwrap();
    refused(stack.attach(left, &[prefix]));
    refused(stack.unix_unlink("/nothing"));
    refused(stack.remove_address("10.7.0.1".parse().unwrap()));
    // Calls that cannot fail return nothing.
    assert!(stack.counters().is_empty() && stack.sockets(true).is_empty() && stack.unix_sockets().is_empty());
    assert!(stack.routes().is_empty() && stack.addresses().is_empty() && stack.neighbors().is_empty());
    assert_eq!((stack.connection_count(), stack.memory_in_use()), (0, 0));
    assert_eq!(stack.unix_rights_in_flight(), 0);
    assert_eq!(stack.poll(Duration::from_secs(1)), None);
    assert_eq!(stack.config().workers, 2);
    stack.trim();
    stack.rotate_fastopen_key();
    stack.set_driver_wake(Some(|| ()));
    refused(stack.clone().scope(|| TcpStream::connect(ANY)));
}

fn of_tcp(world: &World) {
    let stack = &world.stack;
    let (stream, buf) = (&world.stream, &mut [0; 10]);
    refused((&*stream).read(buf));
    refused((&*stream).write(b"x"));
    refused((&*stream).read_vectored(&mut [IoSliceMut::new(buf)]));
    refused((&*stream).write_vectored(&[IoSlice::new(b"x")]));
    refused((&*stream).flush());
    refused(stream.peek(buf));
    refused(stream.send_mbufs(&mut world.chain.clone()));
    refused(stream.recv_mbufs(10));
    refused(stream.send_urgent(b"!"));
    refused(stream.at_mark());
    refused(stream.shutdown(Shutdown::Both));
    refused(stream.try_clone());
    refused(stream.local_addr());
    refused(stream.peer_addr());
    refused(stream.take_error());
    refused(stream.available());
    refused(stream.unacknowledged());
    refused(stream.info());
    refused(stream.bottleneck());
    refused(stream.set_nodelay(true));
    refused(stream.nodelay());
    refused(stream.set_keepalive(true));
    refused(stream.set_linger(Some(Duration::ZERO)));
    refused(stream.set_nonblocking(true));
    refused(stream.set_read_timeout(None));
    refused(stream.write_timeout());
    refused(stream.set_send_buffer_size(5000));
    refused(stream.recv_buffer_size());
    refused(stream.set_notsent_lowat(None));
    refused(stream.set_ttl(3));
    refused(stream.tos());
    refused(stream.user_timeout());
    assert_eq!(stream.state_name(), "CLOSED");
    refused(world.listener.accept());
    refused(world.listener.incoming().next().unwrap());
    refused(world.listener.local_addr());
    refused(world.listener.try_clone());
    refused(world.listener.set_nonblocking(true));
    refused(world.listener.take_error());
    refused(world.listener.set_fastopen(3));
    world.listener.set_syn_hook(Some(Box::new(|syn: sockeye::Syn| syn.refuse())));
    assert_eq!(world.bound.local_addr(), None);
    refused(TcpListener::bind_on(stack, ANY));
    refused(TcpStream::connect_on(stack, "127.0.0.1:9"));
    let mut socket = TcpSocket::new_v4(stack);
    refused(socket.bind(ANY.parse().unwrap()));
    refused(socket.listen(1));
    refused(TcpSocket::new_v4(stack).connect("127.0.0.1:9".parse().unwrap()));
    refused(MbufChain::copied(stack, b"bytes"));
    // A chain keeps its bytes, which are its own.
    let mut chain = world.chain.clone();
    assert_eq!((chain.split_to(60_000).len(), chain.len()), (60_000, 40_000));
    assert!(world.syn.peer_addr().port() != 0);
}

fn of_datagrams(world: &World) {
    let (udp, buf) = (&world.udp, &mut [0; 10]);
    refused(udp.send_to(b"x", "127.0.0.1:9"));
    refused(udp.send(b"x"));
    refused(udp.send_msg(&[IoSlice::new(b"x")], &SendMeta::default()));
    refused(udp.recv_from(buf));
    refused(udp.peek(buf));
    refused(udp.recv_batch(&mut [IoSliceMut::new(buf)], &mut [Default::default()]));
    refused(udp.connect("127.0.0.1:9"));
    refused(udp.local_addr());
    refused(udp.peer_addr());
    refused(udp.try_clone());
    refused(udp.take_error());
    refused(udp.set_ttl(3));
    refused(udp.broadcast());
    refused(udp.join_multicast_v4(&"239.1.1.1".parse().unwrap(), &"127.0.0.1".parse().unwrap()));
    udp.disconnect();
    udp.set_recv_buffer_size(5000);
    assert_eq!((udp.recv_buffer_size(), udp.recv_err(&mut [0; 10]).is_some()), (0, false));
    refused(UdpSocket::bind_on(&world.stack, ANY));
    refused(UdpBuilder::new_v4(&world.stack).unbound().send_to(b"x", "127.0.0.1:9"));
    let host: IpAddr = "127.0.0.1".parse().unwrap();
    refused(world.icmp.send_to(1, b"x", host));
    refused(world.icmp.recv(&mut [0; 10]));
    refused(world.icmp.connect(host));
    refused(world.icmp.ttl());
    assert_eq!((world.icmp.id(), world.icmp.peer_addr()), (0, None));
    assert!(world.icmp.local_addr().is_unspecified() && world.icmp.recv_err(&mut [0; 10]).is_none());
    refused(IcmpSocket::bind_on(&world.stack, host));
}

fn of_unix(world: &World) {
    let (unix, stack, buf) = (&world.unix, &world.stack, &mut [0; 10]);
    refused((&*unix).read(buf));
    refused((&*unix).write(b"x"));
    refused((&*unix).flush());
    refused(unix.peek(buf));
    refused(unix.try_clone());
    refused(unix.local_addr());
    refused(unix.peer_addr());
    refused(unix.shutdown(Shutdown::Both));
    refused(unix.bytes_readable());
    refused(unix.set_passcred(true));
    refused(unix.take_error());
    let rights = &mut SendAncillary::new();
    refused(unix.send_msg(&[IoSlice::new(b"x")], None, rights, MsgFlags::NONE));
    refused(unix.recv_msg(&mut [IoSliceMut::new(buf)], &mut RecvAncillary::new(), MsgFlags::NONE));
    refused(world.unix_listener.accept());
    refused(world.unix_listener.set_backlog(3));
    refused(world.datagram.send(b"x"));
    refused(world.datagram.recv(&mut [0; 10]));
    refused(world.datagram.connect("/nothing"));
    refused(world.datagram.disconnect());
    refused(world.seqpacket.send(b"x"));
    refused(world.seqpacket.recv(&mut [0; 10]));
    refused(world.unix_socket.connect(&unix_name("/nothing")));
    refused(world.unix_socket.bind(&unix_name("/nothing")));
    refused(UnixStream::pair_on(stack));
    refused(UnixStream::connect_on(stack, "/nothing"));
    refused(UnixListener::bind_on(stack, "/nothing"));
    refused(UnixDatagram::bind_on(stack, "/nothing"));
    refused(sockeye::unix::UnixSocket::new_datagram(stack).datagram());
}

/// The result of a future that completes at once.
#[track_caller]
fn at_once<R>(future: impl Future<Output = R>) -> R {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Polled::Ready(done) => done,
        Polled::Pending => panic!("a task in a child never completes"),
    }
}

fn of_tasks(world: &World) {
    let (tcp, udp, unix) = &world.in_task;
    let buf = &mut [0; 10];
    refused(at_once(tcp.readable()));
    refused(at_once(tcp.writable()));
    refused(at_once(tcp.peek(buf)));
    refused(tcp.try_read(buf));
    refused(at_once(udp.recv_from(buf)));
    refused(at_once(udp.send_to(b"x", "127.0.0.1:9")));
    refused(at_once(udp.readable()));
    refused(at_once(unix.readable()));
    refused(at_once(unix.writable()));
    refused(at_once(unix.peek(buf)));
    refused(at_once(world.task_listener.accept()));
    refused(at_once(tasks::TcpStream::connect_on(&world.stack, "127.0.0.1:9")));
    refused(at_once(tasks::unix::UnixStream::connect_addr_on(&world.stack, &unix_name("/nothing"))));
}

fn of_polls(world: &World) {
    let (poll, events) = (&world.poll, &mut Events::with_capacity(8));
    refused(poll.wait(events, None));
    refused(poll.register(&world.seqpacket, Token(9), Interest::READABLE, Trigger::Edge));
    refused(poll.deregister(&world.stream));
    poll.wake();
    let own = Poll::new(Duration::ZERO);
    refused(own.register(&world.stream, Token(1), Interest::READABLE, Trigger::Level));
    assert_eq!(own.wait(events, Some(Duration::ZERO)).unwrap(), 0);
}

fn of_interfaces(world: &World) {
    for port in [&world.port, &world.spare.1] {
        assert_eq!(port.try_send(&b"frame"[..]), Err(SendError::Detached));
        assert_eq!(port.send(&b"frame"[..], None), Err(SendError::Detached));
        assert!(port.try_recv().is_none() && port.recv(None).is_none());
        assert_eq!(port.try_recv_batch(9, &mut Vec::new()), 0);
    }
    assert_eq!(world.capture.counts(), Default::default());
    world.capture.flush();
}

/// A connection within a stack, there and back.
fn echo_on(stack: &Stack) {
    let listener = TcpListener::bind_on(stack, ANY).unwrap();
    let mut client = TcpStream::connect_on(stack, listener.local_addr().unwrap()).unwrap();
    let mut server = listener.accept().unwrap().0;
    for chunk in [10, 100_000] {
        std::thread::scope(|scope| {
            scope.spawn(|| (&client).write_all(&vec![7; chunk]).unwrap());
            server.read_exact(&mut vec![0; chunk]).unwrap();
        });
    }
    server.write_all(b"and back").unwrap();
    client.read_exact(&mut [0; 8]).unwrap();
    client.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    assert!(client.read(&mut [0]).is_err(), "a timeout");
    let (mut here, mut there) = UnixStream::pair_on(stack).unwrap();
    here.write_all(b"unix").unwrap();
    there.read_exact(&mut [0; 4]).unwrap();
    let udp = UdpSocket::bind_on(stack, ANY).unwrap();
    udp.send_to(b"udp", udp.local_addr().unwrap()).unwrap();
    assert_eq!(udp.recv(&mut [0; 9]).unwrap(), 3);
}

#[test]
fn new_stacks_work_in_children_of_a_busy_parent_and_in_their_children() {
    alone("lost::new_stacks_work_in_children_of_a_busy_parent_and_in_their_children", || {
        let (world, hammers) = World::busy();
        let (start, mut forks) = (Instant::now(), 0);
        while forks < 5 || start.elapsed() < FORKING / 2 {
            match fork() {
                Ok(child) => drop(child.answer()),
                Err(_) => end(|| {
                    let stack = Stack::new(Config { workers: 2, ..Config::default() }).unwrap();
                    echo_on(&stack);
                    match fork() {
                        Ok(child) => drop(child.answer()),
                        Err(_) => end(|| {
                            refused(TcpListener::bind_on(&stack, ANY));
                            drop(stack);
                            echo_on(&Stack::new(Config::default()).unwrap());
                        }),
                    }
                    echo_on(&stack);
                }),
            }
            forks += 1;
        }
        drop(world);
        hammers.stop();
        std::fs::remove_dir_all(crate::world::folder()).expect("it is ours");
    });
}

#[test]
fn a_child_has_a_default_stack_of_its_own() {
    alone("lost::a_child_has_a_default_stack_of_its_own", || {
        let listener = TcpListener::bind(ANY).unwrap();
        let at = listener.local_addr().unwrap();
        let parents: *const Stack = Stack::global();
        match fork() {
            Ok(child) => drop(child.answer()),
            Err(_) => end(|| {
                refused(listener.accept());
                assert_eq!(TcpStream::connect(at).unwrap_err().kind(), std::io::ErrorKind::ConnectionRefused);
                assert!(
                    !std::ptr::eq(parents, Stack::global()) && std::ptr::eq(Stack::global(), Stack::global())
                );
                echo_on(&Stack::current());
                echo_on(Stack::global());
            }),
        }
        assert!(std::ptr::eq(parents, Stack::global()));
        let mut client = TcpStream::connect(at).unwrap();
        client.write_all(b"hello").unwrap();
        listener.accept().unwrap().0.read_exact(&mut [0; 5]).unwrap();
    });
}
