//! TCP (RFC 9293), as a state machine that sees neither an IP header nor a route nor a socket.

pub mod segment;
