//! A socket's options: words that are read by sends and receives and changed by their setters.
//!
//! Each stands for itself and orders nothing, so all accesses are relaxed. Their public faces are in `settings.rs`.

use super::stamps::Bits;
use sockeye_sync::facade::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

/// See the module's head.
pub(crate) struct Options {
    pub nonblocking: AtomicBool,
    /// SO_BROADCAST.
    pub broadcast: AtomicBool,
    /// What deliverers read, by the bits of [`Arrivals`](super::stamps::Arrivals).
    pub arrivals: Bits,
    /// IP_RECVERR.
    pub recv_err: AtomicBool,
    /// IP_MULTICAST_ALL.
    pub multicast_all: AtomicBool,
    /// IP_MULTICAST_LOOP.
    pub multicast_loop_v4: AtomicBool,
    /// IPV6_MULTICAST_LOOP.
    pub multicast_loop_v6: AtomicBool,
    /// IP_TTL.
    pub ttl: AtomicU8,
    /// IPV6_UNICAST_HOPS.
    pub hops_v6: AtomicU8,
    /// It was set: the interface's default does not count.
    pub hops_v6_set: AtomicBool,
    /// IP_MULTICAST_TTL.
    pub multicast_ttl_v4: AtomicU8,
    /// IPV6_MULTICAST_HOPS.
    pub multicast_hops_v6: AtomicU8,
    /// IP_TOS.
    pub tos: AtomicU8,
    /// IPV6_TCLASS.
    pub tclass_v6: AtomicU8,
    /// IP_MTU_DISCOVER, by [`MtuDiscover`](crate::MtuDiscover)'s numbers.
    pub mtu_discover: AtomicU8,
    /// UDP_SEGMENT; 0 for none.
    pub segment_size: AtomicU16,
    /// IP_MULTICAST_IF; 0 for none.
    pub multicast_if_v4: AtomicU32,
    /// IPV6_MULTICAST_IF; 0 for none.
    pub multicast_if_v6: AtomicU32,
    /// SO_RCVTIMEO, microseconds; 0 for none.
    pub rcv_timeout: AtomicU64,
    /// SO_SNDTIMEO, likewise.
    pub snd_timeout: AtomicU64,
}

/// Hop limit of unicast datagrams (RFC 1700, Linux's `ip_default_ttl`).
pub(crate) const HOPS_DEFAULT: u8 = 64;
/// Hop limit of datagrams to a group: the link only (RFC 1112 section 6.1).
const MULTICAST_HOPS_DEFAULT: u8 = 1;

impl Default for Options {
    fn default() -> Self {
        Self {
            nonblocking: AtomicBool::new(false),
            broadcast: AtomicBool::new(false),
            arrivals: Bits::default(),
            recv_err: AtomicBool::new(false),
            multicast_all: AtomicBool::new(true),
            multicast_loop_v4: AtomicBool::new(true),
            multicast_loop_v6: AtomicBool::new(true),
            ttl: AtomicU8::new(HOPS_DEFAULT),
            hops_v6: AtomicU8::new(HOPS_DEFAULT),
            hops_v6_set: AtomicBool::new(false),
            multicast_ttl_v4: AtomicU8::new(MULTICAST_HOPS_DEFAULT),
            multicast_hops_v6: AtomicU8::new(MULTICAST_HOPS_DEFAULT),
            tos: AtomicU8::new(0),
            tclass_v6: AtomicU8::new(0),
            mtu_discover: AtomicU8::new(0),
            segment_size: AtomicU16::new(0),
            multicast_if_v4: AtomicU32::new(0),
            multicast_if_v6: AtomicU32::new(0),
            rcv_timeout: AtomicU64::new(0),
            snd_timeout: AtomicU64::new(0),
        }
    }
}

impl Options {
    /// IPV6_UNICAST_HOPS; `None` if the application has not said.
    pub fn unicast_hops_v6(&self) -> Option<u8> {
        self.hops_v6_set.load(Ordering::Relaxed).then(|| self.hops_v6.load(Ordering::Relaxed))
    }

    /// Sets it.
    pub fn set_unicast_hops_v6(&self, hops: u8) {
        self.hops_v6.store(hops, Ordering::Relaxed);
        self.hops_v6_set.store(true, Ordering::Relaxed);
    }
}
