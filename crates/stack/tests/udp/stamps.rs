//! Time stamps of datagrams: by a clock that the test drives, to a full interface, in tasks.
//!
//! Which reports there are, and their numbers, is held against the kernel in `crates/conform/tests/stamps.rs`.

use std::io::{ErrorKind, IoSlice, IoSliceMut};
use std::sync::mpsc;
use std::time::Duration;

use sockeye::netif::{RxFrame, TxFrame, WireConfig, wire};
use sockeye::poll::{Events, Interest, Poll, Token, Trigger};
use sockeye::{Outgoing, RecvMeta, Report, SendMeta, Stack, Timestamping, UdpSocket};

use crate::common::{self, counter, watchdog};
use crate::lab::{Lab, Tap};

const OF_SENDS: Timestamping = Timestamping::SCHEDULED.with(Timestamping::SENT);

fn at(stack: &Stack, addr: &str) -> UdpSocket {
    let socket = UdpSocket::bind_on(stack, addr).unwrap();
    socket.set_nonblocking(true).unwrap();
    socket
}

/// A stack whose clock says 5 ms, and two sockets, of which the first is connected to the second.
fn driven() -> (Stack, UdpSocket, UdpSocket) {
    let stack = common::stack_with(|config| config.workers = 0);
    let _ = stack.poll(Duration::from_millis(5));
    let (a, b) = (at(&stack, "127.0.0.1:0"), at(&stack, "127.0.0.1:0"));
    a.connect(b.local_addr().unwrap()).unwrap();
    (stack, a, b)
}

fn reports(socket: &UdpSocket) -> Vec<(Timestamping, u32, u64)> {
    let mut found = Vec::new();
    while let Ok(Report::Timestamp { what, key, at }) = socket.recv_report() {
        found.push((what, key, at.as_micros() as u64));
    }
    found
}

fn recv(socket: &UdpSocket) -> (usize, Option<Duration>) {
    let meta = socket.recv_msg(&mut [IoSliceMut::new(&mut [0; 9000])]).unwrap();
    (meta.len, meta.received_at)
}

#[test]
fn datagrams_have_the_time_of_their_arrival_from_when_it_is_asked_for() {
    let (stack, a, b) = driven();
    a.send(b"early").unwrap();
    b.set_timestamping(Timestamping::RECEIVED).unwrap();
    assert_eq!(b.timestamping().unwrap(), Timestamping::RECEIVED);
    a.send(b"first").unwrap();
    let _ = stack.poll(Duration::from_millis(7));
    a.send(b"second").unwrap();
    let _ = stack.poll(Duration::from_millis(9));
    let peeked = b.peek_msg(&mut [IoSliceMut::new(&mut [0; 8])]).unwrap();
    assert_eq!(peeked.received_at, None);
    assert_eq!(recv(&b), (5, None), "it came before");
    assert_eq!(recv(&b), (5, Some(Duration::from_millis(5))));
    assert_eq!(recv(&b), (6, Some(Duration::from_millis(7))));
    b.set_timestamping(Timestamping::NONE).unwrap();
    a.send(b"late").unwrap();
    assert_eq!(recv(&b), (4, None));
    assert!(reports(&a).is_empty() && reports(&b).is_empty());
}

#[test]
fn joined_datagrams_have_the_time_of_the_last() {
    let lab = Lab::new(&WireConfig::default(), |config| config.workers = 0);
    let (a, b) = (at(&lab.stacks[0], "10.9.0.1:0"), at(&lab.stacks[1], "10.9.0.2:0"));
    b.set_gro(true).unwrap();
    b.set_timestamping(Timestamping::RECEIVED).unwrap();
    for ms in [3, 4] {
        lab.drive(Duration::from_millis(ms));
        a.send_to(&[1; 500], b.local_addr().unwrap()).unwrap();
        lab.drive(Duration::from_millis(ms));
    }
    assert_eq!(recv(&b), (1000, Some(Duration::from_millis(4))));
    b.set_gro(false).unwrap();
    let cut = SendMeta { segment_size: Some(300), ..SendMeta::to(b.local_addr().unwrap()) };
    a.send_msg(&[IoSlice::new(&[1; 500])], &cut).unwrap();
    lab.drive(Duration::from_millis(6));
    assert_eq!(recv(&b), (300, Some(Duration::from_millis(6))));
    assert_eq!(recv(&b), (200, Some(Duration::from_millis(6))));
}

