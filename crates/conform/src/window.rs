//! The windows that the stack announces, checked by themselves: the kernel's are others, so they are compared with nothing.
//!
//! The kernel's buffer counts the memory that packets take (`known.rs`, "receive window"). So these rules hold for the stack alone, for each segment of
//! a connection that is no SYN and no reset:
//!
//! * the edge, which is the acknowledgment number and the window, moves back at most by what the scale rounds off (RFC 7323 section 2.4);
//! * the window and what is in order but not read fit the buffer. A buffer without SO_RCVBUF grows with what has arrived (`growth`);
//! * as long as nothing is in the buffer, the window is at least half of it (RFC 9293 section 3.8.6.2.2).
//!
//! It does not depend on how records are compared. Tests: below.

use crate::codec::Packet;
use crate::scenario::{Action, Scenario, SockOpt};
use crate::segment::{Flags, Segment};
use crate::trace::{Record, Trace, What};

/// The place of the first segment whose window breaks a rule, and how.
pub fn first_wrong(scenario: &Scenario, stack: &Trace) -> Option<(usize, String)> {
    // Nothing tells which of several cookies comes back.
    if scenario.has_cookies() {
        return None;
    }
    let mut windows = Windows::new(scenario);
    let mut records = stack.records.iter().enumerate();
    records.find_map(|(place, record)| windows.wrong(record).map(|why| (place, why)))
}

/// What the stack has announced on a connection so far.
struct Windows<'s> {
    scenario: &'s Scenario,
    /// The place in the scenario of the present event.
    event: usize,
    /// Where the connection began in the scenario.
    begin: usize,
    /// Bytes that the program has read from the connection.
    read: u32,
    /// The latest event whose read asks how much is left.
    inq: Option<usize>,
    /// Whether the stack has sent a SYN that was no answer.
    connects: bool,
    /// The number behind the stack's SYN and its data.
    top: u32,
    /// Whether the stack has sent a SYN, and the shift that the latest one offers.
    offered: Option<Option<u8>>,
    /// The shift of its windows and the number behind the peer's SYN, once they are agreed on.
    agreed: Option<(u8, u32)>,
    /// The furthest edge.
    edge: u32,
}

impl<'s> Windows<'s> {
    fn new(scenario: &'s Scenario) -> Self {
        Self {
            scenario,
            event: 0,
            begin: 0,
            read: 0,
            inq: None,
            connects: false,
            top: 0,
            offered: None,
            agreed: None,
            edge: 0,
        }
    }

    fn wrong(&mut self, record: &Record) -> Option<String> {
        match &record.what {
            What::State(before, _) => self.event = before + 1,
            What::Returned(index, Ok(count)) => match self.scenario.events.get(*index)?.action {
                Action::Again => {
                    *self = Self { event: self.event, begin: *index, ..Self::new(self.scenario) };
                }
                Action::Read(_) => self.read += count,
                // The second of its records is how many are left.
                Action::ReadInq(_) if self.inq != Some(*index) => {
                    (self.read, self.inq) = (self.read + count, Some(*index));
                }
                _ => {}
            },
            What::Sent(Packet::Tcp(sent)) if sent.flags.has(Flags::RST) => {}
            What::Sent(Packet::Tcp(syn)) if syn.flags.has(Flags::SYN) => self.on_syn(syn),
            What::Sent(Packet::Tcp(sent)) if sent.flags.has(Flags::ACK) => return self.of_segment(sent),
            _ => {}
        }
        None
    }

    fn on_syn(&mut self, syn: &Segment) {
        self.connects |= !syn.flags.has(Flags::ACK);
        self.top = self.top.max(syn.end());
        // What a listener offers, the peer has offered before.
        let answered = self.answered(syn).filter(|_| !self.connects);
        self.agreed = answered.map(|answered| (syn.shift().unwrap_or(0), answered.seq + 1));
        (self.offered, self.edge) = (Some(syn.shift()), 0);
    }

