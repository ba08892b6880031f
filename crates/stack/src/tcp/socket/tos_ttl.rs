//! The options IP_TOS and IP_TTL of a connection: DSCP and hop limit of its packets.
//!
//! Words of the connection's options, read for each of its segments; a change holds from the next one on. The two bits
//! of ECN in the octet are the stack's (RFC 3168). SYN-ACKs have the listener's, names in TIME-WAIT the connection's DSCP; other segments that belong
//! to no connection, such as resets, have the defaults. Tests: `tests/ip/tos_ttl.rs`.

use std::io;

use rustix::io::Errno;
use sockeye_proto::ip::Addresses;
use sockeye_sync::facade::Ordering;

use super::{TcpListener, TcpSocket, TcpStream};
use crate::tcp::conn::SocketOptions;

/// See the module's head.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct TosTtl {
    /// DSCP, in its place in the octet; the bits of ECN are zero.
    pub tos: u8,
    /// 0: the interface's.
    pub ttl: u8,
}

/// Hop limit of a listener whose option was not set (Linux's `ip_default_ttl`). An interface may have another for its connections.
const HOPS_DEFAULT: u8 = 64;

/// The bits of the octet that are ECN's.
const ECN_MASK: u8 = 3;

impl TosTtl {
    /// Those of a connection whose options were not set.
    pub const DEFAULT: Self = Self { tos: 0, ttl: 0 };

    /// Those of a connection.
    #[inline]
    pub fn of(options: &SocketOptions) -> Self {
        // Relaxed: each stands for itself and orders nothing.
        Self { tos: options.tos.load(Ordering::Relaxed), ttl: options.hop_limit.load(Ordering::Relaxed) }
    }

    /// With the hop limit of the interface, if there is no other.
    #[inline]
    pub fn or(self, default: impl FnOnce() -> u8) -> Self {
        if self.ttl != 0 { self } else { Self { ttl: default(), ..self } }
    }

    /// The header of a segment between these addresses, with ECN's two bits and a flow label.
    #[inline]
    pub fn header(self, addresses: Addresses, ecn: u8, flow_label: u32) -> sockeye_proto::ip::Header {
        sockeye_proto::ip::Header {
            addresses,
            protocol: sockeye_proto::ip::PROTOCOL_TCP,
            hop_limit: self.ttl,
            traffic_class: self.tos | ecn,
            flow_label,
        }
    }
}

/// A hop limit that an application has given.
fn hop_limit(ttl: u32) -> io::Result<u8> {
    Ok(u8::try_from(ttl).ok().filter(|ttl| *ttl > 0).ok_or(Errno::INVAL)?)
}

impl TcpSocket {
    /// IP_TOS, or IPV6_TCLASS: the DSCP of the connection's segments, or of a listener's connections', in the upper six
    /// bits; the stack sets the two ECN bits. Default 0.
    pub fn set_tos(&mut self, tos: u32) {
        // The option is an octet, whatever its argument's type.
        self.settings.tos_ttl.tos = tos as u8 & !ECN_MASK;
    }

    /// IP_TTL, or IPV6_UNICAST_HOPS, of the connection's segments, or of a listener's connections', 1 to 255. Default
    /// 64, or the value that IPv6 routers advertise.
    ///
    /// # Errors
    /// EINVAL if it is out of these bounds.
    pub fn set_ttl(&mut self, ttl: u32) -> io::Result<()> {
        self.settings.tos_ttl.ttl = hop_limit(ttl)?;
        Ok(())
    }
}

impl TcpStream {
    /// IP_TOS, or IPV6_TCLASS: the DSCP of segments from now on, in the upper six bits; the stack sets the two ECN
    /// bits.
    ///
    /// # Errors
    /// None; the signature is that of `socket2`.
    pub fn set_tos(&self, tos: u32) -> io::Result<()> {
        // The option is an octet, whatever its argument's type.
        self.options()?.tos.store(tos as u8 & !ECN_MASK, Ordering::Relaxed);
        Ok(())
    }

    /// The value set.
    ///
    /// # Errors
    /// None; the signature is that of `socket2`.
    pub fn tos(&self) -> io::Result<u32> {
        Ok(self.options()?.tos.load(Ordering::Relaxed).into())
    }

    /// IP_TTL, or IPV6_UNICAST_HOPS, of segments from now on, 1 to 255. Default 64.
    ///
    /// # Errors
    /// EINVAL if it is out of these bounds.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.options()?.hop_limit.store(hop_limit(ttl)?, Ordering::Relaxed);
        Ok(())
    }

    /// The value set.
    ///
    /// # Errors
    /// None; the signature is that of `std`.
    pub fn ttl(&self) -> io::Result<u32> {
        let (core, conn) = self.enter()?;
        let netif = conn.via.last().netif();
        let default = || core.links.hop_limit(netif, conn.tuple.local.addr.is_ipv6());
        Ok(TosTtl::of(&conn.options).or(default).ttl.into())
    }
}

impl TcpListener {
    /// IP_TTL, or IPV6_UNICAST_HOPS, of connections that are made from now on, 1 to 255.
    ///
    /// # Errors
    /// EINVAL if it is out of these bounds.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.enter()?.1.hop_limit.store(hop_limit(ttl)?, Ordering::Relaxed);
        Ok(())
    }

    /// The value set; 64 by default.
    ///
    /// # Errors
    /// None; the signature is that of `std`.
    pub fn ttl(&self) -> io::Result<u32> {
        let set = self.enter()?.1.hop_limit.load(Ordering::Relaxed);
        Ok(u32::from(if set == 0 { HOPS_DEFAULT } else { set }))
    }
}
