//! Differences in the effects of the network's reports (ICMP).
//!
//! Tests: as those of `known.rs`.

use std::time::Duration;

use crate::codec::{MTU, Packet, Report, Reported, headers};
use crate::compare::{SLACK, granularity};
use crate::scenario::{Action, Event};
use crate::segment::{Flags, Segment};
use crate::settings;
use crate::trace::{Ready, Record, State, What, latest_figure};

use super::{Pair, Then};

/// If a router's report has ended a connect, the kernel's socket stays ready with an error, because the error queue
/// keeps the report. Sockeye has no such queue.
pub(super) fn error_queue_of_a_connect(pair: &Pair<'_>) -> Option<Then> {
    let (kernel, stack) = pair.states()?;
    let is_it =
        kernel.ready.error && !stack.ready.error && kernel.ready == Ready { error: true, ..stack.ready };
    // A connection that was made is not meant.
    let is_made = pair.earlier.iter().any(|record| match &record.what {
        What::State(_, State { info: Some(info), .. }) => !["SYN-SENT", "CLOSED"].contains(&info.state),
        _ => false,
    });
    (is_it && !is_made && so_far(pair).iter().any(|event| is_report(&event.action))).then_some(Then::GoOn)
}

/// In the kernel, SO_ERROR returns a report on the sequence number after the last one sent, even if all data is
/// acknowledged. Sockeye then returns no report.
pub(super) fn report_on_nothing(pair: &Pair<'_>) -> Option<Then> {
    // Or the error that ends the connection when it is given up.
    let is_timeout = |(_, stack): &(i32, i32)| *stack == libc::ETIMEDOUT;
    let (kernel, stack) = errors(pair).or_else(|| given_up(pair).filter(is_timeout))?;
    let sent = |index| sent_before(pair, index).filter(|sent| !sent.flags.has(Flags::RST));
    let end_at = |index| sent(index).map(Segment::end).max();
    let is_on_end = reports(pair).any(|(index, report)| end_at(index) == Some(report.seq));
    (kernel != 0 && kernel != stack && is_on_end).then_some(Then::GoOn)
}

/// For the codes 5, 7 and 8, which routers no longer send, the kernel has errors of their own. Sockeye uses that of an
/// unreachable host.
pub(super) fn error_of_a_rare_report(pair: &Pair<'_>) -> Option<Then> {
    let (kernel, stack) = errors(pair).or_else(|| given_up(pair))?;
    let code = [(5, libc::EOPNOTSUPP), (7, libc::EHOSTDOWN), (8, libc::ENONET)]
        .into_iter()
        .find_map(|(code, error)| (error == kernel).then_some(code))?;
    let is_reported = reports(pair).any(|(_, report)| report.what == Reported::Unreachable(code));
    (is_reported && stack == libc::EHOSTUNREACH).then_some(Then::GoOn)
}

/// In the kernel, data from the peer that acknowledges nothing new clears a report if the fast path does not take it,
/// which depends on packet memory.
pub(super) fn report_before_text(pair: &Pair<'_>) -> Option<Then> {
    // Or the call that finds the connection given up does not show it.
    let is_cleared = match errors(pair) {
        Some((kernel, stack)) => kernel == 0 && stack != 0,
        None => given_up(pair)
            .is_some_and(|(kernel, stack)| kernel == libc::ETIMEDOUT && stack != libc::ETIMEDOUT),
    };
    let is_text = |action: &Action| matches!(action, Action::Segment(text) if text.len > 0);
    let mut actions = so_far(pair).iter().map(|event| &event.action).skip_while(|action| !is_report(action));
    (is_cleared && actions.any(is_text)).then_some(Then::GoOn)
}