    /// The peer's segments on this connection so far.
    fn peer(&self) -> impl Iterator<Item = &'s Segment> {
        let end = (self.event + 1).min(self.scenario.events.len());
        self.scenario.events[self.begin.min(end)..end].iter().filter_map(|event| match &event.action {
            Action::Segment(segment) => Some(segment),
            _ => None,
        })
    }

    /// The peer's SYN that this acknowledges. One with a FIN is dropped.
    fn answered(&self, sent: &Segment) -> Option<&'s Segment> {
        let is_good = |syn: &Segment| !syn.flags.has(Flags::ACK) || (1..=self.top).contains(&syn.ack);
        let is_it = |syn: &Segment| (syn.seq + 1..=syn.end()).contains(&sent.ack) && is_good(syn);
        self.peer().find(|syn| syn.flags.has(Flags::SYN) && !syn.flags.has(Flags::FIN) && is_it(syn))
    }

    fn of_segment(&mut self, sent: &Segment) -> Option<String> {
        let offered = self.offered?;
        if self.agreed.is_none() {
            // Without it, the windows of this connection mean nothing here.
            let Some(syn) = self.answered(sent) else {
                self.offered = None;
                return None;
            };
            let shift = offered.filter(|_| syn.shift().is_some()).unwrap_or(0);
            self.agreed = Some((shift, syn.seq + 1));
        }
        let (shift, first) = self.agreed?;
        let window = u32::from(sent.win) << shift;
        let (edge, before) = (sent.ack.saturating_add(window), self.edge);
        self.edge = before.max(edge);
        // A FIN counts as well, since it may also be one that the stack has not taken.
        let came = sent.ack.saturating_sub(first);
        let unread = came.saturating_sub(self.read);
        let (least, most) = self.buffer(came);
        match () {
            () if edge.saturating_add(1 << shift) <= before => {
                Some(format!("edge of the window: {edge} is before {before}"))
            }
            () if unread + window > most + FIN => {
                Some(format!("window beyond the buffer: {window}, {unread} of {came} bytes unread"))
            }
            () if unread == 0 && sent.sack().is_empty() && window < least / 2 => {
                Some(format!("window of an empty buffer: {window}"))
            }
            () => None,
        }
    }

    /// The smallest and the largest buffer so far, if so many bytes have come.
    fn buffer(&self, came: u32) -> (u32, u32) {
        let events = || self.scenario.events.iter().take(self.event + 1);
        let is_set = events().any(|event| matches!(event.action, Action::Set(SockOpt::RcvBuf, _)));
        let most = if is_set { USUAL } else { USUAL.max(growth(came)) };
        events().fold((USUAL, most), |(least, most), event| match event.action {
            Action::Set(SockOpt::RcvBuf, bytes) => (least.min(bytes), most.max(bytes)),
            Action::Set(SockOpt::WindowClamp, bytes) if bytes > 0 => (least.min(bytes), most),
            _ => (least, most),
        })
    }
}

/// Bytes of a receive buffer without the option, before it grows (`settings::stack`).
const USUAL: u32 = 65_160;
/// A FIN takes a sequence number, and no room.
const FIN: u32 = 1;
/// The segment size for which a buffer grows most, apart from peers with even smaller segments.
const SIZE: u64 = 536;

/// The most bytes to which a buffer grows by itself when so many have come, all in one round trip: twice as many, 16 segments, and twice the growth
/// over the ten segments with which a sender begins.
fn growth(came: u32) -> u32 {
    let came = u64::from(came);
    u32::try_from(2 * came + 16 * SIZE + came * came / (10 * SIZE) * 4).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::compare::compare;
    use crate::segment::Opt;
    use crate::trace::State;

    const SCENARIO: &str = "\
0 listen 5
0 peer S 0 win 65535 mss 1460 nop wscale 7
50 peer A 1 ack 1 win 500
60 accept
100 peer A 1:1001 ack 1 win 500
200 read 1000
300 peer A 1001:2001 ack 1 win 500
";

    /// What is wrong if the stack's acknowledgments of the data have these numbers and windows.
    fn found(scenario: &str, acks: [(u32, u16); 2]) -> Option<String> {
        let segment = |flags: Flags, ack, win, options| {
            let segment = Segment { flags, ack, win, options, ..Segment::default() };
            What::Sent(Packet::Tcp(segment))
        };
        let offer = vec![Opt::Mss(1460), Opt::Nop, Opt::Wscale(7)];
        let ack = |at: usize| segment(Flags::ACK, acks[at].0, acks[at].1, Vec::new());
        let state = |index| What::State(index, State::default());
        let whats = [
            state(0),
            segment(Flags::SYN.with(Flags::ACK), 1, 65_160, offer),
            state(3),
            ack(0),
            state(4),
            What::Returned(5, Ok(1000)),
            state(5),
            ack(1),
        ];
        let records = whats.into_iter().map(|what| Record { at: Duration::ZERO, what }).collect();
        let (scenario, stack) = (scenario.parse().unwrap(), Trace { records, is_disturbed: false });
        let kernel = stack.clone();
        let difference = compare(&scenario, &kernel, &stack).difference?;
        assert_eq!(first_wrong(&scenario, &stack), Some((difference.places.1, difference.why.clone())));
        Some(difference.kind().to_owned())
    }

    #[test]
    fn windows_that_break_a_rule_are_found() {
        // What was read makes room.
        assert_eq!(found(SCENARIO, [(1001, 500), (2001, 500)]), None);
        assert_eq!(found(SCENARIO, [(1001, 500), (2001, 499)]), None);
        // The edge moves back by more than the scale rounds off.
        assert_eq!(found(SCENARIO, [(1001, 500), (1128, 499)]), None);
        assert_eq!(found(SCENARIO, [(1001, 500), (1001, 499)]).as_deref(), Some("edge of the window"));
        // As if the window had no scale, or twice the scale, or all of the buffer while something is in it.
        assert_eq!(
            found(SCENARIO, [(1001, 64_000), (2001, 64_000)]).as_deref(),
            Some("window beyond the buffer")
        );
        assert_eq!(found(SCENARIO, [(1, 3), (1001, 500)]).as_deref(), Some("window of an empty buffer"));
        assert_eq!(found(SCENARIO, [(1001, 502), (2001, 500)]).as_deref(), Some("window beyond the buffer"));
    }

    #[test]
    fn a_buffer_grows_with_what_has_come() {
        assert_eq!(growth(0).max(USUAL), USUAL);
        assert!(growth(5_000) < 2 * USUAL && growth(30_000) > 10 * USUAL);
        assert_eq!(growth(u32::MAX), u32::MAX);
    }
}
