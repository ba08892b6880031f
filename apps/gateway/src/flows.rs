//! Connections, UDP flows and pings that are open, with their byte counts; the limit on their number, and their log.
//!
//! A flow counts from its first packet until it has ended. Only the loop that carries a flow counts its bytes, so no two cores write the same counter.
//! A separate thread writes the log.
//!
//! `gateway ctl` reads the table of open flows. Lock: the table's mutex, a leaf, which each flow takes twice, at its beginning and at its end.
//!
//! Bounds: `--flows-max` flows at a time and `--rate` new ones per second. A connection beyond them gets no answer, so its client repeats the SYN. The log queue holds [`LINES_MAX`] lines; further lines are
//! counted and dropped. Tests: below.

use std::collections::HashMap;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::Serialize;

use crate::engine::queues::Owned;
use crate::policy::Protocol;
use crate::rates::{Rates, Way};

/// Lines that wait for the log's file.
const LINES_MAX: usize = 4096;
/// For the log's file to take what waits, at the end.
const END_TIMEOUT: Duration = Duration::from_secs(5);
/// How often is looked whether it has.
const END_LOOK_EVERY: Duration = Duration::from_millis(1);

/// All flows.
#[derive(Default)]
pub struct Flows {
    max: u32,
    /// How many there are.
    count: AtomicU32,
    /// `None` ends it.
    log: Option<SyncSender<Option<String>>>,
    /// Lines that found no room, or no file.
    lines_lost: Arc<AtomicU64>,
    /// Those that go on, by their numbers.
    live: Mutex<HashMap<u64, Arc<Record>>>,
    counters: Counters,
    /// Limits on rates.
    pub rates: Rates,
}

/// What has been since the start. Each orders nothing (Relaxed).
#[derive(Default)]
struct Counters {
    begun: AtomicU64,
    refused: AtomicU64,
    /// For which there was no place, or no permission of the rate.
    over: AtomicU64,
    sent: AtomicU64,
    received: AtomicU64,
}

/// Totals since the start.
#[derive(Serialize, Clone, Copy, PartialEq, Eq, Debug)]
pub struct Totals {
    /// Flows that go on.
    pub flows: u32,
    /// Flows that have begun.
    pub begun: u64,
    /// Refused by a rule.
    pub refused: u64,
    /// Beyond `--flows-max` or `--rate`.
    pub over_bounds: u64,
    /// Bytes from inside.
    pub bytes_out: u64,
    /// Bytes to the inside.
    pub bytes_in: u64,
    /// Lines that the log lacks.
    pub log_lines_lost: u64,
}

/// One flow's facts.
#[derive(Debug)]
pub struct Record {
    number: u64,
    protocol: Protocol,
    from: SocketAddr,
    to: SocketAddr,
    onward: SocketAddr,
    since: Instant,
    at: SystemTime,
    /// Bytes from inside.
    pub sent: AtomicU64,
    /// Bytes to the inside.
    pub received: AtomicU64,
    /// An [`Outward`], of a connection.
    outward: AtomicU8,
}

/// Where a connection's bytes from inside are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Outward {
    /// All that has come was passed on; more may come.
    Idle,
    /// Some wait here for room outside, or for `--rate-bytes`.
    Waits,
    /// All were passed on, and their end.
    Ended,
}

/// The bytes from inside of all connections that go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Under {
    /// Connections whose bytes from inside have not ended.
    pub open: usize,
    /// Those of them some of whose bytes wait.
    pub waiting: usize,
    /// The bytes of all of them so far.
    pub sent: u64,
}

/// A flow that goes on. Dropping it ends its entry.
pub struct Flow {
    flows: Arc<Flows>,
    /// Its facts.
    pub record: Arc<Record>,
    /// That its loop's stack is to have its packets.
    pub owned: Option<Owned>,
    end: &'static str,
}

/// A line of the log, or of a list of flows.
#[derive(Serialize)]
pub struct Line<'a> {
    /// The flow's number, in a list.
    #[serde(skip_serializing_if = "Option::is_none")]
    flow: Option<u64>,
    /// Seconds since 1970.
    time: f64,
    protocol: Protocol,
    from: SocketAddr,
    to: SocketAddr,
    #[serde(skip_serializing_if = "Option::is_none")]
    onward: Option<SocketAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes_out: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes_in: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    end: Option<&'a str>,
}

impl Flows {
    /// A table for `max` flows within `rates`. `log` gets a line for each that has ended, on a thread that ends by [`end_log`](Self::end_log).
    pub fn new(
        max: u32,
        rates: Rates,
        log: Option<Box<dyn Write + Send>>,
    ) -> io::Result<(Arc<Self>, Option<JoinHandle<()>>)> {
        let (mut lines, mut writer, lines_lost) = (None, None, Arc::<AtomicU64>::default());
        if let Some(file) = log {
            let (give, take) = sync_channel(LINES_MAX);
            writer = Some(thread::Builder::new().name("log".to_owned()).spawn({
                let lost = Arc::clone(&lines_lost);
                move || write(&take, file, &lost)
            })?);
            lines = Some(give);
        }
        Ok((Arc::new(Self { max, rates, log: lines, lines_lost, ..Self::default() }), writer))
    }

