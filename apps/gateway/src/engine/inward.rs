//! Serves published ports of the host: `-p [ADDR:]HOSTPORT[-LAST][:PORT[-LAST]][/udp]`.
//!
//! The client's address is preserved: the stack connects to the inside with it as the source, since the inside routes everything to the gateway.
//! A client at a special address, such as the loopback's, or at one of the network inside appears as the gateway's address, because the inside could not answer it.
//!
//! The host's kernel accepts a connection before the gateway connects to the inside, so a port on which nothing listens inside accepts and then resets. Each UDP client has a socket that is closed after [`UDP_IDLE`], or if nothing
//! listens inside. Bounds: the table of flows; UDP clients (`clients.rs`), and those of them that nobody answers (`credit.rs`): a datagram of one more is dropped.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::ops::ControlFlow;
use std::rc::Rc;
use std::str::FromStr;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::net::{SocketFlags, acceptfrom_with};
use socket2::{Domain, SockRef, Type};
use sockeye::UdpBuilder;
use sockeye::tokio::{TcpSocket, UdpSocket};
use sockeye_drivers::{recv_at, send_from, set_recv_pktinfo};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::task::{AbortHandle, JoinSet, yield_now};
use tokio::time::timeout;

use super::clients::Place;
use super::credit::Begun;
use super::queues::Owned;
use super::{Cx, relay, scratch, task};
use crate::args::UDP_IDLE;
use crate::flows::Flow;
use crate::host::HostStream;
use crate::plan::Plan;
use crate::policy::{Protocol, reach};
use crate::rates::Way;
use crate::readiness::register;
use crate::upstream::Connected;

/// For the inside to answer a SYN.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
/// Between two tries to accept when there are no descriptors for it.
const RETRY: Duration = Duration::from_millis(50);
/// Connections that wait to be accepted, at a port.
const BACKLOG: i32 = 128;
/// Ports that are tried, where other loops have them already.
const PORTS_TRIED: u32 = 16;

/// Ports of the host, and where they lead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Publish {
    /// The host's address; every one if it is not given.
    addr: Option<IpAddr>,
    host: (u16, u16),
    inside: u16,
    protocol: Protocol,
}

/// What `-p` names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ports {
    /// Ports that are known now.
    These(Publish),
    /// Each that listens inside, under the same number, at this address of the host or at every one; of one transport, or of both.
    Auto(Option<IpAddr>, Option<Protocol>),
}

impl FromStr for Ports {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (ports, protocol) = match text.rsplit_once('/') {
            Some((ports, "tcp")) => (ports, Some(Protocol::Tcp)),
            Some((ports, "udp")) => (ports, Some(Protocol::Udp)),
            _ => (text, None),
        };
        if ports == "auto" {
            return Ok(Self::Auto(None, protocol));
        }
        match ports.strip_suffix(":auto") {
            Some(addr) => {
                let bare = addr.strip_prefix('[').and_then(|addr| addr.strip_suffix(']')).unwrap_or(addr);
                let wrong =
                    |_| format!("{text:?}: {addr:?} is no address: write ADDR:auto, such as 127.0.0.1:auto");
                bare.parse().map(|addr| Self::Auto(Some(addr), protocol)).map_err(wrong)
            }
            None => text.parse().map(Self::These),
        }
    }
}

/// A socket of the host, and where it leads.
pub struct Listening {
    socket: Socket,
    inside: u16,
}

enum Socket {
    Tcp(TcpListener),
    Udp(std::net::UdpSocket),
}

impl fmt::Display for Publish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, last) = self.host;
        match self.addr {
            Some(addr) => write!(f, "{}", SocketAddr::new(addr, first))?,
            None => write!(f, "port {first}")?,
        }
        if last != first {
            write!(f, "-{last}")?;
        }
        write!(f, " of this host is {}", self.inside)?;
        if last != first {
            write!(f, "-{}", self.inside + (last - first))?;
        }
        write!(f, " inside, {}", if self.protocol == Protocol::Udp { "UDP" } else { "TCP" })
    }
}

