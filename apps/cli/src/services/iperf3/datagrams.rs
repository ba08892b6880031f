//! The data of UDP streams: one socket for all of a server's address; the sender identifies the stream.
//!
//! A datagram begins with the time of its sending, seconds and microseconds, and its number, from 1: a receiver needs them
//! for loss and for the jitter of RFC 3550 section 6.4.1. A stream begins with a greeting of four bytes, in the order of
//! the client's machine, that has its own answer. Does not depend on the control connection.
//!
//! Tests: below; with a stock client in `tests/cli/tun.rs`.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sockeye::tokio::UdpSocket;
use tokio::task::coop::consume_budget;

use super::protocol::{DATAGRAM_MIN, Params};
use super::stream::{Pace, Tally};

/// Greetings and their answers: those of today's clients, and those of clients before 3.11.
const GREETINGS: [(u32, u32); 2] = [(0x3637_3839, 0x3938_3736), (123_456_789, 987_654_321)];
/// How long to wait after an error.
const RETRY: Duration = Duration::from_millis(1);

/// Waits for the greetings of `count` streams from `host`, and answers them. Returns where they come from, in order.
pub async fn gather(socket: &UdpSocket, host: IpAddr, count: usize) -> io::Result<Vec<SocketAddr>> {
    let mut peers = Vec::with_capacity(count);
    // Any other datagram is longer: it is left from an earlier test.
    let mut buffer = [0; DATAGRAM_MIN];
    while peers.len() < count {
        let (len, from) = next(socket, &mut buffer).await;
        let answer = buffer.first_chunk().filter(|_| len == 4).and_then(|greeting| answer_to(*greeting));
        if let Some(answer) = answer.filter(|_| from.ip() == host && !peers.contains(&from)) {
            socket.send_to(&answer, from).await?;
            peers.push(from);
        }
    }
    Ok(peers)
}

/// Greets `to`, and waits for its answer. Nothing is said twice: the other end would take that for data.
pub async fn greet(socket: &UdpSocket, to: SocketAddr) -> io::Result<()> {
    socket.send_to(&GREETINGS[0].0.to_ne_bytes(), to).await?;
    let mut buffer = [0; DATAGRAM_MIN];
    loop {
        let (len, from) = socket.recv_from(&mut buffer).await?;
        let answer = buffer.first_chunk().filter(|_| len == 4 && from == to);
        if answer.is_some_and(|answer| is_answer(*answer)) {
            return Ok(());
        }
    }
}

/// Whether this answers a greeting, of either kind and in either order of bytes.
fn is_answer(answer: [u8; 4]) -> bool {
    GREETINGS.iter().any(|(_, known)| [known.to_le_bytes(), known.to_be_bytes()].contains(&answer))
}

/// The next datagram. Errors are those of earlier datagrams, to a peer that has gone away; they are waited out.
async fn next(socket: &UdpSocket, buffer: &mut [u8]) -> (usize, SocketAddr) {
    loop {
        match socket.recv_from(buffer).await {
            Ok(received) => return received,
            Err(_) => tokio::time::sleep(RETRY).await,
        }
    }
}

/// The answer to a greeting, in the order of bytes that it came in.
fn answer_to(greeting: [u8; 4]) -> Option<[u8; 4]> {
    GREETINGS.iter().find_map(|(known, answer)| {
        if greeting == known.to_le_bytes() {
            Some(answer.to_le_bytes())
        } else {
            (greeting == known.to_be_bytes()).then(|| answer.to_be_bytes())
        }
    })
}

/// Statistics from the numbers in a stream's datagrams.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Numbers {
    /// The highest number that came, or was sent.
    pub packets: u64,
    /// Those that did not come, as far as is known.
    pub errors: u64,
    /// The mean deviation of the time on the way, seconds.
    pub jitter: f64,
    /// The last one's time on the way, by clocks that may differ, seconds.
    transit: Option<f64>,
}

impl Numbers {
    /// A datagram of this number has come, after `transit` seconds on the way.
    fn arrived(&mut self, number: u64, transit: f64) {
        match number.checked_sub(self.packets) {
            Some(step @ 1..) => {
                self.errors = self.errors.saturating_add(step - 1);
                self.packets = number;
            }
            // It had been taken for lost, or comes twice.
            Some(0) | None => self.errors = self.errors.saturating_sub(1),
        }
        let deviation = self.transit.map_or(0.0, |before| (transit - before).abs());
        self.jitter += (deviation - self.jitter) / 16.0;
        self.transit = Some(transit);
    }
}

