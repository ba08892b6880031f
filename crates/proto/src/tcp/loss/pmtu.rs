//! The path MTU: routers' reports (RFC 1191, RFC 8201), and discovery by probing (RFC 4821, RFC 8899).
//!
//! | event | action |
//! |---|---|
//! | a router reports a packet too big | full segments become smaller, longer outstanding segments are retransmitted in parts, and the congestion window counts as many segments as before |
//! | the retransmission timer expires after segments above the base were retransmitted for as long as [`BLACK_HOLE_TIMEOUTS`] of the shortest timeouts take | segments become no larger than the base, and half as large each later time; a search begins |
//! | a search is under way, and there is data and room | one segment of a larger size is sent, the *probe* |
//! | the probe is acknowledged | full segments become as large as the probe |
//! | only the probe is lost | it is retransmitted in segments of the proven size, congestion control does not learn of it, and after [`TRIES`] the search continues below its size |
//! | [`RAISE_AFTER`] has passed | the path may have changed: the search restarts, or without a search the largest size is tried |
//!
//! [`PathMtu`] is the search, in bytes of payload. It is in the box of loss recovery, and exists only if the path's MTU is below the link's, or a
//! search may find that it is. It does not depend on packets: the length of IP headers is a setting. An attacker can forge a report by guessing a
//! number in flight (RFC 5927). Segments are then smaller until the report ages, but never below the smallest MTU of the protocol. Tests: here, and
//! `tests/path_mtu.rs`.

use core::ops::ControlFlow;
use core::time::Duration;

use crate::seq::SeqNum;
use crate::time::Instant;

use super::super::cc::{CongestionControl, Phase};
use super::super::events::Transmit;
use super::super::pcb::{Pcb, TIMESTAMPS_LEN};
use super::super::segment::Payload;
use super::super::settings::MtuProbing;
use super::super::state::State;
use super::super::timers::NEVER;
use super::Loss;

/// State of the discovery.
#[derive(Debug)]
pub(in crate::tcp) struct PathMtu {
    /// The largest size that link and peer allow.
    ceiling: u16,
    /// The largest size that the search believes to arrive.
    low: u16,
    /// The largest size that may arrive.
    high: u16,
    /// A search is under way.
    searching: bool,
    /// Probes of the present size that were lost.
    tries: u8,
    probe: Option<MtuProbe>,
    /// When the path counts as new; [`NEVER`] during a search.
    raise_at: Instant,
}

/// A segment that is larger than the sizes known to arrive.
#[derive(Clone, Copy, Debug)]
struct MtuProbe {
    start: SeqNum,
    end: SeqNum,
}

impl PathMtu {
    fn new(ceiling: u16, low: u16, searching: bool) -> Box<Self> {
        let (high, tries, probe, raise_at) = (ceiling, 0, None, NEVER);
        Box::new(Self { ceiling, low, high, searching, tries, probe, raise_at })
    }

    /// The size to try next. The largest first: most paths carry what both ends support.
    fn probe_size(&self) -> Option<u16> {
        let worth = self.searching && self.probe.is_none() && self.high - self.low > SEARCH_END;
        let size = if self.high == self.ceiling { self.high } else { self.low + (self.high - self.low) / 2 };
        worth.then_some(size)
    }

    /// A router reports that nothing larger than `size` arrives.
    fn limit(&mut self, size: u16, now: Instant) {
        self.low = self.low.min(size);
        self.high = size;
        self.settle(now);
    }

    fn on_probe_arrived(&mut self, probe: MtuProbe, now: Instant) {
        self.probe = None;
        self.tries = 0;
        self.low = self.low.max(size_of(probe));
        // A router may have reported it as too large, and set the upper bound below it. The peer's acknowledgment shows that it arrives.
        self.high = self.high.max(self.low);
        self.settle(now);
    }

    fn on_probe_lost(&mut self, probe: MtuProbe, now: Instant) {
        self.probe = None;
        self.tries += 1;
        if self.tries >= TRIES {
            self.tries = 0;
            self.high = self.high.min(size_of(probe) - 1).max(self.low);
        }
        self.settle(now);
    }

