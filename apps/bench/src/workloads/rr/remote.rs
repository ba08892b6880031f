//! `rr` with its server side in a second process.
//!
//! Purpose: ten thousand connections have twenty thousand ends, which is more than one process may
//! have descriptors. The clients stay here and the servers run in a helper process, both with the
//! code of [`polled`]; the helper's CPU time is added to ours.
//!
//! Does not depend on Sockeye, whose connections are not descriptors: the helper is always the kernel's side.
//!
//! Invariants: the helper accepts all connections before it says so, and ends with its parent (see
//! [`child`]).
//!
//! Tests: `tests/bench`.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::process;
use std::thread;
use std::time::Duration;

use clap::Args;
use sockeye_shared::cpu::process_cpu;

use crate::child::{self, Child};
use crate::meter::{Meter, Reading, Timing, Window};
use crate::pin::{Pin, Placement};
use crate::provider::{Listener, Provider};
use crate::providers::kernel::Kernel;
use crate::workloads::rr::{Spec, polled};

/// The hidden subcommand that runs [`serve`].
pub const SUBCOMMAND: &str = "__rr-server";

/// Its arguments.
#[derive(Args, Debug)]
pub struct ServeArgs {
    #[arg(long)]
    connections: usize,
    #[arg(long)]
    threads: usize,
    #[arg(long)]
    size: usize,
    #[arg(long)]
    nodelay: bool,
    #[arg(long, value_enum)]
    pin: Pin,
}

/// Transactions of all connections in the window, the servers in a helper process.
pub fn sample<P: Provider>(
    provider: &P,
    spec: &Spec,
    placement: &Placement,
    timing: Timing,
) -> io::Result<Window> {
    let mut helper = Child::start(&arguments(spec, placement.pin()))?;
    let port = u16::try_from(helper.answer_number()?)
        .map_err(|_| io::Error::other("the helper process has no port"))?;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let clients: Vec<P::Stream> =
        (0..spec.connections).map(|_| provider.connect(address)).collect::<io::Result<_>>()?;
    let sides = polled::shares(provider, clients, spec)?;
    let accepted = helper.answer_number()?;
    if accepted != spec.connections as u64 {
        return Err(io::Error::other("the helper process did not accept every connection"));
    }
    let meter = Meter::new(sides.len(), sides.len());
    let window = thread::scope(|scope| {
        for (index, side) in sides.into_iter().enumerate() {
            let meter = &meter;
            scope.spawn(move || {
                meter.guard(|| {
                    placement.client(index)?;
                    side.ask_until_stopped(meter, index)
                });
            });
        }
        meter.observe(timing, || {
            helper.request(CPU)?;
            let mut reading = Reading::now(provider.counters());
            reading.cpu += Duration::from_nanos(helper.answer_number()?);
            Ok(reading)
        })
    });
    meter.into_result()?;
    window
}

/// The helper process: accepts, says so, serves, and answers [`CPU`] with its CPU time in nanoseconds.
pub fn serve(args: &ServeArgs) -> io::Result<()> {
    let requests = child::requests()?;
    let spec = Spec {
        connections: args.connections,
        threads: Some(args.threads),
        size: args.size,
        nodelay: args.nodelay,
    };
    let placement = Placement::new(args.pin)?;
    let kernel = Kernel::new()?;
    let listener = kernel.listen()?;
    child::reply(Listener::local_addr(&listener)?.port())?;
    let mut servers = Vec::with_capacity(spec.connections);
    for _ in 0..spec.connections {
        servers.push(Listener::accept(&listener)?);
    }
    let sides = polled::shares(&kernel, servers, &spec)?;
    child::reply(spec.connections)?;
    let meter = Meter::new(0, 0);
    thread::scope(|scope| {
        for (index, side) in sides.into_iter().enumerate() {
            let (meter, placement) = (&meter, &placement);
            scope.spawn(move || {
                let served = placement.server(index).and_then(|()| side.answer_until_stopped(meter));
                if let Err(error) = served {
                    eprintln!("error: a server thread failed: {error}");
                    process::exit(1);
                }
            });
        }
        for _ in requests {
            let nanos = process_cpu().as_nanos();
            if child::reply(nanos).is_err() {
                break;
            }
        }
    });
    Ok(())
}

fn arguments(spec: &Spec, pin: Pin) -> Vec<String> {
    let mut arguments = vec![
        SUBCOMMAND.to_owned(),
        format!("--connections={}", spec.connections),
        format!("--threads={}", spec.threads_a_side()),
        format!("--size={}", spec.size),
        format!("--pin={}", pin.name()),
    ];
    if spec.nodelay {
        arguments.push("--nodelay".to_owned());
    }
    arguments
}

const CPU: &str = "cpu";
