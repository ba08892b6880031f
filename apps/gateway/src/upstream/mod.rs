//! Connects onward, to the destination itself or through a proxy.
//!
//! This module makes no decisions: a [`Target`] has been permitted already. The user chose the proxy's address, so no rule applies to it.
//!
//! Tests: below; `tests/gateway.rs`.

mod http;

use std::future::poll_fn;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::str::FromStr;
use std::time::Duration;

use socket2::{Domain, Socket, Type};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_socks::tcp::Socks5Stream;

use crate::host::HostStream;
use crate::policy::Target;

/// A connection onward, on which nothing has been sent for the client yet.
pub struct Connected {
    /// The connection.
    pub stream: HostStream,
    /// The far end has reset it already, behind what it may have sent. The socket does not tell of that again.
    pub was_reset: bool,
}

/// For a proxy to answer, from its connection on.
const PROXY_TIMEOUT: Duration = Duration::from_secs(30);

/// A way onward.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Upstream {
    /// Ordinary sockets to the destination.
    #[default]
    Direct,
    /// A SOCKS5 server (RFC 1928), by name and port; user and password (RFC 1929).
    Socks5(String, Option<(String, String)>),
    /// An HTTP proxy that knows CONNECT (RFC 9110 section 9.3.6), by name and port.
    Http(String),
}

impl FromStr for Upstream {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("{text:?} is no proxy: write socks5://[USER:PASSWORD@]HOST:PORT or http://HOST:PORT");
        let (scheme, rest) = text.split_once("://").ok_or_else(wrong)?;
        let (login, server) = match rest.rsplit_once('@') {
            Some((login, server)) => (Some(login.split_once(':').ok_or_else(wrong)?), server),
            None => (None, rest),
        };
        let server = server.trim_end_matches('/');
        let is_server = server
            .rsplit_once(':')
            .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
        match scheme {
            _ if !is_server => Err(wrong()),
            "socks5" => Ok(Self::Socks5(
                server.to_owned(),
                login.map(|(user, word)| (user.to_owned(), word.to_owned())),
            )),
            "http" if login.is_none() => Ok(Self::Http(server.to_owned())),
            _ => Err(wrong()),
        }
    }
}

impl Upstream {
    /// The same way with the proxy's address in place of its name, which cannot be asked for once the process sees no files. **Blocks** for the host's resolver.
    ///
    /// # Errors
    /// The name has no address.
    pub fn resolve(self) -> io::Result<Self> {
        let first = |server: &str| {
            let said = |error: &dyn std::fmt::Display| format!("the proxy {server}: {error}");
            let mut addrs =
                server.to_socket_addrs().map_err(|error| io::Error::new(error.kind(), said(&error)))?;
            let none = || io::Error::new(io::ErrorKind::NotFound, said(&"the name has no address"));
            addrs.next().map(|addr| addr.to_string()).ok_or_else(none)
        };
        Ok(match self {
            Self::Direct => Self::Direct,
            Self::Socks5(server, login) => Self::Socks5(first(&server)?, login),
            Self::Http(server) => Self::Http(first(&server)?),
        })
    }

    /// Connects to `target`.
    ///
    /// # Errors
    /// The system's: `ConnectionRefused`, `TimedOut`, `HostUnreachable` and so on as the destination or the proxy says. A proxy that ends its connection, or answers by something else than
    /// its protocol has, refuses.
    pub async fn connect(&self, target: Target) -> io::Result<Connected> {
        let through = match self {
            Self::Direct => return direct(target.addr()).await,
            Self::Socks5(server, login) => {
                timeout(PROXY_TIMEOUT, socks(server, login.as_ref(), target.addr())).await
            }
            Self::Http(server) => timeout(PROXY_TIMEOUT, tunnel(server, target.addr())).await,
        };
        let stream = through.map_err(|_| io::ErrorKind::TimedOut)??;
        let stream = HostStream::new(stream.into_std()?)?;
        Ok(Connected { stream, was_reset: false })
    }

    /// Whether datagrams can go this way.
    pub fn carries_datagrams(&self) -> bool {
        *self == Self::Direct
    }
}

