//! Differences in which acknowledgments count, and in what follows if they do not.
//!
//! Tests: as those of `known.rs`.

use std::time::Duration;

use super::timers::is_timer;
use super::{Pair, Then};
use crate::codec::Packet;
use crate::compare::{ANSWER_MAX, CHALLENGE_INTERVAL, CHALLENGE_INTERVAL_MAX, SLACK};
use crate::scenario::{Action, Event, SockOpt};
use crate::segment::{Echo, Flags, Opt, Segment};
use crate::trace::{Record, State, What, latest_figure};

/// After a tail loss probe, Sockeye sends no other until a round trip was measured (RFC 8985 section 7.3). Without
/// timestamps, the acknowledgment of a retransmission gives no sample, and the kernel sends another probe all the same.
pub(super) fn probe_before_a_measurement(pair: &Pair<'_>) -> Option<Then> {
    if let Some((kernel, stack)) = pair.states() {
        return probe_instead_of_a_timeout(pair, kernel, stack);
    }
    let (at, What::Sent(Packet::Tcp(kernel))) = (pair.kernel?.at, &pair.kernel?.what) else { return None };
    let top = pair.texts().map(|text| text.end()).max()?;
    // Without the probe the reordering timer continues, and may find a loss first.
    // Or all that is in flight is repeated by the stack's timeout, as one segment. It counts from when the first was sent.
    let una = pair.acks().map(|told| told.ack).max()?;
    let waits = pair.stack.is_none_or(|stack| match &stack.what {
        What::Sent(Packet::Tcp(again)) => {
            let is_timeout = again.seq == una && again.end() == top;
            stack.at > at || (again.len > 0 && (again.end() < top || is_timeout))
        }
        _ => true,
    });
    // The last segment, or its rest, for the second time, or the next one. Or for the third time, if the stack's
    // timeout was due together with the probe: its next probe is later.
    let start = pair.texts().find(|text| text.end() == top)?.seq;
    // SACK blocks take room from it, or the window has no room for all of it.
    let is_cut = || pair.acks().next_back().is_some_and(|told| pair.edge(told) == kernel.end());
    let is_last = kernel.end() == top || (kernel.seq == start && (!kernel.sack().is_empty() || is_cut()));
    let is_again = kernel.seq >= start && is_last && pair.times_sent_to(top) <= 2;
    let is_last = is_again || kernel.seq == top;
    // The peer has closed its window over the data, or over its end, so the probe cannot be sent and becomes the timeout
    // of the first segment.
    let told = pair.acks().next_back();
    let is_shut = told.is_some_and(|told| pair.edge(told) < top && told.ack == kernel.seq);
    let is_timeout = is_shut && pair.times_sent(kernel.seq) > 0;
    let is_probe = kernel.end() > kernel.seq && (is_last || is_timeout);
    let is_repeated = pair.has_repeated_below(top);
    (waits && is_probe && is_repeated && has_no_echo(pair)).then_some(Then::Stop)
}

/// Whether the peer's latest acknowledgment of new data has no timestamp to measure by, or the two ends use no
/// timestamps.
fn has_no_echo(pair: &Pair<'_>) -> bool {
    let latest = pair.acks().map(|told| told.ack).max();
    let has_none = |told: &Segment| matches!(told.timestamp(), None | Some((_, Echo::Nothing)));
    pair.texts().any(|text| text.len > 0 && text.timestamp().is_none())
        || pair.acks().any(|told| Some(told.ack) == latest && has_none(told))
}

