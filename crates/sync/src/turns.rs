//! Turns of writers where many of them move bytes on few cores.
//!
//! A writer whose buffer is full waits for its reader, and the core goes to whoever is next in the run queue. With many
//! more threads than cores that is another writer, and another, until what the first one wrote has left the core's
//! cache, and so have the buffers of its application. Best is that a writer fills its buffer, its reader empties it next on the
//! same core, and the two do so many times over before the next pair comes on. So in a crowd a writer that finds its buffer
//! full takes a *turn*: each core has one, and who has it goes on as without turns, waiting for its reader and
//! filling its buffer again, until it has filled it [`ROUNDS_MAX`] times. Then it hands the turn on and joins the end of a queue.
//! Where a reader ran decides which core's turn its writer waits for, and a writer that gets one moves to that core, if it may.
//!
//! # A hint, not a lock
//!
//! Nothing is guarded by a turn, and who has none is not kept from anything: he only waits a while. What a thread does
//! with its turn is not known (it may sleep in its application, or wait for a lock that somebody in the queue has), so:
//!
//! * A writer in the queue looks around every 25 ms, and who hands a turn on does so every 10: a turn that is
//!   older than 20 ms is taken back, and while the process does not use its cores, there are twice as many turns
//!   from look to look, up to 64 for each core. With cores in use they become fewer again. So what is lost where the cores
//!   rest for another reason is the time of some looks, and afterwards next to nothing.
//! * Who ends or waits for anything but its reader gives its turn back.
//! * The wait for a turn is bounded by the caller's deadline.
//!
//! # States of a writer, in the list of the cores and in its own [`Holder`]
//!
//! | from → to | who, under the mutex |
//! |---|---|
//! | none → queued | himself, with a full buffer in a crowd |
//! | queued → holds | whoever finds a free turn: who ends his own, who queues, who looks |
//! | queued → none | himself, at his deadline |
//! | holds → queued | himself, after his rounds |
//! | holds → none | himself, giving it back; or who looks and finds it old |
//!
//! The holder learns of that last step when it asks for the next turn: a number that is gone ends nothing.
//!
//! # Why no wake-up is lost
//!
//! Each thread sleeps on a [`WaitQueue`] of its own, whose condition is its place in the list, under the mutex: the
//! ticket is taken in the section that puts it into a queue, and whoever gives it a turn notifies in the section that does, and
//! wakes after it. And why nobody waits while a turn is free: every section that frees a turn or lengthens a
//! queue ends with `Rota::fill`, which leaves no core with room while anybody is queued.
//!
//! What a writer waited for before is not lost either: its ticket for space is dropped, and it looks at its buffer again.
//!
//! Rank: the mutex is a leaf; wakes come after it. Where there is no crowd a full buffer costs a look at the thread's own
//! state and a load. Must not know buffers or sockets. Tests: `turns/tests.rs`, `turns/rota.rs`, `tests/loom/turns.rs`.

mod rota;
#[cfg(all(test, not(loom)))]
mod tests;

use core::cell::Cell;
use core::time::Duration;
use std::time::Instant;

use crossbeam_utils::CachePadded;

use crate::facade::unmodelled::thread_local;
use crate::facade::{Arc, AtomicU32, Mutex, MutexGuard, Ordering};
use crate::fork::PerProcess;
use crate::spin::Spin;
use crate::wait::{Ticket, WaitQueue, Woken};
use crate::{cpu, gather};
use rota::{LOOK_EVERY, Place, Rota, Usage};

/// The turns of a process: see the module's head.
#[derive(Debug)]
pub struct Turns {
    /// Writers that sleep for want of space or of a turn. A measure: nothing is ordered by it.
    waiting: CachePadded<AtomicU32>,
    /// From more than so many on there is a crowd.
    crowd: u32,
    rota: CachePadded<Mutex<Rota<Arc<WaitQueue>>>>,
}

/// What a thread knows of its turn. Only the thread itself uses it.
#[derive(Debug)]
pub struct Holder {
    /// The number of its turn, or of the one it waits for; 0 for none.
    id: Cell<u64>,
    /// How often it has filled its buffer.
    rounds: Cell<u32>,
    /// Where it is to run, and how often it may still move there.
    cpu: Cell<Option<u32>>,
    moves_left: Cell<u32>,
    bed: Arc<WaitQueue>,
}

