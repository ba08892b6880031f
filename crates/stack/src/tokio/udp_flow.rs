//! [`UdpFlowListener`] and [`UdpFlow`] of the asynchronous kind.
//!
//! A flow is a socket, and tasks wait at it, and at its listener, as they wait at sockets (`udp.rs`). Does not depend on how flows begin. Tests:
//! `tests/udp/flows.rs`.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::task::{Context, Poll};
use std::time::Duration;

use super::UdpSocket;
use super::methods::try_from_std;
use super::wait::{op, poll_op};
use crate::rt::tasks::Want;
use crate::udp::{Unsent, flow};

/// A UDP socket that yields flows, for tasks. See [`crate::UdpFlowListener`].
///
/// ```
/// use sockeye::tokio::{UdpFlowListener, UdpSocket};
/// use sockeye::{Config, Stack, UdpBuilder, UdpFlowConfig};
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let stack = Stack::new(Config::default())?;
/// let listener = UdpBuilder::new_v4(&stack).listen_flows("127.0.0.1:0".parse()?, &UdpFlowConfig::default())?;
/// let listener = UdpFlowListener::from_std(listener)?;
/// let client = UdpSocket::bind_on(&stack, "127.0.0.1:0").await?;
/// client.connect(listener.get_ref().local_addr()?).await?;
/// client.send(b"hello").await?;
///
/// let (flow, _peer) = listener.accept().await?;
/// let mut bytes = [0; 1500];
/// let len = flow.recv(&mut bytes).await?;
/// flow.send(&bytes[..len]).await?;
/// assert_eq!(client.recv(&mut bytes).await?, 5);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct UdpFlowListener {
    inner: flow::UdpFlowListener,
}

impl UdpFlowListener {
    /// Wraps a listener of the blocking kind, which from now on does not block.
    ///
    /// # Errors
    /// None; the signature is that of `tokio`.
    pub fn from_std(inner: flow::UdpFlowListener) -> io::Result<Self> {
        inner.set_nonblocking(true)?;
        Ok(Self { inner })
    }

    /// The listener of the blocking kind inside. It stays non-blocking until told otherwise.
    ///
    /// # Errors
    /// None; the signature is that of `tokio`.
    pub fn into_std(self) -> io::Result<flow::UdpFlowListener> {
        Ok(self.inner)
    }

    /// The listener of the blocking kind, for its queries.
    pub fn get_ref(&self) -> &flow::UdpFlowListener {
        &self.inner
    }

    /// The next flow, once there is one, and its peer. Any number of tasks may wait. May be cancelled: no flow is lost then.
    ///
    /// # Errors
    /// `Other` if the task's waker panics while it is cloned.
    pub async fn accept(&self) -> io::Result<(UdpFlow, SocketAddr)> {
        let (flow, peer) = op(&self.inner.handle, Want::Read, || self.inner.accept()).await?;
        Ok((UdpFlow::from_std(flow)?, peer))
    }

    /// [`accept`](Self::accept) as a poll function. Of several tasks that call it, the last is woken.
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(UdpFlow, SocketAddr)>> {
        poll_op(&self.inner.handle, Want::Read, cx, || {
            let (flow, peer) = self.inner.accept()?;
            Ok((UdpFlow::from_std(flow)?, peer))
        })
    }
}

/// The datagrams between a peer and the address to which it sends, for tasks. See [`crate::UdpFlow`].
#[derive(Debug)]
pub struct UdpFlow {
    socket: UdpSocket,
}

impl UdpFlow {
    /// Wraps a flow of the blocking kind, which from now on does not block.
    ///
    /// # Errors
    /// None; the signature is that of `tokio`.
    pub fn from_std(inner: flow::UdpFlow) -> io::Result<Self> {
        Ok(Self { socket: UdpSocket::from_std(inner.into_socket())? })
    }

    /// Receives a datagram of the peer, once there is one. May be cancelled: none is lost then.
    ///
    /// # Errors
    /// As for [`crate::UdpFlow::recv`].
    pub async fn recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.socket.recv(buf).await
    }

    /// Sends a datagram to the peer, from the address to which the peer sends.
    ///
    /// # Errors
    /// As for [`crate::UdpFlow::send`].
    pub async fn send(&self, buf: &[u8]) -> io::Result<usize> {
        self.socket.send(buf).await
    }

    /// The peer.
    ///
    /// # Errors
    /// None; the signature is that of `tokio`.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.socket.get_ref().peer_addr()
    }

    /// The address to which the peer sends.
    ///
    /// # Errors
    /// None; the signature is that of `tokio`.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.get_ref().local_addr()
    }

    /// Whether the flow has ended: it was idle too long, or another one has displaced it. Received datagrams may still
    /// wait.
    pub fn has_ended(&self) -> bool {
        flow::has_ended(self.socket.get_ref())
    }

    /// How long the flow may be idle: see [`crate::UdpFlow::set_idle_timeout`].
    ///
    /// # Errors
    /// `InvalidInput` for zero.
    pub fn set_idle_timeout(&self, idle: Option<Duration>) -> io::Result<()> {
        flow::set_idle_timeout(self.socket.get_ref(), idle)
    }

    /// What was set, or the listener's.
    ///
    /// # Errors
    /// None; the signature is that of `tokio`.
    pub fn idle_timeout(&self) -> io::Result<Option<Duration>> {
        flow::idle_timeout(self.socket.get_ref())
    }

    /// Ends the flow with an ICMP error: see [`crate::UdpFlow::reject`]. Never waits.
    ///
    /// # Errors
    /// As there.
    pub fn reject(self, why: Unsent) -> io::Result<()> {
        flow::reject(self.socket.get_ref(), why)
    }

    /// Tells the peer by an ICMP error that a datagram was not delivered: see [`crate::UdpFlow::report`]. Never waits.
    ///
    /// # Errors
    /// As there.
    pub fn report(&self, why: Unsent, router: IpAddr, datagram: &[u8]) -> io::Result<()> {
        flow::report(self.socket.get_ref(), why, router, datagram)
    }

    /// The flow as a socket, with all its methods. It cannot be connected elsewhere.
    pub fn socket(&self) -> &UdpSocket {
        &self.socket
    }

    /// The flow as a socket only, which stays the same flow.
    pub fn into_socket(self) -> UdpSocket {
        self.socket
    }
}

try_from_std!(UdpFlowListener, flow::UdpFlowListener);
