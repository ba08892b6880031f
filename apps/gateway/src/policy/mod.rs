//! Policy: maps a destination to the address that the host connects to, and decides whether it is permitted.
//!
//! ```text
//! destination inside ─ map (the gateway's address is the host's loopback) ─► address of the host's socket ─ rules ─► permitted
//! ```
//!
//! The decision concerns the address that the host's socket will connect to, after the mapping, in each of its [forms](reach::forms). For each form, the first rule that covers it decides; the address is
//! permitted if all forms are (`decision.rs`). A form that no rule covers is permitted if there is no `--allow` and it is an ordinary host's address.
//! Only [`Policy::decide`] makes a [`Target`], and `upstream` connects to nothing else.
//!
//! Names are pinned: a rule with a name covers the addresses that the gateway's name server has returned for the name, for the lifetime of the answer.
//!
//! Rules can be replaced while flows are open; open flows are not checked again. Locks: the lock of the rules, held only to copy a
//! pointer; the mutex of [`Names`], a leaf, taken only if there are rules with names or an answer is recorded. Tests: below, also with random addresses.

mod decision;
mod names;
pub mod reach;
pub mod rule;
mod rules;

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, PoisonError, RwLock};

pub use names::Names;
pub use rule::Rule;
pub use rules::Rules;

use crate::plan::Plan;

/// A transport.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// ICMP echo.
    Icmp,
}

/// An address that a socket of the host may connect to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Target(SocketAddr);

impl Target {
    /// The address.
    pub fn addr(self) -> SocketAddr {
        self.0
    }
}

/// All that decides.
#[derive(Debug)]
pub struct Policy {
    rules: RwLock<Arc<[Rule]>>,
    plan: Plan,
    /// The names that addresses were given out for.
    pub names: Names,
}

impl Policy {
    /// With these rules, in order, for these addresses inside.
    pub fn new(rules: Vec<Rule>, plan: Plan) -> Self {
        Self { rules: RwLock::new(rules.into()), plan, names: Names::default() }
    }

