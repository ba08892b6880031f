//! Runs, and what is cut, joined, reported and given away.

use super::*;

const BASE: u32 = u32::MAX - 50;

impl Reass<Vec<u8>> {
    fn last_start(&self) -> SeqNum {
        self.number(*self.runs.last_key_value().unwrap().0)
    }
}

fn seq(offset: u32) -> SeqNum {
    SeqNum::new(BASE) + offset
}

/// The byte that belongs at `offset`.
fn bytes(range: core::ops::Range<u32>) -> Vec<u8> {
    range.map(|offset| (offset % 251) as u8).collect()
}

fn put(reass: &mut Reass<Vec<u8>>, range: core::ops::Range<u32>) {
    reass.insert(seq(range.start), bytes(range), false);
}

/// Joining moves what the later run holds.
#[test]
fn a_run_of_more_than_64_kibibytes_is_not_joined_to_an_earlier_one() {
    for (len, runs) in [(64 << 10, 1), ((64 << 10) + 1, 2)] {
        let mut reass = Reass::new(seq(0), true);
        put(&mut reass, 20..20 + len);
        put(&mut reass, 10..20);
        assert_eq!(reass.runs.len(), runs, "{len}");
        let first = reass.take(seq(10)).unwrap();
        assert_eq!(first.len() as u32, if runs == 1 { 10 + len } else { 10 });
    }
}

#[test]
fn a_hole_filled_releases_everything_behind_it() {
    let mut reass = Reass::new(seq(0), true);
    put(&mut reass, 10..20);
    put(&mut reass, 30..40);
    assert_eq!(reass.take(seq(0)), None);
    put(&mut reass, 20..30);
    assert_eq!(reass.runs.len(), 1);
    assert_eq!(reass.take(seq(10)), Some(bytes(10..40)));
    assert!(reass.is_empty());
}

#[test]
fn overlaps_are_cut() {
    let mut reass = Reass::new(seq(0), true);
    put(&mut reass, 10..20);
    put(&mut reass, 15..25);
    put(&mut reass, 5..12);
    put(&mut reass, 11..19);
    assert_eq!(reass.take(seq(5)), Some(bytes(5..25)));
}

#[test]
fn a_segment_over_several_runs_and_a_partial_one_swallows_the_whole_ones() {
    let mut reass = Reass::new(seq(0), true);
    put(&mut reass, 10..12);
    put(&mut reass, 14..16);
    put(&mut reass, 18..30);
    put(&mut reass, 8..20);
    assert_eq!(reass.runs.len(), 1);
    assert_eq!(reass.take(seq(8)), Some(bytes(8..30)));
}

#[test]
fn take_discards_delivered_data() {
    let mut reass = Reass::new(seq(0), true);
    put(&mut reass, 10..20);
    put(&mut reass, 30..40);
    assert_eq!(reass.take(seq(35)), Some(bytes(35..40)));
    assert!(reass.is_empty());
}

#[test]
fn pruned_segments_are_received_again_and_not_reported_before() {
    let mut reass = Reass::new(seq(0), true);
    put(&mut reass, 10..20);
    put(&mut reass, 30..33);
    reass.note_fin(seq(40));
    assert_eq!(reass.prune().len(), 13);
    assert!(!reass.has_text() && !reass.is_empty() && reass.piece_count == 0);
    assert!(reass.take_sack(3, 0).is_empty());
    put(&mut reass, 0..5);
    put(&mut reass, 5..40);
    assert_eq!(reass.take(seq(0)), Some(bytes(0..40)));
    assert!(reass.take_fin(seq(40)) && reass.is_empty());
}

#[test]
fn an_early_fin_is_found_once_its_place_is_reached() {
    let mut reass: Reass<Vec<u8>> = Reass::new(seq(0), true);
    reass.note_fin(seq(20));
    reass.note_fin(seq(90));
    assert!(!reass.is_empty() && !reass.take_fin(seq(19)));
    assert!(reass.take_fin(seq(20)));
    assert!(reass.is_empty() && !reass.take_fin(seq(90)));
}

#[test]
fn no_data_is_accepted_behind_a_fin() {
    let mut reass = Reass::new(seq(0), true);
    put(&mut reass, 10..20);
    reass.note_fin(seq(15));
    assert!(!reass.take_fin(seq(15)), "text behind it had arrived");
    reass.note_fin(seq(25));
    put(&mut reass, 20..40);
    put(&mut reass, 30..40);
    assert_eq!(reass.take(seq(10)), Some(bytes(10..25)));
    assert!(reass.take_fin(seq(25)) && reass.is_empty());
}

