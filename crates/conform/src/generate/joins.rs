//! Data from the peer that the device has joined: one packet made of several segments, as drivers and the kernel's GRO do.
//!
//! Like other data, it arrives in order, out of order, again, overlapping earlier data, or with FIN or PSH. It stays
//! inside the window, because Sockeye and the kernel are known to treat data beyond it differently. Tests: those of
//! `generate.rs`.

use super::Maker;
use super::habits::Habit;
use crate::random::Random;
use crate::scenario::Action;
use crate::segment::{Flags, Segment};
use crate::trace::Record;

impl Habit {
    /// In some scenarios the device joins segments, instead of the habit that the scenario would have.
    pub(super) fn or_joins(self, seed: u64) -> Self {
        if Random::new(seed.rotate_left(12)).chance(PERCENT) { Self::Joins } else { self }
    }
}

impl Maker {
    /// The peer sends several segments, which arrive as one packet.
    pub(super) fn joins(&mut self) -> bool {
        if self.peer.is_done {
            return false;
        }
        self.not_before_an_answer();
        let mss = self.peer_mss();
        let each = self.habits.pick(&[mss, mss, mss, 536, 100]).min(self.text_max());
        let count = self.habits.pick(&[2, 2, 3, 4, 5, 8, 12]);
        let rest = self.habits.pick(&[0, 0, 1, each / 2, each - 1]);
        let len = each * (count - 1) + if rest == 0 { each } else { rest };
        if self.room() < len + ROOM_MIN {
            self.act(Action::Read(100_000));
            return true;
        }
        let (next, first) = (self.peer.snd_nxt, self.peer.first.max(1));
        let seq = match self.habits.below(10) {
            0..6 => next,
            6 => {
                // The first segment is lost, and the others arrive.
                self.peer.hole.get_or_insert((next, next + each));
                next + each
            }
            7 => match self.peer.hole.take() {
                Some((from, _)) => from,
                None => next,
            },
            _ => next.saturating_sub(self.habits.pick(&[1, each, 2 * each, len])).max(first),
        };
        let flags =
            self.habits.pick(&[Flags::PSH, Flags::PSH, Flags::default(), Flags::default(), Flags::FIN]);
        let is_last = flags.has(Flags::FIN) && self.peer.hole.is_none() && seq + len >= next;
        let flags = if flags.has(Flags::FIN) && !is_last { Flags::PSH } else { flags };
        let gso_size = u16::try_from(each).expect("it fits a packet");
        let segment = Segment { len, gso_size, ..self.segment(flags, seq, 0) };
        self.peer.is_done = is_last;
        self.peer.snd_nxt = next.max(segment.end());
        self.act(Action::Segment(segment));
        true
    }

    /// Bytes of the tested side's window that the peer has not used.
    fn room(&self) -> u32 {
        let sent = self.driven.trace().records.iter().filter_map(Record::segment);
        let mut sent = sent.filter(|segment| !segment.flags.has(Flags::RST));
        let shift = sent.clone().find_map(Segment::shift).filter(|_| self.is_scaled());
        let edge = sent.next_back().map_or(0, |told| told.ack + (u32::from(told.win) << shift.unwrap_or(0)));
        edge.saturating_sub(self.peer.snd_nxt)
    }

    /// Whether the peer's SYN offers window scaling; without it, neither side scales its windows.
    fn is_scaled(&self) -> bool {
        self.scenario.events.iter().any(|event| match &event.action {
            Action::Segment(segment) => segment.shift().is_some(),
            _ => false,
        })
    }
}

/// The percentage of scenarios of this kind.
const PERCENT: u32 = 2;
/// Bytes of the window that stay free: more than half of Sockeye's buffer. With less, Sockeye sends no more quick ACKs,
/// and the kernel, whose buffer is larger, still does.
const ROOM_MIN: u32 = 36_000;
