//! The command line of `sockeye bench`.
//!
//! Purpose: options, their permitted values, and the workload of each. An error names the flag, the value and
//! a correct form.
//!
//! Does not depend on how anything is measured.
//!
//! Invariants: a plan that it returns can be run; an option that would be ignored is an error.
//!
//! Tests: below; exit code and stream in `tests/bench`.

mod target;
mod values;

use std::path::PathBuf;

use clap::builder::PossibleValue;
use clap::{Args, ValueEnum};
use sockeye_shared::end::UsageError;
use sockeye_shared::parse;

use crate::against::round_count;
use crate::experiment::table::EXPERIMENTS;
use crate::page;
use crate::patterns::args::PatternArgs;
use crate::pin::{Pin, usable_cores};
use crate::plan::{BULK_SIZE, Case, Effort, Plan, Spin, apps, bytes, default_acceptors, default_set};
use crate::provider::Side;
use crate::sim::args::SimArgs;
use crate::tun::{Mtu, Own, SpinTime, Work, peers};
pub use target::Target;
pub use values::count;
use values::{runtimes, samples, seconds, size};

use crate::workloads::{Name, Workload, crr, http, idle, mem, one_way, rr, stream};

/// Options of the command.
#[derive(Args, Debug, Default)]
pub struct BenchArgs {
    /// What to measure [default: all workloads]
    #[arg(value_enum)]
    pub workload: Option<Target>,

    /// Settings of the experiment to compare [default: all] (experiments)
    #[arg(long, value_name = "SETTING[,SETTING...]", value_delimiter = ',')]
    pub variants: Vec<String>,

    /// Set a field of the stack's configuration, such as grain=per_core or sndbuf=64K; repeatable (experiments)
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse::key_value)]
    pub set: Vec<(String, String)>,

    /// Open connections; several numbers make several rows (stream, rr, mem, idle, http1, http2, rcvd, input, gro, rxfree)
    #[arg(long, value_name = "N[,N...]", value_delimiter = ',', value_parser = count)]
    pub connections: Vec<usize>,

    /// Threads of each side that wait for readiness (rr, rxfree), acceptor threads (crr), input threads (input, gro)
    #[arg(long, value_name = "T", value_parser = count)]
    pub threads: Option<usize>,

    /// Size of a write, request or response, such as 128 or 64K (stream, rr, one-way, crr, rcvd, rxfree; wake: of a response)
    #[arg(long, value_name = "BYTES", value_parser = size)]
    pub size: Option<usize>,

    /// Client threads; several numbers make several rows (crr, wake)
    #[arg(long, value_name = "N[,N...]", value_delimiter = ',', value_parser = count)]
    pub clients: Vec<usize>,

    /// Set TCP_NODELAY (stream, rr, one-way)
    #[arg(long)]
    pub nodelay: bool,

    /// Number of tokio runtimes: 1, both ends of a connection share one; 2, each has its own (http1, http2)
    #[arg(long, value_name = "1|2[,1|2]", value_delimiter = ',', value_parser = runtimes)]
    pub runtimes: Vec<usize>,

    /// Send one byte each way over every connection first (mem)
    #[arg(long)]
    pub touch: bool,

    /// Pin both ends of a connection to one core or to two, or leave them to the scheduler (stream, rr, one-way, crr)
    #[arg(long, value_enum)]
    pub pin: Option<Pin>,

    /// Whether waiting threads of Sockeye spin before they sleep (all but mem, http1, http2)
    #[arg(long, value_enum)]
    pub spin: Option<Spin>,

    /// Which side to measure
    #[arg(long, value_enum, default_value = "both")]
    pub on: On,

    /// Number of samples of each side [default: 10; mem and idle 3, with --quick 1]
    #[arg(long, value_name = "N", value_parser = samples)]
    pub samples: Option<usize>,

    /// Length of a sample in seconds, without its warm-up [default: 1; --quick 0.12]
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub seconds: Option<f64>,

    /// Add http1 and http2 to the default set: hyper under tokio. Their program is built first
    #[arg(long)]
    pub apps: bool,

    /// Take short samples: the whole default set in less than two minutes
    #[arg(long)]
    pub quick: bool,

    /// Also measure gVisor's netstack and smoltcp, from FOLDER, or built first if none is given; needs go (tun)
    #[arg(long, value_name = "FOLDER", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    pub peers: Option<peers::Source>,

    /// Run only these kinds of work (tun)
    #[arg(long, value_name = "WORK[,WORK...]", value_enum, value_delimiter = ',')]
    pub work: Vec<Work>,

    /// MTU of every far end [default: 1500; with --peers the fastest for each] (tun)
    #[arg(long, value_name = "BYTES")]
    pub mtu: Option<Mtu>,

    /// How long a far end that can spin does so before it sleeps, 0 to 10000 [default: the fastest for each] (tun)
    #[arg(long, value_name = "US")]
    pub spin_us: Option<SpinTime>,

    /// Run only these of the far ends inside this process (tun)
    #[arg(long, value_name = "END[,END...]", value_enum, value_delimiter = ',')]
    pub far: Vec<Own>,

    /// Let the kernel send through a device, instead of another stack over a wire (input; needs root)
    #[arg(long, value_enum)]
    pub dev: Option<Dev>,

    /// Compare this build with another on the same rows: a program sockeye or sockeye-bench, or a git revision, which is built first
    #[arg(long, value_name = "REVISION|PROGRAM")]
    pub against: Option<String>,

    /// Number of rounds of --against, at least 20 [default: 20]
    #[arg(long, value_name = "N", value_parser = round_count, requires = "against")]
    pub rounds: Option<usize>,

    /// Print one JSON object a line instead of a table
    #[arg(long)]
    pub json: bool,

    /// Also write the JSON lines to this file
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,

    /// Write the frames of the first stack that has an interface to this pcap-ng file, and those of others to numbered files;
    /// headers only, 64 MiB each (input, gro, rxfree, hostile, tun)
    #[arg(long, value_name = "FILE")]
    pub pcap: Option<PathBuf>,

    /// Write an HTML page with charts and tables, of experiments also with predictions; or a picture of the ratios alone, if the name
    /// ends with .svg (workloads, experiments)
    #[arg(long, value_name = "FILE.html|FILE.svg", conflicts_with = "against")]
    pub report: Option<PathBuf>,

    /// Show the project's goals, and whether each was reached
    #[arg(long)]
    pub goals: bool,

    #[command(flatten)]
    pub patterns: PatternArgs,

    #[command(flatten)]
    pub sim: SimArgs,
}

