//! Several flows at one bottleneck, and the state of an algorithm before it begins.
//!
//! The bottleneck is a queue of whole segments with a bound, served at a rate. A flow keeps a window in flight, learns of
//! an arrival after the delay, and of a loss when the segment behind the lost one arrives; then it is in recovery until
//! all data in flight has been accounted for. That is all of TCP that algorithms see, without sequence numbers.

use std::collections::BinaryHeap;

use core::cmp::Reverse;

use super::super::tests::world::Rng;
use super::*;

const MSS: u32 = 1_460;
const JITTER_US: u64 = 1_000;

/// The events of a flow, with their times.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Word {
    at_us: u64,
    order: u64,
    flow: usize,
    sent_at_us: u64,
    lost: bool,
}

struct Flow {
    cc: Cc,
    starts_at_us: u64,
    /// Segments out.
    out: u32,
    /// Recovery lasts until all segments sent before then are accounted for.
    recovery_until_us: Option<u64>,
    delivered: u64,
}

struct Bottleneck {
    now_us: u64,
    /// Time that a segment takes, and how long the queue may become, microseconds.
    segment_us: u64,
    queue_max_us: u64,
    delay_us: u64,
    free_at_us: u64,
    flows: Vec<Flow>,
    words: BinaryHeap<Reverse<Word>>,
    order: u64,
    marks: bool,
    drops: u64,
    rng: Rng,
}

impl Bottleneck {
    /// `mbit` a second, `delay_ms` for the round trip, a queue of so many milliseconds.
    fn new(mbit: u64, delay_ms: u64, queue_ms: u64) -> Self {
        Self {
            now_us: 1_000_000,
            segment_us: u64::from(MSS) * 8 / mbit,
            queue_max_us: queue_ms * 1_000,
            delay_us: delay_ms * 1_000,
            free_at_us: 0,
            flows: Vec::new(),
            words: BinaryHeap::new(),
            order: 0,
            marks: false,
            drops: 0,
            rng: Rng::new(mbit * delay_ms),
        }
    }

    fn add(&mut self, algorithm: Algorithm, after_ms: u64) {
        let cc = Cc::new(algorithm, MSS, false);
        let starts_at_us = self.now_us + after_ms * 1_000;
        self.flows.push(Flow { cc, starts_at_us, out: 0, recovery_until_us: None, delivered: 0 });
    }

    fn send(&mut self, i: usize) {
        while self.flows[i].starts_at_us <= self.now_us
            && (self.flows[i].out + 1) * MSS <= self.flows[i].cc.cwnd().max(MSS)
        {
            self.flows[i].out += 1;
            let waiting = self.free_at_us.saturating_sub(self.now_us);
            let lost = waiting > self.queue_max_us;
            if lost {
                self.drops += 1;
            } else {
                self.free_at_us = self.free_at_us.max(self.now_us) + self.segment_us;
            }
            self.order += 1;
            // Some jitter, or synchronised flows would alternately meet a full queue.
            let jitter_us = self.rng.below(JITTER_US);
            let at_us = self.free_at_us + self.delay_us + jitter_us;
            let word = Word { at_us, order: self.order, flow: i, sent_at_us: self.now_us, lost };
            self.words.push(Reverse(word));
        }
    }

    fn hear(&mut self, word: Word) {
        let flow = &mut self.flows[word.flow];
        let now = Instant::from_micros(self.now_us);
        let flight = flow.out * MSS;
        flow.out -= 1;
        let in_recovery = flow.recovery_until_us.is_some_and(|until| word.sent_at_us <= until);
        if flow.recovery_until_us.is_some() && !in_recovery {
            flow.recovery_until_us = None;
            flow.cc.on_recovery_end(flight, MSS, false);
        }
        if word.lost {
            if !in_recovery {
                let cause = if self.marks { Cause::Mark } else { Cause::Loss };
                flow.cc.on_congestion(&Congestion { now, cause, flight, mss: MSS });
                flow.recovery_until_us = Some(self.now_us);
            }
            return;
        }
        flow.delivered += u64::from(MSS);
        let rtt_us = u32::try_from(self.now_us - word.sent_at_us).unwrap();
        let phase = if in_recovery { Phase::Recovery } else { Phase::Open };
        flow.cc.on_round_trip(rtt_us, now);
        flow.cc.on_ack(&ack(now, MSS, flight, MSS, phase, Some(rtt_us)));
    }

