//! A UDP socket's control block: its name, its options, and its receive queue.
//!
//! # Owners of the fields
//! * (c) `is_v6`, `is_mapped`, `v6_only`, `reuse_*`, `transparent`, `any_port`, `role`: chosen before the socket is bound.
//! * (n) changes of `name`: under `naming`, which calls that name the socket hold; it is read without a lock.
//! * (a) `options`, `notable`: words of their own that order nothing. `notable` is changed under `so` and shows a sender,
//!   which otherwise does not look there, that an error is pending or that sends are told of.
//! * (b) everything in [`So`]: under `so`, the mutex of the receive queue.
//!
//! Fields that senders read and fields that receivers write lie on lines apart: a thread that sends on a socket is not
//! slowed down by one that receives on it.
//!
//! # Why no wake-up is lost
//! A receiver that finds the queue empty comes onto the list of waiters in the section that found it so; the thread that appends
//! notifies them in the section that appends, and wakes after unlocking (`sync/src/wait_list.rs`). A `Poll` looks at the queue
//! under the same mutex (`poll.rs`).
//!
//! Bounds: [`So::charge`] by `rcvbuf` (one datagram over, as on Linux), the error queue by [`ERRORS_MAX`], memberships
//! by [`MEMBERSHIPS_MAX`](super::groups::MEMBERSHIPS_MAX). Tasks: `sync/src/wait_list.rs`. Rank of `so`: see
//! `ARCHITECTURE.md`. Tests: `tests/udp/`.

use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::num::NonZeroU32;

use rustix::io::Errno;
use sockeye_mbuf::Chain;
use sockeye_proto::time::Instant;
use sockeye_proto::udp::Joiner;
use sockeye_sync::facade::{Arc, Ordering};
use sockeye_sync::{BriefMutex, Mutex, Notified, WaitQueue, cpu};

use super::builder::{Place, Reuse};
use super::errors::Queued;
use super::flows::{Flows, Part, Share};
use super::groups::Memberships;
use super::name::{Name, NameCell};
use super::options::Options;
use super::stamps::{Bits, Notable, Stamps};
use crate::base::addr::Endpoint;
use crate::inet::Core;
use crate::rt::poll::{self, Queue, Ready, Registration, Target, Waiters, registration};
use crate::rt::wake::{Change, Sleepers, Wake, fire_all};

/// See the module's head.
#[repr(align(128))]
pub(crate) struct Pcb {
    /// (c) Its protocol.
    pub protocol: Protocol,
    /// (c) An IPv6 socket.
    pub is_v6: bool,
    /// (c) IPv4 addresses are shown as mapped ones: an IPv6 socket that was not told otherwise.
    pub is_mapped: bool,
    /// (c) It takes no IPv4: an IPv4 socket is "IPv6 only" in the sense that it is of one family.
    pub v6_only: bool,
    /// (c) SO_REUSEADDR.
    pub reuse_addr: bool,
    /// (c) SO_REUSEPORT.
    pub reuse_port: bool,
    /// (c) Other hosts' addresses may be bound to and sent from.
    pub transparent: bool,
    /// (c) Bound to every port that no other socket is bound to: its name has port 0 and never changes.
    pub any_port: bool,
    /// (c) What it has to do with flows.
    pub role: Role,
    /// (n)
    pub name: NameCell,
    /// (a)
    pub options: Options,
    /// (a) What a sender has to look at in `so`, by the bits of [`Notable`].
    pub notable: Bits,
    pub naming: Mutex<Naming>,
    pub receive: Receive,
}

/// Protocol of a socket's datagrams.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Protocol {
    /// UDP's.
    Udp,
    /// Echo requests and their answers (`crate::icmp`).
    Echo,
}

/// A socket's part in UDP by flow (`flows.rs`).
pub(crate) enum Role {
    /// Nothing.
    Plain,
    /// Its datagrams begin flows.
    Listener(Arc<Flows>),
    /// It is one.
    Flow(Box<Part>),
}

