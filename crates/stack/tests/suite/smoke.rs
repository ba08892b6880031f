//! The first things that must work: connect, send in both directions, close.

use std::io::{Read, Write};

use crate::common;
use sockeye::{TcpListener, TcpStream};

#[test]
fn two_threads_talk_and_close() {
    let stack = common::stack();
    let listener = TcpListener::bind_on(&stack, "127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        stream.write_all(&all).unwrap();
        all.len()
    });
    let mut client = TcpStream::connect_on(&stack, addr).unwrap();
    let data: Vec<u8> = (0..3_000_000u32).map(|i| (i % 251) as u8).collect();
    client.write_all(&data).unwrap();
    client.shutdown(std::net::Shutdown::Write).unwrap();
    let mut back = Vec::new();
    client.read_to_end(&mut back).unwrap();
    assert_eq!(server.join().unwrap(), data.len());
    assert!(back == data);
}