    fn run(&mut self, seconds: u64) {
        let end = self.now_us + seconds * 1_000_000;
        while self.now_us < end {
            for i in 0..self.flows.len() {
                self.send(i);
            }
            let starts = self.flows.iter().map(|f| f.starts_at_us).filter(|at| *at > self.now_us).min();
            let heard = self.words.peek().map(|Reverse(word)| word.at_us);
            let Some(next) = heard.into_iter().chain(starts).min() else { return };
            self.now_us = next;
            while let Some(Reverse(word)) = self.words.peek().copied().filter(|w| w.0.at_us <= next) {
                self.words.pop();
                self.hear(word);
            }
        }
    }

    /// Bytes that arrived, by flow.
    fn delivered(&self) -> Vec<u64> {
        self.flows.iter().map(|flow| flow.delivered).collect()
    }
}

/// An acknowledgment of `acked` bytes and nothing special.
pub(super) fn ack(now: Instant, acked: u32, flight: u32, mss: u32, phase: Phase, rtt_us: Option<u32>) -> Ack {
    let (delivered, lost, pipe) = (acked, 0, flight.saturating_sub(acked));
    let (paced, reorders, rate, loss, used) = (false, false, None, None, (true, flight));
    Ack { now, acked, delivered, lost, flight, pipe, used, mss, phase, rtt_us, paced, reorders, rate, loss }
}

/// Jain's index, thousandths.
fn jain(shares: &[u64]) -> u64 {
    let sum: u128 = shares.iter().map(|x| u128::from(*x)).sum();
    let squares: u128 = shares.iter().map(|x| u128::from(*x).pow(2)).sum();
    u64::try_from(sum * sum * 1000 / (squares * shares.len() as u128)).unwrap()
}

#[test]
fn four_flows_that_begin_at_different_times_share_a_bottleneck_evenly() {
    for (mbit, delay_ms) in [(20, 20), (50, 50), (50, 100)] {
        let mut b = Bottleneck::new(mbit, delay_ms, delay_ms);
        for i in 0..4 {
            b.add(Algorithm::Cubic, i * 1_700);
        }
        b.run(30);
        let before = b.delivered();
        b.run(90);
        let shares: Vec<u64> = b.delivered().iter().zip(&before).map(|(now, before)| now - before).collect();
        assert!(jain(&shares) >= 950, "{mbit} Mbit/s {delay_ms} ms: {shares:?}");
        let used = shares.iter().sum::<u64>() * 8 / 90 * 100 / (mbit * 1_000_000);
        assert!(used >= 95, "{mbit} Mbit/s {delay_ms} ms: {used} %");
    }
}

/// 200 Mbit/s at 100 ms are 1,712 segments. With a queue of a tenth of that, NewReno falls far below and needs minutes.
#[test]
fn cubic_fills_a_long_fat_path_with_a_short_queue_better_than_newreno() {
    let carried = |algorithm| {
        let mut b = Bottleneck::new(200, 100, 10);
        b.add(algorithm, 0);
        b.run(30);
        let before = b.delivered()[0];
        b.run(60);
        (b.delivered()[0] - before) * 8 / 60 * 100 / 200_000_000
    };
    let (newreno, cubic) = (carried(Algorithm::NewReno), carried(Algorithm::Cubic));
    assert!(cubic >= 85 && cubic > newreno, "cubic {cubic} %, newreno {newreno} %");
}

