//! Urgent data: when its mark takes effect, and what a segment announces about it.
//!
//! Tests: as those of `known.rs`.

use super::{Pair, Then};
use crate::scenario::{Action, How, Question};
use crate::segment::{Flags, Segment};
use crate::trace::{Ready, What};

/// In the kernel, an urgent pointer and the data with the urgent byte take effect when they arrive. In Sockeye they
/// take effect when all data before them has arrived (RFC 9293 section 3.10.7.4, sixth). The kernel also takes a byte
/// of the header before the data for the urgent byte.
pub(super) fn urgent_out_of_order(pair: &Pair<'_>) -> Option<Then> {
    let marks: Vec<u32> = marks(pair).collect();
    let has_mark = |text: &Segment| {
        marks.iter().any(|mark| (text.seq..text.seq + text.len + HEADER_MAX).contains(&(mark + HEADER_MAX)))
    };
    let is_ahead = |(index, text): (usize, &Segment)| {
        let is_early = text.seq > pair.rcv_nxt_before(index) || is_behind_a_fin(pair, (index, text));
        is_early && (text.flags.has(Flags::URG) || has_mark(text))
    };
    (is_urgent_in_the_kernel(pair) && pair.peer().any(is_ahead)).then_some(Then::Stop)
}

/// Urgent data after a shutdown of both directions resets the connection. In the kernel, its mark still replaces the
/// earlier one.
pub(super) fn mark_behind_a_shutdown(pair: &Pair<'_>) -> Option<Then> {
    let (kernel, _) = pair.states()?;
    let is_closed = kernel.info.as_ref().is_some_and(|info| info.state == "CLOSED");
    let is_shut = pair.scenario.any(|action| matches!(action, Action::Shutdown(How::Both | How::Read)));
    let is_urgent = |(_, text): (usize, &Segment)| text.flags.has(Flags::URG);
    let is_it = is_urgent_in_the_kernel(pair) && is_closed && is_shut;
    (is_it && pair.peer().any(is_urgent)).then_some(Then::Stop)
}

/// Whether urgent data waits only in the kernel, and nothing else differs.
fn is_urgent_in_the_kernel(pair: &Pair<'_>) -> bool {
    pair.states().is_some_and(|(kernel, stack)| {
        kernel.ready == Ready { priority: true, ..stack.ready } && !stack.ready.priority
    })
}

/// The marks that the peer has announced: the numbers of the last urgent bytes.
fn marks<'a>(pair: &Pair<'a>) -> impl Iterator<Item = u32> + use<'a> {
    let urgent: Vec<_> = pair.peer().filter(|(_, segment)| segment.flags.has(Flags::URG)).collect();
    urgent.into_iter().map(|(_, segment)| segment.seq + u32::from(segment.urg.saturating_sub(1)))
}

/// Whether the peer's FIN was sent before this segment, and has a lower sequence number.
fn is_behind_a_fin(pair: &Pair<'_>, (index, segment): (usize, &Segment)) -> bool {
    let mut before = pair.peer().take_while(|(at, _)| *at < index);
    before.any(|(_, fin)| fin.flags.has(Flags::FIN) && fin.end() <= segment.seq)
}

/// Sockeye ignores an urgent pointer beyond the peer's FIN (RFC 9293 section 3.10.7.4, sixth). In the kernel it
/// replaces the earlier one.
pub(super) fn urgent_behind_a_fin(pair: &Pair<'_>) -> Option<Then> {
    let is_behind =
        |urgent: (usize, &Segment)| urgent.1.flags.has(Flags::URG) && is_behind_a_fin(pair, urgent);
    let is_it = match (&pair.kernel?.what, &pair.stack?.what) {
        (What::State(_, kernel), What::State(_, stack)) => {
            stack.ready == Ready { priority: true, ..kernel.ready } && !kernel.ready.priority
        }
        // The kernel then reads the earlier urgent byte as any other byte; it is no longer marked.
        (What::Returned(_, Ok(kernel)), What::Returned(_, Ok(stack))) => {
            *kernel == stack + 1 || (is_asked(pair) && *stack == kernel + 1) || ends_at_a_mark(pair, *stack)
        }
        _ => false,
    };
    (is_it && pair.peer().any(is_behind)).then_some(Then::Stop)
}

/// Whether a read of so many bytes ends before an urgent byte.
fn ends_at_a_mark(pair: &Pair<'_>, count: u32) -> bool {
    let action = |index: usize| pair.scenario.events.get(index).map(|event| &event.action);
    let reads = pair.earlier.iter().filter_map(|record| match record.what {
        What::Returned(index, Ok(count)) if matches!(action(index), Some(Action::Read(_))) => Some(count),
        _ => None,
    });
    let next = 1 + reads.sum::<u32>() + count;
    matches!(pair.event, Some(Action::Read(_))) && marks(pair).any(|mark| mark == next)
}

/// Whether the event asks if the next byte is the mark (SIOCATMARK).
fn is_asked(pair: &Pair<'_>) -> bool {
    pair.event == Some(&Action::Ask(Question::Mark))
}

/// In Sockeye, a mark at the sequence number of the peer's FIN is never reached, and stays. In the kernel, the end of
/// the stream passes it, and a byte of a later segment's header is taken for the urgent byte.
pub(super) fn mark_on_a_fin(pair: &Pair<'_>) -> Option<Then> {
    let is_on_a_fin = |(_, fin): (usize, &Segment)| {
        fin.flags.has(Flags::FIN) && marks(pair).any(|mark| mark == fin.seq + fin.len)
    };
    let is_passed = match (&pair.kernel?.what, &pair.stack?.what) {
        (What::Returned(_, kernel), What::Returned(_, stack)) => {
            is_asked(pair) && (*kernel, *stack) == (Ok(0), Ok(1))
        }
        _ => false,
    };
    let is_it = is_passed || is_urgent_in_the_kernel(pair);
    (is_it && pair.peer().any(is_on_a_fin)).then_some(Then::GoOn)
}

/// Sockeye's reset has no urgent pointer. The kernel's has that of any segment.
pub(super) fn pointer_of_a_reset(pair: &Pair<'_>) -> Option<Then> {
    let (kernel, stack) = pair.segments()?;
    let is_it = stack.flags.has(Flags::RST) && kernel.flags == stack.flags.with(Flags::URG);
    let is_pointer = pair.why.starts_with("urgent pointer:") && stack.urg == 0;
    (is_it && (is_pointer || pair.why.starts_with("flags:"))).then_some(Then::GoOn)
}

/// Bytes of the longest TCP header.
const HEADER_MAX: u32 = 60;
