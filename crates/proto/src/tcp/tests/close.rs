//! Closing in every order, half-closed connections, aborts, data that is not read any more.

use core::time::Duration;

use super::super::events::Events;
use super::super::segment::Flags;
use super::super::settings::{KeepaliveSettings, Settings};
use super::super::state::State;
use super::script::{ACK, FIN, ISS, RST, Script, WND, ms, plain, secs};
use super::world::{Link, World, pattern};
use crate::seq::SeqNum;

fn world(seed: u64) -> World {
    World::established(seed, Settings::default(), Settings::default(), Link::CLEAN)
}

#[test]
fn the_active_closer_enters_time_wait_and_the_passive_one_closes() {
    let mut w = world(1);
    w.ends[0].close_after_write = true;
    w.run("first FIN", |w| w.ends[1].state() == State::CloseWait && w.ends[0].state() == State::FinWait2);
    assert!(w.ends[1].eof && !w.ends[0].eof);
    w.ends[1].close_after_write = true;
    w.run("second FIN", |w| w.ends[1].state() == State::Closed);
    assert_eq!(w.ends[0].state(), State::TimeWait);
    assert!(w.ends[0].events.has(Events::ENTER_TIME_WAIT) && w.ends[1].events.has(Events::CLOSED));
    let entered = w.now;
    w.run("2MSL", |w| w.ends[0].state() == State::Closed);
    let lasted = w.now.since(entered);
    assert!(lasted > secs(59) && lasted <= secs(60), "{lasted:?}");
}

#[test]
fn simultaneous_close_leads_both_through_closing_to_time_wait() {
    let mut w = world(2);
    for end in &mut w.ends {
        end.close_after_write = true;
    }
    w.run("closing", |w| w.ends.iter().any(|e| e.state() == State::Closing));
    w.run("time wait", |w| w.ends.iter().all(|e| e.state() == State::TimeWait));
}

#[test]
fn a_half_closed_connection_still_carries_the_other_direction() {
    let mut w = world(3);
    w.ends[0].to_write = pattern(5_000, 1);
    w.ends[0].close_after_write = true;
    w.run("half close", |w| w.ends[0].state() == State::FinWait2);
    w.ends[1].to_write = pattern(300_000, 2);
    w.ends[1].close_after_write = true;
    w.run("other half", |w| w.ends[0].eof && w.ends[1].state() == State::Closed);
    assert!(w.ends[1].received == w.ends[0].to_write && w.ends[0].received == w.ends[1].to_write);
}

#[test]
fn a_fin_is_sent_with_the_last_data_and_counted_once() {
    let mut t = Script::established(&plain());
    t.snd = 1500;
    t.pcb.shutdown_write();
    t.pcb.shutdown_write();
    let sent = t.output();
    let last = sent.last().unwrap();
    assert_eq!((sent.len(), last.len), (2, 500));
    assert_eq!(last.header().flags, FIN.with(Flags::PSH));
    let input = t.input(t.seg(ACK), &[]);
    assert_eq!((input.acked, t.pcb.state()), (1500, State::FinWait2));
}

#[test]
fn a_lost_fin_is_repeated() {
    let mut t = Script::in_state(State::FinWait1, &plain(), false);
    let sent = t.wait(secs(1));
    assert!(!sent.is_empty());
    assert!(sent.iter().all(|(_, s)| s.header().flags.has(FIN) && s.header().seq == SeqNum::new(ISS + 1)));
}

#[test]
fn a_repeated_fin_of_the_peer_restarts_time_wait_and_is_acknowledged() {
    let mut t = Script::in_state(State::TimeWait, &plain(), true);
    assert!(t.wait(secs(50)).is_empty());
    let mut again = t.seg(FIN);
    again.seq = again.seq - 1;
    let _ = t.input(again, &[]);
    assert_eq!(t.lens(), [0]);
    let _ = t.wait(secs(59));
    assert_eq!(t.pcb.state(), State::TimeWait);
    let _ = t.wait(secs(1));
    assert_eq!((t.pcb.state(), t.events.has(Events::CLOSED)), (State::Closed, true));
}

