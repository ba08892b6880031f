//! What is recorded, how much of what is lost goes again, and when: step by step.

use super::super::super::cc::{Algorithm, Cc};
use super::super::super::segment::Flags;
use super::super::super::settings::Settings;
use super::super::super::tests::script::{ISS, MSS, Script, WND, ms, plain, secs};
use super::super::prr::Prr;
use super::super::undo::Frto;
use super::*;

fn settings() -> Settings {
    Settings { sack: true, ..plain() }
}

fn loss(t: &mut Script) -> &mut Loss {
    t.pcb.loss.as_deref_mut().expect("records are kept")
}

/// `count` full segments are in flight, and `more` bytes wait behind them.
fn in_flight(s: &Settings, count: u32, more: u32) -> Script {
    let mut t = Script::established(s);
    t.write(count * MSS);
    t.snd += more;
    t.pcb.snd_len = t.snd;
    t.now = t.now + ms(10);
    t
}

/// All of ten segments, and what is behind them, is lost after a timeout.
fn all_lost(s: &Settings) -> Script {
    let mut t = in_flight(s, 10, 0);
    assert!(t.pcb.lose_overdue(true, true, t.now));
    loss(&mut t).records.lose_all();
    t.pcb.recovery.on_timeout(t.pcb.snd_max);
    t
}

#[test]
fn only_the_first_new_segment_of_a_write_shows_a_window_that_was_not_used() {
    // New or again; something new has left since the last look; the output is a write's.
    for (is_new, has_sent, is_write, left) in [
        (true, false, true, 25),
        (true, true, true, 40),
        (true, false, false, 40),
        (true, true, false, 40),
        (false, false, true, 40),
        (false, true, true, 40),
    ] {
        let mut t = Script::established(&settings());
        for (count, sum) in [(10, 10), (20, 30), (1, 31)] {
            t.write(count * MSS);
            t.now = t.now + ms(10);
            t.report(sum, &[]);
        }
        assert_eq!(t.pcb.cwnd(), 40 * MSS);
        t.write(MSS);
        t.now = t.now + secs(1);
        if is_new {
            t.pcb.snd_max += MSS;
        }
        let end = t.pcb.snd_max;
        loss(&mut t).has_sent = has_sent;
        t.pcb.nagle.set_write(is_write);
        t.pcb.record(end - MSS, end, t.now);
        assert_eq!(t.pcb.cwnd(), left * MSS, "{is_new} {has_sent} {is_write}");
        assert_eq!(loss(&mut t).has_sent, is_new || has_sent);
    }
}

#[test]
fn a_fin_is_a_segment_of_its_own_only_without_text() {
    for (text, has_fin, count) in [
        (1000, true, 1),
        (2000, true, 2),
        (999, true, 1),
        (1001, true, 2),
        (0, true, 1),
        (1000, false, 1),
        (1001, false, 2),
    ] {
        let mut t = Script::established(&settings());
        t.pcb.fin_sent = has_fin;
        let (start, end) = (t.pcb.snd_una, t.pcb.snd_una + (text + u32::from(has_fin)));
        t.pcb.snd_max = end;
        t.pcb.record(start, end, t.now);
        assert_eq!(loss(&mut t).records.counts().all(), count, "{text} {has_fin}");
        // Again it takes the same.
        t.pcb.record(start, end, t.now);
        assert_eq!(loss(&mut t).records.counts().all(), count, "{text} {has_fin} again");
    }
}

#[test]
fn what_leaves_starts_the_timer_of_probes_only_while_nothing_is_wrong() {
    for (is_repairing, is_disordered, starts) in
        [(false, false, true), (false, true, false), (true, false, false), (true, true, false)]
    {
        let mut t = in_flight(&settings(), 3, 0);
        loss(&mut t).is_disordered = is_disordered;
        loss(&mut t).probe_at = NEVER;
        if is_repairing {
            t.pcb.recovery.begin(t.pcb.snd_max);
        }
        let end = t.pcb.snd_max;
        t.pcb.snd_max = end + MSS;
        t.pcb.record(end, end + MSS, t.now);
        assert_eq!(loss(&mut t).probe_at != NEVER, starts, "{is_repairing} {is_disordered}");
    }
}

