//! Sockets for patterns: Sockeye's and the kernel's, blocking and in tokio's shape, behind one asynchronous trait.
//!
//! Purpose: a pattern is written once. A blocking call is a future that is ready when it is first polled, on a thread of its
//! own; a task's is tokio's.
//!
//! Does not depend on patterns.
//!
//! Invariants: the kernel's sockets are made in the network namespace of the thread that makes them. Both sides set what the
//! pattern says and nothing else but, on the kernel's, its congestion control (`providers/kernel.rs`).
//!
//! Tests: with the patterns.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use sockeye::Stack;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::runner::Starter;
use crate::provider::{BACKLOG_MAX, Listener, Stream};
use crate::providers::kernel;

/// Both halves of a connection.
pub type Halves<N> = (<N as Net>::Reader, <N as Net>::Writer);

/// A source of listeners and connections.
pub trait Net: Clone + Send + Sync + 'static {
    /// A passive socket.
    type Listener: Send + Sync + 'static;
    /// Reads one direction.
    type Reader: Reader;
    /// Writes the other one.
    type Writer: Writer;

    /// A passive socket and its address.
    fn listen(&self) -> io::Result<(Self::Listener, SocketAddr)>;

    /// The next connection.
    fn accept(
        listener: &Self::Listener,
        nodelay: bool,
    ) -> impl Future<Output = io::Result<Halves<Self>>> + Send;

    /// A new connection.
    fn connect(&self, to: SocketAddr, nodelay: bool)
    -> impl Future<Output = io::Result<Halves<Self>>> + Send;

    /// Starts what drives the sockets of an end, if anything is to. Within the runtime of its tasks, if it has one.
    fn begin(&self, starter: &Starter) -> io::Result<()> {
        let _ = starter;
        Ok(())
    }

    /// Waits, as a program of this kind does.
    fn sleep(time: Duration) -> impl Future<Output = ()> + Send;
}

/// Reads one direction of a connection.
pub trait Reader: Send + 'static {
    /// At most `buf.len()` bytes; 0 is the end.
    fn read(&mut self, buf: &mut [u8]) -> impl Future<Output = io::Result<usize>> + Send;
}

/// Writes one direction of a connection.
pub trait Writer: Send + 'static {
    /// All of it.
    fn write(&mut self, data: &[u8]) -> impl Future<Output = io::Result<()>> + Send;

    /// Sends the FIN.
    fn finish(&mut self) -> impl Future<Output = io::Result<()>> + Send;
}

/// Sockeye's sockets on a stack.
#[derive(Clone)]
pub struct Ours {
    /// The stack.
    pub stack: Stack,
    /// The address that listeners have.
    pub addr: IpAddr,
}

/// The kernel's sockets.
#[derive(Clone)]
pub struct Theirs {
    /// The address that listeners have.
    pub addr: IpAddr,
}

/// Makes sockets of the blocking kind.
pub trait Sockets: Clone + Send + Sync + 'static {
    /// A passive socket.
    type Listener: Listener<Stream = Self::Stream> + 'static;
    /// A connection.
    type Stream: Stream + 'static;

    /// A passive socket on a port that was free.
    fn listen(&self) -> io::Result<Self::Listener>;

    /// A new connection.
    fn connect(&self, to: SocketAddr) -> io::Result<Self::Stream>;
}

impl Sockets for Ours {
    type Listener = sockeye::TcpListener;
    type Stream = sockeye::TcpStream;

    fn listen(&self) -> io::Result<sockeye::TcpListener> {
        let mut socket = sockeye::TcpSocket::new_v4(&self.stack);
        socket.bind(SocketAddr::new(self.addr, 0))?;
        socket.listen(BACKLOG_MAX as usize)
    }

    fn connect(&self, to: SocketAddr) -> io::Result<sockeye::TcpStream> {
        sockeye::TcpStream::connect_on(&self.stack, to)
    }
}

impl Sockets for Theirs {
    type Listener = std::net::TcpListener;
    type Stream = std::net::TcpStream;

    fn listen(&self) -> io::Result<std::net::TcpListener> {
        kernel::listen_at(SocketAddr::new(self.addr, 0))
    }

    fn connect(&self, to: SocketAddr) -> io::Result<std::net::TcpStream> {
        let socket = kernel::socket()?;
        socket.connect(&to.into())?;
        Ok(socket.into())
    }
}

/// Blocking sockets, for threads.
#[derive(Clone)]
pub struct Blocking<S>(pub S);

/// Half of a blocking stream.
pub struct Half<S>(Arc<S>);

fn halves<S: Stream>(stream: S, nodelay: bool) -> io::Result<(Half<S>, Half<S>)> {
    stream.set_nodelay(nodelay)?;
    let stream = Arc::new(stream);
    Ok((Half(Arc::clone(&stream)), Half(stream)))
}

