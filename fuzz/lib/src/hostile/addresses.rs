//! Addresses of every class: those that a packet may come from and go to, and those that it may not.
//!
//! A block for each class of `sockeye_proto::ip::martian` in each family that has it, of which bytes choose an address: the
//! first, the last or any. Tests: below.

use std::net::IpAddr;

use arbitrary::{Result, Unstructured};
use sockeye_proto::ip::martian::Class;

/// The stack's addresses, with their networks: on the interface, and on another.
pub const OURS: [&str; 3] = ["10.9.0.1/24", "fd09::1/64", "fe80::a/64"];
pub const OURS_ELSEWHERE: [&str; 3] = ["10.77.0.1/24", "fd77::1/64", "fe80::b/64"];

/// Class, first address, bits of it that are fixed.
pub const BLOCKS: [(Class, &str, u8); 34] = [
    (Class::Host, "10.9.0.2", 32),
    (Class::Host, "10.9.0.64", 26),
    (Class::Host, "192.0.2.0", 24),
    (Class::Host, "fd09::2", 128),
    (Class::Host, "2001:db8::", 32),
    (Class::Host, "2002:7f00:1::", 48),
    (Class::Host, "64:ff9b::7f00:0", 104),
    (Class::LinkLocal, "169.254.0.0", 16),
    (Class::LinkLocal, "fe80::9", 128),
    (Class::LinkLocal, "fe80::", 10),
    (Class::Unspecified, "0.0.0.0", 32),
    (Class::Unspecified, "::", 128),
    (Class::ThisNetwork, "0.0.0.0", 8),
    (Class::Loopback, "127.0.0.1", 32),
    (Class::Loopback, "127.0.0.0", 8),
    (Class::Loopback, "::1", 128),
    (Class::Mapped, "::ffff:127.0.0.1", 128),
    (Class::Mapped, "::ffff:10.9.0.1", 128),
    (Class::Mapped, "::ffff:0.0.0.0", 96),
    (Class::Compatible, "::127.0.0.1", 128),
    (Class::Compatible, "::", 96),
    (Class::Group, "224.0.0.1", 32),
    (Class::Group, "224.0.0.0", 4),
    (Class::Group, "ff02::1", 128),
    (Class::Group, "ff02::", 16),
    (Class::NodeGroup, "ff01::", 16),
    (Class::Reserved, "240.0.0.0", 4),
    (Class::LimitedBroadcast, "255.255.255.255", 32),
    (Class::Own, "10.9.0.1", 32),
    (Class::Own, "fd09::1", 128),
    (Class::OwnElsewhere, "10.77.0.1", 32),
    (Class::OwnOffLink, "fe80::b", 128),
    (Class::Broadcast, "10.9.0.255", 32),
    (Class::Network, "10.9.0.0", 32),
];

/// An address of some block, of a family.
pub fn address(u: &mut Unstructured<'_>, is_v6: bool) -> Result<IpAddr> {
    let of_family = |block: &&(Class, &str, u8)| block.1.contains(':') == is_v6;
    let count = BLOCKS.iter().filter(of_family).count();
    let (_, first, len) =
        BLOCKS.iter().filter(of_family).nth(u.choose_index(count)?).expect("an index below the count");
    let first: IpAddr = first.parse().expect("an address");
    let any: u128 = match u.int_in_range(0..=3u8)? {
        0 => 0,
        1 => u128::MAX,
        _ => u.arbitrary()?,
    };
    Ok(match first {
        IpAddr::V4(first) => {
            let free = u32::MAX.checked_shr(u32::from(*len)).unwrap_or(0);
            // The low half of the bytes drawn.
            IpAddr::V4((first.to_bits() | any as u32 & free).into())
        }
        IpAddr::V6(first) => {
            let free = u128::MAX.checked_shr(u32::from(*len)).unwrap_or(0);
            IpAddr::V6((first.to_bits() | any & free).into())
        }
    })
}

/// Whether a packet may go to this address, in words of its own and not by the stack's table: one host, which is not this stack.
pub fn may_be_sent_to(addr: IpAddr) -> bool {
    let is_host = match addr {
        IpAddr::V4(v4) => {
            let [first, _, _, last] = v4.octets();
            let is_ends = matches!(v4.octets()[..3], [10, 9 | 77, 0]) && matches!(last, 0 | 255);
            !matches!(first, 0 | 127 | 224..) && !is_ends
        }
        IpAddr::V6(v6) => {
            let carries_v4 = v6.to_ipv4().is_some();
            !v6.is_multicast() && !carries_v4 && !v6.is_loopback() && !v6.is_unspecified()
        }
    };
    is_host && !is_ours(addr)
}

/// Whether it is an address of the stack.
pub fn is_ours(addr: IpAddr) -> bool {
    let own = OURS.iter().chain(&OURS_ELSEWHERE).filter_map(|own| own.split('/').next());
    own.filter_map(|own| own.parse::<IpAddr>().ok()).any(|own| own == addr)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_has_a_block_and_each_block_begins_with_its_class() {
        for class in Class::ALL {
            let has_block = BLOCKS.iter().any(|(of, ..)| *of == class);
            assert!(has_block || class == Class::BroadcastElsewhere, "{class:?}");
        }
        for (class, first, _) in BLOCKS {
            let by_itself = Class::of(first.parse().unwrap());
            // Addresses that only a stack can classify look like hosts.
            assert!(
                by_itself == class || by_itself.is_host() || first == "0.0.0.0" || first == "::",
                "{first}"
            );
        }
    }
}