#[test]
fn the_timer_of_probes_is_no_later_than_the_retransmission_and_waits_for_a_measurement() {
    // SRTT is 10 ms: two of them and 2 ms, and the retransmission's where that is earlier, if it is not past.
    for (due_us, wait_us) in
        [(50_000, 22_000), (22_001, 22_000), (21_999, 21_999), (1, 1), (0, 22_000), (-5, 22_000)]
    {
        let mut t = in_flight(&settings(), 3, 0);
        let mut l = t.pcb.loss.take().unwrap();
        let due = Instant::from_micros(t.now.as_micros().checked_add_signed(due_us).unwrap());
        t.pcb.arm_probe(&mut l, due, t.now);
        assert_eq!(l.probe_at, after_us(t.now, wait_us), "{due_us}");
    }
    let probe = Some(Probe { end: SeqNum::new(ISS), repeats: false, len: 0 });
    for (unmeasured, probe, is_disordered, sack_ok, starts) in [
        (false, None, false, true, true),
        (true, None, false, true, false),
        (true, probe, false, true, true),
        (false, probe, false, true, true),
        (false, None, true, true, false),
        (false, None, false, false, false),
    ] {
        let mut t = in_flight(&settings(), 3, 0);
        t.pcb.sack_ok = sack_ok;
        let mut l = t.pcb.loss.take().unwrap();
        (l.probe_unmeasured, l.probe, l.is_disordered, l.probe_at) =
            (unmeasured, probe, is_disordered, NEVER);
        t.pcb.arm_probe(&mut l, NEVER, t.now);
        assert_eq!(l.probe_at != NEVER, starts, "{unmeasured} {probe:?} {is_disordered} {sack_ok}");
    }
}

/// On Linux the two timers are one (`tcp_event_new_data_sent`).
#[test]
fn text_behind_a_duplicate_gives_the_timer_of_probes_back_to_the_first_segment() {
    for (waits, gives_back) in [(false, false), (true, true)] {
        let mut t = in_flight(&settings(), 3, 0);
        let first = after_us(loss(&mut t).records.first().unwrap().sent_at, t.pcb.rtt.rto_us(u32::MAX));
        t.pcb.rexmt_at = after_us(first, 50_000);
        loss(&mut t).is_disordered = true;
        loss(&mut t).probe_at = if waits { after_us(t.now, 1_000) } else { NEVER };
        let end = t.pcb.snd_max;
        t.pcb.snd_max = end + MSS;
        t.pcb.record(end, end + MSS, t.now);
        assert_eq!(loss(&mut t).probe_at, NEVER, "{waits}");
        assert_eq!(t.pcb.rexmt_at == first, gives_back, "{waits}");
    }
}

#[test]
fn the_pace_is_that_of_congestion_control_or_of_the_window_within_the_program_s_bound() {
    use PacingMode::{Auto, Off, On};
    let window = 2_400_000;
    // NewReno has no pace: 1.2 windows of ten segments would leave in 10 ms, or two in slow start.
    for (pacing, bound, expected) in [
        (Off, None, None),
        (Auto, None, None),
        (On, None, Some(window / 2 * 2)),
        (Off, Some(5_000), Some(5_000)),
        (Auto, Some(5_000), Some(5_000)),
        (On, Some(5_000), Some(5_000)),
        (Auto, Some(9_000_000), Some(window)),
    ] {
        let mut t = Script::established(&Settings { pacing, ..settings() });
        t.pcb.set_max_pacing_rate(bound);
        let rate = t.pcb.pacing_rate().map(NonZeroU64::get);
        match expected {
            Some(rate_of_window) if rate_of_window == window => {
                assert_eq!(rate, t.pcb.window_rate().map(NonZeroU64::get))
            }
            other => assert_eq!(rate, other, "{pacing:?} {bound:?}"),
        }
    }
    // BBR has its own, which nothing but `Off` takes from it.
    for (pacing, bound, has_own) in
        [(Auto, None, true), (On, None, true), (Off, None, false), (Off, Some(u64::MAX), true)]
    {
        let s = Settings { pacing, congestion_control: Algorithm::Bbr, ..settings() };
        let mut t = in_flight(&s, 3, 0);
        t.report(3, &[]);
        t.pcb.set_max_pacing_rate(bound);
        let own = t.pcb.cc.pacing_rate();
        assert!(own.is_some());
        assert_eq!(t.pcb.pacing_rate(), own.filter(|_| has_own), "{pacing:?}");
    }
}

