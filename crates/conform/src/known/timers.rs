//! Differences of the clocks: the kernel counts timeouts in ticks.
//!
//! Tests: as those of `known.rs`.

use std::time::Duration;

use super::windows::is_between_two_window_probes;
use super::{Pair, Then};
use crate::codec::Packet;
use crate::compare::{SLACK, granularity};
use crate::scenario::{Action, SockOpt};
use crate::segment::{Flags, Segment};
use crate::settings;
use crate::trace::{Info, Record, State, What, latest_figure};
use crate::wheel::JIFFY;

/// The first segment in flight, when the kernel last sent it, and how long it waits since then: each timeout doubles
/// that.
fn first_out<'a>(pair: &Pair<'a>) -> Option<(&'a Segment, Duration, Duration)> {
    let una = pair.acks().map(|segment| segment.ack).max()?;
    let (mut times, mut last, mut rto) = (0, None, None);
    for record in pair.earlier.iter().rev() {
        match &record.what {
            What::Sent(Packet::Tcp(text)) if text.end() > text.seq && text.seq == una => {
                last = last.or(Some((text, record.at)));
                times += usize::from(rto.is_none());
            }
            What::State(_, State { info: Some(info), .. }) => rto = rto.or(Some(info.rto)),
            _ => {}
        }
    }
    let (first, at) = last?;
    // No retransmission of a FIN without data.
    let repetitions = pair.texts().filter(|text| text.seq == una).count().saturating_sub(1);
    Some((first, at, rto? * (1 << times.min(repetitions).min(BACKOFF_MAX))))
}

/// TCP_INFO of Sockeye tells the timeout that the timer uses, which is at most the largest one. The kernel's tells a
/// longer one until it computes the timeout again. After a larger TCP_RTO_MAX_MS, the kernel's timeout doubles from what
/// it was.
pub(super) fn largest_timeout(pair: &Pair<'_>) -> Option<Then> {
    if is_sooner_by_the_largest_timeout(pair) || is_doubled_behind_the_largest_timeout(pair) {
        return Some(Then::Stop);
    }
    let (kernel, stack) = pair.states()?;
    let (kernel, stack) = (kernel.info.as_ref()?.rto, stack.info.as_ref()?.rto);
    let bounds = largest_timeouts(pair);
    let (bound, earlier) = bounds.split_last()?;
    let is_doubled = earlier.last().is_some_and(|before| {
        before < bound && (0..DOUBLINGS_MAX).any(|times| kernel == *before * (1 << times))
    });
    let then = match () {
        () if kernel > *bound && stack == *bound => Then::GoOn,
        // One from before the option was set.
        () if earlier.iter().any(|bound| kernel > *bound && stack == *bound) => Then::Stop,
        () if is_doubled && kernel < stack && stack <= *bound => Then::Stop,
        () => return None,
    };
    pair.why.starts_with("rto:").then_some(then)
}

/// The largest timeouts of the connection so far: that of the settings, and those of the option.
pub(super) fn largest_timeouts(pair: &Pair<'_>) -> Vec<Duration> {
    let count = pair.index().map_or(0, |index| index + 1).min(pair.scenario.events.len());
    let set = pair.scenario.events[..count].iter().filter_map(|event| match event.action {
        Action::Set(SockOpt::RtoMax, ms) if RTO_MAX_MS.contains(&ms) => {
            Some(Duration::from_millis(ms.into()))
        }
        _ => None,
    });
    std::iter::once(settings::stack(&pair.scenario.settings).tcp.rto_max).chain(set).collect()
}

/// Whether the stack's timeout, of which no probe is left, repeats the first segment sooner: the kernel then counts the
/// longer timeout from when that was sent.
fn is_sooner_by_the_largest_timeout(pair: &Pair<'_>) -> bool {
    let Some(bound) = largest_timeouts(pair).last().copied() else { return false };
    let Some(Record { at, what: What::Sent(Packet::Tcp(again)) }) = pair.stack else { return false };
    let info = pair.earlier.iter().rev().find_map(|record| match &record.what {
        What::State(_, State { info: Some(info), .. }) => Some(info),
        _ => None,
    });
    let sent = pair
        .earlier
        .iter()
        .find(|record| record.segment().is_some_and(|text| text.seq == again.seq && text.len > 0));
    let (Some(sent), Some(longer)) = (sent, info.map(|info| info.rto)) else { return false };
    let is_over = *at + SLACK >= sent.at + bound;
    let end = sent.at + longer + granularity(longer) + SLACK;
    let waits = pair.kernel.is_none_or(|kernel| kernel.at > *at && kernel.at < end);
    waits && is_over && longer > bound && pair.times_sent(again.seq) == 1
}

