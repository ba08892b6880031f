//! The information that a connection reports.

use core::time::Duration;

use super::super::cc::Algorithm;
use super::super::info::{CaState, TimerKind};
use super::super::meter::{Limit, Tally};
use super::super::sack::SackBlock;
use super::super::settings::{KeepaliveSettings, Settings};
use super::super::state::State;
use super::script::{ACK, IRS, ISS, MSS, SYN_ACK, Script, WND, ms, plain, secs};

fn script() -> Script {
    Script::established(&Settings { sack: true, ..plain() })
}

/// Counts one segment with `bytes` bytes on its way out.
fn out(t: &mut Script, bytes: u32, is_full: bool) {
    let tally = Tally { segments: 1, with_text: u32::from(bytes > 0), text_bytes: bytes };
    t.pcb.meter(Tally::default(), tally, t.now);
    if is_full {
        t.pcb.meter_refusal(t.now);
    }
    t.pcb.meter_time(!is_full, t.now);
}

#[test]
fn each_kind_of_limit_is_counted_apart() {
    let mut t = script();
    let _ = t.write(3 * MSS);
    assert_eq!(t.pcb.limit(false), Limit::Application);
    assert_eq!(t.pcb.limit(true), Limit::SendBuffer, "windows have room, the buffer has not");
    let _ = t.write(20 * MSS);
    assert_eq!(t.pcb.limit(true), Limit::CongestionWindow);
    let _ = t.input(t.ack_of(MSS, (5 * MSS) as u16), &[]);
    assert_eq!(t.pcb.limit(false), Limit::ReceiveWindow);

    let mut t = script();
    let _ = t.write(40 * MSS);
    t.now = t.now + ms(1);
    let mut header = t.ack_of(0, WND);
    let una = t.pcb.snd_una();
    header.options.sack = [SackBlock { start: una + MSS, end: una + 5 * MSS }].into_iter().collect();
    let _ = t.input(header, &[]);
    let _ = t.output();
    assert_eq!(t.pcb.limit(false), Limit::Path, "the window is limited by a loss");
    let info = t.pcb.info(0, t.now);
    assert_eq!((info.ca_state, info.retrans), (CaState::Recovery, MSS));
}

#[test]
fn the_timer_that_runs_is_the_one_that_would_send() {
    let mut t = script();
    assert_eq!(t.pcb.running_timer(t.now), None);
    let _ = t.write(MSS);
    let timer = t.pcb.running_timer(t.now).unwrap();
    assert_eq!((timer.kind, timer.expiries), (TimerKind::Rexmt, 0));
    assert!(timer.left > Duration::ZERO && timer.left <= t.pcb.rto(), "{timer:?}");
    let _ = t.input(t.ack_of(MSS, 0), &[]);
    assert_eq!(t.pcb.running_timer(t.now), None, "nothing is left to send");
    let _ = t.write(MSS);
    assert_eq!(t.pcb.running_timer(t.now).unwrap().kind, TimerKind::Persist);
    let _ = t.input(t.ack_of(0, 100), &[]);
    assert_eq!(t.lens(), [], "the window is too small to be worth a segment");
    assert_eq!(t.pcb.running_timer(t.now).unwrap().kind, TimerKind::Persist);
    let late = t.now + Duration::from_secs(3600);
    assert_eq!(t.pcb.running_timer(late).unwrap().left, Duration::ZERO);
}

#[test]
fn bytes_segments_and_times_are_counted_where_there_is_an_interface() {
    let mut t = script();
    assert!(t.pcb.info(0, t.now).carried.is_none() && !t.pcb.is_metered());
    let _ = t.write(2 * MSS);
    out(&mut t, 2 * MSS, false);
    assert!(t.pcb.is_metered());
    t.now = t.now + ms(30);
    let header = t.seg(ACK);
    let _ = t.input(header, &[1; 500]);
    let one = Tally { segments: 1, with_text: 1, text_bytes: 500 };
    t.pcb.meter(one, Tally::default(), t.now);
    t.pcb.meter_time(true, t.now);
    t.now = t.now + ms(100);
    out(&mut t, 0, false);
    let info = t.pcb.info(0, t.now);
    let carried = info.carried.unwrap();
    assert_eq!((carried.segs_out, carried.data_segs_out, carried.bytes_sent), (2, 1, u64::from(2 * MSS)));
    assert_eq!((carried.segs_in, carried.data_segs_in, carried.bytes_received), (1, 1, 500));
    assert_eq!((carried.bytes_acked, carried.busy_time), (u64::from(2 * MSS), ms(30)));
    assert_eq!(carried.delivery_rate, u64::from(2 * MSS) * 1000 / 30);
    assert_eq!((info.last_data_recv, info.last_data_sent), (Some(ms(100)), ms(130)));
    assert_eq!((info.advmss, info.pmtu, info.wscale), (MSS, MSS + 40, None));
}

