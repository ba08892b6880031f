//! Differences in loss recovery ("repairs"), in its undoing, and in the congestion window.
//!
//! Tests: as those of `known.rs`.

use std::time::Duration;

use super::{Pair, Then};
use crate::codec::Packet;
use crate::compare::SLACK;
use crate::scenario::{Action, SockOpt};
use crate::segment::{Echo, Flags, Segment};
use crate::trace::{Info, Record, State, What, latest_figure};
use crate::wheel::JIFFY;

/// In Sockeye, a timeout marks as lost what an undone repair had retransmitted. The kernel still counts it as
/// retransmitted and in flight, and its window begins larger by that amount. The first segment has then been sent more
/// often than the count of timeouts shows, because the undo has reset the count.
pub(super) fn window_after_an_undone_repair(pair: &Pair<'_>) -> Option<Then> {
    if uses_the_window_of_a_closed_socket(pair) {
        return Some(Then::Stop);
    }
    let (kernel, stack) = pair.states()?;
    let (kernel, stack) = (kernel.info.as_ref()?, stack.info.as_ref()?);
    let una = pair.texts().last()?.seq;
    let sent = pair.times_sent(una) as u64;
    let is_repaired = kernel.get("ca_state") == Some(4) && stack.get("ca_state") == Some(4);
    let is_undone = kernel.get("retransmits")? + 2 <= sent;
    let is_larger = kernel.get("snd_cwnd") > stack.get("snd_cwnd");
    let is_it = pair.why.starts_with("snd_cwnd:") && is_repaired && is_undone && is_larger;
    is_it.then_some(Then::Stop)
}

/// Whether the stack sends new data of a closed socket, which shows no window, and the kernel does not: a block reported what was
/// sent once, and so undid a timeout, but the first segment timed out again, and is acknowledged now.
fn uses_the_window_of_a_closed_socket(pair: &Pair<'_>) -> bool {
    let waits =
        pair.kernel.is_none_or(|record| matches!(&record.what, What::State(_, State { info: None, .. })));
    let top = pair.texts().map(Segment::end).max();
    let is_new = pair.stack.and_then(Record::segment).is_some_and(|new| new.len > 0 && Some(new.seq) == top);
    let mut acks = pair.acks().rev();
    let (Some(cause), Some(before)) = (acks.next(), acks.next()) else { return false };
    let is_once = |block: &(u32, u32)| block.0 > before.ack && pair.times_sent_to(block.1) == 1;
    let is_undone = before.sack().iter().any(is_once) && pair.times_sent(before.ack) > 2;
    waits && is_new && cause.ack > before.ack && is_undone && pair.is_closed()
}

/// The peer's segment has data or a FIN, and its acknowledgment lets something be retransmitted. The kernel sends the
/// retransmission before it processes the data, with the old acknowledgment number, and then an ACK of the data or a
/// reset. Sockeye sends one segment for both, or only the reset.
pub(super) fn repair_beside_text(pair: &Pair<'_>) -> Option<Then> {
    if let Some((cause, answer)) = pair.only_the_kernel_answers() {
        // An ACK of data that had arrived before, if the peer has no SACK, or of a FIN, which is in no SACK block of
        // Sockeye. Also after new data that decides whether a timeout was needed.
        let What::Sent(Packet::Tcp(ack)) = &answer.what else { return None };
        let Some(What::Sent(Packet::Tcp(again))) = pair.earlier.last().map(|before| &before.what) else {
            return None;
        };
        // A SACK block of the kernel reports a FIN behind a hole.
        let is_told = cause.len == 0 && ack.sack().iter().any(|block| block.1 == cause.end());
        let is_old = cause.end() > cause.seq && (cause.end() <= ack.ack || is_told);
        let is_repair = pair.times_sent(again.seq) > 1 || latest_figure(pair.earlier, "ca_state") == Some(4);
        let is_again = again.end() > again.seq && again.ack == ack.ack && is_repair;
        let has_no_blocks = ack.sack().is_empty() || cause.len == 0;
        return (is_old && is_again && has_no_blocks).then_some(Then::SkipKernel);
    }
    let (kernel, stack) = pair.segments()?;
    let Some(Action::Segment(cause)) = pair.event else { return None };
    let is_again = pair.times_sent(kernel.seq) > 0;
    // Without SACK, data behind a hole shows it by a mark, which only an answer to that data echoes.
    let is_echo = pair.why.starts_with("flags:") && stack.flags == kernel.flags.with(Flags::ECE);
    if is_echo && is_again && cause.ecn == CE && cause.len > 0 && kernel.seq == stack.seq {
        // With SACK, its block does, too, and the kernel's ACK follows.
        let is_told = stack.sack().iter().any(|block| block.0 <= cause.seq && cause.end() <= block.1);
        return Some(if is_told { Then::Stop } else { Then::GoOn });
    }
    // New data that decides whether a timeout was needed is sent in the same way.
    let is_timeout = latest_figure(pair.earlier, "ca_state") == Some(4);
    // Sockeye's SACK blocks do not include a FIN.
    let text_end = cause.seq + cause.len;
    let has_block =
        |segment: &Segment| segment.sack().iter().any(|block| block.0 <= cause.seq && text_end <= block.1);
    // The data is accepted or reported: as data behind a hole, or as a duplicate, also of what was already reported.
    let is_reported = has_block(stack) && (!has_block(kernel) || stack.sack().len() > kernel.sack().len());
    let is_before = (kernel.ack < cause.end() && stack.ack >= cause.end()) || is_reported;
    let is_sent = kernel.seq == stack.seq && kernel.end() > kernel.seq && stack.end() > stack.seq;
    // No application is left to read it.
    let is_reset = stack.flags.has(Flags::RST) && stack.seq == cause.ack && kernel.end() > kernel.seq;
    let is_it = (is_sent && is_before) || (is_reset && pair.why.starts_with("flags:"));
    ((is_again || is_timeout) && is_it && cause.end() > cause.seq).then_some(Then::Stop)
}

