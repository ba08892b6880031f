//! Router advertisements (RFC 4861 section 4.2, RFC 8106).
//!
//! Machines derive addresses from the advertised network, and also get one by DHCPv6, to which published ports lead. Does not depend on frames. Tests: `mod.rs`.

use std::time::Duration;

use super::Facts;

/// For how long the gateway is a router for those who hear nothing more, seconds, and names are asked there.
const LIFETIME: u16 = 3600;
/// How often it is said to all.
pub const EVERY: Duration = Duration::from_secs(600);
/// For how long addresses of the network are good, and preferred, seconds.
const VALID: u32 = 86_400;
const PREFERRED: u32 = 14_400;
/// Bytes of the domains to search, at most.
const SEARCH_MAX: usize = 512;

const ROUTER_ADVERT: u8 = 134;
/// There are addresses, and other facts, by DHCPv6.
const MANAGED_AND_OTHER: u8 = 0xc0;
const HOP_LIMIT: u8 = 64;
/// The prefix is on the link, and hosts make addresses of it.
const ON_LINK_AND_AUTONOMOUS: u8 = 0xc0;

mod option {
    pub const SOURCE: u8 = 1;
    pub const PREFIX: u8 = 3;
    pub const MTU: u8 = 5;
    pub const DNS: u8 = 25;
    pub const SEARCH: u8 = 31;
}

/// The message, with a checksum of 0.
pub fn message(facts: &Facts) -> Vec<u8> {
    let mut message = vec![ROUTER_ADVERT, 0, 0, 0, HOP_LIMIT, MANAGED_AND_OTHER];
    message.extend(LIFETIME.to_be_bytes());
    message.extend([0; 8]);
    message.extend([option::SOURCE, 1]);
    message.extend(facts.mac.0);
    message.extend([option::MTU, 1, 0, 0]);
    message.extend(facts.mtu.to_be_bytes());
    message.extend([option::PREFIX, 4, facts.plan.lens[1], ON_LINK_AND_AUTONOMOUS]);
    message.extend([VALID.to_be_bytes(), PREFERRED.to_be_bytes(), [0; 4]].concat());
    message.extend(facts.network_v6().octets());
    message.extend([option::DNS, 3, 0, 0]);
    message.extend(u32::from(LIFETIME).to_be_bytes());
    message.extend(facts.names_v6().octets());
    let mut search = facts.search_labels(SEARCH_MAX);
    if !search.is_empty() {
        // Options are counted in eight bytes.
        search.resize(search.len().next_multiple_of(8), 0);
        message.extend([option::SEARCH, u8::try_from(search.len() / 8 + 1).unwrap_or(1), 0, 0]);
        message.extend(u32::from(LIFETIME).to_be_bytes());
        message.extend(search);
    }
    message
}
