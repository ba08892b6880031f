//! Tests of the information that a host learns, with a clock that jumps.

use super::*;
use proptest::prelude::*;

const MAC: LinkAddr = [2, 0, 0, 0, 0, 1];
const START: Instant = Instant::from_micros(1_000_000);

fn addr(text: &str) -> Ipv6Addr {
    text.parse().unwrap()
}

fn at(seconds: u64) -> Instant {
    START + Duration::from_secs(seconds)
}

fn host() -> Host {
    Host::new(Identifiers::Eui64, MAC, START, 0)
}

fn advert(lifetime: u64) -> RouterAdvert {
    RouterAdvert { lifetime: Duration::from_secs(lifetime), ..RouterAdvert::default() }
}

fn info(prefix: &str, valid: u64, preferred: u64) -> PrefixInfo {
    PrefixInfo {
        prefix: addr(prefix),
        len: 64,
        on_link: true,
        autonomous: true,
        valid: Duration::from_secs(valid),
        preferred: Duration::from_secs(preferred),
    }
}

fn with_prefix(info: PrefixInfo) -> RouterAdvert {
    RouterAdvert { prefixes: [info].into_iter().collect(), ..advert(1800) }
}

const ROUTER: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
const OTHER: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2);
const MADE: &str = "2001:db8::ff:fe00:1";

#[test]
fn routers_are_asked_for_three_times_and_no_more_once_one_has_answered() {
    let mut alone = host();
    let mut times = Vec::new();
    while let Some(due) = alone.deadline() {
        assert_eq!(alone.on_timer(due), [Effect::SolicitRouters]);
        times.push(due.since(START).as_secs());
    }
    assert_eq!(times, [0, 4, 8]);

    let mut answered = host();
    answered.on_timer(START);
    assert_eq!(answered.on_advert(ROUTER, &advert(1800), 1500, at(1)), [Effect::AddRouter(ROUTER)]);
    assert_eq!(answered.deadline(), Some(at(1801)));
    // One that is no default router does not end the asking.
    let mut heard = host();
    assert!(heard.on_advert(ROUTER, &advert(0), 1500, START).is_empty());
    assert_eq!(heard.deadline(), Some(START));
}

#[test]
fn only_a_router_that_does_not_answer_is_replaced_by_another() {
    let router = |number: u16| Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 1, number);
    let mut host = host();
    host.on_advert(ROUTER, &advert(1800), 1500, START);
    for number in 0..100 {
        host.on_advert(router(number), &advert(9000), 1500, START);
    }
    assert_eq!(host.routers().count(), ROUTERS_MAX);
    assert!(host.on_advert(OTHER, &advert(1800), 1500, at(1)).is_empty(), "all may be there");
    assert_eq!(host.on_router_lost(router(3)), [Effect::RemoveRouter(router(3))]);
    assert_eq!(host.on_advert(OTHER, &advert(1800), 1500, at(2)), [Effect::AddRouter(OTHER)]);
    assert!(host.routers().any(|addr| addr == ROUTER), "entries in use stay");
    assert_eq!(host.routers().count(), ROUTERS_MAX);
    assert!(host.on_advert(router(3), &advert(9000), 1500, at(3)).is_empty());
}

#[test]
fn a_router_is_removed_when_its_lifetime_ends_or_when_it_says_so() {
    let mut host = host();
    host.on_advert(ROUTER, &advert(100), 1500, START);
    assert!(host.on_advert(ROUTER, &advert(100), 1500, at(50)).is_empty(), "renewed");
    assert!(host.on_timer(at(149)).is_empty());
    assert_eq!(host.on_timer(at(150)), [Effect::RemoveRouter(ROUTER)]);
    host.on_advert(ROUTER, &advert(100), 1500, at(200));
    assert_eq!(host.on_advert(ROUTER, &advert(0), 1500, at(201)), [Effect::RemoveRouter(ROUTER)]);
    assert_eq!(host.deadline(), None);
}

#[test]
fn an_unresponsive_router_is_skipped_until_it_is_heard_of_if_there_is_another() {
    let mut host = host();
    host.on_advert(ROUTER, &advert(1000), 1500, START);
    assert!(host.on_router_lost(ROUTER).is_empty(), "the only one is kept");
    host.on_advert(OTHER, &advert(1000), 1500, START);
    assert_eq!(host.on_router_lost(ROUTER), [Effect::RemoveRouter(ROUTER)]);
    assert!(host.on_router_lost(ROUTER).is_empty());
    assert_eq!(host.routers().collect::<Vec<_>>(), [OTHER]);
    assert_eq!(host.on_advert(ROUTER, &advert(1000), 1500, at(1)), [Effect::AddRouter(ROUTER)]);
}

