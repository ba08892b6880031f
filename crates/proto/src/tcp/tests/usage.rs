//! How the congestion window grows and shrinks, against what Linux does: by what was acknowledged, if it was used, and
//! once for each window at a loss.

use core::time::Duration;

use super::super::cc::Algorithm;
use super::super::sack::SackBlock;
use super::super::segment::{Header, Timestamps};
use super::super::settings::Settings;
use super::script::{ACK, MSS, Script, WND, ms, plain, secs};

fn begun(congestion_control: Algorithm) -> Script {
    Script::established(&Settings { sack: true, congestion_control, ..plain() })
}

/// The peer acknowledges so many segments more, after a round trip. How many leave.
fn acknowledge(t: &mut Script, segments: u32) -> usize {
    t.now = t.now + ms(10);
    let _ = t.input(t.ack_of(segments * MSS, WND), &[]);
    t.output().len()
}

const BOTH: [Algorithm; 2] = [Algorithm::NewReno, Algorithm::Cubic];

#[test]
fn an_acknowledgment_of_many_segments_lets_twice_as_many_go_in_slow_start() {
    for algorithm in BOTH {
        let mut t = begun(algorithm);
        assert_eq!(t.write(100 * MSS).len(), 10);
        assert_eq!(acknowledge(&mut t, 10), 20);
        assert_eq!(acknowledge(&mut t, 20), 40);
    }
}

#[test]
fn a_window_of_which_half_was_used_does_not_grow_and_more_makes_it_twice_as_large_as_was_used() {
    for algorithm in BOTH {
        let mut t = begun(algorithm);
        assert_eq!(t.write(5 * MSS).len(), 5);
        acknowledge(&mut t, 5);
        assert_eq!(t.pcb.cwnd(), 10 * MSS);
        assert_eq!(t.write(6 * MSS).len(), 6);
        acknowledge(&mut t, 6);
        assert_eq!(t.pcb.cwnd(), 16 * MSS);
    }
}

#[test]
fn a_lost_tail_of_one_segment_leaves_the_threshold_at_a_share_of_the_window() {
    for (algorithm, ssthresh) in [(Algorithm::NewReno, 5), (Algorithm::Cubic, 7)] {
        let mut t = begun(algorithm);
        t.write(MSS);
        let _ = t.wait(secs(1));
        assert_eq!((t.pcb.cwnd(), t.pcb.ssthresh()), (MSS, ssthresh * MSS));
        // Slow start leads back within three round trips.
        t.write(60 * MSS);
        let sent = [1, 1, 2, 4].map(|segments| acknowledge(&mut t, segments));
        assert_eq!(sent[0], 2, "{sent:?}");
        assert!(t.pcb.cwnd() >= ssthresh * MSS, "{sent:?} {}", t.pcb.cwnd());
    }
}

#[test]
fn a_second_timeout_for_the_same_window_reduces_nothing_and_one_after_progress_does() {
    let mut t = begun(Algorithm::Cubic);
    t.write(2 * MSS);
    let _ = t.wait(secs(2));
    assert!(t.pcb.loss_stats().rto_count > 1);
    assert_eq!(t.pcb.ssthresh(), 7 * MSS);
    acknowledge(&mut t, 1);
    let _ = t.wait(secs(2));
    assert!(t.pcb.ssthresh() < 3 * MSS, "of a window of two segments: {}", t.pcb.ssthresh());
}

#[test]
fn a_timeout_within_a_fast_recovery_keeps_its_threshold() {
    let mut t = begun(Algorithm::Cubic);
    t.write(30 * MSS);
    t.now = t.now + ms(10);
    t.report(0, &[(1, 5)]);
    assert_eq!(t.pcb.ssthresh(), 7 * MSS);
    let _ = t.wait(secs(3));
    assert!(t.pcb.loss_stats().rto_count > 0);
    assert_eq!(t.pcb.ssthresh(), 7 * MSS);
}

#[test]
fn a_block_of_the_last_byte_alone_is_answered_by_a_probe_of_the_tail() {
    let mut t = begun(Algorithm::Cubic);
    t.write(4 * MSS);
    t.now = t.now + ms(10);
    let mut header = t.ack_of(0, WND);
    header.options.sack = [SackBlock { start: t.place(4) - 1, end: t.place(4) }].into_iter().collect();
    let _ = t.input(header, &[]);
    assert_eq!(t.places(), []);
    assert_eq!(t.places_within(ms(30)), [3], "nothing was overtaken as far as is known");
}

