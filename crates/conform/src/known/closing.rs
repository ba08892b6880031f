//! Differences after a FIN, and in TIME-WAIT.
//!
//! Tests: as those of `known.rs`.

use std::time::Duration;

use super::{Pair, Then};
use crate::codec::Packet;
use crate::compare::{CHALLENGE_INTERVAL, CHALLENGE_INTERVAL_MAX, SLACK};
use crate::scenario::{Action, How, Question, SockOpt};
use crate::segment::{Echo, Flags, Segment};
use crate::trace::{Info, Record, What, latest_figure};

/// Data beyond the peer's FIN resets the kernel's connection. Sockeye ignores it (RFC 9293 section 3.10.7.4, seventh).
pub(super) fn text_behind_a_fin(pair: &Pair<'_>) -> Option<Then> {
    let (kernel, stack) = pair.segments()?;
    let Some(Action::Segment(cause)) = pair.event else { return None };
    let ends = || pair.peer().filter(|(_, fin)| fin.flags.has(Flags::FIN)).map(|(_, fin)| fin.end());
    let is_behind = || ends().any(|end| end < cause.end());
    let is_reset = kernel.flags.has(Flags::RST) && !stack.flags.has(Flags::RST);
    // Data that its acknowledgment releases may carry the answer.
    let is_it =
        cause.len > 0 && is_reset && ends().any(|end| end <= cause.end()) && (stack.len == 0 || is_behind());
    // The kernel sends this data before the reset. In Sockeye, the report of a duplicate may take room from it.
    let mut at_once = pair.later.iter().take_while(|record| !matches!(record.what, What::State(..)));
    let resets = at_once.any(|record| record.segment().is_some_and(|reset| reset.flags.has(Flags::RST)));
    let is_same = kernel.seq == stack.seq && kernel.len >= stack.len && kernel.sack().is_empty();
    let is_report = is_same && stack.len > 0 && !stack.sack().is_empty() && resets;
    let is_report = is_report && cause.len > 0 && is_behind();
    (is_it || is_report).then_some(Then::Stop)
}

/// The kernel counts a waiting FIN as an unsent or unacknowledged byte, and does not count a retransmitted FIN as a
/// byte. Sockeye does the opposite.
pub(super) fn fin_in_byte_counts(pair: &Pair<'_>) -> Option<Then> {
    if let (What::Returned(_, Ok(kernel)), What::Returned(_, Ok(stack))) =
        (&pair.kernel?.what, &pair.stack?.what)
    {
        let is_it = match pair.event? {
            Action::Ask(Question::Unacknowledged) => pair.is_shut(),
            Action::ReadInq(_) => pair.peer().any(|(_, fin)| fin.flags.has(Flags::FIN)),
            _ => false,
        };
        return (is_it && *kernel == stack + 1).then_some(Then::GoOn);
    }
    let (kernel, stack) = pair.states()?;
    let (kernel, stack) = (kernel.info.as_ref()?, stack.info.as_ref()?);
    let closing = ["FIN-WAIT-1", "FIN-WAIT-2", "CLOSING", "LAST-ACK"].contains(&kernel.state);
    let more = |name, a: &Info, b: &Info| Some(a.get(name)?.saturating_sub(b.get(name)?));
    let waits = pair.why.starts_with("notsent_bytes:") && more("notsent_bytes", kernel, stack) == Some(1);
    let fins = pair.texts().filter(|text| text.flags.has(Flags::FIN)).count().saturating_sub(1) as u64;
    let is_each_fin = |count: u64| (1..=fins).contains(&count);
    let again = pair.why.starts_with("bytes_retrans:")
        && more("bytes_retrans", stack, kernel).is_some_and(is_each_fin);
    (closing && (waits || again)).then_some(Then::GoOn)
}

/// After a connection has ended, nothing in Sockeye waits for an acknowledgment. The kernel's socket still counts what
/// was unacknowledged at the end.
pub(super) fn unacknowledged_behind_the_end(pair: &Pair<'_>) -> Option<Then> {
    let (What::Returned(_, Ok(kernel)), What::Returned(_, Ok(0))) = (&pair.kernel?.what, &pair.stack?.what)
    else {
        return None;
    };
    let is_asked = pair.event == Some(&Action::Ask(Question::Unacknowledged));
    (is_asked && *kernel > 0 && latest_state(pair) == Some("CLOSED")).then_some(Then::GoOn)
}

