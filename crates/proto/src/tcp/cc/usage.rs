//! Whether the congestion window is what limits the sender, as Linux finds it out (`tcp_cwnd_validate`,
//! `tcp_is_cwnd_limited`): a window that is not used proves nothing about the path, and must not grow (RFC 7661
//! section 4.3).
//!
//! Noted where an acknowledgment comes, before it is taken in: at that moment as much is outstanding as after the last output. The strongest
//! sign of a window's time counts for all of it. Does not depend on records or timers. Tests: below, `tests/usage.rs`.

use crate::seq::SeqNum;

/// What is known of the use of the window.
#[derive(Clone, Copy, Debug)]
pub(in crate::tcp) struct Usage {
    /// The sign counts until this is acknowledged (`cwnd_usage_seq`).
    until: SeqNum,
    /// End of the sent data when it was last looked at.
    seen: SeqNum,
    /// Most that was outstanding (`max_packets_out`), bytes.
    most: u32,
    /// There was no room for another segment (`is_cwnd_limited`).
    is_limited: bool,
}

impl Usage {
    /// Nothing was sent before `una`.
    pub fn new(una: SeqNum) -> Self {
        Self { until: una, seen: una, most: 0, is_limited: false }
    }

    /// From `una` to `max` is outstanding, and the window has `room` for more bytes; `waits`: there are more. What is only sent again
    /// says nothing of the use of the window.
    pub fn note(&mut self, una: SeqNum, max: SeqNum, room: u32, mss: u32, waits: bool) {
        let (is_full, outstanding) = (room < mss, max.since(una));
        let sent = core::mem::replace(&mut self.seen, max) != max;
        let is_limited = is_full && (sent || waits);
        if !sent && !is_limited {
            return;
        }
        if una.at_or_after(self.until) || is_limited || (!self.is_limited && outstanding > self.most) {
            (self.is_limited, self.most, self.until) = (is_limited, outstanding, max);
        }
    }

    /// Whether the window was used up, and the most bytes that were outstanding.
    pub fn get(&self) -> (bool, u32) {
        (self.is_limited, self.most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u32 = 1000;

    fn seq(segments: u32) -> SeqNum {
        SeqNum::new(u32::MAX - 2_500) + segments * MSS
    }

    #[test]
    fn a_full_window_counts_until_all_of_it_is_acknowledged() {
        let mut usage = Usage::new(seq(0));
        usage.note(seq(0), seq(10), 0, MSS, false);
        assert_eq!(usage.get(), (true, 10 * MSS));
        // A batch of acknowledgments: nothing is sent in between.
        usage.note(seq(4), seq(10), 4 * MSS, MSS, false);
        usage.note(seq(9), seq(10), 9 * MSS, MSS, false);
        assert_eq!(usage.get(), (true, 10 * MSS));
        usage.note(seq(10), seq(12), 8 * MSS, MSS, false);
        assert_eq!(usage.get(), (false, 2 * MSS));
    }

    #[test]
    fn without_a_full_window_the_most_that_was_outstanding_counts() {
        let mut usage = Usage::new(seq(0));
        usage.note(seq(0), seq(3), 7 * MSS, MSS, false);
        usage.note(seq(1), seq(7), 4 * MSS, MSS, false);
        assert_eq!(usage.get(), (false, 6 * MSS));
        usage.note(seq(5), seq(8), 7 * MSS, MSS, false);
        assert_eq!(usage.get(), (false, 6 * MSS));
        usage.note(seq(7), seq(9), 8 * MSS, MSS, false);
        assert_eq!(usage.get(), (false, 2 * MSS));
    }

    #[test]
    fn a_window_with_room_for_less_than_a_segment_is_full() {
        let mut usage = Usage::new(seq(0));
        usage.note(seq(0), seq(2), MSS - 1, MSS, false);
        assert!(usage.get().0);
    }
}