/// The kernel does not read its clock for what it retransmits because of a report on the MTU: it has the time of the
/// call or segment before it. So its echo gives a longer round trip, and the timeout that a later report has shortened
/// expires sooner.
pub(super) fn time_of_a_report(pair: &Pair<'_>) -> Option<Then> {
    if let Some((kernel, stack)) = pair.segments()
        && pair.why.starts_with("option: ts")
    {
        let (theirs, ours) = (kernel.timestamp()?.0, stack.timestamp()?.0);
        let is_report = so_far(pair).last().is_some_and(is_on_size);
        return (theirs < ours && is_report && kernel.len > 0).then_some(Then::GoOn);
    }
    let is_again =
        so_far(pair).iter().enumerate().any(|(index, event)| is_on_size(event) && sends_again(pair, index));
    let is_measured = match pair.states() {
        Some((State { info: Some(kernel), .. }, State { info: Some(stack), .. })) => {
            pair.why.starts_with("rto") && kernel.rto > stack.rto
        }
        _ => false,
    };
    let mut behind = so_far(pair).iter().skip_while(|event| !is_on_size(event));
    let is_shorter = behind.any(|event| {
        matches!(event.action, Action::Report(Report { what: Reported::Unreachable(0 | 1), .. }))
    });
    let at = |record: Option<&Record>| record.map_or(Duration::MAX, |record| record.at);
    // Or the reordering timer has delayed the timeout by the age of the data that it waits for.
    let apart = at(pair.stack).saturating_sub(at(pair.kernel));
    let is_as_old = |record: &Record| {
        let age = age(record).or_else(|| age_without_timestamp(pair, record));
        age.is_some_and(|age| age > SLACK && age.abs_diff(apart) < granularity(MEDIUM))
    };
    let is_shorter = is_shorter || pair.earlier.iter().any(is_as_old);
    let waits = matches!(pair.stack.map(|record| &record.what), Some(What::State(..)));
    let is_sooner = is_repetition(pair, pair.kernel) && (at(pair.kernel) < at(pair.stack) || waits);
    // Or a longer timeout ends later, also before a probe with new data.
    let is_old = |record: &Record| age(record).is_some_and(|age| age > SLACK);
    let is_timed = pair.why.starts_with("time:") && pair.earlier.iter().any(is_old);
    let is_later = (is_repetition(pair, pair.stack) || is_timed) && at(pair.stack) < at(pair.kernel);
    // By that round trip, a SACK block shows that another part is lost again.
    let is_reported = pair
        .peer()
        .last()
        .is_some_and(|(_, told)| told.sack().iter().any(|(start, _)| pair.times_sent(*start) > 1));
    let is_found = is_reported && is_repetition(pair, pair.kernel) && !is_repetition(pair, pair.stack);
    // Or that it is lost, by the time of a segment that was sent just before the report.
    let ca_state = |state: &State| state.info.as_ref()?.get("ca_state");
    let begins = |(kernel, stack)| ca_state(kernel) == Some(3) && ca_state(stack) == Some(4);
    let has_blocks = pair.peer().last().is_some_and(|(_, told)| !told.sack().is_empty());
    let is_found = is_found || (has_blocks && pair.states().is_some_and(begins));
    let is_found = is_found || (is_repetition(pair, pair.kernel) && reports_what_was_sent_just_before(pair));
    // Or a timeout finds more or less of it in flight for long, which counts in its window.
    let is_timeout = |(kernel, stack): (&State, &State)| {
        [kernel, stack].iter().all(|state| {
            let info = state.info.as_ref();
            info.is_some_and(|info| info.get("ca_state") == Some(4) && info.get("retransmits") >= Some(1))
        })
    };
    // It is no more than what was in flight.
    let top = pair.texts().map(Segment::end).max().unwrap_or(1);
    let una = pair.acks().map(|told| told.ack).max().unwrap_or(1);
    let is_within = |(kernel, stack): (&State, &State)| {
        [kernel, stack].iter().all(|state| {
            let figure = |name| state.info.as_ref().and_then(|info| info.get(name)).unwrap_or(0);
            figure("snd_cwnd") <= u64::from(top.saturating_sub(una)).div_ceil(figure("snd_mss").max(1)) + 1
        })
    };
    let is_found = is_found
        || (pair.why.starts_with("snd_cwnd:")
            && pair.states().is_some_and(|states| is_timeout(states) && is_within(states)));
    (is_again && (is_measured || is_later || is_found || is_shorter && is_sooner)).then_some(Then::Stop)
}

/// Whether the peer's latest segment has a block of data that was sent just before a report on the size.
fn reports_what_was_sent_just_before(pair: &Pair<'_>) -> bool {
    let Some((start, _)) = pair.peer().last().and_then(|(_, told)| told.sack().first().copied()) else {
        return false;
    };
    let mut reports = so_far(pair).iter().filter(|event| is_on_size(event));
    let holds = |record: &&Record| {
        record.segment().is_some_and(|text| (text.seq..text.end()).contains(&start) && text.len > 0)
    };
    let sent = pair.earlier.iter().rev().find(holds);
    sent.is_some_and(|sent| reports.any(|event| event.at().abs_diff(sent.at) < Duration::from_millis(1)))
}

