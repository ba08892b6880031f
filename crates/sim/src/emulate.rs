//! A link for packets that are not simulated: the same model, held to a clock that the caller reads.
//!
//! Two stacks of any make, the kernel's too, are put at the ends of a link like that of a simulation's
//! [`Net::link`](crate::Net::link): rate, queue, delay, jitter, loss, reordering, and the same draws for the same seed,
//! packet by packet in each direction. Computes only: the caller brings packets with the time at which they came, and
//! takes them out when they are due. It does not depend on devices, threads or clocks.
//!
//! Invariant: a frame in `frames` has one `Arrive` event, or is held by its pipe with one `Release` event. Tests: below,
//! against the simulator in `tests/net/emulate.rs`.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use slab::Slab;

use crate::capture::{Capture, Tape};
use crate::event::{Event, Queue};
use crate::link::{LinkConfig, LinkStats};
use crate::packet::Packet;
use crate::pipe::{Course, Held, Pipe, nanos, stream_of};
use crate::rng::Rng;
use crate::watch::{Heard, Traffic, Watch};

/// An end of the link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// Where a simulation's first host is.
    First,
    /// Where its second is.
    Second,
}

impl End {
    /// The other end.
    pub fn other(self) -> Self {
        match self {
            Self::First => Self::Second,
            Self::Second => Self::First,
        }
    }

    fn index(self) -> usize {
        match self {
            Self::First => 0,
            Self::Second => 1,
        }
    }
}

/// A packet that has reached an end.
#[derive(Debug)]
pub struct Arrival {
    /// The end that it has reached.
    pub at: End,
    /// The moment at which it was due, since the start.
    pub due: Duration,
    /// The packet. [`Emulator::recycle`] takes its memory back.
    pub bytes: Vec<u8>,
}

/// Both directions of a link; see the module's head.
pub struct Emulator {
    pipes: [Pipe; 2],
    queue: Queue,
    frames: Slab<(End, Vec<u8>)>,
    spare: Vec<Vec<u8>>,
    watch: Watch,
    tape: Tape,
}

/// Packets that are on their way at most; further packets are dropped as by a full queue. It is ten times as many as 1
/// Gbit/s and a second of delay hold.
const FRAMES_MAX: usize = 1 << 20;
/// Buffers that are kept for packets to come.
const SPARE_MAX: usize = 4096;

impl Emulator {
    /// A link whose directions are `there` (from the first end) and `back`. With an equal seed it draws the same numbers as
    /// a simulation for the link between its first two hosts, unless that simulation's programs have drawn numbers before.
    pub fn new(seed: u64, there: LinkConfig, back: LinkConfig) -> Self {
        let rng = Rng::new(seed);
        let pipe = |name: &str, from: usize, to: usize, config| {
            Pipe::new(name.to_owned(), to, config, stream_of(&rng, from, to))
        };
        Self {
            pipes: [pipe("first → second", 0, 1, there), pipe("second → first", 1, 0, back)],
            queue: Queue::default(),
            frames: Slab::new(),
            spare: Vec::new(),
            watch: Watch::default(),
            tape: Tape::new(Capture::Off),
        }
    }

    /// Keeps so much of the packets that come to the link. Default: nothing.
    pub fn capture(mut self, capture: Capture) -> Self {
        self.tape = Tape::new(capture);
        self
    }

    /// Writes the kept packets in pcap-ng, each with its time since the start and its fate.
    ///
    /// # Errors
    /// The writer's.
    pub fn write_pcap(&self, out: &mut dyn io::Write) -> io::Result<()> {
        self.tape.write(self.pipes.iter().map(|pipe| pipe.name.as_str()), out)
    }

