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
    /// Whether segments of a connection that continue one another in a batch of packets are taken in as one (generic receive
    /// offload), where the device has not joined them already. Default on; see `docs/adr/0030`.
    pub gro: bool,
    /// Bytes of which fewer may be unsent in the send buffer for a write to be let in (`tcp_notsent_lowat`), for sockets that say
    /// nothing else: [`TcpStream::set_notsent_lowat`](crate::TcpStream::set_notsent_lowat). At least 1. Default 4,294,967,295,
    /// which is no bound, as on Linux.
    pub notsent_lowat: u32,
    /// RFC 7323 timestamps (`tcp_timestamps`). Default on.
    pub timestamps: bool,
    /// RFC 7323 window scaling (`tcp_window_scaling`). Default on.
    pub window_scaling: bool,
    /// Longest delay of an acknowledgment (RFC 9293 section 3.8.6.3), at most 500 ms. Default 40 ms.
    ///
    /// Most are sent earlier, as on Linux: for more than one full segment, for the first sixteen segments, after a pause, and when a
    /// read has emptied the receive buffer. Where the application answers within this time, its answer carries them.
    pub delack: Duration,
    /// Floor of the variance term of the retransmission timeout, as on Linux: the timeout is the smoothed round trip
    /// and at least this. Default 200 ms.
    pub rto_min: Duration,
    /// Ceiling of the retransmission timeout and of the time between two probes of a shut window (`tcp_rto_max_ms`), 1 s to 120 s: how soon at the latest a
    /// connection notices that a path works again. The patience that [`retries`](Self::retries) stands for becomes shorter with it.
    /// [`TcpStream::set_rto_max`](crate::TcpStream::set_rto_max) sets it for one connection. Default 120 s.
    pub rto_max: Duration,
    /// Congestion control (`tcp_congestion_control`) of connections through an interface; on loopback, which loses
    /// nothing, it is always NewReno. Default `cubic`.
    pub congestion_control: Algorithm,
    /// Explicit congestion notification (`tcp_ecn`, RFC 3168) of connections through an interface: not at all, when a peer
    /// offers it, or offered too; with `accurate` in the name also accurate ECN (RFC 9768). Default `accept`, as on Linux.
    pub ecn: EcnMode,
    /// Whether a congestion window that was not used for longer than a retransmission timeout is halved for each of them, down to
    /// the initial one (RFC 2861, `tcp_slow_start_after_idle`). Default on.
    pub slow_start_after_idle: bool,
    /// Segments that leave as one packet at least, for a device to cut, as far as the windows allow it (`tcp_min_tso_segs`), 1 to 255; the
    /// last of them has PSH. Default 2.
    pub min_tso_segs: u8,
    /// Whether data through an interface leaves spread over the round trip instead of in bursts: that of algorithms that
    /// want it, of all connections, or of none. Default `auto`.
    pub pacing: PacingMode,
    /// When the path's MTU is found out by sending (`tcp_mtu_probing`), besides routers' reports. Default `blackhole`:
    /// once large packets seem to vanish without a word.
    pub mtu_probing: MtuProbing,
    /// Bytes of payload with which that begins (`tcp_base_mss`), 48 to 65,495. Default 1,024; IPv6 begins with what every path takes, if that is more.
    pub base_mss: u16,
    /// SYN transmissions after the first (`tcp_syn_retries`), at most 127. Default 6.
    pub syn_retries: u8,
    /// SYN-ACK transmissions after the first (`tcp_synack_retries`), at most 15. Default 5.
    pub synack_retries: u8,
    /// Whether a connection over IPv6 takes another flow label, and so perhaps another path, after each retransmission timeout
    /// (`net.core.txrehash`). Off where something on the way spreads connections over servers by the label. Default on.
    pub txrehash: bool,
    /// Reset a client whose handshake is done and whose connection finds the accept queue full (`tcp_abort_on_overflow`), instead of
    /// letting it try again. Default off.
    pub abort_on_overflow: bool,
    /// How long a connection that is closed waits for the peer's FIN (`tcp_fin_timeout`), 1 ms to 10 min, for sockets that say nothing
    /// else ([`TcpStream::set_fin_timeout`](crate::TcpStream::set_fin_timeout)). Default 60 s.
    pub fin_timeout: Duration,
    /// Timeouts before a connection is given up (`tcp_retries2`), as the time that they take from 200 ms on, doubled each time up to the longest, since
    /// the first retransmission. Default 15: 924.6 s. Once the application has closed it, 8 at most: 102 s. Window probes that nobody answers are counted.
    pub retries: u8,
    /// Silence before the first probe of a connection with SO_KEEPALIVE (`tcp_keepalive_time`), 1 ms to 32,767 s.
    /// Default 2 h.
    pub keepalive_time: Duration,
    /// Time from probe to probe (`tcp_keepalive_intvl`), 1 ms to 32,767 s. Default 75 s.
    pub keepalive_intvl: Duration,
    /// Unanswered probes before a connection is given up (`tcp_keepalive_probes`), 1 to 127. Default 9.
    pub keepalive_probes: u8,
    /// Tell peers of a user timeout that was set, and take theirs where none was (RFC 5482). Default off.
    pub user_timeout_option: bool,
    /// TCP Fast Open (`tcp_fastopen`): a sum of the flags in [`fastopen`](crate::fastopen). Default 1, clients.
    pub fastopen: u32,
    /// Keys of Fast Open's cookies (`tcp_fastopen_key`). Default none: a random one, which
    /// [`Stack::rotate_fastopen_key`](crate::Stack::rotate_fastopen_key) replaces.
    pub fastopen_key: Option<fastopen::Keys>,
    /// For how long no text goes on SYNs to a server after the first SYN with text that it did not answer, or whose text it refused
    /// without a new cookie (RFC 7413 section 4.1.3.1); twice as long for each further one. At most a day; zero: not at all, as is
    /// Linux's default (`tcp_fastopen_blackhole_timeout_sec`, which counts for all servers). Default 60 s.
    pub fastopen_blackhole_timeout: Duration,
    /// 2MSL, how long a closed connection's name stays in TIME-WAIT. Default 60 s, as on Linux.
    pub time_wait: Duration,
    /// Most connections in TIME-WAIT (`tcp_max_tw_buckets`); beyond it a connection is closed without
    /// TIME-WAIT. Default 65,536.
    pub time_wait_max: usize,
    /// Most half-open connections (`tcp_max_syn_backlog`); `syn_cookies` decides about the rest. Default
    /// 16,384.
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
