//! How long the timer of reordering waits: for all that was sent before the latest arrival, and so for the last of it (RFC 8985 section 6.2 step 5;
//! `tcp_rack_detect_loss`). What is due before that is found by the next acknowledgment.
//!
//! Of the records behind the first that is waited for [`LOOKED_AT_MAX`] are looked at: a timer that is early looks again. Does not depend on why
//! something was sent. Tests: `tests/rack.rs`.

use core::cmp::Ordering;

use crate::seq::SeqNum;
use crate::time::Instant;

use super::super::super::timers::{NEVER, after_us};
use super::{Fate, Records, Repeat, Sent};

/// Result of looking for losses.
#[derive(Clone, Copy, Debug)]
pub(in crate::tcp) struct Detection {
    /// Bytes newly believed lost.
    pub lost: u32,
    /// Where the first record of them ends that had been sent again.
    pub lost_again: Option<SeqNum>,
    /// When the last of those that are waited for will be, if nothing is heard of them; [`NEVER`] if none is.
    pub due: Instant,
    /// The snapshot of the last of them (`rate.rs`).
    pub snapshot: Option<u32>,
}

/// Records that are looked at for one time.
const LOOKED_AT_MAX: usize = 128;
/// Repetitions that are.
const REPEATS_LOOKED_AT_MAX: usize = 16;

impl Detection {
    /// Nothing was found, and nothing is waited for.
    pub const NOTHING: Self = Self { lost: 0, lost_again: None, due: NEVER, snapshot: None };

    /// Something is waited for until `due`.
    pub(super) fn wait_until(&mut self, due: Instant) {
        self.due = if self.due == NEVER { due } else { self.due.max(due) };
    }
}

impl Repeat {
    /// The end of what was sent before `latest`: all of it, nothing, or a part, since it may be several segments, and `latest` one of them.
    pub(super) fn sent_before(&self, latest: Sent) -> SeqNum {
        match self.sent_at.cmp(&latest.at) {
            Ordering::Less => self.end,
            Ordering::Equal => self.end.min(latest.end).max(self.start),
            Ordering::Greater => self.start,
        }
    }
}

impl Records {
    /// Repetitions that are lost again.
    pub(super) fn detect_repeats(&mut self, latest: Sent, wait_us: u64, now: Instant, found: &mut Detection) {
        while let Some(repeat) = self.repeats.front().copied() {
            let end = repeat.sent_before(latest);
            if !end.after(repeat.start) {
                return;
            }
            if after_us(repeat.sent_at, wait_us) > now && self.is_out(&repeat, end) {
                found.wait_until(self.last_repeat_due(latest, wait_us));
                return;
            }
            self.repeats.pop_front();
            if end.before(repeat.end) {
                self.repeats.push_front(Repeat { start: end, ..repeat });
            }
            let mut at = self.find(repeat.start);
            while let Some(record) = self.list.get(at).copied()
                && record.start.before(end)
            {
                self.step(1);
                // One that was sent again since has an entry of its own.
                if record.fate == Fate::Flying && record.repeated && record.sent_at <= repeat.sent_at {
                    found.snapshot = Some(record.snapshot);
                    found.lost_again = Some(found.lost_again.map_or(record.end, |end| end.min(record.end)));
                    found.lost += self.lose(at);
                }
                at += 1;
            }
        }
    }

    /// When the last first transmission from index `at` on will be lost that was sent before `latest`. Their times rise with their numbers.
    pub(super) fn last_due(&mut self, at: usize, latest: Sent, wait_us: u64) -> Instant {
        let mut last = NEVER;
        let to = self.list.len().min(at.saturating_add(LOOKED_AT_MAX));
        for index in at..to {
            self.step(1);
            let Some(record) = self.list.get(index).filter(|record| record.fate == Fate::Flying) else {
                continue;
            };
            if record.repeated {
                continue;
            }
            if !(Sent { at: record.sent_at, end: record.end, repeated: false }).before(latest) {
                break;
            }
            last = after_us(record.sent_at, wait_us);
        }
        last
    }

    /// True if part of a repetition, before `end`, is still out, or may be: of many records the first [`LOOKED_AT_MAX`] are looked at.
    pub(super) fn is_out(&mut self, repeat: &Repeat, end: SeqNum) -> bool {
        let at = self.find(repeat.start);
        let to = at.saturating_add(LOOKED_AT_MAX);
        for index in at..to {
            let Some(record) = self.list.get(index).filter(|record| record.start.before(end)) else {
                return false;
            };
            if record.fate == Fate::Flying && record.repeated && record.sent_at <= repeat.sent_at {
                return true;
            }
            self.step(1);
        }
        true
    }

    /// The same of what was sent again.
    pub(super) fn last_repeat_due(&mut self, latest: Sent, wait_us: u64) -> Instant {
        let count = self.repeats.partition_point(|repeat| repeat.sent_before(latest).after(repeat.start));
        let first = count.saturating_sub(REPEATS_LOOKED_AT_MAX);
        self.step(1);
        // The first of all is out, the last may have arrived.
        for index in (first..count).rev() {
            if let Some(repeat) = self.repeats.get(index).copied()
                && (index == 0 || self.is_out(&repeat, repeat.sent_before(latest)))
            {
                return after_us(repeat.sent_at, wait_us);
            }
        }
        self.repeats.front().map_or(NEVER, |repeat| after_us(repeat.sent_at, wait_us))
    }
}
