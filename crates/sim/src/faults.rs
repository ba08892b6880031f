//! A schedule of faults that the seed decides: what goes wrong when nobody says what.
//!
//! All faults are drawn before the first happens, each from a stream of its own, so that leaving one out does not change the others (`case.rs`). Each begins, lasts and ends; afterwards the network is as it
//! was. At a time there is at most one fault of links, one of each host, and no more hosts are out of order than may be. Tests: `tests/rules.rs`.

use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use crate::executor::JoinHandle;
use crate::link::LinkConfig;
use crate::network::{Host, Net};
use crate::rng::Rng;
use crate::time;

/// How many faults there are, and of which kinds. Start from [`FaultConfig::default`].
#[derive(Clone, Debug)]
pub struct FaultConfig {
    /// Faults begin within this time. Default 30 s.
    pub within: Duration,
    /// Faults that are drawn at most, up to 1000; some are left out because they would overlap. Default 10.
    pub count_max: u64,
    /// The longest fault. Default 8 s.
    pub longest: Duration,
    /// Hosts that are crashed, killed, paused or isolated at a time. Default `None`: less than half of them, and one at least.
    pub hosts_max: Option<usize>,
    /// Hosts lose their power, and start again. Default on.
    pub crash: bool,
    /// Programs are killed, and start again. Default on.
    pub kill: bool,
    /// Programs are paused. Default on.
    pub pause: bool,
    /// Links are cut: those of one host, those between two halves, or one direction of one. Default on.
    pub partition: bool,
    /// Links lose packets and take longer. Default on.
    pub degrade: bool,
}

impl Default for FaultConfig {
    fn default() -> Self {
        Self {
            within: Duration::from_secs(30),
            count_max: 10,
            longest: Duration::from_secs(8),
            hosts_max: None,
            crash: true,
            kill: true,
            pause: true,
            partition: true,
            degrade: true,
        }
    }
}

/// The schedule that [`Net::random_faults`] made.
#[derive(Debug)]
pub struct FaultSchedule {
    faults: Vec<String>,
    running: Vec<JoinHandle<()>>,
}

impl FaultSchedule {
    /// Its faults, in words, in the order of their beginnings.
    pub fn faults(&self) -> &[String] {
        &self.faults
    }

    /// Waits until all are over.
    pub async fn over(self) {
        for fault in self.running {
            // It ends by itself, or with the run.
            let _aborted = fault.await;
        }
    }
}

/// Numbers of the faults of a schedule: those of the second begin with this one.
const NUMBERS: usize = 1000;
/// Up to so many hosts, a draw does not depend on how many there are.
const FEW_HOSTS: usize = 16;
/// Draws of such a host.
const DRAWS_MAX: usize = 256;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Crash(usize),
    Kill(usize),
    Pause(usize),
    Isolate(usize),
    /// The hosts whose bit is set, and the others.
    Split(u64),
    OneWay(usize, usize),
    /// From one to the other: thousandths of packets lost, milliseconds of delay more.
    Degrade(usize, usize, u32, u32),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Fault {
    /// Which of the drawn ones it is, whatever others are left out.
    number: usize,
    at: Duration,
    lasts: Duration,
    kind: Kind,
}

impl Kind {
    /// The host that is out of order.
    fn host(self) -> Option<usize> {
        match self {
            Self::Crash(host) | Self::Kill(host) | Self::Pause(host) | Self::Isolate(host) => Some(host),
            Self::Split(_) | Self::OneWay(..) | Self::Degrade(..) => None,
        }
    }

    fn is_of_links(self) -> bool {
        !matches!(self, Self::Crash(_) | Self::Kill(_) | Self::Pause(_))
    }
}

