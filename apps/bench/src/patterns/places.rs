//! What patterns run over, and running one.
//!
//! Purpose: the stacks, namespaces and devices, opened once for all patterns; the ends of a pattern on them.
//!
//! Does not depend on the work of an end.
//!
//! Invariants: no packet leaves this process and its network namespaces. Where there are devices, each end is in a namespace or a stack of
//! its own, as on two machines. A run is bounded by the watchdog.
//!
//! Tests: with the command.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use sockeye::netif::{WireConfig, wire};
use sockeye::{Config, Stack};
use sockeye_drivers::Namespace;
use sockeye_drivers::TunConfig;
use sockeye_drivers::testing::unavailable;
use tokio::runtime::Runtime;

use super::draw::{Pattern, Place, Runner};
use super::net::{Blocking, Net, Ours, Sockets, Tasks, Theirs};
use super::play::{self, Outcome, Scene};
use super::runner::{Starter, runtime};
use crate::pin::{Pin, Placement};
use crate::provider::{Counters, Side, difference};
use crate::tun::ends;
use crate::watchdog;

/// All that patterns run over.
pub struct Places {
    loopback: Stack,
    devices: Result<Devices, String>,
}

struct Devices {
    /// The stacks at the ends of a wire: for threads, and without threads for tasks, whose runtimes drive them.
    wires: [[Stack; 2]; 2],
    /// The namespaces at the ends of a veth pair.
    veth: [Namespace; 2],
    /// A stack on a TUN device, and the namespace with the device: for threads.
    tun: (Stack, Namespace),
    /// The same for tasks: a stack without threads, which their runtime drives.
    driven: (Stack, Namespace),
}

/// What a run took.
#[derive(Clone, Debug)]
pub struct Measured {
    /// From the first end's begin to the last one's end.
    pub time: Duration,
    /// The 99th percentile of messages, turns or connections, if it says anything.
    pub p99: Option<Duration>,
    /// What the stacks counted meanwhile; nothing for the kernel.
    pub counters: Counters,
}

impl Places {
    /// Opens everything.
    ///
    /// # Errors
    /// The system's.
    pub fn open() -> io::Result<Self> {
        let devices = match unavailable() {
            Some(reason) => Err(reason),
            None => Ok(Devices::open()?),
        };
        Ok(Self { loopback: Stack::new(Config::default())?, devices })
    }

    /// Why patterns that cross a device cannot run.
    pub fn missing(&self) -> Option<&str> {
        self.devices.as_ref().err().map(String::as_str)
    }

    /// Whether the pattern can run here.
    pub fn has(&self, place: Place) -> bool {
        place == Place::Loopback || self.devices.is_ok()
    }

    /// Runs a pattern on one side. Blocks until it is over.
    ///
    /// # Errors
    /// The sockets', and a byte that is not what it should be.
    pub fn run(&self, pattern: &Pattern, side: Side) -> io::Result<Measured> {
        let _armed = watchdog::arm(
            watchdog::GRACE,
            format!("pattern {} on {} ({pattern})", pattern.number, side.name()),
        );
        let _busy = pattern.busy.then(Busy::begin).transpose()?;
        if pattern.place == Place::Loopback {
            return match side {
                Side::Sockeye => {
                    let ours = Ours { stack: self.loopback.clone(), addr: LOOPBACK };
                    counted(&[&self.loopback], || run(pattern, (&ours, None), (&ours, None)))
                }
                Side::Kernel => {
                    let theirs = Theirs { addr: LOOPBACK };
                    run(pattern, (&theirs, None), (&theirs, None))
                }
            };
        }
        let devices = self.devices.as_ref().map_err(|reason| io::Error::other(reason.clone()))?;
        devices.run(pattern, side)
    }
}

impl Devices {
    fn open() -> io::Result<Self> {
        let [threads, driven] = [Config::default(), Config { workers: 0, ..Config::default() }];
        let wires = [by_wire(&threads)?, by_wire(&driven)?];
        Ok(Self { wires, veth: ends::veth(None)?, tun: behind_tun(threads)?, driven: behind_tun(driven)? })
    }

