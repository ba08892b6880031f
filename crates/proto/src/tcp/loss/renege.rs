//! A peer that may have thrown away data that it had reported (RFC 2018 section 8), as Linux takes it (`tcp_check_sack_reneging`).
//!
//! It is not believed at once: what it has reported is sent again after the timer of retransmission, which is set to a short time
//! (`timers.rs` forgets the reports then). It does not depend on why the data was sent. Tests: `tests/renege.rs`.

use crate::time::Instant;

use super::super::cc::CongestionControl;
use super::super::pcb::Pcb;
use super::super::segment::{Payload, Timestamps};
use super::super::timers::{NEVER, after_us};
use super::Loss;
use super::ack::Report;

impl<P: Payload> Pcb<P> {
    /// An acknowledgment that is more than plain progress ends where data begins that a block has reported: the peer gets a short time to acknowledge
    /// that too, and no other conclusion is drawn.
    #[cold]
    pub(super) fn expect_renege(
        &mut self,
        loss: &mut Loss,
        report: &Report,
        (ts, now): (Option<Timestamps>, Instant),
    ) {
        let begins = self.begins_recovery(loss, false);
        let news = self.news(loss, report, (0, begins), (ts, now));
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

/// Half a round trip, and no less than this.
const RENEGE_WAIT_MIN_US: u32 = 10_000;
