//! Packets that the stack would answer in a host's name without asking any socket: echo requests, and protocols that it does not
//! serve. The application may be asked first.
//!
//! On an interface that takes packets to every host ([`Stack::set_any_address`]) those answers make a dead host look
//! alive. With a *hook* each such packet becomes an [`IpPacket`], which the application has answered, rejects, answers itself or drops: at
//! once, or later from any thread.
//!
//! ```text
//!   packet ─► echo request, or unknown protocol, to one host, by an interface ─► no hook: the stack's own answer
//!                        │ a hook
//!                        ▼
//!                     outbox ─► hook(IpPacket)   (outside all locks)
//!                                  │ now or later
//!                answer: the stack's own answer ◄─┤
//!                reject: an ICMP error         ◄──┤
//!                ignore, or dropped: nothing   ◄──┘   and Stack::send_ip sends whatever else the application has to say
//! ```
//!
//! A packet takes packet memory as long as it is undecided, so at most [`UNDECIDED_MAX`] are at a time; others are dropped and counted
//! (`ip_hook_overflows`).
//!
//! Rank: `hook` is a leaf; the hook is called and dropped with no lock in hand. Does not depend on sockets. Tests: `tests/ip/hook.rs`.

use std::fmt;
use std::io;
use std::net::IpAddr;

use rustix::io::Errno;
use sockeye_proto::icmp::{Family, HEADER_LEN, Message};
use sockeye_proto::ip;
use sockeye_sync::Mutex;
use sockeye_sync::facade::{Arc, AtomicBool, AtomicUsize, Ordering};

use super::output::{self, ChecksumAt, MtuDiscover, Outgoing, SendError, flow_of};
use super::report::Unsent;
use super::{Cast, Received, count, icmp};
use crate::base::errno;
use crate::inet::Core;
use crate::inet::context::Context;
use crate::inet::netif::table::NetifId;
use crate::rt::handle::{Stack, WeakStack};
use crate::rt::memory;
use crate::rt::panics::{self, PanicSource};

/// Most packets that the application has been asked about and has not decided on.
pub(crate) const UNDECIDED_MAX: usize = 1024;

/// The hook by which an application decides about packets: see [`Stack::set_ip_hook`].
pub type IpHook = dyn Fn(IpPacket) + Send + Sync;

/// Whom the stack asks.
pub(crate) struct Asking {
    /// Whether there is a hook: all that a packet looks at without one.
    asks: AtomicBool,
    hook: Mutex<Option<(WeakStack, Arc<Box<IpHook>>)>>,
    undecided_count: Arc<AtomicUsize>,
}

impl Default for Asking {
    fn default() -> Self {
        Self {
            asks: AtomicBool::new(false),
            hook: Mutex::new(None),
            undecided_count: Arc::new(AtomicUsize::new(0)),
        }
    }
}

/// A question that is on its way to the application.
pub(crate) struct Asked {
    hook: Arc<Box<IpHook>>,
    packet: IpPacket,
}

impl Asked {
    /// Calls the hook. Outside all locks.
    pub fn ask(self, core: &Core) {
        let Self { hook, packet } = self;
        panics::contain(core, PanicSource::Hook, "an IP hook", || hook(packet));
        // It may have been replaced meanwhile; then this is its last reference.
        panics::release(core, PanicSource::Hook, "drop of an IP hook", hook);
    }
}

/// Asks the application's hook about a packet. Returns the packet if no hook is set.
#[inline]
pub(super) fn ask(cx: &mut Context<'_>, received: Received) -> Option<Received> {
    // Relaxed: a packet that comes while a hook is being set may be asked about or not.
    let is_asked = cx.core.ip.asking.asks.load(Ordering::Relaxed)
        && received.cast == Cast::Unicast
        && received.netif != NetifId::LOOPBACK;
    if is_asked { put(cx, received) } else { Some(received) }
}