/// The mark of congestion in the IP header.
const CE: u8 = 3;

/// A retransmission of an undone repair is found lost. The kernel only marks it as retransmitted, and continues after
/// it. Sockeye sends it first, as everything that is lost again (RFC 8985 section 6.2 step 5).
pub(super) fn repetition_that_is_lost_again(pair: &Pair<'_>) -> Option<Then> {
    let (kernel, stack) = pair.segments()?;
    let is_again =
        kernel.seq > stack.seq && pair.times_sent(kernel.seq) > 0 && pair.times_sent(stack.seq) > 1;
    let repeated = pair.earlier.iter().rposition(
        |record| matches!(&record.what, What::Sent(Packet::Tcp(text)) if (text.seq..text.end()).contains(&stack.seq)),
    )?;
    let states = pair.earlier[repeated..].iter().filter_map(|record| match &record.what {
        What::State(_, state) => state.info.as_ref()?.get("ca_state"),
        _ => None,
    });
    // A timeout's repair, and then a state without one although nothing before it was acknowledged.
    let is_undone = states.clone().skip_while(|state| *state != 4).any(|state| state != 4);
    // About a socket that was closed in the repair or before, we know only that the peer has reported what was sent once.
    let is_original = |block: &(u32, u32)| pair.times_sent(block.0) == 1 && pair.times_sent_to(block.1) == 1;
    let is_told = pair.is_closed() && pair.acks().any(|told| told.sack().iter().any(is_original));
    let is_undone = is_undone || (states.clone().all(|state| state == 4) && is_told);
    (is_again && is_undone).then_some(Then::Stop)
}

/// An echo from before a retransmission shows that the original has arrived, and nothing about the round trip of the
/// retransmission (RFC 8985 section 6.2 step 2). The kernel takes the time since the retransmission as the latest round
/// trip, so a timeout marks more as lost.
pub(super) fn round_trip_of_a_repetition(pair: &Pair<'_>) -> Option<Then> {
    if finds_lost_by_a_repetition(pair) {
        return Some(Then::Stop);
    }
    let (kernel, stack) = pair.states()?;
    let (kernel, stack) = (kernel.info.as_ref()?, stack.info.as_ref()?);
    let is_timeout =
        |info: &crate::trace::Info| info.get("ca_state") == Some(4) && info.get("retransmits") == Some(1);
    let gives_up_more = kernel.get("snd_cwnd") < stack.get("snd_cwnd");
    let una = pair.texts().last()?.seq;
    let was_repeated = pair.texts().any(|text| text.end() <= una && pair.times_sent_to(text.end()) > 1);
    let has_echo = pair.texts().last()?.timestamp().is_some();
    let is_it = is_timeout(kernel) && is_timeout(stack) && gives_up_more && was_repeated && has_echo;
    (pair.why.starts_with("snd_cwnd:") && is_it).then_some(Then::Stop)
}

