//! Congestion control: how much may be in flight, and how fast it is sent.
//!
//! An algorithm owns `cwnd` and `ssthresh` and reacts to loss recovery's reports. `recovery` and `loss/` decide *that*
//! something was lost, and how much may be sent during fast recovery (`loss/prr.rs`), unless the algorithm does that
//! itself. It does not depend on sequence numbers, the peer's window or timers. All sizes are bytes. Invariant: `cwnd`
//! is at least one MSS.
//!
//! | file | content |
//! |---|---|
//! | `newreno.rs` | RFC 5681 and 6582; twelve bytes inside the pcb |
//! | `cubic.rs`, `hystart.rs` | RFC 9438 and 9406; a box, made when the first acknowledgment arrives |
//! | `bbr.rs` | BBR version 3 (draft-ietf-ccwg-bbr); a box, and paced |
//! | `fresh.rs` | the placeholder for an algorithm with a box until then |
//! | `usage.rs` | whether the window is used up |
//!
//! Tests: with each algorithm; `tests.rs` lets several flows share a bottleneck.

mod bbr;
mod cubic;
mod fresh;
mod hystart;
mod newreno;
#[cfg(test)]
mod tests;
mod usage;

use core::num::NonZeroU64;

use crate::time::Instant;

use bbr::Bbr;
use cubic::Cubic;
use fresh::Fresh;
use newreno::NewReno;
pub(super) use usage::Usage;

/// The phase of loss recovery after an acknowledgment was processed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// No loss is being repaired.
    Open,
    /// Fast recovery: lost data is repeated while the rest is still in flight.
    Recovery,
    /// The retransmission timer has expired, and not everything that was outstanding then is acknowledged.
    Loss,
}

/// Content of an acknowledgment. Without transmission records (on a path that loses
/// nothing) `lost`, `pipe`, `rtt_us` and `rate` stay empty.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ack {
    pub now: Instant,
    /// Bytes by which SND.UNA moved, if a whole segment is acknowledged.
    pub acked: u32,
    /// Bytes that have reached the peer according to this acknowledgment: cumulative, selective, or as a duplicate,
    /// each counted once.
    pub delivered: u32,
    /// Bytes that were found lost because of it.
    pub lost: u32,
    /// Bytes outstanding before it (SND.NXT less SND.UNA).
    pub flight: u32,
    /// Bytes believed to be in the network after it (RFC 6675).
    pub pipe: u32,
    /// Whether the window was used up recently, and the largest number of outstanding bytes (`usage.rs`).
    pub used: (bool, u32),
    pub mss: u32,
    pub phase: Phase,
    /// Round trip of the latest segment that it reports, if that was sent once.
    pub rtt_us: Option<u32>,
    /// Data is sent at a rate, not at once.
    pub paced: bool,
    /// The path was seen to reorder by more segments than the number that indicates a loss.
    pub reorders: bool,
    /// The path's latest rate, for algorithms that [want](CongestionControl::wants_rate_samples) it.
    pub rate: Option<RateSample>,
    /// The latest segment that it shows to be lost, for the same algorithms.
    pub loss: Option<LossSample>,
}

/// How fast data reached the peer over about the last round trip (draft-cheng-iccrg-delivery-rate-estimation).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RateSample {
    /// Bytes delivered over `interval_us`.
    pub delivered: u32,
    /// The longer of the times that sending and acknowledging them took, microseconds, at least 1.
    pub interval_us: u32,
    /// All bytes delivered by the time the sampled segment was sent; a round ends when this exceeds the total at the
    /// round's start.
    pub prior_delivered: u64,
    /// All bytes delivered so far.
    pub total_delivered: u64,
    /// The sender had nothing to send during it, so the path may be faster than it shows.
    pub app_limited: bool,
    /// Bytes in flight just after the sampled segment was sent.
    pub tx_in_flight: u32,
    /// Bytes found lost since then.
    pub lost: u32,
}

/// The state of sending when the segment most recently found lost was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct LossSample {
    /// Bytes in flight just after it was sent.
    pub tx_in_flight: u32,
    /// Bytes found lost since then, including the segment itself.
    pub lost: u32,
    /// The sender had nothing to send when it was sent.
    pub app_limited: bool,
}

impl Ack {
    /// Bytes by which a window of `cwnd` may grow; 0 if it was not used. In slow start, the window grows to twice what
    /// was outstanding, whether or not the sender had more to send (`tcp_is_cwnd_limited`). Bytes reported by blocks
    /// count with the acknowledgment that reported them, and let the window grow only if SND.UNA moves or the path
    /// reorders (`tcp_may_raise_cwnd`).
    fn growth(&self, cwnd: u32, is_slow_start: bool) -> u32 {
        let is_used = self.is_used(cwnd, is_slow_start);
        match self.phase {
            Phase::Open | Phase::Loss if is_used && (self.acked > 0 || self.reorders) => self.delivered,
            Phase::Open | Phase::Loss | Phase::Recovery => 0,
        }
    }

