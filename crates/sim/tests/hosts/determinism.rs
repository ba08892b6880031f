//! One seed, one history: the same packets to the byte, in one process and in two.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sockeye_sim::net::{TcpListener, TcpStream};
use sockeye_sim::{Burst, Capture, HostConfig, LinkConfig, Net, Sim, time};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const MS: Duration = Duration::from_millis(1);

/// The packets of a busy network, as a pcap-ng file, and behind it the digest of all events.
fn history(seed: u64) -> Vec<u8> {
    Sim::exactly(seed).capture(Capture::All).run(busy)
}

/// A busy network: many hosts and connections, every fault, ephemeral ports, a crash.
async fn busy(net: Net) -> Vec<u8> {
    net.set_default_link(LinkConfig {
        rate: Some(20_000_000),
        jitter: 3 * MS,
        loss: 0.01,
        burst: Some(Burst { begin: 0.002, end: 0.3, loss: 0.7 }),
        duplicate: 0.01,
        reorder: 0.02,
        corrupt: 0.01,
        ..LinkConfig::rtt(20 * MS)
    });
    let hosts: Vec<_> = (0..5).map(|i| net.host(&format!("h{i}"))).collect();
    let addr = hosts[0].at(80);
    hosts[0].spawn(async move {
        let listener = TcpListener::bind(addr).await.unwrap();
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            sockeye_sim::spawn(async move {
                let mut got = Vec::new();
                // A client that crashes leaves its connection behind.
                let _ = stream.read_to_end(&mut got).await;
                let _ = stream.write_all(&got).await;
            });
        }
    });
    let mut clients = Vec::new();
    for host in &hosts[1..] {
        for number in 0..4 {
            let mut rng = net.rng(&format!("{host:?} {number}"));
            clients.push(host.spawn(async move {
                time::sleep(Duration::from_micros(rng.below(50_000))).await;
                let mut bytes = vec![0; rng.between(1, 60_000) as usize];
                rng.fill(&mut bytes);
                let mut stream = TcpStream::connect(addr).await.unwrap();
                stream.write_all(&bytes).await.unwrap();
                stream.shutdown().await.unwrap();
                let mut back = Vec::new();
                stream.read_to_end(&mut back).await.unwrap();
                assert!(back == bytes);
            }));
        }
    }
    time::sleep(100 * MS).await;
    hosts[4].crash();
    for client in clients {
        let _ = client.await;
    }
    let mut file = Vec::new();
    net.write_pcap(&mut file).unwrap();
    file.extend(net.digest().to_le_bytes());
    file
}

#[test]
fn one_seed_gives_one_history_to_the_byte_and_another_gives_another() {
    let first = history(7);
    assert!(first.len() > 100_000, "{} bytes only", first.len());
    assert!(first == history(7), "the second run differs");
    // On another thread, with another CPU and other thread-local memory.
    let elsewhere = std::thread::spawn(|| history(7)).join().unwrap();
    assert!(first == elsewhere, "a run on another thread differs");
    assert_ne!(crate::common::fingerprint(&first), crate::common::fingerprint(&history(8)));
}

#[test]
fn another_process_gives_the_same_history() {
    crate::common::assert_same_in_processes(
        "determinism::another_process_gives_the_same_history",
        1,
        &history(11),
    );
}

#[test]
fn two_runs_of_a_seed_are_the_same_event_by_event() {
    let run = Sim::exactly(7).check_determinism(busy);
    assert!(run == history(7));
}

/// What a program must not have: a state that outlives a run.
static RUNS: AtomicU64 = AtomicU64::new(0);

#[test]
fn the_first_event_that_differs_is_shown_with_time_host_and_task() {
    let difference = Sim::exactly(3).first_difference(|net| async move {
        let (calm, unsteady) = (net.host("calm"), net.host("unsteady"));
        let calm = calm.spawn(time::sleep(20 * MS));
        unsteady.spawn(async {
            time::sleep(10 * MS).await;
            time::sleep(Duration::from_micros(RUNS.fetch_add(1, Ordering::Relaxed))).await;
        });
        calm.await.unwrap();
    });
    let difference = difference.expect("the runs differ");
    let [first, second] = difference.events().map(Option::unwrap);
    // Only the first run does not sleep a second time.
    assert_eq!(first, "10ms unsteady: task 2 ran and ended; random words drawn: 2");
    assert_eq!(second, "10ms unsteady: task 2 ran; random words drawn: 2");
    let text = difference.to_string();
    assert!(text.contains("two runs of seed 3 are the same for"), "{text}");
    assert!(text.contains(&format!("first   #{}: {first}", difference.index())), "{text}");
}

