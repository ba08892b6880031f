//! The user timeout: when it ends a connection, and the effect of the option (RFC 5482).

use core::time::Duration;

use super::super::events::Events;
use super::super::segment::{Header, Options};
use super::super::settings::{KeepaliveSettings, Settings};
use super::super::state::State;
use super::super::user_timeout::{LIMIT_MAX, LIMIT_MIN, UserTimeout};
use super::script::{ACK, MSS, SYN, Script, WND, ms, plain, secs};

fn with(user_timeout: Duration) -> Settings {
    Settings { user_timeout, ..plain() }
}

/// When the connection was given up, counted from now; `None` if it was not within `patience`.
fn end_of(t: &mut Script, patience: Duration) -> Option<Duration> {
    let start = t.now;
    let _ = t.wait(patience);
    t.timed_out_at.map(|at| at.since(start))
}

#[test]
fn unacknowledged_data_ends_the_connection_at_the_user_timeout_and_not_by_count() {
    for (timeout, most) in [(ms(50), 15), (ms(700), 15), (secs(30), 2), (secs(1800), 3)] {
        let mut t = Script::established(&Settings { retries: most, ..with(timeout) });
        t.write(100);
        let first = Duration::from_micros(t.pcb.rtt.rto_us(u32::MAX));
        assert_eq!(end_of(&mut t, secs(5000)), Some(first + timeout), "from the first retransmission on");
    }
}

#[test]
fn a_user_timeout_of_days_survives_more_than_255_timeouts() {
    let day = secs(86_400);
    let mut t = Script::established(&Settings { rto_max: secs(60), ..with(day) });
    t.write(100);
    assert_eq!(end_of(&mut t, 2 * day), Some(day + ms(200)));
}

#[test]
fn the_end_of_a_repair_restarts_the_user_timeout() {
    let mut t = Script::established(&with(secs(10)));
    for _ in 0..3 {
        t.write(1000);
        let _ = t.wait(secs(9));
        let _ = t.input(t.ack_of(1000, WND), &[]);
        t.output();
    }
    assert_eq!((t.pcb.state(), t.snd), (State::Established, 0));
    assert_eq!(end_of(&mut t, secs(100)), None, "an idle connection has nothing to wait for");
}

#[test]
fn a_window_that_stays_shut_ends_the_connection_although_its_probes_are_answered() {
    let mut t = Script::established(&with(secs(20)));
    let _ = t.input(t.ack_of(0, 0), &[]);
    t.write(100);
    let mut passed = Duration::ZERO;
    while !t.events.has(Events::TIMED_OUT) && passed < secs(100) {
        passed += ms(100);
        let sent = t.wait(ms(100));
        if !sent.is_empty() && t.pcb.state() == State::Established {
            let _ = t.input(t.ack_of(0, 0), &[]);
        }
    }
    assert!((secs(20)..=secs(21)).contains(&passed), "{passed:?}");
}

#[test]
fn a_window_that_is_shut_over_text_ends_the_connection_although_the_peer_answers() {
    // The text goes again after 200 ms, and the time counts from there, unless it is over by then.
    for (timeout, end) in [(ms(50), ms(200)), (ms(700), ms(900)), (secs(20), ms(20_200))] {
        let mut t = Script::established(&with(timeout));
        t.write(100);
        let start = t.now;
        let _ = t.input(t.ack_of(0, 0), &[]);
        while !t.events.has(Events::TIMED_OUT) && t.now.since(start) < secs(100) {
            let _ = t.wait(ms(10));
            let _ = t.input(t.ack_of(0, 0), &[]);
            t.output();
        }
        assert_eq!(t.timed_out_at.map(|at| at.since(start)), Some(end), "{timeout:?}");
    }
}

/// As on Linux (`tcp_rtx_probe0_timed_out`).
#[test]
fn text_that_the_window_was_shut_over_waits_since_it_left_though_a_probe_has_left_since() {
    let mut t = Script::established(&Settings { sack: true, ..with(ms(210)) });
    let start = t.now;
    assert_eq!(t.write(20 * MSS).len(), 10);
    while t.wait(ms(1)).is_empty() {}
    let probed = t.now;
    let _ = t.input(t.ack_of(0, 0), &[]);
    let _ = t.wait(secs(10));
    let end = t.timed_out_at.unwrap();
    assert!(probed.since(start) >= ms(10) && end.since(probed) <= ms(201), "{probed:?} {end:?}");
}

