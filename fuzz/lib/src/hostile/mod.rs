//! A stack with services on its loopback, and a hostile link: frames between addresses of every class, as an IP device, an Ethernet
//! device and a channel deliver them, on an interface that accepts packets to the stack and on one that accepts packets to any
//! host.
//!
//! Invariants for any input:
//! * no socket that is bound to the loopback alone is reached: no SYN, no datagram, no error; also not through a public
//!   service that answers to the source address of a datagram;
//! * nothing is sent to an address that is not one host's, except messages about neighbors and groups;
//! * a transparent socket never reports a destination that is not one host's;
//! * at the end there is no connection, all packet memory is returned, and the stack has contained no panic.
//!
//! The stack is driven and seeded, so an input has the same effect twice. Tests: `tests/corpus.rs`, and with many frames
//! `tests/hostile.rs`.

mod addresses;
mod packets;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arbitrary::{Result, Unstructured};
use sockeye::netif::{
    ChannelConfig, ChannelPort, Checksum, FrameBytes, LinkOptions, MacAddr, Medium, TxFrame, channel,
};
use sockeye::{Config, SendMeta, Stack, TcpConfig, TcpListener, TcpSocket, TcpStream, UdpBuilder, UdpSocket};
use sockeye_proto::ip::{self, HeaderChecksum};

use crate::port::{Observer, Plug, Port, assert_panics};
use addresses::{OURS, OURS_ELSEWHERE, is_ours, may_be_sent_to};
use packets::{INSIDE_PORTS, LOOPBACK_PORT, OPEN_PORT};

/// Frames of one input.
const FRAMES_MAX: usize = 400;
/// Frames between two looks at the services.
const BATCH: usize = 16;
/// Time between two of them.
const TICK: Duration = Duration::from_millis(10);
const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
/// Time that passes at the end: longer than anything that a stack waits for without being asked to.
const REST: Duration = Duration::from_secs(3600);
/// Calls of `poll` within it at most.
const POLLS_MAX: usize = 20_000;

/// The kind of interface on which frames arrive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Line {
    /// A device of IP packets.
    Tun,
    /// A device of Ethernet frames.
    Tap,
    /// The stack's own channel.
    Channel,
}

/// Checks outgoing frames: counts them, and keeps the first error.
#[derive(Default)]
struct Watcher {
    frames: u64,
    wrong: Option<String>,
}

impl Observer for Watcher {
    fn note(&mut self, frame: &TxFrame, link_len: usize) {
        self.frames += 1;
        let head = frame.head();
        if self.wrong.is_none() && !may_leave(head, frame.len(), link_len) {
            self.wrong = Some(format!("this left: {head:x?}"));
        }
    }
}

/// Whether a frame is sent to one host, or is a message about neighbors and groups.
fn may_leave(head: &[u8], len: usize, link_len: usize) -> bool {
    if link_len > 0 && head.get(12..14) == Some(&[8, 6]) {
        // ARP solicits hosts, answers them and hosts that probe an address (which have none), and announces our own address.
        let is_reply = head.get(link_len + 7) == Some(&2);
        let target = head.get(link_len + 24..link_len + 28).and_then(|bytes| <[u8; 4]>::try_from(bytes).ok());
        return target.map(IpAddr::from).is_some_and(|target| {
            may_be_sent_to(target) || is_ours(target) || is_reply && target.is_unspecified()
        });
    }
    let packet = head.get(link_len..).unwrap_or_default();
    let Ok((header, range)) = ip::parse_head(packet, len - link_len, HeaderChecksum::Trusted) else {
        return false;
    };
    let dst = header.addresses.dst();
    let first = packet.get(range.start).copied().unwrap_or(0);
    match header.protocol {
        _ if may_be_sent_to(dst) => true,
        ip::PROTOCOL_IGMP => dst.is_multicast(),
        // Neighbor discovery, and reports of groups.
        ip::PROTOCOL_ICMPV6 => dst.is_multicast() && matches!(first, 131..=137 | 143),
        // Behind a hop-by-hop header, which reports of groups have.
        0 => dst.is_multicast(),
        _ => false,
    }
}

