//! An embedder without threads: one loop owns the stack, its sockets and the time.
//!
//! `embedder [connections] [bytes]` makes a stack with `workers = 0`, moves bytes over its connections with
//! non-blocking sockets, and calls `Stack::poll` with the time of its own clock. Where nothing can move, it
//! sleeps until the time that `poll` named: a program with a loop of its own would look at its other work.

use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use sockeye::{Config, Stack, TcpListener, TcpSocket, TcpStream};

const USAGE: &str = "usage: embedder [connections, 1 to 1000; default 4] [bytes for each; default 20000000]";

/// The most that one turn of the loop moves for one connection, bytes.
const CHUNK: usize = 64 << 10;

fn main() -> ExitCode {
    let Some((connections, bytes)) = arguments() else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match run(connections, bytes) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("embedder: {error}");
            ExitCode::FAILURE
        }
    }
}

fn arguments() -> Option<(usize, usize)> {
    let mut args = std::env::args().skip(1);
    let connections = args.next().map_or(Some(4), |arg| arg.parse().ok())?;
    let bytes = args.next().map_or(Some(20_000_000), |arg| arg.parse().ok())?;
    (args.next().is_none() && (1..=1000).contains(&connections)).then_some((connections, bytes))
}

/// One connection and how far it is.
struct Flow {
    client: TcpStream,
    server: Option<TcpStream>,
    sent: usize,
    shut: bool,
    received: usize,
    ended: bool,
}

fn run(connections: usize, bytes: usize) -> io::Result<()> {
    let stack = Stack::new(Config { workers: 0, ..Config::default() })?;
    let mut socket = TcpSocket::new_v4(&stack);
    socket.set_nonblocking(true);
    socket.bind(([127, 0, 0, 1], 7).into())?;
    let listener = socket.listen(connections)?;
    let mut flows = Vec::new();
    for _ in 0..connections {
        let mut socket = TcpSocket::new_v4(&stack);
        socket.set_nonblocking(true);
        let client = socket.connect(listener.local_addr()?)?;
        flows.push(Flow { client, server: None, sent: 0, shut: false, received: 0, ended: false });
    }
    let (start, mut progress) = (Instant::now(), Progress::new(connections * bytes));
    let buf = vec![0x5a; CHUNK];
    while !flows.iter().all(|flow| flow.ended) {
        let mut moved = accept(&listener, &mut flows)?;
        for flow in &mut flows {
            moved |= flow.turn(&buf, bytes)?;
        }
        progress.print(flows.iter().map(|f| f.received).sum());
        let next = stack.poll(start.elapsed());
        if !moved {
            wait(next, start)?;
        }
    }
    if let Some(short) = flows.iter().find(|flow| flow.received != bytes) {
        return Err(io::Error::other(format!("{} of {bytes} bytes arrived", short.received)));
    }
    let (took, total) = (start.elapsed(), connections * bytes);
    let rate = total as f64 * 8e-9 / took.as_secs_f64();
    println!("{connections} connections, {total} bytes in {took:.2?} on one thread: {rate:.2} Gbit/s");
    Ok(())
}

/// Sleeps until the stack wants to be called. With nothing moving and nothing due, nothing ever would.
fn wait(next: Option<Duration>, start: Instant) -> io::Result<()> {
    let Some(next) = next else {
        return Err(io::Error::other("nothing moves and no timer runs"));
    };
    std::thread::sleep(next.saturating_sub(start.elapsed()));
    Ok(())
}

/// Takes the connections that have come to their flows; true if there was one.
fn accept(listener: &TcpListener, flows: &mut [Flow]) -> io::Result<bool> {
    let mut any = false;
    loop {
        let (server, from) = match listener.accept() {
            Ok(accepted) => accepted,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(any),
            Err(error) => return Err(error),
        };
        server.set_nonblocking(true)?;
        for flow in &mut *flows {
            if flow.client.local_addr()? == from {
                flow.server = Some(server);
                break;
            }
        }
        any = true;
    }
}

impl Flow {
    /// Writes and reads as much as goes without waiting; true if anything did.
    fn turn(&mut self, buf: &[u8], bytes: usize) -> io::Result<bool> {
        let mut moved = false;
        if self.sent < bytes {
            let part = buf.len().min(bytes - self.sent);
            if let Some(taken) = would_block(self.client.write(&buf[..part]))? {
                self.sent += taken;
                moved = true;
            }
        } else if !self.shut {
            self.client.shutdown(Shutdown::Write)?;
            (self.shut, moved) = (true, true);
        }
        let Some(server) = self.server.as_mut().filter(|_| !self.ended) else {
            return Ok(moved);
        };
        let mut sink = [0; CHUNK];
        if let Some(got) = would_block(server.read(&mut sink))? {
            self.received += got;
            self.ended = got == 0;
            moved = true;
        }
        Ok(moved)
    }
}

/// `None` where the call would have had to wait.
fn would_block(result: io::Result<usize>) -> io::Result<Option<usize>> {
    match result {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

/// A line for every tenth of the way.
struct Progress {
    total: usize,
    tenths: usize,
}

impl Progress {
    fn new(total: usize) -> Self {
        Self { total: total.max(1), tenths: 0 }
    }

    fn print(&mut self, done: usize) {
        let tenths = done * 10 / self.total;
        if tenths > self.tenths {
            self.tenths = tenths;
            println!("{:3} %", tenths * 10);
        }
    }
}
