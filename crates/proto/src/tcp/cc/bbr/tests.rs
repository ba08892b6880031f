//! BBR on a path of one rate, one delay and one queue, in virtual time; and its single moves.

use std::collections::VecDeque;

use super::super::LossSample;
use super::*;

const MSS: u32 = 1_000;
const SECOND: u64 = 1_000_000;

/// A segment on its way, and how things stood when it was sent.
struct Segment {
    heard_at: u64,
    sent_at: u64,
    delivered: u64,
    delivered_at: u64,
    lost: u64,
    tx_in_flight: u32,
    is_lost: bool,
}

/// One flow, its path, and the clock, microseconds.
struct Path {
    bbr: Bbr,
    now: u64,
    /// Bytes per second.
    rate: u64,
    rtt: u64,
    /// Bytes that may wait.
    queue: u64,
    /// One in so many is lost; 0: none is.
    one_lost_in: u64,
    free_at: u64,
    next_at: u64,
    flight: VecDeque<Segment>,
    count: u64,
    pipe: u32,
    delivered: u64,
    delivered_at: u64,
    lost: u64,
    /// Every state that was entered, and when.
    states: Vec<(u64, State)>,
    queue_max: u64,
}

impl Path {
    fn new(rate: u64, rtt_ms: u64, queue: u64) -> Self {
        Self {
            bbr: Bbr::new(10 * MSS, 7),
            now: SECOND,
            rate,
            rtt: rtt_ms * 1000,
            queue,
            one_lost_in: 0,
            free_at: 0,
            next_at: 0,
            flight: VecDeque::new(),
            count: 0,
            pipe: 0,
            delivered: 0,
            delivered_at: SECOND,
            lost: 0,
            states: vec![(SECOND, State::Startup)],
            queue_max: 0,
        }
    }

    fn send(&mut self) {
        self.count += 1;
        let waiting = self.free_at.saturating_sub(self.now) * self.rate / SECOND;
        let chance = self.one_lost_in > 0 && self.count.is_multiple_of(self.one_lost_in);
        let full = waiting + u64::from(MSS) > self.queue;
        if !full {
            self.queue_max = self.queue_max.max(waiting);
            self.free_at = self.free_at.max(self.now) + u64::from(MSS) * SECOND / self.rate;
        }
        self.pipe += MSS;
        self.flight.push_back(Segment {
            heard_at: self.free_at.max(self.now) + self.rtt,
            sent_at: self.now,
            delivered: self.delivered,
            delivered_at: if self.flight.is_empty() { self.now } else { self.delivered_at },
            lost: self.lost,
            tx_in_flight: self.pipe,
            is_lost: full || chance,
        });
        if let Some(rate) = self.bbr.pacing_rate() {
            self.next_at = self.next_at.max(self.now) + u64::from(MSS) * SECOND / rate;
        }
    }

    fn hear(&mut self) {
        let Some(segment) = self.flight.pop_front() else { return };
        self.pipe -= MSS;
        let mut ack = self.ack();
        if segment.is_lost {
            self.lost += u64::from(MSS);
            ack.lost = MSS;
            let lost = (self.lost - segment.lost) as u32;
            ack.loss = Some(LossSample { tx_in_flight: segment.tx_in_flight, lost, app_limited: false });
        } else {
            self.delivered += u64::from(MSS);
            (ack.acked, ack.delivered) = (MSS, MSS);
            ack.rtt_us = Some((self.now - segment.sent_at) as u32);
            ack.rate = Some(RateSample {
                delivered: (self.delivered - segment.delivered) as u32,
                interval_us: (self.now - segment.delivered_at) as u32,
                prior_delivered: segment.delivered,
                total_delivered: self.delivered,
                app_limited: false,
                tx_in_flight: segment.tx_in_flight,
                lost: (self.lost - segment.lost) as u32,
            });
            self.delivered_at = self.now;
        }
        self.bbr.on_ack(&ack);
        let state = self.bbr.cycle.state;
        if self.states.last().is_none_or(|(_, last)| *last != state) {
            self.states.push((self.now, state));
        }
        assert!(self.bbr.cwnd >= PIPE_SEGMENTS_MIN * MSS || self.bbr.repairing);
    }

