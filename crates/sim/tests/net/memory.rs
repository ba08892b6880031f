//! Packet memory that has run out, over links that lose.

use std::collections::HashMap;
use std::time::Duration;

use sockeye_sim::net::{TcpListener, TcpStream};
use sockeye_sim::{Fate, HostConfig, LinkConfig, Sim, time};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const MS: Duration = Duration::from_millis(1);
/// Streams side by side, and the bytes of each.
const STREAMS: u16 = 24;
const LEN: usize = 2 << 20;
/// The byte of each stream that gets lost, again and again, until `HEALED`.
const LOST: u32 = 256 << 10;
const HEALED: Duration = Duration::from_secs(4);

/// Bytes that a position and a stream decide.
fn bytes(stream: u16) -> Vec<u8> {
    (0..LEN as u64)
        .map(|i| ((i + u64::from(stream)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8)
        .collect()
}

#[test]
fn memory_behind_holes_is_freed_for_the_segments_that_fill_them() {
    Sim::new(11).run(|net| async move {
        let mut small = HostConfig::default();
        (small.stack.rcvbuf, small.stack.rcvbuf_max) = (1 << 20, 1 << 20);
        small.stack.memory_max = 4 << 20;
        let client = net.host("client");
        let server = net.host_with("server", small).unwrap();
        let link = net.link(&client, &server, LinkConfig::rtt(50 * MS));
        let mut begun = HashMap::new();
        link.there().filter(move |packet| {
            let Some(segment) = packet.segment() else { return Fate::Pass };
            let iss = *begun.entry(segment.src.port()).or_insert(segment.header.seq);
            let start = segment.header.seq.since(iss + 1);
            let hits = (start..start.saturating_add(segment.len)).contains(&LOST);
            if hits && packet.at < HEALED { Fate::Drop } else { Fate::Pass }
        });
        let transfers: Vec<_> = (0..STREAMS)
            .map(|number| {
                let addr = server.at(80 + number);
                client.spawn(async move {
                    time::sleep(10 * MS).await;
                    let mut stream = TcpStream::connect(addr).await.unwrap();
                    stream.write_all(&bytes(number)).await.unwrap();
                    stream.shutdown().await.unwrap();
                    assert_eq!(stream.read(&mut [0; 1]).await.unwrap(), 0);
                });
                server.spawn(async move {
                    let (mut stream, _) = TcpListener::bind(addr).await.unwrap().accept().await.unwrap();
                    let mut all = Vec::new();
                    stream.read_to_end(&mut all).await.unwrap();
                    assert!(all == bytes(number), "stream {number}: {} bytes, or other ones", all.len());
                })
            })
            .collect();
        let stack = server.stack().unwrap();
        let count = |name: &str| stack.counters().iter().find(|(known, _)| *known == name).unwrap().1;
        for transfer in transfers {
            time::timeout(Duration::from_secs(120), transfer).await.unwrap().unwrap();
        }
        assert!(count("frames_no_memory") > 0, "memory has run out");
        assert!(count("ofo_pruned") > 0, "{:?}", stack.counters());
        time::sleep(Duration::from_secs(2)).await;
        assert_eq!(stack.memory_in_use(), 0);
    });
}
