//! The loom model checker behind the same names as `host.rs`.
//!
//! Invariant: whatever the kernel or `std` guarantees and our protocols rely on is modelled
//! here and nothing more. Futexes are a lock and a condition variable: the check of the word and
//! the going to sleep are one step for a waker, which is the guarantee of the system call. Time is
//! not modelled: a wait with a deadline gives the other threads a turn and says that it passed.
//! loom's own `unpark` orders more than the real one: whatever the waking thread did is seen by the
//! other one even if that never parks, which would hide a missing release or acquire. So parking is
//! built anew here.

use core::cell::Cell;
use core::ops::Deref;
use std::time::Instant;

pub use loom::cell::UnsafeCell;
pub use loom::hint::spin_loop;
pub use loom::sync::Arc;
pub use loom::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
// Types of their own where writes are counted: see there.
pub use loom::sync::atomic::{AtomicU16 as ShortLockWord, AtomicU32 as LockWord};
pub use loom::sync::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};

/// As a fence of its own, which the pair amounts to.
pub fn light_fence() {
    fence(Ordering::SeqCst);
}

/// As a fence of its own: what the pair amounts to. None for a thread that has called [`refuse_heavy_fence`].
pub fn heavy_fence() -> bool {
    if IS_FENCE_REFUSED.with(Cell::get) {
        return false;
    }
    fence(Ordering::SeqCst);
    true
}

/// From now on the calling thread's heavy fences are refused, as by a kernel without `membarrier`.
pub fn refuse_heavy_fence() {
    IS_FENCE_REFUSED.with(|is_refused| is_refused.set(true));
}

loom::thread_local! { static IS_FENCE_REFUSED: Cell<bool> = Cell::new(false); }

/// Models do not count.
pub fn memory_written<T: ?Sized>(_place: *const T) {}

/// As the host's: no model counts.
pub fn memory_read<T: ?Sized>(_place: *const T) {}

/// loom's thread locals, in the one form that this crate uses: loom does not know the `const` block.
macro_rules! model_thread_local {
    ($visible:vis static $name:ident: $type:ty = const { $init:expr };) => {
        loom::thread_local! { $visible static $name: $type = $init; }
    };
}
pub(crate) use model_thread_local as thread_local;

/// Threads, with parking that orders no more than `std` promises: an `unpark` before the `park` that returns
/// because of it.
pub mod thread {
    pub use loom::thread::{JoinHandle, spawn, yield_now};

    use loom::sync::{Arc, Condvar, Mutex};

    /// The handle of a thread.
    #[derive(Clone, Debug)]
    pub struct Thread(Arc<Token>);

    /// Whether an `unpark` has not been used up.
    #[derive(Debug)]
    struct Token {
        is_there: Mutex<bool>,
        changed: Condvar,
    }

    loom::thread_local! {
        static CURRENT: Thread =
            Thread(Arc::new(Token { is_there: Mutex::new(false), changed: Condvar::new() }));
    }

    /// The calling thread's handle.
    pub fn current() -> Thread {
        CURRENT.with(Thread::clone)
    }

    /// Waits for a token and uses it up.
    pub fn park() {
        let Thread(token) = current();
        let mut is_there = token.is_there.lock().expect("a model that panicked is over");
        while !*is_there {
            is_there = token.changed.wait(is_there).expect("a model that panicked is over");
        }
        *is_there = false;
    }

    impl Thread {
        /// Leaves a token.
        pub fn unpark(&self) {
            *self.0.is_there.lock().expect("a model that panicked is over") = true;
            self.0.changed.notify_one();
        }
    }
}

/// loom's mutex with the signatures of `lock.rs`: it cannot be poisoned.
#[derive(Debug, Default)]
pub struct Mutex<T>(loom::sync::Mutex<T>);

impl<T> Mutex<T> {
    /// An unlocked mutex.
    pub fn new(value: T) -> Self {
        Self(loom::sync::Mutex::new(value))
    }

