//! Ethernet as stacks and strangers on one link see it: ARP, Neighbor Discovery, addresses, groups.
//!
//! Stacks here have no threads and a time of their own that jumps. Random tests print what they shrank to.

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
mod one_station;
mod routers;
