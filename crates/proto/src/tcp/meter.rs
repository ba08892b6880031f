//! Traffic of a connection over a path, and the limits that held it back: the counters behind `TCP_INFO`.
//!
//! The first segment from or to an interface makes the box; on loopback nothing calls it, and nothing is counted. The
//! caller counts segments. Bytes are the distances by which SND.UNA and RCV.NXT have moved since the last call. These
//! must be below 2^31 between two calls, and windows are smaller. The times counted, and their beginnings and ends, are
//! those of Linux's `tcp_chrono`: see `Busy`. It does not depend on frames. Tests: `meter/tests.rs`, `tests/info.rs`.

use crate::seq::SeqNum;
use crate::time::Instant;

use super::cc::CongestionControl;
use super::loss::Loss;
use super::pcb::Pcb;
use super::rcv_tune::RcvTune;
use super::segment::Payload;
use super::state::State;
use super::timers::since_us;
use super::unreachable::Unreachable;

/// The limit that keeps a sender from sending more, or faster.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Limit {
    /// The application: everything written is sent.
    Application,
    /// The window that the peer offers: its application reads no faster, or its buffer is too small for the path.
    ReceiveWindow,
    /// The congestion window, which still grows from the start: more round trips would help.
    CongestionWindow,
    /// The send buffer: it is full of unacknowledged data, and the windows would take more.
    SendBuffer,
    /// The path: the congestion window, or the pace, is bounded by losses, marks or its model of the path.
    Path,
}

/// Shares of the time of a sender with something to send; all of it is `tcpi_busy_time`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Busy {
    /// Nothing that is counted separately.
    Sending,
    /// The next segment does not fit into the peer's window, and the congestion window has room for it
    /// (`tcpi_rwnd_limited`).
    ReceiveWindow,
    /// Everything written is sent, the congestion window has room, and a writer was refused because of missing space
    /// (`tcpi_sndbuf_limited`).
    SendBuffer,
}

/// The segments of one call.
#[derive(Clone, Copy, Default, Debug)]
pub struct Tally {
    /// Segments.
    pub segments: u32,
    /// Those of them with text.
    pub with_text: u32,
    /// Bytes of text.
    pub text_bytes: u32,
}

/// Durations, microseconds.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Times {
    pub busy_us: u64,
    pub rwnd_limited_us: u64,
    pub sndbuf_limited_us: u64,
}

/// See the head of this file.
#[derive(Debug)]
pub(super) struct Meter {
    pub segs_in: u64,
    pub segs_out: u64,
    pub data_segs_in: u64,
    pub data_segs_out: u64,
    pub bytes_sent: u64,
    pub bytes_acked: u64,
    pub bytes_received: u64,
    pub last_text_in_at: Instant,
    times: Times,
    /// A writer has found no space, and there has been none since then (Linux: SOCK_NOSPACE).
    is_refused: bool,
    /// Bytes acknowledged per second, over the last whole round trip.
    pub delivery_rate: u64,
    /// How much the reader reads.
    pub tune: Option<RcvTune>,
    /// The network's last report since the peer was heard, and what SND.UNA was then.
    pub soft_error: Option<(Unreachable, SeqNum)>,
    una: SeqNum,
    nxt: SeqNum,
    /// The limit for which time is counted since `busy_at`; `None` while there is nothing to send.
    busy: Option<Busy>,
    busy_at: Instant,
    rate_at: Instant,
    rate_acked: u64,
}

impl Meter {
    fn new(una: SeqNum, nxt: SeqNum, iss: SeqNum, irs: SeqNum, now: Instant) -> Self {
        Self {
            segs_in: 0,
            segs_out: 0,
            data_segs_in: 0,
            data_segs_out: 0,
            bytes_sent: 0,
            // SYNs are not bytes.
            bytes_acked: u64::from(una.since(iss + 1)),
            bytes_received: u64::from(nxt.since(irs + 1)),
            last_text_in_at: now,
            times: Times::default(),
            is_refused: false,
            delivery_rate: 0,
            tune: None,
            soft_error: None,
            una,
            nxt,
            busy: None,
            busy_at: now,
            rate_at: now,
            rate_acked: 0,
        }
    }

    /// The peer's SYN has arrived after segments were counted: its first byte has this number.
    pub fn begin_receiving(&mut self, nxt: SeqNum, now: Instant) {
        (self.nxt, self.last_text_in_at) = (nxt, now);
    }

    /// The times up to `now`, the running interval included.
    pub fn times(&self, now: Instant) -> Times {
        let us = since_us(now, self.busy_at);
        let mut times = self.times;
        match self.busy {
            None => return times,
            Some(Busy::Sending) => {}
            Some(Busy::ReceiveWindow) => times.rwnd_limited_us += us,
            Some(Busy::SendBuffer) => times.sndbuf_limited_us += us,
        }
        times.busy_us += us;
        times
    }

    /// From now on, time is counted for `busy`.
    fn pass(&mut self, busy: Option<Busy>, now: Instant) {
        if self.busy != busy {
            (self.times, self.busy, self.busy_at) = (self.times(now), busy, now);
        }
    }

