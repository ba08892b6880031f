//! Where PSH stands.

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
fn marks_are_bounded_and_the_oldest_are_forgotten() {
    let mut pushes = towards(50_000);
    for len in 1..=3_000 {
        pushes.written(1, len, Then::Ends);
        pushes.sent = SeqNum::new(len);
    }
    let left = marks(&pushes, 3_000);
    assert_eq!((left.len(), left[0]), (MARKS_MAX + 1, 3_000 - MARKS_MAX as u32));
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
        pushes.mark_probe(offset);
        assert_eq!(marks(&pushes, 9_000), expected);
    }
    // The packet ends with the text, or at a mark.
    let mut pushes = towards(50_000);
    pushes.written(900, 900, Then::Ends);
    pushes.mark_probe(600);
    assert_eq!(marks(&pushes, 900), [600, 900]);
    pushes.end_run(900);
    pushes.written(9_000, 9_900, Then::Ends);
    pushes.mark_probe(600);
    assert_eq!(marks(&pushes, 9_900), [600, 900, 9_900]);
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
