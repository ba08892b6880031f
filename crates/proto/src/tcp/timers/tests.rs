//! What a timer decides, one decision at a time.

use super::super::settings::Settings;
use super::super::tests::script::{ACK, MSS, Script, WND, ms, plain, secs};
use super::*;

/// `tcp_skb_entail`: packets of so many segments as leave as one. What waited, the window, what there is then.
#[test]
fn a_write_after_a_pause_begins_packets() {
    for (tso_max, before, snd_wnd, snd_len, expected) in [
        (4_500, 0, 1_000, 20_000, 1),
        (4_500, 0, 999, 20_000, 5),
        (4_500, 100, 1_000, 20_000, 0),
        (4_500, 100, 999, 20_000, 4),
        (4_500, 100, 999, 3_000, 0),
        (4_500, 100, 999, 4_000, 0),
        (4_500, 100, 999, 4_001, 1),
        (4_500, 4_000, 999, 4_001, 1),
        (4_500, 100, 50, 100, 1),
        (999, 100, 999, 2_500, 2),
        (0, 2_000, 999, 2_001, 1),
    ] {
        let mut t = Script::established(&Settings { tso_max, ..plain() });
        (t.pcb.snd_len, t.pcb.snd_wnd) = (before, snd_wnd);
        assert_eq!(t.pcb.packets_begun(snd_len), expected, "{tso_max} {before} {snd_wnd} {snd_len}");
    }
    // Segments are of half of the largest window at most.
    let mut t = Script::established(&plain());
    (t.pcb.snd_len, t.pcb.snd_wnd, t.pcb.max_snd_wnd) = (1, 0, 1_200);
    assert_eq!(t.pcb.packets_begun(1_201), 2);
}

/// Karn's rule.
#[test]
fn what_is_sent_again_spoils_the_measurement_that_runs() {
    for (lossless, timing, expected) in [
        (false, Timing::Idle, Timing::Idle),
        (false, Timing::Running, Timing::Spoilt),
        (true, Timing::Idle, Timing::Spoilt),
        (true, Timing::Running, Timing::Spoilt),
    ] {
        let mut t = Script::established(&Settings { lossless, ..plain() });
        t.write(MSS);
        (t.pcb.timing, t.pcb.rtt_seq) = (timing, t.pcb.snd_una);
        t.pcb.spoil_timing();
        assert_eq!(t.pcb.timing, expected, "{lossless} {timing:?}");
        let holds_until = if expected == Timing::Idle { t.pcb.snd_una } else { t.pcb.snd_max };
        assert_eq!(t.pcb.rtt_seq, holds_until);
    }
}

#[test]
fn three_timeouts_in_a_row_are_told() {
    let mut t = Script::established(&plain());
    t.write(MSS);
    let mut told = Vec::new();
    for _ in 0..5 {
        t.events = Events::NONE;
        let before = t.pcb.rexmt_count;
        while t.pcb.rexmt_count == before {
            let at = t.pcb.next_deadline().unwrap();
            let _ = t.wait(at.since(t.now));
        }
        told.push(t.events.has(Events::SILENT));
    }
    assert_eq!(told, [false, false, true, true, true]);
}

/// Text is in flight, two timeouts of two have expired, and the peer shuts its window.
fn shut() -> Script {
    let mut t = Script::established(&Settings { retries: 2, rto_max: secs(1), ..plain() });
    t.write(MSS);
    while t.pcb.rexmt_count < 2 {
        let at = t.pcb.next_deadline().unwrap();
        let _ = t.wait(at.since(t.now));
    }
    let _ = t.input(t.ack_of(0, 0), b"so the window is a newer one");
    assert_eq!((t.pcb.snd_wnd, t.pcb.rexmt_count), (0, 2));
    t.output();
    t
}

#[test]
fn a_timeout_lets_packets_take_another_path_but_no_probe_does() {
    let expire = |t: &mut Script| {
        let before = t.pcb.rexmt_count;
        t.events = Events::NONE;
        let at = t.pcb.rexmt_at;
        let _ = t.wait(at.since(t.now));
        (t.pcb.rexmt_count > before, t.events.has(Events::REHASH))
    };
    let mut t = Script::connect(&plain());
    t.output();
    assert_eq!(expire(&mut t), (true, true), "a SYN");
    let mut t = Script::established(&plain());
    t.write(MSS);
    while t.pcb.rexmt_count == 0 {
        assert!(!t.events.has(Events::REHASH), "not by a tail loss probe");
        let at = t.pcb.next_deadline().unwrap();
        let _ = t.wait(at.since(t.now));
    }
    assert!(t.events.has(Events::REHASH));
    let mut t = shut();
    assert_eq!(expire(&mut t), (false, false), "over text that is out");
    let mut t = Script::established(&plain());
    let _ = t.input(t.ack_of(0, 0), b"a window that is shut");
    t.write(MSS);
    assert!(t.pcb.persist);
    assert_eq!(expire(&mut t), (true, false), "a window probe");
}

/// RFC 9293 section 3.8.6 (MAY-7, SHLD-17): it may stay shut for as long as the peer lives.
#[test]
fn a_window_shut_over_data_in_flight_is_probed_while_the_peer_answers() {
    let mut t = shut();
    for _ in 0..50 {
        let at = t.pcb.rexmt_at;
        let _ = t.wait(at.since(t.now));
        let _ = t.input(t.ack_of(0, 0), &[]);
    }
    assert_eq!((t.pcb.state, t.events.has(Events::TIMED_OUT)), (State::Established, false));
    // Of an open one the number of timeouts decides.
    let _ = t.input(t.ack_of(0, WND), &[]);
    let _ = t.wait(secs(10));
    assert!(t.events.has(Events::TIMED_OUT));
}

#[test]
fn a_peer_that_sends_text_instead_of_answers_to_window_probes_lives() {
    let mut t = Script::established(&Settings { retries: 2, rto_max: secs(1), ..plain() });
    let _ = t.input(t.ack_of(0, 0), b"a window that is shut");
    t.write(MSS);
    for _ in 0..10 {
        assert!(t.pcb.persist);
        let _ = t.wait(ms(1_100));
        let _ = t.input(t.ack_of(0, 0), b"text");
        assert_eq!((t.pcb.rexmt_count, t.pcb.state), (0, State::Established));
    }
    let _ = t.wait(secs(10));
    assert!(t.events.has(Events::TIMED_OUT));
}

#[test]
fn a_peer_that_keeps_its_window_shut_is_dead_after_twice_the_longest_timeout() {
    for (silence_us, is_over) in [(1_000_002, false), (2_000_000, false), (2_000_001, true)] {
        let mut t = shut();
        let now = after_us(t.pcb.last_rcv_at, silence_us);
        assert!(t.pcb.rexmt_at <= now);
        assert_eq!(t.pcb.on_timer(now).events.has(Events::TIMED_OUT), is_over, "{silence_us}");
    }
}

#[test]
fn a_peer_that_was_heard_is_not_probed_before_it_is_silent_again() {
    let keepalive = KeepaliveSettings { enabled: true, ..KeepaliveSettings::default() };
    let mut t = Script::established(&Settings { keepalive, ..plain() });
    assert!(t.wait(secs(7_000)).is_empty());
    let _ = t.input(t.seg(ACK), &[]);
    assert!(t.output().is_empty());
    let sent = t.wait(secs(7_300));
    assert_eq!(sent.iter().map(|(at, _)| at.as_secs()).collect::<Vec<_>>(), [7_200, 7_275]);
    let _ = t.wait(ms(1));
}
