//! Two records that differ, and the questions of the predicates about what came before.
//!
//! Tests: as those of `known.rs`.

use std::time::Duration;

use crate::codec::Packet;
use crate::compare::SLACK;
use crate::scenario::{Action, How, Scenario};
use crate::segment::{Flags, Opt, Segment};
use crate::trace::{Record, State, What};
use crate::wheel::JIFFY;

/// Two records that differ, and what came before.
#[derive(Clone, Copy, Debug)]
pub struct Pair<'a> {
    /// The scenario.
    pub scenario: &'a Scenario,
    /// The event before them.
    pub event: Option<&'a Action>,
    /// The kernel's.
    pub kernel: Option<&'a Record>,
    /// The stack's.
    pub stack: Option<&'a Record>,
    /// How they differ.
    pub why: &'a str,
    /// What the kernel did before on this connection, and the state before the connection began, if it is not the
    /// first.
    pub earlier: &'a [Record],
    /// What the kernel does from this record on.
    pub later: &'a [Record],
    /// The place in the scenario where the connection began.
    pub begin: usize,
    /// How far apart earlier timers of the two sides were.
    pub late: Duration,
}

impl<'a> Pair<'a> {
    /// Whether the tested side's congestion control is NewReno. Otherwise it is CUBIC.
    pub(super) fn is_newreno(&self) -> bool {
        self.scenario.settings.get("congestion_control").is_some_and(|name| name == "newreno")
    }

    /// Whether the application closes the connection's socket, now or later.
    pub(super) fn is_closed(&self) -> bool {
        self.scenario.any(|action| matches!(action, Action::Close | Action::Again))
    }

    /// Whether the application has shut down its side by now, or closed the socket.
    pub(super) fn is_shut(&self) -> bool {
        let count = self.index().map_or(0, |index| index + 1).min(self.scenario.events.len());
        self.scenario.events[..count].iter().any(|event| {
            matches!(event.action, Action::Close | Action::Again | Action::Shutdown(How::Write | How::Both))
        })
    }

    /// The two segments, if both records are segments.
    pub(super) fn segments(&self) -> Option<(&'a Segment, &'a Segment)> {
        match (&self.kernel?.what, &self.stack?.what) {
            (What::Sent(Packet::Tcp(kernel)), What::Sent(Packet::Tcp(stack))) => Some((kernel, stack)),
            _ => None,
        }
    }

    /// The peer's segment, if the kernel answers it with an acknowledgment and the stack does not answer.
    pub(super) fn only_the_kernel_answers(&self) -> Option<(&'a Segment, &'a Record)> {
        self.only_one_answers(self.kernel?, self.stack)
    }

    /// The peer's segment, if the stack answers it with an acknowledgment and the kernel does not answer.
    pub(super) fn only_the_stack_answers(&self) -> Option<(&'a Segment, &'a Record)> {
        self.only_one_answers(self.stack?, self.kernel)
    }