impl Net {
    /// Lets faults happen to these hosts and the links between them, decided by the seed, from now on. Programs come back after a crash or a kill if they are a host's
    /// [`program`](Host::program). If the run fails, it is tried with fewer of them.
    pub fn random_faults(&self, hosts: &[Host], config: FaultConfig) -> FaultSchedule {
        let hosts: Rc<[Host]> = hosts.into();
        let mut state = self.world.lock();
        let first = state.drawn.schedules * NUMBERS;
        state.drawn.schedules += 1;
        let case = state.case.faults.clone();
        drop(state);
        let mut rng = self.rng(&format!("faults {first}"));
        let happens = |fault: &Fault| case.as_ref().is_none_or(|kept| kept.contains(&fault.number));
        let all = draw(&mut rng, first, hosts.len(), &config, happens);
        let words: Vec<String> = all.iter().map(|fault| Words(fault, &hosts).to_string()).collect();
        let mut state = self.world.lock();
        state.drawn.faults.extend(all.iter().map(|fault| fault.number).zip(words.iter().cloned()));
        state.planned += all.len();
        drop(state);
        let start = |fault: &Fault| {
            let (net, hosts, fault) = (self.clone(), Rc::clone(&hosts), *fault);
            self.tasks.spawn(None, async move { happen(&net, &hosts, fault).await })
        };
        FaultSchedule { running: all.iter().map(start).collect(), faults: words }
    }
}

fn draw(
    rng: &mut Rng,
    first: usize,
    hosts: usize,
    config: &FaultConfig,
    happens: impl Fn(&Fault) -> bool,
) -> Vec<Fault> {
    let hosts_max = config.hosts_max.unwrap_or((hosts.saturating_sub(1) / 2).max(1));
    let count = rng.between(1, config.count_max.clamp(1, NUMBERS as u64));
    let one = |number: u64| {
        let number = usize::try_from(number).unwrap_or(usize::MAX);
        one(&mut rng.fork(number as u64), first + number, hosts, config)
    };
    let mut drawn: Vec<Fault> = (0..count).filter_map(one).filter(happens).collect();
    drawn.sort_by_key(|fault| fault.at);
    let mut kept: Vec<Fault> = Vec::new();
    for fault in drawn {
        // Until its end and a little more: what ends and what begins at one moment would depend on their order.
        let beside =
            || kept.iter().filter(|other| other.at + other.lasts + Duration::from_millis(1) > fault.at);
        let same_host =
            beside().any(|other| fault.kind.host().is_some() && other.kind.host() == fault.kind.host());
        let links = fault.kind.is_of_links() && beside().any(|other| other.kind.is_of_links());
        let out = beside().filter(|other| other.kind.host().is_some()).count();
        if !same_host && !links && (fault.kind.host().is_none() || out < hosts_max) {
            kept.push(fault);
        }
    }
    kept
}

