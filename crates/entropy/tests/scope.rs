//! The replaced functions, through `std`, the crate `getrandom` and libc, within a scope and outside of one.
#![cfg(all(
    target_os = "linux",
    target_pointer_width = "64",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::ToSocketAddrs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use sockeye_entropy::{Machine, READS_MAX, START_UNIX_SECS};

/// All that a thread can learn.
fn look(machine: &Arc<Machine>) -> (Instant, SystemTime, [u8; 24], u64, Vec<u32>) {
    let _scope = machine.enter().unwrap();
    let mut bytes = [0; 24];
    getrandom::fill(&mut bytes[..13]).unwrap();
    // As version 0.2 of the crate does.
    let (rest, len) = (bytes[13..].as_mut_ptr(), bytes[13..].len());
    // SAFETY: the place is ours, and as long as it says.
    assert_eq!(unsafe { libc::syscall(libc::SYS_getrandom, rest, len, 0) }, 11);
    let order = (0..20).map(|key| (key, ())).collect::<HashMap<_, _>>().into_keys().collect();
    (Instant::now(), SystemTime::now(), bytes, RandomState::new().hash_one(1), order)
}

fn on_its_own_thread<R: Send>(f: impl FnOnce() -> R + Send) -> R {
    thread::scope(|threads| threads.spawn(f).join().unwrap())
}

#[test]
fn one_seed_gives_a_new_thread_the_same_answers_and_another_seed_gives_others() {
    let [first, again, other] = [7, 7, 8].map(|seed| {
        on_its_own_thread(|| {
            // What the thread did before does not count, unless it has keys already.
            getrandom::u64().unwrap();
            look(&Arc::new(Machine::new(seed)))
        })
    });
    assert_eq!(first, again);
    assert_ne!(first.2[13..], other.2[13..], "the system call by its number");
    assert_eq!((first.0, first.1), (other.0, other.1), "time starts at the same point");
    assert!(first.2 != other.2 && first.3 != other.3 && first.4 != other.4, "{first:?} {other:?}");
}

#[test]
fn clocks_can_show_another_time_than_the_elapsed_one() {
    let machine = Arc::new(Machine::new(1));
    machine.set_elapsed(Duration::from_secs(10));
    let _scope = machine.enter().unwrap();
    let (instant, system) = (Instant::now(), SystemTime::now());
    machine.set_offsets(2_000_000_000, -3_000_000_000);
    assert_eq!(instant.elapsed(), Duration::from_secs(2));
    assert_eq!(system.duration_since(SystemTime::now()).unwrap(), Duration::from_secs(3));
    assert_eq!(machine.elapsed(), Duration::from_secs(10));
    let later = machine.a_nanosecond_later(|| (Instant::now(), SystemTime::now()));
    assert_eq!(later.0 - Instant::now(), Duration::from_nanos(1), "and back");
    assert_eq!(later.1, SystemTime::now(), "real time stays");
    machine.set_offsets(i64::MIN, i64::MIN);
    assert!(Instant::now() < instant, "nothing before the start, and no overflow");
}

#[test]
fn time_moves_only_when_it_is_moved_and_both_clocks_together() {
    let machine = Arc::new(Machine::new(1));
    let scope = machine.enter().unwrap();
    let (instant, system) = (Instant::now(), SystemTime::now());
    assert_eq!(system.duration_since(UNIX_EPOCH).unwrap(), Duration::from_secs(START_UNIX_SECS));
    thread::yield_now();
    assert_eq!((Instant::now(), SystemTime::now()), (instant, system));
    let step = Duration::new(86_400, 1);
    machine.set_elapsed(step);
    assert_eq!((instant.elapsed(), system.elapsed().unwrap(), machine.elapsed()), (step, step, step));
    drop(scope);
    // The machine's clocks stand where they were set.
    assert_ne!(SystemTime::now(), system + step, "real time is back");
    assert_ne!(Instant::now(), instant + step);
}

#[test]
fn threads_outside_of_a_scope_get_the_system_s_answers() {
    let machine = Arc::new(Machine::new(1));
    let _scope = machine.enter().unwrap();
    let [(first, numbers), (second, others)] = [(); 2].map(|()| {
        on_its_own_thread(|| {
            let start = Instant::now();
            thread::sleep(Duration::from_millis(2));
            assert!(start.elapsed() >= Duration::from_millis(2));
            assert!(("localhost", 80).to_socket_addrs().unwrap().next().is_some());
            (start, getrandom::u64().unwrap())
        })
    });
    assert!(second > first && numbers != others);
}

#[test]
fn scopes_nest_and_the_outer_machine_goes_on_where_it_was() {
    let (outer, inner) = (Arc::new(Machine::new(1)), Arc::new(Machine::new(2)));
    let alone = on_its_own_thread(|| {
        let _scope = Arc::new(Machine::new(1)).enter().unwrap();
        [getrandom::u64().unwrap(), getrandom::u64().unwrap()]
    });
    let nested = on_its_own_thread(|| {
        let _outer = outer.enter().unwrap();
        let first = getrandom::u64().unwrap();
        let scope = inner.enter().unwrap();
        assert_ne!(getrandom::u64().unwrap(), alone[1]);
        drop(scope);
        [first, getrandom::u64().unwrap()]
    });
    assert_eq!(nested, alone);
}

#[test]
#[should_panic(expected = "reverse order")]
fn scopes_that_end_out_of_order_panic() {
    let machine = Arc::new(Machine::new(1));
    let (outer, other) = (machine.enter().unwrap(), Arc::new(Machine::new(2)));
    let inner = other.enter().unwrap();
    drop(outer);
    drop(inner);
}

#[test]
#[should_panic]
fn a_simulated_thread_cannot_sleep() {
    let _scope = Arc::new(Machine::new(1)).enter().unwrap();
    thread::sleep(Duration::from_millis(1));
}

#[cfg(not(target_feature = "crt-static"))]
#[test]
fn a_simulated_thread_does_not_ask_the_machine_s_resolver_and_addresses_need_none() {
    let _scope = Arc::new(Machine::new(1)).enter().unwrap();
    assert!(("localhost", 80).to_socket_addrs().is_err());
    assert!("10.0.0.1:80".to_socket_addrs().is_ok());
}

/// Stands for what runs while a thread ends: destructors of values that are kept for each thread.
#[test]
fn the_clock_works_while_a_thread_ends() {
    struct Late;
    impl Drop for Late {
        fn drop(&mut self) {
            let _time = (Instant::now(), SystemTime::now());
        }
    }
    thread_local! { static LATE: Late = const { Late }; }
    thread::spawn(|| {
        let _scope = Arc::new(Machine::new(1)).enter().unwrap();
        LATE.with(|_| ());
    })
    .join()
    .unwrap();
}

#[test]
fn a_clock_that_is_read_for_ever_and_does_not_move_is_told_once() {
    static TOLD: AtomicU32 = AtomicU32::new(0);
    let machine = Arc::new(Machine::new(1));
    machine.on_restless(|| {
        TOLD.fetch_add(1, Ordering::Relaxed);
    });
    let _scope = machine.enter().unwrap();
    let read = |count: u64| (0..count).for_each(|_| assert!(Instant::now().elapsed().is_zero()));
    // Each time it is read twice; entering has read it, too.
    read(READS_MAX / 2 - 10);
    machine.set_elapsed(Duration::from_nanos(1));
    read(READS_MAX / 2 - 1);
    assert_eq!(TOLD.load(Ordering::Relaxed), 0);
    read(2);
    assert_eq!(TOLD.load(Ordering::Relaxed), 1);
}