    fn ack(&self) -> Ack {
        Ack {
            used: (true, 0),
            now: Instant::from_micros(self.now),
            acked: 0,
            delivered: 0,
            lost: 0,
            flight: self.pipe,
            pipe: self.pipe,
            mss: MSS,
            phase: Phase::Open,
            rtt_us: None,
            paced: false,
            reorders: false,
            rate: None,
            loss: None,
        }
    }

    /// Runs for so many microseconds; the share of the rate that was delivered, percent.
    fn run(&mut self, us: u64) -> u64 {
        let (start, before) = (self.now, self.delivered);
        while self.now < start + us {
            while self.pipe + MSS <= self.bbr.cwnd && self.next_at <= self.now {
                self.send();
            }
            let heard = self.flight.front().map(|segment| segment.heard_at);
            let paced = (self.pipe + MSS <= self.bbr.cwnd).then_some(self.next_at);
            self.now = heard.into_iter().chain(paced).min().expect("something is under way").max(self.now);
            while self.flight.front().is_some_and(|segment| segment.heard_at <= self.now) {
                self.hear();
            }
        }
        (self.delivered - before) * 100 * SECOND / (self.now - start) / self.rate
    }

    /// Runs until it enters `state`.
    fn run_into(&mut self, state: State) {
        for _ in 0..100_000 {
            if self.bbr.cycle.state == state {
                return;
            }
            self.run(1_000);
        }
        panic!("never came into {state:?}: {:?}", self.states);
    }

    fn names(&self) -> Vec<State> {
        self.states.iter().map(|(_, state)| *state).collect()
    }
}

/// 10 Mbyte/s at 40 ms: 400 segments.
fn path() -> Path {
    Path::new(10_000_000, 40, 4_000_000)
}

#[test]
fn bbr_finds_the_rate_drains_the_queue_and_probes_periodically() {
    let mut path = path();
    path.run(SECOND / 2);
    assert!(path.bbr.cycle.full_bw_reached, "{:?}", path.states);
    path.queue_max = 0;
    assert!(path.run(20 * SECOND) >= 95);
    // Drain leaves few enough bytes in flight to cruise at once.
    let first = [State::Startup, State::Drain, State::Cruise, State::Refill, State::Up, State::Down];
    assert_eq!(path.names()[..6], first);
    let bw = path.bbr.max_bw.get();
    assert!((9_500_000..=10_500_000).contains(&bw), "{bw}");
    assert!(path.bbr.min_rtt.us() < 41_000);
    // Probing asks for a quarter more than there is, for a round trip or some.
    assert!(path.queue_max < 450_000, "{}", path.queue_max);
    let ups: Vec<u64> = path.states.iter().filter(|(_, s)| *s == State::Up).map(|(at, _)| *at).collect();
    let apart = ups.windows(2).map(|two| two[1] - two[0]);
    assert!(ups.len() >= 5 && apart.clone().all(|us| us > SECOND), "{:?}", apart.collect::<Vec<_>>());
}

#[test]
fn bbr_drains_the_pipe_for_a_fifth_of_a_second_every_five_seconds() {
    let mut path = path();
    path.run(10 * SECOND);
    path.rtt = 60_000;
    path.run(15 * SECOND);
    let at =
        path.states.iter().position(|(at, s)| *at > 11 * SECOND && *s == State::ProbeRtt).expect("it does");
    let lasted = path.states[at + 1].0 - path.states[at].0;
    assert!((200_000..600_000).contains(&lasted), "{lasted}");
    assert!(matches!(path.states[at + 1].1, State::Cruise | State::Refill));
    assert!(path.bbr.min_rtt.us() >= 60_000, "the old one is forgotten");
    path.run_into(State::ProbeRtt);
    path.run(150_000);
    assert!(path.bbr.cwnd <= 10_000_000 / 100 * 6 / 2 + 30 * MSS, "{}", path.bbr.cwnd);
    assert!(path.run(3 * SECOND) >= 85);
}

#[test]
fn losses_below_the_threshold_slow_bbr_down_slightly_and_only_between_probes() {
    let mut path = path();
    path.one_lost_in = 100;
    path.run(2 * SECOND);
    let share = path.run(30 * SECOND);
    // An algorithm that halves at each loss would have 3 % here.
    assert!(share >= 75 && path.bbr.bounds.longterm == UNBOUND, "{share} %: {:?}", path.bbr);
}