#[test]
fn there_is_something_unsent_while_text_or_a_fin_waits() {
    let mut t = Script::established(&settings());
    assert!(!t.pcb.has_unsent());
    t.snd = 500;
    t.pcb.snd_len = 500;
    assert!(t.pcb.has_unsent());
    t.output();
    assert!(!t.pcb.has_unsent());
    t.pcb.shutdown_write();
    assert!(t.pcb.has_unsent(), "a FIN");
    t.output();
    assert!(!t.pcb.has_unsent());
    let _ = t.input(t.ack_of(501, WND), &[]);
    assert!(!t.pcb.has_unsent(), "it is acknowledged");
}

#[test]
fn no_part_of_a_segment_goes_again_but_where_the_peer_takes_no_more() {
    // The window of the peer, of congestion control, and what the device takes at once, bytes.
    for (wnd, cwnd, tso, expected) in [
        (50_000, 13, 3_000, Some(3_000)),
        (2_500, 13, 3_000, Some(2_000)),
        (2_000, 13, 3_000, Some(2_000)),
        (1_500, 13, 3_000, Some(1_000)),
        (1_000, 13, 3_000, Some(1_000)),
        (500, 13, 3_000, Some(500)),
        (0, 13, 3_000, Some(1_000)),
        (50_000, 12, 3_000, Some(2_000)),
        (2_500, 12, 3_000, Some(2_000)),
        (50_000, 10, 3_000, None),
        (50_000, 13, 1, Some(1_000)),
        (50_000, 13, 2_500, Some(2_500)),
    ] {
        let mut t = all_lost(&Settings { tso_max: tso, ..settings() });
        // The window is deflated by all that is outstanding.
        t.pcb.recovery.inflate(0);
        let beyond = cwnd * MSS as i32 - t.pcb.cwnd() as i32;
        t.pcb.recovery.inflate(beyond);
        t.pcb.snd_wnd = wnd;
        let again = t.pcb.transmit_lost(t.space, u32::MAX, t.now);
        assert_eq!(again.map(|segment| segment.len), expected, "{wnd} {cwnd} {tso}");
    }
    let mut t = all_lost(&Settings { tso_max: 3_000, ..settings() });
    t.pcb.allow_a_segment();
    t.pcb.recovery.inflate(9_000);
    let again = t.pcb.transmit_lost(t.space, 2_000, t.now);
    assert_eq!(again.map(|segment| segment.len), Some(2_000), "no more at once");
}

#[test]
fn the_reason_of_a_repetition_is_counted() {
    let mut t = in_flight(&Settings { mtu_min: 576, ..settings() }, 10, 0);
    let seq = t.pcb.snd_una;
    assert!(t.pcb.on_packet_too_big(seq, 900, t.now));
    assert!(!t.output().is_empty());
    let stats = t.pcb.loss_stats();
    assert!(stats.rexmt_mtu > 0);
    assert_eq!((stats.rexmt_fast, stats.rexmt_rto, stats.rexmt_probe), (0, 0, 0));
    let mut t = all_lost(&settings());
    t.pcb.allow_a_segment();
    assert!(t.pcb.transmit_lost(t.space, MSS, t.now).is_some());
    assert_eq!((t.pcb.loss_stats().rexmt_rto, t.pcb.loss_stats().rexmt_fast), (1, 0));
    let mut t = in_flight(&settings(), 10, 0);
    t.report(0, &[(1, 5)]);
    t.output();
    assert_eq!((t.pcb.loss_stats().rexmt_fast, t.pcb.loss_stats().rexmt_rto), (1, 0));
}

