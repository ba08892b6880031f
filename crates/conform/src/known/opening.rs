//! Differences in handshakes, and in the state in which a connection begins.
//!
//! Tests: as those of `known.rs`.

use super::{Then, reports};
use std::time::Duration;

use super::pair::Pair;
use crate::codec::{Packet, Report, Reported};
use crate::compare::SLACK;
use crate::scenario::{Action, Event, SockOpt};
use crate::segment::{Echo, Flags, Opt, Segment};
use crate::trace::{Record, State, What};

/// The kernel's first window is a multiple of the segment size; Sockeye's is the receive buffer.
pub(super) fn first_window(pair: &Pair<'_>) -> Option<Then> {
    let (kernel, stack) = pair.segments()?;
    let is_near = kernel.win.abs_diff(stack.win) < 1460;
    (pair.why.starts_with("window:") && kernel.flags.has(Flags::SYN) && is_near).then_some(Then::GoOn)
}

/// A SYN of Sockeye announces the segment size that its device takes. The kernel's, up to 6.18, announces no more than an
/// ICMP report has told of the path in the other direction.
pub(super) fn size_behind_a_report(pair: &Pair<'_>) -> Option<Then> {
    let is_smaller = match pair.states() {
        Some((kernel, stack)) => {
            let advmss = |state: &State| state.info.as_ref()?.get("advmss");
            pair.why.starts_with("advmss:") && advmss(kernel)? < advmss(stack)?
        }
        None => {
            let (kernel, stack) = pair.segments()?;
            pair.why.starts_with("option: mss") && kernel.mss()? < stack.mss()?
        }
    };
    let is_report =
        |event: &Event| matches!(event.action, Action::Report(Report { what: Reported::TooBig(_), .. }));
    let is_told = pair.scenario.events[..pair.begin.min(pair.scenario.events.len())].iter().any(is_report);
    (is_smaller && is_told).then_some(Then::GoOn)
}

/// The kernel resets a half-open connection for a second SYN in its window. It takes a SYN with an ACK and with data or a
/// FIN for the last segment of the handshake, and a SYN with a FIN for the first SYN again. Sockeye answers each with an
/// ACK (RFC 9293 section 3.10.7.4).
pub(super) fn syn_in_syn_received(pair: &Pair<'_>) -> Option<Then> {
    let cause = pair.cause()?;
    let (has_ack, has_fin) = (cause.flags.has(Flags::ACK), cause.flags.has(Flags::FIN));
    let is_challenge = |answer: &Segment| answer.flags == Flags::ACK && answer.seq == 1 && answer.len == 0;
    let is_more = has_ack && (has_fin || cause.len > 0);
    let is_it = match pair.segments() {
        Some((kernel, stack)) if is_challenge(stack) => {
            let is_connected = is_more && is_challenge(kernel) && pair.why.starts_with("option: ts");
            let is_again = !has_ack && has_fin && kernel.flags.has(Flags::SYN);
            kernel.flags.has(Flags::RST) || is_connected || is_again
        }
        Some(_) => false,
        None => pair.states().is_some_and(|(kernel, stack)| {
            is_more && kernel.ready.readable && !stack.ready.readable && kernel.info.is_none()
        }),
    };
    (is_it && cause.flags.has(Flags::SYN)).then_some(Then::Stop)
}

/// The kernel answers a retransmitted SYN as it answered the first, with ECN. In Sockeye the latest SYN decides, and
/// one that does not ask for ECN gets none (RFC 3168 section 6.1.1).
pub(super) fn ecn_of_a_repeated_syn(pair: &Pair<'_>) -> Option<Then> {
    let (kernel, stack) = pair.segments()?;
    let asks = |segment: &Segment| segment.flags.has(Flags::SYN) && segment.flags.has(Flags::ECE);
    let Some(Action::Segment(cause)) = pair.event else { return None };
    let is_dropped = cause.flags.has(Flags::SYN) && !asks(cause) && pair.peer().any(|(_, first)| asks(first));
    (pair.why.starts_with("flags:") && is_dropped && asks(kernel) && !asks(stack)).then_some(Then::Stop)
}

/// The kernel takes a wrong acknowledgment of its SYN for one of an earlier connection, and retransmits the SYN at
/// once. In Sockeye the timer retransmits it (RFC 6298).
pub(super) fn syn_after_a_wrong_acknowledgment(pair: &Pair<'_>) -> Option<Then> {
    let (at, What::Sent(Packet::Tcp(kernel))) = (pair.kernel?.at, &pair.kernel?.what) else { return None };
    let is_again = kernel.flags.has(Flags::SYN) && !kernel.flags.has(Flags::ACK);
    let is_wrong = |event: &Event| match &event.action {
        Action::Segment(cause) => {
            cause.flags.has(Flags::ACK)
                && cause.ack != 1
                && (event.at()..event.at() + SLACK + SLACK).contains(&at)
        }
        _ => false,
    };
    let is_active = pair.scenario.any(|action| *action == Action::Connect);
    (is_again && is_active && pair.scenario.events.iter().any(is_wrong)).then_some(Then::Stop)
}