#[test]
fn a_share_of_arrivals_is_rounded_up_to_segments_in_a_recovery() {
    let mut t = begun(Algorithm::Cubic);
    t.write(30 * MSS);
    t.now = t.now + ms(10);
    // Six are left in the network, of the seven that the window is to have.
    t.report(0, &[(1, 4)]);
    assert_eq!(t.places(), [0]);
    t.report(0, &[(1, 5)]);
    assert_eq!(t.places(), [10]);
    // With half of the window: two for three that have arrived.
    let mut t = begun(Algorithm::NewReno);
    t.write(30 * MSS);
    t.now = t.now + ms(10);
    t.report(0, &[(1, 4)]);
    assert_eq!(t.places(), [0, 10]);
}

#[test]
fn blocks_of_an_acknowledgment_from_before_make_room_in_the_window_of_a_recovery() {
    let mut t = begun(Algorithm::Cubic);
    t.write(40 * MSS);
    acknowledge(&mut t, 10);
    t.now = t.now + ms(10);
    t.report(10, &[(11, 14)]);
    let _ = t.places();
    // Two more have arrived, as a segment says that was overtaken.
    let mut header = t.ack_of(0, WND);
    header.ack = t.place(8);
    header.options.sack = [SackBlock { start: t.place(11), end: t.place(16) }].into_iter().collect();
    let _ = t.input(header, &[]);
    assert_eq!(t.places().len(), 2, "as many as have left the network");
}

#[test]
fn idleness_halves_the_window_for_each_timeout_unless_that_is_off() {
    for is_on in [true, false] {
        let s = Settings { sack: true, slow_start_after_idle: is_on, ..plain() };
        let mut t = Script::established(&s);
        t.write(70 * MSS);
        let _ = [10, 20, 40].map(|segments| acknowledge(&mut t, segments));
        assert_eq!((t.pcb.cwnd(), t.snd), (80 * MSS, 0));
        // The timeout is 200 ms.
        t.now = t.now + ms(500);
        t.write(1);
        assert_eq!(t.pcb.cwnd(), if is_on { 20 } else { 80 } * MSS);
    }
}

/// `tcp_slow_start_after_idle_check`: for longer than a timeout.
#[test]
fn a_pause_of_just_a_timeout_is_none() {
    for (more_us, is_one) in [(0, false), (1, true)] {
        let mut t = begun(Algorithm::NewReno);
        t.write(10 * MSS);
        t.now = t.now + ms(10);
        t.report(0, &[(1, 10)]);
        t.output();
        t.report(10, &[]);
        while t.pcb.cwnd() < 12 * MSS {
            t.write(20 * MSS);
            let flight = t.pcb.snd_max().since(t.pcb.snd_una()) / MSS;
            acknowledge(&mut t, flight);
        }
        let flight = t.pcb.snd_max().since(t.pcb.snd_una()) / MSS;
        t.snd = flight * MSS;
        acknowledge(&mut t, flight);
        assert_eq!((t.snd, t.pcb.ssthresh()), (0, 5 * MSS));
        let (last, rto) = (t.pcb.info(0, t.now).last_data_sent, t.pcb.rto());
        t.now = t.now + (rto - last) + Duration::from_micros(more_us);
        t.write(1);
        assert_eq!(t.pcb.ssthresh() > 5 * MSS, is_one, "{more_us}");
    }
}

/// `tcp_cwnd_restart`: once for each timeout that has passed, but for the last if it just has.
#[test]
fn a_pause_of_just_two_timeouts_halves_the_window_once() {
    for (more_us, halved) in [(0, 1), (1, 2)] {
        let mut t = begun(Algorithm::NewReno);
        t.write(100 * MSS);
        let sent: Vec<usize> = [10, 20, 40].map(|segments| acknowledge(&mut t, segments)).into();
        assert_eq!(sent, [20, 40, 30], "all is sent");
        acknowledge(&mut t, 30);
        let before = t.pcb.cwnd();
        assert!(before >= 70 * MSS);
        let rto_us = u64::try_from(t.pcb.rto().as_micros()).unwrap();
        // The last has left a round trip ago.
        t.now = t.now + (Duration::from_micros(2 * rto_us + more_us) - ms(10));
        t.write(MSS);
        assert_eq!(t.pcb.cwnd(), before >> halved);
    }
}

