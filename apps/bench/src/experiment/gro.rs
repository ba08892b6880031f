//! `bench gro`: segments of a batch that are processed as one.
//!
//! Purpose: the gain of joining segments that were not joined before: bulk streams with buffers of 1 MB at an MTU of 1,500, 1 and 10
//! of them through one input thread, from one stack to another over a wire; with `--dev tun` from the kernel, through a
//! device without offloads.
//!
//! Does not depend on how segments are joined.
//!
//! Tests: `plan.rs`; the workload's own.

use sockeye_shared::end::UsageError;

use crate::experiment::input;
use crate::experiment::model::{Asked, Goal, Line, Per, Row};

/// The rows, for `--connections` (1, 10), `--threads`, of input (1), and `--dev`: those of `input` with packets of 1,500
/// bytes.
pub fn rows(asked: &Asked) -> Result<Vec<Row>, UsageError> {
    let asked = Asked { threads: asked.threads.or(Some(THREADS)), ..asked.clone() };
    let mut rows = input::rows(&asked)?;
    rows.retain(|row| row.label.contains(SMALL));
    for row in &mut rows {
        row.goals = vec![Goal::Ratio { of: "on", over: "off", least: 1.0 }];
        row.scales = false;
    }
    if let Some(last) = rows.last_mut().filter(|_| asked.dev.is_none()) {
        last.scales = true;
    }
    Ok(rows)
}

/// The lines that decide it.
pub const LINES: &[Line] = &[
    Line { name: "segments joined per packet", of: &["input_joined"], per: PACKETS },
    Line { name: "acquisitions per packet", of: &["input_acquisitions"], per: PACKETS },
    Line { name: "packets per batch", of: &["input_packets"], per: Per::Counters(&["input_batches"]) },
    Line { name: "frames out per packet in", of: &["frames_out"], per: PACKETS },
    Line { name: "waits of callers per operation", of: &["user_sleeps"], per: Per::Operation },
];

const PACKETS: Per = Per::Counters(&["input_packets"]);
const THREADS: usize = 1;
/// In the labels of rows with packets of that size.
const SMALL: &str = "1500";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gro_has_rows_for_small_packets_only() {
        let rows = rows(&Asked::default()).unwrap();
        assert_eq!(rows.len(), 2);
        assert!(rows.iter().all(|row| row.label.ends_with("MTU 1500") && row.goals.len() == 1));
    }
}
