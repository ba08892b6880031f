//! Urgent data from both sides: where marks are, how far they point, and reads up to them and beyond.
//!
//! Tests: those of `generate.rs`.

use super::Maker;
use super::habits::Habit;
use crate::random::Random;
use crate::scenario::{Action, Question};
use crate::segment::Flags;

impl Habit {
    /// In some scenarios data is urgent, instead of the habit that they would have.
    pub(super) fn or_urgency(self, seed: u64) -> Self {
        if Random::new(seed.rotate_left(40)).chance(PERCENT) { Self::Urgency } else { self }
    }
}

impl Maker {
    /// Urgent data that the application writes or the peer sends, or a read near the mark.
    pub(super) fn urgency(&mut self) -> bool {
        match self.habits.below(12) {
            0..3 => {
                let len = self.habits.pick(&[1, 1, 10, 1000, 1448, 3000, 20_000]);
                self.act(Action::WriteUrgent(len));
            }
            3..7 => return self.urgent_text(),
            7 | 8 => {
                let len = self.habits.pick(&[1, 1, 4, 50, 100, 100_000]);
                self.act(Action::Read(len));
                self.act(Action::Ask(Question::Mark));
            }
            9 => self.act(Action::Ask(Question::Mark)),
            10 => self.act(Action::WriteRecord(100)),
            _ => self.hold_or_let_go(),
        }
        true
    }

    /// Data from the peer with a pointer into it or beyond, in order or again, or the pointer alone.
    fn urgent_text(&mut self) -> bool {
        if self.peer.is_done || self.peer.hole.is_some() {
            return false;
        }
        self.not_before_an_answer();
        let next = self.peer.snd_nxt;
        let len = self.habits.pick(&[0, 1, 10, 100, 1000]);
        let is_again = self.habits.chance(15) && next > self.peer.first.max(1) + len;
        let seq = if is_again { next - len } else { next };
        let flags = self.habits.pick(&[Flags::URG, Flags::URG, Flags::URG.with(Flags::PSH)]);
        let mut segment = self.segment(flags, seq, len);
        let len = segment.len;
        let pointer = self.habits.pick(&[0, 1, len / 2, len, len, len + 1, len + 100, 65_535]);
        segment.urg = u16::try_from(pointer).unwrap_or(u16::MAX);
        if self.habits.chance(5) && !is_again {
            segment.flags = segment.flags.with(Flags::FIN);
            self.peer.is_done = true;
        }
        self.peer.snd_nxt = next.max(segment.end());
        self.act(Action::Segment(segment));
        true
    }
}

/// The share of scenarios of this kind.
const PERCENT: u32 = 2;
