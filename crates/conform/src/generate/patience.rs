//! Events that take seconds: timers that back off until the connection is given up, probes of a zero window and of a
//! silent peer, and closed sockets that wait.
//!
//! Each scenario has one subject, to which the application or the peer returns repeatedly; its pauses are long. Tests:
//! those of `generate.rs`.

use std::collections::BTreeMap;

use super::Maker;
use super::habits::Habit;
use crate::random::Random;
use crate::scenario::{Action, How, SockOpt};
use crate::segment::Flags;

/// What a patient scenario waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Subject {
    /// Data is retransmitted repeatedly.
    Silence,
    /// The window is closed.
    Window,
    /// Keepalive's probes.
    Keepalive,
    /// The end of a closed socket, or of the peer's data.
    Close,
    /// Data after a long pause.
    Idle,
    /// All of these and others, with times and limits that sockets inherit from the settings.
    Inherited,
}

/// The settings of a scenario whose subject is time: only a few combinations, because each has a namespace of its own.
pub(super) fn settings(subject: Subject, random: &mut Random) -> BTreeMap<String, String> {
    let settings: &[(&str, &str)] = if subject == Subject::Inherited {
        random.pick(INHERITED)
    } else if random.chance(60) {
        &[("retries", "3"), ("syn_retries", "1")]
    } else {
        &[("retries", "4"), ("syn_retries", "2"), ("mtu_probing", "blackhole")]
    };
    settings.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

impl Habit {
    /// Some scenarios are patient, instead of the habit that they would have.
    pub(super) fn or_patient(self, seed: u64) -> Self {
        let mut random = Random::new(seed.rotate_left(48));
        if !random.chance(PERCENT) {
            return self;
        }
        Self::Patience(random.pick(&[
            Subject::Silence,
            Subject::Window,
            Subject::Keepalive,
            Subject::Close,
            Subject::Idle,
        ]))
    }

    /// In some of them, sockets inherit more settings.
    pub(super) fn or_inherited(self, seed: u64) -> Self {
        let is_it = Random::new(seed.rotate_left(8)).chance(INHERITED_PERCENT);
        if is_it { Self::Patience(Subject::Inherited) } else { self }
    }

    pub(super) fn is_patient(self) -> bool {
        matches!(self, Self::Patience(_))
    }
}

impl Maker {
    /// Lets much time pass.
    pub(super) fn long_pause(&mut self) {
        self.at_ms += self.habits.pick(&[10, 10, 20, 50, 120, 300, 700, 1_000, 1_200, 1_600, 2_300, 3_400]);
        self.settle();
    }

    /// Whether a patient scenario is long enough.
    pub(super) fn has_waited_enough(&self) -> bool {
        self.habit.is_patient() && self.at_ms > LENGTH_MAX_MS
    }

    /// The peer is slow during a handshake.
    pub(super) fn late_handshake(&mut self) {
        if self.habit.is_patient() && self.habits.chance(20) {
            self.at_ms += self.habits.pick(&[500, 1_300, 2_500, 3_400, 5_000]);
            self.settle();
        }
    }

    /// What the scenario waits for, or what ends the wait.
    pub(super) fn patient(&mut self, own: Subject) -> bool {
        let subject = self.habits.pick(&[own, own, own, Subject::Silence, Subject::Idle]);
        match subject {
            Subject::Silence => self.silence(),
            Subject::Window => self.shut_window(),
            Subject::Keepalive => self.keepalive(),
            Subject::Close => self.lingering_close(),
            Subject::Idle => self.idle(),
            Subject::Inherited => self.inherited(),
        }
    }

    /// What depends on settings, unless the socket has values of its own.
    fn inherited(&mut self) -> bool {
        match self.habits.below(12) {
            0..3 => self.act(Action::Set(SockOpt::Keepalive, 1)),
            3 => {
                let option =
                    self.habits.pick(&[SockOpt::KeepIdle, SockOpt::KeepInterval, SockOpt::KeepCount]);
                let value = 1 + self.habits.below(2);
                self.act(Action::Set(option, value));
            }
            4 if self.habits.chance(30) => {
                let value = self.habits.pick(&[999, 1_000, 1_500, 3_000, 120_000]);
                self.act(Action::Set(SockOpt::RtoMax, value));
            }
            4 => {
                let option = self.habits.pick(&[
                    SockOpt::RtoMax,
                    SockOpt::KeepIdle,
                    SockOpt::KeepInterval,
                    SockOpt::KeepCount,
                    SockOpt::Linger2,
                    SockOpt::SynCount,
                ]);
                self.act(Action::Get(option));
            }
            5 | 6 => return self.keepalive(),
            7 => return self.shut_window(),
            8 | 9 => return self.lingering_close(),
            10 => self.write_some(),
            _ => self.wait(),
        }
        true
    }

    /// Data that nobody acknowledges, while routers report errors.
    fn silence(&mut self) -> bool {
        match self.habits.below(10) {
            0..4 => self.write_some(),
            4 => return self.report(),
            5 => self.act(Action::Set(SockOpt::UserTimeout, 1_500)),
            6 => self.act(Action::TakeError),
            7 => self.act(Action::Close),
            _ => self.wait(),
        }
        true
    }

    fn write_some(&mut self) {
        let len = self.habits.pick(&[1, 100, 1_448, 3_000, 20_000]);
        self.act(Action::Write(len));
    }

    /// A window that is closed, probed, and opened.
    fn shut_window(&mut self) -> bool {
        match self.habits.below(10) {
            0..3 => {
                self.round_trip();
                self.receive_all();
                self.peer.win = 0;
                self.acknowledge();
            }
            3..6 => self.write_some(),
            6 => {
                self.round_trip();
                self.peer.win = self.window_of(64_000);
                self.acknowledge();
            }
            7 => {
                // The answer to a probe, which repeats the same window.
                self.round_trip();
                self.acknowledge();
            }
            8 => self.act(Action::Set(SockOpt::UserTimeout, 2_500)),
            _ => self.act(Action::Shutdown(How::Write)),
        }
        true
    }

    /// Probes to a silent peer.
    fn keepalive(&mut self) -> bool {
        let count = 1 + self.habits.below(3);
        match self.habits.below(12) {
            0..4 => {
                self.act(Action::Set(SockOpt::KeepIdle, 1));
                self.act(Action::Set(SockOpt::KeepInterval, 1));
                self.act(Action::Set(SockOpt::KeepCount, count));
                self.act(Action::Set(SockOpt::Keepalive, 1));
            }
            4 => self.act(Action::Set(SockOpt::UserTimeout, 1_500)),
            5 => self.write_some(),
            6 | 7 => {
                self.round_trip();
                self.acknowledge();
            }
            8 => self.act(Action::Set(SockOpt::KeepCount, count)),
            _ => self.wait(),
        }
        true
    }

    /// A wait for the end of a connection.
    fn lingering_close(&mut self) -> bool {
        match self.habits.below(10) {
            0 => {
                let seconds = self.habits.pick(&[1, 2]);
                self.act(Action::Set(SockOpt::Linger2, seconds));
            }
            1 | 2 => self.act(Action::Close),
            3 => self.act(Action::Shutdown(How::Write)),
            4..6 => {
                self.round_trip();
                self.receive_all();
                self.acknowledge();
            }
            6 if !self.peer.is_done => {
                self.not_before_an_answer();
                self.send(Flags::FIN, self.peer.snd_nxt, 0);
                self.peer.snd_nxt += 1;
                self.peer.is_done = true;
            }
            7 => self.oddity(),
            8 => self.write_some(),
            _ => self.wait(),
        }
        true
    }

    /// Data after a pause, in either direction, and acknowledgments of everything.
    fn idle(&mut self) -> bool {
        match self.habits.below(6) {
            0 | 1 => self.write_some(),
            2 | 3 => {
                self.round_trip();
                self.receive_all();
                self.acknowledge();
            }
            4 => return self.messages(),
            _ => self.text(),
        }
        true
    }
}

/// Settings that sockets inherit.
const INHERITED: &[&[(&str, &str)]] = &[
    &[("keepalive_time", "1"), ("keepalive_intvl", "1"), ("keepalive_probes", "2"), ("retries", "2")],
    &[("keepalive_time", "2"), ("keepalive_intvl", "1"), ("keepalive_probes", "1"), ("fin_timeout", "1")],
    &[("rto_min", "500ms"), ("retries", "2")],
    &[("rto_max", "1s"), ("retries", "6"), ("syn_retries", "3")],
    &[("rto_max", "1500ms"), ("rto_min", "500ms")],
    &[("notsent_lowat", "3000"), ("retries", "1"), ("slow_start_after_idle", "off"), ("synack_retries", "1")],
];
/// Percentage of scenarios with them.
const INHERITED_PERCENT: u32 = 2;
/// Percentage of patient scenarios.
const PERCENT: u32 = 4;
/// A patient scenario ends after this many milliseconds, or some seconds after that.
const LENGTH_MAX_MS: u32 = 8_000;
