//! Whom a change of a buffer concerns, collected under its mutex and woken after all locks.
//!
//! Must not know why. Invariant: a [`Wakes`] that is not fired wakes nobody, so every path fires. With nobody
//! waiting it costs a few loads and allocates nothing. Tests: those of blocking, polls and tasks.

use smallvec::SmallVec;
use sockeye_sync::facade::Arc;
use sockeye_sync::{Notified, cpu};

use super::flows::Unblocked;
use super::pcb::{Pcb, So};
use crate::conn::outbox::Wake;
use crate::poll::Ready;

/// See the module's head.
#[must_use = "fire it after unlocking"]
pub(crate) struct Wakes {
    list: Vec<Wake>,
    /// Where threads sleep: a call concerns two ends. The reference is counted only for those, to whom a system
    /// call is owed anyway.
    sleepers: SmallVec<[Sleepers; 2]>,
    senders: Vec<Unblocked>,
}

enum Sleepers {
    Readers(Arc<Pcb>),
    Writers(Arc<Pcb>),
}

impl Wakes {
    #[inline]
    pub fn new() -> Self {
        Self { list: Vec::new(), sleepers: SmallVec::new(), senders: Vec::new() }
    }

    /// There is something to read (or accept) in `so`, the buffer of `pcb`.
    #[inline]
    pub fn readers(&mut self, pcb: &Arc<Pcb>, so: &mut So) {
        match pcb.rcv_wait.notify_in(&mut so.rcv_awaited) {
            Notified::Nobody => {}
            Notified::Spinning => so.data_cpu = cpu::current(),
            Notified::Parked => {
                so.data_cpu = cpu::current();
                self.sleepers.push(Sleepers::Readers(Arc::clone(pcb)));
            }
        }
        if !so.read_wakers.is_empty() {
            self.list.extend(so.read_wakers.drain(..).map(Wake::Task));
        }
        so.watch.mark(Ready::READABLE, &mut self.list);
    }

    /// There is room in `so`, the buffer or backlog of `pcb`, for those who write there.
    #[inline]
    pub fn writers(&mut self, pcb: &Arc<Pcb>, so: &mut So) {
        match pcb.snd_wait.notify() {
            Notified::Nobody => {}
            Notified::Spinning => so.room_cpu = cpu::current(),
            Notified::Parked => {
                so.room_cpu = cpu::current();
                self.sleepers.push(Sleepers::Writers(Arc::clone(pcb)));
            }
        }
        if !so.write_wakers.is_empty() {
            self.list.extend(so.write_wakers.drain(..).map(Wake::Task));
        }
        so.out_watch.mark(Ready::WRITABLE, &mut self.list);
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
    pub fn fire(mut self) {
        if !self.senders.is_empty() {
            self.tell_senders();
        }
        for sleepers in &self.sleepers {
            match sleepers {
                Sleepers::Readers(pcb) => pcb.rcv_wait.wake(),
                Sleepers::Writers(pcb) => pcb.snd_wait.wake(),
            }
        }
        for wake in self.list.drain(..) {
            wake.fire();
        }
    }

    #[cold]
    fn tell_senders(&mut self) {
        for Unblocked { sender, wake } in self.senders.drain(..) {
            // A datagram socket's own tasks and polls that want to write are kept in its own buffer.
            let mut so = sender.so.lock();
            self.list.extend(so.write_wakers.drain(..).map(Wake::Task));
            so.watch.mark(Ready::WRITABLE, &mut self.list);
            drop(so);
            self.list.extend(wake.map(Wake::Acceptor));
        }
    }
}
