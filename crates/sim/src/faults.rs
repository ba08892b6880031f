//! A schedule of faults that the seed decides: what goes wrong when nobody says what.
//!
//! All faults are drawn before the first happens (`faults/draw.rs`), each from a stream of its own, so that leaving one out does not change the others (`case.rs`). Each begins, lasts and ends;
//! afterwards network and disks are as they were. At a time there is at most one fault of links, one of each host, one of each disk, and no more hosts are out of order than may be. Tests: `tests/rules.rs`.

use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use crate::disk::DiskConfig;
use crate::executor::JoinHandle;
use crate::link::LinkConfig;
use crate::network::{Host, Net};
use crate::rng::Rng;
use crate::time;
use draw::{Fault, Kind, NUMBERS, draw};

mod draw;

/// How many faults there are, and of which kinds. Start from [`FaultConfig::default`].
#[derive(Clone, Debug)]
pub struct FaultConfig {
    /// Faults begin within this time. Default 30 s.
    pub within: Duration,
    /// Faults that are drawn at most, up to 1000; some are left out because they would overlap. Default 10.
    pub count_max: u64,
    /// The longest fault. Default 8 s.
    pub longest: Duration,
    /// Hosts that are crashed, killed, paused or isolated, or have a bad disk, at a time. Default `None`: less than half of them, and one at least; and beside them any number by an
    /// [outage](Self::outage).
    pub hosts_max: Option<usize>,
    /// Hosts lose their power, and start again. Default on.
    pub crash: bool,
    /// Several hosts lose their power at one moment, or all of them, and start again one after the other. Default on.
    pub outage: bool,
    /// Programs are killed, and start again. Default on.
    pub kill: bool,
    /// Programs are paused. Default on.
    pub pause: bool,
    /// Links are cut: those of one host, those between two halves, or one, or one direction of it. Default on.
    pub partition: bool,
    /// Links lose packets and take longer. Default on.
    pub degrade: bool,
    /// Syncs of a host's disk take 8 ms to a second longer; nothing if the host has no files. Default on.
    pub slow_disk: bool,
    /// Reads, writes or syncs of a host's disk fail with `EIO` ([`DiskConfig`]); nothing if the host has no files. Default off: most programs end at such an error,
    /// and a program that panics fails the run.
    pub bad_disk: bool,
}

