//! Foreign code that misbehaves at random, beside traffic that has to arrive: the whole library for a bounded time.
//!
//! Wakers, hooks and interfaces of [`mischief`] panic, sleep, drop the last handles of sockets and call back into the stack, on
//! whatever thread of the stack runs them. Beside them the transfers of [`traffic`] check every byte. At the end nothing
//! hangs (a watchdog), nothing was lost (every transfer arrived), and nothing is left: no connection, no byte of packet memory, no
//! thread and no descriptor.
//!
//! `SOCKEYE_SOAK_SECONDS` sets the duration, 1 to 60; the default is 8. The seed is printed; `SOCKEYE_SEED` sets it.

#[path = "../common/mod.rs"]
mod common;

mod mischief;
mod netif;
mod traffic;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use common::{Random, counter, eventually, join_all, watchdog};
use mischief::Mischief;
use netif::Unreliable;
use sockeye::netif::{WireConfig, wire};
use sockeye::{Config, PanicReport, Stack, TcpConfig};
use traffic::World;

/// The default duration of the soak.
const SECONDS_DEFAULT: u64 = 8;

fn duration() -> Duration {
    let given = std::env::var("SOCKEYE_SOAK_SECONDS").ok();
    let seconds = given.map_or(SECONDS_DEFAULT, |text| {
        text.parse().expect("SOCKEYE_SOAK_SECONDS is a number of seconds, 1 to 60")
    });
    Duration::from_secs(seconds.clamp(1, 60))
}

fn entries(folder: &str) -> usize {
    std::fs::read_dir(folder).unwrap().count()
}

/// A stack whose panic hook misbehaves as well.
fn stack(mischief: &Arc<Mischief>, workers: usize) -> Stack {
    // Thousands of connections a second would otherwise use up the ports.
    let time_wait = Duration::from_millis(10);
    let stack = Stack::new(Config {
        workers,
        tcp: TcpConfig { time_wait, ..TcpConfig::default() },
        ..Config::default()
    })
    .unwrap();
    let hook = Arc::clone(mischief);
    stack.set_panic_hook(Some(move |_: &PanicReport| {
        hook.reports.fetch_add(1, Ordering::Relaxed);
        hook.strike();
    }));
    stack
}

#[test]
fn foreign_code_that_misbehaves_breaks_nothing() {
    let _guard = watchdog("foreign_code_that_misbehaves_breaks_nothing");
    mischief::silence_expected_panics();
    let mut random = Random::new("foreign_code_that_misbehaves_breaks_nothing");
    let (threads, files) = (entries("/proc/self/task"), entries("/proc/self/fd"));

    let mischief = Mischief::new(&mut random);
    let (left, right) = (stack(&mischief, 2), stack(&mischief, 1));
    let driven = stack(&mischief, 0);
    let (here, there) = wire(&WireConfig { queues: 2, ..WireConfig::default() }).unwrap();
    left.attach(Unreliable::new(here, &mischief), &["10.9.0.1/24".parse().unwrap()]).unwrap();
    right.attach(Unreliable::new(there, &mischief), &["10.9.0.2/24".parse().unwrap()]).unwrap();

    let world = World::new(left, right, driven, Arc::clone(&mischief), Instant::now() + duration());
    mischief.set_callbacks(world.callbacks());
    let done: u64 = join_all(traffic::start(&world, &mut random)).into_iter().sum();
    assert!(done > 0, "some transfers arrived");
    eprintln!("{done} transfers and waits, {} panics", mischief.panics.load(Ordering::Relaxed));

    // The values that the misbehaving code still holds are dropped first: they refer to the stacks.
    mischief.retire();
    let World { left, right, driven, .. } = Arc::into_inner(world).expect("all threads have ended");
    assert!(mischief.panics.load(Ordering::Relaxed) > 0, "something panicked");
    for stack in [&left, &right] {
        eventually("connection_count is 0", || stack.connection_count() == 0);
        eventually("memory_in_use is 0", || stack.memory_in_use() == 0);
        assert_eq!(counter(stack, "panics_protocol"), 0, "no panic was the stack's own");
    }
    assert!(counter(&left, "panics_foreign") > 0, "panics were counted");
    assert!(mischief.reports.load(Ordering::Relaxed) > 0, "panics were reported");
    traffic::drain(&driven);
    assert_eq!(counter(&driven, "panics_protocol"), 0, "nor in the stack that its application drives");
    drop((left, right, driven));
    // The watchdog's thread was there at the beginning, too.
    eventually("all threads have ended", || entries("/proc/self/task") == threads);
    eventually("all descriptors are closed", || entries("/proc/self/fd") == files);
}
