//! The data of a TCP stream: one task that sends or receives blocks.
//!
//! Does not depend on the control connection. Invariant: a task counts in its own [`Tally`] and nowhere else; it ends
//! when it is dropped, or the peer closes, or after a whole block once [`Tally::end`] was called: a peer that reads
//! blocks would wait for the rest of one.
//!
//! Tests: with a stock client in `tests/cli/tun.rs`; pacing below.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sockeye::tokio::TcpStream;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Notify;
use tokio::task::coop::consume_budget;
use tokio::time::Instant;

use super::datagrams::Numbers;
use super::protocol::Params;

/// Bytes that all streams of a direction together have to move.
#[derive(Debug)]
pub struct Quota {
    left: AtomicU64,
    reached: Notify,
}

impl Quota {
    /// So many bytes.
    pub fn of(bytes: u64) -> Arc<Self> {
        Arc::new(Self { left: AtomicU64::new(bytes), reached: Notify::new() })
    }

    fn add(&self, bytes: u64) {
        // Relaxed: the notification, which stays, wakes the waiting task.
        let take = |left: u64| Some(left.saturating_sub(bytes));
        let before = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).unwrap_or_default();
        if before > 0 && before <= bytes {
            self.reached.notify_one();
        }
    }

    fn is_reached(&self) -> bool {
        self.left.load(Ordering::Relaxed) == 0
    }

    /// Waits until they are moved. One task waits.
    pub async fn reached(&self) {
        self.reached.notified().await;
    }
}

/// Data that one stream has moved so far.
#[derive(Debug, Default)]
pub struct Tally {
    /// Payload bytes. Relaxed: a number for people.
    bytes: AtomicU64,
    /// Of its direction, if bytes bound the test.
    quota: Option<Arc<Quota>>,
    /// Of a stream of datagrams.
    numbers: Mutex<Numbers>,
    /// No further block is to be sent.
    is_over: AtomicBool,
}

impl Tally {
    /// Of a stream of a test that bytes bound.
    pub fn within(quota: Option<Arc<Quota>>) -> Self {
        Self { quota, ..Self::default() }
    }

    /// Adds a block.
    pub fn add(&self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        if let Some(quota) = &self.quota {
            quota.add(bytes as u64);
        }
    }

    /// All bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Has the sender end after the block that it is at.
    pub fn end(&self) {
        // Relaxed: it guards nothing, and the sender finds it at its next block.
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// Whether no further block is to be sent.
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed) || self.quota.as_ref().is_some_and(|quota| quota.is_reached())
    }

    /// The numbers of its datagrams. Never held across a wait.
    pub fn numbers(&self) -> MutexGuard<'_, Numbers> {
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sets the stream's socket up as the client wants it. Returns a handle for asking about it.
pub fn prepare(stream: &TcpStream, params: &Params) -> io::Result<sockeye::TcpStream> {
    let socket = stream.get_ref();
    socket.set_nodelay(params.nodelay)?;
    if params.window > 0 {
        socket.set_send_buffer_size(params.window)?;
        socket.set_recv_buffer_size(params.window)?;
    }
    socket.try_clone()
}

/// Takes everything.
pub async fn receive(mut stream: TcpStream, params: Arc<Params>, tally: Arc<Tally>) {
    let mut block = vec![0; params.len];
    while let Ok(read @ 1..) = stream.read(&mut block).await {
        tally.add(read);
        consume_budget().await;
    }
}

/// Sends whole blocks, no faster than the client wants.
pub async fn send(mut stream: TcpStream, params: Arc<Params>, tally: Arc<Tally>) {
    let block = vec![b'0'; params.len];
    let mut pace = Pace::new(params.bandwidth);
    while !tally.is_over() {
        let mut left = &block[..];
        while !left.is_empty() {
            let Ok(written @ 1..) = stream.write(left).await else { return };
            tally.add(written);
            left = &left[written..];
            consume_budget().await;
        }
        pace.sent(block.len()).await;
    }
}

/// Holds a sender to a rate.
pub struct Pace {
    /// Bits a second; 0 for no limit.
    rate: u64,
    begun: Instant,
    bits: u64,
}

/// Shorter waits are left to add up: the timer has milliseconds.
const WAIT_MIN: Duration = Duration::from_millis(1);

impl Pace {
    /// From now on at most `rate` bits a second; 0 for no limit.
    pub fn new(rate: u64) -> Self {
        Self { rate, begun: Instant::now(), bits: 0 }
    }

    /// Waits until so much more may have been sent.
    pub async fn sent(&mut self, bytes: usize) {
        self.bits = self.bits.saturating_add(8 * bytes as u64);
        let ahead = self.ahead(self.begun.elapsed());
        if ahead >= WAIT_MIN {
            tokio::time::sleep(ahead).await;
        }
    }

    /// How far ahead of the rate the sender is.
    fn ahead(&self, elapsed: Duration) -> Duration {
        if self.rate == 0 {
            return Duration::ZERO;
        }
        // In f64: bits times nanoseconds would leave 64 bits.
        Duration::from_secs_f64(self.bits as f64 / self.rate as f64).saturating_sub(elapsed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_is_shared_by_all_streams_and_reported_once_when_it_is_reached() {
        let quota = Quota::of(100);
        let [one, other] = [Tally::within(Some(Arc::clone(&quota))), Tally::within(Some(Arc::clone(&quota)))];
        one.add(60);
        other.add(39);
        assert!(!one.is_over() && !other.is_over());
        one.add(7);
        other.add(7);
        assert!(one.is_over() && other.is_over());
        assert_eq!((one.bytes(), other.bytes()), (67, 46));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        // It stays for a late task.
        runtime.block_on(quota.reached());
        assert!(!Tally::default().is_over());
    }

    #[test]
    fn a_sender_is_ahead_by_the_bytes_that_its_rate_does_not_allow_yet() {
        let pace = |rate, bits| Pace { rate, begun: Instant::now(), bits };
        let second = Duration::from_secs(1);
        assert_eq!(pace(1000, 1500).ahead(second), Duration::from_millis(500));
        assert_eq!(pace(1000, 900).ahead(second), Duration::ZERO);
        assert_eq!(pace(0, u64::MAX).ahead(second), Duration::ZERO);
    }
}
