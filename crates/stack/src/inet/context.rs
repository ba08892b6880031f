//! A call into the stack, as the Internet layer and the transports without connections know it.
//!
//! Under a lock nothing blocks, wakes, calls the application or an interface. Such things are noted in [`Due`] and done when the call ends
//! ([`Context::run`]), outside all locks. TCP has more to do at the end of a call; its own context contains this one.
//!
//! One context lives on a thread for the time of one call; its lists keep their memory between calls. Does not depend on transports. Tests:
//! those of the layers.

use std::cell::Cell;
use std::collections::VecDeque;

use sockeye_proto::icmp::Error;
use sockeye_proto::seq::SeqNum;
use sockeye_proto::time::Instant;

use super::Core;
use crate::base::addr::FourTuple;
use crate::inet::ip::Received;
use crate::inet::ip::hook::Asked;
use crate::inet::netif::TxFrame;
use crate::inet::netif::departures::{self, Departures, Doorbell};
use crate::rt::panics::{self, Caught, PanicSource};
use crate::rt::timers::TimerKey;
use crate::rt::wake;

/// Effects to carry out when the call has let go of its locks.
#[derive(Default)]
pub(crate) struct Due {
    /// Packets from this stack to itself.
    pub looped: VecDeque<Received>,
    /// Input for TCP that is no whole segment: TCP handles it in a context of its own.
    pub aside: VecDeque<Aside>,
    /// Packets that the application is asked about.
    pub asked: VecDeque<Asked>,
    /// Waiters to wake.
    pub wakes: Vec<wake::Wake>,
    /// Panics that were caught under a lock, to be reported outside of all.
    pub caught: Vec<Caught>,
    /// Calls to ask of the timer wheel.
    pub timers: Vec<(u64, TimerKey)>,
    /// A frame for as long as it is handed over. Empty else.
    pub frames: Vec<TxFrame>,
    /// Frames for interfaces.
    pub departures: Departures,
    /// Interfaces that were given frames.
    pub doorbells: Vec<Doorbell>,
}

/// Input for TCP that is no whole segment.
pub(crate) enum Aside {
    /// A segment that came in fragments.
    Fragmented(Received),
    /// A segment of ours could not be delivered: its connection's name as we have it, and its sequence number.
    Undelivered(FourTuple, SeqNum, Error),
}

/// One call into the stack: its time, its CPU and its deferred effects.
pub(crate) struct Context<'s> {
    pub core: &'s Core,
    pub now: Instant,
    pub cpu: u32,
    pub due: Box<Due>,
}

thread_local! {
    /// The lists between calls. A call inside a call (a waker that uses a socket) finds them taken and works with new ones.
    static SPARE: Cell<Option<Box<Due>>> = const { Cell::new(None) };
}

impl<'s> Context<'s> {
    /// A call that begins now.
    #[inline]
    pub fn new(core: &'s Core, due: Box<Due>) -> Self {
        Self { core, now: core.clock.now(), cpu: core.cpu(), due }
    }

    /// Runs `f`, and then does everything that it has left to be done.
    #[inline]
    pub fn run<R>(core: &'s Core, f: impl FnOnce(&mut Self) -> R) -> R {
        let due = SPARE.try_with(Cell::take).ok().flatten().unwrap_or_default();
        let mut cx = Self::new(core, due);
        // The noted effects belong to others, so they are carried out whatever becomes of `f`, whose panic is
        // its caller's.
        let result = panics::catch(PanicSource::Protocol, "a call", || f(&mut cx));
        cx.drain("the rest of a call", Self::flush);
        // The thread may be ending; then the box is simply freed.
        let _ = SPARE.try_with(|spare| spare.set(Some(cx.due)));
        result.unwrap_or_else(|caught| caught.resume())
    }

    /// Calls `rest` until it is done; each of its panics has used something up.
    #[inline]
    pub fn drain(&mut self, place: &'static str, mut rest: impl FnMut(&mut Self)) {
        while let Err(caught) = panics::catch(PanicSource::Protocol, place, || rest(self)) {
            self.due.caught.push(caught);
        }
    }

    /// Packet memory was refused to a call that may hold locks: when the call ends the wheel is asked to give
    /// up out-of-order data.
    #[cold]
    pub fn ask_for_memory(&mut self) {
        self.due.timers.extend(self.core.pruner.ask_later(self.core));
    }

    /// Does everything that was noted. Packets to this stack itself are input, which may be TCP's: if there are some, the layer above gets
    /// them and all the rest.
    fn flush(&mut self) {
        if !(self.due.looped.is_empty() && self.due.aside.is_empty()) {
            return self.core.protocols().finish(&mut self.due);
        }
        departures::depart(self);
        while let Err((_, caught)) = self.arm_timers() {
            // Code that needs a timer asks again the next time that there is something to do.
            self.due.caught.push(caught);
        }
        self.notify();
    }

    /// The last part of a call: rings interfaces, wakes waiters, reports panics. Outside all locks.
    #[inline]
    pub fn notify(&mut self) {
        departures::ring(self);
        self.core.workers.tell_driver(self.core);
        self.wake_all();
    }

    /// Wakes waiters, asks the application about packets, and reports panics.
    #[inline]
    pub fn wake_all(&mut self) {
        wake::fire_all(self.core, &mut self.due.wakes);
        while let Some(asked) = self.due.asked.pop_front() {
            asked.ask(self.core);
        }
        // After the wakes: the hook that is called may block.
        while let Some(caught) = self.due.caught.pop() {
            caught.report(self.core);
        }
    }

    /// Asks the wheel for the calls that were noted.
    ///
    /// # Errors
    /// The wheel has panicked over this call. Those after it are still to be asked for.
    #[inline]
    pub fn arm_timers(&mut self) -> Result<(), (Option<TimerKey>, Caught)> {
        if self.due.timers.is_empty() { Ok(()) } else { self.arm_all_timers() }
    }

    #[inline(never)]
    fn arm_all_timers(&mut self) -> Result<(), (Option<TimerKey>, Caught)> {
        let mut timers = std::mem::take(&mut self.due.timers);
        let (mut rest, mut arming) = (timers.drain(..), None);
        let armed = panics::catch(PanicSource::Protocol, "arming a timer", || {
            for (at, key) in rest.by_ref() {
                arming = Some(key);
                self.core.workers.arm(self.cpu, at, key);
            }
        });
        if let Err(caught) = armed {
            self.due.timers.extend(rest);
            return Err((arming, caught));
        }
        drop(rest);
        // The list keeps its memory between calls.
        self.due.timers = timers;
        Ok(())
    }
}
