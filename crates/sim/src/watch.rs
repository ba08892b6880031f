//! An observer of all links: it finds retransmissions from the packets alone.
//!
//! It sees every packet as its sender put it out, lost ones too, so it needs no word of the stack that it judges. A
//! segment is *sent again* if it begins before the end of its direction's data so far. A segment sent while the
//! peer's window is shut is a probe (RFC 9293 section 3.8.6.1); a keepalive has no length and is not counted.
//!
//! Bound: [`FLOWS_MAX`] directions are known; beyond it the oldest is forgotten. Tests: `tests/net/links.rs` and the
//! checkers.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::net::{IpAddr, SocketAddr};

use sockeye_proto::seq::SeqNum;
use sockeye_proto::tcp::segment::Flags;

use crate::event::Nanos;
use crate::packet::Segment;
use crate::rng::mix;

/// Findings from the packets of all links, or of one direction of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Traffic {
    /// Segments sent, lost ones included.
    pub segments: u64,
    /// Bytes of payload in them.
    pub payload_bytes: u64,
    /// Segments with data, SYN or FIN that were sent before.
    pub retransmitted: u64,
    /// Bytes of payload in those, as far as they were sent before.
    pub retransmitted_bytes: u64,
    /// Of the segments sent again, those sent on an acknowledgment's arrival; the others were sent by a timer.
    pub by_ack: u64,
    /// Of the segments sent again, those of which every earlier byte was on its way or had arrived.
    pub needless: u64,
    /// Probes of closed windows.
    pub probes: u64,
    /// Segments with RST.
    pub resets: u64,
    /// Connections begun: first SYNs without ACK.
    pub connects: u64,
}

/// A segment that was sent again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Retransmission {
    /// When, nanoseconds since the start.
    pub at: u64,
    /// From where.
    pub src: SocketAddr,
    /// To where.
    pub dst: SocketAddr,
    /// Bytes behind the initial sequence number, modulo 2^32.
    pub offset: u32,
    /// Bytes of payload.
    pub len: u32,
    /// Whether it was sent on an acknowledgment's arrival; by a timer otherwise.
    pub by_ack: bool,
    /// Whether it ends where everything ends that was sent so far, as a tail loss probe does (RFC 8985 section 7).
    pub is_tail: bool,
    /// Whether none of the repeated bytes had been lost.
    pub needless: bool,
}

/// Directions that are known at a time.
const FLOWS_MAX: usize = 1 << 16;
/// Retransmissions that are kept one by one.
const KEPT_MAX: usize = 1 << 16;

/// From where to where.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Name(SocketAddr, SocketAddr);

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        for end in [self.0, self.1] {
            match end.ip() {
                IpAddr::V4(ip) => state.write_u64(u64::from(ip.to_bits()) << 16 | u64::from(end.port())),
                IpAddr::V6(ip) => {
                    let octets = ip.octets();
                    let (words, _) = octets.as_chunks::<8>();
                    words.iter().for_each(|word| state.write_u64(u64::from_be_bytes(*word)));
                    state.write_u64(u64::from(end.port()));
                }
            }
        }
    }
}

/// The hash of a name: the same in each run, and of chosen names nobody has an advantage here.
#[derive(Default)]
struct Mixed(u64);

impl Hasher for Mixed {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = mix(self.0.rotate_left(5) ^ word);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// What an arriving segment tells about the direction that it answers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heard {
    /// The direction of the segment.
    name: Name,
    is_shut: bool,
    /// It is more than an acknowledgment, so a program may wait for it.
    pub has_text: bool,
}

impl Heard {
    pub fn of(segment: &Segment) -> Self {
        let is_shut = segment.header.window == 0 && !segment.is_syn();
        Self { name: Name(segment.src, segment.dst), is_shut, has_text: segment.seq_len() > 0 }
    }
}

/// Lost pieces that are kept of one direction; beyond it the first are forgotten, and count as not lost.
const MISSING_MAX: usize = 1 << 16;

/// One direction of a connection.
struct Flow {
    iss: SeqNum,
    /// The end of the sent data.
    max: SeqNum,
    /// The peer's latest window field is 0.
    is_shut: bool,
    /// When its sender heard of the peer last.
    heard_at: Nanos,
    /// Lost and not sent again since: from where to where, behind the initial sequence number.
    missing: BTreeMap<u32, u32>,
    traffic: Traffic,
}

/// See the module's head.
#[derive(Default)]
pub(crate) struct Watch {
    pub total: Traffic,
    pub retransmissions: Vec<Retransmission>,
    /// Never iterated.
    flows: HashMap<Name, Flow, BuildHasherDefault<Mixed>>,
    order: VecDeque<Name>,
}

