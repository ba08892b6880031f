//! What segments say of the peer's full ones, and how long an acknowledgment waits.

use core::time::Duration;

use super::super::sack::SackBlock;
use super::super::settings::Settings;
use super::super::tests::script::{ACK, FIN, MSS, Script, ms, plain};
use super::*;
use crate::seq::SeqNum;

/// No text yet, of a peer whose full segments seem to have `mss_seen` bytes and may have 1,000.
fn text(mss_seen: u16, last_len: u16, fixed_len: u16) -> Text {
    let (len, count, pushed, mss_max) = (0, 0, 0, 1_000);
    Text { len, count, mss_seen, mss_seen_first: mss_seen, last_len, fixed_len, pushed, mss_max }
}

fn piece(len: u32, flags: Flags) -> Piece {
    Piece::of_flags(ACK.with(flags), len)
}

#[test]
fn a_full_segment_is_shorter_by_the_blocks_that_it_carries() {
    let mut header = Header { flags: ACK, gso_size: 7, ..Header::default() };
    for (blocks, len) in [(0, 0), (1, 12), (2, 20)] {
        let piece = Piece::of(&header, 100);
        assert_eq!((piece.len, piece.gso_size, piece.options_len), (100, 7, len), "{blocks}");
        header.options.sack.push(SackBlock { start: SeqNum::new(1), end: SeqNum::new(2) });
    }
}

/// `tcp_measure_rcv_mss`: of a last segment (its length) and the next one, the size of full segments, what is kept as the last length,
/// and the ends of messages.
#[test]
fn two_short_segments_of_a_length_are_full_ones_if_they_are_long_enough_to_tell() {
    let psh = Flags::PSH;
    for (last_len, fixed_len, next, expected) in [
        // As long as the longest, or longer; no segment is longer than the most.
        (0, 0, piece(600, Flags::NONE), (600, 0, 0)),
        (0, 0, piece(700, psh), (700, 0, 1)),
        (0, 0, piece(5_000, Flags::NONE), (1_000, 0, 0)),
        (300, 0, Piece { gso_size: 650, ..piece(1_300, Flags::NONE) }, (650, 0, 0)),
        (0, 0, piece(1, Flags::NONE).behind(599), (600, 0, 0)),
        (300, 0, Piece { gso_size: 650, ..piece(1, Flags::NONE).behind(1_299) }, (650, 0, 0)),
        // Shorter, once and twice.
        (0, 0, piece(300, Flags::NONE), (600, 300, 1)),
        (300, 0, piece(300, Flags::NONE), (300, 300, 0)),
        (301, 0, piece(300, Flags::NONE), (600, 300, 1)),
        (312, 0, Piece { options_len: 12, ..piece(300, Flags::NONE) }, (312, 312, 0)),
        // Too short to tell, with and without timestamps.
        (87, 0, piece(87, Flags::NONE), (600, 0, 1)),
        (88, 0, piece(88, Flags::NONE), (88, 88, 0)),
        (76, 12, piece(76, Flags::NONE), (76, 76, 0)),
        // The rest of something, unless it is long.
        (300, 0, piece(300, psh), (600, 0, 1)),
        (535, 0, piece(535, Flags::FIN), (600, 0, 1)),
        (536, 0, piece(536, Flags::URG), (536, 536, 0)),
    ] {
        let mut text = text(600, last_len, fixed_len);
        text.add(next);
        let found = (text.mss_seen, text.last_len, text.pushed);
        assert_eq!(found, expected, "{next:?} after {last_len}");
    }
}

#[test]
fn text_counts_its_segments_and_their_bytes() {
    let mut text = text(600, 0, 0);
    for (len, flags) in [(300, Flags::NONE), (301, Flags::NONE), (1_000, Flags::PSH)] {
        text.add(piece(len, flags));
    }
    assert_eq!((text.len, text.count, text.pushed), (1_601, 3, 2));
    assert_eq!((text.mss_seen_first, text.mss_seen), (600, 1_000));
}

/// A delay of 40 ms at least and a timeout of 200 ms.
fn waiting() -> Script {
    let t = Script::established(&plain());
    assert_eq!((t.pcb.ato_min_us(), t.pcb.rto_us()), (40_000, 200_000));
    t
}

