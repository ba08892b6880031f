//! The protocol control block: one TCP connection as a state machine without I/O.
//!
//! The caller passes in segments ([`Pcb::on_segment`]), time ([`Pcb::on_timer`] at [`Pcb::next_deadline`]) and the
//! application's calls ([`Pcb::shutdown_write`], [`Pcb::close`], [`Pcb::abort`]). After each of these, it takes
//! segments to send from [`Pcb::poll_transmit`] until there are none; once per batch of segments is enough, and better
//! than once per segment. The socket buffers are outside: `so_snd` begins at SND.UNA, and the pcb returns how many
//! bytes to drop from its front and which part of it to send; `on_segment` returns the bytes for `so_rcv`.
//!
//! It does not depend on buffers, addresses, routes, sockets, locks or clocks. Only the thread with the connection's
//! socket lock uses it, so it has no lock and loses no wake-up. Two decisions are taken without the lock, by pure
//! functions of published values: [`Pcb::snd_due_at`] for the writer,
//! [`window_update_due`](super::window::window_update_due) for the reader.
//!
//! Invariants: SND.UNA <= SND.NXT <= `snd_max`; RCV.NXT <= `rcv_adv`, and `rcv_adv` never moves left; in CLOSED no
//! timer runs. Only segment input (`input/`), user calls (`user.rs`) and timers (`timers.rs`) change the state. Tests:
//! `tests/`.

use core::time::Duration;

use crate::seq::SeqNum;
use crate::time::Instant;

use super::accecn::AccEcn;
use super::accepted::{Accepted, SynAcks, TimeWaitParams, TimestampState, WindowScale};
use super::cc::{Algorithm, Cc, CongestionControl};
use super::delack::{Acks, low_micros};
use super::ecn::{Ecn, Mode};
use super::fast_open::FastOpen;
use super::loss::Loss;
use super::loss::stats::LossStats;
use super::meter::Meter;
use super::nagle::Nagle;
use super::rare::{Rare, RcvLimits};
use super::reass::Reass;
use super::recovery::Recovery;
use super::rtt::Rtt;
use super::segment::Payload;
use super::settings::{Settings, Tuning, micros};
use super::state::State;
use super::timers::{Keepalive, NEVER};
use super::user_timeout::UserTimeoutState;
use super::window;