#[test]
fn sends_are_told_of_with_their_times_and_numbers() {
    let (stack, a, b) = driven();
    a.send(b"not asked").unwrap();
    a.set_timestamping(OF_SENDS.with(Timestamping::NUMBERED)).unwrap();
    a.send(b"0").unwrap();
    let _ = stack.poll(Duration::from_millis(6));
    let one = |bytes| Outgoing { bytes, meta: SendMeta::default() };
    assert_eq!(a.send_batch(&[one(b"1"), one(b"2")]).unwrap(), 2);
    let (sched, sent) = (Timestamping::SCHEDULED, Timestamping::SENT);
    assert_eq!(
        reports(&a),
        [
            (sched, 0, 5000),
            (sent, 0, 5000),
            (sched, 1, 6000),
            (sent, 1, 6000),
            (sched, 2, 6000),
            (sent, 2, 6000)
        ]
    );
    // In the order of the calls, and all of them.
    assert_eq!([0; 4].map(|_| recv(&b).0), [9, 1, 1, 1]);
    // A call asks for itself, or not.
    let asking = |asked| SendMeta { timestamping: Some(asked), ..SendMeta::default() };
    a.send_msg(&[IoSlice::new(b"x")], &asking(Timestamping::NONE)).unwrap();
    a.send_msg(&[IoSlice::new(b"x")], &asking(Timestamping::SENT)).unwrap();
    assert_eq!(reports(&a), [(sent, 3, 6000)]);
    let more = a.send_msg(&[IoSlice::new(b"x")], &asking(Timestamping::RECEIVED)).unwrap_err();
    assert_eq!(more.kind(), ErrorKind::InvalidInput);
    a.set_timestamping(Timestamping::NONE).unwrap();
    a.send_msg(&[IoSlice::new(b"x")], &asking(Timestamping::SENT)).unwrap();
    assert!(reports(&a).is_empty());
}

#[test]
fn a_report_makes_the_socket_ready_with_an_error_until_it_is_taken() {
    let (_stack, a, _b) = driven();
    let poll = Poll::new(Duration::ZERO);
    poll.register(&a, Token(0), Interest::READABLE, Trigger::Edge).unwrap();
    let mut events = Events::with_capacity(4);
    let mut errors = |poll: &Poll| {
        poll.wait(&mut events, Some(Duration::ZERO)).unwrap();
        events.iter().filter(|event| event.is_error()).count()
    };
    a.set_timestamping(Timestamping::SENT).unwrap();
    assert_eq!(errors(&poll), 0);
    a.send(b"x").unwrap();
    assert_eq!(errors(&poll), 1);
    assert_eq!(a.take_error().unwrap().map(|error| error.kind()), None, "it is no failure");
    assert_eq!(a.recv(&mut [0; 1]).unwrap_err().kind(), ErrorKind::WouldBlock);
    assert_eq!(reports(&a), [(Timestamping::SENT, 0, 5000)]);
    assert_eq!(a.recv_report().unwrap_err().kind(), ErrorKind::WouldBlock);
    poll.deregister(&a).unwrap();
    poll.register(&a, Token(0), Interest::READABLE, Trigger::Level).unwrap();
    assert_eq!(errors(&poll), 0);
}

#[test]
fn reports_beyond_the_bound_are_lost_and_sends_are_not() {
    let (_stack, a, b) = driven();
    a.set_timestamping(Timestamping::SENT.with(Timestamping::NUMBERED)).unwrap();
    for _ in 0..1030 {
        a.send(b"").unwrap();
        assert_eq!(b.recv(&mut []).unwrap(), 0);
    }
    let keys: Vec<u32> = reports(&a).iter().map(|(_, key, _)| *key).collect();
    assert_eq!(keys, (0..1024).collect::<Vec<u32>>());
    a.send(b"").unwrap();
    assert_eq!(reports(&a), [(Timestamping::SENT, 1030, 5000)]);
}