#[test]
fn time_behind_a_shut_window_and_behind_a_full_buffer_is_counted_apart() {
    let mut t = script();
    let _ = t.write(3 * MSS);
    out(&mut t, 3 * MSS, true);
    t.now = t.now + ms(20);
    let _ = t.input(t.ack_of(3 * MSS, 0), &[]);
    let _ = t.write(MSS);
    out(&mut t, 0, false);
    let waited = ms(150);
    t.now = t.now + waited;
    out(&mut t, 0, false);
    let carried = t.pcb.info(0, t.now).carried.unwrap();
    assert_eq!((carried.sndbuf_limited, carried.rwnd_limited), (ms(20), waited));
    assert_eq!(carried.busy_time, Duration::from_millis(170));
}

/// Busy, held back by the window, by the buffer: milliseconds.
fn times(t: &Script) -> [u128; 3] {
    let carried = t.pcb.info(0, t.now).carried.unwrap();
    [carried.busy_time, carried.rwnd_limited, carried.sndbuf_limited].map(|time| time.as_millis())
}

#[test]
fn running_intervals_are_shown_and_a_shut_window_is_counted_although_nothing_moves() {
    let mut t = script();
    let _ = t.write(2 * MSS);
    out(&mut t, 2 * MSS, false);
    t.now = t.now + ms(100);
    assert_eq!(times(&t), [100, 0, 0], "not acknowledged yet");
    let _ = t.input(t.ack_of(2 * MSS, 0), &[]);
    let _ = t.write(MSS);
    t.pcb.meter_time(true, t.now);
    t.now = t.now + ms(100);
    assert_eq!(times(&t), [200, 100, 0]);
    t.now = t.now + ms(100);
    assert_eq!(times(&t), [300, 200, 0]);
    let _ = t.input(t.ack_of(0, WND), &[]);
    let _ = t.output();
    t.pcb.meter_time(true, t.now);
    t.now = t.now + ms(50);
    assert_eq!(times(&t), [350, 200, 0]);
    let _ = t.input(t.ack_of(MSS, WND), &[]);
    t.pcb.meter_time(true, t.now);
    t.now = t.now + ms(50);
    assert_eq!(times(&t), [350, 200, 0], "nothing to send");
}

#[test]
fn a_full_buffer_counts_only_if_a_writer_was_refused_and_the_windows_have_room() {
    let mut t = script();
    let _ = t.write(3 * MSS);
    out(&mut t, 3 * MSS, false);
    t.now = t.now + ms(10);
    assert_eq!(times(&t), [10, 0, 0]);
    t.pcb.meter_refusal(t.now);
    t.now = t.now + ms(10);
    assert_eq!(times(&t), [20, 0, 10]);
    // More than the congestion window takes: that is in the way.
    let _ = t.write(20 * MSS);
    t.pcb.meter_time(false, t.now);
    t.now = t.now + ms(10);
    assert_eq!(times(&t), [30, 0, 10]);
    let _ = t.pcb.abort();
    t.pcb.meter_time(false, t.now);
    t.now = t.now + ms(10);
    assert_eq!(times(&t), [30, 0, 10], "a connection that is over sends nothing");
}

#[test]
fn a_connect_that_counts_its_syn_has_received_nothing_whatever_number_the_peer_begins_with() {
    let mut t = Script::connect(&plain());
    t.output();
    out(&mut t, 0, false);
    let syn_ack = t.raw(IRS, ISS + 1, SYN_ACK);
    let _ = t.input(syn_ack, &[]);
    out(&mut t, 0, false);
    assert_eq!(t.pcb.info(0, t.now).carried.unwrap().bytes_received, 0);
}