#[test]
fn short_segments_go_again_as_one_and_a_fin_takes_no_room_of_it() {
    for (fin, lens) in [(false, [300, 300, 400]), (true, [300, 300, 400])] {
        let mut t = Script::established(&Settings { nodelay: true, ..settings() });
        for (i, len) in lens.into_iter().enumerate() {
            t.snd += len;
            if i == 2 && fin {
                t.pcb.shutdown_write();
            }
            assert_eq!(t.lens(), [len]);
        }
        assert_eq!(loss(&mut t).records.counts().all(), 3);
        t.now = t.now + secs(1);
        assert!(t.pcb.lose_overdue(true, true, t.now));
        loss(&mut t).records.lose_all();
        t.pcb.recovery.on_timeout(t.pcb.snd_max);
        t.pcb.recovery.inflate(MSS as i32);
        let again = t.pcb.transmit_lost(t.space, u32::MAX, t.now).unwrap();
        assert_eq!((again.len, again.header().flags.has(Flags::FIN)), (1_000, fin));
        assert_eq!(loss(&mut t).records.counts().all(), 1, "one segment now");
    }
}

/// A window of `cwnd` segments.
fn set_window(t: &mut Script, cwnd: u32) {
    t.pcb.cc = Cc::new(Algorithm::NewReno, MSS, false).with_window(cwnd * MSS, MSS);
    let loss = t.pcb.loss.take().expect("records are kept");
    t.pcb.allow(&loss);
    t.pcb.loss = Some(loss);
}

/// `tcp_retransmit_timer`: two short segments that are joined with the first make room for another.
#[test]
fn a_timeout_sends_one_segment_again_even_if_that_joins_several() {
    for (one, lens) in [(true, &[1_000][..]), (false, &[1_000, 1_000])] {
        let mut t = Script::established(&Settings { nodelay: true, ..settings() });
        for len in [300, 300, 400, 1_000] {
            t.snd += len;
            assert_eq!(t.lens(), [len]);
        }
        t.now = t.now + ms(10);
        t.pcb.recovery.on_timeout(t.pcb.snd_max);
        let last = t.pcb.snd_una + 1_000;
        let recorded = loss(&mut t);
        assert_eq!(recorded.records.lose_first(300), 300);
        recorded.records.lose_from(last);
        (recorded.is_only_repair, recorded.repeats_one) = (true, one);
        set_window(&mut t, 3);
        assert_eq!(t.lens(), lens, "{one}");
        assert_eq!(loss(&mut t).holds_repairs, one);
        // Until the next acknowledgment.
        t.report(0, &[]);
        assert!(!loss(&mut t).holds_repairs);
    }
}

/// A short segment in flight counts as one of the smaller ones then.
#[test]
fn a_report_of_a_smaller_mtu_leaves_room_beside_a_short_segment() {
    let mut t = Script::established(&Settings { mtu_min: 576, ..settings() });
    t.snd += 10;
    assert_eq!(t.lens(), [10]);
    set_window(&mut t, 2);
    let seq = t.pcb.snd_una;
    assert!(t.pcb.on_packet_too_big(seq, 640, t.now));
    assert!(t.output().is_empty());
    let smaller = u32::from(t.pcb.send_mss());
    t.snd += 3 * MSS;
    assert!(smaller < MSS);
    assert_eq!(t.lens(), [smaller]);
}

