//! Blocking of UNIX-domain sockets' calls: timeouts, tickets, packet memory.
//!
//! Must not know what is waited for. The tickets are taken under the mutex of the condition, by the caller.
//! Tests: `tests/unix/`.

use std::time::{Duration, Instant};

use rustix::io::Errno;
use sockeye_sync::facade::{AtomicU64, Ordering};
use sockeye_sync::{Spin, Ticket, WaitQueue, Woken};

use crate::stack::{Core, counter};
use crate::workers::deadline_after;

/// SO_RCVTIMEO or SO_SNDTIMEO: counted from the first time that a call has to wait.
pub(crate) struct Timeout {
    timeout: Option<Duration>,
    until: Option<Instant>,
}

impl Timeout {
    #[inline]
    pub fn of(micros: &AtomicU64) -> Self {
        // Relaxed: an option, which orders nothing.
        let micros = micros.load(Ordering::Relaxed);
        Self { timeout: (micros > 0).then(|| Duration::from_micros(micros)), until: None }
    }

    fn until(&mut self) -> Option<Instant> {
        if self.until.is_none() {
            self.until = deadline_after(self.timeout);
        }
        self.until
    }
}

/// Waits with a ticket. `cpu`: where the one that will notify ran last, if it is known.
///
/// # Errors
/// EAGAIN at the end of the time, or if there is no ticket because the call does not block.
#[cold]
pub(crate) fn wait(
    core: &Core,
    queue: &WaitQueue,
    ticket: Option<Ticket>,
    cpu: u32,
    timeout: &mut Timeout,
) -> Result<(), Errno> {
    let Some(ticket) = ticket else { return Err(Errno::AGAIN) };
    core.count(counter::SLEEPS);
    let spin = Spin::up_to(core.config.spin_max).woken_from(Some(cpu));
    match queue.wait(ticket, timeout.until(), spin) {
        Woken::Spinning | Woken::Parked => Ok(()),
        Woken::TimedOut => Err(Errno::AGAIN),
    }
}

/// At the memory cap: waits for memory for a moment, and says to try again.
///
/// # Errors
/// ENOMEM if the call does not block, EAGAIN at the end of its time.
#[cold]
pub(crate) fn wait_for_memory(core: &Core, blocks: bool, timeout: &mut Timeout) -> Result<(), Errno> {
    core.count(counter::MEMORY_WAITS);
    if !blocks {
        return Err(Errno::NOMEM);
    }
    let until = timeout.until();
    let slice = Instant::now() + MEMORY_WAIT;
    core.pool.wait_freed(Some(until.map_or(slice, |until| until.min(slice))));
    if until.is_some_and(|until| Instant::now() >= until) {
        return Err(Errno::AGAIN);
    }
    Ok(())
}

/// How long a send waits for memory before it looks at its peer again.
const MEMORY_WAIT: Duration = Duration::from_millis(50);
