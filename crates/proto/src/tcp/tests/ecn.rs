//! Explicit congestion notification: the handshake, the echo, the answer (RFC 3168), and how much (RFC 8511).
//!
//! The script's round trip is 10 ms, measured in the handshake; its window is ten segments at the start.

use super::super::cc::Algorithm;
use super::super::ecn::EcnMode;
use super::super::segment::{Flags, Header};
use super::super::settings::Settings;
use super::script::{ACK, IRS, ISS, MSS, SYN, SYN_ACK, Script, WND, ms, plain, secs};
use super::world::{Link, World, pattern};

const OFFER: Flags = SYN.with(Flags::ECE).with(Flags::CWR);
const MARKED: Flags = ACK.with(Flags::CE);
const ECHO: Flags = ACK.with(Flags::ECE);

fn on() -> Settings {
    Settings { ecn: EcnMode::On, sack: true, ..plain() }
}

/// Flags of the segments sent now.
fn flags(t: &mut Script) -> Vec<Flags> {
    t.output().iter().map(|s| s.header().flags.without(Flags::PSH)).collect()
}

#[test]
fn a_connect_offers_ecn_if_enabled_and_a_repeated_syn_does_not() {
    for (ecn, first) in [(EcnMode::Off, SYN), (EcnMode::Accept, SYN), (EcnMode::On, OFFER)] {
        let mut t = Script::connect(&Settings { ecn, ..plain() });
        assert_eq!(flags(&mut t), [first]);
        let again = t.wait(secs(1));
        assert_eq!(again[0].1.header().flags, SYN);
        let _ = t.input(t.raw(IRS, ISS + 1, SYN_ACK.with(Flags::ECE)), &[]);
        assert!(!t.pcb.ecn(), "an end that has sent one SYN without stays without");
    }
}

#[test]
fn only_a_syn_ack_with_ece_alone_agrees_to_ecn() {
    let both = SYN_ACK.with(Flags::ECE).with(Flags::CWR);
    for (answer, agreed) in [(SYN_ACK, false), (SYN_ACK.with(Flags::ECE), true), (both, false)] {
        let mut t = Script::connect(&on());
        t.output();
        let _ = t.input(t.raw(IRS, ISS + 1, answer), &[]);
        assert_eq!(t.pcb.ecn(), agreed);
        assert_eq!(flags(&mut t), [ACK]);
        t.snd = 100;
        let text = flags(&mut t);
        assert_eq!(text, [if agreed { ACK.with(Flags::ECT) } else { ACK }]);
    }
}

#[test]
fn a_simultaneous_open_does_not_use_ecn() {
    let mut t = Script::connect(&on());
    t.output();
    let _ = t.input(t.raw(IRS, 0, OFFER), &[]);
    assert_eq!(flags(&mut t), [SYN_ACK]);
    let _ = t.input(t.raw(IRS + 1, ISS + 1, ACK), &[]);
    assert!(!t.pcb.ecn());
}

#[test]
fn only_new_text_is_ecn_capable() {
    let mut t = Script::established(&on());
    t.snd = 2 * MSS;
    assert_eq!(flags(&mut t), [ACK.with(Flags::ECT); 2]);
    let again = t.wait(secs(1));
    assert!(!again.is_empty());
    assert!(again.iter().all(|(_, s)| !s.header().flags.has(Flags::ECT)), "{again:?}");
    let _ = t.input(t.seg(ACK), &[7; MSS as usize]);
    let _ = t.input(t.seg(ACK), &[7; MSS as usize]);
    assert_eq!(flags(&mut t), [ACK], "an acknowledgment");
    t.pcb.shutdown_write();
    assert_eq!(flags(&mut t), [ACK.with(Flags::FIN)]);
}

