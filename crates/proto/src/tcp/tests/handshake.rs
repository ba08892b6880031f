//! Opening: active, passive, simultaneous, refused, unanswered; options negotiated.

use super::super::accepted::{Accepted, DEFAULT_MSS, DEFAULT_MSS_V6, SynAcks};
use super::super::events::Events;
use super::super::pcb::Pcb;
use super::super::segment::{Header, Options, Timestamps};
use super::super::settings::Settings;
use super::super::state::State;
use super::script::{ACK, IRS, ISS, RST, SYN, SYN_ACK, Script, ms, plain, secs};
use super::world::{Link, World, pattern};
use crate::seq::SeqNum;

fn syn_ack(t: &Script, options: Options) -> Header {
    Header { options, ..t.raw(IRS, ISS + 1, SYN_ACK) }
}

#[test]
fn the_syn_carries_every_option_and_an_unscaled_window() {
    let s = Settings { ts_offset: 7, ..Settings::default() };
    let mut t = Script::connect(&s);
    let sent = t.output();
    assert_eq!(sent.len(), 1);
    let syn = sent[0].header();
    assert_eq!((syn.seq, syn.flags, syn.window), (SeqNum::new(ISS), SYN, 65_535));
    let expected = Options {
        mss: Some(1460),
        window_scale: Some(7),
        sack_permitted: true,
        timestamps: Some(Timestamps { val: 1007, ecr: 0 }),
        ..Options::default()
    };
    assert_eq!(syn.options, expected);
}

#[test]
fn options_that_the_peer_does_not_answer_are_off() {
    let mut t = Script::connect(&Settings::default());
    t.output();
    let input = t.input(syn_ack(&t, Options::default()), &[]);
    assert!(input.events.has(Events::CONNECTED));
    assert_eq!(t.pcb.mss(), DEFAULT_MSS);
    assert!(!t.pcb.timestamps() && !t.pcb.sack_permitted());
    assert_eq!(t.pcb.rcv_wnd_max(), 65_535);
    let ack = t.output()[0].header();
    assert_eq!((ack.flags, ack.ack, ack.options), (ACK, SeqNum::new(IRS + 1), Options::default()));
}

#[test]
fn options_that_the_peer_answers_are_on() {
    let mut t = Script::connect(&Settings { ts_offset: 7, ..Settings::default() });
    t.output();
    t.now = t.now + ms(30);
    let options = Options {
        mss: Some(9000),
        window_scale: Some(3),
        sack_permitted: true,
        timestamps: Some(Timestamps { val: 4000, ecr: 1007 }),
        ..Options::default()
    };
    let _ = t.input(syn_ack(&t, options), &[]);
    assert_eq!(t.pcb.mss(), 1460 - 12, "our own MSS caps it, timestamps take their part");
    assert_eq!(t.pcb.srtt(), Some(ms(30)));
    assert_eq!(t.pcb.snd_wnd(), 50_000, "the window of a SYN is not scaled");
    let ack = t.output()[0].header();
    assert_eq!(ack.options.timestamps, Some(Timestamps { val: 1037, ecr: 4000 }));
    assert_eq!(u32::from(ack.window), (256 * 1024) >> 7);
    t.peer_ts = Some(Timestamps { val: 4001, ecr: 1037 });
    let _ = t.input(t.seg(ACK), &[]);
    assert_eq!(t.pcb.snd_wnd(), 400_000);
}

#[test]
fn an_absurdly_small_mss_is_not_believed() {
    let mut t = Script::connect(&plain());
    t.output();
    let _ = t.input(syn_ack(&t, Options { mss: Some(0), ..Options::default() }), &[]);
    assert_eq!(t.pcb.mss(), 88);
}

#[test]
fn a_peer_that_announces_no_mss_gets_the_default_of_its_family() {
    for default in [DEFAULT_MSS, DEFAULT_MSS_V6] {
        let mut t = Script::connect(&Settings { mss: 1460, peer_mss_default: default, ..plain() });
        t.output();
        let _ = t.input(syn_ack(&t, Options::default()), &[]);
        assert_eq!(t.pcb.mss(), default);
    }
}

