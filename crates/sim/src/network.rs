//! The network as a program holds it: hosts, links, partitions.
//!
//! Handles are counted references to the world; they can be cloned into every task. Tests: `tests/`.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use sockeye::netif::Prefix;
use sockeye::{Config, Stack};

use crate::clock::LocalClock;
use crate::disk::FileSystem;
use crate::event::Nanos;
use crate::executor::{Ambient, JoinHandle, Tasks};
use crate::link::{Fate, LinkConfig, LinkStats};
use crate::names::HostNames;
use crate::packet::Packet;
use crate::port::Port;
use crate::rng::Rng;
use crate::signal::{HostSignals, Signals};
use crate::trace::What;
use crate::watch::{Retransmission, Traffic};
use crate::world::{HostState, Setup, World};

/// A network of hosts. Clones are the same network.
#[derive(Clone)]
pub struct Net {
    pub(crate) world: Arc<World>,
    pub(crate) tasks: Rc<Tasks>,
}

/// Settings of a host. Start from [`HostConfig::default`].
#[derive(Clone, Debug)]
pub struct HostConfig {
    /// The stack's settings; `workers` is 0 whatever it says here.
    pub stack: Config,
    /// MTU of the host's interface, bytes, 1,280 to 65,536. Default 1500.
    pub mtu: u32,
    /// Leaves TCP checksums out, as with devices that compute and check them: faster, but nothing then notices
    /// corruption. Both ends of a link must agree. Default off.
    pub offload: bool,
}

impl Default for HostConfig {
    fn default() -> Self {
        Self { stack: Config { workers: 0, ..Config::default() }, mtu: 1500, offload: false }
    }
}

/// Hosts that a network may have: 10.0.0.0/8 has room for them.
const HOSTS_MAX: usize = 60_000;
/// Hosts in one step of the third octet.
const HOSTS_PER_OCTET: usize = 250;

impl Net {
    /// A host with default settings, linked to every other by the [default link](Self::set_default_link) until
    /// [`link`](Self::link) says otherwise. Addresses are 10.0.0.1, fd00::1 and so on, in the order of creation.
    ///
    /// Programs find it by its name, without regard to case: `connect("server:80")`, `lookup_host`. That has the IPv4 address first, then the IPv6
    /// address. Hosts of the same name are one name with several addresses.
    ///
    /// # Panics
    /// Beyond 60,000 hosts.
    pub fn host(&self, name: &str) -> Host {
        self.host_with(name, HostConfig::default()).expect("the default settings are valid")
    }

    /// A host of one's own settings.
    ///
    /// # Errors
    /// `InvalidInput` if a setting is out of its bounds, `QuotaExceeded` beyond 60,000 hosts. There is no such host then.
    pub fn host_with(&self, name: &str, config: HostConfig) -> io::Result<Host> {
        let index = self.world.lock().hosts.len();
        if index >= HOSTS_MAX {
            let message = format!("a network has {HOSTS_MAX} hosts at most");
            return Err(io::Error::new(io::ErrorKind::QuotaExceeded, message));
        }
        let (high, low) = (index / HOSTS_PER_OCTET, index % HOSTS_PER_OCTET + 1);
        let octet = |number: usize| u8::try_from(number).unwrap_or(u8::MAX);
        let v4 = Ipv4Addr::new(10, 0, octet(high), octet(low));
        let v6 = Ipv6Addr::from(FIRST_V6 + index as u128);
        let stack = Config { workers: 0, ..config.stack };
        let setup = Setup { config: stack, v4, v6, mtu: config.mtu, offload: config.offload };
        let mut state = self.world.lock();
        state.hosts.push(HostState {
            name: name.to_owned(),
            stack: None,
            life: 0,
            inbox: std::collections::VecDeque::new(),
            last_route: None,
            wake_at: Nanos::MAX,
            is_dirty: false,
            has_news: false,
            is_paused: false,
            parked: Vec::new(),
            is_killed: false,
            processes: 0,
            local: LocalClock::default(),
            clock: Nanos::MAX,
            setup,
            disk: FileSystem::new(self.world.seed, index),
            signals: Signals::default(),
        });
        state.addresses.insert(v4.into(), index);
        state.addresses.insert(v6.into(), index);
        drop(state);
        let host = Host { net: self.clone(), index };
        if let Err(error) = host.start() {
            let mut state = self.world.lock();
            state.addresses.retain(|_, host| *host != index);
            state.dirty.retain(|host| *host != index);
            let failed = state.hosts.pop();
            drop((state, failed));
            return Err(error);
        }
        Ok(host)
    }

