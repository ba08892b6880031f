//! Does another host have an address of ours? Duplicate address detection for IPv6 (RFC 4862 section 5.4, the nonces of RFC
//! 7527) and conflict detection for IPv4 (RFC 5227), which differ in their times only.
//!
//! ```text
//! WAIT ─► PROBE ×n ─► ANNOUNCE ×m ─► OWNED ─► conflict: defend, a second one within 10 s: give up
//!   └────────┴── conflict: DUPLICATE
//! ```
//! The owner writes the probes and sends them when [`Check::on_timer`] asks for it. The owner also decides whether the
//! address is used before it is proved to be ours: RFC 4429's optimistic addresses are. A conflict that is noticed
//! while an address is probed ends it; in use it is defended once (RFC 5227 section 2.4 (b)) where the family has that.
//! Tests stand at the end.

use core::time::Duration;

use crate::time::Instant;

/// The numbers of a family.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rules {
    /// The longest first wait, of which a random part is waited.
    pub wait_max: Duration,
    /// Probes.
    pub probe_count: u8,
    /// The shortest time from a probe to the next, and from the last to the announcement.
    pub interval: Duration,
    /// Bound of the random part that is added.
    pub interval_extra: Duration,
    /// Announcements.
    pub announce_count: u8,
    /// Between them.
    pub announce_interval: Duration,
    /// A conflict in use is answered at most so often; `None`: never, the address is kept all the same.
    pub defend_interval: Option<Duration>,
}

/// RFC 5227 section 1.1.
pub const V4: Rules = Rules {
    wait_max: Duration::from_secs(1),
    probe_count: 3,
    interval: Duration::from_secs(1),
    interval_extra: Duration::from_secs(1),
    announce_count: 2,
    announce_interval: Duration::from_secs(2),
    defend_interval: Some(Duration::from_secs(10)),
};

/// RFC 4862 section 5.1 and RFC 4861 section 10: one probe, a second of silence.
pub const V6: Rules = Rules {
    wait_max: Duration::from_secs(1),
    probe_count: 1,
    interval: Duration::from_secs(1),
    interval_extra: Duration::ZERO,
    announce_count: 1,
    announce_interval: Duration::from_secs(1),
    defend_interval: None,
};

/// Action for the owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Nothing.
    None,
    /// Send a probe.
    Probe,
    /// Say to all that the address is ours: with the first of these it is.
    Announce {
        /// The address was only just found to be ours.
        is_first: bool,
    },
    /// The address is another's: give it up.
    GiveUp,
}

/// Where an address stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// Being asked for.
    Tentative,
    /// Ours.
    Owned,
    /// Another host's.
    Duplicate,
}

/// The detection for one address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Check {
    rules: Rules,
    phase: Phase,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Probing { sent_count: u8, at: Instant },
    Announcing { sent_count: u8, at: Instant },
    Owned { defended: Option<Instant> },
    Duplicate,
}

impl Check {
    /// Begins; `random` chooses the first wait.
    pub fn new(rules: Rules, now: Instant, random: u16) -> Self {
        Self { rules, phase: Phase::Probing { sent_count: 0, at: now + part(rules.wait_max, random) } }
    }

    /// An address that is ours without being asked for, to be announced at once.
    pub const fn trusted(rules: Rules, now: Instant) -> Self {
        Self { rules, phase: Phase::Announcing { sent_count: 0, at: now } }
    }

    /// Where the address stands.
    pub const fn standing(&self) -> Standing {
        match self.phase {
            Phase::Probing { .. } => Standing::Tentative,
            Phase::Announcing { .. } | Phase::Owned { .. } => Standing::Owned,
            Phase::Duplicate => Standing::Duplicate,
        }
    }

    /// Whether a probe of ours may be on its way: one that comes back by a loop of the link is no conflict.
    pub const fn has_probed(&self) -> bool {
        !matches!(self.phase, Phase::Probing { sent_count: 0, .. })
    }

    /// When to call [`on_timer`](Self::on_timer).
    pub const fn deadline(&self) -> Option<Instant> {
        match self.phase {
            Phase::Probing { at, .. } | Phase::Announcing { at, .. } => Some(at),
            Phase::Owned { .. } | Phase::Duplicate => None,
        }
    }

    /// What is due at `now`.
    pub fn on_timer(&mut self, now: Instant, random: u16) -> Step {
        if self.deadline().is_none_or(|at| now < at) {
            return Step::None;
        }
        let rules = self.rules;
        match self.phase {
            Phase::Probing { sent_count, .. } if sent_count < rules.probe_count => {
                let at = now + rules.interval + part(rules.interval_extra, random);
                self.phase = Phase::Probing { sent_count: sent_count + 1, at };
                Step::Probe
            }
            Phase::Probing { .. } => self.announce(1, now),
            Phase::Announcing { sent_count, .. } => self.announce(sent_count + 1, now),
            Phase::Owned { .. } | Phase::Duplicate => Step::None,
        }
    }

