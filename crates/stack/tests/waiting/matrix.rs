//! Each kind of waiter, each reason to wake, each kind of socket: the waiter is notified. Connects are in `connects.rs`,
//! closes that linger in `lingers.rs`, network errors in `errors.rs`; room that a writer had reserved is in `conn/reserved.rs`.
//!
//! If an event does *not* end a wait, the case has the event that does:
//!
//! * A socket closes with its last handle, and every waiter holds one. So no wait can be ended by a close of the same socket:
//!   dropping another handle ends nothing, and later events are still reported. The same holds for a stack: its sockets keep it
//!   alive, so dropping the application's last handle of it ends no wait.
//! * A removed device ends connections, and no wait for datagrams: others may arrive by another route.
//! * Pollers are not notified of packet memory: a socket without any counts as writable, and the write fails for lack of it.

use std::any::Any;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sockeye::netif::{Netif, RxFrame, Sent, TxFrame, WireConfig, WireEnd, wire};
use sockeye::poll::{Events, Poll, Trigger};
use sockeye::unix::{UnixDatagram, UnixListener, UnixSeqpacket, UnixStream};
use sockeye::{IcmpSocket, Stack, TcpListener, TcpStream, UdpSocket, unix};

use crate::common::{eventually, pair, stack_with};
use crate::lab::{Lab, as_its_end};
use crate::subjects::{Both, Connect, Hungry, Subject, Way};
use crate::{Count, LONG, in_time, poll};

/// The number of waiters in cases with several. The event that ends their wait is enough for all.
pub const MANY: usize = 3;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Thread,
    Threads,
    PollFunction,
    Tasks,
    Level,
    Edge,
}

impl Kind {
    pub const ALL: [Self; 6] =
        [Self::Thread, Self::Threads, Self::PollFunction, Self::Tasks, Self::Level, Self::Edge];
}

/// A socket to wait for, the event that ends the wait, and the values that have to live until then.
pub struct Setting {
    subject: Box<dyn Subject>,
    end: Box<dyn FnOnce()>,
    _kept: Box<dyn Any>,
}

pub fn setting(subject: impl Subject + 'static, end: impl FnOnce() + 'static, kept: impl Any) -> Setting {
    Setting { subject: Box::new(subject), end: Box::new(end), _kept: Box::new(kept) }
}

pub struct Case {
    pub name: &'static str,
    pub kinds: &'static [Kind],
    pub make: fn() -> Setting,
}

pub const fn case(name: &'static str, make: fn() -> Setting) -> Case {
    Case { name, kinds: &Kind::ALL, make }
}

