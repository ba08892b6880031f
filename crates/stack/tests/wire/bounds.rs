//! Everything that outside input can make grow has a bound, and established traffic continues while a host floods it.
//!
//! A server has two interfaces: behind one there is a client whose transfers are hashed all the time, behind the other
//! a hostile host. Each flood continues until its bound has been met (its counter shows that) and, after
//! that, until a transfer that began under it has arrived. The table is `docs/bounds.md`.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::common::{counter, watchdog};
use sockeye::netif::{ChannelConfig, ChannelPort, MacAddr, Medium, SendError, WireConfig, channel, wire};
use sockeye::{Stack, Syn, TcpListener, TcpStream, UdpSocket};
use sockeye_proto::icmp::{Family, Message};
use sockeye_proto::ip::fragment::{self, Fragment};
use sockeye_proto::ip::reass::{COST_MAX, DATAGRAMS_MAX};
use sockeye_proto::ip::{self, Addresses, Header, Sum};
use sockeye_proto::neighbor::LEARNED_MAX;
use sockeye_proto::tcp::segment::{self, Flags, Options};
use sockeye_proto::tcp::wire::{self as tcp, ChecksumOut, Ports};
use sockeye_proto::{arp, udp};

/// The server as the flooder sees it.
const VICTIM: Ipv4Addr = Ipv4Addr::new(10, 7, 0, 1);
/// The server as the client sees it.
const SERVER: &str = "10.9.0.1:80";
const SYN_BACKLOG: usize = 128;
const RCVBUF: usize = 64 << 10;
/// Memory that the floods together may use beyond the transfers' buffers: fragments, one datagram socket, and
/// frames in queues and in flight.
const FLOOD_MAX: usize = COST_MAX + RCVBUF + (8 << 20);
/// Both ends' buffers and the bytes on the wire.
const TRANSFER_MAX: usize = 8 << 20;
/// Bytes of a transfer.
const LEN: usize = 300_000;
/// The time that a flood may take to meet its bound, on a busy machine and under a sanitizer.
const PATIENCE: Duration = Duration::from_secs(120);

struct Siege {
    server: Stack,
    port: ChannelPort,
    done: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    sent: u32,
}

impl Siege {
    fn new(medium: Medium) -> Self {
        let server = crate::common::stack_with(|c| {
            c.tcp.syn_backlog = SYN_BACKLOG;
            c.rcvbuf = RCVBUF as u32;
            c.udp_rcvbuf = RCVBUF as u32;
            c.rcvbuf_max = RCVBUF as u32;
            c.memory_max = 256 << 20;
        });
        let client = crate::common::stack();
        let (here, there) = wire(&WireConfig::default()).unwrap();
        server.attach(here, &["10.9.0.1/24".parse().unwrap()]).unwrap();
        client.attach(there, &["10.9.0.2/24".parse().unwrap()]).unwrap();
        let (netif, mut ports) = channel(&ChannelConfig { medium, ..ChannelConfig::default() }).unwrap();
        server.attach(netif, &["10.7.0.1/16".parse().unwrap()]).unwrap();
        let (done, stop) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let listener = TcpListener::bind_on(&server, SERVER).unwrap();
        let echo = std::thread::spawn(move || {
            while let Ok((mut stream, _)) = listener.accept() {
                let len = std::io::copy(&mut stream.try_clone().unwrap(), &mut stream).unwrap();
                stream.shutdown(std::net::Shutdown::Write).unwrap();
                // A connection without a byte is the end.
                if len == 0 {
                    return;
                }
            }
        });
        let (counted, stopped) = (Arc::clone(&done), Arc::clone(&stop));
        let transfers = std::thread::spawn(move || {
            while !stopped.load(Ordering::Acquire) {
                transfer(&client);
                counted.fetch_add(1, Ordering::AcqRel);
            }
            drop(TcpStream::connect_on(&client, SERVER).unwrap());
        });
        let port = ports.pop().unwrap();
        Self { server, port, done, stop, threads: vec![echo, transfers], sent: 0 }
    }

    fn count(&self, name: &str) -> u64 {
        counter(&self.server, name)
    }

