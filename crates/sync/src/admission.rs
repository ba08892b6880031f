//! An admission limit for writers, where many of them move bytes on few cores.
//!
//! A writer whose buffer is full waits for its reader, and the core goes to the next thread in the run queue. With many more threads than cores that
//! is another writer, and another, until the first one's data has left the core's cache, and so have the buffers of its application. It is best if a
//! writer fills its buffer, its reader empties it next, and the two do so many times over before the next pair runs. So in a crowd a writer that
//! finds its buffer full takes a *run token*. Each core has one, and gives it first to writers whose readers ran there. Its holder goes on as without
//! a limit, waiting for its reader and filling its buffer again, until it has filled it [`ROUNDS_MAX`] times. Then it hands the token on and joins
//! the end of the queue.
//!
//! # A hint, not a lock
//!
//! A token guards nothing, and a writer without one is not kept from anything: it only waits a while. The queue does not
//! know how a thread uses its token (it may sleep in its application, or wait for a lock that a thread in the queue
//! has), so:
//!
//! * A writer in the queue looks around every 25 ms, and a thread that hands a token on does so every 10: a token that was held for
//!   more than 20 ms is taken back, and while the process does not use its cores, there are twice as many tokens from look to look,
//!   up to 64 for each core. With cores in use they become fewer again. So where the cores rest for another reason, some looks are
//!   wasted, and afterwards next to nothing.
//! * A thread that ends or waits for anything but its reader gives its token back.
//! * The wait for a token is bounded by the caller's deadline.
//!
//! # States of a writer, in the `Limit` and in its own [`Writer`]
//!
//! | from → to | by, under the mutex |
//! |---|---|
//! | none → queued | the writer, with a full buffer in a crowd |
//! | queued → holds | a thread that frees a token, queues or looks around |
//! | queued → none | the writer, at its deadline |
//! | holds → queued | the writer, after its rounds |
//! | holds → none | the writer, giving it back; or a thread that looks around and finds it old |
//!
//! The holder learns of that last step when it asks for the next token: a number that is gone ends nothing.
//!
//! # Why no wake-up is lost
//!
//! Each thread sleeps on a [`WaitQueue`] of its own, whose condition is its place in the limit's lists, under the mutex: the
//! ticket is taken in the section that queues the thread, and a thread that gives out a token notifies in the section that does, and
//! wakes after it. And no thread waits while a token is free: every section that frees a token or lengthens a
//! queue ends with `Limit::fill`, which leaves no token while a thread is queued.
//!
//! Nor does a writer lose the event that it waited for before: its ticket for space is dropped, and it looks at its
//! buffer again.
//!
//! Rank: the mutex is a leaf; wakes come after it. Where there is no crowd a full buffer costs a look at the thread's own state and
//! a load. Does not depend on buffers or sockets. Tests: `admission/tests.rs`, `admission/limit.rs`, `tests/loom/admission.rs`.

mod limit;
#[cfg(all(test, not(loom)))]
mod tests;

use core::cell::Cell;
use core::time::Duration;
use std::time::Instant;

use crossbeam_utils::CachePadded;

use crate::cpu;
use crate::facade::unmodelled::thread_local;
use crate::facade::{Arc, AtomicU32, Mutex, MutexGuard, Ordering};
use crate::fork::PerProcess;
use crate::spin::Spin;
use crate::wait::{Ticket, WaitQueue, Woken};
use limit::{LOOK_EVERY, Limit, Place, Usage};

/// The limit of a process: see the module's head.
#[derive(Debug)]
pub struct Admission {
    /// Writers that sleep for want of space or of a token. A measure: nothing is ordered by it.
    waiting: CachePadded<AtomicU32>,
    /// From more than so many on there is a crowd.
    crowd: u32,
    limit: CachePadded<Mutex<Limit<Arc<WaitQueue>>>>,
}