/// The other end of the interface.
enum End {
    Port(Arc<Port<Watcher>>),
    Channel(ChannelPort, Watcher),
}

/// The sockets that are bound to the loopback alone, and must not be reached.
struct Inside {
    /// SYNs that came to one of its listeners.
    syns: Arc<AtomicU64>,
    _listeners: Vec<TcpListener>,
    receivers: Vec<UdpSocket>,
    /// A conversation of the stack with itself.
    _server: TcpStream,
    client: TcpStream,
}

/// See the module's head.
pub struct Hostile {
    stack: Stack,
    end: End,
    inside: Inside,
    listener: TcpListener,
    open: UdpSocket,
    any: Option<UdpSocket>,
    now: Duration,
}

/// The target: two choices, then frames.
pub fn hostile(data: &[u8]) {
    let mut u = Unstructured::new(data);
    let line = match u.int_in_range(0..=2u8) {
        Ok(0) => Line::Tun,
        Ok(1) => Line::Tap,
        Ok(_) => Line::Channel,
        Err(_) => return,
    };
    let mut bed = Hostile::new(line, u.arbitrary().unwrap_or(false));
    bed.frames(&mut u, FRAMES_MAX);
    bed.end();
}

impl Hostile {
    /// A stack with its services; `any`: its interface accepts packets to any host.
    pub fn new(line: Line, any: bool) -> Self {
        let config = Config {
            workers: 0,
            connections_max: 64,
            tcp: TcpConfig { syn_backlog: 16, ..TcpConfig::default() },
            ..Config::default()
        };
        let stack = Stack::seeded(config, [7; 16]).expect("these settings are valid");
        let end = attach(&stack, line, any);
        let mut socket = TcpSocket::new_v6(&stack);
        let builder = UdpBuilder::new_v6(&stack);
        socket.set_transparent(any);
        let (listener, any) = if any {
            (
                socket.listen_any(16),
                Some(builder.transparent(true).bind_any().expect("the first of its kind")),
            )
        } else {
            socket.bind(SocketAddr::new([0; 16].into(), OPEN_PORT)).expect("a free port");
            (socket.listen(16), None)
        };
        let listener = listener.expect("no other socket listens there");
        let open =
            UdpSocket::bind_on(&stack, SocketAddr::new([0; 16].into(), OPEN_PORT)).expect("a free port");
        let _ = listener.set_nonblocking(true);
        for socket in std::iter::once(&open).chain(&any) {
            let _ = socket.set_nonblocking(true);
        }
        let inside = Inside::new(&stack);
        Self { stack, end, inside, listener, open, any, now: Duration::from_secs(1) }
    }

    /// Gives the stack as many frames as the bytes describe, at most `most`, and checks its services meanwhile. Returns their
    /// number.
    ///
    /// # Panics
    /// If an invariant of the module's head is violated.
    pub fn frames(&mut self, u: &mut Unstructured<'_>, most: usize) -> usize {
        let mut given = 0;
        let mut has_more = true;
        while has_more && given < most && !u.is_empty() {
            for _ in 0..BATCH.min(most - given) {
                let Ok(frame) = self.frame(u) else {
                    has_more = false;
                    break;
                };
                self.give(frame);
                given += 1;
            }
            self.look();
        }
        given
    }

    /// The number of frames that were given and not refused, for a test that checks that some were accepted.
    pub fn count(&self, name: &str) -> u64 {
        self.stack.counters().iter().find(|(of, _)| *of == name).map_or(0, |(_, count)| *count)
    }