fn ends_a_minute_after_close(t: &mut Script) {
    assert_eq!(t.pcb.close(0, t.now), None);
    let _ = t.wait(ms(59_999));
    assert_eq!(t.pcb.state(), State::FinWait2);
    let _ = t.wait(ms(1));
    assert_eq!(t.events.with(Events::CLOSED), t.events);
    assert_eq!(t.pcb.state(), State::Closed);
}

#[test]
fn fin_wait_2_ends_after_close_but_not_after_shutdown() {
    let mut t = Script::in_state(State::FinWait2, &plain(), false);
    let _ = t.wait(secs(10_000));
    assert_eq!(t.pcb.state(), State::FinWait2);
    ends_a_minute_after_close(&mut t);
    let mut t = Script::in_state(State::FinWait2, &plain(), true);
    let _ = t.wait(secs(61));
    assert_eq!(t.pcb.state(), State::Closed);
}

/// As on Linux, where a record without a socket waits.
#[test]
fn fin_wait_2_after_close_asks_nobody_whether_the_peer_lives() {
    let keepalive = KeepaliveSettings { enabled: true, idle: secs(1), interval: secs(1), count: 9 };
    for (closed, asks) in [(false, true), (true, false)] {
        let mut t = Script::in_state(State::FinWait1, &plain(), closed);
        t.pcb.set_keepalive(keepalive, true, t.now);
        let _ = t.input(t.ack_of(1, WND), &[]);
        assert_eq!((t.pcb.state(), t.wait(secs(5)).is_empty()), (State::FinWait2, !asks));
    }
}

/// As long as the application holds its handle it may wait for the peer's FIN, though it reads nothing (Linux's orphans are others).
#[test]
fn with_both_directions_shut_fin_wait_2_begins_to_end_with_the_last_handle() {
    for mut t in [State::FinWait1, State::FinWait2].map(|state| Script::in_state(state, &plain(), false)) {
        t.pcb.shutdown();
        let _ = t.input(t.ack_of(1, WND), &[]);
        let _ = t.wait(secs(10_000));
        assert_eq!(t.pcb.state(), State::FinWait2);
        ends_a_minute_after_close(&mut t);
    }
    let mut t = Script::in_state(State::FinWait2, &plain(), false);
    t.pcb.shutdown();
    let input = t.input(t.seg(ACK), b"new");
    assert_eq!(
        (input.reply.map(|reset| reset.flags), t.pcb.state()),
        (Some(RST), State::Closed),
        "nobody reads it"
    );
}

#[test]
fn fin_wait_2_is_as_long_as_was_set_and_lasts_some_retransmission_timeouts() {
    let mut t = Script::in_state(State::FinWait2, &plain(), false);
    t.pcb.set_fin_wait_2(secs(20));
    assert_eq!(t.pcb.close(0, t.now), None);
    let _ = t.wait(ms(19_999));
    assert_eq!(t.pcb.state(), State::FinWait2);
    let _ = t.wait(ms(1));
    assert_eq!(t.pcb.state(), State::Closed);
    let mut t = Script::in_state(State::FinWait1, &plain(), true);
    t.pcb.set_fin_wait_2(ms(1));
    let _ = t.input(t.ack_of(1, WND), &[]);
    let least = t.pcb.rto() * 7 / 2;
    let _ = t.wait(least - ms(1));
    assert_eq!(t.pcb.state(), State::FinWait2);
    let _ = t.wait(ms(2));
    assert_eq!(t.pcb.state(), State::Closed);
}

#[test]
fn without_fin_wait_2_the_peer_is_reset_once_our_fin_is_acknowledged() {
    let settings = Settings { fin_wait_2: Duration::ZERO, ..plain() };
    let mut t = Script::in_state(State::FinWait2, &settings, false);
    let reset = t.pcb.close(0, t.now).expect("a reset");
    assert_eq!((reset.flags.has(RST), t.pcb.state()), (true, State::Closed));
    let mut t = Script::in_state(State::FinWait1, &settings, true);
    let input = t.input(t.ack_of(1, WND), &[]);
    assert_eq!(input.reply.map(|reset| (reset.seq, reset.flags)), Some((t.pcb.snd_max(), RST)));
    assert!(input.events.has(Events::CLOSED));
    let mut t = Script::in_state(State::FinWait1, &settings, false);
    let input = t.input(t.ack_of(1, WND), &[]);
    assert_eq!((input.reply, t.pcb.state()), (None, State::FinWait2), "a reader waits for the rest");
}

