//! Needless repairs: how they are detected, and how they are undone.
//!
//! There are three signs. An acknowledgment that moves SND.UNA echoes a timestamp from before the first repetition: the
//! original had arrived (Eifel, RFC 3522). The peer reports every repetition as a duplicate (D-SACK, RFC 3708), however
//! late. After a timeout, something that was sent before it, and only once, turns out to have arrived (F-RTO with SACK,
//! RFC 5682 section 3). Then the old state of congestion control is restored (in the spirit of RFC 4015: the whole
//! window, because it was in use), and the data marked lost counts as in flight. During a fast recovery, an echo has
//! this effect only when everything retransmitted has arrived; after a timeout, reports have it only with an
//! acknowledgment of more (both as on Linux).
//!
//! [`Frto`] decides after a timeout: only the first segment is repeated. When it is acknowledged, new data is sent, and
//! the next acknowledgment decides. Tests: `tests/undo.rs`, and below.

use crate::seq::SeqNum;
use crate::time::Instant;

use super::super::cc::{Cc, CongestionControl, Phase};
use super::super::delack::low_micros;
use super::super::pcb::Pcb;
use super::super::segment::{Payload, Timestamps};
use super::super::timestamp;
use super::Loss;
use super::ack::Report;
use super::stats::count;

/// The state before the present or latest repair.
#[derive(Clone, Debug)]
pub(in crate::tcp) struct Undo {
    /// Congestion control before it; `None` if a mark was echoed meanwhile: the window then stays reduced, even if the
    /// repair was needless.
    pub before: Option<Cc>,
    /// SND.UNA when it began.
    marker: SeqNum,
    /// End of the data in flight then, and later of the data in flight at its end: a duplicate of later data says
    /// nothing about the repair.
    until: SeqNum,
    /// Bytes repeated that the peer has not reported as duplicates.
    unreported: u32,
    /// Bytes repeated that it has.
    reported: u32,
}

impl Undo {
    pub fn new(before: Cc, marker: SeqNum, until: SeqNum) -> Self {
        Self { before: Some(before), marker, until, unreported: 0, reported: 0 }
    }

    /// The same if this many retransmitted bytes are still in flight.
    pub fn with_unreported(self, bytes: u32) -> Self {
        Self { unreported: bytes, ..self }
    }

    /// `bytes` are retransmitted.
    pub fn on_rexmt(&mut self, bytes: u32) {
        self.unreported = self.unreported.saturating_add(bytes);
    }

    /// The peer has received `start` to `end` twice. True if that range was in flight in the repair, and some
    /// repetitions are still unreported. It counts as the report of a repetition unless the range `was_sent_once`
    /// (`tcp_sacktag_one`).
    pub fn on_dsack(&mut self, start: SeqNum, end: SeqNum, was_sent_once: bool) -> bool {
        let ours = start.at_or_after(self.marker) && end.at_or_before(self.until) && self.unreported > 0;
        if ours && !was_sent_once {
            let bytes = end.since(start).min(self.unreported);
            self.unreported -= bytes;
            self.reported = self.reported.saturating_add(bytes);
        }
        ours
    }

    /// True if every repetition was reported as a duplicate.
    pub fn is_all_reported(&self) -> bool {
        self.reported > 0 && self.unreported == 0
    }

    /// The repair has ended; `snd_max` is the end of the sent data.
    pub fn on_end(&mut self, snd_max: SeqNum) {
        self.until = snd_max;
    }
}

/// F-RTO after an expiry of the retransmission timer.
#[derive(Clone, Copy, Debug)]
pub(in crate::tcp) struct Frto {
    /// RecoveryPoint: the end of the data sent by then.
    pub recover: SeqNum,
    /// The repeated segment is acknowledged, and new data will decide (step 2b).
    pub tries_new_data: bool,
    /// This was just decided, and new data for it is sent at once.
    pub pushes: bool,
}

impl Frto {
    /// Output has ended; `snd_max` is the end of what is in flight. If new data should have decided and none was sent,
    /// nothing decides (step 2b of RFC 5682 section 3.1): an original that arrives later only shows that some were not
    /// lost.
    pub fn after_output(self, snd_max: SeqNum) -> Option<Self> {
        let decides = !self.tries_new_data || snd_max.after(self.recover);
        decides.then_some(Self { pushes: false, ..self })
    }
}

/// What has shown that a repair was needless.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sign {
    /// An echo from before the repetitions.
    Echo,
    /// Reports of the repetitions as duplicates.
    Reports,
    /// An original that has arrived after a timeout (F-RTO).
    Original,
}

impl<P: Payload> Pcb<P> {
    /// The peer reports a duplicate (RFC 2883). The effects of a probe say nothing about reordering.
    pub(super) fn take_dsack(&mut self, loss: &mut Loss, report: &Report) {
        let Some(dsack) = report.dsack else { return };
        let once = report.was_sent_once;
        if loss.undo.as_mut().is_some_and(|undo| undo.on_dsack(dsack.start, dsack.end, once)) {
            loss.rack.on_dsack(self.snd_max);
        }
    }

