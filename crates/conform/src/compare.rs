//! Compares two traces of a scenario.
//!
//! Records must be the same, one by one and in order. Times and values that depend on them (timestamps, the retransmission timeout) may differ by
//! these tolerances, which are all defined here:
//!
//! | what | may differ by |
//! |---|---|
//! | the time of a segment | [`SLACK`]. If a timer sent it and no event, also half the granularity of the kernel's timers, [`granularity`], for each one that was waited for: the stack's are late by half of it (`driven.rs`). With a retransmission timeout that differs itself, up to `rto_max`, twice that |
//! | a timestamp | the same |
//! | the retransmission timeout | [`SLACK`] and an eighth, and as much as timers were late |
//!
//! [`SLACK`] itself is not handed on: a segment that is late by it makes no later one later. Nothing is handed on to the next connection.
//!
//! Tests: below.

use std::time::Duration;

use crate::codec::Packet;
use crate::known::{self, Pair, Then};
use crate::scenario::{Action, Scenario};
use crate::segment::{Flags, Opt, Segment};
use crate::settings;
use crate::trace::{Info, Record, State, Trace, What};
use crate::window;

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

/// Compares two traces, up to the first difference that is not known. Of two records, each difference has to be known, up to one behind which the
/// comparison does not go on with the next records. If there is none, a window of the stack may still be wrong by itself.
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
            drift.begin_anew();
        }
        let whys = match pair {
            (Some(kernel), Some(stack)) => drift.differences(kernel, stack),
            (Some(_), None) => vec!["only the kernel does this".to_owned()],
            (None, Some(_)) => vec!["only the stack does this".to_owned()],
            (None, None) => Vec::new(),
        };
        let pair = Pair {
            scenario,
            event: event.map(|event| &event.action),
            kernel: pair.0,
            stack: pair.1,
            why: "",
            earlier: &kernel.records[begin..k.min(kernel.records.len())],
            later: kernel.records.get(k..).unwrap_or_default(),
            begin: begin_event,
            late: drift.late,
        };
        match explain(&pair, &whys, &mut known) {
            Ok(Then::GoOn) => {}
            Ok(Then::SkipKernel) => s = s.wrapping_sub(1),
            Ok(Then::SkipStack) => k = k.wrapping_sub(1),
            Ok(Then::Stop) => break,
            Err(why) => {
                let (kernel, stack) = (pair.kernel.cloned(), pair.stack.cloned());
                let difference = Difference { kernel, stack, places: (k, s), why: why.to_owned() };
                return Comparison { known, difference: Some(difference) };
            }
        }
        (k, s) = (k.wrapping_add(1), s.wrapping_add(1));
    }
    let of_window = window::first_wrong(scenario, stack).map(|(place, why)| {
        let at = |trace: &Trace| trace.records.get(place).cloned();
        Difference { kernel: at(kernel), stack: at(stack), places: (place, place), why }
    });
    Comparison { known, difference: of_window }
}

/// How the comparison goes on behind two records that differ in these ways; `Err` with the first way that is not known. Adds the names to `known`.
fn explain<'w>(pair: &Pair<'_>, whys: &'w [String], known: &mut Vec<&'static str>) -> Result<Then, &'w str> {
    for why in whys {
        let (name, then) = known::find(&Pair { why, ..*pair }).ok_or(why.as_str())?;
        if !known.contains(&name) {
            known.push(name);
        }
        if then != Then::GoOn {
            return Ok(then);
        }
    }
    Ok(Then::GoOn)
}

/// Whether a record is the tested side's SYN.
fn begins(record: &Record) -> bool {
    matches!(&record.what, What::Sent(Packet::Tcp(syn)) if syn.flags.has(Flags::SYN) && !syn.flags.has(Flags::RST))
}

/// How far the kernel's timers may have moved its trace of a connection.
#[derive(Default)]
struct Drift {
    /// The times of the stack's latest segments that a retransmission, persist or keepalive timer may have sent, the latest last: a timer that sends
    /// one was started at one of these times.
    sent: [Duration; 3],
    /// By how much segments that timers sent were apart at most, without [`SLACK`].
    late: Duration,
    /// No timer runs longer, whatever the timeouts are (`settings::stack`).
    rto_max: Duration,
    /// By how much the retransmission timeouts differed when they were last looked at.
    rto: Duration,
    /// The same as a share of the stack's.
    share: f64,
    /// The number behind all that the stack has sent.
    top: u32,
    /// When the latest event came to the stack.
    event_at: Duration,
}