    fn advance(&mut self, una: SeqNum, nxt: SeqNum, srtt_us: u32, now: Instant) {
        self.bytes_acked += u64::from(una.since(self.una));
        self.bytes_received += u64::from(nxt.since(self.nxt));
        if nxt != self.nxt {
            self.last_text_in_at = now;
        }
        (self.una, self.nxt) = (una, nxt);
        let took = since_us(now, self.rate_at);
        if took >= u64::from(srtt_us.max(1)) && self.bytes_acked > self.rate_acked {
            self.delivery_rate = (self.bytes_acked - self.rate_acked).saturating_mul(1_000_000) / took;
            (self.rate_at, self.rate_acked) = (now, self.bytes_acked);
        }
    }
}

impl<P: Payload> Pcb<P> {
    /// Counts segments received or sent over an interface. The caller must call [`Pcb::meter_time`] afterwards.
    pub fn meter(&mut self, incoming: Tally, outgoing: Tally, now: Instant) {
        let now = self.clock(now);
        let (una, nxt, srtt_us) = (self.snd_una, self.rcv_nxt, self.rtt.srtt_us());
        let meter = self.meter_mut(now);
        meter.segs_in += u64::from(incoming.segments);
        meter.data_segs_in += u64::from(incoming.with_text);
        meter.segs_out += u64::from(outgoing.segments);
        meter.data_segs_out += u64::from(outgoing.with_text);
        meter.bytes_sent += u64::from(outgoing.text_bytes);
        meter.advance(una, nxt, srtt_us, now);
    }

    /// Whether anything is counted: over an interface.
    pub fn is_metered(&self) -> bool {
        self.meter.is_some()
    }

    /// Notes the sender's limit from now on, if anything is counted. Called after output. `has_space`: a writer would
    /// find space in `so_snd`.
    #[inline]
    pub fn meter_time(&mut self, has_space: bool, now: Instant) {
        if let Some(meter) = self.meter.as_deref_mut() {
            meter.is_refused &= !has_space;
            self.note_busy(now);
        }
    }

    /// A writer has found no space.
    pub fn meter_refusal(&mut self, now: Instant) {
        if let Some(meter) = self.meter.as_deref_mut() {
            meter.is_refused = true;
            self.note_busy(now);
        }
    }

    fn note_busy(&mut self, now: Instant) {
        let now = self.clock(now);
        let busy = self.busy();
        if let Some(meter) = self.meter.as_deref_mut() {
            meter.pass(busy, now);
        }
    }

    fn busy(&self) -> Option<Busy> {
        let flight = self.snd_max.since(self.snd_una);
        let unsent = self.unsent(self.snd_len);
        // A SYN alone does not count as something to send, as on Linux.
        let is_opening = matches!(self.state, State::SynSent | State::SynReceived) && self.snd_len == 0;
        if self.state == State::Closed || is_opening || (flight == 0 && unsent == 0) {
            return None;
        }
        let mss = u32::from(self.mss);
        let pipe = self.pipe_in_window(flight);
        if self.cc.cwnd().saturating_sub(pipe) < mss {
            return Some(Busy::Sending);
        }
        let room = self.snd_wnd.saturating_sub(flight);
        Some(match unsent {
            0 if self.meter.as_deref().is_some_and(|meter| meter.is_refused) => Busy::SendBuffer,
            _ if unsent.min(mss) > room => Busy::ReceiveWindow,
            _ => Busy::Sending,
        })
    }

    /// The box, made if there is none.
    pub(super) fn meter_mut(&mut self, now: Instant) -> &mut Meter {
        let (una, nxt, iss, irs) = (self.snd_una, self.rcv_nxt, self.iss, self.irs);
        self.meter.get_or_insert_with(|| Box::new(Meter::new(una, nxt, iss, irs, now)))
    }

    /// What the congestion window counts of `flight` bytes that are outstanding.
    fn pipe_in_window(&self, flight: u32) -> u32 {
        let loss = self.loss.as_deref().filter(|_| self.keeps_records());
        loss.map_or(flight, |loss| loss.window_pipe(self.mss.into()))
    }

    /// The limit that keeps the connection from sending more now.
    pub fn limit(&self, is_full: bool) -> Limit {
        let flight = self.snd_max.since(self.snd_una);
        let mss = u32::from(self.mss);
        let unsent = self.snd_len.saturating_sub(flight);
        let loss = self.loss.as_deref();
        let pipe = self.pipe_in_window(flight);
        let has_window = self.snd_wnd.saturating_sub(flight) >= mss.min(self.max_snd_wnd / 2).max(1);
        let has_cwnd = self.cc.cwnd().saturating_sub(pipe) >= mss;
        if unsent == 0 && loss.is_none_or(|loss| loss.records.lost() == 0) {
            return if is_full && has_window && has_cwnd { Limit::SendBuffer } else { Limit::Application };
        }
        if !has_window {
            return Limit::ReceiveWindow;
        }
        let is_paced = loss.is_some_and(Loss::is_paced);
        match self.cc.cwnd() < self.cc.ssthresh() {
            _ if is_paced => Limit::Path,
            true if !has_cwnd => Limit::CongestionWindow,
            false if !has_cwnd => Limit::Path,
            // A last small segment waits for more data (Nagle), or the next poll sends.
            true | false => Limit::Application,
        }
    }
}

#[cfg(test)]
mod tests;
