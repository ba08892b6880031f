//! The same few calls over Sockeye's tokio sockets and over tokio's own.
//!
//! Both are used as a server of small answers uses them, with TCP_NODELAY.

use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use tokio::io::{AsyncRead, AsyncWrite};

/// The implementation of the sockets.
pub trait Net: 'static {
    type Listener: Send + Sync + 'static;
    type Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static;

    /// At any port of the loopback address.
    fn listen() -> impl Future<Output = io::Result<Self::Listener>> + Send;
    fn address(listener: &Self::Listener) -> io::Result<SocketAddr>;
    fn accept(listener: &Self::Listener) -> impl Future<Output = io::Result<Self::Stream>> + Send;
    fn connect(to: SocketAddr) -> impl Future<Output = io::Result<Self::Stream>> + Send;
}

/// `sockeye::tokio`, on the default stack.
pub struct Sockeye;

impl Net for Sockeye {
    type Listener = sockeye::tokio::TcpListener;
    type Stream = sockeye::tokio::TcpStream;

    async fn listen() -> io::Result<Self::Listener> {
        sockeye::tokio::TcpListener::bind(ANY_PORT).await
    }

    fn address(listener: &Self::Listener) -> io::Result<SocketAddr> {
        listener.local_addr()
    }

    async fn accept(listener: &Self::Listener) -> io::Result<Self::Stream> {
        let (stream, _) = listener.accept().await?;
        stream.get_ref().set_nodelay(true)?;
        Ok(stream)
    }

    async fn connect(to: SocketAddr) -> io::Result<Self::Stream> {
        let stream = sockeye::tokio::TcpStream::connect(to).await?;
        stream.get_ref().set_nodelay(true)?;
        Ok(stream)
    }
}

/// `tokio::net`.
pub struct Kernel;

impl Net for Kernel {
    type Listener = tokio::net::TcpListener;
    type Stream = tokio::net::TcpStream;

    async fn listen() -> io::Result<Self::Listener> {
        tokio::net::TcpListener::bind(ANY_PORT).await
    }

    fn address(listener: &Self::Listener) -> io::Result<SocketAddr> {
        listener.local_addr()
    }

    async fn accept(listener: &Self::Listener) -> io::Result<Self::Stream> {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    async fn connect(to: SocketAddr) -> io::Result<Self::Stream> {
        let stream = tokio::net::TcpStream::connect(to).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}

const ANY_PORT: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 0);