#[test]
fn text_and_fin_on_the_syn_ack_are_accepted() {
    let mut t = Script::connect(&plain());
    t.output();
    let header = Header { flags: SYN_ACK.with(super::script::FIN), ..syn_ack(&t, Options::default()) };
    let input = t.input(header, b"hello");
    assert_eq!(input.deliver, b"hello");
    assert_eq!(input.events, Events::CONNECTED.with(Events::PEER_FIN));
    assert_eq!(t.pcb.state(), State::CloseWait);
    assert_eq!(t.output()[0].header().ack, SeqNum::new(IRS + 7));
}

#[test]
fn a_reset_in_answer_to_the_syn_refuses() {
    let mut t = Script::connect(&plain());
    t.output();
    assert!(t.input(t.raw(0, 0, RST), &[]).events.is_empty(), "without ACK it proves nothing");
    let input = t.input(t.raw(0, ISS + 1, RST.with(ACK)), &[]);
    assert_eq!(input.events, Events::REFUSED.with(Events::CLOSED));
}

#[test]
fn a_syn_is_repeated_with_back_off_and_then_given_up() {
    let mut t = Script::connect(&plain());
    t.output();
    let sent = t.wait(secs(200));
    let times: Vec<u64> = sent.iter().map(|(at, _)| at.as_secs()).collect();
    assert_eq!(times, [1, 3, 7, 15, 31, 63]);
    assert!(sent.iter().all(|(_, s)| s.header().flags == SYN && s.header().seq == SeqNum::new(ISS)));
    let along = Events::SILENT.with(Events::REHASH);
    assert_eq!(t.events, Events::TIMED_OUT.with(Events::CLOSED).with(along));
    assert_eq!(t.pcb.next_deadline(), None);
}

#[test]
fn a_lost_syn_leaves_three_seconds_and_one_lost_twice_one_segment() {
    for (wait, cwnd) in [(1001, 10_000), (3001, 1000)] {
        let mut t = Script::connect(&plain());
        t.output();
        let _ = t.wait(ms(wait));
        let _ = t.input(syn_ack(&t, Options { mss: Some(1000), ..Options::default() }), &[]);
        assert_eq!((t.pcb.cwnd(), t.pcb.rto()), (cwnd, secs(3)));
        assert_eq!(t.pcb.srtt(), None, "Karn: which SYN was it?");
    }
}

#[test]
fn simultaneous_open_connects_both_ends_and_carries_data() {
    for seed in 0..50 {
        let mut w = World::simultaneous(seed, Settings::default(), plain(), Link::CLEAN);
        w.run("simultaneous open", |w| w.ends.iter().all(|e| e.state() == State::Established));
        let events: Vec<Events> = w.ends.iter().map(|e| e.events).collect();
        assert_eq!(events, [Events::CONNECTED, Events::CONNECTED]);
        w.ends[0].to_write = pattern(10_000, 1);
        w.ends[1].to_write = pattern(10_000, 2);
        w.run("data", |w| w.ends.iter().all(|e| e.received.len() == 10_000));
    }
}

#[test]
fn simultaneous_open_survives_losses() {
    for seed in 0..100 {
        let link = Link { loss: 30, ..Link::CLEAN };
        let mut w = World::simultaneous(seed, plain(), plain(), link);
        w.run("simultaneous open", |w| w.ends.iter().all(|e| e.state() == State::Established));
    }
}

#[test]
fn in_syn_received_a_wrong_ack_is_reset_and_a_reset_refuses() {
    let mut t = Script::in_state(State::SynReceived, &plain(), false);
    let input = t.input(t.raw(IRS + 1, ISS + 9, ACK), &[]);
    assert_eq!(input.reply.map(|r| (r.seq, r.flags)), Some((SeqNum::new(ISS + 9), RST)));
    assert_eq!(t.pcb.state(), State::SynReceived);
    let input = t.input(t.raw(IRS + 1, 0, RST), &[]);
    assert_eq!(input.events, Events::REFUSED.with(Events::CLOSED));
}

#[test]
fn syn_received_repeats_its_syn_ack() {
    let mut t = Script::in_state(State::SynReceived, &plain(), false);
    let sent = t.wait(secs(2));
    assert!(!sent.is_empty() && sent.iter().all(|(_, s)| s.header().flags == SYN_ACK));
}

