//! Behaviour in TIME-WAIT, row by row of the RFCs.

use super::*;
use proptest::prelude::*;

const SND_NXT: SeqNum = SeqNum::new(1000);
const RCV_NXT: SeqNum = SeqNum::new(5000);
const TS_RECENT: u32 = 70_000;
const TS_OFFSET: u32 = u32::MAX - 3;
const TWO_MSL: Duration = Duration::from_secs(60);

fn start() -> Instant {
    Instant::from_micros(10_000_000)
}

fn after(millis: u64) -> Instant {
    start() + Duration::from_millis(millis)
}

fn record(timestamps: bool) -> TimeWait {
    let state = TimestampState { ts_recent: TS_RECENT, ts_recent_at: start(), ts_offset: TS_OFFSET };
    let params = TimeWaitParams {
        snd_nxt: SND_NXT,
        rcv_nxt: RCV_NXT,
        window_field: 500,
        timestamps: timestamps.then_some(state),
        expires_at: start() + TWO_MSL,
        two_msl: TWO_MSL,
    };
    TimeWait::new(&params, start())
}

/// A segment at `offset` from RCV.NXT, acknowledging all, with a TSval `age` older than TS.Recent.
fn segment(flags: Flags, offset: i32, age: Option<i32>) -> Header {
    let seq = SeqNum::new(RCV_NXT.raw().wrapping_add_signed(offset));
    let timestamps = age.map(|age| Timestamps { val: TS_RECENT.wrapping_add_signed(-age), ecr: 0 });
    let options = Options { timestamps, ..Options::default() };
    Header { seq, ack: SND_NXT, flags, options, ..Header::default() }
}

fn reopen() -> TimeWaitAction {
    TimeWaitAction::Reopen { iss_floor: SND_NXT + 65_537 }
}

fn is_ack(action: TimeWaitAction) -> bool {
    matches!(action, TimeWaitAction::Ack(_))
}

const FIN_ACK: Flags = Flags::FIN.with(Flags::ACK);

#[test]
fn the_record_is_small() {
    assert!(size_of::<TimeWait>() <= 48, "{}", size_of::<TimeWait>());
}

#[test]
fn a_repeated_fin_is_acknowledged_and_restarts_the_timer() {
    for (offset, payload_len) in [(-1, 0), (-8, 7)] {
        let mut tw = record(true);
        let action = tw.on_segment(&segment(FIN_ACK, offset, Some(-5)), payload_len, after(200));
        let ts = Timestamps { val: 10_200 - 4, ecr: TS_RECENT + 5 };
        let ack = Header {
            seq: SND_NXT,
            ack: RCV_NXT,
            flags: Flags::ACK,
            window: 500,
            urgent: 0,
            gso_size: 0,
            options: Options { timestamps: Some(ts), ..Options::default() },
        };
        assert_eq!(action, TimeWaitAction::Ack(ack));
        assert_eq!(tw.deadline(), after(200) + TWO_MSL);
        // It is never limited: the peer would repeat it for nothing.
        assert!(is_ack(tw.on_segment(&segment(FIN_ACK, offset, Some(-5)), payload_len, after(201))));
    }
}

#[test]
fn nothing_but_the_repeated_fin_restarts_the_timer() {
    let not_the_fin = [
        segment(Flags::ACK, 0, Some(0)),
        segment(Flags::ACK, -1, Some(0)),
        segment(FIN_ACK, -2, Some(0)),
        segment(FIN_ACK, 1, Some(0)),
        segment(FIN_ACK, -1, Some(1)),
        segment(Flags::FIN, -1, Some(0)),
        segment(Flags::SYN, 0, Some(1)),
        segment(Flags::RST, 0, Some(0)),
        Header { ack: SND_NXT + 1, ..segment(FIN_ACK, -1, Some(0)) },
    ];
    for hdr in not_the_fin {
        let mut tw = record(true);
        tw.on_segment(&hdr, 0, after(200));
        assert_eq!(tw.deadline(), start() + TWO_MSL, "{hdr:?}");
    }
}