    /// The retransmission timer has expired: a probe in flight proves nothing.
    pub(super) fn on_timeout(&mut self) {
        self.probe = None;
    }

    /// Ends the search when the bounds are close enough.
    fn settle(&mut self, now: Instant) {
        if self.high - self.low <= SEARCH_END {
            self.raise_at = now + RAISE_AFTER;
        }
    }
}

/// Bytes of a probe. It is no longer than a segment can be.
fn size_of(probe: MtuProbe) -> u16 {
    u16::try_from(probe.end.since(probe.start)).unwrap_or(u16::MAX)
}

impl<P: Payload> Pcb<P> {
    /// A router on the way, or our own link, has dropped a packet of ours that began with sequence number `seq`, because it carries packets of at
    /// most `mtu` bytes (ICMP "fragmentation needed", ICMPv6 "packet too big"); 0 if the report has no size. The caller must then call
    /// `poll_transmit`.
    ///
    /// True if full segments have become smaller. A report that quotes nothing in flight is ignored (RFC 5927), and so is one of a larger MTU than is
    /// in use. The smallest MTU of IP is the floor.
    pub fn on_packet_too_big(&mut self, seq: SeqNum, mtu: u32, now: Instant) -> bool {
        let now = self.clock(now);
        let in_flight = seq.at_or_after(self.snd_una) && seq.before(self.snd_max);
        if in_flight && self.state == State::SynSent {
            return self.on_syn_too_big(mtu, now);
        }
        if !in_flight || matches!(self.state, State::SynSent | State::SynReceived | State::Closed) {
            return false;
        }
        let size = self.payload_of(mtu);
        let probe = self.loss.as_deref().and_then(|loss| loss.path_mtu.as_deref()?.probe);
        if size >= self.mss {
            // The probe may have been too big: then the search has nearly ended.
            if probe.is_some_and(|probe| probe.start == seq && size_of(probe) > size) {
                self.with_path_mtu(now, |path| path.high = path.high.min(size));
            }
            return false;
        }
        self.with_path_mtu(now, |path| path.limit(size, now));
        self.count_smaller_segments(self.mss.into(), size.into());
        self.mss = size;
        self.resegment(now);
        true
    }

    /// Windows have as many segments as before, of `to` bytes each instead of `from`.
    fn count_smaller_segments(&mut self, from: u32, to: u32) {
        self.cc.on_smaller_segments(from, to);
        let Some(loss) = self.loss.as_deref_mut() else { return };
        loss.usage.on_smaller_segments(from, to);
        loss.prr.on_smaller_segments(from, to);
        if let Some(before) = loss.undo.as_mut().and_then(|undo| undo.before.as_mut()) {
            before.on_smaller_segments(from, to);
        }
    }

    /// The SYN with text was too big. It is retransmitted at once without text, and announces no more than the path carries, as on Linux: the way
    /// back is probably the same. True if the report has changed anything.
    fn on_syn_too_big(&mut self, mtu: u32, now: Instant) -> bool {
        let reported = u16::try_from(mtu).unwrap_or(u16::MAX).max(self.tuning.mtu_min);
        if u32::from(reported) >= self.path_mtu() || !self.fast_open_too_long() {
            return false;
        }
        self.rcv_mss = reported.saturating_sub(self.tuning.headers_len);
        self.tuning.path_mtu = reported;
        self.snd_nxt = self.iss;
        self.spoil_timing();
        self.arm_rexmt(now);
        true
    }

    /// The largest IP packet that the path is known to carry, bytes (`tcpi_pmtu`).
    pub fn path_mtu(&self) -> u32 {
        if self.state == State::SynSent {
            // The peer decides about the MSS; our own SYN announces what we know.
            return u32::from(self.rcv_mss) + u32::from(self.tuning.headers_len);
        }
        u32::from(self.mss) + u32::from(self.options_len()) + u32::from(self.tuning.headers_len)
    }

    /// Options of every segment, bytes.
    pub(in crate::tcp) fn options_len(&self) -> u16 {
        let timestamps = if self.ts_on { TIMESTAMPS_LEN } else { 0 };
        timestamps + self.accecn_len()
    }

