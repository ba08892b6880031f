//! The scoreboard compared with a model of the state of every byte.

use crate::tcp::timers::NEVER;
use proptest::prelude::*;

use super::*;

const START: u32 = u32::MAX - 4_000;

fn seq(offset: u32) -> SeqNum {
    SeqNum::new(START) + offset
}

fn wait(wait_us: u64) -> Patience {
    Patience { wait_us, timed: seq(1 << 30) }
}

fn at(us: u64) -> Instant {
    Instant::from_micros(1_000_000 + us)
}

/// Ten records of 100 bytes, a microsecond apart.
fn ten() -> Records {
    let mut records = Records::new(seq(0));
    for i in 0..10 {
        records.sent(seq(100 * i), seq(100 * i + 100), at(u64::from(i)), 0);
    }
    records
}

fn fates(records: &Records) -> Vec<(u32, u32, Fate)> {
    let place = |s: SeqNum| s.since(seq(0));
    records.list.iter().map(|r| (place(r.start), place(r.end), r.fate)).collect()
}

fn latest(us: u64, end: u32) -> Sent {
    Sent { at: at(us), end: seq(end), repeated: false }
}

#[test]
fn a_burst_is_one_record_and_a_block_cuts_it() {
    let mut records = Records::new(seq(0));
    for i in 0..10 {
        records.sent(seq(100 * i), seq(100 * i + 100), at(7), 0);
    }
    assert_eq!(fates(&records), [(0, 1000, Fate::Flying)]);
    records.sack(seq(300), seq(500), |r| assert_eq!((r.start, r.end), (seq(300), seq(500))));
    records.sack(seq(300), seq(500), |_| panic!("told twice"));
    assert_eq!(
        fates(&records),
        [(0, 300, Fate::Flying), (300, 500, Fate::Sacked), (500, 1000, Fate::Flying)]
    );
    assert_eq!(records.sacked(), 200);
}

#[test]
fn only_whole_segments_of_a_burst_count_as_held() {
    let mut records = Records::new(seq(0));
    records.set_segment(100);
    records.sent(seq(0), seq(300), at(7), 0);
    records.sent(seq(300), seq(430), at(7), 0);
    for (start, end, held) in [(429, 430, 0), (401, 430, 0), (1, 99, 0), (150, 199, 0), (150, 250, 0)] {
        records.sack(seq(start), seq(end), |_| panic!("{start} {end}"));
        assert_eq!(records.sacked(), held);
    }
    records.sack(seq(150), seq(420), |_| {});
    assert_eq!(fates(&records), [(0, 200, Fate::Flying), (200, 400, Fate::Sacked), (400, 430, Fate::Flying)]);
    records.sack(seq(400), seq(430), |_| {});
    assert_eq!(records.sacked(), 230);
    // Behind a short one there are segments of several sizes, and each byte counts.
    records.sent(seq(430), seq(530), at(9), 0);
    records.sent(seq(530), seq(560), at(9), 0);
    records.sent(seq(560), seq(660), at(9), 0);
    records.sack(seq(530), seq(560), |_| {});
    assert_eq!(records.sacked(), 260);
}

#[test]
fn neighbours_that_are_acknowledged_become_one() {
    let mut records = ten();
    for i in [5, 3, 7, 4, 6] {
        records.sack(seq(100 * i), seq(100 * i + 100), |_| {});
    }
    assert_eq!(fates(&records).len(), 3 + 1 + 2);
    assert_eq!(records.sacked(), 500);
    records.ack(seq(800), |r| assert!(r.end.at_or_before(seq(300))));
    assert_eq!((records.sacked(), fates(&records).len()), (0, 2));
}

/// Karn's rule holds for what was reported before, too, and for all of a run of reported segments of which one was sent again.
#[test]
fn an_acknowledgment_over_what_was_sent_again_and_reported_is_ambiguous() {
    for again in [4, 5, 6] {
        let mut records = ten();
        records.sent(seq(100 * again), seq(100 * again + 100), at(60), 0);
        for i in [5, 4, 6] {
            records.sack(seq(100 * i), seq(100 * i + 100), |_| {});
        }
        assert_eq!(records.ack(seq(300), |_| {}), (true, false));
        assert_eq!(records.ack(seq(800), |_| {}), (true, true), "{again}");
        assert_eq!(records.ack(seq(900), |_| {}), (true, false));
    }
}

