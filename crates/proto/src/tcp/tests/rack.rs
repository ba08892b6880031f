//! Loss found by RACK-TLP and repaired under proportional rate reduction (RFC 8985, RFC 9937, RFC 6675).
//!
//! The script's round trip is 10 ms, measured in the handshake. Places are in segments from the first byte.

use core::time::Duration;

use super::super::cc::Algorithm;
use super::super::sack::SackBlock;
use super::super::settings::Settings;
use super::script::{ISS, MSS, Script, WND, ms, plain, secs};
use super::world::{Link, World, pattern};
use crate::seq::SeqNum;

const FIRST: u32 = ISS + 1;

fn settings() -> Settings {
    Settings { sack: true, ..plain() }
}

/// Ten full segments in flight for a round trip, more to send.
fn in_flight() -> Script {
    let mut t = Script::established(&settings());
    assert_eq!(t.write(30 * MSS), [MSS; 10]);
    t.now = t.now + ms(10);
    t
}

#[test]
fn three_segments_behind_a_hole_repeat_it_at_once_and_new_data_flows_before() {
    let mut t = in_flight();
    t.report(0, &[(1, 2)]);
    assert_eq!(t.places(), [10], "limited transmit: one has left the network");
    t.report(0, &[(1, 3)]);
    assert_eq!(t.places(), [11]);
    t.report(0, &[(1, 4)]);
    assert_eq!(t.places(), [0]);
    assert_eq!((t.pcb.cwnd(), t.pcb.ssthresh()), (5 * MSS, 5 * MSS));
    let stats = t.pcb.loss_stats();
    assert_eq!((stats.rexmt_fast, stats.rexmt_bytes, stats.recovery_count), (1, u64::from(MSS), 1));
    assert_eq!((stats.sacked_bytes, stats.lost_bytes), (3 * MSS, 0));
}

#[test]
fn fewer_than_three_wait_for_a_quarter_of_the_round_trip_and_2_ms() {
    let mut t = in_flight();
    t.report(0, &[(9, 10)]);
    assert_eq!(t.places(), [10]);
    let again = t.wait(ms(5));
    assert_eq!(again[0].0.as_micros(), 4_500);
    assert_eq!(again[0].1.header().seq, SeqNum::new(FIRST));
}

#[test]
fn every_hole_is_repeated_once_in_order() {
    let mut t = in_flight();
    t.report(0, &[(8, 10), (4, 6), (1, 2)]);
    let mut all = t.places();
    for i in 0..8 {
        t.now = t.now + ms(1);
        t.report(0, &[(10, 10 + i), (8, 10), (4, 6), (1, 2)].map(|b| if b.0 == b.1 { (8, 10) } else { b }));
        all.extend(t.places());
    }
    let holes: Vec<u32> = all.iter().copied().filter(|&place| place < 10).collect();
    assert_eq!(holes, [0, 2, 3, 6, 7]);
}

#[test]
fn a_lost_retransmission_is_repeated_without_a_timeout() {
    let mut t = in_flight();
    t.report(0, &[(1, 10)]);
    assert_eq!(t.places().first(), Some(&0));
    t.now = t.now + ms(10);
    // A segment sent after the retransmission has arrived, the retransmission has not.
    t.report(0, &[(1, 12)]);
    let mut again = t.places();
    again.extend(t.places_within(ms(20)));
    assert!(again.contains(&0), "{again:?}");
    assert_eq!(t.pcb.loss_stats().rto_count, 0);
}

/// `tcp_fastretrans_alert`: what was sent during a repair is another round trip's, and its loss another sign of congestion.
#[test]
fn what_is_lost_during_a_repair_and_still_out_at_its_end_begins_another() {
    for (acked, count) in [(10, 2), (14, 1)] {
        let mut t = in_flight();
        t.report(0, &[(1, 10)]);
        assert!(t.places().starts_with(&[0, 10, 11]));
        t.now = t.now + ms(10);
        t.report(0, &[(1, 10), (11, 14)]);
        let mut again = t.places();
        again.extend(t.places_within(ms(5)));
        assert!(again.contains(&10), "{again:?}");
        let before = t.pcb.ssthresh();
        t.report(acked, &[(11, 14)]);
        assert_eq!(t.pcb.loss_stats().recovery_count, count);
        assert_eq!(t.pcb.ssthresh() < before, count > 1);
    }
}

