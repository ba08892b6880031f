//! The settings of TCP.

use std::io;
use std::time::Duration;

use sockeye_proto::tcp::cc::Algorithm;
use sockeye_proto::tcp::ecn::EcnMode;
use sockeye_proto::tcp::settings::{KeepaliveSettings, MtuProbing, PacingMode};
use sockeye_proto::tcp::syncache::SYNACK_RETRIES_MAX;

use super::{SynCookies, fastopen, invalid, millis, within};

/// Settings of TCP: [`Config::tcp`](crate::Config::tcp).
#[derive(Clone, Copy, Debug)]
pub struct TcpConfig {
    /// Whether input processes consecutive segments of a connection in a batch of packets as one (generic receive
    /// offload), if the device has not already joined them. Default on; see `docs/adr/0030`.
    pub gro: bool,
    /// A write waits until fewer bytes than this are unsent in the send buffer (`tcp_notsent_lowat`). This is for
    /// sockets without a value of their own: [`TcpStream::set_notsent_lowat`](crate::TcpStream::set_notsent_lowat). At
    /// least 1. Default 4,294,967,295, which is no bound, as on Linux.
    pub notsent_lowat: u32,
    /// RFC 7323 timestamps (`tcp_timestamps`). Default on.
    pub timestamps: bool,
    /// RFC 7323 window scaling (`tcp_window_scaling`). Default on.
    pub window_scaling: bool,
    /// Longest delay of an acknowledgment (RFC 9293 section 3.8.6.3), at most 500 ms. Default 40 ms.
    ///
    /// Most acknowledgments are sent earlier, as on Linux: for more than one full segment, for the first sixteen
    /// segments, after a pause, and when a read has emptied the receive buffer. If the application answers within this
    /// time, its answer carries the acknowledgment.
    pub delack: Duration,
    /// Floor of the variance term of the retransmission timeout, as on Linux: the timeout is the smoothed round trip
    /// time plus at least this. Default 200 ms.
    pub rto_min: Duration,
    /// Ceiling of the retransmission timeout and of the time between two probes of a zero window (`tcp_rto_max_ms`), 1 s
    /// to 120 s: the longest time until a connection notices that a path works again. It shortens the time that
    /// [`retries`](Self::retries) stands for. SYN-ACKs are not affected.
    /// [`TcpStream::set_rto_max`](crate::TcpStream::set_rto_max) sets it for one connection. Default 120 s.
    pub rto_max: Duration,
    /// Congestion control (`tcp_congestion_control`) of connections through an interface; on loopback, which loses
    /// nothing, it is always NewReno. Default `cubic`.
    pub congestion_control: Algorithm,
    /// Explicit congestion notification (`tcp_ecn`, RFC 3168) of connections through an interface: never, if a peer
    /// offers it, or also offered; values with `accurate` in the name also use accurate ECN (RFC 9768). Default
    /// `accept`, as on Linux.
    pub ecn: EcnMode,
    /// Whether a congestion window that was not used for longer than a retransmission timeout is halved for each
    /// timeout, down to the initial one (RFC 2861, `tcp_slow_start_after_idle`). Default on.
    pub slow_start_after_idle: bool,
    /// Least number of segments sent as one packet, which a device cuts, as far as the windows allow it
    /// (`tcp_min_tso_segs`), 1 to 255; the last of them has PSH. Default 2.
    pub min_tso_segs: u8,
    /// Whether data through an interface is spread over the round trip instead of sent in bursts: for algorithms that
    /// want it, for all connections, or for none. Default `auto`.
    pub pacing: PacingMode,
    /// When the path's MTU is probed (`tcp_mtu_probing`), in addition to routers' reports. Default `blackhole`: when
    /// large packets seem to vanish silently.
    pub mtu_probing: MtuProbing,
    /// Bytes of payload with which probing begins (`tcp_base_mss`), 48 to 65,495. Default 1,024; IPv6 begins with the
    /// size that every path carries, if that is more.
    pub base_mss: u16,
    /// SYN transmissions after the first (`tcp_syn_retries`), at most 127. Default 6.
    pub syn_retries: u8,
    /// SYN-ACK transmissions after the first (`tcp_synack_retries`), at most 15. Default 5.
    pub synack_retries: u8,
    /// Whether a connection over IPv6 uses another flow label, and so perhaps another path, after each retransmission
    /// timeout (`net.core.txrehash`). Turn it off if a load balancer chooses servers by the label. Default on.
    pub txrehash: bool,
    /// Reset a client that has finished its handshake if the accept queue is full (`tcp_abort_on_overflow`), instead of
    /// letting it try again. Default off.
    pub abort_on_overflow: bool,
    /// How long a closed connection waits for the peer's FIN (`tcp_fin_timeout`), 1 ms to 10 min, for sockets without a
    /// value of their own ([`TcpStream::set_fin_timeout`](crate::TcpStream::set_fin_timeout)). Default 60 s.
    pub fin_timeout: Duration,
    /// Number of timeouts before a connection is given up (`tcp_retries2`). It stands for the time since the first
    /// retransmission that they take if the first is 200 ms and each is twice the last, up to the longest. Default 15:
    /// 924.6 s. After the application has closed the connection, at most 8: 102 s. Unanswered window probes count, too.
    pub retries: u8,
    /// Silence before the first probe of a connection with SO_KEEPALIVE (`tcp_keepalive_time`), 1 ms to 32,767 s.
    /// Default 2 h.
    pub keepalive_time: Duration,
    /// Time from probe to probe (`tcp_keepalive_intvl`), 1 ms to 32,767 s. Default 75 s.
    pub keepalive_intvl: Duration,
    /// Unanswered probes before a connection is given up (`tcp_keepalive_probes`), 1 to 127. Default 9.
    pub keepalive_probes: u8,
    /// Announce a user timeout that was set to the peer, and use the peer's if none was set (RFC 5482). Default off.
    pub user_timeout_option: bool,
    /// TCP Fast Open (`tcp_fastopen`): a sum of the flags in [`fastopen`](crate::fastopen). Default 1, clients.
    pub fastopen: u32,
    /// Keys of Fast Open's cookies (`tcp_fastopen_key`). Default none: then the key is random, and
    /// [`Stack::rotate_fastopen_key`](crate::Stack::rotate_fastopen_key) replaces it.
    pub fastopen_key: Option<fastopen::Keys>,
    /// How long SYNs to a server carry no text after it did not answer a SYN with text, or refused the text without a
    /// new cookie (RFC 7413 section 4.1.3.1); twice as long for each further case. At most a day. Zero: no such pause,
    /// which is Linux's default (`tcp_fastopen_blackhole_timeout_sec`, which applies to all servers). Default 60 s.
    pub fastopen_blackhole_timeout: Duration,
    /// 2MSL: how long the addresses and ports of a closed connection stay in TIME-WAIT. Default 60 s, as on Linux.
    pub time_wait: Duration,
    /// Largest number of connections in TIME-WAIT (`tcp_max_tw_buckets`); beyond it, a connection closes without
    /// TIME-WAIT. Default 65,536.
    pub time_wait_max: usize,
    /// Largest number of half-open connections (`tcp_max_syn_backlog`); `syn_cookies` decides what happens beyond it.
    /// Default 16,384.
    pub syn_backlog: usize,
    /// When a SYN is answered with a cookie instead (`tcp_syncookies`). Default `pressure`.
    pub syn_cookies: SynCookies,
}

