//! TCP output: which segment is sent next.
//!
//! [`Pcb::poll_transmit`] makes all segments except resets: the handshake, new and repeated data, probes, acknowledgments. It
//! depends on the lengths of the buffers, not on their content.
//!
//! Invariants: data is sent within SND.WND and the congestion window, except a probe of one byte; after `poll_transmit` has
//! returned `None`, the retransmission slot runs if anything is unacknowledged or the window holds something back. `due.rs` shows
//! when a call is needless. Tests: `tests/output.rs`, `tests/properties.rs`.

use core::hint::cold_path;
use core::ops::ControlFlow;

use crate::seq::SeqNum;
use crate::time::Instant;

use super::cc::CongestionControl;
use super::delack::low_micros;
use super::events::Transmit;
use super::loss::stats::Why;
use super::pcb::{Pcb, Timing};
use super::push::half_of_window;
use super::segment::{Flags, Head, Header, Payload, PlainHeader, Timestamps};
use super::state::State;
use super::timers::{NEVER, after_us};
use super::timestamp;
use super::window::{self, window_update_due};
use super::wire;

impl<P: Payload> Pcb<P> {
    /// Returns the next segment to send now, or `None`. Call it until it returns `None`.
    ///
    /// `snd_len` is the number of bytes in `so_snd`, sent and unsent, at most 2^30 (the rest waits); `rcv_space` the number of
    /// bytes free in `so_rcv`, after everything delivered was appended. PSH is set as if one write had brought everything in
    /// `so_snd`.
    pub fn poll_transmit(&mut self, snd_len: u32, rcv_space: u32, now: Instant) -> Option<Transmit> {
        let mut segment = None;
        self.transmit_into(&mut segment, snd_len, rcv_space, now);
        if let Some(segment) = &mut segment {
            segment.push_if(segment.offset + segment.len == snd_len);
        }
        segment
    }

    /// Like [`poll_transmit`](Self::poll_transmit), but makes the segment in place, and leaves PSH to the caller
    /// ([`Pushes`](super::push::Pushes), [`Transmit::push_if`]). (A copy by large loads right after small stores waits until the
    /// stores are through.)
    pub fn transmit_into(
        &mut self,
        segment: &mut Option<Transmit>,
        snd_len: u32,
        rcv_space: u32,
        now: Instant,
    ) {
        let now = self.clock(now);
        // If text waits, each write is told separately only when the persist timer runs (`held_due_at`).
        if snd_len > self.snd_len && (self.persist || self.snd_len == 0 && !self.learns_late()) {
            self.restart_after_idle(snd_len, now);
        }
        self.note_write(snd_len);
        self.snd_len = snd_len.min(SND_LEN_MAX);
        *segment = None;
        if self.syn_unacked
            && let Some(syn_ack) = self.transmit_early_syn_ack(now)
        {
            cold_path();
            *segment = Some(syn_ack);
            return;
        }
        match self.state {
            State::Established | State::CloseWait | State::FinWait1 | State::Closing | State::LastAck => {
                self.transmit_data(segment, rcv_space, now);
                if segment.is_none() {
                    self.end_burst();
                    if self.owes_bare(rcv_space) {
                        *segment = self.transmit_ack(rcv_space, now);
                    } else if let Some(loss) = self.loss.as_deref_mut() {
                        loss.end_output();
                    }
                }
            }
            State::SynSent => {
                cold_path();
                *segment = self.transmit_syn(now);
            }
            State::SynReceived => {
                cold_path();
                *segment = self.transmit_syn(now).or_else(|| self.transmit_ack(rcv_space, now));
            }
            State::FinWait2 | State::TimeWait => {
                cold_path();
                self.settle_waiting_ack(rcv_space);
                *segment = self.transmit_ack(rcv_space, now);
            }
            State::Closed => {}
        }
    }

