//! What one hostile sender can do to others: for each table and each limit in `docs/bounds.md`, a host behind one interface
//! fills it while an honest host behind another keeps working.
//!
//! Each test floods, checks by a counter that the bound was met, and then has the honest host move bytes over a connection
//! it had before, over a new one and by datagrams. Neighbors and routers: `link/one_host.rs`. Fragments: `fragments.rs`.

use std::io::{ErrorKind, Read, Write};
use std::time::Duration;

use sockeye::netif::{WireConfig, wire};
use sockeye::{Config, Stack, TcpListener, TcpSocket, TcpStream, UdpSocket};
use sockeye_proto::icmp::{Family, Message};
use sockeye_proto::ip::{Addresses, PROTOCOL_UDP};
use sockeye_proto::seq::SeqNum;
use sockeye_proto::tcp::segment::{Flags, Header, Options};
use sockeye_proto::tcp::wire::{self as tcp, ChecksumIn, Ports};

use crate::common;
use crate::host::{Host, OURS, between, icmp, inwards, packet};
use crate::segments::segment_of;

/// The server's address where the honest host is, and that host's.
const SERVER: &str = "10.8.0.1";
const CLIENT: &str = "10.8.0.2";
/// A connection is established, or a datagram arrives, within this time.
const PATIENCE: Duration = Duration::from_secs(8);

/// A server with a hostile host on one interface, and an honest one on another.
struct Beside {
    host: Host,
    client: Stack,
    listener: TcpListener,
    echo: UdpSocket,
    /// The honest host's connection from before, and the server's end.
    before: (TcpStream, TcpStream),
}

impl Beside {
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut Config)) -> Self {
        let host = Host::with(change);
        let client = common::stack_with(|config| config.workers = 0);
        client.poll(host.now);
        let (here, there) = wire(&WireConfig::default()).unwrap();
        host.stack.attach(here, &[format!("{SERVER}/24").parse().unwrap()]).unwrap();
        client.attach(there, &[format!("{CLIENT}/24").parse().unwrap()]).unwrap();
        let listener = TcpListener::bind_on(&host.stack, format!("{SERVER}:80")).unwrap();
        listener.set_nonblocking(true).unwrap();
        let echo = UdpSocket::bind_on(&host.stack, format!("{SERVER}:7")).unwrap();
        echo.set_nonblocking(true).unwrap();
        let far = begin(&client);
        turn(&host.stack, &client, host.now);
        let (near, _) = listener.accept().unwrap();
        near.set_nonblocking(true).unwrap();
        let mut beside = Self { host, client, listener, echo, before: (far, near) };
        beside.is_served();
        beside
    }

    /// Drives both, with time passing, until `is_done`; returns whether that was in time.
    fn until(&mut self, mut is_done: impl FnMut(&mut Self) -> bool) -> bool {
        let end = self.host.now + PATIENCE;
        while self.host.now < end {
            turn(&self.host.stack, &self.client, self.host.now);
            if is_done(self) {
                return true;
            }
            self.host.now += Duration::from_millis(1);
        }
        false
    }

    /// The connection from before, a new one, and a datagram, each there and back.
    fn is_served(&mut self) {
        let (far, near) = (self.before.0.try_clone().unwrap(), self.before.1.try_clone().unwrap());
        assert!(self.echoed(&far, &near), "the connection from before");
        let far = begin(&self.client);
        let mut near = None;
        let accepted = self.until(|beside| {
            near = beside.listener.accept().ok().map(|(stream, _)| stream);
            near.is_some()
        });
        assert!(accepted, "a new connection");
        let near = near.unwrap();
        near.set_nonblocking(true).unwrap();
        assert!(self.echoed(&far, &near), "over a new connection");
        let udp = UdpSocket::bind_on(&self.client, format!("{CLIENT}:0")).unwrap();
        udp.set_nonblocking(true).unwrap();
        udp.send_to(b"datagram", format!("{SERVER}:7")).unwrap();
        let answered = self.until(|beside| {
            let mut bytes = [0; 64];
            if let Ok((len, from)) = beside.echo.recv_from(&mut bytes) {
                beside.echo.send_to(&bytes[..len], from).unwrap();
            }
            udp.recv(&mut bytes).is_ok_and(|len| &bytes[..len] == b"datagram")
        });
        assert!(answered, "a datagram");
    }

    fn echoed(&mut self, mut far: &TcpStream, mut near: &TcpStream) -> bool {
        let text = [7; 5000];
        let (mut there, mut back, mut sent, mut returned) = (Vec::new(), Vec::new(), 0, 0);
        self.until(|_| {
            sent += far.write(&text[sent..]).unwrap_or(0);
            read_into(near, &mut there);
            returned += near.write(&there[returned..]).unwrap_or(0);
            read_into(far, &mut back);
            back.len() == text.len()
        })
    }

    /// Sends a packet from the hostile host and returns the answers.
    fn hostile(&mut self, packet: &[u8]) -> Vec<Vec<u8>> {
        self.host.send(packet)
    }
}

