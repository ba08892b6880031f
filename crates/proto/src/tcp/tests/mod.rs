//! Tests of the pcb, through its public interface.
//!
//! `world`: two ends on a link with delay, loss, reordering and duplication, under a jumping clock.
//! `script`: one pcb against hand-made segments. The other files are named after what they test.

mod accecn;
mod attacks;
mod blind;
mod close;
mod comp_sack;
mod congestion;
mod contradictions;
mod delack;
mod ecn;
mod fast_open;
mod gro;
mod handshake;
mod hostile;
mod info;
mod long_lived;
mod loss;
mod output;
mod path_mtu;
mod properties;
mod quick_ack;
mod rack;
mod renege;
mod reno;
mod sack;
pub mod script;
mod settings;
mod tail;
mod timers;
mod transfer;
mod transitions;
mod undo;
mod urgent;
mod usage;
mod user_timeout;
mod windows;
pub mod world;
