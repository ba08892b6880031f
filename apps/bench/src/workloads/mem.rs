//! `mem`: bytes that an idle connection takes, both ends.
//!
//! Purpose: the memory of connections on which nothing is under way, found by opening many of them in a fresh
//! process and dividing the added memory.
//!
//! * Sockeye: the resident set of one helper process, before and after. The program's own handles
//!   count.
//! * Kernel: the machine's slab memory, before and after, over as many helper processes as the limit of
//!   descriptors makes necessary. Descriptor tables and page tables, which are not slab, do not count;
//!   the growth by `MemAvailable`, where they do, is among the counters. No epoll is involved.
//!
//! Does not use the stack's own accounting; the figures are the machine's.
//!
//! Invariants: helpers are started, and the first reading taken, before any connection is made. They
//! end with this process (see [`child`]); connections are reset at their end, so that the TIME-WAIT
//! states of one sample are not freed during the next.
//!
//! Tests: `tests/bench`.

use std::fs;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;

use crate::child::{self, Child};
use crate::machine::meminfo_kib;
use crate::plan::Spin;
use crate::provider::{Counters, Provider, Side, Stream};
use crate::providers::kernel::Kernel;
use crate::providers::sockeye::Sockeye;
use crate::workloads::{Pairs, Sample, pairs_with};

/// Its parameters.
#[derive(Clone, Debug)]
pub struct Spec {
    /// Open connections.
    pub connections: usize,
    /// Whether each carries one byte each way before it is left alone.
    pub touch: bool,
}

/// The hidden subcommand that runs [`hold`].
pub const SUBCOMMAND: &str = "__hold";

/// Its arguments.
#[derive(Args, Debug)]
pub struct HoldArgs {
    #[arg(long, value_enum)]
    on: Side,
    #[arg(long)]
    connections: usize,
    #[arg(long)]
    touch: bool,
}

/// Bytes a connection. Blocks for as long as opening them takes, and for memory to settle.
pub fn sample(side: Side, spec: &Spec) -> io::Result<Sample> {
    let (bytes, counters) = match side {
        Side::Sockeye => resident_growth(spec)?,
        Side::Kernel => slab_growth(spec)?,
    };
    Ok(Sample { value: bytes as f64 / spec.connections as f64, cpu: None, counters })
}

fn resident_growth(spec: &Spec) -> io::Result<(u64, Counters)> {
    let mut helper = start(Side::Sockeye, spec.connections, spec.touch)?;
    let before = helper.answer_number()?;
    helper.request(GO)?;
    let after = helper.answer_number()?;
    Ok((after.saturating_sub(before), Counters::new()))
}

fn slab_growth(spec: &Spec) -> io::Result<(u64, Counters)> {
    let per_process = Kernel::new()?.pairs_max().clamp(1, PAIRS_PER_LISTENER);
    let mut helpers = Vec::new();
    let mut left = spec.connections;
    while left > 0 {
        let count = left.min(per_process);
        helpers.push(start(Side::Kernel, count, spec.touch)?);
        left -= count;
    }
    for helper in &mut helpers {
        helper.answer_number()?;
    }
    let (slab_before, available_before) = settled_memory()?;
    for helper in &mut helpers {
        helper.request(GO)?;
        helper.answer_number()?;
    }
    let (slab_after, available_after) = settled_memory()?;
    let counters = Counters::from([
        ("processes".to_owned(), helpers.len() as u64),
        ("mem_available_taken_bytes".to_owned(), available_before.saturating_sub(available_after)),
    ]);
    Ok((slab_after.saturating_sub(slab_before), counters))
}

fn start(side: Side, connections: usize, touch: bool) -> io::Result<Child> {
    let mut arguments =
        vec![SUBCOMMAND.to_owned(), format!("--on={}", side.name()), format!("--connections={connections}")];
    if touch {
        arguments.push("--touch".to_owned());
    }
    Child::start(&arguments)
}

/// The helper process: says its resident set, opens connections when told to, says it again and keeps
/// them until its parent closes its input.
pub fn hold(args: &HoldArgs) -> io::Result<()> {
    match args.on {
        Side::Kernel => hold_with(&Kernel::new()?, args),
        Side::Sockeye => hold_with(&Sockeye::new(Spin::On)?, args),
    }
}

fn hold_with<P: Provider>(provider: &P, args: &HoldArgs) -> io::Result<()> {
    let requests = child::requests()?;
    // The first connections pay for the shared parts: code pages, tables, pools.
    drop(open(provider, &provider.listen()?, args.connections.min(FIRST_PAIRS), args.touch)?);
    child::reply(resident_bytes()?)?;
    let closed = || io::Error::from(io::ErrorKind::UnexpectedEof);
    requests.recv().map_err(|_| closed())?;
    let mut held = Vec::with_capacity(args.connections.div_ceil(PAIRS_PER_LISTENER));
    let mut left = args.connections;
    while left > 0 {
        // One listener's port can be reached from at most as many connections as there are
        // ephemeral ports.
        let count = left.min(PAIRS_PER_LISTENER);
        let listener = provider.listen_anew()?;
        held.push((open(provider, &listener, count, args.touch)?, listener));
        left -= count;
    }
    child::reply(resident_bytes()?)?;
    // Ends with the process, when the parent closes the requests.
    for _ in requests {}
    drop(held);
    Ok(())
}

fn open<P: Provider>(
    provider: &P,
    listener: &P::Listener,
    count: usize,
    touch: bool,
) -> io::Result<Pairs<P::Stream>> {
    let pairs = pairs_with(provider, listener, count)?;
    for (client, server) in pairs.clients.iter().zip(&pairs.servers) {
        client.discard_on_close()?;
        server.discard_on_close()?;
        if touch {
            client.write_all(&[1])?;
            server.read_exact(&mut [0])?;
            server.write_all(&[2])?;
            client.read_exact(&mut [0])?;
        }
    }
    Ok(pairs)
}

/// This process's resident set, in bytes.
fn resident_bytes() -> io::Result<u64> {
    let statm = fs::read_to_string("/proc/self/statm")?;
    let pages: Option<u64> = statm.split_whitespace().nth(1).and_then(|field| field.parse().ok());
    let pages = pages.ok_or_else(|| io::Error::other("/proc/self/statm has no resident pages"))?;
    Ok(pages * rustix::param::page_size() as u64)
}

/// Slab and available memory in bytes, once slab has stopped moving or after [`SETTLE_MAX`]: the kernel frees
/// the memory of closed sockets some time later.
fn settled_memory() -> io::Result<(u64, u64)> {
    let deadline = Instant::now() + SETTLE_MAX;
    let mut slab = meminfo_bytes("Slab")?;
    loop {
        thread::sleep(SETTLE_STEP);
        let now = meminfo_bytes("Slab")?;
        if now.abs_diff(slab) <= SETTLED_BYTES || Instant::now() >= deadline {
            return Ok((now, meminfo_bytes("MemAvailable")?));
        }
        slab = now;
    }
}

fn meminfo_bytes(name: &str) -> io::Result<u64> {
    meminfo_kib(name)
        .map(|kib| kib * 1024)
        .ok_or_else(|| io::Error::other(format!("/proc/meminfo has no {name}")))
}

/// Connections at most.
pub const CONNECTIONS_MAX: usize = 1_000_000;

const GO: &str = "go";
const PAIRS_PER_LISTENER: usize = 20_000;
const FIRST_PAIRS: usize = 16;
const SETTLE_STEP: Duration = Duration::from_millis(200);
const SETTLE_MAX: Duration = Duration::from_secs(5);
const SETTLED_BYTES: u64 = 256 * 1024;
