//! Path MTU: reports of routers, black holes, probes; and reports of the unreachable.

use super::super::cc::Algorithm;
use super::super::events::Events;
use super::super::settings::{MtuProbing, Settings};
use super::super::state::State;
use super::super::unreachable::Unreachable;
use super::script::{ACK, ISS, MSS, RST, Script, WND, ms, plain, secs};
use super::world::{Link, World, pattern};
use crate::seq::SeqNum;

const FIRST: u32 = ISS + 1;

fn seq(offset: u32) -> SeqNum {
    SeqNum::new(FIRST + offset)
}

/// Both with and without SACK.
fn each(test: impl Fn(Settings)) {
    for sack in [true, false] {
        test(Settings { sack, ..plain() });
    }
}

#[test]
fn data_in_flight_is_sent_again_in_parts_with_a_window_of_as_many_segments() {
    each(|s| {
        let mut t = Script::established(&s);
        assert_eq!(t.write(30 * MSS), [MSS; 10]);
        let cwnd = t.pcb.cwnd();
        assert!(t.pcb.on_packet_too_big(seq(0), 640, t.now));
        assert_eq!((t.pcb.mss(), t.pcb.path_mtu(), t.pcb.cwnd()), (600, 640, cwnd / MSS * 600));
        let again = t.output();
        let lens: Vec<u32> = again.iter().map(|one| one.len).collect();
        assert_eq!((again[0].header().seq, &lens[..]), (seq(0), &[600, 400].repeat(5)[..]), "{s:?}");
        assert!(!t.pcb.on_packet_too_big(seq(MSS), 640, t.now), "the others of the same flight");
        assert_eq!(t.lens(), []);
        assert_eq!(t.pcb.loss_stats().rto_count, 0);
    });
}

#[test]
fn too_large_segments_are_sent_again_at_once_during_recovery_too() {
    let mut t = Script::established(&Settings { sack: true, ..plain() });
    t.write(30 * MSS);
    t.now = t.now + ms(10);
    t.report(0, &[(1, 4)]);
    assert_eq!(t.places(), [0, 10]);
    assert!(t.pcb.on_packet_too_big(seq(0), 640, t.now));
    let again = t.output();
    assert_eq!(again.first().map(|one| (one.header().seq, one.len)), Some((seq(0), 600)));
    let bytes: u32 = again.iter().map(|one| one.len).sum();
    assert!((4 * 600..=8 * 600).contains(&bytes), "as many segments as were in the network: {bytes}");
}

#[test]
fn a_report_is_believed_only_about_data_in_flight_and_down_to_the_minimum() {
    let mut t = Script::established(&plain());
    assert!(!t.pcb.on_packet_too_big(seq(0), 640, t.now), "nothing is out");
    assert_eq!(t.write(3 * MSS), [MSS; 3]);
    for wrong in [seq(0) - 1, seq(3 * MSS), seq(1 << 20)] {
        assert!(!t.pcb.on_packet_too_big(wrong, 640, t.now));
    }
    assert!(!t.pcb.on_packet_too_big(seq(0), 5000, t.now), "no larger than it was");
    assert_eq!(t.pcb.mss(), MSS as u16);
    assert!(t.pcb.on_packet_too_big(seq(0), 68, t.now));
    assert_eq!(t.pcb.path_mtu(), 552);
}

/// Routers have said it since RFC 1191.
#[test]
fn a_report_without_an_mtu_selects_the_least() {
    let mut t = Script::established(&Settings { mss: 1460, ..plain() });
    assert_eq!(t.write(1460), [1460]);
    assert!(t.pcb.on_packet_too_big(seq(0), 0, t.now));
    assert_eq!(t.pcb.path_mtu(), 552);
}

/// Whichever segment the report quotes, those that are no longer than the path takes are on their way.
#[test]
fn only_segments_that_are_too_long_are_sent_again() {
    // The last part goes with the short segment behind it.
    each(|s| {
        let mut t = Script::established(&Settings { nodelay: true, ..s });
        for len in [300, MSS, 500, 2 * MSS + 200] {
            t.write(len);
        }
        assert!(t.pcb.on_packet_too_big(seq(300 + MSS + 500), 640, t.now));
        let again: Vec<(SeqNum, u32)> = t.output().iter().map(|one| (one.header().seq, one.len)).collect();
        let long = [(300, 600), (900, 400), (1800, 600), (2400, 400), (2800, 600), (3400, 600)];
        assert_eq!(again, long.map(|(from, len)| (seq(from), len)));
    });
}

