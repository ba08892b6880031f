//! Counters of loss recovery, for diagnosis (as Linux's `TCP_INFO`).
//!
//! They are kept beside the recovery state, and are made with the first repetition: a connection that never repeats
//! anything has none. Tests: with what they count.

use super::super::sack::SackBlock;

/// Repetitions and their reasons. Segments are counted in units of the MSS, a shorter one as one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LossStats {
    /// Segments repeated in fast recovery: found lost by RACK, or by three duplicate acknowledgments.
    pub rexmt_fast: u32,
    /// Segments repeated as tail loss probes.
    pub rexmt_probe: u32,
    /// Segments repeated after the retransmission timer had expired.
    pub rexmt_rto: u32,
    /// Segments repeated in smaller ones, because they were too large for the path.
    pub rexmt_mtu: u32,
    /// Bytes repeated, for whatever reason.
    pub rexmt_bytes: u64,
    /// Fast recoveries begun.
    pub recovery_count: u32,
    /// Expiries of the retransmission timer over data in flight.
    pub rto_count: u32,
    /// Tail loss probes sent, new data included.
    pub probe_count: u32,
    /// Recoveries and timeouts that turned out to be needless, and were undone.
    pub undo_count: u32,
    /// Duplicates that the peer reported (RFC 2883).
    pub dsack_count: u32,
    /// Times that the peer had discarded data that it had acknowledged selectively.
    pub renege_count: u32,
    /// Congestion marks that the peer echoed and for which the window was reduced (RFC 3168), if records are kept.
    pub mark_count: u32,
    /// Bytes delivered, as far as transmission records were kept.
    pub delivered_bytes: u64,
    /// The path was seen to reorder segments.
    pub reordering_seen: bool,
    /// Largest number of segments by which it reordered; 0 if that was not measured.
    pub reordering: u16,
    /// How often the path was seen to reorder.
    pub reordered_count: u32,
    /// Bytes that the peer holds behind holes now.
    pub sacked_bytes: u32,
    /// Bytes believed lost now and not repeated yet.
    pub lost_bytes: u32,
    /// The minimum round trip time of the last minutes, microseconds; 0 if unknown.
    pub min_rtt_us: u32,
}

/// Why something is retransmitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::tcp) enum Why {
    Fast,
    Probe,
    Timeout,
    PathMtu,
}

impl LossStats {
    /// `bytes` are retransmitted.
    pub(in crate::tcp) fn on_rexmt(&mut self, why: Why, bytes: u32, mss: u32) {
        let count = bytes.div_ceil(mss.max(1)).max(1);
        let counter = match why {
            Why::Fast => &mut self.rexmt_fast,
            Why::Probe => &mut self.rexmt_probe,
            Why::Timeout => &mut self.rexmt_rto,
            Why::PathMtu => &mut self.rexmt_mtu,
        };
        *counter = counter.saturating_add(count);
        self.rexmt_bytes += u64::from(bytes);
    }

    /// The peer reports this block as a duplicate. Its segments have arrived, and `arrived` counts them like
    /// others (`tcp_dsack_seen`). False if that would be more than were ever retransmitted.
    pub(super) fn take_duplicate(&mut self, block: SackBlock, mss: u32, arrived: &mut u32) -> bool {
        let count = block.end.since(block.start).div_ceil(mss.max(1)).max(1);
        self.dsack_count = self.dsack_count.saturating_add(count);
        let repeated = [self.rexmt_fast, self.rexmt_probe, self.rexmt_rto, self.rexmt_mtu];
        let is_ours = self.dsack_count <= repeated.into_iter().fold(0, u32::saturating_add);
        if is_ours {
            *arrived += count;
        }
        is_ours
    }
}

/// Counts one more, up to the maximum of the counter: a peer can cause any of these events for as long as it likes.
pub(super) fn count(counter: &mut u32) {
    *counter = counter.saturating_add(1);
}

#[cfg(test)]
mod tests {
    use crate::seq::SeqNum;

    use super::*;

    #[test]
    fn no_more_duplicates_have_arrived_than_were_sent_again() {
        let mut stats = LossStats::default();
        stats.on_rexmt(Why::Fast, 2_000, 1_000);
        stats.on_rexmt(Why::Probe, 1, 1_000);
        let mut arrived = 5;
        let mut take = |start, end| {
            let block = SackBlock { start: SeqNum::new(start), end: SeqNum::new(end) };
            let ours = stats.take_duplicate(block, 1_000, &mut arrived);
            (ours, arrived)
        };
        assert_eq!(take(0, 1_001), (true, 7));
        assert_eq!(take(0, 0), (true, 8));
        assert_eq!(take(0, 1_000), (false, 8));
    }
}
