//! The socket lock: one lock for each socket, with a backlog of work that others leave meanwhile.
//!
//! The value (protocol state and buffers) is inside. A thread that needs the value waits for it ([`SocketLock::lock`]). A thread that
//! has an *item* (a packet, a message) gets the lock if that is free, and else leaves the item in the backlog
//! ([`SocketLock::try_run`]). Linux's `lock_sock` and `sk_backlog` have this shape.
//!
//! There are two ways of holding it. A *section* ([`Section`]) is short and knows no items: an option, a snapshot, a waker. A *runner*
//! ([`Locked`]) runs items, and lets go by naming a policy; an application's reads and writes are runners. The word shows others which of
//! the two holds the lock.
//!
//! # States
//!
//! | state | `word` | items | meaning |
//! |---|---|---|---|
//! | free | `FREE` | none | |
//! | free, backlog | `FREE` | some | a *debtor*, or the receiver of a hand-off, is about to look; the first thread to lock as a runner owns them |
//! | section | `SECTION` | any | the thread that leaves the first item waits for the end of the section |
//! | run | `RUN` | none | one thread has the [`Locked`] |
//! | run, backlog | `RUN` | some | the runner finds them before, or when, it lets go |
//! | dead | any | none, for ever | a `Locked` was dropped, which only a panic does; the value can still be locked |
//!
//! `MARK` beside `SECTION` or `RUN` says that the holder has something to look for when it unlocks.
//!
//! Items lie in two lists. `backlog` has the arrived nodes, newest first: any thread pushes, the runner takes all of it with
//! one exchange. `kept` has the nodes that a runner has taken and not run yet: it belongs to the lock, so the next runner goes
//! on with it.
//!
//! | from → to | by |
//! |---|---|
//! | free → section | any thread: `lock`, `try_lock` |
//! | free → run | any thread: `enter`, `try_enter`, `try_run`, `look`, `take_over` |
//! | push an item | any thread: `leave`, `try_run`; the push onto an *empty* backlog makes the thread a debtor ([`Left::First`]) |
//! | take the items | the runner: `pop` |
//! | section → free | its holder: `Drop` |
//! | run → free | the runner, by one of two policies: [`Locked::run`], [`Locked::leave`] |
//! | run → dead | the runner: `Drop` |
//!
//! # The two policies
//! *Run*: if there are items the caller is still (or again) the runner, and runs them. For callers that hold no other lock. *Leave*:
//! if there are items, a [`HandedOff`] says so, and the caller has another thread, or itself later, [take over](SocketLock::take_over). For
//! callers that have run their share, or have to let go of another lock first.
//!
//! # Why one thread at a time has the value
//! A guard is made only by a compare-exchange of `word` from `FREE`, which one thread wins. `word` becomes `FREE` only where a guard
//! ends. Guards are neither `Clone` nor `Send`. Unlocking releases, and the exchange acquires.
//!
//! # Why the order of items is kept
//! Pushes are ordered by `backlog`, and taken all together; nodes taken earlier are run earlier. A thread that gets the lock and
//! has an item of its own runs it only if both lists are empty (`try_run` looks under the lock). If an earlier item of its own,
//! or one whose push happened before, were still waiting, it would be in one of the two.
//!
//! # Why no item is stranded, and no wake-up is lost
//! A thread that sleeps or has left an item makes that known *first* and then *insists*: it locks, or marks the word. The unlocker takes
//! the mark with the same read-modify-write, and if there was one looks *afterwards* whether a thread sleeps; a runner also looks for
//! items.
//!
//! ```text
//!   debtor (sleeper):  D1 push (parked = 1)             holder:  U1 word = FREE, takes the mark
//!                      D2 insist: lock if FREE, or mark          U2 if marked, look at parked (and, if a runner, at backlog)
//! ```
//!
//! D2 and U1 are read-modify-writes of one word, so U1 of the holder that D2 has seen finds the mark and acquires D1. So:
//! * *An item pushed onto an empty backlog* has its debtor until D2 of `look`. If that locks, the debtor runs it. If it finds a section, the
//!   debtor sleeps and tries again. If it finds a runner, the debtor goes away: that runner finds the item at U2, or it has been taken. At
//!   that moment the runner is in the place of a debtor before D2, and does the same: it locks, waits for a section, or goes away from a
//!   runner after it, which it has marked, too.
//! * *An item pushed onto others* is taken together with them, in one exchange, so it needs no debtor of its own.
//! * *An item in `kept`* is seen under the lock by `run`, which refuses to let go, and by `leave`, which hands off. The receiver of a
//!   hand-off looks as a debtor does. If it goes away from a runner, that one has locked after the hand-off, and finds `kept`.
//! * *A sleeper* is woken by the holder that it has marked. An unlock wakes one. That one sets `parked` again and insists again, and
//!   marks the word even where it locks, so as a holder it wakes the next; a debtor that goes away instead has marked the runner.
//!
//! A debtor holds no lock when it looks. It may wait for a section, as any thread that wants the value does; it never waits for a runner.
//!
//! # Waiting callers
//! A runner with a long backlog calls [`Locked::give_way`] between runs: if a thread sleeps it unlocks, wakes one, and gives
//! up its time slice a bounded number of times before it waits for the lock itself.
//!
//! # Death
//! A `Locked` that is dropped, and not let go by a policy, means that a runner has panicked. Both lists are dropped and the backlog is
//! closed, so later items come back ([`Left::Dead`]) and no thread becomes a runner to run one. The value can still be locked, by those
//! that notify its waiters, and give back its resources. Another lock of the same thread is not touched. A caller that can restore the
//! value catches the panic under the lock instead, and the lock lives on.
//!
//! # Two locks
//! A thread that holds one may *try* another, and waits for none while it holds two. Then no circle of waiting threads can close.
//!
//! # Bound
//! The lock takes every item. A thread whose item may be dropped looks at [`SocketLock::backlog_len`] first: it counts the items that were
//! left and not taken, and runners have taken no more than there were once.
//!
//! Does not depend on the type of items. Tests: `socket_lock/tests.rs`, `tests/loom/socket_lock.rs`.

