//! Where segments are cut, joined and counted.

use crate::time::Instant;

use super::super::{CELLS_PER_ROUND_TRIP, EXACT_MAX, Patience, Sent};
use super::*;

fn seq(offset: u32) -> SeqNum {
    SeqNum::new(u32::MAX - 120) + offset
}

fn wait(wait_us: u64) -> Patience {
    Patience { wait_us, timed: seq(1 << 30) }
}

fn at(us: u64) -> Instant {
    Instant::from_micros(1_000_000 + us)
}

/// What was sent in these pieces, a microsecond apart, in segments of 100 bytes.
fn sent(lens: &[u32]) -> Records {
    let mut records = Records::new(seq(0));
    records.set_segment(100);
    let mut start = 0;
    for (i, len) in (0..).zip(lens) {
        records.sent(seq(start), seq(start + len), at(i), 0);
        start += len;
    }
    records
}

/// Length, segments and fate of each record.
fn all(records: &Records) -> Vec<(u32, u32, Fate)> {
    records.list.iter().map(|record| (record.len(), record.count, record.fate)).collect()
}

#[test]
fn the_first_segment_is_lost_and_no_part_of_the_next() {
    use Fate::{Flying, Lost};
    // A FIN is no segment of its own.
    let mut with_fin = sent(&[101, 100]);
    with_fin.list[0].count = 1;
    assert_eq!(with_fin.lose_first(100), 101);
    let mut for_timeout = Records::new(seq(0));
    for_timeout.set_segment(100);
    for_timeout.sent(seq(0), seq(101), at(0), 0);
    for_timeout.seat_fin(100);
    for_timeout.lose_overdue(100, 10, at(5));
    assert_eq!(all(&for_timeout), [(101, 1, Lost)]);
    // Several of unknown sizes, all of them shorter than one of today.
    let mut unknown = sent(&[50, 100]);
    (unknown.list[0].count, unknown.list[0].segment) = (2, 0);
    assert_eq!(unknown.lose_first(100), 50);
    assert_eq!(all(&unknown).iter().map(|record| record.0).collect::<Vec<_>>(), [50, 100]);
    // One of which the size is not known is one.
    let mut unsized_one = Records::new(seq(0));
    unsized_one.sent(seq(0), seq(100), at(0), 0);
    assert_eq!((unsized_one.lose_first(50), unsized_one.counts().lost), (100, 1));
    let mut several = sent(&[250, 100]);
    assert_eq!(several.lose_first(7), 100, "as they were sent");
    assert_eq!(all(&several), [(100, 1, Lost), (150, 2, Flying), (100, 1, Flying)]);
    assert_eq!(several.lose_first(100), 0, "it is known");
    several.sent(seq(0), seq(100), at(9), 0);
    assert_eq!(several.lose_first(100), 0, "it was sent again");
}

#[test]
fn a_fin_takes_no_room_of_the_segment_it_ends() {
    // Sent in segments of 200 bytes, which are 100 now.
    let mut records = Records::new(seq(0));
    records.set_segment(200);
    records.sent(seq(0), seq(101), at(0), 0);
    let edge = seq(1000);
    assert_eq!(records.short_segment(seq(0), (100, edge), Some(seq(100))), Some(seq(101)));
    assert_eq!(records.short_segment(seq(0), (100, edge), None), Some(seq(100)));
    let mut two = sent(&[60, 41]);
    assert_eq!(two.short_segment(seq(0), (100, edge), Some(seq(100))), Some(seq(101)));
    assert_eq!(two.short_segment(seq(0), (100, edge), None), Some(seq(60)));
    assert_eq!(two.short_segment(seq(0), (100, seq(100)), Some(seq(100))), Some(seq(60)), "the peer's edge");
    assert_eq!(two.short_segment(seq(0), (100, seq(101)), Some(seq(100))), Some(seq(101)));
}