    /// The rules, in order.
    pub fn rules(&self) -> Arc<[Rule]> {
        Arc::clone(&self.rules.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the rules.
    pub fn set_rules(&self, rules: Vec<Rule>) {
        *self.rules.write().unwrap_or_else(PoisonError::into_inner) = rules.into();
    }

    /// Where `to` leads. Does not block.
    ///
    /// # Errors
    /// The address that is refused.
    pub fn decide(&self, to: SocketAddr) -> Result<Target, SocketAddr> {
        let (onward, rules) = (self.map(to), self.rules());
        let names = if rules.is_empty() { Vec::new() } else { self.names.of(onward.ip()) };
        if decision::permits(&rules, onward, &names) { Ok(Target(onward)) } else { Err(onward) }
    }

    /// The address of the host's socket: the gateway's own address inside stands for the host's loopback.
    fn map(&self, to: SocketAddr) -> SocketAddr {
        let ip = match to.ip().to_canonical() {
            ip if ip == self.plan.host[0] => Ipv4Addr::LOCALHOST.into(),
            ip if ip == self.plan.host[1] => Ipv6Addr::LOCALHOST.into(),
            ip => ip,
        };
        SocketAddr::new(ip, to.port())
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use proptest::prelude::*;

    use super::rule::{allow, deny};
    use super::*;

    fn decide(rules: &[Rule], to: &str) -> Option<String> {
        let decided = Policy::new(rules.to_vec(), Plan::default()).decide(to.parse().unwrap());
        decided.ok().map(|target| target.addr().to_string())
    }

    #[test]
    fn without_rules_hosts_are_permitted_and_the_host_itself_is_not() {
        assert_eq!(decide(&[], "192.0.2.1:80").as_deref(), Some("192.0.2.1:80"));
        assert_eq!(decide(&[], "[::ffff:192.0.2.1]:80").as_deref(), Some("192.0.2.1:80"));
        for refused in [
            "127.0.0.1:80",
            "[::1]:80",
            "[::ffff:127.0.0.1]:80",
            "[2002:7f00:1::]:80",
            "0.0.0.0:80",
            "169.254.169.254:80",
            "[fd00:ec2::254]:80",
            "100.100.100.200:80",
            "[fd20:ce::254]:80",
            "10.0.2.2:80",
            "[fd00::2]:80",
        ] {
            assert_eq!(decide(&[], refused), None, "{refused}");
        }
    }

    #[test]
    fn everything_does_not_include_the_host_its_link_and_groups_in_any_form() {
        for everything in [
            &["*:80"][..],
            &["0.0.0.0/0:80", "[::]/0:80"],
            &["0.0.0.0/1:80", "128.0.0.0/1:80", "[::]/1:80", "[8000::]/1:80", "10.0.0.0/8:80"],
        ] {
            let rules: Vec<Rule> = everything.iter().map(|rule| allow(rule).unwrap()).collect();
            for hidden in crate::engine::HIDDEN {
                let to = SocketAddr::new(hidden.parse().unwrap(), 80);
                assert!(
                    Policy::new(rules.clone(), Plan::default()).decide(to).is_err(),
                    "{everything:?} {hidden}"
                );
            }
            assert!(decide(&rules, "8.8.8.8:80").is_some() && decide(&rules, "[2620:fe::9]:80").is_some());
        }
        let named = [allow("[64:ff9b::]/96:80").unwrap(), allow("8.8.8.8:80").unwrap()];
        assert!(decide(&named, "[64:ff9b::8.8.8.8]:80").is_some(), "both are named");
        assert!(decide(&named[..1], "[64:ff9b::8.8.8.8]:80").is_none(), "one is not");
        assert!(decide(&named[1..], "[2002:808:808::1]:80").is_none());
    }

    #[test]
    fn the_first_rule_that_covers_decides() {
        let rules =
            [deny("192.0.2.7").unwrap(), allow("192.0.2.0/24:80").unwrap(), allow("127.0.0.1:5432").unwrap()];
        assert_eq!(decide(&rules, "192.0.2.7:80"), None);
        assert_eq!(decide(&rules, "192.0.2.8:80").as_deref(), Some("192.0.2.8:80"));
        assert_eq!(decide(&rules, "192.0.2.8:81"), None);
        assert_eq!(decide(&rules, "10.0.2.2:5432").as_deref(), Some("127.0.0.1:5432"));
        assert_eq!(decide(&rules, "198.51.100.1:80"), None, "with an --allow, the rest is refused");
        let only_deny = [deny("10.0.0.0/8").unwrap()];
        assert_eq!(decide(&only_deny, "198.51.100.1:80").as_deref(), Some("198.51.100.1:80"));
        assert_eq!(decide(&only_deny, "[64:ff9b::10.1.2.3]:80"), None, "the form that it carries is refused");
    }

    #[test]
    fn new_rules_decide_from_then_on() {
        let (policy, to) = (Policy::new(Vec::new(), Plan::default()), "192.0.2.1:80".parse().unwrap());
        assert!(policy.decide(to).is_ok());
        policy.set_rules(vec![deny("192.0.2.0/24").unwrap()]);
        assert!(policy.decide(to).is_err());
        assert_eq!(policy.rules()[0].text, "192.0.2.0/24");
    }

    #[test]
    fn a_name_covers_the_addresses_that_were_given_out_for_it() {
        let policy = Policy::new(vec![allow("example.org").unwrap()], Plan::default());
        let to: SocketAddr = "192.0.2.1:443".parse().unwrap();
        assert!(policy.decide(to).is_err());
        policy.names.pin("Example.org", to.ip(), std::time::Duration::from_secs(60));
        assert!(policy.decide(to).is_ok());
        policy.names.pin(
            "rebound.example.org",
            Ipv4Addr::LOCALHOST.into(),
            std::time::Duration::from_secs(60),
        );
        assert!(policy.decide("127.0.0.1:443".parse().unwrap()).is_err());
    }

    /// An address near those that matter: the host's own, and IPv6 addresses that carry them.
    fn address() -> impl Strategy<Value = IpAddr> {
        let v4 = prop_oneof![
            any::<u32>(),
            (0u32..4, any::<u32>()).prop_map(|(which, low)| {
                [0x7f00_0000, 0xa9fe_0000, 0, 0xe000_0000][which as usize] | low & 0xffff
            }),
        ]
        .prop_map(Ipv4Addr::from_bits);
        let carriers = [
            (0xffff_u128 << 32, 0),
            (0, 0),
            (0x64_ff9b_u128 << 96, 0),
            (0x2002_u128 << 112, 80),
            (0xffff_u128 << 48, 0),
            (0xfe80_u128 << 112 | 0x5efe << 32, 0),
        ];
        prop_oneof![
            v4.clone().prop_map(IpAddr::V4),
            any::<u128>().prop_map(|bits| IpAddr::V6(bits.into())),
            (v4, 0..carriers.len()).prop_map(move |(v4, which)| {
                let (carrier, shift) = carriers[which];
                IpAddr::V6((carrier | u128::from(v4.to_bits()) << shift).into())
            }),
            Just(Plan::default().host[0]),
            Just(Plan::default().host[1]),
        ]
    }

    /// By the standard library alone: whether a packet to this address may end on the host, its link or in a group.
    fn is_near(addr: IpAddr) -> bool {
        match addr {
            IpAddr::V4(v4) => {
                v4.is_loopback()
                    || v4.is_link_local()
                    || v4.is_multicast()
                    || v4.octets()[0] == 0
                    || v4.octets()[0] >= 240
            }
            IpAddr::V6(v6) => {
                let bits = v6.to_bits();
                let low = Ipv4Addr::from_bits(bits as u32);
                let is_6to4 =
                    bits >> 112 == 0x2002 && is_near(Ipv4Addr::from_bits((bits >> 80) as u32).into());
                let carries_low =
                    bits >> 32 == 0x64_ff9b << 64 || bits >> 32 == 0xffff_0000 || bits >> 32 == 0xffff;
                v6.is_loopback()
                    || v6.is_unicast_link_local()
                    || v6.is_multicast()
                    || bits >> 32 == 0
                    || is_6to4
                    || carries_low && is_near(low.into())
            }
        }
    }

    proptest! {
        /// What a socket of the host gets is never the host itself, its link or a group, whatever was asked for, with careless rules, too.
        #[test]
        fn nothing_near_is_reached_without_a_rule_that_names_it(
            addr in address(),
            port in any::<u16>(),
            rules in proptest::sample::subsequence(vec!["*", "0.0.0.0/0", "::/0", "10.0.0.0/8", "0.0.0.0/1", "*:80"], 0..6),
        ) {
            let rules = rules.into_iter().map(|rule| allow(rule).unwrap()).collect();
            if let Ok(target) = Policy::new(rules, Plan::default()).decide(SocketAddr::new(addr, port)) {
                prop_assert!(!is_near(target.addr().ip()), "{addr} led to {}", target.addr());
                prop_assert_eq!(target.addr().ip(), target.addr().ip().to_canonical());
            }
        }
    }
}