#[test]
fn an_address_is_made_deprecated_and_removed() {
    let mut host = host();
    let effects = host.on_advert(ROUTER, &with_prefix(info("2001:db8::", 300, 100)), 1500, START);
    let prefix = addr("2001:db8::");
    let made = addr(MADE);
    assert_eq!(
        effects,
        [Effect::AddRouter(ROUTER), Effect::AddOnLink(prefix, 64), Effect::AddAddress(made, 64)]
    );
    assert_eq!(host.deadline(), Some(at(100)));
    assert_eq!(host.on_timer(at(100)), [Effect::SetPreferred(made, false)]);
    assert_eq!(host.on_timer(at(300)), [Effect::RemoveOnLink(prefix, 64), Effect::RemoveAddress(made)]);
}

#[test]
fn a_deprecated_address_is_preferred_again_when_renewed() {
    let mut host = host();
    host.on_advert(ROUTER, &with_prefix(info("2001:db8::", 300, 100)), 1500, START);
    host.on_timer(at(100));
    let again = host.on_advert(ROUTER, &with_prefix(info("2001:db8::", 300, 100)), 1500, at(150));
    assert_eq!(again, [Effect::SetPreferred(addr(MADE), true)]);
}

#[test]
fn a_lifetime_is_not_reduced_below_two_hours() {
    let two_hours = 7200;
    let mut host = host();
    host.on_advert(ROUTER, &with_prefix(info("2001:db8::", 3 * two_hours, 100)), 1500, START);
    host.on_advert(ROUTER, &with_prefix(info("2001:db8::", 10, 10)), 1500, at(1));
    let ends = |host: &Host| host.addresses[0].valid_until;
    assert_eq!(ends(&host), at(1 + two_hours));
    // Less than two hours are left: shorter ones change nothing, longer ones do.
    host.on_advert(ROUTER, &with_prefix(info("2001:db8::", 10, 10)), 1500, at(100));
    assert_eq!(ends(&host), at(1 + two_hours));
    host.on_advert(ROUTER, &with_prefix(info("2001:db8::", two_hours - 1, 10)), 1500, at(100));
    assert_eq!(ends(&host), at(99 + two_hours));
}

#[test]
fn an_infinite_lifetime_sets_no_timer() {
    let mut host = host();
    let forever = PrefixInfo { valid: Duration::MAX, preferred: Duration::MAX, ..info("2001:db8::", 0, 0) };
    host.on_advert(
        ROUTER,
        &RouterAdvert { lifetime: Duration::from_secs(50), ..with_prefix(forever) },
        1500,
        START,
    );
    assert_eq!(host.on_timer(at(50)), [Effect::RemoveRouter(ROUTER)]);
    assert_eq!(host.deadline(), None);
}

#[test]
fn unusable_prefixes_create_no_address() {
    let cases = [
        info("fe80::", 300, 100),
        info("ff02::", 300, 100),
        info("2001:db8::", 100, 300),
        info("2001:db8::", 0, 0),
        PrefixInfo { len: 65, ..info("2001:db8::", 300, 100) },
        PrefixInfo { autonomous: false, ..info("2001:db8::", 300, 100) },
    ];
    for case in cases {
        let mut host = host();
        let effects = host.on_advert(ROUTER, &with_prefix(case), 1500, START);
        assert!(!effects.iter().any(|effect| matches!(effect, Effect::AddAddress(..))), "{case:?}");
        assert_eq!(host.addresses().count(), 0);
    }
}

#[test]
fn a_duplicate_stable_address_is_replaced_and_one_of_eui64_is_not() {
    let mut eui = host();
    eui.on_advert(ROUTER, &with_prefix(info("2001:db8::", 300, 100)), 1500, START);
    assert_eq!(eui.on_duplicate(addr(MADE)), [Effect::RemoveAddress(addr(MADE))]);
    assert!(eui.on_duplicate(addr(MADE)).is_empty());

    let mut stable = Host::new(Identifiers::Stable { secret: [9; 16] }, MAC, START, 0);
    stable.on_advert(ROUTER, &with_prefix(info("2001:db8::", 300, 100)), 1500, START);
    let mut seen = Vec::new();
    let first = |host: &Host| host.addresses().next();
    while let Some(made) = first(&stable) {
        assert!(!seen.contains(&made));
        seen.push(made);
        stable.on_duplicate(made);
    }
    assert_eq!(seen.len(), 4, "the first and three more");
}

