//! The collector: sockets that only messages refer to, which only such sockets could receive.
//!
//! A socket sent through itself, or two each sent through the other, would stay for ever: no handle is left to
//! receive them with. This is the one way in which handles can form a cycle.
//!
//! # When
//! Garbage comes into being when the last handle outside of messages goes: it is dropped, or sent to a socket
//! that has none itself. Both places ask [`is_suspect`] afterwards. What became garbage at that moment was reachable through that socket,
//! and if the socket is garbage itself something in its own buffer leads back to it; so without sockets
//! in its buffer nothing is done, and otherwise only what can be reached from it is looked at. There is no
//! table of all sockets and no lock of the whole stack.
//!
//! # How
//! 1. *Reach*: from the suspect through the buffers, one mutex at a time, through sockets whose every
//!    handle is in flight, the *candidates*. (Others are alive, and so is what they hold.)
//! 2. Lock the buffers of all candidates, in address order; nobody else holds two.
//! 3. *Subtract*: a candidate with more handles than lie in candidates' buffers is held from outside:
//!    alive. What lies in the buffers of a living one is alive too, and so on until nothing changes.
//! 4. The rest is dead: all handles of it lie in buffers that we have locked, so nobody can get at one.
//!    Take the contents out, unlock, and close them outside all locks.
//!
//! # Why none is missed, and none taken that lives
//! Step 4 is decided under all the locks that could change it, so it is exact, whatever step 1 saw. As to
//! missing one: events that take an outside handle away count first (`users` or `in_flight`, SeqCst) and
//! look afterwards, so of two at once the later one sees both. And what is garbage stays as it is while
//! we look: there is no handle to change it with. (A peer may still send more into it; that only adds.)
//!
//! Bound: the reach is at most the rights that may be in flight. Tests: `tests/unix_rights.rs`,
//! `tests/unix_stress.rs`.

use std::collections::HashMap;

use sockeye_sync::facade::{Arc, Ordering};

use super::pcb::{Contents, Pcb, So};
use super::rights::dispose;
use crate::stack::Core;

/// Whether every handle of it is in flight.
pub(crate) fn is_suspect(pcb: &Pcb) -> bool {
    // SeqCst: see the module's head.
    let in_flight = pcb.in_flight.load(Ordering::SeqCst);
    in_flight > 0 && pcb.users.load(Ordering::SeqCst) == in_flight
}

/// Collects what became garbage with `suspect`. Outside all locks.
#[cold]
pub(crate) fn collect(core: &Core, suspect: &Arc<Pcb>) {
    if suspect.so.lock().sockets_held == 0 {
        return;
    }
    let mut candidates = reach(suspect);
    candidates.sort_unstable_by_key(|pcb| pcb.id());
    let dead = take_dead(&candidates);
    for contents in dead {
        dispose(core, contents);
    }
}

/// The candidates that can be reached, the suspect among them.
fn reach(suspect: &Arc<Pcb>) -> Vec<Arc<Pcb>> {
    let mut found = vec![Arc::clone(suspect)];
    let mut known: HashMap<usize, ()> = HashMap::from([(suspect.id(), ())]);
    let mut next = 0;
    while next < found.len() {
        let pcb = Arc::clone(&found[next]);
        next += 1;
        let so = pcb.so.lock();
        for held in held(&so) {
            if is_suspect(held) && known.insert(held.id(), ()).is_none() {
                found.push(Arc::clone(held));
            }
        }
    }
    found
}

/// The sockets that lie in a buffer or backlog.
fn held(so: &So) -> impl Iterator<Item = &Arc<Pcb>> {
    so.rights().flat_map(|rights| rights.sockets()).chain(so.embryos().map(|sock| &sock.pcb))
}

/// What the dead among `candidates`, which are in address order, held.
fn take_dead(candidates: &[Arc<Pcb>]) -> Vec<Contents> {
    let mut locked: Vec<_> = candidates.iter().map(|pcb| pcb.so.lock()).collect();
    let places: HashMap<usize, usize> = candidates.iter().enumerate().map(|(i, pcb)| (pcb.id(), i)).collect();
    let edges: Vec<Vec<usize>> =
        locked.iter().map(|so| held(so).filter_map(|pcb| places.get(&pcb.id()).copied()).collect()).collect();
    let mut outside: Vec<i64> =
        candidates.iter().map(|pcb| i64::from(pcb.users.load(Ordering::SeqCst))).collect();
    for to in edges.iter().flatten() {
        outside[*to] -= 1;
    }
    let mut is_alive = vec![false; candidates.len()];
    let mut living: Vec<usize> = (0..candidates.len()).filter(|i| outside[*i] > 0).collect();
    while let Some(place) = living.pop() {
        if !std::mem::replace(&mut is_alive[place], true) {
            living.extend(&edges[place]);
        }
    }
    let dead = locked.iter_mut().zip(is_alive).filter(|(_, is_alive)| !is_alive);
    dead.map(|(so, _)| so.empty()).collect()
}
