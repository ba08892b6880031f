//! Sockeye's side, as a program uses it.
//!
//! Purpose: says over which library `sockeye/` is compiled; `counted.rs` compiles it again over another.
//!
//! Tests: in `sockeye/`.

use ::sockeye as library;

#[allow(dead_code, reason = "what counts is configured from text")]
mod stack;
mod unix;
mod wire;

pub use stack::Sockeye;
pub use unix::{Datagrams, Seqpackets, Streams};
pub use wire::Wire;

/// Nothing is counted here.
fn handoffs() -> [(&'static str, u64); 0] {
    []
}
