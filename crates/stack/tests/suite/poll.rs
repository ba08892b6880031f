//! Readiness: level and edge, registration, wake, and a comparison with epoll.
//!
//! The stress that looks for lost readiness is in `poll_stress.rs`.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::time::{Duration, Instant};

use crate::common::{self, pair, stack, watchdog};
use rustix::event::epoll;
use sockeye::poll::{Events, Interest, Poll, Token, Trigger};
use sockeye::{Stack, TcpSocket, TcpStream};

const SPIN: Duration = Duration::from_micros(50);
const BOTH: Interest = Interest::READABLE.with(Interest::WRITABLE);
/// Long enough for an event that must be reported, short enough for one that must not.
const NOT_COMING: Option<Duration> = Some(Duration::from_millis(10));
const COMING: Option<Duration> = Some(Duration::from_secs(60));

/// The events of a wait, in letters: token, then r w R(read closed) W(write closed) E(rror), sorted.
fn wait(poll: &Poll, timeout: Option<Duration>) -> Vec<String> {
    let mut events = Events::with_capacity(64);
    let count = poll.wait(&mut events, timeout).unwrap();
    assert_eq!(count, events.len());
    let letter = |on: bool, letter: &'static str| if on { letter } else { "" };
    let mut reported: Vec<String> = events
        .iter()
        .map(|e| {
            [
                &e.token().0.to_string(),
                letter(e.is_readable(), "r"),
                letter(e.is_writable(), "w"),
                letter(e.is_read_closed(), "R"),
                letter(e.is_write_closed(), "W"),
                letter(e.is_error(), "E"),
            ]
            .concat()
        })
        .collect();
    reported.sort();
    reported
}

#[test]
fn a_level_is_reported_until_it_ends() {
    let _guard = watchdog("a_level_is_reported_until_it_ends");
    let (mut client, mut server) = pair(&stack());
    let poll = Poll::new(SPIN);
    poll.register(&server, Token(1), Interest::READABLE, Trigger::Level).unwrap();
    assert!(wait(&poll, NOT_COMING).is_empty());
    client.write_all(b"ab").unwrap();
    assert_eq!(wait(&poll, COMING), ["1r"]);
    assert_eq!(wait(&poll, COMING), ["1r"]);
    server.read_exact(&mut [0]).unwrap();
    assert_eq!(wait(&poll, COMING), ["1r"], "a byte is left");
    server.read_exact(&mut [0]).unwrap();
    assert!(wait(&poll, NOT_COMING).is_empty());
    client.write_all(b"c").unwrap();
    assert_eq!(wait(&poll, COMING), ["1r"]);
}

#[test]
fn an_edge_is_reported_once_for_every_change() {
    let _guard = watchdog("an_edge_is_reported_once_for_every_change");
    let (mut client, server) = pair(&stack());
    client.set_nodelay(true).unwrap();
    let poll = Poll::new(SPIN);
    poll.register(&server, Token(1), BOTH, Trigger::Edge).unwrap();
    assert_eq!(wait(&poll, COMING), ["1w"], "readiness at registration counts as a change");
    assert!(wait(&poll, NOT_COMING).is_empty());
    client.write_all(b"a").unwrap();
    assert_eq!(wait(&poll, COMING), ["1r"]);
    assert!(wait(&poll, NOT_COMING).is_empty());
    client.write_all(b"b").unwrap();
    assert_eq!(wait(&poll, COMING), ["1r"], "new bytes are a change although the old ones are unread");
}

#[test]
fn an_end_a_reset_and_a_listener_are_reported() {
    let _guard = watchdog("an_end_a_reset_and_a_listener_are_reported");
    let stack = stack();
    let poll = Poll::new(SPIN);
    let listener = common::listener(&stack);
    poll.register(&listener, Token(0), Interest::READABLE, Trigger::Level).unwrap();
    assert!(wait(&poll, NOT_COMING).is_empty());
    let client = common::connect(&stack, &listener);
    assert_eq!(wait(&poll, COMING), ["0r"]);
    let (server, _) = listener.accept().unwrap();
    assert!(wait(&poll, NOT_COMING).is_empty());
    poll.register(&server, Token(1), Interest::READABLE, Trigger::Level).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(wait(&poll, COMING), ["1rR"]);
    poll.deregister(&server).unwrap();

    let (client, server) = pair(&stack);
    poll.register(&server, Token(2), Interest::READABLE, Trigger::Level).unwrap();
    client.set_linger(Some(Duration::ZERO)).unwrap();
    drop(client);
    assert_eq!(wait(&poll, COMING), ["2rRE"]);
    assert!(server.take_error().unwrap().is_some());
    assert_eq!(wait(&poll, COMING), ["2rR"], "the error is cleared, the end stays");
}