    fn transmit_data(&mut self, segment: &mut Option<Transmit>, rcv_space: u32, now: Instant) {
        if self.recovery.take_rexmt()
            && let Some(again) = self.transmit_again(rcv_space, now)
        {
            cold_path();
            *segment = Some(again);
            return;
        }
        if core::mem::take(&mut self.probe_now)
            && let Some(probe) = self.transmit_probe(rcv_space, now)
        {
            cold_path();
            *segment = Some(probe);
            return;
        }
        let mut most = u32::MAX;
        if self.loss.is_some() {
            cold_path();
            most = match self.transmit_recorded(rcv_space, now) {
                ControlFlow::Break(recorded) => {
                    *segment = recorded;
                    return;
                }
                ControlFlow::Continue(most) => most,
            };
        }
        let offset = self.snd_nxt.since(self.snd_una);
        let unsent = self.snd_len.saturating_sub(offset);
        let fin_unsent = offset <= self.snd_len && self.may_send_fin();
        if unsent == 0 && !fin_unsent {
            self.look_at_usage(now);
            return;
        }
        let len = self.sendable(offset, unsent).min(most);
        // A FIN without text is a segment, and waits for room in the congestion window as any other (`tcp_cwnd_test`).
        let has_room = || !self.keeps_records() || self.usable(offset) > 0;
        let fin = fin_unsent && len == unsent && self.snd_wnd > offset + len && has_room();
        if len == 0 && !fin {
            cold_path();
            self.look_at_usage(now);
            self.wait_for_window(now);
            return;
        }
        *segment = Some(self.send_at_nxt(offset, len, fin, rcv_space, now));
    }

    /// How many of `unsent` bytes, beginning `offset` past SND.UNA, may be sent in one [`Transmit`] (RFC 9293 sections 3.7.4 and
    /// 3.8.6.2.1).
    #[inline(always)]
    pub(super) fn sendable(&self, offset: u32, unsent: u32) -> u32 {
        let mss = u32::from(self.send_mss());
        let (unsent, is_record) = match self.rare.records() {
            None => (unsent, false),
            Some(records) => records.limit(self.snd_una + offset, unsent),
        };
        let len = unsent.min(self.usable(offset)).min(self.tuning.tso_max.max(mss));
        if len < mss {
            let again = self.snd_nxt.before(self.snd_max);
            let is_all = len == unsent;
            let worth_it = is_all || len >= self.max_snd_wnd / 2;
            return if again || (worth_it && (is_record || self.small_may_go(is_all))) { len } else { 0 };
        }
        let tail = len % mss;
        if tail == 0 || (len == unsent && (is_record || self.small_may_go(true))) { len } else { len - tail }
    }

    /// Payload bytes of a full segment now: no more than half of the largest window that the peer has offered
    /// (`tcp_bound_to_half_wnd`: with a window of few segments, each should be acknowledged before the last is sent), less the SACK
    /// blocks that it carries beside the text while there is a hole (`tcp_current_mss`).
    #[inline]
    pub fn send_mss(&self) -> u16 {
        if self.max_snd_wnd / 2 >= u32::from(self.mss) && self.reass.is_none() {
            return self.mss;
        }
        self.send_mss_bounded()
    }

    /// The same without regard to such blocks (`mss_cache`).
    pub fn mss_in_window(&self) -> u16 {
        let least = LEAST_MSS.saturating_sub(self.options_len().into());
        let bound =
            if self.max_snd_wnd == 0 { u32::MAX } else { half_of_window(self.max_snd_wnd).max(least) };
        u16::try_from(bound).unwrap_or(u16::MAX).min(self.mss)
    }

    #[cold]
    fn send_mss_bounded(&self) -> u16 {
        let mss = self.mss_in_window();
        let blocks = match self.reass.as_deref() {
            Some(reass) if self.sack_ok => {
                let count = reass.sack_count().max(reass.comp.burst_blocks.into());
                wire::sack_len(wire::sack_blocks_fit(count, self.ts_on))
            }
            Some(_) | None => 0,
        };
        // If blocks would take all of it, they are not sent beside text.
        u16::try_from(blocks)
            .ok()
            .and_then(|blocks| mss.checked_sub(blocks))
            .filter(|rest| *rest > 0)
            .unwrap_or(mss)
    }

    /// Whether another segment of new text would be sent now.
    pub fn sends_more(&self) -> bool {
        let offset = self.snd_nxt.since(self.snd_una);
        let unsent = self.snd_len.saturating_sub(offset);
        unsent > 0 && self.sendable(offset, unsent) > 0
    }

    /// Bytes of whole segments of new text for which both windows have room now.
    pub fn room_for_segments(&self) -> u32 {
        let room = self.usable(self.snd_nxt.since(self.snd_una));
        room - room % u32::from(self.send_mss()).max(1)
    }

