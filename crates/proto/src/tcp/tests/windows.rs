//! Both windows: acceptability, zero windows and probes, updates, scaling, silly windows.

use super::super::events::Events;
use super::super::sack::SackBlock;
use super::super::segment::{Flags, Header};
use super::super::settings::Settings;
use super::super::state::State;
use super::super::window::window_update_due;
use super::script::{ACK, FIN, IRS, ISS, MSS, Script, WND, ms, plain, secs};
use super::world::{Link, World, pattern};
use crate::seq::SeqNum;

/// Feeds `len` bytes at `offset` past RCV.NXT and returns which of them were delivered or kept.
fn offer(t: &mut Script, offset: i64, len: usize) -> Vec<u8> {
    let mut header = t.seg(ACK);
    header.seq = SeqNum::new((i64::from(header.seq.raw()) + offset) as u32);
    let bytes: Vec<u8> = (0..len).map(|i| (offset + i as i64) as u8).collect();
    t.input(header, &bytes).deliver
}

#[test]
fn text_is_cut_to_the_window_on_both_sides() {
    let s = Settings { rcv_buf: 100, ..plain() };
    let mut t = Script::established(&s);
    assert_eq!(offer(&mut t, -5, 10), [0, 1, 2, 3, 4]);
    t.output();
    // 95 bytes are left of the window that was announced.
    assert_eq!(offer(&mut t, 90, 50), []);
    let got = offer(&mut t, 0, 90);
    assert_eq!(got.len(), 95, "5 bytes of the 50 lay inside");
    assert_eq!(t.pcb.rcv_nxt(), t.pcb.rcv_adv());
}

#[test]
fn segments_wholly_outside_are_acknowledged_and_dropped() {
    let mut t = Script::established(&plain());
    for (offset, len) in [(-10, 10), (-1, 1), (i64::from(WND), 1), (100_000, 10)] {
        assert_eq!(offer(&mut t, offset, len), []);
        assert_eq!(t.lens(), [0], "{offset} {len}");
    }
    assert!(offer(&mut t, i64::from(WND) - 1, 1).is_empty());
    assert_eq!(t.lens(), [0], "the last byte inside is kept and answered by a duplicate");
}

#[test]
fn an_acknowledgment_at_the_right_edge_is_processed() {
    let mut t = Script::established(&plain());
    t.write(500);
    let at_edge = Header { seq: t.pcb.rcv_adv(), ..t.ack_of(500, WND) };
    assert_eq!(t.input(at_edge, &[]).acked, 500);
    t.write(500);
    let beyond = Header { seq: t.pcb.rcv_adv() + 1, ..t.ack_of(500, WND) };
    assert_eq!(t.input(beyond, &[]).acked, 0);
}

#[test]
fn a_probe_of_a_closed_window_is_refused_but_its_acknowledgment_counts() {
    let mut t = Script::established(&plain());
    t.write(10);
    let mut fill = t.seg(ACK);
    fill.ack = t.pcb.snd_una();
    let _ = t.input(fill, &vec![0; usize::from(WND)]);
    t.space = 0;
    t.output();
    assert_eq!(t.pcb.rcv_nxt(), t.pcb.rcv_adv());
    let input = t.input(t.seg(FIN), b"p");
    assert!(input.deliver.is_empty() && input.events.is_empty());
    assert_eq!(input.acked, 10);
    let answer = t.output();
    assert_eq!((answer.len(), answer[0].header().window), (1, 0));
    assert_eq!(t.pcb.state(), State::Established);
}

#[test]
fn a_reset_for_a_peer_with_a_closed_window_is_acceptable_to_it() {
    let mut t = Script::established(&plain());
    t.write(10);
    assert!(t.input(t.ack_of(5, 0), &[]).events.is_empty());
    let reset = t.pcb.abort().expect("the peer gets an acknowledgment");
    assert_eq!(reset.seq, SeqNum::new(ISS + 6), "where the peer's window and its received data end");
}

