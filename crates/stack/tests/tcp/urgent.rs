//! Urgent data: the mark, and which waiters are notified of it. The comparison with the kernel is in `oracle.rs`.

use std::io::{Read, Write};
use std::time::Duration;

use sockeye::TcpStream;
use sockeye::poll::{Events, Interest, Poll, Token, Trigger};

/// The time after which no more events are expected.
const NOW: Option<Duration> = Some(Duration::ZERO);
const COMING: Option<Duration> = Some(Duration::from_secs(60));

/// How often a wait reports urgent data.
fn events(poll: &Poll, timeout: Option<Duration>) -> usize {
    let mut events = Events::with_capacity(4);
    poll.wait(&mut events, timeout).unwrap();
    events.iter().filter(|event| event.is_priority() && event.token() == Token(3)).count()
}

fn watch(stream: &TcpStream, trigger: Trigger) -> Poll {
    let poll = Poll::new(Duration::ZERO);
    poll.register(stream, Token(3), Interest::PRIORITY, trigger).unwrap();
    poll
}

#[test]
fn a_reader_stops_at_the_mark_and_then_reads_over_it() {
    let _guard = crate::common::watchdog("a_reader_stops_at_the_mark_and_then_reads_over_it");
    let (mut client, mut server) = crate::common::pair(&crate::common::stack());
    client.write_all(b"plain").unwrap();
    assert_eq!(client.send_urgent(b"hurry").unwrap(), 5);
    client.write_all(b"after").unwrap();
    let poll = watch(&server, Trigger::Level);
    assert_eq!(events(&poll, COMING), 1);
    let mut read = Vec::new();
    while !server.at_mark().unwrap() {
        let mut buf = [0; 64];
        let got = server.read(&mut buf).unwrap();
        read.extend_from_slice(&buf[..got]);
        assert_eq!(events(&poll, NOW), 1, "the mark is not read yet");
    }
    assert_eq!(read, b"plainhurr");
    let mut rest = [0; 6];
    server.read_exact(&mut rest).unwrap();
    assert_eq!(&rest, b"yafter");
    assert!(!server.at_mark().unwrap());
    assert_eq!(events(&poll, NOW), 0);
}

#[test]
fn each_urgent_mark_raises_an_edge() {
    let _guard = crate::common::watchdog("each_urgent_mark_raises_an_edge");
    let (client, mut server) = crate::common::pair(&crate::common::stack());
    let poll = watch(&server, Trigger::Edge);
    assert_eq!(events(&poll, NOW), 0);
    for _ in 0..3 {
        client.send_urgent(b"u").unwrap();
        assert_eq!(events(&poll, COMING), 1);
        server.read_exact(&mut [0]).unwrap();
        assert_eq!(events(&poll, NOW), 0);
    }
}

#[test]
fn a_full_buffer_refuses_urgent_data_as_it_refuses_plain_data() {
    let _guard = crate::common::watchdog("a_full_buffer_refuses_urgent_data_as_it_refuses_plain_data");
    let (mut client, mut server) = crate::common::pair(&crate::common::stack());
    client.set_nonblocking(true).unwrap();
    let mut sent = 0;
    while let Ok(more) = client.write(&[7; 4096]) {
        sent += more;
    }
    assert_eq!(client.send_urgent(b"u").unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    server.read_exact(&mut vec![0; sent]).unwrap();
    client.set_nonblocking(false).unwrap();
    client.send_urgent(b"u").unwrap();
    let poll = watch(&server, Trigger::Level);
    assert_eq!(events(&poll, COMING), 1);
    assert!(server.at_mark().unwrap());
}

#[test]
fn a_mark_crosses_a_wire() {
    let _guard = crate::common::watchdog("a_mark_crosses_a_wire");
    let stack = crate::common::stack_with(|c| c.loopback_encode = true);
    let (mut client, mut server) = crate::common::pair(&stack);
    client.write_all(&[1; 100_000]).unwrap();
    client.send_urgent(&[2, 3]).unwrap();
    client.write_all(&[4]).unwrap();
    let mut read = Vec::new();
    while !(server.at_mark().unwrap() && read.len() > 100_000) {
        let mut buf = [0; 8192];
        let got = server.read(&mut buf).unwrap();
        read.extend_from_slice(&buf[..got]);
    }
    assert_eq!((read.len(), read.last()), (100_001, Some(&2)));
    let mut rest = [0; 2];
    server.read_exact(&mut rest).unwrap();
    assert_eq!(rest, [3, 4]);
}