/// If a SYN is retransmitted with another timestamp, the kernel echoes the first timestamp, and Sockeye the latest (RFC
/// 7323 section 4.3). So does what is sent until the peer sends another timestamp.
pub(super) fn timestamp_of_a_repeated_syn<'a>(pair: &Pair<'a>) -> Option<Then> {
    let (kernel, stack) = pair.segments()?;
    let told = pair.peer().filter_map(|(_, told)| Some((told.flags.has(Flags::SYN), told.timestamp()?.0)));
    let is_syn_ack = kernel.is_syn_ack() && stack.is_syn_ack();
    let echo = |sent: &Segment| match sent.timestamp() {
        Some((_, Echo::Is(value))) => Some(value),
        _ => None,
    };
    let mut syns = told.clone().filter(|(is_syn, _)| *is_syn).map(|(_, value)| value);
    let is_it = echo(kernel) == syns.next() && echo(stack) == syns.next_back();
    let is_it = is_it && (is_syn_ack || told.clone().all(|(is_syn, _)| is_syn));
    // Everything else is the same: what comes behind this option was not compared.
    let others = |sent: &'a Segment| sent.options.iter().filter(|option| !matches!(option, Opt::Ts(..)));
    let value = |sent: &Segment| Some(sent.timestamp()?.0);
    let apart = pair.kernel?.at.abs_diff(pair.stack?.at) + SLACK;
    let is_alike = others(kernel).eq(others(stack))
        && u128::from(value(kernel)?.abs_diff(value(stack)?)) <= apart.as_millis();
    (pair.why.starts_with("option: ts") && is_it && is_alike).then_some(Then::GoOn)
}

/// The kernel accepts the last segment of the handshake only if it echoes the timestamp of a SYN-ACK. Sockeye also
/// accepts the timestamp of a challenge ACK that was sent in between.
pub(super) fn echo_of_a_challenge(pair: &Pair<'_>) -> Option<Then> {
    // Sockeye has accepted the segment: it acknowledges its data, or the connection can be accepted, or waits for data.
    let is_taken = match &pair.stack?.what {
        What::State(_, stack) => stack.info.is_none() && (stack.ready.readable || defers(pair)),
        What::Sent(Packet::Tcp(ack)) => {
            // Or it reports data behind a hole.
            let is_behind = ack.sack().iter().any(|block| block.0 > ack.ack) && pair.why == "options";
            is_behind || (ack.ack > 1 && pair.why.starts_with("acknowledgment:"))
        }
        _ => false,
    };
    let (answers, waits) = match &pair.kernel?.what {
        What::State(_, kernel) => (false, kernel.info.is_none() && !kernel.ready.readable),
        // The kernel sends another challenge ACK.
        What::Sent(Packet::Tcp(ack)) => {
            let next = pair.earlier.iter().rev().find_map(|record| match &record.what {
                What::Sent(Packet::Tcp(syn)) if syn.flags.has(Flags::SYN) => Some(syn.ack),
                _ => None,
            });
            (ack.flags == Flags::ACK && ack.seq == 1 && Some(ack.ack) == next, false)
        }
        _ => (false, false),
    };
    let is_challenged = pair.earlier.iter().any(|record| {
        matches!(&record.what, What::Sent(Packet::Tcp(ack)) if ack.flags == Flags::ACK && ack.timestamp().is_some())
    });
    (is_taken && (answers || waits) && is_challenged).then_some(Then::Stop)
}

/// A listener that waits for data (TCP_DEFER_ACCEPT) gets an acknowledgment without data, whose number is not the next:
/// something before it was lost. For the kernel the connection is ready to be accepted.
pub(super) fn later_number_without_text(pair: &Pair<'_>) -> Option<Then> {
    let (kernel, stack) = pair.states()?;
    let cause = pair.cause()?;
    let is_later = cause.flags == Flags::ACK && cause.len == 0 && cause.seq > 1;
    let is_ready = kernel.ready.readable && !stack.ready.readable && kernel.info.is_none();
    (is_later && is_ready && defers(pair)).then_some(Then::Stop)
}

/// Whether the listener waits for data.
fn defers(pair: &Pair<'_>) -> bool {
    pair.scenario.any(|action| matches!(action, Action::Set(SockOpt::DeferAccept, 1..)))
}

