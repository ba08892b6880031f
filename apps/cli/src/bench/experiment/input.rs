//! `bench input`: parallel TCP input.
//!
//! Purpose: the workload of the change that let TCP input run in parallel: 1 and 10 bulk streams with buffers of 1 MB from one
//! stack to another over a wire, through 1, 2 and 4 input threads, at an MTU of 1,500 and of 64 KiB; the receiver asks for
//! 128 KiB at a time. Sender, input threads and readers share the cores here, so more input threads than cores cannot gain;
//! acquisitions per packet and the length of runs show what they would. The kernel has no such wire.
//!
//! Must not know: how settings work inside.
//!
//! Tests: `plan.rs`; the workload's own.

use std::time::Duration;

use serde_json::json;

use crate::bench::args::UsageError;
use crate::bench::experiment::beds::{OverWire, Shape};
use crate::bench::experiment::model::{Asked, Goal, Line, Per, Row};
use crate::bench::experiment::{at_most, params};
use crate::bench::pin::Pin;
use crate::bench::plan::BULK_SIZE;
use crate::bench::workloads::stream;

/// The rows, for `--connections` (1, 10) and `--threads`, of input (1, 2, 4).
pub fn rows(asked: &Asked) -> Result<Vec<Row>, UsageError> {
    let counts = if asked.connections.is_empty() { STREAMS.to_vec() } else { asked.connections.clone() };
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
    // Many streams on two input threads at the wire's usual MTU, or what there is.
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

fn goals(connections: usize, threads: usize) -> Vec<Goal> {
    let mut goals = vec![
        Goal::LineAtMost { of: "per_packet", line: ACQUISITIONS, most: 1.0 },
        Goal::LineAtMost { of: "batched", line: ACQUISITIONS, most: 0.2 },
    ];
    match (connections, threads) {
        (1, _) => goals.push(Goal::Ratio { of: "batched", over: "exclusive", least: 1.05 }),
        (10, 2) => goals.push(Goal::Ratio { of: "batched", over: "exclusive", least: 1.6 }),
        _ => {}
    }
    goals
}

/// What decides it.
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
/// Queues that a wire may have.
const THREADS_MAX: usize = 64;
const MTUS: [u32; 2] = [1500, 65536];
const BUFFERS: &[(&str, &str)] = &[("sndbuf", "1M"), ("rcvbuf", "1M")];
const SETUP: Duration = Duration::from_millis(20);
