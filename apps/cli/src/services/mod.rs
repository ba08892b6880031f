//! The small servers that `sockeye tun` runs on its stack.
//!
//! Purpose: read which are wanted, bind them to every address, and serve until they are dropped. `small` has RFC 862,
//! 863 and 864, `http` files, `iperf3` measurements.
//!
//! Does not depend on the stack's device.
//!
//! Invariants: everything is bound before [`start`] returns, so a port that is taken is an error and not a silence. How
//! many clients there may be is bounded by the stack's `connections_max` and by its memory, and how long each may stand still by
//! [`IdleMax`] or by the service itself; a client that is refused or fails does not affect others.
//!
//! Tests: below; with clients of other make in `tests/cli/{tun,http,iperf3}.rs`.

mod http;
mod idle;
pub mod iperf3;
mod small;

use std::fmt;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use sockeye::Stack;
use sockeye::tokio::{TcpListener, TcpStream};
use tokio::task::JoinSet;

pub use idle::IdleMax;

/// A server, and where it listens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Service {
    /// Its work.
    pub kind: Kind,
    /// Its port, of TCP and, for those that have it, of UDP.
    pub port: u16,
}

/// The work of a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Sends back the received data (RFC 862); TCP and UDP.
    Echo,
    /// Takes everything (RFC 863); TCP and UDP.
    Discard,
    /// Sends lines of characters (RFC 864); TCP and UDP.
    Chargen,
    /// Shows the files of a directory (RFC 9110); TCP.
    Http(http::Root),
    /// Takes part in iperf3's measurements; TCP and UDP.
    Iperf3,
}

/// The names, and the ports that they have unless another is given.
const USUAL_PORTS: [(&str, u16); 5] =
    [("echo", 7), ("discard", 9), ("chargen", 19), ("http", 80), ("iperf3", Kind::IPERF3_PORT)];

impl Kind {
    /// Where iperf3's clients look for a server unless told otherwise.
    pub const IPERF3_PORT: u16 = 5201;

    /// Its name on the command line.
    pub fn name(&self) -> &'static str {
        match self {
            Kind::Echo => "echo",
            Kind::Discard => "discard",
            Kind::Chargen => "chargen",
            Kind::Http(_) => "http",
            Kind::Iperf3 => "iperf3",
        }
    }
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind.name(), self.port)?;
        match &self.kind {
            Kind::Http(root) => write!(f, "={}", root.path().display()),
            Kind::Echo | Kind::Discard | Kind::Chargen | Kind::Iperf3 => Ok(()),
        }
    }
}

impl FromStr for Service {
    type Err = String;

    /// Opens the directory of `http`, so that a missing one is reported before anything is made.
    fn from_str(text: &str) -> Result<Self, String> {
        let (what, dir) = text.split_once('=').map_or((text, None), |(what, dir)| (what, Some(dir)));
        let (name, port) = what.split_once(':').map_or((what, None), |(name, port)| (name, Some(port)));
        let Some((_, usual)) = USUAL_PORTS.into_iter().find(|(known, _)| *known == name) else {
            let names = USUAL_PORTS.map(|(known, _)| known).join(", ");
            return Err(format!(
                "there is no service {name:?}: give one of {names}, as echo:7 or http:80=DIR"
            ));
        };
        let port = port.map_or(Some(usual), |port| port.parse().ok().filter(|port| *port != 0));
        let port = port.ok_or_else(|| format!("write {name}:PORT with a port from 1 to 65535"))?;
        let kind = match (name, dir) {
            ("http", Some(dir)) => {
                Kind::Http(http::Root::open(Path::new(dir)).map_err(|error| error.to_string())?)
            }
            ("http", None) => return Err("write http:PORT=DIR with the directory to serve".to_owned()),
            (_, Some(_)) => {
                return Err(format!("{name} serves no directory: leave {:?} out", &text[what.len()..]));
            }
            ("echo", None) => Kind::Echo,
            ("discard", None) => Kind::Discard,
            ("chargen", None) => Kind::Chargen,
            (_, None) => Kind::Iperf3,
        };
        Ok(Self { kind, port })
    }
}

/// Binds each service to each address, and has `tasks` serve. Connections of echo, discard and chargen end after `idle`; the
/// others have bounds of their own.
///
/// # Errors
/// The stack's, with the address that could not be bound.
pub async fn start(
    stack: &Stack,
    addrs: &[IpAddr],
    services: &[Service],
    idle: IdleMax,
    tasks: &mut JoinSet<()>,
) -> io::Result<()> {
    for service in services {
        for addr in addrs {
            let at = SocketAddr::new(*addr, service.port);
            let bound = match &service.kind {
                Kind::Echo => small::echo(stack, at, idle, tasks).await,
                Kind::Discard => small::discard(stack, at, idle, tasks).await,
                Kind::Chargen => small::chargen(stack, at, idle, tasks).await,
                Kind::Http(root) => http::start(stack, at, root, tasks).await,
                Kind::Iperf3 => iperf3::start(stack, at, tasks).await,
            };
            bound.map_err(|error| io::Error::new(error.kind(), format!("{service} at {at}: {error}")))?;
        }
    }
    Ok(())
}

/// How long to wait after an error, as when there is no memory for another connection.
const RETRY: Duration = Duration::from_millis(50);

/// Accepts for ever, and gives each connection a task.
async fn accept<F>(listener: TcpListener, serve: impl Fn(TcpStream, SocketAddr) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    // They end with the listener's own task.
    let mut clients = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, from)) => drop(clients.spawn(serve(stream, from))),
                Err(_) => tokio::time::sleep(RETRY).await,
            },
            Some(_) = clients.join_next(), if !clients.is_empty() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_are_parsed_with_their_default_ports_and_unknown_ones_are_refused() {
        let read = |text: &str| text.parse::<Service>();
        assert_eq!(read("echo"), Ok(Service { kind: Kind::Echo, port: 7 }));
        assert_eq!(read("iperf3:5999"), Ok(Service { kind: Kind::Iperf3, port: 5999 }));
        assert_eq!(read("chargen:1019").unwrap().to_string(), "chargen:1019");
        for wrong in ["echo:0", "echo:", "echo:65536", "echo:x"] {
            assert!(read(wrong).unwrap_err().contains("1 to 65535"), "{wrong}");
        }
        assert!(read("finger:79").unwrap_err().contains("echo, discard, chargen, http, iperf3"));
    }

    #[test]
    fn only_http_takes_a_directory_which_must_exist() {
        let read = |text: &str| text.parse::<Service>();
        assert_eq!(read("http:8080=/").unwrap().to_string(), "http:8080=/");
        assert_eq!(read("http=/").unwrap().port, 80);
        assert!(read("http:80").unwrap_err().contains("http:PORT=DIR"));
        assert!(read("http:80=/nonexistent/x").unwrap_err().contains("/nonexistent/x: No such file"));
        assert!(read("http:80=/proc/self/cmdline").unwrap_err().contains("Not a directory"));
        assert!(read("echo:7=/").unwrap_err().contains("leave \"=/\" out"));
    }
}
