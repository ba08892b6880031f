//! Effects of protocol code that are carried out after its lock is let go.
//!
//! Under it nothing blocks, wakes, calls the application or waits for another connection. Such things are
//! noted here and done by [`Context::flush`] from outside, in a loop, never in recursion. Effects of any
//! protocol are in the Internet layer's context (`inet/context.rs`), which this one contains. One context
//! lives on a thread for the time of one call into the stack; its lists keep their memory between calls.

use std::cell::Cell;
use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};

use sockeye_mbuf::{Chain, Freed};
use sockeye_proto::tcp::segment::Header;
use sockeye_sync::WaitQueue;
use sockeye_sync::facade::Arc;

use super::transmit::Pending;
use super::{Conn, Locked, Work, contain, engine, reason, serve};
use crate::base::addr::FourTuple;
use crate::base::payload::Data;
use crate::inet::context::{self, Due};
use crate::inet::input::leader;
use crate::inet::ip;
use crate::inet::netif::departures;
use crate::rt::panics::{self, Caught, PanicSource};
use crate::rt::timers::TimerKey;
use crate::rt::wake;
use crate::tcp::Core;
use crate::tcp::discipline::{Chosen, Discipline};
use crate::tcp::handshake::admission::Asked;
use crate::tcp::handshake::values::Value;
use crate::tcp::socket::tos_ttl::TosTtl;

/// A segment whose receiver must be looked up.
pub(crate) struct Routed {
    /// The connection that sent it; `None` if none did (a SYN-ACK, a reset).
    pub from: Option<Arc<Conn>>,
    /// The connection's name as the *receiver* has it.
    pub to: FourTuple,
    pub header: Header,
    pub payload: Data,
    pub unowned: Unowned,
}

/// What the IP header of a segment has that no connection has sent.
#[derive(Clone, Copy, Default)]
pub(crate) struct Unowned {
    pub tos_ttl: TosTtl,
    /// How often its sender has asked for another path.
    pub rehashes: u8,
}

/// The other end of a connection in this process.
pub(crate) enum OtherEnd<'s> {
    /// A handle of the application holds it for the time of the call, so no reference is counted.
    Lent(&'s Arc<Conn>),
    Own(Arc<Conn>),
}

impl Deref for OtherEnd<'_> {
    type Target = Arc<Conn>;
    #[inline]
    fn deref(&self) -> &Arc<Conn> {
        match self {
            Self::Lent(conn) => conn,
            Self::Own(conn) => conn,
        }
    }
}

/// The other end's lock, got by trying, with the first of the segments for it. The others are in its backlog.
pub(crate) struct Beside<'s> {
    pub conn: &'s Arc<Conn>,
    pub locked: Locked<'s>,
    /// `None`: it is in the backlog, too.
    pub work: Option<Work>,
}

/// A wake to fire, outside all locks.
pub(crate) enum Wake {
    Reader(Arc<Conn>),
    Writer(Arc<Conn>),
    /// Threads that wait at a queue of their own.
    Threads(Arc<WaitQueue>),
    /// A listener's application is asked about a SYN.
    Ask(Box<Asked>),
    /// What a listener's application has sent along with a SYN is dropped.
    Release(Value),
    /// Tasks and pollers.
    Other(wake::Wake),
}

impl From<wake::Wake> for Wake {
    fn from(wake: wake::Wake) -> Self {
        Self::Other(wake)
    }
}

/// Wakes all of them, in spite of wakers that panic. Outside all locks.
pub(crate) fn fire_all(core: &Core, wakes: &mut Vec<Wake>) {
    while let Some(wake) = wakes.pop() {
        wake.kick(core);
        match wake {
            Wake::Ask(asked) => asked.ask(core),
            Wake::Release(value) => {
                panics::release(core, PanicSource::Hook, "drop of an accept value", value);
            }
            wake => {
                panics::contain(core, PanicSource::Waker, "Waker::wake", || wake.fire());
            }
        }
    }
}