const CASES: [Case; 51] = [
    case("TCP read: data", || tcp_read(|other, _| drop((&other).write(&[0; MANY])))),
    case("TCP read: FIN", || tcp_read(|other, _| other.shutdown(Shutdown::Write).unwrap())),
    case("TCP read: RST", || tcp_read(|other, _| other.set_linger(Some(Duration::ZERO)).unwrap())),
    case("TCP read: shutdown here", || tcp_read(|_, own| own.shutdown(Shutdown::Read).unwrap())),
    case("TCP read: the peer closes", || tcp_read(|other, own| drop((other, own)))),
    case("TCP read: another handle is dropped, then data", || {
        tcp_read(|other, own| {
            drop(own);
            (&other).write_all(&[0; MANY]).unwrap();
        })
    }),
    case("TCP read: the stack's handle is dropped, then data", tcp_read_without_a_stack),
    case("TCP read: device gone", || over_a_wire(Way::Read, |wire| wire.unplug())),
    case("TCP write: room on loopback", || tcp_write(|other, _| drain(&other))),
    case("TCP write: room over a wire", || over_a_wire(Way::Write, |wire| drain(&wire.server))),
    case("TCP write: larger buffer", || tcp_write(|_, own| own.set_send_buffer_size(1 << 20).unwrap())),
    case("TCP write: no bound of unsent bytes any more", || {
        tcp_write_with(Some(1000), |_, own| own.set_notsent_lowat(None).unwrap())
    }),
    case("TCP write: RST", || tcp_write(|other, _| other.set_linger(Some(Duration::ZERO)).unwrap())),
    case("TCP write: the peer closes", || tcp_write(|other, own| drop((other, own)))),
    case("TCP write: shutdown here", || tcp_write(|_, own| own.shutdown(Shutdown::Write).unwrap())),
    case("TCP write: another handle is dropped, then room", || {
        tcp_write(|other, own| {
            drop(own);
            drain(&other);
        })
    }),
    case("TCP write: device gone", || over_a_wire(Way::Write, |wire| wire.unplug())),
    Case {
        name: "TCP write: memory is freed",
        kinds: &[Kind::Thread, Kind::Threads, Kind::PollFunction, Kind::Tasks],
        make: memory,
    },
    case("TCP connect: device gone", connect),
    case("accept: connections", || accept(false)),
    case("accept: another handle is dropped, then connections", || accept(true)),
    case("UDP: datagrams", || udp(false)),
    case("UDP: another handle is dropped, then datagrams", || udp(true)),
    // One receiver takes the error.
    Case {
        name: "UDP: port unreachable",
        kinds: &[Kind::Thread, Kind::PollFunction, Kind::Tasks, Kind::Level, Kind::Edge],
        make: unreachable_port,
    },
    case("ICMP: answers", icmp),
    case("UNIX stream read: data", || stream_read(|other, _| drop((&other).write(&[0; MANY])))),
    case("UNIX stream read: end", || stream_read(|other, _| other.shutdown(Shutdown::Write).unwrap())),
    case("UNIX stream read: the peer closes", || stream_read(|other, own| drop((other, own)))),
    case("UNIX stream read: the peer closes with bytes unread", || {
        stream_read(|other, own| {
            (&own).write_all(b"x").unwrap();
            drop(other);
        })
    }),
    case("UNIX stream read: shutdown here", || stream_read(|_, own| own.shutdown(Shutdown::Read).unwrap())),
    case("UNIX stream read: another handle is dropped, then data", || {
        stream_read(|other, own| {
            drop(own);
            (&other).write_all(&[0; MANY]).unwrap();
        })
    }),
    case("UNIX stream write: room", || stream_write(|other, _| drain(&other))),
    case("UNIX stream write: larger buffer", || {
        stream_write(|_, own| own.set_send_buffer_size(4 << 20).unwrap())
    }),
    case("UNIX stream write: the peer reads no more", || {
        stream_write(|other, _| other.shutdown(Shutdown::Read).unwrap())
    }),
    case("UNIX stream write: the peer closes", || stream_write(|other, own| drop((other, own)))),
    case("UNIX stream write: shutdown here", || {
        stream_write(|_, own| own.shutdown(Shutdown::Write).unwrap())
    }),
    case("UNIX datagram read: data", || {
        datagram_read(|other, _| (0..MANY).for_each(|_| assert!(other.send(b"x").is_ok())))
    }),
    case("UNIX datagram read: shutdown here", || {
        datagram_read(|_, own| own.shutdown(Shutdown::Read).unwrap())
    }),
    case("UNIX datagram write: room", || {
        datagram_write(|other, _| (0..8).for_each(|_| assert!(other.recv(&mut [0; 9]).is_ok())))
    }),
    case("UNIX datagram write: the receiver reads no more", || {
        datagram_write(|other, _| other.shutdown(Shutdown::Read).unwrap())
    }),
    case("UNIX datagram write: the receiver closes", || datagram_write(|other, own| drop((other, own)))),
    case("UNIX datagram write: another handle is dropped, then room", || {
        datagram_write(|other, own| {
            drop(own);
            (0..8).for_each(|_| assert!(other.recv(&mut [0; 9]).is_ok()));
        })
    }),
    case("UNIX packet read: data", || {
        packet_read(|other, _| (0..MANY).for_each(|_| assert!(other.send(b"x").is_ok())))
    }),
    case("UNIX packet read: the peer closes", || packet_read(|other, own| drop((other, own)))),
    case("UNIX packet read: shutdown here", || packet_read(|_, own| own.shutdown(Shutdown::Read).unwrap())),
    case("UNIX packet write: room", || {
        packet_write(|other, _| {
            other.set_nonblocking(true).unwrap();
            while other.recv(&mut [0; 65536]).is_ok() {}
        })
    }),
    case("UNIX packet write: the peer closes", || packet_write(|other, own| drop((other, own)))),
    case("UNIX packet write: shutdown here", || {
        packet_write(|_, own| own.shutdown(Shutdown::Write).unwrap())
    }),
    case("UNIX accept: connections", || unix_accept(false)),
    case("UNIX accept: another handle is dropped, then connections", || unix_accept(true)),
    case("UNIX accept: shutdown here", unix_accept_shut),
];

