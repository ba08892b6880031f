//! Where PSH stands.

use core::time::Duration;

use super::super::cc::{Algorithm, Cc};
use super::super::settings::Settings;
use super::super::tests::script::{MSS, Script, WND, plain};
use super::*;

/// A buffer towards a peer with segments of 1,000 bytes and so large a window; nothing is sent yet.
fn towards(wnd_max: u32) -> Pushes {
    let most = RUN_MAX.min(half_of_window(wnd_max));
    Pushes { mss: 1000, wnd_max, run_max: most - most % 1000, ..Pushes::new(true, BURST_MIN) }
}

fn marks(pushes: &Pushes, len: u32) -> Vec<u32> {
    (1..=len).filter(|offset| pushes.has_mark(pushes.front + (*offset - 1), pushes.front + *offset)).collect()
}

#[test]
fn the_end_of_a_write_is_marked_and_the_middle_is_not() {
    let mut pushes = towards(50_000);
    pushes.written(4_000, 4_000, Then::GoesOn);
    assert_eq!(marks(&pushes, 4_000), []);
    pushes.written(6_000, 10_000, Then::Ends);
    assert_eq!(marks(&pushes, 10_000), [10_000]);
}

#[test]
fn writes_that_wait_together_have_one_mark_at_the_end_of_their_run() {
    let mut pushes = towards(50_000);
    for len in [400, 1_000, 1_700] {
        let added = len - if len == 400 { 0 } else { len - 600 };
        pushes.written(added, len, Then::Ends);
    }
    assert_eq!(marks(&pushes, 1_700), [1_700]);
    // The run is full at 25,000: a further write begins the next.
    pushes.written(23_300, 25_000, Then::Ends);
    pushes.written(10, 25_010, Then::Ends);
    assert_eq!(marks(&pushes, 25_010), [25_000, 25_010]);
}

#[test]
fn marks_of_sent_data_stay_until_they_are_acknowledged() {
    let mut pushes = towards(50_000);
    for count in 1..=3 {
        pushes.written(1_000, 1_000 * count, Then::Ends);
        pushes.sent = SeqNum::new(1_000 * count);
    }
    assert_eq!(marks(&pushes, 3_000), [1_000, 2_000, 3_000]);
    pushes.acked(2_000);
    assert_eq!(marks(&pushes, 1_000), [1_000]);
    pushes.forget_acked();
    assert!(pushes.kept.as_deref().is_some_and(|kept| kept.marks.is_empty()));
    assert_eq!(marks(&pushes, 1_000), [1_000]);
}

/// As on Linux, where it leaves as a whole (`tcp_sendmsg_locked`).
#[test]
fn an_urgent_write_has_a_mark_at_its_end_alone() {
    // Runs of 10,000 bytes.
    let mut pushes = towards(20_000);
    for (len, then) in [(15_000, Then::GoesOn), (30_000, Then::GoesOn), (45_000, Then::Ends)] {
        pushes.urgent(len);
        pushes.written(15_000, len, then);
    }
    assert_eq!(marks(&pushes, 45_000), [45_000]);
}

#[test]
fn a_long_write_has_a_mark_for_more_than_half_of_the_largest_window() {
    // Runs of 10,000 bytes.
    let mut pushes = towards(20_000);
    pushes.written(45_000, 45_000, Then::Ends);
    assert_eq!(marks(&pushes, 45_000), [20_000, 40_000, 45_000]);
    // The same in parts, as a writer copies them.
    let mut pushes = towards(20_000);
    for len in (3_000..=45_000).step_by(3_000) {
        pushes.sent = pushes.front + (len - 3_000).min(7_000);
        pushes.written(3_000, len, if len == 45_000 { Then::Ends } else { Then::GoesOn });
    }
    assert_eq!(marks(&pushes, 45_000), [20_000, 40_000, 45_000]);
}

#[test]
fn a_mark_that_is_taken_back_does_put_off_the_next() {
    let mut pushes = towards(20_000);
    pushes.written(1_000, 1_000, Then::Ends);
    pushes.written(29_000, 30_000, Then::GoesOn);
    // 9,000 were written since the mark was set when its run was full, and 19,000 when the next was.
    assert_eq!(marks(&pushes, 30_000), [20_000]);
}

