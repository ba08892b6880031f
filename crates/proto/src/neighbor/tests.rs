//! Tests of a neighbor's states, with a clock that jumps, and of the table's bounds under floods.

use super::*;
use core::net::{IpAddr, Ipv4Addr};
use proptest::prelude::*;

const A: LinkAddr = [2, 0, 0, 0, 0, 0xa];
const B: LinkAddr = [2, 0, 0, 0, 0, 0xb];
const TIMES: Times = Times {
    reachable: Duration::from_secs(30),
    retrans: Duration::from_secs(1),
    delay_first_probe: Duration::from_secs(5),
};

fn at(seconds: u64) -> Instant {
    Instant::from_micros(1_000_000) + Duration::from_secs(seconds)
}

fn ip(number: u32) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from(0x0a00_0000 + number))
}

fn answer(lladdr: LinkAddr) -> Advert {
    Advert { lladdr: Some(lladdr), solicited: true, overrides: true, router: None }
}

fn no_hint(_: &IpAddr) -> Hint {
    Hint::default()
}

fn reachable(lladdr: LinkAddr) -> Entry {
    let mut entry = Entry::incomplete(at(0), &TIMES);
    assert!(entry.on_advert(&answer(lladdr), at(0), &TIMES).resolved);
    entry
}

#[test]
fn a_suspected_neighbor_is_probed_at_once_and_unreachable_after_three_requests() {
    let mut entry = reachable(A);
    assert_eq!(entry.on_suspect(at(2), &TIMES), Action::Solicit(A));
    assert_eq!(entry.on_suspect(at(2), &TIMES), Action::None, "it is being asked");
    assert_eq!(entry.lladdr(), Some(A), "and is sent to meanwhile");
    let seen: Vec<Action> = (3..6).map(|second| entry.on_timer(at(second), &TIMES)).collect();
    assert_eq!(seen, [Action::Solicit(A), Action::Solicit(A), Action::Unreachable]);
    let mut entry = reachable(A);
    let _ = entry.on_suspect(at(2), &TIMES);
    entry.on_advert(&answer(A), at(3), &TIMES);
    assert_eq!(entry.state(at(3)), State::Reachable);
    for mut entry in [Entry::permanent(A), Entry::incomplete(at(0), &TIMES)] {
        let before = entry.state(at(1));
        assert_eq!((entry.on_suspect(at(1), &TIMES), entry.state(at(1))), (Action::None, before));
    }
}

#[test]
fn an_incomplete_neighbor_is_unreachable_after_three_requests_a_second_apart() {
    let mut entry = Entry::incomplete(at(0), &TIMES);
    let mut seen = Vec::new();
    for _ in 0..3 {
        let due = entry.deadline().unwrap();
        seen.push((due, entry.on_timer(due, &TIMES)));
    }
    // The first of the three was sent when the entry was made.
    let all = Action::SolicitAll;
    assert_eq!(seen, [(at(1), all), (at(2), all), (at(3), Action::Unreachable)]);
}

#[test]
fn an_unused_neighbor_becomes_stale_without_a_timer() {
    let entry = reachable(A);
    assert_eq!((entry.state(at(29)), entry.state(at(30))), (State::Reachable, State::Stale));
    assert_eq!((entry.deadline(), entry.good_until()), (None, Some(at(30))));
}

#[test]
fn a_stale_neighbor_that_is_needed_is_probed_after_five_seconds_and_given_up_after_three_probes() {
    let mut entry = reachable(A);
    entry.on_use(at(100), &TIMES);
    assert_eq!((entry.state(at(100)), entry.deadline()), (State::Delay, Some(at(105))));
    let mut seen = Vec::new();
    while let Some(due) = entry.deadline() {
        let action = entry.on_timer(due, &TIMES);
        seen.push((due, action));
        if action == Action::Unreachable {
            break;
        }
    }
    let probe = Action::Solicit(A);
    assert_eq!(seen, [(at(105), probe), (at(106), probe), (at(107), probe), (at(108), Action::Unreachable)]);
}

#[test]
fn progress_of_a_higher_layer_confirms_a_neighbor_in_every_state_except_incomplete() {
    let mut stale = Entry::stale(A);
    let mut delay = Entry::stale(A);
    delay.on_use(at(0), &TIMES);
    let mut probe = delay;
    probe.on_timer(at(5), &TIMES);
    for entry in [&mut stale, &mut delay, &mut probe] {
        entry.on_confirm(at(6), &TIMES);
        assert_eq!((entry.state(at(35)), entry.state(at(36))), (State::Reachable, State::Stale));
        assert_eq!(entry.deadline(), None);
    }
    let mut incomplete = Entry::incomplete(at(0), &TIMES);
    incomplete.on_confirm(at(0), &TIMES);
    assert_eq!(incomplete.state(at(0)), State::Incomplete);
    // An older hint does not shorten a newer one.
    stale.on_confirm(at(1), &TIMES);
    assert_eq!(stale.state(at(35)), State::Reachable);
}

