//! Whether the congestion window limits the sender, determined as on Linux (`tcp_cwnd_validate`,
//! `tcp_is_cwnd_limited`): a window that is not used proves nothing about the path, and must not grow (RFC 7661 section
//! 4.3).
//!
//! It is noted after each output that has sent new data, or could not because of the window. The strongest sign within
//! one window's time counts for all of it. Does not depend on records or timers. Tests: below, `tests/usage.rs`.

use crate::seq::SeqNum;
use crate::time::Instant;

use super::super::delack::low_micros;

/// What is known of the use of the window.
#[derive(Clone, Copy, Debug)]
pub(in crate::tcp) struct Usage {
    /// The sign counts until this is acknowledged (`cwnd_usage_seq`).
    until: SeqNum,
    /// Largest number of outstanding bytes (`max_packets_out`).
    most: u32,
    /// There was no room for another segment (`is_cwnd_limited`).
    is_limited: bool,
    /// A timer has expired since the use was last checked: the next write must be told, regardless of what waits before
    /// it.
    pub is_untold: bool,
    /// Largest number of outstanding bytes since the window was last used up, or checked for this (`snd_cwnd_used`),
    /// and when that was.
    used: u32,
    /// The low bits of the clock, microseconds.
    used_at_us: u32,
}

impl Usage {
    /// Nothing was sent before `una`.
    pub fn new(una: SeqNum, now: Instant) -> Self {
        Self {
            until: una,
            most: 0,
            is_limited: false,
            is_untold: false,
            used: 0,
            used_at_us: low_micros(now),
        }
    }

    /// The window has changed.
    pub fn restart(&mut self, now: Instant) {
        (self.used, self.used_at_us) = (0, low_micros(now));
    }

    /// Something was sent before, at least one segment, and its records are gone.
    pub fn assume_used(&mut self, mss: u32) {
        self.most = mss;
    }

    /// The window could grow.
    pub fn touch(&mut self, now: Instant) {
        self.used_at_us = low_micros(now);
    }

    /// Microseconds since the window was last used up, or could grow.
    pub fn age_us(&self, now: Instant) -> u64 {
        low_micros(now).wrapping_sub(self.used_at_us).into()
    }

    /// After [`note`](Self::note): the largest used part of a window of `cwnd`, if it was not used up for `rto_us`.
    /// Then the time restarts.
    pub fn unused_for(
        &mut self,
        outstanding: u32,
        cwnd: u32,
        is_slow_start: bool,
        rto_us: u64,
        now: Instant,
    ) -> Option<u32> {
        if self.is_limited || (is_slow_start && cwnd / 2 < self.most) {
            self.restart(now);
            return None;
        }
        self.used = self.used.max(outstanding);
        if self.age_us(now) < rto_us {
            return None;
        }
        let used = self.used;
        self.restart(now);
        Some(used)
    }

    /// From `una` to `max` is outstanding, `outstanding` bytes as the window counts them; `is_full`: the window has no
    /// room for another segment. A pure retransmission says nothing about the use of the window.
    pub fn note(&mut self, (una, max): (SeqNum, SeqNum), outstanding: u32, is_full: bool) {
        if una.at_or_after(self.until) || is_full || (!self.is_limited && outstanding > self.most) {
            (self.is_limited, self.most, self.until) = (is_full, outstanding, max);
        }
    }

    /// Segments of `to` bytes replace those of `from`; the number outstanding stays.
    pub fn on_smaller_segments(&mut self, from: u32, to: u32) {
        self.most = super::as_many_of(to, from, self.most);
        self.used = super::as_many_of(to, from, self.used);
    }

    /// Whether the window was used up, and the largest number of outstanding bytes.
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
        let mut usage = Usage::new(seq(0), Instant::ZERO);
        usage.note((seq(0), seq(10)), 10 * MSS, true);
        assert_eq!(usage.get(), (true, 10 * MSS));
        usage.note((seq(4), seq(11)), (11 - 4) * MSS, false);
        usage.note((seq(9), seq(11)), (11 - 9) * MSS, false);
        assert_eq!(usage.get(), (true, 10 * MSS));
        usage.note((seq(10), seq(12)), (12 - 10) * MSS, false);
        assert_eq!(usage.get(), (false, 2 * MSS));
    }

    #[test]
    fn without_a_full_window_the_most_that_was_outstanding_counts() {
        let mut usage = Usage::new(seq(0), Instant::ZERO);
        usage.note((seq(0), seq(3)), 3 * MSS, false);
        usage.note((seq(1), seq(7)), (7 - 1) * MSS, false);
        assert_eq!(usage.get(), (false, 6 * MSS));
        usage.note((seq(5), seq(8)), (8 - 5) * MSS, false);
        assert_eq!(usage.get(), (false, 6 * MSS));
        usage.note((seq(7), seq(9)), (9 - 7) * MSS, false);
        assert_eq!(usage.get(), (false, 2 * MSS));
    }

    #[test]
    fn a_window_that_was_not_used_up_for_a_timeout_is_told_once_with_the_most_that_was_used() {
        let at = Instant::from_micros;
        let mut usage = Usage::new(seq(0), at(0));
        let mut unused = |outstanding: u32, us| {
            usage.note((seq(0), seq(outstanding)), outstanding * MSS, outstanding == 20);
            usage.unused_for(outstanding * MSS, 20 * MSS, false, 1000, at(us))
        };
        assert_eq!(unused(3, 500), None);
        assert_eq!(unused(2, 1000), Some(3 * MSS));
        assert_eq!(unused(2, 1500), None);
        assert_eq!(unused(20, 2500), None, "used up");
    }

    #[test]
    fn in_slow_start_a_window_of_which_more_than_half_was_out_is_used() {
        for (is_slow_start, most, unused) in
            [(true, 10, true), (true, 11, false), (true, 9, true), (false, 11, true), (false, 19, true)]
        {
            let mut usage = Usage::new(seq(0), Instant::ZERO);
            usage.note((seq(0), seq(most)), most * MSS, false);
            let found = usage.unused_for(MSS, 20 * MSS, is_slow_start, 1_000, Instant::from_micros(1_000));
            assert_eq!(found.is_some(), unused, "{is_slow_start} {most}");
        }
    }

    #[test]
    fn as_much_as_before_does_not_make_a_window_last() {
        let mut usage = Usage::new(seq(0), Instant::ZERO);
        usage.note((seq(0), seq(3)), 3 * MSS, false);
        usage.note((seq(1), seq(4)), 3 * MSS, false);
        usage.note((seq(3), seq(5)), 2 * MSS, false);
        assert_eq!(usage.get(), (false, 2 * MSS));
    }
}
