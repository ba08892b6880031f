//! Sockeye's protocols as pure state machines.
//!
//! Nothing here reads a clock, draws a random number, takes a lock or starts a thread: time and entropy are
//! arguments, effects are return values. So one engine runs under threads, inside an embedder's own loop and
//! in a deterministic simulator.
//!
//! * [`icmp`]: the messages of ICMP, and how often one may answer.
//! * [`arp`], [`ndp`], [`neighbor`], [`dad`]: addresses on a link, and whose they are.
//! * [`group`]: membership in multicast groups (IGMP, MLD).
//! * [`ip`]: the fixed headers of IPv4 and IPv6 and the Internet checksum.
//! * [`seq`]: sequence numbers that cannot be compared with `<` (RFC 9293 section 3.4).
//! * [`time`]: the engine's clock, a count of microseconds.
//! * [`tcp`]: RFC 9293 and its companions.
//! * [`udp`]: UDP's header, and joined datagrams.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod arp;
pub mod dad;
pub mod group;
pub mod icmp;
pub mod ip;
pub mod ndp;
pub mod neighbor;
pub mod seq;
pub mod tcp;
pub mod time;
pub mod udp;