    fn frame(&self, u: &mut Unstructured<'_>) -> Result<Vec<u8>> {
        let is_ethernet = matches!(&self.end, End::Port(port) if port.medium != Medium::Ip);
        if is_ethernet && u.ratio(1, 10)? {
            return packets::arp(u, MAC);
        }
        let packet = packets::packet(u)?.unwrap_or_default();
        let mut frame = if is_ethernet { packets::framed(u, MAC, &packet)? } else { packet };
        if u.ratio(1, 20)? && !frame.is_empty() {
            let at = u.choose_index(frame.len())?;
            frame[at] = u.arbitrary()?;
        }
        Ok(frame)
    }

    fn give(&mut self, frame: Vec<u8>) {
        match &self.end {
            End::Port(port) => port.give(frame),
            End::Channel(port, _) => {
                let bytes = FrameBytes { bytes: &frame, checksum: Checksum::Device, gso_size: 0 };
                // One that is full, or that takes no frame without bytes, has lost it.
                let _ = port.try_send(bytes);
            }
        }
    }

    /// Lets the stack and its services work, and checks the invariants of the module's head.
    fn look(&mut self) {
        self.now += TICK;
        self.stack.poll(self.now);
        while let Ok((stream, _)) = self.listener.accept() {
            assert_meant(stream.local_addr().map(|addr| addr.ip()).ok());
        }
        self.answer();
        self.stack.poll(self.now);
        if let End::Channel(port, watcher) = &mut self.end {
            while let Some(frame) = port.try_recv() {
                watcher.note(&frame, 0);
            }
        }
        let wrong = match &self.end {
            End::Port(port) => port.observer().wrong.take(),
            End::Channel(_, watcher) => watcher.wrong.clone(),
        };
        assert_eq!(wrong, None);
        self.inside.assert_untouched();
        // A socket for every port may have sent anything, so there all of them are believed.
        assert!(
            self.any.is_some() || self.count("ip_path_mtu_learned") == 0,
            "an error about a packet that was never sent"
        );
    }

    /// Public services echo datagrams to their source addresses.
    fn answer(&self) {
        let mut bytes = [0; 64];
        // As many as can have arrived: a service that was made to answer itself would never finish.
        for _ in 0..BATCH {
            let Ok((len, from)) = self.open.recv_from(&mut bytes) else { break };
            let _ = self.open.send_to(&bytes[..len], from);
        }
        let Some(any) = &self.any else { return };
        for _ in 0..BATCH {
            let Ok(meta) = any.recv_msg(&mut [std::io::IoSliceMut::new(&mut bytes)]) else { break };
            assert_meant(Some(meta.dst));
            let back =
                SendMeta { src: Some(meta.dst), src_port: Some(meta.dst_port), ..SendMeta::to(meta.from) };
            let _ = any.send_msg(&[std::io::IoSlice::new(&bytes[..meta.len])], &back);
        }
    }

    /// Lets go of everything, and waits.
    ///
    /// # Panics
    /// If something stays.
    pub fn end(self) {
        let Self { stack, end, inside, listener, open, any, now } = self;
        drop((inside, listener, open, any));
        let (until, mut at) = (now + REST, now);
        for _ in 0..POLLS_MAX {
            if let End::Channel(port, _) = &end {
                while port.try_recv().is_some() {}
            }
            match stack.poll(at).filter(|next| *next <= until) {
                Some(next) => at = next.max(at + Duration::from_micros(1)),
                None => break,
            }
        }
        if let End::Port(port) = &end {
            assert!(port.is_empty(), "frames that were not taken");
        }
        assert_eq!(stack.connection_count(), 0, "connections without a holder");
        assert_eq!(stack.memory_in_use(), 0, "packet memory without a holder");
        assert_panics(&stack, 0);
    }
}

/// A destination that a transparent socket reports is one host, or the stack itself.
fn assert_meant(addr: Option<IpAddr>) {
    let is_one = addr.is_none_or(|addr| {
        let addr = addr.to_canonical();
        may_be_sent_to(addr) || is_ours(addr)
    });
    assert!(is_one, "{addr:?} is reported as a destination");
}

