//! Explicit congestion notification (RFC 3168, with the weaker reaction that RFC 8311 allows, RFC 8511): a router marks
//! packets that it would have dropped, the receiver echoes the mark, and the sender slows down and announces it.
//!
//! | role | state | transition |
//! |---|---|---|
//! | receiver | echoing: every segment carries ECE | a marked segment with text begins it, a segment with CWR and text ends it |
//! | sender | quiet | a new ECE reduces the window: to answered |
//! | sender | answered: CWR is due, or was sent and is not acknowledged | the acknowledgment of the text that carried CWR: to quiet |
//!
//! A loss also leads to answered, so there is one reduction per round trip, regardless of what reports the congestion.
//! The marks of the IP header are bits of [`Flags`]; the code that writes packets turns [`Flags::ECT`] into a
//! codepoint. Only new text is ECN-capable, not SYNs, repetitions, pure acknowledgments or window probes.
//!
//! With accurate ECN (RFC 9768) `accecn.rs` counts instead of echoing, CWR is not sent, and an acknowledgment that reports a mark is
//! answered in the same way, once a round trip.
//!
//! Invariant: while ECN is off, a segment costs only three loads here. Tests: `tests/ecn.rs`, `tests/accecn.rs`.

use crate::seq::SeqNum;
use crate::time::Instant;

use super::accecn::{self, AccEcn, AccEcnInfo, Acked, Answer};
use super::cc::{Cause, Congestion, CongestionControl, Phase};
use super::delack::QUICK_ACKS_FEW;
use super::pcb::Pcb;
use super::segment::{Flags, Header, Payload};
use super::state::State;
use super::timestamp;
use super::wire;

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
    /// Accurate ECN (RFC 9768), agreed to and offered; ECN of RFC 3168 if the peer has no other.
    Accurate,
    /// Accurate ECN is agreed to; ECN of RFC 3168 is offered.
    AcceptAccurateOn,
    /// Accurate ECN is agreed to; none is offered.
    AcceptAccurate,
}

impl EcnMode {
    /// All of them.
    pub const ALL: &'static [Self] =
        &[Self::Off, Self::Accept, Self::On, Self::Accurate, Self::AcceptAccurateOn, Self::AcceptAccurate];
    /// Their names as text, in the same order.
    pub const NAMES: &'static [&'static str] =
        &["off", "accept", "on", "accurate", "accept-accurate-on", "accept-accurate"];

    /// Whether a peer that asks for accurate ECN gets it.
    pub const fn accepts_accurate(self) -> bool {
        matches!(self, Self::Accurate | Self::AcceptAccurateOn | Self::AcceptAccurate)
    }

    /// What a connect offers.
    const fn offered(self) -> Mode {
        match self {
            Self::Off | Self::Accept | Self::AcceptAccurate => Mode::Off,
            Self::On | Self::AcceptAccurateOn => Mode::Classic,
            Self::Accurate => Mode::Accurate,
        }
    }
}

/// What both ends agreed to; in SYN-SENT: what is offered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mode {
    /// Nothing.
    Off,
    /// RFC 3168.
    Classic,
    /// RFC 9768.
    Accurate,
}

/// A connection's part in it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ecn {
    /// In answered: text that ends at or before this number was sent before the window was reduced.
    recover: SeqNum,
    /// The end of the text that was sent as ECN-capable: text below it is a repetition.
    text_end: SeqNum,
    /// The flags of every segment, as [`Flags::echo`] has them: ECE while a mark is echoed; with accurate ECN the counter, and ECT.
    echo: u8,
    mode: Mode,
    /// The next new text carries CWR.
    cwr_owed: bool,
    /// Why the window was reduced, while the answer is not acknowledged.
    answered: Answered,
}

/// What an answer is a reaction to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Answered {
    Nothing,
    Loss,
    Mark,
}

impl Ecn {
    /// `iss` is the number of our SYN.
    pub fn new(mode: Mode, iss: SeqNum) -> Self {
        Self { recover: iss, text_end: iss + 1, echo: 0, mode, cwr_owed: false, answered: Answered::Nothing }
    }

    /// The state of a connect.
    pub fn offering(wanted: EcnMode, lossless: bool, iss: SeqNum) -> Self {
        Self::new(if lossless { Mode::Off } else { wanted.offered() }, iss)
    }

    /// Both ends agreed to ECN.
    pub fn is_on(&self) -> bool {
        self.mode != Mode::Off
    }

    /// Both ends agreed to accurate ECN.
    #[inline]
    pub fn is_accurate(&self) -> bool {
        self.mode == Mode::Accurate
    }

    /// ECN is not used after all.
    pub fn give_up(&mut self) {
        (self.mode, self.echo) = (Mode::Off, 0);
    }

