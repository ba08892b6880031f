//! The parts of TCP that settings measured against each other change: the defaults are the product's.
//!
//! [`Discipline`] has a function for each place at which a setting makes a difference:
//!
//! | question | product | functions |
//! |---|---|---|
//! | how work reaches a connection | to its socket lock, or that lock's backlog | `enter` … `hand_over` |
//! | how input from interfaces is excluded | the socket lock, once for a run of segments | `batch`, `input` |
//! | how a reader reports room in `so_rcv` | by a message that it runs itself, if a window update or an acknowledgment is due | `owes_message` … `reply` |
//! | which thread frees a receive buffer | the thread that used it up, to its own cache | `take_remote_listed` … `reclaim` |
//!
//! Without the feature `experiments` the defaults are all there is, and the compiler sees through them. With it, [`Chosen`] asks the settings
//! of the stack; their implementations are in `experiments/`. The defaults are the same then: the feature adds settings and changes none.
//!
//! Tests: the socket layer's; `tests/suite` over the matrix of settings.

use sockeye_mbuf::Freed;
use sockeye_sync::facade::Arc;

use super::Core;
use super::conn::outbox::Context;
use super::conn::sockbuf::Buffers;
use super::conn::user::Ends;
use super::conn::{Conn, Locked, Work, engine, reason, run, serve};
use super::input;
use crate::config::Config;
use crate::inet::input::{Packet, Place};
use crate::inet::netif::table::Via;

/// See the module's head.
pub(crate) trait Discipline {
    /// The settings' state of a stack.
    type OfStack: Send + Sync;
    /// Their state of a connection.
    type OfConn: Send + Sync;
    /// Their state of a call into the stack.
    type OfCall: Default;

    /// That of a new stack.
    fn of_stack(config: &Config) -> Self::OfStack;

    /// That of a new connection of this hash, whose segments go by `via`; `other` is its other end, if that is in this stack.
    fn of_conn(core: &Core, hash: u64, via: Via, other: Option<&Conn>) -> Self::OfConn;

    /// A call into the stack begins, of an application's thread or of the stack's own.
    #[inline]
    fn begin(core: &Core, call: &mut Self::OfCall, is_worker: bool) {
        let (_, _, _) = (core, call, is_worker);
    }

    /// Brings `work` to `conn`: runs it now, or leaves it to the thread that runs the connection's items. With no lock held.
    #[inline]
    fn enter(cx: &mut Context<'_>, conn: &Arc<Conn>, work: Work) {
        serve::bring(cx, conn, work);
    }

    /// Sends the SYN. `may_sleep`: the caller may wait until others let it do that.
    fn connect(cx: &mut Context<'_>, conn: &Arc<Conn>, may_sleep: bool) {
        let _ = may_sleep;
        engine::notify(cx, conn, reason::OUTPUT);
    }

    /// Goes on with the lock of a writer, and runs output. For a caller that settles at once.
    #[inline]
    fn output(cx: &mut Context<'_>, conn: &Arc<Conn>, so: Locked<'_>) {
        serve::output(cx, conn, so);
    }

    /// Runs a connection in whose backlog this thread has left the first item, if no thread has yet.
    #[inline]
    fn resume(cx: &mut Context<'_>, conn: &Arc<Conn>) {
        serve::look(cx, conn);
    }

    /// Runs a connection that was handed over while no thread ran it.
    #[inline]
    fn take_over(cx: &mut Context<'_>, conn: &Arc<Conn>) {
        serve::take_over(cx, conn);
    }

    /// Whether work for `conn` waits before its lock, so that the lock does not say whether there is some.
    #[inline]
    fn is_queued_before_lock(conn: &Conn) -> bool {
        let _ = conn;
        false
    }

    /// Takes a segment for `peer` that is handed over under the sender's lock; a segment that it gives back goes to the
    /// peer's lock.
    #[inline]
    fn hand_over(cx: &mut Context<'_>, peer: &Arc<Conn>, work: Work) -> Option<Work> {
        let (_, _) = (cx, peer);
        Some(work)
    }

