//! Stands in the place of an interface in a child of fork(2): one that is gone.
//!
//! The interface itself is the parent's. Nothing of it is called in the child, so nothing is read from its descriptors,
//! written to them, or signalled. Tests: `crates/drivers/tests/fork`.

use std::time::Duration;

use super::table::Netifs;
use super::{Netif, NetifId, RxFrame, Sent, TxFrame};

impl Netifs {
    /// Has nothing of the interfaces that there are called any more, in a child of fork(2) that they do not belong to.
    /// Returns them.
    pub fn detach(&self) -> Vec<NetifId> {
        self.each().map(|(id, device)| (id, device.detach()).0).collect()
    }
}

/// See the module's head.
pub(super) struct Detached;

impl Netif for Detached {
    fn mtu(&self) -> u32 {
        // Of a way that takes nothing: the least that IPv6 allows.
        1280
    }

    fn queue_count(&self) -> usize {
        0
    }

    fn offloads_checksum(&self) -> bool {
        false
    }

    fn is_down(&self) -> bool {
        true
    }

    fn transmit(&self, _flow: u64, frames: &mut Vec<TxFrame>) -> Sent {
        Sent { queue: 0, dropped_count: frames.drain(..).count() }
    }

    fn ring(&self, _queue: usize) {}

    fn receive(&self, _queue: usize, _max: usize, _sink: &mut dyn FnMut(RxFrame<'_>)) -> usize {
        0
    }

    fn wait(&self, _queue: usize, _spin: Duration) {}

    fn interrupt(&self, _queue: usize) {}
}