/// A block reports data that was sent once, during the repair of what was too long. If a timeout has expired on this connection before, the kernel takes
/// that for a sign that the timeout was needless, and ends the repair.
pub(super) fn original_behind_a_report_on_size(pair: &Pair<'_>) -> Option<Then> {
    if is_undone_behind_a_report(pair) {
        return Some(Then::Stop);
    }
    let ca_state = |record: &Record| match &record.what {
        What::State(_, state) => state.info.as_ref()?.get("ca_state"),
        _ => None,
    };
    let (kernel, stack) = (pair.kernel?, ca_state(pair.stack?));
    let ends = match kernel.segment() {
        None => pair.why.starts_with("ca_state:") && ca_state(kernel) <= Some(1),
        // Another repair may begin at once, and what counts no longer as in flight leaves room for new data.
        Some(new) => {
            let is_new = new.len > 0 && pair.times_sent(new.seq) == 0;
            is_new && pair.later.iter().find_map(ca_state).is_some_and(|state| state < 4)
        }
    };
    let ends = ends && stack == Some(4);
    let last = so_far(pair)
        .iter()
        .enumerate()
        .rfind(|(index, event)| is_on_size(event) && sends_again(pair, *index))?;
    let mut before =
        pair.earlier.iter().take_while(|record| !matches!(record.what, What::State(at, _) if at == last.0));
    let is_timeout = |record: &Record| match &record.what {
        What::State(_, State { info: Some(info), .. }) => {
            info.get("ca_state") == Some(4) && info.get("retransmits") >= Some(1)
        }
        _ => false,
    };
    let has_block = pair.peer().last().is_some_and(|(_, told)| !told.sack().is_empty());
    let has_block = has_block || pair.peer().rev().nth(1).is_some_and(|(_, told)| !told.sack().is_empty());
    (ends && before.any(is_timeout) && has_block).then_some(Then::Stop)
}

/// Without SACK, a repair goes on until data behind it is acknowledged. Data that is retransmitted for a report meanwhile
/// counts as the first that the kernel has retransmitted: an echo that is older undoes the timeout, and its threshold.
fn is_undone_behind_a_report(pair: &Pair<'_>) -> bool {
    let threshold = |record: &Record| match &record.what {
        What::State(_, State { info: Some(info), .. }) => info.get("snd_ssthresh"),
        _ => None,
    };
    let next = pair.kernel.and_then(threshold).or_else(|| pair.later.iter().find_map(threshold));
    let rises = next > latest_figure(pair.earlier, "snd_ssthresh")
        && latest_figure(pair.earlier, "ca_state") == Some(4)
        && latest_figure(pair.earlier, "retransmits") == Some(0);
    let has_echo = pair.peer().last().is_some_and(|(_, told)| told.timestamp().is_some());
    let mut events = so_far(pair).iter().enumerate();
    let is_again = events.any(|(index, event)| is_on_size(event) && sends_again(pair, index));
    rises && has_echo && is_again && !pair.has_sack()
}

/// How much older the timestamp of a segment with data is than the segment.
fn age(record: &Record) -> Option<Duration> {
    let What::Sent(Packet::Tcp(text)) = &record.what else { return None };
    let (value, _) = text.timestamp().filter(|_| text.len > 0)?;
    Some(record.at.saturating_sub(Duration::from_millis(value.into())))
}

/// The same of a segment without a timestamp that was sent for a report on the size: the kernel has read its clock before that when it sent something, or
/// a segment arrived.
fn age_without_timestamp(pair: &Pair<'_>, record: &Record) -> Option<Duration> {
    record.segment().filter(|text| text.len > 0 && text.timestamp().is_none())?;
    let events = so_far(pair);
    let index = events.iter().rposition(|event| event.at() <= record.at)?;
    let report = events.get(index).filter(|event| is_on_size(event))?.at();
    let heard = events[..index].iter().filter(|event| matches!(event.action, Action::Segment(_)));
    let sent = pair.earlier.iter().filter(|record| record.segment().is_some()).map(|record| record.at);
    let before = heard.map(Event::at).chain(sent.filter(|at| *at < report)).max()?;
    Some(report.saturating_sub(before))
}

/// The kernel's timers of about this time are late by tens of milliseconds.
const MEDIUM: Duration = Duration::from_secs(1);

/// Whether a record is data that the kernel has sent before.
fn is_repetition(pair: &Pair<'_>, record: Option<&Record>) -> bool {
    record.is_some_and(|record| match &record.what {
        What::Sent(Packet::Tcp(text)) => text.len > 0 && pair.times_sent(text.seq) > 0,
        _ => false,
    })
}

