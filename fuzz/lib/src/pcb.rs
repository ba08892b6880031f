//! A pcb with arbitrary segments, calls of the application, and a clock that jumps.
//!
//! Invariants: bytes are delivered in order, each once, and inside the announced window; `snd_una`, `snd_nxt` and
//! `snd_max` keep their order; sent data is in the buffer; a poll ends; each deadline that the pcb returns makes
//! progress. Tests: `tests/corpus.rs`.

use core::time::Duration;

use arbitrary::{Result, Unstructured};
use sockeye_proto::seq::SeqNum;
use sockeye_proto::tcp::accecn::SynEcn;
use sockeye_proto::tcp::accepted::{Accepted, SynAcks, TimestampState, WindowScale};
use sockeye_proto::tcp::cc::Algorithm;
use sockeye_proto::tcp::ecn::EcnMode;
use sockeye_proto::tcp::events::Events;
use sockeye_proto::tcp::pcb::Pcb;
use sockeye_proto::tcp::segment::{Flags, Header, Payload};
use sockeye_proto::tcp::settings::Settings;
use sockeye_proto::tcp::state::State;
use sockeye_proto::time::Instant;

use crate::segments::{Known, Text, place, segment};

/// Steps of one input.
const STEPS_MAX: usize = 2000;
/// Segments that one poll may give: the largest window in the smallest segments that the pcb makes.
const BURST_MAX: usize = 200_000;
/// Room of both buffers, bytes.
const BUFFER: u32 = 256 << 10;
const ISS: u32 = u32::MAX - 5000;
const IRS: u32 = u32::MAX - 9000;

/// A pcb with its surroundings.
struct Bed {
    pcb: Pcb<Text>,
    now: Instant,
    /// Bytes in `so_snd`.
    snd: u32,
    /// Bytes free in `so_rcv`.
    space: u32,
    /// The next byte that the application would read.
    next: SeqNum,
    timestamps: bool,
    is_shut: bool,
    is_closed: bool,
}

/// See the module's head.
pub fn pcb(data: &[u8]) {
    let mut u = Unstructured::new(data);
    let Ok(mut bed) = Bed::new(&mut u) else { return };
    for _ in 0..STEPS_MAX {
        if u.is_empty() || bed.step(&mut u).is_err() {
            break;
        }
        bed.check();
    }
    bed.rest();
}

fn settings(u: &mut Unstructured<'_>) -> Result<Settings> {
    let algorithms = Algorithm::ALL;
    Ok(Settings {
        mss: *u.choose(&[1448, 1448, 536, 88, 9000])?,
        rcv_buf: BUFFER,
        rcv_buf_max: BUFFER,
        sack: u.ratio(4, 5)?,
        timestamps: u.ratio(4, 5)?,
        lossless: u.ratio(1, 8)?,
        nodelay: u.arbitrary()?,
        congestion_control: *u.choose(algorithms)?,
        tso_max: *u.choose(&[0, 65_535])?,
        ..Settings::default()
    })
}

impl Bed {
    fn new(u: &mut Unstructured<'_>) -> Result<Self> {
        let settings = settings(u)?;
        let now = Instant::from_micros(1_000_000);
        let (iss, irs) = (SeqNum::new(ISS), SeqNum::new(IRS));
        let pcb = if u.ratio(1, 6)? {
            let ecn = *u.choose(EcnMode::ALL)?;
            Pcb::connect(&Settings { ecn, ..settings }, iss, BUFFER, now)
        } else {
            let ts = TimestampState { ts_recent: 100, ts_recent_at: now, ts_offset: 0 };
            let accepted = Accepted {
                iss,
                irs,
                peer_mss: u.int_in_range(1..=9000)?,
                snd_wnd: u.int_in_range(0..=65_535)?,
                rcv_wnd: 65_535,
                window_scale: if u.arbitrary()? { Some(WindowScale { snd: 7, rcv: 2 }) } else { None },
                timestamps: settings.timestamps.then_some(ts),
                sack_permitted: settings.sack,
                ecn: u.ratio(1, 3)?,
                accurate_ecn: u.ratio(1, 3)?.then(SynEcn::default),
                rtt: Some(Duration::from_millis(u.int_in_range(0..=300)?)),
                syn_acks: SynAcks::One,
                rehashes: 0,
            };
            Pcb::accept(&settings, &accepted, now)
        };
        let next = irs + 1;
        let timestamps = settings.timestamps;
        Ok(Self { pcb, now, snd: 0, space: BUFFER, next, timestamps, is_shut: false, is_closed: false })
    }

