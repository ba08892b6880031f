//! The curve against RFC 9438 in floating point, the rules around it one by one, and arbitrary lives.

use core::time::Duration;

use proptest::prelude::*;

use super::super::tests::ack;
use super::*;

const MSS: u32 = 1_000;

fn at(ms: u64) -> Instant {
    Instant::from_micros(1_000_000 + ms * 1_000)
}

/// An acknowledgment, and the round trip that it measures.
fn tell(cc: &mut Cubic, ack: &Ack) {
    if let Some(rtt_us) = ack.rtt_us {
        cc.on_round_trip(rtt_us, ack.now);
    }
    cc.on_ack(ack);
}

/// Acknowledges a segment of a full window at `ms`.
fn full(cc: &mut Cubic, ms: u64) {
    let flight = cc.cwnd();
    tell(cc, &ack(at(ms), MSS, flight, MSS, Phase::Open, Some(100_000)));
}

/// A round trip of acknowledgments, from `ms` to `ms + 100`.
fn round(cc: &mut Cubic, ms: u64) {
    let count = u64::from(cc.cwnd() / MSS);
    for i in 0..count {
        full(cc, ms + i * 100 / count);
    }
}

fn congest(cc: &mut Cubic, flight: u32, cause: Cause) {
    cc.on_congestion(&Congestion { now: at(0), cause, flight, mss: MSS });
}

/// W_cubic(t) of RFC 9438 in segments.
fn w_cubic(seconds: f64, w_max: f64, cwnd: f64) -> f64 {
    let k = ((w_max - cwnd).max(0.0) / 0.4).cbrt();
    0.4 * (seconds - k).powi(3) + w_max.max(cwnd)
}

proptest! {
    #[test]
    fn the_curve_is_that_of_the_rfc(w_max in 1u32..1_000_000, share in 0u32..=100, us in 0u64..200_000_000) {
        let cwnd = super::super::percent(w_max, share).max(1);
        let curve = Curve::new(w_max, cwnd);
        let seconds = us as f64 / 1e6;
        let exact = w_cubic(seconds, f64::from(w_max), f64::from(cwnd));
        let got = curve.window(ticks(us)) as f64;
        // A tick of error in t and one in K shift the curve by its slope; the distance is rounded to a segment.
        let k = (f64::from(w_max - cwnd) / 0.4).cbrt();
        let slope = 1.2 * ((seconds - k).abs() + 0.01).powi(2);
        let allowed = slope * 3.0 / 1024.0 + 1.001;
        prop_assert!((got - exact.max(0.0)).abs() <= allowed, "{got} {exact} allowed {allowed}");
    }

    #[test]
    fn the_cube_root_is_exact(n in any::<u64>()) {
        let root = u128::from(curve::cbrt(n));
        prop_assert!(root.pow(3) <= u128::from(n) && (root + 1).pow(3) > u128::from(n));
    }

    #[test]
    fn the_line_grows_as_the_sum_of_its_steps(
        cwnd in 10u32..100_000, acks in prop::collection::vec(1u32..5, 1..300),
    ) {
        let mut line = RenoLine::new(cwnd);
        let mut acked = 0;
        for segments in acks {
            line.on_ack(segments * MSS);
            line.settle(cwnd, MSS);
            acked += segments;
        }
        // Fifteen eighths of a window for a segment, and not before more than that is acknowledged.
        let grown = (acked - 1) / (cwnd * 15 / 8);
        prop_assert_eq!(line.window(), cwnd + grown);
    }

    /// For any peer and clock there is no overflow, the window stays within its bounds, and it falls only when it may.
    #[test]
    fn any_life_keeps_the_window_in_its_bounds(
        mss in 88u32..=65_535,
        steps in prop::collection::vec((0u8..16, any::<u32>(), any::<u32>(), any::<u64>()), 1..200),
    ) {
        let mut cc = Cubic::new(initial_window(mss));
        let mut before = cc.clone();
        let mut now_us = 0u64;
        for (what, a, b, time) in steps {
            now_us = now_us.saturating_add(time >> (time % 64));
            let (now, flight) = (Instant::from_micros(now_us), a % CWND_MAX);
            let old = cc.cwnd();
            let may_fall = match what {
                0 => { before = cc.clone(); congest(&mut cc, flight, Cause::Loss); true }
                1 => { congest(&mut cc, flight, Cause::Mark); true }
                2 => { cc.on_rto(flight, mss, b & 1 == 0); true }
                3 => { cc.on_recovery_end(flight, mss, false); true }
                4 => { cc.on_idle(b % 40, mss); true }
                5 => { cc.on_undo(&before, MSS); false }
                _ => {
                    let phase = if what == 6 { Phase::Loss } else { Phase::Open };
                    let used = if b & 1 == 0 { cc.cwnd() } else { flight };
                    let acked = b % (used + 1);
                    tell(&mut cc, &ack(now, acked, used, mss, phase, Some(b)));
                    false
                }
            };
            prop_assert!(cc.cwnd() >= mss.min(MSS) && cc.cwnd() <= CWND_MAX);
            prop_assert!(may_fall || cc.cwnd() >= old);
        }
    }
}