    /// The peer's segment that the two answer, if it is one. If one side waits, the other is at the next event.
    pub(super) fn cause(&self) -> Option<&'a Segment> {
        let event = self.index().and_then(|index| self.scenario.events.get(index)).map(|event| &event.action);
        match event.or(self.event)? {
            Action::Segment(cause) => Some(cause),
            _ => None,
        }
    }

    pub(super) fn only_one_answers(
        &self,
        answer: &'a Record,
        other: Option<&Record>,
    ) -> Option<(&'a Segment, &'a Record)> {
        let cause = self.cause()?;
        let waits = other.is_none_or(|record| match &record.what {
            // A timer caused it, not the segment.
            What::Sent(Packet::Tcp(text)) if text.len > 0 => record.at > answer.at + JIFFY,
            What::Sent(_) => record.at > answer.at + SLACK,
            _ => true,
        });
        let What::Sent(Packet::Tcp(ack)) = &answer.what else { return None };
        (waits && ack.is_bare_ack()).then_some((cause, answer))
    }

    /// The place in the scenario of the event before them.
    pub(super) fn index(&self) -> Option<usize> {
        if let What::State(index, _) = &self.kernel?.what {
            return Some(*index);
        }
        let last = self.earlier.iter().rev().find_map(|record| match &record.what {
            What::State(index, _) => Some(*index),
            _ => None,
        });
        Some(last.map_or(0, |last| last + 1))
    }

    /// The peer's segments before this place in the scenario, without resets.
    pub(super) fn taken_before(&self, index: usize) -> impl Iterator<Item = &'a Segment> {
        self.scenario.events[self.begin.min(index)..index].iter().filter_map(|event| match &event.action {
            Action::Segment(segment) if !segment.flags.has(Flags::RST) => Some(segment),
            _ => None,
        })
    }

    /// RCV.NXT before the peer's segment at this place in the scenario: all data before it has arrived, as far as the
    /// kernel has acknowledged it.
    pub(super) fn rcv_nxt_before(&self, index: usize) -> u32 {
        let came = self.came_before(index);
        let syn = self.syn_before(index).unwrap_or(0);
        self.received_before(index).map_or(came, |count| came.min(syn + count + 1))
    }

    /// The bytes that the kernel has received before this place in the scenario, while the connection is open. It drops
    /// some segments, for example for old timestamps.
    fn received_before(&self, index: usize) -> Option<u32> {
        let mut states = self.earlier.iter().filter_map(|record| match &record.what {
            What::State(at, State { info: Some(info), .. }) if *at < index => Some(info),
            _ => None,
        });
        let last = states.next_back().filter(|info| info.state != "CLOSED")?;
        u32::try_from(last.get("bytes_received")?).ok()
    }

    /// The number of the peer's SYN: the latest that the kernel's SYN-ACK, or its first ACK, acknowledges, else the first.
    fn syn_before(&self, index: usize) -> Option<u32> {
        let is_syn = |segment: &&Segment| segment.flags.has(Flags::SYN);
        let mut sent = self.earlier.iter().filter_map(Record::segment);
        let is_ack = |sent: &&Segment| sent.flags.has(Flags::ACK) && !sent.flags.has(Flags::RST);
        let answer = sent.clone().rfind(|sent| sent.is_syn_ack()).or_else(|| sent.find(is_ack));
        let syns = || self.taken_before(index).filter(is_syn);
        // Another SYN may have an earlier number.
        let is_next =
            |syn: &&Segment| answer.is_some_and(|answer| [syn.seq + 1, syn.end()].contains(&answer.ack));
        let is_taken = |syn: &&Segment| answer.is_some_and(|answer| syn.seq < answer.ack);
        let taken = syns().filter(is_next).last().or_else(|| syns().filter(is_taken).last());
        taken.or_else(|| syns().next()).map(|syn| syn.seq)
    }

    /// RCV.NXT before the peer's segment at this place in the scenario, if the kernel has accepted everything.
    fn came_before(&self, index: usize) -> u32 {
        let segments = || self.taken_before(index);
        let is_syn = |segment: &&Segment| segment.flags.has(Flags::SYN);
        let texts = segments().filter(|segment| !is_syn(segment) && segment.flags.has(Flags::ACK));
        let mut ranges: Vec<_> = texts.map(|segment| (segment.seq, segment.end())).collect();
        ranges.sort_unstable();
        // Only Fast Open accepts data of a SYN.
        let taken = self.earlier.iter().find_map(|record| match &record.what {
            What::Sent(Packet::Tcp(answer)) if answer.flags.has(Flags::SYN.with(Flags::ACK)) => {
                Some(answer.ack)
            }
            _ => None,
        });
        let first = self.syn_before(index).map_or(0, |syn| taken.unwrap_or(0).max(syn + 1));
        ranges.iter().fold(first, |next, (start, end)| if *start <= next { next.max(*end) } else { next })
    }

    /// Whether SACK was agreed on: the peer offered it, in its first SYN that acknowledges our SYN or nothing, and so did
    /// the kernel, which does not if a cookie has no room for it.
    pub(super) fn has_sack(&self) -> bool {
        let is_refused = self.earlier.iter().filter_map(Record::segment).any(|syn| {
            syn.flags.has(Flags::SYN) && !syn.flags.has(Flags::RST) && !syn.options.contains(&Opt::SackOk)
        });
        if is_refused {
            return false;
        }
        let is_good =
            |syn: &Segment| syn.flags.has(Flags::SYN) && (!syn.flags.has(Flags::ACK) || syn.ack == 1);
        let first = self.peer().find(|(_, syn)| is_good(syn));
        first.is_some_and(|(_, syn)| syn.options.contains(&Opt::SackOk))
    }

    /// Whether both SYNs have agreed on ECN.
    pub(super) fn has_ecn(&self) -> bool {
        let asks = |syn: &Segment| syn.flags.has(Flags::SYN.with(Flags::ECE)) && !syn.flags.has(Flags::RST);
        self.earlier.iter().filter_map(Record::segment).any(asks) && self.peer().any(|(_, syn)| asks(syn))
    }

    /// The shift of the peer's windows. `None` if window scaling was not negotiated.
    pub(super) fn shift(&self) -> Option<u8> {
        let is_offered = self
            .earlier
            .iter()
            .any(|record| matches!(&record.what, What::Sent(Packet::Tcp(syn)) if syn.shift().is_some()));
        let told = self.peer().filter(|(_, syn)| syn.flags.has(Flags::SYN)).find_map(|(_, syn)| syn.shift());
        told.filter(|_| is_offered)
    }

    /// The edge of the peer's window according to this segment.
    pub(super) fn edge(&self, segment: &Segment) -> u32 {
        segment.ack + (u32::from(segment.win) << self.shift().unwrap_or(0))
    }

    /// The peer's segments so far, each with its place in the scenario.
    pub(super) fn peer(&self) -> impl DoubleEndedIterator<Item = (usize, &'a Segment)> + Clone {
        let count = self.index().map_or(0, |index| index + 1).min(self.scenario.events.len());
        let begin = self.begin.min(count);
        self.scenario.events[begin..count].iter().zip(begin..count).filter_map(|(event, index)| match &event
            .action
        {
            Action::Segment(segment) => Some((index, segment)),
            _ => None,
        })
    }

    /// The peer's acknowledgments so far, except resets, those that the kernel did not accept, those of data not yet sent
    /// at that time, and segments that lie before what the kernel has acknowledged.
    pub(super) fn acks(&self) -> impl DoubleEndedIterator<Item = &'a Segment> + Clone {
        self.acks_before(usize::MAX)
    }

    /// Those before this place in the scenario.
    pub(super) fn acks_before(&self, end: usize) -> impl DoubleEndedIterator<Item = &'a Segment> + Clone {
        let (mut top, mut next, mut tops) = (1, 0, vec![(0, 1, 0)]);
        for record in self.earlier {
            match &record.what {
                What::Sent(Packet::Tcp(sent)) => (top, next) = (top.max(sent.end()), next.max(sent.ack)),
                What::State(index, _) => tops.push((index + 1, top, next)),
                _ => {}
            }
        }
        let acked = |index| {
            let mut states =
                self.earlier.iter().chain(self.later).filter_map(move |record| match &record.what {
                    What::State(at, State { info: Some(info), .. }) if *at == index => Some(info),
                    _ => None,
                });
            let info = states.next_back().filter(|info| info.state != "CLOSED");
            info.and_then(|info| info.get("bytes_acked")).unwrap_or(u64::MAX)
        };
        // An ACK with an old timestamp is dropped. `bytes_acked` may include the SYN.
        let is_taken = move |index, told: &Segment| u64::from(told.ack) <= acked(index).saturating_add(1);
        let told = self.peer().filter(move |(index, told)| {
            let is_ack = told.flags.has(Flags::ACK) && !told.flags.has(Flags::RST);
            *index < end && is_ack && is_taken(*index, told)
        });
        told.filter(move |(index, told)| {
            let then = tops.iter().rev().find(|(from, ..)| from <= index);
            then.is_none_or(|(_, top, next)| told.ack <= *top && told.end() >= *next)
        })
        .map(|(_, told)| told)
    }

    /// The kernel's segments with data or a FIN so far.
    pub(super) fn texts(&self) -> impl Iterator<Item = &'a Segment> {
        self.earlier.iter().filter_map(|record| match &record.what {
            What::Sent(Packet::Tcp(text)) if text.len > 0 || text.flags.has(Flags::FIN) => Some(text),
            _ => None,
        })
    }

    /// The kernel's segments with data or a FIN that a timer has sent, and no event.
    pub(super) fn by_timer(&self) -> impl Iterator<Item = &'a Segment> {
        let (events, mut since) = (&self.scenario.events, Duration::MAX);
        self.earlier.iter().filter_map(move |record| match &record.what {
            What::State(index, _) => {
                since = events.get(index + 1).map_or(Duration::MAX, |event| event.at());
                None
            }
            What::Sent(Packet::Tcp(text))
                if text.end() > text.seq && record.at > since.saturating_add(SLACK) =>
            {
                Some(text)
            }
            _ => None,
        })
    }

    /// True if the kernel's record is a segment with data or a FIN that begins with this number, and is not later than
    /// the stack's.
    pub(super) fn kernel_sends(&self, seq: u32) -> bool {
        match self.kernel.map(|record| &record.what) {
            Some(What::Sent(Packet::Tcp(text))) => {
                let is_later = self.why.starts_with("time:")
                    && self.stack.zip(self.kernel).is_some_and(|(stack, kernel)| kernel.at > stack.at);
                text.seq == seq && text.end() > seq && !is_later
            }
            _ => false,
        }
    }

    /// True if the kernel answers with a reset, as if there is no connection.
    pub(super) fn kernel_resets(&self) -> bool {
        matches!(self.kernel.map(|record| &record.what), Some(What::Sent(Packet::Tcp(reset))) if reset.flags == Flags::RST)
    }

    /// How often the kernel has sent a segment with data that ends at this number.
    pub(super) fn times_sent_to(&self, end: u32) -> usize {
        self.texts().filter(|text| text.end() == end).count()
    }

    /// How often the kernel has sent the byte with this number, in any pieces.
    pub(super) fn times_sent(&self, seq: u32) -> usize {
        self.texts().filter(|text| text.seq <= seq && seq < text.end()).count()
    }

    /// Whether the kernel has sent something behind this byte later than the byte itself, and before it retransmitted anything for the last time.
    pub(super) fn has_sent_later_before_a_repair(&self, seq: u32) -> bool {
        let texts = || self.earlier.iter().filter_map(|record| Some((record.at, record.segment()?)));
        let texts = || texts().filter(|(_, text)| text.len > 0);
        let Some((sent, _)) = texts().find(|(_, text)| (text.seq..text.end()).contains(&seq)) else {
            return false;
        };
        let (mut top, mut last) = (0, Duration::ZERO);
        for (at, text) in texts() {
            if text.end() < top {
                last = at;
            }
            top = top.max(text.end());
        }
        texts().any(|(at, text)| text.seq > seq && at > sent + JIFFY && at < last)
    }

    /// True if the kernel has retransmitted data that ends below this number, in any pieces: options take room from
    /// some.
    pub(super) fn has_repeated_below(&self, end: u32) -> bool {
        let mut top = 0;
        self.texts().any(|text| {
            let is_again = text.seq < top && text.end() < end;
            top = top.max(text.end());
            is_again
        })
    }

    /// The two states, if both records are states.
    pub(super) fn states(&self) -> Option<(&'a State, &'a State)> {
        match (&self.kernel?.what, &self.stack?.what) {
            (What::State(_, kernel), What::State(_, stack)) => Some((kernel, stack)),
            _ => None,
        }
    }
}