/// Receives for all streams that are named.
pub async fn receive(socket: Arc<UdpSocket>, params: Arc<Params>, streams: HashMap<SocketAddr, Arc<Tally>>) {
    let mut buffer = vec![0; params.len];
    loop {
        let (len, from) = next(&socket, &mut buffer).await;
        if let Some(tally) = streams.get(&from)
            && let Some((sent_at, number)) = read_header(&buffer[..len], params.udp_counters_64bit)
        {
            tally.add(len);
            tally.numbers().arrived(number, seconds(now()) - sent_at);
        }
        consume_budget().await;
    }
}

/// Sends numbered datagrams to `peer`, no faster than the client wants.
pub async fn send(socket: Arc<UdpSocket>, params: Arc<Params>, peer: SocketAddr, tally: Arc<Tally>) {
    let mut datagram = vec![0; params.len];
    let mut pace = Pace::new(params.bandwidth);
    for number in 1_u64.. {
        if tally.is_over() {
            return;
        }
        write_header(&mut datagram, number, params.udp_counters_64bit);
        while socket.send_to(&datagram, peer).await.is_err() {
            tokio::time::sleep(RETRY).await;
        }
        tally.add(datagram.len());
        tally.numbers().packets = number;
        pace.sent(datagram.len()).await;
        consume_budget().await;
    }
}

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn seconds(time: Duration) -> f64 {
    time.as_secs_f64()
}

/// When a datagram was sent, in seconds, and its number.
fn read_header(datagram: &[u8], has_64_bits: bool) -> Option<(f64, u64)> {
    let (secs, rest) = datagram.split_first_chunk()?;
    let (micros, rest) = rest.split_first_chunk()?;
    let number = if has_64_bits {
        u64::from_be_bytes(*rest.first_chunk()?)
    } else {
        u64::from(u32::from_be_bytes(*rest.first_chunk()?))
    };
    let at = f64::from(u32::from_be_bytes(*secs)) + f64::from(u32::from_be_bytes(*micros)) / 1e6;
    Some((at, number))
}

fn write_header(datagram: &mut [u8], number: u64, has_64_bits: bool) {
    let now = now();
    let mut header = Vec::with_capacity(DATAGRAM_MIN);
    // A longer number starts again from 0, as the field has only 32 bits.
    header.extend((now.as_secs() as u32).to_be_bytes());
    header.extend(now.subsec_micros().to_be_bytes());
    if has_64_bits {
        header.extend(number.to_be_bytes());
    } else {
        header.extend((number as u32).to_be_bytes());
    }
    datagram.iter_mut().zip(header).for_each(|(to, from)| *to = from);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_count_as_lost_until_the_missing_datagrams_arrive() {
        let mut numbers = Numbers::default();
        for number in [1, 2, 5, 4] {
            numbers.arrived(number, 0.0);
        }
        assert_eq!((numbers.packets, numbers.errors), (5, 1));
        numbers.arrived(6, 0.0);
        assert_eq!((numbers.packets, numbers.errors), (6, 1));
    }

    #[test]
    fn jitter_is_the_smoothed_change_of_the_transit() {
        let mut numbers = Numbers::default();
        numbers.arrived(1, -100.0);
        assert_eq!(numbers.jitter, 0.0);
        numbers.arrived(2, -99.984);
        assert!((numbers.jitter - 0.001).abs() < 1e-9, "{}", numbers.jitter);
    }

    #[test]
    fn headers_are_read_as_they_are_written() {
        for has_64_bits in [false, true] {
            let mut datagram = [0; 20];
            write_header(&mut datagram, 77, has_64_bits);
            let (at, number) = read_header(&datagram, has_64_bits).unwrap();
            assert_eq!(number, 77);
            assert!((seconds(now()) - at).abs() < 60.0);
            assert_eq!(read_header(&datagram[..11], has_64_bits), None);
        }
    }

    #[test]
    fn greetings_are_answered_in_their_own_byte_order() {
        assert_eq!(answer_to(*b"9876"), Some(*b"6789"));
        assert_eq!(answer_to(*b"6789"), Some(*b"9876"));
        assert_eq!(answer_to(123_456_789_u32.to_le_bytes()), Some(987_654_321_u32.to_le_bytes()));
        assert_eq!(answer_to(*b"hello".first_chunk().unwrap()), None);
        assert!(is_answer(*b"6789") && is_answer(987_654_321_u32.to_be_bytes()) && !is_answer(*b"hell"));
    }
}
