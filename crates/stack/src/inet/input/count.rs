//! Counters of input and output over interfaces, and how often one core was in another's way.
//!
//! Sharded by thread like the stack's other counters, and added to once for a batch where that can be done.
//! `docs/reference/counters.md` explains them. Tests: `tests/wire/transfers.rs`.

use sockeye_proto::ip::ParseError;

/// Frames taken from interfaces.
pub(crate) const FRAMES_IN: usize = 0;
/// Frames handed to interfaces.
pub(crate) const FRAMES_OUT: usize = 1;
/// Times that an input thread found frames.
pub(crate) const BATCHES: usize = 2;
/// TCP segments taken from frames.
pub(crate) const PACKETS: usize = 3;
/// Times that input took a socket lock.
pub(crate) const ACQUISITIONS: usize = 4;
/// Times that it was occupied.
pub(crate) const CONTENDED: usize = 5;
/// Times that the lock around all input was held by another thread.
pub(crate) const LOCK_CONTENDED: usize = 6;
/// Runs of one segment; those of 2 to 3, 4 to 7, 8 to 15, and longer ones follow.
pub(crate) const RUNS: usize = 7;
/// Not understood as Ethernet, ARP, IP or TCP. Each has a reason among the counters at the end.
pub(crate) const MALFORMED: usize = 12;
/// IP header or TCP segment that does not sum up.
pub(crate) const BAD_CHECKSUM: usize = 13;
/// To an address that is not ours, or from one that cannot be out there.
pub(crate) const NOT_FOR_US: usize = 14;
/// Carries something else than TCP.
pub(crate) const UNKNOWN_PROTOCOL: usize = 15;
/// No packet memory for the payload.
pub(crate) const NO_MEMORY: usize = 16;
/// An outgoing queue was full.
pub(crate) const QUEUE_FULL: usize = 17;
/// A segment for which there is no route or no packet.
pub(crate) const UNSENDABLE: usize = 18;
/// Times that an input thread went to sleep.
pub(crate) const SLEEPS: usize = 19;
/// A frame for another station of the link.
pub(crate) const OTHER_STATION: usize = 20;
/// A frame of an ethertype that the stack does not speak.
pub(crate) const UNKNOWN_ETHERTYPE: usize = 21;
/// Segments that a router has marked (RFC 3168).
pub(crate) const MARKED: usize = 22;
/// Times that a waiting caller found frames.
pub(crate) const BY_CALLERS: usize = 23;
/// Times that an input thread deferred to callers.
pub(crate) const DEFERRED: usize = 24;
/// Of those not for us: from an address that cannot be outside, our own among them.
pub(crate) const MARTIAN: usize = 25;
/// Of those not for us: TCP to a group or a broadcast address.
pub(crate) const TCP_TO_MANY: usize = 26;
/// Of the malformed: ends within a header of IP or an option.
pub(crate) const TRUNCATED: usize = 27;
/// Of the malformed: an IP version that is neither 4 nor 6.
pub(crate) const BAD_VERSION: usize = 28;
/// Of the malformed: an IPv4 header of less than five words.
pub(crate) const BAD_HEADER_LEN: usize = 29;
/// Of the malformed: IP's length field lies.
pub(crate) const BAD_LENGTH: usize = 30;
/// Of the malformed: too many IPv6 extension headers.
pub(crate) const TOO_MANY_EXTENSIONS: usize = 31;
/// Of the malformed: an IPv6 hop-by-hop header that is not the first.
pub(crate) const MISPLACED_HOP_BY_HOP: usize = 32;
/// Of the malformed: an unknown IPv6 option that asks for that.
pub(crate) const REFUSED_OPTION: usize = 33;
/// Of the malformed: a TCP header whose lengths lie.
pub(crate) const BAD_TCP_HEADER: usize = 34;
/// Of the malformed: ends within the Ethernet header.
pub(crate) const SHORT_ETHERNET: usize = 35;
/// Of the malformed: ARP that ends too early.
pub(crate) const SHORT_ARP: usize = 36;
/// Of the malformed: an IPv6 extension header that ends behind the packet.
pub(crate) const TRUNCATED_EXTENSION: usize = 37;
/// Of the malformed: an IP option of a length that it cannot have.
pub(crate) const BAD_OPTION_LEN: usize = 38;
/// Of the malformed: an IPv6 routing header that leads on.
pub(crate) const ROUTING_HEADER: usize = 39;
/// Of the malformed: an IPv4 source route.
pub(crate) const SOURCE_ROUTE: usize = 40;
/// Of those that do not sum up: an IPv4 header.
pub(crate) const BAD_IP_CHECKSUM: usize = 41;
/// Of those that do not sum up: a TCP segment.
pub(crate) const BAD_TCP_CHECKSUM: usize = 42;
/// Segments whose options end in one of a length that cannot be: read up to there.
pub(crate) const BAD_TCP_OPTIONS: usize = 43;
/// Segments that were joined to the one before them.
pub(crate) const JOINED: usize = 44;
/// Times that a caller became the leader of a queue, to sleep in its interface.
pub(crate) const LEADS: usize = 45;
/// Of those not for us: to an address that no outside host can mean.
pub(crate) const MARTIAN_DST: usize = 46;
/// Of those not for us: refused by the interface's check of the reverse path.
pub(crate) const RP_FILTER: usize = 47;
/// Frames whose interface panicked when it was given them.
pub(crate) const NETIF_PANICKED: usize = 48;
/// How many there are.
pub(crate) const COUNT: usize = 49;

