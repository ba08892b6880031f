//! Differences that come from the memory of packets. The kernel reserves memory for a socket. Its header prediction
//! takes data that brings no news about the kernel's own data only if the packet fits this memory.
//!
//! Tests: as those of `known.rs`.

use std::time::Duration;

use super::timers::{BACKOFF_MAX, largest_timeouts};
use super::{Pair, Then};
use crate::codec::Packet;
use crate::compare::SLACK;
use crate::scenario::Action;
use crate::segment::{Flags, Segment};
use crate::trace::{Info, Record, State, What, latest_figure};

/// The window is closed, or data is held back and nothing is in flight. Data from the peer whose packet does not fit
/// the memory that the socket has reserved restarts the kernel's probe timer (header prediction takes a packet that
/// fits). In Sockeye, data that brings no news about its own data never does.
pub(super) fn window_probe_beside_text(pair: &Pair<'_>) -> Option<Then> {
    let segments = pair.acks();
    let una = segments.clone().map(|segment| segment.ack).max()?;
    let mss = latest_figure(pair.earlier, "snd_mss")?;
    let is_held =
        latest_figure(pair.earlier, "notsent_bytes") > Some(0) && pair.texts().all(|text| text.end() <= una);
    // Of a window that is closed, or has no room for a segment: then the probe fills it.
    let is_small = |segment: &Segment| u64::from(pair.edge(segment) - segment.ack) < mss;
    let is_probe = |record: &Record| match &record.what {
        What::Sent(Packet::Tcp(probe)) => {
            // A probe that announces urgent data is sent before the ordinary one.
            let tells = probe.flags.has(Flags::URG) && probe.seq == una;
            let is_bare = probe.is_bare_ack() && (probe.seq + 1 == una || tells);
            let fills = |segment: &Segment| is_small(segment) && pair.edge(segment) == probe.end();
            let is_filling = segments.clone().next_back().is_some_and(fills);
            is_bare || (probe.len > 0 && probe.seq == una && (is_filling || is_held))
        }
        _ => false,
    };
    let is_text = |before: &Segment, text: &Segment| {
        let waits = is_small(text) || (is_held && text.ack == una);
        text.len > 0 && waits && text.win == before.win && text.ack == before.ack
    };
    let mut before: Option<&Segment> = None;
    // A segment that was overtaken says nothing about the window.
    let has_text = segments.clone().any(|segment| match before {
        Some(before) if segment.ack < before.ack => false,
        _ => before.replace(segment).is_some_and(|before| is_text(before, segment)),
    });
    // Not sooner than the timer of the connection, which each probe has doubled.
    let info = pair.earlier.iter().rev().find_map(|record| match &record.what {
        What::State(_, state) => state.info.as_ref(),
        _ => None,
    })?;
    let doubled = info.rto * (1 << info.get("backoff")?.min(BACKOFF_MAX as u64));
    let longest = largest_timeouts(pair).last().copied()?;
    let is_asked = |record: &&Record| {
        is_probe(record) && record.segment().is_some_and(|probe| probe.len > 0 || probe.seq != una)
    };
    let probed = pair.earlier.iter().rfind(is_asked).map_or(Duration::ZERO, |record| record.at);
    let is_due = |stack: &Record| stack.at + SLACK >= probed + doubled.min(longest);
    let is_later = pair.stack.is_some_and(|stack| {
        is_probe(stack) && is_due(stack) && pair.kernel.is_none_or(|kernel| kernel.at > stack.at)
    });
    (has_text && (is_later || counts_fewer_probes(pair))).then_some(Then::Stop)
}

/// Whether the kernel has sent fewer probes, or has backed off less.
fn counts_fewer_probes(pair: &Pair<'_>) -> bool {
    let Some((kernel, stack)) = pair.states() else { return false };
    let figure = |state: &State, name| state.info.as_ref().and_then(|info| info.get(name));
    ["probes", "backoff"].iter().any(|name| {
        pair.why.split_once(':').is_some_and(|(why, _)| why == *name)
            && figure(kernel, name) < figure(stack, name)
    })
}

/// The same kind of data releases what `MSG_MORE` holds back, since the kernel looks for something to send. In Sockeye
/// the held data waits.
pub(super) fn held_text_beside_text(pair: &Pair<'_>) -> Option<Then> {
    let What::Sent(Packet::Tcp(held)) = &pair.kernel?.what else { return None };
    let index = pair.index()?;
    let Some(Action::Segment(cause)) = pair.scenario.events.get(index).map(|event| &event.action) else {
        return None;
    };
    let before = pair.acks_before(index).last()?;
    let is_text = cause.len > 0 && (cause.ack, cause.win) == (before.ack, before.win);
    let is_new = held.len > 0 && held.ack == cause.end() && pair.texts().all(|text| text.end() <= held.seq);
    let is_short = u64::from(held.len) < latest_figure(pair.earlier, "snd_mss")?;
    let waits = match &pair.stack?.what {
        What::Sent(Packet::Tcp(ack)) => ack.len == 0 && ack.ack == cause.end(),
        _ => true,
    };
    let calls = pair.scenario.events[..index].iter().rev().map(|event| &event.action);
    let written = calls.clone().find(|action| action.written().is_some());
    let is_held = matches!(written, Some(Action::WriteMore(_)));
    (is_text && is_new && is_short && waits && is_held).then_some(Then::Stop)
}

