//! Hand-offs of cache lines between cores, as far as this build counts them.
//!
//! Purpose: the counts of the feature `count`, by name. Without it nothing is counted, and nothing costs anything.
//!
//! Invariants: the counts are the process's, so one stack at a time is to run while it counts.
//!
//! Tests: `apps/bench-counted/tests`.

/// The counters of hand-offs, by kind of line, in the order of the library's kinds.
pub const NAMES: [&str; 7] = [
    "handoffs_lock",
    "handoffs_queue",
    "handoffs_counter",
    "handoffs_references",
    "handoffs_buffer",
    "handoffs_guarded",
    "handoffs_other",
];
/// The counter of reads of lines that another thread had written.
pub const TRANSFERS: &str = "transfers";

/// The counts of the process so far.
#[cfg(not(feature = "count"))]
pub fn so_far() -> [(&'static str, u64); 0] {
    []
}

#[cfg(feature = "count")]
pub use counting::{reset, so_far, top};

#[cfg(feature = "count")]
mod counting {
    use sockeye::count::{self, Kind};

    use super::{NAMES, TRANSFERS};

    const KINDS: [Kind; NAMES.len()] =
        [Kind::Lock, Kind::Queue, Kind::Counter, Kind::References, Kind::Buffer, Kind::Guarded, Kind::Other];

    /// The counts of the process so far.
    pub fn so_far() -> impl Iterator<Item = (&'static str, u64)> {
        let found = count::snapshot();
        let kinds = KINDS.map(|kind| found.of(kind));
        NAMES.into_iter().zip(kinds).chain([(TRANSFERS, found.transfers)])
    }

    /// Forgets earlier counts.
    pub fn reset() {
        count::reset();
    }

    /// The places in the code with hand-offs since [`reset`], the most first, and how many.
    pub fn top() -> impl Iterator<Item = (String, u64)> {
        let top = count::top(usize::MAX).into_iter();
        top.map(|place| {
            (format!("{} ({})", in_tree(&place.site.to_string()), place.kind.name()), place.handoffs)
        })
    }

    /// A place by its path in the repository, without the machine's path to it.
    fn in_tree(site: &str) -> &str {
        site.find("crates/").map_or(site, |at| &site[at..])
    }
}