#[test]
fn a_reset_does_not_end_time_wait() {
    let mut tw = record(false);
    for flags in [Flags::RST, Flags::RST.with(Flags::ACK), Flags::RST.with(Flags::SYN)] {
        let hdr = segment(flags, 0, None);
        assert_eq!(tw.on_segment(&hdr, 0, after(1)), TimeWaitAction::Ignore);
    }
    assert_eq!(tw.deadline(), start() + TWO_MSL);
}

#[test]
fn the_record_is_closed_from_its_deadline_on() {
    let mut tw = record(false);
    let fin = segment(FIN_ACK, -1, None);
    assert_eq!(tw.on_segment(&fin, 0, start() + TWO_MSL), TimeWaitAction::Closed);
    let last_moment = after(59_999);
    assert!(is_ack(tw.on_segment(&fin, 0, last_moment)));
}

#[test]
fn a_syn_reopens_as_in_rfc_6191() {
    // (timestamps before, age of the SYN's TSval, offset of its sequence number, reopens)
    let rows = [
        (true, Some(-1), -9000, true),
        (true, Some(0), 1, true),
        (true, Some(0), 0, false),
        (true, Some(0), -1, false),
        (true, Some(1), 9000, false),
        (true, None, 1, true),
        (true, None, 0, false),
        (false, None, 1, true),
        (false, None, 0, false),
        (false, None, 9000, true),
        (false, None, -1, false),
        (false, Some(-1), 1, true),
        (false, Some(-1), 0, false),
        (false, Some(-1), -1, false),
    ];
    for row in rows {
        let (timestamps, age, offset, reopens) = row;
        let mut tw = record(timestamps);
        let action = tw.on_segment(&segment(Flags::SYN, offset, age), 0, after(1));
        if reopens {
            assert_eq!(action, reopen(), "{row:?}");
        } else {
            assert!(is_ack(action), "{row:?}");
        }
        assert_eq!(tw.deadline(), start() + TWO_MSL);
    }
}

#[test]
fn a_syn_with_ack_or_fin_does_not_reopen() {
    for flags in [Flags::SYN.with(Flags::ACK), Flags::SYN.with(Flags::FIN)] {
        let mut tw = record(true);
        assert!(is_ack(tw.on_segment(&segment(flags, 9000, Some(-9)), 0, after(1))));
    }
}

#[test]
fn the_time_between_two_answers_differs_and_is_half_a_second_at_least() {
    let ack = segment(Flags::ACK, -1, Some(0));
    let mut tw = record(true);
    let answered: Vec<u64> = (0..10_000).filter(|ms| is_ack(tw.on_segment(&ack, 0, after(*ms)))).collect();
    let mut gaps: Vec<u64> = answered.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(gaps.iter().all(|gap| (500..=531).contains(gap)), "{gaps:?}");
    gaps.sort_unstable();
    gaps.dedup();
    assert!(gaps.len() > 8, "{gaps:?}");
}

#[test]
fn segments_without_data_are_answered_once_per_interval() {
    let old_ack = segment(Flags::ACK, -1, Some(0));
    let old_syn = segment(Flags::SYN, -9, Some(1));
    let mut tw = record(true);
    assert!(is_ack(tw.on_segment(&old_ack, 0, after(0))));
    assert_eq!(tw.on_segment(&old_ack, 0, after(499)), TimeWaitAction::Ignore);
    assert_eq!(tw.on_segment(&old_syn, 0, after(499)), TimeWaitAction::Ignore);
    assert!(is_ack(tw.on_segment(&old_syn, 0, after(760))));
    assert_eq!(tw.on_segment(&old_ack, 0, after(761)), TimeWaitAction::Ignore);
    // Repeated data and FINs are always answered.
    assert!(is_ack(tw.on_segment(&segment(FIN_ACK, 5, Some(0)), 0, after(761))));
    let old_data = segment(Flags::ACK, -100, Some(0));
    assert!(is_ack(tw.on_segment(&old_data, 50, after(762))));
    assert!(is_ack(tw.on_segment(&old_data, 50, after(763))));
}

