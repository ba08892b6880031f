//! The flows there are: connections, flows of datagrams and pings, with their traffic; their bound, and their log.
//!
//! A flow is counted from its first packet until it has ended. Its bytes are counted by the loop that carries it alone, so no two cores write them.
//! The log is written by a thread of its own.
//!
//! Bound: `--flows-max`; a connection beyond is not answered, and comes again. The log keeps [`LINES_MAX`] lines that its file has not taken; more are
//! counted and not written. Tests: below.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::Serialize;

use crate::policy::Protocol;

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
    /// Lines that found no room.
    lines_lost: AtomicU64,
}

/// One flow's facts.
#[derive(Debug)]
pub struct Record {
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
}

/// A flow that goes on. Dropping it ends its entry.
pub struct Flow {
    flows: Arc<Flows>,
    /// Its facts.
    pub record: Record,
    end: &'static str,
}

/// A line of the log.
#[derive(Serialize)]
struct Line<'a> {
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
    end: &'a str,
}

impl Flows {
    /// A table for `max` flows. `log` gets a line for each that has ended, on a thread that ends by [`end_log`](Self::end_log).
    pub fn new(
        max: u32,
        log: Option<Box<dyn Write + Send>>,
    ) -> io::Result<(Arc<Self>, Option<JoinHandle<()>>)> {
        let (mut lines, mut writer) = (None, None);
        if let Some(file) = log {
            let (give, take) = sync_channel(LINES_MAX);
            writer = Some(thread::Builder::new().name("log".to_owned()).spawn(move || write(&take, file))?);
            lines = Some(give);
        }
        Ok((Arc::new(Self { max, log: lines, ..Self::default() }), writer))
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

    /// A flow begins. `None` if there are as many as there may be.
    pub fn begin(
        self: &Arc<Self>,
        protocol: Protocol,
        (from, to): (SocketAddr, SocketAddr),
        onward: SocketAddr,
    ) -> Option<Flow> {
        let one_more = |count: u32| Some(count + 1).filter(|count| *count <= self.max);
        // Relaxed: a bound, which orders nothing.
        self.count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).ok()?;
        let (sent, received) = (AtomicU64::new(0), AtomicU64::new(0));
        let (since, at) = (Instant::now(), SystemTime::now());
        let record = Record { protocol, from, to, onward, since, at, sent, received };
        Some(Flow { flows: Arc::clone(self), record, end: "closed" })
    }

    /// Something was refused. `onward` is the address that it would have gone to.
    pub fn refused(&self, protocol: Protocol, (from, to): (SocketAddr, SocketAddr), onward: SocketAddr) {
        let time = seconds(SystemTime::now());
        let line = Line {
            time,
            protocol,
            from,
            to,
            onward: Some(onward),
            seconds: None,
            bytes_out: None,
            bytes_in: None,
            end: "refused",
        };
        self.note(&line);
    }

    /// Lines of the log that were lost since its file took them too slowly.
    pub fn lines_lost(&self) -> u64 {
        self.lines_lost.load(Ordering::Relaxed)
    }

    fn note(&self, line: &Line<'_>) {
        let Some(log) = &self.log else { return };
        let Ok(text) = serde_json::to_string(line) else { return };
        if let Err(TrySendError::Full(_)) = log.try_send(Some(text)) {
            self.lines_lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Flow {
    /// Why the flow ends, for the log.
    pub fn ends_by(&mut self, end: &'static str) {
        self.end = end;
    }

    /// Counts bytes from inside. Its loop alone writes the counter.
    pub fn note_sent(&self, bytes: usize) {
        add(&self.record.sent, bytes);
    }

    /// Counts bytes to the inside.
    pub fn note_received(&self, bytes: usize) {
        add(&self.record.received, bytes);
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        self.flows.count.fetch_sub(1, Ordering::Relaxed);
        self.flows.note(&line(&self.record, self.end));
    }
}

fn add(counter: &AtomicU64, bytes: usize) {
    counter.store(counter.load(Ordering::Relaxed) + bytes as u64, Ordering::Relaxed);
}

fn line<'a>(record: &Record, end: &'a str) -> Line<'a> {
    Line {
        time: seconds(record.at),
        protocol: record.protocol,
        from: record.from,
        to: record.to,
        onward: Some(record.onward),
        seconds: Some(record.since.elapsed().as_secs_f64()),
        bytes_out: Some(record.sent.load(Ordering::Relaxed)),
        bytes_in: Some(record.received.load(Ordering::Relaxed)),
        end,
    }
}

fn seconds(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

/// Writes lines until the end is said. A file that takes no more ends it: then lines are lost.
fn write(lines: &Receiver<Option<String>>, mut file: Box<dyn Write + Send>) {
    while let Ok(Some(line)) = lines.recv() {
        // One write a line: programs that follow the file read whole lines.
        if let Err(error) = file.write_all(format!("{line}\n").as_bytes()) {
            eprintln!("sockeye gateway: the log ends here: {error}");
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let (flows, writer) = Flows::new(1, Some(Box::new(Sink(give)))).unwrap();
        let (from, to) = ("10.0.2.100:4000".parse().unwrap(), "192.0.2.1:80".parse().unwrap());
        let mut flow = flows.begin(Protocol::Tcp, (from, to), to).unwrap();
        assert!(flows.begin(Protocol::Tcp, (from, to), to).is_none(), "there is room for one");
        flow.note_sent(5);
        flow.ends_by("reset");
        drop(flow);
        assert!(flows.begin(Protocol::Tcp, (from, to), to).is_some(), "there is room again");
        flows.end_log(&writer.unwrap());
        let line: serde_json::Value = serde_json::from_slice(&take.try_recv().unwrap()).unwrap();
        assert_eq!(
            (&line["end"], &line["bytes_out"], &line["to"]),
            (&"reset".into(), &5.into(), &"192.0.2.1:80".into())
        );
    }
}
