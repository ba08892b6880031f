//! `bench unix`: the locks of UNIX-domain sockets.
//!
//! Purpose: the workload of the change that replaced one lock by a lock for each pcb, will-it-scale's `unix1`, for 1 to
//! 96 tasks and each kind of socket; and other work that those locks slow: a ping-pong between two cores, bulk data, a
//! writer that is blocked, passing rights, making and closing pairs, many senders and one receiver.
//!
//! Does not depend on how settings work inside.
//!
//! Tests: `plan.rs`; below; the workloads' own.

use std::io;
use std::time::Duration;

use serde_json::json;
use sockeye_shared::end::UsageError;

use crate::experiment::counters::HANDOFFS_ALL;
use crate::experiment::model::{Asked, Goal, KERNEL, Line, On, Per, Row, Taken, Testbed, Work};
use crate::experiment::{at_most, params};
use crate::meter::Timing;
use crate::pin::{Pin, Placement};
use crate::plan::{BULK_SIZE, bytes};
use crate::providers::sockeye;
use crate::providers::unix_kernel::UnixKernel;
use crate::workloads::unix::provider::{FanIn, Kind, UnixProvider};
use crate::workloads::unix::{FLOODER, SELDOM, Shape, TASKS_MAX};

/// The rows: all of them, or `unix1` for each of `--connections` tasks and bulk for `--size`, if given.
pub fn rows(asked: &Asked) -> Result<Vec<Row>, UsageError> {
    let mut rows = Vec::new();
    let is_shaped = !asked.connections.is_empty() || asked.size.is_some();
    let tasks: &[usize] = if is_shaped { &asked.connections } else { &TASKS };
    // With a task for each core, and not so many more that the prediction is of the scheduler.
    let scaled = tasks.iter().rposition(|&tasks| tasks <= SCALED_TASKS_MAX).unwrap_or(0);
    for (index, &tasks) in tasks.iter().enumerate() {
        at_most("--connections", tasks, TASKS_MAX)?;
        let scales = index == scaled;
        rows.push(Row { goals: unix1_goals(tasks), scales, ..unix1(Kind::Stream, tasks) });
    }
    if let Some(size) = asked.size {
        at_most("--size", size, BULK_MAX)?;
        rows.push(bulk(1, size, Vec::new()));
        rows.push(bulk(2, size, Vec::new()));
    }
    if !is_shaped {
        rows.extend(twins());
        rows.extend(ping_pongs());
        rows.extend(bulks());
        rows.extend(lives());
        rows.push(fan_in());
    }
    Ok(rows)
}

fn over_kernel(of: &'static str, least: f64) -> Goal {
    Goal::Ratio { of, over: KERNEL, least }
}

fn unix1_goals(tasks: usize) -> Vec<Goal> {
    let mut goals = vec![
        over_kernel("direct", 8.0),
        Goal::LineAtMost { of: "direct", line: HANDOFFS_ALL, most: 0.01 },
        Goal::LineAtMost { of: "direct", line: GLOBAL_LOCKS, most: 0.0 },
    ];
    match tasks {
        2 => goals.push(Goal::Ratio { of: "direct", over: "global", least: 1.18 }),
        96 => goals.push(Goal::Ratio { of: "direct", over: "global", least: 1.5 }),
        _ => {}
    }
    goals
}

fn unix1(kind: Kind, tasks: usize) -> Row {
    Row {
        label: format!("unix1, {}, {}", counted_tasks(tasks), kind.name()),
        params: params(&json!({ "shape": "unix1", "tasks": tasks, "kind": kind.name() })),
        setup: SETUP_PER_TASK * u32::try_from(tasks).unwrap_or(u32::MAX),
        ..row(Shape::Unix1 { kind, tasks }, Pin::Same)
    }
}

fn counted_tasks(tasks: usize) -> String {
    if tasks == 1 { "1 task".to_owned() } else { format!("{tasks} tasks") }
}

/// The other kinds of socket.
fn twins() -> impl Iterator<Item = Row> {
    let kinds = [Kind::Datagram, Kind::Seqpacket];
    kinds.into_iter().flat_map(|kind| [1, 2].map(|tasks| (kind, tasks))).map(|(kind, tasks)| Row {
        goals: if tasks == 1 { vec![over_kernel("direct", 6.0)] } else { Vec::new() },
        ..unix1(kind, tasks)
    })
}