fn attach(stack: &Stack, line: Line, any: bool) -> End {
    let prefixes = |own: [&str; 3]| own.map(|own| own.parse().expect("a prefix"));
    let options = LinkOptions {
        accept_ra: false,
        link_local: false,
        detect_duplicates: false,
        ..LinkOptions::default()
    };
    let port = |medium| Port::new(medium, Watcher::default());
    let attach = |line| match line {
        Line::Channel => {
            let (netif, mut ports) =
                channel(&ChannelConfig { offload: true, ..ChannelConfig::default() }).expect("a channel");
            let id = stack.attach_with(netif, &prefixes(OURS), &options);
            (id, End::Channel(ports.remove(0), Watcher::default()))
        }
        Line::Tun | Line::Tap => {
            let port = port(if line == Line::Tap { Medium::Ethernet(MAC) } else { Medium::Ip });
            (stack.attach_with(Plug(Arc::clone(&port)), &prefixes(OURS), &options), End::Port(port))
        }
    };
    let (id, end) = attach(line);
    let id = id.expect("an interface of its own");
    stack.attach_with(Plug(port(Medium::Ip)), &prefixes(OURS_ELSEWHERE), &options).expect("another one");
    for network in ["0.0.0.0/0", "::/0"] {
        stack.add_route(network.parse().expect("a network"), id).expect("room for it");
    }
    stack.set_any_address(id, any).expect("an interface of this stack");
    end
}

impl Inside {
    fn new(stack: &Stack) -> Self {
        let at = |addr: &str, port| SocketAddr::new(addr.parse().expect("an address"), port);
        let syns = Arc::new(AtomicU64::new(0));
        let listen = |addr| {
            let listener = TcpListener::bind_on(stack, at(addr, LOOPBACK_PORT)).expect("a free port");
            let counted = Arc::clone(&syns);
            listener.set_syn_hook(Some(Box::new(move |syn: sockeye::Syn| {
                counted.fetch_add(1, Ordering::Relaxed);
                syn.ignore();
            })));
            listener
        };
        let receive = |addr, port| {
            let socket = UdpSocket::bind_on(stack, at(addr, port)).expect("a free port");
            let _ = (socket.set_nonblocking(true), socket.set_recv_err(true));
            socket
        };
        let listeners = ["127.0.0.1", "::1"].map(listen).into();
        let receivers: Vec<_> = ["127.0.0.1", "::1"]
            .into_iter()
            .flat_map(|addr| {
                let talking = receive(addr, INSIDE_PORTS[0]);
                talking.connect(at(addr, INSIDE_PORTS[1])).expect("the loopback");
                [receive(addr, LOOPBACK_PORT), talking, receive(addr, INSIDE_PORTS[1])]
            })
            .collect();
        let listener = TcpListener::bind_on(stack, at("127.0.0.1", INSIDE_PORTS[1])).expect("a free port");
        let mut socket = TcpSocket::new_v4(stack);
        socket.bind(at("127.0.0.1", INSIDE_PORTS[0])).expect("a free port");
        socket.set_nonblocking(true);
        let client = socket.connect(at("127.0.0.1", INSIDE_PORTS[1])).expect("the loopback");
        stack.poll(Duration::from_secs(1));
        let (server, _) = listener.accept().expect("a connection of its own");
        Self { syns, _listeners: listeners, receivers, _server: server, client }
    }

    fn assert_untouched(&self) {
        assert_eq!(self.syns.load(Ordering::Relaxed), 0, "a SYN reached a listener of the loopback");
        for socket in &self.receivers {
            let got = socket.recv_from(&mut [0; 64]);
            assert!(got.is_err(), "{:?} of the loopback got something from {got:?}", socket.local_addr());
            let error = socket.recv_err(&mut [0; 64]);
            assert!(error.is_none(), "{:?} of the loopback got {error:?}", socket.local_addr());
        }
        let error = self.client.take_error().ok().flatten();
        assert!(error.is_none(), "a connection of the loopback got {error:?}");
    }
}
