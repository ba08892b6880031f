//! Acknowledgments that any host can cause, and their limit (RFC 5961).
//!
//! A challenge acknowledgment asks the true peer to prove itself. A blind attacker could cause any number of them, and
//! two confused ends could challenge each other for ever. So a connection sends at most one in half a second (RFC 5961
//! section 7; Linux's `tcp_invalid_ratelimit`). The limit is per connection, because a global one reveals other
//! connections to an attacker (CVE-2016-5696). The intervals differ, and only an end that knows our ISS could predict
//! them, so probing for the end of an interval reveals nothing either.
//!
//! A window probe or a keepalive is answered sooner: the update that opened the window may have been lost, and the peer
//! would double its waiting time (RFC 9293 section 3.8.6.1). Such a segment has the number just before RCV.NXT, and an
//! acceptable acknowledgment. Tests: `tests/attacks.rs`.

use crate::time::Instant;

use super::super::pcb::Pcb;
use super::super::segment::Payload;
use super::super::timestamp;

/// Least milliseconds between two answers to segments without text that anyone may have sent.
pub(in crate::tcp) const CHALLENGE_INTERVAL_MS: u32 = 500;
/// Least milliseconds before the answer to a probe: half of the shortest retransmission timeout that Linux has by
/// default.
pub(super) const PROBE_INTERVAL_MS: u32 = 100;
/// Up to one millisecond less than this is added to each interval of challenges.
#[cfg(test)]
pub(in crate::tcp) const CHALLENGE_SPREAD_MS: u32 = 32;

impl<P: Payload> Pcb<P> {
    /// Schedules a challenge acknowledgment, if the limit allows one.
    pub(super) fn challenge(&mut self, now: Instant) {
        self.answer_after(interval_ms(self.iss.raw(), self.challenged_at_ms), now);
    }

    /// Schedules an acknowledgment, if the last one that counts is at least `least_ms` old.
    pub(super) fn answer_after(&mut self, least_ms: u32, now: Instant) {
        // An unshifted timestamp is the low half of the millisecond clock.
        let now_ms = timestamp::value(now, 0);
        let since_ms = now_ms.wrapping_sub(self.challenged_at_ms);
        if !self.is_challenged || since_ms >= least_ms {
            (self.is_challenged, self.challenged_at_ms) = (true, now_ms);
            self.ack_now = true;
        }
    }
}

/// Milliseconds from the answer at `at_ms` to the next one: a different number each time, which only an end that knows
/// `secret` could predict.
pub(in crate::tcp) fn interval_ms(secret: u32, at_ms: u32) -> u32 {
    let mixed = (secret ^ at_ms.wrapping_mul(0x9e37_79b1)).wrapping_mul(0x85eb_ca6b);
    // The five highest bits.
    CHALLENGE_INTERVAL_MS + (mixed >> 27)
}