#[test]
fn a_part_of_a_segment_is_a_record_of_none_and_not_ambiguous() {
    let mut records = ten();
    records.sent(seq(0), seq(100), at(60), 0);
    let mut counts = Vec::new();
    assert_eq!(records.ack(seq(50), |part| counts.push(part.count)), (false, false));
    assert_eq!(records.ack(seq(201), |part| counts.push(part.count)), (true, true));
    assert_eq!(counts.iter().sum::<u32>(), 2);
    assert_eq!((counts[0], counts.last()), (0, Some(&0)));
}

#[test]
fn the_rest_of_a_segment_knows_how_much_of_it_is_acknowledged() {
    let mut burst = Records::new(seq(0));
    burst.set_segment(100);
    burst.sent(seq(0), seq(1000), at(7), 0);
    for mut records in [ten(), burst] {
        let mut parts = Vec::new();
        for una in [100, 350, 380, 400, 1000] {
            records.ack(seq(una), |part| parts.push((part.start, part.count, part.cut)));
        }
        assert_eq!(parts.iter().map(|(_, count, _)| count).sum::<u32>(), 10);
        parts.retain(|(_, count, cut)| *count == 0 || *cut > 0);
        assert_eq!(parts, [(seq(300), 0, 0), (seq(350), 0, 50), (seq(380), 1, 80)]);
    }
}

#[test]
fn segments_sent_before_the_latest_arrival_are_lost_after_the_reordering_window() {
    let mut records = ten();
    records.sack(seq(900), seq(1000), |_| {});
    let found = records.detected(latest(9, 1000), wait(50), at(52));
    assert_eq!((found.lost, found.due), (300, at(58)), "the timer waits for the last of them");
    assert_eq!(records.lost(), 300);
    let found = records.detected(latest(9, 1000), wait(50), at(70));
    assert_eq!((found.lost, found.due), (600, NEVER));
    assert_eq!(records.next_lost(), Some((seq(0), seq(300))));
}

#[test]
fn segments_sent_after_the_latest_arrival_are_not_marked_lost() {
    let mut records = ten();
    records.sack(seq(400), seq(500), |_| {});
    let found = records.detected(latest(4, 500), wait(0), at(1000));
    assert_eq!((found.lost, found.due), (400, NEVER));
}

#[test]
fn a_retransmission_is_in_flight_again_and_is_lost_by_its_own_time() {
    let mut records = ten();
    records.sack(seq(200), seq(1000), |_| {});
    let _ = records.detected(latest(9, 1000), wait(0), at(20));
    assert_eq!(records.next_lost(), Some((seq(0), seq(200))));
    records.sent(seq(0), seq(100), at(30), 0);
    assert_eq!((records.lost(), records.next_lost()), (100, Some((seq(100), seq(200)))));
    records.sent(seq(100), seq(200), at(31), 0);
    assert_eq!(records.next_lost(), None);
    records.sent(seq(1000), seq(1100), at(40), 0);
    assert_eq!(
        records.detected(latest(9, 1000), wait(0), at(60)).lost,
        0,
        "sent after the segment that arrived"
    );
    records.sack(seq(1000), seq(1100), |_| {});
    let found = records.detected(latest(40, 1100), wait(20), at(50));
    assert_eq!((found.lost, found.due), (100, at(51)), "each has its own time");
    assert_eq!(records.detected(latest(40, 1100), wait(20), at(51)).lost, 100);
}

#[test]
fn a_timeout_marks_all_but_sacked_segments_lost_and_can_be_undone() {
    let mut records = ten();
    records.sack(seq(300), seq(500), |_| {});
    records.lose_all();
    assert_eq!((records.lost(), records.sacked()), (800, 200));
    records.unlose();
    assert_eq!((records.lost(), records.sacked(), records.next_lost()), (0, 200, None));
    records.forget_sacks();
    assert_eq!(records.sacked(), 0);
}

#[test]
fn holes_that_close_in_the_middle_move_a_bounded_number_of_records() {
    let mut records = Records::new(seq(0));
    records.set_segments(u32::MAX);
    // Blocks that arrive in order behind holes: each splits a record near the end.
    for i in 0..1_500 {
        records.sent(seq(200 * i), seq(200 * i + 200), at(u64::from(i)), 0);
        records.sack(seq(200 * i + 100), seq(200 * i + 200), |_| ());
    }
    assert_eq!(records.list.len(), 3_000);
    let most = (MOVED_MAX / MOVED_PER_STEP + RUN_MIN) as u64;
    for i in 500..1_000 {
        let before = records.steps;
        records.sack(seq(200 * i), seq(200 * i + 100), |_| ());
        assert!(records.steps - before <= most, "{} steps for hole {i}", records.steps - before);
    }
    assert_eq!(records.sacked(), 100 * 1_500 + 100 * 500);
    // Separate records are merged as soon as one block covers all of them.
    records.sack(seq(200 * 500), seq(200 * 1_000), |_| panic!("told twice"));
    assert_eq!(records.list.len(), 2 * 1_000);
}

