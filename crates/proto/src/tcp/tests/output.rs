//! When segments are sent: Nagle, TSO, `snd_due_at`; and the size of a pcb.

use super::super::pcb::Pcb;
use super::super::push::half_of_window;
use super::super::segment::{Flags, Header};
use super::super::settings::{PacingMode, Settings};
use super::super::state::State;
use super::script::{ACK, MSS, Script, WND, plain, secs};

#[test]
fn nagle_holds_a_second_small_segment_until_the_first_is_acknowledged() {
    let mut t = Script::established(&plain());
    assert_eq!(t.write(10), [10]);
    assert!(t.write(10).is_empty());
    assert!(t.write(10).is_empty());
    let _ = t.input(t.ack_of(10, WND), &[]);
    assert_eq!(t.lens(), [20]);
}

#[test]
fn a_segment_that_takes_everything_along_is_known_to_be_the_last() {
    let mut t = Script::established(&Settings { lossless: true, ..plain() });
    assert!(!t.pcb.has_sent_all(0), "nothing was sent");
    t.write(10);
    assert!(t.pcb.has_sent_all(10));
    t.write(10);
    assert!(!t.pcb.has_sent_all(20), "the second waits");
    let _ = t.input(t.ack_of(10, WND), &[]);
    assert_eq!(t.lens(), [10]);
    assert!(t.pcb.has_sent_all(10));
    let _ = t.input(t.ack_of(0, 0), &[7; 10]);
    assert_eq!(t.pcb.close(0, t.now), None);
    assert!(!t.pcb.has_sent_all(10), "a FIN is owed");
}

#[test]
fn nagle_does_not_hold_the_tail_of_a_large_write() {
    let mut t = Script::established(&plain());
    assert_eq!(t.write(2 * MSS + 1), [MSS, MSS, 1]);
    assert!(t.write(1).is_empty(), "but a second small one");
    assert_eq!(t.write(MSS), [MSS], "until it is full");
}

#[test]
fn without_nagle_everything_is_sent_at_once_and_disabling_it_releases_held_segments() {
    let mut t = Script::established(&Settings { nodelay: true, ..plain() });
    assert_eq!((t.write(1), t.write(1)), (vec![1], vec![1]));
    let mut t = Script::established(&plain());
    t.write(1);
    assert!(t.write(2).is_empty());
    t.pcb.set_nodelay(true, t.snd);
    assert_eq!(t.lens(), [2]);
}

#[test]
fn a_close_releases_segments_that_nagle_holds() {
    let mut t = Script::established(&plain());
    t.write(1);
    assert!(t.write(2).is_empty());
    t.pcb.shutdown_write();
    assert_eq!(t.lens(), [2]);
}

#[test]
fn tso_takes_whole_segments_and_the_tail_if_it_may_be_sent() {
    let mut t = Script::established(&Settings { tso_max: 4 * MSS + 500, ..plain() });
    assert_eq!(t.write(9 * MSS + 7), [4 * MSS, 4 * MSS, MSS + 7]);
    let _ = t.input(t.ack_of(8 * MSS, WND), &[]);
    assert_eq!(t.write(2 * MSS + 7), [2 * MSS], "a small one is out: the new tail waits");
}

#[test]
fn the_congestion_window_bounds_the_first_flight_to_ten_segments() {
    let mut t = Script::established(&plain());
    assert_eq!(t.write(100 * MSS).len(), 10);
    let mut t = Script::established(&Settings { tso_max: 65_536, ..plain() });
    assert_eq!(t.write(100 * MSS), [10 * MSS]);
}

#[test]
fn snd_due_at_is_the_length_that_makes_a_segment_due() {
    let mut t = Script::established(&Settings { lossless: true, ..plain() });
    assert_eq!(t.pcb.snd_due_at(), 1);
    t.write(10);
    assert_eq!(t.pcb.snd_due_at(), 10 + MSS, "Nagle");
    t.write(MSS);
    assert_eq!(t.pcb.snd_due_at(), 10 + 2 * MSS, "still the same small one");
    let _ = t.input(t.ack_of(10 + MSS, WND), &[]);
    assert_eq!(t.pcb.snd_due_at(), 1);
    t.write(10 * MSS);
    assert_eq!(t.pcb.snd_due_at(), u32::MAX, "congestion window");
    let _ = t.input(t.ack_of(10 * MSS, 0), &[]);
    assert_eq!(t.pcb.snd_due_at(), 1, "closed, but the persist timer must be started");
    t.write(1);
    assert_eq!(t.pcb.snd_due_at(), 2, "a further write may end a pause");
    t.pcb.shutdown_write();
    assert_eq!(t.pcb.snd_due_at(), u32::MAX);
    assert_eq!(Script::connect(&plain()).pcb.snd_due_at(), u32::MAX);
}