impl Role {
    /// What a flow has beyond a socket.
    pub fn flow(&self) -> Option<&Part> {
        match self {
            Self::Flow(part) => Some(part),
            Self::Plain | Self::Listener(_) => None,
        }
    }

    /// The flows of a listener.
    pub fn listener(&self) -> Option<&Arc<Flows>> {
        match self {
            Self::Listener(flows) => Some(flows),
            Self::Plain | Self::Flow(_) => None,
        }
    }
}

/// Parameters of a new socket.
pub(crate) struct Init {
    pub protocol: Protocol,
    pub is_v6: bool,
    /// IPv4 addresses are shown as such also by an IPv6 socket.
    pub canonical: bool,
    pub reuse: Reuse,
    pub place: Place,
    pub rcvbuf: u32,
    pub role: Role,
}

/// State that naming calls leave for later ones.
#[derive(Default)]
pub(crate) struct Naming {
    /// The address that a bind has named, to which a disconnect returns.
    pub bound_addr: Option<IpAddr>,
    /// The port was chosen by the stack: a disconnect gives it back.
    pub is_auto: bool,
}

/// State that receivers and deliverers write, on lines of its own.
#[repr(align(128))]
pub(crate) struct Receive {
    pub so: BriefMutex<So>,
    pub wait: WaitQueue,
}

/// A datagram that waits. One with a `segment_size` stands for several (`sockeye_proto::udp::Segments`).
pub(crate) struct Datagram {
    pub from: Endpoint,
    /// Where it was sent to.
    pub to: Endpoint,
    /// The interface by which it came.
    pub interface: u32,
    pub segment_size: u16,
    pub traffic_class: u8,
    pub hop_limit: u8,
    /// Datagrams that the queue had dropped before this one was appended.
    pub drops: u32,
    /// When it came, if the socket asked for that; else zero.
    pub at: Instant,
    pub payload: Chain,
}

/// Bytes of the buffer that a datagram takes beyond its packet memory.
const OVERHEAD: usize = size_of::<Datagram>();

impl Datagram {
    /// Whether a datagram came the same way from the same sender.
    fn is_of_flow(&self, other: &Self) -> bool {
        let way = |d: &Self| (d.from, d.to, d.interface, d.traffic_class, d.hop_limit);
        way(self) == way(other)
    }

    /// Bytes of the buffer that it takes: of memory, whatever it carries.
    fn charge(&self) -> usize {
        charge_of(&self.payload)
    }
}

/// Bytes of the buffer that a datagram with this text takes.
fn charge_of(payload: &Chain) -> usize {
    // A part of a large cluster that was cut for this socket is charged for its own bytes.
    let own = 2 * payload.len() + SMALL_MAX;
    OVERHEAD + payload.footprint().min(own)
}

/// Most bytes that are joined.
const JOINED_MAX: usize = 65_535;
/// The largest charge of a short datagram: its cluster of 256 bytes and the cluster's header.
const SMALL_MAX: usize = 320;
/// Most errors that wait to be looked at; more are dropped, and the pending error is only the last one.
pub(crate) const ERRORS_MAX: usize = 64;

/// See the module's head.
pub(crate) struct So {
    pub queue: VecDeque<Datagram>,
    /// Bytes of the buffer that `queue` takes.
    charge: usize,
    /// SO_RCVBUF.
    pub rcvbuf: usize,
    /// SO_RXQ_OVFL: datagrams that were dropped because the buffer was full, modulo 2^32.
    pub drops: u32,
    /// SO_ERROR.
    pub error: Option<Errno>,
    /// IP_RECVERR's queue.
    pub errors: VecDeque<Queued>,
    /// Time stamps, if any were ever asked for.
    pub stamps: Option<Box<Stamps>>,
    pub groups: Memberships,
    /// Where the last deliverer ran, as a hint for a receiver that waits.
    pub data_cpu: u32,
    pub waiters: Waiters,
    closed: bool,
    /// Flows that wait to be accepted, at a listener of flows.
    pub flows: VecDeque<Arc<Pcb>>,
    /// What a flow has taken of what all of its listener may queue.
    pub share: Option<Share>,
    /// The error of a flow that has ended: after what waits.
    pub ended: Option<NonZeroU32>,
}

