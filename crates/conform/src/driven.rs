//! The tested side that is Sockeye: a stack without threads, behind a channel, with a clock that jumps.
//!
//! A run is the same each time, and only takes the time of its instructions. It can be stepped, so that the generator sees the state before its next
//! event. Tests: `tests/written.rs`.

mod device;
mod options;

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::Shutdown;
use std::time::Duration;

use sockeye::netif::{ChannelPort, Checksum, FrameBytes, TxFrame};
use sockeye::poll::{Events, Interest, Poll, Pollable, Token, Trigger};
use sockeye::{CaState, SendFlags, Stack, TcpInfo, TcpListener, TcpSocket, TcpStream};

use crate::codec::Names;
use crate::compare::granularity;
use crate::scenario::{Action, Event, How, Question, Scenario};
use crate::segment::pattern;
use crate::settings;
use crate::trace::{Info, Ready, Record, State, Trace, What};
use crate::wheel::{JIFFY, Wheel};
use crate::{PORT, interface, local, peer};
use device::Device;

/// A run in progress.
pub struct Driven {
    /// The clock at the scenario's begin.
    begin: Duration,
    /// How late timers are; without a wheel, they are late by half of what is possible.
    wheel: Option<Wheel>,
    stack: Stack,
    port: ChannelPort,
    now: Duration,
    names: Names,
    socket: Socket,
    is_ipv6: bool,
    listener: Option<TcpListener>,
    written: u32,
    read: u32,
    /// When the stack wants to run next, and when the timer for that was started.
    wanted: Option<(Duration, Duration)>,
    /// When the connection's timer expires, and when it was started; noted where there is a wheel.
    timer: Option<(Duration, Duration)>,
    /// The time of the latest event, or segment of the stack, which may have started a timer.
    touched_at: Duration,
    /// When the stack has last run for its timers.
    ran_at: Option<Duration>,
    trace: Trace,
}

enum Socket {
    /// Neither connected nor listening.
    Fresh(TcpSocket),
    Stream(TcpStream),
    None,
}

/// The peer's number. Each run has a stack of its own, so it is always the same.
const PEER: u32 = 1;

/// Runs a scenario.
pub fn run(scenario: &Scenario) -> Trace {
    run_in(Driven::new(scenario), scenario)
}

/// Runs a scenario with timers as late as the kernel's would be at the phase of this number, below [`PHASES`](crate::wheel::PHASES).
pub fn run_at_phase(scenario: &Scenario, phase: u64) -> Trace {
    run_in(Driven::with_wheel(scenario, Wheel::at_phase(phase)), scenario)
}

fn run_in(mut driven: Driven, scenario: &Scenario) -> Trace {
    for (index, event) in scenario.events.iter().enumerate() {
        driven.step(index, event);
    }
    driven.finish(scenario)
}

impl Driven {
    /// A run in which nothing has happened yet.
    ///
    /// # Panics
    /// If there can be no stack.
    pub fn new(scenario: &Scenario) -> Self {
        Self::begun(scenario, None, START)
    }

    fn with_wheel(scenario: &Scenario, wheel: Wheel) -> Self {
        Self::begun(scenario, Some(wheel), START + wheel.within_a_millisecond())
    }

    fn begun(scenario: &Scenario, wheel: Option<Wheel>, begin: Duration) -> Self {
        let (device, port) = Device::new();
        let stack = Stack::seeded(settings::stack(&scenario.settings), [7; 16]).expect("a stack");
        stack
            .attach(device, &[interface(scenario.is_ipv6).parse().expect("a prefix")])
            .expect("an interface");
        // Does not start at time 0 of the clock, since the kernel's socket does not either.
        let now = begin;
        stack.poll(now);
        Self {
            begin,
            wheel,
            port,
            now,
            names: Names::new((peer(scenario.is_ipv6, PEER), PORT), (local(scenario.is_ipv6), PORT))
                .with_cookies(scenario.has_cookies()),
            socket: Socket::Fresh(fresh_socket(&stack, scenario.is_ipv6)),
            is_ipv6: scenario.is_ipv6,
            stack,
            listener: None,
            written: 0,
            read: 0,
            wanted: None,
            timer: None,
            touched_at: now,
            ran_at: None,
            trace: Trace::default(),
        }
    }

    /// Advances the clock to the event's time, and does it. `index` is the event's.
    pub fn step(&mut self, index: usize, event: &Event) {
        self.advance(event.at());
        if index > 0 {
            let state = self.state();
            self.record(What::State(index - 1, state));
        }
        self.names.begin_event(event.at_ms);
        self.perform(index, &event.action);
        self.collect();
        self.now += STEP;
    }

