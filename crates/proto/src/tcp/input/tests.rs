//! What is acceptable, what a segment outside the window still says, and what is cut off.

use super::super::settings::Settings;
use super::super::tests::script::{ACK, FIN, IRS, ISS, MSS, RST, SYN_ACK, Script, WND, ms, plain};
use super::*;
use crate::tcp::cc::{Algorithm, Cc};
use crate::tcp::events::Events;
use crate::tcp::fast_open::Cookie;
use crate::tcp::sack::SackBlock;
use crate::tcp::segment::Options;

/// A segment whose text begins `offset` bytes past RCV.NXT, and which acknowledges all.
fn at(t: &Script, offset: i32, flags: Flags) -> Header {
    let seq = SeqNum::new(t.pcb.rcv_nxt().raw().wrapping_add_signed(offset));
    Header { seq, ..t.seg(flags) }
}

/// With 500 bytes in flight.
fn sending(settings: &Settings) -> Script {
    let mut t = Script::established(settings);
    t.space = settings.rcv_buf;
    t.write(500);
    t
}

/// The same, and nothing more fits into our window.
fn shut() -> Script {
    let mut t = sending(&Settings { rcv_buf: 1_000, nodelay: true, ..plain() });
    let _ = t.input(t.ack_of(0, WND), &[7; 1_000]);
    t.space = 0;
    t.output();
    assert_eq!(t.pcb.rcv_wnd(), 0);
    t
}

/// RFC 9293 section 3.10.7.4: a closed window refuses text, but its acknowledgment counts. A segment without text counts only at RCV.NXT, as on
/// Linux; anywhere else it is answered.
#[test]
fn beside_a_closed_window_an_acknowledgment_counts_where_a_probe_may_stand() {
    let places: [(i32, &[u8], bool); 9] = [
        (-2, b"", false),
        (-1, b"", false),
        (0, b"", true),
        (1, b"", false),
        (2, b"", false),
        // It has come before, and ends where the latest acknowledgment does.
        (-1, b"x", true),
        (0, b"x", true),
        (1, b"x", false),
        (-2, b"xyz", false),
    ];
    for (offset, text, counts) in places {
        let mut t = shut();
        let input = t.input(at(&t, offset, ACK), text);
        assert_eq!(
            (input.acked, input.deliver.len()),
            (if counts { 500 } else { 0 }, 0),
            "{offset} {text:?}"
        );
    }
}

#[test]
fn a_segment_without_text_counts_within_the_window_and_at_its_right_edge() {
    for (offset, counts) in [(-2, false), (-1, false), (0, true), (1, true), (1_000, true), (1_001, false)] {
        let mut t = sending(&Settings { rcv_buf: 1_000, ..plain() });
        assert_eq!(t.pcb.rcv_wnd(), 1_000);
        let input = t.input(at(&t, offset, ACK), &[]);
        assert_eq!(input.acked, if counts { 500 } else { 0 }, "{offset}");
    }
}

/// Text that comes again, and ends at our latest acknowledgment or later, has a sender that may say more than at first (`tcp_sequence` of Linux).
#[test]
fn of_text_that_comes_again_acknowledgment_and_window_count_if_it_ends_at_the_latest_acknowledgment() {
    // Bytes before RCV.NXT, text, whether it counts, and whether it is answered at once.
    let places: [(i32, &[u8], bool, bool); 7] = [
        (-4, b"last", true, true),
        (-2, b"st", true, true),
        (-4, b"la", true, true),
        (-5, b"?la", true, true),
        (-5, b"?l", false, true),
        (-5, b"?", false, true),
        (-2, b"", true, false),
    ];
    for (offset, text, counts, is_answered) in places {
        let mut t = sending(&Settings { rcv_buf: 1_000, ..plain() });
        let _ = t.input(t.ack_of(0, WND), b"first?la");
        t.output();
        // Its acknowledgment waits: "la" was the latest one's end.
        t.pcb.acks.quick = 0;
        let _ = t.input(t.ack_of(0, WND), b"st");
        assert_eq!(t.output().len(), 0);
        let input = t.input(Header { window: WND / 2, ..at(&t, offset, ACK) }, text);
        assert_eq!(
            (input.acked, input.deliver.len()),
            (if counts { 500 } else { 0 }, 0),
            "{offset} {text:?}"
        );
        assert_eq!(t.pcb.snd_wnd() == u32::from(WND / 2), counts, "{offset} {text:?}");
        assert_eq!(t.output().len(), usize::from(is_answered), "{offset} {text:?}");
    }
}

