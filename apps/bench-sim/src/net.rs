//! The one thing that differs between the simulators: the sockets, with TCP_NODELAY as servers of small answers set it, and who starts a task.
//!
//! The programs are written against [`Net`]. `turmoil::net`, `sockeye::tokio` in a run with tokio inside, and `sockeye::tokio` on the simulator's own tasks implement
//! it. [`Wire`] gives a stream the traits of libraries that no simulator's stream has for all of them, the same way for each.
//!
//! Tests: `tests/samples.rs`.

use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tonic::transport::server::Connected;

/// The sockets of a simulator.
pub trait Net: 'static {
    type Listener: Send + Sync + Unpin + 'static;
    type Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static;

    /// At every address of the host.
    fn bind(port: u16) -> impl Future<Output = io::Result<Self::Listener>> + Send;
    fn accept(listener: &Self::Listener) -> impl Future<Output = io::Result<Self::Stream>> + Send;
    /// To a host by its name.
    fn connect(host: String, port: u16) -> impl Future<Output = io::Result<Self::Stream>> + Send;
    /// Starts a task on the host of the caller.
    fn spawn(task: impl Future<Output = ()> + Send + 'static);
}

/// `turmoil::net`.
pub struct Turmoil;

impl Net for Turmoil {
    type Listener = turmoil::net::TcpListener;
    type Stream = turmoil::net::TcpStream;

    async fn bind(port: u16) -> io::Result<Self::Listener> {
        turmoil::net::TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).await
    }

    async fn accept(listener: &Self::Listener) -> io::Result<Self::Stream> {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    async fn connect(host: String, port: u16) -> io::Result<Self::Stream> {
        let stream = turmoil::net::TcpStream::connect((host, port)).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    fn spawn(task: impl Future<Output = ()> + Send + 'static) {
        drop(tokio::spawn(task));
    }
}

/// `sockeye::tokio` with `Sim::tokio`.
pub struct Tokio;

impl Net for Tokio {
    type Listener = sockeye::tokio::TcpListener;
    type Stream = sockeye::tokio::TcpStream;

    async fn bind(port: u16) -> io::Result<Self::Listener> {
        sockeye::tokio::TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).await
    }

    async fn accept(listener: &Self::Listener) -> io::Result<Self::Stream> {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    async fn connect(host: String, port: u16) -> io::Result<Self::Stream> {
        let stream = sockeye::tokio::TcpStream::connect((host.as_str(), port)).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    fn spawn(task: impl Future<Output = ()> + Send + 'static) {
        drop(tokio::spawn(task));
    }
}

/// `sockeye::tokio` on the simulator's own tasks.
pub struct Native;

impl Net for Native {
    type Listener = sockeye::tokio::TcpListener;
    type Stream = sockeye::tokio::TcpStream;

    async fn bind(port: u16) -> io::Result<Self::Listener> {
        Tokio::bind(port).await
    }

    async fn accept(listener: &Self::Listener) -> io::Result<Self::Stream> {
        Tokio::accept(listener).await
    }

    async fn connect(host: String, port: u16) -> io::Result<Self::Stream> {
        Tokio::connect(host, port).await
    }

    fn spawn(task: impl Future<Output = ()> + Send + 'static) {
        drop(sockeye_sim::spawn(task));
    }
}

/// A listener as axum takes it.
pub struct Door<N: Net>(pub N::Listener);

impl<N: Net> axum::serve::Listener for Door<N> {
    type Io = N::Stream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        let stream = N::accept(&self.0).await.expect("a simulated listener accepts");
        (stream, NOWHERE)
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        Ok(NOWHERE)
    }
}

/// Nothing here looks at addresses.
const NOWHERE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// A stream as tonic's server takes it.
pub struct Wire<S>(pub S);

impl<S> Connected for Wire<S> {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}

impl<S: AsyncRead + Unpin> AsyncRead for Wire<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Wire<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
