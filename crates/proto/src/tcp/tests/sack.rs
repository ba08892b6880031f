//! SACK as a receiver: which blocks are reported, in which order, and beside which options (RFC 2018, RFC 2883).

use super::super::sack::{SackBlock, SackBlocks};
use super::super::segment::{Flags, Header, Timestamps};
use super::super::settings::Settings;
use super::script::{ACK, IRS, MSS, Script, WND, ms, plain};
use crate::seq::SeqNum;

/// The peer's first byte.
const FIRST: u32 = IRS + 1;

fn script(timestamps: bool) -> Script {
    Script::established(&Settings { sack: true, timestamps, ..plain() })
}

/// 100 bytes of the peer's stream, from `offset` on; returns the blocks of the answer.
fn comes(t: &mut Script, offset: u32) -> Vec<Vec<(u32, u32)>> {
    let header = Header { seq: SeqNum::new(FIRST + offset), ..t.seg(ACK) };
    let input = t.input(header, &[7; 100]);
    t.space -= input.deliver.len() as u32;
    t.output().iter().map(|s| blocks(s.header().options.sack)).collect()
}

fn blocks(sack: SackBlocks) -> Vec<(u32, u32)> {
    let place = |s: SeqNum| s.raw() - FIRST;
    sack.as_slice().iter().map(|b| (place(b.start), place(b.end))).collect()
}

#[test]
fn the_block_that_grew_last_is_first() {
    let mut t = script(false);
    assert_eq!(comes(&mut t, 200), [[(200, 300)]]);
    assert_eq!(comes(&mut t, 400), [[(400, 500), (200, 300)]]);
    assert_eq!(comes(&mut t, 600), [[(600, 700), (400, 500), (200, 300)]]);
    assert_eq!(comes(&mut t, 800), [[(800, 900), (600, 700), (400, 500), (200, 300)]]);
    assert_eq!(comes(&mut t, 1000), [[(1000, 1100), (800, 900), (600, 700), (400, 500)]]);
    assert_eq!(comes(&mut t, 300), [[(200, 500), (1000, 1100), (800, 900), (600, 700)]]);
    assert_eq!(comes(&mut t, 0), [[(200, 500), (1000, 1100), (800, 900), (600, 700)]]);
    assert_eq!(comes(&mut t, 100), [[(1000, 1100), (800, 900), (600, 700)]]);
}

#[test]
fn beside_timestamps_three_blocks_are_reported() {
    let mut t = script(true);
    for i in 1..6 {
        t.peer_ts = Some(Timestamps { val: 100 + i, ecr: 0 });
        let sent = comes(&mut t, 200 * i);
        assert_eq!(sent[0].len(), 3.min(i as usize));
    }
}

#[test]
fn without_agreement_nothing_is_reported() {
    let mut t = Script::established(&plain());
    assert_eq!(comes(&mut t, 200), [[]]);
}

#[test]
fn duplicate_data_is_reported_once_and_first() {
    let mut t = script(false);
    let _ = comes(&mut t, 0);
    let _ = t.wait(ms(50));
    assert_eq!(comes(&mut t, 0), [[(0, 100)]], "below the acknowledgment");
    assert!(t.pcb.reass.is_none(), "a report keeps no memory");
    let _ = comes(&mut t, 200);
    assert_eq!(comes(&mut t, 200), [[(200, 300), (200, 300)]], "inside a block");
    assert_eq!(comes(&mut t, 400), [[(400, 500), (200, 300)]]);
}

/// Bytes of the peer's stream; returns the blocks of the answer.
fn range_comes(t: &mut Script, (start, end): (u32, u32)) -> Vec<(u32, u32)> {
    let header = Header { seq: SeqNum::new(FIRST + start), ..t.seg(ACK) };
    let input = t.input(header, &vec![7; (end - start) as usize]);
    t.space -= input.deliver.len() as u32;
    let sent = t.output();
    assert_eq!(sent.len(), 1);
    blocks(sent[0].header().options.sack)
}

/// RFC 2883 section 4.2; the answers are Linux's.
#[test]
fn the_part_of_a_segment_that_was_there_is_a_duplicate() {
    for (held, comes, expected) in [
        // The tail was there, and the next run begins beyond.
        (&[(200, 300)][..], (100, 275), &[(200, 275), (100, 300)][..]),
        (&[(200, 300)], (100, 300), &[(200, 300), (100, 300)]),
        (&[(200, 300)], (100, 400), &[(200, 300), (100, 400)]),
        // The front was there.
        (&[(200, 300)], (250, 400), &[(250, 300), (200, 400)]),
        (&[(200, 300)], (200, 400), &[(200, 300), (200, 400)]),
        (&[(200, 300), (400, 500)], (250, 450), &[(250, 300), (200, 500)]),
        // Only the first of several ranges is reported.
        (&[(200, 300), (400, 500)], (100, 600), &[(200, 300), (100, 600)]),
        // In order, over text behind the hole.
        (&[(1000, 3000), (4000, 5000), (7000, 8000)], (0, 6000), &[(1000, 3000), (7000, 8000)]),
        (&[(1000, 3000), (7000, 8000)], (0, 2000), &[(1000, 2000), (7000, 8000)]),
        // Touching is not overlapping.
        (&[(200, 300)], (100, 200), &[(100, 300)]),
        (&[(200, 300)], (300, 400), &[(200, 400)]),
    ] {
        let mut t = script(false);
        for range in held {
            range_comes(&mut t, *range);
        }
        assert_eq!(range_comes(&mut t, comes), expected, "{held:?} {comes:?}");
    }
}

