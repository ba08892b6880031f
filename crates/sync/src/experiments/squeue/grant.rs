//! Entering by waiting: a thread sleeps until the owner gives it the squeue itself.
//!
//! The waiter pushes a node that points to a [`Grant`] on its stack and sleeps. The owner gives it the squeue
//! when it leaves: the word stays *owned* all the time, so no thread can slip in between, and the queue goes
//! along. Memory: one node and one grant per sleeping thread.
//!
//! # Why the grant cannot be missed or outlived
//!
//! The verdict is stored once, with release, and read with acquire by the waiter, which sleeps
//! only after having read that there is none. `unpark` leaves a token behind if it comes before
//! `park`, so the order of the two does not matter; a token that another thread left behind only
//! makes the waiter look once more. The waiter's frame stays until it has read a verdict; the owner
//! therefore takes the thread's handle out of the node *before* storing the verdict and touches
//! nothing of the waiter's afterwards.
//!
//! Tests: `squeue/tests.rs`, `tests/loom`.

use core::fmt;
use core::ptr;

use super::inside::Inside;
use super::{IfFree, Load, Pushed, Squeue};
use crate::facade::{AtomicU32, Ordering, UnsafeCell, thread};
use crate::node::Node;

/// The squeue was left by a panic: no thread will enter it again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Poisoned;

impl fmt::Display for Poisoned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the squeue was left by a panic")
    }
}

impl std::error::Error for Poisoned {}

/// Where a sleeping thread finds out that the squeue is its own.
pub(super) struct Grant<T> {
    /// (a) `WAITING` until the owner stores a verdict.
    state: AtomicU32,
    /// Written by the owner before the verdict, read by the waiter after: the waiters behind it.
    others: UnsafeCell<*mut Node<Load<T>>>,
}

/// A thread asleep in [`Squeue::enter_blocking`], and where it looks for the grant.
pub(super) struct Waiter<T> {
    thread: thread::Thread,
    /// On the sleeping thread's stack; valid until a verdict is stored in it.
    grant: *const Grant<T>,
}

/// The owner's message to a waiter.
#[derive(Clone, Copy)]
pub(super) enum Verdict {
    Granted = 1,
    Poisoned = 2,
}

impl<T> Squeue<T> {
    /// Sleeps until the caller is inside. **Blocks**, for as long as others are inside and for the
    /// items that were queued before.
    ///
    /// For the settings in which a call waits for the protocol (`sync`), and for effects that must be
    /// complete when a call returns. A thread that is inside this squeue and calls this waits for itself.
    ///
    /// # Errors
    /// [`Poisoned`] if the squeue is, or becomes so while waiting.
    pub fn enter_blocking(&self) -> Result<Inside<'_, T>, Poisoned> {
        if let Some(inside) = self.try_enter() {
            return Ok(inside);
        }
        let grant = Grant { state: AtomicU32::new(WAITING), others: UnsafeCell::new(ptr::null_mut()) };
        let waiter = Waiter { thread: thread::current(), grant: &raw const grant };
        let node = Node::boxed(Load::Waiter(waiter));
        let pushed = self.push(node, IfFree::Enter);
        if pushed != Pushed::Onto {
            // SAFETY: the node was not pushed, so it is still ours.
            drop(unsafe { Node::unbox(node) });
        }
        match pushed {
            Pushed::Onto => self.await_verdict(&grant),
            // SAFETY: the push made us the owner.
            Pushed::NotEntered => Ok(unsafe { Inside::new(self) }),
            Pushed::NotPoisoned => Err(Poisoned),
            Pushed::Scheduled => unreachable!("a free squeue was to be entered"),
        }
    }

    fn await_verdict(&self, grant: &Grant<T>) -> Result<Inside<'_, T>, Poisoned> {
        loop {
            // Acquire: with the release in `notify`.
            match grant.state.load(Ordering::Acquire) {
                WAITING => thread::park(),
                GRANTED => break,
                POISONED => return Err(Poisoned),
                other => unreachable!("{other} is no verdict"),
            }
        }
        // SAFETY: the owner wrote it before the verdict and does not touch it again.
        let others = grant.others.with(|others| unsafe { *others });
        // SAFETY: the former owner gave us the squeue and the list.
        Ok(unsafe { Inside::granted(self, others) })
    }
}

/// Tells the waiter of `node` its verdict, leaves it `others`, and wakes it. A system call; never
/// blocks.
///
/// # Safety
/// The caller owns `node`, which carries a waiter, and the list `others`, and gives up both.
pub(super) unsafe fn notify<T>(node: *mut Node<Load<T>>, verdict: Verdict, others: *mut Node<Load<T>>) {
    // SAFETY: the caller owns the node.
    let waiter = match unsafe { Node::unbox(node) } {
        Load::Waiter(waiter) => waiter,
        Load::Item(_) => unreachable!("the node carries a waiter"),
    };
    // SAFETY: the waiter does not return before it has read a verdict, which is not stored yet.
    let grant = unsafe { &*waiter.grant };
    // SAFETY: the waiter reads it only after the verdict.
    grant.others.with_mut(|rest| unsafe { *rest = others });
    // Release: `others` and all that was done inside, with the acquire in `await_verdict`. From
    // here on the grant may be gone.
    grant.state.store(verdict as u32, Ordering::Release);
    waiter.thread.unpark();
}

const WAITING: u32 = 0;
const GRANTED: u32 = Verdict::Granted as u32;
const POISONED: u32 = Verdict::Poisoned as u32;
