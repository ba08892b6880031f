//! [`TcpSocket`]: a socket before it is connected or listens.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use rustix::io::Errno;
use sockeye_proto::ip::martian::is_host;
use sockeye_proto::tcp::pcb::Pcb;
use sockeye_proto::tcp::settings::KeepaliveSettings;
use sockeye_sync::facade::Arc;

use super::fastopen::FastOpenOptions;
use super::tos_ttl::TosTtl;
use super::{TcpListener, TcpStream};
use crate::base::addr::{Endpoint, FourTuple, connect_target};
use crate::base::bind::{ANY_PORT, BindOptions};
use crate::base::report::Timestamping;
use crate::config::{BUFFER_MAX, BUFFER_MIN, TcpConfig};
use crate::inet::netif::scope;
use crate::rt::blocking::nonzero;
use crate::rt::failpoints::{self, Point};
use crate::rt::handle::Stack;
use crate::rt::panics;
use crate::tcp::Core;
use crate::tcp::conn::init::{self, Name};
use crate::tcp::conn::{Conn, LINGER_OFF, connect};
use crate::tcp::core::RcvRoom;
use crate::tcp::discipline::{Chosen, Discipline};
use crate::tcp::handshake::listen::Listener;
use sockeye_proto::tcp::cc::Algorithm as CongestionControl;

/// Options that a socket has before it is anything else.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SocketSettings {
    pub reuse_addr: bool,
    pub reuse_port: bool,
    pub v6_only: bool,
    pub nodelay: bool,
    pub quickack: bool,
    /// DSCP and hop limit.
    pub tos_ttl: TosTtl,
    pub congestion_control: CongestionControl,
    pub nonblocking: bool,
    /// Other hosts' addresses may be bound to.
    pub transparent: bool,
    /// IPv4 addresses are shown as such, also by an IPv6 socket.
    pub canonical: bool,
    pub sndbuf: u32,
    pub rcvbuf: u32,
    /// The application has said so: the size stays.
    pub sndbuf_set: bool,
    /// As `sndbuf_set`.
    pub rcvbuf_set: bool,
    /// SO_RCVLOWAT.
    pub rcvlowat: u32,
    /// TCP_WINDOW_CLAMP, or `u32::MAX`.
    pub window_clamp: u32,
    pub keepalive: KeepaliveSettings,
    /// TCP_USER_TIMEOUT in milliseconds; 0: none.
    pub user_timeout_ms: u32,
    /// TCP_SYNCNT; 0: the stack's.
    pub syn_retries: u8,
    /// TCP_DEFER_ACCEPT, in expiries of a SYN-ACK's timer.
    pub defers: u8,
    /// TCP_LINGER2 in milliseconds; 0: no FIN-WAIT-2.
    pub fin_timeout_ms: u32,
    /// TCP_RTO_MAX_MS.
    pub rto_max_ms: u32,
    /// SO_LINGER in milliseconds, or [`LINGER_OFF`].
    pub linger_ms: u32,
    /// TCP_NOTSENT_LOWAT, or [`notsent::NONE`](crate::tcp::conn::notsent::NONE).
    pub notsent_lowat: u32,
    /// TCP_MAXSEG; 0 for the interface's.
    pub maxseg: u16,
    /// SO_ZEROCOPY.
    pub zerocopy: bool,
    /// SO_TIMESTAMPING.
    pub timestamping: Timestamping,
}

impl SocketSettings {
    /// The MSS to announce where the interface takes segments of `most` bytes.
    pub fn mss(&self, most: u16) -> u16 {
        if self.maxseg == 0 { most } else { most.min(self.maxseg) }
    }
}

impl SocketSettings {
    /// The largest SO_RCVLOWAT, if receive buffers grow up to `rcvbuf_max`.
    pub fn rcvlowat_max(&self, rcvbuf_max: u32) -> u32 {
        if self.rcvbuf_set { self.rcvbuf } else { rcvbuf_max.max(self.rcvbuf) }
    }

    /// The receive buffer as a SYN speaks of it.
    pub fn rcv_room(&self) -> RcvRoom {
        RcvRoom { bytes: self.rcvbuf, is_set: self.rcvbuf_set, clamp: self.window_clamp }
    }
}

/// A TCP socket on which options can be set before it binds, connects or listens.
///
/// Bind conflicts are Linux's: see `docs/bind.md`.
#[derive(Debug)]
pub struct TcpSocket {
    pub(super) stack: Stack,
    pub(super) is_v6: bool,
    pub(super) settings: SocketSettings,
    pub(super) fast_open: FastOpenOptions,
    bound: Option<Bound>,
}