#[test]
fn a_last_run_of_tiny_segments_is_evicted_for_an_earlier_one_and_a_later_one_is_dropped() {
    let mut reass = Reass::new(seq(0), true);
    for i in 0..PIECES_MAX {
        put(&mut reass, 10 * i + 100..10 * i + 105);
    }
    put(&mut reass, 10 * PIECES_MAX + 100..10 * PIECES_MAX + 105);
    assert_eq!(reass.runs.len(), PIECES_MAX as usize);
    assert_eq!(reass.last_start(), seq(10 * (PIECES_MAX - 1) + 100));
    put(&mut reass, 50..60);
    assert_eq!(reass.runs.len(), PIECES_MAX as usize);
    assert_eq!(reass.last_start(), seq(10 * (PIECES_MAX - 2) + 100));
}

#[test]
fn full_segments_are_not_evicted_for_tiny_ones_and_data_that_continues_the_stream_is_always_taken() {
    let mut reass = Reass::new(seq(0), true);
    for i in 0..PIECES_MAX {
        put(&mut reass, 10 * i + 100..10 * i + 105);
    }
    put(&mut reass, 100_000..200_000);
    put(&mut reass, 50..60);
    assert_eq!(reass.last_start(), seq(100_000));
    assert_eq!(reass.runs.len(), PIECES_MAX as usize + 1);
    put(&mut reass, 0..10);
    assert_eq!(reass.take(seq(0)), Some(bytes(0..10)));
}

#[test]
fn thousands_of_holes_between_full_segments_are_kept_and_filled_from_either_end() {
    let (full, count) = (1448, 5_000);
    let hole = |i: u32| 2 * i * full..(2 * i + 1) * full;
    for backwards in [false, true] {
        let mut reass = Reass::new(seq(0), true);
        for i in 0..count {
            put(&mut reass, hole(i).end..hole(i).end + full);
        }
        assert_eq!(reass.runs.len(), count as usize);
        for i in 0..count {
            put(&mut reass, hole(if backwards { count - 1 - i } else { i }));
        }
        let mut nxt = 0;
        while let Some(run) = reass.take(seq(nxt)) {
            nxt += u32::try_from(run.len()).unwrap();
        }
        assert_eq!(nxt, 2 * count * full);
        assert!(reass.is_empty() && reass.piece_count == 0);
    }
}

#[test]
fn a_batch_of_reports_covers_every_run_that_has_grown() {
    let mut reass = Reass::new(seq(0), true);
    for i in 1..=12 {
        put(&mut reass, 100 * i..100 * i + 50);
    }
    let mut reported = Vec::new();
    for more in (0..4).rev() {
        let blocks = reass.take_sack(3, more);
        reported.extend(blocks.as_slice().iter().map(|block| block.start));
    }
    reported.sort_unstable_by_key(|start| start.since(seq(0)));
    assert_eq!(reported, (1..=12).map(|i| seq(100 * i)).collect::<Vec<_>>());
    // One report alone begins with the latest, and a lost one is made up for.
    put(&mut reass, 2000..2050);
    put(&mut reass, 3000..3050);
    assert_eq!(reass.take_sack(3, 0).as_slice()[0].start, seq(3000));
    assert_eq!(reass.take_sack(3, 0).as_slice()[0].start, seq(3000));
}

#[test]
fn full_segments_are_bounded_by_the_window_alone() {
    let mut reass = Reass::new(seq(0), true);
    let full = 1448;
    for i in 0..3 * PIECES_MAX {
        put(&mut reass, 100 + i * full..100 + (i + 1) * full);
    }
    assert_eq!(reass.take(seq(100)), Some(bytes(100..100 + 3 * PIECES_MAX * full)));
    assert_eq!(reass.piece_count, 0);
}

#[test]
fn tiny_segments_are_bounded_in_number_even_when_they_touch() {
    let mut reass = Reass::new(seq(0), true);
    for i in 0..2 * PIECES_MAX {
        put(&mut reass, 100 + i..101 + i);
    }
    assert_eq!(reass.runs.len(), 1);
    assert_eq!(reass.take(seq(100)), Some(bytes(100..100 + PIECES_MAX)));
}

#[test]
fn a_sequence_number_and_its_place_tell_each_other_on_both_sides_of_the_origin() {
    let reass: Reass<Vec<u8>> = Reass::new(seq(100), true);
    for offset in [0, 1, 99, 100, 101, 5_000, 1 << 30] {
        let place = reass.place(seq(offset));
        assert_eq!(reass.number(place), seq(offset), "{offset}");
        assert_eq!(place + 100, reass.place(seq(100)) + u64::from(offset));
    }
}

/// What is left of a long run stays one of its own, and a segment over both was there all the same.
#[test]
fn a_duplicate_over_runs_that_touch_is_one_range() {
    let long = 20 + (64 << 10) + 1;
    for (range, expected) in [(10..30, 10..30), (9..30, 10..30), (11..30, 11..30), (12..19, 12..19)] {
        let mut reass = Reass::new(seq(0), true);
        put(&mut reass, 20..long);
        put(&mut reass, 10..20);
        let _ = reass.take_sack(0, 0);
        put(&mut reass, range.clone());
        let expected = SackBlock { start: seq(expected.start), end: seq(expected.end) };
        assert_eq!(reass.take_sack(1, 0).as_slice(), [expected], "{range:?}");
    }
}

