//! Two linked control blocks: a mutex in each, taken alone or in pairs, and the pointer from one to the
//! other.
//!
//! # Locks and their order
//!
//! There is one mutex per block. Two of them are taken in ascending order of the blocks' addresses; a thread that
//! holds one and wants a lower one may *try*, and else goes the long way (below). A block that is linked
//! to itself is locked once.
//!
//! # When the pointer may be followed
//!
//! `peer` of a block is read and written under that block's mutex. While that is held the block pointed
//! to exists. To go on with the peer after unlocking one needs a *hold*, a reference of one's own, and has
//! to look at `peer` again after locking anew.
//!
//! # The long way, and why one look at `peer` is enough after it
//!
//! ```text
//!   lock a; b = a.peer; b is lower and taken:
//!       a.busy += 1; hold b; unlock a        <- the window
//!       lock b; lock a; a.busy -= 1          (0: tell the thread that waits to link)
//!       a.peer is b: the pair is ours        a.peer is none: another thread unlinked a
//! ```
//!
//! While `busy` is not 0 a pointer changes only to *none*, never to a third block: a thread that wants to link `a`
//! anew ([`relink`]) waits until it is 0. Without that rule an `a` that was unlinked from `b` and linked to
//! `c` and back to `b` in the window would look as if nothing had happened.
//!
//! # What changes with the pointer
//!
//! State that the owner keeps beside a pointer, such as the one peer that a block receives from, changes in the section that changes the
//! pointer: `admit` of [`relink`] and [`unlink_if`] runs under the mutexes that guard it. A look at the peer that is to be followed by an
//! unlinking belongs into `admit` as well: in a section of its own, it would say nothing of the peer that is unlinked.
//!
//! # Why no wake-up is lost
//!
//! A thread that waits for `busy == 0` takes its ticket under `a`'s mutex, in the section that saw it greater; the thread that
//! takes it to 0 notifies under the same mutex, and wakes after all locks.
//!
//! Does not depend on the type of blocks, or on the work under the locks. Both references of a pair linked in
//! both directions make a cycle, so [`unlink_both`] or two [`unlink`]s must end it. Tests:
//! `tests/loom/pair.rs`, and below.

mod remembered;

pub use remembered::Remembered;

use crate::facade::{Arc, TryMutex, TryMutexGuard};
use crate::spin::Spin;
use crate::wait::WaitQueue;

/// A block that can be linked.
pub trait Linked: Sized {
    /// The block's mutex and pointer.
    fn link(&self) -> &Link<Self>;
}

/// A block's mutex and pointer; see the head of the file.
#[derive(Debug)]
pub struct Link<T> {
    state: TryMutex<State<T>>,
    /// Threads that wait for `busy == 0`.
    idle: WaitQueue,
}

#[derive(Debug)]
struct State<T> {
    peer: Option<Arc<T>>,
    /// Threads in the window of the long way.
    busy: u32,
}

/// Cost of a call, for counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PairCost {
    /// Mutexes of blocks that were taken.
    pub locks: u32,
    /// Times that the long way was gone.
    pub slow: u32,
    /// Times that a link waited for a thread in the window.
    pub busy_waits: u32,
}

impl<T> Link<T> {
    /// A block that is linked to nothing.
    pub fn new() -> Self {
        Self { state: TryMutex::new(State { peer: None, busy: 0 }), idle: WaitQueue::new() }
    }

    /// A hold on the peer. Takes the mutex for a moment.
    pub fn peer(&self) -> Option<Arc<T>> {
        self.state.lock().peer.clone()
    }

    /// Runs `f` under the block's mutex.
    pub fn locked<R>(&self, f: impl FnOnce() -> R) -> R {
        let _own = self.state.lock();
        f()
    }
}

