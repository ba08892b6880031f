//! Holding a socket lock: for a short section, or as a runner with the items that were left and two ways of letting go.
//!
//! Invariants: `Inner` belongs to the holder. A [`Section`] ends in its `Drop`. A `Locked` ends in
//! [`Locked::run`], [`Locked::leave`] or [`Locked::give_way`]; its `Drop` ends the lock. The argument stands at the head of
//! `socket_lock.rs`.

use core::fmt;
use core::marker::PhantomData;
use core::mem::{self, ManuallyDrop};
use core::ops::{Deref, DerefMut};
use core::ptr;

use super::{HandedOff, Left, NO_SLEEPER, RUN, SocketLock, YIELDS, closed};
use crate::facade::{Ordering, thread};
use crate::node::{Batch, Node, reverse};

/// The holder's part.
#[repr(C)]
pub(super) struct Inner<T, I> {
    /// Items taken from the backlog that have not run yet, oldest first.
    kept: *mut Node<I>,
    value: T,
}

impl<T, I> Inner<T, I> {
    pub fn new(value: T) -> Self {
        Self { kept: ptr::null_mut(), value }
    }

    pub fn take_kept(&mut self) -> *mut Node<I> {
        mem::replace(&mut self.kept, ptr::null_mut())
    }
}

/// A short section of a [`SocketLock`]: ends when dropped. A thread that leaves items meanwhile waits for its end.
#[must_use = "the lock is free at once if the section is dropped"]
pub struct Section<'a, T, I> {
    of: &'a SocketLock<T, I>,
    /// Stays on its thread, as `parking_lot`'s guards do.
    on_this_thread: PhantomData<*const ()>,
}

/// The right to run items under a [`SocketLock`]. Let go by naming a policy: [`run`](Self::run) or [`leave`](Self::leave). Dropping it
/// ends the lock.
#[must_use = "a runner that is dropped ends the lock: let it go by `run` or `leave`"]
pub struct Locked<'a, T, I> {
    of: &'a SocketLock<T, I>,
    on_this_thread: PhantomData<*const ()>,
}

// SAFETY: a shared guard gives a shared reference to the value and nothing else.
unsafe impl<T: Sync, I: Send> Sync for Section<'_, T, I> {}
// SAFETY: as above.
unsafe impl<T: Sync, I: Send> Sync for Locked<'_, T, I> {}

/// The items that wait under a lock, apart from its value; see [`Locked::parts`].
pub struct Backlog<'l, T, I> {
    of: &'l SocketLock<T, I>,
    kept: &'l mut *mut Node<I>,
}

impl<'a, T, I> Section<'a, T, I> {
    /// # Safety
    /// The caller has just become the holder of `of`.
    #[inline]
    pub(super) unsafe fn new(of: &'a SocketLock<T, I>) -> Self {
        Self { of, on_this_thread: PhantomData }
    }
}

impl<T, I> Drop for Section<'_, T, I> {
    #[inline]
    #[cfg_attr(feature = "count", track_caller)]
    fn drop(&mut self) {
        let _nothing_to_look_for = self.of.unlock();
    }
}

impl<'a, T, I> Locked<'a, T, I> {
    /// # Safety
    /// The caller has just become the holder of `of`, as a runner.
    #[inline]
    pub(super) unsafe fn new(of: &'a SocketLock<T, I>) -> Self {
        Self { of, on_this_thread: PhantomData }
    }

    /// The value, and the items that wait, both at once.
    #[inline]
    pub fn parts(&mut self) -> (&mut T, Backlog<'_, T, I>) {
        // SAFETY: we are the holder, and the references borrow the guard.
        let inner = self.of.inner.with_mut(|inner| unsafe { &mut *inner });
        (&mut inner.value, Backlog { of: self.of, kept: &mut inner.kept })
    }

    /// Whether items wait.
    #[inline]
    pub fn has_backlog(&self) -> bool {
        // SAFETY: we are the holder, and the reference goes no further.
        self.of.looks_left() || self.of.inner.with(|inner| !unsafe { &*inner }.kept.is_null())
    }

    /// The oldest item that waits, if any.
    #[inline]
    pub fn pop(&mut self) -> Option<I> {
        self.parts().1.pop()
    }

    /// Puts an item behind those that wait. Nothing is owed for it: the runner lets go by a policy.
    #[inline]
    pub fn push(&mut self, item: I) {
        match self.of.leave(item) {
            Left::First | Left::Behind => {}
            Left::Dead(_) => unreachable!("only a runner ends the lock"),
        }
    }