/// Whether the kernel waits twice as long as the largest timeout was, or twice as long again, since that has become larger.
fn is_doubled_behind_the_largest_timeout(pair: &Pair<'_>) -> bool {
    let Some(Record { at, what: What::Sent(Packet::Tcp(again)) }) = pair.kernel else { return false };
    let [.., before, bound] = largest_timeouts(pair)[..] else { return false };
    let is_before = |record: &&Record| {
        record.segment().is_some_and(|text| text.end() > text.seq && text.seq == again.seq)
    };
    let waited = pair.earlier.iter().rev().find(is_before).map(|record| at.saturating_sub(record.at));
    let is_doubled = |times: u32| {
        let wait = before * times;
        wait < bound && waited.is_some_and(|waited| waited.abs_diff(wait) < granularity(wait) + SLACK)
    };
    let waits = pair.stack.is_none_or(|stack| stack.at > *at);
    waits && again.end() > again.seq && (1..DOUBLINGS_MAX).any(|times| is_doubled(1 << times))
}

/// A listener that waits for data has already received the acknowledgment of its SYN-ACK. In Sockeye, the time until
/// the data arrives says nothing about the path. In the kernel it is the first round trip sample.
pub(super) fn round_trip_of_text_that_was_waited_for(pair: &Pair<'_>) -> Option<Then> {
    let defers = |action: &Action| matches!(action, Action::Set(SockOpt::DeferAccept, 1..));
    let mut of_peer = pair.peer().filter(|(_, segment)| segment.flags.has(Flags::ACK));
    let is_bare = |segment: &Segment| segment.len == 0 && segment.flags == Flags::ACK;
    let waits = pair.scenario.any(defers) && of_peer.next().is_some_and(|(_, first)| is_bare(first));
    // From the SYN-ACK to the data, or to the FIN.
    let asked = pair.earlier.iter().find(|record| record.segment().is_some_and(Segment::is_syn_ack))?.at;
    let mut acks = pair.peer().filter(|(_, segment)| segment.flags.has(Flags::ACK));
    let last = acks.clone().next_back()?.0;
    let came = acks.find(|(_, segment)| !is_bare(segment)).map_or(last, |(index, _)| index);
    let waited = pair.scenario.events[came].at().saturating_sub(asked);
    let apart = fades(pair, waited).max(RTO_BEFORE_A_SAMPLE);
    // A tail loss probe or a retransmission by that timeout.
    let is_time = by_first_sample(pair, apart) || (is_probe_of_new_text(pair) && is_near(pair, apart));
    (waits && is_time).then_some(Then::Stop)
}

/// How far apart a first round trip sample that is wrong by this much may keep the retransmission timeouts, which are up to four and a half times as
/// long. Each later sample takes its eighth part of the mean, while the deviation first grows.
fn fades(pair: &Pair<'_>, sample: Duration) -> Duration {
    let mut una = 1;
    let is_news = |told: &&Segment| {
        let is_news = told.ack > una;
        una = una.max(told.ack);
        is_news
    };
    let samples = pair.acks().filter(is_news).count() as i32;
    sample.mul_f64(4.5 * 0.94_f64.powi(samples))
}

/// Whether the timeouts in TCP_INFO are no farther apart than this, or so are timers that send what was sent before.
fn by_first_sample(pair: &Pair<'_>, apart: Duration) -> bool {
    if let Some((State { info: Some(kernel), .. }, State { info: Some(stack), .. })) = pair.states() {
        let doubled = apart * (1 << doublings(kernel));
        let is_near = kernel.rto.abs_diff(stack.rto) <= doubled + SLACK + kernel.rto / 8;
        return pair.why.starts_with("rto:") && is_near;
    }
    let is_again = |record: Option<&Record>| {
        let again = record.and_then(Record::segment);
        again.is_some_and(|again| again.end() > again.seq && pair.times_sent(again.seq) > 0)
    };
    let is_time = pair.why.starts_with("time:") && is_again(pair.kernel) && is_again(pair.stack);
    (is_time || is_timer(pair)) && is_near(pair, apart)
}

