//! Binding, connecting and closing: everything that changes a socket's name.
//!
//! A name is in three places: the bind table (which socket may have which port), the copies by which datagrams find sockets, and
//! the socket's own cell, by which it sends. All are changed under the socket's `naming` and the bind table's lock. Which
//! address a socket has after which call is Linux's: a connect keeps the address that an earlier one has given it, a disconnect
//! returns to the bound address.
//!
//! Rank: `naming` → bind table → copies of the table. Tests: `tests/udp/`.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::task::Waker;

use rustix::io::Errno;
use sockeye_proto::ip::martian::is_host;
use sockeye_sync::Key;
use sockeye_sync::facade::{Arc, Ordering};

use super::name::{Name, wildcard};
use super::pcb::{Naming, Pcb, Protocol, Role};
use super::ports::Ports;
use super::route;
use super::table::Table;
use crate::base::addr::{Endpoint, connect_target};
use crate::inet::Core;
use crate::inet::netif::{NetifId, scope};
use crate::rt::handle::Stack;
use crate::rt::panics::{self, PanicSource};
use crate::rt::tasks::{Listed, Want};

/// State that the handles of one socket share. The last one closes it.
pub(crate) struct Handle {
    pub stack: Stack,
    pub pcb: Arc<Pcb>,
}

impl Handle {
    pub fn core(&self) -> &Core {
        self.stack.core_in_use()
    }

    /// Where sockets of this protocol have their names.
    fn names(&self) -> (&Ports, &Table) {
        let udp = super::shared(self.core());
        match self.pcb.protocol {
            Protocol::Udp => (&udp.ports, &udp.table),
            Protocol::Echo => (&udp.echo.ports, &udp.echo.table),
        }
    }

    /// bind(2); port 0 takes a free one.
    pub fn bind(&self, addr: SocketAddr) -> io::Result<()> {
        panics::call(self.core(), "bind", || self.bind_to(addr))
    }

    fn bind_to(&self, addr: SocketAddr) -> io::Result<()> {
        let (core, pcb) = (self.core(), &self.pcb);
        let local = match endpoint(pcb, addr) {
            // A mapped address, on a socket that takes none: as on Linux, this is no question of routes here.
            Err(Errno::NETUNREACH) => return Err(Errno::INVAL.into()),
            Ok(_) if pcb.is_v6 && addr.is_ipv4() => return Err(Errno::INVAL.into()),
            local => local?,
        };
        scope::check_bind(core, &addr)?;
        let is_own = local.addr.is_unspecified()
            || core.netifs.is_local(local.addr)
            || local.addr.is_multicast()
            || pcb.transparent && is_host(local.addr)
            || scope::is_broadcast(&core.netifs, local.addr);
        if !is_own {
            return Err(Errno::ADDRNOTAVAIL.into());
        }
        let mut naming = pcb.naming.lock();
        if pcb.any_port || pcb.name.load().local.port != 0 {
            return Err(Errno::INVAL.into());
        }
        self.take_port(&mut naming, local, addr.port() == 0)?;
        naming.bound_addr = Some(local.addr);
        Ok(())
    }

    /// The name with a port: one that the socket has, or a free one that it takes now.
    #[inline]
    pub fn bound_name(&self) -> io::Result<Name> {
        let name = self.pcb.name.load();
        if name.local.port != 0 || self.pcb.any_port {
            return Ok(name);
        }
        self.bind_free()
    }

    #[cold]
    fn bind_free(&self) -> io::Result<Name> {
        let mut naming = self.pcb.naming.lock();
        let name = self.pcb.name.load();
        // Another thread may have been faster.
        if name.local.port != 0 {
            return Ok(name);
        }
        self.take_port(&mut naming, name.local, true)
    }

    /// Binds a socket that was made for that to every port.
    pub fn bind_every_port(&self) -> io::Result<()> {
        let (udp, pcb) = (super::shared(self.core()), &self.pcb);
        let _naming = pcb.naming.lock();
        let name = pcb.name.load();
        let mut ports = udp.ports.lock();
        ports.bind_any(pcb, name.local)?;
        udp.table.rename(pcb, None, Some(&name));
        Ok(())
    }

    /// Takes a port for a socket that has none.
    fn take_port(&self, naming: &mut Naming, local: Endpoint, is_auto: bool) -> io::Result<Name> {
        let ((ports, table), pcb) = (self.names(), &self.pcb);
        let mut ports = ports.lock();
        let port = ports.bind(pcb, local)?;
        let name = Name { local: Endpoint::new(local.addr, port), remote: None };
        let named = panics::catch(PanicSource::Protocol, "the table of UDP", || {
            table.rename(pcb, None, Some(&name));
        });
        if let Err(caught) = named {
            table.rename(pcb, Some(&name), None);
            ports.unbind(pcb, port);
            caught.resume();
        }
        pcb.name.store(&name);
        naming.is_auto = is_auto;
        Ok(name)
    }

    /// connect(2): datagrams go to `addr` and come from it only.
    pub fn connect(&self, addr: SocketAddr) -> io::Result<()> {
        panics::call(self.core(), "connect", || self.connect_to(addr))
    }

