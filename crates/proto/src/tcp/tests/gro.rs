//! Joined segments have the same effect as the same segments one by one.

use core::time::Duration;

use proptest::prelude::*;

use super::super::ecn::EcnMode;
use super::super::gro::{Joined, LEN_MAX};
use super::super::segment::{Flags, Header, Timestamps};
use super::super::settings::Settings;
use super::super::state::State;
use super::quick_ack::settled;
use super::script::{ACK, FIN, MSS, Script, ms, plain};
use crate::seq::SeqNum;

/// The difference of a segment from the one before it.
#[derive(Clone, Copy, Debug)]
enum Odd {
    /// Nothing.
    No,
    Flags(Flags),
    /// Bytes of ours, at most, that it acknowledges anew.
    Ack(u32),
    Window(u16),
    /// TSval and TSecr, by so much later.
    Clock(i32, i32),
    NoTimestamps,
    /// So many bytes on from where it should begin.
    Gap(i32),
    UrgentPointer,
}

/// A batch: segments of so many bytes of text.
type Batch = Vec<(u16, Odd)>;

fn odd() -> impl Strategy<Value = Odd> {
    let flags = [Flags::PSH, Flags::FIN, Flags::RST, Flags::SYN, Flags::ECE, Flags::CWR, Flags::CE];
    let flags = prop_oneof![4 => Just(Flags::PSH), 1 => prop::sample::select(flags.to_vec())];
    prop_oneof![
        20 => Just(Odd::No),
        3 => flags.prop_map(Odd::Flags),
        2 => (1u32..4000).prop_map(Odd::Ack),
        1 => any::<u16>().prop_map(Odd::Window),
        2 => (-3i32..30, -1i32..2).prop_map(|(val, ecr)| Odd::Clock(val, ecr)),
        1 => Just(Odd::NoTimestamps),
        1 => prop_oneof![-3000i32..0, 1i32..3000].prop_map(Odd::Gap),
        1 => Just(Odd::UrgentPointer),
    ]
}

fn batch() -> impl Strategy<Value = Batch> {
    let len = prop_oneof![6 => Just(MSS as u16), 2 => 0u16..2000, 1 => Just(700u16)];
    prop::collection::vec((len, odd()), 1..20)
}

/// The headers of a batch of consecutive segments, with the given differences.
fn headers(t: &mut Script, batch: &Batch) -> Vec<(Header, u16)> {
    let (mut nxt, mut ack) = (t.pcb.rcv_nxt(), t.pcb.snd_una());
    let mut window = super::script::WND;
    let mut headers = Vec::new();
    for &(len, odd) in batch {
        let mut header = Header { ack, seq: nxt, window, ..t.seg(ACK) };
        match odd {
            Odd::No => {}
            Odd::Flags(flags) => header.flags = header.flags.with(flags),
            Odd::Ack(bytes) => {
                let out = t.pcb.snd_max().since(ack);
                ack += bytes.min(out);
                header.ack = ack;
            }
            Odd::Window(wnd) => {
                window = wnd;
                header.window = wnd;
            }
            Odd::Clock(val, ecr) => {
                t.peer_ts = t.peer_ts.map(|ts| Timestamps {
                    val: ts.val.wrapping_add_signed(val),
                    ecr: ts.ecr.wrapping_add_signed(ecr),
                });
                header.options.timestamps = t.peer_ts;
            }
            Odd::NoTimestamps => header.options.timestamps = None,
            Odd::Gap(by) => header.seq = SeqNum::new(nxt.raw().wrapping_add_signed(by)),
            Odd::UrgentPointer => header.urgent = 7,
        }
        nxt += u32::from(len);
        headers.push((header, len));
    }
    headers
}

