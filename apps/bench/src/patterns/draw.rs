//! Patterns of traffic, drawn from a seed.
//!
//! Purpose: a [`Pattern`] says everything that both sides do. Pattern N of a seed does not depend on how many others are drawn.
//!
//! Does not depend on sockets, time.
//!
//! Invariants: a pattern has a bound in bytes, in messages and in pauses, so that it takes tens of milliseconds unless a stack
//! makes it wait. Pauses of a stack count against it: where the protocol itself may wait (small writes before an answer under
//! Nagle's algorithm), there are only [`TURNS_HELD_MAX`] turns.
//!
//! Tests: below.

use std::fmt;
use std::time::Duration;

use crate::plan::bytes;
use crate::stats::SplitMix64;

/// What the connection crosses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Sockeye's loopback, beside the kernel's.
    Loopback,
    /// Two stacks and a wire, beside two namespaces of the kernel and a veth pair.
    Wire,
    /// The kernel and a TUN device to Sockeye, which accepts, beside a veth pair.
    TunServer,
    /// The same with Sockeye as the side that connects.
    TunClient,
}

impl Place {
    /// The words for it.
    pub fn name(self) -> &'static str {
        match self {
            Place::Loopback => "loopback",
            Place::Wire => "wire",
            Place::TunServer => "TUN, kernel connects",
            Place::TunClient => "TUN, kernel accepts",
        }
    }
}

/// What runs the two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runner {
    /// A blocking thread for each end, and for each direction where both carry data at once.
    Threads,
    /// Tasks of one tokio runtime.
    OneRuntime,
    /// Each end has a tokio runtime of its own.
    TwoRuntimes,
}

/// Who says what when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Messages to the end that accepted.
    Up,
    /// Messages to the end that connected.
    Down,
    /// Messages both ways at once, each end with a reader and a writer.
    Both,
    /// So many messages, then an answer, and again.
    Turns {
        /// Messages before an answer.
        ahead: usize,
    },
    /// Connect, message, answer, close; again.
    Connects,
}

/// Sizes of messages, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Of each message, or of about half of them.
    pub one: usize,
    /// Of the others.
    pub other: usize,
}

/// How the receiver of messages reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reads {
    /// Bytes of its buffer.
    pub size: usize,
    /// Its pause before each read.
    pub lag: Duration,
}

/// All that both sides do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// Its number among those of the seed.
    pub number: usize,
    /// What it crosses.
    pub place: Place,
    /// What runs it.
    pub runner: Runner,
    /// Who says what when.
    pub shape: Shape,
    /// Connections at a time.
    pub connections: usize,
    /// Messages of a connection, one way; turns or connections, if it has those.
    pub count: usize,
    /// Of messages.
    pub sizes: Sizes,
    /// Bytes of an answer.
    pub answer: usize,
    /// Writes for each message.
    pub writes: usize,
    /// TCP_NODELAY, at both ends.
    pub nodelay: bool,
    /// The writer's pause before a message or turn.
    pub think: Duration,
    /// The other end's pause before its answer.
    pub ponder: Duration,
    /// How messages are read.
    pub reads: Reads,
    /// Bytes that come back after the last message and its FIN, over the half-closed connection. One way only.
    pub tail: usize,
    /// One core is busy with something else.
    pub busy: bool,
}

