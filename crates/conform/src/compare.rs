//! Compares two traces of a scenario.
//!
//! Records must be the same, one by one and in order. Times and values that depend on them (timestamps, the retransmission timeout) may differ by
//! these tolerances, which are all defined here:
//!
//! | what | may differ by |
//! |---|---|
//! | the time of a segment | [`SLACK`], and half the granularity of the kernel's timers, [`granularity`], for each one that was waited for: the stack's are late by half of it (`driven.rs`). With a retransmission timeout that differs itself, up to `rto_max`, twice that |
//! | a timestamp | the same |
//! | the retransmission timeout | [`SLACK`] and an eighth, and as much as timers were late |
//!
//! Tests: below.

use std::time::Duration;

use crate::codec::Packet;
use crate::known::{self, Pair, Then};
use crate::scenario::{Action, Scenario};
use crate::segment::{Flags, Opt, Segment};
use crate::settings;
use crate::trace::{Info, Record, State, Trace, What};

/// Two ticks of 4 ms of the kernel's clock, and the time by which a run may be late.
pub const SLACK: Duration = Duration::from_millis(12);

/// Segments that leave within this time count as leaving together.
const AT_ONCE: Duration = Duration::from_millis(1);

/// Text that leaves within this time after text of the peer is an answer to it (`TCP_ATO_MIN`).
pub const ANSWER_MAX: Duration = Duration::from_millis(40);

/// The kernel answers unacceptable segments without text once in this time (`tcp_invalid_ratelimit`).
pub const CHALLENGE_INTERVAL: Duration = Duration::from_millis(500);
/// The longest interval here, and a tick of the kernel's.
pub const CHALLENGE_INTERVAL_MAX: Duration = Duration::from_millis(531 + 4);

/// By how much a timer of the kernel that runs for `wait` may expire late: its wheel has levels, each eight times as coarse
/// as the one below, from 64 ticks on.
pub fn granularity(wait: Duration) -> Duration {
    match wait.as_millis() {
        0..250 => Duration::from_millis(4),
        250..2_000 => Duration::from_millis(36),
        2_000..16_000 => Duration::from_millis(260),
        16_000..128_000 => Duration::from_millis(2_100),
        _ => Duration::from_secs(17),
    }
}

/// Where two traces differ.
#[derive(Clone, Debug)]
pub struct Difference {
    /// The first records that differ; `None` where a trace is over.
    pub kernel: Option<Record>,
    /// As [`kernel`](Self::kernel).
    pub stack: Option<Record>,
    /// The records' places in the kernel's trace and the stack's.
    pub places: (usize, usize),
    /// How they differ.
    pub why: String,
}

/// What was found.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The names of the known differences that occurred.
    pub known: Vec<&'static str>,
    /// The first that is not known.
    pub difference: Option<Difference>,
}

impl Difference {
    /// The part of the reason that does not depend on numbers.
    pub fn kind(&self) -> &str {
        self.why.split(':').next().unwrap_or_default()
    }
}

/// Compares two traces, up to the first difference that is not known.
pub fn compare(scenario: &Scenario, kernel: &Trace, stack: &Trace) -> Comparison {
    let rto_max = settings::stack(&scenario.settings).tcp.rto_max;
    let mut drift = Drift { rto_max, ..Drift::default() };
    let mut known: Vec<&'static str> = Vec::new();
    let (mut k, mut s) = (0, 0);
    let mut event = None;
    // Where the connection began, in the kernel's trace and in the scenario.
    let (mut begin, mut begin_event) = (0, 0);
    let (mut looked, mut is_over) = ((0, 0), false);
    while k < kernel.records.len() || s < stack.records.len() {
        let pair = (kernel.records.get(k), stack.records.get(s));
        if let Some(What::State(before, _)) = pair.1.or(pair.0).map(|record| &record.what) {
            event = scenario.events.get(before + 1);
            looked = (k, before + 1);
        } else if event.is_none() {
            event = scenario.events.first();
        }
        is_over |= event.is_some_and(|event| event.action == Action::Again);
        if is_over && pair.0.is_some_and(begins) {
            ((begin, begin_event), is_over) = (looked, false);
        }
        let why = match pair {
            (Some(kernel), Some(stack)) => drift.differs(kernel, stack),
            (Some(_), None) => Some("only the kernel does this".to_owned()),
            (None, Some(_)) => Some("only the stack does this".to_owned()),
            (None, None) => None,
        };
        if let Some(why) = why {
            let pair = Pair {
                scenario,
                event: event.map(|event| &event.action),
                kernel: pair.0,
                stack: pair.1,
                why: &why,
                earlier: &kernel.records[begin..k.min(kernel.records.len())],
                later: kernel.records.get(k..).unwrap_or_default(),
                begin: begin_event,
                late: drift.late,
            };
            let Some((name, then)) = known::find(&pair) else {
                let (kernel, stack) = (pair.kernel.cloned(), pair.stack.cloned());
                let difference = Difference { kernel, stack, places: (k, s), why };
                return Comparison { known, difference: Some(difference) };
            };
            if !known.contains(&name) {
                known.push(name);
            }
            match then {
                Then::GoOn => {}
                Then::SkipKernel => s = s.wrapping_sub(1),
                Then::SkipStack => k = k.wrapping_sub(1),
                Then::Stop => break,
            }
        }
        (k, s) = (k.wrapping_add(1), s.wrapping_add(1));
    }
    Comparison { known, difference: None }
}

