//! When acknowledgments go out (RFC 9293 section 3.8.6.3, RFC 5681 section 4.2).

use core::time::Duration;

use super::super::delack::AckAtRead;
use super::super::segment::{Flags, Header};
use super::super::settings::Settings;
use super::super::state::State;
use super::quick_ack::settled;
use super::script::{ACK, FIN, IRS, ISS, MSS, SYN_ACK, Script, WND, ms, plain};
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
fn a_duplicate_in_front_of_new_text_does_not_hurry_its_acknowledgment() {
    let mut t = settled(&Settings { sack: true, ..plain() });
    let header = Header { seq: t.pcb.rcv_nxt() - 1, ..t.seg(ACK) };
    let _ = t.input(header, b"xy");
    assert!(t.output().is_empty());
    let sent = t.wait(ms(100));
    assert_eq!((sent.len(), sent[0].0), (1, ms(40)));
    assert_eq!(sent[0].1.header().options.sack.len(), 1, "it is reported then");
}

#[test]
fn text_shortly_before_the_delay_is_over_is_acknowledged_at_once() {
    // The gaps are short, so the delay stays at its least of 40 ms; a quarter of it is short.
    for (at, waits) in [(29, true), (30, false), (39, false)] {
        let mut t = settled(&plain());
        let _ = t.input(t.seg(ACK), b"x");
        for _ in 0..at {
            assert!(t.wait(ms(1)).is_empty());
        }
        let _ = t.input(t.seg(ACK), b"y");
        assert_eq!(t.output().is_empty(), waits, "{at}");
    }
}

/// What Linux 6.18 does with the same segments, to its tick of 4 ms.
#[test]
fn the_delay_follows_the_gaps_between_segments_up_to_the_round_trip() {
    for (rtt, expected) in [(300, 55), (10, 40)] {
        let mut t = Script::connect(&plain());
        t.output();
        t.now = t.now + ms(rtt);
        let _ = t.input(Header { window: WND, ..t.raw(IRS, ISS + 1, SYN_ACK) }, &[]);
        t.output();
        t.pcb.set_quickack(false, true);
        let _ = t.input(t.seg(ACK), b"x");
        assert!(t.wait(ms(35)).is_empty());
        // The delay is now 40 / 2 + 35 ms, and that of the first text nearly over.
        let _ = t.input(t.seg(ACK), b"y");
        assert_eq!(t.lens(), [0]);
        let _ = t.wait(ms(100));
        let _ = t.input(t.seg(ACK), b"z");
        let sent = t.wait(ms(1_000));
        assert_eq!(sent.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [ms(expected)]);
    }
}

#[test]
fn a_reader_that_is_behind_holds_nothing_up_while_half_of_the_buffer_is_free() {
    let mut t = settled(&plain());
    let half = t.space / 2;
    for space in [t.space - 2 * MSS, half] {
        for _ in 0..2 {
            let _ = t.input(t.seg(ACK), &full());
        }
        t.space = space;
        assert_eq!(t.lens(), [0], "{space}");
    }
}

#[test]
fn more_than_a_full_segment_waits_for_a_reader_that_is_far_behind() {
    let mut t = settled(&plain());
    t.space /= 2;
    // The window that the peer knows is as large as the free space.
    for _ in 0..2 {
        let _ = t.input(t.seg(ACK), &full());
    }
    assert_eq!(t.lens(), [0]);
    for _ in 0..2 {
        let _ = t.input(t.seg(ACK), &full());
    }
    t.space -= 2 * MSS;
    assert_eq!(t.lens(), [] as [u32; 0]);
    assert_eq!(t.pcb.acks_at_read(), AckAtRead::Any);
    t.space += 1;
    t.pcb.on_read(false);
    assert_eq!(t.lens(), [0], "the reader's first byte sends it");
    for _ in 0..2 {
        let _ = t.input(t.seg(ACK), &full());
    }
    t.space -= 2 * MSS;
    assert_eq!(t.lens(), [] as [u32; 0]);
    assert_eq!(t.wait(ms(100)).iter().map(|(at, _)| *at).collect::<Vec<_>>(), [ms(40)], "or the delay");
}

#[test]
fn an_acknowledgment_without_news_does_not_hurry_the_one_that_waits() {
    for (window, sent) in [(WND, &[][..]), (WND - 1, &[0][..])] {
        let mut t = settled(&plain());
        let _ = t.input(t.seg(ACK), b"x");
        assert!(t.wait(ms(35)).is_empty());
        let _ = t.input(Header { window, ..t.seg(ACK) }, &[]);
        assert_eq!(t.lens(), sent, "{window}");
    }
}