    /// Sends the frames that `make` builds from a running number, until `is_met` and a transfer has begun and ended since.
    fn flood(&mut self, what: &str, make: impl Fn(u32) -> Vec<u8>, is_met: impl Fn(&Self) -> bool) {
        let begun = Instant::now();
        let mut enough = None;
        while enough.is_none_or(|enough| self.done.load(Ordering::Acquire) < enough) {
            for _ in 0..64 {
                self.sent += 1;
                match self.port.try_send(&make(self.sent)[..]) {
                    Ok(()) => {}
                    // The server is not fast enough: its queue is one of the bounds. On a machine of few cores it
                    // needs this one.
                    Err(SendError::Full) => std::thread::sleep(Duration::from_micros(100)),
                    Err(error) => panic!("{what}: {error}"),
                }
            }
            self.port.try_recv_batch(usize::MAX, &mut Vec::new());
            let in_use = self.server.memory_in_use();
            assert!(in_use <= FLOOD_MAX + TRANSFER_MAX, "{what}: {in_use} bytes in use");
            if enough.is_none() && is_met(self) {
                // One may have been nearly over.
                enough = Some(self.done.load(Ordering::Acquire) + 2);
            }
            assert!(begun.elapsed() < PATIENCE, "{what}: no bound was met, or no transfer made progress");
        }
    }

    fn end(self) {
        self.stop.store(true, Ordering::Release);
        self.threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
}

/// There and back, and compared.
fn transfer(client: &Stack) {
    let data: Vec<u8> = (0..LEN).map(|i| (i % 251) as u8).collect();
    let stream = TcpStream::connect_on(client, SERVER).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::io::Write::write_all(&mut &stream, &data).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
        });
        let mut back = Vec::new();
        std::io::Read::read_to_end(&mut &stream, &mut back).unwrap();
        assert_eq!(crate::common::hash_of(&back), crate::common::hash_of(&data));
    });
}

/// A source that is another one for each number.
fn forged(number: u32) -> Addresses {
    let [_, _, c, d] = number.to_be_bytes();
    Addresses::V4 { src: Ipv4Addr::new(10, 7, c, d | 2), dst: VICTIM }
}

fn packet(addresses: Addresses, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let header = Header { addresses, protocol, hop_limit: 64, traffic_class: 0, flow_label: 0 };
    let mut packet = vec![0; addresses.header_len()];
    ip::emit(&header, payload.len(), &mut packet).unwrap();
    packet.extend_from_slice(payload);
    packet
}

fn syn(number: u32, port: u16) -> Vec<u8> {
    let options = Options { mss: Some(1460), ..Options::default() };
    let header = segment::Header { flags: Flags::SYN, window: 65_535, options, ..segment::Header::default() };
    let (addresses, len) = (forged(number), tcp::header_len(&header));
    let mut bytes = vec![0; len];
    let sum = ChecksumOut::Full(addresses.pseudo_header(ip::PROTOCOL_TCP, len as u32));
    tcp::emit(Ports { src: 1024 + (number >> 16) as u16, dst: port }, &header, sum, &mut bytes).unwrap();
    packet(addresses, ip::PROTOCOL_TCP, &bytes)
}

fn datagram(number: u32, port: u16, len: usize) -> Vec<u8> {
    let header = udp::Header { src_port: 1 + (number >> 16) as u16, dst_port: port };
    let mut bytes = udp::emit(&header, len, udp::ChecksumOut::Zero).unwrap().to_vec();
    bytes.resize(bytes.len() + len, 0x5a);
    packet(forged(number), ip::PROTOCOL_UDP, &bytes)
}

/// The first fragment of a datagram whose other fragments never arrive.
fn fragment(number: u32) -> Vec<u8> {
    let addresses = forged(number);
    let header =
        Header { addresses, protocol: ip::PROTOCOL_UDP, hop_limit: 64, traffic_class: 0, flow_label: 0 };
    let place = Fragment { id: number, offset: 0, more: true };
    let mut packet = vec![0; fragment::header_len(&addresses)];
    fragment::emit(&header, &place, 1400, &mut packet).unwrap();
    packet.resize(packet.len() + 1400, 7);
    packet
}