    /// From now on segments have options of `len` bytes more: all sizes, which are of payload, become smaller by that.
    pub(in crate::tcp) fn on_longer_options(&mut self, len: u16) {
        let less = |size: u16| size.saturating_sub(len).max(1);
        self.mss = less(self.mss);
        if let Some(path) = self.loss.as_deref_mut().and_then(|loss| loss.path_mtu.as_deref_mut()) {
            (path.ceiling, path.low, path.high) = (less(path.ceiling), less(path.low), less(path.high));
            // A probe in flight was sized without the option.
            path.probe = None;
        }
    }

    /// Payload of a packet of `mtu` bytes, or of the least MTU if that is more.
    fn payload_of(&self, mtu: u32) -> u16 {
        let mtu = u16::try_from(mtu).unwrap_or(u16::MAX).max(self.tuning.mtu_min);
        mtu.saturating_sub(self.tuning.headers_len + self.options_len()).max(1)
    }

    /// The size with which a search begins, bytes of payload; every IPv6 path carries more than Linux's default.
    fn base(&self) -> u16 {
        self.rare.base_mss().max(self.payload_of(0))
    }

    fn with_path_mtu<R>(&mut self, now: Instant, change: impl FnOnce(&mut PathMtu) -> R) -> R {
        let (una, known_us, mss) = (self.snd_una, self.known_round_trip(), self.mss);
        let loss = self.loss.get_or_insert_with(|| Loss::new(una, known_us, now));
        change(loss.path_mtu.get_or_insert_with(|| PathMtu::new(mss, mss, false)))
    }

    /// Outstanding segments that are longer than what the path carries now will not arrive, no matter which of them was reported. They are
    /// retransmitted in parts, with the same window (`tcp_simple_retransmit`).
    fn resegment(&mut self, now: Instant) {
        let (keeps, size) = (self.keeps_records(), u32::from(self.send_mss()));
        let Some(mut loss) = self.loss.take() else { return };
        if let Some(path) = loss.path_mtu.as_deref_mut() {
            path.probe = None;
        }
        if keeps {
            loss.records.lose_longer_than(size);
            // What it marks lost is no longer in flight.
            let (until, at) = (loss.repeated_until, loss.undone_at(now));
            loss.twice_count = loss.twice_count.min(loss.records.repeated_count(until, at));
        }
        // Queued text may now be a full segment; a report is no occasion to look for that.
        loss.is_only_repair = true;
        if keeps && loss.records.lost() > 0 {
            self.spoil_timing();
            match self.recovery.phase() {
                Phase::Open => self.cc.on_resegmented(None, self.mss.into()),
                Phase::Recovery => self.cc.on_resegmented(Some(loss.prr.cwnd()), self.mss.into()),
                Phase::Loss => {}
            }
            self.repair_for_mtu(&mut loss);
        } else if keeps {
            // What is out counts in smaller segments.
            self.allow(&loss);
        }
        self.loss = Some(loss);
        if !keeps {
            self.spoil_timing();
            self.recovery.on_timeout(self.snd_max);
            self.snd_nxt = self.snd_una;
            self.arm_rexmt(now);
        }
    }

    /// Lost data is repaired as after a timeout, but the window stays, because the network is not congested. A tail loss probe that is due is still
    /// sent, unless the first segment is retransmitted.
    pub(super) fn repair_for_mtu(&mut self, loss: &mut Loss) {
        if self.recovery.phase() != Phase::Loss {
            self.recovery.on_timeout(self.snd_max);
            (loss.frto, loss.undo, loss.for_mtu) = (None, None, true);
        }
        (loss.holds_repairs, loss.repeats_one) = (false, false);
        self.allow(loss);
    }

