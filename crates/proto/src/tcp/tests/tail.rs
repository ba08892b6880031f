//! Tail loss probes and timeouts where little is in flight (RFC 8985 sections 6.3 and 7, RFC 9937).
//!
//! The script's round trip is 10 ms, measured in the handshake, and the first timeout 200 ms. Places are in segments from
//! the first byte.

use super::super::info::CaState;
use super::super::segment::Timestamps;
use super::super::settings::Settings;
use super::script::{ACK, MSS, Script, ms, plain};

fn established() -> Script {
    Script::established(&Settings { sack: true, ..plain() })
}

/// Three segments in flight, the last of which is repeated by a probe; the peer has all of them.
fn probed() -> Script {
    let mut t = established();
    t.write(3 * MSS);
    assert_eq!(t.places_within(ms(25)), [2]);
    t.report(3, &[]);
    t
}

/// The reduction that the probe's acknowledgment causes, once data behind it is acknowledged.
fn cwnd_afterwards(t: &mut Script) -> u32 {
    t.write(MSS);
    t.now = t.now + ms(10);
    t.report(4, &[]);
    t.pcb.cwnd()
}

#[test]
fn a_duplicate_report_with_nothing_in_flight_shows_that_the_probe_was_needless() {
    let mut t = probed();
    t.report(3, &[(2, 3)]);
    assert!(cwnd_afterwards(&mut t) >= 10 * MSS);
}

#[test]
fn a_bare_duplicate_acknowledgment_shows_that_the_probe_was_needless() {
    let mut t = probed();
    t.report(3, &[]);
    assert!(cwnd_afterwards(&mut t) >= 10 * MSS);
}

#[test]
fn a_window_update_is_no_duplicate_and_the_probe_has_repaired_a_loss() {
    let mut t = probed();
    t.write(MSS);
    let mut update = t.ack_of(0, 60_000);
    update.ack = t.place(3);
    let _ = t.input(update, &[]);
    assert!(cwnd_afterwards(&mut t) < 10 * MSS);
}

/// RFC 8985 section 7.3: no probe leaves before a round trip was measured since the last one, nor that of text which left beside it.
#[test]
fn an_acknowledgment_that_measures_nothing_ends_the_wait_for_the_next_probe() {
    let mut t = established();
    t.write(3 * MSS);
    assert_eq!(t.places_within(ms(25)), [2]);
    t.write(3 * MSS);
    t.now = t.now + ms(10);
    // The probe has repaired a loss.
    t.report(4, &[]);
    assert_eq!(t.pcb.loss_stats().probe_count, 1);
    let sent = t.wait(ms(300));
    assert_eq!((sent[0].0, t.pcb.loss_stats().probe_count), (t.pcb.rto() / 2 - ms(10), 1));
}

#[test]
fn early_probes_do_not_hide_a_longer_round_trip() {
    let mut t = established();
    for place in 0..10 {
        t.write(MSS);
        let _ = t.wait(ms(250));
        t.report(place + 1, &[]);
    }
    assert!(t.pcb.srtt().is_some_and(|srtt| srtt > ms(40)), "{:?}", t.pcb.srtt());
    let rto = t.pcb.rto();
    let rexmt_count = t.pcb.loss_stats().rexmt_probe + t.pcb.loss_stats().rexmt_rto;
    assert!(rto > ms(250) && rexmt_count < 6, "{rto:?} {rexmt_count}");
}

/// A segment that has arrived, which measures the round trip, and another; a timeout later than that two more.
fn timed_out() -> Script {
    let mut t = established();
    t.write(MSS);
    t.now = t.now + ms(10);
    t.report(1, &[]);
    t.write(MSS);
    assert_eq!(t.places_within(ms(395)), [1], "a probe, after which the timer starts anew");
    t.write(2 * MSS);
    assert_eq!(t.places_within(ms(6)), [1]);
    assert_eq!(t.pcb.loss_stats().rto_count, 1);
    t
}

