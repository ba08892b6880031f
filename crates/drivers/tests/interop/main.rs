//! Linux as the peer: every transfer is hashed at both ends, in network namespaces that the tests make.
//!
//! Needs the right to make network namespaces and devices, and for some tests programs (ping, traceroute, curl, ab, ip);
//! what is missing is said on standard error, and the test passes. What was run against which versions:
//! docs/interop.md.

#[path = "../common/mod.rs"]
mod common;

mod bed;
mod datagrams;
mod http;
mod many;
mod neighbors;
mod options;
mod path;
mod programs;
mod streams;
