//! RACK: how long a segment may be overtaken before it counts as lost (RFC 8985 section 6).
//!
//! Keeps the segment sent latest that is known to have arrived, the minimum round trip time, and how much the path
//! reorders: first not at all, then by a fraction of the minimum round trip time, which grows with every round trip in
//! which the peer reports a needless repetition. It depends on records only through [`Rack::on_delivered`]. Tests:
//! `tests/rack.rs`.

use core::time::Duration;

use crate::seq::SeqNum;
use crate::time::Instant;

use super::super::timers::since_us;
use super::records::{Patience, Record, Sent};

#[derive(Debug)]
pub(in crate::tcp) struct Rack {
    /// RACK.xmit_ts and RACK.end_seq.
    latest: Option<Sent>,
    /// RACK.rtt, microseconds.
    rtt_us: u32,
    /// The end of the segment that made that round trip.
    timed: SeqNum,
    /// RACK.min_RTT, microseconds, and when it was measured; 0 if not yet.
    min_rtt_us: u32,
    min_rtt_at: Instant,
    /// RACK.fack: the highest sequence number that has arrived.
    fack: SeqNum,
    /// The lowest sequence number of an original that arrived after a later one, according to the present
    /// acknowledgment.
    overtaken: Option<SeqNum>,
    /// The largest number of segments by which the path was seen to reorder (`tp->reordering`), and how often
    /// (`tp->reord_seen`).
    pub(super) degree: u16,
    pub(super) reordered_count: u32,
    /// RACK.reo_wnd_mult and RACK.reo_wnd_persist.
    mult: u8,
    persist: u8,
    /// RACK.dsack_round.
    dsack_round: Option<SeqNum>,
    /// RACK.segs_sacked.
    sacked_count: u32,
    /// Something has arrived since an acknowledgment last looked for losses.
    has_news: bool,
}

impl Rack {
    /// `min_rtt_us` is the minimum round trip time until a shorter one is seen (section 6.2 step 1), `rtt_us` is the
    /// latest; 0 if unknown.
    pub fn new(una: SeqNum, (min_rtt_us, rtt_us): (u32, u32), now: Instant) -> Self {
        Self {
            latest: None,
            rtt_us,
            timed: una,
            min_rtt_us,
            min_rtt_at: now,
            fack: una,
            overtaken: None,
            degree: DUP_THRESH,
            reordered_count: 0,
            mult: 1,
            persist: 0,
            dsack_round: None,
            sacked_count: 0,
            has_news: false,
        }
    }

    /// Steps 1 to 3 for one record that an acknowledgment reports. `is_ours` is false if a timestamp shows that an
    /// earlier transmission of the record caused the acknowledgment. Returns the round trip, microseconds, and the end
    /// of its segment, if it is a sample.
    pub fn on_delivered(&mut self, record: &Record, now: Instant, is_ours: bool) -> Option<(u32, SeqNum)> {
        let sent = record.arrived();
        let rtt_us = u32::try_from(since_us(now, sent.at)).unwrap_or(u32::MAX).max(1);
        if record.end.after(self.fack) {
            self.fack = record.end;
        } else if record.end.before(self.fack) && !record.repeated {
            self.note_overtaken(record.start);
        }
        if record.cut > 0 && !record.repeated {
            // As on Linux (`tcp_clean_rtx_queue`), which finds that this segment begins before SND.UNA.
            self.note_overtaken(record.start - record.cut.into());
        }
        // Too early for the repetition: the original has arrived (section 6.2 step 2).
        let too_early = rtt_us < self.min_rtt_us || self.min_rtt_us == 0;
        if record.repeated && (!is_ours || too_early) {
            return None;
        }
        // For each reported record, whether it is the latest or not.
        (self.rtt_us, self.timed, self.has_news) = (rtt_us, record.end, true);
        if self.latest.is_none_or(|latest| latest.before(sent)) {
            self.latest = Some(sent);
        }
        Some((rtt_us, record.end))
    }

    fn note_overtaken(&mut self, start: SeqNum) {
        self.overtaken = Some(self.overtaken.map_or(start, |low| low.min(start)));
    }

    /// The round trip of acknowledged data is the latest, not that of a block in the same segment: Linux processes the
    /// blocks first.
    pub fn keep_round_trip(&mut self, acked: Option<(u32, SeqNum)>) {
        if let Some((rtt_us, end)) = acked {
            (self.rtt_us, self.timed) = (rtt_us, end);
        }
    }

    /// A repair was undone: what is in flight is judged anew (`tcp_undo_cwnd_reduction`).
    pub fn look_again(&mut self) {
        self.has_news = true;
    }

