//! Panics in calls on a poller.

use std::io::{Read, Write};
use std::time::Duration;

use sockeye::failpoints::arm;
use sockeye::poll::{Events, Interest, Poll, Token, Trigger};

use crate::common;
use crate::world::{Medium, Pair, World};

const PATIENCE: Option<Duration> = Some(Duration::from_secs(60));

/// The tokens that are reported, until all of `wanted` were; with how many waits have failed.
fn reported(poll: &Poll, wanted: &[Token]) -> usize {
    let (mut events, mut seen, mut failed) = (Events::with_capacity(8), Vec::new(), 0);
    while !wanted.iter().all(|token| seen.contains(token)) {
        match poll.wait(&mut events, PATIENCE) {
            Ok(count) => assert!(count > 0, "only {seen:?} were reported"),
            Err(error) => {
                assert!(error.to_string().contains("panicked"), "{error}");
                failed += 1;
            }
        }
        seen.extend(events.iter().map(|event| event.token()));
    }
    failed
}

/// Two connections, each with a byte to read at its first end.
fn readable(world: &World) -> [Pair; 2] {
    [(); 2].map(|()| {
        let pair = world.pair();
        (&pair.0[1]).write_all(b"x").unwrap();
        world.until("it is there", || pair.0[0].peek(&mut [0]).ok());
        pair
    })
}

#[test]
fn a_registration_that_panics_fails_and_can_be_repeated() {
    let _turn = crate::turn();
    let _guard = common::watchdog("a registration that panics");
    let world = World::new(Medium::Loopback, |c| c.workers = 1);
    let pairs = readable(&world);
    let mut panics = 0;
    for trigger in [Trigger::Level, Trigger::Edge] {
        let poll = Poll::new(Duration::ZERO);
        poll.register(&pairs[1].0[0], Token(8), Interest::READABLE, trigger).unwrap();
        let add = || poll.register(&pairs[0].0[0], Token(7), Interest::READABLE, trigger);
        arm("poll.add", 0, 1, 7);
        assert!(add().unwrap_err().to_string().contains("panicked"));
        add().unwrap();
        // A socket that is in the set keeps its place.
        assert_eq!(add().unwrap_err().kind(), std::io::ErrorKind::AlreadyExists);
        assert_eq!(reported(&poll, &[Token(7), Token(8)]), 0);
        arm("poll.add", 0, 1, 9);
        assert!(poll.register(&world.listener, Token(9), Interest::READABLE, trigger).is_err());
        poll.register(&world.listener, Token(9), Interest::READABLE, trigger).unwrap();
        let client = world.connect();
        assert_eq!(reported(&poll, &[Token(9)]), 0);
        drop(world.accept(client));
        panics += 2;
    }
    drop(pairs);
    world.end(panics);
}

#[test]
fn a_wait_that_panics_fails_and_loses_no_socket() {
    let _turn = crate::turn();
    let _guard = common::watchdog("a wait that panics");
    let world = World::new(Medium::Loopback, |c| c.workers = 1);
    let pairs = readable(&world);
    for (trigger, token) in [(Trigger::Level, 7), (Trigger::Level, 8), (Trigger::Edge, 7), (Trigger::Edge, 8)]
    {
        let poll = Poll::new(Duration::ZERO);
        for (pair, token) in pairs.iter().zip([7, 8]) {
            poll.register(&pair.0[0], Token(token), Interest::READABLE, trigger).unwrap();
        }
        arm("poll.look", 0, 1, token);
        // It fails only if there is nothing to report.
        assert!(reported(&poll, &[Token(7), Token(8)]) <= 1);
    }
    drop(pairs);
    world.end(4);
}

#[test]
fn a_poll_that_panics_when_dropped_still_removes_all_its_sockets() {
    let _turn = crate::turn();
    let _guard = common::watchdog("the end of a poll that panics");
    let world = World::new(Medium::Loopback, |c| c.workers = 1);
    let pairs = readable(&world);
    let poll = Poll::new(Duration::ZERO);
    for (pair, token) in pairs.iter().zip([7, 8]) {
        poll.register(&pair.0[0], Token(token), Interest::READABLE, Trigger::Level).unwrap();
    }
    arm("poll.leave", 0, 1, 7);
    drop(poll);
    for pair in &pairs {
        (&pair.0[0]).read_exact(&mut [0]).unwrap();
        pair.works(&world);
    }
    // A registration that was not removed would keep the connections alive.
    drop(pairs);
    world.end(1);
}
