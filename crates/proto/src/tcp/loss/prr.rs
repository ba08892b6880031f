//! Proportional rate reduction (RFC 9937, which replaces RFC 6937): how much may leave during fast recovery.
//!
//! While more is in the network than the new window, sending falls in proportion to arrivals. Once less is, as much leaves
//! as arrives (the conservative reduction bound, CRB), and a segment more for an acknowledgment that shows the recovery to
//! go well (SafeACK): then it catches up as slow start would (the slow start reduction bound, SSRB). An acknowledgment
//! that delivers nothing lets nothing out, so that a peer cannot make segments leave by repeating itself. All in bytes. It
//! does not depend on the data sent. Invariant: over a recovery no more is sent than arrived, one segment, one more for
//! each safe acknowledgment, and one for each time that something is found lost without an arrival. Tests at the end.

/// One fast recovery.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::tcp) struct Prr {
    /// RecoverFS: the part of the flight that was not known to have arrived before the acknowledgment that
    /// began it.
    recover_fs: u32,
    /// Arrived since.
    delivered: u64,
    /// Sent since.
    out: u64,
}

impl Prr {
    /// A recovery begins with an acknowledgment after which `flight` is outstanding and `sacked` of it held by the peer, and
    /// which told of `news` of either kind (RFC 9937 section 6.1).
    pub fn new(flight: u32, sacked: u32, news: u32) -> Self {
        Self { recover_fs: (flight.saturating_sub(sacked) + news).max(1), delivered: 0, out: 0 }
    }

    /// True until anything has been delivered or sent in it.
    pub fn is_fresh(&self) -> bool {
        self.delivered == 0 && self.out == 0
    }

    /// Bytes were sent, new or again.
    pub fn on_sent(&mut self, bytes: u32) {
        self.out += u64::from(bytes);
    }

    /// `delivered` bytes were reported to have arrived, `pipe` are believed under way; `is_safe` if SND.UNA has moved and
    /// nothing more was found lost. Returns sndcnt: bytes that may be sent now.
    pub fn on_ack(&mut self, delivered: u32, is_safe: bool, pipe: u32, ssthresh: u32, mss: u32) -> u32 {
        self.delivered += u64::from(delivered);
        let sndcnt = if pipe > ssthresh {
            let share = (self.delivered * u64::from(ssthresh)).div_ceil(u64::from(self.recover_fs));
            share.saturating_sub(self.out)
        } else {
            let arrived = self.delivered.saturating_sub(self.out).max(u64::from(delivered));
            let more = if is_safe { u64::from(mss) } else { 0 };
            u64::from(ssthresh - pipe).min(arrived + more)
        };
        // The lost segment itself does not wait.
        let least = if self.out == 0 { u64::from(mss) } else { 0 };
        u32::try_from(sndcnt.max(least)).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u32 = 1000;

    fn begun() -> Prr {
        Prr::new(20 * MSS, 3 * MSS, 3 * MSS)
    }

    #[test]
    fn the_first_retransmission_does_not_wait() {
        assert_eq!(begun().on_ack(MSS, false, 16 * MSS, 10 * MSS, MSS), MSS);
        assert_eq!(begun().on_ack(0, false, 5 * MSS, 10 * MSS, MSS), MSS);
    }

    /// Bytes sent while ten segments arrive one by one, `pipe` being under way each time.
    fn sent_for_ten(mut prr: Prr, pipe: u32, ssthresh: u32) -> u32 {
        let mut send = |_| {
            let sndcnt = prr.on_ack(MSS, false, pipe, ssthresh, MSS) / MSS * MSS;
            prr.on_sent(sndcnt);
            sndcnt
        };
        (0..10).map(&mut send).sum()
    }

    #[test]
    fn half_as_much_is_sent_as_is_delivered_until_the_new_window_is_reached() {
        assert_eq!(sent_for_ten(begun(), 15 * MSS, 10 * MSS), 5 * MSS);
    }

    #[test]
    fn data_delivered_before_recovery_does_not_count_into_the_share() {
        // Twenty outstanding, ten of them held for long: the other ten are to become five.
        assert_eq!(sent_for_ten(Prr::new(20 * MSS, 10 * MSS, 0), 6 * MSS, 5 * MSS), 5 * MSS);
    }

    #[test]
    fn below_the_window_each_safe_acknowledgment_allows_one_more_segment() {
        let mut prr = begun();
        prr.on_sent(MSS);
        // All but two were lost.
        assert_eq!(prr.on_ack(MSS, true, MSS, 10 * MSS, MSS), 2 * MSS);
        prr.on_sent(2 * MSS);
        assert_eq!(prr.on_ack(MSS, true, 2 * MSS, 10 * MSS, MSS), 2 * MSS);
        assert_eq!(prr.on_ack(50 * MSS, true, 9 * MSS, 10 * MSS, MSS), MSS, "no further than the window");
    }

    #[test]
    fn while_losses_are_found_no_more_is_sent_than_is_delivered() {
        let mut prr = begun();
        prr.on_sent(MSS);
        assert_eq!(prr.on_ack(MSS, false, MSS, 10 * MSS, MSS), MSS);
        prr.on_sent(MSS);
        assert_eq!(prr.on_ack(2 * MSS, false, MSS, 10 * MSS, MSS), 2 * MSS);
    }
}
