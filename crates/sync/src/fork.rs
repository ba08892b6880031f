//! Which process is this? Tells a child of fork(2) from the process that made something.
//!
//! A child has a copy of its parent's memory and one thread, the one that forked. Whatever the other threads of the parent
//! were doing at that moment is never finished there: a lock that one of them held stays locked, a worker to be joined does
//! not exist. So the owner of such a thing keeps an [`Origin`] beside it, and asks it first.
//!
//! # How a child is recognized
//! One page of anonymous memory has `MADV_WIPEONFORK` (Linux 4.14): the kernel hands it to a child filled with zeros,
//! however the child was made. It holds the *generation* of the process. A process that finds 0 there is new, and gives
//! itself a number larger than any that an ancestor had. An origin remembers the generation in which it was made.
//!
//! ```text
//!   0 (wiped) ──first look──► TAKEN ──nonce drawn──► generation      another thread that sees TAKEN yields until it is over
//! ```
//!
//! Where the system does not know the advice, the words stand in ordinary memory and a handler of `pthread_atfork`
//! clears them in the child. That misses a child that is made by a bare clone(2). Where there is no fork(2), every process is new.
//!
//! A fork at any of these steps is harmless: the child finds 0, never `TAKEN`. After `vfork`, whose child shares its
//! parent's memory, nothing of this crate may be called.
//!
//! # Cost
//! [`Origin::is_here`] loads the address of the page, its first word, and the origin's own. No thread writes any of the
//! three after the first look, so the lines stay in every core's cache.
//!
//! Invariant: a generation is never 0, and never that of an ancestor. Nothing here is modelled: loom has no processes, and
//! every origin is here. Tests: below, `tests/fork.rs`.

use core::ptr;

use crate::facade::system;
use crate::facade::unmodelled::{AtomicPtr, AtomicU64, OnceLock, Ordering};

/// The process in which something was made.
#[derive(Debug)]
pub struct Origin {
    /// Written by [`adopt`](Self::adopt) only.
    generation: AtomicU64,
}

impl Origin {
    /// This process.
    pub fn here() -> Self {
        Self { generation: AtomicU64::new(generation()) }
    }

    /// Whether this is still that process, and not a child of it. Three loads.
    #[inline]
    pub fn is_here(&self) -> bool {
        // Acquire, with `adopt`.
        self.generation.load(Ordering::Acquire) == generation()
    }

    /// Declares that this process has taken over its parent's state. The caller makes sure that nothing of it is left
    /// half done.
    pub fn adopt(&self) {
        // Release: a thread that finds that it is here sees all writes of the takeover.
        self.generation.store(generation(), Ordering::Release);
    }
}

/// The number of this process among its ancestors.
#[inline]
pub fn generation() -> u64 {
    if cfg!(loom) {
        return 1;
    }
    let page = PAGE.load(Ordering::Acquire);
    // SAFETY: the pointer is null or that of a page that is never unmapped; see `page`.
    if let Some(page) = unsafe { page.as_ref() } {
        let generation = page.generation.load(Ordering::Acquire);
        if generation != WIPED && generation != TAKEN {
            return generation;
        }
    }
    first_look()
}

/// 16 random bytes that this process shares with no other. A child mixes them into the keys that it has from its parent.
pub fn nonce() -> [u8; 16] {
    generation();
    let words = page().nonce.each_ref().map(|word| word.load(Ordering::Relaxed).to_ne_bytes());
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&words[0]);
    bytes[8..].copy_from_slice(&words[1]);
    bytes
}

/// Memory that a child finds wiped.
struct Page {
    generation: AtomicU64,
    /// Written before `generation`.
    nonce: [AtomicU64; 2],
}

impl Page {
    const fn new() -> Self {
        Self { generation: AtomicU64::new(WIPED), nonce: [const { AtomicU64::new(0) }; 2] }
    }
}

#[cold]
fn first_look() -> u64 {
    let page = page();
    loop {
        match page.generation.compare_exchange(WIPED, TAKEN, Ordering::Acquire, Ordering::Acquire) {
            Ok(_) => break,
            Err(TAKEN) => std::thread::yield_now(),
            Err(generation) => return generation,
        }
    }
    let nonce = random();
    for (word, value) in page.nonce.iter().zip(nonce) {
        word.store(value, Ordering::Relaxed);
    }
    // Copied from the parent, so it is larger than the number of every ancestor.
    let generation = LAST.fetch_add(1, Ordering::Relaxed) + 1;
    if generation > 1 {
        // The threads that these counted are the parent's.
        crate::spin::forget_others();
    }
    page.generation.store(generation, Ordering::Release);
    generation
}

/// The page of this process and its descendants, made at the first call.
fn page() -> &'static Page {
    let known = PAGE.load(Ordering::Acquire);
    // SAFETY: null, or published below.
    if let Some(page) = unsafe { known.as_ref() } {
        return page;
    }
    let made = map().unwrap_or_else(watched);
    // Of two threads that make one, one wins; the other's page is left mapped.
    let won = PAGE.compare_exchange(ptr::null_mut(), made, Ordering::AcqRel, Ordering::Acquire);
    let page = won.map_or_else(|winner| winner, |_null| made);
    // SAFETY: `map` and `watched` give pages that live as long as the process, and are only read and written by atomics.
    unsafe { &*page }
}

