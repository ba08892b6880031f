//! A connection: pcb, socket buffers and everything that points at them, in one allocation.
//!
//! Owner tags of the fields: (c) constant, (p) by protocol code, (b) under the socket lock, (a) atomic. Protocol
//! code holds the lock `so` as its runner ([`serve`]). It is in [`engine`]; its effects outside go into the
//! [`outbox`]; the calls of applications are in [`user`].
//!
//! A connection lives as long as there is an `Arc` of it: a handle of the application, the demux
//! table (until the pcb is CLOSED or in TIME-WAIT), an item in a queue. It is *dead* once it is out
//! of the table; work that still reaches it then finds a closed pcb and does nothing.

pub(crate) mod close;
pub(crate) mod connect;
pub(crate) mod contain;
mod cork;
mod emit;
pub(crate) mod engine;
pub(crate) mod error;
mod fast_open;
pub(crate) mod init;
pub(crate) mod notsent;
pub(crate) mod outbox;
mod parted;
pub(crate) mod rcvd;
pub(crate) mod ready;
pub(crate) mod reports;
mod reserved;
pub(crate) mod run;
pub(crate) mod serve;
pub(crate) mod sockbuf;
mod transfer;
pub(crate) mod transmit;
mod tune;
pub(crate) mod undelivered;
pub(crate) mod user;

use sockeye_proto::tcp::pcb::Pcb;
use sockeye_proto::tcp::segment::{Head, Header, PlainHeader};
use sockeye_proto::tcp::state::State;
use sockeye_sync::facade::{Arc, AtomicBool, AtomicU8, AtomicU32, AtomicU64, OnceLock, Ordering, Weak};
use sockeye_sync::{Mutex, Notify, OnceArc, SocketLock, WaitQueue, socket_lock};

use crate::base::addr::FourTuple;
use crate::base::payload::Data;
use crate::inet::input::busy::PlaceCell;
use crate::inet::input::leader::Waiters;
use crate::inet::ip::flow_label::PathCell;
use crate::inet::netif::table::{Via, ViaCell};
use crate::rt::failpoints;
use crate::rt::poll;
use crate::tcp::discipline::{Chosen, Discipline};
use crate::tcp::handshake::values::Value;
use crate::tcp::socket::tos_ttl::TosTtl;
use error::SockError;
use sockbuf::{Buffers, RecvBuf, SendBuf, Socket};

/// Bytes of a [`Conn`] that a segment touches, from its beginning on.
pub(crate) const HOT_LEN: usize = 512;

/// See the module's head. On cache lines of its own: neighbours in memory are often other threads'.
///
/// `repr(C)` keeps the order below: fields that every segment touches come first and lie together, eight
/// lines of 64 bytes, because the cost of a round trip over many connections is fetching their lines.
#[repr(C, align(64))]
pub(crate) struct Conn {
    /// (c) State of the settings that are measured against each other.
    #[cfg_attr(not(feature = "experiments"), allow(dead_code, reason = "the product keeps nothing"))]
    pub discipline: <Chosen as Discipline>::OfConn,
    /// (a) The other end, if it is in this process: a route cache, set once and only a hint.
    pub peer: OnceLock<Weak<Conn>>,
    /// (p) written, (a) read: when the timer wheel will call, in the clock's microseconds; 0 for not
    /// at all. Never later than the pcb's next deadline.
    pub timer_at: AtomicU64,
    /// Writers waiting for space, and connecting threads waiting for the handshake; guarded by `so`.
    pub snd_wait: WaitQueue,
    /// Readers waiting for bytes; guarded by `so`.
    pub rcv_wait: WaitQueue,
    /// (a) Work that coalesces: see [`reason`].
    pub notify: Notify,
    /// (a) `SO_ERROR`, taken by the first call that reads it.
    so_error: AtomicU8,
    /// (a) The pcb's state as of the last time the lock was let go, and whether something lay behind a hole then
    /// ([`HAS_HOLE`]).
    state: AtomicU8,
    /// (a) Out of the demux table.
    dead: AtomicBool,
    /// (p) written, (a) read: the way that its segments take.
    pub via: ViaCell,
    /// (a) Where frames for it come in; nowhere on loopback.
    pub input_at: PlaceCell,
    /// (a) Where one of the readers sleeps in an interface.
    rcv_leader_at: PlaceCell,
    /// (p) When its way was last told that it works.
    pub confirmed: run::Confirmed,
    /// (b) `so_snd` and `so_rcv`, and the state machine.
    pub so: SocketLock<Socket, Work>,
    /// (a) Socket options.
    pub options: SocketOptions,
    /// (a) Handles of the application; at 0 the connection is closed.
    pub users: AtomicU32,
    /// (a) Where one of the writers sleeps in an interface.
    snd_leader_at: PlaceCell,
    /// (c) The connection's name.
    pub tuple: FourTuple,
    /// (c) The keyed hash of `tuple`.
    pub hash: u64,
    /// (c) Distinguishes this connection from later ones of the same name.
    pub serial: u64,
    /// Under its own mutex, a leaf: what the SYN hook of the listener has sent along, until a handle takes it or the last one goes. The word is
    /// the last of the last line; in each handle it would be one more.
    pub accept_value: OnceArc<Mutex<Option<Value>>>,
}

