//! What happened in a run, event by event: a digest of all of it, and the latest events for a failure's report.
//!
//! Each event is a step of a task, a stack or a packet, or a fault. The digest is a chain: that of an event depends on all before it, so two runs that have equal
//! digests after some number of events were equal until there. [`compare`](crate::difference) uses this to find the first event in which two runs differ: a run notes
//! digests at equal distances (marks), and keeps all events from a given one on.
//!
//! Bounds: an ordinary run keeps the last [`RECENT_MAX`] events and no marks. A run that is to be compared keeps [`KEPT_MAX`] events, and
//! [`MARKS_MAX`] marks, whose distance doubles when they are too many. Tests: below, `tests/hosts/determinism.rs`.

use std::collections::VecDeque;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::event::Nanos;
use crate::packet::Segment;

/// Events that every run keeps.
const RECENT_MAX: usize = 1 << 14;
/// Events that a run keeps which is to be compared.
pub(crate) const KEPT_MAX: usize = 1 << 20;
/// Marks of such a run, at most.
const MARKS_MAX: usize = 1 << 16;
/// Events from one mark to the next, at first.
const STRIDE: u64 = 256;

/// An event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum What {
    /// A task of the simulator's ran until it waited; and in a run with tokio, the tasks of its host's runtime.
    Ran { host: Option<usize>, task: Option<u64>, is_over: bool, drawn: u64 },
    /// A stack did its due work; `next` is when it wants to be called again.
    Polled { host: usize, next: Nanos },
    /// A packet came to a pipe, the `number`-th of all, and arrives at `arrival` unless it is lost for the reason in `note`.
    Sent { pipe: usize, number: u64, seen: Seen, arrival: Option<Nanos>, note: Option<&'static str> },
    /// A packet came to the end of its pipe.
    Arrived { pipe: usize, number: u64, is_taken: bool },
    /// A fault began or ended, or a program noted something; on a host, or on none.
    Said { host: Option<usize>, is_fault: bool, text: Arc<str> },
}

/// A packet, as far as a report has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Seen {
    pub len: usize,
    /// Of the headers; of the whole packet in a run that is to be compared, or whose result is written.
    pub digest: u64,
    pub tcp: Option<Tcp>,
}

/// The segment in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Tcp {
    pub src: SocketAddr,
    pub dst: SocketAddr,
    pub seq: u32,
    pub ack: u32,
    pub len: u32,
    pub is_syn: bool,
    pub is_fin: bool,
    pub is_rst: bool,
}

/// An event and its moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    pub at: Nanos,
    pub what: What,
}

/// What a run keeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Keep {
    /// The latest events.
    Recent,
    /// Events from this one on, and marks.
    From(u64),
}

/// See the module's head.
pub(crate) struct Trace {
    keep: Keep,
    is_whole: bool,
    digest: u64,
    count: u64,
    entries: VecDeque<Entry>,
    marks: Vec<u64>,
    stride: u64,
}

impl Trace {
    pub fn new(keep: Keep) -> Self {
        Self {
            keep,
            is_whole: keep != Keep::Recent,
            digest: 0,
            count: 0,
            entries: VecDeque::new(),
            marks: Vec::new(),
            stride: STRIDE,
        }
    }

    /// Whether payload counts too.
    pub fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// Has payload count too, if it does not yet.
    pub fn cover_payload(&mut self, is_whole: bool) {
        self.is_whole |= is_whole;
    }

    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// Events so far.
    pub fn count(&self) -> u64 {
        self.count
    }

    pub fn entries(&self) -> impl DoubleEndedIterator<Item = &Entry> + ExactSizeIterator {
        self.entries.iter()
    }

    pub fn push(&mut self, at: Nanos, what: What) {
        let mut sum = Digest(self.digest);
        sum.word(at);
        sum.what(&what);
        self.digest = sum.0;
        let index = self.count;
        self.count += 1;
        match self.keep {
            Keep::Recent => {
                if self.entries.len() == RECENT_MAX {
                    self.entries.pop_front();
                }
                self.entries.push_back(Entry { at, what });
            }
            Keep::From(first) => {
                if index >= first && self.entries.len() < KEPT_MAX {
                    self.entries.push_back(Entry { at, what });
                }
                self.mark();
            }
        }
    }

