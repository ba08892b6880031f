//! The settings of a new connection, and the part of them that the pcb keeps.
//!
//! [`Settings`] is the embedder's view, in plain durations. `Tuning` is the pcb's copy, in 32-bit
//! microseconds and milliseconds, because a host may hold a million pcbs. It does not depend on where the
//! values come from. Tests: `tests/settings.rs` and wherever a setting has an effect.

use core::time::Duration;

use super::accepted::DEFAULT_MSS;
use super::cc::Algorithm;
use super::ecn::EcnMode;
use super::fast_open::FastOpenSyn;

/// All settings of a connection. The defaults are those of Linux if it has one.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The MSS to announce, bytes: the interface's MTU less the fixed headers. Also the limit of our segments,
    /// regardless of what the peer announces.
    pub mss: u16,
    /// The MSS to assume of a peer that announces none, bytes: 536 for IPv4, 1220 for IPv6 (RFC 9293 MUST-15).
    pub peer_mss_default: u16,
    /// `so_rcv`'s hiwat at creation, bytes.
    pub rcv_buf: u32,
    /// The largest hiwat that `so_rcv` may ever get, bytes: determines the window scale.
    pub rcv_buf_max: u32,
    /// The largest window to offer, bytes (`TCP_WINDOW_CLAMP`).
    pub window_clamp: u32,
    /// Number of bytes from which on a reader is told of them (`SO_RCVLOWAT`).
    pub rcv_lowat: u32,
    /// Offer timestamps (RFC 7323 section 3).
    pub timestamps: bool,
    /// Offer window scaling (RFC 7323 section 2).
    pub window_scaling: bool,
    /// Offer SACK (RFC 2018). If both ends do, RACK-TLP (RFC 8985) finds losses, else duplicate acknowledgments do.
    pub sack: bool,
    /// The path does not lose, reorder or duplicate segments, as inside one process: no records of transmissions are
    /// kept. If a loss happens nevertheless, duplicate acknowledgments and the retransmission timer find it.
    pub lossless: bool,
    /// No Nagle algorithm (`TCP_NODELAY`).
    pub nodelay: bool,
    /// `TCP_QUICKACK` of an active open. If it is off, the acknowledgment of the SYN-ACK waits for the application's
    /// text, up to 200 ms.
    pub quickack: bool,
    /// `TCP_DEFER_ACCEPT` of an active open, with the same effect: the application writes first.
    pub writes_first: bool,
    /// How long an acknowledgment waits for an answer that carries it, if it waits; at most 500 ms (RFC 9293 MUST-40).
    pub delack: Duration,
    /// Floor of the variance term of the retransmission timeout, as on Linux: the timeout is the smoothed round trip
    /// time plus at least this.
    pub rto_min: Duration,
    /// The retransmission timeout before the first round trip is measured (RFC 6298 section 2.1).
    pub rto_initial: Duration,
    /// Ceiling of the retransmission timeout, of the time between two window probes, and of the wait for a tail loss probe.
    pub rto_max: Duration,
    /// How often a SYN or SYN-ACK is repeated before the connection is given up.
    pub syn_retries: u8,
    /// How often anything else is repeated before the connection is given up.
    pub retries: u8,
    /// How long to wait for the peer's FIN after `close` (`tcp_fin_timeout`, `TCP_LINGER2`), but at least three and a
    /// half retransmission timeouts, as on Linux. Zero: no wait; the connection is reset when our FIN is acknowledged.
    pub fin_wait_2: Duration,
    /// The length of TIME-WAIT (2MSL).
    pub time_wait: Duration,
    /// Keepalive (RFC 9293 section 3.8.4).
    pub keepalive: KeepaliveSettings,
    /// Largest payload of one `Transmit`, bytes. If it is above the MSS, several segments are passed on unsplit, to a
    /// link that cuts them (TSO) or accepts them.
    pub tso_max: u32,
    /// This connection's timestamp offset, random per connection (RFC 7323 section 7.1).
    pub ts_offset: u32,
    /// Bytes of a packet besides a segment's options and text: the fixed headers of IP and TCP. 40 on IPv4, 60 on
    /// IPv6.
    pub headers_len: u16,
    /// The smallest MTU that a path is assumed to have, bytes: 552 on IPv4, as on Linux (`min_pmtu`), 1,280 on IPv6.
    pub mtu_min: u16,
    /// The path MTU that earlier connections learned, bytes of an IP packet; 0 if unknown.
    pub path_mtu: u16,
    /// Whether the path's MTU is found by probing (`tcp_mtu_probing`).
    pub mtu_probing: MtuProbing,
    /// The size with which probing begins, bytes of payload (`tcp_base_mss`).
    pub base_mss: u16,
    /// Fast Open of an active open (RFC 7413).
    pub fast_open: Option<FastOpenSyn>,
    /// How long something may stay unacknowledged, or wait for a window, before the connection is given up
    /// (`TCP_USER_TIMEOUT`); zero: [`retries`](Self::retries) decides.
    pub user_timeout: Duration,
    /// Announce the user timeout to the peer, and use the peer's if we have none (RFC 5482).
    pub user_timeout_option: bool,
    /// Congestion control. If nothing is lost (`lossless`), it is always NewReno: the window only has to grow there,
    /// and NewReno does that at the lowest cost.
    pub congestion_control: Algorithm,
    /// Explicit congestion notification (RFC 3168). If nothing is lost (`lossless`), it is not offered: no router
    /// marks.
    pub ecn: EcnMode,
    /// A window that was not used for longer than a retransmission timeout is halved for each timeout, down to the
    /// initial one (RFC 2861, `tcp_slow_start_after_idle`).
    pub slow_start_after_idle: bool,
    /// Whether data is sent in a burst or spread over the round trip. It needs transmission records, so it has no
    /// effect if nothing is lost (`lossless`).
    pub pacing: PacingMode,
}