mod guards;
#[cfg(all(test, not(loom)))]
mod tests;

use core::fmt;
use core::ptr;

use crate::facade::unmodelled::AtomicU16;
use crate::facade::{AtomicPtr, Futex, Ordering, ShortLockWord, UnsafeCell, spin_loop, thread};
use crate::node::{Batch, Node};

use guards::Inner;
pub use guards::{Backlog, Locked, Section};

/// One lock for a socket, with a backlog; see the head of the file. 24 bytes beside the value.
///
/// `repr(C)`: they come first, on the line of the value's first fields.
#[repr(C)]
pub struct SocketLock<T, I> {
    /// (a)
    word: ShortLockWord,
    /// (a) Items in `backlog`, and those about to be.
    len: AtomicU16,
    /// (a) Whether an unlock has to wake.
    parked: Futex,
    /// (a) The arrived nodes, newest first; [`closed`] once the lock is dead.
    backlog: AtomicPtr<Node<I>>,
    /// (l)
    inner: UnsafeCell<Inner<T, I>>,
}

// SAFETY: the value goes from thread to thread, one at a time, and so do items.
unsafe impl<T: Send, I: Send> Send for SocketLock<T, I> {}
// SAFETY: as above; `word` lets one thread at a time reach the value, and items are only handed over.
unsafe impl<T: Send, I: Send> Sync for SocketLock<T, I> {}

/// Result of leaving an item.
#[must_use = "a thread that leaves the first item has to look whether the lock has become free"]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Left<I> {
    /// It is the first: the caller owes a [`SocketLock::look`], soon, and at a time at which it holds no lock.
    First,
    /// It lies behind others, and is run with them.
    Behind,
    /// The lock is dead: no thread will ever run the item.
    Dead(I),
}

/// Result of [`SocketLock::try_run`].
#[must_use]
pub enum Turn<'a, T, I> {
    /// The caller is the runner. `Some`: it has its item back, to run it. `None`: others were waiting, and the item is behind them
    /// in the backlog.
    Mine(Locked<'a, T, I>, Option<I>),
    /// The lock is held or dead.
    Left(Left<I>),
}

/// Result of [`SocketLock::insist`].
enum Insisted {
    /// The caller is the holder.
    Locked,
    /// It is held, in this way, and its holder will find the caller's write.
    Held(u16),
}

/// A runner has left items behind: *now* see to it that a thread calls [`SocketLock::take_over`]. It may find nothing.
#[must_use = "what was left behind waits for a thread that looks"]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HandedOff;

