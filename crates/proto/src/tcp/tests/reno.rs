//! Peers without SACK: what duplicate acknowledgments say, how a recovery holds, and timeouts that were not needed.
//!
//! `crates/conform/scenarios/no-sack-*.txt` have the same beside the kernel.

use super::super::info::CaState;
use super::super::segment::Timestamps;
use super::super::settings::Settings;
use super::script::{IRS, ISS, MSS, SYN_ACK, Script, WND, ms, plain, secs};

/// Ten segments in flight, more to send.
fn in_flight() -> Script {
    let mut t = Script::established(&Settings { sack: false, ..plain() });
    assert_eq!(t.write(40 * MSS), [MSS; 10]);
    t.now = t.now + ms(10);
    t
}

/// An acknowledgment up to segment `to`, and the segments that leave for it.
fn acks(t: &mut Script, to: u32) -> Vec<u32> {
    t.report(to, &[]);
    t.places()
}

fn time_out(t: &mut Script) -> Vec<u32> {
    let at = t.pcb.next_deadline().expect("a timer");
    let before = t.pcb.loss_stats().rto_count;
    let _ = t.wait(at.since(t.now));
    assert_eq!(t.pcb.loss_stats().rto_count, before + 1);
    vec![]
}

#[test]
fn the_third_duplicate_repeats_the_first_segment_and_the_window_is_halved() {
    let mut t = in_flight();
    assert_eq!([acks(&mut t, 0), acks(&mut t, 0), acks(&mut t, 0)], [vec![10], vec![11], vec![0]]);
    assert_eq!(t.pcb.ssthresh(), 5 * MSS);
    let stats = t.pcb.loss_stats();
    assert_eq!((stats.recovery_count, stats.rexmt_fast, stats.probe_count), (1, 1, 0));
}

#[test]
fn a_partial_acknowledgment_says_that_the_next_hole_is_lost() {
    let mut t = in_flight();
    for _ in 0..3 {
        let _ = acks(&mut t, 0);
    }
    // Two holes. The second is repeated as soon as proportional rate reduction lets a segment out.
    let mut repeated = acks(&mut t, 4);
    for _ in 0..3 {
        repeated.extend(acks(&mut t, 4));
    }
    assert_eq!(repeated.first(), Some(&4));
    assert_eq!(t.pcb.loss_stats().recovery_count, 1);
}

#[test]
fn duplicates_of_repetitions_begin_no_second_recovery() {
    let mut t = in_flight();
    for _ in 0..3 {
        let _ = acks(&mut t, 0);
    }
    // All that was out when the loss was found, and no more.
    let _ = acks(&mut t, 12);
    for _ in 0..5 {
        assert!(acks(&mut t, 12).iter().all(|&place| place > 11), "nothing is sent again");
    }
    let _ = acks(&mut t, 13);
    let stats = t.pcb.loss_stats();
    assert_eq!((stats.recovery_count, stats.rexmt_fast), (1, 1));
    assert_eq!(t.pcb.cwnd(), 5 * MSS);
}

#[test]
fn invented_duplicates_stand_for_no_more_than_is_in_flight() {
    let mut t = Script::established(&Settings { sack: false, ..plain() });
    t.write(10 * MSS);
    let sent: Vec<u32> = (0..1000).flat_map(|_| acks(&mut t, 0)).collect();
    assert_eq!(sent, [0], "the first is repeated, once");
    // Nine of ten have arrived, so half of a window has room for four beside the repetition.
    t.snd += 20 * MSS;
    assert!(t.places().len() <= 5);
    let stats = t.pcb.loss_stats();
    assert_eq!((stats.recovery_count, stats.reordering), (1, 10), "the path reorders, it seems");
}

#[test]
fn no_probe_is_sent_for_a_tail() {
    let mut t = Script::established(&Settings { sack: false, ..plain() });
    t.write(MSS);
    time_out(&mut t);
    assert_eq!(t.pcb.loss_stats().probe_count, 0);
}