impl Stack {
    /// The present settings of TCP. In a child of fork(2) that cannot use the stack, the settings with which the stack
    /// was made.
    pub fn tcp_config(&self) -> TcpConfig {
        self.core::<Core>().map_or(self.config().tcp, |core| *core.tcp_config())
    }

    /// Replaces the settings of TCP, as `sysctl` does on Linux. They apply to sockets that are made and handshakes that
    /// begin from now on; an existing connection keeps its own. `gro`, `time_wait_max`, `syn_backlog` and
    /// `fastopen_key` do not change (for keys, use [`set_fastopen_keys`](Self::set_fastopen_keys)).
    /// [`config`](Self::config) shows the initial settings.
    ///
    /// # Errors
    /// `InvalidInput` if a field is out of its bounds: then nothing is changed.
    pub fn set_tcp_config(&self, tcp: TcpConfig) -> io::Result<()> {
        tcp.validate()?;
        self.core::<Core>()?.set_tcp_config(tcp);
        Ok(())
    }
}

/// A place in the bind table, given back when dropped.
#[derive(Debug)]
struct Bound {
    stack: Stack,
    id: u64,
    local: Endpoint,
    /// A listener has taken the place over, and gives it back itself.
    is_given: bool,
}

impl Drop for Bound {
    fn drop(&mut self) {
        if !self.is_given {
            // In a child of fork(2) the port is its parent's.
            if let Ok(core) = self.stack.core::<Core>() {
                core.ports.unbind(self.id, self.local.port);
            }
        }
    }
}

impl TcpSocket {
    /// An IPv4 socket.
    pub fn new_v4(stack: &Stack) -> Self {
        Self::new(stack, false)
    }

    /// An IPv6 socket, which also accepts IPv4 peers (as mapped addresses) unless [`set_only_v6`](Self::set_only_v6) is
    /// set.
    pub fn new_v6(stack: &Stack) -> Self {
        Self::new(stack, true)
    }

    pub(crate) fn for_addr(stack: &Stack, addr: SocketAddr) -> Self {
        Self::new(stack, addr.is_ipv6())
    }

    fn new(stack: &Stack, is_v6: bool) -> Self {
        let config = stack.config();
        let tcp = stack.tcp_config();
        let settings = SocketSettings {
            reuse_addr: false,
            reuse_port: false,
            v6_only: false,
            nodelay: false,
            quickack: true,
            tos_ttl: TosTtl::DEFAULT,
            congestion_control: tcp.congestion_control,
            nonblocking: false,
            transparent: false,
            canonical: false,
            sndbuf: config.sndbuf,
            rcvbuf: config.rcvbuf,
            sndbuf_set: false,
            rcvbuf_set: false,
            rcvlowat: 1,
            window_clamp: u32::MAX,
            keepalive: tcp.keepalive(),
            user_timeout_ms: 0,
            syn_retries: 0,
            defers: 0,
            fin_timeout_ms: u32::try_from(tcp.fin_timeout.as_millis()).unwrap_or(u32::MAX),
            rto_max_ms: u32::try_from(tcp.rto_max.as_millis()).unwrap_or(u32::MAX),
            linger_ms: LINGER_OFF,
            notsent_lowat: tcp.notsent_lowat,
            maxseg: 0,
            zerocopy: false,
            timestamping: Timestamping::NONE,
        };
        Self { stack: stack.clone(), is_v6, settings, fast_open: FastOpenOptions::default(), bound: None }
    }

    /// SO_REUSEADDR. Set it before [`bind`](Self::bind).
    pub fn set_reuse_address(&mut self, reuse: bool) {
        self.settings.reuse_addr = reuse;
    }

    /// SO_REUSEPORT. Listeners that all set it share a port; connections are spread by their hash.
    pub fn set_reuse_port(&mut self, reuse: bool) {
        self.settings.reuse_port = reuse;
    }

    /// IPV6_V6ONLY: an IPv6 wildcard listener then leaves IPv4 to other sockets, and [`bind`](Self::bind) and
    /// [`connect`](Self::connect) refuse IPv4-mapped addresses.
    pub fn set_only_v6(&mut self, only: bool) {
        self.settings.v6_only = only;
    }