/// Linux says "refused" of a reset that answers a SYN, and "reset" of one that comes later: then the connection was made, and what has come is still there to be
/// read. `tokio`'s own connect closes the socket for both.
async fn direct(addr: SocketAddr) -> io::Result<Connected> {
    let socket = connecting(addr, Type::STREAM)?;
    let stream = HostStream::new(socket.into())?;
    poll_fn(|task| stream.poll_writable(task)).await?;
    match stream.get_ref().take_error()? {
        None => Ok(Connected { stream, was_reset: false }),
        Some(error) if error.kind() == io::ErrorKind::ConnectionReset => {
            Ok(Connected { stream, was_reset: true })
        }
        Some(error) => Err(error),
    }
}

/// A socket of the host that connects to this address, or is connected, and does not block.
///
/// # Errors
/// The system's; `NetworkUnreachable` where the host has no IPv6 for an address of it.
pub fn connecting(to: SocketAddr, kind: Type) -> io::Result<Socket> {
    let connect = || {
        let socket = Socket::new(Domain::for_address(to), kind.nonblocking(), None)?;
        match socket.connect(&to.into()) {
            Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
            _ => Ok(socket),
        }
    };
    connect().map_err(|error| match error.raw_os_error() {
        // By the setting `disable_ipv6`; by a kernel without it; by an address of a link of which none is named. Over IPv4 the first one would mean that all ports are in use.
        Some(libc::EADDRNOTAVAIL | libc::EAFNOSUPPORT | libc::EINVAL) if to.is_ipv6() => {
            io::ErrorKind::NetworkUnreachable.into()
        }
        _ => error,
    })
}

async fn socks(server: &str, login: Option<&(String, String)>, to: SocketAddr) -> io::Result<TcpStream> {
    let socket = TcpStream::connect(server).await?;
    let connected = match login {
        Some((user, word)) => Socks5Stream::connect_with_password_and_socket(socket, to, user, word).await,
        None => Socks5Stream::connect_with_socket(socket, to).await,
    };
    use tokio_socks::Error;
    connected.map(Socks5Stream::into_inner).map_err(|error| match error {
        Error::Io(error) => answered(error),
        Error::HostUnreachable | Error::TtlExpired => io::ErrorKind::HostUnreachable.into(),
        Error::NetworkUnreachable => io::ErrorKind::NetworkUnreachable.into(),
        Error::ConnectionNotAllowedByRuleset => io::ErrorKind::PermissionDenied.into(),
        // Some servers say "general failure" of a closed port.
        other => io::Error::new(io::ErrorKind::ConnectionRefused, other),
    })
}

async fn tunnel(server: &str, to: SocketAddr) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(server).await?;
    http::connect(&mut stream, to).await.map(|()| stream).map_err(answered)
}

/// An error of the conversation with a proxy, once there is a connection to it. Its end is an answer too: some proxies, such as `ssh -D`, have no other one for a closed port.
fn answered(error: io::Error) -> io::Error {
    use io::ErrorKind::*;
    match error.kind() {
        UnexpectedEof | ConnectionReset | BrokenPipe | InvalidData => {
            io::Error::new(ConnectionRefused, error)
        }
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_without_ipv6_has_no_way_to_an_address_of_it() {
        let host = match sockeye_drivers::Namespace::new() {
            Ok(host) => host,
            Err(error) => return eprintln!("skipped: a host of its own: {error}"),
        };
        let to = "[2001:db8::1]:9".parse().unwrap();
        let errors = host.run(|| {
            sockeye_drivers::link::KernelLink::new("lo").set_up(true).unwrap();
            std::fs::write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1").unwrap();
            [Type::STREAM, Type::DGRAM].map(|kind| connecting(to, kind).unwrap_err().kind())
        });
        assert_eq!(errors.unwrap(), [io::ErrorKind::NetworkUnreachable; 2]);
    }

    #[test]
    fn a_proxy_is_read_from_its_address() {
        let socks = |server: &str, login: Option<(&str, &str)>| {
            Ok(Upstream::Socks5(server.into(), login.map(|(user, word)| (user.into(), word.into()))))
        };
        assert_eq!("socks5://127.0.0.1:1080".parse(), socks("127.0.0.1:1080", None));
        assert_eq!("socks5://a:b@[::1]:1080".parse(), socks("[::1]:1080", Some(("a", "b"))));
        assert_eq!("http://proxy.example:3128/".parse(), Ok(Upstream::Http("proxy.example:3128".into())));
        for wrong in [
            "",
            "127.0.0.1:1080",
            "socks4://h:1",
            "http://h",
            "http://u:p@h:1",
            "socks5://h:x",
            "socks5://u@h:1",
        ] {
            assert!(wrong.parse::<Upstream>().is_err_and(|message| message.contains("write")), "{wrong}");
        }
    }
}