impl Pattern {
    /// Pattern `number` of `seed`; with `quick`, a quarter of the messages.
    pub fn draw(seed: u64, number: usize, quick: bool) -> Self {
        let mut dice = Dice(SplitMix64::new(seed.wrapping_mul(SPREAD) ^ number as u64));
        // Numbers close together give states close together; the first output mixes them.
        let mut dice = Dice(SplitMix64::new(dice.0.draw()));
        let shape = match dice.of(&[0, 0, 1, 1, 2, 2, 3, 3, 3, 4]) {
            0 => Shape::Up,
            1 => Shape::Down,
            2 => Shape::Both,
            3 => Shape::Turns { ahead: dice.of(&[1, 1, 1, 2, 3, 8]) },
            _ => Shape::Connects,
        };
        let place = dice.of(&[Place::Loopback, Place::Wire, Place::TunServer, Place::TunClient]);
        let one = dice.of(&SIZES);
        let mixed = shape != Shape::Connects && dice.one_in(4);
        let mut pattern = Self {
            number,
            place,
            runner: dice.of(match place {
                Place::Loopback => &[Runner::Threads, Runner::OneRuntime, Runner::TwoRuntimes],
                // The two ends are on different machines, as far as they know.
                Place::Wire | Place::TunServer | Place::TunClient => &[Runner::Threads, Runner::TwoRuntimes],
            }),
            shape,
            connections: dice.of(&[1, 1, 1, 1, 2, 3, 10, 32, 100]),
            count: 0,
            sizes: Sizes { one, other: if mixed { dice.of(&SIZES) } else { one } },
            answer: dice.of(&SIZES),
            writes: if dice.one_in(4) { dice.of(&[2, 3]) } else { 1 },
            nodelay: dice.one_in(2),
            think: dice.pause(),
            ponder: Duration::ZERO,
            reads: dice.reads(),
            tail: 0,
            busy: dice.one_in(5),
        };
        match shape {
            Shape::Turns { .. } | Shape::Connects => pattern.ponder = dice.pause(),
            Shape::Up | Shape::Down if dice.one_in(3) => pattern.tail = dice.of(&SIZES),
            Shape::Up | Shape::Down | Shape::Both => {}
        }
        pattern.bound_lag();
        pattern.count = pattern.most().div_ceil(if quick { QUICK_SHARE } else { 1 });
        pattern
    }

    /// Bytes of message `index` of a connection; `way` is 0 towards the end that accepted, 1 back.
    pub fn size(&self, way: usize, index: usize) -> usize {
        let mixed = (index as u64 + 1).wrapping_mul(SPREAD).rotate_left(17 + way as u32);
        if mixed.count_ones().is_multiple_of(2) { self.sizes.one } else { self.sizes.other }
    }

    /// Whether the time from a message's write to its last byte's read, or that of a turn, says anything: without a pause,
    /// messages one way wait for those before them, as long as the buffers are large; the same if all writers together
    /// are faster than the machine.
    pub fn has_latency(&self) -> bool {
        match self.shape {
            Shape::Turns { .. } | Shape::Connects => true,
            Shape::Up | Shape::Down | Shape::Both => {
                let messages = self.connections * if self.shape == Shape::Both { 2 } else { 1 };
                let pace = self.taken(self.think) / u32::try_from(messages).unwrap_or(u32::MAX);
                pace >= PACE_MIN && self.reads.lag.is_zero()
            }
        }
    }

    /// Makes a reader's buffer large, or else its pauses none, if one message or turn would take it too long.
    fn bound_lag(&mut self) {
        let is_long = |pattern: &Self| pattern.lags() > PAUSES_MAX / 2;
        if is_long(self) {
            self.reads.size = READ_LARGE;
        }
        if is_long(self) {
            self.reads.lag = Duration::ZERO;
        }
    }

    /// Bytes of the messages before an answer, or of one.
    fn burst(&self) -> usize {
        let ahead = if let Shape::Turns { ahead } = self.shape { ahead } else { 1 };
        self.sizes.one.max(self.sizes.other) * ahead
    }

    /// A reader's pauses for one message or turn.
    fn lags(&self) -> Duration {
        let reads = u32::try_from(self.burst().div_ceil(self.reads.size)).unwrap_or(u32::MAX);
        self.taken(self.reads.lag).saturating_mul(reads)
    }

    /// How long a pause takes: tokio's timers have ticks of a millisecond.
    fn taken(&self, pause: Duration) -> Duration {
        let is_rounded = !pause.is_zero() && self.runner != Runner::Threads;
        if is_rounded { pause.max(TICK) } else { pause }
    }

