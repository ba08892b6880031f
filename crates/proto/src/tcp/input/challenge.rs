//! Acknowledgments that any host can provoke, and their limit (RFC 5961).
//!
//! A challenge acknowledgment asks the true peer to prove itself. Because a blind attacker can ask for as many as it likes,
//! and two confused ends can ask each other for ever, one leaves a connection in half a second (RFC 5961 section 7; Linux's
//! `tcp_invalid_ratelimit`). The limit is per connection, for a global one leaks other connections to
//! an attacker (CVE-2016-5696); and the interval differs from one to the next in a way that only an end that knows our ISS could
//! predict, so that a probe of its end reveals nothing either.
//!
//! A probe of our window, or a keepalive, is answered sooner: the update that opened the window may have been lost, and its sender would double its wait
//! (RFC 9293 section 3.8.6.1). It stands exactly before RCV.NXT, and acknowledges what may be acknowledged. Tests: `tests/attacks.rs`.

use crate::time::Instant;

use super::super::pcb::Pcb;
use super::super::segment::Payload;
use super::super::timestamp;

/// Least milliseconds between two answers to segments without text that may be anybody's.
pub(in crate::tcp) const CHALLENGE_INTERVAL_MS: u32 = 500;
/// Least milliseconds to the answer to a probe: half of the shortest retransmission timeout that Linux has unless told otherwise.
pub(super) const PROBE_INTERVAL_MS: u32 = 100;
/// Up to so many milliseconds less one are added to the interval of challenges each time.
#[cfg(test)]
pub(in crate::tcp) const CHALLENGE_SPREAD_MS: u32 = 32;

impl<P: Payload> Pcb<P> {
    /// Owes the peer a challenge acknowledgment, if the limit allows one.
    pub(super) fn challenge(&mut self, now: Instant) {
        self.answer_after(interval_ms(self.iss.raw(), self.challenged_at_ms), now);
    }

    /// Owes the peer an acknowledgment, if the last one that counts is at least `least_ms` old.
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

/// Milliseconds from the answer at `at_ms` to the next one: another number each time, which only an end that knows `secret` could predict.
pub(in crate::tcp) fn interval_ms(secret: u32, at_ms: u32) -> u32 {
    let mixed = (secret ^ at_ms.wrapping_mul(0x9e37_79b1)).wrapping_mul(0x85eb_ca6b);
    // The five highest bits.
    CHALLENGE_INTERVAL_MS + (mixed >> 27)
}
