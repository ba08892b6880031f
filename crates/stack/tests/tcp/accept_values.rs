//! Values that a SYN hook sends along: to the accepted stream, or dropped with the handshake, outside all locks.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::counter;
use sockeye::netif::{ChannelConfig, ChannelPort, channel};
use sockeye::{PanicReport, PanicSource, Stack, Syn, SynCookies, TcpListener, TcpSocket, TcpStream};
use sockeye_proto::ip::{self, Addresses};
use sockeye_proto::seq::SeqNum;
use sockeye_proto::tcp::segment::{Flags, Header};
use sockeye_proto::tcp::wire::{self, ChecksumIn, ChecksumOut, Ports};

/// Counts its drops, uses its stack in them, and panics in them if told to: what foreign code may do.
struct Value {
    dropped: Arc<AtomicUsize>,
    stack: Shared,
    panics: bool,
}

/// A stack, until the test is over.
type Shared = Arc<Mutex<Option<Stack>>>;

impl Drop for Value {
    fn drop(&mut self) {
        // Needs every shard of the table, the bind table, and sockets of its own.
        let stack = self.stack.lock().unwrap().clone();
        if let Some(stack) = stack {
            stack.sockets(true);
            let listener = TcpListener::bind_on(&stack, "127.0.0.1:0").unwrap();
            let mut socket = TcpSocket::new_v4(&stack);
            socket.set_nonblocking(true);
            let client = socket.connect(listener.local_addr().unwrap()).unwrap();
            listener.set_nonblocking(true).unwrap();
            listener.accept().unwrap();
            drop(client);
        }
        self.dropped.fetch_add(1, Ordering::SeqCst);
        assert!(!self.panics, "a value panics in its drop");
    }
}

const PEER: [u8; 4] = [10, 9, 0, 2];
const OWN: [u8; 4] = [10, 9, 0, 1];
const PORT: u16 = 80;

/// A stack without threads, whose peer is the test.
struct Host {
    stack: Stack,
    now: Duration,
    port: ChannelPort,
    listener: Option<TcpListener>,
    dropped: Arc<AtomicUsize>,
    shared: Shared,
}

impl Drop for Host {
    fn drop(&mut self) {
        self.shared.lock().unwrap().take();
    }
}

