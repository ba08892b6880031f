//! From packets to connections: the older settings of `input`.
//!
//! | setting | around a batch | for a packet |
//! |---|---|---|
//! | `exclusive` | the one squeue of all connections over interfaces | nothing |
//! | `exclusive+lock` | one mutex | its connection's lock |
//! | `per_packet` | nothing | its connection's lock |
//! | `batched`, the product's | nothing | its connection's lock, once for a run |
//!
//! With `exclusive` a call of an application finds the squeue of *all* connections occupied and leaves its item behind, which the input
//! thread runs when it leaves: a caller never waits, but its item does. Several input threads wait for each other, spinning a little
//! before they sleep.
//!
//! Lock rank: the mutex of `exclusive+lock` comes before everything, and only input takes it. The squeue of `exclusive` is entered like
//! any other; only input waits for it, with no lock held. Tests: `tests/wire/transfers.rs`.

use smallvec::SmallVec;
use sockeye_sync::facade::Arc;
use sockeye_sync::{Entry, Mutex, MutexGuard};

use super::squeue::{self, In, Item, Squeue, drive};
use crate::base::payload::Data;
use crate::experiments::Input;
use crate::inet::input::{BATCH_MAX, Packet, Place, count};
use crate::inet::netif::departures;
use crate::rt::counter;
use crate::tcp::conn::outbox::Context;
use crate::tcp::conn::run::{self, Stay};
use crate::tcp::conn::{Conn, Work};
use crate::tcp::input as deliver;
use sockeye_proto::tcp::segment::Header;

/// The locks of input threads with the two oldest settings.
pub(super) struct Exclusion {
    /// The lock around all input of `exclusive+lock`.
    lock: Mutex<()>,
    /// The squeue of all connections over interfaces, with `exclusive`.
    pub squeue: Arc<Squeue>,
}

impl Exclusion {
    pub fn new() -> Self {
        Self { lock: Mutex::new(()), squeue: Arc::new(Squeue::new(true)) }
    }
}

/// Attempts to enter the exclusive squeue before its owner is waited for.
const TRIES_MAX: usize = 100;

/// Handles all of `packets`, in order within each flow.
pub(super) fn batch(cx: &mut Context<'_>, at: Place, packets: &mut Vec<Packet>) {
    match cx.core.config.experiments.input {
        Input::Exclusive => exclusive(cx, packets),
        Input::ExclusiveLock => {
            let lock = lock(cx);
            // Frames depart when the lock is released.
            deliver::runs(cx, at, packets, 1, |_| ());
            drop(lock);
        }
        Input::PerPacket => deliver::runs(cx, at, packets, 1, |cx| departures::depart(cx)),
        Input::Batched => deliver::in_runs(cx, at, packets),
    }
}

fn lock<'s>(cx: &Context<'s>) -> MutexGuard<'s, ()> {
    let (core, lock) = (cx.core, &cx.core.discipline.input.lock);
    lock.try_lock().unwrap_or_else(|| {
        core.input.count(count::LOCK_CONTENDED, 1);
        lock.lock()
    })
}

/// All packets under one stay in the exclusive squeue, which is left for those without a connection.
fn exclusive<'s>(cx: &mut Context<'s>, packets: &mut Vec<Packet>) {
    // Looked up first: the table's locks are not taken inside a squeue.
    let mut found: SmallVec<[Option<Arc<Conn>>; BATCH_MAX]> = SmallVec::new();
    cx.drain("segment input", |cx| {
        while let Some(packet) = packets.get(found.len()) {
            // If the look-up panics it is left for `route`, which repeats it.
            found.push(None);
            let at = found.len() - 1;
            found[at] = deliver::lookup(cx, packet);
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
            deliver::route(cx, packet);
            continue;
        };
        let Some(mut hold) = held.take().or_else(|| enter_exclusive(cx, &conn)) else {
            input(cx, &conn, packet, || None);
            continue;
        };
        let ended = stay(cx, &conn, (packet.header, packet.payload), &mut || None).1;
        (hold.conn, hold.ran) = (conn, hold.ran + 1);
        if ended {
            leave(cx, Some(hold));
            cx.settle();
        } else {
            *held = Some(hold);
        }
    }
}

/// Whether its squeue is the exclusive one.
fn is_exclusive(cx: &Context<'_>, conn: &Conn) -> bool {
    squeue::of(conn).is_some_and(|squeue| squeue.id() == cx.core.discipline.input.squeue.id())
}

/// A stay in the exclusive squeue.
struct Held<'s> {
    inside: In<'s>,
    /// The connection that was served last.
    conn: Arc<Conn>,
    ran: usize,
}

