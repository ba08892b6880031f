//! The interface between the stack and the script: whole IP packets in two queues.
//!
//! Unlike `sockeye::netif::channel` it takes packets longer than the MTU, as a script may inject what a device has joined. Outgoing packets are
//! complete: the stack writes checksums and cuts at the MTU. Invariant: they are in the order in which the stack sent them, and none is dropped.
//! Tests: `tests/interface.rs`.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sockeye::netif::{Netif, RxFrame, Sent, TxFrame};

/// Both queues.
#[derive(Default)]
pub(crate) struct Queues {
    inward: Mutex<VecDeque<Vec<u8>>>,
    outward: Mutex<Vec<Vec<u8>>>,
    /// The device's queue takes nothing. Relaxed: the thread that sets it runs the stack.
    drops: AtomicBool,
}

/// The stack's side.
pub(crate) struct Wire {
    queues: Arc<Queues>,
    mtu: u32,
}

impl Queues {
    /// Gives the stack a packet.
    pub fn inject(&self, packet: Vec<u8>) {
        locked(&self.inward).push_back(packet);
    }

    /// Whether the device drops what it is given.
    pub fn set_drops(&self, drops: bool) {
        self.drops.store(drops, Ordering::Relaxed);
    }

    /// Takes what the stack has sent.
    pub fn take_sent(&self) -> Vec<Vec<u8>> {
        std::mem::take(&mut locked(&self.outward))
    }
}

impl Wire {
    /// An interface with this MTU, and its queues.
    pub fn new(mtu: u32) -> (Self, Arc<Queues>) {
        let queues = Arc::new(Queues::default());
        (Self { queues: Arc::clone(&queues), mtu }, queues)
    }
}

impl Netif for Wire {
    fn mtu(&self) -> u32 {
        self.mtu
    }

    fn queue_count(&self) -> usize {
        1
    }

    /// Packetdrill does not look at the checksums of TCP, and a device of Linux for which scripts are written completes them.
    fn offloads_checksum(&self) -> bool {
        true
    }

    fn transmit(&self, _flow: u64, frames: &mut Vec<TxFrame>) -> Sent {
        if self.queues.drops.load(Ordering::Relaxed) {
            return Sent { queue: 0, dropped_count: frames.drain(..).count() };
        }
        let mut outward = locked(&self.queues.outward);
        for frame in frames.drain(..) {
            let mut packet = vec![0; frame.len()];
            let _ = frame.copy_to(&mut packet);
            outward.push(packet);
        }
        Sent { queue: 0, dropped_count: 0 }
    }

    fn ring(&self, _queue: usize) {}

    fn receive(&self, _queue: usize, max: usize, sink: &mut dyn FnMut(RxFrame<'_>)) -> usize {
        let mut count = 0;
        while count < max {
            // Not held during the call: it may send.
            let Some(packet) = locked(&self.queues.inward).pop_front() else { break };
            sink(RxFrame::new(&packet, &Default::default()));
            count += 1;
        }
        count
    }

    /// Never called: a stack without workers has no input threads.
    fn wait(&self, _queue: usize, _spin: Duration) {}

    fn interrupt(&self, _queue: usize) {}
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
