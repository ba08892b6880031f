//! The protocol control block of a UNIX-domain socket: its receive buffer, and the state that both ends must
//! know.
//!
//! | field | guarded by |
//! |---|---|
//! | `so` | (b) its own mutex, the *receive buffer's* |
//! | `link` | (u) the pcb's mutex, inside |
//! | `options`, `users`, `in_flight`, `alert`, `remembered`, `peer_serial` | (a) atomics |
//! | `kind`, `serial`, `name` (once set) | (c) constant |
//!
//! The state that a sender needs of its receiver stands in the *receiver's* `so`, so that a send needs that one
//! mutex: whether bytes are still taken (`shut`, `closed`), how many (`hiwat`), from which senders (`flows`). A
//! direction of a connection has one flag, `shut` of the receiving end: "I write no more" and "I read no more" are
//! the same to both, as they are on Linux.
//!
//! Does not depend on how data is moved (`send.rs`, `recv.rs`) or which further locks a setting takes
//! (`locking.rs`). Never are two `so` held at once, but by the collector of rights, in address order. Tests:
//! `tests/unix/stress.rs`.

use std::collections::VecDeque;

use rustix::io::Errno;
use sockeye_mbuf::Chain;
use sockeye_sync::facade::{Arc, AtomicBool, AtomicU8, AtomicU32, AtomicU64, OnceLock, Weak};
use sockeye_sync::pair::{Link, Linked, Remembered};
use sockeye_sync::reserved::Reserved;
use sockeye_sync::{BriefMutex, WaitQueue};

use super::addr::Name;
use super::ancillary::UCred;
use super::bytes::Bytes;
use super::flows::Flows;
use super::records::Records;
use super::rights::InFlight;
use super::sock::Sock;
use crate::config::Config;
use crate::rt::poll::{Ready, Waiters};
use crate::rt::wake::{Change, Sleepers};

/// The types of socket(7).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Kind {
    Stream,
    Seqpacket,
    Datagram,
}

impl Kind {
    /// Whether a socket has one peer for life.
    pub fn is_connected(self) -> bool {
        match self {
            Self::Stream | Self::Seqpacket => true,
            Self::Datagram => false,
        }
    }
}

/// See the module's head. On cache lines of its own: two pcbs of two cores must not share one.
#[repr(C, align(128))]
pub(crate) struct Pcb {
    /// Our readers, or threads in `accept`; with `so`.
    pub rcv_wait: WaitQueue,
    /// Threads that wait for room in our buffer or in our backlog; with `so`.
    pub snd_wait: WaitQueue,
    pub so: BriefMutex<So>,
    pub kind: Kind,
    /// (a) An error is pending or our writing side of a datagram socket is shut: senders look into `so`.
    pub alert: AtomicBool,
    /// (a) Phase of the socket: see `listen::phase`.
    pub phase: AtomicU8,
    /// (a) Whether a datagram socket's peer is the one that it was created with.
    pub remembered: Remembered,
    /// (a) Where our flow was at the receiver that we sent to last; a hint.
    pub flow_hint: AtomicU32,
    /// (a) Handles, those in flight included.
    pub users: AtomicU32,
    /// (a) Handles that lie in a receive buffer or backlog. At most `users`.
    pub in_flight: AtomicU32,
    pub options: Options,
    pub link: Link<Pcb>,
    pub name: OnceLock<Arc<Name>>,
    /// The peer of a socket that was connected after it was created: in other cases the handles have it themselves.
    pub peer: OnceLock<Weak<Pcb>>,
    /// Its number in the list of all sockets (`registry.rs`).
    pub serial: u64,
    /// (a) The number of a connected socket's peer, for the same list; 0: none.
    pub peer_serial: AtomicU64,
}

/// Options that are read without a lock.
pub(crate) struct Options {
    pub nonblocking: AtomicBool,
    pub passcred: AtomicBool,
    /// SO_RCVTIMEO and SO_SNDTIMEO, microseconds; 0: none.
    pub read_timeout: AtomicU64,
    pub write_timeout: AtomicU64,
    /// SO_SNDBUF and SO_RCVBUF, bytes. The second limits nothing, as on Linux.
    pub sndbuf: AtomicU32,
    pub rcvbuf: AtomicU32,
}

