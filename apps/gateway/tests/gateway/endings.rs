//! The end of a command, and what it has sent: the far end gets everything, or is told that something is missing.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use socket2::SockRef;

use crate::common::{Gateway, HOST, eventually, free_port, inside_command, unavailable};

/// More than the far end's kernel and ours take, and less than these and the buffers inside do.
const BYTES: usize = 6_000_000;
/// Bytes of the far end's buffer.
const ROOM: usize = 64 << 10;

/// Sends bytes, and ends. Inside.
pub fn leave_behind(to: &str) {
    TcpStream::connect(to).unwrap().write_all(&vec![7; BYTES]).unwrap();
}

/// A server with a small buffer, and its port.
fn server() -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    SockRef::from(&listener).set_recv_buffer_size(ROOM).unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

#[test]
fn what_a_command_has_sent_arrives_behind_its_end() {
    if unavailable() {
        return;
    }
    let (listener, port) = server();
    let log = crate::common::temporary("endings.jsonl");
    let far = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        // The command has written and ended long before.
        thread::sleep(Duration::from_secs(2));
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).map(|_| bytes.len())
    });
    let options = ["--allow", "127.0.0.1", "--log", log.to_str().unwrap()];
    Gateway::runs(&options, &format!("leave-behind {HOST}:{port}"));
    assert_eq!(far.join().unwrap().unwrap(), BYTES);
    let log = std::fs::read_to_string(&log).unwrap();
    assert!(log.contains("\"end\":\"closed\""), "{log}");
}

/// Sends a datagram, and ends. Inside.
pub fn leave_a_datagram(to: &str) {
    UdpSocket::bind("0.0.0.0:0").unwrap().send_to(b"the last word", to).unwrap();
}

#[test]
fn a_datagram_arrives_that_a_command_has_sent_at_its_end() {
    if unavailable() {
        return;
    }
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    server.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let to = format!("{HOST}:{}", server.local_addr().unwrap().port());
    for _ in 0..3 {
        Gateway::runs(&["--allow", "127.0.0.1"], &format!("leave-a-datagram {to}"));
        let mut room = [0; 99];
        let len = server.recv(&mut room).unwrap();
        assert_eq!(&room[..len], b"the last word");
    }
}

#[test]
fn a_signal_cuts_off_what_a_command_has_left_and_the_far_end_is_told() {
    if unavailable() {
        return;
    }
    let (listener, port) = server();
    let log = crate::common::temporary("cut-off.jsonl");
    let ((ended, has_ended), (accepted, is_accepted)) = (channel(), channel());
    let far = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        accepted.send(()).unwrap();
        has_ended.recv().unwrap();
        stream.read_to_end(&mut Vec::new()).unwrap_err().kind()
    });
    let published = free_port().to_string();
    let options = ["--allow", "127.0.0.1", "--log", log.to_str().unwrap(), "-p", &published];
    // What it leaves finds room in the buffers inside, so it ends, and nobody takes that.
    let mut gateway = Gateway::start(&options, &inside_command(&format!("leave-behind {HOST}:{port}")));
    is_accepted.recv().unwrap();
    gateway.command_ends();
    // For the next gateway, and not when this one ends.
    let start = Instant::now();
    eventually("the port is free", || TcpListener::bind(format!("0.0.0.0:{published}")).is_ok());
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    assert!(gateway.runs_still(), "it goes on behind its command");
    let start = Instant::now();
    gateway.terminate();
    assert_eq!(gateway.wait(), Some(0), "the command's code");
    assert!(start.elapsed() < Duration::from_secs(5), "it has not waited for the far end");
    ended.send(()).unwrap();
    assert_eq!(far.join().unwrap(), ErrorKind::ConnectionReset);
    let log = std::fs::read_to_string(&log).unwrap();
    assert!(log.contains("\"end\":\"cut off\""), "{log}");
}