/// If the application shuts a socket down while it connects, Sockeye's connect ends for both directions. The kernel's
/// socket could connect again, so it is writable, and not at the end of what can be read.
pub(super) fn connect_that_was_given_up(pair: &Pair<'_>) -> Option<Then> {
    let (kernel, stack) = pair.states()?;
    let is_closed =
        [kernel, stack].iter().all(|state| state.info.as_ref().is_some_and(|info| info.state == "CLOSED"));
    let is_it = is_closed && latest_state(pair) == Some("SYN-SENT") && pair.why.starts_with("readiness:");
    let shut = pair.scenario.events.get(pair.index()?)?;
    (is_it && matches!(shut.action, Action::Shutdown(_)) && kernel.ready.error == stack.ready.error)
        .then_some(Then::Stop)
}

/// The kernel's socket is CLOSED while a record without a socket waits in TIME-WAIT. Sockeye's socket reports
/// TIME-WAIT, the name of the state in RFC 9293.
pub(super) fn time_wait_in_tcp_info(pair: &Pair<'_>) -> Option<Then> {
    let (kernel, stack) = pair.states()?;
    let is_it = kernel.info.as_ref()?.state == "CLOSED" && stack.info.as_ref()?.state == "TIME-WAIT";
    (is_it && kernel.ready == stack.ready).then_some(Then::GoOn)
}

/// In TIME-WAIT the kernel echoes the timestamp of the FIN that led there, or of an ACK of data that was never sent.
/// Sockeye echoes that of the latest acceptable segment (RFC 7323 section 4.3).
pub(super) fn timestamp_in_time_wait(pair: &Pair<'_>) -> Option<Then> {
    let (kernel, stack) = pair.segments()?;
    let echo = |segment: &Segment| segment.timestamp().map(|(_, echo)| echo);
    let is_it = pair.why.starts_with("option:") && kernel.flags == Flags::ACK && echo(kernel) != echo(stack);
    // The FIN has arrived again.
    let is_fin = pair.peer().any(|(_, fin)| {
        let value = fin.timestamp().map(|(value, _)| Echo::Is(value));
        fin.flags.has(Flags::FIN) && kernel.ack == fin.end() && value == echo(stack)
    });
    let top = pair.texts().filter(|text| text.flags.has(Flags::FIN)).map(Segment::end).max()?;
    let is_unsent = pair.peer().any(|(_, old)| {
        let value = old.timestamp().map(|(value, _)| Echo::Is(value));
        old.flags == Flags::ACK && old.seq == kernel.ack && old.ack > top && value == echo(kernel)
    });
    (is_it && (is_fin || is_unsent)).then_some(Then::GoOn)
}

/// Data beyond a FIN is ignored, but Sockeye echoes a congestion mark on it, since the mark is about the path (RFC 3168
/// section 6.1.3). The kernel ignores the mark.
pub(super) fn mark_on_text_behind_a_fin(pair: &Pair<'_>) -> Option<Then> {
    let (kernel, stack) = pair.segments()?;
    let is_marked = |(index, text): (usize, &Segment)| {
        let mut before = pair.peer().take_while(|(at, _)| *at < index);
        let is_behind = before.any(|(_, fin)| fin.flags.has(Flags::FIN) && fin.end() <= text.seq);
        text.len > 0 && text.ecn == 3 && is_behind
    };
    let is_echo = stack.flags == kernel.flags.with(Flags::ECE) && stack.flags != kernel.flags;
    (pair.why.starts_with("flags:") && is_echo && pair.peer().any(is_marked)).then_some(Then::Stop)
}

