//! The streams of a test at either end of it: the data that each has moved, and the results.
//!
//! Does not depend on which side began the test. Invariant: data moved before [`Stream::omit`] does not
//! count.
//!
//! Tests: with stock programs in `tests/cli/{tun,iperf3}.rs`.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use sockeye::TcpInfo;
use sockeye::tokio::TcpStream;
use sockeye_shared::cpu::process_cpu;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::datagrams::Numbers;
use super::protocol::{Params, Results, StreamResult, stream_id};
use super::stream::{self, Quota, Tally};

/// A stream of the test.
pub struct Stream {
    pub sends: bool,
    pub tally: Arc<Tally>,
    /// To ask about it; none of datagrams.
    socket: Option<sockeye::TcpStream>,
    /// The data that had been moved when the counted time began.
    omitted: Omitted,
}

#[derive(Clone, Copy, Default)]
struct Omitted {
    bytes: u64,
    numbers: Numbers,
}

impl Stream {
    /// One that has not begun.
    pub fn new(sends: bool) -> Self {
        Self::within(sends, None)
    }

    /// One that has not begun, of a test that bytes bound.
    pub fn within(sends: bool, quota: Option<Arc<Quota>>) -> Self {
        Self { sends, tally: Arc::new(Tally::within(quota)), socket: None, omitted: Omitted::default() }
    }

    /// Gives the stream its connection, and has a task move its data.
    pub fn begin(
        &mut self,
        socket: TcpStream,
        params: Arc<Params>,
        tasks: &mut JoinSet<()>,
    ) -> io::Result<()> {
        self.socket = Some(stream::prepare(&socket, &params)?);
        let tally = Arc::clone(&self.tally);
        if self.sends {
            tasks.spawn(stream::send(socket, params, tally));
        } else {
            tasks.spawn(stream::receive(socket, params, tally));
        }
        Ok(())
    }

    /// Data moved until now does not count.
    pub fn omit(&mut self) {
        self.omitted = Omitted { bytes: self.tally.bytes(), numbers: *self.tally.numbers() };
    }

    /// TCP's data on it.
    pub fn info(&self) -> Option<TcpInfo> {
        self.socket.as_ref()?.info().ok()
    }

    fn result(&self, index: usize, seconds: f64) -> StreamResult {
        let numbers = *self.tally.numbers();
        StreamResult {
            id: stream_id(index),
            bytes: self.tally.bytes().saturating_sub(self.omitted.bytes),
            retransmits: self.info().filter(|_| self.sends).map_or(-1, |info| i64::from(sent_again(&info))),
            jitter: numbers.jitter,
            errors: numbers.errors,
            omitted_errors: self.omitted.numbers.errors,
            packets: numbers.packets,
            omitted_packets: self.omitted.numbers.packets,
            start_time: 0.0,
            end_time: seconds,
        }
    }
}

/// Segments of a connection that were sent again.
pub fn sent_again(info: &TcpInfo) -> u32 {
    info.rexmt_fast.saturating_add(info.rexmt_probe).saturating_add(info.rexmt_rto)
}

/// The counted time: when it began, and the CPU time of the process until then.
pub struct Watch {
    pub begun: Instant,
    cpu: Duration,
}

impl Watch {
    pub fn start() -> Self {
        Self { begun: Instant::now(), cpu: process_cpu() }
    }
}

/// The results of this end so far.
pub fn results(streams: &[Stream], watch: &Watch) -> Results {
    let seconds = watch.begun.elapsed().as_secs_f64();
    let cpu = process_cpu().saturating_sub(watch.cpu).as_secs_f64();
    let percent = if seconds > 0.0 { 100.0 * cpu / seconds } else { 0.0 };
    let sends = streams.iter().any(|stream| stream.sends && stream.socket.is_some());
    let used = streams.iter().find_map(|stream| stream.info());
    Results {
        cpu_util_total: percent,
        // The clock of a process does not tell the two apart, and the work of a stack in user space is the user's.
        cpu_util_user: percent,
        cpu_util_system: 0.0,
        sender_has_retransmits: if sends { 1 } else { -1 },
        congestion_used: used.map(|info| format!("{:?}", info.congestion_control).to_lowercase()),
        streams: streams.iter().enumerate().map(|(index, stream)| stream.result(index, seconds)).collect(),
    }
}