#[test]
fn a_fin_that_comes_again_is_answered_and_does_no_more() {
    for (offset, text) in [(-1, b"".as_slice()), (-3, b"en")] {
        let mut t = sending(&Settings { rcv_buf: 1_000, ..plain() });
        let _ = t.input(Header { flags: FIN, ..t.ack_of(0, WND) }, b"the end");
        let _ = t.wait(ms(100));
        let nxt = t.pcb.rcv_nxt();
        let input = t.input(at(&t, offset, FIN), text);
        assert_eq!((input.acked, input.deliver.len(), input.events), (500, 0, Events::NONE));
        assert_eq!((t.pcb.state(), t.pcb.rcv_nxt()), (State::CloseWait, nxt));
        assert_eq!(t.output().len(), 1);
    }
}

/// The peer's keepalive stands there, too, and asks for an answer; it does not tell of a hole.
#[test]
fn probes_are_no_duplicate_acknowledgments() {
    for (offset, repeats) in [(-1, false), (0, true)] {
        let mut t = Script::established(&plain());
        t.write(5 * MSS);
        for _ in 0..3 {
            let header = Header { ack: t.pcb.snd_una(), ..at(&t, offset, ACK) };
            let _ = t.input(header, &[]);
        }
        assert_eq!(t.output().iter().any(|segment| segment.len > 0), repeats);
    }
}

/// MUST-66: a reset with text is judged by its sequence number. Only one that may have been sent by a peer that is out of step is challenged (RFC 5961 section 3).
#[test]
fn at_a_closed_window_only_a_reset_at_its_place_resets() {
    let places = [(0, "why", true, 0), (1, "why", false, 0), (-2, "w", false, 0), (-1, "w", false, 1)];
    for (offset, text, resets, answers) in places {
        let mut t = shut();
        let input = t.input(at(&t, offset, RST), text.as_bytes());
        assert_eq!(input.events.has(Events::RESET), resets, "{offset}");
        assert_eq!(t.output().len(), answers, "{offset}");
    }
}

/// RFC 9293 section 3.4, table 6: the first byte or the last is in the window.
#[test]
fn a_segment_from_before_the_window_may_end_with_its_last_byte() {
    for (len, taken) in [(5, 0), (6, 1), (104, 99), (105, 100), (106, 0)] {
        let mut t = Script::established(&Settings { rcv_buf: 100, ..plain() });
        let input = t.input(at(&t, -5, ACK), &vec![7; len]);
        assert_eq!(input.deliver.len(), taken, "{len}");
    }
}

#[test]
fn text_that_fills_the_window_keeps_its_fin_and_more_loses_it() {
    for (len, taken, ends) in [(98, 98, true), (99, 99, true), (100, 100, false), (101, 100, false)] {
        let mut t = Script::established(&Settings { rcv_buf: 100, ..plain() });
        let input = t.input(at(&t, 0, FIN), &vec![7; len]);
        assert_eq!((input.deliver.len(), input.events.has(Events::PEER_FIN)), (taken, ends), "{len}");
    }
    // The SYN before it is not counted once more.
    let mut t = Script::connect(&Settings { rcv_buf: 100, ..plain() });
    t.output();
    let header = Header { options: Options::default(), ..t.raw(IRS, ISS + 1, SYN_ACK.with(Flags::FIN)) };
    let input = t.input(header, &[7; 99]);
    assert_eq!((input.deliver.len(), input.events.has(Events::PEER_FIN)), (99, true));
}

#[test]
fn text_that_fills_the_window_is_acknowledged_when_it_would_be_anyway() {
    for (len, is_owed) in [(99, false), (100, false), (101, true)] {
        let mut t = Script::established(&Settings { rcv_buf: 100, ..plain() });
        (t.pcb.acks.quick, t.pcb.ato_us, t.pcb.rcv_mss_seen) = (0, 40_000, 1_000);
        let _ = t.input(at(&t, 0, ACK), &vec![7; len]);
        assert_eq!(t.pcb.ack_now, is_owed, "{len}");
    }
}