/// As on Linux (`tcp_rtx_probe0_timed_out`): the text left again after 200, 600, 1400 and 2650 ms.
#[test]
fn a_silent_peer_that_has_shut_its_window_has_two_of_the_longest_timeouts_since_the_first_repetition() {
    let mut t = Script::established(&Settings { rto_max: ms(1250), ..plain() });
    t.write(100);
    let _ = t.input(t.ack_of(0, 0), &[]);
    assert_eq!(end_of(&mut t, secs(100)), Some(ms(3900)));
}

#[test]
fn a_timeout_that_is_set_during_a_repair_counts_from_when_that_began() {
    let mut t = Script::established(&Settings { sack: true, ..plain() });
    t.write(3000);
    let start = t.now;
    let first = loop {
        let _ = t.wait(ms(1));
        if t.pcb.loss_stats().rto_count == 1 {
            break t.now.since(start);
        }
    };
    let _ = t.wait(ms(300));
    t.pcb.set_user_timeout(secs(1));
    let _ = t.wait(secs(10));
    let end = t.timed_out_at.unwrap().since(start);
    assert!(end.abs_diff(first + secs(1)) <= ms(1), "{end:?} {first:?}");
}

/// As on Linux (`retransmits_timed_out`): recovery's repetition may have been lost, and the timer has not asked yet.
#[test]
fn a_repair_that_outlives_the_user_timeout_gets_a_timeout_and_what_that_sends() {
    let mut t = Script::established(&Settings { sack: true, ..with(ms(50)) });
    t.write(5 * MSS);
    t.now = t.now + ms(10);
    t.report(0, &[(1, 5)]);
    let start = t.now;
    assert!(t.places().contains(&0));
    let sent = t.wait(secs(5));
    let (at, last) = sent.last().unwrap();
    assert!(last.header().seq == t.pcb.snd_una() && *at > ms(150), "{at:?}");
    assert_eq!(t.timed_out_at.map(|end| end.since(start)), Some(*at));
}

#[test]
fn a_window_that_opens_ends_the_stall() {
    let mut t = Script::established(&with(secs(20)));
    let _ = t.input(t.ack_of(0, 0), &[]);
    t.write(100);
    for _ in 0..15 {
        let _ = t.wait(secs(1));
        let _ = t.input(t.ack_of(0, 0), &[]);
    }
    let _ = t.input(t.ack_of(0, WND), &[]);
    assert_eq!(t.lens(), [100]);
    let first = t.pcb.rto();
    assert_eq!(end_of(&mut t, secs(100)), Some(first + secs(20)));
}

#[test]
fn a_syn_is_abandoned_at_the_user_timeout_too() {
    let mut t = Script::connect(&with(secs(10)));
    t.output();
    let _ = t.wait(secs(9));
    assert_eq!(t.pcb.state(), State::SynSent);
    let _ = t.wait(secs(1));
    assert!(t.events.has(Events::TIMED_OUT));
}

#[test]
fn the_user_timeout_replaces_the_number_of_keepalive_probes() {
    let keepalive = KeepaliveSettings { enabled: true, idle: secs(10), interval: secs(5), count: 2 };
    for (timeout, end) in [(secs(40), secs(40)), (secs(5), secs(15)), (Duration::ZERO, secs(20))] {
        let mut t = Script::established(&Settings { keepalive, ..with(timeout) });
        assert_eq!(end_of(&mut t, secs(100)), Some(end), "{timeout:?}");
    }
}

#[test]
fn the_user_timeout_can_be_set_and_removed_while_data_waits() {
    let mut t = Script::established(&plain());
    t.write(100);
    let _ = t.wait(secs(5));
    t.pcb.set_user_timeout(secs(8));
    assert_eq!(t.pcb.user_timeout(), Some(secs(8)));
    t.pcb.set_user_timeout(Duration::ZERO);
    assert_eq!(end_of(&mut t, secs(60)), None);
    t.pcb.set_user_timeout(secs(30));
    assert!(end_of(&mut t, secs(200)).is_some());
}

fn announce(t: &mut Script, timeout: Duration) {
    let options = Options { user_timeout: Some(UserTimeout::new(timeout)), ..Options::default() };
    let header = Header { options, ..t.seg(ACK) };
    let _ = t.input(header, b"x");
}