    /// Largest number of segments that are sent as one packet, which a device or generic segmentation cuts: one millisecond at the
    /// rate of a paced window, more on a short path, and at least `least` (`tcp_tso_autosize`).
    pub fn burst_max(&self, least: u32) -> u32 {
        let rate = self.window_rate().map_or(u64::MAX, core::num::NonZeroU64::get);
        let known_us = [self.min_rtt_us(), self.rtt.srtt_us()];
        let rtt_us = known_us.into_iter().find(|us| *us != 0).unwrap_or(u32::MAX);
        let shift = rtt_us >> BURST_RTT_SHIFT;
        let nearby = BURST_MAX.checked_shr(shift).unwrap_or(0);
        let bytes = (rate >> BURST_RATE_SHIFT).saturating_add(u64::from(nearby)).min(u64::from(BURST_MAX));
        let mss = u32::from(self.send_mss()).max(1);
        let due = (u32::try_from(bytes).unwrap_or(BURST_MAX) / mss).max(least);
        // A window should hold two of them (`tcp_cwnd_test`).
        due.min((self.cc.cwnd() / 2 / mss).max(1))
    }

    /// Bytes of the longest [`Transmit`] of whole segments: a writer that hands over multiples of it leaves no tail that would
    /// become a short segment.
    pub fn full_len(&self) -> u32 {
        let mss = u32::from(self.send_mss()).max(1);
        let most = self.tuning.tso_max.max(mss);
        most - most % mss
    }

    /// Bytes that both windows allow beyond `offset` past SND.UNA.
    #[inline]
    pub(super) fn usable(&self, offset: u32) -> u32 {
        let mss = u32::from(self.mss);
        let room = self.recovery.window(&self.cc, mss).saturating_sub(offset);
        // If records are kept, windows count segments: a short one takes the room of a full one.
        let room = if self.keeps_records() { room / mss * u32::from(self.send_mss()) } else { room };
        self.snd_wnd.saturating_sub(offset).min(room)
    }

    /// Sends from SND.NXT on and moves SND.NXT.
    #[inline(never)]
    pub(super) fn transmit_at_nxt(
        &mut self,
        offset: u32,
        len: u32,
        fin: bool,
        rcv_space: u32,
        now: Instant,
    ) -> Transmit {
        self.send_at_nxt(offset, len, fin, rcv_space, now)
    }

    /// The same within [`transmit_data`](Self::transmit_data), once for each segment of a connection in order.
    #[inline(always)]
    fn send_at_nxt(&mut self, offset: u32, len: u32, fin: bool, rcv_space: u32, now: Instant) -> Transmit {
        let seq = self.snd_una + offset;
        let end = seq + len + u32::from(fin);
        if self.timing == Timing::Idle && seq == self.snd_max && !self.keeps_records() {
            self.timing = Timing::Running;
            self.rtt_seq = end;
            self.rtt_sent_us = low_micros(now);
        }
        if seq != self.snd_max && !self.keeps_records() {
            cold_path();
            self.count_rexmt(Why::Timeout, len, now);
        }
        let mss = u32::from(self.send_mss());
        if (len < mss || (len > mss && !len.is_multiple_of(mss))) && !self.is_text_of_syn(end) {
            self.snd_sml = end;
            if self.nagle.is_pushed() {
                self.end_push(end);
            }
        }
        self.snd_nxt = end;
        self.snd_max = self.snd_max.max(end);
        self.fin_sent |= fin;
        if self.persist {
            cold_path();
            self.persist = false;
            self.rexmt_count = 0;
            self.end_stall();
            self.rexmt_at = NEVER;
        }
        if self.rexmt_at == NEVER {
            self.arm_rexmt(now);
        }
        self.record_sent(seq, end, now);
        if self.reass.is_some() {
            self.begin_burst();
        }
        let mut segment = self.text_segment(seq, offset, len, fin, rcv_space, now);
        if self.ecn.is_on() && len > 0 {
            cold_path();
            segment.head.add(self.ecn.on_text(seq, end));
        }
        segment
    }