impl<T> Default for Link<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// Runs `f` with the peer of `a` under the peer's mutex, having held both; `None` if `a` has no peer.
/// `known` is a hold that the caller has: if it is the peer, no reference is counted. Blocks for the
/// mutexes only.
pub fn with_peer<T: Linked, R>(
    a: &T,
    known: Option<&Arc<T>>,
    f: impl FnOnce(&Arc<T>) -> R,
) -> (Option<R>, PairCost) {
    let mut cost = PairCost { locks: 1, ..PairCost::default() };
    let own = a.link().state.lock();
    let Some(peer) = own.peer.as_ref() else { return (None, cost) };
    if core::ptr::eq::<T>(&**peer, a) {
        return (Some(f(peer)), cost);
    }
    // Declared before the guards: it may be the last reference, and goes after they are unlocked.
    let hold;
    let b: &Arc<T> = match known {
        Some(known) if Arc::ptr_eq(known, peer) => known,
        Some(_) | None => {
            hold = Arc::clone(peer);
            &hold
        }
    };
    cost.locks += 1;
    let (own, theirs) = match b.link().state.try_lock() {
        Some(theirs) => (own, theirs),
        None if is_below(a, &**b) => (own, b.link().state.lock()),
        None => {
            cost.slow += 1;
            cost.locks += 1;
            let (own, theirs, owed) = the_long_way(a, b, own);
            let is_linked = own.peer.is_some();
            drop(own);
            // Also if `f` panics: a thread that waits to link `a` would wait for ever.
            let owed = owed.then(|| Owed(&a.link().idle));
            let result = is_linked.then(|| f(b));
            drop(theirs);
            drop(owed);
            return (result, cost);
        }
    };
    drop(own);
    let result = f(b);
    drop(theirs);
    (Some(result), cost)
}

/// A wake that is given when this is dropped.
struct Owed<'a>(&'a WaitQueue);

impl Drop for Owed<'_> {
    fn drop(&mut self) {
        self.0.wake();
    }
}

/// Both guards, and whether a thread that waits to link `a` is owed a wake. Afterwards `a`'s peer is `b` or none.
fn the_long_way<'a, T: Linked>(
    a: &'a T,
    b: &'a T,
    mut own: TryMutexGuard<'a, State<T>>,
) -> (TryMutexGuard<'a, State<T>>, TryMutexGuard<'a, State<T>>, bool) {
    own.busy += 1;
    drop(own);
    let theirs = b.link().state.lock();
    let mut own = a.link().state.lock();
    own.busy -= 1;
    let owed = own.busy == 0 && a.link().idle.notify().is_wake_owed();
    let is_same = own.peer.as_ref().is_none_or(|peer| core::ptr::eq::<T>(&**peer, b));
    assert!(is_same, "a pointer changed to a third block while a thread was in the window");
    (own, theirs, owed)
}

/// Runs `f` under the mutexes of both blocks, or of the one if they are the same.
pub fn with_both<T: Linked, R>(a: &T, b: &T, f: impl FnOnce() -> R) -> (R, PairCost) {
    let mut cost = PairCost::default();
    let _both = lock_two(a, b, &mut cost);
    (f(), cost)
}

/// Points `a` at `b`, and returns its old target. `admit` is asked under both mutexes whether that may be,
/// with the peer that `b` has. Waits until no thread is in `a`'s window.
///
/// # Errors
/// The error of `admit`; nothing is changed then.
pub fn relink<T: Linked, E>(
    a: &T,
    b: &Arc<T>,
    mut admit: impl FnMut(Option<&Arc<T>>) -> Result<(), E>,
) -> (Result<Option<Arc<T>>, E>, PairCost) {
    let mut cost = PairCost::default();
    loop {
        let (mut own, theirs) = lock_two(a, b, &mut cost);
        if own.busy > 0 {
            let ticket = a.link().idle.prepare();
            drop(theirs);
            drop(own);
            cost.busy_waits += 1;
            let _again = a.link().idle.wait(ticket, None, Spin::OFF);
            continue;
        }
        let admitted = admit(theirs.as_ref().map_or(own.peer.as_ref(), |theirs| theirs.peer.as_ref()));
        let done = admitted.map(|()| own.peer.replace(Arc::clone(b)));
        return (done, cost);
    }
}

/// Links two new blocks in both directions. They must not be linked yet.
pub fn link_both<T: Linked>(a: &Arc<T>, b: &Arc<T>) -> PairCost {
    let mut cost = PairCost::default();
    let (mut own, theirs) = lock_two(&**a, b, &mut cost);
    own.peer = Some(Arc::clone(b));
    if let Some(mut theirs) = theirs {
        theirs.peer = Some(Arc::clone(a));
    }
    cost
}

