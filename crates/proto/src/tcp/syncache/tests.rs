//! Behaviour of the syncache: handshakes, events that may break them, bounds and timers. Random tests are in
//! `tests/model.rs`.

use super::*;
use crate::tcp::accecn::{AccEcnOption, IpEcn, SynEcn};
use crate::tcp::accepted::{SynAcks, TimestampState, WindowScale};
use crate::tcp::segment::{Options, Timestamps};

mod cookie;
mod model;
mod rare;

type Key = [u8; 40];
type Cache = SynCache<Key, u64>;

const HASH_KEY: [u8; 16] = *b"the tests' key..";
const IRS: SeqNum = SeqNum::new(u32::MAX);
const ISS: SeqNum = SeqNum::new(7000);
const NUMBERS: InitialNumbers = InitialNumbers { iss: ISS, ts_offset: 300 };
const LISTENER: u64 = 42;
const PARAMS: ListenParams = ListenParams {
    mss: 1440,
    peer_mss_default: 536,
    rcv_wnd: 1 << 20,
    window_scale: Some(7),
    timestamps: true,
    sack: true,
    ecn: true,
    accurate_ecn: false,
};

fn key(number: u32) -> Key {
    let mut key = [0; 40];
    key[..4].copy_from_slice(&number.to_be_bytes());
    key
}

fn at(millis: u64) -> Instant {
    Instant::from_micros(millis * 1000)
}

fn syn() -> Header {
    Header {
        seq: IRS,
        flags: Flags::SYN,
        window: 64_240,
        options: Options {
            mss: Some(1460),
            window_scale: Some(9),
            sack_permitted: true,
            timestamps: Some(Timestamps { val: 90, ecr: 0 }),
            ..Options::default()
        },
        ..Header::default()
    }
}

/// The segment that completes the handshake.
fn third() -> Header {
    let timestamps = Some(Timestamps { val: 91, ecr: 300 });
    Header {
        seq: IRS + 1,
        ack: ISS + 1,
        flags: Flags::ACK,
        window: 502,
        options: Options { timestamps, ..Options::default() },
        ..Header::default()
    }
}

/// The patience of listeners that have no wishes.
fn patient<L>(_listener: &L) -> Patience {
    Patience::default()
}

fn cache_with_one(now: Instant) -> Cache {
    let mut cache = Cache::new(4, HASH_KEY);
    cache.on_syn(key(1), LISTENER, &syn(), &PARAMS, NUMBERS, now);
    cache
}

/// Runs the timer; returns the SYN-ACKs sent.
fn tick(cache: &mut Cache, now: Instant) -> Vec<(Key, Header)> {
    let mut sent = Vec::new();
    cache.on_timer(now, patient, |key, _, header, _| sent.push((*key, header)));
    cache.table.assert_consistent();
    sent
}

fn accepted(outcome: AckOutcome<u64>) -> Option<Accepted> {
    match outcome {
        AckOutcome::Accept { listener, accepted } => {
            assert_eq!(listener, LISTENER);
            Some(accepted)
        }
        AckOutcome::Reject(_) | AckOutcome::Challenge(_) | AckOutcome::Ignore | AckOutcome::NoEntry => None,
    }
}

#[test]
fn an_entry_is_96_bytes_with_an_ipv6_key() {
    assert_eq!(size_of::<Option<table::Slot<[u8; 40], u64>>>(), 96);
    assert_eq!(size_of::<HalfOpen>(), 28);
}

