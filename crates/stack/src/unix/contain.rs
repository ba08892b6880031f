//! Panics of our own code in a call on a UNIX socket: the connection ends, and the call fails with EIO.
//!
//! # Under a buffer's mutex
//! A section that changes a buffer goes through [`section`]. Should it panic, the buffer is *mended* while its mutex is still locked, so no thread
//! finds bytes without their record, or a record without its bytes. The buffer of a connection is emptied and shut. That of a datagram socket keeps
//! whole records; the rest depends on how far the section had come:
//!
//! | bytes and records | result |
//! |---|---|
//! | agree | all stays: the datagram was queued or taken, or was not |
//! | more bytes than records say | a sender had not come to its record: its bytes go |
//! | fewer | a receiver had taken bytes of a record: everything goes, and the socket reports EIO once more |
//!
//! # Around it
//! The panic goes on to [`call`], at the beginning of the call. It ends the connection at both ends: own calls fail with EIO once and find the end
//! of the connection then, the peer's with ECONNRESET. A socket of datagrams has no connection to end. The unwinding carries out noted wake-ups,
//! and closes the rights of a buffer (`wakes.rs`). Rights that the call had in hand, to be sent or received, are closed
//! ([`InFlight`](super::rights::InFlight)).
//!
//! Does not depend on the call. Where nothing panics nothing is executed for this. Tests: `tests/contained`.

use rustix::io::Errno;
use sockeye_sync::facade::{Arc, Ordering};

use super::locking::{Chosen, Locking};
use super::pcb::{Pcb, So};
use super::sock::{Sock, announce};
use super::wakes::Wakes;
use crate::rt::env::Env;
use crate::rt::panics::{self, PanicSource};

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

/// Runs a section of the mutex of `pcb`'s buffer, which `wakes` outlives. `errno` is the error of calls on `pcb` after a panic.
#[inline(always)]
pub(super) fn section<'c, R>(
    pcb: &Arc<Pcb>,
    errno: Errno,
    wakes: &mut Wakes<'c>,
    work: impl FnOnce(&mut So, &mut Wakes<'c>) -> R,
) -> R {
    let mut so = pcb.so.lock();
    let unfinished = Unfinished { pcb, errno, so: &mut so, wakes };
    let result = work(&mut *unfinished.so, &mut *unfinished.wakes);
    std::mem::forget(unfinished);
    result
}

/// A section that runs. It is dropped only if that panics, and before the mutex is unlocked.
struct Unfinished<'a, 'c> {
    pcb: &'a Arc<Pcb>,
    errno: Errno,
    so: &'a mut So,
    wakes: &'a mut Wakes<'c>,
}

impl Drop for Unfinished<'_, '_> {
    #[cold]
    #[inline(never)]
    fn drop(&mut self) {
        // Caught here, because this is the unwinding of another panic.
        let mended = panics::catch(PanicSource::Protocol, "the end of a connection", || {
            if self.pcb.kind.is_connected() {
                break_end(self.pcb, self.so, self.errno, self.wakes);
            } else {
                mend(self.pcb, self.so, self.errno, self.wakes);
            }
        });
        if let Err(caught) = mended {
            self.wakes.report(caught);
        }
    }
}

/// Ends the connection of a socket at both ends.
#[cold]
#[inline(never)]
fn break_off(sock: &Sock) {
    if let Some(peer) = sock.connection() {
        break_both(sock.core(), &sock.pcb, &peer);
    }
}

/// Ends a connection at both ends: that of the call that has panicked, and its peer.
#[cold]
pub(super) fn break_both(core: &Env, pcb: &Arc<Pcb>, peer: &Arc<Pcb>) {
    let mut wakes = Wakes::new(core);
    Chosen::exclusive(core, pcb, Some(&**peer), || {
        break_end(pcb, &mut pcb.so.lock(), Errno::IO, &mut wakes);
        break_end(peer, &mut peer.so.lock(), Errno::CONNRESET, &mut wakes);
    });
    announce(pcb, Some(peer), &mut wakes);
    announce(peer, Some(pcb), &mut wakes);
}

/// Empties the buffer of `pcb`, and lets nothing more into it. Reported once, however often it is called.
fn break_end(pcb: &Arc<Pcb>, so: &mut So, errno: Errno, wakes: &mut Wakes<'_>) {
    if !std::mem::replace(&mut so.is_broken, true) {
        wakes.dispose_of(so.empty());
        so.shut = true;
        so.error = Some(errno);
        pcb.alert.store(true, Ordering::Release);
    }
    wakes.writers(pcb, so);
    wakes.readers(pcb, so);
}

/// Puts the buffer of a datagram socket into a state in which a section may begin.
fn mend(pcb: &Arc<Pcb>, so: &mut So, errno: Errno, wakes: &mut Wakes<'_>) {
    let (bytes, recorded) = (so.data.len(), so.records.each().map(|(len, _)| len).sum());
    if bytes > recorded {
        so.data.undo(bytes - recorded);
    } else if bytes < recorded {
        wakes.dispose_of(so.empty());
        so.error = Some(errno);
        pcb.alert.store(true, Ordering::Release);
    }
    so.sockets_held = so.rights().map(|rights| rights.sockets().count() as u32).sum();
    wakes.senders(so.flows.recount(so.records.each()));
    wakes.readers(pcb, so);
}