#[test]
fn the_replacement_of_a_deprecated_address_is_deprecated() {
    for (preferred, is_preferred) in [(0, false), (100, true)] {
        let mut host = Host::new(Identifiers::Stable { secret: [9; 16] }, MAC, START, 0);
        host.on_advert(ROUTER, &with_prefix(info("2001:db8::", 7200, preferred)), 1500, START);
        let taken = host.addresses().next().unwrap();
        let effects = host.on_duplicate(taken);
        let next = host.addresses().next().unwrap();
        let mut expected = vec![Effect::RemoveAddress(taken), Effect::AddAddress(next, 64)];
        expected.extend((!is_preferred).then_some(Effect::SetPreferred(next, false)));
        assert_eq!(effects, expected);
    }
}

#[test]
fn link_parameters_are_accepted_within_bounds() {
    let mut host = host();
    let numbers = |mtu, retrans| RouterAdvert {
        hop_limit: 61,
        reachable: Duration::from_secs(20),
        retrans: Duration::from_millis(retrans),
        mtu: Some(mtu),
        ..RouterAdvert::default()
    };
    let all = host.on_advert(ROUTER, &numbers(1400, 500), 1500, START);
    assert!(all.contains(&Effect::SetMtu(1400)) && all.contains(&Effect::SetHopLimit(61)));
    assert!(all.contains(&Effect::SetRetrans(Duration::from_millis(500))));
    for (mtu, retrans) in [(1279, 1), (1501, 99)] {
        let few = host.on_advert(ROUTER, &numbers(mtu, retrans), 1500, START);
        assert_eq!(few, [Effect::SetHopLimit(61), Effect::SetReachable(Duration::from_secs(20))]);
    }
}

proptest! {
    /// For any advertisements, bounds hold, no address is added twice, and every added address is removed in the end.
    #[test]
    fn arbitrary_advertisements_stay_within_bounds(
        adverts in prop::collection::vec((any::<u16>(), 0u64..100, any::<u8>(), 0u64..200, 0u64..200, 0u64..40), 1..120)
    ) {
        let mut host = Host::new(Identifiers::Stable { secret: [1; 16] }, MAC, START, 7);
        let mut now = START;
        let mut mine: Vec<Ipv6Addr> = Vec::new();
        let mut routers: Vec<Ipv6Addr> = Vec::new();
        let follow = |effects: Vec<Effect>, mine: &mut Vec<Ipv6Addr>, routers: &mut Vec<Ipv6Addr>| {
            for effect in effects {
                match effect {
                    Effect::AddAddress(addr, _) => { assert!(!mine.contains(&addr)); mine.push(addr); }
                    Effect::RemoveAddress(addr) => { assert!(mine.contains(&addr)); mine.retain(|a| *a != addr); }
                    Effect::SetPreferred(addr, _) => assert!(mine.contains(&addr)),
                    Effect::AddRouter(addr) => { assert!(!routers.contains(&addr)); routers.push(addr); }
                    Effect::RemoveRouter(addr) => { assert!(routers.contains(&addr)); routers.retain(|a| *a != addr); }
                    _ => {}
                }
            }
        };
        for (from, lifetime, prefix, valid, preferred, wait) in adverts {
            let from = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, from % 20);
            let info = info(&format!("2001:db8:{prefix:x}::"), valid, preferred);
            let advert = RouterAdvert { lifetime: Duration::from_secs(lifetime), ..with_prefix(info) };
            follow(host.on_advert(from, &advert, 1500, now), &mut mine, &mut routers);
            now = now + Duration::from_secs(wait);
            follow(host.on_timer(now), &mut mine, &mut routers);
            if wait % 7 == 0 && let Some(taken) = mine.first().copied() {
                follow(host.on_duplicate(taken), &mut mine, &mut routers);
            }
            prop_assert!(mine.len() <= ADDRESSES_MAX && routers.len() <= ROUTERS_MAX);
            prop_assert_eq!(host.addresses().count(), mine.len());
        }
        let mut turns = 0;
        while let Some(due) = host.deadline() {
            follow(host.on_timer(due.max(now)), &mut mine, &mut routers);
            turns += 1;
            prop_assert!(turns < 1000);
        }
        prop_assert!(mine.is_empty() && routers.is_empty());
    }
}
