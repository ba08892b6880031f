//! The cost of input from a wire in each setting: bulk streams between two stacks, interleaved.
//!
//! ```text
//! cargo run -p sockeye --release --example wire_costs -- [streams] [queues] [mtu] [rounds] [ms]
//! ```
//!
//! Prints for each setting the median rate and, per received packet, how often input went into a socket lock,
//! how often that was occupied, and the mean run.
//!
//! ```text
//! perf stat -e instructions:u wire_costs driven batched 1000 [gro=off]
//! ```
//!
//! sends so many MiB on one stream with both stacks on one thread, where instructions can be counted and nothing
//! else disturbs: the cost of a packet, both sides together and without any contention.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

use sockeye::experiments::{Experiments, Input};
use sockeye::netif::{WireConfig, wire};
use sockeye::{Config, Stack, TcpConfig, TcpListener, TcpSocket};

struct Case {
    streams: usize,
    wire: WireConfig,
    time: Duration,
}

#[derive(Default)]
struct Outcome {
    gbits: Vec<f64>,
    counters: Vec<(&'static str, u64)>,
}

impl Outcome {
    fn of(&self, name: &str) -> f64 {
        self.counters.iter().filter(|(known, _)| *known == name).map(|(_, count)| *count as f64).sum()
    }

    fn print(&mut self, input: Input) {
        self.gbits.sort_by(f64::total_cmp);
        let packets = self.of("input_packets").max(1.0);
        let per_packet = |name| self.of(name) / packets;
        println!(
            "{input:15} {:7.2} Gbit/s [{:.2} to {:.2}]   entries {:.3}  occupied {:.3}  batch {:.1}  sleeps {:.4}  lost {}",
            self.gbits[self.gbits.len() / 2],
            self.gbits[0],
            self.gbits[self.gbits.len() - 1],
            per_packet("input_acquisitions"),
            per_packet("input_contended"),
            packets / self.of("input_batches").max(1.0),
            per_packet("input_sleeps"),
            self.of("frames_queue_full"),
        );
    }
}

fn main() {
    if std::env::args().nth(1).is_some_and(|arg| arg == "driven") {
        let input = std::env::args().nth(2).and_then(|arg| arg.parse().ok()).unwrap_or_default();
        let mib = std::env::args().nth(3).and_then(|arg| arg.parse().ok()).unwrap_or(1000);
        let gro = std::env::args().nth(4).is_none_or(|arg| arg != "gro=off");
        return driven(input, mib, gro).expect("two stacks and a stream");
    }
    let given: Vec<usize> = std::env::args().skip(1).filter_map(|arg| arg.parse().ok()).collect();
    let arg = |index: usize, default: usize| given.get(index).copied().unwrap_or(default);
    let case = Case {
        streams: arg(0, 1),
        wire: WireConfig { queues: arg(1, 1), mtu: arg(2, 1500) as u32, ..WireConfig::default() },
        time: Duration::from_millis(arg(4, 200) as u64),
    };
    let mut outcomes: Vec<(Input, Outcome)> = Input::ALL.iter().map(|i| (*i, Outcome::default())).collect();
    for _ in 0..arg(3, 5) {
        for (input, outcome) in &mut outcomes {
            run(*input, &case, outcome).expect("stacks and streams");
        }
    }
    for (input, outcome) in &mut outcomes {
        outcome.print(*input);
    }
}

fn run(input: Input, case: &Case, outcome: &mut Outcome) -> Result<(), Box<dyn std::error::Error>> {
    let config = || Config {
        sndbuf: 1 << 20,
        rcvbuf: 1 << 20,
        experiments: Experiments { input, ..Experiments::default() },
        ..Config::default()
    };
    let (near, far) = wire(&case.wire)?;
    let (sender, receiver) = (Stack::new(config())?, Stack::new(config())?);
    sender.attach(near, &["10.0.0.1/24".parse()?])?;
    receiver.attach(far, &["10.0.0.2/24".parse()?])?;
    let addr: SocketAddr = "10.0.0.2:5001".parse()?;
    let listener = TcpListener::bind_on(&receiver, addr)?;
    let mut threads = Vec::new();
    let mut total = 0;
    let start = Instant::now();
    for _ in 0..case.streams {
        let mut client = TcpSocket::new_v4(&sender).connect(addr)?;
        let mut server = listener.accept()?.0;
        let until = start + case.time;
        threads.push(thread::spawn(move || {
            let block = vec![7; 128 << 10];
            while Instant::now() < until {
                client.write_all(&block).expect("the reader reads to the end");
            }
            client.shutdown(Shutdown::Write).expect("an open direction");
            // Until the other side is done.
            let _ = client.read(&mut [0]);
            0
        }));
        threads.push(thread::spawn(move || {
            let mut block = vec![0; 128 << 10];
            let mut total = 0;
            loop {
                match server.read(&mut block).expect("the writer ends its direction") {
                    0 => return total,
                    got => total += got,
                }
            }
        }));
    }
    for thread in threads {
        total += thread.join().expect("no panic");
    }
    outcome.gbits.push(total as f64 * 8.0 / start.elapsed().as_secs_f64() / 1e9);
    // Of the receiver alone: it gets data and sends acknowledgments.
    for (name, count) in receiver.counters() {
        match outcome.counters.iter_mut().find(|(known, _)| *known == name) {
            Some((_, sum)) => *sum += count,
            None => outcome.counters.push((name, count)),
        }
    }
    Ok(())
}

/// One stream between two stacks on this thread.
fn driven(input: Input, mib: usize, gro: bool) -> Result<(), Box<dyn std::error::Error>> {
    let config = || Config {
        workers: 0,
        sndbuf: 1 << 20,
        rcvbuf: 1 << 20,
        tcp: TcpConfig { gro, ..TcpConfig::default() },
        experiments: Experiments { input, ..Experiments::default() },
        ..Config::default()
    };
    let (near, far) = wire(&WireConfig::default())?;
    let (sender, receiver) = (Stack::new(config())?, Stack::new(config())?);
    sender.attach(near, &["10.0.0.1/24".parse()?])?;
    receiver.attach(far, &["10.0.0.2/24".parse()?])?;
    let poll = || {
        for stack in [&sender, &receiver, &sender] {
            stack.poll(Duration::ZERO);
        }
    };
    let listener = TcpListener::bind_on(&receiver, "10.0.0.2:5001")?;
    listener.set_nonblocking(true)?;
    let mut client = TcpSocket::new_v4(&sender);
    client.set_nonblocking(true);
    let mut client = client.connect("10.0.0.2:5001".parse()?)?;
    (0..2).for_each(|_| poll());
    let mut server = listener.accept()?.0;
    server.set_nonblocking(true)?;
    let mut block = vec![7; 128 << 10];
    let mut got = 0;
    while got < mib << 20 {
        let _ = client.write(&block);
        poll();
        got += server.read(&mut block).unwrap_or(0);
    }
    for (name, count) in receiver.counters() {
        if ["input_packets", "input_acquisitions", "input_joined", "segments_out"].contains(&name) {
            println!("{name} {count}");
        }
    }
    Ok(())
}
