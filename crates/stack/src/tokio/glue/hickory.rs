//! A resolver that asks name servers over the stack itself (feature `hickory`).
//!
//! `hickory-resolver` does the asking; [`Provider`] gives it our sockets in the place of the kernel's, and [`Resolver`] is the resolver of
//! a stack's names. Does not depend on DNS. Tests: `apps/glue/examples/hickory.rs`, `apps/glue/tests/names.rs`.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use ::hickory_resolver::config::{ResolverConfig, ResolverOpts};
use ::hickory_resolver::net::NetError;
use ::hickory_resolver::net::runtime::iocompat::AsyncIoTokioAsStd;
use ::hickory_resolver::net::runtime::{DnsUdpSocket, RuntimeProvider, TokioHandle, TokioTime};
use ::tokio::io::ReadBuf;
use ::tokio::runtime::Handle;

pub use ::hickory_resolver;

use crate::rt::handle::{Stack, WeakStack};
use crate::rt::resolve::{Resolve, Resolving};
use crate::tcp::socket::TcpSocket;
use crate::tokio::{TcpStream, UdpSocket};

/// Resolves names by asking name servers over a stack: for [`Stack::set_resolver`].
///
/// Queries go by UDP, and by TCP where an answer was truncated; answers are kept for as long as they say. Names, retries, time-outs and the use of
/// `/etc/hosts` are hickory's: see `ResolverOpts`. IPv4 and IPv6 addresses are asked for as its `ip_strategy` says, and come in that order.
///
/// Errors of a lookup are `NotFound` if there is no such name or it has no address, `TimedOut` if no name server has answered within the time
/// (`ResolverOpts::timeout`, 5 s, for each of three attempts), and `Other`. Dropping the future of a call gives up its queries.
///
/// A connection to a name server by TCP keeps its stack until the server closes it, or [`Stack::set_resolver`] takes this resolver away.
///
/// ```no_run
/// use sockeye::tokio::hickory::Resolver;
/// use sockeye::tokio::hickory::hickory_resolver::config::{NameServerConfig, ResolverConfig, ResolverOpts};
/// use sockeye::{Config, Stack};
///
/// # async fn example() -> std::io::Result<()> {
/// let stack = Stack::new(Config::default())?;
/// let servers = vec![NameServerConfig::udp_and_tcp([10, 0, 0, 53].into())];
/// let config = ResolverConfig::from_parts(None, vec![], servers);
/// let resolver = Resolver::new(&stack, config, ResolverOpts::default())?;
/// stack.set_resolver(Some(Box::new(resolver)));
/// # Ok(())
/// # }
/// ```
pub struct Resolver {
    inner: ::hickory_resolver::Resolver<Provider>,
    runtime: Handle,
}

impl Resolver {
    /// A resolver that asks over `stack`, which it does not keep. Timers and connections to name servers run on the current runtime of `tokio`: a
    /// blocking call with a name waits for it, so it must not be made on the only thread of that runtime.
    ///
    /// # Errors
    /// `Other` without a runtime, and where hickory refuses `config` or `options`.
    pub fn new(stack: &Stack, config: ResolverConfig, options: ResolverOpts) -> io::Result<Self> {
        let runtime = Handle::try_current().map_err(io::Error::other)?;
        let provider = Provider::new(stack);
        let builder = ::hickory_resolver::Resolver::builder_with_config(config, provider);
        let inner = builder.with_options(options).build().map_err(error)?;
        Ok(Self { inner, runtime })
    }
}

impl Resolve for Resolver {
    fn resolve<'a>(&'a self, _: &'a Stack, host: &'a str, port: u16) -> Resolving<'a> {
        let lookup = async move {
            let found = self.inner.lookup_ip(host).await.map_err(error)?;
            Ok(found.iter().map(|addr| SocketAddr::new(addr, port)).collect())
        };
        Box::pin(OnRuntime { future: Box::pin(lookup), runtime: &self.runtime })
    }
}

impl std::fmt::Debug for Resolver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Resolver").field("inner", &self.inner).finish_non_exhaustive()
    }
}

/// A future whose timers and tasks are those of a runtime, whichever executor polls it.
struct OnRuntime<'a> {
    future: Resolving<'a>,
    runtime: &'a Handle,
}

impl Future for OnRuntime<'_> {
    type Output = io::Result<Vec<SocketAddr>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let _entered = self.runtime.enter();
        self.future.as_mut().poll(cx)
    }
}

fn error(error: NetError) -> io::Error {
    let kind = match &error {
        NetError::Timeout => io::ErrorKind::TimedOut,
        NetError::Io(error) => error.kind(),
        error if error.is_no_records_found() => io::ErrorKind::NotFound,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, error)
}

/// The sockets of a stack, for a `hickory_resolver::Resolver` of one's own. It does not keep the stack; sockets of one that has ended are
/// an error of the kind `NotConnected`.
#[derive(Clone)]
pub struct Provider {
    stack: WeakStack,
    tasks: TokioHandle,
}

impl Provider {
    /// Those of this stack.
    pub fn new(stack: &Stack) -> Self {
        Self { stack: stack.downgrade(), tasks: TokioHandle::default() }
    }

    fn stack(&self) -> io::Result<Stack> {
        let ended = || io::Error::new(io::ErrorKind::NotConnected, "the stack has ended");
        self.stack.upgrade().ok_or_else(ended)
    }
}

impl std::fmt::Debug for Provider {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Provider").finish_non_exhaustive()
    }
}

/// The result of hickory's functions that make a socket.
type Making<S> = Pin<Box<dyn Send + Future<Output = io::Result<S>>>>;

impl RuntimeProvider for Provider {
    type Handle = TokioHandle;
    type Timer = TokioTime;
    type Udp = UdpSocket;
    type Tcp = AsyncIoTokioAsStd<TcpStream>;

    fn create_handle(&self) -> TokioHandle {
        self.tasks.clone()
    }

    fn connect_tcp(
        &self,
        server: SocketAddr,
        bind: Option<SocketAddr>,
        timeout: Option<Duration>,
    ) -> Making<Self::Tcp> {
        let stack = self.stack();
        Box::pin(async move {
            let mut socket = TcpSocket::for_addr(&stack?, server);
            if let Some(addr) = bind {
                socket.bind(addr)?;
            }
            let connecting = TcpStream::connect_with(socket, server);
            let stream = ::tokio::time::timeout(timeout.unwrap_or(CONNECT_TIMEOUT), connecting).await??;
            // Queries are small, and each waits for its answer.
            stream.set_nodelay(true)?;
            Ok(AsyncIoTokioAsStd(stream))
        })
    }

    fn bind_udp(&self, local: SocketAddr, _: SocketAddr) -> Making<UdpSocket> {
        let stack = self.stack();
        Box::pin(async move { UdpSocket::bind_on(&stack?, local).await })
    }
}

/// For a connection where hickory names no limit.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

impl DnsUdpSocket for UdpSocket {
    type Time = TokioTime;

    fn poll_recv_from(&self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<(usize, SocketAddr)>> {
        let mut buf = ReadBuf::new(buf);
        Self::poll_recv_from(self, cx, &mut buf).map_ok(|from| (buf.filled().len(), from))
    }

    fn poll_send_to(&self, cx: &mut Context<'_>, buf: &[u8], target: SocketAddr) -> Poll<io::Result<usize>> {
        Self::poll_send_to(self, cx, buf, target)
    }
}