#[test]
fn the_result_of_a_connect_is_reported() {
    let _guard = watchdog("the_result_of_a_connect_is_reported");
    let stack = stack();
    let poll = Poll::new(SPIN);
    let mut socket = TcpSocket::new_v4(&stack);
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let addr = socket.local_addr().unwrap();
    let listener = socket.listen(1).unwrap();
    let _first = common::connect(&stack, &listener);
    let start = |addr| {
        let mut socket = TcpSocket::new_v4(&stack);
        socket.set_nonblocking(true);
        socket.connect(addr).unwrap()
    };
    let waiting = start(addr);
    poll.register(&waiting, Token(3), BOTH, Trigger::Edge).unwrap();
    assert!(wait(&poll, NOT_COMING).is_empty(), "the backlog is full");
    listener.accept().unwrap();
    assert_eq!(wait(&poll, COMING), ["3w"]);
    let refused = start("127.0.0.1:1".parse().unwrap());
    poll.register(&refused, Token(4), Interest::WRITABLE, Trigger::Level).unwrap();
    let reported = wait(&poll, COMING);
    assert!(
        reported.len() == 1 && reported[0].starts_with("4w") && reported[0].ends_with('E'),
        "{reported:?}"
    );
    let error = refused.take_error().unwrap().unwrap();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
}

#[test]
fn registration_is_changed_and_ended() {
    let _guard = watchdog("registration_is_changed_and_ended");
    let (mut client, server) = pair(&stack());
    let poll = Poll::new(SPIN);
    poll.register(&server, Token(1), Interest::READABLE, Trigger::Level).unwrap();
    let twice = poll.register(&server, Token(2), Interest::READABLE, Trigger::Level).unwrap_err();
    assert_eq!(twice.kind(), std::io::ErrorKind::AlreadyExists);
    client.write_all(b"x").unwrap();
    assert_eq!(wait(&poll, COMING), ["1r"]);
    poll.reregister(&server, Token(5), Interest::WRITABLE, Trigger::Level).unwrap();
    assert_eq!(wait(&poll, COMING), ["5w"], "new token, new interest, nothing of the old");
    poll.deregister(&server).unwrap();
    assert!(wait(&poll, NOT_COMING).is_empty());
    assert_eq!(poll.deregister(&server).unwrap_err().kind(), std::io::ErrorKind::NotFound);
    let absent = poll.reregister(&server, Token(1), BOTH, Trigger::Edge).unwrap_err();
    assert_eq!(absent.kind(), std::io::ErrorKind::NotFound);
    poll.register(&server, Token(6), Interest::READABLE, Trigger::Edge).unwrap();
    drop(server);
    assert!(wait(&poll, NOT_COMING).is_empty(), "a closed socket is not reported");
}

#[test]
fn the_end_of_a_direction_is_reported_to_those_that_wait_for_it() {
    let _guard = watchdog("the_end_of_a_direction_is_reported_to_those_that_wait_for_it");
    let stack = stack();
    let (mut client, mut server) = pair(&stack);
    let poll = Poll::new(SPIN);
    // A reader has ended its own direction.
    poll.register(&server, Token(1), Interest::READABLE, Trigger::Level).unwrap();
    server.shutdown(Shutdown::Write).unwrap();
    client.write_all(b"a").unwrap();
    assert_eq!(wait(&poll, COMING), ["1r"]);
    server.read_exact(&mut [0]).unwrap();
    assert!(wait(&poll, NOT_COMING).is_empty(), "there is nothing to read");
    // A writer without room, to which nothing more comes.
    server.set_nonblocking(true).unwrap();
    client.set_nonblocking(true).unwrap();
    poll.register(&client, Token(2), Interest::WRITABLE, Trigger::Level).unwrap();
    let full = loop {
        while client.write(&[0; 60_000]).is_ok() {}
        let reported = wait(&poll, NOT_COMING);
        if !reported.iter().any(|event| event.contains('w')) {
            break reported;
        }
    };
    assert_eq!(full, ["1r"], "there is no room");
    let reports = |end: &TcpStream, token, letter| {
        poll.reregister(end, Token(token), BOTH, Trigger::Level).unwrap();
        wait(&poll, COMING)
            .iter()
            .any(|event| event.starts_with(&token.to_string()) && event.contains(letter))
    };
    assert!(reports(&client, 2, 'R') && reports(&server, 1, 'W'), "those that wait for both are told");
}

