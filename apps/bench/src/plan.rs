//! The cases to be measured.
//!
//! Purpose: the default set, with the goals of the project, and the cases that a command line
//! selects. The only place where the numbers of a run are chosen.
//!
//! Does not depend on how a case is run or printed.
//!
//! Invariants: every case is bounded: samples, time a sample, connections.
//!
//! Tests: below.

use std::fmt;
use std::io;
use std::time::Duration;

use clap::ValueEnum;
use serde_json::Value;

use crate::machine::Machine;
use crate::meter::Timing;
use crate::pin::{Pin, usable_cores};
use crate::provider::Side;
use crate::providers::kernel::congestion;
use crate::workloads::{Name, Params, Workload, crr, http, idle, mem, one_way, rr, stream};

/// Whether Sockeye's blocked threads spin before they sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Spin {
    /// For a short time, as by default
    On,
    /// They sleep at once
    Off,
}

impl Spin {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Spin::On => "on",
            Spin::Off => "off",
        }
    }
}

/// The goal of a case.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Goal {
    /// This ratio to the kernel, at least.
    Ratio(f64),
    /// This value on Sockeye's side, at most, in the workload's unit.
    AtMost(f64),
    /// This share of the value of the case with that many connections, at least.
    ShareOf { share: f64, connections: usize },
}

/// One row of a run.
#[derive(Clone, Debug)]
pub struct Case {
    /// The operation.
    pub workload: Workload,
    /// Where the threads run.
    pub pin: Pin,
    /// Sockeye's spinning.
    pub spin: Spin,
    /// Samples of each side.
    pub samples: usize,
    /// Time of a sample.
    pub timing: Timing,
    /// The goal, if there is one.
    pub goal: Option<Goal>,
}

/// How thoroughly to measure.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Samples of each side of a case.
    pub samples: usize,
    /// Length of a sample's window.
    pub seconds: f64,
    /// Samples of cases that take memory or wait: these do not vary as rates do.
    pub samples_of_states: usize,
}

impl Effort {
    /// For figures to be quoted.
    pub const FULL: Effort = Effort { samples: 10, seconds: 1.0, samples_of_states: 3 };
    /// The whole default set in less than two minutes.
    pub const QUICK: Effort = Effort { samples: 10, seconds: 0.12, samples_of_states: 1 };

    fn timing(self) -> Timing {
        Timing {
            warm_up: Duration::from_secs_f64((self.seconds * WARM_UP_SHARE).max(WARM_UP_MIN)),
            timed: Duration::from_secs_f64(self.seconds),
        }
    }

    fn samples_of(self, workload: &Workload) -> usize {
        match workload {
            Workload::Stream(_)
            | Workload::Rr(_)
            | Workload::OneWay(_)
            | Workload::Crr(_)
            | Workload::Http(_) => self.samples,
            Workload::Mem(_) | Workload::Idle(_) => self.samples_of_states.min(self.samples),
        }
    }
}

/// A whole run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The rows, in order.
    pub cases: Vec<Case>,
    /// The sides that are measured, Sockeye first.
    pub sides: Vec<Side>,
}

impl Plan {
    /// Makes sure that everything is there which the rows take. Blocks for a build, if one is missing.
    ///
    /// # Errors
    /// Something cannot be had.
    pub fn prepare(&self) -> io::Result<()> {
        let is_http = |case: &Case| matches!(case.workload, Workload::Http(_));
        if self.cases.iter().any(is_http) { http::APPS.prepare() } else { Ok(()) }
    }

    /// Samples of all sides of all rows.
    pub fn samples(&self) -> usize {
        self.cases.iter().map(|case| case.samples * self.sides.len()).sum()
    }
}

impl Case {
    /// A case with no goal.
    pub fn new(workload: Workload, pin: Option<Pin>, spin: Spin, effort: Effort) -> Self {
        let pin = pin.unwrap_or_else(|| default_pin(&workload));
        let samples = effort.samples_of(&workload);
        Self { workload, pin, spin, samples, timing: effort.timing(), goal: None }
    }

    /// All parameters, the workload's and those of every case, for output.
    pub fn params(&self, machine: &Machine) -> Params {
        let mut params = self.workload.params();
        params.insert("cores".to_owned(), Value::from(machine.cores.len()));
        if matches!(&self.workload, Workload::Stream(_) | Workload::Rr(_) | Workload::OneWay(_)) {
            // Others leave the kernel's sockets, or some of them, as they are.
            params.insert("kernel_congestion".to_owned(), Value::from(congestion().name()));
        }
        match &self.workload {
            Workload::Stream(_) | Workload::Rr(_) | Workload::OneWay(_) | Workload::Crr(_) => {
                params.insert("pin".to_owned(), Value::from(self.pin.name()));
                params.insert("seconds".to_owned(), Value::from(self.timing.timed.as_secs_f64()));
                params.insert("spin".to_owned(), Value::from(self.spin.name()));
            }
            Workload::Http(_) => {
                params.insert("seconds".to_owned(), Value::from(self.timing.timed.as_secs_f64()));
            }
            Workload::Idle(_) => {
                params.insert("spin".to_owned(), Value::from(self.spin.name()));
            }
            Workload::Mem(_) => {}
        }
        params
    }

