//! Many connections that end at once, and how long a new one waits behind them.
//!
//! A command, and no test of every run: `cargo test --release -p sockeye-gateway --test gateway ends -- --ignored --nocapture` prints what the device of the inside has lost and when new
//! connections were made. It needs 20,000 descriptors. The program of another build is named by `SOCKEYE_GATEWAY_PROGRAM`.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use sockeye_shared::limit::raise_descriptors;

use crate::common::{Gateway, HOST, unavailable};

const CONNECTIONS: usize = 10_000;
/// New connections that are made behind the ends, one after the other.
const NEW: usize = 20;
/// For anything to happen.
const PATIENCE: Duration = Duration::from_secs(60);

/// Packets to the gateway for which its device had no room.
fn lost() -> Option<u64> {
    let devices = std::fs::read_to_string("/proc/net/dev").ok()?;
    let line = devices.lines().find_map(|line| line.trim().strip_prefix("tun0:"))?;
    // Eight numbers of what comes, then bytes, packets, errors and drops of what goes.
    line.split_ascii_whitespace().nth(11)?.parse().ok()
}

/// Makes the connections, ends them, and makes new ones. Inside.
pub fn run(to: &str) {
    raise_descriptors();
    let connect = || {
        let mut stream = TcpStream::connect(to).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.read_exact(&mut [0]).unwrap();
        stream
    };
    let held: Vec<_> = (0..CONNECTIONS).map(|_| connect()).collect();
    let start = Instant::now();
    drop(held);
    println!("{CONNECTIONS} connections: ended after {:?}", start.elapsed());
    for number in 1..=NEW {
        drop(connect());
        println!("new connection {number}: made after {:?}", start.elapsed());
    }
    println!("packets that the device has lost: {}", lost().expect("a line of tun0 in /proc/net/dev"));
}

/// Greets each client with a byte, and ends its connection when the client does.
fn serve(listener: &TcpListener) {
    listener.set_nonblocking(true).unwrap();
    let mut streams: Vec<TcpStream> = Vec::new();
    loop {
        let mut fds: Vec<_> = streams.iter().map(|stream| PollFd::new(stream, PollFlags::IN)).collect();
        fds.push(PollFd::new(listener, PollFlags::IN));
        poll(&mut fds, None).unwrap();
        let mut ready = fds.iter().map(|fd| !fd.revents().is_empty()).collect::<Vec<_>>().into_iter();
        streams.retain_mut(|stream| {
            // Clients send nothing.
            !ready.next().unwrap()
                || stream.read(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
        });
        while let Ok((mut stream, _)) = listener.accept() {
            stream.set_nonblocking(true).unwrap();
            stream.write_all(b"!").unwrap();
            streams.push(stream);
        }
    }
}

#[test]
#[ignore = "a command: see the module's head"]
fn new_connections_are_made_behind_ten_thousand_that_end_at_once() {
    if unavailable() {
        return;
    }
    raise_descriptors();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || serve(&listener));
    let ran = Gateway::start(
        &["--allow", "127.0.0.1"],
        &crate::common::inside_command(&format!("ends {HOST}:{port}")),
    );
    let (code, said) = ran.finish();
    assert_eq!(code, Some(0), "{said}");
    let of_interest = ["connections: ended", "new connection", "packets that"];
    said.lines()
        .filter(|line| of_interest.iter().any(|part| line.contains(part)))
        .for_each(|line| println!("{line}"));
}
