//! TCP (RFC 9293), as a state machine that sees neither an IP header nor a route nor a socket.

pub mod accepted;
pub mod closed;
pub mod isn;
pub mod port_choice;
pub mod segment;
pub mod syncache;
pub mod time_wait;
pub mod timestamp;
pub mod wire;
