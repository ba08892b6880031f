//! Segments whose sender has not proven that it is the peer: they change no state (`docs/blind.md`).

use core::time::Duration;

use super::super::ecn::EcnMode;
use super::super::events::Events;
use super::super::segment::{Flags, Header, Timestamps};
use super::super::settings::Settings;
use super::super::state::State;
use super::super::user_timeout::UserTimeout;
use super::script::{ACK, FIN, IRS, ISS, Script, WND, ms, plain, secs};
use crate::seq::SeqNum;

/// Everything that a segment may carry is agreed on.
fn all() -> Settings {
    Settings { timestamps: true, sack: true, ecn: EcnMode::On, user_timeout_option: true, ..plain() }
}

/// The pcb's whole state, except the fields that a challenge changes.
fn state_of(t: &Script) -> String {
    let mut text = format!("{:?}", t.pcb);
    for field in ["ack_now: ", "is_challenged: ", "challenged_at_ms: "] {
        let begin = text.find(field).expect("a field of that name");
        let end = text[begin..].find(',').expect("fields are separated") + begin;
        text.replace_range(begin..end, "");
    }
    text
}

/// The same, without what is owed to a peer that repeats text: the report of a duplicate, and quick acknowledgments.
fn state_beside_reports(t: &Script) -> String {
    let mut text = state_of(t);
    for (field, end) in [("acks: ", "}"), ("ato_us: ", ","), ("reass: ", "recovery: ")] {
        let begin = text.find(field).expect("a field of that name");
        let end = text[begin..].find(end).expect("its end") + begin;
        text.replace_range(begin..end, "");
    }
    text
}

/// The reason why a segment is not proven.
type Change = fn(&mut Header);

/// The fields that a sender that sees none of our segments cannot guess, as changes of a segment that is in order.
const UNPROVEN: [(&str, Change); 4] = [
    ("acknowledges what was not sent", |header| header.ack += 9_999),
    ("acknowledges what is long gone", |header| header.ack = header.ack - (u32::from(WND) + 2_000)),
    ("has no ACK bit", |header| header.flags = header.flags.without(Flags::ACK)),
    ("is older than TS.Recent", |header| {
        header.options.timestamps = Some(Timestamps { val: (1 << 31) + 1_000, ecr: 0 });
    }),
];

/// The payload that it may carry, and where it may begin.
fn headers(t: &Script) -> Vec<Header> {
    let nxt = t.pcb.rcv_nxt();
    let marks = [Flags::NONE, Flags::CE, Flags::CWR, Flags::ECE, Flags::URG, Flags::PSH, FIN];
    let mut headers = Vec::new();
    for seq in [nxt, nxt + 100, nxt + 45_000, nxt - 1, nxt - 3, nxt - 600, nxt + 60_000] {
        for flags in marks {
            let mut header = Header { seq, flags: ACK.with(flags), ..t.seg(ACK) };
            header.options.timestamps = Some(Timestamps { val: 200_000, ecr: 7 });
            header.options.user_timeout = Some(UserTimeout::new(secs(200)));
            header.options.sack =
                [super::super::sack::SackBlock { start: t.pcb.snd_una(), end: t.pcb.snd_max() }]
                    .into_iter()
                    .collect();
            (header.window, header.urgent) = (17, 3);
            headers.push(header);
        }
    }
    headers
}