/// Whether the two records are no farther apart than timeouts that differ by this, and have been doubled as often as this
/// segment was sent.
fn is_near(pair: &Pair<'_>, apart: Duration) -> bool {
    let (Some(kernel), Some(stack)) = (pair.kernel, pair.stack) else { return false };
    let sent = kernel.segment().or_else(|| stack.segment());
    let times = sent.map_or(0, |sent| pair.times_sent(sent.seq));
    let doubled = apart * (1 << times.saturating_sub(1).min(BACKOFF_MAX));
    let since = pair
        .earlier
        .iter()
        .rfind(|record| record.segment().is_some())
        .map_or(Duration::ZERO, |record| record.at);
    let late = granularity(kernel.at.max(stack.at).saturating_sub(since)) + SLACK + pair.late;
    kernel.at.abs_diff(stack.at) <= doubled + late
}

/// Whether one side sends new data although nothing has just happened, a tail loss probe, while the other waits, or sends it at another time.
fn is_probe_of_new_text(pair: &Pair<'_>) -> bool {
    let probes = |record: Option<&Record>| {
        let Some(Record { at, what: What::Sent(Packet::Tcp(text)) }) = record else { return false };
        let times = pair.scenario.events.iter().map(|event| Duration::from_millis(event.at_ms.into()));
        let latest = times.filter(|time| time <= at).max();
        text.len > 0 && pair.times_sent(text.seq) == 0 && latest.is_some_and(|time| *at > time + SLACK * 2)
    };
    let waits = |record: Option<&Record>| matches!(record.map(|record| &record.what), Some(What::State(..)));
    let are_apart = pair.why.starts_with("time:") && probes(pair.stack) && probes(pair.kernel);
    are_apart || (probes(pair.stack) && waits(pair.kernel)) || (probes(pair.kernel) && waits(pair.stack))
}

/// The low bits of a cookie's timestamp (64 ms) store options, so the first round trip sample is too long by up to
/// that; by different amounts in Sockeye and in the kernel.
pub(super) fn round_trip_of_a_cookie(pair: &Pair<'_>) -> Option<Then> {
    let is_measured =
        pair.scenario.has_cookies() && pair.acks().next().is_some_and(|ack| ack.timestamp().is_some());
    (is_measured && by_first_sample(pair, fades(pair, COOKIE_TIME))).then_some(Then::Stop)
}

/// What the low bits of a cookie's timestamp count.
const COOKIE_TIME: Duration = Duration::from_millis(64);

/// With Fast Open, a listener's connection is closed before the handshake has ended, and its FIN is sent at once. The
/// acknowledgment of the SYN-ACK then gives the kernel no round trip sample.
pub(super) fn round_trip_of_a_closed_handshake(pair: &Pair<'_>) -> Option<Then> {
    let (index, told) = pair.peer().find(|(_, told)| told.flags.has(Flags::ACK))?;
    let told_at = pair.scenario.events[index].at();
    let mut early = pair.earlier.iter().take_while(|record| record.at < told_at);
    let is_closed =
        early.any(|record| record.segment().is_some_and(|fin| fin.flags.has(Flags::FIN.with(Flags::ACK))));
    // The stack is the first to repeat what nobody has acknowledged since, after a timeout.
    let is_first = pair.acks().all(|later| later.ack <= told.ack);
    let again =
        pair.stack?.segment().filter(|again| again.end() > again.seq && pair.times_sent(again.seq) > 0);
    let sent = again.and_then(|again| {
        pair.earlier.iter().rfind(|record| record.segment().is_some_and(|text| text.seq == again.seq))
    })?;
    let stack_at = pair.stack?.at;
    let is_timeout = stack_at + SLACK >= sent.at + settings::stack(&pair.scenario.settings).tcp.rto_min;
    let is_later = pair.kernel.is_none_or(|kernel| kernel.at > stack_at)
        && (pair.why.starts_with("time:") || is_timer(pair));
    (is_closed && is_first && is_timeout && is_later).then_some(Then::Stop)
}

