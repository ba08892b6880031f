//! How long the timer of reordering waits: for all that was sent before the latest arrival, and so for the last of it (RFC 8985 section 6.2 step 5;
//! `tcp_rack_detect_loss`). What is due before that is found by the next acknowledgment.
//!
//! Of the records behind the first that is waited for [`LOOKED_AT_MAX`] are looked at: a timer that is early looks again. Does not depend on why
//! something was sent. Tests: below, `tests/rack.rs`.

use core::cmp::Ordering;

use crate::seq::SeqNum;
use crate::time::Instant;

use super::super::super::delack::low_micros;
use super::super::super::timers::{NEVER, after_us};
use super::{Fate, Record, Records, Repeat, Sent};

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

/// How long what was sent before the latest arrival may be out.
#[derive(Clone, Copy, Debug)]
pub(in crate::tcp) struct Patience {
    /// A round trip and the reordering window, microseconds.
    pub wait_us: u64,
    /// Where the segment ends that has made that round trip.
    pub timed: SeqNum,
}

impl Patience {
    /// Whether a first transmission has been out for longer. The segments of the write of `write_us` have left one by one, though at one time of our clock, so what stands
    /// behind the one that has made the round trip has been out for less (as on Linux, where each has a time of its own). If `latest` was of the same
    /// write, it has overtaken them all the same.
    pub(super) fn is_over(self, record: &Record, latest: Sent, write_us: u32, now: Instant) -> bool {
        let due = self.due(record.sent_at);
        let is_later = || {
            let is_of_write = low_micros(record.sent_at) == write_us && record.sent_at < latest.at;
            is_of_write && record.start.at_or_after(self.timed)
        };
        due < now || (due == now && !is_later())
    }

    /// When what left at `sent_at` has been out for so long.
    pub(super) fn due(self, sent_at: Instant) -> Instant {
        after_us(sent_at, self.wait_us)
    }
}

/// Records that are looked at for one time.
pub(super) const LOOKED_AT_MAX: usize = 128;
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
    pub(super) fn detect_repeats(
        &mut self,
        latest: Sent,
        patience: Patience,
        now: Instant,
        found: &mut Detection,
    ) {
        while let Some(repeat) = self.repeats.front().copied() {
            let end = repeat.sent_before(latest);
            if !end.after(repeat.start) {
                return;
            }
            if patience.due(repeat.sent_at) > now && self.is_out(&repeat, end) {
                found.wait_until(self.last_repeat_due(latest, patience));
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
    pub(super) fn last_due(&mut self, at: usize, latest: Sent, patience: Patience) -> Instant {
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
            last = patience.due(record.sent_at);
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
    pub(super) fn last_repeat_due(&mut self, latest: Sent, patience: Patience) -> Instant {
        let count = self.repeats.partition_point(|repeat| repeat.sent_before(latest).after(repeat.start));
        let first = count.saturating_sub(REPEATS_LOOKED_AT_MAX);
        self.step(1);
        // The first of all is out, the last may have arrived.
        for index in (first..count).rev() {
            if let Some(repeat) = self.repeats.get(index).copied()
                && (index == 0 || self.is_out(&repeat, repeat.sent_before(latest)))
            {
                return patience.due(repeat.sent_at);
            }
        }
        self.repeats.front().map_or(NEVER, |repeat| patience.due(repeat.sent_at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seq(offset: u32) -> SeqNum {
        SeqNum::new(u32::MAX - 350) + offset
    }

    fn at(us: u64) -> Instant {
        Instant::from_micros(1_000_000 + us)
    }

    /// The rest of a write has left behind the segment that has made the round trip; of what left otherwise at one time all has been out for as long.
    #[test]
    fn what_stands_behind_the_one_that_was_timed_is_lost_a_microsecond_later_if_it_is_of_a_write() {
        for (is_write, timed, now, latest, lost) in [
            (true, 400, 50, 20, 300),
            (true, 400, 51, 20, 900),
            (false, 400, 50, 20, 900),
            (true, 1000, 50, 20, 900),
            (true, 400, 49, 20, 0),
            // The latest is of the write itself.
            (true, 400, 50, 0, 900),
        ] {
            let mut records = Records::new(seq(0));
            records.set_segment(100);
            if is_write {
                records.note_write(at(0));
            }
            records.sent(seq(0), seq(1000), at(0), 0);
            records.sack(seq(300), seq(400), |_| {});
            let latest = Sent { at: at(latest), end: seq(1100), repeated: latest > 0 };
            let patience = Patience { wait_us: 50, timed: seq(timed) };
            assert_eq!(
                records.detect(latest, patience, at(now)).lost,
                lost,
                "{is_write} {timed} {now} {latest:?}"
            );
        }
    }
}