/// `tcp_event_data_recv`: the delay before text, the gap, the number of segments, the delay after it.
#[test]
fn the_gap_before_text_adapts_the_delay() {
    for (ato_us, gap_us, count, expected) in [
        (0, 1_000_000, 1, 40_000),
        (40_000, 20_000, 1, 40_000),
        (100_000, 20_000, 1, 70_000),
        (100_000, 20_001, 1, 70_001),
        (100_000, 99_999, 1, 149_999),
        (100_000, 100_000, 1, 100_000),
        (190_000, 180_000, 1, 200_000),
        (100_000, 500_000, 1, 100_000),
        // Those that follow in one piece have no gap.
        (100_000, 20_000, 2, 55_000),
        (100_000, 500_000, 3, 55_000),
        (0, 0, 3, 40_000),
    ] {
        let mut t = waiting();
        t.pcb.ato_us = ato_us;
        t.pcb.adapt_ato(gap_us, Text { count, ..text(536, 0, 0) });
        assert_eq!(t.pcb.ato_us, expected, "{ato_us} {gap_us} {count}");
    }
}

#[test]
fn the_first_text_and_text_after_a_pause_longer_than_the_timeout_are_acknowledged_at_once() {
    for (ato_us, gap_us, quick) in
        [(0, 0, 16), (40_000, 40_000, 0), (40_000, 200_000, 0), (40_000, 200_001, 16), (300_000, 250_000, 0)]
    {
        let mut t = waiting();
        (t.pcb.ato_us, t.pcb.acks.quick) = (ato_us, 0);
        t.pcb.adapt_ato(gap_us, text(536, 0, 0));
        assert_eq!(t.pcb.acks.quick, quick, "{ato_us} {gap_us}");
    }
}

/// `tcp_send_delayed_ack`: the longest delay is a round trip, and 200 ms.
#[test]
fn an_acknowledgment_waits_for_the_delay_within_its_bounds() {
    let long = Settings { rto_min: Duration::from_secs(1), ..plain() };
    let us = |settings: &Settings, ato_us, interactive, pushed, rtt_us| {
        let mut t = Script::established(settings);
        t.pcb.rtt = super::super::rtt::Rtt::new(Duration::from_secs(1));
        if rtt_us != 0 {
            t.pcb.rtt.sample(rtt_us, true, 190_000, 120_000_000);
        }
        (t.pcb.ato_us, t.pcb.acks.interactive, t.pcb.pushed) = (ato_us, interactive, pushed);
        t.pcb.delack_us()
    };
    for (ato_us, expected) in [
        (0, 2_000),
        (30_000, 30_000),
        (40_000, 40_000),
        (60_000, 60_000),
        (200_000, 200_000),
        (900_000, 200_000),
    ] {
        assert_eq!(us(&long, ato_us, false, 0, 0), expected, "{ato_us}");
        assert_eq!(us(&long, ato_us, true, 1, 0), expected, "{ato_us}");
    }
    for (rtt_us, expected) in [(10_000, 40_000), (70_000, 70_000), (150_000, 100_000)] {
        assert_eq!(us(&long, 100_000, false, 0, rtt_us), expected, "a round trip of {rtt_us}");
    }
    // A millisecond before the least timeout.
    assert_eq!(us(&plain(), 900_000, false, 0, 0), 189_000);
    // One set longer than 200 ms holds, and more only where neither the end of a message has come nor the application answers.
    let slow = Settings { delack: ms(300), ..long };
    assert_eq!(us(&slow, 900_000, false, 0, 0), 300_000);
    for (interactive, pushed, expected) in
        [(false, 0, 300_000), (false, 1, 200_000), (true, 0, 200_000), (true, 1, 200_000)]
    {
        assert_eq!(us(&slow, 900_000, interactive, pushed, 0), expected, "{interactive} {pushed}");
    }
}

/// Until text is there nothing waits but the acknowledgment of a FIN.
#[test]
fn switching_quickack_on_sends_the_acknowledgment_of_text_and_no_other() {
    for (quickack, flags, is_owed) in
        [(true, ACK, true), (false, ACK, false), (true, FIN, true), (false, FIN, false)]
    {
        let mut t = waiting();
        t.pcb.acks.quick = 0;
        t.pcb.ato_us = 40_000;
        let _ = t.input(t.seg(flags), b"text");
        assert!(t.lens().is_empty() && t.pcb.delack_at != NEVER);
        t.pcb.set_quickack(quickack, true);
        assert_eq!(t.pcb.ack_now, is_owed, "{quickack} {flags:?}");
    }
    let mut t = waiting();
    t.pcb.set_quickack(true, true);
    assert_eq!((t.pcb.pushed, t.pcb.ack_now), (0, false), "nothing waits");
    // In any other state the option is only noted.
    let mut t = waiting();
    t.write(MSS);
    t.pcb.shutdown_write();
    t.output();
    t.pcb.delack_at = t.now;
    t.pcb.set_quickack(true, true);
    assert_eq!((t.pcb.pushed, t.pcb.ack_now, t.pcb.quickack()), (0, false, true));
}