/// Options that an application may change at any time.
pub(crate) struct SocketOptions {
    /// O_NONBLOCK.
    pub nonblocking: AtomicBool,
    /// TCP_NODELAY.
    pub nodelay: AtomicBool,
    /// IP_TOS, IPV6_TCLASS, without the bits of ECN.
    pub tos: AtomicU8,
    /// IP_TTL, IPV6_UNICAST_HOPS.
    pub hop_limit: AtomicU8,
    /// What is known of the path to the peer.
    pub path: PathCell,
    /// SO_KEEPALIVE.
    pub keepalive: AtomicBool,
    /// TCP_KEEPCNT.
    pub keepalive_retries: AtomicU8,
    /// TCP_KEEPIDLE.
    pub keepalive_time_ms: AtomicU32,
    /// TCP_KEEPINTVL.
    pub keepalive_interval_ms: AtomicU32,
    /// TCP_USER_TIMEOUT; 0 for none.
    pub user_timeout_ms: AtomicU32,
    /// TCP_LINGER2; 0: no FIN-WAIT-2.
    pub fin_timeout_ms: AtomicU32,
    /// TCP_SYNCNT, or the stack's.
    pub syn_retries: AtomicU8,
    /// Whether there was a first write: a connection for one message does best with no more references
    /// (`TcpStream::peer`).
    pub has_written: AtomicBool,
    /// SO_REUSEADDR, which decides later bind conflicts.
    pub reuse_addr: bool,
    /// SO_REUSEPORT, likewise.
    pub reuse_port: bool,
    /// IPv4 addresses are shown as mapped ones: the socket is an IPv6 one, and was not told otherwise.
    pub is_mapped: bool,
    /// SO_RCVTIMEO in microseconds, 0 for none.
    pub read_timeout: AtomicU64,
    /// SO_SNDTIMEO in microseconds, 0 for none.
    pub write_timeout: AtomicU64,
    /// SO_LINGER in milliseconds; [`LINGER_OFF`] for none.
    pub linger_ms: AtomicU32,
}

/// `linger_ms` of a socket without SO_LINGER.
pub(crate) const LINGER_OFF: u32 = u32::MAX;

impl SocketOptions {
    pub fn new(reuse_addr: bool, reuse_port: bool, is_mapped: bool) -> Self {
        Self {
            nonblocking: AtomicBool::new(false),
            nodelay: AtomicBool::new(false),
            tos: AtomicU8::new(0),
            hop_limit: AtomicU8::new(TosTtl::DEFAULT.ttl),
            path: PathCell::default(),
            keepalive: AtomicBool::new(false),
            keepalive_retries: AtomicU8::new(0),
            keepalive_time_ms: AtomicU32::new(0),
            keepalive_interval_ms: AtomicU32::new(0),
            user_timeout_ms: AtomicU32::new(0),
            fin_timeout_ms: AtomicU32::new(0),
            syn_retries: AtomicU8::new(0),
            has_written: AtomicBool::new(false),
            reuse_addr,
            reuse_port,
            is_mapped,
            read_timeout: AtomicU64::new(0),
            write_timeout: AtomicU64::new(0),
            linger_ms: AtomicU32::new(LINGER_OFF),
        }
    }
}

