//! `sockeye nstat`: counters of running stacks, by the names of the kernel's MIB.
//!
//! Values count from the beginning of a stack, as `nstat -a` shows them. Does not depend on the counters' meaning.
//! Tests: below.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Args;
use sockeye_diag::{Counter, Report};

/// Options of the output.
#[derive(Args, Debug)]
pub struct NstatArgs {
    /// Show counters that are zero, too
    #[arg(short, long)]
    zeros: bool,

    /// Count from the beginning of a stack. It always does; for the habit of nstat(8)
    #[arg(short = 'a', long)]
    ignore: bool,

    /// Print one JSON object a line for each stack
    #[arg(short, long)]
    json: bool,

    /// Show only counters whose name contains this text; case does not matter
    filter: Option<String>,
}

/// Prints the counters of every stack.
///
/// # Errors
/// If no program may be asked, or standard output is closed.
pub fn nstat(args: &NstatArgs) -> io::Result<ExitCode> {
    let (reports, code) = super::reports()?;
    let mut out = io::stdout().lock();
    for report in &reports {
        let counters = chosen(args, report);
        if args.json {
            let values = counters.iter().map(|counter| (shown(counter).to_owned(), counter.value.into()));
            let values: serde_json::Map<_, _> = values.collect();
            let line = serde_json::json!({ "pid": report.pid, "stack": report.name, "counters": values });
            writeln!(out, "{line}")?;
        } else {
            writeln!(out, "#{}, {:.0} s", super::title(report), report.uptime_s)?;
            for counter in counters {
                writeln!(out, "{:<40}{}", shown(counter), counter.value)?;
            }
        }
    }
    Ok(code)
}

/// The MIB's name, or ours where it has none.
fn shown(counter: &Counter) -> &str {
    if counter.mib.is_empty() { &counter.name } else { &counter.mib }
}

/// The counters to show of a stack: the MIB's counters first, each part in the order of the stack.
fn chosen<'r>(args: &NstatArgs, report: &'r Report) -> Vec<&'r Counter> {
    let wanted = args.filter.as_ref().map(|text| text.to_lowercase());
    let is_wanted = |counter: &&Counter| {
        let names = [shown(counter), &counter.name];
        wanted.as_ref().is_none_or(|text| names.iter().any(|name| name.to_lowercase().contains(text)))
    };
    let is_shown = |counter: &&Counter| args.zeros || counter.value > 0;
    let mut counters: Vec<&Counter> = report.counters.iter().filter(is_wanted).filter(is_shown).collect();
    counters.sort_by_key(|counter| counter.mib.is_empty());
    counters
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mib_names_are_listed_first_zeros_only_on_request_and_either_name_matches() {
        let counter = |name: &str, mib: &str, value| Counter { name: name.into(), mib: mib.into(), value };
        let counters =
            vec![counter("sleeps", "", 3), counter("segments_in", "TcpInSegs", 5), counter("x", "TcpX", 0)];
        let report = Report { counters, ..Report::default() };
        let names = |zeros, filter: Option<&str>| {
            let args = NstatArgs { zeros, ignore: false, json: false, filter: filter.map(str::to_owned) };
            chosen(&args, &report).into_iter().map(|c| shown(c).to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(names(false, None), ["TcpInSegs", "sleeps"]);
        assert_eq!(names(true, None), ["TcpInSegs", "TcpX", "sleeps"]);
        assert_eq!(names(true, Some("tcpin")), ["TcpInSegs"]);
        assert_eq!(names(true, Some("segments")), ["TcpInSegs"]);
    }
}
