//! A hostile inside beside an honest flow: floods of SYNs, of datagrams and of queries, and readers that do not read.
//!
//! Half of the SYNs have forged sources, and none of them is answered by the host that it is for: the attempts displace each other, and new connections to others get through meanwhile.
//!
//! The flood has a rate, since a flood without one takes the cores from everybody on this machine, with a gateway or without. The test in every run asks only that it goes on, for
//! new connections and bounded memory. On a machine that does nothing else half of the rate is asked for by
//! `SOCKEYE_GATEWAY_FLOODS=0.5 cargo test --release -p sockeye-gateway --test gateway floods -- --nocapture`, in a minute.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, Socket, Type};

use crate::common::{Gateway, HOST, inside_command, unavailable};

/// Packets a second of each flood.
const RATE: u32 = 3000;
/// Of each of the two measurements.
const TIME: Duration = Duration::from_secs(1);
/// Connections whose client does not read.
const SLOW_READERS: usize = 64;
/// New connections that are made beside the floods.
const CONNECTS: u32 = 20;
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

/// The honest flow alone, and then beside the floods. The port `silent` of the host answers nothing. Inside.
pub fn run(echo: &str, endless: &str, silent: u16, least: f64) {
    let mut honest = TcpStream::connect(echo).unwrap();
    honest.set_nodelay(true).unwrap();
    honest.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let slow: Vec<_> = (0..SLOW_READERS).map(|_| TcpStream::connect(endless).unwrap()).collect();
    // Until nothing moves any more on those.
    thread::sleep(TIME / 2);
    let alone = rate(&mut honest);
    let ends = AtomicBool::new(false);
    let beside = thread::scope(|scope| {
        scope.spawn(|| syns(&ends, silent));
        scope.spawn(|| {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            // Each port is a flow.
            flood(&ends, |number| drop(socket.send_to(&[0; 200], (HOST, number as u16))));
        });
        scope.spawn(|| {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            let mut query = *b"\0\0\x01\0\0\x01\0\0\0\0\0\0\x04evil\x04test\0\0\x01\0\x01";
            flood(&ends, |number| {
                query[..2].copy_from_slice(&(number as u16).to_be_bytes());
                let _ = socket.send_to(&query, ("10.0.2.3", 53));
            });
        });
        let beside = rate(&mut honest);
        let slowest = (0..CONNECTS).map(|_| connects(echo)).max().unwrap_or_default();
        println!("new connections beside the floods: {} ms at most", slowest.as_millis());
        ends.store(true, Ordering::Relaxed);
        beside
    });
    drop(slow);
    println!("honest flow: {alone:.0}/s alone, {beside:.0}/s beside floods, {:.2}", beside / alone);
    assert!(beside >= alone * least, "{beside:.0}/s of {alone:.0}/s");
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
fn syns(ends: &AtomicBool, silent: u16) {
    // Its header is ours to write (raw(7)).
    let Ok(socket) = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(255))) else { return };
    let to: SocketAddr = format!("{HOST}:0").parse().unwrap();
    flood(ends, |number| {
        let [.., c, d] = number.wrapping_mul(2_654_435_761).to_be_bytes();
        let from = if number % 2 == 0 { [10, 7, c, d] } else { [10, 0, 2, 100] };
        let mut packet = vec![0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0];
        packet.extend([from, [10, 0, 2, 2]].concat());
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
    let least = std::env::var("SOCKEYE_GATEWAY_FLOODS").unwrap_or_else(|_| "0.01".to_owned());
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
    let options = ["--allow", "127.0.0.1", "--dns", "127.0.0.1:9", "--flows-max", "2000"];
    let what = format!("floods {HOST}:{echo_port} {HOST}:{endless_port} {silent_port} {least}");
    let mut gateway = Gateway::start(&options, &inside_command(&what));
    let mut most = 0;
    while gateway.runs_still() {
        most = most.max(gateway.resident_mib().unwrap_or(0));
        thread::sleep(Duration::from_millis(50));
    }
    let (code, said) = gateway.finish();
    assert_eq!(code, Some(0), "{said}");
    let of_interest = ["honest flow", "new connections"];
    said.lines()
        .filter(|line| of_interest.iter().any(|start| line.starts_with(start)))
        .for_each(|line| println!("{line}"));
    assert!(most < RESIDENT_MAX_MIB, "{most} MiB");
}
