//! `axum::serve` on our listeners (feature `axum`).
//!
//! [`TcpListener`] and [`UnixListener`] implement `axum::serve::Listener`, so `axum::serve(listener, app)` takes them. Options of each connection, such
//! as TCP_NODELAY, are set with `axum::serve::ListenerExt::tap_io`. Tests: `apps/glue/examples/axum.rs`.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use ::axum::extract::connect_info::Connected;
use ::axum::serve::{IncomingStream, Listener};

use crate::tokio::{TcpListener, TcpStream, UnixListener, UnixStream, unix};

/// The address of the client, for `Router::into_make_service_with_connect_info::<PeerAddr>`.
///
/// axum itself offers `SocketAddr` there, but only for `tokio::net::TcpListener` and for listeners with `tap_io`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PeerAddr(pub SocketAddr);

impl Connected<IncomingStream<'_, TcpListener>> for PeerAddr {
    fn connect_info(stream: IncomingStream<'_, TcpListener>) -> Self {
        Self(*stream.remote_addr())
    }
}

impl Connected<IncomingStream<'_, UnixListener>> for unix::SocketAddr {
    fn connect_info(stream: IncomingStream<'_, UnixListener>) -> Self {
        stream.remote_addr().clone()
    }
}

/// `accept` waits a second after an error, which is one of the stack and not of a connection, and tries again.
impl Listener for TcpListener {
    type Io = TcpStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (TcpStream, SocketAddr) {
        loop {
            match Self::accept(self).await {
                Ok(accepted) => return accepted,
                Err(_) => ::tokio::time::sleep(PAUSE).await,
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Self::local_addr(self)
    }
}

/// `accept` waits a second after an error, which is one of the stack and not of a connection, and tries again.
impl Listener for UnixListener {
    type Io = UnixStream;
    type Addr = unix::SocketAddr;

    async fn accept(&mut self) -> (UnixStream, unix::SocketAddr) {
        loop {
            match Self::accept(self).await {
                Ok(accepted) => return accepted,
                Err(_) => ::tokio::time::sleep(PAUSE).await,
            }
        }
    }

    fn local_addr(&self) -> io::Result<unix::SocketAddr> {
        Self::local_addr(self)
    }
}

/// How long a listener that has failed to accept waits.
const PAUSE: Duration = Duration::from_secs(1);
