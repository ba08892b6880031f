//! Counters of UDP, with the names of the kernel's MIB (RFC 4113 for the first four).
//!
//! Sharded by thread like the stack's other counters. `docs/reference/counters.md` explains them. Tests: `tests/udp/`.

/// InDatagrams: received by an application.
pub(crate) const IN_DATAGRAMS: usize = 0;
/// NoPorts: no socket is bound to the port.
pub(crate) const NO_PORTS: usize = 1;
/// InErrors: could not be delivered for another reason.
pub(crate) const IN_ERRORS: usize = 2;
/// OutDatagrams: sent.
pub(crate) const OUT_DATAGRAMS: usize = 3;
/// RcvbufErrors: the receiver's buffer was full.
pub(crate) const RCVBUF_ERRORS: usize = 4;
/// SndbufErrors: the interface took no more.
pub(crate) const SNDBUF_ERRORS: usize = 5;
/// InCsumErrors: do not sum up.
pub(crate) const IN_CSUM_ERRORS: usize = 6;
/// IgnoredMulti: to a group or a broadcast address, without a socket that wants it.
pub(crate) const IGNORED_MULTI: usize = 7;
/// MemErrors: no packet memory.
pub(crate) const MEM_ERRORS: usize = 8;
/// Of the InErrors: a length field that lies, less than a header, or joined from more datagrams than a buffer stands for.
pub(crate) const IN_BAD_LENGTH: usize = 9;
/// Of the InCsumErrors: over IPv6 without a checksum.
pub(crate) const IN_NO_CHECKSUM: usize = 10;
/// Of the OutDatagrams: left in one frame with others, which the interface cuts.
pub(crate) const OUT_JOINED: usize = 11;
/// Flows that have begun.
pub(crate) const FLOWS: usize = 12;
/// Flows that have ended because they were idle.
pub(crate) const FLOWS_IDLE: usize = 13;
/// Flows that have ended because there were as many as there may be.
pub(crate) const FLOWS_DISPLACED: usize = 14;
/// Datagrams that would have begun a flow when as many waited to be accepted as may.
pub(crate) const FLOW_OVERFLOWS: usize = 15;
/// How many there are.
pub(crate) const COUNT: usize = 16;

/// Their names, ours and the MIB's.
pub(crate) const NAMES: [(&str, &str); COUNT] = [
    ("udp_in_datagrams", "UdpInDatagrams"),
    ("udp_no_ports", "UdpNoPorts"),
    ("udp_in_errors", "UdpInErrors"),
    ("udp_out_datagrams", "UdpOutDatagrams"),
    ("udp_rcvbuf_errors", "UdpRcvbufErrors"),
    ("udp_sndbuf_errors", "UdpSndbufErrors"),
    ("udp_in_csum_errors", "UdpInCsumErrors"),
    ("udp_ignored_multi", "UdpIgnoredMulti"),
    ("udp_mem_errors", "UdpMemErrors"),
    ("udp_in_bad_length", ""),
    ("udp_in_no_checksum", ""),
    ("udp_out_joined", ""),
    ("udp_flows", ""),
    ("udp_flows_idle", ""),
    ("udp_flows_displaced", ""),
    ("udp_flow_overflows", ""),
];
