//! Interface identifiers: the lower half of an address that a host makes for itself.
//!
//! A stable one (RFC 7217) is a keyed hash of the prefix: the same at every start as long as the key is kept, and of no use
//! for following the host from one network to the next. The modified EUI-64 (RFC 4291 appendix A) shows the link-layer
//! address, where that is wanted. Tests stand at the end.

use core::hash::Hasher;
use core::net::Ipv6Addr;

use siphasher::sip::SipHasher24;

use crate::neighbor::LinkAddr;

/// How interface identifiers are made.
#[derive(Clone, Copy)]
pub enum Identifiers {
    /// From a secret of the host, RFC 7217.
    Stable {
        /// The secret key.
        secret: [u8; 16],
    },
    /// From the link-layer address.
    Eui64,
}

impl core::fmt::Debug for Identifiers {
    /// Without the secret.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Stable { .. } => "Stable(..)",
            Self::Eui64 => "Eui64",
        })
    }
}

/// Most other identifiers that are tried when one is another host's (IDGEN_RETRIES, RFC 7217 section 7).
pub const RETRIES_MAX: u8 = 3;

impl Identifiers {
    /// The address that an interface with `lladdr` gives itself within the first 64 bits of `prefix`. `attempt` counts
    /// its addresses that were taken (DAD_Counter). `None`: there is no other one to try.
    pub fn address(&self, prefix: Ipv6Addr, lladdr: LinkAddr, attempt: u8) -> Option<Ipv6Addr> {
        let identifier = match self {
            Self::Eui64 => (attempt == 0).then(|| eui64(lladdr))?,
            Self::Stable { secret } => {
                // A reserved identifier is passed over like one that is taken (RFC 7217 section 5).
                (attempt..=RETRIES_MAX)
                    .map(|attempt| stable(secret, prefix, lladdr, attempt))
                    .find(|identifier| !is_reserved(*identifier))?
            }
        };
        let high = u128::from(prefix) & !u128::from(u64::MAX);
        Some(Ipv6Addr::from(high | u128::from(identifier)))
    }

    /// The link-local address of an interface.
    pub fn link_local(&self, lladdr: LinkAddr, attempt: u8) -> Option<Ipv6Addr> {
        self.address(LINK_LOCAL, lladdr, attempt)
    }
}

/// `fe80::`.
const LINK_LOCAL: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0);

fn stable(secret: &[u8; 16], prefix: Ipv6Addr, lladdr: LinkAddr, attempt: u8) -> u64 {
    let mut hasher = SipHasher24::new_with_key(secret);
    hasher.write(&prefix.octets()[..8]);
    hasher.write(&lladdr);
    hasher.write_u8(attempt);
    hasher.finish()
}

fn eui64([a, b, c, d, e, f]: LinkAddr) -> u64 {
    u64::from_be_bytes([a ^ 2, b, c, 0xff, 0xfe, d, e, f])
}

/// RFC 5453 and its registry: the subnet-router anycast address, the range of IANA's Ethernet block, and subnet
/// anycast addresses.
fn is_reserved(identifier: u64) -> bool {
    identifier == 0
        || (0x0200_5eff_fe00_0000..=0x0200_5eff_feff_ffff).contains(&identifier)
        || (0xfdff_ffff_ffff_ff80..=0xfdff_ffff_ffff_ffff).contains(&identifier)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    const MAC: LinkAddr = [0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde];
    const STABLE: Identifiers = Identifiers::Stable { secret: *b"sixteen bytes ok" };

    fn prefix(text: &str) -> Ipv6Addr {
        text.parse().unwrap()
    }

    #[test]
    fn eui64_flips_the_universal_bit_and_has_one_attempt() {
        let addr = Identifiers::Eui64.link_local(MAC, 0).unwrap();
        assert_eq!(addr, prefix("fe80::3656:78ff:fe9a:bcde"));
        assert_eq!(Identifiers::Eui64.link_local(MAC, 1), None);
    }

    #[test]
    fn a_stable_identifier_depends_on_prefix_interface_attempt_and_secret_and_on_nothing_else() {
        let base = STABLE.address(prefix("2001:db8:1::"), MAC, 0).unwrap();
        assert_eq!(base, STABLE.address(prefix("2001:db8:1::99"), MAC, 0).unwrap());
        let other_secret = Identifiers::Stable { secret: [7; 16] };
        let others = [
            STABLE.address(prefix("2001:db8:2::"), MAC, 0).unwrap(),
            STABLE.address(prefix("2001:db8:1::"), [2; 6], 0).unwrap(),
            STABLE.address(prefix("2001:db8:1::"), MAC, 1).unwrap(),
            other_secret.address(prefix("2001:db8:1::"), MAC, 0).unwrap(),
        ];
        let identifiers: HashSet<u64> =
            others.iter().chain([&base]).map(|addr| u128::from(*addr) as u64).collect();
        assert_eq!(identifiers.len(), 5);
        assert!(base.octets().starts_with(&[0x20, 1, 0xd, 0xb8, 0, 1, 0, 0]));
        assert!(STABLE.link_local(MAC, RETRIES_MAX).is_some());
        assert_eq!(STABLE.link_local(MAC, RETRIES_MAX + 1), None);
    }

    #[test]
    fn reserved_identifiers_are_known() {
        for identifier in [0, 0x0200_5eff_fe00_5213, 0xfdff_ffff_ffff_ffff, 0xfdff_ffff_ffff_ff80] {
            assert!(is_reserved(identifier));
        }
        for identifier in [1, 0x0200_5eff_ff00_0000, 0xfdff_ffff_ffff_ff7f] {
            assert!(!is_reserved(identifier));
        }
    }
}
