//! What is read out of an acknowledgment, and which timer and window follow.

mod conclusions;

use core::time::Duration;

use super::super::super::cc::Algorithm;
use super::super::super::settings::Settings;
use super::super::super::tests::script::{MSS, Script, plain};
use super::*;

fn sending(settings: &Settings, segments: u32) -> Script {
    let mut t = Script::established(settings);
    assert_eq!(t.write(segments * MSS).len(), segments as usize);
    t
}

fn with_sack() -> Settings {
    Settings { sack: true, ..plain() }
}

/// RFC 2883 section 4, of what is acknowledged up to 1,000 and was sent up to 2,000.
#[test]
fn the_first_block_is_a_duplicate_if_it_is_below_the_acknowledgment_or_inside_the_second() {
    let seq = |offset: u32| SeqNum::new(u32::MAX - 1_200) + offset;
    let block = |(start, end)| SackBlock { start: seq(start), end: seq(end) };
    let read = |blocks: &[(u32, u32)]| {
        let blocks: Vec<SackBlock> = blocks.iter().copied().map(block).collect();
        let (dsack, rest) = sorted(&blocks, seq(1_000), seq(2_000), 500);
        let place = |block: SackBlock| (block.start.since(seq(0)), block.end.since(seq(0)));
        (dsack.map(place), rest.into_iter().flatten().map(place).collect::<Vec<_>>())
    };
    for (blocks, dsack, rest) in [
        (&[(600, 700)][..], Some((600, 700)), &[][..]),
        (&[(500, 700)], Some((500, 700)), &[]),
        // However old, but not longer than the peer's window.
        (&[(100, 600)], Some((100, 600)), &[]),
        (&[(99, 600)], None, &[]),
        (&[(700, 600)], None, &[]),
        (&[(600, 600)], None, &[]),
        (&[(1_600, 2_001), (1_500, 2_001)], None, &[]),
        (&[(900, 1_400)], Some((900, 1_400)), &[]),
        (&[(900, 1_401)], None, &[(1_000, 1_401)]),
        (&[(1_200, 1_300), (1_100, 1_400)], Some((1_200, 1_300)), &[(1_100, 1_400)]),
        (&[(1_200, 1_300), (1_250, 1_400)], None, &[(1_200, 1_300), (1_250, 1_400)]),
        // Those that count stand in order; what is acknowledged is cut off.
        (&[(1_500, 1_600), (1_100, 1_200)], None, &[(1_100, 1_200), (1_500, 1_600)]),
        (&[(1_500, 1_600), (900, 1_100)], None, &[(1_000, 1_100), (1_500, 1_600)]),
        (&[(1_500, 1_600), (900, 1_000)], None, &[(1_500, 1_600)]),
        (&[(1_500, 1_600), (1_900, 2_001)], None, &[(1_500, 1_600)]),
        (&[(1_500, 1_600), (1_300, 1_200)], None, &[(1_500, 1_600)]),
        (&[(1_500, 1_600), (499, 1_200)], None, &[(1_500, 1_600)]),
    ] {
        assert_eq!(read(blocks), (dsack, rest.to_vec()), "{blocks:?}");
    }
}

#[test]
fn only_what_a_block_adds_is_news() {
    let mut t = sending(&with_sack(), 10);
    t.report(0, &[(1, 3)]);
    let blocks = [(5, 6), (1, 3)].map(|(from, to)| SackBlock { start: t.place(from), end: t.place(to) });
    let flight = t.pcb.flight();
    let report = t.pcb.take_report(0, flight, (None, &blocks.into_iter().collect()), t.now).unwrap();
    assert_eq!((report.sacked, report.count, report.delivered), (MSS, 1, MSS));
}

/// `tcp_set_xmit_timer`: a round trip that is longer than the first segment is out.
#[test]
fn the_timer_starts_anew_for_a_segment_or_a_longer_round_trip() {
    for (has_segment, sack_rtt_us, renews) in [
        (false, None, false),
        (true, None, true),
        (false, Some(99), false),
        (false, Some(100), false),
        (false, Some(101), true),
    ] {
        let mut t = sending(&with_sack(), 3);
        t.now = t.now + Duration::from_micros(100);
        let report = Report { has_segment, sack_rtt_us, ..Report::default() };
        let loss = t.pcb.loss.take().unwrap();
        assert_eq!(t.pcb.renews_timer(&loss, &report, t.now), renews, "{has_segment} {sack_rtt_us:?}");
    }
}

