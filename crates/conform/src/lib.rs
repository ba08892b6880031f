//! Differential tests of Sockeye's TCP against the Linux kernel's.
//!
//! A [scenario] is a list of an application's calls and of a scripted peer's segments, with times. It is run on both tested sides, the [kernel] and a
//! [driven] stack, which record the same kind of [trace]; [compare] finds where these differ beyond its tolerances, and [known] lists the intended
//! differences. [generate] makes random scenarios, [shrink] makes a differing one small, and [campaign] does all of that for many. [text] is the form
//! in which people write scenarios, and in which a difference is printed.
//!
//! The programs are `src/bin/conform.rs` and the tests; `docs/reference/conformance.md` is the page for their users.
//!
//! `unsafe` stands in `kernel/sys.rs` only.
#![deny(clippy::multiple_unsafe_ops_per_block)]

pub mod campaign;
pub mod codec;
pub mod compare;
pub mod driven;
pub mod generate;
pub mod kernel;
pub mod known;
pub mod random;
pub mod scenario;
pub mod segment;
pub mod settings;
pub mod shrink;
pub mod text;
pub mod trace;
pub mod wheel;
pub mod window;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The tested side's address.
fn local(is_ipv6: bool) -> IpAddr {
    if is_ipv6 {
        Ipv6Addr::new(0xfd0a, 9, 0, 0, 0, 0, 0, 1).into()
    } else {
        Ipv4Addr::new(10, 9, 0, 1).into()
    }
}

/// Its address with the length of a prefix that the peers' addresses have in common with it.
fn interface(is_ipv6: bool) -> String {
    format!("{}/{}", local(is_ipv6), if is_ipv6 { 16 } else { 8 })
}

/// The address of the peer of this number.
fn peer(is_ipv6: bool, number: u32) -> IpAddr {
    if is_ipv6 {
        let [high, low] = [(number >> 16) as u16, number as u16];
        Ipv6Addr::new(0xfd0a, 128, 0, 0, 0, 0, high, low).into()
    } else {
        Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 128, 0, 0)) + number).into()
    }
}

/// The peer's port, and on the driven stack the listener's as well.
const PORT: u16 = 8080;