#[test]
fn only_what_is_all_on_its_way_becomes_one_segment() {
    let mut records = sent(&[30, 30, 30]);
    records.make_one(seq(0), seq(60));
    assert_eq!(all(&records), [(60, 1, Fate::Flying), (30, 1, Fate::Flying)]);
    assert_eq!((records.list[0].segment, records.counts().flying), (60, 2));
    records.sack(seq(60), seq(90), |_| {});
    records.make_one(seq(0), seq(90));
    assert_eq!(all(&records), [(60, 1, Fate::Flying), (30, 1, Fate::Sacked)]);
    records.make_one(seq(0), seq(50));
    assert_eq!(records.counts().all(), 2, "no part of one does");
    let mut records = sent(&[100, 50]);
    records.lose_first(100);
    records.make_one(seq(0), seq(150));
    records.make_one(seq(150), seq(150));
    assert_eq!(all(&records), [(100, 1, Fate::Lost), (50, 1, Fate::Flying)]);
}

#[test]
fn segments_are_known_of_records_that_follow_whole_ones_of_the_same_size() {
    for (lens, from, to, known) in [
        (&[100, 50][..], 0, 2, true),
        (&[50, 100], 0, 2, false),
        (&[50, 100], 1, 2, true),
        (&[100, 100, 20, 100], 0, 3, true),
        (&[100, 100, 20, 100], 0, 4, false),
        (&[20, 100, 100, 10], 1, 4, true),
    ] {
        assert_eq!(sent(lens).is_aligned(from, to), known, "{lens:?} {from} {to}");
    }
}

#[test]
fn lost_records_that_left_at_different_times_keep_those() {
    for (second_at, since) in [(7, 0), (8, 8)] {
        let mut records = Records::new(seq(0));
        records.set_segment(100);
        for (start, end, us) in [(0, 100, 0), (100, 300, second_at), (300, 400, 9)] {
            records.sent(seq(start), seq(end), at(us), 0);
        }
        records.sack(seq(300), seq(400), |_| {});
        let latest = Sent { at: at(9), end: seq(400), repeated: false };
        assert_eq!(records.detected(latest, wait(0), at(20)).lost, 300);
        let mut told = Vec::new();
        records.sack(seq(200), seq(300), |record: &Record| told.push(record.sent_since()));
        assert_eq!(told, [at(since)]);
    }
}

#[test]
fn a_fin_is_counted_with_the_text_before_it_in_its_packet() {
    // In one record with a segment that had left before, in the same moment.
    let mut records = Records::new(seq(0));
    records.set_segment(100);
    records.sent(seq(0), seq(100), at(0), 0);
    records.sent(seq(100), seq(101), at(0), 0);
    assert_eq!(all(&records), [(101, 2, Fate::Flying)]);
    records.seat_fin(0);
    assert_eq!(records.counts().flying, 2, "it left alone");
    records.seat_fin(99);
    assert_eq!(records.counts().flying, 2, "there was room for it");
    records.seat_fin(100);
    assert_eq!((records.counts().flying, records.list[0].count), (1, 1));
    records.seat_fin(100);
    assert_eq!(records.counts().flying, 1, "one at least");
}

#[test]
fn what_was_sent_again_is_judged_anew_where_its_loss_was_a_mistake() {
    let mut records = sent(&[100, 100, 100]);
    records.lose_from(seq(0));
    records.sent(seq(100), seq(200), at(10), 0);
    records.sent(seq(0), seq(100), at(12), 0);
    records.lose_all();
    assert!(records.repeats.is_empty());
    records.unlose();
    let order: Vec<_> = records.repeats.iter().map(|repeat| (repeat.start, repeat.sent_at)).collect();
    assert_eq!(order, [(seq(100), at(10)), (seq(0), at(12))], "in order of time");
    let latest = super::super::Sent { at: at(11), end: seq(300), repeated: true };
    let found = records.detected(latest, wait(5), at(20));
    assert!(records.is_lost_at(seq(100)) && !records.is_lost_at(seq(0)));
    assert_eq!(found.lost_again, Some(seq(200)));
}

