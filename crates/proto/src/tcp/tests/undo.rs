//! Repairs that were not needed are recognised and undone (RFC 3522, 3708, 5682), and become rare.

use super::super::info::CaState;
use super::super::sack::SackBlock;
use super::super::segment::Timestamps;
use super::super::settings::Settings;
use super::script::{MSS, Script, ms, plain};
use super::world::{Link, World, pattern};

fn in_flight(timestamps: bool) -> Script {
    let mut t = Script::established(&Settings { sack: true, timestamps, ..plain() });
    t.write(30 * MSS);
    assert_eq!(t.pcb.snd_max().since(t.pcb.snd_una()), 10 * u32::from(t.pcb.mss()));
    t.now = t.now + ms(10);
    t
}

/// The retransmission timer expires, after a tail loss probe.
fn time_out(t: &mut Script) {
    let before = t.pcb.loss_stats().rto_count;
    for _ in 0..10 {
        let at = t.pcb.next_deadline().expect("a timer");
        let _ = t.wait(at.since(t.now));
        if t.pcb.loss_stats().rto_count > before {
            return;
        }
    }
    panic!("no timeout");
}

#[test]
fn a_timeout_is_spurious_if_something_sent_once_and_before_it_arrives() {
    let mut t = in_flight(false);
    time_out(&mut t);
    assert_eq!(t.pcb.cwnd(), MSS);
    assert_eq!(t.pcb.loss_stats().rexmt_rto, 1, "one segment and no more");
    // The acknowledgments of the originals arrive late.
    t.report(1, &[]);
    let new = t.places();
    assert!(!new.is_empty() && new.iter().all(|&place| place > 10), "new data is sent to find out: {new:?}");
    t.report(2, &[]);
    assert_eq!(t.pcb.loss_stats().undo_count, 1);
    assert!(t.pcb.cwnd() >= 10 * MSS);
    let _ = t.places();
    t.report(11, &[]);
    assert_eq!(t.pcb.loss_stats().rexmt_rto, 1);
}

#[test]
fn a_genuine_timeout_retransmits_the_rest() {
    let mut t = in_flight(false);
    time_out(&mut t);
    t.report(1, &[]);
    let new = t.places();
    let last = *new.last().expect("new data");
    // Only the new data arrives.
    t.report(1, &[(last, last + 1)]);
    assert_eq!(t.places().first(), Some(&1));
    assert_eq!(t.pcb.loss_stats().undo_count, 0);
    assert!(t.pcb.cwnd() < 5 * MSS);
}

#[test]
fn a_timeout_without_new_data_retransmits_at_once() {
    let mut t = Script::established(&Settings { sack: true, ..plain() });
    t.write(4 * MSS);
    t.now = t.now + ms(10);
    time_out(&mut t);
    t.report(1, &[]);
    assert_eq!(t.places(), [1, 2]);
}

#[test]
fn a_short_segment_of_new_data_decides_without_waiting() {
    let mut t = Script::established(&Settings { sack: true, ..plain() });
    t.write(4 * MSS);
    t.write(10);
    t.now = t.now + ms(10);
    time_out(&mut t);
    t.report(1, &[]);
    t.snd += 10;
    assert_eq!(t.places(), [4]);
}

#[test]
fn an_echo_from_before_the_retransmission_undoes_it_at_once() {
    let mut t = in_flight(true);
    t.peer_ts = Some(Timestamps { val: 101, ecr: t.timestamp() - 10 });
    t.report(0, &[(1, 4)]);
    assert_eq!(t.places(), [0, 10]);
    assert!(t.pcb.cwnd() <= 5 * MSS);
    t.report(4, &[]);
    let stats = t.pcb.loss_stats();
    assert_eq!((stats.undo_count, stats.reordering_seen), (1, true));
    assert_ne!(t.pcb.info(0, t.now).ca_state, CaState::Recovery, "it is over");
    assert!(t.pcb.cwnd() >= 10 * u32::from(t.pcb.mss()));
}

#[test]
fn an_echo_of_the_retransmission_undoes_nothing() {
    let mut t = in_flight(true);
    let val = t.timestamp();
    t.peer_ts = Some(Timestamps { val: 101, ecr: val - 10 });
    t.report(0, &[(1, 4)]);
    let _ = t.places();
    t.now = t.now + ms(10);
    t.peer_ts = Some(Timestamps { val: 111, ecr: val });
    t.report(4, &[]);
    assert_eq!(t.pcb.loss_stats().undo_count, 0);
}