#[test]
fn a_duplicate_ends_at_the_first_hole() {
    let mut reass = Reass::new(seq(0), true);
    put(&mut reass, 10..20);
    put(&mut reass, 30..40);
    put(&mut reass, 15..50);
    assert_eq!(reass.take_sack(1, 0).as_slice(), [SackBlock { start: seq(15), end: seq(20) }]);
}

#[test]
fn a_report_without_room_for_a_block_takes_none() {
    let mut reass: Reass<Vec<u8>> = Reass::new(seq(0), true);
    reass.note_duplicate(seq(10), seq(20));
    assert!(reass.take_sack(0, 0).is_empty() && reass.has_duplicate());
    assert_eq!(reass.take_sack(1, 0).len(), 1);
    assert!(!reass.has_duplicate());
}

#[test]
fn a_report_is_filled_up_with_the_first_runs() {
    let mut reass = Reass::new(seq(0), true);
    for start in [100, 200, 300, 400, 500, 600] {
        put(&mut reass, start..start + 10);
    }
    // So that nothing is fresh and none was reported.
    reass.fresh.clear();
    for count in 0..=4 {
        let blocks = reass.take_sack(count, 0);
        let starts: Vec<SeqNum> = blocks.as_slice().iter().map(|block| block.start).collect();
        assert_eq!(starts, [100, 200, 300, 400].map(seq)[..count]);
    }
    put(&mut reass, 410..420);
    let blocks = reass.take_sack(4, 0);
    let starts: Vec<SeqNum> = blocks.as_slice().iter().map(|block| block.start).collect();
    assert_eq!(starts, [400, 100, 200, 300].map(seq));
}

/// Runs `a` to `c` begin at 10, 30 and 50; a letter lets that one grow by a byte, `!` reports one, `<` takes the first run.
fn is_late(script: &str) -> bool {
    let mut reass = Reass::new(seq(0), true);
    let mut ends = [10, 30, 50];
    for step in script.chars() {
        match step {
            '!' => assert_eq!(reass.take_sack(1, 0).len(), 1),
            '<' => {
                put(&mut reass, 0..10);
                assert!(reass.take(seq(0)).is_some());
            }
            _ => {
                let end = &mut ends[step as usize - 'a' as usize];
                put(&mut reass, *end..*end + 1);
                *end += 1;
            }
        }
    }
    reass.is_late_block()
}

#[test]
fn a_block_is_late_when_two_others_have_grown_since_it_did() {
    for (script, expected) in [
        ("", false),
        ("a", false),
        ("ab", false),
        ("abc", true),
        ("acbc", false),
        ("cabc", true),
        // The same other twice, of which one was reported.
        ("b!bc", false),
        ("b!abc", true),
        ("b!abac", true),
        // Of the others one is gone, which the first place and the last one taken were in.
        ("ab<c", false),
        ("b!a<bc", false),
    ] {
        assert_eq!(is_late(script), expected, "{script}");
    }
}

#[test]
fn segments_of_less_than_512_bytes_are_counted_until_they_go() {
    let mut reass = Reass::new(seq(0), true);
    for (range, count) in [(1_000..1_511, 1), (2_000..2_512, 1), (2_600..2_700, 2), (2_550..2_560, 3)] {
        put(&mut reass, range.clone());
        assert_eq!(reass.piece_count, count, "{range:?}");
    }
    // A longer one swallows two of them; the stream takes the third, and then all.
    put(&mut reass, 2_520..3_200);
    assert_eq!(reass.piece_count, 1);
    assert!(reass.take(seq(1_000)).is_some());
    assert_eq!(reass.piece_count, 0);
    put(&mut reass, 3_200..3_210);
    assert_eq!((reass.piece_count, reass.take(seq(2_520)).map(|run| run.len())), (1, Some(690)));
    assert!(!reass.has_text() && reass.piece_count == 0);
}

/// Its segments have 512 bytes or more on average.
#[test]
fn a_last_run_of_full_segments_is_kept() {
    for (len, is_kept) in [(600, false), (1_023, false), (1_024, true)] {
        let mut reass = Reass::new(seq(0), true);
        put(&mut reass, 90_000..90_000 + 511);
        put(&mut reass, 90_511..90_000 + len - 2);
        put(&mut reass, 90_000 + len - 2..90_000 + len);
        // As if the last bytes had come with the segment before.
        let last = reass.runs.values_mut().next_back().unwrap();
        last.piece_count = 2;
        reass.piece_count = 2;
        for i in 0..PIECES_MAX - 2 {
            put(&mut reass, 10 * i + 100..10 * i + 105);
        }
        assert_eq!(reass.piece_count, PIECES_MAX);
        put(&mut reass, 50..60);
        assert_eq!(reass.last_start() == seq(90_000), is_kept, "{len}");
    }
}