#[test]
fn a_reordered_segment_is_no_loss_and_widens_the_reordering_window() {
    let mut t = in_flight();
    t.report(0, &[(1, 3)]);
    t.now = t.now + ms(1);
    t.report(3, &[]);
    assert!(t.pcb.loss_stats().reordering_seen);
    let _ = t.places();
    t.now = t.now + ms(9);
    // From now on even many segments behind a hole are given their time.
    t.report(3, &[(4, 9)]);
    assert!(t.places().iter().all(|&place| place > 10));
    t.report(9, &[]);
    assert_eq!(t.pcb.loss_stats().rexmt_bytes, 0);
}

#[test]
fn half_of_the_delivered_data_is_sent_during_recovery_and_the_window_is_reached_at_its_end() {
    let mut t = Script::established(&settings());
    assert_eq!(t.write(40 * MSS).len(), 10);
    t.now = t.now + ms(10);
    t.report(0, &[(1, 4)]);
    let mut count = t.places().len();
    for held in 5..=10 {
        t.report(0, &[(1, held)]);
        count += t.places().len();
    }
    assert!((4..=6).contains(&count), "{count}: half of ten");
    t.now = t.now + ms(10);
    t.report(10, &[]);
    assert!(t.pcb.cwnd() <= 5 * MSS);
    assert!(t.places().len() <= 5, "no burst");
}

#[test]
fn a_lost_tail_is_probed_after_two_round_trips_and_counts_as_a_loss() {
    let mut t = Script::established(&settings());
    t.write(3 * MSS);
    let probes = t.wait(ms(25));
    assert_eq!(probes.len(), 1);
    assert_eq!((probes[0].0, probes[0].1.header().seq), (ms(22), SeqNum::new(FIRST + 2 * MSS)));
    // The peer had the first two: the probe has repaired the loss.
    t.report(3, &[]);
    t.write(MSS);
    t.now = t.now + ms(10);
    t.report(4, &[]);
    assert!(t.pcb.cwnd() < 10 * MSS, "a repaired loss is a loss");
    let stats = t.pcb.loss_stats();
    assert_eq!((stats.rexmt_probe, stats.probe_count, stats.rto_count), (1, 1, 0));
}

#[test]
fn a_needless_probe_costs_nothing() {
    let mut t = Script::established(&settings());
    t.write(3 * MSS);
    let _ = t.wait(ms(25));
    t.report(3, &[(2, 3)]);
    t.write(MSS);
    t.now = t.now + ms(10);
    t.report(4, &[]);
    assert!(t.pcb.cwnd() >= 10 * MSS);
    assert_eq!(t.pcb.loss_stats().dsack_count, 1);
}

#[test]
fn a_probe_carries_new_data_if_there_is_any() {
    let mut t = in_flight();
    let probes = t.wait(ms(15));
    assert_eq!(probes[0].1.header().seq, SeqNum::new(FIRST + 10 * MSS), "beyond the congestion window");
    assert_eq!(probes[0].1.len, MSS);
    assert_eq!(t.pcb.loss_stats().rexmt_bytes, 0);
}

#[test]
fn a_single_segment_is_probed_no_later_than_the_timeout_which_then_restarts() {
    let mut t = Script::established(&settings());
    let rto = t.pcb.rto();
    t.write(MSS);
    let first = t.wait(rto);
    assert_eq!((first[0].0, first[0].1.len), (rto, MSS));
    assert_eq!((t.pcb.loss_stats().rexmt_probe, t.pcb.loss_stats().rto_count), (1, 0));
    let second = t.wait(rto);
    assert_eq!((second[0].0, t.pcb.loss_stats().rto_count), (rto, 1));
}

#[test]
fn a_timeout_retransmits_only_data_that_the_peer_does_not_hold() {
    let mut t = Script::established(&settings());
    t.write(10 * MSS);
    t.now = t.now + ms(1);
    t.report(0, &[(3, 5)]);
    let _ = t.places();
    // Everything after that is lost, repetitions included, until the timer has expired.
    let _ = t.wait(secs(1));
    assert!(t.pcb.loss_stats().rto_count > 0);
    let mut places = Vec::new();
    for ack in 1..=10 {
        t.now = t.now + ms(10);
        let held: &[(u32, u32)] = if ack < 5 { &[(3, 5)] } else { &[] };
        if (3..5).contains(&ack) {
            continue;
        }
        t.report(ack, held);
        places.extend(t.places());
    }
    assert!(!places.contains(&3) && !places.contains(&4), "{places:?}");
    assert_eq!(t.pcb.snd_una(), t.pcb.snd_max());
}