impl FromStr for Publish {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?} is no port to publish: write [ADDR:]HOSTPORT[-LAST][:PORT[-LAST]][/udp], such as 8080:80"
            )
        };
        let (spec, protocol) = match text.rsplit_once('/') {
            Some((spec, "udp")) => (spec, Protocol::Udp),
            Some((spec, "tcp")) => (spec, Protocol::Tcp),
            Some(_) => return Err(wrong()),
            None => (text, Protocol::Tcp),
        };
        let (addr, ports) = match spec.strip_prefix('[') {
            Some(rest) => {
                let (addr, ports) = rest.split_once("]:").ok_or_else(wrong)?;
                (Some(addr), ports)
            }
            None => match spec.split_once(':') {
                Some((first, rest)) if first.parse::<Ipv4Addr>().is_ok() => (Some(first), rest),
                _ => (None, spec),
            },
        };
        let addr = addr.map(str::parse).transpose().map_err(|_| wrong())?;
        let range = |text: &str| {
            let (first, last) = text.split_once('-').unwrap_or((text, text));
            let (first, last) = (first.parse::<u16>().ok()?, last.parse::<u16>().ok()?);
            (first != 0 && first <= last).then_some((first, last))
        };
        let (host, inside) = ports.split_once(':').unwrap_or((ports, ports));
        let (host, inside) = (range(host).ok_or_else(wrong)?, range(inside).ok_or_else(wrong)?);
        if host.1 - host.0 != inside.1 - inside.0 {
            return Err(format!("{text:?}: both ranges must have as many ports"));
        }
        Ok(Self { addr, host, inside: inside.0, protocol })
    }
}

impl Publish {
    /// One port of the host that leads to the same port inside.
    pub fn same(addr: Option<IpAddr>, port: u16, protocol: Protocol) -> Self {
        Self { addr, host: (port, port), inside: port, protocol }
    }

    /// As it is written.
    pub fn text(&self) -> String {
        let addr = self.addr.map(|addr| match addr {
            IpAddr::V4(addr) => format!("{addr}:"),
            IpAddr::V6(addr) => format!("[{addr}]:"),
        });
        let ((first, last), inside) = (self.host, self.inside);
        let protocol = if self.protocol == Protocol::Udp { "/udp" } else { "" };
        let addr = addr.unwrap_or_default();
        if first == last {
            return format!("{addr}{first}:{inside}{protocol}");
        }
        format!("{addr}{first}-{last}:{inside}-{}{protocol}", inside + (last - first))
    }

    /// Whether it takes this port of the host.
    pub fn takes(&self, port: u16, protocol: Protocol) -> bool {
        protocol == self.protocol && (self.host.0..=self.host.1).contains(&port)
    }

    /// Opens the host's sockets: of IPv6, too, if the inside has that.
    ///
    /// # Errors
    /// The system's, with the address; `InvalidInput` for an IPv6 address that leads nowhere.
    pub fn listen(&self, has_v6: bool) -> io::Result<Vec<Listening>> {
        let (first, last) = self.host;
        if let Some(addr @ IpAddr::V6(_)) = self.addr
            && !has_v6
        {
            let message = format!("cannot listen on [{addr}]:{first}: there is no IPv6 inside (--ipv4-only)");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let kind = if self.protocol == Protocol::Udp { Type::DGRAM } else { Type::STREAM };
        (first..=last)
            .map(|port| {
                let at = self.addr.map_or_else(
                    || everywhere(port, kind, has_v6),
                    |addr| listening(SocketAddr::new(addr, port), kind, false),
                );
                let socket = at.map_err(|error| {
                    let addr = self.addr.unwrap_or(Ipv4Addr::UNSPECIFIED.into());
                    let message = format!("cannot listen on {}: {error}", SocketAddr::new(addr, port));
                    io::Error::new(error.kind(), message)
                })?;
                let socket = match self.protocol {
                    Protocol::Udp => Socket::Udp(socket.into()),
                    Protocol::Tcp | Protocol::Icmp => Socket::Tcp(socket.into()),
                };
                Ok(Listening { socket, inside: self.inside + (port - first) })
            })
            .collect()
    }
}

/// Listens on every address, of both families where the host and the inside have both.
fn everywhere(port: u16, kind: Type, has_v6: bool) -> io::Result<socket2::Socket> {
    let v4 = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
    if !has_v6 {
        return listening(v4, kind, false);
    }
    match listening((Ipv6Addr::UNSPECIFIED, port).into(), kind, true) {
        // The host has no IPv6. Any other error means that a family would be missing.
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAFNOSUPPORT | libc::EADDRNOTAVAIL)) => {
            listening(v4, kind, false)
        }
        listening => listening,
    }
}

