//! Connections that have carried more than 2 GiB, or have paused: what is kept for long still counts as past.

use core::time::Duration;

use super::super::cc::Algorithm;
use super::super::ecn::EcnMode;
use super::super::sack::SackBlock;
use super::super::segment::{Flags, Header};
use super::super::settings::Settings;
use super::super::state::State;
use super::script::{ACK, MSS, Script, WND, ms, plain, secs};

/// The length of a segment of these tests: one fills a window.
const LONG: u32 = 25_000;
/// Segments of more than 2 GiB together, and of less than 4.
const MANY: u32 = (1 << 31) / LONG + 100;

fn long() -> Settings {
    Settings { mss: LONG as u16, sack: true, ..plain() }
}

/// So many segments are sent and acknowledged.
fn carry(t: &mut Script, segments: u32) {
    for _ in 0..segments {
        assert_eq!(t.write(LONG), [LONG]);
        acknowledge(t, ACK);
    }
}

/// A round trip later, everything is acknowledged.
fn acknowledge(t: &mut Script, flags: Flags) {
    t.now = t.now + ms(10);
    let header = Header { flags, ..t.ack_of(t.snd, WND) };
    let _ = t.input(header, &[]);
}

/// A segment is lost, and its timeout repairs that.
fn lose(t: &mut Script) {
    assert_eq!(t.write(LONG), [LONG]);
    let again = t.wait(secs(1));
    assert!(!again.is_empty());
    acknowledge(t, ACK);
}

#[test]
fn a_repair_is_over_however_long_the_one_before_is_past() {
    let mut t = Script::established(&long());
    lose(&mut t);
    carry(&mut t, MANY);
    lose(&mut t);
    carry(&mut t, 10);
    // Its repetition does not count as the first of an outage that begins much later.
    let _ = t.wait(secs(1_200));
    t.write(LONG);
    let _ = t.wait(secs(5));
    assert_eq!((t.timed_out_at, t.pcb.state()), (None, State::Established));
}

#[test]
fn a_mark_is_answered_however_long_the_last_loss_is_past() {
    let mut t = Script::established(&Settings { ecn: EcnMode::On, ..long() });
    lose(&mut t);
    carry(&mut t, MANY);
    assert_eq!(t.write(2 * LONG).len(), 2);
    t.now = t.now + ms(10);
    let echo = Header { flags: ACK.with(Flags::ECE), ..t.ack_of(LONG, WND) };
    let _ = t.input(echo, &[]);
    assert_eq!(t.pcb.loss_stats().mark_count, 1);
}

#[test]
fn records_end_where_they_do_however_long_the_one_before_is_past() {
    let mut t = Script::established(&long());
    t.snd = 100;
    t.pcb.end_record(100);
    assert_eq!(t.lens(), [100]);
    acknowledge(&mut t, ACK);
    carry(&mut t, MANY);
    t.snd = 200;
    t.pcb.end_record(100);
    assert_eq!(t.lens(), [100], "the other waits (RFC 896)");
}

#[test]
fn duplicates_are_reported_behind_more_than_2_gib() {
    for gone in [1 << 10, 1 << 30, (1 << 31) + 1_000, (1 << 31) + (1 << 30)] {
        let mut t = Script::established(&Settings { sack: true, ..plain() });
        let text = t.seg(ACK);
        let _ = t.input(text, &[7; 100]);
        t.output();
        t.pcb.irs = t.pcb.rcv_nxt() - gone;
        let _ = t.input(text, &[7; 100]);
        assert!(t.output().iter().any(|s| !s.header().options.sack.is_empty()), "{gone}");
    }
}

/// The only such window update is that of the handshake.
#[test]
fn a_window_that_opens_is_told_where_the_number_behind_the_syn_comes_again() {
    let mut t = Script::established(&plain());
    let space = t.space;
    for len in [20_000, 20_000, 10_000] {
        let _ = t.input(t.seg(ACK), &vec![7; len]);
        t.space -= len as u32;
        t.output();
    }
    assert_eq!(t.space, 0);
    t.pcb.irs = t.pcb.rcv_nxt() - 1;
    t.space = space;
    assert_eq!(t.output().len(), 1);
}

#[test]
fn what_the_pace_held_back_and_has_arrived_waits_no_longer() {
    let mut t = Script::established(&Settings { sack: true, ..plain() });
    t.pcb.set_max_pacing_rate(Some(100_000));
    t.snd = 2 * MSS;
    t.pcb.shutdown_write();
    t.output();
    let sent = t.wait(ms(12));
    assert_eq!(sent.len(), 1, "the second segment, with FIN");
    let mut sack = t.ack_of(0, WND);
    sack.options.sack = [SackBlock { start: t.place(1), end: t.pcb.snd_max() }].into_iter().collect();
    let _ = t.input(sack, &[]);
    assert!(t.output().is_empty(), "lost, and waits for the pace");
    let _ = t.input(t.seg(ACK), &[]);
    t.output();
    assert_eq!(t.pcb.state(), State::FinWait2);
    t.now = t.now + ms(50);
    let _ = t.pcb.on_timer(t.now);
    t.output();
    assert!(t.pcb.next_deadline().is_none_or(|at| at > t.now));
}

#[test]
fn a_pace_of_less_than_a_segment_a_second_is_kept() {
    let mut t = Script::established(&Settings { sack: true, ..plain() });
    t.pcb.set_max_pacing_rate(Some(100));
    assert_eq!(t.write(3 * MSS), [MSS]);
    t.now = t.now + ms(10);
    let _ = t.input(t.ack_of(MSS, WND), &[]);
    assert!(t.output().is_empty());
    assert!(t.wait(secs(9)).is_empty());
    assert_eq!(t.wait(Duration::from_millis(1_100)).len(), 1);
}

#[test]
fn what_bbr_has_delivered_does_not_fall_in_a_pause() {
    let mut t = Script::established(&Settings { congestion_control: Algorithm::Bbr, sack: true, ..plain() });
    for _ in 0..5 {
        t.write(10 * MSS);
        t.now = t.now + ms(10);
        let _ = t.input(t.ack_of(t.snd, WND), &[]);
    }
    let delivered = t.pcb.loss_stats().delivered_bytes;
    assert!(delivered > 0);
    let _ = t.wait(secs(5));
    t.write(MSS);
    t.now = t.now + ms(10);
    let _ = t.input(t.ack_of(MSS, WND), &[]);
    assert_eq!(t.pcb.loss_stats().delivered_bytes, delivered + u64::from(MSS));
}