/// After a SYN or SYN-ACK was lost, and without a round trip, the timeout is three seconds (RFC 6298 section 5.7). A
/// report that ends its back-off begins with that again (RFC 6069), and in the kernel with one second.
pub(super) fn report_behind_a_lost_syn(pair: &Pair<'_>) -> Option<Then> {
    let (kernel, stack) = pair.states()?;
    let (kernel, stack) = (kernel.info.as_ref()?.rto, stack.info.as_ref()?);
    // Of several doublings, the report ends one.
    let doubled = 1 << stack.get("backoff")?.min(31);
    let is_three_seconds = stack.rto == RTO_AFTER_A_LOST_SYN * doubled && stack.rto == kernel * 3;
    let is_it = pair.why.starts_with("rto:") && is_three_seconds;
    (is_it && pair.scenario.any(reports::is_report)).then_some(Then::Stop)
}

/// In SYN-RECEIVED, Sockeye checks the sequence number first (RFC 9293 section 3.10.7.4). The kernel checks the
/// acknowledgment first, and answers with a reset.
///
/// The peer echoes the timestamp of Sockeye's answer, and so shows a shorter round trip than for the kernel.
pub(super) fn order_of_checks_in_syn_received(pair: &Pair<'_>) -> Option<Then> {
    if let Some((kernel, stack)) = pair.states() {
        // The peer echoes the answer instead of the latest SYN-ACK.
        let latest = |flags| {
            let mut sent = pair.earlier.iter().map(Record::segment);
            sent.rposition(|sent| sent.is_some_and(|sent| sent.flags == flags))
        };
        let refused = latest(Flags::RST);
        let is_refused = refused.is_some() && latest(Flags::SYN.with(Flags::ACK)) < refused;
        let is_first = pair.texts().next().is_none();
        let is_shorter = stack.info.as_ref()?.rto < kernel.info.as_ref()?.rto;
        let is_it = pair.why.starts_with("rto:") && is_first && is_shorter;
        return (is_it && is_refused).then_some(Then::Stop);
    }
    if is_old_reset(pair) {
        return Some(Then::Stop);
    }
    let (kernel, stack) = pair.segments()?;
    let Some(Action::Segment(cause)) = pair.event else { return None };
    let is_answer = kernel.flags == Flags::RST && kernel.seq == cause.ack && stack.flags == Flags::ACK;
    // Another connection begins with another number.
    let syn_ack = pair.earlier.iter().filter_map(Record::segment).rfind(|sent| sent.is_syn_ack());
    let first = syn_ack.map_or(1, |syn_ack| syn_ack.seq + 1);
    (is_answer && stack.len == 0 && stack.seq == first && cause.ack != first).then_some(Then::GoOn)
}

/// Whether the stack answers a reset in SYN-RECEIVED, which the kernel drops for its old timestamp, or the reset has ended
/// the stack's handshake, so that it answers what comes later with a reset.
fn is_old_reset(pair: &Pair<'_>) -> bool {
    let is_open = |record: &Record| matches!(&record.what, What::State(_, State { info: Some(_), .. }));
    // Also among options that are sent unchanged.
    let unchanged = |option: &Opt| match option {
        Opt::Bytes(bytes) => match bytes[..] {
            [8, 10, a, b, c, d, ..] => Some(u32::from_be_bytes([a, b, c, d])),
            _ => None,
        },
        _ => None,
    };
    let value = |segment: &Segment| {
        let value = segment.timestamp().map(|(value, _)| value);
        value.or_else(|| segment.options.iter().find_map(unchanged))
    };
    let is_old = |cause: &Segment| {
        let is_timed = cause.flags.has(Flags::RST) && value(cause).is_some();
        is_timed && pair.peer().any(|(_, earlier)| value(earlier) > value(cause))
    };
    let is_answered = match (pair.only_the_stack_answers(), pair.stack.and_then(Record::segment)) {
        (Some((cause, _)), _) => is_old(cause),
        (None, Some(reset)) if reset.flags == Flags::RST && !pair.kernel_resets() => {
            pair.peer().any(|(index, cause)| is_old(cause) && cause.seq == pair.rcv_nxt_before(index))
        }
        _ => false,
    };
    is_answered && !pair.earlier.iter().any(is_open)
}

/// When two SYNs cross, Sockeye's SYN-ACK has only the options that the peer's SYN has. The kernel's has all options of
/// its own SYN.
pub(super) fn options_of_a_crossed_syn_ack(pair: &Pair<'_>) -> Option<Then> {
    let (kernel, stack) = pair.segments()?;
    let both = Flags::SYN.with(Flags::ACK);
    let is_active = pair.scenario.any(|action| *action == Action::Connect);
    let is_it = pair.why == "options" && kernel.flags.has(both) && stack.flags.has(both);
    let count = |segment: &Segment| segment.options.iter().filter(|option| **option != Opt::Nop).count();
    (is_active && is_it && count(kernel) > count(stack)).then_some(Then::Stop)
}