#[test]
fn of_a_segment_that_begins_before_the_window_the_front_is_the_duplicate() {
    for (held, comes, expected) in [
        ((300, 400), (50, 150), &[(50, 100), (300, 400)][..]),
        // What was there behind the new text is another range.
        ((200, 300), (50, 250), &[(50, 100)]),
        // This goes on where the front ends.
        ((200, 300), (50, 100), &[(50, 100), (200, 300)]),
    ] {
        let mut t = script(false);
        let _ = t.input(t.seg(ACK), &[7; 100]);
        t.output();
        range_comes(&mut t, held);
        assert_eq!(range_comes(&mut t, comes), expected, "{held:?} {comes:?}");
    }
}

#[test]
fn each_duplicate_segment_of_a_batch_is_reported_by_an_acknowledgment_of_its_own() {
    let mut t = script(false);
    let _ = t.input(t.seg(ACK), &[7; 1000]);
    t.output();
    for at in [0, 300, 400, 900] {
        let header = Header { seq: SeqNum::new(FIRST + at), ..t.seg(ACK) };
        let _ = t.input(header, &[7; 100]);
    }
    let sent: Vec<_> = t.output().iter().map(|s| blocks(s.header().options.sack)).collect();
    // Two segments that follow one another are one range.
    assert_eq!(sent, [[(0, 100)], [(300, 500)], [(900, 1000)]]);
    assert!(t.pcb.reass.is_none());
    for at in (0..64).map(|i| 15 * i) {
        let header = Header { seq: SeqNum::new(FIRST + at), ..t.seg(ACK) };
        let _ = t.input(header, &[7; 10]);
    }
    assert_eq!(t.output().len(), 16, "a bound");
}

#[test]
fn without_sack_no_duplicate_is_kept() {
    let mut t = Script::established(&plain());
    for at in [100, 100, 150, 0] {
        let header = Header { seq: SeqNum::new(FIRST + at), ..t.seg(ACK) };
        let _ = t.input(header, &[7; 100]);
    }
    t.output();
    assert!(t.pcb.reass.is_none());
}

#[test]
fn segments_of_text_are_shorter_by_the_blocks_that_they_carry() {
    let mut t = script(false);
    let _ = t.input(Header { seq: SeqNum::new(FIRST + 200), ..t.seg(ACK) }, &[7; 100]);
    t.snd += MSS;
    let sent = t.output();
    let all: Vec<_> = sent.iter().map(|s| (s.len, s.header().options.sack.len())).collect();
    assert_eq!(all, [(MSS - 12, 1), (12, 1)], "no duplicate besides");
    t.snd += 100;
    let _ = t.input(Header { seq: SeqNum::new(FIRST + 400), ..t.ack_of(MSS, WND) }, &[7; 100]);
    let sent = t.output();
    assert_eq!((sent[0].len, sent[0].header().options.sack.len()), (100, 2));
}

#[test]
fn an_early_fin_waits_behind_the_reported_text() {
    let mut t = script(false);
    let header = Header { seq: SeqNum::new(FIRST + 100), ..t.seg(Flags::FIN.with(Flags::ACK)) };
    let _ = t.input(header, &[7; 100]);
    assert_eq!(blocks(t.output()[0].header().options.sack), [(100, 200)]);
    assert_eq!(comes(&mut t, 0).len(), 1);
    assert!(t.pcb.reass.is_none());
}

#[test]
fn an_early_fin_without_text_is_no_block_and_ends_the_text_when_that_is_there() {
    let mut t = script(false);
    let header = Header { seq: SeqNum::new(FIRST + 200), ..t.seg(Flags::FIN.with(Flags::ACK)) };
    let _ = t.input(header, &[]);
    assert!(t.output().iter().all(|sent| sent.header().options.sack.is_empty()));
    let _ = comes(&mut t, 100);
    let _ = comes(&mut t, 0);
    assert_eq!(t.pcb.rcv_nxt(), SeqNum::new(FIRST + 201), "the FIN counts");
}

#[test]
fn text_behind_an_early_fin_is_not_kept() {
    let mut t = script(false);
    let header = Header { seq: SeqNum::new(FIRST + 100), ..t.seg(Flags::FIN.with(Flags::ACK)) };
    let _ = t.input(header, &[7; 100]);
    let _ = t.output();
    for offset in [200, 250, 150] {
        let _ = comes(&mut t, offset);
    }
    let _ = comes(&mut t, 0);
    assert_eq!(t.pcb.rcv_nxt(), SeqNum::new(FIRST + 201));
}

#[test]
fn blocks_beyond_four_are_not_kept() {
    let block = |i| SackBlock { start: SeqNum::new(i), end: SeqNum::new(i + 1) };
    let mut all = SackBlocks::NONE;
    (0..9).for_each(|i| all.push(block(i)));
    assert_eq!(all.as_slice(), [block(0), block(1), block(2), block(3)]);
    assert!(!all.is_empty() && SackBlocks::NONE.as_slice().is_empty());
}

/// What is further back than a window says nothing about the network of now.
#[test]
fn a_duplicate_from_beyond_a_window_back_is_not_reported() {
    let mut t = script(false);
    let text = vec![7; MSS as usize];
    for _ in 0..80 {
        let _ = t.input(t.seg(ACK), &text);
        let _ = t.output();
    }
    let again = |t: &mut Script, back: u32| {
        let header = Header { seq: t.pcb.rcv_nxt() - back, ..t.seg(ACK) };
        let _ = t.input(header, &[7; 100]);
        t.output().iter().map(|sent| blocks(sent.header().options.sack).len()).collect::<Vec<_>>()
    };
    assert_eq!(again(&mut t, 49_000), [1]);
    assert_eq!(again(&mut t, 75_000), [0]);
}
