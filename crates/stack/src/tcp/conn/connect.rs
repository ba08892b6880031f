//! The calls that begin a connection: the SYN is sent, and the handshake waited for.
//!
//! Does not depend on how the bytes of a connection are sent. Tests: `tests/tcp/driven.rs`, `tests/tcp/fastopen.rs`.

use std::io;
use std::time::Duration;

use rustix::io::Errno;
use sockeye_sync::facade::{Arc, Ordering};

use super::outbox::Context;
use super::sockbuf::Buffers;
use super::user::{Refusal, check, wait};
use super::{Conn, contain};
use crate::rt::blocking::Timeout;
use crate::rt::counter;
use crate::rt::threads;
use crate::tcp::Core;
use crate::tcp::discipline::{Chosen, Discipline};

/// Sends the SYN.
pub(crate) fn start(core: &Core, conn: &Arc<Conn>) {
    core.count(counter::ACTIVE_OPENS);
    // A thread that runs protocol code for others must not sleep until one of them lets it.
    let may_sleep = !conn.options.nonblocking.load(Ordering::Relaxed) && !threads::is_worker();
    // The error is left for `finish`, or another caller that asks for it.
    let _ = contain::call(core, conn, "connect", || {
        Context::run(core, |cx| Chosen::connect(cx, conn, may_sleep));
        Ok(())
    });
}

/// A write of nothing fails or waits where any write would, but for a full buffer, and sends a SYN that waits for a write, without text.
#[cold]
pub(super) fn send_nothing(core: &Core, conn: &Arc<Conn>, timeout: &mut Timeout) -> io::Result<()> {
    let is_deferred = loop {
        let mut so = conn.so.lock();
        if let Err(Refusal::Failed(error)) = check(conn, &so, false) {
            return Err(error);
        }
        if so.snd.takes_bytes() {
            so.pcb.hold_syn(false);
            break std::mem::take(&mut so.snd.defers_syn);
        }
        let blocks = !conn.options.nonblocking.load(Ordering::Relaxed);
        let ticket = blocks.then(|| (conn.snd_wait.prepare(), so.snd.cpu));
        drop(so);
        wait(core, conn, conn.writers(), ticket, timeout)?;
    };
    if is_deferred {
        start(core, conn);
    }
    Ok(())
}

/// Waits until the handshake is over, well or not.
pub(crate) fn finish(core: &Core, conn: &Arc<Conn>, timeout: Option<Duration>) -> io::Result<()> {
    let mut timeout = Timeout::after(timeout);
    loop {
        let so = conn.so.lock();
        if let Some(over) = result(conn, &so) {
            return over;
        }
        let ticket = (conn.snd_wait.prepare(), so.snd.cpu);
        drop(so);
        if wait(core, conn, conn.writers(), Some(ticket), &mut timeout).is_err() {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
}

/// How the handshake has ended, if it is over.
fn result(conn: &Conn, so: &Buffers) -> Option<io::Result<()>> {
    if let Some(error) = conn.take_error() {
        return Some(Err(error.into()));
    }
    if so.snd.connected {
        return Some(Ok(()));
    }
    so.snd.shut.then(|| Err(Errno::CONNABORTED.into()))
}

/// How the handshake of a connection has ended that a task has waited for.
#[cfg(feature = "tokio")]
pub(crate) fn connected(conn: &Conn) -> io::Result<()> {
    // It is over: another handle may have taken the error.
    result(conn, &conn.so.lock()).unwrap_or_else(|| Err(Errno::NOTCONN.into()))
}
