//! What a sender is busy with, and what limits it.

use core::time::Duration;

use super::super::tests::script::{MSS, Script, ms, plain};
use super::*;

#[test]
fn there_is_something_to_send_where_text_is_written_or_in_flight() {
    let mut t = Script::connect(&plain());
    t.output();
    assert_eq!(t.pcb.busy(), None, "a SYN alone");
    let mut t = Script::connect(&plain());
    t.snd = 10;
    t.output();
    assert!(t.pcb.busy().is_some(), "text waits for the handshake");
    let mut t = Script::established(&plain());
    assert_eq!(t.pcb.busy(), None);
    t.write(10);
    assert_eq!(t.pcb.busy(), Some(Busy::Sending));
    let _ = t.pcb.abort();
    assert_eq!(t.pcb.busy(), None);
}

#[test]
fn the_window_of_the_peer_holds_back_what_does_not_fit_into_it() {
    for (unsent, room, expected) in [
        (500, 500, Busy::Sending),
        (500, 499, Busy::ReceiveWindow),
        (5_000, 1_000, Busy::Sending),
        (5_000, 999, Busy::ReceiveWindow),
    ] {
        let mut t = Script::established(&plain());
        (t.pcb.snd_len, t.pcb.snd_wnd) = (unsent, room);
        assert_eq!(t.pcb.busy(), Some(expected), "{unsent} {room}");
    }
    for (room, expected) in [(999, Limit::ReceiveWindow), (1_000, Limit::Application)] {
        let mut t = Script::established(&plain());
        (t.pcb.snd_len, t.pcb.snd_wnd) = (5_000, room);
        assert_eq!(t.pcb.limit(false), expected, "{room}");
    }
    // Of a small window half is worth a segment.
    for (room, expected) in [(299, Limit::ReceiveWindow), (300, Limit::Application)] {
        let mut t = Script::established(&plain());
        (t.pcb.snd_len, t.pcb.snd_wnd, t.pcb.max_snd_wnd) = (5_000, room, 600);
        assert_eq!(t.pcb.limit(false), expected, "{room}");
    }
}

#[test]
fn a_writer_that_was_refused_is_held_back_until_there_is_space() {
    let mut t = Script::established(&plain());
    t.write(MSS);
    t.pcb.meter_mut(t.now);
    t.pcb.meter_time(false, t.now);
    assert_eq!(t.pcb.busy(), Some(Busy::Sending), "no writer has found none");
    t.pcb.meter_refusal(t.now);
    t.pcb.meter_time(false, t.now);
    assert_eq!(t.pcb.busy(), Some(Busy::SendBuffer));
    t.pcb.meter_time(true, t.now);
    assert_eq!(t.pcb.busy(), Some(Busy::Sending));
    t.pcb.meter_time(false, t.now);
    assert_eq!(t.pcb.busy(), Some(Busy::Sending), "there was some since");
}

#[test]
fn the_rate_is_that_of_the_last_round_trip() {
    let (una, nxt, now) = (SeqNum::new(u32::MAX - 500), SeqNum::new(9), Instant::from_micros(5_000));
    let mut meter = Meter::new(una, nxt, una - 1, nxt - 1, now);
    for (at_ms, acked, rate) in
        [(10, 1_000, 100_000), (15, 1_500, 100_000), (20, 3_000, 200_000), (40, 3_000, 200_000)]
    {
        meter.advance(una + acked, nxt, 10_000, now + ms(at_ms));
        assert_eq!((meter.bytes_acked, meter.delivery_rate), (u64::from(acked), rate), "{at_ms}");
    }
    // The time without news counts as well.
    meter.advance(una + 4_000, nxt, 10_000, now + ms(60));
    assert_eq!(meter.delivery_rate, 25_000);
    assert_eq!(meter.times(now + Duration::from_secs(9)).busy_us, 0);
}
