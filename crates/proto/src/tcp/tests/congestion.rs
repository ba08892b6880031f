//! Congestion control over a whole connection: the choice of algorithm, and the throughput of a long fat path.

use core::time::Duration;

use super::super::cc::{Algorithm, Cc};
use super::super::settings::{PacingMode, Settings};
use super::script::{MSS, Script, WND, ms, plain};
use super::world::{Link, World, pattern};

/// 80 Mbit/s at 100 ms are a megabyte in flight; the queue has no bound, and two segments are lost.
fn time_for_ten_megabytes(congestion_control: Algorithm) -> Duration {
    const BYTES: usize = 10_000_000;
    let link = Link { delay_us: 50_000, rate: 10_000, ..Link::CLEAN };
    let s = Settings { rcv_buf: 1 << 20, congestion_control, ..Settings::default() };
    let mut w = World::established(11, s.clone(), s, link);
    w.drop_data = vec![700, 3_000];
    w.ends[0].to_write = pattern(BYTES, 3);
    w.ends[0].snd_hiwat = 1 << 20;
    let start = w.now;
    w.run("transfer", |w| w.ends[1].received.len() == BYTES);
    assert!(w.ends[1].received == w.ends[0].to_write);
    let stats = w.ends[0].pcb().loss_stats();
    assert_eq!((stats.recovery_count, stats.rto_count, stats.undo_count), (2, 0, 0), "{stats:?}");
    w.now.since(start)
}

#[test]
fn cubic_carries_more_over_a_long_fat_path_with_losses_than_newreno() {
    let (newreno, cubic) =
        (time_for_ten_megabytes(Algorithm::NewReno), time_for_ten_megabytes(Algorithm::Cubic));
    assert!(cubic * 10 < newreno * 8, "cubic {cubic:?}, newreno {newreno:?}");
}

#[test]
fn a_path_without_losses_uses_newreno_with_every_setting() {
    for congestion_control in Algorithm::ALL.iter().copied() {
        let s = Settings { lossless: true, congestion_control, ..Settings::default() };
        let w = World::established(1, s.clone(), s, Link::CLEAN);
        for end in &w.ends {
            assert_eq!(end.pcb.as_ref().unwrap().cc.algorithm(), Algorithm::NewReno);
        }
    }
}

#[test]
fn a_connection_keeps_its_algorithm_through_the_handshake() {
    for congestion_control in Algorithm::ALL.iter().copied() {
        let s = Settings { congestion_control, ..Settings::default() };
        let mut w = World::established(1, s.clone(), s, Link::CLEAN);
        w.ends[0].to_write = pattern(100_000, 3);
        w.run("transfer", |w| w.ends[1].received.len() == 100_000);
        for end in &w.ends {
            assert_eq!(end.pcb.as_ref().unwrap().cc.algorithm(), congestion_control);
        }
    }
}

#[test]
fn an_algorithm_chosen_later_begins_with_the_window_that_there_is() {
    for (from, to) in [(Algorithm::NewReno, Algorithm::Cubic), (Algorithm::Cubic, Algorithm::NewReno)] {
        let mut t = Script::established(&Settings { sack: true, congestion_control: from, ..plain() });
        for _ in 0..3 {
            let _ = t.write(20 * MSS);
            let bytes = t.pcb.snd_max().since(t.pcb.snd_una());
            t.now = t.now + ms(10);
            let _ = t.input(t.ack_of(bytes, WND), &[]);
        }
        let before = (t.pcb.cwnd(), t.pcb.ssthresh());
        assert!(before.0 > 20 * MSS);
        t.pcb.set_congestion_control(to);
        assert_eq!(t.pcb.congestion_control(), to);
        assert_eq!((t.pcb.cwnd(), t.pcb.ssthresh()), before);
    }
}