/// Whether the kernel retransmits at once what was sent once, because the peer's latest segment covers a
/// retransmission, which the kernel takes for sent after it. In Sockeye a timer retransmits it, because the echo is
/// from before the retransmission.
fn finds_lost_by_a_repetition(pair: &Pair<'_>) -> bool {
    let Some(What::Sent(Packet::Tcp(again))) = pair.kernel.map(|record| &record.what) else { return false };
    let mut peer = pair.peer().rev().map(|(_, segment)| segment);
    let (Some(cause), Some(una)) = (peer.next(), peer.map(|segment| segment.ack).max()) else { return false };
    let is_old = matches!(cause.timestamp(), Some((_, Echo::Is(_)))) && !cause.sack().is_empty();
    let covers_a_repetition = cause.ack > una && pair.times_sent(una) > 1;
    let is_lost = again.len > 0 && again.seq == cause.ack && pair.times_sent(again.seq) == 1;
    let waits = pair.stack.is_some_and(|stack| match &stack.what {
        What::Sent(Packet::Tcp(text)) => text.seq != again.seq || pair.why.starts_with("time:"),
        _ => true,
    });
    is_old && covers_a_repetition && is_lost && waits
}

/// CUBIC's recovery ends with a window of what is in flight and a bounded burst, if that is less than the threshold (RFC
/// 6582 section 3.2, step 3). The kernel's window is the threshold.
pub(super) fn tail_of_a_recovery(pair: &Pair<'_>) -> Option<Then> {
    let is_over = |info: &Info| info.get("ca_state").is_some_and(|state| state <= 1);
    if pair.is_newreno() || !has_ended_below_the_threshold(pair) {
        return None;
    }
    if loses_what_was_paced(pair) {
        return Some(Then::Stop);
    }
    if let (What::Returned(_, Ok(kernel)), What::Returned(_, Ok(stack))) =
        (&pair.kernel?.what, &pair.stack?.what)
    {
        // CUBIC fills its window at a rate. Data that waits for this counts against the write's limit.
        let is_bounded =
            pair.scenario.any(|action| matches!(action, Action::Set(SockOpt::NotsentLowat, 1..)));
        let is_write = pair.event.is_some_and(|action| action.written().is_some());
        return (is_write && is_bounded && stack < kernel).then_some(Then::Stop);
    }
    if let (Some(What::Sent(Packet::Tcp(text))), What::State(_, State { info: Some(info), .. })) =
        (pair.kernel.map(|record| &record.what), &pair.stack?.what)
    {
        // Everything was acknowledged, and what was sent since then is the stack's window.
        let una = pair.peer().last()?.1.ack;
        let (out, top) = (pair.texts().filter(|out| out.seq >= una), pair.texts().map(Segment::end).max()?);
        let is_full = info.get("snd_cwnd") == Some(out.count() as u64) && is_over(info);
        // Or half of the threshold is more than this, and the rest is filled at a rate.
        let (cwnd, threshold) = (info.get("snd_cwnd"), info.get("snd_ssthresh")?);
        let calm = u64::from(top - una.min(top)) + BURST_CALM;
        let is_paced = cwnd == Some(threshold) && 2 * calm < threshold * info.get("snd_mss")?;
        let is_one_more = text.len > 0 && text.seq == top && text.ack == pair.texts().last()?.ack;
        return ((is_full || is_paced && is_over(info)) && is_one_more).then_some(Then::Stop);
    }
    let (kernel, stack) = pair.states()?;
    let (kernel, stack) = (kernel.info.as_ref()?, stack.info.as_ref()?);
    let is_smaller = stack.get("snd_cwnd") < kernel.get("snd_cwnd")
        && kernel.get("snd_ssthresh") == stack.get("snd_ssthresh");
    let is_below = stack.get("snd_cwnd") <= kernel.get("snd_ssthresh");
    // The ACK that ends it may also lead the window over the threshold, from below. Then less of it counts for the
    // growth beyond.
    let is_near = kernel.get("snd_cwnd") <= stack.get("snd_cwnd").map(|cwnd| cwnd + 2);
    let is_it = pair.why.starts_with("snd_cwnd:") && is_over(kernel) && is_over(stack);
    (is_it && is_smaller && (is_below || is_near)).then_some(Then::Stop)
}

