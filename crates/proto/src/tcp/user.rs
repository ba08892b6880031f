//! User calls on the connection (RFC 9293 section 3.10: CLOSE, ABORT, options).
//!
//! These calls change the state and return at most one reset to send; `poll_transmit`, which the caller must call
//! afterwards, returns everything else. This module does not depend on sockets. Tests: `tests/close.rs`,
//! `tests/transitions.rs`.

use core::num::NonZeroU64;
use core::time::Duration;

use crate::time::Instant;

use super::cc::{Algorithm, Cc, CongestionControl};
use super::closed::reset_at;
use super::pcb::{Pcb, RCV_WND_MAX};
use super::rare::RcvLimits;
use super::segment::{Flags, Header, Options, Payload, Timestamps};
use super::settings::{KeepaliveSettings, micros, millis};
use super::state::State;
use super::timers::{Keepalive, after_us};
use super::timestamp;

impl<P: Payload> Pcb<P> {
    /// The application closed its sending side: a FIN follows the last byte of `so_snd`, to which nothing may be
    /// appended from then on. Idempotent.
    pub fn shutdown_write(&mut self) {
        match self.state {
            // The FIN waits for the handshake.
            State::SynSent | State::SynReceived => self.fin_queued = true,
            State::Established if self.syn_unacked => self.fin_queued = true,
            State::Established => self.end_sending(),
            State::CloseWait => {
                self.fin_queued = true;
                self.look_at_usage_after(true);
                self.state = State::LastAck;
            }
            State::FinWait1
            | State::FinWait2
            | State::Closing
            | State::LastAck
            | State::TimeWait
            | State::Closed => {}
        }
    }

    /// Whether our FIN follows the text. With Fast Open it waits in ESTABLISHED until the handshake has ended.
    #[inline]
    pub(super) fn may_send_fin(&self) -> bool {
        self.fin_queued && self.state != State::Established
    }

    /// Our FIN follows the text.
    pub(super) fn end_sending(&mut self) {
        self.fin_queued = true;
        self.look_at_usage_after(true);
        self.state = State::FinWait1;
    }

    /// The application closed both directions and keeps its handle. Like [`Pcb::shutdown_write`], but new data from the peer is answered with a
    /// reset. A connection that is not open yet is deleted.
    pub fn shutdown(&mut self) {
        if self.state == State::SynSent {
            return self.enter_closed();
        }
        self.shutdown_write();
        self.closed = true;
    }

    /// The application gave up its last handle.
    ///
    /// `unread` is the number of bytes left in `so_rcv`. If there are any, the peer's data is lost, and the returned
    /// reset tells it so (RFC 9293 section 3.6.1, RFC 2525 section 2.17). Otherwise like [`Pcb::shutdown`], but
    /// FIN-WAIT-2 has a timeout. A connection that is not open yet is deleted.
    pub fn close(&mut self, unread: u32, now: Instant) -> Option<Header> {
        let now = self.clock(now);
        if self.state == State::SynSent {
            self.enter_closed();
            return None;
        }
        if unread > 0 {
            return self.abort();
        }
        self.shutdown_write();
        if self.state == State::Established {
            // Nobody waits for the end of the handshake.
            self.end_sending();
        }
        self.closed = true;
        if !self.orphaned {
            self.orphaned = true;
            if self.state == State::FinWait2 {
                if self.tuning.fin_wait_2_ms == 0 {
                    return self.abort();
                }
                self.start_fin_wait_2(now);
            }
        }
        None
    }

    /// ABORT (RFC 9293 section 3.10.5): drops the connection. Returns the reset for the peer.
    pub fn abort(&mut self) -> Option<Header> {
        let reset = match self.state {
            State::SynReceived
            | State::Established
            | State::FinWait1
            | State::FinWait2
            | State::CloseWait
            // The RFC sends none in these two states, since only an acknowledgment is missing. But the peer would wait
            // for data that is unsent or was not accepted: a minute in FIN-WAIT-2, or for ever.
            | State::Closing
            | State::LastAck => Some(self.reset_header()),
            State::SynSent | State::TimeWait | State::Closed => None,
        };
        self.enter_closed();
        reset
    }