/// The only segment in flight was retransmitted, as the kernel's probe and as the stack's timeout, which are due
/// together; one more timeout may have retransmitted it since. Or the peer has closed its window over the data, so that the kernel's probe could not be sent and became
/// its timeout; without the probe, the stack's reordering timer continued, and found the first segment lost.
fn probe_instead_of_a_timeout(pair: &Pair<'_>, kernel: &State, stack: &State) -> Option<Then> {
    let last = pair.texts().last()?;
    let is_repeated = pair.has_repeated_below(last.end()) && has_no_echo(pair);
    let figure = |state: &State, name| state.info.as_ref().and_then(|info| info.get(name));
    let loses = |state: &State| figure(state, "ca_state") == Some(4);
    let is_probe = pair.times_sent(last.seq) == 2 && !loses(kernel) && loses(stack);
    let una = pair.acks().map(|told| told.ack).max();
    // Or the window has become smaller than what is in flight, so that it has no room for the last segment.
    let top = pair.texts().map(Segment::end).max()?;
    let is_cut_off = figure(kernel, "retransmits") == Some(1)
        && pair.acks().next_back().is_some_and(|told| told.win > 0 && pair.edge(told) < top);
    let is_shut = figure(kernel, "snd_wnd") == Some(0) && figure(kernel, "retransmits") == Some(0);
    let is_shut = is_shut || is_cut_off;
    let is_first = Some(last.seq) == una && pair.times_sent(last.seq) > 1;
    let is_timeout = loses(kernel) && figure(stack, "ca_state") == Some(3) && is_shut && is_first;
    let count = |state| figure(state, "retransmits");
    let is_counted = pair.times_sent(last.seq) > 2 && count(stack) == count(kernel).map(|count| count + 1);
    let is_later_timeout =
        pair.why.starts_with("retransmits:") && loses(kernel) && loses(stack) && is_counted;
    let is_it = pair.why.starts_with("ca_state:") && (is_probe || is_timeout);
    (is_repeated && (is_it || is_later_timeout)).then_some(Then::Stop)
}

/// Sockeye acknowledges unread data at once while half of its receive buffer is free. The kernel does so unless its window
/// has become smaller by the memory that packets take.
///
/// Or the reverse: Sockeye's buffer is more than half full, and the kernel has learnt that packets take less memory.
pub(super) fn acknowledgment_of_unread_text(pair: &Pair<'_>) -> Option<Then> {
    let last = pair.earlier.iter().rev().find_map(Record::segment)?;
    let hurry = Hurry::of(pair)?;
    // The kernel's ACK may come after other events, or never, if a reset ends the connection before.
    let is_reset = |segment: &Segment| segment.flags.has(Flags::RST);
    let has_reset = pair.scenario.any(|action| matches!(action, Action::Segment(told) if is_reset(told)));
    let ack = match pair.later.iter().find_map(Record::segment) {
        Some(next) if !is_reset(next) => next,
        None if !has_reset => return None,
        _ => hurry.ack,
    };
    // Short segments before a FIN may be the longest that the peer has sent, or TCP_MAXSEG allows no longer ones.
    let has_small =
        pair.scenario.any(|action| matches!(action, Action::Set(SockOpt::MaxSeg, 1..=LEAST_SEGMENT)));
    let is_small = has_small || pair.cause().is_some_and(|cause| cause.flags.has(Flags::FIN));
    // For more than one full segment: a single one has a FIN behind it, was joined, or is longer than the peer was told.
    let is_too_long = |text: &Segment| {
        let is_less = |size: u32| (1..text.len).contains(&size);
        pair.scenario.any(|action| matches!(action, Action::Set(SockOpt::MaxSeg, size) if is_less(*size)))
    };
    let is_longer = pair.cause().is_some_and(|text| {
        let is_one = !text.flags.has(Flags::FIN) && text.gso_size == 0 && !is_too_long(text);
        last.ack < text.seq || !is_one || has_small
    });
    let depends = is_longer && (!hurry.is_kernels || ack.win >= last.win);
    // Not those of what has arrived since.
    let has_come = |end: u32| pair.peer().any(|(_, text)| text.end() >= end);
    let has_holes = ack.sack().iter().any(|(_, end)| *end > ack.ack && has_come(*end));
    // Or two segments of a length follow each other (`tcp_measure_rcv_mss`).
    let texts: Vec<&Segment> = pair.peer().map(|(_, text)| text).filter(|text| text.len > 0).collect();
    let twice = texts.windows(2).filter(|two| two[0].len == two[1].len && !two[1].flags.has(Flags::PSH));
    let lens = texts.iter().filter(|_| is_small).map(|text| text.len).chain(twice.map(|two| two[1].len));
    let least = if has_small { Some(MSS_MIN) } else { lens.filter(|len| *len >= MSS_MIN).min() };
    let least = least.map_or(LEAST_SEGMENT, |len| len.min(LEAST_SEGMENT));
    let is_it = depends && ack.ack - last.ack.min(ack.ack) > least && !has_holes;
    is_it.then_some(Then::Stop)
}

