//! The runner: every script of a folder, in each version of IP, several at a time, with a table and JSON as the result.
//!
//! It works in a copy of the folder (`folder.rs`), so that scripts find the stand-ins for what would change this host. A run of a script is
//! `script.rs`, the result `report.rs`. Tests: below and in these files.

mod folder;
mod report;
mod script;

use std::io;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;

use clap::{Parser, ValueEnum};

use folder::Folder;
use report::Outcome;
use script::{Job, Setup};

/// Run packetdrill's scripts against a Sockeye stack
#[derive(Parser, Debug)]
#[command(name = "sockeye-packetdrill", version)]
struct Args {
    /// The packetdrill program
    #[arg(long, value_name = "FILE")]
    packetdrill: PathBuf,
    /// The plug-in; without it, the one beside this program
    #[arg(long, value_name = "FILE")]
    plugin: Option<PathBuf>,
    /// Against the kernel, in a network namespace of its own for each script; needs root
    #[arg(long, conflicts_with = "plugin")]
    kernel: bool,
    /// Versions of IP
    #[arg(long, value_enum, value_delimiter = ',', default_value = "ipv4,ipv6,mapped")]
    ip: Vec<Ip>,
    /// Further flags of the plug-in: KEY=VALUE,...
    #[arg(long, default_value = "")]
    flags: String,
    /// Seconds that a script may take
    #[arg(long, default_value_t = 60)]
    timeout: u64,
    /// Scripts at a time; without it, two for each processor
    #[arg(long)]
    jobs: Option<NonZeroUsize>,
    /// Runs of a script that fails, before it counts as failed
    #[arg(long, default_value = "1")]
    attempts: NonZeroUsize,
    /// Write each script's result to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Print packetdrill's own output of each failure
    #[arg(long, short)]
    verbose: bool,
    /// The collection: the folder in which the scripts' own paths begin
    folder: PathBuf,
    /// Scripts or folders of it; without any, all
    only: Vec<PathBuf>,
}

/// How a script's packets are addressed.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Ip {
    /// Sockets and packets of IPv4
    Ipv4,
    /// Of IPv6
    Ipv6,
    /// Sockets of IPv6, packets of IPv4
    Mapped,
}

/// Runs the program.
pub fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("sockeye-packetdrill: {message}");
            ExitCode::from(2)
        }
    }
}

/// Whether all pass.
fn run(args: &Args) -> Result<bool, String> {
    let absolute = |path: &Path| path.canonicalize().map_err(|error| format!("{}: {error}", path.display()));
    let plugin = match (&args.plugin, args.kernel) {
        (_, true) => None,
        (Some(plugin), false) => Some(absolute(plugin)?),
        (None, false) => Some(absolute(&beside_us()?)?),
    };
    let setup = Setup {
        packetdrill: absolute(&args.packetdrill)?,
        plugin,
        flags: args.flags.clone(),
        time_max: Duration::from_secs(args.timeout),
    };
    let folder = Folder::copy_of(&absolute(&args.folder)?, setup.plugin.is_some())
        .map_err(|error| format!("copying {}: {error}", args.folder.display()))?;
    let scripts =
        folder.scripts(&args.only).map_err(|error| format!("{}: {error}", args.folder.display()))?;
    let mut jobs = Vec::new();
    for ip in &args.ip {
        jobs.extend(
            scripts.iter().filter(|name| suits(name, *ip)).map(|name| Job { name: name.clone(), ip: *ip }),
        );
    }
    if jobs.is_empty() {
        return Err("there is no script".to_owned());
    }
    let processors = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let threads = args.jobs.map_or(2 * processors, NonZeroUsize::get);
    let outcomes = in_parallel(&jobs, threads, |job| {
        let mut again = (1..args.attempts.get()).map(|_| script::run(&setup, &folder, job));
        let first = script::run(&setup, &folder, job);
        if first.passed { first } else { again.find(|outcome| outcome.passed).unwrap_or(first) }
    });
    match report::print(&outcomes, args.verbose, &mut io::stdout().lock()) {
        // Who reads has seen enough.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => return Err(error.to_string()),
        _ => {}
    }
    if let Some(path) = &args.json {
        report::write(&outcomes, path).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(outcomes.iter().all(|outcome| outcome.passed))
}

/// The plug-in that was built with this program.
fn beside_us() -> Result<PathBuf, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    Ok(program.with_file_name("libsockeye_packetdrill_plugin.so"))
}

/// By the names that collections use: `-v4.pkt` is a script of IPv4 alone, `v6.pkt` of IPv6.
fn suits(script: &Path, ip: Ip) -> bool {
    let name = script.to_string_lossy();
    match ip {
        Ip::Ipv4 | Ip::Mapped => !name.ends_with("v6.pkt"),
        Ip::Ipv6 => !name.ends_with("v4.pkt"),
    }
}

/// Does all jobs, and has the results in their order.
fn in_parallel(jobs: &[Job], threads: usize, run: impl Fn(&Job) -> Outcome + Sync) -> Vec<Outcome> {
    let next = Mutex::new((0, Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..threads.min(jobs.len()) {
            let _ = scope.spawn(|| {
                loop {
                    let index = {
                        let mut next = next.lock().unwrap_or_else(PoisonError::into_inner);
                        next.0 += 1;
                        next.0 - 1
                    };
                    let Some(job) = jobs.get(index) else { break };
                    let outcome = run(job);
                    next.lock().unwrap_or_else(PoisonError::into_inner).1.push((index, outcome));
                }
            });
        }
    });
    let (_, mut outcomes) = next.into_inner().unwrap_or_else(PoisonError::into_inner);
    outcomes.sort_by_key(|(index, _)| *index);
    outcomes.into_iter().map(|(_, outcome)| outcome).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_valid() {
        use clap::CommandFactory;
        Args::command().debug_assert();
    }

    #[test]
    fn scripts_of_one_version_run_in_that_version() {
        let suits = |name: &str, ip| suits(Path::new(name), ip);
        assert!(suits("a/b.pkt", Ip::Ipv4) && suits("a/b.pkt", Ip::Ipv6));
        assert!(suits("b-v4.pkt", Ip::Mapped) && !suits("b-v4.pkt", Ip::Ipv6));
        assert!(suits("b-v6.pkt", Ip::Ipv6) && !suits("b-v6.pkt", Ip::Ipv4));
    }

    #[test]
    fn results_come_in_the_order_of_the_jobs() {
        let jobs: Vec<Job> = (0..20).map(|n| Job { name: format!("{n}.pkt").into(), ip: Ip::Ipv4 }).collect();
        let outcomes = in_parallel(&jobs, 4, |job| Outcome {
            script: job.name.display().to_string(),
            ip: job.ip,
            passed: true,
            seconds: 0.0,
            output: String::new(),
        });
        assert!(
            outcomes.iter().zip(&jobs).all(|(outcome, job)| outcome.script == job.name.display().to_string())
        );
    }
}