#[test]
fn a_mark_is_echoed_at_once_and_by_every_segment_until_the_peer_has_answered() {
    let mut t = Script::established(&on());
    let _ = t.input(t.seg(MARKED), &[7; 10]);
    assert_eq!(flags(&mut t), [ECHO]);
    t.snd = MSS;
    assert_eq!(flags(&mut t), [ECHO.with(Flags::ECT)], "text too");
    let _ = t.input(t.seg(ACK), &[7; MSS as usize]);
    let _ = t.input(t.seg(ACK), &[7; MSS as usize]);
    assert_eq!(flags(&mut t), [ECHO]);
    // An answer and a new mark in one.
    let _ = t.input(t.seg(MARKED.with(Flags::CWR)), &[7; MSS as usize]);
    let _ = t.input(t.seg(ACK), &[7; MSS as usize]);
    assert_eq!(flags(&mut t), [ECHO]);
    let _ = t.input(t.seg(ACK.with(Flags::CWR)), &[7; MSS as usize]);
    let _ = t.input(t.seg(ACK), &[7; MSS as usize]);
    assert_eq!(flags(&mut t), [ACK]);
}

#[test]
fn an_answer_to_a_mark_behind_the_peers_fin_is_not_acknowledged() {
    let mut t = Script::established(&on());
    let _ = t.input(t.seg(ACK.with(Flags::FIN)), &[]);
    let _ = t.wait(ms(100));
    let _ = t.input(t.seg(ACK.with(Flags::CWR)), b"text");
    assert_eq!(flags(&mut t), []);
}

/// Some senders end the echo by a segment without text.
#[test]
fn the_answer_to_a_mark_needs_no_text_and_is_not_acknowledged_then() {
    let mut t = Script::established(&on());
    let _ = t.input(t.seg(MARKED), &[7; 10]);
    assert_eq!(flags(&mut t), [ECHO]);
    let _ = t.input(t.seg(ACK.with(Flags::CWR)), &[]);
    assert_eq!(flags(&mut t), []);
    t.snd = MSS;
    assert_eq!(flags(&mut t), [ACK.with(Flags::ECT)]);
}

#[test]
fn a_mark_outside_the_window_or_without_text_is_ignored() {
    let mut t = Script::established(&on());
    let _ = t.input(t.raw(IRS + 1 - MSS, ISS + 1, MARKED), &[7; MSS as usize]);
    assert_eq!(flags(&mut t), [ACK]);
    let _ = t.input(t.seg(MARKED), &[]);
    let _ = t.input(t.seg(ACK), &[7; MSS as usize]);
    let _ = t.input(t.seg(ACK), &[7; MSS as usize]);
    assert_eq!(flags(&mut t), [ACK]);
}

#[test]
fn marks_are_ignored_if_ecn_was_not_agreed_to() {
    let mut t = Script::established(&plain());
    let _ = t.input(t.seg(MARKED), &[7; MSS as usize]);
    let _ = t.input(t.seg(ACK), &[7; MSS as usize]);
    assert_eq!(flags(&mut t), [ACK]);
    t.write(10 * MSS);
    let mut echo = t.ack_of(MSS, WND);
    echo.flags = ECHO;
    let _ = t.input(echo, &[]);
    assert!(t.pcb.cwnd() >= 10 * MSS);
}

/// The peer acknowledges `segments` more.
fn acknowledge(t: &mut Script, segments: u32, flags: Flags) {
    t.now = t.now + ms(1);
    let mut ack = t.ack_of(segments * MSS, WND);
    ack.flags = flags;
    let _ = t.input(ack, &[]);
}

#[test]
fn an_echo_reduces_the_window_once_a_round_trip_by_less_than_a_loss_and_is_answered_once() {
    for (congestion_control, left) in [(Algorithm::NewReno, 8 * MSS), (Algorithm::Cubic, 8 * MSS)] {
        let mut t = Script::established(&Settings { congestion_control, ..on() });
        assert_eq!(t.write(40 * MSS).len(), 10);
        acknowledge(&mut t, 1, ECHO);
        assert_eq!((t.pcb.cwnd(), t.pcb.ssthresh()), (left, left));
        let mut sent = flags(&mut t);
        for _ in 0..9 {
            acknowledge(&mut t, 1, ECHO);
            assert_eq!(
                t.pcb.cwnd(),
                left,
                "echoes of earlier segments change nothing, and do not let it grow"
            );
            sent.extend(flags(&mut t));
        }
        let answers: Vec<bool> = sent.iter().map(|flags| flags.has(Flags::CWR)).collect();
        assert!(answers[0] && !answers[1..].contains(&true), "{answers:?}");
        assert_eq!(t.pcb.loss_stats().mark_count, 1);
        // That of the answer itself is news.
        acknowledge(&mut t, 1, ECHO);
        assert!(t.pcb.cwnd() < left);
        assert_eq!(t.pcb.loss_stats().mark_count, 2);
        assert!(t.pcb.loss_stats().rexmt_bytes == 0);
    }
}