#[test]
fn records_are_bounded_for_any_sequence_of_sends_and_acknowledgments() {
    let mut records = Records::new(seq(0));
    let len = 4 * u32::try_from(RECORDS_MAX).unwrap();
    for i in 0..len {
        records.sent(seq(10 * i), seq(10 * i + 10), at(u64::from(i)), 0);
    }
    for i in 0..len {
        records.sack(seq(10 * i + 3), seq(10 * i + 6), |_| {});
    }
    assert!(records.list.len() <= RECORDS_MAX);
    let _ = records.detected(latest(1 << 30, 10 * len), wait(0), at(1 << 30));
    while let Some((start, end)) = records.next_lost() {
        records.sent(start, end.min(start + 7), at(1 << 31), 0);
    }
    assert!(records.list.len() <= 2 * RECORDS_MAX && records.repeats.len() <= RECORDS_MAX);
}

#[derive(Clone, Debug)]
enum Op {
    Send(u32),
    Ack(u32),
    Sack(u32, u32),
    Detect(u64),
    Repeat(u32),
    LoseAll,
    Unlose,
    Forget,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (1u32..300).prop_map(Op::Send),
        2 => (0u32..400).prop_map(Op::Ack),
        6 => (0u32..4000, 1u32..600).prop_map(|(from, len)| Op::Sack(from, len)),
        4 => (0u64..40).prop_map(Op::Detect),
        4 => (1u32..300).prop_map(Op::Repeat),
        1 => Just(Op::LoseAll),
        1 => Just(Op::Unlose),
        1 => Just(Op::Forget),
    ]
}

/// One byte of the model: whether it was sent twice, and its state.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Byte(Fate);

/// Applies `op` to both.
fn apply(records: &mut Records, model: &mut Vec<Byte>, una: &mut u32, op: &Op, now: u64) {
    let end = *una + model.len() as u32;
    match *op {
        Op::Send(len) => {
            records.sent(seq(end), seq(end + len), at(now), 0);
            model.extend((0..len).map(|_| Byte(Fate::Flying)));
        }
        Op::Ack(len) => {
            let len = len.min(model.len() as u32);
            let news = model.drain(..len as usize).filter(|b| b.0 != Fate::Sacked).count() as u32;
            *una += len;
            let mut reported = 0;
            records.ack(seq(*una), |r| reported += r.len());
            assert_eq!(reported, news);
        }
        Op::Sack(from, len) => {
            let (from, to) = ((*una + from).min(end), (*una + from + len).min(end));
            let mut reported = 0;
            if from < to {
                records.sack(seq(from), seq(to), |r| reported += r.len());
            }
            let part = &mut model[(from - *una) as usize..(to - *una) as usize];
            let news = part.iter().filter(|b| b.0 != Fate::Sacked).count() as u32;
            assert_eq!(reported, news);
            part.fill(Byte(Fate::Sacked));
        }
        Op::Detect(back) => {
            let before = records.lost();
            let sent = Sent { at: at(now.saturating_sub(back)), end: seq(end), repeated: true };
            let found = records.detected(sent, wait(5), at(now));
            assert_eq!(records.lost(), before + found.lost);
            adopt(records, model, *una);
        }
        Op::Repeat(len) => {
            if let Some((start, stop)) = records.next_lost() {
                let first = model.iter().position(|b| b.0 == Fate::Lost).expect("the model has none lost");
                assert_eq!(start.since(seq(*una)), first as u32, "not the first");
                let stop = stop.min(start + len);
                records.sent(start, stop, at(now), 0);
                model[first..first + stop.since(start) as usize].fill(Byte(Fate::Flying));
            } else {
                assert!(model.iter().all(|b| b.0 != Fate::Lost), "a loss was forgotten");
            }
        }
        Op::LoseAll => {
            records.lose_all();
            model.iter_mut().filter(|b| b.0 == Fate::Flying).for_each(|b| b.0 = Fate::Lost);
        }
        Op::Unlose => {
            records.unlose();
            model.iter_mut().filter(|b| b.0 == Fate::Lost).for_each(|b| b.0 = Fate::Flying);
        }
        Op::Forget => {
            records.forget_sacks();
            model.iter_mut().filter(|b| b.0 == Fate::Sacked).for_each(|b| b.0 = Fate::Flying);
        }
    }
}