/// Whether a timer of one side retransmits something while the other side waits.
pub(super) fn is_timer(pair: &Pair<'_>) -> bool {
    let again = |record: Option<&Record>| match record.map(|record| &record.what) {
        Some(What::Sent(Packet::Tcp(again))) => again.end() > again.seq && pair.times_sent(again.seq) > 0,
        _ => false,
    };
    let waits = |record: Option<&Record>| matches!(record.map(|record| &record.what), Some(What::State(..)));
    (again(pair.kernel) && waits(pair.stack)) || (again(pair.stack) && waits(pair.kernel))
}

/// One side's retransmission timer expires before an event, the other's after it, because their timeouts differ by an
/// allowed amount. With a user timeout, one connection may have ended by then.
pub(super) fn event_between_two_timeouts(pair: &Pair<'_>) -> Option<Then> {
    if is_between_two_window_probes(pair) || is_given_up_at_a_timeout(pair) == Some(true) {
        return Some(Then::Stop);
    }
    let (first, sent_at, rto) = first_out(pair)?;
    // The timeout counts from a tail loss probe of new data.
    let sent_at = probe_of_new_text_at(pair).unwrap_or(sent_at);
    // The only retransmission may be a tail loss probe, which doubles nothing.
    let is_probed = pair.times_sent(first.seq) == 2;
    let once = rto / 2;
    let is_timeout = |again: &Segment, at: Duration| {
        let is_due = |rto| at.abs_diff(sent_at + rto) < granularity(rto) + SLACK;
        again.seq == first.seq && again.end() > again.seq && (is_due(rto) || (is_probed && is_due(once)))
    };
    match (&pair.kernel?.what, &pair.stack?.what) {
        (What::Sent(Packet::Tcp(again)), What::State(_, State { info: Some(stack), .. })) => {
            // The largest allowed difference (`compare.rs`).
            let most = |rto: Duration| rto / 8 + SLACK + pair.late + pair.late / 8;
            let differs = |rto: Duration| stack.rto > rto && stack.rto - rto <= most(rto);
            let is_between = pair.stack?.at < sent_at + stack.rto + granularity(stack.rto);
            let is_it = differs(rto) || (is_probed && differs(once));
            (is_timeout(again, pair.kernel?.at) && is_it && is_between).then_some(Then::Stop)
        }
        // The kernel's timer is not late yet.
        (What::State(..), What::Sent(Packet::Tcp(again))) => {
            let is_between = pair.kernel?.at < sent_at + rto + granularity(rto);
            (is_timeout(again, pair.stack?.at) && is_between).then_some(Then::Stop)
        }
        // A user timeout is checked when the timer expires.
        (What::State(_, kernel), What::State(_, stack)) => {
            let is_between = pair.kernel?.at.abs_diff(sent_at + rto) < granularity(rto) + SLACK;
            let has_user_timeout = pair
                .scenario
                .any(|action| matches!(action, Action::Set(SockOpt::UserTimeout, timeout) if *timeout > 0));
            (kernel.ready.error != stack.ready.error && is_between && has_user_timeout).then_some(Then::Stop)
        }
        _ => None,
    }
}

/// When a timer of the kernel has sent new data, if nothing was sent since then.
fn probe_of_new_text_at(pair: &Pair<'_>) -> Option<Duration> {
    let is_text = |record: &&Record| record.segment().is_some_and(|text| text.len > 0);
    let last = pair.earlier.iter().rfind(is_text)?;
    let probe = pair.by_timer().last()?;
    let is_it = last.segment() == Some(probe) && pair.times_sent(probe.seq) == 1;
    is_it.then_some(last.at)
}

/// A user timeout that is set while a zero window is probed counts from the first probe in the kernel, and from the
/// next one in Sockeye.
pub(super) fn user_timeout_beside_probes(pair: &Pair<'_>) -> Option<Then> {
    let is_set = |index: usize| {
        let action = pair.scenario.events.get(index).map(|event| &event.action);
        matches!(action, Some(Action::Set(SockOpt::UserTimeout, timeout)) if *timeout > 0)
    };
    let is_probing = |info: &Info| {
        info.get("backoff").is_some_and(|backoff| backoff > 0) && info.get("snd_wnd") == Some(0)
    };
    let is_late = pair.earlier.iter().any(|record| match &record.what {
        What::State(before, State { info: Some(info), .. }) => is_set(before + 1) && is_probing(info),
        _ => false,
    });
    let is_over = |record: &Option<&Record>| {
        record.is_some_and(|record| matches!(&record.what, What::State(_, state) if state.ready.error))
    };
    // A closed socket shows no error, but sends no more probes.
    let una = pair.acks().map(|told| told.ack).max().unwrap_or(1);
    let goes_on = pair.is_shut()
        && !matches!(pair.kernel.map(|record| &record.what), Some(What::Sent(_)))
        && matches!(&pair.stack.map(|record| &record.what),
            Some(What::Sent(Packet::Tcp(probe))) if probe.is_bare_ack() && probe.seq + 1 == una);
    let is_kernels = is_over(&pair.kernel) && !is_over(&pair.stack);
    (is_late && (is_kernels || goes_on) && is_within_a_probe(pair)?).then_some(Then::Stop)
}

