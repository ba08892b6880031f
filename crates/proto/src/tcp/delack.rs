//! When text is acknowledged: at once, when the reader has read it, or after a delay.
//!
//! RFC 9293 section 3.8.6.3 lets an acknowledgment wait. This saves a segment if the application answers, because the
//! answer carries the acknowledgment. If it does not answer, waiting delays the sender: Nagle's algorithm holds the
//! next small message back until the one before it is acknowledged. The rules below are Linux's, name by name.
//!
//! | state | Linux | meaning |
//! |---|---|---|
//! | `ato_us` | `icsk_ack.ato` | how long an acknowledgment waits; 0 before the first text |
//! | `acks.interactive` | pingpong | the application answers. Set by text sent within `ato` of received text, or by the peer's FIN; cleared when nothing carried the acknowledgment in time, or text arrived again |
//! | `acks.quick` | `icsk_ack.quick` | acknowledgments that may still be sent at once |
//! | `pushed` | `ICSK_ACK_PUSHED`, `PUSHED2` | ends of messages since the last acknowledgment |
//! | `rcv_mss_seen` | `icsk_ack.rcv_mss` | the size of the peer's full segments |
//! | `acks.scheduled` | `ICSK_ACK_SCHED` | something has arrived that the next acknowledgment answers |
//!
//! Text in order is acknowledged at once
//! 1. beyond one full segment, in each mode, unless the receive buffer is more than half full and the window would
//!    shrink: its reader has not read what arrived since the last acknowledgment although it was told of it
//!    (SO_RCVLOWAT), and acknowledges when it reads (`__tcp_ack_snd_check`; Linux has no free half, but its first
//!    window is half of its buffer). Within one process, it is never held back (`lossless`);
//! 2. unless interactive, while *quick acknowledgments* are left. Up to `QUICK_ACKS_MAX`, as many as pairs of segments
//!    fit the window, are granted by the first text, by text after a pause longer than the retransmission timeout (the
//!    sender begins with a small congestion window), and by text that had arrived before (the acknowledgment was lost or
//!    late); two by a first congestion mark; one by each segment of a new connection, while Linux's window would grow
//!    (`would_grow`). None are left when the receive buffer is more than half full;
//! 3. when the reader has emptied `so_rcv` ([`Pcb::on_read`]), if the end of a message has arrived ("pushed": a segment
//!    shorter than a full one, or one with PSH) and the connection is not interactive; with two short segments in each
//!    mode; and at each read if more than a full segment waits (`tcp_cleanup_rbuf`).
//!
//! Otherwise the acknowledgment waits for `ato`: at least `delack`, longer if the gaps between the peer's segments are
//! longer or acknowledgments were late, at most a round trip or `ATO_MAX_US`. Text behind a hole, or text that fills
//! one, is acknowledged at once, unless `comp_sack.rs` holds the acknowledgment back.
//!
//! It does not depend on buffers: the caller asks [`Pcb::acks_at_read`] after output, stores the answer for its reader,
//! and calls [`Pcb::on_read`]. Tests: `delack/tests.rs`, `tests/delack.rs`, `tests/quick_ack.rs`.

use crate::time::Instant;

use super::pcb::{Pcb, TIMESTAMPS_LEN};
use super::segment::{Flags, Header, Payload, PlainHeader};
use super::state::State;
use super::timers::{NEVER, after_us};
use super::wire;

/// A part of a connection's state; see the head of this file.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Acks {
    /// Acknowledgments that may still be sent at once.
    pub quick: u8,
    /// The application answers what it receives.
    pub interactive: bool,
    /// Something has arrived that the next acknowledgment answers.
    pub scheduled: bool,
    /// The application writes first.
    pub writes_first: bool,
}

impl Acks {
    /// Whether the next acknowledgment is sent at once.
    #[inline]
    pub fn is_quick(self) -> bool {
        self.quick > 0 && !self.interactive
    }
}

/// Whether a read sends an acknowledgment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AckAtRead {
    /// No.
    #[default]
    No,
    /// If it reads the last bytes.
    Emptied,
    /// No matter how many bytes it reads.
    Any,
}

impl AckAtRead {
    /// Whether a read sends one that leaves `so_rcv` empty, or one that does not.
    #[inline]
    pub fn is_due(self, is_empty: bool) -> bool {
        match self {
            Self::No => false,
            Self::Emptied => is_empty,
            Self::Any => true,
        }
    }
}

