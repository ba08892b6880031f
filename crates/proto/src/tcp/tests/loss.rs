//! Recovery from losses: fast retransmit, NewReno, limited transmit, the retransmission timer.

use super::super::settings::Settings;
use super::script::{ISS, MSS, Script, WND, ms, plain, secs};
use super::world::{Link, World, pattern};
use crate::seq::SeqNum;

/// Ten full segments in flight, more to send.
fn in_flight() -> Script {
    let mut t = Script::established(&plain());
    assert_eq!(t.write(30 * MSS), [MSS; 10]);
    t
}

fn duplicate(t: &mut Script) -> Vec<(u32, u32)> {
    let _ = t.input(t.ack_of(0, WND), &[]);
    t.output().iter().map(|s| (s.header().seq.raw(), s.len)).collect()
}

const FIRST: u32 = ISS + 1;

#[test]
fn two_duplicates_send_new_data_and_the_third_repeats_the_lost_segment() {
    let mut t = in_flight();
    assert_eq!(duplicate(&mut t), [(FIRST + 10 * MSS, MSS)]);
    assert_eq!(duplicate(&mut t), [(FIRST + 11 * MSS, MSS)]);
    assert_eq!(duplicate(&mut t), [(FIRST, MSS)]);
    assert_eq!((t.pcb.cwnd(), t.pcb.ssthresh()), (5 * MSS, 5 * MSS));
    // Inflated by one per duplicate, new data flows again once the window has caught up with the flight.
    let later: Vec<_> = (0..10).flat_map(|_| duplicate(&mut t)).collect();
    assert_eq!(later.first(), Some(&(FIRST + 12 * MSS, MSS)));
    assert_eq!(later.len(), 5 + 3 + 10 - 12, "cwnd, threshold, duplicates, less the data in flight");
}

#[test]
fn full_acknowledgment_ends_recovery_at_the_threshold() {
    let mut t = in_flight();
    for _ in 0..3 {
        duplicate(&mut t);
    }
    let _ = t.input(t.ack_of(12 * MSS, WND), &[]);
    assert!(t.pcb.cwnd() <= 5 * MSS);
    let sent = t.lens();
    assert!(!sent.is_empty() && sent.len() <= 5);
}

#[test]
fn acknowledgments_that_only_resemble_duplicates_are_not_counted() {
    let mut t = in_flight();
    for i in 0..5 {
        // A larger window, or text, makes it no duplicate (RFC 5681 section 2).
        let _ = t.input(t.ack_of(0, WND + 1000 * (i + 1)), &[]);
        let _ = t.input(t.ack_of(0, WND + 1000 * (i + 1)), b"text");
    }
    assert!(t.output().iter().all(|s| s.len == 0), "nothing may be repeated");
}

#[test]
fn a_timeout_returns_to_the_first_segment_and_slow_start() {
    let mut t = in_flight();
    let rto = t.pcb.rto();
    let sent = t.wait(rto);
    assert_eq!(sent.len(), 1);
    assert_eq!((sent[0].0, sent[0].1.header().seq, sent[0].1.len), (rto, SeqNum::new(FIRST), MSS));
    assert_eq!((t.pcb.cwnd(), t.pcb.ssthresh()), (MSS, 5 * MSS));
    let stats = t.pcb.loss_stats();
    assert_eq!((stats.rto_count, stats.rexmt_rto, stats.rexmt_bytes), (1, 1, u64::from(MSS)));
    let _ = t.input(t.ack_of(MSS, WND), &[]);
    assert_eq!(t.lens(), [MSS; 2], "slow start");
    // An acknowledgment beyond the retransmitted data is accepted: the rest had arrived.
    let _ = t.input(t.ack_of(9 * MSS, WND), &[]);
    assert_eq!(t.pcb.snd_una(), SeqNum::new(FIRST + 10 * MSS));
    assert!(t.output().iter().all(|s| s.header().seq.at_or_after(SeqNum::new(FIRST + 10 * MSS))));
}

