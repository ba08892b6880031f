//! When text is acknowledged: at once, when the reader has taken it, or after a while.
//!
//! RFC 9293 section 3.8.6.3 lets an acknowledgment wait. That saves a segment where the application answers, because the
//! answer carries the acknowledgment. Where it does not answer, waiting delays the sender: Nagle's algorithm holds the next
//! small message back until the one before it is acknowledged. The rules below are Linux's, name by name.
//!
//! | state | Linux | meaning |
//! |---|---|---|
//! | `ato_us` | `icsk_ack.ato` | how long an acknowledgment waits; 0 before the first text |
//! | `acks.interactive` | pingpong | the application answers. From text sent within `ato` of text received, or the peer's FIN, until nothing carried the acknowledgment in time, or text came again |
//! | `acks.quick` | `icsk_ack.quick` | acknowledgments that may still go out at once |
//! | `pushed` | `ICSK_ACK_PUSHED`, `PUSHED2` | ends of messages since the last acknowledgment |
//! | `rcv_mss_seen` | `icsk_ack.rcv_mss` | the size of the peer's full segments |
//! | `acks.scheduled` | `ICSK_ACK_SCHED` | something came that the next acknowledgment answers |
//!
//! Text in order is acknowledged at once
//! 1. beyond one full segment, in each mode, unless the window would shrink: its reader has not taken what came since the last
//!    acknowledgment though it was told of it (SO_RCVLOWAT), and acknowledges when it does (`__tcp_ack_snd_check`; never held back within one process, `lossless`);
//! 2. unless interactive, while *quick acknowledgments* are left: up to `QUICK_ACKS_MAX`, as many as the window has room for pairs
//!    of segments, granted by the first text, by text after a pause longer than the retransmission timeout (the sender begins
//!    with a small congestion window), and by text that has come before (the acknowledgment was lost or late); two by a first mark of
//!    congestion. None are left once the receive buffer is more than half full;
//! 3. when the reader has emptied `so_rcv` ([`Pcb::on_read`]), if the end of a message has come ("pushed": a segment shorter
//!    than a full one, or one with PSH) and the connection is not interactive; with two short segments in each mode; and at each read
//!    if more than a full segment waits (`tcp_cleanup_rbuf`).
//!
//! Otherwise it waits for `ato`: at least `delack`, longer if the gaps between the peer's segments are, or acknowledgments were late, at
//! most a round trip or `ATO_MAX_US`. Text behind a hole, or that fills one, is acknowledged at once, as far as
//! `comp_sack.rs` does not hold it back.
//!
//! Does not depend on buffers: the caller asks [`Pcb::acks_at_read`] after output, keeps the answer where its reader finds
//! it, and calls [`Pcb::on_read`]. Tests: `delack/tests.rs`, `tests/delack.rs`, `tests/quick_ack.rs`.

use crate::time::Instant;

use super::pcb::{Pcb, TIMESTAMPS_LEN};
use super::segment::{Flags, Header, Payload, PlainHeader};
use super::state::State;
use super::timers::{NEVER, after_us};
use super::wire;

/// A part of a connection's state; see the module's head.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Acks {
    /// Acknowledgments that may still go out at once.
    pub quick: u8,
    /// The application answers what it receives.
    pub interactive: bool,
    /// Something has come that the next acknowledgment answers.
    pub scheduled: bool,
    /// The application writes first.
    pub writes_first: bool,
}

impl Acks {
    /// Whether the next one goes out at once.
    #[inline]
    pub fn is_quick(self) -> bool {
        self.quick > 0 && !self.interactive
    }
}

/// Whether a reader's taking bytes sends an acknowledgment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AckAtRead {
    /// No.
    #[default]
    No,
    /// If it takes the last of them.
    Emptied,
    /// However many it takes.
    Any,
}

impl AckAtRead {
    /// Whether a read sends one that leaves `so_rcv` empty, or not.
    #[inline]
    pub fn is_due(self, is_empty: bool) -> bool {
        match self {
            Self::No => false,
            Self::Emptied => is_empty,
            Self::Any => true,
        }
    }
}

