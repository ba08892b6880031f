//! Loss recovery for connections whose path may lose segments: RACK-TLP (RFC 8985) over a scoreboard (RFC 6675),
//! NewReno if the peer has no SACK, proportional rate reduction, and undoing needless repairs.
//!
//! | file | content |
//! |---|---|
//! | `records.rs` | the time of each transmission, and the peer's reports on it; in segments, `records/segments.rs` |
//! | `rack.rs` | how long a segment may be overtaken |
//! | `reno.rs` | what duplicate acknowledgments mean if the peer has no SACK |
//! | `renege.rs` | a peer that may have discarded what it had reported |
//! | `prr.rs` | how much may be sent during fast recovery |
//! | `undo.rs` | spurious recoveries: Eifel, D-SACK, F-RTO |
//! | `rate.rs` | delivery rate samples |
//! | `pacing.rs` | when the next segment may be sent |
//! | `pmtu.rs` | how large a segment may be |
//! | `stats.rs` | counters |
//! | `ack.rs`, `send.rs`, `timers.rs` | the pcb's part: acknowledgments, repetitions, timers |
//!
//! All state is in one box. It is made when data is first sent or repeated, and freed when nothing has been in flight
//! for [`TRIM_AFTER`] and the pace of what was sent is over. If it has learnt or counted something worth keeping, or the congestion
//! control algorithm counts what was delivered, only its queues are freed. The least and the latest round trip are kept in any case (`rtt.rs`). A connection whose path loses nothing (`Settings::lossless`) keeps
//! no records: `recovery.rs` alone handles its losses, and the box, if there is one, only counts.
//!
//! The phases are those of `recovery.rs`: Open; Recovery, from the first loss found until everything is acknowledged
//! that was outstanding then; Loss, the same from an expiry of the retransmission timer. While records are kept,
//! SND.NXT does not move back in any of them, and the ranges marked Lost are retransmitted. Tests: `tests/sack.rs`,
//! `tests/reno.rs`, `tests/rack.rs`, `tests/undo.rs`, `tests/hostile.rs`, and with each file.

mod ack;
mod pacing;
mod pmtu;
mod prr;
mod rack;
mod rate;
mod records;
mod renege;
mod reno;
mod send;
pub mod stats;
mod timers;
mod undo;

pub(super) use pmtu::BLACK_HOLE_TIMEOUTS;

use core::time::Duration;

use crate::seq::SeqNum;
use crate::time::Instant;

use super::cc::Usage;
use super::delack::low_micros;
use super::timers::NEVER;
use pacing::Pacing;
use pmtu::PathMtu;
use prr::Prr;
use rack::Rack;
use rate::Rate;
use records::Records;
use stats::LossStats;
use undo::{Frto, Undo};

/// The state of loss recovery.
#[derive(Debug)]
pub(super) struct Loss {
    pub(super) records: Records,
    rack: Rack,
    prr: Prr,
    usage: Usage,
    undo: Option<Undo>,
    frto: Option<Frto>,
    probe: Option<Probe>,
    rate: Rate,
    pub(super) pacing: Pacing,
    /// When a segment that may only have been overtaken is marked lost (RACK's reordering timer).
    reorder_at: Instant,
    /// When a tail loss probe is due.
    probe_at: Instant,
    /// When the memory is freed.
    trim_at: Instant,
    /// A tail loss probe is to be sent.
    probe_now: bool,
    /// No round trip was measured since the last probe. Until one is, no other probe is sent: probes sent before the
    /// acknowledgment of the original would keep SRTT from learning that the path has become longer (section 7.3).
    probe_unmeasured: bool,
    /// A sign of disorder has arrived, and something retransmitted may still be in flight (Linux's state of that name).
    is_disordered: bool,
    /// New text was sent since the use of the window was last checked.
    has_sent: bool,
    /// The next output checks the use of the window even if it sends no new text, because something has happened for
    /// which the kernel looks for something to send. Timers are no such thing, nor is anything that causes only an
    /// acknowledgment.
    is_looked_at: bool,
    /// The same of the output that has just ended.
    was_looked_at: bool,
    /// The present output follows a timer of retransmission or reordering: it sends nothing new
    /// (`tcp_retransmit_timer`, `tcp_rack_reo_timeout`).
    is_only_repair: bool,
    /// The present output follows a retransmission timeout: it repeats one segment. If that joined others and so made
    /// room, the next acknowledgment uses it (`tcp_retransmit_timer`).
    repeats_one: bool,
    /// That output has ended. New data for which it left room waits until something happens for which the kernel looks
    /// for something to send.
    waits_for_look: bool,
    /// The end of what was retransmitted, except by probes.
    repeated_until: SeqNum,
    /// TSval of the first repetition that may still be in flight, except probes (`retrans_stamp`).
    repeated_ts: Option<u32>,
    /// Segments that were retransmitted needlessly, and of which neither transmission is known to have arrived: before
    /// [`undone_at`](Self::undone_at).
    twice_count: u32,
    /// When a repair was last undone, the low part of the microseconds.
    undone_us: u32,
    /// Segments that duplicate acknowledgments stand for, if the peer has no SACK.
    stood_for: u32,
    /// The present repair, which works as after a timeout, is of segments that were too large.
    for_mtu: bool,
    /// Nothing is repaired until the next acknowledgment, or a timeout: the peer may have discarded data that it had
    /// reported, or what was repaired was not lost, or a timeout has repeated its segment.
    holds_repairs: bool,
    /// State of path MTU discovery, if the MTU is in question.
    path_mtu: Option<Box<PathMtu>>,
    pub(super) stats: LossStats,
}

