//! Forged and outdated segments: RFC 5961, PAWS, resets, old duplicates.

use super::super::events::Events;
use super::super::input::{CHALLENGE_INTERVAL_MS, CHALLENGE_SPREAD_MS};
use super::super::segment::{Flags, Header, Timestamps};
use super::super::settings::Settings;
use super::super::state::State;
use super::script::{ACK, FIN, IRS, ISS, RST, SYN, SYN_ACK, Script, WND, ms, plain, secs};
use crate::seq::SeqNum;
use crate::time::Instant;

fn established() -> Script {
    Script::established(&plain())
}

fn with_timestamps() -> Script {
    Script::established(&Settings { timestamps: true, ..plain() })
}

/// Exactly one bare acknowledgment is sent in answer.
fn challenges(t: &mut Script, header: Header) -> bool {
    let input = t.input(header, &[]);
    assert_eq!(input.reply, None);
    let sent = t.output();
    assert!(sent.iter().all(|s| s.len == 0 && s.header().flags == ACK && s.header().ack == t.pcb.rcv_nxt()));
    sent.len() == 1
}

#[test]
fn only_a_reset_at_rcv_nxt_resets() {
    let mut t = established();
    let window = u32::from(WND);
    for seq in [IRS + 2, IRS + window] {
        let header = t.raw(seq, 0, RST);
        assert!(challenges(&mut t, header), "in the window: challenged");
        t.now = t.now + secs(1);
    }
    for seq in [IRS, IRS - 1000, IRS + window + 2] {
        let header = t.raw(seq, 0, RST);
        assert!(!challenges(&mut t, header), "outside: dropped in silence");
    }
    assert_eq!(t.pcb.state(), State::Established);
    let input = t.input(t.raw(IRS + 1, 0, RST), &[]);
    assert_eq!(input.events, Events::RESET.with(Events::CLOSED));
    assert_eq!((t.pcb.state(), t.pcb.next_deadline()), (State::Closed, None));
    assert!(t.output().is_empty());
}

#[test]
fn a_reset_is_processed_through_a_closed_window() {
    let mut t = established();
    let _ = t.input(t.seg(ACK), &vec![1; usize::from(WND)]);
    t.space = 0;
    t.output();
    let input = t.input(t.seg(RST), b"reason");
    assert!(input.events.has(Events::RESET));
}

#[test]
fn a_syn_in_any_synchronised_state_is_challenged_and_changes_nothing() {
    use State::{CloseWait, Closing, Established, FinWait1, FinWait2, LastAck, TimeWait};
    for state in [Established, CloseWait, FinWait1, FinWait2, Closing, LastAck, TimeWait] {
        let mut t = Script::in_state(state, &plain(), false);
        let before = t.pcb.rcv_nxt();
        for seq in [before.raw(), before.raw() + 10, before.raw() - 4000, IRS] {
            let header = t.raw(seq, 0, SYN);
            assert!(challenges(&mut t, header), "{state:?} {seq}");
            t.now = t.now + secs(1);
        }
        assert_eq!((t.pcb.state(), t.pcb.rcv_nxt()), (state, before));
    }
}

#[test]
fn challenges_are_limited_to_one_in_an_unpredictable_interval() {
    let mut t = established();
    let header = t.raw(IRS + 50, 0, RST);
    let mut seen = std::collections::HashSet::new();
    assert!(challenges(&mut t, header), "the first one at once");
    for _ in 0..200 {
        t.now = t.now + ms(u64::from(CHALLENGE_INTERVAL_MS) - 1);
        assert!(!challenges(&mut t, header));
        let late = (0..CHALLENGE_SPREAD_MS).find(|_| {
            t.now = t.now + ms(1);
            challenges(&mut t, header)
        });
        seen.insert(late.expect("the interval is over"));
    }
    assert!(seen.len() > 24, "{seen:?}");
}

#[test]
fn two_desynchronised_ends_do_not_answer_each_other_for_ever() {
    let (mut a, mut b) = (established(), established());
    let mut count = 0;
    let mut from_a = vec![a.raw(IRS + 60_000, ISS + 60_000, ACK)];
    for _ in 0..1000 {
        for header in from_a.drain(..) {
            let _ = b.input(Header { seq: header.seq + 100_000, ..header }, &[]);
        }
        for sent in b.output() {
            let _ = a.input(Header { seq: sent.header().seq + 100_000, ..sent.header() }, &[]);
        }
        from_a = a.output().iter().map(|t| t.header()).collect();
        count += from_a.len();
    }
    assert_eq!(count, 1);
}

