//! tonic's server on our listeners (feature `tonic`).
//!
//! [`TcpStream`] and [`UnixStream`] implement `tonic::transport::server::Connected`; [`TcpIncoming`] and [`UnixIncoming`] are the streams of connections for
//! `Server::serve_with_incoming`. A channel of a client is made with the connector of `hyper_util.rs`. Tests: `apps/glue/examples/tonic.rs`.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use ::tonic::transport::server::{Connected, TcpConnectInfo};
use futures_core::Stream;

use crate::tokio::{TcpListener, TcpStream, UnixListener, UnixStream, unix};

/// The connections of a listener, for `tonic::transport::Server::serve_with_incoming`. The stream never ends; an item is an error as
/// [`TcpListener::accept`] has it.
#[derive(Debug)]
pub struct TcpIncoming {
    listener: TcpListener,
    nodelay: Option<bool>,
}

impl TcpIncoming {
    /// Those of this listener.
    pub fn new(listener: TcpListener) -> Self {
        Self { listener, nodelay: None }
    }

    /// TCP_NODELAY of the connections. `None`, the default, leaves it as they have it from the listener. Turn it on
    /// where answers are small.
    pub fn with_nodelay(self, nodelay: Option<bool>) -> Self {
        Self { nodelay, ..self }
    }

    /// The listener.
    pub fn get_ref(&self) -> &TcpListener {
        &self.listener
    }
}

impl From<TcpListener> for TcpIncoming {
    fn from(listener: TcpListener) -> Self {
        Self::new(listener)
    }
}

impl Stream for TcpIncoming {
    type Item = io::Result<TcpStream>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let accepted = ready!(self.listener.poll_accept(cx)).map(|(stream, _)| {
            // A connection that fails here is the server's to find out, as with tonic's own type.
            let _ = self.nodelay.map(|nodelay| stream.set_nodelay(nodelay));
            stream
        });
        Poll::Ready(Some(accepted))
    }
}

/// [`TcpIncoming`] of a UNIX-domain listener.
#[derive(Debug)]
pub struct UnixIncoming {
    listener: UnixListener,
}

impl UnixIncoming {
    /// The connections of this listener.
    pub fn new(listener: UnixListener) -> Self {
        Self { listener }
    }

    /// The listener.
    pub fn get_ref(&self) -> &UnixListener {
        &self.listener
    }
}

impl From<UnixListener> for UnixIncoming {
    fn from(listener: UnixListener) -> Self {
        Self::new(listener)
    }
}

impl Stream for UnixIncoming {
    type Item = io::Result<UnixStream>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Poll::Ready(Some(ready!(self.listener.poll_accept(cx)).map(|(stream, _)| stream)))
    }
}

/// `Request::remote_addr` and `local_addr` tell the addresses.
impl Connected for TcpStream {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        TcpConnectInfo { local_addr: self.local_addr().ok(), remote_addr: self.peer_addr().ok() }
    }
}

/// The client of a UNIX-domain connection: an extension of its requests, in the place of tonic's `UdsConnectInfo`, which has the kernel's types.
#[derive(Clone, Debug)]
pub struct UdsConnectInfo {
    /// Its address, which is unnamed unless it was bound.
    pub peer_addr: Option<unix::SocketAddr>,
    /// Its process, and on whose behalf that ran.
    pub peer_cred: Option<unix::UCred>,
}

impl Connected for UnixStream {
    type ConnectInfo = UdsConnectInfo;

    fn connect_info(&self) -> UdsConnectInfo {
        UdsConnectInfo { peer_addr: self.peer_addr().ok(), peer_cred: self.peer_cred().ok() }
    }
}