/// If a FIN arrives before data with the same sequence number, Sockeye's stream ends at the FIN (RFC 9293 section
/// 3.10.7.4, eighth). The kernel drops the FIN in favour of the data.
pub(super) fn fin_before_its_text(pair: &Pair<'_>) -> Option<Then> {
    if let Some((kernel, stack)) = pair.states() {
        // The data has only this one byte.
        let next = pair.earlier.iter().rev().find_map(Record::segment)?.ack;
        let is_fin = |fin: &Segment| fin.flags.has(Flags::FIN) && fin.end() == next;
        let is_text = |text: &Segment| text.len > 0 && !text.flags.has(Flags::FIN) && text.end() == next;
        let is_it = !kernel.ready.read_closed && stack.ready.read_closed;
        let has = |is: &dyn Fn(&Segment) -> bool| pair.peer().any(|(_, segment)| is(segment));
        return (is_it && has(&is_fin) && has(&is_text)).then_some(Then::Stop);
    }
    let (kernel, stack) = pair.segments()?;
    let is_fin = |(_, fin): (usize, &Segment)| fin.flags.has(Flags::FIN) && fin.end() == stack.ack;
    let is_text = |(_, text): (usize, &Segment)| text.len > 0 && text.end() == kernel.ack;
    let is_it = kernel.ack > stack.ack && pair.peer().any(is_fin) && pair.peer().any(is_text);
    is_it.then_some(Then::Stop)
}

/// A reset ends TIME-WAIT in the kernel (`tcp_rfc1337` is off), but not in Sockeye (RFC 1337).
pub(super) fn reset_in_time_wait(pair: &Pair<'_>) -> Option<Then> {
    let What::Sent(Packet::Tcp(kernel)) = &pair.kernel?.what else { return None };
    // A socket that the application has closed shows no state.
    let waits = match &pair.stack?.what {
        What::Sent(Packet::Tcp(stack)) => stack.flags == Flags::ACK && stack.len == 0,
        What::State(_, state) => state.info.as_ref().is_none_or(|info| info.state == "TIME-WAIT"),
        _ => false,
    };
    let end = pair.texts().filter(|text| text.flags.has(Flags::FIN)).map(Segment::end).max()?;
    let before = |index| pair.peer().take_while(move |(at, _)| *at < index).map(|(_, segment)| segment);
    let is_over = |index| {
        before(index).any(|fin| fin.flags.has(Flags::FIN) && !fin.flags.has(Flags::SYN))
            && before(index).any(|ack| ack.flags.has(Flags::ACK) && ack.ack == end)
    };
    let mut resets = pair.peer().filter(|(_, segment)| segment.flags.has(Flags::RST));
    (kernel.flags == Flags::RST && waits && resets.any(|(index, _)| is_over(index))).then_some(Then::Stop)
}

/// Sockeye sends data that fits the peer's window, and the FIN when there is room for it. The kernel has both in one
/// packet, which waits until all of it fits.
pub(super) fn text_before_a_fin_that_waits(pair: &Pair<'_>) -> Option<Then> {
    let What::Sent(Packet::Tcp(text)) = &pair.stack?.what else { return None };
    let mut events = pair.scenario.events.iter().take(pair.index()? + 1);
    let is_shut =
        events.any(|event| matches!(event.action, Action::Close | Action::Shutdown(How::Write | How::Both)));
    let is_edge = pair.peer().any(|(_, told)| pair.edge(told) == text.end());
    let is_last = text.len > 0 && is_edge && text.flags.has(Flags::PSH);
    let is_new = pair.texts().all(|before| before.end() <= text.seq);
    let is_later = matches!(&pair.kernel?.what, What::Sent(_)) && pair.kernel?.at > pair.stack?.at;
    let waits =
        pair.why == "the kernel waits, the stack sends text" || (pair.why.starts_with("time:") && is_later);
    // Its tail loss probe repeats what is before them.
    let probes = pair.segments().is_some_and(|(again, _)| again.len > 0 && again.end() == text.seq);
    ((waits || probes) && is_shut && is_last && is_new).then_some(Then::Stop)
}

/// After the peer's FIN, the kernel also accepts a reset with the number before RCV.NXT; Sockeye only one at RCV.NXT
/// (RFC 5961 section 3).
pub(super) fn reset_before_a_fin(pair: &Pair<'_>) -> Option<Then> {
    let is_its = |(index, reset): (usize, &Segment)| {
        let is_fin = |fin: &Segment| fin.flags.has(Flags::FIN) && fin.end() == reset.seq + 1;
        reset.flags.has(Flags::RST)
            && pair.peer().take_while(|(at, _)| *at < index).any(|(_, fin)| is_fin(fin))
    };
    // A reset of its own may come when keepalive gives the connection up.
    let is_late =
        |at: Duration| pair.peer().any(|it| is_its(it) && pair.scenario.events[it.0].at() + SLACK < at);
    let goes_on = |record: &Record| match &record.what {
        What::State(_, state) => state.info.as_ref().is_none_or(|info| info.state != "CLOSED"),
        What::Sent(Packet::Tcp(sent)) => !sent.flags.has(Flags::RST) || is_late(record.at),
        _ => false,
    };
    let is_over = match &pair.kernel?.what {
        What::State(_, state) => state.info.as_ref().is_none_or(|info| info.state == "CLOSED"),
        What::Sent(Packet::Tcp(sent)) => sent.flags.has(Flags::RST),
        _ => false,
    };
    (is_over && goes_on(pair.stack?) && pair.peer().any(is_its)).then_some(Then::Stop)
}