#[test]
fn bytes_and_draws_that_differ_are_found_too() {
    let runs = AtomicU64::new(0);
    // Without checksums, only the payload tells.
    let difference = Sim::exactly(3).first_difference(|net| {
        let run = u8::try_from(runs.fetch_add(1, Ordering::Relaxed)).unwrap();
        async move {
            let config = HostConfig { offload: true, ..HostConfig::default() };
            let [client, server] =
                ["client", "server"].map(|name| net.host_with(name, config.clone()).unwrap());
            let addr = server.at(80);
            server.spawn(async move {
                let listener = TcpListener::bind(addr).await.unwrap();
                let (mut stream, _) = listener.accept().await.unwrap();
                stream.read_u8().await.unwrap();
            });
            let sent = client.spawn(async move {
                TcpStream::connect(addr).await.unwrap().write_u8(run).await.unwrap();
                time::sleep(5 * MS).await;
            });
            sent.await.unwrap();
        }
    });
    let difference = difference.expect("the runs differ");
    let event = difference.events()[0].unwrap();
    assert!(event.starts_with("2ms client → server: packet 3, TCP 10.0.0.1:"), "{event}");
    assert!(event.contains("len 1, arrives at 3ms"), "{event}");

    let runs = AtomicU64::new(0);
    let difference = Sim::exactly(3).first_difference(|_| {
        let run = runs.fetch_add(1, Ordering::Relaxed);
        async move {
            time::sleep(MS).await;
            for _ in 0..run {
                getrandom::u64().unwrap();
            }
        }
    });
    let difference = difference.expect("the runs differ");
    assert!(
        difference.events()[1].unwrap().ends_with("task 0 ran and ended; random words drawn: 3"),
        "{difference}"
    );
}

#[test]
#[should_panic(expected = "two runs of seed 5 are the same for")]
fn a_check_of_determinism_fails_with_the_difference() {
    let runs = AtomicU64::new(0);
    Sim::exactly(5)
        .check_determinism(|_| time::sleep(Duration::from_millis(runs.fetch_add(1, Ordering::Relaxed))));
}

/// A server whose tasks, of tokio's, each have a connection; it is killed while the network loses much, and started again. The main program waits until all that it sent
/// then has arrived.
async fn killed(net: Net) -> u64 {
    let (client, server) = (net.host("client"), net.host("server"));
    let link = net.link(&client, &server, LinkConfig::rtt(10 * MS));
    server.program(|| async {
        let listener = TcpListener::bind("server:80").await.unwrap();
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move { stream.read_u8().await });
        }
    });
    let asking: Vec<_> = (0..12)
        .map(|_| {
            client.spawn(async {
                let mut stream = TcpStream::connect("server:80").await.unwrap();
                stream.read(&mut [0]).await
            })
        })
        .collect();
    time::sleep(100 * MS).await;
    link.update(|link| link.loss = 0.6);
    server.kill();
    time::sleep(3 * MS).await;
    server.restart();
    for asked in asking {
        let _reset = asked.await.unwrap();
    }
    time::sleep(10_000 * MS).await;
    net.digest()
}

/// tokio keeps tasks by their numbers, which count for the whole process, and drops them so.
#[test]
fn a_kill_is_the_same_whatever_the_process_has_run_before() {
    let tokio = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let digests = [0, 1, 1, 1].map(|more| {
        // A task takes a number.
        (0..more).for_each(|_| drop(tokio.spawn(async {})));
        Sim::exactly(3).tokio().capture(Capture::Off).run(killed)
    });
    assert_eq!(digests, [digests[0]; 4]);
}
