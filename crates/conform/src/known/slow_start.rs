//! Differences in the end of slow start, and in the growth of the window after it.
//!
//! Tests: as those of `known.rs`.

use std::time::Duration;

use super::{Pair, Then};
use crate::codec::Packet;
use crate::compare::SLACK;
use crate::segment::Segment;
use crate::trace::{Info, Record, State, What, latest_figure};

/// When the round trip time has grown, Sockeye's CUBIC does not end slow start at once: the window first grows by a
/// quarter for some round trips (RFC 9406 section 4.3). The kernel ends slow start, with the threshold at the window.
pub(super) fn end_of_slow_start(pair: &Pair<'_>) -> Option<Then> {
    let is_cubic = !pair.is_newreno();
    if is_cubic
        && (is_slow_start_behind_an_undo(pair) || ends_with_an_undo(pair) || is_of_a_closed_socket(pair))
    {
        return Some(Then::Stop);
    }
    let cwnd = latest_figure(pair.earlier, "snd_cwnd")?;
    let is_slow_start =
        cwnd >= HYSTART_WINDOW_MIN && Some(cwnd) < latest_figure(pair.earlier, "snd_ssthresh");
    let is_it =
        ends_before_a_repair_goes_on(pair) || Growth::of(pair, cwnd).is_some_and(|growth| growth.is_it(pair));
    (is_cubic && is_slow_start && is_it).then_some(Then::Stop)
}

/// By how much an ACK may let the window grow in slow start, segments.
struct Growth {
    /// From a quarter of what it acknowledges, rounded down.
    least: u64,
    /// To all of it.
    most: u64,
    /// What is in flight behind it.
    out: u64,
    /// The number behind everything that was sent.
    top: u32,
}

impl Growth {
    /// That of the ACK which is the latest event. `None` if that acknowledges nothing new.
    fn of(pair: &Pair<'_>, cwnd: u64) -> Option<Self> {
        let (told, index) = (pair.cause()?, pair.index()?);
        let before = pair.acks_before(index).map(|told| told.ack).max().unwrap_or(1);
        let mss = latest_figure(pair.earlier, "snd_mss")?.max(1);
        let acked = u64::from(told.ack.checked_sub(before).filter(|acked| *acked > 0)?).div_ceil(mss);
        let top = pair.texts().map(Segment::end).max()?;
        let out = pair.texts().filter(|text| text.seq >= told.ack).count() as u64;
        Some(Self { least: cwnd + (acked / 4).saturating_sub(1), most: cwnd + acked, out, top })
    }

    /// Whether the two differ by no more than that.
    fn is_it(&self, pair: &Pair<'_>) -> bool {
        let is_new = |record: Option<&Record>| {
            record.and_then(Record::segment).is_some_and(|text| text.len > 0 && text.seq >= self.top)
        };
        let is_within = |record: Option<&Record>| match record.map(|record| &record.what) {
            Some(What::State(_, State { info: Some(info), .. })) => {
                info.get("snd_cwnd").is_some_and(|cwnd| (self.least..=self.most).contains(&cwnd))
            }
            _ => true,
        };
        let is_figure = ["snd_cwnd:", "snd_ssthresh:"].iter().any(|figure| pair.why.starts_with(figure));
        let is_text = match (is_new(pair.kernel), is_new(pair.stack)) {
            // The stack has used its window.
            (true, is_later) => self.out >= self.least && (!is_later || pair.why.starts_with("time:")),
            (false, true) => self.out < self.most,
            (false, false) => false,
        };
        is_within(pair.stack) && (is_figure || is_text)
    }
}

/// Whether the kernel ends slow start in a repair, with the threshold at the window, and the stack repeats more.
fn ends_before_a_repair_goes_on(pair: &Pair<'_>) -> bool {
    let (Some(What::State(_, State { info: Some(kernel), .. })), Some(What::Sent(Packet::Tcp(again)))) =
        (pair.kernel.map(|record| &record.what), pair.stack.map(|record| &record.what))
    else {
        return false;
    };
    let threshold = kernel.get("snd_ssthresh");
    let is_over =
        threshold == kernel.get("snd_cwnd") && threshold < latest_figure(pair.earlier, "snd_ssthresh");
    is_over && again.len > 0 && pair.times_sent(again.seq) > 0
}