#[test]
fn paws_acknowledges_old_duplicates_and_lets_segments_without_timestamps_pass() {
    let mut tw = record(true);
    assert!(is_ack(tw.on_segment(&segment(Flags::ACK, 0, Some(1)), 10, after(1))));
    let fin = segment(Flags::FIN.with(Flags::ACK), -1, None);
    assert!(is_ack(tw.on_segment(&fin, 0, after(2))));
    assert_eq!(tw.deadline(), after(2) + TWO_MSL, "the FIN was taken");
}

#[test]
fn ts_recent_follows_acceptable_segments_and_never_decreases() {
    let ecr = |tw: &mut TimeWait| tw.ack(after(9)).options.timestamps.unwrap().ecr;
    let mut tw = record(true);
    tw.on_segment(&segment(Flags::ACK, 0, Some(-7)), 0, after(1));
    assert_eq!(ecr(&mut tw), TS_RECENT + 7);
    tw.on_segment(&segment(Flags::ACK, 0, Some(-3)), 0, after(1));
    assert_eq!(ecr(&mut tw), TS_RECENT + 7);
    // Beyond RCV.NXT, and outside the window: not ours to remember.
    tw.on_segment(&segment(Flags::ACK, 1, Some(-20)), 0, after(1));
    tw.on_segment(&segment(Flags::ACK, 5000, Some(-20)), 0, after(1));
    assert_eq!(ecr(&mut tw), TS_RECENT + 7);
}

#[test]
fn only_an_empty_segment_at_the_end_is_not_answered() {
    // (flags, offset from RCV.NXT, bytes of text, acknowledgment beyond ours, answered)
    let rows = [
        (Flags::ACK, 0, 0, 0, false),
        (Flags::ACK, 0, 0, 1, false),
        (Flags::NONE, 0, 0, 0, false),
        (Flags::ACK, 1, 0, 0, true),
        (Flags::ACK, -1, 0, 0, true),
        (Flags::ACK, 70_000, 0, 0, true),
        (Flags::NONE, 1, 0, 0, true),
        (Flags::ACK, 0, 5, 0, true),
        (Flags::NONE, 0, 5, 0, true),
        (Flags::ACK, -5, 5, 0, true),
        (FIN_ACK, 0, 0, 0, true),
        (FIN_ACK, 1, 0, 0, true),
        (FIN_ACK, -1, 0, 1, true),
        (Flags::FIN, -1, 0, 0, true),
    ];
    for row in rows {
        let (flags, offset, payload_len, beyond, answered) = row;
        let mut tw = record(false);
        let hdr = Header { ack: SND_NXT + beyond, ..segment(flags, offset, None) };
        assert_eq!(is_ack(tw.on_segment(&hdr, payload_len, after(1))), answered, "{row:?}");
        assert_eq!(tw.deadline(), start() + TWO_MSL, "{row:?}");
        let is_text = payload_len > 0 || flags.has(Flags::FIN);
        let again = tw.on_segment(&hdr, payload_len, after(2));
        assert_eq!(is_ack(again), answered && is_text, "empty ones may be part of a loop: {row:?}");
    }
}

#[test]
fn reuse_waits_for_one_tick_of_the_timestamp_clock() {
    let mut tw = record(true);
    let reuse = Reuse { iss_floor: SND_NXT + 65_537, ts_offset: TS_OFFSET };
    assert_eq!(tw.can_reuse_for_connect(start() + Duration::from_micros(999)), None);
    assert_eq!(tw.can_reuse_for_connect(after(1)), Some(reuse));
    // Each acknowledgment sends a TSval and begins the wait anew.
    assert!(is_ack(tw.on_segment(&segment(FIN_ACK, -1, Some(0)), 0, after(30))));
    assert_eq!(tw.can_reuse_for_connect(after(30)), None);
    assert_eq!(tw.can_reuse_for_connect(after(31)), Some(reuse));
    assert_eq!(record(false).can_reuse_for_connect(after(5000)), None);
}

