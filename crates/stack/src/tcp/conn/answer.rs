//! Answers: the reader of one is told to get up before it is written.
//!
//! Where two threads on two cores answer each other and do not spin, the time goes into wakes: some microseconds from the call
//! that wakes a thread until it runs, in which its core is started again. What has to be done before the call is added to that.
//! So it comes first ([`WaitQueue::rouse`](sockeye_sync::WaitQueue::rouse)): a small write that answers a read which has
//! waited rouses the reader at the other end, and is then written and delivered while he gets up. Once [`EARLY`] writes in a row have been
//! answers, the read itself does that, as soon as a request is there: running it and copying it out are then done meanwhile too.
//!
//! A rouse is a hint ([`WaitQueue`](sockeye_sync::WaitQueue)): he who finds nothing within some microseconds sleeps again,
//! and whoever then brings something is told that it was in vain. The count begins anew: who computes for long before he
//! answers wakes nobody too early but for once in [`EARLY`] answers.
//!
//! With a stack that spins ([`Config::spin_max`](crate::Config::spin_max)) nothing of this is done: there the reader of an answer is awake, or has given up.
//!
//! Only readers who offer to run what comes (`user.rs`, `wait_hosting`) are roused, on other cores than the caller's: on the same
//! one nobody gets up while somebody else runs.
//!
//! Must not know what is written. Tests: `tests/host.rs`.

use sockeye_sync::facade::{AtomicBool, AtomicU8, Ordering};

use super::{Conn, emit};
use crate::stack::{Core, counter};

/// How one end of a connection uses to answer. All of it is a hint; relaxed, since nothing is ordered by it.
#[derive(Default)]
pub(crate) struct Answers {
    /// A read has waited, and nothing was written since.
    is_owed: AtomicBool,
    /// Writes that were answers since somebody was roused in vain, up to [`EARLY`].
    count: AtomicU8,
}

/// Answers after which an answer rouses its reader when it is written.
const LATE: u8 = 4;
/// Answers after which the request does.
const EARLY: u8 = 36;

impl Answers {
    /// A reader was roused in vain.
    pub fn was_in_vain(&self) {
        self.count.store(0, Ordering::Relaxed);
    }

    /// A read has waited and has a request. True if the reader of its answer is to be roused now.
    fn on_request(&self) -> bool {
        self.is_owed.store(true, Ordering::Relaxed);
        self.count.load(Ordering::Relaxed) >= EARLY
    }

    /// So many bytes are about to be written. True if their reader is to be roused now.
    fn on_write(&self, bytes: usize) -> bool {
        if !self.is_owed.load(Ordering::Relaxed) {
            return false;
        }
        self.is_owed.store(false, Ordering::Relaxed);
        if bytes > emit::HOSTED_MAX {
            self.was_in_vain();
            return false;
        }
        let count = self.count.load(Ordering::Relaxed);
        if count == EARLY {
            return false;
        }
        self.count.store(count + 1, Ordering::Relaxed);
        count >= LATE
    }
}

/// A read of `conn` has waited for a request, which is there and has not been run yet.
pub(super) fn on_request(core: &Core, conn: &Conn, peer: Option<&Conn>) {
    if core.rouses && conn.options.answers.on_request() {
        rouse(core, peer);
    }
}

/// So many bytes are about to be written to `peer`.
#[inline]
pub(super) fn before_write(core: &Core, conn: &Conn, peer: Option<&Conn>, bytes: usize) {
    if core.rouses && conn.options.answers.on_write(bytes) {
        rouse(core, peer);
    }
}

fn rouse(core: &Core, peer: Option<&Conn>) {
    let Some(peer) = peer else { return };
    let is_elsewhere = peer.perimeter().hosted_on().is_some_and(|cpu| cpu != core.cpu());
    if is_elsewhere && peer.rcv_wait.rouse() {
        core.count(counter::ROUSED);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn answer(answers: &Answers) -> (bool, bool) {
        (answers.on_request(), answers.on_write(1))
    }

    #[test]
    fn first_nobody_is_roused_then_by_the_answer_then_by_the_request() {
        let answers = Answers::default();
        let all: Vec<_> = (0..100).map(|_| answer(&answers)).collect();
        let (none, rest) = all.split_at(LATE.into());
        let (late, early) = rest.split_at((EARLY - LATE).into());
        assert!(none.iter().all(|roused| *roused == (false, false)));
        assert!(late.iter().all(|roused| *roused == (false, true)));
        assert!(early.iter().all(|roused| *roused == (true, false)));
    }

    #[test]
    fn in_vain_and_with_a_large_answer_it_begins_anew() {
        let large = emit::HOSTED_MAX + 1;
        let undo: [fn(&Answers, usize); 2] =
            [|answers, _| answers.was_in_vain(), |answers, large| assert!(!answers.on_write(large))];
        for undo in undo {
            let answers = Answers::default();
            (0..EARLY).for_each(|_| _ = answer(&answers));
            assert!(answers.on_request());
            undo(&answers, large);
            assert!(!answers.on_request() && !answers.on_write(1));
        }
    }

    #[test]
    fn what_answers_no_read_that_has_waited_rouses_nobody() {
        let answers = Answers::default();
        (0..EARLY).for_each(|_| _ = answer(&answers));
        answers.on_request();
        assert!(!answers.on_write(1), "the request did");
        answers.was_in_vain();
        assert!((0..100).all(|_| !answers.on_write(1)));
    }
}