#[test]
fn a_write_that_waits_for_space_marks_what_is_not_sent() {
    let mut pushes = towards(50_000);
    pushes.written(5_000, 5_000, Then::GoesOn);
    pushes.sent = SeqNum::new(5_000);
    pushes.interrupted(5_000);
    assert_eq!(marks(&pushes, 5_000), []);
    pushes.written(5_000, 10_000, Then::GoesOn);
    pushes.interrupted(10_000);
    assert_eq!(marks(&pushes, 10_000), [10_000]);
}

/// As in `tcp_sendmsg_locked`, only the first queued packet is sent during a write.
#[test]
fn a_write_behind_runs_that_wait_has_its_room_at_once_and_is_over_then() {
    // Runs of 16,000 bytes, and two wait.
    let mut pushes = towards(32_000);
    pushes.written(20_000, 20_000, Then::Ends);
    for (space, room) in [(0, 12_000), (12_000, 12_000), (12_001, 28_000), (28_001, 44_000)] {
        assert_eq!(pushes.room(20_000, space), room, "{space}");
    }
    pushes.written(44_000, 64_000, Then::GoesOn);
    assert!(pushes.is_over(64_000) && !pushes.is_over(63_999));
    pushes.interrupted(64_000);
    assert!(!pushes.is_over(64_000));
    // A write that had more room than it needed does not end there.
    assert_eq!(pushes.room(64_000, 1), 16_000);
    pushes.written(1_000, 65_000, Then::Ends);
    pushes.written(15_000, 80_000, Then::GoesOn);
    assert!(!pushes.is_over(80_000));
}

#[test]
fn a_write_fills_the_run_that_it_has_begun_and_begins_one_where_there_is_space() {
    // Runs of 16,000 bytes.
    let mut pushes = towards(32_000);
    assert_eq!((pushes.room(0, 1), pushes.room(0, 0)), (16_000, 0));
    pushes.written(6_000, 6_000, Then::Ends);
    assert_eq!((pushes.room(6_000, 0), pushes.room(6_000, 1)), (10_000, 10_000));
    pushes.written(10_000, 16_000, Then::Ends);
    assert_eq!((pushes.room(16_000, 0), pushes.room(16_000, 1)), (0, 16_000));
    // What is left of a run that has left in part is filled up again, and what was sent is none.
    pushes.sent = pushes.front + 10_000;
    assert_eq!(pushes.room(16_000, 0), 10_000);
    pushes.written(10_000, 26_000, Then::Ends);
    assert_eq!((pushes.room(26_000, 0), pushes.room(26_000, 1)), (0, 16_000));
    pushes.sent = pushes.front + 26_000;
    assert_eq!((pushes.room(26_000, 0), pushes.room(26_000, 1)), (0, 16_000));
    // A record that ends is not joined with what follows.
    pushes.written(100, 26_100, Then::Ends);
    pushes.end_run(26_100);
    assert_eq!((pushes.room(26_100, 0), pushes.room(26_100, 1)), (0, 16_000));
}

#[test]
fn several_segments_of_a_packet_that_leave_again_have_psh_at_their_end() {
    let at = |offset: u32| SeqNum::new(u32::MAX - 1_500) + offset;
    let mut kept = Kept::default();
    kept.add_packet(at(0), at(2_000));
    kept.add_packet(at(2_000), at(5_000));
    // A segment of each of two packets, one after the other; two of one, apart and together; the end of a run within a packet.
    assert!(!kept.leaves_again(at(1_000), at(2_000), 1_000, false));
    assert!(!kept.leaves_again(at(2_000), at(3_000), 1_000, false));
    assert!(!kept.leaves_again(at(3_000), at(4_000), 1_000, false));
    assert!(kept.leaves_again(at(4_000), at(5_000), 1_000, false));
    assert!(kept.leaves_again(at(0), at(2_000), 1_000, false));
    assert!(!kept.leaves_again(at(2_000), at(3_000), 1_000, true));
    assert!(kept.leaves_again(at(3_000), at(4_000), 1_000, true));
    // What is no part of a packet, and what leaves later.
    assert!(!kept.leaves_again(at(5_000), at(9_000), 1_000, true));
    assert!(!kept.leaves_again(at(0), at(1_000), 1_000, false));
    assert!(!kept.forget_before(at(0)));
    assert!(!kept.leaves_again(at(1_000), at(2_000), 1_000, false));
    for packet in 1..=2 * MARKS_MAX as u32 {
        kept.add_packet(at(5_000 * packet), at(5_000 * packet + 5_000));
    }
    assert_eq!(kept.packets.len(), MARKS_MAX);
    assert!(kept.forget_before(at(5_000 * (2 * MARKS_MAX as u32 + 1))));
}