/// Most acknowledgments that are sent at once in a row (Linux's `TCP_MAX_QUICKACKS`).
pub(super) const QUICK_ACKS_MAX: u8 = 16;
/// The same where the window has no room for a pair of segments, and at a mark of congestion.
pub(super) const QUICK_ACKS_FEW: u8 = 2;
/// Longest time that an acknowledgment waits, microseconds (`TCP_DELACK_MAX`).
const ATO_MAX_US: u32 = 200_000;
/// The same where neither the end of a message has come nor the application answers.
const ATO_MAX_OF_BULK_US: u32 = 500_000;
/// How long one of a FIN without any text before it waits, microseconds: some of a tick of Linux's clock.
const ATO_NONE_US: u32 = 2_000;
/// An acknowledgment leaves this much before the sender's retransmission timeout would expire at the earliest, microseconds.
const BEFORE_RTO_US: u32 = 1_000;
/// `pushed` counts no further.
const PUSHED_MAX: u8 = 2;
/// `rcv_mss_seen` before the peer has sent a segment: taken to be small, early acknowledgments come early (`TCP_MIN_RCVMSS`).
const RCV_MSS_GUESS: u16 = 536;
/// It is never believed to be smaller before that (`TCP_MIN_MSS`).
const RCV_MSS_MIN: u16 = 88;

/// What the decision needs of one segment in order, or of several that a device has joined.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub len: u32,
    /// Bytes of text of each of them; 0 if it is one.
    gso_size: u16,
    /// Bytes of options besides timestamps: a full segment is shorter by these.
    options_len: u16,
    has_psh: bool,
    /// It may be the rest of something (`TCP_REMNANT`), and says nothing about the size of full segments if it is small.
    is_remnant: bool,
}

impl Piece {
    /// Of a segment with `len` bytes of text.
    #[inline]
    pub fn of(header: &Header, len: u32) -> Self {
        let options_len = u16::try_from(wire::sack_len(header.options.sack.len())).unwrap_or(0);
        Self { gso_size: header.gso_size, options_len, ..Self::of_flags(header.flags, len) }
    }

    /// The same in its short form.
    #[inline]
    pub fn of_plain(header: &PlainHeader, len: u32) -> Self {
        Self::of_flags(header.flags, len)
    }

    #[inline]
    fn of_flags(flags: Flags, len: u32) -> Self {
        const REMNANT: Flags = Flags::FIN.with(Flags::URG).with(Flags::SYN).with(Flags::PSH);
        let (has_psh, is_remnant) = (flags.has(Flags::PSH), flags.any(REMNANT));
        Self { len, gso_size: 0, options_len: 0, has_psh, is_remnant }
    }
}

/// Text in order, of one segment or of several that are taken in together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Text {
    /// Bytes.
    pub len: u32,
    /// Segments.
    count: u32,
    /// The size of the peer's full segments.
    mss_seen: u16,
    /// The same up to the first of them.
    mss_seen_first: u16,
    /// The length of the last segment, if it was short and told something (`last_seg_size`).
    last_len: u16,
    /// Bytes of timestamps in each segment.
    fixed_len: u16,
    /// Ends of messages since the last acknowledgment, these included.
    pushed: u8,
    /// The largest segment that the peer can send.
    mss_max: u16,
}

impl Text {
    /// Adds a segment's.
    #[inline]
    pub fn add(&mut self, piece: Piece) {
        let is_first = self.len == 0;
        self.len += piece.len;
        self.count += 1;
        self.measure(piece);
        if is_first {
            self.mss_seen_first = self.mss_seen;
        }
    }

    /// `tcp_measure_rcv_mss`.
    #[inline]
    fn measure(&mut self, piece: Piece) {
        // A piece that the device has not told the parts of may be several segments, whose text is the MSS less the options (RFC
        // 6691). Taking it for larger ones would let two full segments wait for the timer.
        let len = if piece.gso_size == 0 { piece.len } else { piece.len.min(u32::from(piece.gso_size)) };
        let len = u16::try_from(len).unwrap_or(u16::MAX).min(self.mss_max);
        let last_len = core::mem::take(&mut self.last_len);
        if len >= self.mss_seen {
            self.mss_seen = len;
            self.pushed = self.pushed.max(u8::from(piece.has_psh));
            return;
        }
        // Two segments of one length in a row are full ones, unless they are too small to tell.
        let whole = len + piece.options_len;
        let enough = if piece.is_remnant { RCV_MSS_GUESS } else { RCV_MSS_MIN };
        if whole + self.fixed_len >= enough {
            self.last_len = whole;
            if whole == last_len {
                self.mss_seen = whole;
                return;
            }
        }
        self.pushed = (self.pushed + 1).min(PUSHED_MAX);
    }
}

