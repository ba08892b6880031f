//! What the Internet layer counts, by the names of the kernel's MIB where one fits (RFC 4293, 2011, 2466).
//!
//! Sharded by thread like the stack's other counters. TCP segments that come whole are counted with their frames
//! (`input/count.rs`) and not here, so that their way stays as short as it is. What the counters mean is in
//! the README's table. Tests: `tests/ip.rs`.

/// How many there are.
pub(crate) const COUNT: usize = 23;

/// Packets other than whole TCP segments that reached the Internet layer.
pub(crate) const IN_RECEIVES: usize = 0;
/// Of these, handed to a protocol.
pub(crate) const IN_DELIVERS: usize = 1;
/// Carried a protocol that nobody here speaks.
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
/// Of these, too short for what they say they are.
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
];
