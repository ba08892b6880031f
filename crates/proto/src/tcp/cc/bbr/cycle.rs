//! BBR's states and their transitions: see the table at the head of `bbr.rs`.
//!
//! All transitions are here: by an acknowledgment ([`Bbr::on_ack_in_state`], [`Bbr::check_probe_rtt`]), a mark or an
//! undo. Rounds are counted by delivery: a round ends when something arrives that was sent after it began. Tests:
//! `tests.rs`, `cycle/decisions.rs`.

use crate::time::Instant;

use super::super::super::timers::since_us;
use super::super::{Ack, Congestion, LossSample, RateSample, percent};
use super::bounds::{UNBOUND, inflight_at_loss, is_too_much};
use super::path::rate_of;
use super::{BETA_PERCENT, Bbr, PIPE_SEGMENTS_MIN};

/// See the head of `bbr.rs`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    Startup,
    Drain,
    Down,
    Cruise,
    Refill,
    Up,
    ProbeRtt,
}

impl State {
    /// Percent of the bandwidth.
    pub fn pacing_gain(self) -> u32 {
        match self {
            Self::Startup => 277,
            Self::Drain => 50,
            Self::Down => 90,
            Self::Cruise | Self::Refill | Self::ProbeRtt => 100,
            Self::Up => 125,
        }
    }

    /// Percent of the bytes that the path holds.
    pub fn cwnd_gain(self) -> u32 {
        match self {
            Self::Startup | Self::Drain | Self::Down | Self::Cruise | Self::Refill => 200,
            Self::Up => 225,
            Self::ProbeRtt => 50,
        }
    }

    /// BBR probes for more bandwidth, so losses are expected.
    pub fn is_probing(self) -> bool {
        match self {
            Self::Startup | Self::Refill | Self::Up => true,
            Self::Drain | Self::Down | Self::Cruise | Self::ProbeRtt => false,
        }
    }

    pub fn is_probe_bw(self) -> bool {
        match self {
            Self::Down | Self::Cruise | Self::Refill | Self::Up => true,
            Self::Startup | Self::Drain | Self::ProbeRtt => false,
        }
    }
}

/// BBR.ack_phase: the phase of sending that current acknowledgments reflect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum AckPhase {
    /// They reflect nothing special.
    Nothing,
    /// A probe has begun; they reflect the time before it.
    Starting,
    /// They reflect the probe.
    Probe,
    /// The probe has ended; they still reflect it.
    Stopping,
}

/// The state of the search for bandwidth.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cycle {
    pub state: State,
    ack_phase: AckPhase,
    /// All bytes delivered so far, and the number at which the round ends.
    pub delivered: u64,
    round_ends: u64,
    pub round_start: bool,
    pub rounds_since_probe: u32,
    /// BBR.full_bw and its count: the bandwidth from which on growth is counted.
    full_bw: u64,
    pub full_bw_count: u8,
    full_bw_now: bool,
    pub full_bw_reached: bool,
    /// In Startup: acknowledgments of this round that found losses.
    loss_event_count: u8,
    /// When the state began, for Down to Up.
    since: Instant,
    /// Time from one probe to the next, microseconds.
    wait_us: u32,
    /// Too much loss lowers the long-term bound, once per probe.
    samples_probe: bool,
    /// Growth of the long-term bound in this round, bytes, and rounds of it.
    growth: u32,
    growth_rounds: u8,
    /// Growth that is less than a byte, in 1/cwnd bytes.
    credit: u64,
    /// When ProbeRtt may end, once the pipe is nearly empty.
    probe_rtt_done_at: Option<Instant>,
    probe_rtt_round_done: bool,
    rng: u32,
}

