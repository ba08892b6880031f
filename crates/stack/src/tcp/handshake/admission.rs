//! Admission: asking the application before a SYN is answered.
//!
//! A listener may have a *hook* that is called with each new [`Syn`], and says whether the handshake goes on, is refused, is reported as
//! undeliverable or is left unanswered: at once, or later from any thread. Proxies use it to connect to the destination first,
//! gateways to check a list.
//!
//! ```text
//!   SYN ─► route: no connection, not half-open, listener asks ─► outbox ─► hook(Syn)      (outside all locks)
//!                                                                            │ now or later
//!             accept: the SYN takes the way that it would have taken  ◄──────┤
//!             refuse: a reset, as without a listener                  ◄──────┤
//!             reject: an ICMP error in the name of the host           ◄──────┤
//!             ignore, or dropped undecided: nothing                   ◄──────┘
//! ```
//!
//! A 4-tuple is asked for once at a time: repetitions of its SYN find it *undecided* and are dropped. At most [`UNDECIDED_MAX`] are undecided at a
//! listener, and of one source (an IPv4 address, or the first 64 bits of an IPv6 one) [`SOURCE_MAX`], so that one peer whose SYNs take long to decide
//! on leaves room for others. SYNs beyond that are dropped and counted (`listen_overflows`), and the peers try again. Sources can be forged: a peer
//! that forges four of them fills the table, as the questions are the application's to answer and cannot be taken back. A decision finds the stack
//! gone, the listener closed or the name taken meanwhile, and then acts as on a SYN that comes now. So does a yes where the SYN would now go to another
//! listener (one that is bound to the port in place of the closed one, a more specific one, another one of an SO_REUSEPORT group): that listener's
//! application is asked, if it wants to be, and the value that comes with the yes is dropped. A SYN cookie is the yes of one listener, too: the last segment of
//! its handshake is answered by a reset where it would now go to another one, or to one that has got or lost its hook since.
//!
//! Rank: `undecided` and `hook` are leaves; the hook is called with no lock in hand, like a task's waker.
//! Does not depend on handshakes. Tests: `tests/tcp/admission.rs`.

use std::any::Any;
use std::fmt;
use std::hash::RandomState;
use std::net::{IpAddr, SocketAddr};

use hashbrown::HashMap;
use sockeye_proto::ip;
use sockeye_proto::tcp::closed;
use sockeye_proto::tcp::segment::Header;
use sockeye_proto::tcp::wire::{self, ChecksumOut, HEADER_LEN_EMITTED_MAX, Ports};
use sockeye_sync::Mutex;
use sockeye_sync::facade::{Arc, AtomicBool, Ordering};

use crate::base::addr::{FourTuple, octets};
use crate::base::payload::Data;
use crate::inet::ip::report::Unsent;
use crate::inet::ip::{Received, icmp};
use crate::rt::counter;
use crate::rt::handle::WeakStack;
use crate::rt::panics::{self, PanicSource};
use crate::tcp::Core;
use crate::tcp::conn::outbox::{Context, Routed, Unowned};
use crate::tcp::handshake::listen::Listener;
use crate::tcp::handshake::values::Value;
use crate::tcp::route;

/// Of a quoted SYN, whose own is not kept.
const HOP_LIMIT: u8 = 64;
/// Undecided SYNs of one listener, at most.
pub(crate) const UNDECIDED_MAX: usize = 4096;
/// And of one source.
pub(crate) const SOURCE_MAX: usize = UNDECIDED_MAX / 4;

/// The hook of a listener's application.
pub type SynHook = dyn Fn(Syn) + Send + Sync;

/// A listener's hook, and the decisions that are still open.
#[derive(Default)]
pub(crate) struct Admission {
    /// Whether there is a hook: all that a SYN of an ordinary listener looks at.
    asks: AtomicBool,
    hook: Mutex<Option<(WeakStack, Arc<Box<SynHook>>)>>,
    undecided: Mutex<Undecided>,
}

/// Connections that the application has been asked about and has not decided on.
#[derive(Default)]
struct Undecided {
    tuples: HashMap<FourTuple, (), RandomState>,
    /// How many are of each source; none is 0.
    sources: HashMap<[u8; 16], usize, RandomState>,
}

/// Result of a question.
enum Put {
    New,
    Repeated,
    Full,
}

impl Undecided {
    fn insert(&mut self, tuple: FourTuple, source: [u8; 16]) -> Put {
        if self.tuples.contains_key(&tuple) {
            return Put::Repeated;
        }
        let own = self.sources.get(&source).copied().unwrap_or(0);
        if self.tuples.len() >= UNDECIDED_MAX || own >= SOURCE_MAX {
            return Put::Full;
        }
        self.tuples.insert(tuple, ());
        self.sources.insert(source, own + 1);
        Put::New
    }