#[test]
fn losses_of_a_short_queue_bound_the_data_in_flight() {
    let mut path = Path::new(10_000_000, 40, 40_000);
    path.run(2 * SECOND);
    let lost = path.lost;
    let share = path.run(30 * SECOND);
    assert!(path.bbr.bounds.longterm < UNBOUND);
    let lost = (path.lost - lost) * 1000 / (path.delivered + path.lost - lost);
    assert!(share >= 80 && lost < 20, "{share} %, {lost} of 1,000 lost");
}

#[test]
fn bbr_follows_a_path_that_becomes_slower_and_faster() {
    let mut path = path();
    path.run(5 * SECOND);
    path.rate /= 4;
    path.run(12 * SECOND);
    assert!(path.bbr.max_bw.get() < 3_000_000, "{}", path.bbr.max_bw.get());
    assert!(path.run(5 * SECOND) >= 90);
    path.rate *= 4;
    path.run(12 * SECOND);
    let share = path.run(5 * SECOND);
    assert!(share >= 85, "{share} %");
}

#[test]
fn a_timeout_leaves_one_segment_and_the_end_of_recovery_restores_the_window() {
    let mut path = path();
    path.run(3 * SECOND);
    let before = path.bbr.cwnd;
    path.bbr.on_rto(0, MSS, true);
    assert_eq!(path.bbr.cwnd, MSS);
    path.bbr.on_rto(0, MSS, false);
    let mut ack = path.ack();
    (ack.phase, ack.acked, ack.delivered, ack.pipe) = (Phase::Loss, MSS, MSS, 0);
    path.bbr.on_ack(&ack);
    assert_eq!(path.bbr.cwnd, 2 * MSS, "by the delivered data");
    ack.phase = Phase::Open;
    path.bbr.on_ack(&ack);
    assert!(path.bbr.cwnd + 2 * MSS >= before, "{} of {before}", path.bbr.cwnd);
}

#[test]
fn an_undo_restores_the_state_and_bounds_of_bbr() {
    let mut path = path();
    path.run_into(State::Up);
    let before = path.bbr.clone();
    let mut ack = path.ack();
    (ack.lost, ack.loss) =
        (50 * MSS, Some(LossSample { tx_in_flight: 400 * MSS, lost: 50 * MSS, app_limited: false }));
    path.bbr.on_ack(&ack);
    assert_eq!(path.bbr.cycle.state, State::Down);
    assert!(path.bbr.bounds.longterm < 400 * MSS);
    path.bbr.on_undo(&before, MSS);
    assert_eq!((path.bbr.cycle.state, path.bbr.bounds.longterm), (State::Up, before.bounds.longterm));
    assert!(path.bbr.cwnd >= before.cwnd);
}

#[test]
fn a_mark_ends_startup_and_a_probe_and_bounds_the_data_in_flight() {
    let mark = |path: &mut Path| {
        let now = Instant::from_micros(path.now);
        path.bbr.on_congestion(&Congestion { now, cause: Cause::Mark, flight: path.pipe, mss: MSS });
    };
    let mut young = path();
    young.run(150_000);
    assert_eq!(young.bbr.cycle.state, State::Startup);
    mark(&mut young);
    young.run(50_000);
    assert_ne!(young.bbr.cycle.state, State::Startup);
    let mut probing = path();
    probing.run_into(State::Up);
    mark(&mut probing);
    assert_eq!(probing.bbr.cycle.state, State::Down);
    assert!(probing.bbr.bounds.longterm <= probing.pipe.max(400 * MSS));
}

#[test]
fn bbr_continues_at_the_known_rate_after_a_pause() {
    let mut path = path();
    path.run(3 * SECOND);
    path.run_into(State::Cruise);
    path.bbr.on_idle(1, MSS);
    path.bbr.on_restart(Instant::ZERO, Instant::from_micros(path.now + 2 * SECOND));
    let rate = path.bbr.pacing_rate().unwrap().get();
    assert!((9_000_000..=10_000_000).contains(&rate), "{rate}");
    assert!(path.bbr.idle_restart);
    let mut ack = path.ack();
    path.bbr.on_ack(&ack);
    assert!(path.bbr.idle_restart, "nothing has arrived");
    (ack.acked, ack.delivered) = (MSS, MSS);
    path.bbr.on_ack(&ack);
    assert!(!path.bbr.idle_restart);
}

