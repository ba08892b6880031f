//! The kernel's end of a connection, which is also where everything is counted.
//!
//! Does not depend on the other side.
//!
//! Invariant: a sample is one connection, reset at its end, so that nothing of it is left for the next.
//!
//! Tests: with the command.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use super::Work;
use crate::providers::kernel;

/// One measurement.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// In the work's unit.
    pub value: f64,
    /// Cores that both ends used.
    pub cores: f64,
}

/// Bytes of a read or write.
const CHUNK: usize = 256 << 10;
/// Calls between two looks at the clock.
const CALLS: usize = 8;
/// Longest time that a call may take.
const STALL_MAX: Duration = Duration::from_secs(10);

/// Connects, works, and counts for `timed` after `warm_up`, with the time that both ends have used by `cpu`. Blocks for
/// as long.
pub fn sample(
    (to, port): (IpAddr, u16),
    work: Work,
    (warm_up, timed): (Duration, Duration),
    cpu: impl Fn() -> io::Result<Duration>,
) -> io::Result<Sample> {
    // A far end that has ended is noticed here, not by waiting for it.
    cpu()?;
    let mut stream = connect(SocketAddr::new(to, port))?;
    let mut buffer = vec![0; CHUNK];
    spend(&mut stream, work, &mut buffer, warm_up)?;
    let (used, start) = (cpu()?, Instant::now());
    let count = spend(&mut stream, work, &mut buffer, timed)?;
    let elapsed = start.elapsed().as_secs_f64();
    let cores = cpu()?.saturating_sub(used).as_secs_f64() / elapsed;
    let value = match work {
        Work::Receive | Work::Send | Work::Lent => count as f64 * 8.0 / 1e9 / elapsed,
        Work::Rr => count as f64 / elapsed,
    };
    Ok(Sample { value, cores })
}

/// A stream as a bulk client has it, in the caller's network namespace, whose end is a reset.
pub fn connect(to: SocketAddr) -> io::Result<TcpStream> {
    let socket = kernel::socket()?;
    socket.set_tcp_nodelay(true)?;
    socket.set_linger(Some(Duration::ZERO))?;
    socket.connect_timeout(&to.into(), STALL_MAX)?;
    // A peer that stands still for so long has failed: report that instead of waiting.
    socket.set_read_timeout(Some(STALL_MAX))?;
    socket.set_write_timeout(Some(STALL_MAX))?;
    Ok(socket.into())
}

/// Works for so long. Returns bytes, or round trips.
fn spend(stream: &mut TcpStream, work: Work, buffer: &mut [u8], span: Duration) -> io::Result<u64> {
    let (start, mut count) = (Instant::now(), 0);
    while start.elapsed() < span {
        for _ in 0..CALLS {
            count += match work {
                Work::Receive => stream.write(buffer)? as u64,
                Work::Send | Work::Lent => match stream.read(buffer)? {
                    0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                    read => read as u64,
                },
                Work::Rr => {
                    stream.write_all(&[1])?;
                    stream.read_exact(&mut buffer[..1])?;
                    1
                }
            };
        }
    }
    Ok(count)
}