#[test]
fn a_datagram_that_a_full_interface_dropped_was_not_sent() {
    let _guard = watchdog("a_datagram_that_a_full_interface_dropped_was_not_sent");
    let (left, right) = wire(&WireConfig::default()).unwrap();
    let (entered, is_in) = mpsc::channel();
    let (let_go, gone) = mpsc::channel::<()>();
    let gate = std::sync::Mutex::new(Some((entered, gone)));
    let sending = move |_: &mut Vec<TxFrame>| {
        let first = gate.lock().unwrap().take();
        if let Some((entered, gone)) = first {
            entered.send(()).unwrap();
            let _ = gone.recv();
        }
    };
    let lab = Lab::between(Tap { end: left, sending, receiving: |_: RxFrame<'_>| true }, right, |_| {});
    let (a, to) = (at(&lab.stacks[0], "10.9.0.1:0"), "10.9.0.2:9");
    a.set_timestamping(Timestamping::SCHEDULED.with(Timestamping::NUMBERED)).unwrap();
    std::thread::scope(|scope| {
        // This thread sleeps in the interface, and frames queue up behind it.
        scope.spawn(|| at(&lab.stacks[0], "10.9.0.1:0").send_to(b"x", to).unwrap());
        is_in.recv().unwrap();
        let full = || counter(&lab.stacks[0], "udp_sndbuf_errors");
        let mut count = 0;
        while full() == 0 {
            a.send_to(b"x", to).unwrap();
            count += 1;
            while full() == 0 && a.recv_report().is_ok() {}
        }
        assert_eq!(reports(&a).iter().map(|(_, key, _)| *key).collect::<Vec<_>>(), [count - 1]);
        a.set_timestamping(OF_SENDS.with(Timestamping::NUMBERED)).unwrap();
        a.send_to(b"x", to).unwrap();
        let told = reports(&a);
        assert_eq!(
            told.iter().map(|(what, key, _)| (*what, *key)).collect::<Vec<_>>(),
            [(Timestamping::SCHEDULED, count)]
        );
        a.set_timestamping(Timestamping::NONE).unwrap();
        let batch = [to, "10.9.0.2:10"]
            .map(|to| sockeye::Outgoing { bytes: b"x", meta: sockeye::SendMeta::to(to.parse().unwrap()) });
        assert_eq!(a.send_batch(&batch).unwrap(), 2, "nobody asked");
        a.set_recv_err(true).unwrap();
        assert_eq!(a.send_batch(&batch).unwrap_err().raw_os_error(), Some(105), "ENOBUFS");
        assert_eq!(a.send_to(b"x", to).unwrap_err().raw_os_error(), Some(105));
        drop(let_go);
    });
}

#[test]
fn a_task_waits_for_the_report_of_its_send() {
    let _guard = watchdog("a_task_waits_for_the_report_of_its_send");
    let stack = common::stack();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let a = sockeye::tokio::UdpSocket::bind_on(&stack, "127.0.0.1:0").await.unwrap();
        let b = sockeye::tokio::UdpSocket::bind_on(&stack, "127.0.0.1:0").await.unwrap();
        a.set_timestamping(Timestamping::SENT).unwrap();
        b.set_timestamping(Timestamping::RECEIVED).unwrap();
        let before = stack.now();
        let sending = async {
            tokio::task::yield_now().await;
            a.send_to(b"x", b.local_addr().unwrap()).await.unwrap();
        };
        let (ready, ()) = tokio::join!(a.ready(tokio::io::Interest::ERROR), sending);
        assert!(ready.unwrap().is_error());
        let Report::Timestamp { at: sent, .. } = a.recv_report().unwrap() else { panic!("no time stamp") };
        let mut buf = [0; 8];
        let RecvMeta { received_at, .. } = b.recv_msg(&mut [IoSliceMut::new(&mut buf)]).await.unwrap();
        let received = received_at.unwrap();
        assert!(before <= sent && sent <= received && received <= stack.now());
    });
}
