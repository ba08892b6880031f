//! Habits of peers, applications and routers: each scenario has one.
//!
//! Each habit stands for changes of policy that the rest would not show (`plants.txt`). Habits draw from their own
//! random numbers, so the rest of a scenario does not depend on them.

use std::collections::BTreeMap;

use super::Maker;
use super::patience::{self, Subject};
use crate::codec::{Packet, Report, Reported};
use crate::random::Random;
use crate::scenario::{Action, How, SockOpt};
use crate::segment::{Echo, Flags, Opt, Segment};
use crate::trace::{What, latest_figure};

/// What a peer does besides its ordinary segments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Habit {
    /// The ACK of a retransmission echoes the first transmission.
    OldEchoes,
    /// Several segments arrive after one that is lost.
    Runs,
    /// Two short messages arrive, and are read before their ACK is due.
    Messages,
    /// The FIN has data, and arrives again.
    FinOnText,
    /// Data arrives with the last segment of the handshake, and before the connection is accepted.
    EarlyText,
    /// ECN was negotiated; routers mark data, and the peer's answers echo marks.
    Marks,
    /// The application uses rare options, sets some before the connection and during it, and reads them.
    Options,
    /// It acknowledges parts of segments.
    Parts,
    /// It asks for tiny or huge segments, or for no size, and its window scale is large or small.
    Sizes,
    /// Its timestamp clock jumps.
    Jumps,
    /// Its SYN has data.
    SynText,
    /// The application closes with unread data, or when the peer closes, or once more.
    Closes,
    /// The application holds data back until there is more.
    Corks,
    /// Routers report packets that did not arrive.
    Reports,
    /// Much data is sent, and acknowledged as it arrives.
    Bulk,
    /// The connection begins with Fast Open.
    FastOpen,
    /// Another connection with the same addresses and ports follows.
    Reuse,
    /// The listener waits for data.
    Deferral,
    /// Its options are malformed, unknown, or out of place.
    Oddities,
    /// Both sides send urgent data.
    Urgency,
    /// The application ends records, looks at data without reading it, and asks how much there is.
    Calls,
    /// The device joins the peer's segments.
    Joins,
    /// Pauses are long, and mostly timers act.
    Patience(Subject),
}

impl Habit {
    /// The habit of a seed's scenario.
    pub fn of(seed: u64, random: &mut Random) -> Self {
        let habit = Self::usual(random).or_fast_open(seed).or_patient(seed).or_reuse(seed);
        habit.or_deferral(seed).or_urgency(seed).or_calls(seed).or_inherited(seed).or_odd(seed).or_joins(seed)
    }

    fn usual(random: &mut Random) -> Self {
        let habits = [
            Self::Messages,
            Self::OldEchoes,
            Self::Runs,
            Self::Messages,
            Self::FinOnText,
            Self::EarlyText,
            Self::Marks,
            Self::Options,
            Self::Parts,
            Self::Sizes,
            Self::Jumps,
            Self::SynText,
            Self::Closes,
            Self::Corks,
            Self::Reports,
            Self::Bulk,
        ];
        random.pick(&habits)
    }

    /// Settings that the habit adds to a scenario.
    pub fn set(self, settings: &mut BTreeMap<String, String>, random: &mut Random) {
        let mut set = |key: &str, value: &str| settings.insert(key.to_owned(), value.to_owned());
        match self {
            Self::FastOpen => drop(set("fastopen", Maker::fast_open_setting(random))),
            Self::Bulk if random.chance(75) => drop(set("congestion_control", "newreno")),
            Self::Marks => drop(set("ecn", "on")),
            Self::Patience(subject) => *settings = patience::settings(subject, random),
            _ => {}
        }
    }
}

