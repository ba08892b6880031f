//! One record of the scoreboard: bytes that were sent together, and when.
//!
//! Does not depend on the others. Tests: those of the scoreboard.

use crate::seq::SeqNum;
use crate::time::Instant;

/// State of a range of bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::tcp) enum Fate {
    /// Nothing is known.
    Flying,
    /// The peer says that it holds it.
    Sacked,
    /// Believed lost, and not repeated since.
    Lost,
}

/// Bytes that were last sent together.
#[derive(Clone, Copy, Debug)]
pub(in crate::tcp) struct Record {
    pub start: SeqNum,
    pub end: SeqNum,
    /// When the latest of them was last sent.
    pub sent_at: Instant,
    /// How much earlier the first of them was, microseconds.
    pub span_us: u32,
    /// The rate estimator's snapshot at that time (`rate.rs`).
    pub snapshot: u32,
    pub fate: Fate,
    /// Its segments.
    pub count: u32,
    /// Bytes of each of its segments but the last, which may have fewer; 0 if they are of several sizes.
    pub segment: u16,
    /// Sent more than once.
    pub repeated: bool,
}

impl Record {
    pub fn len(&self) -> u32 {
        self.end.since(self.start)
    }

    /// Bytes of its first segment, if it has several; `unknown` if these are of several sizes.
    pub fn segment_or(&self, unknown: u32) -> u32 {
        if self.segment == 0 { unknown } else { self.segment.into() }
    }

    /// How many of its segments lie whole before `at`, and how many there are behind it if it is cut there: the cut one counts in both
    /// parts, or in the second if nothing is cut.
    pub fn counts_at(&self, at: SeqNum) -> (u32, u32) {
        let (before, len) = (at.since(self.start), self.len().max(1));
        let segment = u32::from(self.segment);
        let share = || (u64::from(self.count) * u64::from(before) / u64::from(len)) as u32;
        let whole = before.checked_div(segment).unwrap_or_else(share);
        let whole = whole.min(self.count.saturating_sub(1));
        (whole, self.count - whole)
    }

    /// Where the segment that `at` lies in ends, if it is not its beginning and others follow. One of which a part is acknowledged is still one, and is
    /// kept apart: what follows would else not begin with a segment.
    pub fn cut_segment_end(&self, at: SeqNum) -> Option<SeqNum> {
        let end = self.whole_after(at);
        (end != at && end != self.end).then_some(end)
    }

    /// The beginning of the first segment at or behind `at`, as far as segments are known: its end if there is none.
    pub fn whole_after(&self, at: SeqNum) -> SeqNum {
        let segment = u32::from(self.segment);
        if segment == 0 {
            return at;
        }
        let into = at.since(self.start).div_ceil(segment).saturating_mul(segment);
        self.start + into.min(self.len())
    }

    /// The end of the last segment at or before `at`, which lies in it: its beginning if there is none.
    pub fn whole_before(&self, at: SeqNum) -> SeqNum {
        let segment = u32::from(self.segment);
        let into = at.since(self.start);
        self.start + if segment == 0 { into } else { into - into % segment }
    }

    /// Where its last segment begins, as far as that is known: where it begins itself, if not.
    pub fn last_segment(&self) -> SeqNum {
        let segment = u32::from(self.segment);
        let before = self.len().saturating_sub(1);
        // A FIN may have left with it.
        let most = self.count.saturating_sub(1).saturating_mul(segment);
        self.start + if segment == 0 { 0 } else { (before - before % segment).min(most) }
    }

    /// Its segments, if `more` with segments of `segment` bytes goes on where it ends.
    pub fn segment_with(&self, segment: u16) -> u16 {
        let is_whole = segment != 0 && self.len().is_multiple_of(u32::from(segment));
        if self.segment == segment && is_whole { segment } else { 0 }
    }

    /// Whether its segments are still known then, or do not matter.
    pub fn goes_on_with(&self, segment: u16) -> bool {
        segment == 0 || self.segment_with(segment) != 0
    }

    /// Since when at the latest any of it has been on its way: the time that counts at arrival. Data still out
    /// counts from `sent_at`, so that an arrival is never taken for later than something it was sent before.
    pub fn sent_since(&self) -> Instant {
        Instant::from_micros(self.sent_at.as_micros().saturating_sub(u64::from(self.span_us)))
    }

    /// Its place in the order of transmissions, now that it has arrived.
    pub fn arrived(&self) -> Sent {
        Sent { at: self.sent_since(), end: self.end, repeated: self.repeated }
    }
}

/// A transmission's place in the order of transmissions (RFC 8985 section 6.1, `RACK_sent_after`).
#[derive(Clone, Copy, Debug)]
pub(in crate::tcp) struct Sent {
    pub at: Instant,
    pub end: SeqNum,
    /// It was not the first transmission of its bytes.
    pub repeated: bool,
}

impl Sent {
    /// True if `self` was sent before `other`. Among first transmissions the numbers decide, else the time, which is
    /// known to a cell.
    pub fn before(self, other: Self) -> bool {
        if !self.repeated && !other.repeated {
            return self.end.before(other.end);
        }
        self.at < other.at || (self.at == other.at && self.end.before(other.end))
    }
}