impl Host {
    fn new(panics: bool, change: impl FnOnce(&mut sockeye::Config)) -> Self {
        let stack = crate::common::stack_with(|config| {
            config.workers = 0;
            change(config);
        });
        let (netif, mut ports) = channel(&ChannelConfig::default()).unwrap();
        stack.attach(netif, &["10.9.0.1/24".parse().unwrap()]).unwrap();
        let listener = TcpListener::bind_on(&stack, ("10.9.0.1", PORT)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let dropped = Arc::new(AtomicUsize::new(0));
        let shared = Arc::new(Mutex::new(Some(stack.clone())));
        let (count, own) = (Arc::clone(&dropped), Arc::clone(&shared));
        listener.set_syn_hook(Some(Box::new(move |syn: Syn| {
            syn.accept_with(Value { dropped: Arc::clone(&count), stack: Arc::clone(&own), panics });
        })));
        Self { stack, now: Duration::ZERO, port: ports.remove(0), listener: Some(listener), dropped, shared }
    }

    fn drops(&self) -> usize {
        self.dropped.load(Ordering::SeqCst)
    }

    /// Sends a segment from `port`, and returns the answers.
    fn send(&mut self, port: u16, header: &Header) -> VecDeque<Header> {
        let addresses = Addresses::V4 { src: PEER.into(), dst: OWN.into() };
        let mut segment = [0; 60];
        let ports = Ports { src: port, dst: PORT };
        let len = wire::emit(ports, header, ChecksumOut::Omit, &mut segment).unwrap();
        let sum = addresses.pseudo_header(ip::PROTOCOL_TCP, len as u32).add_bytes(&segment[..len]).checksum();
        segment[16..18].copy_from_slice(&sum.to_be_bytes());
        let header = ip::Header {
            addresses,
            protocol: ip::PROTOCOL_TCP,
            hop_limit: 64,
            traffic_class: 0,
            flow_label: 0,
        };
        let mut packet = vec![0; 20];
        ip::emit(&header, len, &mut packet).unwrap();
        packet.extend_from_slice(&segment[..len]);
        self.port.try_send(&packet[..]).unwrap();
        self.pass(Duration::ZERO)
    }

    fn syn(&mut self, port: u16) -> Header {
        let syn = Header { flags: Flags::SYN, seq: SeqNum::new(100), window: 1000, ..Header::default() };
        self.send(port, &syn).pop_front().expect("a SYN-ACK")
    }

    fn ack(&mut self, port: u16, syn_ack: &Header) {
        let (seq, ack) = (SeqNum::new(101), syn_ack.seq + 1);
        self.send(port, &Header { flags: Flags::ACK, seq, ack, window: 1000, ..Header::default() });
    }

    fn pass(&mut self, time: Duration) -> VecDeque<Header> {
        let end = self.now + time;
        while let Some(next) = self.stack.poll(self.now).filter(|next| *next <= end) {
            self.now = next.max(self.now + Duration::from_micros(1));
        }
        self.now = end.max(self.now);
        self.stack.poll(self.now);
        let frames = std::iter::from_fn(|| self.port.try_recv());
        frames
            .filter_map(|frame| Some(wire::parse(frame.head().get(20..)?, ChecksumIn::Trusted).ok()?.1))
            .collect()
    }

    fn accept(&self) -> Option<TcpStream> {
        self.listener.as_ref()?.accept().ok().map(|(stream, _)| stream)
    }
}

#[test]
fn a_value_comes_to_the_accepted_stream_once_and_by_its_type() {
    let mut host = Host::new(false, |_| {});
    let syn_ack = host.syn(1);
    host.ack(1, &syn_ack);
    let stream = host.accept().unwrap();
    assert!(stream.take_accept_value::<u32>().is_none(), "another type");
    let clone = stream.try_clone().unwrap();
    let value = clone.take_accept_value::<Value>().expect("it stays when asked for as another type");
    assert!(stream.take_accept_value::<Value>().is_none());
    assert_eq!(host.drops(), 0);
    drop(value);
    assert_eq!(host.drops(), 1);
    // One that is not taken goes with the last handle.
    let syn_ack = host.syn(2);
    host.ack(2, &syn_ack);
    let stream = host.accept().unwrap();
    let clone = stream.try_clone().unwrap();
    drop(stream);
    assert_eq!(host.drops(), 1);
    drop(clone);
    assert_eq!(host.drops(), 2);
}

/// Ends handshakes by each means, with values that use the stack in their drops and panic then.
#[test]
fn a_value_is_dropped_with_its_handshake_outside_all_locks() {
    let mut host = Host::new(true, |_| {});
    let reports = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&reports);
    host.stack.set_panic_hook(Some(move |report: &PanicReport| {
        noted.lock().unwrap().push((report.source, report.place));
    }));
    // The peer resets it.
    host.syn(1);
    assert_eq!(host.drops(), 0);
    host.send(1, &Header { flags: Flags::RST, seq: SeqNum::new(101), ..Header::default() });
    assert_eq!(host.drops(), 1, "reset");
    // It is never finished.
    host.syn(2);
    host.pass(Duration::from_secs(62));
    assert_eq!(host.drops(), 1, "six SYN-ACKs");
    host.pass(Duration::from_secs(3));
    assert_eq!(host.drops(), 2, "out of time");
    // The listener ends: one value with its handshake, one with a stream that nobody has accepted.
    host.syn(3);
    let syn_ack = host.syn(4);
    host.ack(4, &syn_ack);
    assert_eq!(host.drops(), 2);
    drop(host.listener.take());
    assert_eq!(host.drops(), 4, "the listener is closed");
    assert_eq!(*reports.lock().unwrap(), [(PanicSource::Hook, "drop of an accept value"); 4]);
    assert_eq!(counter(&host.stack, "panics_protocol"), 0);
    crate::common::assert_nothing_left(&host.stack);
}

#[test]
fn a_full_table_displaces_the_oldest_handshake_with_its_value_and_no_cookie_is_sent_for_one() {
    for cookies in [SynCookies::Pressure, SynCookies::Always] {
        let mut host = Host::new(false, |config| {
            config.tcp.syn_backlog = 64;
            config.tcp.syn_cookies = cookies;
        });
        // The connections that drops open would count.
        host.shared.lock().unwrap().take();
        let answers: Vec<_> = (1..=1000).map(|port| host.syn(port)).collect();
        assert_eq!(counter(&host.stack, "syncookies_sent"), 0);
        let dropped = host.drops();
        assert!((900..1000).contains(&dropped), "{dropped} of 1000 are displaced");
        // The newest are still there.
        host.ack(1000, &answers[999]);
        let stream = host.accept().expect("the newest handshake");
        assert!(stream.take_accept_value::<Value>().is_some());
        // Without values there are cookies.
        host.listener.as_ref().unwrap().set_syn_hook(None);
        for port in 2000..3000 {
            host.syn(port);
        }
        assert!(counter(&host.stack, "syncookies_sent") > 900);
    }
}