#[test]
fn timeouts_back_off_and_the_connection_is_given_up_in_silence() {
    let s = Settings { retries: 5, rto_max: secs(4), ..plain() };
    let mut t = Script::established(&s);
    t.write(10);
    let start = t.now;
    let sent = t.wait(secs(60));
    let times: Vec<u128> = sent.iter().map(|(at, _)| at.as_millis()).collect();
    assert_eq!(times, [200, 600, 1400, 3000, 6200, 10_200]);
    // 0.2, 0.4, 0.8, 1.6, 3.2 and 4 s are over since the first of them at the next timeout.
    assert_eq!(t.timed_out_at.map(|at| at.since(start)), Some(ms(14_200)));
    assert_eq!(t.pcb.next_deadline(), None);
}

#[test]
fn a_closed_connection_is_given_up_sooner() {
    for (retries, most) in [(15, 511), (3, 15)] {
        let mut t = Script::established(&Settings { retries, ..plain() });
        t.write(10);
        assert!(t.pcb.close(0, t.now).is_none());
        let start = t.now;
        let _ = t.wait(secs(1000));
        let lived = t.timed_out_at.unwrap().since(start);
        assert!((ms(200 * most)..=ms(200 * 2 * (most + 1))).contains(&lived), "{lived:?}");
    }
}

#[test]
fn an_ambiguous_round_trip_is_measured_only_with_a_timestamp() {
    let mut t = Script::established(&plain());
    let srtt = t.pcb.srtt();
    t.write(10);
    let _ = t.wait(ms(250));
    let _ = t.input(t.ack_of(10, WND), &[]);
    assert_eq!((t.pcb.srtt(), t.pcb.rto()), (srtt, ms(400)), "Karn, and the back-off stays");

    let mut t = Script::established(&Settings { timestamps: true, ..plain() });
    t.write(10);
    let repeated = t.wait(ms(250));
    let val = repeated[0].1.header().options.timestamps.unwrap().val;
    t.peer_ts = Some(super::super::segment::Timestamps { val: 101, ecr: val });
    let _ = t.input(t.ack_of(10, WND), &[]);
    assert_eq!(t.pcb.rto(), ms(205), "the sample ends the back-off");
    assert!(t.pcb.srtt() > srtt, "50 ms since the repetition");
}

#[test]
fn one_lost_segment_costs_no_timeout() {
    for lost in [5, 20, 77] {
        let mut w = World::established(lost as u64, Settings::default(), Settings::default(), Link::CLEAN);
        w.drop_data = vec![lost];
        w.ends[0].to_write = pattern(400_000, 3);
        let start = w.now;
        w.run("transfer", |w| w.ends[1].received.len() == 400_000);
        assert!(w.ends[1].received == w.ends[0].to_write);
        let sent: usize = w.trace.iter().filter(|(_, from, ..)| *from == 0).map(|(.., len)| len).sum();
        assert!(sent <= 400_000 + 1460, "exactly the lost segment is repeated");
        assert!(w.now.since(start) < ms(400), "{:?}", w.now.since(start));
    }
}

#[test]
fn several_losses_in_one_window_are_retransmitted_one_per_round_trip() {
    let mut w = World::established(9, Settings::default(), Settings::default(), Link::CLEAN);
    w.drop_data = vec![40, 42, 44];
    w.ends[0].to_write = pattern(400_000, 3);
    w.ends[0].snd_hiwat = 256 * 1024;
    let start = w.now;
    w.run("transfer", |w| w.ends[1].received.len() == 400_000);
    assert!(w.now.since(start) < ms(400), "no timeout: {:?}", w.now.since(start));
}

#[test]
fn a_lost_tail_is_found_by_the_timer() {
    let mut w = World::established(4, Settings::default(), Settings::default(), Link::CLEAN);
    w.ends[0].to_write = pattern(1000, 3);
    w.drop_data = vec![0];
    w.run("tail", |w| w.ends[1].received.len() == 1000);
}