    /// Messages (turns, connections) of each connection that keep to the bounds.
    fn most(&self) -> usize {
        let (ahead, shared) = match self.shape {
            Shape::Turns { ahead } => (ahead, TURNS_MAX),
            Shape::Connects => (1, CONNECTS_MAX),
            Shape::Up | Shape::Down | Shape::Both => (1, MESSAGES_MAX),
        };
        let bytes = self.burst();
        let reads = bytes.div_ceil(self.reads.size);
        let of_all = [shared / ahead.min(4), BYTES_MAX / (bytes + self.answer_len()), READS_MAX / reads];
        let pauses = self.taken(self.think) + self.taken(self.ponder) + self.lags();
        let of_each = PAUSES_MAX.as_nanos().checked_div(pauses.as_nanos()).map_or(usize::MAX, |n| n as usize);
        let held = match self.shape {
            Shape::Turns { ahead } if !self.nodelay && (ahead > 1 || self.writes > 1) => TURNS_HELD_MAX,
            Shape::Turns { .. } | Shape::Connects | Shape::Up | Shape::Down | Shape::Both => usize::MAX,
        };
        let of_all = of_all.into_iter().min().unwrap_or(0) / self.connections;
        of_all.min(of_each).min(held).max(2)
    }

    fn answer_len(&self) -> usize {
        match self.shape {
            Shape::Turns { .. } | Shape::Connects => self.answer,
            Shape::Up | Shape::Down | Shape::Both => 0,
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { count, connections, .. } = self;
        let size = match self.sizes {
            Sizes { one, other } if one == other => bytes(one),
            Sizes { one, other } => format!("{}/{}", bytes(one), bytes(other)),
        };
        write!(f, "{}, {}, ", self.place.name(), self.runner.name())?;
        match self.shape {
            Shape::Up => write!(f, "{count} × {size} to the acceptor")?,
            Shape::Down => write!(f, "{count} × {size} to the connector")?,
            Shape::Both => write!(f, "{count} × {size} both ways at once")?,
            Shape::Turns { ahead: 1 } => write!(f, "{count} × ({size}, answer {})", bytes(self.answer))?,
            Shape::Turns { ahead } => {
                write!(f, "{count} × ({ahead} of {size}, answer {})", bytes(self.answer))?
            }
            Shape::Connects => write!(f, "{count} × (connect, {size}, answer {})", bytes(self.answer))?,
        }
        write!(f, ", {connections} conn, {}", if self.nodelay { "nodelay" } else { "Nagle" })?;
        if self.writes > 1 {
            write!(f, ", {} writes a message", self.writes)?;
        }
        for (what, pause) in [("think", self.think), ("ponder", self.ponder), ("lag", self.reads.lag)] {
            if !pause.is_zero() {
                write!(f, ", {what} {pause:?}")?;
            }
        }
        if self.reads.size != READ_LARGE {
            write!(f, ", reads of {}", bytes(self.reads.size))?;
        }
        if self.tail > 0 {
            write!(f, ", half-closed for {}", bytes(self.tail))?;
        }
        if self.busy { write!(f, ", a core busy") } else { Ok(()) }
    }
}

impl Runner {
    /// The words for it.
    pub fn name(self) -> &'static str {
        match self {
            Runner::Threads => "threads",
            Runner::OneRuntime => "1 runtime",
            Runner::TwoRuntimes => "2 runtimes",
        }
    }
}

struct Dice(SplitMix64);

impl Dice {
    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.0.below(all.len())]
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.0.below(n) == 0
    }

    fn pause(&mut self) -> Duration {
        Duration::from_micros(self.of(&[0, 0, 0, 0, 50, 200, 1000, 5000]))
    }

    fn reads(&mut self) -> Reads {
        let size = self.of(&[READ_LARGE, READ_LARGE, READ_LARGE, 4096, 100]);
        let lag = Duration::from_micros(self.of(&[0, 0, 0, 0, 0, 0, 200, 2000]));
        Reads { size, lag }
    }
}

/// The MSS of a TCP segment with timestamps at an MTU of 1,500, in bytes.
const MSS: usize = 1448;
/// Bytes of messages and answers.
const SIZES: [usize; 14] =
    [1, 16, 64, 64, 256, 1000, MSS - 1, MSS, MSS + 1, 4096, 16 << 10, 16 << 10, 64 << 10, 256 << 10];
/// Bytes of a reader's buffer unless the pattern says otherwise.
const READ_LARGE: usize = 64 << 10;

