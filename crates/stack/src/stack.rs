//! The stack: the shared state of its sockets, and the handle by which applications hold it.
//!
//! [`Core`] owns the tables; nothing in it points back at a handle. [`Stack`] is a counted handle (`rt/handle.rs`);
//! every socket holds one, so a stack lives as long as its last socket. When the last handle goes, the
//! workers are stopped and whatever is still closing in the background ends without ceremony: in a
//! stack whose only interface is loopback there is no peer left to notice, and over an interface the
//! peer finds out as it would if a host lost its power.

mod duties;
mod protocols;
#[cfg(unix)]
mod rights;
mod scope;
pub(crate) mod snapshot;

use std::io;
use std::ops::Deref;
use std::time::Duration;

use sockeye_mbuf::PoolStats;
use sockeye_proto::tcp::port_choice::PortRange;
use sockeye_proto::time::Instant;
use sockeye_sync::facade::{Arc, OnceLock, Weak};
use sockeye_sync::fork::PerProcess;

use crate::base::addr::HashKey;
use crate::base::clock::Clock;
use crate::base::entropy::Entropy;
use crate::config::Config;
use crate::config::fastopen::Keys;
use crate::inet;
use crate::inet::link::{self, LinkOptions};
use crate::inet::netif::device::Device;
use crate::inet::netif::{Netif, NetifId, Prefix, RpFilter};
use crate::rt::discipline::{Chosen, Discipline};
use crate::rt::env::Env;
use crate::rt::fork;
use crate::rt::handle::{Layer, Stack};
use crate::rt::panics::{self, PanicReport, PanicSource};
use crate::rt::resolve::Resolve;
#[cfg(all(feature = "tokio", unix))]
use crate::rt::signals::Signals;
use crate::tcp;
use crate::udp;
#[cfg(unix)]
use crate::unix;
use snapshot::SocketInfo;

/// All that the sockets of a stack share; the environment [keeps](crate::rt::env::Env::keep) the parts of UNIX-domain sockets and UDP.
pub(crate) struct Core {
    tcp: tcp::Core,
    /// See [`Core::share_core`].
    this: OnceLock<Weak<Core>>,
}

impl Deref for Core {
    type Target = tcp::Core;
    #[inline]
    fn deref(&self) -> &tcp::Core {
        &self.tcp
    }
}

impl Layer for Core {
    const AT: usize = 3;
}

/// A child process makes its own: of its parent's it has no threads.
static DEFAULT: PerProcess<Stack> = PerProcess::new();

impl Stack {
    /// A new stack, with its own loopback: sockets of different stacks cannot reach each other.
    ///
    /// # Errors
    /// `InvalidInput` if a field of `config` is out of its bounds; the system's error if there is no
    /// entropy or a worker thread cannot be started.
    pub fn new(config: Config) -> io::Result<Self> {
        Self::start(config, None)
    }

    /// A stack without threads that is deterministic: with the same input it does the same. Hash keys, sequence numbers
    /// and ports come from `seed`, and the time from [`poll`](Self::poll), not from the system; the CPU on which it is
    /// called makes no difference. It is for simulations and tests: anyone with the seed knows all its secrets.
    ///
    /// # Errors
    /// `InvalidInput` if a field of `config` is out of its bounds, or `workers` is not 0.
    pub fn seeded(config: Config, seed: [u8; 16]) -> io::Result<Self> {
        if config.workers != 0 {
            let message =
                format!("Config::workers is {}: a seeded stack has none, set it to 0", config.workers);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        Self::start(config, Some(seed))
    }

    fn start(config: Config, seed: Option<[u8; 16]>) -> io::Result<Self> {
        config.validate()?;
        let workers = config.workers;
        let core = Arc::new(Core::new(config, seed)?);
        let weak = Arc::downgrade(&core);
        let _ = core.this.set(weak.clone());
        core.set_above(Box::new(duties::Asked(weak.clone())));
        core.set_protocols(Box::new(protocols::Asked(weak.clone())));
        core.pool.set_on_refused(move || {
            if let Some(core) = weak.upgrade() {
                core.pruner.ask(&core);
            }
        });
        let stack = Self::of(Arc::clone(&core));
        for index in 0..workers {
            let core = Arc::clone(&core);
            stack.spawn(format!("sockeye-{index}"), None, move || core.workers.run(&*core, index))?;
        }
        Ok(stack)
    }

    /// The process's default stack, made with [`Config::default`] at first use. A child of fork(2) has its own.
    ///
    /// # Panics
    /// If that fails: there is no entropy, or no thread can be started.
    pub fn global() -> &'static Self {
        DEFAULT.get_or_init(|| {
            Self::new(Config::default()).expect("the default stack needs entropy and worker threads")
        })
    }

