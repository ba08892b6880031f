//! Duplicate acknowledgments that are left out while SACK tells more than their number. The times and blocks are Linux's.

use super::super::segment::{Header, Timestamps};
use super::super::settings::Settings;
use super::quick_ack::settled;
use super::script::{ACK, Script, ms, plain};
use crate::seq::SeqNum;
use crate::time::Instant;

/// The peer's first byte behind those of `settled`.
fn first(t: &Script) -> SeqNum {
    t.pcb.rcv_nxt()
}

/// No quick acknowledgments are left, and the round trip of incoming data is known to be `rtt_ms`.
fn script(rtt_ms: u64) -> Script {
    let mut t = settled(&Settings { sack: true, timestamps: true, ..plain() });
    let sent = (t.now.as_micros() / 1_000) as u32;
    t.now = t.now + ms(rtt_ms);
    t.peer_ts = Some(Timestamps { val: 101, ecr: sent });
    let _ = t.pcb.wanted_rcv_hiwat(0, Some(sent), t.now);
    t
}

/// 100 bytes, `offset` bytes behind the hole's begin.
fn comes(t: &mut Script, offset: u32) -> usize {
    let header = Header { seq: first(t) + offset, ..t.seg(ACK) };
    let _ = t.input(header, &[7; 100]);
    t.output().len()
}

fn deadline(t: &Script) -> Option<u64> {
    t.pcb.next_deadline().map(|at: Instant| at.as_micros() - t.now.as_micros())
}

#[test]
fn beyond_the_third_duplicate_one_waits_for_a_twentieth_of_the_round_trip() {
    // The handshake has measured 10 ms.
    for (rtt_ms, wait_us) in [(10, 500), (100, 500)] {
        let mut t = script(rtt_ms);
        assert_eq!([1, 2, 3].map(|i| comes(&mut t, 100 * i)), [1, 1, 1]);
        assert_eq!([4, 5, 6].map(|i| comes(&mut t, 100 * i)), [0, 0, 0]);
        assert_eq!(deadline(&t), Some(wait_us), "{rtt_ms}");
        let sent = t.wait(ms(1));
        assert_eq!(sent.len(), 1);
        let blocks = sent[0].1.header().options.sack;
        let place = |seq: SeqNum| seq.since(first(&t));
        assert_eq!(
            blocks.as_slice().iter().map(|b| (place(b.start), place(b.end))).collect::<Vec<_>>(),
            [(100, 700)]
        );
        // It has answered all of them, and the next waits again.
        assert_eq!((comes(&mut t, 700), deadline(&t)), (0, Some(wait_us)));
    }
}

#[test]
fn at_most_forty_four_are_left_out_in_a_row() {
    let mut t = script(10);
    let sent: Vec<usize> = (1..=49).map(|i| comes(&mut t, 100 * i)).collect();
    assert_eq!(sent[..3], [1, 1, 1]);
    assert_eq!(sent[3..47], [0; 44]);
    assert_eq!(sent[47..], [1, 0]);
}

#[test]
fn a_third_block_does_not_wait_behind_news_of_others() {
    let mut t = script(10);
    assert_eq!([100, 300, 500].map(|at| comes(&mut t, at)), [1, 1, 1]);
    // The three blocks, the latest first, are 500, 300 and 100.
    assert_eq!(comes(&mut t, 600), 0);
    assert_eq!(comes(&mut t, 400), 0, "it touches the two latest");
    assert_eq!(comes(&mut t, 800), 1, "what was left out goes first");
}

#[test]
fn a_hole_that_is_filled_is_acknowledged_at_once_and_the_count_begins_anew() {
    let mut t = script(10);
    for i in [1, 2, 3, 4, 6] {
        comes(&mut t, 100 * i);
    }
    assert_eq!(comes(&mut t, 0), 1);
    assert!(t.pcb.has_hole());
    assert_eq!([2, 3, 4, 5].map(|i| comes(&mut t, 100 * i)), [1, 1, 1, 0]);
}

#[test]
fn without_sack_or_a_known_round_trip_and_while_acknowledgments_are_quick_each_is_sent() {
    let mut plainly = settled(&plain());
    let mut unmeasured = settled(&Settings { sack: true, ..plain() });
    let mut quick = script(10);
    quick.pcb.enter_quick_acks(16);
    for i in 1..=10 {
        assert_eq!(comes(&mut plainly, 100 * i), 1);
        assert_eq!(comes(&mut unmeasured, 100 * i), 1);
        assert_eq!(comes(&mut quick, 100 * i), 1);
    }
}

#[test]
fn on_a_short_or_unknown_path_one_stands_for_what_arrives_together() {
    for mut t in [script(8), settled(&Settings { sack: true, ..plain() })] {
        assert_eq!([1, 2, 3].map(|i| comes(&mut t, 100 * i)), [1, 1, 1]);
        for i in 4..=9 {
            let header = Header { seq: first(&t) + 100 * i, ..t.seg(ACK) };
            let _ = t.input(header, &[7; 100]);
        }
        let sent = t.output();
        assert_eq!(sent.len(), 1);
        let blocks = sent[0].header().options.sack;
        let ends = blocks.as_slice().iter().map(|block| block.end.since(first(&t)));
        assert_eq!(ends.collect::<Vec<_>>(), [1000]);
        assert_eq!([10, 11].map(|i| comes(&mut t, 100 * i)), [1, 1], "each comes alone");
    }
}

/// The timer of what is left out says nothing of the application, whose delay that of text doubles (`tcp_delack_timer_handler`).
#[test]
fn the_timer_of_acknowledgments_that_are_left_out_leaves_the_delay_of_others() {
    let mut t = script(10);
    let delay_us = t.pcb.ato_us;
    for i in 1..=4 {
        comes(&mut t, 100 * i);
    }
    assert_eq!(t.wait(ms(1)).len(), 1);
    assert_eq!(t.pcb.ato_us, delay_us);
    let mut t = script(10);
    assert_eq!((comes(&mut t, 0), t.wait(ms(200)).len()), (0, 1));
    assert!(t.pcb.ato_us > delay_us);
}
