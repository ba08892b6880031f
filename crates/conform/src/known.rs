//! Deliberate differences. Each has its name in `docs/reference/differences.md`, "TCP beside Linux".
//!
//! A difference is known if one of the predicates accepts the two records that differ. A predicate must be narrow:
//! scenarios no longer find anything that it accepts. How the comparison goes on depends on the difference: whether the
//! rest of the traces still means something ([`Then`]).
//!
//! Tests: `tests/written.rs` checks that the page names each difference, and that its scenario shows it; `known/tests.rs` has what no predicate may
//! excuse.

mod acknowledging;
mod closing;
mod marks;
mod memory;
mod opening;
mod options;
mod pair;
mod repairing;
mod reports;
mod sending;
mod slow_start;
mod timers;
mod urgency;
mod windows;

#[cfg(test)]
mod tests;

use crate::codec::Packet;
use crate::scenario::Action;
use crate::segment::{Echo, Flags, Segment};
use crate::trace::{State, What};
use acknowledging::{
    acknowledgment_behind_the_end, acknowledgment_of_a_growing_window, acknowledgment_of_unread_text,
    acknowledgments_behind_a_hole, answer_to_a_probe, answer_told_by_ticks, arrivals_a_timeout_apart,
    delay_beside_a_timer, duplicate_at_a_joint, duplicate_beside_text, duplicate_of_an_earlier_segment,
    fin_that_fills_a_hole, limit_of_challenges, probe_before_a_measurement, quick_acknowledgment_of_a_fin,
    text_without_ect,
};
use closing::{
    abort_behind_a_fin, acknowledgment_of_a_crossed_fin, connect_that_was_given_up, fin_before_its_text,
    fin_in_byte_counts, first_number, mark_on_text_behind_a_fin, old_reset_in_fin_wait_2, push_of_a_fin,
    record_of_a_closed_socket, reset_before_a_fin, reset_in_time_wait, sack_of_a_fin,
    syn_and_fin_in_time_wait, text_before_a_fin_that_waits, text_behind_a_fin, time_wait_in_tcp_info,
    timestamp_in_time_wait,
};
use marks::answer_to_a_mark;
use memory::{
    held_text_beside_text, text_in_a_repair, use_of_the_window_beside_text, window_beside_text,
    window_probe_beside_text,
};
use opening::{
    echo_of_a_challenge, ecn_of_a_repeated_syn, first_window, label_of_a_cookie, number_of_a_cookie,
    numbers_that_fit_a_cookie, options_of_a_crossed_syn_ack, order_of_checks_in_syn_received,
    size_behind_a_report, size_of_a_cookie, syn_after_a_wrong_acknowledgment, syn_in_syn_received,
    text_of_a_syn_ack, timestamp_of_a_repeated_syn,
};
use options::{block_that_was_forgotten, echo_of_zero, malformed_option, signature_of_nobody};
pub use pair::Pair;
use repairing::{
    hole_beside_an_acknowledgment, loss_after_an_undone_repair, repair_beside_text,
    repetition_that_is_lost_again, round_trip_of_a_repetition, tail_of_a_recovery, time_behind_a_duplicate,
    time_of_an_unused_window, undo_by_another_duplicate, undo_of_what_did_not_fit,
    window_after_an_undone_repair,
};
use reports::{
    error_of_a_rare_report, error_queue_of_a_connect, report_before_text, report_of_a_larger_size,
    report_on_nothing, time_of_a_report,
};
use sending::{
    count_of_a_cut_packet, edge_of_a_rounded_window, label_behind_fast_open, packet_behind_a_pause,
    packet_of_a_small_window, probe_at_the_end_of_a_window, push_of_a_cut_packet, rest_of_a_cut_packet,
    size_that_nobody_has_told, tiny_segments,
};
use slow_start::{end_of_slow_start, step_of_the_curve};
use timers::{
    arrivals_a_wait_apart, event_between_two_timeouts, keepalive_beside_an_old_acknowledgment,
    largest_timeout, pause_behind_a_late_timer, probe_at_the_timeout, round_trip_of_a_cookie,
    round_trip_of_text_that_was_waited_for, timeout_a_round_trip_behind, user_timeout_beside_probes,
    user_timeout_of_a_syn,
};
use windows::{update_of_the_window, window_behind_an_option};

/// How the comparison goes on after a known difference.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Then {
    /// With the next records of both sides.
    GoOn,
    /// The kernel has one more record.
    SkipKernel,
    /// The stack has one more record.
    SkipStack,
    /// Not at all: the two sides are in different states from here on.
    Stop,
}

