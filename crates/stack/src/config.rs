//! What one may choose about a stack. Every field has a default that needs no thought.
//!
//! Names follow `sysctl net.ipv4.tcp_*` where Linux has the same knob. A [`Config`] is checked as a
//! whole by [`Config::validate`], which names the field, the value and the bounds. Fields are set from text by
//! [`Config::set`].

use std::io;
use std::ops::RangeInclusive;
use std::time::Duration;

use sockeye_proto::tcp::cc::Algorithm;
use sockeye_proto::tcp::ecn::EcnMode;
use sockeye_proto::tcp::settings::MtuProbing;
use sockeye_proto::tcp::settings::PacingMode;

use crate::switches::{Entry, Input, PoolSource, Rcvd, RxFree, UnixLocking, Wake};

pub mod fastopen;
mod text;

pub use text::SetError;

/// How many connections share one perimeter, the right to run protocol code.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Grain {
    /// One perimeter for the whole stack (one big lock, as OpenBSD had it).
    Global,
    /// One perimeter per core; connections are spread by their hash (illumos squeues).
    PerCore,
    /// One perimeter per connection (Linux's socket lock). The default.
    #[default]
    PerSocket,
}

/// When a SYN is answered with a cookie and not remembered (`tcp_syncookies`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SynCookies {
    /// Never: in a full SYN cache the oldest entry gives way.
    Off,
    /// When the SYN cache is full. The default.
    #[default]
    Pressure,
    /// Always; for tests.
    Always,
}

impl SynCookies {
    /// Every setting.
    pub const ALL: &'static [Self] = &[Self::Off, Self::Pressure, Self::Always];
    /// Their names, in the same order.
    pub const NAMES: &'static [&'static str] = &["off", "pressure", "always"];
}

