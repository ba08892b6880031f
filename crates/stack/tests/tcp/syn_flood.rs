//! A flood of SYNs from forged addresses, and clients that connect through it (RFC 4987).
//!
//! Two stacks without threads and a link with a delay between them, all on one clock that jumps: the same flood meets
//! the same clients in every run. The forged SYNs are put into the server's queue as frames; its answers to them go
//! nowhere.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::{Random, counter};
use sockeye::netif::{ChannelConfig, ChannelPort, channel};
use sockeye::{Stack, Syn, SynCookies, TcpListener, TcpSocket, TcpStream};
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

/// One side of the link: a stack's port, and the frames on their way to it with the time when they arrive.
struct Side {
    port: ChannelPort,
    coming: VecDeque<(u64, Vec<u8>)>,
}

impl Side {
    /// Passes the frames that have arrived to the stack, as far as there is room.
    fn arrive(&mut self, now: u64) {
        while let Some((_, frame)) = self.coming.front().filter(|(at, _)| *at <= now) {
            if self.port.try_send(&frame[..]).is_err() {
                return;
            }
            self.coming.pop_front();
        }
    }

    /// Passes the frames that were sent to `other`, except those to hosts that do not exist.
    fn leave(&self, other: &mut Self, now: u64) {
        for frame in std::iter::from_fn(|| self.port.try_recv()) {
            if [CLIENT, SERVER].iter().any(|addr| frame.head()[16..20] == *addr) {
                let mut bytes = frame.head().to_vec();
                let head_len = bytes.len();
                bytes.resize(frame.len(), 0);
                frame.payload.copy_to(0, &mut bytes[head_len..]);
                other.coming.push_back((now + DELAY, bytes));
            }
        }
    }
}

/// A server under attack and a client.
struct Siege {
    server: Stack,
    client: Stack,
    listener: TcpListener,
    /// The server's and the client's.
    sides: [Side; 2],
    now: u64,
    random: Random,
    addr: SocketAddr,
}

impl Siege {
    fn new(cookies: SynCookies, timestamps: bool) -> Self {
        let stack = |addr: &str| {
            let stack = crate::common::stack_with(|c| {
                (c.workers, c.tcp.syn_backlog, c.tcp.syn_cookies, c.tcp.timestamps) =
                    (0, BACKLOG, cookies, timestamps);
            });
            let (channel, mut ports) = channel(&ChannelConfig::default()).unwrap();
            let id = stack.attach(channel, &[addr.parse().unwrap()]).unwrap();
            stack.add_route("0.0.0.0/0".parse().unwrap(), id).unwrap();
            (stack, Side { port: ports.remove(0), coming: VecDeque::new() })
        };
        let (server, server_side) = stack("10.0.0.1/24");
        let (client, client_side) = stack("10.0.0.2/24");
        let listener = listen(&server, 80);
        let addr = listener.local_addr().unwrap();
        let (sides, random) = ([server_side, client_side], Random::new("SYN flood"));
        Self { server, client, listener, sides, now: 0, random, addr }
    }

    /// One millisecond: forged segments arrive, both stacks run.
    fn tick(&mut self, forged: usize) {
        let [server, client] = &mut self.sides;
        for _ in 0..forged {
            server.coming.push_front((self.now, forge(&mut self.random)));
        }
        let now = Duration::from_millis(self.now);
        server.arrive(self.now);
        client.arrive(self.now);
        self.server.poll(now);
        self.client.poll(now);
        server.leave(client, self.now);
        client.leave(server, self.now);
        self.now += 1;
    }

    fn listen(&self, port: u16) -> TcpListener {
        listen(&self.server, port)
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

fn listen(server: &Stack, port: u16) -> TcpListener {
    let listener = TcpListener::bind_on(server, (std::net::Ipv4Addr::from(SERVER), port)).unwrap();
    listener.set_nonblocking(true).unwrap();
    listener
}

/// A SYN from an address of no host; one in eight is an acknowledgment that guesses a cookie.
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
    let ip = ip::Header {
        addresses: addrs,
        protocol: ip::PROTOCOL_TCP,
        hop_limit: 64,
        traffic_class: 0,
        flow_label: 0,
    };
    ip::emit(&ip, len, &mut frame).unwrap();
    let sum = ChecksumOut::Full(addrs.pseudo_header(ip::PROTOCOL_TCP, len as u32));
    let ports = Ports { src: 1024 + (dice >> 45) as u16 % 60_000, dst: 80 };
    wire::emit(ports, &header, sum, &mut frame[20..]).unwrap();
    frame
}

#[test]
fn a_flood_blocks_no_client_with_cookies() {
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
fn the_same_flood_blocks_clients_without_cookies() {
    let mut siege = Siege::new(SynCookies::Off, true);
    let accepted = siege.clients(50);
    assert!(accepted <= 25, "{accepted} of 50 clients connected");
    assert_eq!(counter(&siege.server, "syncookies_sent"), 0);
}

#[test]
fn a_connection_from_a_cookie_has_the_agreed_options() {
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
fn a_full_accept_queue_drops_connections_from_cookies() {
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

/// A listener with a hook has said yes, by a cookie, to a client whose last segment finds another listener.
#[test]
fn a_cookie_is_no_yes_of_a_listener_that_has_come_since() {
    for (asked_before, asked_after) in [(true, true), (true, false), (false, true), (false, false)] {
        let mut siege = Siege::new(SynCookies::Always, true);
        let asked = Arc::new(AtomicUsize::new(0));
        let hook = |listener: &TcpListener, is_set: bool| {
            let count = Arc::clone(&asked);
            listener.set_syn_hook(is_set.then(|| -> Box<sockeye::SynHook> {
                Box::new(move |syn: Syn| {
                    count.fetch_add(1, Ordering::SeqCst);
                    syn.accept();
                })
            }));
        };
        let before = siege.listen(81);
        hook(&before, asked_before);
        siege.addr = before.local_addr().unwrap();
        let client = siege.connect();
        // The SYN is answered, and the answer is on its way.
        (0..DELAY + 5).for_each(|_| siege.tick(0));
        assert_eq!(counter(&siege.server, "syncookies_sent"), 1);
        drop(before);
        let after = siege.listen(81);
        hook(&after, asked_after);
        (0..3 * DELAY).for_each(|_| siege.tick(0));
        let is_taken = !asked_before && !asked_after;
        assert_eq!(after.accept().is_ok(), is_taken, "{asked_before} {asked_after}");
        assert_eq!(counter(&siege.server, "syncookies_recv"), u64::from(is_taken));
        assert_eq!(asked.load(Ordering::SeqCst), usize::from(asked_before), "a last segment is no question");
        let error = client.take_error().unwrap().map(|error| error.kind());
        assert_eq!(error, (!is_taken).then_some(std::io::ErrorKind::ConnectionReset));
    }
}