#[test]
fn acknowledgments_stay_inside_the_window_of_the_peer() {
    let mut t = Script::established(&plain());
    t.write(5000);
    // The peer's window ends 1000 bytes before the end of the sent data.
    let _ = t.input(t.ack_of(1000, 3000), &[]);
    let _ = t.input(super::super::segment::Header { window: 3000, ..t.ack_of(0, 3000) }, &[0; 3000]);
    let ack = t.output()[0].clone();
    assert_eq!(ack.header().flags, ACK);
    assert_eq!(ack.header().seq, t.pcb.snd_una() + 3000);
}

#[test]
fn a_pcb_takes_at_most_336_bytes() {
    let size = size_of::<Pcb<Vec<u8>>>();
    println!("Pcb: {size} bytes");
    assert!(size <= 336, "{size}");
    assert_eq!(size, size_of::<Pcb<[u64; 0]>>(), "the payload type must not matter");
}

#[test]
fn recovery_state_takes_at_most_512_bytes_beside_its_queues() {
    let size = size_of::<super::super::loss::Loss>();
    println!("Loss: {size} bytes");
    assert!(size <= 512, "{size}");
}

impl super::super::segment::Payload for [u64; 0] {
    fn len(&self) -> usize {
        0
    }
    fn trim_front(&mut self, _: usize) {}
    fn truncate(&mut self, _: usize) {}
    fn append(&mut self, _: Self) {}
}

#[test]
fn segments_are_no_longer_than_half_of_the_largest_window() {
    let mut t = Script::established(&plain());
    for (window, len) in [(1_200u16, 600), (1_900, 950), (2_000, 1_000), (500, 500)] {
        (t.pcb.snd_wnd, t.pcb.max_snd_wnd) = (0, 0);
        let _ = t.input(t.ack_of(0, window), &[]);
        assert_eq!(u32::from(t.pcb.send_mss()), len, "{window}");
    }
}

#[test]
fn a_bound_of_the_rate_spreads_data_that_would_leave_at_once() {
    let mut t = Script::established(&Settings { sack: true, ..plain() });
    t.pcb.set_max_pacing_rate(Some(100_000));
    assert_eq!(t.write(10 * MSS).len(), 1, "10 ms for a segment");
    let sent = t.wait(core::time::Duration::from_millis(100));
    let times: Vec<u64> = sent.iter().map(|(at, _)| at.as_micros() as u64 / 1_000).take(3).collect();
    // Two milliseconds of delay are made up.
    assert_eq!(times, [8, 18, 28]);
}

#[test]
fn writes_of_full_lengths_are_sent_without_a_tail() {
    for tso_max in [0, 1500, 20_480] {
        let mut t = Script::established(&Settings { tso_max, nodelay: true, ..plain() });
        let full = t.pcb.full_len();
        assert_eq!(full, tso_max / MSS * MSS + if tso_max < MSS { MSS } else { 0 });
        // The first window is ten segments.
        t.snd = full.min(10 * MSS);
        assert_eq!(t.lens(), [t.snd]);
    }
}

#[test]
fn where_records_are_kept_output_is_to_be_called_until_it_has_nothing() {
    let mut t = Script::established(&plain());
    t.write(10);
    assert!(!t.pcb.has_sent_all(10), "the use of the window is looked at when it is over");
}

#[test]
fn acknowledgments_that_are_owed_are_something_to_send() {
    let mut t = Script::established(&Settings { lossless: true, ..plain() });
    let mut header = t.seg(ACK);
    header.seq += 100;
    let _ = t.input(header, &[7; 10]);
    assert_eq!(t.pcb.prune(), [7; 10]);
    t.snd = 10;
    let sent = t.pcb.poll_transmit(t.snd, t.space, t.now).map(|sent| sent.len);
    assert_eq!((sent, t.pcb.has_sent_all(10)), (Some(10), false));
    assert_eq!(t.lens(), [0]);
}

