//! Acknowledgments that do not wait: at the start, after a pause, for a reader that has taken everything. The segments expected
//! here are those that Linux sends.

use super::super::delack::{AckAtRead, QUICK_ACKS_MAX};
use super::super::ecn::EcnMode;
use super::super::meter::Tally;
use super::super::segment::{Flags, Header};
use super::super::settings::Settings;
use super::super::state::State;
use super::script::{ACK, FIN, MSS, Script, WND, ms, plain, secs};
use super::world::{Link, World};
use crate::seq::SeqNum;

const PSH: Flags = ACK.with(Flags::PSH);

/// A short segment arrives. Whether it is acknowledged at once.
fn is_quick(t: &mut Script) -> bool {
    is_acknowledged(t, PSH, b"message")
}

fn is_acknowledged(t: &mut Script, flags: Flags, text: &[u8]) -> bool {
    let _ = t.input(t.seg(flags), text);
    match t.lens()[..] {
        [] => false,
        [0] => true,
        ref other => panic!("more than an acknowledgment: {other:?}"),
    }
}

/// How many short segments are acknowledged at once before one is not; that one is acknowledged after the delay.
fn quick_in_a_row(t: &mut Script) -> u8 {
    let count = (0..100).take_while(|_| is_quick(t)).count();
    assert_eq!(acks_within(t, 40), [40]);
    count.try_into().unwrap()
}

/// When acknowledgments are sent in so many milliseconds.
fn acks_within(t: &mut Script, millis: u64) -> Vec<u128> {
    let sent = t.wait(ms(millis));
    sent.iter()
        .map(|(at, segment)| {
            assert_eq!((segment.len, segment.header().ack), (0, t.pcb.rcv_nxt()));
            at.as_millis()
        })
        .collect()
}

/// Established, with no quick acknowledgments left.
pub fn settled(s: &Settings) -> Script {
    let mut t = Script::established(s);
    assert!(quick_in_a_row(&mut t) > 0);
    t
}

/// The reader takes everything. Whether that is acknowledged.
fn is_emptying_acknowledged(t: &mut Script) -> bool {
    let expected = t.pcb.acks_at_read() != AckAtRead::No;
    t.pcb.on_read(true);
    let acks = t.lens();
    assert!(acks.is_empty() != expected && acks.len() <= 1, "{acks:?}");
    expected
}

/// The application answers a question; the answer is acknowledged by the next one.
fn converse(t: &mut Script) {
    let _ = t.input(t.seg(PSH), b"question");
    t.output();
    assert_eq!(t.write(6), [6]);
    t.snd = 0;
    let _ = t.pcb.on_segment(&t.seg(ACK), Vec::new(), t.now);
    assert!(t.output().is_empty());
}

/// How many segments of `len` bytes are acknowledged at once, before one is not. The reader takes each of them. Over an
/// interface, segments are counted.
fn quick_with_a_reader(rcv_buf: u32, len: u32, is_counted: bool) -> u32 {
    let mut t =
        Script::established(&Settings { rcv_buf, rcv_buf_max: rcv_buf, window_scaling: true, ..plain() });
    let text = vec![0; len as usize];
    (0..1_000)
        .take_while(|count| {
            if is_counted {
                let tally = Tally { segments: 1, with_text: u32::from(*count > 0), text_bytes: len };
                t.pcb.meter(tally, Tally::default(), t.now);
            }
            is_acknowledged(&mut t, ACK, &text)
        })
        .count()
        .try_into()
        .unwrap()
}

/// Each segment is worth two full ones of the window, which begins with 64 KiB. The sixteen come on top.
#[test]
fn segments_are_acknowledged_at_once_while_linuxs_window_would_grow() {
    let more = u32::from(QUICK_ACKS_MAX);
    for len in [MSS, MSS / 2, 128] {
        assert_eq!(quick_with_a_reader(65_535, len, true), more, "{len}");
        assert_eq!(quick_with_a_reader(65_535 + 100 * MSS, len, true), 50 + more, "{len}");
        assert_eq!(quick_with_a_reader(65_535 + 100 * MSS, len, false), more, "{len}, in one process");
    }
    assert_eq!(quick_with_a_reader(65_535 + 100 * MSS, 127, true), more, "too short to count");
}

