//! One direction of a link: decides whether and when each packet arrives.
//!
//! Computes only: the caller that asks ([`Pipe::course`]) moves the frames. The line is one number, the moment from
//! which it is free, so a queue costs no events: the waiting bytes are those that the line will still be busy with.
//! Packets keep their order unless one is to be overtaken; then those behind it are counted, and it is let go
//! behind the last of them.
//!
//! Invariant: `last_arrival` never goes back. All chance is drawn from the pipe's own stream, so that packets of one
//! link do not change the luck of another. Tests: below, `tests/net/links.rs`.

use std::time::Duration;

use sockeye_proto::ip;

use crate::event::Nanos;
use crate::link::{Fate, LinkConfig, LinkStats};
use crate::packet::Packet;
use crate::rng::Rng;

/// A predicate of the user's.
pub(crate) type Filter = Box<dyn FnMut(&Packet<'_>) -> Fate + Send>;

/// See the module's head.
pub(crate) struct Pipe {
    pub config: LinkConfig,
    /// "client → server".
    pub name: String,
    /// The host at its end.
    pub to: usize,
    pub is_up: bool,
    pub filter: Option<Filter>,
    pub stats: LinkStats,
    /// Packets that wait to be overtaken.
    pub held: Vec<Held>,
    rng: Rng,
    /// From when on the line is free.
    free_at: Nanos,
    last_arrival: Nanos,
    is_bad: bool,
}

/// A packet that waits to be overtaken by `left` more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    pub frame: usize,
    pub number: u64,
    pub left: u32,
}

/// Fate of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Course {
    /// It is gone, for this reason.
    Dropped(&'static str),
    /// It arrives at `at`.
    Arrives {
        at: Nanos,
        twice: bool,
        /// The bit to turn over, counted from the packet's first.
        flip: Option<u64>,
    },
    /// It arrives behind `span` others, or `wait` after `at` if they do not come.
    Overtaken { at: Nanos, span: u32, wait: Nanos },
}

impl Course {
    /// A capture's comment on a packet that did not simply pass.
    pub fn note(self) -> Option<&'static str> {
        match self {
            Course::Dropped(reason) => Some(reason),
            Course::Overtaken { .. } => Some("held back"),
            Course::Arrives { flip: Some(_), .. } => Some("corrupted on its way"),
            Course::Arrives { twice: true, flip: None, .. } => Some("comes twice"),
            Course::Arrives { twice: false, flip: None, .. } => None,
        }
    }
}

/// Bits of a second's worth of nanoseconds, for rates.
const BIT_NANOS: u128 = 8_000_000_000;

impl Pipe {
    pub fn new(name: String, to: usize, config: LinkConfig, rng: Rng) -> Self {
        Self {
            config,
            name,
            to,
            is_up: true,
            filter: None,
            stats: LinkStats::default(),
            held: Vec::new(),
            rng,
            free_at: 0,
            last_arrival: 0,
            is_bad: false,
        }
    }

    /// Decides about a packet that comes to the link now.
    pub fn course(&mut self, now: Nanos, packet: &Packet<'_>) -> Course {
        self.stats.offered += 1;
        if !self.is_up {
            self.stats.cut += 1;
            return Course::Dropped("partition");
        }
        if packet.len > self.config.mtu as usize {
            self.stats.too_long += 1;
            return Course::Dropped("longer than the MTU");
        }
        let fate = self.filter.as_mut().map_or(Fate::Pass, |filter| filter(packet));
        let Some(sent_at) = self.serialise(now, packet.len) else {
            self.stats.queue_full += 1;
            return Course::Dropped("queue full");
        };
        if fate == Fate::Drop {
            self.stats.filtered += 1;
            return Course::Dropped("predicate");
        }
        if self.is_lost() {
            self.stats.lost += 1;
            return Course::Dropped("loss");
        }
        self.travel(sent_at, packet.len, fate)
    }