/// In the kernel, the ACK that setting TCP_QUICKACK sends has the time of the call or segment before it, because the
/// kernel does not read its clock again.
pub(super) fn time_of_a_quick_acknowledgment(pair: &Pair<'_>) -> Option<Then> {
    let (kernel, stack) = pair.segments()?;
    let is_quick = matches!(pair.event, Some(Action::Set(SockOpt::Quickack, 1..)));
    let is_earlier = kernel.timestamp()?.0 < stack.timestamp()?.0;
    let is_it = is_quick && kernel.is_bare_ack() && pair.why.starts_with("option: ts");
    (is_it && is_earlier).then_some(Then::GoOn)
}

/// If the application has closed a connection and its FIN is acknowledged, the kernel keeps only a record without a
/// socket, which does not answer an ACK of data that was never sent. Sockeye answers it (RFC 9293 section 3.10.7.4,
/// fifth).
pub(super) fn acknowledgment_behind_the_end(pair: &Pair<'_>) -> Option<Then> {
    let (cause, answer) = pair.only_the_stack_answers()?;
    let What::Sent(Packet::Tcp(ack)) = &answer.what else { return None };
    let fins = pair.earlier.iter().filter_map(|record| match &record.what {
        What::Sent(Packet::Tcp(fin)) if fin.flags.has(Flags::FIN) => Some(fin.end()),
        _ => None,
    });
    let end = fins.max()?;
    let is_over = pair.is_closed() && pair.peer().any(|(_, old)| old.flags.has(Flags::ACK) && old.ack == end);
    (is_over && cause.len == 0 && cause.ack > end && ack.seq == end).then_some(Then::SkipStack)
}

/// Without SACK, only a segment without data is a duplicate ACK (RFC 5681 section 2). So Sockeye answers data or a FIN
/// that arrives out of order with such a segment, even if data is sent at the same moment. In the kernel, that data is
/// the answer.
pub(super) fn duplicate_beside_text(pair: &Pair<'_>) -> Option<Then> {
    let (cause, answer) = pair.only_the_stack_answers()?;
    let What::Sent(Packet::Tcp(ack)) = &answer.what else { return None };
    let next = ack.ack;
    let is_out_of_order = cause.end() > cause.seq && cause.seq > next;
    let has_text = pair.earlier.iter().rev().take_while(|record| record.at + SLACK > answer.at).any(
        |record| matches!(&record.what, What::Sent(Packet::Tcp(text)) if text.end() > text.seq && text.ack == next),
    );
    (is_out_of_order && has_text && !pair.has_sack()).then_some(Then::SkipStack)
}

/// The kernel answers data that it drops, for its number or its timestamp, with an ACK that reports the duplicate. In
/// Sockeye, the answer may carry data, if the report makes so little room for it that it fits the peer's window, or that
/// what was held back is a whole segment.
pub(super) fn text_beside_a_report_of_a_duplicate(pair: &Pair<'_>) -> Option<Then> {
    let (kernel, stack) = pair.segments()?;
    let cause = pair.cause()?;
    let duplicate = kernel.sack().first()?;
    let is_dropped = cause.len > 0 && cause.end() <= kernel.ack && duplicate.1 <= kernel.ack;
    let is_it =
        kernel.is_bare_ack() && stack.len > 0 && stack.seq == kernel.seq && stack.sack() == kernel.sack();
    let una = pair.acks().map(|told| told.ack).max()?;
    let room = if kernel.sack().len() > 1 { 8 } else { 12 };
    let fits = |told: &Segment| (stack.end()..stack.end() + room).contains(&pair.edge(told));
    let is_small = pair.acks().any(|told| told.ack == una && fits(told));
    let size = u64::from(stack.len) + 4 + 8 * kernel.sack().len() as u64;
    let is_whole = latest_figure(pair.earlier, "snd_mss") == Some(size);
    (is_dropped && is_it && (is_small || is_whole)).then_some(Then::Stop)
}

/// Data that one side acknowledges at once, and the other when its delay is over or the application reads.
struct Hurry<'a> {
    /// Its place in the scenario.
    index: usize,
    /// When it comes.
    at: Duration,
    ack: &'a Segment,
    is_kernels: bool,
}