    /// Links two hosts, in both directions alike. A link that is there already gets the new settings.
    pub fn link(&self, left: &Host, right: &Host, config: LinkConfig) -> Link {
        let mut state = self.world.lock();
        let there = state.connect(left.index, right.index, config.clone());
        let back = state.connect(right.index, left.index, config);
        drop(state);
        let direction = |pipe| Direction { world: Arc::clone(&self.world), pipe };
        Link { there: direction(there), back: direction(back) }
    }

    /// Sets the link between hosts that are not linked otherwise. Links that carried a packet already keep their
    /// settings.
    pub fn set_default_link(&self, config: LinkConfig) {
        self.world.lock().default_link = config;
    }

    /// Cuts every link between a host of `left` and one of `right`. Packets on their way still arrive.
    pub fn partition(&self, left: &[&Host], right: &[&Host]) {
        let mut state = self.world.lock();
        for (from, to) in left.iter().flat_map(|l| right.iter().map(move |r| (l.index, r.index))) {
            for (from, to) in [(from, to), (to, from)] {
                let pipe = state.pipe(from, to);
                state.set_up(pipe, false);
            }
        }
    }

    /// Ends all partitions.
    pub fn heal(&self) {
        let mut state = self.world.lock();
        (0..state.pipes.len()).for_each(|pipe| state.set_up(pipe, true));
    }

    /// Virtual time since the start.
    pub fn now(&self) -> Duration {
        self.world.now()
    }

    /// The seed that decides this run.
    pub fn seed(&self) -> u64 {
        self.world.seed
    }

    /// Chance of the program's own, decided by the seed. `label` tells one user of it from another: one's draws do
    /// not change another's.
    pub fn rng(&self, label: &str) -> Rng {
        let label = label.bytes().fold(1u64, |sum, byte| Rng::new(sum).fork(u64::from(byte)).u64());
        Rng::new(self.world.seed).fork(label)
    }

    /// Events handled so far: the cost of a run.
    pub fn events(&self) -> u64 {
        self.world.lock().events
    }

    /// A digest of all that has happened so far: steps of tasks and stacks, packets, random numbers that were drawn. Two runs with the same
    /// programs and settings have the same one if they were the same; see [`Sim::check_determinism`](crate::Sim::check_determinism).
    pub fn digest(&self) -> u64 {
        self.world.lock().trace.digest()
    }

    /// Notes something among the run's events, for the failure's report.
    pub fn note(&self, text: impl Into<String>) {
        let text: String = text.into();
        let host = Ambient::host_of_caller();
        self.world.lock().note(What::Said { host, is_fault: false, text: text.into() });
    }

    /// Fate of the packets of all links.
    pub fn stats(&self) -> LinkStats {
        self.world.lock().link_stats()
    }

    /// Findings from all links.
    pub fn traffic(&self) -> Traffic {
        self.world.lock().watch.total
    }

    /// The data that one direction of a connection has sent, if any of it was seen; the latest connection of
    /// that name.
    pub fn flow(&self, src: SocketAddr, dst: SocketAddr) -> Option<Traffic> {
        self.world.lock().watch.flow(src, dst)
    }

    /// The segments that were sent again, the first 65,536 of them.
    pub fn retransmissions(&self) -> Vec<Retransmission> {
        self.world.lock().watch.retransmissions.clone()
    }

    /// Packets that are on their way now.
    pub fn in_flight(&self) -> usize {
        self.world.lock().in_flight()
    }

    /// Writes the links' packets so far, as far as they were [kept](crate::Capture), in pcap-ng.
    ///
    /// # Errors
    /// The writer's.
    pub fn write_pcap(&self, out: &mut dyn io::Write) -> io::Result<()> {
        let state = self.world.lock();
        state.tape.write(state.pipes.iter().map(|pipe| pipe.name.as_str()), out)
    }