#[test]
fn a_close_before_the_handshake_is_done_deletes_or_waits() {
    let mut t = Script::connect(&plain());
    t.output();
    assert_eq!(t.pcb.close(0, t.now), None);
    assert_eq!((t.pcb.state(), t.pcb.next_deadline()), (State::Closed, None));

    let mut t = Script::in_state(State::SynReceived, &plain(), false);
    assert_eq!(t.pcb.close(0, t.now), None);
    assert!(t.output().is_empty());
    let _ = t.input(t.raw(IRS + 1, ISS + 1, ACK), &[]);
    assert_eq!(t.pcb.state(), State::FinWait1);
    assert!(t.output()[0].header().flags.has(super::script::FIN));
}

#[test]
fn an_accepted_connection_sends_nothing_without_a_reason() {
    let mut t = Script::established(&Settings {
        rcv_buf: 1 << 20,
        rcv_buf_max: 1 << 20,
        window_scaling: true,
        ..plain()
    });
    assert!(t.output().is_empty());
    assert_eq!(t.pcb.next_deadline(), None);
    let _ = t.input(t.seg(ACK), &[0; 2000]);
    assert_eq!(t.output().len(), 1);
}

#[test]
fn the_syn_ack_of_crossing_syns_is_acknowledged_as_a_duplicate_syn() {
    let mut t = Script::connect(&Settings { sack: true, ..plain() });
    t.output();
    let options = Options { sack_permitted: true, ..Options::default() };
    let _ = t.input(Header { options, ..t.raw(IRS, 0, SYN) }, &[]);
    assert_eq!(t.output()[0].header().flags, SYN_ACK);
    let input = t.input(t.raw(IRS, ISS + 1, SYN_ACK), &[]);
    assert!(input.events.has(Events::CONNECTED));
    let sent = t.output();
    let header = sent[0].header();
    assert_eq!((sent.len(), header.flags, header.ack), (1, ACK, SeqNum::new(IRS + 1)));
    let blocks: Vec<_> =
        header.options.sack.as_slice().iter().map(|b| (b.start.raw(), b.end.raw())).collect();
    assert_eq!(blocks, [(IRS, IRS + 1)]);
    assert!(t.output().is_empty());
}

/// Which saves a packet; within one process it would only keep the peer waiting.
#[test]
fn the_last_acknowledgment_waits_for_text_of_an_application_that_writes_first() {
    for (quickack, writes_first, lossless, waits) in [
        (true, false, false, false),
        (false, false, false, true),
        (true, true, false, true),
        (false, true, true, false),
    ] {
        let settings = Settings { quickack, writes_first, lossless, ..plain() };
        let begin = || {
            let mut t = Script::connect(&settings);
            t.output();
            let _ = t.input(syn_ack(&t, Options::default()), &[]);
            let sent = t.lens();
            assert_eq!(sent, if waits { vec![] } else { vec![0] }, "{settings:?}");
            t
        };
        let mut t = begin();
        assert_eq!(t.write(100), [100]);
        assert!(t.wait(ms(150)).is_empty(), "the text was the acknowledgment");
        // The application changes its mind: 200 ms are the most.
        let mut t = begin();
        let late: Vec<_> = t.wait(ms(1_000)).iter().map(|(at, sent)| (at.as_millis(), sent.len)).collect();
        assert_eq!(late, if waits { vec![(200, 0)] } else { vec![] }, "{settings:?}");
        assert_eq!(t.pcb.quickack(), quickack || waits);
    }
}

#[test]
fn what_is_known_of_the_syn_acks_decides_on_the_first_window_and_timeout() {
    let measured = Some(ms(50));
    for (syn_acks, rtt, segments, rto_ms) in [
        (SynAcks::One, measured, 10, 240),
        (SynAcks::One, None, 10, 1_000),
        (SynAcks::Unknown, measured, 10, 240),
        (SynAcks::Unknown, None, 10, 3_000),
        (SynAcks::Several, None, 10, 3_000),
        (SynAcks::Many, None, 1, 3_000),
        (SynAcks::Many, measured, 1, 240),
    ] {
        let (accepted, now) = Script::accepted(&plain());
        let pcb = Pcb::<Vec<u8>>::accept(&plain(), &Accepted { syn_acks, rtt, ..accepted }, now);
        assert_eq!(pcb.cwnd(), segments * u32::from(pcb.mss()), "{syn_acks:?} {rtt:?}");
        assert_eq!(pcb.rtt.rto_us(pcb.tuning.rto_max_us), rto_ms * 1_000, "{syn_acks:?} {rtt:?}");
    }
}
