//! Settings at their limits.

use core::time::Duration;

use super::super::cc::Algorithm;
use super::super::delack::QUICK_ACKS_MAX;
use super::super::rare::RcvLimits;
use super::super::settings::Settings;
use super::super::state::State;
use super::script::{ACK, MSS, Script, WND, ms, plain, secs};
use super::world::{Link, World, pattern};

#[test]
fn the_delay_of_an_acknowledgment_stays_below_half_a_second() {
    let mut t = Script::established(&Settings { delack: secs(9), ..plain() });
    // Those that a new connection sends at once.
    for _ in 0..QUICK_ACKS_MAX {
        let _ = t.input(t.seg(ACK), b"x");
        assert_eq!(t.lens(), [0]);
    }
    let _ = t.input(t.seg(ACK), b"x");
    let sent = t.wait(ms(500));
    assert_eq!(sent.len(), 1);
}

#[test]
fn absurd_settings_neither_panic_nor_stall() {
    let least = Settings {
        mss: 0,
        rcv_buf: 1,
        rcv_buf_max: u32::MAX,
        delack: Duration::ZERO,
        rto_min: Duration::ZERO,
        rto_initial: Duration::ZERO,
        rto_max: Duration::ZERO,
        ..Settings::default()
    };
    let most = Settings {
        mss: u16::MAX,
        rcv_buf: u32::MAX,
        rcv_buf_max: u32::MAX,
        delack: Duration::MAX,
        rto_min: Duration::MAX,
        rto_initial: Duration::MAX,
        rto_max: Duration::MAX,
        fin_wait_2: Duration::MAX,
        time_wait: Duration::MAX,
        tso_max: u32::MAX,
        ts_offset: u32::MAX,
        ..Settings::default()
    };
    for s in [least, most] {
        let mut t = Script::established(&s);
        t.write(100_000);
        let _ = t.input(t.seg(ACK), &[0; 100]);
        t.output();
        t.pcb.shutdown_write();
        t.output();
        t.now = t.now + secs(100_000);
        let _ = t.pcb.on_timer(t.now);
        t.output();
    }
}

#[test]
fn a_time_wait_of_zero_closes_at_once() {
    let s = Settings { time_wait: Duration::ZERO, ..Settings::default() };
    let mut w = World::established(1, s.clone(), s, Link::CLEAN);
    w.ends[0].to_write = pattern(10, 1);
    for end in &mut w.ends {
        end.close_after_write = true;
    }
    w.run("closing", |w| w.ends.iter().all(|e| e.state() == State::Closed));
}

#[test]
fn a_path_gets_the_algorithm_that_it_has_the_signals_for() {
    use Algorithm::{Bbr, Cubic, NewReno};
    for (lossless, sack, expected) in [
        (false, true, [NewReno, Cubic, Bbr]),
        (false, false, [NewReno, Cubic, Cubic]),
        (true, true, [NewReno; 3]),
        (true, false, [NewReno; 3]),
    ] {
        let t = Script::established(&Settings { lossless, sack, ..plain() });
        assert_eq!(
            [NewReno, Cubic, Bbr].map(|wanted| t.pcb.supported(wanted)),
            expected,
            "{lossless} {sack}"
        );
        assert_eq!(t.pcb.sack_permitted(), sack);
    }
}

#[test]
fn the_step_of_the_window_is_a_segment_or_the_unit_of_its_field() {
    let mut t = Script::established(&plain());
    assert_eq!(t.pcb.snd_wnd_max(), u32::from(WND));
    for (scale, unit) in [(0, MSS), (9, MSS), (10, 1_024), (14, 16_384)] {
        t.pcb.scale.rcv = scale;
        assert_eq!(t.pcb.window_unit(), unit);
    }
}

#[test]
fn a_syn_is_repeated_as_often_as_was_set() {
    for retries in [1, 3] {
        let mut t = Script::connect(&plain());
        t.output();
        t.pcb.set_syn_retries(retries);
        let repeated = t.wait(secs(1_000)).len();
        assert_eq!((repeated, t.pcb.state()), (usize::from(retries), State::Closed));
    }
}

#[test]
fn a_cork_and_a_writer_with_more_to_come_hold_short_segments() {
    let mut t = Script::established(&plain());
    assert!(!t.pcb.cork());
    t.pcb.set_cork(true, t.snd);
    assert!(t.pcb.cork());
    t.pcb.set_cork(false, t.snd);
    t.pcb.hold_small(100);
    assert!(!t.pcb.cork() && t.write(100).is_empty());
    assert_eq!(t.write(1), [101], "more has come");
}

#[test]
fn bounds_of_the_window_hold_until_they_are_taken_back() {
    let mut t = Script::established(&plain());
    assert!(t.pcb.rare.rcv_limits().is_none());
    t.pcb.set_window_clamp(1_000);
    t.pcb.set_rcv_lowat(7);
    assert_eq!((t.pcb.rcv_wnd_max(), t.pcb.rcv_limits().lowat), (1_000, 7));
    t.pcb.set_window_clamp(2_000);
    assert_eq!((t.pcb.rcv_wnd_max(), t.pcb.rcv_limits().lowat), (2_000, 7));
    t.pcb.set_rcv_limits(RcvLimits::NONE);
    assert!(t.pcb.rare.rcv_limits().is_none(), "nothing is kept");
    assert_eq!(t.pcb.rcv_wnd_max(), 65_535);
}

#[test]
fn a_reset_says_what_was_received() {
    let mut t = Script::established(&plain());
    let _ = t.input(t.seg(ACK), b"text");
    let reset = t.pcb.abort().unwrap();
    assert_eq!((reset.ack, reset.seq), (t.pcb.rcv_nxt(), t.pcb.snd_max()));
}
