//! Differences in what is sent into small windows.
//!
//! Tests: as those of `known.rs`.

use super::{Pair, Then};
use crate::codec::Packet;
use crate::scenario::{Action, SockOpt};
use crate::segment::{Flags, Opt, Segment};
use crate::trace::{Info, Record, State, What, latest_figure};

/// If the edge of the peer's window is less than a unit of the window field before the end of sent data, it may only
/// have been rounded down, and Sockeye holds nothing back for it (RFC 7323 section 2.4). The kernel respects the edge;
/// for ACKs and resets it makes the same exception, with the unit of its own field.
pub(super) fn edge_of_a_rounded_window(pair: &Pair<'_>) -> Option<Then> {
    let shift = pair.shift()?;
    let una = pair.acks().map(|segment| segment.ack).max()?;
    // A smaller window may have been ignored.
    let mut edges = pair.acks().filter(|segment| segment.ack == una).map(|segment| pair.edge(segment));
    let is_beyond = |number: u32, edge: u32| number > edge && number - edge < 1 << shift;
    if let What::Sent(Packet::Tcp(again)) = &pair.stack?.what {
        // A tail loss probe of data or a FIN that lies completely beyond the edge.
        let is_again = again.end() > again.seq && pair.times_sent(again.seq) == 1;
        let is_probe = is_again && !pair.kernel_sends(again.seq);
        if is_probe && edges.clone().any(|edge| again.seq >= edge && is_beyond(again.end(), edge)) {
            return Some(Then::Stop);
        }
    }
    let (kernel, stack) = pair.segments()?;
    let is_reset = kernel.flags.has(Flags::RST.with(Flags::ACK));
    let is_bare = kernel.len == 0 && stack.len == 0 && (kernel.is_bare_ack() || is_reset);
    // A segment before the end may have an urgent pointer.
    let is_pointer = pair.why.starts_with("flags:") || pair.why.starts_with("urgent pointer:");
    let is_earlier = is_pointer && kernel.flags == stack.flags.with(Flags::URG);
    if (pair.why.starts_with("sequence number:") || is_earlier) && is_bare {
        // An acknowledgment beyond that may have been dropped for its timestamp.
        let mut edges = pair.acks().map(|segment| pair.edge(segment));
        return edges.any(|edge| kernel.seq == edge && is_beyond(stack.seq, edge)).then_some(Then::GoOn);
    }
    let is_cut = |edge| kernel.end() <= edge && is_beyond(stack.end(), edge);
    (kernel.seq == stack.seq && kernel.len > 0 && edges.any(is_cut)).then_some(Then::Stop)
}

/// If the peer's SYN has no MSS option, Sockeye sends segments of 536 bytes, or 1,220 over IPv6 (RFC 9293 section
/// 3.7.1, MUST-15). The kernel sends segments of its own size if the SYN was sent with Fast Open and nothing is known
/// about the peer.
pub(super) fn size_that_nobody_has_told(pair: &Pair<'_>) -> Option<Then> {
    let is_told = |segment: &Segment| segment.options.iter().any(|option| matches!(option, Opt::Mss(_)));
    let is_fast =
        |action: &Action| matches!(action, Action::ConnectWith(_) | Action::Set(SockOpt::FastOpenConnect, 1));
    // TCP_MAXSEG counts as what the peer has told.
    let is_set = |action: &Action| matches!(action, Action::Set(SockOpt::MaxSeg, _));
    let is_set = pair.scenario.any(is_set) && pair.scenario.any(|action| *action == Action::Connect);
    let is_untold = pair.peer().any(|(_, segment)| segment.flags.has(Flags::SYN) && !is_told(segment));
    let is_longer =
        pair.segments().is_some_and(|(kernel, stack)| kernel.seq == stack.seq && kernel.len > stack.len);
    let is_size = pair.why.starts_with("snd_mss:") || is_longer;
    (is_size && (pair.scenario.any(is_fast) || is_set) && is_untold).then_some(Then::Stop)
}

