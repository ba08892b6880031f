//! Writes 64 bytes over loopback and reads them, for `sockeye-tidy`'s `size path`.
//!
//! The profile is of `write_and_read` alone, after the connection has warmed up. One thread does both, so the data is there when it
//! reads: this is the shortest way that a message can go.

use std::hint::black_box;
use std::io::{Read, Write};

use sockeye::{TcpListener, TcpStream};

fn main() -> std::io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut client = TcpStream::connect(listener.local_addr()?)?;
    let (mut server, _) = listener.accept()?;
    let (message, mut room) = ([7; 64], [0; 64]);
    for _ in 0..ROUNDS {
        client.write_all(&message)?;
        server.read_exact(&mut room)?;
    }
    write_and_read(black_box(&mut client), black_box(&mut server), &message, &mut room);
    assert_eq!(room, message);
    Ok(())
}

/// The profiled run.
#[inline(never)]
fn write_and_read(client: &mut TcpStream, server: &mut TcpStream, message: &[u8; 64], room: &mut [u8; 64]) {
    assert_eq!(client.write(message).ok(), Some(64));
    assert_eq!(server.read(room).ok(), Some(64));
}

/// After it buffers, windows and caches are steady.
const ROUNDS: usize = 1000;