    /// Lets the time pass up to `at` from the scenario's begin.
    pub fn advance(&mut self, at: Duration) {
        let end = self.begin + at;
        self.collect();
        let mut next = self.next_run();
        while let Some(at) = next.filter(|next| *next <= end) {
            self.collect();
            self.now = at.max(self.now + TICK);
            self.ran_at = Some(self.now - self.begin);
            next = self.next_run();
        }
        self.collect();
        self.now = self.now.max(end);
        // Everything that is due runs now, even if a timer of the kernel would still be late.
        if let (Some(late), Some(_)) = (next, self.wanted.filter(|(due, _)| *due <= self.now)) {
            self.ran_at = Some(late - self.begin);
        }
        self.collect();
    }

    /// When the stack is run next: later than it wants to, by the average lateness of the kernel's timers. How late a timer is depends on the time
    /// for which it was started; one with less than the time of coarse timers expires at a tick. The stack may also want to run in between to re-sort
    /// its timers, which starts no timer.
    fn next_run(&mut self) -> Option<Duration> {
        let next = self.stack.poll(self.now)?;
        let known = self.wanted.filter(|(known, _)| *known == next);
        // A timer that is due at once was started by one that has just expired, at a tick.
        let is_hop = known.is_none() && next > self.now && next <= self.now + HOP;
        let since = if is_hop { self.now } else { known.map_or(self.touched_at, |(_, since)| since) };
        self.wanted = Some((next, since));
        if next <= self.now {
            return Some(next);
        }
        if let Some(wheel) = self.wheel {
            self.note_timer();
            let own = wheel.expires(since, next.saturating_sub(since));
            // The stack also wants to run before a timer is due, when that timer must not expire, and for the timer itself, at the resolution of its
            // own milliseconds.
            return Some(match self.timer.filter(|(due, _)| next < *due + HOP) {
                Some((due, since)) if next + HOP > due => wheel.expires(since, due - since).max(next),
                Some((due, _)) => own.min(due - TICK).max(next),
                None => own,
            });
        }
        let wait = next.saturating_sub(since);
        let coarse = granularity(wait);
        if coarse > JIFFY {
            return Some(next + coarse / 2);
        }
        // This many whole ticks, counted from the next tick, which comes half a tick after an event on average, and a whole tick after a timer.
        let ticks = wait.as_micros().div_ceil(JIFFY.as_micros()) as u32;
        let rest = if wait <= HOP { JIFFY } else { JIFFY / 2 };
        Some(since + JIFFY * ticks + rest)
    }

    /// Notes when the connection's timer was started: a timer that is restarted for the same expiry time keeps its place in the wheel.
    fn note_timer(&mut self) {
        let sockets = self.stack.sockets(false);
        let left = sockets.iter().find_map(|socket| Some(socket.timer.as_ref()?.left));
        let due = left.map(|left| self.now + left);
        let is_overdue = left.is_some_and(|left| left.is_zero());
        if !is_overdue && due != self.timer.map(|(due, _)| due) {
            self.timer = due.map(|due| (due, self.now));
        }
    }

    /// The trace, with what happens until the scenario's end.
    pub fn finish(mut self, scenario: &Scenario) -> Trace {
        self.advance(scenario.end());
        let state = self.state();
        self.record(What::State(scenario.events.len().saturating_sub(1), state));
        self.trace
    }

    /// The trace so far.
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// When the stack wants to run next, from the scenario's begin on.
    pub fn next_due(&mut self) -> Option<Duration> {
        self.next_run().map(|next| next.saturating_sub(self.begin))
    }

    /// For how long the timer for that run was started.
    pub fn next_wait(&mut self) -> Option<Duration> {
        self.next_run()?;
        self.wanted.map(|(due, since)| due.saturating_sub(since))
    }

    /// When it last ran for its timers, from the scenario's begin on; it may have found none due. If an event came before a late timer ran, this is
    /// when the timer would have run.
    pub fn ran_at(&self) -> Option<Duration> {
        self.ran_at
    }

    /// Whether the connection is in TIME-WAIT, with a socket or without.
    pub fn is_in_time_wait(&self) -> bool {
        self.stack.sockets(false).iter().any(|socket| socket.state == "TIME-WAIT")
    }

    /// The current retransmission timeout, which the trace records at the next event.
    pub fn rto(&self) -> Option<Duration> {
        self.state().info.map(|info| info.rto)
    }

    fn record(&mut self, what: What) {
        self.trace.records.push(Record { at: self.now - self.begin, what });
    }