    /// The control bits of a SYN that offers ECN, after `count` earlier SYNs. A repeated SYN does not offer it, because
    /// the first may have been dropped because of the bits (RFC 3168 section 6.1.1.1); then ECN stays off. Accurate ECN
    /// is offered twice, and the server decides: its flags show whether it has seen one of the offers (RFC 9768 section
    /// 3.1.4.1).
    pub fn offer(&mut self, count: u8) -> Flags {
        match self.mode {
            Mode::Classic if count == 0 => Flags::ECE.with(Flags::CWR),
            Mode::Accurate if count < 2 => Flags::ACE,
            Mode::Off | Mode::Accurate => Flags::NONE,
            Mode::Classic => {
                self.mode = Mode::Off;
                Flags::NONE
            }
        }
    }

    /// The flags of every segment.
    #[inline]
    pub fn echo(&self) -> Flags {
        Flags::from_echo(self.echo)
    }

    /// The peer's SYN has arrived. Only a SYN-ACK with ECE and without CWR agrees; in a simultaneous open neither end
    /// does.
    pub fn on_syn(&mut self, flags: Flags) {
        let is_agreed = flags.has(Flags::ACK) && flags.has(Flags::ECE) && !flags.has(Flags::CWR);
        self.mode = match self.mode {
            Mode::Classic if is_agreed => Mode::Classic,
            Mode::Accurate if flags.has(Flags::ACK) => match accecn::answer(flags) {
                Answer::None => Mode::Off,
                Answer::Classic => Mode::Classic,
                Answer::Accurate => Mode::Accurate,
            },
            Mode::Off | Mode::Classic | Mode::Accurate => Mode::Off,
        };
    }

    /// The window was reduced, for any reason; `snd_max` is the end of the sent data.
    pub fn on_reduced(&mut self, snd_max: SeqNum) {
        if self.is_on() {
            (self.recover, self.cwr_owed, self.answered) = (snd_max, !self.is_accurate(), Answered::Loss);
        }
    }

    /// The reduction was a mistake and is undone: the next loss reduces the window again. The peer need not be told if
    /// the undo makes the threshold larger (`grows`, `tcp_undo_cwnd_reduction`).
    pub fn withdraw(&mut self, grows: bool) {
        self.answered = Answered::Nothing;
        self.cwr_owed &= !grows;
    }

    /// SND.UNA has moved to `una`.
    #[inline]
    pub fn pass(&mut self, una: SeqNum) {
        if self.answered != Answered::Nothing && !self.cwr_owed && una.after(self.recover) {
            self.answered = Answered::Nothing;
        }
    }

    /// True if the data at `una` was sent before the window was reduced for a mark: its loss brings no news (Linux's
    /// state CWR). A repair knows its own end.
    pub fn covers(&self, una: SeqNum) -> bool {
        self.answered == Answered::Mark && una.before(self.recover)
    }

    /// The flags of text that is sent from `seq` to `end`: none for a repetition.
    pub fn on_text(&mut self, seq: SeqNum, end: SeqNum) -> Flags {
        if seq.before(self.text_end) || self.is_accurate() {
            return Flags::NONE;
        }
        self.text_end = end;
        if core::mem::take(&mut self.cwr_owed) { Flags::ECT.with(Flags::CWR) } else { Flags::ECT }
    }
}

/// Bytes of the option of accurate ECN.
const ACCECN_LEN: u16 = 12;
const _: () = assert!(ACCECN_LEN as usize == accecn::AccEcnOption::LEN_MAX);

/// True if a SYN offers ECN (RFC 3168 section 6.1.1).
pub(super) fn is_offered(syn: Flags) -> bool {
    syn.has(Flags::ECE.with(Flags::CWR))
}

impl<P: Payload> Pcb<P> {
    /// True if both ends agreed to ECN.
    pub fn ecn(&self) -> bool {
        self.ecn.is_on() && !matches!(self.state, State::SynSent | State::SynReceived)
    }

    /// Whether the flags of accurate ECN count, if a segment has some: both ends agreed to it.
    #[inline]
    pub fn has_accurate_ecn(&self) -> bool {
        self.ecn.is_accurate()
    }

    /// The connection's accurate ECN, if both ends agreed to it.
    pub fn accurate_ecn(&self) -> Option<AccEcnInfo> {
        self.rare.accecn().map(AccEcn::info)
    }

    /// The peer's SYN-ACK has arrived.
    pub(super) fn agree_to_ecn(&mut self, syn_ack: &Header) {
        self.ecn.on_syn(syn_ack.flags);
        if self.ecn.is_accurate() {
            self.begin_accurate_ecn(AccEcn::client(syn_ack.flags, syn_ack.options.accecn.as_ref()));
        }
    }