#[test]
fn a_loss_and_a_mark_in_one_round_trip_are_one_reduction() {
    // First the mark, then the loss, and the other way round; by NewReno, which leaves 8 or 5 of ten.
    for (mark_first, left) in [(true, 8 * MSS), (false, 5 * MSS)] {
        let mut t = Script::established(&on());
        assert_eq!(t.write(40 * MSS).len(), 10);
        t.now = t.now + ms(10);
        if mark_first {
            acknowledge(&mut t, 1, ECHO);
        }
        let una = t.pcb.snd_una();
        for held in 1..=4 {
            let mut hole = t.ack_of(0, WND);
            hole.flags = if mark_first || held == 4 { ECHO } else { ACK };
            let block = super::super::sack::SackBlock { start: una + MSS, end: una + (1 + held) * MSS };
            hole.options.sack = [block].into_iter().collect();
            let _ = t.input(hole, &[]);
        }
        let sent = t.output();
        assert!(sent.iter().any(|s| s.header().seq == una), "the hole is repeated");
        assert_eq!(t.pcb.ssthresh(), left, "mark first: {mark_first}");
    }
}

#[test]
fn new_text_after_a_loss_carries_cwr() {
    let mut t = Script::established(&on());
    assert_eq!(t.write(40 * MSS).len(), 10);
    t.now = t.now + ms(10);
    let una = t.pcb.snd_una();
    let mut hole = t.ack_of(0, WND);
    let block = super::super::sack::SackBlock { start: una + MSS, end: una + 5 * MSS };
    hole.options.sack = [block].into_iter().collect();
    let _ = t.input(hole, &[]);
    let again = t.output();
    assert!(again[0].header().seq == una && !again[0].header().flags.has(Flags::CWR));
    acknowledge(&mut t, 10, ACK);
    let sent = flags(&mut t);
    assert!(sent[0].has(Flags::CWR.with(Flags::ECT)), "{sent:?}");
    assert!(!sent[1].has(Flags::CWR));
}

/// 20 Mbit/s at 20 ms, an endless queue that marks segments that wait for more than 10 ms.
#[test]
fn a_queue_that_marks_stays_short_and_loses_nothing() {
    for congestion_control in [Algorithm::NewReno, Algorithm::Cubic] {
        let carry = |ecn| {
            let link = Link { delay_us: 10_000, rate: 2_500, mark_after_us: 10_000, ..Link::CLEAN };
            let s = Settings { ecn, congestion_control, rcv_buf: 1 << 20, ..Settings::default() };
            let mut w = World::established(5, s.clone(), s, link);
            w.ends[0].to_write = pattern(5_000_000, 3);
            w.ends[0].snd_hiwat = 1 << 20;
            w.run("transfer", |w| w.ends[1].received.len() == 5_000_000);
            assert!(w.ends[1].received == w.ends[0].to_write);
            w
        };
        let mut w = carry(EcnMode::On);
        let stats = w.ends[0].pcb().loss_stats();
        assert_eq!(stats.rexmt_bytes, 0, "{stats:?}");
        let is_answer = |flags: Flags| flags.has(Flags::CWR) && !flags.has(Flags::SYN);
        let answers: Vec<_> =
            w.trace.iter().filter(|(_, from, header, _)| *from == 0 && is_answer(header.flags)).collect();
        // The last mark may find no new text that could carry the answer.
        let unanswered = stats.mark_count as usize - answers.len();
        assert!(answers.len() > 3 && unanswered <= 1, "{} {stats:?}", answers.len());
        assert!(answers.windows(2).all(|two| two[1].0.since(two[0].0) >= ms(20)), "one a round trip");
        let (with, without) = (w.wait_us_max, carry(EcnMode::Off).wait_us_max);
        assert!(with < 60_000 && without > 2 * with, "{congestion_control:?}: {with} {without}");
    }
}