    /// Whether the queue is so long that packets that come now are to be [marked](Self::mark).
    pub fn is_marking(&self, now: Nanos) -> bool {
        self.is_up && self.config.mark.is_some_and(|from| self.waiting(now) >= from as u128)
    }

    /// Marks a packet that comes to the link, if its sender can be told so.
    pub fn mark(&mut self, packet: &mut [u8]) {
        self.stats.marked += u64::from(ip::ecn::mark(packet));
    }

    /// Puts a packet on the line; the moment at which its last bit has left, or `None` if there is no room.
    fn serialise(&mut self, now: Nanos, len: usize) -> Option<Nanos> {
        let Some(rate) = self.config.rate else { return Some(now) };
        let rate = u128::from(rate.max(1));
        if self.waiting(now) + len as u128 > self.config.queue as u128 {
            return None;
        }
        let takes = (len as u128 * BIT_NANOS).div_ceil(rate);
        self.free_at = self.free_at.max(now).saturating_add(u64::try_from(takes).unwrap_or(u64::MAX));
        Some(self.free_at)
    }

    /// Bytes that wait for the line or are on it.
    fn waiting(&self, now: Nanos) -> u128 {
        let rate = self.config.rate.map_or(0, |rate| u128::from(rate.max(1)));
        u128::from(self.free_at.saturating_sub(now)) * rate / BIT_NANOS
    }

    fn is_lost(&mut self) -> bool {
        let mut lost = self.rng.chance(self.config.loss);
        if let Some(burst) = self.config.burst {
            self.is_bad =
                if self.is_bad { !self.rng.chance(burst.end) } else { self.rng.chance(burst.begin) };
            lost |= self.is_bad && self.rng.chance(burst.loss);
        }
        lost
    }

    /// The way of a packet that is not lost.
    fn travel(&mut self, sent_at: Nanos, len: usize, fate: Fate) -> Course {
        let jitter = self.rng.below(nanos(self.config.jitter));
        let at = sent_at.saturating_add(nanos(self.config.delay)).saturating_add(jitter);
        if let Fate::Delay(more) = fate {
            self.stats.held += 1;
            return Course::Arrives { at: at.saturating_add(nanos(more)), twice: false, flip: None };
        }
        let at = at.max(self.last_arrival);
        let span = self.config.reorder_span.max(1);
        if self.rng.chance(self.config.reorder) {
            self.stats.held += 1;
            let span = u32::try_from(self.rng.between(1, u64::from(span))).unwrap_or(span);
            return Course::Overtaken { at, span, wait: nanos(self.config.reorder_wait) };
        }
        self.last_arrival = at;
        let twice = fate == Fate::Duplicate || self.rng.chance(self.config.duplicate);
        let corrupt = fate == Fate::Corrupt || self.rng.chance(self.config.corrupt);
        let flip = corrupt.then(|| self.rng.below(len as u64 * 8));
        self.stats.duplicated += u64::from(twice);
        self.stats.corrupted += u64::from(corrupt);
        Course::Arrives { at, twice, flip }
    }

    /// One more packet has overtaken those that wait: the frames that have waited enough, oldest first.
    pub fn overtake(&mut self) -> Vec<usize> {
        let mut free = Vec::new();
        self.held.retain_mut(|held| {
            held.left -= 1;
            if held.left == 0 {
                free.push(held.frame);
            }
            held.left > 0
        });
        free
    }

    /// A held packet has waited for its whole time; `false` if it has gone already.
    pub fn release(&mut self, number: u64) -> bool {
        let before = self.held.len();
        self.held.retain(|held| held.number != number);
        self.held.len() < before
    }
}

/// The stream of chance of the pipe between two hosts: its own for each, the same in whatever order pipes are laid.
pub(crate) fn stream_of(rng: &Rng, from: usize, to: usize) -> Rng {
    Rng::new(rng.clone().u64()).fork((from as u64) << 32 | to as u64)
}