/// A connection. `P` is the packet memory of out-of-order data.
///
/// `repr(C)` keeps the order below: fields that every segment reads and writes come first.
#[derive(Debug)]
#[repr(C)]
pub struct Pcb<P: Payload> {
    /// SND.UNA.
    pub(super) snd_una: SeqNum,
    /// SND.NXT: the next number to send; below `snd_max` while data is retransmitted.
    pub(super) snd_nxt: SeqNum,
    /// The highest sequence number ever sent, plus one: RFC 9293's SND.NXT for the tests of
    /// acknowledgments.
    pub(super) snd_max: SeqNum,
    /// SND.WND, bytes.
    pub(super) snd_wnd: u32,
    /// SND.WL1.
    pub(super) snd_wl1: SeqNum,
    /// Bytes in `so_snd` at the last call, without those acknowledged since then.
    pub(super) snd_len: u32,
    /// End of the last segment below the MSS; SND.UNA if all of them are acknowledged (Nagle).
    pub(super) snd_sml: SeqNum,
    /// RCV.NXT.
    pub(super) rcv_nxt: SeqNum,
    /// Right edge of the receive window that the peer knows.
    pub(super) rcv_adv: SeqNum,
    /// Last.ACK.sent.
    pub(super) last_ack_sent: SeqNum,
    /// TS.Recent.
    pub(super) ts_recent: u32,
    pub(super) ts_offset: u32,
    /// Eff.snd.MSS: payload bytes of a full segment, options deducted.
    pub(super) mss: u16,
    /// The largest segment seen from the peer, at most `rcv_mss`: two of these force an acknowledgment.
    pub(super) rcv_mss_seen: u16,
    /// The MSS that we announced.
    pub(super) rcv_mss: u16,
    pub(super) state: State,
    /// Both zero if scaling was not negotiated.
    pub(super) scale: WindowScale,
    /// Number of pure duplicate acknowledgments due, one for each segment out of order.
    pub(super) dup_acks_owed: u8,
    /// The next poll must send an acknowledgment.
    pub(super) ack_now: bool,
    /// Both sides send timestamps.
    pub(super) ts_on: bool,
    pub(super) nagle: Nagle,
    /// The application closed its direction: a FIN follows `so_snd`.
    pub(super) fin_queued: bool,
    /// That FIN has been sent at least once, so `snd_max` is after it.
    pub(super) fin_sent: bool,
    /// The application closed both directions: there is no reader.
    pub(super) closed: bool,
    /// Also, it holds no handle: nobody waits for the end (Linux's orphans).
    pub(super) orphaned: bool,
    /// The retransmission timer's slot holds the persist timer.
    pub(super) persist: bool,
    /// A window probe is due.
    pub(super) probe_now: bool,
    /// A keepalive probe is due.
    pub(super) keep_probe: bool,
    /// SACK was negotiated.
    pub(super) sack_ok: bool,
    /// Window scaling was negotiated or is offered.
    pub(super) scaling: bool,
    /// Made at a SYN with Fast Open, and our SYN is not acknowledged yet (see `fast_open.rs`).
    pub(super) syn_unacked: bool,
    /// No segment takes the fast path: because of `syn_unacked`, or of flags that count marks.
    pub(super) takes_all_steps: bool,
    /// Our SYN was acknowledged, and sent once: the round trip of a segment of ours is known.
    pub(super) syn_is_timed: bool,
    /// The state of measuring a round trip.
    pub(super) timing: Timing,
    /// Expiries of the retransmission or persist timer since the peer last showed life.
    pub(super) rexmt_count: u8,
    /// How soon acknowledgments are sent (`delack.rs`).
    pub(super) acks: Acks,
    /// Ends of messages that arrived since the last acknowledgment, at most 2.
    pub(super) pushed: u8,
    /// True when `challenged_at_ms` is valid. Both fill gaps; an ordinary segment does not use them.
    pub(super) is_challenged: bool,
    /// The length of the last segment, if it was short and may have been a full one (`delack.rs`).
    pub(super) rcv_last_len: u16,
    /// When in-order text last arrived: the low 32 bits of the clock, microseconds.
    pub(super) text_at_us: u32,
    /// How long an acknowledgment waits, microseconds; 0 before the first text.
    pub(super) ato_us: u32,
    /// The millisecond clock at the last challenge acknowledgment.
    pub(super) challenged_at_ms: u32,
    /// Retransmission timer, or persist timer if `persist`.
    pub(super) rexmt_at: Instant,
    pub(super) delack_at: Instant,
    /// The latest time that it was given: time does not go back for a connection (see [`Pcb::clock`]).
    pub(super) clock: Instant,
    /// When the peer was last heard.
    pub(super) last_rcv_at: Instant,
    /// When data was last sent.
    pub(super) last_snd_at: Instant,
    /// The end of the segment being timed. If records are kept, which time all segments: the end of what was in flight
    /// when the round trip began …
    pub(super) rtt_seq: SeqNum,
    /// The largest SND.WND seen (MAX.SND.WND of RFC 5961).
    pub(super) max_snd_wnd: u32,
    /// … and when it was sent: the low bits of the clock, microseconds.
    pub(super) rtt_sent_us: u32,
    pub(super) rtt: Rtt,
    pub(super) cc: Cc,
    /// The records of loss recovery; made when data is first sent on a path with losses.
    pub(super) loss: Option<Box<Loss>>,
    pub(super) reass: Option<Box<Reass<P>>>,
    pub(super) recovery: Recovery,
    /// Congestion marks, echoed and answered.
    pub(super) ecn: Ecn,

    // From here on: fields that an ordinary segment does not use.
    pub(super) ts_recent_at: Instant,
    /// FIN-WAIT-2 or TIME-WAIT timer, by the state.
    pub(super) two_msl_at: Instant,
    pub(super) keepalive: Option<Box<Keepalive>>,
    /// Fast Open, a user timeout, urgent data on its way out.
    pub(super) rare: Rare,
    /// Traffic over an interface.
    pub(super) meter: Option<Box<Meter>>,
    pub(super) iss: SeqNum,
    pub(super) irs: SeqNum,
    /// `so_rcv`'s hiwat, bytes.
    pub(super) rcv_hiwat: u32,
    pub(super) tuning: Tuning,
}

