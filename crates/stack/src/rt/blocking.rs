//! How a call blocks: timeouts as options, a wait with a ticket, a wait for packet memory.
//!
//! One piece for all sockets. Does not depend on the awaited event, or on which error says that the time is
//! over: that is the caller's. The tickets are taken by the caller, under the mutex of the condition. Tests:
//! `tests/suite/blocking.rs`, `tests/suite/limits.rs`, `tests/unix/`.

use std::io;
use std::time::{Duration, Instant};

use sockeye_sync::admission::{self, Admission, Full};
use sockeye_sync::facade::{AtomicU64, Ordering};
use sockeye_sync::{Spin, Ticket, WaitQueue, Woken};

use crate::rt::counter;
use crate::rt::env::Env;
use crate::rt::workers::deadline_after;

/// SO_RCVTIMEO, SO_SNDTIMEO or the like: counted from the first time that a call has to wait.
pub(crate) struct Timeout {
    timeout: Option<Duration>,
    until: Option<Instant>,
}

impl Timeout {
    /// As long as the option says, in microseconds; 0 for no limit.
    #[inline]
    pub fn of(micros: &AtomicU64) -> Self {
        Self::after(load_timeout(micros))
    }

    /// As long as this; `None` for no limit.
    #[inline]
    pub fn after(timeout: Option<Duration>) -> Self {
        Self { timeout, until: None }
    }

    /// The end of the time, from the first call on; `None` for none.
    pub fn until(&mut self) -> Option<Instant> {
        if self.until.is_none() {
            self.until = deadline_after(self.timeout);
        }
        self.until
    }
}

/// Waits with a ticket; `false` at the end of the time. `cpu`: where the one that will notify ran last, if it is known.
pub(crate) fn wait(env: &Env, queue: &WaitQueue, ticket: Ticket, cpu: u32, timeout: &mut Timeout) -> bool {
    env.count(counter::SLEEPS);
    admission::give_back();
    queue.wait(ticket, timeout.until(), spin_for(env, cpu)) != Woken::TimedOut
}

/// How a caller spins that waits for a thread that ran last on `cpu`.
fn spin_for(env: &Env, cpu: u32) -> Spin {
    Spin::up_to(env.config.spin_max).woken_from(Some(cpu)).for_one_answer()
}

/// [`wait`] of a writer for a reader in this process, under the admission limit where there are many. It may come back without
/// having waited for space.
pub(crate) fn wait_for_reader(
    env: &Env,
    queue: &WaitQueue,
    ticket: Ticket,
    cpu: u32,
    timeout: &mut Timeout,
) -> bool {
    let deadline = timeout.until();
    if env.config.writer_admission && admission::ask(&Full { reader: cpu, deadline }) {
        env.count(counter::WRITERS_ADMITTED);
        return true;
    }
    env.count(counter::SLEEPS);
    if spin_for(env, cpu).until(|| queue.is_over(ticket)) {
        return true;
    }
    Admission::of_process().parked(|| queue.park(ticket, deadline)) != Woken::TimedOut
}

/// Waits for packet memory, for a moment at most: the caller's socket may fail while memory stays short. `false` at the
/// end of the time.
pub(crate) fn wait_for_memory(env: &Env, timeout: &mut Timeout) -> bool {
    let until = timeout.until();
    let slice = Instant::now() + MEMORY_WAIT;
    env.pool.wait_freed(Some(until.map_or(slice, |until| until.min(slice))));
    until.is_none_or(|until| Instant::now() < until)
}

/// How long a send waits for memory before it looks at its socket again.
const MEMORY_WAIT: Duration = Duration::from_millis(50);

/// Refuses a timeout of zero, as `std` does.
pub(crate) fn nonzero(timeout: Option<Duration>) -> io::Result<()> {
    if timeout == Some(Duration::ZERO) {
        let message = "a timeout of zero is not a timeout: use None, or set_nonblocking";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    Ok(())
}

/// Sets a timeout option, in microseconds.
pub(crate) fn store_timeout(slot: &AtomicU64, timeout: Option<Duration>) -> io::Result<()> {
    nonzero(timeout)?;
    let micros = timeout.map_or(0, |t| u64::try_from(t.as_micros()).unwrap_or(u64::MAX).max(1));
    slot.store(micros, Ordering::Relaxed);
    Ok(())
}

/// Reads a timeout option. Relaxed: an option, which orders nothing.
#[inline]
pub(crate) fn load_timeout(slot: &AtomicU64) -> Option<Duration> {
    let micros = slot.load(Ordering::Relaxed);
    (micros > 0).then(|| Duration::from_micros(micros))
}
