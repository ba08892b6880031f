//! Panics in UNIX sockets: over datagrams, packets and names.

use std::io::{Error, Read, Write};
use std::task::{Context, Poll};

use crate::common::settings::{Setting, UnixLocking};
use rustix::io::Errno;
use sockeye::failpoints::arm;
use sockeye::tokio as face;
use sockeye::unix::{SocketAddr, UnixDatagram, UnixListener, UnixSocket, UnixStream};
use tokio::io::ReadBuf;

use crate::common;
use crate::world::{Medium, Woken, World, asleep_in};

/// Checks that a call failed because of a panic.
#[track_caller]
pub fn is_panic(error: &Error) {
    assert_eq!(error.raw_os_error(), Some(Errno::IO.raw_os_error()), "{error}");
}

fn world(locking: UnixLocking) -> World {
    World::new(Medium::Loopback, |c| {
        c.workers = 1;
        locking.set(c);
    })
}

/// Datagrams of both lengths still pass from one socket to the other.
pub fn pass(from: &UnixDatagram, to: &UnixDatagram) {
    for len in [5, 50_000] {
        from.send(&vec![1; len]).unwrap();
        assert_eq!(to.recv(&mut vec![0; len]).unwrap(), len);
    }
}

#[test]
fn a_datagram_that_was_queued_before_a_panic_wakes_its_receiver() {
    let _turn = crate::turn();
    let _guard = common::watchdog("a datagram whose sender panics");
    for locking in UnixLocking::ALL {
        let world = world(*locking);
        let (sender, receiver) = UnixDatagram::pair_on(&world.stacks[0]).unwrap();
        let sends: [&dyn Fn() -> std::io::Result<usize>; 2] =
            [&|| sender.send(b"small"), &|| sender.send(&vec![7; 50_000])];
        for (send, len) in sends.into_iter().zip([5, 50_000]) {
            let thread = receiver.try_clone().unwrap();
            let thread = asleep_in(move || thread.recv(&mut vec![0; 50_000]));
            arm("unix.tell", 0, 1, 0);
            is_panic(&send().unwrap_err());
            assert_eq!(common::join(thread).unwrap(), len);
            let task = face::unix::UnixDatagram::from_std(receiver.try_clone().unwrap()).unwrap();
            let (woken, waker) = Woken::new();
            let (mut cx, mut bytes) = (Context::from_waker(&waker), vec![0; 50_000]);
            let mut buf = ReadBuf::new(&mut bytes);
            assert!(task.poll_recv(&mut cx, &mut buf).is_pending());
            arm("unix.tell", 0, 1, 0);
            is_panic(&send().unwrap_err());
            common::eventually("the task is woken", || woken.count() > 0);
            assert!(matches!(task.poll_recv(&mut cx, &mut buf), Poll::Ready(Ok(()))));
            assert_eq!(buf.filled().len(), len);
            receiver.set_nonblocking(false).unwrap();
            pass(&sender, &receiver);
        }
        drop((sender, receiver));
        world.end(4);
    }
}

#[test]
fn waiters_recorded_before_a_panic_in_a_stream_are_woken() {
    let _turn = crate::turn();
    let _guard = common::watchdog("a stream whose writer panics");
    for locking in UnixLocking::ALL {
        let world = world(*locking);
        for len in [1, 100_000] {
            let (mut own, mut peer) = UnixStream::pair_on(&world.stacks[0]).unwrap();
            let copy = peer.try_clone().unwrap();
            let thread = asleep_in(move || (&copy).read(&mut [0; 4]));
            arm("unix.tell", 0, 1, 0);
            is_panic(&own.write(&vec![1; len]).unwrap_err());
            let error = common::join(thread).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(Errno::CONNRESET.raw_os_error()));
            assert_eq!(peer.read(&mut [0]).unwrap(), 0);
        }
        world.end(2);
    }
}