#[test]
fn after_idleness_the_window_restarts() {
    let mut w = World::established(5, Settings::default(), Settings::default(), Link::CLEAN);
    w.ends[0].to_write = pattern(2_000_000, 3);
    w.ends[0].snd_hiwat = 1 << 20;
    w.run("transfer", |w| w.ends[1].received.len() == 2_000_000);
    w.run_for(secs(10));
    assert!(w.ends[0].pcb().cwnd() > 20 * 1448);
    w.trace.clear();
    w.ends[0].to_write.extend(pattern(500_000, 3));
    let now = w.now;
    w.run("first flight", |w| !w.trace.is_empty());
    let flight: usize = w.trace.iter().filter(|(at, from, ..)| *at == now && *from == 0).map(|t| t.3).sum();
    assert!(flight > 0 && flight <= 14_600, "{flight}");
}

#[test]
fn the_window_grows_by_what_duplicates_have_not_told_before() {
    let mut t = in_flight();
    duplicate(&mut t);
    duplicate(&mut t);
    let _ = t.input(t.ack_of(3 * MSS, WND), &[]);
    assert_eq!(t.pcb.cwnd(), 11 * MSS, "two of the three were known to have arrived");
    let _ = t.input(t.ack_of(2 * MSS, WND), &[]);
    assert_eq!(t.pcb.cwnd(), 13 * MSS);
}

#[test]
fn window_probes_do_not_end_idleness() {
    let s = Settings { sack: true, ..plain() };
    let mut t = Script::established(&s);
    t.write(30 * MSS);
    let _ = t.input(t.ack_of(10 * MSS, WND), &[]);
    t.output();
    let _ = t.input(t.ack_of(20 * MSS, 0), &[]);
    t.write(5 * MSS);
    let cwnd = t.pcb.cwnd();
    assert!(cwnd >= 30 * MSS && !t.wait(secs(3)).is_empty());
    let _ = t.input(t.ack_of(0, WND), &[]);
    t.output();
    assert_eq!(t.pcb.cwnd(), 10 * MSS);
}

#[test]
fn without_records_a_segment_at_a_time_measures_the_round_trip() {
    let mut t = Script::established(&Settings { lossless: true, ..plain() });
    assert_eq!(t.pcb.srtt(), Some(ms(10)));
    for _ in 0..50 {
        // The first of two is what is measured.
        t.write(MSS);
        t.now = t.now + ms(40);
        t.write(MSS);
        t.now = t.now + ms(10);
        let _ = t.input(t.ack_of(2 * MSS, WND), &[]);
    }
    assert!(t.pcb.srtt().is_some_and(|srtt| srtt > ms(45)), "{:?}", t.pcb.srtt());
}

#[test]
fn without_records_too_text_in_flight_probes_a_window_that_was_closed_over_it() {
    let mut t = Script::established(&Settings { lossless: true, ..plain() });
    t.write(2 * MSS);
    let _ = t.input(t.ack_of(0, 0), &[]);
    let sent = t.wait(secs(1));
    assert!(sent.len() > 1);
    let una = t.pcb.snd_una();
    assert!(sent.iter().all(|(_, segment)| (segment.header().seq, segment.len) == (una, MSS)), "{sent:?}");
    // The window is open again: what is left goes as usual.
    let _ = t.input(t.ack_of(MSS, WND), &[]);
    assert_eq!(t.lens(), [MSS]);
}

#[test]
fn without_records_too_a_window_that_is_used_grows() {
    for (bytes, cwnd) in [(10 * MSS, 20 * MSS), (5 * MSS, 10 * MSS)] {
        let mut t = Script::established(&Settings { lossless: true, ..plain() });
        t.write(bytes);
        let _ = t.input(t.ack_of(bytes, WND), &[]);
        assert_eq!(t.pcb.cwnd(), cwnd);
    }
}