    /// Undoes the present or latest repair, if the report shows that it was needless. Returns what shows it.
    pub(super) fn undo_if_spurious(
        &mut self,
        loss: &mut Loss,
        report: &Report,
        (ts, now): (Option<Timestamps>, Instant),
    ) -> Option<Sign> {
        let sign = self.is_spurious(loss, report, self.echo(ts));
        // During a fast recovery, an echo reverts what was marked lost, and everything is judged anew
        // (`tcp_try_undo_partial`).
        let is_late = sign == Some(Sign::Echo)
            && self.recovery.phase() == Phase::Recovery
            && self.snd_una.before(self.recovery.recover());
        if is_late {
            loss.rack.on_late(self.snd_una - report.acked, self.snd_una, self.mss.into());
        }
        // While a retransmission is in flight, nothing is undone or judged, and only new data is sent.
        loss.holds_repairs = is_late && loss.records.has_repeated(loss.repeated_until, now);
        loss.repeats_one = false;
        if let Some(sign) = sign.filter(|_| !loss.holds_repairs) {
            self.undo(loss, sign, now);
        }
        sign
    }

    /// What shows that the present or latest repair was needless; `None` if nothing does.
    fn is_spurious(&self, loss: &mut Loss, report: &Report, echo: Option<u32>) -> Option<Sign> {
        let undo = loss.undo.as_ref();
        let is_older = |echo| loss.repeated_ts.is_some_and(|repeated| timestamp::older(echo, repeated));
        let is_repairing = undo.is_some() && self.recovery.phase() != Phase::Open;
        if report.moves() && is_repairing && echo.is_some_and(is_older) {
            return Some(Sign::Echo);
        }
        // A repair after a timeout continues until more is acknowledged, regardless of reports in between
        // (`tcp_process_loss`).
        let may_end = report.moves() || self.recovery.phase() != Phase::Loss;
        let by_reports = undo.is_some_and(Undo::is_all_reported) && may_end;
        let by_original = match loss.frto.as_mut() {
            Some(_) if report.original => true,
            Some(frto) if self.snd_max.after(frto.recover) => {
                // Step 3: the peer has reported new data, but nothing from before the timeout, which is lost. Without
                // such a report, an original may still show; a report of the repetition as a duplicate is no such
                // report. Meanwhile the repair continues.
                frto.tries_new_data = false;
                if report.sacked > 0 || (report.is_duplicate && report.dsack.is_none()) {
                    loss.frto = None;
                }
                false
            }
            Some(frto) => {
                frto.tries_new_data = report.acked > 0 && self.snd_una.before(frto.recover);
                frto.pushes = frto.tries_new_data;
                false
            }
            None => false,
        };
        match () {
            () if by_reports => Some(Sign::Reports),
            () if by_original => Some(Sign::Original),
            () => None,
        }
    }

