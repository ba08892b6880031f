//! An echo server and its clients in the shape of `std::net`, a thread for each connection.
//!
//! `echo [clients] [bytes]` sends random-looking bytes from every client, reads them back, compares, and
//! prints the rate. Neither end's bytes pass through the kernel.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::process::ExitCode;
use std::time::Instant;

use sockeye::{TcpListener, TcpStream};

const USAGE: &str = "usage: echo [clients, 1 to 1000; default 8] [bytes for each; default 10000000]";

/// How much a client writes at a time.
const CHUNK: usize = 64 << 10;

fn main() -> ExitCode {
    let Some((clients, bytes)) = arguments() else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match run(clients, bytes) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("echo: {error}");
            ExitCode::FAILURE
        }
    }
}

fn arguments() -> Option<(usize, usize)> {
    let mut args = std::env::args().skip(1);
    let clients = args.next().map_or(Some(8), |arg| arg.parse().ok())?;
    let bytes = args.next().map_or(Some(10_000_000), |arg| arg.parse().ok())?;
    (args.next().is_none() && (1..=1000).contains(&clients)).then_some((clients, bytes))
}

fn run(clients: usize, bytes: usize) -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let addr = listener.local_addr()?;
    std::thread::spawn(move || serve(&listener));
    let start = Instant::now();
    let threads: Vec<_> =
        (0..clients).map(|number| std::thread::spawn(move || client(addr, number, bytes))).collect();
    for thread in threads {
        thread.join().map_err(|_| io::Error::other("a client panicked"))??;
    }
    let took = start.elapsed();
    let total = clients * bytes;
    let rate = total as f64 * 8e-9 / took.as_secs_f64();
    println!("{clients} clients, {total} bytes there and back in {took:.2?}: {rate:.2} Gbit/s each way");
    Ok(())
}

/// Accepts for ever; the process's end ends it.
fn serve(listener: &TcpListener) {
    for stream in listener.incoming() {
        match stream {
            Ok(stream) => drop(std::thread::spawn(move || echo(stream))),
            Err(error) => eprintln!("accept: {error}"),
        }
    }
}

fn echo(mut stream: TcpStream) {
    let mut buf = vec![0; CHUNK];
    loop {
        let done = match stream.read(&mut buf) {
            Ok(0) => return,
            Ok(got) => stream.write_all(&buf[..got]),
            Err(error) => Err(error),
        };
        if let Err(error) = done {
            eprintln!("connection of {:?}: {error}", stream.peer_addr());
            return;
        }
    }
}

/// Sends and receives at once: a client that sends everything first fills both ends' buffers and waits for ever.
fn client(addr: SocketAddr, number: usize, bytes: usize) -> io::Result<()> {
    let mut stream = TcpStream::connect(addr)?;
    let mut sending = stream.try_clone()?;
    let writer = std::thread::spawn(move || -> io::Result<()> {
        for from in (0..bytes).step_by(CHUNK) {
            let chunk: Vec<u8> = (from..bytes.min(from + CHUNK)).map(|at| pattern(number, at)).collect();
            sending.write_all(&chunk)?;
        }
        sending.shutdown(Shutdown::Write)
    });
    let (mut buf, mut at) = (vec![0; CHUNK], 0);
    loop {
        let got = stream.read(&mut buf)?;
        if got == 0 {
            break;
        }
        if let Some(wrong) = (0..got).find(|i| buf[*i] != pattern(number, at + i)) {
            return Err(io::Error::other(format!(
                "client {number}: byte {} is not what was sent",
                at + wrong
            )));
        }
        at += got;
    }
    writer.join().map_err(|_| io::Error::other("a writer panicked"))??;
    if at != bytes {
        return Err(io::Error::other(format!("client {number}: {at} of {bytes} bytes came back")));
    }
    Ok(())
}

/// The byte of a client's stream at a place.
fn pattern(number: usize, at: usize) -> u8 {
    ((at >> 8) ^ at.wrapping_mul(31) ^ number) as u8
}