#[test]
fn unproven_segments_change_no_state_and_are_challenged_within_the_limit() {
    use State::{CloseWait, Closing, Established, FinWait1, FinWait2, LastAck, TimeWait};
    for name in [Established, CloseWait, FinWait1, FinWait2, Closing, LastAck, TimeWait] {
        for (what, change) in UNPROVEN {
            let mut t = Script::in_state(name, &all(), false);
            if name == Established {
                let _ = t.input(t.seg(ACK), &[1; 500]);
                let ahead = Header { seq: t.pcb.rcv_nxt() + 700, ..t.seg(ACK) };
                let _ = t.input(ahead, b"behind a hole");
                t.write(300);
            }
            t.output();
            t.now = t.now + ms(5);
            let _ = t.pcb.on_timer(t.now);
            t.output();
            let mut answers = 0;
            for mut header in headers(&t) {
                change(&mut header);
                for len in [0, 1, 700] {
                    // Text that has come before is the peer's, as far as can be told.
                    let is_repeated = what == "is older than TS.Recent"
                        && (len > 0 || header.flags.has(FIN))
                        && header.seq.before(t.pcb.rcv_nxt());
                    let state = if is_repeated { state_beside_reports } else { state_of };
                    let before = state(&t);
                    let input = t.input(header, &vec![0x66; len]);
                    assert!(input.deliver.is_empty() && input.acked == 0 && input.reply.is_none(), "{what}");
                    assert_eq!(input.events, Events::NONE, "{what}");
                    assert_eq!(state(&t), before, "{name:?}: {what}: {header:?}, {len} bytes");
                    let sent = t.output();
                    assert!(sent.iter().all(|answer| answer.len == 0));
                    // Text with an old timestamp and an acknowledgment that may be the peer's is answered as repeated text is.
                    let is_limited =
                        what != "is older than TS.Recent" || (len == 0 && !header.flags.has(FIN));
                    answers += if is_limited { sent.len() } else { 0 };
                }
            }
            assert_eq!(answers, usize::from(what != "has no ACK bit"), "{name:?}: {what}");
        }
    }
}

#[test]
fn paws_does_not_drop_the_peers_text_after_a_forged_segment() {
    for (flags, ack) in [(FIN, ISS + 9_999), (Flags::FIN, 0), (Flags::NONE, 0)] {
        let mut t = Script::established(&all());
        let mut forged = t.raw(IRS + 1, ack, flags);
        forged.options.timestamps = Some(Timestamps { val: 200_000, ecr: 0 });
        let _ = t.input(forged, &[]);
        let _ = t.output();
        t.peer_ts = Some(Timestamps { val: 201, ecr: 0 });
        assert_eq!(t.input(t.seg(ACK), &[1; 1000]).deliver.len(), 1000, "{flags:?}");
        let answer = t.output()[0].header();
        assert_eq!(answer.ack, SeqNum::new(IRS + 1001));
        assert_eq!(answer.options.timestamps.map(|ts| ts.ecr), Some(201));
    }
}

#[test]
fn a_forged_segment_does_not_keep_a_silent_peer_alive() {
    let mut t = Script::established(&all());
    t.now = t.now + secs(5);
    let _ = t.input(t.raw(IRS + 1, ISS + 9_999, ACK), b"here I am");
    let _ = t.input(t.raw(IRS + 1, 0, Flags::SYN), &[]);
    assert_eq!(t.pcb.info(0, t.now).last_ack_recv, secs(5));
    // Nor does a probe, which asks and says nothing, as on Linux.
    let _ = t.input(Header { seq: t.pcb.rcv_nxt() - 1, ..t.seg(ACK) }, &[]);
    assert_eq!(t.pcb.info(0, t.now).last_ack_recv, secs(5));
    let _ = t.input(t.seg(ACK), &[]);
    assert_eq!(t.pcb.info(0, t.now).last_ack_recv, Duration::ZERO);
}

#[test]
fn a_proven_segment_is_accepted() {
    let mut t = Script::established(&all());
    let mut header = t.seg(ACK.with(Flags::CE));
    header.options.user_timeout = Some(UserTimeout::new(secs(200)));
    header.options.timestamps = Some(Timestamps { val: 300, ecr: 0 });
    let _ = t.input(header, b"text");
    assert_eq!(t.pcb.user_timeout(), Some(secs(200)));
    let answer = t.output()[0].header();
    assert!(answer.flags.has(Flags::ECE));
    assert_eq!(answer.options.timestamps.map(|ts| ts.ecr), Some(300));
}

#[test]
fn duplicate_text_is_reported_only_to_a_sender_with_a_plausible_acknowledgment() {
    let mut t = Script::established(&all());
    let first = t.seg(ACK);
    let _ = t.input(first, &[1; 500]);
    let _ = t.output();
    for (ack, is_reported) in [(ISS + 9_999, false), (ISS + 1, true)] {
        let _ = t.input(Header { ack: SeqNum::new(ack), ..first }, &[1; 500]);
        let answer = t.output()[0].header();
        assert_eq!(!answer.options.sack.is_empty(), is_reported, "{ack}");
    }
}
