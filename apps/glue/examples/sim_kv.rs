//! Registers that three replicas keep, by a protocol of quorums (Attiya, Bar-Noy and Dolev's, with several writers), under random faults: what clients saw must be linearizable.
//!
//! A write asks a majority for the latest stamp of the key, and gives a majority the value with a later one. A read asks a majority, and gives a majority what it found before it answers. A replica
//! appends what it takes to a file and syncs it before it says so.
//!
//! Two bugs can be planted: a read that does not give on what it found, and a replica that does not sync. `cargo run --release --example sim_kv` in this folder says how many seeds each takes
//! to be found, and tries the right program with a thousand; with the argument `twice` it tries those in each of two processes, and compares them. The program has what usually differs from run to run: it iterates a `HashSet`, its records have dates, and its `select!` is fair, which follows from the
//! seed with `RUSTFLAGS="--cfg tokio_unstable"`.

#[path = "common/frames.rs"]
mod frames;
#[path = "common/history.rs"]
mod history;
#[path = "common/hunt.rs"]
mod hunt;

use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use sockeye_sim::fs::{self, File};
use sockeye_sim::net::{TcpListener, TcpStream};
use sockeye_sim::{FaultConfig, Host, LinkConfig, Net, Rng};
use tokio::io::AsyncWriteExt;
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time;

use frames::{receive, send};
use history::{Action, Operation};

/// What is wrong with the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Bug {
    None,
    /// A read answers with what it found, though a majority may not have it.
    ReadIsNotGivenOn,
    /// A replica says that it has a value which is not synced.
    ValueIsNotSynced,
}

const REPLICAS: usize = 3;
const MAJORITY: usize = REPLICAS / 2 + 1;
const CLIENTS: u64 = 3;
const KEYS: u64 = 3;
/// Operations of each client.
const OPERATIONS: u64 = 100;
/// Reads for each write.
const READS: u64 = 4;
const PORT: u16 = 7000;
const LOG: &str = "/log";
const PATIENCE: Duration = Duration::from_millis(800);
/// The longest wait before the next operation.
const PAUSE_MS_MAX: u64 = 500;

/// The later of two values is that with the greater stamp: a number, and the client that took it.
type Stamp = (u64, u64);

#[derive(Clone, Debug, Default, PartialEq, PartialOrd, Serialize, Deserialize)]
struct Record {
    stamp: Stamp,
    value: Option<u64>,
    /// When a replica took it, in milliseconds since 1970. Nothing depends on it.
    date: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
enum Call {
    Query(String),
    Store(String, Record),
}

struct Replica {
    log: File,
    records: BTreeMap<String, Record>,
    bug: Bug,
}

impl Replica {
    async fn open(bug: Bug) -> io::Result<Self> {
        let (mut records, mut end) = (BTreeMap::new(), 0);
        let bytes = if fs::try_exists(LOG).await? { fs::read(LOG).await? } else { Vec::new() };
        // Behind the first line that is no record, nothing was synced.
        for line in bytes.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n")) {
            let Ok((key, record)) = serde_json::from_slice::<(String, Record)>(line) else { break };
            records.insert(key, record);
            end += line.len() as u64;
        }
        let log = File::options().create(true).write(true).append(true).open(LOG).await?;
        log.set_len(end).await?;
        log.sync_all().await?;
        File::open("/").await?.sync_all().await?;
        Ok(Self { log, records, bug })
    }

    /// The record of a key, after the call.
    async fn answer(&mut self, call: Call) -> io::Result<Record> {
        match call {
            Call::Query(key) => Ok(self.records.get(&key).cloned().unwrap_or_default()),
            Call::Store(key, mut record) => {
                let known = self.records.get(&key);
                if known.is_none_or(|known| known.stamp < record.stamp) {
                    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
                    record.date = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
                    let mut line = serde_json::to_vec(&(&key, &record))?;
                    line.push(b'\n');
                    self.log.write_all(&line).await?;
                    self.log.flush().await?;
                    if self.bug != Bug::ValueIsNotSynced {
                        self.log.sync_data().await?;
                    }
                    self.records.insert(key, record.clone());
                }
                Ok(record)
            }
        }
    }
}

async fn serve(bug: Bug) {
    let replica = Arc::new(Mutex::new(Replica::open(bug).await.expect("the disk works")));
    let listener = TcpListener::bind(("0.0.0.0", PORT)).await.expect("a new process has its port");
    loop {
        let Ok((mut stream, _)) = listener.accept().await else { continue };
        let replica = Arc::clone(&replica);
        tokio::spawn(async move {
            loop {
                let call = receive(&mut stream).await?;
                let answer = replica.lock().await.answer(call).await.expect("the disk works");
                send(&mut stream, &answer).await?;
            }
            #[expect(unreachable_code, reason = "it says what the task returns")]
            io::Result::Ok(())
        });
    }
}

async fn ask(replica: String, call: Call) -> io::Result<Record> {
    let mut stream = TcpStream::connect((replica, PORT)).await?;
    send(&mut stream, &call).await?;
    receive(&mut stream).await
}