#[test]
fn what_leaves_at_one_time_is_one_record() {
    let mut records = Records::new(seq(0));
    records.set_round_trip(10_000);
    for (i, us) in [(0, 0), (1, 0), (2, 1), (3, 1), (4, 5)] {
        records.sent(seq(100 * i), seq(100 * i + 100), at(us), 0);
    }
    let times: Vec<_> = records.list.iter().map(|record| (record.sent_at, record.len())).collect();
    assert_eq!(times, [(at(0), 200), (at(1), 200), (at(5), 100)]);
}

#[test]
fn behind_many_records_a_burst_of_one_cell_has_arrived_when_its_first_segment_has() {
    let mut records = Records::new(seq(0));
    // Cells of 16 us.
    records.set_round_trip(16 * CELLS_PER_ROUND_TRIP);
    let many = EXACT_MAX as u32 - 1;
    for i in 0..many {
        records.sent(seq(i), seq(i + 1), at(u64::from(i)), 0);
    }
    assert_eq!(records.list.len(), EXACT_MAX - 1);
    let begin = u64::from(many).next_multiple_of(16);
    for (i, us) in [(0, 0), (1, 5), (2, 15), (3, 16)] {
        records.sent(seq(many + 100 * i), seq(many + 100 * i + 100), at(begin + us), 0);
    }
    assert_eq!(records.list.len(), EXACT_MAX + 1);
    let first = records.list[EXACT_MAX - 1];
    assert_eq!((first.sent_at, first.span_us, first.sent_since()), (at(begin + 15), 15, at(begin)));
}

/// An acknowledgment of what was sent once measures a round trip, also if a repetition before it had arrived later.
#[test]
fn what_was_sent_again_stays_apart_from_what_arrived_before_it() {
    let mut records = sent(&[100, 100, 100, 100, 100]);
    records.sack(seq(200), seq(400), |_| {});
    records.sent(seq(100), seq(200), at(50), 0);
    records.sack(seq(100), seq(200), |record| assert!(record.repeated));
    records.sack(seq(400), seq(500), |record| assert!(!record.repeated));
    let found: Vec<(u32, bool)> = records.list.iter().map(|record| (record.len(), record.repeated)).collect();
    assert_eq!(found, [(100, false), (100, true), (300, false)]);
    assert_eq!(records.ack(seq(200), |_| {}), (true, true));
    assert_eq!(records.ack(seq(500), |_| {}), (true, false));
}

/// As Linux joins packets (`tcp_shift_skb_data`).
#[test]
fn what_arrives_behind_what_has_arrived_is_one_with_it_if_its_segments_are_as_long() {
    for (last, blocks, expected) in [
        // Behind a repetition, beside another hole, and between two blocks.
        (100, [(100, 200), (200, 400)].as_slice(), [(100, false), (300, true), (100, false)].as_slice()),
        (100, &[(100, 400)], &[(100, false), (300, true), (100, false)]),
        (100, &[(200, 400), (100, 200)], &[(100, false), (100, true), (200, false), (100, false)]),
        (100, &[(400, 500), (100, 400)], &[(100, false), (400, true)]),
        // A short segment at the end stays apart.
        (50, &[(100, 400), (400, 450)], &[(100, false), (300, true), (50, false)]),
    ] {
        let mut records = sent(&[100, 100, 100, 100, last]);
        records.sent(seq(100), seq(200), at(50), 0);
        for (start, end) in blocks {
            records.sack(seq(*start), seq(*end), |_| {});
        }
        let found: Vec<(u32, bool)> =
            records.list.iter().map(|record| (record.len(), record.repeated)).collect();
        assert_eq!(found, expected, "{last} {blocks:?}");
    }
    // A repetition fills the hole between two blocks.
    let mut records = sent(&[100, 100, 100]);
    records.sack(seq(0), seq(100), |_| {});
    records.sack(seq(200), seq(300), |_| {});
    records.sent(seq(100), seq(200), at(50), 0);
    records.sack(seq(100), seq(200), |_| {});
    assert_eq!(records.list.len(), 1);
    assert_eq!(records.ack(seq(100), |_| {}), (true, true));
}