    /// The setting of Sockeye's switches where a case asks for another than the default.
    pub fn variant(&self, side: Side) -> Option<String> {
        match (side, self.spin) {
            (Side::Sockeye, Spin::Off) => Some("spin=off".to_owned()),
            (Side::Sockeye, Spin::On) | (Side::Kernel, Spin::On | Spin::Off) => None,
        }
    }

    /// The parameters as a person reads them, in one short line.
    pub fn label(&self) -> String {
        let mut parts = match &self.workload {
            Workload::Stream(spec) => {
                vec![plural(spec.connections, "conn"), format!("{} writes", spelled_bytes(spec.size))]
            }
            Workload::Rr(spec) => {
                let mut parts = vec![plural(spec.connections, "conn")];
                if spec.threads.is_some() {
                    let threads = spec.threads_a_side();
                    parts.push(format!("{threads}+{threads} threads"));
                }
                parts.extend((spec.size != 1).then(|| spelled_bytes(spec.size)));
                parts
            }
            Workload::OneWay(spec) => vec![spelled_bytes(spec.size)],
            Workload::Crr(spec) => {
                let mut parts = vec![plural(spec.clients, "client"), plural(spec.acceptors, "acceptor")];
                parts.extend((spec.size != 1).then(|| spelled_bytes(spec.size)));
                parts
            }
            Workload::Mem(spec) => {
                let mut parts = vec![plural(spec.connections, "conn")];
                parts.extend(spec.touch.then(|| "touched".to_owned()));
                parts
            }
            Workload::Idle(spec) => vec![plural(spec.connections, "conn")],
            Workload::Http(spec) => vec![plural(spec.connections, "conn"), plural(spec.runtimes, "runtime")],
        };
        parts.extend(self.is_nodelay().then(|| "nodelay".to_owned()));
        match self.pin {
            Pin::Same => parts.push("same core".to_owned()),
            Pin::Split => parts.push("two cores".to_owned()),
            Pin::None => {}
        }
        match self.spin {
            Spin::On => {}
            Spin::Off => parts.push("no spin".to_owned()),
        }
        parts.join(", ")
    }

    /// The words that ask for this case alone on the command line, but for the samples and their time.
    pub fn words(&self) -> Vec<String> {
        let mut words = vec![self.workload.name().as_str().to_owned()];
        let mut flag =
            |name: &str, value: &dyn fmt::Display| words.extend([name.to_owned(), value.to_string()]);
        match &self.workload {
            Workload::Stream(stream::Spec { connections, size, .. }) => {
                flag("--connections", connections);
                flag("--size", size);
            }
            Workload::Rr(rr::Spec { connections, threads, size, .. }) => {
                flag("--connections", connections);
                flag("--size", size);
                threads.iter().for_each(|threads| flag("--threads", threads));
            }
            Workload::OneWay(spec) => flag("--size", &spec.size),
            Workload::Crr(spec) => {
                flag("--clients", &spec.clients);
                flag("--threads", &spec.acceptors);
                flag("--size", &spec.size);
            }
            Workload::Mem(mem::Spec { connections, .. }) | Workload::Idle(idle::Spec { connections }) => {
                flag("--connections", connections);
            }
            Workload::Http(http::Spec { connections, runtimes, .. }) => {
                flag("--connections", connections);
                flag("--runtimes", runtimes);
            }
        }
        let (is_placed, spins) = match &self.workload {
            Workload::Stream(_) | Workload::Rr(_) | Workload::OneWay(_) | Workload::Crr(_) => (true, true),
            Workload::Idle(_) => (false, true),
            Workload::Mem(_) | Workload::Http(_) => (false, false),
        };
        // On a machine of one core the default may be two, but an explicit two is refused.
        if is_placed && (self.pin != Pin::Split || default_pin(&self.workload) != Pin::Split) {
            flag("--pin", &self.pin.name());
        }
        if spins {
            flag("--spin", &self.spin.name());
        }
        words.extend(self.is_nodelay().then(|| "--nodelay".to_owned()));
        words.extend(
            matches!(self.workload, Workload::Mem(mem::Spec { touch: true, .. }))
                .then(|| "--touch".to_owned()),
        );
        words
    }

