//! All kinds of waiters at a connection or listener whose protocol code panics.

use std::future::Future;
use std::io::{ErrorKind, Read, Write};
use std::pin::pin;
use std::task::Context;
use std::time::Duration;

use sockeye::failpoints::{arm, fired};
use sockeye::poll::{Events, Interest, Poll, Token, Trigger};
use sockeye::tokio as face;

use crate::common;
use crate::world::{End, Medium, Woken, World, asleep_in, end_of};

#[test]
fn tasks_and_pollers_of_a_connection_that_panics_are_notified() {
    let _turn = crate::turn();
    let _guard = common::watchdog("tasks and pollers of a connection that panics");
    for medium in [Medium::Loopback, Medium::Wire] {
        let world = World::new(medium, |c| c.workers = 2);
        all_are_woken(&world);
        world.end(1);
    }
}

/// Ends a connection by a panic, with tasks and pollers that wait for it.
fn all_are_woken(world: &World) {
    let pair = world.pair();
    let mut victim = &pair.0[1];
    // The other end does not read, so both buffers fill.
    let mut refused = 0;
    world.until("it is not writable any more", || {
        refused = if victim.write(&[7; 65_536]).is_err() { refused + 1 } else { 0 };
        (refused > 100).then_some(())
    });
    let polls = [Trigger::Level, Trigger::Edge].map(|trigger| {
        let poll = Poll::new(Duration::ZERO);
        poll.register(victim, Token(1), Interest::READABLE | Interest::WRITABLE, trigger).unwrap();
        poll
    });
    let mut events = Events::with_capacity(4);
    for poll in &polls {
        assert_eq!(poll.wait(&mut events, Some(Duration::ZERO)).unwrap(), 0);
    }
    let task = face::TcpStream::from_std(victim.try_clone().unwrap()).unwrap();
    let (woken, wakers): (Vec<_>, Vec<_>) = (0..2).map(|_| Woken::new()).unzip();
    let (mut readable, mut writable) = (pin!(task.readable()), pin!(task.writable()));
    assert!(readable.as_mut().poll(&mut Context::from_waker(&wakers[0])).is_pending());
    assert!(writable.as_mut().poll(&mut Context::from_waker(&wakers[1])).is_pending());
    arm("conn.notified", 0, 1, pair.key(1));
    let _ = victim.set_nodelay(true);
    common::eventually("both tasks are woken", || woken.iter().all(|woken| woken.count() > 0));
    assert!(readable.as_mut().poll(&mut Context::from_waker(&wakers[0])).is_ready());
    assert!(writable.as_mut().poll(&mut Context::from_waker(&wakers[1])).is_ready());
    for poll in &polls {
        assert_eq!(poll.wait(&mut events, Some(Duration::from_secs(60))).unwrap(), 1);
        assert!(events.iter().all(|event| event.is_error()));
    }
    assert!(end_of(task.try_read(&mut [0]), true).is_some_and(|end| end.is_panic()));
}

#[test]
fn a_thread_in_accept_keeps_waiting_after_a_handshake_that_panics() {
    let _turn = crate::turn();
    let _guard = common::watchdog("accept beside handshakes that panic");
    for medium in [Medium::Loopback, Medium::Wire] {
        for (point, skip) in [("syncache.segment", 1), ("demux.establish", 0), ("listener.push", 0)] {
            let world = World::new(medium, |c| c.workers = 1);
            world.listener.set_nonblocking(false).unwrap();
            let listener = world.listener.try_clone().unwrap();
            let port = listener.local_addr().unwrap().port();
            let thread = asleep_in(move || listener.accept());
            arm(point, skip, 1, u64::from(port));
            let before = fired(point);
            let refused = world.connect();
            let failed = |mut client: &sockeye::TcpStream| {
                end_of(client.read(&mut [0]), true).or_else(|| end_of(client.write(b"x"), false))
            };
            let end = world.until("the client hears of it", || failed(&refused));
            assert!(end.is_reset(), "{point}: {end:?}");
            assert_eq!(fired(point) - before, 1);
            assert!(!thread.is_finished(), "{point}: it was woken for nothing");
            let client = world.connect();
            let (server, from) = common::join(thread).unwrap();
            assert_eq!(from, client.local_addr().unwrap());
            drop((refused, client, server));
            world.end(1);
        }
    }
}

#[test]
fn an_accept_that_panics_ends_the_connection_it_has_taken() {
    let _turn = crate::turn();
    let _guard = common::watchdog("accepts that panic");
    for medium in [Medium::Loopback, Medium::Wire] {
        let world = World::new(medium, |c| c.workers = 1);
        let port = u64::from(world.listener.local_addr().unwrap().port());
        let end = |client: sockeye::TcpStream| {
            let end = world.until("the client hears of it", || {
                end_of((&client).read(&mut [0]), true)
                    .filter(|end| !matches!(end, End::Failed(ErrorKind::NotConnected, _)))
            });
            assert!(end.is_reset() || end == End::Eof, "{end:?}");
        };
        let is_panic = |error: std::io::Error| assert!(error.to_string().contains("panicked"), "{error}");
        // A call that does not block, one that does, and a task.
        arm("listener.accept", 0, 1, port);
        let client = world.connect();
        let refused = |error: &std::io::Error| error.kind() != ErrorKind::WouldBlock;
        is_panic(world.until("it fails", || world.listener.accept().err().filter(refused)));
        end(client);
        world.listener.set_nonblocking(false).unwrap();
        let listener = world.listener.try_clone().unwrap();
        let thread = asleep_in(move || listener.accept().map(|_| ()));
        arm("listener.accept", 0, 1, port);
        let client = world.connect();
        is_panic(common::join(thread).unwrap_err());
        end(client);
        let task = face::TcpListener::from_std(world.listener.try_clone().unwrap()).unwrap();
        let (woken, waker) = Woken::new();
        assert!(task.poll_accept(&mut Context::from_waker(&waker)).is_pending());
        arm("listener.accept", 0, 1, port);
        let client = world.connect();
        common::eventually("the task is woken", || woken.count() > 0);
        let std::task::Poll::Ready(accepted) = task.poll_accept(&mut Context::from_waker(&waker)) else {
            panic!("there is one");
        };
        is_panic(accepted.unwrap_err());
        end(client);
        drop(task);
        let pair = world.pair();
        pair.works(&world);
        drop(pair);
        world.end(3);
    }
}