/// The kernel's SACK blocks include the number of a FIN that arrived out of order or again, and what arrived beyond it.
/// Sockeye's blocks cover data only. When the hole before a FIN is filled, the kernel's ACK of the FIN still has its
/// blocks.
pub(super) fn sack_of_a_fin(pair: &Pair<'_>) -> Option<Then> {
    if takes_other_packets(pair) {
        return Some(Then::Stop);
    }
    let (kernel, stack) = pair.segments()?;
    let is_below = |(_, end): &(u32, u32)| *end <= kernel.ack;
    let is_filled =
        stack.sack().is_empty() && !kernel.sack().is_empty() && kernel.sack().iter().all(is_below);
    let fins: Vec<u32> = pair
        .scenario
        .events
        .iter()
        .filter_map(|event| match &event.action {
            Action::Segment(segment) if segment.flags.has(Flags::FIN) => Some(segment.end() - 1),
            _ => None,
        })
        .collect();
    if is_filled
        && fins.iter().any(|fin| fin + 1 == kernel.ack)
        && kernel.ack == stack.ack
        && pair.why == "options"
    {
        return Some(Then::GoOn);
    }
    // Sockeye accepts nothing beyond a FIN.
    let is_ours = |start| stack.sack().iter().any(|ours| ours.0 == start);
    let is_news = |block: &&(u32, u32)| is_ours(block.0) || !fins.iter().any(|fin| block.0 >= *fin);
    let is_longer =
        |(a, b): (&(u32, u32), &(u32, u32))| a == b || (a.0 == b.0 && a.1 > b.1 && fins.contains(&b.1));
    let mut theirs: Vec<(u32, u32)> = kernel.sack().iter().filter(is_news).copied().collect();
    let ours = stack.sack();
    // The block that a FIN has extended is the latest.
    let moves = theirs.first().is_some_and(|(start, end)| fins.iter().any(|fin| (start..end).contains(&fin)));
    let place = ours.iter().position(|block| moves && block.0 == theirs[0].0);
    if let Some(before) = place.and_then(|place| theirs.get_mut(..=place)) {
        before.rotate_left(1);
    }
    // The kernel's blocks beyond the FIN leave no room for the last ones.
    let most = if kernel.timestamp().is_some() { 3 } else { 4 };
    let is_full = theirs.len() < kernel.sack().len() && kernel.sack().len() == most;
    let has_all = theirs.len() == ours.len() || (theirs.len() < ours.len() && is_full);
    let is_it = kernel.sack() != ours && has_all && theirs.iter().zip(ours).all(is_longer);
    let is_pushed = kernel.flags.with(Flags::PSH) == stack.flags.with(Flags::PSH);
    let is_shorter = kernel.seq == stack.seq
        && kernel.len < stack.len
        && (pair.why.starts_with("length:") || (pair.why.starts_with("flags:") && is_pushed));
    match () {
        () if is_it && pair.why.starts_with("option") => Some(Then::GoOn),
        // A block takes room from data.
        () if is_it && is_shorter => Some(Then::Stop),
        // The kernel's blocks make its data shorter, so it fits a window that has no room for a whole segment.
        () if is_it && stack.is_bare_ack() && kernel.len > 0 && kernel.seq == stack.seq => {
            let is_full = pair.acks().any(|told| pair.edge(told) == kernel.end());
            is_full.then_some(Then::Stop)
        }
        () => None,
    }
}

/// The hop limit of a segment without a socket.
const TTL_DEFAULT: u8 = 64;

