//! A connector for hyper-util's client and for others that take a `tower` service (feature `hyper-util`).
//!
//! [`TcpStream`] and [`UnixStream`] implement hyper-util's `Connection`. [`Connector`] is a `tower_service::Service<Uri>`: it serves as connector of
//! `hyper_util::client::legacy::Client`, of tonic's `Endpoint::connect_with_connector`, and inside of a connector for TLS. Does not depend on HTTP.
//! Tests: `apps/glue/examples/hyper.rs`, `apps/glue/tests/connector.rs`.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use ::hyper_util::client::legacy::connect::{Connected, Connection};
use ::hyper_util::rt::TokioIo;
use http::Uri;
use http::uri::Scheme;
use tower_service::Service;

use crate::rt::handle::Stack;
use crate::tokio::{TcpStream, UnixStream};

/// Connects to the host and port of a URI over TCP.
///
/// The host is an address or a name, which the resolver of the stack resolves ([`Stack::set_resolver`]); its addresses are tried one after the other.
/// The port is that of the URI, else 80, or 443 for `https`. Dropping the future of a call gives up the connection. There is no limit of time
/// but that of the stack's handshake ([`TcpConfig::syn_retries`](crate::TcpConfig::syn_retries)): put `tower`'s `Timeout` around it, or use a client's own.
///
/// Errors of a call are those of [`TcpStream::connect`], and `InvalidInput` for a URI without a host or with another scheme than `http`.
#[derive(Clone, Debug)]
pub struct Connector {
    stack: Option<Stack>,
    nodelay: bool,
    enforce_http: bool,
}

impl Connector {
    /// A connector on the stack that is current ([`Stack::current`]) when a call is made.
    pub fn new() -> Self {
        Self { stack: None, nodelay: false, enforce_http: true }
    }

    /// A connector on a stack of your own, which it keeps.
    pub fn new_on(stack: &Stack) -> Self {
        Self { stack: Some(stack.clone()), ..Self::new() }
    }

    /// Whether TCP_NODELAY is set on new connections. Off at first, as in hyper-util's own connector. Turn it on for gRPC and HTTP/2.
    pub fn set_nodelay(&mut self, nodelay: bool) {
        self.nodelay = nodelay;
    }

    /// Whether a URI with another scheme than `http` is an error. On at first: the connector itself encrypts nothing. Turn it off where a connector for
    /// TLS is put around it.
    pub fn enforce_http(&mut self, is_enforced: bool) {
        self.enforce_http = is_enforced;
    }

    /// The host and the port.
    fn target(&self, uri: &Uri) -> io::Result<(String, u16)> {
        if self.enforce_http && uri.scheme() != Some(&Scheme::HTTP) {
            return Err(invalid(format!("{uri}: the scheme is not http")));
        }
        let host = uri.host().filter(|host| !host.is_empty());
        let host = host.ok_or_else(|| invalid(format!("{uri}: there is no host")))?;
        // Brackets of an IPv6 address belong to the URI.
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let default = if uri.scheme() == Some(&Scheme::HTTPS) { PORT_HTTPS } else { PORT_HTTP };
        Ok((host.to_owned(), uri.port_u16().unwrap_or(default)))
    }
}

impl Default for Connector {
    fn default() -> Self {
        Self::new()
    }
}

impl Service<Uri> for Connector {
    type Response = TokioIo<TcpStream>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<TokioIo<TcpStream>>> + Send>>;

    /// Always ready.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let stack = self.stack.clone().unwrap_or_else(Stack::current);
        let (target, nodelay) = (self.target(&uri), self.nodelay);
        Box::pin(async move {
            let stream = TcpStream::connect_on(&stack, target?).await?;
            stream.set_nodelay(nodelay)?;
            Ok(TokioIo::new(stream))
        })
    }
}

/// The addresses of a connection: an extension of the responses that came over it, as hyper-util's type of this name.
#[derive(Clone, Debug)]
pub struct HttpInfo {
    remote_addr: SocketAddr,
    local_addr: SocketAddr,
}

impl HttpInfo {
    /// The server's.
    pub fn remote_addr(&self) -> SocketAddr {
        self.remote_addr
    }

    /// The client's.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }
}

/// With [`HttpInfo`].
impl Connection for TcpStream {
    fn connected(&self) -> Connected {
        match (self.peer_addr(), self.local_addr()) {
            (Ok(remote_addr), Ok(local_addr)) => Connected::new().extra(HttpInfo { remote_addr, local_addr }),
            _ => Connected::new(),
        }
    }
}

impl Connection for UnixStream {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

/// RFC 9110 sections 4.2.1 and 4.2.2.
const PORT_HTTP: u16 = 80;
const PORT_HTTPS: u16 = 443;

fn invalid(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, message)
}