fn ping_pongs() -> impl Iterator<Item = Row> {
    [
        (Kind::Stream, SPINS, "", Some(5.0)),
        (Kind::Stream, SPINS_NOT, ", spinning off", Some(0.9)),
        (Kind::Datagram, SPINS, "", None),
        (Kind::Seqpacket, SPINS, "", None),
    ]
    .into_iter()
    .map(|(kind, base, manner, least)| Row {
        label: format!("ping-pong on two cores, {}{manner}", kind.name()),
        params: params(&json!({
            "shape": "ping-pong", "kind": kind.name(), "pin": Pin::Split.name(), "spin": manner.is_empty(),
        })),
        base,
        unit: "round trips/s",
        operation: "round trip",
        goals: least.map(|least| over_kernel("direct", least)).into_iter().collect(),
        ..row(Shape::PingPong { kind }, Pin::Split)
    })
}

fn bulks() -> Vec<Row> {
    vec![
        bulk(1, BULK_SIZE, vec![over_kernel("direct", 1.7)]),
        bulk(2, BULK_SIZE, vec![over_kernel("direct", 1.2)]),
        bulk(1, SMALLER_BULK, Vec::new()),
        bulk(2, SMALLER_BULK, Vec::new()),
        Row {
            label: format!("a writer blocked by a buffer of {} B, read by {}", bytes(TIGHT), bytes(SIP)),
            params: params(&json!({
                "shape": "blocked", "pairs": 1, "size": BULK_SIZE, "read": SIP, "buffers": TIGHT,
            })),
            unit: "Gbit/s",
            operation: "write's worth of bytes",
            ..row(Shape::Bulk { pairs: 1, size: BULK_SIZE, room: SIP, buffers: Some(TIGHT) }, Pin::Split)
        },
    ]
}

fn bulk(pairs: usize, size: usize, goals: Vec<Goal>) -> Row {
    let plural = if pairs == 1 { "" } else { "s" };
    Row {
        label: format!("bulk, {pairs} pair{plural}, {} B", bytes(size)),
        params: params(&json!({ "shape": "bulk", "pairs": pairs, "size": size })),
        unit: "Gbit/s",
        operation: "write's worth of bytes",
        goals,
        ..row(Shape::Bulk { pairs, size, room: size, buffers: None }, Pin::None)
    }
}

/// The shapes that make, close and pass sockets.
fn lives() -> impl Iterator<Item = Row> {
    let churn = |kind, tasks| Row {
        label: format!("socketpair and close, {}, {}", Kind::name(kind), counted_tasks(tasks)),
        params: params(&json!({ "shape": "churn", "tasks": tasks, "kind": Kind::name(kind) })),
        unit: "pairs/s",
        operation: "pair",
        goals: if kind == Kind::Stream { vec![over_kernel("direct", 3.0)] } else { Vec::new() },
        ..row(Shape::Churn { kind, tasks }, Pin::Same)
    };
    let rights = |tasks| Row {
        label: format!("passing a socket, {}", counted_tasks(tasks)),
        params: params(&json!({ "shape": "rights", "tasks": tasks })),
        unit: "sockets/s",
        operation: "socket",
        ..row(Shape::Rights { tasks }, Pin::Same)
    };
    [churn(Kind::Stream, 1), churn(Kind::Stream, 2), churn(Kind::Datagram, 2), rights(1), rights(2)]
        .into_iter()
}

fn fan_in() -> Row {
    Row {
        label: format!("datagrams of {SELDOM_SENDERS} seldom senders beside one that floods"),
        params: params(&json!({ "shape": "fan-in", "seldom": SELDOM_SENDERS })),
        unit: "datagrams/s",
        operation: "seldom sender's datagram",
        ..row(Shape::FanIn { seldom: SELDOM_SENDERS }, Pin::None)
    }
}

/// Without label, parameters and goals.
fn row(shape: Shape, pin: Pin) -> Row {
    Row {
        label: String::new(),
        params: params(&json!({})),
        base: &[],
        unit: "operations/s",
        operation: "write and its read",
        kernel: true,
        setup: SETUP,
        work: Box::new(Unix { shape, pin }),
        goals: Vec::new(),
        scales: false,
    }
}

