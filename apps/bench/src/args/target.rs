//! What `sockeye bench` measures, by name.
//!
//! Does not depend on the other options. Tests: `tests.rs`; `tests/bench/usage.rs`.

use std::sync::LazyLock;

use clap::ValueEnum;
use clap::builder::PossibleValue;

use crate::experiment::table::EXPERIMENTS;
use crate::workloads::Name;

/// Names of things to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// One workload, Sockeye beside the kernel.
    Workload(Name),
    /// The experiment of this index.
    Experiment(usize),
    /// All experiments.
    All,
    /// The prediction of all experiments for more cores.
    Scale,
    /// The kernel on the other side of a TUN device.
    Tun,
    /// A hostile peer's segments, beside a good one's.
    Hostile,
    /// UDP beside the kernel's.
    Udp,
    /// Patterns of traffic, drawn from a seed.
    Patterns,
    /// The simulator, beside turmoil.
    Sim,
}

impl ValueEnum for Target {
    fn value_variants<'a>() -> &'a [Self] {
        static ALL: LazyLock<Vec<Target>> = LazyLock::new(|| {
            let workloads = Name::value_variants().iter().map(|name| Target::Workload(*name));
            let experiments = (0..EXPERIMENTS.len()).map(Target::Experiment);
            workloads
                .chain(experiments)
                .chain([
                    Target::All,
                    Target::Scale,
                    Target::Tun,
                    Target::Hostile,
                    Target::Udp,
                    Target::Patterns,
                    Target::Sim,
                ])
                .collect()
        });
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(match self {
            Target::Workload(name) => name.to_possible_value()?,
            Target::Experiment(index) => {
                PossibleValue::new(EXPERIMENTS[*index].name).help(EXPERIMENTS[*index].about)
            }
            Target::All => PossibleValue::new("all").help("All experiments, and the prediction"),
            Target::Scale => PossibleValue::new("scale")
                .help("Predict what the settings of each experiment would do on 1 to 128 cores"),
            Target::Hostile => PossibleValue::new("hostile")
                .help("Cost of a hostile peer's segments, beside those of an ordinary peer"),
            Target::Udp => PossibleValue::new("udp")
                .help("UDP back and forth, in one direction, cut from large buffers, from many senders"),
            Target::Patterns => PossibleValue::new("patterns")
                .help("Patterns of traffic, drawn from a seed: which are slower than the kernel"),
            Target::Sim => PossibleValue::new("sim")
                .help("The simulator's speed beside turmoil's, for the same programs"),
            Target::Tun => PossibleValue::new("tun").help(
                "The kernel's TCP through a TUN device, beside a trivial end and a veth pair (needs root)",
            ),
        })
    }
}