impl Cycle {
    pub fn new(seed: u32) -> Self {
        Self {
            state: State::Startup,
            ack_phase: AckPhase::Nothing,
            delivered: 0,
            round_ends: 0,
            round_start: false,
            rounds_since_probe: 0,
            full_bw: 0,
            full_bw_count: 0,
            full_bw_now: false,
            full_bw_reached: false,
            loss_event_count: 0,
            since: Instant::ZERO,
            wait_us: PROBE_WAIT_MIN_US,
            samples_probe: false,
            growth: 0,
            growth_rounds: 0,
            credit: 0,
            probe_rtt_done_at: None,
            probe_rtt_round_done: false,
            // Xorshift stays at zero for ever.
            rng: seed | 1,
        }
    }

    /// Counts rounds.
    pub fn update_round(&mut self, rate: &RateSample) {
        self.delivered = rate.total_delivered;
        if rate.prior_delivered >= self.round_ends {
            self.start_round();
            self.round_start = true;
            self.rounds_since_probe = self.rounds_since_probe.saturating_add(1);
        }
    }

    fn start_round(&mut self) {
        self.round_ends = self.delivered;
    }

    fn reset_full_bw(&mut self, bw: u64) {
        (self.full_bw, self.full_bw_count, self.full_bw_now) = (bw, 0, false);
    }

    /// 0 to `n` - 1.
    pub fn random(&mut self, n: u32) -> u32 {
        self.rng ^= self.rng << 13;
        self.rng ^= self.rng >> 17;
        self.rng ^= self.rng << 5;
        self.rng % n
    }

    /// Undoes the changes since `before`: their reason was a mistake.
    pub fn undo(&mut self, before: &Self) {
        let left_startup = before.state == State::Startup && self.state != State::Startup;
        let left_probe = before.state == State::Up && matches!(self.state, State::Down | State::Cruise);
        if left_startup && before.full_bw_count < FULL_BW_COUNT {
            (self.state, self.full_bw_reached) = (State::Startup, false);
            self.reset_full_bw(before.full_bw);
        } else if left_probe {
            (self.state, self.ack_phase, self.samples_probe) = (State::Up, AckPhase::Starting, true);
            self.reset_full_bw(before.full_bw);
        }
    }
}

impl Bbr {
    /// Changes the state at an acknowledgment. The model must be up to date.
    pub(super) fn on_ack_in_state(&mut self, ack: &Ack) {
        self.check_full_bw(ack);
        self.check_startup_loss(ack);
        match self.cycle.state {
            State::Startup if self.cycle.full_bw_reached => self.cycle.state = State::Drain,
            State::Startup | State::Down | State::Cruise | State::Refill | State::Up | State::ProbeRtt => {}
            State::Drain => {
                if ack.pipe <= self.inflight(self.max_bw.get(), 100, ack.mss) {
                    self.start_down(ack.now);
                }
            }
        }
        if self.cycle.full_bw_reached {
            self.adapt_longterm(ack);
            self.update_probe_bw(ack);
        }
    }

    /// Checks whether the bandwidth has stopped growing.
    fn check_full_bw(&mut self, ack: &Ack) {
        let Some(rate) = ack.rate.filter(|rate| !rate.app_limited) else { return };
        if self.cycle.full_bw_now {
            return;
        }
        let bw = rate_of(&rate);
        if bw >= self.cycle.full_bw / 100 * FULL_BW_PERCENT {
            self.cycle.reset_full_bw(bw);
        } else if self.cycle.round_start {
            self.cycle.full_bw_count += 1;
            self.cycle.full_bw_now = self.cycle.full_bw_count >= FULL_BW_COUNT;
            self.cycle.full_bw_reached |= self.cycle.full_bw_now;
        }
    }

    /// Startup also ends if a round loses too much, in enough places.
    fn check_startup_loss(&mut self, ack: &Ack) {
        if self.cycle.full_bw_reached {
            return;
        }
        if ack.lost > 0 {
            self.cycle.loss_event_count = self.cycle.loss_event_count.saturating_add(1);
        }
        let Some(rate) = ack.rate.filter(|_| self.cycle.round_start) else { return };
        let events = core::mem::take(&mut self.cycle.loss_event_count);
        if events >= STARTUP_LOSS_EVENTS && is_too_much(rate.lost, rate.tx_in_flight) {
            self.cycle.full_bw_reached = true;
            let held = self.bdp(self.max_bw.get(), 100, ack.mss);
            self.bounds.longterm = held.max(self.bounds.inflight_latest());
        }
    }