/// RFC 6582 section 4, the impatient variant, where no records are kept.
#[test]
fn the_second_partial_acknowledgment_leaves_the_timer_as_it_is() {
    let mut t = Script::established(&Settings { lossless: true, ..plain() });
    t.write(30 * MSS);
    for _ in 0..3 {
        duplicate(&mut t);
    }
    let mut left = |bytes: u32| {
        t.now = t.now + ms(20);
        let _ = t.input(t.ack_of(bytes, WND), &[]);
        t.output();
        (t.pcb.running_timer(t.now).unwrap().left, t.pcb.rto())
    };
    let (first, second) = (left(2 * MSS), left(2 * MSS));
    assert_eq!(first.0, first.1);
    assert_eq!(second.0, first.0 - ms(20));
}

#[test]
fn without_records_too_a_fin_in_flight_probes_a_window_that_was_closed_over_it() {
    let mut t = Script::established(&Settings { lossless: true, ..plain() });
    t.pcb.shutdown_write();
    assert_eq!(t.lens(), [0]);
    let una = t.pcb.snd_una();
    let _ = t.input(t.ack_of(0, 0), &[]);
    let sent = t.wait(secs(1));
    let is_fin = |segment: &super::super::events::Transmit| {
        segment.header().flags.has(super::script::FIN) && segment.header().seq == una
    };
    assert!(sent.len() > 1 && sent.iter().all(|(_, segment)| is_fin(segment)), "{sent:?}");
    let _ = t.input(t.ack_of(1, 0), &[]);
    assert_eq!(t.pcb.state(), super::super::state::State::FinWait2);
}

fn lossless(segments: u32) -> Script {
    let mut t = Script::established(&Settings { lossless: true, ..plain() });
    assert_eq!(t.write(segments * MSS).len(), segments as usize);
    t
}

#[test]
fn without_records_what_is_sent_again_is_counted_too() {
    let mut t = lossless(3);
    assert_eq!(t.wait(ms(250)).len(), 1);
    let stats = t.pcb.loss_stats();
    assert_eq!((stats.rto_count, stats.rexmt_rto, stats.rexmt_fast, stats.rexmt_bytes), (1, 1, 0, 1_000));
    let mut t = lossless(5);
    (0..3).for_each(|_| drop(duplicate(&mut t)));
    let stats = t.pcb.loss_stats();
    assert_eq!((stats.rto_count, stats.rexmt_rto, stats.rexmt_fast, stats.rexmt_bytes), (0, 0, 1, 1_000));
}

/// The end of the stream goes again with the last of its text, and only if there is one.
#[test]
fn without_records_a_repeated_segment_has_the_fin_that_it_had() {
    for ends in [false, true] {
        let mut t = lossless(4);
        if ends {
            t.pcb.shutdown_write();
        }
        t.write(MSS);
        let mut again = Vec::new();
        for acked in [0, 0, 0, 3, 1] {
            let _ = t.input(t.ack_of(acked * MSS, WND), &[]);
            again.extend(t.output().iter().map(|sent| {
                (
                    sent.header().seq.since(SeqNum::new(FIRST)) / MSS,
                    sent.header().flags.has(super::script::FIN),
                )
            }));
        }
        let has_fin = |place, fin| again.contains(&(place, fin));
        assert!(has_fin(0, false) && has_fin(3, false) && has_fin(4, ends), "{ends} {again:?}");
    }
}

/// The window is closed over data in flight: only its first segment goes again, and what follows goes on behind it.
#[test]
fn without_records_a_repetition_into_a_closed_window_is_behind_us() {
    let mut t = lossless(2);
    let _ = t.input(t.ack_of(0, 0), b"later than the window before");
    t.output();
    assert_eq!(t.wait(ms(250)).iter().map(|(_, sent)| sent.len).collect::<Vec<_>>(), [MSS]);
    assert_eq!(t.pcb.snd_nxt(), t.pcb.snd_una() + MSS);
    let _ = t.input(t.ack_of(0, WND), b"once more");
    assert!(t.output().iter().all(|sent| sent.len == 0), "the congestion window is a segment");
}