/// A thread's record of its token. Only the thread itself uses it.
#[derive(Debug)]
pub struct Writer {
    /// The number of its token, or of the one it waits for; 0 for none.
    id: Cell<u64>,
    /// How often it has filled its buffer.
    rounds: Cell<u32>,
    parker: Arc<WaitQueue>,
}

/// A writer with a full buffer, about to wait.
#[derive(Clone, Copy, Debug)]
pub struct Full {
    /// The CPU on which its reader ran last, as of [`cpu::current`].
    pub reader: u32,
    /// When it gives up waiting, if ever.
    pub deadline: Option<Instant>,
}

impl Admission {
    /// One token for each of so many cores, for writers of which more than `crowd` wait.
    pub fn new(cores: usize, crowd: u32) -> Self {
        Self {
            waiting: CachePadded::new(AtomicU32::new(0)),
            crowd,
            limit: CachePadded::new(Mutex::new(Limit::new(cores))),
        }
    }

    /// The limit of this process.
    pub fn of_process() -> &'static Self {
        // A child of fork(2) begins anew: the tokens that it has from its parent are held by threads that it has not.
        static ADMISSION: PerProcess<Admission> = PerProcess::new();
        ADMISSION.get_or_init(|| {
            let crowd = cpu::count().saturating_mul(CROWD_PER_CORE);
            Self::new(cpu::count(), u32::try_from(crowd).unwrap_or(u32::MAX))
        })
    }

    /// The thread's buffer is full. In a crowd it **blocks** for a token, at most until the deadline. True if it has waited: the
    /// buffer may have room by now.
    pub fn ask(&self, writer: &Writer, full: &Full) -> bool {
        if writer.id.get() != NONE {
            writer.rounds.set(writer.rounds.get() + 1);
            if writer.rounds.get() < ROUNDS_MAX {
                return false;
            }
        }
        // Relaxed: a measure.
        if self.waiting.load(Ordering::Relaxed) <= self.crowd
            || full.deadline.is_some_and(|deadline| deadline <= Instant::now())
        {
            self.give_back(writer);
            return false;
        }
        let cpu = if full.reader == u32::MAX { cpu::current() } else { full.reader };
        let ticket = self.queue(writer, cpu);
        self.sleep(writer, ticket, full.deadline);
        true
    }

    /// Gives the token back, if there is one, and queues for another.
    fn queue(&self, writer: &Writer, cpu: u32) -> Ticket {
        let mut limit = self.limit.lock();
        limit.end(writer.id.get());
        let ticket = writer.parker.prepare();
        writer.id.set(limit.queue(Arc::clone(&writer.parker), cpu));
        self.settle(limit);
        ticket
    }

    /// Sleeps until the token comes, or the deadline.
    fn sleep(&self, writer: &Writer, mut ticket: Ticket, deadline: Option<Instant>) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        writer.rounds.set(0);
        loop {
            let woken = writer.parker.wait(ticket, next_look(deadline), Spin::OFF);
            let mut limit = self.limit.lock();
            match limit.place(writer.id.get()) {
                Place::Holds => break,
                Place::Gone => {
                    writer.id.set(NONE);
                    break;
                }
                Place::Queued if woken == Woken::TimedOut && has_passed(deadline) => {
                    limit.end(writer.id.replace(NONE));
                    break;
                }
                Place::Queued => ticket = writer.parker.prepare(),
            }
            self.settle(limit);
        }
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    /// The thread has no use for its token. A look at its own state if it has none.
    pub fn give_back(&self, writer: &Writer) {
        let id = writer.id.replace(NONE);
        if id == NONE {
            return;
        }
        let mut limit = self.limit.lock();
        limit.end(id);
        self.settle(limit);
    }

    /// Calls `park`, in which a writer sleeps for want of space.
    pub fn parked<R>(&self, park: impl FnOnce() -> R) -> R {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let parked = park();
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        parked
    }

    /// The end of a section that may have freed a token or lengthened a queue. Looks around as well, if it is time.
    fn settle<'t>(&'t self, mut limit: MutexGuard<'t, Limit<Arc<WaitQueue>>>) {
        let is_look_due = !cfg!(loom) && limit.is_look_due(cpu::monotonic_micros());
        fill(limit);
        if is_look_due {
            // Without the mutex: it takes microseconds where there are many threads.
            let used = cpu::used_by_process();
            limit = self.limit.lock();
            limit.look(Usage { at: cpu::monotonic_micros(), used });
            fill(limit);
        }
    }
}

