//! The state of a connection for observers, as in Linux's `TCP_INFO`.
//!
//! A snapshot by value; taking it changes nothing. Counts that cost time while a connection runs exist only over an
//! interface (`meter.rs`). It does not depend on sockets. Tests: `tests/info.rs`.

use core::num::NonZeroU64;
use core::time::Duration;

use crate::time::Instant;

use super::accecn::AccEcnInfo;
use super::cc::{Algorithm, CongestionControl, Phase};
use super::fast_open::{FastOpenFail, SynText};
use super::loss::Loss;
use super::meter::Meter;
use super::pcb::Pcb;
use super::segment::Payload;
use super::timers::NEVER;

/// Where loss recovery stands (`tcpi_ca_state`). Linux's CWR counts as open here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CaState {
    /// Nothing is missing.
    Open,
    /// Something has arrived behind a hole, but nothing is believed lost yet.
    Disorder,
    /// Fast recovery.
    Recovery,
    /// After an expiry of the retransmission timer.
    Loss,
}

/// The state of a connection at one moment. Sizes are bytes.
#[derive(Clone, Copy, Debug)]
pub struct TcpInfo {
    /// The state's name in RFC 9293 section 3.3.2.
    pub state: &'static str,
    /// Payload of a full segment to the peer (`tcpi_snd_mss`).
    pub snd_mss: u32,
    /// The smoothed round-trip time (`tcpi_rtt`); `None` before the first measurement.
    pub srtt: Option<Duration>,
    /// The retransmission timeout, back-off included (`tcpi_rto`).
    pub rto: Duration,
    /// The congestion window (`tcpi_snd_cwnd`, there in segments); in fast recovery that of proportional rate reduction.
    pub cwnd: u32,
    /// The slow start threshold (`tcpi_snd_ssthresh`, there in segments).
    pub ssthresh: u32,
    /// Sent and not acknowledged; FIN and SYN count as one each (`tcpi_unacked`, there in segments).
    pub in_flight: u32,
    /// The window that the peer offers (`tcpi_snd_wnd`).
    pub snd_wnd: u32,
    /// The unused part of the window that we last offered (`tcpi_rcv_wnd`).
    pub rcv_wnd: u32,
    /// Written and not sent yet (`tcpi_notsent_bytes`).
    pub not_sent: u32,
    /// Segments retransmitted in fast recovery; one shorter than the MSS counts as one.
    pub rexmt_fast: u32,
    /// Segments retransmitted as tail loss probes.
    pub rexmt_probe: u32,
    /// Segments retransmitted after the retransmission timer had expired.
    pub rexmt_rto: u32,
    /// Bytes retransmitted (`tcpi_bytes_retrans`).
    pub rexmt_bytes: u64,
    /// Recoveries and timeouts that turned out to be needless, and were undone.
    pub undo_count: u32,
    /// The congestion control algorithm in use (`TCP_CONGESTION`).
    pub congestion_control: Algorithm,
    /// Both ends agreed to ECN (`TCPI_OPT_ECN`).
    pub ecn: bool,
    /// Accurate ECN; `None` if that was not agreed to.
    pub accurate_ecn: Option<AccEcnInfo>,
    /// Congestion marks that the peer echoed and for which the window was reduced.
    pub mark_count: u32,
    /// Duplicates that the peer reported (`tcpi_dsack_dups`).
    pub dsack_count: u32,
    /// Segments retransmitted in smaller ones, because the path does not carry larger ones.
    pub rexmt_mtu: u32,
    /// Bytes that the peer holds behind holes (`tcpi_sacked`, there in segments).
    pub sacked: u32,
    /// Bytes believed lost and not retransmitted yet (`tcpi_lost`, there in segments).
    pub lost: u32,
    /// Bytes that have reached the peer, as far as it was recorded: not on loopback, and, unless the congestion control algorithm needs it, again
    /// from zero if nothing was lost and then nothing was in flight for a second (`tcpi_delivered`, there in segments).
    pub delivered_bytes: u64,
    /// The path was seen to reorder segments.
    pub reordering_seen: bool,
    /// The largest number of segments by which it reordered; 3 if it was not seen to (`tcpi_reordering`). A peer
    /// without SACK that sends more duplicates than there are segments behind a hole sets it to the number in flight,
    /// which may be less.
    pub reordering: u32,
    /// How many acknowledgments showed it (`tcpi_reord_seen`).
    pub reordered_count: u32,
    /// The minimum round trip time of the last minutes (`tcpi_min_rtt`); `None` if unknown.
    pub min_rtt: Option<Duration>,
    /// Timestamps are on (`TCPI_OPT_TIMESTAMPS`).
    pub timestamps: bool,
    /// Both ends use SACK (`TCPI_OPT_SACK`).
    pub sack: bool,
    /// Text was received or sent with the SYN, and all of it was accepted (`TCPI_OPT_SYN_DATA`).
    pub syn_text_taken: bool,
    /// Why Fast Open delivered no text to the server's application (`tcpi_fastopen_client_fail`).
    pub fast_open_fail: Option<FastOpenFail>,
    /// Where loss recovery stands (`tcpi_ca_state`).
    pub ca_state: CaState,
    /// Expiries of the retransmission timer since something was last acknowledged (`tcpi_retransmits`).
    pub retransmits: u8,
    /// Window or keepalive probes without an answer (`tcpi_probes`).
    pub probes: u8,
    /// How often the timeout is doubled now (`tcpi_backoff`).
    pub backoff: u8,
    /// Shifts of the windows that the peer sends, and that we send; `None` without scaling (`tcpi_snd_wscale`,
    /// `tcpi_rcv_wscale`).
    pub wscale: Option<(u8, u8)>,
    /// How long an acknowledgment may be delayed (`tcpi_ato`).
    pub ato: Duration,
    /// The largest segment seen from the peer, at most the announced MSS (`tcpi_rcv_mss`).
    pub rcv_mss: u32,
    /// The MSS that we announced (`tcpi_advmss`).
    pub advmss: u32,
    /// The largest packet that the path is believed to carry (`tcpi_pmtu`).
    pub pmtu: u32,
    /// Mean deviation of the round trip (`tcpi_rttvar`).
    pub rttvar: Duration,
    /// Time since data was last sent (`tcpi_last_data_sent`).
    pub last_data_sent: Duration,
    /// Time since data last arrived; `None` if that is not counted (`tcpi_last_data_recv`).
    pub last_data_recv: Option<Duration>,
    /// Time since the peer was last heard (`tcpi_last_ack_recv`).
    pub last_ack_recv: Duration,
    /// The size of the receive buffer, up to which windows are offered (`tcpi_rcv_ssthresh`).
    pub rcv_ssthresh: u32,
    /// Round trip of incoming data; `None` if unknown (`tcpi_rcv_rtt`).
    pub rcv_rtt: Option<Duration>,
    /// Largest number of bytes read in a round trip; 0 if unknown (`tcpi_rcv_space`).
    pub rcv_space: u32,
    /// Retransmitted and not acknowledged (`tcpi_retrans`, there in segments).
    pub retrans: u32,
    /// The sending rate, bytes per second; `None` without pacing (`tcpi_pacing_rate`).
    pub pacing_rate: Option<NonZeroU64>,
    /// Traffic over the interface; `None` on loopback.
    pub carried: Option<Carried>,
}

