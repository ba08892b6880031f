//! Differences in the handling of the peer's options that are malformed, or that Sockeye does not implement, and in what
//! SACK options report.
//!
//! Tests: as those of `known.rs`.

use super::Then;
use super::pair::Pair;
use crate::codec::options_of;
use crate::segment::{Echo, Segment};
use crate::trace::Record;

/// A segment has a signature (RFC 2385, RFC 5925), and nobody has a key for it. Sockeye skips the signature as an
/// option that is not implemented (RFC 9293 section 3.1, MUST-6). The kernel drops the segment.
pub(super) fn signature_of_nobody(pair: &Pair<'_>) -> Option<Then> {
    (drops(pair, Refused::Signature) || is_news_without_the_dropped(pair)).then_some(Then::Stop)
}

/// An ACK has the number of the dropped segment. The stack takes its window only if that has grown, and counts it as a duplicate without SACK. The kernel takes its
/// window, since all segments that it accepted had smaller numbers (SND.WL1).
fn is_news_without_the_dropped(pair: &Pair<'_>) -> bool {
    let Some((_, told)) = pair.peer().last().filter(|(_, told)| told.len == 0) else { return false };
    let is_refused = |segment: &Segment| refusal(&options_of(segment)) == Some(Refused::Signature);
    let before = || pair.peer().rev().skip(1).map(|(_, segment)| segment);
    let (mut refused, mut taken) =
        (before().filter(|it| is_refused(it)), before().filter(|it| !is_refused(it)));
    let counts_duplicates = pair.why.starts_with("reordering:") && !pair.has_sack();
    (counts_duplicates || pair.why.starts_with("snd_wnd:"))
        && refused.any(|segment| segment.seq == told.seq && segment.ack == told.ack)
        && taken.all(|segment| segment.seq < told.seq)
}

/// An option with an impossible length ends Sockeye's list of options; the segment is processed (RFC 9293 section 3.1,
/// MUST-7). The kernel looks for signatures first, and drops the segment if as many bytes follow as a signature takes.
pub(super) fn malformed_option(pair: &Pair<'_>) -> Option<Then> {
    drops(pair, Refused::Malformed).then_some(Then::Stop)
}

/// An answer of a half-open connection, or of a record without a socket, has no timestamps in the kernel if it would
/// echo zero (`tcp_v4_send_ack`). In Sockeye it has them as any other segment (RFC 7323 section 3.2).
pub(super) fn echo_of_zero(pair: &Pair<'_>) -> Option<Then> {
    let (kernel, stack) = pair.segments()?;
    let echoes_zero = matches!(stack.timestamp(), Some((_, Echo::Is(0) | Echo::Nothing)));
    let is_it = pair.why == "options" && echoes_zero && kernel.options.is_empty();
    (is_it && kernel.is_bare_ack() && stack.is_bare_ack()).then_some(Then::GoOn)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Refused {
    Signature,
    Malformed,
}

/// Whether the kernel has dropped a segment for this reason, and the stack shows that it has not: it was the latest, or the
/// stack acknowledges more, or echoes its timestamp.
fn drops(pair: &Pair<'_>, why: Refused) -> bool {
    let mut refused =
        pair.peer().filter(|(_, segment)| refusal(&options_of(segment)) == Some(why)).peekable();
    if refused.peek().is_none() {
        return false;
    }
    let is_latest =
        pair.peer().last().map(|(index, _)| index) == refused.clone().last().map(|(index, _)| index);
    let shows = pair.segments().is_some_and(|(kernel, stack)| {
        let echo = stack.timestamp().map(|(_, echo)| echo);
        let is_echoed =
            |(_, told): (usize, &Segment)| told.timestamp().map(|(value, _)| Echo::Is(value)) == echo;
        stack.ack > kernel.ack || (echo.is_some() && refused.clone().any(is_echoed))
    });
    is_latest || shows
}

/// Why the kernel drops a segment with these options (`tcp_do_parse_auth_options`).
fn refusal(mut options: &[u8]) -> Option<Refused> {
    while let [kind, rest @ ..] = options
        && options.len() >= SIGNATURE_LEN
        && *kind != END
    {
        let len = if *kind == NOP { 1 } else { usize::from(*rest.first()?) };
        if *kind != NOP && !(2..=options.len()).contains(&len) {
            return Some(Refused::Malformed);
        }
        match (*kind, len) {
            (SIGNATURE, SIGNATURE_LEN) | (AUTHENTICATION, 5..) => return Some(Refused::Signature),
            (SIGNATURE | AUTHENTICATION, _) => return Some(Refused::Malformed),
            _ => {}
        }
        options = &options[len..];
    }
    None
}

const END: u8 = 0;
const NOP: u8 = 1;
const SIGNATURE: u8 = 19;
const SIGNATURE_LEN: usize = 18;
const AUTHENTICATION: u8 = 29;

/// Sockeye reports as many runs behind holes as there is room for (RFC 2018 section 4). The kernel remembers four
/// (`tcp_sack_new_ofo_skb`): when others have been joined, it reports fewer.
pub(super) fn block_that_was_forgotten(pair: &Pair<'_>) -> Option<Then> {
    let (kernel, stack) = pair.segments()?;
    let (theirs, ours) = (kernel.sack(), stack.sack());
    let more = ours.strip_prefix(theirs).filter(|more| !more.is_empty())?;
    let (mut known, mut forgotten) = (Vec::<(u32, u32)>::new(), Vec::<(u32, u32)>::new());
    let covers = |one: &(u32, u32), other: &(u32, u32)| one.0 <= other.0 && other.1 <= one.1;
    for sent in pair.earlier.iter().filter_map(Record::segment) {
        let [first, others @ ..] = sent.sack() else { continue };
        // The first may report a duplicate.
        let is_duplicate = first.1 <= sent.ack || others.first().is_some_and(|second| covers(second, first));
        let Some(newest) = sent.sack().get(usize::from(is_duplicate)) else { continue };
        known.retain(|block| !covers(newest, block));
        known.insert(0, *newest);
        forgotten.extend(known.drain(BLOCKS_KNOWN.min(known.len())..));
    }
    let is_forgotten = more.iter().all(|block| forgotten.iter().any(|old| covers(block, old)));
    let is_block = pair.why.starts_with("option") || pair.why.starts_with("length:");
    let then = if kernel.len == 0 && stack.len == 0 { Then::GoOn } else { Then::Stop };
    (is_forgotten && is_block).then_some(then)
}

/// How many runs the kernel remembers for its reports (`TCP_NUM_SACKS`).
const BLOCKS_KNOWN: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_looks_for_signatures_where_there_is_room_for_one() {
        let mut signed = vec![1, 1, 19, 18];
        signed.resize(20, 0);
        assert!(refusal(&signed) == Some(Refused::Signature));
        let long = [[30, 0, 0, 0].as_slice(), &[1; 16]].concat();
        assert!(refusal(&long) == Some(Refused::Malformed));
        assert!(refusal(&long[..16]).is_none());
        let ended = [[0, 30, 0, 0].as_slice(), &[1; 16]].concat();
        assert!(refusal(&ended).is_none());
    }
}