/// Whether the kernel sends data at the event with this number.
fn sends_again(pair: &Pair<'_>, index: usize) -> bool {
    let begin = |record: &Record| matches!(&record.what, What::State(at, _) if *at + 1 == index);
    let rest = pair.earlier.iter().skip_while(|record| !begin(record)).skip(1);
    rest.take_while(|record| matches!(&record.what, What::Sent(_)))
        .any(|record| matches!(&record.what, What::Sent(Packet::Tcp(text)) if text.len > 0))
}

/// A report of a larger size than is in use is news to the kernel if it is below the device's MTU: if something is
/// lost, the kernel starts another repair. In Sockeye, nothing is too long.
pub(super) fn report_of_a_larger_size(pair: &Pair<'_>) -> Option<Then> {
    let used = latest_figure(pair.earlier, "snd_mss")? + headers(pair.scenario.is_ipv6) as u64;
    let is_repair = match pair.states() {
        Some((kernel, stack)) => {
            let figure = |state: &State, name| state.info.as_ref()?.get(name);
            let ca_state = |state: &State| figure(state, "ca_state");
            // Or a timeout ends a recovery of the stack, and that repair of the kernel, whose threshold it reduces again.
            let threshold = |state: &State| figure(state, "snd_ssthresh");
            let is_next = pair.why.starts_with("snd_ssthresh:") && threshold(kernel) < threshold(stack);
            let is_next = is_next && latest_figure(pair.earlier, "ca_state") == Some(3);
            ca_state(kernel) == Some(4)
                && (ca_state(stack) == Some(3) || is_next && ca_state(stack) == Some(4))
        }
        // The kernel considers segments too long if they were sent without room for the present SACK blocks.
        None => is_repetition(pair, pair.kernel) && so_far(pair).last().is_some_and(is_on_size),
    };
    // Or nothing that the peer does not hold is longer than what it leaves.
    let acks = pair.acks();
    let holds = |told: &Segment, text: &Segment| {
        let is_in = |block: &(u32, u32)| block.0 <= text.seq && text.end() <= block.1;
        told.ack >= text.end() || told.sack().iter().any(is_in)
    };
    let is_out = |text: &Segment| !acks.clone().any(|told| holds(told, text));
    let is_short = |mtu: u32| {
        let timestamps = |text: &Segment| if text.timestamp().is_some() { 12 } else { 0 };
        let len = |text: &Segment| headers(pair.scenario.is_ipv6) + timestamps(text) + text.len as usize;
        pair.texts().filter(|text| is_out(text)).all(|text| len(text) <= mtu as usize)
    };
    let is_larger = |mtu: u32| (mtu as usize) < MTU && (u64::from(mtu) >= used || is_short(mtu));
    let last = so_far(pair).iter().rev().find_map(on_size);
    (is_repair && last.is_some_and(is_larger)).then_some(Then::Stop)
}

/// The segments that were sent before the event with this number.
fn sent_before<'a>(pair: &Pair<'a>, index: usize) -> impl Iterator<Item = &'a Segment> + use<'a> {
    // Timers may send something between the event and the record of its state.
    let until = pair.scenario.events.get(index).map_or(Duration::MAX, |event| event.at() + SLACK);
    let is_before = move |record: &&Record| {
        record.at < until && !matches!(record.what, What::State(at, _) if at == index)
    };
    pair.earlier.iter().take_while(is_before).filter_map(Record::segment)
}

/// What SO_ERROR was on both sides.
fn errors(pair: &Pair<'_>) -> Option<(i32, i32)> {
    match (&pair.kernel?.what, &pair.stack?.what) {
        (What::Returned(index, Ok(kernel)), What::Returned(_, Ok(stack)))
            if pair.scenario.events.get(*index)?.action == Action::TakeError =>
        {
            Some((i32::try_from(*kernel).ok()?, i32::try_from(*stack).ok()?))
        }
        _ => None,
    }
}

/// A host reports that it could not reassemble an IPv4 packet in time. The kernel does not pass this on.
pub(super) fn report_on_a_reassembly(pair: &Pair<'_>) -> Option<Then> {
    let (kernel, stack) = errors(pair).or_else(|| given_up(pair))?;
    let is_of_it = |report: &Report| report.what == Reported::TimeExceeded(1);
    // An earlier report of another kind may still be told.
    let is_untold =
        kernel == 0 || kernel == libc::ETIMEDOUT || reports(pair).any(|(_, report)| !is_of_it(report));
    let is_reported = reports(pair).any(|(_, report)| is_of_it(report));
    (is_untold && kernel != stack && stack == libc::EHOSTUNREACH && is_reported && !pair.scenario.is_ipv6)
        .then_some(Then::GoOn)
}

