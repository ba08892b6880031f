//! Two ends, a link, a clock that jumps from event to event.
//!
//! All random numbers come from one seed, which every failure prints. The ends behave as the socket
//! layer has to: a writer polls only when `snd_due_at` requires it, a reader only when `window_update_due`
//! does, so that a stall makes the test exceed its limit. The tests check each sent segment and each
//! delivered byte.

use core::time::Duration;

use super::super::accepted::{Accepted, SynAcks, TimestampState, WindowScale};
use super::super::ecn::EcnMode;
use super::super::events::{Events, Transmit};
use super::super::pcb::Pcb;
use super::super::segment::{Flags, Header, Options, Timestamps};
use super::super::settings::Settings;
use super::super::state::State;
use super::super::timestamp;
use super::super::window::{window_scale_for, window_update_due};
use crate::seq::SeqNum;
use crate::time::Instant;

/// SplitMix64: small, seeded, good enough to shake a link.
#[derive(Clone)]
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    /// 0 to `n` - 1.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }
    pub fn percent(&mut self, p: u64) -> bool {
        self.below(100) < p
    }
}

/// The effect of the link on segments, in percent and microseconds unless stated otherwise.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    pub delay_us: u64,
    pub jitter_us: u64,
    pub loss: u64,
    pub duplication: u64,
    /// Bytes per millisecond; 0: without bound.
    pub rate: u64,
    /// So many are up to `late` segments late.
    pub reorder: u64,
    pub late: u64,
    /// Segments that wait for the link for longer are marked, if they are ECN-capable; 0: none is.
    pub mark_after_us: u64,
}

impl Link {
    pub const CLEAN: Self = Self {
        delay_us: 5_000,
        jitter_us: 0,
        loss: 0,
        duplication: 0,
        rate: 0,
        reorder: 0,
        late: 0,
        mark_after_us: 0,
    };
}

/// One host's end of the connection, with its socket buffers and its application.
pub struct End {
    pub settings: Settings,
    pub pcb: Option<Pcb<Vec<u8>>>,
    pub snd: Vec<u8>,
    pub rcv: Vec<u8>,
    pub snd_hiwat: usize,
    /// The bytes that the application has still to write, from `written` on.
    pub to_write: Vec<u8>,
    pub written: usize,
    pub close_after_write: bool,
    pub received: Vec<u8>,
    pub eof: bool,
    /// Most bytes of one read; 0: the application does not read.
    pub read_max: usize,
    pub write_max: usize,
    pub events: Events,
    pub sent_count: usize,
    listening: bool,
    syn: Option<Header>,
    iss: SeqNum,
    edge: Option<SeqNum>,
}

impl End {
    fn new(settings: Settings, iss: SeqNum) -> Self {
        Self {
            settings,
            pcb: None,
            snd: Vec::new(),
            rcv: Vec::new(),
            snd_hiwat: 64 * 1024,
            to_write: Vec::new(),
            written: 0,
            close_after_write: false,
            received: Vec::new(),
            eof: false,
            read_max: usize::MAX,
            write_max: usize::MAX,
            events: Events::NONE,
            sent_count: 0,
            listening: false,
            syn: None,
            iss,
            edge: None,
        }
    }

    pub fn state(&self) -> State {
        self.pcb.as_ref().map_or(State::Closed, Pcb::state)
    }

    pub fn pcb(&mut self) -> &mut Pcb<Vec<u8>> {
        self.pcb.as_mut().expect("no pcb")
    }

    fn space(&self) -> u32 {
        self.settings.rcv_buf.saturating_sub(self.rcv.len() as u32)
    }
}

struct Flying {
    at: Instant,
    order: u64,
    to: usize,
    header: Header,
    payload: Vec<u8>,
}

