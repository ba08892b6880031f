//! The Internet layer as a host on the other side of an interface sees it: packets go in as bytes, packets come out.
//!
//! Stacks here have no threads and a time of their own that jumps. Random tests print what they shrank to.

#[path = "../common/mod.rs"]
mod common;
mod host;

mod echo;
mod errors;
mod floods;
mod fragments;
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