    /// True if only the probe is lost: then its repair begins, and this is no congestion.
    pub(super) fn lost_only_mtu_probe(&mut self, loss: &mut Loss, now: Instant) -> bool {
        let Some(probe) = loss.path_mtu.as_deref().and_then(|path| path.probe) else { return false };
        let lost = loss.records.next_lost();
        let alone =
            lost == Some((probe.start, probe.end)) && loss.records.lost() == probe.end.since(probe.start);
        if let Some(path) = loss.path_mtu.as_deref_mut() {
            if alone {
                path.on_probe_lost(probe, now);
            } else {
                // Other segments are lost as well: the loss of the probe proves nothing.
                path.probe = None;
            }
        }
        if alone {
            self.repair_for_mtu(loss);
        }
        alone
    }

    /// Checks whether the probe has arrived.
    pub(super) fn judge_mtu_probe(&mut self, loss: &mut Loss, now: Instant) {
        let Some(path) = loss.path_mtu.as_deref_mut() else { return };
        let Some(probe) = path.probe.filter(|probe| self.snd_una.at_or_after(probe.end)) else { return };
        path.on_probe_arrived(probe, now);
        self.mss = self.mss.max(path.low);
    }

    /// At the start of a connection: segments no larger than what is known about the path; or a search from the base up, if the setting asks for one
    /// from the start.
    pub(in crate::tcp) fn start_mtu_search(&mut self) {
        let ceiling = self.mss;
        self.begin_with_known_path();
        let base = self.base();
        if self.tuning.mtu_probing != MtuProbing::Always || self.tuning.lossless || base >= self.mss {
            return;
        }
        let mut loss = Loss::new(self.snd_una, self.known_round_trip(), self.clock);
        let path = PathMtu { high: self.mss, ..*PathMtu::new(ceiling, base, true) };
        loss.path_mtu = Some(Box::new(path));
        self.loss = Some(loss);
        self.mss = base;
    }

    /// The MTU that other connections have learned is used for this one, and is doubted after the same time (RFC 8201 section 5.2).
    fn begin_with_known_path(&mut self) {
        let size = self.payload_of(u32::from(self.tuning.path_mtu));
        if self.tuning.path_mtu == 0 || size >= self.mss {
            return;
        }
        let now = self.clock;
        self.with_path_mtu(now, |path| path.limit(size, now));
        self.mss = size;
    }

    /// The retransmission timer has expired in a long repair: large packets may vanish silently (RFC 2923 section 2.1). The first time, segments
    /// become no larger than the base, and each later time half as large (`tcp_mtu_probing`).
    pub(in crate::tcp) fn suspect_black_hole(&mut self, now: Instant) {
        let wanted = match self.tuning.mtu_probing {
            MtuProbing::Off => false,
            MtuProbing::BlackHole | MtuProbing::Always => !self.tuning.lossless,
        };
        let base = self.base();
        let flight = self.snd_max.since(self.snd_una);
        let least = self.payload_of(0);
        if !wanted || flight <= u32::from(base) || self.mss <= least {
            return;
        }
        let mss = self.mss;
        let size = self.with_path_mtu(now, |path| {
            let size = if path.searching { (mss.min(base) / 2).max(least) } else { mss.min(base) };
            path.probe = None;
            (path.searching, path.tries, path.low) = (true, 0, size);
            (path.high, path.raise_at) = (path.ceiling.max(size), NEVER);
            size
        });
        if size < mss {
            self.count_smaller_segments(mss.into(), size.into());
            self.mss = size;
        }
    }

