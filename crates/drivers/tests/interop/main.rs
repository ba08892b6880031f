//! Linux as the peer: every transfer is hashed at both ends, in network namespaces that the tests create.
//!
//! Needs the right to create network namespaces and devices, and for some tests programs (ping, traceroute, curl, ab, ip);
//! if one is missing, the test prints that on standard error and passes. docs/interop.md lists the versions that were
//! tested.

#[path = "../common/mod.rs"]
mod common;

mod datagrams;
mod http;
mod many;
mod neighbors;
mod options;
mod path;
mod programs;
mod streams;
mod testbed;