impl<S: Sockets> Net for Blocking<S> {
    type Listener = S::Listener;
    type Reader = Half<S::Stream>;
    type Writer = Half<S::Stream>;

    fn listen(&self) -> io::Result<(S::Listener, SocketAddr)> {
        let listener = self.0.listen()?;
        let addr = listener.local_addr()?;
        Ok((listener, addr))
    }

    async fn accept(listener: &S::Listener, nodelay: bool) -> io::Result<Halves<Self>> {
        halves(listener.accept()?, nodelay)
    }

    async fn connect(&self, to: SocketAddr, nodelay: bool) -> io::Result<Halves<Self>> {
        halves(self.0.connect(to)?, nodelay)
    }

    async fn sleep(time: Duration) {
        thread::sleep(time);
    }
}

impl<S: Stream + 'static> Reader for Half<S> {
    async fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read(buf)
    }
}

impl<S: Stream + 'static> Writer for Half<S> {
    async fn write(&mut self, data: &[u8]) -> io::Result<()> {
        self.0.write_all(data)
    }

    async fn finish(&mut self) -> io::Result<()> {
        self.0.shutdown_write()
    }
}

/// Sockets in tokio's shape, for tasks.
#[derive(Clone)]
pub struct Tasks<S>(pub S);

/// Half of a stream in tokio's shape.
pub struct TaskHalf<T>(T);

impl<T: AsyncRead + Unpin + Send + 'static> Reader for TaskHalf<T> {
    async fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read(buf).await
    }
}

impl<T: AsyncWrite + Unpin + Send + 'static> Writer for TaskHalf<T> {
    async fn write(&mut self, data: &[u8]) -> io::Result<()> {
        self.0.write_all(data).await
    }

    async fn finish(&mut self) -> io::Result<()> {
        self.0.shutdown().await
    }
}

impl Net for Tasks<Ours> {
    type Listener = sockeye::tokio::TcpListener;
    type Reader = TaskHalf<sockeye::tokio::OwnedReadHalf>;
    type Writer = TaskHalf<sockeye::tokio::OwnedWriteHalf>;

    fn listen(&self) -> io::Result<(Self::Listener, SocketAddr)> {
        let listener = self.0.listen()?;
        let addr = listener.local_addr()?;
        Ok((sockeye::tokio::TcpListener::from_std(listener)?, addr))
    }

    async fn accept(listener: &Self::Listener, nodelay: bool) -> io::Result<Halves<Self>> {
        our_halves(listener.accept().await?.0, nodelay)
    }

    fn begin(&self, starter: &Starter) -> io::Result<()> {
        if self.0.stack.config().workers == 0 {
            // It ends with the runtime.
            drop(starter.start(sockeye::tokio::Driver::new(&self.0.stack)?)?);
        }
        Ok(())
    }

    async fn connect(&self, to: SocketAddr, nodelay: bool) -> io::Result<Halves<Self>> {
        our_halves(sockeye::tokio::TcpStream::connect_on(&self.0.stack, to).await?, nodelay)
    }

    async fn sleep(time: Duration) {
        tokio::time::sleep(time).await;
    }
}

fn our_halves(stream: sockeye::tokio::TcpStream, nodelay: bool) -> io::Result<Halves<Tasks<Ours>>> {
    stream.set_nodelay(nodelay)?;
    let (reader, writer) = stream.into_split();
    Ok((TaskHalf(reader), TaskHalf(writer)))
}

impl Net for Tasks<Theirs> {
    type Listener = tokio::net::TcpListener;
    type Reader = TaskHalf<tokio::net::tcp::OwnedReadHalf>;
    type Writer = TaskHalf<tokio::net::tcp::OwnedWriteHalf>;

    fn listen(&self) -> io::Result<(Self::Listener, SocketAddr)> {
        let listener = self.0.listen()?;
        listener.set_nonblocking(true)?;
        let addr = listener.local_addr()?;
        Ok((tokio::net::TcpListener::from_std(listener)?, addr))
    }

    async fn accept(listener: &Self::Listener, nodelay: bool) -> io::Result<Halves<Self>> {
        their_halves(listener.accept().await?.0, nodelay)
    }

    async fn connect(&self, to: SocketAddr, nodelay: bool) -> io::Result<Halves<Self>> {
        let socket = kernel::socket()?;
        socket.set_nonblocking(true)?;
        let stream = tokio::net::TcpSocket::from_std_stream(socket.into()).connect(to).await?;
        their_halves(stream, nodelay)
    }

    async fn sleep(time: Duration) {
        tokio::time::sleep(time).await;
    }
}

fn their_halves(stream: tokio::net::TcpStream, nodelay: bool) -> io::Result<Halves<Tasks<Theirs>>> {
    stream.set_nodelay(nodelay)?;
    let (reader, writer) = stream.into_split();
    Ok((TaskHalf(reader), TaskHalf(writer)))
}
