//! The device of the driven stack. It delivers joined segments, but does not segment what the stack sends.
//!
//! A channel supports both or neither. The kernel's device in this crate also supports joined segments only
//! (`kernel/sys.rs`). Tests: every scenario.

use std::time::Duration;

use sockeye::netif::{
    Channel, ChannelConfig, ChannelPort, Netif, Pool, RxFrame, Sent, TxFrame, Waking, channel,
};

use crate::codec::PACKET_MAX;

/// A channel that offers the stack neither checksum nor segmentation offload.
pub struct Device(Channel);

impl Device {
    /// A device, and its other side.
    pub fn new() -> (Self, ChannelPort) {
        let config =
            ChannelConfig { offload: true, segment_max: PACKET_MAX as u32, ..ChannelConfig::default() };
        let (channel, mut ports) = channel(&config).expect("a channel");
        (Self(channel), ports.remove(0))
    }
}

impl Netif for Device {
    fn mtu(&self) -> u32 {
        self.0.mtu()
    }

    fn queue_count(&self) -> usize {
        self.0.queue_count()
    }

    fn offloads_checksum(&self) -> bool {
        false
    }

    fn attached(&self, pool: &Pool) {
        self.0.attached(pool);
    }

    fn wakes_by(&self, waking: &Waking) {
        self.0.wakes_by(waking);
    }

    fn is_down(&self) -> bool {
        self.0.is_down()
    }

    fn transmit(&self, flow: u64, frames: &mut Vec<TxFrame>) -> Sent {
        self.0.transmit(flow, frames)
    }

    fn ring(&self, queue: usize) {
        self.0.ring(queue);
    }

    fn receive(&self, queue: usize, max: usize, sink: &mut dyn FnMut(RxFrame<'_>)) -> usize {
        self.0.receive(queue, max, sink)
    }

    fn wait(&self, queue: usize, spin: Duration) {
        self.0.wait(queue, spin);
    }

    fn interrupt(&self, queue: usize) {
        self.0.interrupt(queue);
    }
}
