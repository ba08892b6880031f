//! An [`IcmpSocket`]'s options. Words that the next call reads; setting one never blocks. Tests: `tests/ip/sockets.rs`.

use std::io;

use rustix::io::Errno;
use sockeye_sync::facade::Ordering;

use super::IcmpSocket;

impl IcmpSocket {
    /// IP_TTL, or IPV6_UNICAST_HOPS: the hop limit of requests, 1 to 255. 64.
    ///
    /// # Errors
    /// EINVAL if it is out of these bounds.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        let ttl = u8::try_from(ttl).ok().filter(|ttl| *ttl > 0).ok_or(Errno::INVAL)?;
        let pcb = &self.handle.open()?.pcb;
        if pcb.is_v6 {
            pcb.options.set_unicast_hops_v6(ttl);
        } else {
            pcb.options.ttl.store(ttl, Ordering::Relaxed);
        }
        Ok(())
    }

    /// The value set.
    ///
    /// # Errors
    /// None; the signature is that of `std`.
    pub fn ttl(&self) -> io::Result<u32> {
        let pcb = &self.handle.open()?.pcb;
        let hops = if pcb.is_v6 { &pcb.options.hops_v6 } else { &pcb.options.ttl };
        Ok(hops.load(Ordering::Relaxed).into())
    }

    /// IP_TOS, or IPV6_TCLASS: DSCP and ECN of requests.
    ///
    /// # Errors
    /// None; the signature is that of `std`.
    pub fn set_tos(&self, tos: u8) -> io::Result<()> {
        let pcb = &self.handle.open()?.pcb;
        let slot = if pcb.is_v6 { &pcb.options.tclass_v6 } else { &pcb.options.tos };
        slot.store(tos, Ordering::Relaxed);
        Ok(())
    }

    /// IP_RECVERR: errors are kept for [`recv_err`](Self::recv_err), and end a call each. On. Without, only those that
    /// are final end a call, and only on a socket with a peer.
    ///
    /// # Errors
    /// None; the signature is that of `std`.
    pub fn set_recv_err(&self, wanted: bool) -> io::Result<()> {
        self.options()?.recv_err.store(wanted, Ordering::Relaxed);
        Ok(())
    }
}
