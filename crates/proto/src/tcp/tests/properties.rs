//! Properties over random states and arbitrary segments.

use proptest::prelude::*;

use super::super::loss::Loss;
use super::super::sack::{SackBlock, SackBlocks};
use super::super::segment::{Flags, Header, Options, Timestamps};
use super::super::settings::Settings;
use super::super::state::State;
use super::script::{Script, plain};
use crate::seq::SeqNum;
use core::time::Duration;

/// One thing that may happen to a pcb.
#[derive(Clone, Debug)]
enum Op {
    /// Numbers are relative to RCV.NXT and SND.UNA, mostly near them.
    Segment {
        seq: i32,
        ack: i32,
        flags: u8,
        window: u16,
        ts: Option<(i32, u32)>,
        len: u16,
        /// Start and length, from SND.UNA.
        sack: Vec<(i32, i32)>,
    },
    /// As from a correct peer: in order, acknowledging `ack` percent of the data in flight.
    Polite {
        ack: u8,
        window: u16,
        len: u16,
        sack: Vec<(i32, i32)>,
    },
    Write(u32),
    Read(u32),
    Wait(u32),
    Poll,
    Shutdown,
    Close,
    Nodelay(bool),
}

fn near() -> impl Strategy<Value = i32> {
    prop_oneof![5 => -5i32..5, 3 => -3000i32..3000, 2 => -70_000i32..70_000, 1 => any::<i32>()]
}

fn op() -> impl Strategy<Value = Op> {
    let ts = prop::option::weighted(0.8, (near(), any::<u32>()));
    let window = prop_oneof![Just(0u16), 1u16..2000, any::<u16>()];
    let block = || (near(), prop_oneof![4 => 1i32..3000, 1 => near()]);
    let held = || (0i32..12_000, 1i32..3000);
    let sack = prop_oneof![2 => Just(Vec::new()), 1 => prop::collection::vec(block(), 1..5)];
    let good_sack = prop_oneof![1 => Just(Vec::new()), 1 => prop::collection::vec(held(), 1..4)];
    let segment = (near(), near(), any::<u8>(), window.clone(), ts, 0u16..3000, sack);
    prop_oneof![
        6 => segment.prop_map(|(seq, ack, flags, window, ts, len, sack)| Op::Segment {
            seq, ack, flags, window, ts, len, sack
        }),
        6 => (0u8..=100, window, 0u16..3000, good_sack)
            .prop_map(|(ack, window, len, sack)| Op::Polite { ack, window, len, sack }),
        4 => (1u32..5000).prop_map(Op::Write),
        2 => (1u32..60_000).prop_map(Op::Read),
        3 => (1u32..500_000).prop_map(Op::Wait),
        4 => Just(Op::Poll),
        1 => prop_oneof![Just(Op::Shutdown), Just(Op::Close)],
        1 => any::<bool>().prop_map(Op::Nodelay),
    ]
}

fn blocks(t: &Script, sack: &[(i32, i32)]) -> SackBlocks {
    let place = |from: SeqNum, by: i32| SeqNum::new(from.raw().wrapping_add_signed(by));
    let block = |&(start, len): &(i32, i32)| {
        let start = place(t.pcb.snd_una(), start);
        SackBlock { start, end: place(start, len) }
    };
    sack.iter().map(block).collect()
}

/// A byte that depends on its place in the peer's stream only.
fn byte_at(seq: SeqNum) -> u8 {
    (seq.raw().wrapping_mul(2_654_435_761) >> 24) as u8
}

fn text(seq: SeqNum, len: u16) -> Vec<u8> {
    (0..u32::from(len)).map(|i| byte_at(seq + i)).collect()
}

fn header(t: &Script, op: &Op) -> Option<(Header, u16)> {
    let (rcv_nxt, una) = (t.pcb.rcv_nxt(), t.pcb.snd_una());
    match *op {
        Op::Segment { seq, ack, flags, window, ts, len, ref sack } => {
            let ts = ts.map(|(val, ecr)| Timestamps { val: 100u32.wrapping_add_signed(val), ecr });
            let header = Header {
                seq: SeqNum::new(rcv_nxt.raw().wrapping_add_signed(seq)),
                ack: SeqNum::new(una.raw().wrapping_add_signed(ack)),
                flags: Flags::from_bits(flags),
                window,
                urgent: 0,
                gso_size: 0,
                options: Options { timestamps: ts, sack: blocks(t, sack), ..Options::default() },
            };
            Some((header, len))
        }
        Op::Polite { ack, window, len, ref sack } => {
            let out = u64::from(t.pcb.snd_max().since(una));
            let ack = una + u32::try_from(out * u64::from(ack) / 100).unwrap();
            let mut header = Header { ack, window, ..t.seg(Flags::ACK) };
            header.options.sack = blocks(t, sack);
            Some((header, len))
        }
        Op::Write(_) | Op::Read(_) | Op::Wait(_) | Op::Poll | Op::Shutdown | Op::Close | Op::Nodelay(_) => {
            None
        }
    }
}

/// Feeds a segment; checks that only the right bytes are delivered, inside the window.
fn feed(t: &mut Script, header: Header, len: u16) {
    let (nxt, adv) = (t.pcb.rcv_nxt(), t.pcb.rcv_adv());
    let synchronised = t.pcb.state() != State::SynSent;
    let input = t.input(header, &text(header.seq + u32::from(header.flags.has(Flags::SYN)), len));
    let got = u32::try_from(input.deliver.len()).unwrap();
    t.space = t.space.saturating_sub(got);
    if synchronised {
        assert!(
            t.pcb.rcv_nxt().at_or_after(nxt) && t.pcb.rcv_nxt().at_or_before(adv),
            "rcv_nxt left the window"
        );
        assert!(input.deliver.iter().enumerate().all(|(i, b)| *b == byte_at(nxt + i as u32)), "wrong bytes");
        let fin = u32::from(input.events.has(super::super::events::Events::PEER_FIN));
        assert!(t.pcb.rcv_nxt() == nxt + got + fin, "bytes skipped");
    }
}

