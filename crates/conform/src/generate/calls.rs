//! Calls that few programs make: records that end (MSG_EOR), looks at text that stays (MSG_PEEK), and questions of how much waits.
//!
//! Tests: those of `generate.rs`.

use super::Maker;
use super::habits::Habit;
use crate::random::Random;
use crate::scenario::{Action, Question};

impl Habit {
    /// Some applications make such calls, whatever habit the scenario would have.
    pub(super) fn or_calls(self, seed: u64) -> Self {
        if Random::new(seed.rotate_left(56)).chance(PERCENT) { Self::Calls } else { self }
    }
}

impl Maker {
    /// One of the calls; records come in groups.
    pub(super) fn calls(&mut self) -> bool {
        match self.habits.below(10) {
            0..4 => {
                for _ in 0..1 + self.habits.below(3) {
                    let len = self.habits.pick(&[1, 100, 1000, 1448, 1500, 3000, 20_000]);
                    self.act(Action::WriteRecord(len));
                }
            }
            4 | 5 => {
                let len = self.habits.pick(&[1, 100, 2000, 100_000]);
                self.act(Action::Peek(len));
            }
            6 | 7 => {
                let len = self.habits.pick(&[1, 100, 2000, 100_000]);
                self.act(Action::ReadInq(len));
            }
            8 => self.act(Action::Ask(Question::Unread)),
            _ => self.act(Action::Ask(Question::Unacknowledged)),
        }
        true
    }
}

/// How many scenarios are of this kind.
const PERCENT: u32 = 2;