#[test]
fn a_new_connection_acknowledges_sixteen_segments_at_once() {
    let mut t = Script::established(&plain());
    assert_eq!(quick_in_a_row(&mut t), QUICK_ACKS_MAX);
    assert_eq!(QUICK_ACKS_MAX, 16);
    assert_eq!(quick_in_a_row(&mut t), 0);
}

#[test]
fn a_small_window_has_room_for_fewer() {
    // Before the peer has sent a full segment, its segments are taken to have 536 bytes, or half the window.
    for (window, quick) in [(100, 2), (1_071, 1), (1_072, 1), (2_144, 2), (10 * 1_072, 10), (17 * 1_072, 16)]
    {
        let mut t = Script::established(&Settings { rcv_buf: window, ..plain() });
        t.space = window;
        assert_eq!(quick_in_a_row(&mut t), quick, "{window}");
    }
}

#[test]
fn text_after_a_pause_longer_than_the_timeout_is_acknowledged_at_once_again() {
    let mut t = settled(&plain());
    // 190 ms, and 10 ms for the round trip.
    let rto = t.pcb.rto();
    // The last text came 40 ms ago.
    let _ = t.wait(rto - ms(40));
    assert_eq!(quick_in_a_row(&mut t), 0);
    let _ = t.wait(rto - ms(39));
    assert_eq!(quick_in_a_row(&mut t), 16);
}

#[test]
fn an_answering_end_lets_the_answer_carry_the_acknowledgment() {
    let mut t = Script::established(&plain());
    assert!(is_quick(&mut t));
    converse(&mut t);
    for _ in 0..20 {
        assert!(!is_quick(&mut t));
        assert!(!is_emptying_acknowledged(&mut t));
        assert_eq!(t.write(6), [6]);
        t.snd = 0;
        let _ = t.pcb.on_segment(&t.seg(ACK), Vec::new(), t.now);
    }
    assert!(acks_within(&mut t, 100).is_empty());
}

#[test]
fn an_answer_that_is_late_ends_the_request_response_mode() {
    let mut t = Script::established(&plain());
    for _ in 0..3 {
        converse(&mut t);
    }
    assert!(!is_quick(&mut t));
    assert_eq!(acks_within(&mut t, 40), [40]);
    // Each acknowledgment of text counts, also one that an answer carries: four of the sixteen.
    assert_eq!(quick_in_a_row(&mut t), 12);
}

#[test]
fn data_sent_after_the_delay_is_no_answer() {
    for (late, is_answer) in [(39, true), (41, false)] {
        let mut t = Script::established(&plain());
        assert!(is_quick(&mut t));
        let _ = t.wait(ms(late));
        assert_eq!(t.write(6), [6]);
        t.snd = 0;
        let _ = t.pcb.on_segment(&t.seg(ACK), Vec::new(), t.now);
        assert_eq!(is_quick(&mut t), !is_answer, "{late}");
    }
}

#[test]
fn reading_the_end_of_a_message_sends_an_acknowledgment() {
    let full = vec![1; MSS as usize];
    for (flags, text, is_end) in [
        (PSH, &b"short"[..], true),
        // The sender's segments would be full if it had more.
        (ACK, b"short", true),
        (PSH, &full, true),
        (ACK, &full, false),
    ] {
        let mut t = settled(&plain());
        // The peer's segments have been seen to be as large as this.
        let _ = t.input(t.seg(ACK), &full);
        let _ = t.input(t.seg(ACK), &full);
        assert_eq!(t.lens(), [0]);
        assert!(!is_acknowledged(&mut t, flags, text));
        assert_eq!(is_emptying_acknowledged(&mut t), is_end, "{flags:?} {}", text.len());
        assert!(!is_emptying_acknowledged(&mut t), "one is enough");
        assert_eq!(acks_within(&mut t, 100).len(), usize::from(!is_end));
    }
}

