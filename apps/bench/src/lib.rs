//! `sockeye bench`: Sockeye beside the kernel.
//!
//! Purpose: the command from its arguments to its exit code. [`args`] makes a [`plan`], [`run`] carries it out over two
//! [`provider`]s, [`report`] writes the results. [`experiment`]s compare settings of one switch; [`tun`] has the kernel
//! on the other side of a device, [`hostile`] a hostile peer; [`udp`] is about datagrams; [`patterns`] draws traffic
//! from a seed; [`sim`] is the simulator beside turmoil; [`against`] compares this build with another one. [`record`] keeps the frames of providers that have any.
//!
//! Does not depend on the inside of either stack.
//!
//! Tests: in the modules; `tests/bench` for the whole.
#![forbid(unsafe_code)]
// The library is for the program alone, and its documentation is built with private items.
#![allow(rustdoc::private_intra_doc_links)]

use std::process::ExitCode;

use sockeye_shared::end::{CommandError, UsageError};
use sockeye_shared::limit;
use sockeye_shared::progress::Progress;

mod against;
pub mod args;
mod built;
pub mod child;
pub mod experiment;
pub mod gateway;
mod hostile;
mod machine;
pub mod meter;
mod page;
mod patterns;
mod pin;
mod plan;
mod process;
mod provider;
mod providers;
mod record;
mod report;
mod run;
mod sim;
mod stats;
mod tun;
mod udp;
mod watchdog;
pub mod workloads;

pub use args::BenchArgs;

/// Measures. Blocks until everything is done; the exit code shows whether all of it succeeded.
pub fn bench(args: &BenchArgs) -> Result<ExitCode, CommandError> {
    if cfg!(feature = "count") {
        let message = "this build counts hand-offs, so its times mean nothing: run sockeye bench";
        return Err(CommandError::Usage(UsageError(message.to_owned())));
    }
    args.check_only_flags().map_err(CommandError::Usage)?;
    // A refusal leaves fewer pairs of connections, which `providers::kernel::pairs_max` reads.
    limit::raise_descriptors();
    args.check_record().map_err(CommandError::Usage)?;
    record::to(args.pcap.as_deref());
    if let Some(other) = &args.against {
        return against::bench(args, other);
    }
    if args.workload == Some(args::Target::Tun) {
        return tun::bench(args);
    }
    if args.workload == Some(args::Target::Hostile) {
        return hostile::bench(args);
    }
    if args.workload == Some(args::Target::Udp) {
        return udp::bench(args);
    }
    if args.workload == Some(args::Target::Patterns) {
        return patterns::bench(args);
    }
    if args.workload == Some(args::Target::Sim) {
        return sim::bench(args);
    }
    if let Some(target) = args.experiments().map_err(CommandError::Usage)? {
        return experiment::bench(args, target);
    }
    let plan = args.plan().map_err(CommandError::Usage)?;
    plan.prepare()?;
    let machine = machine::Machine::read()?;
    let mut report = report::Report::new(machine, args)?;
    report.begin(&plan)?;
    let progress = Progress::of(plan.samples(), plan.cases.len());
    let mut failed = false;
    for (index, case) in plan.cases.iter().enumerate() {
        progress.step(index, case.workload.name().as_str(), &case.label());
        if case.workload.name() == workloads::Name::Crr && !machine::has_time_wait_room() {
            progress.suspend(|| eprintln!("{TIME_WAIT_WARNING}"));
        }
        let outcome = run::run_case(case, &plan.sides, || progress.sample());
        for failure in &outcome.failures {
            failed = true;
            let (side, error) = (failure.side.name(), &failure.error);
            let name = case.workload.name().as_str();
            progress.suspend(|| eprintln!("error: {name} ({}) on {side}: {error}", case.label()));
        }
        progress.suspend(|| report.add(case, &outcome))?;
    }
    progress.end();
    report.end()?;
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

const TIME_WAIT_WARNING: &str = "\
warning: the kernel's table of TIME-WAIT states is nearly full from earlier runs; it closes connections \
without them now, which makes its side of crr faster than it is; repeat after a minute";
