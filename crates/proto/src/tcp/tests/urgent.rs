//! Urgent data: where the pointer points, for how long, and which marks are news.

use super::super::events::Events;
use super::super::segment::{Flags, Header};
use super::script::{ACK, IRS, ISS, MSS, SYN_ACK, Script, WND, plain, secs};
use crate::seq::SeqNum;

const URG: Flags = Flags::URG;

/// Flags and pointer of the segments due now.
fn marks(t: &mut Script) -> Vec<(bool, u16)> {
    t.output().iter().map(|s| (s.header().flags.has(URG), s.header().urgent)).collect()
}

/// Numbers and pointers of what the next timer sends.
fn next_probes(t: &mut Script) -> Vec<(SeqNum, u16)> {
    let wait = t.pcb.next_deadline().unwrap().since(t.now);
    t.wait(wait).iter().map(|(_, probe)| (probe.header().seq, probe.header().urgent)).collect()
}

#[test]
fn the_pointer_names_the_byte_behind_until_it_is_acknowledged() {
    let mut t = Script::established(&plain());
    t.output();
    t.snd = 10;
    t.pcb.set_urgent(t.snd);
    assert_eq!(marks(&mut t), [(true, 10)]);
    // Nagle would hold this one; it is behind the mark and does not point back.
    t.snd += 5;
    assert_eq!(marks(&mut t), [(false, 0)]);
    let again = t.wait(secs(1));
    assert_eq!((again[0].1.header().flags.has(URG), again[0].1.header().urgent), (true, 10), "{again:?}");
    let _ = t.input(t.ack_of(15, WND), &[]);
    t.snd += 5;
    assert_eq!(marks(&mut t), [(false, 0)]);
}

#[test]
fn a_mark_that_is_far_ahead_is_announced_as_far_as_the_field_reaches() {
    let mut t = Script::established(&plain());
    t.output();
    t.snd = 70_000;
    t.pcb.set_urgent(t.snd);
    let out = marks(&mut t);
    assert!(out.len() > 1);
    assert_eq!(out[0], (true, u16::MAX));
    for (segment, mark) in out.iter().enumerate().skip(1) {
        let left = 70_000 - segment as u32 * MSS;
        assert_eq!(*mark, (true, u16::try_from(left).unwrap_or(u16::MAX)));
    }
}

#[test]
fn large_segments_are_not_made_while_urgent_data_is_pending() {
    let mut t = Script::established(&super::super::settings::Settings { tso_max: 8 * MSS, ..plain() });
    t.output();
    t.snd = 4 * MSS;
    t.pcb.set_urgent(3 * MSS);
    assert_eq!(t.lens(), [MSS; 4]);
    let _ = t.input(t.ack_of(4 * MSS, WND), &[]);
    t.snd = 1;
    t.lens();
    let _ = t.input(t.ack_of(1, WND), &[]);
    assert_eq!(t.write(4 * MSS), [4 * MSS]);
}

#[test]
fn an_acknowledgment_points_at_urgent_data_that_the_window_holds_back() {
    let mut t = Script::established(&plain());
    t.output();
    let _ = t.input(t.ack_of(0, 0), &[]);
    t.snd = 3;
    t.pcb.set_urgent(t.snd);
    assert_eq!(t.lens(), [], "the window is shut");
    let nxt = t.pcb.rcv_nxt();
    let _ = t.input(Header { window: 0, seq: nxt + 1, ..t.seg(ACK) }, b"behind a hole");
    assert_eq!(marks(&mut t), [(true, 3)]);
    // The peer does not look into the one that it is to answer.
    let una = t.pcb.snd_una();
    for _ in 0..2 {
        let probes = next_probes(&mut t);
        assert_eq!(probes, [(una, 3), (una - 1, 4)]);
    }
    let far = u32::from(u16::MAX);
    t.snd = far + 1;
    for (len, numbers) in [(far, vec![una, una - 1]), (far + 1, vec![una - 1])] {
        t.pcb.set_urgent(len);
        let probes: Vec<_> = next_probes(&mut t).iter().map(|(seq, _)| *seq).collect();
        assert_eq!(probes, numbers);
    }
}

#[test]
fn a_mark_is_new_unless_the_stream_has_passed_it() {
    let mut t = Script::established(&plain());
    let nxt = t.pcb.rcv_nxt();
    let header = |t: &Script, urgent| Header { urgent, ..t.seg(ACK.with(URG)) };
    let ahead = header(&t, 9);
    assert_eq!(ahead.urgent_mark(), nxt + 8);
    let input = t.input(ahead, b"abc");
    assert_eq!((input.deliver.as_slice(), input.events), (&b"abc"[..], Events::URGENT));
    // Repeated without text: the mark is still ahead of the received data.
    let rest = header(&t, 6);
    assert_eq!(t.input(rest, b"").events, Events::URGENT);
    assert_eq!(t.input(rest, b"defghi").events, Events::URGENT);
    let passed = Header { seq: nxt, ..header(&t, 9) };
    assert_eq!(t.input(passed, b"abcdefghijkl").events, Events::NONE, "the stream has passed it");
    assert_eq!(header(&t, 0).urgent_mark(), t.pcb.rcv_nxt(), "a pointer of zero is the first byte");
}

#[test]
fn a_mark_is_processed_through_a_closed_window() {
    let mut t = Script::established(&plain());
    let _ = t.input(t.seg(ACK), &vec![1; usize::from(WND)]);
    t.space = 0;
    t.output();
    let header = Header { urgent: 3, ..t.seg(ACK.with(URG)) };
    let input = t.input(header, b"abc");
    assert_eq!((input.deliver.len(), input.events), (0, Events::URGENT));
}

#[test]
fn no_byte_and_a_closed_connection_have_no_mark() {
    let mut t = Script::established(&plain());
    t.pcb.set_urgent(0);
    assert!(t.pcb.rare.urgent().is_none());
    let _ = t.pcb.abort();
    t.pcb.set_urgent(10);
    assert!(t.pcb.rare.urgent().is_none());
}

#[test]
fn a_mark_and_the_end_of_a_record_that_are_set_during_the_handshake_count_from_behind_the_syn() {
    let mut t = Script::connect(&plain());
    t.output();
    t.pcb.set_urgent(10);
    t.pcb.end_record(20);
    t.snd = 30;
    let _ = t.input(t.raw(IRS, ISS + 1, SYN_ACK), &[]);
    let _ = t.input(Header { window: WND, ..t.seg(ACK) }, b"a window");
    let sent: Vec<_> = t.output().iter().map(|sent| (sent.len, sent.header().urgent)).collect();
    assert_eq!(sent, [(20, 10), (10, 0)]);
}

/// The pointer names a byte that is farther than the field counts, and it has left or not.
#[test]
fn a_segment_that_goes_again_points_no_farther_than_what_was_sent() {
    for (sent, expected) in [(60_000, (true, u16::MAX)), (66_000, (false, 0))] {
        let mut t = Script::established(&plain());
        t.pcb.set_urgent(70_000);
        t.pcb.snd_nxt = t.pcb.snd_una + sent;
        let mut header = t.seg(ACK);
        header.seq = t.pcb.snd_una;
        t.pcb.attach_urgent(&mut header);
        assert_eq!((header.flags.has(URG), header.urgent), expected, "{sent}");
    }
}