#[test]
fn in_request_response_mode_reading_the_ends_of_two_messages_sends_one() {
    let mut t = settled(&plain());
    converse(&mut t);
    assert!(!is_quick(&mut t));
    assert!(!is_emptying_acknowledged(&mut t));
    assert!(!is_quick(&mut t));
    assert!(is_emptying_acknowledged(&mut t));
    assert!(acks_within(&mut t, 100).is_empty());
}

#[test]
fn duplicate_text_and_the_text_after_it_are_acknowledged_at_once() {
    let mut t = settled(&plain());
    converse(&mut t);
    let first = t.seg(PSH);
    assert!(!is_acknowledged(&mut t, PSH, b"lost acknowledgment?"));
    let _ = t.input(first, b"lost acknowledgment?");
    assert_eq!(t.lens(), [0], "the first of sixteen");
    assert_eq!(quick_in_a_row(&mut t), 15);
}

#[test]
fn an_acknowledgment_that_data_carries_counts_and_a_window_update_does_not() {
    let mut t = Script::established(&plain());
    for _ in 0..2 {
        let _ = t.input(t.seg(PSH), b"message");
        t.snd = 1;
        assert_eq!(t.lens(), [1]);
        t.snd = 0;
        let _ = t.pcb.on_segment(&t.seg(ACK), Vec::new(), t.now);
        // An answer; but the next message arrives after so long a pause that no answer is expected.
        assert!(!is_quick(&mut t));
        assert_eq!(acks_within(&mut t, 40), [40]);
    }
    // Four acknowledgments of text were sent.
    t.space = 20_000;
    let _ = t.output();
    t.space = 50_000;
    assert!(t.lens().len() <= 1);
    assert_eq!(quick_in_a_row(&mut t), 12);
}

/// Which end sent how many bytes, in turn.
fn shape(world: &World, from: usize) -> Vec<(usize, usize)> {
    world.trace[from..].iter().map(|(_, sender, _, len)| (*sender, *len)).collect()
}

#[test]
fn messages_take_half_a_round_trip_each_with_nagle_at_the_sender() {
    let mut world = World::established(7, Settings::default(), Settings::default(), Link::CLEAN);
    let mut done = 0;
    for message in 0..100 {
        let (begun, traced) = (world.now, world.trace.len());
        world.ends[0].to_write.extend([7; 64]);
        done += 64;
        world.run("message", |w| w.ends[1].received.len() == done);
        let took = world.now.since(begun);
        // The acknowledgment of the one before is on its way when it is written.
        assert!(took <= ms(if message == 0 { 5 } else { 10 }), "{message}: {took:?}");
        world.run("acknowledgment", |w| {
            w.ends[0].pcb.as_ref().unwrap().snd_una() == w.ends[0].pcb.as_ref().unwrap().snd_max()
        });
        assert_eq!(shape(&world, traced), [(0, 64), (1, 0)], "{message}");
    }
}

#[test]
fn a_request_response_exchange_over_a_link_has_two_pure_acknowledgments() {
    let mut world = World::established(8, Settings::default(), Settings::default(), Link::CLEAN);
    world.run_for(secs(1));
    let begun = world.trace.len();
    for turn in 1..=50 {
        for (from, to) in [(0, 1), (1, 0)] {
            world.ends[from].to_write.extend([1; 10]);
            world.run("message", |w| w.ends[to].received.len() == 10 * turn);
        }
    }
    world.run_for(secs(1));
    let bare = shape(&world, begun).into_iter().filter(|(_, len)| *len == 0);
    // Each end acknowledges the first text at once, and the last answer is not answered.
    assert_eq!(bare.map(|(sender, _)| sender).collect::<Vec<_>>(), [1, 0, 0]);
    assert!(world.ends.iter().all(|end| end.state() == State::Established));
}

#[test]
fn nothing_is_counted_before_the_first_text() {
    let mut t = Script::established(&plain());
    // Text that we send first answers nothing.
    assert_eq!(t.write(6), [6]);
    let _ = t.input(t.seg(ACK), &[]);
    assert!(!is_emptying_acknowledged(&mut t));
    assert_eq!(t.pcb.rcv_nxt(), SeqNum::new(super::script::IRS + 1));
    assert_eq!(quick_in_a_row(&mut t), 16);
}