impl<'a> Hurry<'a> {
    fn of(pair: &Pair<'a>) -> Option<Self> {
        let index = pair.index()?;
        let event = pair.scenario.events.get(index)?;
        let Action::Segment(text) = &event.action else { return None };
        let at = event.at();
        let bare = |record: Option<&'a Record>| match record.map(|record| (record.at, &record.what)) {
            // The ACK may have an urgent pointer to data that is queued, or echo a mark.
            Some((sent_at, What::Sent(Packet::Tcp(ack))))
                if ack.len == 0 && ack.flags.with(EXTRAS) == Flags::ACK.with(EXTRAS) =>
            {
                Some((sent_at < at + SLACK, ack))
            }
            _ => None,
        };
        let (kernel, stack) = (bare(pair.kernel), bare(pair.stack));
        let is_late = |other: Option<(bool, &Segment)>, ack: u32| {
            other.is_none_or(|(is_early, late)| !is_early && late.ack == ack)
        };
        let (ack, is_kernels) = match (kernel, stack) {
            (Some((true, ack)), other) if is_late(other, ack.ack) => (ack, true),
            (other, Some((true, ack))) if is_late(other, ack.ack) => (ack, false),
            _ => return None,
        };
        // A FIN waits together with the data before it.
        (text.end() > text.seq && ack.ack == text.end()).then_some(Self { index, at, ack, is_kernels })
    }
}

/// What an acknowledgment may say besides.
const EXTRAS: Flags = Flags::URG.with(Flags::ECE);

/// A burst arrives behind a hole, without timestamps. Sockeye then does not know the round trip of incoming data, and
/// answers each segment; the kernel leaves out all but the first three and the last.
pub(super) fn acknowledgments_behind_a_hole(pair: &Pair<'_>) -> Option<Then> {
    let (kernel, stack) = pair.segments()?;
    let cause = pair.cause()?;
    let end = |ack: &Segment| ack.is_bare_ack().then(|| ack.sack().first().map(|block| block.1)).flatten();
    let is_later = end(kernel)? > end(stack)? && kernel.ack == stack.ack && cause.seq > kernel.ack;
    (is_later && cause.burst > 0 && cause.timestamp().is_none()).then_some(Then::SkipStack)
}

/// Each time its window grows, the kernel acknowledges one more segment at once (`tcp_grow_window`). How far it grows
/// depends on the memory of packets; Sockeye does the same until twice the data that has arrived would fill its buffer.
/// If the first data arrives behind a hole, the kernel uses up the immediate ACKs that the first in-order data would
/// get.
pub(super) fn acknowledgment_of_a_growing_window(pair: &Pair<'_>) -> Option<Then> {
    let hurry = Hurry::of(pair)?;
    let is_text = |segment: &&Segment| segment.len > 0 && !segment.flags.has(Flags::SYN);
    let first = pair.peer().map(|(_, segment)| segment).find(is_text)?;
    let mut is_growing = false;
    let (mut most, mut shift, mut next, mut since, mut all) = (None, 0, 0, 0, 0);
    let earlier = pair.earlier.iter().filter_map(|record| match &record.what {
        What::Sent(Packet::Tcp(sent)) if !sent.flags.has(Flags::RST) => Some(sent),
        _ => None,
    });
    for sent in earlier.chain([hurry.ack]) {
        let scale = if sent.flags.has(Flags::SYN) { 0 } else { shift };
        let window = u32::from(sent.win) << scale;
        since += u8::from(sent.ack > next);
        all += usize::from(sent.ack > next);
        // A window that is announced for the first time may be rounded up. A window at the maximum of the field may
        // still grow.
        if sent.win == u16::MAX || most.is_some_and(|most| window >= most + (1 << scale)) {
            (is_growing, since) = (true, 0);
        }
        (most, next) = (most.max(Some(window)), next.max(sent.ack));
        if pair.shift().is_some() {
            shift = sent.shift().unwrap_or(shift);
        }
    }
    // A buffer that the kernel has not announced yet is twice its window.
    let may_grow = |most: u32| FIRST_WINDOW + 2 * hurry.ack.ack < 2 * most;
    let has_grown = most.is_some_and(|most| most > u32::from(u16::MAX) && may_grow(most));
    let is_it = match hurry.is_kernels {
        true => is_growing && since <= QUICK_ACKS,
        false => has_grown || (first.seq > 1 && all <= usize::from(QUICK_ACKS)),
    };
    is_it.then_some(Then::Stop)
}

/// After ECN-capable data has arrived, the kernel takes data that is not ECN-capable for a retransmission, and
/// acknowledges it at once. Sockeye draws no conclusion from this.
pub(super) fn text_without_ect(pair: &Pair<'_>) -> Option<Then> {
    let hurry = Hurry::of(pair)?;
    let events = &pair.scenario.events;
    let ecn = |event: &Event| match &event.action {
        Action::Segment(text) if text.len > 0 => Some(text.ecn),
        _ => None,
    };
    let was_capable = events[..hurry.index].iter().any(|event| ecn(event) > Some(0));
    (hurry.is_kernels && was_capable && ecn(&events[hurry.index]) == Some(0)).then_some(Then::Stop)
}