/// A shape, to be opened on either side.
struct Unix {
    shape: Shape,
    pin: Pin,
}

impl Work for Unix {
    fn open(&self, on: &On<'_>) -> io::Result<Box<dyn Testbed>> {
        let (shape, placement) = (self.shape, Placement::new(self.pin)?);
        let kind = shape.kind();
        Ok(match on {
            On::Kernel if kind == Kind::Datagram => many(UnixKernel::new(kind), shape, placement),
            On::Kernel => one(UnixKernel::new(kind), shape, placement),
            On::Sockeye(config) => {
                let config = (*config).clone();
                match kind {
                    Kind::Stream => one(sockeye::Streams::over(config)?, shape, placement),
                    Kind::Seqpacket => one(sockeye::Seqpackets::over(config)?, shape, placement),
                    Kind::Datagram => many(sockeye::Datagrams::over(config)?, shape, placement),
                }
            }
        })
    }
}

fn one<P: UnixProvider>(provider: P, shape: Shape, placement: Placement) -> Box<dyn Testbed> {
    Box::new(Connected { provider, shape, placement })
}

fn many<P: FanIn>(provider: P, shape: Shape, placement: Placement) -> Box<dyn Testbed> {
    Box::new(Loose { provider, shape, placement })
}

/// A shape over sockets that are connected.
struct Connected<P> {
    provider: P,
    shape: Shape,
    placement: Placement,
}

impl<P: UnixProvider> Testbed for Connected<P> {
    fn sample(&self, timing: Timing) -> io::Result<Taken> {
        let window = self.shape.sample(&self.provider, &self.placement, timing)?;
        Ok(taken(self.shape, window))
    }
}

/// A shape over datagram sockets.
struct Loose<P> {
    provider: P,
    shape: Shape,
    placement: Placement,
}

impl<P: FanIn> Testbed for Loose<P> {
    fn sample(&self, timing: Timing) -> io::Result<Taken> {
        let window = self.shape.sample_datagrams(&self.provider, &self.placement, timing)?;
        Ok(taken(self.shape, window))
    }
}

fn taken(shape: Shape, window: crate::meter::Window) -> Taken {
    match shape {
        Shape::Bulk { size, .. } => Taken::of(window, BITS_PER_BYTE / GIGA, size as f64),
        Shape::Unix1 { .. }
        | Shape::PingPong { .. }
        | Shape::Rights { .. }
        | Shape::Churn { .. }
        | Shape::FanIn { .. } => Taken::of(window, 1.0, 1.0),
    }
}

/// The lines that decide it.
pub const LINES: &[Line] = &[
    Line { name: GLOBAL_LOCKS, of: &["unix_global_locks"], per: Per::Operation },
    Line { name: "pcb locks per operation", of: &["unix_pcb_locks"], per: Per::Operation },
    Line { name: "slow paths of a pair per operation", of: &["unix_pair_slow_paths"], per: Per::Operation },
    Line { name: "waits for a busy pcb per operation", of: &["unix_busy_waits"], per: Per::Operation },
    Line { name: "waits of callers per operation", of: &["user_sleeps"], per: Per::Operation },
    Line { name: "buffers allocated per operation", of: &["mbuf_allocated"], per: Per::Operation },
    Line { name: "remote frees per operation", of: &["mbuf_remote_frees"], per: Per::Operation },
    Line { name: "flooder's datagrams per seldom one", of: &[FLOODER], per: Per::Counters(&[SELDOM]) },
];

const GLOBAL_LOCKS: &str = "global locks per operation";

/// Tasks of `unix1`, as there.
const TASKS: [usize; 6] = [1, 2, 4, 8, 32, 96];
const SCALED_TASKS_MAX: usize = 8;
const SMALLER_BULK: usize = 16 << 10;
/// Bytes of buffers that a bulk write never fits into, and of the reads that empty them.
const TIGHT: usize = 16 << 10;
const SIP: usize = 4 << 10;
const BULK_MAX: usize = 16 << 20;
const SELDOM_SENDERS: usize = 8;
const SPINS: &[(&str, &str)] = &[];
const SPINS_NOT: &[(&str, &str)] = &[("spin_max", "0")];
const SETUP: Duration = Duration::from_millis(5);
const SETUP_PER_TASK: Duration = Duration::from_micros(300);
const BITS_PER_BYTE: f64 = 8.0;
const GIGA: f64 = 1e9;

