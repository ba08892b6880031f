//! A stack without threads and a peer that is this program: an interface whose other end is a list of packets.
//!
//! Packets are made before they are timed; the time is that of `Stack::poll`, in which the stack reads a batch, answers, and hands its
//! frames to the interface, which notes the headers and drops them. Does not depend on the attacks. Tests: with the attacks.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sockeye::netif::{Checksum, Netif, RxFrame, Sent, TxFrame};
use sockeye::{Config, Stack, TcpListener, TcpStream};

use super::frames::{ACK, Heard, OURS, PORT, SYN, Segment, packet, read};
use crate::record;

/// The interface, shared with the stack.
struct Port(Arc<Mutex<Ends>>);

#[derive(Default)]
struct Ends {
    inbox: VecDeque<Vec<u8>>,
    /// The latest segment of the connection.
    heard: Option<Heard>,
    sent_count: u64,
}

fn locked(ends: &Mutex<Ends>) -> MutexGuard<'_, Ends> {
    ends.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Netif for Port {
    fn mtu(&self) -> u32 {
        1500
    }

    fn queue_count(&self) -> usize {
        1
    }

    fn offloads_checksum(&self) -> bool {
        true
    }

    fn transmit(&self, _flow: u64, frames: &mut Vec<TxFrame>) -> Sent {
        let mut ends = locked(&self.0);
        for frame in frames.drain(..) {
            ends.sent_count += 1;
            let heard = read(frame.head(), frame.len()).filter(|heard| heard.port == PEER_PORT);
            ends.heard = heard.filter(|heard| heard.flags & super::frames::RST == 0).or(ends.heard);
        }
        Sent { queue: 0, dropped_count: 0 }
    }

    fn ring(&self, _queue: usize) {}

    fn receive(&self, _queue: usize, max: usize, sink: &mut dyn FnMut(RxFrame<'_>)) -> usize {
        // All of a packet is in its first part.
        let rest = Default::default();
        for count in 0..max {
            let Some(frame) = locked(&self.0).inbox.pop_front() else { return count };
            sink(RxFrame { checksum: Checksum::Device, ..RxFrame::new(&frame, &rest) });
        }
        max
    }

    fn wait(&self, _queue: usize, _spin: Duration) {}

    fn interrupt(&self, _queue: usize) {}
}

/// The peer's port of the connection.
pub const PEER_PORT: u16 = 4000;
/// Buffers of the connection, bytes.
const BUFFER: u32 = 8 << 20;
/// The peer's window scale: its largest window is as large as the buffers.
const SHIFT: u8 = 7;
/// The peer's initial sequence number.
const IRS: u32 = 1000;

/// A connection between the stack and this program.
pub struct Testbed {
    stack: Stack,
    ends: Arc<Mutex<Ends>>,
    stream: TcpStream,
    now: Duration,
    /// Time spent in the stack, and packets it was given.
    pub spent: Duration,
    pub given: u64,
    sink: Vec<u8>,
}

impl Testbed {
    /// An open connection whose peer has announced `mss`.
    ///
    /// # Errors
    /// If the stack does not open it.
    pub fn new(mss: u16) -> io::Result<Self> {
        let config = Config { workers: 0, sndbuf: BUFFER, rcvbuf: BUFFER, ..Config::default() };
        let stack = Stack::seeded(config, [7; 16])?;
        let ends = Arc::new(Mutex::new(Ends::default()));
        let addr = Ipv4Addr::from(OURS);
        let prefix = format!("{addr}/24").parse().map_err(io::Error::other)?;
        record::attach(&stack, Port(Arc::clone(&ends)), &[prefix])?;
        let listener = TcpListener::bind_on(&stack, SocketAddr::from((addr, PORT)))?;
        listener.set_nonblocking(true)?;
        let [high, low] = mss.to_be_bytes();
        let options = [2, 4, high, low, 4, 2, 1, 1, 1, 3, 3, SHIFT];
        let syn = Segment {
            src_port: PEER_PORT,
            seq: IRS,
            ack: 0,
            flags: SYN,
            window: u16::MAX,
            options: &options,
            len: 0,
        };
        let mut now = Duration::from_secs(1);
        let mut ask = |segment: &Segment<'_>| {
            locked(&ends).inbox.push_back(packet(segment));
            now += Duration::from_millis(10);
            stack.poll(now);
            locked(&ends).heard
        };
        let heard = ask(&syn).ok_or_else(|| io::Error::other("no answer to a SYN"))?;
        let third = Segment { seq: IRS + 1, ack: heard.end, flags: ACK, options: &[], ..syn };
        ask(&third);
        let (stream, _) = listener.accept()?;
        stream.set_nonblocking(true)?;
        Ok(Self { stack, ends, stream, now, spent: Duration::ZERO, given: 0, sink: vec![0; 1 << 20] })
    }

    /// The peer's next valid segment.
    pub fn polite(&self) -> Segment<'static> {
        let heard = locked(&self.ends).heard;
        let (ack, seq) = heard.map_or((0, IRS + 1), |heard| (heard.end, heard.ack));
        Segment { src_port: PEER_PORT, seq, ack, flags: ACK, window: u16::MAX, options: &[], len: 0 }
    }

    /// Gives the stack packets at one moment, and times their processing.
    pub fn give(&mut self, packets: Vec<Vec<u8>>) {
        self.given += packets.len() as u64;
        locked(&self.ends).inbox.extend(packets);
        let begin = Instant::now();
        while !locked(&self.ends).inbox.is_empty() {
            self.stack.poll(self.now);
        }
        self.spent += begin.elapsed();
    }

    /// Lets simulated time pass; work that becomes due is timed too.
    pub fn pass(&mut self, time: Duration) {
        self.now += time;
        let begin = Instant::now();
        self.stack.poll(self.now);
        self.spent += begin.elapsed();
    }

    /// Reads the received bytes, which is timed: it is part of the cost of a valid segment.
    ///
    /// # Errors
    /// The connection's.
    pub fn read(&mut self) -> io::Result<usize> {
        let begin = Instant::now();
        let mut all = 0;
        let end = loop {
            match self.stream.read(&mut self.sink) {
                Ok(0) => break Err(ErrorKind::UnexpectedEof.into()),
                Ok(bytes) => all += bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break Ok(all),
                Err(error) => break Err(error),
            }
        };
        self.spent += begin.elapsed();
        end
    }

    /// Fills the send buffer. Not timed.
    ///
    /// # Errors
    /// The connection's.
    pub fn fill(&mut self) -> io::Result<()> {
        let chunk = [0x5a; 16 << 10];
        loop {
            match self.stream.write(&chunk) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// Bytes in flight, by the stack's account.
    ///
    /// # Errors
    /// The connection's.
    pub fn in_flight(&self) -> io::Result<u32> {
        Ok(self.stream.info()?.in_flight)
    }

    /// Packets that the stack has sent.
    pub fn sent(&self) -> u64 {
        locked(&self.ends).sent_count
    }

    /// Bytes of packet memory in use.
    pub fn memory(&self) -> usize {
        self.stack.memory_in_use()
    }

    /// Resets the measured times.
    pub fn restart(&mut self) {
        (self.spent, self.given) = (Duration::ZERO, 0);
    }
}