/// RFC 3168 section 6.1.2: for a round trip.
#[test]
fn the_acknowledgment_that_ends_the_round_of_a_mark_lets_the_window_grow() {
    let mut t = Script::established(&on());
    t.write(40 * MSS);
    acknowledge(&mut t, 1, ECHO);
    t.output();
    acknowledge(&mut t, 9, ACK);
    assert_eq!(t.pcb.cwnd(), 8 * MSS);
    assert_eq!(t.output().len(), 8);
    acknowledge(&mut t, 8, ACK);
    assert_eq!(t.pcb.cwnd(), 9 * MSS);
}

/// The peer is told of a reduction by the first text behind it, unless that is undone before.
#[test]
fn a_reduction_that_is_undone_is_not_told_to_the_peer() {
    for is_undone in [false, true] {
        let mut t = Script::established(&on());
        t.write(10 * MSS);
        t.now = t.now + ms(10);
        t.report(0, &[(1, 10)]);
        assert_eq!(t.places(), [0]);
        t.report(10, if is_undone { &[(0, 1)] } else { &[] });
        assert_eq!(t.pcb.loss_stats().undo_count, u32::from(is_undone));
        t.snd = MSS;
        assert_eq!(flags(&mut t)[0].has(Flags::CWR), !is_undone);
    }
}

/// A mark in the repair calls for a smaller window whether something was lost or not.
#[test]
fn a_reduction_stays_if_a_mark_was_echoed_before_it_turned_out_to_be_needless() {
    for echo in [ACK, ECHO] {
        let mut t = Script::established(&on());
        t.write(10 * MSS);
        t.now = t.now + ms(10);
        t.report(0, &[(1, 10)]);
        assert_eq!(t.places(), [0]);
        let ssthresh = t.pcb.ssthresh();
        let _ = t.input(Header { flags: echo, ..t.ack_of(0, WND) }, &[]);
        t.report(10, &[(0, 1)]);
        assert_eq!(t.pcb.loss_stats().undo_count, 1);
        assert_eq!(t.pcb.ssthresh() == ssthresh, echo == ECHO);
        t.snd = MSS;
        assert_eq!(flags(&mut t)[0].has(Flags::CWR), echo == ECHO);
    }
}

/// The first text gets more acknowledgments at once than a mark.
#[test]
fn a_mark_on_the_first_text_takes_no_quick_acknowledgment_from_it_and_later_ones_count_once() {
    let mut t = Script::established(&on());
    let _ = t.input(t.seg(MARKED), b"text");
    assert_eq!(t.pcb.acks.quick, 16);
    t.output();
    // The mark is echoed: another one is no news.
    t.pcb.acks.quick = 0;
    let _ = t.input(t.seg(MARKED), b"text");
    assert_eq!(t.pcb.acks.quick, 0);
    let _ = t.input(t.seg(ACK.with(Flags::CWR)), b"text");
    t.pcb.acks.quick = 0;
    let _ = t.input(t.seg(MARKED), b"text");
    assert_eq!(t.pcb.acks.quick, 2);
}

/// The peer has heard CWR for a timeout that was needless. A recovery that reduced nothing would have a window without end.
#[test]
fn a_loss_behind_an_undone_timeout_reduces_the_window() {
    let mut t = Script::connect(&on());
    t.output();
    let mut syn_ack = t.raw(IRS, ISS + 1, SYN_ACK.with(Flags::ECE));
    (syn_ack.options.mss, syn_ack.options.sack_permitted) = (Some(1_000), true);
    let _ = t.input(syn_ack, &[]);
    t.write(30 * MSS);
    while t.pcb.loss_stats().rto_count == 0 {
        let _ = t.wait(ms(1));
    }
    t.now = t.now + ms(10);
    t.report(1, &[]);
    assert_eq!(flags(&mut t)[0], ACK.with(Flags::ECT).with(Flags::CWR));
    // The original of the sixth has arrived.
    t.now = t.now + ms(10);
    t.report(1, &[(5, 6)]);
    assert_eq!((t.pcb.loss_stats().undo_count, t.pcb.loss_stats().recovery_count), (1, 1));
    assert_eq!(t.pcb.ssthresh(), 5 * MSS);
}
