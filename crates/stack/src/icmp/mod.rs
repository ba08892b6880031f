//! ICMP's sockets: echo requests out, their answers and errors in, without privilege, as Linux's ping sockets.
//!
//! `crate::inet::ip::icmp` is the protocol; here is what applications have of it. A socket's name, receive queue, options and
//! waiting are a UDP socket's (`crate::udp`), of which it differs in what its datagrams are: its port is the identifier
//! in the messages, which the stack chooses and no other socket uses. Tests: `tests/ip/sockets.rs`.

pub(crate) mod echo;
mod settings;
mod socket;

pub use socket::{EchoError, EchoReply, IcmpSocket};