#[test]
fn a_timeout_is_spurious_if_an_original_is_acknowledged_behind_new_text() {
    let mut t = in_flight();
    time_out(&mut t);
    assert_eq!((t.pcb.cwnd(), t.pcb.loss_stats().rexmt_rto), (MSS, 1));
    assert_eq!(acks(&mut t, 1), [10, 11], "new text is sent to find out");
    let _ = acks(&mut t, 3);
    assert_eq!(t.pcb.loss_stats().undo_count, 1);
    assert!(t.pcb.cwnd() >= 10 * MSS);
    let _ = acks(&mut t, 12);
    assert_eq!(t.pcb.loss_stats().rexmt_rto, 1);
}

#[test]
fn an_acknowledgment_of_the_repetition_and_more_proves_nothing() {
    let mut t = in_flight();
    time_out(&mut t);
    let new = acks(&mut t, 7);
    assert!(new.first() == Some(&10) && t.pcb.loss_stats().undo_count == 0);
}

#[test]
fn a_duplicate_behind_new_text_says_that_the_rest_is_lost() {
    let mut t = in_flight();
    time_out(&mut t);
    assert_eq!(acks(&mut t, 1), [10, 11]);
    assert_eq!(acks(&mut t, 1), [1]);
    let stats = t.pcb.loss_stats();
    assert_eq!((stats.undo_count, stats.rexmt_rto), (0, 2));
}

#[test]
fn blocks_of_a_peer_that_did_not_offer_them_count_for_nothing() {
    let mut t = in_flight();
    t.report(0, &[(3, 9)]);
    assert_eq!(t.pcb.loss_stats().sacked_bytes, 0);
    assert_eq!(t.places(), [10], "it is a duplicate");
    let _ = t.input(t.ack_of(0, WND), &[]);
}

#[test]
fn a_bound_on_the_rate_spreads_text_without_sack_too() {
    let mut t = Script::established(&Settings { sack: false, ..plain() });
    t.pcb.set_max_pacing_rate(Some(u64::from(MSS) * 100));
    let at_once = t.write(10 * MSS).len();
    assert!((1..10).contains(&at_once), "{at_once} of ten segments");
    let due = t.pcb.next_deadline().expect("the pace's timer").since(t.now);
    assert!(due <= ms(100), "{due:?}");
    assert!(!t.wait(due).is_empty());
}

/// RFC 5681 section 2.
#[test]
fn text_and_an_acknowledgment_from_before_are_no_duplicates() {
    let mut t = in_flight();
    let _ = acks(&mut t, 1);
    assert!(acks(&mut t, 1).len() == 1 && acks(&mut t, 1).len() == 1, "limited transmit");
    // With the numbers of the acknowledgment before it.
    let text = t.ack_of(0, WND);
    let _ = t.input(text, &[7; 10]);
    assert!(t.lens().iter().all(|&len| len == 0), "no segment has left the network");
    let _ = acks(&mut t, 0);
    // The first behind the text brings its window.
    let _ = acks(&mut t, 1);
    assert_eq!(t.pcb.loss_stats().recovery_count, 0);
    assert_eq!(acks(&mut t, 1), [1]);
}

/// Until more is acknowledged than what was out when the loss was found, nobody knows what duplicates stood for.
#[test]
fn what_duplicates_stood_for_is_forgotten_while_a_repair_holds() {
    let mut t = in_flight();
    for _ in 0..16 {
        let _ = acks(&mut t, 0);
    }
    let out = t.pcb.snd_max().since(t.place(12)) / MSS;
    assert!(out >= 3, "{out} segments beyond those of the repair");
    let _ = acks(&mut t, 12);
    let loss = t.pcb.loss.as_ref().expect("a repair");
    assert_eq!(loss.window_pipe(MSS), t.pcb.snd_max().since(t.pcb.snd_una()), "each is out");
    // Duplicates may be caused by the repair.
    let _ = acks(&mut t, 12);
    let loss = t.pcb.loss.as_ref().expect("a repair");
    assert_eq!(loss.window_pipe(MSS), t.pcb.snd_max().since(t.pcb.snd_una()));
}

