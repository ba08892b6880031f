//! When acknowledgments go out (RFC 9293 section 3.8.6.3, RFC 5681 section 4.2).

use core::time::Duration;

use super::super::settings::Settings;
use super::quick_ack::settled;
use super::script::{ACK, FIN, IRS, MSS, Script, ms, plain};
use crate::seq::SeqNum;

fn full() -> Vec<u8> {
    vec![1; MSS as usize]
}

#[test]
fn a_lone_segment_waits_for_the_delay() {
    let mut t = settled(&plain());
    let _ = t.input(t.seg(ACK), b"x");
    assert!(t.output().is_empty());
    let sent = t.wait(ms(100));
    assert_eq!(sent.iter().map(|(at, _)| *at).collect::<Vec<Duration>>(), [ms(40)]);
    assert_eq!(sent[0].1.header().ack, t.pcb.rcv_nxt());
    assert_eq!(t.pcb.next_deadline(), None);
}

#[test]
fn later_segments_do_not_restart_the_delay() {
    let mut t = settled(&plain());
    let _ = t.input(t.seg(ACK), b"x");
    assert!(t.wait(ms(30)).is_empty());
    let _ = t.input(t.seg(ACK), b"y");
    assert_eq!(t.wait(ms(100))[0].0, ms(10));
}

#[test]
fn every_second_full_segment_is_acknowledged_at_once() {
    let mut t = settled(&plain());
    let _ = t.input(t.seg(ACK), &full());
    let _ = t.input(t.seg(ACK), &full());
    assert_eq!(t.lens(), [0]);
    for _ in 0..5 {
        let _ = t.input(t.seg(ACK), &full());
        assert!(t.output().is_empty());
        let _ = t.input(t.seg(ACK), &full());
        assert_eq!(t.lens(), [0]);
    }
}

#[test]
fn a_batch_is_acknowledged_once() {
    let mut t = Script::established(&plain());
    for _ in 0..20 {
        let _ = t.input(t.seg(ACK), &full());
    }
    let sent = t.output();
    assert_eq!((sent.len(), sent[0].header().ack), (1, SeqNum::new(IRS + 1 + 20 * MSS)));
}

#[test]
fn data_carries_the_acknowledgment() {
    let mut t = Script::established(&plain());
    let _ = t.input(t.seg(ACK), b"question");
    t.snd = 6;
    let sent = t.output();
    assert_eq!((sent.len(), sent[0].len, sent[0].header().ack), (1, 6, SeqNum::new(IRS + 9)));
    assert!(t.wait(ms(100)).is_empty());
}

#[test]
fn each_segment_behind_a_hole_gets_its_own_duplicate_even_in_one_batch() {
    let mut t = Script::established(&plain());
    for i in 1..=4 {
        let mut ahead = t.seg(ACK);
        ahead.seq += i * MSS;
        let _ = t.input(ahead, &full());
    }
    let sent = t.output();
    assert_eq!(sent.len(), 4);
    let windows: Vec<u16> = sent.iter().map(|s| s.header().window).collect();
    assert!(sent.iter().all(|s| s.header().ack == SeqNum::new(IRS + 1)));
    assert!(windows.windows(2).all(|w| w[0] == w[1]), "a duplicate must not change the window");
}

#[test]
fn a_filled_hole_is_acknowledged_at_once_and_once() {
    let mut t = Script::established(&plain());
    for i in 1..=3 {
        let mut ahead = t.seg(ACK);
        ahead.seq += i * MSS;
        let _ = t.input(ahead, &full());
    }
    // Duplicates of the new number would start a fast retransmit for nothing.
    let _ = t.input(t.seg(ACK), &full());
    let sent = t.output();
    assert_eq!((sent.len(), sent[0].header().ack), (1, SeqNum::new(IRS + 1 + 4 * MSS)));
}

#[test]
fn repeated_text_and_a_fin_are_acknowledged_at_once() {
    let mut t = Script::established(&plain());
    let first = t.seg(ACK);
    let _ = t.input(first, &full());
    t.output();
    let _ = t.input(first, &full());
    assert_eq!(t.lens(), [0]);
    let _ = t.input(t.seg(FIN), &[]);
    assert_eq!(t.lens(), [0]);
}

#[test]
fn two_segments_less_their_options_are_two_full_segments() {
    let mut t = Script::established(&Settings { timestamps: true, ..plain() });
    let text = usize::from(t.pcb.mss());
    assert!(text < MSS as usize, "timestamps take their part");
    // A write of more than two segments came in one piece.
    let _ = t.input(t.seg(ACK), &vec![1; 2 * text + 24]);
    t.output();
    let _ = t.input(t.seg(ACK), &vec![1; 2 * text]);
    assert_eq!(t.lens(), [0], "acknowledged at once");
}

#[test]
fn text_that_the_caller_keeps_counts_only_if_it_is_expected() {
    let mut t = Script::established(&plain());
    let header = t.seg(ACK);
    let mut early = header;
    early.seq = header.seq + MSS;
    assert!(t.pcb.on_expected_plain(&early.plain(), MSS, t.now).is_none());
    let mut last = header;
    last.flags = FIN;
    assert!(t.pcb.on_expected_plain(&last.plain(), MSS, t.now).is_none());
    assert!(t.pcb.on_expected_plain(&header.plain(), u32::MAX, t.now).is_none(), "beyond the window");
    assert_eq!(t.pcb.rcv_nxt(), header.seq);
    assert!(t.output().is_empty(), "none of them was taken in");
    for at in [0, MSS] {
        let mut header = t.seg(ACK);
        header.seq = SeqNum::new(IRS + 1) + at;
        assert_eq!(t.pcb.on_expected_plain(&header.plain(), MSS, t.now), Some(0));
    }
    assert_eq!(t.pcb.rcv_nxt(), SeqNum::new(IRS + 1) + 2 * MSS);
    assert_eq!(t.lens(), [0], "two full segments are acknowledged at once");
}
