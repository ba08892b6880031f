//! Random scenarios.
//!
//! The generator makes a scenario while a driven stack runs it. So it knows what the stack has sent, and can place the
//! peer's segments near what matters: the edges of windows, the borders of segments, the numbers that were just
//! acknowledged. Only the written scenario counts: it does not depend on the stack when it is run again.
//!
//! # Ties
//! The kernel's timers are coarse and late, so no event is placed where a timer of the stack has just expired or is
//! about to expire (`Maker::settle`).
//!
//! Tests: `generate/tests.rs`, `tests/random.rs`.

mod calls;
mod cookies;
mod deferral;
mod fast_open;
mod habits;
mod joins;
mod oddities;
mod patience;
mod reuse;
mod timing;
mod urgency;

use std::time::Duration;

use habits::Habit;

use crate::codec::{MTU, Packet, headers};
use crate::driven::Driven;
use crate::random::Random;
use crate::scenario::{Action, Event, How, Scenario, SockOpt};
use crate::segment::{Echo, Flags, Opt, Segment};
use crate::trace::{Record, What};

/// The scenario of a seed.
pub fn generate(seed: u64) -> Scenario {
    let mut random = Random::new(seed);
    let is_ipv6 = Random::new(seed.rotate_left(32)).chance(25);
    let mut scenario = Scenario { about: format!("seed {seed}"), is_ipv6, ..Scenario::default() };
    if random.chance(10) {
        let (key, value) = random.pick(&[
            ("timestamps", "off"),
            ("window_scaling", "off"),
            ("ecn", "on"),
            ("congestion_control", "newreno"),
        ]);
        scenario.settings.insert(key.to_owned(), value.to_owned());
    }
    let mut habits = Random::new(!seed);
    let habit = Habit::of(seed, &mut habits);
    habit.set(&mut scenario.settings, &mut habits);
    if habit != Habit::Oddities {
        cookies::set(&mut scenario.settings, seed);
    }
    let driven = Driven::new(&scenario);
    let mut maker = Maker {
        random,
        scenario,
        driven,
        at_ms: 0,
        seen: 0,
        peer: Peer::default(),
        sent: Vec::new(),
        sent_at: Duration::ZERO,
        last_event: Duration::ZERO,
        shift: 7,
        habit,
        habits,
    };
    maker.shift = maker.random.pick(&[7, 7, 0, 3, 10]);
    if habit == Habit::FastOpen {
        maker.open_fast();
    } else {
        maker.open();
    }
    let goes_on = habit != Habit::Reuse || maker.reuse();
    let events = if goes_on { 4 + maker.random.below(22) } else { 0 };
    for _ in 0..events {
        if maker.has_waited_enough() {
            break;
        }
        maker.pause();
        if !maker.habitual() {
            maker.something();
        }
    }
    maker.at_ms += AFTERMATH_MS;
    maker.settle();
    maker.wait();
    maker.scenario
}

/// The state that the scripted peer pretends to have.
#[derive(Default)]
struct Peer {
    has_ts: bool,
    has_sack: bool,
    mss: u32,
    win: u16,
    /// The number of its first byte of data, if that is not 1.
    first: u32,
    /// The number after everything that it has sent, except what it holds back.
    snd_nxt: u32,
    /// A hole in what it has sent.
    hole: Option<(u32, u32)>,
    /// It has sent its FIN.
    is_done: bool,
    /// How far its clock has jumped.
    clock: u32,
    /// What it acknowledges: at most what the tested side has sent.
    ack: u32,
    /// Ranges above that which it claims to hold.
    held: Vec<(u32, u32)>,
}

struct Maker {
    random: Random,
    scenario: Scenario,
    driven: Driven,
    at_ms: u32,
    /// The number of records processed so far.
    seen: usize,
    peer: Peer,
    /// The tested side's segments with data, FIN or SYN, each from its first number to the one after its last.
    sent: Vec<(u32, u32)>,
    /// When the latest of them was sent.
    sent_at: Duration,
    last_event: Duration,
    /// The shift of the peer's windows.
    shift: u8,
    habit: Habit,
    /// Random numbers for what is done by habit.
    habits: Random,
}

