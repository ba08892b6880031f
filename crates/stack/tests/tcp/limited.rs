//! The limits of a sender, as reported by `TcpStream::info`: the times that Linux counts in `tcp_chrono`, to the microsecond, of
//! a stack with simulated time and a peer that the test controls.

use std::io::{ErrorKind, Write};
use std::time::Duration;

use sockeye::{TcpSocket, TcpStream};

use crate::host::{Host, THEIRS};
use crate::peer::{ack_with, syn_ack_with};

const MSS: usize = 1460;
/// Of the handshake. No timer of a retransmission or a probe of the tail runs off within twice as long.
const ROUND_TRIP: Duration = ms(200);

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A connection, and the last segment that it has sent.
struct Sender {
    host: Host,
    stream: TcpStream,
    last: Vec<u8>,
}

impl Sender {
    /// With a send buffer of so many bytes, to a peer that offers this window.
    fn new(sndbuf: u32, window: u16) -> Self {
        let mut host = Host::with(|config| (config.sndbuf, config.sndbuf_max) = (sndbuf, sndbuf));
        let mut socket = TcpSocket::new_v4(&host.stack);
        socket.set_nonblocking(true);
        socket.set_nodelay(true);
        let stream = socket.connect(format!("{}:9", THEIRS[0]).parse().unwrap()).unwrap();
        let syn = host.turn().remove(0);
        host.pass(ROUND_TRIP);
        syn_ack_with(&mut host, &syn, window);
        Self { host, stream, last: Vec::new() }
    }

    /// Writes all of it, and returns the number of segments sent.
    fn write(&mut self, len: usize) -> usize {
        (&self.stream).write_all(&vec![7; len]).unwrap();
        let sent = self.host.turn();
        let count = sent.len();
        self.last = sent.into_iter().last().unwrap_or(std::mem::take(&mut self.last));
        count
    }

    /// The peer acknowledges all that was sent, and offers this window. How many segments leave in turn.
    fn ack(&mut self, window: u16) -> usize {
        let sent = ack_with(&mut self.host, &self.last, window);
        let count = sent.len();
        self.last = sent.into_iter().last().unwrap_or(std::mem::take(&mut self.last));
        count
    }

    /// Lets time pass. Segments sent meanwhile are lost.
    fn pass(&mut self, time: Duration) {
        self.host.pass(time);
    }

    /// The time with something to send, the part of it limited by the peer's window, and the part limited by the send buffer.
    fn times(&self) -> [Duration; 3] {
        let carried = self.stream.info().unwrap().carried.unwrap();
        [carried.busy_time, carried.rwnd_limited, carried.sndbuf_limited]
    }
}

#[test]
fn a_sender_is_busy_from_a_write_until_all_is_acknowledged() {
    let mut sender = Sender::new(1 << 20, u16::MAX);
    sender.pass(ms(70));
    assert_eq!(sender.times(), [ms(0); 3], "nothing was written");
    assert_eq!(sender.write(3 * MSS), 3);
    sender.pass(ms(30));
    assert_eq!(sender.times(), [ms(30), ms(0), ms(0)], "the interval runs on");
    sender.pass(ms(10));
    sender.ack(u16::MAX);
    sender.pass(ms(500));
    assert_eq!(sender.times(), [ms(40), ms(0), ms(0)], "it ended with the acknowledgment");
    assert_eq!(sender.write(1), 1);
    sender.pass(ms(5));
    assert_eq!(sender.times(), [ms(45), ms(0), ms(0)]);
}

#[test]
fn time_behind_a_shut_window_counts_while_nothing_moves() {
    let mut sender = Sender::new(1 << 20, MSS as u16);
    assert_eq!(sender.write(MSS), 2, "segments are no longer than half of the largest window");
    sender.pass(ms(40));
    sender.ack(0);
    sender.pass(ms(25));
    assert_eq!(sender.times(), [ms(40), ms(0), ms(0)], "the window is shut and nothing waits to be sent");
    assert_eq!(sender.write(2 * MSS), 0);
    // The probes of the window begin, and are lost.
    for passed in [1, 99, 1000, 30_000] {
        let before = sender.times();
        sender.pass(ms(passed));
        assert_eq!(sender.times(), [before[0] + ms(passed), before[1] + ms(passed), ms(0)]);
    }
    // The window opens for both segments: only the round trip remains.
    assert_eq!(sender.ack(u16::MAX), 2);
    let before = sender.times();
    assert_eq!(before, [ms(31_140), ms(31_100), ms(0)]);
    sender.pass(ms(15));
    sender.ack(u16::MAX);
    sender.pass(ms(500));
    assert_eq!(sender.times(), [before[0] + ms(15), before[1], ms(0)]);
}

#[test]
fn a_window_that_takes_part_of_a_write_holds_back_the_rest() {
    let mut sender = Sender::new(1 << 20, 2 * MSS as u16);
    assert_eq!(sender.write(3 * MSS), 2);
    sender.pass(ms(20));
    assert_eq!(sender.times(), [ms(20), ms(20), ms(0)]);
    assert_eq!(sender.ack(2 * MSS as u16), 1);
    sender.pass(ms(20));
    assert_eq!(sender.times(), [ms(40), ms(20), ms(0)], "the rest is on its way");
}

#[test]
fn a_full_send_buffer_counts_once_a_writer_was_refused() {
    let mut sender = Sender::new(3 * MSS as u32, u16::MAX);
    assert_eq!(sender.write(3 * MSS), 3);
    sender.pass(ms(20));
    assert_eq!(sender.times(), [ms(20), ms(0), ms(0)], "it is full, and no write was refused");
    assert_eq!((&sender.stream).write(&[7]).unwrap_err().kind(), ErrorKind::WouldBlock);
    sender.pass(ms(30));
    assert_eq!(sender.times(), [ms(50), ms(0), ms(30)], "the interval runs on");
    sender.pass(ms(10));
    sender.ack(u16::MAX);
    assert_eq!(sender.times(), [ms(60), ms(0), ms(40)]);
    // There was space since: it takes another refusal.
    assert_eq!(sender.write(2 * MSS), 2);
    sender.pass(ms(20));
    assert_eq!(sender.times(), [ms(80), ms(0), ms(40)]);
}

/// The order of Linux's `tcp_write_xmit`: the congestion window is asked first.
#[test]
fn time_behind_the_congestion_window_counts_for_neither_window_nor_buffer() {
    let mut sender = Sender::new(12 * MSS as u32, u16::MAX);
    assert_eq!(sender.write(12 * MSS), 10, "the initial window, RFC 6928");
    assert_eq!((&sender.stream).write(&[7]).unwrap_err().kind(), ErrorKind::WouldBlock);
    sender.pass(ms(20));
    assert_eq!(sender.times(), [ms(20), ms(0), ms(0)]);
}

#[test]
fn a_connection_that_ends_stops_being_busy() {
    let mut sender = Sender::new(1 << 20, MSS as u16);
    assert_eq!(sender.write(2 * MSS), 2);
    sender.pass(ms(20));
    crate::peer::reset(&mut sender.host, &sender.last);
    sender.pass(ms(20));
    assert_eq!(sender.times(), [ms(20), ms(20), ms(0)]);
}
