//! Blocking of UNIX-domain sockets' calls, with the errors of theirs. How it is done: `crate::rt::blocking`.
//!
//! Does not depend on the awaited event. The tickets are taken under the mutex of the condition, by the
//! caller. Tests: `tests/unix/`.

use rustix::io::Errno;
use sockeye_sync::{Ticket, WaitQueue};

use crate::rt::blocking;
pub(crate) use crate::rt::blocking::Timeout;
use crate::rt::counter;
use crate::rt::env::Env;

/// Waits with a ticket. `cpu`: where the one that will notify ran last, if it is known.
///
/// # Errors
/// EAGAIN at the end of the time, or if there is no ticket because the call does not block.
#[cold]
pub(crate) fn wait(
    core: &Env,
    queue: &WaitQueue,
    ticket: Option<Ticket>,
    cpu: u32,
    timeout: &mut Timeout,
) -> Result<(), Errno> {
    let Some(ticket) = ticket else { return Err(Errno::AGAIN) };
    if blocking::wait(core, queue, ticket, cpu, timeout) { Ok(()) } else { Err(Errno::AGAIN) }
}

/// At the memory cap: waits for memory for a moment, and says to try again.
///
/// # Errors
/// ENOMEM if the call does not block, EAGAIN at the end of its time.
#[cold]
pub(crate) fn wait_for_memory(core: &Env, blocks: bool, timeout: &mut Timeout) -> Result<(), Errno> {
    core.count(counter::MEMORY_WAITS);
    core.pruner.ask(core);
    if !blocks {
        return Err(Errno::NOMEM);
    }
    if blocking::wait_for_memory(core, timeout) { Ok(()) } else { Err(Errno::AGAIN) }
}