/// A timer that runs, as `ss -o` shows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RunningTimer {
    /// Its purpose.
    pub kind: TimerKind,
    /// Time until it expires; zero if it is overdue.
    pub left: Duration,
    /// How often it has expired, or a probe was sent, since the peer last answered.
    pub expiries: u8,
}

/// The purpose of a timer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimerKind {
    /// Retransmission, or a probe for the loss of the last segments.
    Rexmt,
    /// A probe of the window that the peer has closed.
    Persist,
    /// A probe to find out whether a silent peer is alive.
    Keepalive,
    /// The end of FIN-WAIT-2 or TIME-WAIT.
    TimeWait,
}

/// Traffic, and how long each limit held it back, since the connection began.
#[derive(Clone, Copy, Debug)]
pub struct Carried {
    /// `tcpi_segs_out`.
    pub segs_out: u64,
    /// `tcpi_segs_in`.
    pub segs_in: u64,
    /// `tcpi_data_segs_out`.
    pub data_segs_out: u64,
    /// `tcpi_data_segs_in`.
    pub data_segs_in: u64,
    /// Including repetitions (`tcpi_bytes_sent`).
    pub bytes_sent: u64,
    /// `tcpi_bytes_acked`.
    pub bytes_acked: u64,
    /// Bytes received in order (`tcpi_bytes_received`).
    pub bytes_received: u64,
    /// Bytes a second that were acknowledged in the last whole round trip (`tcpi_delivery_rate`).
    pub delivery_rate: u64,
    /// Time with something to send or unacknowledged, up to now, as the two that follow (`tcpi_busy_time`).
    pub busy_time: Duration,
    /// Held back by the peer's window (`tcpi_rwnd_limited`).
    pub rwnd_limited: Duration,
    /// Held back by the send buffer: a writer has found no space in it (`tcpi_sndbuf_limited`).
    pub sndbuf_limited: Duration,
}