    fn run(&self, pattern: &Pattern, side: Side) -> io::Result<Measured> {
        let (near, far) = (ends::near()?.addr(), ends::far()?.addr());
        let [of_threads, of_tasks] = &self.wires;
        let ((stack, namespace), by_wire) = match pattern.runner {
            Runner::Threads => (&self.tun, of_threads),
            Runner::OneRuntime | Runner::TwoRuntimes => (&self.driven, of_tasks),
        };
        let ours = |stack: &Stack| Ours { stack: stack.clone(), addr: far };
        match (side, pattern.place) {
            (Side::Kernel, _) => {
                let [here, there] = &self.veth;
                let theirs = Theirs { addr: far };
                run(pattern, (&theirs, Some(here)), (&theirs, Some(there)))
            }
            (Side::Sockeye, Place::Wire | Place::Loopback) => {
                let [here, there] = by_wire;
                let ends = [here, there].map(ours);
                counted(&[here, there], || run(pattern, (&ends[0], None), (&ends[1], None)))
            }
            (Side::Sockeye, Place::TunServer) => {
                let theirs = Theirs { addr: near };
                counted(&[stack], || run(pattern, (&theirs, Some(namespace)), (&ours(stack), None)))
            }
            (Side::Sockeye, Place::TunClient) => {
                let theirs = Theirs { addr: near };
                counted(&[stack], || run(pattern, (&ours(stack), None), (&theirs, Some(namespace))))
            }
        }
    }
}

/// The stacks at the ends of a wire.
fn by_wire(config: &Config) -> io::Result<[Stack; 2]> {
    let (here, there) =
        wire(&WireConfig { offload: true, segment_max: SEGMENT_MAX, ..WireConfig::default() })?;
    let stacks = [Stack::new(config.clone())?, Stack::new(config.clone())?];
    stacks[0].attach(here, &[ends::near()?])?;
    stacks[1].attach(there, &[ends::far()?])?;
    Ok(stacks)
}

/// A stack on a TUN device, and the namespace with the device.
fn behind_tun(config: Config) -> io::Result<(Stack, Namespace)> {
    let (namespace, tun) = ends::device(&TunConfig::default())?;
    let stack = Stack::new(config)?;
    stack.attach(tun, &[ends::far()?])?;
    Ok((stack, namespace))
}

/// An end's sockets, and its namespace if it has one.
type End<'a, N> = (&'a N, Option<&'a Namespace>);

fn run<C: Sockets, S: Sockets>(
    pattern: &Pattern,
    connects: End<'_, C>,
    accepts: End<'_, S>,
) -> io::Result<Measured>
where
    Tasks<C>: Net,
    Tasks<S>: Net,
{
    let (client, server) = (connects.0.clone(), accepts.0.clone());
    match pattern.runner {
        Runner::Threads => play(pattern, (&Blocking(client), connects.1), (&Blocking(server), accepts.1)),
        Runner::OneRuntime | Runner::TwoRuntimes => {
            play(pattern, (&Tasks(client), connects.1), (&Tasks(server), accepts.1))
        }
    }
}

fn play<C: Net, S: Net>(
    pattern: &Pattern,
    (client, near): End<'_, C>,
    (server, far): End<'_, S>,
) -> io::Result<Measured> {
    let scene = Arc::new(Scene::new(pattern.clone()));
    let shared = (pattern.runner == Runner::OneRuntime).then(|| runtime(2)).transpose()?;
    let (tell, told) = mpsc::channel::<SocketAddr>();
    let (scene, shared) = (&scene, shared.as_ref());
    // It owns its end of the channel, so that the other side does not wait for an address if it fails.
    let serve = move || {
        let (own, starter) = starter(pattern, shared)?;
        let outcomes: io::Result<_> = starter.block_on(async {
            server.begin(&starter)?;
            let (listener, addr) = server.listen()?;
            let listener = Arc::new(listener);
            tell.send(addr).map_err(io::Error::other)?;
            let end = |_| {
                starter.start(reported(
                    pattern.number,
                    play::acceptor::<S>(Arc::clone(&listener), Arc::clone(scene), starter.clone()),
                ))
            };
            let started = (0..pattern.connections).map(end).collect::<io::Result<Vec<_>>>()?;
            ended(started).await
        });
        Ok((outcomes?, own))
    };
    let call = move || {
        let (own, starter) = starter(pattern, shared)?;
        let to = told.recv().map_err(io::Error::other)?;
        let outcomes: io::Result<_> = starter.block_on(async {
            client.begin(&starter)?;
            let end = |index| {
                let end = play::connector(client.clone(), to, index, Arc::clone(scene), starter.clone());
                starter.start(reported(pattern.number, end))
            };
            let started = (0..pattern.connections).map(end).collect::<io::Result<Vec<_>>>()?;
            ended(started).await
        });
        Ok((outcomes?, own))
    };
    // An end's runtime stays until the other end is done, too: it may drive a stack whose last bytes are on their way.
    let (called, served) = thread::scope(|scope| {
        let served = scope.spawn(move || within(far, serve));
        let called = scope.spawn(move || within(near, call));
        (called.join(), served.join())
    });
    let panicked = |_| io::Error::other("an end has panicked");
    let (called, served) = (called.map_err(panicked)?, served.map_err(panicked)?);
    // A byte that is wrong ends one end's connection, and that is the other end's error.
    let is_wrong = |error: &io::Error| error.kind() == io::ErrorKind::InvalidData;
    let ((mut outcomes, _caller), (mut others, _server)) = match (called, served) {
        (_, Err(error)) if is_wrong(&error) => return Err(error),
        (called, served) => (called?, served?),
    };
    outcomes.append(&mut others);
    Ok(measured(&outcomes, pattern))
}

