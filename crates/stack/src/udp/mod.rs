//! UDP sockets (RFC 768), in the shape of `std::net::UdpSocket`.
//!
//! Semantics are Linux's; `docs/udp.md` has them, with the differences. They stand outside of the connections' locks: a datagram
//! to an address of the stack's own is appended to its receiver's queue by the thread that sends it, under that queue's
//! mutex, which is the only thing that senders and receivers share. Read in the order of a datagram's way: `send.rs`,
//! `deliver.rs`, `pcb.rs`, `recv.rs`; names: `naming.rs`, `ports.rs`, `table.rs`.
//!
//! Does not depend on TCP, or on how packets are made and routed beyond `route.rs`. Lock order: a socket's `naming`
//! → bind table → copies of the table of sockets → a receiver's `so` → inbox of a `Poll`; the host's groups → the
//! same copies. Tests: at the ends of the files, `tests/udp/`, `tests/udp/stress.rs`, `tests/udp/tokio.rs`.

// First, because the documentation shows methods in the order of modules.
mod socket;

mod builder;
pub(crate) mod count;
pub(crate) mod deliver;
pub(crate) mod errors;
pub(crate) mod flow;
pub(crate) mod flows;
pub(crate) mod groups;
pub(crate) mod input;
mod message;
pub(crate) mod methods;
mod name;
pub(crate) mod naming;
pub(crate) mod options;
mod output;
pub(crate) mod pcb;
mod ports;
pub(crate) mod recv;
pub(crate) mod route;
mod send;
mod settings;
pub(crate) mod stamps;
pub(crate) mod table;

pub use builder::UdpBuilder;
pub use errors::{RecvError, Unsent};
pub use flow::{UdpFlow, UdpFlowConfig, UdpFlowListener};
pub use message::{Outgoing, RecvMeta, SendMeta};
pub use socket::UdpSocket;

use std::net::IpAddr;

use rustix::io::Errno;
use sockeye_proto::tcp::port_choice::PortRange;
use sockeye_sync::facade::Arc;
use sockeye_sync::{Counters, Serials, cpu};

use crate::base::addr::HashKey;
use crate::inet::Core;
use crate::inet::link;
use crate::inet::netif::NetifId;
use crate::rt::env::{Env, Kept};
use groups::{Groups, Membership};
use ports::Ports;
use table::Table;

/// State that all UDP sockets of a stack share.
pub(crate) struct Shared {
    pub ports: Ports,
    pub table: Table,
    /// ICMP's sockets have their receive queues and names from here. Identifiers are their ports.
    pub echo: Names,
    /// Numbers of flows.
    pub flow_serials: Serials,
    groups: Groups,
    counters: Counters<{ count::COUNT }>,
}

/// Ports, or identifiers, and the sockets that have them.
pub(crate) struct Names {
    pub ports: Ports,
    pub table: Table,
}

impl Kept for Shared {
    const AT: usize = 1;
}

/// State that the UDP sockets of a stack share.
#[inline]
pub(crate) fn shared(env: &Env) -> &Shared {
    env.kept()
}

impl Shared {
    pub fn new(range: PortRange, secret: [u8; 16], key: HashKey) -> Self {
        Self {
            echo: Names { ports: Ports::new(range, secret), table: Table::new(key, 1) },
            ports: Ports::new(range, secret),
            table: Table::new(key, cpu::count()),
            flow_serials: Serials::new(),
            groups: Groups::default(),
            counters: Counters::new(),
        }
    }

    /// Has ports and identifiers chosen by other secrets from now on.
    pub fn rekey(&self, range: PortRange, mut secret: impl FnMut() -> [u8; 16]) {
        self.ports.rekey(range, secret());
        self.echo.ports.rekey(range, secret());
    }

    /// Counts `amount`.
    #[inline]
    pub fn count(&self, index: usize, amount: u64) {
        if amount > 0 {
            self.counters.add(index, amount);
        }
    }

    /// Whether some socket is a member of a group on an interface.
    pub fn is_member(&self, cpu: u32, netif: NetifId, group: IpAddr) -> bool {
        let membership = Membership { group, interface: netif.interface_index() };
        self.table.with(cpu, |copy| copy.is_member(&membership))
    }

    /// All sockets that have a name, as the copy of the core `cpu` knows them.
    pub fn sockets(&self, cpu: u32) -> Vec<Arc<pcb::Pcb>> {
        self.table.with(cpu, |copy| copy.sockets().cloned().collect())
    }

    /// Names and counts.
    pub fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        count::NAMES.iter().enumerate().map(|(index, (name, _))| (*name, self.counters.sum(index)))
    }

    /// A socket has joined a group.
    ///
    /// # Errors
    /// ENOBUFS if the link has no room for another one; EIO if its own code has panicked.
    fn join(&self, core: &Core, membership: Membership) -> Result<(), Errno> {
        if let Some(id) = NetifId::of_interface(core, membership.interface) {
            link::join(core, id, membership.group)?;
        }
        self.groups.join(membership, || self.table.set_member(membership, true));
        Ok(())
    }

    /// A socket has left a group, whatever is returned.
    ///
    /// # Errors
    /// EIO if the link's own code has panicked.
    fn leave(&self, core: &Core, membership: Membership) -> Result<(), Errno> {
        self.groups.leave(membership, || self.table.set_member(membership, false));
        NetifId::of_interface(core, membership.interface)
            .map_or(Ok(()), |id| link::leave(core, id, membership.group))
    }
}
