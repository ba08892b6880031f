//! Interfaces that panic, call the stack back or end it, in each of their methods.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use crate::common::settings::{Input, Setting};
use sockeye::netif::{
    Channel, ChannelPort, Medium, Netif, RxFrame, Sent, TxFrame, Waited, WireConfig, channel, wire,
};
use sockeye::{Config, PanicSource, Stack, TcpListener, TcpStream, UdpSocket};

use crate::common::{self, counter, eventually};
use crate::lab::V4;
use crate::{LONG, Reports, in_time};

/// Called with the name of a method, each time it is called.
type Act = dyn Fn(&'static str) + Send + Sync;

/// An interface that does as another does, and something else.
struct Foreign<N> {
    inner: N,
    act: Arc<Act>,
}

impl<N: Netif> Netif for Foreign<N> {
    fn mtu(&self) -> u32 {
        (self.act)("mtu");
        self.inner.mtu()
    }

    fn queue_count(&self) -> usize {
        (self.act)("queue_count");
        self.inner.queue_count()
    }

    fn medium(&self) -> Medium {
        (self.act)("medium");
        self.inner.medium()
    }

    fn offloads_checksum(&self) -> bool {
        (self.act)("offloads_checksum");
        self.inner.offloads_checksum()
    }

    fn segment_max(&self) -> u32 {
        (self.act)("segment_max");
        self.inner.segment_max()
    }

    fn udp_segment_max(&self) -> u32 {
        (self.act)("udp_segment_max");
        self.inner.udp_segment_max()
    }

    fn attached(&self, pool: &sockeye_mbuf::Pool) {
        (self.act)("attached");
        self.inner.attached(pool);
    }

    fn is_down(&self) -> bool {
        (self.act)("is_down");
        self.inner.is_down()
    }

    fn transmit(&self, flow: u64, frames: &mut Vec<TxFrame>) -> Sent {
        (self.act)("transmit");
        self.inner.transmit(flow, frames)
    }

    fn ring(&self, queue: usize) {
        self.inner.ring(queue);
        (self.act)("ring");
    }

    fn receive(&self, queue: usize, max: usize, sink: &mut dyn FnMut(RxFrame<'_>)) -> usize {
        let count = self.inner.receive(queue, max, sink);
        if count > 0 {
            (self.act)("receive");
        }
        count
    }

    fn wait(&self, queue: usize, spin: Duration) {
        (self.act)("wait");
        self.inner.wait(queue, spin);
    }

    fn interrupt(&self, queue: usize) {
        self.inner.interrupt(queue);
        (self.act)("interrupt");
    }

    fn wait_until(&self, queue: usize, deadline: Option<Instant>) -> Waited {
        self.inner.wait_until(queue, deadline)
    }
}

impl<N> Drop for Foreign<N> {
    fn drop(&mut self) {
        (self.act)("drop");
    }
}

/// Methods that are called while an interface is in use.
const IN_USE: [&str; 5] = ["transmit", "ring", "receive", "wait", "is_down"];
/// Methods that are called once.
const CONSTANTS: [&str; 7] =
    ["attached", "mtu", "queue_count", "medium", "offloads_checksum", "segment_max", "udp_segment_max"];

/// A hook that the methods of an interface call in addition to their work, once it is set.
#[derive(Default)]
struct Script {
    deed: Mutex<Option<(&'static str, Deed)>>,
    panics: Mutex<(&'static str, usize)>,
}

type Deed = Box<dyn FnMut() -> bool + Send>;

impl Script {
    /// Has `deed` done in `method`, until it returns false.
    fn set(&self, method: &'static str, deed: impl FnMut() -> bool + Send + 'static) {
        *self.deed.lock().unwrap() = Some((method, Box::new(deed)));
    }

    /// Has `method` panic so many times.
    fn set_panics(&self, method: &'static str, times: usize) {
        *self.panics.lock().unwrap() = (method, times);
    }

    fn act(&self, method: &'static str) {
        let mut panics = self.panics.lock().unwrap();
        if panics.0 == method && panics.1 > 0 {
            panics.1 -= 1;
            drop(panics);
            panic!("in {method}");
        }
        drop(panics);
        // The deed is done outside of the mutex: it may end in another method.
        let due = self.deed.lock().unwrap().take_if(|(wanted, _)| *wanted == method);
        if let Some((_, mut deed)) = due
            && deed()
        {
            *self.deed.lock().unwrap() = Some((method, deed));
        }
    }

    fn is_over(&self) -> bool {
        self.deed.lock().unwrap().is_none() && self.panics.lock().unwrap().1 == 0
    }
}

/// A stack on a foreign interface, with its peer on the other end of a wire.
struct Testbed {
    script: Arc<Script>,
    stack: Stack,
    peer: Stack,
}

fn config(c: &mut Config) {
    // Lost frames are repeated soon.
    c.tcp.rto_min = Duration::from_millis(10);
}

impl Testbed {
    fn new() -> Self {
        let (left, right) = wire(&WireConfig::default()).unwrap();
        let script = Arc::new(Script::default());
        let acting = Arc::clone(&script);
        let foreign = Foreign { inner: left, act: Arc::new(move |method| acting.act(method)) };
        let [stack, peer] = [common::stack_with(config), common::stack_with(config)];
        stack.attach(foreign, &[V4[0].parse().unwrap()]).unwrap();
        peer.attach(right, &[V4[1].parse().unwrap()]).unwrap();
        Self { script, stack, peer }
    }

    fn pair(&self) -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind_on(&self.peer, "10.9.0.2:0").unwrap();
        let client = TcpStream::connect_on(&self.stack, listener.local_addr().unwrap()).unwrap();
        let server = listener.accept().unwrap().0;
        for stream in [&client, &server] {
            stream.set_nodelay(true).unwrap();
            stream.set_read_timeout(Some(LONG)).unwrap();
        }
        (client, server)
    }
}

/// Bytes there and back.
fn echo(method: &str, (mut client, mut server): (&TcpStream, &TcpStream)) {
    let mut bytes = [0; 100];
    client.write_all(&[7; 100]).unwrap_or_else(|error| panic!("{method}: {error}"));
    server.read_exact(&mut bytes).unwrap_or_else(|error| panic!("{method}: {error}"));
    server.write_all(&bytes).unwrap_or_else(|error| panic!("{method}: {error}"));
    client.read_exact(&mut bytes).unwrap_or_else(|error| panic!("{method}: {error}"));
}

#[test]
fn an_interface_that_panics_in_a_method_loses_only_the_frames_it_was_given() {
    for method in IN_USE {
        let testbed = Testbed::new();
        let reports = Reports::of(&testbed.stack);
        let (client, server) = testbed.pair();
        testbed.script.set_panics(method, 2);
        echo(method, (&client, &server));
        eventually(method, || {
            echo(method, (&client, &server));
            testbed.script.is_over()
        });
        let (one, _) = (testbed.pair(), testbed.pair());
        echo(method, (&one.0, &one.1));
        assert!(reports.all().iter().all(|(source, _)| *source == PanicSource::Netif), "{method}");
        assert_eq!(reports.all().len(), 2, "{method}: {:?}", reports.all());
        assert_eq!(counter(&testbed.stack, "frames_netif_panicked") > 0, method == "transmit", "{method}");
    }
}

#[test]
fn an_interface_that_panics_while_it_is_attached_is_refused() {
    for method in CONSTANTS {
        let stack = common::stack_with(|c| c.workers = 0);
        let dropped = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&dropped);
        let act = move |called: &str| match called {
            "drop" => {
                seen.fetch_add(1, Ordering::Relaxed);
            }
            called => assert_ne!(called, method, "a panic"),
        };
        let foreign = Foreign { inner: channel(&Default::default()).unwrap().0, act: Arc::new(act) };
        let refused = stack.attach(foreign, &[]).unwrap_err();
        assert_eq!((refused.kind(), dropped.load(Ordering::Relaxed)), (ErrorKind::Other, 1), "{method}");
        stack.attach(channel(&Default::default()).unwrap().0, &[V4[0].parse().unwrap()]).unwrap();
    }
}

#[test]
fn an_interfaces_constants_are_read_once_when_it_is_attached() {
    let testbed_calls = Arc::new(AtomicUsize::new(0));
    let calls = Arc::clone(&testbed_calls);
    let (left, right) = wire(&WireConfig::default()).unwrap();
    let act = move |method: &'static str| {
        calls.fetch_add(usize::from(CONSTANTS.contains(&method)), Ordering::Relaxed);
    };
    let testbed = Testbed { script: Arc::default(), stack: common::stack(), peer: common::stack() };
    testbed.stack.attach(Foreign { inner: left, act: Arc::new(act) }, &[V4[0].parse().unwrap()]).unwrap();
    testbed.peer.attach(right, &[V4[1].parse().unwrap()]).unwrap();
    let (client, server) = testbed.pair();
    echo("constants", (&client, &server));
    assert_eq!(testbed_calls.load(Ordering::Relaxed), CONSTANTS.len());
}

#[test]
fn an_interface_may_call_the_stack_back_from_every_method() {
    for method in IN_USE {
        in_time(method, move || {
            let testbed = Testbed::new();
            let (client, server) = testbed.pair();
            let (other, _other_end) = testbed.pair();
            let (stack, mut calls) = (testbed.stack.clone(), 0);
            let held: Mutex<Vec<Vec<ChannelPort>>> = Mutex::default();
            testbed.script.set(method, move || {
                calls += 1;
                // All tables, and every connection's own lock.
                assert!(!stack.sockets(true).is_empty());
                (&other).write_all(b"more").unwrap();
                drop(TcpListener::bind_on(&stack, "10.9.0.1:0").unwrap());
                let (netif, ports): (Channel, _) = channel(&Default::default()).unwrap();
                stack.attach(netif, &[format!("10.7.{calls}.1/24").parse().unwrap()]).unwrap();
                held.lock().unwrap().push(ports);
                calls < 3
            });
            eventually(method, || {
                echo(method, (&client, &server));
                testbed.script.is_over()
            });
        });
    }
}

/// Everything that makes frames: handshakes, text, datagrams, echo requests, errors, resets, FINs, and timers.
fn all_kinds_of_traffic(testbed: &Testbed, medium: &str) {
    let udp = UdpSocket::bind_on(&testbed.stack, "10.9.0.1:0").unwrap();
    let there = UdpSocket::bind_on(&testbed.peer, "10.9.0.2:0").unwrap();
    let listener = TcpListener::bind_on(&testbed.stack, "10.9.0.1:0").unwrap();
    for _ in 0..5 {
        let (client, server) = testbed.pair();
        echo(medium, (&client, &server));
        client.shutdown(Shutdown::Write).unwrap();
        drop((client, server));
        let peer = TcpStream::connect_on(&testbed.peer, listener.local_addr().unwrap()).unwrap();
        let own = listener.accept().unwrap().0;
        echo(medium, (&own, &peer));
        own.set_linger(Some(Duration::ZERO)).unwrap();
        drop(own);
        udp.send_to(b"to a port", there.local_addr().unwrap()).unwrap();
        assert_eq!(there.recv_from(&mut [0; 20]).unwrap().0, 9);
        udp.send_to(b"to none", "10.9.0.2:9").unwrap();
        there.send_to(b"to none", "10.9.0.1:9").unwrap();
        udp.send_to(&[1; 5000], there.local_addr().unwrap()).unwrap();
        assert_eq!(there.recv_from(&mut [0; 6000]).unwrap().0, 5000);
        let refused = TcpStream::connect_on(&testbed.stack, "10.9.0.2:9").unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused, "{medium}");
    }
}