/// When the path's MTU is probed by sending larger segments (RFC 4821), in addition to routers' reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum MtuProbing {
    /// Never.
    Off,
    /// When large packets seem to vanish silently.
    #[default]
    BlackHole,
    /// From the start, with small segments.
    Always,
}

impl MtuProbing {
    /// All of them.
    pub const ALL: &'static [Self] = &[Self::Off, Self::BlackHole, Self::Always];
    /// Their names as text, in the same order.
    pub const NAMES: &'static [&'static str] = &["off", "blackhole", "always"];
}

/// Which connections are paced.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PacingMode {
    /// Those whose algorithm wants it.
    #[default]
    Auto,
    /// All connections.
    On,
    /// None.
    Off,
}

impl PacingMode {
    /// All of them.
    pub const ALL: &'static [Self] = &[Self::Auto, Self::On, Self::Off];
    /// Their names as text, in the same order.
    pub const NAMES: &'static [&'static str] = &["auto", "on", "off"];
}

/// When and how a silent peer is probed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeepaliveSettings {
    /// Off by default (RFC 9293 MUST-25).
    pub enabled: bool,
    /// Silence before the first probe.
    pub idle: Duration,
    /// Time from probe to probe.
    pub interval: Duration,
    /// Unanswered probes before the connection is given up.
    pub count: u8,
}

impl Default for KeepaliveSettings {
    fn default() -> Self {
        Self { enabled: false, idle: Duration::from_secs(7200), interval: Duration::from_secs(75), count: 9 }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            mss: 1460,
            peer_mss_default: DEFAULT_MSS,
            rcv_buf: 256 * 1024,
            rcv_buf_max: 4 * 1024 * 1024,
            window_clamp: u32::MAX,
            rcv_lowat: 1,
            timestamps: true,
            window_scaling: true,
            sack: true,
            lossless: false,
            nodelay: false,
            quickack: true,
            writes_first: false,
            delack: Duration::from_millis(40),
            rto_min: Duration::from_millis(200),
            rto_initial: Duration::from_secs(1),
            rto_max: Duration::from_secs(120),
            syn_retries: 6,
            retries: 15,
            fin_wait_2: Duration::from_secs(60),
            time_wait: Duration::from_secs(60),
            keepalive: KeepaliveSettings::default(),
            tso_max: 0,
            ts_offset: 0,
            headers_len: 40,
            mtu_min: 552,
            path_mtu: 0,
            mtu_probing: MtuProbing::default(),
            base_mss: BASE_MSS,
            fast_open: None,
            user_timeout: Duration::ZERO,
            user_timeout_option: false,
            congestion_control: Algorithm::default(),
            ecn: EcnMode::default(),
            slow_start_after_idle: true,
            pacing: PacingMode::default(),
        }
    }
}

impl Settings {
    /// The algorithm used on this path.
    pub(super) fn algorithm(&self) -> Algorithm {
        if self.lossless { Algorithm::NewReno } else { self.congestion_control }
    }
}

/// `base_mss` of nearly all connections; another value is in the rare state.
pub(super) const BASE_MSS: u16 = 1024;

/// The settings that a pcb needs after its creation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tuning {
    pub delack_us: u32,
    pub rto_min_us: u32,
    pub rto_max_us: u32,
    pub fin_wait_2_ms: u32,
    pub time_wait_ms: u32,
    pub tso_max: u32,
    pub syn_retries: u8,
    pub retries: u8,
    pub lossless: bool,
    pub slow_start_after_idle: bool,
    pub pacing: PacingMode,
    pub mtu_probing: MtuProbing,
    pub headers_len: u16,
    pub mtu_min: u16,
    pub path_mtu: u16,
}

impl Tuning {
    pub fn new(s: &Settings) -> Self {
        let rto_max_us = micros(s.rto_max).max(1);
        Self {
            delack_us: micros(s.delack).min(DELACK_MAX_US),
            rto_min_us: micros(s.rto_min).clamp(1, rto_max_us),
            rto_max_us,
            fin_wait_2_ms: millis(s.fin_wait_2),
            time_wait_ms: millis(s.time_wait),
            tso_max: s.tso_max,
            syn_retries: s.syn_retries,
            retries: s.retries,
            lossless: s.lossless,
            slow_start_after_idle: s.slow_start_after_idle,
            pacing: s.pacing,
            mtu_probing: s.mtu_probing,
            headers_len: s.headers_len,
            mtu_min: s.mtu_min,
            path_mtu: s.path_mtu,
        }
    }

    pub const fn time_wait(&self) -> Duration {
        Duration::from_millis(self.time_wait_ms as u64)
    }
}

/// Whole microseconds, at most as many as 32 bits hold (71 minutes).
pub(super) fn micros(d: Duration) -> u32 {
    u32::try_from(d.as_micros()).unwrap_or(u32::MAX)
}

/// Whole milliseconds, at most as many as 32 bits hold (49 days).
pub(super) fn millis(d: Duration) -> u32 {
    u32::try_from(d.as_millis()).unwrap_or(u32::MAX)
}

/// RFC 9293 MUST-40: an acknowledgment waits less than half a second.
const DELACK_MAX_US: u32 = 499_999;
