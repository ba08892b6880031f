//! From packets to connections: the four settings of the switch `input`.
//!
//! | setting | around a batch | for a packet |
//! |---|---|---|
//! | `exclusive` | the one perimeter of all connections over wires | nothing |
//! | `exclusive+lock` | one mutex | its connection's perimeter |
//! | `per_packet` | nothing | its connection's perimeter |
//! | `batched` | nothing | its connection's perimeter, once for a run |
//!
//! With `exclusive` an application's call finds the perimeter of *all* connections occupied and leaves its item
//! behind, which the input thread runs when it leaves: a caller never waits, but what it wanted does. Several input
//! threads wait for each other, spinning a little before they sleep.
//!
//! # Runs
//! A run is packets in a row for one connection, at most [`RUN_MAX`]. Its connection is looked up once, before its
//! perimeter is entered, and only this one perimeter is held: there is no order among connections to be kept.
//! A connection that ends on the way (reset, TIME-WAIT) ends the run, and what it left in the outbox is done before
//! the next packet is looked at, so that a SYN that reuses its name finds the name free. Packets without a
//! connection (handshakes, strays) are routed outside of every perimeter. A listener has none: what its SYNs share is
//! a shard of the demux table, chosen by the hash of the 4-tuple; so SYNs to one listener run in parallel, and
//! nothing is nested when a child is made. The child is in the table before its third segment has been run;
//! another thread that finds it there runs it as any other.
//!
//! Tests: `tests/wire.rs`.

use smallvec::SmallVec;
use sockeye_sync::facade::Arc;
use sockeye_sync::{Inside, MutexGuard};

use super::busy::Place;
use super::{BATCH_MAX, Packet, count};
use crate::experiments::Input as Switch;
use crate::inet::netif::departures;
use crate::tcp::conn::outbox::{Context, Routed};
use crate::tcp::conn::{Conn, Item, run};
use crate::tcp::route;

/// Most packets of one connection under one hold of its perimeter.
const RUN_MAX: usize = BATCH_MAX;
/// Attempts to enter the exclusive perimeter before its owner is waited for.
const TRIES_MAX: usize = 100;

/// Handles all of `packets`, in order within each flow.
pub(super) fn batch(cx: &mut Context<'_>, at: Place, packets: &mut Vec<Packet>) {
    match cx.core.config.experiments.input {
        Switch::Exclusive => exclusive(cx, packets),
        Switch::ExclusiveLock => {
            let lock = lock(cx);
            // Frames depart when the lock is released.
            runs(cx, at, packets, 1, |_| ());
            drop(lock);
        }
        Switch::PerPacket => runs(cx, at, packets, 1, departures::depart),
        Switch::Batched => runs(cx, at, packets, RUN_MAX, departures::depart),
    }
}

fn lock<'s>(cx: &Context<'s>) -> MutexGuard<'s, ()> {
    let input = &cx.core.input;
    input.lock.try_lock().unwrap_or_else(|| {
        input.count(count::LOCK_CONTENDED, 1);
        input.lock.lock()
    })
}

/// Each run of at most `run_max` packets enters its connection's perimeter, and `after` it is done what need not wait for the
/// others.
fn runs(
    cx: &mut Context<'_>,
    at: Place,
    packets: &mut Vec<Packet>,
    run_max: usize,
    after: impl Fn(&mut Context<'_>),
) {
    let mut packets = packets.drain(..).peekable();
    cx.drain("segment input", |cx| {
        while let Some(first) = packets.next() {
            let Some(conn) = lookup(cx, &first) else {
                route(cx, first);
                continue;
            };
            conn.input_at.store(at);
            let mut left = run_max - 1;
            let next = || {
                let packet = packets.next_if(|packet| left > 0 && packet.to == conn.tuple)?;
                left -= 1;
                Some(packet)
            };
            if run::input(cx, &conn, first, next) {
                cx.settle();
            }
            after(cx);
        }
    });
}

/// All packets under one stay in the exclusive perimeter, which is left for those without a connection.
fn exclusive<'s>(cx: &mut Context<'s>, packets: &mut Vec<Packet>) {
    // Looked up first: the table's locks are not taken inside a perimeter.
    let mut found: SmallVec<[Option<Arc<Conn>>; BATCH_MAX]> = SmallVec::new();
    cx.drain("segment input", |cx| {
        while let Some(packet) = packets.get(found.len()) {
            // If the look-up panics it is left for `route`, which repeats it.
            found.push(None);
            let at = found.len() - 1;
            found[at] = lookup(cx, packet);
        }
    });
    let mut held: Option<Held<'s>> = None;
    let mut packets = packets.drain(..).zip(found);
    cx.drain("segment input", |cx| exclusive_rest(cx, &mut packets, &mut held));
    leave(cx, held);
}

