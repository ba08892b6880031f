//! A whole stack that is fed frames: IPv4 and IPv6, arbitrary bytes and segments near the expected ones of its connections, with
//! an application that accepts, reads, writes, connects and closes meanwhile. A hook on the IPv6 listener keeps each SYN until the
//! application decides about it, in some cases with a value for the accepted stream.
//!
//! The stack is driven (`workers = 0`) and seeded, so an input has the same effect twice. Invariants, besides no panic: when the
//! application has dropped everything and time has passed, there is no connection, no value, and all packet memory is returned; the stack has contained no panic.
//! Tests: `tests/corpus.rs`.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arbitrary::{Result, Unstructured};
use sockeye::netif::{MacAddr, Medium, TxFrame};
use sockeye::{Config, Stack, Syn, TcpConfig, TcpListener, TcpSocket, TcpStream};
use sockeye_proto::ip::{self, Addresses, HeaderChecksum};
use sockeye_proto::seq::SeqNum;
use sockeye_proto::tcp::segment::{Flags, Header};
use sockeye_proto::tcp::wire::{self, ChecksumIn, ChecksumOut, Ports};

use crate::port::{Observer, Plug, Port, assert_panics};
use crate::segments::{Known, place, segment};

/// Steps of one input.
const STEPS_MAX: usize = 500;
/// SYNs that the hook keeps undecided; it ignores those beyond.
const SYNS_MAX: usize = 4;
/// Connections that the application holds.
const STREAMS_MAX: usize = 8;
/// The port that is listened on.
const PORT: u16 = 80;
/// The peer's port of most segments; others are near it.
const PEER_PORT: u16 = 4000;
const OURS: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1))];
const THEIRS: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)), IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2))];
const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const PEER_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
/// Time that passes at the end: longer than anything that a stack waits for without being asked to.
const REST: Duration = Duration::from_secs(3 * 3600);
/// Calls of `poll` within it at most.
const POLLS_MAX: usize = 20_000;

/// The latest TCP header that left towards the usual peer port, by IP version.
#[derive(Default)]
struct Seen([Option<(Ports, Header, u32)>; 2]);

impl Observer for Seen {
    fn note(&mut self, frame: &TxFrame, link_len: usize) {
        let Some(head) = frame.head().get(link_len..) else { return };
        let len = frame.len().saturating_sub(link_len);
        let Ok((header, range)) = ip::parse_head(head, len, HeaderChecksum::Trusted) else { return };
        if header.protocol != ip::PROTOCOL_TCP {
            return;
        }
        let Some(tcp) = head.get(range.start..) else { return };
        let Ok((ports, tcp, payload)) = wire::parse(tcp, ChecksumIn::Trusted) else { return };
        let length = range.len().saturating_sub(payload.start);
        let version = usize::from(matches!(header.addresses, Addresses::V6 { .. }));
        if !tcp.flags.has(Flags::RST) {
            self.0[version] = Some((ports, tcp, tcp.seq_len(length)));
        }
    }
}

/// What a SYN is accepted with: the references tell how many of them are left.
type Value = Arc<()>;

struct Bed {
    stack: Stack,
    port: Arc<Port<Seen>>,
    listeners: Vec<TcpListener>,
    undecided: Arc<Mutex<Vec<Syn>>>,
    value: Value,
    streams: Vec<TcpStream>,
    now: Duration,
}

/// See the module's head.
pub fn stack(data: &[u8]) {
    let mut u = Unstructured::new(data);
    let Ok(mut bed) = Bed::new(&mut u) else { return };
    for _ in 0..STEPS_MAX {
        if u.is_empty() || bed.step(&mut u).is_err() {
            break;
        }
    }
    bed.end();
}