/// RFC 4861 section 7.2.5 and appendix C, row by row: state and address before, advertisement, and after.
#[test]
fn advertisements_change_entries_as_in_the_rfc() {
    let advert = |lladdr, solicited, overrides| Advert { lladdr, solicited, overrides, router: None };
    let rows = [
        (reachable(A), advert(Some(B), true, false), State::Stale, A),
        (reachable(A), advert(Some(B), false, false), State::Stale, A),
        (reachable(A), advert(Some(B), true, true), State::Reachable, B),
        (reachable(A), advert(Some(B), false, true), State::Stale, B),
        (reachable(A), advert(Some(A), false, true), State::Reachable, A),
        (reachable(A), advert(None, false, true), State::Reachable, A),
        (Entry::stale(A), advert(Some(B), true, false), State::Stale, A),
        (Entry::stale(A), advert(Some(A), true, false), State::Reachable, A),
        (Entry::stale(A), advert(None, true, false), State::Reachable, A),
        (Entry::stale(A), advert(Some(A), false, false), State::Stale, A),
        (Entry::stale(A), advert(Some(B), false, true), State::Stale, B),
        (Entry::incomplete(at(0), &TIMES), advert(Some(A), true, false), State::Reachable, A),
        (Entry::incomplete(at(0), &TIMES), advert(Some(A), false, false), State::Stale, A),
        (Entry::permanent(A), advert(Some(B), true, true), State::Permanent, A),
    ];
    for (place, (mut entry, advert, state, lladdr)) in rows.into_iter().enumerate() {
        entry.on_advert(&advert, at(1), &TIMES);
        assert_eq!((entry.state(at(1)), entry.lladdr()), (state, Some(lladdr)), "row {place}");
    }
    let mut unnamed = Entry::incomplete(at(0), &TIMES);
    assert!(!unnamed.on_advert(&advert(None, true, true), at(0), &TIMES).resolved);
    assert_eq!(unnamed.state(at(0)), State::Incomplete);
}

#[test]
fn a_router_that_stops_being_one_is_noticed() {
    let mut entry = reachable(A);
    let as_router = |router| Advert { router: Some(router), ..answer(A) };
    assert!(!entry.on_advert(&as_router(true), at(1), &TIMES).router_lost);
    assert!(entry.is_router());
    assert!(entry.on_advert(&as_router(false), at(2), &TIMES).router_lost);
}

#[test]
fn a_request_that_names_another_address_makes_the_entry_stale_and_the_same_address_changes_nothing() {
    let mut entry = reachable(A);
    assert!(!entry.on_solicit(A).resolved);
    assert_eq!(entry.state(at(1)), State::Reachable);
    assert!(entry.on_solicit(B).resolved);
    assert_eq!((entry.state(at(1)), entry.lladdr()), (State::Stale, Some(B)));
}

#[test]
fn packets_wait_for_the_answer_in_order_and_the_oldest_are_dropped() {
    let mut cache = Cache::new(at(0), TIMES);
    assert_eq!(cache.resolve(ip(1), at(0), no_hint), Resolution::Wait { solicit: true });
    assert_eq!(cache.resolve(ip(1), at(0), no_hint), Resolution::Wait { solicit: false });
    let mut dropped = Vec::new();
    for packet in 0..PENDING_MAX + 3 {
        dropped.extend(cache.queue(&ip(1), packet, 100));
    }
    assert_eq!(dropped, [0, 1, 2]);
    let learned = cache.on_advert(&ip(1), &answer(A), at(0));
    assert_eq!(Vec::from(learned.ready), (3..PENDING_MAX + 3).collect::<Vec<_>>());
    assert_eq!(cache.resolve(ip(1), at(0), no_hint), Resolution::Known(A));
}

#[test]
fn waiting_bytes_are_bounded_but_one_packet_always_waits() {
    let mut cache = Cache::new(at(0), TIMES);
    cache.resolve(ip(1), at(0), no_hint);
    assert!(cache.queue(&ip(1), 'a', PENDING_BYTES_MAX + 1).is_empty());
    assert_eq!(Vec::from(cache.queue(&ip(1), 'b', PENDING_BYTES_MAX)), ['a']);
    assert_eq!(Vec::from(cache.queue(&ip(1), 'c', 1)), ['b']);
    assert_eq!(Vec::from(cache.queue(&ip(9), 'd', 1)), ['d'], "no neighbor was asked for");
}