/// Without records round trips are measured one at a time, with the microsecond clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Timing {
    /// The next new segment may be timed.
    Idle,
    /// The segment that ends at `rtt_seq` is in flight.
    Running,
    /// It had to be repeated, so its acknowledgment is ambiguous (Karn's rule); only a timestamp can decide.
    Spoilt,
}

impl<P: Payload> Pcb<P> {
    /// Active open. [`Pcb::poll_transmit`] makes the SYN.
    ///
    /// `iss` is the initial sequence number (RFC 6528), `rcv_space` the free bytes in `so_rcv`.
    pub fn connect(s: &Settings, iss: SeqNum, rcv_space: u32, now: Instant) -> Self {
        let scale = if s.window_scaling { window::window_scale_for(s.rcv_buf_max) } else { 0 };
        let mut pcb = Self::new(s, iss, State::SynSent, now);
        pcb.scale.rcv = scale;
        pcb.scaling = s.window_scaling;
        pcb.ts_on = s.timestamps;
        pcb.sack_ok = s.sack;
        (pcb.acks.interactive, pcb.acks.writes_first) = (!s.quickack, s.writes_first);
        pcb.ecn = Ecn::offering(s.ecn, s.lossless, iss);
        // The assumed MSS of the peer, until its SYN arrives.
        pcb.mss = s.peer_mss_default;
        pcb.rare.set_fast_open(s.fast_open.map(FastOpen::client));
        // Until the peer's SYN gives RCV.NXT a meaning, the edge is the distance from zero. A SYN's window
        // is never scaled.
        pcb.rcv_adv = SeqNum::new(rcv_space.min(u32::from(u16::MAX)).min(s.window_clamp));
        pcb.set_rcv_hiwat(s.rcv_buf);
        pcb.set_rcv_limits(RcvLimits { clamp: s.window_clamp, lowat: s.rcv_lowat });
        pcb
    }

    /// Passive open, from a handshake that the syncache has completed. The caller must next pass the segment that
    /// completed it to [`Pcb::on_segment`].
    pub fn accept(s: &Settings, a: &Accepted, now: Instant) -> Self {
        let syn_losses = match a.syn_acks {
            SynAcks::One => 0,
            SynAcks::Several => 1,
            SynAcks::Many => 2,
            // A cookie without a round trip sample leads to a longer timeout, as on Linux.
            SynAcks::Unknown => u8::from(a.rtt.is_none()),
        };
        let mut pcb = Self::accept_with(s, a, syn_losses, now);
        // The first window that counts is that of the next segment, not that of the SYN, as on Linux.
        pcb.max_snd_wnd = 0;
        pcb
    }

    /// [`Pcb::accept`], with the number of lost SYN-ACKs.
    pub(super) fn accept_with(s: &Settings, a: &Accepted, syn_losses: u8, now: Instant) -> Self {
        // The SYN-ACK may have been sent at a later time than the caller knows.
        let now = a.timestamps.map_or(now, |ts| now.max(ts.ts_recent_at));
        let mut pcb = Self::new(s, a.iss, State::Established, now);
        let scale = a.window_scale.unwrap_or(WindowScale { snd: 0, rcv: 0 });
        pcb.scaling = a.window_scale.is_some();
        pcb.scale.snd = scale.snd.min(window::WINDOW_SCALE_MAX);
        pcb.scale.rcv = scale.rcv.min(window::WINDOW_SCALE_MAX);
        pcb.sack_ok = a.sack_permitted;
        pcb.ecn = Ecn::new(if a.ecn { Mode::Classic } else { Mode::Off }, a.iss);
        if let Some(syn_came_with) = a.accurate_ecn {
            pcb.begin_accurate_ecn(AccEcn::server(syn_came_with));
        }
        pcb.ts_on = a.timestamps.is_some();
        if let Some(ts) = a.timestamps {
            pcb.ts_recent = ts.ts_recent;
            pcb.ts_recent_at = ts.ts_recent_at;
            pcb.ts_offset = ts.ts_offset;
        }
        pcb.set_irs(a.irs);
        pcb.rcv_adv = pcb.rcv_nxt + a.rcv_wnd.min(RCV_WND_MAX);
        pcb.set_rcv_hiwat(s.rcv_buf);
        pcb.set_rcv_limits(RcvLimits { clamp: s.window_clamp, lowat: s.rcv_lowat });
        let established = a.iss + 1;
        (pcb.snd_una, pcb.snd_nxt, pcb.snd_max, pcb.snd_sml) =
            (established, established, established, established);
        (pcb.snd_wnd, pcb.max_snd_wnd) = (a.snd_wnd, a.snd_wnd);
        pcb.rtt_seq = established;
        if let Some(rtt) = a.rtt {
            pcb.rtt.sample(u64::from(micros(rtt)), true, pcb.tuning.rto_min_us, pcb.tuning.rto_max_us);
        }
        pcb.set_peer_mss(a.peer_mss);
        pcb.start_sending(syn_losses);
        pcb.start_keepalive(now);
        pcb
    }