impl Watch {
    /// A segment comes to a link, where it may be lost.
    pub fn sent(&mut self, at: Nanos, segment: &Segment, is_lost: bool) {
        let mut seen = Traffic { segments: 1, payload_bytes: u64::from(segment.len), ..Traffic::default() };
        let name = Name(segment.src, segment.dst);
        let goes_on = |flow: &Flow| segment.is_rst() || !segment.is_syn() || flow.iss == segment.header.seq;
        match self.flows.get_mut(&name) {
            Some(flow) if goes_on(flow) => {
                let again = flow.judge(at, segment, &mut seen);
                flow.count(segment, &seen, is_lost);
                let has_room = self.retransmissions.len() < KEPT_MAX;
                self.retransmissions.extend(again.filter(|_| has_room));
            }
            _ if segment.is_rst() => seen.resets = 1,
            Some(_) | None => {
                seen.connects = u64::from(segment.is_syn() && !segment.header.flags.has(Flags::ACK));
                let mut flow = Flow::new(segment);
                flow.count(segment, &seen, is_lost);
                self.begin(name, flow);
            }
        }
        self.total.add(&seen);
    }

    /// A segment arrives: its window and its acknowledgment are the other direction's.
    pub fn arrived(&mut self, at: Nanos, heard: &Heard) {
        let Name(src, dst) = heard.name;
        if let Some(back) = self.flows.get_mut(&Name(dst, src)) {
            back.heard_at = at;
            back.is_shut = heard.is_shut;
        }
    }

    /// The data that one direction of a connection has sent.
    pub fn flow(&self, src: SocketAddr, dst: SocketAddr) -> Option<Traffic> {
        self.flows.get(&Name(src, dst)).map(|flow| flow.traffic)
    }

    fn begin(&mut self, name: Name, flow: Flow) {
        if self.flows.insert(name, flow).is_none() {
            self.order.push_back(name);
        }
        if self.order.len() > FLOWS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.flows.remove(&oldest);
        }
    }
}

impl Flow {
    /// The direction that begins with this segment.
    fn new(segment: &Segment) -> Self {
        Self {
            iss: segment.header.seq,
            max: segment.header.seq + segment.seq_len(),
            is_shut: false,
            heard_at: Nanos::MAX,
            missing: BTreeMap::new(),
            traffic: Traffic::default(),
        }
    }

    fn count(&mut self, segment: &Segment, seen: &Traffic, is_lost: bool) {
        self.traffic.add(seen);
        if is_lost && segment.seq_len() > 0 {
            self.lose(segment);
        }
    }

    /// Puts into `seen` what a segment is that is not the first.
    fn judge(&mut self, at: Nanos, segment: &Segment, seen: &mut Traffic) -> Option<Retransmission> {
        let header = &segment.header;
        if segment.is_rst() {
            seen.resets = 1;
            return None;
        }
        if segment.seq_len() == 0 {
            return None;
        }
        if self.is_shut {
            // The peer does not take data beyond the window, so it counts as not sent yet.
            seen.probes = 1;
            return None;
        }
        let end = header.seq + segment.seq_len();
        let before = self.max;
        self.max = before.max(end);
        if !header.seq.before(before) {
            return None;
        }
        let again = before.min(end).since(header.seq);
        let one = Retransmission {
            at,
            src: segment.src,
            dst: segment.dst,
            offset: header.seq.since(self.iss),
            len: segment.len,
            by_ack: self.heard_at == at,
            is_tail: end == before,
            needless: !self.repair(segment),
        };
        seen.retransmitted = 1;
        seen.retransmitted_bytes = u64::from(again.min(segment.len));
        (seen.by_ack, seen.needless) = (u64::from(one.by_ack), u64::from(one.needless));
        Some(one)
    }

    /// The part of the sequence space that a segment takes, behind the initial sequence number.
    fn span(&self, segment: &Segment) -> (u32, u32) {
        let start = segment.header.seq.since(self.iss);
        (start, start.saturating_add(segment.seq_len()))
    }

    fn lose(&mut self, segment: &Segment) {
        let (start, end) = self.span(segment);
        let known = self.missing.entry(start).or_insert(end);
        *known = end.max(*known);
        if self.missing.len() > MISSING_MAX {
            self.missing.pop_first();
        }
    }

    /// Removes the repeated bytes from the missing ones; `false` if it was not missing.
    fn repair(&mut self, segment: &Segment) -> bool {
        let (start, end) = self.span(segment);
        let hit = |(from, to): (&u32, &u32)| (*to > start).then_some((*from, *to));
        let found: Vec<(u32, u32)> = self.missing.range(..end).rev().map_while(hit).collect();
        for (from, to) in &found {
            self.missing.remove(from);
            // The parts on either side of the segment are still missing.
            if *from < start {
                self.missing.insert(*from, start);
            }
            if *to > end {
                self.missing.insert(end, *to);
            }
        }
        !found.is_empty()
    }
}

impl Traffic {
    fn add(&mut self, more: &Self) {
        self.segments += more.segments;
        self.payload_bytes += more.payload_bytes;
        self.retransmitted += more.retransmitted;
        self.retransmitted_bytes += more.retransmitted_bytes;
        self.by_ack += more.by_ack;
        self.needless += more.needless;
        self.probes += more.probes;
        self.resets += more.resets;
        self.connects += more.connects;
    }
}