/// What starts the ends of one side, and the runtime if it is this side's own.
fn starter(pattern: &Pattern, shared: Option<&Runtime>) -> io::Result<(Option<Runtime>, Starter)> {
    Ok(match (pattern.runner, shared) {
        (Runner::Threads, _) => (None, Starter::Threads),
        (Runner::OneRuntime | Runner::TwoRuntimes, Some(shared)) => {
            (None, Starter::Tasks(shared.handle().clone()))
        }
        (Runner::OneRuntime | Runner::TwoRuntimes, None) => {
            let own = runtime(1)?;
            let starter = Starter::Tasks(own.handle().clone());
            (Some(own), starter)
        }
    })
}

/// Prints an error at once, since the other ends may wait for this one until the watchdog ends the program.
async fn reported(number: usize, end: impl Future<Output = io::Result<Outcome>>) -> io::Result<Outcome> {
    end.await.inspect_err(|error| eprintln!("error: pattern {number}: {error}"))
}

async fn ended(started: Vec<super::runner::Started<io::Result<Outcome>>>) -> io::Result<Vec<Outcome>> {
    let mut outcomes = Vec::with_capacity(started.len());
    for end in started {
        outcomes.push(end.end().await??);
    }
    Ok(outcomes)
}

fn within<R: Send>(
    namespace: Option<&Namespace>,
    work: impl FnOnce() -> io::Result<R> + Send,
) -> io::Result<R> {
    match namespace {
        Some(namespace) => namespace.run(work)?,
        None => work(),
    }
}

fn counted(stacks: &[&Stack], run: impl FnOnce() -> io::Result<Measured>) -> io::Result<Measured> {
    let read = || {
        let mut sum = Counters::new();
        for (name, value) in stacks.iter().flat_map(|stack| stack.counters()) {
            *sum.entry(name.to_owned()).or_default() += value;
        }
        sum
    };
    let before = read();
    let measured = run()?;
    let mut counters = difference(&before, &read());
    counters.retain(|_, value| *value > 0);
    Ok(Measured { counters, ..measured })
}

fn measured(outcomes: &[Outcome], pattern: &Pattern) -> Measured {
    let start = outcomes.iter().map(|outcome| outcome.start).min().unwrap_or_else(Instant::now);
    let end = outcomes.iter().map(|outcome| outcome.end).max().unwrap_or(start);
    let mut latencies: Vec<Duration> =
        outcomes.iter().flat_map(|outcome| &outcome.latencies).copied().collect();
    latencies.sort_unstable();
    let p99 = latencies.get((latencies.len() * 99).div_ceil(100).saturating_sub(1)).copied();
    Measured { time: end - start, p99: p99.filter(|_| pattern.has_latency()), counters: Counters::new() }
}

/// A thread that keeps one core busy until it is dropped.
struct Busy {
    stop: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<io::Result<()>>>,
}

impl Busy {
    fn begin() -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let placement = Placement::new(Pin::Same)?;
        let work = move || {
            placement.client(0)?;
            // Set by the one who drops this.
            while !stopped.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
            Ok(())
        };
        Ok(Self { stop, thread: Some(thread::Builder::new().name("busy".to_owned()).spawn(work)?) })
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // Without a core of its own it was no burden, which the figures survive.
            let _ = thread.join();
        }
    }
}

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// Bytes that one frame carries on the wire, as on a veth pair.
const SEGMENT_MAX: u32 = 65_535;