/// Handles the rest of `packets`, each with its connection.
fn exclusive_rest<'s>(
    cx: &mut Context<'s>,
    packets: &mut impl Iterator<Item = (Packet, Option<Arc<Conn>>)>,
    held: &mut Option<Held<'s>>,
) {
    for (packet, conn) in packets {
        let Some(conn) = conn.filter(|conn| is_exclusive(cx, conn)) else {
            leave(cx, held.take());
            route(cx, packet);
            continue;
        };
        let Some(mut hold) = held.take().or_else(|| enter(cx, &conn)) else {
            run::input(cx, &conn, packet, || None);
            continue;
        };
        let ended = run::one(cx, &hold.inside, &conn, packet);
        (hold.conn, hold.ran) = (conn, hold.ran + 1);
        if ended {
            leave(cx, Some(hold));
            cx.settle();
        } else {
            *held = Some(hold);
        }
    }
}

/// Whether it lives in the exclusive perimeter.
fn is_exclusive(cx: &Context<'_>, conn: &Conn) -> bool {
    conn.perimeter().is_some_and(|perimeter| perimeter.id() == cx.core.input.exclusive.id())
}

/// A stay in the exclusive perimeter.
struct Held<'s> {
    inside: Inside<'s, Item>,
    /// The connection that was served last.
    conn: Arc<Conn>,
    ran: usize,
}

/// Enters the exclusive perimeter, and waits for that if need be. `None` if protocol code has panicked in it, or
/// if it is occupied and the stack has no threads: whoever polls would wait for a perimeter that was handed to
/// himself.
fn enter<'s>(cx: &Context<'s>, conn: &Arc<Conn>) -> Option<Held<'s>> {
    let core = cx.core;
    let perimeter: &'s _ = &core.input.exclusive;
    let inside = perimeter.try_enter().or_else(|| {
        core.input.count(count::CONTENDED, 1);
        let spun = (0..TRIES_MAX).find_map(|_| {
            std::hint::spin_loop();
            perimeter.try_enter()
        });
        let may_wait = core.config.workers > 0;
        spun.or_else(|| may_wait.then(|| perimeter.enter_blocking().ok()).flatten())
    })?;
    core.input.count(count::ACQUISITIONS, 1);
    core.count(crate::rt::counter::ENTERED);
    Some(Held { inside, conn: Arc::clone(conn), ran: 0 })
}

fn leave(cx: &mut Context<'_>, held: Option<Held<'_>>) {
    if let Some(held) = held {
        cx.core.input.count(count::run_of(held.ran), 1);
        run::leave(cx, held.inside, &held.conn, held.ran);
    }
}

/// The connection that a packet is for.
fn lookup(cx: &Context<'_>, packet: &Packet) -> Option<Arc<Conn>> {
    let hash = packet.to.hash(&cx.core.key);
    cx.core.demux.shard(hash).conn(hash, &packet.to).cloned()
}

/// A packet without a connection: whoever answers for it, does.
fn route(cx: &mut Context<'_>, packet: Packet) {
    let Packet { to, header, payload } = packet;
    route::deliver(cx, Routed { from: None, to, header, payload });
}
