//! The addresses inside, for each family: the network, the address of the command or first machine, the gateway's address, the name server's.
//!
//! The defaults are those of slirp4netns, which people and scripts know; `--network` changes them. Does not depend on their users. Tests: below.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sockeye::netif::Prefix;

use super::policy::reach;

/// Numbers of the hosts in their network, as slirp4netns has them.
const HOST: u8 = 2;
const NAMES: u8 = 3;
const INSIDE_V4: u8 = 100;
const INSIDE_V6: u16 = 0x100;
/// The longest prefix that has room for [`INSIDE_V4`] and those behind it.
const V4_LEN_MAX: u8 = 25;
/// The shortest: more is not one network's.
const V4_LEN_MIN: u8 = 8;
/// The network of hosts that give themselves addresses (RFC 4291 section 2.5.1).
const V6_LEN: u8 = 64;
/// The networks that are used if none are named.
const V4: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 0);
const V4_LEN: u8 = 24;
const V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0);

/// Who has which address; IPv4 first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Plan {
    /// The command's, or the first machine's.
    pub inside: [IpAddr; 2],
    /// The gateway's, which stands for the host.
    pub host: [IpAddr; 2],
    /// The name server's.
    pub names: [IpAddr; 2],
    /// Bits of the network.
    pub lens: [u8; 2],
}

impl Default for Plan {
    fn default() -> Self {
        Self::of((V4, V4_LEN), V6)
    }
}

impl Plan {
    /// The plan for these networks, of which the last of each family counts.
    pub fn new(networks: &[Network]) -> Self {
        let (mut v4, mut v6) = ((V4, V4_LEN), V6);
        for Network(network) in networks {
            match network.network().addr() {
                IpAddr::V4(addr) => v4 = (addr, network.len()),
                IpAddr::V6(addr) => v6 = addr,
            }
        }
        Self::of(v4, v6)
    }

    fn of((v4, len): (Ipv4Addr, u8), v6: Ipv6Addr) -> Self {
        let v4 = |host: u8| IpAddr::V4(Ipv4Addr::from_bits(v4.to_bits() | u32::from(host)));
        let v6 = |host: u16| IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() | u128::from(host)));
        Self {
            inside: [v4(INSIDE_V4), v6(INSIDE_V6)],
            host: [v4(HOST), v6(HOST.into())],
            names: [v4(NAMES), v6(NAMES.into())],
            lens: [len, V6_LEN],
        }
    }

    /// Two addresses, each with its network.
    pub fn with_networks(&self, addrs: [IpAddr; 2]) -> impl Iterator<Item = Prefix> {
        addrs.into_iter().zip(self.lens).filter_map(|(addr, len)| Prefix::new(addr, len).ok())
    }

    /// Whether an address is of the networks inside.
    pub fn contains(&self, addr: IpAddr) -> bool {
        self.with_networks(self.inside).any(|network| network.contains(addr))
    }
}

/// A network that a plan can be made for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Network(Prefix);

impl std::str::FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let prefix: Prefix = text.parse().map_err(|error| format!("{error}: write such as 10.1.0.0/24"))?;
        let is_fit = match prefix.addr() {
            IpAddr::V4(_) => (V4_LEN_MIN..=V4_LEN_MAX).contains(&prefix.len()),
            IpAddr::V6(_) => prefix.len() == V6_LEN,
        };
        if !is_fit {
            return Err(format!(
                "{text}: an IPv4 network has {V4_LEN_MIN} to {V4_LEN_MAX} bits, an IPv6 network {V6_LEN}"
            ));
        }
        if reach::special(prefix.addr()).is_some() {
            return Err(format!("{text}: hosts cannot have these addresses"));
        }
        Ok(Self(prefix))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_have_their_numbers_in_any_network() {
        let plan = Plan::default();
        assert_eq!(plan.inside.map(|addr| addr.to_string()), ["10.0.2.100", "fd00::100"]);
        let networks = ["10.0.2.0/24", "192.168.77.0/24", "fd12:3456::/64"].map(|text| text.parse().unwrap());
        let plan = Plan::new(&networks);
        assert_eq!(plan.host.map(|addr| addr.to_string()), ["192.168.77.2", "fd12:3456::2"]);
        assert_eq!(plan.names.map(|addr| addr.to_string()), ["192.168.77.3", "fd12:3456::3"]);
        assert!(
            plan.contains("192.168.77.9".parse().unwrap()) && !plan.contains("10.0.2.9".parse().unwrap())
        );
    }

    #[test]
    fn a_network_without_room_or_for_no_host_is_refused() {
        for wrong in ["10.0.2.0/26", "10.0.0.0/7", "fd00::/48", "127.0.0.0/24", "fe80::/64", "10.0.2.0", "x"]
        {
            assert!(wrong.parse::<Network>().is_err(), "{wrong}");
        }
    }
}
