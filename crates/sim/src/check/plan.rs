//! Decisions of a seed before anything runs: hosts, links, conversations, troubles.
//!
//! Kept small enough that some hundred plans take a minute, and chosen so that the interesting cases are frequent: tiny
//! buffers, slow readers, closes at bad moments. A quarter of the plans has no fault at all; of these more can be
//! demanded. Does not depend on how anything is run. Tests: `tests/hosts/checkers.rs`.

use std::time::Duration;

use crate::link::{Burst, LinkConfig};
use crate::network::HostConfig;
use crate::rng::Rng;

/// See the module's head.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub hosts: Vec<HostConfig>,
    pub links: Vec<(usize, usize, LinkConfig)>,
    pub talks: Vec<Talk>,
    pub troubles: Vec<Trouble>,
    /// Neither fault nor trouble nor a queue that can be full.
    pub is_calm: bool,
    /// When the last trouble is over.
    pub lasts: Duration,
}

/// Something bad that happens at some time, and ends.
#[derive(Clone, Copy, Debug)]
pub(super) enum Trouble {
    Partition {
        link: usize,
        at: Duration,
        lasts: Duration,
    },
    Crash {
        host: usize,
        at: Duration,
        lasts: Duration,
    },
    /// The path becomes another one.
    Change {
        link: usize,
        at: Duration,
        delay: Duration,
    },
}

/// A conversation: two programs, one connection.
#[derive(Clone, Debug)]
pub(super) struct Talk {
    pub client: usize,
    pub server: usize,
    /// Between which hosts, as an index of the links.
    pub link: usize,
    pub at: Duration,
    pub v6: bool,
    pub sides: [Part; 2],
}

/// The part of one side of a conversation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    /// Bytes that it sends.
    pub bytes: u64,
    /// Largest write and read.
    pub write_max: u64,
    pub read_max: u64,
    /// Probability of a pause after a write or a read, and its longest.
    pub pause: f64,
    pub pause_max: Duration,
    pub nodelay: bool,
    pub leaves: Leaves,
}

/// How a side ends the conversation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Leaves {
    /// Sends all, shuts down, reads to the end.
    Politely,
    /// Reads to the end first, then sends, and shuts down.
    Last,
    /// Sends all and drops the socket, whatever it has not read.
    Early,
    /// Sends all and resets the connection.
    Rudely,
}

/// A cut of this length or longer may end a connection: shorter ones it has to survive.
pub(super) const LONG_CUT: Duration = Duration::from_secs(60);

impl Plan {
    pub fn new(mut rng: Rng) -> Self {
        let rng = &mut rng;
        let is_calm = rng.chance(0.25);
        let mtu = [1280, 1500, 1500, 4000, 9000][rng.below(5) as usize];
        let hosts: Vec<_> = (0..rng.between(2, 4)).map(|_| host(rng, mtu)).collect();
        let pairs = (0..hosts.len()).flat_map(|left| (0..left).map(move |right| (right, left)));
        let links: Vec<_> = pairs.map(|(left, right)| (left, right, link(rng, is_calm))).collect();
        let talks: Vec<_> = (0..rng.between(1, 6)).map(|_| talk(rng, &links)).collect();
        let count = if is_calm { 0 } else { rng.below(4) };
        let troubles: Vec<_> = (0..count).map(|_| trouble(rng, hosts.len(), links.len())).collect();
        let end = |trouble: &Trouble| match trouble {
            Trouble::Partition { at, lasts, .. } | Trouble::Crash { at, lasts, .. } => *at + *lasts,
            Trouble::Change { at, .. } => *at,
        };
        let lasts = troubles.iter().map(end).max().unwrap_or_default();
        // A host crashes once: a second crash could meet it while it is down.
        let mut crashed = Vec::new();
        let troubles = troubles
            .into_iter()
            .filter(|trouble| match trouble {
                Trouble::Crash { host, .. } => {
                    let first = !crashed.contains(host);
                    crashed.push(*host);
                    first
                }
                Trouble::Partition { .. } | Trouble::Change { .. } => true,
            })
            .collect();
        Self { hosts, links, talks, troubles, is_calm, lasts: lasts + Duration::from_secs(1) }
    }

    /// Whether a host crashes.
    pub fn crashes_host(&self, host: usize) -> bool {
        self.troubles.iter().any(|trouble| matches!(trouble, Trouble::Crash { host: h, .. } if *h == host))
    }

    /// How many hosts crash.
    pub fn crashes(&self) -> usize {
        self.troubles.iter().filter(|trouble| matches!(trouble, Trouble::Crash { .. })).count()
    }

    /// How long a link is cut at most; several cuts count as one.
    pub fn cut(&self, link: usize) -> Duration {
        let of_link = |trouble: &Trouble| match trouble {
            Trouble::Partition { link: l, lasts, .. } if *l == link => *lasts,
            Trouble::Partition { .. } | Trouble::Crash { .. } | Trouble::Change { .. } => Duration::ZERO,
        };
        self.troubles.iter().map(of_link).sum()
    }

