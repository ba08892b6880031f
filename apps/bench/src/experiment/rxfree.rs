//! `bench rxfree`: where receive buffers are freed.
//!
//! Purpose: the workload of the change that gave a socket one receive buffer to keep: 10,000 flows with a request and a response of one
//! byte, each thread waiting for readiness on its share. Over a wire, where the input thread allocates, as there, and over loopback,
//! where the sender does. Over the wire also with buffers straight from the system's allocator (`pool=system`), as in the kernel.
//! Besides, one bulk stream: over the wire, in both worlds, and on loopback, whose sender is the busy side, so that giving buffers back
//! to it may cost more than it saves (the inversion).
//!
//! Does not depend on how settings work inside.
//!
//! Tests: `plan.rs`; the workload's own.

use std::time::Duration;

use serde_json::json;
use sockeye_shared::end::UsageError;

use crate::experiment::model::{Asked, Goal, Line, Per, Row};
use crate::experiment::testbeds::{Loopback, OverWire, Shape};
use crate::experiment::{at_most, params};
use crate::pin::Pin;
use crate::plan::BULK_SIZE;
use crate::workloads::{rr, stream};

/// The rows, for `--connections` (10,000), `--threads` (2) and `--size` (1).
pub fn rows(asked: &Asked) -> Result<Vec<Row>, UsageError> {
    let threads = asked.threads.unwrap_or(THREADS);
    let size = asked.size.unwrap_or(1);
    at_most("--threads", threads, rr::THREADS_MAX)?;
    at_most("--size", size, rr::POLLED_SIZE_MAX)?;
    let counts = if asked.connections.is_empty() { vec![FLOWS] } else { asked.connections.clone() };
    let (mut rows, first) = (Vec::new(), counts[0]);
    for connections in counts {
        at_most("--connections", connections, rr::CONNECTIONS_MAX)?;
        let scales = rows.is_empty();
        rows.push(Row { scales, ..flows(connections, threads, size, true) });
        rows.push(flows(connections, threads, size, false));
    }
    rows.push(in_the_old_world(flows(first, threads, size, true)));
    rows.push(bulk_over_wire());
    rows.push(in_the_old_world(bulk_over_wire()));
    rows.push(bulk(Pin::Split, "two cores"));
    rows.push(bulk(Pin::Same, "one core"));
    Ok(rows)
}

fn flows(connections: usize, threads: usize, size: usize, over_wire: bool) -> Row {
    let spec = rr::Spec { connections, threads: Some(threads), size, nodelay: false };
    let threads = spec.threads_a_side();
    Row {
        label: format!(
            "{connections} flows of {size} B, {threads}+{threads} threads, {}",
            if over_wire { "wire" } else { "loopback" }
        ),
        params: params(&json!({
            "connections": connections, "threads": threads, "size": size, "wire": over_wire,
        })),
        base: &[],
        unit: "transactions/s",
        operation: "transaction",
        kernel: !over_wire,
        setup: SETUP_PER_FLOW * u32::try_from(connections).unwrap_or(u32::MAX),
        work: if over_wire {
            Box::new(OverWire { shape: Shape::Rr(spec), pin: Pin::None, mtu: MTU, queues: QUEUES })
        } else {
            Box::new(Loopback { shape: Shape::Rr(spec), pin: Pin::None })
        },
        goals: vec![
            Goal::Ratio { of: "core_list", over: "inline", least: 1.10 },
            Goal::LineAtMost { of: "core_list", line: REMOTE, most: 0.01 },
        ],
        scales: false,
    }
}

/// With an allocator for which freeing on another core is dear. The document's own setting is `slot`.
fn in_the_old_world(row: Row) -> Row {
    let goals = row.goals.iter().filter_map(|goal| match *goal {
        Goal::Ratio { over, least, .. } => Some(Goal::Ratio { of: "slot", over, least }),
        Goal::LineAtMost { .. } | Goal::LineShare { .. } => None,
    });
    Row { label: format!("{}, pool=system", row.label), goals: goals.collect(), base: OLD_WORLD, ..row }
}

/// One bulk stream over the wire, where the input thread allocates and the reader is another.
fn bulk_over_wire() -> Row {
    let reading = stream::Reader::PLAIN;
    let shape = Shape::Stream(stream::Spec { connections: 1, size: BULK_SIZE, nodelay: false, reading });
    Row {
        label: "1 bulk stream, wire".to_owned(),
        params: params(&json!({ "connections": 1, "size": BULK_SIZE, "wire": true })),
        kernel: false,
        work: Box::new(OverWire { shape, pin: Pin::None, mtu: MTU, queues: 1 }),
        ..bulk(Pin::None, "")
    }
}

/// One bulk stream on loopback, where the sender allocates.
fn bulk(pin: Pin, place: &str) -> Row {
    let reading = stream::Reader::PLAIN;
    let shape = Shape::Stream(stream::Spec { connections: 1, size: BULK_SIZE, nodelay: false, reading });
    Row {
        label: format!("inversion: 1 bulk stream on loopback, {place}"),
        params: params(&json!({ "connections": 1, "size": BULK_SIZE, "pin": pin.name() })),
        base: &[],
        unit: "Gbit/s",
        operation: "receive's worth of bytes",
        kernel: true,
        setup: SETUP_BULK,
        work: Box::new(Loopback { shape, pin }),
        goals: Vec::new(),
        scales: false,
    }
}

/// The lines that decide it.
pub const LINES: &[Line] = &[
    Line { name: REMOTE, of: &["mbuf_remote_frees"], per: Per::Operation },
    Line { name: "local frees per operation", of: &["mbuf_local_frees"], per: Per::Operation },
    Line {
        name: "buffers put on a remote-free list per operation",
        of: &["mbuf_remote_listed"],
        per: Per::Operation,
    },
    Line {
        name: "buffers taken from a remote-free list per operation",
        of: &["mbuf_remote_taken"],
        per: Per::Operation,
    },
    Line {
        name: "buffers over the cap per operation",
        of: &["mbuf_remote_list_overflows"],
        per: Per::Operation,
    },
    Line { name: "kicks per operation", of: &["rx_free_kicks"], per: Per::Operation },
    Line { name: "flushes per operation", of: &["rx_free_flushes"], per: Per::Operation },
    Line { name: "magazines from the depot per operation", of: &["mbuf_depot_loads"], per: Per::Operation },
    Line { name: "magazines to the depot per operation", of: &["mbuf_depot_stores"], per: Per::Operation },
    Line { name: "buffers allocated per operation", of: &["mbuf_allocated"], per: Per::Operation },
    Line { name: "of these from the system", of: &["mbuf_fresh"], per: Per::Operation },
    Line { name: "lock or squeue entries per operation", of: &["conn_entered"], per: Per::Operation },
    Line { name: "items left to the one inside per operation", of: &["conn_queued"], per: Per::Operation },
];

const REMOTE: &str = "remote frees per operation";
/// Each buffer from the system's allocator and back to it, as in a kernel whose slab allocator has no caches in front.
const OLD_WORLD: &[(&str, &str)] = &[("pool", "system")];
const FLOWS: usize = 10_000;
const THREADS: usize = 2;
const MTU: u32 = 1500;
const QUEUES: usize = 2;
/// Both ends of a connection, opened and closed.
const SETUP_PER_FLOW: Duration = Duration::from_micros(40);
const SETUP_BULK: Duration = Duration::from_millis(10);
