//! Shared state of all TCP connections of a stack, and the parameters of new ones.
//!
//! Does not depend on connections' insides. Tests: `tests/suite`.

use std::net::IpAddr;
use std::ops::Deref;

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
use sockeye_sync::Serials;
use sockeye_sync::facade::{Arc, Read, Snapshot};

use crate::base::addr::{Endpoint, FourTuple, HashKey, octets};
use crate::base::entropy::Entropy;
use crate::config::{Config, TcpConfig};
use crate::inet;
use crate::inet::ip::path_mtu::{FLOOR_V4, FLOOR_V6};
use crate::inet::netif::table::{Link, Via};
use crate::rt::handle::Layer;
use crate::tcp::discipline::{Chosen, Discipline};
use crate::tcp::handed::Handed;
use crate::tcp::handshake::listen::Listener;
use crate::tcp::handshake::{fastopen, values};
use crate::tcp::socket::SocketSettings;
use crate::tcp::tables::demux::Demux;
use crate::tcp::tables::ports::Ports;

/// See the module's head.
pub(crate) struct Core {
    inet: inet::Core,
    /// State of the settings that are measured against each other.
    #[cfg_attr(not(feature = "experiments"), allow(dead_code, reason = "the product keeps nothing"))]
    pub discipline: <Chosen as Discipline>::OfStack,
    /// The settings of TCP that new sockets get.
    tcp: Snapshot<TcpConfig>,
    pub demux: Demux,
    /// Numbers of connections.
    pub conn_serials: Serials,
    pub ports: Ports,
    /// Connections that were handed to workers.
    pub handed: Handed,
    /// A client's cookies of Fast Open.
    pub fast_open_cache: fastopen::Cache,
    /// A server's keys of them.
    pub fast_open_keys: fastopen::KeyRing,
    /// Values of SYN hooks whose handshakes have died.
    pub dropped_values: Arc<values::Dropped>,
}

/// A socket's receive buffer as a SYN speaks of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RcvRoom {
    /// SO_RCVBUF, bytes.
    pub bytes: u32,
    /// The application has said so: it does not grow.
    pub is_set: bool,
    /// TCP_WINDOW_CLAMP, bytes, or `u32::MAX`.
    pub clamp: u32,
}

impl Deref for Core {
    type Target = inet::Core;
    #[inline]
    fn deref(&self) -> &inet::Core {
        &self.inet
    }
}

impl Layer for Core {
    const AT: usize = 2;
}

impl Core {
    pub fn new(inet: inet::Core, range: PortRange, entropy: &mut Entropy) -> Self {
        let config = &inet.config;
        let demux = Demux::new(
            config.connections_max,
            config.tcp.time_wait_max,
            config.tcp.syn_backlog,
            HashKey(entropy.u64(), entropy.u64()),
        );
        Self {
            tcp: Snapshot::new(config.tcp),
            demux,
            ports: Ports::new(range, || entropy.bytes()),
            fast_open_keys: fastopen::KeyRing::of(fast_open_keys(config, entropy)),
            fast_open_cache: fastopen::Cache::default(),
            dropped_values: Arc::new(values::Dropped::default()),
            discipline: Chosen::of_stack(config),
            conn_serials: Serials::new(),
            handed: Handed::new(inet.workers.lane_count()),
            inet,
        }
    }

    /// Replaces secrets, in a child of fork(2) that takes the stack over. Keys that were given are known to others, and stay.
    pub fn rekey(&self, entropy: &mut Entropy) {
        self.fast_open_keys.set_alone(fast_open_keys(&self.config, entropy));
    }

    /// Goes on to the next key of Fast Open's cookies.
    pub fn rotate_fast_open_key(&self) {
        let drawn = Entropy::mixed(self.secret_bytes(), self.fast_open_keys.nonce()).bytes();
        self.fast_open_keys.rotate(drawn);
    }

    /// How often another path is taken that was asked for so often: not at all without [`txrehash`](TcpConfig::txrehash).
    pub fn rehashes(&self, asked: u8) -> u8 {
        if asked > 0 && self.tcp_config().txrehash { asked } else { 0 }
    }

    /// The settings of TCP as they are now. Not to be kept.
    pub fn tcp_config(&self) -> Read<TcpConfig> {
        self.tcp.read()
    }

    /// Replaces them.
    pub fn set_tcp_config(&self, config: TcpConfig) {
        self.tcp.replace(config);
    }

    /// Shared state of the Internet layer.
    pub fn inet(&self) -> &inet::Core {
        &self.inet
    }

    /// Whether a connection of this hash, made on `cpu`, is among its own in the tables. All are, where the run may not
    /// depend on the machine.
    pub fn is_near(&self, hash: u64, cpu: u32) -> bool {
        self.is_pinned() || Demux::is_near(hash, cpu, sockeye_sync::cpu::count())
    }