/// Whether the latest recovery has ended with so little in flight that the threshold allows more than a burst. The
/// stack's record may be the state behind it.
fn has_ended_below_the_threshold(pair: &Pair<'_>) -> bool {
    // What was sent before the latest event, if a recovery was under way then.
    let (mut top, mut out, mut is_below) = (1, None, false);
    for record in pair.earlier.iter().chain(pair.stack) {
        match &record.what {
            What::Sent(Packet::Tcp(text)) if text.len > 0 => top = top.max(text.end()),
            What::State(_, State { info: Some(info), .. }) => {
                let figure = |name| info.get(name).unwrap_or_default();
                let (acked, mss) = (figure("bytes_acked"), figure("snd_mss"));
                let calm = |top: u32| u64::from(top).saturating_sub(acked + 1) + BURST_CALM.max(10 * mss);
                let is_over = figure("ca_state") <= 1;
                if let Some(top) = out.take_if(|_| is_over) {
                    is_below = calm(top) < figure("snd_ssthresh") * mss;
                }
                if figure("ca_state") == 3 {
                    out = Some(top);
                }
            }
            _ => {}
        }
    }
    is_below
}

/// What CUBIC sends at once behind a recovery, bytes.
const BURST_CALM: u64 = 65_536;

/// Whether the stack finds data lost that CUBIC has sent at a rate, behind a recovery, and the kernel at once: the later segments have made a shorter
/// round trip.
fn loses_what_was_paced(pair: &Pair<'_>) -> bool {
    let Some(What::Sent(Packet::Tcp(again))) = pair.stack.map(|record| &record.what) else { return false };
    let is_repaired = |record: &Record| match &record.what {
        What::State(_, State { info: Some(info), .. }) => info.get("ca_state") == Some(3),
        _ => false,
    };
    let Some(ended) = pair.earlier.iter().rposition(is_repaired) else { return false };
    let burst = || pair.earlier[ended..].iter().filter_map(Record::segment);
    let sent: u32 = burst().map(|text| text.len).sum();
    let is_of_it = burst().any(|text| text.seq == again.seq && text.len > 0);
    let is_reported = pair.peer().last().is_some_and(|(_, told)| !told.sack().is_empty());
    let waits = !matches!(pair.kernel.map(|record| &record.what), Some(What::Sent(_)));
    u64::from(sent) > BURST_CALM && is_of_it && is_reported && waits
}

/// In Sockeye, the time up to an ACK does not advance CUBIC's curve if the window was not used (RFC 9438 section 5.8).
/// In the kernel it does, unless nothing was in flight. The window shows it, or new data that it allows.
pub(super) fn time_of_an_unused_window(pair: &Pair<'_>) -> Option<Then> {
    if pair.is_newreno() {
        return None;
    }
    let is_avoidance =
        |info: &Info| info.get("ca_state") == Some(0) && info.get("snd_cwnd") >= info.get("snd_ssthresh");
    let (mut top, mut before, mut was_unused) = (1, None, false);
    for record in pair.earlier {
        match &record.what {
            What::Sent(Packet::Tcp(text)) => top = top.max(text.end()),
            What::State(_, State { info: Some(info), .. }) => {
                let (acked, mss) = (info.get("bytes_acked")?, info.get("snd_mss")?.max(1));
                let out = before
                    .map_or(0, |(acked, top): (u64, u32)| u64::from(top) - 1 - acked.min(u64::from(top) - 1));
                let is_unused =
                    before.is_some_and(|(old, _)| old < acked) && out.div_ceil(mss) < info.get("snd_cwnd")?;
                was_unused = is_avoidance(info) && (was_unused || is_unused);
                before = Some((acked, top));
            }
            _ => {}
        }
    }
    let is_it = match (&pair.kernel?.what, &pair.stack?.what) {
        (
            What::State(_, State { info: Some(kernel), .. }),
            What::State(_, State { info: Some(stack), .. }),
        ) => {
            let is_smaller = stack.get("snd_cwnd") < kernel.get("snd_cwnd");
            let is_window = pair.why.starts_with("snd_cwnd:");
            is_window && is_avoidance(kernel) && is_avoidance(stack) && is_smaller
        }
        (What::Sent(Packet::Tcp(text)), stack) => {
            let is_later = pair.stack?.at > pair.kernel?.at + SLACK;
            let waits = match stack {
                What::State(_, State { info: Some(info), .. }) => is_avoidance(info),
                What::Sent(Packet::Tcp(probe)) => probe.seq == top && is_later,
                _ => false,
            };
            let una = pair.acks().map(|told| told.ack).max()?;
            let out = pair.texts().filter(|out| out.end() > una).count() as u64;
            waits && text.len > 0 && text.seq == top && latest_figure(pair.earlier, "snd_cwnd") <= Some(out)
        }
        _ => false,
    };
    (is_it && was_unused).then_some(Then::Stop)
}