impl Pcb {
    /// One with default options.
    pub fn new(init: Init) -> Arc<Self> {
        let Init { protocol, is_v6, canonical, reuse, place, rcvbuf, role } = init;
        Arc::new(Self {
            protocol,
            is_v6,
            is_mapped: is_v6 && !canonical,
            v6_only: reuse.v6_only || !is_v6,
            reuse_addr: reuse.addr,
            reuse_port: reuse.port,
            transparent: place != Place::Own,
            any_port: place == Place::AnyPort,
            role,
            name: NameCell::new(&Name::unbound(is_v6)),
            options: Options::default(),
            notable: Bits::default(),
            naming: Mutex::new(Naming::default()),
            receive: Receive {
                so: BriefMutex::new(So {
                    queue: VecDeque::new(),
                    charge: 0,
                    rcvbuf: rcvbuf as usize,
                    drops: 0,
                    error: None,
                    errors: VecDeque::new(),
                    stamps: None,
                    groups: Memberships::default(),
                    data_cpu: 0,
                    waiters: Waiters::default(),
                    closed: false,
                    flows: VecDeque::new(),
                    share: None,
                    ended: None,
                }),
                wait: WaitQueue::new(),
            },
        })
    }

    /// Of a socket for echo requests. Its errors are kept: they are its purpose.
    pub fn of_echo(is_v6: bool, rcvbuf: u32) -> Arc<Self> {
        let reuse = Reuse { v6_only: true, ..Reuse::default() };
        let (protocol, place, role) = (Protocol::Echo, Place::Own, Role::Plain);
        let pcb = Self::new(Init { protocol, is_v6, canonical: false, reuse, place, rcvbuf, role });
        pcb.options.recv_err.store(true, Ordering::Relaxed);
        pcb
    }

    /// Tells all waiters that there is something: a datagram or an error.
    pub fn announce(this: &Arc<Self>, so: &mut So, ready: Ready, wakes: &mut Vec<Wake>) {
        let sleepers = || Wake::sleepers(this, Change::Arrival);
        match so.waiters.notify_awaited(&this.receive.wait, sleepers, ready.bits(), wakes) {
            Notified::NoWaiter => {}
            Notified::Spinning | Notified::Parked => so.data_cpu = cpu::current(),
        }
    }

    /// Takes the pending error.
    pub fn take_error(&self) -> Option<Errno> {
        self.take_noted_error(self.notable.load())
    }

    /// The same by what was just read of `notable`. An error that is being set just now is found by the next call.
    #[inline]
    pub fn take_noted_error(&self, notable: u8) -> Option<Errno> {
        if notable & Notable::ERROR == 0 {
            return None;
        }
        self.take_error_in(&mut self.receive.so.lock())
    }

    /// The same under `so`.
    pub fn take_error_in(&self, so: &mut So) -> Option<Errno> {
        let error = so.error.take()?;
        self.notable.set(Notable::ERROR, false);
        Some(error)
    }

    /// Readiness now. A datagram can always be sent: one that the interface has no room for is dropped.
    pub fn readiness(&self) -> Ready {
        let so = self.receive.so.lock();
        Ready::WRITABLE.with(Ready::READABLE.when(so.is_readable())).with(Ready::ERROR.when(so.is_in_error()))
    }

