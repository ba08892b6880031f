//! The inside is the attacker: frames that no kernel would send, into a loop without a device.
//!
//! The loop is the shipped one, but for what drives it. It runs in a network namespace with nothing but its loopback, where services listen at every address of the
//! host; rules permit everything but what they must name. After each run the services have seen nothing, flows and packet memory are within their bounds, and an
//! honest flow works. `SOCKEYE_GATEWAY_FRAMES` is the number of frames: 100,000 unless it says otherwise.

mod hidden;

use std::cell::Cell;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::panic;
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::sync::{Arc, Mutex, Once};
use std::time::{Duration, Instant};

use sockeye::netif::{ChannelConfig, ChannelPort, Checksum, FrameBytes, channel};
use sockeye_drivers::Namespace;
use sockeye_drivers::link::KernelLink;
use sockeye_drivers::testing::skipped;
use tokio::sync::Notify;
use tokio::task::{LocalSet, yield_now};

use super::forwards::Forwards;
use super::port::join;
use super::{Cx, Shared, new_stack, serve_flows};
use crate::flows::Flows;
use crate::lan::{Facts, Router};
use crate::plan::Plan;
use crate::policy::{Policy, rule};
use crate::rates::Rates;
use crate::resolvers::Resolvers;
use crate::upstream::Upstream;
pub use hidden::{HIDDEN, packet};

/// Flows at a time in these tests.
const FLOWS_MAX: u32 = 256;
/// Packet memory, bytes.
const MEMORY_MAX: usize = 32 << 20;

/// What all of it may take, with tables and sockets, MiB.
const RESIDENT_MAX_MIB: u64 = 192;
/// What the second half of the frames may add to that, MiB: all bounds are reached before.
const GROWTH_MAX_MIB: u64 = 24;

/// Memory of this process, KiB.
fn resident_kib() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_ascii_whitespace().next().unwrap().parse().unwrap()
}

/// Services of the host that the inside must not reach.
struct Services {
    port: u16,
    tcp: Vec<TcpListener>,
    udp: Vec<UdpSocket>,
}

impl Services {
    /// At every address of both families.
    fn new() -> Self {
        let any: [IpAddr; 2] = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
        let first = TcpListener::bind((any[0], 0)).unwrap();
        let port = first.local_addr().unwrap().port();
        // The second takes IPv6 alone, as the first has IPv4's port.
        let second = socket2::Socket::new(socket2::Domain::IPV6, socket2::Type::STREAM, None).unwrap();
        second.set_only_v6(true).unwrap();
        second.bind(&SocketAddr::new(any[1], port).into()).unwrap();
        second.listen(64).unwrap();
        let udp6 = socket2::Socket::new(socket2::Domain::IPV6, socket2::Type::DGRAM, None).unwrap();
        udp6.set_only_v6(true).unwrap();
        udp6.bind(&SocketAddr::new(any[1], port).into()).unwrap();
        let services = Self {
            port,
            tcp: vec![first, second.into()],
            udp: vec![UdpSocket::bind((any[0], port)).unwrap(), udp6.into()],
        };
        services.tcp.iter().for_each(|listener| listener.set_nonblocking(true).unwrap());
        services.udp.iter().for_each(|socket| socket.set_nonblocking(true).unwrap());
        services
    }

    fn assert_untouched(&self) {
        for listener in &self.tcp {
            assert!(listener.accept().is_err(), "a connection has got to {:?}", listener.local_addr());
        }
        for socket in &self.udp {
            let heard = socket.recv_from(&mut [0; 64]);
            assert!(heard.is_err(), "a datagram has got to {:?}: {heard:?}", socket.local_addr());
        }
    }
}

/// SplitMix64, which replays from its seed.
struct Random(u64);

impl Random {
    fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.draw() % bound as u64) as usize
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.draw() as u8).collect()
    }
}

/// A destination: mostly one of those that must not be reached, sometimes the gateway's own or any other.
fn destination(random: &mut Random) -> IpAddr {
    match random.below(8) {
        0 => Plan::default().host[random.below(2)],
        1 => Plan::default().names[random.below(2)],
        2 => Ipv4Addr::from_bits(random.draw() as u32).into(),
        3 => Ipv6Addr::from_bits(u128::from(random.draw()) << 64 | u128::from(random.draw())).into(),
        _ => HIDDEN[random.below(HIDDEN.len())].parse().unwrap(),
    }
}

/// A source: mostly one and the same, sometimes forged: another host's, one of ours, or none that can be.
fn source(random: &mut Random, to: IpAddr) -> IpAddr {
    let index = usize::from(to.is_ipv6());
    match random.below(6) {
        0 => destination_of(random, to.is_ipv4()),
        1 => Plan::default().host[index],
        _ => Plan::default().inside[index],
    }
}

fn destination_of(random: &mut Random, is_v4: bool) -> IpAddr {
    loop {
        let addr = destination(random);
        if addr.is_ipv4() == is_v4 {
            return addr;
        }
    }
}

