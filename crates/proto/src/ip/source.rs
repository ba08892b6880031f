//! Which of our addresses a packet is sent from (RFC 6724 section 5), for IPv6 and by the same rules for IPv4.
//!
//! Pairwise comparison of candidates by the rules that a host without mobility and without temporary addresses has:
//! same address, scope, deprecation, outgoing interface, label, longest match. The labels are those of the default
//! policy table (section 2.1). Does not depend on interfaces or routes. Tests: below.

use core::cmp::Ordering;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An address that may be chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Candidate {
    /// The address.
    pub addr: IpAddr,
    /// Bits of it that name its network: more are not compared (section 2.2).
    pub prefix_len: u8,
    /// Nothing new should begin from it.
    pub is_deprecated: bool,
    /// It belongs to the interface by which the packet leaves.
    pub is_outgoing: bool,
}

/// The best of `candidates` for a packet to `dst`; of equals the first. `None` if none is of its family.
pub fn select(dst: IpAddr, candidates: impl Iterator<Item = Candidate>) -> Option<IpAddr> {
    let fitting = candidates.filter(|candidate| candidate.addr.is_ipv4() == dst.is_ipv4());
    let better = |best: Candidate, next: Candidate| {
        if compare(dst, &next, &best) == Ordering::Greater { next } else { best }
    };
    fitting.reduce(better).map(|best| best.addr)
}

/// `Greater` if `a` is the better one.
fn compare(dst: IpAddr, a: &Candidate, b: &Candidate) -> Ordering {
    let by = |of: fn(&Candidate) -> bool| of(a).cmp(&of(b));
    let same_address = |of: &Candidate| of.addr == dst;
    let same_label = |of: &Candidate| label(of.addr) == label(dst);
    let matching = |of: &Candidate| common_prefix(of.addr, dst).min(u32::from(of.prefix_len));
    // Rules 1, 2, 3, 5, 6 and 8.
    same_address(a)
        .cmp(&same_address(b))
        .then_with(|| by_scope(dst, a, b))
        .then_with(|| by(|of| !of.is_deprecated))
        .then_with(|| by(|of| of.is_outgoing))
        .then_with(|| same_label(a).cmp(&same_label(b)))
        .then_with(|| matching(a).cmp(&matching(b)))
}

/// Rule 2: the smallest scope that reaches the destination, else the largest.
fn by_scope(dst: IpAddr, a: &Candidate, b: &Candidate) -> Ordering {
    let (of_a, of_b, of_dst) = (scope(a.addr), scope(b.addr), scope(dst));
    match of_a.cmp(&of_b) {
        Ordering::Equal => Ordering::Equal,
        Ordering::Less if of_a < of_dst => Ordering::Less,
        Ordering::Less => Ordering::Greater,
        Ordering::Greater if of_b < of_dst => Ordering::Greater,
        Ordering::Greater => Ordering::Less,
    }
}

const SCOPE_LINK_LOCAL: u8 = 0x2;
const SCOPE_SITE_LOCAL: u8 = 0x5;
const SCOPE_GLOBAL: u8 = 0xe;

/// How far an address reaches, in the numbers of multicast scopes (sections 3.1 and 3.2).
pub fn scope(addr: IpAddr) -> u8 {
    match addr {
        IpAddr::V4(v4) if v4.is_link_local() || v4.is_loopback() => SCOPE_LINK_LOCAL,
        IpAddr::V4(_) => SCOPE_GLOBAL,
        IpAddr::V6(v6) if v6.is_multicast() => v6.octets()[1] & 0x0f,
        IpAddr::V6(v6) if v6.is_unicast_link_local() || v6.is_loopback() => SCOPE_LINK_LOCAL,
        IpAddr::V6(v6) if v6.segments()[0] & 0xffc0 == 0xfec0 => SCOPE_SITE_LOCAL,
        IpAddr::V6(_) => SCOPE_GLOBAL,
    }
}

