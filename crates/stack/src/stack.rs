//! The stack: what all its sockets share, and the handle by which applications hold it.
//!
//! [`Core`] owns the tables; nothing in it points back at a handle. [`Stack`] is a counted handle (`handle.rs`);
//! every socket holds one, so a stack lives as long as its last socket. When the last handle goes, the
//! workers are stopped and whatever is still closing in the background ends without ceremony: in a
//! stack whose only interface is loopback there is nobody left to notice, and over an interface the
//! peer finds out as it would if a host lost its power.

pub(crate) mod counter;
mod handle;
mod scope;

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use sockeye_mbuf::{Pool, PoolConfig, PoolStats};
use sockeye_proto::seq::SeqNum;
use sockeye_proto::tcp::accepted::{Accepted, DEFAULT_MSS, DEFAULT_MSS_V6};
use sockeye_proto::tcp::ecn::EcnMode;
use sockeye_proto::tcp::isn::Secret;
use sockeye_proto::tcp::port_choice::PortRange;
use sockeye_proto::tcp::segment::Header;
use sockeye_proto::tcp::settings::Settings;
use sockeye_proto::tcp::syncache::{ListenParams, cookie};
use sockeye_proto::tcp::window::window_scale_for;
use sockeye_proto::time::Instant;
use sockeye_sync::facade::Arc;
use sockeye_sync::fork::PerProcess;
use sockeye_sync::{Counters, Perimeter, Serials};

use crate::base::addr::{FourTuple, HashKey, octets};
use crate::base::clock::Clock;
use crate::base::entropy::{Entropy, Key};
use crate::config::{Config, Grain};
use crate::inet::input::Input;
use crate::inet::ip::Ip;
use crate::inet::ip::path_mtu::{FLOOR_V4, FLOOR_V6};
use crate::inet::link::{self, LinkOptions, Links};
use crate::inet::netif::device::Device;
use crate::inet::netif::loopback::Loopback;
use crate::inet::netif::table::{Link, Netifs, Via};
use crate::inet::netif::{Netif, NetifId, Prefix, RpFilter};
use crate::rt::fork;
use crate::rt::memory::MemoryWaiters;
use crate::rt::panics::{self, PanicReport, PanicSource, Panics};
use crate::rt::workers::Workers;
use crate::snapshot::SocketInfo;
use crate::switches::Entry;
use crate::tcp::conn::{Home, Item};
use crate::tcp::handshake::fastopen;
use crate::tcp::prune::Pruner;
use crate::tcp::recycle::Recycler;
use crate::tcp::tables::demux::Demux;
use crate::tcp::tables::ports::Ports;

pub use handle::Stack;
pub(crate) use handle::WeakStack;

/// What all sockets of a stack share.
pub(crate) struct Core {
    pub config: Config,
    /// How an application's threads enter perimeters: `Config::entry`, or `Process` where there is no worker.
    pub entry: Entry,
    /// Segments may be left with a reader who waits.
    pub hosts: bool,
    pub clock: Clock,
    pub key: HashKey,
    secret: Key,
    /// Which process the stack is in.
    pub home: fork::Home,
    pub pool: Pool,
    pub memory_waiters: MemoryWaiters,
    pub pruner: Pruner,
    /// What becomes of buffers that one core used up and another allocated.
    pub recycler: Recycler,
    pub demux: Demux,
    /// Numbers of connections.
    pub conn_serials: Serials,
    pub ports: Ports,
    pub workers: Workers,
    pub loopback: Loopback,
    pub unix: crate::unix::Shared,
    pub udp: crate::udp::Shared,
    pub netifs: Netifs,
    pub input: Input,
    /// A client's cookies of Fast Open.
    pub fast_open_cache: fastopen::Cache,
    /// A server's keys of them.
    pub fast_open_keys: fastopen::Keys,
    pub ip: Ip,
    pub links: Links,
    /// Whom the application has named to hear of panics.
    pub panics: Panics,
    counters: Counters<{ counter::COUNT }>,
    /// The shared perimeters of the grains `Global` and `PerCore`.
    perimeters: Box<[Arc<Perimeter<Item>>]>,
    /// The CPU to take every thread for, where what happens may not depend on that.
    pinned: Option<u32>,
}

