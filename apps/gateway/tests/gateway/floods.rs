//! A hostile inside beside an honest flow: floods of SYNs, of datagrams and of queries, and readers that do not read. And a hostile outside, at a published port.
//!
//! Half of the SYNs have forged sources, and none of them is answered by the host that it is for: the attempts displace each other, and new connections to others get through meanwhile.
//!
//! The flood has a rate, since a flood without one takes the cores from everybody on this machine, with a gateway or without. What it takes in any case, for sending and
//! by the kernel, is measured beside it: the same flood into a device whose frames nobody reads, so it never reaches the gateway. The honest flow's rate is held against that one, and printed
//! against the rate without a flood too.
//!
//! The test in every run asks for a small part of it, which a machine that is busy otherwise leaves, for few beginnings of flows that nobody answers, for new connections and bounded memory. On a machine that does nothing else half of the rate is asked for by
//! `SOCKEYE_GATEWAY_FLOODS=0.5 cargo test --release -p sockeye-gateway --test gateway floods -- --nocapture`, in five rounds.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, Socket, Type};
use sockeye::netif::Prefix;
use sockeye_drivers::{Tun, TunConfig};

use crate::common::{Gateway, HOST, accept_all, eventually, inside_command, temporary, unavailable};
use crate::control;

/// Packets a second of each flood.
const RATE: u32 = 3000;
/// Of each of the measurements.
const TIME: Duration = Duration::from_secs(1);
/// Connections whose client does not read.
const SLOW_READERS: usize = 64;
/// New connections that are made beside the floods.
const CONNECTS: u32 = 20;
/// The least part of its rate that the honest flow keeps in any run, on a machine that is busy otherwise.
const LEAST_EVER: f64 = 0.05;
/// Flows of each kind that the gateway begins without an answer: at once, and a second (`engine/credit.rs`).
const BURST: f64 = 256.0;
const RATE_UNANSWERED: f64 = 500.0;
/// Rounds, whose median counts; where no more than [`LEAST_EVER`] is asked for, one of them has to reach that.
const ROUNDS: usize = 5;
/// `--flows-max` where outsiders send datagrams, and how many of them there are.
const FLOWS_MAX: usize = 64;
const OUTSIDERS: usize = 100;
/// What the gateway may take with all that, MiB.
const RESIDENT_MAX_MIB: u64 = 256;

/// Questions and answers of one connection, a second.
fn rate(stream: &mut TcpStream) -> f64 {
    let (start, mut count) = (Instant::now(), 0u32);
    while start.elapsed() < TIME {
        stream.write_all(b"question").unwrap();
        stream.read_exact(&mut [0; 8]).unwrap();
        count += 1;
    }
    f64::from(count) / start.elapsed().as_secs_f64()
}

/// Calls `send` at the rate until told to end.
fn flood(ends: &AtomicBool, mut send: impl FnMut(u32)) {
    let start = Instant::now();
    for number in 0u32.. {
        if ends.load(Ordering::Relaxed) {
            return;
        }
        send(number);
        let due = Duration::from_secs(1) / RATE * number;
        thread::sleep(due.saturating_sub(start.elapsed()));
    }
}

/// The honest flow alone, beside floods that are dropped on their way, and beside floods. The port `silent` of the host answers nothing. Inside.
pub fn run(echo: &str, endless: &str, silent: u16, least: f64) {
    let mut honest = TcpStream::connect(echo).unwrap();
    honest.set_nodelay(true).unwrap();
    honest.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let slow: Vec<_> = (0..SLOW_READERS).map(|_| TcpStream::connect(endless).unwrap()).collect();
    let _unread = unread_device();
    // Until nothing moves any more on those.
    thread::sleep(TIME / 2);
    let (mut of_dropped, mut of_alone) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let alone = rate(&mut honest);
        let [dropped, beside] = [UNREAD, HOSTS].map(|to| beside_floods(&mut honest, to, silent, echo));
        println!(
            "honest flow: {alone:.0}/s alone, {dropped:.0}/s beside floods that are dropped, {beside:.0}/s beside floods: {:.2} and {:.2}",
            beside / dropped,
            beside / alone
        );
        of_dropped.push(beside / dropped);
        of_alone.push(beside / alone);
        if least <= LEAST_EVER && beside >= dropped * least {
            return;
        }
    }
    drop(slow);
    let [of_dropped, of_alone] = [of_dropped, of_alone].map(|mut ratios| {
        ratios.sort_by(f64::total_cmp);
        ratios[ratios.len() / 2]
    });
    println!(
        "honest flow, the median of {ROUNDS}: {of_dropped:.2} of what dropped floods leave, {of_alone:.2} of all"
    );
    assert!(of_dropped >= least, "{of_dropped:.2} of what dropped floods leave");
}