/// Fast recovery had found segments lost, and an undo declares that they were not. The kernel no longer looks at them,
/// and waits for the timeout. In Sockeye they may be found lost again (RFC 8985 section 6.2 step 5 looks at everything
/// in flight).
pub(super) fn loss_after_an_undone_repair(pair: &Pair<'_>) -> Option<Then> {
    let (mut top, mut repair, mut undone, mut acked, mut timeouts) = (1, None, None, 0, 0);
    let is_state = |record: &&Record| matches!(record.what, What::State(..));
    for record in pair.earlier.iter().chain(pair.kernel.filter(is_state)) {
        match &record.what {
            What::Sent(Packet::Tcp(text)) if !text.flags.has(Flags::RST) => top = top.max(text.end()),
            What::State(_, State { info: Some(info), .. }) => {
                // The repair of an undone timeout and the next repair may end and begin with the same ACK.
                let is_next = acked == info.get("bytes_acked")? && timeouts > info.get("retransmits")?;
                (acked, timeouts) = (info.get("bytes_acked")?, info.get("retransmits")?);
                let is_over = info.get("ca_state")? <= 1;
                if is_over || is_next {
                    undone = repair.take().filter(|end| acked + 1 < u64::from(*end)).or(undone);
                }
                if !is_over {
                    repair = Some(top);
                }
            }
            _ => {}
        }
    }
    // It is still in flight.
    let undone = undone.filter(|end| acked + 1 < u64::from(*end));
    let end = undone.or(repair)?;
    let is_out = acked + 1 < u64::from(end);
    let ca_state = |state: &State| state.info.as_ref()?.get("ca_state");
    let is_open = |state: &State| ca_state(state).is_some_and(|state| state <= 1);
    let is_undone = || acknowledges_an_original(pair) || undoes_a_timeout(pair);
    let is_judged = match (pair.kernel.map(|record| &record.what), &pair.stack?.what) {
        (Some(What::State(_, kernel)), What::State(_, stack)) => {
            // What is not found lost, or was retransmitted before the undo, counts as in flight in the window of the
            // next recovery.
            let cwnd = |state: &State| state.info.as_ref()?.get("snd_cwnd");
            let is_window = pair.why.starts_with("snd_cwnd:") && cwnd(kernel) > cwnd(stack);
            let is_next = is_window && undone.is_some() && ca_state(kernel) == Some(3);
            ca_state(stack) == Some(3) && (is_open(kernel) || is_next || times_out_instead(pair, kernel))
        }
        (Some(What::State(_, kernel)), What::Sent(Packet::Tcp(again))) => {
            // Options take room from the original segment.
            let is_again = again.len > 0 && again.seq < end && pair.times_sent(again.seq) > 0;
            // A closed socket does not show that a timeout was undone.
            is_again && (undone.is_some() || is_open(kernel) || (kernel.info.is_none() && is_undone()))
        }
        // Instead the kernel sends new data, or what was sent after the data that the repair had found lost.
        (Some(What::Sent(Packet::Tcp(new))), What::Sent(Packet::Tcp(again))) => {
            let is_again = again.len > 0 && again.seq < end && pair.times_sent(again.seq) > 0;
            if new.is_bare_ack() {
                return (is_out && is_again && undone.is_some()).then_some(Then::Stop);
            }
            let is_behind = new.seq > again.seq && pair.times_sent(new.seq) > 0;
            // Or the same data or the first, by its timeout.
            let is_timeout =
                new.seq <= again.seq && pair.times_sent(new.seq) > 0 && pair.kernel?.at > pair.stack?.at;
            let is_next = is_behind || is_timeout || new.seq == top;
            // New data, or only a FIN.
            is_again && new.end() > new.seq && is_next && (undone.is_some() || is_undone())
        }
        (Some(What::Sent(Packet::Tcp(again))), What::State(_, stack)) => {
            // The kernel's timer does not wait for what was sent later, and what the repair had found lost as well.
            let acked = stack.info.as_ref()?.get("bytes_acked")?;
            let is_undone = is_open(stack) && repair.is_some() && acked + 1 < u64::from(end);
            let is_sooner = again.seq == pair.cause()?.ack && pair.times_sent(again.seq) == 1;
            is_undone && is_sooner && again.len > 0 && pair.has_sent_later_before_a_repair(again.seq)
        }
        _ => false,
    };
    (is_out && is_judged).then_some(Then::Stop)
}

