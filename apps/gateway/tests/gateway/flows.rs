//! Many flows, each with sizes and an end of its own, held against what both ends know of it.
//!
//! Both ends derive a flow's plan from its number, which the client sends first. `SOCKEYE_GATEWAY_FLOWS` is how many there are: 1,000 unless it says otherwise.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use socket2::SockRef;

use crate::common::{Gateway, HOST, eventually, unavailable};

/// Clients at a time, and as many servers at each port.
const CLIENTS: u64 = 16;
/// Ports of the server: each lends clients as many names again, which rest for a minute after their connection.
const PORTS: usize = 8;
/// For a byte to come.
const PATIENCE: Duration = Duration::from_secs(60);

/// How a flow ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    /// The client sends, ends, and then reads to the end.
    ClientFirst,
    /// The server sends, ends, and then reads to the end.
    ServerFirst,
    /// The client resets after half of what it sends.
    ClientResets,
    /// The server resets after half of what it sends.
    ServerResets,
}

struct Plan {
    seed: u64,
    out: usize,
    back: usize,
    end: End,
}

impl Plan {
    fn of(number: u64) -> Self {
        let seed = mix(number + 1);
        // Up to 64 KiB, and most of them small.
        let size = |bits: u64| (bits % (1 << (4 + bits % 13))) as usize;
        let end = match seed >> 60 {
            0..=6 => End::ClientFirst,
            7..=12 => End::ServerFirst,
            13..=14 => End::ClientResets,
            _ => End::ServerResets,
        };
        Self { seed, out: size(mix(seed)), back: size(mix(seed ^ 2)), end }
    }

    fn out(&self) -> Vec<u8> {
        bytes(self.seed, self.out)
    }

    fn back(&self) -> Vec<u8> {
        bytes(!self.seed, self.back)
    }
}

/// SplitMix64's function of a number.
fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> =
        (0..len.div_ceil(8) as u64).flat_map(|at| mix(seed ^ at).to_be_bytes()).collect();
    bytes.truncate(len);
    bytes
}

/// The clients. Inside.
pub fn run(to: &str, count: u64) {
    let (host, ports) = to.split_once(':').unwrap();
    let ports: Vec<u16> = ports.split(',').map(|port| port.parse().unwrap()).collect();
    thread::scope(|scope| {
        for client in 0..CLIENTS {
            let ports = &ports;
            scope.spawn(move || {
                for number in (client..count).step_by(CLIENTS as usize) {
                    let port = ports[(number / CLIENTS) as usize % ports.len()];
                    let to: SocketAddr = format!("{host}:{port}").parse().unwrap();
                    client_of(to, number).unwrap_or_else(|error| panic!("flow {number}: {error}"));
                }
            });
        }
    });
}

fn client_of(to: SocketAddr, number: u64) -> io::Result<()> {
    let plan = Plan::of(number);
    let mut stream = TcpStream::connect(to)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let (out, back) = (plan.out(), plan.back());
    stream.write_all(&number.to_be_bytes())?;
    match plan.end {
        End::ClientFirst => {
            stream.write_all(&out)?;
            stream.shutdown(Shutdown::Write)?;
            reads(&mut stream, &back)
        }
        End::ServerFirst => {
            reads(&mut stream, &back)?;
            stream.write_all(&out)
        }
        End::ClientResets => {
            stream.write_all(&out[..out.len() / 2])?;
            SockRef::from(&stream).set_linger(Some(Duration::ZERO))
        }
        End::ServerResets => {
            match stream.write_all(&out) {
                // The reset was there before, and the kernel tells of it once.
                Err(error) if error.kind() == ErrorKind::ConnectionReset => Ok(()),
                written => written.and_then(|()| reads_until_reset(&mut stream, &back)),
            }
        }
    }
}

fn server_of(mut stream: TcpStream) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut number = [0; 8];
    match stream.read_exact(&mut number) {
        // One that the client has reset, whose bytes were lost with it.
        Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ok(()),
        read => read?,
    }
    let plan = Plan::of(u64::from_be_bytes(number));
    let (out, back) = (plan.out(), plan.back());
    match plan.end {
        End::ClientFirst => {
            reads(&mut stream, &out)?;
            stream.write_all(&back)
        }
        End::ServerFirst => {
            stream.write_all(&back)?;
            stream.shutdown(Shutdown::Write)?;
            reads(&mut stream, &out)
        }
        End::ClientResets => reads_until_reset(&mut stream, &out[..out.len() / 2]),
        End::ServerResets => {
            stream.write_all(&back[..back.len() / 2])?;
            SockRef::from(&stream).set_linger(Some(Duration::ZERO))
        }
    }
}

/// Everything, and then the end.
fn reads(stream: &mut TcpStream, expected: &[u8]) -> io::Result<()> {
    let mut got = Vec::new();
    stream.read_to_end(&mut got)?;
    if got == expected {
        Ok(())
    } else {
        Err(io::Error::other(format!("{} bytes of {}, or others", got.len(), expected.len())))
    }
}

/// A part of it, from its beginning, and then a reset: what is on its way when a connection is reset may be lost.
fn reads_until_reset(stream: &mut TcpStream, expected: &[u8]) -> io::Result<()> {
    let mut got = Vec::new();
    match stream.read_to_end(&mut got) {
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        Err(error) => return Err(error),
        Ok(_) => return Err(io::Error::other("it has ended and was not reset")),
    }
    if expected.starts_with(&got) { Ok(()) } else { Err(io::Error::other("other bytes before a reset")) }
}

#[test]
fn flows_of_all_sizes_and_ends_carry_their_bytes_and_end_as_the_far_end_did() {
    if unavailable() {
        return;
    }
    let count: u64 = std::env::var("SOCKEYE_GATEWAY_FLOWS").map_or(1000, |count| count.parse().unwrap());
    let (served, failed) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicUsize::new(0)));
    let mut ports = Vec::new();
    for _ in 0..PORTS {
        let listener = Arc::new(TcpListener::bind("127.0.0.1:0").unwrap());
        ports.push(listener.local_addr().unwrap().port().to_string());
        for _ in 0..CLIENTS {
            let (listener, served, failed) =
                (Arc::clone(&listener), Arc::clone(&served), Arc::clone(&failed));
            thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    if let Err(error) = server_of(stream) {
                        eprintln!("a server: {error}");
                        failed.fetch_add(1, Ordering::Relaxed);
                    }
                    served.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    }
    let options = ["--allow", "127.0.0.1", "--loops", "2"];
    Gateway::runs(&options, &format!("flows {HOST}:{} {count}", ports.join(",")));
    eventually("the servers have seen all ends", || served.load(Ordering::Relaxed) == count);
    assert_eq!(failed.load(Ordering::Relaxed), 0);
}