/// Loss detection has tests of its own: the model adopts its decisions.
fn adopt(records: &Records, model: &mut [Byte], una: u32) {
    for r in &records.list {
        let range = r.start.since(seq(una)) as usize..r.end.since(seq(una)) as usize;
        for byte in &mut model[range] {
            let may = byte.0 == r.fate || (byte.0 == Fate::Flying && r.fate == Fate::Lost);
            assert!(may, "detection turned {:?} into {:?}", byte.0, r.fate);
            byte.0 = r.fate;
        }
    }
}

fn agree(records: &Records, model: &[Byte], una: u32) {
    let mut place = 0;
    for r in &records.list {
        assert_eq!(r.start, seq(una + place), "a gap");
        assert!(!r.start.at_or_after(r.end), "an empty record");
        for byte in &model[place as usize..(place + r.len()) as usize] {
            assert_eq!(byte.0, r.fate);
        }
        place += r.len();
    }
    assert_eq!(place as usize, model.len());
    let count = |fate| model.iter().filter(|b| b.0 == fate).count() as u32;
    assert_eq!((records.sacked(), records.lost()), (count(Fate::Sacked), count(Fate::Lost)));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_byte_has_the_state_that_the_model_gives(ops in prop::collection::vec(op(), 1..120), step in 0u64..3) {
        let mut records = Records::new(seq(0));
        let (mut model, mut una) = (Vec::new(), 0);
        for (i, op) in ops.iter().enumerate() {
            apply(&mut records, &mut model, &mut una, op, i as u64 * step);
            agree(&records, &model, una);
        }
    }
}

#[test]
fn what_was_sent_again_and_is_out_is_counted() {
    let mut records = ten();
    records.sack(seq(500), seq(600), |_| {});
    let _ = records.detected(latest(5, 600), wait(0), at(20));
    records.sent(seq(0), seq(200), at(30), 0);
    records.sent(seq(300), seq(400), at(31), 0);
    records.sack(seq(100), seq(200), |_| {});
    // The second has arrived, the third and the fifth are lost, and the last four were sent once.
    for (until, count) in [(0, 0), (100, 1), (300, 1), (399, 1), (400, 2), (1000, 2)] {
        assert_eq!(records.repeated_len(seq(until)), 100 * count, "{until}");
        assert_eq!(records.repeated_count(seq(until), at(32)), count, "{until}");
        assert_eq!(records.has_repeated(seq(until), at(32)), count > 0, "{until}");
    }
    for (before, count) in [(30, 0), (31, 1), (32, 2)] {
        assert_eq!(records.repeated_count(seq(1000), at(before)), count, "{before}");
    }
    assert_eq!(records.repeated(), 200);
}

#[test]
fn lost_records_become_one_only_if_their_segments_are_known_then() {
    for (second, lost) in [(200, (seq(0), seq(300))), (130, (seq(0), seq(130)))] {
        let mut records = Records::new(seq(0));
        records.set_segment(100);
        for (start, end, us) in [(0, second, 0), (second, 300, 1), (300, 400, 2)] {
            records.sent(seq(start), seq(end), at(us), 0);
        }
        records.sack(seq(300), seq(400), |_| {});
        let found = records.detected(latest(2, 400), wait(0), at(20));
        assert_eq!((found.lost, records.next_lost()), (300, Some(lost)));
    }
}

#[test]
fn what_is_sent_again_at_about_the_same_time_is_one_record() {
    let mut records = ten();
    records.sack(seq(900), seq(1000), |_| {});
    records.lose_all();
    for start in [0, 100, 200, 300] {
        records.sent(seq(start), seq(start + 100), at(64), 0);
    }
    assert_eq!(fates(&records)[..2], [(0, 400, Fate::Flying), (400, 500, Fate::Lost)]);
    assert_eq!(records.repeated_count(seq(1000), at(65)), 4);
}

