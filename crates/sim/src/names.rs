//! The names of hosts: what `connect("server:80")` and `lookup_host` find.
//!
//! Each stack of a simulation has a [`HostNames`] as its resolver, so a name never reaches the machine's. The main program, which is on no host, has a
//! stack without interfaces for the same reason: there, names are resolved too, and a connection to a host fails.
//!
//! The resolver keeps the world weakly, because the world keeps the stacks. Tests: `tests/net/names.rs`.

use std::future::ready;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Weak};

use sockeye::{Config, Resolve, Resolving, Stack};

use crate::rng::Rng;
use crate::signal::HostSignals;
use crate::world::World;

/// Hosts that an error names.
const NAMED_MAX: usize = 20;

/// See the module's head.
pub(crate) struct HostNames(Weak<World>);

impl HostNames {
    /// Has the names of `stack` resolved among the hosts of `world`.
    pub fn serve(world: &Arc<World>, stack: &Stack) {
        stack.set_resolver(Some(Box::new(Self(Arc::downgrade(world)))));
    }

    fn addrs(&self, name: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        // DNS compares names without regard to case, and a final dot says that a name is complete.
        let wanted = name.strip_suffix('.').unwrap_or(name);
        if wanted.eq_ignore_ascii_case("localhost") {
            return Ok(vec![(Ipv4Addr::LOCALHOST, port).into(), (Ipv6Addr::LOCALHOST, port).into()]);
        }
        let Some(world) = self.0.upgrade() else { return Err(io::Error::other("the simulation is over")) };
        let state = world.lock();
        let of_name = || state.hosts.iter().filter(|host| host.name.eq_ignore_ascii_case(wanted));
        let v4 = of_name().map(|host| (host.setup.v4, port).into());
        let v6 = of_name().map(|host| (host.setup.v6, port).into());
        let addrs: Vec<SocketAddr> = v4.chain(v6).collect();
        if addrs.is_empty() {
            let known: Vec<&str> = state.hosts.iter().map(|host| host.name.as_str()).collect();
            return Err(unknown(name, &known));
        }
        Ok(addrs)
    }
}

impl Resolve for HostNames {
    fn resolve<'a>(&'a self, _: &'a Stack, host: &'a str, port: u16) -> Resolving<'a> {
        Box::pin(ready(self.addrs(host, port)))
    }
}

fn unknown(name: &str, known: &[&str]) -> io::Error {
    let more = match known.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let known = match known.iter().take(NAMED_MAX).copied().collect::<Vec<_>>().join(", ") {
        none if none.is_empty() => "it has no hosts".to_owned(),
        names => format!("its hosts are {names}{more}"),
    };
    let message =
        format!("no host of the simulation is named {name:?}: {known}; Net::host({name:?}) makes one");
    io::Error::new(io::ErrorKind::NotFound, message)
}

/// The stack of programs that are on no host: it resolves names, and has no interface.
pub(crate) fn outside(world: &Arc<World>) -> Stack {
    let mut seed = [0; 16];
    Rng::new(world.seed).fork(u64::MAX).fill(&mut seed);
    let config = Config { workers: 0, ..Config::default() };
    let stack = Stack::seeded(config, seed).expect("the default settings are valid");
    HostNames::serve(world, &stack);
    HostSignals::serve(world, None, &stack);
    stack
}
