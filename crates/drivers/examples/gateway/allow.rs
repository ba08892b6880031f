//! The list of places that may be reached, and the record of those that were refused.
//!
//! A place may be reached if rules cover each of its [forms](reach::forms): the address itself, and any IPv4 address that it
//! carries. An address of the host itself, of its link or of a group is covered only by a rule that names it: an address of the
//! host by just this address, a loopback, link-local or multicast address by an address or a network inside that block. `*` and
//! `0.0.0.0/0` do not name them.
//!
//! It does not depend on sockets. Bound: [`REFUSED_MAX`] places are remembered, lest a program that tries all of them
//! fills memory or the log. Tests: `tests/examples.rs`.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::{Mutex, PoisonError};

use sockeye::netif::Prefix;

use super::common::Protocol;
use super::reach;

/// Most places that are remembered as refused; others are refused without a word.
pub const REFUSED_MAX: usize = 1024;

/// See the module's head.
pub struct AllowList {
    rules: Vec<Rule>,
    /// How often each place was refused.
    refused: Mutex<BTreeMap<SocketAddr, u64>>,
    /// Whether an address is the host's own.
    is_own: Box<dyn Fn(IpAddr) -> bool + Send + Sync>,
    log: Box<dyn Fn(&str) + Send + Sync>,
}

/// One place; `None` is any.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Rule {
    hosts: Option<Prefix>,
    port: Option<u16>,
}

impl AllowList {
    /// The list of these patterns. `log` gets each place that is refused for the first time. Resolving names blocks.
    ///
    /// # Errors
    /// `InvalidInput` for text that is no pattern; the system's for a name that has no address.
    pub fn new(patterns: &[String], log: impl Fn(&str) + Send + Sync + 'static) -> io::Result<Self> {
        Self::with(patterns, reach::is_own, log)
    }

    /// [`new`](Self::new) for a host that says of which addresses it is.
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub fn with(
        patterns: &[String],
        is_own: impl Fn(IpAddr) -> bool + Send + Sync + 'static,
        log: impl Fn(&str) + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let mut rules = Vec::new();
        for pattern in patterns {
            rules.extend(parse(pattern)?);
        }
        Ok(Self { rules, refused: Mutex::default(), is_own: Box::new(is_own), log: Box::new(log) })
    }

    /// Whether `to` may be reached. Does not block, but for the log.
    pub fn permits(&self, protocol: Protocol, to: SocketAddr) -> bool {
        let permitted = reach::forms(to.ip()).into_iter().all(|form| {
            let is_own = (self.is_own)(form);
            let of_port = self.rules.iter().filter(|rule| rule.port.is_none_or(|port| port == to.port()));
            of_port.into_iter().any(|rule| rule.names(form, is_own))
        });
        if !permitted {
            self.note(protocol, to);
        }
        permitted
    }

    /// Places that were refused, and how often.
    #[allow(dead_code, reason = "for programs that embed the list")]
    pub fn refused(&self) -> BTreeMap<SocketAddr, u64> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn note(&self, protocol: Protocol, to: SocketAddr) {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = refused.get_mut(&to) {
            *count += 1;
        } else if refused.len() < REFUSED_MAX {
            refused.insert(to, 1);
            drop(refused);
            (self.log)(&format!("refused {protocol:?} to {to}"));
        }
    }
}

impl Rule {
    /// Whether this place's hosts are meant to be with it.
    fn names(&self, host: IpAddr, is_own: bool) -> bool {
        let Some(hosts) = self.hosts else { return !is_own && reach::block(host).is_none() };
        let is_alone = hosts.len() == if host.is_ipv4() { 32 } else { 128 };
        let is_inside = reach::block(host).is_none_or(|block| hosts.len() >= block.len());
        hosts.contains(host) && is_inside && (is_alone || !is_own)
    }
}

/// The rules of one pattern: one, or one for each address of a name.
fn parse(pattern: &str) -> io::Result<Vec<Rule>> {
    let wrong = || {
        let message = format!("{pattern:?} is no place: write HOST:PORT, where either may be *");
        io::Error::new(io::ErrorKind::InvalidInput, message)
    };
    let (host, port) = pattern.rsplit_once(':').ok_or_else(wrong)?;
    let port = match port {
        "*" => None,
        number => Some(number.parse::<u16>().map_err(|_| wrong())?),
    };
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    if bare == "*" {
        return Ok(vec![Rule { hosts: None, port }]);
    }
    if let Ok(addr) = bare.parse() {
        return Ok(vec![Rule { hosts: Some(alone(addr)?), port }]);
    }
    if let Ok(network) = bare.parse() {
        return Ok(vec![Rule { hosts: Some(network), port }]);
    }
    if bare.is_empty() || bare.contains(['/', ':']) {
        return Err(wrong());
    }
    let found = (bare, port.unwrap_or(0)).to_socket_addrs()?;
    found.map(|addr| Ok(Rule { hosts: Some(alone(addr.ip())?), port })).collect()
}

/// The network that is this one host.
fn alone(addr: IpAddr) -> io::Result<Prefix> {
    let addr = addr.to_canonical();
    let len = if addr.is_ipv4() { 32 } else { 128 };
    Prefix::new(addr, len).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))
}