    /// [`write_pcap`](Self::write_pcap) into a file.
    ///
    /// # Errors
    /// The system's.
    pub fn save_pcap(&self, path: impl AsRef<Path>) -> io::Result<()> {
        self.write_pcap(&mut io::BufWriter::new(std::fs::File::create(path)?))
    }
}

/// fd00::1.
const FIRST_V6: u128 = 0xfd00 << 112 | 1;

impl fmt::Debug for Net {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Net").field("seed", &self.seed()).field("now", &self.now()).finish_non_exhaustive()
    }
}

/// A host: one stack, and the programs on it. Clones are the same host.
#[derive(Clone)]
pub struct Host {
    pub(crate) net: Net,
    pub(crate) index: usize,
}

impl Host {
    /// Its name.
    pub fn name(&self) -> String {
        self.net.world.lock().hosts[self.index].name.clone()
    }

    /// Its IPv4 address.
    pub fn addr(&self) -> IpAddr {
        self.net.world.lock().hosts[self.index].setup.v4.into()
    }

    /// Its IPv6 address.
    pub fn addr_v6(&self) -> IpAddr {
        self.net.world.lock().hosts[self.index].setup.v6.into()
    }

    /// A port of its IPv4 address.
    pub fn at(&self, port: u16) -> SocketAddr {
        SocketAddr::new(self.addr(), port)
    }

    /// Its stack, while it is up. A program that keeps it over a crash has the stack of a dead host, which sends
    /// nothing.
    pub fn stack(&self) -> Option<Stack> {
        self.net.world.lock().hosts[self.index].stack.clone()
    }

    /// Starts a program on it: the program's connects and binds are on this host, as `TcpStream::connect` and
    /// `UnixListener::bind`. A host that is down starts nothing: the program is dropped, and the handle says [`Aborted`](crate::Aborted) at once. See
    /// [`program`](Self::program) for one that starts with the host.
    pub fn spawn<F: Future + 'static>(&self, program: F) -> JoinHandle<F::Output> {
        self.net.tasks.spawn(Some(self.index), program)
    }

    /// Whether it is up.
    pub fn is_up(&self) -> bool {
        self.net.world.lock().hosts[self.index].stack.is_some()
    }

    /// Cuts its power: its programs end where they stand, its stack is gone without a word, and with it the
    /// names of its UNIX-domain sockets. Their destructors run afterwards, without effect on its disk. Its disk keeps what was synced, and of the rest what the seed draws ([`fs`](crate::fs)). If a program of its own calls this, it ends at its next `await`.
    pub fn crash(&self) {
        let mut state = self.net.world.lock();
        let host = &mut state.hosts[self.index];
        host.life += 1;
        host.is_paused = false;
        host.parked.clear();
        let remains = (host.stack.take(), std::mem::take(&mut host.inbox), std::mem::take(&mut host.signals));
        let lost = host.disk.lose_power();
        state.fault(Some(self.index), "crashed");
        if let Some(lost) = lost {
            state.fault(Some(self.index), lost);
        }
        drop(state);
        self.net.tasks.doom_host(self.index);
        if let Some(runtimes) = &self.net.tasks.runtimes {
            runtimes.doom(self.index);
        }
        drop(remains);
    }

    /// Starts it again: after a crash with the same addresses and a new stack, after [`kill`](Self::kill) with the stack that it has. Its
    /// [`program`](Self::program) starts anew; others have to be started.
    ///
    /// # Panics
    /// If it is up, and its programs were not killed.
    pub fn restart(&self) {
        let mut state = self.net.world.lock();
        let host = &mut state.hosts[self.index];
        let (is_up, is_killed) = (host.stack.is_some(), std::mem::take(&mut host.is_killed));
        let name = host.name.clone();
        assert!(!is_up || is_killed, "{name} is up: crash or kill it first");
        state.fault(Some(self.index), "started again");
        drop(state);
        if !is_up {
            self.start().expect("the settings were valid before");
        }
        self.start_program();
    }

    fn start(&self) -> io::Result<()> {
        let world = &self.net.world;
        let state = world.lock();
        let host = &state.hosts[self.index];
        let (setup, life) = (host.setup.clone(), host.life);
        drop(state);
        let mut secret = Rng::new(world.seed).fork(self.index as u64).fork(u64::from(life));
        let mut seed = [0; 16];
        secret.fill(&mut seed);
        let stack = Stack::seeded(setup.config, seed)?;
        HostNames::serve(world, &stack);
        HostSignals::serve(world, Some(self.index), &stack);
        stack.set_driver_wake(Some(World::waker_of(world, self.index, life)));
        let port = Port::new(world, self.index, life, setup.mtu, setup.offload);
        let prefix = |addr: IpAddr, len| Prefix::new(addr, len).map_err(io::Error::other);
        stack.attach(port, &[prefix(setup.v4.into(), 8)?, prefix(setup.v6.into(), 64)?])?;
        let mut state = world.lock();
        let host = &mut state.hosts[self.index];
        (host.stack, host.wake_at, host.clock) = (Some(stack), Nanos::MAX, Nanos::MAX);
        state.mark(self.index);
        drop(state);
        self.start_runtime();
        Ok(())
    }

    /// Makes the runtime for a new process of it.
    pub(crate) fn start_runtime(&self) {
        let Net { world, tasks } = &self.net;
        let Some(runtimes) = &tasks.runtimes else { return };
        let state = world.lock();
        let host = &state.hosts[self.index];
        let now = host.local.monotonic(state.now);
        let (life, process) = (host.life, host.life + host.processes);
        drop(state);
        let (host, tasks) = (Some(self.index), Some(Rc::clone(tasks)));
        let ambient = Ambient { world: Arc::clone(world), host, life, tasks };
        ambient.scope(|| runtimes.start(host, now, life, process));
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host").field("name", &self.name()).field("addr", &self.addr()).finish_non_exhaustive()
    }
}