/// The error that a call returns for a connection that is given up.
fn given_up(pair: &Pair<'_>) -> Option<(i32, i32)> {
    match (&pair.kernel?.what, &pair.stack?.what) {
        (What::Returned(_, Err(kernel)), What::Returned(_, Err(stack))) => Some((*kernel, *stack)),
        _ => None,
    }
}

/// When the kernel's search for the path's MTU begins, segments are as small as the setting says, even over IPv6, where
/// every path carries larger ones.
pub(super) fn base_of_ipv6(pair: &Pair<'_>) -> Option<Then> {
    let (kernel, stack) = match (&pair.kernel?.what, &pair.stack?.what) {
        (What::Sent(Packet::Tcp(kernel)), What::Sent(Packet::Tcp(stack))) => {
            (kernel.len.into(), stack.len.into())
        }
        (
            What::State(_, State { info: Some(kernel), .. }),
            What::State(_, State { info: Some(stack), .. }),
        ) => (kernel.get("snd_mss")?, stack.get("snd_mss")?),
        _ => return None,
    };
    let least = 1280 - headers(true) as u64 - 12;
    // The segment may have SACK blocks.
    let is_base = (least - 36..=least + 12).contains(&stack) && kernel < stack && kernel <= BASE;
    (is_base && is_searching(pair) && pair.scenario.is_ipv6).then_some(Then::Stop)
}

/// If a segment no longer than the base size is not acknowledged, the kernel takes this as a sign of a black hole, and makes
/// segments smaller again and again. Sockeye makes none smaller than those that every path is believed to carry.
pub(super) fn black_hole_of_a_small_segment(pair: &Pair<'_>) -> Option<Then> {
    let (theirs, ours, options) = match pair.segments() {
        Some((kernel, stack)) if kernel.seq == stack.seq => {
            (kernel.len.into(), stack.len.into(), if stack.timestamp().is_some() { 12 } else { 0 })
        }
        Some(_) => return None,
        None => {
            let mss = |state: &State| state.info.as_ref()?.get("snd_mss");
            let (kernel, stack) = pair.states()?;
            (mss(kernel)?, mss(stack)?, 0)
        }
    };
    let least = if pair.scenario.is_ipv6 { 1280 } else { LEAST_MTU };
    let headers = headers(pair.scenario.is_ipv6);
    let una = pair.acks().map(|told| told.ack).max()?;
    let out = pair.texts().map(Segment::end).max()?.saturating_sub(una);
    // Or all that was in flight before: then this is not the first sign.
    let base = BASE.max((least - headers) as u64);
    let mut top = 0;
    let was_short = pair.texts().any(|text| {
        top = top.max(text.end());
        text.end() == top && u64::from(text.len) <= base && pair.times_sent_to(top) > SILENT_TIMES
    });
    let is_short = u64::from(out) <= base || was_short;
    let is_least = ours + (headers + options) as u64 <= least as u64;
    // The base, or a size before, or half of that, and so on.
    let mut sizes = pair.earlier.iter().filter_map(|record| match &record.what {
        What::State(_, State { info: Some(info), .. }) => info.get("snd_mss").map(|size| size.min(BASE)),
        _ => None,
    });
    let is_half = theirs > 0 && sizes.any(|size| (0..8).any(|times| size >> times == theirs));
    let is_size = ["snd_mss:", "length:", "flags:"].iter().any(|why| pair.why.starts_with(why));
    let is_it = is_size && theirs < ours && is_half && (is_short || is_least);
    (is_it && is_searching(pair)).then_some(Then::Stop)
}

/// The sizes that a search for the path's MTU tries, and when.
pub(super) fn search_for_the_mtu(pair: &Pair<'_>) -> Option<Then> {
    let (kernel, stack) = pair.segments()?;
    let info = pair.earlier.iter().rev().find_map(|record| match &record.what {
        What::State(_, State { info: Some(info), .. }) => info.get("snd_mss"),
        _ => None,
    });
    let longer = u64::from(kernel.len.max(stack.len));
    let is_it = pair.why.starts_with("length:") && kernel.seq == stack.seq && is_searching(pair);
    // A closed socket does not show that it has begun to search.
    let is_probe = pair.texts().any(|text| u64::from(text.len) == BASE) || info <= Some(BASE);
    (is_it && is_probe && longer > BASE).then_some(Then::Stop)
}

