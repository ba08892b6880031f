//! The checkers: a random world, random programs, and the properties that must hold whatever happens.
//!
//! A seed decides a `plan`: hosts, their settings, links and their faults, partitions, crashes, and conversations
//! between pairs of hosts (`conversation`). When all of it is over the `verdict` looks whether
//!
//! 1. every stream delivered exactly the bytes sent, or reported an error that a fault of the plan explains;
//! 2. both sides agree on how it ended;
//! 3. no connection lives for ever, and no host goes on sending;
//! 4. nothing is sent again without cause: without faults, nothing at all;
//! 5. all packet memory has come back;
//! 6. no stack has contained a panic, of its own or of the code that it calls.
//!
//! Beside the conversations there are UNIX streams and, with the feature `tokio`, for each third seed, a service of tokio's tasks and timers (`neighbors`), which have to come to their ends.
//!
//! Bytes are a function of their place in the stream, and checked as they are read. Tests: `tests/hosts/checkers.rs` runs some
//! hundred seeds, the program `soak` as many as one likes.

mod conversation;
mod neighbors;
mod plan;
mod verdict;

use std::rc::Rc;
use std::time::Duration;

use crate::check::conversation::Conversation;
use crate::check::neighbors::Neighbors;
use crate::check::plan::{Plan, Trouble};
use crate::network::{Host, Link, Net};
use crate::run::Sim;
use crate::time;

/// Counts of one seed, to check that it did something.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Summary {
    /// Conversations that were planned.
    pub conversations: u64,
    /// Conversations of which both sides came to a clean end.
    pub clean: u64,
    /// Bytes that were read, all of them the right ones.
    pub bytes: u64,
    /// Packets that met with a fault.
    pub faults: u64,
    /// Segments that were sent again.
    pub retransmitted: u64,
    /// Hosts that crashed.
    pub crashes: u64,
    /// Bytes that were read from UNIX sockets, all of them the right ones.
    pub unix_bytes: u64,
    /// Requests to a service of tokio's tasks that were answered: every third seed has one, with the feature `tokio`.
    pub requests: u64,
    /// Seconds of simulated time.
    pub seconds: u64,
}

/// After all programs have ended, connections have so long to go too: longer than the retransmissions of a FIN (some
/// 17 minutes) with FIN-WAIT-2 and TIME-WAIT behind them.
const AFTERLIFE: Duration = Duration::from_secs(3600);
/// The last part of it, in which no host may send anything any more.
const SILENCE: Duration = Duration::from_secs(600);
/// Each so many seeds, one has runtimes of tokio, and a service on them. The others take less time.
#[cfg(feature = "tokio")]
const TOKIO_EACH: u64 = 3;
/// The longest that a plan and its conversations may take.
const TIME_MAX: Duration = Duration::from_secs(30_000);

/// Runs the plan of `seed` and checks the outcome. `replay` is the command to print on failure.
///
/// # Panics
/// If a rule is broken; the failure has been reported as any other of a simulation.
pub fn run_seed(seed: u64, replay: Option<String>) -> Summary {
    let sim = Sim::exactly(seed).time_max(TIME_MAX);
    #[cfg(feature = "tokio")]
    let sim = if seed.is_multiple_of(TOKIO_EACH) { sim.tokio() } else { sim };
    let sim = match replay {
        Some(command) => sim.replay(command),
        None => sim,
    };
    sim.run(|net| async move { run_plan(&net, &Plan::new(net.rng("plan"))).await })
}

async fn run_plan(net: &Net, plan: &Plan) -> Summary {
    let setups = plan.hosts.iter().enumerate();
    let hosts: Vec<Host> = setups
        .map(|(i, setup)| net.host_with(&format!("h{i}"), setup.clone()).expect("plans keep to the bounds"))
        .collect();
    let mut links = Vec::new();
    for (left, right, config) in &plan.links {
        links.push(net.link(&hosts[*left], &hosts[*right], config.clone()));
    }
    let talks: Vec<Rc<Conversation>> = plan
        .talks
        .iter()
        .enumerate()
        .map(|(number, talk)| Conversation::start(net, &hosts, number, talk))
        .collect();
    let neighbors = Neighbors::start(net, &hosts);
    for trouble in plan.troubles.clone() {
        let (hosts, links) = (hosts.clone(), links.clone());
        crate::spawn(async move { befall(&hosts, &links, trouble).await });
    }
    time::sleep(plan.lasts).await;
    for talk in &talks {
        talk.ended().await;
    }
    let (unix_bytes, requests) = neighbors.ended(plan).await;
    time::sleep(AFTERLIFE.saturating_sub(SILENCE)).await;
    let spoken = net.traffic().segments;
    time::sleep(SILENCE).await;
    verdict::on_conversations(plan, &talks);
    verdict::on_hosts(&hosts);
    verdict::on_traffic(net, plan, spoken);
    Summary {
        conversations: talks.len() as u64,
        clean: talks.iter().filter(|talk| talk.is_clean()).count() as u64,
        bytes: talks.iter().map(|talk| talk.bytes_read()).sum(),
        faults: net.stats().faults(),
        retransmitted: net.traffic().retransmitted,
        crashes: plan.crashes() as u64,
        unix_bytes,
        requests,
        seconds: net.now().as_secs(),
    }
}

/// Lets one of the plan's troubles happen, and end.
async fn befall(hosts: &[Host], links: &[Link], trouble: Trouble) {
    match trouble {
        Trouble::Partition { link, at, lasts } => {
            time::sleep(at).await;
            links[link].cut();
            time::sleep(lasts).await;
            links[link].heal();
        }
        Trouble::Crash { host, at, lasts } => {
            time::sleep(at).await;
            verdict::on_panics(&hosts[host]);
            hosts[host].crash();
            time::sleep(lasts).await;
            hosts[host].restart();
        }
        Trouble::Change { link, at, delay } => {
            time::sleep(at).await;
            links[link].update(|config| config.delay = delay);
        }
    }
}