#[test]
fn a_connect_has_last_received_when_the_syn_ack_came() {
    let mut t = Script::connect(&plain());
    t.output();
    out(&mut t, 0, false);
    t.now = t.now + ms(30);
    let syn_ack = t.raw(IRS, ISS + 1, SYN_ACK);
    let _ = t.input(syn_ack, &[]);
    out(&mut t, 0, false);
    t.now = t.now + ms(1000);
    assert_eq!(t.pcb.info(0, t.now).last_data_recv, Some(ms(1000)));
}

/// Linux counts windows in segments as they are sent: shorter ones where the peer's window is tiny.
#[test]
fn windows_are_told_in_bytes_of_segments_as_they_are_sent() {
    for (lossless, cwnd) in [(false, 10 * 600), (true, 10 * MSS)] {
        let mut t = Script::established(&Settings { sack: true, lossless, ..plain() });
        (t.pcb.snd_wnd, t.pcb.max_snd_wnd) = (0, 0);
        let _ = t.input(t.ack_of(0, 1_200), &[]);
        let info = t.pcb.info(0, t.now);
        assert_eq!((info.cwnd, info.snd_mss), (cwnd, 600), "lossless: {lossless}");
        assert!(info.ssthresh >= 1 << 30, "no threshold is known");
    }
}

#[test]
fn a_window_that_takes_half_of_the_largest_is_no_limit() {
    let mut t = script();
    (t.pcb.snd_wnd, t.pcb.max_snd_wnd) = (0, 0);
    let _ = t.input(t.ack_of(0, 600), &[]);
    assert_eq!((t.write(10), t.write(10)), (vec![10], vec![]), "a short segment waits for the one before");
    assert_eq!(t.pcb.limit(false), Limit::Application);
}

#[test]
fn the_path_is_no_limit_while_its_window_has_room() {
    let mut t = script();
    let _ = t.write(10 * MSS);
    t.now = t.now + ms(10);
    t.report(0, &[(1, 5)]);
    let _ = t.output();
    t.now = t.now + ms(10);
    t.report(10, &[]);
    assert!(t.pcb.cwnd() >= t.pcb.ssthresh());
    assert_eq!((t.write(10), t.write(10)), (vec![10], vec![]));
    assert_eq!(t.pcb.limit(false), Limit::Application, "a short segment waits for the one before");
}

#[test]
fn in_a_recovery_the_window_of_the_rate_reduction_is_told() {
    let mut t = script();
    let _ = t.write(30 * MSS);
    t.now = t.now + ms(10);
    t.report(0, &[(1, 4)]);
    // Six are left in the network, and two may leave for three that have arrived.
    assert_eq!((t.pcb.cwnd(), t.pcb.info(0, t.now).cwnd), (5 * MSS, 8 * MSS));
}

#[test]
fn a_segment_of_room_in_the_congestion_window_leaves_the_limit_to_the_peer() {
    for (room, waited) in [(1, 10), (0, 0)] {
        let mut t = script();
        t.pcb.snd_wnd = (10 - room) * MSS;
        assert_eq!(t.write(11 * MSS).len() as u32, 10 - room);
        out(&mut t, (10 - room) * MSS, false);
        t.now = t.now + ms(10);
        assert_eq!(times(&t), [10, waited, 0], "{room}");
    }
}

/// Without timestamps a window's worth measures the round trip of what comes in, as a passive reader has it.
#[test]
fn what_a_reader_takes_in_a_round_trip_is_told() {
    let mut t = script();
    assert_eq!((t.pcb.info(0, t.now).rcv_space, t.pcb.info(0, t.now).rcv_rtt), (0, None));
    let _ = t.pcb.wanted_rcv_hiwat(0, None, t.now);
    assert_eq!(t.pcb.info(0, t.now).rcv_space, 10 * MSS, "as much as begins it");
    for _ in 0..4 {
        t.now = t.now + ms(30);
        for _ in 0..50 {
            let _ = t.input(t.seg(ACK), &[7; MSS as usize]);
            t.output();
            let _ = t.pcb.wanted_rcv_hiwat(0, None, t.now);
        }
    }
    let info = t.pcb.info(0, t.now);
    assert_eq!((info.rcv_space, info.rcv_rtt), (50 * MSS, Some(ms(30))));
    // A longer one may be a pause of the sender.
    for (took, known) in [(12, 12), (50, 12)] {
        t.now = t.now + ms(took);
        for _ in 0..50 {
            let _ = t.input(t.seg(ACK), &[7; MSS as usize]);
            t.output();
            let _ = t.pcb.wanted_rcv_hiwat(0, None, t.now);
        }
        assert_eq!(t.pcb.info(0, t.now).rcv_rtt, Some(ms(known)), "{took}");
    }
}