/// Whether the kernel has timed out behind an undone repair, and has sent the first segment just when the stack found it lost: its timer
/// of reordering finds only later segments lost, which the window has no room for, and leaves the time since the first was sent.
fn times_out_instead(pair: &Pair<'_>, kernel: &State) -> bool {
    let figure = |name| kernel.info.as_ref()?.get(name);
    let is_first = |again: &Segment| {
        figure("bytes_acked").is_some_and(|acked| acked + 1 >= u64::from(again.seq)) && again.len > 0
    };
    let again = pair.earlier.last().and_then(Record::segment);
    figure("ca_state") == Some(4)
        && figure("retransmits") == Some(1)
        && again.is_some_and(|again| is_first(again) && pair.times_sent(again.seq) == 2)
}

/// Whether the acknowledgment in the peer's latest segment undoes a repair: it echoes the first transmission, or, after
/// a timeout, covers data that was sent once.
fn acknowledges_an_original(pair: &Pair<'_>) -> bool {
    let ca_state = latest_figure(pair.earlier, "ca_state");
    let Some(cause) = pair.acks().next_back() else { return false };
    let una = pair.acks().rev().skip(1).map(|segment| segment.ack).max().unwrap_or(0);
    let is_old = match cause.timestamp() {
        Some((_, Echo::Is(_))) => true,
        Some((_, Echo::Last)) => was_repeated_since_the_latest_echo(pair, una),
        Some((_, Echo::Nothing)) | None => false,
    };
    let mut covered = pair.texts().filter(|text| text.seq >= una && text.end() <= cause.ack);
    // Or the end of a segment whose beginning was sent again, without room for all of it beside SACK blocks.
    let is_once = covered.any(|text| pair.times_sent(text.seq) == 1)
        || pair.times_sent(cause.ack.saturating_sub(1)) == 1;
    let is_beyond = pair.times_sent(una) > 1 && is_once;
    let is_repaired = ca_state == Some(4) || (is_old && ca_state == Some(3));
    is_repaired && cause.ack > una && (is_old || is_beyond)
}

/// Whether the kernel has retransmitted this byte at the time of the latest event, so that a segment that arrives then
/// echoes what was sent before.
fn was_repeated_since_the_latest_echo(pair: &Pair<'_>, seq: u32) -> bool {
    let Some(event) = pair.index().and_then(|index| pair.scenario.events.get(index)) else { return false };
    let holds = |record: &&Record| matches!(&record.what, What::Sent(Packet::Tcp(text)) if (text.seq..text.end()).contains(&seq));
    let latest = pair.earlier.iter().rev().find(holds);
    pair.times_sent(seq) > 1
        && latest.is_some_and(|record| record.at >= Duration::from_millis(event.at_ms.into()))
}

/// Whether the peer's latest segment undoes a timeout: it reports a segment that was sent once, before the timeout, or
/// at any time if the first segment was retransmitted by a fast recovery as well.
fn undoes_a_timeout(pair: &Pair<'_>) -> bool {
    let is_repaired = latest_figure(pair.earlier, "ca_state") == Some(4);
    let (una, report) = (pair.acks().map(|segment| segment.ack).max(), pair.acks().next_back());
    let is_original = report.and_then(|report| report.sack().first().copied());
    let is_original = is_original.is_some_and(|block| pair.times_sent_to(block.1) == 1);
    let is_first = una.is_some_and(|una| pair.times_sent(una) >= 3);
    is_repaired
        && is_original
        && (is_first || report.is_some_and(|report| is_older_than_a_repetition(pair, report)))
}

/// Whether the kernel sent the first data that this segment reports before it last retransmitted anything.
fn is_older_than_a_repetition(pair: &Pair<'_>, report: &Segment) -> bool {
    let Some((_, end)) = report.sack().first() else { return false };
    let sent_to = |record: &Record| record.segment().is_some_and(|text| text.len > 0 && text.end() == *end);
    let mut later = pair.earlier.iter().skip_while(|record| !sent_to(record));
    later.any(|record| record.segment().is_some_and(|text| text.len > 0 && text.end() < *end))
}