/// The kernel's SO_ERROR returns the report for which a connection was given up again, although a call has already
/// returned it, or has returned that the connection timed out.
pub(super) fn report_told_twice(pair: &Pair<'_>) -> Option<Then> {
    let (kernel, stack) = errors(pair)?;
    let asks =
        |index: usize| pair.scenario.events.get(index).is_some_and(|event| event.action == Action::TakeError);
    let is_told = |record: &Record| match &record.what {
        What::Returned(_, Err(error)) => *error == kernel,
        What::Returned(index, Ok(error)) => i32::try_from(*error) == Ok(kernel) && asks(*index),
        _ => false,
    };
    let is_told = pair.earlier.iter().any(is_told) || is_given_up_at_a_report(pair);
    (kernel != 0 && stack == 0 && is_told && reports(pair).next().is_some()).then_some(Then::GoOn)
}

/// Whether a report has ended the back-off of a connection that was to be given up by then, and the error was a timeout:
/// the kernel stores the report behind that.
fn is_given_up_at_a_report(pair: &Pair<'_>) -> bool {
    let closed = pair.earlier.iter().find_map(|record| match &record.what {
        What::State(index, State { info: Some(info), .. }) if info.state == "CLOSED" => Some(*index),
        _ => None,
    });
    let is_timeout = |record: &Record| matches!(record.what, What::Returned(_, Err(libc::ETIMEDOUT)));
    let ends_it = |index| reports(pair).any(|(at, _)| at == index);
    closed.is_some_and(ends_it) && pair.earlier.iter().any(is_timeout)
}

fn is_searching(pair: &Pair<'_>) -> bool {
    pair.scenario.settings.get("mtu_probing").is_some_and(|value| value != "off")
}

/// The MTU that Sockeye expects of every IPv4 path (Linux's `ip_rt_min_pmtu`).
const LEAST_MTU: usize = 552;

/// The size with which a search for the path's MTU begins, in bytes of data.
const BASE: u64 = 1024;
/// How often a segment is sent before its silence is a sign of a black hole.
const SILENT_TIMES: usize = 3;

/// The reports so far, with the numbers of their events, except those on sizes.
fn reports<'a>(pair: &Pair<'a>) -> impl Iterator<Item = (usize, &'a Report)> + use<'a> {
    so_far(pair).iter().enumerate().filter_map(|(index, event)| match &event.action {
        Action::Report(report) if !is_on_size(event) => Some((index, report)),
        _ => None,
    })
}

/// The scenario up to the point where the two sides differ.
fn so_far<'a>(pair: &Pair<'a>) -> &'a [Event] {
    let count = pair.index().map_or(0, |index| index + 1).min(pair.scenario.events.len());
    &pair.scenario.events[..count]
}

/// The MTU that an event reports, if it reports one.
fn on_size(event: &Event) -> Option<u32> {
    match event.action {
        Action::Report(Report { what: Reported::TooBig(mtu), .. }) => Some(mtu),
        _ => None,
    }
}

fn is_on_size(event: &Event) -> bool {
    on_size(event).is_some()
}

/// A closed socket whose timeout has reached the largest one, and about which a router has reported something: the kernel
/// gives it up at the next timeout, without a word (`tcp_orphan_retries`).
pub(super) fn closed_socket_behind_a_report(pair: &Pair<'_>) -> Option<Then> {
    let Some(Record { at, what: What::Sent(Packet::Tcp(again)) }) = pair.stack else { return None };
    let waits = pair.kernel.is_none_or(|kernel| kernel.at > *at);
    // Text, or a probe of a closed window.
    let una = pair.acks().map(|told| told.ack).max()?;
    let is_again = |sent: &Segment| {
        sent.seq == again.seq && (sent.end() > sent.seq || (sent.is_bare_ack() && sent.seq + 1 == una))
    };
    let last = pair.earlier.iter().rfind(|record| record.segment().is_some_and(is_again))?;
    let bound = settings::stack(&pair.scenario.settings).tcp.rto_max;
    let is_largest = *at + granularity(bound) >= last.at + bound;
    let count = pair.index().map_or(0, |index| index + 1).min(pair.scenario.events.len());
    let is_reported = pair.scenario.events[..count].iter().any(|event| is_report(&event.action));
    (waits && is_largest && is_reported && is_again(again) && pair.is_shut()).then_some(Then::Stop)
}

pub(super) fn is_report(action: &Action) -> bool {
    matches!(action, Action::Report(_))
}
