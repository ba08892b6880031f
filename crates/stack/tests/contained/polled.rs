//! A panic over frames that a reader has taken from its interface itself.

use std::io::{Error, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};
use std::time::Duration;

use sockeye::PanicReport;
use sockeye::failpoints::arm;
use sockeye::netif::WireConfig;

use crate::common;
use crate::lab::Lab;

/// Round trips that go well before the panic: the reader is at the queue by then.
const ROUNDS: u32 = 20;

#[test]
fn a_reader_gets_an_error_if_frames_that_it_polled_itself_cause_a_panic() {
    let _turn = crate::turn();
    let _guard = common::watchdog("a panic over frames that a reader has taken");
    let lab = Lab::new(&WireConfig::default(), |config| config.spin_max = Duration::from_millis(10));
    let panicked = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&panicked);
    lab.stacks[1].set_panic_hook(Some(move |_: &PanicReport| {
        noted.lock().unwrap().push(thread::current().id());
    }));
    let (mut from, mut to) = lab.pair();
    // As many connections as needed until a reader takes the frame, however the threads are scheduled.
    let mut panics = 0;
    let mut is_by_reader = || {
        let (reader, error) = read_until_panic(&lab);
        panics += 1;
        assert!(error.to_string().contains("panicked"), "{error}");
        panicked.lock().unwrap().contains(&reader)
    };
    while !is_by_reader() {}
    from.write_all(b"still here").unwrap();
    to.read_exact(&mut [0; 10]).unwrap();
    common::eventually("each panic is counted", || lab.count("panics_protocol") == panics);
    drop((from, to));
    lab.stacks.iter().for_each(common::assert_nothing_left);
}

/// A connection that a panic of its server's input ends. Returns the server's reader and the result of its read.
fn read_until_panic(lab: &Lab) -> (ThreadId, Error) {
    let (mut client, mut server) = lab.pair();
    let port = |addr: SocketAddr| u64::from(addr.port());
    let server_ports = port(server.local_addr().unwrap()) << 16 | port(server.peer_addr().unwrap());
    arm("conn.joined", ROUNDS, 1, server_ports);
    let reader = thread::spawn(move || {
        let mut buf = [0; 100];
        loop {
            match server.read(&mut buf) {
                Ok(0) => panic!("the end of the stream"),
                Ok(len) => server.write_all(&buf[..len]).unwrap(),
                Err(error) => return error,
            }
        }
    });
    let id = reader.thread().id();
    let end = loop {
        if let Err(error) = client.write_all(b"ping").and_then(|()| client.read_exact(&mut [0; 4])) {
            break error;
        }
    };
    assert_eq!(end.kind(), ErrorKind::ConnectionReset, "{end}");
    (id, common::join(reader))
}