#[test]
fn data_that_the_peer_reneges_on_is_sent_again() {
    let mut t = in_flight();
    t.report(0, &[(1, 10)]);
    let _ = t.places();
    t.now = t.now + ms(10);
    // The hole is filled, and the peer has discarded the data behind it.
    t.report(1, &[]);
    let _ = t.places();
    let again: Vec<u32> = t.places_within(secs(3));
    assert!(again.contains(&1), "{again:?}");
    assert_eq!(t.pcb.loss_stats().renege_count, 1);
    assert_eq!(t.pcb.loss_stats().sacked_bytes, 0);
}

#[test]
fn memory_is_given_back_when_nothing_was_in_flight_for_a_second() {
    let mut t = Script::established(&settings());
    t.write(3 * MSS);
    t.now = t.now + ms(10);
    t.report(3, &[]);
    assert!(t.pcb.loss.is_some());
    let _ = t.wait(secs(2));
    assert!(t.pcb.loss.is_none() && t.pcb.next_deadline().is_none());
}

#[test]
fn learnt_values_are_kept_without_the_queues() {
    let mut t = in_flight();
    t.report(0, &[(1, 4)]);
    for _ in 0..20 {
        let _ = t.places();
        t.now = t.now + ms(10);
        let _ = t.input(t.seg(super::script::ACK), &[]);
    }
    assert_eq!(t.snd, 0);
    let _ = t.wait(secs(5));
    assert_eq!((t.pcb.loss_stats().rexmt_fast, t.pcb.next_deadline()), (1, None));
}

#[test]
fn a_lossless_path_is_not_recorded_and_still_recovers() {
    let s = Settings { lossless: true, ..Settings::default() };
    let mut w = World::established(3, s.clone(), s, Link::CLEAN);
    w.ends[0].to_write = pattern(300_000, 3);
    w.run("clean", |w| w.ends[1].received.len() == 300_000);
    assert!(w.ends[0].pcb().loss.is_none(), "nothing is kept");
    w.link.loss = 5;
    w.ends[0].to_write = pattern(600_000, 3);
    w.run("losses", |w| w.ends[1].received.len() == 600_000);
    assert!(w.ends[0].pcb().loss_stats().rexmt_fast > 0);
}

#[test]
fn losses_are_repaired_without_timeouts_and_without_repeating_more() {
    let seeds = [(1, 1), (2, 1), (3, 3)];
    for (seed, loss, congestion_control) in
        Algorithm::ALL.iter().flat_map(|cc| seeds.map(|(seed, loss)| (seed, loss, *cc)))
    {
        let link = Link { delay_us: 5_000, rate: 12_500, loss, ..Link::CLEAN };
        let s = Settings { rcv_buf: 1 << 20, congestion_control, ..Settings::default() };
        let mut w = World::established(seed, s.clone(), s, link);
        w.ends[0].to_write = pattern(3_000_000, 3);
        w.ends[0].snd_hiwat = 1 << 20;
        w.run("transfer", |w| w.ends[1].received.len() == 3_000_000);
        let stats = w.ends[0].pcb().loss_stats();
        let lost = 3_000_000 / 1448 * loss;
        assert!(u64::from(stats.rexmt_fast) < 2 * lost && stats.rexmt_fast > 0, "{stats:?}");
        // Where acknowledgments are lost, a timeout may have been for nothing.
        assert!(stats.undo_count <= stats.rto_count, "{stats:?}");
        assert!(stats.rto_count <= 1, "{stats:?}");
    }
}

#[test]
fn the_round_trip_that_losses_are_judged_by_is_that_of_the_last_segment_reported() {
    let mut t = Script::established(&settings());
    t.write(10 * MSS);
    t.now = t.now + ms(10);
    for held in [&[(1, 2)][..], &[(1, 3)], &[(1, 3), (8, 9)]] {
        t.report(0, held);
    }
    assert_eq!(t.places(), [0]);
    t.now = t.now + ms(12);
    t.report(4, &[(8, 9)]);
    // The fourth has been out for 22 ms, and so has the last, which is given the reordering window besides. So nothing more is lost, and a
    // segment more may leave.
    assert_eq!(t.places(), [4, 5, 6]);
    t.write(10 * MSS);
    t.now = t.now + ms(2);
    let mut old = t.ack_of(0, WND);
    old.ack = t.place(3);
    old.options.sack = [SackBlock { start: t.place(5), end: t.place(7) }].into_iter().collect();
    let _ = t.input(old, &[]);
    assert_eq!(t.places(), [7, 10], "what an acknowledgment from before reports makes room");
}

