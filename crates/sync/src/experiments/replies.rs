//! Replies to messages: threads that have sent a message and wait until it was dealt with.
//!
//! A sender *asks*: it counts its request, then posts its message ([`Notify`](crate::Notify)). The owner takes the messages, then *replies*: all
//! requests that are counted by then are answered. Replies are owed to no order, so one answers all.
//!
//! # Why no reply is lost
//!
//! A request is counted under the mutex before its message is posted, and the owner takes the mutex after it has taken the messages: so the
//! requests whose message it took are counted, and it answers them. A sender takes its ticket in the section that found its request
//! unanswered, and the owner notifies in the section that answers: one of the two comes first, and a ticket that comes first is notified.
//!
//! Both counts wrap; fewer than 2^31 requests may be open at a time. The mutex is a leaf. Does not depend on the requests. Tests:
//! below, `tests/loom/reply.rs`.

use crate::facade::{Arc, Mutex};
use crate::{Ticket, WaitQueue};

/// See the head of the file.
#[derive(Debug)]
pub struct Replies {
    counts: Mutex<Counts>,
    /// Guarded by `counts`.
    wait: Arc<WaitQueue>,
}

/// Requests since the beginning.
#[derive(Default, Debug)]
struct Counts {
    asked: u32,
    given: u32,
}

/// A request that was counted.
#[must_use = "it is for the look at whether it was answered"]
#[derive(Clone, Copy, Debug)]
pub struct Request(u32);

impl Replies {
    /// No thread has asked.
    pub fn new() -> Self {
        Self { counts: Mutex::new(Counts::default()), wait: Arc::new(WaitQueue::new()) }
    }

    /// Counts a request. The caller posts its message afterwards.
    pub fn ask(&self) -> Request {
        let mut counts = self.counts.lock();
        counts.asked = counts.asked.wrapping_add(1);
        Request(counts.asked)
    }

    /// `None` if a request was answered, else a ticket for the next reply.
    pub fn ticket(&self, request: Request) -> Option<Ticket> {
        let counts = self.counts.lock();
        let is_answered = counts.given.wrapping_sub(request.0).cast_signed() >= 0;
        (!is_answered).then(|| self.wait.prepare())
    }

    /// Answers all requests, after their messages were taken. True if the caller owes [`queue`](Self::queue) a wake, outside its locks.
    #[must_use = "senders may sleep"]
    pub fn reply(&self) -> bool {
        let mut counts = self.counts.lock();
        counts.given = counts.asked;
        self.wait.notify().is_wake_owed()
    }

    /// Where senders wait.
    pub fn queue(&self) -> &Arc<WaitQueue> {
        &self.wait
    }
}

impl Default for Replies {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_reply_answers_all_earlier_requests_and_no_later_one() {
        let replies = Replies::new();
        let (first, second) = (replies.ask(), replies.ask());
        assert!(replies.ticket(first).is_some());
        assert!(!replies.reply(), "a ticket sleeps nowhere yet");
        assert!(replies.ticket(first).is_none() && replies.ticket(second).is_none());
        assert!(replies.ticket(replies.ask()).is_some());
    }

    #[test]
    fn counts_may_wrap() {
        let replies = Replies::new();
        *replies.counts.lock() = Counts { asked: u32::MAX, given: u32::MAX };
        let request = replies.ask();
        assert!(replies.ticket(request).is_some());
        let _no_sleeper = replies.reply();
        assert!(replies.ticket(request).is_none());
    }
}