/// A socket of the host; `both`: an IPv6 socket that takes IPv4, too, whatever the host's setting is (`bindv6only`).
fn listening(at: SocketAddr, kind: Type, both: bool) -> io::Result<socket2::Socket> {
    let socket = socket2::Socket::new(Domain::for_address(at), kind, None)?;
    if both {
        socket.set_only_v6(false)?;
    }
    if kind == Type::STREAM {
        // An earlier gateway's connections do not keep the port.
        socket.set_reuse_address(true)?;
    }
    socket.bind(&at.into())?;
    if kind == Type::STREAM {
        socket.listen(BACKLOG)?;
    }
    Ok(socket)
}

/// Serves a port until the task is aborted, which closes the port; connections that were accepted go on.
pub fn serve(cx: &Rc<Cx>, listening: Listening) -> io::Result<AbortHandle> {
    let inside = listening.inside;
    let task = match listening.socket {
        Socket::Tcp(listener) => {
            listener.set_nonblocking(true)?;
            let listener = register(listener, Interest::READABLE)?;
            task(accept(Rc::clone(cx), listener, inside))
        }
        Socket::Udp(socket) => {
            socket.set_nonblocking(true)?;
            set_recv_pktinfo(&socket)?;
            let outer = tokio::net::UdpSocket::from_std(socket)?;
            task(datagrams(UdpPort { cx: Rc::clone(cx), outer, inside, clients: RefCell::default() }))
        }
    };
    Ok(task.abort_handle())
}

async fn accept(cx: Rc<Cx>, listener: AsyncFd<TcpListener>, port: u16) {
    loop {
        match listener.async_io(Interest::READABLE, accept_now).await {
            Ok((outer, from)) => drop(task(connect(Rc::clone(&cx), outer, from, port))),
            Err(_) => tokio::time::sleep(RETRY).await,
        }
    }
}

/// A connection that waits, not blocking.
fn accept_now(listener: &TcpListener) -> io::Result<(HostStream, SocketAddr)> {
    let (socket, from) = acceptfrom_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC)?;
    let from = from.and_then(|from| SocketAddr::try_from(from).ok());
    let from = from.ok_or_else(|| io::Error::other("a connection without an address"))?;
    Ok((HostStream::new(socket.into())?, from))
}

async fn connect(cx: Rc<Cx>, outer: HostStream, from: SocketAddr, port: u16) {
    let (source, inside) = ends(&cx.shared.plan, from, port);
    let refused = |outer: &HostStream| drop(SockRef::from(outer).set_linger(Some(Duration::ZERO)));
    let to = outer.get_ref().local_addr().unwrap_or(inside);
    let Some(mut flow) = cx.shared.flows.begin(Protocol::Tcp, (plain(from), plain(to)), inside) else {
        return refused(&outer);
    };
    let connecting = async {
        let (socket, owned) = own(&cx, Protocol::Tcp, inside, || socket_for(&cx, source))?;
        Ok::<_, io::Error>((TcpSocket::from_std(socket).connect(inside).await?, owned))
    };
    match timeout(CONNECT_TIMEOUT, connecting).await {
        Ok(Ok((inner, owned))) => {
            flow.owned = owned;
            relay::run(inner, Connected { stream: outer, was_reset: false }, flow).await;
        }
        Ok(Err(_)) => {
            flow.ends_by("connection refused");
            refused(&outer);
        }
        Err(_) => {
            flow.ends_by("timed out");
            refused(&outer);
        }
    }
}

