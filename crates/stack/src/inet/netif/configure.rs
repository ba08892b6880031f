//! The calls by which an application changes addresses and routes, and asks for them.
//!
//! They may be made at any time and by any thread; packets and connections see all of a change or nothing (`table.rs`).
//! Tests: `tests/ip/routes.rs`.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use super::{Address, AddressState, NetifId, Prefix, Route};
use crate::base::clock::Clock;
use crate::inet::Core;
use crate::inet::link;
use crate::rt::handle::Stack;

impl Stack {
    /// Leads `network` to an interface. The longest prefix that contains a destination decides; `0.0.0.0/0`
    /// and `::/0` are default routes. The networks of an interface's addresses have their routes already.
    ///
    /// # Errors
    /// `InvalidInput` if the interface is another stack's, `QuotaExceeded` beyond 128 routes.
    pub fn add_route(&self, network: Prefix, netif: NetifId) -> io::Result<()> {
        self.core::<Core>()?.netifs.add_route(Route::on_link(network, netif))
    }

    /// Adds a route of any kind. Connections take it from their next segment on.
    ///
    /// # Errors
    /// `InvalidInput` if the interface is another stack's or the gateway can be none, `AlreadyExists` if there is the
    /// same one, `QuotaExceeded` beyond 128 routes.
    pub fn insert_route(&self, route: Route) -> io::Result<()> {
        self.core::<Core>()?.netifs.add_route(route)
    }

    /// Takes a route away. Connections that took it look for another with their next segment; while there is none,
    /// their segments are dropped and sent again.
    ///
    /// # Errors
    /// `NotFound` if there is no such route.
    pub fn remove_route(&self, route: &Route) -> io::Result<()> {
        self.core::<Core>()?.netifs.remove_route(route)
    }

    /// All routes, in the order in which they are preferred.
    pub fn routes(&self) -> Vec<Route> {
        self.core::<Core>()
            .map_or_else(|_lost| Vec::new(), |core| core.netifs.tables().routes().copied().collect())
    }

    /// Gives an interface another address, and a route to its network if there is none yet. On Ethernet the address is probed,
    /// announced and answered for as those of [`attach_with`](Self::attach_with).
    ///
    /// # Errors
    /// `InvalidInput` for an address that the stack already has or that is not a host's, or if the interface is another stack's;
    /// `QuotaExceeded` beyond 64 addresses or 128 routes.
    pub fn add_address(&self, netif: NetifId, prefix: Prefix) -> io::Result<()> {
        link::add_address(self.core::<Core>()?, netif, prefix)
    }

    /// Takes an address away, with the route to its network if it was the last one there. Sockets that are bound to
    /// it stay as they are, and receive nothing any more. On Ethernet, the stack no longer answers other hosts for it.
    ///
    /// # Errors
    /// `NotFound` if it is no address of an interface.
    pub fn remove_address(&self, addr: IpAddr) -> io::Result<()> {
        link::remove_address(self.core::<Core>()?, addr)
    }

    /// Changes the permitted use of an address.
    ///
    /// # Errors
    /// `NotFound` if it is no address of an interface.
    pub fn set_address_state(&self, addr: IpAddr, state: AddressState) -> io::Result<()> {
        self.core::<Core>()?.netifs.set_address_state(addr, state)
    }

    /// The addresses of all interfaces.
    pub fn addresses(&self) -> Vec<Address> {
        self.core::<Core>().map_or_else(|_lost| Vec::new(), |core| core.netifs.tables().addresses().to_vec())
    }

    /// When the next hop towards `remote` was last known to answer, to the second, as time since the stack was
    /// made: a connection's peer has acknowledged something new (RFC 4861 section 7.3.1). `None` if that was never,
    /// or `remote` is not reached by an interface.
    pub fn next_hop_confirmed(&self, remote: IpAddr) -> Option<Duration> {
        let netifs = &self.core::<Core>().ok()?.netifs;
        let tables = netifs.tables();
        tables.entry(tables.lookup(remote).ok()?)?.confirmed_at().map(Clock::since_start)
    }
}
