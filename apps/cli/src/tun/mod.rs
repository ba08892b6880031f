//! `sockeye tun`: a stack on a TUN or TAP device, with servers to try it out.
//!
//! Purpose: everything that it takes to reach Sockeye from the kernel with one command: the device, the kernel's address on it, the stack,
//! its services, the folder where `sockeye ss` finds it. `args` has the options, `running` makes the stack, `text` prints commands to try.
//!
//! Does not depend on how a service works.
//!
//! Invariants: it ends by a signal, by `--seconds` or by the device's going away, and in this order: services, the stack's
//! report to `sockeye ss`, the stack and its device. The device is not persistent, so even a kill leaves nothing behind.
//!
//! Tests: `args.rs`, `text.rs`; `tests/cli/tun.rs` with stock clients.

mod args;
mod running;
mod text;

use std::io::{self, IsTerminal, Write};
use std::net::IpAddr;
use std::process::ExitCode;
use std::time::Duration;

use indicatif::ProgressBar;
use sockeye::netif::Netif;
use sockeye_shared::end::CommandError;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;

pub use args::{DeviceArgs, TunArgs};
pub use running::Running;

use crate::services;

/// Between two looks at the device, and lines on a terminal.
const TICK: Duration = Duration::from_secs(1);
/// For services to end.
const SERVICES_TIMEOUT: Duration = Duration::from_secs(1);

/// Runs until it is stopped.
///
/// # Errors
/// A usage error for a contradiction; the system's, among them `PermissionDenied` with a remedy.
pub fn tun(args: &TunArgs) -> Result<ExitCode, CommandError> {
    let running = Running::of(&args.device)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let served = runtime.block_on(serve(args, &running));
    runtime.shutdown_timeout(SERVICES_TIMEOUT);
    let end = served?;
    summary(&running, end)?;
    Ok(match end {
        End::Asked => ExitCode::SUCCESS,
        End::DeviceGone => ExitCode::FAILURE,
    })
}

/// Why it ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Asked,
    DeviceGone,
}

/// Traffic, at the end.
fn summary(running: &Running, end: End) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if end == End::DeviceGone {
        writeln!(out, "the device has gone away")?;
    }
    writeln!(out, "{}", text::total(&running.tun.counts()))?;
    running.recorded().map_or(Ok(()), |record| writeln!(out, "{record}"))
}

/// Serves until the end. Blocks no other task: it is the runtime's main task.
async fn serve(args: &TunArgs, running: &Running) -> io::Result<End> {
    let addrs: Vec<IpAddr> = args.device.addr.iter().map(|prefix| prefix.addr()).collect();
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let mut tasks = JoinSet::new();
    services::start(&running.stack, &addrs, &args.serve, args.idle_max(), &mut tasks).await?;
    greet(args, running, &addrs)?;
    let bar = if io::stderr().is_terminal() { ProgressBar::new_spinner() } else { ProgressBar::hidden() };
    let mut ticks = tokio::time::interval(TICK);
    let over = async {
        match args.seconds {
            Some(seconds) => tokio::time::sleep(Duration::from_secs_f64(seconds)).await,
            None => std::future::pending().await,
        }
    };
    tokio::pin!(over);
    let mut before = running.tun.counts();
    let end = loop {
        tokio::select! {
            _ = interrupt.recv() => break End::Asked,
            _ = terminate.recv() => break End::Asked,
            () = &mut over => break End::Asked,
            _ = ticks.tick() => {
                if running.tun.is_down() {
                    break End::DeviceGone;
                }
                let now = running.tun.counts();
                bar.set_message(text::rates(&before, &now, TICK, running.stack.connection_count()));
                before = now;
            }
        }
    };
    bar.finish_and_clear();
    tasks.shutdown().await;
    Ok(end)
}

/// Prints the addresses and commands to try. Flushed, since the program that waits for it may read a pipe.
fn greet(args: &TunArgs, running: &Running, addrs: &[IpAddr]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let name = running.tun.link().name();
    let peers: Vec<String> = running.peers.iter().map(ToString::to_string).collect();
    let own: Vec<String> = args.device.addr.iter().map(ToString::to_string).collect();
    writeln!(out, "{name}: Sockeye at {}", own.join(", "))?;
    if !peers.is_empty() {
        writeln!(out, "{name}: the kernel at {}", peers.join(", "))?;
    }
    writeln!(out, "Try:")?;
    for line in text::suggestions(addrs, &args.serve) {
        writeln!(out, "  {line}")?;
    }
    if args.seconds.is_none() {
        writeln!(out, "Ctrl-C ends it and removes {name}.")?;
    }
    out.flush()
}
