//! A flood of SYNs from forged addresses, and clients that connect through it (RFC 4987).
//!
//! Two stacks without threads and a link with a delay between them, all on one clock that jumps: the same flood meets
//! the same clients in every run. The forged SYNs are put into the server's queue as frames; its answers to them go
//! nowhere.

mod common;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{Random, counter};
use sockeye::netif::{Checksum, Netif, RxFrame, Sent, TxFrame};
use sockeye::{Stack, SynCookies, TcpListener, TcpSocket, TcpStream};
use sockeye_mbuf::Chain;
use sockeye_proto::ip::{self, Addresses};
use sockeye_proto::tcp::segment::{Flags, Header, Options, Timestamps};
use sockeye_proto::tcp::wire::{self, ChecksumOut, Ports};

/// One way across the link, ms.
const DELAY: u64 = 20;
/// Forged SYNs in a millisecond.
const FORGED: usize = 40;
/// Half-open connections that the server keeps: the flood fills them in 13 ms.
const BACKLOG: usize = 512;
const CLIENT: [u8; 4] = [10, 0, 0, 2];
const SERVER: [u8; 4] = [10, 0, 0, 1];

/// Frames that arrive at one side, with the time when they do.
type Queue = Arc<Mutex<VecDeque<(u64, Vec<u8>)>>>;

/// One side of the link.
struct Port {
    inbox: Queue,
    outbox: Queue,
    now: Arc<AtomicU64>,
}

