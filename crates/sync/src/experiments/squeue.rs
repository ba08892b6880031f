//! The squeue: the right to run protocol code for the connections that belong to it.
//!
//! One thread at a time is *inside*. A thread that finds the squeue occupied does not wait: it
//! leaves its item in the queue, and the thread inside runs it before leaving, or hands the squeue to a worker. How
//! many connections share one (its grain: `global`, `per_core`, `per_socket`) is the caller's choice; the object is the
//! same.
//!
//! # States, all in one word
//!
//! ```text
//!   free           0
//!   inside         OWNED | list                 a thread holds the `Inside`
//!   scheduled      OWNED | SCHEDULED | list     owned, no thread inside; `resume` takes it over
//!   poisoned       OWNED | POISONED             an `Inside` was dropped, not left: final
//! ```
//!
//! | from → to | by | order |
//! |---|---|---|
//! | free → inside | any thread: `enter`, `try_enter`, `enter_blocking` | acquire, with *leave* |
//! | free → scheduled + item | any thread: `fill` | release, with *resume* |
//! | push an item: list grows | any thread, only while owned | release, with *take* |
//! | take: list → empty | the thread inside | acquire, with *push* |
//! | leave: inside with an empty list → free | the thread inside | release, with *enter* |
//! | hand off: inside → scheduled | the thread inside | release, with *resume* |
//! | resume: scheduled → inside | any thread, one succeeds | acquire, with *hand off*, *fill* |
//! | grant: stays inside, other thread | the thread inside → a sleeping one | `Grant::state` |
//! | poison: inside → poisoned | the thread inside, in `Drop` | acquire and release |
//!
//! Every transition is a read-modify-write, so each continues the release sequence of the ones before it: a
//! thread that acquires the word has seen the work of *all* earlier owners and the contents of *all* nodes in
//! the list, not only the last writer's.
//!
//! # Why no item is ever stranded
//!
//! An item can be pushed only onto a word that says *owned*, because the push is a compare-exchange
//! against exactly the value it read. The squeue becomes free only by the compare-exchange
//! from `OWNED` with an empty list. The two are ordered by the word itself: either the push came
//! first, then leaving fails and the owner, still inside, has to run the item or hand off; or
//! leaving came first, then the push fails, sees *free* and enters instead. A scheduled ownership was
//! announced to a worker by the thread that scheduled it ([`HandedOff`] and [`Filled`] are `must_use`), and the
//! worker's `resume` succeeds unless another thread resumed before, which then is inside and stands under the same
//! rule. So to every item there is, at every moment, a thread inside or a worker about to be, and none of the two can
//! go away without looking.
//!
//! # Why one thread is inside at a time
//!
//! `Inside` is made only by the transitions *free → inside* and *scheduled → inside*, which one
//! compare-exchange wins, and by a grant, whose giver forgets its own. It is neither `Clone` nor
//! `Send`, and goes away only in `leave`, `hand_off` or `Drop`.
//!
//! # Panics inside
//!
//! An `Inside` that is dropped instead of left means that protocol code panicked half way. The state behind
//! is not to be trusted and the queue would have no runner, so the squeue is *poisoned*: queued items are
//! dropped, sleepers in `enter_blocking` are woken, and every later entry gets its item back as
//! [`Entry::Poisoned`]. Nothing waits for ever, nothing runs on broken state, and other squeues go on.
//!
//! The queue has no bound of its own. Each item has one: an embedded `Notify` is queued at most once, a
//! packet is charged to its buffer pool, a sleeper is a thread.
//!
//! This file does not depend on the types of items, or on workers. Tests: `squeue/tests.rs`, `tests/loom`,
//! `tests/stress.rs`.

mod drain;
mod grant;
mod inside;
mod leave_undrained;
#[cfg(all(test, not(loom)))]
mod tests;
mod word;

use core::num::NonZeroU64;
use core::ptr;

use crate::facade::{AtomicPtr, Ordering, UnsafeCell, unmodelled};
use crate::node::{Batch, Node};

pub use drain::Outcome;
pub use grant::Poisoned;
pub use inside::{HandedOff, Inside, Items};
pub use leave_undrained::{DEPTH_MAX, ELIDE_MAX, Exit, Found, Served};
use word::Word;

/// Names a squeue; unique in the process, never used again.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SqueueId(NonZeroU64);

/// The right to run protocol code for the connections that belong to it; see the head of the file.
///
/// `T` is the item that is queued. 24 bytes, so that each connection can have its own.
pub struct Squeue<T> {
    /// (c)
    id: SqueueId,
    /// (a) Flags and the list of arrived nodes, newest first.
    word: AtomicPtr<Node<Load<T>>>,
    /// (p) Items taken from the word that have not run yet, oldest first.
    taken: UnsafeCell<*mut Node<Load<T>>>,
}