    fn step(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        match u.int_in_range(0..=15u8)? {
            0..=6 => self.segment(u)?,
            7..=8 if !self.is_shut => {
                self.snd = (self.snd + u.int_in_range(1..=20_000)?).min(BUFFER);
                self.output();
            }
            9 if !self.is_closed => {
                self.space = (self.space + u.int_in_range(1..=BUFFER)?).min(BUFFER);
                self.output();
            }
            10..=11 => self.pass(Duration::from_micros(u.int_in_range(0..=400_000)?)),
            12 => self.pass_to_deadline(),
            13 => {
                self.pcb.set_nodelay(u.arbitrary()?, self.snd);
                self.output();
            }
            14 => {
                self.pcb.shutdown_write();
                self.is_shut = true;
                self.output();
            }
            15 if u.ratio(1, 4)? => {
                let unread = if u.arbitrary()? { 0 } else { BUFFER - self.space };
                let _ = self.pcb.close(unread, self.now);
                (self.is_shut, self.is_closed) = (true, true);
                self.output();
            }
            _ => self.output(),
        }
        Ok(())
    }

    fn segment(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let clock = 100u32.wrapping_add(u32::try_from(self.now.as_millis()).unwrap_or(u32::MAX));
        let (una, timestamps) = (self.pcb.snd_una(), self.timestamps);
        let in_handshake = self.pcb.state() == State::SynSent;
        let seq = if in_handshake { SeqNum::new(IRS) } else { self.pcb.rcv_nxt() };
        let out = self.pcb.snd_max().since(una);
        let acked = place(una, i32::try_from(u.int_in_range(0..=out)?).unwrap_or(0));
        let (mut header, len) = segment(u, &Known { seq, ack: acked, una, clock, timestamps })?;
        if in_handshake && u.ratio(1, 2)? {
            (header.flags, header.seq, header.ack) = (Flags::SYN.with(Flags::ACK), seq, self.pcb.snd_max());
        }
        self.feed(&header, len);
        Ok(())
    }

    fn feed(&mut self, header: &Header, len: u16) {
        let was_synchronised = self.pcb.state() != State::SynSent;
        let start = header.seq + u32::from(header.flags.has(Flags::SYN));
        let edge = self.pcb.rcv_adv();
        let input = self.pcb.on_segment(header, Text { start, len: u32::from(len) }, self.now);
        if !was_synchronised && self.pcb.state() != State::SynSent {
            self.next = start;
        }
        assert!(input.acked <= self.snd, "{} bytes acknowledged of {}", input.acked, self.snd);
        self.snd -= input.acked;
        let text = input.deliver;
        if !text.is_empty() {
            assert_eq!(text.start, self.next, "bytes out of order");
            self.next = text.start + text.len;
            assert!(!was_synchronised || self.next.at_or_before(edge), "bytes beyond the window");
            assert!(text.len <= self.space, "more bytes than there is room for");
            self.space -= text.len;
        }
        let is_over = input.events.any(Events::CLOSED.with(Events::RESET).with(Events::REFUSED));
        assert!(!is_over || self.pcb.state() == State::Closed);
        self.output();
    }

    /// Runs `poll_transmit` dry.
    fn output(&mut self) {
        for _ in 0..BURST_MAX {
            let Some(sent) = self.pcb.poll_transmit(self.snd, self.space, self.now) else { return };
            assert!(
                sent.offset.checked_add(sent.len).is_some_and(|end| end <= self.snd),
                "{sent:?}, {}",
                self.snd
            );
        }
        panic!("a poll that never ends");
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
        let _ = self.pcb.on_timer(self.now);
        self.output();
    }

    fn pass_to_deadline(&mut self) {
        if let Some(at) = self.pcb.next_deadline() {
            self.pass(at.since(self.now));
        }
    }

    fn check(&self) {
        let pcb = &self.pcb;
        if pcb.state() == State::Closed {
            return;
        }
        assert!(pcb.snd_una().at_or_before(pcb.snd_nxt()), "{:?} {:?}", pcb.snd_una(), pcb.snd_nxt());
        assert!(pcb.snd_nxt().at_or_before(pcb.snd_max()), "{:?} {:?}", pcb.snd_nxt(), pcb.snd_max());
        assert!(pcb.cwnd() > 0 && pcb.ssthresh() > 0);
        if pcb.state() != State::SynSent {
            assert!(pcb.rcv_nxt().at_or_before(pcb.rcv_adv()));
        }
    }

    /// A silent peer: outstanding data is abandoned after a bounded number of deadlines, or nothing is outstanding.
    fn rest(&mut self) {
        for _ in 0..DEADLINES_MAX {
            let Some(at) = self.pcb.next_deadline() else { return };
            let before = self.now;
            self.now = if at > self.now { at } else { self.now };
            let _ = self.pcb.on_timer(self.now);
            self.output();
            let is_stuck = self.now == before && self.pcb.next_deadline() == Some(at);
            assert!(!is_stuck, "a timer that stays due");
        }
    }
}

/// The number of deadlines to wait for at the end. A persist timer runs for ever.
const DEADLINES_MAX: usize = 64;
