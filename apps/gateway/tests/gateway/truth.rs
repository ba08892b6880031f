//! The far end decides: what the network outside says of a connection is what the program inside hears.
//!
//! The gateway runs in a network namespace whose only way out is a TUN device, and this test is everything behind that: it answers a SYN as its destination's
//! last number asks.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::net::RecvFlags;
use socket2::SockRef;
use sockeye_drivers::testing::skipped;
use sockeye_drivers::{Namespace, Tun, TunConfig};

use crate::common::{Gateway, HOST, accept_all, unavailable};

/// For a byte to come.
const PATIENCE: Duration = Duration::from_secs(20);

/// Connects, which fails in this way and time. Inside.
pub fn fails_within(to: &str, seconds: u64, kind: &str) {
    let to: SocketAddr = to.parse().unwrap();
    let start = Instant::now();
    let error = TcpStream::connect_timeout(&to, Duration::from_secs(seconds)).unwrap_err();
    assert_eq!(format!("{:?}", error.kind()), kind, "{to}: {error}");
    assert!(kind == "TimedOut" || start.elapsed() < Duration::from_secs(seconds), "{to}");
}

/// Writes until nothing more is taken for half a second. Inside.
pub fn write_until_stopped(to: &str) {
    let mut stream = TcpStream::connect(to).unwrap();
    stream.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    let (chunk, mut written) = (vec![7; 64 << 10], 0);
    let stopped = loop {
        match stream.write(&chunk) {
            Ok(len) => written += len,
            Err(error) => break error,
        }
        assert!(written < 256 << 20, "nothing stops the writer");
    };
    assert_eq!(stopped.kind(), ErrorKind::WouldBlock);
}

/// Sends a byte as urgent, and takes the server's, which has nothing behind it until that is answered. Inside.
pub fn urgent(to: &str) {
    let mut stream = TcpStream::connect(to).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"ab").unwrap();
    SockRef::from(&stream).send_out_of_band(b"!").unwrap();
    stream.write_all(b"cd").unwrap();
    takes_urgent(&mut stream, (b"ab", b'?'));
    stream.write_all(b"taken").unwrap();
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, b"cd");
}

/// Takes `text`, and the urgent byte behind it, as a program that does not want it in line.
fn takes_urgent(stream: &mut TcpStream, (text, urgent): (&[u8], u8)) {
    let mut bytes = vec![0; text.len()];
    stream.read_exact(&mut bytes).unwrap();
    assert_eq!(bytes, text);
    let mut poll = [PollFd::new(&*stream, PollFlags::PRI)];
    let patience = PATIENCE.try_into().unwrap();
    assert_eq!(rustix::event::poll(&mut poll, Some(&patience)), Ok(1), "no urgent byte comes");
    let mut byte = [0];
    rustix::net::recv(&*stream, &mut byte, RecvFlags::OOB).unwrap();
    assert_eq!(byte[0], urgent);
}

#[test]
fn an_urgent_byte_goes_both_ways_with_its_mark() {
    if unavailable() {
        return;
    }
    let (server, port) = accept_all(|mut stream| {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        takes_urgent(&mut stream, (b"ab", b'!'));
        stream.read_exact(&mut [0; 2]).unwrap();
        // In one segment with the text before it.
        SockRef::from(&stream).send_out_of_band(b"ab?").unwrap();
        stream.read_exact(&mut [0; 5]).unwrap();
        stream.write_all(b"cd").unwrap();
    });
    Gateway::runs(&["--allow", "127.0.0.1"], &format!("urgent {HOST}:{port}"));
    server.finish(1);
}

#[test]
fn an_icmp_error_is_passed_on_before_anything_is_accepted_and_silence_is_silence() {
    if unavailable() || skipped() {
        return;
    }
    let outside = Namespace::new().unwrap();
    let tun = outside.run(|| {
        let tun = Tun::open(&TunConfig { offload: false, ..TunConfig::default() }).unwrap();
        tun.link().add_addr("198.51.100.1/24".parse().unwrap()).unwrap();
        tun
    });
    let tun = tun.unwrap();
    let device = tun.descriptors().next().unwrap().try_clone_to_owned().unwrap();
    let ends = Arc::new(AtomicBool::new(false));
    let end = Arc::clone(&ends);
    let network = thread::spawn(move || answer(&device, &end));
    for (to, seconds, kind) in [
        ("198.51.100.1:9", 9, "ConnectionRefused"),
        ("198.51.100.10:80", 9, "NetworkUnreachable"),
        ("198.51.100.11:80", 9, "HostUnreachable"),
        // "Communication administratively prohibited": EHOSTUNREACH on Linux.
        ("198.51.100.23:80", 9, "HostUnreachable"),
        ("198.51.100.99:80", 2, "TimedOut"),
        // No route outside.
        ("192.0.2.1:80", 9, "NetworkUnreachable"),
    ] {
        let what = format!("fails-within {to} {seconds} {kind}");
        // A gateway of its own: 198.51.100.1 is an address of its host, an ordinary one.
        outside.run(|| Gateway::runs(&[], &what)).unwrap();
    }
    ends.store(true, Ordering::Relaxed);
    network.join().unwrap();
}

/// Answers a packet to a number from 10 to 25 by "unreachable" of code number - 10, and no other.
fn answer(device: &OwnedFd, ends: &AtomicBool) {
    let mut packet = [0; 2048];
    while !ends.load(Ordering::Relaxed) {
        let Ok(len) = rustix::io::read(device, &mut packet) else {
            thread::sleep(Duration::from_millis(2));
            continue;
        };
        let packet = &packet[..len];
        if len < 40 || packet[0] != 0x45 || !(10..26).contains(&packet[19]) {
            continue;
        }
        let mut icmp = vec![3, packet[19] - 10, 0, 0, 0, 0, 0, 0];
        icmp.extend(&packet[..28]);
        let sum = sum(&icmp);
        icmp[2..4].copy_from_slice(&sum);
        let total = u16::try_from(20 + icmp.len()).unwrap().to_be_bytes();
        let mut ip = vec![0x45, 0, total[0], total[1], 0, 0, 0, 0, 64, 1, 0, 0];
        ip.extend(&packet[16..20]);
        ip.extend(&packet[12..16]);
        let sum = self::sum(&ip);
        ip[10..12].copy_from_slice(&sum);
        rustix::io::write(device, &[ip, icmp].concat()).unwrap();
    }
}

/// The checksum of the Internet (RFC 1071).
fn sum(bytes: &[u8]) -> [u8; 2] {
    let words = bytes.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0)));
    let mut sum: u32 = words.sum();
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!(sum as u16)).to_be_bytes()
}

#[test]
fn an_end_that_does_not_read_stops_the_one_that_writes() {
    if unavailable() {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    // Accepted by the kernel alone, and never read.
    let what = format!("write-until-stopped {HOST}:{port}");
    Gateway::runs(&["--allow", "127.0.0.1"], &what);
    drop(listener);
}