// SAFETY: the squeue owns queued items, which travel to the thread inside: `T: Send`. Its other
// field that is not atomic, `taken`, is touched only by the thread inside.
unsafe impl<T: Send> Send for Squeue<T> {}
// SAFETY: as above; no reference to an item is ever given to two threads.
unsafe impl<T: Send> Sync for Squeue<T> {}

/// Result of [`Squeue::enter`].
#[must_use]
#[derive(Debug)]
pub enum Entry<'p, T> {
    /// The squeue was free; the caller is inside and has its item back to run it.
    Inside(Inside<'p, T>, T),
    /// Occupied: the item is in the queue, and the thread that is inside or resumes will run it.
    Queued,
    /// Poisoned: no thread will ever run the item.
    Poisoned(T),
}

/// Result of [`Squeue::fill`].
#[must_use = "a squeue that was scheduled waits for its worker: tell it"]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Filled {
    /// The squeue was free and is now owned and scheduled: the caller tells a worker to resume it.
    WakeWorker,
    /// It was occupied: the owner will run the item.
    Queued,
    /// It is poisoned: the item was dropped.
    Poisoned,
}

impl<T> Squeue<T> {
    /// A free squeue.
    pub fn new() -> Self {
        Self {
            id: SqueueId::next(),
            word: AtomicPtr::new(Word::FREE.raw()),
            taken: UnsafeCell::new(ptr::null_mut()),
        }
    }

    /// Its name.
    pub fn id(&self) -> SqueueId {
        self.id
    }

    /// Whether a thread owns it, inside or scheduled, or it is poisoned. True the moment it was
    /// looked at.
    pub fn is_occupied(&self) -> bool {
        // Relaxed: a hint, which orders nothing.
        !self.load(Ordering::Relaxed).is_free()
    }

    /// Whether it was left by a panic; see the head of the file.
    pub fn is_poisoned(&self) -> bool {
        // Relaxed: the state is final, and nothing is read on the strength of it.
        self.load(Ordering::Relaxed).is_poisoned()
    }

    /// Enters if the squeue is free. One compare-exchange; never blocks.
    #[inline]
    pub fn try_enter(&self) -> Option<Inside<'_, T>> {
        // Acquire: with the release of the `leave` that made it free.
        match self.exchange(Word::FREE, Word::INSIDE, Ordering::Acquire) {
            // SAFETY: the exchange made us the owner.
            Ok(()) => Some(unsafe { Inside::new(self) }),
            Err(_occupied) => None,
        }
    }

    /// Enters if the squeue is free, else leaves `item` in the queue. Never blocks.
    #[inline]
    pub fn enter(&self, item: T) -> Entry<'_, T> {
        match self.try_enter() {
            Some(inside) => Entry::Inside(inside, item),
            None => self.enter_occupied(item),
        }
    }

    /// Puts `item` into the queue and never enters. Never blocks.
    #[inline]
    pub fn fill(&self, item: T) -> Filled {
        let node = Node::boxed(Load::Item(item));
        match self.push(node, IfFree::PushScheduled) {
            Pushed::Onto => Filled::Queued,
            Pushed::Scheduled => Filled::WakeWorker,
            Pushed::NotEntered => unreachable!("a free squeue was to be scheduled"),
            Pushed::NotPoisoned => {
                // SAFETY: the node was not pushed, so it is still ours.
                drop(unsafe { Node::unbox(node) });
                Filled::Poisoned
            }
        }
    }

    /// Takes over an ownership that was scheduled. Exactly one caller succeeds. Never blocks.
    ///
    /// `None` if it is not scheduled (any more): another thread took it over, or the ownership was
    /// granted to a thread in [`Squeue::enter_blocking`].
    pub fn resume(&self) -> Option<Inside<'_, T>> {
        let mut seen = self.load(Ordering::Relaxed);
        while seen.is_scheduled() {
            // Acquire: with the release of the `hand_off` or `fill` that scheduled it. A push
            // in between continues that release sequence.
            match self.exchange(seen, seen.off_paper(), Ordering::Acquire) {
                // SAFETY: the exchange took the ownership off the paper, and only one can.
                Ok(()) => return Some(unsafe { Inside::new(self) }),
                Err(now) => seen = now,
            }
        }
        None
    }

    /// [`Squeue::enter`] when the first attempt found it occupied.
    #[cold]
    #[inline(never)]
    fn enter_occupied(&self, item: T) -> Entry<'_, T> {
        let node = Node::boxed(Load::Item(item));
        let pushed = self.push(node, IfFree::Enter);
        if pushed == Pushed::Onto {
            return Entry::Queued;
        }
        // SAFETY: the node was not pushed, so it is still ours.
        let item = match unsafe { Node::unbox(node) } {
            Load::Item(item) => item,
            Load::Waiter(_) => unreachable!("the node was made with an item"),
        };
        match pushed {
            // SAFETY: the push made us the owner.
            Pushed::NotEntered => Entry::Inside(unsafe { Inside::new(self) }, item),
            Pushed::NotPoisoned => Entry::Poisoned(item),
            Pushed::Onto | Pushed::Scheduled => unreachable!("the node was not pushed"),
        }
    }

    /// Pushes `node`, unless the squeue turns out to be free and `if_free` says to enter.
    fn push(&self, node: *mut Node<Load<T>>, if_free: IfFree) -> Pushed {
        let mut seen = self.load(Ordering::Relaxed);
        loop {
            if seen.is_poisoned() {
                return Pushed::NotPoisoned;
            }
            let below = if seen.is_free() { ptr::null_mut() } else { seen.list() };
            // SAFETY: the node is ours until an exchange below publishes it.
            unsafe { Node::link(node, below) };
            let (new, order, pushed) = match (seen.is_free(), if_free) {
                // Acquire: with the release of the `leave` that made it free.
                (true, IfFree::Enter) => (Word::INSIDE, Ordering::Acquire, Pushed::NotEntered),
                // Release: the node's contents, with the acquire of `resume`.
                (true, IfFree::PushScheduled) => {
                    (Word::FREE.with_list(node).scheduled(), Ordering::Release, Pushed::Scheduled)
                }
                // Release: the node's contents, with the acquire of the owner's `take`.
                (false, IfFree::Enter | IfFree::PushScheduled) => {
                    (seen.with_list(node), Ordering::Release, Pushed::Onto)
                }
            };
            match self.exchange(seen, new, order) {
                Ok(()) => return pushed,
                Err(now) => seen = now,
            }
        }
    }

    fn load(&self, order: Ordering) -> Word<T> {
        Word::from_raw(self.word.load(order))
    }

    /// One attempt; a failure orders nothing, because it is always followed by another look.
    fn exchange(&self, from: Word<T>, to: Word<T>, order: Ordering) -> Result<(), Word<T>> {
        match self.word.compare_exchange(from.raw(), to.raw(), order, Ordering::Relaxed) {
            Ok(_from) => Ok(()),
            Err(now) => Err(Word::from_raw(now)),
        }
    }
}