/// A frame: a well-formed packet, one with some of its bytes changed, or noise.
fn frame(random: &mut Random, port: u16) -> Vec<u8> {
    if random.below(20) == 0 {
        let len = random.below(200) + 1;
        return random.bytes(len);
    }
    let to = destination(random);
    let from = source(random, to);
    let ports =
        [(random.below(64) as u16 + 40_000).to_be_bytes(), port_of(random, port).to_be_bytes()].concat();
    let (protocol, inside) = match random.below(8) {
        0..=3 => (6, [ports, segment(random)].concat()),
        4..=5 => {
            let len = random.below(600);
            let text = random.bytes(len);
            (17, [&ports[..], &((text.len() + 8) as u16).to_be_bytes(), &[0, 0], &text].concat())
        }
        6 => {
            let kind = if to.is_ipv4() { 8 } else { 128 };
            (if to.is_ipv4() { 1 } else { 58 }, [&[kind, 0, 0, 0][..], &random.bytes(12)].concat())
        }
        _ => {
            let len = random.below(100);
            (random.draw() as u8, random.bytes(len))
        }
    };
    let mut bytes = packet(from, to, protocol, inside);
    if random.below(4) == 0 {
        for _ in 0..=random.below(6) {
            let at = random.below(bytes.len());
            bytes[at] = random.draw() as u8;
        }
    }
    bytes
}

fn port_of(random: &mut Random, port: u16) -> u16 {
    match random.below(8) {
        0 => 53,
        1 => random.draw() as u16,
        _ => port,
    }
}

/// What follows the ports in a segment: a SYN, mostly.
fn segment(random: &mut Random) -> Vec<u8> {
    let flags = if random.below(3) == 0 { random.draw() as u8 } else { 2 };
    let mut rest = random.bytes(8);
    rest.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
    let len = if random.below(2) == 0 { random.below(300) } else { 0 };
    rest.extend(random.bytes(len));
    rest
}

impl Shared {
    /// What is permitted; flows, and bytes of packet memory; bytes of the largest packet.
    pub fn for_tests(allow: &[String], (flows_max, memory_max): (u32, usize), mtu: u32) -> Arc<Self> {
        let rules = allow.iter().map(|text| rule::allow(text).unwrap()).collect();
        let (flows, _) = Flows::new(flows_max, Rates::default(), None).unwrap();
        let plan = Plan::default();
        let facts = Facts { plan, has_v6: true, mac: Facts::mac_of(&plan), mtu, search: Vec::new() };
        Arc::new(Self {
            policy: Policy::new(rules, plan),
            upstream: Upstream::Direct,
            flows,
            forwards: Forwards::new(true),
            resolvers: Resolvers { addrs: Vec::new(), next_after: Duration::ZERO },
            device_gone: Notify::new(),
            plan,
            router: Arc::new(Router::new(facts, 0)),
            mtu,
            memory_max,
            flows_max: flows_max as usize,
            busy: Duration::ZERO,
            queues: None,
            captures: Mutex::default(),
        })
    }
}

/// A loop on a channel, with its runtime's tasks.
struct Loop {
    cx: Rc<Cx>,
    port: ChannelPort,
    start: Instant,
}

impl Loop {
    fn new(allow: &[String]) -> Self {
        let shared = Shared::for_tests(allow, (FLOWS_MAX, MEMORY_MAX), 1500);
        let stack = new_stack(&shared).unwrap();
        let (channel, mut ports) = channel(&ChannelConfig::default()).unwrap();
        join(&stack, &shared, channel, None).unwrap();
        let start = Instant::now();
        let cx = Cx::new(stack, shared, None);
        serve_flows(&cx).unwrap();
        Self { cx, port: ports.remove(0), start }
    }

    /// Gives frames, and lets the loop handle them. Frames out are thrown away.
    async fn give(&self, frames: &[Vec<u8>]) {
        for bytes in frames {
            // As from a device that has looked at the checksums: so changed bytes get further.
            let frame = FrameBytes { bytes, checksum: Checksum::Device, gso_size: 0 };
            // One that is too long, or finds no memory, is lost, as on a device.
            let _ = self.port.try_send(frame);
        }
        self.turn().await;
        while self.port.try_recv().is_some() {}
    }

    async fn turn(&self) {
        self.cx.stack.poll(self.start.elapsed());
        // The tasks that were woken, and those that they wake.
        for _ in 0..4 {
            yield_now().await;
        }
    }
}

thread_local! {
    /// Panics of this thread. The stack contains its own, and tokio those of tasks: each goes on without a word to a test.
    static PANICS: Cell<u32> = const { Cell::new(0) };
}

/// Counts this process's panics from now on, each with its thread.
fn count_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let print = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            PANICS.set(PANICS.get() + 1);
            print(info);
        }));
    });
}

/// Set in the process that [`by_itself`] starts.
const CASE: &str = "SOCKEYE_GATEWAY_CASE";

