//! Calls that few programs make: ends of records (MSG_EOR), reads that leave data in place (MSG_PEEK), and questions
//! about how much data waits.
//!
//! Tests: those of `generate.rs`.

use super::Maker;
use super::habits::Habit;
use crate::random::Random;
use crate::scenario::{Action, Question, SockOpt};

impl Habit {
    /// Some applications make such calls, instead of the habit that the scenario would have.
    pub(super) fn or_calls(self, seed: u64) -> Self {
        if Random::new(seed.rotate_left(60)).chance(PERCENT) { Self::Calls } else { self }
    }
}

impl Maker {
    /// Makes one of the calls; records come in groups.
    pub(super) fn calls(&mut self) -> bool {
        match self.habits.below(13) {
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
            9 => self.act(Action::Ask(Question::Unacknowledged)),
            10 => self.act(Action::WriteUrgent(1)),
            _ => self.hold_or_let_go(),
        }
        true
    }

    /// Calls that hold data back or release it, beside other calls.
    pub(super) fn hold_or_let_go(&mut self) {
        let action = if self.habits.chance(30) {
            Action::WriteMore(self.habits.pick(&[1, 100, 1448, 3000]))
        } else {
            let (option, value) = self.habits.pick(&[
                (SockOpt::Cork, 1),
                (SockOpt::Cork, 0),
                (SockOpt::Nodelay, 1),
                (SockOpt::Nodelay, 0),
                (SockOpt::NotsentLowat, 3000),
            ]);
            Action::Set(option, value)
        };
        self.act(action);
    }
}

/// The share of scenarios of this kind.
const PERCENT: u32 = 2;
