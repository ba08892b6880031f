//! Clocks of hosts that go fast or slow, and that are set.

use std::time::{Duration, Instant, SystemTime};

use sockeye_sim::{Sim, blocking, time};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_fast_clock_shows_more_time_and_ends_tokios_timers_early() {
    Sim::new(1).tokio().run(|net| async move {
        let [fast, slow, right] = ["fast", "slow", "right"].map(|name| net.host(name));
        fast.set_clock_drift(100_000);
        slow.set_clock_drift(-100_000);
        let sleeping = [&fast, &slow, &right].map(|host| {
            let net = net.clone();
            host.spawn(async move {
                let (start, date) = (Instant::now(), SystemTime::now());
                tokio::time::sleep(99 * SECOND).await;
                (net.now(), start.elapsed(), date.elapsed().unwrap())
            })
        });
        for (sleeping, lasts) in sleeping.into_iter().zip([90, 110, 99]) {
            let (now, shown, date) = sleeping.await.unwrap();
            assert_eq!((now, shown, date), (lasts * SECOND, 99 * SECOND, 99 * SECOND));
        }
        // The simulation's own time is the same for all.
        let start = net.now();
        fast.spawn(time::sleep(SECOND)).await.unwrap();
        assert_eq!(net.now() - start, SECOND);
    });
}

#[test]
fn a_change_of_rate_moves_the_timers_that_run() {
    Sim::new(1).tokio().run(|net| async move {
        let host = net.host("host");
        let done = host.spawn(async { tokio::time::sleep(100 * SECOND).await });
        tokio::time::sleep(50 * SECOND).await;
        host.set_clock_drift(250_000);
        done.await.unwrap();
        assert_eq!(net.now(), 90 * SECOND);
        // A crash does not set the clock right.
        host.crash();
        host.restart();
        host.spawn(async { tokio::time::sleep(100 * SECOND).await }).await.unwrap();
        assert_eq!(net.now(), 170 * SECOND);
        host.set_clock_drift(0);
        host.spawn(async { tokio::time::sleep(SECOND).await }).await.unwrap();
        assert_eq!(net.now(), 171 * SECOND);
    });
}

#[test]
fn a_step_moves_the_date_of_its_host_and_nothing_else() {
    Sim::new(1).tokio().run(|net| async move {
        let (host, other) = (net.host("host"), net.host("other"));
        let step = 3600 * SECOND;
        let own = host.clone();
        let (date, instant, back) = host
            .spawn(async move {
                let (date, instant) = (SystemTime::now(), Instant::now());
                own.step_clock_forward(step);
                let forward = SystemTime::now().duration_since(date).unwrap();
                own.step_clock_back(2 * step);
                let back = date.duration_since(SystemTime::now()).unwrap();
                tokio::time::sleep(SECOND).await;
                (forward, instant.elapsed(), back)
            })
            .await
            .unwrap();
        assert_eq!((date, instant, back), (step, SECOND, step));
        let here = SystemTime::now();
        let there = other.spawn(async { SystemTime::now() }).await.unwrap();
        assert_eq!(here, there, "the clocks of others are right");
        // On threads of the blocking kind too.
        let late = host.spawn(blocking::run(SystemTime::now)).await.unwrap();
        assert_eq!(here.duration_since(late).unwrap(), step);
    });
}

#[test]
fn a_clock_that_is_changed_does_not_let_a_paused_program_go_on() {
    Sim::new(1).tokio().run(|net| async move {
        let host = net.host("host");
        let ticks = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(0));
        let counted = ticks.clone();
        host.spawn(async move {
            tokio::spawn(async move {
                loop {
                    tokio::time::sleep(SECOND).await;
                    counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                }
            });
        });
        let count = || ticks.load(std::sync::atomic::Ordering::Relaxed);
        time::sleep(2 * SECOND + SECOND / 2).await;
        host.pause();
        host.set_clock_drift(-500_000);
        host.step_clock_forward(SECOND);
        time::sleep(10 * SECOND).await;
        assert_eq!(count(), 2);
        host.resume();
        time::sleep(4 * SECOND + SECOND / 2).await;
        assert_eq!(count(), 5, "one at once, and two by the slow clock");
    });
}