/// Each SYN-ACK has another flow label. A connection that the peer has begun with Fast Open keeps the label of the
/// latest SYN-ACK in Sockeye. The kernel returns to that of the first, until data times out.
pub(super) fn label_behind_fast_open(pair: &Pair<'_>) -> Option<Then> {
    let syn_ack = Flags::SYN.with(Flags::ACK);
    let syn_acks = pair.earlier.iter().filter(
        |record| matches!(&record.what, What::Sent(Packet::Tcp(segment)) if segment.flags.has(syn_ack)),
    );
    let has_option = |option: &Opt| matches!(option, Opt::FastOpen(_) | Opt::FastOpenExperiment(_));
    let accepts = |syn: &Segment| syn.len > 0 && pair.scenario.settings.contains_key("fastopen");
    let mut syns = pair.peer().map(|(_, syn)| syn).filter(|syn| syn.flags.has(Flags::SYN));
    let is_fast = syns.any(|syn| accepts(syn) || syn.options.iter().any(has_option));
    (pair.why.starts_with("new flow label:") && is_fast && syn_acks.count() > 1).then_some(Then::GoOn)
}

/// Whether so many small packets wait that their memory fills the kernel's send buffer: two thirds of it, from where on it is
/// not writable (`sk_stream_is_writeable`).
fn fills_the_buffer(pair: &Pair<'_>) -> bool {
    let Some((kernel, stack)) = pair.states() else { return false };
    let is_full = kernel.info.as_ref().is_some_and(|info| {
        let (queued, size) = (info.get("notsent_bytes"), info.get("snd_mss"));
        let packets = queued.unwrap_or(0) / size.unwrap_or(1).max(1);
        3 * packets * PACKET_MEMORY > 2 * BUFFER && size <= Some(LEAST_SEGMENT.into())
    });
    let is_writable = stack.ready.writable && !kernel.ready.writable;
    is_full && is_writable && pair.why.starts_with("readiness:")
}