impl<P: Payload> Pcb<P> {
    /// No text yet, behind RCV.NXT.
    #[inline]
    pub(super) fn no_text(&self) -> Text {
        let fixed_len = if self.ts_on { TIMESTAMPS_LEN } else { 0 };
        Text {
            len: 0,
            count: 0,
            mss_seen: self.rcv_mss_seen,
            mss_seen_first: self.rcv_mss_seen,
            last_len: self.rcv_last_len,
            fixed_len,
            pushed: self.pushed,
            mss_max: self.rcv_mss - fixed_len,
        }
    }

    /// The text of one segment.
    #[inline]
    pub(super) fn text_of(&self, piece: Piece) -> Text {
        let mut text = self.no_text();
        text.add(piece);
        text
    }

    /// The handshake is done: what can be said of the peer's segments before one has come (`tcp_initialize_rcv_mss`).
    pub(super) fn guess_rcv_mss(&mut self) {
        let half = u16::try_from(self.rcv_wnd() / 2).unwrap_or(u16::MAX);
        let guess = self.rcv_mss.min(self.mss).min(half).min(RCV_MSS_GUESS);
        self.rcv_mss_seen = guess.max(RCV_MSS_MIN);
    }

    /// More bytes are in order, RCV.NXT is past them. Decides on their acknowledgment.
    #[inline]
    pub(super) fn owe_ack(&mut self, text: Text, now: Instant) {
        (self.rcv_mss_seen, self.pushed, self.rcv_last_len) = (text.mss_seen, text.pushed, text.last_len);
        let now_us = low_micros(now);
        let gap_us = now_us.wrapping_sub(self.text_at_us);
        self.text_at_us = now_us;
        self.acks.scheduled = true;
        // Most text follows the text before it at once, and needs only these comparisons.
        if self.ato_us != self.ato_min_us() || gap_us > self.ato_us / 2 {
            self.adapt_ato(gap_us, text);
        }
        if self.acks.is_quick() || (self.tuning.lossless && self.has_full_segment()) {
            self.ack_now = true;
        } else {
            self.delay_ack(now);
        }
    }

    /// The gap before text adapts the delay (`tcp_event_data_recv`).
    #[inline(never)]
    fn adapt_ato(&mut self, gap_us: u32, text: Text) {
        let (least, rto_us) = (self.ato_min_us(), self.rto_us());
        if self.ato_us == 0 {
            self.grant_quick_acks(text.mss_seen_first, QUICK_ACKS_MAX);
            self.ato_us = least;
        } else if gap_us <= least / 2 {
            self.ato_us = self.ato_us / 2 + least / 2;
        } else if gap_us < self.ato_us {
            self.ato_us = (self.ato_us / 2 + gap_us).min(rto_us);
        } else if gap_us > rto_us {
            self.grant_quick_acks(text.mss_seen_first, QUICK_ACKS_MAX);
        }
        // Between joined segments there is no gap. After a few halvings nothing changes any more.
        for _ in 1..text.count.min(32) {
            self.ato_us = self.ato_us / 2 + least / 2;
        }
    }

    /// The least delay (`TCP_ATO_MIN`), microseconds: never 0, which stands for no text yet. Even, so that halving it twice over
    /// leaves it.
    #[inline]
    fn ato_min_us(&self) -> u32 {
        self.tuning.delack_us.max(2) & !1
    }

    fn rto_us(&self) -> u32 {
        u32::try_from(self.rtt.rto_us(self.tuning.rto_max_us)).unwrap_or(u32::MAX)
    }