impl Bed {
    fn new(u: &mut Unstructured<'_>) -> Result<Self> {
        let medium = if u.ratio(1, 3)? { Medium::Ethernet(MAC) } else { Medium::Ip };
        let config = Config {
            workers: 0,
            connections_max: 64,
            sndbuf: 16 << 10,
            rcvbuf: 16 << 10,
            tcp: TcpConfig { syn_backlog: 4, ..TcpConfig::default() },
            ..Config::default()
        };
        let stack = Stack::seeded(config, [7; 16]).expect("these settings are valid");
        let port = Port::new(medium, Seen::default());
        let addrs = ["10.0.0.1/24", "fd00::1/64"].map(|addr| addr.parse().expect("a prefix"));
        stack.attach(Plug(Arc::clone(&port)), &addrs).expect("an interface of its own");
        let listen = |addr| {
            let listener = TcpListener::bind_on(&stack, SocketAddr::new(addr, PORT)).expect("a free port");
            listener.set_nonblocking(true).expect("a listener");
            listener
        };
        let listeners: Vec<_> = OURS.map(listen).into();
        let undecided = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&undecided);
        listeners[1].set_syn_hook(Some(Box::new(move |syn: Syn| {
            let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
            if kept.len() < SYNS_MAX {
                kept.push(syn);
            }
        })));
        let (value, streams) = (Value::default(), Vec::new());
        Ok(Self { stack, port, listeners, undecided, value, streams, now: Duration::ZERO })
    }

    fn step(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        match u.int_in_range(0..=19u8)? {
            0..=1 => {
                let len = u.int_in_range(0..=200usize)?.min(u.len());
                let frame = u.bytes(len)?.to_vec();
                self.deliver(frame);
            }
            2..=11 => self.segment(u)?,
            12 => self.accept(),
            13 => self.connect(u)?,
            14..=16 if !self.streams.is_empty() => self.use_stream(u)?,
            17 => self.decide(u)?,
            _ => {
                self.now += Duration::from_millis(u.int_in_range(0..=2000)?);
                self.stack.poll(self.now);
            }
        }
        Ok(())
    }

    fn deliver(&mut self, frame: Vec<u8>) {
        self.port.give(frame);
        self.stack.poll(self.now);
    }

    /// A segment from the peer, with all headers, sometimes with a byte of them changed.
    fn segment(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let version = usize::from(u.ratio(1, 3)?);
        let seen = self.port.observer().0[version];
        let is_new = seen.is_none() || u.ratio(1, 5)?;
        let (mut ports, known) = match seen {
            Some((ports, header, len)) => {
                let ecr = header.options.timestamps.map_or(0, |ts| ts.ecr);
                let (seq, ack) = (header.ack, header.seq + len);
                let timestamps = header.options.timestamps.is_some();
                (
                    ports.reversed(),
                    Known { seq, ack, una: header.seq, clock: ecr.wrapping_add(1), timestamps },
                )
            }
            None => {
                let (zero, one) = (SeqNum::new(0), SeqNum::new(1));
                let known = Known { seq: zero, ack: one, una: one, clock: 1, timestamps: false };
                (Ports { src: PEER_PORT, dst: PORT }, known)
            }
        };
        let (mut header, mut len) = segment(u, &known)?;
        if is_new {
            ports = Ports { src: PEER_PORT + u16::from(u.int_in_range(0..=3u8)?), dst: PORT };
            header.flags = Flags::SYN;
            header.options.window_scale = if u.arbitrary()? { Some(u.int_in_range(0..=20)?) } else { None };
            header.options.sack_permitted = u.arbitrary()?;
            header.seq = place(header.seq, u.arbitrary()?);
            len = u.int_in_range(0..=2)?;
        }
        let Some(mut frame) = frame(self.port.medium, version, ports, &header, len) else { return Ok(()) };
        if u.ratio(1, 8)? {
            let at = u.choose_index(frame.len())?;
            frame[at] = u.arbitrary()?;
        }
        self.deliver(frame);
        Ok(())
    }

    /// What becomes of a SYN that the hook has kept.
    fn decide(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        // The hook may be called meanwhile, which takes the mutex: it is not held here.
        let syn = self.undecided.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let Some(syn) = syn else { return Ok(()) };
        match u.int_in_range(0..=5u8)? {
            0..=2 => syn.accept_with(Arc::clone(&self.value)),
            3 => syn.accept(),
            4 => syn.refuse(),
            _ => syn.ignore(),
        }
        self.stack.poll(self.now);
        Ok(())
    }

    fn accept(&mut self) {
        for listener in &self.listeners {
            if let Ok((stream, _)) = listener.accept() {
                let _ = stream.set_nonblocking(true);
                if stream.take_accept_value::<Value>().is_some() {
                    assert!(stream.take_accept_value::<Value>().is_none(), "a value taken twice");
                }
                self.streams.push(stream);
            }
        }
        self.streams.truncate(STREAMS_MAX);
    }

    fn connect(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let version = usize::from(u.arbitrary::<bool>()?);
        let mut socket =
            if version == 0 { TcpSocket::new_v4(&self.stack) } else { TcpSocket::new_v6(&self.stack) };
        socket.set_nonblocking(true);
        // Without memory or ports there is none.
        if let Ok(stream) = socket.connect(SocketAddr::new(THEIRS[version], PEER_PORT)) {
            self.streams.push(stream);
        }
        self.streams.truncate(STREAMS_MAX);
        self.stack.poll(self.now);
        Ok(())
    }

    fn use_stream(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let index = u.choose_index(self.streams.len())?;
        let stream = &mut self.streams[index];
        // Every error is one that a hostile peer may bring about.
        match u.int_in_range(0..=5u8)? {
            0..=1 => drop(stream.read(&mut vec![0; u.int_in_range(1..=20_000)?])),
            2..=3 => drop(stream.write(&vec![1; u.int_in_range(1..=20_000)?])),
            4 => drop(stream.shutdown(std::net::Shutdown::Write)),
            _ => drop(self.streams.swap_remove(index)),
        }
        self.stack.poll(self.now);
        Ok(())
    }

    /// Lets go of everything, and waits.
    fn end(self) {
        let Self { stack, port, listeners, undecided, value, streams, now } = self;
        drop((listeners, undecided, streams));
        let end = now + REST;
        let mut at = now;
        for _ in 0..POLLS_MAX {
            match stack.poll(at).filter(|next| *next <= end) {
                Some(next) => at = next.max(at + Duration::from_micros(1)),
                None => break,
            }
        }
        assert!(port.is_empty(), "frames that were not taken");
        assert_eq!(stack.connection_count(), 0, "connections without a holder");
        assert_eq!(stack.memory_in_use(), 0, "packet memory without a holder");
        assert_eq!(Arc::strong_count(&value), 1, "values of handshakes without a holder");
        assert_panics(&stack, 0);
    }
}

/// A frame with a segment of so many bytes from the peer.
fn frame(medium: Medium, version: usize, ports: Ports, header: &Header, len: u16) -> Option<Vec<u8>> {
    let addresses = Addresses::new(THEIRS[version], OURS[version])?;
    let mut tcp = [0; wire::HEADER_LEN_EMITTED_MAX];
    let tcp_len = wire::emit(ports, header, ChecksumOut::Omit, &mut tcp).ok()?;
    let header =
        ip::Header { addresses, protocol: ip::PROTOCOL_TCP, hop_limit: 64, traffic_class: 0, flow_label: 0 };
    let mut frame = Vec::new();
    if medium != Medium::Ip {
        frame.extend_from_slice(&MAC.0);
        frame.extend_from_slice(&PEER_MAC.0);
        frame.extend_from_slice(if version == 0 { &[0x08, 0x00] } else { &[0x86, 0xdd] });
    }
    let at = frame.len();
    frame.resize(at + addresses.header_len(), 0);
    ip::emit(&header, tcp_len + usize::from(len), &mut frame[at..]).ok()?;
    frame.extend_from_slice(&tcp[..tcp_len]);
    frame.resize(frame.len() + usize::from(len), 0x5a);
    Some(frame)
}