#[test]
fn a_value_without_a_listener_or_a_stack_is_dropped_by_the_decision() {
    let stack = crate::common::stack_with(|config| config.workers = 0);
    let dropped = Arc::new(AtomicUsize::new(0));
    let asked = Arc::new(Mutex::new(Vec::new()));
    let shared = Arc::new(Mutex::new(Some(stack.clone())));
    let value = || Value { dropped: Arc::clone(&dropped), stack: Arc::clone(&shared), panics: false };
    let ask = || {
        let listener = TcpListener::bind_on(&stack, "127.0.0.1:0").unwrap();
        let keep = Arc::clone(&asked);
        listener.set_syn_hook(Some(Box::new(move |syn| keep.lock().unwrap().push(syn))));
        let mut socket = TcpSocket::new_v4(&stack);
        socket.set_nonblocking(true);
        let client = socket.connect(listener.local_addr().unwrap()).unwrap();
        (listener, client, asked.lock().unwrap().pop().unwrap())
    };
    let (listener, _client, syn): (_, _, Syn) = ask();
    drop(listener);
    syn.accept_with(value());
    assert_eq!(dropped.load(Ordering::SeqCst), 1);
    let (listener, client, syn) = ask();
    let last = value();
    drop((listener, client));
    shared.lock().unwrap().take();
    drop(stack);
    syn.accept_with(last);
    assert_eq!(dropped.load(Ordering::SeqCst), 2);
}

#[test]
fn a_value_survives_until_there_is_room_in_the_accept_queue() {
    let mut host = Host::new(false, |_| {});
    drop(host.listener.take());
    let mut socket = TcpSocket::new_v4(&host.stack);
    socket.set_reuse_address(true);
    socket.bind(([10, 9, 0, 1], PORT).into()).unwrap();
    let listener = socket.listen(1).unwrap();
    listener.set_nonblocking(true).unwrap();
    listener.set_syn_hook(Some(Box::new(|syn: Syn| {
        let port = syn.peer_addr().port();
        syn.accept_with(port);
    })));
    host.listener = Some(listener);
    let answers = [1, 2].map(|port| host.syn(port));
    host.ack(1, &answers[0]);
    host.ack(2, &answers[1]);
    let first = host.accept().unwrap();
    assert!(host.accept().is_none(), "there was no room for the second");
    host.ack(2, &answers[1]);
    let second = host.accept().unwrap();
    assert_eq!([first, second].map(|stream| stream.take_accept_value::<u16>()), [Some(1), Some(2)]);
}

/// A listener is closed, or has a more specific one beside it, while a SYN waits for its decision.
#[test]
fn a_yes_is_no_yes_of_a_listener_that_has_come_since() {
    for is_more_specific in [false, true] {
        let stack = crate::common::stack_with(|config| config.workers = 0);
        let bind = |addr: SocketAddr| {
            let mut socket = TcpSocket::new_v4(&stack);
            socket.set_reuse_port(true);
            socket.bind(addr).unwrap();
            let listener = socket.listen(8).unwrap();
            listener.set_nonblocking(true).unwrap();
            listener
        };
        let kept = Arc::new(Mutex::new(Vec::new()));
        let keep = Arc::clone(&kept);
        let before = bind(([0, 0, 0, 0], 0).into());
        before.set_syn_hook(Some(Box::new(move |syn: Syn| keep.lock().unwrap().push(syn))));
        let addr = SocketAddr::from(([127, 0, 0, 1], before.local_addr().unwrap().port()));
        let mut socket = TcpSocket::new_v4(&stack);
        socket.set_nonblocking(true);
        let client = socket.connect(addr).unwrap();
        let syn = kept.lock().unwrap().pop().unwrap();
        let before = is_more_specific.then_some(before);
        let after = bind(addr);
        let refused = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&refused);
        after.set_syn_hook(Some(Box::new(move |syn: Syn| {
            count.fetch_add(1, Ordering::SeqCst);
            syn.refuse();
        })));
        let value = Arc::new(());
        syn.accept_with(Arc::clone(&value));
        assert_eq!(refused.load(Ordering::SeqCst), 1, "the new listener's hook is asked");
        assert_eq!(Arc::strong_count(&value), 1, "the value is dropped");
        assert_eq!(client.take_error().unwrap().map(|e| e.kind()), Some(ErrorKind::ConnectionRefused));
        for listener in [Some(&after), before.as_ref()].into_iter().flatten() {
            assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
        }
    }
}