impl<T, I> SocketLock<T, I> {
    /// A free lock.
    pub fn new(value: T) -> Self {
        Self {
            word: ShortLockWord::new(FREE),
            len: AtomicU16::new(0),
            parked: Futex::new(NO_SLEEPER),
            backlog: AtomicPtr::new(ptr::null_mut()),
            inner: UnsafeCell::new(Inner::new(value)),
        }
    }

    /// Locks it for a short section. One compare-exchange if it is free. **Blocks** otherwise: spins briefly, yields, then sleeps.
    #[inline]
    #[cfg_attr(feature = "count", track_caller)]
    pub fn lock(&self) -> Section<'_, T, I> {
        if !self.acquire(SECTION) {
            self.acquire_contended(SECTION);
        }
        // SAFETY: the exchange made us the holder.
        unsafe { Section::new(self) }
    }

    /// Locks it for a short section if it is free. Never blocks.
    #[inline]
    #[cfg_attr(feature = "count", track_caller)]
    pub fn try_lock(&self) -> Option<Section<'_, T, I>> {
        // A closure: a guard made in vain would unlock the lock of another when it is dropped.
        // SAFETY: the exchange made us the holder.
        self.acquire(SECTION).then(|| unsafe { Section::new(self) })
    }

    /// Locks it as a runner, also if it is dead: then nothing waits, and nothing ever will. **Blocks** as [`lock`](Self::lock) does.
    #[inline]
    #[cfg_attr(feature = "count", track_caller)]
    pub fn enter(&self) -> Locked<'_, T, I> {
        if !self.acquire(RUN) {
            self.acquire_contended(RUN);
        }
        // SAFETY: the exchange made us the holder.
        unsafe { Locked::new(self) }
    }

    /// Locks it as a runner if it is free, and not dead. Never blocks.
    #[inline]
    #[cfg_attr(feature = "count", track_caller)]
    pub fn try_enter(&self) -> Option<Locked<'_, T, I>> {
        // SAFETY: the exchange made us the holder.
        if self.acquire(RUN) { unsafe { self.runner() } } else { None }
    }

    /// Locks it as a runner if it is free, to run `item`; else leaves the item. Never blocks.
    #[inline]
    #[cfg_attr(feature = "count", track_caller)]
    pub fn try_run(&self, item: I) -> Turn<'_, T, I> {
        match self.try_enter() {
            Some(locked) if !locked.has_backlog() => Turn::Mine(locked, Some(item)),
            Some(mut locked) => {
                locked.push(item);
                Turn::Mine(locked, None)
            }
            None => Turn::Left(self.leave(item)),
        }
    }

    /// Leaves `item` in the backlog, whether or not the lock is free. Never blocks.
    #[inline]
    pub fn leave(&self, item: I) -> Left<I> {
        let node = Node::boxed(item);
        // Before the push, so that it is never taken off before it was added. Relaxed: see `backlog_len`.
        self.len.fetch_add(1, Ordering::Relaxed);
        // Relaxed: the exchange looks again.
        let mut seen = self.backlog.load(Ordering::Relaxed);
        loop {
            if seen == closed() {
                // SAFETY: the node was not pushed, so it is still ours.
                return Left::Dead(unsafe { Node::unbox(node) });
            }
            // SAFETY: the node is ours until the exchange publishes it.
            unsafe { Node::link(node, seen) };
            // Release: the node's contents, with the acquire of `pop`.
            match self.backlog.compare_exchange(seen, node, Ordering::Release, Ordering::Relaxed) {
                Ok(before) if before.is_null() => return Left::First,
                Ok(_others) => return Left::Behind,
                Err(now) => seen = now,
            }
        }
    }

    /// The duty of a debtor: becomes the runner, if there is none. `None`: the backlog is taken, or the runner finds
    /// it.
    ///
    /// The caller holds no lock. **Blocks** while the lock is held by a section.
    pub fn look(&self) -> Option<Locked<'_, T, I>> {
        self.look_unless(|| !self.looks_left())
    }

    /// The duty of the receiver of a hand-off: [`look`](Self::look), also for items that a runner has taken and
    /// not run.
    pub fn take_over(&self) -> Option<Locked<'_, T, I>> {
        self.look_unless(|| false)
    }

    #[inline]
    fn look_unless(&self, is_taken: impl Fn() -> bool) -> Option<Locked<'_, T, I>> {
        for round in 0..=PAUSE_ROUNDS + YIELDS {
            if self.looks_free() && self.acquire(RUN) {
                // SAFETY: the exchange made us the holder.
                return unsafe { self.runner() };
            }
            if is_taken() {
                return None;
            }
            // A runner may be long, and is not waited for.
            let is_run = self.word.load(Ordering::Relaxed) & HOLDER == RUN;
            if is_run || round >= PAUSE_ROUNDS + YIELDS {
                break;
            } else if round < PAUSE_ROUNDS {
                (0..2u32 << round).for_each(|_| spin_loop());
            } else {
                thread::yield_now();
            }
        }
        self.look_insisting(is_taken)
    }

    #[cold]
    #[inline(never)]
    fn look_insisting(&self, is_taken: impl Fn() -> bool) -> Option<Locked<'_, T, I>> {
        // Relaxed: a hint.
        let (mut waits, mut has_slept) = (self.word.load(Ordering::Relaxed) & HOLDER == SECTION, false);
        loop {
            // A sleeper that was woken stands for those that still sleep, so it goes on to insist.
            if !has_slept && is_taken() {
                return None;
            }
            if waits {
                self.announce_sleep();
            }
            match self.insist(RUN) {
                // SAFETY: the exchange made us the holder.
                Insisted::Locked => return unsafe { self.runner() },
                // It finds the backlog, and the threads that sleep.
                Insisted::Held(RUN) => return None,
                Insisted::Held(_section) if waits => {
                    self.parked.wait(SLEEPER, None);
                    has_slept = true;
                }
                Insisted::Held(_section) => waits = true,
            }
        }
    }

    /// Whether something was left that no thread has taken. True the moment it was looked at.
    #[inline]
    pub fn looks_left(&self) -> bool {
        // Relaxed: a hint. The thread that has pushed sees its push, or that it was taken.
        let seen = self.backlog.load(Ordering::Relaxed);
        !seen.is_null() && seen != closed()
    }

    /// Items that were left and that no runner has taken, and those about to be left; modulo 65,536. True the moment it was looked at. A dead
    /// lock counts what it has refused.
    #[inline]
    pub fn backlog_len(&self) -> usize {
        // Relaxed: a hint; additions and subtractions of one word lose nothing, and nothing is read on the strength of it.
        self.len.load(Ordering::Relaxed).into()
    }

    /// Whether the lock is dead.
    #[inline]
    pub fn is_dead(&self) -> bool {
        // Relaxed: the state is final, and nothing is read on the strength of it.
        self.backlog.load(Ordering::Relaxed) == closed()
    }

    /// # Safety
    /// The caller has just become the holder, with the word at `RUN`.
    #[inline]
    unsafe fn runner(&self) -> Option<Locked<'_, T, I>> {
        if self.is_dead() {
            // SAFETY: the caller is the holder. A section lets go and looks for nothing.
            drop(unsafe { Section::new(self) });
            return None;
        }
        // SAFETY: the caller is the holder.
        Some(unsafe { Locked::new(self) })
    }

    /// Whether a thread holds it. True the moment it was looked at.
    #[inline]
    pub fn looks_held(&self) -> bool {
        !self.looks_free()
    }

    fn looks_free(&self) -> bool {
        // Relaxed: a hint that saves a write of a line that the holder writes.
        self.word.load(Ordering::Relaxed) == FREE
    }

    #[inline]
    #[cfg_attr(feature = "count", track_caller)]
    fn acquire(&self, holder: u16) -> bool {
        acquire(&self.word, holder)
    }

    #[cold]
    #[inline(never)]
    fn acquire_contended(&self, holder: u16) {
        for round in 0..PAUSE_ROUNDS + YIELDS {
            if round < PAUSE_ROUNDS {
                (0..2u32 << round).for_each(|_| spin_loop());
            } else {
                thread::yield_now();
            }
            if self.looks_free() && self.acquire(holder) {
                return;
            }
        }
        loop {
            self.announce_sleep();
            match self.insist(holder) {
                Insisted::Locked => return,
                Insisted::Held(_) => _ = self.parked.wait(SLEEPER, None),
            }
        }
    }

    /// One attempt to lock, after the caller has written something for holders to find: if the lock is held, its holder looks. Never
    /// blocks.
    fn insist(&self, holder: u16) -> Insisted {
        // Relaxed: the exchange looks again.
        let mut seen = self.word.load(Ordering::Relaxed);
        loop {
            // A caller that locks marks the word as well: others may sleep, and wait for its look.
            let (new, insisted) = match seen {
                FREE => (holder | MARK, Insisted::Locked),
                held => (held | MARK, Insisted::Held(held & HOLDER)),
            };
            // Written even if the mark stands there already, so that the unlock acquires this thread's writes. Acquire: as `acquire`.
            match self.word.compare_exchange(seen, new, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_seen) => return insisted,
                Err(now) => seen = now,
            }
        }
    }

    /// Unlocks, and wakes a sleeper if there is one. True if a runner has to look at the backlog.
    #[inline]
    #[cfg_attr(feature = "count", track_caller)]
    fn unlock(&self) -> bool {
        // Release: the holder's writes, with the acquire of the next one. Acquire: the writes of the thread that
        // marked the word.
        let has_to_look = self.word.swap(FREE, Ordering::AcqRel) & MARK != 0;
        // Relaxed: the sleeper's `insist` orders it. `self` is still there: the guard borrows it.
        if has_to_look && self.parked.load(Ordering::Relaxed) != NO_SLEEPER {
            self.wake_one();
        }
        has_to_look
    }

    /// `insist` orders it before the attempt, and before every look of a holder from then on.
    fn announce_sleep(&self) {
        // A swap, and acquire and release as in `wake_one`: changes of the word are in one order, which no thread sees
        // otherwise.
        self.parked.swap(SLEEPER, Ordering::AcqRel);
    }

    #[cold]
    #[inline(never)]
    fn wake_one(&self) {
        // A swap: of several holders one after the other, one wakes.
        if self.parked.swap(NO_SLEEPER, Ordering::AcqRel) != NO_SLEEPER {
            self.parked.wake_one();
        }
    }
}