/// The kernel sends the rest of a packet that was cut for a small window or for SACK blocks as soon as it fits. In
/// Sockeye it is data like any other, and waits for room worth a segment (RFC 9293 section 3.8.6.2.1).
pub(super) fn rest_of_a_cut_packet(pair: &Pair<'_>) -> Option<Then> {
    if let (What::Returned(index, Ok(kernel)), What::Returned(_, Ok(stack))) =
        (&pair.kernel?.what, &pair.stack?.what)
    {
        // The write took this many whole packets.
        let is_write = pair.scenario.events.get(*index).is_some_and(|event| event.action.written().is_some());
        let full = u32::try_from(latest_figure(pair.earlier, "snd_mss")?).ok()?.max(1);
        let is_cut = |blocks: u32| {
            let cut = full - (4 + 8 * blocks).min(full - 1);
            kernel / cut == stack / full && kernel.is_multiple_of(cut)
        };
        let is_whole = kernel < stack && stack.is_multiple_of(full);
        let is_whole = is_whole && (1..=4).any(is_cut);
        // Or the last packet before the limit is another, because packets that wait have room for other blocks.
        let is_limited =
            pair.scenario.any(|action| matches!(action, Action::Set(SockOpt::NotsentLowat, 1..)));
        let waits = latest_figure(pair.earlier, "notsent_bytes") > Some(0);
        let sent = pair.earlier.iter().rev().find_map(Record::segment);
        // All data of a write was cut as the first, which had blocks.
        let is_so_cut = |sent: &Segment| (1..=4).any(|blocks| sent.len + 4 + 8 * blocks == full);
        let is_beside_blocks = sent.is_some_and(|sent| !sent.sack().is_empty() || is_so_cut(sent));
        let is_near = is_limited && waits && is_beside_blocks && kernel.abs_diff(*stack) < full;
        // Or a packet that was cut for a small window was filled up, so that all that waits are whole packets.
        let queued = latest_figure(pair.earlier, "notsent_bytes").unwrap_or(0) + u64::from(*kernel);
        let is_cut = |text: &Segment| {
            text.len > 0 && text.len < full && pair.peer().any(|(_, told)| pair.edge(told) == text.end())
        };
        let is_filled = pair.texts().last().is_some_and(is_cut) && queued.is_multiple_of(full.into());
        let is_filled = is_filled && is_limited && waits && kernel.abs_diff(*stack) < full;
        return (is_write && (is_whole || is_near || is_filled)).then_some(Then::Stop);
    }
    let What::Sent(Packet::Tcp(rest)) = &pair.kernel?.what else { return None };
    let mss = latest_figure(pair.earlier, "snd_mss")?;
    let largest = pair.texts().map(|text| text.len).max()?.max(mss as u32);
    let is_new = pair.texts().all(|text| text.end() <= rest.seq);
    let is_longer = match &pair.stack?.what {
        What::Sent(Packet::Tcp(text)) if text.seq == rest.seq && text.len > 0 => text.len > rest.len,
        _ => true,
    };
    if is_new && is_longer && is_filled_up(pair, rest, mss) {
        return Some(Then::Stop);
    }
    let cut = pair.texts().filter(|text| text.end() == rest.seq && text.len < largest).last()?;
    // Together they are one packet.
    let is_rest =
        u64::from(cut.len + rest.len) == mss && pair.peer().any(|(_, old)| pair.edge(old) == cut.end());
    // This much of the packets is left over because of SACK blocks. The kernel fills up the rest of one only from the
    // next packet.
    let left: u64 = pair
        .texts()
        .filter(|text| !text.sack().is_empty())
        .map(|text| mss.saturating_sub(text.len.into()))
        .sum();
    let fits = pair.peer().last().is_some_and(|(_, last)| rest.end() <= pair.edge(last));
    let is_left = u64::from(rest.len) <= left || ends_a_packet(pair, rest.end(), mss);
    let is_cut_for_blocks = is_new && fits && !cut.sack().is_empty() && is_left;
    let is_cut = is_rest || is_cut_for_blocks || (is_new && cut.flags.has(Flags::PSH));
    (is_cut && rest.len > 0 && rest.len < largest && is_longer).then_some(Then::Stop)
}

/// While nothing is in flight, each packet that a write begins ends a pause, and shrinks the window. The kernel's
/// packets begin where data was cut when it was written, or cut for a small window. Sockeye cuts data when it is sent,
/// and counts a packet for each full segment of queued data.
pub(super) fn packet_behind_a_pause(pair: &Pair<'_>) -> Option<Then> {
    let (kernel, stack) = pair.states()?;
    let (kernel, stack) = (kernel.info.as_ref()?, stack.info.as_ref()?);
    let len = pair.scenario.events.get(pair.index()?)?.action.written()?;
    // Data is queued before it, and nothing is in flight.
    let waits = kernel.get("notsent_bytes")? > u64::from(len);
    let top = pair.texts().map(Segment::end).max()?;
    let is_idle = kernel.get("bytes_acked")? + 1 >= u64::from(top);
    let sent_at = pair.earlier.iter().rev().find_map(|record| match &record.what {
        What::Sent(Packet::Tcp(text)) if text.len > 0 => Some(record.at),
        _ => None,
    })?;
    let is_pause = pair.kernel?.at - sent_at > kernel.rto.min(stack.rto);
    let least = kernel.get("snd_cwnd")?.min(stack.get("snd_cwnd")?);
    let is_shrunk = pair.why.starts_with("snd_cwnd:") && least >= INITIAL_WINDOW;
    // A smaller window stays, and only the threshold becomes three quarters of it (`tcp_current_ssthresh`).
    let of_window = |info: &Info| info.get("snd_cwnd").map(|cwnd| cwnd * 3 / 4) == info.get("snd_ssthresh");
    let is_kept = pair.why.starts_with("snd_ssthresh:") && (of_window(kernel) || of_window(stack));
    (waits && is_idle && is_pause && (is_shrunk || is_kept)).then_some(Then::Stop)
}