/// The first segment is short enough. Neither the report nor an acknowledgment without news touches the timer.
#[test]
fn a_tail_loss_probe_is_sent_while_what_was_too_long_is_repaired() {
    let mut t = Script::established(&Settings { sack: true, nodelay: true, ..plain() });
    t.write(100);
    t.now = t.now + ms(100);
    let _ = t.input(t.ack_of(100, WND), &[]);
    t.write(1);
    t.write(3 * MSS);
    assert!(t.pcb.on_packet_too_big(seq(101), 640, t.now));
    let _ = t.output();
    t.now = t.now + ms(10);
    let _ = t.input(t.ack_of(0, WND), &[]);
    // Two round trips of some 21 ms, and no timeout.
    let sent: Vec<_> = t.wait(ms(100)).iter().map(|(_, one)| (one.header().seq, one.len)).collect();
    assert_eq!((sent, t.pcb.loss_stats().rto_count), (vec![(seq(2701), 400)], 0));
}

#[test]
fn after_ten_minutes_the_largest_size_is_tried_again() {
    each(|s| {
        let mut t = Script::established(&s);
        let _ = t.write(2 * MSS);
        assert!(t.pcb.on_packet_too_big(seq(0), 640, t.now));
        let _ = t.output();
        let _ = t.input(t.seg(ACK), &[]);
        t.now = t.now + secs(590);
        assert_eq!(t.write(600), [600]);
        let _ = t.input(t.seg(ACK), &[]);
        t.now = t.now + secs(20);
        let _ = t.write(1);
        let _ = t.input(t.seg(ACK), &[]);
        assert_eq!((t.write(MSS), t.pcb.mss()), (vec![MSS], MSS as u16));
    });
}

/// A path that takes less than its ends believe, from `at` bytes delivered on.
fn shrinking(s: Settings, payload_max: usize, reports: bool, len: usize) -> World {
    let mut w = World::established(3, s.clone(), s, Link::CLEAN);
    w.ends[0].to_write = pattern(len, 5);
    w.run("the first part", |w| w.ends[1].received.len() > len / 4);
    (w.payload_max, w.reports_size) = (payload_max, reports);
    w.run("the rest", |w| w.ends[1].received.len() == len);
    assert!(w.ends[1].received == pattern(len, 5));
    w
}

#[test]
fn a_path_that_shrinks_holds_a_transfer_up_for_a_round_trip_if_routers_report() {
    for algorithm in [Algorithm::NewReno, Algorithm::Cubic] {
        for sack in [true, false] {
            let s = Settings { congestion_control: algorithm, sack, ..Settings::default() };
            let start = shrinking(s.clone(), usize::MAX, true, 1 << 20).now;
            let mut w = shrinking(s, 1000, true, 1 << 20);
            assert_eq!(w.ends[0].pcb().loss_stats().rto_count, 0);
            assert!(w.ends[0].pcb().mss() == 1000);
            assert!(w.now.since(start) < secs(1));
        }
    }
}

#[test]
fn a_black_hole_is_found_by_timeouts_and_the_largest_size_by_search() {
    let s = Settings { mss: 8960, ..Settings::default() };
    let mut w = shrinking(s, 1448, false, 4 << 20);
    let stats = w.ends[0].pcb().loss_stats();
    assert!(stats.rto_count >= 3, "{stats:?}");
    let mss = w.ends[0].pcb().mss();
    assert!((1448 - 16..=1448).contains(&mss), "{mss}");
}

#[test]
fn a_black_hole_is_not_found_with_probing_off() {
    let s = Settings { mtu_probing: MtuProbing::Off, ..Settings::default() };
    let mut w = World::established(3, s.clone(), s, Link::CLEAN);
    w.ends[0].to_write = pattern(1 << 20, 5);
    w.payload_max = 1000;
    w.run_for(secs(60));
    assert!(w.ends[1].received.is_empty() && w.ends[0].pcb().mss() == 1448);
}