/// Largest number of immediate acknowledgments in a row (Linux's `TCP_MAX_QUICKACKS`).
pub(super) const QUICK_ACKS_MAX: u8 = 16;
/// The same if the window has no room for a pair of segments, and after a congestion mark.
pub(super) const QUICK_ACKS_FEW: u8 = 2;
/// Longest delay of an acknowledgment, microseconds (`TCP_DELACK_MAX`).
const ATO_MAX_US: u32 = 200_000;
/// The same if no end of a message has arrived and the application does not answer.
const ATO_MAX_OF_BULK_US: u32 = 500_000;
/// Delay of the acknowledgment of a FIN without any text before it, microseconds: a part of a tick of Linux's clock.
const ATO_NONE_US: u32 = 2_000;
/// How long before the earliest expiry of the sender's retransmission timeout an acknowledgment is sent, microseconds.
const BEFORE_RTO_US: u32 = 1_000;
/// Shorter text does not make Linux's window grow (`tcp_event_data_recv`).
const GROWTH_LEN_MIN: u32 = 128;
/// What that window is at first, at most: a SYN's window is not scaled.
const FIRST_WINDOW: u64 = 65_535;
/// Maximum of `pushed`.
const PUSHED_MAX: u8 = 2;
/// `rcv_mss_seen` before the peer has sent a segment: a small guess makes the first acknowledgments early
/// (`TCP_MIN_RCVMSS`).
const RCV_MSS_GUESS: u16 = 536;
/// Smallest guess before that (`TCP_MIN_MSS`).
const RCV_MSS_MIN: u16 = 88;

/// What the decision needs to know about one segment in order, or about several that a device has joined.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub len: u32,
    /// The same with what was cut off because it had arrived before: it tells the size of full segments, too.
    sent_len: u32,
    /// Bytes of text of each joined segment; 0 if it is only one.
    gso_size: u16,
    /// Bytes of options besides timestamps: they shorten a full segment.
    options_len: u16,
    has_psh: bool,
    /// It may be the rest of something (`TCP_REMNANT`): if it is small, it says nothing about the size of full
    /// segments.
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

    /// It arrived with `stale` more bytes, which were cut off from its beginning.
    pub fn behind(self, stale: u32) -> Self {
        Self { sent_len: self.len.saturating_add(stale), ..self }
    }

    #[inline]
    fn of_flags(flags: Flags, len: u32) -> Self {
        const REMNANT: Flags = Flags::FIN.with(Flags::URG).with(Flags::SYN).with(Flags::PSH);
        let (has_psh, is_remnant) = (flags.has(Flags::PSH), flags.any(REMNANT));
        Self { len, sent_len: len, gso_size: 0, options_len: 0, has_psh, is_remnant }
    }
}

/// Text in order, of one segment or of several that are processed together.
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
    /// The length of the last segment, if it was short and significant (`last_seg_size`).
    last_len: u16,
    /// Bytes of timestamps in each segment.
    fixed_len: u16,
    /// Ends of messages since the last acknowledgment, including these.
    pushed: u8,
    /// The largest segment that the peer can send.
    mss_max: u16,
}

impl Text {
    /// Adds the text of a segment.
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
        // If the device has not reported the parts of a piece, it may be several segments, whose text is the MSS less
        // the options (RFC 6691). If it counted as a larger segment, two full segments would wait for the timer.
        let most = if piece.gso_size == 0 { u32::MAX } else { u32::from(piece.gso_size) };
        let len = u16::try_from(piece.sent_len.min(most)).unwrap_or(u16::MAX).min(self.mss_max);
        let last_len = core::mem::take(&mut self.last_len);
        if len >= self.mss_seen {
            self.mss_seen = len;
            self.pushed = self.pushed.max(u8::from(piece.has_psh));
            return;
        }
        // Two segments of the same length in a row are full ones, unless they are too small to decide.
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
    /// No text yet, after RCV.NXT.
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

    /// The handshake has ended: guesses the size of the peer's segments before one has arrived
    /// (`tcp_initialize_rcv_mss`).
    pub(super) fn guess_rcv_mss(&mut self) {
        let half = u16::try_from(self.rcv_wnd() / 2).unwrap_or(u16::MAX);
        let guess = self.rcv_mss.min(self.mss).min(half).min(RCV_MSS_GUESS);
        self.rcv_mss_seen = guess.max(RCV_MSS_MIN);
    }

