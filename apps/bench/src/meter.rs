//! Counting the operations of threads during a window of time.
//!
//! Purpose: one sample. Threads count into cells of their own; the thread that measures waits until all
//! of them have begun, lets them warm up, reads the cells and the CPU clock, waits, reads again, and stops all of them.
//! Setup, teardown and the approach to the steady state are outside the window.
//!
//! Does not depend on the counters.
//!
//! Invariants: `stop` changes from false to true once, either at the end of the window or when a thread
//! fails. Each cell has one writer, so it adds with a load and a store; the measuring thread reads a
//! value that is at most one operation old. All accesses are relaxed: nothing but the numbers
//! themselves is passed through them, and threads are joined before anything else is looked at.
//! No wake-up is lost: arrivals and failures are stored under the mutex that the condition variable
//! waits with, and then notified.
//!
//! Tests: below.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sockeye_shared::cpu::process_cpu;

use crate::machine::idle;
use crate::provider::{Counters, difference};

/// How long a sample takes.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// Runs before the window.
    pub warm_up: Duration,
    /// The window.
    pub timed: Duration,
}

/// The values read at both ends of the window, besides the cells.
#[derive(Clone, Debug)]
pub struct Reading {
    /// CPU time used so far.
    pub cpu: Duration,
    /// Time that the cores this thread may use have been idle so far, if the machine reports it.
    pub idle: Option<Duration>,
    /// Counters of the measured subject.
    pub counters: Counters,
}

impl Reading {
    /// Of this process's CPU time now, of idle cores, and of `counters`.
    pub fn now(counters: Counters) -> Self {
        Self { cpu: process_cpu(), idle: idle(), counters }
    }
}

/// The measurements of the window.
#[derive(Clone, Debug)]
pub struct Window {
    /// The sum of all cells' growth.
    pub count: u64,
    /// Its real length.
    pub elapsed: Duration,
    /// CPU time used, by this process and any other that `read` of [`Meter::observe`] asked.
    pub cpu: Duration,
    /// How long cores that might have been used were idle meanwhile.
    pub idle: Option<Duration>,
    /// The increase of the counters.
    pub counters: Counters,
}

impl Window {
    /// Cores kept busy on average.
    pub fn cores(&self) -> f64 {
        self.cpu.as_secs_f64() / self.elapsed.as_secs_f64()
    }

    /// Cores that this process had, used or idle: the part of the machine that other programs left.
    pub fn cores_had(&self) -> Option<f64> {
        Some((self.cpu + self.idle?).as_secs_f64() / self.elapsed.as_secs_f64())
    }

    /// Counts a second.
    pub fn rate(&self) -> f64 {
        self.count as f64 / self.elapsed.as_secs_f64()
    }
}

/// The counters and the stop flag of one sample.
pub struct Meter {
    stop: AtomicBool,
    tallies: Vec<Tally>,
    /// How many threads call [`Meter::arrive`].
    awaited: usize,
    progress: Mutex<Progress>,
    changed: Condvar,
}

#[derive(Default)]
struct Progress {
    arrived: usize,
    failure: Option<io::Error>,
}

/// One thread's counter, on a cache line pair of its own.
#[repr(align(128))]
#[derive(Default)]
pub struct Tally(AtomicU64);

impl Tally {
    /// Adds `n`; only the one thread that owns the cell may call it.
    #[inline]
    pub fn add(&self, n: u64) {
        // Partner: the load in `Meter::total`.
        self.0.store(self.0.load(Ordering::Relaxed) + n, Ordering::Relaxed);
    }
}

impl Meter {
    /// With a cell for each of `counting` threads, to be started when `awaited` have arrived.
    pub fn new(counting: usize, awaited: usize) -> Self {
        Self {
            stop: AtomicBool::new(false),
            tallies: (0..counting).map(|_| Tally::default()).collect(),
            awaited,
            progress: Mutex::new(Progress::default()),
            changed: Condvar::new(),
        }
    }

    /// Reports that the calling thread has begun; each of the awaited ones does so once.
    pub fn arrive(&self) {
        self.lock_progress().arrived += 1;
        self.changed.notify_all();
    }

    /// The cell of thread `index`.
    pub fn tally(&self, index: usize) -> &Tally {
        &self.tallies[index]
    }

    /// Whether to stop, at the next point where nothing is left half done.
    #[inline]
    pub fn stopped(&self) -> bool {
        // Partner: the store in `stop`.
        self.stop.load(Ordering::Relaxed)
    }

    /// The result of a reader whose stream has ended: an error if that was before the end of the sample.
    pub fn end_of_stream(&self) -> io::Result<()> {
        // A writer that ends its stream has seen the stop, and so does who reads that end.
        if self.stopped() {
            return Ok(());
        }
        Err(io::Error::new(io::ErrorKind::UnexpectedEof, "a stream has ended before its sample"))
    }