    fn is_nodelay(&self) -> bool {
        match &self.workload {
            Workload::Stream(stream::Spec { nodelay, .. })
            | Workload::Rr(rr::Spec { nodelay, .. })
            | Workload::OneWay(one_way::Spec { nodelay, .. }) => *nodelay,
            Workload::Crr(_) | Workload::Mem(_) | Workload::Idle(_) | Workload::Http(_) => false,
        }
    }

    /// How long one sample of one side should take, setting up included.
    pub fn planned_time(&self) -> Duration {
        match &self.workload {
            Workload::Stream(_) | Workload::Rr(_) | Workload::OneWay(_) | Workload::Crr(_) => {
                self.timing.warm_up + self.timing.timed
            }
            Workload::Http(_) => http::START + self.timing.warm_up + self.timing.timed,
            Workload::Idle(_) => idle::SETTLE + self.timing.timed.max(idle::WATCHED),
            Workload::Mem(spec) => MEM_TIME_PER_CONNECTION * spec.connections.min(u32::MAX as usize) as u32,
        }
    }
}

/// The rows of the default set, which has none of an application's library, or those of one workload.
pub fn default_set(only: Option<Name>, effort: Effort) -> Vec<Case> {
    let mut cases = Vec::new();
    cases.extend(default_stream(effort));
    cases.extend(default_rr(effort));
    cases.push(default_one_way(effort));
    cases.extend(default_crr(effort));
    cases.extend(default_states(effort));
    cases.extend(only.is_some().then(|| apps(effort)).into_iter().flatten());
    cases.retain(|case| only.is_none_or(|name| case.workload.name() == name));
    cases
}

fn default_stream(effort: Effort) -> impl Iterator<Item = Case> {
    let bulk = |connections| stream::Spec {
        connections,
        size: BULK_SIZE,
        nodelay: false,
        reading: stream::Reader::PLAIN,
    };
    let small =
        |nodelay| stream::Spec { connections: 1, size: SMALL_SIZE, nodelay, reading: stream::Reader::PLAIN };
    let share = Goal::ShareOf { share: 0.8, connections: 32 };
    [
        (bulk(1), None, Goal::Ratio(1.5)),
        // Where both ends of a connection run decides more here than anything else, so it is shown both ways.
        (bulk(2), Some(Pin::Same), Goal::Ratio(1.4)),
        (bulk(2), None, Goal::Ratio(1.4)),
        (bulk(10), None, Goal::Ratio(1.15)),
        (bulk(32), None, Goal::Ratio(1.1)),
        (bulk(96), None, share),
        (small(false), None, Goal::Ratio(2.0)),
        (small(true), None, Goal::Ratio(3.0)),
    ]
    .into_iter()
    .map(move |(spec, pin, goal)| Case {
        goal: Some(goal),
        ..Case::new(Workload::Stream(spec), pin, Spin::On, effort)
    })
}

fn default_rr(effort: Effort) -> impl Iterator<Item = Case> {
    let one = rr::Spec { connections: 1, threads: None, size: 1, nodelay: false };
    let many = |connections| rr::Spec { connections, threads: Some(2), ..one };
    [
        (one.clone(), Pin::Split, Spin::On, 5.0),
        (one.clone(), Pin::Split, Spin::Off, 1.1),
        (one.clone(), Pin::Same, Spin::On, 2.0),
        (many(100), Pin::None, Spin::On, 6.0),
        (many(10_000), Pin::None, Spin::On, 6.0),
    ]
    .into_iter()
    .map(move |(spec, pin, spin, goal)| Case {
        goal: Some(Goal::Ratio(goal)),
        ..Case::new(Workload::Rr(spec), Some(pin), spin, effort)
    })
}

fn default_one_way(effort: Effort) -> Case {
    let spec = one_way::Spec { size: one_way::SIZE, nodelay: false };
    Case { goal: Some(Goal::Ratio(1.0)), ..Case::new(Workload::OneWay(spec), None, Spin::On, effort) }
}

fn default_crr(effort: Effort) -> impl Iterator<Item = Case> {
    [(1, 1.7), (8, 2.5), (32, 2.5)].into_iter().map(move |(clients, goal)| {
        let spec = crr::Spec { clients, acceptors: default_acceptors(clients), size: 1, response: 1 };
        Case { goal: Some(Goal::Ratio(goal)), ..Case::new(Workload::Crr(spec), None, Spin::On, effort) }
    })
}

fn default_states(effort: Effort) -> impl Iterator<Item = Case> {
    let mem = |connections| Workload::Mem(mem::Spec { connections, touch: false });
    let idle = Workload::Idle(idle::Spec { connections: 1000 });
    [
        (mem(10_000), Goal::AtMost(2048.0)),
        (mem(100_000), Goal::AtMost(2048.0)),
        (idle, Goal::AtMost(IDLE_MILLIS_MAX)),
    ]
    .into_iter()
    .map(move |(workload, goal)| Case { goal: Some(goal), ..Case::new(workload, None, Spin::On, effort) })
}

