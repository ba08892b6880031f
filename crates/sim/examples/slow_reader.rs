//! The effect of a slow reader on the writer.
//!
//! A server sends as fast as it is allowed to; a client reads a little each second. Real flow control is at work: the
//! window shuts, is probed, and opens. The test checks that the server holds no more memory than its buffers, however long
//! it runs, and that nothing is lost. `cargo run -p sockeye-sim --example slow_reader [SEED]`.

use std::time::Duration;

use sockeye::Config;
use sockeye_sim::net::{TcpListener, TcpStream};
use sockeye_sim::{HostConfig, LinkConfig, Net, time};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Bytes of each buffer, sent in total, and read each second.
const BUFFER: u32 = 64 << 10;
const TOTAL: usize = 2 << 20;
const PER_SECOND: usize = 16 << 10;

fn main() {
    let seed = std::env::args().nth(1).map_or(Ok(1), |seed| seed.parse()).expect("a seed is a number");
    sockeye_sim::run(seed, program);
}

async fn program(net: Net) {
    let stack = Config { sndbuf: BUFFER, rcvbuf: BUFFER, ..Config::default() };
    let config = HostConfig { stack, ..HostConfig::default() };
    let client = net.host_with("client", config.clone()).expect("the settings are valid");
    let server = net.host_with("server", config).expect("the settings are valid");
    net.link(&client, &server, LinkConfig { loss: 0.001, ..LinkConfig::rtt(Duration::from_millis(30)) });
    let addr = server.at(80);
    server.spawn(async move {
        let listener = TcpListener::bind(addr).await.expect("the port is free");
        let (mut stream, _) = listener.accept().await.expect("a client connects");
        stream.write_all(&vec![7; TOTAL]).await.expect("the client reads on");
    });
    let reader = client.spawn(async move {
        let mut stream = TcpStream::connect(addr).await.expect("the server listens");
        let (mut got, mut part) = (0, vec![0; PER_SECOND]);
        while got < TOTAL {
            time::sleep(Duration::from_secs(1)).await;
            stream.read_exact(&mut part).await.expect("the server continues");
            got += part.len();
        }
    });
    let mut most = 0;
    while !reader.is_finished() {
        time::sleep(Duration::from_millis(250)).await;
        most = most.max(server.stack().map_or(0, |stack| stack.memory_in_use()));
    }
    let traffic = net.traffic();
    println!(
        "{:?}: {most} bytes of the server's memory at most, {} window probes",
        net.now(),
        traffic.probes
    );
    assert!(net.now() >= Duration::from_secs((TOTAL / PER_SECOND) as u64), "the reader sets the pace");
    // A buffer's worth of data, and what fills the packet that the last write has begun, in whole clusters, some of them still with acknowledged bytes
    // in front.
    assert!(most > BUFFER as usize / 2 && most < 5 * BUFFER as usize, "{most} bytes");
}

#[test]
fn a_slow_reader_costs_the_writer_only_its_buffers() {
    sockeye_sim::run_seeds(0..5, program);
}
