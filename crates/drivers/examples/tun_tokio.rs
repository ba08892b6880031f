//! A stack behind a TUN device that a runtime of tokio drives, without a thread of its own: `tun_tokio [DEVICE]`.
//!
//! An echo server at 10.9.0.2 port 7, a task for each connection. The driver of the stack is a task like these: a packet is read from the device on
//! the thread on which the task that it is for runs next.
//!
//! Needs root (CAP_NET_ADMIN). Tests: `tests/driver.rs`.

use std::io;
use std::sync::Arc;

use sockeye::netif::Prefix;
use sockeye::tokio::{Driver, TcpListener};
use sockeye::{Config, Stack};
use sockeye_drivers::{Tun, TunConfig};
use tokio::sync::Semaphore;

/// The kernel's address on the device, and ours.
pub const KERNEL: &str = "10.9.0.1/24";
/// Likewise.
pub const SERVER: &str = "10.9.0.2/24";
/// Most connections; more wait in the listener's queue.
const CONNECTIONS_MAX: usize = 1024;

#[allow(dead_code, reason = "a test calls `open` and `serve` instead")]
fn main() -> io::Result<()> {
    let device = std::env::args().nth(1).unwrap_or_default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let tun = open(&TunConfig { name: device, ..TunConfig::default() })?;
        println!("echo on 10.9.0.2:7 through {}", tun.link().name());
        let stack = Stack::new(Config { workers: 0, ..Config::default() })?;
        stack.attach(tun, &[prefix(SERVER)?])?;
        let listener = TcpListener::bind_on(&stack, (prefix(SERVER)?.addr(), 7)).await?;
        tokio::select! {
            served = serve(listener) => served,
            driven = Driver::new(&stack)? => driven,
        }
    })
}

/// A device that has the kernel's address.
pub fn open(config: &TunConfig) -> io::Result<Tun> {
    let tun = Tun::open(config)?;
    tun.link().add_addr(prefix(KERNEL)?)?;
    Ok(tun)
}

/// An address with its network.
pub fn prefix(text: &str) -> io::Result<Prefix> {
    text.parse().map_err(io::Error::other)
}

/// Sends back what each connection receives, until the listener fails.
pub async fn serve(listener: TcpListener) -> io::Result<()> {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let place = Arc::clone(&room).acquire_owned().await.map_err(io::Error::other)?;
        let (mut stream, _) = listener.accept().await?;
        tokio::spawn(async move {
            let (mut reader, mut writer) = stream.split();
            // The client has gone, or is done.
            if tokio::io::copy(&mut reader, &mut writer).await.is_ok() {
                let _ = tokio::io::AsyncWriteExt::shutdown(&mut writer).await;
            }
            drop(place);
        });
    }
}