#[test]
fn no_lock_is_held_during_any_call_of_an_interface() {
    for input in Input::ALL {
        in_time("an interface that always calls back", move || {
            let (left, right) = wire(&WireConfig::default()).unwrap();
            let inner: Arc<Mutex<Option<Stack>>> = Arc::default();
            let called = Arc::clone(&inner);
            let act = move |method: &'static str| {
                let stack = inner.lock().unwrap().clone();
                if let Some(stack) = stack.filter(|_| method != "is_down") {
                    // Takes every lock that there is, in turn.
                    let _all = stack.sockets(true);
                    let _neighbors = stack.neighbors();
                    drop(TcpListener::bind_on(&stack, "10.9.0.1:0"));
                }
            };
            let [stack, peer] = [*input, Input::default()].map(|input| {
                common::stack_with(|c| {
                    config(c);
                    input.set(c);
                })
            });
            stack.attach(Foreign { inner: left, act: Arc::new(act) }, &[V4[0].parse().unwrap()]).unwrap();
            peer.attach(right, &[V4[1].parse().unwrap()]).unwrap();
            let testbed = Testbed { script: Arc::default(), stack, peer };
            *called.lock().unwrap() = Some(testbed.stack.clone());
            all_kinds_of_traffic(&testbed, &format!("{input:?}"));
            called.lock().unwrap().take();
        });
    }
}