/// Where a flood goes: to the host and the name server, or nowhere.
#[derive(Clone, Copy, PartialEq)]
struct Targets {
    host: Ipv4Addr,
    names: Ipv4Addr,
}

const HOSTS: Targets = Targets { host: Ipv4Addr::new(10, 0, 2, 2), names: Ipv4Addr::new(10, 0, 2, 3) };
const UNREAD: Targets = Targets { host: Ipv4Addr::new(10, 99, 0, 2), names: Ipv4Addr::new(10, 99, 0, 3) };

/// A device beside the gateway's, whose frames the kernel drops.
fn unread_device() -> Tun {
    let config = TunConfig { name: "unread".to_owned(), queue_len: Some(1), ..TunConfig::default() };
    let device = Tun::open(&config).unwrap();
    device.link().add_addr(Prefix::new([10, 99, 0, 1].into(), 24).unwrap()).unwrap();
    device
}

/// The honest flow's rate beside floods to there, and that new connections are made meanwhile.
fn beside_floods(honest: &mut TcpStream, to: Targets, silent: u16, echo: &str) -> f64 {
    let ends = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| syns(&ends, to.host, silent));
        scope.spawn(|| {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            // Each port is a flow.
            flood(&ends, |number| drop(socket.send_to(&[0; 200], (to.host, number as u16))));
        });
        scope.spawn(|| {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            let mut query = *b"\0\0\x01\0\0\x01\0\0\0\0\0\0\x04evil\x04test\0\0\x01\0\x01";
            flood(&ends, |number| {
                query[..2].copy_from_slice(&(number as u16).to_be_bytes());
                let _ = socket.send_to(&query, (to.names, 53));
            });
        });
        let beside = rate(honest);
        if to == HOSTS {
            let slowest = (0..CONNECTS).map(|_| connects(echo)).max().unwrap_or_default();
            println!("new connections beside the floods: {} ms at most", slowest.as_millis());
        }
        ends.store(true, Ordering::Relaxed);
        beside
    })
}

/// How long a new connection takes, with a question and its answer.
fn connects(echo: &str) -> Duration {
    let start = Instant::now();
    let mut stream = TcpStream::connect(echo).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream.write_all(b"question").unwrap();
    stream.read_exact(&mut [0; 8]).unwrap();
    start.elapsed()
}

/// SYNs to a port that does not answer, every other one in another host's name.
fn syns(ends: &AtomicBool, host: Ipv4Addr, silent: u16) {
    // Its header is ours to write (raw(7)).
    let socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(255))).unwrap();
    let to = SocketAddr::from((host, 0));
    flood(ends, |number| {
        let [.., c, d] = number.wrapping_mul(2_654_435_761).to_be_bytes();
        let from = if number % 2 == 0 { [10, 7, c, d] } else { [10, 0, 2, 100] };
        let mut packet = vec![0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0];
        packet.extend([from, host.octets()].concat());
        let mut segment = [[c, d], silent.to_be_bytes()].concat();
        segment.extend([0, 0, 1, 0, 0, 0, 0, 0, 0x50, 2, 0xff, 0xff, 0, 0, 0, 0]);
        let sum: u32 = [&packet[12..20], &[0, 6, 0, 20], &segment]
            .concat()
            .chunks(2)
            .map(|word| u32::from(word[0]) << 8 | u32::from(word[1]))
            .sum();
        let sum = (sum & 0xffff) + (sum >> 16);
        let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
        segment[16..18].copy_from_slice(&sum.to_be_bytes());
        packet.extend(segment);
        let _ = socket.send_to(&packet, &to.into());
    });
}

/// A port whose queue of connections is full, so the kernel drops SYNs for it; and what keeps it so.
fn silent() -> (u16, impl Sized) {
    let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
    listener.bind(&any.into()).unwrap();
    listener.listen(0).unwrap();
    let addr = listener.local_addr().unwrap().as_socket().unwrap();
    let mut clients = Vec::new();
    // Until one is not answered.
    while let Ok(client) = TcpStream::connect_timeout(&addr, Duration::from_millis(300)) {
        clients.push(client);
    }
    (addr.port(), (listener, clients))
}

