//! Operations on UNIX-domain sockets.
//!
//! Purpose: the shapes of `bench unix`, each in a file of its own, and one way to take a sample of any of them.
//!
//! Does not depend on the side or the setting.
//!
//! Invariants: every shape's load is bounded in number and in time; its threads end when the sample does. Sockets
//! are made before the window opens, except where making them is measured.
//!
//! Tests: in the files, over the kernel and over Sockeye.

use std::io;
use std::thread;

use crate::meter::{Meter, Reading, Tally, Timing, Window};
use crate::pin::Placement;

mod bulk;
mod churn;
mod fan_in;
mod ping_pong;
pub mod provider;
mod rights;
mod unix1;

pub use fan_in::{FLOODER, SELDOM};
use provider::{FanIn, Kind, UnixProvider};

/// A workload with its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// See [`unix1`].
    Unix1 {
        /// The sockets' kind.
        kind: Kind,
        /// Threads, each with a pair of its own.
        tasks: usize,
    },
    /// See [`ping_pong`].
    PingPong {
        /// The sockets' kind.
        kind: Kind,
    },
    /// See [`bulk`].
    Bulk {
        /// Pairs, each with a writer and a reader.
        pairs: usize,
        /// Bytes of a write.
        size: usize,
        /// Bytes of a read.
        room: usize,
        /// Bytes of both buffers, if not the default.
        buffers: Option<usize>,
    },
    /// See [`rights`].
    Rights {
        /// Threads, each with pairs of its own.
        tasks: usize,
    },
    /// See [`churn`].
    Churn {
        /// The sockets' kind.
        kind: Kind,
        /// Threads.
        tasks: usize,
    },
    /// See [`fan_in`].
    FanIn {
        /// Senders besides the one that floods.
        seldom: usize,
    },
}

impl Shape {
    /// The kind of socket it needs.
    pub fn kind(&self) -> Kind {
        match *self {
            Shape::Unix1 { kind, .. } | Shape::PingPong { kind } | Shape::Churn { kind, .. } => kind,
            Shape::Bulk { .. } | Shape::Rights { .. } => Kind::Stream,
            Shape::FanIn { .. } => Kind::Datagram,
        }
    }

    /// One sample over `provider`, whose sockets are of [`kind`](Self::kind). Blocks for its time.
    pub fn sample<P: UnixProvider>(
        &self,
        provider: &P,
        placement: &Placement,
        timing: Timing,
    ) -> io::Result<Window> {
        match *self {
            Shape::Unix1 { tasks, .. } => unix1::sample(provider, tasks, placement, timing),
            Shape::PingPong { .. } => ping_pong::sample(provider, placement, timing),
            Shape::Bulk { pairs, size, room, buffers } => {
                let spec = bulk::Spec { pairs, size, room, buffers };
                bulk::sample(provider, &spec, placement, timing)
            }
            Shape::Rights { tasks } => rights::sample(provider, tasks, placement, timing),
            Shape::Churn { tasks, .. } => churn::sample(provider, tasks, placement, timing),
            Shape::FanIn { .. } => Err(io::Error::other("many senders need a provider of datagram sockets")),
        }
    }

    /// One sample over a provider of datagram sockets.
    pub fn sample_datagrams<P: FanIn>(
        &self,
        provider: &P,
        placement: &Placement,
        timing: Timing,
    ) -> io::Result<Window> {
        match *self {
            Shape::FanIn { seldom } => fan_in::sample(provider, seldom, placement, timing),
            Shape::Unix1 { .. }
            | Shape::PingPong { .. }
            | Shape::Bulk { .. }
            | Shape::Rights { .. }
            | Shape::Churn { .. } => self.sample(provider, placement, timing),
        }
    }
}

/// A sample of `tasks` threads that work by themselves: each is placed, and runs `task` with its index, which makes its sockets, arrives at the
/// meter and counts in its own tally until the meter stops.
fn each_task<P: UnixProvider>(
    provider: &P,
    tasks: usize,
    placement: &Placement,
    timing: Timing,
    task: impl Fn(&Meter, &Tally) -> io::Result<()> + Sync,
) -> io::Result<Window> {
    let meter = Meter::new(tasks, tasks);
    let window = thread::scope(|scope| {
        for index in 0..tasks {
            let (meter, task) = (&meter, &task);
            scope.spawn(move || {
                meter.guard(|| {
                    placement.client(index)?;
                    task(meter, meter.tally(index))
                });
            });
        }
        meter.observe(timing, || reading(provider))
    });
    meter.into_result()?;
    window
}

/// Values that are read at both ends of a window.
fn reading<P: UnixProvider>(provider: &P) -> io::Result<Reading> {
    Ok(Reading::now(provider.counters()))
}

/// Threads at most: beyond it only the scheduler is measured.
pub const TASKS_MAX: usize = 1024;