    fn update_probe_bw(&mut self, ack: &Ack) {
        match self.cycle.state {
            State::Startup | State::Drain | State::ProbeRtt => {}
            State::Down => {
                if !self.probe_if_time(ack) && self.is_time_to_cruise(ack) {
                    self.cycle.state = State::Cruise;
                }
            }
            State::Cruise => {
                let _ = self.probe_if_time(ack);
            }
            State::Refill => {
                if self.cycle.round_start {
                    self.start_up(ack);
                }
            }
            State::Up => {
                if self.is_time_to_go_down(ack) {
                    self.start_down(ack.now);
                }
            }
        }
    }

    fn is_time_to_cruise(&self, ack: &Ack) -> bool {
        ack.pipe <= self.bounds.with_headroom(ack.mss).max(PIPE_SEGMENTS_MIN * ack.mss)
            && ack.pipe <= self.inflight(self.max_bw.get(), 100, ack.mss)
    }

    /// Probes again after some seconds, or when a Reno flow would have grown back by as much as it gives up at a loss.
    fn probe_if_time(&mut self, ack: &Ack) -> bool {
        let held = self.bdp(self.bw(), 100, ack.mss).min(self.cwnd);
        let reno_rounds = (held / ack.mss.max(1)).min(RENO_ROUNDS_MAX);
        let is_time = since_us(ack.now, self.cycle.since) > u64::from(self.cycle.wait_us)
            || self.cycle.rounds_since_probe >= reno_rounds;
        if is_time {
            self.bounds.reset_shortterm();
            (self.cycle.growth_rounds, self.cycle.credit) = (0, 0);
            self.cycle.ack_phase = AckPhase::Nothing;
            self.cycle.start_round();
            self.cycle.state = State::Refill;
        }
        is_time
    }

    fn start_up(&mut self, ack: &Ack) {
        self.cycle.samples_probe = true;
        self.cycle.ack_phase = AckPhase::Starting;
        self.cycle.start_round();
        self.cycle.reset_full_bw(ack.rate.map_or(0, |rate| rate_of(&rate)));
        self.cycle.since = ack.now;
        self.cycle.state = State::Up;
        self.raise_slope(ack.mss);
    }

    /// The probe has found the available bandwidth: sends less, and waits for the next probe.
    pub(super) fn start_down(&mut self, now: Instant) {
        self.bounds.reset_signals();
        self.cycle.growth = 0;
        // At random; otherwise flows of one bottleneck would probe together.
        self.cycle.rounds_since_probe = self.cycle.random(2);
        self.cycle.wait_us = PROBE_WAIT_MIN_US + self.cycle.random(PROBE_WAIT_RANDOM_US);
        self.cycle.since = now;
        self.cycle.ack_phase = AckPhase::Stopping;
        self.cycle.start_round();
        self.cycle.state = State::Down;
    }

    fn is_cwnd_limited(&self, ack: &Ack) -> bool {
        let before = ack.pipe.saturating_add(ack.delivered).saturating_add(ack.lost);
        before.saturating_add(ack.mss) > self.cwnd
    }

    fn is_time_to_go_down(&mut self, ack: &Ack) -> bool {
        if self.is_cwnd_limited(ack) && self.cwnd >= self.bounds.longterm {
            // The bound limits the bandwidth, not the path: the bound is raised first.
            self.cycle.reset_full_bw(ack.rate.map_or(0, |rate| rate_of(&rate)));
            return false;
        }
        self.cycle.full_bw_now
    }