#[test]
fn an_unresponsive_neighbor_is_deleted_with_its_waiting_packets() {
    let mut cache = Cache::new(at(0), TIMES);
    cache.resolve(ip(1), at(0), no_hint);
    cache.queue(&ip(1), 'x', 1);
    for second in 1..3 {
        let (due, expired) = cache.on_timer(at(second), no_hint);
        assert_eq!(due.actions, [(ip(1), Action::SolicitAll)]);
        assert!(expired.is_empty());
    }
    let (due, expired) = cache.on_timer(at(3), no_hint);
    assert!(due.actions.is_empty() && cache.is_empty() && cache.deadline().is_none());
    assert_eq!((expired[0].addr, Vec::from(expired[0].packets.clone())), (ip(1), vec!['x']));
}

#[test]
fn a_neighbor_that_a_higher_layer_reaches_is_never_probed() {
    let mut cache: Cache<()> = Cache::new(at(0), TIMES);
    cache.resolve(ip(1), at(0), no_hint);
    cache.on_advert(&ip(1), &answer(A), at(0));
    let mut solicits = 0;
    for second in 0..600 {
        let confirmed = move |_: &IpAddr| Hint { used: Some(at(second)), confirmed: Some(at(second)) };
        assert_eq!(cache.resolve(ip(1), at(second), confirmed), Resolution::Known(A));
        solicits += cache.on_timer(at(second), confirmed).0.actions.len();
    }
    assert_eq!(solicits, 0);
}

#[test]
fn a_flood_of_packets_to_absent_hosts_evicts_no_neighbor_in_use() {
    let mut cache: Cache<()> = Cache::new(at(0), TIMES);
    for number in 0..100 {
        cache.resolve(ip(number), at(0), no_hint);
        cache.on_advert(&ip(number), &answer(A), at(0));
    }
    for number in 1000..50_000 {
        cache.resolve(ip(number), at(1), no_hint);
        cache.queue(&ip(number), (), 1);
        assert!(cache.len() <= 100 + INCOMPLETE_MAX);
    }
    assert!((0..100).all(|number| cache.resolve(ip(number), at(2), no_hint) == Resolution::Known(A)));
}

#[test]
fn a_flood_of_requests_from_unknown_hosts_evicts_no_neighbor_in_use() {
    let mut cache: Cache<()> = Cache::new(at(0), TIMES);
    for number in 0..100 {
        cache.resolve(ip(number), at(0), no_hint);
        cache.on_advert(&ip(number), &answer(A), at(0));
    }
    for number in 1000..50_000 {
        cache.on_solicit(ip(number), B, true, at(1));
        assert!(cache.len() <= 100 + LEARNED_MAX);
    }
    assert!((0..100).all(|number| cache.entry(&ip(number)).unwrap().lladdr() == Some(A)));
    assert!(!cache.on_solicit(ip(99_999), B, false, at(1)).change.resolved);
    assert!(cache.entry(&ip(99_999)).is_none());
}

#[test]
fn a_full_table_first_evicts_neighbors_silent_for_a_minute() {
    let mut cache: Cache<()> = Cache::new(at(0), TIMES);
    for number in 0..ENTRIES_MAX as u32 {
        assert_eq!(cache.resolve(ip(number), at(0), no_hint), Resolution::Wait { solicit: true });
        cache.on_advert(&ip(number), &answer(A), at(0));
    }
    // Half of them go on being used; the others are stale after 30 s and silent for 60.
    let busy = |addr: &IpAddr| {
        let used = matches!(addr, IpAddr::V4(v4) if v4.octets()[3] % 2 == 0);
        Hint { used: used.then(|| at(80)), confirmed: None }
    };
    assert_eq!(cache.resolve(ip(5000), at(90), busy), Resolution::Wait { solicit: true });
    assert_eq!(cache.len(), ENTRIES_MAX / 2 + 1);
    assert!(cache.entry(&ip(2)).is_some() && cache.entry(&ip(3)).is_none());
}

