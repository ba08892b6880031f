//! The share of a loop's time that new flows may have, so that a flood of them leaves the flows that are there half of it.
//!
//! To begin a flow takes some 50 times as long as to pass a segment on. What beginnings take is measured, in time of the thread and not of the clock, so it does not matter who
//! else wants the core. Where it is more than half of all that the loop has done lately, each kind of flow begins [`PAUSE`] after the one before.
//! So a loop that has nothing else to do begins flows at that pace at least, and one whose beginnings are less than half of the work, which is so for connections that carry something, never
//! waits.
//!
//! Does not depend on what a flow is. Cost: two readings of the thread's clock for each step of a beginning. Tests: below.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::task::yield_now;
use tokio::time::sleep;

/// Work of the loop after which it is measured anew.
const WINDOW: Duration = Duration::from_millis(20);
/// Work of beginnings that is never too much.
const BURST: Duration = Duration::from_millis(1);
/// Between two beginnings where there are too many. The runtime's timers are no finer.
const PAUSE: Duration = Duration::from_millis(1);

/// See the module's head. Of one thread.
#[derive(Default)]
pub struct Share {
    /// When the window began, by the thread's clock.
    start: Cell<Duration>,
    /// What beginnings have taken since.
    taken: Cell<Duration>,
}

impl Share {
    /// Gives the flows that are there their turn, for longer if beginnings have had more than their share. Called after each.
    pub async fn turn(&self) {
        if self.is_used_up() {
            sleep(PAUSE).await;
        } else {
            yield_now().await;
        }
    }

    /// Whether beginnings have had more than their share lately.
    pub fn is_used_up(&self) -> bool {
        self.is_used_up_at(thread_time())
    }

    /// A beginning, which is measured.
    pub async fn measure<T>(&self, beginning: impl Future<Output = T>) -> T {
        let mut beginning = pin!(beginning);
        poll_fn(|cx| {
            let before = thread_time();
            let polled = beginning.as_mut().poll(cx);
            self.taken.set(self.taken.get() + thread_time().saturating_sub(before));
            polled
        })
        .await
    }

    fn is_used_up_at(&self, now: Duration) -> bool {
        let all = now.saturating_sub(self.start.get());
        let is_used_up = self.taken.get() > all / 2 + BURST;
        if all > WINDOW {
            self.start.set(now);
            // What was too much is owed.
            self.taken.set(self.taken.get().saturating_sub(all / 2).min(WINDOW));
        }
        is_used_up
    }
}

/// What this thread has run so far.
fn thread_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Beginnings of `begin` microseconds each and `rest` of other work, for a second: how many were too many.
    fn waits(begin: u64, rest: u64) -> u64 {
        let share = Share::default();
        let (mut now, mut waits) = (Duration::ZERO, 0);
        for _ in 0..1_000_000 / (begin + rest) {
            now += Duration::from_micros(begin + rest);
            share.taken.set(share.taken.get() + Duration::from_micros(begin));
            waits += u64::from(share.is_used_up_at(now));
        }
        waits * 100 / (1_000_000 / (begin + rest))
    }

    #[test]
    fn beginnings_have_half_of_the_work() {
        assert_eq!(waits(60, 180), 0, "connections that carry something");
        assert_eq!(waits(60, 61), 0);
        assert!(waits(60, 20) > 90, "a flood");
    }

    #[test]
    fn what_is_begun_is_measured_by_the_threads_clock() {
        let share = Share::default();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(share.measure(async { sleep(Duration::from_millis(30)).await }));
        assert!(share.taken.get() < Duration::from_millis(20), "sleep is no work");
        let before = thread_time();
        runtime.block_on(share.measure(async { while thread_time() - before < Duration::from_millis(5) {} }));
        assert!(share.taken.get() >= Duration::from_millis(4));
    }
}