#[test]
fn marks_are_bounded_and_the_first_and_the_last_count() {
    let mut pushes = towards(50_000);
    for len in 1..=3_000 {
        pushes.written(1, len, Then::Ends);
        pushes.sent = SeqNum::new(len);
    }
    let left = marks(&pushes, 3_000);
    assert_eq!((left.len(), left[0], left[MARKS_MAX]), (MARKS_MAX + 1, 1, 3_000));
    pushes.acked(3_000);
    pushes.forget_acked();
    assert!(pushes.kept.is_none());
}

#[test]
fn a_write_with_more_to_come_has_a_mark_only_after_half_of_the_window() {
    let mut pushes = towards(20_000);
    pushes.written(1_000, 1_000, Then::More);
    pushes.written(8_000, 9_000, Then::More);
    assert_eq!(marks(&pushes, 9_000), []);
    pushes.written(1_500, 10_500, Then::More);
    assert_eq!(marks(&pushes, 10_500), [10_500]);
}

#[test]
fn a_run_that_was_ended_keeps_its_mark_where_it_is() {
    let mut pushes = towards(50_000);
    pushes.written(400, 400, Then::Ends);
    pushes.end_run(400);
    pushes.written(400, 800, Then::Ends);
    assert_eq!(marks(&pushes, 800), [400, 800]);
}

#[test]
fn a_first_run_that_leaves_in_part_is_filled_up_again() {
    // Runs of 16,000 bytes, as towards a window of 32,896.
    let mut pushes = towards(32_896);
    assert_eq!(pushes.run_max, 16_000);
    pushes.room = 2_000;
    pushes.written(60_000, 60_000, Then::Ends);
    assert_eq!(marks(&pushes, 60_000), [18_000, 50_000, 60_000]);
    // One that leaves whole, or that was sent in part before, is where it was.
    for (room, sent) in [(16_000, 0), (2_000, 1_000)] {
        let mut pushes = towards(32_896);
        (pushes.room, pushes.sent) = (room, SeqNum::new(sent));
        pushes.written(60_000, 60_000, Then::Ends);
        assert_eq!(marks(&pushes, 60_000), [32_000, 60_000], "{room} {sent}");
    }
}

#[test]
fn what_a_probe_leaves_of_its_packet_has_psh_too() {
    // Packets of 1,000 bytes, of which the first has left. An offset of the whole packet cuts nothing.
    for (offset, expected) in [(1_600, vec![1_600, 2_000, 9_000]), (2_000, vec![2_000, 9_000])] {
        let mut pushes = Pushes { run_max: 1_000, ..towards(50_000) };
        pushes.written(9_000, 9_000, Then::Ends);
        pushes.sent = SeqNum::new(1_000);
        pushes.mark_probe(offset, 9_000);
        assert_eq!(marks(&pushes, 9_000), expected);
    }
    // What waits behind it is held back.
    let mut pushes = Pushes { run_max: 1_000, ..towards(50_000) };
    pushes.written(9_000, 9_000, Then::More);
    pushes.mark_probe(600, 9_000);
    assert_eq!(marks(&pushes, 9_000), [600, 1_000]);
    // What was left of another packet was filled up.
    pushes.sent = SeqNum::new(600);
    pushes.mark_probe(1_100, 9_000);
    assert_eq!(marks(&pushes, 9_000), [600, 1_000, 1_100, 1_600]);
    // The packet ends with the text, or at a mark.
    let mut pushes = towards(50_000);
    pushes.written(900, 900, Then::Ends);
    pushes.mark_probe(600, 900);
    assert_eq!(marks(&pushes, 900), [600, 900]);
    pushes.end_run(900);
    pushes.written(9_000, 9_900, Then::Ends);
    pushes.mark_probe(600, 9_900);
    assert_eq!(marks(&pushes, 9_900), [600, 900, 9_900]);
}

