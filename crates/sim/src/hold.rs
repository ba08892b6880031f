//! Packets on their way, looked at, held back and let go.
//!
//! A hold takes packets at the end of their way, when they would arrive. Tests: `tests/net/holds.rs`.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use sockeye::netif::TxFrame;

use crate::event::Nanos;
use crate::network::Net;
use crate::packet::Packet;
use crate::world::{InFlight, State, World};

/// Packets that a hold takes at most; further ones are dropped, and counted as filtered.
const HELD_MAX: usize = 1 << 16;

type Predicate = Box<dyn FnMut(&Packet<'_>) -> bool + Send>;

/// A hold, as the world has it.
pub(crate) struct HoldState {
    predicate: Predicate,
    frames: Vec<Held>,
}

struct Held {
    at: Nanos,
    flight: InFlight,
}

/// A packet on its way, as it is now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PacketInFlight {
    /// The name of the host that sent it.
    pub from: String,
    /// The name of the host that gets it.
    pub to: String,
    /// When it arrives, since the start; when it would have arrived if it is held. A packet that others are to overtake may come earlier.
    pub at: Duration,
    /// Its headers.
    pub head: Vec<u8>,
    /// Bytes of the whole packet.
    pub len: usize,
}

impl PacketInFlight {
    /// The packet, to read its headers.
    pub fn packet(&self) -> Packet<'_> {
        Packet { at: self.at, index: 0, head: &self.head, len: self.len }
    }
}

/// Holds packets back until it is [released](Self::release) or dropped: see [`Net::hold`].
#[must_use = "a hold that is dropped lets its packets go"]
pub struct Hold {
    world: Weak<World>,
    index: usize,
}

impl Net {
    /// Holds back every packet that would arrive from now on and for which `predicate` is true; it must not use the network. Later ones overtake them. The first
    /// hold that wants a packet gets it.
    pub fn hold(&self, predicate: impl FnMut(&Packet<'_>) -> bool + Send + 'static) -> Hold {
        let mut state = self.world.lock();
        let index = state.holds.insert(HoldState { predicate: Box::new(predicate), frames: Vec::new() });
        state.fault(None, "packets are held");
        Hold { world: Arc::downgrade(&self.world), index }
    }

    /// The packets that are on their way now, in the order of their arrival. Held ones are not among them.
    pub fn packets_in_flight(&self) -> Vec<PacketInFlight> {
        let state = self.world.lock();
        let mut flights: Vec<&InFlight> = state.flights().collect();
        flights.sort_by_key(|flight| (flight.at, flight.number));
        flights.into_iter().map(|flight| state.show(flight, flight.at)).collect()
    }
}

impl Hold {
    /// The packets that it holds, in the order in which they came.
    pub fn packets(&self) -> Vec<PacketInFlight> {
        let Some(world) = self.world.upgrade() else { return Vec::new() };
        let state = world.lock();
        let held = state.holds.get(self.index).map_or(&[][..], |hold| &hold.frames);
        held.iter().map(|held| state.show(&held.flight, held.at)).collect()
    }

    /// Lets the packets arrive for which `predicate` is true, now and in the order in which they came. Returns how many.
    pub fn release_if(&self, predicate: impl FnMut(&Packet<'_>) -> bool) -> usize {
        let taken = self.take(predicate);
        let count = taken.len();
        let Some(world) = self.world.upgrade() else { return 0 };
        for flight in taken {
            let lost = world.lock().deliver(flight);
            drop(lost);
        }
        count
    }

    /// Drops the packets for which `predicate` is true. Returns how many.
    pub fn drop_if(&self, predicate: impl FnMut(&Packet<'_>) -> bool) -> usize {
        let taken = self.take(predicate);
        if let Some(world) = self.world.upgrade() {
            let mut state = world.lock();
            taken.iter().for_each(|flight| state.pipes[flight.pipe].stats.filtered += 1);
        }
        taken.len()
    }

    /// Lets all of its packets arrive now, and holds no more.
    pub fn release(self) {}

    fn take(&self, mut predicate: impl FnMut(&Packet<'_>) -> bool) -> Vec<InFlight> {
        let Some(world) = self.world.upgrade() else { return Vec::new() };
        let mut state = world.lock();
        let Some(hold) = state.holds.get_mut(self.index) else { return Vec::new() };
        let (taken, left): (Vec<_>, Vec<_>) =
            std::mem::take(&mut hold.frames).into_iter().partition(|held| predicate(&packet(held)));
        hold.frames = left;
        taken.into_iter().map(|held| held.flight).collect()
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.release_if(|_| true);
        if let Some(world) = self.world.upgrade() {
            let mut state = world.lock();
            let hold = state.holds.try_remove(self.index);
            if hold.is_some() {
                state.fault(None, "packets are released");
            }
            drop(state);
            drop(hold);
        }
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold").field("packets", &self.packets().len()).finish_non_exhaustive()
    }
}

fn packet(held: &Held) -> Packet<'_> {
    let frame = &held.flight.frame;
    Packet { at: Duration::from_nanos(held.at), index: 0, head: frame.head(), len: frame.len() }
}

impl State {
    /// A packet arrives: a hold takes it, or its host. The caller drops what is returned outside the mutex.
    pub(crate) fn hold_or_deliver(&mut self, flight: InFlight) -> Option<TxFrame> {
        let at = Duration::from_nanos(self.now);
        let packet = Packet { at, index: 0, head: flight.frame.head(), len: flight.frame.len() };
        let mut holds = self.holds.iter_mut().map(|(_, hold)| hold);
        let Some(hold) = holds.find_map(|hold| (hold.predicate)(&packet).then_some(hold)) else {
            return self.deliver(flight);
        };
        if hold.frames.len() >= HELD_MAX {
            self.pipes[flight.pipe].stats.filtered += 1;
            return Some(flight.frame);
        }
        hold.frames.push(Held { at: self.now, flight });
        None
    }

    fn show(&self, flight: &InFlight, at: Nanos) -> PacketInFlight {
        let pipe = &self.pipes[flight.pipe];
        let (from, to) = pipe.name.split_once(" → ").unwrap_or_default();
        PacketInFlight {
            from: from.to_owned(),
            to: to.to_owned(),
            at: Duration::from_nanos(at),
            head: flight.frame.head().to_vec(),
            len: flight.frame.len(),
        }
    }
}