/// A connection's lock, held; the right to run items under it.
pub(crate) type Locked<'a> = socket_lock::Locked<'a, Socket, Work>;

/// Requests to a connection's protocol code: the items of its lock's backlog.
pub(crate) enum Work {
    /// A segment has arrived: see [`Work::segment`].
    Segment(PlainHeader, Data),
    /// One with options of its own.
    Rare(Box<Header>, Data),
    /// The network reports that a segment of ours, which began with this number, was not delivered.
    Undelivered(sockeye_proto::seq::SeqNum, sockeye_proto::icmp::Error),
    /// The reasons posted in [`Conn::notify`].
    Notify,
    /// The other end, this connection, has writes to send once earlier items are run: see [`cork`].
    Uncork(Arc<Conn>),
}

impl Work {
    /// A segment has arrived.
    #[inline]
    pub fn segment(mut head: Head, mut payload: Data) -> Self {
        Self::take_segment(&mut head, &mut payload)
    }

    /// [`segment`](Self::segment), of which nothing is left behind. Once.
    #[inline]
    pub fn take_segment(head: &mut Head, payload: &mut Data) -> Self {
        let payload = std::mem::take(payload);
        match head.take_parts() {
            Ok(plain) => Self::Segment(plain, payload),
            Err(full) => Self::Rare(full, payload),
        }
    }
}

/// The bits of [`Conn::notify`].
pub(crate) mod reason {
    /// `so_snd` has grown past its mark.
    pub const OUTPUT: u32 = 1;
    /// A reader has taken bytes: the peer may have to hear of it.
    pub const RCVD: u32 = 1 << 1;
    /// The application shut its sending side down.
    pub const SHUTDOWN: u32 = 1 << 2;
    /// The last handle is gone.
    pub const CLOSE: u32 = 1 << 3;
    /// The connection is to be reset.
    pub const ABORT: u32 = 1 << 4;
    /// The timer wheel has called.
    pub const TIMER: u32 = 1 << 5;
    /// A socket option has changed.
    pub const OPTION: u32 = 1 << 6;
    /// A reader waits to hear that its `RCVD` was dealt with.
    pub const REPLY: u32 = 1 << 7;
    /// Packet memory has run out: out-of-order data is to go.
    pub const PRUNE: u32 = 1 << 8;
    /// With `OPTION`: keepalive's idle time was set, be it the same.
    pub const KEEPIDLE: u32 = 1 << 9;
}

/// The parts of a new connection.
pub(crate) struct ConnInit {
    pub discipline: <Chosen as Discipline>::OfConn,
    pub pcb: Pcb<Data>,
    pub tuple: FourTuple,
    pub hash: u64,
    pub via: Via,
    pub snd: SendBuf,
    pub rcv: RecvBuf,
    pub options: SocketOptions,
}

impl Conn {
    pub fn new(serial: u64, init: ConnInit) -> Arc<Self> {
        let state = AtomicU8::new(state_code(init.pcb.state()));
        let buffers =
            Buffers { snd: init.snd, rcv: init.rcv, waiters: poll::Waiters::default(), fast_open: None };
        Arc::new(Self {
            discipline: init.discipline,
            notify: Notify::new(),
            users: AtomicU32::new(1),
            so: SocketLock::new(Socket::new(buffers, init.pcb)),
            snd_wait: WaitQueue::new(),
            rcv_wait: WaitQueue::new(),
            peer: OnceLock::new(),
            timer_at: AtomicU64::new(0),
            tuple: init.tuple,
            hash: init.hash,
            serial,
            accept_value: OnceArc::new(),
            via: ViaCell::new(init.via),
            input_at: PlaceCell::default(),
            rcv_leader_at: PlaceCell::default(),
            snd_leader_at: PlaceCell::default(),
            confirmed: run::Confirmed::default(),
            so_error: AtomicU8::new(0),
            state,
            dead: AtomicBool::new(false),
            options: init.options,
        })
    }