    /// No connection: it accepts nothing, sends nothing, and has no timer.
    #[must_use]
    pub fn closed() -> Self {
        Self::new(&Settings::default(), SeqNum::default(), State::Closed, Instant::from_micros(0))
    }

    fn new(s: &Settings, iss: SeqNum, state: State, now: Instant) -> Self {
        Self::with_mss(s, s.mss.max(MSS_MIN), iss, state, now)
    }

    fn with_mss(s: &Settings, mss: u16, iss: SeqNum, state: State, now: Instant) -> Self {
        Self {
            snd_una: iss,
            snd_nxt: iss,
            snd_max: iss,
            snd_wnd: 0,
            snd_wl1: SeqNum::default(),
            snd_len: 0,
            snd_sml: iss,
            rcv_nxt: SeqNum::default(),
            rcv_adv: SeqNum::default(),
            last_ack_sent: SeqNum::default(),
            ts_recent: 0,
            ts_offset: s.ts_offset,
            mss,
            rcv_mss_seen: mss,
            rcv_mss: mss,
            state,
            scale: WindowScale { snd: 0, rcv: 0 },
            dup_acks_owed: 0,
            ack_now: false,
            ts_on: false,
            nagle: Nagle::new(s.nodelay),
            fin_queued: false,
            fin_sent: false,
            closed: false,
            orphaned: false,
            persist: false,
            probe_now: false,
            keep_probe: false,
            sack_ok: false,
            scaling: false,
            syn_unacked: false,
            takes_all_steps: false,
            syn_is_timed: false,
            timing: Timing::Idle,
            rexmt_count: 0,
            acks: Acks::default(),
            pushed: 0,
            rcv_last_len: 0,
            text_at_us: low_micros(now),
            ato_us: 0,
            rexmt_at: NEVER,
            delack_at: NEVER,
            clock: now,
            last_rcv_at: now,
            last_snd_at: now,
            rtt_seq: iss,
            max_snd_wnd: 0,
            rtt_sent_us: low_micros(now),
            rtt: Rtt::new(s.rto_initial),
            cc: Cc::new(s.algorithm(), u32::from(mss), false),
            recovery: Recovery::new(),
            loss: None,
            reass: None,
            ecn: Ecn::new(Mode::Off, iss),
            ts_recent_at: now,
            two_msl_at: NEVER,
            keepalive: Keepalive::new(s.keepalive),
            rare: Rare::new(UserTimeoutState::new(s), s.base_mss),
            meter: None,
            iss,
            irs: SeqNum::default(),
            rcv_hiwat: 0,
            challenged_at_ms: 0,
            is_challenged: false,
            tuning: Tuning::new(s),
        }
    }

    /// The peer's SYN gives the receive variables their meaning. Keeps the size of the window.
    pub(super) fn set_irs(&mut self, irs: SeqNum) {
        let wnd = self.rcv_wnd();
        self.irs = irs;
        self.rcv_nxt = irs + 1;
        self.rcv_adv = self.rcv_nxt + wnd;
        self.last_ack_sent = self.rcv_nxt;
        self.snd_wl1 = irs;
        let now = self.clock;
        if let Some(meter) = self.meter.as_deref_mut() {
            meter.begin_receiving(irs + 1, now);
        }
    }