/// Options that are set before a connection or during it, and their values. Buffers are large, as those of all
/// scenarios.
const TUNED: &[(SockOpt, &[u32])] = &[
    (SockOpt::RcvLowat, &[0, 50, 101, 500, 1448, 3000, 20_000]),
    (SockOpt::RcvLowat, &[1, 100, 150, 536, 2000, 5000]),
    (SockOpt::WindowClamp, &[30_000, 50_000, 64_000]),
    (SockOpt::RcvBuf, &[40_000, 60_000, 200_000]),
    (SockOpt::NotsentLowat, &[0, 1, 1000, 3000, 6000, 20_000]),
    (SockOpt::Linger2, &[0, 1, 2, u32::MAX]),
    (SockOpt::Linger, &[0, 1]),
    (SockOpt::UserTimeout, &[0, 400, 2000]),
    (SockOpt::Tos, &[0, 0x20, 0xb8, 0xff]),
    (SockOpt::Ttl, &[1, 64, 255, 256]),
];

impl Maker {
    /// Acts by the peer's habit. False if that does not fit now.
    pub(super) fn habitual(&mut self) -> bool {
        let percent = if self.habit.is_patient() { 80 } else { 40 };
        self.habits.chance(percent)
            && match self.habit {
                Habit::OldEchoes => self.answer_to_the_first(),
                Habit::Runs => self.run_of_blocks(),
                Habit::Messages => self.messages(),
                Habit::FinOnText => self.fin_on_text(),
                Habit::Options => self.rare_option(),
                Habit::Parts => self.answer_to_a_part(),
                Habit::Jumps => self.jump(),
                Habit::Closes => self.closes(),
                Habit::Corks => self.corks(),
                Habit::Reports => self.report(),
                Habit::Bulk => self.bulk(),
                Habit::Urgency => self.urgency(),
                Habit::Calls => self.calls(),
                Habit::Joins => self.joins(),
                Habit::Patience(subject) => self.patient(subject),
                // These habits act in other places.
                Habit::EarlyText
                | Habit::Marks
                | Habit::Sizes
                | Habit::SynText
                | Habit::FastOpen
                | Habit::Deferral
                | Habit::Reuse
                | Habit::Oddities => false,
            }
    }

    fn answer_to_the_first(&mut self) -> bool {
        if self.figure("retransmits") == 0 {
            return false;
        }
        let ack = self.peer.ack;
        let sent = self.driven.trace().records.iter().filter_map(|record| match &record.what {
            What::Sent(Packet::Tcp(segment)) if segment.seq == ack && segment.len > 0 => Some(segment),
            _ => None,
        });
        let sent: Vec<_> = sent.collect();
        let [first, .., _] = sent[..] else { return false };
        let value = first.options.iter().find_map(|option| match option {
            Opt::Ts(value, _) => Some(*value),
            _ => None,
        });
        let Some(value) = value.filter(|_| self.peer.has_ts) else { return false };
        let end = first.end();
        self.round_trip();
        self.peer.ack = end;
        self.peer.held.retain(|(from, _)| *from > end);
        let mut segment = self.segment(Flags::default(), self.peer.snd_nxt, 0);
        for option in &mut segment.options {
            if let Opt::Ts(_, echo) = option {
                *echo = Echo::Is(value);
            }
        }
        self.act(Action::Segment(segment));
        true
    }

    fn run_of_blocks(&mut self) -> bool {
        let ahead = self.sent_from(self.peer.ack.max(1) + 1);
        let count = 3 + self.habits.below(3) as usize;
        // Only before anything was retransmitted: later reports are also about retransmissions.
        if ahead.len() < count || !self.peer.held.is_empty() || self.figure("bytes_retrans") > 0 {
            return false;
        }
        self.round_trip();
        if self.peer.has_sack {
            let at = self.habits.below((ahead.len() - count + 1) as u32) as usize;
            self.peer.held.push((ahead[at].0, ahead[at + count - 1].1));
            self.acknowledge();
        } else {
            (0..count).for_each(|_| self.acknowledge());
        }
        true
    }

    pub(super) fn messages(&mut self) -> bool {
        if self.peer.is_done || self.peer.hole.is_some() {
            return false;
        }
        if self.habits.chance(40) {
            self.act(Action::Set(SockOpt::Quickack, 0));
        }
        for _ in 0..2 {
            self.not_before_an_answer();
            self.send(Flags::PSH, self.peer.snd_nxt, 100);
            self.peer.snd_nxt += 100;
            self.later();
        }
        self.act(Action::Read(100_000));
        true
    }