/// Whether the user timeout, counted from the first probe behind the option, has not passed long enough for another probe:
/// the timer of a probe finds that it has passed.
fn is_within_a_probe(pair: &Pair<'_>) -> Option<bool> {
    let set = pair.scenario.events.iter().enumerate().take(pair.index()? + 1).rev();
    let (set_at, timeout) = set.into_iter().find_map(|(_, event)| match event.action {
        Action::Set(SockOpt::UserTimeout, ms) if ms > 0 => {
            Some((event.at(), Duration::from_millis(ms.into())))
        }
        _ => None,
    })?;
    let is_probe =
        |record: &&Record| record.at > set_at && record.segment().is_some_and(Segment::is_bare_ack);
    let first = pair.earlier.iter().find(is_probe).map_or(set_at, |record| record.at);
    let info = pair.earlier.iter().rev().find_map(|record| match &record.what {
        What::State(_, state) => state.info.as_ref(),
        _ => None,
    })?;
    let doubled = info.rto * (1 << (info.get("backoff")? + 1).min(BACKOFF_MAX as u64));
    let latest = first + timeout + doubled;
    Some(pair.stack?.at < latest + granularity(doubled) + SLACK)
}

/// For Sockeye, anything that arrives from the peer shows that it is alive (RFC 9293 section 3.8.4), also an ACK that a
/// later one had overtaken, and data that acknowledges nothing new. For the kernel these show nothing, so it sends its
/// next keepalive probe sooner.
pub(super) fn keepalive_beside_an_old_acknowledgment(pair: &Pair<'_>) -> Option<Then> {
    let told = pair.peer().last()?.1;
    let is_old = told.len == 0 && pair.acks().any(|latest| latest.ack > told.ack);
    let record = pair.kernel?;
    if let Some(kernel) = record.segment() {
        let top = pair.texts().map(Segment::end).max().unwrap_or(1);
        let is_question = kernel.is_bare_ack() && kernel.seq + 1 == top;
        // Or the stack waits, because a shorter time was set that counts from there.
        let is_later = |stack: &Record, later: &Segment| {
            later.seq == kernel.seq && pair.why.starts_with("time:") && record.at < stack.at
        };
        let is_sooner =
            pair.stack.is_none_or(|stack| stack.segment().is_none_or(|later| is_later(stack, later)));
        return (is_question && is_sooner && is_old).then_some(Then::Stop);
    }
    let (kernel, stack) = pair.states()?;
    let probes = |state: &State| state.info.as_ref()?.get("probes");
    let is_heard = probes(stack) == Some(0) || (told.len > 0 && probes(stack) < probes(kernel));
    let is_it = pair.why.starts_with("probes:") && probes(kernel) > Some(0) && is_heard;
    (is_it && (is_old || told.len > 0)).then_some(Then::Stop)
}