#[test]
fn a_loss_takes_three_tenths_and_a_mark_half_of_that() {
    for (cause, left) in [(Cause::Loss, 70), (Cause::Mark, 85)] {
        let mut cc = Cubic::new(100 * MSS);
        congest(&mut cc, 100 * MSS, cause);
        assert_eq!((cc.cwnd(), cc.ssthresh()), (left * MSS, left * MSS));
        assert_eq!(cc.w_max, 100 * MSS);
    }
}

#[test]
fn the_threshold_is_at_least_two_segments_and_whole_ones_and_comes_from_the_window() {
    for (cwnd, flight, left) in [(2, 2, 2), (100, 10, 70), (10, 12, 7), (13, 13, 9), (4, 4, 2)] {
        let mut cc = Cubic::new(cwnd * MSS);
        congest(&mut cc, flight * MSS, Cause::Loss);
        assert_eq!(cc.cwnd(), left * MSS, "{cwnd}");
    }
}

#[test]
fn fast_convergence_gives_up_more_when_the_window_shrinks_from_loss_to_loss() {
    let mut cc = Cubic::new(100 * MSS);
    congest(&mut cc, 100 * MSS, Cause::Loss);
    congest(&mut cc, 70 * MSS, Cause::Loss);
    assert_eq!(cc.w_max, 59 * MSS, "70 segments times 0.85");
    assert_eq!(cc.cwnd(), 49 * MSS);
}

#[test]
fn the_window_is_restored_after_k_and_grows_beyond() {
    let mut cc = Cubic::new(1_000 * MSS);
    congest(&mut cc, 1_000 * MSS, Cause::Loss);
    // K = cbrt(300 / 0.4) = 9.09 s.
    let mut windows = Vec::new();
    for round_trip in 0..140u64 {
        round(&mut cc, round_trip * 100);
        windows.push(cc.cwnd());
    }
    assert!((985 * MSS..=1_001 * MSS).contains(&windows[90]), "{}", windows[90]);
    assert!(windows[45] > 900 * MSS && windows[45] < 970 * MSS, "{}", windows[45]);
    assert!(windows[139] > 1_020 * MSS, "{}", windows[139]);
    // The growth slows down towards K, and speeds up from there.
    assert!(windows[10] - windows[0] > windows[80] - windows[70]);
    assert!(windows[139] - windows[129] > windows[95] - windows[85]);
}

#[test]
fn before_the_first_loss_the_window_grows_by_a_twentieth_a_round_trip_and_then_by_the_curve() {
    let mut cc = Cubic::new(100 * MSS);
    cc.ssthresh = cc.cwnd;
    let windows = |cc: &mut Cubic| {
        let before = cc.cwnd();
        (0..10).for_each(|round_trip| round(cc, round_trip * 100));
        (before, cc.cwnd())
    };
    // 1.05^10 is 1.63.
    let (_, after) = windows(&mut cc);
    assert!((155 * MSS..=170 * MSS).contains(&after), "{after}");
    congest(&mut cc, after, Cause::Loss);
    let (before, after) = windows(&mut cc);
    assert!(after - before < 25 * MSS, "{before} {after}");
}