/// Whether data sent about 40 ms after the peer's data counts as an answer depends on the ticks of each side's clock.
/// Only if there was no answer, the next segment is acknowledged at once, and `TCP_QUICKACK` says so.
pub(super) fn answer_told_by_ticks(pair: &Pair<'_>) -> Option<Then> {
    let is_asked = matches!(pair.event, Some(Action::Get(SockOpt::Quickack)));
    let (index, at) = match pair.index() {
        Some(index) if is_asked => (index, pair.kernel?.at),
        _ => Hurry::of(pair).map(|hurry| (hurry.index, hurry.at))?,
    };
    let events = &pair.scenario.events[..index];
    let is_text = |event: &&Event| matches!(&event.action, Action::Segment(text) if text.len > 0);
    let answer_at = events.iter().rev().find(is_text)?.at() + ANSWER_MAX;
    let is_near = |record: &Record| {
        matches!(&record.what, What::Sent(Packet::Tcp(text)) if text.len > 0)
            && record.at.abs_diff(answer_at) < SLACK
            && record.at < at
    };
    pair.earlier.iter().any(is_near).then_some(Then::Stop)
}

/// If data arrives more than a retransmission timeout after other data, it and what follows are acknowledged at once
/// (`tcp_event_data_recv`). If the two timeouts differ as far as they may, the data was late by one of them only.
pub(super) fn arrivals_a_timeout_apart(pair: &Pair<'_>) -> Option<Then> {
    let hurry = Hurry::of(pair)?;
    let mut before: Option<Duration> = None;
    let is_apart = pair.earlier.iter().any(|record| {
        let What::State(index, State { info: Some(info), .. }) = &record.what else { return false };
        let Some(event) = pair.scenario.events.get(index + 1).filter(|event| event.at() <= hurry.at) else {
            return false;
        };
        let Action::Segment(text) = &event.action else { return false };
        let since = if text.len > 0 { before.replace(event.at()) } else { None };
        since.is_some_and(|since| {
            let apart = event.at() - since;
            apart.abs_diff(info.rto) <= SLACK + info.rto / 64
        })
    });
    is_apart.then_some(Then::Stop)
}

/// If duplicate data begins where an out-of-order segment ends, the kernel joins it with that segment
/// (`tcp_ooo_try_coalesce`) without looking at the segment after it, and reports no duplicate.
pub(super) fn duplicate_at_a_joint(pair: &Pair<'_>) -> Option<Then> {
    let (kernel, stack) = pair.segments()?;
    let Action::Segment(cause) = &pair.scenario.events.get(pair.index()?)?.action else { return None };
    let (start, end) = *stack.sack().first()?;
    let is_inside = |block: &(u32, u32)| block.0 < start && end <= block.1;
    // A part of a joined packet may be the duplicate. If it lies inside the packet, later reports of the kernel differ, too.
    let is_duplicate = cause.seq <= start && end <= cause.end() && stack.sack().get(1).is_some_and(is_inside);
    let is_missing = pair.why.starts_with("option") && *kernel.sack() == stack.sack()[1..];
    if is_duplicate && is_missing && is_behind_a_joint(pair, start, end)? {
        return Some(Then::Stop);
    }
    let is_joint = pair.taken_before(pair.index()?).any(|text| text.len > 0 && text.end() == cause.seq);
    let fin = u32::from(cause.flags.has(Flags::FIN));
    let is_same = |(a, b): (&(u32, u32), &(u32, u32))| a == b || *a == (b.0, b.1 + fin);
    let is_same = kernel.sack().iter().zip(&stack.sack()[1..]).all(is_same);
    let is_it = is_duplicate && is_joint && is_same && kernel.sack().first().is_some_and(is_inside);
    let then = if start == cause.seq { Then::GoOn } else { Then::Stop };
    (is_it && pair.why.starts_with("option")).then_some(then)
}