fn ping(number: u32) -> Vec<u8> {
    let mut bytes = Message::EchoRequest { id: 7, seq: 9 }.emit(Family::V4).unwrap().to_vec();
    bytes.extend([0x5a; 1000]);
    let checksum = Sum::ZERO.add_bytes(&bytes).checksum();
    bytes[2..4].copy_from_slice(&checksum.to_be_bytes());
    packet(forged(number), ip::PROTOCOL_ICMP, &bytes)
}

#[test]
fn floods_of_handshakes_meet_their_bounds() {
    let _guard = watchdog("floods_of_handshakes_meet_their_bounds");
    let mut siege = Siege::new(Medium::Ip);
    let bind = |port: u16| TcpListener::bind_on(&siege.server, SocketAddr::from((VICTIM, port))).unwrap();
    let (_plain, asking) = (bind(81), bind(82));
    let kept = Arc::new(std::sync::Mutex::new(Vec::new()));
    let keep = Arc::clone(&kept);
    asking.set_syn_hook(Some(Box::new(move |syn: Syn| keep.lock().unwrap().push(syn))));
    siege.flood("half-open", |n| syn(n, 81), |siege| siege.count("syncookies_sent") > 1000);
    let overflows = siege.count("listen_overflows");
    siege.flood("undecided", |n| syn(n, 82), |siege| siege.count("listen_overflows") > overflows + 1000);
    assert_eq!(kept.lock().unwrap().len(), 4096);
    let resets = siege.count("resets_out");
    siege.flood("strays", |n| syn(n, 83), |siege| siege.count("resets_out") > resets + 1000);
    siege.end();
}

#[test]
fn floods_of_datagrams_and_fragments_meet_their_bounds() {
    let _guard = watchdog("floods_of_datagrams_and_fragments_meet_their_bounds");
    let mut siege = Siege::new(Medium::Ip);
    let unread = UdpSocket::bind_on(&siege.server, SocketAddr::from((VICTIM, 53))).unwrap();
    for len in [0, 1, 1400] {
        let errors = siege.count("udp_rcvbuf_errors");
        let what = format!("datagrams of {len}");
        siege.flood(
            &what,
            |n| datagram(n, 53, len),
            |siege| siege.count("udp_rcvbuf_errors") > errors + 1000,
        );
    }
    unread.set_nonblocking(true).unwrap();
    let held = std::iter::from_fn(|| unread.recv(&mut [0; 2048]).ok()).count();
    assert!(held > 0 && held <= RCVBUF / 64, "{held} datagrams waited");
    let limited =
        |siege: &Siege| siege.count("icmp_out_rate_limit_global") + siege.count("icmp_out_rate_limit_host");
    siege.flood("closed ports", |n| datagram(n, 54, 10), |siege| limited(siege) > 1000);
    siege.flood("echo requests", ping, |siege| siege.count("icmp_out_echo_reps") > 20_000);
    let fails = |siege: &Siege| siege.count("ip_frag_no_room") + siege.count("ip_reasm_evicted");
    siege.flood("fragments", fragment, |siege| fails(siege) > 2 * DATAGRAMS_MAX as u64);
    siege.end();
}

#[test]
fn a_flood_of_neighbors_meets_its_bound() {
    let _guard = watchdog("a_flood_of_neighbors_meets_its_bound");
    let mac = MacAddr([2, 0, 0, 0, 0, 1]);
    let mut siege = Siege::new(Medium::Ethernet(mac));
    let request = |number: u32| {
        let [_, b, c, d] = number.to_be_bytes();
        let sender = [2, 9, b, c, d, 9];
        let Addresses::V4 { src, .. } = forged(number) else { unreachable!("it is IPv4") };
        let mut frame = [[0xff; 6], sender].concat();
        frame.extend([0x08, 0x06]);
        frame.extend(arp::Packet::request(sender, src, VICTIM).emit());
        frame
    };
    siege.flood("ARP requests", request, |siege| siege.count("arp_in") > 4 * LEARNED_MAX as u64);
    let neighbors = siege.server.neighbors().len();
    assert!((LEARNED_MAX / 2..=LEARNED_MAX + 1).contains(&neighbors), "{neighbors} neighbors");
    siege.end();
}
