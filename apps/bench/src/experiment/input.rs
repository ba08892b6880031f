//! `bench input`: parallel TCP input.
//!
//! Purpose: the workload of the change that let TCP input run in parallel: 1 and 10 bulk streams with buffers of 1 MB from one
//! stack to another over a wire, through 1, 2 and 4 input threads, at an MTU of 1,500 and of 64 KiB; the receiver asks for 128
//! KiB at a time. Sender, input threads and readers share the cores here, so more input threads than cores cannot gain;
//! acquisitions per packet and the length of runs show the gain on more. The kernel has no such wire.
//!
//! With `--dev tun` the kernel's TCP sends, through a device of 1 and 2 queues, in frames of 64 KiB and in packets of 1,500
//! bytes (`device`).
//!
//! Does not depend on how settings work inside.
//!
//! Tests: `plan.rs`; the workload's own.

use std::time::Duration;

use serde_json::json;
use sockeye_shared::end::UsageError;

use crate::args::Dev;
use crate::experiment::device::{self, OverTun, Sender};
use crate::experiment::model::{Asked, Goal, Line, Per, Row};
use crate::experiment::testbeds::{OverWire, Shape};
use crate::experiment::{at_most, params};
use crate::pin::Pin;
use crate::plan::BULK_SIZE;
use crate::workloads::stream;

/// The rows, for `--connections` (1, 10), `--threads`, of input (1, 2, 4; 1, 2 through a device), and `--dev`.
pub fn rows(asked: &Asked) -> Result<Vec<Row>, UsageError> {
    match asked.dev {
        None => rows_over_wire(asked),
        Some(Dev::Tun) => {
            device::check_rights()?;
            rows_over_tun(asked, Sender::here())
        }
    }
}

fn rows_over_tun(asked: &Asked, sender: Sender) -> Result<Vec<Row>, UsageError> {
    let queue_counts = asked.threads.map_or(QUEUES.to_vec(), |queues| vec![queues]);
    let mut rows = Vec::new();
    for offload in [true, false] {
        for streams in counts(asked) {
            at_most("--connections", streams, device::STREAMS_MAX)?;
            for &queues in &queue_counts {
                at_most("--threads", queues, THREADS_MAX)?;
                rows.push(row_over_tun(OverTun { streams, queues, offload, sender }));
            }
        }
    }
    Ok(rows)
}

fn row_over_tun(work: OverTun) -> Row {
    let OverTun { streams, queues, offload, sender } = work;
    let ends = [if streams == 1 { "" } else { "s" }, if queues == 1 { "" } else { "s" }];
    let frames = if offload { "frames of 64K" } else { "packets of 1500" };
    let by = sender.name();
    Row {
        label: format!(
            "{streams} stream{} ({by}), {queues} queue{} of a TUN device, {frames}",
            ends[0], ends[1]
        ),
        params: params(&json!({
            "connections": streams, "threads": queues, "dev": "tun", "offload": offload, "sender": by,
        })),
        base: BUFFERS,
        unit: "Gbit/s",
        operation: "receive's worth of bytes",
        kernel: false,
        setup: SETUP,
        goals: goals_over_tun(work),
        work: Box::new(work),
        scales: false,
    }
}

/// Those of the wire, but for one: a frame of 64 KiB is a run of its connection's packets already, and a sender on several
/// streams writes to one after the other, so that seldom two frames of a connection come in a row.
fn goals_over_tun(work: OverTun) -> Vec<Goal> {
    let mut goals = goals(work.streams, work.queues);
    if work.offload && work.streams > 1 {
        goals.retain(|goal| *goal != RUNS_ARE_LONG);
    }
    goals
}

fn counts(asked: &Asked) -> Vec<usize> {
    if asked.connections.is_empty() { STREAMS.to_vec() } else { asked.connections.clone() }
}

fn rows_over_wire(asked: &Asked) -> Result<Vec<Row>, UsageError> {
    let counts = counts(asked);
    let threads = asked.threads.map_or(THREADS.to_vec(), |threads| vec![threads]);
    let mut rows: Vec<Row> = Vec::new();
    for mtu in MTUS {
        for &connections in &counts {
            at_most("--connections", connections, stream::CONNECTIONS_MAX)?;
            for &threads in &threads {
                at_most("--threads", threads, THREADS_MAX)?;
                rows.push(row(connections, threads, mtu));
            }
        }
    }
    // Many streams on two input threads at the wire's usual MTU, or as many as there are.
    let usual = |row: &Row| row.label == label(STREAMS[1], THREADS[1], MTUS[0]);
    let scales = rows.iter().position(usual).unwrap_or(0);
    if let Some(row) = rows.get_mut(scales) {
        row.scales = true;
    }
    Ok(rows)
}

fn label(connections: usize, threads: usize, mtu: u32) -> String {
    let (streams, inputs) = (if connections == 1 { "" } else { "s" }, if threads == 1 { "" } else { "s" });
    format!("{connections} stream{streams}, {threads} input thread{inputs}, MTU {mtu}")
}