#[test]
fn a_handshake_agrees_on_every_option() {
    let mut cache = Cache::new(4, HASH_KEY);
    let syn_ack = cache.on_syn(key(1), LISTENER, &syn(), &PARAMS, NUMBERS, at(10)).unwrap();
    let expected = Header {
        seq: ISS,
        ack: SeqNum::new(0),
        flags: Flags::SYN.with(Flags::ACK),
        window: u16::MAX,
        urgent: 0,
        gso_size: 0,
        options: Options {
            mss: Some(1440),
            window_scale: Some(7),
            sack_permitted: true,
            timestamps: Some(Timestamps { val: 310, ecr: 90 }),
            ..Options::default()
        },
    };
    assert_eq!(syn_ack, expected);
    let expected = Accepted {
        iss: ISS,
        irs: IRS,
        peer_mss: 1460,
        snd_wnd: 64_240,
        rcv_wnd: 65_535,
        window_scale: Some(WindowScale { snd: 9, rcv: 7 }),
        timestamps: Some(TimestampState { ts_recent: 90, ts_recent_at: at(10), ts_offset: 300 }),
        sack_permitted: true,
        ecn: false,
        accurate_ecn: None,
        rtt: Some(Duration::from_millis(25)),
        syn_acks: SynAcks::One,
        rehashes: 0,
    };
    assert_eq!(accepted(cache.on_ack(&key(1), &third(), 0, at(35), patient)), Some(expected));
    assert_eq!(cache.remove(&key(1)), Some(LISTENER));
    assert_eq!((cache.len(), cache.next_deadline()), (0, None));
    assert_eq!(cache.on_ack(&key(1), &third(), 0, at(36), patient), AckOutcome::NoEntry);
    let statistics = Statistics { added: 1, completed: 1, ..Statistics::default() };
    assert_eq!(cache.statistics(), statistics);
}

#[test]
fn an_option_is_agreed_on_only_if_both_sides_want_it() {
    let bare_syn = Header { options: Options::default(), ..syn() };
    let bare_params =
        ListenParams { window_scale: None, timestamps: false, sack: false, rcv_wnd: 100, ..PARAMS };
    let bare_third = Header { options: Options::default(), ..third() };
    for (syn, params, peer_mss) in [(bare_syn, PARAMS, 536), (syn(), bare_params, 1460)] {
        let mut cache = Cache::new(4, HASH_KEY);
        let syn_ack = cache.on_syn(key(1), LISTENER, &syn, &params, NUMBERS, at(0)).unwrap();
        assert_eq!(syn_ack.options, Options { mss: Some(1440), ..Options::default() });
        assert_eq!(u32::from(syn_ack.window), params.rcv_wnd.min(65_535));
        let made = accepted(cache.on_ack(&key(1), &bare_third, 0, at(1), patient)).unwrap();
        assert_eq!(made.peer_mss, peer_mss);
        assert_eq!((made.window_scale, made.timestamps), (None, None));
        assert!(!made.sack_permitted);
    }
}

#[test]
fn every_combination_of_options_survives_the_packing() {
    for bits in 0..16u8 {
        let (timestamps, sack, scaling, ecn) = (bits & 1 != 0, bits & 2 != 0, bits & 4 != 0, bits & 8 != 0);
        for (snd, rcv) in [(0, 0), (14, 14), (0, 14), (14, 0)] {
            let window_scale = scaling.then_some(rcv);
            let params = ListenParams { timestamps, sack, window_scale, ecn, ..PARAMS };
            let mut hdr = syn();
            hdr.flags = OFFER;
            hdr.options.window_scale = Some(snd);
            let mut cache = Cache::new(1, HASH_KEY);
            let syn_ack = cache.on_syn(key(1), LISTENER, &hdr, &params, NUMBERS, at(0)).unwrap();
            assert_eq!(syn_ack.options.window_scale, window_scale);
            let made = accepted(cache.on_ack(&key(1), &third(), 0, at(1), patient)).unwrap();
            assert_eq!(made.timestamps.is_some(), timestamps);
            assert_eq!((made.sack_permitted, made.ecn), (sack, ecn));
            assert_eq!(syn_ack.flags.has(Flags::ECE), ecn);
            assert_eq!(made.window_scale, scaling.then_some(WindowScale { snd, rcv }));
        }
    }
}

/// A SYN that offers ECN.
const OFFER: Flags = Flags::SYN.with(Flags::ECE).with(Flags::CWR);