/// Points `a` at nothing; returns its old target.
pub fn unlink<T: Linked>(a: &T) -> (Option<Arc<T>>, PairCost) {
    unlink_if(a, |_| true)
}

/// Points `a` at nothing, if `admit` says so of its target, if any; returns the old target. `admit` runs under the mutex of `a`. If it
/// panics nothing is changed.
pub fn unlink_if<T: Linked>(
    a: &T,
    admit: impl FnOnce(Option<&Arc<T>>) -> bool,
) -> (Option<Arc<T>>, PairCost) {
    let mut own = a.link().state.lock();
    let old = if admit(own.peer.as_ref()) { own.peer.take() } else { None };
    drop(own);
    (old, PairCost { locks: 1, ..PairCost::default() })
}

/// Ends the link between `a` and `b` in both directions, under both mutexes. Pointers to other blocks stay.
pub fn unlink_both<T: Linked>(a: &T, b: &T) -> PairCost {
    let mut cost = PairCost::default();
    let (mut own, mut theirs) = lock_two(a, b, &mut cost);
    let points_at = |state: &State<T>, at: &T| state.peer.as_ref().is_some_and(|p| core::ptr::eq(&**p, at));
    let first = if points_at(&own, b) { own.peer.take() } else { None };
    let second = match &mut theirs {
        Some(theirs) if points_at(theirs, a) => theirs.peer.take(),
        Some(_) | None => None,
    };
    drop(theirs);
    drop(own);
    // After the mutexes: they may be last references.
    drop((first, second));
    cost
}

/// Both mutexes in their order; the second is none if `a` is `b`.
fn lock_two<'a, T: Linked>(
    a: &'a T,
    b: &'a T,
    cost: &mut PairCost,
) -> (TryMutexGuard<'a, State<T>>, Option<TryMutexGuard<'a, State<T>>>) {
    cost.locks += 1;
    if core::ptr::eq(a, b) {
        return (a.link().state.lock(), None);
    }
    cost.locks += 1;
    if is_below(a, b) {
        let own = a.link().state.lock();
        (own, Some(b.link().state.lock()))
    } else {
        let theirs = b.link().state.lock();
        (a.link().state.lock(), Some(theirs))
    }
}

/// The order of blocks.
fn is_below<T>(a: &T, b: &T) -> bool {
    core::ptr::from_ref(a).addr() < core::ptr::from_ref(b).addr()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    struct Block(Link<Block>);

    impl Linked for Block {
        fn link(&self) -> &Link<Self> {
            &self.0
        }
    }

    fn block() -> Arc<Block> {
        Arc::new(Block(Link::new()))
    }

    #[test]
    fn a_block_without_a_peer_and_one_linked_to_itself_take_one_mutex() {
        let a = block();
        assert_eq!(with_peer(&*a, None, |_| ()), (None, PairCost { locks: 1, ..PairCost::default() }));
        let (old, _) = relink(&*a, &a, |peer| if peer.is_some() { Err(()) } else { Ok(()) });
        assert!(old.unwrap().is_none());
        let (is_self, cost) = with_peer(&*a, None, |peer| Arc::ptr_eq(peer, &a));
        assert_eq!((is_self, cost.locks), (Some(true), 1));
        assert!(unlink(&*a).0.is_some());
        assert_eq!(Arc::strong_count(&a), 1);
    }

    #[test]
    fn a_refused_link_changes_nothing_and_a_new_one_returns_the_old() {
        let (a, b, c) = (block(), block(), block());
        link_both(&a, &b);
        // c is not the peer that b talks to.
        let admit = |me: &Arc<Block>, peer: Option<&Arc<Block>>| match peer {
            Some(peer) if !Arc::ptr_eq(peer, me) => Err("not your peer"),
            Some(_) | None => Ok(()),
        };
        let refused = relink(&*c, &b, |peer| admit(&c, peer)).0;
        assert_eq!(refused.err(), Some("not your peer"));
        assert!(c.link().peer().is_none());
        let old = relink(&*a, &c, |peer| admit(&a, peer)).0.unwrap().unwrap();
        assert!(Arc::ptr_eq(&old, &b));
        // b still points at a, c at nothing: only links that point at the other are removed.
        unlink_both(&*a, &*b);
        assert!(b.link().peer().is_none());
        assert!(Arc::ptr_eq(&a.link().peer().unwrap(), &c));
    }
}
