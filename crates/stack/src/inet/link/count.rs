//! Counters of a link. The kernel has no MIB for ARP and Neighbor Discovery but ICMPv6's own (RFC 2466).
//!
//! Sharded by thread like the stack's other counters. `docs/reference/counters.md` explains them. Tests: `tests/link/`.

/// Frames whose neighbor was not found without the lock.
pub(crate) const SLOW_LOOKUPS: usize = 0;
/// Requests for neighbors: ARP requests and neighbor solicitations, probes of addresses not among them.
pub(crate) const SOLICITS_OUT: usize = 1;
/// Answers to others' requests.
pub(crate) const ADVERTS_OUT: usize = 2;
/// Neighbors that did not answer.
pub(crate) const UNREACHABLE: usize = 3;
/// Frames that waited for a neighbor and were dropped: too many, or it did not answer.
pub(crate) const PENDING_DROPPED: usize = 4;
/// Frames for which the table had no room.
pub(crate) const TABLE_FULL: usize = 5;
/// ARP packets that came in.
pub(crate) const ARP_IN: usize = 6;
/// Of these, malformed ones, and those of a sender that cannot be.
pub(crate) const ARP_REFUSED: usize = 7;
/// Neighbor Discovery messages that came in.
pub(crate) const NDP_IN: usize = 8;
/// Of these, those that fail a check of RFC 4861.
pub(crate) const NDP_REFUSED: usize = 9;
/// IGMP and MLD messages that came in.
pub(crate) const GROUP_IN: usize = 10;
/// Of these, malformed ones.
pub(crate) const GROUP_REFUSED: usize = 11;
/// IGMP and MLD messages sent.
pub(crate) const GROUP_OUT: usize = 12;
/// Probes of addresses of our own.
pub(crate) const PROBES_OUT: usize = 13;
/// Other hosts that use, or ask for, an address of ours.
pub(crate) const CONFLICTS: usize = 14;
/// Router solicitations sent.
pub(crate) const ROUTER_SOLICITS_OUT: usize = 15;
/// Router advertisements that were believed.
pub(crate) const ROUTER_ADVERTS_IN: usize = 16;
/// Of the refused ARP packets: not IPv4 over Ethernet, or neither request nor reply.
pub(crate) const ARP_MALFORMED: usize = 17;
/// Of these: from an address that cannot be a host's.
pub(crate) const ARP_BAD_SENDER: usize = 18;
/// Of the refused Neighbor Discovery messages: too short or too long, or of a code that there is not.
pub(crate) const NDP_MALFORMED: usize = 19;
/// Of these: with an option of a length that it cannot have.
pub(crate) const NDP_BAD_OPTION: usize = 20;
/// Of these: from behind a router.
pub(crate) const NDP_BAD_HOP_LIMIT: usize = 21;
/// Of these: from or to a host, or about an address, that cannot be.
pub(crate) const NDP_BAD_ADDRESSES: usize = 22;
/// Of the refused IGMP and MLD messages: of a length or kind that they cannot have.
pub(crate) const GROUP_MALFORMED: usize = 23;
/// Of these: do not sum up.
pub(crate) const GROUP_BAD_CHECKSUM: usize = 24;
/// Of these: from behind a router, or from an address that is not of the link.
pub(crate) const GROUP_OFF_LINK: usize = 25;
/// Of these: about an address that is no group.
pub(crate) const GROUP_BAD_GROUP: usize = 26;
/// Neighbors that were sent to and gave way to others.
pub(crate) const EVICTED: usize = 27;
/// Of the refused Neighbor Discovery messages: those that came in fragments.
pub(crate) const NDP_FRAGMENTED: usize = 28;
/// How many there are.
pub(crate) const COUNT: usize = 29;

/// Their names, and the kernel's.
pub(crate) const NAMES: [(&str, &str); COUNT] = [
    ("neighbor_slow_lookups", ""),
    ("neighbor_solicits_out", "Icmp6OutNeighborSolicits"),
    ("neighbor_adverts_out", "Icmp6OutNeighborAdvertisements"),
    ("neighbor_unreachable", ""),
    ("neighbor_pending_dropped", ""),
    ("neighbor_table_full", ""),
    ("arp_in", ""),
    ("arp_refused", ""),
    ("ndp_in", ""),
    ("ndp_refused", ""),
    ("group_messages_in", ""),
    ("group_messages_refused", ""),
    ("group_messages_out", ""),
    ("address_probes_out", ""),
    ("address_conflicts", ""),
    ("router_solicits_out", "Icmp6OutRouterSolicits"),
    ("router_adverts_in", "Icmp6InRouterAdvertisements"),
    ("arp_malformed", ""),
    ("arp_bad_sender", ""),
    ("ndp_malformed", ""),
    ("ndp_bad_option", ""),
    ("ndp_bad_hop_limit", ""),
    ("ndp_bad_addresses", ""),
    ("group_messages_malformed", ""),
    ("group_messages_bad_checksum", ""),
    ("group_messages_off_link", ""),
    ("group_messages_bad_group", ""),
    ("neighbor_evicted", ""),
    ("ndp_fragmented", ""),
];