pub struct World {
    pub now: Instant,
    pub ends: [End; 2],
    pub link: Link,
    pub rng: Rng,
    /// Every segment sent: time, sender, header, payload length.
    pub trace: Vec<(Instant, usize, Header, usize)>,
    /// Segments lost on purpose: the n-th data segment of end 0, counted from 0.
    pub drop_data: Vec<usize>,
    /// Bytes of payload that the path takes at most.
    pub payload_max: usize,
    /// A router on the path reports segments that are too large.
    pub reports_size: bool,
    data_count: usize,
    flying: Vec<Flying>,
    order: u64,
    seed: u64,
    /// When the link is free again, by sender.
    free_at: [Instant; 2],
    /// Longest that a segment has waited for the link.
    pub wait_us_max: u64,
}

impl World {
    /// End 0 connects to end 1, which listens. Nothing has been sent yet.
    pub fn new(seed: u64, a: Settings, b: Settings, link: Link) -> Self {
        let mut rng = Rng::new(seed);
        // Half of the runs begin close to the wrap of the sequence numbers.
        let mut iss = || {
            if rng.percent(50) { (rng.next() as u32) | 0xffff_0000 } else { rng.next() as u32 }
        };
        let (iss_a, iss_b) = (SeqNum::new(iss()), SeqNum::new(iss()));
        let now = Instant::from_micros(1_000_000 + rng.below(1 << 40));
        let mut world = Self {
            now,
            ends: [End::new(a, iss_a), End::new(b, iss_b)],
            link,
            rng,
            trace: Vec::new(),
            drop_data: Vec::new(),
            payload_max: usize::MAX,
            reports_size: false,
            data_count: 0,
            flying: Vec::new(),
            order: 0,
            seed,
            free_at: [Instant::ZERO; 2],
            wait_us_max: 0,
        };
        world.connect(0);
        world.ends[1].listening = true;
        world
    }

    /// Both ends connect to each other.
    pub fn simultaneous(seed: u64, a: Settings, b: Settings, link: Link) -> Self {
        let mut world = Self::new(seed, a, b, link);
        world.ends[1].listening = false;
        world.connect(1);
        world
    }

    /// As `new`, run until both ends are established.
    pub fn established(seed: u64, a: Settings, b: Settings, link: Link) -> Self {
        let mut world = Self::new(seed, a, b, link);
        world.run("handshake", |w| w.ends.iter().all(|end| end.state() == State::Established));
        world
    }

    fn connect(&mut self, i: usize) {
        let end = &mut self.ends[i];
        end.pcb = Some(Pcb::connect(&end.settings, end.iss, end.settings.rcv_buf, self.now));
    }

    /// Runs until `done`; panics if that takes more than an hour of virtual time or too many steps.
    pub fn run(&mut self, what: &str, done: impl Fn(&Self) -> bool) {
        let limit = self.now + Duration::from_secs(3600);
        self.poll_both();
        for _ in 0..2_000_000 {
            self.settle();
            if done(self) {
                return;
            }
            let stepped = self.step();
            assert!(stepped && self.now <= limit, "stalled in {what}: {}", self.report());
        }
        panic!("too many steps in {what}: {}", self.report());
    }

    /// Runs for `time`.
    pub fn run_for(&mut self, time: Duration) {
        let end = self.now + time;
        self.poll_both();
        self.settle();
        while self.next_event().is_some_and(|at| at <= end) {
            let _ = self.step();
            self.settle();
        }
        self.now = end;
    }

    fn report(&self) -> String {
        let end = |i: usize| {
            let e = &self.ends[i];
            format!("[{i}] {:?} wrote {} got {} {:?}", e.pcb, e.written, e.received.len(), e.events)
        };
        format!("seed {} at {:?}\n{}\n{}", self.seed, self.now, end(0), end(1))
    }

    fn next_event(&self) -> Option<Instant> {
        let arrivals = self.flying.iter().map(|f| f.at);
        let timers = self.ends.iter().filter_map(|e| e.pcb.as_ref()?.next_deadline());
        arrivals.chain(timers).min()
    }

