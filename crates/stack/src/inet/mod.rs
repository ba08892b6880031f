//! Below the transport protocols: interfaces, input, IP, ICMP, neighbors.
//!
//! | module | has |
//! |---|---|
//! | [`netif`] | addresses, routes and queues of interfaces; frames out |
//! | [`input`] | frames in: parsing, checks, and who runs the packets |
//! | [`ip`] | packets other than whole segments of TCP; fragments; path MTU |
//! | [`icmp`] | sockets for echo requests |
//! | [`link`] | Ethernet: neighbors, addresses of our own, groups |

mod core;
pub(crate) mod icmp;
pub(crate) mod input;
pub(crate) mod ip;
pub(crate) mod link;
pub mod netif;

pub(crate) use self::core::Core;
