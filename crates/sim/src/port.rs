//! A host's interface: the end of the stack that lies in the world.
//!
//! Frames go in and out by function call. Sending asks the world for the way at once; receiving takes from the host's
//! inbox, into which the loop puts arrived packets before it polls the stack. Nothing waits here: the stack has no
//! threads. A port of an earlier life of its host sends nothing and receives nothing. Tests: `tests/`.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use sockeye::netif::{Netif, RxFrame, Sent, TxFrame};

use crate::world::World;

/// See the module's head.
pub(crate) struct Port {
    /// Weak, because the world keeps the stack that keeps this.
    world: Weak<World>,
    host: usize,
    life: u32,
    mtu: u32,
    offload: bool,
    /// Frames that are being received, outside the world's mutex.
    taken: Mutex<VecDeque<TxFrame>>,
}

impl Port {
    pub fn new(world: &Arc<World>, host: usize, life: u32, mtu: u32, offload: bool) -> Self {
        Self { world: Arc::downgrade(world), host, life, mtu, offload, taken: Mutex::default() }
    }
}

impl Netif for Port {
    fn mtu(&self) -> u32 {
        self.mtu
    }

    fn queue_count(&self) -> usize {
        1
    }

    fn offloads_checksum(&self) -> bool {
        self.offload
    }

    fn transmit(&self, _flow: u64, frames: &mut Vec<TxFrame>) -> Sent {
        let sent = Sent { queue: 0, dropped_count: 0 };
        let Some(world) = self.world.upgrade() else {
            frames.clear();
            return sent;
        };
        let mut state = world.lock();
        let host = &state.hosts[self.host];
        if host.life != self.life || host.stack.is_none() {
            // The power is off. Dropping gives memory back, which is not done under the mutex.
            drop(state);
            frames.clear();
            return sent;
        }
        for frame in frames.drain(..) {
            state.send(self.host, frame);
        }
        sent
    }

    fn ring(&self, _queue: usize) {}

    fn receive(&self, _queue: usize, max: usize, sink: &mut dyn FnMut(RxFrame<'_>)) -> usize {
        let mut taken = self.taken.lock();
        if taken.is_empty()
            && let Some(world) = self.world.upgrade()
        {
            let mut state = world.lock();
            let host = &mut state.hosts[self.host];
            if host.life == self.life {
                std::mem::swap(&mut host.inbox, &mut taken);
            }
        }
        let count = taken.len().min(max);
        for frame in taken.drain(..count) {
            sink(frame.received());
        }
        count
    }

    fn wait(&self, _queue: usize, _spin: Duration) {}

    fn interrupt(&self, _queue: usize) {}
}
