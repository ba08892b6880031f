//! The cost of the primitives on this machine, in nanoseconds, in less than five seconds.
//!
//! ```text
//! cargo run -p sockeye-sync --release --example sync_costs
//! ```
//!
//! Each line is the median of [`ROUNDS_COUNT`] rounds, with the fastest and the slowest. On a shared
//! machine only the order of magnitude and the ratios between lines of one run mean anything.

#[cfg(loom)]
fn main() {}

#[cfg(not(loom))]
fn main() {
    measured::main();
}

#[cfg(not(loom))]
mod measured {
    use std::hint::black_box;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
    use std::thread;
    use std::time::Instant;

    use sockeye_sync::{
        Counters, Entry, Mutex, Notify, Outcome, RunQueue, Sleeper, Spin, Squeue, WaitQueue, cpu,
    };

    pub fn main() {
        println!("{} CPUs; ns per operation: median (fastest .. slowest)", cpu::count());
        alone();
        contended();
        for (name, cpus) in [("one CPU", [0, 0]), ("two CPUs", [0, 1])] {
            if cpus[1] >= cpu::count() {
                println!("ping-pong on {name}: not on this machine");
                continue;
            }
            for (spin_name, spin) in [("off", Spin::OFF), ("on", Spin::default())] {
                let name = format!("ping-pong, spin {spin_name}, {name}, a round trip");
                let trips_count = if spin == Spin::OFF { 2_000 } else { 10_000 };
                report(&name, || ping_pong(trips_count, cpus, spin));
            }
        }
    }

    /// One thread, lines that no other thread uses.
    fn alone() {
        let squeue = Squeue::<u64>::new();
        report("try_enter + leave", || {
            repeat(|| {
                let inside = black_box(&squeue).try_enter().expect("free");
                assert!(inside.leave().is_ok());
            })
        });
        report("enter with one item + drain", || repeat(|| enter_and_drain(&squeue)));
        report("fill + resume + pop + leave", || {
            repeat(|| {
                let _wake = squeue.fill(1);
                let mut inside = squeue.resume().expect("scheduled");
                black_box(inside.pop());
                assert!(inside.leave().is_ok());
            })
        });
        let notify = Notify::new();
        report("notify: post + take", || repeat(|| (notify.post(1), notify.take())));
        report("notify: post, coalesced", || repeat(|| notify.post(1)));
        let queue = WaitQueue::new();
        report("wait queue: notify, no waiter", || repeat(|| queue.notify()));
        report("wait queue: prepare + notify", || {
            repeat(|| {
                let _ticket = queue.prepare();
                queue.notify()
            })
        });
        let (run_queue, sleeper) = (RunQueue::new(), Sleeper::new());
        report("run queue: push + wake_if_sleeping + take", || {
            repeat(|| {
                run_queue.push(1_u64);
                sleeper.wake_if_sleeping();
                black_box(run_queue.take_all().count());
            })
        });
        let counters = Counters::<8>::new();
        report("counter", || repeat(|| counters.inc(3)));
        report("cpu::current", || repeat(cpu::current));
        let mutex = Mutex::new(0_u64);
        report("for comparison: mutex lock + unlock", || repeat(|| *mutex.lock() += 1));
    }

    /// Two threads that want the same line.
    fn contended() {
        let squeue = Squeue::<u64>::new();
        report("enter + drain, two threads on one squeue", || both(|| enter_and_drain(&squeue)));
        report("hand-off: one thread fills, one runs", || hand_off(&squeue));
        let notify = Notify::new();
        report("notify: post, two threads", || both(|| notify.post(1)));
        let counters = Counters::<8>::new();
        report("counter, two threads", || both(|| counters.inc(3)));
        let mutex = Mutex::new(0_u64);
        report("for comparison: mutex, two threads", || both(|| *mutex.lock() += 1));
    }

    /// Enters with an item and runs it and all that is queued meanwhile; or leaves it to the thread inside.
    fn enter_and_drain(squeue: &Squeue<u64>) {
        match black_box(squeue).enter(1) {
            Entry::Inside(inside, item) => {
                black_box(item);
                let outcome = inside.drain(usize::MAX, |_inside, item| {
                    black_box(item);
                });
                assert_eq!(outcome, Outcome::Left);
            }
            Entry::Queued => {}
            Entry::Poisoned(_) => unreachable!("no thread panicked"),
        }
    }