/// A device between the kernel and a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Dev {
    /// A TUN device, with as many queues as there are input threads
    Tun,
}

/// The sides to measure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum On {
    /// Sockeye alone
    Sockeye,
    /// The kernel alone
    Kernel,
    /// Both in turns, and their ratio
    #[default]
    Both,
}

impl BenchArgs {
    /// What to measure.
    pub fn plan(&self) -> Result<Plan, UsageError> {
        let sides = match self.on {
            On::Sockeye => vec![Side::Sockeye],
            On::Kernel => vec![Side::Kernel],
            On::Both => vec![Side::Sockeye, Side::Kernel],
        };
        let only = self.name();
        self.check_flags_belong()?;
        let cases = match only {
            Some(name) if self.shaped() => self.cases(name)?,
            only => {
                let more = self.apps.then(|| apps(self.effort()));
                default_set(only, self.effort()).into_iter().chain(more.into_iter().flatten()).collect()
            }
        };
        if cases.iter().any(|case| case.pin == Pin::Split) && one_core() && self.pin.is_some() {
            return Err(UsageError(
                "--pin split needs two cores and this process may use one; leave --pin out or \
                 use --pin same"
                    .to_owned(),
            ));
        }
        Ok(Plan { cases, sides })
    }

    /// The workload, if it is one that is named.
    fn name(&self) -> Option<Name> {
        match self.workload {
            Some(Target::Workload(name)) => Some(name),
            Some(
                Target::Experiment(_)
                | Target::All
                | Target::Scale
                | Target::Tun
                | Target::Hostile
                | Target::Udp
                | Target::Patterns
                | Target::Sim,
            )
            | None => None,
        }
    }