#[test]
fn a_socket_may_be_in_several_sets() {
    let _guard = watchdog("a_socket_may_be_in_several_sets");
    let (mut client, server) = pair(&stack());
    let polls: Vec<Poll> = (0..3).map(|_| Poll::new(SPIN)).collect();
    for (number, poll) in polls.iter().enumerate() {
        poll.register(&server, Token(number), Interest::READABLE, Trigger::Edge).unwrap();
    }
    polls[1].deregister(&server).unwrap();
    client.write_all(b"x").unwrap();
    assert_eq!(wait(&polls[0], COMING), ["0r"]);
    assert!(wait(&polls[1], NOT_COMING).is_empty());
    assert_eq!(wait(&polls[2], COMING), ["2r"]);
}

#[test]
fn wake_ends_one_wait_now_or_later() {
    let _guard = watchdog("wake_ends_one_wait_now_or_later");
    let poll = std::sync::Arc::new(Poll::new(SPIN));
    poll.wake();
    assert!(wait(&poll, COMING).is_empty(), "the wake came before the wait");
    let other = poll.clone();
    let waiter = std::thread::spawn(move || wait(&other, None));
    std::thread::sleep(Duration::from_millis(20));
    poll.wake();
    assert!(common::join(waiter).is_empty());
    let start = Instant::now();
    assert!(wait(&poll, NOT_COMING).is_empty());
    assert!(start.elapsed() >= NOT_COMING.unwrap(), "a wake ends one wait only");
}

#[test]
fn more_events_than_the_capacity_are_reported_in_turn() {
    let _guard = watchdog("more_events_than_the_capacity_are_reported_in_turn");
    let stack = stack();
    let poll = Poll::new(SPIN);
    let pairs: Vec<_> = (0..10).map(|_| pair(&stack)).collect();
    for (number, (_, server)) in pairs.iter().enumerate() {
        poll.register(server, Token(number), Interest::WRITABLE, Trigger::Level).unwrap();
    }
    let mut seen = [0; 10];
    let mut events = Events::with_capacity(3);
    for _ in 0..10 {
        assert_eq!(poll.wait(&mut events, COMING).unwrap(), 3);
        for event in &events {
            seen[event.token().0] += 1;
        }
    }
    assert!(seen.iter().all(|n| *n == 3), "no socket is skipped: {seen:?}");
}

#[test]
fn an_event_beyond_one_waiters_capacity_is_given_to_another() {
    let _guard = watchdog("an_event_beyond_one_waiters_capacity_is_given_to_another");
    let stack = stack();
    let poll = std::sync::Arc::new(Poll::new(SPIN));
    let pairs: Vec<_> = (0..2).map(|_| pair(&stack)).collect();
    let waiter = || {
        let poll = poll.clone();
        std::thread::spawn(move || {
            let mut events = Events::with_capacity(1);
            poll.wait(&mut events, None).unwrap();
            events.iter().next().unwrap().token().0
        })
    };
    // Both sockets become ready together, before any thread waits; each waiter takes one and never returns.
    for (number, (mut client, server)) in pairs.iter().map(|(c, s)| (c, s)).enumerate() {
        client.write_all(b"x").unwrap();
        poll.register(server, Token(number), Interest::READABLE, Trigger::Edge).unwrap();
    }
    let waiters = vec![waiter(), waiter()];
    let mut seen = common::join_all(waiters);
    seen.sort_unstable();
    assert_eq!(seen, [0, 1]);
}

/// Events of a socket between two looks at its readiness.
#[derive(Clone, Copy, Debug)]
enum Step {
    PeerWrites,
    ReadSome,
    ReadAll,
    FillUp,
    PeerReadsAll,
    PeerShuts,
    Shut,
    PeerResets,
}

/// `r`, `w`, `R` (the peer's end) and `E`, as epoll and as we say it.
fn ours(poll: &Poll) -> String {
    wait(poll, Some(Duration::ZERO)).first().map_or(String::new(), |s| s[1..].replace('W', ""))
}

