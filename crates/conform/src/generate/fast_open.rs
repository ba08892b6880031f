//! Connections that begin with Fast Open: what their SYNs contain, and what happens before the handshake is over.
//!
//! Tests: `tests/random.rs`.

use super::{Habit, Maker, Peer};
use crate::codec::Packet;
use crate::random::Random;
use crate::scenario::{Action, How, SockOpt};
use crate::segment::{Cookie, Flags, Opt, Segment};
use crate::trace::What;

/// Values of the setting `fastopen`: both ends, with cookies and without.
const SETTINGS: [&str; 3] = ["3", "3", "519"];

impl Maker {
    /// The value of the setting `fastopen` for a scenario.
    pub(super) fn fast_open_setting(random: &mut Random) -> &'static str {
        random.pick(&SETTINGS)
    }

    /// Opens the connection.
    pub(super) fn open_fast(&mut self) {
        let turned_off = |key| self.scenario.settings.get(key).is_some_and(|value| value == "off");
        let (has_no_ts, is_unscaled) = (turned_off("timestamps"), turned_off("window_scaling"));
        self.peer.has_ts = self.random.chance(75) && !has_no_ts;
        self.peer.has_sack = self.random.chance(85);
        self.peer.mss = self.random.pick(&[self.packet_max(), self.packet_max(), 1000, 536, 100, 0]);
        let is_scaled = self.random.chance(85) && !is_unscaled;
        if self.random.chance(60) {
            self.accept_fast(is_scaled);
        } else {
            self.connect_fast(is_scaled);
        }
    }

    /// The peer connects, with data or to get a cookie.
    fn accept_fast(&mut self, is_scaled: bool) {
        let queue_len = self.random.pick(&[5, 5, 5, 1, 0]);
        self.act(Action::Set(SockOpt::FastOpen, queue_len));
        self.act(Action::Listen(5));
        let mut syn = self.syn(Flags::SYN, is_scaled);
        let wrong = Cookie::Is(vec![1, 2, 3, 4, 5, 6, 7, 8]);
        let request = Cookie::Is(Vec::new());
        match self.random.below(14) {
            0..6 => syn.options.push(Opt::FastOpen(Cookie::Good)),
            6 | 7 => syn.options.push(Opt::FastOpen(request)),
            8 => syn.options.push(Opt::FastOpen(wrong)),
            9 => syn.options.push(Opt::FastOpen(Cookie::Is(vec![1, 2, 3]))),
            10 => syn.options.push(Opt::FastOpenExperiment(Cookie::Good)),
            11 => syn.options.push(Opt::FastOpenExperiment(request)),
            _ => {}
        }
        syn.len = self.random.pick(&[0, 1, 100, 500, 1000, 1400]);
        if self.random.chance(40) {
            syn.flags = syn.flags.with(Flags::PSH);
        }
        let text = syn.len;
        self.act(Action::Segment(syn.clone()));
        self.shift = if is_scaled { self.shift } else { 0 };
        self.peer.win = self.window_of(64_000);
        self.peer.snd_nxt = self.syn_answered();
        self.peer.ack = 1;
        let mut is_accepted = false;
        for _ in 0..self.random.below(5) {
            self.before_the_handshake(&syn, &mut is_accepted);
        }
        self.at_ms += self.random.pick(&[10, 30, 60, 100]);
        self.settle();
        if self.random.chance(30) {
            self.peer.ack = self.snd_max().max(1);
        }
        if self.peer.snd_nxt <= text && self.random.chance(60) {
            // The peer retransmits what was not accepted.
            self.send(Flags::PSH, self.peer.snd_nxt, text + 1 - self.peer.snd_nxt);
            self.peer.snd_nxt = text + 1;
        } else {
            self.acknowledge();
        }
        self.at_ms += 10;
        self.settle();
        if !is_accepted {
            self.act(Action::Accept);
        }
    }

    /// What the latest SYN-ACK acknowledges: there the peer's data continues.
    fn syn_answered(&self) -> u32 {
        let mut records = self.driven.trace().records.iter().rev();
        let answered = records.find_map(|record| match &record.what {
            What::Sent(Packet::Tcp(segment)) if segment.flags.has(Flags::SYN.with(Flags::ACK)) => {
                Some(segment.ack)
            }
            _ => None,
        });
        answered.unwrap_or(1).max(1)
    }

    fn before_the_handshake(&mut self, syn: &Segment, is_accepted: &mut bool) {
        self.at_ms += self.random.pick(&[0, 10, 30, 100, 1100]);
        self.settle();
        match self.random.below(10) {
            0..4 if !*is_accepted => {
                self.act(Action::Accept);
                *is_accepted = true;
            }
            4 if *is_accepted => self.act(Action::Read(100_000)),
            5 | 6 if *is_accepted => {
                let len = self.random.pick(&[1, 100, 3000, 20_000]);
                self.act(Action::Write(len));
            }
            7 => {
                let mut again = syn.clone();
                for option in &mut again.options {
                    if let Opt::Ts(value, _) = option {
                        *value = self.clock();
                    }
                }
                if self.random.chance(50) {
                    // A plain SYN, as clients retransmit it.
                    again.len = 0;
                    again
                        .options
                        .retain(|option| !matches!(option, Opt::FastOpen(_) | Opt::FastOpenExperiment(_)));
                }
                self.act(Action::Segment(again));
            }
            8 if *is_accepted && self.random.chance(50) => {
                let how = self.random.pick(&[None, Some(How::Write)]);
                self.act(how.map_or(Action::Close, Action::Shutdown));
            }
            _ => self.wait(),
        }
    }

    /// The tested side connects, mostly twice: the first connection gets a cookie.
    fn connect_fast(&mut self, is_scaled: bool) {
        self.begin_fast();
        self.answer_the_syn(is_scaled);
        if self.random.chance(75) {
            self.at_ms += 10;
            self.settle();
            self.act(Action::Set(SockOpt::Linger, 0));
            self.act(Action::Close);
            self.at_ms += 50;
            self.settle();
            self.act(Action::Again);
            self.sent.clear();
            self.peer = Peer {
                has_ts: self.peer.has_ts,
                has_sack: self.peer.has_sack,
                mss: self.peer.mss,
                ..Peer::default()
            };
            self.begin_fast();
            self.answer_the_syn(is_scaled);
        }
        self.shift = if is_scaled { self.shift } else { 0 };
        self.peer.win = self.window_of(64_000);
    }

    fn begin_fast(&mut self) {
        let len = self.random.pick(&[0, 1, 100, 500, 1000, 2000, 10_000]);
        if self.random.chance(50) {
            self.act(Action::ConnectWith(len));
            return;
        }
        self.act(Action::Set(SockOpt::FastOpenConnect, 1));
        self.act(Action::Connect);
        if self.random.chance(50) {
            self.at_ms += 10;
            self.settle();
        }
        if self.random.chance(30) {
            self.option();
        }
        if self.random.chance(90) {
            self.act(Action::Write(len.max(1)));
        }
    }

    fn answer_the_syn(&mut self, is_scaled: bool) {
        if self.random.chance(15) {
            self.at_ms += 30;
            self.settle();
            self.act(Action::Write(100));
        }
        self.at_ms += self.random.pick(&[10, 30, 60, 100, 100, 1100]);
        self.settle();
        let all = self.snd_max().max(1);
        self.peer.ack = match self.random.below(8) {
            0 | 1 => 1,
            2 => 1 + self.random.below(all),
            _ => all,
        };
        let mut syn_ack = self.syn(Flags::SYN.with(Flags::ACK), is_scaled);
        let cookie = |len: u8| Opt::FastOpen(Cookie::Is((1..=len).collect()));
        match self.random.below(12) {
            0..5 => syn_ack.options.push(cookie(8)),
            5 => syn_ack.options.push(cookie(4)),
            6 => syn_ack.options.push(cookie(16)),
            7 => syn_ack.options.push(cookie(5)),
            8 => syn_ack.options.push(Opt::FastOpenExperiment(Cookie::Is((1..=8).collect()))),
            _ => {}
        }
        self.act(Action::Segment(syn_ack));
        self.peer.snd_nxt = 1;
    }
}

impl Habit {
    /// Some scenarios begin with Fast Open, instead of the habit that they would have.
    pub(super) fn or_fast_open(self, seed: u64) -> Self {
        if Random::new(seed.rotate_left(16)).chance(5) { Self::FastOpen } else { self }
    }
}
