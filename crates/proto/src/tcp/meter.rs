//! What a connection over a path has carried, and what held it back: the counters behind `TCP_INFO`.
//!
//! The box is made with the first segment that comes from, or goes to, an interface; on loopback nobody calls, and
//! nothing is counted. Counts of segments come from the caller, who sees them; bytes are the way that SND.UNA and RCV.NXT
//! have gone since the last call, for which less than 2^31 bytes must lie between two calls: windows are smaller. Times
//! are cut where a call comes, so they are as fine as the connection's segments. It must not know frames.
//! Tests: `tests/info.rs`.

use crate::seq::SeqNum;
use crate::time::Instant;

use super::cc::CongestionControl;
use super::loss::Loss;
use super::pcb::Pcb;
use super::rcv_tune::RcvTune;
use super::segment::Payload;
use super::timers::since_us;
use super::unreachable::Unreachable;

/// What keeps a sender from sending more, or faster.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Limit {
    /// The application: all that was written is sent.
    Application,
    /// The window that the peer offers: its application reads no faster, or its buffer is too small for the path.
    ReceiveWindow,
    /// The congestion window, which still grows from the start: more round trips would help.
    CongestionWindow,
    /// The send buffer: it is full of what is not acknowledged, and the windows would take more.
    SendBuffer,
    /// The path: the congestion window, or the pace, is what losses, marks or its model of the path have left.
    Path,
}

/// A call's worth of segments.
#[derive(Clone, Copy, Default, Debug)]
pub struct Tally {
    /// Segments.
    pub segments: u32,
    /// Of these, with text.
    pub with_text: u32,
    /// Bytes of text.
    pub text_bytes: u32,
}

/// See the module's head.
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
    pub busy_us: u64,
    pub rwnd_limited_us: u64,
    pub sndbuf_limited_us: u64,
    /// Bytes a second that were acknowledged, over the last whole round trip.
    pub delivery_rate: u64,
    /// How much the reader takes.
    pub tune: Option<RcvTune>,
    /// What the network reported of what began at this SND.UNA.
    pub soft_error: Option<(Unreachable, SeqNum)>,
    una: SeqNum,
    nxt: SeqNum,
    /// What limits since the last call; `None` while nothing is under way.
    limit: Option<Limit>,
    limit_at: Instant,
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
            // The SYNs are no bytes.
            bytes_acked: u64::from(una.since(iss + 1)),
            bytes_received: u64::from(nxt.since(irs + 1)),
            last_text_in_at: now,
            busy_us: 0,
            rwnd_limited_us: 0,
            sndbuf_limited_us: 0,
            delivery_rate: 0,
            tune: None,
            soft_error: None,
            una,
            nxt,
            limit: None,
            limit_at: now,
            rate_at: now,
            rate_acked: 0,
        }
    }

    /// Counts the time since the last call for what limited in it.
    fn pass(&mut self, limit: Option<Limit>, now: Instant) {
        let us = since_us(now, self.limit_at);
        if self.limit.is_some() {
            self.busy_us += us;
        }
        match self.limit {
            Some(Limit::ReceiveWindow) => self.rwnd_limited_us += us,
            Some(Limit::SendBuffer) => self.sndbuf_limited_us += us,
            Some(Limit::Application | Limit::CongestionWindow | Limit::Path) | None => {}
        }
        (self.limit, self.limit_at) = (limit, now);
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
    /// Counts segments that came in, or went out, over an interface. `is_full`: a writer has to wait for space in
    /// `so_snd`.
    pub fn meter(&mut self, incoming: Tally, outgoing: Tally, is_full: bool, now: Instant) {
        let now = self.clock(now);
        let limit = (self.snd_max != self.snd_una || self.has_unsent()).then(|| self.limit(is_full));
        let (una, nxt, srtt_us) = (self.snd_una, self.rcv_nxt, self.rtt.srtt_us());
        let meter = self.meter_mut(now);
        meter.segs_in += u64::from(incoming.segments);
        meter.data_segs_in += u64::from(incoming.with_text);
        meter.segs_out += u64::from(outgoing.segments);
        meter.data_segs_out += u64::from(outgoing.with_text);
        meter.bytes_sent += u64::from(outgoing.text_bytes);
        meter.advance(una, nxt, srtt_us, now);
        meter.pass(limit, now);
    }

    /// The box, made if there is none.
    pub(super) fn meter_mut(&mut self, now: Instant) -> &mut Meter {
        let (una, nxt, iss, irs) = (self.snd_una, self.rcv_nxt, self.iss, self.irs);
        self.meter.get_or_insert_with(|| Box::new(Meter::new(una, nxt, iss, irs, now)))
    }

    /// What keeps the connection from sending more, as things are now.
    pub fn limit(&self, is_full: bool) -> Limit {
        let flight = self.snd_max.since(self.snd_una);
        let mss = u32::from(self.mss);
        let unsent = self.snd_len.saturating_sub(flight);
        let loss = self.loss.as_deref();
        let pipe = loss.map_or(flight, |loss| loss.pipe(flight));
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
            // A last small segment waits for company (Nagle), or the next poll sends.
            true | false => Limit::Application,
        }
    }
}