    /// `TCP_NODELAY`. Switching it on releases a held segment of the `snd_len` bytes in `so_snd` with the next poll,
    /// once even if `TCP_CORK` is on.
    pub fn set_nodelay(&mut self, nodelay: bool, snd_len: u32) {
        let pushes = self.nagle.set_nodelay(nodelay);
        if pushes {
            self.note_push(snd_len);
        }
        self.look_at_usage_after(pushes);
    }

    /// `TCP_SYNCNT`: how often a SYN, or the SYN-ACK of a simultaneous open or of Fast Open, is repeated.
    pub fn set_syn_retries(&mut self, retries: u8) {
        self.tuning.syn_retries = retries;
    }

    /// `TCP_RTO_MAX_MS`: see [`Settings::rto_max`](super::settings::Settings::rto_max). A timer that runs keeps its time.
    pub fn set_rto_max(&mut self, rto_max: Duration) {
        self.tuning.rto_max_us = micros(rto_max).max(1);
        self.tuning.rto_min_us = self.tuning.rto_min_us.min(self.tuning.rto_max_us);
    }

    /// The ceiling of the retransmission timeout.
    pub fn rto_max(&self) -> Duration {
        Duration::from_micros(u64::from(self.tuning.rto_max_us))
    }

    /// `TCP_LINGER2`: see [`Settings::fin_wait_2`](super::settings::Settings::fin_wait_2). Has no effect on a FIN-WAIT-2 that has begun.
    pub fn set_fin_wait_2(&mut self, timeout: Duration) {
        self.tuning.fin_wait_2_ms = millis(timeout);
    }

    /// Starts the timer of FIN-WAIT-2 without a reader (Linux's `tcp_fin_time`), and ends keepalive.
    pub(super) fn start_fin_wait_2(&mut self, now: Instant) {
        self.stop_keepalive();
        let set_us = u64::from(self.tuning.fin_wait_2_ms) * 1000;
        let rto_us = self.rtt.rto_us(self.tuning.rto_max_us);
        self.two_msl_at = after_us(now, set_us.max(rto_us / 2 * 7));
    }

    /// `TCP_CORK`: while it is on, only full segments are sent, regardless of `TCP_NODELAY`; a short one with nothing
    /// before it is sent after a retransmission timeout. Switching it off releases a held segment with the next poll.
    pub fn set_cork(&mut self, cork: bool, snd_len: u32) {
        if self.nagle.set_cork(cork) {
            self.note_push(snd_len);
        }
        self.look_at_usage_after(!cork);
    }

    /// `TCP_NODELAY` is set again: a short segment that `TCP_CORK` or `MSG_MORE` holds back may be sent with the next
    /// poll, and the use of the window is checked, as on Linux.
    pub fn push_corked(&mut self, snd_len: u32) {
        self.note_push(snd_len);
        self.look_at_usage_after(true);
    }

    /// Whether `TCP_CORK` is on.
    pub fn cork(&self) -> bool {
        self.nagle.cork()
    }

    /// `TCP_CONGESTION` of a connection in use. The new algorithm begins with the present window and threshold; a
    /// repair in progress ends by the rules of the old window, and can no longer be undone.
    pub fn set_congestion_control(&mut self, algorithm: Algorithm) {
        let algorithm = self.supported(algorithm);
        if algorithm == self.cc.algorithm() {
            return;
        }
        let is_open = self.state != State::SynSent && self.state != State::SynReceived;
        let begun = Cc::new(algorithm, u32::from(self.mss), false).seeded(self.iss.raw());
        self.cc = if is_open { begun.with_window(self.cc.cwnd(), self.cc.ssthresh()) } else { begun };
        if let Some(loss) = self.loss.as_deref_mut() {
            loss.forget_undo();
        }
    }