impl Wake {
    /// Ends the sleep of a caller that does not sleep where [`fire`](Self::fire) wakes, but in an interface. Outside all locks.
    fn kick(&self, core: &Core) {
        match self {
            Self::Reader(conn) => leader::kick(core, conn.readers()),
            Self::Writer(conn) => leader::kick(core, conn.writers()),
            // Of them none is a leader.
            Self::Threads(_) | Self::Ask(_) | Self::Release(_) | Self::Other(_) => {}
        }
    }

    /// Wakes it. Outside all locks.
    pub fn fire(self) {
        match self {
            Self::Reader(conn) => conn.rcv_wait.wake(),
            Self::Writer(conn) => conn.snd_wait.wake(),
            Self::Threads(queue) => queue.wake(),
            // Their panics are a hook's: the code that empties the outbox sees to them.
            Self::Ask(_) | Self::Release(_) => {}
            Self::Other(wake) => wake.fire(),
        }
    }
}

/// A connection that leaves the demux table.
pub(crate) enum Gone {
    Closed(Arc<Conn>),
    TimeWait(Arc<Conn>, sockeye_proto::tcp::accepted::TimeWaitParams),
}

/// TCP's lists, see the module's head.
#[derive(Default)]
pub(crate) struct Outbox {
    /// Connections in whose backlog this thread has left the first item: it runs them, if no other thread has by then.
    pub filled: VecDeque<Arc<Conn>>,
    /// Connections whose lock we let go although items were waiting, because others had to come first.
    pub put_off: VecDeque<Arc<Conn>>,
    /// Connections with writes that were held back until the other end had run earlier items.
    pub uncorked: Vec<Arc<Conn>>,
    pub routed: VecDeque<Routed>,
    pub gone: Vec<Gone>,
    /// Children of a listener that has closed: to be reset.
    pub orphans: Vec<Arc<Conn>>,
    pub wakes: Vec<Wake>,
    /// Buffers to give back, outside the locks under which they were unlinked.
    pub freed: Vec<Chain>,
    /// Clusters without views, likewise.
    pub spares: Freed,
    /// State of a call for the settings that are measured against each other.
    pub discipline: <Chosen as Discipline>::OfCall,
    /// Frames of the connection that was run last; handed over before its lock is let go.
    pub pending: Pending,
}

/// One call into the stack: the Internet layer's context, and TCP's outbox.
pub(crate) struct Context<'s> {
    inet: context::Context<'s>,
    pub core: &'s Core,
    /// The two ends of a connection, as a handle of the application holds them for the time of this call.
    pub ends: Option<(&'s Arc<Conn>, &'s Arc<Conn>)>,
    /// The other end of the connection that was run last, locked, with segments for it: before everything else.
    pub beside: Option<Beside<'s>>,
    pub outbox: Box<Outbox>,
}

impl<'s> Deref for Context<'s> {
    type Target = context::Context<'s>;
    #[inline]
    fn deref(&self) -> &context::Context<'s> {
        &self.inet
    }
}

impl DerefMut for Context<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.inet
    }
}

thread_local! {
    /// The lists between calls. A call inside a call (a waker that uses a socket) finds them taken and
    /// works with new ones.
    static SPARE: Cell<Option<(Box<Outbox>, Box<Due>)>> = const { Cell::new(None) };
}

impl<'s> Context<'s> {
    /// Runs `f` for an application's thread, and then everything that it left in the outbox.
    #[inline]
    pub fn run<R>(core: &'s Core, f: impl FnOnce(&mut Self) -> R) -> R {
        Self::run_as(core, false, f)
    }

    /// [`run`](Self::run) for a worker or a driver, which run whatever there is.
    pub fn run_as_worker<R>(core: &'s Core, f: impl FnOnce(&mut Self) -> R) -> R {
        Self::run_as(core, true, f)
    }

    fn run_as<R>(core: &'s Core, is_worker: bool, f: impl FnOnce(&mut Self) -> R) -> R {
        let (mut outbox, due) = SPARE.try_with(Cell::take).ok().flatten().unwrap_or_default();
        Chosen::begin(core, &mut outbox.discipline, is_worker);
        let mut cx = Self { inet: context::Context::new(core, due), core, ends: None, beside: None, outbox };
        // The noted effects belong to others, so they are carried out whatever becomes of `f`, whose panic is
        // its caller's.
        let result = panics::catch(PanicSource::Protocol, "a call", || f(&mut cx));
        cx.drain("the rest of a call", Self::flush);
        // The thread may be ending; then the box is simply freed.
        let _ = SPARE.try_with(|spare| spare.set(Some((cx.outbox, cx.inet.due))));
        result.unwrap_or_else(|caught| caught.resume())
    }