#[test]
fn a_fin_goes_again_with_a_segment_that_fills_the_window_of_a_timeout() {
    for (wnd, fin) in [(2 * MSS, true), (MSS, true), (MSS - 1, false)] {
        let mut t = Script::established(&settings());
        t.snd += MSS;
        t.pcb.shutdown_write();
        assert_eq!(t.lens(), [MSS]);
        t.now = t.now + secs(1);
        assert!(t.pcb.lose_overdue(true, true, t.now));
        t.pcb.recovery.on_timeout(t.pcb.snd_max);
        t.pcb.recovery.inflate(MSS as i32);
        t.pcb.snd_wnd = wnd;
        let again = t.pcb.transmit_lost(t.space, u32::MAX, t.now).unwrap();
        assert_eq!((again.len, again.header().flags.has(Flags::FIN)), (wnd.min(MSS), fin), "{wnd}");
    }
}

#[test]
fn the_timer_starts_anew_for_the_first_segment_unless_that_of_reordering_runs() {
    for (at_una, reorders, starts) in
        [(true, false, true), (true, true, false), (false, false, false), (false, true, false)]
    {
        let mut t = in_flight(&settings(), 10, 0);
        if at_una {
            t.report(0, &[(1, 5)]);
        } else {
            t.report(0, &[(2, 5)]);
            let _ = t.pcb.transmit_lost(t.space, MSS, t.now).unwrap();
        }
        loss(&mut t).reorder_at = if reorders { t.now + ms(1) } else { NEVER };
        t.pcb.recovery.inflate(20_000);
        let before = t.now + secs(7);
        t.pcb.rexmt_at = before;
        let again = t.pcb.transmit_lost(t.space, MSS, t.now).unwrap();
        assert_eq!(t.place_of(&again), u32::from(!at_una));
        assert_eq!(t.pcb.rexmt_at != before, starts, "{at_una} {reorders}");
    }
}

#[test]
fn lost_text_goes_on_at_a_place_if_both_windows_take_a_segment_of_it() {
    let mut t = in_flight(&settings(), 10, 0);
    t.report(0, &[(3, 10)]);
    let rest = t.pcb.snd_una;
    assert!(loss(&mut t).records.is_lost_at(rest));
    for (offset, room, wnd, expected) in [
        (0, MSS, 50_000, true),
        (2 * MSS, MSS, 50_000, true),
        (3 * MSS, MSS, 50_000, false),
        (0, MSS - 1, 50_000, false),
        (0, MSS + 1, 50_000, true),
        (2 * MSS, MSS, 2 * MSS, false),
        (2 * MSS, MSS, 2 * MSS + 1, true),
    ] {
        let beyond = i64::from(t.pcb.flight() + room) - i64::from(t.pcb.cwnd());
        t.pcb.recovery.inflate(beyond as i32);
        t.pcb.snd_wnd = wnd;
        assert_eq!(t.pcb.repeats_at(offset), expected, "{offset} {room} {wnd}");
    }
    // Without records SND.NXT is where text is sent again.
    for (more, expected) in [(0, false), (MSS, true)] {
        let mut t = Script::established(&Settings { lossless: true, ..settings() });
        t.write(MSS);
        t.snd += more;
        t.pcb.snd_len = t.snd;
        assert_eq!(t.pcb.repeats_at(MSS), expected);
    }
}