/// Settings of a stack. Start from [`Config::default`] and change what you need.
#[derive(Clone, Debug)]
pub struct Config {
    /// How many connections share a perimeter.
    pub grain: Grain,
    /// How a reader tells the protocol of new space. Default `precheck`.
    pub rcvd: Rcvd,
    /// What excludes whom in input from a wire. Default `batched`.
    pub input: Input,
    /// Where buffers go that one core used up and another allocated. Default `inline`; see `docs/adr/0017`.
    pub rx_free: RxFree,
    /// Where packet memory comes from. Default `cached`.
    pub pool: PoolSource,
    /// What a thread does that leaves work behind. Default `elide`.
    pub wake: Wake,
    /// How an application's threads enter a perimeter. Default `process`.
    pub entry: Entry,
    /// The locks of UNIX-domain sockets. Default `direct`.
    pub unix_locking: UnixLocking,
    /// Worker threads, which turn timers and take over protocol work that nobody else finished.
    /// 0 to 256; 0 means that the embedder drives the stack with [`Stack::poll`](crate::Stack::poll)
    /// and that blocking calls would wait for ever without it. Default: one per core. With 0, a child of
    /// fork(2) can go on with the stack, if no other thread is in a call of it when the child is made
    /// ([`fork`](crate::fork)).
    pub workers: usize,
    /// Longest busy wait before a blocking call parks, at most 10 ms; zero turns spinning off. The wait offers
    /// its core to other threads, and it adapts: a thread whose spins fail spins less. Default 100 µs.
    pub spin_max: Duration,
    /// Whether writers of a process that wait for their readers, on loopback, are limited where more than eight for each core
    /// do: a few go on, each for some megabytes, while the others wait. It carries more, and each of many bulk streams
    /// moves in bursts, with pauses of a third of a millisecond for each other one on its core. Default on; see
    /// `docs/adr/0041`.
    pub writer_admission: bool,
    /// Whether a reader that waits in a blocking read runs the segments that come for its connection over loopback itself, if their
    /// sender is on another core; else the sender runs them. Only with a grain of `per_socket` and the defaults of `entry`,
    /// `rcvd`, `wake` and `rx_free`, whose other settings are about who runs what, and where. Default on; see `docs/adr/0040`.
    pub host_input: bool,
    /// Whether segments of a connection that continue one another in a batch of packets are taken in as one (generic receive
    /// offload), where the device has not joined them already. Default on; see `docs/adr/0030`.
    pub gro: bool,
    /// Hard cap on the bytes of packet memory; at least 1 MiB. At the cap a blocking send waits, a
    /// non-blocking one reports `WouldBlock` or `OutOfMemory`; nothing is lost. Default 1 GiB.
    pub memory_max: usize,
    /// Most connections, in any state but TIME-WAIT. At the bound connects fail with `OutOfMemory` and
    /// handshakes stay half-open. Default 1,048,576.
    pub connections_max: usize,
    /// Send buffer of a new socket, bytes (`tcp_wmem`), 2 KiB to 64 MiB. Default 256 KiB.
    pub sndbuf: u32,
    /// Receive buffer of a new socket, bytes (`tcp_rmem`), 2 KiB to 64 MiB. Default 256 KiB.
    pub rcvbuf: u32,
    /// Largest size to which the send buffer of a connection over an interface grows by itself, bytes, 2 KiB to
    /// 64 MiB (`tcp_wmem`). Not on loopback, and not where the application has set a size. Default 64 MiB.
    pub sndbuf_max: u32,
    /// The same of the receive buffer (`tcp_rmem`); decides the window scale. Default 32 MiB.
    pub rcvbuf_max: u32,
    /// Bytes of which fewer may be unsent in the send buffer for a write to be let in (`tcp_notsent_lowat`), for sockets that say
    /// nothing else: [`TcpStream::set_notsent_lowat`](crate::TcpStream::set_notsent_lowat). At least 1. Default 4,294,967,295,
    /// which is no bound, as on Linux.
    pub notsent_lowat: u32,
    /// MTU of the loopback interface, bytes, 1280 to 65536. Default 65536, as on Linux.
    pub loopback_mtu: u32,
    /// Encodes every loopback segment as IP and TCP bytes and parses it back, as a wire would. Slower;
    /// for tests of the codec. Default off.
    pub loopback_encode: bool,
    /// RFC 7323 timestamps (`tcp_timestamps`). Default on.
    pub timestamps: bool,
    /// RFC 7323 window scaling (`tcp_window_scaling`). Default on.
    pub window_scaling: bool,
    /// Longest delay of an acknowledgment (RFC 9293 section 3.8.6.3), at most 500 ms. Default 40 ms.
    ///
    /// Most are sent earlier, as on Linux: for two full segments, for the first sixteen segments, after a pause, and when a
    /// read has emptied the receive buffer. Where the application answers within this time, its answer carries them.
    pub delack: Duration,
    /// Floor of the variance term of the retransmission timeout, as on Linux: the timeout is the smoothed round trip
    /// and at least this. Default 200 ms.
    pub rto_min: Duration,
    /// Congestion control (`tcp_congestion_control`) of connections through an interface; on loopback, which loses
    /// nothing, it is always NewReno. Default `cubic`.
    pub congestion_control: Algorithm,
    /// Explicit congestion notification (`tcp_ecn`, RFC 3168) of connections through an interface: not at all, when a peer
    /// offers it, or offered too. Default `accept`, as on Linux.
    pub ecn: EcnMode,
    /// Whether data through an interface leaves spread over the round trip instead of in bursts: that of algorithms that
    /// want it, everybody's or nobody's. Default `auto`.
    pub pacing: PacingMode,
    /// When the path's MTU is found out by sending (`tcp_mtu_probing`), besides what routers report. Default `blackhole`:
    /// once large packets seem to vanish without a word.
    pub mtu_probing: MtuProbing,
    /// SYN transmissions after the first (`tcp_syn_retries`), at most 127. Default 6.
    pub syn_retries: u8,
    /// Retransmissions before a connection is given up (`tcp_retries2`). Default 15.
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
    /// TCP Fast Open (`tcp_fastopen`): the sum of what [`fastopen`](crate::fastopen) names. Default 1, clients.
    pub fastopen: u32,
    /// 2MSL, how long a closed connection's name stays in TIME-WAIT. Default 60 s, as on Linux.
    pub time_wait: Duration,
    /// Most connections in TIME-WAIT (`tcp_max_tw_buckets`); beyond it a connection is closed without
    /// TIME-WAIT. Default 65,536.
    pub time_wait_max: usize,
    /// Most half-open connections (`tcp_max_syn_backlog`); what is beyond `syn_cookies` says. Default 16,384.
    pub syn_backlog: usize,
    /// When a SYN is answered with a cookie instead (`tcp_syncookies`). Default `pressure`.
    pub syn_cookies: SynCookies,
    /// Ephemeral ports (`ip_local_port_range`). Default 32768 to 60999.
    pub port_range: RangeInclusive<u16>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            grain: Grain::default(),
            rcvd: Rcvd::default(),
            input: Input::default(),
            rx_free: RxFree::default(),
            pool: PoolSource::default(),
            wake: Wake::default(),
            entry: Entry::default(),
            unix_locking: UnixLocking::default(),
            workers: std::thread::available_parallelism().map_or(1, usize::from).min(WORKERS_MAX),
            spin_max: sockeye_sync::SPIN_MAX_DEFAULT,
            writer_admission: true,
            host_input: true,
            gro: true,
            memory_max: 1 << 30,
            connections_max: 1 << 20,
            sndbuf: 256 << 10,
            rcvbuf: 256 << 10,
            sndbuf_max: 64 << 20,
            rcvbuf_max: 32 << 20,
            notsent_lowat: u32::MAX,
            loopback_mtu: 65536,
            loopback_encode: false,
            timestamps: true,
            window_scaling: true,
            delack: Duration::from_millis(40),
            rto_min: Duration::from_millis(200),
            congestion_control: Algorithm::default(),
            ecn: EcnMode::default(),
            pacing: PacingMode::default(),
            mtu_probing: MtuProbing::default(),
            syn_retries: 6,
            retries: 15,
            keepalive_time: Duration::from_secs(7200),
            keepalive_intvl: Duration::from_secs(75),
            keepalive_probes: 9,
            user_timeout_option: false,
            fastopen: fastopen::CLIENT,
            time_wait: Duration::from_secs(60),
            time_wait_max: 65_536,
            syn_backlog: 16_384,
            syn_cookies: SynCookies::default(),
            port_range: 32768..=60999,
        }
    }
}