/// A socket towards the inside that is bound to this address, and its port.
fn socket_for(cx: &Cx, source: SocketAddr) -> io::Result<(sockeye::TcpSocket, Option<SocketAddr>)> {
    let mut socket = match source {
        SocketAddr::V4(_) => sockeye::TcpSocket::new_v4(&cx.stack),
        SocketAddr::V6(_) => sockeye::TcpSocket::new_v6(&cx.stack),
    };
    socket.set_transparent(true);
    socket.set_nodelay(true);
    socket.set_keepalive(true);
    socket.set_reuse_address(true);
    socket.bind(source)?;
    let bound = socket.local_addr();
    Ok((socket, bound))
}

/// A socket whose flow is this loop's. The stack of each loop chooses ports by itself, and two may choose the same.
fn own<S>(
    cx: &Cx,
    protocol: Protocol,
    inside: SocketAddr,
    bind: impl Fn() -> io::Result<(S, Option<SocketAddr>)>,
) -> io::Result<(S, Option<Owned>)> {
    let mut tries = 0;
    loop {
        let (socket, bound) = bind()?;
        match bound.map_or(Ok(None), |bound| cx.own(protocol, (inside, bound))) {
            Ok(owned) => return Ok((socket, owned)),
            Err(_) if tries < PORTS_TRIED => tries += 1,
            Err(error) => return Err(error),
        }
    }
}

/// An IPv4 address as one, which a socket for both families shows in a form of IPv6.
fn plain(addr: SocketAddr) -> SocketAddr {
    SocketAddr::new(addr.ip().to_canonical(), addr.port())
}

/// In whose name, and where to, a client is led.
fn ends(plan: &Plan, from: SocketAddr, port: u16) -> (SocketAddr, SocketAddr) {
    let ip = from.ip().to_canonical();
    let family = usize::from(ip.is_ipv6());
    // An address of the inside's own network would be answered inside.
    let is_kept = reach::special(ip).is_none() && !plan.contains(ip);
    let source =
        if is_kept { SocketAddr::new(ip, from.port()) } else { SocketAddr::new(plan.host[family], 0) };
    (source, SocketAddr::new(plan.inside[family], port))
}

/// A published UDP port.
struct UdpPort {
    cx: Rc<Cx>,
    outer: tokio::net::UdpSocket,
    inside: u16,
    clients: RefCell<HashMap<Far, Rc<Client>>>,
}

/// A client's address, and the host's that it has sent to: a client of two of these hears each from itself.
type Far = (SocketAddr, Option<IpAddr>);

/// A client of it.
struct Client {
    inner: UdpSocket,
    flow: Flow,
    place: Place,
    begun: Begun,
}

async fn datagrams(port: UdpPort) {
    let port = Rc::new(port);
    // They end with this task.
    let mut answering = JoinSet::new();
    while port.outer.readable().await.is_ok() {
        // `readable` takes nothing of the task's budget, so without this a fast sender would keep all other tasks of the thread waiting.
        tokio::task::coop::consume_budget().await;
        let Some((far, client)) = scratch::with(|buffer| port.pass_in(buffer)) else { continue };
        while answering.try_join_next().is_some() {}
        let port = Rc::clone(&port);
        answering.spawn_local(async move {
            tokio::select! {
                () = client.answers(&port.outer, far) => {}
                () = client.place.ended() => {}
            }
            port.clients.borrow_mut().remove(&far);
        });
        // The flows that are there, and a displaced client's end, come before the next beginning.
        yield_now().await;
    }
}

