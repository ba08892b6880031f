//! Zero-copy sends over an interface, in packets of few parts.
//!
//! A packet whose text lies in many small parts costs its device more than a copy would. As on Linux (`MAX_SKB_FRAGS`) one has
//! [`PARTS_MAX`] at most: where a zero-copy send brings more that are together shorter than a packet may be, a packet ends behind
//! them, with PSH, like the end of a record. Parts are counted anew in each send. A slice has as many as it has pages of memory.
//! Does not depend on protocols. Tests: below; `tests/tcp/sender.rs`.

use sockeye_mbuf::{Chain, Exhausted, Pool};

use super::sockbuf::Socket;
use super::transfer::{Parts, Source};

/// Parts of one packet, at most.
const PARTS_MAX: usize = 17;
/// Bytes that a packet may have: with as many in them, parts do not matter.
const PACKET_MAX: usize = 1 << 16;

/// A source of which packets have few parts.
pub(super) struct Parted<S> {
    source: S,
    packet: Packet,
}

/// What is left of the packet that is being filled.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Packet {
    bytes: usize,
    /// It ends with them, and others follow.
    ends: bool,
}

impl<S: Source + Parts> Parted<S> {
    pub fn new(source: S) -> Self {
        Self { source, packet: Packet::default() }
    }

    fn begin_packet(&mut self) {
        let bytes = self.source.parts_len(PARTS_MAX);
        self.packet = Packet { bytes, ends: bytes < PACKET_MAX.min(self.source.len()) };
    }
}

impl<S: Source + Parts> Source for Parted<S> {
    const COPIES: bool = S::COPIES;
    const IN_PACKETS: bool = true;
    const LOCKED_MAX: usize = S::LOCKED_MAX;
    type Mark = (S::Mark, Packet);

    fn len(&self) -> usize {
        self.source.len()
    }

    fn most(&mut self, so: &Socket) -> usize {
        if !so.snd.counts_parts() {
            self.packet = Packet::default();
            return self.len();
        }
        if self.packet.bytes == 0 {
            self.begin_packet();
        }
        self.packet.bytes
    }

    fn ends_packet(&self) -> bool {
        self.packet.bytes == 0 && self.packet.ends
    }

    fn take(&mut self, pool: &Pool, bytes: usize, into: &mut Chain) -> Result<(), Exhausted> {
        let before = self.source.len();
        let taken = self.source.take(pool, bytes, into);
        self.packet.bytes = self.packet.bytes.saturating_sub(before - self.source.len());
        taken
    }

    fn mark(&self) -> Self::Mark {
        (self.source.mark(), self.packet)
    }

    fn reset(&mut self, (mark, packet): Self::Mark) {
        self.source.reset(mark);
        self.packet = packet;
    }
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;

    use sockeye_mbuf::PoolConfig;

    use super::super::transfer::Slices;
    use super::*;

    /// The lengths of packets, and whether each ends.
    fn packets(slices: &[IoSlice<'_>]) -> Vec<(usize, bool)> {
        let (pool, mut into) = (Pool::new(PoolConfig::default()), Chain::new());
        let mut source = Parted::new(Slices::new(slices));
        let mut found = Vec::new();
        while source.len() > 0 {
            source.begin_packet();
            let bytes = source.packet.bytes;
            source.take(&pool, bytes, &mut into).unwrap();
            found.push((bytes, source.ends_packet()));
        }
        found
    }

    #[test]
    fn a_packet_ends_behind_seventeen_parts_if_others_follow() {
        assert_eq!(packets(&[IoSlice::new(&[7]); 17]), [(17, false)]);
        assert_eq!(packets(&[IoSlice::new(&[7]); 64]), [(17, true), (17, true), (17, true), (13, false)]);
        assert_eq!(packets(&[IoSlice::new(&[]), IoSlice::new(&[7])]), [(1, false)]);
    }

    #[test]
    fn large_slices_are_cut_by_bytes_alone() {
        let text = vec![7; 300_000];
        assert!(packets(&[IoSlice::new(&text)]).iter().all(|(_, ends)| !ends));
        // Small ones before it end a packet within its first pages.
        let mut slices = vec![IoSlice::new(&text[..1]); 15];
        slices.push(IoSlice::new(&text));
        let found = packets(&slices);
        assert!(found[0].1 && (4_112..=8_207).contains(&found[0].0), "{found:?}");
        assert!(found[1..].iter().all(|(_, ends)| !ends), "{found:?}");
    }

    #[test]
    fn what_is_put_back_belongs_to_its_packet_again() {
        let (pool, mut into) = (Pool::new(PoolConfig::default()), Chain::new());
        let slices = [IoSlice::new(&[7, 7]); 20];
        let mut source = Parted::new(Slices::new(&slices));
        source.begin_packet();
        let mark = source.mark();
        source.take(&pool, 34, &mut into).unwrap();
        assert!(source.ends_packet());
        source.reset(mark);
        assert_eq!((source.packet.bytes, source.ends_packet(), source.len()), (34, false, 40));
    }
}
