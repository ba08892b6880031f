//! The work that a hostile peer can cause: bounded work per segment and bounded memory, counted and not timed.
//!
//! A step is a record looked at, or some dozens of them moved (`loss/records.rs`). The classes are those of
//! CVE-2019-11477 and CVE-2019-11478 (SACK blocks that cut the scoreboard to pieces) and of CVE-2018-5390 (tiny
//! segments out of order).

use super::super::info::CaState;
use super::super::loss::stats::LossStats;
use super::super::sack::SackBlock;
use super::super::segment::Timestamps;
use super::super::settings::Settings;
use super::script::{ACK, IRS, MSS, Script, WND, ms, plain, secs};
use super::world::{Link, Rng, World, pattern};
use crate::seq::SeqNum;
use core::time::Duration;

fn steps(t: &Script) -> u64 {
    t.pcb.loss.as_ref().map_or(0, |loss| loss.records.steps)
}

/// Steps that an acknowledgment costs on a path with losses, on average, at least one.
fn good_steps() -> u64 {
    let link = Link { delay_us: 20_000, rate: 12_500, loss: 2, ..Link::CLEAN };
    let s = Settings { rcv_buf: 1 << 20, ..Settings::default() };
    let mut w = World::established(5, s.clone(), s, link);
    w.ends[0].to_write = pattern(2_000_000, 3);
    w.ends[0].snd_hiwat = 1 << 20;
    w.run("transfer", |w| w.ends[1].received.len() == 2_000_000);
    let acks = w.trace.iter().filter(|(_, from, ..)| *from == 1).count() as u64;
    let steps = w.ends[0].pcb().loss.as_ref().map_or(0, |loss| loss.records.steps);
    (steps / acks).max(1)
}

/// A large flight of small segments, each sent at a time of its own.
fn large_flight(timestamps: bool) -> Script {
    let s = Settings { sack: true, nodelay: true, slow_start_after_idle: false, timestamps, ..plain() };
    let mut t = Script::established(&s);
    for _ in 0..8 {
        t.write(u32::from(WND));
        t.now = t.now + ms(10);
        let _ = t.input(t.seg(ACK), &[]);
        t.snd = 0;
    }
    // A window for so many: it counts segments.
    t.pcb.cc = t.pcb.cc.clone().with_window(u32::from(WND) / SMALL * MSS, 1 << 30);
    for _ in 0..u32::from(WND) / SMALL {
        t.now = t.now + Duration::from_micros(200);
        assert_eq!(t.write(SMALL), [SMALL]);
    }
    t
}

/// Bytes of each segment of that flight.
const SMALL: u32 = 25;

/// Sends `count` acknowledgments with blocks made by `blocks`; returns steps per segment.
fn flood(t: &mut Script, count: u64, mut blocks: impl FnMut(u64, u32) -> [(u32, u32); 4]) -> u64 {
    let before = steps(t);
    for i in 0..count {
        let flight = t.pcb.snd_max().since(t.pcb.snd_una());
        let una = t.pcb.snd_una();
        let mut header = t.ack_of(0, WND);
        header.options.sack = blocks(i, flight)
            .iter()
            .map(|&(from, to)| SackBlock { start: una + from, end: una + to })
            .collect();
        let _ = t.input(header, &[]);
        if i % 16 == 0 {
            let _ = t.output();
            t.now = t.now + ms(1);
        }
    }
    (steps(t) - before) / count
}

#[test]
fn floods_of_blocks_cost_at_most_ten_times_an_ordinary_acknowledgment() {
    let good = good_steps();
    let mut t = large_flight(false);
    let tiny = flood(&mut t, 5_000, |i, flight| {
        let at = |n: u64| (i * 8 + n * 2) as u32 % flight.max(2);
        [0, 1, 2, 3].map(|n| (at(n), at(n) + 1))
    });
    let mut t = large_flight(false);
    let backwards = flood(&mut t, 5_000, |i, flight| {
        let at = |n: u64| flight.saturating_sub(((i * 4 + n) * 3) as u32 % flight.max(1)).max(2);
        [0, 1, 2, 3].map(|n| (at(n) - 2, at(n) - 1))
    });
    let mut rng = Rng::new(7);
    let mut t = large_flight(false);
    let random = flood(&mut t, 5_000, |_, flight| {
        [0; 4].map(|_| {
            let from = rng.below(u64::from(flight.max(2))) as u32;
            (from, from + 1 + rng.below(3000) as u32)
        })
    });
    let mut t = large_flight(false);
    let repeated = flood(&mut t, 5_000, |_, flight| [(1, flight), (1, flight), (1, flight), (1, flight)]);
    for (name, cost) in [("tiny", tiny), ("backwards", backwards), ("random", random), ("repeated", repeated)]
    {
        println!("{name}: {cost} steps a segment, ordinary {good}");
        assert!(cost <= 10 * good, "{name}: {cost} steps a segment, an ordinary one {good}");
    }
}