impl Carried {
    fn of(meter: &Meter, now: Instant) -> Self {
        let times = meter.times(now);
        Self {
            segs_out: meter.segs_out,
            segs_in: meter.segs_in,
            data_segs_out: meter.data_segs_out,
            data_segs_in: meter.data_segs_in,
            bytes_sent: meter.bytes_sent,
            bytes_acked: meter.bytes_acked,
            bytes_received: meter.bytes_received,
            delivery_rate: meter.delivery_rate,
            busy_time: Duration::from_micros(times.busy_us),
            rwnd_limited: Duration::from_micros(times.rwnd_limited_us),
            sndbuf_limited: Duration::from_micros(times.sndbuf_limited_us),
        }
    }
}

impl<P: Payload> Pcb<P> {
    /// The snapshot, with this many bytes in the send buffer.
    pub fn info(&self, buffered: u32, now: Instant) -> TcpInfo {
        let now = now.max(self.clock);
        let (expiries, in_flight) = (self.rexmt_count, self.snd_max.since(self.snd_una));
        let meter = self.meter.as_deref();
        let tune = meter.and_then(|meter| meter.tune.as_ref());
        let loss = self.loss_stats();
        TcpInfo {
            state: self.state_name(),
            snd_mss: u32::from(self.mss_in_window()),
            srtt: self.srtt(),
            rto: self.rto(),
            cwnd: self.in_sent_segments(self.cwnd_now()),
            ssthresh: self.in_sent_segments(self.ssthresh()),
            in_flight,
            snd_wnd: self.snd_wnd,
            rcv_wnd: self.rcv_adv.since(self.rcv_nxt),
            not_sent: buffered.saturating_sub(in_flight),
            rexmt_fast: loss.rexmt_fast,
            rexmt_probe: loss.rexmt_probe,
            rexmt_rto: loss.rexmt_rto,
            rexmt_bytes: loss.rexmt_bytes,
            undo_count: loss.undo_count,
            congestion_control: self.congestion_control(),
            ecn: self.ecn(),
            accurate_ecn: self.accurate_ecn(),
            mark_count: loss.mark_count,
            dsack_count: loss.dsack_count,
            rexmt_mtu: loss.rexmt_mtu,
            sacked: loss.sacked_bytes,
            lost: loss.lost_bytes,
            delivered_bytes: loss.delivered_bytes,
            reordering_seen: loss.reordering_seen,
            reordering: if loss.reordering == 0 { 3 } else { loss.reordering.into() },
            reordered_count: loss.reordered_count,
            min_rtt: (loss.min_rtt_us != 0).then(|| Duration::from_micros(u64::from(loss.min_rtt_us))),
            timestamps: self.timestamps(),
            sack: self.sack_permitted(),
            syn_text_taken: self.syn_text() == SynText::Taken,
            fast_open_fail: self.fast_open_fail(),
            ca_state: self.ca_state(),
            retransmits: if self.persist { 0 } else { expiries },
            probes: self.keepalive_probes().saturating_add(if self.persist { expiries } else { 0 }),
            backoff: self.rtt.backoff(),
            wscale: self.scaling.then_some((self.scale.snd, self.scale.rcv)),
            ato: Duration::from_micros(u64::from(self.tuning.delack_us)),
            rcv_mss: u32::from(self.rcv_mss_seen),
            advmss: u32::from(self.rcv_mss),
            pmtu: self.path_mtu(),
            rttvar: Duration::from_micros(u64::from(self.rtt.rttvar_us())),
            last_data_sent: now.since(self.last_snd_at),
            last_data_recv: meter.map(|meter| now.since(meter.last_text_in_at)),
            last_ack_recv: now.since(self.last_rcv_at),
            rcv_ssthresh: self.rcv_hiwat.min(self.rcv_wnd_max()),
            rcv_rtt: tune.and_then(|tune| tune.rtt()),
            rcv_space: tune.map_or(0, |tune| tune.space()),
            retrans: self.loss.as_deref().map_or(0, |loss| loss.records.repeated()),
            pacing_rate: self.cc.pacing_rate(),
            carried: meter.map(|meter| Carried::of(meter, now)),
        }
    }

