//! When text is acknowledged: at once, when the reader has taken it, or after a while.
//!
//! RFC 9293 section 3.8.6.3 lets an acknowledgment wait. That saves a segment where the application answers, because the
//! answer carries the acknowledgment. Where it does not answer, waiting delays the sender: Nagle's algorithm holds the next
//! small message back until the one before it is acknowledged. The rules below are Linux's.
//!
//! | mode | meaning | ends |
//! |---|---|---|
//! | fresh | no text has come | the first text: one-way, with quick acknowledgments |
//! | one-way | nothing says that the application answers | text is sent within `delack` of text received: interactive |
//! | interactive | the application answers (Linux: pingpong) | nothing carried the acknowledgment in time, or text came again: one-way |
//!
//! Text in order is acknowledged at once
//! 1. for every second full segment, in each mode;
//! 2. unless interactive, while *quick acknowledgments* are left: up to [`QUICK_ACKS_MAX`], as many as the window has room for pairs
//!    of segments, granted by the first text, by text after a pause longer than the retransmission timeout (the sender begins
//!    with a small congestion window), and by text that has come before (the acknowledgment was lost or late);
//! 3. when the reader has emptied `so_rcv` ([`Pcb::on_emptied`]), if the end of a message has come ("pushed": a segment shorter
//!    than a full one, or one with PSH) and the mode is not interactive; with two short segments in each mode.
//!
//! Otherwise it waits for `delack`, which is thereby the longest delay in all cases. Text behind a hole, or that fills one,
//! is acknowledged at once (`input/text.rs`).
//!
//! Does not depend on buffers: the caller asks [`Pcb::acks_when_emptied`] after output, keeps the answer where its reader finds
//! it, and calls [`Pcb::on_emptied`]. Tests: `tests/delack.rs`, `tests/quick_ack.rs`.

use crate::time::Instant;

use super::pcb::{Pcb, TIMESTAMPS_LEN};
use super::segment::Payload;
use super::timers::{NEVER, after_us};

/// See the module's head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AckMode {
    Fresh,
    OneWay,
    Interactive,
}

/// Most acknowledgments that are sent at once in a row (Linux's `TCP_MAX_QUICKACKS`).
pub(super) const QUICK_ACKS_MAX: u8 = 16;
/// The same where the window has no room for a pair of segments.
const QUICK_ACKS_IN_SMALL_WINDOW: u8 = 2;
/// `pushed` counts no further.
const PUSHED_MAX: u8 = 2;

/// Text in order, of one segment or of several that are taken in together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Text {
    /// Bytes.
    pub len: u32,
    /// The largest segment seen from the peer, these included.
    mss_seen: u16,
    /// The same up to the first of them.
    mss_seen_first: u16,
    /// Ends of messages since the last acknowledgment, these included.
    pushed: u8,
    /// The largest segment that the peer can send.
    mss_max: u16,
}

impl Text {
    /// Adds a segment's.
    #[inline]
    pub fn add(&mut self, len: u32, has_psh: bool) {
        let is_first = self.len == 0;
        self.len += len;
        // One piece may be several segments, whose text is the MSS less the options (RFC 6691). Taking it for larger
        // ones would let two full segments wait for the timer.
        let segment = u16::try_from(len).unwrap_or(u16::MAX).min(self.mss_max);
        if segment < self.mss_seen {
            self.pushed = (self.pushed + 1).min(PUSHED_MAX);
        } else {
            self.mss_seen = segment;
            self.pushed = self.pushed.max(u8::from(has_psh));
        }
        if is_first {
            self.mss_seen_first = self.mss_seen;
        }
    }
}

impl<P: Payload> Pcb<P> {
    /// No text yet, behind RCV.NXT.
    #[inline]
    pub(super) fn no_text(&self) -> Text {
        let options = if self.ts_on { TIMESTAMPS_LEN } else { 0 };
        let (mss_seen, pushed) = (self.rcv_mss_seen, self.pushed);
        Text { len: 0, mss_seen, mss_seen_first: mss_seen, pushed, mss_max: self.rcv_mss - options }
    }

    /// The text of one segment.
    #[inline]
    pub(super) fn text_of(&self, len: u32, has_psh: bool) -> Text {
        let mut text = self.no_text();
        text.add(len, has_psh);
        text
    }