    /// An IP packet comes to the link at `from`. Times never go back, and everything that was due before has been
    /// taken by [`due`](Self::due).
    pub fn offer(&mut self, now: Duration, from: End, bytes: &[u8]) {
        let now = nanos(now);
        let pipe = &mut self.pipes[from.index()];
        let mut own = Vec::new();
        let bytes = if pipe.is_marking(now) {
            own.extend_from_slice(bytes);
            pipe.mark(&mut own);
            &own
        } else {
            bytes
        };
        let packet = Packet {
            at: Duration::from_nanos(now),
            index: pipe.stats.offered,
            head: bytes,
            len: bytes.len(),
        };
        let mut course = pipe.course(now, &packet);
        if self.frames.len() >= FRAMES_MAX && !matches!(course, Course::Dropped(_)) {
            pipe.stats.queue_full += 1;
            course = Course::Dropped("too many packets");
        }
        if let Some(segment) = packet.segment() {
            let is_lost = matches!(course, Course::Dropped(_) | Course::Arrives { flip: Some(_), .. });
            self.watch.sent(now, &segment, is_lost);
        }
        if self.tape.is_on() {
            self.tape.push(from.index(), now, std::iter::once(bytes), course.note());
        }
        match course {
            Course::Dropped(_) => {}
            Course::Arrives { at, twice, flip } => {
                let frame = self.keep(from.other(), bytes, flip);
                self.queue.push(at, Event::Arrive { frame });
                if twice {
                    let frame = self.keep(from.other(), bytes, None);
                    self.queue.push(at, Event::Arrive { frame });
                }
                for frame in self.pipes[from.index()].overtake() {
                    self.queue.push(at, Event::Arrive { frame });
                }
            }
            Course::Overtaken { at, span, wait } => {
                let (frame, number) = (self.keep(from.other(), bytes, None), self.queue.number());
                self.pipes[from.index()].held.push(Held { frame, number, left: span });
                let event = Event::Release { pipe: from.index(), frame, number };
                self.queue.push(at.saturating_add(wait), event);
            }
        }
    }

    /// The next packet that has arrived by `now`, in the order of arrival.
    pub fn due(&mut self, now: Duration) -> Option<Arrival> {
        let now = nanos(now);
        while self.queue.next_at()? <= now {
            let (at, event) = self.queue.pop()?;
            let frame = match event {
                Event::Arrive { frame } => frame,
                Event::Release { pipe, frame, number } if self.pipes[pipe].release(number) => frame,
                // It was overtaken in time.
                Event::Release { .. } => continue,
                Event::Poll { .. }
                | Event::PollOutside
                | Event::Turn { .. }
                | Event::Check
                | Event::Wake { .. } => {
                    unreachable!("an emulator has neither hosts nor tasks")
                }
            };
            let Some((end, bytes)) = self.frames.try_remove(frame) else { continue };
            let pipe = &mut self.pipes[end.other().index()];
            pipe.stats.delivered += 1;
            pipe.stats.delivered_bytes += bytes.len() as u64;
            let packet = Packet { at: Duration::ZERO, index: 0, head: &bytes, len: bytes.len() };
            if let Some(segment) = packet.segment() {
                self.watch.arrived(at, &Heard::of(&segment));
            }
            return Some(Arrival { at: end, due: Duration::from_nanos(at), bytes });
        }
        None
    }

    /// The moment of the next arrival, if anything is on its way; it may turn out to be none.
    pub fn next_at(&self) -> Option<Duration> {
        self.queue.next_at().map(Duration::from_nanos)
    }

    /// Takes an arrival's memory for a packet to come.
    pub fn recycle(&mut self, bytes: Vec<u8>) {
        if self.spare.len() < SPARE_MAX {
            self.spare.push(bytes);
        }
    }

    /// Fate of the packets that came in at `from`.
    pub fn stats(&self, from: End) -> LinkStats {
        self.pipes[from.index()].stats
    }

    /// Findings from all packets.
    pub fn traffic(&self) -> Traffic {
        self.watch.total
    }

    /// The data that one direction of a connection has sent, if any of it was seen.
    pub fn flow(&self, src: SocketAddr, dst: SocketAddr) -> Option<Traffic> {
        self.watch.flow(src, dst)
    }