/// Whether a record is the tested side's SYN.
fn begins(record: &Record) -> bool {
    matches!(&record.what, What::Sent(Packet::Tcp(syn)) if syn.flags.has(Flags::SYN) && !syn.flags.has(Flags::RST))
}

/// How far the kernel's timers may have moved its trace.
#[derive(Default)]
struct Drift {
    /// The times of the stack's latest segments that a retransmission, persist or keepalive timer may have sent, the latest last: a timer that sends
    /// one was started at one of these times.
    sent: [Duration; 3],
    late: Duration,
    /// No timer runs longer, whatever the timeouts are (`settings::stack`).
    rto_max: Duration,
    /// By how much the retransmission timeouts differed when they were last looked at.
    rto: Duration,
    /// The same as a share of the stack's.
    share: f64,
    /// The number behind all that the stack has sent.
    top: u32,
}

impl Drift {
    /// How far from the stack's a segment of the kernel may be.
    fn allowed(&mut self, stack: &Record, packet: &Packet) -> Duration {
        let Packet::Tcp(segment) = packet else { return SLACK };
        let is_bare = segment.flags == Flags::ACK && segment.len == 0 && segment.seq == self.top;
        self.top = self.top.max(segment.end());
        if is_bare {
            // The delayed-acknowledgment timer runs for a shorter time than the coarse timers.
            return SLACK + granularity(Duration::ZERO);
        }
        let coarse = granularity(stack.at.saturating_sub(self.sent[0])) / 2;
        // Since then the timeout may have been doubled, even more than once.
        let doubled = stack.at.saturating_sub(self.sent[2]).mul_f64(self.share);
        let allowed = SLACK + self.late + coarse + doubled.max(2 * self.rto);
        // Segments that leave together count as one time.
        if stack.at > self.sent[2] + AT_ONCE {
            self.sent.rotate_left(1);
            self.sent[2] = stack.at;
        }
        allowed
    }

    fn differs(&mut self, kernel: &Record, stack: &Record) -> Option<String> {
        match (&kernel.what, &stack.what) {
            (What::Sent(a), What::Sent(b)) => {
                let allowed = self.allowed(stack, b);
                if kernel.at.abs_diff(stack.at) > allowed {
                    return Some(format!("time: {:?} is not {:?}", stack.at, kernel.at));
                }
                self.late = self.late.max(kernel.at.abs_diff(stack.at));
                packets(a, b, allowed)
            }
            (What::State(i, a), What::State(j, b)) if i == j => {
                // A closed socket keeps its last timeout.
                if let (Some(a), Some(b)) = (&a.info, &b.info) {
                    self.rto = a.rto.min(self.rto_max).abs_diff(b.rto.min(self.rto_max));
                    self.share = self.rto.as_secs_f64() / b.rto.as_secs_f64().max(0.001);
                }
                states(a, b, self.late)
            }
            (What::Returned(i, a), What::Returned(j, b)) if i == j => {
                (a != b).then(|| format!("the call's result: {} is not {}", result(b), result(a)))
            }
            (a, b) => (a != b).then(|| format!("the kernel {}, the stack {}", a.verb(), b.verb())),
        }
    }
}

fn result(result: &Result<u32, i32>) -> String {
    match result {
        Ok(count) => count.to_string(),
        Err(number) => std::io::Error::from_raw_os_error(*number).to_string(),
    }
}

fn packets(kernel: &Packet, stack: &Packet, late: Duration) -> Option<String> {
    let (Packet::Tcp(a), Packet::Tcp(b)) = (kernel, stack) else {
        return (kernel != stack).then(|| "another packet".to_owned());
    };
    segments(a, b, late)
}