/// Time from the last event to the last look at the state. That look is no closer to a timer than other events: the
/// time is longer than the delay of an ACK.
const AFTERMATH_MS: u32 = 100;
/// A scenario ends after this many milliseconds, or soon after.
const LENGTH_MAX_MS: u32 = 3_000;

impl Maker {
    fn act(&mut self, action: Action) {
        let action = self.odd(action);
        let event = Event { at_ms: self.at_ms, action };
        let index = self.scenario.events.len();
        self.driven.step(index, &event);
        self.scenario.events.push(event);
        self.last_event = Duration::from_millis(self.at_ms.into());
        self.observe();
    }

    /// Notes what the stack has sent.
    fn observe(&mut self) {
        let records = &self.driven.trace().records;
        for record in &records[self.seen..] {
            if let What::Sent(Packet::Tcp(segment)) = &record.what
                && segment.end() != segment.seq
                && !segment.flags.has(Flags::RST)
            {
                self.sent.push((segment.seq, segment.end()));
                self.sent_at = record.at;
            }
        }
        self.seen = records.len();
    }

    /// The number after everything that the stack has sent.
    fn snd_max(&self) -> u32 {
        self.sent.iter().map(|(_, end)| *end).max().unwrap_or(0)
    }

    /// Bytes of data and options for which the device's packets have room.
    fn packet_max(&self) -> u32 {
        (MTU - headers(self.scenario.is_ipv6)) as u32
    }

    /// Bytes of data for which a packet of the peer has room beside its options.
    fn text_max(&self) -> u32 {
        let timestamps = if self.peer.has_ts { 12 } else { 0 };
        let blocks = if self.peer.held.is_empty() { 0 } else { 36 };
        self.packet_max() - timestamps - blocks
    }

    /// Bytes of the peer's full segments.
    fn peer_mss(&self) -> u32 {
        if self.peer.mss == 0 { 536 } else { self.peer.mss }
    }

    /// Lets some time pass.
    fn pause(&mut self) {
        if self.habit.is_patient() {
            return self.long_pause();
        }
        if self.at_ms > LENGTH_MAX_MS {
            if self.reports_a_hole() {
                self.at_ms += HOLE_MS;
                self.settle();
            }
            return;
        }
        let wait = match self.random.below(20) {
            0..5 => 0,
            5..9 => 10,
            9..14 => 30 + 10 * self.random.below(4),
            14..18 => 100 + 20 * self.random.below(6),
            18 => 350 + 50 * self.random.below(6),
            _ => 800 + 100 * self.random.below(8),
        };
        let wait = self.beside_a_hole(wait);
        self.at_ms += wait;
        if wait > 0 {
            self.at_ms += self.unevenness();
            self.settle();
        }
    }

    /// After out-of-order data, an ACK may wait for a part of a millisecond, so nothing may happen right after it.
    fn beside_a_hole(&self, wait: u32) -> u32 {
        if wait == 0 && self.reports_a_hole() { HOLE_MS } else { wait }
    }

    /// Some milliseconds, so that two round trips are seldom equal: in the kernel, the duration of calls would make one
    /// of them longer.
    fn unevenness(&self) -> u32 {
        self.scenario.events.len() as u32 % 4
    }

    /// Whether the stack's latest segment has SACK blocks.
    fn reports_a_hole(&self) -> bool {
        let sent = self.driven.trace().records.iter().rev().find_map(Record::segment);
        sent.is_some_and(|segment| !segment.sack().is_empty())
    }