#[test]
fn ecn_is_agreed_to_as_long_as_the_peer_offers_it() {
    let agreed = |flags: Flags, again: Option<Flags>, late: bool| {
        let mut cache = Cache::new(1, HASH_KEY);
        let mut hdr = Header { flags, ..syn() };
        let mut syn_ack = cache.on_syn(key(1), LISTENER, &hdr, &PARAMS, NUMBERS, at(0)).unwrap();
        if let Some(again) = again {
            hdr.flags = again;
            syn_ack = cache.on_syn(key(1), LISTENER, &hdr, &PARAMS, NUMBERS, at(500)).unwrap();
        }
        if late {
            cache.on_timer(at(1000), patient, |_, _, repeated, _| syn_ack = repeated);
        }
        let made = accepted(cache.on_ack(&key(1), &third(), 0, at(1001), patient)).unwrap();
        assert!(!syn_ack.flags.has(Flags::CWR));
        assert_eq!(made.ecn, syn_ack.flags.has(Flags::ECE));
        made.ecn
    };
    assert!(agreed(OFFER, None, false));
    assert!(agreed(OFFER, Some(OFFER), false));
    assert!(!agreed(OFFER, Some(Flags::SYN), false), "the peer no longer offers it");
    assert!(agreed(OFFER, None, true), "the timer's SYN-ACK says the same");
    assert!(
        !agreed(Flags::SYN.with(Flags::ECE), None, false),
        "an old peer may reflect options that it does not know"
    );
    assert!(!agreed(Flags::SYN, None, false));
}

#[test]
fn a_repeated_syn_gets_the_same_answer_and_the_echo_gives_the_round_trip() {
    let mut cache = cache_with_one(at(0));
    let other = InitialNumbers { iss: ISS + 999, ts_offset: 1 };
    let mut again = syn();
    again.options.timestamps = Some(Timestamps { val: 95, ecr: 0 });
    let syn_ack = cache.on_syn(key(1), 43, &again, &PARAMS, other, at(500)).unwrap();
    assert_eq!((syn_ack.seq, syn_ack.flags), (ISS, Flags::SYN.with(Flags::ACK)));
    assert_eq!(syn_ack.options.timestamps, Some(Timestamps { val: 800, ecr: 95 }));
    assert_eq!((cache.len(), cache.next_deadline()), (1, Some(at(1500))));
    // Another soon behind it is not answered, and does not count.
    assert_eq!(cache.on_syn(key(1), 43, &again, &PARAMS, other, at(999)), None);
    assert!(cache.on_syn(key(1), 43, &again, &PARAMS, other, at(1000)).is_some());
    assert_eq!(tick(&mut cache, at(2000)).len(), 1);
    // Behind the timer's it is.
    assert!(cache.on_syn(key(1), 43, &again, &PARAMS, other, at(2001)).is_some());
    assert_eq!(cache.next_deadline(), Some(at(4001)));
    let mut last = third();
    last.options.timestamps = Some(Timestamps { val: 96, ecr: 800 });
    let made = accepted(cache.on_ack(&key(1), &last, 0, at(2002), patient)).unwrap();
    assert_eq!((made.rtt, made.syn_acks), (Some(Duration::from_millis(1_502)), SynAcks::Many));
}

#[test]
fn a_different_syn_is_challenged_and_the_clients_reset_clears_the_way() {
    let mut cache = cache_with_one(at(0));
    let restarted = Header { seq: SeqNum::new(5_000_000), ..syn() };
    let answer = cache.on_syn(key(1), LISTENER, &restarted, &PARAMS, NUMBERS, at(5)).unwrap();
    assert_eq!((answer.seq, answer.ack, answer.flags), (ISS + 1, IRS + 1, Flags::ACK));
    assert_eq!(answer.window, u16::MAX >> 7);
    assert!(answer.options.timestamps.is_some());
    // The old handshake can still complete.
    let made = accepted(cache.on_ack(&key(1), &third(), 0, at(6), patient)).unwrap();
    assert_eq!(made.rtt, Some(Duration::from_millis(6)), "a challenge is no SYN-ACK");
    // SYN-SENT answers the unacceptable ACK with <SEQ=SEG.ACK><CTL=RST>.
    let rst = reset_at(answer.ack);
    assert_eq!(cache.on_rst(&key(1), &rst, at(7)), RstOutcome::Removed(LISTENER));
    let answer = cache.on_syn(key(1), LISTENER, &restarted, &PARAMS, NUMBERS, at(8)).unwrap();
    assert_eq!((answer.ack, answer.flags.has(Flags::SYN)), (SeqNum::new(5_000_001), true));
}

