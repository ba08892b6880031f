//! Counters of the Internet layer, with the names of the kernel's MIB where one fits (RFC 4293, 2011, 2466).
//!
//! Sharded by thread like the stack's other counters. TCP segments that come whole are counted with their frames
//! (`input/count.rs`) and not here, so that their way stays as short as it is. `docs/reference/counters.md`
//! explains the counters. Tests: `tests/ip/`.

/// How many there are.
pub(crate) const COUNT: usize = 50;

/// Packets other than whole TCP segments that reached the Internet layer.
pub(crate) const IN_RECEIVES: usize = 0;
/// Of these, handed to a protocol.
pub(crate) const IN_DELIVERS: usize = 1;
/// Carried a protocol that the stack does not speak.
pub(crate) const IN_UNKNOWN_PROTOS: usize = 2;
/// Packets that protocols other than TCP asked to send.
pub(crate) const OUT_REQUESTS: usize = 3;
/// Of these, dropped though nothing was wrong with them: a full queue, no memory.
pub(crate) const OUT_DISCARDS: usize = 4;
/// No route led to the destination.
pub(crate) const OUT_NO_ROUTES: usize = 5;
/// Longer than the way takes, and not to be cut.
pub(crate) const FRAG_FAILS: usize = 6;
/// Packets that this stack sent to itself.
pub(crate) const LOOPED: usize = 7;
/// ICMP messages that came in, of both families.
pub(crate) const ICMP_IN_MSGS: usize = 8;
/// Of these, too short for their type.
pub(crate) const ICMP_IN_ERRORS: usize = 9;
/// Of these, those that do not sum up.
pub(crate) const ICMP_IN_CSUM_ERRORS: usize = 10;
/// Echo requests.
pub(crate) const ICMP_IN_ECHOS: usize = 11;
/// Answers to echo requests.
pub(crate) const ICMP_IN_ECHO_REPS: usize = 12;
/// Errors: a destination cannot be reached.
pub(crate) const ICMP_IN_DEST_UNREACHS: usize = 13;
/// Errors: a packet was longer than a link takes.
pub(crate) const ICMP_IN_PKT_TOO_BIGS: usize = 14;
/// Errors: hop limit or time of reassembly exceeded.
pub(crate) const ICMP_IN_TIME_EXCDS: usize = 15;
/// Errors: a field that was not understood.
pub(crate) const ICMP_IN_PARM_PROBS: usize = 16;
/// Messages that a host need not act on.
pub(crate) const ICMP_IN_IGNORED: usize = 17;
/// Messages sent.
pub(crate) const ICMP_OUT_MSGS: usize = 18;
/// Of these, answers to echo requests.
pub(crate) const ICMP_OUT_ECHO_REPS: usize = 19;
/// Messages not sent for want of memory or of a way.
pub(crate) const ICMP_OUT_ERRORS: usize = 20;
/// Not sent, as the stack had answered too often.
pub(crate) const ICMP_OUT_RATE_LIMIT_GLOBAL: usize = 21;
/// Not sent, as the destination had been answered too often.
pub(crate) const ICMP_OUT_RATE_LIMIT_HOST: usize = 22;

/// Packets whose IP headers are refused, and datagrams whose headers were when they were whole. Each has a reason among the
/// frames' counters.
pub(crate) const IN_HDR_ERRORS: usize = 23;
/// Fragments that came in.
pub(crate) const REASM_REQDS: usize = 24;
/// Datagrams that were put together.
pub(crate) const REASM_OKS: usize = 25;
/// Fragments and datagrams that were not, for any reason.
pub(crate) const REASM_FAILS: usize = 26;
/// Of these, datagrams whose time was over.
pub(crate) const REASM_TIMEOUT: usize = 27;
/// Datagrams dropped for others of the same source, or of sources that hold less.
pub(crate) const REASM_EVICTED: usize = 28;
/// Fragments that were there already.
pub(crate) const FRAG_DUPLICATE: usize = 29;
/// Fragments that overlapped another.
pub(crate) const FRAG_OVERLAP: usize = 30;
/// Fragments that disagreed about the end of their datagram.
pub(crate) const FRAG_INCONSISTENT: usize = 31;
/// Fragments that were empty, or not the last and not of a multiple of eight bytes.
pub(crate) const FRAG_BAD_LENGTH: usize = 32;
/// Fragments of a datagram longer than a packet can be.
pub(crate) const FRAG_TOO_LONG: usize = 33;
/// Fragments of a datagram that had too many.
pub(crate) const FRAG_TOO_MANY: usize = 34;
/// Fragments of a datagram that had been dropped.
pub(crate) const FRAG_OF_DEAD: usize = 35;
/// Fragments for which the table had no room.
pub(crate) const FRAG_NO_ROOM: usize = 36;
/// Datagrams whose fragments had marks of ECN that do not go together.
pub(crate) const FRAG_BAD_ECN: usize = 37;
/// First fragments without all headers (RFC 7112).
pub(crate) const FRAG_INCOMPLETE_CHAIN: usize = 38;
/// Packets that were sent in fragments.
pub(crate) const FRAG_OKS: usize = 39;
/// Fragments that were sent.
pub(crate) const FRAG_CREATES: usize = 40;