/// A tail loss probe in flight.
#[derive(Clone, Copy, Debug)]
struct Probe {
    /// TLP.end_seq.
    end: SeqNum,
    /// TLP.is_retrans: it carried nothing new.
    repeats: bool,
    /// How many numbers it repeats, that of a FIN among them.
    len: u16,
}

impl Loss {
    /// `min_rtt_us`: the least round trip time, `rtt_us`: the latest of a segment; 0 if unknown (`Pcb::known_round_trip`).
    pub(super) fn new(una: SeqNum, (min_rtt_us, rtt_us): (u32, u32), now: Instant) -> Box<Self> {
        Box::new(Self {
            records: Records::new(una),
            rack: Rack::new(una, (min_rtt_us, rtt_us), now),
            prr: Prr::new(0),
            usage: Usage::new(una, now),
            undo: None,
            frto: None,
            probe: None,
            rate: Rate::new(now),
            pacing: Pacing::new(),
            reorder_at: NEVER,
            probe_at: NEVER,
            trim_at: NEVER,
            probe_now: false,
            probe_unmeasured: false,
            is_disordered: false,
            has_sent: false,
            is_looked_at: false,
            was_looked_at: false,
            is_only_repair: false,
            repeats_one: false,
            waits_for_look: false,
            repeated_until: una,
            repeated_ts: None,
            twice_count: 0,
            undone_us: 0,
            stood_for: 0,
            for_mtu: false,
            holds_repairs: false,
            path_mtu: None,
            stats: LossStats::default(),
        })
    }

    /// The window of the present fast recovery.
    pub(super) fn recovery_cwnd(&self) -> u32 {
        self.prr.cwnd()
    }

    /// A repair begins, and `undo` stores the state before it. The peer may also report earlier retransmissions, if
    /// they are still in flight (`tcp_init_undo`).
    fn begin_undo(&mut self, undo: Undo) {
        let probe = self.probe.filter(|probe| probe.repeats).map_or(0, |probe| u32::from(probe.len));
        let others = self.records.repeated_len(self.repeated_until);
        self.undo = Some(undo.with_unreported(probe.saturating_add(others)));
    }

    /// The handshake has ended after text was sent: this was its round trip, microseconds.
    pub(super) fn note_handshake(&mut self, rtt_us: u64, now: Instant) {
        self.rack.on_round_trip(u32::try_from(rtt_us).unwrap_or(u32::MAX), now);
    }

    /// A pause has reduced the window.
    pub(super) fn restart_usage(&mut self, now: Instant) {
        self.usage.restart(now);
    }

    /// The congestion control algorithm has changed: the old state must not be restored.
    pub(super) fn forget_undo(&mut self) {
        self.undo = None;
    }

    /// The kernel `looks` for something to send, or does not. One time before an output is enough.
    fn note_look(&mut self, looks: bool) {
        self.is_looked_at |= looks;
    }

    /// Whether the next end of output checks the use of the window: a segment or a call has made it look for something
    /// to send.
    pub(in crate::tcp) fn is_looked_at(&self) -> bool {
        self.is_looked_at
    }