/// As of any FIN, though the text's acknowledgment may be lost (Linux's `tcp_data_queue`).
#[test]
fn an_end_behind_text_that_was_there_is_taken_and_its_acknowledgment_waits() {
    let mut t = Script::established(&plain());
    let _ = t.input(t.seg(ACK), b"text");
    t.output();
    t.pcb.acks.quick = 0;
    let input = t.input(at(&t, -4, FIN), b"text");
    assert_eq!((input.deliver.len(), input.events.has(Events::PEER_FIN)), (0, true));
    assert_eq!(t.output().len(), 0);
    assert_eq!(t.wait(ms(100)).iter().map(|(at, _)| *at).collect::<Vec<_>>(), [ms(40)]);
}

#[test]
fn text_behind_the_end_of_the_stream_is_acknowledged_and_not_taken() {
    let mut t = Script::in_state(State::CloseWait, &plain(), false);
    let nxt = t.pcb.rcv_nxt();
    assert_eq!(t.input(at(&t, -3, ACK), b"ab\0cd").deliver, b"");
    assert_eq!((t.pcb.rcv_nxt(), t.lens()), (nxt, vec![0]));
}

/// RFC 9293 section 3.8.1: each time, for the acknowledgment may be lost. What has no length could be answered for ever.
#[test]
fn old_text_is_acknowledged_without_a_limit_and_an_old_segment_without_text_within_one() {
    let count = |text: &[u8]| {
        let mut t = Script::established(&plain());
        let _ = t.input(t.seg(ACK), b"text");
        t.output();
        (0..100)
            .filter(|_| {
                let _ = t.input(at(&t, -3, ACK), text);
                t.lens() == [0]
            })
            .count()
    };
    assert_eq!(count(b"ext"), 100);
    assert_eq!(count(b""), 1);
}

/// The acknowledgment of the latest text is one of those that go at once, that of earlier text is not.
#[test]
fn an_acknowledgment_of_repeated_text_counts_if_that_is_the_latest() {
    for (offset, left) in [(-9, 16), (-4, 15)] {
        let mut t = Script::established(&plain());
        let _ = t.input(t.seg(ACK), b"early");
        let _ = t.input(t.seg(ACK), b"late");
        t.output();
        t.pcb.acks.quick = 0;
        let _ = t.input(at(&t, offset, ACK), b"late");
        assert_eq!((t.pcb.acks.quick, t.lens()), (16, vec![0]));
        assert_eq!(t.pcb.acks.quick, left, "{offset}");
    }
}

#[test]
fn a_duplicate_is_kept_for_a_report_only_where_it_is_reported() {
    let keeps = |sack, offset: i32| {
        let mut t = Script::established(&Settings { sack, ..plain() });
        let _ = t.input(t.seg(ACK), b"text");
        t.output();
        let _ = t.input(at(&t, offset, ACK), b"xt");
        t.pcb.reass.is_some()
    };
    assert!(keeps(true, -2));
    assert!(!keeps(false, -2));
    assert!(!keeps(true, -5), "from before the stream");
}

fn with_timestamps() -> Script {
    Script::established(&Settings { timestamps: true, ..plain() })
}

fn stamped(header: Header, val: u32) -> Header {
    let timestamps = Some(Timestamps { val, ecr: 0 });
    Header { options: Options { timestamps, ..header.options }, ..header }
}

/// RFC 7323 section 5.3, and Linux's `tcp_disordered_ack_check`: TS.Recent is 100.
#[test]
fn of_segments_with_an_old_timestamp_an_overtaken_acknowledgment_alone_is_not_answered() {
    for (offset, text, answers) in
        [(-1, "", 0), (0, "", 0), (1, "", 1), (-1, "x", 1), (-1, "xy", 1), (0, "x", 1)]
    {
        let mut t = with_timestamps();
        let input = t.input(stamped(at(&t, offset, ACK), 98), text.as_bytes());
        assert_eq!((input.deliver.len(), t.lens().len()), (0, answers), "{offset} {text}");
    }
}

