//! Sockeye's side, counting hand-offs of cache lines.
//!
//! Purpose: the same sources as in `sockeye/`, over the library whose words are counted: what is counted is what is measured.
//!
//! Invariants: the counts are the process's, so one stack at a time is to run while it counts.
//!
//! Tests: the side's own, which run over both libraries; `crates/counted`.

use ::sockeye_counted as library;
use library::count::{self, Kind};

#[expect(clippy::duplicate_mod, reason = "one source over two libraries; that is the point")]
#[allow(dead_code, reason = "only experiments count")]
#[path = "sockeye/stack.rs"]
mod stack;
#[expect(clippy::duplicate_mod, reason = "one source over two libraries; that is the point")]
#[path = "sockeye/unix.rs"]
mod unix;
#[expect(clippy::duplicate_mod, reason = "as above")]
#[path = "sockeye/wire.rs"]
mod wire;

pub use stack::{Sockeye, configured};
pub use unix::{Datagrams, Seqpackets, Streams};
pub use wire::Wire;

/// What the process has counted so far.
fn handoffs() -> impl Iterator<Item = (&'static str, u64)> {
    let found = count::snapshot();
    let kinds = KINDS.map(|(kind, name)| (name, found.of(kind)));
    kinds.into_iter().chain([(TRANSFERS, found.transfers)])
}

/// Forgets what was counted before.
pub fn reset() {
    count::reset();
}

/// The places in the code with the most hand-offs since [`reset`], and how many.
pub fn top(places: usize) -> Vec<(String, u64)> {
    let top = count::top(places).into_iter();
    top.map(|place| (format!("{} ({})", place.site, place.kind.name()), place.handoffs)).collect()
}

/// The counters of hand-offs, by what lies on the line.
pub const KINDS: [(Kind, &str); 7] = [
    (Kind::Lock, "handoffs_lock"),
    (Kind::Queue, "handoffs_queue"),
    (Kind::Counter, "handoffs_counter"),
    (Kind::References, "handoffs_references"),
    (Kind::Buffer, "handoffs_buffer"),
    (Kind::Guarded, "handoffs_guarded"),
    (Kind::Other, "handoffs_other"),
];
/// The counter of reads of lines that another thread had written.
pub const TRANSFERS: &str = "transfers";