/// A child process makes its own: of its parent's it has no threads.
static DEFAULT: PerProcess<Stack> = PerProcess::new();

impl Stack {
    /// A stack of its own, with its own loopback: sockets of different stacks do not meet.
    ///
    /// # Errors
    /// `InvalidInput` if a field of `config` is out of its bounds; the system's error if there is no
    /// entropy or a worker thread cannot be started.
    pub fn new(config: Config) -> io::Result<Self> {
        Self::start(config, None)
    }

    /// A stack without threads that does the same whenever it is told the same: hash keys, sequence numbers and
    /// ports come from `seed`, the time from [`poll`](Self::poll), and neither from the system; on which CPU it is
    /// called makes no difference. For simulations and tests: whoever knows the seed knows all its secrets.
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
        let stack = Self::of(Core::new(config, seed)?);
        let weak = Arc::downgrade(&stack.share_core());
        stack.core()?.pool.set_on_refused(move || {
            if let Some(core) = weak.upgrade() {
                core.pruner.ask(&core);
            }
        });
        for index in 0..workers {
            stack.spawn(format!("sockeye-{index}"), None, move |core| core.workers.run(core, index))?;
        }
        Ok(stack)
    }

    /// The process's default stack, made with [`Config::default`] at first use. A child of fork(2) has one of its own.
    ///
    /// # Panics
    /// If that fails: there is no entropy, or no thread can be started.
    pub fn global() -> &'static Self {
        DEFAULT.get_or_init(|| {
            Self::new(Config::default()).expect("the default stack needs entropy and worker threads")
        })
    }

    /// Does what is due, for a stack with `workers = 0`: `now` is the time since the stack was made, as
    /// its driver counts it, and never goes back. Returns the time at which to call again, `None` if
    /// only a call of the application or another `poll` can bring work. Never blocks.
    pub fn poll(&self, now: Duration) -> Option<Duration> {
        let core = self.core().ok()?;
        core.clock.advance_to(now);
        let mut due = Vec::new();
        let mut next: Option<Instant> = None;
        if core.config.workers == 0 {
            core.workers.driver_came();
            let more = panics::contain(core, PanicSource::Protocol, "input", || core.input.poll(core));
            // Of what panicked nobody knows whether it was all.
            next = more.unwrap_or(true).then(|| core.clock.now());
            for lane in 0..core.workers.lane_count() {
                let turn = || core.workers.turn(core, lane, &mut due);
                let at = panics::contain(core, PanicSource::Protocol, "a turn of the timers", turn).flatten();
                next = core.workers.told(core, lane, next.into_iter().chain(at).min());
            }
            core.workers.tell_driver(core);
        }
        next.map(Clock::since_start)
    }

    /// Has `wake` called whenever [`poll`](Self::poll) is wanted earlier than its last answer said, because a call of
    /// the application, on whatever thread, has set an earlier timer or left work behind; `None` takes it away. Called at
    /// most once for each answer, so a loop that polls after each wake-up misses nothing:
    ///
    /// ```text
    /// set_driver_wake(write to an eventfd)
    /// loop { next = poll(now); wait for the eventfd, the devices or next }
    /// ```
    ///
    /// `wake` runs at the end of that call, on its thread and with no lock of the stack held. It may use sockets and call
    /// `poll`, and replace itself; a panic in it is caught and reported ([`set_panic_hook`](Self::set_panic_hook)). While it
    /// blocks, so does the call. Frames that arrive are not told here but by their interface, and a stack with workers never
    /// calls it.
    pub fn set_driver_wake(&self, wake: Option<impl Fn() + Send + Sync + 'static>) {
        if let Ok(core) = self.core() {
            core.workers.set_driver(core, wake.map(|wake| Box::new(wake) as crate::rt::workers::Driver));
        }
    }

    /// Has `hook` called once for each panic that the stack catches; `None` takes it away.
    ///
    /// The stack catches panics of the application's wakers, hooks and interfaces where it calls them, and panics of its own
    /// protocol code, which end the connection concerned with an error. Each is counted (`panics_foreign`, `panics_protocol`)
    /// whether there is a hook or not, and Rust's own panic hook has printed it before.
    ///
    /// `hook` is called on the thread that caught the panic, with no lock of the stack held: it may block, use sockets and panic,
    /// and replace itself. A panic in it is counted and not reported.
    pub fn set_panic_hook(&self, hook: Option<impl Fn(&PanicReport) + Send + Sync + 'static>) {
        if let Ok(core) = self.core() {
            core.panics.set_hook(hook.map(|hook| Box::new(hook) as Box<crate::rt::panics::Hook>));
        }
    }

    /// What happened so far: names and counts, in a fixed order. Counts of different threads are not
    /// taken at one moment.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        let Ok(core) = self.core() else { return Vec::new() };
        let own = counter::NAMES.iter().enumerate().map(|(i, name)| (*name, core.counters.sum(i)));
        own.chain(core.input.counts())
            .chain(core.ip.counts())
            .chain(core.udp.counts())
            .chain(core.links.counts())
            .chain(pool_counters(&core.pool.stats()))
            .collect()
    }

    /// Gives the stack an interface with these addresses, each with its network: `10.0.0.1/24`. Starts an
    /// input thread for each of its receive queues, unless the stack has no threads. An interface stays until the
    /// stack goes; connections that are still closing then do not finish (keep a handle as long as they should).
    ///
    /// # Errors
    /// `InvalidInput` for an address that is the stack's already or no host's, or an interface out of bounds;
    /// `QuotaExceeded` beyond 16 interfaces, 64 addresses or 128 routes; `Other` if one of the interface's methods has
    /// panicked; the system's error if a thread cannot be started. The interface then has no address, and is not used.
    pub fn attach(&self, netif: impl Netif, addrs: &[Prefix]) -> io::Result<NetifId> {
        self.attach_with(netif, addrs, &LinkOptions::default())
    }

    /// [`attach`](Self::attach) with a say in how the stack behaves on the link. If that is Ethernet, it also gives itself a
    /// link-local address there, looks whether other hosts have its addresses, and listens to routers.
    ///
    /// # Errors
    /// As [`attach`](Self::attach).
    pub fn attach_with(
        &self,
        netif: impl Netif,
        addrs: &[Prefix],
        options: &LinkOptions,
    ) -> io::Result<NetifId> {
        let core = self.core()?;
        let netif = Device::ask(core, netif, &panics::waking(&self.share_core()))?;
        let medium = netif.medium();
        let id = core.netifs.add(netif)?;
        core.netifs.set_rp_filter(id, options.rp_filter)?;
        link::attach(core, id, medium, options);
        let queues = core.netifs.netif(id).map_or(0, |netif| netif.queue_count());
        core.input.add(id, queues);
        for queue in (0..queues).filter(|_| core.config.workers > 0) {
            let name = format!("sockeye-in{}.{queue}", id.index());
            self.spawn(name, Some(id), move |core| core.input.run(core, id, queue))?;
        }
        core.netifs.assign(id, addrs)?;
        link::begin(core, id, addrs, options);
        Ok(id)
    }

    /// Takes in packets to every host's address on `netif`, and not only those to the stack's own: what a proxy or
    /// gateway behind a TUN device needs. An address that cannot be a host's elsewhere is never among them: of the loopback, of
    /// a link, IPv4-mapped or the like (the table is in `docs/addresses.md`). Which sockets get them is said there:
    /// [`TcpSocket::set_transparent`](crate::TcpSocket::set_transparent). On an interface with link addresses they still
    /// have to be addressed to the stack's own.
    ///
    /// # Errors
    /// `InvalidInput` if the interface is another stack's.
    pub fn set_any_address(&self, netif: NetifId, any: bool) -> io::Result<()> {
        self.core()?.netifs.set_takes_any(netif, any)
    }

    /// Sets what is asked of the sources of packets that come in by `netif`, from the next batch of frames on. To have it from
    /// the first frame on, attach with [`LinkOptions::rp_filter`].
    ///
    /// # Errors
    /// `InvalidInput` if the interface is another stack's.
    pub fn set_rp_filter(&self, netif: NetifId, filter: RpFilter) -> io::Result<()> {
        self.core()?.netifs.set_rp_filter(netif, filter)
    }

    /// What is asked of them.
    ///
    /// # Errors
    /// `InvalidInput` if the interface is another stack's.
    pub fn rp_filter(&self, netif: NetifId) -> io::Result<RpFilter> {
        self.core()?.netifs.rp_filter(netif)
    }

    /// What sockets there are, and what they do: for people who look, not for a hot path. Each entry is true of one
    /// moment, the list as a whole of none. Takes every shard of the table for a moment, and with `details` the
    /// perimeter of every connection.
    pub fn sockets(&self, details: bool) -> Vec<SocketInfo> {
        self.core().map_or_else(|_lost| Vec::new(), |core| crate::snapshot::sockets(core, details))
    }

    /// Connections that are not closed yet, half-open ones and TIME-WAIT not counted.
    pub fn connection_count(&self) -> usize {
        self.core().map_or(0, |core| core.demux.len())
    }

    /// Bytes of packet memory in use by data.
    pub fn memory_in_use(&self) -> usize {
        self.core().map_or(0, |core| core.pool.in_use())
    }

    /// Bytes of packet memory that hold no data and wait for the core that allocates (`Config::rx_free`).
    pub fn memory_parked(&self) -> usize {
        self.core().map_or(0, |core| core.pool.stats().parked())
    }

    /// Takes the pathname of a UNIX-domain socket out of the stack's names: it can be bound again. The socket
    /// goes on.
    ///
    /// # Errors
    /// `NotFound` (ENOENT), ENOTDIR; EINVAL for an abstract name.
    pub fn unix_unlink<P: AsRef<std::path::Path>>(&self, path: P) -> io::Result<()> {
        crate::unix::unlink(self.core()?, path.as_ref())
    }

    /// Rights (sockets, of this or other stacks, and file descriptors) that were sent over this stack's UNIX-domain sockets and
    /// not received yet.
    pub fn unix_rights_in_flight(&self) -> usize {
        self.core().map_or(0, |core| core.unix.in_flight())
    }

    /// Gives packet memory that is kept for reuse back to the system.
    pub fn trim(&self) {
        if let Ok(core) = self.core() {
            core.pool.trim();
        }
    }

    /// Goes on to the next key of Fast Open's cookies (RFC 7413 section 4.1.2: to be done now and then). Clients
    /// whose cookie is of the key before get a new one with their next connect; older cookies are no good any more.
    pub fn rotate_fastopen_key(&self) {
        if let Ok(core) = self.core() {
            core.fast_open_keys.rotate();
        }
    }

    /// The settings that the stack was made with.
    pub fn config(&self) -> &Config {
        self.settings()
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
        let key = HashKey(entropy.u64(), entropy.u64());
        let clock = if config.workers == 0 { Clock::driven() } else { Clock::system() };
        let range = PortRange::new(*config.port_range.start(), *config.port_range.end())
            .ok_or(io::ErrorKind::InvalidInput)?;
        let perimeters = match config.grain {
            Grain::Global => 1,
            Grain::PerCore => sockeye_sync::cpu::count(),
            Grain::PerSocket => 0,
        };
        Ok(Self {
            key,
            secret: Key::new(entropy.bytes()),
            home: fork::Home::here(),
            pool: Pool::new(PoolConfig::with_memory_max(config.memory_max)),
            memory_waiters: MemoryWaiters::default(),
            pruner: Pruner::new(),
            recycler: Recycler::new(config.rx_free),
            conn_serials: Serials::new(),
            demux: Demux::new(
                config.connections_max,
                config.time_wait_max,
                config.syn_backlog,
                HashKey(entropy.u64(), entropy.u64()),
            ),
            ports: Ports::new(range, || entropy.bytes()),
            workers: Workers::new(config.workers, clock.now()),
            loopback: Loopback::new(config.loopback_mtu, config.loopback_encode),
            netifs: Netifs::new(),
            input: Input::new(),
            fast_open_cache: fastopen::Cache::default(),
            fast_open_keys: fastopen::Keys::new(entropy.bytes()),
            ip: Ip::new(),
            links: Links::new(),
            panics: Panics::default(),
            counters: Counters::new(),
            perimeters: (0..perimeters).map(|_| Arc::new(Perimeter::new())).collect(),
            entry: if config.workers == 0 { Entry::Process } else { config.entry },
            hosts: config.may_host(),
            unix: crate::unix::Shared::new(HashKey(entropy.u64(), entropy.u64())),
            udp: crate::udp::Shared::new(range, entropy.bytes(), HashKey(entropy.u64(), entropy.u64())),
            pinned: seed.map(|_| 0),
            clock,
            config,
        })
    }

    /// The CPU that the calling thread runs on, for choosing among copies.
    #[inline]
    pub fn cpu(&self) -> u32 {
        self.pinned.unwrap_or_else(sockeye_sync::cpu::current)
    }

    /// Whether a connection of this hash, made on `cpu`, is among its own in the tables. All are, where what happens may
    /// not depend on the machine.
    pub fn is_near(&self, hash: u64, cpu: u32) -> bool {
        self.pinned.is_some() || Demux::is_near(hash, cpu, sockeye_sync::cpu::count())
    }

    /// Counts one.
    #[inline]
    pub fn count(&self, index: usize) {
        self.counters.add(index, 1);
    }

    /// Counts `amount`.
    #[inline]
    pub fn count_many(&self, index: usize, amount: u32) {
        self.counters.add(index, u64::from(amount));
    }

    /// The perimeter of a new connection, if it is to have one.
    pub fn home(&self, hash: u64, via: Via) -> Home {
        if via.is_wire() && self.config.input == crate::switches::Input::Exclusive {
            return Home::Shared(Arc::clone(&self.input.exclusive));
        }
        match self.perimeters.len() {
            0 => Home::unshared(self.entry),
            n => Home::Shared(Arc::clone(&self.perimeters[hash as usize % n])),
        }
    }

    fn secret(&self) -> Secret {
        Secret::new(self.secret.bytes())
    }

    /// The key of sequence numbers and cookies.
    pub fn secret_bytes(&self) -> [u8; 16] {
        self.secret.bytes()
    }

    /// Changes what new numbers are chosen by: sequence numbers, timestamp offsets and cookies, ports, identifiers. The
    /// keys by which tables are searched stay.
    pub fn rekey(&self, entropy: &mut Entropy) {
        let ports = &self.config.port_range;
        self.secret.set(entropy.bytes());
        self.fast_open_keys.rekey(entropy.bytes());
        self.ip.rekey(|| entropy.u64());
        // Checked when the stack was made.
        if let Some(range) = PortRange::new(*ports.start(), *ports.end()) {
            self.ports.rekey(range, || entropy.bytes());
            self.udp.rekey(range, || entropy.bytes());
        }
    }

    /// The initial sequence number of a connection (RFC 6528).
    pub fn isn(&self, tuple: &FourTuple, now: Instant) -> SeqNum {
        let (local, remote) = identity(tuple);
        self.secret().isn(now, &local, &remote)
    }

    /// The offset of a connection's timestamps (RFC 7323 section 7.1).
    pub fn ts_offset(&self, tuple: &FourTuple) -> u32 {
        let (local, remote) = identity(tuple);
        self.secret().ts_offset(&local, &remote)
    }

    /// A SYN-ACK whose sequence number is a cookie.
    pub fn cookie(&self, tuple: &FourTuple, syn: &Header, params: &ListenParams, now: Instant) -> Header {
        let (local, remote) = identity(tuple);
        let ends = cookie::Ends { local: &local, remote: &remote };
        cookie::syn_ack(&self.secret(), ends, syn, params, self.ts_offset(tuple), now)
    }

    /// What the cookie in an acknowledgment has agreed on, if it is a good one.
    pub fn check_cookie(
        &self,
        tuple: &FourTuple,
        ack: &Header,
        params: &ListenParams,
        now: Instant,
    ) -> Option<Accepted> {
        let (local, remote) = identity(tuple);
        let ends = cookie::Ends { local: &local, remote: &remote };
        cookie::check(&self.secret(), ends, ack, params, self.ts_offset(tuple), now)
    }

    /// What a new pcb is made with.
    pub fn tcp_settings(&self, tuple: &FourTuple, via: Via, rcv_buf: u32, ts_offset: u32) -> Settings {
        let (config, local) = (&self.config, tuple.local.addr);
        let link = self.link(local, via, Some(tuple.remote.addr));
        Settings {
            mss: link.mss,
            peer_mss_default: peer_mss_default(local),
            tso_max: link.segment_max,
            rcv_buf,
            rcv_buf_max: self.rcv_buf_max(rcv_buf),
            timestamps: config.timestamps,
            window_scaling: config.window_scaling,
            delack: config.delack,
            rto_min: config.rto_min,
            congestion_control: config.congestion_control,
            ecn: config.ecn,
            pacing: config.pacing,
            headers_len: link.headers_len,
            mtu_min: if local.is_ipv4() { FLOOR_V4 } else { FLOOR_V6 },
            mtu_probing: config.mtu_probing,
            syn_retries: config.syn_retries,
            user_timeout_option: config.user_timeout_option,
            retries: config.retries,
            time_wait: config.time_wait,
            ts_offset,
            lossless: self.netifs.out(via).is_none(),
            ..Settings::default()
        }
    }

    /// The largest receive buffer that the window scale has to express, for a socket that begins with `rcv_buf`.
    fn rcv_buf_max(&self, rcv_buf: u32) -> u32 {
        self.config.rcvbuf_max.max(rcv_buf).min(RCV_WND_MAX)
    }

    /// The first link of the way, to `remote` if that is known.
    fn link(&self, local: IpAddr, via: Via, remote: Option<IpAddr>) -> Link {
        match self.netifs.out(via) {
            Some((id, netif)) => {
                let mtu = self.links.mtu(id, netif.mtu(), local.is_ipv6());
                let is_neighbor = remote.is_some_and(|remote| self.netifs.is_neighbor(id, remote));
                Link::of_mtu(mtu, local).cut_by_device(netif.segment_max(), local, is_neighbor)
            }
            None => self.loopback.link(local),
        }
    }

    /// What a SYN-ACK offers.
    pub fn listen_params(&self, local: IpAddr, via: Via, rcvbuf: u32) -> ListenParams {
        let config = &self.config;
        ListenParams {
            mss: self.link(local, via, None).mss,
            peer_mss_default: peer_mss_default(local),
            rcv_wnd: rcvbuf,
            window_scale: config.window_scaling.then(|| window_scale_for(self.rcv_buf_max(rcvbuf))),
            timestamps: config.timestamps,
            sack: true,
            ecn: config.ecn != EcnMode::Off && self.netifs.out(via).is_some(),
        }
    }
}