/// `tcp_try_undo_loss`: only F-RTO ends the repair after a timeout where the peer has no SACK.
#[test]
fn an_echo_from_before_the_repetition_ends_a_fast_recovery_and_not_the_repair_after_a_timeout() {
    // Three duplicates stand for three segments. More than one that is acknowledged makes them less, and three are the sign of another recovery.
    for (is_timeout, acked, expected) in [
        (false, 4, CaState::Open),
        (false, 2, CaState::Disorder),
        (false, 1, CaState::Recovery),
        (true, 2, CaState::Loss),
    ] {
        let mut t = Script::established(&Settings { timestamps: true, ..plain() });
        t.write(40 * MSS);
        t.now = t.now + ms(10);
        t.peer_ts = Some(Timestamps { val: 101, ecr: t.timestamp() - 10 });
        if is_timeout {
            time_out(&mut t);
            // Of the second the repetition is the first, too: nothing new was sent to find out by.
            t.snd = t.pcb.snd_max().since(t.pcb.snd_una());
        } else {
            let _ = [acks(&mut t, 0), acks(&mut t, 0), acks(&mut t, 0)];
        }
        assert_eq!(t.pcb.loss_stats().undo_count, 0);
        let _ = acks(&mut t, acked);
        assert_eq!(t.pcb.loss_stats().undo_count, 1);
        assert_eq!(t.pcb.info(0, t.now).ca_state, expected, "{is_timeout} {acked}");
    }
}

/// `tcp_fastretrans_alert`: what duplicates stand for at the end of a timeout's repair, besides what is acknowledged, was sent behind it.
#[test]
fn three_segments_that_arrived_behind_a_timeouts_repair_are_the_sign_of_another_loss_when_it_ends() {
    for (duplicates, expected) in [(3, CaState::Open), (4, CaState::Recovery)] {
        let mut t = in_flight();
        time_out(&mut t);
        assert_eq!([acks(&mut t, 1), acks(&mut t, 1)], [vec![10, 11], vec![1]]);
        let sent: Vec<u32> = [3, 5, 7, 9].into_iter().flat_map(|to| acks(&mut t, to)).collect();
        assert!(sent.contains(&9) && sent.last() > Some(&12), "{sent:?}");
        for _ in 0..duplicates {
            let _ = acks(&mut t, 9);
        }
        assert_eq!(t.pcb.info(0, t.now).ca_state, CaState::Loss);
        // Of the two, the second is one of those that duplicates have told of.
        let repeated = acks(&mut t, 11);
        assert_eq!(t.pcb.info(0, t.now).ca_state, expected, "{duplicates}");
        assert_eq!(repeated.contains(&11), expected == CaState::Recovery);
    }
}

/// `tcp_retrans_try_collapse`: all of what a repetition joins is lost, also what was sent behind the timeout.
#[test]
fn a_part_of_a_repetition_that_is_left_when_a_repair_ends_begins_a_recovery() {
    for (acked, expected) in [(6, CaState::Recovery), (11, CaState::Open)] {
        let mut t = Script::established(&Settings { sack: false, ..plain() });
        t.pcb.set_nodelay(true, 0);
        t.write(1);
        t.write(MSS);
        time_out(&mut t);
        assert_eq!(t.write(10), []);
        let mut ack = |bytes| {
            t.now = t.now + ms(10);
            let _ = t.input(t.ack_of(bytes, WND), &[]);
            (t.output().iter().map(|segment| segment.len).collect::<Vec<_>>(), t.pcb.info(0, t.now).ca_state)
        };
        assert_eq!([ack(MSS), ack(0)], [(vec![10], CaState::Loss), (vec![11], CaState::Loss)]);
        assert_eq!(ack(acked).1, expected, "{acked}");
    }
}

/// `tcp_ack` of a SYN-ACK in the state of a loss, which without SACK lasts until more than the SYN is acknowledged.
#[test]
fn a_syn_that_was_lost_is_repaired_until_text_is_acknowledged() {
    for (is_lost, state) in [(false, CaState::Open), (true, CaState::Loss)] {
        let mut t = Script::connect(&plain());
        t.output();
        if is_lost {
            assert_eq!(t.wait(secs(1)).len(), 1);
        }
        let _ = t.input(t.raw(IRS, ISS + 1, SYN_ACK), &[]);
        t.output();
        assert_eq!(t.pcb.info(0, t.now).ca_state, state);
        t.write(10);
        let _ = t.input(t.ack_of(10, WND), &[]);
        assert_eq!(t.pcb.info(0, t.now).ca_state, CaState::Open);
    }
}
