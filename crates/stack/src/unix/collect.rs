//! The collector: sockets that only messages refer to, which only such sockets could receive.
//!
//! A socket sent through itself, or two each sent through the other, would stay for ever: no handle is left to
//! receive them with. This is the one way in which handles can form a cycle.
//!
//! # When
//! Garbage comes into being when the last handle outside of messages goes: it is dropped, or sent to a socket that has none itself. Both
//! places ask [`is_suspect`] afterwards. A socket that became garbage at that moment was reachable through that socket, and if the socket
//! is garbage itself something in its own buffer leads back to it; so without sockets in its buffer nothing is done, and otherwise only
//! sockets that can be reached from it are looked at. There is no table of all sockets and no lock of the whole stack.
//!
//! # How
//! 1. *Reach*: from the suspect through the buffers, one mutex at a time, through sockets whose every handle
//!    is in flight, the *candidates*. (Others are alive, and so are the sockets that they hold.)
//! 2. Lock the buffers of all candidates, in address order; no other thread holds two.
//! 3. *Subtract*: a candidate with more handles than lie in candidates' buffers is held from outside: alive.
//!    Sockets in the buffers of a living one are alive too, and so on until nothing changes.
//! 4. The rest is dead: all handles of it lie in buffers that we have locked, so no thread can get at one.
//!    Take the contents out, unlock, and close them outside all locks.
//!
//! # Why none is missed, and none taken that lives
//! Step 4 is decided under all the locks that could change it, so it is exact, whatever step 1 saw. As to
//! missing one: events that take an outside handle away count first (`users` or `in_flight`, SeqCst) and look
//! afterwards, so of two at once the later one sees both. And garbage stays as it is while we look: there is
//! no handle to change it with. (A peer may still send more into it; that only adds.)
//!
//! # Several stacks
//! Sockets of different stacks can form one cycle, so the reach goes through stacks, and the locks are taken in address order
//! whatever stack they are of. The rights in a buffer are counted with the stack of the buffer's socket, which is disposed of
//! with its own stack; a handle of that is taken where the socket is found, and keeps the stack until all is closed. Sockets
//! are closed in the order in which they were found, which does not depend on addresses: a simulation repeats it.
//!
//! Bound: the reach is at most the rights that may be in flight. Tests: `tests/unix/rights.rs`,
//! `tests/unix/stress.rs`.

use std::collections::HashMap;

use sockeye_sync::facade::{Arc, Ordering};

use super::pcb::{Contents, Pcb, So};
use super::rights::dispose;
use super::sock::Sock;
use crate::rt::handle::Stack;

/// A socket that may be garbage.
struct Candidate {
    pcb: Arc<Pcb>,
    /// Keeps it. `None` for the suspect, whose stack the caller holds.
    _stack: Option<Stack>,
}

/// Whether every handle of it is in flight.
pub(crate) fn is_suspect(pcb: &Pcb) -> bool {
    // SeqCst: see the module's head.
    let in_flight = pcb.in_flight.load(Ordering::SeqCst);
    in_flight > 0 && pcb.users.load(Ordering::SeqCst) == in_flight
}

/// Whether a suspect may be part of a cycle, or lead to one: it holds sockets itself.
pub(crate) fn may_close_a_cycle(pcb: &Arc<Pcb>) -> bool {
    is_suspect(pcb) && pcb.so.lock().sockets_held > 0
}

/// Collects the sockets that became garbage with `suspect`. Outside all locks.
#[cold]
pub(crate) fn collect(suspect: &Arc<Pcb>) {
    if suspect.so.lock().sockets_held == 0 {
        return;
    }
    let candidates = reach(suspect);
    take_dead(&candidates).into_iter().for_each(dispose);
}

/// The candidates that can be reached, the suspect first.
fn reach(suspect: &Arc<Pcb>) -> Vec<Candidate> {
    let mut found = vec![Candidate { pcb: Arc::clone(suspect), _stack: None }];
    let mut known: HashMap<usize, ()> = HashMap::from([(suspect.id(), ())]);
    let mut next = 0;
    while next < found.len() {
        let pcb = Arc::clone(&found[next].pcb);
        next += 1;
        let so = pcb.so.lock();
        for held in held(&so) {
            if is_suspect(&held.pcb) && known.insert(held.pcb.id(), ()).is_none() {
                found.push(Candidate { pcb: Arc::clone(&held.pcb), _stack: Some(held.stack.clone()) });
            }
        }
    }
    found
}

/// The handles that lie in a buffer or backlog.
fn held(so: &So) -> impl Iterator<Item = &Sock> {
    so.rights().flat_map(|rights| rights.sockets()).chain(so.embryos())
}

/// The content of the dead among `candidates`, in their order.
fn take_dead(candidates: &[Candidate]) -> Vec<Contents> {
    let mut order: Vec<usize> = (0..candidates.len()).collect();
    order.sort_unstable_by_key(|place| candidates[*place].pcb.id());
    // By address: no other thread holds two.
    let mut locked: Vec<_> = order.iter().map(|place| (*place, candidates[*place].pcb.so.lock())).collect();
    locked.sort_unstable_by_key(|(place, _)| *place);
    let places: HashMap<usize, usize> =
        candidates.iter().enumerate().map(|(place, candidate)| (candidate.pcb.id(), place)).collect();
    let place_of = |held: &Sock| places.get(&held.pcb.id()).copied();
    let edges: Vec<Vec<usize>> =
        locked.iter().map(|(_, so)| held(so).filter_map(place_of).collect()).collect();
    let users = |candidate: &Candidate| i64::from(candidate.pcb.users.load(Ordering::SeqCst));
    let mut outside: Vec<i64> = candidates.iter().map(users).collect();
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
    let dead = locked.iter_mut().filter(|(place, _)| !is_alive[*place]);
    dead.map(|(_, so)| so.empty()).collect()
}