    fn connect_to(&self, addr: SocketAddr) -> io::Result<()> {
        let (core, pcb) = (self.core(), &self.pcb);
        // The names of flows, and of what flows come to, do not change.
        if pcb.any_port || !matches!(pcb.role, Role::Plain) {
            return Err(Errno::INVAL.into());
        }
        let mut remote = endpoint(pcb, addr)?;
        remote.addr = connect_target(remote.addr);
        if scope::is_broadcast(&core.netifs, remote.addr) && !pcb.options.broadcast.load(Ordering::Relaxed) {
            return Err(Errno::ACCESS.into());
        }
        let mut naming = pcb.naming.lock();
        let before = pcb.name.load();
        let named = scope::named(core, &addr)?.map(NetifId::interface_index);
        let interface = named.unwrap_or_else(|| route::interface_for(pcb, remote.addr));
        let source = route::source(core, pcb, &before, remote.addr, None, interface)?;
        let of_source = core.netifs.netif_with(source).map(NetifId::interface_index);
        if named.is_some() && !remote.addr.is_multicast() && named != of_source {
            // It is bound to an address of another interface.
            return Err(Errno::INVAL.into());
        }
        let before =
            if before.local.port == 0 { self.take_port(&mut naming, before.local, true)? } else { before };
        let addr = if before.local.addr.is_unspecified() { source } else { before.local.addr };
        let local = Endpoint::new(addr, before.local.port);
        self.rename(&before, &Name { local, remote: Some(remote) });
        if let Some(interface) = named.filter(|_| remote.addr.is_multicast()) {
            pcb.options.multicast_if_v6.store(interface, Ordering::Relaxed);
        }
        Ok(())
    }

    /// connect(2) with AF_UNSPEC: no peer any more, and the address that was bound; a port that the stack has chosen is
    /// given back.
    pub fn disconnect(&self) {
        if !matches!(self.pcb.role, Role::Plain) {
            return;
        }
        let mut naming = self.pcb.naming.lock();
        let before = self.pcb.name.load();
        if before.local.port == 0 {
            return;
        }
        let addr = naming.bound_addr.unwrap_or_else(|| wildcard(self.pcb.is_v6));
        let after = Name { local: Endpoint::new(addr, before.local.port), remote: None };
        if naming.is_auto {
            naming.is_auto = false;
            self.give_port_back(&before, addr);
        } else {
            self.rename(&before, &after);
        }
    }

    fn rename(&self, from: &Name, to: &Name) {
        let ((ports, table), pcb) = (self.names(), &self.pcb);
        let mut ports = ports.lock();
        ports.readdress(pcb, to.local);
        let renamed = panics::catch(PanicSource::Protocol, "the table of UDP", || {
            table.rename(pcb, Some(from), Some(to));
        });
        if let Err(caught) = renamed {
            // Some copies have the old name and some the new one; then all have the old one again.
            table.rename(pcb, Some(to), None);
            table.rename(pcb, Some(from), Some(from));
            ports.readdress(pcb, from.local);
            drop(ports);
            caught.resume();
        }
        pcb.name.store(to);
    }

    fn give_port_back(&self, from: &Name, addr: IpAddr) {
        let ((ports, table), pcb) = (self.names(), &self.pcb);
        let mut ports = ports.lock();
        table.rename(pcb, Some(from), None);
        ports.unbind(pcb, from.local.port);
        pcb.name.store(&Name { local: Endpoint::new(addr, 0), remote: None });
    }
}

impl Drop for Handle {
    /// The last handle closes the socket: it is found no more, then its content is dropped.
    fn drop(&mut self) {
        let naming = self.pcb.naming.lock();
        let name = self.pcb.name.load();
        if name.local.port != 0 || self.pcb.any_port {
            self.give_port_back(&name, name.local.addr);
        }
        drop(naming);
        let groups = self.pcb.receive.so.lock().groups.take();
        for membership in groups {
            // The socket has left it whatever the link says.
            let _left = super::shared(self.core()).leave(self.core(), membership);
        }
        if let Some(part) = self.pcb.role.flow() {
            part.leave(&self.pcb);
        }
        // Flows that nobody has accepted are closed as any socket is.
        for pcb in self.pcb.close(self.core()) {
            drop(Self { stack: self.stack.clone(), pcb });
        }
    }
}

impl Listed for Arc<Handle> {
    /// A send waits for no other one.
    fn take_off(&self, _want: Want, key: Key) -> Option<Waker> {
        self.pcb.receive.so.lock().waiters.remove(key)
    }
}

/// An address that an application gave, for this socket.
///
/// # Errors
/// EAFNOSUPPORT if it is of another family than the socket takes.
pub(crate) fn endpoint(pcb: &Pcb, addr: SocketAddr) -> Result<Endpoint, Errno> {
    let endpoint = Endpoint::from(addr);
    match (addr, endpoint.addr) {
        (SocketAddr::V6(_), _) if !pcb.is_v6 => Err(Errno::AFNOSUPPORT),
        // IPv4, or IPv4-mapped, on an IPv6 socket that takes none.
        (_, IpAddr::V4(_)) if pcb.is_v6 && pcb.v6_only => Err(Errno::NETUNREACH),
        _ => Ok(endpoint),
    }
}