    /// [`global`](Self::global), if it has been used.
    #[cfg(all(feature = "tokio", unix))]
    pub(crate) fn global_if_used() -> Option<&'static Self> {
        DEFAULT.get()
    }

    /// Does the work that is due, for a stack with `workers = 0`. `now` is the time since the stack was made, by the
    /// driver's clock, and must not go back. Returns the time of the next call, or `None` if only a call of the
    /// application or another `poll` can bring work. Never blocks.
    ///
    /// Calls on sockets between two polls take the earlier one's `now` for the present, unless the stack knows the
    /// driver's clock ([`set_driver_clock`](Self::set_driver_clock)).
    pub fn poll(&self, now: Duration) -> Option<Duration> {
        let core = self.core::<Core>().ok()?;
        core.clock.advance_to(now);
        let now = Clock::at(now);
        let mut due = Vec::new();
        let mut next: Option<Instant> = None;
        if core.config.workers == 0 {
            core.workers.driver_came();
            let more =
                panics::contain(core, PanicSource::Protocol, "input", || core.input.poll::<tcp::Core>(core));
            // There may be work behind the part that panicked.
            next = more.unwrap_or(true).then_some(now);
            for lane in 0..core.workers.lane_count() {
                let turn = || core.workers.turn(core, lane, &mut due);
                let at = panics::contain(core, PanicSource::Protocol, "a turn of the timers", turn).flatten();
                next = core.workers.schedule(core, lane, next.into_iter().chain(at).min(), now);
            }
            core.workers.tell_driver(core);
        }
        next.map(Clock::since_start)
    }

    /// Sets `wake`, which the stack calls when [`poll`](Self::poll) is needed earlier than its last answer said; `None`
    /// removes it. The reason may be that a call of the application, on any thread, has set an earlier timer or left
    /// work, attached an interface, or put a frame into a channel, or that a frame has arrived by a wire. The stack
    /// calls it at most once for each answer, so a loop that polls after each wake-up misses nothing:
    ///
    /// ```text
    /// set_driver_wake(write to an eventfd)
    /// loop { next = poll(now); wait for the eventfd, the devices or next }
    /// ```
    ///
    /// `wake` runs at the end of that call, on its thread and with no lock of the stack held. It may use sockets, call
    /// `poll`, and replace itself; a panic in it is caught and reported ([`set_panic_hook`](Self::set_panic_hook)).
    /// While it blocks, the call blocks, too. For frames that arrive at a device, the device's descriptor becomes
    /// readable instead. A stack with workers never calls it.
    pub fn set_driver_wake(&self, wake: Option<impl Fn() + Send + Sync + 'static>) {
        if let Ok(core) = self.core::<Core>() {
            core.workers.set_driver(core, wake.map(|wake| Box::new(wake) as crate::rt::workers::Driver));
        }
    }

    /// Tells a stack without threads the driver's clock: with `Some(start)`, a call on a socket is made when
    /// [`Instant::now`](std::time::Instant::now) says, and not when the last [`poll`](Self::poll) was. `start` is the
    /// moment from which the driver counts its `now`, which is `start.elapsed()` then. `None`, the default, leaves the
    /// time to `poll` alone, as simulations need it; the clock stands still from the last reading on. Never blocks.
    ///
    /// A loop that calls `poll` before anything else whenever it is awake need not set it. One beside which other tasks
    /// or threads use sockets should: what they send would be taken to have been sent when the loop was awake last, and
    /// be repeated at once as if its answer were late. With the feature `tokio` the clock is that of
    /// `tokio::time::Instant`, which tests can pause. A stack with workers has the system's clock in any case.
    pub fn set_driver_clock(&self, start: Option<std::time::Instant>) {
        if let Ok(core) = self.core::<Core>() {
            core.clock.follow(start.map(|start| (start, Duration::ZERO)));
        }
    }

    /// Sets `hook`, which the stack calls once for each panic that it catches; `None` removes it.
    ///
    /// The stack catches panics in the application's wakers, hooks and interfaces, and panics in its own protocol code,
    /// which end the affected connection with an error. It counts each (`panics_foreign`, `panics_protocol`) with or
    /// without a hook. Rust's own panic hook has printed it before.
    ///
    /// `hook` is called on the thread that caught the panic, with no lock of the stack held: it may block, use sockets,
    /// panic, and replace itself. A panic in it is counted but not reported.
    pub fn set_panic_hook(&self, hook: Option<impl Fn(&PanicReport) + Send + Sync + 'static>) {
        if let Ok(core) = self.core::<Core>() {
            core.panics.set_hook(hook.map(|hook| Box::new(hook) as Box<crate::rt::panics::Hook>));
        }
    }

    /// Sets the resolver for host names in all calls on this stack, blocking and tokio's. `None` sets the machine's
    /// resolver, which is the default. [`Resolve`] describes how it is called. Calls that are using another resolver
    /// continue with it.
    ///
    /// The machine's resolver, that of `std`, blocks. A task on a tokio runtime calls it on one of the runtime's
    /// threads for blocking work.
    pub fn set_resolver(&self, resolver: Option<Box<dyn Resolve>>) {
        match self.core::<Core>() {
            Ok(core) => core.resolver.set(resolver),
            Err(_lost) => panics::discard(resolver),
        }
    }

    /// Sets the source of signals that programs on this stack request with
    /// [`sockeye::tokio::signal`](crate::tokio::signal): `signals`, or with `None` the process, which is the default.
    /// See [`Signals`]. Earlier requests keep their source.
    #[cfg(all(feature = "tokio", unix))]
    pub fn set_signals(&self, signals: Option<Box<dyn Signals>>) {
        match self.core::<Core>() {
            Ok(core) => core.signals.set(signals),
            Err(_lost) => panics::discard(signals),
        }
    }

    /// The counters: names and counts, in a fixed order. Counts of different threads are not read at the same moment.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        let Ok(core) = self.core::<Core>() else { return Vec::new() };
        let pool = core.pool.stats();
        core.counts()
            .chain(core.input.counts())
            .chain(core.ip.counts())
            .chain(udp::shared(core).counts())
            .chain(core.links.counts())
            .chain(pool_counters(&pool))
            .chain(Chosen::pool_counters(&pool))
            .collect()
    }

    /// Attaches an interface with these addresses, each with its network: `10.0.0.1/24`. Starts an input thread for
    /// each of its receive queues, unless the stack has no threads. An interface stays until the stack is dropped;
    /// connections that are still closing then do not finish (keep a handle as long as they need).
    ///
    /// # Errors
    /// `InvalidInput` for an address that the stack already has or that is not a host's, or an interface out of bounds;
    /// `QuotaExceeded` beyond 16 interfaces, 64 addresses or 128 routes; `Other` if one of the interface's methods has
    /// panicked. The interface is dropped then. The system's error if a thread cannot be started: the interface then has no
    /// address and is not used, and is dropped with the stack.
    pub fn attach(&self, netif: impl Netif, addrs: &[Prefix]) -> io::Result<NetifId> {
        self.attach_with(netif, addrs, &LinkOptions::default())
    }

    /// [`attach`](Self::attach) with options for the stack's behaviour on the link. On Ethernet, the stack also gives
    /// itself a link-local address, checks whether other hosts have its addresses, and listens to routers.
    ///
    /// # Errors
    /// As [`attach`](Self::attach).
    pub fn attach_with(
        &self,
        netif: impl Netif,
        addrs: &[Prefix],
        options: &LinkOptions,
    ) -> io::Result<NetifId> {
        let core: &Core = self.core::<Core>()?;
        let shared = core.share_core().ok_or_else(fork::lost)?;
        let netif = Device::ask(core, netif, &panics::waking(&shared))?;
        let (medium, queues) = (netif.medium(), netif.queue_count());
        let prepare = |id| {
            link::attach(core, id, medium, options);
            core.input.add(id, queues);
        };
        let added = core.netifs.add(netif, addrs, options.rp_filter, prepare);
        let id = added.map_err(|(error, netif)| {
            panics::release(core, PanicSource::Netif, "drop of a Netif", netif);
            error
        })?;
        self.start_input(&shared, id, queues).inspect_err(|_| {
            core.netifs.withdraw(id);
        })?;
        link::begin(core, id, addrs, options);
        // It has frames already, perhaps, and a driver that waits does not know it yet.
        core.workers.ask_driver(core);
        Ok(id)
    }

    /// Starts the input threads of an interface, if the stack has threads.
    fn start_input(&self, shared: &Arc<Core>, id: NetifId, queues: usize) -> io::Result<()> {
        for queue in (0..queues).filter(|_| shared.config.workers > 0) {
            let name = format!("sockeye-in{}.{queue}", id.index());
            let core = Arc::clone(shared);
            let life = move || core.input.run::<tcp::Core>(&core, id, queue);
            self.spawn(name, Some(id.index() as u16), life)?;
        }
        Ok(())
    }

    /// Accepts packets to any host's address on `netif`, not only to the stack's own: a proxy or gateway behind a TUN
    /// device needs this. Addresses that cannot be another host's are excluded, such as loopback, link-local and
    /// IPv4-mapped ones (the table is in `docs/addresses.md`).
    /// [`TcpSocket::set_transparent`](crate::TcpSocket::set_transparent) describes which sockets get the packets. On an
    /// interface with link addresses, packets must still have the stack's own link address.
    ///
    /// # Errors
    /// `InvalidInput` if the interface is another stack's.
    pub fn set_any_address(&self, netif: NetifId, any: bool) -> io::Result<()> {
        self.core::<Core>()?.netifs.set_takes_any(netif, any)
    }

    /// Sets the source check for packets that arrive by `netif`, from the next batch of frames on. To have it from the
    /// first frame on, attach with [`LinkOptions::rp_filter`].
    ///
    /// # Errors
    /// `InvalidInput` if the interface is another stack's.
    pub fn set_rp_filter(&self, netif: NetifId, filter: RpFilter) -> io::Result<()> {
        self.core::<Core>()?.netifs.set_rp_filter(netif, filter)
    }

    /// The source check of an interface.
    ///
    /// # Errors
    /// `InvalidInput` if the interface is another stack's.
    pub fn rp_filter(&self, netif: NetifId) -> io::Result<RpFilter> {
        self.core::<Core>()?.netifs.rp_filter(netif)
    }

    /// Lists the sockets and their states: for diagnosis, not for a hot path. Each entry is the state at one moment;
    /// the list as a whole is not. Locks every shard of the table for a moment, and with `details` also every
    /// connection.
    pub fn sockets(&self, details: bool) -> Vec<SocketInfo> {
        self.core::<Core>().map_or_else(|_lost| Vec::new(), |core| snapshot::sockets(core, details))
    }

    /// Number of connections that are not closed yet, without half-open ones and those in TIME-WAIT.
    pub fn connection_count(&self) -> usize {
        self.core::<Core>().map_or(0, |core| core.demux.len())
    }

    /// Bytes of packet memory in use by data.
    pub fn memory_in_use(&self) -> usize {
        self.core::<Core>().map_or(0, |core| core.pool.in_use())
    }

    /// Bytes of packet memory on remote-free lists: they hold no data, and wait for the core that allocated them
    /// (`Experiments::rx_free`). Only with the feature `experiments`.
    #[cfg(feature = "experiments")]
    pub fn memory_remote_listed(&self) -> usize {
        self.core::<Core>().map_or(0, |core| core.pool.stats().remote_listed())
    }

    /// Returns packet memory that is kept for reuse to the system.
    pub fn trim(&self) {
        if let Ok(core) = self.core::<Core>() {
            core.pool.trim();
        }
    }

    /// Changes to a new key for Fast Open's cookies (RFC 7413 section 4.1.2: do this from time to time). Clients with a
    /// cookie of the previous key get a new one at their next connect; older cookies become invalid.
    pub fn rotate_fastopen_key(&self) {
        if let Ok(core) = self.core::<Core>() {
            core.rotate_fast_open_key();
        }
    }

    /// Sets the keys of Fast Open's cookies (`tcp_fastopen_key`) of all listeners that have none of their own
    /// ([`TcpListener::set_fastopen_keys`](crate::TcpListener::set_fastopen_keys)). Cookies of other keys become
    /// invalid: to keep those of the present key valid, pass it as the backup. Never blocks for long.
    pub fn set_fastopen_keys(&self, keys: Keys) {
        if let Ok(core) = self.core::<Core>() {
            core.fast_open_keys.set(keys);
        }
    }

    /// Removes what Fast Open has learnt about servers: cookies, MSS, and which of them text on a SYN did not reach
    /// (`ip tcp_metrics flush`).
    pub fn clear_fastopen_cache(&self) {
        if let Ok(core) = self.core::<Core>() {
            core.fast_open_cache.clear();
        }
    }
}

