//! What a report leads to, conclusion by conclusion.

use super::super::*;
use crate::tcp::cc::{Algorithm, Cc, Usage};
use crate::tcp::settings::Settings;
use crate::tcp::tests::script::{MSS, Script, ms, plain, secs};

fn settings() -> Settings {
    Settings { sack: true, ..plain() }
}

fn loss(t: &mut Script) -> &mut Loss {
    t.pcb.loss.as_deref_mut().expect("records are kept")
}

/// So many full segments are in flight, for a round trip.
fn in_flight(s: &Settings, count: u32) -> Script {
    let mut t = Script::established(s);
    t.write(count * MSS);
    t.now = t.now + ms(10);
    t
}

/// A window of 40 segments, `out` of which are out.
fn of_forty(s: &Settings, out: u32) -> Script {
    let mut t = Script::established(s);
    for (count, sum) in [(10, 10), (20, 30)] {
        t.write(count * MSS);
        t.now = t.now + ms(10);
        t.report(sum, &[]);
    }
    assert_eq!(t.pcb.cwnd(), 40 * MSS);
    t.write(out * MSS);
    t
}

fn after_report(t: &mut Script, report: &Report) {
    t.pcb.after_report(report, None, t.now);
}

#[test]
fn the_use_of_the_window_is_looked_at_where_something_new_has_left_or_waits() {
    for (has_sent, passes, waits, looks) in [
        (false, false, false, false),
        (false, false, true, true),
        (false, true, true, false),
        (true, true, false, true),
        (true, false, false, true),
        (false, true, false, false),
    ] {
        let mut t = in_flight(&settings(), 10);
        t.pcb.snd_len += if waits { MSS } else { 0 };
        let l = loss(&mut t);
        (l.has_sent, l.usage.is_untold) = (has_sent, true);
        t.pcb.nagle.set_write(true);
        t.pcb.look_at_usage_after(!passes);
        t.pcb.look_at_usage(t.now);
        let l = loss(&mut t);
        assert_eq!(l.usage.is_untold, !looks, "{has_sent} {passes} {waits}");
        assert!(!l.has_sent);
        assert!(!t.pcb.nagle.is_write());
    }
}

#[test]
fn a_window_is_full_where_it_has_no_room_for_another_segment() {
    for (out, is_full) in [(8, false), (9, false), (10, true)] {
        let mut t = in_flight(&settings(), out);
        assert_eq!(loss(&mut t).usage.get(), (is_full, out * MSS), "{out}");
    }
}

#[test]
fn a_window_that_was_not_used_shrinks_while_nothing_is_wrong() {
    // Out of 40 segments, the threshold; repair, disorder, and whether windows shrink at all.
    for (out, ssthresh, is_repair, is_disordered, shrinks, left) in [
        (25, 41, false, false, true, 40),
        (20, 41, false, false, true, 30),
        (25, 40, false, false, true, 32),
        (25, 39, false, false, true, 32),
        (25, 40, true, false, true, 40),
        (25, 40, false, true, true, 40),
        (25, 40, false, false, false, 40),
    ] {
        let mut t = of_forty(&Settings { slow_start_after_idle: shrinks, ..settings() }, out);
        let Cc::NewReno(reno) = &mut t.pcb.cc else { panic!("another algorithm") };
        reno.take_over(40 * MSS, ssthresh * MSS);
        if is_repair {
            t.pcb.recovery.on_timeout(t.pcb.snd_max);
        }
        loss(&mut t).is_disordered = is_disordered;
        let now = t.now;
        loss(&mut t).usage.restart(now);
        t.pcb.validate_window(true, t.now + secs(1));
        assert_eq!(t.pcb.cwnd(), left * MSS, "{out} {ssthresh} {is_repair} {is_disordered} {shrinks}");
    }
}

#[test]
fn an_echo_from_before_a_repetition_is_of_the_original() {
    for (echo, is_ours) in [(None, true), (Some(0), true), (Some(1), true), (Some(u32::MAX), false)] {
        let mut t = in_flight(&Settings { timestamps: true, ..settings() }, 10);
        let (una, mss) = (t.pcb.snd_una, u32::from(t.pcb.mss));
        loss(&mut t).records.lose_from(una);
        let now = t.now;
        loss(&mut t).records.sent(una, una + mss, now, 0);
        let ts = echo.map(|later| Timestamps { val: 0, ecr: t.timestamp().wrapping_add(later) });
        t.now = t.now + ms(20);
        t.pcb.snd_una = una + mss;
        let _ = loss(&mut t).rack.take_news();
        let report = t.pcb.take_report(mss, 10 * mss, (ts, &SackBlocks::default()), t.now).unwrap();
        assert!(report.is_ambiguous);
        assert_eq!(loss(&mut t).rack.take_news(), is_ours, "{echo:?}");
    }
}

#[test]
fn data_at_the_edge_that_is_reported_and_not_acknowledged_is_waited_for_once_the_edge_moves() {
    let mut t = in_flight(&settings(), 10);
    t.report(0, &[(0, 3)]);
    assert!(!loss(&mut t).holds_repairs, "a duplicate");
    t.report(1, &[(1, 3)]);
    assert!(loss(&mut t).holds_repairs);
}