#[test]
fn an_interface_may_drop_the_last_handle_of_its_stack_in_every_method() {
    for method in IN_USE {
        in_time(method, move || {
            let testbed = Testbed::new();
            let (client, mut server) = testbed.pair();
            let last = Arc::new(Mutex::new(None));
            let taken = Arc::clone(&last);
            testbed.script.set(method, move || last.lock().unwrap().take().is_none());
            let script = Arc::clone(&testbed.script);
            *taken.lock().unwrap() = Some((client, testbed.stack));
            eventually(method, || {
                // Wakes the input thread, as long as there is one.
                let _ = server.write_all(b"x");
                script.is_over()
            });
            // The interface is dropped with its stack; then only the test holds the script.
            eventually(method, || Arc::strong_count(&script) == 2);
            drop(testbed.script);
        });
    }
}

#[test]
fn an_interface_that_blocks_in_transmit_costs_frames_and_no_other_call() {
    in_time("an interface that blocks", || {
        let testbed = Testbed::new();
        let (netif, _ports) = channel(&Default::default()).unwrap();
        testbed.stack.attach(netif, &["10.7.0.1/24".parse().unwrap()]).unwrap();
        let (one, two) = (testbed.pair(), testbed.pair());
        let udp = UdpSocket::bind_on(&testbed.stack, "10.9.0.1:0").unwrap();
        let (enter, entered) = mpsc::channel();
        let (leave, left) = mpsc::channel::<()>();
        testbed.script.set("transmit", move || {
            enter.send(()).unwrap();
            let _ = left.recv();
            false
        });
        let mut writer = one.0.try_clone().unwrap();
        let blocked = std::thread::spawn(move || writer.write_all(&[1; 10]));
        entered.recv().unwrap();
        // Everything else keeps working: connections over the same interface, over others and over none, tables and timers.
        (&two.0).write_all(&[2; 10]).unwrap();
        assert!(!testbed.stack.sockets(true).is_empty());
        let (mut near, mut far) = common::pair(&testbed.stack);
        near.write_all(b"near").unwrap();
        far.read_exact(&mut [0; 4]).unwrap();
        let sent = UdpSocket::bind_on(&testbed.stack, "10.7.0.1:0").unwrap().send_to(b"x", "10.7.0.9:9");
        assert_eq!(sent.unwrap(), 1);
        let full = || counter(&testbed.stack, "frames_queue_full");
        while full() == 0 {
            udp.send_to(b"until the lane is full", "10.9.0.2:9").unwrap();
        }
        drop(leave);
        blocked.join().unwrap().unwrap();
        for (stream, byte) in [(&one.1, 1), (&two.1, 2)] {
            let mut bytes = [0; 10];
            let mut stream = stream;
            stream.read_exact(&mut bytes).unwrap();
            assert_eq!(bytes, [byte; 10]);
        }
        echo("afterwards", (&one.0, &one.1));
    });
}

