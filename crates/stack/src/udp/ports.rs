//! Local UDP ports: which socket is bound to which, and which one an unbound socket gets.
//!
//! The conflicts are those of TCP (`crate::tcp::tables::ports`, `docs/bind.md`) without listeners: two sockets on one port conflict
//! if their addresses overlap, unless both have SO_REUSEADDR or both have SO_REUSEPORT. A connected socket keeps its
//! port with the address that the connect gave it. Free ports are chosen by RFC 6056's algorithm, as TCP's.
//!
//! The lock is that of everything that changes names: a bind, a connect and a close change this table and then the
//! copies by which datagrams find sockets (`table.rs`). Rank: after a socket's `naming`, before the copies. Tests:
//! `tests/udp/bind.rs`.

use std::collections::HashMap;
use std::io;

use smallvec::SmallVec;
use sockeye_proto::tcp::port_choice::{PortChoice, PortRange};
use sockeye_sync::facade::Arc;
use sockeye_sync::{Mutex, MutexGuard};

use super::pcb::Pcb;
use crate::base::addr::{Endpoint, octets};
use crate::base::bind::{self, ANY_PORT, Bind, BindOptions};

/// See the module's head.
pub(crate) struct Ports(Mutex<Binds>);

/// The table, locked.
pub(crate) struct Binds {
    ports: HashMap<u16, SmallVec<[Place; 1]>>,
    chooser: PortChoice,
}

/// A socket and its place at a port.
type Place = (Arc<Pcb>, Bind);

impl Ports {
    pub fn new(range: PortRange, secret: [u8; 16]) -> Self {
        Self(Mutex::new(Binds { ports: HashMap::new(), chooser: PortChoice::new(range, secret) }))
    }

    /// Has free ports chosen by another secret from now on.
    pub fn rekey(&self, range: PortRange, secret: [u8; 16]) {
        self.lock().chooser = PortChoice::new(range, secret);
    }

    pub fn lock(&self) -> MutexGuard<'_, Binds> {
        self.0.lock()
    }
}

impl Binds {
    /// Binds a socket to `local`, or to a free port of the range if its port is 0. Returns the port.
    pub fn bind(&mut self, pcb: &Arc<Pcb>, local: Endpoint) -> io::Result<u16> {
        let port = if local.port == 0 {
            let mut free = self.chooser.candidates(&octets(local.addr), &[], 0);
            free.find(|port| !self.ports.contains_key(port)).ok_or_else(bind::no_port)?
        } else {
            local.port
        };
        self.place(pcb, Endpoint::new(local.addr, port))?;
        Ok(port)
    }

    /// Binds a socket to every port that no other is bound to. It is given back as port [`ANY_PORT`].
    pub fn bind_any(&mut self, pcb: &Arc<Pcb>, local: Endpoint) -> io::Result<()> {
        self.place(pcb, Endpoint::new(local.addr, ANY_PORT))
    }

    fn place(&mut self, pcb: &Arc<Pcb>, local: Endpoint) -> io::Result<()> {
        let options =
            BindOptions { reuse_addr: pcb.reuse_addr, reuse_port: pcb.reuse_port, v6_only: pcb.v6_only };
        let binds = self.ports.entry(local.port).or_default();
        if binds.iter().any(|(_, bind)| bind.conflicts(local.addr, options)) {
            return Err(rustix::io::Errno::ADDRINUSE.into());
        }
        binds.push((Arc::clone(pcb), Bind::new(0, local.addr, options)));
        Ok(())
    }

    /// A connect or disconnect has given the socket another address at its port.
    pub fn readdress(&mut self, pcb: &Arc<Pcb>, local: Endpoint) {
        let binds = self.ports.get_mut(&local.port).map_or(&mut [][..], SmallVec::as_mut_slice);
        if let Some((_, bind)) = binds.iter_mut().find(|(known, _)| Arc::ptr_eq(known, pcb)) {
            bind.addr = local.addr;
        }
    }

    /// Gives a port back.
    pub fn unbind(&mut self, pcb: &Arc<Pcb>, port: u16) {
        let Some(binds) = self.ports.get_mut(&port) else { return };
        binds.retain(|(known, _)| !Arc::ptr_eq(known, pcb));
        if binds.is_empty() {
            self.ports.remove(&port);
        }
    }
}