    /// Jumps to the next event and lets it happen. False if there is none.
    fn step(&mut self) -> bool {
        let Some(at) = self.next_event() else { return false };
        self.now = self.now.max(at);
        for i in 0..2 {
            let Some(pcb) = self.ends[i].pcb.as_mut() else {
                continue;
            };
            if pcb.next_deadline().is_some_and(|d| d <= self.now) {
                let outcome = pcb.on_timer(self.now);
                self.ends[i].events.insert(outcome.events);
                if let Some(header) = outcome.reply {
                    self.fly(i, header, Vec::new());
                }
                self.poll(i);
            }
        }
        let mut due: Vec<Flying> = Vec::new();
        let mut i = 0;
        while i < self.flying.len() {
            if self.flying[i].at <= self.now { due.push(self.flying.swap_remove(i)) } else { i += 1 }
        }
        due.sort_by_key(|f| (f.at, f.order));
        let touched: Vec<usize> = due.iter().map(|f| f.to).collect();
        for segment in due {
            self.arrive(segment.to, segment.header, segment.payload);
        }
        for i in 0..2 {
            if touched.contains(&i) {
                self.poll(i);
            }
        }
        true
    }

    /// Lets both applications write and read as much as they can.
    fn settle(&mut self) {
        for i in 0..2 {
            if self.read(i) | self.write(i) {
                self.poll(i);
            }
        }
    }

    /// True if the pcb has to be polled.
    fn read(&mut self, i: usize) -> bool {
        let read_max = self.ends[i].read_max;
        let mut due = false;
        while read_max > 0 && !self.ends[i].rcv.is_empty() {
            let most = read_max.min(self.ends[i].rcv.len()) as u64;
            let count = 1 + self.rng.below(most) as usize;
            let end = &mut self.ends[i];
            end.received.extend(end.rcv.drain(..count));
            let space = end.space();
            let Some(pcb) = end.pcb.as_ref() else { break };
            let most = pcb.rcv_wnd_max();
            let hiwat = pcb.rcv_hiwat().min(most);
            due |= window_update_due(space.min(most), pcb.rcv_nxt(), pcb.rcv_adv(), hiwat, pcb.window_unit());
            let is_empty = end.rcv.is_empty();
            if let Some(pcb) = end.pcb.as_mut().filter(|pcb| pcb.acks_at_read().is_due(is_empty)) {
                pcb.on_read(is_empty);
                due = true;
            }
        }
        due
    }

    /// True if the pcb has to be polled.
    fn write(&mut self, i: usize) -> bool {
        let end = &mut self.ends[i];
        let Some(pcb) = end.pcb.as_mut() else { return false };
        let mut due = false;
        while pcb.state().can_send() && end.written < end.to_write.len() && end.snd.len() < end.snd_hiwat {
            let room = (end.snd_hiwat - end.snd.len()).min(end.to_write.len() - end.written);
            let count = 1 + self.rng.below(room.min(end.write_max) as u64) as usize;
            end.snd.extend_from_slice(&end.to_write[end.written..end.written + count]);
            end.written += count;
            due |= end.snd.len() as u64 >= u64::from(pcb.snd_due_at());
        }
        if end.close_after_write && end.written == end.to_write.len() && pcb.state().can_send() {
            pcb.shutdown_write();
            due = true;
        }
        due
    }

    /// The steps after each user call that a test makes on a pcb.
    fn poll_both(&mut self) {
        self.poll(0);
        self.poll(1);
    }