#[test]
fn only_what_was_found_lost_and_not_sent_again_is_lost() {
    let mut records = ten();
    records.sack(seq(500), seq(600), |_| {});
    let _ = records.detected(latest(5, 600), wait(0), at(20));
    records.sent(seq(0), seq(100), at(30), 0);
    let lost: Vec<u32> = (0..10).filter(|i| records.is_lost_at(seq(100 * i + 50))).collect();
    assert_eq!(lost, [1, 2, 3, 4]);
    assert!(!records.is_lost_at(seq(1000)));
}

/// As far as segments are known, each counts once, when all of it is acknowledged.
#[test]
fn a_segment_is_acknowledged_with_its_last_byte_in_however_many_parts() {
    for steps in [&[50, 100, 300, 320, 399, 400, 401, 430][..], &[1, 2, 199, 200, 350, 430]] {
        let mut records = Records::new(seq(0));
        records.set_segment(100);
        records.sent(seq(0), seq(430), at(7), 0);
        for &una in steps {
            records.ack(seq(una), |_| {});
            let whole = if una == 430 { 5 } else { una / 100 };
            assert_eq!(records.counts().flying, 5 - whole, "{una} of {steps:?}");
        }
    }
}

#[test]
fn a_fin_behind_whole_segments_is_no_segment_of_its_own() {
    for (text, count) in [(200, 2), (150, 2), (100, 1), (0, 1)] {
        let mut records = Records::new(seq(0));
        records.set_segment(100);
        records.sent(seq(0), seq(text + 1), at(7), 0);
        records.seat_fin(text);
        assert_eq!((records.counts().flying, records.counts().all()), (count, count), "{text}");
    }
}

#[test]
fn a_peer_may_cut_twice_as_many_records_as_there_are_segments() {
    let mut records = ten();
    for (count, most) in
        [(0, SPLIT_MIN), (256, SPLIT_MIN), (257, 514), (2_000, 4_000), (u32::MAX / 2, RECORDS_MAX)]
    {
        records.set_segments(count);
        assert_eq!(usize::from(records.split_max), most, "{count}");
    }
    // Ten records: one more may be made, or none.
    for (split_max, held) in [(11, 250), (10, 200)] {
        let mut records = ten();
        records.split_max = split_max;
        records.sack(seq(100), seq(350), |_| {});
        assert_eq!((records.sacked(), records.list.len()), (held, 9), "{split_max}");
        assert!(records.list.iter().all(|record| record.fate != Fate::Sacked || record.start == seq(100)));
    }
}

#[test]
fn memory_is_given_back() {
    let mut records = ten();
    records.lose_all();
    for i in 0..10 {
        records.sent(seq(100 * i), seq(100 * i + 100), at(50 + 2 * u64::from(i)), 0);
    }
    records.ack(seq(1000), |_| {});
    assert!(records.list.capacity() > 0 && records.repeats.capacity() > 0);
    records.shrink();
    assert_eq!((records.list.capacity(), records.repeats.capacity()), (0, 0));
}

#[test]
fn a_timeout_loses_the_first_segment_and_what_has_been_out_for_long() {
    use Fate::{Flying, Lost};
    // Sent in three segments at once, and another one later; out for so long of 10 us.
    for (segment, us, expected) in [
        (100, 9, vec![(0, 100, Lost), (100, 300, Flying), (300, 400, Flying)]),
        (0, 9, vec![(0, 70, Lost), (70, 300, Flying), (300, 400, Flying)]),
        (100, 10, vec![(0, 300, Lost), (300, 400, Flying)]),
        (100, 13, vec![(0, 300, Lost), (300, 400, Flying)]),
        (100, 14, vec![(0, 300, Lost), (300, 400, Lost)]),
    ] {
        let mut records = Records::new(seq(0));
        records.set_segment(segment);
        records.sent(seq(0), seq(300), at(0), 0);
        records.sent(seq(300), seq(400), at(4), 0);
        if segment == 0 {
            // Of several sizes.
            records.list[0].count = 3;
            records.counts.flying += 2;
        }
        records.lose_overdue(70, 10, at(us));
        assert_eq!(fates(&records), expected, "{segment} {us}");
    }
    // A short first one is all, and nothing of the next.
    let mut records = Records::new(seq(0));
    records.set_segment(100);
    records.sent(seq(0), seq(50), at(0), 0);
    records.sent(seq(50), seq(150), at(1), 0);
    records.lose_overdue(100, 10, at(5));
    assert_eq!(fates(&records), [(0, 50, Lost), (50, 150, Flying)]);
}