    /// Locks it. Blocks.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().expect("a model that panicked is over")
    }

    /// Locks it if it is free.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock().ok()
    }
}

/// A mutex whose `try_lock` never waits. loom's own puts a thread that is about to try to sleep while another
/// holds the lock, so that a protocol which only tries would be found to have a deadlock. The value is in
/// the slot while no thread has the lock.
#[derive(Debug)]
pub struct TryMutex<T> {
    slot: loom::sync::Mutex<Option<T>>,
    freed: loom::sync::Condvar,
}

/// The lock on a [`TryMutex`].
#[derive(Debug)]
pub struct TryMutexGuard<'a, T> {
    value: Option<T>,
    of: &'a TryMutex<T>,
}

impl<T> TryMutex<T> {
    /// An unlocked mutex.
    pub fn new(value: T) -> Self {
        Self { slot: loom::sync::Mutex::new(Some(value)), freed: loom::sync::Condvar::new() }
    }

    /// Locks it. Blocks.
    pub fn lock(&self) -> TryMutexGuard<'_, T> {
        let mut slot = self.slot.lock().expect("a model that panicked is over");
        while slot.is_none() {
            slot = self.freed.wait(slot).expect("a model that panicked is over");
        }
        TryMutexGuard { value: slot.take(), of: self }
    }

    /// Locks it if it is free.
    pub fn try_lock(&self) -> Option<TryMutexGuard<'_, T>> {
        let value = self.slot.lock().expect("a model that panicked is over").take();
        value.map(|value| TryMutexGuard { value: Some(value), of: self })
    }
}

impl<T> Deref for TryMutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.value.as_ref().expect("the value is here until the guard is dropped")
    }
}

impl<T> core::ops::DerefMut for TryMutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.value.as_mut().expect("the value is here until the guard is dropped")
    }
}

impl<T> Drop for TryMutexGuard<'_, T> {
    fn drop(&mut self) {
        *self.of.slot.lock().expect("a model that panicked is over") = self.value.take();
        self.of.freed.notify_one();
    }
}

/// loom's read-write lock with the signatures of `lock.rs`.
#[derive(Debug, Default)]
pub struct RwLock<T>(loom::sync::RwLock<T>);

impl<T> RwLock<T> {
    /// An unlocked lock.
    pub fn new(value: T) -> Self {
        Self(loom::sync::RwLock::new(value))
    }

    /// Shared access. Blocks.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().expect("a model that panicked is over")
    }

    /// Exclusive access. Blocks.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write().expect("a model that panicked is over")
    }
}

/// A word that model threads can sleep on.
#[derive(Debug)]
pub struct Futex {
    word: AtomicU32,
    kernel: loom::sync::Mutex<()>,
    asleep: loom::sync::Condvar,
}

impl Futex {
    /// A word with this value and no thread asleep on it.
    pub fn new(value: u32) -> Self {
        Self {
            word: AtomicU32::new(value),
            kernel: loom::sync::Mutex::new(()),
            asleep: loom::sync::Condvar::new(),
        }
    }

    /// Sleeps once if the word is `expected`; see `host.rs`.
    pub fn wait(&self, expected: u32, deadline: Option<Instant>) -> bool {
        if deadline.is_some() {
            thread::yield_now();
            return false;
        }
        let kernel = self.kernel.lock().expect("a model that panicked is over");
        // Relaxed: the lock makes a thread's earlier writes to the word visible.
        if self.word.load(Ordering::Relaxed) == expected {
            drop(self.asleep.wait(kernel));
        }
        true
    }

    /// Wakes every sleeper.
    pub fn wake_all(&self) {
        let _kernel = self.kernel.lock().expect("a model that panicked is over");
        self.asleep.notify_all();
    }

    /// Wakes one sleeper.
    pub fn wake_one(&self) {
        let _kernel = self.kernel.lock().expect("a model that panicked is over");
        self.asleep.notify_one();
    }
}

impl Deref for Futex {
    type Target = AtomicU32;
    fn deref(&self) -> &AtomicU32 {
        &self.word
    }
}