/// After a tail loss probe, new data or a FIN is sent just when the timeout of the first segment has passed in Sockeye.
/// In the kernel, which rounds the timeout up, this is less than a tick before it passes. So the kernel's next probe is
/// that timeout, and the stack's comes after two round trips. The same may happen to the first probe.
pub(super) fn probe_at_the_timeout(pair: &Pair<'_>) -> Option<Then> {
    let What::Sent(Packet::Tcp(kernel)) = &pair.kernel?.what else { return None };
    let is_later = match pair.stack.map(|record| &record.what) {
        Some(What::Sent(Packet::Tcp(stack))) => stack.seq == kernel.seq && pair.why.starts_with("time:"),
        _ => true,
    };
    if is_later && is_first_probe_at_the_timeout(pair) {
        return Some(Then::Stop);
    }
    let (first, sent_at, rto) = first_out(pair)?;
    let top = pair.texts().map(Segment::end).max()?;
    let (what, new_at) = pair.earlier.iter().rev().find_map(|record| match &record.what {
        What::Sent(Packet::Tcp(text)) if text.len > 0 || text.flags.has(Flags::FIN) => {
            Some((text, record.at))
        }
        _ => None,
    })?;
    let is_again = kernel.seq == first.seq && kernel.len > 0 && pair.times_sent_to(first.end()) == 1;
    // Or a probe of new data.
    let is_more = kernel.seq == top && kernel.len > 0;
    let is_new = what.end() == top && pair.times_sent_to(top) == 1;
    // The probe was the last segment again, or new data.
    let is_probe = |text: &Segment| text.end() < top && pair.times_sent_to(text.end()) == 2;
    let was_probed = pair.texts().any(is_probe) || pair.by_timer().any(|text| text.len > 0);
    let age = new_at - sent_at;
    let is_then = age < rto && age + JIFFY > rto && pair.kernel?.at < new_at + SLACK + 3 * JIFFY;
    (is_later && (is_again || is_more) && is_new && was_probed && is_then).then_some(Then::Stop)
}

/// Whether the kernel's probe is the first, and the acknowledgment that has just released the last data has made the
/// timeout so short.
fn is_first_probe_at_the_timeout(pair: &Pair<'_>) -> bool {
    let (Some(kernel), Some(una)) = (pair.kernel, pair.acks().map(|told| told.ack).max()) else {
        return false;
    };
    let Some(probe) = kernel.segment().filter(|probe| probe.len > 0) else { return false };
    let holds = |number: u32| {
        move |record: &&Record| record.segment().is_some_and(|text| (text.seq..text.end()).contains(&number))
    };
    // The probe may be new data.
    let top = pair.texts().map(Segment::end).max().unwrap_or(1);
    let (first, last) =
        (pair.earlier.iter().rfind(holds(una)), pair.earlier.iter().rfind(holds(probe.seq.min(top - 1))));
    // Timeouts may have doubled it by then.
    let rto = pair.later.iter().find_map(|record| match &record.what {
        What::State(_, State { info: Some(info), .. }) => Some(info.rto / (1 << doublings(info))),
        _ => None,
    });
    let (Some(first), Some(last), Some(rto)) = (first, last, rto) else { return false };
    // The first may have been sent again since.
    let Some(age) = last.at.checked_sub(first.at) else { return false };
    let is_last = top <= probe.end() && pair.times_sent_to(probe.end()) <= 1;
    is_last && age < rto && age + JIFFY > rto && kernel.at < last.at + SLACK + 3 * JIFFY
}

/// Data arrives as long after other data as a delayed ACK waits, to the tick. Whether the interval is shorter than the
/// delay decides how long the next ACK waits.
pub(super) fn arrivals_a_wait_apart(pair: &Pair<'_>) -> Option<Then> {
    let (kernel, stack) = pair.segments()?;
    let events = pair.scenario.events.get(..=pair.index()?)?;
    let texts = events.iter().filter(|event| matches!(&event.action, Action::Segment(text) if text.len > 0));
    let times: Vec<Duration> = texts.map(|event| event.at()).collect();
    let is_bare = |ack: &Segment| ack.flags == Flags::ACK && ack.len == 0;
    let since = *times.last()?;
    let is_it = is_bare(kernel) && is_bare(stack) && kernel.ack == stack.ack;
    let waits = possible_waits(&times);
    let is_possible =
        |record: &Record| waits.iter().any(|wait| record.at.saturating_sub(since).abs_diff(*wait) < SLACK);
    let is_either = waits.len() > 1 && [pair.kernel?, pair.stack?].into_iter().all(is_possible);
    (is_it && is_either && pair.why.starts_with("time:")).then_some(Then::Stop)
}

