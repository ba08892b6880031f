//! What the seed draws for a schedule of faults: which, when, for how long.
//!
//! Each fault comes from a stream of its own, and so do the moments around which half of them are drawn; so leaving one out does not change the others. Faults of one moment find
//! what one at a time does not: a host that loses its power while it recovers, a leader that is cut off while the others start again. Knows nothing of a running network. Tests: below,
//! `tests/rules.rs`.

use std::time::Duration;

use super::FaultConfig;
use crate::rng::Rng;

/// Numbers of the faults of a schedule: those of the second begin with this one.
pub(super) const NUMBERS: usize = 1000;
/// Up to so many hosts, a draw does not depend on how many there are.
const FEW_HOSTS: usize = 16;
/// Draws of such a host.
const DRAWS_MAX: usize = 256;
/// Moments near which half of the faults begin.
const MOMENTS: u64 = 2;
/// How near, at most.
const NEAR: Duration = Duration::from_secs(1);
/// From the end of a fault to the next one of the same: what ends and what begins at one moment would depend on their order.
const GAP: Duration = Duration::from_millis(1);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Crash(usize),
    Kill(usize),
    Pause(usize),
    Isolate(usize),
    Outage(Hosts),
    Split(Hosts),
    /// From one to the other, and back if it says so.
    Cut(usize, usize, bool),
    /// From one to the other: thousandths of packets lost, milliseconds of delay more.
    Degrade(usize, usize, u32, u32),
    /// Milliseconds that each sync takes longer.
    SlowDisk(usize, u32),
    /// Thousandths of reads, writes and syncs that fail.
    BadDisk(usize, [u32; 3]),
}

/// A set of hosts: a bit for each, the same for every 64th.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Hosts(u64);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Fault {
    /// Which of the drawn ones it is, whatever others are left out.
    pub number: usize,
    pub at: Duration,
    pub lasts: Duration,
    pub kind: Kind,
    /// Of what ends at several moments, such as the starts after an outage.
    pub seed: u64,
}

impl Hosts {
    pub fn has(self, host: usize) -> bool {
        self.0 >> (host % 64) & 1 == 1
    }

    /// Those of `count` hosts.
    pub fn of(self, count: usize) -> impl Iterator<Item = usize> {
        (0..count).filter(move |host| self.has(*host))
    }

    /// All if there would be less than two.
    fn two_at_least(self, count: usize) -> Self {
        if self.of(count).nth(1).is_some() { self } else { Self(u64::MAX) }
    }
}

impl Kind {
    /// Whether that host is out of order.
    fn takes(self, host: usize) -> bool {
        match self {
            Self::Crash(of) | Self::Kill(of) | Self::Pause(of) | Self::Isolate(of) | Self::BadDisk(of, _) => {
                of == host
            }
            Self::Outage(hosts) => hosts.has(host),
            Self::Split(_) | Self::Cut(..) | Self::Degrade(..) | Self::SlowDisk(..) => false,
        }
    }

    /// How many of these hosts are out of order.
    fn count(self, hosts: usize) -> usize {
        match self {
            Self::Crash(_) | Self::Kill(_) | Self::Pause(_) | Self::Isolate(_) | Self::BadDisk(..) => 1,
            Self::Outage(out) => out.of(hosts).count(),
            Self::Split(_) | Self::Cut(..) | Self::Degrade(..) | Self::SlowDisk(..) => 0,
        }
    }

    fn is_of_links(self) -> bool {
        matches!(self, Self::Isolate(_) | Self::Split(_) | Self::Cut(..) | Self::Degrade(..))
    }

    /// The host whose disk it is of.
    fn disk(self) -> Option<usize> {
        match self {
            Self::SlowDisk(host, _) | Self::BadDisk(host, _) => Some(host),
            Self::Crash(_) | Self::Kill(_) | Self::Pause(_) | Self::Isolate(_) | Self::Outage(_) => None,
            Self::Split(_) | Self::Cut(..) | Self::Degrade(..) => None,
        }
    }
}