/// Whether the kernel's write takes less than the stack's, or one packet more: it cuts data to packets that have room for its
/// blocks, and the room of a write is counted in packets (TCP_NOTSENT_LOWAT).
fn takes_other_packets(pair: &Pair<'_>) -> bool {
    let (Some(kernel), Some(stack)) = (pair.kernel, pair.stack) else { return false };
    let (What::Returned(_, Ok(kernel)), What::Returned(_, Ok(stack))) = (&kernel.what, &stack.what) else {
        return false;
    };
    let fin = pair.peer().filter(|(_, fin)| fin.flags.has(Flags::FIN)).map(|(_, fin)| fin.end()).min();
    let told = pair.earlier.iter().rev().find_map(Record::segment);
    let has_block =
        told.is_some_and(|told| told.sack().iter().any(|block| Some(block.1) >= fin && fin.is_some()));
    let is_write = pair.event.is_some_and(|action| action.written().is_some());
    let is_whole = |blocks: u64| {
        let size = latest_figure(pair.earlier, "snd_mss").and_then(|mss| mss.checked_sub(4 + 8 * blocks));
        size.is_some_and(|size| size > 0 && u64::from(*kernel).is_multiple_of(size))
    };
    // A block, or the first of them, in each packet.
    let is_less = kernel < stack && (stack - kernel) % 4 == 0;
    let is_more = kernel > stack && (1..=4).any(is_whole);
    is_write && (is_less || is_more) && has_block
}

/// In FIN-WAIT-2 of a closed socket, Sockeye handles a reset with an old timestamp as any other, since PAWS does not
/// apply to resets (RFC 7323 section 5.2): it ends the connection, or is dropped if it is out of the window. The
/// kernel's record without a socket answers it with an ACK.
pub(super) fn old_reset_in_fin_wait_2(pair: &Pair<'_>) -> Option<Then> {
    let answer = pair.kernel?;
    let event = pair.scenario.events.get(pair.index()?)?;
    let (Action::Segment(cause), What::Sent(Packet::Tcp(ack))) = (&event.action, &answer.what) else {
        return None;
    };
    let value = |segment: &Segment| segment.timestamp().map(|(value, _)| value);
    let is_old = cause.flags.has(Flags::RST) && pair.peer().any(|(_, old)| value(old) > value(cause));
    let is_answer = is_plain_ack(ack) && cause.seq >= ack.ack;
    let waits =
        pair.stack.is_none_or(|record| !matches!(record.what, What::Sent(_)) || record.at > answer.at);
    let is_closed = pair.is_closed();
    (is_old && value(cause).is_some() && is_answer && is_closed && waits).then_some(Then::Stop)
}

/// The peer's FIN crosses ours, or data behind which our FIN waits. The kernel acknowledges it before it looks for
/// something to send. In Sockeye, what is sent next carries the acknowledgment.
pub(super) fn acknowledgment_of_a_crossed_fin(pair: &Pair<'_>) -> Option<Then> {
    let (kernel, stack) = pair.segments()?;
    let Action::Segment(cause) = &pair.scenario.events.get(pair.index()?)?.action else { return None };
    let is_bare = kernel.flags == Flags::ACK && kernel.len == 0 && kernel.ack == stack.ack;
    let takes_along = stack.seq == kernel.seq && stack.end() > stack.seq;
    let is_fin = cause.flags.has(Flags::FIN) && kernel.ack == cause.end();
    (is_bare && takes_along && is_fin && pair.is_shut()).then_some(Then::SkipKernel)
}