    /// Lets go, if nothing waits. Else the caller is the runner, and runs the backlog.
    ///
    /// For a caller that holds no other lock. Blocks only if an item was left just when it let go, and a section has begun.
    ///
    /// # Errors
    /// The lock, with items to run.
    #[inline]
    #[cfg_attr(feature = "count", track_caller)]
    pub fn run(self) -> Result<(), Self> {
        if self.has_backlog() {
            return Err(self);
        }
        let of = ManuallyDrop::new(self).of;
        // Of those that were left just now, we are the debtor.
        if of.unlock() && of.looks_left() { of.look().map_or(Ok(()), Err) } else { Ok(()) }
    }

    /// Lets go. If items wait, a thread has to [take over](SocketLock::take_over). Never blocks.
    #[inline]
    #[cfg_attr(feature = "count", track_caller)]
    pub fn leave(self) -> Option<HandedOff> {
        let has_backlog = self.has_backlog();
        let of = ManuallyDrop::new(self).of;
        let has_to_look = of.unlock();
        (has_backlog || (has_to_look && of.looks_left())).then_some(HandedOff)
    }

    /// Lets one of those in that sleep until the lock is free, if there are any, and locks again. **Blocks**. `None` if another runner has
    /// panicked meanwhile.
    #[inline]
    pub fn give_way(self) -> Option<Self> {
        // Relaxed: a hint.
        if self.of.parked.load(Ordering::Relaxed) == NO_SLEEPER { Some(self) } else { self.let_in() }
    }

    #[cold]
    #[inline(never)]
    fn let_in(self) -> Option<Self> {
        let of = ManuallyDrop::new(self).of;
        // Whatever waits is run by a runner that comes in, or by us: we are about to be the runner again.
        let _look = of.unlock();
        for _ in 0..YIELDS {
            thread::yield_now();
            if !of.looks_free() {
                break;
            }
        }
        of.acquire_contended(RUN);
        // SAFETY: we are the holder, as a runner.
        unsafe { of.runner() }
    }
}

impl<T, I> Backlog<'_, T, I> {
    /// The oldest item that waits, if any.
    #[inline(always)]
    pub fn pop(&mut self) -> Option<I> {
        if self.kept.is_null() && !self.of.looks_left() { None } else { self.pop_left() }
    }

    #[inline(never)]
    fn pop_left(&mut self) -> Option<I> {
        if self.kept.is_null() {
            // Acquire: the nodes' contents, with the release of every push.
            let arrived = self.of.backlog.swap(ptr::null_mut(), Ordering::Acquire);
            // SAFETY: the exchange made the list ours.
            let (oldest, count) = unsafe { reverse(arrived) };
            *self.kept = oldest;
            // Relaxed, and truncated: see `SocketLock::backlog_len`.
            self.of.len.fetch_sub(count as u16, Ordering::Relaxed);
        }
        let node = *self.kept;
        // SAFETY: in the list that belongs to the runner, and not empty.
        *self.kept = unsafe { Node::next(node) };
        // SAFETY: as above, and now it is out of the list.
        Some(unsafe { Node::unbox(node) })
    }
}

impl<T, I> Drop for Locked<'_, T, I> {
    /// Ends the lock; see the head of `socket_lock.rs`.
    #[cold]
    fn drop(&mut self) {
        let of = self.of;
        // Acquire: the nodes' contents, with the release of every push.
        let newest = of.backlog.swap(closed(), Ordering::Acquire);
        // A lock that was dead before has no list.
        let newest = if newest == closed() { ptr::null_mut() } else { newest };
        // SAFETY: we are the holder.
        let kept = of.inner.with_mut(|inner| unsafe { &mut *inner }.take_kept());
        let _nothing_to_look_for = of.unlock();
        // After all that, since an item's own drop is foreign code.
        for list in [kept, newest] {
            // SAFETY: both lists are ours, and the lock has forgotten them.
            drop(unsafe { Batch::from_list(list) });
        }
    }
}

/// The value, by both guards.
macro_rules! reaches_the_value {
    ($guard:ident) => {
        impl<T, I> Deref for $guard<'_, T, I> {
            type Target = T;
            #[inline]
            fn deref(&self) -> &T {
                // SAFETY: we are the holder, and the reference borrows the guard.
                self.of.inner.with(|inner| unsafe { &(*inner).value })
            }
        }

        impl<T, I> DerefMut for $guard<'_, T, I> {
            #[inline]
            fn deref_mut(&mut self) -> &mut T {
                // SAFETY: as above, and the guard is borrowed mutably.
                self.of.inner.with_mut(|inner| unsafe { &mut (*inner).value })
            }
        }

        impl<T: fmt::Debug, I> fmt::Debug for $guard<'_, T, I> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_tuple(stringify!($guard)).field(&**self).finish()
            }
        }
    };
}

reaches_the_value!(Section);
reaches_the_value!(Locked);
