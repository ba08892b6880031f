//! Proportional rate reduction (RFC 6937): how much may leave during fast recovery.
//!
//! While more is in the network than the new window, sending falls in proportion to what arrives; once less
//! is, it catches up as in slow start (the slow start reduction bound, SSRB). All in bytes. It must not
//! know what is sent. Invariant: over a recovery no more is sent than arrived plus one segment per
//! acknowledgment. Tests at the end.

/// One fast recovery.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::tcp) struct Prr {
    /// RecoverFS: outstanding when it began.
    recover_fs: u32,
    /// Arrived since.
    delivered: u64,
    /// Sent since.
    out: u64,
}

impl Prr {
    pub fn new(flight: u32) -> Self {
        Self { recover_fs: flight.max(1), delivered: 0, out: 0 }
    }

    /// Bytes were sent, new or again.
    pub fn on_sent(&mut self, bytes: u32) {
        self.out += u64::from(bytes);
    }

    /// `delivered` bytes were reported to have arrived, `pipe` are believed under way. Returns sndcnt: bytes
    /// that may be sent now.
    pub fn on_ack(&mut self, delivered: u32, pipe: u32, ssthresh: u32, mss: u32) -> u32 {
        self.delivered += u64::from(delivered);
        let sndcnt = if pipe > ssthresh {
            let share = (self.delivered * u64::from(ssthresh)).div_ceil(u64::from(self.recover_fs));
            share.saturating_sub(self.out)
        } else {
            let arrived = self.delivered.saturating_sub(self.out).max(u64::from(delivered));
            u64::from(ssthresh - pipe).min(arrived + u64::from(mss))
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

    #[test]
    fn the_first_repetition_does_not_wait() {
        let mut prr = Prr::new(20 * MSS);
        assert_eq!(prr.on_ack(MSS, 16 * MSS, 10 * MSS, MSS), MSS);
    }

    #[test]
    fn half_as_much_leaves_as_arrives_until_the_new_window_is_reached() {
        let mut prr = Prr::new(20 * MSS);
        let mut sent = 0;
        for _ in 0..10 {
            let sndcnt = prr.on_ack(MSS, 15 * MSS, 10 * MSS, MSS) / MSS * MSS;
            prr.on_sent(sndcnt);
            sent += sndcnt;
        }
        assert_eq!(sent, 5 * MSS);
    }

    #[test]
    fn below_the_window_it_catches_up_by_a_segment_per_acknowledgment() {
        let mut prr = Prr::new(20 * MSS);
        prr.on_sent(MSS);
        // All but two were lost.
        assert_eq!(prr.on_ack(MSS, MSS, 10 * MSS, MSS), 2 * MSS);
        prr.on_sent(2 * MSS);
        assert_eq!(prr.on_ack(MSS, 2 * MSS, 10 * MSS, MSS), 2 * MSS);
        assert_eq!(prr.on_ack(50 * MSS, 9 * MSS, 10 * MSS, MSS), MSS, "no further than the window");
    }
}