#[test]
fn a_closed_window_is_probed_with_back_off_for_as_long_as_it_is_answered() {
    let mut t = Script::established(&plain());
    t.write(2000);
    let _ = t.input(t.ack_of(2000, 0), &[]);
    assert!(t.write(5000).is_empty());
    let una = t.pcb.snd_una();
    let mut waits = Vec::new();
    for _ in 0..40 {
        let before = t.now;
        let sent = loop {
            let deadline = t.pcb.next_deadline().expect("the persist timer runs");
            let wait = deadline.since(t.now);
            let sent = t.wait(wait);
            if !sent.is_empty() {
                break sent;
            }
        };
        assert_eq!((sent.len(), sent[0].1.header().seq, sent[0].1.len), (1, una - 1, 0));
        waits.push(t.now.since(before).as_millis());
        let _ = t.input(t.ack_of(0, 0), &[]);
        assert!(t.output().is_empty());
    }
    // 190 ms and seven eighths of 10 ms.
    assert_eq!(waits[..5], [198, 397, 795, 1590, 3180]);
    assert_eq!(waits.last(), Some(&120_000));
    let _ = t.input(t.ack_of(0, 3000), &[]);
    assert_eq!(t.lens(), [MSS; 3], "the window opens");
    assert_eq!(t.pcb.rto(), core::time::Duration::from_micros(198_750));
}

#[test]
fn an_unanswered_probe_is_given_up() {
    let mut t = Script::established(&Settings { retries: 3, ..plain() });
    t.write(1000);
    let _ = t.input(t.ack_of(1000, 0), &[]);
    t.write(10);
    let sent = t.wait(secs(100));
    assert_eq!(sent.len(), 3, "no reset");
    assert!(t.events.has(Events::TIMED_OUT));
}

/// Its reader may make room without a segment, and would wait for ever.
#[test]
fn within_one_process_a_peer_whose_window_stays_shut_gets_a_reset() {
    let mut t = Script::established(&Settings { retries: 3, lossless: true, ..plain() });
    t.write(1000);
    let _ = t.input(t.ack_of(1000, 0), &[]);
    t.write(10);
    let sent = t.wait(secs(100));
    assert!(t.events.has(Events::TIMED_OUT));
    assert!(sent.last().unwrap().1.header().flags.has(Flags::RST));
}

#[test]
fn a_probe_that_is_accepted_moves_on() {
    let mut t = Script::established(&plain());
    t.write(10);
    let _ = t.input(t.ack_of(0, 0), &[]);
    let sent = t.wait(ms(200));
    assert_eq!(sent[0].1.len, 10, "the data in flight probes the window");
    let _ = t.input(t.ack_of(1, 0), &[]);
    assert!(t.output().is_empty());
    assert_eq!(t.pcb.snd_una(), SeqNum::new(ISS + 2));
    assert!(t.pcb.next_deadline().is_some(), "probing continues");
    let _ = t.input(t.ack_of(0, 5000), &[]);
    assert!(t.lens().is_empty(), "it may be on its way");
    assert_eq!(t.wait(secs(2))[0].1.len, 9);
}

#[test]
fn a_fin_waits_for_a_closed_window_too_and_is_probed() {
    let mut t = Script::established(&plain());
    t.write(1000);
    let _ = t.input(t.ack_of(1000, 0), &[]);
    t.pcb.shutdown_write();
    assert!(t.output().is_empty());
    // Asked for by a segment from before SND.UNA, as for text.
    let (una, sent) = (t.pcb.snd_una(), t.wait(ms(200)));
    assert!(!sent[0].1.header().flags.has(FIN) && sent[0].1.header().seq == una - 1);
    let _ = t.input(t.ack_of(0, WND), &[]);
    assert!(t.output()[0].header().flags.has(FIN));
    let _ = t.input(t.ack_of(1, 0), &[]);
    assert_eq!(t.pcb.state(), State::FinWait2);
}

#[test]
fn a_window_that_shrinks_over_data_in_flight_is_probed_and_not_flooded() {
    let mut t = Script::established(&plain());
    t.write(5000);
    let _ = t.input(t.ack_of(1000, 0), &[]);
    assert!(t.output().is_empty());
    let una = t.pcb.snd_una();
    let sent = t.wait(secs(30));
    assert!(sent.iter().all(|(_, s)| (s.header().seq, s.len) == (una, MSS)), "one segment each");
    let _ = t.input(t.ack_of(1000, WND), &[]);
    assert_eq!(t.lens(), [MSS; 2], "slow start");
}

#[test]
fn a_sender_avoids_silly_segments_and_overrides_after_a_while() {
    let mut t = Script::established(&plain());
    t.write(1000);
    let _ = t.input(t.ack_of(1000, 300), &[]);
    assert!(t.write(5000).is_empty(), "300 bytes of window are silly");
    let sent = t.wait(ms(200));
    assert_eq!(sent[0].1.len, 300, "but better than nothing");
}