#[test]
fn a_place_is_inside_a_segment_if_none_begins_or_ends_there() {
    let records = sent(&[300, 50]);
    for (place, is_inside) in
        [(0, false), (1, true), (100, false), (199, true), (300, false), (325, true), (350, false)]
    {
        assert_eq!(records.is_inside(seq(place)), is_inside, "{place}");
    }
}

#[test]
fn a_range_was_sent_once_if_it_is_in_flight_and_no_part_of_it_was_sent_again() {
    let mut records = sent(&[100, 100, 100, 100]);
    records.lose_all();
    records.sent(seq(100), seq(200), at(50), 0);
    for (start, end, expected) in [
        (0, 100, true),
        (200, 400, true),
        (100, 200, false),
        (0, 150, false),
        (150, 300, false),
        (400, 500, false),
    ] {
        assert_eq!(records.is_sent_once(seq(start), seq(end)), expected, "{start} {end}");
    }
}

#[test]
fn a_segment_goes_again_as_it_was_sent_unless_it_is_a_full_one() {
    let mut records = Records::new(seq(0));
    records.set_segment(100);
    records.sent(seq(0), seq(300), at(0), 0);
    records.lose_all();
    assert_eq!(records.short_segment(seq(0), (100, seq(300)), None), None);
    assert_eq!(records.short_segment(seq(0), (150, seq(300)), None), Some(seq(100)));
    assert_eq!(records.short_segment(seq(0), (200, seq(300)), None), Some(seq(200)), "two fit");
    assert_eq!(
        records.short_segment(seq(0), (200, seq(199)), None),
        Some(seq(100)),
        "the peer takes no second"
    );
}

#[test]
fn a_fin_goes_again_with_text_that_leaves_room() {
    let mut records = Records::new(seq(0));
    records.set_segment(120);
    records.sent(seq(0), seq(100), at(0), 0);
    records.sent(seq(100), seq(101), at(500), 0);
    records.lose_all();
    let fin = Some(seq(100));
    assert_eq!(records.short_segment(seq(0), (101, seq(300)), fin), Some(seq(101)));
    assert_eq!(
        records.short_segment(seq(0), (100, seq(300)), fin),
        Some(seq(100)),
        "the text fills a segment"
    );
}

#[test]
fn what_an_undone_repair_has_sent_again_is_told_when_it_is_lost() {
    const COUNT: u32 = 400;
    let mut records = Records::new(seq(0));
    for i in 0..=COUNT {
        records.sent(seq(100 * i), seq(100 * i + 100), at(u64::from(i)), 0);
    }
    let end = 100 * COUNT;
    records.sack(seq(end), seq(end + 100), |_| {});
    let _ = records.detected(
        Sent { at: at(u64::from(COUNT)), end: seq(end + 100), repeated: false },
        wait(0),
        at(500),
    );
    for i in 0..COUNT {
        records.sent(seq(100 * i), seq(100 * i + 100), at(1_000 + u64::from(i)), 0);
    }
    let undone = (seq(end), at(2_000));
    records.unlose();
    assert_eq!(records.repeated_count(undone.0, undone.1), COUNT);
    let again = |records: &mut Records, last: u32, undone| {
        let latest = Sent { at: at(1_000 + u64::from(last)), end: seq(100 * last), repeated: true };
        records.detect(latest, wait(0), undone, at(3_000)).lost_twice
    };
    assert_eq!(again(&mut records, 10, undone), 10);
    assert_eq!(records.repeated_count(undone.0, undone.1), COUNT - 10);
    // Sent again after the undo, or behind what the repair has sent again.
    assert_eq!(again(&mut records, 20, (seq(end), at(1_015))), 5);
    assert_eq!(again(&mut records, 30, (seq(2_500), at(2_000))), 5);
}