/// If the packet of data that brings no news about the kernel's own data does not fit the memory that the socket has
/// reserved, the data leaves the kernel's fast path, and causes a retransmission before it is processed, or new data if a
/// timeout has joined segments and so made room. In Sockeye it never does.
pub(super) fn text_in_a_repair(pair: &Pair<'_>) -> Option<Then> {
    let What::Sent(Packet::Tcp(again)) = &pair.kernel?.what else { return None };
    let cause = pair.peer().last()?.1;
    // An ACK that a later one has overtaken is ignored.
    let before = pair.acks().rev().skip(1).find(|told| told.ack >= cause.ack)?;
    let is_text = cause.end() > cause.seq && (cause.ack, cause.win) == (before.ack, before.win);
    let is_again = again.len > 0 && again.ack == cause.seq && pair.times_sent(again.seq) > 0;
    let top = pair.texts().map(Segment::end).max()?;
    let joins = |text: &Segment| {
        pair.texts().any(|part| part.len > 0 && text.seq < part.seq && part.end() == text.end())
    };
    let is_new = again.len > 0 && again.seq == top && pair.texts().last().is_some_and(joins);
    let waits = match &pair.stack?.what {
        What::Sent(Packet::Tcp(ack)) => ack.len == 0 && ack.ack == cause.end(),
        _ => true,
    };
    let is_repaired = latest_figure(pair.earlier, "ca_state") == Some(4);
    (is_text && (is_again || is_new) && waits && is_repaired).then_some(Then::Stop)
}

/// A segment has come with a later number than the data that follows. In-order data with the same window takes this
/// number back, so that the window of the next segment counts, or of the same data again, but in the kernel only if its packet fits the memory that
/// the socket has reserved (`tcp_update_wl`).
pub(super) fn window_beside_text(pair: &Pair<'_>) -> Option<Then> {
    let told: Vec<&Segment> = pair.acks().collect();
    let (last, earlier) = told.split_last()?;
    let latest = earlier.iter().rposition(|early| early.seq > last.seq)?;
    let mut behind = earlier[latest..].windows(2);
    let has_text = behind.any(|pair| {
        let is_same = (pair[0].ack, pair[0].win) == (pair[1].ack, pair[1].win);
        is_same && pair[1].len > 0 && (pair[1].end() <= last.seq || pair[1].seq == last.seq)
    });
    let mut states = pair.kernel.into_iter().chain(pair.later).filter_map(|record| match &record.what {
        What::State(_, State { info: Some(info), .. }) => Some(info),
        _ => None,
    });
    let window = u64::from(pair.edge(last) - last.ack);
    let is_ignored = states.next().is_some_and(|info| info.get("snd_wnd") != Some(window));
    (has_text && is_ignored).then_some(Then::Stop)
}

/// Such data also makes the kernel check the use of the window, which is full while a timeout is repaired and data
/// waits. So the ACK that ends the repair lets the kernel's window grow, and not Sockeye's; a later loss computes the
/// threshold from it. The same holds for the ACK after a probe that fills a small window, because sending such a probe
/// checks nothing.
pub(super) fn use_of_the_window_beside_text(pair: &Pair<'_>) -> Option<Then> {
    let (kernel, stack) = pair.states()?;
    let (kernel, stack) = (kernel.info.as_ref()?, stack.info.as_ref()?);
    let differs = |name: &str| pair.why.starts_with(name) && kernel.get(name) > stack.get(name);
    let is_larger = differs("snd_cwnd") || differs("snd_ssthresh");
    let states = pair.earlier.iter().rev().filter_map(|record| match &record.what {
        What::State(index, State { info: Some(info), .. }) => Some((index + 1, info)),
        _ => None,
    });
    let is_probed =
        |info: &Info| info.get("ca_state") == Some(0) && info.get("snd_wnd") < info.get("snd_mss");
    let repair = states
        .skip_while(|(_, info)| is_probed(info))
        .take_while(|(_, info)| info.get("ca_state") == Some(4));
    let mut full = repair.filter(|(_, info)| info.get("notsent_bytes") > Some(0));
    let is_it = full.any(|(index, _)| {
        let Some(Action::Segment(text)) = pair.scenario.events.get(index).map(|event| &event.action) else {
            return false;
        };
        let is_next = text.len > 0 && text.seq == pair.rcv_nxt_before(index);
        let before = pair.acks_before(index).last();
        is_next && before.is_some_and(|before| (before.ack, before.win) == (text.ack, text.win))
    });
    (is_it && is_larger).then_some(Then::Stop)
}
