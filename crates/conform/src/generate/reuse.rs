//! Another connection with the same addresses and ports, soon after the first: in TIME-WAIT, or when one side does not
//! know that the first has ended.
//!
//! Tests: `tests/random.rs`.

use super::{Habit, Maker, Peer};
use crate::codec::Packet;
use crate::random::Random;
use crate::scenario::{Action, How, SockOpt};
use crate::segment::{Flags, Segment};
use crate::trace::What;

/// Largest number of events of the first connection.
const FIRST_EVENTS_MAX: u32 = 7;

impl Maker {
    /// Continues the connection for a while, ends it, and begins the next. The tested side has accepted the first.
    /// False if there is no other.
    pub(super) fn reuse(&mut self) -> bool {
        for _ in 0..self.random.below(FIRST_EVENTS_MAX) {
            self.pause();
            self.something();
        }
        self.at_ms += 20;
        self.settle();
        self.end_somehow();
        let wait = self.random.pick(&[0, 10, 60, 300, 1100]);
        self.at_ms += self.beside_a_hole(wait);
        self.settle();
        self.act(Action::Again);
        let mut syn = self.next_syn();
        self.sent.clear();
        self.act(Action::Segment(syn.clone()));
        if let Some(ack) = self.challenged() {
            // The peer knows nothing of the old connection.
            self.at_ms += 10;
            self.settle();
            // A reset changes nothing in Sockeye's TIME-WAIT (RFC 1337).
            if self.random.chance(50) && !self.driven.is_in_time_wait() {
                self.act(Action::Segment(Segment { flags: Flags::RST, seq: ack, ..Segment::default() }));
            } else {
                syn.seq = ack + 100_000;
            }
            self.at_ms += self.random.pick(&[0, 50, 1000]);
            self.settle();
            self.act(Action::Segment(syn.clone()));
        }
        let Peer { has_ts, has_sack, mss, win, clock, .. } = self.peer;
        let first = syn.seq + 1;
        self.peer =
            Peer { has_ts, has_sack, mss, win, clock, first, snd_nxt: first, ack: 1, ..Peer::default() };
        self.at_ms += 30;
        self.settle();
        self.acknowledge();
        self.at_ms += 10;
        self.settle();
        self.act(Action::Accept);
        let mut records = self.driven.trace().records.iter().rev();
        let is_accepted = records.find_map(|record| match &record.what {
            What::Returned(_, result) => Some(result.is_ok()),
            _ => None,
        });
        is_accepted == Some(true)
    }

    /// The end of the first connection: both FINs in either order, one of them, or a reset.
    fn end_somehow(&mut self) {
        let closes_first = self.random.chance(60);
        if closes_first {
            let how = self.random.pick(&[None, None, Some(How::Write), Some(How::Both)]);
            self.act(how.map_or(Action::Close, Action::Shutdown));
            self.at_ms += 20;
            self.settle();
        }
        match self.random.below(8) {
            0 => {
                // Behind a hole, it would be answered with a challenge ACK, except in the kernel at the end of a SACK
                // block.
                let next = self.peer.hole.map_or(self.peer.snd_nxt, |(from, _)| from);
                self.send(Flags::RST, next, 0);
            }
            1 => {
                self.act(Action::Set(SockOpt::Linger, 0));
                self.act(Action::Close);
            }
            2 => {}
            _ => {
                self.round_trip();
                if self.random.chance(85) {
                    self.receive_all();
                }
                let next = self.peer.snd_nxt;
                self.send(Flags::FIN, next, 0);
                self.peer.snd_nxt = next + 1;
            }
        }
        if !closes_first && self.random.chance(80) {
            self.at_ms += 20;
            self.settle();
            self.act(Action::Close);
            self.round_trip();
            self.peer.ack = self.snd_max().max(self.peer.ack);
            self.acknowledge();
        }
    }

    /// A SYN whose numbers are near those of the connection before.
    fn next_syn(&mut self) -> Segment {
        let next = self.peer.snd_nxt;
        let clock = self.random.pick(&[0, 0, 0, 1000, 10_000, 1 << 31]);
        self.peer.clock = self.peer.clock.wrapping_sub(clock);
        let mut syn = self.syn(Flags::SYN, self.shift > 0);
        syn.ack = 0;
        syn.seq = self.random.pick(&[
            next,
            next + 1,
            next.saturating_sub(1),
            next.saturating_sub(500),
            0,
            next + 100_000,
            next + 100_000,
            next.wrapping_add(3_000_000_000),
        ]);
        syn
    }

    /// The number that the latest segment acknowledges, if that segment is no SYN.
    fn challenged(&self) -> Option<u32> {
        let latest = self.driven.trace().records.last()?;
        match &latest.what {
            What::Sent(Packet::Tcp(ack)) if ack.flags == Flags::ACK => Some(ack.ack),
            _ => None,
        }
    }
}

impl Habit {
    /// In some scenarios another connection follows, instead of the habit that they would have.
    pub(super) fn or_reuse(self, seed: u64) -> Self {
        if Random::new(seed.rotate_left(24)).chance(4) { Self::Reuse } else { self }
    }
}