#[test]
fn the_least_round_trip_is_told_once_one_was_measured() {
    let mut t = script();
    assert_eq!(t.pcb.info(0, t.now).min_rtt, None);
    let _ = t.write(MSS);
    t.now = t.now + ms(7);
    let _ = t.input(t.ack_of(MSS, WND), &[]);
    assert_eq!(t.pcb.info(0, t.now).min_rtt, Some(ms(7)));
}

/// A window that is closed over text in flight is not asked for: that is sent again.
#[test]
fn the_timer_of_a_closed_window_is_that_of_a_retransmission_while_text_is_in_flight() {
    let mut t = script();
    let _ = t.write(2 * MSS);
    let _ = t.input(t.ack_of(MSS, 0), &[]);
    assert_eq!(t.pcb.running_timer(t.now).map(|timer| timer.kind), Some(TimerKind::Rexmt));
}

#[test]
fn limits_of_the_receiver_are_set_apart() {
    let mut t = script();
    t.pcb.set_rcv_lowat(3_000);
    t.pcb.set_window_clamp(9_000);
    assert_eq!((t.pcb.rcv_limits().lowat, t.pcb.rcv_wnd_max()), (3_000, 9_000));
    t.pcb.set_rcv_lowat(5_000);
    assert_eq!((t.pcb.rcv_limits().lowat, t.pcb.rcv_wnd_max()), (5_000, 9_000));
}

#[test]
fn an_idle_connection_shows_the_timer_that_keeps_it_alive() {
    let keepalive = KeepaliveSettings { enabled: true, idle: secs(60), ..KeepaliveSettings::default() };
    let mut t = Script::established(&Settings { keepalive, ..plain() });
    let timer = t.pcb.running_timer(t.now).unwrap();
    assert_eq!((timer.kind, timer.left, timer.expiries), (TimerKind::Keepalive, secs(60), 0));
    // Setting the same again changes nothing.
    t.now = t.now + secs(20);
    t.pcb.set_keepalive(keepalive, false, t.now);
    assert_eq!(t.pcb.running_timer(t.now).unwrap().left, secs(40));
    t.pcb.set_keepalive(KeepaliveSettings { count: 5, ..keepalive }, false, t.now);
    assert_eq!(t.pcb.running_timer(t.now).unwrap().left, secs(40));
    // Of another idle time the silence so far counts.
    for (idle, left) in [(secs(30), secs(10)), (secs(10), secs(0)), (secs(50), secs(30))] {
        t.pcb.set_keepalive(KeepaliveSettings { idle, ..keepalive }, true, t.now);
        assert_eq!(t.pcb.running_timer(t.now).unwrap().left, left);
    }
    // Switched on, it does not ask at once.
    t.pcb.set_keepalive(KeepaliveSettings::default(), false, t.now);
    t.pcb.set_keepalive(KeepaliveSettings { idle: secs(50), ..keepalive }, true, t.now);
    assert_eq!(t.pcb.running_timer(t.now).unwrap().left, secs(50));
    // Until the idle time is set again.
    t.pcb.set_keepalive(KeepaliveSettings { idle: secs(50), ..keepalive }, true, t.now);
    assert_eq!(t.pcb.running_timer(t.now).unwrap().left, secs(30));
}

#[test]
fn the_timer_of_an_end_that_waits_is_told() {
    for state in [State::TimeWait, State::FinWait2] {
        let t = Script::in_state(state, &plain(), true);
        let timer = t.pcb.running_timer(t.now).unwrap();
        assert_eq!(
            (timer.kind, timer.left),
            (TimerKind::TimeWait, t.pcb.two_msl_at.since(t.now)),
            "{state:?}"
        );
    }
}

#[test]
fn time_wait_ends_when_it_would_have_and_one_that_has_not_begun_lasts_from_now() {
    let t = Script::in_state(State::TimeWait, &plain(), true);
    assert_eq!(t.pcb.time_wait_record(t.now + secs(1)).expires_at, t.pcb.two_msl_at);
    let t = Script::established(&plain());
    assert_eq!(t.pcb.time_wait_record(t.now).expires_at, t.now + t.pcb.tuning.time_wait());
}

