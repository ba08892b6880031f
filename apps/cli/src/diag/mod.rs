//! `sockeye ss`, `nstat` and `why`: looking at running stacks from outside.
//!
//! Each asks all programs of this user that show a stack (`sockeye_diag`) and prints. Does not depend on stacks
//! themselves: only fields of reports are shown. Invariant: a program that does not answer is reported on standard
//! error and makes the exit code 1; the others are shown all the same.
//!
//! Tests: at the ends of the files; against a running stack in `tests/cli/tun.rs`.

mod filter;
mod nstat;
mod ss;
mod why;

use std::io;
use std::process::ExitCode;

pub use nstat::{NstatArgs, nstat};
use sockeye_diag::Report;
pub use ss::{SsArgs, ss};
pub use why::{WhyArgs, why};

/// The reports of all programs, and the exit code.
fn reports() -> io::Result<(Vec<Report>, ExitCode)> {
    let (reports, unreachable) = sockeye_diag::reports()?;
    for program in &unreachable {
        eprintln!("no answer from {}: {}", program.path.display(), program.error);
    }
    if reports.is_empty() && unreachable.is_empty() {
        eprintln!("no program of this user shows a stack in {}", sockeye_diag::folder().display());
    }
    let code = if unreachable.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    Ok((reports, code))
}

/// How a stack is called where there are several.
fn title(report: &Report) -> String {
    format!("{} {}/{}", report.name, report.program, report.pid)
}