#[test]
fn a_search_from_the_start_finds_the_size_without_a_congestion_response() {
    for payload_max in [usize::MAX, 8_000, 3_000, 1_448, 1_024] {
        let s = Settings { mtu_probing: MtuProbing::Always, mss: 8960, ..Settings::default() };
        let mut w = World::new(9, s.clone(), s, Link::CLEAN);
        w.payload_max = payload_max;
        w.ends[0].to_write = pattern(4 << 20, 5);
        w.run("transfer", |w| w.ends[1].received.len() == 4 << 20);
        let (pcb, most) = (w.ends[0].pcb(), payload_max.min(8948));
        let mss = usize::from(pcb.mss());
        assert!(mss <= most && mss + 16 >= most, "{mss} of {most}");
        let stats = pcb.loss_stats();
        assert_eq!((stats.recovery_count, stats.rto_count), (0, 0), "{stats:?}");
    }
}

#[test]
fn a_search_begins_at_the_base_with_and_without_options() {
    for (timestamps, sack, base, mss) in [
        (false, true, 1024, 1024),
        (true, true, 1024, 1024),
        (false, false, 1024, 1024),
        (true, true, 300, 552 - 40 - 12),
    ] {
        let mtu_probing = MtuProbing::Always;
        let s = Settings { mtu_probing, timestamps, sack, base_mss: base, mss: 2000, ..plain() };
        let t = Script::established(&s);
        assert_eq!(t.pcb.mss(), mss, "{timestamps} {sack} {base}");
    }
}

#[test]
fn a_probe_that_arrives_overrides_a_report_that_called_it_too_large() {
    let s = Settings { mtu_probing: MtuProbing::Always, sack: true, mss: 2000, ..plain() };
    let mut t = Script::established(&s);
    assert_eq!((t.pcb.mss(), t.write(10_000)[0]), (1024, 2000));
    assert!(!t.pcb.on_packet_too_big(seq(0), 1540, t.now), "the size in use is not too large");
    let _ = t.input(t.ack_of(2000, WND), &[]);
    assert_eq!(t.pcb.mss(), 2000);
    let _ = t.input(t.seg(ACK), &[]);
    assert!(t.write(20_000).iter().all(|len| *len == 2000));
}

#[test]
fn an_outage_is_not_treated_as_a_black_hole_for_long() {
    let s = Settings::default();
    let mut w = World::established(3, s.clone(), s, Link::CLEAN);
    w.ends[0].to_write = pattern(1 << 20, 5);
    w.run("the first part", |w| w.ends[1].received.len() > 1 << 18);
    w.payload_max = 0;
    w.run_for(secs(8));
    assert!(w.ends[0].pcb().mss() < 1100);
    w.payload_max = usize::MAX;
    w.run("the rest", |w| w.ends[1].received.len() == 1 << 20);
    assert_eq!(w.ends[0].pcb().mss(), 1448);
}

#[test]
fn a_report_ends_a_handshake_and_is_stored_by_a_connection() {
    let mut t = Script::connect(&plain());
    let _ = t.output();
    let why = Unreachable::Host;
    assert_eq!(t.pcb.on_unreachable(SeqNum::new(ISS + 1), why, true, t.now), Events::NONE, "a guess");
    let events = t.pcb.on_unreachable(SeqNum::new(ISS), why, true, t.now);
    assert!(events.has(Events::UNREACHABLE.with(Events::CLOSED)));
    assert_eq!((t.pcb.state(), t.pcb.unreachable()), (State::Closed, Some(why)));

    let mut t = Script::established(&plain());
    let _ = t.write(MSS);
    assert_eq!(t.pcb.on_unreachable(seq(0), Unreachable::Network, true, t.now), Events::NONE);
    assert_eq!((t.pcb.state(), t.pcb.unreachable()), (State::Established, Some(Unreachable::Network)));
    let _ = t.input(t.seg(ACK), &[]);
    assert_eq!(t.pcb.unreachable(), None, "it got through");
    let _ = t.write(MSS);
    assert_eq!(t.pcb.on_unreachable(seq(MSS), Unreachable::Host, true, t.now), Events::NONE);
    let _ = t.wait(secs(3600));
    assert!(t.events.has(Events::TIMED_OUT));
    assert_eq!(t.pcb.unreachable(), Some(Unreachable::Host), "the reason for the timeout");
}