    /// Both ends agreed to accurate ECN.
    #[cold]
    pub(super) fn begin_accurate_ecn(&mut self, state: AccEcn) {
        self.ecn.mode = Mode::Accurate;
        self.takes_all_steps = true;
        self.ecn.echo = state.flags().echo();
        self.rare.set_accecn(Some(state));
    }

    /// Room for the option in every segment, if the connection uses it, bytes.
    pub(super) fn accecn_len(&self) -> u16 {
        let sends = self.ecn.is_accurate() && self.rare.accecn().is_some_and(AccEcn::sends_option);
        if sends { ACCECN_LEN } else { 0 }
    }

    /// The flags of a SYN-ACK that the connection itself sends.
    pub(super) fn mark_syn_ack(&mut self, header: &mut Header) {
        let flags = header.flags.without(Flags::ACE).without(Flags::ECT);
        header.flags = match (self.ecn.mode, self.rare.accecn()) {
            (Mode::Classic, _) => flags.with(Flags::ECE),
            (Mode::Accurate, Some(state)) => {
                header.options.accecn = (self.rexmt_count == 0).then(accecn::AccEcnOption::first);
                flags.with(accecn::reflected(state.syn_came_with()))
            }
            (Mode::Off | Mode::Accurate, _) => flags,
        };
    }

    /// Adds the counters of accurate ECN, and the flags of the first segment after the handshake. SACK blocks have
    /// priority for the room, but one of them gives way to counters with news.
    #[cold]
    pub(super) fn attach_accecn(&mut self, header: &mut Header, text_len: u32) {
        let is_bare = text_len == 0 && header.options.sack.is_empty() && !header.flags.has(Flags::FIN);
        let Some(state) = self.rare.accecn_mut() else { return };
        if let Some(flags) = state.reflect(is_bare) {
            header.flags = header.flags.without(Flags::ACE).with(flags);
        }
        if let Some(block) =
            header.options.sack.as_slice().first().filter(|block| block.start.before(header.ack))
        {
            state.on_duplicate(block.start);
        }
        let mut option = state.option(wire::options_room(header));
        if option.is_none() && state.needed() > 0 && text_len == 0 && header.options.sack.len() > 2 {
            let mut fewer = *header;
            let blocks = header.options.sack.as_slice();
            fewer.options.sack = blocks.iter().take(blocks.len() - 1).copied().collect();
            option = state.option(wire::options_room(&fewer));
            if option.is_some() {
                *header = fewer;
            }
        }
        state.on_sent(option.is_some());
        header.options.accecn = option;
    }

    /// A whole segment of a connection with accurate ECN was accepted.
    #[cold]
    pub(super) fn count_marks(&mut self, header: &Header, text_len: u32) {
        let Some(state) = self.rare.accecn_mut() else { return };
        let packets = match u32::from(header.gso_size) {
            0 => 1,
            each => text_len.div_ceil(each).max(1),
        };
        self.ack_now |= state.count(header.flags, text_len, packets);
        self.ecn.echo = state.flags().echo();
    }

    /// An acceptable acknowledgment of a connection with accurate ECN has arrived, with text or `is_bare`. Nothing of
    /// it was processed yet.
    #[cold]
    pub(super) fn take_accurate_ack(&mut self, header: &Header, is_bare: bool, now: Instant) {
        let (ack, options) = (header.ack, &header.options);
        let acked = if ack.after(self.snd_una) { ack.since(self.snd_una) } else { 0 };
        let stats = self.loss_stats();
        let is_later =
            options.timestamps.is_some_and(|ts| self.ts_on && timestamp::older(self.ts_recent, ts.val));
        let is_news = acked > 0 || (ack == self.snd_una && (!options.sack.is_empty() || is_later));
        let (had_option, mss) = (self.accecn_len(), u32::from(self.mss));
        let sent = self.snd_max.since(self.iss);
        let Some(state) = self.rare.accecn_mut() else { return };
        let is_bare = is_bare && options.sack.is_empty();
        let is_first = state.take_first(header.flags, is_bare, options.accecn.as_ref());
        let mut marked = 0;
        if is_news && !is_first {
            // What blocks have reported before does not count again.
            let bytes = if acked == 0 { mss } else { acked.saturating_sub(stats.sacked_bytes).max(1) };
            let packets = bytes.div_ceil(mss.max(1));
            let (flags, option) = (header.flags, options.accecn.as_ref());
            marked = state.take_ack(&Acked { flags, option, bytes: bytes.min(acked), packets, sent, mss });
        }
        self.ecn.echo = state.flags().echo();
        let len = self.accecn_len();
        if had_option == 0 && len > 0 {
            self.on_longer_options(len);
        }
        if marked > 0 && self.snd_una != self.snd_max {
            self.answer_mark(ack, now);
        }
    }