    /// More bytes are in order, RCV.NXT is past them. Decides on their acknowledgment.
    #[inline]
    pub(super) fn owe_ack(&mut self, text: Text, now: Instant) {
        (self.rcv_mss_seen, self.pushed) = (text.mss_seen, text.pushed);
        let now_us = low_micros(now);
        let pause_us = now_us.wrapping_sub(self.text_at_us);
        self.text_at_us = now_us;
        // The timeout is longer than its floor, so most text needs only these two comparisons.
        if self.ack_mode == AckMode::Fresh || pause_us > self.tuning.rto_min_us {
            self.after_pause(pause_us, text.mss_seen_first);
        }
        let is_quick = self.quick_acks > 0 && self.ack_mode != AckMode::Interactive;
        if is_quick || self.rcv_nxt.since(self.last_ack_sent) >= 2 * u32::from(self.rcv_mss_seen) {
            self.ack_now = true;
        } else if self.delack_at == NEVER {
            self.delack_at = after_us(now, u64::from(self.tuning.delack_us));
        }
    }

    /// The first text, or the first after a while.
    #[cold]
    fn after_pause(&mut self, pause_us: u32, mss: u16) {
        if self.ack_mode == AckMode::Fresh {
            self.ack_mode = AckMode::OneWay;
        } else if u64::from(pause_us) <= self.rtt.rto_us(self.tuning.rto_max_us) {
            return;
        }
        self.grant_quick_acks(mss);
    }

    fn grant_quick_acks(&mut self, mss: u16) {
        let window = self.rcv_adv.since(self.last_ack_sent);
        let pairs = match window / (2 * u32::from(mss).max(1)) {
            0 => QUICK_ACKS_IN_SMALL_WINDOW,
            pairs => u8::try_from(pairs).unwrap_or(u8::MAX).min(QUICK_ACKS_MAX),
        };
        self.quick_acks = self.quick_acks.max(pairs);
    }

    /// Text came that has come before: its sender has missed the acknowledgment.
    pub(super) fn on_text_again(&mut self) {
        if self.ack_mode != AckMode::Fresh {
            self.ack_mode = AckMode::OneWay;
            self.grant_quick_acks(self.rcv_mss_seen);
        }
    }

    /// Text is sent. Soon after text was received, it is taken for an answer.
    #[inline]
    pub(super) fn note_answer(&mut self, now: Instant) {
        if self.ack_mode == AckMode::OneWay
            && low_micros(now).wrapping_sub(self.text_at_us) < self.tuning.delack_us
        {
            self.ack_mode = AckMode::Interactive;
        }
    }

    /// The delay is over and no answer has carried the acknowledgment.
    pub(super) fn on_delack(&mut self) {
        self.delack_at = NEVER;
        self.ack_now = true;
        if self.ack_mode == AckMode::Interactive {
            self.ack_mode = AckMode::OneWay;
        }
    }

    /// A segment that acknowledges RCV.NXT is sent.
    #[inline]
    pub(super) fn note_ack_sent(&mut self) {
        if self.quick_acks > 0 && self.last_ack_sent != self.rcv_nxt {
            self.quick_acks -= 1;
        }
        self.ack_now = false;
        self.delack_at = NEVER;
        self.pushed = 0;
        self.last_ack_sent = self.rcv_nxt;
    }

    /// Whether an acknowledgment goes out as soon as the reader has emptied `so_rcv`. Meaningful after `poll_transmit` has
    /// returned `None`; stays true until then if it is.
    #[inline]
    pub fn acks_when_emptied(&self) -> bool {
        let enough = if self.ack_mode == AckMode::Interactive { 2 } else { 1 };
        self.pushed >= enough && self.delack_at != NEVER
    }

    /// `TCP_QUICKACK`: whether an answer is not waited for, as long as nothing says otherwise.
    pub fn quickack(&self) -> bool {
        self.ack_mode != AckMode::Interactive
    }

    /// `TCP_QUICKACK`, until traffic decides otherwise. `poll_transmit` has to follow: switching it on sends an acknowledgment that waits.
    pub fn set_quickack(&mut self, quickack: bool) {
        if !quickack {
            self.ack_mode = AckMode::Interactive;
            return;
        }
        if self.ack_mode == AckMode::Interactive {
            self.ack_mode = AckMode::OneWay;
        }
        self.ack_now |= self.delack_at != NEVER;
    }

    /// The reader has emptied `so_rcv`. `poll_transmit` has to follow if [`Pcb::acks_when_emptied`] was true.
    pub fn on_emptied(&mut self) {
        self.ack_now |= self.acks_when_emptied();
    }
}

/// The low bits of the clock: differences are right up to 71 minutes, and an error beyond that only spoils a guess at how
/// the application goes on.
fn low_micros(now: Instant) -> u32 {
    u32::try_from(now.as_micros() & u64::from(u32::MAX)).unwrap_or(0)
}