/// RFC 6069 section 4.2.
#[test]
fn a_missing_route_takes_the_back_off_of_a_timeout_back() {
    each(|s| {
        let mut t = Script::established(&s);
        let _ = t.write(3 * MSS);
        let due_in = |t: &Script| t.pcb.next_deadline().unwrap().since(t.now);
        assert_eq!(t.pcb.on_no_route(seq(0), t.now), Events::NONE);
        assert_eq!(t.pcb.rtt.backoff(), 0, "nothing has expired");
        while t.pcb.rtt.backoff() < 3 {
            let wait = due_in(&t);
            let _ = t.wait(wait);
        }
        let wait = due_in(&t);
        let _ = t.wait(ms(10));
        assert_eq!(t.pcb.on_no_route(seq(MSS), t.now), Events::NONE, "not the first");
        assert_eq!((t.pcb.rtt.backoff(), due_in(&t)), (3, wait - ms(10)));
        assert_eq!(t.pcb.on_no_route(seq(0), t.now), Events::NONE);
        assert_eq!((t.pcb.rtt.backoff(), due_in(&t)), (2, wait / 2 - ms(10)), "from when it was sent");
        let _ = t.wait(wait / 4);
        assert_eq!(t.pcb.on_no_route(seq(0), t.now), Events::SILENT.with(Events::REHASH));
        let sent = t.output();
        assert_eq!(sent.len(), 1, "the shorter wait is over");
        assert_eq!((sent[0].header().seq, t.pcb.rtt.backoff()), (seq(0), 2), "which is another timeout");
    });
}

/// RFC 6069 section 5.1: the time counts, and not how often it was tried.
#[test]
fn a_missing_route_does_not_end_a_connection_sooner_nor_keep_it_for_longer() {
    let lives_for = |reports: bool| {
        let mut t = Script::established(&Settings { retries: 6, ..plain() });
        let _ = t.write(MSS);
        let begin = t.now;
        let mut sent = 0;
        while t.pcb.state() != State::Closed {
            if reports && t.pcb.on_no_route(seq(0), t.now).has(Events::TIMED_OUT) {
                break;
            }
            sent += t.output().len() + t.wait(ms(100)).len();
        }
        (t.now.since(begin), sent)
    };
    let ((without, few), (with, many)) = (lives_for(false), lives_for(true));
    let patience = ms(200 * 127);
    assert!((patience..=patience + secs(1)).contains(&with) && many > 2 * few, "{with:?} {many} {few}");
    assert!((patience..=2 * patience + secs(1)).contains(&without), "{without:?}");
}

#[test]
fn a_report_stays_until_the_peer_is_heard_or_it_was_taken() {
    let mut t = Script::established(&Settings { sack: true, ..plain() });
    let _ = t.write(3 * MSS);
    let report = |t: &mut Script| t.pcb.on_unreachable(seq(0), Unreachable::Prohibited, true, t.now);
    assert_eq!(report(&mut t), Events::NONE);
    assert_eq!(t.pcb.take_unreachable(), Some(Unreachable::Prohibited));
    assert_eq!(t.pcb.take_unreachable(), None, "it was taken");
    assert_eq!(report(&mut t), Events::NONE);
    let again = t.ack_of(0, WND);
    let _ = t.input(again, &[]);
    assert_eq!(t.pcb.take_unreachable(), None, "the peer was heard");
    assert_eq!(report(&mut t), Events::NONE);
    let reset = t.seg(RST);
    let _ = t.input(reset, &[]);
    assert_eq!(t.pcb.state(), State::Closed);
    assert_eq!(t.pcb.take_unreachable(), Some(Unreachable::Prohibited), "the reset is another error");
}

#[test]
fn a_connection_starts_with_the_known_path_mtu_and_searches_again_later() {
    let known = |path_mtu, mtu_probing| Settings { path_mtu, mtu_probing, ..plain() };
    assert_eq!(Script::established(&known(640, MtuProbing::Off)).pcb.path_mtu(), 640);
    assert_eq!(Script::established(&known(640, MtuProbing::Always)).pcb.path_mtu(), 640);
    assert_eq!(Script::established(&known(u16::MAX, MtuProbing::Off)).pcb.mss(), MSS as u16);
    assert_eq!(Script::established(&known(1, MtuProbing::Off)).pcb.path_mtu(), 552);
    let mut t = Script::established(&known(640, MtuProbing::Off));
    assert_eq!(t.write(600), [600]);
    let _ = t.input(t.seg(ACK), &[]);
    t.now = t.now + secs(601);
    let _ = t.write(1);
    let _ = t.input(t.seg(ACK), &[]);
    assert_eq!((t.write(MSS), t.pcb.mss()), (vec![MSS], MSS as u16));
}