    fn secret(&self) -> Secret {
        Secret::new(self.secret_bytes())
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

    /// A SYN-ACK whose sequence number is a cookie, which only `listener` takes back if it asks its application
    /// about SYNs.
    pub fn cookie(
        &self,
        tuple: &FourTuple,
        listener: &Listener,
        syn: &Header,
        params: &ListenParams,
        now: Instant,
    ) -> Header {
        let (local, remote) = cookie_identity(tuple, listener);
        let ends = cookie::Ends { local: &local, remote: &remote };
        cookie::syn_ack(&self.secret(), ends, syn, params, self.ts_offset(tuple), now)
    }

    /// The values agreed on by the cookie in an acknowledgment, if it is a good one of `listener`.
    pub fn check_cookie(
        &self,
        tuple: &FourTuple,
        listener: &Listener,
        ack: &Header,
        params: &ListenParams,
        now: Instant,
    ) -> Option<Accepted> {
        let (local, remote) = cookie_identity(tuple, listener);
        let ends = cookie::Ends { local: &local, remote: &remote };
        cookie::check(&self.secret(), ends, ack, params, self.ts_offset(tuple), now)
    }

    /// Parameters of a new pcb.
    pub fn tcp_settings(&self, tuple: &FourTuple, via: Via, room: RcvRoom, ts_offset: u32) -> Settings {
        let (config, local) = (self.tcp_config(), tuple.local.addr);
        let link = self.link(local, via, Some(tuple.remote.addr));
        Settings {
            mss: link.mss,
            peer_mss_default: peer_mss_default(local),
            tso_max: link.segment_max,
            rcv_buf: room.bytes,
            rcv_buf_max: self.window_max(room),
            window_clamp: room.clamp,
            timestamps: config.timestamps,
            window_scaling: config.window_scaling,
            delack: config.delack,
            rto_min: config.rto_min,
            congestion_control: config.congestion_control,
            ecn: config.ecn,
            slow_start_after_idle: config.slow_start_after_idle,
            pacing: config.pacing,
            headers_len: link.headers_len,
            mtu_min: if local.is_ipv4() { FLOOR_V4 } else { FLOOR_V6 },
            mtu_probing: config.mtu_probing,
            base_mss: config.base_mss,
            syn_retries: config.syn_retries,
            user_timeout_option: config.user_timeout_option,
            retries: config.retries,
            time_wait: config.time_wait,
            ts_offset,
            lossless: self.netifs.out(via).is_none(),
            ..Settings::default()
        }
    }

    /// The largest window that the scale has to express (`tcp_select_initial_window`).
    fn window_max(&self, room: RcvRoom) -> u32 {
        let most = if room.is_set { room.bytes } else { self.config.rcvbuf_max.max(room.bytes) };
        most.min(room.clamp).min(RCV_WND_MAX)
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

    /// The offer of a SYN-ACK.
    pub fn listen_params(&self, local: IpAddr, via: Via, settings: &SocketSettings) -> ListenParams {
        let (config, room) = (self.tcp_config(), settings.rcv_room());
        ListenParams {
            mss: settings.mss(self.link(local, via, None).mss),
            peer_mss_default: peer_mss_default(local),
            rcv_wnd: room.bytes.min(room.clamp),
            window_scale: config.window_scaling.then(|| window_scale_for(self.window_max(room))),
            timestamps: config.timestamps,
            sack: true,
            ecn: config.ecn != EcnMode::Off && self.netifs.out(via).is_some(),
            accurate_ecn: config.ecn.accepts_accurate() && self.netifs.out(via).is_some(),
        }
    }
}

/// The first keys of Fast Open's cookies.
fn fast_open_keys(config: &Config, entropy: &mut Entropy) -> fastopen::Keys {
    let random = entropy.bytes();
    config.tcp.fastopen_key.unwrap_or(fastopen::Keys { primary: random, backup: None })
}

/// The MSS to assume of a peer that announces none, bytes.
fn peer_mss_default(local: IpAddr) -> u16 {
    if local.is_ipv4() { DEFAULT_MSS } else { DEFAULT_MSS_V6 }
}

/// Both ends as the keyed hashes take them: address and port.
fn identity(tuple: &FourTuple) -> ([u8; 18], [u8; 18]) {
    let end = |e: Endpoint| {
        let mut bytes = [0; 18];
        bytes[..16].copy_from_slice(&octets(e.addr));
        bytes[16..].copy_from_slice(&e.port.to_be_bytes());
        bytes
    };
    (end(tuple.local), end(tuple.remote))
}

/// [`identity`] as a cookie has it. The yes of an application is for its own listener: with one, the cookie of a
/// listener that asks is no cookie of another, nor of a listener that does not ask.
fn cookie_identity(tuple: &FourTuple, listener: &Listener) -> ([u8; 26], [u8; 18]) {
    let (local, remote) = identity(tuple);
    // Binds are counted from 1.
    let asked = if listener.admission.asks() { listener.bind_id } else { 0 };
    let mut bytes = [0; 26];
    bytes[..18].copy_from_slice(&local);
    bytes[18..].copy_from_slice(&asked.to_be_bytes());
    (bytes, remote)
}

/// The largest receive window, bytes: the bound of a window scale of 10. One more would do for `BUFFER_MAX`,
/// but its step of 2 KiB would be as large as the smallest buffer, whose window would be seen as shut while
/// it is half open.
const RCV_WND_MAX: u32 = (u16::MAX as u32) << 10;