    /// Opens the connection in one of the possible ways, mostly the plain one.
    fn open(&mut self) {
        let is_passive = self.random.chance(60) || self.is_for_listeners();
        self.peer.has_ts = self.random.chance(75);
        self.peer.has_sack = self.random.chance(85);
        let full = self.packet_max();
        self.peer.mss = self.random.pick(&[full, full, full, 1000, 536]);
        let is_scaled = self.random.chance(85) && self.may_have_options();
        if self.habit == Habit::Sizes {
            self.unusual_sizes();
        }
        self.options_before();
        if is_passive {
            self.defer_accept();
            self.act(Action::Listen(5));
            if self.random.chance(15) {
                self.option();
            }
            let mut syn = self.syn(Flags::SYN, is_scaled);
            if self.random.chance(5) && !self.scenario.settings.contains_key("ecn")
                || self.habit == Habit::Marks
            {
                syn.flags = syn.flags.with(Flags::ECE).with(Flags::CWR);
            }
            self.text_of_a_syn(&mut syn);
            self.act(Action::Segment(syn));
            self.oddity_of_open(10);
        } else {
            if self.random.chance(25) {
                self.option();
            }
            self.act(Action::Connect);
            self.oddity_of_open(8);
            self.at_ms += self.random.pick(&[10, 30, 60, 100]);
            self.settle();
            self.late_handshake();
            // The peer may not answer what the stack did not offer.
            let has_ts = self.scenario.settings.get("timestamps").is_none_or(|value| value != "off");
            self.peer.has_ts &= has_ts;
            self.peer.ack = 1;
            let is_scaled = is_scaled && !self.scenario.settings.contains_key("window_scaling");
            let mut syn_ack = self.syn(Flags::SYN.with(Flags::ACK), is_scaled);
            if self.habit == Habit::Marks && self.sent.len() == 1 {
                syn_ack.flags = syn_ack.flags.with(Flags::ECE);
            }
            self.text_of_a_syn(&mut syn_ack);
            self.act(Action::Segment(syn_ack));
        }
        self.peer.snd_nxt = 1;
        self.shift = if is_scaled { self.shift } else { 0 };
        self.peer.win = self.window_of(64_000);
        if is_passive {
            self.at_ms += self.random.pick(&[10, 30, 60, 100]);
            self.settle();
            self.late_handshake();
            self.peer.ack = 1;
            if self.habit == Habit::EarlyText && self.habits.chance(50) {
                self.early_text();
            } else {
                self.acknowledge();
            }
            self.at_ms += 10;
            self.settle();
            if self.habit == Habit::EarlyText && self.habits.chance(50) {
                self.early_text();
            }
            self.without_text();
            self.act(Action::Accept);
        }
    }

    /// The field's value for a window of this many bytes.
    fn window_of(&self, bytes: u32) -> u16 {
        (bytes >> self.shift).min(65_535) as u16
    }

    fn syn(&mut self, flags: Flags, is_scaled: bool) -> Segment {
        let mut options = Vec::new();
        if self.peer.mss > 0 {
            options.push(Opt::Mss(self.peer.mss as u16));
        }
        if self.peer.has_sack {
            options.push(Opt::SackOk);
        }
        if self.peer.has_ts {
            options.push(self.timestamp());
        }
        if is_scaled {
            options.push(Opt::Nop);
            options.push(Opt::Wscale(self.shift));
        }
        Segment { flags, seq: 0, ack: self.peer.ack, win: 65_535, options, ..Segment::default() }
    }

    /// The peer's timestamp clock.
    fn clock(&self) -> u32 {
        (1000 + self.at_ms).wrapping_add(self.peer.clock)
    }

    /// The peer has received everything that was sent.
    fn receive_all(&mut self) {
        self.peer.ack = self.snd_max().max(self.peer.ack);
        self.peer.held.clear();
    }

    fn timestamp(&mut self) -> Opt {
        Opt::Ts(self.clock(), if self.sent.is_empty() { Echo::Is(0) } else { Echo::Last })
    }

    /// A segment as the peer would send it now.
    fn segment(&mut self, flags: Flags, seq: u32, len: u32) -> Segment {
        let mut options = Vec::new();
        if self.peer.has_ts {
            options.extend([Opt::Nop, Opt::Nop, self.timestamp()]);
        }
        if self.peer.has_sack && !self.peer.held.is_empty() {
            let blocks_max = if self.peer.has_ts { 3 } else { 4 };
            let held: Vec<_> = self.peer.held.iter().rev().take(blocks_max).copied().collect();
            options.extend([Opt::Nop, Opt::Nop, Opt::Sack(held)]);
        }
        let flags = flags.with(Flags::ACK);
        let len = len.min(self.text_max());
        let mut segment = Segment {
            flags,
            seq,
            len,
            ack: self.peer.ack,
            win: self.peer.win,
            options,
            ..Segment::default()
        };
        self.mark(&mut segment);
        segment
    }