#[test]
fn all_of_the_packet_that_a_probe_is_cut_from_counts_as_pushed() {
    for (len, pushed) in [(500, 500), (1_500, 1_000)] {
        let mut pushes = Pushes { run_max: 1_000, ..towards(50_000) };
        pushes.written(len, len, Then::More);
        pushes.mark_probe(300, len);
        assert_eq!(pushes.pushed, SeqNum::new(pushed));
    }
}

#[test]
fn marks_besides_the_last_stand_in_order() {
    let mut pushes = towards(50_000);
    pushes.written(20_000, 20_000, Then::Ends);
    pushes.sent = SeqNum::new(20_000);
    for at in [4_000, 2_000, 4_000, 20_000] {
        pushes.mark_within(at);
    }
    assert_eq!(marks(&pushes, 20_000), [2_000, 4_000, 20_000]);
    pushes.acked(2_000);
    pushes.forget_acked();
    assert_eq!(marks(&pushes, 18_000), [2_000, 18_000]);
}

/// Only behind several is PSH for a receiver that joins them.
#[test]
fn the_last_of_several_segments_that_leave_together_has_psh_and_a_single_one_has_not() {
    let settings = Settings { sack: true, nodelay: true, ..plain() };
    for (count, expected) in [(1, vec![false]), (2, vec![false, true])] {
        let mut t = Script::established(&settings);
        let mut pushes = towards(u32::from(WND));
        t.snd = count * MSS;
        pushes.written(t.snd, t.snd, Then::GoesOn);
        let mut pushed = Vec::new();
        while let Some(sent) = t.pcb.poll_transmit(t.snd, t.space, t.now) {
            pushed.push(pushes.leaves(sent.len, sent.offset + sent.len, MSS, &t.pcb));
        }
        assert_eq!(pushed, expected);
        // Several that leave again are as one packet.
        let again = pushes.leaves(t.snd, t.snd, MSS, &t.pcb);
        assert_eq!(again, count > 1);
    }
}

#[test]
fn positions_go_round() {
    let mut pushes = towards(50_000);
    let begin = SeqNum::new(u32::MAX - 1_500);
    (pushes.front, pushes.last, pushes.pushed) = (begin, begin, begin);
    (pushes.run, pushes.sent) = (begin, begin);
    pushes.written(1_000, 1_000, Then::Ends);
    pushes.sent = begin + 1_000;
    pushes.written(1_000, 2_000, Then::Ends);
    assert_eq!(marks(&pushes, 2_000), [1_000, 2_000]);
}

/// What was kept of the packets that have left, each from one byte of the stream to another.
fn packets(pushes: &Pushes) -> Vec<(u32, u32)> {
    let kept = pushes.kept.as_deref();
    kept.map_or_else(Vec::new, |kept| {
        kept.packets.iter().map(|(start, end)| (start.raw(), end.raw())).collect()
    })
}

/// All that `t` may send leaves: which of the segments have PSH.
fn leave(t: &mut Script, pushes: &mut Pushes) -> Vec<bool> {
    let mut pushed = Vec::new();
    while let Some(sent) = t.pcb.poll_transmit(t.snd, t.space, t.now) {
        pushed.push(pushes.leaves(sent.len, sent.offset + sent.len, MSS, &t.pcb));
    }
    pushed
}