#[test]
fn acceptability_follows_the_rfcs_table() {
    let at = |offset: i32| SeqNum::new(0u32.wrapping_add_signed(offset));
    // (offset, len, window, acceptable), RCV.NXT being zero.
    let rows = [
        (0, 0, 0, true),
        (1, 0, 0, false),
        (-1, 0, 0, false),
        (0, 1, 0, false),
        (0, 0, 10, true),
        (9, 0, 10, true),
        (10, 0, 10, false),
        (-1, 0, 10, false),
        (-5, 5, 10, false),
        (-5, 6, 10, true),
        (9, 5, 10, true),
        (10, 5, 10, false),
    ];
    for (offset, len, wnd, acceptable) in rows {
        let found = is_acceptable(at(offset), len, SeqNum::new(0), wnd);
        assert_eq!(found, acceptable, "{offset} {len} {wnd}");
    }
}

proptest! {
    #[test]
    fn any_segment_leaves_the_numbers_alone(
        timestamps in any::<bool>(),
        raw in any::<[u32; 2]>(),
        bits in any::<u8>(),
        ts in any::<Option<(u32, u32)>>(),
        payload_len in 0usize..70_000,
        delay in 0u64..100_000,
    ) {
        let mut tw = record(timestamps);
        let hdr = Header {
            seq: SeqNum::new(raw[0]),
            ack: SeqNum::new(raw[1]),
            flags: Flags::from_bits(bits),
            options: Options {
                timestamps: ts.map(|(val, ecr)| Timestamps { val, ecr }),
                ..Options::default()
            },
            ..Header::default()
        };
        let action = tw.on_segment(&hdr, payload_len, after(delay));
        prop_assert_eq!(action == TimeWaitAction::Closed, delay >= 60_000);
        prop_assert!(tw.deadline() >= start() + TWO_MSL);
        let floor = if timestamps { TS_RECENT } else { 0 };
        prop_assert!(!timestamp::older(tw.ts_recent, floor));
        if let TimeWaitAction::Ack(ack) = action {
            prop_assert_eq!((ack.seq, ack.ack, ack.flags), (SND_NXT, RCV_NXT, Flags::ACK));
            prop_assert!(!hdr.flags.has(Flags::RST));
        }
    }
}

#[test]
fn the_next_answer_to_a_segment_without_data_leaves_when_the_interval_is_over() {
    let answers_after = |millis: i64| {
        let mut record = record(true);
        assert!(is_ack(record.on_segment(&segment(Flags::ACK, -1, Some(1)), 0, start())));
        let interval = i64::from(record.ack_interval_ms());
        is_ack(record.on_segment(&segment(Flags::ACK, -1, Some(1)), 0, after((interval + millis) as u64)))
    };
    assert_eq!([-1, 0, 1].map(answers_after), [false, true, true]);
}

/// Both numbers and the time are needed to foretell it, whatever the other two are.
#[test]
fn the_interval_changes_with_each_of_the_numbers_it_is_made_of() {
    let distinct = |change: fn(&mut TimeWait, u32), other: u32| {
        let intervals: std::collections::HashSet<u32> = (0..64)
            .map(|count: u32| {
                let mut record = record(true);
                (record.snd_nxt, record.rcv_nxt) = (SeqNum::new(other), SeqNum::new(other));
                record.limited_at_ms = 0;
                change(&mut record, count.wrapping_mul(0x0101_0101));
                record.ack_interval_ms()
            })
            .collect();
        intervals.len()
    };
    for other in [0, u32::MAX] {
        assert!(distinct(|record, n| record.snd_nxt = SeqNum::new(n), other) > 20);
        assert!(distinct(|record, n| record.rcv_nxt = SeqNum::new(n), other) > 20);
        assert!(distinct(|record, n| record.limited_at_ms = n, other) > 20);
        assert!(
            distinct(|record, n| (record.snd_nxt, record.limited_at_ms) = (SeqNum::new(n), 1), other) > 20
        );
    }
    // So that what is mixed with the time is all ones.
    let ones = |record: &mut TimeWait, n| {
        (record.snd_nxt, record.rcv_nxt, record.limited_at_ms) = (SeqNum::new(u32::MAX), SeqNum::new(0), n);
    };
    assert!(distinct(ones, 0) > 20);
}