/// A window that was not used for a timeout is reduced half way to what was used of it, or to the initial window. The kernel
/// does not reduce it while a poll has found the socket not writable (`tcp_cwnd_application_limited`).
pub(super) fn unused_window_of_a_full_socket(pair: &Pair<'_>) -> Option<Then> {
    let (kernel, stack) = pair.states()?;
    let cwnd = |state: &State| state.info.as_ref()?.get("snd_cwnd");
    let (theirs, ours) = (cwnd(kernel)?, cwnd(stack)?);
    let mut records = pair.earlier.iter().rev();
    let is_sent = |record: &Record| record.segment().is_some_and(|text| text.len > 0);
    let has_sent = records.next().is_some_and(is_sent);
    let is_full = records.find_map(|record| match &record.what {
        What::State(_, state) => Some(!state.ready.writable),
        _ => None,
    })?;
    let una = pair.acks().map(|told| told.ack).max().unwrap_or(1);
    let out = pair.texts().filter(|text| text.end() > una).count() as u64;
    let is_reduced = ours == u64::midpoint(theirs, out.max(INITIAL_WINDOW));
    let is_it = pair.why.starts_with("snd_cwnd:") && ours < theirs && is_reduced;
    (is_it && has_sent && is_full).then_some(Then::Stop)
}

/// PSH is at the end of a packet. The kernel fills up the first packet that waits for a window although it is not sent, and
/// then cuts it for more SACK blocks; and it joins packets that a block reports together, also if the peer then discards
/// them. In Sockeye, PSH stays with the byte for which it was set until that byte is sent.
pub(super) fn push_of_a_cut_packet(pair: &Pair<'_>) -> Option<Then> {
    let (kernel, stack) = pair.segments()?;
    let is_same = (kernel.seq, kernel.len) == (stack.seq, stack.len) && kernel.len > 0;
    let is_push = stack.flags == kernel.flags.with(Flags::PSH) && stack.flags != kernel.flags;
    let is_pushed = kernel.flags == stack.flags.with(Flags::PSH) && stack.flags != kernel.flags;
    if !(pair.why.starts_with("flags:") && is_same && (is_push || is_pushed)) {
        return None;
    }
    // The packet was longer by the room of the further blocks when it was filled up.
    let is_cut = |text: &Segment| {
        let more = kernel.sack().len().saturating_sub(text.sack().len());
        more > 0 && text.len == kernel.len + 8 * u32::try_from(more).unwrap_or(0)
    };
    let is_cut = is_push && pair.times_sent(kernel.seq) == 0 && pair.texts().any(is_cut);
    (is_cut || was_thrown_away(pair, kernel.seq)).then_some(Then::GoOn)
}

/// The peer has discarded what it had reported. The kernel retransmits it as it was sent, or as its blocks have joined it. Sockeye has joined what a block
/// reported, and sends full segments of it.
pub(super) fn segments_that_were_thrown_away(pair: &Pair<'_>) -> Option<Then> {
    if let Some((kernel, stack)) = pair.states() {
        return counts_what_was_thrown_away(pair, kernel, stack).then_some(Then::Stop);
    }
    let (kernel, stack) = pair.segments()?;
    let is_same = kernel.seq == stack.seq && kernel.len > 0 && stack.len > 0;
    let is_it = pair.why.starts_with("length:") && is_same && was_thrown_away(pair, kernel.seq);
    is_it.then_some(Then::Stop)
}