#[test]
fn a_timeout_before_any_arrival_gives_up_everything() {
    let mut t = established();
    t.write(MSS);
    assert_eq!(t.places_within(ms(395)), [0]);
    t.write(2 * MSS);
    assert_eq!(t.places_within(ms(6)), [0]);
    assert_eq!((t.pcb.loss_stats().lost_bytes, t.pcb.cwnd()), (2 * MSS, MSS));
}

#[test]
fn segments_sent_just_before_a_timeout_are_not_retransmitted_with_those_that_timed_out() {
    let mut t = timed_out();
    assert_eq!(t.pcb.loss_stats().lost_bytes, 0);
    t.now = t.now + ms(1);
    t.report(2, &[]);
    assert_eq!(t.places(), []);
    t.now = t.now + ms(4);
    t.report(4, &[]);
    assert_eq!(t.pcb.loss_stats().rexmt_bytes, 2 * u64::from(MSS));
}

#[test]
fn segments_sent_just_before_a_timeout_are_originals_too_and_undo_it() {
    let mut t = timed_out();
    t.now = t.now + ms(5);
    t.report(1, &[(2, 4)]);
    assert_eq!(t.pcb.loss_stats().undo_count, 1);
    assert!(t.pcb.cwnd() >= 10 * MSS, "{}", t.pcb.cwnd());
}

#[test]
fn lost_segments_sent_just_before_a_timeout_are_found_by_later_arrivals() {
    let mut t = timed_out();
    t.now = t.now + ms(10);
    t.report(2, &[]);
    assert_eq!(t.places(), [2, 3]);
}

#[test]
fn acknowledgments_that_deliver_nothing_send_nothing_during_recovery() {
    let mut t = established();
    t.write(30 * MSS);
    t.now = t.now + ms(10);
    t.report(0, &[(9, 10)]);
    t.now = t.now + ms(5);
    assert!(t.pcb.on_timer(t.now).reply.is_none());
    let _ = t.output();
    assert_eq!(t.pcb.loss_stats().recovery_count, 1);
    for _ in 0..100 {
        let duplicate = t.seg(ACK);
        let _ = t.input(super::super::segment::Header { ack: t.place(0), ..duplicate }, &[]);
        assert_eq!(t.places(), []);
    }
}

#[test]
fn short_segments_take_the_room_of_whole_ones_and_go_again_joined() {
    let mut t = Script::established(&Settings { sack: true, nodelay: true, ..plain() });
    for _ in 0..12 {
        t.write(10);
    }
    assert_eq!(t.pcb.snd_max().since(t.pcb.snd_una()), 100, "ten of them are a window");
    let una = t.pcb.snd_una();
    let again = t.wait(ms(450)).pop().unwrap().1;
    // A probe has sent the rest.
    assert_eq!((again.header().seq, again.len), (una, 120), "the timeout sends what fits into one");
    assert_eq!(t.pcb.loss_stats().rto_count, 1);
    assert_eq!(t.write(10), [], "which takes the room of the window");
    t.now = t.now + ms(10);
    let _ = t.input(t.ack_of(120, super::script::WND), &[]);
    assert_eq!(t.pcb.cwnd(), 2 * MSS, "one segment was acknowledged");
    assert_eq!(t.lens(), [10]);
}

#[test]
fn a_probe_under_way_gives_the_timer_back_to_the_first_segment() {
    let mut t = established();
    t.write(2 * MSS);
    assert_eq!(t.places_within(ms(25)), [1]);
    // The first segment is due 200 ms after it was sent, and not after the probe.
    t.write(MSS);
    assert_eq!(t.places_within(ms(170)), []);
    assert_eq!(t.places_within(ms(7)), [0]);
    assert_eq!(t.pcb.loss_stats().rto_count, 1);
}