#[test]
fn a_host_that_answers_for_a_thousand_addresses_evicts_no_active_neighbor() {
    let mut cache: Cache<()> = Cache::new(at(0), TIMES);
    let connected = |addr: &IpAddr| {
        let is_so = *addr == ip(1);
        Hint { used: None, confirmed: is_so.then(|| at(0)) }
    };
    cache.resolve(ip(1), at(0), connected);
    cache.on_advert(&ip(1), &answer(A), at(0));
    cache.set_permanent(ip(2), A, at(0), connected);
    for number in 0..5000 {
        let now = at(1) + Duration::from_millis(u64::from(number));
        assert_eq!(cache.resolve(ip(10_000 + number), now, connected), Resolution::Wait { solicit: true });
        cache.on_advert(&ip(10_000 + number), &answer(B), now);
        assert!(cache.len() <= ENTRIES_MAX);
    }
    assert_eq!(cache.resolve(ip(3), at(7), connected), Resolution::Wait { solicit: true });
    assert!([1, 2, 3].iter().all(|number| cache.entry(&ip(*number)).is_some()));
    let evicted = cache.take_evicted();
    assert!(evicted.len() >= 5000 - ENTRIES_MAX && evicted.len() <= 5000 - ENTRIES_MAX + GIVE_WAY + 3);
    assert!(evicted.iter().all(|addr| cache.entry(addr).is_none()));
    let oldest = |addr: &IpAddr| (10_000..10_000 + GIVE_WAY as u32).any(|number| *addr == ip(number));
    assert!(evicted[..GIVE_WAY].iter().all(oldest), "those used longest ago go first");
}

#[test]
fn a_table_full_of_permanent_entries_refuses_new_ones() {
    let mut cache: Cache<()> = Cache::new(at(0), TIMES);
    (0..ENTRIES_MAX as u32).for_each(|number| drop(cache.set_permanent(ip(number), A, at(0), no_hint)));
    assert_eq!(cache.resolve(ip(5000), at(1), no_hint), Resolution::Refused);
}

#[test]
fn permanent_entries_survive_a_flush_and_send_the_waiting_packets() {
    let mut cache = Cache::new(at(0), TIMES);
    cache.resolve(ip(1), at(0), no_hint);
    cache.queue(&ip(1), 'x', 1);
    assert_eq!(cache.set_permanent(ip(1), A, at(0), no_hint).map(Vec::from), Some(vec!['x']));
    cache.resolve(ip(2), at(0), no_hint);
    cache.queue(&ip(2), 'y', 1);
    assert_eq!(Vec::from(cache.flush(at(0))), ['y']);
    let listed: Vec<_> = cache.list(at(0)).map(|entry| (entry.addr, entry.state)).collect();
    assert_eq!(listed, [(ip(1), State::Permanent)]);
    assert!(cache.remove(&ip(1)).is_some() && cache.remove(&ip(1)).is_none());
}

#[test]
fn reachable_time_is_drawn_between_half_and_one_and_a_half() {
    let base = Duration::from_secs(30);
    assert_eq!(TIMES.with_base(base, 0).reachable, Duration::from_secs(15));
    assert_eq!(TIMES.with_base(base, u16::MAX).reachable, Duration::from_secs(45));
}

proptest! {
    /// For any events, bounds hold, every packet is accounted for, and with silence every timer ends.
    #[test]
    fn arbitrary_events_keep_the_bounds(
        events in prop::collection::vec((0u8..7, 0u32..300, any::<bool>(), any::<bool>(), 0u64..20), 1..400)
    ) {
        let mut cache = Cache::new(at(0), TIMES);
        let (mut now, mut waiting) = (at(0), 0usize);
        for (kind, number, first, second, wait) in events {
            let addr = ip(number);
            match kind {
                0 | 1 => match cache.resolve(addr, now, no_hint) {
                    Resolution::Wait { .. } => {
                        waiting += 1;
                        waiting -= cache.queue(&addr, (), 1000).len();
                    }
                    Resolution::Known(_) | Resolution::Refused => {}
                },
                2 => {
                    let advert = Advert { lladdr: first.then_some(B), solicited: second, overrides: first, router: Some(second) };
                    waiting -= cache.on_advert(&addr, &advert, now).ready.len();
                }
                3 => waiting -= cache.on_solicit(addr, A, first, now).ready.len(),
                4 => cache.on_confirm(&addr, now),
                5 if first && second => waiting -= cache.remove(&addr).unwrap_or_default().len(),
                _ => {
                    now = now + Duration::from_secs(wait);
                    let (_, expired) = cache.on_timer(now, no_hint);
                    waiting -= expired.iter().map(|gone| gone.packets.len()).sum::<usize>();
                }
            }
            prop_assert!(cache.len() <= ENTRIES_MAX);
        }
        // Packets of evicted entries are not in the count either, so it is an upper bound.
        let held = cache.flush(now).len();
        prop_assert!(held <= waiting);
        prop_assert!(cache.is_empty() && cache.deadline().is_none());
    }
}