#[test]
fn a_probe_takes_the_fin_along_where_the_window_has_room_for_it() {
    // Ten segments are out, 500 bytes and a FIN wait for the congestion window.
    for (wnd, place, len, has_fin) in [
        (10_502, 10, 500, true),
        (10_501, 10, 500, true),
        (10_500, 10, 500, false),
        (10_499, 9, 1_000, false),
    ] {
        let mut t = in_flight(&settings(), 10, 500);
        t.pcb.shutdown_write();
        t.pcb.snd_wnd = wnd;
        let probe = t.pcb.transmit_tail_probe(t.space, t.now).unwrap();
        assert_eq!((t.place_of(&probe), probe.len), (place, len), "{wnd}");
        assert_eq!(probe.header().flags.has(Flags::FIN), has_fin, "{wnd}");
        let repeats = place == 9;
        assert_eq!(
            loss(&mut t).probe.map(|probe| (probe.repeats, probe.len)),
            Some((repeats, if repeats { 1_000 } else { 0 }))
        );
        let until = loss(&mut t).repeated_until;
        assert_eq!(until, SeqNum::new(ISS + 1), "a probe is no repair");
    }
    // More than a segment waits: the FIN is not behind what goes.
    let mut t = in_flight(&settings(), 10, 1_500);
    t.pcb.shutdown_write();
    let probe = t.pcb.transmit_tail_probe(t.space, t.now).unwrap();
    assert_eq!((probe.len, probe.header().flags.has(Flags::FIN)), (1_000, false));
}

#[test]
fn a_fin_goes_again_with_all_of_its_text_into_a_window_that_has_just_room_for_that() {
    for (wnd, len, has_fin) in [(501, 500, true), (500, 500, true), (499, 499, false)] {
        let mut t = in_flight(&settings(), 10, 0);
        t.pcb.recovery.inflate(10_000);
        t.snd += 500;
        t.pcb.shutdown_write();
        assert_eq!(t.lens(), [500]);
        let _ = t.input(t.ack_of(10_000, 50_000), &[]);
        t.pcb.snd_wnd = wnd;
        loss(&mut t).records.lose_all();
        t.pcb.recovery.on_timeout(t.pcb.snd_max);
        let again = t.pcb.transmit_lost(t.space, u32::MAX, t.now).unwrap();
        assert_eq!((again.len, again.header().flags.has(Flags::FIN)), (len, has_fin), "{wnd}");
    }
}

#[test]
fn an_edge_that_may_have_been_rounded_down_is_taken_for_the_end_of_the_text() {
    // All 10,000 bytes are out; units of 16 bytes.
    for (wnd, scale, edge) in [
        (50_000, 4, 50_000),
        (10_001, 4, 10_001),
        (10_000, 4, 10_000),
        (9_999, 4, 10_000),
        (9_985, 4, 10_000),
        (9_984, 4, 9_984),
        (9_983, 4, 9_983),
        (9_999, 0, 9_999),
        (0, 14, 0),
        (1, 14, 10_000),
    ] {
        let mut t = in_flight(&settings(), 10, 0);
        (t.pcb.snd_wnd, t.pcb.scale.snd) = (wnd, scale);
        let una = t.pcb.snd_una;
        assert_eq!(t.pcb.repeat_edge().since(una), edge, "{wnd} {scale}");
    }
}

#[test]
fn a_timeout_without_records_is_counted_too() {
    let mut t = in_flight(&Settings { lossless: true, ..settings() }, 3, 0);
    let _ = t.wait(secs(1));
    assert!(t.pcb.loss_stats().rto_count > 0);
}

#[test]
fn the_handshake_of_a_listener_measures_no_segment_of_ours() {
    for (syn_is_timed, moved, expected) in
        [(true, 0, true), (false, 0, false), (false, 1, true), (true, 1, true)]
    {
        let mut t = in_flight(&settings(), 3, 0);
        t.pcb.syn_is_timed = syn_is_timed;
        t.pcb.snd_una += moved;
        let srtt_us = t.pcb.rtt.srtt_us();
        assert_eq!(t.pcb.known_round_trip(), (srtt_us, if expected { srtt_us } else { 0 }));
    }
}

