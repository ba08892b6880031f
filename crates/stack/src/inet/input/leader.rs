//! A caller whose wait goes on sleeps in its interface, and not on a word that an input thread would have to write.
//!
//! A caller that waits for frames takes them itself as long as it is busy (`busy.rs`). If none has come by then it would park; a
//! frame would wake the input thread, and that thread the caller: two switches of threads where a program with a socket of the
//! kernel has one. So if the driver lets callers wait ([`Netif::wait_until`](crate::netif::Netif::wait_until)), the caller
//! becomes the *leader* of the queue, and the input thread its follower (leader/follower, POSA2): the frame wakes the leader,
//! which handles it.
//!
//! # Which caller
//! One at a time, and only where the queue is its own: the last [`SOLE_MIN`] packets in it were all for its connection. Where
//! several connections share a queue, the frames of the others would wait while the leader is back in its program, so
//! there the input thread stays in charge. A leader that sees another connection's packet gives up the lead.
//!
//! # States, and why nothing is lost
//! They are those of [`LeaderSlot`](sockeye_sync::LeaderSlot): the head of `sync/src/leader.rs` has the argument, and
//! `sync/tests/loom/leader.rs` every order of its steps. Added here, by argument alone:
//!
//! * A thread that ends the wait of a connection's caller from elsewhere fires a wake, and [`kick`] with it. It must not look for the
//!   leader where the connection's frames come in *now*: a device with several queues moves a flow when it likes. So the
//!   leader says where it is before it announces its sleep, and a thread that owes a wake has seen the announcement, and with it
//!   that word. Of the threads that wait for the same thing one can be a leader at a time.
//! * A leader whose wait is over leaves the queue preferred by callers, as a busy caller does: the input thread looks at it within
//!   the bound that `busy.rs` has for that. If it sleeps without a bound, the leader wakes it when it leaves.
//! * A leader that gives up before its wait is over wakes the input thread and then parks as always.
//! * An interface that is gone, or whose waits have been ended, lets no thread wait: the caller parks.
//!
//! It does not depend on the awaited event. Tests: `drivers/tests/waits.rs`. The model does not have the word of the place
//! ([`PlaceCell`]).

use std::time::Instant;

use sockeye_sync::facade::Ordering;
use sockeye_sync::{Spin, Ticket, WaitQueue, Woken};

use super::busy::{self, Place, PlaceCell};
use super::{Transport, count};
use crate::base::addr::FourTuple;
use crate::inet::Core;
use crate::inet::netif::Waited;
use crate::rt::blocking::Timeout;
use crate::rt::counter;

/// Packets of one connection in a row after which a queue counts as its own.
const SOLE_MIN: u32 = 16;

/// How many packets in a row were for one connection.
#[derive(Clone, Copy, Default)]
pub(super) struct Sole {
    /// The connection that the last segment was for.
    to: Option<FourTuple>,
    packets: u32,
}

impl Sole {
    /// After a packet: a segment for the connection `to`, or anything else.
    pub fn note(&mut self, to: Option<FourTuple>) {
        let is_same = to.is_some() && to == self.to;
        self.packets = if is_same { self.packets.saturating_add(1) } else { 0 };
        self.to = to.or(self.to);
    }

    /// Whether the queue is that connection's.
    fn is_of(&self, conn: &FourTuple) -> bool {
        self.packets >= SOLE_MIN && self.to.as_ref() == Some(conn)
    }
}

/// Whether a caller that waits for `conn` could sleep in the interface: then there is little to be won by being busy.
pub(crate) fn is_likely(core: &Core, at: Place, conn: &FourTuple) -> bool {
    // Relaxed: a hint.
    busy::polled_queue(core, at).is_some_and(|queue| {
        !queue.has_no_place.load(Ordering::Relaxed)
            && queue.poll.try_take().is_some_and(|batch| batch.sole.is_of(conn))
    })
}

/// The threads that wait for one thing of a connection.
#[derive(Clone, Copy)]
pub(crate) struct Waiters<'a> {
    pub queue: &'a WaitQueue,
    /// They wait for bytes, and not for space.
    pub are_readers: bool,
    /// Where the leader among them sleeps.
    pub leader_at: &'a PlaceCell,
}

/// The leader's record of where it sleeps, which dropping this clears.
struct AtDevice<'a>(&'a PlaceCell);

impl<'a> AtDevice<'a> {
    /// `None` if another of the same waiters sleeps in an interface.
    fn at(leader_at: &'a PlaceCell, at: Place) -> Option<Self> {
        // Not `then_some`: what it is given is made, and so dropped, in either case.
        leader_at.try_take(at).then(|| Self(leader_at))
    }
}

