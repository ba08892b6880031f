//! Frames on their way out: to the interface itself, or to its link first.
//!
//! `departures.rs` describes how they get from a lane to the interface.
//!
//! A frame that does not fit a lane, or a queue of the interface, is dropped and counted. A sender is not held back by that: TCP
//! finds the loss and slows down, as it should at a full queue. Tests: `tests/wire/transfers.rs`, `tests/wire/faults.rs`.

use super::TxFrame;
use super::departures;
use super::table::Via;
use crate::inet::context::Context;
use crate::inet::link;

/// TTL of the packets that we send (RFC 1700).
pub(crate) const HOP_LIMIT: u8 = 64;

/// Offers frames of one flow to the interface of `via`. Returns how many were dropped.
pub(crate) fn hand_over(cx: &mut Context<'_>, via: Via, hash: u64, frames: &mut Vec<TxFrame>) -> usize {
    let core = cx.core;
    let Some((id, netif)) = core.netifs.out(via) else { return frames.len() };
    match core.links.get(id) {
        None => departures::offer(cx, id, netif, hash, frames),
        Some(link) => link::output::transmit(cx, link, via, hash, frames),
    }
}