/// Gives out the tokens that are free, leaves the mutex and wakes the threads that got one.
fn fill(mut limit: MutexGuard<'_, Limit<Arc<WaitQueue>>>) {
    let mut owed = Vec::new();
    // The model has no time.
    let now = if cfg!(loom) { 0 } else { cpu::monotonic_micros() };
    limit.fill(now, |parker| {
        if parker.notify().is_wake_owed() {
            owed.push(parker);
        }
    });
    drop(limit);
    owed.into_iter().for_each(|parker| parker.wake());
}

/// Whether a waiter whose sleep has timed out has reached its deadline. In the model it sleeps for nothing else.
fn has_passed(deadline: Option<Instant>) -> bool {
    cfg!(loom) || deadline.is_some_and(|deadline| deadline <= Instant::now())
}

/// When a waiter looks around, or gives up. In the model, which has no time, no waiter helps by looking.
fn next_look(deadline: Option<Instant>) -> Option<Instant> {
    if cfg!(loom) {
        return deadline;
    }
    let look = Instant::now() + LOOK_EVERY_WAITING;
    Some(deadline.map_or(look, |deadline| deadline.min(look)))
}

impl Writer {
    /// A thread without a token.
    pub fn new() -> Self {
        Self { id: Cell::new(NONE), rounds: Cell::new(0), parker: Arc::new(WaitQueue::new()) }
    }
}

impl Default for Writer {
    fn default() -> Self {
        Self::new()
    }
}

/// A thread's record, which gives its token back at the thread's end.
struct Own(Writer);

impl Drop for Own {
    fn drop(&mut self) {
        Admission::of_process().give_back(&self.0);
    }
}

thread_local! {
    static OWN: Own = Own(Writer::new());
    /// Whether this thread has ever asked, so that a thread that only reads makes no `Writer`. Has no destructor.
    static HAS_ASKED: Cell<bool> = const { Cell::new(false) };
}

/// [`Admission::ask`] for the calling thread, of the limit of the process.
pub fn ask(full: &Full) -> bool {
    let admission = Admission::of_process();
    if !HAS_ASKED.get() && admission.waiting.load(Ordering::Relaxed) <= admission.crowd {
        return false;
    }
    HAS_ASKED.set(true);
    // A thread that is ending has no token any more.
    OWN.try_with(|own| admission.ask(&own.0, full)).unwrap_or(false)
}

/// The calling thread is about to wait for something else than its reader: others may have its token. A look at the thread's
/// own state if it never had one.
#[inline]
pub fn give_back() {
    if HAS_ASKED.get() {
        let _without_a_token = OWN.try_with(|own| Admission::of_process().give_back(&own.0));
    }
}

const NONE: u64 = 0;
/// How often a writer fills its buffers with one token: a third of a millisecond. With 4 the buffers of its application are brought
/// into the cache too often, with 32 the others wait for longer and little is won.
pub const ROUNDS_MAX: u32 = if cfg!(loom) { 2 } else { 16 };
/// Writers that wait, for each core, above which there is a limit.
const CROWD_PER_CORE: usize = 8;
/// How often a waiter looks around, when it is not woken. Another thread does so earlier where there are many.
const LOOK_EVERY_WAITING: Duration = Duration::from_millis(25);

const _: () = assert!(LOOK_EVERY.as_micros() <= LOOK_EVERY_WAITING.as_micros());