#[test]
fn cubic_leaves_newreno_its_share_on_a_short_path() {
    let mut b = Bottleneck::new(20, 10, 20);
    b.add(Algorithm::Cubic, 0);
    b.add(Algorithm::NewReno, 0);
    b.run(120);
    let shares = b.delivered();
    assert!(jain(&shares) >= 900, "{shares:?}");
}

#[test]
fn hystart_loses_less_than_slow_start_to_the_end() {
    let drops = |algorithm| {
        let mut b = Bottleneck::new(100, 80, 320);
        b.add(algorithm, 0);
        b.run(6);
        b.drops
    };
    let (newreno, cubic) = (drops(Algorithm::NewReno), drops(Algorithm::Cubic));
    assert!(cubic * 2 <= newreno, "cubic {cubic}, newreno {newreno}");
}

#[test]
fn a_milder_answer_to_marks_keeps_a_path_with_a_short_queue_busier() {
    let carried = |marks| {
        let mut b = Bottleneck::new(50, 40, 4);
        b.marks = marks;
        b.add(Algorithm::Cubic, 0);
        b.run(30);
        b.delivered()[0]
    };
    assert!(carried(true) > carried(false));
}

#[test]
fn nothing_is_allocated_before_the_first_acknowledgment() {
    let mut cc = Cc::new(Algorithm::Cubic, MSS, false);
    assert!(matches!(cc, Cc::Fresh(_)));
    assert_eq!((cc.cwnd(), cc.ssthresh()), (10 * MSS, CWND_MAX));
    assert_eq!(cc.algorithm(), Algorithm::Cubic);
    let before = cc.clone();
    cc.on_rto(0, MSS, true);
    assert!(matches!(cc, Cc::Cubic(_)));
    assert_eq!((cc.cwnd(), cc.ssthresh()), (MSS, 7 * MSS));
    cc.on_undo(&before, MSS);
    assert_eq!((cc.cwnd(), cc.ssthresh()), (10 * MSS, CWND_MAX));
    assert_eq!(Cc::new(Algorithm::Cubic, MSS, true).cwnd(), MSS);
}

#[test]
fn congestion_control_takes_sixteen_bytes_of_a_pcb() {
    assert_eq!(size_of::<Cc>(), 16);
}

#[test]
fn each_algorithm_has_its_name_and_kind() {
    assert_eq!(Algorithm::ALL.len(), Algorithm::NAMES.len());
    for algorithm in Algorithm::ALL {
        assert_eq!(Cc::new(*algorithm, MSS, false).algorithm(), *algorithm);
    }
}

/// RFC 6928 section 2.
#[test]
fn the_initial_window_is_ten_segments_but_of_long_ones_two() {
    for (mss, window) in [(536, 5_360), (1_460, 14_600), (3_000, 14_600), (8_960, 17_920)] {
        assert_eq!(initial_window(mss), window, "{mss}");
    }
}

/// All that an algorithm can be told, in a random order.
fn tell<C: CongestionControl + Clone>(cc: &mut C, before: &mut C, rng: &mut Rng, now: Instant) {
    let (bytes, mss) = (u32::try_from(rng.below(50)).unwrap() * MSS, MSS);
    match rng.below(9) {
        0 => {
            *before = cc.clone();
            cc.on_congestion(&Congestion { now, cause: Cause::Loss, flight: bytes, mss });
        }
        1 => cc.on_congestion(&Congestion { now, cause: Cause::Mark, flight: bytes, mss }),
        2 => cc.on_recovery_end(bytes, mss, false),
        3 => cc.on_rto(bytes, mss, rng.percent(50)),
        4 => cc.on_undo(before, MSS),
        5 => cc.on_idle(1 + bytes / MSS / 10, mss),
        6 => cc.on_unused(bytes, mss),
        7 => cc.on_restart(Instant::ZERO, now),
        _ => cc.on_ack(&ack(now, MSS, bytes + MSS, mss, Phase::Open, Some(40_000))),
    }
}