#[test]
fn the_retransmission_timer_gives_way_to_a_later_one_of_loss_recovery() {
    for (ahead_us, expected_us) in [(1, 1_001), (0, 1_000), (-1, 0)] {
        let mut t = sending(&with_sack(), 1);
        let due = t.pcb.rexmt_at;
        let at = Instant::from_micros(due.as_micros().wrapping_add_signed(ahead_us));
        t.pcb.give_way(at);
        assert_eq!(t.pcb.rexmt_at, after_us(due, expected_us), "{ahead_us}");
    }
    let mut t = sending(&with_sack(), 1);
    let due = t.pcb.rexmt_at;
    t.pcb.give_way(NEVER);
    assert_eq!(t.pcb.rexmt_at, due, "there is none");
}

/// In fast recovery that of proportional rate reduction, unless congestion control says it itself.
#[test]
fn the_window_of_a_recovery_is_that_of_its_rule() {
    for (congestion_control, is_reduced) in [(Algorithm::NewReno, true), (Algorithm::Bbr, false)] {
        let mut t = sending(&Settings { congestion_control, ..with_sack() }, 6);
        let mut loss = t.pcb.loss.take().unwrap();
        loss.prr = Prr::new(3 * MSS);
        t.pcb.recovery.begin(t.pcb.snd_max());
        t.pcb.allow(&loss);
        let expected = if is_reduced { loss.prr.cwnd().max(MSS) } else { t.pcb.cwnd() };
        assert_eq!(t.pcb.recovery.window(&t.pcb.cc, MSS), expected);
        t.pcb.recovery.finish();
        t.pcb.allow(&loss);
        assert_eq!(t.pcb.recovery.window(&t.pcb.cc, MSS), t.pcb.cwnd(), "no recovery");
    }
}

#[test]
fn an_echo_tells_the_round_trip_to_a_millisecond() {
    let mut t = Script::established(&Settings { timestamps: true, ..with_sack() });
    t.now = t.now + Duration::from_millis(50);
    let echo = |ms| Some(Timestamps { val: 0, ecr: t.timestamp() - ms });
    assert_eq!(t.pcb.rtt_by_echo(echo(7), t.now), Some(7_000));
    assert_eq!(t.pcb.rtt_by_echo(None, t.now), None);
}

/// A write that finds a segment waiting begins no output of its own, unless it fills that segment up.
#[test]
fn output_begins_for_a_write_if_no_whole_segment_waits_before_it() {
    for (waiting, more, begins) in [
        (0, 0, false),
        (0, 1, true),
        (1, 0, false),
        (1, 1, true),
        (MSS - 1, 1, true),
        (MSS, 1, false),
        (MSS + 1, 1, false),
    ] {
        let mut t = sending(&with_sack(), 10);
        t.write(waiting);
        t.pcb.nagle.set_write(false);
        let snd_len = t.pcb.snd_len;
        t.pcb.note_write(snd_len + more);
        assert_eq!(t.pcb.nagle.is_write(), begins, "{waiting} {more}");
    }
}

/// `tcp_write_xmit`: what one acknowledgment releases has one time.
#[test]
fn output_begins_for_no_write_if_a_segment_has_arrived_since() {
    for arrived in [false, true] {
        let mut t = sending(&with_sack(), 10);
        t.pcb.look_at_usage_after(arrived);
        let snd_len = t.pcb.snd_len;
        t.pcb.note_write(snd_len + MSS);
        assert_eq!(t.pcb.nagle.is_write(), !arrived);
    }
}

/// As on Linux, where the first segment of another write leaves before the rest is taken (`tcp_push_one`).
#[test]
fn urgent_text_leaves_as_a_whole() {
    let mut t = Script::established(&with_sack());
    t.output();
    t.pcb.set_urgent(2 * MSS);
    t.pcb.note_write(2 * MSS);
    assert!(!t.pcb.nagle.is_write());
    t.pcb.note_write(3 * MSS);
    assert!(t.pcb.nagle.is_write(), "behind it");
}
