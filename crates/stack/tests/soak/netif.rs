//! An interface that carries frames as the one inside it does, and misbehaves now and then.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sockeye::netif::{Netif, RxFrame, Sent, TxFrame, Waited};
use sockeye_mbuf::Pool;

use crate::mischief::Mischief;

/// Calls for each that may misbehave: so few that transfers still arrive.
const ONE_IN: usize = 200;

/// See the module's head. Methods that are called once, or that end a wait, behave: nothing could make up for a failure.
pub struct Unreliable<N> {
    inner: N,
    mischief: Arc<Mischief>,
}

impl<N: Netif> Unreliable<N> {
    pub fn new(inner: N, mischief: &Arc<Mischief>) -> Self {
        Self { inner, mischief: Arc::clone(mischief) }
    }
}

impl<N: Netif> Netif for Unreliable<N> {
    fn mtu(&self) -> u32 {
        self.inner.mtu()
    }
    fn queue_count(&self) -> usize {
        self.inner.queue_count()
    }
    fn offloads_checksum(&self) -> bool {
        self.inner.offloads_checksum()
    }
    fn segment_max(&self) -> u32 {
        self.inner.segment_max()
    }
    fn attached(&self, pool: &Pool) {
        self.inner.attached(pool);
    }
    fn transmit(&self, flow: u64, frames: &mut Vec<TxFrame>) -> Sent {
        self.mischief.sometimes(ONE_IN);
        let sent = self.inner.transmit(flow, frames);
        self.mischief.sometimes(ONE_IN);
        sent
    }
    fn ring(&self, queue: usize) {
        self.inner.ring(queue);
        self.mischief.sometimes(ONE_IN);
    }
    fn receive(&self, queue: usize, max: usize, sink: &mut dyn FnMut(RxFrame<'_>)) -> usize {
        self.mischief.sometimes(ONE_IN);
        let count = self.inner.receive(queue, max, sink);
        self.mischief.sometimes(ONE_IN);
        count
    }
    fn wait(&self, queue: usize, spin: Duration) {
        self.mischief.sometimes(ONE_IN);
        self.inner.wait(queue, spin);
    }
    fn interrupt(&self, queue: usize) {
        self.inner.interrupt(queue);
    }
    fn wait_until(&self, queue: usize, deadline: Option<Instant>) -> Waited {
        self.mischief.sometimes(ONE_IN);
        self.inner.wait_until(queue, deadline)
    }
    fn kick(&self, queue: usize) {
        self.inner.kick(queue);
        self.mischief.sometimes(ONE_IN);
    }
}