    /// Whether only lost data may be sent.
    fn sends_only_repairs(&mut self) -> bool {
        self.waits_for_look &= !self.is_looked_at;
        self.is_only_repair || self.waits_for_look
    }

    /// The output that follows a timer has sent all that it may.
    fn end_repair_only(&mut self) {
        self.waits_for_look |= self.is_only_repair;
        self.is_only_repair = false;
    }

    /// The same. Returns whether it may send nothing else.
    fn ends_repair_only(&mut self) -> bool {
        let ends = self.sends_only_repairs();
        self.end_repair_only();
        ends
    }

    /// Output has ended: what comes next is judged anew.
    pub(super) fn end_output(&mut self) {
        self.was_looked_at = core::mem::take(&mut self.is_looked_at);
    }

    /// Whether the output that has just ended has looked for something to send.
    pub(in crate::tcp) fn was_looked_at(&self) -> bool {
        self.was_looked_at
    }

    /// What was sent last fills a small window: it gets no tail loss probe, and says nothing about the use of the
    /// congestion window, which the next write checks.
    pub(super) fn note_window_probe(&mut self) {
        (self.probe_at, self.has_sent, self.is_looked_at) = (NEVER, false, false);
        self.usage.is_untold = true;
    }

    /// The timestamp that the first repetition of the present repair had, or would have had.
    pub(in crate::tcp) fn repeated_ts(&self) -> Option<u32> {
        self.repeated_ts
    }

    /// The earliest of its timers.
    pub(super) fn deadline(&self) -> Instant {
        self.reorder_at.min(self.probe_at).min(self.trim_at).min(self.pacing.deadline())
    }

    /// The earliest of the timers that retransmit something.
    pub(super) fn rexmt_deadline(&self) -> Instant {
        self.reorder_at.min(self.probe_at)
    }

    /// True if new data must wait for repetitions, or for pacing.
    pub(super) fn holds_new_data(&self) -> bool {
        self.pacing.is_waiting() || (self.has_repairs() && !self.tries_new_data())
    }

    /// True if something lost must be retransmitted. If something is in flight twice, that may be it: the same amount
    /// of lost data is not retransmitted yet (`retrans_out` and `lost_out` in `tcp_xmit_retransmit_queue`).
    pub(super) fn has_repairs(&self) -> bool {
        !self.holds_repairs && self.records.counts().lost > self.twice_count
    }

    /// A round trip was measured.
    pub(super) fn note_round_trip(&mut self) {
        self.probe_unmeasured = false;
    }

    /// True if an acknowledgment that does not move SND.UNA may report earlier data although nothing is in flight:
    /// blocks may report something that has arrived twice, and the acknowledgment may be of the last tail loss probe.
    pub(super) fn looks_back(&self, has_blocks: bool) -> bool {
        has_blocks || self.probe.is_some()
    }

    /// True if pacing holds back data that could be sent.
    pub(super) fn is_paced(&self) -> bool {
        self.pacing.is_waiting()
    }

    /// F-RTO sends new data before it repeats more than the first segment.
    fn tries_new_data(&self) -> bool {
        self.frto.is_some_and(|frto| frto.tries_new_data)
    }

    /// F-RTO sends new data because of the acknowledgment that has just arrived: even a short segment does not wait.
    pub(super) fn pushes_new_data(&self) -> bool {
        self.frto.is_some_and(|frto| frto.pushes)
    }

    /// Whether another write must be told although text waits: for the use of the window.
    pub(super) fn is_untold(&self) -> bool {
        self.usage.is_untold
    }

    /// Bytes believed to be in the network, of `flight` outstanding bytes (RFC 6675's pipe).
    pub(super) fn pipe(&self, flight: u32) -> u32 {
        flight.saturating_sub(self.records.sacked()).saturating_sub(self.records.lost())
    }

    /// The same in the congestion window's units: whole segments of `mss` bytes, also for short ones; segments in
    /// flight twice count twice.
    pub(super) fn window_pipe(&self, mss: u32) -> u32 {
        let out = self.records.counts().flying.saturating_sub(self.stood_for);
        out.saturating_add(self.twice_count).saturating_mul(mss)
    }

    /// True if this state is worth keeping when nothing is in flight.
    fn is_worth_keeping(&self) -> bool {
        self.rack.reordering_seen() || self.path_mtu.is_some() || self.stats != LossStats::default()
    }

