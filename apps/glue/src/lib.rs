//! The common parts of the examples and tests: a stack whose names are those of a table, and a small name server.

#![forbid(unsafe_code)]

mod dns;

use std::io;
use std::net::SocketAddr;

use sockeye::{Config, Resolve, Resolving, Stack};

pub use dns::{Answer, DnsServer};

/// The result of an example.
pub type Done = Result<(), Box<dyn std::error::Error + Send + Sync>>;

/// Knows these names, all of which are this host.
pub struct Names(pub &'static [&'static str]);

impl Resolve for Names {
    fn resolve<'a>(&'a self, _: &'a Stack, host: &'a str, port: u16) -> Resolving<'a> {
        Box::pin(async move {
            if self.0.contains(&host) {
                return Ok(vec![SocketAddr::from(([127, 0, 0, 1], port))]);
            }
            let known = self.0.join(", ");
            Err(io::Error::new(
                io::ErrorKind::NotFound,
                format!("{host} is not known, but these are: {known}"),
            ))
        })
    }
}

/// A stack of its own on which these names are this host.
pub fn stack(names: &'static [&'static str]) -> io::Result<Stack> {
    let stack = Stack::new(Config { workers: 1, ..Config::default() })?;
    stack.set_resolver(Some(Box::new(Names(names))));
    Ok(stack)
}