/// A writer with a full buffer, about to wait.
#[derive(Clone, Copy, Debug)]
pub struct Full {
    /// The CPU on which its reader ran last, as of [`cpu::current`].
    pub reader: u32,
    /// When it gives up waiting, if ever.
    pub deadline: Option<Instant>,
    /// Whether the thread may move itself to the core of its turn.
    pub moves: bool,
}

/// What a writer does after asking.
#[must_use = "the buffer may have room by now"]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Asked {
    /// It has waited for a turn, and looks at its buffer again.
    Waited,
    /// It has a turn, and waits for its reader.
    Holds,
    /// It waits as always: there is no crowd, or so many turns that they mean no core.
    Alone,
}

impl Turns {
    /// One turn for each of so many cores, for writers of whom more than `crowd` wait.
    pub fn new(cores: usize, crowd: u32) -> Self {
        Self {
            waiting: CachePadded::new(AtomicU32::new(0)),
            crowd,
            rota: CachePadded::new(Mutex::new(Rota::new(cores))),
        }
    }

    /// The turns of this process.
    pub fn of_process() -> &'static Self {
        // A child of fork(2) begins anew: the turns that it has from its parent are held by threads that it has not.
        static TURNS: PerProcess<Turns> = PerProcess::new();
        TURNS.get_or_init(|| {
            let crowd = cpu::count().saturating_mul(CROWD_PER_CORE);
            Self::new(cpu::count(), u32::try_from(crowd).unwrap_or(u32::MAX))
        })
    }

    /// The thread's buffer is full. **Blocks** for a turn in a crowd, at most until the deadline.
    pub fn ask(&self, holder: &Holder, full: &Full) -> Asked {
        if holder.id.get() != NONE {
            holder.rounds.set(holder.rounds.get() + 1);
            if holder.rounds.get() < ROUNDS_MAX {
                holder.go(full.moves);
                return if holder.cpu.get().is_some() { Asked::Holds } else { Asked::Alone };
            }
        }
        // Relaxed: a measure.
        if self.waiting.load(Ordering::Relaxed) <= self.crowd
            || full.deadline.is_some_and(|deadline| deadline <= Instant::now())
        {
            self.give_back(holder);
            return Asked::Alone;
        }
        let cpu = if full.reader == u32::MAX { cpu::current() } else { full.reader };
        let ticket = self.queue(holder, cpu);
        self.sleep(holder, ticket, full.deadline);
        holder.go(full.moves);
        Asked::Waited
    }

    /// Ends the turn, if there is one, and waits for another.
    fn queue(&self, holder: &Holder, cpu: u32) -> Ticket {
        let mut rota = self.rota.lock();
        rota.end(holder.id.get());
        let ticket = holder.bed.prepare();
        holder.id.set(rota.queue(Arc::clone(&holder.bed), cpu));
        self.settle(rota);
        ticket
    }

    /// Sleeps until the turn comes, or the deadline.
    fn sleep(&self, holder: &Holder, mut ticket: Ticket, deadline: Option<Instant>) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        holder.rounds.set(0);
        holder.moves_left.set(MOVES_MAX);
        holder.cpu.set(loop {
            let woken = holder.bed.wait(ticket, next_look(deadline), Spin::OFF);
            let mut rota = self.rota.lock();
            match rota.place(holder.id.get()) {
                Place::Holds(cpu) => break cpu,
                Place::Gone => {
                    holder.id.set(NONE);
                    break None;
                }
                Place::Queued if woken == Woken::TimedOut && has_passed(deadline) => {
                    rota.end(holder.id.replace(NONE));
                    break None;
                }
                Place::Queued => ticket = holder.bed.prepare(),
            }
            self.settle(rota);
        });
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    /// The thread has no use for its turn. A look at its own state if it has none.
    pub fn give_back(&self, holder: &Holder) {
        let id = holder.id.replace(NONE);
        if id == NONE {
            return;
        }
        let mut rota = self.rota.lock();
        rota.end(id);
        self.settle(rota);
    }

    /// Calls `park`, in which a writer sleeps for want of space.
    pub fn parked<R>(&self, park: impl FnOnce() -> R) -> R {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let parked = park();
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        parked
    }

    /// The end of a section that may have freed a turn or lengthened a queue. Looks around as well, if it is time.
    fn settle<'t>(&'t self, mut rota: MutexGuard<'t, Rota<Arc<WaitQueue>>>) {
        let is_look_due = !cfg!(loom) && rota.is_look_due(gather::micros_now());
        fill(rota);
        if is_look_due {
            // Without the mutex: it takes microseconds where there are many threads.
            let used = cpu::used_by_process();
            rota = self.rota.lock();
            rota.look(Usage { at: gather::micros_now(), used });
            fill(rota);
        }
    }
}