#[test]
fn the_degree_of_reordering_is_the_longest_way_that_a_segment_was_overtaken() {
    let mut t = in_flight();
    assert_eq!(t.pcb.info(0, t.now).reordering, 3);
    t.report(0, &[(9, 10)]);
    t.report(0, &[(3, 4), (9, 10)]);
    let info = t.pcb.info(0, t.now);
    assert_eq!((info.reordering, info.reordered_count), (7, 1));
    t.report(10, &[]);
    let info = t.pcb.info(0, t.now);
    assert_eq!((info.reordering, info.reordered_count), (10, 2));
}

#[test]
fn behind_a_path_that_reorders_the_window_grows_by_what_blocks_report() {
    let mut t = Script::established(&settings());
    t.write(10 * MSS);
    t.now = t.now + ms(10);
    t.report(0, &[(9, 10)]);
    assert_eq!(t.pcb.cwnd(), 10 * MSS);
    t.report(0, &[(3, 4), (9, 10)]);
    assert_eq!(t.pcb.cwnd(), 11 * MSS);
    t.report(10, &[]);
    assert_eq!(t.pcb.cwnd(), 19 * MSS);
}

#[test]
fn acknowledgments_of_nothing_keep_no_memory() {
    let mut t = Script::established(&settings());
    t.write(3 * MSS);
    t.now = t.now + ms(10);
    t.report(3, &[]);
    for _ in 0..2 {
        let _ = t.wait(ms(600));
        let _ = t.input(t.ack_of(0, WND), &[]);
        t.output();
    }
    assert!(t.pcb.loss.is_none());
}

#[test]
fn a_repair_that_arrives_shows_that_what_left_some_microseconds_before_it_is_lost() {
    let mut t = in_flight();
    t.report(1, &[]);
    assert_eq!(t.places(), [10, 11]);
    t.now = t.now + Duration::from_micros(20);
    t.report(1, &[(2, 10)]);
    assert_eq!(t.places(), [1, 12, 13]);
    t.now = t.now + ms(10);
    t.report(10, &[]);
    assert_eq!(t.places()[..2], [10, 11], "12 and 13 left behind it");
    assert_eq!(t.pcb.loss_stats().lost_bytes, 0);
}

/// RFC 9937 section 4.1: the window changes by acknowledgments that say that something has arrived.
#[test]
fn an_acknowledgment_of_a_part_of_a_segment_makes_no_room_in_a_recovery() {
    let mut t = in_flight();
    t.report(0, &[(7, 10)]);
    assert_eq!(t.places(), [0, 1, 2], "three of ten have arrived, and the rest is lost");
    let mut half = t.ack_of(MSS / 2, WND);
    half.options.sack = [SackBlock { start: t.place(7), end: t.place(10) }].into_iter().collect();
    let _ = t.input(half, &[]);
    assert_eq!(t.places(), []);
}

#[test]
fn a_block_that_ends_beyond_what_was_sent_says_nothing() {
    let mut t = in_flight();
    t.report(0, &[(8, 11)]);
    assert_eq!(t.pcb.loss_stats().sacked_bytes, 0);
    t.report(0, &[(8, 10)]);
    assert_eq!(t.pcb.loss_stats().sacked_bytes, 2 * MSS);
}

/// What was sent again at once is judged segment by segment: where all that was sent before the latest arrival has arrived, no timer waits.
#[test]
fn the_timer_of_reordering_waits_for_no_repetition_that_has_arrived() {
    let mut t = Script::established(&Settings { sack: true, ..plain() });
    t.write(10 * MSS);
    t.now = t.now + ms(10);
    t.report(0, &[(6, 9)]);
    let again = t.places();
    assert!(again.starts_with(&[0, 1, 2]), "{again:?}");
    t.now = t.now + ms(15);
    // The last to arrive has been out for 25 ms, and the others that go again for 15.
    t.report(2, &[(6, 10)]);
    let _ = t.places();
    let at = t.pcb.next_deadline().expect("a timer");
    assert!(at.since(t.now) >= t.pcb.rto(), "{:?}", at.since(t.now));
}