#[test]
fn acknowledgments_of_unsent_or_very_old_data_are_challenged_and_their_data_dropped() {
    let mut t = established();
    t.write(100);
    for ack in [ISS + 102, ISS + 70_000, ISS.wrapping_sub(u32::from(WND))] {
        let input = t.input(t.raw(IRS + 1, ack, ACK), b"forged");
        assert!(input.deliver.is_empty() && input.acked == 0);
        assert_eq!(t.output().len(), 1);
        t.now = t.now + secs(1);
    }
    assert_eq!(t.pcb.rcv_nxt(), SeqNum::new(IRS + 1));
    let old_but_plausible = t.raw(IRS + 1, (ISS + 1).wrapping_sub(u32::from(WND)), ACK);
    assert_eq!(t.input(old_but_plausible, b"text").deliver, b"text");
}

#[test]
fn a_segment_without_ack_is_dropped() {
    let mut t = established();
    for (seq, flags) in [(IRS + 1, Flags::NONE), (IRS + 1, Flags::FIN), (IRS + 70_000, Flags::PSH)] {
        let input = t.input(t.raw(seq, 0, flags), b"text");
        assert!(input.deliver.is_empty());
        assert_eq!((t.pcb.rcv_nxt(), t.output().len()), (SeqNum::new(IRS + 1), 0), "{flags:?}");
    }
}

/// As on Linux (`tcp_timewait_state_process`).
#[test]
fn a_segment_without_ack_is_answered_out_of_the_window_behind_a_close() {
    for (closed, answers) in [(true, 1), (false, 0)] {
        let mut t = Script::in_state(State::FinWait2, &plain(), closed);
        assert!(t.input(t.raw(IRS + 1, 0, Flags::NONE), b"text").deliver.is_empty());
        assert_eq!(t.output().len(), 0);
        let _ = t.input(t.raw(IRS + 70_000, 0, Flags::NONE), &[]);
        assert_eq!(t.output().len(), answers);
    }
}

#[test]
fn paws_drops_an_older_timestamp_and_acknowledges() {
    let mut t = with_timestamps();
    t.peer_ts = Some(Timestamps { val: 98, ecr: 0 });
    assert!(t.input(t.seg(ACK), b"ghost").deliver.is_empty());
    assert_eq!(t.output().len(), 1);
    t.peer_ts = Some(Timestamps { val: 100, ecr: 0 });
    assert_eq!(t.input(t.seg(ACK), b"real").deliver, b"real");
    // One tick older, but it does not become the latest.
    t.peer_ts = Some(Timestamps { val: 99, ecr: 0 });
    assert_eq!(t.input(t.seg(ACK), b"as good").deliver, b"as good");
    assert_eq!(t.pcb.ts_recent, 100);
}

#[test]
fn a_timestamp_that_is_half_of_the_circle_away_is_not_old() {
    for (val, is_taken) in [(100 + (1 << 31), true), (101 + (1 << 31), false)] {
        let mut t = with_timestamps();
        t.peer_ts = Some(Timestamps { val, ecr: 0 });
        assert_eq!(!t.input(t.seg(ACK), b"text").deliver.is_empty(), is_taken, "{val}");
    }
}

#[test]
fn paws_gives_way_after_twenty_four_days_of_silence() {
    let mut t = with_timestamps();
    t.peer_ts = Some(Timestamps { val: 98, ecr: 0 });
    t.now = t.now + secs(24 * 24 * 3600);
    assert!(t.input(t.seg(ACK), b"still a ghost").deliver.is_empty());
    t.now = t.now + secs(1);
    assert_eq!(t.input(t.seg(ACK), b"awake").deliver, b"awake");
}

#[test]
fn a_segment_without_the_agreed_timestamp_is_taken_and_leaves_ts_recent() {
    let mut t = with_timestamps();
    t.peer_ts = None;
    assert_eq!(t.input(t.seg(ACK), b"bare").deliver, b"bare");
    let echo = t.output()[0].header().options.timestamps.map(|ts| ts.ecr);
    assert_eq!(echo, Some(100), "we go on to send them");
    // PAWS goes on for those that have one.
    t.peer_ts = Some(Timestamps { val: 98, ecr: 0 });
    assert!(t.input(t.seg(ACK), b"old").deliver.is_empty());
    t.peer_ts = None;
    let syn = t.seg(SYN);
    assert!(challenges(&mut t, syn));
    assert!(t.input(t.seg(RST), &[]).events.has(Events::RESET));
}

