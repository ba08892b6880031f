//! Connecting datagram sockets: the one peer to which a socket sends and from which it receives.
//!
//! The pointer to the peer is in the pcb's link (`sockeye_sync::pair`); the facts for the other side's senders are in the buffers: `flows.only` of
//! a connected socket names the only one that may send to it, and a sender that is connected keeps its flow at the receiver. Pointer and `only`
//! change together, under the pcb's mutex, and under both where there is a new peer. As on Linux, when a socket gets another peer, or finds its
//! peer gone, datagrams that it has not read are dropped, and the old peer, if it was connected to it, gets ECONNRESET.
//!
//! Tests: `tests/unix/`, `tests/unix/stress.rs`; models in `crates/sync/tests/loom/pair.rs`.

use rustix::io::Errno;
use sockeye_sync::facade::{Arc, Ordering};
use sockeye_sync::pair;

use super::locking::{Chosen, Locking};
use super::pcb::Pcb;
use super::rights::dispose;
use super::wakes::Wakes;
use crate::rt::env::Env;
use crate::rt::failpoints::{self, Point};
use crate::rt::panics::{self, PanicSource};

/// Links two new sockets with each other.
pub(crate) fn link_pair(core: &Env, a: &Arc<Pcb>, b: &Arc<Pcb>) {
    Chosen::relinking(core, || {
        let cost = pair::link_both(a, b);
        for (own, peer) in [(a, b), (b, a)] {
            let mut so = own.so.lock();
            so.flows.only = peer.id();
            so.flows.link(peer);
            so.is_connected = true;
        }
        ((), cost)
    });
}

/// connect(2): `pcb` sends to `to` from now on, and receives from no other socket.
///
/// # Errors
/// EPERM if `to` receives from another socket only; ECONNREFUSED if it has closed.
pub(crate) fn connect(core: &Env, pcb: &Arc<Pcb>, to: &Arc<Pcb>) -> Result<(), Errno> {
    // Before the link changes.
    pcb.remembered.forget();
    let old = Chosen::relinking(core, || {
        pair::relink(&**pcb, to, |_| {
            let mut theirs = to.so.lock();
            if theirs.closed {
                return Err(Errno::CONNREFUSED);
            }
            if theirs.flows.only != 0 && theirs.flows.only != pcb.id() {
                return Err(Errno::PERM);
            }
            theirs.flows.link(pcb);
            drop(theirs);
            let mut own = pcb.so.lock();
            own.flows.only = to.id();
            own.is_connected = true;
            Ok(())
        })
    })?;
    if let Some(old) = old.filter(|old| !Arc::ptr_eq(old, to)) {
        leave(core, pcb, &old);
    }
    Ok(())
}

/// connect(2) with AF_UNSPEC: `pcb` has no peer any more. If this panics it has none all the same.
pub(crate) fn disconnect(core: &Env, pcb: &Arc<Pcb>) {
    disconnect_if(core, pcb, |_| true);
}

/// A send found that its peer `dead` has closed. If another thread has connected the socket anew meanwhile it stays so.
pub(crate) fn lose(core: &Env, pcb: &Arc<Pcb>, dead: usize) {
    disconnect_if(core, pcb, |peer| peer.is_some_and(|peer| peer.id() == dead));
}

fn disconnect_if(core: &Env, pcb: &Arc<Pcb>, is_it: impl Fn(Option<&Arc<Pcb>>) -> bool) {
    pcb.remembered.forget();
    let mut old = None;
    let unlinked = panics::catch(PanicSource::Protocol, "disconnect", || {
        Chosen::relinking(core, || {
            let (peer, cost) = pair::unlink_if(&**pcb, |peer| {
                let is_it = is_it(peer);
                if is_it {
                    pcb.so.lock().flows.only = 0;
                }
                is_it
            });
            old = peer;
            failpoints::hit(Point::UnixDisconnect, 0);
            ((), cost)
        });
    });
    if let Some(old) = old {
        leave(core, pcb, &old);
    }
    unlinked.unwrap_or_else(|caught| caught.resume());
}

/// The socket closes. Its peer still points at it, and finds out when it sends.
pub(crate) fn unlink(core: &Env, pcb: &Pcb, wakes: &mut Wakes<'_>) {
    let old = Chosen::relinking(core, || pair::unlink(pcb));
    if let Some(old) = old {
        let unblocked = old.so.lock().flows.unlink(pcb);
        wakes.senders(unblocked);
    }
}

/// `pcb` has left `old` for another peer or none.
fn leave(core: &Env, pcb: &Arc<Pcb>, old: &Arc<Pcb>) {
    let mut wakes = Wakes::new(core);
    let (contents, was_unread, unblocked) = {
        let mut so = pcb.so.lock();
        let was_unread = !so.records.is_empty();
        let contents = so.empty();
        let closed = so.closed;
        (contents, was_unread, so.flows.clear(closed))
    };
    wakes.senders(unblocked);
    let unblocked = {
        let mut theirs = old.so.lock();
        if was_unread && !theirs.closed && theirs.flows.only == pcb.id() {
            theirs.error = Some(Errno::CONNRESET);
            old.alert.store(true, Ordering::Release);
            wakes.readers(old, &mut theirs);
            theirs.readers.mark(crate::rt::poll::Ready::ERROR.bits(), wakes.list());
        }
        theirs.flows.unlink(pcb)
    };
    wakes.senders(unblocked);
    wakes.fire();
    dispose(contents);
}