/// Sockeye accepts data and a FIN in a SYN-ACK (RFC 9293 section 3.10.7.3, fifth). The kernel drops them.
pub(super) fn text_of_a_syn_ack(pair: &Pair<'_>) -> Option<Then> {
    let (kernel, stack) = pair.segments()?;
    let Some(Action::Segment(cause)) = pair.event else { return None };
    let is_syn_ack = cause.flags.has(Flags::SYN) && cause.flags.has(Flags::ACK);
    let is_it = kernel.ack == cause.seq + 1 && (kernel.ack + 1..=cause.end()).contains(&stack.ack);
    (is_syn_ack && is_it && pair.why.starts_with("acknowledgment:")).then_some(Then::Stop)
}

/// A connection that was made from a cookie keeps the flow label of its SYN-ACK. The kernel uses another one, since it
/// stored none.
pub(super) fn label_of_a_cookie(pair: &Pair<'_>) -> Option<Then> {
    let mut sent = pair.earlier.iter().rev().filter_map(Record::segment);
    // The SYN-ACK, or the end of an earlier connection.
    let is_end =
        |segment: &Segment| [Flags::SYN, Flags::FIN, Flags::RST].iter().any(|flag| segment.flags.has(*flag));
    let is_first =
        sent.next().is_some_and(is_end) || pair.peer().any(|(_, reset)| reset.flags.has(Flags::RST));
    let is_it = pair.scenario.has_cookies() && pair.why == "new flow label: 0 is not 1";
    (is_it && is_first).then_some(Then::GoOn)
}

/// Sockeye's cookie for another SYN of the same peer has no relation to the first. The kernel's has grown by the same
/// amount as the peer's number, plus at most the number of sizes.
pub(super) fn number_of_a_cookie(pair: &Pair<'_>) -> Option<Then> {
    let (kernel, stack) = pair.segments()?;
    let both = Flags::SYN.with(Flags::ACK);
    let grown = kernel.seq.wrapping_sub(kernel.ack.wrapping_sub(1)) as i32;
    let is_later = kernel.flags.has(both) && stack.flags.has(both) && grown.unsigned_abs() < SIZES_OF_COOKIES;
    let is_it = pair.scenario.has_cookies() && pair.why.starts_with("sequence number:");
    (is_it && is_later).then_some(Then::Stop)
}

/// Sockeye's cookie is valid only with the two numbers of its handshake. The kernel's is valid with any two numbers of
/// a matching difference.
pub(super) fn numbers_that_fit_a_cookie(pair: &Pair<'_>) -> Option<Then> {
    let Some(Action::Segment(cause)) = pair.event else { return None };
    let is_cookie =
        pair.scenario.has_cookies() && cause.flags.has(Flags::ACK) && !cause.flags.has(Flags::SYN);
    let is_other = (cause.seq, cause.ack) != (1, 1);
    let fits = (cause.seq.wrapping_sub(cause.ack) as i32).unsigned_abs() < SIZES_OF_COOKIES;
    let is_refused = match &pair.stack?.what {
        What::Sent(Packet::Tcp(reset)) => reset.flags == Flags::RST && reset.seq == cause.ack,
        _ => false,
    };
    (is_cookie && is_other && fits && is_refused).then_some(Then::Stop)
}

/// Sockeye's cookie stores one of eight sizes, none larger than the peer's. The kernel's stores one of four, and over
/// IPv6 1,220 bytes even if the peer asks for less.
pub(super) fn size_of_a_cookie(pair: &Pair<'_>) -> Option<Then> {
    let differs = match pair.segments() {
        Some((kernel, stack)) => pair.why.starts_with("length:") && kernel.seq == stack.seq,
        None => pair.why.starts_with("snd_mss:"),
    };
    let mss = pair.peer().filter(|(_, syn)| syn.flags.has(Flags::SYN)).find_map(|(_, syn)| syn.mss());
    let sizes: &[u16] =
        if pair.scenario.is_ipv6 { &[1220, 1420, 1440, 8940] } else { &[536, 1300, 1440, 1460] };
    let theirs = sizes.iter().rev().find(|size| Some(**size) <= mss).or(sizes.first());
    let ours =
        [88, 536, 1220, 1300, 1420, 1440, 1460, 8940].into_iter().rev().find(|size| Some(*size) <= mss);
    // Sockeye's size is also not larger than the listener's option allows.
    let has_option = pair.scenario.any(|action| matches!(action, Action::Set(SockOpt::MaxSeg, _)));
    let is_another = theirs.copied() != ours || has_option;
    (pair.scenario.has_cookies() && differs && is_another).then_some(Then::Stop)
}

/// Number of sizes that the kernel's cookies can store.
const SIZES_OF_COOKIES: u32 = 4;
/// RFC 6298 section 5.7.
const RTO_AFTER_A_LOST_SYN: Duration = Duration::from_secs(3);