#[test]
fn a_retransmission_reported_as_duplicate_is_undone_and_widens_the_window() {
    let mut t = in_flight(false);
    t.report(0, &[(1, 4)]);
    assert_eq!(t.places(), [0, 10]);
    // The original was only late; then the report of the duplicate arrives.
    t.report(5, &[]);
    let _ = t.places();
    assert!(t.pcb.cwnd() <= 5 * MSS);
    t.report(6, &[(0, 1)]);
    let stats = t.pcb.loss_stats();
    assert_eq!((stats.undo_count, stats.dsack_count), (1, 1));
    assert!(t.pcb.cwnd() >= 10 * MSS);
}

/// Into a shut window each timeout is a first one, and begins a repair of its own.
#[test]
fn a_timeout_waits_for_no_report_of_what_it_gives_up() {
    let mut t = Script::established(&Settings { sack: true, ..plain() });
    t.write(2 * MSS);
    let _ = t.input(t.ack_of(0, 0), &[]);
    time_out(&mut t);
    time_out(&mut t);
    assert_eq!(t.pcb.loss_stats().rexmt_rto, 2);
    t.report(2, &[]);
    assert_eq!(t.pcb.loss_stats().undo_count, 0);
    t.report(2, &[(0, 1)]);
    assert_eq!(t.pcb.loss_stats().undo_count, 1);
}

#[test]
fn a_duplicate_from_the_network_undoes_nothing() {
    let mut t = in_flight(false);
    for i in 1..5 {
        t.report(i, &[(0, 1)]);
        let _ = t.places();
    }
    let stats = t.pcb.loss_stats();
    assert_eq!((stats.dsack_count, stats.undo_count, stats.rexmt_bytes), (4, 0, 0));
}

/// Five in a hundred segments are up to three segments late: one in a thousand may be repeated.
#[test]
fn pure_reordering_causes_almost_no_retransmissions() {
    for (seed, rate, delay_us) in
        [(1, 1_250, 5_000), (2, 12_500, 5_000), (3, 12_500, 25_000), (4, 1_250, 50_000)]
    {
        for timestamps in [true, false] {
            let link = Link { delay_us, rate, reorder: 5, late: 3, ..Link::CLEAN };
            let s = Settings { timestamps, rcv_buf: 1 << 20, ..Settings::default() };
            let mut w = World::established(seed, s.clone(), s, link);
            w.ends[0].to_write = pattern(12_000_000, 3);
            w.ends[0].snd_hiwat = 1 << 20;
            w.run("transfer", |w| w.ends[1].received.len() == 12_000_000);
            let stats = w.ends[0].pcb().loss_stats();
            assert!(stats.rexmt_bytes <= 12_000, "rate {rate} delay {delay_us}: {stats:?}");
            assert_eq!(stats.rto_count, 0);
        }
    }
}

/// What was sent again needlessly is out twice, until it is given up.
#[test]
fn a_loss_among_what_is_out_twice_after_an_undo_is_repaired_without_a_timeout() {
    let mut t = in_flight(true);
    let early = t.timestamp() - 10;
    time_out(&mut t);
    t.peer_ts = Some(Timestamps { val: 101, ecr: t.timestamp() });
    t.report(1, &[]);
    let last = *t.places().last().expect("new data");
    t.report(1, &[(last, last + 1)]);
    assert_eq!(t.places(), [1]);
    t.report(2, &[(last, last + 1)]);
    assert_eq!(t.places(), [2, 3]);
    t.peer_ts = Some(Timestamps { val: 102, ecr: early });
    t.report(3, &[(last, last + 1)]);
    let stats = t.pcb.loss_stats();
    assert_eq!((stats.undo_count, stats.rto_count), (1, 1));
    // Of segment 3 neither the original nor the repetition arrives.
    let mut again = t.places();
    again.extend(t.places_within(ms(20)));
    assert!(again.contains(&3), "{again:?}");
    assert_eq!(t.pcb.loss_stats().rto_count, 1);
}

/// RFC 7323 section 4.1: an acknowledgment that acknowledges nothing new measures nothing.
#[test]
fn the_echo_of_a_duplicate_is_no_round_trip() {
    let mut t = in_flight(true);
    let val = t.timestamp();
    let before = t.pcb.srtt();
    t.peer_ts = Some(Timestamps { val: 101, ecr: val - 500 });
    t.report(0, &[]);
    assert_eq!(t.pcb.srtt(), before);
}

#[test]
fn a_timeout_that_is_not_cleared_up_is_told_as_loss() {
    let mut t = in_flight(false);
    time_out(&mut t);
    assert_eq!(t.pcb.info(0, t.now).ca_state, CaState::Loss);
}