    /// BBRAdaptLongTermModel.
    fn adapt_longterm(&mut self, ack: &Ack) {
        if self.cycle.round_start {
            match self.cycle.ack_phase {
                AckPhase::Nothing | AckPhase::Probe => {}
                AckPhase::Starting => self.cycle.ack_phase = AckPhase::Probe,
                AckPhase::Stopping => {
                    (self.cycle.ack_phase, self.cycle.samples_probe) = (AckPhase::Nothing, false);
                    if self.cycle.state.is_probe_bw() && ack.rate.is_some_and(|rate| !rate.app_limited) {
                        self.max_bw.advance();
                    }
                }
            }
        }
        if let Some(loss) = ack.loss.filter(|loss| is_too_much(loss.lost, loss.tx_in_flight)) {
            return self.on_too_much(&loss, inflight_at_loss(&loss, ack.lost), ack);
        }
        let Some(rate) = ack.rate else { return };
        if is_too_much(rate.lost, rate.tx_in_flight) {
            return self.on_too_much(&LossSample::of(&rate), rate.tx_in_flight, ack);
        }
        if self.bounds.longterm == UNBOUND {
            return;
        }
        self.bounds.longterm = self.bounds.longterm.max(rate.tx_in_flight);
        if self.cycle.state == State::Up {
            self.raise_longterm(ack);
        }
    }

    /// BBRHandleInflightTooHigh.
    fn on_too_much(&mut self, loss: &LossSample, in_flight: u32, ack: &Ack) {
        if !self.cycle.samples_probe {
            return;
        }
        self.cycle.samples_probe = false;
        if !loss.app_limited {
            let target = self.bdp(self.bw(), 100, ack.mss).min(self.cwnd);
            self.bounds.longterm = in_flight.max(percent(target, BETA_PERCENT));
        }
        if self.cycle.state == State::Up {
            self.start_down(ack.now);
        }
    }

    /// A mark during a probe means the same as a loss, but earlier.
    pub(super) fn on_mark(&mut self, congestion: &Congestion) {
        let Congestion { now, flight, mss, .. } = *congestion;
        if !self.cycle.full_bw_reached {
            self.cycle.full_bw_reached = true;
            self.bounds.longterm = self.bdp(self.max_bw.get(), 100, mss).max(self.bounds.inflight_latest());
        } else if core::mem::take(&mut self.cycle.samples_probe) {
            let target = self.bdp(self.bw(), 100, mss).min(self.cwnd);
            self.bounds.longterm = flight.max(percent(target, BETA_PERCENT));
            if self.cycle.state == State::Up {
                self.start_down(now);
            }
        }
    }

    /// The long-term bound was used up without losses: it grows, twice as fast each round.
    pub(super) fn raise_longterm(&mut self, ack: &Ack) {
        if !self.is_cwnd_limited(ack) || self.cwnd < self.bounds.longterm {
            return;
        }
        let cwnd = u64::from(self.cwnd.max(1));
        self.cycle.credit += u64::from(ack.delivered) * u64::from(self.cycle.growth);
        let growth = u32::try_from(self.cycle.credit / cwnd).unwrap_or(UNBOUND);
        self.cycle.credit %= cwnd;
        self.bounds.longterm = self.bounds.longterm.saturating_add(growth).min(UNBOUND);
        if self.cycle.round_start {
            self.raise_slope(ack.mss);
        }
    }

    pub(super) fn raise_slope(&mut self, mss: u32) {
        self.cycle.growth = mss.saturating_mul(1 << self.cycle.growth_rounds).min(UNBOUND);
        self.cycle.growth_rounds = (self.cycle.growth_rounds + 1).min(GROWTH_ROUNDS_MAX);
    }