/// The ACK that undoes a timeout lets the window grow as in the slow start before it: the stack's window is as large as
/// then, or has grown by less.
fn is_slow_start_behind_an_undo(pair: &Pair<'_>) -> bool {
    let state = |record: &'_ Record| match &record.what {
        What::State(_, State { info: Some(info), .. }) => {
            [info.get("ca_state"), info.get("snd_cwnd"), info.get("snd_ssthresh")]
        }
        _ => [None; 3],
    };
    let open = pair.earlier.iter().rev().map(state).find(|[phase, ..]| *phase == Some(0));
    let (Some([_, before, threshold]), Some([phase, after, _])) = (open, pair.stack.map(state)) else {
        return false;
    };
    let is_slow_start = before >= Some(HYSTART_WINDOW_MIN) && before < threshold;
    let is_undone = phase == Some(0) && after >= before && latest_figure(pair.earlier, "ca_state") == Some(4);
    let is_growth = match pair.kernel.map(|record| &record.what) {
        Some(What::Sent(Packet::Tcp(text))) => {
            text.len > 0 && pair.texts().all(|earlier| earlier.end() <= text.seq)
        }
        _ => pair.why.starts_with("snd_cwnd:"),
    };
    is_slow_start && is_undone && is_growth
}

/// Of a closed socket, only what leaves is known: whether the kernel sends twice as much as this ACK acknowledges, and the
/// stack as much and a quarter.
fn is_of_a_closed_socket(pair: &Pair<'_>) -> bool {
    let is_state = |record: &&Record| matches!(record.what, What::State(..));
    let is_text = |record: &&Record| record.segment().is_some_and(|text| text.len > 0);
    let is_closed =
        pair.stack.is_some_and(|record| matches!(record.what, What::State(_, State { info: None, .. })));
    let (Some(told), Some(index), Some(mss)) =
        (pair.cause(), pair.index(), latest_figure(pair.earlier, "snd_mss"))
    else {
        return false;
    };
    let before = pair.acks_before(index).map(|told| told.ack).max().unwrap_or(1);
    let top = pair.texts().map(Segment::end).max().unwrap_or(1);
    let segments = |bytes: u32| u64::from(bytes).div_ceil(mss.max(1)) as usize;
    let (acked, out) = (segments(told.ack.saturating_sub(before)), segments(top.saturating_sub(told.ack)));
    let sent = pair.earlier.iter().rev().take_while(|record| !is_state(record)).filter(is_text).count();
    let more = pair.later.iter().take_while(|record| !is_state(record)).filter(is_text).count();
    let is_growth = sent + more == 2 * acked && sent.abs_diff(acked + acked / 4) <= 1 && more > 0;
    is_closed && is_growth && out as u64 >= HYSTART_WINDOW_MIN && pair.is_closed()
}

/// Whether the kernel ends slow start with the ACK that undoes a timeout, at the window from before it, and the stack sends more new data.
fn ends_with_an_undo(pair: &Pair<'_>) -> bool {
    let (Some(What::State(_, kernel)), Some(What::Sent(Packet::Tcp(text)))) =
        (pair.kernel.map(|record| &record.what), pair.stack.map(|record| &record.what))
    else {
        return false;
    };
    let Some(kernel) = kernel.info.as_ref() else { return false };
    let open = pair.earlier.iter().rev().find_map(|record| match &record.what {
        What::State(_, State { info: Some(info), .. }) if info.get("ca_state") == Some(0) => Some(info),
        _ => None,
    });
    let before = open.and_then(|info| info.get("snd_cwnd"));
    let was_slow_start =
        before >= Some(HYSTART_WINDOW_MIN) && before < open.and_then(|info| info.get("snd_ssthresh"));
    let is_undone = latest_figure(pair.earlier, "ca_state") == Some(4) && kernel.get("ca_state") == Some(0);
    let is_new = text.len > 0 && pair.texts().all(|earlier| earlier.end() <= text.seq);
    was_slow_start && is_undone && is_new && kernel.get("snd_ssthresh") == before
}