impl Default for FaultConfig {
    fn default() -> Self {
        Self {
            within: Duration::from_secs(30),
            count_max: 10,
            longest: Duration::from_secs(8),
            hosts_max: None,
            crash: true,
            outage: true,
            kill: true,
            pause: true,
            partition: true,
            degrade: true,
            slow_disk: true,
            bad_disk: false,
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
        // Rules look anew at what is there.
        state.fault_count += 1;
        drop(state);
        let start = |fault: &Fault| {
            let (net, hosts, fault) = (self.clone(), Rc::clone(&hosts), *fault);
            self.tasks.spawn(None, async move { happen(&net, &hosts, fault).await })
        };
        FaultSchedule { running: all.iter().map(start).collect(), faults: words }
    }
}

async fn happen(net: &Net, hosts: &[Host], fault: Fault) {
    time::sleep(fault.at).await;
    let before = begin(net, hosts, fault.kind);
    if let Kind::Outage(out) = fault.kind {
        start_again(out.of(hosts.len()).map(|host| hosts[host].clone()), fault).await;
    } else {
        time::sleep(fault.lasts).await;
        end(net, hosts, fault.kind, before);
    }
    let mut state = net.world.lock();
    state.planned -= 1;
    state.fault_count += 1;
    state.last_fault_at = state.now;
}

/// Hosts that have lost their power start again, at moments of their own; the last at the end of the fault.
async fn start_again(hosts: impl Iterator<Item = Host>, fault: Fault) {
    let (mut rng, begin) = (Rng::new(fault.seed), time::Instant::now());
    let nanos = u64::try_from(fault.lasts.as_nanos()).unwrap_or(u64::MAX);
    let mut starts: Vec<(Duration, Host)> =
        hosts.map(|host| (Duration::from_nanos(rng.below(nanos)), host)).collect();
    starts.sort_by_key(|(after, _)| *after);
    if let Some(last) = starts.last_mut() {
        last.0 = fault.lasts;
    }
    for (after, host) in starts {
        time::sleep_until(begin + after).await;
        if !host.is_up() {
            host.restart();
        }
    }
}

/// Settings that a fault changes.
enum Before {
    Nothing,
    Link(LinkConfig),
    Disk(DiskConfig),
}

/// Lets it begin. Returns the settings that it changes.
fn begin(net: &Net, hosts: &[Host], kind: Kind) -> Before {
    match kind {
        Kind::Crash(host) => hosts[host].crash(),
        Kind::Outage(out) => out.of(hosts.len()).for_each(|host| hosts[host].crash()),
        Kind::Kill(host) => hosts[host].kill(),
        Kind::Pause(host) => hosts[host].pause(),
        Kind::Isolate(_) | Kind::Split(_) | Kind::Cut(..) => set_up(net, hosts, kind, false),
        Kind::Degrade(from, to, loss, delay) => {
            let mut state = net.world.lock();
            let pipe = state.pipe(hosts[from].index, hosts[to].index);
            let before = state.pipes[pipe].config.clone();
            let config = &mut state.pipes[pipe].config;
            config.loss = config.loss.max(f64::from(loss) / 1000.0);
            config.delay += Duration::from_millis(delay.into());
            let text = format!("{} loses {loss} of 1000 and takes {delay} ms more", state.pipes[pipe].name);
            state.fault(None, text);
            return Before::Link(before);
        }
        Kind::SlowDisk(host, _) | Kind::BadDisk(host, _) => return disturb(net, &hosts[host], kind),
    }
    Before::Nothing
}

/// Disturbs a host's disk, if the host has one that it uses.
fn disturb(net: &Net, host: &Host, kind: Kind) -> Before {
    let mut state = net.world.lock();
    let disk = &mut state.hosts[host.index].disk;
    if !disk.is_used {
        return Before::Nothing;
    }
    let before = disk.config.clone();
    let part = |errors: u32| f64::from(errors) / 1000.0;
    let text = match kind {
        Kind::SlowDisk(_, ms) => {
            disk.config.sync_time += Duration::from_millis(ms.into());
            format!("its disk takes {ms} ms more for a sync")
        }
        Kind::BadDisk(_, [reads, writes, syncs]) => {
            disk.config.read_error = disk.config.read_error.max(part(reads));
            disk.config.write_error = disk.config.write_error.max(part(writes));
            disk.config.sync_error = disk.config.sync_error.max(part(syncs));
            format!("its disk fails {reads} reads, {writes} writes and {syncs} syncs of 1000")
        }
        _ => return Before::Nothing,
    };
    state.fault(Some(host.index), text);
    Before::Disk(before)
}

fn end(net: &Net, hosts: &[Host], kind: Kind, before: Before) {
    match (kind, before) {
        (Kind::Crash(host), _) if !hosts[host].is_up() => hosts[host].restart(),
        // Unless a program has done so.
        (Kind::Kill(host), _) if net.world.lock().hosts[hosts[host].index].is_killed => hosts[host].restart(),
        (Kind::Pause(host), _) => hosts[host].resume(),
        (Kind::Isolate(_) | Kind::Split(_) | Kind::Cut(..), _) => set_up(net, hosts, kind, true),
        (Kind::Degrade(from, to, ..), Before::Link(before)) => {
            let mut state = net.world.lock();
            let pipe = state.pipe(hosts[from].index, hosts[to].index);
            state.pipes[pipe].config.loss = before.loss;
            state.pipes[pipe].config.delay = before.delay;
            let text = format!("{} is as before", state.pipes[pipe].name);
            state.fault(None, text);
        }
        (Kind::SlowDisk(host, _), Before::Disk(before)) => {
            mend(net, &hosts[host], |disk| disk.sync_time = before.sync_time);
        }
        (Kind::BadDisk(host, _), Before::Disk(before)) => mend(net, &hosts[host], |disk| {
            (disk.read_error, disk.write_error) = (before.read_error, before.write_error);
            disk.sync_error = before.sync_error;
        }),
        (Kind::Crash(_) | Kind::Kill(_) | Kind::Outage(_) | Kind::Degrade(..), _) => {}
        (Kind::SlowDisk(..) | Kind::BadDisk(..), _) => {}
    }
}

fn mend(net: &Net, host: &Host, mend: impl FnOnce(&mut DiskConfig)) {
    let mut state = net.world.lock();
    mend(&mut state.hosts[host.index].disk.config);
    state.fault(Some(host.index), "its disk is as before");
}

fn set_up(net: &Net, hosts: &[Host], kind: Kind, is_up: bool) {
    let is_cut = |from: usize, to: usize| match kind {
        Kind::Isolate(host) => from == host || to == host,
        Kind::Split(side) => side.has(from) != side.has(to),
        Kind::Cut(first, second, is_both) => {
            (from, to) == (first, second) || (is_both && (from, to) == (second, first))
        }
        Kind::Crash(_) | Kind::Kill(_) | Kind::Pause(_) | Kind::Outage(_) | Kind::Degrade(..) => false,
        Kind::SlowDisk(..) | Kind::BadDisk(..) => false,
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
        let names = |some: draw::Hosts| some.of(hosts.len()).map(name).collect::<Vec<_>>().join(", ");
        write!(f, "{at:?}: ")?;
        match *kind {
            Kind::Crash(host) => write!(f, "{} crashes", name(host))?,
            Kind::Kill(host) => write!(f, "{} is killed", name(host))?,
            Kind::Pause(host) => write!(f, "{} is paused", name(host))?,
            Kind::Isolate(host) => write!(f, "{} is isolated", name(host))?,
            Kind::Outage(out) => write!(f, "the power of [{}] goes", names(out))?,
            Kind::Split(side) => write!(f, "[{}] is cut off from the others", names(side))?,
            Kind::Cut(from, to, false) => write!(f, "{} does not reach {}", name(from), name(to))?,
            Kind::Cut(from, to, true) => {
                write!(f, "{} and {} do not reach each other", name(from), name(to))?
            }
            Kind::SlowDisk(host, ms) => {
                write!(f, "the disk of {} takes {ms} ms more for a sync", name(host))?;
            }
            Kind::BadDisk(host, [reads, writes, syncs]) => write!(
                f,
                "the disk of {} fails {reads} reads, {writes} writes and {syncs} syncs of 1000",
                name(host)
            )?,
            Kind::Degrade(from, to, loss, delay) => {
                let (from, to) = (name(from), name(to));
                write!(f, "{from} → {to} loses {loss} of 1000 and takes {delay} ms more")?;
            }
        }
        write!(f, " for {lasts:?}")
    }
}