impl UdpPort {
    /// Passes a datagram in. Returns its client if that is a new one.
    fn pass_in(&self, buffer: &mut [u8]) -> Option<(Far, Rc<Client>)> {
        // An error is a report about an earlier answer.
        let received = self.outer.try_io(Interest::READABLE, || recv_at(&self.outer, buffer));
        let (len, from, at) = received.ok()?;
        let known = self.clients.borrow().get(&(from, at)).cloned();
        let is_new = known.is_none();
        let client = known.or_else(|| self.begin((from, at)))?;
        client.place.used();
        if client.flow.admits(Way::In, len) {
            client.flow.note_received(len);
            // One for which there is no room is lost.
            if is_refused(&client.inner.try_send(&buffer[..len])) {
                client.place.end();
            }
        }
        is_new.then_some(((from, at), client))
    }

    fn begin(&self, far: Far) -> Option<Rc<Client>> {
        let from = far.0;
        let cx = &self.cx;
        let begun = cx.credits.clients.try_begin()?;
        let (source, inside) = ends(&cx.shared.plan, from, self.inside);
        let place = cx.clients.begin();
        let mut flow = cx.shared.flows.begin(Protocol::Udp, (plain(from), inside), inside)?;
        let bind = |source: SocketAddr| {
            let socket = UdpBuilder::for_addr(&cx.stack, source).transparent(true).bind(source)?;
            socket.connect(inside)?;
            let bound = socket.local_addr().ok();
            Ok((socket, bound))
        };
        let bound = own(cx, Protocol::Udp, inside, || bind(source));
        // Its address has a flow already, of another address of the host.
        let by_host = SocketAddr::new(cx.shared.plan.host[usize::from(source.is_ipv6())], 0);
        let bound = bound.or_else(|_| own(cx, Protocol::Udp, inside, || bind(by_host)));
        let (socket, owned) = bound.ok()?;
        flow.owned = owned;
        let client = Rc::new(Client { inner: UdpSocket::from_std(socket).ok()?, flow, place, begun });
        self.clients.borrow_mut().insert(far, Rc::clone(&client));
        Some(client)
    }
}

impl Client {
    /// Passes answers on until none has come for a time, or nothing listens inside.
    async fn answers(&self, outer: &tokio::net::UdpSocket, to: Far) {
        let asked = || self.flow.record.received.load(Ordering::Relaxed);
        loop {
            let before = asked();
            match timeout(UDP_IDLE, self.inner.readable()).await {
                Ok(Ok(())) if scratch::with(|buffer| self.pass_out(outer, to, buffer)).is_continue() => {}
                Ok(_) => return,
                Err(_) if asked() == before => return,
                Err(_) => {}
            }
        }
    }

    /// Passes an answer out. `Break` if nothing listens inside: UDP's clients are not told over a published port, but they need no place.
    fn pass_out(&self, outer: &tokio::net::UdpSocket, (to, at): Far, buffer: &mut [u8]) -> ControlFlow<()> {
        match self.inner.try_recv(buffer) {
            Ok(len) => {
                self.begun.answered();
                self.place.used();
                if self.flow.admits(Way::Out, len) {
                    self.flow.note_sent(len);
                    // One for which there is no room is lost, or whose address has gone.
                    let _ = send_from(outer, &buffer[..len], to, at);
                }
                ControlFlow::Continue(())
            }
            got if is_refused(&got) => ControlFlow::Break(()),
            Err(_) => ControlFlow::Continue(()),
        }
    }
}