    fn mark(&mut self) {
        if !self.count.is_multiple_of(self.stride) {
            return;
        }
        self.marks.push(self.digest);
        if self.marks.len() == MARKS_MAX {
            let mut is_second = true;
            self.marks.retain(|_| {
                is_second = !is_second;
                is_second
            });
            self.stride *= 2;
        }
    }

    pub fn finish(&mut self, names: Names) -> Record {
        Record {
            first: if let Keep::From(first) = self.keep { first } else { 0 },
            digest: self.digest,
            count: self.count,
            entries: std::mem::take(&mut self.entries),
            marks: std::mem::take(&mut self.marks),
            stride: self.stride,
            names,
        }
    }
}

/// The trace of a run that is over.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Record {
    /// The index of the first of `entries`.
    pub first: u64,
    pub digest: u64,
    pub count: u64,
    pub entries: VecDeque<Entry>,
    pub marks: Vec<u64>,
    pub stride: u64,
    pub names: Names,
}

/// Names of hosts, and the ends of pipes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Names {
    pub hosts: Vec<String>,
    pub pipes: Vec<(usize, usize)>,
}

impl Names {
    pub fn host(&self, host: Option<usize>) -> &str {
        match host {
            Some(host) => self.hosts.get(host).map_or("a host", String::as_str),
            None => "the main program",
        }
    }

    /// From where to where a pipe goes.
    pub fn ends(&self, pipe: usize) -> (usize, usize) {
        self.pipes.get(pipe).copied().unwrap_or((usize::MAX, usize::MAX))
    }

    fn pipe(&self, pipe: usize) -> (&str, &str) {
        let (from, to) = self.ends(pipe);
        (self.host(Some(from)), self.host(Some(to)))
    }

    /// An event in words.
    pub fn show<'a>(&'a self, entry: &'a Entry) -> impl fmt::Display + 'a {
        fmt::from_fn(move |f| {
            write!(f, "{:?} ", Duration::from_nanos(entry.at))?;
            match &entry.what {
                What::Ran { host, task, is_over, drawn } => {
                    write!(f, "{}: ", self.host(*host))?;
                    match task {
                        Some(task) => write!(f, "task {task} ")?,
                        None => f.write_str("tasks of tokio ")?,
                    }
                    let end = if *is_over { "ran and ended" } else { "ran" };
                    write!(f, "{end}; random words drawn: {drawn}")
                }
                What::Polled { host, next: Nanos::MAX } => {
                    write!(f, "{}: the stack worked; it has no timer", self.host(Some(*host)))
                }
                What::Polled { host, next } => {
                    let next = Duration::from_nanos(*next);
                    write!(f, "{}: the stack worked; its next timer: {next:?}", self.host(Some(*host)))
                }
                What::Sent { pipe, number, seen, arrival, note } => {
                    let (from, to) = self.pipe(*pipe);
                    write!(f, "{from} → {to}: packet {number}, {seen}")?;
                    match (arrival, note) {
                        (Some(at), None) => write!(f, ", arrives at {:?}", Duration::from_nanos(*at)),
                        (Some(at), Some(note)) => {
                            write!(f, ", arrives at {:?}: {note}", Duration::from_nanos(*at))
                        }
                        (None, note) => write!(f, ", lost: {}", note.unwrap_or("no room")),
                    }
                }
                What::Arrived { pipe, number, is_taken } => {
                    let (from, to) = self.pipe(*pipe);
                    let fate = if *is_taken { "arrived" } else { "found no host" };
                    write!(f, "{from} → {to}: packet {number} {fate}")
                }
                What::Said { host, text, .. } => write!(f, "{}: {text}", self.host(*host)),
            }
        })
    }
}

impl Seen {
    pub fn new(len: usize, digest: u64, segment: Option<&Segment>) -> Self {
        let tcp = segment.map(|segment| Tcp {
            src: segment.src,
            dst: segment.dst,
            seq: segment.header.seq.raw(),
            ack: segment.header.ack.raw(),
            len: segment.len,
            is_syn: segment.is_syn(),
            is_fin: segment.is_fin(),
            is_rst: segment.is_rst(),
        });
        Self { len, digest, tcp }
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(tcp) = &self.tcp else { return write!(f, "{} bytes", self.len) };
        write!(f, "TCP {} → {}", tcp.src, tcp.dst)?;
        for (flag, name) in [(tcp.is_syn, "SYN"), (tcp.is_fin, "FIN"), (tcp.is_rst, "RST")] {
            if flag {
                write!(f, " {name}")?;
            }
        }
        write!(f, " seq {} ack {} len {}", tcp.seq, tcp.ack, tcp.len)
    }
}