/// Bounds of a pattern, over all its connections.
const MESSAGES_MAX: usize = 4000;
const TURNS_MAX: usize = 1000;
const CONNECTS_MAX: usize = 300;
const READS_MAX: usize = 20_000;
const BYTES_MAX: usize = 16 << 20;
/// Bound of the pauses of one connection.
const PAUSES_MAX: Duration = Duration::from_millis(60);
/// Time between messages of all writers in which any machine writes and reads one.
const PACE_MIN: Duration = Duration::from_micros(50);
/// Of tokio's timers.
const TICK: Duration = Duration::from_millis(1);
/// Turns of a connection in which the protocol may wait by itself: up to 40 ms each on the kernel's side.
const TURNS_HELD_MAX: usize = 4;
/// With `quick`.
const QUICK_SHARE: usize = 4;
/// 2^64 over the golden ratio.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_depends_on_seed_and_number_alone() {
        assert_eq!(Pattern::draw(1, 7, false), Pattern::draw(1, 7, false));
        assert_ne!(Pattern::draw(1, 7, false), Pattern::draw(2, 7, false));
        assert_ne!(Pattern::draw(1, 7, false), Pattern { number: 7, ..Pattern::draw(1, 8, false) });
    }

    #[test]
    fn patterns_keep_to_their_bounds_and_reach_every_choice() {
        let all: Vec<Pattern> = (0..2000).map(|number| Pattern::draw(1, number, false)).collect();
        for pattern in &all {
            let ahead = if let Shape::Turns { ahead } = pattern.shape { ahead } else { 1 };
            let bytes = pattern.sizes.one.max(pattern.sizes.other) * ahead + pattern.answer_len();
            let fewest = 2 * pattern.connections;
            assert!(pattern.count * pattern.connections <= fewest.max(BYTES_MAX / bytes), "{pattern}");
            assert!(
                pattern.count <= 2 || (pattern.think + pattern.ponder) * pattern.count as u32 <= PAUSES_MAX
            );
            assert!(pattern.count >= 2 && pattern.size(0, 3) > 0);
            assert!(pattern.lags() <= PAUSES_MAX / 2, "{pattern}");
        }
        let has = |what: &dyn Fn(&Pattern) -> bool| all.iter().any(what);
        for place in [Place::Loopback, Place::Wire, Place::TunServer, Place::TunClient] {
            for busy in [false, true] {
                assert!(has(&|pattern| pattern.place == place && pattern.busy == busy));
            }
        }
        for runner in [Runner::Threads, Runner::OneRuntime, Runner::TwoRuntimes] {
            for nodelay in [false, true] {
                assert!(has(&|pattern| pattern.runner == runner && pattern.nodelay == nodelay));
            }
        }
        assert!(has(&|pattern| pattern.tail > 0) && has(&|pattern| pattern.connections == 100));
        assert!(
            has(&|pattern| pattern.shape == Shape::Both) && has(&|pattern| pattern.shape == Shape::Connects)
        );
    }

    #[test]
    fn mixed_sizes_are_both_used_in_both_directions() {
        let pattern = Pattern { sizes: Sizes { one: 1, other: 2 }, ..Pattern::draw(1, 0, false) };
        for way in 0..2 {
            let ones = (0..1000).filter(|&index| pattern.size(way, index) == 1).count();
            assert!((300..700).contains(&ones), "{ones}");
        }
    }

    #[test]
    fn the_description_is_in_words_of_the_field() {
        let mut pattern = Pattern::draw(1, 0, false);
        pattern.place = Place::TunServer;
        pattern.runner = Runner::Threads;
        pattern.shape = Shape::Turns { ahead: 3 };
        pattern.sizes = Sizes { one: 64, other: 64 };
        (pattern.count, pattern.connections, pattern.answer) = (9, 1, 16 << 10);
        (pattern.nodelay, pattern.writes, pattern.busy, pattern.tail) = (false, 2, true, 0);
        (pattern.think, pattern.ponder) = (Duration::from_micros(50), Duration::ZERO);
        pattern.reads = Reads { size: 100, lag: Duration::ZERO };
        let want = "TUN, kernel connects, threads, 9 × (3 of 64, answer 16K), 1 conn, Nagle, 2 writes a message, \
                    think 50µs, reads of 100, a core busy";
        assert_eq!(pattern.to_string(), want);
    }
}
