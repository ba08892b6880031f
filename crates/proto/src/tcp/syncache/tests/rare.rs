//! What happens seldom: a sender that panics, a SYN that comes again with another field, Fast Open.

use super::*;

/// Or it would panic at every call.
#[test]
fn an_entry_whose_repetition_panics_is_removed() {
    let mut cache = cache_with_one(at(0));
    let panics =
        std::panic::AssertUnwindSafe(|| cache.on_timer(at(1_000), patient, |_, _, _, _| panic!("no memory")));
    assert!(std::panic::catch_unwind(panics).is_err());
    cache.table.assert_consistent();
    assert!(cache.is_empty() && tick(&mut cache, at(9_000)).is_empty());
}

#[test]
fn the_field_of_the_syn_that_came_last_counts() {
    let (mut cache, _) = accurate(Flags::ACE.with(Flags::of_ip(0)));
    let params = ListenParams { accurate_ecn: true, ..PARAMS };
    let again = Header { flags: Flags::SYN.with(Flags::ACE).with(Flags::of_ip(3)), ..syn() };
    let syn_ack = cache.on_syn(key(1), LISTENER, &again, &params, NUMBERS, at(500)).unwrap();
    assert_eq!(syn_ack.flags.ace(), 0b110);
    let made = accepted(cache.on_ack(&key(1), &third(), 0, at(600), patient)).unwrap();
    assert_eq!(made.accurate_ecn, Some(SynEcn { came_with: IpEcn::Ce, is_withdrawn: false }));
}

#[test]
fn a_connection_that_does_not_wait_has_measured_no_round_trip() {
    let made = accepted_at_syn(&syn(), &PARAMS, NUMBERS, at(5));
    assert_eq!((made.rtt, made.iss, made.irs), (None, ISS, IRS));
}

#[test]
fn an_acknowledgment_that_waits_for_text_tells_of_no_lost_syn_ack_and_of_no_round_trip() {
    let waiting = |_: &u64| Patience { retries: 5, defers: 4 };
    let mut cache = cache_with_one(at(0));
    assert_eq!(cache.on_ack(&key(1), &third(), 0, at(30), waiting), AckOutcome::Ignore);
    let mut sent = 0;
    (0..7000).for_each(|ms| cache.on_timer(at(ms), waiting, |_, _, _, _| sent += 1));
    assert_eq!(sent, 0, "two expiries, and nothing was sent");
    let made = accepted(cache.on_ack(&key(1), &third(), 100, at(6_500), waiting)).unwrap();
    assert_eq!((made.rtt, made.syn_acks, made.rehashes), (None, SynAcks::One, 0));
}

#[test]
fn each_syn_ack_that_is_sent_again_asks_for_another_path() {
    let mut cache = cache_with_one(at(0));
    let mut asked = vec![cache.rehashes(&key(1))];
    cache.on_timer(at(1_000), patient, |_, _, _, rehashes| asked.push(rehashes));
    cache.on_syn(key(1), LISTENER, &syn(), &PARAMS, NUMBERS, at(2_000)).unwrap();
    asked.push(cache.rehashes(&key(1)));
    cache.on_timer(at(5_000), patient, |_, _, _, rehashes| asked.push(rehashes));
    let made = accepted(cache.on_ack(&key(1), &third(), 0, at(5_100), patient)).unwrap();
    asked.push(made.rehashes);
    assert_eq!((asked, made.syn_acks), (vec![0, 2, 3, 4, 4], SynAcks::Many));
    assert_eq!(cache.rehashes(&key(2)), 0);
}