impl Config {
    /// Keepalive of a new socket: off, with the times of this stack.
    pub(crate) fn keepalive(&self) -> sockeye_proto::tcp::settings::KeepaliveSettings {
        sockeye_proto::tcp::settings::KeepaliveSettings {
            enabled: false,
            idle: self.keepalive_time,
            interval: self.keepalive_intvl,
            count: self.keepalive_probes,
        }
    }

    /// Whether readers who wait run segments: see [`host_input`](Self::host_input).
    pub(crate) fn may_host(&self) -> bool {
        let is_default = self.grain == Grain::default()
            && self.entry == Entry::default()
            && self.rcvd == Rcvd::default()
            && self.wake == Wake::default()
            && self.rx_free == RxFree::default();
        self.host_input && is_default
    }

    /// Checks every field.
    ///
    /// # Errors
    /// `InvalidInput`, naming the field, its value and its bounds.
    pub fn validate(&self) -> io::Result<()> {
        within("workers", self.workers as u64, 0, WORKERS_MAX as u64)?;
        within("spin_max (ms)", millis(self.spin_max), 0, 10)?;
        within("memory_max", self.memory_max as u64, 1 << 20, u64::MAX)?;
        within("connections_max", self.connections_max as u64, 1, u64::from(u32::MAX))?;
        within("sndbuf", u64::from(self.sndbuf), u64::from(BUFFER_MIN), u64::from(BUFFER_MAX))?;
        within("rcvbuf", u64::from(self.rcvbuf), u64::from(BUFFER_MIN), u64::from(BUFFER_MAX))?;
        within("notsent_lowat", u64::from(self.notsent_lowat), 1, u64::from(u32::MAX))?;
        within("sndbuf_max", u64::from(self.sndbuf_max), u64::from(BUFFER_MIN), u64::from(BUFFER_MAX))?;
        within("rcvbuf_max", u64::from(self.rcvbuf_max), u64::from(BUFFER_MIN), u64::from(BUFFER_MAX))?;
        within("loopback_mtu", u64::from(self.loopback_mtu), 1280, 65536)?;
        within("delack (ms)", millis(self.delack), 0, 500)?;
        within("rto_min (ms)", millis(self.rto_min), 1, 120_000)?;
        within("syn_retries", u64::from(self.syn_retries), 0, 127)?;
        within("retries", u64::from(self.retries), 1, 255)?;
        let keepalive_max = millis(KEEPALIVE_TIME_MAX);
        within("keepalive_time (ms)", millis(self.keepalive_time), 1, keepalive_max)?;
        within("keepalive_intvl (ms)", millis(self.keepalive_intvl), 1, keepalive_max)?;
        let probes_max = u64::from(KEEPALIVE_RETRIES_MAX);
        within("keepalive_probes", u64::from(self.keepalive_probes), 1, probes_max)?;
        if self.fastopen & !fastopen::ALL != 0 {
            let (given, known) = (self.fastopen, fastopen::ALL);
            return Err(invalid(format!(
                "Config::fastopen is {given:#x}: only the bits {known:#x} mean something"
            )));
        }
        within("time_wait (ms)", millis(self.time_wait), 1, 600_000)?;
        within("time_wait_max", self.time_wait_max as u64, 0, u64::from(u32::MAX))?;
        within("syn_backlog", self.syn_backlog as u64, 1, u64::from(u32::MAX))?;
        if self.port_range.is_empty() || *self.port_range.start() == 0 {
            return Err(invalid(format!(
                "port_range is {:?}: give a non-empty range that does not contain port 0",
                self.port_range
            )));
        }
        Ok(())
    }
}