/// Runs `body` in another process of this test binary, where no other test takes memory. `test` is the name of the test that calls it.
fn by_itself(test: &str, body: impl FnOnce()) {
    if std::env::var_os(CASE).is_some_and(|case| case == test) {
        return body();
    }
    let mut process = Command::new(std::env::current_exe().unwrap());
    process.args([test, "--exact", "--nocapture", "--test-threads=1"]).env(CASE, test);
    let ended = process.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&ended.stdout);
    println!("{said}");
    eprintln!("{}", String::from_utf8_lossy(&ended.stderr));
    assert!(ended.status.success() && said.contains("1 passed"), "{test} by itself: {}", ended.status);
}

/// Runs a test in a namespace with a loopback and nothing else.
fn alone(test: impl AsyncFnOnce() + Send) {
    if skipped() {
        return;
    }
    count_panics();
    let namespace = Namespace::new().unwrap();
    namespace
        .run(|| {
            // An address of the host's own, as of its link.
            KernelLink::new("lo").add_addr("198.51.100.7/32".parse().unwrap()).unwrap();
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            LocalSet::new().block_on(&runtime, test());
        })
        .unwrap();
}

#[test]
fn no_frame_leads_to_the_host_itself_and_an_honest_flow_works_afterwards() {
    by_itself(
        "engine::hostile::no_frame_leads_to_the_host_itself_and_an_honest_flow_works_afterwards",
        || {
            alone(hostile_inside);
        },
    );
}

async fn hostile_inside() {
    let frames: usize = std::env::var("SOCKEYE_GATEWAY_FRAMES").map_or(100_000, |n| n.parse().unwrap());
    let services = Services::new();
    let honest = TcpListener::bind("198.51.100.7:0").unwrap();
    let honest_addr = honest.local_addr().unwrap();
    // Careless rules: everything, in three ways, but no address of the host by itself.
    let port = services.port;
    let rules =
        [format!("*:{port}"), format!("0.0.0.0/0:{port}"), format!("[::]/0:{port}"), "*:53".to_owned()];
    let served = Loop::new(&[&rules[..], &[format!("198.51.100.7:{}", honest_addr.port())]].concat());
    let mut random = Random(7);
    let before = resident_kib();
    let (batches, mut half) = (frames.div_ceil(64), 0);
    for number in 0..batches {
        if number == batches / 2 {
            half = resident_kib();
        }
        let batch: Vec<_> = (0..64).map(|_| frame(&mut random, port)).collect();
        served.give(&batch).await;
        assert!(served.cx.shared.flows.totals().flows <= FLOWS_MAX);
    }
    services.assert_untouched();
    let totals = served.cx.shared.flows.totals();
    // Some 5,000 of 100,000 frames were refused; the count varies with the speed of the machine.
    assert!(totals.refused > frames as u64 / 50, "the rules were asked: {totals:?}");
    let grown = [before, half].map(|than| resident_kib().saturating_sub(than) / 1024);
    println!("{frames} frames: {totals:?}; MiB more than before and than at half: {grown:?}");
    assert!(grown[0] < RESIDENT_MAX_MIB && grown[1] < GROWTH_MAX_MIB, "memory: {grown:?} MiB");
    honest_flow(&served, honest, honest_addr).await;
    assert_eq!(PANICS.get(), 0, "panics of the stack or of a task, which are printed above");
}

/// A connection and a byte each way, by segments of this test's own making.
async fn honest_flow(served: &Loop, server: TcpListener, to: SocketAddr) {
    let (from, from_port) = (Plan::default().inside[0], 39_000u16);
    let segment = |seq: u32, ack: u32, flags: u8, text: &[u8]| {
        let head =
            [&from_port.to_be_bytes()[..], &to.port().to_be_bytes(), &seq.to_be_bytes(), &ack.to_be_bytes()];
        let rest = [&[0x50, flags, 0xff, 0xff, 0, 0, 0, 0][..], text];
        packet(from, to.ip(), 6, [head.concat(), rest.concat()].concat())
    };
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut sent = segment(1000, 0, 2, b"");
    let mut answered = None;
    while Instant::now() < deadline && answered.is_none() {
        let _ = served.port.try_send(&sent[..]);
        for _ in 0..50 {
            served.turn().await;
            tokio::time::sleep(Duration::from_millis(1)).await;
            while let Some(frame) = served.port.try_recv() {
                let mut bytes = vec![0; frame.len()];
                frame.copy_to(&mut bytes);
                let is_ours = bytes[0] == 0x45 && bytes[9] == 6 && bytes[22..24] == from_port.to_be_bytes();
                if is_ours && bytes[33] == 0x12 {
                    answered = Some(u32::from_be_bytes(bytes[24..28].try_into().unwrap()));
                }
            }
        }
    }
    let iss = answered.expect("an honest connection is answered");
    sent = segment(1001, iss.wrapping_add(1), 0x18, b"!");
    let _ = served.port.try_send(&sent[..]);
    let reading = tokio::task::spawn_blocking(move || {
        let (mut stream, _) = server.accept().unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        stream.write_all(&byte).unwrap();
        byte
    });
    while !reading.is_finished() {
        served.turn().await;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(reading.await.unwrap(), *b"!");
}
