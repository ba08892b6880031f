//! One pcb against hand-made segments.
//!
//! Our ISS is 1000 and the peer's 5000, so that the first bytes are 1001 and 5001; no timestamps or
//! window scaling unless a test asks. Time is counted from the start of the script.

use core::time::Duration;

use super::super::accecn::SynEcn;
use super::super::accepted::{Accepted, SynAcks, TimestampState, WindowScale};
use super::super::cc::Algorithm;
use super::super::ecn::EcnMode;
use super::super::events::{Events, Input, Transmit};
use super::super::pcb::Pcb;
use super::super::sack::SackBlock;
use super::super::segment::{Flags, Header, Timestamps};
use super::super::settings::Settings;
use super::super::state::State;
use super::super::timestamp;
use super::super::window::window_scale_for;
use crate::seq::SeqNum;
use crate::time::Instant;

pub const ISS: u32 = 1000;
pub const IRS: u32 = 5000;
pub const MSS: u32 = 1000;
pub const WND: u16 = 50_000;

pub const ACK: Flags = Flags::ACK;
pub const FIN: Flags = Flags::FIN.with(Flags::ACK);
pub const RST: Flags = Flags::RST;
pub const SYN: Flags = Flags::SYN;
pub const SYN_ACK: Flags = Flags::SYN.with(Flags::ACK);

pub struct Script {
    pub pcb: Pcb<Vec<u8>>,
    pub now: Instant,
    /// Bytes in `so_snd`.
    pub snd: u32,
    /// Bytes free in `so_rcv`.
    pub space: u32,
    /// TSval of the peer's next segment, if timestamps are on.
    pub peer_ts: Option<Timestamps>,
    pub events: Events,
    /// When a timer gave the connection up.
    pub timed_out_at: Option<Instant>,
}

pub fn plain() -> Settings {
    Settings {
        mss: MSS as u16,
        rcv_buf: 50_000,
        rcv_buf_max: 50_000,
        timestamps: false,
        window_scaling: false,
        sack: false,
        // With the round trip of 10 ms that the handshake measures, the first timeout is 200 ms.
        rto_min: Duration::from_millis(190),
        congestion_control: Algorithm::NewReno,
        ..Settings::default()
    }
}

impl Script {
    pub fn connect(s: &Settings) -> Self {
        let now = Instant::from_micros(1_000_000);
        let pcb = Pcb::connect(s, SeqNum::new(ISS), s.rcv_buf, now);
        Self { pcb, now, snd: 0, space: s.rcv_buf, peer_ts: None, events: Events::NONE, timed_out_at: None }
    }

    /// Established as a listener's child.
    pub fn established(s: &Settings) -> Self {
        let (accepted, now) = Self::accepted(s);
        let pcb = Pcb::accept(s, &accepted, now);
        let peer_ts = s.timestamps.then_some(Timestamps { val: 100, ecr: 0 });
        let mut script =
            Self { pcb, now, snd: 0, space: s.rcv_buf, peer_ts, events: Events::NONE, timed_out_at: None };
        let _ = script.input(script.seg(ACK), &[]);
        script
    }

    /// A listener's child by Fast Open, from the text of a SYN that came so.
    pub fn fast_open(s: &Settings, syn: SynEcn) -> Self {
        let (accepted, now) = Self::accepted(s);
        let accepted = Accepted { accurate_ecn: Some(syn), ..accepted };
        let pcb = Pcb::accept_fast_open(s, &accepted, 10, None, now);
        Self { pcb, now, snd: 0, space: s.rcv_buf, peer_ts: None, events: Events::NONE, timed_out_at: None }
    }

    /// What a segment that leaves now has as its timestamp.
    pub fn timestamp(&self) -> u32 {
        timestamp::value(self.now, self.pcb.ts_offset)
    }

    pub fn accepted(s: &Settings) -> (Accepted, Instant) {
        let now = Instant::from_micros(1_000_000);
        let accepted = Accepted {
            iss: SeqNum::new(ISS),
            irs: SeqNum::new(IRS),
            peer_mss: s.mss,
            snd_wnd: u32::from(WND),
            rcv_wnd: s.rcv_buf.min(65_535),
            window_scale: s
                .window_scaling
                .then_some(WindowScale { snd: 0, rcv: window_scale_for(s.rcv_buf_max) }),
            timestamps: s.timestamps.then_some(TimestampState {
                ts_recent: 100,
                ts_recent_at: now,
                ts_offset: s.ts_offset,
            }),
            sack_permitted: s.sack,
            ecn: s.ecn == EcnMode::On,
            accurate_ecn: s.ecn.accepts_accurate().then(SynEcn::default),
            rtt: Some(Duration::from_millis(10)),
            syn_acks: SynAcks::One,
            rehashes: 0,
        };
        (accepted, now)
    }

