//! Fuzz targets: functions of bytes that check invariants, and panic when one is violated.
//!
//! [`TARGETS`] names them. Each reads its choices from the bytes, so that any input is valid and a fuzzer can change one thing at
//! a time; none reads a clock or draws random numbers, so an input has the same effect twice. They do not depend on the fuzzer:
//! `fuzz/fuzz_targets` gives them to libFuzzer, `tests/corpus.rs` runs the corpus and a bounded number of random inputs in every
//! test run. How to: CONTRIBUTING, "Fuzzing".
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod blind;
mod flows;
mod hostile;
mod machine;
mod parse;
mod pcb;
mod port;
mod reach;
mod reass;
mod segments;
mod stack;
mod syncache;

pub use blind::blind;
pub use flows::flows;
pub use hostile::{Hostile, Line, hostile};
pub use machine::machine;
pub use parse::{ip, link, tcp};
pub use pcb::pcb;
pub use reach::reach;
pub use reass::reass;
pub use stack::stack;
pub use syncache::syncache;

/// A target's name, which is that of its binary and of its folder in the corpus, and the target.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: [Target; 12] = [
    ("ip", ip),
    ("tcp", tcp),
    ("link", link),
    ("pcb", pcb),
    ("reass", reass),
    ("syncache", syncache),
    ("stack", stack),
    ("hostile", hostile),
    ("blind", blind),
    ("flows", flows),
    ("reach", reach),
    ("machine", machine),
];
