//! SYN cookies: the options that they restore, how long they are valid, and which are refused.

use super::*;
use crate::tcp::isn::Secret;
use crate::tcp::syncache::cookie::{Ends, MSS_TABLE, PERIOD, PERIODS_MAX, check, syn_ack};

const SECRET: Secret = Secret::new(*b"a cookie's key..");
const ENDS: Ends<'static> = Ends { local: b"10.0.0.1:80", remote: b"10.0.0.2:4000" };
const TS_OFFSET: u32 = 0xffff_fff0;

/// A client's answer to the SYN-ACK.
fn third_of(syn: &Header, answer: &Header) -> Header {
    let timestamps = answer.options.timestamps.map(|ts| Timestamps { val: 95, ecr: ts.val });
    Header {
        seq: syn.seq + 1,
        ack: answer.seq + 1,
        flags: Flags::ACK,
        window: 502,
        options: Options { timestamps, ..Options::default() },
        ..Header::default()
    }
}

fn back(syn: &Header, params: &ListenParams, made: Instant, now: Instant) -> Option<Accepted> {
    let answer = syn_ack(&SECRET, ENDS, syn, params, TS_OFFSET, made);
    check(&SECRET, ENDS, &third_of(syn, &answer), params, TS_OFFSET, now)
}

#[test]
fn every_agreement_is_restored_with_timestamps() {
    for millis in [0, 1, 63, 64, 1000, 64_000, 4_294_967_295] {
        for (scale, sack) in [(None, true), (Some(0), false), (Some(9), true), (Some(14), false)] {
            let ecn = sack == scale.is_none();
            let mut syn = syn();
            syn.flags = if ecn { OFFER } else { Flags::SYN };
            (syn.options.window_scale, syn.options.sack_permitted) = (scale, sack);
            let answer = syn_ack(&SECRET, ENDS, &syn, &PARAMS, TS_OFFSET, at(millis));
            assert_eq!((answer.options.sack_permitted, answer.flags.has(Flags::ECE)), (sack, ecn));
            assert_eq!(answer.options.window_scale, scale.map(|_| 7));
            let got = back(&syn, &PARAMS, at(millis), at(millis + 80)).unwrap();
            // The timestamp that is echoed was rounded down, for the options.
            assert!((80..144).contains(&got.rtt.unwrap().as_millis()), "{millis} {got:?}");
            let expected = Accepted {
                iss: answer.seq,
                irs: IRS,
                peer_mss: 1460,
                snd_wnd: 502,
                rcv_wnd: 65_535,
                window_scale: scale.map(|snd| WindowScale { snd, rcv: 7 }),
                timestamps: Some(TimestampState {
                    ts_recent: 95,
                    ts_recent_at: at(millis + 80),
                    ts_offset: TS_OFFSET,
                }),
                sack_permitted: sack,
                ecn,
                accurate_ecn: None,
                rtt: got.rtt,
                syn_acks: SynAcks::Unknown,
                rehashes: 0,
            };
            assert_eq!(got, expected, "{millis} {scale:?} {sack}");
        }
    }
}

#[test]
fn the_clock_of_a_cookie_never_runs_ahead() {
    for millis in (0..200).chain([u64::from(u32::MAX), u64::from(u32::MAX) + 5]) {
        let answer = syn_ack(&SECRET, ENDS, &syn(), &PARAMS, TS_OFFSET, at(millis));
        let sent = answer.options.timestamps.unwrap().val;
        let clock = timestamp::value(at(millis), TS_OFFSET);
        assert!(!timestamp::older(clock, sent), "{millis}");
        assert!(clock.wrapping_sub(sent) < 128, "{millis}: too far back for a round trip to mean anything");
    }
}

#[test]
fn without_timestamps_only_the_mss_is_agreed_on() {
    let mut plain = syn();
    plain.options.timestamps = None;
    plain.flags = OFFER;
    let deaf = ListenParams { timestamps: false, ..PARAMS };
    for (syn, params) in [(plain, PARAMS), (syn(), deaf)] {
        let answer = syn_ack(&SECRET, ENDS, &syn, &params, TS_OFFSET, at(5));
        let expected = Options { mss: Some(PARAMS.mss), ..Options::default() };
        assert_eq!(answer.options, expected);
        let got = back(&syn, &params, at(5), at(6)).unwrap();
        assert_eq!(
            (got.window_scale, got.timestamps, got.sack_permitted, got.ecn),
            (None, None, false, false)
        );
        assert_eq!((got.peer_mss, got.rtt, got.syn_acks), (1460, None, SynAcks::Unknown));
    }
}