/// It counts as a duplicate if it is younger than 1.2 retransmission timeouts, and tells nothing else.
#[test]
fn of_acknowledgments_with_an_old_timestamp_a_young_duplicate_counts() {
    let young = |t: &Script| 100_u32.wrapping_sub(u32::try_from(t.pcb.rto().as_millis() * 6 / 5).unwrap());
    type Change = fn(&mut Header);
    let changes: [(u32, Change, bool); 6] = [
        (0, |_| {}, true),
        (1, |_| {}, false),
        (0, |header| header.window += 1, false),
        (0, |header| header.ack += 1, false),
        (0, |header| header.flags = FIN, false),
        (0, |header| header.seq += 1, false),
    ];
    for (older, change, counts) in changes {
        let mut t = Script::established(&Settings { timestamps: true, sack: false, ..plain() });
        t.write(3 * MSS);
        let mut header = stamped(t.ack_of(0, WND), young(&t).wrapping_sub(older));
        change(&mut header);
        for _ in 0..3 {
            assert_eq!(t.input(header, &[]).acked, 0);
        }
        assert_eq!(t.pcb.ts_recent, 100);
        assert_eq!(t.lens(), [if counts { t.pcb.mss().into() } else { 0 }], "{header:?}");
    }
}

#[test]
fn a_reset_and_a_connection_without_timestamps_are_not_tested_for_old_ones() {
    let mut t = with_timestamps();
    assert!(t.input(stamped(t.seg(RST), 99), &[]).events.has(Events::RESET));
    let mut t = Script::established(&plain());
    assert_eq!(t.input(stamped(t.seg(ACK), 1 << 31 | 1), b"text").deliver, b"text");
}

/// RFC 7323 section 4.3: only from a segment that is acceptable.
#[test]
fn a_probe_that_is_refused_leaves_ts_recent() {
    for (space, recent) in [(0, 100), (1_000, 150)] {
        let mut t = Script::established(&Settings { timestamps: true, rcv_buf: 1_000, ..plain() });
        let _ = t.input(t.seg(ACK), &[7; 1_000]);
        t.space = space;
        t.output();
        assert_eq!(t.pcb.rcv_wnd(), space);
        let _ = t.input(stamped(t.seg(ACK), 150), b"x");
        assert_eq!(t.pcb.ts_recent, recent);
    }
}

/// An option that we have not offered changes nothing.
#[test]
fn scaling_and_timestamps_are_agreed_to_by_both() {
    for offered in [false, true] {
        let s = Settings { window_scaling: offered, timestamps: offered, rcv_buf_max: 1 << 20, ..plain() };
        let mut t = Script::connect(&s);
        t.output();
        let timestamps = Some(Timestamps { val: 7, ecr: t.timestamp() });
        let options = Options { window_scale: Some(3), timestamps, ..Options::default() };
        let _ = t.input(Header { options, ..t.raw(IRS, ISS + 1, SYN_ACK) }, &[]);
        t.output();
        let header =
            Header { window: 1_000, options: Options { window_scale: None, ..options }, ..t.seg(ACK) };
        let _ = t.input(header, b"x");
        assert_eq!(t.pcb.snd_wnd(), if offered { 8_000 } else { 1_000 });
        let sent = t.output()[0].header();
        assert_eq!(sent.options.timestamps.map(|ts| ts.ecr), offered.then_some(7));
    }
}

/// Both the secret and the time are needed to foretell it, whatever the other one is.
#[test]
fn the_interval_of_challenges_changes_with_each_of_the_numbers_it_is_made_of() {
    let spread = CHALLENGE_INTERVAL_MS..CHALLENGE_INTERVAL_MS + CHALLENGE_SPREAD_MS;
    let distinct = |interval: &dyn Fn(u32) -> u32| {
        let all: std::collections::HashSet<u32> =
            (0..64).map(|count: u32| interval(count.wrapping_mul(0x0101_0101))).collect();
        assert!(all.iter().all(|interval| spread.contains(interval)), "{all:?}");
        all.len()
    };
    for other in [0, 1, 1 << 31, u32::MAX] {
        assert!(distinct(&|secret| interval_ms(secret, other)) > 20, "{other}");
        assert!(distinct(&|at_ms| interval_ms(other, at_ms)) > 20, "{other}");
    }
}