#[test]
fn a_bound_on_the_rate_holds_where_pacing_is_off_and_is_told() {
    let mut t = Script::established(&Settings { sack: true, pacing: PacingMode::Off, ..plain() });
    assert_eq!(t.pcb.max_pacing_rate(), None);
    t.pcb.set_max_pacing_rate(Some(100_000));
    assert_eq!(t.pcb.max_pacing_rate(), Some(100_000));
    assert_eq!(t.write(10 * MSS).len(), 1);
    t.pcb.set_max_pacing_rate(None);
    assert_eq!((t.pcb.max_pacing_rate(), t.lens().len()), (None, 9));
}

#[test]
fn room_is_told_in_whole_segments() {
    let mut t = Script::established(&plain());
    assert_eq!(t.pcb.room_for_segments(), 10 * MSS);
    t.write(3 * MSS + 10);
    assert_eq!(t.pcb.room_for_segments(), 6 * MSS);
}

/// Two megabytes a second, twice the window in a round trip, are less than two segments in a millisecond.
#[test]
fn a_burst_is_a_millisecond_of_the_rate_and_half_of_the_window_at_most() {
    let t = Script::established(&Settings { sack: true, ..plain() });
    assert_eq!([1, 2, 8].map(|least| t.pcb.burst_max(least)), [1, 2, 5]);
}

#[test]
fn what_is_corked_leaves_when_it_is_pushed_and_only_that() {
    let mut t = Script::established(&plain());
    t.pcb.set_cork(true, t.snd);
    assert_eq!(t.write(100), []);
    t.pcb.push_corked(t.snd);
    assert_eq!(t.lens(), [100]);
    assert_eq!(t.write(100), []);
}

/// It may end a pause.
#[test]
fn each_write_is_told_where_corked_text_waits_for_a_window_and_nothing_is_in_flight() {
    let mut t = Script::established(&plain());
    t.pcb.snd_wnd = MSS - 1;
    t.pcb.set_cork(true, t.snd);
    assert_eq!(t.write(MSS + 100), []);
    assert_eq!(t.pcb.snd_due_at(), MSS + 101);
}

/// A window of no more than the least segment is not cut in half.
#[test]
fn half_of_a_window_is_meant_where_it_is_larger_than_the_least_segment() {
    assert_eq!([0, 536, 537, 60_000].map(half_of_window), [0, 536, 268, 30_000]);
}

/// RFC 9293 section 3.4: what begins just behind the window is not acceptable, and its acknowledgment does not count.
#[test]
fn a_segment_that_begins_where_the_window_ends_acknowledges_nothing() {
    for (place, acked) in [(1, 0), (0, 0), (-1, MSS)] {
        let mut t = Script::established(&plain());
        t.write(MSS);
        let edge = t.pcb.rcv_nxt() + t.pcb.rcv_wnd();
        let seq = edge + 1 - (1 - place) as u32;
        let input = t.input(Header { seq, ..t.seg(ACK) }, b"text");
        assert_eq!(input.acked, acked, "{place} from the edge");
    }
}

/// Ends of our stream among the segments due now.
fn fins(t: &mut Script) -> Vec<bool> {
    t.output().iter().map(|sent| sent.header().flags.has(Flags::FIN)).collect()
}

/// As any other segment, where there is a congestion window (`tcp_cwnd_test`).
#[test]
fn a_fin_alone_waits_for_room_in_the_windows() {
    for (lossless, segments, expected) in
        [(false, 9, vec![true]), (false, 10, vec![]), (true, 10, vec![true])]
    {
        let mut t = Script::established(&Settings { lossless, ..plain() });
        assert_eq!(t.write(segments * MSS).len(), segments as usize);
        t.pcb.shutdown_write();
        assert_eq!(fins(&mut t), expected, "{lossless} {segments}");
        let _ = t.input(t.ack_of(MSS, WND), &[]);
        assert_eq!(fins(&mut t).len(), 1 - expected.len());
    }
}

#[test]
fn a_fin_does_not_leave_beyond_the_window_of_the_peer() {
    for (window, expected) in [(1_999, vec![false]), (2_000, vec![false, false]), (2_001, vec![false, true])]
    {
        let mut t = Script::established(&plain());
        t.write(MSS);
        let _ = t.input(t.ack_of(MSS, window), &[]);
        t.pcb.shutdown_write();
        t.snd = 2 * MSS;
        assert_eq!(fins(&mut t), expected, "{window}");
    }
}