fn answers<C: CongestionControl>(cc: &C) -> (u32, u32, Option<NonZeroU64>, bool, bool) {
    (cc.cwnd(), cc.ssthresh(), cc.pacing_rate(), cc.wants_rate_samples(), cc.governs_recovery())
}

/// The same events for `bare`, and for it as `of` makes a [`Cc`] of it.
fn run_both<C: CongestionControl + Clone + core::fmt::Debug>(bare: &C, of: impl Fn(C) -> Cc, seed: u64) {
    let (mut bare, mut cc) = (bare.clone(), of(bare.clone()));
    let (mut bare_before, mut cc_before) = (bare.clone(), cc.clone());
    let (mut rng, mut same) = (Rng::new(seed), Rng::new(seed));
    for step in 1..40 {
        let now = Instant::from_micros(step * 50_000);
        tell(&mut bare, &mut bare_before, &mut rng, now);
        tell(&mut cc, &mut cc_before, &mut same, now);
        assert_eq!(format!("{:?}", of(bare.clone())), format!("{cc:?}"), "seed {seed}, step {step}");
        assert_eq!(answers(&bare), answers(&cc), "seed {seed}, step {step}");
    }
}

#[test]
fn each_event_reaches_the_algorithm_and_the_algorithm_answers_each_question() {
    for seed in 0..50 {
        run_both(&NewReno::new(20 * MSS), Cc::NewReno, seed);
        run_both(&Cubic::new(20 * MSS), |cc| Cc::Cubic(Box::new(cc)), seed);
        run_both(&Bbr::new(20 * MSS, 1), |cc| Cc::Bbr(Box::new(cc)), seed);
    }
}

/// One that has not begun begins with the event, as if it had begun before.
#[test]
fn an_event_begins_an_algorithm() {
    for algorithm in [Algorithm::Cubic, Algorithm::Bbr] {
        for seed in 0..50 {
            let fresh = Fresh { algorithm, cwnd: 20 * MSS, seed: 3 };
            let (mut begun, mut cc) = (fresh.begin(), Cc::Fresh(fresh));
            let (mut begun_before, mut before) = (begun.clone(), cc.clone());
            let (mut rng, mut same) = (Rng::new(seed), Rng::new(seed));
            let now = Instant::from_micros(50_000);
            assert_eq!((begun.cwnd(), begun.wants_rate_samples()), (cc.cwnd(), cc.wants_rate_samples()));
            tell(&mut begun, &mut begun_before, &mut rng, now);
            tell(&mut cc, &mut before, &mut same, now);
            if !matches!(cc, Cc::Fresh(_)) {
                assert_eq!(format!("{begun:?}"), format!("{cc:?}"), "seed {seed}");
            }
        }
    }
}

/// BBR has no threshold.
#[test]
fn an_algorithm_that_takes_over_has_the_window_and_the_threshold_of_the_one_before() {
    for (algorithm, ssthresh) in
        [(Algorithm::NewReno, 15_000), (Algorithm::Cubic, 15_000), (Algorithm::Bbr, CWND_MAX)]
    {
        let cc = Cc::new(algorithm, MSS, false).with_window(20_000, 15_000);
        assert_eq!((cc.cwnd(), cc.ssthresh(), cc.algorithm()), (20_000, ssthresh, algorithm));
    }
}

#[test]
fn a_window_of_which_all_was_used_stays_as_it_is() {
    for (cwnd, used, expected) in [
        (12_500, 12_500, 12_500),
        (12_500, 12_499, 12_000),
        (9_500, 100, 9_500),
        (10_000, 100, 10_000),
        (20_000, 100, 15_000),
    ] {
        assert_eq!(super::unused_window(cwnd, used, 1_000), expected, "{cwnd} {used}");
    }
}
