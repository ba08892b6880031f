//! Whom a change of a buffer concerns, collected under its mutex and woken after all locks.
//!
//! Must not know why. Invariant: a [`Wakes`] that is not fired wakes nobody, so every path fires. With nobody
//! waiting it costs a few loads and allocates nothing. Tests: those of blocking, polls and tasks.

use sockeye_sync::facade::Arc;
use sockeye_sync::{Notified, cpu};

use super::flows::Unblocked;
use super::pcb::{Pcb, So};
use crate::conn::outbox::{Wake, fire_all};
use crate::poll::Ready;
use crate::stack::Core;

/// See the module's head.
#[must_use = "fire it after unlocking"]
pub(crate) struct Wakes {
    list: Vec<Wake>,
    senders: Vec<Unblocked>,
}

impl Wakes {
    #[inline]
    pub fn new() -> Self {
        Self { list: Vec::new(), senders: Vec::new() }
    }

    /// There is something to read (or accept) in `so`, the buffer of `pcb`.
    #[inline]
    pub fn readers(&mut self, pcb: &Arc<Pcb>, so: &mut So) {
        let sleepers = || Wake::UnixReader(Arc::clone(pcb));
        let found =
            so.readers.notify_awaited(&pcb.rcv_wait, sleepers, Ready::READABLE.bits(), &mut self.list);
        match found {
            Notified::Nobody => {}
            Notified::Spinning | Notified::Parked => so.data_cpu = cpu::current(),
        }
    }

    /// There is room in `so`, the buffer or backlog of `pcb`, for those who write there.
    #[inline]
    pub fn writers(&mut self, pcb: &Arc<Pcb>, so: &mut So) {
        let sleepers = || Wake::UnixWriter(Arc::clone(pcb));
        let found = so.writers.notify(&pcb.snd_wait, sleepers, Ready::WRITABLE.bits(), &mut self.list);
        match found {
            Notified::Nobody => {}
            Notified::Spinning | Notified::Parked => so.room_cpu = cpu::current(),
        }
    }

    /// These senders of datagrams may try again.
    pub fn senders(&mut self, unblocked: impl IntoIterator<Item = Unblocked>) {
        self.senders.extend(unblocked);
    }

    /// For marks of other kinds.
    pub fn list(&mut self) -> &mut Vec<Wake> {
        &mut self.list
    }

    /// Wakes everybody. Outside all locks.
    #[inline]
    pub fn fire(mut self, core: &Core) {
        if !self.senders.is_empty() {
            self.tell_senders();
        }
        fire_all(core, &mut self.list);
    }

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