/// Whether the inside has answered that nothing listens.
fn is_refused(done: &io::Result<usize>) -> bool {
    done.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_to_publish_is_read() {
        let publish = |addr: Option<&str>, host, inside, protocol| {
            Ok(Publish { addr: addr.map(|addr| addr.parse().unwrap()), host, inside, protocol })
        };
        assert_eq!("8080:80".parse(), publish(None, (8080, 8080), 80, Protocol::Tcp));
        assert_eq!("80".parse(), publish(None, (80, 80), 80, Protocol::Tcp));
        assert_eq!(
            "127.0.0.1:8080:80/udp".parse(),
            publish(Some("127.0.0.1"), (8080, 8080), 80, Protocol::Udp)
        );
        assert_eq!("[::1]:90-99:1090-1099".parse(), publish(Some("::1"), (90, 99), 1090, Protocol::Tcp));
        assert_eq!("auto".parse(), Ok(Ports::Auto(None, None)));
        assert_eq!("auto/tcp".parse(), Ok(Ports::Auto(None, Some(Protocol::Tcp))));
        let at = Some("::1".parse().unwrap());
        assert_eq!("[::1]:auto/udp".parse(), Ok(Ports::Auto(at, Some(Protocol::Udp))));
        assert_eq!("[::1]:auto".parse(), Ok(Ports::Auto(at, None)));
        assert!("x:auto".parse::<Ports>().is_err() && "auto/sctp".parse::<Ports>().is_err());
        for text in ["8080:80", "127.0.0.1:8080:80/udp", "[::1]:90-99:1090-1099"] {
            let publish: Publish = text.parse().unwrap();
            assert_eq!(publish.text().parse(), Ok(publish), "{text}");
        }
        for wrong in ["", "x", "0:80", "80:0", "70000", "80/sctp", "1-3:1-2", "3-1", "[::1:80", "::1:80"] {
            assert!(wrong.parse::<Publish>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_port_is_published_at_both_families_or_not_at_all() {
        for (text, kind) in [("", Type::STREAM), ("/udp", Type::DGRAM)] {
            let other = socket2::Socket::new(Domain::IPV6, kind, None).unwrap();
            other.set_only_v6(true).unwrap();
            if other.bind(&SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)).into()).is_err() {
                return eprintln!("skipped: this host has no IPv6");
            }
            let port = other.local_addr().unwrap().as_socket().unwrap().port();
            if kind == Type::STREAM {
                other.listen(1).unwrap();
            }
            let publish: Publish = format!("{port}:80{text}").parse().unwrap();
            assert_eq!(publish.listen(true).err().unwrap().kind(), io::ErrorKind::AddrInUse);
            drop(publish.listen(false).unwrap());
            drop(other);
            let listening = publish.listen(true).unwrap();
            let is_v6_only = match &listening[0].socket {
                Socket::Tcp(socket) => SockRef::from(socket).only_v6(),
                Socket::Udp(socket) => SockRef::from(socket).only_v6(),
            };
            assert!(!is_v6_only.unwrap());
        }
    }

    #[test]
    fn a_clients_address_is_kept_unless_it_cannot_be_answered_inside() {
        let ends = |from: &str| {
            let (source, inside) = ends(&Plan::default(), from.parse().unwrap(), 80);
            (source.to_string(), inside.to_string())
        };
        let own = |text: &str| text.to_owned();
        assert_eq!(ends("192.0.2.9:4000"), (own("192.0.2.9:4000"), own("10.0.2.100:80")));
        assert_eq!(ends("[::ffff:192.0.2.9]:4000"), (own("192.0.2.9:4000"), own("10.0.2.100:80")));
        assert_eq!(ends("127.0.0.1:4000"), (own("10.0.2.2:0"), own("10.0.2.100:80")));
        assert_eq!(ends("10.0.2.7:4000"), (own("10.0.2.2:0"), own("10.0.2.100:80")));
        assert_eq!(ends("[2001:db8::9]:4000"), (own("[2001:db8::9]:4000"), own("[fd00::100]:80")));
    }
}