#[test]
fn half_of_the_largest_window_is_worth_a_segment() {
    let mut t = Script::established(&plain());
    let _ = t.pcb.abort();
    let s = plain();
    let mut t = Script::connect(&s);
    t.output();
    let syn_ack = Header { window: 600, ..t.raw(IRS, ISS + 1, super::script::SYN_ACK) };
    let _ = t.input(syn_ack, &[]);
    t.output();
    let _ = t.input(Header { window: 300, ..t.seg(ACK) }, &[]);
    assert_eq!(t.write(5000), [300]);
}

#[test]
fn a_fin_behind_more_text_does_not_push_what_the_window_cuts() {
    for (fin, nodelay, expected) in [(false, false, &[][..]), (true, false, &[]), (true, true, &[400])] {
        let s = Settings { nodelay, ..plain() };
        let mut t = Script::connect(&s);
        t.output();
        let syn_ack = Header { window: 500, ..t.raw(IRS, ISS + 1, super::script::SYN_ACK) };
        let _ = t.input(syn_ack, &[]);
        t.output();
        assert_eq!(t.write(100), [100]);
        if fin {
            t.pcb.shutdown_write();
        }
        assert_eq!(t.write(5000), expected, "{fin} {nodelay}");
        if expected.is_empty() {
            let _ = t.input(t.ack_of(100, 500), &[]);
            assert_eq!(t.lens(), [500], "an acknowledgment lets it go");
        }
    }
}

#[test]
fn the_reader_is_notified_exactly_when_an_update_follows() {
    let mut t = Script::established(&plain());
    let _ = t.input(t.seg(ACK), &[0; 20_000]);
    t.space = 30_000;
    t.output();
    let mut last_edge = t.pcb.rcv_adv();
    for space in 30_000..=50_000 {
        t.space = space;
        let due = window_update_due(
            space,
            t.pcb.rcv_nxt(),
            t.pcb.rcv_adv(),
            t.pcb.rcv_hiwat(),
            t.pcb.window_unit(),
        );
        let sent = t.output();
        assert_eq!(due, !sent.is_empty(), "{space}");
        assert!(sent.len() <= 1 && t.pcb.rcv_adv().at_or_after(last_edge));
        if due {
            assert!(t.pcb.rcv_adv().since(last_edge) >= MSS);
        }
        last_edge = t.pcb.rcv_adv();
    }
    assert_eq!(last_edge, t.pcb.rcv_nxt() + 42_500, "a quarter of the buffer");
}

#[test]
fn a_slow_reader_shuts_and_opens_the_window_without_losing_bytes() {
    for (seed, rcv_buf, scaling) in [(1, 4096, false), (2, 50_000, true), (3, 300_000, true), (4, 1000, true)]
    {
        let b = Settings { rcv_buf, rcv_buf_max: 4 << 20, window_scaling: scaling, ..Settings::default() };
        let mut w = World::established(seed, Settings::default(), b, Link::CLEAN);
        w.ends[0].to_write = pattern(400_000, 5);
        w.ends[0].snd_hiwat = 1 << 20;
        w.ends[1].read_max = 0;
        w.run_for(secs(30));
        assert!(w.ends[1].rcv.len() as u32 > rcv_buf / 2, "the window was used: {}", w.ends[1].rcv.len());
        w.ends[1].read_max = 700;
        w.run("draining", |w| w.ends[1].received.len() == 400_000);
        assert!(w.ends[1].received == w.ends[0].to_write);
    }
}