    /// More bytes are in order, and RCV.NXT is after them. Decides about their acknowledgment.
    #[inline]
    pub(super) fn owe_ack(&mut self, text: Text, now: Instant) {
        (self.rcv_mss_seen, self.pushed, self.rcv_last_len) = (text.mss_seen, text.pushed, text.last_len);
        let now_us = low_micros(now);
        let gap_us = now_us.wrapping_sub(self.text_at_us);
        self.text_at_us = now_us;
        self.acks.scheduled = true;
        // Most text follows earlier text at once, and needs only these comparisons.
        if self.ato_us != self.ato_min_us() || gap_us > self.ato_us / 2 {
            self.adapt_ato(gap_us, text);
        }
        if text.len >= GROWTH_LEN_MIN && self.would_grow() {
            self.acks.quick |= 1;
        }
        if self.acks.is_quick() || (self.tuning.lossless && self.has_full_segment()) {
            self.ack_now = true;
        } else {
            self.delay_ack(now);
        }
    }

    /// Whether Linux's window would grow with text that arrives now (`tcp_grow_window`). It begins with 64 KiB, and grows by
    /// twice the text of each segment, and by two full segments at least, up to the receive buffer. Our window is open
    /// from the beginning, but the peer's slow start needs the acknowledgments: where only every second segment is
    /// acknowledged, they are further apart than HyStart's train may have pauses (`cc/hystart.rs`). Within one process,
    /// where nothing is counted, no path is measured by them.
    #[inline]
    fn would_grow(&self) -> bool {
        let buffer = u64::from(self.rcv_hiwat.min(self.rcv_wnd_max()));
        self.meter.as_deref().is_some_and(|meter| {
            let full = meter.data_segs_in * u64::from(self.rcv_mss);
            FIRST_WINDOW + 2 * meter.bytes_received.max(full) < buffer
        })
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
        // There is no gap between joined segments. After a few halvings, nothing changes any more.
        for _ in 1..text.count.min(32) {
            self.ato_us = self.ato_us / 2 + least / 2;
        }
    }