    pub(super) fn undo(&mut self, loss: &mut Loss, sign: Sign, now: Instant) {
        // The window has changed (`snd_cwnd_stamp`).
        loss.usage.touch(now);
        // Without SACK, the repair after a timeout continues until it may end, but the window is restored. An original
        // may still end it; then nothing is left to undo.
        let goes_on = !self.sack_ok && sign != Sign::Original && self.recovery.phase() == Phase::Loss;
        loss.frto = loss.frto.filter(|_| goes_on).map(|frto| Frto { tries_new_data: false, ..frto });
        let is_held = self.holds_repair() || goes_on;
        let Some(undo) = loss.undo.take() else {
            loss.records.unlose();
            if self.recovery.phase() != Phase::Open && !is_held {
                self.recovery.finish();
            }
            return;
        };
        if self.recovery.phase() != Phase::Loss {
            // An overtaken segment was taken for a lost one. The peer's report of the duplicate may still arrive, but
            // adds nothing to what is known now.
            loss.rack.on_dsack(self.snd_max);
        }
        self.rexmt_count = 0;
        loss.twice_count = loss.records.repeated_count(loss.repeated_until, now);
        loss.undone_us = low_micros(now);
        if let Some(before) = &undo.before {
            let ssthresh = self.cc.ssthresh();
            if self.recovery.phase() == Phase::Recovery && !self.cc.governs_recovery() {
                // It may be larger than the window before (`tcp_undo_cwnd_reduction`).
                self.cc.adopt_recovery_window(loss.recovery_cwnd());
            }
            self.cc.on_undo(before, self.mss.into());
            self.ecn.withdraw(self.cc.ssthresh() > ssthresh);
        }
        loss.records.unlose();
        loss.rack.look_again();
        count(&mut loss.stats.undo_count);
        if self.recovery.phase() != Phase::Open && !is_held {
            self.recovery.finish();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::cc::Algorithm;
    use super::super::super::settings::Settings;
    use super::super::super::tests::script::{MSS, Script, ms, plain};
    use super::*;

    fn seq(offset: u32) -> SeqNum {
        SeqNum::new(u32::MAX - 150) + offset
    }

    /// The state of a repair from 100 to 200.
    fn undo(unreported: u32) -> Undo {
        Undo::new(Cc::new(Algorithm::NewReno, 1_000, false), seq(100), seq(200)).with_unreported(unreported)
    }

    #[test]
    fn a_duplicate_is_of_a_repetition_that_lies_in_the_repair_and_was_not_reported() {
        for (start, end, unreported, ours) in [
            (100, 200, 100, true),
            (150, 160, 1, true),
            (99, 150, 100, false),
            (150, 201, 100, false),
            (99, 201, 100, false),
            (100, 200, 0, false),
        ] {
            let mut undo = undo(unreported);
            assert!(!undo.on_dsack(seq(start), seq(end), true) || !undo.is_all_reported());
            assert_eq!(undo.on_dsack(seq(start), seq(end), false), ours, "{start} {end} {unreported}");
            assert_eq!(undo.is_all_reported(), ours && end - start >= unreported);
        }
        // Later data counts once the repair is over.
        let mut late = undo(10);
        late.on_end(seq(300));
        assert!(late.on_dsack(seq(250), seq(300), false) && late.is_all_reported());
    }

    #[test]
    fn a_later_repetition_that_arrives_leaves_that_of_an_undone_repair_out_twice() {
        let mut t = Script::established(&Settings { sack: true, ..plain() });
        t.write(10 * MSS);
        while t.pcb.loss_stats().rto_count == 0 {
            let at = t.pcb.next_deadline().expect("a timer");
            let _ = t.wait(at.since(t.now));
        }
        let twice = |t: &Script| t.pcb.loss.as_deref().map(|loss| loss.twice_count);
        t.now = t.now + ms(10);
        t.report(0, &[(4, 5)]);
        assert_eq!((t.pcb.loss_stats().undo_count, twice(&t)), (1, Some(1)));
        let mut again = t.places();
        again.extend(t.places_within(ms(5)));
        assert_eq!(again.first(), Some(&1));
        // Before it can have arrived, so that nothing is found lost.
        t.report(0, &[(1, 2), (4, 5)]);
        assert_eq!(twice(&t), Some(1));
        t.report(2, &[(4, 5)]);
        assert_eq!(twice(&t), Some(0));
    }

    /// The timeout after a probe has marked the probe's repetition as lost, so it is not in flight.
    #[test]
    fn what_a_probe_has_sent_again_that_arrives_leaves_that_of_an_undone_repair_out_twice() {
        let mut t = Script::established(&Settings { sack: true, ..plain() });
        t.write(3 * MSS);
        while t.pcb.loss_stats().rto_count == 0 {
            let at = t.pcb.next_deadline().expect("a timer");
            let _ = t.wait(at.since(t.now));
        }
        assert_eq!(t.pcb.loss_stats().probe_count, 1);
        let twice = |t: &Script| t.pcb.loss.as_deref().map(|loss| loss.twice_count);
        t.now = t.now + ms(10);
        t.report(0, &[(1, 2)]);
        assert_eq!((t.pcb.loss_stats().undo_count, twice(&t)), (1, Some(1)));
        t.report(0, &[(1, 3)]);
        assert_eq!(twice(&t), Some(1));
        t.report(1, &[(1, 3)]);
        assert_eq!(t.pcb.loss.as_deref().map_or(0, |loss| loss.twice_count), 0);
    }

    /// `tcp_undo_cwnd_reduction`.
    #[test]
    fn a_window_that_an_undo_restores_has_a_timeout_to_be_used() {
        let mut t = Script::established(&Settings { sack: true, ..plain() });
        t.write(10 * MSS);
        let mut loss = t.pcb.loss.take().unwrap();
        t.now = t.now + ms(500);
        assert_eq!(loss.usage.age_us(t.now), 500_000);
        t.pcb.undo(&mut loss, Sign::Reports, t.now);
        assert_eq!(loss.usage.age_us(t.now), 0);
    }

    #[test]
    fn an_undo_is_told_apart_for_an_hour() {
        let t = |secs: u64| Instant::from_micros(secs * 1_000_000);
        let mut loss = Loss::new(seq(0), (0, 0), t(0));
        for undone in [0, 1, 5_000] {
            loss.undone_us = low_micros(t(undone));
            for later in [0, 1, 4_294] {
                assert_eq!(loss.undone_at(t(undone + later)), t(undone), "{undone} {later}");
            }
        }
    }

    #[test]
    fn new_data_decides_only_if_it_has_left() {
        for (tries, snd_max, decides) in
            [(true, 200, false), (true, 201, true), (false, 200, true), (false, 201, true)]
        {
            let frto = Frto { recover: seq(200), tries_new_data: tries, pushes: tries };
            let after = frto.after_output(seq(snd_max));
            assert_eq!(after.is_some(), decides, "{tries} {snd_max}");
            assert!(after.is_none_or(|frto| !frto.pushes && frto.tries_new_data == tries));
        }
    }

    #[test]
    fn all_that_was_sent_again_has_to_be_reported() {
        let mut undo = undo(0);
        assert!(!undo.is_all_reported(), "nothing was");
        undo.on_rexmt(50);
        undo.on_rexmt(50);
        assert!(undo.on_dsack(seq(100), seq(150), false) && !undo.is_all_reported());
        assert!(undo.on_dsack(seq(150), seq(200), false) && undo.is_all_reported());
    }
}