/// In FIN-WAIT-2 of a closed socket, the kernel keeps a record without a socket. This record reports no duplicates,
/// echoes no mark, echoes the timestamp of the segment that acknowledged the FIN and ignores the data of that segment, answers resets
/// out of the window, and has its own limit for answers. A SYN, or any reset in the window, ends the connection; but if
/// a SYN arrives again with a FIN, the FIN is accepted, or if it has no acknowledgment, the segment is dropped. Sockeye reports duplicates (RFC 2883), echoes the latest
/// timestamp, drops such resets, and answers a SYN or a reset in the window with a challenge ACK (RFC 5961 sections 3
/// and 4).
pub(super) fn record_of_a_closed_socket(pair: &Pair<'_>) -> Option<Then> {
    let end = pair.texts().map(Segment::end).max();
    let ends = |old: &Segment| old.flags.has(Flags::ACK) && Some(old.ack) == end;
    let is_over = pair.is_closed() && pair.peer().any(|(_, old)| ends(old));
    if let Some((cause, answer)) = pair.only_the_stack_answers() {
        // The acknowledgment of the FIN creates the record, and the kernel ignores data in the same segment.
        let What::Sent(Packet::Tcp(ack)) = &answer.what else { return None };
        let is_first = pair.acks().filter(|old| ends(old)).count() == 1;
        let is_duplicate = cause.len > 0 && cause.end() <= ack.ack && is_plain_ack(ack);
        if is_over && cause.flags.has(Flags::RST) && cause.seq > ack.ack {
            return Some(Then::Stop);
        }
        if is_over && is_plain_ack(ack) && is_dropped_syn(cause, ack.ack) {
            return Some(Then::SkipStack);
        }
        // The kernel's record limits its answers since one that Sockeye did not send.
        let is_bare =
            |record: &Record| matches!(&record.what, What::Sent(Packet::Tcp(sent)) if is_plain_ack(sent));
        let last = pair.earlier.iter().rev().find(|record| is_bare(record));
        let is_soon = last.is_some_and(|last| answer.at < last.at + CHALLENGE_INTERVAL);
        if is_over
            && (is_soon || has_old_timestamp(pair, cause))
            && cause.end() == cause.seq
            && is_plain_ack(ack)
        {
            return Some(Then::SkipStack);
        }
        // In CLOSING as well, because TIME-WAIT is such a record. What acknowledged the FIN before was dropped.
        let is_closing = latest_state(pair) == Some("CLOSING") || (is_over && is_first);
        let is_text = is_duplicate || (cause.len > 0 && !is_over);
        return (is_closing && ends(cause) && is_text).then_some(Then::SkipStack);
    }
    let What::Sent(Packet::Tcp(kernel)) = &pair.kernel?.what else { return None };
    let Action::Segment(cause) = &pair.scenario.events.get(pair.index()?)?.action else { return None };
    let answers = is_plain_ack(kernel);
    let is_another = pair.kernel_resets() || kernel.flags.has(Flags::SYN);
    let stack = match &pair.stack?.what {
        _ if !is_over => return None,
        // A reset in the window has ended the record, so a SYN may open another connection.
        What::State(..) if is_another && ended_by_a_reset(pair) => return Some(Then::Stop),
        What::Sent(Packet::Tcp(stack)) if is_plain_ack(stack) => stack,
        // The record echoes no mark.
        What::Sent(Packet::Tcp(stack)) if answers && only_echoes_a_mark(stack) => return Some(Then::GoOn),
        // Or Sockeye sends no challenge ACK, so soon after another.
        What::State(..) if cause.flags.has(Flags::SYN) && kernel.flags.has(Flags::RST) => {
            return Some(Then::Stop);
        }
        What::State(..) if answers => {
            return is_dropped_by_a_socket(pair, kernel, cause).then_some(Then::SkipKernel);
        }
        _ => return None,
    };
    let echo = |ack: &Segment| match ack.timestamp() {
        Some((_, Echo::Is(echo))) => Some(echo),
        _ => None,
    };
    let has_no_blocks = kernel.sack().is_empty() && !stack.sack().is_empty();
    match () {
        () if answers && pair.why.starts_with("TTL:") => (kernel.ip.ttl == TTL_DEFAULT).then_some(Then::GoOn),
        () if answers && pair.why == "options" => has_no_blocks.then_some(Then::GoOn),
        () if answers && pair.why.starts_with("option: ts") => {
            (echo(kernel) < echo(stack)).then_some(Then::GoOn)
        }
        () => {
            let takes_fin = cause.flags.has(Flags::FIN) && kernel.ack == stack.ack.wrapping_add(1);
            let is_ended = kernel.flags.has(Flags::RST) || takes_fin;
            (cause.flags.has(Flags::SYN) && is_ended).then_some(Then::Stop)
        }
    }
}

/// Whether the kernel's record drops a SYN: it has no acknowledgment, and begins before RCV.NXT and ends behind it.
fn is_dropped_syn(cause: &Segment, rcv_nxt: u32) -> bool {
    let is_plain = cause.flags.has(Flags::SYN) && !cause.flags.has(Flags::ACK);
    is_plain && cause.seq < rcv_nxt && cause.end() > rcv_nxt
}