    /// Handles all of `packets`, which came in at `at`, in order within each flow.
    #[inline]
    fn batch(cx: &mut Context<'_>, at: Place, packets: &mut Vec<Packet>) {
        input::in_runs(cx, at, packets);
    }

    /// Runs `first` and those items from `next` that are for the same connection. True if the connection has
    /// ended on the way.
    #[inline]
    fn input(
        cx: &mut Context<'_>,
        conn: &Arc<Conn>,
        first: Packet,
        next: impl FnMut() -> Option<Packet>,
    ) -> bool {
        run::input(cx, conn, first, next)
    }

    /// Whether a reader owes the protocol a message for the bytes that it has just unlinked, under this hold of the lock.
    #[inline]
    fn owes_message(core: &Core, so: &Buffers) -> bool {
        let _ = core;
        so.rcv.ack_due() || so.rcv.update_due()
    }

    /// Whether the reader runs its message itself, with the lock that it has. If not, it [brings](Self::bring_message) it.
    #[inline]
    fn runs_own_message(core: &Core, conn: &Conn) -> bool {
        let (_, _) = (core, conn);
        true
    }

    /// Brings a reader's message to the protocol, with no lock held.
    #[inline]
    fn bring_message(core: &Core, ends: &Ends<'_>) {
        let (_, _) = (core, ends);
    }

    /// The protocol has dealt with messages of readers; or there is none any more.
    #[inline]
    fn reply(cx: &mut Context<'_>, conn: &Arc<Conn>) {
        let (_, _) = (cx, conn);
    }

    /// The calling thread brings a packet for `conn`, so it may use buffers that the reader has used up.
    #[inline]
    fn take_remote_listed(cx: &mut Context<'_>, conn: &Conn) {
        let (_, _) = (cx, conn);
    }

    /// The calling thread is about to allocate for a write to `conn`. With no lock held.
    #[inline]
    fn before_write(core: &Core, conn: &Conn) {
        let (_, _) = (core, conn);
    }

    /// Unlinks the first `bytes` of `so_snd`, which the peer has acknowledged.
    #[inline]
    fn release_acked(cx: &mut Context<'_>, conn: &Conn, so: &mut Buffers, bytes: u32) {
        let _ = conn;
        engine::release_acked(cx, so, bytes);
    }

    /// Gives back buffers that a reader of `conn` has used up. With no lock held.
    #[inline]
    fn release_read(core: &Core, conn: &Conn, freed: Freed) {
        let (_, _) = (core, conn);
        drop(freed);
    }

    /// Gives back buffers that a call has unlinked under locks. With no lock held.
    #[inline]
    fn release_rest(cx: &mut Context<'_>) {
        cx.outbox.freed.clear();
        drop(std::mem::take(&mut cx.outbox.spares));
    }

    /// The application has closed `conn`. With no lock held.
    #[inline]
    fn closed(core: &Core, conn: &Conn) {
        let (_, _) = (core, conn);
    }

    /// `conn` has left the table.
    #[inline]
    fn forgotten(core: &Core, conn: &Conn) {
        let (_, _) = (core, conn);
    }

    /// A thread was refused packet memory. Whether any was given back. With no lock held.
    #[inline]
    fn reclaim(core: &Core) -> bool {
        let _ = core;
        false
    }
}

/// The product's discipline.
#[cfg(not(feature = "experiments"))]
pub(crate) struct Product;

/// The product's state for it.
#[cfg(not(feature = "experiments"))]
#[derive(Default)]
pub(crate) struct Nothing;

#[cfg(not(feature = "experiments"))]
impl Discipline for Product {
    type OfStack = Nothing;
    type OfConn = Nothing;
    type OfCall = Nothing;

    fn of_stack(_: &Config) -> Nothing {
        Nothing
    }

    fn of_conn(_: &Core, _: u64, _: Via, _: Option<&Conn>) -> Nothing {
        Nothing
    }
}

/// The discipline that stacks have.
#[cfg(not(feature = "experiments"))]
pub(crate) type Chosen = Product;
#[cfg(feature = "experiments")]
pub(crate) type Chosen = super::experiments::Configured;