#[test]
fn congestion_control_hears_of_arrivals_progress_and_losses_but_of_nothing_old() {
    for (acked, delivered, is_lost, is_old, hears) in [
        (0, 0, false, false, false),
        (1, 0, false, false, true),
        (0, 1, false, false, true),
        (0, 0, true, false, true),
        (1, 1, false, true, false),
        (0, 0, true, true, false),
    ] {
        let mut t = in_flight(&Settings { congestion_control: Algorithm::Cubic, ..settings() }, 10);
        t.report(1, &[(9, 10)]);
        t.now = t.now + ms(if is_lost { 5 } else { 1 });
        loss(&mut t).rack.look_again();
        let now = t.now;
        // Nothing has used the window.
        loss(&mut t).usage = Usage::new(t.pcb.snd_una, now);
        t.now = t.now + ms(1);
        let before = format!("{:?}", t.pcb.cc);
        let has_segment = acked > 0;
        let report =
            Report { acked, delivered, has_segment, is_old, is_duplicate: true, ..Report::default() };
        after_report(&mut t, &report);
        // It notes the time of each acknowledgment.
        let Cc::Cubic(cubic) = &t.pcb.cc else { panic!("another algorithm") };
        let noted = format!("acked_at: {:?}", t.now);
        assert!(!before.contains(&noted));
        assert_eq!(format!("{cubic:?}").contains(&noted), hears, "{acked} {delivered} {is_lost} {is_old}");
        assert_eq!(loss(&mut t).records.lost() > 0, is_lost);
        let age_us = if acked > 0 { 0 } else { 1_000 };
        let now = t.now;
        assert_eq!(loss(&mut t).usage.age_us(now), age_us, "{acked}");
    }
}

#[test]
fn a_recovery_goes_faster_by_progress_without_losses() {
    for (acked, is_safe) in [(0, false), (MSS, true)] {
        let mut t = in_flight(&settings(), 10);
        t.report(0, &[(1, 9)]);
        assert_eq!(t.pcb.recovery.phase(), Phase::Recovery);
        let mss = MSS;
        loss(&mut t).prr = Prr::new(10 * MSS);
        loss(&mut t).prr.on_sent(MSS);
        let (pipe, ssthresh) = (loss(&mut t).window_pipe(mss), t.pcb.cc.ssthresh());
        let windows = [false, true].map(|is_safe| {
            let mut prr = loss(&mut t).prr;
            prr.on_ack(mss, is_safe, pipe, ssthresh, mss);
            prr.cwnd()
        });
        assert_ne!(windows[0], windows[1]);
        after_report(
            &mut t,
            &Report { acked, count: 1, delivered: MSS, is_duplicate: true, ..Report::default() },
        );
        assert_eq!(loss(&mut t).prr.cwnd(), windows[usize::from(is_safe)], "{acked}");
    }
}

#[test]
fn the_timer_of_reordering_stays_where_losses_were_looked_for() {
    let mut t = in_flight(&settings(), 10);
    t.report(1, &[(9, 10)]);
    assert_ne!(loss(&mut t).reorder_at, NEVER);
    let mut t = in_flight(&settings(), 10);
    loss(&mut t).reorder_at = t.now + ms(3);
    t.report(1, &[]);
    assert_eq!(loss(&mut t).reorder_at, NEVER, "plain progress starts another");
}

#[test]
fn behind_a_report_one_timer_runs() {
    // Disorder, repair, whether another timer had run; a probe's time, the retransmission's from now on.
    let rto_us = 200_000;
    for (is_disordered, is_repair, was_waiting, probes, rexmt_us) in [
        (false, false, false, true, None),
        (true, false, false, false, Some(rto_us)),
        (false, true, false, false, Some(rto_us)),
        (true, false, true, false, Some(rto_us - 10_000)),
        (false, true, true, false, Some(rto_us - 10_000)),
    ] {
        let mut t = in_flight(&settings(), 3);
        let mut l = t.pcb.loss.take().unwrap();
        l.is_disordered = is_disordered;
        if is_repair {
            t.pcb.recovery.begin(t.pcb.snd_max);
        }
        t.pcb.rexmt_at = t.now + secs(9);
        let report = Report { has_segment: true, ..Report::default() };
        t.pcb.arm_after_report(&mut l, &report, was_waiting, t.now);
        assert_eq!(l.probe_at != NEVER, probes, "{is_disordered} {is_repair} {was_waiting}");
        let rto_us = t.pcb.rtt.rto_us(t.pcb.tuning.rto_max_us).abs_diff(rto_us);
        assert_eq!(rto_us, 0, "the script's");
        let expected = rexmt_us.map_or(t.now + secs(9), |us| after_us(t.now, us));
        assert_eq!(t.pcb.rexmt_at, expected, "{is_disordered} {is_repair} {was_waiting}");
    }
}
