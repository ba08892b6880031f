//! Readiness of connections and listeners, as pollers know it.
//!
//! A connection owns the words of its level-triggered registrations: `rt/poll/registration.rs` explains that. Does not depend on
//! polls' insides. Tests: `tests/suite/{poll,poll_stress}.rs`.

use std::io;

use sockeye_sync::cpu::Place;
use sockeye_sync::facade::Arc;

use super::sockbuf::Buffers;
use super::{Conn, HOT_LEN};
use crate::rt::poll::{self, Queue, Ready, Registration, Target, registration};
use crate::rt::wake::Wake;
use crate::tcp::handshake::listen::Listener;

/// A connection.
pub(crate) struct End(pub Arc<Conn>);

/// A listener.
pub(crate) struct Line(pub Arc<Listener>);

impl Target for End {
    /// In one section: the mark may be of an owned word.
    fn add(&self, registration: &Arc<Registration>, wakes: &mut Vec<Wake>) -> io::Result<()> {
        let mut so = self.0.so.lock();
        registration::add(&mut so.waiters, registration)?;
        if so.rcv.lowat > 1 {
            // See `set_rcvlowat`.
            registration::look_closer(&so.waiters);
        }
        poll::mark(registration, of_buffers(&self.0, &so), wakes);
        Ok(())
    }

    fn remove(&self, queue: &Arc<Queue>) -> Option<Arc<Registration>> {
        registration::remove(&mut self.0.so.lock().waiters, queue)
    }

    fn ready(&self) -> Ready {
        of_buffers(&self.0, &self.0.so.lock())
    }

    fn owns_words(&self) -> bool {
        true
    }

    fn settle(&self, settle: &mut dyn FnMut(Ready)) {
        let so = self.0.so.lock();
        settle(of_buffers(&self.0, &so));
    }

    fn place(&self) -> Place {
        Place::of(&*self.0, HOT_LEN)
    }
}

impl Target for Line {
    fn add(&self, registration: &Arc<Registration>, wakes: &mut Vec<Wake>) -> io::Result<()> {
        self.0.with_waiters(|list| registration::add(list, registration))?;
        poll::mark(registration, self.ready(), wakes);
        Ok(())
    }

    fn remove(&self, queue: &Arc<Queue>) -> Option<Arc<Registration>> {
        self.0.with_waiters(|list| registration::remove(list, queue))
    }

    fn ready(&self) -> Ready {
        Ready::READABLE.when(self.0.is_readable())
    }
}

/// Readiness of a connection with these buffers.
fn of_buffers(conn: &Conn, so: &Buffers) -> Ready {
    let read = Ready::READABLE
        .when(so.rcv.is_readable())
        .with(Ready::PRIORITY.when(so.rcv.has_urgent()))
        .with(Ready::READ_CLOSED.when(so.rcv.eof || so.rcv.shut));
    let write = Ready::WRITABLE.when(so.snd.is_writable()).with(Ready::WRITE_CLOSED.when(so.snd.shut));
    read.with(write).with(Ready::ERROR.when(is_in_error(conn, so)))
}

/// Whether there is something that pollers, and tasks that wait for errors, call one: an error is pending, or a report waits.
pub(crate) fn is_in_error(conn: &Conn, so: &Buffers) -> bool {
    conn.has_error() || so.snd.has_report()
}
