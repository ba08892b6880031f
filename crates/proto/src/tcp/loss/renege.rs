//! A peer that may have discarded data that it had reported (RFC 2018 section 8), handled as on Linux
//! (`tcp_check_sack_reneging`).
//!
//! The stack does not draw this conclusion at once. It retransmits the reported data when the retransmission timer
//! expires, which is set to a short time (`timers.rs` then forgets the reports). It does not depend on why the data was
//! sent. Tests: `tests/renege.rs`.

use crate::time::Instant;

use super::super::cc::CongestionControl;
use super::super::pcb::Pcb;
use super::super::segment::Payload;
use super::super::timers::{NEVER, after_us};
use super::Loss;
use super::ack::Report;

impl<P: Payload> Pcb<P> {
    /// An acknowledgment that is more than plain progress ends where data begins that a block has reported. The peer
    /// gets a short time to acknowledge that data, too; no other conclusion is drawn.
    #[cold]
    pub(super) fn expect_renege(&mut self, loss: &mut Loss, report: &Report, now: Instant) {
        let begins = self.begins_recovery(loss, false);
        let news = self.news(loss, report, (0, begins), (report.rtt_us, now));
        self.cc.on_ack(&news);
        loss.usage.touch(now);
        self.reduce_window(loss, report.count.saturating_mul(self.mss.into()), true);
        self.allow(loss);
        (loss.probe_at, loss.probe_now, loss.reorder_at) = (NEVER, false, NEVER);
        loss.holds_repairs = true;
        let wait_us = (self.rtt.srtt_us() / 2).max(RENEGE_WAIT_MIN_US);
        self.rexmt_at = after_us(now, wait_us.into());
    }
}

/// The wait is half a round trip, but at least this.
const RENEGE_WAIT_MIN_US: u32 = 10_000;