impl Drop for AtDevice<'_> {
    fn drop(&mut self) {
        self.0.clear();
    }
}

/// A wait that was not over while its caller was busy.
pub(crate) struct Wait<'a> {
    pub at: Place,
    pub conn: &'a FourTuple,
    pub waiters: Waiters<'a>,
    pub ticket: Ticket,
    pub deadline: Option<Instant>,
}

/// Sleeps in the interface, where that [is likely](is_likely) to be of use, until the wait or the time is over. `None` if that cannot
/// be, or not any more: the caller is to park. **Blocks**; called without locks.
pub(crate) fn wait<T: Transport>(core: &T, wait: &Wait<'_>) -> Option<Woken> {
    let queue = busy::polled_queue(core, wait.at)?;
    let netif = core.netifs.netif(wait.at.netif)?;
    let leader = queue.leader.try_lead(wait.waiters.queue)?;
    let _at_device = AtDevice::at(wait.waiters.leader_at, wait.at)?;
    core.input.count(count::LEADS, 1);
    loop {
        if !leader.begin(wait.ticket) {
            return Some(Woken::Spinning);
        }
        let waited = netif.wait_until(core, wait.at.queue, wait.deadline);
        leader.pause();
        let is_late = match waited {
            Waited::Unable => {
                queue.has_no_place.store(true, Ordering::Relaxed);
                return None;
            }
            Waited::TimedOut => true,
            Waited::Woken => false,
        };
        // The thread that has the batch is busy there, and takes the frames.
        let mut batch = queue.poll.try_take()?;
        if busy::turn_of_caller(core, wait.at, &mut batch) > 0 {
            core.input.count(count::BY_CALLERS, 1);
            busy::prefer(queue);
        }
        let is_own = batch.sole.is_of(wait.conn);
        drop(batch);
        if wait.waiters.queue.is_over(wait.ticket) {
            return Some(Woken::Parked);
        }
        if is_late {
            return Some(Woken::TimedOut);
        }
        if !is_own {
            return None;
        }
    }
}

/// Waits with a ticket for something that frames from an interface bring; `false` at the end of the time. As long as it is busy, the caller
/// takes them from their queue itself (`busy.rs`), and then it may sleep there. Called without locks.
pub(crate) fn wait_polling<T: Transport>(
    core: &T,
    (waiters, ticket): (Waiters<'_>, Ticket),
    (at, conn): (Place, &FourTuple),
    timeout: &mut Timeout,
) -> bool {
    core.count(counter::SLEEPS);
    // The answer comes from outside, from a core that is not known: ours is offered at each turn.
    let may_lead = is_likely(core, at, conn);
    let part = if may_lead && waiters.are_readers { SPIN_PART } else { 1 };
    let spin = Spin::up_to(core.config.spin_max / part).woken_from(Some(core.cpu()));
    if busy::until(core, at, spin, || waiters.queue.is_over(ticket)) {
        return true;
    }
    let deadline = timeout.until();
    let led = may_lead.then(|| wait(core, &Wait { at, conn, waiters, ticket, deadline }));
    let woken = led.flatten().unwrap_or_else(|| {
        busy::leave(core, at);
        waiters.queue.park(ticket, deadline)
    });
    woken != Woken::TimedOut
}

/// The part of the time to be busy that is enough for a reader that can sleep where its frames come: no other thread has to be woken
/// for them, so a sleep costs a fourth of its usual cost. A writer is busy for longer: while it waits for much space,
/// acknowledgments of parts of it would each end a sleep.
const SPIN_PART: u32 = 4;

/// Ends the sleep of a leader among `waiters`, whose queue was notified and owes a wake. Outside all locks.
pub(crate) fn kick(core: &Core, waiters: Waiters<'_>) {
    if let Some(at) = waiters.leader_at.load()
        && busy::polled_queue(core, at).is_some_and(|queue| queue.leader.relieve(waiters.queue))
        && let Some(netif) = core.netifs.netif(at.netif)
    {
        netif.kick(core, at.queue);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inet::netif::table::NetifId;

    #[test]
    fn a_second_leader_of_the_same_waiters_leaves_the_record_of_the_first() {
        let (cell, at) =
            (PlaceCell::default(), |queue| Place { netif: NetifId::from_index(1).unwrap(), queue });
        let first = AtDevice::at(&cell, at(2)).unwrap();
        assert!(AtDevice::at(&cell, at(3)).is_none());
        assert_eq!(cell.load(), Some(at(2)), "whoever notifies finds it");
        drop(first);
        assert_eq!(cell.load(), None);
    }
}