/// How long an acknowledgment may wait after data that arrived at these times (`tcp_event_data_recv`): where data arrives about as
/// long after other data as it would have waited for, ticks decide.
fn possible_waits(times: &[Duration]) -> Vec<Duration> {
    let mut waits = vec![ACKNOWLEDGMENT_WAIT];
    for two in times.windows(2) {
        let gap = two[1].saturating_sub(two[0]);
        let next = |wait: &Duration| {
            let (longer, shorter) = (*wait / 2 + gap, *wait / 2 + ACKNOWLEDGMENT_WAIT / 2);
            match () {
                () if gap <= ACKNOWLEDGMENT_WAIT / 2 => vec![shorter],
                () if gap.abs_diff(*wait) <= 2 * JIFFY => vec![longer, *wait],
                () if gap < *wait => vec![longer],
                () => vec![*wait],
            }
        };
        waits = waits.iter().flat_map(next).collect();
        waits.truncate(WAITS_MAX);
    }
    waits
}

/// A write comes about one timeout after a retransmission by a timer, which was later in the kernel than in Sockeye, or
/// the pause is longer than the kernel's timeout and shorter than Sockeye's. This decides whether the write ends a pause
/// and reduces the window.
pub(super) fn pause_behind_a_late_timer(pair: &Pair<'_>) -> Option<Then> {
    let event = pair.scenario.events.get(pair.index()?)?;
    event.action.written()?;
    let (again, sent_at) = pair.earlier.iter().rev().find_map(|record| match &record.what {
        What::Sent(Packet::Tcp(text)) if text.len > 0 && record.at < event.at() => Some((text, record.at)),
        _ => None,
    })?;
    if pair.times_sent(again.seq) < 2 {
        return None;
    }
    let age = event.at() - sent_at;
    if let (What::Returned(_, Ok(kernel)), What::Returned(_, Ok(stack))) =
        (&pair.kernel?.what, &pair.stack?.what)
    {
        // A write that is limited by the amount of queued data takes as many segments less as the window has become
        // smaller.
        let rto = pair.earlier.iter().rev().find_map(|record| match &record.what {
            What::State(_, State { info: Some(info), .. }) => Some(info.rto),
            _ => None,
        })?;
        let is_near = age <= rto && age + pair.late + SLACK > rto;
        let is_smaller = kernel > stack
            && u64::from(kernel - stack).is_multiple_of(latest_figure(pair.earlier, "snd_mss")?);
        return (is_near && is_smaller).then_some(Then::Stop);
    }
    let (kernel, stack) = pair.states()?;
    let (kernel, stack) = (kernel.info.as_ref()?, stack.info.as_ref()?);
    let rto = kernel.rto.min(stack.rto);
    let is_near = age <= kernel.rto && age + pair.late + SLACK > rto;
    let is_smaller = kernel.get("snd_cwnd") > stack.get("snd_cwnd");
    let is_between = age + SLACK > kernel.rto && age <= stack.rto + SLACK + pair.late;
    (pair.why.starts_with("snd_cwnd:") && if is_smaller { is_near } else { is_between }).then_some(Then::Stop)
}

/// A timeout marks as lost what has been in flight for the latest round trip (`tcp_rack_skb_timeout`). For data that was
/// sent about that long before the timeout, the ticks decide, and how far the timers of the two sides are apart.
pub(super) fn timeout_a_round_trip_behind(pair: &Pair<'_>) -> Option<Then> {
    let (kernel, stack) = pair.states()?;
    let (kernel, stack) = (kernel.info.as_ref()?, stack.info.as_ref()?);
    let is_timeout = |info: &Info| info.get("ca_state") == Some(4) && info.get("retransmits") >= Some(1);
    let (una, timeout_at) = first_out(pair).map(|(first, at, _)| (first.seq, at))?;
    let round_trip = latest_round_trip(pair)?;
    let mut out = pair.earlier.iter().filter(|record| {
        record.at < timeout_at && record.segment().is_some_and(|text| text.len > 0 && text.end() > una)
    });
    let apart = SLACK + pair.late + kernel.rto.abs_diff(stack.rto) * 2;
    let is_near = out.any(|text| (timeout_at - text.at).abs_diff(round_trip) < apart);
    let is_it = pair.why.starts_with("snd_cwnd:") && is_timeout(kernel) && is_timeout(stack);
    (is_it && is_near).then_some(Then::Stop)
}

