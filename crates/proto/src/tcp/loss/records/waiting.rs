//! How long the reordering timer waits: for everything sent before the latest arrival, and so for the last of it (RFC
//! 8985 section 6.2 step 5; `tcp_rack_detect_loss`). The next acknowledgment finds what is due before that.
//!
//! Of the records after the first one that the timer waits for, [`LOOKED_AT_MAX`] are visited: a timer that is early
//! looks again. Does not depend on why something was sent. Tests: below, `tests/rack.rs`.

use core::cmp::Ordering;

use crate::seq::SeqNum;
use crate::time::Instant;

use super::super::super::timers::{NEVER, after_us};
use super::segments::is_repeat;
use super::{Fate, Record, Records, Repeat, Sent};

/// Result of looking for losses.
#[derive(Clone, Copy, Debug)]
pub(in crate::tcp) struct Detection {
    /// Bytes newly believed lost.
    pub lost: u32,
    /// The end of the first of them that had been retransmitted.
    pub lost_again: Option<SeqNum>,
    /// Segments of them that an undone repair had retransmitted.
    pub lost_twice: u32,
    /// When the last record that the timer waits for will be lost, if nothing is heard of it; [`NEVER`] if it waits for
    /// none.
    pub due: Instant,
    /// The snapshot of the last lost record (`rate.rs`).
    pub snapshot: Option<u32>,
}

/// Retransmissions that end at the number at most and were sent before the time.
pub(in crate::tcp) type Bounds = (SeqNum, Instant);

/// How long data sent before the latest arrival may be in flight.
#[derive(Clone, Copy, Debug)]
pub(in crate::tcp) struct Patience {
    /// A round trip and the reordering window, microseconds.
    pub wait_us: u64,
    /// The end of the segment that made that round trip.
    pub timed: SeqNum,
}

impl Patience {
    /// Whether a first transmission has been in flight for longer. The segments of a write were sent one by one, although
    /// at one time of our clock. So the segments after the one that made the round trip have been in flight for less (as
    /// on Linux, where each has its own time). If `latest` is of the same write, it has overtaken them nevertheless.
    pub(super) fn is_over(self, record: &Record, latest: Sent, now: Instant) -> bool {
        let due = self.due(record.sent_at);
        let is_later =
            || record.is_write && record.sent_at < latest.at && record.start.at_or_after(self.timed);
        due < now || (due == now && !is_later())
    }

    /// When data sent at `sent_at` has been in flight for this long.
    pub(super) fn due(self, sent_at: Instant) -> Instant {
        after_us(sent_at, self.wait_us)
    }
}

/// Largest number of records visited to find one time.
pub(super) const LOOKED_AT_MAX: usize = 128;
/// Largest number of repetitions visited.
const REPEATS_LOOKED_AT_MAX: usize = 16;

impl Detection {
    /// Nothing was found, and the timer waits for nothing.
    pub const NOTHING: Self = Self { lost: 0, lost_again: None, lost_twice: 0, due: NEVER, snapshot: None };

    /// The timer waits until `due`.
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
        (latest, undone): (Sent, Bounds),
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
                // A range that was retransmitted since then has its own entry.
                if record.fate == Fate::Flying && record.repeated && record.sent_at <= repeat.sent_at {
                    found.snapshot = Some(record.snapshot);
                    found.lost_twice += if is_repeat(&record, undone.0, undone.1) { record.count } else { 0 };
                    found.lost_again = Some(found.lost_again.map_or(record.end, |end| end.min(record.end)));
                    found.lost += self.lose(at);
                }
                at += 1;
            }
        }
    }

    /// When the last of the first transmissions from index `at` on that were sent before `latest` will be lost. Their
    /// times rise with their numbers.
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

    /// True if a part of a repetition, before `end`, is still in flight, or may be: of many records, the first
    /// [`LOOKED_AT_MAX`] are visited.
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

    /// The same for retransmissions.
    pub(super) fn last_repeat_due(&mut self, latest: Sent, patience: Patience) -> Instant {
        let count = self.repeats.partition_point(|repeat| repeat.sent_before(latest).after(repeat.start));
        let first = count.saturating_sub(REPEATS_LOOKED_AT_MAX);
        self.step(1);
        // The first of all is in flight, the last may have arrived.
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
impl Records {
    /// [`Records::detect`] where no repair was undone.
    pub(super) fn detected(&mut self, latest: Sent, patience: Patience, now: Instant) -> Detection {
        self.detect(latest, patience, (latest.end, Instant::ZERO), now)
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

    /// The rest of a write was sent after the segment that made the round trip; other data sent at one time has all
    /// been in flight equally long.
    #[test]
    fn what_stands_behind_the_one_that_was_timed_is_lost_a_microsecond_later_if_it_is_of_a_write() {
        for (is_write, timed, now, latest, lost) in [
            (true, 400, 50, 20, 300),
            (true, 400, 51, 20, 900),
            (false, 400, 50, 20, 900),
            (true, 1000, 50, 20, 900),
            (true, 400, 49, 20, 0),
            // The latest is of the same write.
            (true, 400, 50, 0, 900),
        ] {
            let mut records = Records::new(seq(0));
            records.set_segment(100);
            records.set_write(is_write);
            records.sent(seq(0), seq(1000), at(0), 0);
            // A later write changes nothing.
            records.set_write(!is_write);
            records.sent(seq(1000), seq(1100), at(10), 0);
            records.sack(seq(300), seq(400), |_| {});
            let latest = Sent { at: at(latest), end: seq(1100), repeated: latest > 0 };
            let patience = Patience { wait_us: 50, timed: seq(timed) };
            assert_eq!(
                records.detected(latest, patience, at(now)).lost,
                lost,
                "{is_write} {timed} {now} {latest:?}"
            );
        }
    }

    /// `tcp_write_xmit` reads the clock again.
    #[test]
    fn what_is_new_leaves_a_microsecond_after_what_is_repeated_beside_it() {
        let mut records = Records::new(seq(0));
        records.sent(seq(0), seq(100), at(0), 0);
        records.sent(seq(0), seq(100), at(50), 0);
        records.sent(seq(100), seq(200), at(50), 0);
        records.sent(seq(200), seq(300), at(60), 0);
        let times: Vec<Instant> = records.list.iter().map(|record| record.sent_at).collect();
        assert_eq!(times, [at(50), at(51), at(60)]);
    }
}