/// Such as the acknowledgments of a connection that is over.
#[test]
fn numbers_near_those_of_the_handshake_are_refused() {
    let answer = syn_ack(&SECRET, ENDS, &syn(), &PARAMS, TS_OFFSET, at(5));
    let third = third_of(&syn(), &answer);
    for bytes in (1..5_000_u32).chain([1 << 20, 1 << 30]) {
        for (taken, sent) in [(bytes, 0), (0, bytes), (bytes, bytes), (0, bytes.wrapping_neg())] {
            let late = Header { seq: third.seq + taken, ack: third.ack + sent, ..third };
            assert_eq!(check(&SECRET, ENDS, &late, &PARAMS, TS_OFFSET, at(6)), None, "{taken} {sent}");
        }
    }
}

#[test]
fn an_echo_that_is_older_than_any_cookie_measures_nothing() {
    let answer = syn_ack(&SECRET, ENDS, &syn(), &PARAMS, TS_OFFSET, at(500_000));
    let now = at(500_010);
    for (earlier, measures) in [(0, true), (127_000, true), (129_000, false), (u32::MAX - 1_000, false)] {
        let mut third = third_of(&syn(), &answer);
        let ts = third.options.timestamps.as_mut().unwrap();
        ts.ecr = ts.ecr.wrapping_sub(earlier);
        let got = check(&SECRET, ENDS, &third, &PARAMS, TS_OFFSET, now).unwrap();
        assert_eq!(got.rtt.is_some(), measures, "{earlier}");
    }
}

#[test]
fn the_mss_is_the_largest_of_the_table_that_the_peer_can_take() {
    for (announced, restored) in [
        (Some(9000), 8940),
        (Some(1459), 1440),
        (Some(1220), 1220),
        (Some(600), 536),
        (Some(100), 88),
        (Some(1), 88),
    ] {
        let mut syn = syn();
        syn.options.mss = announced;
        assert_eq!(back(&syn, &PARAMS, at(1), at(2)).unwrap().peer_mss, restored);
    }
    let mut silent = syn();
    silent.options.mss = None;
    assert_eq!(back(&silent, &PARAMS, at(1), at(2)).unwrap().peer_mss, PARAMS.peer_mss_default);
    assert!(MSS_TABLE.is_sorted());
}

#[test]
fn a_cookie_is_good_for_two_periods_and_not_from_the_future() {
    let period = u64::try_from(PERIOD.as_millis()).unwrap();
    for made in [0, 1, period - 1, period, 300 * period + 17] {
        let ends = (made / period + u64::from(PERIODS_MAX)) * period;
        assert!(back(&syn(), &PARAMS, at(made), at(ends - 1)).is_some(), "{made}");
        for late in [ends, ends + period, ends + 100 * period] {
            assert!(back(&syn(), &PARAMS, at(made), at(late)).is_none(), "{made} at {late}");
        }
    }
    assert!(back(&syn(), &PARAMS, at(3 * period), at(3 * period - 1)).is_none());
}

#[test]
fn cookies_of_other_handshakes_are_refused() {
    let answer = syn_ack(&SECRET, ENDS, &syn(), &PARAMS, TS_OFFSET, at(5));
    let good = third_of(&syn(), &answer);
    let passes = |ends, hdr: Header, secret| check(&secret, ends, &hdr, &PARAMS, TS_OFFSET, at(6)).is_some();
    assert!(passes(ENDS, good, SECRET));
    assert!(!passes(Ends { remote: b"10.0.0.2:4001", ..ENDS }, good, SECRET));
    assert!(!passes(Ends { local: b"10.0.0.1:81", ..ENDS }, good, SECRET));
    assert!(!passes(ENDS, good, Secret::new([1; 16])));
    assert!(!passes(ENDS, Header { seq: good.seq + 100, ..good }, SECRET));
    // Late segments of a connection that carried as much in one direction as in the other.
    assert!(!passes(ENDS, Header { seq: good.seq + 1001, ack: good.ack + 1001, ..good }, SECRET));
    assert!(!passes(ENDS, Header { flags: Flags::ACK.with(Flags::SYN), ..good }, SECRET));
    assert!(!passes(ENDS, Header { flags: Flags::ACK.with(Flags::RST), ..good }, SECRET));
    // Of guessed numbers sixteen in 2^32 pass; a million of them find one with a probability of 0.4 %.
    let guessed = (0..1_000_000u32).filter(|n| {
        let ack = SeqNum::new(n.wrapping_mul(0x9e37_79b1));
        ack != good.ack && passes(ENDS, Header { ack, ..good }, SECRET)
    });
    assert!(guessed.count() <= 1);
}