    fn keep(&mut self, to: End, bytes: &[u8], flip: Option<u64>) -> usize {
        let mut copy = self.spare.pop().unwrap_or_default();
        copy.clear();
        copy.extend_from_slice(bytes);
        if let Some(bit) = flip
            && let Some(byte) = usize::try_from(bit / 8).ok().and_then(|place| copy.get_mut(place))
        {
            *byte ^= 1 << (bit % 8);
        }
        self.frames.insert((to, copy))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn numbered(count: u32) -> impl Iterator<Item = Vec<u8>> {
        (0..count).map(|number| number.to_be_bytes().to_vec())
    }

    fn arrivals(link: &mut Emulator, now: Duration) -> Vec<(End, u32, Duration)> {
        let number = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().unwrap());
        let mut all = Vec::new();
        while let Some(Arrival { at, due, bytes }) = link.due(now) {
            all.push((at, number(&bytes), due));
            link.recycle(bytes);
        }
        all
    }

    #[test]
    fn packets_arrive_when_they_are_due_and_not_before() {
        let config = LinkConfig::rtt(10 * MS);
        let mut link = Emulator::new(1, config.clone(), config);
        for (from, bytes) in [End::First, End::Second].into_iter().zip(numbered(2)) {
            link.offer(MS, from, &bytes);
        }
        assert_eq!(link.next_at(), Some(6 * MS));
        assert_eq!(arrivals(&mut link, 6 * MS - Duration::from_nanos(1)), []);
        let expected = [(End::Second, 0, 6 * MS), (End::First, 1, 6 * MS)];
        assert_eq!(arrivals(&mut link, 7 * MS), expected);
        assert_eq!((link.next_at(), link.stats(End::First).delivered), (None, 1));
    }

    #[test]
    fn an_overtaken_packet_waits_for_others_or_for_its_time() {
        let config = LinkConfig { reorder: 1.0, reorder_span: 1, ..LinkConfig::rtt(2 * MS) };
        let mut link = Emulator::new(1, config.clone(), config.clone());
        link.offer(Duration::ZERO, End::First, &[0; 4]);
        link.pipes[0].config.reorder = 0.0;
        link.offer(MS, End::First, &[0, 0, 0, 1]);
        let order: Vec<u32> = arrivals(&mut link, 20 * MS).iter().map(|(_, number, _)| *number).collect();
        assert_eq!(order, [1, 0]);
        link.pipes[0].config.reorder = 1.0;
        link.offer(20 * MS, End::First, &[0; 4]);
        assert_eq!(arrivals(&mut link, 30 * MS), []);
        assert_eq!(arrivals(&mut link, 31 * MS), [(End::Second, 0, 31 * MS)]);
    }

    #[test]
    fn packets_are_recorded_with_their_fate_if_recording_is_on() {
        let config = LinkConfig { loss: 1.0, ..LinkConfig::default() };
        let mut record = [Vec::new(), Vec::new()];
        for (capture, record) in [Capture::Off, Capture::All].into_iter().zip(&mut record) {
            let mut link = Emulator::new(1, config.clone(), config.clone()).capture(capture);
            link.offer(MS, End::Second, b"a packet that is lost");
            link.write_pcap(record).unwrap();
        }
        let has = |record: &[u8], what: &[u8]| record.windows(what.len()).any(|part| part == what);
        assert!(has(&record[1], b"a packet that is lost") && has(&record[1], "second → first".as_bytes()));
        assert!(record[1].len() > record[0].len() && !has(&record[0], b"a packet"));
    }

    #[test]
    fn lost_doubled_and_damaged_packets_are_counted_and_none_remains() {
        let config =
            LinkConfig { loss: 0.1, duplicate: 0.1, corrupt: 0.1, reorder: 0.1, ..LinkConfig::default() };
        let mut link = Emulator::new(3, config.clone(), config);
        numbered(1000).for_each(|bytes| link.offer(Duration::ZERO, End::First, &bytes));
        let came = arrivals(&mut link, Duration::from_secs(1)).len() as u64;
        let stats = link.stats(End::First);
        assert_eq!((stats.offered, stats.delivered), (1000, came));
        assert_eq!(came, 1000 - stats.lost + stats.duplicated);
        assert!(
            stats.lost > 50 && stats.duplicated > 50 && stats.corrupted > 50 && stats.held > 50,
            "{stats:?}"
        );
        assert!(link.frames.is_empty());
    }
}