    /// Whether an acknowledgment that is more than plain progress needs a search for losses. Without an arrival,
    /// nothing more was overtaken, and what was overtaken before waits for the timer (`tcp_rack_mark_lost`).
    pub fn take_news(&mut self) -> bool {
        core::mem::take(&mut self.has_news)
    }

    /// A round trip was measured: that of the last segment reported, or by the peer's echo of a timestamp. Notes the minimum of some minutes
    /// (`tcp_update_rtt_min`).
    pub fn on_round_trip(&mut self, rtt_us: u32, now: Instant) {
        let is_old = now.since(self.min_rtt_at) > MIN_RTT_WINDOW;
        if rtt_us <= self.min_rtt_us || self.min_rtt_us == 0 || is_old {
            (self.min_rtt_us, self.min_rtt_at) = (rtt_us, now);
        }
    }

    /// All arrivals of one kind, acknowledged up to `una` or reported by blocks, are noted: measures the reordering among them
    /// (`tcp_check_sack_reordering`).
    pub fn measure_reordering(&mut self, una: SeqNum, mss: u32) {
        self.fack = self.fack.max(una);
        let Some(low) = self.overtaken.take() else { return };
        let segments = self.fack.since(low).div_ceil(mss.max(1)).min(REORDERING_MAX);
        self.degree = self.degree.max(u16::try_from(segments).unwrap_or(u16::MAX));
        self.reordered_count = self.reordered_count.saturating_add(1);
    }

    /// An echo shows that what was retransmitted from `start` on was only late: everything that has arrived had
    /// overtaken it (`tcp_try_undo_partial`).
    pub fn on_late(&mut self, start: SeqNum, una: SeqNum, mss: u32) {
        self.overtaken = Some(start);
        self.measure_reordering(una, mss);
    }

    /// The peer has discarded what it had reported: nothing beyond `una` has arrived.
    pub fn on_renege(&mut self, una: SeqNum) {
        self.fack = una;
    }

    /// SND.UNA has moved, and the peer holds `sacked_count` segments beyond it.
    pub fn on_ack(&mut self, una: SeqNum, sacked_count: u32) {
        self.sacked_count = sacked_count;
        if self.dsack_round.is_some_and(|round| una.at_or_after(round)) {
            self.dsack_round = None;
        }
    }

    /// The peer reports a needless repetition: the reordering window grows, once per round trip (step 4).
    pub fn on_dsack(&mut self, snd_max: SeqNum) {
        if self.dsack_round.is_none() {
            self.dsack_round = Some(snd_max);
            self.mult = self.mult.saturating_add(1);
            self.persist = REO_WND_PERSIST;
        }
    }

    /// A repair has ended. After some repairs without needless repetitions, the reordering window is small again (step
    /// 4).
    pub fn on_recovery_end(&mut self) {
        if self.dsack_round.is_none() {
            self.persist = self.persist.saturating_sub(1);
            if self.persist == 0 {
                self.mult = 1;
            }
        }
    }

    /// True if the path has been seen to reorder.
    pub fn reordering_seen(&self) -> bool {
        self.reordered_count > 0
    }

    /// True if the path was seen to reorder by more segments than the number that indicates a loss.
    pub fn reorders_much(&self) -> bool {
        self.degree > DUP_THRESH
    }

    /// The minimum and the latest round trip, microseconds; 0 before the first.
    pub fn round_trips(&self) -> (u32, u32) {
        (self.min_rtt_us, self.rtt_us)
    }

    /// The minimum was measured at `at` or before, not now.
    pub fn minimum_is_of(&mut self, at: Instant) {
        self.min_rtt_at = at;
    }

    /// The minimum round trip time, microseconds; 0 before the first.
    pub fn min_rtt_us(&self) -> u32 {
        self.min_rtt_us
    }

    /// The basis of detection: the latest arrival, and how long a segment sent before it may be in flight. `None`
    /// before the first arrival.
    pub fn patience(&self, is_repairing: bool, srtt_us: u32) -> Option<(Sent, Patience)> {
        let wait_us = u64::from(self.rtt_us) + u64::from(self.reo_wnd_us(is_repairing, srtt_us));
        self.latest.map(|latest| (latest, Patience { wait_us, timed: self.timed }))
    }

    /// How long a segment may be in flight when the retransmission timer expires, microseconds (section 6.3): a round
    /// trip. Before anything has arrived, the round trip is unknown, and everything is marked lost.
    pub fn patience_of_timeout(&self) -> u64 {
        u64::from(self.rtt_us)
    }

    /// RACK.reo_wnd, microseconds (step 4).
    fn reo_wnd_us(&self, is_repairing: bool, srtt_us: u32) -> u32 {
        if !self.reordering_seen() && (is_repairing || self.sacked_count >= u32::from(DUP_THRESH)) {
            return 0;
        }
        let window = (self.min_rtt_us / 4).saturating_mul(u32::from(self.mult));
        window.min(srtt_us.max(self.min_rtt_us))
    }
}

