//! Listeners that answer each SYN with a cookie (`tcp_syncookies=2`), and store nothing about it.
//!
//! The peer acts by its habit. Tests: those of `generate.rs`.

use std::collections::BTreeMap;

use super::Maker;
use super::habits::Habit;
use crate::random::Random;

/// Some scenarios have such a listener, with any habit.
pub(super) fn set(settings: &mut BTreeMap<String, String>, seed: u64) {
    if Random::new(seed.rotate_left(20)).chance(PERCENT) {
        settings.insert("syn_cookies".to_owned(), "always".to_owned());
    }
}

impl Maker {
    /// Whether the scenario is about listeners.
    pub(super) fn is_for_listeners(&self) -> bool {
        [Habit::Reuse, Habit::Deferral].contains(&self.habit) || self.scenario.has_cookies()
    }

    /// Makes a peer that a cookie can describe: both sides' cookies can store its segment size, and without timestamps
    /// it has no other options. Returns whether it may scale windows.
    pub(super) fn may_have_options(&mut self) -> bool {
        let may = !self.scenario.has_cookies() || self.peer.has_ts;
        self.peer.has_sack &= may;
        if self.scenario.has_cookies() {
            // The kernel's cookies have four sizes.
            self.peer.mss = self.packet_max();
        }
        may
    }
}

/// The share of all scenarios.
const PERCENT: u32 = 2;