    /// Fast retransmit: sends the first unacknowledged segment; SND.NXT stays.
    fn transmit_again(&mut self, rcv_space: u32, now: Instant) -> Option<Transmit> {
        let flight = self.snd_max.since(self.snd_una);
        let len = u32::from(self.send_mss()).min(self.within_record(0, self.snd_len)).min(flight);
        let fin = self.fin_sent && len == self.snd_len;
        if len == 0 && !fin {
            return None;
        }
        if self.snd_nxt == self.snd_una {
            // All of it was to be retransmitted, into a closed window.
            self.count_rexmt(Why::Timeout, len, now);
            self.snd_nxt += len + u32::from(fin);
        } else {
            self.count_rexmt(Why::Fast, len, now);
        }
        Some(self.data_segment(self.snd_una, 0, len, fin, rcv_space, now))
    }

    /// The persist timer has expired (RFC 9293 section 3.8.6.1). A window that was too small for a good segment gets as much as it
    /// takes. A closed one is probed with a segment without text from before SND.UNA, as on Linux: a window that only rounds to
    /// zero (RFC 7323 section 2.4) would take a byte with each probe, and each byte would be progress that ends the back-off and
    /// the stall. A FIN waits as text does. Nothing is in flight, or the retransmission timer would run.
    fn transmit_probe(&mut self, rcv_space: u32, now: Instant) -> Option<Transmit> {
        if self.snd_len == 0 && !self.fin_queued {
            self.persist = false;
            self.rexmt_at = NEVER;
            return None;
        }
        // A write of which output was not told until now was held back, and does not send it.
        self.nagle.set_write(false);
        if self.snd_wnd > 0 {
            let (small, is_pushed) = (self.snd_sml, self.nagle.is_pushed());
            let len = self.within_record(0, self.snd_len).min(self.snd_wnd).min(u32::from(self.mss));
            let mut segment = self.transmit_at_nxt(0, len, len == 0, rcv_space, now);
            segment.push_if(true);
            self.rtt.end_back_off();
            // As on Linux (`tcp_write_wakeup`), other segments do not wait for it as for a short segment, and the retransmission
            // timer guards it.
            self.snd_sml = small;
            if is_pushed {
                // The rest of the packet from which it was cut may be filled up.
                self.note_push(self.snd_len);
            }
            if let Some(loss) = self.loss.as_deref_mut() {
                loss.note_window_probe();
                self.arm_rexmt(now);
            }
            return Some(segment);
        }
        let seq = self.probe_seq();
        Some(self.data_segment(seq, 0, 0, false, rcv_space, now))
    }

    #[inline(never)]
    pub(super) fn data_segment(
        &mut self,
        seq: SeqNum,
        offset: u32,
        len: u32,
        fin: bool,
        rcv_space: u32,
        now: Instant,
    ) -> Transmit {
        self.text_segment(seq, offset, len, fin, rcv_space, now)
    }

    #[inline(always)]
    fn text_segment(
        &mut self,
        seq: SeqNum,
        offset: u32,
        len: u32,
        fin: bool,
        rcv_space: u32,
        now: Instant,
    ) -> Transmit {
        let mut flags = Flags::ACK;
        if fin {
            flags = flags.with(Flags::FIN);
        }
        if len > 0 {
            self.last_snd_at = now;
            self.note_answer(now);
        }
        if self.sack_ok {
            // Its SACK blocks report what a duplicate acknowledgment would.
            self.dup_acks_owed = self.dup_acks_owed.saturating_sub(1);
        }
        self.advance_rcv_adv(rcv_space);
        // Made where it is used: if both branches shared the header, the compiler would copy it in memory.
        let head = if self.has_extras() {
            self.decorated(seq, flags, len, now)
        } else {
            self.plain_header(seq, flags, now).into()
        };
        Transmit { head, offset, len, is_window_update: false, is_mtu_probe: false }
    }

    /// True if [`decorated`](Self::decorated) may have something to add.
    #[inline]
    fn has_extras(&self) -> bool {
        self.reass.is_some() || self.rare.is_in_headers()
    }

    /// A header with rare options: SACK blocks, a user timeout, an urgent pointer.
    #[inline(never)]
    fn decorated(&mut self, seq: SeqNum, flags: Flags, text_len: u32, now: Instant) -> Head {
        let mut header = Header::from(self.plain_header(seq, flags, now));
        if self.reass.is_some() {
            self.attach_sack(&mut header, text_len);
        }
        self.attach_user_timeout(&mut header, text_len);
        if self.rare.urgent().is_some() {
            self.attach_urgent(&mut header);
        }
        if self.ecn.is_accurate() {
            self.attach_accecn(&mut header, text_len);
        }
        header.into()
    }