/// Linux's header prediction, of a transfer in one direction.
#[test]
fn the_short_path_takes_only_what_changes_nothing_but_text_or_acknowledgment() {
    let is_short = |t: &Script, header: &Header| t.pcb.is_on_short_path(&Segment::new(header, Vec::new()));
    let mut t = Script::established(&Settings { sack: true, ..plain() });
    let usual = t.seg(ACK);
    assert!(is_short(&t, &usual));
    for flag in [Flags::SYN, Flags::FIN, Flags::URG] {
        assert!(!is_short(&t, &Header { flags: ACK.with(flag), ..usual }), "{flag:?}");
    }
    assert!(!is_short(&t, &Header { seq: usual.seq + 1, ..usual }));
    assert!(!is_short(&t, &Header { seq: usual.seq - 1, ..usual }));
    assert!(!is_short(&t, &Header { window: WND - 1, ..usual }));
    let mut reports = usual;
    reports.options.sack.push(SackBlock { start: usual.ack, end: usual.ack + 1 });
    assert!(!is_short(&t, &reports));
    let _ = t.input(at(&t, 10, ACK), b"behind a hole");
    assert!(!is_short(&t, &usual));
    for state in [State::CloseWait, State::FinWait1, State::FinWait2] {
        let t = Script::in_state(state, &plain(), false);
        assert!(!is_short(&t, &t.seg(ACK)), "{state:?}");
    }
}

/// Only news set the count of timeouts back.
#[test]
fn a_peer_that_acknowledges_nothing_new_is_given_up() {
    let mut t = Script::established(&Settings { retries: 3, ..plain() });
    t.write(MSS);
    for _ in 0..20 {
        let Some(at) = t.pcb.next_deadline() else { break };
        let _ = t.wait(at.since(t.now));
        if t.pcb.state() != State::Closed {
            let _ = t.input(t.ack_of(0, WND), &[]);
        }
    }
    assert!(t.events.has(Events::TIMED_OUT));
}

/// `tcp_ack_probe`.
#[test]
fn the_next_probe_waits_from_the_latest_word_of_the_window_on() {
    let mut t = Script::established(&plain());
    t.write(MSS);
    let _ = t.input(t.ack_of(MSS, 0), &[]);
    t.write(MSS);
    let first = t.pcb.next_deadline().unwrap();
    t.now = t.now + ms(100);
    let _ = t.input(t.ack_of(0, 0), &[]);
    t.output();
    assert_eq!(t.pcb.next_deadline(), Some(first + ms(100)));
}

/// Where nothing is lost each window's use is judged by what was in flight, and timed one segment at a time.
#[test]
fn without_records_more_than_half_of_the_window_makes_it_grow() {
    for (count, cwnd) in [(5, 10), (6, 16), (10, 20)] {
        let mut t = Script::established(&Settings { lossless: true, ..plain() });
        t.write(count * MSS);
        let _ = t.input(t.ack_of(count * MSS, WND), &[]);
        assert_eq!(t.pcb.cwnd(), cwnd * MSS, "{count}");
    }
}

/// In congestion avoidance by a segment.
#[test]
fn without_records_a_window_grows_by_a_segment_if_more_than_half_of_it_is_used() {
    for (counts, cwnd) in [([5, 5], 10), ([4, 6], 10), ([6, 6], 11), ([10, 0], 11)] {
        let mut t = Script::established(&Settings { lossless: true, ..plain() });
        t.pcb.cc = Cc::new(Algorithm::NewReno, MSS, false).with_window(10 * MSS, 5 * MSS);
        for count in counts {
            t.write(count * MSS);
            let _ = t.input(t.ack_of(count * MSS, WND), &[]);
        }
        assert_eq!(t.pcb.cwnd(), cwnd * MSS, "{counts:?}");
    }
}