/// What a writer with pauses gets through says nothing about the path.
#[test]
fn bbr_does_not_take_the_rate_of_a_slow_writer_for_that_of_the_path() {
    let settings = Settings { sack: true, congestion_control: Algorithm::Bbr, ..plain() };
    let mut t = Script::established(&settings);
    let round = |t: &mut Script, bytes: u32| {
        let _ = t.write(bytes);
        t.now = t.now + ms(10);
        let sent = t.pcb.snd_max().since(t.pcb.snd_una());
        let _ = t.input(t.ack_of(sent, WND), &[]);
        t.pcb.info(0, t.now).pacing_rate.map_or(0, u64::from)
    };
    let first = round(&mut t, MSS);
    assert!(first > 1_000_000, "the initial window in a round trip, and more: {first} bytes a second");
    let later = (0..20).map(|_| round(&mut t, MSS)).last();
    assert_eq!(later, Some(first), "of {} bytes a second", MSS * 100);
}

/// HyStart's train: text that is not paced leaves at once, so acknowledgments that come over half a round trip say that the path is full.
#[test]
fn acknowledgments_over_half_a_round_trip_end_the_slow_start_of_text_that_is_not_paced() {
    for pacing in [PacingMode::Auto, PacingMode::Off] {
        let settings = Settings { sack: true, congestion_control: Algorithm::Cubic, pacing, ..plain() };
        let mut t = Script::established(&settings);
        for (bytes, at_a_time) in [(10 * MSS, 10 * MSS), (20 * MSS, MSS)] {
            assert_eq!(t.write(bytes).len() as u32, bytes / MSS);
            t.now = t.now + ms(20);
            for _ in 0..bytes / at_a_time {
                let _ = t.input(t.ack_of(at_a_time, WND), &[]);
                t.now = t.now + ms(1);
            }
        }
        assert!(t.pcb.ssthresh() < 40 * MSS, "{pacing:?}: {}", t.pcb.ssthresh());
    }
}

/// Where little is left in flight at the end of a recovery, the window is refilled at a pace, or by slow start from what may leave at once.
#[test]
fn a_large_window_is_refilled_behind_a_recovery_at_a_pace_or_by_slow_start() {
    for (pacing, is_paced) in [(PacingMode::Auto, true), (PacingMode::Off, false)] {
        let settings = Settings { sack: true, congestion_control: Algorithm::Cubic, pacing, ..plain() };
        let mut t = Script::established(&settings);
        t.pcb.scale.snd = 8;
        let mut acked = 0;
        while t.pcb.cwnd() < 600 * MSS {
            let segments = t.pcb.cwnd() / MSS;
            t.write(segments * MSS);
            t.now = t.now + ms(10);
            acked += segments;
            t.report(acked, &[]);
        }
        t.write(5 * MSS);
        t.now = t.now + ms(10);
        t.report(acked, &[(acked + 1, acked + 5)]);
        t.output();
        t.now = t.now + ms(10);
        t.report(acked + 5, &[]);
        let (cwnd, ssthresh) = (t.pcb.cwnd(), t.pcb.ssthresh());
        assert!(ssthresh > 400 * MSS && ssthresh < 600 * MSS, "{ssthresh}");
        assert_eq!(cwnd >= ssthresh, is_paced, "{pacing:?}: {cwnd} of {ssthresh}");
    }
}

/// Over a round trip of 10 ms: twice the window below half of the threshold, and a fifth more from there on.
#[test]
fn a_window_is_paced_with_room_to_grow() {
    let mut t = Script::established(&Settings { sack: true, ..plain() });
    assert_eq!(t.pcb.srtt(), Some(ms(10)));
    for (cwnd, percent) in [(4_999, 200), (5_000, 120), (10_000, 120), (20_000, 120)] {
        t.pcb.cc = Cc::new(Algorithm::NewReno, MSS, false).with_window(cwnd, 10_000);
        assert_eq!(t.pcb.window_rate().map(u64::from), Some(u64::from(cwnd) * 100 * percent / 100), "{cwnd}");
    }
}