#[test]
fn new_data_after_close_is_reset_and_old_data_is_not() {
    for state in [State::FinWait1, State::FinWait2] {
        let mut t = Script::in_state(state, &plain(), true);
        let mut old = t.seg(ACK);
        old.seq = old.seq - 3;
        assert_eq!(t.input(old, b"old").reply, None);
        let input = t.input(t.seg(ACK), b"new");
        let reply = input.reply.expect("a reset");
        assert_eq!((reply.flags, reply.seq), (RST, t.pcb.snd_max()));
        assert!(input.events.has(Events::DATA_AFTER_CLOSE.with(Events::CLOSED)) && input.deliver.is_empty());
        assert_eq!(t.pcb.state(), State::Closed);
    }
}

#[test]
fn data_after_shutdown_is_delivered() {
    for state in [State::FinWait1, State::FinWait2] {
        let mut t = Script::in_state(state, &plain(), false);
        assert_eq!(t.input(t.seg(ACK), b"text").deliver, b"text");
    }
}

#[test]
fn a_close_over_unread_data_resets() {
    let mut t = Script::established(&plain());
    let _ = t.input(t.seg(ACK), b"unread");
    let reset = t.pcb.close(6, t.now).expect("a reset");
    assert_eq!((reset.seq, reset.flags), (SeqNum::new(ISS + 1), RST.with(ACK)));
    assert_eq!((t.pcb.state(), t.pcb.next_deadline()), (State::Closed, None));
}

#[test]
fn abort_resets_where_the_peer_would_wait() {
    use State::{CloseWait, Closing, Established, FinWait1, FinWait2, LastAck, SynReceived};
    // The RFC asks for the first five. In the last two our FIN is not acknowledged here.
    let resetting = [SynReceived, Established, FinWait1, FinWait2, CloseWait, Closing, LastAck];
    for state in State::ALL {
        let mut t = Script::in_state(state, &plain(), false);
        let reset = t.pcb.abort();
        assert_eq!(reset.is_some(), resetting.contains(&state), "{state:?}");
        assert!(reset.is_none_or(|r| r.seq == t.pcb.snd_max() && r.flags == RST.with(ACK)));
        assert_eq!((t.pcb.state(), t.pcb.next_deadline()), (State::Closed, None));
        assert!(t.output().is_empty());
        assert!(t.input(t.seg(ACK), b"late").deliver.is_empty());
    }
}

#[test]
fn the_time_wait_record_holds_everything_that_its_answers_need() {
    let t = Script::in_state(State::TimeWait, &Settings { timestamps: true, ts_offset: 9, ..plain() }, true);
    let record = t.pcb.time_wait_record(t.now);
    assert_eq!((record.snd_nxt, record.rcv_nxt), (SeqNum::new(ISS + 2), t.pcb.rcv_nxt()));
    assert_eq!((record.expires_at, record.two_msl), (t.now + secs(60), secs(60)));
    let ts = record.timestamps.expect("timestamps");
    assert_eq!((ts.ts_recent, ts.ts_offset), (100, 9));
}

#[test]
fn a_fin_before_missing_text_waits_for_it() {
    let mut t = Script::established(&plain());
    let mut early = t.seg(FIN);
    early.seq += 4;
    let input = t.input(early, b"tail");
    assert!(input.events.is_empty() && input.deliver.is_empty());
    assert_eq!(t.lens(), [0]);
    let input = t.input(t.seg(ACK), b"head");
    assert_eq!((input.deliver.as_slice(), input.events), (&b"headtail"[..], Events::PEER_FIN));
    assert_eq!(t.pcb.state(), State::CloseWait);
}