/// A socket's receive buffer, and the waiters for its changes.
///
/// In the order of use: fields that the exchange of a short message writes lie on one cache line with the lock, its
/// bytes included. The fields behind are read by it at most.
#[repr(C)]
pub(crate) struct So {
    /// The position of the first byte in `data` in the stream.
    pub head: u64,
    /// The CPUs on which data and room were last announced.
    pub data_cpu: u32,
    pub room_cpu: u32,
    /// A connection was made; it never ends again.
    pub is_connected: bool,
    /// Nothing more comes in: we, or the peer, have shut the direction.
    pub shut: bool,
    /// Our own writes are shut (datagram sockets only; for others it is the peer's `shut`).
    pub send_shut: bool,
    /// The last handle is gone.
    pub closed: bool,
    /// A panic has ended the connection.
    pub is_broken: bool,
    /// We or our peer want credentials with arriving data.
    pub wants_creds: bool,
    pub data: Bytes,
    /// Boundaries in `data`; none in a stream.
    pub records: Records,
    /// Bytes that a writer is copying right now, already counted against `hiwat`.
    pub reserved: Reserved,
    /// Bytes of a connected peer that may wait here: the peer's SO_SNDBUF.
    pub hiwat: usize,
    pub error: Option<Errno>,
    /// Marks between a stream's bytes; usually none.
    pub ancillary: Option<Box<StreamAncillary>>,
    /// References to UNIX-domain sockets in this buffer or backlog.
    pub sockets_held: u32,
    /// Tasks that wait to read or accept, and polls of this socket. The threads are in `rcv_wait`.
    pub readers: Waiters,
    /// Tasks and polls that wait for room here: of the peer; of a listener the connecting ones; of a datagram socket its own. The threads are in
    /// `snd_wait`, or those of a datagram socket in the flows.
    pub writers: Waiters,
    /// Of a datagram socket: its senders.
    pub flows: Flows,
    /// Of a listener.
    pub backlog: Option<Box<Backlog>>,
}

/// One datagram or packet.
pub(crate) struct Record {
    pub len: u32,
    /// The place of its sender in the flows; of no meaning for packets.
    pub flow: u32,
    pub extra: Option<Box<Extra>>,
}

/// Ancillary data of a record.
#[derive(Default)]
pub(crate) struct Extra {
    pub rights: Option<InFlight>,
    pub creds: Option<UCred>,
}

/// The ancillary data of a stream, by position.
#[derive(Default)]
pub(crate) struct StreamAncillary {
    pub rights: VecDeque<RightsSpan>,
    /// From this position on the bytes have these credentials; ascending. Before the first: `None`.
    pub creds: VecDeque<(u64, Option<UCred>)>,
    /// The credentials of the byte at the head.
    pub head_creds: Option<UCred>,
}

/// Rights that arrive with the bytes from `start` on. A read that gets them ends at `end`.
pub(crate) struct RightsSpan {
    pub start: u64,
    pub end: u64,
    pub rights: InFlight,
}

/// A listener's connections that were not accepted yet.
pub(crate) struct Backlog {
    pub ready: VecDeque<Sock>,
    /// Places that are taken for connections in the making.
    pub taken: usize,
    pub max: usize,
}

/// Charge of a record beside its bytes: its bookkeeping, and a bound for empty records.
pub(crate) const RECORD_COST: usize = 256;
/// A socket counts as writable while this part of its peer's buffer is free for it (Linux: three quarters).
const WRITABLE_PART: usize = 4;

impl Pcb {
    pub fn new(kind: Kind, config: &Config, serial: u64) -> Arc<Self> {
        Arc::new(Self {
            so: BriefMutex::new(So::new(config.sndbuf as usize)),
            rcv_wait: WaitQueue::new(),
            snd_wait: WaitQueue::new(),
            kind,
            alert: AtomicBool::new(false),
            phase: AtomicU8::new(0),
            remembered: Remembered::new(),
            flow_hint: AtomicU32::new(0),
            users: AtomicU32::new(1),
            in_flight: AtomicU32::new(0),
            options: Options {
                nonblocking: AtomicBool::new(false),
                passcred: AtomicBool::new(false),
                read_timeout: AtomicU64::new(0),
                write_timeout: AtomicU64::new(0),
                sndbuf: AtomicU32::new(config.sndbuf),
                rcvbuf: AtomicU32::new(config.rcvbuf),
            },
            link: Link::new(),
            name: OnceLock::new(),
            peer: OnceLock::new(),
            serial,
            peer_serial: AtomicU64::new(0),
        })
    }