    fn remove(&mut self, tuple: &FourTuple, source: [u8; 16]) {
        if self.tuples.remove(tuple).is_none() {
            return;
        }
        match self.sources.get_mut(&source) {
            Some(own) if *own > 1 => *own -= 1,
            Some(_) | None => drop(self.sources.remove(&source)),
        }
    }
}

/// The key of a source: a host of an IPv6 network has all its addresses to choose from.
fn source_of(tuple: &FourTuple) -> [u8; 16] {
    match tuple.remote.addr {
        addr @ IpAddr::V4(_) => octets(addr),
        IpAddr::V6(addr) => (addr.to_bits() & !u128::from(u64::MAX)).to_be_bytes(),
    }
}

impl Admission {
    /// Whether SYNs are to be asked for. Relaxed: a SYN that comes while a hook is being set may be asked for or not.
    #[inline]
    pub fn asks(&self) -> bool {
        self.asks.load(Ordering::Relaxed)
    }

    /// Sets the hook, or takes it away.
    pub fn set(&self, core: &Core, hook: Option<(WeakStack, Arc<Box<SynHook>>)>) {
        let asks = hook.is_some();
        let before = std::mem::replace(&mut *self.hook.lock(), hook);
        self.asks.store(asks, Ordering::Relaxed);
        // Outside the lock: dropping the closure's captures may run any code.
        panics::release(core, PanicSource::Hook, "drop of a SYN hook", before);
    }

    /// Drops the hook of a listener that has ended. It still [`asks`](Self::asks): a SYN that found the listener before its end is dropped,
    /// not answered unasked.
    pub fn end(&self, core: &Core) {
        let hook = self.hook.lock().take();
        panics::release(core, PanicSource::Hook, "drop of a SYN hook", hook);
    }
}

/// A question that is on its way to the application.
pub(crate) struct Asked {
    hook: Arc<Box<SynHook>>,
    syn: Syn,
}

impl Asked {
    /// Calls the hook. Outside all locks.
    pub fn ask(self, core: &Core) {
        let Self { hook, syn } = self;
        panics::contain(core, PanicSource::Hook, "a SYN hook", || hook(syn));
        // It may have been replaced meanwhile; then this is its last reference.
        panics::release(core, PanicSource::Hook, "drop of a SYN hook", hook);
    }
}

/// Puts the question whether `syn` shall be answered. `None` if it has been put already, or there is no room or no hook.
pub(crate) fn ask(
    cx: &Context<'_>,
    listener: &Arc<Listener>,
    tuple: FourTuple,
    header: &Header,
) -> Option<Asked> {
    let admission = &listener.admission;
    let (stack, hook) =
        admission.hook.lock().as_ref().map(|(stack, hook)| (stack.clone(), Arc::clone(hook)))?;
    let put = admission.undecided.lock().insert(tuple, source_of(&tuple));
    match put {
        Put::New => {}
        Put::Repeated => return None,
        Put::Full => {
            cx.core.count(counter::LISTEN_OVERFLOWS);
            return None;
        }
    }
    let syn = Syn { stack, listener: Arc::clone(listener), tuple, header: *header };
    Some(Asked { hook, syn })
}

/// A request for a connection, before it is answered. Decide with [`accept`](Self::accept), [`refuse`](Self::refuse),
/// [`reject`](Self::reject) or [`ignore`](Self::ignore); dropping it ignores it. It may be kept and sent to other
/// threads: the peer waits, and repeats its SYN after 1, 3, 7, ... seconds, for which the hook is not called meanwhile.
///
/// If the hook panics, the SYN is dropped, and so ignored. A SYN keeps neither its stack nor its listener open. A hook
/// may keep SYNs in its captures: it is dropped with the listener's last handle.
#[must_use = "dropping it leaves the peer without an answer"]
pub struct Syn {
    stack: WeakStack,
    listener: Arc<Listener>,
    tuple: FourTuple,
    header: Header,
}

impl Syn {
    /// The address to which the peer wants to connect: with a transparent listener, any address and port.
    pub fn local_addr(&self) -> SocketAddr {
        self.tuple.local.to_socket_addr(self.listener.is_mapped)
    }

    /// The address that the peer claims. Nothing proves it yet: any host can send a SYN with another's address.
    pub fn peer_addr(&self) -> SocketAddr {
        self.tuple.remote.to_socket_addr(self.listener.is_mapped)
    }

    /// The largest segment that the peer accepts, bytes, if it announced one.
    pub fn peer_mss(&self) -> Option<u16> {
        self.header.options.mss
    }

    /// Continues the handshake; `accept` returns the connection when it has ended. If another listener has taken the
    /// place of the one whose hook was asked, its own hook decides, as about a SYN that arrives now. Never blocks.
    pub fn accept(self) {
        self.go_on(None);
    }