/// Number of segments behind a hole that indicate a loss, if the path was not seen to reorder.
const DUP_THRESH: u16 = 3;
/// Largest degree of reordering (`tcp_max_reordering`), segments.
pub(super) const REORDERING_MAX: u32 = 300;
/// Number of repairs for which a grown window is kept.
const REO_WND_PERSIST: u8 = 16;
/// A minimum round trip time is forgotten after this: the path may have changed.
const MIN_RTT_WINDOW: Duration = Duration::from_secs(300);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_round_trip_holds_for_five_minutes_since_it_was_last_seen() {
        let at = |secs: u64| Instant::from_micros(secs * 1_000_000);
        let mut rack = Rack::new(SeqNum::new(1), (0, 0), at(0));
        let mut seen = |rtt_us, secs| {
            rack.on_round_trip(rtt_us, at(secs));
            rack.min_rtt_us()
        };
        assert_eq!((seen(20_000, 1), seen(10_000, 2), seen(30_000, 3)), (20_000, 10_000, 10_000));
        assert_eq!((seen(10_000, 202), seen(30_000, 502), seen(30_000, 503)), (10_000, 10_000, 30_000));
    }

    /// RFC 8985 section 6.2 step 4.
    #[test]
    fn a_needless_repetition_widens_the_reordering_window_for_sixteen_repairs() {
        let mut rack = Rack::new(SeqNum::new(1), (20_000, 20_000), Instant::ZERO);
        rack.on_late(SeqNum::new(1), SeqNum::new(100), 100);
        assert_eq!(rack.reo_wnd_us(false, 20_000), 5_000);
        rack.on_dsack(SeqNum::new(100));
        rack.on_dsack(SeqNum::new(100));
        assert_eq!(rack.reo_wnd_us(false, 20_000), 10_000, "once a round trip");
        rack.on_recovery_end();
        rack.on_ack(SeqNum::new(100), 0);
        for _ in 0..15 {
            rack.on_recovery_end();
            assert_eq!(rack.reo_wnd_us(false, 20_000), 10_000);
        }
        rack.on_recovery_end();
        assert_eq!(rack.reo_wnd_us(false, 20_000), 5_000);
    }

    fn record(start: u32, repeated: bool) -> Record {
        let start = SeqNum::new(start);
        Record { segment: 100, repeated, ..Record::sent(start, start + 100, Instant::from_micros(1_000), 0) }
    }

    /// As on Linux, and not as RFC 8985 section 6.2 step 3 says: all that is acknowledged with the rest has overtaken it.
    #[test]
    fn the_rest_of_a_cut_segment_has_been_overtaken() {
        for (cut, repeated, degree) in [(0, false, 3), (40, false, 5), (40, true, 3), (140, false, 6)] {
            let mut rack = Rack::new(SeqNum::new(200), (20_000, 20_000), Instant::ZERO);
            let rest = Record { cut, ..record(200, repeated) };
            let _ = rack.on_delivered(&rest, Instant::from_micros(50_000), true);
            rack.measure_reordering(SeqNum::new(650), 100);
            assert_eq!((rack.degree, rack.reordering_seen()), (degree, degree > 3), "{cut} {repeated}");
        }
    }

    /// RFC 8985 section 6.2 step 3.
    #[test]
    fn an_original_behind_a_later_one_has_been_overtaken() {
        for (start, repeated, seen) in
            [(100, false, true), (100, true, false), (200, false, false), (300, false, false)]
        {
            let mut rack = Rack::new(SeqNum::new(100), (20_000, 20_000), Instant::ZERO);
            let _ = rack.on_delivered(&record(200, false), Instant::from_micros(50_000), true);
            let _ = rack.on_delivered(&record(start, repeated), Instant::from_micros(50_000), true);
            rack.measure_reordering(SeqNum::new(100), 100);
            assert_eq!(rack.reordering_seen(), seen, "{start} {repeated}");
        }
    }

    /// Step 2: else the original has arrived.
    #[test]
    fn a_repetition_that_arrives_after_the_least_round_trip_counts() {
        for (rtt_us, ours, counts) in [(19_999, true, false), (20_000, true, true), (20_000, false, false)] {
            let mut rack = Rack::new(SeqNum::new(100), (20_000, 20_000), Instant::ZERO);
            let _ = rack.on_delivered(&record(100, true), Instant::from_micros(1_000 + rtt_us), ours);
            assert_eq!(rack.patience(false, 20_000).is_some(), counts, "{rtt_us} {ours}");
        }
    }
}