    /// The experiments to run, if any.
    ///
    /// # Errors
    /// A flag that they would ignore.
    pub fn experiments(&self) -> Result<Option<Target>, UsageError> {
        let target = match self.workload {
            Some(target @ (Target::Experiment(_) | Target::All | Target::Scale)) => target,
            Some(
                Target::Workload(_)
                | Target::Tun
                | Target::Hostile
                | Target::Udp
                | Target::Patterns
                | Target::Sim,
            )
            | None => {
                self.check_experiment_flags()?;
                return Ok(None);
            }
        };
        if self.report.as_deref().is_some_and(page::is_picture) {
            let message = "--report: a picture shows the ratios of workloads; for experiments give a name that ends with .html";
            return Err(UsageError(message.to_owned()));
        }
        let (name, takes) = match target {
            Target::Experiment(index) => (EXPERIMENTS[index].name, EXPERIMENTS[index].flags),
            Target::All => ("all", &[][..]),
            Target::Scale
            | Target::Workload(_)
            | Target::Tun
            | Target::Hostile
            | Target::Udp
            | Target::Patterns
            | Target::Sim => ("scale", &[][..]),
        };
        for (flag, given, _) in self.shape_flags() {
            if given && !takes.contains(&flag) {
                let instead = if flag == "--spin" { "; use --set spin_max=0" } else { "" };
                return Err(UsageError(format!(
                    "{flag} does not belong to {name}, which takes {}{instead}",
                    if takes.is_empty() {
                        "no flag that shapes its rows".to_owned()
                    } else {
                        takes.join(", ")
                    }
                )));
            }
        }
        Ok(Some(target))
    }

    /// That flags which mean something to one target only were given with that.
    ///
    /// # Errors
    /// The first of them that was not.
    pub fn check_only_flags(&self) -> Result<(), UsageError> {
        let takes_dev = |target| match target {
            Target::Experiment(index) => EXPERIMENTS[index].flags.contains(&"--dev"),
            Target::Workload(_)
            | Target::All
            | Target::Scale
            | Target::Tun
            | Target::Hostile
            | Target::Udp
            | Target::Patterns
            | Target::Sim => false,
        };
        let of_tun = [
            ("--peers", "--peers", self.peers.is_some()),
            ("--work", "--work send,rr", !self.work.is_empty()),
            ("--mtu", "--mtu 65535", self.mtu.is_some()),
            ("--spin-us", "--spin-us 0", self.spin_us.is_some()),
            ("--far", "--far sockeye,trivial", !self.far.is_empty()),
        ];
        if self.apps && self.workload.is_some() {
            let message = "--apps adds to the whole set; name http1 or http2 to measure them alone";
            return Err(UsageError(message.to_owned()));
        }
        let of_patterns = self.patterns.flags();
        let given = of_patterns.iter().find(|(.., is_given)| *is_given);
        if let Some((flag, example, _)) = given.filter(|_| self.workload != Some(Target::Patterns)) {
            let message = format!("{flag} belongs to patterns; write: sockeye bench patterns {example}");
            return Err(UsageError(message));
        }
        let of_sim = self.sim.flags();
        let given = of_sim.iter().find(|(.., is_given)| *is_given);
        if let Some((flag, example, _)) = given.filter(|_| self.workload != Some(Target::Sim)) {
            return Err(UsageError(format!("{flag} belongs to sim; write: sockeye bench sim {example}")));
        }
        let given = of_tun.iter().find(|(.., is_given)| *is_given && self.workload != Some(Target::Tun));
        if let Some((flag, example, _)) = given {
            Err(UsageError(format!("{flag} belongs to tun; write: sockeye bench tun {example}")))
        } else if self.dev.is_some() && !self.workload.is_some_and(takes_dev) {
            Err(UsageError("--dev belongs to input; write: sockeye bench input --dev tun".to_owned()))
        } else {
            Ok(())
        }
    }

    /// That no flag was given that `name`, which takes none that shape its rows, would ignore.
    ///
    /// # Errors
    /// The first of them.
    pub fn check_plain(&self, name: &str) -> Result<(), UsageError> {
        self.check_experiment_flags()?;
        if self.report.is_some() {
            return Err(UsageError(format!(
                "--report: there is no page of {name}; leave it out, or take --json"
            )));
        }
        let shaped = self.shape_flags().into_iter().find(|(_, given, _)| *given).map(|(flag, ..)| flag);
        match shaped.or((self.on != On::Both).then_some("--on")) {
            Some(flag) => Err(UsageError(format!("{flag} does not belong to {name}; leave it out"))),
            None => Ok(()),
        }
    }

    /// That none of these general options, which `name` does not look at, is given.
    ///
    /// # Errors
    /// One is.
    pub fn check_absent(&self, name: &str, flags: &[&str]) -> Result<(), UsageError> {
        let given = [
            ("--out", self.out.is_some()),
            ("--samples", self.samples.is_some()),
            ("--seconds", self.seconds.is_some()),
            ("--goals", self.goals),
        ];
        match given.into_iter().find(|(flag, is_given)| *is_given && flags.contains(flag)) {
            Some((flag, _)) => Err(UsageError(format!("{flag} does not belong to {name}; leave it out"))),
            None => Ok(()),
        }
    }