/// Whether it is a plain ACK that echoes a congestion mark.
fn only_echoes_a_mark(segment: &Segment) -> bool {
    segment.flags == Flags::ACK.with(Flags::ECE) && segment.len == 0
}

/// Whether it has no flag but ACK, and no data.
fn is_plain_ack(segment: &Segment) -> bool {
    segment.flags == Flags::ACK && segment.len == 0
}

/// Whether a socket does not answer the segment that the kernel's record answers.
fn is_dropped_by_a_socket(pair: &Pair<'_>, answer: &Segment, cause: &Segment) -> bool {
    let since = pair.kernel.map_or(Duration::ZERO, |record| record.at).saturating_sub(CHALLENGE_INTERVAL_MAX);
    let mut acks = pair.earlier.iter().filter(|record| record.segment().is_some_and(is_plain_ack));
    let is_limited = acks.any(|record| record.at >= since);
    // Or limited by the answer to what the kernel drops there (`acknowledgment_behind_the_end`).
    let is_limited = is_limited || has_told_too_much(pair, since);
    let is_reset = cause.flags.has(Flags::RST) && cause.seq != answer.ack;
    // A late acknowledgment, which Linux's sockets drop, too (`tcp_disordered_ack`).
    let is_late = cause.is_bare_ack() && has_old_timestamp(pair, cause);
    is_reset || is_late || (cause.len == 0 && is_limited)
}

/// Whether the segment's timestamp is older than an earlier one of the peer. The kernel's record only knows that of the
/// acknowledgment of the FIN.
fn has_old_timestamp(pair: &Pair<'_>, cause: &Segment) -> bool {
    let value = |segment: &Segment| segment.timestamp().map(|(value, _)| value);
    value(cause).is_some() && pair.peer().any(|(_, old)| value(old) > value(cause))
}

/// Whether the peer has acknowledged more than was ever sent since then.
fn has_told_too_much(pair: &Pair<'_>, since: Duration) -> bool {
    let Some(end) = pair.texts().map(Segment::end).max() else { return false };
    pair.peer().rev().skip(1).any(|(index, told)| {
        let event = pair.scenario.events.get(index);
        let is_late = event.is_some_and(|event| Duration::from_millis(event.at_ms.into()) >= since);
        is_late && told.flags.has(Flags::ACK) && told.ack > end
    })
}

/// Whether the peer has reset the connection with a number beyond what the kernel has acknowledged.
fn ended_by_a_reset(pair: &Pair<'_>) -> bool {
    let next = pair.earlier.iter().rev().find_map(|record| match &record.what {
        What::Sent(Packet::Tcp(ack)) if ack.flags.has(Flags::ACK) => Some(ack.ack),
        _ => None,
    });
    next.is_some_and(|next| pair.peer().any(|(_, reset)| reset.flags.has(Flags::RST) && reset.seq > next))
}

/// In TIME-WAIT, Sockeye answers a SYN with a FIN, within the limit of challenge ACKs. The kernel takes the segment for
/// a SYN, which ends the record, and then drops it because of its FIN. If nothing listens, it answers without a limit.
pub(super) fn syn_and_fin_in_time_wait(pair: &Pair<'_>) -> Option<Then> {
    let has_fin = |segment: &Segment| segment.flags.has(Flags::FIN);
    let is_both =
        |cause: &Segment| has_fin(cause) && cause.flags.has(Flags::SYN) && !cause.flags.has(Flags::ACK);
    let is_over =
        pair.texts().any(has_fin) && pair.peer().any(|(_, old)| has_fin(old) && !old.flags.has(Flags::SYN));
    if let Some((cause, _)) = pair.only_the_stack_answers() {
        return (is_both(cause) && is_over).then_some(Then::Stop);
    }
    if let Some((cause, answer)) = pair.only_the_kernel_answers() {
        let listens = pair.scenario.any(|action| matches!(action, Action::Listen(_)));
        // Or Sockeye has answered such a segment, which counts for its limit.
        let since = answer.at.saturating_sub(CHALLENGE_INTERVAL_MAX);
        let is_soon =
            |(index, old): (usize, &Segment)| is_both(old) && pair.scenario.events[index].at() >= since;
        let is_it = is_both(cause) || pair.peer().rev().skip(1).any(is_soon);
        return (is_it && is_over && !listens).then_some(Then::SkipKernel);
    }
    // The kernel has no record any more for what follows.
    let What::Sent(Packet::Tcp(reset)) = &pair.kernel?.what else { return None };
    let is_waiting = matches!(pair.stack?.what, What::State(..));
    let has_come = pair.peer().any(|(_, old)| is_both(old));
    (is_over && has_come && is_waiting && reset.flags == Flags::RST).then_some(Then::Stop)
}

