//! Acknowledgments that any host can provoke, and their limit (RFC 5961).
//!
//! A challenge acknowledgment asks the true peer to prove itself. Because a blind attacker can ask for as many as it likes,
//! and two confused ends can ask each other for ever, only `CHALLENGES_MIN` to `CHALLENGES_MAX` leave a connection in each
//! second of the driver's clock (RFC 5961 section 7). The limit is per connection, for a global one leaks other connections to
//! an attacker (CVE-2016-5696); and it differs from second to second in a way that only an end that knows our ISS could
//! predict, so that counting the rest of it reveals nothing either. Tests: `tests/attacks.rs`.

use crate::time::Instant;

use super::super::pcb::Pcb;
use super::super::segment::Payload;

impl<P: Payload> Pcb<P> {
    /// Owes the peer a challenge acknowledgment, if the limit allows one.
    pub(super) fn challenge(&mut self, now: Instant) {
        // Only for equality with itself: the narrowing that wraps after 136 years is harmless.
        let second = u32::try_from((now.as_millis() / 1000) & u64::from(u32::MAX)).unwrap_or(0);
        if self.challenge_second != second {
            (self.challenge_second, self.challenge_count) = (second, 0);
        }
        if self.challenge_count < self.challenges_in(second) {
            self.challenge_count += 1;
            self.ack_now = true;
        }
    }

    /// How many are allowed in this second.
    fn challenges_in(&self, second: u32) -> u8 {
        let mixed = (self.iss.raw() ^ second.wrapping_mul(0x9e37_79b1)).wrapping_mul(0x85eb_ca6b);
        // The three highest bits: 0 to 7.
        CHALLENGES_MIN + u8::try_from(mixed >> 29).unwrap_or(0)
    }
}

/// Fewest challenge acknowledgments that a connection may send in a second.
pub(in crate::tcp) const CHALLENGES_MIN: u8 = 7;
/// Most of them.
#[cfg(test)]
pub(in crate::tcp) const CHALLENGES_MAX: u8 = CHALLENGES_MIN + 7;