#[test]
fn an_interface_that_panics_in_its_last_methods_neither_keeps_its_stack_nor_takes_others_along() {
    for method in ["interrupt", "drop"] {
        in_time(method, move || {
            let testbed = Testbed::new();
            let (netif, ports) = channel(&Default::default()).unwrap();
            testbed.stack.attach(netif, &["10.7.0.1/24".parse().unwrap()]).unwrap();
            testbed.script.set_panics(method, 1);
            drop(testbed.stack);
            assert!(testbed.script.is_over(), "{method}");
            eventually(method, || ports[0].recv(Some(Duration::ZERO)).is_none());
        });
    }
}

#[test]
fn an_interface_whose_wait_always_panics_is_soon_removed() {
    let stack = common::stack();
    let waits = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&waits);
    let act = move |method: &'static str| {
        if method == "wait" {
            counted.fetch_add(1, Ordering::Relaxed);
            panic!("in wait");
        }
    };
    let (left, _right) = wire(&WireConfig::default()).unwrap();
    let start = Instant::now();
    stack.attach(Foreign { inner: left, act: Arc::new(act) }, &[V4[0].parse().unwrap()]).unwrap();
    // Its addresses go with it.
    eventually("it is removed", || TcpListener::bind_on(&stack, "10.9.0.1:0").is_err());
    assert_eq!(waits.load(Ordering::Relaxed), 10, "after {:?}", start.elapsed());
    let error = TcpStream::connect_on(&stack, "10.9.0.2:80").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NetworkUnreachable);
}