    /// IP_TRANSPARENT: [`bind`](Self::bind) and [`listen_any`](Self::listen_any) also accept addresses of other hosts.
    /// Packets to them arrive by interfaces with [`Stack::set_any_address`].
    pub fn set_transparent(&mut self, transparent: bool) {
        self.settings.transparent = transparent;
    }

    /// Shows IPv4 addresses as IPv4 addresses even on an IPv6 socket: `10.0.0.1:80` instead of `[::ffff:10.0.0.1]:80`.
    /// The default `false` is the behaviour of Linux and RFC 3493 section 3.7. The option affects the addresses that
    /// `accept` returns, `peer_addr` and `local_addr` of the stream or of a listener's streams, and the addresses of a
    /// [`Syn`](crate::Syn), but not arguments of calls.
    pub fn set_canonical_addrs(&mut self, canonical: bool) {
        self.settings.canonical = canonical;
    }

    /// TCP_NODELAY of the connection, or of a listener's connections.
    pub fn set_nodelay(&mut self, nodelay: bool) {
        self.settings.nodelay = nodelay;
    }

    /// TCP_CONGESTION of the connection, or of a listener's connections. Default
    /// [`TcpConfig::congestion_control`](crate::TcpConfig::congestion_control), which also describes where it has an
    /// effect.
    pub fn set_congestion_control(&mut self, algorithm: CongestionControl) {
        self.settings.congestion_control = algorithm;
    }

    /// O_NONBLOCK: [`connect`](Self::connect) then returns at once, and the stream becomes writable when the handshake
    /// has ended.
    pub fn set_nonblocking(&mut self, nonblocking: bool) {
        self.settings.nonblocking = nonblocking;
    }

    /// SO_SNDBUF, bytes, limited to 2 KiB to 64 MiB.
    pub fn set_send_buffer_size(&mut self, bytes: usize) {
        (self.settings.sndbuf, self.settings.sndbuf_set) = (buffer_size(bytes), true);
    }

    /// SO_RCVBUF, bytes, limited to 2 KiB to 64 MiB.
    pub fn set_recv_buffer_size(&mut self, bytes: usize) {
        (self.settings.rcvbuf, self.settings.rcvbuf_set) = (buffer_size(bytes), true);
    }

    /// Binds to a local address; port 0 chooses a free port.
    ///
    /// # Errors
    /// `InvalidInput` (bound already), EINVAL or EAFNOSUPPORT (wrong family, or IPv4-mapped with IPV6_V6ONLY), `AddrNotAvailable` (not an address of the stack, or
    /// no free port), `AddrInUse`.
    pub fn bind(&mut self, addr: SocketAddr) -> io::Result<()> {
        let core = self.stack.core::<Core>()?;
        if self.bound.is_some() {
            return Err(Errno::INVAL.into());
        }
        let local = self.endpoint(addr, Errno::INVAL)?;
        scope::check_bind(core, &addr)?;
        let is_ours = local.addr.is_unspecified() || core.netifs.is_local(local.addr);
        let may_be_foreign = self.settings.transparent && is_host(local.addr);
        if !is_ours && !may_be_foreign {
            return Err(Errno::ADDRNOTAVAIL.into());
        }
        let bind = || core.ports.bind(&core.demux, local, self.bind_options());
        let (id, port) = panics::call(core, "bind", bind)?;
        let local = Endpoint::new(local.addr, port);
        self.bound = Some(Bound { stack: self.stack.clone(), id, local, is_given: false });
        Ok(())
    }

