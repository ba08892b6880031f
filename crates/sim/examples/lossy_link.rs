//! Does a protocol that takes writes for messages survive a real network?
//!
//! One write is not one read: TCP splits and joins writes, on a lossy link in every possible way. This program prefixes
//! messages with their lengths, which is correct; replace `read_exact` by `read` and some seed will fail.
//! `cargo run -p sockeye-sim --example lossy_link [SEED]`.

use std::io;
use std::time::Duration;

use sockeye_sim::net::{TcpListener, TcpStream};
use sockeye_sim::{Burst, LinkConfig, Net};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const MESSAGES: u32 = 300;

fn main() {
    let seed = std::env::args().nth(1).map_or(Ok(1), |seed| seed.parse()).expect("a seed is a number");
    sockeye_sim::run(seed, program);
}

async fn program(net: Net) {
    let (client, server) = (net.host("client"), net.host("server"));
    let link = net.link(
        &client,
        &server,
        LinkConfig {
            rate: Some(20_000_000),
            jitter: Duration::from_millis(2),
            loss: 0.01,
            burst: Some(Burst { begin: 0.002, end: 0.25, loss: 0.9 }),
            reorder: 0.02,
            duplicate: 0.01,
            ..LinkConfig::rtt(Duration::from_millis(60))
        },
    );
    let addr = server.at(80);
    let received = server.spawn(async move {
        let listener = TcpListener::bind(addr).await?;
        let (mut stream, _) = listener.accept().await?;
        for number in 0..MESSAGES {
            assert_eq!(receive(&mut stream).await?, message(number), "message {number}");
        }
        io::Result::Ok(())
    });
    client.spawn(async move {
        let mut stream = TcpStream::connect(addr).await?;
        for number in 0..MESSAGES {
            let message = message(number);
            stream.write_u32(u32::try_from(message.len()).unwrap_or(u32::MAX)).await?;
            stream.write_all(&message).await?;
        }
        // Stays until the server has read it all.
        stream.read(&mut [0; 1]).await
    });
    received.await.expect("the server does not crash").expect("the stream holds");
    let (stats, traffic) = (link.there().stats(), net.traffic());
    println!(
        "{:?}: {} of {} packets lost, {} sent again",
        net.now(),
        stats.lost,
        stats.offered,
        traffic.retransmitted
    );
    assert!(stats.faults() > 0 && traffic.retransmitted >= stats.lost.min(1));
}

/// Messages of many lengths.
fn message(number: u32) -> Vec<u8> {
    vec![number as u8; (number as usize * 37) % 4000]
}

async fn receive(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let len = stream.read_u32().await?;
    let mut message = vec![0; len as usize];
    stream.read_exact(&mut message).await?;
    Ok(message)
}

#[test]
fn messages_arrive_whole_with_any_seed() {
    sockeye_sim::run_seeds(0..20, program);
}