/// Whether this data is inside data that was joined so, behind the segment that the kernel did not look at. That segment is
/// the last in its queue, so it takes what begins behind it for new.
fn is_behind_a_joint(pair: &Pair<'_>, start: u32, end: u32) -> Option<bool> {
    let texts: Vec<_> = pair.taken_before(pair.index()?).filter(|text| text.len > 0).collect();
    Some(texts.iter().enumerate().any(|(at, joined)| {
        let mut before = texts[..at].iter();
        let is_joint = before.clone().any(|text| text.end() == joined.seq);
        is_joint && end <= joined.end() && before.any(|text| (joined.seq + 1..=start).contains(&text.end()))
    }))
}

/// The ACK of the segment that brought a duplicate reports it (RFC 2883 section 4). If the kernel's fast path takes the
/// next data, the ACK of that data reports the duplicate again.
pub(super) fn duplicate_of_an_earlier_segment(pair: &Pair<'_>) -> Option<Then> {
    let (kernel, stack) = pair.segments()?;
    let (first, rest) = kernel.sack().split_first()?;
    let mut before = pair.peer().rev().map(|(_, text)| text).filter(|text| text.len > 0);
    let is_later = before.next().is_some_and(|text| text.seq >= first.1);
    let is_earlier = before.next().is_some_and(|text| text.seq == first.0 && text.end() > first.1);
    let is_it = is_later && is_earlier && first.1 <= kernel.ack && rest == stack.sack();
    (pair.why == "options" && is_it).then_some(Then::GoOn)
}

/// TCP_QUICKACK sends a waiting ACK if there is nothing to read. For the kernel, an unread FIN is something to read.
pub(super) fn quick_acknowledgment_of_a_fin(pair: &Pair<'_>) -> Option<Then> {
    let What::Sent(Packet::Tcp(ack)) = &pair.stack?.what else { return None };
    let is_quick = matches!(pair.event, Some(Action::Set(SockOpt::Quickack, on)) if *on > 0);
    let has_fin = pair.peer().any(|(_, fin)| fin.flags.has(Flags::FIN) && fin.end() == ack.ack);
    let is_fin = has_fin && ack.is_bare_ack();
    // Until the next event, or the end of the delay.
    let waits = match &pair.kernel?.what {
        What::State(..) => true,
        What::Sent(Packet::Tcp(late)) => late.is_bare_ack() && pair.why.starts_with("time:"),
        _ => false,
    };
    (is_quick && is_fin && waits).then_some(Then::Stop)
}

/// Data that fills a hole is acknowledged at once (RFC 5681 section 4.2). With a FIN, the kernel first drops its
/// out-of-order data, finds no hole that was filled, and delays the ACK.
pub(super) fn fin_that_fills_a_hole(pair: &Pair<'_>) -> Option<Then> {
    let (cause, _) = pair.only_the_stack_answers()?;
    let index = pair.index()?;
    let next = pair.rcv_nxt_before(index);
    let is_ahead = |text: &Segment| text.len > 0 && text.seq > next && text.end() <= cause.end();
    let fills = cause.len > 0 && cause.seq <= next && pair.taken_before(index).any(is_ahead);
    (cause.flags.has(Flags::FIN) && fills).then_some(Then::Stop)
}

/// A delayed ACK and a timer that sends data are due at about the same time. Which is first depends on the kernel's
/// ticks or on Sockeye's clock; the data also carries the acknowledgment.
pub(super) fn delay_beside_a_timer(pair: &Pair<'_>) -> Option<Then> {
    let (kernel, stack) = pair.segments()?;
    let (kernel_at, stack_at) = (pair.kernel?.at, pair.stack?.at);
    let is_bare = |ack: &Segment| ack.len == 0 && ack.flags == Flags::ACK;
    let is_text = |text: &Segment| text.len > 0;
    let is_one = is_bare(kernel) && is_text(stack) || is_text(kernel) && is_bare(stack);
    let is_together = kernel_at.abs_diff(stack_at) < SLACK && kernel.ack == stack.ack;
    let (index, asked) = pair.peer().rev().find(|(_, asked)| asked.end() > asked.seq)?;
    let since = pair.scenario.events[index].at();
    let is_late = |at: Duration| (since + SLACK..since + SLACK + ACKNOWLEDGMENT_MAX).contains(&at);
    (is_one && is_together && asked.end() == kernel.ack && is_late(kernel_at) && is_late(stack_at))
        .then_some(Then::Stop)
}