#[test]
fn on_a_short_path_cubic_grows_as_fast_as_reno() {
    let mut cc = Cubic::new(20 * MSS);
    congest(&mut cc, 20 * MSS, Cause::Loss);
    // Ten round trips of a millisecond each: 8/15 of a segment in each, found with the delay of a tick.
    for round_trip in 0..10u64 {
        let flight = cc.cwnd();
        for _ in 0..flight / MSS {
            let now = at(round_trip);
            tell(&mut cc, &ack(now, MSS, flight, MSS, Phase::Open, Some(1_000)));
        }
    }
    assert!((18 * MSS..=19 * MSS).contains(&cc.cwnd()), "{}", cc.cwnd());
}

#[test]
fn an_unused_window_does_not_grow_and_its_time_does_not_count() {
    let mut cc = Cubic::new(100 * MSS);
    congest(&mut cc, 100 * MSS, Cause::Loss);
    round(&mut cc, 0);
    let window = cc.cwnd();
    let unused = |ms| Ack { used: (false, MSS), ..ack(at(ms), MSS, MSS, MSS, Phase::Open, Some(100_000)) };
    // Ten minutes of a segment at a time.
    for i in 0..6_000 {
        tell(&mut cc, &unused(200 + i * 100));
    }
    assert_eq!(cc.cwnd(), window);
    let age_us = cc.period.map(|period| period.age_us).unwrap();
    assert!(age_us < 1_000_000, "{age_us}");
    let mut cc = Cubic::new(10 * MSS);
    (0..100).for_each(|i| tell(&mut cc, &unused(i)));
    assert_eq!(cc.cwnd(), 10 * MSS, "in slow start");
}

/// `bictcp_update` counts by the clock.
#[test]
fn an_acknowledgment_of_a_part_of_a_segment_takes_no_time_from_a_used_window() {
    let age_us = |parts: &[u64]| {
        let mut cc = Cubic::new(100 * MSS);
        congest(&mut cc, 100 * MSS, Cause::Loss);
        tell(&mut cc, &ack(at(0), MSS, 70 * MSS, MSS, Phase::Open, Some(1_000)));
        for &ms in parts {
            tell(&mut cc, &Ack { delivered: 0, ..ack(at(ms), 1, 70 * MSS, MSS, Phase::Open, None) });
        }
        tell(&mut cc, &ack(at(900), MSS, 70 * MSS, MSS, Phase::Open, Some(1_000)));
        cc.period.map(|period| period.age_us)
    };
    assert_eq!(age_us(&[]), Some(900_000));
    assert_eq!(age_us(&[300, 899]), Some(900_000));
}

#[test]
fn what_is_left_of_an_acknowledgment_at_the_threshold_counts_in_avoidance() {
    let mut cc = Cubic::new(100 * MSS);
    cc.on_rto(60 * MSS, MSS, true);
    assert_eq!((cc.cwnd(), cc.ssthresh()), (61 * MSS, 70 * MSS));
    tell(&mut cc, &ack(at(0), 40 * MSS, 61 * MSS, MSS, Phase::Loss, Some(100_000)));
    assert!(cc.cwnd() >= 70 * MSS && cc.period.is_some(), "{}", cc.cwnd());
}

#[test]
fn a_timeout_leaves_one_segment_and_slow_start_ends_at_the_threshold() {
    let mut cc = Cubic::new(100 * MSS);
    cc.on_rto(0, MSS, true);
    assert_eq!((cc.cwnd(), cc.ssthresh()), (MSS, 70 * MSS));
    cc.on_rto(0, MSS, false);
    assert_eq!((cc.cwnd(), cc.ssthresh()), (MSS, 70 * MSS));
    for i in 0..69 {
        full(&mut cc, i);
    }
    assert_eq!(cc.cwnd(), 70 * MSS);
    round(&mut cc, 100);
    assert!(cc.cwnd() <= 73 * MSS, "a twentieth a round trip from there: {}", cc.cwnd());
}