    /// The other end of `conn`, if it is known, in this process and still in the demux table.
    #[inline]
    pub fn other_end(&self, conn: &Arc<Conn>) -> Option<OtherEnd<'s>> {
        let lent = match self.ends {
            Some((one, other)) if Arc::ptr_eq(one, conn) => Some(other),
            Some((other, one)) if Arc::ptr_eq(one, conn) => Some(other),
            Some(_) | None => None,
        };
        match lent {
            Some(peer) => (!peer.is_dead()).then_some(OtherEnd::Lent(peer)),
            None => conn.live_peer().map(OtherEnd::Own),
        }
    }

    /// Carries out the noted effects that are the stack's own: it wakes no thread and runs no application's code.
    /// With no socket lock held. An effect that panics is dropped, and the rest is done.
    pub fn settle(&mut self) {
        self.drain("what was left to do", Self::settle_rest);
    }

    /// The end of a call that was not TCP's and has left packets for this stack itself, with all that is due of it.
    #[cold]
    pub fn finish(core: &'s Core, due: &mut Box<Due>) {
        Self::run(core, |cx| std::mem::swap(&mut cx.inet.due, due));
    }

    /// Calls `rest` until it is done; each of its panics has used something up.
    #[inline]
    pub fn drain(&mut self, place: &'static str, mut rest: impl FnMut(&mut Self)) {
        while let Err(caught) = panics::catch(PanicSource::Protocol, place, || rest(self)) {
            self.due.caught.push(caught);
        }
    }

    #[inline]
    fn settle_rest(&mut self) {
        loop {
            if self.beside.is_some() {
                serve::answer(self);
            } else if let Some(conn) = self.outbox.filled.pop_front() {
                Chosen::resume(self, &conn);
            } else if let Some(conn) = self.outbox.put_off.pop_front() {
                Chosen::take_over(self, &conn);
            } else if let Some(conn) = self.outbox.uncorked.pop() {
                engine::notify(self, &conn, reason::OUTPUT);
            } else if let Some(segment) = self.outbox.routed.pop_front() {
                crate::tcp::route::route(self, segment);
            } else if let Some(received) = self.due.looped.pop_front() {
                ip::input(self, received);
            } else if let Some(aside) = self.due.aside.pop_front() {
                crate::tcp::aside::input(self, aside);
            } else if let Some(gone) = self.outbox.gone.pop() {
                self.core.demux.forget(self.core, gone, self.now);
            } else if let Some(orphan) = self.outbox.orphans.pop() {
                engine::notify(self, &orphan, reason::ABORT);
            } else {
                break;
            }
        }
    }

    /// Carries out all noted effects, and those noted meanwhile.
    fn flush(&mut self) {
        loop {
            self.settle();
            departures::depart(self);
            self.drain("giving memory back", Chosen::release_rest);
            if self.arm_all() {
                break;
            }
        }
        departures::ring(self);
        self.core.workers.tell_driver(self.core);
        fire_all(self.core, &mut self.outbox.wakes);
        self.wake_all();
    }

    /// Asks the wheel for the calls that were noted. False if connections had to end: a connection without its timer could wait
    /// for ever.
    #[inline]
    fn arm_all(&mut self) -> bool {
        let mut all_armed = true;
        while let Err((key, caught)) = self.inet.arm_timers() {
            all_armed = false;
            self.not_armed(key, caught);
        }
        all_armed
    }

    /// The wheel has panicked over a timer.
    #[cold]
    fn not_armed(&mut self, key: Option<TimerKey>, caught: Caught) {
        let conn = match key {
            Some(TimerKey::Conn { hash, serial }) => {
                self.core.demux.find(hash, |conn| conn.serial as u32 == serial)
            }
            // The others ask again the next time that they have something to do.
            Some(_) | None => None,
        };
        match conn {
            Some(conn) => contain::end_outside(self, &conn, caught),
            None => self.due.caught.push(caught),
        }
    }
}