#[cold]
fn put(cx: &mut Context<'_>, received: Received) -> Option<Received> {
    let asking = &cx.core.ip.asking;
    let hook = asking.hook.lock().as_ref().map(|(stack, hook)| (stack.clone(), Arc::clone(hook)));
    let Some((stack, hook)) = hook else { return Some(received) };
    let more = |n| (n < UNDECIDED_MAX).then_some(n + 1);
    // Relaxed: a number that orders nothing.
    if asking.undecided_count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_err() {
        cx.core.ip.count(count::HOOK_OVERFLOWS);
        return None;
    }
    let packet =
        IpPacket { stack, received: Some(received), _slot: Slot(Arc::clone(&asking.undecided_count)) };
    cx.due.asked.push_back(Asked { hook, packet });
    None
}

/// One of [`UNDECIDED_MAX`] places.
struct Slot(Arc<AtomicUsize>);

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// An IP packet that has arrived by an interface, and that the stack has not answered: an ICMP echo request, or a
/// packet of a protocol that the stack does not serve (neither TCP, UDP, ICMP nor, over IPv4, IGMP). It is complete:
/// fragments were reassembled. Decide with [`answer`](Self::answer), [`reject`](Self::reject) or
/// [`ignore`](Self::ignore); dropping it ignores it. It may be kept and sent to other threads.
///
/// A packet does not keep its stack open. It uses packet memory of the stack until the decision.
#[must_use = "dropping it leaves the sender without an answer"]
pub struct IpPacket {
    stack: WeakStack,
    /// `None` once decided on.
    received: Option<Received>,
    _slot: Slot,
}

impl IpPacket {
    fn received(&self) -> &Received {
        self.received.as_ref().expect("only a decision, which takes the packet, takes it out")
    }

    /// The source address that the packet claims. Nothing proves it: any host can send with another's address.
    pub fn src(&self) -> IpAddr {
        self.received().header.addresses.src()
    }

    /// The destination host.
    pub fn dst(&self) -> IpAddr {
        self.received().header.addresses.dst()
    }

    /// The protocol after the IP headers, by IANA's number: 1 is ICMP, 58 is ICMP for IPv6.
    pub fn protocol(&self) -> u8 {
        self.received().header.protocol
    }

    /// Identifier and sequence number, if it is an ICMP echo request.
    pub fn echo(&self) -> Option<(u16, u16)> {
        let received = self.received();
        let family = icmp::family_of(received);
        let (header, len) = received.first::<HEADER_LEN>();
        match Message::parse(family, header) {
            Message::EchoRequest { id, seq } if received.header.protocol == protocol_of(family) => {
                (len == HEADER_LEN).then_some((id, seq))
            }
            _ => None,
        }
    }

    /// The interface by which it arrived.
    pub fn interface(&self) -> NetifId {
        self.received().netif
    }

    /// Its hop limit (TTL) on arrival.
    pub fn hop_limit(&self) -> u8 {
        self.received().header.hop_limit
    }

    /// Its traffic class (TOS), with the ECN bits.
    pub fn traffic_class(&self) -> u8 {
        self.received().header.traffic_class
    }

    /// Bytes after the IP headers, at most 65,535.
    pub fn payload_len(&self) -> usize {
        self.received().payload.len()
    }

    /// Copies the bytes after the IP headers from `offset` on, as many as fit `buf`. Returns how many. An echo request
    /// begins with eight bytes of header, then its data.
    pub fn copy_payload(&self, offset: usize, buf: &mut [u8]) -> usize {
        let payload = &self.received().payload;
        if offset >= payload.len() { 0 } else { payload.copy_to(offset, buf) }
    }

    /// The whole packet with a new IP header: without options and extension headers, and with a correct checksum.
    pub fn to_bytes(&self) -> Vec<u8> {
        let received = self.received();
        let len = received.payload.len();
        let mut bytes = vec![0; crate::inet::netif::HEAD_MAX];
        let head_len = ip::emit(&received.header, len, &mut bytes).unwrap_or(0);
        bytes.resize(head_len + len, 0);
        received.payload.copy_to(0, &mut bytes[head_len..]);
        bytes
    }

    /// Lets the stack answer as without a hook: an echo request with a reply with the same data from the requested
    /// address, another protocol with "protocol unreachable". Never blocks.
    pub fn answer(self) {
        let echo = self.echo();
        self.decide(|cx, received| match echo {
            Some((id, seq)) => icmp::reply(cx, icmp::family_of(&received), id, seq, received),
            None => icmp::unknown_protocol(cx, &received),
        });
    }

