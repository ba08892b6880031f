//! Segments that no sensible peer sends: a segment too early in a handshake, and options that are malformed, unknown,
//! or out of place.
//!
//! Tests: those of `generate.rs`.

use super::Maker;
use super::habits::Habit;
use crate::codec::{MTU, OPTIONS_MAX, sizes};
use crate::random::Random;
use crate::scenario::Action;
use crate::segment::{Echo, Flags, Opt, Segment};

impl Habit {
    /// Some peers have odd options, instead of the habit that they would have.
    pub(super) fn or_odd(self, seed: u64) -> Self {
        let mut random = Random::new(seed.rotate_left(56));
        if random.chance(PERCENT) { Self::Oddities } else { self }
    }
}

impl Maker {
    /// A segment that should not arrive while a connection is opened.
    pub(super) fn oddity_of_open(&mut self, percent: u32) {
        // If the listener waits for data, the kernel does not accept an ACK that echoes an answer to such a segment.
        if !self.random.chance(percent) || self.habit == Habit::Deferral {
            return;
        }
        self.at_ms += self.random.pick(&[0, 20, 1200]);
        self.settle();
        let seq = self.random.pick(&[0, 1, 2, 70_000]);
        let ack = self.random.pick(&[0, 1, 2, 90_000]);
        let flags = self.random.pick(&[
            Flags::RST,
            Flags::RST.with(Flags::ACK),
            Flags::ACK,
            Flags::SYN,
            Flags::SYN.with(Flags::ACK),
            Flags::FIN.with(Flags::ACK),
        ]);
        let options = if self.peer.has_ts { vec![self.timestamp()] } else { Vec::new() };
        self.act(Action::Segment(Segment { flags, seq, ack, win: 1000, options, ..Segment::default() }));
    }

    /// The same, or a segment with odd options.
    pub(super) fn odd(&mut self, action: Action) -> Action {
        let Action::Segment(segment) = &action else { return action };
        if self.habit != Habit::Oddities || !self.habits.chance(35) {
            return action;
        }
        let mut odd = segment.clone();
        let bytes = Opt::Bytes(self.habits.pick(OPTIONS).to_vec());
        let timestamp = odd.options.iter_mut().find_map(|option| match option {
            Opt::Ts(_, echo) => Some(echo),
            _ => None,
        });
        if let Some(echo) = timestamp.filter(|_| self.habits.chance(25)) {
            *echo = Echo::Nothing;
            return Action::Segment(odd);
        }
        match self.habits.below(4) {
            0 => odd.options = vec![bytes],
            1 => odd.options.insert(0, bytes),
            2 if !odd.options.is_empty() => {
                let at = self.habits.below(odd.options.len() as u32) as usize;
                odd.options[at] = bytes;
            }
            _ => odd.options.push(bytes),
        }
        let (options, packet) = sizes(&odd, self.scenario.is_ipv6);
        if options <= OPTIONS_MAX && packet <= MTU { Action::Segment(odd) } else { action }
    }
}

/// The share of all scenarios.
const PERCENT: u32 = 2;

/// Options that are wrong in some way, or that the tested side did not ask for.
const OPTIONS: &[&[u8]] = &[
    // The size of segments: tiny, huge, too short, too long.
    &[2, 4, 0, 0],
    &[2, 4, 0, 1],
    &[2, 4, 0, 63],
    &[2, 4, 0xff, 0xff],
    &[2, 3, 5],
    &[2, 5, 5, 0xb4, 0],
    &[2, 2],
    // The shift of windows.
    &[3, 3, 14],
    &[3, 3, 15],
    &[3, 3, 255],
    &[3, 2],
    &[3, 4, 7, 7],
    // SACK: permitted where it may not be, and blocks.
    &[4, 2],
    &[4, 3, 0],
    &[5, 2],
    &[5, 9, 0, 0, 0, 0, 0, 0, 0],
    &[5, 14, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    // Timestamps.
    &[8, 10, 0, 0, 0, 0, 0, 0, 0, 0],
    &[8, 9, 0, 0, 4, 0, 0, 0, 0],
    &[8, 2],
    // The end of the list, with more behind it.
    &[0],
    &[0, 3, 3, 7],
    // Impossible lengths.
    &[30, 0],
    &[30, 1],
    &[30, 40],
    &[2, 0],
    &[8, 40, 0, 0],
    // Unknown ones.
    &[30, 2],
    &[30, 6, 1, 2, 3, 4],
    &[253, 4, 0, 0],
    &[254, 4, 0xf9, 0x89],
    &[28, 4, 0x80, 10],
    &[34, 2],
    &[34, 3, 1],
    &[172, 5, 0, 0, 0],
    // Signatures for which nobody has a key.
    &[19, 18, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    &[19, 4, 0, 0],
    &[29, 16, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    &[29, 3, 1],
];
