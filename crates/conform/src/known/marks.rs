//! Differences in the answer to echoed marks of congestion.
//!
//! Tests: as those of `known.rs`.

use super::{Pair, Then};
use crate::codec::Packet;
use crate::segment::{Flags, Ip, Segment};
use crate::trace::{Info, Record, State, What, latest_figure};

/// An echoed ECN mark reduces Sockeye's window less than a loss does (RFC 8511), and at once. The kernel reduces it as
/// for a loss, in the course of a round trip. From then on, everything that depends on the window may differ.
pub(super) fn answer_to_a_mark(pair: &Pair<'_>) -> Option<Then> {
    let is_echo = |segment: &Segment| segment.flags.has(Flags::ECE) && !segment.flags.has(Flags::SYN);
    if !pair.has_ecn() || !pair.peer().any(|(_, segment)| is_echo(segment)) {
        return None;
    }
    let is_of_the_window = match (&pair.kernel?.what, &pair.stack?.what) {
        (What::State(_, kernel), What::State(_, stack)) => {
            let figures = ["ca_state:", "snd_cwnd:", "snd_ssthresh:", "notsent_bytes:"];
            figures.iter().any(|figure| pair.why.starts_with(figure))
                && is_reduced_less(pair, kernel.info.as_ref()?, stack.info.as_ref()?)
        }
        // What the window allows to be sent and when, or the report that it was reduced.
        (What::Sent(Packet::Tcp(kernel)), What::Sent(Packet::Tcp(stack))) => {
            let parts = ["time:", "flags:", "sequence number:", "length:", "ECN bits:"];
            let is_numbered = kernel.end() > kernel.seq || stack.end() > stack.seq;
            is_numbered && parts.iter().any(|part| pair.why.starts_with(part)) && are_alike(kernel, stack)
        }
        (What::Sent(Packet::Tcp(text)), What::State(_, stack)) => {
            let info = stack.info.as_ref();
            text.end() > text.seq
                && (info.is_none_or(|info| is_used(pair, text, info)) || is_probed_anew(pair, text))
        }
        (What::State(..), What::Sent(Packet::Tcp(text))) => text.end() > text.seq && !text.is_corrupt,
        _ => false,
    };
    is_of_the_window.then_some(Then::Stop)
}

/// Whether the stack has reduced its window, and the kernel to no more than that.
fn is_reduced_less(pair: &Pair<'_>, kernel: &Info, stack: &Info) -> bool {
    let others = ["snd_mss", "snd_wnd", "bytes_received", "bytes_acked"];
    let is_alike = others.iter().all(|name| kernel.get(name) == stack.get(name));
    let most =
        figures(pair, "snd_cwnd").chain(figures(pair, "snd_ssthresh").filter(|size| *size < UNLIMITED));
    let threshold = stack.get("snd_ssthresh");
    // A repair has reduced it already, once for this window.
    let is_repaired =
        is_in_window_of_a_repair(pair) && latest_figure(pair.earlier, "snd_ssthresh") == threshold;
    is_alike && (kernel.get("snd_ssthresh") <= threshold || is_repaired) && threshold <= most.max()
}

/// Whether no acknowledgment goes beyond what was sent while something was repaired.
fn is_in_window_of_a_repair(pair: &Pair<'_>) -> bool {
    let is_repair = |record: &Record| match &record.what {
        What::State(_, State { info: Some(info), .. }) => info.get("ca_state") >= Some(3),
        _ => false,
    };
    let Some(repair) = pair.earlier.iter().rposition(is_repair) else { return false };
    let sent = pair.earlier[..repair].iter().filter_map(Record::segment);
    let top = sent.filter(|text| text.end() > text.seq).map(Segment::end).max();
    pair.acks().map(|told| told.ack).max() <= top
}

/// What TCP_INFO has told of this figure.
fn figures<'a>(pair: &Pair<'a>, name: &'a str) -> impl Iterator<Item = u64> + use<'a> {
    pair.earlier.iter().filter_map(move |record| match &record.what {
        What::State(_, state) => state.info.as_ref()?.get(name),
        _ => None,
    })
}

/// Whether the two segments have the same besides their place, their time and what they tell of the window.
fn are_alike(kernel: &Segment, stack: &Segment) -> bool {
    let told = |sent: &Segment| Flags(sent.flags.0 & !(Flags::CWR.0 | Flags::PSH.0 | Flags::FIN.0));
    let has_ts = |sent: &Segment| sent.timestamp().is_some();
    // A timeout changes the flow label.
    let ip = |sent: &Segment| Ip { is_relabelled: false, ..sent.ip };
    let is_whole = !stack.is_corrupt && ip(stack) == ip(kernel) && stack.ack == kernel.ack;
    is_whole && told(kernel) == told(stack) && has_ts(kernel) == has_ts(stack)
}

/// Whether the stack's window is used up, so that it does not send this text.
fn is_used(pair: &Pair<'_>, text: &Segment, stack: &Info) -> bool {
    let una = pair.acks().map(|told| told.ack).max().unwrap_or(1);
    let out = pair.texts().filter(|out| out.seq >= una).count() as u64;
    let is_repaired = stack.get("ca_state") >= Some(3);
    (is_repaired && pair.times_sent(text.seq) > 0) || stack.get("snd_cwnd") <= Some(out)
}

/// Whether the kernel sends the last segment as another tail loss probe, and the stack does not, since no acknowledgment goes beyond its last probe.
fn is_probed_anew(pair: &Pair<'_>, text: &Segment) -> bool {
    let una = pair.acks().map(|told| told.ack).max();
    let top = pair.texts().map(Segment::end).max();
    let probed = pair.by_timer().last().map(Segment::end);
    probed.is_some() && probed == una && Some(text.end()) == top && pair.times_sent(text.seq) == 1
}

/// The threshold before it has been reduced.
const UNLIMITED: u64 = i32::MAX as u64;