    /// The least delay (`TCP_ATO_MIN`), microseconds: never 0, which means no text yet; even, so that half of it twice
    /// is the same value.
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
            // It would be sent soon in any case.
            self.ack_now = true;
        } else {
            self.delack_at = self.delack_at.min(at);
        }
    }

    /// Another segment has arrived that is not on the usual path: an acknowledgment that is nearly due is sent now
    /// (`tcp_ack_snd_check`).
    pub(super) fn recheck_waiting_ack(&mut self, now: Instant) {
        let is_text = self.reass.is_none() && self.acks.scheduled && !self.tuning.lossless;
        if self.delack_at == NEVER || !is_text || self.ack_now {
            return;
        }
        if self.acks.is_quick() {
            // The program has set TCP_QUICKACK since then: it has no answer to send.
            self.ack_now = true;
        } else {
            self.delay_ack(now);
        }
    }

    /// How long the acknowledgment waits, microseconds.
    #[inline]
    fn delack_us(&self) -> u32 {
        let least = self.tuning.delack_us;
        if self.ato_us == 0 {
            // No text yet: the acknowledgment of a FIN waits, only in case the application closes at once.
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

    /// Whether more than a full segment arrived since the last acknowledgment.
    #[inline]
    pub(super) fn has_full_segment(&self) -> bool {
        self.rcv_nxt.since(self.last_ack_sent) > u32::from(self.rcv_mss_seen)
    }

    /// Before output, with `rcv_space` free in `so_rcv`: whether a waiting acknowledgment should be sent now, because
    /// half of the buffer is free, or the window is as large as at the last one.
    #[inline]
    pub(super) fn settle_waiting_ack(&mut self, rcv_space: u32) {
        if self.delack_at != NEVER && self.has_full_segment() {
            let unit = 1u32 << self.scale.rcv;
            let window = rcv_space.min(self.rcv_wnd_max()).next_multiple_of(unit);
            let is_reader_told = self.rcv_hiwat.saturating_sub(rcv_space) >= self.rcv_limits().lowat;
            let shrinks = window < self.rcv_adv.since(self.last_ack_sent);
            self.ack_now |= self.is_half_free(rcv_space) || !is_reader_told || !shrinks;
        }
    }

    /// Whether at least half of the receive buffer is free, of which `rcv_space` bytes are.
    #[inline]
    pub(super) fn is_half_free(&self, rcv_space: u32) -> bool {
        rcv_space >= self.rcv_hiwat / 2
    }

    fn grant_quick_acks(&mut self, mss: u16, most: u8) {
        let window = self.rcv_adv.since(self.last_ack_sent);
        let pairs = match window / (2 * u32::from(mss).max(1)) {
            0 => QUICK_ACKS_FEW,
            pairs => u8::try_from(pairs).unwrap_or(u8::MAX),
        };
        self.acks.quick = self.acks.quick.max(pairs.min(most));
    }

    /// The sender needs acknowledgments soon (`tcp_enter_quickack_mode`).
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

    /// Text is sent. Soon after text was received, it counts as an answer.
    #[inline]
    pub(super) fn note_answer(&mut self, now: Instant) {
        self.acks.interactive |= low_micros(now).wrapping_sub(self.text_at_us) < self.ato_us;
    }

    /// The peer's FIN has arrived: the application will probably close as well, and its FIN carries the acknowledgment.
    /// Within one process, the acknowledgment does not wait, because it frees the peer's memory.
    pub(super) fn on_fin_to_answer(&mut self, now: Instant) {
        self.acks.interactive = true;
        if self.tuning.lossless {
            self.ack_now = true;
        } else {
            self.delay_ack(now);
        }
    }

    /// The handshake has ended, and text waited for this, or the acknowledgment of the SYN-ACK waited for text: the
    /// application asks and waits for answers (Linux then counts the SYN-ACK as received text, `sk_write_pending` and
    /// `tcp_finish_connect`).
    pub(super) fn note_waiting_writer(&mut self, now: Instant) {
        self.text_at_us = low_micros(now);
        self.enter_quick_acks(QUICK_ACKS_MAX);
    }

    /// Acknowledges the SYN-ACK: at once, or, if it `may_wait`, with the application's first text, within
    /// [`ATO_MAX_US`] (`tcp_rcv_synsent_state_process`). Within one process it does not wait, because that would save
    /// no packet.
    pub(super) fn acknowledge_handshake(&mut self, may_wait: bool, now: Instant) {
        if !may_wait || self.tuning.lossless {
            self.ack_now = true;
            return;
        }
        self.acks.scheduled = true;
        // Data that the application writes soon counts as an answer to the SYN-ACK.
        self.note_waiting_writer(now);
        self.delack_at = after_us(now, u64::from(ATO_MAX_US));
    }

    /// The delay has passed, and no answer has carried the acknowledgment.
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

    /// Whether an acknowledgment is sent as soon as a reader has read bytes from `so_rcv`. Meaningful after
    /// `poll_transmit` has returned `None`, and until then unchanged if it is not `No`.
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

    /// `TCP_QUICKACK`: whether acknowledgments do not wait for an answer, until traffic decides otherwise.
    pub fn quickack(&self) -> bool {
        !self.acks.interactive
    }

    /// Sets `TCP_QUICKACK`, until traffic decides otherwise. The caller must call `poll_transmit` afterwards: switching
    /// it on sends a waiting acknowledgment if `so_rcv` `is_empty` or more than a full segment waits for it; else the
    /// read of the rest sends it.
    pub fn set_quickack(&mut self, quickack: bool, is_empty: bool) {
        self.acks.interactive = !quickack;
        let is_open = matches!(self.state, State::Established | State::CloseWait);
        if quickack && is_open && self.delack_at != NEVER {
            self.pushed = self.pushed.max(1);
            self.on_read(is_empty);
        }
    }

    /// A reader has read bytes from `so_rcv`, which now `is_empty` or not. The caller must call `poll_transmit` if
    /// [`Pcb::acks_at_read`] says that an acknowledgment is due.
    pub fn on_read(&mut self, is_empty: bool) {
        self.ack_now |= self.acks_at_read().is_due(is_empty);
    }
}

/// The low bits of the clock: differences are right up to 71 minutes. A longer difference only makes a guess about the
/// application wrong.
pub(super) fn low_micros(now: Instant) -> u32 {
    u32::try_from(now.as_micros() & u64::from(u32::MAX)).unwrap_or(0)
}

#[cfg(test)]
mod tests;
