//! Waiters that a change of a buffer concerns, collected under its mutex and woken after all locks.
//!
//! A [`Wakes`] wakes when it is dropped, so no path can forget to: not one that returns early, and not a panic, whose unwinding drops it,
//! too. It is therefore made before any lock is taken that its section holds: the guards of those, or the closure that runs under them,
//! are then gone before it is. A call that goes on to wait, or to drop a buffer's content, calls [`Wakes::fire`] before that.
//!
//! Does not depend on why a socket is woken. Without waiters it costs a few loads and allocates nothing. Tests: those of
//! blocking, polls and tasks; `tests/contained/unix.rs`.

use sockeye_sync::facade::Arc;
use sockeye_sync::{Notified, cpu};

use super::flows::Unblocked;
use super::pcb::{Contents, Pcb, So};
use super::rights::dispose;
use crate::rt::env::Env;
use crate::rt::failpoints::{self, Point};
use crate::rt::panics::{self, Caught, PanicSource};
use crate::rt::poll::Ready;
use crate::rt::wake::{Change, Wake, fire_all};

/// See the module's head.
#[must_use = "it wakes when it is dropped, so it is to outlive the locks"]
pub(crate) struct Wakes<'c> {
    core: &'c Env,
    list: Vec<Wake>,
    senders: Vec<Unblocked>,
    /// Of a section that has panicked: the content of its buffer, and the payload of a panic in its repair.
    wreck: Option<Box<Wreck>>,
}

#[derive(Default)]
struct Wreck {
    contents: Vec<Contents>,
    caught: Vec<Caught>,
}

impl<'c> Wakes<'c> {
    /// No waiter yet. Outside all locks.
    #[inline]
    pub fn new(core: &'c Env) -> Self {
        Self { core, list: Vec::new(), senders: Vec::new(), wreck: None }
    }

    /// There is something to read (or accept) in `so`, the buffer of `pcb`.
    #[inline]
    pub fn readers(&mut self, pcb: &Arc<Pcb>, so: &mut So) {
        let sleepers = || Wake::sleepers(pcb, Change::Arrival);
        let found =
            so.readers.notify_awaited(&pcb.rcv_wait, sleepers, Ready::READABLE.bits(), &mut self.list);
        match found {
            Notified::NoWaiter => {}
            Notified::Spinning | Notified::Parked => so.data_cpu = cpu::current(),
        }
        failpoints::hit(Point::UnixTell, 0);
    }

    /// There is room in `so`, the buffer or backlog of `pcb`, for those that write there.
    #[inline]
    pub fn writers(&mut self, pcb: &Arc<Pcb>, so: &mut So) {
        let sleepers = || Wake::sleepers(pcb, Change::Room);
        let found = so.writers.notify(&pcb.snd_wait, sleepers, Ready::WRITABLE.bits(), &mut self.list);
        match found {
            Notified::NoWaiter => {}
            Notified::Spinning | Notified::Parked => so.room_cpu = cpu::current(),
        }
    }

    /// These senders of datagrams may try again.
    pub fn senders(&mut self, unblocked: impl IntoIterator<Item = Unblocked>) {
        self.senders.extend(unblocked);
    }

    /// To be disposed of after all locks.
    pub fn dispose_of(&mut self, contents: Contents) {
        self.wreck.get_or_insert_default().contents.push(contents);
    }

    /// To be reported after all locks.
    pub fn report(&mut self, caught: Caught) {
        self.wreck.get_or_insert_default().caught.push(caught);
    }

    /// For marks of other kinds.
    pub fn list(&mut self) -> &mut Vec<Wake> {
        &mut self.list
    }

    /// Wakes all of them now. Outside all locks.
    #[inline]
    pub fn fire(self) {}

    #[cold]
    fn tell_senders(&mut self) {
        for Unblocked { sender, wake } in self.senders.drain(..) {
            // A datagram socket's own tasks and polls that want to write are kept in its own buffer.
            let mut so = sender.so.lock();
            so.writers.mark(Ready::WRITABLE.bits(), &mut self.list);
            so.readers.mark(Ready::WRITABLE.bits(), &mut self.list);
            drop(so);
            self.list.extend(wake.map(Wake::Threads));
        }
    }
}

impl Drop for Wakes<'_> {
    /// Wakes all of them. Outside all locks.
    #[inline]
    fn drop(&mut self) {
        if !self.senders.is_empty() {
            // Caught here, because this may be the unwinding of another panic.
            panics::contain(self.core, PanicSource::Protocol, "waking senders", || self.tell_senders());
        }
        fire_all(self.core, &mut self.list);
        if let Some(wreck) = self.wreck.take() {
            clear(self.core, *wreck);
        }
    }
}

#[cold]
fn clear(core: &Env, Wreck { contents, caught }: Wreck) {
    panics::contain(core, PanicSource::Protocol, "what a buffer held", || {
        contents.into_iter().for_each(dispose);
    });
    caught.into_iter().for_each(|caught| caught.report(core));
}