/// The default policy table: prefix, its length, label; the longest match decides.
const POLICY: [(Ipv6Addr, u32, u8); 9] = [
    (Ipv6Addr::LOCALHOST, 128, 0),
    (Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0), 96, 4),
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 32, 5),
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16, 2),
    (Ipv6Addr::new(0x3ffe, 0, 0, 0, 0, 0, 0, 0), 16, 12),
    (Ipv6Addr::new(0xfec0, 0, 0, 0, 0, 0, 0, 0), 10, 11),
    (Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7, 13),
    (Ipv6Addr::UNSPECIFIED, 96, 3),
    (Ipv6Addr::UNSPECIFIED, 0, 1),
];

fn label(addr: IpAddr) -> u8 {
    let addr = IpAddr::V6(mapped(addr));
    let matching = POLICY.iter().filter(|(prefix, len, _)| common_prefix(IpAddr::V6(*prefix), addr) >= *len);
    matching.max_by_key(|(_, len, _)| *len).map_or(1, |(_, _, label)| *label)
}

fn mapped(addr: IpAddr) -> Ipv6Addr {
    match addr {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}

/// Leading bits that two addresses share; none if they are of two families.
fn common_prefix(a: IpAddr, b: IpAddr) -> u32 {
    let bits4 = |addr: Ipv4Addr| u32::from(addr);
    let bits6 = |addr: Ipv6Addr| u128::from(addr);
    match (a, b) {
        (IpAddr::V4(a), IpAddr::V4(b)) => (bits4(a) ^ bits4(b)).leading_zeros(),
        (IpAddr::V6(a), IpAddr::V6(b)) => (bits6(a) ^ bits6(b)).leading_zeros(),
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addr(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// Candidates of /64 (or /24); a `-` before one means deprecated, a `*` that it is another interface's.
    fn chosen(dst: &str, candidates: &[&str]) -> Option<IpAddr> {
        let candidate = |text: &&str| {
            let bare = text.trim_start_matches(['-', '*']);
            Candidate {
                addr: addr(bare),
                prefix_len: if bare.contains(':') { 64 } else { 24 },
                is_deprecated: text.starts_with('-'),
                is_outgoing: !text.starts_with('*'),
            }
        };
        select(addr(dst), candidates.iter().map(candidate))
    }

    #[test]
    fn source_selection_follows_the_examples_of_rfc_6724_section_10_1_and_each_rule() {
        for (dst, candidates, best) in [
            ("2001:db8:1::1", &["2001:db8:3::1", "fe80::1"][..], "2001:db8:3::1"),
            ("ff05::1", &["2001:db8:3::1", "fe80::1"], "2001:db8:3::1"),
            ("2001:db8:1::1", &["-2001:db8:1::1", "2001:db8:2::1"], "2001:db8:1::1"),
            ("fe80::1", &["-fe80::2", "2001:db8:1::1"], "fe80::2"),
            ("2001:db8:1::d5e3", &["2001:db8:1::2", "2001:db8:3::2"], "2001:db8:1::2"),
            ("2002:c633:6401::d5e3", &["2001:db8:1::2", "2002:c633:6401::d5e3"], "2002:c633:6401::d5e3"),
            ("2001:db8:1::1", &["-2001:db8:1::2", "2001:db8:9::2"], "2001:db8:9::2"),
            ("2001:db8:1::1", &["*2001:db8:1::2", "2001:db8:9::2"], "2001:db8:9::2"),
            ("fd00:9::1", &["2001:db8:1::2", "fd00:1::2"], "fd00:1::2"),
            ("10.0.1.9", &["10.0.0.1", "10.0.1.1", "fe80::1"], "10.0.1.1"),
            ("8.8.8.8", &["169.254.1.1", "10.0.1.1"], "10.0.1.1"),
            ("169.254.9.9", &["10.0.1.1", "169.254.1.1"], "169.254.1.1"),
            ("8.8.8.8", &["192.168.0.1", "192.168.0.2"], "192.168.0.1"),
        ] {
            assert_eq!(chosen(dst, candidates), Some(addr(best)), "{dst} from {candidates:?}");
        }
        assert_eq!(chosen("10.0.0.1", &["fe80::1"]), None);
    }
}