/// A known difference.
#[derive(Debug)]
pub struct Known {
    /// Its name, the first column of the page's table.
    pub name: &'static str,
    /// The written scenario that shows it.
    pub scenario: &'static str,
    /// Whether two differing records show it, and how the comparison goes on.
    pub is: fn(&Pair<'_>) -> Option<Then>,
}

/// All known differences.
pub const KNOWN: &[Known] = &[
    Known { name: "receive window", scenario: "passive-open", is: receive_window },
    Known { name: "first window", scenario: "passive-open", is: first_window },
    Known {
        name: "report behind a lost SYN",
        scenario: "report-behind-a-lost-syn",
        is: opening::report_behind_a_lost_syn,
    },
    Known {
        name: "closed socket behind a report",
        scenario: "closed-socket-behind-a-report",
        is: reports::closed_socket_behind_a_report,
    },
    Known { name: "size behind a report", scenario: "size-behind-a-report", is: size_behind_a_report },
    Known { name: "SYN in SYN-RECEIVED", scenario: "syn-in-syn-received", is: syn_in_syn_received },
    Known { name: "ECN of a repeated SYN", scenario: "ecn-syn-then-plain-syn", is: ecn_of_a_repeated_syn },
    Known { name: "window of a reset", scenario: "linger-zero", is: window_of_a_reset },
    Known { name: "text behind a FIN", scenario: "text-behind-a-fin", is: text_behind_a_fin },
    Known { name: "FIN in byte counts", scenario: "fin-retransmission", is: fin_in_byte_counts },
    Known {
        name: "unacknowledged behind the end",
        scenario: "unacknowledged-behind-the-end",
        is: closing::unacknowledged_behind_the_end,
    },
    Known { name: "TIME-WAIT in TCP_INFO", scenario: "half-close", is: time_wait_in_tcp_info },
    Known {
        name: "acknowledgment of a crossed FIN",
        scenario: "fin-crosses-text",
        is: acknowledgment_of_a_crossed_fin,
    },
    Known {
        name: "connect that was given up",
        scenario: "shutdown-in-syn-sent",
        is: connect_that_was_given_up,
    },
    Known { name: "timestamp in TIME-WAIT", scenario: "active-open", is: timestamp_in_time_wait },
    Known { name: "timestamps of a reset", scenario: "fin-wait-2-text", is: timestamps_of_a_reset },
    Known { name: "old reset in FIN-WAIT-2", scenario: "old-reset-after-close", is: old_reset_in_fin_wait_2 },
    Known {
        name: "SYN and FIN in TIME-WAIT",
        scenario: "syn-fin-in-time-wait",
        is: syn_and_fin_in_time_wait,
    },
    Known { name: "reset in TIME-WAIT", scenario: "reset-after-close", is: reset_in_time_wait },
    Known {
        name: "SYN after a wrong acknowledgment",
        scenario: "syn-sent-bad-ack",
        is: syn_after_a_wrong_acknowledgment,
    },
    Known {
        name: "search for the path's MTU",
        scenario: "search-for-the-mtu",
        is: reports::search_for_the_mtu,
    },
    Known {
        name: "report on a reassembly",
        scenario: "report-on-a-reassembly",
        is: reports::report_on_a_reassembly,
    },
    Known { name: "report told twice", scenario: "report-told-twice", is: reports::report_told_twice },
    Known { name: "base of IPv6", scenario: "base-of-ipv6", is: reports::base_of_ipv6 },
    Known {
        name: "black hole of a small segment",
        scenario: "black-hole-of-a-small-segment",
        is: reports::black_hole_of_a_small_segment,
    },
    Known {
        name: "timestamp of a repeated SYN",
        scenario: "syn-comes-again",
        is: timestamp_of_a_repeated_syn,
    },
    Known { name: "error queue of a connect", scenario: "unreachable-syn", is: error_queue_of_a_connect },
    Known { name: "report before text", scenario: "unreachable-before-text", is: report_before_text },
    Known { name: "error of a rare report", scenario: "unreachable-rare", is: error_of_a_rare_report },
    Known { name: "report on nothing", scenario: "unreachable-nothing", is: report_on_nothing },
    Known {
        name: "report of a larger size",
        scenario: "too-big-beside-a-recovery",
        is: report_of_a_larger_size,
    },
    Known { name: "time of a report", scenario: "too-big-in-flight", is: time_of_a_report },
    Known {
        name: "original behind a report on size",
        scenario: "original-behind-a-report-on-size",
        is: reports::original_behind_a_report_on_size,
    },
    Known {
        name: "size that nobody has told",
        scenario: "fast-open-without-a-size",
        is: size_that_nobody_has_told,
    },
    Known {
        name: "flow label behind Fast Open",
        scenario: "fast-open-over-another-path",
        is: label_behind_fast_open,
    },
    Known { name: "signature of nobody", scenario: "signature-of-nobody", is: signature_of_nobody },
    Known { name: "malformed option", scenario: "malformed-option", is: malformed_option },
    Known { name: "echo of zero", scenario: "echo-of-zero", is: echo_of_zero },
    Known { name: "flow label of a cookie", scenario: "cookie-over-ipv6", is: label_of_a_cookie },
    Known {
        name: "block that was forgotten",
        scenario: "block-that-was-forgotten",
        is: block_that_was_forgotten,
    },
    Known { name: "number of a cookie", scenario: "cookie-for-another-syn", is: number_of_a_cookie },
    Known {
        name: "numbers that fit a cookie",
        scenario: "cookie-with-other-numbers",
        is: numbers_that_fit_a_cookie,
    },
    Known { name: "size of a cookie", scenario: "cookie-of-another-size", is: size_of_a_cookie },
    Known { name: "largest timeout", scenario: "largest-timeout", is: largest_timeout },
    Known { name: "round trip of a cookie", scenario: "cookie-and-a-timeout", is: round_trip_of_a_cookie },
    Known {
        name: "round trip of text that was waited for",
        scenario: "defer-accept-and-a-timeout",
        is: round_trip_of_text_that_was_waited_for,
    },
    Known {
        name: "round trip of a closed handshake",
        scenario: "round-trip-of-a-closed-handshake",
        is: timers::round_trip_of_a_closed_handshake,
    },
    Known { name: "limit of challenges", scenario: "challenge-rate", is: limit_of_challenges },
    Known { name: "answer to a probe", scenario: "probe-behind-a-probe", is: answer_to_a_probe },
    Known { name: "SACK of a FIN", scenario: "sack-of-a-fin", is: sack_of_a_fin },
    Known { name: "mark on a FIN", scenario: "mark-on-a-fin", is: urgency::mark_on_a_fin },
    Known {
        name: "urgent pointer out of order",
        scenario: "urgent-out-of-order",
        is: urgency::urgent_out_of_order,
    },
    Known {
        name: "mark behind a shutdown",
        scenario: "urgent-behind-a-shutdown",
        is: urgency::mark_behind_a_shutdown,
    },
    Known { name: "pointer of a reset", scenario: "pointer-of-a-reset", is: urgency::pointer_of_a_reset },
    Known { name: "echo of a challenge", scenario: "echo-of-a-challenge", is: echo_of_a_challenge },
    Known { name: "duplicate beside text", scenario: "duplicate-beside-text", is: duplicate_beside_text },
    Known {
        name: "text beside a report of a duplicate",
        scenario: "text-beside-a-report-of-a-duplicate",
        is: acknowledging::text_beside_a_report_of_a_duplicate,
    },
    Known { name: "reset before a FIN", scenario: "reset-before-a-fin", is: reset_before_a_fin },
    Known {
        name: "later number without text",
        scenario: "later-number-without-text",
        is: opening::later_number_without_text,
    },
    Known {
        name: "order of checks in SYN-RECEIVED",
        scenario: "syn-received-out-of-window",
        is: order_of_checks_in_syn_received,
    },
    Known {
        name: "options of a crossed SYN-ACK",
        scenario: "simultaneous-open",
        is: options_of_a_crossed_syn_ack,
    },
    Known {
        name: "record of a closed socket",
        scenario: "record-of-a-closed-socket",
        is: record_of_a_closed_socket,
    },
    Known {
        name: "timestamp of an old acknowledgment",
        scenario: "timestamp-of-an-old-acknowledgment",
        is: timestamp_of_an_old_acknowledgment,
    },
    Known { name: "FIN before its text", scenario: "fin-before-its-text", is: fin_before_its_text },
    Known {
        name: "packet of a small window",
        scenario: "packet-of-a-small-window",
        is: packet_of_a_small_window,
    },
    Known { name: "packet behind a pause", scenario: "packet-behind-a-pause", is: packet_behind_a_pause },
    Known {
        name: "unused window of a full socket",
        scenario: "unused-window-of-a-full-socket",
        is: sending::unused_window_of_a_full_socket,
    },
    Known {
        name: "probe before a measurement",
        scenario: "probe-before-a-measurement",
        is: probe_before_a_measurement,
    },
    Known { name: "reset behind SACK", scenario: "reset-behind-sack", is: reset_behind_sack },
    Known { name: "window probe beside text", scenario: "probe-beside-text", is: window_probe_beside_text },
    Known {
        name: "text before a FIN that waits",
        scenario: "text-before-a-fin-that-waits",
        is: text_before_a_fin_that_waits,
    },
    Known { name: "rest of a cut packet", scenario: "rest-of-a-cut-packet", is: rest_of_a_cut_packet },
    Known {
        name: "window after an undone repair",
        scenario: "undone-repair",
        is: window_after_an_undone_repair,
    },
    Known { name: "end of slow start", scenario: "end-of-slow-start", is: end_of_slow_start },
    Known { name: "tail of a recovery", scenario: "beyond-the-threshold-from-below", is: tail_of_a_recovery },
    Known { name: "step of the curve", scenario: "step-of-the-curve-by-ticks", is: step_of_the_curve },
    Known {
        name: "time of an unused window",
        scenario: "time-of-an-unused-window",
        is: time_of_an_unused_window,
    },
    Known {
        name: "event between two timeouts",
        scenario: "event-between-two-timeouts",
        is: event_between_two_timeouts,
    },
    Known { name: "text of a SYN-ACK", scenario: "text-of-a-syn-ack", is: text_of_a_syn_ack },
    Known {
        name: "hole beside an acknowledgment",
        scenario: "hole-beside-an-acknowledgment",
        is: hole_beside_an_acknowledgment,
    },
    Known { name: "tiny segments", scenario: "tiny-segments", is: tiny_segments },
    Known {
        name: "segments that were thrown away",
        scenario: "segments-that-were-thrown-away",
        is: sending::segments_that_were_thrown_away,
    },
    Known { name: "held text beside text", scenario: "held-text-beside-text", is: held_text_beside_text },
    Known { name: "text in a repair", scenario: "text-in-a-repair", is: text_in_a_repair },
    Known {
        name: "use of the window beside text",
        scenario: "use-of-the-window-beside-text",
        is: use_of_the_window_beside_text,
    },
    Known { name: "window beside text", scenario: "window-beside-text", is: window_beside_text },
    Known { name: "probe at the timeout", scenario: "probe-at-the-timeout", is: probe_at_the_timeout },
    Known { name: "arrivals a wait apart", scenario: "arrivals-a-wait-apart", is: arrivals_a_wait_apart },
    Known { name: "edge of a rounded window", scenario: "rounded-edge", is: edge_of_a_rounded_window },
    Known { name: "repair beside text", scenario: "repair-beside-text", is: repair_beside_text },
    Known {
        name: "repetition that is lost again",
        scenario: "repetition-lost-again",
        is: repetition_that_is_lost_again,
    },
    Known {
        name: "round trip of a repetition",
        scenario: "round-trip-of-a-repetition",
        is: round_trip_of_a_repetition,
    },
    Known { name: "first number", scenario: "second-connection", is: first_number },
    Known {
        name: "loss after an undone repair",
        scenario: "loss-after-an-undone-repair",
        is: loss_after_an_undone_repair,
    },
    Known {
        name: "undo by another duplicate",
        scenario: "undo-by-another-duplicate",
        is: undo_by_another_duplicate,
    },
    Known {
        name: "acknowledgment of unread text",
        scenario: "acknowledgment-of-unread-text",
        is: acknowledgment_of_unread_text,
    },
    Known {
        name: "acknowledgments behind a hole",
        scenario: "acknowledgments-behind-a-hole",
        is: acknowledgments_behind_a_hole,
    },
    Known {
        name: "acknowledgment of a growing window",
        scenario: "acknowledgment-of-a-growing-window",
        is: acknowledgment_of_a_growing_window,
    },
    Known { name: "update of the window", scenario: "update-of-the-window", is: update_of_the_window },
    Known {
        name: "time of a quick acknowledgment",
        scenario: "time-of-a-quick-acknowledgment",
        is: acknowledging::time_of_a_quick_acknowledgment,
    },
    Known { name: "FIN that fills a hole", scenario: "fin-that-fills-a-hole", is: fin_that_fills_a_hole },
    Known { name: "delay beside a timer", scenario: "delay-beside-a-timer", is: delay_beside_a_timer },
    Known { name: "answer told by ticks", scenario: "answer-told-by-ticks", is: answer_told_by_ticks },
    Known { name: "answer to a mark", scenario: "answer-to-a-mark", is: answer_to_a_mark },
    Known {
        name: "probe at the end of a window",
        scenario: "probe-at-the-end-of-a-window",
        is: probe_at_the_end_of_a_window,
    },
    Known {
        name: "user timeout beside probes",
        scenario: "user-timeout-set-beside-probes",
        is: user_timeout_beside_probes,
    },
    Known {
        name: "acknowledgment behind the end",
        scenario: "acknowledgment-behind-the-end",
        is: acknowledgment_behind_the_end,
    },
    Known { name: "abort behind a FIN", scenario: "abort-behind-a-fin", is: abort_behind_a_fin },
    Known {
        name: "urgent pointer behind a FIN",
        scenario: "urgent-behind-a-fin",
        is: urgency::urgent_behind_a_fin,
    },
    Known { name: "push of a FIN", scenario: "push-of-a-fin", is: push_of_a_fin },
    Known {
        name: "pause behind a late timer",
        scenario: "pause-behind-a-late-timer",
        is: pause_behind_a_late_timer,
    },
    Known {
        name: "timeout a round trip behind",
        scenario: "timeout-a-round-trip-behind",
        is: timeout_a_round_trip_behind,
    },
    Known { name: "push of a cut packet", scenario: "push-of-a-cut-packet", is: push_of_a_cut_packet },
    Known { name: "count of a cut packet", scenario: "count-of-a-cut-packet", is: count_of_a_cut_packet },
    Known {
        name: "arrivals a timeout apart",
        scenario: "arrivals-a-timeout-apart",
        is: arrivals_a_timeout_apart,
    },
    Known { name: "duplicate at a joint", scenario: "duplicate-at-a-joint", is: duplicate_at_a_joint },
    Known {
        name: "mark on text behind a FIN",
        scenario: "mark-on-text-behind-a-fin",
        is: mark_on_text_behind_a_fin,
    },
    Known {
        name: "quick acknowledgment of a FIN",
        scenario: "quick-acknowledgment-of-a-fin",
        is: quick_acknowledgment_of_a_fin,
    },
    Known {
        name: "undo of what did not fit",
        scenario: "undo-of-what-did-not-fit",
        is: undo_of_what_did_not_fit,
    },
    Known {
        name: "keepalive beside an old acknowledgment",
        scenario: "keepalive-beside-an-old-acknowledgment",
        is: keepalive_beside_an_old_acknowledgment,
    },
    Known {
        name: "window behind an option",
        scenario: "window-behind-an-option",
        is: window_behind_an_option,
    },
    Known { name: "user timeout of a SYN", scenario: "user-timeout-of-a-syn", is: user_timeout_of_a_syn },
    Known {
        name: "time behind a duplicate",
        scenario: "time-behind-a-duplicate",
        is: time_behind_a_duplicate,
    },
    Known {
        name: "duplicate of an earlier segment",
        scenario: "duplicate-of-an-earlier-segment",
        is: duplicate_of_an_earlier_segment,
    },
    Known { name: "text without ECT", scenario: "text-without-ect", is: text_without_ect },
];

/// The kernel's buffer counts all memory that a packet takes, and its window grows as the kernel learns how much that
/// is. Sockeye's buffer counts bytes. Both sides must still agree on whether the window is open, and `window.rs` checks
/// the stack's windows by themselves.
fn receive_window(pair: &Pair<'_>) -> Option<Then> {
    let (kernel, stack) = pair.segments()?;
    let is_it = pair.why.starts_with("window:")
        && !kernel.flags.has(Flags::SYN)
        && (kernel.win == 0) == (stack.win == 0);
    is_it.then_some(Then::GoOn)
}

/// The window of a reset means nothing. The kernel sends its receive window, Sockeye sends 0.
fn window_of_a_reset(pair: &Pair<'_>) -> Option<Then> {
    let (kernel, stack) = pair.segments()?;
    let is_it = pair.why.starts_with("window:") && kernel.flags.has(Flags::RST) && stack.win == 0;
    is_it.then_some(Then::GoOn)
}

/// Sockeye's reset has timestamps if they were negotiated (RFC 7323 section 3.2), and no SACK blocks. The kernel's has
/// no timestamps if the socket is gone, and has SACK blocks if there are any.
fn timestamps_of_a_reset(pair: &Pair<'_>) -> Option<Then> {
    let (kernel, stack) = pair.segments()?;
    let is_reset = pair.why == "options" && kernel.flags.has(Flags::RST);
    let has_no_more = kernel.options.is_empty() && stack.timestamp().is_some() && stack.options.len() == 3;
    let has_blocks = !kernel.sack().is_empty() && stack.sack().is_empty();
    (is_reset && (has_no_more || has_blocks)).then_some(Then::GoOn)
}

/// If an acknowledgment is too old to be the peer's, the kernel echoes its timestamp. Sockeye does not, since anyone
/// may have sent it (RFC 5961 section 5.2). The timestamp of another old acknowledgment is echoed by Sockeye (RFC 7323
/// section 4.3), and by the kernel only if its fast path takes the segment.
fn timestamp_of_an_old_acknowledgment(pair: &Pair<'_>) -> Option<Then> {
    let (kernel, stack) = pair.segments()?;
    let (Some((_, Echo::Is(theirs))), Some((_, Echo::Is(ours)))) = (kernel.timestamp(), stack.timestamp())
    else {
        return None;
    };
    let mut top = 0;
    let is_old = pair.peer().any(|(_, segment)| {
        let is_old = segment.ack < top;
        top = top.max(segment.ack);
        is_old && segment.timestamp().is_some_and(|(value, _)| value == theirs.max(ours))
    });
    // Compared with it, the next segment may be old (PAWS).
    let is_older = |(value, _): (u32, Echo)| (value.wrapping_sub(ours) as i32) < 0;
    let is_dropped =
        kernel.ack > stack.ack && pair.cause().and_then(Segment::timestamp).is_some_and(is_older);
    if pair.why.starts_with("acknowledgment:") && is_old && is_dropped {
        return Some(Then::Stop);
    }
    (pair.why.starts_with("option: ts") && theirs != ours && is_old).then_some(Then::GoOn)
}

/// The kernel also accepts a reset whose number is the end of the last SACK block that it has sent. Sockeye answers it
/// with a challenge ACK (RFC 5961 section 3), unless it sent another one a moment ago.
fn reset_behind_sack(pair: &Pair<'_>) -> Option<Then> {
    let mut reports = pair.earlier.iter().rev().filter_map(|record| match &record.what {
        What::Sent(Packet::Tcp(sent)) => sent.sack().iter().map(|(_, end)| *end).max(),
        _ => None,
    });
    let end = reports.next()?;
    let is_behind = |cause: &Segment| cause.flags.has(Flags::RST) && cause.seq == end;
    let What::State(_, State { info, .. }) = &pair.kernel?.what else {
        // For a socket that is closed or not accepted yet, only the next record shows it.
        let is_gone = pair.kernel_resets() && pair.peer().any(|(_, cause)| is_behind(cause));
        let waits = matches!(pair.stack?.what, What::State(_, State { info: None, .. }));
        return (is_gone && waits).then_some(Then::Stop);
    };
    // A closed socket goes on to retransmit, if it sends no challenge ACK.
    let is_text = matches!(&pair.stack?.what, What::Sent(Packet::Tcp(text)) if text.end() > text.seq);
    if is_text && pair.is_closed() && pair.peer().any(|(_, cause)| is_behind(cause)) {
        return Some(Then::Stop);
    }
    let Action::Segment(cause) = &pair.scenario.events.get(pair.index()?)?.action else { return None };
    let goes_on = match &pair.stack?.what {
        What::State(_, state) => state.info.as_ref().is_some_and(|info| info.state != "CLOSED"),
        answer => matches!(answer, What::Sent(_)),
    };
    // A socket that the application has closed shows no state.
    let is_closed = info.as_ref().is_none_or(|info| info.state == "CLOSED");
    // Or the limit has allowed none, and there is one for a later reset.
    let is_later =
        || info.is_none() && cause.flags.has(Flags::RST) && pair.peer().any(|(_, it)| is_behind(it));
    (is_closed && goes_on && (is_behind(cause) || is_later())).then_some(Then::Stop)
}

/// The name of the known difference that two records show.
pub fn find(pair: &Pair<'_>) -> Option<(&'static str, Then)> {
    KNOWN.iter().find_map(|known| (known.is)(pair).map(|then| (known.name, then)))
}