    /// The FIN with data; once it was sent, all of that again, or the FIN alone.
    fn fin_on_text(&mut self) -> bool {
        if self.peer.hole.is_some() {
            return false;
        }
        self.not_before_an_answer();
        let next = self.peer.snd_nxt;
        let len = self.habits.pick(&[1, 100, 400]);
        if self.peer.is_done {
            let len = if self.habits.chance(50) { 0 } else { len.min(next - 2) };
            self.send(Flags::FIN, next - 1 - len, len);
        } else if self.habits.chance(30) {
            self.send(Flags::FIN.with(Flags::PSH), next, len);
            self.peer.snd_nxt = next + len + 1;
            self.peer.is_done = true;
        } else {
            return false;
        }
        true
    }

    fn rare_option(&mut self) -> bool {
        if self.habits.chance(60) {
            return self.tuned_option();
        }
        let (option, value) = self.habits.pick(&[
            (SockOpt::Keepalive, 1),
            (SockOpt::Keepalive, 0),
            (SockOpt::KeepIdle, 1),
            (SockOpt::KeepInterval, 1),
            (SockOpt::KeepCount, 1),
            (SockOpt::UserTimeout, 700),
            (SockOpt::UserTimeout, 0),
            (SockOpt::Quickack, 0),
            (SockOpt::Quickack, 1),
            (SockOpt::Nodelay, 0),
            (SockOpt::Linger, 1),
        ]);
        self.act(Action::Set(option, value));
        true
    }

    /// Sets an option of buffers, windows or delays, or reads one.
    fn tuned_option(&mut self) -> bool {
        let action = if self.habits.chance(25) {
            Action::Get(self.habits.pick(&[
                SockOpt::RcvLowat,
                SockOpt::Quickack,
                SockOpt::NotsentLowat,
                SockOpt::UserTimeout,
                SockOpt::Linger2,
                SockOpt::Nodelay,
            ]))
        } else {
            let (option, values): (_, &[u32]) = self.habits.pick(TUNED);
            Action::Set(option, self.habits.pick(values))
        };
        self.act(action);
        true
    }

    /// Options before the connection, or of a listener.
    pub(super) fn options_before(&mut self) {
        if self.habit != Habit::Options {
            return;
        }
        for _ in 0..self.habits.below(4) {
            let tuned = self.habits.pick(TUNED);
            let sizes: &[u32] = &[0, 87, 88, 100, 536, 600, 1000, 1459, 1460, 9000];
            let late: &[u32] = &[0, 0, 1];
            let (option, values) =
                self.habits.pick(&[(SockOpt::MaxSeg, sizes), tuned, tuned, (SockOpt::Quickack, late)]);
            let value = self.habits.pick(values);
            self.act(Action::Set(option, value));
        }
    }

    /// The acknowledgment of a part of a segment.
    fn answer_to_a_part(&mut self) -> bool {
        let ack = self.peer.ack.max(1);
        let is_cut = |(from, end): &&(u32, u32)| *end > (*from).max(ack) + 1;
        let ahead: Vec<(u32, u32)> = self.sent.iter().filter(is_cut).copied().collect();
        if ahead.is_empty() {
            return false;
        }
        self.round_trip();
        let (from, end) = ahead[self.habits.below(ahead.len() as u32) as usize];
        let from = from.max(ack);
        self.peer.ack = from + 1 + self.habits.below(end - from - 1);
        let ack = self.peer.ack;
        self.peer.held.retain(|(from, _)| *from > ack);
        self.acknowledge();
        true
    }

    /// Tiny or huge segments, and a large or small window scale.
    pub(super) fn unusual_sizes(&mut self) {
        self.peer.mss = self.habits.pick(&[0, 0, 64, 88, 100, 200, 300, 1200, 1461, 9000, 65_535]);
        self.shift = self.habits.pick(&[1, 7, 7, 14, 15]);
    }