    /// The peer of a socket that was connected after it was created, for a handle that does not know it.
    pub fn connected_since(&self) -> Option<Arc<Self>> {
        self.peer.get()?.upgrade()
    }

    /// A name for it among living pcbs: where it lies.
    pub fn id(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}

impl Sleepers for Pcb {
    fn wake(&self, change: Change) {
        match change {
            Change::Arrival => self.rcv_wait.wake(),
            Change::Room => self.snd_wait.wake(),
        }
    }
}

impl Linked for Pcb {
    fn link(&self) -> &Link<Self> {
        &self.link
    }
}

impl So {
    fn new(hiwat: usize) -> Self {
        Self {
            data: Bytes::new(),
            reserved: Reserved::new(),
            hiwat,
            is_connected: false,
            shut: false,
            send_shut: false,
            closed: false,
            is_broken: false,
            wants_creds: false,
            error: None,
            records: Records::default(),
            ancillary: None,
            head: 0,
            sockets_held: 0,
            readers: Waiters::default(),
            writers: Waiters::default(),
            data_cpu: u32::MAX,
            room_cpu: u32::MAX,
            flows: Flows::default(),
            backlog: None,
        }
    }

    /// Bytes charged against `hiwat`.
    #[inline]
    pub fn used(&self) -> usize {
        self.data.len() + self.reserved.bytes() as usize + self.records.len() * RECORD_COST
    }

    /// Bytes that a stream's writer may add now.
    #[inline]
    pub fn space(&self) -> usize {
        self.hiwat.saturating_sub(self.used())
    }

    /// Whether the peer counts as writable.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.used() <= self.hiwat / WRITABLE_PART
    }

    /// Whether a sender to here would only be told EPIPE.
    #[inline]
    pub fn takes_nothing(&self) -> bool {
        self.shut || self.closed
    }

    /// Whether a read or accept would not block.
    pub fn is_readable(&self) -> bool {
        let waiting = match &self.backlog {
            Some(backlog) => !backlog.ready.is_empty(),
            None => !self.data.is_empty() || !self.records.is_empty(),
        };
        waiting || self.shut
    }

    /// The readiness of this end by this end's buffer.
    pub fn readiness(&self) -> Ready {
        Ready::READABLE
            .when(self.is_readable())
            .with(Ready::READ_CLOSED.when(self.shut))
            .with(Ready::ERROR.when(self.error.is_some()))
    }

    /// Takes all contents out, for disposal after unlocking.
    pub fn empty(&mut self) -> Contents {
        self.head += self.data.len() as u64;
        self.sockets_held = 0;
        // One empty record alone is no loss, as on Linux.
        let was_unread = !self.data.is_empty() || self.records.len() > 1;
        Contents {
            was_unread,
            chain: self.data.clear(),
            records: std::mem::take(&mut self.records),
            ancillary: self.ancillary.take(),
            embryos: self.backlog.as_mut().map(|b| std::mem::take(&mut b.ready)).unwrap_or_default(),
        }
    }

    /// The boxes of rights in this buffer.
    pub fn rights(&self) -> impl Iterator<Item = &InFlight> {
        let of_records = self.records.extras().filter_map(|extra| extra.rights.as_ref());
        let ancillary = self.ancillary.iter().flat_map(|ancillary| ancillary.rights.iter());
        of_records.chain(ancillary.map(|span| &span.rights))
    }

    /// Connections in the backlog.
    pub fn embryos(&self) -> impl Iterator<Item = &Sock> {
        self.backlog.iter().flat_map(|backlog| backlog.ready.iter())
    }
}

/// Content of a receive buffer.
#[derive(Default)]
pub(crate) struct Contents {
    /// Something that was sent has not been read.
    pub was_unread: bool,
    pub chain: Chain,
    pub records: Records,
    pub ancillary: Option<Box<StreamAncillary>>,
    pub embryos: VecDeque<Sock>,
}

impl Contents {
    pub fn is_empty(&self) -> bool {
        self.chain.is_empty()
            && self.records.is_empty()
            && self.ancillary.is_none()
            && self.embryos.is_empty()
    }

    /// All that were in flight here.
    pub fn into_rights(self) -> impl Iterator<Item = InFlight> {
        let of_records = self.records.into_iter().filter_map(|r| r.extra?.rights);
        let ancillary = self.ancillary.into_iter().flat_map(|ancillary| ancillary.rights);
        of_records.chain(ancillary.map(|span| span.rights))
    }
}