#[test]
fn an_honest_flow_goes_on_beside_floods_and_memory_stays_bounded() {
    if unavailable() {
        return;
    }
    let least = std::env::var("SOCKEYE_GATEWAY_FLOODS").unwrap_or_else(|_| LEAST_EVER.to_string());
    let echo = TcpListener::bind("127.0.0.1:0").unwrap();
    let endless = TcpListener::bind("127.0.0.1:0").unwrap();
    let [echo_port, endless_port] = [&echo, &endless].map(|it| it.local_addr().unwrap().port());
    let (silent_port, _silent) = silent();
    thread::spawn(move || {
        for mut stream in echo.incoming().flatten() {
            thread::spawn(move || {
                let mut bytes = [0; 8];
                stream.set_nodelay(true).unwrap();
                while stream.read_exact(&mut bytes).is_ok() && stream.write_all(&bytes).is_ok() {}
            });
        }
    });
    thread::spawn(move || {
        for mut stream in endless.incoming().flatten() {
            thread::spawn(move || while stream.write_all(&[7; 64 << 10]).is_ok() {});
        }
    });
    // No resolver answers. Attempts have a quarter of the table of flows.
    let socket = temporary("floods");
    let ctl = socket.to_str().unwrap();
    let options = ["--allow", "127.0.0.1", "--dns", "127.0.0.1:9", "--flows-max", "2000", "--ctl", ctl];
    let what = format!("floods {HOST}:{echo_port} {HOST}:{endless_port} {silent_port} {least}");
    let mut gateway = Gateway::start(&options, &inside_command(&what));
    eventually("the gateway answers", || control::ctl(&socket, &["stats"]).is_ok());
    let (mut most, mut before) = (0, (Instant::now(), 0.0));
    while gateway.runs_still() {
        most = most.max(gateway.resident_mib().unwrap_or(0));
        let asked = Instant::now();
        // If it does not answer it ends.
        if let Ok(stats) = control::ctl(&socket, &["stats"]) {
            let begun = stats["begun"].as_f64().unwrap();
            // Between the two answers at most.
            let (new, seconds) = (begun - before.1, before.0.elapsed().as_secs_f64());
            // Connections and flows of datagrams, and those that are answered.
            let bound =
                2.0 * (BURST + RATE_UNANSWERED * seconds) + (SLOW_READERS + CONNECTS as usize + 1) as f64;
            assert!(new <= bound, "{new} flows have begun in {seconds} s");
            before = (asked, begun);
        }
        thread::sleep(Duration::from_millis(200));
    }
    let (code, said) = gateway.finish();
    assert_eq!(code, Some(0), "{said}");
    let of_interest = ["honest flow", "new connections"];
    said.lines()
        .filter(|line| of_interest.iter().any(|start| line.starts_with(start)))
        .for_each(|line| println!("{line}"));
    assert!(before.1 > SLOW_READERS as f64, "the bound was held against {} flows", before.1);
    assert!(most < RESIDENT_MAX_MIB, "{most} MiB");
}

/// Connects once datagrams of as many outsiders have come as there are places for flows. Inside.
pub fn connects_beside_outsiders(port: u16, to: &str) {
    let socket = UdpSocket::bind(("0.0.0.0", port)).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut outsiders = HashSet::new();
    while outsiders.len() < FLOWS_MAX {
        outsiders.insert(socket.recv_from(&mut [0]).unwrap().1);
    }
    let to: SocketAddr = to.parse().unwrap();
    let mut stream = TcpStream::connect_timeout(&to, Duration::from_secs(20)).unwrap();
    stream.read_exact(&mut [0]).unwrap();
}

fn free_port() -> u16 {
    UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[test]
fn datagrams_of_many_outsiders_leave_places_for_connections_from_inside() {
    if unavailable() {
        return;
    }
    let (_server, port) = accept_all(|mut stream| drop(stream.write_all(b"!")));
    let published = free_port();
    let ports = format!("127.0.0.1:{published}:7000/udp");
    let options = ["--allow", "127.0.0.1", "--flows-max", &FLOWS_MAX.to_string(), "-p", &ports];
    let mut gateway = Gateway::start(&options, &inside_command(&format!("outsiders 7000 {HOST}:{port}")));
    let outsiders: Vec<_> = (0..OUTSIDERS).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
    while gateway.runs_still() {
        // Until the port is open, they are refused.
        outsiders.iter().for_each(|socket| drop(socket.send_to(b"!", ("127.0.0.1", published))));
        thread::sleep(Duration::from_millis(20));
    }
    let (code, said) = gateway.finish();
    assert_eq!(code, Some(0), "{said}");
}

#[test]
fn an_outsider_whose_datagram_nobody_takes_inside_keeps_no_flow() {
    if unavailable() {
        return;
    }
    let (socket, published) = (temporary("nobody"), free_port());
    let ports = format!("127.0.0.1:{published}:7000/udp");
    let options = ["--ctl", socket.to_str().unwrap(), "-p", &ports];
    let mut gateway = Gateway::start(&options, &["sleep".into(), "100".into()]);
    let outsider = UdpSocket::bind("127.0.0.1:0").unwrap();
    eventually("a flow has begun and ended", || {
        let stats = control::ctl(&socket, &["stats"]).unwrap_or_default();
        if stats["begun"] == 0 {
            outsider.send_to(b"!", ("127.0.0.1", published)).unwrap();
        }
        stats["begun"].as_u64() >= Some(1) && stats["flows"] == 0
    });
    gateway.terminate();
    gateway.wait();
}