/// The faults of a schedule whose numbers begin with `first`, in the order of their beginnings, but for those that would overlap.
pub(super) fn draw(
    rng: &mut Rng,
    first: usize,
    hosts: usize,
    config: &FaultConfig,
    happens: impl Fn(&Fault) -> bool,
) -> Vec<Fault> {
    let count = rng.between(1, config.count_max.clamp(1, NUMBERS as u64));
    let moments = rng.u64();
    let one = |number: u64| {
        let number = usize::try_from(number).unwrap_or(usize::MAX);
        one(&mut rng.fork(number as u64), moments, first + number, hosts, config)
    };
    let mut drawn: Vec<Fault> = (0..count).filter_map(one).filter(happens).collect();
    drawn.sort_by_key(|fault| fault.at);
    let mut kept: Vec<Fault> = Vec::new();
    for fault in drawn {
        if fits(&fault, &kept, hosts, config) {
            kept.push(fault);
        }
    }
    kept
}

/// Whether a fault may happen beside those that begin before it.
fn fits(fault: &Fault, earlier: &[Fault], hosts: usize, config: &FaultConfig) -> bool {
    let beside = || earlier.iter().filter(|other| other.at + other.lasts + GAP > fault.at);
    let is_out = |host: usize| beside().any(|other| other.kind.takes(host));
    let same_links = fault.kind.is_of_links() && beside().any(|other| other.kind.is_of_links());
    let same_disk =
        fault.kind.disk().is_some() && beside().any(|other| other.kind.disk() == fault.kind.disk());
    if same_links || same_disk || (0..hosts).any(|host| fault.kind.takes(host) && is_out(host)) {
        return false;
    }
    let may_be_out = match (config.hosts_max, fault.kind) {
        (None, Kind::Outage(_)) => hosts,
        (None, _) => (hosts.saturating_sub(1) / 2).max(1),
        (Some(most), _) => most,
    };
    // No host is in two of them.
    let out: usize = beside().map(|other| other.kind.count(hosts)).sum();
    let count = fault.kind.count(hosts);
    count == 0 || count + out <= may_be_out
}

/// A fault; none if the kind that is drawn is not wanted, or needs more hosts.
fn one(rng: &mut Rng, moments: u64, number: usize, hosts: usize, config: &FaultConfig) -> Option<Fault> {
    if hosts == 0 {
        return None;
    }
    let within = micros(config.within);
    let mut when = rng.fork(2);
    let at = if when.chance(0.5) {
        when.below(within)
    } else {
        let moment = Rng::new(moments).fork(when.below(MOMENTS)).below(within);
        let near = micros(NEAR) >> when.below(8);
        (moment + when.below(near)).min(within)
    };
    // Short ones are as frequent as long ones, and may be shorter than any timer.
    let longest = micros(config.longest).max(1000) >> when.below(6);
    let lasts = Duration::from_micros(when.between(1, longest));
    let kinds = kinds(rng, hosts, config);
    let which = usize::try_from(rng.below(kinds.len() as u64)).unwrap_or(0);
    let kind = *kinds.get(which)?;
    Some(Fault { number, at: Duration::from_micros(at), lasts, kind, seed: rng.u64() })
}

