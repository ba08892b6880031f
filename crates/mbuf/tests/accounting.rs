//! Nothing gets lost: counts of clusters and bytes are right, and memory goes back.
#![cfg(not(loom))]

use std::cell::RefCell;
use std::sync::mpsc::channel;
use std::thread::{self, ScopedJoinHandle};

use sockeye_mbuf::{CLUSTER_MAX, Class, Freed, Mbuf, Pool, PoolConfig};

mod common;
use common::{cores, on};

fn pool() -> Pool {
    Pool::new(PoolConfig::default())
}

fn alloc(pool: &Pool, want: usize) -> Mbuf {
    pool.alloc(want).expect("far from the cap")
}

/// Waits for the end of the thread itself, thread-locals included. The end of a scope would wait for
/// the closure only.
fn join<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().expect("no panic")
}

#[test]
fn use_and_memory_rise_and_fall_with_the_mbufs_held() {
    let pool = pool();
    let mut held = Vec::new();
    let mut expected = 0;
    for want in [0, 256, 2048, 16 * 1024, CLUSTER_MAX, CLUSTER_MAX + 1] {
        let mbuf = alloc(&pool, want);
        assert!(mbuf.is_empty());
        assert!(mbuf.capacity() >= want.min(CLUSTER_MAX));
        expected += mbuf.footprint();
        held.push(mbuf);
        assert_eq!(pool.in_use(), expected);
        assert_eq!(pool.allocated(), expected);
    }
    let views: Vec<Mbuf> = held.clone();
    drop(held);
    assert_eq!(pool.in_use(), expected, "views keep clusters");
    drop(views);
    assert_eq!(pool.in_use(), 0);
    assert_eq!(pool.allocated(), expected, "idle clusters are kept for reuse");
    pool.trim();
    assert_eq!(pool.allocated(), 0);
}

#[test]
fn only_the_last_view_frees_and_cached_memory_counts_until_it_is_returned() {
    let pool = pool();
    let mbuf = alloc(&pool, 100);
    let (view, footprint) = (mbuf.clone(), mbuf.footprint());
    let mut freed = Freed::new();
    freed.release(mbuf);
    assert!(freed.is_empty());
    freed.release(view);
    assert_eq!((freed.count(), freed.footprint()), (1, footprint));
    assert_eq!(pool.in_use(), footprint);
    drop(freed);
    assert_eq!((pool.in_use(), pool.stats().class(Class::B256).frees()), (0, 1));
}

#[test]
fn a_freed_cluster_is_the_next_one_allocated() {
    on(cores().0, || {
        let pool = pool();
        let mut mbuf = alloc(&pool, 100);
        mbuf.try_extend(b"x");
        let place = mbuf.as_ptr();
        drop(mbuf);
        let mut mbuf = alloc(&pool, 100);
        mbuf.try_extend(b"y");
        assert_eq!(mbuf.as_ptr(), place);
        let stats = *pool.stats().class(Class::B256);
        assert_eq!((stats.fresh, stats.local_hits, stats.local_frees), (1, 1, 1));
    });
}

#[test]
fn frees_on_another_core_are_counted_as_remote_and_stay_there() {
    let pool = pool();
    let (first, second) = cores();
    let here = on(first, || alloc(&pool, 2048));
    assert_eq!(here.alloc_core() as usize, first);
    let bytes = here.footprint();
    on(second, || {
        drop(here);
        // It came to this thread's cache, and is this core's when allocated again.
        let again = alloc(&pool, 2048);
        assert_eq!(again.alloc_core() as usize, second);
        assert_eq!(pool.allocated(), bytes);
    });
    let stats = *pool.stats().class(Class::K2);
    // With one core there is no other.
    let remote = u64::from(first != second);
    assert_eq!((stats.remote_frees, stats.local_frees, stats.fresh), (remote, 2 - remote, 1));
    // The thread is gone and left its cache to the depot, from where this thread is served.
    assert_eq!(pool.stats().depot, bytes);
    let _mbuf = alloc(&pool, 2048);
    assert_eq!(pool.stats().class(Class::K2).depot_loads, 1);
    assert_eq!(pool.allocated(), bytes);
}

#[test]
fn a_thread_keeps_no_more_than_its_cache_holds() {
    on(cores().0, || {
        let pool = pool();
        for (class, kept) in [(Class::B256, 64), (Class::K2, 32), (Class::K16, 8), (Class::K64, 2)] {
            let held: Vec<Mbuf> = (0..kept + 40).map(|_| alloc(&pool, class.capacity())).collect();
            let footprint = held[0].footprint();
            let depot_before = pool.stats().depot;
            drop(held);
            let in_depot = (pool.stats().depot - depot_before) / footprint;
            assert!((40..=40 + kept / 2).contains(&in_depot), "{class:?}: {in_depot}");
        }
    });
}

#[test]
fn a_thread_keeps_fewer_bulk_clusters_of_another_core_than_go_home_together() {
    let (first, second) = cores();
    if first == second {
        eprintln!("skipped: one core has no other");
        return;
    }
    let pool = pool();
    let held: Vec<Mbuf> = on(first, || (0..42).map(|_| alloc(&pool, CLUSTER_MAX)).collect());
    let footprint = held[0].footprint();
    on(second, || {
        drop(held);
        assert_eq!(pool.stats().depot, 40 * footprint);
        assert_eq!(pool.stats().class(Class::K64).remote_frees, 42);
        // The two that did not go are used first.
        let _two = [alloc(&pool, CLUSTER_MAX), alloc(&pool, CLUSTER_MAX)];
        assert_eq!(pool.stats().depot, 40 * footprint);
    });
}

