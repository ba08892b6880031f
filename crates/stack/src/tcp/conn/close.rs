//! The calls of applications that end a connection: shut down, close.
//!
//! They take the socket lock and leave the rest to the protocol, by a notice. Only a close with SO_LINGER waits.
//! Does not depend on how data moves (`user.rs`). Tests: `tests/suite`, `tests/contained`.

use std::io;
use std::time::Duration;

use sockeye_proto::tcp::state::State;
use sockeye_sync::facade::{Arc, Ordering};

use super::error::SockError;
use super::outbox::{Context, Wake, fire_all};
use super::sockbuf::Socket;
use super::user::{Ends, wait};
use super::{Conn, LINGER_OFF, contain, engine, reason, serve};
use crate::rt::blocking::Timeout;
use crate::rt::failpoints::{self, Point};
use crate::rt::poll::registration;
use crate::tcp::Core;
use crate::tcp::discipline::{Chosen, Discipline};

/// shutdown(2).
pub(crate) fn shutdown(core: &Core, conn: &Arc<Conn>, how: std::net::Shutdown) -> io::Result<()> {
    use std::net::Shutdown;
    let (read, write) = match how {
        Shutdown::Read => (true, false),
        Shutdown::Write => (false, true),
        Shutdown::Both => (true, true),
    };
    if let Some(error) = conn.panicked() {
        return Err(error.into());
    }
    if matches!(conn.state(), State::Closed | State::TimeWait) {
        return Err(rustix::io::Errno::NOTCONN.into());
    }
    contain::call(core, conn, "shutdown", || {
        shut_down(core, conn, read, write);
        // If it has panicked there is nothing left to shut.
        conn.panicked().map_or(Ok(()), |error| Err(error.into()))
    })
}

fn shut_down(core: &Core, conn: &Arc<Conn>, read: bool, write: bool) {
    Context::run(core, |cx| {
        let due = contain::guarded(cx, conn, &mut conn.so.lock(), "shutdown", |cx, pcb, conn, so| {
            registration::look_closer(&so.waiters);
            // A connect that is under way is given up (RFC 9293 section 3.10.4), as on Linux.
            let gives_up = pcb.state() == State::SynSent;
            if gives_up {
                conn.set_error(SockError::Reset);
            }
            if read || gives_up {
                so.rcv.shut = true;
                engine::wake_readers(cx, conn, so);
            }
            if write || gives_up {
                so.snd.shut = true;
                engine::wake_writers(cx, conn, so);
            }
            failpoints::hit(Point::ShutDown, failpoints::of_conn(conn));
            // The second direction to be shut changes the effect of the first one's shutdown.
            so.snd.shut
        });
        if due == Some(true) {
            engine::notify(cx, conn, reason::SHUTDOWN);
        }
    });
}

/// The last handle is gone: close(2). With unread bytes or SO_LINGER 0 the connection is reset.
pub(crate) fn close(core: &Core, conn: &Arc<Conn>) {
    // No handle is left to report an error to.
    let _ = contain::call(core, conn, "close", || {
        close_last(core, conn);
        Ok(())
    });
}

fn close_last(core: &Core, conn: &Arc<Conn>) {
    let mut wakes: Vec<Wake> = Vec::new();
    let (unread, registrations) = {
        let close = |so: &mut Socket| {
            so.rcv.closed = true;
            so.snd.shut = true;
            failpoints::hit(Point::Close, failpoints::of_conn(conn));
            (std::mem::take(&mut so.rcv.chain), registration::clear(&mut so.waiters, &mut wakes))
        };
        let (closed, so) = contain::section(core, conn, conn.so.enter(), close);
        serve::release(core, &Ends { conn, peer: None }, so);
        closed
    };
    let linger_ms = conn.options.linger_ms.load(Ordering::Relaxed);
    let abort = !unread.is_empty() || linger_ms == 0;
    // Outside the socket lock: a registration may be the last to hold another socket.
    drop((unread, registrations));
    fire_all(core, &mut wakes);
    Chosen::closed(core, conn);
    let why = if abort { reason::ABORT } else { reason::CLOSE };
    Context::run(core, |cx| engine::notify(cx, conn, why));
    if !abort && linger_ms != LINGER_OFF && !conn.options.nonblocking.load(Ordering::Relaxed) {
        linger(core, conn, Duration::from_millis(u64::from(linger_ms)));
    }
}

/// SO_LINGER: waits until everything has been acknowledged, or the time is over.
fn linger(core: &Core, conn: &Arc<Conn>, time: Duration) {
    let mut timeout = Timeout::after(Some(time));
    loop {
        let so = conn.so.lock();
        if so.snd.chain.is_empty() || conn.is_dead() {
            return;
        }
        let ticket = (conn.snd_wait.prepare(), so.snd.cpu);
        drop(so);
        if wait(core, conn, conn.writers(), Some(ticket), &mut timeout).is_err() {
            return;
        }
    }
}