/// The edge of a scaled window seems to move back when its remainder is rounded down (RFC 7323 section 2.4).
/// Acknowledgments that began there would be unacceptable to a peer that has accepted data beyond it; if both
/// ends did so, neither would ever accept the other's segments.
#[test]
fn an_acknowledgment_does_not_begin_where_rounding_put_the_edge_but_where_a_peer_that_shrinks_it_did() {
    let cases = [
        (5000, 5, 5000),
        (5000, 4, 5000),
        (5000, 3, 3 << 10),
        (5000, 0, 0),
        (5 << 10, 4, 4 << 10),
        (1, 0, 1),
    ];
    for (sent_len, left, begins_at) in cases {
        let mut t = Script::connect(&Settings { window_scaling: true, ..plain() });
        t.output();
        let mut syn_ack = t.raw(IRS, ISS + 1, super::script::SYN_ACK);
        syn_ack.options.window_scale = Some(10);
        let _ = t.input(syn_ack, &[]);
        t.output();
        let _ = t.input(Header { window: 64, ..t.seg(ACK) }, &[]);
        let una = t.pcb.snd_una();
        assert_eq!(t.write(sent_len).iter().sum::<u32>(), sent_len);
        // Out of order, so that it is answered at once.
        let mut header = Header { ack: una, window: left, ..t.seg(ACK) };
        header.seq += 1000;
        let _ = t.input(header, &[0; 10]);
        let sent = t.output();
        assert_eq!(
            sent.last().map(|s| s.header().seq),
            Some(una + begins_at),
            "{left} KiB are left of {sent_len}"
        );
        assert_eq!(t.pcb.abort().expect("a reset").seq, una + begins_at, "as a reset does");
    }
}

/// Segments that begin behind a shut window's edge would be unacceptable to the peer: it would accept no acknowledgment from us, and retransmit data that
/// has arrived.
#[test]
fn an_acknowledgment_begins_at_a_shut_windows_edge_while_a_fin_waits_behind_it() {
    for scale in [0, 10] {
        let mut t = Script::connect(&Settings { window_scaling: true, ..plain() });
        t.output();
        let mut syn_ack = t.raw(IRS, ISS + 1, super::script::SYN_ACK);
        syn_ack.options.window_scale = Some(scale);
        let _ = t.input(syn_ack, &[]);
        t.output();
        let una = t.pcb.snd_una();
        let _ = t.input(Header { window: 0, ..t.seg(ACK) }, &[]);
        t.pcb.shutdown_write();
        assert!(t.output().is_empty(), "the window is shut");
        let (_, probe) = t.wait(secs(1)).into_iter().next().expect("a shut window is probed");
        assert!(probe.header().seq == una - 1 && !probe.header().flags.has(FIN));
        // The peer sends two full segments of its own.
        for begin in [0, MSS] {
            let header = Header { window: 0, ack: una, ..t.seg(ACK) };
            let _ = t.input(Header { seq: SeqNum::new(IRS + 1 + begin), ..header }, &[0; MSS as usize]);
        }
        let sent = t.output();
        assert_eq!(sent.last().map(|s| s.header().seq), Some(una), "window scale {scale}");
    }
}

/// The other end's side of it: the prober does not know whether its byte was taken. Its acknowledgment counts until the byte is
/// acknowledged; after that the segment is answered and dropped, as on Linux.
#[test]
fn data_acknowledged_beside_a_probe_counts_until_the_probe_is_acknowledged() {
    for is_told in [false, true] {
        let mut t = Script::established(&Settings { rcv_buf: 1000, ..plain() });
        let _ = t.input(t.seg(ACK), &[0; 999]);
        t.space = 0;
        assert_eq!(t.write(500).last(), Some(&500));
        // The window's last byte: to a peer that sees multiples of 1,024 it is shut.
        let probe = Header { ack: t.pcb.snd_una(), ..t.seg(ACK) };
        let _ = t.input(probe, &[7]);
        if is_told {
            assert_eq!(t.wait(ms(200))[0].1.header().ack, probe.seq + 1);
        }
        let input = t.input(Header { seq: probe.seq, ..t.ack_of(500, WND) }, &[]);
        assert_eq!(input.acked, if is_told { 0 } else { 500 }, "the prober was told: {is_told}");
        assert_eq!(t.output().len(), usize::from(is_told), "it is told again");
    }
}

#[test]
fn a_probe_recovers_a_lost_window_update() {
    let b = Settings { rcv_buf: 10_000, ..Settings::default() };
    let mut w = World::established(1, Settings::default(), b, Link::CLEAN);
    w.ends[0].to_write = pattern(30_000, 5);
    w.ends[1].read_max = 0;
    w.run_for(secs(5));
    w.link.loss = 100;
    w.ends[1].read_max = usize::MAX;
    w.run_for(ms(50));
    assert!(w.ends[1].rcv.is_empty(), "read, and the update is lost");
    w.link.loss = 0;
    w.run("probe", |w| w.ends[1].received.len() == 30_000);
}