#[test]
fn the_share_of_losses_determines_the_data_in_flight() {
    let sample = LossSample { tx_in_flight: 100_000, lost: 10_000, app_limited: false };
    // Of 90,000 two percent are 1,800: when 1,837 of the last 10,000 were lost.
    let at = bounds::inflight_at_loss(&sample, 10_000);
    assert!((91_700..=91_900).contains(&at), "{at}");
    assert!(bounds::is_too_much(2_001, 100_000) && !bounds::is_too_much(2_000, 100_000));
}

#[test]
fn connections_that_begin_together_probe_at_different_times() {
    let waits = |seed| {
        let mut cycle = Cycle::new(seed);
        (0..5).map(|_| cycle.random(1_000_000)).collect::<Vec<_>>()
    };
    assert_ne!(waits(12_345), waits(54_321));
    assert_eq!(waits(9), waits(9));
    let mut cycle = Cycle::new(7);
    let drawn: std::collections::BTreeSet<u32> = (0..1000).map(|_| cycle.random(1 << 30)).collect();
    assert!(drawn.len() > 990 && drawn.last() > Some(&(1 << 29)), "{} numbers of 1,000", drawn.len());
}

#[test]
fn a_path_that_holds_less_than_a_segment_still_has_four_in_flight() {
    // The invariant is asserted at each acknowledgment, ProbeRtt's included.
    let mut path = Path::new(20_000, 40, 40_000);
    path.run(30 * SECOND);
    assert!(path.names().contains(&State::ProbeRtt), "{:?}", path.states);
    assert!(path.run(10 * SECOND) >= 95);
}

#[test]
fn the_bound_of_a_short_queue_grows_again_when_the_queue_does() {
    let mut path = Path::new(10_000_000, 40, 40_000);
    path.run(10 * SECOND);
    let bound = path.bbr.bounds.longterm;
    assert!(bound < 460_000, "{bound}");
    path.queue = 4_000_000;
    path.run(40 * SECOND);
    assert!(path.bbr.bounds.longterm > bound + 40_000, "{bound}, then {}", path.bbr.bounds.longterm);
    let share = path.run(10 * SECOND);
    assert!(share >= 95, "{share} %");
}

#[test]
fn bounds_of_less_than_four_segments_leave_a_window_of_four() {
    let mut path = path();
    path.run(3 * SECOND);
    (path.bbr.bounds.longterm, path.bbr.bounds.shortterm) = (MSS, MSS);
    let mut ack = path.ack();
    (ack.acked, ack.delivered) = (MSS, MSS);
    path.bbr.on_ack(&ack);
    assert_eq!(path.bbr.cwnd, PIPE_SEGMENTS_MIN * MSS);
}

#[test]
fn a_mark_in_startup_leaves_room_for_what_was_delivered_in_a_round_trip() {
    let mut path = path();
    path.run(150_000);
    assert_eq!(path.bbr.cycle.state, State::Startup);
    // A whole flight has arrived since a segment was sent: more than the path holds, as there was a queue.
    let held = path.bbr.bdp(path.bbr.max_bw.get(), 100, MSS);
    let mut ack = path.ack();
    let (delivered, total_delivered) = (2 * held, path.delivered + u64::from(held));
    (ack.acked, ack.delivered) = (MSS, MSS);
    ack.rate = Some(RateSample {
        delivered,
        interval_us: 1_000_000,
        prior_delivered: 0,
        total_delivered,
        app_limited: false,
        tx_in_flight: delivered,
        lost: 0,
    });
    path.bbr.on_ack(&ack);
    let now = Instant::from_micros(path.now);
    path.bbr.on_congestion(&Congestion { now, cause: Cause::Mark, flight: path.pipe, mss: MSS });
    assert_eq!(path.bbr.bounds.longterm, delivered);
}