    /// A pcb that has reached `state` by segments and calls alone. `closed` decides whether the
    /// application used `close` or `shutdown_write` if a call was needed.
    pub fn in_state(state: State, s: &Settings, closed: bool) -> Self {
        let mut t = match state {
            State::SynSent | State::SynReceived => Self::connect(s),
            _ => Self::established(s),
        };
        t.output();
        let end = |t: &mut Self| {
            if closed {
                assert_eq!(t.pcb.close(0, t.now), None);
            } else {
                t.pcb.shutdown_write();
            }
            t.output();
        };
        match state {
            State::SynSent | State::Established => {}
            State::SynReceived => {
                let _ = t.input(t.raw(IRS, 0, SYN), &[]);
            }
            State::CloseWait => {
                let _ = t.input(t.seg(FIN), &[]);
            }
            State::FinWait1 => end(&mut t),
            State::FinWait2 => {
                end(&mut t);
                let _ = t.input(t.seg(ACK), &[]);
            }
            State::Closing => {
                let crossing = t.seg(FIN);
                end(&mut t);
                let _ = t.input(crossing, &[]);
            }
            State::LastAck => {
                let _ = t.input(t.seg(FIN), &[]);
                end(&mut t);
            }
            State::TimeWait => {
                end(&mut t);
                let _ = t.input(t.seg(FIN), &[]);
            }
            State::Closed => {
                let _ = t.pcb.abort();
            }
        }
        t.output();
        assert_eq!(t.pcb.state(), state);
        t
    }

    /// The segment that a peer in step with us would send: in order, everything acknowledged.
    pub fn seg(&self, flags: Flags) -> Header {
        Header {
            seq: self.pcb.rcv_nxt(),
            ack: self.pcb.snd_max(),
            flags,
            window: WND,
            urgent: 0,
            gso_size: 0,
            options: super::super::segment::Options { timestamps: self.peer_ts, ..Default::default() },
        }
    }

    pub fn raw(&self, seq: u32, ack: u32, flags: Flags) -> Header {
        Header { seq: SeqNum::new(seq), ack: SeqNum::new(ack), ..self.seg(flags) }
    }

    /// An acknowledgment of `bytes` bytes past SND.UNA with window `window`.
    pub fn ack_of(&self, bytes: u32, window: u16) -> Header {
        Header { ack: self.pcb.snd_una() + bytes, window, ..self.seg(ACK) }
    }

    pub fn input(&mut self, header: Header, payload: &[u8]) -> Input<Vec<u8>> {
        let input = self.pcb.on_segment(&header, payload.to_vec(), self.now);
        assert!(input.acked <= self.snd, "acknowledged more than there was");
        self.snd -= input.acked;
        self.events.insert(input.events);
        input
    }

    /// All segments that are due now.
    pub fn output(&mut self) -> Vec<Transmit> {
        let mut out = Vec::new();
        while let Some(t) = self.pcb.poll_transmit(self.snd, self.space, self.now) {
            assert!(t.offset + t.len <= self.snd, "sends bytes that are not in the buffer");
            out.push(t);
            assert!(out.len() < 1000, "endless output");
        }
        out
    }

    /// The peer acknowledges `ack` full segments from the first byte on, and holds those of `held`, each from one place to
    /// another.
    pub fn report(&mut self, ack: u32, held: &[(u32, u32)]) {
        let mut header = self.ack_of(0, WND);
        header.ack = self.place(ack);
        header.options.sack = held
            .iter()
            .map(|&(from, to)| SackBlock { start: self.place(from), end: self.place(to) })
            .collect();
        let _ = self.input(header, &[]);
    }

    /// Where the segment begins that has `segments` full ones before it.
    pub fn place(&self, segments: u32) -> SeqNum {
        SeqNum::new(ISS + 1) + segments * u32::from(self.pcb.mss())
    }

    /// How many full segments lie before it.
    pub fn place_of(&self, segment: &Transmit) -> u32 {
        segment.header().seq.since(self.place(0)) / u32::from(self.pcb.mss())
    }

    /// Sequence positions of the segments sent now.
    pub fn places(&mut self) -> Vec<u32> {
        let sent = self.output();
        sent.iter().map(|segment| self.place_of(segment)).collect()
    }

    /// Sequence positions of the segments sent within `time`.
    pub fn places_within(&mut self, time: Duration) -> Vec<u32> {
        let sent = self.wait(time);
        sent.iter().map(|(_, segment)| self.place_of(segment)).collect()
    }

    /// Data lengths of the segments due now.
    pub fn lens(&mut self) -> Vec<u32> {
        self.output().iter().map(|t| t.len).collect()
    }

    /// Appends `bytes` bytes to `so_snd` and sends as much as allowed.
    pub fn write(&mut self, bytes: u32) -> Vec<u32> {
        self.snd += bytes;
        self.lens()
    }

    /// Lets `time` pass; the timers run when they are due. Returns the sent segments with their times.
    pub fn wait(&mut self, time: Duration) -> Vec<(Duration, Transmit)> {
        let start = self.now;
        let end = start + time;
        let mut sent = Vec::new();
        while let Some(at) = self.pcb.next_deadline().filter(|at| *at <= end) {
            assert!(at >= self.now, "a deadline in the past was not served");
            self.now = at;
            let outcome = self.pcb.on_timer(at);
            self.events.insert(outcome.events);
            if outcome.events.has(Events::TIMED_OUT) {
                self.timed_out_at = Some(at);
            }
            let reply = outcome.reply.map(|header| Transmit {
                head: header.into(),
                offset: 0,
                len: 0,
                is_window_update: false,
                is_mtu_probe: false,
            });
            sent.extend(reply.into_iter().chain(self.output()).map(|t| (at.since(start), t)));
        }
        self.now = end;
        sent
    }
}

pub fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

pub fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}