#[test]
fn only_an_exact_reset_ends_a_handshake() {
    let mut cache = cache_with_one(at(0));
    let rst = |offset: u32| reset_at(IRS + 1 + offset);
    assert_eq!(cache.on_rst(&key(2), &rst(0), at(1)), RstOutcome::NoEntry);
    assert_eq!(cache.on_rst(&key(1), &rst(u32::MAX), at(1)), RstOutcome::Ignore);
    assert_eq!(cache.on_rst(&key(1), &rst(65_535), at(1)), RstOutcome::Ignore);
    for offset in [1, 65_534] {
        let outcome = cache.on_rst(&key(1), &rst(offset), at(1));
        let RstOutcome::Challenge(ack) = outcome else { panic!("{offset}: {outcome:?}") };
        assert_eq!((ack.seq, ack.ack, ack.flags), (ISS + 1, IRS + 1, Flags::ACK));
    }
    assert_eq!(cache.on_rst(&key(1), &rst(0), at(1)), RstOutcome::Removed(LISTENER));
    assert_eq!((cache.len(), cache.statistics().reset), (0, 1));
}

#[test]
fn invalid_segments_do_not_complete_the_handshake() {
    let old = Options { timestamps: Some(Timestamps { val: 89, ecr: 0 }), ..Options::default() };
    let reset = |ack| AckOutcome::Reject(reset_at(ack));
    // (segment, payload length, outcome; `None` stands for a challenge)
    let rows = [
        ("acks too little", Header { ack: ISS, ..third() }, 0, Some(reset(ISS))),
        ("acks too much", Header { ack: ISS + 2, ..third() }, 0, Some(reset(ISS + 2))),
        ("no ACK", Header { flags: Flags::PSH, ..third() }, 5, Some(AckOutcome::Ignore)),
        ("a reset", Header { flags: Flags::RST, ..third() }, 0, Some(AckOutcome::Ignore)),
        ("old timestamp", Header { options: old, ..third() }, 0, None),
        ("before the window", Header { seq: IRS, ..third() }, 0, None),
        ("behind the window", Header { seq: IRS + 65_536, ..third() }, 0, None),
        ("SYN and ACK", Header { flags: Flags::SYN.with(Flags::ACK), ..third() }, 0, None),
    ];
    for (name, hdr, payload_len, expected) in rows {
        let mut cache = cache_with_one(at(0));
        let outcome = cache.on_ack(&key(1), &hdr, payload_len, at(1), patient);
        match expected {
            Some(expected) => assert_eq!(outcome, expected, "{name}"),
            None => assert!(matches!(outcome, AckOutcome::Challenge(_)), "{name}: {outcome:?}"),
        }
        assert!(accepted(cache.on_ack(&key(1), &third(), 0, at(2), patient)).is_some(), "{name}");
    }
}

#[test]
fn data_or_fin_or_a_segment_without_timestamps_may_complete_the_handshake() {
    let fin = Flags::FIN.with(Flags::ACK);
    let behind = Header { seq: IRS + 1 + 1460, ..third() };
    let bare = Header { options: Options::default(), ..third() };
    for (hdr, payload_len) in
        [(third(), 1460), (Header { flags: fin, ..third() }, 3), (behind, 9), (bare, 0), (bare, 9)]
    {
        let mut cache = cache_with_one(at(0));
        assert!(accepted(cache.on_ack(&key(1), &hdr, payload_len, at(1), patient)).is_some());
    }
}

#[test]
fn challenges_of_one_entry_are_bounded() {
    let mut cache = cache_with_one(at(0));
    let outside = Header { seq: IRS - 5, ..third() };
    for _ in 0..ANSWERS_MAX {
        let outcome = cache.on_ack(&key(1), &outside, 0, at(1), patient);
        assert!(matches!(outcome, AckOutcome::Challenge(_)));
    }
    assert_eq!(cache.on_ack(&key(1), &outside, 0, at(1), patient), AckOutcome::Ignore);
    assert_eq!(cache.on_rst(&key(1), &reset_at(IRS + 2), at(1)), RstOutcome::Ignore);
    assert!(accepted(cache.on_ack(&key(1), &third(), 0, at(2), patient)).is_some());
}

#[test]
fn a_handshake_refused_by_a_full_accept_queue_is_repeated_and_completes() {
    let mut cache = cache_with_one(at(0));
    assert!(accepted(cache.on_ack(&key(1), &third(), 0, at(1), patient)).is_some());
    assert_eq!(cache.len(), 1);
    assert_eq!(tick(&mut cache, at(1000)).len(), 1);
    // The answer to the repeated SYN-ACK completes it. The echo says that it answers the first.
    let made = accepted(cache.on_ack(&key(1), &third(), 0, at(1001), patient)).unwrap();
    assert_eq!(made.rtt, Some(Duration::from_millis(1_001)));
    assert_eq!(cache.remove(&key(1)), Some(LISTENER));
}