#[test]
fn a_cache_expects_cookies_only_while_one_may_be_good() {
    let mut cache = Cache::new(1, HASH_KEY);
    assert!(!cache.expects_cookies(at(0)));
    cache.on_syn(key(1), LISTENER, &syn(), &PARAMS, NUMBERS, at(0));
    assert!(cache.is_full() && !cache.is_new(&key(1)) && cache.is_new(&key(2)));
    cache.note_cookie(at(1000));
    let ends = 1000 + 2 * u64::try_from(PERIOD.as_millis()).unwrap();
    assert!(cache.expects_cookies(at(ends)) && !cache.expects_cookies(at(ends + 1)));
    assert_eq!(cache.len(), 1, "a cookie takes no place");
}

#[test]
fn challenges_to_other_syns_are_limited_per_entry() {
    let mut cache = cache_with_one(at(0));
    let other = Header { seq: SeqNum::new(5_000_000), ..syn() };
    let answers =
        (0..100).filter_map(|_| cache.on_syn(key(1), LISTENER, &other, &PARAMS, NUMBERS, at(1))).count();
    assert_eq!(answers, usize::from(ANSWERS_MAX));
    let same = cache.on_syn(key(1), LISTENER, &syn(), &PARAMS, NUMBERS, at(2));
    assert!(same.is_some_and(|answer| answer.flags.has(Flags::SYN)), "the client's own is always answered");
}

#[test]
fn which_ecn_was_agreed_to_the_flags_of_the_acknowledgment_say() {
    let params = ListenParams { accurate_ecn: true, ..PARAMS };
    for (asked, told, ecn, is_accurate) in [
        (Flags::ACE, 0b010, false, true),
        (Flags::ACE, 5, false, true),
        (Flags::ACE, 0, true, false),
        (Flags::ECE.with(Flags::CWR), 0, true, false),
        (Flags::NONE, 0b010, false, false),
    ] {
        let syn = Header { flags: Flags::SYN.with(asked), ..syn() };
        let answer = syn_ack(&SECRET, ENDS, &syn, &params, TS_OFFSET, at(5000));
        let ack = Header { flags: Flags::ACK.with(Flags::from_ace(told)), ..third_of(&syn, &answer) };
        let made = check(&SECRET, ENDS, &ack, &params, TS_OFFSET, at(5080)).unwrap();
        assert_eq!((made.ecn, made.accurate_ecn.is_some()), (ecn, is_accurate), "{asked:?} {told:03b}");
    }
}

/// There is no place to remember it.
#[test]
fn without_timestamps_no_ecn_is_agreed_to() {
    let mut syn = syn();
    syn.flags = OFFER;
    syn.options.timestamps = None;
    let answer = syn_ack(&SECRET, ENDS, &syn, &PARAMS, TS_OFFSET, at(1_000));
    assert_eq!((answer.flags, answer.options.timestamps), (Flags::SYN.with(Flags::ACK), None));
    let options = answer.options;
    assert_eq!((options.mss, options.window_scale, options.sack_permitted), (Some(PARAMS.mss), None, false));
}

/// RFC 9768 section 5.1: after agreement on accurate ECN no first acknowledgment has 0 or 1 there.
#[test]
fn the_flags_of_the_acknowledgment_tell_which_ecn_it_was() {
    let params = ListenParams { accurate_ecn: true, ..PARAMS };
    for ace in 0..8 {
        let mut syn = syn();
        syn.flags = Flags::SYN.with(Flags::ACE);
        let answer = syn_ack(&SECRET, ENDS, &syn, &params, TS_OFFSET, at(1_000));
        let mut third = third_of(&syn, &answer);
        third.flags = third.flags.with(Flags::from_ace(ace));
        let got = check(&SECRET, ENDS, &third, &params, TS_OFFSET, at(1_080)).unwrap();
        assert_eq!((got.ecn, got.accurate_ecn.is_some()), (ace < 2, ace >= 2), "{ace:03b}");
    }
}