    /// Waits until the log's file has the lines so far, [`END_TIMEOUT`] at most: it may be a pipe that nobody reads.
    pub fn end_log(&self, writer: &JoinHandle<()>) {
        let deadline = Instant::now() + END_TIMEOUT;
        let mut is_told = false;
        while !writer.is_finished() && Instant::now() < deadline {
            is_told = is_told || self.log.as_ref().is_none_or(|log| log.try_send(None).is_ok());
            thread::sleep(END_LOOK_EVERY);
        }
    }

    /// A flow begins. `None` if there are as many as there may be, or too many have begun lately.
    pub fn begin(
        self: &Arc<Self>,
        protocol: Protocol,
        (from, to): (SocketAddr, SocketAddr),
        onward: SocketAddr,
    ) -> Option<Flow> {
        let one_more = |count: u32| Some(count + 1).filter(|count| *count <= self.max);
        // Relaxed: a bound, which orders nothing.
        let has_place = self.rates.admits_flow()
            && self.count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_ok();
        if !has_place {
            self.counters.over.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        let number = self.counters.begun.fetch_add(1, Ordering::Relaxed);
        let (sent, received) = (AtomicU64::new(0), AtomicU64::new(0));
        let outward = AtomicU8::new(Outward::Idle as u8);
        let (since, at) = (Instant::now(), SystemTime::now());
        let record =
            Arc::new(Record { number, protocol, from, to, onward, since, at, sent, received, outward });
        self.live().insert(number, Arc::clone(&record));
        Some(Flow { flows: Arc::clone(self), record, owned: None, end: "closed" })
    }

    /// The flows that go on, `max` at most, those with the least numbers of `from` and above. In no order.
    pub fn list(&self, from: u64, max: usize) -> Vec<Arc<Record>> {
        let mut list: Vec<_> =
            self.live().values().filter(|record| record.number >= from).map(Arc::clone).collect();
        list.sort_unstable_by_key(|record| record.number);
        list.truncate(max);
        list
    }

    /// Where connections' bytes from inside are.
    pub fn under_way(&self) -> Under {
        let mut all = Under::default();
        for record in self.live().values().filter(|record| record.protocol == Protocol::Tcp) {
            let outward = record.outward();
            if outward != Outward::Ended {
                all.open += 1;
                all.waiting += usize::from(outward == Outward::Waits);
                all.sent += record.sent.load(Ordering::Relaxed);
            }
        }
        all
    }

    /// A number that changes with each flow that begins, each flow of datagrams that ends, and each datagram that goes out.
    pub fn datagrams(&self) -> u64 {
        let live = self.live();
        let sent = live.values().filter(|record| record.protocol != Protocol::Tcp);
        let sent: u64 = sent.map(|record| record.sent.load(Ordering::Relaxed)).sum();
        sent + self.counters.begun.load(Ordering::Relaxed)
    }

    /// What has been since the start.
    pub fn totals(&self) -> Totals {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (mut bytes_out, mut bytes_in) = (of(&self.counters.sent), of(&self.counters.received));
        for record in self.live().values() {
            (bytes_out, bytes_in) = (bytes_out + of(&record.sent), bytes_in + of(&record.received));
        }
        Totals {
            flows: self.count.load(Ordering::Relaxed),
            begun: of(&self.counters.begun),
            refused: of(&self.counters.refused),
            over_bounds: of(&self.counters.over),
            bytes_out,
            bytes_in,
            log_lines_lost: self.lines_lost(),
        }
    }

    fn live(&self) -> MutexGuard<'_, HashMap<u64, Arc<Record>>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something was refused. `onward` is the address that it would have gone to.
    pub fn refused(&self, protocol: Protocol, (from, to): (SocketAddr, SocketAddr), onward: SocketAddr) {
        self.counters.refused.fetch_add(1, Ordering::Relaxed);
        let time = seconds(SystemTime::now());
        let line = Line {
            flow: None,
            time,
            protocol,
            from,
            to,
            onward: Some(onward),
            seconds: None,
            bytes_out: None,
            bytes_in: None,
            end: Some("refused"),
        };
        self.note(&line);
    }

    /// Lines of the log that were lost since its file took them too slowly, or no more.
    pub fn lines_lost(&self) -> u64 {
        self.lines_lost.load(Ordering::Relaxed)
    }

    fn note(&self, line: &Line<'_>) {
        let Some(log) = &self.log else { return };
        let Ok(text) = serde_json::to_string(line) else { return };
        // It is full, or its file takes no more.
        if log.try_send(Some(text)).is_err() {
            self.lines_lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Flow {
    /// Why the flow ends, for the log.
    pub fn ends_by(&mut self, end: &'static str) {
        self.end = end;
    }

    /// Bytes of this flow have been moved: see [`Rates::pay`].
    pub async fn pay(&self, way: Way, bytes: usize) {
        self.flows.rates.pay(way, bytes).await;
    }

    /// Whether a datagram of this flow may be moved: see [`Rates::admits`].
    pub fn admits(&self, way: Way, bytes: usize) -> bool {
        self.flows.rates.admits(way, bytes)
    }

    /// Counts bytes from inside. Its loop alone writes the counter.
    pub fn note_sent(&self, bytes: usize) {
        add(&self.record.sent, bytes);
    }

    /// Notes where a connection's bytes from inside are.
    pub fn note_outward(&self, outward: Outward) {
        // Relaxed: it orders nothing.
        self.record.outward.store(outward as u8, Ordering::Relaxed);
    }

    /// Counts bytes to the inside.
    pub fn note_received(&self, bytes: usize) {
        add(&self.record.received, bytes);
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        let (flows, record) = (&self.flows, &self.record);
        flows.counters.sent.fetch_add(record.sent.load(Ordering::Relaxed), Ordering::Relaxed);
        flows.counters.received.fetch_add(record.received.load(Ordering::Relaxed), Ordering::Relaxed);
        flows.live().remove(&record.number);
        flows.count.fetch_sub(1, Ordering::Relaxed);
        flows.note(&record.line(Some(self.end)));
    }
}

fn add(counter: &AtomicU64, bytes: usize) {
    counter.store(counter.load(Ordering::Relaxed) + bytes as u64, Ordering::Relaxed);
}

impl Record {
    /// Where its bytes from inside are.
    pub fn outward(&self) -> Outward {
        let outward = self.outward.load(Ordering::Relaxed);
        let all = [Outward::Idle, Outward::Waits, Outward::Ended];
        all.into_iter().find(|one| *one as u8 == outward).unwrap_or(Outward::Idle)
    }

    /// Its facts so far; how it ended, if it has.
    fn line<'a>(&self, end: Option<&'a str>) -> Line<'a> {
        Line {
            flow: None,
            time: seconds(self.at),
            protocol: self.protocol,
            from: self.from,
            to: self.to,
            onward: Some(self.onward),
            seconds: Some(self.since.elapsed().as_secs_f64()),
            bytes_out: Some(self.sent.load(Ordering::Relaxed)),
            bytes_in: Some(self.received.load(Ordering::Relaxed)),
            end,
        }
    }

    /// Its facts so far, with its number.
    pub fn entry(&self) -> Line<'static> {
        Line { flow: Some(self.number), ..self.line(None) }
    }
}

fn seconds(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

/// Writes lines until the end is said. A file that takes no more ends it: then lines are `lost`.
fn write(lines: &Receiver<Option<String>>, mut file: Box<dyn Write + Send>, lost: &AtomicU64) {
    while let Ok(Some(line)) = lines.recv() {
        // One write a line: programs that follow the file read whole lines.
        if let Err(error) = file.write_all(format!("{line}\n").as_bytes()) {
            eprintln!("sockeye gateway: the log ends here: {error}");
            // Those that come later find nobody.
            lost.fetch_add(1 + lines.try_iter().flatten().count() as u64, Ordering::Relaxed);
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_a_file_does_not_take_are_counted() {
        struct Full;
        impl Write for Full {
            fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
                Err(std::io::ErrorKind::StorageFull.into())
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let (flows, writer) = Flows::new(1, Rates::default(), Some(Box::new(Full))).unwrap();
        let end = "192.0.2.1:80".parse().unwrap();
        drop(flows.begin(Protocol::Tcp, (end, end), end));
        writer.unwrap().join().unwrap();
        drop(flows.begin(Protocol::Tcp, (end, end), end));
        assert_eq!(flows.lines_lost(), 2);
    }

    #[test]
    fn flows_are_bounded_and_logged() {
        let (give, take) = std::sync::mpsc::channel::<Vec<u8>>();
        struct Sink(std::sync::mpsc::Sender<Vec<u8>>);
        impl Write for Sink {
            fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
                let _ = self.0.send(bytes.to_vec());
                Ok(bytes.len())
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let (flows, writer) = Flows::new(1, Rates::default(), Some(Box::new(Sink(give)))).unwrap();
        let (from, to) = ("10.0.2.100:4000".parse().unwrap(), "192.0.2.1:80".parse().unwrap());
        let mut flow = flows.begin(Protocol::Tcp, (from, to), to).unwrap();
        assert!(flows.begin(Protocol::Tcp, (from, to), to).is_none(), "there is room for one");
        flow.note_sent(5);
        flow.ends_by("reset");
        assert_eq!((flows.list(0, 9).len(), flows.list(1, 9).len(), flows.totals().bytes_out), (1, 0, 5));
        drop(flow);
        let totals = flows.totals();
        assert_eq!((totals.flows, totals.begun, totals.over_bounds, totals.bytes_out), (0, 1, 1, 5));
        assert!(flows.begin(Protocol::Tcp, (from, to), to).is_some(), "there is room again");
        flows.end_log(&writer.unwrap());
        let line: serde_json::Value = serde_json::from_slice(&take.try_recv().unwrap()).unwrap();
        assert_eq!(
            (&line["end"], &line["bytes_out"], &line["to"]),
            (&"reset".into(), &5.into(), &"192.0.2.1:80".into())
        );
    }
}