    /// Answers with an ICMP error from the destination host's address. The number of errors is limited, per interface
    /// and per pair of addresses (RFC 4443 section 2.4 (f)), and none is sent about ICMP errors. Never blocks.
    pub fn reject(self, why: Unsent) {
        let host = self.dst();
        self.reject_from(why, host);
    }

    /// [`reject`](Self::reject) from the address of another host: a router on the path whose report is passed on. An
    /// address of another family than the packet's is ignored.
    pub fn reject_from(self, why: Unsent, router: IpAddr) {
        self.decide(|cx, received| icmp::report(cx, &received, why, router));
    }

    /// Drops the packet: its sender gets no answer, as if the host did not exist.
    pub fn ignore(self) {}

    fn decide(mut self, how: impl FnOnce(&mut Context<'_>, Received)) {
        if let Some(stack) = self.stack.upgrade()
            && let Ok(core) = stack.core::<Core>()
            && let Some(received) = self.received.take()
        {
            Context::run(core, |cx| how(cx, received));
        }
    }
}

impl Drop for IpPacket {
    fn drop(&mut self) {
        if self.stack.is_lost() {
            // In a child of fork(2): the packet memory is its parent's.
            std::mem::forget(self.received.take());
        }
    }
}

impl fmt::Debug for IpPacket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(received) = &self.received else { return f.write_str("IpPacket { .. }") };
        f.debug_struct("IpPacket")
            .field("src", &self.src())
            .field("dst", &self.dst())
            .field("protocol", &self.protocol())
            .field("payload_len", &received.payload.len())
            .finish_non_exhaustive()
    }
}

fn protocol_of(family: Family) -> u8 {
    match family {
        Family::V4 => ip::PROTOCOL_ICMP,
        Family::V6 => ip::PROTOCOL_ICMPV6,
    }
}

/// An IP packet for [`Stack::send_ip`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IpSend<'a> {
    /// The source address of its header; it may be any host's.
    pub src: IpAddr,
    /// The destination, by the stack's routes.
    pub dst: IpAddr,
    /// The protocol behind the IP header, by IANA's number.
    pub protocol: u8,
    /// `None`: the interface's default.
    pub hop_limit: Option<u8>,
    /// TOS, with the ECN bits.
    pub traffic_class: u8,
    /// The bytes after the IP header.
    pub payload: &'a [u8],
}

impl<'a> IpSend<'a> {
    /// A packet with the interface's hop limit and traffic class 0.
    pub fn new(src: IpAddr, dst: IpAddr, protocol: u8, payload: &'a [u8]) -> Self {
        Self { src, dst, protocol, hop_limit: None, traffic_class: 0, payload }
    }
}

impl Stack {
    /// Sets `hook`, which the stack calls with each packet that it would answer by itself: ICMP echo requests, and
    /// protocols that it does not serve. `None` removes the hook. Without a hook (the default), the stack answers the
    /// former and reports the latter as unreachable, from the address of the destination host: on an interface that
    /// accepts packets to every host ([`set_any_address`](Self::set_any_address)), every host seems to be alive.
    ///
    /// The hook decides about the [`IpPacket`], or keeps it to decide later. At most 1,024 may be undecided at a time;
    /// packets beyond that are dropped and counted as `ip_hook_overflows`. The hook runs on the thread that received
    /// the packet, without locks. It may use sockets and replace itself, and should not block, because that thread also
    /// processes other packets. A panic in it is caught and reported ([`set_panic_hook`](Self::set_panic_hook)), and
    /// its packet is ignored. It is not called for packets to groups and broadcast addresses, or for those that the
    /// stack sends to itself.
    ///
    /// ```
    /// use sockeye::{Config, IpPacket, Stack, Unsent};
    ///
    /// let stack = Stack::new(Config::default())?;
    /// stack.set_ip_hook(Some(Box::new(|packet: IpPacket| match packet.echo() {
    ///     Some(_) if packet.dst().is_loopback() => packet.answer(),
    ///     Some(_) => packet.ignore(),
    ///     None => packet.reject(Unsent::Prohibited),
    /// })));
    /// # std::io::Result::Ok(())
    /// ```
    pub fn set_ip_hook(&self, hook: Option<Box<IpHook>>) {
        let Ok(core) = self.core::<Core>() else { return };
        let asking = &core.ip.asking;
        let (asks, hook) = (hook.is_some(), hook.map(|hook| (self.downgrade(), Arc::new(hook))));
        let before = std::mem::replace(&mut *asking.hook.lock(), hook);
        asking.asks.store(asks, Ordering::Relaxed);
        // Outside the lock: what the closure holds may run anything when it is dropped.
        panics::release(core, PanicSource::Hook, "drop of an IP hook", before);
    }