#[test]
fn a_packet_ends_where_it_is_full_or_nothing_more_leaves_or_at_a_mark() {
    // At least two segments in a packet, or eight, of which half a window of ten leaves; the end of a write after the first segment.
    for (burst_min, mark, expected, kept) in [
        (2, None, vec![false, true, false], vec![(0, 2_000)]),
        (8, None, vec![false, false, true], vec![(0, 3_000)]),
        (8, Some(1_000), vec![true, false, true], vec![(1_000, 3_000)]),
        (8, Some(2_000), vec![false, true, false], vec![(0, 2_000)]),
    ] {
        let mut t = Script::established(&Settings { sack: true, nodelay: true, ..plain() });
        let mut pushes = Pushes { burst_min, ..towards(u32::from(WND)) };
        t.snd = 3 * MSS;
        pushes.written(t.snd, t.snd, Then::GoesOn);
        mark.into_iter().for_each(|at| pushes.mark_within(at));
        assert_eq!((leave(&mut t, &mut pushes), packets(&pushes)), (expected, kept), "{burst_min} {mark:?}");
    }
}

#[test]
fn segments_that_leave_as_one_are_a_packet_at_once() {
    for (is_joined, expected) in [(true, vec![true]), (false, vec![false])] {
        let mut t = Script::established(&Settings { tso_max: 8 * MSS, nodelay: true, ..plain() });
        let mut pushes = Pushes { is_joined, ..towards(u32::from(WND)) };
        t.snd = 2 * MSS + 500;
        pushes.written(t.snd, t.snd, Then::GoesOn);
        assert_eq!(leave(&mut t, &mut pushes), expected);
        assert_eq!(packets(&pushes), if is_joined { vec![(0, 2_500)] } else { vec![] });
    }
}

/// The last of those that leave again together has PSH, though its packet goes on.
#[test]
fn a_part_of_a_packet_that_is_lost_leaves_again_as_one_packet() {
    let mut t = Script::established(&Settings { sack: true, nodelay: true, ..plain() });
    let mut pushes = Pushes { burst_min: 8, ..towards(u32::from(WND)) };
    t.snd = 5 * MSS;
    pushes.written(t.snd, t.snd, Then::GoesOn);
    assert_eq!(leave(&mut t, &mut pushes), [false, false, false, false, true]);
    // Long enough for the report to say that both are lost at once.
    t.now = t.now + core::time::Duration::from_millis(50);
    t.report(0, &[(2, 5)]);
    let pushed = leave(&mut t, &mut pushes);
    assert_eq!(pushed, [false, true]);
}

/// As on Linux (`tcp_grow_skb`).
#[test]
fn the_first_of_two_runs_that_wait_is_filled_up_when_segments_are_longer() {
    for (mss, written, run, expected) in [
        (1_000, 1_400, 900, 1_000),
        (1_000, 950, 900, 0),
        (800, 1_400, 900, 900),
        (1_000, 2_400, 1_800, 1_800),
        (1_000, 400, 0, 0),
    ] {
        let mut t = Script::established(&plain());
        t.pcb.mss = mss;
        let mut pushes = Pushes { mss: 900, run_max: 900, ..Pushes::new(false, BURST_MIN) };
        pushes.run = SeqNum::new(run);
        pushes.settle(&t.pcb, written);
        assert_eq!(pushes.run, SeqNum::new(expected), "{mss} {written} {run}");
    }
}

/// As on Linux: what is left of a cut packet takes the last, with the flags at its end, and the next write continues it.
#[test]
fn what_is_left_of_a_packet_is_filled_up_from_the_last() {
    for (run, written, ends_record, expected, marked) in [
        (12, 112, false, 0, vec![112]),
        (12, 1_512, false, 1_000, vec![1_000]),
        (12, 112, true, 12, vec![12]),
        (1_000, 1_100, false, 1_000, vec![12]),
    ] {
        let mut t = Script::established(&plain());
        t.pcb.mss = 1_000;
        if ends_record {
            t.pcb.end_record(run);
        }
        let mut pushes = Pushes { mss: 1_000, run_max: 1_000, ..Pushes::new(false, BURST_MIN) };
        (pushes.run, pushes.last) = (SeqNum::new(run), SeqNum::new(12));
        pushes.settle(&t.pcb, written);
        assert_eq!(pushes.run, SeqNum::new(expected), "{run} {written} {ends_record}");
        assert_eq!(marks(&pushes, written), marked, "{run} {written} {ends_record}");
        pushes.written(10, written + 10, Then::More);
        assert_eq!(marks(&pushes, written).is_empty(), marked == [written]);
    }
}

