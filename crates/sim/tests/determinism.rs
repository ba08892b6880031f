//! One seed, one history: the same packets to the byte, in one process and in two.

mod common;

use std::time::Duration;

use sockeye_sim::net::{TcpListener, TcpStream};
use sockeye_sim::{Burst, Capture, LinkConfig, Sim, time};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const MS: Duration = Duration::from_millis(1);

/// A busy network: many hosts and connections, every fault, ephemeral ports, a crash. Returns its pcap-ng file.
fn history(seed: u64) -> Vec<u8> {
    Sim::exactly(seed).capture(Capture::All).run(|net| async move {
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
        file
    })
}

#[test]
fn one_seed_gives_one_history_to_the_byte_and_another_gives_another() {
    let first = history(7);
    assert!(first.len() > 100_000, "{} bytes only", first.len());
    assert!(first == history(7), "the second run differs");
    // On another thread, with another CPU and other thread-local memory.
    let elsewhere = std::thread::spawn(|| history(7)).join().unwrap();
    assert!(first == elsewhere, "a run on another thread differs");
    assert_ne!(common::fingerprint(&first), common::fingerprint(&history(8)));
}

#[test]
fn another_process_gives_the_same_history() {
    common::assert_same_in_processes("another_process_gives_the_same_history", 1, &history(11));
}