/// The window with which the kernel begins, of a large buffer.
const FIRST_WINDOW: u32 = 65_536;
/// Largest number of immediate ACKs in a row (`TCP_MAX_QUICKACKS` and one).
const QUICK_ACKS: u8 = 17;
/// A shorter segment does not change what the kernel takes for the peer's segment size (`TCP_MIN_MSS`).
const MSS_MIN: u32 = 88;
/// More data than this is acknowledged at once, if the window allows it (`TCP_MIN_MSS`, and less than any segment size
/// of the peer).
const LEAST_SEGMENT: u32 = 500;
/// The longest delay of an ACK.
const ACKNOWLEDGMENT_MAX: Duration = Duration::from_millis(44);

/// The kernel answers unacceptable segments without data once in 500 ms (`tcp_invalid_ratelimit`). Sockeye's interval
/// is up to 31 ms longer, by an amount that nobody else can predict.
///
/// In SYN-RECEIVED, Sockeye sends up to sixteen for each handshake, without an interval.
pub(super) fn limit_of_challenges(pair: &Pair<'_>) -> Option<Then> {
    if let Some((kernel, stack)) = pair.segments().filter(|_| pair.why == "options") {
        // A challenge reports no duplicate.
        let cause = pair.cause()?;
        let top = pair.texts().map(Segment::end).max().unwrap_or(1);
        let is_it = kernel.sack().first() == Some(&(cause.seq, cause.end()));
        let is_bare = kernel.is_bare_ack() && stack.is_bare_ack() && cause.end() <= kernel.ack;
        return (is_it && is_bare && cause.ack > top && kernel.sack()[1..] == *stack.sack())
            .then_some(Then::GoOn);
    }
    if let Some((cause, answer)) = pair.only_the_stack_answers() {
        let What::Sent(Packet::Tcp(ack)) = &answer.what else { return None };
        let sent = || pair.earlier.iter().filter_map(|record| Some((record.at, record.segment()?)));
        // There is no connection to accept, or only one that is over.
        let is_waiting = |state: &State| match &state.info {
            Some(info) => info.state == "CLOSED",
            None => !state.ready.readable,
        };
        let is_syn_ack = |record: &Record| record.segment().is_some_and(Segment::is_syn_ack);
        let begin = pair.earlier.iter().rposition(is_syn_ack);
        let is_half_open = begin.is_some_and(|begin| {
            pair.earlier[begin..].iter().all(|record| match &record.what {
                What::State(_, state) => is_waiting(state),
                _ => true,
            })
        });
        let is_limited =
            sent().any(|(at, sent)| sent.is_bare_ack() && at + CHALLENGE_INTERVAL + SLACK > answer.at);
        // It lies before the window, or has an old timestamp, or is a SYN.
        let is_zero =
            |option: &Opt| matches!(option, Opt::Bytes(bytes) if bytes.starts_with(&[8, 10, 0, 0, 0, 0]));
        let is_zero = cause.options.iter().any(is_zero);
        let value = cause.timestamp().map_or(if is_zero { 0 } else { u32::MAX }, |(value, _)| value);
        let is_old = pair.peer().any(|(_, told)| told.timestamp().is_some_and(|(latest, _)| latest > value));
        let is_before = cause.end() < ack.ack || cause.flags.has(Flags::SYN);
        let is_unacceptable = cause.len == 0 && (is_before || is_old);
        return (is_half_open && is_limited && is_unacceptable).then_some(Then::SkipStack);
    }
    let (cause, answer) = pair.only_the_kernel_answers()?;
    let interval = answer.at.saturating_sub(CHALLENGE_INTERVAL_MAX)
        ..=answer.at.saturating_sub(CHALLENGE_INTERVAL - SLACK);
    let is_limited = pair.earlier.iter().any(|record| {
        interval.contains(&record.at)
            && matches!(&record.what, What::Sent(Packet::Tcp(ack)) if ack.flags == Flags::ACK && ack.len == 0)
    });
    let is_limitable = cause.len == 0 || cause.flags.has(Flags::SYN);
    // Old data with an acknowledgment of data that was never sent, which in Sockeye counts as any unacceptable segment.
    let top = pair.texts().map(Segment::end).max().unwrap_or(1);
    let is_implausible = cause.end() <= pair.rcv_nxt_before(pair.index()?) && cause.ack > top;
    let since = answer.at.saturating_sub(CHALLENGE_INTERVAL_MAX);
    let is_soon = || {
        let mut sent = pair.earlier.iter().rev().take_while(|record| record.at >= since);
        sent.any(|record| record.segment().is_some_and(Segment::is_bare_ack))
    };
    ((is_limited && is_limitable) || (is_implausible && is_soon())).then_some(Then::SkipKernel)
}