/// The IP headers' other fields, except for a reset: its socket may be gone, and with it the options that were set.
fn ip_parts(kernel: &Segment, stack: &Segment) -> impl Iterator<Item = (&'static str, u32, u32)> {
    let (a, b) = (kernel.ip, stack.ip);
    let fields = [
        ("DSCP", a.dscp.into(), b.dscp.into()),
        ("TTL", a.ttl.into(), b.ttl.into()),
        ("don't fragment", a.is_whole.into(), b.is_whole.into()),
        ("flow label", a.is_labelled.into(), b.is_labelled.into()),
        ("new flow label", a.is_relabelled.into(), b.is_relabelled.into()),
    ];
    fields.into_iter().filter(|_| !kernel.flags.has(Flags::RST))
}

fn segments(kernel: &Segment, stack: &Segment, late: Duration) -> Option<String> {
    let parts = [
        ("flags", u32::from(kernel.flags.0), u32::from(stack.flags.0)),
        ("sequence number", kernel.seq, stack.seq),
        ("length", kernel.len, stack.len),
        ("acknowledgment", kernel.ack, stack.ack),
        ("urgent pointer", u32::from(kernel.urg), u32::from(stack.urg)),
        ("ECN bits", u32::from(kernel.ecn), u32::from(stack.ecn)),
        ("text", u32::from(kernel.is_corrupt), u32::from(stack.is_corrupt)),
    ];
    let parts = parts.into_iter().chain(ip_parts(kernel, stack));
    if let Some((what, kernel, stack)) = parts.into_iter().find(|(_, kernel, stack)| kernel != stack) {
        return Some(format!("{what}: {stack} is not {kernel}"));
    }
    if kernel.options.len() != stack.options.len() {
        return Some("options".to_owned());
    }
    let pairs = kernel.options.iter().zip(&stack.options);
    let differing = pairs.into_iter().find(|(a, b)| match (a, b) {
        (Opt::Ts(a, echo_a), Opt::Ts(b, echo_b)) => {
            let later = a.wrapping_sub(*b) as i32;
            let allowed = late.as_millis() as i32;
            echo_a != echo_b || later.abs() > allowed
        }
        (a, b) => a != b,
    });
    if let Some((a, b)) = differing {
        return Some(format!("option: {b} is not {a}"));
    }
    // The last one, so that a difference of windows is one of nothing else.
    (kernel.win != stack.win).then(|| format!("window: {} is not {}", stack.win, kernel.win))
}

fn states(kernel: &State, stack: &State, late: Duration) -> Option<String> {
    if kernel.ready != stack.ready {
        return Some(format!("readiness: {:?} is not {:?}", stack.ready, kernel.ready));
    }
    let (Some(a), Some(b)) = (&kernel.info, &stack.info) else {
        return (kernel.info.is_some() != stack.info.is_some()).then(|| "TCP_INFO".to_owned());
    };
    infos(a, b, late)
}

fn infos(kernel: &Info, stack: &Info, late: Duration) -> Option<String> {
    if kernel.state != stack.state {
        return Some(format!("state: {} is not {}", stack.state, kernel.state));
    }
    // Before the handshake is over, figures of the path are guesses, and not the same ones; after the end they are leftovers.
    if kernel.state.starts_with("SYN") || kernel.state == "CLOSED" {
        return None;
    }
    for (name, a) in &kernel.figures {
        let b = stack.get(name);
        if b != Some(*a) {
            return Some(format!("{name}: {b:?} is not {a}"));
        }
    }
    // An echo of what a timer has sent measures less where that was later, and its share of the timeout is nine eighths.
    let allowed = SLACK + kernel.rto / 8 + late + late / 8;
    let differs = kernel.rto.abs_diff(stack.rto) > allowed;
    differs.then(|| format!("rto: {:?} is not {:?}", stack.rto, kernel.rto))
}

/// A difference as text: the scenario, both traces, and where they differ.
pub fn report(scenario: &Scenario, kernel: &Trace, stack: &Trace, difference: &Difference) -> String {
    use std::fmt::Write;
    let mut text = format!("{}\n", scenario);
    let (kernel, stack) = (kernel.lines(scenario), stack.lines(scenario));
    let _ = writeln!(text, "the same on both sides:");
    for line in kernel.iter().take(difference.places.0) {
        let _ = writeln!(text, "  {line}");
    }
    let _ = writeln!(text, "then they differ, {}", difference.why);
    for (side, lines, place) in
        [("kernel ", kernel, difference.places.0), ("sockeye", stack, difference.places.1)]
    {
        for line in lines.iter().skip(place).take(SHOWN) {
            let _ = writeln!(text, "  {side} {line}");
        }
    }
    text
}

/// How many lines of each side a report shows, from the difference on.
const SHOWN: usize = 6;