    /// Data on a SYN, without Fast Open.
    pub(super) fn text_of_a_syn(&mut self, syn: &mut Segment) {
        let is_unheard = syn.flags.has(Flags::ACK) && self.habits.chance(90);
        if self.habit == Habit::SynText && !is_unheard {
            syn.len = self.habits.pick(&[1, 100, 500]);
            if self.habits.chance(30) {
                syn.flags = syn.flags.with(self.habits.pick(&[Flags::PSH, Flags::URG, Flags::FIN]));
            }
        }
    }

    /// The peer's clock jumps.
    fn jump(&mut self) -> bool {
        if !self.peer.has_ts {
            return false;
        }
        let by =
            self.habits.pick(&[1, 100, 10_000, 1 << 30, (1 << 31) - 1, 1 << 31, u32::MAX, u32::MAX - 5000]);
        self.peer.clock = self.peer.clock.wrapping_add(by);
        false
    }

    /// A close with unread data, or crossed by the peer's FIN, or after another close.
    fn closes(&mut self) -> bool {
        match self.habits.below(8) {
            0 | 1 if !self.peer.is_done && self.peer.hole.is_none() => {
                self.not_before_an_answer();
                self.send(Flags::PSH, self.peer.snd_nxt, 100);
                self.peer.snd_nxt += 100;
                self.later();
                if self.habits.chance(40) {
                    self.act(Action::Read(50));
                }
                let how = self.habits.pick(&[None, Some(How::Both), Some(How::Read)]);
                self.act(how.map_or(Action::Close, Action::Shutdown));
            }
            2 | 3 if !self.peer.is_done && self.peer.hole.is_none() => {
                // The peer's FIN acknowledges nothing new.
                let how = self.habits.pick(&[None, Some(How::Write)]);
                self.act(how.map_or(Action::Close, Action::Shutdown));
                self.later();
                self.not_before_an_answer();
                self.send(Flags::FIN, self.peer.snd_nxt, 0);
                self.peer.snd_nxt += 1;
                self.peer.is_done = true;
            }
            4 => {
                self.act(Action::Write(1000));
                self.act(Action::Shutdown(How::Write));
            }
            5 => self.act(Action::Shutdown(How::Read)),
            6 => self.act(Action::Shutdown(How::Write)),
            _ => return false,
        }
        true
    }

    /// Data that waits for more, and calls that release it.
    fn corks(&mut self) -> bool {
        let action = match self.habits.below(8) {
            0 | 1 => Action::Set(SockOpt::Cork, 1),
            2 => Action::Set(SockOpt::Cork, 0),
            3 => Action::Set(SockOpt::Nodelay, 1),
            4 => Action::Set(SockOpt::Nodelay, 0),
            _ => Action::WriteMore(self.habits.pick(&[1, 100, 1000, 1448, 3000])),
        };
        self.act(action);
        true
    }

    /// Queued data, and acknowledgments of what is in flight, a few segments each, in the order in which they arrive.
    /// One may be lost.
    fn bulk(&mut self) -> bool {
        self.peer.win = self.peer.win.max(self.window_of(1_000_000));
        if self.figure("snd_wnd") < BULK_WINDOW_MIN {
            // The kernel counts memory, and small segments take much.
            self.acknowledge();
            return true;
        }
        if self.figure("notsent_bytes") < 100_000 {
            self.act(Action::Write(200_000));
        }
        self.round_trip();
        let out = self.sent_from(self.peer.ack.max(1));
        let step = self.habits.pick(&[1, 2, 2, 2, 4, 100]) as usize;
        let held = self.peer.held.clone();
        let is_held = |from: u32| held.iter().any(|held| (held.0..held.1).contains(&from));
        let open: Vec<(u32, u32)> = out.iter().filter(|(from, _)| !is_held(*from)).copied().collect();
        let lost = self.habits.chance(25) && !open.is_empty();
        let lost = lost.then(|| open[self.habits.below(open.len() as u32) as usize]);
        for run in out.chunks(step).take(6) {
            let end = run[run.len() - 1].1;
            match lost.filter(|(from, _)| *from < end) {
                None => self.take_up_to(end),
                Some((from, to)) => {
                    if from > self.peer.ack {
                        self.take_up_to(from);
                        self.acknowledge();
                    }
                    if end > to {
                        self.peer.held.retain(|held| held.0 > end || held.1 < to);
                        self.peer.held.push((to, end));
                    }
                }
            }
            self.acknowledge();
        }
        true
    }