/// The kernel counts the time of CUBIC's curve in ticks, and approximates the cube root that says where the curve is flat.
/// Where the curve reaches another whole segment just when the ACK comes, the windows differ by one segment or some.
///
/// Or the ACK comes about 1/32 s after another, and the growth is computed anew only after such a time.
pub(super) fn step_of_the_curve(pair: &Pair<'_>) -> Option<Then> {
    if is_growth_computed_anew(pair) {
        return Some(Then::Stop);
    }
    let is_avoidance =
        |info: &Info| info.get("ca_state") == Some(0) && info.get("snd_cwnd") >= info.get("snd_ssthresh");
    let is_window = |info: &Info| pair.why.starts_with("snd_cwnd:") && is_avoidance(info);
    // One more segment may leave, where all others have.
    let top = pair.texts().map(Segment::end).max()?;
    let is_more = |text: &Segment| text.len > 0 && text.seq == top;
    let (threshold, is_it) = match (&pair.kernel?.what, &pair.stack?.what) {
        (
            What::State(_, State { info: Some(kernel), .. }),
            What::State(_, State { info: Some(stack), .. }),
        ) => (kernel.get("snd_ssthresh")?, is_window(kernel) && is_window(stack)),
        (What::Sent(Packet::Tcp(text)), What::State(_, State { info: Some(info), .. }))
        | (What::State(_, State { info: Some(info), .. }), What::Sent(Packet::Tcp(text))) => {
            (info.get("snd_ssthresh")?, is_more(text) && is_avoidance(info))
        }
        _ => return None,
    };
    let is_it = is_it && !pair.is_newreno();
    let before = pair.acks_before(pair.index()?).map(|told| told.ack).max();
    let is_ack = pair.cause().is_some_and(|told| Some(told.ack) > before);
    let info = |record: &Record| match &record.what {
        What::State(index, State { info: Some(info), .. }) => Some((*index, info.clone())),
        _ => None,
    };
    let mut states: Vec<(usize, Info)> = pair.earlier.iter().filter_map(info).collect();
    // The window that was reduced to this threshold, and the event with which the curve begins.
    let reduced = states.iter().rposition(|(_, info)| info.get("snd_ssthresh") != Some(threshold))?;
    let full = states[reduced].1.get("snd_cwnd")?;
    states.drain(..=reduced);
    let (begin, _) = states.iter().find(|(_, info)| is_avoidance(info))?;
    let events = &pair.scenario.events;
    let at = events.get(pair.index()?)?.at();
    let age = at.saturating_sub(events.get(*begin)?.at()).as_secs_f64();
    // The least round trip is one of these.
    let trips = pair.peer().flat_map(|(index, told)| {
        let came = events[index].at();
        let ends = told.sack().iter().map(|(_, end)| *end).chain([told.ack]);
        let is_end = move |record: &&Record| {
            record.segment().is_some_and(|text| ends.clone().any(|end| end == text.end()))
        };
        pair.earlier.iter().filter(is_end).map(move |record| came.saturating_sub(record.at))
    });
    let is_step = |full: f64, trip: Duration| {
        let flat = ((full - threshold as f64).max(0.0) / CUBIC_C).cbrt();
        let steps = |time: f64| (CUBIC_C * (time - flat).abs().powi(3)).floor();
        let time = age + trip.as_secs_f64();
        steps(time - CURVE_SLACK) != steps(time + CURVE_SLACK)
    };
    // No state has shown the window if a timeout's repair was undone and another began at once, so all count that may have
    // been reduced to this threshold. A window that is smaller than at the reduction before leaves room for others (fast
    // convergence).
    let least = (threshold as f64 / CUBIC_BETA).ceil();
    let fulls = [full as f64, least, least + 1.0].map(|full| [full, (full * FAST_CONVERGENCE).floor()]);
    let is_near = trips
        .filter(|trip| !trip.is_zero())
        .any(|trip| fulls.iter().flatten().any(|full| is_step(*full, trip)));
    (is_it && is_ack && is_near).then_some(Then::Stop)
}

/// Whether the ticks decide whether the kernel computes anew how fast the window grows: the window is the same as at the
/// ACK before (`bictcp_update`).
fn is_growth_computed_anew(pair: &Pair<'_>) -> bool {
    let mut una = 0;
    let advances = |(_, told): &(usize, &Segment)| {
        let was = una;
        una = una.max(told.ack);
        una > was
    };
    let times: Vec<Duration> =
        pair.peer().filter(advances).map(|(index, _)| pair.scenario.events[index].at()).collect();
    let [.., before, last] = times[..] else { return false };
    let is_then = pair.kernel.or(pair.stack).is_some_and(|record| record.at < last + SLACK);
    let top = pair.texts().map(Segment::end).max().unwrap_or(1);
    let is_new = |record: Option<&Record>| {
        record.and_then(Record::segment).is_some_and(|text| text.len > 0 && text.seq >= top)
    };
    let is_it = pair.why.starts_with("snd_cwnd:") || is_new(pair.kernel) != is_new(pair.stack);
    let cwnd = latest_figure(pair.earlier, "snd_cwnd");
    let is_avoidance = cwnd >= latest_figure(pair.earlier, "snd_ssthresh");
    is_it
        && is_then
        && !pair.is_newreno()
        && is_avoidance
        && COMPUTED_AFTER.contains(&last.saturating_sub(before))
}

/// The factor of CUBIC's curve, segments per cubed second.
const CUBIC_C: f64 = 0.4;
/// How much of a window is left after a loss.
const CUBIC_BETA: f64 = 0.7;
/// What is left of the window at which the curve is flat, if there is less from loss to loss.
const FAST_CONVERGENCE: f64 = 0.85;
/// How far apart the kernel's time on the curve and Sockeye's may be, in seconds: a tick, and the cube root.
const CURVE_SLACK: f64 = 0.008;
/// After how long the growth is computed anew although the window is the same (HZ / 32, in ticks).
const COMPUTED_AFTER: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(27)..=Duration::from_millis(33);
/// Smallest window that can end slow start (`hystart_low_window`, RFC 9406 section 4.3), in segments.
const HYSTART_WINDOW_MIN: u64 = 16;