    /// The acknowledgment waits (`tcp_send_delayed_ack`).
    #[inline]
    pub(super) fn delay_ack(&mut self, now: Instant) {
        let wait_us = self.delack_us();
        let at = after_us(now, u64::from(wait_us));
        if self.delack_at == NEVER {
            self.delack_at = at;
            return;
        }
        let soon_us = if self.ato_us == 0 { wait_us } else { wait_us / 4 };
        if self.delack_at <= after_us(now, u64::from(soon_us)) {
            // It would leave soon in any case.
            self.ack_now = true;
        } else {
            self.delack_at = self.delack_at.min(at);
        }
    }

    /// A further segment has come that is none of the usual ones: what is about to leave leaves now (`tcp_ack_snd_check`).
    pub(super) fn recheck_waiting_ack(&mut self, now: Instant) {
        let is_text = self.reass.is_none() && self.acks.scheduled && !self.tuning.lossless;
        if self.delack_at == NEVER || !is_text || self.ack_now {
            return;
        }
        if self.acks.is_quick() {
            // The program has set TCP_QUICKACK since: it has no answer to send.
            self.ack_now = true;
        } else {
            self.delay_ack(now);
        }
    }

    /// How long, microseconds.
    #[inline]
    fn delack_us(&self) -> u32 {
        let least = self.tuning.delack_us;
        if self.ato_us == 0 {
            // No text yet: what waits is the acknowledgment of a FIN, and only for the application to close at once.
            return ATO_NONE_US.min(least);
        }
        if self.ato_us <= self.ato_min_us() {
            return self.ato_us.min(least);
        }
        let has_end = self.acks.interactive || self.pushed > 0;
        let most = if has_end { ATO_MAX_US } else { ATO_MAX_OF_BULK_US };
        let rtt_us = self.rtt.srtt_us();
        let most = if rtt_us == 0 { most } else { most.min(rtt_us.max(least)) };
        self.ato_us
            .min(most)
            .min(ATO_MAX_US.max(least))
            .min(self.tuning.rto_min_us.saturating_sub(BEFORE_RTO_US).max(least))
    }

    /// Whether more than a full segment came since the last acknowledgment.
    #[inline]
    pub(super) fn has_full_segment(&self) -> bool {
        self.rcv_nxt.since(self.last_ack_sent) > u32::from(self.rcv_mss_seen)
    }

    /// Before output, `rcv_space` being free in `so_rcv`: whether an acknowledgment that waits is worth sending now, since the
    /// window is as large as it was at the last one.
    #[inline]
    pub(super) fn settle_waiting_ack(&mut self, rcv_space: u32) {
        if self.delack_at != NEVER && self.has_full_segment() {
            let unit = 1u32 << self.scale.rcv;
            let window = rcv_space.min(self.rcv_wnd_max()).next_multiple_of(unit);
            let is_reader_told = self.rcv_hiwat.saturating_sub(rcv_space) >= self.rcv_limits().lowat;
            self.ack_now |= !is_reader_told || window >= self.rcv_adv.since(self.last_ack_sent);
        }
    }

    fn grant_quick_acks(&mut self, mss: u16, most: u8) {
        let window = self.rcv_adv.since(self.last_ack_sent);
        let pairs = match window / (2 * u32::from(mss).max(1)) {
            0 => QUICK_ACKS_FEW,
            pairs => u8::try_from(pairs).unwrap_or(u8::MAX),
        };
        self.acks.quick = self.acks.quick.max(pairs.min(most));
    }

    /// The sender needs to hear soon (`tcp_enter_quickack_mode`).
    pub(super) fn enter_quick_acks(&mut self, most: u8) {
        self.grant_quick_acks(self.rcv_mss_seen, most);
        self.acks.interactive = false;
        self.ato_us = self.ato_min_us();
    }

    /// The receive buffer is more than half full: the sender need not hurry.
    #[inline]
    pub(super) fn end_quick_acks(&mut self) {
        self.acks.quick = 0;
    }

    /// Text is sent. Soon after text was received, it is taken for an answer.
    #[inline]
    pub(super) fn note_answer(&mut self, now: Instant) {
        self.acks.interactive |= low_micros(now).wrapping_sub(self.text_at_us) < self.ato_us;
    }

    /// The peer's FIN: the application is likely to close as well, and its FIN carries the acknowledgment. Within one process the
    /// peer's memory waits for it, so it does not.
    pub(super) fn on_fin_to_answer(&mut self, now: Instant) {
        self.acks.interactive = true;
        if self.tuning.lossless {
            self.ack_now = true;
        } else {
            self.delay_ack(now);
        }
    }

