//! `sockeye iperf3 -c`: the client of an iperf3 test, on a stack of its own behind a device.
//!
//! Purpose: to measure against stock servers as `sockeye tun --serve iperf3` measures against stock clients. The device is
//! that of `sockeye tun`, the protocol that of its service; `args` has the flags, `text` and `json` print the results as
//! iperf3 would.
//!
//! Does not depend on the protocol. Invariant: standard output has the table or the one object of JSON, and nothing
//! else.
//!
//! Tests: `tests/cli/iperf3.rs`, against a stock server.

mod args;
mod json;
mod text;

use std::io::{self, Write};
use std::process::ExitCode;

use sockeye_shared::end::{CommandError, UsageError};
use tokio::signal::unix::{SignalKind, signal};

pub use args::Iperf3Args;

use crate::services::iperf3::client::{self, Measured, Wishes};
use crate::tun::Running;

/// Measures, for as long as that takes.
///
/// # Errors
/// A usage error for a contradiction; the system's. A test without a result is reported, with exit code 1.
pub fn iperf3(args: &Iperf3Args) -> Result<ExitCode, CommandError> {
    let wishes = args.wishes().map_err(|error| CommandError::Usage(UsageError(error)))?;
    let running = Running::of(&args.device)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let mut json = json::Json::new(&wishes);
    let mut text = text::Text::new(&wishes);
    let show: &mut dyn client::Show = if args.json { &mut json } else { &mut text };
    let measured = runtime.block_on(measure(&running, &wishes, show));
    runtime.shutdown_background();
    let code = if measured.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    let mut out = io::stdout().lock();
    match (args.json, measured) {
        (true, measured) => writeln!(out, "{}", json.end(measured))?,
        (false, Ok(measured)) => out.write_all(text.end(&measured).as_bytes())?,
        (false, Err(error)) => eprintln!("error: {}: {error}", wishes.to),
    }
    if let Some(record) = running.recorded() {
        eprintln!("{record}");
    }
    Ok(code)
}

/// Runs the test unless a signal comes first.
async fn measure(running: &Running, wishes: &Wishes, show: &mut dyn client::Show) -> io::Result<Measured> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let test = async {
        running.usable().await;
        client::run(&running.stack, wishes, show).await
    };
    tokio::select! {
        measured = test => measured,
        _ = interrupt.recv() => Err(io::ErrorKind::Interrupted.into()),
        _ = terminate.recv() => Err(io::ErrorKind::Interrupted.into()),
    }
}