/// Whether the peer acknowledges a part of what it had discarded, and of which the beginning was retransmitted beside
/// SACK blocks: the kernel counts the segments of the rest by the shorter length.
fn counts_what_was_thrown_away(pair: &Pair<'_>, kernel: &State, stack: &State) -> bool {
    let figure = |state: &State, name| state.info.as_ref().and_then(|info| info.get(name));
    let cwnd = |state| figure(state, "snd_cwnd");
    let is_less = cwnd(kernel).map(|cwnd| cwnd + 1) == cwnd(stack) && pair.why.starts_with("snd_cwnd:");
    let is_repaired = [kernel, stack].iter().all(|state| figure(state, "ca_state") == Some(4));
    let mut acks = pair.acks().map(|told| told.ack).rev();
    let (Some(una), Some(before)) = (acks.next(), acks.next()) else { return false };
    let is_told = |told: &Segment, seq: u32| {
        told.sack().iter().any(|(start, end)| (*start..*end).contains(&seq) && told.ack <= *start)
    };
    let was_joined = pair.acks().any(|told| is_told(told, before) && is_told(told, una));
    let again = pair.texts().filter(|text| text.seq == before && pair.times_sent(before) > 1).last();
    is_less && is_repaired && was_joined && again.is_some_and(|again| !again.sack().is_empty())
}

/// Whether the kernel retransmits the data at this number, which the peer has reported with what follows, and discarded.
fn was_thrown_away(pair: &Pair<'_>, seq: u32) -> bool {
    let holds = |told: &Segment| {
        told.sack().iter().any(|(start, end)| (*start..*end).contains(&seq) && told.ack <= *start)
    };
    let una = pair.acks().map(|told| told.ack).max();
    pair.times_sent(seq) > 0 && una <= Some(seq) && pair.acks().any(holds)
}

/// The rest of a retransmission that was cut for a small window counts as two segments in the kernel if it is longer
/// than a segment with SACK blocks. In Sockeye it counts as one.
pub(super) fn count_of_a_cut_packet(pair: &Pair<'_>) -> Option<Then> {
    let (kernel, stack) = pair.states()?;
    let (kernel, stack) = (kernel.info.as_ref()?, stack.info.as_ref()?);
    let mss = kernel.get("snd_mss")?;
    let mut ends: Vec<(u32, u32)> = Vec::new();
    let mut is_cut = false;
    for text in pair.texts() {
        let before = ends.iter().find(|(start, end)| *start == text.seq && *end > text.end());
        let blocks = if text.sack().is_empty() { 0 } else { 4 + 8 * text.sack().len() as u64 };
        // Or than one of the smaller segments that a report has asked for.
        is_cut |= before.is_some_and(|(_, end)| u64::from(end - text.end()) > mss.saturating_sub(blocks));
        ends.push((text.seq, text.end()));
    }
    let is_over = latest_figure(pair.earlier, "ca_state") == Some(4) && kernel.get("ca_state") == Some(0);
    let is_one_more = kernel.get("snd_cwnd") == stack.get("snd_cwnd").map(|cwnd| cwnd + 1);
    (pair.why.starts_with("snd_cwnd:") && is_over && is_cut && is_one_more).then_some(Then::Stop)
}

/// The smallest window after a pause, in segments.
const INITIAL_WINDOW: u64 = 10;

/// Whether a packet ended at this number when it was written. A write fills up the last packet that waits, so an earlier write may have begun it.
fn ends_a_packet(pair: &Pair<'_>, end: u32, mss: u64) -> bool {
    let (mut next, mut begins) = (1, vec![]);
    pair.earlier.iter().any(|record| {
        let What::Returned(index, Ok(len)) = record.what else { return false };
        if pair.scenario.events[index].action.written().is_none() {
            return false;
        }
        begins.push(next);
        let written = next + 1..=next + len;
        next += len;
        let is_aligned = |begin: &u32| u64::from(end - begin).is_multiple_of(mss);
        written.contains(&end) && begins.iter().any(is_aligned)
    })
}

/// Whether packets that were cut for SACK blocks are filled up, each from the next, and this is the one after which too
/// little is left: it ends where a packet was cut.
fn is_filled_up(pair: &Pair<'_>, rest: &Segment, mss: u64) -> bool {
    let ends_a_packet = |text: &Segment| {
        let is_cut = !text.sack().is_empty() && text.len > 0 && u64::from(text.len) < mss;
        is_cut && rest.end() > text.end() && (rest.end() - text.seq).is_multiple_of(text.len)
    };
    let is_end = || pair.texts().any(ends_a_packet) || ends_beside_blocks(pair, rest.end(), mss);
    rest.len > 0 && u64::from(rest.len) < mss && is_end()
}