#[test]
fn repetitions_that_go_on_at_once_are_noted_as_one() {
    let mut records = ten();
    records.lose_all();
    for (from, us) in [(0, 50), (100, 50), (300, 50), (400, 51), (200, 51)] {
        records.sent(seq(from), seq(from + 100), at(us), 0);
    }
    let noted: Vec<_> =
        records.repeats.iter().map(|r| (r.start.since(seq(0)), r.end.since(seq(0)))).collect();
    assert_eq!(noted, [(0, 200), (300, 400), (400, 500), (200, 300)]);
}

#[test]
fn few_lost_records_stay_apart_where_their_segments_would_not_be_known() {
    for (last, count) in [(100, 1), (50, 3)] {
        let mut records = Records::new(seq(0));
        records.set_segment(100);
        let mut end = 0;
        // Every other one is held, but for the last two.
        for i in 0..50u32 {
            let len = if i == 48 { last } else { 100 };
            records.sent(seq(end), seq(end + len), at(u64::from(i)), 0);
            end += len;
        }
        for i in (0..47).step_by(2) {
            records.sack(seq(100 * i), seq(100 * i + 100), |_| {});
        }
        records.sent(seq(end), seq(end + 100), at(60), 0);
        records.detected(latest(60, end + 100), wait(1), at(100));
        // 47 to 49 were three.
        assert_eq!(records.list.len(), 47 + count + 1, "{last}: {:?}", fates(&records));
    }
}

#[test]
fn records_become_one_where_few_move_or_many_become_one() {
    let mut records = Records::new(seq(0));
    for i in 0..2_000 {
        records.sent(seq(i), seq(i + 1), at(u64::from(i)), 0);
    }
    for (from, to, may) in [
        (1_000, 1_002, false),
        (1_000, 1_000 + RUN_MIN - 1, false),
        (1_000, 1_000 + RUN_MIN, true),
        (MOVED_MAX, MOVED_MAX + 2, true),
        (MOVED_MAX + 1, MOVED_MAX + 3, false),
        (2_000 - MOVED_MAX - 1, 2_000 - MOVED_MAX + 1, false),
        (2_000 - MOVED_MAX, 2_000 - MOVED_MAX + 2, true),
    ] {
        assert_eq!(records.may_collapse(from, to), may, "{from} {to}");
    }
    assert_eq!([0, 31, 32, 320, 1_000, 1_999].map(|at| moved(at, 2_000)), [1, 1, 2, 11, 32, 1]);
}

#[test]
fn one_record_that_is_held_keeps_its_segments() {
    let mut records = Records::new(seq(0));
    records.set_segment(100);
    records.sent(seq(0), seq(150), at(0), 0);
    records.sack(seq(0), seq(150), |_| {});
    assert_eq!((records.list[0].segment, records.list[0].count), (100, 2));
}

/// The peer has no room for the rest of a segment, or segments have become smaller or larger.
#[test]
fn the_rest_of_a_segment_that_goes_again_in_part_is_one_of_its_own() {
    for (segment, held) in [(100, (100, 300)), (110, (100, 300)), (90, (160, 260))] {
        let mut records = Records::new(seq(0));
        records.set_segment(100);
        records.sent(seq(0), seq(1000), at(7), 0);
        records.lose_all();
        records.set_segment(segment);
        records.sent(seq(0), seq(60), at(20), 0);
        records.sack(seq(100), seq(300), |record| {
            assert_eq!((record.start, record.end), (seq(held.0), seq(held.1)))
        });
        assert_eq!(records.sacked(), held.1 - held.0, "{segment}");
    }
}

/// The latest that was sent before the arrival may have arrived itself.
#[test]
fn the_timer_waits_for_the_last_repetition_that_is_out() {
    for (arrived, due) in [(0, 60), (1, 60), (14, 60), (15, 60), (16, 50), (17, 50)] {
        let mut records = ten();
        records.lose_all();
        records.sent(seq(900), seq(1000), at(20), 0);
        records.sent(seq(700), seq(800), at(30), 0);
        for i in 0..arrived {
            records.sent(seq(10 * i), seq(10 * i + 10), at(40 + u64::from(i)), 0);
        }
        records.ack(seq(10 * arrived), |_| {});
        let latest = Sent { at: at(99), end: seq(10), repeated: true };
        assert_eq!(records.detected(latest, wait(30), at(49)).due, at(due), "{arrived}");
    }
}