#[test]
fn ts_recent_is_that_of_the_earliest_unacknowledged_segment() {
    let mut t = with_timestamps();
    let _ = t.input(t.seg(ACK), b"first");
    t.peer_ts = Some(Timestamps { val: 150, ecr: 0 });
    let _ = t.input(t.seg(ACK), b"second");
    t.now = t.now + ms(40);
    let _ = t.pcb.on_timer(t.now);
    let echo = t.output()[0].header().options.timestamps.map(|ts| ts.ecr);
    assert_eq!(echo, Some(100));
    t.peer_ts = Some(Timestamps { val: 170, ecr: 0 });
    let _ = t.input(t.seg(FIN), &[]);
    assert_eq!(t.wait(ms(40))[0].1.header().options.timestamps.map(|ts| ts.ecr), Some(170));
}

#[test]
fn time_wait_is_not_cut_short_by_a_reset() {
    let mut t = Script::in_state(State::TimeWait, &plain(), true);
    assert!(t.input(t.seg(RST), &[]).events.is_empty());
    assert_eq!(t.pcb.state(), State::TimeWait);
}

#[test]
fn urgent_data_stays_in_the_stream() {
    let mut t = established();
    let header = Header { urgent: 3, ..t.seg(ACK.with(Flags::URG)) };
    assert_eq!(t.input(header, b"urgent").deliver, b"urgent");
}

#[test]
fn a_wrong_ack_of_our_syn_is_reset_with_its_own_number() {
    for ack in [ISS, ISS + 2, ISS - 5] {
        let mut t = Script::connect(&plain());
        t.output();
        let input = t.input(t.raw(IRS, ack, SYN_ACK), &[]);
        let reply = input.reply.expect("a reset");
        assert_eq!((reply.seq, reply.flags), (SeqNum::new(ack), RST));
        assert_eq!(t.pcb.state(), State::SynSent);
        assert_eq!(t.input(t.raw(IRS, ack, RST.with(ACK)), &[]).events, Events::NONE);
    }
}

#[test]
fn a_late_thread_does_not_decrease_tsval() {
    let mut t = with_timestamps();
    let val = |out: &[super::super::events::Transmit]| out[0].header().options.timestamps.map(|ts| ts.val);
    t.write(100);
    t.now = t.now + ms(20);
    let _ = t.input(t.ack_of(100, WND), &[]);
    t.snd += 100;
    let newest = val(&t.output()).expect("timestamps");
    // Another thread read the clock 15 ms ago, and only now has its turn.
    t.now = Instant::from_micros(t.now.as_micros() - 15_000);
    t.pcb.shutdown_write();
    let fin = t.output();
    assert!(fin[0].header().flags.has(Flags::FIN));
    assert_eq!(val(&fin), Some(newest), "the peer would drop an older one as an old duplicate");
}

/// As text out of the window is (RFC 7323 section 5.3 R1), and no challenge is used up for it. With an acknowledgment that nobody at the other end can have sent it is one.
#[test]
fn text_with_an_old_timestamp_is_answered_each_time() {
    for (ack, answers) in [(ISS + 1, 10), (ISS + 70_000, 1)] {
        let mut t = with_timestamps();
        let ts = t.pcb.ts_recent.wrapping_sub(2);
        let mut header = t.raw(IRS + 1, ack, ACK);
        header.options.timestamps = Some(Timestamps { val: ts, ecr: 0 });
        let answered = (0..10).filter(|_| {
            let input = t.input(header, b"text");
            assert!(input.deliver.is_empty());
            t.output().len() == 1
        });
        assert_eq!(answered.count(), answers);
    }
}

/// The update that opened the window may have been lost, and the prober would double its wait. Nothing asks as often for an answer as the limit allows.
#[test]
fn a_probe_is_answered_sooner_than_a_challenge() {
    for (seq, wait_ms, answers) in
        [(IRS, 99, false), (IRS, 100, true), (IRS - 1, 499, false), (IRS - 1, 600, true)]
    {
        let mut t = established();
        let probe = t.raw(IRS, ISS + 1, ACK);
        assert!(challenges(&mut t, probe));
        t.now = t.now + ms(wait_ms);
        let header = t.raw(seq, ISS + 1, ACK);
        assert_eq!(challenges(&mut t, header), answers, "{seq} {wait_ms}");
    }
}