fn begin(client: &Stack) -> TcpStream {
    let mut socket = TcpSocket::new_v4(client);
    socket.set_nonblocking(true);
    socket.connect(format!("{SERVER}:80").parse().unwrap()).unwrap()
}

/// Runs the due work of both. An answer of one may be input of the other, so a round without frames proves nothing.
fn turn(server: &Stack, client: &Stack, now: Duration) {
    let mut quiet = 0;
    while quiet < 3 {
        let next = [server.poll(now), client.poll(now)].into_iter().flatten().min();
        quiet = if next.is_none_or(|next| next > now) { quiet + 1 } else { 0 };
    }
}

fn read_into(mut stream: &TcpStream, to: &mut Vec<u8>) {
    let mut bytes = [0; 8192];
    match stream.read(&mut bytes) {
        Ok(len) => to.extend_from_slice(&bytes[..len]),
        Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
    }
}

/// A source of the hostile network, another one for each number.
fn forged(number: u32) -> Addresses {
    between(&format!("10.9.0.{}", 10 + number % 200), OURS[0])
}

fn syn(addresses: Addresses, ports: Ports, seq: u32) -> Vec<u8> {
    let options = Options { mss: Some(1460), ..Options::default() };
    let header =
        Header { seq: SeqNum::new(seq), flags: Flags::SYN, window: u16::MAX, options, ..Header::default() };
    segment_of(addresses, ports, &header)
}

/// Completes a handshake with the server's answer.
fn last_ack(addresses: Addresses, ports: Ports, seq: u32, syn_ack: &[u8]) -> Vec<u8> {
    let (_, answer, _) = tcp::parse(&syn_ack[20..], ChecksumIn::Trusted).unwrap();
    let header = Header {
        seq: SeqNum::new(seq) + 1,
        ack: answer.seq + 1,
        flags: Flags::ACK,
        window: u16::MAX,
        ..Header::default()
    };
    segment_of(addresses, ports, &header)
}

fn listen(beside: &Beside, port: u16) -> TcpListener {
    TcpListener::bind_on(&beside.host.stack, format!("{}:{port}", OURS[0])).unwrap()
}

#[test]
fn half_open_connections_of_forged_sources_leave_cookies_to_others() {
    let mut beside = Beside::with(|config| config.tcp.syn_backlog = 64);
    let _any = listen(&beside, 80);
    for number in 0..5000u32 {
        let ports = Ports { src: 1000 + (number / 200) as u16, dst: 80 };
        beside.hostile(&syn(forged(number), ports, number));
    }
    assert!(beside.host.count("syncookies_sent") > 4000);
    beside.is_served();
}

#[test]
fn a_full_accept_queue_affects_only_its_own_listener() {
    let mut beside = Beside::new();
    let _unaccepted = listen(&beside, 81);
    for number in 0..300u16 {
        let ports = Ports { src: 2000 + number, dst: 81 };
        let answers = beside.hostile(&syn(inwards(Family::V4), ports, 7));
        if let Some(answer) = answers.first() {
            beside.hostile(&last_ack(inwards(Family::V4), ports, 7, answer));
        }
    }
    assert!(beside.host.count("listen_overflows") > 100);
    beside.is_served();
}

#[test]
fn an_undecided_source_leaves_room_at_a_listener_with_a_hook() {
    let mut beside = Beside::new();
    let asking = TcpListener::bind_on(&beside.host.stack, "0.0.0.0:90").unwrap();
    asking.set_nonblocking(true).unwrap();
    let kept = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let keep = std::sync::Arc::clone(&kept);
    asking.set_syn_hook(Some(Box::new(move |syn: sockeye::Syn| {
        if syn.peer_addr().ip().to_string() == CLIENT {
            syn.accept();
        } else {
            keep.lock().unwrap().push(syn);
        }
    })));
    for number in 0..6000u16 {
        beside.hostile(&syn(inwards(Family::V4), Ports { src: 2000 + number, dst: 90 }, 7));
    }
    assert!(kept.lock().unwrap().len() < 4096);
    assert!(beside.host.count("listen_overflows") > 1000);
    let mut socket = TcpSocket::new_v4(&beside.client);
    socket.set_nonblocking(true);
    let _far = socket.connect(format!("{SERVER}:90").parse().unwrap()).unwrap();
    assert!(
        beside.until(|_| asking.accept().is_ok()),
        "the hook is asked about the honest host, and admits it"
    );
    kept.lock().unwrap().clear();
    beside.is_served();
}