    /// The stack's segments that begin at `seq` or after it, each once, in order.
    fn sent_from(&self, seq: u32) -> Vec<(u32, u32)> {
        let mut sent: Vec<(u32, u32)> = self.sent.iter().filter(|(from, _)| *from >= seq).copied().collect();
        sent.sort_unstable();
        sent.dedup();
        sent
    }

    /// The peer has received everything before `end`, and with it what it holds after that.
    fn take_up_to(&mut self, end: u32) {
        let mut ack = self.peer.ack.max(end);
        while let Some(&(_, to)) = self.peer.held.iter().find(|(from, to)| (*from..*to).contains(&ack)) {
            ack = to;
        }
        self.peer.held.retain(|(from, _)| *from > ack);
        self.peer.ack = ack;
    }

    /// A report about one of the stack's segments, or about one that is not in flight.
    pub(super) fn report(&mut self) -> bool {
        if self.is_due_by_half() {
            return false;
        }
        let ack = self.peer.ack;
        let out: Vec<u32> = self.sent.iter().filter(|(_, end)| *end > ack).map(|(from, _)| *from).collect();
        let seq = match self.habits.below(10) {
            0 => self.habits.pick(&[ack.saturating_sub(1), self.snd_max(), self.snd_max() + 1]),
            1..5 => ack,
            _ if out.is_empty() => return false,
            _ => out[self.habits.below(out.len() as u32) as usize],
        };
        let is_out = seq < self.snd_max();
        let is_ipv6 = self.scenario.is_ipv6;
        let what = if is_out && self.habits.chance(30) {
            Reported::TooBig(if is_ipv6 {
                self.habits.pick(&[0, 68, 1279, 1280, 1281, 1300, 1400, 1499, 1500, 9000, u32::MAX])
            } else {
                self.habits.pick(&[0, 300, 552, 576, 600, 1000, 1280, 1400, 1499, 1500, 9000])
            })
        } else if self.habits.chance(80) {
            Reported::Unreachable(if is_ipv6 {
                self.habits.pick(&[0, 0, 0, 1, 2, 3, 4, 5, 6, 7])
            } else {
                self.habits.pick(&[0, 0, 1, 1, 2, 3, 5, 6, 7, 9, 10, 11, 12, 13, 14, 15])
            })
        } else {
            self.habits.pick(&[
                Reported::TimeExceeded(0),
                Reported::TimeExceeded(1),
                Reported::ParameterProblem(0),
                Reported::ParameterProblem(1),
                Reported::ParameterProblem(2),
            ])
        };
        self.act(Action::Report(Report { what, seq }));
        true
    }

    /// Data that arrives before the connection is accepted.
    pub(super) fn early_text(&mut self) {
        let len = self.habits.pick(&[1, 100, 500]);
        self.send(Flags::PSH, self.peer.snd_nxt, len);
        self.peer.snd_nxt += len;
    }

    /// Its ECN fields, where it has any.
    pub(super) fn mark(&mut self, segment: &mut Segment) {
        if self.habit != Habit::Marks {
            return;
        }
        if segment.len > 0 {
            segment.ecn = if self.habits.chance(20) { 3 } else { 2 };
            if self.habits.chance(20) {
                segment.flags = segment.flags.with(Flags::CWR);
            }
        }
        if self.habits.chance(15) {
            segment.flags = segment.flags.with(Flags::ECE);
        }
    }

    /// A field of the latest state of the stack; 0 if it has none.
    fn figure(&self, name: &str) -> u64 {
        latest_figure(&self.driven.trace().records, name).unwrap_or(0)
    }

    /// Lets ten milliseconds pass.
    fn later(&mut self) {
        self.at_ms += 10;
        self.settle();
    }
}

/// Windows of this many bytes get much data.
const BULK_WINDOW_MIN: u64 = 20_000;