    /// Processes the MSS that the peer announced, after it is known whether timestamps are on.
    pub(super) fn set_peer_mss(&mut self, announced: u16) {
        let options = self.options_len();
        // The MSS accounts for fixed headers only; the sender subtracts the options (RFC 6691).
        self.mss = announced.min(self.rcv_mss).max(MSS_MIN) - options;
        self.guess_rcv_mss();
    }

    /// The handshake has ended: sets up congestion control for the negotiated MSS. `syn_losses`: how often the SYN or
    /// SYN-ACK had to be repeated. A single repetition may have been needless, since the first timeout is short (RFC
    /// 6928 section 2, `tcp_init_transfer`).
    pub(super) fn start_sending(&mut self, syn_losses: u8) {
        self.start_mtu_search();
        let algorithm = self.supported(self.cc.algorithm());
        self.cc = Cc::new(algorithm, u32::from(self.mss), syn_losses > 1).seeded(self.iss.raw());
        if syn_losses > 0 {
            self.rtt.distrust_after_syn_loss(self.tuning.rto_max_us);
        }
    }

    /// The algorithm used on this path for the wanted one.
    pub(super) fn supported(&self, wanted: Algorithm) -> Algorithm {
        match wanted {
            Algorithm::NewReno | Algorithm::Cubic | Algorithm::Bbr if self.tuning.lossless => {
                Algorithm::NewReno
            }
            // Without SACK, a duplicate does not show what has arrived, and gives BBR no sample.
            Algorithm::Bbr if !self.sack_ok => Algorithm::Cubic,
            Algorithm::NewReno | Algorithm::Cubic | Algorithm::Bbr => wanted,
        }
    }

    /// Ends everything: there is no timer, no memory and no segment any more.
    pub(super) fn enter_closed(&mut self) {
        self.state = State::Closed;
        self.stop_timers();
        self.reass = None;
        self.loss = None;
        self.keepalive = None;
        self.rare.set_urgent(None);
        (self.ack_now, self.dup_acks_owed, self.probe_now, self.keep_probe) = (false, 0, false, false);
    }

    /// Bytes the peer may send now (RCV.WND).
    pub(super) fn rcv_wnd(&self) -> u32 {
        self.rcv_adv.since(self.rcv_nxt)
    }

    /// True if our FIN has been sent and acknowledged.
    pub(super) fn fin_acked(&self) -> bool {
        self.fin_sent && self.snd_una == self.snd_max
    }
}

/// Queries.
impl<P: Payload> Pcb<P> {
    /// The state of the connection.
    pub fn state(&self) -> State {
        self.state
    }

    /// SND.UNA.
    pub fn snd_una(&self) -> SeqNum {
        self.snd_una
    }

    /// SND.NXT; below [`Pcb::snd_max`] while data is retransmitted.
    pub fn snd_nxt(&self) -> SeqNum {
        self.snd_nxt
    }

    /// One past the highest sequence number sent.
    pub fn snd_max(&self) -> SeqNum {
        self.snd_max
    }

    /// SND.WND, bytes.
    pub fn snd_wnd(&self) -> u32 {
        self.snd_wnd
    }

    /// The largest window that the peer has offered, bytes.
    pub fn snd_wnd_max(&self) -> u32 {
        self.max_snd_wnd
    }

    /// RCV.NXT.
    pub fn rcv_nxt(&self) -> SeqNum {
        self.rcv_nxt
    }

    /// The right edge of the receive window as last advertised.
    pub fn rcv_adv(&self) -> SeqNum {
        self.rcv_adv
    }

    /// The bounds that the program has set, or none.
    #[inline]
    pub(super) fn rcv_limits(&self) -> RcvLimits {
        self.rare.rcv_limits().copied().unwrap_or(RcvLimits::NONE)
    }