    /// Whether a window of `cwnd` was used, as [`growth`](Self::growth) requires.
    fn is_used(&self, cwnd: u32, is_slow_start: bool) -> bool {
        let (is_limited, most) = self.used;
        is_limited || (is_slow_start && cwnd / 2 < most)
    }
}

impl LossSample {
    /// That of an arrived segment.
    fn of(rate: &RateSample) -> Self {
        Self { tx_in_flight: rate.tx_in_flight, lost: rate.lost, app_limited: rate.app_limited }
    }
}

/// Why the network is believed to be congested.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Cause {
    /// A segment is lost.
    Loss,
    /// The peer echoes a mark of the network (RFC 3168).
    Mark,
}

/// The network is congested: at most one such event per round trip.
#[derive(Clone, Copy, Debug)]
pub(super) struct Congestion {
    pub now: Instant,
    pub cause: Cause,
    /// Bytes outstanding.
    pub flight: u32,
    pub mss: u32,
}

/// Events of an algorithm.
pub(super) trait CongestionControl {
    /// The congestion window.
    fn cwnd(&self) -> u32;
    /// The slow start threshold.
    fn ssthresh(&self) -> u32;
    /// An acknowledgment has measured a round trip, microseconds. Called before anything that it shows about losses (`tcp_clean_rtx_queue`).
    fn on_round_trip(&mut self, _rtt_us: u32, _now: Instant) {}
    /// An acknowledgment reported something new. Called in every phase; in [`Phase::Recovery`], proportional rate
    /// reduction determines the window, and most algorithms do nothing.
    fn on_ack(&mut self, ack: &Ack);
    /// Fast recovery begins, or a mark was echoed: sets `ssthresh`, and `cwnd` to it.
    fn on_congestion(&mut self, congestion: &Congestion);
    /// Fast recovery has ended; `flight` bytes are outstanding now. `paces`: sending obeys [`Self::pacing_rate`].
    fn on_recovery_end(&mut self, _flight: u32, _mss: u32, _paces: bool) {}
    /// A recovery is undone, or the retransmission timer expires in one of which everything is acknowledged (without SACK, it lasts until more is):
    /// this was its window.
    fn adopt_recovery_window(&mut self, _cwnd: u32) {}
    /// The retransmission timer expired, after which `pipe` bytes are believed to be in the network. `reduces`: for the first time
    /// for this data.
    fn on_rto(&mut self, pipe: u32, mss: u32, reduces: bool);
    /// The latest reductions were a mistake: `before` is the state of the algorithm before the first of them.
    fn on_undo(&mut self, before: &Self, mss: u32);
    /// Nothing was sent for longer than this many RTOs, at least one.
    fn on_idle(&mut self, rtos: u32, mss: u32);
    /// The window was not used up for the length of a timeout; at most `used` bytes of it were used.
    fn on_unused(&mut self, _used: u32, _mss: u32) {}
    /// Sending begins while nothing is in flight. Something was last sent at `last_at`.
    fn on_restart(&mut self, _last_at: Instant, _now: Instant) {}
    /// The path takes segments of `to` bytes instead of `from`: windows have as many as before, so no burst follows.
    fn on_smaller_segments(&mut self, _from: u32, _to: u32) {}
    /// Segments that are too long for the path are retransmitted. The window stays, or is what a recovery has `left` of
    /// it. The threshold leads back to it (`tcp_simple_retransmit`).
    fn on_resegmented(&mut self, _left: Option<u32>, _mss: u32) {}
    /// The sending rate, bytes per second; `None`: as fast as the windows allow.
    fn pacing_rate(&self) -> Option<NonZeroU64> {
        None
    }
    /// Whether the algorithm needs [`Ack::rate`].
    fn wants_rate_samples(&self) -> bool {
        false
    }
    /// Whether `cwnd` also applies in fast recovery, instead of proportional rate reduction.
    fn governs_recovery(&self) -> bool {
        false
    }
}

/// The available algorithms.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Algorithm {
    /// RFC 5681 and RFC 6582.
    NewReno,
    /// RFC 9438, with HyStart++ (RFC 9406).
    #[default]
    Cubic,
    /// BBR version 3 (draft-ietf-ccwg-bbr), paced. With a peer that has no SACK: CUBIC.
    Bbr,
}

impl Algorithm {
    /// All of them.
    pub const ALL: &'static [Self] = &[Self::NewReno, Self::Cubic, Self::Bbr];
    /// Their names as text, in the same order.
    pub const NAMES: &'static [&'static str] = &["newreno", "cubic", "bbr"];
}

