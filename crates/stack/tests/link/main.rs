//! Ethernet as stacks and other hosts on one link see it: ARP, Neighbor Discovery, addresses, groups.
//!
//! The stacks here have no threads and use simulated time. Random tests print the shrunk input.

#[path = "../common/mod.rs"]
mod common;
mod lab;

mod addresses;
mod floods;
mod fuzzed;
mod groups;
mod hint;
mod hostile;
mod neighbors;
mod one_host;
mod routers;
