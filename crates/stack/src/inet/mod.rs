//! Below the transport protocols: interfaces, input, IP, ICMP, neighbors.
//!
//! | module | has |
//! |---|---|
//! | [`netif`] | addresses, routes and queues of interfaces; frames out |
//! | [`input`] | frames in: parsing, checks, and which thread runs the packets |
//! | [`ip`] | packets other than whole segments of TCP; fragments; path MTU |
//! | [`link`] | Ethernet: neighbors, addresses of our own, groups |
//! | [`context`] | one call into the stack, and the effects deferred to its end |
//! | [`protocols`] | calls to the protocols above |

pub(crate) mod context;
mod core;
pub(crate) mod input;
pub(crate) mod ip;
pub(crate) mod link;
pub mod netif;
pub(crate) mod protocols;

pub(crate) use self::core::Core;
