//! Single decisions on both sides of their bounds.

use super::super::super::tests::ack;
use super::super::super::{CongestionControl, Phase, initial_window};
use super::*;

const MSS: u32 = 1_000;

fn at(us: u64) -> Instant {
    Instant::from_micros(100_000_000 + us)
}

/// An acknowledgment of a segment, `pipe` bytes being in flight after it.
fn heard(us: u64, pipe: u32) -> Ack {
    Ack { pipe, ..ack(at(us), MSS, pipe + MSS, MSS, Phase::Open, None) }
}

fn bbr() -> Bbr {
    Bbr::new(20 * MSS, 7)
}

#[test]
fn a_probe_begins_when_its_time_has_passed_or_the_rounds_of_a_reno_flow() {
    // A Reno flow of ten segments, the window while no round trip is known, takes ten rounds.
    for (us, rounds, begins) in [(2_000, 0, false), (2_001, 0, true), (0, 9, false), (0, 10, true)] {
        let mut bbr = bbr();
        (bbr.cycle.state, bbr.cycle.since, bbr.cycle.wait_us) = (State::Cruise, at(0), 2_000);
        bbr.cycle.rounds_since_probe = rounds;
        assert_eq!(bbr.probe_if_time(&heard(us, 0)), begins, "{us} {rounds}");
        assert_eq!(bbr.cycle.state, if begins { State::Refill } else { State::Cruise });
    }
}

#[test]
fn the_next_probe_waits_for_two_seconds_and_a_random_part_of_another() {
    let mut waits = std::collections::HashSet::new();
    for seed in 0..100 {
        let mut bbr = Bbr::new(20 * MSS, seed);
        bbr.start_down(at(0));
        let over = bbr.cycle.wait_us.checked_sub(PROBE_WAIT_MIN_US).unwrap();
        assert!(over < PROBE_WAIT_RANDOM_US && bbr.cycle.rounds_since_probe < 2, "{seed}: {over}");
        waits.insert(bbr.cycle.wait_us);
    }
    assert!(waits.len() > 40, "{}", waits.len());
}

#[test]
fn random_numbers_are_spread_evenly() {
    let mut cycle = Cycle::new(7);
    let mut counts = [0u32; 8];
    (0..8_000).for_each(|_| counts[cycle.random(8) as usize] += 1);
    assert!(counts.iter().all(|count| (850..1_150).contains(count)), "{counts:?}");
    let mut follows = [0u32; 8];
    let mut last = 0;
    for _ in 0..8_000 {
        let next = cycle.random(8);
        follows[((next + 8 - last) % 8) as usize] += 1;
        last = next;
    }
    assert!(follows.iter().all(|count| (850..1_150).contains(count)), "{follows:?}");
}

/// What was in flight before, and a segment more.
#[test]
fn a_probe_goes_on_while_the_bound_holds_it_back_and_ends_when_the_path_is_full() {
    for (pipe, longterm, limited, ends) in [
        (18 * MSS, 20 * MSS, false, true),
        (18 * MSS + 1, 20 * MSS, true, false),
        (18 * MSS + 1, 20 * MSS + 1, true, true),
        (18 * MSS, 20 * MSS + 1, false, true),
    ] {
        let mut bbr = bbr();
        (bbr.cycle.full_bw_now, bbr.bounds.longterm) = (true, longterm);
        let ack = heard(0, pipe);
        assert_eq!(bbr.is_cwnd_limited(&ack), limited, "{pipe}");
        assert_eq!(bbr.is_time_to_go_down(&ack), ends, "{pipe} {longterm}");
        assert_eq!(bbr.cycle.full_bw_now, ends);
    }
    let mut bbr = bbr();
    assert!(!bbr.is_time_to_go_down(&heard(0, 0)), "the path is not full");
}

#[test]
fn looking_for_the_least_round_trip_ends_after_its_time_and_a_round() {
    for (us, round_done, ends) in [(200_000, true, false), (200_001, true, true), (200_001, false, false)] {
        let mut bbr = bbr();
        bbr.cycle.state = State::ProbeRtt;
        (bbr.cycle.probe_rtt_done_at, bbr.cycle.probe_rtt_round_done) = (Some(at(200_000)), round_done);
        bbr.check_probe_rtt(&heard(us, 0), false);
        assert_eq!(bbr.cycle.state != State::ProbeRtt, ends, "{us} {round_done}");
    }
}

/// Until an initial window is delivered the window grows whatever is known of the path.
#[test]
fn a_window_beyond_the_path_grows_in_startup_only_at_the_very_beginning() {
    let first = u64::from(initial_window(MSS));
    for (delivered, grows) in [(first - 1, true), (first, false)] {
        let mut bbr = Bbr::new(50 * MSS, 7);
        bbr.cycle.delivered = delivered;
        bbr.set_cwnd(&heard(0, 0));
        assert_eq!(bbr.cwnd(), if grows { 51 * MSS } else { 50 * MSS });
    }
}

#[test]
fn there_is_no_threshold_and_no_other_recovery() {
    assert_eq!((bbr().ssthresh(), bbr().governs_recovery()), (super::super::super::CWND_MAX, true));
}

#[test]
fn a_rate_without_a_round_trip_begins_no_pace() {
    let rate = RateSample {
        delivered: 10 * MSS,
        interval_us: 10_000,
        prior_delivered: 0,
        total_delivered: u64::from(10 * MSS),
        app_limited: false,
        tx_in_flight: 10 * MSS,
        lost: 0,
    };
    for (rtt_us, paces) in [(None, false), (Some(10_000), true)] {
        let mut bbr = bbr();
        bbr.on_ack(&Ack { rtt_us, rate: Some(rate), ..heard(0, 0) });
        assert_eq!(bbr.pacing_rate().is_some(), paces);
    }
}

/// With a rate of its own or without.
#[test]
fn what_an_acknowledgment_finds_lost_lowers_the_bounds_at_the_end_of_the_round() {
    let rate = |prior: u32| RateSample {
        delivered: MSS,
        interval_us: 10_000,
        prior_delivered: u64::from(prior),
        total_delivered: u64::from(prior + MSS),
        app_limited: false,
        tx_in_flight: 10 * MSS,
        lost: 0,
    };
    for with_rate in [false, true] {
        for (lost, is_bound) in [(0, false), (1, true)] {
            let mut bbr = bbr();
            (bbr.cycle.state, bbr.cycle.full_bw_reached) = (State::Cruise, true);
            bbr.cycle.since = at(0);
            bbr.on_ack(&Ack { lost, rate: with_rate.then(|| rate(0)), ..heard(1, 5 * MSS) });
            bbr.on_ack(&Ack { rate: Some(rate(2 * MSS)), ..heard(2, 5 * MSS) });
            assert_eq!(bbr.bounds.shortterm < super::super::bounds::UNBOUND, is_bound, "{with_rate} {lost}");
        }
    }
}

/// Marsaglia's generator with the shifts 13, 17 and 5, which passes through all numbers but zero.
#[test]
fn random_numbers_are_those_of_xorshift() {
    let mut cycle = Cycle::new(1);
    assert_eq!([(); 3].map(|()| cycle.random(u32::MAX)), [270_369, 67_634_689, 2_647_435_461]);
}
