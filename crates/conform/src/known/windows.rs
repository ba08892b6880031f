//! Differences in when a larger receive window is announced, and a closed one is probed.
//!
//! Tests: as those of `known.rs`.

use std::time::Duration;

use super::timers::doublings;
use super::{Pair, Then};
use crate::codec::Packet;
use crate::compare::{SLACK, granularity};
use crate::scenario::{Action, Event, SockOpt};
use crate::segment::{Flags, Opt, Segment};
use crate::trace::{Record, What};

/// A read that frees a quarter of the receive buffer sends an ACK with the new window. The kernel sends one only if at
/// most half of the largest window is open and the new window is at least twice as large.
pub(super) fn update_of_the_window(pair: &Pair<'_>) -> Option<Then> {
    let stack = pair.stack?;
    let What::Sent(Packet::Tcp(update)) = &stack.what else { return None };
    let event = pair.scenario.events.get(pair.index()?)?;
    let is_read = matches!(event.action, Action::Read(_) | Action::ReadInq(_));
    let waits = |kernel: &Record| !matches!(kernel.what, What::Sent(_)) || kernel.at > stack.at + SLACK;
    let is_at_once = stack.at < event.at() + SLACK && pair.kernel.is_none_or(waits);
    // It acknowledges nothing new.
    let acknowledges = |sent: &Segment| sent.flags.has(Flags::ACK) && sent.ack == update.ack;
    let is_told = pair.earlier.iter().filter_map(Record::segment).any(acknowledges);
    // The peer's next segment may echo its timestamp, which changes a round trip sample.
    let then = if update.timestamp().is_some() { Then::Stop } else { Then::SkipStack };
    (is_read && is_at_once && is_told && update.is_bare_ack() && frees_a_quarter(pair, update))
        .then_some(then)
}

/// Whether as much was read so far as a quarter of the window that this announces.
fn frees_a_quarter(pair: &Pair<'_>, update: &Segment) -> bool {
    let mut inq = None;
    let read = pair.earlier.iter().filter_map(|record| match record.what {
        What::Returned(index, Ok(count)) => match pair.scenario.events.get(index)?.action {
            Action::Read(_) => Some(count),
            // The second of its records is how many are left.
            Action::ReadInq(_) if inq.replace(index) != Some(index) => Some(count),
            _ => None,
        },
        _ => None,
    });
    4 * read.sum::<u32>() >= window(pair, update)
}

/// Sockeye announces a larger window that an option allows at once, or with the ACK of the first data. The kernel
/// announces it step by step, as data arrives.
pub(super) fn window_behind_an_option(pair: &Pair<'_>) -> Option<Then> {
    let stack = pair.stack?;
    let What::Sent(Packet::Tcp(told)) = &stack.what else { return None };
    let index = pair.index()?;
    let before = pair.scenario.events.get(..=index)?;
    let enlarges = |event: &Event| {
        let Action::Set(option, _) = event.action else { return false };
        matches!(option, SockOpt::RcvBuf | SockOpt::RcvLowat | SockOpt::WindowClamp)
    };
    let (event, before) = before.split_last()?;
    let waits = pair
        .kernel
        .is_none_or(|kernel| kernel.at > stack.at + SLACK || matches!(kernel.what, What::State(..)));
    if !told.is_bare_ack() || !waits || stack.at > event.at() + SLACK {
        return None;
    }
    let last = pair.earlier.iter().rev().find_map(Record::segment)?;
    let acked = last.ack;
    if told.ack + window(pair, told) <= last.ack + window(pair, last) {
        return None;
    }
    if enlarges(event) {
        // From here on, the peer echoes another timestamp.
        let has_ts = told.options.iter().any(|option| matches!(option, Opt::Ts(..)));
        return Some(if told.ack == acked && !has_ts { Then::SkipStack } else { Then::Stop });
    }
    let is_first = acked == 1 && matches!(&event.action, Action::Segment(text) if text.len > 0);
    (is_first && before.iter().any(enlarges)).then_some(Then::Stop)
}

/// The window that a segment of the tested side announces. The kernel tells how it is scaled.
fn window(pair: &Pair<'_>, sent: &Segment) -> u32 {
    let syn = pair.earlier.iter().filter_map(Record::segment).find_map(Segment::shift);
    let shift = syn.filter(|_| pair.shift().is_some() && !sent.flags.has(Flags::SYN)).unwrap_or(0);
    u32::from(sent.win) << shift
}

/// Whether one side has sent a probe of a closed window, with nothing in flight, and on the other an event comes before its
/// timer, which is late by its granularity.
pub(super) fn is_between_two_window_probes(pair: &Pair<'_>) -> bool {
    let (Some(kernel), Some(stack)) = (pair.kernel, pair.stack) else { return false };
    let (probe, at, other, state) = match (&kernel.what, &stack.what) {
        (What::Sent(Packet::Tcp(probe)), What::State(_, state)) => (probe, kernel.at, stack.at, state),
        (What::State(_, state), What::Sent(Packet::Tcp(probe))) => (probe, stack.at, kernel.at, state),
        _ => return false,
    };
    let una = pair.acks().map(|told| told.ack).max().unwrap_or(1);
    let is_probe = |probe: &Segment| probe.is_bare_ack() && probe.seq + 1 == una;
    let (is_probing, late) = match &state.info {
        Some(info) => {
            let is_probing = info.get("snd_wnd") == Some(0) && info.get("notsent_bytes") > Some(0);
            (is_probing, granularity(info.rto * (1 << doublings(info))))
        }
        // A closed socket shows no state, but it has probed before. The timeouts that are doubled may differ (`compare.rs`).
        None => {
            let of_probe = |record: &&Record| record.segment().is_some_and(is_probe);
            let waited = pair.earlier.iter().rfind(of_probe).map(|last| at.saturating_sub(last.at));
            let late = waited.map_or(Duration::ZERO, |waited| granularity(waited) + waited / 8);
            (pair.is_shut() && waited.is_some(), late)
        }
    };
    is_probe(probe) && is_probing && at < other && other < at + late + SLACK
}