/// An algorithm's state. It is an enum, not a trait object: no indirect call per segment. An algorithm larger than
/// [`NewReno`] is in a box, so that a pcb on a path that loses nothing stays small.
#[derive(Clone, Debug)]
pub(super) enum Cc {
    NewReno(NewReno),
    Cubic(Box<Cubic>),
    Bbr(Box<Bbr>),
    /// Nothing was acknowledged yet.
    Fresh(Fresh),
}

impl Cc {
    /// Starts with the initial window, or with one segment if the handshake lost its SYN.
    pub fn new(algorithm: Algorithm, mss: u32, syn_lost: bool) -> Self {
        let cwnd = if syn_lost { mss } else { initial_window(mss) };
        match algorithm {
            Algorithm::NewReno => Self::NewReno(NewReno::new(cwnd)),
            Algorithm::Cubic | Algorithm::Bbr => Self::Fresh(Fresh { algorithm, cwnd, seed: 0 }),
        }
    }

    /// The same with a seed for the algorithm's random choices; before it has begun.
    pub fn seeded(mut self, seed: u32) -> Self {
        if let Self::Fresh(fresh) = &mut self {
            fresh.seed = seed;
        }
        self
    }

    /// The same with the window and threshold of the algorithm before it.
    pub fn with_window(mut self, cwnd: u32, ssthresh: u32) -> Self {
        match &mut self {
            Self::NewReno(cc) => cc.take_over(cwnd, ssthresh),
            Self::Fresh(fresh) if fresh.algorithm == Algorithm::Bbr => fresh.cwnd = cwnd,
            Self::Cubic(_) | Self::Bbr(_) | Self::Fresh(_) => {
                let mut cubic = Cubic::new(cwnd);
                cubic.take_over(ssthresh);
                self = Self::Cubic(Box::new(cubic));
            }
        }
        self
    }

    pub const fn algorithm(&self) -> Algorithm {
        match self {
            Self::NewReno(_) => Algorithm::NewReno,
            Self::Cubic(_) => Algorithm::Cubic,
            Self::Bbr(_) => Algorithm::Bbr,
            Self::Fresh(fresh) => fresh.algorithm,
        }
    }
}

/// Calls the present algorithm; a fresh one is started first.
macro_rules! begun {
    ($self:ident, $cc:ident => $act:expr) => {
        match $self {
            Self::NewReno($cc) => $act,
            Self::Cubic($cc) => $act,
            Self::Bbr($cc) => $act,
            Self::Fresh(fresh) => {
                let mut begun = fresh.begin();
                {
                    let $cc = &mut begun;
                    $act
                };
                *$self = begun;
            }
        }
    };
}

/// Queries the present algorithm.
macro_rules! asked {
    ($self:ident, $cc:ident => $answer:expr, $fresh:pat => $otherwise:expr) => {
        match $self {
            Self::NewReno($cc) => $answer,
            Self::Cubic($cc) => $answer,
            Self::Bbr($cc) => $answer,
            Self::Fresh($fresh) => $otherwise,
        }
    };
}

/// Calls for each segment on an algorithm outside the pcb, kept apart from the code for the one inside.
impl Cc {
    #[inline(never)]
    fn cwnd_elsewhere(&self) -> u32 {
        asked!(self, cc => cc.cwnd(), fresh => fresh.cwnd)
    }

    #[inline(never)]
    fn on_ack_elsewhere(&mut self, ack: &Ack) {
        begun!(self, cc => cc.on_ack(ack));
    }
}

