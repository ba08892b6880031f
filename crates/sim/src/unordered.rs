//! What a library does in an order that the seed does not decide: it is put into one that the run does.
//!
//! A kill drops a host's runtime of tokio with its tasks. tokio keeps those in lists by their numbers, which it counts for the whole process, and drops one list after the other; so which
//! task goes first depends on what else the process has run (ADR 93). While a runtime is dropped, hence:
//!
//! * frames are gathered, and then sent by sender and flow, those of a flow in their order;
//! * tasks of the simulator that were woken get their turns in the order in which they were spawned;
//! * what programs say is not noted: a killed process says nothing any more.
//!
//! Timers of the stack were then armed in tokio's order, and those that end at one moment fire in it. So what a host's stack sends by itself after a kill is put in order as well.
//!
//! Not covered: several tasks of another host's runtime that destructors wake by channels in memory, which no network has. Does not depend on why a runtime is dropped. Tests:
//! `tests/hosts/determinism.rs`.

use sockeye::netif::TxFrame;

use crate::packet::Packet;
use crate::world::World;

/// Calls `end`, which drops tasks of a library in its order.
pub(crate) fn end_tasks(world: &World, end: impl FnOnce()) {
    let woken_before = world.ready.count();
    world.lock().is_silent = true;
    send_in_order(world, end);
    world.lock().is_silent = false;
    world.ready.sort_behind(woken_before);
}

/// Calls `f`. What hosts send meanwhile is sent at its end, in the order of senders and flows.
pub(crate) fn send_in_order<R>(world: &World, f: impl FnOnce() -> R) -> R {
    let outer = world.lock().gathered.replace(Vec::new());
    let result = f();
    let mut state = world.lock();
    let mut gathered = std::mem::replace(&mut state.gathered, outer).unwrap_or_default();
    // Stable: frames of a flow stay in their order.
    gathered.sort_by_cached_key(|(from, frame)| (*from, flow(frame)));
    gathered.into_iter().for_each(|(from, frame)| state.send(from, frame));
    result
}

/// The addresses and ports of a segment; of another packet its headers.
fn flow(frame: &TxFrame) -> Vec<u8> {
    let packet = Packet { at: std::time::Duration::ZERO, index: 0, head: frame.head(), len: frame.len() };
    match packet.segment() {
        Some(segment) => format!("{} {}", segment.dst, segment.src).into_bytes(),
        None => frame.head().to_vec(),
    }
}
