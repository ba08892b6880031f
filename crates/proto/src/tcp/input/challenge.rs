//! Acknowledgments that anybody can provoke, and their limit (RFC 5961).
//!
//! A challenge acknowledgment asks the true peer to prove itself. Because a blind attacker can ask for as
//! many as it likes, and two confused ends can ask each other for ever, at most
//! `CHALLENGES_PER_SECOND` leave a connection in each second of the driver's clock (RFC 5961 section 7);
//! the limit is per connection, for a global one is a side channel. Tests: `tests/attacks.rs`.

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
        if self.challenge_count < CHALLENGES_PER_SECOND {
            self.challenge_count += 1;
            self.ack_now = true;
        }
    }
}

/// Challenge acknowledgments per connection and second.
pub(in crate::tcp) const CHALLENGES_PER_SECOND: u8 = 10;