#[test]
fn psh_is_set_where_so_snd_is_emptied() {
    let mut t = Script::established(&plain());
    t.snd = 2 * MSS + 10;
    let pushed: Vec<bool> = t.output().iter().map(|s| s.header().flags.has(Flags::PSH)).collect();
    assert_eq!(pushed, [false, false, true]);
}

/// The peer's room is no multiple of 1024: the last bytes lie behind the edge that the field can express.
#[test]
fn data_moved_beyond_the_edge_by_rounding_is_sent_again_at_once() {
    let s = Settings { window_scaling: true, sack: true, ..plain() };
    let mut t = Script::connect(&s);
    t.output();
    let mut syn_ack = t.raw(IRS, ISS + 1, super::script::SYN_ACK);
    (syn_ack.options.window_scale, syn_ack.options.sack_permitted) = (Some(10), true);
    syn_ack.options.mss = Some(1000);
    let _ = t.input(Header { window: 8192, ..syn_ack }, &[]);
    t.write(8192);
    assert_eq!(t.pcb.snd_max().since(t.pcb.snd_una()), 8192);
    t.now = t.now + ms(10);
    let _ = t.input(t.ack_of(7000, 1), &[]);
    let probe = t.wait(ms(60)).into_iter().next().expect("a probe for the tail").1;
    assert_eq!(probe.header().seq + probe.len, t.pcb.snd_max());
    let _ = t.wait(secs(1));
    assert!(t.pcb.loss_stats().rto_count > 0);
    // Eight whole segments have arrived, and 192 bytes are left of the window.
    let _ = t.input(t.ack_of(1000, 0), &[]);
    assert_eq!(t.lens(), [192]);
}

#[test]
fn of_windows_with_the_same_numbers_the_larger_counts_or_the_closed_one() {
    let mut t = Script::established(&plain());
    let _ = t.input(t.ack_of(0, WND), &[]);
    for (window, counts) in [(20_000, WND), (60_000, 60_000), (0, 0), (100, 100), (50, 100)] {
        let _ = t.input(t.ack_of(0, window), &[]);
        assert_eq!(t.pcb.snd_wnd(), u32::from(counts), "{window}");
    }
    // A later segment's counts whatever it is.
    let header = super::super::segment::Header { window: 10, ..t.ack_of(0, 10) };
    let _ = t.input(header, b"text");
    let header = super::super::segment::Header { window: 7, ..t.ack_of(0, 7) };
    let _ = t.input(header, b"more");
    assert_eq!(t.pcb.snd_wnd(), 7);
}

#[test]
fn the_send_buffer_that_is_wanted_is_twice_what_may_be_in_flight() {
    let mut t = Script::established(&plain());
    assert_eq!(t.pcb.wanted_snd_hiwat(), 2 * 10 * MSS, "by the congestion window");
    let _ = t.write(100 * MSS);
    while t.pcb.cwnd() <= u32::from(WND) {
        t.now = t.now + ms(10);
        let _ = t.input(t.ack_of(MSS, WND), &[]);
        let _ = t.output();
    }
    assert_eq!(t.pcb.wanted_snd_hiwat(), 2 * u32::from(WND), "by the peer's");
}

/// The peer has not taken the byte, so a segment behind it would not be acceptable to it.
#[test]
fn beside_the_probe_of_a_shut_window_an_acknowledgment_begins_before_the_probed_byte() {
    for window_scaling in [false, true] {
        let mut t = Script::established(&Settings { window_scaling, ..plain() });
        let _ = t.input(t.ack_of(0, 0), &[]);
        assert_eq!(t.write(MSS), []);
        let sent = t.wait(secs(1));
        let probed = sent.first().map_or(0, |(_, probe)| probe.len);
        let _ = t.input(Header { ack: t.pcb.snd_una(), window: 0, ..t.seg(ACK) }, &[7; 10]);
        let _ = t.wait(ms(50));
        let _ = t.input(
            Header { seq: t.pcb.rcv_nxt() - 10, ack: t.pcb.snd_una(), window: 0, ..t.seg(ACK) },
            &[7; 10],
        );
        let sent = t.output();
        assert_eq!(sent[0].header().seq, t.pcb.snd_una(), "{probed} bytes probed, scaling: {window_scaling}");
    }
}