impl<T> Default for Squeue<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Drop for Squeue<T> {
    /// Drops the items still queued: only a scheduled ownership that no thread resumed leaves anything.
    fn drop(&mut self) {
        // Relaxed: `&mut self` was handed over by means outside this file, which ordered all.
        let seen = self.load(Ordering::Relaxed);
        let newest = if seen.is_free() { ptr::null_mut() } else { seen.list() };
        let taken = self.taken.with_mut(|taken| {
            // SAFETY: `&mut self`: no thread is inside.
            unsafe { ptr::replace(taken, ptr::null_mut()) }
        });
        for list in [taken, newest] {
            // SAFETY: `&mut self`: the lists are ours. No thread sleeps in `enter_blocking`, which
            // borrows the squeue, so they carry only items.
            drop(unsafe { Batch::from_list(list) });
        }
    }
}

impl<T> core::fmt::Debug for Squeue<T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let word = self.load(Ordering::Relaxed);
        f.debug_struct("Squeue")
            .field("id", &self.id)
            .field("is_occupied", &!word.is_free())
            .field("is_scheduled", &word.is_scheduled())
            .field("is_poisoned", &word.is_poisoned())
            .finish_non_exhaustive()
    }
}

impl SqueueId {
    /// The next name. 2^64 of them do not run out.
    fn next() -> Self {
        use unmodelled::{AtomicU64, Ordering};
        static NEXT: AtomicU64 = AtomicU64::new(1);
        unmodelled::thread_local! {
            /// The names this thread may still give away: a shared line is written once a block.
            static BLOCK: core::cell::Cell<(u64, u64)> = const { core::cell::Cell::new((0, 0)) };
        }
        let id = BLOCK.with(|block| {
            let (mut next, mut end) = block.get();
            if next == end {
                // Relaxed: only that no two threads get the same block.
                next = NEXT.fetch_add(IDS_PER_BLOCK, Ordering::Relaxed);
                end = next + IDS_PER_BLOCK;
            }
            block.set((next + 1, end));
            next
        });
        Self(NonZeroU64::new(id).expect("names begin with one"))
    }
}

/// The effect of [`Squeue::push`] on a free squeue.
#[derive(Clone, Copy, PartialEq, Eq)]
enum IfFree {
    Enter,
    PushScheduled,
}

/// Content of a node of a squeue.
enum Load<T> {
    /// Work for the thread that is inside.
    Item(T),
    /// A thread that sleeps until it is given the squeue itself.
    Waiter(grant::Waiter<T>),
}

/// Result of [`Squeue::push`]. The node is still the caller's in the cases that begin with Not.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pushed {
    Onto,
    Scheduled,
    NotEntered,
    NotPoisoned,
}

/// Names a thread takes from the shared counter at once.
const IDS_PER_BLOCK: u64 = 64;