impl Drift {
    /// Another connection begins, with the latest event.
    fn begin_anew(&mut self) {
        let (rto_max, event_at) = (self.rto_max, self.event_at);
        *self = Self { sent: [event_at; 3], rto_max, event_at, ..Self::default() };
    }

    /// How far from the stack's a segment of the kernel may be, and how much of that a later segment may be apart as well.
    fn allowed(&mut self, stack: &Record, packet: &Packet) -> (Duration, Duration) {
        let Packet::Tcp(segment) = packet else { return (SLACK, Duration::ZERO) };
        let is_bare = segment.flags == Flags::ACK && segment.len == 0 && segment.seq == self.top;
        self.top = self.top.max(segment.end());
        let is_answer = stack.at <= self.event_at + AT_ONCE;
        let handed_on = match () {
            () if is_answer => Duration::ZERO,
            // The delayed-acknowledgment timer runs for a shorter time than the coarse timers.
            () if is_bare => granularity(Duration::ZERO),
            () => {
                let coarse = granularity(stack.at.saturating_sub(self.sent[0])) / 2;
                // Since then the timeout may have been doubled, even more than once.
                let doubled = stack.at.saturating_sub(self.sent[2]).mul_f64(self.share);
                self.late + coarse + doubled.max(2 * self.rto)
            }
        };
        // Segments that leave together count as one time.
        if !is_bare && stack.at > self.sent[2] + AT_ONCE {
            self.sent.rotate_left(1);
            self.sent[2] = stack.at;
        }
        let is_timer = !is_answer && !is_bare;
        (SLACK + handed_on, if is_timer { handed_on } else { Duration::ZERO })
    }

    /// All ways in which two records differ. If times differ too much, timestamps may differ by as much.
    fn differences(&mut self, kernel: &Record, stack: &Record) -> Vec<String> {
        match (&kernel.what, &stack.what) {
            (What::Sent(a), What::Sent(b)) => {
                let (allowed, handed_on) = self.allowed(stack, b);
                let apart = kernel.at.abs_diff(stack.at);
                let mut whys = Vec::new();
                if apart > allowed {
                    whys.push(format!("time: {:?} is not {:?}", stack.at, kernel.at));
                } else {
                    self.late = self.late.max(apart.min(handed_on));
                }
                whys.extend(packets(a, b, allowed.max(apart)));
                whys
            }
            (What::State(i, a), What::State(j, b)) if i == j => {
                self.event_at = stack.at;
                // A closed socket keeps its last timeout.
                if let (Some(a), Some(b)) = (&a.info, &b.info) {
                    self.rto = a.rto.min(self.rto_max).abs_diff(b.rto.min(self.rto_max));
                    self.share = self.rto.as_secs_f64() / b.rto.as_secs_f64().max(0.001);
                }
                states(a, b, self.late)
            }
            (What::Returned(i, a), What::Returned(j, b)) if i == j => {
                let why = || format!("the call's result: {} is not {}", result(b), result(a));
                (a != b).then(why).into_iter().collect()
            }
            (a, b) => {
                let why = || format!("the kernel {}, the stack {}", a.verb(), b.verb());
                (a != b).then(why).into_iter().collect()
            }
        }
    }
}

fn result(result: &Result<u32, i32>) -> String {
    match result {
        Ok(count) => count.to_string(),
        Err(number) => std::io::Error::from_raw_os_error(*number).to_string(),
    }
}