/// As on Linux, where output first asks whether the congestion window has room (`tcp_write_xmit`).
#[test]
fn the_first_run_is_not_filled_up_while_the_congestion_window_is_full() {
    for (flight, expected) in [(9, 1_000), (10, 900)] {
        let mut t = Script::established(&Settings { nodelay: true, ..plain() });
        t.pcb.cc = Cc::new(Algorithm::NewReno, 1_000, false).with_window(10_000, 1 << 30);
        t.write(flight * MSS);
        let mut pushes = Pushes { mss: 900, run_max: 900, ..Pushes::new(false, BURST_MIN) };
        pushes.run = SeqNum::new(flight * MSS + 900);
        pushes.settle(&t.pcb, flight * MSS + 1_400);
        assert_eq!(pushes.run, SeqNum::new(flight * MSS + expected), "{flight}");
    }
}

/// A probe of a small window joins nothing (`tcp_write_wakeup`).
#[test]
fn the_first_run_is_not_filled_up_by_the_output_that_sends_a_probe() {
    let mut t = Script::established(&plain());
    assert_eq!(t.write(2 * MSS), [MSS, MSS]);
    let _ = t.input(t.ack_of(2 * MSS, 400), &[]);
    assert_eq!(t.write(1_400), []);
    let probe = t.wait(Duration::from_millis(250));
    assert_eq!(probe.iter().map(|(_, segment)| segment.len).collect::<Vec<_>>(), [400]);
    let mut pushes = Pushes { mss: MSS, run_max: MSS, ..Pushes::new(false, BURST_MIN) };
    pushes.run = SeqNum::new(MSS);
    pushes.settle(&t.pcb, 1_400);
    assert_eq!(pushes.run, SeqNum::new(MSS), "the rest of the probed packet is one of its own");
    let _ = t.write(100);
    pushes.settle(&t.pcb, 1_500);
    assert_eq!(pushes.run, SeqNum::new(400 + MSS), "the next write fills it up");
}

/// The flags are at the end of a packet, also if it is cut later (`tcp_fragment`).
#[test]
fn marks_inside_what_leaves_are_one_at_its_end() {
    for (marked, start, end, expected) in [
        (vec![300, 600], 0, 1_000, vec![1_000, 9_000]),
        (vec![300, 1_000], 0, 1_000, vec![1_000, 9_000]),
        (vec![300, 1_001], 0, 1_000, vec![1_000, 1_001, 9_000]),
        (vec![300, 600], 300, 600, vec![300, 600, 9_000]),
        (vec![300, 600], 8_500, 9_400, vec![300, 600, 9_400]),
        (vec![8_600], 8_500, 9_000, vec![9_000]),
    ] {
        let mut t = Script::established(&plain());
        t.snd = 9_400;
        let mut pushes = Pushes { last: SeqNum::new(9_000), ..towards(50_000) };
        marked.iter().for_each(|at| pushes.mark_within(*at));
        assert!(pushes.leaves(end - start, end, MSS, &t.pcb));
        assert_eq!(marks(&pushes, 9_400), expected, "{marked:?} {start} {end}");
    }
}

#[test]
fn after_output_it_is_known_what_was_sent_and_how_long_runs_are() {
    let mut t = Script::established(&Settings { nodelay: true, ..plain() });
    let mut pushes = Pushes::new(true, BURST_MIN);
    t.write(3 * MSS);
    let _ = t.input(t.ack_of(MSS, WND), &[]);
    pushes.acked(MSS);
    pushes.burst = 1;
    pushes.settle(&t.pcb, 2 * MSS);
    assert_eq!((pushes.sent, pushes.burst), (SeqNum::new(3 * MSS), 0));
    assert_eq!(pushes.room, t.pcb.room_for_segments());
    // A FIN in flight is no byte of the buffer.
    pushes.settle(&t.pcb, 2 * MSS - 1);
    assert_eq!(pushes.sent, SeqNum::new(3 * MSS - 1));
    // Whole segments of at most 64 KiB and half of the window, where segments are joined. The window alone changes, then the
    // segment alone.
    let mut single = Pushes::new(false, BURST_MIN);
    for (wnd, mss, joined) in [
        (5_500, 1_000, 2_000),
        (9_999, 1_000, 4_000),
        (9_999, 700, 4_900),
        (1_000_000, 700, 65_100),
        (1_000_000, 999, 64_935),
        (500, 999, 500),
    ] {
        (t.pcb.max_snd_wnd, t.pcb.mss) = (wnd, mss);
        pushes.settle(&t.pcb, 0);
        single.settle(&t.pcb, 0);
        assert_eq!(pushes.run_max, joined, "{wnd} {mss}");
        assert_eq!(single.run_max, u32::from(mss).min(wnd), "{wnd} {mss}");
    }
}