#[test]
fn an_undo_restores_the_window_and_the_next_period_begins_anew() {
    let mut cc = Cubic::new(1_000 * MSS);
    congest(&mut cc, 1_000 * MSS, Cause::Loss);
    for i in 0..20 {
        round(&mut cc, i * 100);
    }
    let before = cc.clone();
    congest(&mut cc, before.cwnd(), Cause::Loss);
    cc.on_undo(&before, MSS);
    assert_eq!((cc.cwnd(), cc.ssthresh()), (before.cwnd(), before.ssthresh()));
    assert!(before.period.is_some() && cc.period.is_none() && cc.w_max < before.w_max);
}

#[test]
fn an_undo_leaves_a_threshold_of_three_quarters_of_the_window() {
    for (cwnd, before, left) in [(4, 2, 3), (4, 3, 3), (5, 2, 3), (3, 2, 2), (10, 8, 8)] {
        let mut cc = Cubic::new(cwnd * MSS);
        cc.ssthresh = before * MSS;
        let before = cc.clone();
        cc.on_rto(0, MSS, true);
        cc.on_undo(&before, MSS);
        assert_eq!((cc.cwnd(), cc.ssthresh()), (cwnd * MSS, left * MSS), "{cwnd}");
    }
}

#[test]
fn an_undo_keeps_a_window_that_has_already_outgrown_it() {
    let mut cc = Cubic::new(100 * MSS);
    congest(&mut cc, 100 * MSS, Cause::Loss);
    let before = cc.clone();
    congest(&mut cc, before.cwnd(), Cause::Loss);
    cc.cwnd = before.cwnd() + 5 * MSS;
    let (ssthresh, w_max) = (cc.ssthresh(), cc.w_max);
    assert!(w_max < before.w_max && ssthresh < before.ssthresh());
    cc.on_undo(&before, MSS);
    assert_eq!((cc.cwnd(), cc.ssthresh(), cc.w_max), (before.cwnd() + 5 * MSS, before.ssthresh(), w_max));
}

#[test]
fn idleness_halves_the_window_for_each_timeout_and_slow_start_leads_to_three_quarters() {
    for (rtos, left) in [(1, 60), (3, 15), (4, 10)] {
        let mut cc = Cubic::new(100 * MSS);
        congest(&mut cc, 100 * MSS, Cause::Loss);
        cc.cwnd = 120 * MSS;
        cc.on_idle(rtos, MSS);
        assert_eq!((cc.cwnd(), cc.ssthresh()), (left * MSS, 90 * MSS));
    }
    let mut cc = Cubic::new(100 * MSS);
    cc.on_idle(20, MSS);
    assert_eq!((cc.cwnd(), cc.ssthresh()), (10 * MSS, CWND_MAX));
}

/// A round of `count` acknowledgments of a full window, with these round trips.
fn slow_round(cc: &mut Cubic, count: u32, rtt_ms: u64, now_ms: &mut u64) {
    *now_ms += 1_000;
    let flight = count * MSS;
    for i in 0..count {
        let rtt_us = u32::try_from(rtt_ms * 1_000).unwrap();
        // Further apart than the acknowledgments of a train.
        let now = at(*now_ms + u64::from(i) * 5);
        tell(cc, &ack(now, MSS, flight - i * MSS, MSS, Phase::Open, Some(rtt_us)));
    }
}