#[test]
fn duplicates_of_a_whole_flight_that_never_were_cost_no_more() {
    let good = good_steps();
    let mut t = large_flight(false);
    let cost = flood(&mut t, 5_000, |_, flight| [(u32::MAX, flight), (0, 0), (0, 0), (0, 0)]);
    assert!(cost <= 10 * good, "{cost} steps a segment, an ordinary one {good}");
}

#[test]
fn echoes_from_before_the_repetitions_in_flight_cost_no_more() {
    let good = good_steps();
    let mut t = large_flight(true);
    let old = t.timestamp();
    // Ten segments are missing, and are repeated as one. Thousands are in flight behind them.
    let _ = flood(&mut t, 100, |i, _| {
        let from = (10 + i as u32) * SMALL;
        [(from, from + SMALL), (0, 0), (0, 0), (0, 0)]
    });
    let _ = t.wait(ms(20));
    assert!(t.pcb.loss_stats().rexmt_fast > 0);
    let before = steps(&t);
    for _ in 0..50 {
        let mut header = t.ack_of(2, WND);
        header.options.timestamps = Some(Timestamps { val: 200, ecr: old });
        let _ = t.input(header, &[]);
        assert_eq!((t.pcb.info(0, t.now).ca_state, t.pcb.loss_stats().undo_count), (CaState::Recovery, 0));
    }
    let cost = (steps(&t) - before) / 50;
    assert!(cost <= 10 * good, "{cost} steps a segment, an ordinary one {good}");
}

#[test]
fn the_smallest_mss_is_bounded_so_a_flight_is_of_few_segments() {
    let s = Settings { sack: true, mss: 1, ..plain() };
    let mut t = Script::established(&s);
    let sent = t.write(100_000);
    assert!(sent.len() <= 20, "{} segments for one window", sent.len());
}

#[test]
fn tiny_segments_out_of_order_are_bounded_in_number_and_still_reported() {
    let mut t = Script::established(&Settings { sack: true, ..plain() });
    for i in 0..20_000u32 {
        let offset = 2 + (i * 7919) % 40_000;
        let header = super::super::segment::Header { seq: SeqNum::new(IRS + 1 + offset), ..t.seg(ACK) };
        let _ = t.input(header, &[1]);
        if i % 64 == 0 {
            assert!(t.output().iter().all(|s| !s.header().options.sack.is_empty()));
        }
    }
    let sent = t.output();
    assert!(sent.len() <= 256);
}

#[test]
fn counters_of_losses_stop_at_their_largest_value() {
    let full = |t: &mut Script| {
        if let Some(loss) = t.pcb.loss.as_deref_mut() {
            let most = u32::MAX;
            loss.stats = LossStats {
                recovery_count: most,
                rto_count: most,
                probe_count: most,
                undo_count: most,
                dsack_count: most,
                renege_count: most,
                ..loss.stats
            };
        }
    };
    let mut t = Script::established(&Settings { sack: true, ..plain() });
    t.write(30 * MSS);
    full(&mut t);
    t.now = t.now + ms(10);
    t.report(0, &[(1, 4)]);
    assert_eq!(t.places(), [0, 10], "fast recovery");
    t.report(4, &[(0, 1)]);
    t.output();
    let _ = t.wait(secs(1));
    t.report(4, &[(4, 5)]);
    let _ = t.wait(secs(10));
    let stats = t.pcb.loss_stats();
    for count in [stats.recovery_count, stats.rto_count, stats.probe_count, stats.undo_count] {
        assert_eq!(count, u32::MAX);
    }
    assert_eq!((stats.dsack_count, stats.renege_count), (u32::MAX, u32::MAX));
}