impl std::fmt::Debug for Stack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stack").field("connections", &self.connection_count()).finish_non_exhaustive()
    }
}

impl Core {
    fn new(config: Config, seed: Option<[u8; 16]>) -> io::Result<Self> {
        let mut entropy = match seed {
            Some(seed) => Entropy::of(seed),
            None => Entropy::draw()?,
        };
        let env = Env::new(config, &mut entropy, seed.is_some());
        let range = PortRange::new(*env.config.port_range.start(), *env.config.port_range.end())
            .ok_or(io::ErrorKind::InvalidInput)?;
        let tcp = tcp::Core::new(inet::Core::new(env), range, &mut entropy);
        #[cfg(unix)]
        tcp.keep(unix::Shared::new(HashKey(entropy.u64(), entropy.u64())));
        tcp.keep(udp::Shared::new(range, entropy.bytes(), HashKey(entropy.u64(), entropy.u64())));
        Ok(Self { tcp, this: OnceLock::new() })
    }

    /// Itself, for threads of the stack and objects that may outlive its handles by a little.
    fn share_core(&self) -> Option<Arc<Self>> {
        self.this.get()?.upgrade()
    }

    /// Changes the secret behind new numbers: sequence numbers, timestamp offsets and cookies, ports, identifiers. The
    /// keys by which tables are searched stay.
    pub fn rekey(&self, entropy: &mut Entropy) {
        let ports = &self.config.port_range;
        self.set_secret(entropy.bytes());
        self.tcp.rekey(entropy);
        self.ip.rekey(|| entropy.u64());
        // Checked when the stack was made.
        if let Some(range) = PortRange::new(*ports.start(), *ports.end()) {
            self.ports.rekey(range, || entropy.bytes());
            udp::shared(self).rekey(range, || entropy.bytes());
        }
    }
}

/// The counters of packet memory, all sizes together.
fn pool_counters(stats: &PoolStats) -> [(&'static str, u64); 6] {
    let sum = |f: fn(&sockeye_mbuf::ClassStats) -> u64| stats.classes.iter().map(f).sum();
    [
        ("mbuf_allocated", sum(|c| c.allocs())),
        ("mbuf_fresh", sum(|c| c.fresh)),
        ("mbuf_depot_loads", sum(|c| c.depot_loads)),
        ("mbuf_depot_stores", sum(|c| c.depot_stores)),
        ("mbuf_local_frees", sum(|c| c.local_frees)),
        ("mbuf_remote_frees", sum(|c| c.remote_frees)),
    ]
}