/// A repair is undone if the peer reports each retransmission as a duplicate. The kernel also counts other reports: of
/// a segment that was sent once, which the path has duplicated (RFC 3708 section 3 requires a retransmitted segment);
/// the same report again; and of a tail loss probe sent after the repair had ended.
pub(super) fn undo_by_another_duplicate(pair: &Pair<'_>) -> Option<Then> {
    let Action::Segment(report) = &pair.scenario.events.get(pair.index()?)?.action else { return None };
    let duplicate = *report.sack().first()?;
    let is_once = pair.times_sent_to(duplicate.1) == 1;
    // Or the same report arrives again.
    let mut before = pair.taken_before(pair.index()?);
    let is_again = before.any(|old| old.sack().first() == Some(&duplicate) && old.ack == report.ack);
    let is_later = end_of_the_latest_repair(pair).is_some_and(|end| end <= duplicate.0);
    let is_it = duplicate.1 <= report.ack && (is_once || is_again || is_later);
    // The window that the undo restores may be used at once.
    if let What::Sent(Packet::Tcp(text)) = &pair.kernel?.what {
        let is_new = text.len > 0 && pair.times_sent(text.seq) == 0;
        let is_later = pair.why.starts_with("time:") && pair.kernel?.at < pair.stack?.at;
        let is_more = is_new && (is_later || pair.why == "the kernel sends text, the stack waits");
        return (is_it && is_more && is_once).then_some(Then::Stop);
    }
    let (kernel, stack) = pair.states()?;
    let (kernel, stack) = (kernel.info.as_ref()?, stack.info.as_ref()?);
    let is_undone = ["snd_cwnd", "snd_ssthresh"].iter().any(|name| kernel.get(name) > stack.get(name));
    let is_window = pair.why.starts_with("snd_cwnd:") || pair.why.starts_with("snd_ssthresh:");
    (is_it && is_undone && is_window).then_some(Then::Stop)
}

/// The end of what the kernel had sent when it was last in a repair.
fn end_of_the_latest_repair(pair: &Pair<'_>) -> Option<u32> {
    let (mut top, mut end) = (1, None);
    for record in pair.earlier {
        match &record.what {
            What::Sent(Packet::Tcp(text)) => top = top.max(text.end()),
            What::State(_, State { info: Some(info), .. }) if info.get("ca_state") >= Some(3) => {
                end = Some(top)
            }
            _ => {}
        }
    }
    end
}

/// A repair is undone if the peer reports each retransmission as a duplicate. The kernel also counts what it meant to
/// retransmit but could not, because the peer's window had become smaller. The peer never reports that.
pub(super) fn undo_of_what_did_not_fit(pair: &Pair<'_>) -> Option<Then> {
    let events = &pair.scenario.events;
    let Action::Segment(report) = &events.get(pair.index()?)?.action else { return None };
    let duplicate = *report.sack().first()?;
    let is_reported = duplicate.1 <= report.ack && pair.times_sent(duplicate.0) > 1;
    let (mut top, mut did_not_fit) = (1, false);
    for record in pair.earlier {
        match &record.what {
            What::Sent(Packet::Tcp(text)) => top = top.max(text.end()),
            What::State(index, _) => {
                let told = events.get(index + 1).map(|event| &event.action);
                did_not_fit |= matches!(told, Some(Action::Segment(told)) if pair.edge(told) < top);
            }
            _ => {}
        }
    }
    let is_undone = match (&pair.kernel?.what, &pair.stack?.what) {
        (
            What::State(_, State { info: Some(kernel), .. }),
            What::State(_, State { info: Some(stack), .. }),
        ) => ["snd_cwnd", "snd_ssthresh"].iter().any(|name| kernel.get(name) < stack.get(name)),
        // The restored window is used at once.
        (What::State(..), What::Sent(Packet::Tcp(new))) => new.len > 0 && pair.times_sent(new.seq) == 0,
        _ => false,
    };
    (is_reported && did_not_fit && is_undone).then_some(Then::Stop)
}