#[test]
fn conservative_slow_start_ends_with_a_pause_however_many_follow() {
    for pauses in [1, 300] {
        let mut cc = Cubic::new(10 * MSS);
        let mut ms = 0;
        for rtt_ms in [80, 101] {
            slow_round(&mut cc, 9, rtt_ms, &mut ms);
        }
        let before = cc.cwnd();
        slow_round(&mut cc, 4, 101, &mut ms);
        assert!(cc.cwnd() - before <= MSS, "it is conservative");
        for _ in 0..pauses {
            cc.on_idle(20, MSS);
            slow_round(&mut cc, 4, 101, &mut ms);
        }
        for _ in 0..6 {
            let count = cc.cwnd() / MSS;
            slow_round(&mut cc, count, 101, &mut ms);
        }
        assert_eq!(cc.ssthresh(), CWND_MAX, "a steady round trip is no reason to end slow start");
        assert!(cc.cwnd() > 400 * MSS);
    }
}

#[test]
fn the_end_of_recovery_allows_no_burst_of_more_than_a_packet_of_segmentation_offload() {
    let mut cc = Cubic::new(100 * MSS);
    congest(&mut cc, 100 * MSS, Cause::Loss);
    for (flight, cwnd) in [(69_000, 70_000), (10_000, 70_000), (2_000, 67_000)] {
        cc.on_recovery_end(flight, MSS, false);
        assert_eq!(cc.cwnd(), cwnd);
    }
}

#[test]
fn an_empty_window_after_a_recovery_is_filled_in_a_round_trip_if_it_may_be_paced() {
    let mut cc = Cubic::new(400 * MSS);
    full(&mut cc, 0);
    congest(&mut cc, 400 * MSS, Cause::Loss);
    assert_eq!(cc.pacing_rate(), None);
    cc.on_recovery_end(20 * MSS, MSS, true);
    assert_eq!((cc.cwnd(), cc.ssthresh()), (280 * MSS, 280 * MSS));
    // 280,000 bytes in the 100 ms that `full` reports.
    assert_eq!(cc.pacing_rate().map(NonZeroU64::get), Some(2_800_000));
    let filled = cc.clone();
    for _ in 0..280 {
        assert!(cc.pacing_rate().is_some());
        tell(&mut cc, &ack(at(200), MSS, 20 * MSS, MSS, Phase::Open, Some(100_000)));
    }
    assert_eq!(cc.pacing_rate(), None, "a window was acknowledged");
    cc.on_recovery_end(139 * MSS, MSS, true);
    assert_eq!(
        (cc.cwnd(), cc.pacing_rate()),
        (204 * MSS, None),
        "slow start needs no more than a round trip"
    );
    let mut cc = filled;
    cc.on_rto(0, MSS, false);
    assert_eq!((cc.cwnd(), cc.pacing_rate()), (MSS, None));
}

#[test]
fn a_loss_while_the_window_is_being_restored_counts_from_its_target() {
    let mut cc = Cubic::new(400 * MSS);
    congest(&mut cc, 400 * MSS, Cause::Loss);
    cc.on_recovery_end(20 * MSS, MSS, false);
    assert_eq!((cc.cwnd(), cc.ssthresh()), (85 * MSS, 280 * MSS));
    congest(&mut cc, 20 * MSS, Cause::Loss);
    assert_eq!(cc.ssthresh(), 196 * MSS, "the rest of the same overflow");
    cc.on_recovery_end(20 * MSS, MSS, false);
    cc.on_rto(0, MSS, true);
    assert_eq!(cc.ssthresh(), 137 * MSS, "seven tenths once more");
    // Slow start after a timeout measures the capacity of the path anew.
    (0..3).for_each(|i| round(&mut cc, 100 * i));
    congest(&mut cc, 8 * MSS, Cause::Loss);
    assert_eq!(cc.ssthresh(), 5 * MSS);
}

#[test]
fn an_unused_window_falls_half_way_and_one_that_was_used_leaves_the_threshold_too() {
    for (used, cwnd, ssthresh) in [(20, 20, 10), (12, 16, 15), (2, 15, 15)] {
        let mut cc = Cubic::new(20 * MSS);
        cc.ssthresh = 10 * MSS;
        cc.on_unused(used * MSS, MSS);
        assert_eq!((cc.cwnd() / MSS, cc.ssthresh() / MSS), (cwnd, ssthresh), "{used}");
    }
}