fn apply(t: &mut Script, op: &Op, rcv_buf: u32) {
    if let Some((header, len)) = header(t, op) {
        feed(t, header, len);
    }
    match *op {
        Op::Segment { .. } | Op::Polite { .. } => {}
        Op::Write(bytes) if t.pcb.state().can_send() => t.snd += bytes,
        Op::Write(_) => {}
        Op::Read(bytes) => t.space = (t.space + bytes).min(rcv_buf),
        Op::Wait(us) => drop(t.wait(Duration::from_micros(u64::from(us)))),
        Op::Poll => drop(t.output()),
        Op::Shutdown => t.pcb.shutdown_write(),
        Op::Close => drop(t.pcb.close(0, t.now)),
        Op::Nodelay(on) => t.pcb.set_nodelay(on, t.snd),
    }
    check(t);
}

fn check(t: &Script) {
    let pcb = &t.pcb;
    assert!(pcb.snd_una().at_or_before(pcb.snd_nxt()) && pcb.snd_nxt().at_or_before(pcb.snd_max()));
    assert!(pcb.state() == State::SynSent || pcb.rcv_nxt().at_or_before(pcb.rcv_adv()));
    assert!(pcb.cwnd() >= u32::from(pcb.mss()));
    assert!(pcb.state() != State::Closed || pcb.next_deadline().is_none());
    assert!(!pcb.persist || pcb.snd_una() == pcb.snd_max(), "a window is probed with data in flight");
    let (stats, flight) = (pcb.loss_stats(), pcb.snd_max().since(pcb.snd_una()));
    assert!(stats.sacked_bytes + stats.lost_bytes <= flight, "more was consumed than was there");
}

/// Checks that a stream cannot stall: any unacknowledged or held-back data has a timer.
fn check_alive(t: &Script) {
    let waiting = t.snd > 0 || t.pcb.snd_una() != t.pcb.snd_max();
    assert!(
        !(t.pcb.state().transmits() && waiting) || t.pcb.next_deadline().is_some(),
        "no timer will wake it"
    );
}

/// The promise of `snd_due_at`, for `more` bytes appended to a pcb whose output has run dry.
fn check_due(t: &mut Script, more: u32) {
    t.output();
    check_alive(t);
    if !t.pcb.state().can_send() {
        assert_eq!(t.pcb.snd_due_at(), u32::MAX);
        return;
    }
    let (before, max) = (t.pcb.next_deadline(), t.pcb.snd_max());
    let window = t.pcb.recovery.window(&t.pcb.cc, u32::from(t.pcb.mss())).min(t.pcb.snd_wnd());
    let room = (t.pcb.snd_una() + window).since(t.pcb.snd_nxt());
    let due = t.pcb.snd_due_at();
    // Two thirds of the checks stand on the edge: exactly as much as is due, or one byte less.
    let to_due = due.saturating_sub(t.snd);
    let more = match more % 3 {
        // A writer appends something: without that, text that waits for a look waits on.
        0 if to_due < 100_000 => to_due.max(1),
        1 if to_due < 100_000 => to_due.saturating_sub(1),
        _ => more,
    };
    // Where records are kept the first byte that waits is told, and no more; and the first one behind a timer.
    let is_untold = t.pcb.loss.as_deref().is_some_and(Loss::is_untold);
    let is_told = !t.pcb.keeps_records() || (t.pcb.has_unsent() && !is_untold);
    // A write that finds text waiting and nothing in flight may end a pause.
    let ends_pause = t.snd > 0 && t.pcb.snd_una() == max;
    t.snd += more;
    let sent = t.output();
    let progress = sent.iter().any(|s| s.len > 0) || t.pcb.next_deadline() != before;
    if t.snd < due {
        assert!(!progress && t.pcb.snd_max() == max, "due at {due}, but {} was enough", t.snd);
    } else if !progress {
        assert!(
            more > room || !is_told || ends_pause,
            "{} is due ({due}) and {room} would fit, but nothing was sent",
            t.snd
        );
    }
    check_alive(t);
}

fn settings() -> impl Strategy<Value = Settings> {
    let bufs = prop_oneof![Just(500u32), Just(5000), Just(50_000), Just(300_000)];
    let flags = any::<(bool, bool, bool, bool)>();
    (flags, bufs).prop_map(|((timestamps, nodelay, tso, sack), rcv_buf)| Settings {
        timestamps,
        sack,
        nodelay,
        rcv_buf,
        tso_max: if tso { 20_000 } else { 0 },
        time_wait: Duration::from_millis(300),
        ..plain()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_segments_in_every_state_break_no_invariant(
        state in 0usize..10, closed: bool, s in settings(), ops in prop::collection::vec(op(), 1..60),
    ) {
        let mut t = Script::in_state(State::ALL[state], &s, closed);
        for op in &ops {
            apply(&mut t, op, s.rcv_buf);
        }
        t.output();
        check_alive(&t);
    }

    #[test]
    fn snd_due_at_is_never_too_high_nor_uselessly_low(
        s in settings(), ops in prop::collection::vec((op(), 1u32..4000), 1..40),
    ) {
        let mut t = Script::established(&s);
        for (op, more) in &ops {
            apply(&mut t, op, s.rcv_buf);
            check_due(&mut t, *more);
        }
    }
}