    fn announce(&mut self, count: u8, now: Instant) -> Step {
        self.phase = if count < self.rules.announce_count {
            Phase::Announcing { sent_count: count, at: now + self.rules.announce_interval }
        } else {
            Phase::Owned { defended: None }
        };
        Step::Announce { is_first: count == 1 }
    }

    /// Another host uses the address, or asks for it as we do.
    pub fn on_conflict(&mut self, now: Instant) -> Step {
        match self.phase {
            Phase::Probing { .. } => {
                self.phase = Phase::Duplicate;
                Step::GiveUp
            }
            Phase::Announcing { .. } => self.defend(None, now),
            Phase::Owned { defended } => self.defend(defended, now),
            Phase::Duplicate => Step::None,
        }
    }

    fn defend(&mut self, last: Option<Instant>, now: Instant) -> Step {
        let Some(interval) = self.rules.defend_interval else { return Step::None };
        if last.is_some_and(|last| now.since(last) < interval) {
            self.phase = Phase::Duplicate;
            return Step::GiveUp;
        }
        self.phase = Phase::Owned { defended: Some(now) };
        Step::Announce { is_first: false }
    }
}

/// A part of `whole`: none for 0, nearly all for 65,535.
pub(crate) fn part(whole: Duration, random: u16) -> Duration {
    let micros = whole.as_micros() * u128::from(random) / (u128::from(u16::MAX) + 1);
    Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Instant = Instant::from_micros(5_000_000);

    /// Runs the check without answers; the steps with their times in milliseconds.
    fn alone(mut check: Check, random: u16) -> Vec<(u64, Step)> {
        let mut steps = Vec::new();
        while let Some(at) = check.deadline() {
            steps.push((at.since(START).as_millis() as u64, check.on_timer(at, random)));
            assert!(steps.len() < 10);
        }
        assert_eq!(check.standing(), Standing::Owned);
        steps
    }

    #[test]
    fn an_ipv4_address_is_probed_three_times_and_announced_twice() {
        let steps = alone(Check::new(V4, START, 0), 0);
        let announce = |is_first| Step::Announce { is_first };
        assert_eq!(
            steps,
            [
                (0, Step::Probe),
                (1000, Step::Probe),
                (2000, Step::Probe),
                (3000, announce(true)),
                (5000, announce(false))
            ]
        );
        let late = alone(Check::new(V4, START, u16::MAX), u16::MAX);
        assert_eq!(late.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [999, 2999, 4999, 6999, 8999]);
    }

    #[test]
    fn an_ipv6_address_is_assigned_after_a_second_of_silence() {
        let steps = alone(Check::new(V6, START, 0), 0);
        assert_eq!(steps, [(0, Step::Probe), (1000, Step::Announce { is_first: true })]);
    }

    #[test]
    fn a_conflict_while_probing_ends_it_at_any_step() {
        for turns in 0..3 {
            let mut check = Check::new(V4, START, 0);
            for _ in 0..turns {
                let at = check.deadline().unwrap();
                assert_eq!(check.on_timer(at, 0), Step::Probe);
            }
            assert_eq!(check.on_conflict(START), Step::GiveUp);
            assert_eq!((check.standing(), check.deadline()), (Standing::Duplicate, None));
            assert_eq!(check.on_conflict(START), Step::None);
        }
    }

    #[test]
    fn an_address_in_use_is_defended_once_in_ten_seconds() {
        let mut check = Check::trusted(V4, START);
        while let Some(at) = check.deadline() {
            check.on_timer(at, 0);
        }
        let later = |seconds| START + Duration::from_secs(seconds);
        assert_eq!(check.on_conflict(later(10)), Step::Announce { is_first: false });
        assert_eq!(check.on_conflict(later(20)), Step::Announce { is_first: false });
        assert_eq!(check.on_conflict(later(29)), Step::GiveUp);
        assert_eq!(check.standing(), Standing::Duplicate);
    }

    #[test]
    fn an_ipv6_address_in_use_is_kept_despite_conflicting_claims() {
        let mut check = Check::trusted(V6, START);
        assert_eq!(check.on_timer(START, 0), Step::Announce { is_first: true });
        for second in 0..5 {
            assert_eq!(check.on_conflict(START + Duration::from_secs(second)), Step::None);
        }
        assert_eq!(check.standing(), Standing::Owned);
    }

    #[test]
    fn an_early_call_does_nothing() {
        let mut check = Check::new(V6, START, 0x8000);
        assert_eq!(check.on_timer(START, 0), Step::None);
        assert!(!check.has_probed());
        assert_eq!(check.deadline(), Some(START + Duration::from_millis(500)));
    }
}