/// A duplicate says nothing of the originals, which may still come (`tcp_process_loss`).
#[test]
fn a_timeout_may_prove_spurious_behind_a_duplicate() {
    let mut t = in_flight(false);
    time_out(&mut t);
    t.report(0, &[]);
    assert_eq!(t.places(), []);
    t.report(2, &[]);
    assert_eq!(t.pcb.loss_stats().undo_count, 1);
}

/// RFC 5682 section 3 step 3: what was sent before the timeout is lost if only new text is reported.
#[test]
fn a_block_of_new_text_ends_the_search_for_originals_whatever_else_the_segment_says() {
    let mut t = in_flight(false);
    time_out(&mut t);
    t.report(1, &[]);
    let last = *t.places().last().expect("new data");
    let mut larger = t.ack_of(0, 60_000);
    larger.options.sack = [SackBlock { start: t.place(last), end: t.place(last + 1) }].into_iter().collect();
    let _ = t.input(larger, &[]);
    assert_eq!(t.places().first(), Some(&1));
    t.report(3, &[(last, last + 1)]);
    assert_eq!(t.pcb.loss_stats().undo_count, 0);
}

#[test]
fn a_timeout_sends_one_segment_also_where_several_may_leave_as_one() {
    let mut t = Script::established(&Settings { sack: true, tso_max: 65_536, ..plain() });
    t.write(10 * MSS);
    let (_, again) = t.wait(ms(450)).pop().expect("a repetition");
    assert_eq!((t.pcb.loss_stats().rto_count, t.place_of(&again), again.len), (1, 0, MSS));
}

/// `tcp_try_undo_partial`: the path has overtaken what was taken for lost. While something that was sent again is out, only new data leaves. Then all is
/// taken back and judged anew: what has been out for long begins another recovery.
#[test]
fn an_undo_within_a_fast_recovery_waits_for_what_was_sent_again() {
    let mut t = in_flight(true);
    let early = t.timestamp() - 10;
    t.peer_ts = Some(Timestamps { val: 101, ecr: early });
    t.report(0, &[(6, 10)]);
    assert_eq!(t.places(), [0, 1, 2, 3]);
    let state = |t: &Script| (t.pcb.loss_stats().undo_count, t.pcb.info(0, t.now).ca_state);
    for acked in [1, 3] {
        t.now = t.now + ms(10);
        t.report(acked, &[(6, 10)]);
        assert_eq!(state(&t), (0, CaState::Recovery), "{acked}");
        assert!(t.places().iter().all(|place| *place >= 10), "only what is new");
    }
    t.now = t.now + ms(10);
    t.report(4, &[(6, 10)]);
    assert_eq!(state(&t), (1, CaState::Recovery));
    assert_eq!(t.places(), [4], "it is lost");
}

/// The repetitions of a timeout may still be out when a fast recovery begins, whose own do not begin at SND.UNA: an echo from before the first of all proves as much.
#[test]
fn an_echo_from_before_an_earlier_repair_undoes_the_later_one() {
    for (ecr_is_early, undone) in [(true, 2), (false, 1)] {
        let mut t = in_flight(true);
        let early = t.timestamp() - 10;
        time_out(&mut t);
        let repeated = t.timestamp();
        t.now = t.now + ms(30);
        // An original shows that the timeout was not needed, and that what is before it is lost.
        t.peer_ts = Some(Timestamps { val: 101, ecr: t.timestamp() });
        t.report(0, &[(9, 10)]);
        let again = t.places_within(ms(100));
        assert!(!again.contains(&0) && again.contains(&1), "{again:?}");
        assert_eq!(t.pcb.info(0, t.now).ca_state, CaState::Recovery);
        t.peer_ts = Some(Timestamps { val: 102, ecr: if ecr_is_early { early } else { repeated } });
        t.report(10, &[]);
        assert_eq!(t.pcb.loss_stats().undo_count, undone, "{ecr_is_early}");
    }
}

/// `tcp_process_loss`: a FIN is new, too, and decides whether the timeout was needed.
#[test]
fn a_fin_decides_without_other_new_data() {
    let mut t = Script::established(&Settings { sack: true, ..plain() });
    t.write(10 * MSS);
    t.now = t.now + ms(10);
    time_out(&mut t);
    t.pcb.shutdown_write();
    assert_eq!(t.places(), []);
    t.report(1, &[]);
    assert_eq!(t.places(), [10], "the FIN and no more");
    t.report(2, &[]);
    assert_eq!(t.pcb.loss_stats().undo_count, 1);
}