    /// Ends the socket: nothing is taken any more. Its content is dropped after its mutex; flows that wait are the caller's to close.
    #[must_use]
    pub fn close(&self, core: &Core) -> VecDeque<Arc<Self>> {
        let mut wakes = Vec::new();
        let mut so = self.receive.so.lock();
        so.closed = true;
        so.charge = 0;
        let left = (
            std::mem::take(&mut so.queue),
            std::mem::take(&mut so.errors),
            so.stamps.take(),
            so.share.take(),
        );
        let flows = std::mem::take(&mut so.flows);
        let registrations = registration::clear(&mut so.waiters, &mut wakes);
        drop(so);
        drop((left, registrations));
        fire_all(core, &mut wakes);
        flows
    }
}

impl Sleepers for Pcb {
    fn wake(&self, _change: Change) {
        self.receive.wait.wake();
    }
}

/// A socket as a poller knows it.
pub(crate) struct End(pub Arc<Pcb>);

impl Target for End {
    fn add(&self, registration: &Arc<Registration>, wakes: &mut Vec<Wake>) -> io::Result<()> {
        registration::add(&mut self.0.receive.so.lock().waiters, registration)?;
        poll::mark(registration, self.ready(), wakes);
        Ok(())
    }

    fn remove(&self, queue: &Arc<Queue>) -> Option<Arc<Registration>> {
        registration::remove(&mut self.0.receive.so.lock().waiters, queue)
    }

    fn ready(&self) -> Ready {
        self.0.readiness()
    }
}

impl So {
    /// Whether a datagram is taken. The first one that is too much still is, as on Linux.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.charge <= self.rcvbuf && !self.closed
    }

    /// Whether there is room for a datagram with this text: as [`has_room`](Self::has_room), and for a flow in what all flows of its listener
    /// may queue.
    #[inline]
    pub fn has_room_for(&mut self, payload: &Chain) -> bool {
        self.has_room()
            && match &mut self.share {
                None => true,
                Some(share) => share.covers(self.charge + charge_of(payload)),
            }
    }

    /// The error of a flow that has ended.
    pub fn ended_errno(&self) -> Option<Errno> {
        self.ended.map(|errno| Errno::from_raw_os_error(errno.get().cast_signed()))
    }

    /// Whether a receive, or an accept of a flow, would not wait.
    #[inline]
    pub fn is_readable(&self) -> bool {
        !self.queue.is_empty() || !self.flows.is_empty() || self.ended.is_some()
    }

    /// Whether there is something that pollers, and tasks that wait for errors, call one: an error is pending, or a report waits.
    pub fn is_in_error(&self) -> bool {
        self.error.is_some()
            || !self.errors.is_empty()
            || self.stamps.as_ref().is_some_and(|stamps| stamps.has_any())
    }

    /// Appends a datagram.
    #[inline]
    pub fn push(&mut self, mut datagram: Datagram) {
        datagram.drops = self.drops;
        self.charge += datagram.charge();
        self.queue.push_back(datagram);
    }

    /// Appends a datagram to the last one, if they are of one flow and may go as one buffer; else behind it.
    pub fn join(&mut self, datagram: Datagram) {
        let Some(last) = self.queue.back_mut().filter(|last| last.is_of_flow(&datagram)) else {
            return self.push(datagram);
        };
        let mut joiner = Joiner::new(last.payload.len(), last.segment_size);
        if !joiner.add(datagram.payload.len(), JOINED_MAX) {
            return self.push(datagram);
        }
        let before = last.charge();
        last.payload.append(datagram.payload);
        last.at = datagram.at;
        last.segment_size = joiner.size();
        self.charge += last.charge() - before;
    }

    /// Takes the oldest datagram out.
    #[inline]
    pub fn pop(&mut self) -> Option<Datagram> {
        let datagram = self.queue.pop_front()?;
        self.charge -= datagram.charge();
        if self.queue.is_empty()
            && let Some(share) = &mut self.share
        {
            share.give_back();
        }
        if self.queue.is_empty() && self.queue.capacity() > QUEUE_KEPT {
            self.queue = VecDeque::new();
        }
        Some(datagram)
    }
}

/// Places of an empty queue that are kept; a burst's are given back.
const QUEUE_KEPT: usize = 1024;