    /// Searches for the minimum round trip time by emptying the pipe, if it was not seen for long (`expired`).
    pub(super) fn check_probe_rtt(&mut self, ack: &Ack, expired: bool) {
        if self.cycle.state != State::ProbeRtt && expired && !self.idle_restart {
            self.save_cwnd();
            self.cycle.state = State::ProbeRtt;
            self.cycle.probe_rtt_done_at = None;
            self.cycle.ack_phase = AckPhase::Stopping;
            self.cycle.start_round();
        }
        if self.cycle.state != State::ProbeRtt {
            return;
        }
        let Some(done_at) = self.cycle.probe_rtt_done_at else {
            if ack.pipe <= self.probe_rtt_cwnd(ack.mss) {
                self.cycle.probe_rtt_done_at =
                    Some(Instant::from_micros(ack.now.as_micros().saturating_add(PROBE_RTT_US)));
                self.cycle.probe_rtt_round_done = false;
                self.cycle.start_round();
            }
            return;
        };
        self.cycle.probe_rtt_round_done |= self.cycle.round_start;
        if self.cycle.probe_rtt_round_done && ack.now > done_at {
            self.min_rtt.probed(ack.now);
            self.cwnd = self.cwnd.max(self.prior_cwnd);
            self.bounds.reset_shortterm();
            if self.cycle.full_bw_reached {
                self.start_down(ack.now);
                self.cycle.state = State::Cruise;
            } else {
                self.cycle.state = State::Startup;
            }
        }
    }
}

/// BBR.StartupFullBwThresh: smallest growth that counts, percent.
const FULL_BW_PERCENT: u64 = 125;
/// Number of rounds without that growth.
const FULL_BW_COUNT: u8 = 3;
/// BBR.StartupFullLossCount; counted in acknowledgments that found losses.
const STARTUP_LOSS_EVENTS: u8 = 6;
/// Least time between probes, and the largest random addition.
const PROBE_WAIT_MIN_US: u32 = 2_000_000;
const PROBE_WAIT_RANDOM_US: u32 = 1_000_000;
/// Largest number of rounds between probes on short paths, where Reno is fast.
const RENO_ROUNDS_MAX: u32 = 63;
/// Largest number of doublings of the growth of the long-term bound.
const GROWTH_ROUNDS_MAX: u8 = 20;
/// BBR.ProbeRTTDuration.
const PROBE_RTT_US: u64 = 200_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_grows_no_slower_after_many_rounds_whatever_the_segment_size() {
        for mss in [88, 1460, 4096, 8948, 65_483] {
            let mut bbr = Bbr::new(10 * mss, 1);
            let mut growth = 0;
            for _ in 0..=2 * GROWTH_ROUNDS_MAX {
                bbr.raise_slope(mss);
                assert!(bbr.cycle.growth >= growth, "{} after {growth} at {mss}", bbr.cycle.growth);
                growth = bbr.cycle.growth;
            }
        }
    }

    #[test]
    fn each_state_has_its_gains_and_its_kind() {
        use State::{Cruise, Down, Drain, ProbeRtt, Refill, Startup, Up};
        for (state, pacing, cwnd, is_probing, is_probe_bw) in [
            (Startup, 277, 200, true, false),
            (Drain, 50, 200, false, false),
            (Down, 90, 200, false, true),
            (Cruise, 100, 200, false, true),
            (Refill, 100, 200, true, true),
            (Up, 125, 225, true, true),
            (ProbeRtt, 100, 50, false, false),
        ] {
            assert_eq!((state.pacing_gain(), state.cwnd_gain()), (pacing, cwnd), "{state:?}");
            assert_eq!((state.is_probing(), state.is_probe_bw()), (is_probing, is_probe_bw), "{state:?}");
        }
    }

    #[test]
    fn an_undo_leads_back_to_a_probe_only_from_what_follows_one() {
        use State::{Cruise, Down, ProbeRtt, Refill, Up};
        for (before, now, then) in [
            (Up, Down, Up),
            (Up, Cruise, Up),
            (Up, Refill, Refill),
            (Up, ProbeRtt, ProbeRtt),
            (Down, Cruise, Cruise),
            (Refill, Down, Down),
        ] {
            let of = |state| Cycle { state, ..Cycle::new(7) };
            let mut cycle = of(now);
            cycle.undo(&of(before));
            assert_eq!(cycle.state, then, "{before:?} {now:?}");
            assert_eq!(cycle.samples_probe, now != then);
        }
    }
}

#[cfg(test)]
mod decisions;