impl<T: Default, I> Default for SocketLock<T, I> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T, I> Drop for SocketLock<T, I> {
    /// Drops a backlog that is still there: only a debtor or a receiver that never came leaves anything.
    fn drop(&mut self) {
        // Relaxed: `&mut self` was handed over by means outside this file, which ordered all.
        let newest = self.backlog.load(Ordering::Relaxed);
        let newest = if newest == closed() { ptr::null_mut() } else { newest };
        // SAFETY: `&mut self`: no thread is the holder.
        let kept = self.inner.with_mut(|inner| unsafe { &mut *inner }.take_kept());
        for list in [kept, newest] {
            // SAFETY: `&mut self`: the lists are ours, and carry only items.
            drop(unsafe { Batch::from_list(list) });
        }
    }
}

impl<T, I> fmt::Debug for SocketLock<T, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SocketLock")
            .field("is_locked", &!self.looks_free())
            .field("is_dead", &self.is_dead())
            .field("has_backlog", &self.looks_left())
            .finish_non_exhaustive()
    }
}

/// One attempt.
#[inline]
#[cfg_attr(feature = "count", track_caller)]
fn acquire(word: &ShortLockWord, holder: u16) -> bool {
    // Acquire: with the release of the unlock before.
    word.compare_exchange(FREE, holder, Ordering::Acquire, Ordering::Relaxed).is_ok()
}

/// The backlog of a dead lock. No node: their addresses are multiples of eight.
fn closed<I>() -> *mut Node<I> {
    ptr::without_provenance_mut(1)
}

const FREE: u16 = 0;
const SECTION: u16 = 1;
const RUN: u16 = 2;
/// The bits that say which of the two it is.
const HOLDER: u16 = SECTION | RUN;
/// The unlock has something to look for.
const MARK: u16 = 4;
const NO_SLEEPER: u32 = 0;
const SLEEPER: u32 = 1;

/// Rounds of 2, 4, 8, 16 pauses: some sections' length.
const PAUSE_ROUNDS: u32 = if cfg!(loom) { 0 } else { 4 };
/// Then the holder may have lost its core, and may be waiting for ours.
const YIELDS: u32 = if cfg!(loom) { 0 } else { 7 };