/// What is received in a pause does not make the window smaller, a write does, once.
#[test]
fn only_a_write_ends_a_pause() {
    let mut t = begun(Algorithm::NewReno);
    t.write(70 * MSS);
    for segments in [10, 20, 40] {
        acknowledge(&mut t, segments);
    }
    assert_eq!((t.snd, t.pcb.snd_una()), (0, t.pcb.snd_max()));
    let cwnd = t.pcb.cwnd();
    t.now = t.now + t.pcb.rto() + ms(10);
    for _ in 0..3 {
        let _ = t.input(t.seg(ACK), b"text");
        t.output();
        assert_eq!(t.pcb.cwnd(), cwnd);
    }
    t.write(1);
    assert_eq!(t.pcb.cwnd(), cwnd / 2);
}

/// Nagle's algorithm holds it, so that it is told only with the acknowledgment of what was in flight.
#[test]
fn a_write_while_something_was_in_flight_ends_no_pause() {
    for is_held in [true, false] {
        let mut t = Script::established(&Settings { timestamps: true, sack: true, ..plain() });
        t.peer_ts = None;
        let mss = u32::from(t.pcb.mss());
        t.write(70 * mss);
        for segments in [10, 20, 40] {
            let _ = t.wait(ms(10));
            let _ = t.input(t.ack_of(segments * mss, WND), &[]);
            t.output();
        }
        let cwnd = t.pcb.cwnd();
        t.write(2 * mss + 100);
        while t.pcb.loss_stats().rto_count == 0 {
            let _ = t.wait(ms(1));
        }
        t.now = t.now + ms(300);
        // Of these, the second was sent once, so the timeout was needless. The echo measures a short round trip.
        t.peer_ts = Some(Timestamps { val: 200, ecr: t.timestamp() - 1 });
        let _ = t.input(t.ack_of(2 * mss, WND), &[]);
        t.output();
        assert!(t.pcb.loss_stats().undo_count == 1 && t.pcb.rto() < ms(300));
        t.snd += u32::from(is_held);
        let _ = t.input(t.ack_of(100, WND), &[]);
        t.output();
        t.snd += u32::from(!is_held);
        t.output();
        assert_eq!(t.pcb.cwnd() >= cwnd, is_held);
    }
}

/// A timeout with three segments out, of which one was sent once. More text waits.
fn time_out_needlessly(t: &mut Script) {
    t.write(MSS + 100);
    while t.pcb.loss_stats().probe_count == 0 {
        let _ = t.wait(ms(1));
    }
    // The rest waits for the acknowledgment of the short segment (Nagle's algorithm).
    assert_eq!(t.write(MSS + 100).len(), 1);
    while t.pcb.loss_stats().rto_count == 0 {
        let _ = t.wait(ms(1));
    }
}

/// All three are acknowledged, the original of the last among them, so the timeout was needless.
fn end_timeout(t: &mut Script) {
    t.now = t.now + ms(10);
    let _ = t.input(t.ack_of(2 * MSS + 100, WND), &[]);
}

/// Linux looks for something to send behind the latest text that comes again (`tcp_data_snd_check`), and finds the window used up.
#[test]
fn behind_the_latest_text_that_comes_again_the_use_of_the_window_is_looked_at_and_behind_older_text_not() {
    for (offset, cwnd) in [(4, 13), (8, 10)] {
        let mut t = begun(Algorithm::NewReno);
        let _ = t.input(t.seg(ACK), b"old text");
        t.output();
        time_out_needlessly(&mut t);
        let seq = t.pcb.rcv_nxt() - offset;
        let _ = t.input(Header { seq, ..t.ack_of(0, WND) }, b"text");
        t.output();
        end_timeout(&mut t);
        assert_eq!(t.pcb.cwnd(), cwnd * MSS, "{offset}");
    }
}

/// Linux looks for something to send where a call pushes (`__tcp_push_pending_frames`): a write, a FIN, and what lets a held segment go.
#[test]
fn the_use_of_the_window_is_looked_at_by_calls_that_push_and_by_no_others() {
    type Call = fn(&mut Script);
    let calls: [(&str, Call, u32); 7] = [
        ("none", |_| {}, 10),
        ("write", |t| t.snd += 1, 13),
        ("shutdown", |t| t.pcb.shutdown_write(), 13),
        ("nodelay", |t| t.pcb.set_nodelay(true, t.snd), 13),
        ("Nagle", |t| t.pcb.set_nodelay(false, t.snd), 10),
        ("cork", |t| t.pcb.set_cork(true, t.snd), 10),
        ("uncork", |t| t.pcb.set_cork(false, t.snd), 13),
    ];
    for (name, call, cwnd) in calls {
        let mut t = begun(Algorithm::NewReno);
        time_out_needlessly(&mut t);
        call(&mut t);
        t.output();
        end_timeout(&mut t);
        assert_eq!(t.pcb.cwnd(), cwnd * MSS, "{name}");
    }
}