/// The kernel answers window probes once in 500 ms, as any unacceptable segment without data. Sockeye has a separate
/// limit for them, shorter than any probe timer. A probe that only the kernel answers may have arrived too soon after
/// another.
pub(super) fn answer_to_a_probe(pair: &Pair<'_>) -> Option<Then> {
    // Timers depend on it.
    let is_text = || pair.segments().is_some_and(|(kernel, stack)| kernel.len > 0 && stack.len > 0);
    if pair.why.starts_with("rto:") || (pair.why.starts_with("time:") && is_text()) || is_timer(pair) {
        return echoes_an_answer_to_a_probe(pair).then_some(Then::Stop);
    }
    if let Some((cause, answer)) = pair.only_the_kernel_answers() {
        let is_probe = |(index, probe): (usize, &Segment)| {
            probe.end() == probe.seq && probe.seq + 1 == pair.rcv_nxt_before(index)
        };
        let index = pair.index()?;
        let before = pair.peer().rev().skip_while(|(at, _)| *at >= index);
        let (last, _) = before.clone().find(|probe| is_probe(*probe))?;
        let last_at = pair.scenario.events[last].at();
        // Sockeye's answer to the earlier probe, which the kernel did not send, was the last segment for a while.
        let is_state_of =
            |at| move |record: &Record| matches!(record.what, What::State(index, _) if index == at);
        let from = pair.earlier.iter().position(is_state_of(last - 1));
        let to = pair.earlier.iter().position(is_state_of(last));
        let mut told = pair.earlier.get(from?..to?)?.iter().filter_map(Record::segment);
        let is_limited = last_at + CHALLENGE_INTERVAL_MAX > answer.at && !told.any(Segment::is_bare_ack);
        return match () {
            () if is_probe((index, cause)) && last_at + PROBE_INTERVAL > answer.at => Some(Then::SkipKernel),
            // The peer echoes its timestamp.
            () => (cause.len == 0 && is_limited).then_some(Then::Stop),
        };
    }
    let (cause, answer) = pair.only_the_stack_answers()?;
    let since = answer.at.saturating_sub(CHALLENGE_INTERVAL + SLACK);
    let mut sent = pair.earlier.iter().rev().filter_map(|record| Some((record.at, record.segment()?)));
    let is_probe = cause.len == 0 && sent.clone().next()?.1.ack == cause.seq + 1;
    let is_limited = sent.any(|(at, ack)| at >= since && ack.is_bare_ack());
    (is_probe && is_limited).then_some(Then::SkipStack)
}

/// Whether the peer has echoed an answer that the kernel did not send, in the acknowledgment of a retransmission: it
/// measures the time since that answer.
fn echoes_an_answer_to_a_probe(pair: &Pair<'_>) -> bool {
    // Only segments that are not too old. A reset out of order acknowledges nothing.
    let fits = |at, told: &Segment| told.end() >= pair.rcv_nxt_before(at) && !told.flags.has(Flags::RST);
    let told = pair.peer().filter(|(at, told)| fits(*at, told));
    let mut una = 1;
    let mut news = told.filter(|(_, told)| {
        let is_news = told.ack > una && pair.acks().any(|ack| ack.ack == told.ack);
        una = una.max(if is_news { told.ack } else { 0 });
        is_news
    });
    let events = &pair.scenario.events;
    news.any(|(last, cause)| {
        let at = events[last].at();
        // The kernel's last segment before it was sent before a probe.
        let mut sent = pair.earlier.iter().rev().filter(|record| record.at < at);
        let sent_at = sent.find(|record| matches!(record.what, What::Sent(_))).map(|record| record.at);
        let is_probe = |(index, probe): (usize, &Segment)| {
            probe.len == 0
                && probe.seq + 1 == pair.rcv_nxt_before(index)
                && Some(events[index].at()) > sent_at.map(|at| at + SLACK)
        };
        let has_echo = matches!(cause.timestamp(), Some((_, Echo::Last)));
        has_echo && pair.peer().filter(|(index, _)| *index < last).any(is_probe)
    })
}

/// Least time between two of Sockeye's answers to probes, plus 3 ms by which a run on the kernel may be late.
const PROBE_INTERVAL: Duration = Duration::from_millis(100 + 3);
