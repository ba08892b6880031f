//! Panics of our own code in a call on a UNIX socket: the connection ends, and the call fails with EIO.
//!
//! The locks of [`locking`] and of the buffers are released while the panic unwinds, so the ends of the connection may be half
//! changed. Both are emptied and shut under all of them: own calls fail with EIO once and find the end of the connection then, the peer's
//! with ECONNRESET. A socket of datagrams has no connection to end: the call fails, and its datagram was queued whole or is lost. Whoever
//! was noted as to be woken is woken by the unwinding (`wakes.rs`).
//!
//! Must not know what was called. Tests: `tests/contained`.

use rustix::io::Errno;
use sockeye_sync::facade::{Arc, Ordering};

use super::locking;
use super::pcb::{Contents, Pcb};
use super::rights::dispose;
use super::sock::{Sock, announce};
use super::wakes::Wakes;
use crate::panics::{self, PanicSource};

/// Runs a call on a socket, with no lock held.
#[inline]
pub(super) fn call<R>(
    sock: &Sock,
    place: &'static str,
    call: impl FnOnce() -> Result<R, Errno>,
) -> Result<R, Errno> {
    match panics::catch(PanicSource::Protocol, place, call) {
        Ok(result) => result,
        Err(caught) => {
            panics::contain(sock.core(), PanicSource::Protocol, "the end of a connection", || {
                break_off(sock)
            });
            caught.report(sock.core());
            Err(Errno::IO)
        }
    }
}

/// Ends the connection at both ends.
#[cold]
#[inline(never)]
fn break_off(sock: &Sock) {
    let (core, pcb) = (sock.core(), &sock.pcb);
    let Some(peer) = sock.peer.as_ref().filter(|_| pcb.kind.is_connected()) else { return };
    let (mut wakes, mut left) = (Wakes::new(core), Vec::new());
    locking::exclusive(core, pcb, Some(&**peer), || {
        left.push(end(pcb, Errno::IO, &mut wakes));
        left.push(end(peer, Errno::CONNRESET, &mut wakes));
    });
    announce(pcb, Some(peer), &mut wakes);
    announce(peer, Some(pcb), &mut wakes);
    wakes.fire();
    left.into_iter().for_each(|contents| dispose(core, contents));
}

/// Nothing is in the buffer of `pcb` any more, and nothing more comes.
fn end(pcb: &Arc<Pcb>, errno: Errno, wakes: &mut Wakes<'_>) -> Contents {
    let mut so = pcb.so.lock();
    let contents = so.empty();
    so.shut = true;
    so.error = Some(errno);
    pcb.alert.store(true, Ordering::Release);
    wakes.readers(pcb, &mut so);
    wakes.writers(pcb, &mut so);
    contents
}
