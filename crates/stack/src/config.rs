//! Settings of a stack. Every field has a default that needs no thought.
//!
//! Names follow `sysctl net.ipv4.tcp_*` where Linux has the same knob. A [`Config`] is checked as a
//! whole by [`Config::validate`], which names the field, the value and the bounds. Fields are set from text by
//! [`Config::set`].

use std::io;
use std::ops::RangeInclusive;
use std::time::Duration;

#[cfg(feature = "experiments")]
use crate::experiments::Experiments;

pub mod fastopen;
mod tcp;
mod text;

pub use tcp::TcpConfig;
pub(crate) use tcp::{KEEPALIVE_RETRIES_MAX, KEEPALIVE_TIME_MAX};
pub use text::SetError;

/// When a listener answers a SYN with a cookie instead of storing it (`tcp_syncookies`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SynCookies {
    /// Never: in a full SYN cache, a new entry replaces the oldest.
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

/// Settings of a stack. Start from [`Config::default`] and change fields as needed.
#[derive(Clone, Debug)]
pub struct Config {
    /// Worker threads, which run timers and protocol work that no other thread has finished. 0 to 256. With 0, the
    /// embedder drives the stack with [`Stack::poll`](crate::Stack::poll), without which blocking calls would wait for
    /// ever. Default: one per core. With 0, a child of fork(2) can continue to use the stack, if no other thread is in
    /// a call of it when the child is made ([`fork`](crate::fork)).
    pub workers: usize,
    /// Longest busy wait before a blocking call parks, at most 10 ms; zero turns spinning off. The wait yields its core
    /// to other threads, and adapts: a thread whose spins fail spins less. Default 100 µs.
    pub spin_max: Duration,
    /// Whether the stack limits writers on loopback if more than eight per core wait for their readers: a few continue,
    /// each for some megabytes, while the others wait. The throughput is higher, but each of many bulk streams moves in
    /// bursts, with a pause of a third of a millisecond for each other stream on its core. Default on; see
    /// `docs/adr/0041`.
    pub writer_admission: bool,
    /// Hard cap on the bytes of packet memory; at least 1 MiB. At the cap a blocking send waits, a
    /// non-blocking one reports `WouldBlock` or `OutOfMemory`; nothing is lost. Default 1 GiB.
    pub memory_max: usize,
    /// Largest number of connections, in any state except TIME-WAIT. At this limit, connects fail with `OutOfMemory`,
    /// and handshakes stay half-open. Default 1,048,576.
    pub connections_max: usize,
    /// Send buffer of a new socket, bytes (`tcp_wmem`), 2 KiB to 64 MiB. Default 256 KiB.
    pub sndbuf: u32,
    /// Receive buffer of a new socket, bytes (`tcp_rmem`), 2 KiB to 64 MiB. Default 256 KiB.
    pub rcvbuf: u32,
    /// Receive buffer of a new UDP socket, bytes of memory (`rmem_default`), 2 KiB to 64 MiB. A datagram of 1,448 bytes
    /// takes about 2,200 bytes. Nothing slows a sender down, so the buffer must hold what arrives while the reader
    /// waits for its core. Default 1 MiB.
    pub udp_rcvbuf: u32,
    /// Largest size to which the send buffer of a connection over an interface grows automatically, bytes, 2 KiB to 64
    /// MiB (`tcp_wmem`). It does not grow on loopback, or if the application has set a size. Default 64 MiB.
    pub sndbuf_max: u32,
    /// The same for the receive buffer (`tcp_rmem`); it determines the window scale. Default 32 MiB.
    pub rcvbuf_max: u32,
    /// MTU of the loopback interface, bytes, 1280 to 65536. Default 65536, as on Linux.
    pub loopback_mtu: u32,
    /// Encodes every loopback segment as IP and TCP bytes and parses it again, as on a wire. Slower; for tests of the
    /// codec. Default off.
    pub loopback_encode: bool,
    /// Ephemeral ports (`ip_local_port_range`). Default 32768 to 60999.
    pub port_range: RangeInclusive<u16>,
    /// Whether packets over IPv6 have a flow label, a hash of their flow (RFC 6437; Linux's `auto_flowlabels`), so that
    /// routers spread flows over paths of equal cost. Default on.
    pub auto_flowlabels: bool,
    /// TCP's settings.
    pub tcp: TcpConfig,
    /// Settings for comparing mechanisms. Only with the feature `experiments`.
    #[cfg(feature = "experiments")]
    pub experiments: Experiments,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            workers: std::thread::available_parallelism().map_or(1, usize::from).min(WORKERS_MAX),
            spin_max: sockeye_sync::SPIN_MAX_DEFAULT,
            writer_admission: true,
            memory_max: 1 << 30,
            connections_max: 1 << 20,
            sndbuf: 256 << 10,
            rcvbuf: 256 << 10,
            udp_rcvbuf: 1 << 20,
            sndbuf_max: 64 << 20,
            rcvbuf_max: 32 << 20,
            loopback_mtu: 65536,
            loopback_encode: false,
            port_range: 32768..=60999,
            auto_flowlabels: true,
            tcp: TcpConfig::default(),
            #[cfg(feature = "experiments")]
            experiments: Experiments::default(),
        }
    }
}

impl Config {
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
        within("sndbuf_max", u64::from(self.sndbuf_max), u64::from(BUFFER_MIN), u64::from(BUFFER_MAX))?;
        within("udp_rcvbuf", u64::from(self.udp_rcvbuf), u64::from(BUFFER_MIN), u64::from(BUFFER_MAX))?;
        within("rcvbuf_max", u64::from(self.rcvbuf_max), u64::from(BUFFER_MIN), u64::from(BUFFER_MAX))?;
        within("loopback_mtu", u64::from(self.loopback_mtu), 1280, 65536)?;
        self.tcp.validate()?;
        if self.port_range.is_empty() || *self.port_range.start() == 0 {
            return Err(invalid(format!(
                "port_range is {:?}: give a non-empty range that does not contain port 0",
                self.port_range
            )));
        }
        Ok(())
    }
}

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