    /// Runs a thread's work; its error fails the sample, unless the sample was over already and the
    /// error only means that the other end has closed.
    pub fn guard(&self, work: impl FnOnce() -> io::Result<()>) {
        let done = work();
        if !self.stopped() {
            self.note(done);
        }
    }

    /// Fails the sample if `done` is an error, also when the sample is over.
    pub fn note(&self, done: io::Result<()>) {
        if let Err(error) = done {
            self.lock_progress().failure.get_or_insert(error);
            self.stop();
            self.changed.notify_all();
        }
    }

    /// Waits for the threads, lets them warm up, measures them for `timing.timed`, stops them. `read`
    /// is called at both ends. Blocks for all of that; returns early if a thread fails.
    pub fn observe(&self, timing: Timing, read: impl FnMut() -> io::Result<Reading>) -> io::Result<Window> {
        let window = self.observe_running(timing, read);
        self.stop();
        window
    }

    /// The failure of a thread, once all of them have been joined.
    pub fn into_result(self) -> io::Result<()> {
        match self.progress.into_inner().unwrap_or_else(PoisonError::into_inner).failure {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Stops all threads.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    fn observe_running(
        &self,
        timing: Timing,
        mut read: impl FnMut() -> io::Result<Reading>,
    ) -> io::Result<Window> {
        self.wait_for_arrivals()?;
        self.sleep_unless_failed(timing.warm_up)?;
        let (before, count_before, begin) = (read()?, self.total(), Instant::now());
        self.sleep_unless_failed(timing.timed)?;
        let (elapsed, count_after, after) = (begin.elapsed(), self.total(), read()?);
        let cpu = after.cpu.saturating_sub(before.cpu);
        let idle = after.idle.zip(before.idle).map(|(after, before)| after.saturating_sub(before));
        let counters = difference(&before.counters, &after.counters);
        Ok(Window { count: count_after - count_before, elapsed, cpu, idle, counters })
    }

    fn wait_for_arrivals(&self) -> io::Result<()> {
        let mut progress = self.lock_progress();
        while progress.arrived < self.awaited {
            progress.check()?;
            progress = self.changed.wait(progress).unwrap_or_else(PoisonError::into_inner);
        }
        progress.check()
    }

    fn sleep_unless_failed(&self, duration: Duration) -> io::Result<()> {
        let deadline = Instant::now() + duration;
        let mut progress = self.lock_progress();
        loop {
            progress.check()?;
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            let waited = self.changed.wait_timeout(progress, left);
            progress = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn total(&self) -> u64 {
        self.tallies.iter().map(|tally| tally.0.load(Ordering::Relaxed)).sum()
    }

    fn lock_progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Progress {
    /// The error itself is handed out by [`Meter::into_result`], after the threads have ended.
    fn check(&self) -> io::Result<()> {
        match self.failure {
            Some(_) => Err(io::Error::other("a thread of the workload failed")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMING: Timing = Timing { warm_up: Duration::from_millis(5), timed: Duration::from_millis(40) };

    #[test]
    fn only_operations_inside_the_window_count() {
        let meter = Meter::new(2, 2);
        let window = std::thread::scope(|scope| {
            for index in 0..2 {
                let meter = &meter;
                scope.spawn(move || {
                    // The window must not begin before the second thread does.
                    std::thread::sleep(Duration::from_millis(60 * index as u64));
                    meter.tally(index).add(1_000_000);
                    meter.arrive();
                    while !meter.stopped() {
                        meter.tally(index).add(1);
                        std::thread::sleep(Duration::from_millis(1));
                    }
                });
            }
            meter.observe(TIMING, || Ok(Reading::now(Counters::new()))).unwrap()
        });
        assert!(window.elapsed >= TIMING.timed);
        assert!((2..=200).contains(&window.count), "counted {}", window.count);
        assert!(window.rate() > 0.0);
        assert!(window.cores_had().is_none_or(|cores| cores >= window.cores()));
        meter.into_result().unwrap();
    }

    #[test]
    fn a_failing_thread_ends_the_sample_with_its_error() {
        let meter = Meter::new(1, 1);
        let long = Timing { warm_up: Duration::ZERO, timed: Duration::from_secs(60) };
        std::thread::scope(|scope| {
            scope.spawn(|| meter.guard(|| Err(io::Error::other("broken"))));
            assert!(meter.observe(long, || Ok(Reading::now(Counters::new()))).is_err());
        });
        assert_eq!(meter.into_result().unwrap_err().to_string(), "broken");
    }

    #[test]
    fn errors_after_the_end_of_the_sample_do_not_count() {
        let meter = Meter::new(0, 0);
        assert_eq!(meter.end_of_stream().unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        meter.stop();
        meter.end_of_stream().unwrap();
        meter.guard(|| Err(io::ErrorKind::ConnectionReset.into()));
        meter.into_result().unwrap();
    }
}
