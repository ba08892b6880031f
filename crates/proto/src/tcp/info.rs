//! A connection seen from outside: the parts of Linux's `TCP_INFO` for which there is no other query.
//!
//! A snapshot by value; taking it changes nothing. Counts that cost something while a connection runs are there only
//! over an interface (`meter.rs`). It does not depend on sockets. Tests: `tests/info.rs`.

use core::num::NonZeroU64;
use core::time::Duration;

use crate::time::Instant;

use super::cc::{CongestionControl, Phase};
use super::pcb::Pcb;
use super::segment::Payload;
use super::timers::NEVER;

/// Where loss recovery stands (`tcpi_ca_state`). Linux's CWR is open here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CaState {
    /// Nothing is missing.
    Open,
    /// Something has arrived behind a hole, and nothing is believed lost yet.
    Disorder,
    /// Fast recovery.
    Recovery,
    /// After an expiry of the retransmission timer.
    Loss,
}

/// See the module's head. Sizes are bytes.
#[derive(Clone, Copy, Debug)]
pub struct Info {
    /// Where loss recovery stands (`tcpi_ca_state`).
    pub ca_state: CaState,
    /// Expiries of the retransmission timer since something was last acknowledged (`tcpi_retransmits`).
    pub retransmits: u8,
    /// Window probes without an answer (`tcpi_probes`).
    pub probes: u8,
    /// How often the timeout is doubled now (`tcpi_backoff`).
    pub backoff: u8,
    /// Shifts of the windows that the peer sends, and that we send; `None` without scaling (`tcpi_snd_wscale`,
    /// `tcpi_rcv_wscale`).
    pub wscale: Option<(u8, u8)>,
    /// How long an acknowledgment may be delayed (`tcpi_ato`).
    pub ato: Duration,
    /// The largest segment seen from the peer, at most the announced MSS (`tcpi_rcv_mss`).
    pub rcv_mss: u32,
    /// The MSS that we announced (`tcpi_advmss`).
    pub advmss: u32,
    /// The largest packet that the path is believed to carry (`tcpi_pmtu`).
    pub pmtu: u32,
    /// Mean deviation of the round trip (`tcpi_rttvar`).
    pub rttvar: Duration,
    /// Since data was last sent (`tcpi_last_data_sent`).
    pub last_data_sent: Duration,
    /// Since data last came; `None` where that is not counted (`tcpi_last_data_recv`).
    pub last_data_recv: Option<Duration>,
    /// Since the peer was last heard (`tcpi_last_ack_recv`).
    pub last_ack_recv: Duration,
    /// The receive buffer up to which windows are offered (`tcpi_rcv_ssthresh`).
    pub rcv_ssthresh: u32,
    /// Round trip of incoming data; `None` if unknown (`tcpi_rcv_rtt`).
    pub rcv_rtt: Option<Duration>,
    /// Most that was read in a round trip; 0 if unknown (`tcpi_rcv_space`).
    pub rcv_space: u32,
    /// Sent again and not acknowledged (`tcpi_retrans`, there in segments).
    pub retrans: u32,
    /// Bytes a second at which segments leave; `None` if they are not paced (`tcpi_pacing_rate`).
    pub pacing_rate: Option<NonZeroU64>,
    /// Traffic over the interface; `None` on loopback.
    pub carried: Option<Carried>,
}

/// Traffic, and how long each limit held it back. Since the connection began.
#[derive(Clone, Copy, Debug)]
pub struct Carried {
    /// `tcpi_segs_out`.
    pub segs_out: u64,
    /// `tcpi_segs_in`.
    pub segs_in: u64,
    /// `tcpi_data_segs_out`.
    pub data_segs_out: u64,
    /// `tcpi_data_segs_in`.
    pub data_segs_in: u64,
    /// Repetitions included (`tcpi_bytes_sent`).
    pub bytes_sent: u64,
    /// `tcpi_bytes_acked`.
    pub bytes_acked: u64,
    /// In order (`tcpi_bytes_received`).
    pub bytes_received: u64,
    /// Bytes a second that were acknowledged in the last whole round trip (`tcpi_delivery_rate`).
    pub delivery_rate: u64,
    /// With something to send or unacknowledged, up to now, as the two that follow (`tcpi_busy_time`).
    pub busy_time: Duration,
    /// Held back by the peer's window (`tcpi_rwnd_limited`).
    pub rwnd_limited: Duration,
    /// Held back by the send buffer: a writer has found no space in it (`tcpi_sndbuf_limited`).
    pub sndbuf_limited: Duration,
}

impl<P: Payload> Pcb<P> {
    /// A look from outside.
    pub fn info(&self, now: Instant) -> Info {
        let now = now.max(self.clock);
        let expiries = self.rexmt_count;
        let meter = self.meter.as_deref();
        let carried = meter.map(|meter| (meter, meter.times(now))).map(|(meter, times)| Carried {
            segs_out: meter.segs_out,
            segs_in: meter.segs_in,
            data_segs_out: meter.data_segs_out,
            data_segs_in: meter.data_segs_in,
            bytes_sent: meter.bytes_sent,
            bytes_acked: meter.bytes_acked,
            bytes_received: meter.bytes_received,
            delivery_rate: meter.delivery_rate,
            busy_time: Duration::from_micros(times.busy_us),
            rwnd_limited: Duration::from_micros(times.rwnd_limited_us),
            sndbuf_limited: Duration::from_micros(times.sndbuf_limited_us),
        });
        let tune = meter.and_then(|meter| meter.tune.as_ref());
        Info {
            ca_state: self.ca_state(),
            retransmits: if self.persist { 0 } else { expiries },
            probes: if self.persist { expiries } else { 0 },
            backoff: self.rtt.backoff(),
            wscale: self.scaling.then_some((self.snd_scale, self.rcv_scale)),
            ato: Duration::from_micros(u64::from(self.tuning.delack_us)),
            rcv_mss: u32::from(self.rcv_mss_seen),
            advmss: u32::from(self.rcv_mss),
            pmtu: self.path_mtu(),
            rttvar: Duration::from_micros(u64::from(self.rtt.rttvar_us())),
            last_data_sent: now.since(self.last_snd_at),
            last_data_recv: meter.map(|meter| now.since(meter.last_text_in_at)),
            last_ack_recv: now.since(self.last_rcv_at),
            rcv_ssthresh: self.rcv_hiwat.min(self.rcv_wnd_max()),
            rcv_rtt: tune.and_then(|tune| tune.rtt()),
            rcv_space: tune.map_or(0, |tune| tune.space()),
            retrans: self.loss.as_deref().map_or(0, |loss| loss.records.repeated()),
            pacing_rate: self.cc.pacing_rate(),
            carried,
        }
    }

    fn ca_state(&self) -> CaState {
        let has_holes = self.loss.as_deref().is_some_and(|loss| loss.records.sacked() > 0);
        match self.recovery.phase() {
            Phase::Recovery => CaState::Recovery,
            Phase::Loss if self.rexmt_at != NEVER => CaState::Loss,
            Phase::Open | Phase::Loss if has_holes => CaState::Disorder,
            Phase::Open | Phase::Loss => CaState::Open,
        }
    }
}