#[test]
fn slow_start_that_ends_just_at_the_threshold_leaves_nothing_for_avoidance() {
    let mut cc = Cubic::new(10 * MSS);
    cc.ssthresh = 20 * MSS;
    tell(&mut cc, &ack(at(0), 10 * MSS, 10 * MSS, MSS, Phase::Open, Some(100_000)));
    assert_eq!((cc.cwnd(), cc.credit, cc.period.is_some()), (20 * MSS, 0, false));
}

/// RFC 9438 section 4.3: as fast as Reno, and no faster than that where the curve is still below.
#[test]
fn on_a_short_path_cubic_follows_the_line_of_reno() {
    let mut cc = Cubic::new(100 * MSS);
    congest(&mut cc, 100 * MSS, Cause::Loss);
    for round_trip in 0..200u64 {
        let flight = cc.cwnd();
        for _ in 0..flight / MSS {
            tell(&mut cc, &ack(at(round_trip), MSS, flight, MSS, Phase::Open, Some(1_000)));
        }
    }
    // 8/15 of a segment in each, and a whole one once the window is what it was.
    assert!((170 * MSS..=190 * MSS).contains(&cc.cwnd()), "{}", cc.cwnd());
}

#[test]
fn a_timeout_reduces_whole_segments() {
    let mut cc = Cubic::new(4 * MSS + 900);
    cc.on_rto(0, MSS, true);
    assert_eq!((cc.cwnd(), cc.ssthresh()), (MSS, 2 * MSS), "seven tenths of four");
}

fn period(age_us: u64) -> Period {
    Period { age_us, curve: Curve::new(20, 14), line: RenoLine::new(14) }
}

/// Right after a recovery round trips say little of the path.
#[test]
fn the_least_round_trip_is_of_settled_times() {
    for (age_us, known, expected) in [
        (None, 0, 100),
        (None, 101, 100),
        (None, 99, 99),
        (Some(1_000_000), 0, 100),
        (Some(1_000_000), 101, 100),
        (Some(1_000_000), 99, 99),
        (Some(999_999), 0, 0),
        (Some(999_999), 101, 101),
    ] {
        let mut cc = Cubic::new(20 * MSS);
        (cc.period, cc.delay_min_us) = (age_us.map(period), known);
        cc.on_round_trip(100, cc.acked_at);
        assert_eq!(cc.delay_min_us, expected, "{age_us:?} {known}");
    }
    // Blocks have let no time count so far.
    for (elapsed_us, expected) in [(999_999, 0), (1_000_000, 100)] {
        let mut cc = Cubic::new(20 * MSS);
        cc.period = Some(period(0));
        cc.on_round_trip(100, cc.acked_at + Duration::from_micros(elapsed_us));
        assert_eq!(cc.delay_min_us, expected, "{elapsed_us}");
    }
}

/// Fast convergence, of a window that has shrunk since the last loss (section 4.7).
#[test]
fn a_window_that_is_as_large_as_at_the_last_loss_leaves_no_room() {
    for (cwnd, w_max) in [(20_000, 20_000), (19_999, 17_000), (20_001, 20_001)] {
        let mut cc = Cubic::new(cwnd);
        cc.w_max = 20_000;
        congest(&mut cc, cwnd, Cause::Loss);
        assert_eq!(cc.w_max, w_max, "{cwnd}");
    }
}

#[test]
fn an_acknowledgment_of_nothing_ends_no_round() {
    for (acked, left) in [(0, 0), (MSS, 9 * MSS)] {
        let mut cc = Cubic::new(10 * MSS);
        tell(&mut cc, &ack(at(0), acked, 10 * MSS, MSS, Phase::Open, None));
        assert_eq!(cc.round_left, left);
    }
}

#[test]
fn a_window_is_deflated_until_it_has_come_back_to_the_threshold() {
    for (cwnd, is_deflated) in [(9_999, true), (10_000, false), (10_001, false)] {
        let mut cc = Cubic::new(cwnd);
        (cc.ssthresh, cc.is_deflated) = (10_000, true);
        tell(&mut cc, &ack(at(0), 0, cwnd, MSS, Phase::Open, None));
        assert_eq!(cc.is_deflated, is_deflated, "{cwnd}");
    }
}