#[test]
fn a_duplicate_acknowledgment_behind_a_probe_of_the_first_segment_is_a_sign_of_disorder() {
    let mut t = established();
    t.write(MSS);
    assert_eq!(t.places_within(ms(210)), [0], "by a probe");
    assert_eq!(t.pcb.info(0, t.now).ca_state, CaState::Open);
    t.report(0, &[]);
    assert_eq!(t.pcb.info(0, t.now).ca_state, CaState::Disorder);
}

/// RTTVAR falls once a round trip, also while new text follows each acknowledgment.
#[test]
fn a_steady_round_trip_lowers_the_variance_while_the_window_stays_full() {
    let mut t = Script::established(&Settings { sack: true, rto_min: ms(1), ..plain() });
    let _ = t.write(5 * MSS);
    t.now = t.now + ms(30);
    let before = t.pcb.info(0, t.now).rttvar;
    for place in 1..200 {
        t.now = t.now + ms(6);
        t.report(place, &[]);
        let _ = t.write(MSS);
    }
    let after = t.pcb.info(0, t.now).rttvar;
    assert!(after < before && after <= ms(1), "{before:?}, then {after:?}");
}

#[test]
fn a_repeated_segments_round_trip_by_the_echo_is_the_least_if_it_is_shorter() {
    let mut t = Script::established(&Settings { sack: true, timestamps: true, ..plain() });
    t.write(10);
    let (_, again) = t.wait(ms(250)).pop().expect("a repetition");
    assert_eq!(t.pcb.loss_stats().min_rtt_us, 10_000);
    let val = again.header().options.timestamps.expect("a timestamp").val;
    let now = t.timestamp();
    t.now = t.now + ms(u64::from(val + 5 - now.min(val + 5)));
    t.peer_ts = Some(Timestamps { val: 101, ecr: now - 4 });
    let _ = t.input(t.ack_of(10, super::script::WND), &[]);
    assert_eq!(t.pcb.loss_stats().min_rtt_us, 4_000);
}

/// None at all would be the least for minutes, and what a path reorders by less than a tick lost at once.
#[test]
fn an_echo_in_the_same_tick_is_a_round_trip_of_a_tick() {
    let mut t = Script::established(&Settings { sack: true, timestamps: true, ..plain() });
    t.write(10);
    let _ = t.wait(ms(250)).pop().expect("a repetition");
    t.peer_ts = Some(Timestamps { val: 101, ecr: t.timestamp() });
    let _ = t.input(t.ack_of(10, super::script::WND), &[]);
    assert_eq!(t.pcb.loss_stats().min_rtt_us, 1_000);
}

/// RFC 8985 section 7.2: the peer may delay the acknowledgment of one segment, by as much as a timeout waits for.
#[test]
fn a_single_segment_is_probed_after_two_round_trips_and_a_delayed_acknowledgment() {
    let mut t = Script::established(&Settings { sack: true, rto_min: ms(5), ..plain() });
    t.write(MSS);
    let sent = t.wait(ms(28));
    assert_eq!(sent.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [ms(25)]);
}

#[test]
fn progress_behind_a_probe_is_no_sign_of_disorder() {
    let mut t = established();
    t.write(2 * MSS);
    assert_eq!(t.places_within(ms(25)), [1], "by a probe");
    t.report(1, &[]);
    assert_eq!(t.pcb.info(0, t.now).ca_state, CaState::Open);
}

#[test]
fn the_variance_falls_once_a_round_trip_and_not_with_each_acknowledgment() {
    let mut t = Script::established(&Settings { sack: true, rto_min: ms(1), ..plain() });
    let before = t.pcb.info(0, t.now).rttvar;
    let mut after_round = |first: u32| {
        let _ = t.write(10 * MSS);
        t.now = t.now + ms(10);
        (first + 1..=first + 10).for_each(|place| t.report(place, &[]));
        t.pcb.info(0, t.now).rttvar
    };
    let (first, second) = (after_round(0), after_round(10));
    // The handshake's deviation counts for the first.
    assert_eq!(first, before);
    assert!(second < first && second > first / 2, "{second:?} of {first:?}");
}