    /// If data or a FIN waits although nothing is in flight, the window must be too small. Starts the timer that probes it (RFC
    /// 9293 section 3.8.6.1); in all other cases an acknowledgment will arrive.
    fn wait_for_window(&mut self, now: Instant) {
        if self.rexmt_at == NEVER {
            self.persist = true;
            let wait_us = self.rtt.first_probe_us(self.tuning.rto_min_us, self.tuning.rto_max_us);
            self.rexmt_at = after_us(now, wait_us);
        }
    }

    fn transmit_syn(&mut self, now: Instant) -> Option<Transmit> {
        if self.snd_nxt != self.iss {
            return None;
        }
        let is_active = self.state == State::SynSent;
        if is_active && self.holds_syn() {
            return None;
        }
        let first = self.snd_max == self.iss;
        // A SYN that is repeated for another reason than a timeout counts as lost.
        let repeated = if first { 0 } else { self.rexmt_count.max(1) };
        let flags =
            if is_active { Flags::SYN.with(self.ecn.offer(repeated)) } else { Flags::SYN.with(Flags::ACK) };
        let mut header = self.syn_header(flags, now);
        let len = if first && is_active { self.fast_open_syn(&mut header) } else { 0 };
        self.snd_nxt = self.iss + 1 + len;
        self.snd_max = self.snd_max.max(self.snd_nxt);
        if first {
            (self.timing, self.rtt_seq, self.rtt_sent_us) = (Timing::Running, self.iss + 1, low_micros(now));
        }
        if self.rexmt_at == NEVER {
            self.arm_rexmt(now);
        }
        let head = header.into();
        Some(Transmit { head, offset: 0, len, is_window_update: false, is_mtu_probe: false })
    }

    /// A header with the options of a SYN or SYN-ACK.
    pub(super) fn syn_header(&mut self, flags: Flags, now: Instant) -> Header {
        let mut header = Header::from(self.plain_header(self.iss, flags, now));
        // The window of a SYN is never scaled (RFC 7323 section 2.2).
        header.window = window::window_field(self.rcv_wnd(), 0);
        header.options.mss = Some(self.rcv_mss);
        header.options.window_scale = self.scaling.then_some(self.scale.rcv);
        header.options.sack_permitted = self.sack_ok;
        if self.rare.user_timeout().is_some() {
            self.attach_user_timeout(&mut header, 0);
        }
        header
    }

    /// Whether a segment without data is due.
    #[inline]
    fn owes_bare(&mut self, rcv_space: u32) -> bool {
        self.settle_waiting_ack(rcv_space);
        self.ack_now || self.dup_acks_owed > 0 || self.keep_probe || self.window_update_due(rcv_space)
    }

    /// A segment without data, if one is due.
    #[inline(never)]
    fn transmit_ack(&mut self, rcv_space: u32, now: Instant) -> Option<Transmit> {
        let (mut is_window_update, mut seq) = (false, self.acceptable_seq());
        if self.dup_acks_owed > 0 {
            // The edge stays, because a duplicate must not change the window (RFC 5681 section 2).
            self.dup_acks_owed -= 1;
            self.acks.scheduled = true;
        } else if self.ack_now || self.window_update_due(rcv_space) {
            let before = self.rcv_adv;
            self.advance_rcv_adv(rcv_space);
            is_window_update = self.rcv_adv != before && self.last_ack_sent == self.rcv_nxt;
        } else if self.keep_probe {
            self.keep_probe = false;
            seq = self.snd_una - 1;
        } else {
            return None;
        }
        let head = if self.has_extras() {
            self.decorated(seq, Flags::ACK, 0, now)
        } else {
            self.plain_header(seq, Flags::ACK, now).into()
        };
        Some(Transmit { head, offset: 0, len: 0, is_window_update, is_mtu_probe: false })
    }

    /// The number of a segment without data: SND.NXT, or the end of the peer's window if that is before it, because the peer would
    /// not accept a segment beyond its window. If the end is short by less than a unit of the window field, it was only rounded
    /// down (RFC 7323 section 2.4): the peer has accepted data beyond it, and would not accept a number before that data either.
    pub(super) fn acceptable_seq(&self) -> SeqNum {
        let edge = self.snd_una + self.snd_wnd;
        // Linux uses the unit of its own field instead of the peer's.
        let unit = if self.scaling { 1 << self.scale.snd.max(self.scale.rcv) } else { 1 };
        if self.snd_max.since(edge) < unit { self.snd_max } else { edge }
    }