#[test]
fn the_option_has_acknowledgments_wait_for_an_answer_or_sends_the_one_that_waits() {
    let mut t = Script::established(&plain());
    assert!(t.pcb.quickack() && is_quick(&mut t));
    t.pcb.set_quickack(false, true);
    assert!(!t.pcb.quickack() && !is_quick(&mut t));
    t.pcb.set_quickack(true, true);
    assert!(t.pcb.quickack());
    assert_eq!(t.lens(), [0], "the one that waited");
    assert!(is_quick(&mut t));
}

#[test]
fn an_old_segment_without_text_is_answered_and_makes_no_acknowledgment_quick() {
    let mut t = settled(&plain());
    let old = Header { seq: t.pcb.rcv_nxt() - 500, ..t.seg(ACK) };
    let _ = t.input(old, &[]);
    assert_eq!(t.lens(), [0]);
    assert!(!is_quick(&mut t));
    assert_eq!(acks_within(&mut t, 40), [40]);
    let old = Header { seq: t.pcb.rcv_nxt() - 500, ..t.seg(ACK) };
    let _ = t.input(old, &[7; 100]);
    assert_eq!(t.lens(), [0]);
    assert!(is_quick(&mut t), "its acknowledgment was lost, so the next shall not be late");
}

/// A sender that reduces its window to a segment must not wait for a delayed acknowledgment.
#[test]
fn a_mark_of_the_network_makes_the_next_acknowledgments_quick() {
    let mut t = settled(&Settings { ecn: EcnMode::On, ..plain() });
    assert!(!is_quick(&mut t));
    assert_eq!(acks_within(&mut t, 40), [40]);
    let _ = is_acknowledged(&mut t, PSH.with(Flags::CE), b"marked");
    assert!(is_quick(&mut t) || is_quick(&mut t), "{:?}", t.pcb.next_deadline());
}

/// `tcp_send_delayed_ack`: what would leave within a quarter of its delay anyway leaves now. A segment without any news is
/// none.
#[test]
fn another_segment_hurries_an_acknowledgment_that_is_about_to_leave() {
    for (after, window, count) in [(5, WND - 1, 0), (35, WND - 1, 1), (35, WND, 0)] {
        let mut t = settled(&plain());
        let _ = t.input(t.seg(ACK), b"text");
        assert_eq!(t.lens(), []);
        t.now = t.now + ms(after);
        let _ = t.input(t.ack_of(0, window), &[]);
        assert_eq!(t.lens().len(), count, "{after} ms later");
    }
}

/// `tcp_ack_snd_check`. What is unread keeps the option itself from sending it.
#[test]
fn the_acknowledgment_of_a_fin_waits_until_the_program_says_that_it_has_no_answer_and_a_segment_comes() {
    for (quickack, count) in [(false, 0), (true, 1)] {
        let mut t = Script::established(&plain());
        let _ = is_acknowledged(&mut t, PSH, b"text");
        let _ = t.input(t.seg(FIN), &[]);
        assert_eq!(t.lens(), []);
        t.pcb.set_quickack(quickack, false);
        assert_eq!(t.lens(), []);
        let _ = t.input(t.ack_of(0, WND), &[]);
        assert_eq!(t.lens().len(), count, "{quickack}");
    }
}

#[test]
fn switching_quickack_off_sends_nothing_that_waits_and_on_nothing_that_is_not_owed() {
    let waiting = |quickack| {
        let mut t = settled(&plain());
        let _ = t.input(t.seg(PSH), b"text");
        assert_eq!(t.lens(), []);
        t.pcb.set_quickack(quickack, true);
        (t.lens().len(), t.pcb.quickack())
    };
    assert_eq!([waiting(false), waiting(true)], [(0, false), (1, true)]);
    let mut t = settled(&plain());
    t.pcb.set_quickack(true, true);
    assert_eq!((t.lens(), t.pcb.acks_at_read()), (vec![], AckAtRead::No));
}
