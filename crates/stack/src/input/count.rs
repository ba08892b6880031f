//! What input and output over interfaces count, and how often one core was in another's way.
//!
//! Sharded by thread like the stack's other counters, and added to once for a batch where that can be
//! done. What they mean is in the README's table. Tests: `tests/wire.rs`.

/// Frames taken from interfaces.
pub(crate) const FRAMES_IN: usize = 0;
/// Frames handed to interfaces.
pub(crate) const FRAMES_OUT: usize = 1;
/// Times that an input thread found frames.
pub(crate) const BATCHES: usize = 2;
/// TCP segments taken from frames.
pub(crate) const PACKETS: usize = 3;
/// Times that input went into a perimeter.
pub(crate) const ACQUISITIONS: usize = 4;
/// Times that it was occupied.
pub(crate) const CONTENDED: usize = 5;
/// Times that the lock around all input was held by another thread.
pub(crate) const LOCK_CONTENDED: usize = 6;
/// Runs of one segment; those of 2 to 3, 4 to 7, 8 to 15, and longer ones follow.
pub(crate) const RUNS: usize = 7;
/// Not understood as IP or TCP: too short, lengths that lie, a fragment.
pub(crate) const MALFORMED: usize = 12;
/// IP header or TCP segment that does not sum up.
pub(crate) const BAD_CHECKSUM: usize = 13;
/// To an address that is not ours, or from one that cannot be out there.
pub(crate) const NOT_FOR_US: usize = 14;
/// Carries something else than TCP.
pub(crate) const UNKNOWN_PROTOCOL: usize = 15;
/// No packet memory for the payload.
pub(crate) const NO_MEMORY: usize = 16;
/// An outgoing queue was full.
pub(crate) const QUEUE_FULL: usize = 17;
/// A segment for which there is no route or no packet.
pub(crate) const UNSENDABLE: usize = 18;
/// Times that an input thread went to sleep.
pub(crate) const SLEEPS: usize = 19;
/// A frame for another station of the link.
pub(crate) const OTHER_STATION: usize = 20;
/// A frame of an ethertype that nobody here speaks.
pub(crate) const UNKNOWN_ETHERTYPE: usize = 21;
/// Segments that a router has marked (RFC 3168).
pub(crate) const MARKED: usize = 22;
/// Times that a waiting caller found frames.
pub(crate) const BY_CALLERS: usize = 23;
/// Times that an input thread stood aside for callers.
pub(crate) const ASIDE: usize = 24;
/// How many there are.
pub(crate) const COUNT: usize = 25;

/// Their names.
pub(crate) const NAMES: [&str; COUNT] = [
    "frames_in",
    "frames_out",
    "input_batches",
    "input_packets",
    "input_acquisitions",
    "input_contended",
    "input_lock_contended",
    "input_runs_of_1",
    "input_runs_of_2_to_3",
    "input_runs_of_4_to_7",
    "input_runs_of_8_to_15",
    "input_runs_of_16_up",
    "frames_malformed",
    "frames_bad_checksum",
    "frames_not_for_us",
    "frames_unknown_protocol",
    "frames_no_memory",
    "frames_queue_full",
    "frames_unsendable",
    "input_sleeps",
    "frames_other_station",
    "frames_unknown_ethertype",
    "input_marked",
    "input_by_callers",
    "input_aside",
];

/// The counter of runs of `len` segments.
pub(crate) fn run_of(len: usize) -> usize {
    RUNS + (len.max(1).ilog2() as usize).min(4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_counted_where_its_name_says() {
        for (len, name) in [
            (1, "input_runs_of_1"),
            (2, "input_runs_of_2_to_3"),
            (3, "input_runs_of_2_to_3"),
            (7, "input_runs_of_4_to_7"),
            (15, "input_runs_of_8_to_15"),
            (16, "input_runs_of_16_up"),
            (64, "input_runs_of_16_up"),
        ] {
            assert_eq!(NAMES[run_of(len)], name);
        }
    }
}
