//! TCP (RFC 9293), as a state machine that sees neither an IP header nor a route nor a socket.

pub mod accecn;
pub mod accepted;
pub mod cc;
pub mod closed;
mod comp_sack;
pub mod delack;
mod due;
pub mod ecn;
mod eor;
pub mod events;
pub mod fast_open;
pub mod gro;
pub mod info;
mod input;
pub mod isn;
mod loss;
pub mod meter;
mod nagle;
mod output;
pub mod pcb;
pub mod port_choice;
pub mod push;
mod rare;
mod rcv_tune;
mod reass;
mod recovery;
mod rtt;
pub mod sack;
pub mod segment;
pub mod settings;
pub mod state;
pub mod syncache;
pub mod time_wait;
mod timers;
pub mod timestamp;
pub mod unreachable;
mod urgent;
mod user;
pub mod user_timeout;
pub mod window;
pub mod wire;

#[cfg(test)]
mod tests;