    fn send(&mut self, flags: Flags, seq: u32, len: u32) {
        let segment = self.segment(flags, seq, len);
        self.act(Action::Segment(segment));
    }

    fn acknowledge(&mut self) {
        self.send(Flags::default(), self.peer.snd_nxt, 0);
    }

    fn option(&mut self) {
        let (option, value) = self.random.pick(&[
            (SockOpt::Nodelay, 1),
            (SockOpt::Nodelay, 1),
            (SockOpt::Linger, 0),
            (SockOpt::NotsentLowat, 3000),
        ]);
        self.act(Action::Set(option, value));
    }

    fn something(&mut self) {
        match self.random.below(100) {
            0..20 => {
                let len = self.random.pick(&[1, 10, 100, 1000, 1448, 2000, 4000, 10_000, 20_000, 40_000]);
                self.act(Action::Write(len));
            }
            20..32 => {
                let len = self.random.pick(&[1, 500, 3000, 100_000, 100_000]);
                self.act(Action::Read(len));
            }
            32..56 => self.text(),
            56..86 => self.answer(),
            86..90 => self.window(),
            90..93 => self.finish(),
            93..96 => self.oddity(),
            96 => self.option(),
            97 => self.act(Action::TakeError),
            _ => self.wait(),
        }
    }

    fn wait(&mut self) {
        self.act(Action::Wait);
    }

    /// Data from the peer, in order or not.
    fn text(&mut self) {
        if self.peer.is_done && self.random.chance(96) {
            return self.answer();
        }
        let full = self.text_max();
        self.not_before_an_answer();
        let mss = self.peer_mss();
        let len = self.random.pick(&[1, 100, 536, mss.min(full), mss.min(full), full]);
        let flags = if self.random.chance(50) { Flags::PSH } else { Flags::default() };
        let (next, first) = (self.peer.snd_nxt, self.peer.first.max(1));
        match self.random.below(10) {
            0..5 => {
                self.send(flags, next, len);
                self.peer.snd_nxt = next + len;
            }
            5 | 6 => {
                // One segment is lost, and the next one arrives.
                self.peer.hole.get_or_insert((next, next + len));
                self.send(flags, next + len, len);
                self.peer.snd_nxt = next + 2 * len;
            }
            7 => match self.peer.hole.take() {
                Some((from, to)) => {
                    let part =
                        if self.random.chance(30) { 1 + self.random.below(to - from) } else { to - from };
                    self.send(flags, from, part);
                    self.peer.hole = (from + part < to).then_some((from + part, to));
                }
                None => self.send(flags, next.saturating_sub(len).max(first), len),
            },
            8 => {
                // Data that was sent before, and new data.
                let from = next.saturating_sub(self.random.below(len)).max(first);
                self.send(flags, from, len);
                self.peer.snd_nxt = next.max(from + len);
            }
            _ => {
                let from = next.saturating_sub(self.random.below(3000)).max(first);
                self.send(flags, from, len.min(next.saturating_sub(from)));
            }
        }
    }

    /// Lets time pass until what was just sent may have made its round trip. Two runs cannot measure a very short round
    /// trip equally: the kernel's differ by the microseconds that its calls take, and loss detection uses fractions of
    /// a round trip.
    fn round_trip(&mut self) {
        let arrives = self.sent_at + ROUND_TRIP_MIN;
        if arrives > Duration::from_millis(self.at_ms.into()) {
            self.at_ms = arrives.as_millis() as u32 + 1 + self.unevenness();
            self.settle();
        }
    }