/// The digest of some bytes.
pub(crate) fn digest_of(bytes: &[u8]) -> u64 {
    let mut sum = Digest(bytes.len() as u64);
    sum.bytes(bytes);
    sum.0
}

/// A running digest. Not against an adversary: it tells runs apart.
struct Digest(u64);

/// The golden ratio as a fraction of 2^64, which has no pattern in its bits.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

impl Digest {
    /// Both halves of a product: each bit depends on each bit of the word and of what was before. The sum keeps 0 from swallowing what comes.
    #[inline]
    fn word(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word) * u128::from(FACTOR);
        let (low, high) = (product & u128::from(u64::MAX), product >> 64);
        self.0 = ((low ^ high) as u64).wrapping_add(FACTOR);
    }

    fn bytes(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        words.iter().for_each(|word| self.word(u64::from_le_bytes(*word)));
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        self.word(u64::from_le_bytes(last));
    }

    fn what(&mut self, what: &What) {
        let host_word = |host: &Option<usize>| host.map_or(0, |host| host as u64 + 1);
        match what {
            What::Ran { host, task, is_over, drawn } => {
                let words =
                    [1, host_word(host), task.map_or(0, |task| task + 1), u64::from(*is_over), *drawn];
                words.iter().for_each(|w| self.word(*w));
            }
            What::Polled { host, next } => [2, *host as u64, *next].iter().for_each(|w| self.word(*w)),
            What::Sent { pipe, number, seen, arrival, note } => {
                let note = note.map_or(0, |note| digest_of(note.as_bytes()));
                let arrival = arrival.unwrap_or(Nanos::MAX);
                let words = [3, *pipe as u64, *number, seen.len as u64, seen.digest, arrival, note];
                words.iter().for_each(|w| self.word(*w));
            }
            What::Arrived { pipe, number, is_taken } => {
                [4, *pipe as u64, *number, u64::from(*is_taken)].iter().for_each(|w| self.word(*w));
            }
            What::Said { host, is_fault, text } => {
                let words = [5, host_word(host), u64::from(*is_fault), digest_of(text.as_bytes())];
                words.iter().for_each(|w| self.word(*w));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(keep: Keep, count: u64) -> Trace {
        let mut trace = Trace::new(keep);
        (0..count).for_each(|at| trace.push(at, What::Polled { host: 0, next: at + 1 }));
        trace
    }

    #[test]
    fn a_digest_depends_on_each_event_and_its_moment() {
        let mut digests = Vec::new();
        for (at, host) in [(1, 0), (1, 1), (2, 0)] {
            let mut trace = trace(Keep::Recent, 10);
            trace.push(at, What::Polled { host, next: 5 });
            trace.push(3, What::Polled { host: 0, next: 5 });
            digests.push(trace.digest());
        }
        assert!(digests[0] != digests[1] && digests[0] != digests[2] && digests[1] != digests[2]);
        assert_ne!(digest_of(b"abc"), digest_of(b"abc\0"));
    }

    #[test]
    fn a_trace_keeps_the_latest_events_or_those_from_a_given_one_on() {
        let mut recent = trace(Keep::Recent, RECENT_MAX as u64 + 5);
        assert_eq!((recent.entries.len(), recent.entries[0].at), (RECENT_MAX, 5));
        assert_eq!(recent.finish(Names::default()).marks, []);
        let mut from = trace(Keep::From(300), 1000);
        let record = from.finish(Names::default());
        assert_eq!((record.entries[0].at, record.entries.len(), record.marks.len()), (300, 700, 3));
        assert_eq!(record.marks[0], trace(Keep::Recent, STRIDE).digest());
    }

    #[test]
    fn the_distance_of_marks_doubles_when_they_are_too_many() {
        let mut trace = trace(Keep::From(u64::MAX), STRIDE * (MARKS_MAX as u64 + 2));
        let record = trace.finish(Names::default());
        assert_eq!((record.stride, record.marks.len()), (2 * STRIDE, MARKS_MAX / 2 + 1));
        assert_eq!(record.marks[0], self::trace(Keep::Recent, 2 * STRIDE).digest());
    }
}