#[test]
fn a_segment_ends_with_its_record_wherever_that_begins() {
    let mut t = Script::established(&Settings { nodelay: true, ..plain() });
    t.pcb.end_record(1_300);
    assert_eq!(t.write(2_600), [1_000, 300, 1_000, 300]);
}

#[test]
fn a_record_that_waits_leaves_as_soon_as_more_is_written() {
    let mut t = Script::established(&Settings { sack: true, ..plain() });
    assert_eq!(t.write(100), [100]);
    assert!(t.write(100).is_empty(), "Nagle's algorithm");
    assert_eq!(t.pcb.snd_due_at(), 100 + MSS);
    t.pcb.end_record(300);
    assert!(t.write(100).is_empty());
    assert_eq!((t.pcb.snd_due_at(), t.pcb.unsent(300), t.pcb.unsent_in_record(300)), (101, 200, 0));
    assert_eq!(t.write(1), [200]);
    // The last byte has a record of its own, also in a tail loss probe.
    t.pcb.end_record(301);
    t.snd += 50;
    assert!(t.wait(secs(1)).iter().any(|(_, probe)| (probe.offset, probe.len) == (300, 1)));
}

/// RFC 9293 section 3.8.6.2.1: half of the largest window is worth a segment.
#[test]
fn a_part_of_the_text_leaves_when_half_of_the_largest_window_is_free() {
    let mut t = Script::established(&Settings { nodelay: true, ..plain() });
    (t.pcb.snd_wnd, t.pcb.max_snd_wnd) = (0, 0);
    let _ = t.input(t.ack_of(0, 500), &[]);
    assert_eq!(t.write(1_200), [500]);
    let _ = t.input(t.ack_of(249, 500), &[]);
    assert_eq!(t.lens(), []);
    let _ = t.input(t.ack_of(1, 500), &[]);
    assert_eq!(t.lens(), [250]);
}

#[test]
fn only_blocks_that_are_sent_make_segments_shorter() {
    for (sack, mss) in [(false, MSS), (true, MSS - 12)] {
        let mut t = Script::established(&Settings { sack, ..plain() });
        let _ = t.input(Header { seq: t.pcb.rcv_nxt() + 100, ..t.seg(ACK) }, b"text");
        assert_eq!(u32::from(t.pcb.send_mss()), mss);
    }
}

/// Text of 60 bytes beside timestamps and three blocks of 28, in segments of this size.
fn beside_three_blocks(mss: u16) -> Vec<(u32, usize)> {
    let mut t =
        Script::established(&Settings { sack: true, timestamps: true, mss: 88, nodelay: true, ..plain() });
    t.pcb.mss = mss;
    (t.pcb.snd_wnd, t.pcb.max_snd_wnd) = (0, 0);
    let _ = t.input(t.ack_of(0, 60), &[]);
    for offset in [100, 200, 300] {
        let header = Header { seq: t.pcb.rcv_nxt() + offset, ..t.ack_of(0, 60) };
        let _ = t.input(header, b"text");
        t.output();
    }
    t.snd = 60;
    t.output().iter().map(|sent| (sent.len, sent.header().options.sack.len())).collect()
}

/// The window bounds a segment first, and then it is shorter by the blocks (`tcp_current_mss`).
#[test]
fn a_segment_of_a_small_window_is_shorter_by_its_blocks() {
    assert_eq!(beside_three_blocks(76), [(32, 3), (28, 3)]);
    assert_eq!(beside_three_blocks(29)[..2], [(1, 3), (1, 3)]);
}

#[test]
fn blocks_that_take_a_whole_segment_follow_in_an_acknowledgment() {
    assert_eq!(beside_three_blocks(28), [(28, 0), (28, 0), (4, 0), (0, 3)]);
    assert_eq!(beside_three_blocks(20), [(20, 0), (20, 0), (20, 0), (0, 3)]);
}

#[test]
fn whether_more_would_leave_now() {
    let mut t = Script::established(&plain());
    assert!(!t.pcb.sends_more(), "there is nothing");
    t.snd = 2 * MSS + 1;
    let _ = t.pcb.poll_transmit(t.snd, t.space, t.now);
    assert!(t.pcb.sends_more());
    t.output();
    assert!(!t.pcb.sends_more());
    t.write(1);
    assert!(!t.pcb.sends_more(), "it waits for the short segment before it");
}