    /// Readers that wait for bytes.
    pub fn readers(&self) -> Waiters<'_> {
        Waiters { queue: &self.rcv_wait, are_readers: true, leader_at: &self.rcv_leader_at }
    }

    /// Writers that wait for space, and connecting threads.
    pub fn writers(&self) -> Waiters<'_> {
        Waiters { queue: &self.snd_wait, are_readers: false, leader_at: &self.snd_leader_at }
    }

    /// The other end, if it is known, in this process and still in the demux table.
    pub fn live_peer(&self) -> Option<Arc<Conn>> {
        self.peer.get()?.upgrade().filter(|peer| !peer.is_dead())
    }

    pub fn is_dead(&self) -> bool {
        // Acquire, with the Release of `bury`: a dead connection's successor is looked up after it.
        self.dead.load(Ordering::Acquire)
    }

    /// Marks the connection as out of the table.
    pub fn bury(&self) {
        self.dead.store(true, Ordering::Release);
    }

    /// The pcb's state when its lock was last let go.
    pub fn state(&self) -> State {
        state_of(self.state.load(Ordering::Relaxed) & !HAS_HOLE)
    }

    /// The state's name, for people. The last one is that of the connection, also where its pcb is gone.
    pub fn state_name(&self, so: &Socket) -> &'static str {
        match self.state() {
            State::Established => so.pcb.state_name(),
            other => other.name(),
        }
    }

    /// True if something lay behind a hole when the lock was last let go.
    pub fn has_hole(&self) -> bool {
        self.state.load(Ordering::Relaxed) & HAS_HOLE != 0
    }

    fn publish_state(&self, state: State, has_hole: bool) {
        let code = state_code(state) | if has_hole { HAS_HOLE } else { 0 };
        // The line is shared with readers of other fields: it is written only on a change. No other thread writes it.
        if self.state.load(Ordering::Relaxed) != code {
            self.state.store(code, Ordering::Relaxed);
        }
    }

    /// Takes the pending error (`SO_ERROR`), which is then gone; but that of a panic stays, for every caller that asks.
    pub fn take_error(&self) -> Option<SockError> {
        if self.so_error.load(Ordering::Relaxed) == 0 {
            return None;
        }
        self.panicked().or_else(|| SockError::from_code(self.so_error.swap(0, Ordering::AcqRel)))
    }

    /// Takes the network's report on an open connection (Linux: `sk_err_soft`).
    pub fn take_reported(&self) -> Option<SockError> {
        self.so.lock().pcb.take_unreachable().map(SockError::reported)
    }

    /// The error of a connection whose protocol code has panicked.
    pub fn panicked(&self) -> Option<SockError> {
        // Acquire: with the release of `set_error`.
        let code = self.so_error.load(Ordering::Acquire);
        (code == SockError::Panicked.code()).then_some(SockError::Panicked)
    }

    /// True while an error is pending; for readiness.
    pub fn has_error(&self) -> bool {
        self.so_error.load(Ordering::Acquire) != 0
    }

    /// Leaves an error for the call that asks next.
    pub fn set_error(&self, error: SockError) {
        if self.panicked().is_none() {
            self.so_error.store(error.code(), Ordering::Release);
        }
    }
}

/// Bit of [`Conn`]'s published state.
const HAS_HOLE: u8 = 1 << 7;

/// A state as a number: that of [`State::ALL`].
fn state_code(state: State) -> u8 {
    state as u8
}

fn state_of(code: u8) -> State {
    State::ALL.get(usize::from(code)).copied().unwrap_or(State::Closed)
}

/// An idle connection costs this twice: it fills twelve lines of 64 bytes, and another field makes it thirteen.
const _: () = assert!(size_of::<Conn>() <= 768 || cfg!(feature = "count"));

impl failpoints::Ports for Conn {
    fn ports(&self) -> (u16, u16) {
        (self.tuple.local.port, self.tuple.remote.port)
    }
}

impl failpoints::Ports for Arc<Conn> {
    fn ports(&self) -> (u16, u16) {
        (**self).ports()
    }
}
