//! The times of events: away from times at which the kernel's timers may give another result than the stack's.
//!
//! Tests: those of `generate.rs`, and the random scenarios.

use std::time::Duration;

use super::{Habit, Maker};
use crate::codec::Packet;
use crate::compare::{ANSWER_MAX, CHALLENGE_INTERVAL, CHALLENGE_INTERVAL_MAX, SLACK, granularity};
use crate::scenario::{Action, Event};
use crate::segment::Flags;
use crate::trace::What;
use crate::wheel::JIFFY;

impl Maker {
    /// Moves the peer's data or FIN away from a certain time before a timer of the stack sends data: the time that
    /// decides whether this data counts as an answer. The kernel measures that time in ticks.
    pub(super) fn not_before_an_answer(&mut self) {
        for _ in 0..TRIES {
            let answer = Duration::from_millis(self.at_ms.into()) + ANSWER_MAX;
            match self.driven.next_due().filter(|due| due.abs_diff(answer) < SLACK + granularity(RTO) / 2) {
                Some(due) => self.at_ms = due.as_millis() as u32 + 1,
                None => break,
            }
            self.settle();
        }
    }

    /// Lets time pass up to the next event, and moves the event away from times at which the kernel's timers may be on
    /// either side of it.
    pub(super) fn settle(&mut self) {
        for _ in 0..TRIES {
            let at = Duration::from_millis(self.at_ms.into());
            self.driven.advance(at);
            // A timer that has sent nothing shows in no trace.
            let quiet = self.driven.ran_at().filter(|ran| *ran > self.last_event);
            // A user timeout or the FIN-WAIT-2 timeout expires then, and the kernel uses one of its coarse timers for
            // it.
            let late = if self.habit == Habit::Options { granularity(RTO) } else { Duration::ZERO };
            let quiet = quiet
                .map(|ran| ran + SLACK + late.max(self.patience(ran.saturating_sub(self.waits_since()))))
                .filter(|done| *done > at);
            let wait = self.driven.next_wait().unwrap_or_default();
            let coarse = self.patience(wait).max(granularity(RTO) / 2);
            let due = self.driven.next_due().filter(|due| *due > at && *due < at + SLACK + coarse);
            let clear =
                self.kernel_is_done().filter(|done| *done > at).or(due.map(|due| due + SLACK + SLACK));
            let late =
                || self.pause_is_over().or_else(|| self.is_no_answer()).or_else(|| self.limit_is_over());
            match clear.or_else(late).or(quiet) {
                None => break,
                Some(clear) => self.at_ms = clear.as_millis() as u32 + 1,
            }
        }
        self.observe();
    }

    /// How late a timer of this length may be in a patient scenario.
    fn patience(&self, wait: Duration) -> Duration {
        let earlier = granularity(RTO) * LATE_COUNT_MAX;
        if self.habit.is_patient() { granularity(wait) + earlier + wait / 32 } else { Duration::ZERO }
    }

    /// A timer that has expired was started then, or later.
    fn waits_since(&self) -> Duration {
        self.sent_at.min(self.last_event)
    }

    /// Whether about half of the retransmission timeout has passed since data was sent: a report may halve the timeout,
    /// and the kernel counts in ticks.
    pub(super) fn is_due_by_half(&self) -> bool {
        let at = Duration::from_millis(self.at_ms.into());
        self.driven.rto().is_some_and(|rto| {
            let half = rto / 2;
            (self.sent_at + half).abs_diff(at) < SLACK + granularity(half)
        })
    }

