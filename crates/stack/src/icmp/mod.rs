//! ICMP's sockets: echo requests out, their answers and errors in, without privilege, as Linux's ping sockets.
//!
//! `crate::inet::ip::icmp` is the protocol; here is its interface for applications. A socket's name, receive queue, options
//! and waiting are a UDP socket's (`crate::udp`), from which it differs in its datagrams: its port is the identifier in the
//! messages, which the stack chooses and no other socket uses. Tests: `tests/ip/sockets.rs`.

pub(crate) mod echo;
mod settings;
mod socket;

pub use socket::{EchoError, EchoReply, IcmpSocket};