    fn check_experiment_flags(&self) -> Result<(), UsageError> {
        let flags = [("--variants", !self.variants.is_empty()), ("--set", !self.set.is_empty())];
        match flags.iter().find(|(_, given)| *given) {
            Some((flag, _)) => {
                let names: Vec<&str> = EXPERIMENTS.iter().map(|experiment| experiment.name).collect();
                let names = names.join(", ");
                Err(UsageError(format!("{flag} belongs to experiments: {names}, all, scale")))
            }
            None => Ok(()),
        }
    }

    /// That there are frames to record, if there is to be a record.
    ///
    /// # Errors
    /// The measured traffic crosses no interface.
    pub fn check_record(&self) -> Result<(), UsageError> {
        let has_frames = match self.workload {
            Some(Target::Tun | Target::Hostile) => true,
            Some(Target::Experiment(index)) => FRAMED.contains(&EXPERIMENTS[index].name),
            Some(
                Target::Workload(_)
                | Target::All
                | Target::Scale
                | Target::Udp
                | Target::Patterns
                | Target::Sim,
            )
            | None => false,
        };
        if self.pcap.is_none() || has_frames {
            return Ok(());
        }
        let value = self.workload.and_then(|target| target.to_possible_value());
        let name = value.as_ref().map_or("the whole", PossibleValue::get_name);
        Err(UsageError(format!(
            "--pcap: {name} runs over loopback, where no frame crosses an interface; it belongs to {}, hostile, tun",
            FRAMED.join(", ")
        )))
    }

    fn effort(&self) -> Effort {
        let mut effort = if self.quick { Effort::QUICK } else { Effort::FULL };
        if let Some(samples) = self.samples {
            (effort.samples, effort.samples_of_states) = (samples, samples);
        }
        effort.seconds = self.seconds.unwrap_or(effort.seconds);
        effort
    }

    /// The flags that shape a workload, whether each was given, and the workloads it belongs to.
    fn shape_flags(&self) -> [(&'static str, bool, &'static [Name]); 9] {
        use Name::{Crr, Http1, Http2, Idle, Mem, OneWay, Rr, Stream};
        [
            ("--connections", !self.connections.is_empty(), &[Stream, Rr, Mem, Idle, Http1, Http2]),
            ("--runtimes", !self.runtimes.is_empty(), &[Http1, Http2]),
            ("--threads", self.threads.is_some(), &[Rr, Crr]),
            ("--size", self.size.is_some(), &[Stream, Rr, OneWay, Crr]),
            ("--clients", !self.clients.is_empty(), &[Crr]),
            ("--nodelay", self.nodelay, &[Stream, Rr, OneWay]),
            ("--touch", self.touch, &[Mem]),
            ("--pin", self.pin.is_some(), &[Stream, Rr, OneWay, Crr]),
            ("--spin", self.spin.is_some(), &[Stream, Rr, OneWay, Crr, Idle]),
        ]
    }

    fn shaped(&self) -> bool {
        self.shape_flags().iter().any(|(_, given, _)| *given)
    }

    fn check_flags_belong(&self) -> Result<(), UsageError> {
        for (flag, given, belongs) in self.shape_flags() {
            if !given || self.name().is_some_and(|name| belongs.contains(&name)) {
                continue;
            }
            let names: Vec<&str> = belongs.iter().map(|name| name.as_str()).collect();
            let names = names.join(", ");
            return Err(UsageError(match self.name() {
                Some(workload) => {
                    format!("{flag} does not belong to {}, only to: {names}; leave it out", workload.as_str())
                }
                None => format!(
                    "{flag} needs a workload it belongs to ({names}), such as: sockeye bench {} \
                     {flag} ...",
                    belongs.first().map_or("stream", |name| name.as_str())
                ),
            }));
        }
        Ok(())
    }