#[test]
fn room_in_the_window_of_the_peer_is_told_in_whole_segments_too() {
    let mut t = Script::established(&plain());
    t.write(MSS);
    let _ = t.input(t.ack_of(MSS, 2_500), &[]);
    assert_eq!(t.pcb.room_for_segments(), 2 * MSS);
}

/// `tcp_tso_rtt_log`: the most of a packet is halved with each 512 microseconds of the least round trip.
#[test]
fn bursts_are_longer_on_a_short_path() {
    for (us, expected) in [(600, 5), (3_000, 4), (5_000, 2)] {
        let mut t = Script::established(&Settings { sack: true, ..plain() });
        t.write(2 * MSS);
        t.now = t.now + core::time::Duration::from_micros(us);
        let _ = t.input(t.ack_of(MSS, WND), &[]);
        assert_eq!(t.pcb.burst_max(1), expected, "{us} us");
    }
}

/// Of a connection that has sent all: one change, and it may have more to do.
#[test]
fn whatever_is_owed_or_open_is_something_to_send() {
    type Change = fn(&mut Script);
    let sent_all = |change: Change| {
        let mut t = Script::established(&Settings { lossless: true, nodelay: true, ..plain() });
        t.write(100);
        change(&mut t);
        t.pcb.has_sent_all(100)
    };
    assert!(sent_all(|_| ()));
    let changes: [Change; 13] = [
        |t| t.pcb.state = State::CloseWait,
        |t| t.pcb.count_timeout(t.now),
        |t| drop(t.input(Header { seq: t.pcb.rcv_nxt() + 10, ..t.ack_of(0, WND) }, b"hole")),
        |t| t.pcb.recovery.begin(t.pcb.snd_max),
        |t| t.pcb.snd_nxt = t.pcb.snd_una,
        |t| t.pcb.snd_max += 1,
        |t| t.pcb.ack_now = true,
        |t| t.pcb.dup_acks_owed = 1,
        |t| t.pcb.keep_probe = true,
        |t| t.pcb.probe_now = true,
        |t| t.pcb.fin_queued = true,
        |t| t.pcb.syn_unacked = true,
        |t| (t.pcb.snd_nxt, t.pcb.snd_max) = (t.pcb.snd_nxt - 1, t.pcb.snd_max - 1),
    ];
    for (index, change) in changes.into_iter().enumerate() {
        assert!(!sent_all(change), "{index}");
    }
    // Where nothing is there nothing was sent.
    let t = Script::established(&Settings { lossless: true, ..plain() });
    assert!(!t.pcb.has_sent_all(0));
}

/// The blocks at its beginning count while output goes on (`tcp_write_xmit`).
#[test]
fn segments_are_whole_again_when_the_hole_is_filled_and_output_is_over() {
    let mut t = Script::established(&Settings { sack: true, nodelay: true, ..plain() });
    let _ = t.input(Header { seq: t.pcb.rcv_nxt() + 4, ..t.seg(ACK) }, b"more");
    assert_eq!(t.write(2 * MSS)[0], MSS - 12);
    assert_eq!(t.pcb.reass.as_deref().map(|reass| reass.comp.burst_blocks), Some(0));
    let _ = t.input(t.ack_of(0, WND), b"text");
    t.output();
    assert!(t.pcb.reass.is_none());
    assert_eq!(u32::from(t.pcb.send_mss()), MSS);
}

#[test]
fn each_end_of_a_record_stays_until_it_is_acknowledged() {
    let mut t = Script::established(&Settings { nodelay: true, ..plain() });
    for end in [300, 700, 1_800] {
        t.pcb.end_record(end);
    }
    assert_eq!(t.write(2_000), [300, 400, 1_000, 100, 200]);
}

/// So that the use of the window is known.
#[test]
fn the_first_byte_that_waits_is_told_and_no_other() {
    let mut t = Script::established(&plain());
    t.write(10 * MSS);
    assert_eq!(t.pcb.snd_due_at(), 10 * MSS + 1);
    t.write(1);
    assert_eq!(t.pcb.snd_due_at(), u32::MAX);
}
