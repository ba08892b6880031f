//! Listeners that wait for data (TCP_DEFER_ACCEPT), and those that retransmit their SYN-ACKs more or less often
//! (TCP_SYNCNT).
//!
//! The peer acknowledges the SYN-ACK without data, once or several times, and waits; then data arrives, or a FIN, or
//! nothing.

use super::Maker;
use super::habits::Habit;
use crate::random::Random;
use crate::scenario::{Action, SockOpt};
use crate::segment::Flags;

impl Habit {
    /// Some listeners wait for data, instead of the habit that their peer would have.
    pub(super) fn or_deferral(self, seed: u64) -> Self {
        let mut random = Random::new(seed.rotate_left(28));
        if random.chance(PERCENT) { Self::Deferral } else { self }
    }
}

impl Maker {
    /// The listener's options.
    pub(super) fn defer_accept(&mut self) {
        if self.habit != Habit::Deferral {
            return;
        }
        if self.habits.chance(80) {
            let seconds = self.habits.pick(&[1, 1, 2, 3, 5, 8]);
            self.act(Action::Set(SockOpt::DeferAccept, seconds));
        }
        if self.habits.chance(40) {
            let count = self.habits.pick(&[0, 1, 1, 2, 3, 128]);
            self.act(Action::Set(SockOpt::SynCount, count));
        }
    }

    /// What the peer does until it sends data.
    pub(super) fn without_text(&mut self) {
        if self.habit != Habit::Deferral {
            return;
        }
        for _ in 0..self.habits.below(5) {
            self.at_ms += self.habits.pick(&[10, 40, 300, 700, 1_300, 2_500, 4_200]);
            self.settle();
            match self.habits.below(7) {
                0..=2 => self.acknowledge(),
                3..=4 => self.act(Action::Wait),
                5 => self.act(Action::Accept),
                _ => self.fin_alone(),
            }
        }
        if self.habits.chance(70) {
            self.early_text();
        }
        self.at_ms += 10;
        self.settle();
    }

    fn fin_alone(&mut self) {
        if !self.peer.is_done {
            self.send(Flags::FIN, self.peer.snd_nxt, 0);
            self.peer.snd_nxt += 1;
            self.peer.is_done = true;
        }
    }
}

/// The share of scenarios of this kind.
const PERCENT: u32 = 2;