/// In fast recovery that of proportional rate reduction, unless congestion control says it itself.
#[test]
fn the_window_that_is_told_is_the_one_that_counts() {
    for (congestion_control, is_own) in [(Algorithm::Bbr, true), (Algorithm::Cubic, false)] {
        let mut t = Script::established(&Settings { sack: true, congestion_control, ..plain() });
        t.write(40 * MSS);
        t.now = t.now + ms(40);
        t.report(0, &[(4, 10)]);
        let info = t.pcb.info(0, t.now);
        assert_eq!(info.ca_state, CaState::Recovery);
        assert_eq!(info.cwnd == t.pcb.cwnd(), is_own, "{} {}", info.cwnd, t.pcb.cwnd());
    }
}

#[test]
fn blocks_print_as_a_list() {
    let blocks: super::super::sack::SackBlocks =
        [SackBlock { start: crate::seq::SeqNum::new(17), end: crate::seq::SeqNum::new(23) }]
            .into_iter()
            .collect();
    let text = format!("{blocks:?}");
    assert!(text.starts_with('[') && text.contains("17") && text.contains("23"), "{text}");
}

#[test]
fn flags_print_as_letters() {
    let flags = super::super::segment::Flags::SYN.with(ACK);
    let text = format!("{flags:?}");
    assert!(text.contains('S') && text.contains('.') && !text.contains('F'), "{text}");
}

/// Without SACK the repair of a timeout lasts until more is acknowledged than was out.
#[test]
fn a_timeout_that_is_repaired_is_over_when_all_is_acknowledged_and_there_are_blocks() {
    for (lossless, sack, expected) in [
        (false, true, CaState::Open),
        (false, false, CaState::Loss),
        (true, true, CaState::Open),
        (true, false, CaState::Loss),
    ] {
        let mut t = Script::established(&Settings { lossless, sack, ..plain() });
        t.write(2 * MSS);
        while t.pcb.rexmt_count == 0 {
            let at = t.pcb.next_deadline().unwrap();
            let _ = t.wait(at.since(t.now));
        }
        assert_eq!(t.pcb.info(0, t.now).ca_state, CaState::Loss);
        let _ = t.input(t.ack_of(2 * MSS, WND), &[]);
        assert_eq!(t.pcb.info(0, t.now).ca_state, expected, "{lossless} {sack}");
    }
}

#[test]
fn where_nothing_is_recorded_the_window_of_congestion_control_is_told() {
    let mut t = Script::established(&Settings { lossless: true, ..plain() });
    t.write(40 * MSS);
    (0..3).for_each(|_| drop(t.input(t.ack_of(0, WND), &[])));
    t.output();
    let info = t.pcb.info(0, t.now);
    assert_eq!((info.ca_state, info.cwnd), (CaState::Recovery, t.pcb.cwnd()));
}

#[test]
fn a_pace_holds_back_and_a_further_write_need_not_be_told() {
    let mut t = Script::established(&Settings { sack: true, ..plain() });
    t.pcb.set_max_pacing_rate(Some(100_000));
    assert_eq!(t.write(5 * MSS).len(), 1);
    assert_eq!((t.pcb.limit(false), t.pcb.snd_due_at()), (Limit::Path, u32::MAX));
}

#[test]
fn delivered_bytes_are_told_where_rates_are_measured() {
    let mut t = Script::established(&Settings { sack: true, congestion_control: Algorithm::Bbr, ..plain() });
    t.write(3 * MSS);
    t.now = t.now + ms(10);
    let _ = t.input(t.ack_of(2 * MSS, WND), &[]);
    assert_eq!(t.pcb.loss_stats().delivered_bytes, u64::from(2 * MSS));
}

/// The window of the algorithm before is not to come back.
#[test]
fn a_repair_under_another_algorithm_is_not_undone() {
    for (changes, undone) in [(false, 1), (true, 0)] {
        let mut t = script();
        t.write(10 * MSS);
        t.now = t.now + ms(50);
        t.report(0, &[(1, 4)]);
        assert_eq!(t.places(), [0]);
        if changes {
            t.pcb.set_congestion_control(Algorithm::Cubic);
        }
        t.report(4, &[(0, 1)]);
        assert_eq!(t.pcb.loss_stats().undo_count, undone);
    }
}