    fn cases(&self, name: Name) -> Result<Vec<Case>, UsageError> {
        let case = |workload| Case::new(workload, self.pin, self.spin.unwrap_or(Spin::On), self.effort());
        let counts = |default: usize, most: usize| counts(&self.connections, default, most, name);
        let workloads: Vec<Workload> = match name {
            Name::Stream => {
                let size = self.size.unwrap_or(BULK_SIZE);
                let reading = stream::Reader::PLAIN;
                let spec = |connections| stream::Spec { connections, size, nodelay: self.nodelay, reading };
                let counts = counts(1, stream::CONNECTIONS_MAX)?;
                counts.into_iter().map(spec).map(Workload::Stream).collect()
            }
            Name::Rr => {
                self.rr_specs(counts(1, rr::CONNECTIONS_MAX)?)?.into_iter().map(Workload::Rr).collect()
            }
            Name::OneWay => {
                let size = self.size.unwrap_or(one_way::SIZE);
                vec![Workload::OneWay(one_way::Spec { size, nodelay: self.nodelay })]
            }
            Name::Crr => self.crr_specs()?.into_iter().map(Workload::Crr).collect(),
            Name::Mem => {
                let spec = |connections| mem::Spec { connections, touch: self.touch };
                let counts = counts(10_000, mem::CONNECTIONS_MAX)?;
                counts.into_iter().map(spec).map(Workload::Mem).collect()
            }
            Name::Idle => {
                let spec = |connections| idle::Spec { connections };
                let counts = counts(1000, idle::CONNECTIONS_MAX)?;
                counts.into_iter().map(spec).map(Workload::Idle).collect()
            }
            Name::Http1 => self.http_specs(http::Version::One, counts(1, http::CONNECTIONS_MAX)?),
            Name::Http2 => self.http_specs(http::Version::Two, counts(1, http::CONNECTIONS_MAX)?),
        };
        Ok(workloads.into_iter().map(case).collect())
    }

    fn rr_specs(&self, counts: Vec<usize>) -> Result<Vec<rr::Spec>, UsageError> {
        let size = self.size.unwrap_or(1);
        at_most("--threads", self.threads, rr::THREADS_MAX)?;
        let mut specs = Vec::new();
        for connections in counts {
            let threads = match (self.threads, connections) {
                (None, 1) => None,
                (None, _) => Some(RR_THREADS),
                (given, _) => given,
            };
            if threads.is_some() && size > rr::POLLED_SIZE_MAX {
                return Err(UsageError(format!(
                    "--size {} is too large for rr with readiness; use at most {}, or one \
                     connection without --threads",
                    bytes(size),
                    bytes(rr::POLLED_SIZE_MAX)
                )));
            }
            specs.push(rr::Spec { connections, threads, size, nodelay: self.nodelay });
        }
        Ok(specs)
    }

    fn http_specs(&self, version: http::Version, counts: Vec<usize>) -> Vec<Workload> {
        let runtimes = if self.runtimes.is_empty() { &[1, 2][..] } else { &self.runtimes };
        let of =
            |connections| runtimes.iter().map(move |&runtimes| http::Spec { version, connections, runtimes });
        counts.into_iter().flat_map(of).map(Workload::Http).collect()
    }

    fn crr_specs(&self) -> Result<Vec<crr::Spec>, UsageError> {
        at_most("--threads", self.threads, crr::CLIENTS_MAX)?;
        let clients = if self.clients.is_empty() { vec![1] } else { self.clients.clone() };
        clients
            .into_iter()
            .map(|clients| {
                at_most("--clients", Some(clients), crr::CLIENTS_MAX)?;
                let acceptors = self.threads.unwrap_or_else(|| default_acceptors(clients));
                let size = self.size.unwrap_or(1);
                Ok(crr::Spec { clients, acceptors, size, response: size })
            })
            .collect()
    }
}

fn counts(given: &[usize], default: usize, most: usize, name: Name) -> Result<Vec<usize>, UsageError> {
    match given.iter().find(|&&count| count > most) {
        Some(count) => Err(UsageError(format!(
            "--connections {count} is too many for {}; use at most {most}",
            name.as_str()
        ))),
        None if given.is_empty() => Ok(vec![default]),
        None => Ok(given.to_vec()),
    }
}

fn at_most(flag: &str, value: Option<usize>, most: usize) -> Result<(), UsageError> {
    match value {
        Some(value) if value > most => {
            Err(UsageError(format!("{flag} {value} is too many; use at most {most}")))
        }
        Some(_) | None => Ok(()),
    }
}

fn one_core() -> bool {
    usable_cores().is_ok_and(|cores| cores.len() == 1)
}

/// Experiments with rows whose frames cross an interface.
const FRAMED: [&str; 3] = ["input", "gro", "rxfree"];
/// Threads a side of rr with several connections, unless said otherwise.
const RR_THREADS: usize = 2;

#[cfg(test)]
mod tests;