/// In Sockeye, each round trip in which the peer reports a needless retransmission gives holes more time (RFC 8985
/// section 6.2 step 4). In the kernel this is so only if reordering was seen: it finds lost at once what a timer finds
/// in Sockeye.
pub(super) fn time_behind_a_duplicate(pair: &Pair<'_>) -> Option<Then> {
    let What::Sent(Packet::Tcp(again)) = &pair.kernel?.what else { return None };
    let is_repaired = again.len > 0 && pair.times_sent(again.seq) == 1;
    let waits = pair.stack.is_none_or(|stack| match &stack.what {
        What::Sent(Packet::Tcp(text)) => {
            text.seq != again.seq || stack.at > pair.kernel.map_or(stack.at, |kernel| kernel.at)
        }
        _ => true,
    });
    let has_duplicates = latest_figure(pair.earlier, "dsack_dups") > Some(0);
    let has_order = latest_figure(pair.earlier, "reordering") == Some(3);
    let is_reported =
        pair.acks().next_back().is_some_and(|told| told.sack().iter().any(|(_, end)| *end > told.ack));
    (is_repaired && waits && has_duplicates && has_order && is_reported).then_some(Then::Stop)
}

/// One segment acknowledges the beginning of a write and reports what is behind a hole. The kernel takes the round trip from what is
/// acknowledged, so the hole is lost only when the timer of reordering fires; until then it sends new text. It is the same
/// in a recovery if the acknowledgment ends within a segment of a write.
pub(super) fn hole_beside_an_acknowledgment(pair: &Pair<'_>) -> Option<Then> {
    if has_waited_for_a_rest(pair) {
        return Some(Then::Stop);
    }
    let (cause, stack) = (pair.cause()?, pair.stack?);
    let What::Sent(Packet::Tcp(again)) = &stack.what else { return None };
    let waits = pair.kernel.is_none_or(|kernel| match &kernel.what {
        What::Sent(Packet::Tcp(text)) if text.len > 0 && pair.times_sent(text.seq) == 0 => true,
        What::Sent(_) => kernel.at > stack.at + JIFFY,
        _ => true,
    });
    let una = pair.acks_before(pair.index()?).map(|told| told.ack).max().unwrap_or(1);
    let has_hole = cause.ack > una && cause.sack().iter().any(|(start, _)| *start > cause.ack);
    let is_hole = again.len > 0 && again.seq >= cause.ack && pair.times_sent(again.seq) == 1;
    let is_rest =
        again.seq == cause.ack && cause.ack > una && is_cut_from_what_is_acknowledged(pair, cause.ack);
    (waits && (has_hole || is_rest) && is_hole).then_some(Then::Stop)
}

/// Whether the timer of reordering has found the rest of a segment lost in the kernel, behind the acknowledgment before which the stack found it lost:
/// its window, which is computed with the acknowledgment, counts the rest as in flight.
fn has_waited_for_a_rest(pair: &Pair<'_>) -> bool {
    let (Some((kernel, stack)), Some(cause), Some(index)) = (pair.states(), pair.cause(), pair.index())
    else {
        return false;
    };
    let figure = |state: &State, name| state.info.as_ref()?.get(name);
    let is_recovery = [kernel, stack].iter().all(|state| figure(state, "ca_state") == Some(3));
    let is_larger = figure(kernel, "snd_cwnd") > figure(stack, "snd_cwnd");
    let came = pair.scenario.events.get(index).map(|event| event.at());
    let is_rest = |record: &Record| {
        let is_late = came.is_some_and(|came| record.at > came + JIFFY);
        is_late && record.segment().is_some_and(|text| text.len > 0 && text.seq == cause.ack)
    };
    let again = pair.earlier.iter().rev().find(|record| record.segment().is_some());
    is_recovery
        && is_larger
        && pair.why.starts_with("snd_cwnd:")
        && again.is_some_and(is_rest)
        && is_cut_from_what_is_acknowledged(pair, cause.ack)
}

/// Whether an acknowledgment in a recovery ends within a segment that was sent together with the one before it, which
/// it acknowledges.
fn is_cut_from_what_is_acknowledged(pair: &Pair<'_>, ack: u32) -> bool {
    let texts = || pair.earlier.iter().filter_map(|record| Some((record.at, record.segment()?)));
    let Some((cut_at, cut)) = texts().rfind(|(_, text)| text.seq < ack && ack < text.end()) else {
        return false;
    };
    let together =
        |(at, text): (Duration, &Segment)| text.end() == cut.seq && cut_at - at.min(cut_at) < JIFFY;
    latest_figure(pair.earlier, "ca_state") == Some(3) && texts().any(together)
}
