//! Keepalive and the slots that timers share.

use super::super::delack::QUICK_ACKS_MAX;
use super::super::events::Events;
use super::super::info::TimerKind;
use super::super::settings::{KeepaliveSettings, Settings};
use super::super::state::State;
use super::script::{ACK, ISS, MSS, RST, Script, WND, ms, plain, secs};
use crate::seq::SeqNum;

fn keepalive() -> KeepaliveSettings {
    KeepaliveSettings { enabled: true, ..KeepaliveSettings::default() }
}

fn kept() -> Script {
    Script::established(&Settings { keepalive: keepalive(), ..plain() })
}

#[test]
fn a_silent_peer_is_probed_and_given_up() {
    let mut t = kept();
    let sent = t.wait(secs(10_000));
    let times: Vec<u64> = sent.iter().map(|(at, _)| at.as_secs()).collect();
    let probes: Vec<u64> = (0..10).map(|i| 7200 + 75 * i).collect();
    assert_eq!(times, probes, "nine probes, and the reset one interval later");
    let probe = sent[0].1.header();
    assert_eq!((probe.seq, probe.flags, sent[0].1.len), (SeqNum::new(ISS), ACK, 0));
    assert!(sent[9].1.header().flags.has(RST));
    assert!(t.events.has(Events::TIMED_OUT));
    assert_eq!(t.pcb.next_deadline(), None);
}

#[test]
fn an_answer_to_a_probe_restarts_the_idle_time() {
    for interval in [75, 7200, 20_000] {
        let settings = KeepaliveSettings { interval: secs(interval), ..keepalive() };
        let mut t = Script::established(&Settings { keepalive: settings, ..plain() });
        for _ in 0..30 {
            let deadline = t.pcb.next_deadline().expect("runs");
            let wait = deadline.since(t.now);
            let _ = t.wait(wait);
            t.now = t.now + secs(1);
            let _ = t.input(t.seg(ACK), &[]);
        }
        assert_eq!(t.pcb.state(), State::Established, "{interval}");
    }
}

#[test]
fn a_keepalive_probe_has_the_blocks_of_what_waits_behind_a_hole() {
    let mut t = Script::established(&Settings { keepalive: keepalive(), sack: true, ..plain() });
    let mut behind = t.seg(ACK);
    behind.seq += 10;
    let _ = t.input(behind, b"text");
    t.output();
    let sent = t.wait(keepalive().idle);
    let probe = sent.last().unwrap().1.header();
    assert_eq!((probe.seq, probe.options.sack.len()), (t.pcb.snd_una() - 1, 1));
}

#[test]
fn a_keepalive_probe_is_answered() {
    let mut t = Script::established(&plain());
    let mut probe = t.seg(ACK);
    probe.seq = probe.seq - 1;
    let _ = t.input(probe, &[]);
    let sent = t.output();
    assert_eq!((sent.len(), sent[0].header().ack), (1, t.pcb.rcv_nxt()));
}

#[test]
fn data_in_flight_leaves_detection_to_the_retransmission_timer() {
    let mut t = kept();
    let _ = t.wait(secs(7199));
    t.write(10);
    let sent = t.wait(secs(2));
    assert!(!sent.is_empty() && sent.iter().all(|(_, s)| s.len == 10), "repetitions, no probe");
    let _ = t.input(t.ack_of(10, WND), &[]);
    assert!(t.wait(secs(7190)).is_empty());
}

#[test]
fn unanswered_keepalive_probes_are_told() {
    let mut t = kept();
    let probes = |t: &Script| t.pcb.info(0, t.now).probes;
    let _ = t.wait(secs(7300));
    assert_eq!(probes(&t), 2);
    let _ = t.input(t.seg(ACK), b"");
    assert_eq!(probes(&t), 0, "the peer is there");
}

#[test]
fn probes_without_an_answer_count_on_where_keepalive_is_switched_off_and_on() {
    let mut t = kept();
    let probes = |t: &Script| t.pcb.info(0, t.now).probes;
    let _ = t.wait(secs(7300));
    t.pcb.set_keepalive(KeepaliveSettings::default(), false, t.now);
    assert_eq!((probes(&t), t.pcb.next_deadline()), (2, None));
    t.pcb.set_keepalive(keepalive(), false, t.now);
    let _ = t.wait(secs(7200));
    assert_eq!(probes(&t), 3);
    t.pcb.set_keepalive(KeepaliveSettings::default(), false, t.now);
    let _ = t.input(t.seg(ACK), b"");
    assert_eq!(probes(&t), 0, "the peer is there");
}

#[test]
fn probes_without_an_answer_count_on_beside_text() {
    let mut t = kept();
    let probes = |t: &Script| t.pcb.info(0, t.now).probes;
    let _ = t.wait(secs(7210));
    let _ = t.write(100);
    // The timer runs while the text is out.
    let _ = t.wait(secs(80));
    assert_eq!(probes(&t), 1);
}

#[test]
fn keepalive_can_be_switched_on_and_off() {
    let mut t = Script::established(&plain());
    assert_eq!(t.pcb.next_deadline(), None);
    t.pcb.set_keepalive(keepalive(), false, t.now);
    assert_eq!(t.pcb.next_deadline(), Some(t.now + secs(7200)));
    t.pcb.set_keepalive(KeepaliveSettings::default(), false, t.now);
    assert_eq!(t.pcb.next_deadline(), None);
}

#[test]
fn a_keepalive_of_zero_does_not_spin() {
    let zero = KeepaliveSettings { idle: secs(0), interval: secs(0), count: 3, ..keepalive() };
    let mut t = Script::established(&Settings { keepalive: zero, ..plain() });
    assert!(t.wait(secs(1)).len() <= 4);
    assert_eq!(t.pcb.state(), State::Closed);
}

#[test]
fn an_early_call_runs_nothing() {
    let mut t = kept();
    let delack = (0..=QUICK_ACKS_MAX).find_map(|_| {
        let _ = t.input(t.seg(ACK), b"x");
        t.output().is_empty().then(|| t.pcb.next_deadline())
    });
    let deadline = delack.flatten().expect("delayed acknowledgment");
    let _ = t.pcb.on_timer(t.now);
    assert!(t.output().is_empty());
    assert_eq!(t.pcb.next_deadline(), Some(deadline));
}

/// RFC 6298 section 5.3: only an acknowledgment of new data restarts the timer.
#[test]
fn an_acknowledgment_of_nothing_new_leaves_the_retransmission_timer_as_it_is() {
    for lossless in [false, true] {
        let mut t = Script::established(&Settings { lossless, ..plain() });
        assert_eq!(t.write(3 * MSS).len(), 3);
        let first = t.pcb.running_timer(t.now).unwrap();
        t.now = t.now + ms(50);
        let _ = t.input(t.ack_of(0, WND), &[]);
        let left = t.pcb.running_timer(t.now).unwrap().left;
        assert_eq!(left, first.left - ms(50), "lossless: {lossless}");
        let _ = t.input(t.ack_of(MSS, WND), &[]);
        let timer = t.pcb.running_timer(t.now).unwrap();
        assert_eq!((timer.kind, timer.left), (TimerKind::Rexmt, t.pcb.rto()), "lossless: {lossless}");
    }
}