/// Another connection between the same ends begins with a number from a clock that counts every 4 microseconds (RFC
/// 9293 section 3.4.1). The kernel's clock counts every 64 nanoseconds, and if the connection before it is in
/// TIME-WAIT, the number is one window after that one's last.
pub(super) fn first_number(pair: &Pair<'_>) -> Option<Then> {
    let (kernel, stack) = pair.segments()?;
    let both = Flags::SYN.with(Flags::ACK);
    let first = pair
        .earlier
        .iter()
        .find(|record| matches!(&record.what, What::Sent(Packet::Tcp(syn)) if syn.flags.has(Flags::SYN)))?;
    let since = pair.kernel?.at.saturating_sub(first.at).as_nanos();
    let is_by =
        |number: u32, tick_ns: u128| (u128::from(number) * tick_ns).abs_diff(since) < SLACK.as_nanos();
    let is_it = kernel.flags.has(both) && stack.flags.has(both) && kernel.seq != 0 && stack.seq != 0;
    let end = pair.texts().map(Segment::end).max().unwrap_or(1);
    let is_behind = kernel.seq == end + ISS_DISTANCE && stack.seq > kernel.seq;
    let is_clock = (is_by(kernel.seq, 64) || is_behind) && is_by(stack.seq, 4_000);
    (is_it && is_clock && pair.why.starts_with("sequence number:")).then_some(Then::Stop)
}

/// A FIN whose data is acknowledged has no PSH in Sockeye when it is retransmitted. The kernel's has PSH if it was once
/// retransmitted together with that data.
pub(super) fn push_of_a_fin(pair: &Pair<'_>) -> Option<Then> {
    let (kernel, stack) = pair.segments()?;
    let fin = Flags::FIN.with(Flags::ACK);
    let was_joined = pair
        .texts()
        .any(|text| text.flags.has(fin.with(Flags::PSH)) && text.len > 0 && text.end() == kernel.end());
    let is_alone = kernel.len == 0 && stack.len == 0 && kernel.seq == stack.seq;
    let is_it = is_alone && kernel.flags == stack.flags.with(Flags::PSH) && stack.flags.has(fin);
    (is_it && was_joined && pair.why.starts_with("flags:")).then_some(Then::GoOn)
}

/// The kernel's latest state.
fn latest_state(pair: &Pair<'_>) -> Option<&'static str> {
    pair.earlier.iter().rev().find_map(|record| match &record.what {
        What::State(_, state) => state.info.as_ref().map(|info| info.state),
        _ => None,
    })
}

/// Sockeye's abort in CLOSING or LAST-ACK sends a reset, because the FIN may be lost. The kernel, and RFC 9293 section
/// 3.10.5, send one only while the FIN is not sent.
pub(super) fn abort_behind_a_fin(pair: &Pair<'_>) -> Option<Then> {
    let What::Sent(Packet::Tcp(reset)) = &pair.stack?.what else { return None };
    let is_reset = reset.flags == Flags::RST.with(Flags::ACK) && reset.len == 0;
    let state = latest_state(pair)?;
    let is_sent = pair.texts().any(|text| text.flags.has(Flags::FIN) && text.end() == reset.seq);
    // If another connection begins, the socket of the first is also closed.
    let is_close = [Action::Close, Action::Again].contains(pair.event?);
    let is_abort = is_close && pair.scenario.any(|action| *action == LINGER_ZERO);
    let is_it = is_reset && is_sent && is_abort && ["CLOSING", "LAST-ACK"].contains(&state);
    (is_it && matches!(pair.kernel?.what, What::State(..))).then_some(Then::SkipStack)
}

const LINGER_ZERO: Action = Action::Set(SockOpt::Linger, 0);

/// Distance from the last number of a connection in TIME-WAIT to the first number of the kernel's next one
/// (`tcp_timewait_state_process`).
const ISS_DISTANCE: u32 = 65_535 + 2;