/// Linux's `MAX_TCP_KEEPIDLE` and `MAX_TCP_KEEPINTVL`.
pub(crate) const KEEPALIVE_TIME_MAX: Duration = Duration::from_secs(32_767);
/// Linux's `MAX_TCP_KEEPCNT`.
pub(crate) const KEEPALIVE_RETRIES_MAX: u8 = 127;
/// Largest backlog of a listener (`net.core.somaxconn` of Linux).
pub(crate) const BACKLOG_MAX: usize = 4096;
/// Smallest socket buffer, bytes.
pub(crate) const BUFFER_MIN: u32 = 2 << 10;
/// Largest socket buffer, bytes; window scaling carries up to 1 GiB, memory decides earlier.
pub(crate) const BUFFER_MAX: u32 = 64 << 20;
/// Most worker threads.
const WORKERS_MAX: usize = 256;

fn within(field: &str, value: u64, min: u64, max: u64) -> io::Result<()> {
    if (min..=max).contains(&value) {
        return Ok(());
    }
    Err(invalid(format!("Config::{field} is {value}: it must be {min} to {max}")))
}

fn millis(d: Duration) -> u64 {
    u64::try_from(d.as_millis()).unwrap_or(u64::MAX)
}

fn invalid(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_valid_and_a_bad_field_is_named_with_its_bounds() {
        Config::default().validate().unwrap();
        let bad = Config { sndbuf: 1, ..Config::default() };
        let message = bad.validate().unwrap_err().to_string();
        assert!(message.contains("sndbuf is 1") && message.contains("2048"), "{message}");
        #[expect(clippy::reversed_empty_ranges)]
        let bad = Config { port_range: 10..=9, ..Config::default() };
        assert!(bad.validate().is_err());
        let bad = Config { workers: 257, ..Config::default() };
        assert!(bad.validate().is_err());
    }
}
