//! Clusters that another core allocated wait for it where they are put, within the bounds, and nowhere else; memory
//! that is wanted does not wait. On a machine with one core nothing is foreign, and nothing goes to a list.
#![cfg(not(loom))]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use sockeye_mbuf::{
    CLUSTER_MAX, CORE_BYTES_MAX, Class, Freed, MEMORY_MIN, Mbuf, Pool, PoolConfig, RemoteFreeList,
    RemoteFreeSlot, Seen,
};

mod common;
use common::{cores, on, run_on};

/// Clusters of a core of their own, and a core to free them on. `None` with one core.
fn foreign(pool: &Pool, want: usize, count: usize) -> Option<(Vec<Mbuf>, usize)> {
    let (first, second) = cores();
    let mbufs = on(first, || (0..count).map(|_| pool.alloc(want).expect("far from the cap")).collect());
    (first != second).then_some((mbufs, second))
}

fn freed(mbufs: impl IntoIterator<Item = Mbuf>) -> Freed {
    let mut freed = Freed::new();
    mbufs.into_iter().for_each(|mbuf| freed.release(mbuf));
    freed
}

fn listed(pool: &Pool) -> usize {
    pool.stats().remote_listed()
}

#[test]
fn a_slot_keeps_one_of_another_core_and_leaves_the_rest() {
    for reuse in [true, false] {
        slot_keeps_one(&Pool::new(PoolConfig { reuse, ..PoolConfig::default() }));
    }
}