#[test]
fn the_syn_ack_is_repeated_with_backoff_and_then_given_up() {
    let mut cache = cache_with_one(at(0));
    for deadline in [1000, 3000, 7000, 15_000, 31_000] {
        assert_eq!(cache.next_deadline(), Some(at(deadline)));
        assert_eq!(tick(&mut cache, at(deadline - 1)), []);
        let [(to, syn_ack)] = tick(&mut cache, at(deadline))[..] else { panic!("at {deadline}") };
        assert_eq!((to, syn_ack.seq, syn_ack.ack), (key(1), ISS, IRS + 1));
        let val = u32::try_from(deadline).unwrap() + 300;
        assert_eq!(syn_ack.options.timestamps, Some(Timestamps { val, ecr: 90 }));
    }
    assert_eq!(cache.next_deadline(), Some(at(63_000)));
    assert_eq!(tick(&mut cache, at(63_000)), []);
    assert_eq!((cache.len(), cache.next_deadline()), (0, None));
    let statistics = Statistics { added: 1, retransmitted: 5, timed_out: 1, ..Statistics::default() };
    assert_eq!(cache.statistics(), statistics);
}

#[test]
fn a_listener_may_have_less_or_more_patience() {
    for (retries, times) in [(0, 1), (1, 3), (8, 127 + 2 * 120), (15, 127 + 9 * 120)] {
        let mut cache = cache_with_one(at(0));
        let (mut sent, mut seconds) = (0, 0);
        while !cache.is_empty() {
            seconds += 1;
            cache.on_timer(at(seconds * 1000), |_| Patience { retries, defers: 0 }, |_, _, _, _| sent += 1);
        }
        assert_eq!((sent, seconds), (retries, times));
    }
}

#[test]
fn a_listener_that_defers_waits_for_text() {
    let patience = |_: &u64| Patience { retries: 5, defers: 3 };
    let mut cache = cache_with_one(at(0));
    let ack = |cache: &mut Cache, hdr: &Header, len, now| cache.on_ack(&key(1), hdr, len, now, patience);
    assert_eq!(ack(&mut cache, &third(), 0, at(10)), AckOutcome::Ignore);
    let mut sent = Vec::new();
    for ms in 0..60_000 {
        cache.on_timer(at(ms), patience, |_, _, _, _| sent.push(ms));
    }
    // A peer that has acknowledged is asked once more, at the end of the time; after that any acknowledgment will do.
    assert_eq!(sent, [7000, 15_000, 31_000]);
    assert!(accepted(ack(&mut cache, &third(), 0, at(60_000))).is_some());
    let fin = Header { flags: Flags::FIN.with(Flags::ACK), ..third() };
    for (hdr, len) in [(third(), 1), (fin, 0)] {
        let mut cache = cache_with_one(at(0));
        assert_eq!(ack(&mut cache, &third(), 0, at(10)), AckOutcome::Ignore);
        assert!(accepted(ack(&mut cache, &hdr, len, at(20))).is_some());
    }
    // One that has not is asked as ever, and a wait that is longer than the retries is granted to those that have.
    let mut cache = cache_with_one(at(0));
    let (mut sent, slow) = (0, |_: &u64| Patience { retries: 1, defers: 3 });
    assert_eq!(cache.on_ack(&key(1), &third(), 0, at(1), slow), AckOutcome::Ignore);
    (0..7000).for_each(|ms| cache.on_timer(at(ms), slow, |_, _, _, _| sent += 1));
    assert_eq!((cache.len(), sent), (1, 0));
    let mut cache = cache_with_one(at(0));
    (0..7000).for_each(|ms| cache.on_timer(at(ms), slow, |_, _, _, _| sent += 1));
    assert_eq!((cache.len(), sent), (0, 1));
}

