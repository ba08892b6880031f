//! Sockeye's side, as a program uses it.
//!
//! Tests: in the modules.

mod stack;
mod unix;
mod wire;

pub use stack::Sockeye;
pub use unix::{Datagrams, Seqpackets, Streams};
pub use wire::Wire;