#[test]
fn without_records_a_round_trip_is_measured_from_a_segment_to_its_acknowledgment() {
    let mut t = Script::established(&Settings { lossless: true, nodelay: true, ..plain() });
    t.write(100);
    t.now = t.now + ms(30);
    t.write(100);
    t.now = t.now + ms(10);
    // 10 ms of the handshake and 40 of the first segment.
    let _ = t.input(t.ack_of(100, WND), &[]);
    assert_eq!(t.pcb.srtt().map(|srtt| srtt.as_micros()), Some(13_750));
    assert_eq!(t.pcb.timing, super::super::pcb::Timing::Idle);
    let _ = t.input(t.ack_of(100, WND), &[]);
    assert_eq!(t.pcb.srtt().map(|srtt| srtt.as_micros()), Some(13_750));
    // An acknowledgment of what was before is none of the segment that is timed.
    t.write(100);
    t.pcb.timing = super::super::pcb::Timing::Idle;
    t.write(100);
    let _ = t.input(t.ack_of(100, WND), &[]);
    assert_eq!(t.pcb.timing, super::super::pcb::Timing::Running);
}

/// RFC 5681 section 2, within one process.
#[test]
fn without_records_text_or_a_window_make_an_acknowledgment_no_duplicate() {
    type Change = fn(&Script, u16) -> (Header, &'static [u8]);
    let repeated = |change: Change| {
        let mut t = Script::established(&Settings { lossless: true, ..plain() });
        assert_eq!(t.write(10 * MSS).len(), 10);
        for count in 1..=3 {
            let (header, text) = change(&t, count);
            let _ = t.input(header, text);
        }
        t.output().iter().any(|sent| sent.len > 0)
    };
    assert!(repeated(|t, _| (t.ack_of(0, WND), b"")));
    assert!(!repeated(|t, _| (t.ack_of(0, WND), b"text")));
    assert!(!repeated(|t, count| (t.ack_of(0, WND + count), b"")));
    assert!(!repeated(|t, _| (Header { ack: t.pcb.snd_una() - 1, ..t.ack_of(0, WND) }, b"")));
    let mut t = Script::established(&Settings { lossless: true, ..plain() });
    (0..3).for_each(|_| drop(t.input(t.ack_of(0, WND), &[])));
    assert_eq!((t.lens(), t.pcb.cwnd()), (vec![], 10 * MSS), "nothing is in flight");
}

/// What is left of the text of a SYN is sent again; more than that has waited for the answer, which then asks for quick acknowledgments.
#[test]
fn text_that_has_waited_for_the_handshake_makes_acknowledgments_quick() {
    let fast_open = Some(crate::tcp::fast_open::FastOpenSyn { cookie: Cookie::new(b"8 bytes."), mss: 500 });
    for (written, taken, quick) in
        [(300, 300, 0), (300, 100, 0), (460, 300, 0), (461, 460, 16), (461, 100, 16)]
    {
        let mut t = Script::connect(&Settings { fast_open, ..plain() });
        t.snd = written.min(460);
        t.output();
        t.pcb.snd_len = written;
        t.snd = written;
        let options = Options { mss: Some(1_000), ..Options::default() };
        let input = t.input(Header { options, ..t.raw(IRS, ISS + 1 + taken, SYN_ACK) }, &[]);
        assert_eq!((input.acked, t.pcb.snd_len), (taken, written - taken));
        assert_eq!(t.pcb.acks.quick, quick, "{written} {taken}");
    }
}

/// A bare acknowledgment out of order sets SND.WL1 ahead, text in order with the same window sets it back.
#[test]
fn text_in_order_with_the_known_window_sets_the_number_of_windows_back() {
    for (window, text, stays) in [(WND, &b"text"[..], false), (WND, b"", true), (WND - 1, b"text", true)] {
        for takes_all_steps in [false, true] {
            let mut t = Script::established(&plain());
            let seq = t.pcb.rcv_nxt();
            let _ = t.input(Header { seq: seq + 500, ..t.ack_of(0, WND) }, &[]);
            t.pcb.takes_all_steps = takes_all_steps;
            let _ = t.input(Header { seq, ..t.ack_of(0, window) }, text);
            let wl1 = if stays { seq + 500 } else { seq };
            assert_eq!(t.pcb.snd_wl1, wl1, "{window} {text:?}");
        }
    }
}