    /// The window in force: in fast recovery, that of proportional rate reduction.
    pub(super) fn cwnd_now(&self) -> u32 {
        let recovery = self.loss.as_deref().filter(|_| self.recovery.phase() == Phase::Recovery);
        match recovery.filter(|_| self.keeps_records() && !self.cc.governs_recovery()) {
            Some(loss) => loss.recovery_cwnd(),
            None => self.cc.cwnd(),
        }
    }

    /// The bytes of a window if segments are shorter than the MSS because the peer's window is tiny: the same number of
    /// segments, so fewer bytes.
    fn in_sent_segments(&self, window: u32) -> u32 {
        let (mss, sent) = (u32::from(self.mss).max(1), u32::from(self.mss_in_window()));
        if sent == mss || !self.keeps_records() || window >= 1 << 30 { window } else { window / mss * sent }
    }

    /// The timer that `ss -o` would show: retransmission or persist before the others.
    pub fn running_timer(&self, now: Instant) -> Option<RunningTimer> {
        let probe_at = self.loss.as_deref().map_or(NEVER, Loss::rexmt_deadline);
        let rexmt_at = self.rexmt_at.min(probe_at);
        let is_persist = self.persist || (self.snd_wnd == 0 && self.snd_max == self.snd_una);
        let keep_probes = self.keepalive_probes();
        let (kind, at, expiries) = match () {
            () if self.two_msl_at != NEVER => (TimerKind::TimeWait, self.two_msl_at, 0),
            () if rexmt_at != NEVER && is_persist => (TimerKind::Persist, rexmt_at, self.rexmt_count),
            () if rexmt_at != NEVER => (TimerKind::Rexmt, rexmt_at, self.rexmt_count),
            () if self.keep_at() != NEVER => (TimerKind::Keepalive, self.keep_at(), keep_probes),
            () => return None,
        };
        Some(RunningTimer { kind, left: at.since(now.max(self.clock)), expiries })
    }

    pub(super) fn keepalive_probes(&self) -> u8 {
        self.keepalive.as_deref().map_or(0, |keep| keep.probe_count(self.last_rcv_at))
    }

    fn ca_state(&self) -> CaState {
        let (phase, has_duplicates) = self.recovery.ca_state();
        let has_holes = has_duplicates || self.loss.as_deref().is_some_and(Loss::is_disordered);
        match phase {
            Phase::Recovery => CaState::Recovery,
            Phase::Loss if self.rexmt_at != NEVER || !self.sack_ok => CaState::Loss,
            Phase::Open | Phase::Loss if has_holes => CaState::Disorder,
            Phase::Open | Phase::Loss => CaState::Open,
        }
    }
}