#[test]
fn half_of_a_window_is_no_reason_for_a_mark_and_more_is() {
    for (added, expected) in [(10_000, vec![]), (10_001, vec![10_001])] {
        let mut pushes = towards(20_000);
        pushes.written(added, added, Then::More);
        assert_eq!(marks(&pushes, added), expected);
    }
}

#[test]
fn a_run_that_has_left_in_part_is_filled_up_by_the_write_that_goes_on() {
    // Runs of 16,000 bytes.
    for (sent, room) in [(10_000, 7_000), (16_000, 13_000), (0, 13_000)] {
        let mut pushes = towards(32_000);
        pushes.written(16_000, 16_000, Then::GoesOn);
        pushes.sent = SeqNum::new(sent);
        pushes.written(3_000, 19_000, Then::GoesOn);
        assert_eq!(pushes.room(19_000, 0), room, "{sent}");
    }
}

#[test]
fn a_first_run_that_leaves_whole_has_its_mark() {
    let mut pushes = towards(32_896);
    pushes.written(5_000, 5_000, Then::More);
    (pushes.sent, pushes.room) = (SeqNum::new(5_000), 16_000);
    pushes.written(40_000, 45_000, Then::GoesOn);
    // It is full 21,000 bytes after the last mark.
    assert_eq!(marks(&pushes, 45_000), [21_000]);
}

#[test]
fn a_mark_is_kept_once_and_not_when_it_is_acknowledged() {
    let mut pushes = towards(50_000);
    pushes.written(900, 900, Then::Ends);
    assert!(pushes.kept.is_none(), "there was none before");
    pushes.end_run(900);
    pushes.interrupted(900);
    assert!(pushes.kept.is_none(), "it is the same");
    pushes.sent = SeqNum::new(900);
    pushes.acked(900);
    pushes.written(900, 900, Then::Ends);
    assert!(pushes.kept.is_none(), "the one before is acknowledged");
}

#[test]
fn marks_besides_the_last_are_bounded() {
    let most = MARKS_MAX as u32;
    let mut pushes = towards(50_000);
    pushes.written(20_000, 20_000, Then::Ends);
    (1..=most).for_each(|at| pushes.mark_within(at));
    let left = marks(&pushes, 20_000);
    assert_eq!((left.len(), left[0]), (MARKS_MAX + 1, 1));
    pushes.mark_within(most + 1);
    let left = marks(&pushes, 20_000);
    assert_eq!((left.len(), left[0], left[MARKS_MAX - 1]), (MARKS_MAX + 1, 1, most));
}

/// Memory for many is given back when neither marks nor packets are left.
#[test]
fn what_is_kept_goes_when_all_of_it_is_acknowledged() {
    let at = SeqNum::new;
    for (mark, packet) in [(100, 100), (300, 100), (100, 300), (300, 300)] {
        let mut kept = Kept { marks: VecDeque::with_capacity(MARKS_KEPT + 1), ..Kept::default() };
        kept.marks.push_back(at(mark));
        kept.add_packet(at(0), at(packet));
        assert!(!kept.forget_before(at(99)));
        assert_eq!(kept.forget_before(at(200)), mark < 200 && packet < 200, "{mark} {packet}");
        assert!(kept.forget_before(at(300)));
    }
    assert!(!Kept::default().forget_before(at(0)), "there is no memory to give back");
}