    /// When a pause is certainly longer than a whole number of retransmission timeouts, if it is about as long as one.
    /// A window shrinks for each of them, and for each in which nothing was acknowledged and the window was not used.
    /// After one without data from the peer, ACKs are immediate. The kernel counts in ticks.
    fn pause_is_over(&self) -> Option<Duration> {
        let at = Duration::from_millis(self.at_ms.into());
        let mut records = self.driven.trace().records.iter().rev();
        let sent = records.find_map(|record| match &record.what {
            What::Sent(Packet::Tcp(text)) if text.len > 0 || text.flags.has(Flags::FIN) => Some(record.at),
            _ => None,
        });
        let rto = self.driven.rto()?;
        let over = |since: Duration, most| {
            let near = |count: &u32| (since + rto * *count).abs_diff(at) < SLACK + SLACK;
            (1..=most).find(near).map(|count| since + rto * count + SLACK + SLACK)
        };
        let over_sent = sent.and_then(|sent| over(sent, 3));
        over_sent
            .or_else(|| self.text_came_at().and_then(|came| over(came, 1)))
            .or_else(|| self.acked_at().and_then(|acked| over(acked, 1)))
    }

    /// When the peer last acknowledged something.
    fn acked_at(&self) -> Option<Duration> {
        let acks = |event: &Event| match &event.action {
            Action::Segment(segment) if segment.flags.has(Flags::ACK) => Some(segment.ack),
            _ => None,
        };
        let is_latest = |event: &&Event| acks(event) == Some(self.peer.ack);
        self.scenario.events.iter().find(is_latest).map(Event::at)
    }

    /// When the next challenge ACK is certainly allowed, if that is about now: the stack's interval is longer by a
    /// random amount.
    fn limit_is_over(&self) -> Option<Duration> {
        let at = Duration::from_millis(self.at_ms.into());
        let mut records = self.driven.trace().records.iter().rev();
        let answered = records.find_map(|record| match &record.what {
            What::Sent(Packet::Tcp(ack)) if ack.len == 0 && ack.flags == Flags::ACK => {
                let limit = record.at + CHALLENGE_INTERVAL - SLACK..record.at + CHALLENGE_INTERVAL_MAX;
                limit.contains(&at).then_some(record.at)
            }
            _ => None,
        });
        answered.map(|answered| answered + CHALLENGE_INTERVAL_MAX)
    }

    /// When data sent after the peer's data is certainly no answer to it, if it is about that late.
    fn is_no_answer(&self) -> Option<Duration> {
        let late = self.text_came_at()? + ANSWER_MAX;
        let at = Duration::from_millis(self.at_ms.into());
        (late.abs_diff(at) <= JIFFY).then_some(late + JIFFY)
    }

    /// When the peer's latest data arrived.
    fn text_came_at(&self) -> Option<Duration> {
        let is_text = |event: &&Event| matches!(&event.action, Action::Segment(text) if text.len > 0);
        self.scenario.events.iter().rev().find(is_text).map(Event::at)
    }

    /// When the kernel has certainly sent what a timer of the stack has sent since the latest event. Each of the
    /// kernel's timers makes the next one later.
    fn kernel_is_done(&self) -> Option<Duration> {
        let is_event = |at: Duration| self.scenario.events.iter().rev().any(|event| event.at() == at);
        let records = self.driven.trace().records.iter();
        let timers: Vec<(Duration, bool)> = records
            .filter_map(|record| match &record.what {
                What::Sent(Packet::Tcp(segment)) if !is_event(record.at) => {
                    Some((record.at, segment.len > 0))
                }
                _ => None,
            })
            .collect();
        let (expired, is_text) = *timers.last().filter(|(at, _)| *at > self.last_event)?;
        if !is_text && timers.len() == 1 {
            return Some(expired + SLACK + granularity(expired.saturating_sub(self.last_event)));
        }
        let before = timers.len().checked_sub(2).map_or(Duration::ZERO, |index| timers[index].0);
        let several = u32::try_from(timers.len()).unwrap_or(LATE_COUNT_MAX).min(LATE_COUNT_MAX);
        let longest = granularity(expired.saturating_sub(before)).max(granularity(RTO));
        Some(expired + SLACK + longest + granularity(RTO) * several)
    }
}

/// An ordinary retransmission timeout.
const RTO: Duration = Duration::from_millis(300);
/// Number of timers whose lateness adds up.
const LATE_COUNT_MAX: u32 = 3;
/// How many times an event is moved away from timers.
const TRIES: u32 = 16;