fn slot_keeps_one(pool: &Pool) {
    let Some((mbufs, second)) = foreign(pool, 2048, 3) else { return };
    let (slot, footprint) = (RemoteFreeSlot::new(), mbufs[0].footprint());
    on(second, || {
        let own = pool.alloc(2048).unwrap();
        let mut freed = freed(mbufs.into_iter().chain([own]));
        let mut announced = 0;
        pool.remote_free_to_slot(&mut freed, &slot, || {
            announced += 1;
            true
        });
        assert_eq!((freed.count(), announced, listed(pool)), (3, 1, footprint));
        pool.remote_free_to_slot(&mut freed, &slot, || unreachable!("the slot is taken"));
        assert_eq!(freed.count(), 3);
    });
    assert_eq!(pool.in_use(), 0, "what is on a list is not in use");
    on(cores().0, || drop(slot.take()));
    let stats = *pool.stats().class(Class::K2);
    assert_eq!(
        (stats.remote_lists.listed, stats.remote_lists.taken, stats.remote_lists.listed_now()),
        (1, 1, 0)
    );
    // Home again: one from the slot. On the other core: its own, and two that found no room, one of them twice.
    assert_eq!((stats.local_frees, stats.remote_frees, stats.remote_lists.overflows), (2, 2, 4));
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn a_list_stays_within_its_bound_and_a_refused_cluster_goes_back() {
    let pool = Pool::new(PoolConfig::default());
    let Some((mut mbufs, second)) = foreign(&pool, 2048, 6) else { return };
    let (list, footprint) = (RemoteFreeList::new(), mbufs[0].footprint());
    on(second, || {
        let mut refused = freed(mbufs.pop());
        pool.remote_free_to_list(&mut refused, &list, 4 * footprint, || false);
        assert_eq!((refused.count(), listed(&pool)), (1, 0));
        refused.append(freed(mbufs));
        pool.remote_free_to_list(&mut refused, &list, 4 * footprint, || true);
        assert_eq!((refused.count(), listed(&pool)), (2, 4 * footprint));
    });
    assert_eq!(list.take().count(), 4);
    assert_eq!((listed(&pool), pool.in_use()), (0, 0));
}

#[test]
fn the_core_that_allocates_finds_the_clusters_that_others_freed() {
    let pool = Pool::new(PoolConfig::default());
    let Some((mbufs, second)) = foreign(&pool, 2048, 10) else { return };
    let mut kicks = 0;
    on(second, || assert!(pool.remote_free_to_cores(freed(mbufs), |_| kicks += 1)));
    assert!(pool.has_core_lists());
    on(cores().0, || {
        let held: Vec<_> = (0..10).map(|_| pool.alloc(2048).unwrap()).collect();
        assert_eq!((listed(&pool), kicks), (0, 0));
        drop(held);
    });
    let stats = *pool.stats().class(Class::K2);
    // A thread's end takes its cache to the depot, where the next one of that core may find it.
    assert_eq!((stats.fresh, stats.remote_frees), (10, 0));
}

#[test]
fn a_core_list_kicks_at_half_and_stops_at_its_bound() {
    let pool = Pool::new(PoolConfig::default());
    let fits = CORE_BYTES_MAX / (CLUSTER_MAX + 64);
    let (first, _) = cores();
    let Some((mbufs, second)) = foreign(&pool, CLUSTER_MAX, fits + 3) else { return };
    on(second, || {
        let mut kicks = Vec::new();
        for mbuf in mbufs {
            pool.remote_free_to_cores(freed([mbuf]), |core| kicks.push(core as usize));
            assert!(listed(&pool) <= CORE_BYTES_MAX);
        }
        assert_eq!(kicks, [first]);
        let stats = *pool.stats().class(Class::K64);
        assert_eq!(
            (stats.remote_lists.listed_now(), stats.remote_frees, stats.remote_lists.overflows),
            (fits as u64, 3, 3)
        );
        assert_eq!(pool.flush_core(first as u32), fits * (CLUSTER_MAX + 64));
        assert_eq!((listed(&pool), pool.flush_core(first as u32)), (0, 0));
    });
}

#[test]
fn untouched_lists_are_flushed_at_the_second_look() {
    let pool = Pool::new(PoolConfig::default());
    let Some((mut mbufs, second)) = foreign(&pool, 2048, 2) else { return };
    on(second, || {
        let mut seen = Seen::default();
        assert!(!pool.flush_stale(&mut seen));
        pool.remote_free_to_cores(freed(mbufs.pop()), |_| ());
        assert!(pool.flush_stale(&mut seen));
        pool.remote_free_to_cores(freed(mbufs.pop()), |_| ());
        assert!(pool.flush_stale(&mut seen), "a thread has touched it");
        assert!(!pool.flush_stale(&mut seen));
        assert_eq!(listed(&pool), 0);
    });
}

#[test]
fn a_caller_that_is_refused_gets_the_cores_lists_first() {
    let pool = Pool::new(PoolConfig::with_memory_max(MEMORY_MIN));
    let Some((mut mbufs, second)) = foreign(&pool, 256, 20) else { return };
    on(second, || pool.remote_free_to_cores(freed(mbufs.split_off(10)), |_| ()));
    assert!(listed(&pool) > 0);
    let mut held = Vec::new();
    while let Ok(mbuf) = pool.alloc(CLUSTER_MAX) {
        held.push(mbuf);
    }
    assert_eq!(listed(&pool), 0);
    assert!(!pool.lists_remote_frees());
    on(second, || {
        assert!(!pool.remote_free_to_cores(freed(mbufs), |_| ()), "nothing goes to a list meanwhile")
    });
    assert_eq!(listed(&pool), 0);
}

#[test]
fn trimming_and_closing_leave_nothing_on_a_list() {
    let pool = Pool::new(PoolConfig::default());
    let Some((mut mbufs, second)) = foreign(&pool, 2048, 3) else { return };
    let put = |mbufs: Vec<Mbuf>| on(second, || pool.remote_free_to_cores(freed(mbufs), |_| ()));
    assert!(put(vec![mbufs.pop().unwrap()]));
    pool.trim();
    assert_eq!(listed(&pool), 0);
    let slot = RemoteFreeSlot::new();
    let last = mbufs.pop();
    on(second, || pool.remote_free_to_slot(&mut freed(last), &slot, || true));
    assert!(put(mbufs));
    // The slot outlives the pool; its content goes to the system with it.
    drop(pool);
    drop(slot);
}

#[test]
fn threads_that_park_and_allocate_at_once_lose_nothing_and_stay_within_the_bound() {
    let (first, second) = cores();
    let pool = Pool::new(PoolConfig::with_memory_max(MEMORY_MIN));
    let (to, from) = std::sync::mpsc::sync_channel::<Mbuf>(64);
    let rounds = if cfg!(miri) { 100 } else { 20_000 };
    let over = Arc::new(AtomicBool::new(false));
    thread::scope(|scope| {
        let watch = scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let sum: usize = (0..pool.core_list_count()).map(|core| pool.listed_for(core as u32)).sum();
                assert!(sum <= MEMORY_MIN / 8, "{sum}");
                thread::yield_now();
            }
        });
        let pool = &pool;
        let reader = scope.spawn(move || {
            run_on(second);
            for mbuf in from {
                pool.remote_free_to_cores(freed([mbuf]), |core| {
                    pool.flush_core(core);
                });
            }
        });
        on(first, || {
            for round in 0..rounds {
                match pool.alloc(if round % 3 == 0 { 2048 } else { 200 }) {
                    Ok(mbuf) => to.send(mbuf).unwrap(),
                    Err(sockeye_mbuf::Exhausted) => thread::yield_now(),
                }
            }
        });
        drop(to);
        reader.join().unwrap();
        over.store(true, Ordering::Relaxed);
        watch.join().unwrap();
    });
    assert_eq!(pool.in_use(), 0);
    pool.trim();
    assert_eq!(listed(&pool), 0);
}
