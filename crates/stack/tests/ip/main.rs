//! The Internet layer as a host on the other side of an interface sees it: packets in, packets out, as bytes.
//!
//! The stacks here have no threads and use simulated time. Random tests print the shrunk input.

#[path = "../common/mod.rs"]
mod common;
mod host;

mod echo;
mod errors;
mod floods;
mod flow_labels;
mod fragments;
mod handshakes;
mod hook;
mod malformed;
mod martians;
mod one_sender;
mod path_mtu;
mod reasons;
mod reverse_path;
mod routes;
mod scopes;
mod segments;
mod sockets;
mod tos_ttl;