#[test]
fn a_datagram_whose_receiver_panics_is_lost_and_its_sender_is_notified_of_the_room() {
    let _turn = crate::turn();
    let _guard = common::watchdog("a datagram whose receiver panics");
    for locking in UnixLocking::ALL {
        let (world, mut panics) = (world(*locking), 0);
        for len in [100, 50_000] {
            let (sender, receiver) = UnixDatagram::pair_on(&world.stacks[0]).unwrap();
            sender.set_nonblocking(true).unwrap();
            let queued = std::iter::from_fn(|| sender.send(&vec![1; len]).ok()).count();
            sender.set_nonblocking(false).unwrap();
            let copy = sender.try_clone().unwrap();
            let waits = asleep_in(move || copy.send(&vec![2; len]));
            // The sender waits until there is room, which the panics have to make.
            arm("unix.receive", 0, queued as u32, 0);
            for _ in 0..queued {
                is_panic(&receiver.recv(&mut vec![0; len]).unwrap_err());
            }
            assert_eq!(common::join(waits).unwrap(), len);
            let mut got = vec![0; len];
            assert_eq!(receiver.recv(&mut got).unwrap(), len);
            assert_eq!(got, vec![2; len]);
            pass(&sender, &receiver);
            panics += queued as u64;
        }
        world.end(panics);
    }
}

#[test]
fn a_bind_that_panics_leaves_name_and_socket_as_they_were() {
    let _turn = crate::turn();
    let _guard = common::watchdog("panics over UNIX names");
    let world = world(UnixLocking::Direct);
    let stack = &world.stacks[0];
    let path = SocketAddr::from_pathname("/run/name").unwrap();
    let hidden = SocketAddr::from_abstract_name("name").unwrap();
    for addr in [&path, &hidden] {
        let socket = UnixSocket::new_stream(stack);
        arm("unix.name", 0, 1, 0);
        is_panic(&socket.bind(addr).unwrap_err());
        assert!(UnixStream::connect_addr_on(stack, addr).is_err(), "no peer is bound");
        socket.bind(addr).unwrap();
        let listener = socket.listen(1).unwrap();
        drop((UnixStream::connect_addr_on(stack, addr).unwrap(), listener.accept().unwrap()));
        // A close still notifies the waiters and frees the name.
        let client = UnixStream::connect_addr_on(stack, addr).unwrap();
        arm("unix.forget", 0, 1, 0);
        drop((listener, socket));
        // It was never accepted, and is reset.
        let error = (&client).read(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
        assert_eq!(
            UnixStream::connect_addr_on(stack, addr).unwrap_err().kind(),
            std::io::ErrorKind::ConnectionRefused
        );
        let _ = stack.unix_unlink("/run/name");
        arm("unix.name", 0, 1, 0);
        is_panic(&UnixListener::bind_addr_on(stack, addr).unwrap_err());
        arm("unix.name", 0, 1, 0);
        is_panic(&UnixDatagram::bind_addr_on(stack, addr).unwrap_err());
        drop(UnixDatagram::bind_addr_on(stack, addr).unwrap());
        let _ = stack.unix_unlink("/run/name");
    }
    world.end(8);
}

#[test]
fn a_unix_connect_that_panics_frees_its_backlog_entry() {
    let _turn = crate::turn();
    let _guard = common::watchdog("a UNIX connect that panics");
    for locking in UnixLocking::ALL {
        let world = world(*locking);
        let stack = &world.stacks[0];
        let socket = UnixSocket::new_stream(stack);
        let addr = SocketAddr::from_abstract_name("it").unwrap();
        socket.bind(&addr).unwrap();
        let listener = socket.listen(0).unwrap();
        arm("unix.connect", 0, 1, 0);
        is_panic(&UnixStream::connect_addr_on(stack, &addr).unwrap_err());
        let next = UnixSocket::new_stream(stack);
        next.set_nonblocking(true).unwrap();
        let mut client = next.connect(&addr).expect("the only place is free");
        let (mut server, _) = listener.accept().unwrap();
        client.write_all(b"x").unwrap();
        server.read_exact(&mut [0]).unwrap();
        world.end(1);
    }
}

#[test]
fn a_unix_accept_that_panics_ends_the_connection_it_has_taken() {
    let _turn = crate::turn();
    let _guard = common::watchdog("a UNIX accept that panics");
    for locking in UnixLocking::ALL {
        let world = world(*locking);
        let stack = &world.stacks[0];
        let listener =
            UnixListener::bind_addr_on(stack, &SocketAddr::from_abstract_name("it").unwrap()).unwrap();
        let addr = listener.local_addr().unwrap();
        let client = UnixStream::connect_addr_on(stack, &addr).unwrap();
        arm("unix.accept", 0, 1, 0);
        is_panic(&listener.accept().unwrap_err());
        assert_eq!((&client).read(&mut [0]).unwrap(), 0);
        let mut client = UnixStream::connect_addr_on(stack, &addr).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        client.write_all(b"x").unwrap();
        server.read_exact(&mut [0]).unwrap();
        world.end(1);
    }
}