#[test]
fn a_fin_behind_text_of_which_a_part_is_old_counts() {
    let mut t = Script::established(&plain());
    let _ = t.input(t.seg(ACK), &[7; 100]);
    let again = Header { seq: t.pcb.rcv_nxt() - 50, ..t.seg(FIN) };
    let taken = t.input(again, &[7; 100]);
    assert_eq!(taken.deliver.len(), 50);
    assert_eq!((t.pcb.rcv_nxt(), t.pcb.state()), (SeqNum::new(IRS + 1 + 151), State::CloseWait));
}

#[test]
fn only_what_moves_the_window_and_nothing_else_is_a_window_update() {
    let mut t = Script::established(&plain());
    let mut is_update = |len: usize, space: u32| {
        let edge = t.pcb.rcv_adv();
        if len > 0 {
            let _ = t.input(t.seg(ACK), &vec![7; len]);
        }
        t.space = space;
        let sent = t.output();
        assert_eq!(sent.len(), 1);
        (t.pcb.rcv_adv() != edge, sent[0].is_window_update)
    };
    assert_eq!(is_update(2_000, 50_000), (true, false), "it acknowledges text");
    assert_eq!(is_update(20_000, 30_000), (false, false));
    assert_eq!(is_update(0, 50_000), (true, true));
}

/// As on Linux (`tcp_update_wl`).
#[test]
fn expected_text_takes_the_number_of_the_window_back() {
    for (text, window) in [(b"".as_slice(), WND), (b"text", WND / 2)] {
        let mut t = Script::established(&plain());
        let mut ahead = t.ack_of(0, WND);
        ahead.seq += 1_000;
        let _ = t.input(ahead, &[]);
        let _ = t.input(t.ack_of(0, WND), text);
        let _ = t.input(t.ack_of(0, WND / 2), &[]);
        assert_eq!(t.pcb.snd_wnd, u32::from(window));
    }
}

/// `__tcp_select_window`: a buffer that is more than half full.
#[test]
fn quick_acknowledgments_end_when_less_than_half_of_the_buffer_is_free() {
    for (space, count) in [(25_000, 1), (24_999, 0)] {
        let mut t = Script::established(&plain());
        let _ = t.input(t.seg(ACK), &[7; 10]);
        t.space = space;
        assert_eq!(t.output().len(), 1, "it was owed before");
        let _ = t.input(t.seg(ACK), &[7; 10]);
        assert_eq!(t.output().len(), count, "{space} bytes are free");
    }
}

/// What lies beyond the peer's window may have been thrown away, and would be again.
#[test]
fn lost_text_beyond_a_window_that_has_shrunk_is_not_sent_again() {
    let mut t = Script::established(&Settings { sack: true, ..plain() });
    t.write(10 * MSS);
    t.now = t.now + ms(10);
    // Behind text, or it could not make the window smaller.
    let _ = t.input(t.ack_of(0, WND), &[7]);
    let mut header = t.ack_of(0, MSS as u16);
    header.options.sack = [SackBlock { start: t.place(7), end: t.place(10) }].into_iter().collect();
    let _ = t.input(header, &[]);
    let again: Vec<u32> =
        t.output().iter().filter(|sent| sent.len > 0).map(|sent| t.place_of(sent)).collect();
    assert_eq!(again, [0]);
}

/// `tcp_rcv_rtt_measure`: without timestamps it is the time that a window takes.
#[test]
fn the_round_trip_of_incoming_text_is_known_after_a_window_of_it() {
    let mut t = Script::established(&plain());
    let mut known = |len: usize| {
        t.now = t.now + ms(20);
        let _ = t.input(t.seg(ACK), &vec![7; len]);
        t.output();
        let _ = t.pcb.wanted_rcv_hiwat(0, None, t.now);
        t.pcb.info(0, t.now).rcv_rtt
    };
    assert_eq!([known(1_000), known(1_000), known(1_000)], [None; 3]);
    assert_eq!(known(48_000), Some(ms(60)));
}

#[test]
fn a_window_that_takes_a_full_segment_grows_by_a_quarter_of_the_buffer_at_once() {
    let due = |remaining: u32, growth: u32| {
        window_update_due(remaining + growth, SeqNum::new(0), SeqNum::new(remaining), 50_000, 1_000)
    };
    assert_eq!(
        [due(999, 1_000), due(1_000, 1_000), due(1_000, 12_499), due(1_000, 12_500)],
        [true, false, false, true]
    );
    assert!(!due(0, 999));
}
