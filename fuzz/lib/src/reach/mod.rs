//! What the gateway permits, beside the stack's own table of addresses.
//!
//! The bytes choose rules, none of which names an address of the host, its link or a group, and an address: of one of the forms that carry an IPv4
//! address, or any. Invariants: what is permitted is, by the stack's table ([`Class`]), an ordinary host's, and so is each IPv4 address that stands
//! in it; what a rule refuses by its address is not permitted in any form; a rule that permits everything permits every ordinary IPv4 address.
//!
//! The forms are taken apart here by their definitions, not by the gateway's code. Tests: `tests/corpus.rs`.

pub(crate) mod policy;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use arbitrary::{Result, Unstructured};
use sockeye_proto::ip::martian::Class;

use policy::decision::permits;
use policy::rule::{Rule, allow, deny};

/// Rules that permit, and name nothing near.
const CARELESS: [&str; 9] = [
    "*",
    "0.0.0.0/0",
    "[::]/0",
    "0.0.0.0/1",
    "[2000::]/3",
    "10.0.0.0/8",
    "*:1-1000",
    "near.example",
    "*.example",
];
/// Rules of an input.
const RULES_MAX: usize = 6;

/// The target.
pub fn reach(data: &[u8]) {
    // Too few bytes decide nothing.
    let _ = run(&mut Unstructured::new(data));
}

fn run(u: &mut Unstructured<'_>) -> Result<()> {
    let mut rules = Vec::new();
    let mut refused = Vec::new();
    for _ in 0..u.int_in_range(0..=RULES_MAX)? {
        if u.ratio(1, 3)? {
            let addr = Ipv4Addr::from_bits(u.arbitrary()?);
            rules.push(parsed(deny(&addr.to_string())));
            // Only what no rule before it has permitted.
            if !rules.iter().any(|rule: &Rule| rule.allows) {
                refused.push(addr);
            }
        } else {
            rules.push(parsed(allow(u.choose(&CARELESS)?)));
        }
    }
    let addr = match (refused.last(), u.ratio(1, 2)?) {
        (Some(addr), true) => form(u, *addr)?,
        _ => address(u)?,
    };
    // The address of a socket: a mapped one is IPv4's.
    let onward = SocketAddr::new(addr.to_canonical(), u.arbitrary()?);
    let names = if u.arbitrary()? { vec!["near.example".to_owned()] } else { Vec::new() };
    let is_permitted = permits(&rules, onward, &names);
    let inside: Vec<Ipv4Addr> = carried(onward.ip());
    if is_permitted {
        assert_ordinary(onward.ip(), onward);
        inside.iter().for_each(|v4| assert_ordinary((*v4).into(), onward));
        for addr in &refused {
            assert!(
                onward.ip() != *addr && !inside.contains(addr),
                "{onward} leads to {addr}, which is refused"
            );
        }
    }
    let everything = [parsed(allow("*"))];
    if let IpAddr::V4(v4) = onward.ip() {
        assert_eq!(permits(&everything, onward, &[]), Class::of(v4.into()) == Class::Host, "{onward}");
    }
    Ok(())
}

fn parsed(rule: std::result::Result<Rule, String>) -> Rule {
    rule.expect("a rule of this target's own")
}

fn assert_ordinary(addr: IpAddr, onward: SocketAddr) {
    assert_eq!(Class::of(addr), Class::Host, "{onward} is permitted, and is or carries {addr}");
    if let IpAddr::V6(v6) = addr {
        let bits = v6.to_bits();
        assert_ne!(bits >> 80, 0x64_ff9b_0001, "{onward}: what stands behind a translator of that operator");
        assert_ne!(bits >> 96, 0xfd00_0ec2, "{onward}: the metadata service of a cloud");
    }
}

/// An address, likely to be or carry one that matters.
fn address(u: &mut Unstructured<'_>) -> Result<IpAddr> {
    let near = [0x7f00_0001, 0x7fff_fffe, 0, 0xa9fe_a9fe, 0xe000_00fb, 0xf000_0001, u32::MAX, 0x0a00_0001];
    let v4 = if u.ratio(3, 4)? { *u.choose(&near)? } else { u.arbitrary()? };
    if u.ratio(1, 8)? {
        return Ok(Ipv6Addr::from_bits(u.arbitrary()?).into());
    }
    form(u, Ipv4Addr::from_bits(v4))
}

/// One of the ways to write an IPv4 address.
fn form(u: &mut Unstructured<'_>, v4: Ipv4Addr) -> Result<IpAddr> {
    let low = u128::from(v4.to_bits());
    let client = u128::from(!v4.to_bits());
    let rest: u64 = u.arbitrary()?;
    let network = u128::from(rest) << 64;
    let bits = match u.int_in_range(0..=9)? {
        0 => return Ok(v4.into()),
        1 => 0xffff << 32 | low,
        2 => low,
        3 => 0xffff << 48 | low,
        4 => 0x64_ff9b << 96 | low,
        5 => 0x2002 << 112 | low << 80 | u128::from(rest),
        6 => 0x2001_0000 << 96 | low << 64 | u128::from(rest),
        7 => 0x2001_0000 << 96 | u128::from(rest >> 32) << 64 | client,
        8 => network | 0x5efe << 32 | low,
        _ => network | 0x0200_5efe << 32 | low,
    };
    Ok(Ipv6Addr::from_bits(bits).into())
}

/// The IPv4 addresses that stand in an address, by RFC 3056, 4380, 5214, 6052, 2765 and 4291.
fn carried(addr: IpAddr) -> Vec<Ipv4Addr> {
    let IpAddr::V6(v6) = addr else { return Vec::new() };
    let bits = v6.to_bits();
    let at = |shift: u32| Ipv4Addr::from_bits((bits >> shift) as u32);
    let mut all = Vec::new();
    if bits >> 112 == 0x2002 {
        all.push(at(80));
    }
    if bits >> 96 == 0x2001_0000 {
        all.extend([at(64), Ipv4Addr::from_bits(!(bits as u32))]);
    }
    if bits >> 32 == 0x64_ff9b << 64 || bits >> 32 == 0xffff_0000 {
        all.push(at(0));
    }
    if matches!((bits >> 32) as u32, 0x5efe | 0x0200_5efe) {
        all.push(at(0));
    }
    all
}