#[cfg(test)]
mod tests {
    use ::sockeye::Config;
    use ::sockeye::experiments::{Experiments, UnixLocking};

    use super::*;

    const TIMING: Timing = Timing { warm_up: Duration::from_millis(5), timed: Duration::from_millis(30) };

    const SAMPLES_MAX: usize = 100;

    /// Each shape, small.
    fn shapes() -> Vec<Shape> {
        let mut shapes = vec![
            Shape::Bulk { pairs: 2, size: 10_000, room: 3000, buffers: None },
            Shape::Bulk { pairs: 1, size: BULK_SIZE, room: SIP, buffers: Some(TIGHT) },
            Shape::Rights { tasks: 2 },
            Shape::FanIn { seldom: 3 },
        ];
        for kind in [Kind::Stream, Kind::Datagram, Kind::Seqpacket] {
            shapes.push(Shape::Unix1 { kind, tasks: 3 });
            shapes.push(Shape::PingPong { kind });
            shapes.push(Shape::Churn { kind, tasks: 2 });
        }
        shapes
    }

    fn every_shape_counts_operations(on: &On<'_>) {
        for shape in shapes() {
            let pin = if matches!(shape, Shape::PingPong { .. }) { Pin::Split } else { Pin::Same };
            let testbed = Unix { shape, pin }.open(on).unwrap();
            // Later samples run with the state that earlier ones left. On a machine that is busy with something else a
            // window may pass before the threads have run at all.
            let counts = |testbed: &dyn Testbed| testbed.sample(TIMING).unwrap().operations > 0.0;
            let counted = (0..SAMPLES_MAX).filter(|_| counts(&*testbed)).take(2).count();
            assert_eq!(counted, 2, "{shape:?}");
        }
    }

    #[test]
    fn every_shape_counts_operations_on_the_kernel() {
        every_shape_counts_operations(&On::Kernel);
    }

    #[test]
    fn every_shape_counts_operations_on_sockeye_with_each_setting() {
        for &unix_locking in UnixLocking::ALL {
            let config = Config {
                experiments: Experiments { unix_locking, ..Experiments::default() },
                ..Config::default()
            };
            every_shape_counts_operations(&On::Sockeye(&config));
        }
        let config = Config { spin_max: Duration::ZERO, ..Config::default() };
        every_shape_counts_operations(&On::Sockeye(&config));
    }

    #[test]
    fn seldom_senders_and_the_flooder_are_counted_apart() {
        let config = Config::default();
        for on in [On::Kernel, On::Sockeye(&config)] {
            let testbed = Unix { shape: Shape::FanIn { seldom: 2 }, pin: Pin::None }.open(&on).unwrap();
            let both = |taken: &Taken| taken.counters[FLOODER] > 0 && taken.counters[SELDOM] > 0;
            let taken = (0..SAMPLES_MAX).map(|_| testbed.sample(TIMING).unwrap()).find(both).unwrap();
            assert!((taken.counters[SELDOM] as f64 - taken.operations).abs() < 0.5, "{taken:?}");
        }
    }

    #[test]
    fn given_flags_select_their_rows() {
        let labels = |asked: &Asked| -> Vec<String> {
            rows(asked).unwrap().into_iter().map(|row| row.label).collect()
        };
        let asked = Asked { connections: vec![3], ..Asked::default() };
        assert_eq!(labels(&asked), ["unix1, 3 tasks, stream"]);
        let asked = Asked { size: Some(4096), ..Asked::default() };
        assert_eq!(labels(&asked), ["bulk, 1 pair, 4K B", "bulk, 2 pairs, 4K B"]);
        let all = labels(&Asked::default());
        assert_eq!(all.iter().filter(|label| label.starts_with("unix1")).count(), 10);
        for (index, label) in all.iter().enumerate() {
            assert!(!all[..index].contains(label), "{label:?} twice");
        }
        assert!(rows(&Asked { connections: vec![TASKS_MAX + 1], ..Asked::default() }).is_err());
    }
}