    /// Sends a probe if one is due. `Break(None)` if new data waits until there is room for it.
    pub(super) fn transmit_mtu_probe(
        &mut self,
        rcv_space: u32,
        now: Instant,
    ) -> ControlFlow<Option<Transmit>> {
        let (flight, mss) = (self.flight(), u32::from(self.mss));
        let open = self.recovery.phase() == Phase::Open && self.snd_nxt == self.snd_max;
        let Some(loss) = self.loss.as_deref_mut() else { return ControlFlow::Continue(()) };
        let Some(path) = loss.path_mtu.as_deref_mut() else { return ControlFlow::Continue(()) };
        if path.raise_at <= now {
            path.raise_at = NEVER;
            if path.searching {
                path.high = path.ceiling;
            } else {
                // A router will report if it is too large.
                self.mss = path.ceiling;
                loss.path_mtu = None;
                return ControlFlow::Continue(());
            }
        }
        let Some(size) = path.probe_size() else { return ControlFlow::Continue(()) };
        // Acknowledgments of later data reveal its loss.
        let len = u32::from(size);
        let enough = len + PROBE_FOLLOWERS * mss;
        let cwnd = self.cc.cwnd();
        let unsent = self.snd_len.saturating_sub(flight);
        let is_whole = self.rare.records().is_none_or(|ends| ends.limit(self.snd_nxt, len).0 == len);
        let possible = open && loss.records.sacked() == 0 && unsent >= enough && is_whole;
        if !possible || self.snd_wnd.saturating_sub(flight) < enough || cwnd < enough {
            return ControlFlow::Continue(());
        }
        if cwnd.saturating_sub(flight) < len {
            return ControlFlow::Break(None);
        }
        let start = self.snd_nxt;
        path.probe = Some(MtuProbe { start, end: start + len });
        let usual = core::mem::replace(&mut self.mss, size);
        let mut segment = self.transmit_at_nxt(flight, len, false, rcv_space, now);
        self.mss = usual;
        segment.is_mtu_probe = true;
        ControlFlow::Break(Some(segment))
    }
}