/// Whether the kernel ended a packet at this sequence number when the application wrote it, because the segments sent at
/// that time had SACK blocks. A write fills up the last queued packet, and then begins others.
fn ends_beside_blocks(pair: &Pair<'_>, end: u32, mss: u64) -> bool {
    let (mut next, mut last, mut top, mut blocks) = (1, 1, 1, 0);
    for record in pair.earlier {
        match &record.what {
            What::Sent(Packet::Tcp(sent)) if !sent.flags.has(Flags::RST) => {
                (top, blocks) = (top.max(sent.end()), sent.sack().len() as u64);
            }
            What::Returned(index, Ok(len)) if pair.scenario.events[*index].action.written().is_some() => {
                let size = mss - (4 + 8 * blocks).min(mss - 1);
                let size = u32::try_from(if blocks > 0 { size } else { mss }).unwrap_or(u32::MAX);
                let begin = if last >= top && last + size > next { last } else { next };
                next += len;
                if blocks > 0 && (begin + 1..=next).contains(&end) && (end - begin).is_multiple_of(size) {
                    return true;
                }
                last = next - (next - begin) % size;
            }
            _ => {}
        }
    }
    false
}

/// The kernel cuts data into packets when it is written, to half of the largest window so far, but not to less than the
/// smallest packet, for which a smaller window has to grow. Sockeye cuts data when it is sent, and half of the largest
/// window is enough.
pub(super) fn packet_of_a_small_window(pair: &Pair<'_>) -> Option<Then> {
    if fills_the_buffer(pair) {
        return Some(Then::Stop);
    }
    if let (What::Returned(index, Ok(kernel)), What::Returned(_, Ok(stack))) =
        (&pair.kernel?.what, &pair.stack?.what)
    {
        // What a tiny window takes during a write makes room for as much.
        let is_write = pair.scenario.events.get(*index).is_some_and(|event| event.action.written().is_some());
        let wnd = latest_figure(pair.earlier, "snd_wnd")?;
        let is_it = (1..LEAST_PACKET).contains(&wnd) && u64::from(*stack) == u64::from(*kernel) + wnd;
        return (is_write && is_it).then_some(Then::Stop);
    }
    if let Some(Record { what: What::Sent(Packet::Tcp(text)), .. }) = pair.stack
        && text.len > 0
        && !pair.kernel_sends(text.seq)
    {
        // The kernel cuts no packet to less than the smallest segment, so a smaller window only gets probes.
        let windows = pair.earlier.iter().filter_map(|record| match &record.what {
            What::State(_, state) => state.info.as_ref()?.get("snd_wnd"),
            _ => None,
        });
        let most = windows.max()?;
        let is_tiny = (1..LEAST_PACKET).contains(&most);
        // A packet of that size does not fit, but half of the window does.
        let edge = pair.acks().map(|told| pair.edge(told)).max()?;
        let is_half = text.end() == edge && (most / 2..most).contains(&text.len.into());
        let is_packet = most <= latest_figure(pair.earlier, "snd_mss")?;
        // Or the kernel's probe is sent later.
        let waits = pair.why == "the kernel waits, the stack sends text" || pair.why.starts_with("time:");
        return ((is_tiny && waits) || (is_half && is_packet)).then_some(Then::Stop);
    }
    let What::Sent(Packet::Tcp(kernel)) = &pair.kernel?.what else { return None };
    // What the stack sends instead, or a segment for which it has no room.
    let full = match &pair.stack?.what {
        What::Sent(Packet::Tcp(stack)) if stack.seq == kernel.seq => stack.len.into(),
        What::State(_, State { info: Some(info), .. }) if pair.times_sent(kernel.seq) == 0 => {
            info.get("snd_mss")?
        }
        _ => return None,
    };
    // A write fills up the last packet that waits, so an earlier write may have begun the packets.
    let (mut begins, mut end) = (vec![], 1);
    let write = pair.scenario.events.iter().skip(pair.begin).position(|event| {
        if let Some(len) = event.action.written() {
            begins.push(end);
            end += len;
        }
        kernel.end() <= end
    })?;
    let write = write + pair.begin;
    let windows = pair.earlier.iter().filter_map(|record| match &record.what {
        What::State(index, state) if *index < write => state.info.as_ref()?.get("snd_wnd"),
        _ => None,
    });
    let largest = windows.max()?;
    // `tcp_bound_to_half_wnd`.
    let size = (if largest > MSS_DEFAULT { largest / 2 } else { largest }).max(1);
    let is_cut = kernel.len > 0 && u64::from(kernel.len) < full;
    let blocks = std::iter::once(0).chain((1..=4).map(|count| 4 + 8 * count));
    let mut sizes = blocks.map(|blocks| size.saturating_sub(blocks).max(1));
    let is_end = sizes.any(|size| {
        begins.iter().any(|begin| u64::from(kernel.end().saturating_sub(*begin)).is_multiple_of(size))
    });
    (is_cut && is_end && full > size).then_some(Then::Stop)
}