#[test]
fn a_handshake_that_was_acknowledged_is_given_up_after_the_expiries_that_are_deferred() {
    let patience = Patience { retries: 1, defers: 3 };
    assert_eq!([0, 1, 2].map(|retries| patience.is_over(retries, false)), [false, true, true]);
    assert_eq!(
        [0, 1, 2, 3, 4].map(|retries| patience.is_over(retries, true)),
        [false, false, false, true, true]
    );
}

#[test]
fn keys_spread_over_the_buckets() {
    let table: table::Table<u64, ()> = table::Table::new(1024, [3; 16]);
    let buckets: std::collections::BTreeSet<usize> = (0..1024).map(|key| table.find(&key).0).collect();
    assert!(buckets.len() > 512 && buckets.last() < Some(&1024), "{}", buckets.len());
}

#[test]
fn times_of_deferring_are_counted_in_expiries() {
    for (seconds, defers) in
        [(0, 0), (1, 1), (2, 2), (3, 2), (4, 3), (7, 3), (8, 4), (127, 7), (128, 8), (100_000, 15)]
    {
        assert_eq!(Patience::defers_for(Duration::from_secs(seconds)), defers, "{seconds}");
    }
    assert_eq!(Patience::time_of(3), Duration::from_secs(7));
}

#[test]
fn a_report_of_the_network_ends_the_handshake_whose_number_it_quotes() {
    let mut cache = cache_with_one(at(0));
    for wrong in [ISS - 1, ISS + 1, IRS] {
        assert_eq!(cache.on_unreachable(&key(1), wrong), None);
    }
    assert_eq!(cache.on_unreachable(&key(2), ISS), None);
    assert_eq!(cache.on_unreachable(&key(1), ISS), Some(LISTENER));
    assert_eq!((cache.len(), cache.statistics().unreachable), (0, 1));
    assert_eq!(cache.on_ack(&key(1), &third(), 0, at(1), patient), AckOutcome::NoEntry);
}

#[test]
fn a_jump_of_the_clock_repeats_each_entry_once() {
    let mut cache = cache_with_one(at(0));
    assert_eq!(tick(&mut cache, at(1_000_000)).len(), 1);
    assert_eq!(cache.next_deadline(), Some(at(1_002_000)));
}

#[test]
fn a_full_cache_drops_the_oldest_entry_regardless_of_its_retries() {
    let mut cache = Cache::new(3, HASH_KEY);
    let add = |cache: &mut Cache, number, now| {
        cache.on_syn(key(number), LISTENER, &syn(), &PARAMS, NUMBERS, at(now));
        cache.table.assert_consistent();
    };
    add(&mut cache, 1, 0);
    assert_eq!(tick(&mut cache, at(1000)).len(), 1);
    add(&mut cache, 2, 1000);
    add(&mut cache, 3, 1000);
    for (number, dropped) in [(4, 1), (5, 2), (6, 3), (7, 4)] {
        add(&mut cache, number, 1001);
        assert_eq!(cache.len(), 3);
        assert_eq!(cache.on_ack(&key(dropped), &third(), 0, at(1001), patient), AckOutcome::NoEntry);
        for kept in dropped + 1..=number {
            assert!(accepted(cache.on_ack(&key(kept), &third(), 0, at(1001), patient)).is_some());
        }
    }
    assert_eq!(cache.statistics().dropped_overflow, 4);
}

#[test]
fn a_closing_listener_ends_its_handshakes() {
    let mut cache = Cache::new(8, HASH_KEY);
    for number in 0..8 {
        let listener = u64::from(number % 2);
        cache.on_syn(key(number), listener, &syn(), &PARAMS, NUMBERS, at(0));
    }
    cache.retain(|_, listener| *listener == 1);
    cache.table.assert_consistent();
    assert_eq!((cache.len(), cache.statistics().dropped_listener), (4, 4));
    assert_eq!(cache.remove(&key(2)), None);
    assert_eq!(cache.remove(&key(3)), Some(1));
}

#[test]
fn a_handle_is_dropped_with_its_entry() {
    let listener = std::sync::Arc::new(());
    let mut cache = SynCache::new(2, HASH_KEY);
    for number in 0..5 {
        cache.on_syn(key(number), listener.clone(), &syn(), &PARAMS, NUMBERS, at(0));
    }
    assert_eq!(std::sync::Arc::strong_count(&listener), 3);
    assert!(cache.remove(&key(4)).is_some());
    cache.on_timer(at(1_000_000), patient, |_, _, _, _| {});
    assert_eq!(std::sync::Arc::strong_count(&listener), 2);
}