#[test]
fn closing_under_loss_always_ends() {
    for seed in 0..100 {
        let link = Link { loss: 25, duplication: 10, jitter_us: 30_000, ..Link::CLEAN };
        let mut w = World::established(seed, Settings::default(), plain(), Link::CLEAN);
        w.link = link;
        w.ends[0].to_write = pattern(3_000, 1);
        for end in &mut w.ends {
            end.close_after_write = true;
        }
        w.run("closing", |w| w.ends.iter().all(|e| matches!(e.state(), State::TimeWait | State::Closed)));
        assert!(w.ends[1].received == w.ends[0].to_write, "seed {seed}");
    }
}

#[test]
fn a_fin_in_the_middle_of_received_text_is_not_believed() {
    let mut t = Script::established(&plain());
    let mut ahead = t.seg(ACK);
    ahead.seq += 2;
    let _ = t.input(ahead, b"cdef");
    let input = t.input(t.seg(FIN), b"ab");
    assert_eq!((input.deliver.as_slice(), input.events), (&b"abcdef"[..], Events::NONE));
    assert_eq!(t.input(t.seg(ACK), b"gh").deliver, b"gh");
    assert_eq!(t.input(t.seg(FIN), b"").events, Events::PEER_FIN);
}

#[test]
fn a_reset_carries_timestamps_once_they_were_agreed_on() {
    let s = Settings { timestamps: true, ..plain() };
    let mut t = Script::established(&s);
    t.now = t.now + ms(30);
    t.peer_ts = t.peer_ts.map(|ts| super::super::segment::Timestamps { val: ts.val + 30, ..ts });
    let _ = t.input(t.seg(ACK), &[]);
    let expected = Some((t.timestamp(), 130));
    let timestamps_of =
        |reset: super::super::segment::Header| reset.options.timestamps.map(|ts| (ts.val, ts.ecr));
    let mut closed = Script::established(&s);
    assert_eq!(closed.pcb.close(0, closed.now), None);
    let answer = closed.input(closed.seg(ACK), b"too late").reply.expect("a reset");
    assert!(answer.flags.has(RST) && timestamps_of(answer).is_some());
    assert_eq!(timestamps_of(t.pcb.abort().expect("a reset")), expected);
    // Offered is not agreed on.
    let mut opening = Script::connect(&s);
    let _ = opening.output();
    let strange = opening.raw(5000, ISS + 9, ACK);
    let reset = opening.input(strange, &[]).reply.expect("a reset");
    assert_eq!(timestamps_of(reset), None);
    assert_eq!(Script::established(&plain()).pcb.abort().and_then(timestamps_of), None);
}

#[test]
fn a_peer_that_keeps_its_window_shut_does_not_keep_a_closed_connection_for_ever() {
    // It answers every probe. Where the application is still there, that may go on; where it is not, it ends.
    for closed in [false, true] {
        let mut t = Script::established(&plain());
        let _ = t.input(t.ack_of(0, 0), &[]);
        t.write(100);
        if closed {
            assert_eq!(t.pcb.close(0, t.now), None);
        }
        let mut passed = secs(0);
        while !t.events.has(Events::TIMED_OUT) && passed < secs(3600) {
            passed += secs(1);
            let sent = t.wait(secs(1));
            if !sent.is_empty() && t.pcb.state() != State::Closed {
                let _ = t.input(t.ack_of(0, 0), &[]);
            }
        }
        assert_eq!(t.events.has(Events::TIMED_OUT), closed);
        if closed {
            assert!((secs(120)..secs(400)).contains(&passed), "{passed:?}");
        }
    }
}

/// RFC 9293 section 3.10.7.4, seventh step: nothing can follow the peer's FIN.
#[test]
fn text_behind_the_peers_fin_is_not_taken_and_no_window_for_it_is_told() {
    for state in [State::CloseWait, State::Closing, State::LastAck] {
        let mut t = Script::in_state(state, &plain(), false);
        let nxt = t.pcb.rcv_nxt();
        let taken = t.input(t.ack_of(0, WND), b"text");
        assert!(taken.deliver.is_empty() && t.pcb.rcv_nxt() == nxt, "{state:?}");
        let _ = t.output();
        t.space += 40_000;
        assert_eq!(t.lens(), [], "{state:?}");
    }
}