    /// Takes all segments out of end `i`.
    pub fn poll(&mut self, i: usize) {
        for count in 0.. {
            assert!(count < 100_000, "endless output: {}", self.report());
            let now = self.now;
            let end = &mut self.ends[i];
            let (snd_len, space) = (end.snd.len() as u32, end.space());
            let Some(pcb) = end.pcb.as_mut() else { return };
            let Some(sent) = pcb.poll_transmit(snd_len, space, now) else { break };
            if pcb.has_sent_all(snd_len) {
                let left = (pcb.next_deadline(), pcb.snd_due_at());
                assert!(pcb.poll_transmit(snd_len, space, now).is_none(), "it had not sent all");
                assert_eq!(
                    left,
                    (pcb.next_deadline(), pcb.snd_due_at()),
                    "a call for nothing changed something"
                );
            }
            let (header, Transmit { offset, len, .. }) = (sent.header(), sent);
            let payload = end.snd[offset as usize..(offset + len) as usize].to_vec();
            end.sent_count += 1;
            self.check_edge(i, &header);
            self.fly(i, header, payload);
        }
        let end = &self.ends[i];
        if let Some(pcb) = &end.pcb {
            assert!(
                !pcb.persist || pcb.snd_una() == pcb.snd_max(),
                "probes with data in flight: {}",
                self.report()
            );
            let waiting = pcb.state().transmits() && (!end.snd.is_empty() || pcb.snd_una() != pcb.snd_max());
            assert!(!waiting || pcb.next_deadline().is_some(), "nothing will wake it: {}", self.report());
        }
    }

    /// The right edge of the window never moves left by more than the field's rounding.
    fn check_edge(&mut self, i: usize, header: &Header) {
        let syn = header.flags.has(Flags::SYN);
        let end = &mut self.ends[i];
        let scaling = end.pcb.as_ref().is_some_and(|pcb| pcb.rcv_wnd_max() > 65_535);
        let scale = if syn || !scaling { 0 } else { window_scale_for(end.settings.rcv_buf_max) };
        if !header.flags.has(Flags::ACK) || header.flags.has(Flags::RST) {
            return;
        }
        let edge = header.ack + (u32::from(header.window) << scale);
        if let Some(before) = end.edge {
            let left = before.since(edge);
            assert!(left < 1 << scale, "window shrank by {left}: {}", self.report());
        }
        self.ends[i].edge = Some(self.ends[i].edge.map_or(edge, |before| before.max(edge)));
    }

    /// Puts a segment of end `from` on the link.
    pub fn fly(&mut self, from: usize, mut header: Header, payload: Vec<u8>) {
        self.trace.push((self.now, from, header, payload.len()));
        if from == 0 && !payload.is_empty() {
            self.data_count += 1;
            if self.drop_data.contains(&(self.data_count - 1)) {
                return;
            }
        }
        if payload.len() > self.payload_max {
            if self.reports_size {
                let (end, now) = (&mut self.ends[from], self.now);
                let options = if end.pcb().timestamps() { 12 } else { 0 };
                let mtu = self.payload_max as u32 + options + u32::from(end.settings.headers_len);
                let _ = end.pcb().on_packet_too_big(header.seq, mtu, now);
            }
            return;
        }
        let wire_us = ((payload.len() as u64 + 60) * 1000).checked_div(self.link.rate).unwrap_or(0);
        let wait_us = self.free_at[from].since(self.now).as_micros() as u64;
        self.wait_us_max = self.wait_us_max.max(wait_us);
        let marks = self.link.mark_after_us > 0 && wait_us > self.link.mark_after_us;
        let mark = if marks && header.flags.has(Flags::ECT) { Flags::CE } else { Flags::NONE };
        header.flags = header.flags.without(Flags::ECT).with(mark);
        let leaves = self.now.max(self.free_at[from]) + Duration::from_micros(wire_us);
        self.free_at[from] = leaves;
        let copies = 1 + usize::from(self.rng.percent(self.link.duplication));
        for _ in 0..copies {
            if self.rng.percent(self.link.loss) {
                continue;
            }
            let mut delay = self.link.delay_us + self.rng.below(self.link.jitter_us + 1);
            if self.link.reorder > 0 && self.rng.percent(self.link.reorder) {
                delay += (1 + self.rng.below(self.link.late)) * wire_us + wire_us / 2;
            }
            self.order += 1;
            self.flying.push(Flying {
                at: leaves + Duration::from_micros(delay),
                order: self.order,
                to: 1 - from,
                header,
                payload: payload.clone(),
            });
        }
    }