    /// `SO_MAX_PACING_RATE`, bytes per second; `None` for no bound.
    pub fn set_max_pacing_rate(&mut self, rate: Option<u64>) {
        let rate = rate.and_then(NonZeroU64::new);
        match (self.rare.max_pacing_mut(), rate) {
            (Some(bound), Some(rate)) => *bound = rate,
            (Some(_), None) | (None, _) => self.rare.set_max_pacing(rate),
        }
    }

    /// The `SO_MAX_PACING_RATE` that was set.
    pub fn max_pacing_rate(&self) -> Option<u64> {
        self.rare.max_pacing().map(|rate| rate.get())
    }

    /// `SO_KEEPALIVE`, `TCP_KEEPIDLE`, `TCP_KEEPINTVL`, `TCP_KEEPCNT`; `sets_idle` if the second of them was set.
    pub fn set_keepalive(&mut self, settings: KeepaliveSettings, sets_idle: bool, now: Instant) {
        let now = self.clock(now);
        let was_on = self.keepalive.as_deref().is_some_and(Keepalive::is_on);
        let wanted = self.keepalive.as_deref().filter(|keep| keep.is_on()).map(Keepalive::settings);
        if wanted != settings.enabled.then_some(settings) {
            self.change_keepalive(settings, now);
        }
        if sets_idle && was_on {
            self.restart_keepalive(now);
        }
    }

    /// `TCP_WINDOW_CLAMP`: the largest window to offer from now on, bytes. An offered window is not withdrawn.
    pub fn set_window_clamp(&mut self, bytes: u32) {
        self.set_rcv_limits(RcvLimits { clamp: bytes, ..self.rcv_limits() });
    }

    /// `SO_RCVLOWAT`, bytes: while fewer wait in `so_rcv`, its reader is not told of them, and no acknowledgment waits for it.
    pub fn set_rcv_lowat(&mut self, bytes: u32) {
        self.set_rcv_limits(RcvLimits { lowat: bytes, ..self.rcv_limits() });
    }

    pub(super) fn set_rcv_limits(&mut self, limits: RcvLimits) {
        if let Some(known) = self.rare.rcv_limits_mut()
            && limits != RcvLimits::NONE
        {
            *known = limits;
            return;
        }
        self.rare.set_rcv_limits((limits != RcvLimits::NONE).then_some(limits));
    }

    /// `so_rcv`'s hiwat, bytes. It counts as at least twice the unit of the window field; `so_rcv` must not be smaller
    /// than [`Pcb::rcv_hiwat`], or its window stays closed.
    pub fn set_rcv_hiwat(&mut self, hiwat: u32) {
        self.rcv_hiwat = hiwat.clamp(2 << self.scale.rcv, RCV_WND_MAX);
    }

    /// The reset for a connection that we give up ourselves.
    ///
    /// It has the number of an acknowledgment: the peer would not accept a reset beyond the end of its window (if it
    /// did not accept our probe; RFC 5961 section 3.2), and would wait for us for ever. The SYN is not part of the
    /// window.
    pub fn reset_header(&self) -> Header {
        let is_synchronized = self.state != State::SynReceived;
        Header {
            seq: if is_synchronized { self.acceptable_seq() } else { self.snd_max },
            ack: self.rcv_nxt,
            flags: Flags::RST.with(Flags::ACK).with(self.ecn.echo()),
            options: self.reset_options(),
            ..Header::default()
        }
    }

    /// The reset that answers a segment which acknowledged `segment.ack` (RFC 9293 section 3.10.7).
    pub(super) fn reset_answering(&self, segment: &Header) -> Header {
        Header { options: self.reset_options(), ..reset_at(segment.ack) }
    }

    /// Timestamps, if they were negotiated (RFC 7323 section 3.2): a middlebox may drop segments without them.
    fn reset_options(&self) -> Options {
        let val = timestamp::value(self.clock, self.ts_offset);
        let timestamps = self.ts_on.then_some(Timestamps { val, ecr: self.ts_recent });
        Options { timestamps, ..Options::default() }
    }
}
