//! An interface that is gone: a device that was unplugged, a tunnel whose other side was closed.
//!
//! Its input thread finds out ([`Netif::is_down`](super::Netif::is_down)) and ends. The interface's addresses and routes go,
//! so that nothing new begins over it (ENETUNREACH), and its connections end with ENETDOWN: unsent data cannot be sent any
//! more, and a caller that waits for them would wait for minutes. The number of the interface is not used again. Tests:
//! `tests/ip/routes.rs`.

use super::NetifId;
use super::table::Netifs;
use super::tables::Tables;
use crate::inet::input::Transport;

/// Looks whether an interface is gone, and detaches it if that is new. True if it is gone.
pub(crate) fn is_gone<T: Transport>(core: &T, id: NetifId) -> bool {
    let gone = core.netifs.netif(id).is_none_or(|netif| netif.is_down(core));
    if gone && core.netifs.withdraw(id) {
        core.interface_gone(id);
    }
    gone
}

impl Netifs {
    /// Forgets the addresses and routes of an interface that is gone. False if it had none.
    pub fn withdraw(&self, netif: NetifId) -> bool {
        let has = |tables: &Tables| {
            tables.addresses().iter().any(|own| own.netif == netif)
                || tables.routes().any(|route| route.netif() == Some(netif))
        };
        let known = has(&self.tables());
        let withdraw = |tables: &mut Tables| {
            tables.withdraw(netif);
            Ok(())
        };
        known && self.change(withdraw).is_ok()
    }
}