fn kernels(set: &impl std::os::fd::AsFd) -> String {
    let mut buffer = Vec::with_capacity(4);
    let none = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    epoll::wait(set, rustix::buffer::spare_capacity(&mut buffer), Some(&none)).unwrap();
    let Some(event) = buffer.first() else {
        return String::new();
    };
    let flags = event.flags;
    let letter =
        |flag: epoll::EventFlags, letter: &'static str| if flags.contains(flag) { letter } else { "" };
    [
        letter(epoll::EventFlags::IN, "r"),
        letter(epoll::EventFlags::OUT, "w"),
        letter(epoll::EventFlags::RDHUP, "R"),
        letter(epoll::EventFlags::ERR, "E"),
    ]
    .concat()
}

fn step<S>(step: Step, here: &S, peer: &mut Option<S>, shut: impl Fn(&S), reset: impl Fn(S))
where
    for<'a> &'a S: Read + Write,
{
    let mut buf = vec![0; 60_000];
    let Some(other) = peer.as_ref() else { return };
    match step {
        Step::PeerWrites => drop({ other }.write(b"0123456789")),
        Step::ReadSome => drop({ here }.read(&mut buf[..3])),
        Step::ReadAll => while { here }.read(&mut buf).is_ok_and(|n| n > 0) {},
        Step::FillUp => {
            for _ in 0..3 {
                while { here }.write(&buf).is_ok() {}
                std::thread::sleep(common::settling_time());
            }
        }
        Step::PeerReadsAll => {
            for _ in 0..3 {
                while { other }.read(&mut buf).is_ok_and(|n| n > 0) {}
                std::thread::sleep(common::settling_time());
            }
        }
        Step::PeerShuts => shut(other),
        Step::Shut => shut(here),
        Step::PeerResets => peer.take().into_iter().for_each(reset),
    }
    std::thread::sleep(common::settling_time());
}

/// A set of epoll with the kernel's socket in it. The peer's end belongs to reading, as in `mio`.
fn kernel_set(
    kernel: &std::net::TcpStream,
    (interest, trigger): (Interest, Trigger),
) -> std::os::fd::OwnedFd {
    let set = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
    let mut flags = match interest {
        Interest::READABLE => epoll::EventFlags::IN | epoll::EventFlags::RDHUP,
        Interest::WRITABLE => epoll::EventFlags::OUT,
        _ => epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::RDHUP,
    };
    if trigger == Trigger::Edge {
        flags |= epoll::EventFlags::ET;
    }
    epoll::add(&set, kernel, epoll::EventData::new_u64(0), flags).unwrap();
    set
}

/// Runs the steps on both sides; both must say the same after each.
fn beside_epoll(stack: &Stack, steps: &[Step], (interest, trigger): (Interest, Trigger)) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut kernel_peer = Some(std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap());
    let (kernel, _) = listener.accept().unwrap();
    let (peer, own) = pair(stack);
    let mut peer: Option<TcpStream> = Some(peer);
    for stream in [&kernel, kernel_peer.as_ref().unwrap()] {
        stream.set_nonblocking(true).unwrap();
        stream.set_nodelay(true).unwrap();
    }
    for stream in [&own, peer.as_ref().unwrap()] {
        stream.set_nonblocking(true).unwrap();
        stream.set_nodelay(true).unwrap();
    }
    let set = kernel_set(&kernel, (interest, trigger));
    let poll = Poll::new(SPIN);
    poll.register(&own, Token(0), interest, trigger).unwrap();
    assert_eq!(ours(&poll), kernels(&set), "at the start");
    for (number, now) in steps.iter().enumerate() {
        let kernel_step = |peer: &mut Option<std::net::TcpStream>| {
            let reset = |s: std::net::TcpStream| {
                socket2::SockRef::from(&s).set_linger(Some(Duration::ZERO)).unwrap();
            };
            step(*now, &kernel, peer, |s| drop(s.shutdown(Shutdown::Write)), reset);
        };
        kernel_step(&mut kernel_peer);
        // On a busy machine the kernel may find room in a buffer after it was full, or take longer than the step to make some.
        until_wanted(*now, || is_writable(&kernel), || kernel_step(&mut kernel_peer));
        let own_step = |peer: &mut Option<TcpStream>| {
            let reset = |s: TcpStream| s.set_linger(Some(Duration::ZERO)).unwrap();
            step(*now, &own, peer, |s| drop(s.shutdown(Shutdown::Write)), reset);
        };
        own_step(&mut peer);
        let mut from_kernel = String::new();
        let mut ask = || {
            from_kernel = kernels(&set);
            from_kernel.contains('w')
        };
        match trigger {
            // It may have found that room while our side took its step.
            Trigger::Level if interest != Interest::READABLE => {
                until_wanted(*now, ask, || kernel_step(&mut kernel_peer));
            }
            Trigger::Level | Trigger::Edge => {
                ask();
            }
        }
        let mut reported = ours(&poll);
        // Where workers do it all, and the machine is busy, it takes as long as it takes.
        for _ in 0..common::settling_tries() {
            if agrees(trigger, *now, &reported, &from_kernel) {
                break;
            }
            if matches!(now, Step::FillUp | Step::PeerReadsAll) {
                own_step(&mut peer);
            }
            std::thread::sleep(common::settling_time());
            match trigger {
                Trigger::Level => reported = ours(&poll),
                Trigger::Edge => reported += &ours(&poll),
            }
        }
        assert!(
            agrees(trigger, *now, &reported, &from_kernel),
            "step {number} of {steps:?}, {interest:?}, {trigger:?}: {reported:?} where the kernel says {from_kernel:?}"
        );
    }
}