    /// Takes the frames that the stack has sent, and does its due work.
    fn collect(&mut self) {
        loop {
            while let Some(frame) = self.port.try_recv() {
                self.take(&frame);
            }
            if self.next_run().is_none_or(|next| next > self.now) {
                match self.port.try_recv() {
                    Some(frame) => self.take(&frame),
                    None => return,
                }
            }
        }
    }

    fn take(&mut self, frame: &TxFrame) {
        let mut bytes = vec![0; frame.len()];
        frame.copy_to(&mut bytes);
        let packet = self.names.decode(&bytes);
        self.touched_at = self.now;
        self.record(What::Sent(packet));
    }

    fn send(&mut self, bytes: &[u8], gso_size: u16) {
        // The queue has room for everything that one event sends.
        let frame = FrameBytes { bytes, checksum: Checksum::Software, gso_size };
        self.port.try_send(frame).expect("a packet that the device carries");
    }

    fn perform(&mut self, index: usize, action: &Action) {
        self.touched_at = self.now;
        let returned = match action {
            Action::Segment(segment) => {
                for packet in segment.packets() {
                    let bytes = self.names.encode(&packet);
                    self.send(&bytes, packet.gso_size);
                    // The kernel processes each by itself, too.
                    self.collect();
                }
                return;
            }
            Action::Report(report) => {
                let bytes = self.names.encode_report(*report);
                return self.send(&bytes, 0);
            }
            Action::Wait => return,
            Action::Listen(backlog) => self.listen(*backlog),
            Action::Connect => self.connect(),
            Action::ConnectWith(len) => self.connect_with(*len),
            Action::Again => Ok(self.again()),
            Action::Accept => self.accept(),
            Action::Read(len) => self.read(index, *len),
            Action::ReadInq(len) => self.read_inq(index, *len),
            Action::Peek(len) => self.peek(index, *len),
            Action::Write(len) => self.write(*len, |mut stream, bytes| stream.write(bytes)),
            Action::WriteMore(len) => {
                self.write(*len, |stream, bytes| stream.send_with(&[IoSlice::new(bytes)], SendFlags::MORE))
            }
            Action::WriteUrgent(len) => self.write(*len, TcpStream::send_urgent),
            Action::WriteRecord(len) => {
                self.write(*len, |stream, bytes| stream.send_with(&[IoSlice::new(bytes)], SendFlags::EOR))
            }
            Action::Shutdown(how) => self.stream().and_then(|stream| {
                stream.shutdown(match how {
                    How::Read => Shutdown::Read,
                    How::Write => Shutdown::Write,
                    How::Both => Shutdown::Both,
                })?;
                Ok(0)
            }),
            Action::Close => {
                let had = !matches!(self.socket, Socket::None);
                self.socket = Socket::None;
                if had { Ok(0) } else { Err(no_socket()) }
            }
            Action::CloseListener => self.listener.take().map(|_| 0).ok_or_else(no_socket),
            Action::Set(option, value) => options::set(&mut self.socket, *option, *value).map(|()| 0),
            Action::Get(option) => self.stream().and_then(|stream| options::get(stream, *option)),
            Action::Ask(question) => self.ask(*question),
            Action::TakeError => self.stream().and_then(|stream| {
                let error = stream.take_error()?;
                Ok(error.map_or(0, |error| number(&error) as u32))
            }),
        };
        self.record(What::Returned(index, returned.map_err(|error| number(&error))));
    }

    fn stream(&self) -> io::Result<&TcpStream> {
        match &self.socket {
            Socket::Stream(stream) => Ok(stream),
            Socket::Fresh(_) => Err(io::Error::from_raw_os_error(libc::ENOTCONN)),
            Socket::None => Err(no_socket()),
        }
    }

    fn fresh(&mut self) -> io::Result<TcpSocket> {
        match std::mem::replace(&mut self.socket, Socket::None) {
            Socket::Fresh(socket) => Ok(socket),
            other => {
                self.socket = other;
                Err(no_socket())
            }
        }
    }

    fn listen(&mut self, backlog: u32) -> io::Result<u32> {
        let mut socket = self.fresh()?;
        socket.bind(self.names.local.into())?;
        self.listener = Some(socket.listen(backlog as usize)?);
        Ok(0)
    }

    fn connect(&mut self) -> io::Result<u32> {
        let stream = self.fresh()?.connect(self.names.peer.into())?;
        self.socket = Socket::Stream(stream);
        Ok(0)
    }

    fn connect_with(&mut self, len: u32) -> io::Result<u32> {
        let bytes: Vec<u8> = (0..len).map(pattern).collect();
        let (stream, taken) = self.fresh()?.connect_with(self.names.peer.into(), &bytes)?;
        self.socket = Socket::Stream(stream);
        self.written = taken as u32;
        Ok(self.written)
    }