#[test]
fn one_and_a_bit_of_a_full_segment_is_acknowledged_at_once() {
    let mut t = settled(&plain());
    for _ in 0..2 {
        let _ = t.input(t.seg(ACK), &full());
    }
    assert_eq!(t.lens(), [0]);
    let _ = t.input(t.seg(ACK), &full());
    assert!(t.output().is_empty());
    let _ = t.input(t.seg(ACK), b"y");
    assert_eq!(t.lens(), [0]);
}

#[test]
fn two_segments_of_one_length_in_a_row_are_full_ones() {
    for (len, has_psh, is_full) in
        [(700, true, true), (535, true, false), (535, false, true), (80, false, false)]
    {
        let mut t = settled(&plain());
        let _ = t.input(t.seg(ACK), &full());
        let _ = t.input(t.seg(ACK), &full());
        t.output();
        let flags = if has_psh { ACK.with(Flags::PSH) } else { ACK };
        for _ in 0..2 {
            let _ = t.input(t.seg(flags), &vec![1; len]);
        }
        let now = t.output().len();
        let _ = t.wait(ms(50));
        let seen = t.pcb.info(0, t.now).rcv_mss;
        assert_eq!(seen, if is_full { len as u32 } else { MSS }, "{len} {has_psh}");
        // What came together is more than such a segment.
        assert_eq!(now, usize::from(is_full || 2 * len > MSS as usize), "{len} {has_psh}");
    }
}

#[test]
fn segments_that_a_device_has_joined_count_as_they_were_sent() {
    let joined = |t: &Script, gso_size| Header { gso_size, ..t.seg(ACK) };
    for (gso_size, acks) in [(500, 1), (0, 0)] {
        let mut t = settled(&plain());
        let _ = t.input(joined(&t, gso_size), &full());
        assert_eq!(t.output().len(), acks, "two of 500 bytes");
    }
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
fn repeated_text_is_acknowledged_at_once_and_a_fin_with_our_own() {
    let mut t = Script::established(&plain());
    let first = t.seg(ACK);
    let _ = t.input(first, &full());
    t.output();
    let _ = t.input(first, &full());
    assert_eq!(t.lens(), [0]);
    // The application's own FIN may carry the acknowledgment of the peer's.
    let _ = t.input(t.seg(FIN), &[]);
    assert!(t.output().is_empty());
    assert_eq!(t.wait(ms(100)).iter().map(|(at, _)| *at).collect::<Vec<_>>(), [ms(40)]);
}

#[test]
fn a_fin_without_text_before_it_is_acknowledged_soon_and_one_that_answers_ours_at_once() {
    let mut t = Script::established(&plain());
    let _ = t.input(t.seg(FIN), &[]);
    assert_eq!(t.lens(), []);
    assert_eq!(t.wait(ms(100)).iter().map(|(at, _)| *at).collect::<Vec<_>>(), [ms(2)]);
    for state in [State::FinWait1, State::FinWait2] {
        let mut t = settled(&plain());
        t.pcb.shutdown_write();
        assert_eq!(t.lens(), [0]);
        if state == State::FinWait2 {
            let _ = t.input(t.seg(ACK), &[]);
        }
        let mut fin = t.seg(FIN);
        if state == State::FinWait1 {
            fin.ack = t.pcb.snd_una();
        }
        let _ = t.input(fin, &[]);
        assert_eq!(t.lens(), [0], "{state:?}");
    }
}

#[test]
fn text_with_a_fin_is_acknowledged_with_the_fin_and_behind_ours_at_once() {
    for first in [None, Some(b"first")] {
        let mut t = Script::established(&plain());
        if let Some(text) = first {
            let _ = t.input(t.seg(ACK), text);
            assert_eq!(t.lens(), [0], "text alone");
        }
        let _ = t.input(t.seg(FIN), b"last");
        assert_eq!(t.lens(), []);
        assert_eq!(t.wait(ms(100)).iter().map(|(at, _)| *at).collect::<Vec<_>>(), [ms(40)]);
    }
    let mut t = Script::established(&plain());
    t.pcb.shutdown_write();
    assert_eq!(t.lens(), [0]);
    let _ = t.input(t.seg(FIN), b"last");
    assert_eq!(t.lens(), [0]);
}

#[test]
fn within_one_process_a_fin_is_acknowledged_at_once() {
    let mut t = settled(&Settings { lossless: true, ..plain() });
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
