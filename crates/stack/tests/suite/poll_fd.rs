//! A set with a descriptor, in loops of descriptors: ppoll(2), epoll and tokio.

use std::io::{Read, Write};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd as Fd, PollFlags, Timespec, epoll, poll};
use sockeye::poll::{Events, Interest, Poll, PollFd, Token, Trigger};

use crate::common::{Random, pair, scaled, stack, watchdog};

const NOW: Option<Duration> = Some(Duration::ZERO);

fn set() -> PollFd {
    Poll::new(Duration::ZERO).into_fd().unwrap()
}

/// Whether the descriptor is readable within `millis`.
fn is_readable(set: &PollFd, millis: i64) -> bool {
    let mut fds = [Fd::new(set, PollFlags::IN)];
    let limit = Timespec { tv_sec: millis / 1000, tv_nsec: millis % 1000 * 1_000_000 };
    poll(&mut fds, Some(&limit)).unwrap() == 1
}

/// The tokens of a wait that does not block.
fn tokens(set: &PollFd) -> Vec<usize> {
    let mut events = Events::with_capacity(64);
    set.wait(&mut events, NOW).unwrap();
    events.iter().map(|event| event.token().0).collect()
}

#[test]
fn a_descriptor_is_readable_while_a_level_lasts() {
    let _guard = watchdog("a_descriptor_is_readable_while_a_level_lasts");
    let (mut client, mut server) = pair(&stack());
    let set = set();
    set.register(&server, Token(1), Interest::READABLE, Trigger::Level).unwrap();
    assert!(!is_readable(&set, 0));
    client.write_all(b"ab").unwrap();
    for _ in 0..3 {
        assert!(is_readable(&set, 10_000));
        assert_eq!(tokens(&set), [1]);
    }
    server.read_exact(&mut [0; 2]).unwrap();
    // It may be readable once more, for nothing.
    assert!(tokens(&set).is_empty());
    assert!(!is_readable(&set, 0));
    client.write_all(b"c").unwrap();
    assert!(is_readable(&set, 10_000));
}

#[test]
fn a_descriptor_is_readable_until_an_edge_is_found() {
    let _guard = watchdog("a_descriptor_is_readable_until_an_edge_is_found");
    let (mut client, server) = pair(&stack());
    let set = set();
    set.register(&server, Token(7), Interest::READABLE, Trigger::Edge).unwrap();
    for _ in 0..3 {
        assert!(tokens(&set).is_empty());
        assert!(!is_readable(&set, 0));
        client.write_all(b"a").unwrap();
        assert!(is_readable(&set, 10_000));
        assert_eq!(tokens(&set), [7]);
    }
}

#[test]
fn a_descriptor_shows_sockets_that_were_ready_before_it_was_made_and_a_wake() {
    let _guard = watchdog("a_descriptor_shows_sockets_that_were_ready_before_it_was_made_and_a_wake");
    let (client, _server) = pair(&stack());
    let set = Poll::new(Duration::ZERO);
    set.register(&client, Token(0), Interest::WRITABLE, Trigger::Level).unwrap();
    let set = set.into_fd().unwrap();
    assert!(is_readable(&set, 0));
    assert_eq!(tokens(&set), [0]);
    set.deregister(&client).unwrap();
    assert!(tokens(&set).is_empty());
    assert!(!is_readable(&set, 0));
    set.wake();
    assert!(is_readable(&set, 0));
}

#[test]
fn more_sockets_than_events_keep_the_descriptor_readable() {
    let _guard = watchdog("more_sockets_than_events_keep_the_descriptor_readable");
    let stack = stack();
    let pairs: Vec<_> = (0..5).map(|_| pair(&stack)).collect();
    let set = set();
    for (index, (client, server)) in pairs.iter().enumerate() {
        set.register(server, Token(index), Interest::READABLE, Trigger::Edge).unwrap();
        { client }.write_all(b"x").unwrap();
    }
    let (mut events, mut found) = (Events::with_capacity(2), Vec::new());
    while is_readable(&set, 1000) {
        set.wait(&mut events, NOW).unwrap();
        found.extend(events.iter().map(|event| event.token().0));
        if found.len() == 5 {
            break;
        }
    }
    found.sort_unstable();
    assert_eq!(found, [0, 1, 2, 3, 4]);
}

/// Writers on threads of their own, and a loop that reads only when epoll says so: a missed event is a hang.
#[test]
fn a_loop_of_epoll_misses_no_event() {
    let _guard = watchdog("a_loop_of_epoll_misses_no_event");
    let stack = stack();
    let pairs: Vec<_> = (0..4).map(|_| pair(&stack)).collect();
    let count = scaled(3000);
    let set = set();
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
    epoll::add(&epoll, &set, epoll::EventData::new_u64(1), epoll::EventFlags::IN).unwrap();
    thread::scope(|scope| {
        for (index, (client, server)) in pairs.iter().enumerate() {
            let trigger = if index % 2 == 0 { Trigger::Level } else { Trigger::Edge };
            set.register(server, Token(index), Interest::READABLE, trigger).unwrap();
            server.set_nonblocking(true).unwrap();
            scope.spawn(move || {
                let mut random = Random::new("poll_fd");
                for _ in 0..count {
                    { client }.write_all(b"x").unwrap();
                    if random.below(8) == 0 {
                        thread::yield_now();
                    }
                }
            });
        }
        let (mut left, mut events) = (4 * count, Events::with_capacity(3));
        while left > 0 {
            let mut shown = Vec::with_capacity(4);
            epoll::wait(&epoll, rustix::buffer::spare_capacity(&mut shown), None).unwrap();
            set.wait(&mut events, NOW).unwrap();
            for event in &events {
                let mut buf = [0; 64];
                while let Ok(bytes) = { &pairs[event.token().0].1 }.read(&mut buf) {
                    left -= bytes;
                }
            }
        }
    });
}

// Its successor is unsafe, since not every type keeps its descriptor open. A set does.
#[allow(deprecated)]
#[cfg(feature = "tokio")]
#[test]
fn a_set_joins_the_loop_of_tokio() {
    let _guard = watchdog("a_set_joins_the_loop_of_tokio");
    let (mut client, mut server) = pair(&stack());
    let set = set();
    set.register(&server, Token(3), Interest::READABLE, Trigger::Level).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
    runtime.block_on(async {
        let set = tokio::io::unix::AsyncFd::new(set).unwrap();
        let writer = thread::spawn(move || client.write_all(b"x").unwrap());
        let mut ready = set.readable().await.unwrap();
        assert_eq!(tokens(set.get_ref()), [3]);
        ready.clear_ready();
        server.read_exact(&mut [0]).unwrap();
        writer.join().unwrap();
    });
}