/// A fault; none if the kind that is drawn is not wanted, or needs more hosts.
fn one(rng: &mut Rng, number: usize, hosts: usize, config: &FaultConfig) -> Option<Fault> {
    if hosts == 0 {
        return None;
    }
    let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    let at = Duration::from_micros(rng.below(micros(config.within)));
    // Short ones are as frequent as long ones, and may be shorter than any timer.
    let longest = micros(config.longest).max(1000) >> rng.below(6);
    let lasts = Duration::from_micros(rng.between(1, longest));
    // From streams of their own: how many numbers a host takes depends on how many hosts there are.
    let (from, to) = (host_of(rng.fork(0), hosts), host_of(rng.fork(1), hosts));
    let split = rng.u64();
    let (loss, delay) = (rng.between(20, 500), rng.between(1, 400));
    let mut kinds = Vec::new();
    kinds.extend(config.crash.then_some(Kind::Crash(from)));
    kinds.extend(config.kill.then_some(Kind::Kill(from)));
    kinds.extend(config.pause.then_some(Kind::Pause(from)));
    if hosts > 1 {
        let to = if from == to { (to + 1) % hosts } else { to };
        if config.partition {
            kinds.extend([Kind::Isolate(from), Kind::Split(split), Kind::OneWay(from, to)]);
        }
        let small = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        kinds.extend(config.degrade.then_some(Kind::Degrade(from, to, small(loss), small(delay))));
    }
    let which = usize::try_from(rng.below(kinds.len() as u64)).unwrap_or(0);
    kinds.get(which).map(|kind| Fault { number, at, lasts, kind: *kind })
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

async fn happen(net: &Net, hosts: &[Host], fault: Fault) {
    time::sleep(fault.at).await;
    let before = begin(net, hosts, fault.kind);
    time::sleep(fault.lasts).await;
    end(net, hosts, fault.kind, before);
    let mut state = net.world.lock();
    state.planned -= 1;
    state.fault_count += 1;
    state.last_fault_at = state.now;
}

/// Lets it begin. Returns the settings of a link that it changes.
fn begin(net: &Net, hosts: &[Host], kind: Kind) -> Option<LinkConfig> {
    match kind {
        Kind::Crash(host) => hosts[host].crash(),
        Kind::Kill(host) => hosts[host].kill(),
        Kind::Pause(host) => hosts[host].pause(),
        Kind::Isolate(_) | Kind::Split(_) | Kind::OneWay(..) => set_up(net, hosts, kind, false),
        Kind::Degrade(from, to, loss, delay) => {
            let mut state = net.world.lock();
            let pipe = state.pipe(hosts[from].index, hosts[to].index);
            let before = state.pipes[pipe].config.clone();
            let config = &mut state.pipes[pipe].config;
            config.loss = config.loss.max(f64::from(loss) / 1000.0);
            config.delay += Duration::from_millis(delay.into());
            let text = format!("{} loses {loss} of 1000 and takes {delay} ms more", state.pipes[pipe].name);
            state.fault(None, text);
            return Some(before);
        }
    }
    None
}

fn end(net: &Net, hosts: &[Host], kind: Kind, before: Option<LinkConfig>) {
    match kind {
        Kind::Crash(host) if !hosts[host].is_up() => hosts[host].restart(),
        // Unless a program has done so.
        Kind::Kill(host) if net.world.lock().hosts[hosts[host].index].is_killed => hosts[host].restart(),
        Kind::Crash(_) | Kind::Kill(_) => {}
        Kind::Pause(host) => hosts[host].resume(),
        Kind::Isolate(_) | Kind::Split(_) | Kind::OneWay(..) => set_up(net, hosts, kind, true),
        Kind::Degrade(from, to, ..) => {
            let mut state = net.world.lock();
            let pipe = state.pipe(hosts[from].index, hosts[to].index);
            if let Some(before) = before {
                state.pipes[pipe].config.loss = before.loss;
                state.pipes[pipe].config.delay = before.delay;
            }
            let text = format!("{} is as before", state.pipes[pipe].name);
            state.fault(None, text);
        }
    }
}

fn set_up(net: &Net, hosts: &[Host], kind: Kind, is_up: bool) {
    let is_cut = |from: usize, to: usize| match kind {
        Kind::Isolate(host) => from == host || to == host,
        Kind::Split(bits) => (bits >> (from % 64) ^ bits >> (to % 64)) & 1 == 1,
        Kind::OneWay(first, second) => (from, to) == (first, second),
        Kind::Crash(_) | Kind::Kill(_) | Kind::Pause(_) | Kind::Degrade(..) => false,
    };
    let mut state = net.world.lock();
    for (from, to) in (0..hosts.len()).flat_map(|from| (0..hosts.len()).map(move |to| (from, to))) {
        if from != to && is_cut(from, to) {
            let pipe = state.pipe(hosts[from].index, hosts[to].index);
            state.set_up(pipe, is_up);
        }
    }
}

struct Words<'a>(&'a Fault, &'a Rc<[Host]>);

impl fmt::Display for Words<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(Fault { at, lasts, kind, .. }, hosts) = self;
        let name = |host: usize| hosts[host].name();
        write!(f, "{at:?}: ")?;
        match *kind {
            Kind::Crash(host) => write!(f, "{} crashes", name(host))?,
            Kind::Kill(host) => write!(f, "{} is killed", name(host))?,
            Kind::Pause(host) => write!(f, "{} is paused", name(host))?,
            Kind::Isolate(host) => write!(f, "{} is isolated", name(host))?,
            Kind::Split(bits) => {
                let side: Vec<String> =
                    (0..hosts.len()).filter(|host| bits >> (host % 64) & 1 == 1).map(name).collect();
                write!(f, "[{}] is cut off from the others", side.join(", "))?;
            }
            Kind::OneWay(from, to) => write!(f, "{} does not reach {}", name(from), name(to))?,
            Kind::Degrade(from, to, loss, delay) => {
                let (from, to) = (name(from), name(to));
                write!(f, "{from} → {to} loses {loss} of 1000 and takes {delay} ms more")?;
            }
        }
        write!(f, " for {lasts:?}")
    }
}