/// The MSS to assume of a peer that announces none, bytes.
fn peer_mss_default(local: IpAddr) -> u16 {
    if local.is_ipv4() { DEFAULT_MSS } else { DEFAULT_MSS_V6 }
}

/// Both ends as the keyed hashes take them: address and port.
fn identity(tuple: &FourTuple) -> ([u8; 18], [u8; 18]) {
    let end = |e: crate::base::addr::Endpoint| {
        let mut bytes = [0; 18];
        bytes[..16].copy_from_slice(&octets(e.addr));
        bytes[16..].copy_from_slice(&e.port.to_be_bytes());
        bytes
    };
    (end(tuple.local), end(tuple.remote))
}

/// The counters of packet memory, all sizes together.
fn pool_counters(stats: &PoolStats) -> [(&'static str, u64); 9] {
    let sum = |f: fn(&sockeye_mbuf::ClassStats) -> u64| stats.classes.iter().map(f).sum();
    [
        ("mbuf_allocated", sum(|c| c.allocs())),
        ("mbuf_fresh", sum(|c| c.fresh)),
        ("mbuf_depot_loads", sum(|c| c.depot_loads)),
        ("mbuf_depot_stores", sum(|c| c.depot_stores)),
        ("mbuf_local_frees", sum(|c| c.local_frees)),
        ("mbuf_remote_frees", sum(|c| c.remote_frees)),
        ("mbuf_parked", sum(|c| c.parked)),
        ("mbuf_unparked", sum(|c| c.unparked)),
        ("mbuf_park_overflows", sum(|c| c.park_overflows)),
    ]
}

/// The largest receive window, bytes: what a window scale of 10 can express. One more would do for
/// `BUFFER_MAX`, but its step of 2 KiB would be as large as the smallest buffer, whose window would be seen
/// as shut while it is half open.
const RCV_WND_MAX: u32 = (u16::MAX as u32) << 10;