    /// The handshake is done, and text waits for that, or the acknowledgment of the SYN-ACK for text: the application asks and waits for answers (Linux counts
    /// the SYN-ACK as received text then, `sk_write_pending` and `tcp_finish_connect`).
    pub(super) fn note_waiting_writer(&mut self, now: Instant) {
        self.text_at_us = low_micros(now);
        self.enter_quick_acks(QUICK_ACKS_MAX);
    }

    /// Acknowledges the SYN-ACK: at once, or, if it `may_wait`, with the application's first text, within [`ATO_MAX_US`]
    /// (`tcp_rcv_synsent_state_process`). Within one process it does not wait, as that would save no packet.
    pub(super) fn acknowledge_handshake(&mut self, may_wait: bool, now: Instant) {
        if !may_wait || self.tuning.lossless {
            self.ack_now = true;
            return;
        }
        self.acks.scheduled = true;
        // What is written soon is an answer to the SYN-ACK.
        self.note_waiting_writer(now);
        self.delack_at = after_us(now, u64::from(ATO_MAX_US));
    }

    /// The delay is over and no answer has carried the acknowledgment.
    pub(super) fn on_delack(&mut self) {
        self.delack_at = NEVER;
        self.ack_now = true;
        if self.ends_compression() {
            return;
        }
        if self.acks.interactive {
            self.acks.interactive = false;
            self.ato_us = self.ato_min_us();
        } else {
            self.ato_us = self.ato_us.saturating_mul(2).min(self.rto_us());
        }
    }

    /// A segment that acknowledges RCV.NXT is sent.
    #[inline]
    pub(super) fn note_ack_sent(&mut self) {
        if self.acks.quick > 0 && self.acks.scheduled {
            self.acks.quick -= 1;
            if self.acks.quick == 0 {
                self.ato_us = self.ato_min_us();
            }
        }
        self.acks.scheduled = false;
        self.ack_now = false;
        self.delack_at = NEVER;
        self.pushed = 0;
        self.last_ack_sent = self.rcv_nxt;
    }

    /// Whether an acknowledgment goes out as soon as a reader has taken bytes from `so_rcv`. Meaningful after `poll_transmit` has
    /// returned `None`, and until then unchanged if it is not `No`.
    #[inline]
    pub fn acks_at_read(&self) -> AckAtRead {
        if self.delack_at == NEVER {
            return AckAtRead::No;
        }
        if self.has_full_segment() {
            return AckAtRead::Any;
        }
        let enough = if self.acks.interactive { 2 } else { 1 };
        if self.pushed >= enough { AckAtRead::Emptied } else { AckAtRead::No }
    }

    /// `TCP_QUICKACK`: whether an answer is not waited for, as long as nothing says otherwise.
    pub fn quickack(&self) -> bool {
        !self.acks.interactive
    }

    /// `TCP_QUICKACK`, until traffic decides otherwise. `poll_transmit` has to follow: switching it on sends an acknowledgment that
    /// waits, if `so_rcv` `is_empty` or more than a full segment waits for it; else the reader's taking the rest sends it.
    pub fn set_quickack(&mut self, quickack: bool, is_empty: bool) {
        self.acks.interactive = !quickack;
        let is_open = matches!(self.state, State::Established | State::CloseWait);
        if quickack && is_open && self.delack_at != NEVER {
            self.pushed = self.pushed.max(1);
            self.on_read(is_empty);
        }
    }

    /// A reader has taken bytes from `so_rcv`, which now `is_empty` or not. `poll_transmit` has to follow if
    /// [`Pcb::acks_at_read`] says that this is due.
    pub fn on_read(&mut self, is_empty: bool) {
        self.ack_now |= self.acks_at_read().is_due(is_empty);
    }
}

/// The low bits of the clock: differences are right up to 71 minutes, and an error beyond that only spoils a guess at how
/// the application goes on.
pub(super) fn low_micros(now: Instant) -> u32 {
    u32::try_from(now.as_micros() & u64::from(u32::MAX)).unwrap_or(0)
}

#[cfg(test)]
mod tests;