    /// When a repair was last undone, if that was within the last hour: nothing stays in flight that long.
    fn undone_at(&self, now: Instant) -> Instant {
        let age_us = low_micros(now).wrapping_sub(self.undone_us);
        Instant::from_micros(now.as_micros().saturating_sub(age_us.into()))
    }

    /// True if something that was lost and retransmitted is outstanding. If so when a repair ends, it was lost during
    /// the repair: a second sign of congestion, which begins another repair (RFC 6675 section 5;
    /// `tcp_fastretrans_alert`).
    #[cold]
    fn has_repairs_out(&mut self, now: Instant) -> bool {
        let undone_at = self.undone_at(now);
        let mut count = |at| self.records.repeated_count(self.repeated_until, at);
        count(now) > count(undone_at)
    }

    /// True if a retransmission other than a probe is outstanding, or if the first segment was retransmitted
    /// (`tcp_any_retrans_done`).
    fn has_repeats(&self, una: SeqNum) -> bool {
        self.repeated_until.after(una) || self.records.first().is_some_and(|first| first.repeated)
    }

    /// True if unexplained signs of disorder have arrived.
    pub(super) fn is_disordered(&self) -> bool {
        self.is_disordered
    }

    /// The minimum round trip time, microseconds; 0 before the first.
    pub(super) fn min_rtt_us(&self) -> u32 {
        self.rack.min_rtt_us()
    }

    pub(super) fn stats(&self) -> LossStats {
        LossStats {
            delivered_bytes: self.rate.delivered(),
            reordering_seen: self.rack.reordering_seen(),
            reordering: self.rack.degree,
            reordered_count: self.rack.reordered_count,
            sacked_bytes: self.records.sacked(),
            lost_bytes: self.records.lost(),
            min_rtt_us: self.rack.min_rtt_us(),
            ..self.stats
        }
    }
}

/// How long nothing must be in flight before the memory of transmission records is freed.
const TRIM_AFTER: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use core::num::NonZeroU64;

    use super::*;

    const MSS: u32 = 1000;

    /// Ten segments are in flight.
    fn begun() -> Box<Loss> {
        let una = SeqNum::new(u32::MAX - 2_500);
        let mut loss = Loss::new(una, (10_000, 0), Instant::ZERO);
        loss.records.sent(una, una + 10 * MSS, Instant::ZERO, 0);
        loss
    }

    #[test]
    fn new_data_waits_for_the_pace_and_for_repairs_unless_it_is_to_decide() {
        for (is_paced, is_lost, tries, holds) in [
            (false, false, false, false),
            (true, false, false, true),
            (true, false, true, true),
            (false, true, false, true),
            (false, true, true, false),
            (true, true, true, true),
            (false, false, true, false),
        ] {
            let mut loss = begun();
            if is_paced {
                loss.pacing.on_sent(10 * MSS, MSS, NonZeroU64::MIN, Instant::ZERO);
                assert!(!loss.pacing.may_send(Instant::ZERO));
            }
            if is_lost {
                loss.records.lose_all();
            }
            loss.frto = Some(Frto { recover: SeqNum::default(), tries_new_data: tries, pushes: false });
            assert_eq!(loss.holds_new_data(), holds, "{is_paced} {is_lost} {tries}");
            assert_eq!((loss.is_paced(), loss.has_repairs()), (is_paced, is_lost));
            loss.frto = None;
            assert_eq!(loss.holds_new_data(), is_paced || is_lost);
        }
    }

    #[test]
    fn as_much_as_is_out_twice_is_no_repair() {
        let mut loss = begun();
        loss.records.lose_all();
        let lost = loss.records.counts().lost;
        for (twice_count, holds_repairs, has) in [
            (0, false, true),
            (lost - 1, false, true),
            (lost, false, false),
            (lost + 1, false, false),
            (0, true, false),
        ] {
            (loss.twice_count, loss.holds_repairs) = (twice_count, holds_repairs);
            assert_eq!(loss.has_repairs(), has, "{twice_count} {holds_repairs}");
        }
    }

    #[test]
    fn the_round_trip_that_is_known_at_first_is_the_least() {
        assert_eq!((begun().min_rtt_us(), begun().stats().min_rtt_us), (10_000, 10_000));
    }
}