    fn arrive(&mut self, i: usize, header: Header, payload: Vec<u8>) {
        if self.ends[i].pcb.is_none() && !self.listen(i, &header) {
            return;
        }
        let end = &mut self.ends[i];
        let input = end.pcb.as_mut().expect("made above").on_segment(&header, payload, self.now);
        end.events.insert(input.events);
        end.snd.drain(..input.acked as usize);
        end.rcv.extend_from_slice(&input.deliver);
        assert!(input.deliver.is_empty() || !end.eof, "data after the end");
        end.eof |= input.events.has(Events::PEER_FIN);
        let slack = 1usize << 14;
        assert!(end.rcv.len() <= end.settings.rcv_buf as usize + slack, "so_rcv overran");
        if let Some(reply) = input.reply {
            self.fly(i, reply, Vec::new());
        }
    }

    /// The least of a listener: answers a SYN, and makes the pcb at the acknowledgment.
    fn listen(&mut self, i: usize, header: &Header) -> bool {
        let end = &mut self.ends[i];
        if !end.listening || header.flags.has(Flags::RST) {
            return false;
        }
        let (iss, s) = (end.iss, end.settings.clone());
        if header.flags.has(Flags::SYN) {
            end.syn = Some(*header);
            let ts = header.options.timestamps.filter(|_| s.timestamps);
            let reply = Header {
                seq: iss,
                ack: header.seq + 1,
                flags: if s.ecn != EcnMode::Off && offers(header) {
                    Flags::SYN.with(Flags::ACK).with(Flags::ECE)
                } else {
                    Flags::SYN.with(Flags::ACK)
                },
                window: s.rcv_buf.min(65_535) as u16,
                urgent: 0,
                gso_size: 0,
                options: Options {
                    mss: Some(s.mss),
                    window_scale: header
                        .options
                        .window_scale
                        .filter(|_| s.window_scaling)
                        .map(|_| window_scale_for(s.rcv_buf_max)),
                    sack_permitted: s.sack && header.options.sack_permitted,
                    timestamps: ts
                        .map(|ts| Timestamps { val: timestamp::value(self.now, s.ts_offset), ecr: ts.val }),
                    ..Options::default()
                },
            };
            self.fly(i, reply, Vec::new());
            return false;
        }
        let Some(syn) = end.syn.filter(|_| header.ack == iss + 1) else {
            return false;
        };
        let peer_scale = syn.options.window_scale.filter(|_| s.window_scaling);
        let accepted = Accepted {
            iss,
            irs: syn.seq,
            peer_mss: syn.options.mss.unwrap_or(536),
            snd_wnd: u32::from(syn.window),
            rcv_wnd: s.rcv_buf.min(65_535),
            window_scale: peer_scale.map(|snd| WindowScale { snd, rcv: window_scale_for(s.rcv_buf_max) }),
            timestamps: syn.options.timestamps.filter(|_| s.timestamps).map(|ts| TimestampState {
                ts_recent: ts.val,
                ts_recent_at: self.now,
                ts_offset: s.ts_offset,
            }),
            sack_permitted: s.sack && syn.options.sack_permitted,
            ecn: s.ecn != EcnMode::Off && offers(&syn),
            accurate_ecn: None,
            rtt: Some(Duration::from_millis(10)),
            syn_acks: SynAcks::One,
            rehashes: 0,
        };
        end.pcb = Some(Pcb::accept(&s, &accepted, self.now));
        true
    }
}

/// True if a SYN offers ECN.
fn offers(syn: &Header) -> bool {
    syn.flags.has(Flags::ECE.with(Flags::CWR))
}

/// `len` bytes whose values encode their position.
pub fn pattern(len: usize, salt: u8) -> Vec<u8> {
    (0..len).map(|i| ((i * 31 + i / 251) as u8) ^ salt).collect()
}
