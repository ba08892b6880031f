//! Registers that openraft replicates, over Sockeye's sockets and with its log and vote in files, under random faults: what clients saw must be linearizable, Raft's own promises hold at each step
//! (`witness.rs`), and writes work again after the last fault.
//!
//! Two bugs can be planted: a leader that answers reads without asking a quorum, and a vote that is not synced. `cargo run --release --example sim_raft` in this folder says
//! how many seeds each takes to be found, and tries the right program with a thousand; with the argument `twice` it tries those in each of two processes, and compares them. `RUSTFLAGS="--cfg tokio_unstable"` has `select!` follow from the seed, too.
//!
//! Does not depend on what the faults are: they are `FaultConfig::default()`. openraft is built without its debug assertions, one of which ends a node that starts with a vote older than its log: what
//! finds a bug is what the test looks at. Tests: below; `history.rs` has those of the checker.

#[path = "../common/frames.rs"]
mod frames;
#[path = "../common/history.rs"]
mod history;
#[path = "../common/hunt.rs"]
mod hunt;
mod store;
mod wire;
mod witness;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io::Cursor;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use openraft::error::{ClientWriteError, RaftError};
use openraft::{BasicNode, Config, Raft, ServerState, SnapshotPolicy};
use serde::{Deserialize, Serialize};
use sockeye_sim::net::{TcpListener, TcpStream};
use sockeye_sim::{FaultConfig, Host, Net, Rng};
use tokio::time;

use frames::{receive, send};
use history::{Action, Operation};
use store::{LogStore, Registers};
use wire::{Answer, Call, PORT, Peers};
use witness::Witness;

/// A write, as it stands in the log.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Write {
    key: String,
    value: u64,
}

openraft::declare_raft_types!(
    pub Types: D = Write, R = (), NodeId = u64, Node = BasicNode
);

/// What is wrong with the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bug {
    None,
    /// A leader answers reads from what it has, though others may have elected another.
    StaleRead,
    /// A vote is written and not synced.
    VoteIsNotSynced,
}

const NODES: u64 = 3;
const CLIENTS: u64 = 3;
const KEYS: u64 = 3;
/// Operations of each client.
const OPERATIONS: u64 = 60;
const PATIENCE: Duration = Duration::from_millis(800);
/// The longest wait before the next operation.
const PAUSE_MS_MAX: u64 = 1000;
/// From the last fault to the first write, at most: elections and several tries.
const RECOVERY: Duration = Duration::from_secs(20);

fn name(node: u64) -> String {
    format!("node{node}")
}

/// A node, from its start to its end.
async fn node(id: u64, bug: Bug, witness: Witness) {
    let config = Config { snapshot_policy: SnapshotPolicy::Never, ..Config::default() };
    let config = Arc::new(config.validate().expect("the defaults are valid"));
    let log = LogStore::open(bug).await.expect("the disk works");
    let registers = Registers::new(witness.clone());
    let raft =
        Raft::<Types>::new(id, config, Peers, log, registers.clone()).await.expect("the files are ours");
    let listener = TcpListener::bind(("0.0.0.0", PORT)).await.expect("a new process has its port");
    if id == 0 {
        let members = |node| (node, BasicNode::new(format!("{}:{PORT}", name(node))));
        let members: BTreeMap<u64, BasicNode> = (0..NODES).map(members).collect();
        // Not the first start: it is there already.
        let _again = raft.initialize(members).await;
    }
    let mut metrics = raft.metrics();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                if let Ok((stream, _)) = accepted {
                    tokio::spawn(serve(stream, id, raft.clone(), registers.clone(), bug));
                }
            }
            changed = metrics.changed() => {
                // openraft asserts what must hold, in a task of its own.
                assert!(changed.is_ok(), "the Raft of {} has failed", name(id));
                let metrics = metrics.borrow();
                metrics.running_state.as_ref().expect("the disk works");
                if metrics.state == ServerState::Leader {
                    witness.leads(metrics.current_term, id);
                }
            }
        }
    }
}

/// Answers the calls of one connection.
async fn serve(
    mut stream: TcpStream,
    id: u64,
    raft: Raft<Types>,
    registers: Registers,
    bug: Bug,
) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    loop {
        match receive(&mut stream).await? {
            Call::Append(request) => send(&mut stream, &raft.append_entries(request).await).await?,
            Call::Vote(request) => send(&mut stream, &raft.vote(request).await).await?,
            Call::Snapshot(request) => send(&mut stream, &raft.install_snapshot(request).await).await?,
            Call::Write(write) => {
                let answer = match raft.client_write(write).await {
                    Ok(_) => Answer::Written,
                    Err(RaftError::APIError(ClientWriteError::ForwardToLeader(_))) => Answer::Refused,
                    Err(_) => Answer::Unknown,
                };
                send(&mut stream, &answer).await?;
            }
            Call::Read(key) => {
                let may_answer = match bug {
                    Bug::StaleRead => raft.current_leader().await == Some(id),
                    Bug::None | Bug::VoteIsNotSynced => raft.ensure_linearizable().await.is_ok(),
                };
                let answer = if may_answer { Answer::Value(registers.get(&key)) } else { Answer::Refused };
                send(&mut stream, &answer).await?;
            }
        }
    }
}