    /// Processes the marks of a received segment, with text inside the window from `text` on, or without text.
    pub(super) fn note_marks(&mut self, flags: Flags, text: Option<SeqNum>) {
        if self.ecn.mode != Mode::Classic {
            return;
        }
        if flags.has(Flags::CWR) {
            // RFC 3168 has CWR only on text. Some senders do not wait for text, and would otherwise get the echo for
            // ever.
            self.ecn.echo = 0;
            // The sender's window may be down to a segment.
            self.ack_now |= text.is_some() && self.state.receives();
        }
        if flags.has(Flags::CE)
            && let Some(at) = text
        {
            // The first mark gets immediate acknowledgments for the same reason. The first text gets more of them
            // anyway, unless it is out of order.
            if self.ecn.echo == 0 && (self.ato_us > 0 || at != self.rcv_nxt) {
                self.enter_quick_acks(QUICK_ACKS_FEW);
            }
            self.ecn.echo = Flags::ECE.echo();
        }
    }

    /// An acceptable acknowledgment has arrived; if it echoes a mark that was not answered yet, the window is reduced.
    pub(super) fn take_echo(&mut self, flags: Flags, ack: SeqNum, now: Instant) {
        if self.snd_una != self.snd_max && self.is_echo(flags, ack) {
            self.answer_mark(ack, now);
        }
    }

    /// The same while nothing is in flight. Then an echo counts only beside the report of a duplicate (`tcp_ack`), which tells that what was marked has
    /// arrived twice.
    #[cold]
    pub(super) fn take_echo_of_a_duplicate(&mut self, flags: Flags, ack: SeqNum, now: Instant) {
        if self.is_echo(flags, ack) {
            self.answer_mark(ack, now);
        }
    }

    fn is_echo(&self, flags: Flags, ack: SeqNum) -> bool {
        self.ecn.mode == Mode::Classic && flags.has(Flags::ECE) && ack.at_or_after(self.snd_una)
    }

    /// `ack` reports a mark: the window is reduced, unless it already was in this round trip.
    fn answer_mark(&mut self, ack: SeqNum, now: Instant) {
        let is_open = self.recovery.phase() == Phase::Open;
        self.ecn.pass(ack);
        let is_answered = self.ecn.answered != Answered::Nothing;
        if !is_open || is_answered {
            self.note_mark_in_a_repair();
        }
        if is_answered {
            return;
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    const ISS: SeqNum = SeqNum::new(u32::MAX - 10);

    /// Text up to 1,000 bytes after the ISS was sent, and is answered.
    fn reduced(mode: Mode) -> Ecn {
        let mut ecn = Ecn::new(mode, ISS);
        ecn.on_reduced(ISS + 1_000);
        ecn
    }

    #[test]
    fn an_answer_to_a_mark_covers_what_was_sent_before_it_until_it_is_acknowledged() {
        assert!(!Ecn::new(Mode::Classic, ISS).covers(ISS - 1), "nothing was answered");
        for mode in [Mode::Classic, Mode::Accurate] {
            assert!(!reduced(mode).covers(ISS + 999), "a loss was answered");
            let mut ecn = Ecn { answered: Answered::Mark, ..reduced(mode) };
            assert!(ecn.covers(ISS + 999) && !ecn.covers(ISS + 1_000));
            let _ = ecn.on_text(ISS + 1_000, ISS + 2_000);
            ecn.pass(ISS + 1_000);
            assert!(ecn.covers(ISS + 999));
            ecn.pass(ISS + 2_001);
            assert!(!ecn.covers(ISS + 999), "{mode:?}");
        }
        assert!(!reduced(Mode::Off).covers(ISS + 999));
    }

    #[test]
    fn a_reduction_that_is_taken_back_answers_no_later_loss() {
        for (is_said, grows, tells) in [(false, true, false), (false, false, true), (true, true, false)] {
            let mut ecn = Ecn { answered: Answered::Mark, ..reduced(Mode::Classic) };
            assert!(!is_said || ecn.on_text(ISS + 1_000, ISS + 2_000).has(Flags::CWR));
            ecn.withdraw(grows);
            assert!(!ecn.covers(ISS + 999));
            assert_eq!(ecn.on_text(ISS + 2_000, ISS + 3_000).has(Flags::CWR), tells, "{is_said} {grows}");
        }
        // Accurate ECN does not announce it.
        let mut never_said = Ecn { answered: Answered::Mark, ..reduced(Mode::Accurate) };
        never_said.withdraw(true);
        assert!(!never_said.covers(ISS + 999));
    }
}
