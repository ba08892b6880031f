//! The experiments.
//!
//! Purpose: one entry for each; each entry is on the command line, in `bench all`, in the report and in the
//! prediction.
//!
//! Does not depend on how they are run.
//!
//! Tests: below, and `plan.rs`.

use sockeye::experiments::{Input, Rcvd, RxFree, UnixLocking, Wake};

use crate::experiment::model::Experiment;
use crate::experiment::{figures, gro, input, rcvd, rxfree, unix, wake};

/// All of them, in the order of the techniques.
pub static EXPERIMENTS: &[Experiment] = &[
    Experiment {
        name: "rcvd",
        title: "How a reader tells of new space",
        about: "Settings of rcvd: 32 bulk streams, a message to the owner at each receive or not",
        key: Rcvd::KEY,
        settings: Rcvd::NAMES,
        flags: &["--connections", "--size"],
        rows: rcvd::rows,
        one_lock: &[],
        lines: rcvd::LINES,
        figure: &figures::RCVD,
    },
    Experiment {
        name: "input",
        title: "Parallel TCP input",
        about: "Settings of input: 1 and 10 streams through 1, 2 and 4 input threads",
        key: Input::KEY,
        settings: Input::NAMES,
        flags: &["--connections", "--threads", "--dev"],
        rows: input::rows,
        one_lock: &["exclusive", "exclusive+lock"],
        lines: input::LINES,
        figure: &figures::INPUT,
    },
    Experiment {
        name: "gro",
        title: "Segments taken in as one",
        about: "Settings of gro: 1 and 10 streams in packets of 1500",
        key: "gro",
        settings: &["off", "on"],
        flags: &["--connections", "--threads", "--dev"],
        rows: gro::rows,
        one_lock: &[],
        lines: gro::LINES,
        figure: &figures::GRO,
    },
    Experiment {
        name: "rxfree",
        title: "Where receive buffers are freed",
        about: "Settings of rx_free: 10,000 flows of one byte, and bulk data on loopback",
        key: RxFree::KEY,
        settings: RxFree::NAMES,
        flags: &["--connections", "--threads", "--size"],
        rows: rxfree::rows,
        one_lock: &[],
        lines: rxfree::LINES,
        figure: &figures::RX_FREE,
    },
    Experiment {
        name: "wake",
        title: "Which threads are woken on the way out",
        about: "Settings of wake: connect, request, response, close with 1, 8 and 64 clients",
        key: Wake::KEY,
        settings: Wake::NAMES,
        flags: &["--clients", "--size"],
        rows: wake::rows,
        one_lock: &[],
        lines: wake::LINES,
        figure: &figures::WAKE,
    },
    Experiment {
        name: "unix",
        title: "The locks of UNIX-domain sockets",
        about: "Settings of unix_locking: unix1 with 1 to 96 tasks, ping-pong, bulk, rights, churn, many senders",
        key: UnixLocking::KEY,
        settings: UnixLocking::NAMES,
        flags: &["--connections", "--size"],
        rows: unix::rows,
        one_lock: &["global"],
        lines: unix::LINES,
        figure: &figures::UNIX,
    },
];

#[cfg(test)]
mod tests {
    use sockeye::Config;

    use super::*;

    #[test]
    fn each_experiment_names_a_switch_and_its_settings_and_has_a_figure() {
        for experiment in EXPERIMENTS {
            for setting in experiment.settings {
                Config::default().set(experiment.key, setting).unwrap();
            }
            assert!(experiment.settings.len() >= 2 && !experiment.figure.found.is_empty());
            assert!(!experiment.lines.is_empty());
            assert!(experiment.one_lock.iter().all(|name| experiment.settings.contains(name)));
            for (index, line) in experiment.lines.iter().enumerate() {
                let same = experiment.lines[..index].iter().any(|other| other.name == line.name);
                assert!(!same, "{} twice in {}", line.name, experiment.name);
            }
        }
    }
}