    fn again(&mut self) -> u32 {
        self.socket = Socket::Fresh(fresh_socket(&self.stack, self.is_ipv6));
        (self.written, self.read) = (0, 0);
        self.names.begin_anew();
        0
    }

    fn accept(&mut self) -> io::Result<u32> {
        let (stream, _) = self.listener.as_ref().ok_or_else(no_socket)?.accept()?;
        stream.set_nonblocking(true)?;
        self.socket = Socket::Stream(stream);
        Ok(0)
    }

    fn read(&mut self, index: usize, len: u32) -> io::Result<u32> {
        let mut bytes = vec![0; len as usize];
        let got = self.stream()?.read(&mut bytes)? as u32;
        self.check(index, &bytes[..got as usize]);
        self.read += got;
        Ok(got)
    }

    fn read_inq(&mut self, index: usize, len: u32) -> io::Result<u32> {
        let got = self.read(index, len)?;
        let left = self.stream()?.inq()? as u32;
        self.record(What::Returned(index, Ok(got)));
        Ok(left)
    }

    fn peek(&mut self, index: usize, len: u32) -> io::Result<u32> {
        let mut bytes = vec![0; len as usize];
        let got = self.stream()?.peek(&mut bytes)?;
        self.check(index, &bytes[..got]);
        Ok(got as u32)
    }

    /// Notes bytes that are not those of the peer's stream.
    fn check(&mut self, index: usize, bytes: &[u8]) {
        if !bytes.iter().zip(self.read..).all(|(byte, at)| *byte == pattern(at)) {
            self.record(What::Corrupt(index));
        }
    }

    fn write(&mut self, len: u32, send: impl Fn(&TcpStream, &[u8]) -> io::Result<usize>) -> io::Result<u32> {
        let bytes: Vec<u8> = (self.written..self.written + len).map(pattern).collect();
        let taken = send(self.stream()?, &bytes)? as u32;
        self.written += taken;
        Ok(taken)
    }

    fn ask(&self, question: Question) -> io::Result<u32> {
        let stream = self.stream()?;
        match question {
            Question::Mark => stream.at_mark().map(u32::from),
            Question::Unread => stream.available().map(|bytes| bytes as u32),
            Question::Unacknowledged => stream.unacknowledged().map(|bytes| bytes as u32),
        }
    }

    fn state(&self) -> State {
        match (&self.socket, &self.listener) {
            (Socket::Stream(stream), _) => {
                State { ready: ready(stream), info: stream.info().ok().map(|info| figures(&info)) }
            }
            (_, Some(listener)) => State { ready: ready(listener), info: None },
            _ => State::default(),
        }
    }
}

/// A socket that does nothing yet.
fn fresh_socket(stack: &Stack, is_ipv6: bool) -> TcpSocket {
    let mut socket = if is_ipv6 { TcpSocket::new_v6(stack) } else { TcpSocket::new_v4(stack) };
    socket.set_nonblocking(true);
    socket
}

/// The result of a poll that asks for everything.
fn ready(source: &impl Pollable) -> Ready {
    let poll = Poll::new(Duration::ZERO);
    let all = Interest::READABLE | Interest::WRITABLE | Interest::PRIORITY;
    let mut events = Events::with_capacity(1);
    if poll.register(source, Token(0), all, Trigger::Level).is_err() {
        return Ready::default();
    }
    let _ = poll.wait(&mut events, Some(Duration::ZERO));
    let event = events.iter().next().copied();
    event.map_or(Ready::default(), |event| Ready {
        readable: event.is_readable(),
        writable: event.is_writable(),
        priority: event.is_priority(),
        read_closed: event.is_read_closed(),
        hung_up: event.is_read_closed() && event.is_write_closed(),
        error: event.is_error(),
    })
}