#[test]
fn capacities_are_brought_into_bounds() {
    let mut cache = Cache::new(0, HASH_KEY);
    assert_eq!(cache.capacity(), 1);
    cache.on_syn(key(1), LISTENER, &syn(), &PARAMS, NUMBERS, at(0));
    cache.on_syn(key(2), LISTENER, &syn(), &PARAMS, NUMBERS, at(0));
    assert_eq!(cache.len(), 1);
    assert_eq!(SynCache::<u8, u8>::new(usize::MAX, HASH_KEY).capacity(), CAPACITY_MAX);
}

/// A cache whose listener knows accurate ECN, and its SYN-ACK to a SYN with these flags.
fn accurate(flags: Flags) -> (Cache, Header) {
    let params = ListenParams { accurate_ecn: true, ..PARAMS };
    let mut cache = Cache::new(4, HASH_KEY);
    let header = Header { flags: Flags::SYN.with(flags), ..syn() };
    let syn_ack = cache.on_syn(key(1), LISTENER, &header, &params, NUMBERS, at(10)).unwrap();
    (cache, syn_ack)
}

#[test]
fn accurate_ecn_is_agreed_to_and_the_field_of_the_syn_told() {
    for (bits, ace) in [(0, 0b010), (1, 0b011), (2, 0b100), (3, 0b110)] {
        let (mut cache, syn_ack) = accurate(Flags::ACE.with(Flags::of_ip(bits)));
        assert_eq!(syn_ack.flags, Flags::SYN.with(Flags::ACK).with(Flags::from_ace(ace)));
        assert_eq!(syn_ack.options.accecn, Some(AccEcnOption::first()));
        let made = accepted(cache.on_ack(&key(1), &third(), 0, at(35), patient)).unwrap();
        let syn = SynEcn { came_with: IpEcn::from_bits(bits), is_withdrawn: false };
        assert_eq!((made.ecn, made.accurate_ecn), (false, Some(syn)));
    }
    for ace in 0..8 {
        let (_, syn_ack) = accurate(Flags::from_ace(ace));
        let expected = [0, 0b010, 0b010, 0b001, 0b010, 0b010, 0b010, 0b010][usize::from(ace)];
        assert_eq!(syn_ack.flags.ace(), expected, "{ace:03b}");
    }
}

#[test]
fn a_syn_ack_with_accurate_ecn_is_repeated_once_with_its_flags_and_never_with_the_option() {
    let (mut cache, _) = accurate(Flags::ACE);
    let mut flags = Vec::new();
    for seconds in [1, 3, 7] {
        for (_, header) in tick(&mut cache, at(10 + 1000 * seconds)) {
            flags.push(header.flags.ace());
            assert_eq!(header.options.accecn, None);
        }
    }
    assert_eq!(flags, [0b010, 0, 0]);
    assert!(accepted(cache.on_ack(&key(1), &third(), 0, at(9000), patient)).unwrap().accurate_ecn.is_some());
}

#[test]
fn a_syn_that_comes_again_without_flags_leaves_accurate_ecn_and_says_that_it_does_not_get_through() {
    let (mut cache, _) = accurate(Flags::ACE.with(Flags::ECT));
    let params = ListenParams { accurate_ecn: true, ..PARAMS };
    for (flags, millis) in [(Flags::NONE, 500), (Flags::ACE, 1000)] {
        let again = Header { flags: Flags::SYN.with(flags), ..syn() };
        let syn_ack = cache.on_syn(key(1), LISTENER, &again, &params, NUMBERS, at(millis)).unwrap();
        assert_eq!((syn_ack.flags.ace(), syn_ack.options.accecn), (0b010, None));
    }
    let made = accepted(cache.on_ack(&key(1), &third(), 0, at(1100), patient)).unwrap();
    assert_eq!(made.accurate_ecn, Some(SynEcn { came_with: IpEcn::NotEct, is_withdrawn: true }));
}

#[test]
fn a_handshake_under_way_is_known_by_its_name() {
    let cache = cache_with_one(at(0));
    assert!(cache.contains(&key(1)) && !cache.contains(&key(2)));
}