/// A window of at most this size is used completely (`TCP_MSS_DEFAULT`).
const MSS_DEFAULT: u64 = 536;

/// A tail loss probe sends new data first. If the queued data begins with a piece of a segment that fits the peer's
/// window, the kernel fills up the piece, finds that it no longer fits, and sends nothing. Sockeye retransmits the last
/// segment.
pub(super) fn probe_at_the_end_of_a_window(pair: &Pair<'_>) -> Option<Then> {
    let What::Sent(Packet::Tcp(probe)) = &pair.stack?.what else { return None };
    let at = pair.stack?.at;
    let is_later = pair.kernel.is_none_or(|kernel| match &kernel.what {
        What::Sent(Packet::Tcp(again)) => kernel.at > at && again.seq < probe.seq,
        _ => true,
    });
    let top = pair.texts().map(Segment::end).max()?;
    let is_probe = probe.len > 0 && probe.end() == top && pair.times_sent_to(top) == 1;
    let last = pair.acks().next_back()?;
    // The window of a segment that was dropped for its timestamp does not count.
    let wnd = latest_figure(pair.earlier, "snd_wnd").and_then(|wnd| u32::try_from(wnd).ok())?;
    let is_at_the_end = [pair.edge(last), last.ack.saturating_add(wnd)]
        .iter()
        .any(|edge| top < *edge && *edge < top + probe.len);
    let waits = latest_figure(pair.earlier, "notsent_bytes") > Some(0);
    (is_later && is_probe && is_at_the_end && waits).then_some(Then::Stop)
}

/// If the peer asks for smaller segments, Sockeye's have 88 bytes including options. The kernel's are as small as the
/// peer asks for, but at least 48 bytes.
pub(super) fn tiny_segments(pair: &Pair<'_>) -> Option<Then> {
    let is_tiny = |option: &Opt| match option {
        Opt::Mss(mss) => (1..LEAST_SEGMENT).contains(mss),
        Opt::Bytes(bytes) => matches!(bytes[..], [2, 4, 0, 1..88]),
        _ => false,
    };
    let has_asked = pair.peer().any(|(_, syn)| syn.flags.has(Flags::SYN) && syn.options.iter().any(is_tiny));
    let (kernel, stack) = pair.states()?;
    let mss = |state: &State| state.info.as_ref()?.get("snd_mss");
    (has_asked && pair.why.starts_with("snd_mss:") && mss(kernel) < mss(stack)).then_some(Then::Stop)
}

/// The kernel's smallest full segment, in bytes.
const LEAST_PACKET: u64 = 48;
/// What a small packet takes of the kernel's memory, bytes (`SKB_TRUESIZE`).
const PACKET_MEMORY: u64 = 1280;

/// The send buffer, bytes (`tcp_wmem`).
const BUFFER: u64 = 4 << 20;

/// Sockeye's smallest full segment, in bytes with options.
const LEAST_SEGMENT: u16 = 88;