    /// Sends a packet of any protocol with any host's source address, for gateways: for example an answer to an
    /// [`IpPacket`]. The stack writes the IP header, fragments a packet that is longer than the path carries, and fills
    /// in the checksum of ICMP, ICMPv6, UDP, TCP and IGMP, replacing the bytes there. It does not check the packet
    /// otherwise. Never blocks.
    ///
    /// # Errors
    /// `InvalidInput` if the addresses are of different families or `payload` is shorter than the protocol's header;
    /// EMSGSIZE if it is longer than a packet can be; ENETUNREACH and similar without a route; ENOBUFS if the interface
    /// has no room; `OutOfMemory` without packet memory.
    pub fn send_ip(&self, packet: &IpSend<'_>) -> io::Result<()> {
        let core = self.core::<Core>()?;
        let (checksum, header_len) = checksum_of(packet.protocol, packet.dst.is_ipv6());
        if packet.src.is_ipv4() != packet.dst.is_ipv4() || packet.payload.len() < header_len {
            return Err(Errno::INVAL.into());
        }
        if packet.payload.len() > usize::from(u16::MAX) {
            return Err(Errno::MSGSIZE.into());
        }
        panics::call(core, "send", || send(core, packet, checksum))
    }
}

fn send(core: &Core, packet: &IpSend<'_>, checksum: ChecksumAt) -> io::Result<()> {
    let (first, rest) = packet.payload.split_at(packet.payload.len().min(FIRST_LEN));
    let mut header = [0; FIRST_LEN];
    let header = &mut header[..first.len()];
    header.copy_from_slice(first);
    match checksum {
        // The sum is over zeros in its own place.
        ChecksumAt::Plain(at) | ChecksumAt::Pseudo(at) => header[at..at + 2].fill(0),
        ChecksumAt::None => {}
    }
    let rest = memory::obtain(core, || core.pool.copy_in(rest)).map_err(|_| errno::NOMEM)?;
    Context::run(core, |cx| {
        let outgoing = Outgoing {
            dst: packet.dst,
            netif: None,
            src: Some(packet.src),
            protocol: packet.protocol,
            hop_limit: packet.hop_limit,
            traffic_class: packet.traffic_class,
            header,
            checksum,
            gso_size: 0,
            discover: MtuDiscover::Want,
            flow: flow_of(cx, packet.src, packet.dst),
        };
        output::send(cx, &outgoing, rest)
    })
    .map_err(|error| {
        io::Error::from(match error {
            SendError::NoWay(why) => why.errno(),
            SendError::NoSource => Errno::ADDRNOTAVAIL,
            SendError::TooLong(_) => Errno::MSGSIZE,
            SendError::QueueFull => Errno::NOBUFS,
        })
    })
}

/// Bytes that are handed over as the protocol's header: all that have a checksum have it there.
const FIRST_LEN: usize = 20;

/// Where a protocol has its checksum, and the bytes of its header.
fn checksum_of(protocol: u8, is_v6: bool) -> (ChecksumAt, usize) {
    match protocol {
        ip::PROTOCOL_TCP => (ChecksumAt::Pseudo(16), 20),
        ip::PROTOCOL_UDP => (ChecksumAt::Pseudo(6), 8),
        ip::PROTOCOL_ICMPV6 if is_v6 => (ChecksumAt::Pseudo(2), HEADER_LEN),
        ip::PROTOCOL_ICMP if !is_v6 => (ChecksumAt::Plain(2), HEADER_LEN),
        sockeye_proto::group::igmp::PROTOCOL if !is_v6 => (ChecksumAt::Plain(2), HEADER_LEN),
        _ => (ChecksumAt::None, 0),
    }
}
