//! Settings of a link.
//!
//! Knows nothing of how it is done (`pipe.rs`). Tests: `tests/net/links.rs`.

use std::time::Duration;

/// One direction of a link. Start from [`LinkConfig::default`] and change fields.
///
/// A packet is first queued and serialised at `rate`; a lost packet has taken its time on the line all the
/// same. Then come the faults, and then the delay.
#[derive(Clone, Debug)]
pub struct LinkConfig {
    /// Time from the packet's last bit leaving to its arrival. Default 1 ms.
    pub delay: Duration,
    /// Up to so much is added to the delay, evenly. Packets keep their order. Default none.
    pub jitter: Duration,
    /// Bits per second at which packets are serialised, IP headers included; `None`: at once. Default `None`.
    pub rate: Option<u64>,
    /// Bytes that may wait for the line or be on it; further packets are dropped. Counts with a `rate` only.
    /// Default 256 KiB.
    pub queue: usize,
    /// From so many waiting bytes on packets of ECN-capable senders are marked (RFC 3168); others are not dropped before the
    /// queue is full. Counts with a `rate` only. Default `None`: none is.
    pub mark: Option<usize>,
    /// Probability that a packet is lost. Default 0.
    pub loss: f64,
    /// Loss in bursts, beside `loss`. Default none.
    pub burst: Option<Burst>,
    /// Probability that a packet comes twice. Default 0.
    pub duplicate: f64,
    /// Probability that a packet is overtaken by others. Default 0.
    pub reorder: f64,
    /// Most packets that overtake one, at least 1: how many is drawn. Default 3.
    pub reorder_span: u32,
    /// A packet that is to be overtaken waits no longer than this for others to come. Default 10 ms.
    pub reorder_wait: Duration,
    /// Probability that one bit of a packet is turned over. Default 0.
    pub corrupt: f64,
    /// Bytes of the largest packet; longer ones vanish without a word. Default 65,536.
    pub mtu: u32,
}

/// Loss that comes in bursts: the model of Gilbert and Elliott. The link is in a good or a bad state, and may change
/// it before each packet.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Burst {
    /// Probability that the good state turns bad.
    pub begin: f64,
    /// Probability that the bad state turns good: bursts are 1 / `end` packets long on average.
    pub end: f64,
    /// Probability of loss in the bad state; in the good one there is none.
    pub loss: f64,
}

impl Default for LinkConfig {
    fn default() -> Self {
        Self {
            delay: Duration::from_millis(1),
            jitter: Duration::ZERO,
            rate: None,
            queue: 256 << 10,
            mark: None,
            loss: 0.0,
            burst: None,
            duplicate: 0.0,
            reorder: 0.0,
            reorder_span: 3,
            reorder_wait: Duration::from_millis(10),
            corrupt: 0.0,
            mtu: 65_536,
        }
    }
}

impl LinkConfig {
    /// A link of this round-trip time: half of it is the delay of each direction.
    pub fn rtt(rtt: Duration) -> Self {
        Self { delay: rtt / 2, ..Self::default() }
    }

    /// Whether packets can be lost, damaged, doubled, overtaken or refused for their length; a full queue aside.
    pub fn is_faulty(&self) -> bool {
        self.loss > 0.0
            || self.burst.is_some()
            || self.duplicate > 0.0
            || self.reorder > 0.0
            || self.corrupt > 0.0
    }
}

/// A predicate's decision about a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// Goes on, and may still meet with chance.
    Pass,
    /// Is lost.
    Drop,
    /// Comes later by so much; others may overtake it.
    Delay(Duration),
    /// Comes twice.
    Duplicate,
    /// One bit of it is turned over.
    Corrupt,
}

/// Counts of the packets of one direction, by fate.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LinkStats {
    /// Packets that were given to it.
    pub offered: u64,
    /// Packets that arrived, duplicates included.
    pub delivered: u64,
    /// Bytes that arrived, IP headers included.
    pub delivered_bytes: u64,
    /// Lost by chance, in a burst or not.
    pub lost: u64,
    /// Dropped by the predicate.
    pub filtered: u64,
    /// Dropped because the queue was full.
    pub queue_full: u64,
    /// Dropped because of a partition, or because the receiver was down.
    pub cut: u64,
    /// Dropped because they were longer than the MTU.
    pub too_long: u64,
    /// Came twice.
    pub duplicated: u64,
    /// Held back to be overtaken, or delayed by the predicate.
    pub held: u64,
    /// Came with a bit turned over.
    pub corrupted: u64,
    /// Were marked because the queue was long. No fault: they arrived.
    pub marked: u64,
}

impl LinkStats {
    /// Packets with which something went wrong.
    pub fn faults(&self) -> u64 {
        self.lost
            + self.filtered
            + self.queue_full
            + self.cut
            + self.too_long
            + self.duplicated
            + self.held
            + self.corrupted
    }

    /// Packets that did not arrive.
    pub fn dropped(&self) -> u64 {
        self.lost + self.filtered + self.queue_full + self.cut + self.too_long
    }
}