fn text(seq: SeqNum, len: u16) -> Vec<u8> {
    (0..u32::from(len)).map(|i| ((seq + i).raw().wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

/// Processes a batch, joined if possible. Returns the delivered bytes, and how many segments were joined to another.
fn take(t: &mut Script, batch: &[(Header, u16)], joins: bool) -> (Vec<u8>, u32) {
    let (mut delivered, mut joined_count) = (Vec::new(), 0);
    let mut rest = batch.iter().peekable();
    while let Some((header, len)) = rest.next() {
        let joined = if joins { t.pcb.join_from(header, u32::from(*len)) } else { None };
        let Some(mut joined) = joined else {
            let input = t.input(*header, &text(header.seq, *len));
            delivered.extend(input.deliver);
            continue;
        };
        delivered.extend(text(header.seq, *len));
        while let Some((header, len)) = rest.next_if(|(header, len)| joined.add(header, u32::from(*len))) {
            delivered.extend(text(header.seq, *len));
        }
        joined_count += joined.count() - 1;
        let acked = t.pcb.on_joined(&joined, t.now);
        assert!(acked <= t.snd, "acknowledged more than there was");
        t.snd -= acked;
    }
    (delivered, joined_count)
}

fn settings() -> impl Strategy<Value = Settings> {
    let bufs = prop_oneof![Just(5000u32), Just(60_000), Just(300_000)];
    (any::<bool>(), any::<bool>(), any::<bool>(), bufs).prop_map(|(timestamps, sack, ecn, rcv_buf)| {
        Settings { timestamps, sack, rcv_buf, ecn: if ecn { EcnMode::On } else { EcnMode::Off }, ..plain() }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn joined_or_one_by_one_bytes_answers_and_state_are_the_same(
        s in settings(), batches in prop::collection::vec((batch(), 0u32..6000, 0u32..40_000), 1..8),
    ) {
        let [mut one, mut many] = [Script::established(&s), Script::established(&s)];
        for (batch, written, read) in &batches {
            for t in [&mut one, &mut many] {
                t.now = t.now + ms(3);
                t.snd += if t.pcb.state().can_send() { *written } else { 0 };
                t.output();
            }
            let batch = headers(&mut one, batch);
            many.peer_ts = one.peer_ts;
            let (by_one, _) = take(&mut one, &batch, false);
            let (by_many, _) = take(&mut many, &batch, true);
            prop_assert_eq!(&by_one, &by_many);
            prop_assert_eq!(one.output(), many.output());
            prop_assert_eq!(format!("{:?}", one.pcb), format!("{:?}", many.pcb));
            prop_assert_eq!((one.snd, one.events), (many.snd, many.events));
            for t in [&mut one, &mut many] {
                let held = u32::try_from(by_one.len()).unwrap();
                t.space = (t.space.saturating_sub(held) + read).min(s.rcv_buf);
            }
        }
    }
}

/// Segments of an MSS that are in step, each after the first changed by `change`; how many of them are joined.
fn joined_of(count: u16, change: impl Fn(u16, &mut Header)) -> u32 {
    let mut t = Script::established(&Settings { timestamps: true, ecn: EcnMode::On, ..plain() });
    t.write(3000);
    let mut batch = headers(&mut t, &vec![(MSS as u16, Odd::No); usize::from(count)]);
    (1..count).zip(batch.iter_mut().skip(1)).for_each(|(index, (header, _))| change(index, header));
    take(&mut t, &batch, true).1
}

#[test]
fn segments_in_step_are_joined_up_to_64_kib_and_the_window() {
    assert_eq!(joined_of(20, |_, _| {}), 19);
    assert_eq!(joined_of(20, |_, header| header.flags = header.flags.with(Flags::PSH)), 19);
    let t = Script::established(&Settings { rcv_buf: 1_000_000, ..plain() });
    let header = t.seg(ACK);
    let window = t.pcb.rcv_adv().since(t.pcb.rcv_nxt());
    let mut joined = t.pcb.join_from(&header, 1000).unwrap();
    let next = |joined: &Joined| Header { seq: header.seq + joined.text_len(), ..header };
    while joined.add(&next(&joined), 1000) {}
    let most = window.min(LEN_MAX);
    assert!(joined.text_len() <= most && joined.text_len() + 1000 > most, "{joined:?}");
    assert!(t.pcb.join_from(&header, 0).is_none() && t.pcb.join_from(&header, LEN_MAX + 1).is_none());
}

#[test]
fn a_marked_segment_and_one_without_a_mark_are_never_joined() {
    // In either order: a marked one is not predicted, so none begins with it.
    assert_eq!(joined_of(2, |_, header| header.flags = header.flags.with(Flags::CE)), 0);
    let mark_first = |index: u16, header: &mut Header| {
        header.flags = if index == 1 { header.flags.with(Flags::CE) } else { header.flags };
    };
    assert_eq!(joined_of(5, mark_first), 2, "those behind the marked one");
}

#[test]
fn a_segment_that_the_receiver_must_see_ends_a_run() {
    for flag in [Flags::FIN, Flags::SYN, Flags::RST, Flags::URG, Flags::ECE, Flags::CWR] {
        assert_eq!(joined_of(2, |_, header| header.flags = header.flags.with(flag)), 0, "{flag:?}");
    }
    assert_eq!(joined_of(2, |_, header| header.ack += 1), 0);
    assert_eq!(joined_of(2, |_, header| header.window += 1), 0);
    assert_eq!(joined_of(2, |_, header| header.seq += 1), 0);
    assert_eq!(joined_of(2, |_, header| header.options.timestamps = None), 0);
    let clock = |val: i32, ecr: u32| {
        joined_of(2, |_, header| {
            let of = |ts: Timestamps| Timestamps { val: ts.val.wrapping_add_signed(val), ecr: ts.ecr + ecr };
            header.options.timestamps = header.options.timestamps.map(of);
        })
    };
    assert_eq!((clock(5, 0), clock(-1, 0), clock(0, 1)), (1, 0, 0));
}

#[test]
fn two_joined_segments_of_a_small_mss_are_acknowledged_at_once_and_two_bits_of_text_are_not() {
    // Counted by joined length, the first two would be less than two full segments.
    let mut t = settled(&plain());
    let small: Batch = vec![(700, Odd::No); 2];
    let batch = headers(&mut t, &small);
    assert_eq!(take(&mut t, &batch, true).1, 1);
    assert_eq!(t.lens(), [0]);
    let bits: Batch = vec![(10, Odd::No); 2];
    let batch = headers(&mut t, &bits);
    assert_eq!(take(&mut t, &batch, true).1, 1);
    assert!(t.output().is_empty());
    assert_eq!(t.wait(ms(100)).iter().map(|(at, _)| *at).collect::<Vec<Duration>>(), [ms(40)]);
}

#[test]
fn segments_behind_a_hole_or_after_the_fin_are_not_joined() {
    let mut t = Script::established(&plain());
    let hole: Batch = vec![(MSS as u16, Odd::Gap(1)), (MSS as u16, Odd::Gap(1))];
    let batch = headers(&mut t, &hole);
    assert_eq!(take(&mut t, &batch, true).1, 0);
    assert_eq!(t.lens(), [0, 0], "a duplicate for each");
    let mut t = Script::established(&plain());
    let _ = t.input(t.seg(FIN), &[]);
    assert_eq!(t.pcb.state(), State::CloseWait);
    assert!(t.pcb.join_from(&t.seg(ACK), 5).is_none());
}

#[test]
fn a_segment_longer_than_64_kib_is_not_joined_even_if_the_window_takes_it() {
    let mut t = Script::established(&Settings {
        rcv_buf: 1_000_000,
        rcv_buf_max: 1_000_000,
        window_scaling: true,
        ..plain()
    });
    let _ = t.input(t.seg(ACK), &[7; 1000]);
    t.output();
    assert!(t.pcb.rcv_adv().since(t.pcb.rcv_nxt()) > LEN_MAX + 1);
    let header = t.seg(ACK);
    assert!(t.pcb.join_from(&header, LEN_MAX).is_some());
    assert!(t.pcb.join_from(&header, LEN_MAX + 1).is_none());
}

#[test]
fn segments_that_fill_the_window_are_joined_and_no_byte_more() {
    let t = Script::established(&Settings { rcv_buf: 2_000, ..plain() });
    let header = t.seg(ACK);
    let next = Header { seq: header.seq + 1_000, ..header };
    for (len, is_joined) in [(999, true), (1_000, true), (1_001, false)] {
        let mut joined = t.pcb.join_from(&header, 1_000).unwrap();
        assert_eq!(joined.add(&next, len), is_joined, "{len}");
    }
}
