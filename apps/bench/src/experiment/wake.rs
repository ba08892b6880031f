//! `bench wake`: which threads are woken by one that leaves work behind.
//!
//! Purpose: the workload of the change that elides a squeue's wake-ups: a client connects, sends a request of 100 bytes
//! and gets a response of 512, the server closes; 1, 8 and 64 clients, four server threads at most. One squeue a core, and callers that run
//! only their own item, are that system's squeues; one row is as Sockeye is by default. A bulk stream is the control, which must not
//! change.
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
use crate::plan::{BULK_SIZE, bytes, default_acceptors};
use crate::workloads::{crr, stream};

/// The rows, for `--clients` (1, 8, 64) and `--size`, of a response (512).
pub fn rows(asked: &Asked) -> Result<Vec<Row>, UsageError> {
    let response = asked.size.unwrap_or(RESPONSE);
    let counts = if asked.clients.is_empty() { CLIENTS.to_vec() } else { asked.clients.clone() };
    let mut rows = Vec::new();
    for clients in counts {
        at_most("--clients", clients, crr::CLIENTS_MAX)?;
        // One client keeps no two cores busy, so the prediction takes the next row if there is one.
        let scales = rows.len() == 1 || asked.clients.len() == 1;
        rows.push(Row { goals: goals(), scales, ..requests(clients, response, SQUEUES, "squeues") });
    }
    rows.push(requests(CONTROL_CLIENTS, response, &[], "as by default"));
    rows.push(bulk());
    Ok(rows)
}

fn requests(
    clients: usize,
    response: usize,
    base: &'static [(&'static str, &'static str)],
    manner: &str,
) -> Row {
    let acceptors = default_acceptors(clients).min(SERVERS_MAX);
    let shape = Shape::Crr(crr::Spec { clients, acceptors, size: REQUEST, response });
    let plural = if clients == 1 { "" } else { "s" };
    Row {
        label: format!("{clients} client{plural}, {REQUEST} B / {} B, {manner}", bytes(response)),
        params: params(&json!({
            "clients": clients, "acceptors": acceptors, "size": REQUEST, "response": response,
        })),
        base,
        unit: "requests/s",
        operation: "connection",
        kernel: true,
        setup: SETUP,
        work: Box::new(Loopback { shape, pin: Pin::None }),
        goals: Vec::new(),
        scales: false,
    }
}

fn bulk() -> Row {
    let reading = stream::Reader::PLAIN;
    let shape = Shape::Stream(stream::Spec { connections: 1, size: BULK_SIZE, nodelay: false, reading });
    Row {
        label: "control: 1 bulk stream, squeues".to_owned(),
        params: params(&json!({ "connections": 1, "size": BULK_SIZE })),
        base: SQUEUES,
        unit: "Gbit/s",
        operation: "receive's worth of bytes",
        kernel: true,
        setup: SETUP,
        work: Box::new(Loopback { shape, pin: Pin::None }),
        goals: vec![Goal::Ratio { of: "elide", over: "immediate", least: BULK_UNCHANGED }],
        scales: false,
    }
}

fn goals() -> Vec<Goal> {
    vec![
        Goal::Ratio { of: "elide", over: "immediate", least: 1.16 },
        Goal::LineShare { of: "elide", over: "immediate", line: NEEDLESS, most: 0.05 },
    ]
}

/// The lines that decide it: the tables of the original change, by the depth of the queue.
pub const LINES: &[Line] = &[
    Line { name: NEEDLESS, of: &["worker_wakes_needless"], per: Per::Operation },
    Line { name: "worker wakes per operation", of: &["worker_wakes"], per: Per::Operation },
    Line { name: "worker sleeps per operation", of: &["worker_sleeps"], per: Per::Operation },
    Line { name: "connect left, queue empty", of: &["connect_left_empty"], per: Per::Operation },
    Line { name: "connect left, own head, depth 1", of: &["connect_left_own_1"], per: Per::Operation },
    Line { name: "connect left, own head, depth 2", of: &["connect_left_own_2"], per: Per::Operation },
    Line { name: "connect left, own head, depth 3+", of: &["connect_left_own_3"], per: Per::Operation },
    Line { name: "connect left, other head, depth 1", of: &["connect_left_other_1"], per: Per::Operation },
    Line { name: "connect left, other head, depth 2", of: &["connect_left_other_2"], per: Per::Operation },
    Line { name: "connect left, other head, depth 3+", of: &["connect_left_other_3"], per: Per::Operation },
    Line { name: "left, queue empty", of: &["left_empty"], per: Per::Operation },
    Line { name: "left, own head, depth 1", of: &["left_own_1"], per: Per::Operation },
    Line { name: "left, own head, depth 2", of: &["left_own_2"], per: Per::Operation },
    Line { name: "left, own head, depth 3+", of: &["left_own_3"], per: Per::Operation },
    Line { name: "left, other head, depth 1", of: &["left_other_1"], per: Per::Operation },
    Line { name: "left, other head, depth 2", of: &["left_other_2"], per: Per::Operation },
    Line { name: "left, other head, depth 3+", of: &["left_other_3"], per: Per::Operation },
    Line { name: "lock or squeue entries per operation", of: &["conn_entered"], per: Per::Operation },
    Line { name: "items left to the one inside per operation", of: &["conn_queued"], per: Per::Operation },
    Line { name: "waits of callers per operation", of: &["user_sleeps"], per: Per::Operation },
];

/// The document's "possible to elide": the queue held one item, of the connection of the thread that left.
const NEEDLESS: &str = "needless worker wakes per operation";

const CLIENTS: [usize; 3] = [1, 8, 64];
const CONTROL_CLIENTS: usize = 8;
const REQUEST: usize = 100;
const RESPONSE: usize = 512;
/// More server threads than this were not used there.
const SERVERS_MAX: usize = 4;
/// One squeue a core, and a thread that leaves runs no other thread's items.
const SQUEUES: &[(&str, &str)] = &[("grain", "per_core"), ("entry", "no_drain")];
/// "Unchanged": a ratio that far below 1 is more than noise.
const BULK_UNCHANGED: f64 = 0.95;
const SETUP: Duration = Duration::from_millis(20);