/// A time as nanoseconds, at most 584 years.
pub(crate) fn nanos(time: Duration) -> Nanos {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::Burst;

    fn pipe(config: LinkConfig) -> Pipe {
        Pipe::new("a → b".into(), 1, config, Rng::new(1))
    }

    fn packet(len: usize) -> Packet<'static> {
        Packet { at: Duration::ZERO, index: 0, head: &[], len }
    }

    fn arrival(course: Course) -> Nanos {
        match course {
            Course::Arrives { at, .. } => at,
            Course::Dropped(_) | Course::Overtaken { .. } => panic!("{course:?}"),
        }
    }

    #[test]
    fn a_line_serialises_queues_and_drops_beyond_its_limit() {
        let config = LinkConfig { rate: Some(12_000_000), queue: 4500, ..LinkConfig::default() };
        let mut pipe = pipe(config);
        // 1,500 bytes take a millisecond, and then travel one.
        let courses: Vec<_> = (0..4).map(|_| pipe.course(0, &packet(1500))).collect();
        let at: Vec<_> = courses[..3].iter().map(|course| arrival(*course)).collect();
        assert_eq!(at, [2_000_000, 3_000_000, 4_000_000]);
        assert_eq!(courses[3], Course::Dropped("queue full"));
        // Half of the first has left.
        assert_eq!(pipe.course(499_000, &packet(750)), Course::Dropped("queue full"));
        assert_eq!(arrival(pipe.course(500_000, &packet(750))), 4_500_000);
    }

    #[test]
    fn jitter_keeps_the_order() {
        let config = LinkConfig { jitter: Duration::from_millis(5), ..LinkConfig::default() };
        let mut pipe = pipe(config);
        let at: Vec<_> = (0..1000).map(|i| arrival(pipe.course(i * 10_000, &packet(100)))).collect();
        assert!(at.is_sorted());
        assert!(
            at.iter().zip(0..).all(|(at, i)| *at >= i * 10_000 + 1_000_000 && *at < i * 10_000 + 11_000_000)
        );
    }

    #[test]
    fn bursts_have_the_configured_rate_and_length() {
        let burst = Burst { begin: 0.01, end: 0.25, loss: 1.0 };
        let mut pipe = pipe(LinkConfig { burst: Some(burst), ..LinkConfig::default() });
        let lost: Vec<bool> =
            (0..200_000).map(|_| pipe.course(0, &packet(100)) == Course::Dropped("loss")).collect();
        let bursts = lost.windows(2).filter(|pair| !pair[0] && pair[1]).count();
        let length = lost.iter().filter(|lost| **lost).count() as f64 / bursts as f64;
        assert!((3.5..4.5).contains(&length), "{length}");
        assert!((1700..2200).contains(&bursts), "{bursts}");
    }

    #[test]
    fn a_packet_that_is_to_be_overtaken_waits_for_as_many_as_were_drawn() {
        let mut pipe = pipe(LinkConfig::default());
        pipe.held = vec![Held { frame: 4, number: 1, left: 2 }, Held { frame: 5, number: 2, left: 1 }];
        assert_eq!(pipe.overtake(), [5]);
        assert_eq!(pipe.overtake(), [4]);
        pipe.held.push(Held { frame: 6, number: 3, left: 3 });
        assert!(pipe.release(3) && !pipe.release(3));
    }

    #[test]
    fn predicates_partitions_and_mtus_drop_packets() {
        let mut pipe = pipe(LinkConfig { mtu: 1500, ..LinkConfig::default() });
        pipe.filter = Some(Box::new(|packet| if packet.len == 7 { Fate::Drop } else { Fate::Pass }));
        assert_eq!(pipe.course(0, &packet(7)), Course::Dropped("predicate"));
        assert_eq!(pipe.course(0, &packet(1501)), Course::Dropped("longer than the MTU"));
        arrival(pipe.course(0, &packet(8)));
        pipe.is_up = false;
        assert_eq!(pipe.course(0, &packet(8)), Course::Dropped("partition"));
        let LinkStats { offered, filtered, cut, too_long, .. } = pipe.stats;
        assert_eq!((offered, filtered, cut, too_long), (4, 1, 1, 1));
    }
}