#[test]
fn every_waiter_is_notified_of_every_event_that_ends_its_wait() {
    check(&CASES);
}

/// Tries each case with each of its kinds of waiter.
pub fn check(cases: &[Case]) {
    for case in cases {
        for kind in case.kinds {
            let (name, kind, make) = (case.name, *kind, case.make);
            let _named = Named(name, kind);
            in_time(move || one_case(name, kind, make()));
        }
    }
}

/// Names the part of the matrix that has failed.
struct Named(&'static str, Kind);

impl Drop for Named {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}: {:?}", self.0, self.1);
        }
    }
}

fn one_case(name: &str, kind: Kind, setting: Setting) {
    let Setting { subject, end, _kept } = setting;
    match kind {
        Kind::Thread => threads(name, 1, &*subject, end),
        Kind::Threads => threads(name, MANY, &*subject, end),
        Kind::PollFunction => poll_function(name, &*subject, end),
        Kind::Tasks => tasks(name, &*subject, end),
        Kind::Level => poller(name, Trigger::Level, &*subject, end),
        Kind::Edge => poller(name, Trigger::Edge, &*subject, end),
    }
}

/// Blocked threads. They are asleep, or at least waiting for something, when the wait is ended.
fn threads(name: &str, count: usize, subject: &dyn Subject, end: Box<dyn FnOnce()>) {
    std::thread::scope(|scope| {
        let (send_id, ids) = std::sync::mpsc::channel();
        let waiting: Vec<_> = (0..count)
            .map(|_| {
                let send_id = send_id.clone();
                scope.spawn(move || {
                    send_id.send(rustix::thread::gettid().as_raw_nonzero()).unwrap();
                    subject.block();
                })
            })
            .collect();
        for id in ids.iter().take(count) {
            let is_over = || waiting.iter().any(|thread| thread.is_finished());
            eventually("the thread sleeps", || is_over() || is_asleep(id.get()));
            assert!(!is_over(), "{name}: it was ready before");
        }
        end();
        waiting.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

fn is_asleep(thread: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().is_some_and(|state| state.starts_with('S'))
}

fn poll_function(name: &str, subject: &dyn Subject, end: Box<dyn FnOnce()>) {
    let (mut count, mut waker) = Count::new();
    let mut polled = subject.poll(&mut std::task::Context::from_waker(&waker));
    if polled.is_none() {
        return;
    }
    assert!(polled.is_some_and(|polled| polled.is_pending()), "{name}: it was ready before");
    end();
    while polled.is_some_and(|polled| polled.is_pending()) {
        assert!(count.is_woken(), "{name}: a task in a poll function");
        (count, waker) = Count::new();
        polled = subject.poll(&mut std::task::Context::from_waker(&waker));
    }
}

fn tasks(name: &str, subject: &dyn Subject, end: Box<dyn FnOnce()>) {
    let mut tasks: Vec<_> = (0..MANY).map(|_| (subject.wait(), Count::new())).collect();
    for (future, (_, waker)) in &mut tasks {
        assert!(poll(future.as_mut(), waker).is_pending(), "{name}: it was ready before");
    }
    end();
    for (at, (future, (count, waker))) in tasks.iter_mut().enumerate() {
        loop {
            assert!(count.is_woken(), "{name}: task {at}");
            (*count, *waker) = Count::new();
            if poll(future.as_mut(), waker).is_ready() {
                break;
            }
        }
    }
}

fn poller(name: &str, trigger: Trigger, subject: &dyn Subject, end: Box<dyn FnOnce()>) {
    let (poll, mut events) = (Poll::new(Duration::ZERO), Events::with_capacity(4));
    subject.register(&poll, trigger);
    assert_eq!(poll.wait(&mut events, Some(Duration::ZERO)).unwrap(), 0, "{name}: it was ready before");
    end();
    assert_eq!(poll.wait(&mut events, Some(LONG)).unwrap(), 1, "{name}: a poller, {trigger:?}");
}

/// Threads that wait sleep at once.
fn stack() -> Stack {
    stack_with(|config| (config.spin_max, config.sndbuf) = (Duration::ZERO, 65536))
}

/// Fills a socket until it takes no more.
fn fill(mut stream: impl Write) {
    while stream.write(&[0; 4096]).is_ok() {}
}

/// Fills the buffers of both ends of a TCP connection, of which the own one takes `own` bytes. Less is not enough: a
/// later acknowledgment would free room.
fn fill_both(client: &TcpStream, own: usize) {
    client.set_nonblocking(true).unwrap();
    let mut filled = 0;
    eventually("both buffers are full", || match (&mut &*client).write(&[0; 4096]) {
        Ok(taken) => {
            filled += taken;
            false
        }
        Err(_full) => filled >= own + OTHER_END,
    });
    client.set_nonblocking(false).unwrap();
}

/// Bytes in the peer's buffer of 65,536 that leave less than a segment's room.
const OTHER_END: usize = 64_000;

/// Reads all available bytes.
fn drain(stream: &(impl Bytes + ?Sized)) {
    stream.drain();
}

trait Bytes {
    fn drain(&self);
}

macro_rules! bytes {
    ($($stream:ty),*) => {
        $(impl Bytes for $stream {
            fn drain(&self) {
                self.set_nonblocking(true).unwrap();
                // Bytes in flight from the other end arrive within the time.
                let mut idle = 0;
                while idle < 20 {
                    match (&*self).read(&mut [0; 65536]) {
                        Ok(n) if n > 0 => idle = 0,
                        _nothing => {
                            idle += 1;
                            std::thread::sleep(Duration::from_micros(200));
                        }
                    }
                }
            }
        })*
    };
}
bytes!(TcpStream, UnixStream);

fn tcp_read(end: fn(TcpStream, TcpStream)) -> Setting {
    let stack = stack();
    let (client, server) = pair(&stack);
    let own = client.try_clone().unwrap();
    setting(Both::new(client, Way::Read), move || end(server, own), stack)
}

fn tcp_read_without_a_stack() -> Setting {
    let stack = stack();
    let (client, server) = pair(&stack);
    let end = move || {
        drop(stack);
        (&server).write_all(&[0; MANY]).unwrap();
    };
    setting(Both::new(client, Way::Read), end, ())
}

fn tcp_write(end: fn(TcpStream, TcpStream)) -> Setting {
    tcp_write_with(None, end)
}

fn tcp_write_with(lowat: Option<u32>, end: fn(TcpStream, TcpStream)) -> Setting {
    let stack = stack_with(|config| {
        (config.spin_max, config.sndbuf, config.rcvbuf) = (Duration::ZERO, 65536, 65536);
        (config.sndbuf_max, config.rcvbuf_max) = (65536, 65536);
    });
    let (client, server) = pair(&stack);
    if lowat.is_some() {
        // So that there is room besides.
        client.set_send_buffer_size(1 << 20).unwrap();
        client.set_notsent_lowat(lowat).unwrap();
    }
    fill_both(&client, lowat.map_or(65536, |lowat| lowat as usize));
    let own = client.try_clone().unwrap();
    setting(Both::new(client, Way::Write), move || end(server, own), stack)
}

/// A wire of which one end can be unplugged.
struct Plug {
    end: WireEnd,
    is_unplugged: Arc<AtomicBool>,
}

impl Netif for Plug {
    as_its_end!();
    fn transmit(&self, flow: u64, frames: &mut Vec<TxFrame>) -> Sent {
        self.end.transmit(flow, frames)
    }
    fn receive(&self, queue: usize, max: usize, sink: &mut dyn FnMut(RxFrame<'_>)) -> usize {
        self.end.receive(queue, max, sink)
    }
    fn wait(&self, queue: usize, spin: Duration) {
        self.end.wait(queue, spin);
    }
    fn is_down(&self) -> bool {
        self.is_unplugged.load(Ordering::Relaxed)
    }
}

struct Wired {
    lab: Lab,
    is_unplugged: Arc<AtomicBool>,
    server: TcpStream,
}

impl Wired {
    fn unplug(&self) {
        unplug(&self.lab, &self.is_unplugged);
    }
}

fn unplug(lab: &Lab, is_unplugged: &AtomicBool) {
    is_unplugged.store(true, Ordering::Relaxed);
    // The input thread finds out when it gets up.
    let socket = UdpSocket::bind_on(&lab.stacks[1], lab.addr(0)).unwrap();
    drop(socket.send_to(b"x", "10.9.0.1:9"));
}

fn plugged() -> (Lab, Arc<AtomicBool>) {
    let is_unplugged = Arc::new(AtomicBool::new(false));
    let (left, right) = wire(&WireConfig::default()).unwrap();
    let plug = Plug { end: left, is_unplugged: is_unplugged.clone() };
    let lab = Lab::between(plug, right, |config| {
        (config.spin_max, config.sndbuf, config.rcvbuf) = (Duration::ZERO, 65536, 65536);
        (config.sndbuf_max, config.rcvbuf_max) = (65536, 65536);
    });
    (lab, is_unplugged)
}

fn over_a_wire(way: Way, end: fn(&Wired)) -> Setting {
    let (lab, is_unplugged) = plugged();
    let (client, server) = lab.pair();
    if way == Way::Write {
        fill_both(&client, 65536);
    }
    let wired = Wired { lab, is_unplugged, server };
    setting(Both::new(client, way), move || end(&wired), ())
}

fn connect() -> Setting {
    let (lab, is_unplugged) = plugged();
    let subject = Connect::new(&lab.stacks[0], "10.9.0.77:9".parse().unwrap());
    setting(subject, move || unplug(&lab, &is_unplugged), ())
}

/// Another connection has all packet memory, until it is read.
fn memory() -> Setting {
    let stack = stack_with(|config| {
        (config.spin_max, config.memory_max) = (Duration::ZERO, 1 << 20);
        (config.sndbuf, config.rcvbuf) = (8 << 20, 8 << 20);
    });
    let (client, _server) = pair(&stack);
    let (hog, reader) = pair(&stack);
    hog.set_nonblocking(true).unwrap();
    while (&hog).write(&[0; 2048]).is_ok() {}
    // Memory in per-thread caches is used up too.
    client.set_nonblocking(true).unwrap();
    while (&client).write(&[0; 2048]).is_ok() || (&client).write(&[0; 1]).is_ok() {}
    client.set_nonblocking(false).unwrap();
    setting(Hungry(Both::new(client, Way::Write)), move || drop((hog, drain(&reader))), (stack, _server))
}

fn accept(drops_a_handle: bool) -> Setting {
    let stack = stack();
    let listener = TcpListener::bind_on(&stack, "127.0.0.1:0").unwrap();
    let (addr, other) = (listener.local_addr().unwrap(), listener.try_clone().unwrap());
    let end = move || {
        if drops_a_handle {
            drop(other);
        }
        (0..MANY).for_each(|_| drop(TcpStream::connect_on(&stack, addr).unwrap()));
    };
    setting(Both::new(listener, Way::Read), end, ())
}

fn udp(drops_a_handle: bool) -> Setting {
    let stack = stack();
    let socket = UdpSocket::bind_on(&stack, "127.0.0.1:0").unwrap();
    let sender = UdpSocket::bind_on(&stack, "127.0.0.1:0").unwrap();
    let (addr, other) = (socket.local_addr().unwrap(), socket.try_clone().unwrap());
    let end = move || {
        if drops_a_handle {
            drop(other);
        }
        (0..MANY).for_each(|_| assert!(sender.send_to(b"x", addr).is_ok()));
    };
    setting(Both::new(socket, Way::Read), end, stack)
}

fn unreachable_port() -> Setting {
    let stack = stack();
    let socket = UdpSocket::bind_on(&stack, "127.0.0.1:0").unwrap();
    let closed = UdpSocket::bind_on(&stack, "127.0.0.1:0").unwrap().local_addr().unwrap();
    socket.connect(closed).unwrap();
    let sender = socket.try_clone().unwrap();
    setting(Both::new(socket, Way::Read), move || assert!(sender.send(b"x").is_ok()), stack)
}

fn icmp() -> Setting {
    let (stack, localhost) = (stack(), [127, 0, 0, 1].into());
    let socket = IcmpSocket::bind_on(&stack, localhost).unwrap();
    let sender = socket.try_clone().unwrap();
    let end = move || (0..MANY as u16).for_each(|seq| sender.send_to(seq, b"x", localhost).unwrap());
    setting(Both::new(socket, Way::Read), end, stack)
}

/// A pair of UNIX-domain sockets of this type.
macro_rules! unix_settings {
    ($($name:ident, $fills:expr, $type:ty, $way:expr;)*) => {
        $(fn $name(end: fn($type, $type)) -> Setting {
            let stack = stack();
            let (a, b) = <$type>::pair_on(&stack).unwrap();
            let fill: fn(&$type) = $fills;
            a.set_nonblocking(true).unwrap();
            fill(&a);
            a.set_nonblocking(false).unwrap();
            let own = a.try_clone().unwrap();
            setting(Both::new(a, $way), move || end(b, own), stack)
        })*
    };
}

unix_settings! {
    stream_read, |_| {}, UnixStream, Way::Read;
    stream_write, |stream| fill(stream), UnixStream, Way::Write;
    datagram_read, |_| {}, UnixDatagram, Way::Read;
    datagram_write, |socket| while socket.send(b"x").is_ok() {}, UnixDatagram, Way::Write;
    packet_read, |_| {}, UnixSeqpacket, Way::Read;
    packet_write, |socket| while socket.send(&[0; 4096]).is_ok() {}, UnixSeqpacket, Way::Write;
}

fn unix_listener() -> (Stack, UnixListener, unix::SocketAddr) {
    let (stack, name) = (stack(), unix::SocketAddr::from_abstract_name(b"matrix").unwrap());
    let listener = UnixListener::bind_addr_on(&stack, &name).unwrap();
    (stack, listener, name)
}

fn unix_accept(drops_a_handle: bool) -> Setting {
    let (stack, listener, name) = unix_listener();
    let other = listener.try_clone().unwrap();
    let end = move || {
        if drops_a_handle {
            drop(other);
        }
        (0..MANY).for_each(|_| drop(UnixStream::connect_addr_on(&stack, &name).unwrap()));
    };
    setting(Both::new(listener, Way::Read), end, ())
}

fn unix_accept_shut() -> Setting {
    let (stack, listener, _) = unix_listener();
    let other = listener.try_clone().unwrap();
    setting(Both::new(listener, Way::Read), move || other.shutdown(Shutdown::Read).unwrap(), stack)
}