/// Gives out the turns that are free, leaves the mutex and wakes whoever got one.
fn fill(mut rota: MutexGuard<'_, Rota<Arc<WaitQueue>>>) {
    let mut owed = Vec::new();
    // The model has no time.
    let now = if cfg!(loom) { 0 } else { gather::micros_now() };
    rota.fill(now, |bed| {
        if bed.notify().is_wake_owed() {
            owed.push(bed);
        }
    });
    drop(rota);
    owed.into_iter().for_each(|bed| bed.wake());
}

/// Whether a waiter whose sleep has timed out has reached its deadline. In the model it sleeps for nothing else.
fn has_passed(deadline: Option<Instant>) -> bool {
    cfg!(loom) || deadline.is_some_and(|deadline| deadline <= Instant::now())
}

/// When a waiter looks around, or gives up. In the model, which has no time, nobody helps by looking.
fn next_look(deadline: Option<Instant>) -> Option<Instant> {
    if cfg!(loom) {
        return deadline;
    }
    let look = Instant::now() + LOOK_EVERY_WAITING;
    Some(deadline.map_or(look, |deadline| deadline.min(look)))
}

impl Holder {
    /// A thread without a turn.
    pub fn new() -> Self {
        Self {
            id: Cell::new(NONE),
            rounds: Cell::new(0),
            cpu: Cell::new(None),
            moves_left: Cell::new(0),
            bed: Arc::new(WaitQueue::new()),
        }
    }

    /// Moves to the core of the turn.
    fn go(&self, moves: bool) {
        if let Some(cpu) = self.cpu.get().filter(|_| moves && self.id.get() != NONE)
            && cpu != cpu::current()
            && self.moves_left.get() > 0
        {
            // Who is refused is pinned, and is asked again in the next turn.
            let left = if gather::move_to(cpu) { self.moves_left.get() - 1 } else { 0 };
            self.moves_left.set(left);
        }
    }
}

impl Default for Holder {
    fn default() -> Self {
        Self::new()
    }
}

/// The holder of a thread, which gives its turn back at the thread's end.
struct Own(Holder);

impl Drop for Own {
    fn drop(&mut self) {
        Turns::of_process().give_back(&self.0);
    }
}

thread_local! {
    static OWN: Own = Own(Holder::new());
    /// Whether this thread has ever asked, so that who only reads makes no holder. Has no destructor.
    static HAS_ASKED: Cell<bool> = const { Cell::new(false) };
}

/// [`Turns::ask`] for the calling thread, of the turns of the process.
pub fn ask(full: &Full) -> Asked {
    let turns = Turns::of_process();
    if !HAS_ASKED.get() && turns.waiting.load(Ordering::Relaxed) <= turns.crowd {
        return Asked::Alone;
    }
    HAS_ASKED.set(true);
    // A thread that is ending has no turns any more.
    OWN.try_with(|own| turns.ask(&own.0, full)).unwrap_or(Asked::Alone)
}

/// The calling thread is about to wait for something else than its reader: others may have its turn. A look at the thread's
/// own state if it never had one.
#[inline]
pub fn give_back() {
    if HAS_ASKED.get() {
        let _without_a_turn = OWN.try_with(|own| Turns::of_process().give_back(&own.0));
    }
}

const NONE: u64 = 0;
/// How often a writer fills its buffers in one turn: a third of a millisecond. With 4 the buffers of its application are brought
/// into the cache too often, with 32 the others wait for longer and little is won.
pub const ROUNDS_MAX: u32 = if cfg!(loom) { 2 } else { 16 };
/// Writers that wait, for each core, above which there are turns.
const CROWD_PER_CORE: usize = 8;
/// How often a thread moves in one turn, which costs it some microseconds each time, before it lets the scheduler have its way.
const MOVES_MAX: u32 = 3;
/// How often a waiter looks around, when it is not woken. Somebody does so earlier where there are many.
const LOOK_EVERY_WAITING: Duration = Duration::from_millis(25);

const _: () = assert!(LOOK_EVERY.as_micros() <= LOOK_EVERY_WAITING.as_micros());