impl Netif for Port {
    fn mtu(&self) -> u32 {
        1500
    }
    fn queue_count(&self) -> usize {
        1
    }
    fn offloads_checksum(&self) -> bool {
        false
    }
    fn transmit(&self, _: u64, frames: &mut Vec<TxFrame>) -> Sent {
        let at = self.now.load(Ordering::Relaxed) + DELAY;
        for frame in
            frames.drain(..).filter(|frame| [CLIENT, SERVER].iter().any(|a| frame.head()[16..20] == *a))
        {
            let mut bytes = frame.head().to_vec();
            let head_len = bytes.len();
            bytes.resize(frame.len(), 0);
            frame.payload.copy_to(0, &mut bytes[head_len..]);
            self.outbox.lock().unwrap().push_back((at, bytes));
        }
        Sent { queue: 0, dropped_count: 0 }
    }
    fn ring(&self, _: usize) {}
    fn receive(&self, _: usize, max: usize, sink: &mut dyn FnMut(RxFrame<'_>)) -> usize {
        let now = self.now.load(Ordering::Relaxed);
        let due: Vec<_> = {
            let mut inbox = self.inbox.lock().unwrap();
            let count = inbox.iter().take(max).take_while(|(at, _)| *at <= now).count();
            inbox.drain(..count).collect()
        };
        let rest = Chain::new();
        for (_, frame) in &due {
            sink(RxFrame { checksum: Checksum::Software, ..RxFrame::new(frame, &rest) });
        }
        due.len()
    }
    fn wait(&self, _: usize, _: Duration) {}
    fn interrupt(&self, _: usize) {}
}

/// A server under attack and a client.
struct Siege {
    server: Stack,
    client: Stack,
    listener: TcpListener,
    to_server: Queue,
    now: Arc<AtomicU64>,
    random: Random,
    addr: SocketAddr,
}

impl Siege {
    fn new(cookies: SynCookies, timestamps: bool) -> Self {
        let now = Arc::new(AtomicU64::new(0));
        let (to_server, to_client) = (Queue::default(), Queue::default());
        let stack = |inbox: &Queue, outbox: &Queue, addr: &str| {
            let stack = common::stack_with(|c| {
                (c.workers, c.syn_backlog, c.syn_cookies, c.timestamps) = (0, BACKLOG, cookies, timestamps);
            });
            let port = Port { inbox: Arc::clone(inbox), outbox: Arc::clone(outbox), now: Arc::clone(&now) };
            let id = stack.attach(port, &[addr.parse().unwrap()]).unwrap();
            stack.add_route("0.0.0.0/0".parse().unwrap(), id).unwrap();
            stack
        };
        let server = stack(&to_server, &to_client, "10.0.0.1/24");
        let client = stack(&to_client, &to_server, "10.0.0.2/24");
        let listener = TcpListener::bind_on(&server, (std::net::Ipv4Addr::from(SERVER), 80)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let addr = listener.local_addr().unwrap();
        Self { server, client, listener, to_server, now, random: Random::new("SYN flood"), addr }
    }

    /// One millisecond: forged segments arrive, both stacks run.
    fn tick(&mut self, forged: usize) {
        let at = self.now.load(Ordering::Relaxed);
        for _ in 0..forged {
            let frame = forge(&mut self.random);
            self.to_server.lock().unwrap().push_front((at, frame));
        }
        while self.to_server.lock().unwrap().front().is_some_and(|(due, _)| *due <= at) {
            self.server.poll(Duration::from_millis(at));
        }
        self.client.poll(Duration::from_millis(at));
        self.now.store(at + 1, Ordering::Relaxed);
    }

    fn connect(&self) -> TcpStream {
        let mut socket = TcpSocket::new_v4(&self.client);
        socket.set_nonblocking(true);
        socket.connect(self.addr).unwrap()
    }

    /// Lets clients connect through the flood, one every 10 ms. Returns how many of them were accepted within half a
    /// second, before any SYN is sent again.
    fn clients(&mut self, count: usize) -> usize {
        let (mut clients, mut accepted) = (Vec::new(), Vec::new());
        for tick in 0..count * 10 + 500 {
            if tick % 10 == 0 && clients.len() < count {
                clients.push(self.connect());
            }
            self.tick(FORGED);
            while let Ok((stream, _)) = self.listener.accept() {
                accepted.push(stream);
            }
        }
        let names: Vec<_> = clients.iter().map(|client| client.local_addr().unwrap()).collect();
        assert!(accepted.iter().all(|stream| names.contains(&stream.peer_addr().unwrap())));
        let count = accepted.len();
        drop((clients, accepted));
        (0..4 * DELAY).for_each(|_| self.tick(0));
        count
    }
}

/// A SYN from an address that nobody has; one in eight is an acknowledgment that guesses a cookie.
fn forge(random: &mut Random) -> Vec<u8> {
    let dice = random.u64();
    let src = [11 + (dice % 100) as u8, (dice >> 8) as u8, (dice >> 16) as u8, (dice >> 24) as u8];
    let flags = if dice >> 61 == 0 { Flags::ACK } else { Flags::SYN };
    let options = Options {
        mss: Some(1460),
        window_scale: Some(7),
        sack_permitted: true,
        timestamps: Some(Timestamps { val: dice as u32, ecr: 0 }),
        ..Options::default()
    };
    let header = Header {
        seq: sockeye_proto::seq::SeqNum::new(random.u64() as u32),
        ack: sockeye_proto::seq::SeqNum::new(random.u64() as u32),
        flags,
        window: 65_535,
        options,
        ..Header::default()
    };
    let addrs = Addresses::V4 { src: src.into(), dst: SERVER.into() };
    let len = wire::header_len(&header);
    let mut frame = vec![0; 20 + len];
    let ip = ip::Header { addresses: addrs, protocol: ip::PROTOCOL_TCP, hop_limit: 64, traffic_class: 0 };
    ip::emit(&ip, len, &mut frame).unwrap();
    let sum = ChecksumOut::Full(addrs.pseudo_header(ip::PROTOCOL_TCP, len as u32));
    let ports = Ports { src: 1024 + (dice >> 45) as u16 % 60_000, dst: 80 };
    wire::emit(ports, &header, sum, &mut frame[20..]).unwrap();
    frame
}

#[test]
fn with_cookies_a_flood_leaves_every_client_its_connection() {
    for timestamps in [true, false] {
        let mut siege = Siege::new(SynCookies::Pressure, timestamps);
        let before = siege.server.memory_in_use();
        let accepted = siege.clients(200);
        assert!(accepted >= 198, "{accepted} of 200 clients connected");
        let of = |name: &str| counter(&siege.server, name);
        assert!(of("syncookies_sent") > 50_000, "the flood was one: {}", of("syncookies_sent"));
        assert!(of("syncookies_recv") >= 198, "they came by cookies: {}", of("syncookies_recv"));
        assert!(of("syncookies_failed") > 5_000, "guesses: {}", of("syncookies_failed"));
        assert_eq!(
            siege.server.connection_count(),
            0,
            "those that were accepted are closed, no other was made"
        );
        assert_eq!(siege.server.memory_in_use(), before);
    }
}

#[test]
fn without_cookies_the_same_flood_keeps_clients_out() {
    let mut siege = Siege::new(SynCookies::Off, true);
    let accepted = siege.clients(50);
    assert!(accepted <= 25, "{accepted} of 50 clients connected");
    assert_eq!(counter(&siege.server, "syncookies_sent"), 0);
}

#[test]
fn a_connection_made_of_a_cookie_has_what_was_agreed_on() {
    for (timestamps, scaled) in [(true, true), (false, false)] {
        let mut siege = Siege::new(SynCookies::Always, timestamps);
        let client = siege.connect();
        for _ in 0..4 * DELAY {
            siege.tick(0);
        }
        let (server, _) = siege.listener.accept().unwrap();
        assert_eq!(counter(&siege.server, "syncookies_recv"), 1);
        let (there, here) = (client.info().unwrap(), server.info().unwrap());
        assert_eq!((here.state, there.state), ("ESTABLISHED", "ESTABLISHED"));
        let options = if timestamps { 12 } else { 0 };
        assert_eq!((here.snd_mss, there.snd_mss), (1460 - options, 1460 - options));
        // The first acknowledgment is the first segment whose window is scaled.
        assert_eq!(here.snd_wnd > 65_535 || here.snd_wnd % 1024 == 0, scaled, "{}", here.snd_wnd);
    }
}

#[test]
fn a_full_accept_queue_drops_what_a_cookie_brings_back() {
    let mut siege = Siege::new(SynCookies::Always, true);
    let small = TcpSocket::new_v4(&siege.server).listen(1).unwrap();
    small.set_nonblocking(true).unwrap();
    siege.addr.set_port(small.local_addr().unwrap().port());
    let clients: Vec<_> = (0..3).map(|_| siege.connect()).collect();
    for _ in 0..5 * DELAY {
        siege.tick(0);
    }
    assert_eq!(counter(&siege.server, "syncookies_recv"), 3);
    assert_eq!(siege.server.connection_count(), 1);
    assert_eq!(counter(&siege.server, "listen_overflows"), 2);
    drop(clients);
}