/// A path that is too narrow for large packets bears small ones.
#[test]
fn timeouts_of_a_small_segment_are_no_black_hole_and_those_of_a_large_one_are() {
    for (bytes, is_taken_for_one) in [(400, false), (1_460, true)] {
        let mut t = Script::established(&Settings { mss: 1_460, ..plain() });
        assert_eq!(t.write(bytes), [bytes]);
        let _ = t.wait(secs(5));
        assert!(t.pcb.loss_stats().rto_count >= 3);
        assert_eq!(t.pcb.mss(), 1_460, "{bytes} bytes were out for less than three seconds");
        let _ = t.wait(secs(5));
        assert_eq!(t.pcb.mss() < 1_460, is_taken_for_one, "{bytes} bytes were out");
    }
}

#[test]
fn a_search_does_not_go_beyond_what_is_known_of_the_path() {
    let settings =
        Settings { mtu_probing: MtuProbing::Always, path_mtu: 1_240, mss: 1_460, sack: true, ..plain() };
    let mut t = Script::established(&settings);
    let mut longest = 0;
    for _ in 0..100 {
        t.snd += 20 * 1_460;
        longest = t.lens().into_iter().max().unwrap_or(0).max(longest);
        t.now = t.now + ms(10);
        let all = t.pcb.snd_max().since(t.pcb.snd_una());
        let _ = t.input(t.ack_of(all, WND), &[]);
    }
    assert!(longest <= 1_200 && t.pcb.mss() > 1_150, "{longest}, in the end {}", t.pcb.mss());
}

#[test]
fn a_black_hole_for_segments_no_longer_than_the_base_halves_them() {
    let settings = Settings { mss: 1_300, base_mss: 1_400, ..plain() };
    let mut t = Script::established(&settings);
    t.write(2 * 1_300);
    let _ = t.wait(secs(8));
    assert_eq!(t.pcb.mss(), 1_300, "a search has begun");
    let _ = t.wait(secs(10));
    assert_eq!(t.pcb.mss(), 650);
}

/// A probe and what has to follow it need room in the peer's window, in ours, and text.
#[test]
fn a_probe_leaves_where_there_is_room_for_what_follows_it() {
    let enough = 1_460 + 4 * 600;
    for (window, text, cwnd, leaves) in [
        (60_000, 30_000, 10, true),
        (enough, enough, 10, true),
        (enough - 1, 30_000, 10, false),
        (60_000, enough - 1, 10, false),
        (60_000, 30_000, 2, false),
    ] {
        let settings =
            Settings { mtu_probing: MtuProbing::Always, base_mss: 600, mss: 1_460, sack: true, ..plain() };
        let mut t = Script::established(&settings);
        t.pcb.snd_wnd = window;
        if cwnd < 10 {
            t.pcb.cc =
                super::super::cc::Cc::new(Algorithm::NewReno, 600, false).with_window(cwnd * 600, 1 << 30);
        }
        t.snd = text;
        let first = t.output().first().map(|segment| (segment.is_mtu_probe, segment.len));
        assert_eq!(first, Some((leaves, if leaves { 1_460 } else { 600 })), "{window} {text} {cwnd}");
    }
}

#[test]
fn no_probe_has_text_from_both_sides_of_the_end_of_a_record() {
    for (end, leaves) in [(1_459, false), (1_460, true), (30_000, true)] {
        let settings =
            Settings { mtu_probing: MtuProbing::Always, base_mss: 600, mss: 1_460, sack: true, ..plain() };
        let mut t = Script::established(&settings);
        t.pcb.snd_wnd = 60_000;
        t.pcb.end_record(end);
        t.snd = 30_000;
        assert_eq!(t.output()[0].is_mtu_probe, leaves, "{end}");
    }
}