/// In the kernel's units.
fn figures(info: &TcpInfo) -> Info {
    let mss = info.snd_mss.max(1);
    let ca_state = match info.ca_state {
        CaState::Open => 0,
        CaState::Disorder => 1,
        CaState::Recovery => 3,
        CaState::Loss => 4,
    };
    let endless = info.ssthresh >= ENDLESS;
    let mut figures = vec![
        ("ca_state", ca_state),
        ("retransmits", info.retransmits.into()),
        ("probes", info.probes.into()),
        ("backoff", info.backoff.into()),
        ("snd_mss", info.snd_mss.into()),
        ("snd_cwnd", u64::from(info.cwnd / mss)),
        ("snd_ssthresh", if endless { u64::from(u32::MAX >> 1) } else { u64::from(info.ssthresh / mss) }),
        ("snd_wnd", info.snd_wnd.into()),
        ("notsent_bytes", info.not_sent.into()),
        ("dsack_dups", info.dsack_count.into()),
        ("bytes_retrans", info.rexmt_bytes),
    ];
    // Not counted before the first segment after the handshake.
    let carried = info.carried.as_ref();
    figures.push(("bytes_acked", carried.map_or(0, |carried| carried.bytes_acked)));
    figures.push(("bytes_received", carried.map_or(0, |carried| carried.bytes_received)));
    figures.push(("data_segs_out", carried.map_or(0, |carried| carried.data_segs_out)));
    figures.push(("reordering", info.reordering.into()));
    figures.push(("reord_seen", info.reordered_count.into()));
    figures.push(("bytes_sent", carried.map_or(0, |carried| carried.bytes_sent)));
    let (snd, rcv) = info.wscale.unwrap_or((0, 0));
    figures.push(("wscales", u64::from(snd) << 4 | u64::from(rcv)));
    figures.push(("tcpi_options", options_of(info)));
    // The kernel's is without the timestamps of each segment.
    figures.push(("advmss", u64::from(info.advmss) - if info.timestamps { TIMESTAMPS_LEN } else { 0 }));
    // The kernel counts segments.
    figures.push(("unacked", (info.in_flight > 0).into()));
    figures.push(("sacked", (info.sack && info.sacked > 0).into()));
    Info { state: info.state, figures, rto: info.rto }
}

/// The bits of `tcpi_options` for timestamps, SACK, scaled windows, ECN, and text of a SYN.
fn options_of(info: &TcpInfo) -> u64 {
    let bits = [info.timestamps, info.sack, info.wscale.is_some(), info.ecn, false, info.syn_text_taken];
    bits.iter().rev().fold(0, |bits, is_on| bits << 1 | u64::from(*is_on))
}

fn no_socket() -> io::Error {
    io::Error::from_raw_os_error(libc::EBADF)
}

/// The kernel's number of an error.
fn number(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(match error.kind() {
        ErrorKind::WouldBlock => libc::EAGAIN,
        ErrorKind::InvalidInput => libc::EINVAL,
        _ => UNKNOWN_ERROR,
    })
}

/// For an error that has no number; it is no number of the kernel's.
const UNKNOWN_ERROR: i32 = 9999;
/// A slow start threshold of this many bytes means that there is none.
const ENDLESS: u32 = 1 << 30;
/// Bytes that the option of timestamps takes.
const TIMESTAMPS_LEN: u64 = 12;
/// The clock at a scenario's begin.
const START: Duration = Duration::from_secs(10);
/// How long an event takes, as on the kernel, so that no round trip is 0.
const STEP: Duration = Duration::from_micros(50);
/// A timer that is started for at most this time is due at once.
const HOP: Duration = Duration::from_millis(1);
/// The least step of the clock.
const TICK: Duration = Duration::from_micros(1);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::Segment;
    use crate::wheel::PHASES;

    fn times_of(trace: &Trace, is_it: impl Fn(&Segment) -> bool) -> Vec<Duration> {
        let sent = trace.records.iter().filter_map(|record| match &record.what {
            What::Sent(crate::codec::Packet::Tcp(segment)) if is_it(segment) => Some(record.at),
            _ => None,
        });
        sent.collect()
    }

    /// The timers of a probe and of a timeout behind it run for 300 ms each, and text of the peer comes in between. So each expires at a multiple of
    /// 32 ms of the kernel's clock, and over all phases at any millisecond.
    #[test]
    fn at_a_phase_coarse_timers_expire_as_far_apart_as_the_kernels_wheel_has_it() {
        let text = "\
0 connect
100 peer AS 0 ack 1 win 65535 mss 1460 sackok nop wscale 7
160 write 1448
300 peer PA 1:101 ack 1 win 500
363 peer PA 101:201 ack 1 win 500
1000 wait
";
        let scenario: Scenario = text.parse().unwrap();
        let mut probes = Vec::new();
        for phase in 0..PHASES {
            let times = times_of(&run_at_phase(&scenario, phase), |segment| segment.len == 1448);
            assert!(times.len() >= 3, "{times:?}");
            // To the stack's own millisecond.
            let beside = (times[2] - times[1] + HOP).as_micros() % 32_000;
            assert!(beside <= 2 * HOP.as_micros(), "{phase}: {times:?}");
            probes.push(times[1]);
        }
        let spread = *probes.iter().max().unwrap() - *probes.iter().min().unwrap();
        assert!(spread > Duration::from_millis(24) && spread <= Duration::from_millis(36), "{spread:?}");
    }
}