fn packets(kernel: &Packet, stack: &Packet, late: Duration) -> Vec<String> {
    match (kernel, stack) {
        (Packet::Tcp(a), Packet::Tcp(b)) => segments(a, b, late),
        // Not what the codec cannot read: two such packets need not be the same.
        (Packet::Icmp(..), Packet::Icmp(..)) if kernel == stack => Vec::new(),
        _ => vec!["another packet".to_owned()],
    }
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

fn segments(kernel: &Segment, stack: &Segment, late: Duration) -> Vec<String> {
    let parts = [
        ("flags", u32::from(kernel.flags.0), u32::from(stack.flags.0)),
        ("sequence number", kernel.seq, stack.seq),
        ("length", kernel.len, stack.len),
        ("acknowledgment", kernel.ack, stack.ack),
        ("urgent pointer", u32::from(kernel.urg), u32::from(stack.urg)),
        ("ECN bits", u32::from(kernel.ecn), u32::from(stack.ecn)),
        ("text", u32::from(kernel.is_corrupt), u32::from(stack.is_corrupt)),
    ];
    let parts = parts.into_iter().chain(ip_parts(kernel, stack)).filter(|(_, kernel, stack)| kernel != stack);
    let parts = parts.map(|(what, kernel, stack)| format!("{what}: {stack} is not {kernel}"));
    // The window is the last one.
    let window = || format!("window: {} is not {}", stack.win, kernel.win);
    let window = (kernel.win != stack.win).then(window);
    parts.chain(options(kernel, stack, late)).chain(window).collect()
}

/// How the options differ. If one side has more of them, only the timestamps are compared besides.
fn options(kernel: &Segment, stack: &Segment, late: Duration) -> Vec<String> {
    let differs = |a: &Opt, b: &Opt| match (a, b) {
        (Opt::Ts(a, echo_a), Opt::Ts(b, echo_b)) => {
            let later = a.wrapping_sub(*b) as i32;
            echo_a != echo_b || later.abs() > late.as_millis() as i32
        }
        (a, b) => a != b,
    };
    let text = |(a, b): (&Opt, &Opt)| format!("option: {b} is not {a}");
    if kernel.options.len() == stack.options.len() {
        let pairs = kernel.options.iter().zip(&stack.options);
        return pairs.filter(|(a, b)| differs(a, b)).map(text).collect();
    }
    let time =
        |segment: &'_ Segment| segment.options.iter().find(|option| matches!(option, Opt::Ts(..))).cloned();
    let times = time(kernel).zip(time(stack)).filter(|(a, b)| differs(a, b));
    let count = std::iter::once("options".to_owned());
    count.chain(times.map(|(a, b)| text((&a, &b)))).collect()
}

fn states(kernel: &State, stack: &State, late: Duration) -> Vec<String> {
    let mut whys = Vec::new();
    if kernel.ready != stack.ready {
        whys.push(format!("readiness: {:?} is not {:?}", stack.ready, kernel.ready));
    }
    match (&kernel.info, &stack.info) {
        (Some(a), Some(b)) => whys.extend(infos(a, b, late)),
        (None, None) => {}
        _ => whys.push("TCP_INFO".to_owned()),
    }
    whys
}

fn infos(kernel: &Info, stack: &Info, late: Duration) -> Vec<String> {
    if kernel.state != stack.state {
        return vec![format!("state: {} is not {}", stack.state, kernel.state)];
    }
    // Before the handshake is over, figures of the path are guesses, and not the same ones; after the end they are leftovers.
    if kernel.state.starts_with("SYN") || kernel.state == "CLOSED" {
        return Vec::new();
    }
    let figures = kernel.figures.iter().map(|(name, a)| (name, *a, stack.get(name)));
    let figures = figures.filter(|(_, a, b)| *b != Some(*a));
    let mut whys: Vec<String> = figures.map(|(name, a, b)| format!("{name}: {b:?} is not {a}")).collect();
    // An echo of what a timer has sent measures less where that was later, and its share of the timeout is nine eighths.
    let allowed = SLACK + kernel.rto / 8 + late + late / 8;
    if kernel.rto.abs_diff(stack.rto) > allowed {
        whys.push(format!("rto: {:?} is not {:?}", stack.rto, kernel.rto));
    }
    whys
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Ready;

    const USUAL: &str = "0 connect\n10 peer AS 0 ack 1 win 65535\n3000 write 1000\n9000 wait\n";

    /// A record of what the tested side sends, in the words of a scenario's peer.
    fn sent(at_ms: u64, words: &str) -> Record {
        let scenario: Scenario = format!("0 peer {words}").parse().unwrap();
        let Action::Segment(segment) = scenario.events[0].action.clone() else { panic!("{words}") };
        Record { at: Duration::from_millis(at_ms), what: What::Sent(Packet::Tcp(segment)) }
    }

    /// A record of the state before the event behind that of `index`, with these figures.
    fn state(at_ms: u64, index: usize, state: &'static str, figures: &[(&'static str, u64)]) -> Record {
        let info = Info { state, figures: figures.to_vec(), rto: Duration::from_millis(300) };
        let state = State { ready: Ready::default(), info: Some(info) };
        Record { at: Duration::from_millis(at_ms), what: What::State(index, state) }
    }

    /// What is found first between these traces.
    fn found(scenario: &str, kernel: &[Record], stack: &[Record]) -> Option<String> {
        let trace = |records: &[Record]| Trace { records: records.to_vec(), is_disturbed: false };
        let comparison = compare(&scenario.parse().unwrap(), &trace(kernel), &trace(stack));
        comparison.difference.map(|difference| difference.why)
    }

    #[test]
    fn a_known_difference_of_two_records_hides_no_other_one() {
        let counts =
            |unsent, acked| state(100, 1, "FIN-WAIT-1", &[("notsent_bytes", unsent), ("bytes_acked", acked)]);
        assert_eq!(found(USUAL, &[counts(1, 5)], &[counts(0, 5)]), None);
        assert_eq!(
            found(USUAL, &[counts(1, 5)], &[counts(0, 6)]),
            Some("bytes_acked: Some(6) is not 5".to_owned())
        );
        // A FIN is one byte.
        let more = found(USUAL, &[counts(2, 5)], &[counts(0, 5)]);
        assert_eq!(more, Some("notsent_bytes: Some(0) is not 2".to_owned()));
        // The window is known to differ, and so are the timestamps of a reset.
        let resets = |win| [sent(0, &format!("AR 1 ack 9 win {win}"))];
        assert_eq!(found(USUAL, &resets(500), &resets(0)), None);
        let stamped = [sent(0, "AR 1 ack 9 win 0 nop nop ts 5 6")];
        assert_eq!(found(USUAL, &resets(500), &stamped), None);
        let other = [sent(0, "AR 1 ack 8 win 0 nop nop ts 5 6")];
        assert_eq!(found(USUAL, &resets(500), &other), Some("acknowledgment: 8 is not 9".to_owned()));
    }

    #[test]
    fn what_an_event_causes_is_on_time_however_long_the_pause_before_was() {
        let at = |at_ms| [state(3_000, 1, "ESTABLISHED", &[]), sent(at_ms, "PA 1:1001 ack 1 win 500")];
        assert_eq!(found(USUAL, &at(3_012), &at(3_000)), None);
        assert_eq!(found(USUAL, &at(3_140), &at(3_000)), Some("time: 3s is not 3.14s".to_owned()));
        // What a timer sends may be late by half of its granularity.
        assert_eq!(found(USUAL, &at(3_640), &at(3_500)), None);
        assert!(found(USUAL, &at(3_650), &at(3_500)).is_some());
    }

    /// A timer is started by the one before, so its lateness adds to that one's, but the time by which a run itself may be late does not.
    #[test]
    fn slack_is_not_handed_on_to_later_segments() {
        let text = |at_ms: &[u64]| -> Vec<Record> {
            let head = [state(3_000, 1, "ESTABLISHED", &[])];
            let texts = at_ms.iter().map(|at_ms| sent(*at_ms, "PA 1:1001 ack 1 win 500"));
            head.into_iter().chain(texts).collect()
        };
        let stack = text(&[3_000, 3_100, 3_200, 3_300, 3_400]);
        // By half of their granularity: 130 ms where the timer may have been started at the begin, 18 ms behind that.
        let kernel = text(&[3_000, 3_100 + 142, 3_200 + 272, 3_300 + 290, 3_400 + 308]);
        assert_eq!(found(USUAL, &kernel, &stack), None);
        let later = text(&[3_000, 3_100 + 142, 3_200 + 273]);
        assert_eq!(found(USUAL, &later, &stack[..4]), Some("time: 3.2s is not 3.473s".to_owned()));
    }

    #[test]
    fn another_connection_begins_without_the_lateness_of_the_one_before() {
        let scenario = "0 connect\n3000 wait\n5000 again\n5000 connect\n6000 wait\n";
        let trace = |late: u64, ack: u64| {
            vec![
                sent(0, "S 0 win 1000"),
                state(3_000, 0, "SYN-SENT", &[]),
                sent(4_000 + late, "S 0 win 1000"),
                sent(4_000 + late, "A 5000 ack 9 win 500"),
                state(5_000, 1, "CLOSED", &[]),
                state(5_000, 2, "CLOSED", &[]),
                sent(5_000, "S 0 win 1000"),
                state(6_000, 3, "ESTABLISHED", &[]),
                sent(6_040 + ack, "A 1 ack 9 win 500"),
            ]
        };
        assert_eq!(found(scenario, &trace(100, 16), &trace(0, 0)), None);
        assert!(found(scenario, &trace(100, 17), &trace(0, 0)).is_some_and(|why| why.starts_with("time:")));
    }
}