    /// A producer only queues, a consumer resumes and runs.
    fn hand_off(squeue: &Squeue<u64>) -> f64 {
        let is_done = AtomicBool::new(false);
        let start = Instant::now();
        thread::scope(|scope| {
            scope.spawn(|| {
                pin(1);
                while !is_done.load(Ordering::Acquire) || squeue.is_occupied() {
                    if let Some(inside) = squeue.resume() {
                        let _left = inside.drain(usize::MAX, |_inside, item| {
                            black_box(item);
                        });
                    }
                }
            });
            pin(0);
            for _ in 0..CONTENDED_COUNT {
                let _told_by_the_flag = squeue.fill(1);
            }
            is_done.store(true, Ordering::Release);
        });
        nanos_each(start, CONTENDED_COUNT)
    }

    /// One byte that goes to and fro.
    struct Ball {
        side: Mutex<bool>,
        queues: [WaitQueue; 2],
        cpus: [AtomicU32; 2],
    }

    impl Ball {
        fn throw(&self, from: bool, spin: Spin) {
            let (own, other) = (usize::from(from), usize::from(!from));
            loop {
                let mut side = self.side.lock();
                if *side == from {
                    *side = !from;
                    self.cpus[own].store(cpu::current(), Ordering::Relaxed);
                    let found = self.queues[other].notify();
                    drop(side);
                    if found.is_wake_owed() {
                        self.queues[other].wake();
                    }
                    return;
                }
                let ticket = self.queues[own].prepare();
                drop(side);
                let waker = self.cpus[other].load(Ordering::Relaxed);
                let _looked_at_again =
                    self.queues[own].wait(ticket, None, spin.woken_from((waker != UNKNOWN).then_some(waker)));
            }
        }
    }

    fn ping_pong(trips_count: u32, cpus: [usize; 2], spin: Spin) -> f64 {
        let ball = Ball {
            side: Mutex::new(false),
            queues: [WaitQueue::new(), WaitQueue::new()],
            cpus: [AtomicU32::new(UNKNOWN), AtomicU32::new(UNKNOWN)],
        };
        let start = Instant::now();
        thread::scope(|scope| {
            for from in [false, true] {
                let ball = &ball;
                scope.spawn(move || {
                    pin(cpus[usize::from(from)]);
                    for _ in 0..trips_count {
                        ball.throw(from, spin);
                    }
                });
            }
        });
        nanos_each(start, trips_count)
    }

    fn report(name: &str, mut round: impl FnMut() -> f64) {
        let mut rounds: Vec<_> = (0..ROUNDS_COUNT).map(|_| round()).collect();
        rounds.sort_unstable_by(f64::total_cmp);
        let (fastest, slowest) = (rounds[0], rounds[ROUNDS_COUNT - 1]);
        println!("{name:<45} {:>9.1} ({fastest:.1} .. {slowest:.1})", rounds[ROUNDS_COUNT / 2]);
    }

    fn repeat<R>(mut operation: impl FnMut() -> R) -> f64 {
        let start = Instant::now();
        for _ in 0..ALONE_COUNT {
            black_box(operation());
        }
        nanos_each(start, ALONE_COUNT)
    }

    /// Two threads on two CPUs at it; nanoseconds per operation of either.
    fn both<R>(operation: impl Fn() -> R + Sync) -> f64 {
        let barrier = Barrier::new(2);
        let run = |own_cpu| {
            pin(own_cpu);
            barrier.wait();
            let start = Instant::now();
            for _ in 0..CONTENDED_COUNT {
                black_box(operation());
            }
            nanos_each(start, CONTENDED_COUNT)
        };
        thread::scope(|scope| {
            let threads = [0, 1].map(|own_cpu| {
                let run = &run;
                scope.spawn(move || run(own_cpu))
            });
            threads.map(|thread| thread.join().expect("no panic")).iter().sum::<f64>() / 2.0
        })
    }

    fn nanos_each(start: Instant, count: u32) -> f64 {
        start.elapsed().as_secs_f64() * 1e9 / f64::from(count)
    }

    /// Best effort: on a machine with fewer CPUs the thread runs where it may.
    fn pin(to_cpu: usize) {
        let mut set = rustix::thread::CpuSet::new();
        set.set(to_cpu % cpu::count());
        if let Err(error) = rustix::thread::sched_setaffinity(None, &set) {
            eprintln!("not pinned to CPU {to_cpu}: {error}");
        }
    }

    const ROUNDS_COUNT: usize = 7;
    const ALONE_COUNT: u32 = 200_000;
    const CONTENDED_COUNT: u32 = 100_000;
    const UNKNOWN: u32 = u32::MAX;
}