/// Whether both report the same. An edge report may repeat conditions that still hold (Linux reports the whole state, we
/// report the change); a condition that the kernel reports as new must not be missing.
fn agrees(trigger: Trigger, now: Step, own: &str, kernels: &str) -> bool {
    match trigger {
        Trigger::Level => own == kernels,
        Trigger::Edge => now_ready(now).chars().filter(|l| kernels.contains(*l)).all(|l| own.contains(l)),
    }
}

/// Repeats a step for the kernel's sake until its socket is writable, or not, as the step is to make it. Asks at least once.
fn until_wanted(now: Step, mut is_writable: impl FnMut() -> bool, mut again: impl FnMut()) {
    for _ in 0..KERNEL_TRIES {
        let is_so = is_writable();
        if writable_after(now).is_none_or(|wanted| is_so == wanted) {
            break;
        }
        again();
    }
}

/// How often a step is repeated for the kernel's sake.
const KERNEL_TRIES: usize = 100;

/// Whether a step makes a socket writable or not writable; `None` if it does not affect that.
fn writable_after(step: Step) -> Option<bool> {
    match step {
        Step::FillUp => Some(false),
        Step::PeerReadsAll => Some(true),
        Step::PeerWrites | Step::ReadSome | Step::ReadAll => None,
        Step::PeerShuts | Step::Shut | Step::PeerResets => None,
    }
}

/// Asked of the socket itself: asking the set would use up an edge.
fn is_writable(kernel: &std::net::TcpStream) -> bool {
    let mut fds = [rustix::event::PollFd::new(kernel, rustix::event::PollFlags::OUT)];
    let none = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::event::poll(&mut fds, Some(&none)).unwrap() > 0
}

/// The readiness that a step may cause.
fn now_ready(step: Step) -> &'static str {
    match step {
        Step::PeerWrites => "r",
        Step::PeerReadsAll => "w",
        Step::PeerShuts => "rR",
        Step::PeerResets => "rwRE",
        Step::ReadSome | Step::ReadAll | Step::FillUp | Step::Shut => "",
    }
}

#[test]
fn readiness_matches_epoll() {
    let _guard = watchdog("readiness_matches_epoll");
    use Step::{FillUp, PeerReadsAll, PeerResets, PeerShuts, PeerWrites, ReadAll, ReadSome, Shut};
    let stories: [&[Step]; 6] = [
        &[PeerWrites, PeerWrites, ReadSome, ReadAll, PeerWrites, ReadAll],
        &[FillUp, PeerReadsAll, FillUp, PeerReadsAll, PeerWrites],
        &[PeerWrites, PeerShuts, ReadSome, ReadAll, FillUp, PeerReadsAll],
        &[PeerWrites, PeerResets, ReadAll],
        &[FillUp, PeerResets],
        &[PeerWrites, Shut, ReadAll],
    ];
    // Readiness caused by a delayed acknowledgment must be reported within the settling time, where workers do everything.
    let stack = common::stack_with(|c| c.tcp.delack = c.tcp.delack.min(common::delack_max()));
    // Mostly waits, so all stories go at once.
    std::thread::scope(|scope| {
        let interests = [BOTH, Interest::READABLE, Interest::WRITABLE];
        let ways =
            interests.map(|interest| [Trigger::Level, Trigger::Edge].map(|trigger| (interest, trigger)));
        for (steps, way) in
            stories.iter().flat_map(|story| ways.as_flattened().iter().map(|way| (*story, *way)))
        {
            let stack = &stack;
            scope.spawn(move || beside_epoll(stack, steps, way));
        }
    });
}
