//! What fuzzers feed: functions of bytes that hold invariants, and panic when one breaks.
//!
//! [`TARGETS`] names them. Each reads what it needs from the bytes, so that any input means something and a fuzzer can
//! change one thing at a time; none looks at a clock or draws numbers of its own, so an input does the same twice. They must not know
//! which fuzzer runs them: `fuzz/fuzz_targets` gives them to libFuzzer, `tests/corpus.rs` runs the corpus and a bounded number of
//! random inputs in every test run. How to: CONTRIBUTING, "Fuzzing".
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod blind;
mod hostile;
mod parse;
mod pcb;
mod port;
mod reass;
mod segments;
mod stack;
mod syncache;

pub use blind::blind;
pub use hostile::{Hostile, Line, hostile};
pub use parse::{ip, link, tcp};
pub use pcb::pcb;
pub use reass::reass;
pub use stack::stack;
pub use syncache::syncache;

/// A target's name, which is that of its binary and of its folder in the corpus, and the target.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: [Target; 9] = [
    ("ip", ip),
    ("tcp", tcp),
    ("link", link),
    ("pcb", pcb),
    ("reass", reass),
    ("syncache", syncache),
    ("stack", stack),
    ("hostile", hostile),
    ("blind", blind),
];
