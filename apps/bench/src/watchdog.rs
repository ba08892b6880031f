//! The end of a run that hangs.
//!
//! Purpose: a sample is bounded in time whatever the stack under test does. When one takes longer
//! than its limit, the process prints which one and exits; child processes end with it, because they
//! read their standard input and that closes.
//!
//! Does not depend on the watched work.
//!
//! Invariants: at most one limit is armed. The state is one mutex; arming and disarming notify the
//! thread under it, so it never sleeps past a limit it has not seen.
//!
//! Tests: below, on the part before the exit.

use std::fs;
use std::process;
use std::sync::{Condvar, Mutex, MutexGuard, Once, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Exit code of a run that was ended by the watchdog.
pub const EXIT_HUNG: i32 = 3;

/// How much longer than its planned time a sample may take, in seconds.
pub const GRACE: Duration = Duration::from_secs(30);

/// While it lives, the process ends at the limit.
#[must_use = "the limit ends when this is dropped"]
pub struct Armed(());

struct Limit {
    deadline: Instant,
    what: String,
}

struct Watch {
    limit: Mutex<Option<Limit>>,
    changed: Condvar,
}

/// Ends the process `limit` from now unless the returned value is dropped before.
pub fn arm(limit: Duration, what: String) -> Armed {
    start_thread_once();
    watch().arm(limit, what);
    Armed(())
}

impl Drop for Armed {
    fn drop(&mut self) {
        // The thread needs no notice: it wakes at the old deadline at the latest and finds nothing.
        *watch().lock() = None;
    }
}

impl Watch {
    fn lock(&self) -> MutexGuard<'_, Option<Limit>> {
        self.limit.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn arm(&self, limit: Duration, what: String) {
        *self.lock() = Some(Limit { deadline: Instant::now() + limit, what });
        self.changed.notify_one();
    }

    /// Blocks until an armed limit is over; returns its subject.
    fn wait_for_expiry(&self) -> String {
        let mut limit = self.lock();
        loop {
            limit = match limit.as_ref() {
                None => self.changed.wait(limit).unwrap_or_else(PoisonError::into_inner),
                Some(armed) => {
                    let left = armed.deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return armed.what.clone();
                    }
                    let waited = self.changed.wait_timeout(limit, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }
}

fn guard_process() {
    let what = watch().wait_for_expiry();
    eprintln!(
        "error: {what} hangs: it did not end {} s after it should have; giving up\n\
         its threads wait in: {}",
        GRACE.as_secs(),
        wait_channels().join(", ")
    );
    process::exit(EXIT_HUNG);
}

/// Where in the kernel each thread of this process waits, as far as it may be known: enough to tell an
/// accept from a read from a lock.
fn wait_channels() -> Vec<String> {
    let Ok(tasks) = fs::read_dir("/proc/self/task") else {
        return Vec::new();
    };
    let tasks = tasks.filter_map(Result::ok).take(TASKS_SHOWN_MAX);
    tasks.filter_map(|task| fs::read_to_string(task.path().join("wchan")).ok()).collect()
}

/// Threads named in the message, at most.
const TASKS_SHOWN_MAX: usize = 16;

fn watch() -> &'static Watch {
    static WATCH: Watch = Watch { limit: Mutex::new(None), changed: Condvar::new() };
    &WATCH
}

fn start_thread_once() {
    static THREAD: Once = Once::new();
    THREAD.call_once(|| {
        let spawned = thread::Builder::new().name("watchdog".to_owned()).spawn(guard_process);
        if let Err(error) = spawned {
            eprintln!("warning: no thread for the watchdog: {error}");
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fresh() -> Watch {
        Watch { limit: Mutex::new(None), changed: Condvar::new() }
    }

    #[test]
    fn every_thread_of_this_process_has_a_wait_channel() {
        assert!(!wait_channels().is_empty());
    }

    #[test]
    fn an_armed_limit_expires_with_its_name() {
        let watch = fresh();
        watch.arm(Duration::from_millis(20), "a sample".to_owned());
        assert_eq!(watch.wait_for_expiry(), "a sample");
    }

    #[test]
    fn a_disarmed_limit_does_not_expire_and_the_next_one_does() {
        let watch = fresh();
        let begin = Instant::now();
        thread::scope(|scope| {
            let expiry = scope.spawn(|| watch.wait_for_expiry());
            watch.arm(Duration::from_millis(30), "first".to_owned());
            *watch.lock() = None;
            thread::sleep(Duration::from_millis(60));
            watch.arm(Duration::from_millis(30), "second".to_owned());
            assert_eq!(expiry.join().unwrap(), "second");
        });
        assert!(begin.elapsed() >= Duration::from_millis(90));
    }
}