/// The rows of an application's library.
pub fn apps(effort: Effort) -> impl Iterator<Item = Case> {
    let one = |version| [1, 2].map(|runtimes| http::Spec { version, connections: 1, runtimes });
    let many = [1, 2].map(|runtimes| {
        let connections = http::CONNECTIONS_MANY;
        http::Spec { version: http::Version::One, connections, runtimes }
    });
    let specs = one(http::Version::One).into_iter().chain(many).chain(one(http::Version::Two));
    specs.map(move |spec| Case::new(Workload::Http(spec), None, Spin::On, effort))
}

/// One for each core, but no more than there are clients: on the kernel's side more or fewer are no
/// faster.
pub fn default_acceptors(clients: usize) -> usize {
    clients.min(usable_cores().map_or(1, |cores| cores.len()))
}

/// With one blocking connection the placement decides everything, so it is never left to chance.
fn default_pin(workload: &Workload) -> Pin {
    match workload {
        Workload::Rr(spec) if spec.threads.is_none() => Pin::Split,
        Workload::OneWay(_) => Pin::Split,
        Workload::Rr(_)
        | Workload::Stream(_)
        | Workload::Crr(_)
        | Workload::Mem(_)
        | Workload::Idle(_)
        | Workload::Http(_) => Pin::None,
    }
}

/// A size as one writes it: 64K, 128.
pub fn bytes(size: usize) -> String {
    const KIB: usize = 1024;
    const MIB: usize = KIB * KIB;
    match size {
        0 => "0".to_owned(),
        n if n % MIB == 0 => format!("{}M", n / MIB),
        n if n % KIB == 0 => format!("{}K", n / KIB),
        n => n.to_string(),
    }
}

/// A size as one reads it in a sentence: 64K, 128 B.
fn spelled_bytes(size: usize) -> String {
    let mut text = bytes(size);
    if text.ends_with(|last: char| last.is_ascii_digit()) {
        text.push_str(" B");
    }
    text
}

fn plural(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

/// Bytes of a bulk write.
pub const BULK_SIZE: usize = 64 * 1024;
const SMALL_SIZE: usize = 128;
/// CPU milliseconds a second that still count as sleeping: a tenth of a per cent of a core.
const IDLE_MILLIS_MAX: f64 = 1.0;
/// Of the window's length, before it.
const WARM_UP_SHARE: f64 = 0.2;
/// In seconds: buffers and windows have grown and threads found their cores.
const WARM_UP_MIN: f64 = 0.03;
/// The kernel's side takes half of it.
const MEM_TIME_PER_CONNECTION: Duration = Duration::from_micros(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_set_covers_every_workload_and_every_case_has_a_goal() {
        let cases = default_set(None, Effort::FULL);
        for name in Name::value_variants() {
            let is_app = matches!(name, Name::Http1 | Name::Http2);
            assert!(is_app != cases.iter().any(|case| case.workload.name() == *name), "{name:?}");
            assert!(!default_set(Some(*name), Effort::FULL).is_empty(), "{name:?}");
        }
        assert!(cases.iter().all(|case| case.goal.is_some()));
        let labels: Vec<_> = cases.iter().map(|case| (case.workload.name().as_str(), case.label())).collect();
        for (index, label) in labels.iter().enumerate() {
            assert!(!labels[..index].contains(label), "{label:?} twice");
        }
    }

    #[test]
    fn one_workload_has_its_own_rows_only() {
        let cases = default_set(Some(Name::Crr), Effort::QUICK);
        assert_eq!(cases.len(), 3);
        assert!(cases.iter().all(|case| case.workload.name() == Name::Crr));
    }

    #[test]
    fn quick_runs_are_planned_below_two_minutes() {
        let both_sides: Duration = default_set(None, Effort::QUICK)
            .iter()
            .map(|case| case.planned_time() * 2 * u32::try_from(case.samples).unwrap())
            .sum();
        assert!(both_sides < Duration::from_secs(110), "{both_sides:?}");
    }

    #[test]
    fn cases_that_differ_in_spinning_differ_in_their_parameters() {
        let machine = Machine::read().unwrap();
        let cases = default_set(Some(Name::Rr), Effort::QUICK);
        assert_ne!(cases[0].params(&machine), cases[1].params(&machine));
        assert_eq!(cases[1].variant(Side::Sockeye).as_deref(), Some("spin=off"));
        assert_eq!(cases[1].variant(Side::Kernel), None);
    }

    #[test]
    fn sizes_are_written_as_they_are_read() {
        assert_eq!(bytes(65536), "64K");
        assert_eq!(bytes(1 << 20), "1M");
        assert_eq!(bytes(1500), "1500");
        assert_eq!(spelled_bytes(1500), "1500 B");
        assert_eq!(spelled_bytes(4096), "4K");
    }
}