    /// [`accept`](Self::accept) with a value for the stream, such as the outgoing connection on which the decision was
    /// based: [`TcpStream::take_accept_value`](crate::TcpStream::take_accept_value) returns it. Never blocks.
    ///
    /// Such a handshake never uses a SYN cookie ([`TcpConfig::syn_cookies`](crate::TcpConfig::syn_cookies)), which
    /// could not carry the value: it takes a place among the half-open connections, and displaces the oldest if they
    /// are full. The value is dropped if the handshake does not lead to an accepted stream: the peer resets it or does
    /// not finish it within a minute, it is displaced, the listener or the stack ends, another listener has taken its
    /// place, or another connection has the same addresses and ports. The drop happens on a thread of the stack or of a caller, with no lock held. It may
    /// use sockets, and should not block; a panic in it is caught and reported
    /// ([`Stack::set_panic_hook`](crate::Stack::set_panic_hook)).
    ///
    /// ```
    /// use sockeye::{Config, Stack, Syn, TcpListener, TcpStream};
    ///
    /// let stack = Stack::new(Config::default())?;
    /// let listener = TcpListener::bind_on(&stack, "127.0.0.1:0")?;
    /// listener.set_syn_hook(Some(Box::new(|syn: Syn| {
    ///     let note = format!("asked for {}", syn.local_addr());
    ///     syn.accept_with(note);
    /// })));
    /// let _client = TcpStream::connect_on(&stack, listener.local_addr()?)?;
    /// let (server, _) = listener.accept()?;
    /// let note: String = server.take_accept_value().ok_or("accepted without a value")?;
    /// assert!(note.starts_with("asked for 127.0.0.1:"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn accept_with<T: Any + Send>(self, value: T) {
        self.go_on(Some(Box::new(value)));
    }

    fn go_on(self, value: Option<Value>) {
        let (stack, segment, bind_id) = (self.stack.clone(), self.segment(), self.listener.bind_id);
        // Before the SYN comes again, lest it be taken for its own repetition.
        drop(self);
        if let Some(stack) = stack.upgrade()
            && let Ok(core) = stack.core::<Core>()
        {
            Context::run(core, |cx| route::admit(cx, segment, bind_id, value));
        }
    }

    /// Answers with a reset: the peer's connect fails with `ConnectionRefused`. Never blocks.
    pub fn refuse(self) {
        if let Some(stack) = self.stack.upgrade()
            && let Ok(core) = stack.core::<Core>()
            && let Some(reset) = closed::reset_for(&self.header, 0)
        {
            core.count(counter::RESETS_OUT);
            Context::run(core, |cx| route::answer(cx, self.tuple, reset));
        }
    }

    /// Answers with an ICMP error from the address of the destination host: the peer's connect fails at once as if its
    /// network had reported this, with `HostUnreachable` for [`Unsent::HostUnreachable`]. The number of errors is
    /// limited, per interface and per pair of addresses (RFC 4443 section 2.4 (f)); beyond that, and without packet
    /// memory, this is [`ignore`](Self::ignore). Never blocks.
    pub fn reject(self, why: Unsent) {
        if let Some(stack) = self.stack.upgrade()
            && let Ok(core) = stack.core::<Core>()
            && let Some(received) = self.as_received(core)
        {
            let host = self.tuple.local.addr;
            Context::run(core, |cx| icmp::report(cx, &received, why, host));
        }
    }

    /// The SYN as an error quotes it: without its text, and with the options that the stack knows.
    fn as_received(&self, core: &Core) -> Option<Received> {
        let FourTuple { local, remote } = self.tuple;
        // By the way that an answer takes: it came by it, or the answer could not get there.
        let via = core.netifs.via_from(local.addr, remote.addr)?;
        let mut bytes = [0; HEADER_LEN_EMITTED_MAX];
        let ports = Ports { src: remote.port, dst: local.port };
        let len = wire::emit(ports, &self.header, ChecksumOut::Omit, &mut bytes).ok()?;
        let payload = core.pool.copy_in(&bytes[..len]).ok()?;
        let addresses = ip::Addresses::new(remote.addr, local.addr)?;
        let header = ip::Header {
            addresses,
            protocol: ip::PROTOCOL_TCP,
            hop_limit: HOP_LIMIT,
            traffic_class: 0,
            flow_label: 0,
        };
        Received::rewritten(via.netif(), header, payload)
    }

    /// Does not answer. The peer tries again, and the hook is called again, until the peer gives up.
    pub fn ignore(self) {}

    fn segment(&self) -> Routed {
        // The SYN's text is not kept: its sender repeats it.
        Routed {
            from: None,
            to: self.tuple,
            header: self.header,
            payload: Data::default(),
            unowned: Unowned::default(),
        }
    }
}

impl Drop for Syn {
    fn drop(&mut self) {
        if self.stack.is_lost() {
            // In a child of fork(2): the listener is its parent's.
            std::mem::forget(Arc::clone(&self.listener));
            return;
        }
        let source = source_of(&self.tuple);
        self.listener.admission.undecided.lock().remove(&self.tuple, source);
    }
}

impl fmt::Debug for Syn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Syn").field("local", &self.local_addr()).field("peer", &self.peer_addr()).finish()
    }
}