/// One of each kind that is wanted.
fn kinds(rng: &mut Rng, hosts: usize, config: &FaultConfig) -> Vec<Kind> {
    // From streams of their own: how many numbers a host takes depends on how many hosts there are.
    let (from, to) = (host_of(rng.fork(0), hosts), host_of(rng.fork(1), hosts));
    let (some, is_all, split) = (rng.u64(), rng.chance(0.5), rng.u64());
    let small = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    let (loss, delay, is_both) = (small(rng.between(20, 500)), small(rng.between(1, 400)), rng.chance(0.5));
    let slower = small(1u64 << rng.between(3, 10));
    let errors = [(); 3].map(|()| if rng.chance(0.5) { small(rng.between(10, 1000)) } else { 0 });
    let mut kinds = Vec::new();
    kinds.extend(config.crash.then_some(Kind::Crash(from)));
    kinds.extend(config.kill.then_some(Kind::Kill(from)));
    kinds.extend(config.pause.then_some(Kind::Pause(from)));
    kinds.extend(config.slow_disk.then_some(Kind::SlowDisk(from, slower)));
    kinds.extend(config.bad_disk.then_some(Kind::BadDisk(from, errors)));
    if hosts > 1 {
        let to = if from == to { (to + 1) % hosts } else { to };
        let out = if is_all { Hosts(u64::MAX) } else { Hosts(some).two_at_least(hosts) };
        kinds.extend(config.outage.then_some(Kind::Outage(out)));
        if config.partition {
            kinds.extend([Kind::Isolate(from), Kind::Split(Hosts(split)), Kind::Cut(from, to, is_both)]);
        }
        kinds.extend(config.degrade.then_some(Kind::Degrade(from, to, loss, delay)));
    }
    kinds
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// A host. With fewer hosts it is the same one more often than not, so that a failure can be found again with fewer.
fn host_of(mut rng: Rng, hosts: usize) -> usize {
    let mut below = |bound: usize| usize::try_from(rng.below(bound as u64)).unwrap_or(0);
    if hosts > FEW_HOSTS {
        return below(hosts);
    }
    let drawn = std::iter::repeat_with(|| below(FEW_HOSTS)).take(DRAWS_MAX).find(|host| *host < hosts);
    drawn.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(seed: u64, hosts: usize, config: &FaultConfig) -> Vec<Fault> {
        draw(&mut Rng::new(seed), 0, hosts, config, |_| true)
    }

    #[test]
    fn a_fault_that_is_left_out_does_not_change_those_that_are_kept() {
        for seed in 0..200 {
            let all = schedule(seed, 5, &FaultConfig::default());
            for left_out in &all {
                let less = draw(&mut Rng::new(seed), 0, 5, &FaultConfig::default(), |one| one != left_out);
                // Others may be there, which did not fit beside it.
                let drawn = |one: &&Fault| all.iter().any(|known| known.number == one.number);
                assert!(less.iter().filter(drawn).all(|one| all.contains(one)));
            }
        }
    }

    #[test]
    fn less_than_half_of_the_hosts_are_out_but_for_an_outage_and_no_more_than_the_test_says() {
        let mut outages = [0; 6];
        for seed in 0..500 {
            for (hosts_max, most) in [(None, 2), (Some(3), 3), (Some(1), 1)] {
                let config = FaultConfig { hosts_max, bad_disk: true, ..FaultConfig::default() };
                let faults = schedule(seed, 5, &config);
                for fault in &faults {
                    let beside =
                        || faults.iter().filter(|one| one.at <= fault.at && fault.at <= one.at + one.lasts);
                    let out = |host: &usize| beside().filter(|one| one.kind.takes(*host)).count();
                    assert!((0..5).all(|host| out(&host) <= 1), "one fault of a host at a time: {faults:?}");
                    let count = (0..5).filter(|host| out(host) > 0).count();
                    let is_outage = beside().any(|one| matches!(one.kind, Kind::Outage(_)));
                    assert!(count <= most || (is_outage && hosts_max.is_none()), "{count}: {faults:?}");
                    if let Kind::Outage(of) = fault.kind {
                        outages[of.of(5).count()] += 1;
                    }
                }
            }
        }
        assert!(outages[..2] == [0, 0] && outages[2..].iter().all(|count| *count > 10), "{outages:?}");
    }

    #[test]
    fn many_faults_begin_near_another_and_many_alone() {
        let config = FaultConfig { count_max: 10, ..FaultConfig::default() };
        let (mut near, mut all) = (0, 0);
        for seed in 0..500 {
            let faults = schedule(seed, 5, &config);
            near +=
                faults.windows(2).filter(|pair| pair[1].at - pair[0].at < Duration::from_millis(300)).count();
            all += faults.len();
        }
        assert!((all / 7..all / 2).contains(&near), "{near} of {all}");
    }
}
