//! How long the timer of reordering waits: for all that was sent before the latest arrival, and so for the last of it (RFC 8985 section 6.2 step 5;
//! `tcp_rack_detect_loss`). What is due before that is found by the next acknowledgment.
//!
//! Of the records behind the first that is waited for [`LOOKED_AT_MAX`] are looked at: a timer that is early looks again. Does not depend on why
//! something was sent. Tests: `tests/rack.rs`.

use crate::time::Instant;

use super::super::super::timers::{NEVER, after_us};
use super::{Detection, Fate, Records, Sent};

/// Records that are looked at for one time.
const LOOKED_AT_MAX: usize = 128;

impl Detection {
    /// Something is waited for until `due`.
    pub(super) fn wait_until(&mut self, due: Instant) {
        self.due = if self.due == NEVER { due } else { self.due.max(due) };
    }
}

impl Records {
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

    /// The same of what was sent again.
    pub(super) fn last_repeat_due(&mut self, latest: Sent, wait_us: u64) -> Instant {
        let is_before = |at: Instant, end| (Sent { at, end, repeated: true }).before(latest);
        let count = self.repeats.partition_point(|repeat| is_before(repeat.sent_at, repeat.end));
        self.step(1);
        let last = count.checked_sub(1).and_then(|last| self.repeats.get(last));
        last.map_or(NEVER, |repeat| after_us(repeat.sent_at, wait_us))
    }
}
