//! Worlds of one shape in each simulator: hosts in pairs, a server and its client, and the work that they do.
//!
//! Does not depend on how anything is timed. Invariant: a world that returns has done all of its work, or an error says what failed.
//!
//! Tests: `tests/samples.rs`.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clap::ValueEnum;
use sockeye_sim::{LinkConfig, Seeds, Sim};

use crate::net::{Native, Net, Tokio, Turmoil};
use crate::{http, kv, rpc};

/// The simulator, and what runs the tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum On {
    /// turmoil: a paused runtime of tokio for each host
    Turmoil,
    /// Sockeye's simulator with a runtime of tokio for each host
    Tokio,
    /// Sockeye's simulator with its own tasks
    Native,
}

/// A program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Program {
    /// A key-value protocol over TCP
    Kv,
    /// An axum service and a client of hyper
    Axum,
    /// A tonic service and a channel
    Tonic,
}

/// The shape of a world.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub program: Program,
    /// An even number: each client has a server of its own.
    pub hosts: usize,
    /// Calls of each client.
    pub calls: u32,
    /// Of each direction of a link; `None`: as turmoil draws it unless told otherwise, and with the same mean in Sockeye's simulator.
    pub latency: Option<Duration>,
    pub seed: u64,
}

/// Simulated time that no world takes.
const TIME_MAX: Duration = Duration::from_secs(100 * 86_400);
/// turmoil's default latency is drawn from an exponential distribution of this mean, cut off at 100 ms.
const MEAN: Duration = Duration::from_millis(20);

async fn serve<N: Net>(program: Program) -> io::Result<()> {
    match program {
        Program::Kv => kv::serve::<N>().await,
        Program::Axum => http::serve::<N>().await,
        Program::Tonic => rpc::serve::<N>().await,
    }
}

async fn call<N: Net>(program: Program, server: String, count: u32) -> io::Result<()> {
    match program {
        Program::Kv => kv::call::<N>(server, count).await,
        Program::Axum => http::call::<N>(server, count).await,
        Program::Tonic => rpc::call::<N>(server, count).await,
    }
}

/// Makes all calls. Returns the simulated time that they took.
pub fn calls(on: On, shape: &Shape) -> io::Result<Duration> {
    match on {
        On::Turmoil => calls_in_turmoil(shape),
        On::Tokio => sim(shape.seed).tokio().run(program::<Tokio>(*shape)),
        On::Native => sim(shape.seed).run(program::<Native>(*shape)),
    }
}

fn sim(seed: u64) -> Sim {
    Sim::exactly(seed).time_max(TIME_MAX)
}

/// The main program of a world in Sockeye's simulator.
fn program<N: Net>(shape: Shape) -> impl FnOnce(sockeye_sim::Net) -> Calls + Send {
    move |net| {
        Box::pin(async move {
            net.set_default_link(link(shape.latency));
            let mut clients = Vec::new();
            for pair in 0..shape.hosts / 2 {
                let (server, client) = (net.host(&server_name(pair)), net.host(&format!("client{pair}")));
                server.spawn(serve::<N>(shape.program));
                clients.push(client.spawn(call::<N>(shape.program, server_name(pair), shape.calls)));
            }
            for client in clients {
                client.await.map_err(io::Error::other)??;
            }
            Ok(net.now())
        })
    }
}

type Calls = std::pin::Pin<Box<dyn Future<Output = io::Result<Duration>>>>;

fn link(latency: Option<Duration>) -> LinkConfig {
    match latency {
        Some(delay) => LinkConfig { delay, ..LinkConfig::default() },
        None => LinkConfig { delay: Duration::ZERO, jitter: 2 * MEAN, ..LinkConfig::default() },
    }
}

fn server_name(pair: usize) -> String {
    format!("server{pair}")
}

fn turmoil(seed: u64, latency: Option<Duration>) -> turmoil::Sim<'static> {
    let mut builder = turmoil::Builder::new();
    builder.simulation_duration(TIME_MAX).rng_seed(seed);
    if let Some(latency) = latency {
        builder.min_message_latency(latency).max_message_latency(latency);
    }
    builder.build()
}

fn calls_in_turmoil(shape: &Shape) -> io::Result<Duration> {
    let Shape { program, hosts, calls, latency, seed } = *shape;
    let mut sim = turmoil(seed, latency);
    for pair in 0..hosts / 2 {
        sim.host(server_name(pair), move || async move { Ok(serve::<Turmoil>(program).await?) });
        let client = async move { Ok(call::<Turmoil>(program, server_name(pair), calls).await?) };
        sim.client(format!("client{pair}"), client);
    }
    sim.run().map_err(|error| io::Error::other(error.to_string()))?;
    Ok(sim.elapsed())
}

/// Two hosts that have a connection and wait for so long, as an idle service does.
pub fn idle(on: On, time: Duration, seed: u64) -> io::Result<Duration> {
    /// One call, a pause, another call.
    async fn visit<N: Net>(server: String, pause: impl Future<Output = ()>) -> io::Result<()> {
        kv::call::<N>(server.clone(), 2).await?;
        let _open = N::connect(server, kv::PORT).await?;
        pause.await;
        Ok(())
    }
    let server = server_name(0);
    if on == On::Turmoil {
        let mut sim = turmoil(seed, Some(Duration::from_millis(10)));
        sim.host(server.clone(), || async { Ok(kv::serve::<Turmoil>().await?) });
        sim.client("client0", async move { Ok(visit::<Turmoil>(server, tokio::time::sleep(time)).await?) });
        sim.run().map_err(|error| io::Error::other(error.to_string()))?;
        return Ok(sim.elapsed());
    }
    let sim = if on == On::Tokio { sim(seed).tokio() } else { sim(seed) };
    sim.run(move |net| async move {
        net.set_default_link(link(Some(Duration::from_millis(10))));
        let (host, client) = (net.host(&server), net.host("client0"));
        let done = match on {
            On::Tokio | On::Turmoil => {
                host.spawn(kv::serve::<Tokio>());
                client.spawn(async move { visit::<Tokio>(server, tokio::time::sleep(time)).await })
            }
            On::Native => {
                host.spawn(kv::serve::<Native>());
                client.spawn(async move { visit::<Native>(server, sockeye_sim::time::sleep(time)).await })
            }
        };
        done.await.map_err(io::Error::other)??;
        Ok(net.now())
    })
}

/// Runs the world of each seed from 0 on in Sockeye's simulator, as many at a time as its variable says. Returns the simulated time of all of them.
pub fn seeds(on: On, shape: &Shape, count: u64) -> io::Result<Duration> {
    let total = Arc::new(AtomicU64::new(0));
    let sum = Arc::clone(&total);
    let shape = *shape;
    let run = move |net| {
        let done = match on {
            On::Tokio | On::Turmoil => program::<Tokio>(shape)(net),
            On::Native => program::<Native>(shape)(net),
        };
        let sum = Arc::clone(&sum);
        async move {
            // Simulated times of days fit.
            let nanos = u64::try_from(done.await?.as_nanos()).unwrap_or(u64::MAX);
            sum.fetch_add(nanos, Ordering::Relaxed);
            io::Result::Ok(())
        }
    };
    let has_tokio = on != On::Native;
    Seeds::new(0..count).sim(|sim| if has_tokio { sim.tokio() } else { sim }).run(run);
    Ok(Duration::from_nanos(total.load(Ordering::Relaxed)))
}
