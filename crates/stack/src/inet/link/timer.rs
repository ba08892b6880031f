//! The timers of a link. Called by the timer wheel; nothing here waits. Tests: `tests/link/`.

use std::net::IpAddr;

use super::state::Work;
use super::{addresses, count, groups};
use crate::inet::context::Context;
use crate::inet::ip::icmp;
use crate::inet::netif::departures::Queued;
use crate::inet::netif::table::NetifId;
use crate::rt::failpoints::{self, Point};
use crate::rt::timers::TimerKey;

/// The timer of an interface's link.
pub(crate) fn timer_of(id: NetifId) -> TimerKey {
    TimerKey::Link { netif: id.index() as u16 }
}

/// The wheel's call.
pub(crate) fn on_timer(cx: &mut Context<'_>, id: NetifId) {
    let Some(link) = cx.core.links.get(id) else { return };
    // The neighbors' timers may panic, and the others run all the same.
    let undelivered = link.work(cx, None, |work| {
        let now = work.now();
        work.state.called(now);
        neighbors(work)
    });
    link.work(cx, None, |work| {
        let now = work.now();
        addresses::on_timer(work);
        if let Some(host) = &mut work.state.host {
            let effects = host.on_timer(now);
            addresses::carry_out(work, effects);
        }
        report(work);
    });
    for waiting in undelivered.into_iter().flatten() {
        icmp::no_neighbor(cx, id, &waiting.frame);
    }
}

/// Returns the frames that waited for neighbors that do not answer.
fn neighbors(work: &mut Work<'_, '_>) -> Vec<Queued> {
    let mut undelivered = Vec::new();
    let (now, links, slots) = (work.now(), &work.cx.core.links, &work.link.slots);
    let (due, expired) = work.state.cache.on_timer(now, |addr| {
        failpoints::hit(Point::NeighborTimer, failpoints::of_addr(*addr));
        slots.hint(addr)
    });
    for (addr, action) in due.actions {
        work.solicit(addr, action);
        // A neighbor in question is sent to all the same, until it is given up.
        work.publish(addr);
    }
    for gone in expired {
        slots.retract(gone.addr);
        links.count(count::UNREACHABLE);
        links.count_many(count::PENDING_DROPPED, gone.packets.len());
        if let (true, IpAddr::V6(router), Some(host)) = (gone.was_router, gone.addr, &mut work.state.host) {
            let effects = host.on_router_lost(router);
            addresses::carry_out(work, effects);
        }
        undelivered.extend(gone.packets);
    }
    undelivered
}

/// Sends the due membership reports now.
pub(super) fn report(work: &mut Work<'_, '_>) {
    let now = work.now();
    for family in 0..work.state.groups.len() {
        if work.state.groups[family].deadline().is_none_or(|at| now < at) {
            continue;
        }
        let mut random = work.state.draw();
        let sends = work.state.groups[family].on_timer(now, || {
            random = random.rotate_left(16).wrapping_add(1);
            random as u16
        });
        groups::send(work, &sends, family);
    }
}