    /// The address bound to, if the socket is bound.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        let netifs = &self.stack.core::<Core>().ok()?.netifs;
        self.bound.as_ref().map(|b| scope::shown(netifs, b.local, self.is_mapped(), b.local.addr))
    }

    /// Turns the socket into a listener; an unbound one gets a free port. At most `backlog` (1 to 4096) connections
    /// wait to be accepted; when they do, new handshakes are not answered until there is room.
    ///
    /// # Errors
    /// `AddrInUse` if another socket listens there, or as for [`bind`](Self::bind).
    pub fn listen(mut self, backlog: usize) -> io::Result<TcpListener> {
        if self.bound.is_none() {
            self.bind(SocketAddr::new(self.wildcard(), 0))?;
        }
        let Some(bound) = self.bound.take() else {
            return Err(Errno::ADDRNOTAVAIL.into());
        };
        self.listen_at(bound, backlog)
    }

    /// Turns an unbound socket into a listener for every address of its family (an IPv6 one for both, unless
    /// [`set_only_v6`](Self::set_only_v6)) and every port where no other socket listens. A connection's
    /// [`local_addr`](TcpStream::local_addr) is the peer's destination. Backlog as for [`listen`](Self::listen).
    ///
    /// # Errors
    /// `AddrInUse` if there is such a listener already (unless both set SO_REUSEPORT), `InvalidInput` if the socket is
    /// bound or not [transparent](Self::set_transparent).
    pub fn listen_any(self, backlog: usize) -> io::Result<TcpListener> {
        let core = self.stack.core::<Core>()?;
        if self.bound.is_some() || !self.settings.transparent {
            let message = "a listener for every port is made of a transparent socket that is not bound: call set_transparent(true) first";
            return Err(super::stream::invalid(message.into()));
        }
        let local = Endpoint::new(self.wildcard(), ANY_PORT);
        let id = core.ports.bind_any(local.addr, self.bind_options())?;
        let bound = Bound { stack: self.stack.clone(), id, local, is_given: false };
        self.listen_at(bound, backlog)
    }

    fn listen_at(self, mut bound: Bound, backlog: usize) -> io::Result<TcpListener> {
        let listener = Listener::new(bound.local, &self.settings, self.is_mapped(), bound.id, backlog);
        let core = self.stack.core::<Core>()?;
        panics::call(core, "listen", || core.ports.listen(&core.demux, bound.local, &listener))?;
        bound.is_given = true;
        self.fast_open.listen(core, &listener, backlog);
        Ok(TcpListener::new(listener, self.stack.clone()))
    }

    /// Connects. Blocks until the handshake has ended, unless the socket is non-blocking.
    ///
    /// # Errors
    /// As for [`TcpStream::connect`].
    pub fn connect(self, addr: SocketAddr) -> io::Result<TcpStream> {
        let blocks = !self.settings.nonblocking;
        let stream = self.start(addr)?;
        if blocks && !stream.defers_connect()? {
            let (core, conn) = stream.enter()?;
            connect::finish(core, conn, None)?;
        }
        Ok(stream)
    }

    /// Connects, and gives up after `timeout`.
    ///
    /// # Errors
    /// As for [`TcpStream::connect_timeout`].
    pub fn connect_timeout(self, addr: SocketAddr, timeout: Duration) -> io::Result<TcpStream> {
        nonzero(Some(timeout))?;
        let stream = self.start(addr)?;
        if !stream.defers_connect()? {
            let (core, conn) = stream.enter()?;
            connect::finish(core, conn, Some(timeout))?;
        }
        Ok(stream)
    }

    /// Makes the connection and sends its SYN.
    pub(crate) fn start(mut self, addr: SocketAddr) -> io::Result<TcpStream> {
        let core = self.stack.core::<Core>()?;
        let mut remote = self.endpoint(addr, Errno::NETUNREACH)?;
        remote.addr = connect_target(remote.addr);
        if remote.port == 0 {
            // No socket can listen there.
            return Err(Errno::CONNREFUSED.into());
        }
        if remote.addr.is_multicast() || scope::is_broadcast(&core.netifs, remote.addr) {
            // RFC 9293 MUST-46, with Linux's number: it is not one host's address.
            return Err(Errno::NETUNREACH.into());
        }
        let source = self.source(&addr, remote.addr)?;
        if !core.demux.reserve() {
            let message = format!("{} connections are open: raise Config::connections_max", core.demux.len());
            return Err(io::Error::new(io::ErrorKind::OutOfMemory, message));
        }
        let made = panics::call(core, "connect", || self.name(core, source, remote));
        // A bind's place is given back: the connection itself now stands for the port.
        self.bound = None;
        let conn = made.inspect_err(|_| core.demux.unreserve())?;
        let stream = TcpStream::of(conn, self.stack.clone());
        let conn = stream.conn()?;
        if !self.fast_open.defers(conn) {
            connect::start(core, conn);
        }
        Ok(stream)
    }

    /// The address that the connection comes from, unless it is bound to one.
    fn source(&self, addr: &SocketAddr, remote: IpAddr) -> io::Result<IpAddr> {
        let core = self.stack.core::<Core>()?;
        let netif = scope::named(core, addr)?;
        let source = match netif {
            Some(netif) => core.netifs.source_on(netif, remote),
            None => core.netifs.source(remote),
        };
        let bound = self.bound.as_ref().map(|bound| bound.local.addr).filter(|addr| !addr.is_unspecified());
        if let (Some(netif), Some(bound)) = (netif, bound)
            && core.netifs.netif_with(bound) != Some(netif)
        {
            let message =
                format!("the socket is bound to {bound}, which is no address of the interface of {addr}");
            return Err(super::stream::invalid(message));
        }
        Ok(source.map_err(|why| why.errno())?)
    }

    /// Finds a name for the connection and puts it into the table under it.
    fn name(&self, core: &Core, source: IpAddr, remote: Endpoint) -> io::Result<Arc<Conn>> {
        match &self.bound {
            Some(bound) => {
                let addr = if bound.local.addr.is_unspecified() { source } else { bound.local.addr };
                let tuple = FourTuple { local: Endpoint::new(addr, bound.local.port), remote };
                // There is such a connection.
                Ok(self.take(core, tuple, tuple.hash(&core.key)).ok_or(Errno::ADDRNOTAVAIL)?)
            }
            None => {
                let cpu = core.cpu();
                let is_wanted = |hash| core.is_near(hash, cpu);
                let take = |tuple, hash| self.take(core, tuple, hash);
                core.ports.choose((cpu, &core.key), source, remote, is_wanted, take)
            }
        }
    }

    /// Makes the connection of this name, with this hash, if the name is free or its TIME-WAIT may be cut short.
    fn take(&self, core: &Core, tuple: FourTuple, hash: u64) -> Option<Arc<Conn>> {
        let via = core.netifs.via_from(tuple.local.addr, tuple.remote.addr)?;
        let now = core.clock.now();
        let mut shard = core.demux.shard(hash);
        // A socket may have been bound to the port since it was chosen.
        let is_anothers = self.bound.is_none() && core.ports.is_bound(tuple.local.port);
        if is_anothers || shard.conn(hash, &tuple).is_some() {
            return None;
        }
        let mut iss = core.isn(&tuple, now);
        let mut ts_offset = core.ts_offset(&tuple);
        if let Some(resting) = shard.resting_mut(hash, &tuple) {
            let reuse = resting.record.can_reuse_for_connect(now)?;
            iss = iss.max(reuse.iss_floor);
            ts_offset = reuse.ts_offset;
            shard.wake_resting(hash, &tuple);
        }
        let name = Name { tuple, hash, via };
        let mut tcp = init::tcp_settings(core, &name, &self.settings, ts_offset);
        tcp.fast_open = self.fast_open.syn(core, &tuple, tcp.mss, now);
        let pcb = Pcb::connect(&tcp, iss, self.settings.rcvbuf, now);
        let discipline = Chosen::of_conn(core, hash, via, None);
        let conn = init::make(core, name, discipline, (pcb, &tcp), &self.settings, self.is_mapped());
        self.fast_open.prepare(&conn, tcp.fast_open);
        failpoints::hit(Point::Connect, u64::from(tuple.remote.port));
        core.ports.note_conn(tuple.local.port);
        // Last: once it is in the table it has to be closed.
        shard.insert(Arc::clone(&conn));
        Some(conn)
    }

    /// Whether IPv4 addresses are shown as mapped ones.
    fn is_mapped(&self) -> bool {
        self.is_v6 && !self.settings.canonical
    }

    fn bind_options(&self) -> BindOptions {
        BindOptions {
            reuse_addr: self.settings.reuse_addr,
            reuse_port: self.settings.reuse_port,
            v6_only: self.settings.v6_only || !self.is_v6,
        }
    }

    /// An address of the caller's in this socket's family. `mapped`: the error for an IPv4-mapped one if the socket has IPV6_V6ONLY.
    fn endpoint(&self, addr: SocketAddr, mapped: Errno) -> io::Result<Endpoint> {
        if addr.is_ipv6() != self.is_v6 {
            // An IPv4 address is too short for an IPv6 socket, as Linux finds first.
            return Err(if self.is_v6 { Errno::INVAL } else { Errno::AFNOSUPPORT }.into());
        }
        let endpoint = Endpoint::from(addr);
        if self.is_v6 && self.settings.v6_only && endpoint.addr.is_ipv4() {
            return Err(mapped.into());
        }
        Ok(endpoint)
    }

    pub(super) fn wildcard(&self) -> IpAddr {
        if self.is_v6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() }
    }
}

/// A buffer size within the bounds.
pub(super) fn buffer_size(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX).clamp(BUFFER_MIN, BUFFER_MAX)
}