/// Linux keeps them for as long as the connection lives, the least for five minutes at most.
#[test]
fn the_least_and_the_latest_round_trip_outlive_the_memory_of_losses() {
    let mut t = Script::established(&settings());
    for (sum, took) in [(1, 7), (2, 20)] {
        t.write(MSS);
        t.now = t.now + ms(took);
        t.report(sum, &[]);
    }
    for (pause, took, least) in [(secs(2), ms(20), ms(7)), (secs(301), ms(50), ms(50))] {
        let _ = t.wait(pause);
        assert!(t.pcb.loss.is_none());
        assert_eq!(t.pcb.known_round_trip(), (7_000, 20_000));
        assert_eq!(t.pcb.info(0, t.now).min_rtt, Some(ms(7)));
        t.write(MSS);
        t.now = t.now + took;
        let _ = t.input(t.ack_of(MSS, WND), &[]);
        assert_eq!(t.pcb.info(0, t.now).min_rtt, Some(least));
    }
}

#[test]
fn the_program_limits_the_rate_while_less_than_a_window_is_out() {
    for (out, limited) in [(9, true), (10, false), (11, false)] {
        let s = Settings { congestion_control: Algorithm::Bbr, ..settings() };
        let mut t = in_flight(&s, 3, 0);
        t.pcb.snd_max = t.pcb.snd_una + out * MSS;
        assert_eq!(t.pcb.cwnd(), 10 * MSS);
        loss(&mut t).rate = super::super::rate::Rate::new(Instant::ZERO);
        t.pcb.note_app_limited();
        let rate = &mut loss(&mut t).rate;
        let number = rate.on_sent(Instant::from_micros(9_000_000), false);
        assert_eq!(rate.loss_sample(number).unwrap().app_limited, limited, "{out}");
    }
}

/// The next write looks whether the window is used, and new data may follow.
#[test]
fn only_repairs_are_sent_behind_a_timer_and_before_the_next_look() {
    for (is_only_repair, waits, is_looked_at, expected) in [
        (false, false, false, false),
        (true, false, false, true),
        (false, true, false, true),
        (false, true, true, false),
        (true, true, true, true),
    ] {
        let mut t = in_flight(&settings(), 3, 0);
        let loss = loss(&mut t);
        (loss.is_only_repair, loss.waits_for_look, loss.is_looked_at) = (is_only_repair, waits, is_looked_at);
        assert_eq!(loss.sends_only_repairs(), expected, "{is_only_repair} {waits} {is_looked_at}");
    }
}

/// A short segment counts as a whole one, and a FIN as none beside text (`tcp_cwnd_reduction`).
#[test]
fn what_leaves_in_a_recovery_is_counted_in_whole_segments() {
    for (text, has_fin, count) in
        [(MSS, false, 1), (MSS + 1, false, 2), (MSS, true, 1), (MSS - 1, true, 1), (0, true, 1)]
    {
        let mut t = in_flight(&settings(), 3, 0);
        let start = t.pcb.snd_max;
        t.pcb.recovery.begin(start);
        let mut prr = Prr::new(10 * MSS);
        prr.on_ack(5 * MSS, false, 0, 20 * MSS, MSS);
        loss(&mut t).prr = prr;
        t.pcb.fin_sent = has_fin;
        t.pcb.snd_max = start + (text + u32::from(has_fin));
        t.pcb.record(start, t.pcb.snd_max, t.now);
        let prr = &mut loss(&mut t).prr;
        prr.on_ack(1, false, 0, 20 * MSS, MSS);
        assert_eq!(prr.cwnd(), (5 - count) * MSS + 1, "{text} {has_fin}");
    }
}

#[test]
fn f_rto_waits_for_a_fin_that_both_windows_have_room_for() {
    for (count, wnd, waits) in [(3, 10, true), (3, 3, false), (10, 20, false)] {
        let mut t = in_flight(&settings(), count, 0);
        t.pcb.shutdown_write();
        t.pcb.snd_wnd = wnd * MSS;
        let recover = t.pcb.snd_max;
        loss(&mut t).frto = Some(Frto { recover, tries_new_data: true, pushes: false });
        assert_eq!(t.pcb.keeps_trying_new_data(), waits, "{count} {wnd}");
        assert_eq!(loss(&mut t).frto.is_some(), waits, "{count} {wnd}");
    }
}
