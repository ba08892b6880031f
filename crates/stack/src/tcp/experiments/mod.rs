//! The older settings of TCP's techniques: `grain`, `entry`, `wake`, `input`, `rcvd` and `rx_free`.
//!
//! | module | settings |
//! |---|---|
//! | [`squeue`], [`leave`], [`deferred_output`] | `grain`, `entry`, `wake`: a squeue before the socket locks of its connections |
//! | [`input`] | `input`: how other threads are excluded while segments from interfaces are processed |
//! | [`rcvd`] | `rcvd`: how a reader reports room in `so_rcv` |
//! | [`remote_lists`], [`remote_sweep`] | `rx_free`: where used-up buffers wait at their connection |
//!
//! [`Configured`] asks the settings of the stack at each place that `tcp/discipline.rs` names, and does as the product does where none
//! differs. Tests: `tests/suite`, `tests/experiments, tests/wire/transfers.rs`.

mod deferred_output;
mod input;
mod leave;
mod rcvd;
mod remote_lists;
mod remote_sweep;
mod squeue;

use sockeye_mbuf::Freed;
use sockeye_sync::facade::Arc;

use super::Core;
use super::conn::outbox::Context;
use super::conn::sockbuf::Buffers;
use super::conn::user::Ends;
use super::conn::{Conn, Locked, Work};
use super::discipline::Discipline;
use crate::config::Config;
use crate::experiments::{Entry, Rcvd};
use crate::inet::input::{Packet, Place};
use crate::inet::netif::table::Via;

/// The discipline of the settings that the stack was made with.
pub(crate) struct Configured;

/// The settings' state of a stack.
pub(crate) struct OfStack {
    squeues: squeue::Squeues,
    input: input::Exclusion,
    /// Buffers on the remote-free lists of connections.
    pub remote_sweep: remote_sweep::RemoteSweep,
}

/// Their state of a connection. The lists take no room where no setting has any.
pub(crate) struct OfConn {
    squeue: Option<Arc<squeue::Squeue>>,
    rare: Option<Box<Rare>>,
}

/// State of a connection with `rcvd = sync`, and with `rx_free = slot` and `socket_list`.
struct Rare {
    replies: sockeye_sync::Replies,
    remote_lists: remote_lists::RemoteLists,
}

/// Their state of a call.
#[derive(Default)]
pub(crate) struct OfCall {
    /// How the calling thread enters squeues: the stack's setting for an application's, `Process` for a worker.
    entry: Entry,
    /// A buffer went to a remote-free list, and no sweep is coming.
    arms_sweep: bool,
    /// Connections of a shared squeue that are owed their output: see [`deferred_output`]. Empty outside of it.
    marked: Vec<Arc<Conn>>,
}

impl Discipline for Configured {
    type OfStack = OfStack;
    type OfConn = OfConn;
    type OfCall = OfCall;

    fn of_stack(config: &Config) -> OfStack {
        OfStack {
            squeues: squeue::Squeues::new(config),
            input: input::Exclusion::new(),
            remote_sweep: remote_sweep::RemoteSweep::new(),
        }
    }

    fn of_conn(core: &Core, hash: u64, via: Via, other: Option<&Conn>) -> OfConn {
        let set = &core.config.experiments;
        let needs_rare = set.rcvd == Rcvd::Sync || remote_lists::RemoteList::is_used(set.rx_free);
        let rare = || {
            Box::new(Rare {
                replies: sockeye_sync::Replies::new(),
                remote_lists: remote_lists::RemoteLists::new(set.rx_free),
            })
        };
        OfConn { squeue: squeue::of_conn(core, hash, via, other), rare: needs_rare.then(rare) }
    }

    #[inline]
    fn begin(core: &Core, call: &mut OfCall, is_worker: bool) {
        call.entry = if is_worker { Entry::Process } else { core.discipline.squeues.entry };
    }

    #[inline]
    fn enter(cx: &mut Context<'_>, conn: &Arc<Conn>, work: Work) {
        squeue::enter(cx, conn, work);
    }

    fn connect(cx: &mut Context<'_>, conn: &Arc<Conn>, may_sleep: bool) {
        squeue::connect(cx, conn, may_sleep);
    }

    #[inline]
    fn output(cx: &mut Context<'_>, conn: &Arc<Conn>, so: Locked<'_>) {
        squeue::output(cx, conn, so);
    }

    #[inline]
    fn resume(cx: &mut Context<'_>, conn: &Arc<Conn>) {
        squeue::resume(cx, conn);
    }

    #[inline]
    fn take_over(cx: &mut Context<'_>, conn: &Arc<Conn>) {
        squeue::take_over(cx, conn);
    }

    #[inline]
    fn is_queued_before_lock(conn: &Conn) -> bool {
        squeue::of(conn).is_some()
    }

    #[inline]
    fn hand_over(cx: &mut Context<'_>, peer: &Arc<Conn>, work: Work) -> Option<Work> {
        squeue::hand_over(cx, peer, work)
    }

    #[inline]
    fn batch(cx: &mut Context<'_>, at: Place, packets: &mut Vec<Packet>) {
        input::batch(cx, at, packets);
    }

    #[inline]
    fn input(
        cx: &mut Context<'_>,
        conn: &Arc<Conn>,
        first: Packet,
        next: impl FnMut() -> Option<Packet>,
    ) -> bool {
        input::input(cx, conn, first, next)
    }

    #[inline]
    fn owes_message(core: &Core, so: &Buffers) -> bool {
        rcvd::owes_message(core, so)
    }

    #[inline]
    fn runs_own_message(core: &Core, conn: &Conn) -> bool {
        rcvd::runs_own_message(core, conn)
    }

    #[inline]
    fn bring_message(core: &Core, ends: &Ends<'_>) {
        rcvd::bring_message(core, ends);
    }

    #[inline]
    fn reply(cx: &mut Context<'_>, conn: &Arc<Conn>) {
        rcvd::reply(cx, conn);
    }

    #[inline]
    fn take_remote_listed(cx: &mut Context<'_>, conn: &Conn) {
        remote_sweep::take_remote_listed(cx, conn);
    }

    #[inline]
    fn before_write(_: &Core, conn: &Conn) {
        remote_sweep::before_write(conn);
    }

    #[inline]
    fn release_acked(cx: &mut Context<'_>, conn: &Conn, so: &mut Buffers, bytes: u32) {
        remote_sweep::release_acked(cx, conn, so, bytes);
    }

    #[inline]
    fn release_read(core: &Core, conn: &Conn, freed: Freed) {
        remote_sweep::release_read(core, conn, freed);
    }

    #[inline]
    fn release_rest(cx: &mut Context<'_>) {
        remote_sweep::release_rest(cx);
    }

    #[inline]
    fn closed(_: &Core, conn: &Conn) {
        remote_sweep::closed(conn);
    }

    #[inline]
    fn forgotten(_: &Core, conn: &Conn) {
        remote_sweep::forgotten(conn);
    }

    fn reclaim(core: &Core) -> bool {
        core.discipline.remote_sweep.reclaim(core)
    }
}
