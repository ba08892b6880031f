//! Proportional rate reduction (RFC 9937, which replaces RFC 6937): the window of a fast recovery.
//!
//! While more than the new window is in the network, sending falls in proportion to arrivals. When less is, as much is
//! sent as arrives (the conservative reduction bound, CRB), and one more segment for an acknowledgment that shows
//! progress of the recovery (SafeACK): this catches up as slow start would (the slow start reduction bound, SSRB). An
//! acknowledgment that delivers nothing changes nothing, so a peer cannot cause segments by repeating itself. As on
//! Linux (`tcp_cwnd_reduction`), the proportion is that of the window before the reduction, counted in whole segments,
//! and data found lost later makes room in the present window, because it has left the network.
//!
//! All in bytes. It does not depend on the data sent. Invariant: a recovery sends no more than what arrived or was
//! found lost, plus one segment, plus one for each safe acknowledgment. Tests at the end.

use super::super::cc::{as_many_of, idle_window};

/// One fast recovery.
#[derive(Clone, Copy, Debug)]
pub(in crate::tcp) struct Prr {
    /// The window before the recovery.
    prior_cwnd: u32,
    /// The window now.
    cwnd: u32,
    /// Bytes arrived since then: less than two of the largest windows, because no more lies between its beginning and
    /// the end of what may be sent.
    delivered: u32,
    /// Bytes sent since then.
    out: u32,
}

impl Prr {
    /// A recovery begins with this window.
    pub fn new(cwnd: u32) -> Self {
        Self { prior_cwnd: cwnd, cwnd, delivered: 0, out: 0 }
    }

    /// Bytes that may be in the network.
    pub fn cwnd(&self) -> u32 {
        self.cwnd
    }

    /// Nothing was sent for `rtos` timeouts.
    pub fn on_idle(&mut self, rtos: u32, mss: u32) {
        self.cwnd = idle_window(self.cwnd, rtos, mss);
    }

    /// Segments of `to` bytes replace those of `from`; their number stays.
    pub fn on_smaller_segments(&mut self, from: u32, to: u32) {
        for bytes in [&mut self.prior_cwnd, &mut self.cwnd, &mut self.delivered, &mut self.out] {
            *bytes = as_many_of(to, from, *bytes);
        }
    }

    /// Bytes were sent, new or repeated.
    pub fn on_sent(&mut self, bytes: u32) {
        self.out = self.out.saturating_add(bytes);
    }

    /// `delivered` bytes, at least one, were reported to have arrived; `pipe` bytes are believed to be in flight;
    /// `is_safe` if SND.UNA has moved and nothing more was found lost.
    pub fn on_ack(&mut self, delivered: u32, is_safe: bool, pipe: u32, ssthresh: u32, mss: u32) {
        self.delivered = self.delivered.saturating_add(delivered);
        let (all, out) = (u64::from(self.delivered), u64::from(self.out));
        let segment = u64::from(mss.max(1));
        let sndcnt = if pipe > ssthresh {
            let share = (all * u64::from(ssthresh)).div_ceil(u64::from(self.prior_cwnd.max(1)) * segment);
            (share * segment).saturating_sub(out)
        } else {
            let arrived = all.saturating_sub(out).max(u64::from(delivered));
            let more = if is_safe { segment } else { 0 };
            u64::from(ssthresh - pipe).min(arrived + more)
        };
        // The lost segment itself does not wait.
        let least = if self.out == 0 { segment } else { 0 };
        self.cwnd = pipe.saturating_add(u32::try_from(sndcnt.max(least)).unwrap_or(u32::MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u32 = 1000;

    fn begun() -> Prr {
        Prr::new(20 * MSS)
    }

    /// Bytes that may be sent after an acknowledgment.
    fn sndcnt(prr: &mut Prr, delivered: u32, is_safe: bool, pipe: u32, ssthresh: u32) -> u32 {
        prr.on_ack(delivered, is_safe, pipe, ssthresh, MSS);
        prr.cwnd() - pipe
    }

    #[test]
    fn a_pause_halves_the_window_for_each_timeout_down_to_the_initial_one() {
        for (rtos, cwnd) in [(0, 50), (1, 25), (2, 12), (3, 10), (9, 10)] {
            let mut prr = Prr::new(50 * MSS);
            prr.on_idle(rtos, MSS);
            assert_eq!(prr.cwnd(), cwnd * MSS, "{rtos}");
        }
    }

    #[test]
    fn the_first_retransmission_does_not_wait() {
        assert_eq!(sndcnt(&mut begun(), MSS, false, 16 * MSS, 10 * MSS), MSS);
        assert_eq!(sndcnt(&mut begun(), 1, false, 5 * MSS, 10 * MSS), MSS);
    }

    #[test]
    fn half_as_much_is_sent_as_is_delivered_until_the_new_window_is_reached() {
        let mut prr = begun();
        let mut send = |_| {
            let count = sndcnt(&mut prr, MSS, false, 15 * MSS, 10 * MSS);
            prr.on_sent(count);
            count / MSS
        };
        let sent: Vec<u32> = (0..10).map(&mut send).collect();
        assert_eq!(sent, [1, 0, 1, 0, 1, 0, 1, 0, 1, 0]);
    }

    #[test]
    fn a_share_that_is_no_whole_segment_is_rounded_up() {
        // Seven of ten: 2.1 segments for three.
        let mut prr = Prr::new(10 * MSS);
        assert_eq!(sndcnt(&mut prr, 3 * MSS, false, 8 * MSS, 7 * MSS), 3 * MSS);
    }

    #[test]
    fn below_the_window_each_safe_acknowledgment_allows_one_more_segment() {
        let mut prr = begun();
        prr.on_sent(MSS);
        // All but two were lost.
        assert_eq!(sndcnt(&mut prr, MSS, true, MSS, 10 * MSS), 2 * MSS);
        prr.on_sent(2 * MSS);
        assert_eq!(sndcnt(&mut prr, MSS, true, 2 * MSS, 10 * MSS), 2 * MSS);
        assert_eq!(sndcnt(&mut prr, 50 * MSS, true, 9 * MSS, 10 * MSS), MSS, "no further than the window");
    }

    #[test]
    fn while_losses_are_found_no_more_is_sent_than_is_delivered() {
        let mut prr = begun();
        prr.on_sent(MSS);
        assert_eq!(sndcnt(&mut prr, MSS, false, MSS, 10 * MSS), MSS);
        prr.on_sent(MSS);
        assert_eq!(sndcnt(&mut prr, 2 * MSS, false, MSS, 10 * MSS), 2 * MSS);
    }
}