/// A page that the kernel wipes at a fork; `None` if it does not offer that.
fn map() -> Option<*mut Page> {
    // `Page::new` is all zeros, and a mapping is aligned for it.
    if cfg!(miri) { None } else { system::wiped_on_fork(PAGE_LEN).map(<*mut u8>::cast) }
}

/// Ordinary memory that a handler clears in the child. A system without fork(2) has no child, and needs no handler.
fn watched() -> *mut Page {
    #[cfg(all(unix, not(miri)))]
    {
        extern "C" fn clear() {
            WATCHED.generation.store(WIPED, Ordering::Relaxed);
        }
        // SAFETY: the handler only stores to a static word, which is allowed after a fork.
        let refused = unsafe { libc::pthread_atfork(None, None, Some(clear)) };
        // Without memory for a handler a child would take itself for its parent.
        assert_eq!(refused, 0, "no memory to register a fork handler");
    }
    ptr::from_ref(&WATCHED).cast_mut()
}

static WATCHED: Page = Page::new();

/// Random words. If the system has none to give, values that no two processes share have to do: the keys that they are
/// mixed with are secret.
fn random() -> [u64; 2] {
    let mut words = [0_u64; 2];
    if cfg!(miri) {
        return words;
    }
    if !system::fill_random(&mut words) {
        words = [u64::from(std::process::id()), crate::cpu::monotonic_micros()];
    }
    words
}

static PAGE: AtomicPtr<Page> = AtomicPtr::new(ptr::null_mut());
/// The largest generation that this process or an ancestor had.
static LAST: AtomicU64 = AtomicU64::new(0);

const WIPED: u64 = 0;
const TAKEN: u64 = u64::MAX;
/// Rounded up to a page by the kernel.
const PAGE_LEN: usize = 4096;
const _: () = assert!(size_of::<Page>() <= PAGE_LEN);

/// A value that each process makes for itself: a static that is never inherited half made or locked.
///
/// A child makes a new one, whatever state its parent's was in; the parent's is then left alone for good.
#[derive(Debug)]
pub struct PerProcess<T> {
    newest: AtomicPtr<Made<T>>,
}

#[derive(Debug)]
struct Made<T> {
    generation: u64,
    value: OnceLock<T>,
}

impl<T: Send + Sync + 'static> PerProcess<T> {
    /// Nothing made yet.
    pub const fn new() -> Self {
        Self { newest: AtomicPtr::new(ptr::null_mut()) }
    }

    /// This process's value, made by `make` at the first call. Threads that come meanwhile wait for it.
    pub fn get_or_init(&self, make: impl FnOnce() -> T) -> &'static T {
        self.made().value.get_or_init(make)
    }

    /// This process's value, if it has been made.
    pub fn get(&self) -> Option<&'static T> {
        self.made().value.get()
    }

    fn made(&self) -> &'static Made<T> {
        let generation = generation();
        let mut newest = self.newest.load(Ordering::Acquire);
        loop {
            // SAFETY: null, or from `Box::into_raw` below, and never freed.
            if let Some(made) = unsafe { newest.as_ref() }
                && made.generation == generation
            {
                return made;
            }
            let own = Box::into_raw(Box::new(Made { generation, value: OnceLock::new() }));
            match self.newest.compare_exchange(newest, own, Ordering::AcqRel, Ordering::Acquire) {
                // SAFETY: from `Box::into_raw` just now, and never freed.
                Ok(_) => return unsafe { &*own },
                Err(faster) => {
                    // SAFETY: no other thread has seen it.
                    drop(unsafe { Box::from_raw(own) });
                    newest = faster;
                }
            }
        }
    }
}

impl<T: Send + Sync + 'static> Default for PerProcess<T> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn threads_agree_on_the_process_and_on_its_values() {
        static MADE: PerProcess<u64> = PerProcess::new();
        let origin = Origin::here();
        let seen: Vec<_> = std::thread::scope(|scope| {
            let look = |n: u64| (generation(), nonce(), origin.is_here(), *MADE.get_or_init(|| n));
            let threads: Vec<_> = (0..4).map(|n| scope.spawn(move || look(n))).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        assert!(seen.iter().all(|look| look.2 && *look == seen[0]), "{seen:?}");
        assert_ne!(seen[0].0, 0);
    }

    #[test]
    #[cfg_attr(miri, ignore = "the interpreter cannot map pages or fork")]
    fn both_kinds_of_page_are_wiped_in_a_child_and_stay_in_the_parent() {
        let Some(mapped) = map() else {
            // Then the page with a handler is this process's own; `tests/fork.rs` forks with it.
            return println!("skipped: this kernel wipes no pages");
        };
        for page in [mapped, watched()] {
            // SAFETY: pages that live for ever.
            let generation = unsafe { &(*page).generation };
            assert_eq!(generation.swap(7, Ordering::Relaxed), WIPED);
            // SAFETY: the child reads a word and ends.
            let pid = unsafe { libc::fork() };
            if pid == 0 {
                let is_wiped = generation.load(Ordering::Relaxed) == WIPED;
                // SAFETY: no precondition.
                unsafe { libc::_exit(i32::from(!is_wiped)) }
            }
            let mut status = -1;
            // SAFETY: the place is writable.
            assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
            assert_eq!((status, generation.load(Ordering::Relaxed)), (0, 7));
        }
    }
}