fn row(connections: usize, threads: usize, mtu: u32) -> Row {
    let reading = stream::Reader::PLAIN;
    let shape = Shape::Stream(stream::Spec { connections, size: BULK_SIZE, nodelay: false, reading });
    Row {
        label: label(connections, threads, mtu),
        params: params(&json!({
            "connections": connections, "threads": threads, "mtu": mtu, "size": BULK_SIZE,
        })),
        base: BUFFERS,
        unit: "Gbit/s",
        operation: "receive's worth of bytes",
        kernel: false,
        setup: SETUP,
        work: Box::new(OverWire { shape, pin: Pin::None, mtu, queues: threads }),
        goals: goals(connections, threads),
        scales: false,
    }
}

/// One entry serves several packets.
const RUNS_ARE_LONG: Goal = Goal::LineAtMost { of: "batched", line: ACQUISITIONS, most: 0.2 };

fn goals(connections: usize, threads: usize) -> Vec<Goal> {
    // One for each packet; counters are read one after the other while packets go on coming in.
    let mut goals =
        vec![Goal::LineAtMost { of: "per_packet", line: ACQUISITIONS, most: 1.01 }, RUNS_ARE_LONG];
    match (connections, threads) {
        (1, _) => goals.push(Goal::Ratio { of: "batched", over: "exclusive", least: 1.05 }),
        (10, 2) => goals.push(Goal::Ratio { of: "batched", over: "exclusive", least: 1.6 }),
        _ => {}
    }
    goals
}

/// The lines that decide it.
pub const LINES: &[Line] = &[
    Line { name: ACQUISITIONS, of: &["input_acquisitions"], per: PACKETS },
    Line { name: "contended acquisitions per packet", of: &["input_contended"], per: PACKETS },
    Line { name: "contended input lock per batch", of: &["input_lock_contended"], per: BATCHES },
    Line { name: "packets per batch", of: &["input_packets"], per: BATCHES },
    Line { name: "packets per run", of: &["input_packets"], per: Per::Counters(RUNS) },
    Line { name: "runs of 1", of: &["input_runs_of_1"], per: Per::Counters(RUNS) },
    Line { name: "runs of 2 to 3", of: &["input_runs_of_2_to_3"], per: Per::Counters(RUNS) },
    Line { name: "runs of 4 to 7", of: &["input_runs_of_4_to_7"], per: Per::Counters(RUNS) },
    Line { name: "runs of 8 to 15", of: &["input_runs_of_8_to_15"], per: Per::Counters(RUNS) },
    Line { name: "runs of 16 and more", of: &["input_runs_of_16_up"], per: Per::Counters(RUNS) },
    Line { name: "frames out per packet in", of: &["frames_out"], per: PACKETS },
    Line { name: "frames dropped at a full queue per packet", of: &["frames_queue_full"], per: PACKETS },
    Line { name: "sleeps of input threads per batch", of: &["input_sleeps"], per: BATCHES },
    Line { name: "waits of callers per operation", of: &["user_sleeps"], per: Per::Operation },
];

const ACQUISITIONS: &str = "acquisitions per packet";
const PACKETS: Per = Per::Counters(&["input_packets"]);
const BATCHES: Per = Per::Counters(&["input_batches"]);
const RUNS: &[&str] = &[
    "input_runs_of_1",
    "input_runs_of_2_to_3",
    "input_runs_of_4_to_7",
    "input_runs_of_8_to_15",
    "input_runs_of_16_up",
];

const STREAMS: [usize; 2] = [1, 10];
const THREADS: [usize; 3] = [1, 2, 4];
/// Queues of a device.
const QUEUES: [usize; 2] = [1, 2];
/// Queues that a wire may have.
const THREADS_MAX: usize = 64;
const MTUS: [u32; 2] = [1500, 65536];
const BUFFERS: &[(&str, &str)] = &[("sndbuf", "1M"), ("rcvbuf", "1M")];
const SETUP: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_has_a_row_for_each_shape_that_names_the_sender() {
        let rows = rows_over_tun(&Asked::default(), Sender::Own).unwrap();
        assert_eq!(rows.len(), 8);
        let label = "10 streams (own client, for want of iperf3), 2 queues of a TUN device, packets of 1500";
        assert_eq!(rows[7].label, label);
        assert!(rows.iter().all(|row| !row.kernel && !row.scales && !row.goals.is_empty()));
        let runs = |row: &Row| row.goals.contains(&RUNS_ARE_LONG);
        assert_eq!(
            rows.iter().map(runs).collect::<Vec<_>>(),
            [true, true, false, false, true, true, true, true]
        );
        assert_eq!(rows[0].params["sender"], Sender::Own.name());
        let refused = |connections, threads| {
            let asked = Asked { connections, threads, ..Asked::default() };
            rows_over_tun(&asked, Sender::Iperf3).err().unwrap().0
        };
        assert!(refused(vec![129], None).contains("128"));
        assert!(refused(Vec::new(), Some(65)).contains("64"));
    }

    #[test]
    fn a_device_without_rights_is_refused_with_a_remedy() {
        let found = rows(&Asked { dev: Some(Dev::Tun), ..Asked::default() });
        match device::check_rights() {
            Ok(()) => assert_eq!(found.unwrap().len(), 8),
            Err(error) => {
                assert!(error.0.contains("run as root"), "{error}");
                assert_eq!(found.err(), Some(error));
            }
        }
    }
}
