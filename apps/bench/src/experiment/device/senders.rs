//! The senders: a stock iperf3, or threads of this process.
//!
//! ```text
//!   iperf3                                   we
//!   cookie (37 bytes)          ───────────►
//!                              ◄───────────  PARAM_EXCHANGE
//!   parameters (JSON)          ───────────►
//!                              ◄───────────  CREATE_STREAMS
//!   each stream: cookie        ───────────►
//!                              ◄───────────  TEST_START, TEST_RUNNING
//!   data, until it is ended
//! ```
//!
//! That is as much of iperf3's protocol as makes a client send; the results that it would send at the end are counted here
//! anyway. A whole server is in `services/iperf3`, for tokio.
//!
//! Does not depend on the measurement.
//!
//! Invariants: every wait is bounded by [`CONNECT_MAX`]. A [`Program`] is ended when it is dropped.
//!
//! Tests: `mod.rs`.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use sockeye::{TcpListener, TcpStream};
use sockeye_drivers::Namespace;

use crate::providers::kernel::{Congestion, congestion};
use crate::tun::client;

/// The sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sender {
    /// The program `iperf3`.
    Iperf3,
    /// A thread of this process for each stream.
    Own,
}

impl Sender {
    /// iperf3 where it is installed.
    pub fn here() -> Self {
        let mut version = Command::new(PROGRAM);
        version.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        if version.status().is_ok_and(|status| status.success()) { Sender::Iperf3 } else { Sender::Own }
    }

    /// In a label.
    pub fn name(self) -> &'static str {
        match self {
            Sender::Iperf3 => PROGRAM,
            Sender::Own => "own client, for want of iperf3",
        }
    }
}

/// Streams that are open.
pub struct Sending {
    /// Our ends.
    pub servers: Vec<TcpStream>,
    /// The other ends, if they are ours too.
    pub clients: Vec<std::net::TcpStream>,
    /// Other programs that have them.
    pub program: Option<Program>,
}

/// A program that sends until this is dropped.
pub struct Program {
    process: Child,
    /// The program would end with it.
    _control: Option<TcpStream>,
}

impl Drop for Program {
    fn drop(&mut self) {
        // Both can only fail because it has ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Opens `count` streams from the namespace to `to`, where `listener`, which does not block, is ours. Blocks until they are open.
pub fn start(
    sender: Sender,
    from: &Namespace,
    listener: &TcpListener,
    to: SocketAddr,
    count: usize,
) -> io::Result<Sending> {
    match sender {
        Sender::Own => {
            let mut sending = Sending { servers: Vec::new(), clients: Vec::new(), program: None };
            for _ in 0..count {
                sending.clients.push(from.run(|| client::connect(to))??);
                sending.servers.push(accept(listener, || Ok(()))?);
            }
            Ok(sending)
        }
        Sender::Iperf3 => iperf3(from, listener, to, count),
    }
}

fn iperf3(from: &Namespace, listener: &TcpListener, to: SocketAddr, count: usize) -> io::Result<Sending> {
    let mut command = Command::new(PROGRAM);
    for (flag, value) in [
        ("-c", to.ip().to_string()),
        ("-p", to.port().to_string()),
        ("-P", count.to_string()),
        ("-t", SECONDS_MAX.to_string()),
    ] {
        command.arg(flag).arg(value);
    }
    if let Congestion::Set(name) = congestion() {
        command.args(["-C", name]);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let mut program = Program { process: from.run(|| command.spawn())??, _control: None };
    let mut next = || {
        let stream = accept(listener, || match program.process.try_wait()? {
            None => Ok(()),
            Some(status) => Err(io::Error::other(format!("{PROGRAM} ended early: {status}"))),
        })?;
        stream.set_read_timeout(Some(CONNECT_MAX))?;
        io::Result::Ok(stream)
    };
    let mut control = next()?;
    let mut cookie = [0; COOKIE_LEN];
    control.read_exact(&mut cookie)?;
    control.write_all(&[PARAM_EXCHANGE])?;
    let mut len = [0; 4];
    control.read_exact(&mut len)?;
    let len = usize::try_from(u32::from_be_bytes(len)).unwrap_or(usize::MAX);
    if len > PARAMETERS_MAX {
        return Err(io::Error::other(format!("{PROGRAM} has {len} bytes of parameters")));
    }
    // Their text was printed above.
    control.read_exact(&mut vec![0; len])?;
    control.write_all(&[CREATE_STREAMS])?;
    let mut servers = Vec::with_capacity(count);
    for _ in 0..count {
        let mut stream = next()?;
        let mut shown = [0; COOKIE_LEN];
        stream.read_exact(&mut shown)?;
        if shown != cookie {
            return Err(io::Error::other("a stream of another test"));
        }
        stream.set_read_timeout(None)?;
        servers.push(stream);
    }
    control.write_all(&[TEST_START, TEST_RUNNING])?;
    program._control = Some(control);
    Ok(Sending { servers, clients: Vec::new(), program: Some(program) })
}

/// The next connection, as long as `check` finds nothing wrong with the sender.
fn accept(listener: &TcpListener, mut check: impl FnMut() -> io::Result<()>) -> io::Result<TcpStream> {
    let deadline = Instant::now() + CONNECT_MAX;
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false)?;
                return Ok(stream);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => check()?,
            Err(error) => return Err(error),
        }
        if Instant::now() > deadline {
            let message = format!("no sender connected within {} s", CONNECT_MAX.as_secs());
            return Err(io::Error::new(io::ErrorKind::TimedOut, message));
        }
        thread::sleep(ACCEPT_PAUSE);
    }
}

const PROGRAM: &str = "iperf3";
/// Streams that iperf3 has at most.
pub const STREAMS_MAX: usize = 128;
/// How long it would send if it were not ended: longer than any sample.
const SECONDS_MAX: u32 = 600;
/// States, of iperf3's.
const TEST_START: u8 = 1;
const TEST_RUNNING: u8 = 2;
const PARAM_EXCHANGE: u8 = 9;
const CREATE_STREAMS: u8 = 10;
const COOKIE_LEN: usize = 37;
/// Bytes of parameters that are read.
const PARAMETERS_MAX: usize = 1 << 20;
/// How long one step of opening streams may take.
const CONNECT_MAX: Duration = Duration::from_secs(10);
const ACCEPT_PAUSE: Duration = Duration::from_millis(1);
