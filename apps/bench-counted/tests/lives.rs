//! The cost of connections on two cores for each other: the lines that every connection touches and that both cores
//! write. Each core has a listener of its own.
//!
//! The counts are global to the process, so this is one test in a process of its own. It needs two CPUs, and prints if
//! there are not.

use std::io::{Read, Write};
use std::sync::Barrier;
use std::thread;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use sockeye::count::{self, Kind};
use sockeye::{Config, Stack, TcpListener, TcpStream};

/// Rounds, at most.
const ROUNDS: usize = 6;
/// Connections of each thread.
const CONNECTIONS: u32 = 2_000;

/// Connects, asks, answers and closes, all on the calling thread.
fn live(stack: &Stack, listener: &TcpListener) {
    let at = listener.local_addr().expect("bound");
    let mut byte = [7];
    let mut client = TcpStream::connect_on(stack, at).expect("the listener is there");
    client.write_all(&byte).expect("the peer lives");
    let (mut server, _) = listener.accept().expect("a connection is there");
    server.read_exact(&mut byte).expect("the request is there");
    server.write_all(&byte).expect("the peer lives");
    drop(server);
    client.read_exact(&mut byte).expect("the response is there");
    assert_eq!(client.read(&mut byte).expect("the end is there"), 0);
}

#[test]
fn connections_of_two_cores_with_a_listener_each_share_almost_no_lines() {
    let allowed = sched_getaffinity(None).expect("every thread has an affinity");
    let cpus: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu)).take(2).collect();
    let [_, _] = cpus[..] else {
        println!("skipped: this process may use one CPU only");
        return;
    };
    let connections = u64::from(CONNECTIONS) * cpus.len() as u64;
    let mut counted = String::new();
    // What the stack itself shares is there in each round. Others, such as a worker that runs connections of a core whose thread was interrupted, only add to it,
    // so the round with the least tells.
    for _ in 0..ROUNDS {
        let (elsewhere, references, top) = round(&cpus);
        // But for a worker that looks at a shard, or a thread that finds no port of its own part of the table.
        if elsewhere < connections && references * 10 < connections {
            return;
        }
        counted = format!("{elsewhere} and {references} references of {connections} connections: {top:#?}");
    }
    panic!("in each of {ROUNDS} rounds, lastly {counted}");
}

/// One round: hand-offs of all lines, those of references, and the places.
fn round(cpus: &[usize]) -> (u64, u64, Vec<count::Place>) {
    let stack = Stack::new(Config::default()).expect("a stack");
    let line = Barrier::new(cpus.len() + 1);
    thread::scope(|scope| {
        for &cpu in cpus {
            let (stack, line) = (&stack, &line);
            scope.spawn(move || {
                let mut here = CpuSet::new();
                here.set(cpu);
                sched_setaffinity(None, &here).expect("a CPU of ours");
                // Of its own: in one queue for both, each would get the other's connections at times, with all their lines.
                let listener = TcpListener::bind_on(stack, "127.0.0.1:0").expect("a free port");
                // Memory, ports and their bits are new at first.
                (0..CONNECTIONS / 4).for_each(|_| live(stack, &listener));
                line.wait();
                line.wait();
                (0..CONNECTIONS).for_each(|_| live(stack, &listener));
                line.wait();
            });
        }
        line.wait();
        count::reset();
        line.wait();
        line.wait();
    });
    let top = count::top(usize::MAX);
    let elsewhere = top.iter().map(|place| place.handoffs).sum();
    (elsewhere, count::snapshot().of(Kind::References), top)
}
