//! Explicit congestion notification (RFC 3168, with RFC 8311's permission to answer milder, RFC 8511): a router marks
//! packets that it would have dropped, the receiver echoes the mark, the sender slows down and says so.
//!
//! | as | state | moved by |
//! |---|---|---|
//! | receiver | echoing: every segment carries ECE | a marked segment with text begins it, CWR on one ends it |
//! | sender | quiet | an ECE that is news reduces the window: to answered |
//! | sender | answered: CWR is owed, or was sent and not acknowledged | the acknowledgment of the text that carried CWR: to quiet |
//!
//! A loss answers too, so that there is one reduction a round trip, whatever reports it. The marks of the IP header
//! travel as bits of [`Flags`]; the code that writes packets turns [`Flags::ECT`] into a codepoint. Only new text is
//! ECN-capable: no SYN, repetition, pure acknowledgment or window probe.
//!
//! Invariant: while ECN is off nothing here is touched by a segment but two loads. Tests: `tests/ecn.rs`.

use crate::seq::SeqNum;
use crate::time::Instant;

use super::cc::{Cause, Congestion, CongestionControl, Phase};
use super::delack::QUICK_ACKS_FEW;
use super::pcb::Pcb;
use super::segment::{Flags, Payload};
use super::state::State;

/// Whether connections use ECN (`tcp_ecn` of Linux).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum EcnMode {
    /// Neither offered nor agreed to.
    Off,
    /// Agreed to when a peer offers it.
    #[default]
    Accept,
    /// Offered by connects too.
    On,
}

impl EcnMode {
    /// All of them.
    pub const ALL: &'static [Self] = &[Self::Off, Self::Accept, Self::On];
    /// Their names as text, in the same order.
    pub const NAMES: &'static [&'static str] = &["off", "accept", "on"];
}

/// A connection's part in it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ecn {
    /// Answered: text that ends before this, or here, was sent before the window was reduced.
    recover: SeqNum,
    /// The end of the text that was sent as ECN-capable: text below is sent again.
    text_end: SeqNum,
    /// A mark is echoed: every segment has ECE.
    echoes: bool,
    /// Both ends agreed; in SYN-SENT: it is offered.
    pub on: bool,
    /// The next new text carries CWR.
    cwr_owed: bool,
    /// Why the window was reduced, while the answer is not acknowledged.
    answered: Answered,
}

/// What an answer is to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Answered {
    Nothing,
    Loss,
    Mark,
}

impl Ecn {
    /// `iss` is the number of our SYN.
    pub fn new(on: bool, iss: SeqNum) -> Self {
        Self {
            recover: iss,
            text_end: iss + 1,
            echoes: false,
            on,
            cwr_owed: false,
            answered: Answered::Nothing,
        }
    }

    /// The control bits of the `first` SYN that offers it, or of one that is repeated: without, for the first may have
    /// been dropped for them (RFC 3168 section 6.1.1.1), and then it stays off.
    pub fn offer(&mut self, first: bool) -> Flags {
        self.on &= first;
        if self.on { Flags::ECE.with(Flags::CWR) } else { Flags::NONE }
    }

    /// The flags of every segment.
    #[inline]
    pub fn echo(&self) -> Flags {
        if self.echoes { Flags::ECE } else { Flags::NONE }
    }

    /// The peer's SYN has come. Only a SYN-ACK with ECE and without CWR agrees; in a simultaneous open neither end does.
    pub fn on_syn(&mut self, flags: Flags) {
        self.on &= flags.has(Flags::ACK) && flags.has(Flags::ECE) && !flags.has(Flags::CWR);
    }

    /// The window was reduced, for whatever reason, `snd_max` being the end of the sent data.
    pub fn on_reduced(&mut self, snd_max: SeqNum) {
        if self.on {
            (self.recover, self.cwr_owed, self.answered) = (snd_max, true, Answered::Loss);
        }
    }

    /// The reduction was a mistake and is undone: the peer need not hear of it.
    pub fn withdraw(&mut self) {
        if core::mem::take(&mut self.cwr_owed) {
            self.answered = Answered::Nothing;
        }
    }

    /// SND.UNA has moved to `una`.
    pub fn pass(&mut self, una: SeqNum) {
        if !self.cwr_owed && una.after(self.recover) {
            self.answered = Answered::Nothing;
        }
    }

    /// True if the data at `una` was sent before the window was reduced: its fate says nothing new.
    pub fn covers(&self, una: SeqNum) -> bool {
        self.answered != Answered::Nothing && una.before(self.recover)
    }

    /// The marks of text that is sent from `seq` to `end`: none if it is sent again.
    pub fn on_text(&mut self, seq: SeqNum, end: SeqNum) -> Flags {
        if seq.before(self.text_end) {
            return Flags::NONE;
        }
        self.text_end = end;
        if core::mem::take(&mut self.cwr_owed) { Flags::ECT.with(Flags::CWR) } else { Flags::ECT }
    }
}

/// True if a SYN offers ECN (RFC 3168 section 6.1.1).
pub(super) fn is_offered(syn: Flags) -> bool {
    syn.has(Flags::ECE.with(Flags::CWR))
}

impl<P: Payload> Pcb<P> {
    /// True if both ends agreed to ECN.
    pub fn ecn(&self) -> bool {
        self.ecn.on && !matches!(self.state, State::SynSent | State::SynReceived)
    }

    /// A segment of the peer's has come, with text inside the window or without: its marks.
    pub(super) fn note_marks(&mut self, flags: Flags, has_text: bool) {
        if !self.ecn.on || !has_text {
            return;
        }
        if flags.has(Flags::CWR) {
            self.ecn.echoes = false;
            // The sender's window may be down to a segment.
            self.ack_now = true;
        }
        if flags.has(Flags::CE) {
            // The first is worth acknowledgments at once, for the same reason. The first text gets more of them anyway.
            if !self.ecn.echoes && self.ato_us > 0 {
                self.enter_quick_acks(QUICK_ACKS_FEW);
            }
            self.ecn.echoes = true;
        }
    }

    /// An acceptable acknowledgment has come; if it echoes a mark that was not answered yet, the window is reduced.
    pub(super) fn take_echo(&mut self, flags: Flags, ack: SeqNum, now: Instant) {
        if !self.ecn.on || !flags.has(Flags::ECE) || self.snd_una == self.snd_max {
            return;
        }
        self.ecn.pass(ack);
        if self.ecn.answered != Answered::Nothing {
            return;
        }
        let is_open = self.recovery.phase() == Phase::Open;
        if is_open {
            let (flight, mss) = (self.snd_max.since(self.snd_una), u32::from(self.mss));
            self.cc.on_congestion(&Congestion { now, cause: Cause::Mark, flight, mss });
            self.note_mark_answered();
        }
        self.ecn.on_reduced(self.snd_max);
        if is_open {
            self.ecn.answered = Answered::Mark;
        }
    }

    /// The phase as congestion control sees it: the window does not grow in the round trip in which a mark has reduced it
    /// (RFC 3168 section 6.1.2).
    #[inline]
    pub(super) fn growth_phase(&mut self, phase: Phase) -> Phase {
        if self.ecn.answered == Answered::Mark { self.answered_phase(phase) } else { phase }
    }

    #[cold]
    fn answered_phase(&mut self, phase: Phase) -> Phase {
        self.ecn.pass(self.snd_una);
        let goes_on = self.ecn.answered == Answered::Mark && phase == Phase::Open;
        if goes_on { Phase::Recovery } else { phase }
    }
}