    /// The largest window that this connection can advertise, bytes.
    pub fn rcv_wnd_max(&self) -> u32 {
        (u32::from(u16::MAX) << self.scale.rcv).min(self.rcv_limits().clamp)
    }

    /// `so_rcv`'s hiwat as the pcb uses it, bytes; see [`Pcb::set_rcv_hiwat`].
    pub fn rcv_hiwat(&self) -> u32 {
        self.rcv_hiwat
    }

    /// The step of the receive window, bytes: the `mss` argument of
    /// [`window_update_due`](super::window::window_update_due). Constant once connected.
    pub fn window_unit(&self) -> u32 {
        u32::from(self.rcv_mss).max(1 << self.scale.rcv)
    }

    /// Payload bytes of a full segment to the peer.
    pub fn mss(&self) -> u16 {
        self.mss
    }

    /// The smoothed round-trip time; `None` before the first measurement.
    pub fn srtt(&self) -> Option<Duration> {
        self.rtt.srtt()
    }

    /// The retransmission timeout, back-off included.
    pub fn rto(&self) -> Duration {
        Duration::from_micros(self.rtt.rto_us(self.tuning.rto_max_us))
    }

    /// The congestion control in use: the configured one, if the path needs it and the peer's options allow it.
    pub fn congestion_control(&self) -> Algorithm {
        self.cc.algorithm()
    }

    /// The congestion window, bytes, without the inflation of fast recovery.
    pub fn cwnd(&self) -> u32 {
        self.cc.cwnd()
    }

    /// The slow start threshold, bytes.
    pub fn ssthresh(&self) -> u32 {
        self.cc.ssthresh()
    }

    /// Repetitions and their reasons, and the state of loss recovery; all zero while nothing was recorded.
    pub fn loss_stats(&self) -> LossStats {
        let kept = || LossStats { min_rtt_us: self.min_rtt_us(), ..LossStats::default() };
        self.loss.as_deref().map_or_else(kept, Loss::stats)
    }

    /// The minimum round trip time, microseconds; 0 before the first.
    pub(super) fn min_rtt_us(&self) -> u32 {
        let kept = || self.rtt.kept().map_or(0, |(min_us, _)| min_us);
        self.loss.as_deref().map_or_else(kept, Loss::min_rtt_us)
    }

    /// True if both sides permitted SACK.
    pub fn sack_permitted(&self) -> bool {
        self.sack_ok
    }

    /// True if both sides send timestamps.
    pub fn timestamps(&self) -> bool {
        self.ts_on
    }

    /// The later of `now` and the latest time that this connection was given before; stores it.
    ///
    /// Threads read the clock before they wait for each other, so a later call may have an earlier time. The peer must
    /// not see this: it drops a segment whose TSval goes back (PAWS, RFC 7323 section 5). Every entry with a time calls
    /// this function. A driver that continues with the returned time also keeps cause before effect among connections.
    pub fn clock(&mut self, now: Instant) -> Instant {
        self.clock = self.clock.max(now);
        self.clock
    }

    /// The values that TIME-WAIT needs from this connection. Meaningful in TIME-WAIT only.
    pub fn time_wait_record(&self, now: Instant) -> TimeWaitParams {
        let two_msl = self.tuning.time_wait();
        TimeWaitParams {
            snd_nxt: self.snd_max,
            rcv_nxt: self.rcv_nxt,
            window_field: window::window_field(self.rcv_wnd(), self.scale.rcv),
            timestamps: self.ts_on.then_some(TimestampState {
                ts_recent: self.ts_recent,
                ts_recent_at: self.ts_recent_at,
                ts_offset: self.ts_offset,
            }),
            expires_at: if self.two_msl_at == NEVER {
                now.max(self.clock) + two_msl
            } else {
                self.two_msl_at
            },
            two_msl,
        }
    }
}

/// Room that the timestamps option takes in a header, padding included.
pub(super) const TIMESTAMPS_LEN: u16 = 12;
/// We send segments of at least this many bytes, including options, regardless of what a peer announces: a smaller MSS
/// would only cause many packets for few bytes.
const MSS_MIN: u16 = 88;
/// The largest receive window, bytes (RFC 7323 section 2.3).
pub(super) const RCV_WND_MAX: u32 = 1 << 30;