impl Default for TcpConfig {
    fn default() -> Self {
        Self {
            gro: true,
            notsent_lowat: u32::MAX,
            timestamps: true,
            window_scaling: true,
            delack: Duration::from_millis(40),
            rto_min: Duration::from_millis(200),
            rto_max: Duration::from_secs(120),
            congestion_control: Algorithm::default(),
            ecn: EcnMode::default(),
            slow_start_after_idle: true,
            min_tso_segs: 2,
            pacing: PacingMode::default(),
            mtu_probing: MtuProbing::default(),
            base_mss: 1024,
            syn_retries: 6,
            synack_retries: 5,
            txrehash: true,
            abort_on_overflow: false,
            fin_timeout: Duration::from_secs(60),
            retries: 15,
            keepalive_time: Duration::from_secs(7200),
            keepalive_intvl: Duration::from_secs(75),
            keepalive_probes: 9,
            user_timeout_option: false,
            fastopen: fastopen::CLIENT,
            fastopen_key: None,
            fastopen_blackhole_timeout: Duration::from_secs(60),
            time_wait: Duration::from_secs(60),
            time_wait_max: 65_536,
            syn_backlog: 16_384,
            syn_cookies: SynCookies::default(),
        }
    }
}

impl TcpConfig {
    /// Keepalive of a new socket: off, with the times of this stack.
    pub(crate) fn keepalive(&self) -> KeepaliveSettings {
        KeepaliveSettings {
            enabled: false,
            idle: self.keepalive_time,
            interval: self.keepalive_intvl,
            count: self.keepalive_probes,
        }
    }

    /// Checks every field.
    pub(crate) fn validate(&self) -> io::Result<()> {
        within("notsent_lowat", u64::from(self.notsent_lowat), 1, u64::from(u32::MAX))?;
        within("delack (ms)", millis(self.delack), 0, 500)?;
        within("rto_min (ms)", millis(self.rto_min), 1, 120_000)?;
        within("rto_max (ms)", millis(self.rto_max), 1_000, 120_000)?;
        within("syn_retries", u64::from(self.syn_retries), 0, 127)?;
        within("min_tso_segs", u64::from(self.min_tso_segs), 1, 255)?;
        within("base_mss", u64::from(self.base_mss), 48, 65_495)?;
        within("synack_retries", u64::from(self.synack_retries), 0, u64::from(SYNACK_RETRIES_MAX))?;
        within("fin_timeout (ms)", millis(self.fin_timeout), 1, 600_000)?;
        within("retries", u64::from(self.retries), 1, 255)?;
        let keepalive_max = millis(KEEPALIVE_TIME_MAX);
        within("keepalive_time (ms)", millis(self.keepalive_time), 1, keepalive_max)?;
        within("keepalive_intvl (ms)", millis(self.keepalive_intvl), 1, keepalive_max)?;
        let probes_max = u64::from(KEEPALIVE_RETRIES_MAX);
        within("keepalive_probes", u64::from(self.keepalive_probes), 1, probes_max)?;
        if self.fastopen & !fastopen::ALL != 0 {
            let (given, known) = (self.fastopen, fastopen::ALL);
            return Err(invalid(format!(
                "TcpConfig::fastopen is {given:#x}: only the bits {known:#x} mean something"
            )));
        }
        within("fastopen_blackhole_timeout (ms)", millis(self.fastopen_blackhole_timeout), 0, 86_400_000)?;
        within("time_wait (ms)", millis(self.time_wait), 1, 600_000)?;
        within("time_wait_max", self.time_wait_max as u64, 0, u64::from(u32::MAX))?;
        within("syn_backlog", self.syn_backlog as u64, 1, u64::from(u32::MAX))?;
        Ok(())
    }
}

/// Linux's `MAX_TCP_KEEPIDLE` and `MAX_TCP_KEEPINTVL`.
pub(crate) const KEEPALIVE_TIME_MAX: Duration = Duration::from_secs(32_767);
/// Linux's `MAX_TCP_KEEPCNT`.
pub(crate) const KEEPALIVE_RETRIES_MAX: u8 = 127;