/// BBRProbeInflightLongtermUpward: by `growth` bytes for each window that is acknowledged, and only while the bound is what holds back.
#[test]
fn the_bound_grows_by_its_share_of_each_window_where_it_is_used_up() {
    let grown = |cwnd: u32, longterm: u32, pipe: u32| {
        let mut bbr = Bbr::new(cwnd, 7);
        (bbr.cycle.state, bbr.bounds.longterm) = (State::Up, longterm);
        bbr.raise_slope(MSS);
        let mut grown = 0;
        let mut ack = path().ack();
        (ack.acked, ack.delivered, ack.pipe) = (MSS, MSS, pipe);
        // A window of seven segments: a seventh of a segment for each.
        for _ in 0..7 {
            bbr.bounds.longterm = longterm;
            bbr.raise_longterm(&ack);
            grown += bbr.bounds.longterm - longterm;
        }
        grown
    };
    assert_eq!(grown(7 * MSS, 7 * MSS, 6 * MSS), MSS);
    assert_eq!(grown(7 * MSS, 7 * MSS, MSS), 0, "the window is not used");
    assert_eq!(grown(7 * MSS, 8 * MSS, 6 * MSS), 0, "the bound is not reached");
}

/// A writer that pauses may get more through than was known, and less says nothing.
#[test]
fn samples_of_a_slow_writer_raise_the_bandwidth_and_never_lower_it() {
    let mut path = path();
    path.run(3 * SECOND);
    let known = path.bbr.max_bw.get();
    let sample = |path: &Path, rate: u64| RateSample {
        delivered: (rate / 10) as u32,
        interval_us: 100_000,
        prior_delivered: path.delivered,
        total_delivered: path.delivered,
        app_limited: true,
        tx_in_flight: 0,
        lost: 0,
    };
    for (rate, bw) in [(known / 2, known), (known * 2, known * 2)] {
        let (mut ack, sample) = (path.ack(), sample(&path, rate));
        ack.rate = Some(sample);
        path.bbr.take_sample(&ack, &sample);
        let got = path.bbr.max_bw.get();
        assert!(got.abs_diff(bw) < 100, "{got} of {bw}");
    }
}

#[test]
fn a_heap_of_acknowledgments_counts_for_a_round_in_startup_and_for_ten_later() {
    for is_full in [false, true] {
        let mut path = path();
        path.run(if is_full { 3 * SECOND } else { 150_000 });
        assert_eq!(path.bbr.cycle.full_bw_reached, is_full);
        path.bbr.aggregation = Aggregation::new();
        path.bbr.aggregation.on_ack(90_000, 0, 100_000, Instant::from_micros(path.now), false, false);
        for _ in 0..2 {
            path.now += 10_000;
            let mut ack = path.ack();
            let prior_delivered = path.bbr.cycle.delivered;
            (ack.acked, ack.delivered) = (MSS, MSS);
            ack.rate = Some(RateSample {
                delivered: MSS,
                interval_us: 1_000,
                prior_delivered,
                total_delivered: prior_delivered + u64::from(MSS),
                app_limited: true,
                tx_in_flight: MSS,
                lost: 0,
            });
            path.bbr.on_ack(&ack);
        }
        assert_eq!(path.bbr.aggregation.extra() >= 90_000, is_full);
    }
}

/// BBR.StartupFullLossCount: losses in few places are no reason to end Startup, whatever share they are.
#[test]
fn startup_ends_by_losses_in_enough_places_only() {
    for (lossy, ends) in [(1, false), (6, true)] {
        let mut path = path();
        path.run(100_000);
        let mut ack = path.ack();
        (ack.acked, ack.delivered) = (MSS, MSS);
        for i in 0..10 {
            ack.lost = if i < lossy { MSS } else { 0 };
            path.bbr.on_ack(&ack);
        }
        let delivered = path.bbr.cycle.delivered;
        ack.lost = 0;
        ack.rate = Some(RateSample {
            delivered: 100 * MSS,
            interval_us: 1_000,
            prior_delivered: delivered,
            total_delivered: delivered + u64::from(MSS),
            app_limited: false,
            tx_in_flight: 100 * MSS,
            lost: 50 * MSS,
        });
        path.bbr.on_ack(&ack);
        assert_eq!(path.bbr.cycle.full_bw_reached, ends, "{lossy}");
    }
}

#[test]
fn an_undo_leads_back_to_startup_unless_the_bandwidth_had_stopped_to_grow() {
    for (full_bw_count, state) in [(0, State::Startup), (2, State::Startup), (3, State::Drain)] {
        let mut before = Cycle::new(7);
        before.full_bw_count = full_bw_count;
        let mut now = before;
        (now.state, now.full_bw_reached) = (State::Drain, true);
        now.undo(&before);
        assert_eq!((now.state, now.full_bw_reached), (state, state == State::Drain), "{full_bw_count}");
    }
}