#[test]
fn the_depot_returns_clusters_beyond_its_bound_to_the_system() {
    on(cores().0, || {
        let depot_max = 10 * 70_000;
        let pool = Pool::new(PoolConfig { depot_max, ..PoolConfig::default() });
        let held: Vec<Mbuf> = (0..100).map(|_| alloc(&pool, CLUSTER_MAX)).collect();
        drop(held);
        let stats = pool.stats();
        assert!(stats.depot <= depot_max, "{}", stats.depot);
        assert!(stats.allocated <= depot_max + 2 * 70_000, "{}", stats.allocated);
        assert!(stats.allocated > 0);
    });
}

#[test]
fn without_reuse_each_free_returns_the_memory_and_each_allocation_is_a_new_one() {
    let pool = Pool::new(PoolConfig { reuse: false, ..PoolConfig::default() });
    for want in [0, 2048, CLUSTER_MAX] {
        let (one, other) = (alloc(&pool, want), alloc(&pool, want));
        assert_eq!(pool.allocated(), one.footprint() + other.footprint());
        drop(one);
        assert_eq!(pool.allocated(), other.footprint());
        thread::scope(|scope| scope.spawn(|| drop(other)).join().expect("no panic"));
        assert_eq!(pool.allocated(), 0);
    }
    let class = *pool.stats().class(Class::K2);
    assert_eq!((class.fresh, class.local_hits), (2, 0));
}

#[test]
fn trim_reaches_the_caches_of_other_threads_when_they_next_work() {
    let pool = pool();
    let (go, gone) = channel::<()>();
    let (done, doing) = channel::<()>();
    let other = pool.clone();
    let thread = thread::spawn(move || {
        drop(alloc(&other, 2048));
        done.send(()).expect("the test listens");
        gone.recv().expect("the test says go");
        drop(alloc(&other, 256));
        done.send(()).expect("the test listens");
        gone.recv().expect("the test says go");
    });
    doing.recv().expect("the thread works");
    pool.trim();
    assert!(pool.allocated() > 0, "an idle thread's cache is its own");
    go.send(()).expect("the thread waits");
    doing.recv().expect("the thread works");
    assert_eq!(pool.stats().in_use(), 0);
    let small = alloc(&pool, 1).footprint();
    pool.trim();
    assert_eq!(pool.allocated(), small, "only what was freed since is kept");
    go.send(()).expect("the thread waits");
    thread.join().expect("no panic");
    pool.trim();
    assert_eq!(pool.allocated(), 0);
}

#[test]
fn a_thread_that_ends_leaves_only_its_counts() {
    let pool = pool();
    for _ in 0..3 {
        thread::scope(|scope| {
            join(scope.spawn(|| {
                let _held: Vec<Mbuf> = (0..100).map(|_| alloc(&pool, 256)).collect();
            }));
        });
    }
    let stats = *pool.stats().class(Class::B256);
    assert_eq!((stats.allocs(), stats.frees(), stats.live()), (300, 300, 0));
    pool.trim();
    assert_eq!(pool.allocated(), 0);
}

#[test]
fn mbufs_outlive_the_pool() {
    let pool = pool();
    let mut mbuf = alloc(&pool, 100);
    drop(alloc(&pool, 100));
    drop(pool);
    assert_eq!(mbuf.try_extend(b"still here"), 10);
    let view = mbuf.slice(6..);
    drop(mbuf);
    // The last view goes on a thread that never knew the pool.
    thread::spawn(move || assert_eq!(&*view, b"here")).join().expect("no panic");
}

#[test]
fn a_thread_may_use_several_pools_in_turn() {
    let pools: Vec<Pool> = (0..4).map(|_| pool()).collect();
    let mut held = Vec::new();
    for round in 0..10 {
        for pool in &pools {
            held.push(alloc(pool, 256 << (round % 3)));
        }
    }
    for pool in &pools {
        assert_eq!(pool.in_use(), held.iter().step_by(4).map(Mbuf::footprint).sum::<usize>());
    }
    drop(held);
    for pool in &pools {
        assert_eq!(pool.in_use(), 0);
        pool.trim();
        assert_eq!(pool.allocated(), 0);
    }
}

#[test]
fn mbufs_may_be_dropped_and_allocated_while_a_thread_ends() {
    struct AtExit(Option<(Pool, Mbuf)>);
    impl Drop for AtExit {
        fn drop(&mut self) {
            if let Some((pool, mbuf)) = self.0.take() {
                drop(alloc(&pool, 2048));
                drop(mbuf);
            }
        }
    }
    thread_local! {
        static EARLY: RefCell<AtExit> = const { RefCell::new(AtExit(None)) };
        static LATE: RefCell<AtExit> = const { RefCell::new(AtExit(None)) };
    }
    let pool = pool();
    thread::scope(|scope| {
        join(scope.spawn(|| {
            // One is registered before the thread's cache and one after: whichever order thread-locals
            // end in, one of them outlives the cache.
            EARLY.with_borrow_mut(|_| ());
            let (first, second) = (alloc(&pool, 256), alloc(&pool, 256));
            EARLY.with_borrow_mut(|at_exit| at_exit.0 = Some((pool.clone(), first)));
            LATE.with_borrow_mut(|at_exit| at_exit.0 = Some((pool.clone(), second)));
        }));
    });
    assert_eq!(pool.in_use(), 0);
    let stats = pool.stats();
    assert_eq!((stats.class(Class::B256).frees(), stats.class(Class::K2).frees()), (2, 2));
    pool.trim();
    assert_eq!(pool.allocated(), 0);
}
