//! Limits how many unanswered flows a loop starts, so that a flood of them leaves time for existing flows.
//!
//! Starting and ending a flow costs about 100 times as much as passing a segment on, and costs the sender one packet. So each kind of flow has a credit:
//!
//! ```text
//! a flow starts ─► takes one      the far end answers ─► returns that one      a second passes ─► returns RATE, up to BURST in all
//! ```
//!
//! A connection that is established, and a UDP flow or query that gets an answer, therefore cost nothing in the end. The credit limits an ordinary program only if it has more than [`BURST`]
//! pending starts. When the credit is used up, further starts wait, and once their queue is full, further packets are dropped
//! before they cost much. A destination that a rule refuses needs no socket and takes no credit.
//! A new client of a published UDP port does not wait, because the datagrams of the others would wait behind it: without credit, its datagram is dropped.
//!
//! Existing flows come first: of the starts that one turn of the driver brings, the first goes ahead at once, and before each further one all runnable tasks
//! get a turn.
//!
//! Does not depend on the kind of flow. Used by one thread. Tests: below; `tests/gateway/floods.rs`.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::task::yield_now;
use tokio::time::sleep;

/// Beginnings under way that are not answered, beside those of the last moments.
const BURST: u32 = 256;
/// Beginnings a second that nobody answers.
const RATE: u32 = 500;
/// Until one is back. The runtime's timers are no finer.
const PAUSE: Duration = Duration::from_millis(1);

/// The credit of a kind of flows.
pub struct Credit {
    left: Cell<u32>,
    /// Up to when what time gives back has been counted.
    counted: Cell<Instant>,
    /// A flow has begun in this turn of the driver.
    has_begun: Cell<bool>,
}

/// A beginning, which has taken one.
pub struct Begun(Cell<Option<Rc<Credit>>>);

impl Credit {
    /// One that nothing has been taken of.
    pub fn new(now: Instant) -> Rc<Self> {
        Rc::new(Self { left: Cell::new(BURST), counted: Cell::new(now), has_begun: Cell::new(false) })
    }

    /// The driver has a turn.
    pub fn turn(&self) {
        self.has_begun.set(false);
    }

    /// Takes one for a beginning, once there is one, and if it is not the first of this turn, once the other tasks had theirs.
    pub async fn begin(self: &Rc<Self>) -> Begun {
        if self.has_begun.get() {
            yield_now().await;
        }
        self.has_begun.set(true);
        while !self.takes(Instant::now()) {
            sleep(PAUSE).await;
        }
        Begun(Cell::new(Some(Rc::clone(self))))
    }

    /// Takes one for a beginning that does not wait, if there is one.
    pub fn try_begin(self: &Rc<Self>) -> Option<Begun> {
        self.takes(Instant::now()).then(|| Begun(Cell::new(Some(Rc::clone(self)))))
    }

    /// Whether a beginning would have to wait.
    pub fn is_used_up(&self) -> bool {
        self.left.get() == 0
    }

    fn takes(&self, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.counted.get());
        let back = u32::try_from(passed.as_micros() * u128::from(RATE) / 1_000_000).unwrap_or(u32::MAX);
        if back >= BURST - self.left.get() {
            self.left.set(BURST);
            self.counted.set(now);
        } else {
            self.left.set(self.left.get() + back);
            self.counted.set(self.counted.get() + Duration::from_secs(1) / RATE * back);
        }
        let rest = self.left.get().checked_sub(1);
        self.left.set(rest.unwrap_or(0));
        rest.is_some()
    }
}

impl Begun {
    /// The far end has answered. More than once is as once.
    pub fn answered(&self) {
        if let Some(credit) = self.0.take() {
            credit.left.set((credit.left.get() + 1).min(BURST));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_answers_has_a_rate_and_what_is_answered_has_none() {
        let start = Instant::now();
        let at = |micros: u64| start + Duration::from_micros(micros);
        let credit = Credit::new(start);
        let taken = |from: u64, to: u64| (from..to).step_by(100).filter(|now| credit.takes(at(*now))).count();
        let first = taken(0, 1_000_000);
        assert!(first.abs_diff((BURST + RATE) as usize) <= 1, "{first} of a flood's first second");
        assert!(credit.is_used_up());
        assert!(taken(1_000_000, 2_000_000).abs_diff(RATE as usize) <= 1);
        assert!(taken(20_000_000, 20_025_000) == 250, "a pause makes it whole, and no more than that");

        let credit = Credit::new(start);
        for _ in 0..10_000 {
            assert!(credit.takes(start));
            let begun = Begun(Cell::new(Some(Rc::clone(&credit))));
            begun.answered();
            begun.answered();
        }
        assert_eq!(credit.left.get(), BURST);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_beginning_without_credit_waits_for_it() {
        let credit = Credit::new(Instant::now());
        let start = Instant::now();
        for _ in 0..BURST + 10 {
            credit.begin().await;
        }
        assert!(start.elapsed() >= Duration::from_millis(19));
    }
}
