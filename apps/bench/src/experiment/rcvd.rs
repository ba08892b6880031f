//! `bench rcvd`: how a reader reports new space to the protocol.
//!
//! Purpose: the workload of the change that made `pru_rcvd` asynchronous: 32 bulk streams over loopback, one blocking
//! sender and one blocking receiver thread each, buffers, sends and receives of 57,344 bytes and an MTU of 16 KiB, as
//! netperf found them there. Once with owner threads that alone run protocol code, which is that system's model, and once
//! as Sockeye is by default, where callers
//! enter and buffers hold more than one receive takes. Besides, cases that the technique could break: a slow reader, and
//! one that waits for more than the buffer holds.
//!
//! Does not depend on how settings work inside.
//!
//! Tests: `plan.rs`; the workload's own.

use std::time::Duration;

use serde_json::json;
use sockeye_shared::end::UsageError;

use crate::experiment::model::{Asked, Goal, Line, Per, Row};
use crate::experiment::testbeds::{Loopback, Shape};
use crate::experiment::{at_most, params};
use crate::pin::Pin;
use crate::plan::bytes;
use crate::workloads::stream;

/// The rows, for `--connections` (32) and `--size` (57,344).
pub fn rows(asked: &Asked) -> Result<Vec<Row>, UsageError> {
    let size = asked.size.unwrap_or(SIZE);
    let counts = if asked.connections.is_empty() { vec![CONNECTIONS] } else { asked.connections.clone() };
    let mut rows = Vec::new();
    for connections in counts {
        at_most("--connections", connections, stream::CONNECTIONS_MAX)?;
        let reader = stream::Reader { size, ..stream::Reader::PLAIN };
        let first = rows.is_empty();
        rows.push(Row {
            goals: if size == SIZE { goals() } else { Vec::new() },
            scales: first,
            ..row(connections, size, reader, OWNERS, "owner threads")
        });
        let messages = Goal::LineAtMost { of: "precheck", line: MESSAGES, most: 0.1 };
        rows.push(Row { goals: vec![messages], ..row(connections, size, reader, &[], "as by default") });
        rows.push(row(
            connections,
            size,
            stream::Reader { pause: PAUSE, ..reader },
            OWNERS,
            "owner threads, slow readers",
        ));
        let whole = stream::Reader { size: size * WHOLE, whole: true, ..reader };
        rows.push(row(connections, size, whole, OWNERS, "owner threads, waiting for 4 buffers"));
    }
    Ok(rows)
}

fn row(
    connections: usize,
    size: usize,
    reading: stream::Reader,
    base: &'static [(&'static str, &'static str)],
    manner: &str,
) -> Row {
    let shape = Shape::Stream(stream::Spec { connections, size, nodelay: false, reading });
    Row {
        label: format!("{connections} streams of {} B, {manner}", bytes(size)),
        params: params(&json!({
            "connections": connections, "size": size, "read": reading.size, "waitall": reading.whole,
            "pause_us": reading.pause.as_micros().min(u128::from(u64::MAX)) as u64,
        })),
        base,
        unit: "Gbit/s",
        operation: "receive's worth of bytes",
        kernel: true,
        setup: SETUP,
        work: Box::new(Loopback { shape, pin: Pin::None }),
        goals: Vec::new(),
        scales: false,
    }
}

fn goals() -> Vec<Goal> {
    vec![
        Goal::Ratio { of: "async", over: "sync", least: 1.12 },
        Goal::Ratio { of: "precheck", over: "async", least: 1.0 },
        Goal::LineAtMost { of: "async", line: RCVD_SLEEPS, most: 0.0 },
        Goal::LineAtMost { of: "precheck", line: MESSAGES, most: 0.1 },
    ]
}

/// The lines that decide it.
pub const LINES: &[Line] = &[
    Line { name: RCVD_SLEEPS, of: &["rcvd_sleeps"], per: RECEIVES },
    Line { name: MESSAGES, of: &["rcvd_sent"], per: RECEIVES },
    Line { name: "messages coalesced per receive", of: &["rcvd_coalesced"], per: RECEIVES },
    Line { name: "messages skipped per receive", of: &["rcvd_skipped"], per: RECEIVES },
    Line { name: "window updates alone per receive", of: &["window_updates"], per: RECEIVES },
    Line { name: "segments in per operation", of: &["segments_in"], per: Per::Operation },
    Line { name: "lock or squeue entries per operation", of: &["conn_entered"], per: Per::Operation },
    Line { name: "items left to the one inside per operation", of: &["conn_queued"], per: Per::Operation },
    Line { name: "waits of callers per operation", of: &["user_sleeps"], per: Per::Operation },
    Line { name: "worker wakes per operation", of: &["worker_wakes"], per: Per::Operation },
    Line { name: "worker sleeps per operation", of: &["worker_sleeps"], per: Per::Operation },
];

const RCVD_SLEEPS: &str = "sleeps for rcvd per receive";
const MESSAGES: &str = "messages sent per receive";

/// Receives that took bytes: each is reported in one of three ways.
const RECEIVES: Per = Per::Counters(&["rcvd_sent", "rcvd_coalesced", "rcvd_skipped"]);

/// `tcp_sendspace` and `tcp_recvspace` there, and so the bytes that netperf sent and received at a time.
const SIZE: usize = 57_344;
const CONNECTIONS: usize = 32;
/// That system's model: a connection belongs to one core's thread, and callers only leave it messages.
const OWNERS: &[(&str, &str)] = &[
    ("grain", "per_core"),
    ("entry", "fill"),
    ("sndbuf", "57344"),
    ("rcvbuf", "57344"),
    ("loopback_mtu", "16384"),
];
/// Long enough for the buffer to fill, short enough for many receives in a sample.
const PAUSE: Duration = Duration::from_micros(200);
/// A read that waits for this many sends' worth, which is that many buffers.
const WHOLE: usize = 4;
const SETUP: Duration = Duration::from_millis(20);
