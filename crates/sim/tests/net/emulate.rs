//! The emulator does to packets what the simulator does, packet by packet.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use sockeye_sim::emulate::{Emulator, End};
use sockeye_sim::net::{TcpListener, TcpStream};
use sockeye_sim::{Fate, LinkConfig, LinkStats, Sim};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// When a packet came to the link, and its length.
type Offered = (Duration, usize);

fn link() -> LinkConfig {
    LinkConfig {
        jitter: Duration::from_millis(2),
        rate: Some(20_000_000),
        queue: 60_000,
        loss: 0.01,
        reorder: 0.03,
        duplicate: 0.01,
        ..LinkConfig::rtt(Duration::from_millis(20))
    }
}

/// The packets that arrived at a simulated link from its first end, and their fate.
fn simulated(seed: u64) -> (Vec<Offered>, LinkStats) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&seen);
    let stats = Sim::exactly(seed).run(|net| async move {
        let (client, server) = (net.host("client"), net.host("server"));
        let link = net.link(&client, &server, link());
        link.there().filter(move |packet| {
            noted.lock().unwrap().push((packet.at, packet.len));
            Fate::Pass
        });
        let addr = server.at(80);
        let read = server.spawn(async move {
            let (mut stream, _) = TcpListener::bind(addr).await.unwrap().accept().await.unwrap();
            stream.read_to_end(&mut Vec::new()).await.unwrap()
        });
        client.spawn(async move {
            let mut stream = TcpStream::connect(addr).await.unwrap();
            stream.write_all(&vec![1; 2 << 20]).await.unwrap();
        });
        assert_eq!(read.await.unwrap(), 2 << 20);
        // Packets in flight have to arrive.
        sockeye_sim::time::sleep(Duration::from_secs(300)).await;
        link.there().stats()
    });
    let packets = seen.lock().unwrap().clone();
    (packets, stats)
}

#[test]
fn the_same_seed_and_packets_have_the_same_faults() {
    for seed in [7, 8] {
        let (packets, expected) = simulated(seed);
        let mut emulator = Emulator::new(seed, link(), link());
        for (at, len) in &packets {
            while let Some(arrival) = emulator.due(*at) {
                emulator.recycle(arrival.bytes);
            }
            emulator.offer(*at, End::First, &vec![0; *len]);
        }
        while emulator.due(Duration::from_secs(3600)).is_some() {}
        assert!(expected.lost > 5 && expected.held > 20 && expected.duplicated > 5, "{expected:?}");
        assert_eq!(emulator.stats(End::First), expected, "seed {seed}");
    }
}