/// Enters the exclusive squeue, and waits for that if need be. `None` if protocol code has panicked in it, or if it is occupied and the
/// stack has no threads: the caller of `Stack::poll` would wait for a squeue that was handed to itself.
fn enter_exclusive<'s>(cx: &Context<'s>, conn: &Arc<Conn>) -> Option<Held<'s>> {
    let core = cx.core;
    let squeue: &'s Squeue = &core.discipline.input.squeue;
    let inside = squeue.try_enter().or_else(|| {
        core.input.count(count::CONTENDED, 1);
        let spun = (0..TRIES_MAX).find_map(|_| {
            std::hint::spin_loop();
            squeue.try_enter()
        });
        let may_wait = core.config.workers > 0;
        spun.or_else(|| may_wait.then(|| squeue.enter_blocking().ok()).flatten())
    })?;
    core.input.count(count::ACQUISITIONS, 1);
    core.count(counter::ENTERED);
    Some(Held { inside, conn: Arc::clone(conn), ran: 0 })
}

fn leave(cx: &mut Context<'_>, held: Option<Held<'_>>) {
    if let Some(held) = held {
        cx.core.input.count(count::run_of(held.ran), 1);
        drive(cx, held.inside, &held.conn, held.ran);
    }
}

/// Runs `first` and those items from `next` that are for the same connection: in its squeue, if it has one. True if the connection has
/// ended on the way.
pub(super) fn input(
    cx: &mut Context<'_>,
    conn: &Arc<Conn>,
    first: Packet,
    mut next: impl FnMut() -> Option<Packet>,
) -> bool {
    let Some(squeue) = squeue::of(conn) else { return run::input(cx, conn, first, next) };
    let mut waiting = Some(first);
    while let Some(packet) = waiting.take().or_else(&mut next) {
        // The thread inside may leave at any moment: the next packet tries again, and if it succeeds, the earlier ones have been run.
        let Some((inside, packet)) = enter(cx, conn, squeue, packet) else { continue };
        let (ran, ended) = stay(cx, conn, packet, &mut next);
        cx.core.input.count(count::run_of(ran), 1);
        drive(cx, inside, conn, ran);
        if ended {
            return true;
        }
    }
    false
}

/// Enters with a segment, or leaves it to the thread inside.
fn enter<'c>(
    cx: &Context<'_>,
    conn: &'c Arc<Conn>,
    squeue: &'c Squeue,
    packet: Packet,
) -> Option<(In<'c>, (Header, Data))> {
    let core = cx.core;
    let segment = (packet.header, packet.payload);
    let entered = match squeue.try_enter() {
        Some(inside) => (inside, segment),
        None => {
            core.input.count(count::CONTENDED, 1);
            match squeue.enter(Item::new(squeue, conn, Work::segment(segment.0.into(), segment.1))) {
                Entry::Inside(inside, Item { work: Work::Segment(header, payload), .. }) => {
                    (inside, (header.into(), payload))
                }
                Entry::Inside(inside, Item { work: Work::Rare(header, payload), .. }) => {
                    (inside, (*header, payload))
                }
                Entry::Inside(..) => unreachable!("the item comes back as it was given"),
                Entry::Queued => {
                    core.count(counter::QUEUED);
                    return None;
                }
                // Protocol code panicked in there: this connection's segments are lost.
                Entry::Poisoned(_) => {
                    core.count(counter::SEGMENTS_LOST);
                    return None;
                }
            }
        }
    };
    core.input.count(count::ACQUISITIONS, 1);
    core.count(counter::ENTERED);
    Some(entered)
}

/// Runs `first` and the items from `next`. Returns how many, and whether the connection has ended.
fn stay(
    cx: &mut Context<'_>,
    conn: &Arc<Conn>,
    first: (Header, Data),
    next: &mut impl FnMut() -> Option<Packet>,
) -> (usize, bool) {
    let mut next = || next().map(|packet| (packet.header, packet.payload));
    let mut stay = Stay { waiting: Some(first), ..Stay::default() };
    while stay.waiting.is_some() {
        stay.hold(cx, conn, &mut conn.so.lock(), &mut next);
    }
    (stay.ran, stay.has_ended)
}