/// The search is over when the bounds are this close, bytes.
const SEARCH_END: u16 = 16;
/// Number of losses of a probe that count as the path's limit: one may be chance.
const TRIES: u8 = 2;
/// Full segments that must follow a probe.
const PROBE_FOLLOWERS: u32 = 4;
/// A repair that takes as long as this many timeouts, from the shortest on, counts as a sign of a black hole, as on Linux (`tcp_retries1`).
pub(in crate::tcp) const BLACK_HOLE_TIMEOUTS: u8 = 3;
/// For how long a path is believed to have a smaller MTU (RFC 1191 section 6.3).
const RAISE_AFTER: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests {
    use super::super::super::cc::{Algorithm, Cc};
    use super::super::super::settings::Settings;
    use super::super::super::tests::script::{Script, plain};
    use super::*;

    const NOW: Instant = Instant::from_micros(1);

    fn probe(size: u16) -> MtuProbe {
        let start = SeqNum::new(7);
        MtuProbe { start, end: start + u32::from(size) }
    }

    /// The sizes that are tried on a path that carries `most`, and the final result.
    fn search(ceiling: u16, low: u16, most: u16) -> (Vec<u16>, u16) {
        let mut path = PathMtu::new(ceiling, low, true);
        let mut tried = Vec::new();
        while let Some(size) = path.probe_size() {
            assert!(size > path.low && size <= path.high && tried.len() < 100, "{path:?}");
            assert_eq!(path.raise_at, NEVER, "the search is on");
            path.probe = Some(probe(size));
            assert_eq!(path.probe_size(), None, "one at a time");
            tried.push(size);
            if size <= most {
                path.on_probe_arrived(probe(size), NOW);
            } else {
                path.on_probe_lost(probe(size), NOW);
            }
        }
        assert_eq!(path.raise_at, NOW + RAISE_AFTER);
        assert!(path.high - path.low <= SEARCH_END && path.low.max(low) == path.low, "{path:?}");
        (tried, path.low)
    }

    #[test]
    fn a_search_ends_just_below_what_the_path_takes() {
        assert_eq!(search(1_460, 500, 1_460), (vec![1_460], 1_460), "the largest first");
        for most in 500..1_460 {
            let (tried, found) = search(1_460, 500, most);
            assert!(found <= most && most - found <= SEARCH_END, "{found} of {most}");
            assert!(tried.iter().all(|size| *size == 1_460 || *size < 1_460 - 1));
            // Each size twice, and half of the rest at a time.
            assert!(tried.len() <= 2 * 8, "{tried:?}");
        }
    }

    #[test]
    fn bounds_that_are_sixteen_bytes_apart_end_the_search() {
        for (apart, goes_on) in [(SEARCH_END + 1, true), (SEARCH_END, false), (0, false)] {
            let mut path = PathMtu::new(1_460, 1_000, true);
            path.limit(1_000 + apart, NOW);
            assert_eq!((path.low, path.high), (1_000, 1_000 + apart));
            assert_eq!(path.probe_size().is_some(), goes_on, "{apart}");
            assert_eq!(path.raise_at == NEVER, goes_on, "{apart}");
        }
        let mut path = PathMtu::new(1_460, 1_000, false);
        assert_eq!(path.probe_size(), None, "nothing is searched for");
        path.limit(900, NOW);
        assert_eq!((path.low, path.high), (900, 900), "less than was believed");
    }

    #[test]
    fn a_probe_that_arrives_is_believed_against_a_router_and_one_loss_is_chance() {
        let mut path = PathMtu::new(1_460, 1_000, true);
        path.limit(1_100, NOW);
        path.on_probe_arrived(probe(1_300), NOW);
        assert_eq!((path.low, path.high, path.tries), (1_300, 1_300, 0));
        let mut path = PathMtu::new(1_460, 1_000, true);
        path.probe = Some(probe(1_460));
        path.on_probe_lost(probe(1_460), NOW);
        assert_eq!((path.high, path.tries, path.probe.is_none()), (1_460, 1, true));
        path.probe = Some(probe(1_460));
        path.on_timeout();
        assert!(path.probe.is_none() && path.tries == 1, "a timeout says nothing");
        path.on_probe_lost(probe(1_460), NOW);
        assert_eq!((path.high, path.tries), (1_459, 0));
    }

    /// Segments of 600 bytes, and a search for up to 1,460.
    fn searching() -> Script {
        let mtu_probing = MtuProbing::Always;
        let settings = Settings { mtu_probing, base_mss: 600, mss: 1_460, sack: true, ..plain() };
        Script::established(&settings)
    }

    fn high(t: &Script) -> u16 {
        t.pcb.loss.as_deref().and_then(|loss| loss.path_mtu.as_deref()).unwrap().high
    }

    #[test]
    fn a_report_of_the_probe_bounds_the_search_and_one_of_another_segment_does_not() {
        for (offset, size, expected) in
            [(0, 1_000, 1_000), (1_460, 1_000, 1_460), (0, 1_460, 1_460), (0, 1_500, 1_460)]
        {
            let mut t = searching();
            let start = t.pcb.snd_una();
            assert_eq!(t.write(8_000)[..2], [1_460, 600]);
            assert!(
                !t.pcb.on_packet_too_big(start + offset, size + 40, t.now),
                "the size in use is not too large"
            );
            assert_eq!((high(&t), t.pcb.mss()), (expected, 600), "{offset} {size}");
        }
    }

    #[test]
    fn a_probe_leaves_where_the_congestion_window_has_just_room() {
        for (flight, cwnd, expected) in [
            (0, 3_860, Some(1_460)),
            (0, 3_859, Some(600)),
            (3_000, 4_460, Some(1_460)),
            (3_000, 4_459, None),
        ] {
            let mut t = searching();
            t.write(flight);
            t.pcb.cc = Cc::new(Algorithm::NewReno, 600, false).with_window(cwnd, 1 << 30);
            assert_eq!(t.write(20_000).first().copied(), expected, "{flight} {cwnd}");
        }
    }

    #[test]
    fn no_probe_leaves_while_something_is_repaired() {
        let mut t = searching();
        t.pcb.recovery.begin(t.pcb.snd_max());
        assert_ne!(t.write(20_000).first(), Some(&1_460));
    }

    /// The base, and half of that if the base did not help.
    #[test]
    fn a_black_hole_makes_segments_no_larger_than_the_base_first() {
        for (mss, base_mss, first, then) in
            [(1_460, 1_024, 1_024, 512), (1_300, 1_300, 1_300, 650), (1_301, 1_300, 1_300, 650)]
        {
            let mut t = Script::established(&Settings { mss, base_mss, ..plain() });
            t.write(4 * u32::from(mss));
            t.pcb.suspect_black_hole(t.now);
            assert_eq!(t.pcb.mss(), first, "{mss} {base_mss}");
            t.pcb.suspect_black_hole(t.now);
            assert_eq!(t.pcb.mss(), then, "{mss} {base_mss}");
        }
    }
}