async fn ask(node: u64, call: Call) -> std::io::Result<Answer> {
    let mut stream = TcpStream::connect((name(node), PORT)).await?;
    send(&mut stream, &call).await?;
    receive(&mut stream).await
}

/// A client's operations, one after the other. Refused ones go to another node.
async fn client(net: Net, number: u64, history: Rc<RefCell<Vec<Operation>>>) {
    let mut rng: Rng = net.rng(&format!("client {number}"));
    let mut node = rng.below(NODES);
    for count in 0..OPERATIONS {
        time::sleep(Duration::from_millis(rng.below(PAUSE_MS_MAX))).await;
        let key = format!("key{}", rng.below(KEYS));
        let value = number * OPERATIONS + count;
        let is_write = rng.below(2) == 0;
        let begin = net.now();
        let call =
            if is_write { Call::Write(Write { key: key.clone(), value }) } else { Call::Read(key.clone()) };
        // Fair: the draw is one of the things that have to follow from the seed.
        let answer = tokio::select! {
            answer = ask(node, call) => answer.unwrap_or(Answer::Unknown),
            () = time::sleep(PATIENCE) => Answer::Unknown,
        };
        let (action, end) = match answer {
            Answer::Written => (Action::Write(value), Some(net.now())),
            Answer::Value(got) => (Action::Read(got), Some(net.now())),
            Answer::Unknown if is_write => (Action::Write(value), None),
            Answer::Unknown | Answer::Refused => {
                node = (node + 1 + rng.below(NODES - 1)) % NODES;
                continue;
            }
        };
        if end.is_none() {
            node = (node + 1) % NODES;
        }
        history.borrow_mut().push(Operation { key, action, call: begin, end });
    }
}

/// Writes until one is answered.
async fn recover(is_over: Rc<Cell<bool>>) {
    for node in (0..NODES).cycle() {
        let write = Write { key: "last".into(), value: 0 };
        if let Ok(Ok(Answer::Written)) = time::timeout(PATIENCE, ask(node, Call::Write(write))).await {
            return is_over.set(true);
        }
        time::sleep(PATIENCE / 4).await;
    }
}

async fn program(net: Net, bug: Bug) -> usize {
    let witness = Witness::default();
    let nodes: Vec<Host> = (0..NODES).map(|id| net.host(&name(id))).collect();
    for (id, host) in (0..).zip(&nodes) {
        let witness = witness.clone();
        host.program(move || node(id, bug, witness.clone()));
    }
    net.always("what Raft promises", move || witness.verdict());
    let history = Rc::default();
    let faults = net.random_faults(&nodes, FaultConfig::default());
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| {
            net.host(&format!("client{number}")).spawn(client(net.clone(), number, Rc::clone(&history)))
        })
        .collect();
    for client in clients {
        client.await.expect("no fault is a client's");
    }
    faults.over().await;
    let history = history.take();
    if let Err(what) = history::check(&history) {
        panic!("{what}");
    }
    let is_over = Rc::new(Cell::new(false));
    net.host("last").spawn(recover(Rc::clone(&is_over)));
    net.eventually("a write is answered", RECOVERY, move || is_over.get());
    history.iter().filter(|operation| operation.end.is_some()).count()
}

fn main() {
    hunt::start(&[Bug::StaleRead, Bug::VoteIsNotSynced], Bug::None, |net, bug| async move {
        program(net, bug).await;
    });
}

#[sockeye_sim::test(seeds = 0..2, tokio)]
async fn what_clients_see_is_linearizable(net: Net) {
    let done = program(net, Bug::None).await;
    assert!(done > 20, "{done} operations were answered");
}

/// Needs `--cfg tokio_unstable`, for `select!`.
#[cfg(tokio_unstable)]
#[test]
fn a_seed_is_the_same_run_in_another_process() {
    sockeye_glue::same_in_two_processes("what_clients_see_is_linearizable");
}

/// Seeds before that one do not find it.
#[test]
fn a_read_from_a_leader_that_asks_nobody_is_found() {
    hunt::assert_found(36..1000, "is not linearizable", |net| program(net, Bug::StaleRead));
}

/// Seeds before that one do not find it.
#[test]
fn a_vote_that_a_power_loss_takes_is_found() {
    hunt::assert_found(11..1000, "has two leaders", |net| program(net, Bug::VoteIsNotSynced));
}