#[test]
fn errors_to_one_interface_leave_those_to_another() {
    let mut beside = Beside::new();
    let netif = beside.host.netif;
    beside.host.stack.add_route("172.16.0.0/12".parse().unwrap(), netif).unwrap();
    // Enough forged sources to empty the bucket of every destination.
    for number in 0..20_000u32 {
        let src = format!("172.16.{}.{}", number / 200 % 200, 1 + number % 200);
        beside.hostile(&packet(between(&src, OURS[0]), PROTOCOL_UDP, &[0, 9, 0, 9, 0, 8, 0, 0]));
    }
    let count = |name| beside.host.count(name);
    assert!(count("icmp_out_rate_limit_global") + count("icmp_out_rate_limit_host") > 19_000);
    let udp = UdpSocket::bind_on(&beside.client, format!("{CLIENT}:0")).unwrap();
    udp.set_nonblocking(true).unwrap();
    udp.connect(format!("{SERVER}:99")).unwrap();
    udp.send(b"anybody?").unwrap();
    turn(&beside.host.stack, &beside.client, beside.host.now);
    let received = udp.recv(&mut [0; 8]).map_err(|error| error.kind());
    assert_eq!(received, Err(ErrorKind::ConnectionRefused), "with no time to wait for tokens");
    beside.is_served();
}

#[test]
fn answered_floods_fill_only_their_own_interface() {
    let mut beside = Beside::new();
    let ask = Message::EchoRequest { id: 7, seq: 9 };
    for number in 0..5000u32 {
        beside.hostile(&icmp(forged(number), ask, &[1; 500]));
        let stray = Header { flags: Flags::ACK, ..Header::default() };
        beside.hostile(&segment_of(forged(number), Ports { src: 9, dst: 9 }, &stray));
    }
    assert!(beside.host.count("icmp_out_echo_reps") >= 5000 && beside.host.count("resets_out") >= 5000);
    beside.is_served();
}

#[test]
fn unread_datagrams_fill_only_their_own_socket() {
    let mut beside = Beside::new();
    let _unread = UdpSocket::bind_on(&beside.host.stack, format!("{}:53", OURS[0])).unwrap();
    let mut datagram = vec![0, 9, 0, 53, 0, 108, 0, 0];
    datagram.resize(108, 7);
    for number in 0..5000 {
        beside.hostile(&packet(forged(number), PROTOCOL_UDP, &datagram));
    }
    assert!(beside.host.count("udp_rcvbuf_errors") > 1000);
    beside.is_served();
}

#[test]
fn a_peer_that_fills_the_time_wait_table_blocks_no_other() {
    let mut beside = Beside::with(|config| config.tcp.time_wait_max = 64);
    let listener = listen(&beside, 82);
    listener.set_nonblocking(true).unwrap();
    for number in 0..500u16 {
        let ports = Ports { src: 2000 + number, dst: 82 };
        let answer = beside.hostile(&syn(inwards(Family::V4), ports, 7)).remove(0);
        beside.hostile(&last_ack(inwards(Family::V4), ports, 7, &answer));
        // The server closes first, so that the name is its to remember.
        drop(listener.accept().unwrap());
        let fin = beside.host.turn().remove(0);
        let (_, fin, _) = tcp::parse(&fin[20..], ChecksumIn::Trusted).unwrap();
        let flags = Flags::FIN.with(Flags::ACK);
        let header = Header { seq: SeqNum::new(8), ack: fin.seq + 1, flags, ..Header::default() };
        beside.hostile(&segment_of(inwards(Family::V4), ports, &header));
    }
    assert!(beside.host.count("time_wait_overflows") > 100);
    beside.is_served();
}

#[test]
fn forged_segments_of_any_kind_do_not_change_a_connection() {
    let mut beside = Beside::new();
    let peer = beside.before.1.peer_addr().unwrap();
    let acks = beside.host.count("segments_out");
    // From the hostile interface, in the honest peer's name.
    let addresses = between(CLIENT, SERVER);
    let ports = Ports { src: peer.port(), dst: 80 };
    for number in 0..5000u32 {
        let flags = [Flags::ACK, Flags::SYN, Flags::RST, Flags::FIN.with(Flags::ACK)][number as usize % 4];
        let seq = SeqNum::new(number.wrapping_mul(0x9e37_79b9));
        let header = Header { seq, ack: seq, flags, window: 0, ..Header::default() };
        beside.hostile(&segment_of(addresses, ports, &header));
    }
    let sent = beside.host.count("segments_out") - acks;
    assert!(sent < 16, "{sent} challenge acknowledgments, 2 a second at most");
    beside.is_served();
}