    /// An acknowledgment.
    fn answer(&mut self) {
        self.round_trip();
        let (ack, max) = (self.peer.ack, self.snd_max());
        let ahead: Vec<(u32, u32)> =
            self.sent.iter().filter(|(from, _)| *from >= ack.max(1)).copied().collect();
        match self.random.below(20) {
            0..10 => {
                self.receive_all();
                self.acknowledge();
            }
            10..13 if !ahead.is_empty() => {
                // Up to the end of a segment.
                let at = self.random.below(ahead.len() as u32) as usize;
                self.peer.ack = ahead[at].1;
                let ack = self.peer.ack;
                self.peer.held.retain(|(from, _)| *from > ack);
                self.acknowledge();
            }
            13..17 if !ahead.is_empty() => {
                // One of them arrived, and none before it.
                let block = ahead[self.random.below(ahead.len() as u32) as usize];
                if block.0 > ack && !self.peer.held.iter().any(|held| held.0 < block.1 && block.0 < held.1) {
                    self.peer.held.push(block);
                }
                self.acknowledge();
            }
            17 if max > 1 => {
                // A D-SACK, or an old block.
                let mut segment = self.segment(Flags::default(), self.peer.snd_nxt, 0);
                if self.peer.has_sack && self.random.chance(60) {
                    let before: Vec<_> = self.sent.iter().filter(|(_, to)| *to <= ack).copied().collect();
                    if let Some(block) = before.last() {
                        segment.options.retain(|option| !matches!(option, Opt::Sack(_)));
                        segment.options.push(Opt::Sack(vec![*block]));
                    }
                } else {
                    segment.ack = ack.saturating_sub(self.random.below(3000)).max(1);
                }
                self.act(Action::Segment(segment));
            }
            18 => {
                let mut segment = self.segment(Flags::default(), self.peer.snd_nxt, 0);
                segment.ack = max.wrapping_add(self.random.pick(&[1, 1000, 3_000_000]));
                self.act(Action::Segment(segment));
            }
            _ => self.acknowledge(),
        }
    }

    /// Changes the peer's window.
    fn window(&mut self) {
        let bytes = self.random.pick(&[0, 0, 0, 1_000, 1_500, 3_000, 10_000, 64_000, 500_000]);
        self.peer.win = self.window_of(bytes);
        self.acknowledge();
    }

    /// Closes one side.
    fn finish(&mut self) {
        match self.random.below(6) {
            0..3 if !self.peer.is_done => {
                self.not_before_an_answer();
                let next = self.peer.snd_nxt;
                self.send(Flags::FIN, next, 0);
                self.peer.snd_nxt = next + 1;
                self.peer.is_done = true;
            }
            3 => self.act(Action::Shutdown(How::Write)),
            4 => {
                let how = self.random.pick(&[How::Read, How::Both]);
                self.act(Action::Shutdown(how));
            }
            _ => self.act(Action::Close),
        }
    }

    /// A segment that no correct peer sends.
    fn oddity(&mut self) {
        self.not_before_an_answer();
        let next = self.peer.snd_nxt;
        let near =
            self.random.pick(&[next, next, next + 1, next + 500, next.saturating_sub(1), next + 3_000_000]);
        let flags = self.random.pick(&[
            Flags::RST,
            Flags::RST,
            Flags::SYN,
            Flags::SYN.with(Flags::FIN),
            Flags::URG,
            Flags::default(),
        ]);
        let mut segment = self.segment(flags, near, 0);
        if flags.has(Flags::URG) {
            (segment.seq, segment.len, segment.urg) = (next, 10, self.random.pick(&[1, 5, 10, 20]) as u16);
            self.peer.snd_nxt = next + 10;
        } else if self.random.chance(30) {
            segment.flags = Flags(segment.flags.0 & !Flags::ACK.0);
            segment.ack = 0;
        } else if self.random.chance(20) {
            segment.options.retain(|option| !matches!(option, Opt::Ts(..)));
        } else if self.random.chance(20) && self.peer.has_ts {
            segment.options = vec![Opt::Ts(self.at_ms.saturating_sub(200), Echo::Last)];
        }
        self.act(Action::Segment(segment));
    }
}

/// The shortest round trip of data: many times the allowed lateness of a run within an event.
const ROUND_TRIP_MIN: Duration = Duration::from_millis(10);
/// Least number of milliseconds after out-of-order data.
const HOLE_MS: u32 = 10;

#[cfg(test)]
mod tests;