    /// Reports the data behind holes (RFC 2018). A segment with data carries the blocks only if they fit beside it; if not, an
    /// acknowledgment with them follows.
    fn attach_sack(&mut self, header: &mut Header, text_len: u32) {
        if !self.sack_ok {
            return;
        }
        let text_len = text_len.min(u32::from(self.send_mss()));
        let Some(reass) = self.reass.as_deref_mut() else { return };
        let count = wire::sack_blocks_fit(reass.sack_count(), self.ts_on);
        // If a device cuts several segments, each carries the blocks.
        let room = u32::from(self.mss).saturating_sub(text_len);
        if text_len > 0 && u32::try_from(wire::sack_len(count)).unwrap_or(u32::MAX) > room {
            self.ack_now = true;
            return;
        }
        header.options.sack = reass.take_sack(count, self.dup_acks_owed);
        // It stands for the acknowledgments that were left out.
        reass.comp.restart();
        // An acknowledgment has room for one duplicate (RFC 2883), so each needs its own.
        self.ack_now |= reass.has_duplicate() && self.dup_acks_owed == 0;
        if reass.is_empty() && reass.comp.burst_blocks == 0 {
            self.reass = None;
        }
    }

    fn window_update_due(&self, rcv_space: u32) -> bool {
        let most = self.rcv_wnd_max();
        let space = rcv_space.min(most);
        window_update_due(space, self.rcv_nxt, self.rcv_adv, self.rcv_hiwat.min(most), self.window_unit())
            && self.state.receives()
            && !self.closed
            // The handshake could announce 64 KiB at most. The first acknowledgment of data announces the rest, which does not
            // justify a segment for each connection. (The number comes again after 4 GiB, when the window may be closed.)
            && (self.rcv_nxt != self.behind_syn() || self.rcv_adv == self.rcv_nxt)
    }

    /// Moves the right edge of the receive window, if it moves by enough (RFC 9293 section 3.8.6.2.2).
    ///
    /// The window is rounded down to the unit of the field, so the space left unannounced is less than one
    /// unit and no update is due right after one.
    fn advance_rcv_adv(&mut self, rcv_space: u32) {
        if !self.state.receives() {
            return;
        }
        if !self.is_half_free(rcv_space) {
            self.end_quick_acks();
        }
        let most = self.rcv_wnd_max();
        let space = rcv_space.min(most);
        let growth = space.saturating_sub(self.rcv_wnd());
        if growth >= window::least_growth(self.rcv_hiwat.min(most), self.window_unit()) {
            self.rcv_adv = self.rcv_nxt + ((space >> self.scale.rcv) << self.scale.rcv);
        }
    }

    /// A header with the fields of every segment; its acknowledgment is then no longer due.
    #[inline(always)]
    fn plain_header(&mut self, seq: SeqNum, flags: Flags, now: Instant) -> PlainHeader {
        self.note_ack_sent();
        let timestamps = self
            .ts_on
            .then(|| Timestamps { val: timestamp::value(now, self.ts_offset), ecr: self.ts_recent });
        let ack = if self.state == State::SynSent { SeqNum::default() } else { self.rcv_nxt };
        let window = window::window_field(self.rcv_wnd(), self.scale.rcv);
        PlainHeader { seq, ack, flags: flags.with(self.ecn.echo()), window, timestamps }
    }
}

/// Smallest segment that any bound gives, bytes with options.
const LEAST_MSS: u32 = 48;
/// Bytes of the longest packet for segmentation: 64 KiB without the room for headers that Linux keeps.
pub(super) const BURST_MAX: u32 = 65_536 - 321;
/// A burst is this part of a second of the rate, as a power of two (`sk_pacing_shift`), and this part of a microsecond's
/// round trip halves the most that leaves on a short path (`tcp_tso_rtt_log`).
const BURST_RATE_SHIFT: u32 = 10;
const BURST_RTT_SHIFT: u32 = 9;
/// Bytes of `so_snd` that output considers: sequence numbers distinguish no more than 2^31.
const SND_LEN_MAX: u32 = 1 << 30;
