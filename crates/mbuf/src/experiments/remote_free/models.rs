//! Models of whole pools, with the caches of their threads: every interleaving of a thread that allocates, one that frees for it, and one that is
//! refused or ends.
//!
//! loom reports memory that is leaked, or given back twice. Threads are on the core that they name (`cpu.rs`); clusters that wait for cores
//! are in one list, whatever the core. Threads end with their caches (`cache.rs`), as threads of a process do.

use std::panic::{AssertUnwindSafe, catch_unwind};

use loom::sync::Arc;
use loom::thread;

use crate::class::Class;
use crate::cluster::Cluster;
use crate::cpu;
use crate::experiments::{RemoteFreeList, RemoteFreeSlot};
use crate::facade::{AtomicUsize, Ordering, fence};
use crate::freed::Freed;
use crate::mbuf::Mbuf;
use crate::pool::Pool;
use crate::store::Store;

/// Bytes of the smallest cluster.
const ONE: usize = Cluster::footprint(Class::B256);
/// More than a [small] pool has.
const TOO_MUCH: usize = 60_000;
/// The core of the thread that allocates, and that of the thread that frees.
const OWNER: u32 = 0;
const OTHER: u32 = 1;

/// Runs `model` under all interleavings with at most three forced switches.
fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

/// A list may hold two of the smallest clusters; the first is a half. Too small for caches of threads.
fn small() -> Pool {
    Pool::of(Store::new(16 * ONE, ONE, true))
}

/// With a cache for each thread.
fn large() -> Pool {
    Pool::of(Store::new(64 << 20, 1 << 20, true))
}

fn freed(mbufs: impl IntoIterator<Item = Mbuf>) -> Freed {
    let mut freed = Freed::new();
    mbufs.into_iter().for_each(|mbuf| freed.release(mbuf));
    freed
}

/// A thread allocates and ends, with its cache and its handle, while another one frees for its core and a worker flushes.
fn an_owner_ends(make: fn() -> Pool) {
    let pool = make();
    let worker = pool.clone();
    let owner = thread::spawn(move || {
        cpu::run_on(OWNER);
        let [listed, cached] = [(); 2].map(|()| pool.alloc(100).expect("far from the cap"));
        let other = pool.clone();
        let remote = thread::spawn(move || {
            cpu::run_on(OTHER);
            other.remote_free_to_cores(freed([listed]), |core| assert_eq!(core, OWNER));
        });
        drop(cached);
        remote
    });
    worker.flush_core(OWNER);
    drop(worker);
    owner.join().unwrap().join().unwrap();
}

#[test]
fn the_list_of_a_thread_that_ends_is_given_back_once() {
    for make in [small, large] {
        check(move || an_owner_ends(make));
    }
}

#[test]
fn nothing_stays_on_a_core_s_list_while_a_caller_is_refused() {
    check(|| {
        let pool = small();
        let mbuf = pool.alloc(100).expect("far from the cap");
        let other = pool.clone();
        let remote = thread::spawn(move || {
            cpu::run_on(OTHER);
            other.remote_free_to_cores(freed([mbuf]), |_| ())
        });
        assert!(pool.alloc(TOO_MUCH).is_err());
        remote.join().unwrap();
        assert!(!pool.has_core_lists());
    });
}

/// Where one connection's memory waits.
struct Lists {
    list: RemoteFreeList,
    slot: RemoteFreeSlot,
    is_closed: AtomicUsize,
}

impl Lists {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            list: RemoteFreeList::new(),
            slot: RemoteFreeSlot::new(),
            is_closed: AtomicUsize::new(0),
        })
    }

    /// Puts it on the list or into the slot, as long as it is open.
    fn put(&self, pool: &Pool, mbuf: Mbuf, is_list: bool) {
        let mut freed = freed([mbuf]);
        // Relaxed: `announce` comes after a fence.
        let announce = || self.is_closed.load(Ordering::Relaxed) == 0;
        if is_list {
            pool.remote_free_to_list(&mut freed, &self.list, ONE, announce);
        } else {
            pool.remote_free_to_slot(&mut freed, &self.slot, announce);
        }
    }

    /// As `RemoteFreeList::take` and `RemoteFreeSlot::take`, which look first: see the models of `remote_list.rs`.
    fn empty(&self) {
        drop(Freed::of_remote_list(self.list.take_list()));
        drop(Freed::of_remote_list(self.slot.take_list()));
    }

    fn is_empty(&self) -> bool {
        self.list.is_empty() && self.slot.is_empty()
    }
}