/// The answers of a majority; `None` if they do not come in time.
async fn majority(replicas: &HashSet<String>, call: Call) -> Option<Vec<Record>> {
    let mut asked: JoinSet<_> = replicas.iter().map(|replica| ask(replica.clone(), call.clone())).collect();
    let mut answers = Vec::new();
    let end = time::sleep(PATIENCE);
    tokio::pin!(end);
    while answers.len() < MAJORITY {
        // Fair: the draw is one of the things that have to follow from the seed.
        tokio::select! {
            answer = asked.join_next() => answers.extend(answer?.ok()?.ok()),
            () = &mut end => return None,
        }
    }
    Some(answers)
}

/// A client's part of the protocol.
struct Client {
    number: u64,
    replicas: HashSet<String>,
    /// The number of its last stamp: what it wrote then may be known to nobody that answers now.
    last: u64,
    bug: Bug,
}

impl Client {
    async fn latest(&self, key: &str) -> Option<Record> {
        let answers = majority(&self.replicas, Call::Query(key.to_owned())).await?;
        answers.into_iter().max_by_key(|record| record.stamp)
    }

    async fn write(&mut self, key: &str, value: u64) -> Option<()> {
        self.last = self.last.max(self.latest(key).await?.stamp.0) + 1;
        let record = Record { stamp: (self.last, self.number), value: Some(value), date: 0 };
        majority(&self.replicas, Call::Store(key.to_owned(), record)).await.map(drop)
    }

    async fn read(&self, key: &str) -> Option<Option<u64>> {
        let found = self.latest(key).await?;
        if found.value.is_some() && self.bug != Bug::ReadIsNotGivenOn {
            majority(&self.replicas, Call::Store(key.to_owned(), found.clone())).await?;
        }
        Some(found.value)
    }
}

/// A client's operations, one after the other.
async fn client(net: Net, number: u64, bug: Bug, history: Rc<RefCell<Vec<Operation>>>) {
    let mut rng: Rng = net.rng(&format!("client {number}"));
    let mut client = Client { number, replicas: (0..REPLICAS).map(name).collect(), last: 0, bug };
    for count in 0..OPERATIONS {
        time::sleep(Duration::from_millis(rng.below(PAUSE_MS_MAX))).await;
        let key = format!("key{}", rng.below(KEYS));
        let call = net.now();
        let (action, is_over) = if rng.below(READS + 1) == 0 {
            let value = number * OPERATIONS + count;
            (Action::Write(value), client.write(&key, value).await.is_some())
        } else {
            // A read without an answer says nothing.
            let Some(found) = client.read(&key).await else { continue };
            (Action::Read(found), true)
        };
        let end = is_over.then(|| net.now());
        history.borrow_mut().push(Operation { key, action, call, end });
    }
}

fn name(replica: usize) -> String {
    format!("replica{replica}")
}

async fn program(net: Net, bug: Bug) {
    net.set_default_link(LinkConfig {
        jitter: Duration::from_millis(2),
        ..LinkConfig::rtt(Duration::from_millis(2))
    });
    let replicas: Vec<Host> = (0..REPLICAS).map(|number| net.host(&name(number))).collect();
    replicas.iter().for_each(|host| host.program(move || serve(bug)));
    let clients: Vec<Host> = (0..CLIENTS).map(|number| net.host(&format!("client{number}"))).collect();
    let faults = net.random_faults(&replicas, FaultConfig::default());
    // Those of links are the clients', too.
    let hosts = [&replicas[..], &clients].concat();
    let only =
        FaultConfig { crash: false, outage: false, kill: false, pause: false, ..FaultConfig::default() };
    let links = net.random_faults(&hosts, FaultConfig { slow_disk: false, ..only });
    let history = Rc::default();
    let clients: Vec<_> = (0..)
        .zip(&clients)
        .map(|(number, host)| host.spawn(client(net.clone(), number, bug, Rc::clone(&history))))
        .collect();
    for client in clients {
        client.await.expect("no fault ends a client");
    }
    faults.over().await;
    links.over().await;
    let history = history.take();
    if let Err(what) = history::check(&history) {
        panic!("{what}");
    }
    let done = history.iter().filter(|operation| operation.end.is_some()).count();
    assert!(done > 20, "{done} operations");
}

fn main() {
    hunt::start(&[Bug::ReadIsNotGivenOn, Bug::ValueIsNotSynced], Bug::None, program);
}

#[sockeye_sim::test(seeds = 0..4, tokio)]
async fn what_clients_see_is_linearizable(net: Net) {
    program(net, Bug::None).await;
}

/// Needs `--cfg tokio_unstable`, for `select!`.
#[cfg(tokio_unstable)]
#[test]
fn a_seed_is_the_same_run_in_another_process() {
    sockeye_glue::same_in_two_processes("what_clients_see_is_linearizable");
}

/// Seeds before that one do not find it.
#[test]
fn a_read_that_is_not_given_on_is_found() {
    hunt::assert_found(38..1000, "is not linearizable", |net| program(net, Bug::ReadIsNotGivenOn));
}

#[test]
fn a_value_that_a_power_loss_takes_is_found() {
    hunt::assert_found(0..1000, "is not linearizable", |net| program(net, Bug::ValueIsNotSynced));
}
