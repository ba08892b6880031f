//! Does a client's retry logic survive a partition?
//!
//! The client sends a request once a second and retries, with a growing pause, if it gets no answer for two seconds. The
//! network is cut for half a minute. The test checks that no request is abandoned, and that the client recovers soon after
//! the network. `cargo run -p sockeye-sim --example partition [SEED]`.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use sockeye_sim::net::{TcpListener, TcpStream};
use sockeye_sim::{LinkConfig, Net, time};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const SECOND: Duration = Duration::from_secs(1);
/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// Longest pause between two attempts.
const PAUSE_MAX: Duration = Duration::from_secs(4);

fn main() {
    let seed = std::env::args().nth(1).map_or(Ok(1), |seed| seed.parse()).expect("a seed is a number");
    sockeye_sim::run(seed, program);
}

async fn program(net: Net) {
    let (client, server) = (net.host("client"), net.host("server"));
    let link = net.link(&client, &server, LinkConfig::rtt(Duration::from_millis(40)));
    let addr = server.at(80);
    server.spawn(serve(addr));
    sockeye_sim::spawn(async move {
        time::sleep(10 * SECOND).await;
        link.cut();
        time::sleep(30 * SECOND).await;
        link.heal();
    });
    let longest = client.spawn(async move {
        let mut longest = Duration::ZERO;
        for number in 0..60 {
            longest = longest.max(ask_until_answered(addr, number).await);
            time::sleep(SECOND).await;
        }
        longest
    });
    let longest = longest.await.expect("the client does not crash");
    println!("the longest wait for an answer took {longest:?}");
    // Cut for 30 s; then the pause, and an attempt that began right before the end.
    assert!(longest > 29 * SECOND && longest < 30 * SECOND + PAUSE_MAX + PATIENCE, "{longest:?}");
}

/// Echoes a number on each connection.
async fn serve(addr: SocketAddr) -> io::Result<()> {
    let listener = TcpListener::bind(addr).await?;
    loop {
        let (mut stream, _) = listener.accept().await?;
        sockeye_sim::spawn(async move {
            let number = stream.read_u32().await?;
            stream.write_u32(number).await
        });
    }
}

/// Asks again and again; how long it took.
async fn ask_until_answered(addr: SocketAddr, number: u32) -> Duration {
    let start = time::Instant::now();
    let mut pause = SECOND / 4;
    loop {
        match time::timeout(PATIENCE, ask(addr, number)).await {
            Ok(Ok(answer)) => {
                assert_eq!(answer, number);
                return start.elapsed();
            }
            Ok(Err(_)) | Err(time::Elapsed) => time::sleep(pause).await,
        }
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

async fn ask(addr: SocketAddr, number: u32) -> io::Result<u32> {
    let mut stream = TcpStream::connect(addr).await?;
    stream.write_u32(number).await?;
    stream.read_u32().await
}

#[test]
fn a_partition_is_survived_with_any_seed() {
    sockeye_sim::run_seeds(0..20, program);
}