/// Their names.
pub(crate) const NAMES: [&str; COUNT] = [
    "frames_in",
    "frames_out",
    "input_batches",
    "input_packets",
    "input_acquisitions",
    "input_contended",
    "input_lock_contended",
    "input_runs_of_1",
    "input_runs_of_2_to_3",
    "input_runs_of_4_to_7",
    "input_runs_of_8_to_15",
    "input_runs_of_16_up",
    "frames_malformed",
    "frames_bad_checksum",
    "frames_not_for_us",
    "frames_unknown_protocol",
    "frames_no_memory",
    "frames_queue_full",
    "frames_unsendable",
    "input_sleeps",
    "frames_other_station",
    "frames_unknown_ethertype",
    "input_marked",
    "input_by_callers",
    "input_deferred",
    "frames_martian",
    "frames_tcp_to_many",
    "frames_truncated",
    "frames_bad_version",
    "frames_bad_header_len",
    "frames_bad_length",
    "frames_too_many_extensions",
    "frames_misplaced_hop_by_hop",
    "frames_refused_option",
    "frames_bad_tcp_header",
    "frames_short_ethernet",
    "frames_short_arp",
    "frames_truncated_extension",
    "frames_bad_option_len",
    "frames_routing_header",
    "frames_source_route",
    "frames_bad_ip_checksum",
    "frames_bad_tcp_checksum",
    "input_bad_tcp_options",
    "input_joined",
    "input_leads",
    "frames_martian_dst",
    "frames_rp_filter",
    "frames_netif_panicked",
];

/// Their names in the kernel's MIB, where it has the same.
pub(crate) const MIB: [(usize, &str); 3] = [
    (BAD_IP_CHECKSUM, "IpExtInCsumErrors"),
    (BAD_TCP_CHECKSUM, "TcpInCsumErrors"),
    (RP_FILTER, "TcpExtIPReversePathFilter"),
];

/// The counter of the reason for which IP headers are refused, and that of all such frames.
pub(crate) fn of_ip(error: &ParseError) -> (usize, usize) {
    let why = match error {
        ParseError::Checksum(_) => return (BAD_IP_CHECKSUM, BAD_CHECKSUM),
        // Fragments are read elsewhere; one that comes here is cut off within its header.
        ParseError::Truncated { .. } | ParseError::Fragment => TRUNCATED,
        ParseError::Version(_) => BAD_VERSION,
        ParseError::HeaderLen(_) => BAD_HEADER_LEN,
        ParseError::PacketLen { .. } => BAD_LENGTH,
        ParseError::TooManyExtensions => TOO_MANY_EXTENSIONS,
        ParseError::TruncatedExtension { .. } => TRUNCATED_EXTENSION,
        ParseError::MisplacedHopByHop { .. } => MISPLACED_HOP_BY_HOP,
        ParseError::OptionLen { .. } => BAD_OPTION_LEN,
        ParseError::Option { .. } => REFUSED_OPTION,
        ParseError::Routing { .. } => ROUTING_HEADER,
        ParseError::SourceRoute { .. } => SOURCE_ROUTE,
    };
    (why, MALFORMED)
}

/// The counter of runs of `len` segments.
pub(crate) fn run_of(len: usize) -> usize {
    RUNS + (len.max(1).ilog2() as usize).min(4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_counted_in_the_bucket_of_its_length() {
        for (len, name) in [
            (1, "input_runs_of_1"),
            (2, "input_runs_of_2_to_3"),
            (3, "input_runs_of_2_to_3"),
            (7, "input_runs_of_4_to_7"),
            (15, "input_runs_of_8_to_15"),
            (16, "input_runs_of_16_up"),
            (64, "input_runs_of_16_up"),
        ] {
            assert_eq!(NAMES[run_of(len)], name);
        }
    }
}