/// A connection's reader puts memory on its list while its writer is refused.
fn a_writer_is_refused(is_list: bool) {
    let (pool, lists) = (small(), Lists::new());
    let mbuf = pool.alloc(100).expect("far from the cap");
    let (other, reader) = (pool.clone(), lists.clone());
    let reader = thread::spawn(move || {
        cpu::run_on(OTHER);
        reader.put(&other, mbuf, is_list);
    });
    assert!(pool.alloc(TOO_MUCH).is_err());
    lists.empty();
    reader.join().unwrap();
    assert!(lists.is_empty());
}

#[test]
fn nothing_stays_on_a_connection_s_list_while_a_caller_is_refused() {
    for is_list in [true, false] {
        check(move || a_writer_is_refused(is_list));
    }
}

/// A connection closes and gives back the list of its writer, while its reader puts more there. No other thread looks there.
fn a_connection_closes(is_list: bool) {
    let (pool, lists) = (large(), Lists::new());
    let mbuf = pool.alloc(100).expect("far from the cap");
    let (other, reader) = (pool.clone(), lists.clone());
    let reader = thread::spawn(move || {
        cpu::run_on(OTHER);
        reader.put(&other, mbuf, is_list);
    });
    lists.is_closed.store(1, Ordering::Relaxed);
    // Pairs with the fence of the second look.
    fence(Ordering::SeqCst);
    lists.empty();
    reader.join().unwrap();
    assert!(lists.is_empty());
}

#[test]
fn nothing_stays_on_the_list_of_a_connection_that_is_closed() {
    for is_list in [true, false] {
        check(move || a_connection_closes(is_list));
    }
}

/// The last reference to the places goes with their content.
#[test]
fn a_dropped_list_frees_its_clusters() {
    for is_list in [true, false] {
        check(move || {
            let (pool, lists) = (large(), Lists::new());
            let mbuf = pool.alloc(100).expect("far from the cap");
            let (other, reader) = (pool.clone(), lists.clone());
            let reader = thread::spawn(move || {
                cpu::run_on(OTHER);
                reader.put(&other, mbuf, is_list);
            });
            drop(lists);
            drop(pool);
            reader.join().unwrap();
        });
    }
}

/// A kick panics while clusters are on the lists of two cores, and just when a caller is refused: nothing is leaked, and nothing stays on a list.
/// One thread: loom's locks take an unwinding for that of all threads.
#[test]
fn a_kick_that_panics_loses_nothing() {
    check(|| {
        let pool = small();
        let mbufs = [OWNER, OTHER + 1, OWNER].map(|core| {
            cpu::run_on(core);
            pool.alloc(100).expect("far from the cap")
        });
        cpu::run_on(OTHER);
        let kick = |_| {
            assert!(pool.has_core_lists() && pool.alloc(TOO_MUCH).is_err());
            panic!("of a model");
        };
        let put = || pool.remote_free_to_cores(freed(mbufs), kick);
        assert!(catch_unwind(AssertUnwindSafe(put)).is_err());
        assert!(!pool.has_core_lists());
        assert_eq!(pool.in_use(), 0);
    });
}

#[test]
fn an_announcement_that_panics_takes_its_clusters_back() {
    check(|| {
        let (pool, lists) = (large(), Lists::new());
        let [one, other] = [(); 2].map(|()| pool.alloc(100).expect("far from the cap"));
        cpu::run_on(OTHER);
        let announce = || -> bool { panic!("of a model") };
        let (mut listed, mut placed) = (freed([one]), freed([other]));
        let put = || pool.remote_free_to_list(&mut listed, &lists.list, ONE, announce);
        assert!(catch_unwind(AssertUnwindSafe(put)).is_err());
        let put = || pool.remote_free_to_slot(&mut placed, &lists.slot, announce);
        assert!(catch_unwind(AssertUnwindSafe(put)).is_err());
        assert!(lists.is_empty() && (listed.count(), placed.count()) == (1, 1));
    });
}