    /// Whether a link may lose packets by itself.
    pub fn is_lossy(&self, link: usize) -> bool {
        let config = &self.links[link].2;
        config.is_faulty() || config.rate.is_some()
    }
}

fn millis(rng: &mut Rng, low: u64, high: u64) -> Duration {
    Duration::from_micros(rng.between(low * 1000, high * 1000))
}

fn host(rng: &mut Rng, mtu: u32) -> HostConfig {
    let mut host = HostConfig { mtu, ..HostConfig::default() };
    let config = &mut host.stack;
    // Even in the exponent, so that small buffers are as frequent as large ones.
    let buffer = |rng: &mut Rng| (2048u64 << rng.below(8)) + rng.below(2048);
    config.sndbuf = u32::try_from(buffer(rng)).unwrap_or(u32::MAX);
    config.rcvbuf = u32::try_from(buffer(rng)).unwrap_or(u32::MAX);
    config.tcp.timestamps = rng.chance(0.8);
    config.tcp.window_scaling = rng.chance(0.8);
    config.tcp.time_wait = millis(rng, 1000, 60_000);
    host
}

fn link(rng: &mut Rng, is_calm: bool) -> LinkConfig {
    // Where nothing may be sent again, a round trip and a delayed acknowledgment have to fit into the smallest
    // retransmission timeout: the timer may rightly expire otherwise.
    let farthest = if is_calm { 50 } else { 80 };
    let mut config = LinkConfig { delay: millis(rng, 0, farthest), ..LinkConfig::default() };
    if rng.chance(0.5) {
        config.rate = Some(rng.between(5_000_000, 200_000_000));
        config.queue = 64 << 20;
    }
    if is_calm {
        return config;
    }
    if rng.chance(0.5) {
        config.queue = rng.between(20_000, 200_000) as usize;
    }
    if rng.chance(0.3) {
        config.jitter = millis(rng, 0, 20);
    }
    if rng.chance(0.5) {
        config.loss = 0.05 * rng.unit();
    }
    if rng.chance(0.15) {
        // So short that not all repetitions of a lone segment meet the same one.
        config.burst = Some(Burst { begin: 0.01, end: 0.35 + 0.5 * rng.unit(), loss: 0.8 });
    }
    if rng.chance(0.3) {
        config.duplicate = 0.1 * rng.unit();
    }
    if rng.chance(0.3) {
        config.reorder = 0.1 * rng.unit();
        config.reorder_span = rng.between(1, 8) as u32;
    }
    if rng.chance(0.2) {
        config.corrupt = 0.05 * rng.unit();
    }
    config
}

fn talk(rng: &mut Rng, links: &[(usize, usize, LinkConfig)]) -> Talk {
    let link = rng.below(links.len() as u64) as usize;
    let (left, right, _) = links[link];
    let (client, server) = if rng.chance(0.5) { (left, right) } else { (right, left) };
    let mut sides = [part(rng), part(rng)];
    if sides[0].leaves == Leaves::Last && sides[1].leaves == Leaves::Last {
        // Each would wait for the other.
        sides[0].leaves = Leaves::Politely;
    }
    Talk { client, server, link, at: millis(rng, 0, 3000), v6: rng.chance(0.3), sides }
}

fn part(rng: &mut Rng) -> Part {
    let leaves = match rng.below(10) {
        0 => Leaves::Early,
        1 => Leaves::Rudely,
        2 | 3 => Leaves::Last,
        _ => Leaves::Politely,
    };
    // None, some bytes, or up to 200 KB.
    let bytes = match rng.below(6) {
        0 => 0,
        1 | 2 => rng.between(1, 3000),
        _ => rng.between(1, 200_000),
    };
    let is_slow = rng.chance(0.2);
    Part {
        bytes,
        write_max: 1 << rng.between(4, 16),
        read_max: 1 << rng.between(8, 16),
        pause: if is_slow { 0.3 } else { 0.02 },
        pause_max: if is_slow { Duration::from_secs(2) } else { Duration::from_millis(50) },
        nodelay: rng.chance(0.5),
        leaves,
    }
}

fn trouble(rng: &mut Rng, hosts: usize, links: usize) -> Trouble {
    let at = millis(rng, 1, 8000);
    let (link, host) = (rng.below(links as u64) as usize, rng.below(hosts as u64) as usize);
    let kind = rng.below(4);
    let mut lasts = |often: f64, short: u64| {
        let longest = if rng.chance(often) { 1_500_000 } else { short };
        millis(rng, 1, longest)
    };
    match kind {
        0 => Trouble::Crash { host, at, lasts: lasts(0.3, 5000) },
        1 => Trouble::Change { link, at, delay: millis(rng, 0, 300) },
        _ => Trouble::Partition { link, at, lasts: lasts(0.1, 10_000) },
    }
}
