//! The stack as its handles and workers know it: its parts, its end, the work of timers' keys, connections that were handed over.
//!
//! Does not decide when: that is `rt/workers.rs`. Tests: those of the layers.

use std::any::Any;

use sockeye_sync::facade::{Arc, Ordering, Weak};

use super::Core;
use crate::base::entropy::Entropy;
use crate::inet;
use crate::inet::ip::fragments;
use crate::inet::link;
use crate::inet::netif::departures::{self, Exit};
use crate::inet::netif::{NetifId, down};
use crate::rt::counter;
use crate::rt::env::{Above, Env};
use crate::rt::handle::{Layer, Whole};
use crate::rt::panics::{self, PanicSource};
use crate::rt::timers::{Entry, TimerKey};
use crate::rt::workers::Duties;
use crate::tcp;
use crate::tcp::conn::outbox::Context;
use crate::tcp::conn::{Conn, engine, reason};
use crate::tcp::discipline::{Chosen, Discipline};
use crate::tcp::handshake::values;
use crate::tcp::prune;
use crate::tcp::tables::demux::{self, SHARDS};
use crate::udp;

impl Duties for Core {
    type Work = Vec<Arc<Conn>>;

    fn env(&self) -> &Env {
        self
    }

    #[inline]
    fn has_work(&self, lane: usize) -> bool {
        !self.handed.is_empty(lane)
    }

    fn take_work(&self, lane: usize) -> Self::Work {
        self.handed.take(lane)
    }

    fn work(&self, handed: Self::Work) {
        for conn in handed {
            panics::contain(self, PanicSource::Protocol, "a connection left to a worker", || {
                Context::run_as_worker(self, |cx| Chosen::take_over(cx, &conn));
            });
        }
    }

    fn fire(&self, entry: Entry) {
        match entry.key {
            TimerKey::Conn { hash, serial } => {
                let Some(conn) = self.demux.find(hash, |conn| conn.serial as u32 == serial) else {
                    return;
                };
                // An entry that was overtaken by an earlier one is void.
                if conn.timer_at.load(Ordering::Relaxed) == entry.at {
                    self.count(counter::TIMERS_FIRED);
                    Context::run_as_worker(self, |cx| engine::notify(cx, &conn, reason::TIMER));
                }
            }
            TimerKey::Shard { index } => Context::run_as_worker(self, |cx| {
                demux::on_timer(cx, index);
                values::bury(cx);
            }),
            TimerKey::Memory => self.memory_waiters.on_timer(self),
            TimerKey::Prune => Context::run_as_worker(self, prune::on_timer),
            #[cfg(feature = "experiments")]
            TimerKey::RemoteSweep => self.discipline.remote_sweep.sweep(self),
            TimerKey::Flow { hash, serial } => {
                Context::run_as_worker(self, |cx| udp::flows::on_timer(cx, (hash, serial), entry.at));
            }
            TimerKey::Fragments => Context::run_as_worker(self, |cx| fragments::on_timer(cx)),
            TimerKey::Frames { netif, lane } => {
                let Some(exit) = Exit::of_timer(netif, lane) else { return };
                Context::run_as_worker(self, |cx| departures::pick_up(cx, exit));
            }
            TimerKey::Link { netif } => {
                let Some(id) = NetifId::from_index(usize::from(netif)) else { return };
                Context::run_as_worker(self, |cx| link::on_timer(cx, id));
            }
        }
    }

    fn counts(&self, entry: &Entry) -> bool {
        match entry.key {
            TimerKey::Conn { hash, serial } => {
                let found = self.demux.find(hash, |conn| conn.serial as u32 == serial);
                found.is_some_and(|conn| conn.timer_at.load(Ordering::Relaxed) == entry.at)
            }
            TimerKey::Flow { hash, serial } => udp::flows::counts(self, (hash, serial), entry.at),
            // There are few of these.
            TimerKey::Shard { .. }
            | TimerKey::Memory
            | TimerKey::Prune
            | TimerKey::Fragments
            | TimerKey::Frames { .. }
            | TimerKey::Link { .. } => true,
            #[cfg(feature = "experiments")]
            TimerKey::RemoteSweep => true,
        }
    }

    fn purged(&self, entries: usize) {
        self.count_many(counter::TIMERS_PURGED, u32::try_from(entries).unwrap_or(u32::MAX));
    }

    fn each_timer(&self, mut ask: impl FnMut(Option<u64>, TimerKey)) {
        let mut conns: Vec<Arc<Conn>> = Vec::new();
        self.demux.each_shard(|shard| conns.extend(shard.conns().cloned()));
        for conn in conns {
            let at = conn.timer_at.load(Ordering::Relaxed);
            if at != 0 {
                ask(Some(at), TimerKey::Conn { hash: conn.hash, serial: conn.serial as u32 });
            }
        }
        // Each asks for a new call: that which was lost does not count.
        udp::flows::timers(self).into_iter().for_each(|(at, key)| ask(Some(at), key));
        let shards = (0..SHARDS).map(|index| TimerKey::Shard { index });
        let links = self.netifs.each().map(|(id, _)| link::timer_of(id));
        let others = [
            TimerKey::Memory,
            TimerKey::Prune,
            #[cfg(feature = "experiments")]
            TimerKey::RemoteSweep,
            TimerKey::Fragments,
        ];
        shards.chain(links).chain(others).for_each(|key| ask(None, key));
    }
}

impl Whole for Core {
    fn env(&self) -> &Env {
        self
    }

    fn part(&self, at: usize) -> &(dyn Any + Send + Sync) {
        match at {
            Env::AT => Duties::env(self),
            inet::Core::AT => self.inet(),
            tcp::Core::AT => &**self,
            _ => self,
        }
    }

    fn stop(&self) -> Vec<u16> {
        self.input.stop(self).into_iter().map(|id| id.index() as u16).collect()
    }

    fn finish(&self) {
        self.workers.finish(self);
    }

    fn adopt(&self) -> Vec<u16> {
        let inherited = self.netifs.detach().into_iter().map(|id| id.index() as u16).collect();
        self.rekey(&mut Entropy::mixed(self.secret_bytes(), sockeye_sync::fork::nonce()));
        inherited
    }

    fn lose(&self, netif: u16) {
        if let Some(id) = NetifId::from_index(usize::from(netif)) {
            down::is_gone::<tcp::Core>(self, id);
        }
    }
}

/// Calls of the environment to the stack.
pub(super) struct Asked(pub Weak<Core>);

impl Above for Asked {
    fn reclaim(&self) -> bool {
        self.0.upgrade().is_some_and(|core| Chosen::reclaim(&core))
    }
}