#[test]
fn bbr_cruises_with_four_segments_in_flight_whatever_the_bound_and_never_with_more_than_the_path_holds() {
    let cruises = |longterm: u32, pipe: u32| {
        let mut bbr = Bbr::new(10 * MSS, 7);
        (bbr.cycle.state, bbr.cycle.full_bw_reached, bbr.bounds.longterm) = (State::Down, true, longterm);
        bbr.cycle.rounds_since_probe = 0;
        let ack = Ack { pipe, now: Instant::ZERO, ..path().ack() };
        bbr.on_ack_in_state(&ack);
        bbr.cycle.state == State::Cruise
    };
    // Nothing was measured: the path holds an initial window.
    for (longterm, most) in [(MSS, 4 * MSS), (10 * MSS, 8_500), (UNBOUND, 10 * MSS)] {
        assert_eq!((cruises(longterm, most), cruises(longterm, most + 1)), (true, false), "{longterm}");
    }
}

/// The quantum is what leaves in a millisecond, from two segments to 64 KiB. A window has room for three, and while probing for two segments more.
#[test]
fn a_window_of_bbr_has_room_for_three_quanta() {
    let mut bbr = Bbr::new(10 * MSS, 7);
    for (rate, mss, quantum) in
        [(0, MSS, 2_000), (2_001_000, MSS, 2_001), (u64::MAX, MSS, 65_536), (0, 40_000, 80_000)]
    {
        (bbr.pacing_rate, bbr.cycle.state) = (rate, State::Cruise);
        assert_eq!(bbr.quantum(mss), quantum, "{rate}");
        let least = (3 * quantum).max(4 * mss);
        assert_eq!((bbr.quantized(0, mss), bbr.quantized(1_000_000, mss)), (least, 1_000_000));
        bbr.cycle.state = State::Up;
        assert_eq!(bbr.quantized(0, mss), least + 2 * mss);
    }
}

#[test]
fn the_window_grows_in_startup_up_to_twice_what_the_path_holds_and_is_four_segments_at_least() {
    let cwnd = |cwnd: u32, delivered: u64, repairing: bool| {
        let mut bbr = Bbr::new(cwnd, 7);
        (bbr.cycle.delivered, bbr.repairing) = (delivered, repairing);
        bbr.set_cwnd(&Ack { delivered: MSS, ..path().ack() });
        bbr.cwnd
    };
    // Nothing was measured: the path holds an initial window.
    assert_eq!([9_999, 10_000, 10_001].map(|now| cwnd(now, 1 << 40, false)), [10_999, 10_000, 10_001]);
    assert_eq!(cwnd(10_000, 9_999, false), 11_000, "not even an initial window was delivered");
    assert_eq!((cwnd(0, 1 << 40, false), cwnd(0, 1 << 40, true)), (4 * MSS, MSS));
}

#[test]
fn the_window_to_come_back_to_is_the_larger_one_within_a_repair_and_a_probe_of_the_round_trip() {
    for (repairing, state, cwnd, saved) in [
        (false, State::Cruise, 20_000, 20_000),
        (true, State::Cruise, 20_000, 50_000),
        (false, State::ProbeRtt, 20_000, 50_000),
        (true, State::ProbeRtt, 60_000, 60_000),
    ] {
        let mut bbr = Bbr::new(cwnd, 7);
        (bbr.repairing, bbr.cycle.state, bbr.prior_cwnd) = (repairing, state, 50_000);
        bbr.save_cwnd();
        assert_eq!(bbr.prior_cwnd, saved, "{repairing} {state:?} {cwnd}");
    }
}

#[test]
fn a_restart_paces_by_the_known_bandwidth_between_probes_only() {
    for (state, before, after) in
        [(State::Cruise, 1, 9_900_000), (State::Startup, 1, 1), (State::Drain, 1, 1), (State::Cruise, 0, 0)]
    {
        let mut bbr = Bbr::new(10 * MSS, 7);
        bbr.max_bw.update(10_000_000);
        (bbr.cycle.state, bbr.cycle.full_bw_reached, bbr.pacing_rate) = (state, true, before);
        bbr.on_restart(Instant::ZERO, Instant::ZERO);
        assert_eq!(bbr.pacing_rate, after, "{state:?}");
    }
}
