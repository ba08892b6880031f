//! The kernel's performance on a path, as text and as JSON.
//!
//! Does not depend on how it came about. Tests: `apps/cli/tests/cli/sim_kernel.rs`.

use std::io::{self, Write};

use serde_json::{Value, json};

use super::Measured;
use crate::sim::args::SimArgs;
use crate::sim::report::{millis, params, path, rate};

/// Counters that are shown to people.
const SHOWN: [&str; 7] = [
    "Tcp.RetransSegs",
    "TcpExt.TCPTimeouts",
    "TcpExt.TCPLossProbes",
    "TcpExt.TCPLostRetransmit",
    "TcpExt.TCPDSACKRecv",
    "TcpExt.TCPSACKReorder",
    "TcpExt.TCPHystartTrainDetect",
];

/// For people.
///
/// # Errors
/// The writer's.
pub fn text(args: &SimArgs, measured: &Measured, out: &mut dyn Write) -> io::Result<()> {
    path(args, out)?;
    let goodput = measured.goodput();
    let carried = &measured.carried;
    writeln!(
        out,
        "goodput  {} in {:.1} s: {:.1} % of the rate (the kernel's TCP, {})",
        rate(goodput),
        measured.lasted.as_secs_f64(),
        100.0 * goodput / args.rate as f64,
        args.cc.kernel_name()
    )?;
    let traffic = &carried.traffic;
    writeln!(
        out,
        "segments {}; {} sent again, {} of them needlessly",
        traffic.segments, traffic.retransmitted, traffic.needless
    )?;
    let counts: Vec<String> = SHOWN
        .iter()
        .filter_map(|name| Some(format!("{} {}", name.split_once('.')?.1, measured.counters.get(*name)?)))
        .collect();
    writeln!(out, "kernel   {}", counts.join(", "))?;
    let (there, late) = (&carried.there, &carried.late);
    writeln!(
        out,
        "link     {} packets; {} lost, {} found the queue full, {} overtaken, {} refused by a device",
        there.offered, there.lost, there.queue_full, there.held, carried.refused
    )?;
    writeln!(
        out,
        "lateness median {:?}, 99.9 % {:?}, most {:?}: how much later than due packets were delivered",
        late.quantile(0.5),
        late.quantile(0.999),
        late.most
    )
}

/// For programs: one object, with the same names as the simulator's.
///
/// # Errors
/// The writer's.
pub fn json(args: &SimArgs, measured: &Measured, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}", value(args, measured))
}

fn value(args: &SimArgs, measured: &Measured) -> Value {
    let (carried, goodput) = (&measured.carried, measured.goodput());
    let late = &carried.late;
    let course: Vec<Value> = measured
        .course
        .iter()
        .map(|(at, received)| json!({ "at_s": at.as_secs_f64(), "received": received }))
        .collect();
    json!({
        "on": "kernel",
        "params": params(args),
        "goodput_bits": goodput,
        "utilisation": goodput / args.rate as f64,
        "seconds": measured.lasted.as_secs_f64(),
        "link": {
            "offered": carried.there.offered, "delivered": carried.there.delivered, "lost": carried.there.lost,
            "queue_full": carried.there.queue_full, "overtaken": carried.there.held,
            "acknowledgments_dropped": carried.back.dropped(), "refused": carried.refused,
        },
        "segments": carried.traffic.segments,
        "retransmitted": carried.traffic.retransmitted,
        "needless": carried.traffic.needless,
        "late_ms": {
            "median": millis(late.quantile(0.5)), "p999": millis(late.quantile(0.999)), "most": millis(late.most),
        },
        "counters": measured.counters,
        "course": course,
    })
}