/// Echo requests sent.
pub(crate) const ICMP_OUT_ECHOS: usize = 41;
/// Answers to echo requests that no socket waits for, or has no room for.
pub(crate) const ICMP_IN_ECHO_DROPS: usize = 42;
/// Times that a path was found to take less than was known.
pub(crate) const PATH_MTU_LEARNED: usize = 43;
/// Errors whose quote is too short to find the socket, or is no packet.
pub(crate) const ICMP_IN_BAD_QUOTES: usize = 44;
/// IPv4 packets to an address at which they cannot be taken in: another host's, or no host's.
pub(crate) const IN_ADDR_ERRORS: usize = 45;
/// The same of IPv6.
pub(crate) const V6_IN_ADDR_ERRORS: usize = 46;
/// IPv6 packets from an address that cannot be outside. Other headers of both families: [`IN_HDR_ERRORS`].
pub(crate) const V6_IN_HDR_ERRORS: usize = 47;
/// Errors about a conversation that goes out by another interface than that by which they came.
pub(crate) const ICMP_IN_ELSEWHERE: usize = 48;
/// Packets that the application was to be asked about when it had not decided on as many as there may be.
pub(crate) const HOOK_OVERFLOWS: usize = 49;

/// Their names, ours and the MIB's.
pub(crate) const NAMES: [(&str, &str); COUNT] = [
    ("ip_in_receives", "IpInReceives"),
    ("ip_in_delivers", "IpInDelivers"),
    ("ip_in_unknown_protos", "IpInUnknownProtos"),
    ("ip_out_requests", "IpOutRequests"),
    ("ip_out_discards", "IpOutDiscards"),
    ("ip_out_no_routes", "IpOutNoRoutes"),
    ("ip_frag_fails", "IpFragFails"),
    ("ip_looped", ""),
    ("icmp_in_msgs", "IcmpInMsgs"),
    ("icmp_in_errors", "IcmpInErrors"),
    ("icmp_in_csum_errors", "IcmpInCsumErrors"),
    ("icmp_in_echos", "IcmpInEchos"),
    ("icmp_in_echo_reps", "IcmpInEchoReps"),
    ("icmp_in_dest_unreachs", "IcmpInDestUnreachs"),
    ("icmp_in_pkt_too_bigs", "Icmp6InPktTooBigs"),
    ("icmp_in_time_excds", "IcmpInTimeExcds"),
    ("icmp_in_parm_probs", "IcmpInParmProbs"),
    ("icmp_in_ignored", ""),
    ("icmp_out_msgs", "IcmpOutMsgs"),
    ("icmp_out_echo_reps", "IcmpOutEchoReps"),
    ("icmp_out_errors", "IcmpOutErrors"),
    ("icmp_out_rate_limit_global", "IcmpOutRateLimitGlobal"),
    ("icmp_out_rate_limit_host", "IcmpOutRateLimitHost"),
    ("ip_in_hdr_errors", "IpInHdrErrors"),
    ("ip_reasm_reqds", "IpReasmReqds"),
    ("ip_reasm_oks", "IpReasmOKs"),
    ("ip_reasm_fails", "IpReasmFails"),
    ("ip_reasm_timeout", "IpReasmTimeout"),
    ("ip_reasm_evicted", ""),
    ("ip_frag_duplicate", ""),
    ("ip_frag_overlap", "IpExtReasmOverlaps"),
    ("ip_frag_inconsistent", ""),
    ("ip_frag_bad_length", ""),
    ("ip_frag_too_long", ""),
    ("ip_frag_too_many", ""),
    ("ip_frag_of_dead", ""),
    ("ip_frag_no_room", ""),
    ("ip_frag_bad_ecn", ""),
    ("ip_frag_incomplete_chain", ""),
    ("ip_frag_oks", "IpFragOKs"),
    ("ip_frag_creates", "IpFragCreates"),
    ("icmp_out_echos", "IcmpOutEchos"),
    ("icmp_in_echo_drops", ""),
    ("ip_path_mtu_learned", ""),
    ("icmp_in_bad_quotes", ""),
    ("ip_in_addr_errors", "IpInAddrErrors"),
    ("ip6_in_addr_errors", "Ip6InAddrErrors"),
    ("ip6_in_hdr_errors", "Ip6InHdrErrors"),
    ("icmp_in_elsewhere", ""),
    ("ip_hook_overflows", ""),
];