#[test]
fn the_peers_value_is_used_within_limits_if_the_application_set_none() {
    let option = Settings { user_timeout_option: true, ..plain() };
    for (wish, granted) in [(secs(300), secs(300)), (secs(1), LIMIT_MIN), (secs(9_000_000), LIMIT_MAX)] {
        let mut t = Script::established(&option);
        announce(&mut t, wish);
        assert_eq!(t.pcb.user_timeout(), Some(granted));
        t.pcb.set_user_timeout(secs(7));
        announce(&mut t, wish);
        assert_eq!(t.pcb.user_timeout(), Some(secs(7)), "the application's value takes precedence");
    }
    let mut deaf = Script::established(&plain());
    announce(&mut deaf, secs(300));
    assert_eq!(deaf.pcb.user_timeout(), None);
}

#[test]
fn a_timeout_that_was_set_is_announced_once_beside_the_syn_and_once_after() {
    let option = Settings { user_timeout_option: true, ..with(secs(90)) };
    let announced =
        |s: &super::super::events::Transmit| s.header().options.user_timeout.map(UserTimeout::timeout);
    let mut t = Script::connect(&option);
    let syn = t.output();
    assert_eq!((syn[0].header().flags, announced(&syn[0])), (SYN, Some(secs(90))));
    let mut t = Script::established(&option);
    t.snd = 3000;
    let sent = t.output();
    assert!(sent.iter().all(|s| s.len < 1000 || announced(s).is_none()), "a full segment has no room for it");
    let _ = t.input(t.seg(ACK), &[0; 2000]);
    assert_eq!(t.output().iter().filter_map(announced).collect::<Vec<_>>(), [secs(90)]);
    let _ = t.input(t.seg(ACK), &[0; 2000]);
    assert_eq!(t.output().iter().filter_map(announced).count(), 0);
    t.pcb.set_user_timeout(secs(40));
    let _ = t.input(t.seg(ACK), &[0; 2000]);
    assert_eq!(t.output().iter().filter_map(announced).collect::<Vec<_>>(), [secs(40)]);
}

#[test]
fn the_option_is_in_seconds_and_from_nine_hours_on_in_minutes() {
    for (time, announced) in [(ms(1), secs(1)), (secs(1), secs(1)), (secs(32_767), secs(32_767))] {
        assert_eq!(UserTimeout::new(time).timeout(), announced);
    }
    assert_eq!(UserTimeout::new(secs(32_768)).timeout(), secs(547 * 60));
    assert_eq!(UserTimeout::new(secs(u64::MAX)).timeout(), secs(32_767 * 60));
    assert_eq!((UserTimeout::from_bits(0), UserTimeout::from_bits(0x8000)), (None, None));
    assert_eq!(UserTimeout::from_bits(0x8001).map(UserTimeout::timeout), Some(secs(60)));
}

/// The option is for the peer's side of RFC 5482's, and only where it is used.
#[test]
fn a_timeout_that_is_set_later_is_announced_where_the_option_is_used() {
    for option in [false, true] {
        let mut t = Script::established(&Settings { user_timeout_option: option, ..with(secs(90)) });
        let _ = t.input(t.seg(ACK), &[0; 2000]);
        t.output();
        t.pcb.set_user_timeout(secs(40));
        let _ = t.input(t.seg(ACK), &[0; 2000]);
        let announced = t.output()[0].header().options.user_timeout.is_some();
        assert_eq!(announced, option);
    }
}

/// Three blocks beside timestamps fill the header.
#[test]
fn the_announcement_waits_for_a_segment_with_room() {
    let settings = Settings { user_timeout_option: true, sack: true, timestamps: true, ..plain() };
    let mut t = Script::established(&settings);
    for offset in [100, 200, 300] {
        let _ = t.input(Header { seq: t.pcb.rcv_nxt() + offset, ..t.seg(ACK) }, b"hole");
        t.output();
    }
    t.pcb.set_user_timeout(secs(40));
    let _ = t.input(Header { seq: t.pcb.rcv_nxt() + 300, ..t.seg(ACK) }, b"hole!");
    let full = t.output()[0].header();
    assert_eq!((full.options.sack.len(), full.options.user_timeout), (3, None));
    let _ = t.input(t.seg(ACK), &[7; 400]);
    assert!(t.output()[0].header().options.user_timeout.is_some());
}

/// The byte behind what is acknowledged was out as long.
#[test]
fn progress_within_a_repair_does_not_prolong_the_user_timeout() {
    let mut t = Script::established(&with(secs(30)));
    t.write(2000);
    let first = Duration::from_micros(t.pcb.rtt.rto_us(u32::MAX));
    let _ = t.wait(secs(8));
    let _ = t.input(t.ack_of(1000, WND), &[]);
    t.output();
    assert_eq!(t.pcb.state(), State::Established);
    assert_eq!(end_of(&mut t, secs(100)), Some(first + secs(30) - secs(8)));
}
