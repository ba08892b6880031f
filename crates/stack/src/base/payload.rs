//! Packet memory as the TCP engine sees it: a chain of mbufs that can be cut and joined.
//!
//! A newtype, because the engine's crate and the packet-memory crate know nothing of each other.

use sockeye_mbuf::Chain;
use sockeye_proto::tcp::segment::Payload;

/// A segment's bytes, by reference.
#[derive(Default)]
pub(crate) struct Data(pub Chain);

impl Payload for Data {
    fn len(&self) -> usize {
        self.0.len()
    }
    fn trim_front(&mut self, bytes: usize) {
        self.0.trim_front(bytes);
    }
    fn truncate(&mut self, bytes: usize) {
        self.0.truncate(bytes);
    }
    fn append(&mut self, tail: Self) {
        self.0.append(tail.0);
    }
}
