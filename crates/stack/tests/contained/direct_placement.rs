//! A panic over text that was received straight into a reader's buffer.

use std::io::{Read, Write};
use std::time::Duration;

use sockeye::failpoints::{arm, fired};
use sockeye::netif::{Netif, RxDirect, RxFrame, Sent, TxFrame, WireConfig, WireEnd, wire};

use crate::common;
use crate::lab::{Lab, as_its_end};

/// An end of a wire that puts text where it is wanted.
struct DirectEnd {
    end: WireEnd,
}

impl Netif for DirectEnd {
    as_its_end!();
    fn transmit(&self, flow: u64, frames: &mut Vec<TxFrame>) -> Sent {
        self.end.transmit(flow, frames)
    }
    fn receive(&self, queue: usize, max: usize, sink: &mut dyn FnMut(RxFrame<'_>)) -> usize {
        self.end.receive(queue, max, sink)
    }
    fn receive_into(
        &self,
        queue: usize,
        head_len: usize,
        place: &mut [u8],
        sink: &mut dyn FnMut(RxDirect<'_>),
    ) -> Option<usize> {
        Some(self.end.receive(queue, 1, &mut |frame| {
            let mut bytes = frame.head.to_vec();
            frame.rest.iter().for_each(|piece| bytes.extend_from_slice(piece));
            let (head, text) = bytes.split_at(bytes.len().min(head_len));
            let (placed, rest) = text.split_at(text.len().min(place.len()));
            place[..placed.len()].copy_from_slice(placed);
            let placed = &place[..placed.len()];
            sink(RxDirect { head, placed, rest, checksum: frame.checksum, gso_size: 0 });
        }))
    }
    fn wait(&self, queue: usize, spin: Duration) {
        self.end.wait(queue, spin);
    }
}

#[test]
fn a_reader_in_whose_buffer_text_was_placed_is_told_of_a_panic_over_it() {
    let _turn = crate::turn();
    let _guard = common::watchdog("a panic over placed text");
    let (left, right) = wire(&WireConfig::default()).unwrap();
    let lab = Lab::between(DirectEnd { end: left }, DirectEnd { end: right }, |config| {
        config.spin_max = Duration::from_millis(10);
    });
    let ((mut client, mut server), other) = (lab.pair(), lab.pair());
    let port = |addr: std::net::SocketAddr| u64::from(addr.port());
    arm("conn.direct", 0, 1, port(server.local_addr().unwrap()) << 16 | port(server.peer_addr().unwrap()));
    let before = fired("conn.direct");
    let reader = std::thread::spawn(move || {
        let mut buf = [0; 100];
        loop {
            match server.read(&mut buf) {
                Ok(0) => panic!("the end of the stream"),
                Ok(len) => server.write_all(&buf[..len]).unwrap(),
                Err(error) => return error,
            }
        }
    });
    // As many round trips as it takes until one finds the reader at the queue, however the threads come about.
    let end = loop {
        if let Err(error) = client.write_all(b"ping").and_then(|()| client.read_exact(&mut [0; 4])) {
            break error;
        }
    };
    assert_eq!(end.kind(), std::io::ErrorKind::ConnectionReset, "{end}");
    let error = common::join(reader);
    assert!(error.to_string().contains("panicked"), "{error}");
    assert_eq!(fired("conn.direct") - before, 1);
    let (mut from, mut to) = other;
    from.write_all(b"still here").unwrap();
    to.read_exact(&mut [0; 10]).unwrap();
    assert_eq!(lab.count("panics_protocol"), 1);
    drop((client, from, to));
    lab.assert_empty();
}