impl CongestionControl for Cc {
    #[inline]
    fn cwnd(&self) -> u32 {
        match self {
            Self::NewReno(cc) => cc.cwnd(),
            Self::Cubic(_) | Self::Bbr(_) | Self::Fresh(_) => self.cwnd_elsewhere(),
        }
    }
    fn ssthresh(&self) -> u32 {
        asked!(self, cc => cc.ssthresh(), _ => CWND_MAX)
    }
    fn on_round_trip(&mut self, rtt_us: u32, now: Instant) {
        begun!(self, cc => cc.on_round_trip(rtt_us, now));
    }
    #[inline]
    fn on_ack(&mut self, ack: &Ack) {
        match self {
            Self::NewReno(cc) => cc.on_ack(ack),
            Self::Cubic(_) | Self::Bbr(_) | Self::Fresh(_) => self.on_ack_elsewhere(ack),
        }
    }
    fn on_congestion(&mut self, congestion: &Congestion) {
        begun!(self, cc => cc.on_congestion(congestion));
    }
    fn on_recovery_end(&mut self, flight: u32, mss: u32, paces: bool) {
        begun!(self, cc => cc.on_recovery_end(flight, mss, paces));
    }
    fn adopt_recovery_window(&mut self, cwnd: u32) {
        begun!(self, cc => cc.adopt_recovery_window(cwnd));
    }
    fn on_rto(&mut self, pipe: u32, mss: u32, reduces: bool) {
        begun!(self, cc => cc.on_rto(pipe, mss, reduces));
    }
    fn on_undo(&mut self, before: &Self, mss: u32) {
        match (&mut *self, before) {
            (Self::NewReno(cc), Self::NewReno(before)) => cc.on_undo(before, mss),
            (Self::Cubic(cc), Self::Cubic(before)) => cc.on_undo(before, mss),
            (Self::Bbr(cc), Self::Bbr(before)) => cc.on_undo(before, mss),
            // The mistake was before the first acknowledgment, or nothing has happened since: the algorithm restarts.
            (
                Self::NewReno(_) | Self::Cubic(_) | Self::Bbr(_) | Self::Fresh(_),
                Self::NewReno(_) | Self::Cubic(_) | Self::Bbr(_) | Self::Fresh(_),
            ) => *self = before.clone(),
        }
    }
    fn on_idle(&mut self, rtos: u32, mss: u32) {
        begun!(self, cc => cc.on_idle(rtos, mss));
    }
    fn on_unused(&mut self, used: u32, mss: u32) {
        begun!(self, cc => cc.on_unused(used, mss));
    }
    fn on_restart(&mut self, last_at: Instant, now: Instant) {
        begun!(self, cc => cc.on_restart(last_at, now));
    }
    fn on_smaller_segments(&mut self, from: u32, to: u32) {
        begun!(self, cc => cc.on_smaller_segments(from, to));
    }
    fn on_resegmented(&mut self, left: Option<u32>, mss: u32) {
        begun!(self, cc => cc.on_resegmented(left, mss));
    }
    fn pacing_rate(&self) -> Option<NonZeroU64> {
        asked!(self, cc => cc.pacing_rate(), _ => None)
    }
    fn wants_rate_samples(&self) -> bool {
        asked!(self, cc => cc.wants_rate_samples(), fresh => fresh.algorithm == Algorithm::Bbr)
    }
    fn governs_recovery(&self) -> bool {
        asked!(self, cc => cc.governs_recovery(), _ => false)
    }
}

/// IW of RFC 6928: ten segments, but no more than 14,600 bytes or two segments, whichever is larger.
pub(super) fn initial_window(mss: u32) -> u32 {
    (10 * mss).min((2 * mss).max(14_600))
}

/// The largest window, bytes: the largest that RFC 7323 can announce.
const CWND_MAX: u32 = 1 << 30;

/// The window after an idle time of `rtos` timeouts: halved for each, in whole segments, down to the initial one (RFC
/// 2861, as `tcp_cwnd_restart`).
pub(super) fn idle_window(cwnd: u32, rtos: u32, mss: u32) -> u32 {
    let (mss, least) = (mss.max(1), cwnd.min(initial_window(mss)));
    ((cwnd / mss).checked_shr(rtos).unwrap_or(0) * mss).max(least)
}

/// The new size of a window of which at most `used` bytes were used: half way to that, or to the initial window.
fn unused_window(cwnd: u32, used: u32, mss: u32) -> u32 {
    let used = used.max(10 * mss);
    if used < cwnd { (cwnd + used) / 2 / mss.max(1) * mss } else { cwnd }
}

/// The threshold to which slow start leads back after a pause or an undone reduction: three quarters of the window,
/// half and a quarter each in whole segments (`tcp_current_ssthresh`).
fn ssthresh_after_pause(ssthresh: u32, cwnd: u32, mss: u32) -> u32 {
    let mss = mss.max(1);
    let segments = cwnd / mss;
    ssthresh.max((segments / 2 + segments / 4) * mss)
}

/// The bytes of as many segments of `to` bytes as `bytes` has of `from` bytes.
pub(super) fn as_many_of(to: u32, from: u32, bytes: u32) -> u32 {
    if bytes == CWND_MAX { bytes } else { bytes.div_ceil(from.max(1)) * to }
}

/// A threshold in whole segments, at least two: Linux counts windows in segments.
fn whole_segments(bytes: u64, mss: u32) -> u32 {
    let bytes = u32::try_from(bytes).unwrap_or(CWND_MAX);
    (bytes - bytes % mss.max(1)).max(2 * mss)
}

/// `bytes` times `percent` / 100.
fn percent(bytes: u32, percent: u32) -> u32 {
    u32::try_from(u64::from(bytes) * u64::from(percent) / 100).unwrap_or(CWND_MAX)
}