/// Whether a connection is given up at a timeout on one side, and not on the other: it is at the first that comes a certain
/// time after the first retransmission (`retransmits_timed_out`). When one comes at about that time, the ticks decide.
fn is_given_up_at_a_timeout(pair: &Pair<'_>) -> Option<bool> {
    let (kernel, stack) = (pair.kernel?, pair.stack?);
    let (again, over) = match (&kernel.what, &stack.what) {
        (What::Sent(Packet::Tcp(again)), What::State(_, over)) => (again, over),
        (What::State(_, over), What::Sent(Packet::Tcp(again))) => (again, over),
        _ => return None,
    };
    let sent_at = kernel.at.min(stack.at);
    let tcp = settings::stack(&pair.scenario.settings).tcp;
    let retries = if pair.is_shut() { tcp.retries.min(settings::ORPHAN_RETRIES) } else { tcp.retries };
    let waits = (0..=u32::from(retries)).map(|count| FIRST_WAIT * (1 << count.min(BACKOFF_MAX as u32)));
    let patience: Duration = waits.map(|wait| wait.min(tcp.rto_max)).sum();
    let apart = SLACK + pair.late + granularity(patience);
    let mut first = pair
        .earlier
        .iter()
        .filter(|record| record.segment().is_some_and(|text| text.len > 0 && text.seq == again.seq));
    let is_near = first.any(|first| sent_at.saturating_sub(first.at).abs_diff(patience) < apart);
    let is_over = over.ready.error && over.info.as_ref().is_none_or(|info| info.state == "CLOSED");
    Some(is_over && is_near && again.len > 0 && pair.times_sent(again.seq) > 1)
}

/// How long the peer took to acknowledge the latest transmission of what it acknowledged last.
fn latest_round_trip(pair: &Pair<'_>) -> Option<Duration> {
    let told = pair.acks().map(|told| told.ack).max()?;
    let (index, _) = pair.peer().find(|(_, first)| first.flags.has(Flags::ACK) && first.ack == told)?;
    let at = pair.scenario.events[index].at();
    let sent = pair.earlier.iter().rfind(|record| {
        matches!(&record.what, What::Sent(Packet::Tcp(sent)) if sent.end() == told && record.at < at)
    })?;
    Some(at - sent.at)
}

/// How often the timeout has been doubled.
pub(super) fn doublings(info: &Info) -> u32 {
    info.get("backoff").unwrap_or(0).min(BACKOFF_MAX as u64) as u32
}

/// How often a timeout is doubled behind a larger bound in the scenarios, and one.
const DOUBLINGS_MAX: u32 = 4;
/// Largest number of times that a timeout is doubled.
pub(super) const BACKOFF_MAX: usize = 15;
/// The first delay of an ACK.
const ACKNOWLEDGMENT_WAIT: Duration = Duration::from_millis(40);

/// As many waits are looked at.
const WAITS_MAX: usize = 16;

/// In Sockeye, a user timeout shorter than the timeout of the SYN ends the connect. The kernel checks it only after the
/// SYN was retransmitted.
pub(super) fn user_timeout_of_a_syn(pair: &Pair<'_>) -> Option<Then> {
    let (kernel, What::State(index, stack)) = (pair.kernel?, &pair.stack?.what) else { return None };
    let is_over = stack.info.as_ref().is_some_and(|info| info.state == "CLOSED");
    let set = pair.scenario.events.get(..=*index)?.iter().rev().find_map(|event| match event.action {
        Action::Set(SockOpt::UserTimeout, ms) => Some(ms),
        _ => None,
    });
    let ms = set.filter(|ms| *ms > 0 && *ms < FIRST_SYN_MS)?;
    let goes_on = match &kernel.what {
        What::Sent(Packet::Tcp(syn)) => syn.flags.has(Flags::SYN),
        What::State(_, state) => state.info.as_ref().is_some_and(|info| info.state == "SYN-SENT"),
        _ => false,
    };
    (is_over && goes_on && kernel.at >= Duration::from_millis(ms.into())).then_some(Then::Stop)
}

/// The values that TCP_RTO_MAX_MS accepts.
const RTO_MAX_MS: std::ops::RangeInclusive<u32> = 1_000..=120_000;
/// The timeout before a round trip was measured, if a SYN-ACK was lost (RFC 6298 section 5.7).
const RTO_BEFORE_A_SAMPLE: Duration = Duration::from_secs(3);
/// The first timeout of a SYN.
const FIRST_SYN_MS: u32 = 1_000;
/// The shortest wait of those that are added up before a connection is given up (`tcp_model_timeout`).
const FIRST_WAIT: Duration = Duration::from_millis(200);
