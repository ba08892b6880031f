//! The cap on memory: it holds, refusals lose nothing, and threads that wait go on.
#![cfg(not(loom))]

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use sockeye_mbuf::{CLUSTER_MAX, Chain, Class, Exhausted, MEMORY_MIN, Mbuf, Pool, PoolConfig};

/// Large enough for a thread's cache; less under miri, where each byte is dear.
const SMALL_CAP: usize = if cfg!(miri) { 2 << 20 } else { 4 << 20 };

fn pool(memory_max: usize) -> Pool {
    Pool::new(PoolConfig::with_memory_max(memory_max))
}

fn fill(pool: &Pool, want: usize) -> Vec<Mbuf> {
    std::iter::from_fn(|| pool.alloc(want).ok()).collect()
}

#[test]
fn allocation_stops_at_the_cap_and_continues_below_it() {
    let pool = pool(SMALL_CAP);
    let mut held = fill(&pool, CLUSTER_MAX);
    let footprint = held[0].footprint();
    assert_eq!(held.len(), SMALL_CAP / footprint);
    assert_eq!(pool.allocated(), held.len() * footprint);
    assert_eq!(pool.stats().class(Class::K64).refusals, 1);
    assert!(pool.alloc(CLUSTER_MAX).is_err());
    held.pop();
    held.push(pool.alloc(CLUSTER_MAX).expect("one was freed"));
    assert!(matches!(pool.alloc(CLUSTER_MAX), Err(Exhausted)));
    drop(held);
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn idle_clusters_of_other_classes_are_returned_before_a_refusal() {
    let pool = pool(SMALL_CAP);
    // Below the pressure mark, so that freed clusters are cached.
    let count = SMALL_CAP / 512;
    let small: Vec<Mbuf> = (0..count).map_while(|_| pool.alloc(1).ok()).collect();
    assert_eq!(small.len(), count);
    drop(small);
    assert!(pool.allocated() > 0);
    let large = fill(&pool, CLUSTER_MAX);
    assert_eq!(large.len(), SMALL_CAP / large[0].footprint());
}

#[test]
fn near_the_cap_frees_bypass_the_caches() {
    let pool = pool(SMALL_CAP);
    let mut held = fill(&pool, 16 * 1024);
    let footprint = held[0].footprint();
    let full = pool.allocated();
    held.truncate(held.len() - 3);
    assert_eq!(pool.allocated(), full - 3 * footprint);
    assert_eq!(pool.stats().depot, 0);
    // Far below it they are cached again.
    held.truncate(10);
    let before = pool.allocated();
    held.pop();
    assert_eq!(pool.allocated(), before);
}

#[test]
fn the_smallest_pool_can_hand_out_its_largest_cluster() {
    let pool = pool(0);
    assert_eq!(pool.memory_max(), MEMORY_MIN);
    for _ in 0..3 {
        assert!(fill(&pool, CLUSTER_MAX).len() >= 4);
    }
}

#[test]
fn copy_in_is_all_or_nothing() {
    let pool = pool(SMALL_CAP);
    assert!(pool.copy_in(&vec![0; SMALL_CAP]).is_err());
    assert_eq!(pool.in_use(), 0);
    assert_eq!(pool.copy_in(&vec![0; SMALL_CAP / 2]).map(|chain| chain.len()), Ok(SMALL_CAP / 2));
}

#[test]
fn extending_takes_as_much_as_the_cap_allows_and_then_refuses() {
    let pool = pool(SMALL_CAP);
    let mut chain = Chain::new();
    let taken = chain.extend_from_slice(&pool, &vec![7; SMALL_CAP]).expect("some room");
    assert!(taken < SMALL_CAP && taken > SMALL_CAP / 2);
    assert_eq!(chain.len(), taken);
    let expected = [7; CLUSTER_MAX];
    assert!(chain.iter().all(|piece| *piece == expected[..piece.len()]));
    assert_eq!(chain.extend_from_slice(&pool, &[7; CLUSTER_MAX]), Err(Exhausted));
    assert_eq!(chain.extend_from_slice(&pool, &[]), Ok(0));
    assert_eq!(chain.len(), taken);
}

#[test]
fn a_thread_that_was_not_refused_does_not_wait() {
    assert!(pool(SMALL_CAP).wait_freed(None));
}

#[test]
fn a_wait_for_memory_ends_at_the_deadline() {
    let pool = pool(SMALL_CAP);
    let held = fill(&pool, CLUSTER_MAX);
    let deadline = Instant::now() + Duration::from_millis(20);
    assert!(!pool.wait_freed(Some(deadline)));
    assert!(Instant::now() >= deadline);
    drop(held);
    assert!(pool.wait_freed(Some(deadline)), "memory came back since");
}

#[test]
fn a_waiting_thread_continues_when_another_frees() {
    let pool = pool(SMALL_CAP);
    let held = fill(&pool, CLUSTER_MAX);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let mut refusals = 0;
            loop {
                match pool.alloc(CLUSTER_MAX) {
                    Ok(_) => return refusals,
                    Err(Exhausted) => refusals += 1,
                }
                pool.wait_freed(None);
            }
        });
        while pool.stats().class(Class::K64).refusals < 2 {
            thread::yield_now();
        }
        drop(held);
        assert!(waiter.join().expect("no panic") >= 1);
    });
}

/// More is wanted than the cap allows, by threads of which each frees what another allocated: all
/// get their share in time, and the cap holds throughout.
#[test]
fn threads_at_the_cap_make_progress() {
    const THREADS: usize = 4;
    const ROUNDS: usize = if cfg!(miri) { 2 } else { 300 };
    let pool = pool(MEMORY_MIN);
    let start = Barrier::new(THREADS);
    let (pool, start) = (&pool, &start);
    thread::scope(|scope| {
        let work = |thread_index: usize| {
            move || {
                start.wait();
                for round in 0..ROUNDS {
                    let want = [256, 2048, 16 * 1024, CLUSTER_MAX][(round + thread_index) % 4];
                    let mut held = Vec::new();
                    // Three at a time each: more than the smallest pool has for the largest class. On a
                    // refusal a thread gives up its clusters, so that threads cannot block each other.
                    while held.len() < 3 {
                        match pool.alloc(want) {
                            Ok(mbuf) => held.push(mbuf),
                            Err(Exhausted) => {
                                held.clear();
                                pool.wait_freed(Some(Instant::now() + Duration::from_secs(20)));
                            }
                        }
                        assert!(pool.allocated() <= pool.memory_max());
                    }
                }
            }
        };
        let threads: Vec<_> = (0..THREADS).map(|index| scope.spawn(work(index))).collect();
        // Joined one by one, to wait for the threads' caches too, which the scope's end does not.
        for thread in threads {
            thread.join().expect("no panic");
        }
    });
    assert_eq!(pool.in_use(), 0);
    pool.trim();
    assert_eq!(pool.allocated(), 0);
}