#[test]
fn at_the_threshold_a_window_that_is_not_full_does_not_grow() {
    for (used, grows) in [(false, false), (true, true)] {
        let mut cc = Cubic::new(10 * MSS);
        cc.ssthresh = 10 * MSS;
        let flight = 10 * MSS;
        tell(&mut cc, &Ack { used: (used, flight), ..ack(at(0), MSS, flight, MSS, Phase::Open, None) });
        assert_eq!(cc.period.is_some(), grows);
    }
}

/// Ten acknowledgments each round trip, which becomes longer by 20 ms each time.
fn slow_start_into_a_queue(used: bool) -> (Cubic, Vec<u32>) {
    let mut cc = Cubic::new(100 * MSS);
    let mut growth = Vec::new();
    for round in 0..10u64 {
        let before = cc.cwnd();
        for i in 0..10 {
            let now = at(round * 1_000 + i * 40);
            let rtt_us = Some(100_000 + round as u32 * 20_000);
            let used = (used, if used { cc.cwnd() } else { MSS });
            tell(&mut cc, &Ack { used, ..ack(now, MSS, 10 * MSS, MSS, Phase::Open, rtt_us) });
        }
        growth.push(cc.cwnd() - before);
    }
    (cc, growth)
}

#[test]
fn slow_start_into_a_queue_grows_by_a_quarter_and_ends() {
    let (cc, growth) = slow_start_into_a_queue(true);
    assert!(cc.ssthresh() < CWND_MAX, "{growth:?}");
    assert_eq!(growth[0], 10 * MSS);
    assert!(growth.contains(&(10 * MSS / 4)), "{growth:?}");
    // A window that is not used says nothing.
    let (cc, growth) = slow_start_into_a_queue(false);
    assert_eq!((cc.ssthresh(), growth), (CWND_MAX, vec![0; 10]));
}

/// Half of the threshold in flight is there in a round trip of slow start.
#[test]
fn less_than_half_of_the_threshold_is_filled_up_at_a_pace() {
    let calm = 66 * MSS;
    for (ssthresh, paced) in [(2 * calm - 1, false), (2 * calm + 1, false), (2 * calm + 2, true)] {
        let mut cc = Cubic::new(ssthresh);
        (cc.ssthresh, cc.srtt_8) = (ssthresh, 800_000);
        cc.on_recovery_end(MSS, MSS, true);
        assert_eq!(cc.cwnd(), if paced { ssthresh } else { calm }, "{ssthresh}");
        assert_eq!((cc.is_deflated, cc.refill_left != 0), (!paced, paced));
    }
}

/// Text is cut into smaller segments and sent again: the window is what is left, or the threshold is kept as before a pause.
#[test]
fn text_that_is_cut_anew_begins_another_period() {
    for (left, cwnd, ssthresh) in
        [(Some(5 * MSS), 5 * MSS, 8 * MSS), (Some(1), MSS, 8 * MSS), (None, 20 * MSS, 15 * MSS)]
    {
        let mut cc = Cubic::new(20 * MSS);
        (cc.ssthresh, cc.period) = (8 * MSS, Some(period(0)));
        cc.on_resegmented(left, MSS);
        assert_eq!((cc.cwnd, cc.ssthresh, cc.period.is_none()), (cwnd, ssthresh, true), "{left:?}");
    }
}

/// A few acknowledgments that arrive together say nothing of the path.
#[test]
fn a_train_ends_slow_start_from_sixteen_segments_on() {
    for (segments, ends) in [(15, false), (16, true)] {
        let mut cc = Cubic::new(segments * MSS);
        for i in 0..60 {
            let told = ack(at(2 * i), MSS, segments * MSS, MSS, Phase::Open, Some(100_000));
            cc.grow_in_slow_start(&told, 0, i == 0);
        }
        assert_eq!(cc.ssthresh < CWND_MAX, ends, "{segments}");
    }
}
