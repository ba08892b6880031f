//! A hostile inside beside an honest flow: floods of SYNs, of datagrams and of queries, and readers that do not read.
//!
//! Only flows that are there are asked about: connects to hosts that do not answer count as flows until they time out, so a flood of SYNs keeps new connections out.
//!
//! The flood has a rate, since a flood without one takes the cores from everybody on this machine, with a gateway or without. The test in every run asks only that the honest flow goes
//! on and that memory stays bounded; `SOCKEYE_GATEWAY_FLOODS=0.5` asks for half of the honest flow's rate, on a machine that does nothing else.

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

/// The honest flow alone, and then beside the floods. Inside.
pub fn run(echo: &str, endless: &str, least: f64) {
    let mut honest = TcpStream::connect(echo).unwrap();
    honest.set_nodelay(true).unwrap();
    honest.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let slow: Vec<_> = (0..SLOW_READERS).map(|_| TcpStream::connect(endless).unwrap()).collect();
    // Until nothing moves any more on those.
    thread::sleep(TIME / 2);
    let alone = rate(&mut honest);
    let ends = AtomicBool::new(false);
    let beside = thread::scope(|scope| {
        scope.spawn(|| syns(&ends));
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
        ends.store(true, Ordering::Relaxed);
        beside
    });
    drop(slow);
    println!("honest flow: {alone:.0}/s alone, {beside:.0}/s beside floods, {:.2}", beside / alone);
    assert!(beside >= alone * least, "{beside:.0}/s of {alone:.0}/s");
}

/// SYNs of sources that are others', to hosts of which none answers.
fn syns(ends: &AtomicBool) {
    // Its header is ours to write (raw(7)).
    let Ok(socket) = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(255))) else { return };
    let to: SocketAddr = "192.0.2.1:0".parse().unwrap();
    flood(ends, |number| {
        let [.., c, d] = number.wrapping_mul(2_654_435_761).to_be_bytes();
        let mut packet = vec![0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0, 10, 7, c, d, 192, 0, 2, 1];
        let mut segment = [[c, d], [0, 80]].concat();
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

#[test]
fn an_honest_flow_goes_on_beside_floods_and_memory_stays_bounded() {
    if unavailable() {
        return;
    }
    let least = std::env::var("SOCKEYE_GATEWAY_FLOODS").unwrap_or_else(|_| "0.02".to_owned());
    let echo = TcpListener::bind("127.0.0.1:0").unwrap();
    let endless = TcpListener::bind("127.0.0.1:0").unwrap();
    let [echo_port, endless_port] = [&echo, &endless].map(|it| it.local_addr().unwrap().port());
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
    // No resolver answers; destinations without a route fail at once, and those that take long fill the table of flows.
    let options =
        ["--allow", "127.0.0.1", "--allow", "192.0.2.0/24", "--dns", "127.0.0.1:9", "--flows-max", "2000"];
    let what = format!("floods {HOST}:{echo_port} {HOST}:{endless_port} {least}");
    let mut gateway = Gateway::start(&options, &inside_command(&what));
    let mut most = 0;
    while gateway.runs_still() {
        most = most.max(gateway.resident_mib().unwrap_or(0));
        thread::sleep(Duration::from_millis(50));
    }
    let (code, said) = gateway.finish();
    assert_eq!(code, Some(0), "{said}");
    println!("{}", said.lines().find(|line| line.starts_with("honest flow")).unwrap_or_default());
    assert!(most < RESIDENT_MAX_MIB, "{most} MiB");
}