/// A link between two hosts.
#[derive(Clone, Debug)]
pub struct Link {
    there: Direction,
    back: Direction,
}

impl Link {
    /// From the first host that was named to the second.
    pub fn there(&self) -> &Direction {
        &self.there
    }

    /// From the second to the first.
    pub fn back(&self) -> &Direction {
        &self.back
    }

    /// Changes both directions, from now on.
    pub fn update(&self, mut change: impl FnMut(&mut LinkConfig)) {
        self.there.update(&mut change);
        self.back.update(change);
    }

    /// Cuts both directions. Packets on their way still arrive.
    pub fn cut(&self) {
        self.there.cut();
        self.back.cut();
    }

    /// Mends both directions.
    pub fn heal(&self) {
        self.there.heal();
        self.back.heal();
    }
}

/// One direction of a link.
#[derive(Clone)]
pub struct Direction {
    world: Arc<World>,
    pipe: usize,
}

impl Direction {
    /// Changes its settings, from now on.
    pub fn update(&self, change: impl FnOnce(&mut LinkConfig)) {
        change(&mut self.world.lock().pipes[self.pipe].config);
    }

    /// Asks `filter` about every packet from now on, in place of an earlier one. It must not use the network.
    pub fn filter(&self, filter: impl FnMut(&Packet<'_>) -> Fate + Send + 'static) {
        let old = self.world.lock().pipes[self.pipe].filter.replace(Box::new(filter));
        drop(old);
    }

    /// Removes the filter.
    pub fn clear_filter(&self) {
        let old = self.world.lock().pipes[self.pipe].filter.take();
        drop(old);
    }

    /// Cuts it. Packets on their way still arrive.
    pub fn cut(&self) {
        self.world.lock().set_up(self.pipe, false);
    }

    /// Mends it.
    pub fn heal(&self) {
        self.world.lock().set_up(self.pipe, true);
    }

    /// Fate of its packets.
    pub fn stats(&self) -> LinkStats {
        self.world.lock().pipes[self.pipe].stats
    }
}

impl fmt::Debug for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Direction").field(&self.world.lock().pipes[self.pipe].name).finish()
    }
}
