//! Signals for every thread of the process, over and over: whether calls stand being interrupted.
//!
//! The handler is installed without `SA_RESTART`, so each system call that a signal meets asleep ends with EINTR (but for
//! those that the kernel restarts by itself). It counts and does nothing else. It is the process's from the first use on,
//! as a handler that was taken back could leave a signal on its way to its default, which is the end of the process. It
//! does not depend on the work of the threads. Tests: `tests/signals.rs`.

use std::io;
use std::ptr;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use libc::{c_int, c_long};
use rustix::thread::gettid;
use sockeye_sync::facade::{Arc, AtomicBool, AtomicU64, OnceLock, Ordering};

/// The signal: one for which nothing else in a test has a use.
const SIGNAL: c_int = libc::SIGUSR1;

/// Signals that were handled, on any thread.
static HANDLED: AtomicU64 = AtomicU64::new(0);

/// Interrupts all threads of the process but its own until it is dropped.
#[derive(Debug)]
pub struct Signals {
    stop: Arc<AtomicBool>,
    rounds: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Signals {
    /// One signal to each thread, then a pause of `every`, and again.
    ///
    /// # Errors
    /// The system's, if there can be no handler or no thread.
    pub fn begin(every: Duration) -> io::Result<Self> {
        static INSTALLED: OnceLock<Result<(), i32>> = OnceLock::new();
        let installed = INSTALLED.get_or_init(|| install().map_err(|e| e.raw_os_error().unwrap_or(0)));
        installed.map_err(io::Error::from_raw_os_error)?;
        let (stop, rounds) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stopped, counted) = (Arc::clone(&stop), Arc::clone(&rounds));
        let work = move || {
            while !stopped.load(Ordering::Acquire) {
                interrupt_all();
                counted.fetch_add(1, Ordering::AcqRel);
                thread::sleep(every);
            }
        };
        let thread = thread::Builder::new().name("signals".to_owned()).spawn(work)?;
        Ok(Self { stop, rounds, thread: Some(thread) })
    }

    /// How often every thread was sent one.
    pub fn rounds(&self) -> u64 {
        self.rounds.load(Ordering::Acquire)
    }

    /// Signals that were handled by any thread of the process, ever.
    pub fn handled() -> u64 {
        HANDLED.load(Ordering::Relaxed)
    }

    /// **Blocks** until every thread was sent `count` more.
    pub fn pass(&self, count: u64) {
        // The round that is going on may have been past the caller's threads.
        let end = self.rounds() + count + 1;
        while self.rounds() < end {
            thread::yield_now();
        }
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

extern "C" fn on_signal(_: c_int) {
    // Relaxed: a number that orders nothing. An atomic addition is all that a handler may safely do here.
    HANDLED.fetch_add(1, Ordering::Relaxed);
}

fn install() -> io::Result<()> {
    let handler: extern "C" fn(c_int) = on_signal;
    // SAFETY: all zeros are a `sigaction` without flags, and with an empty mask on Linux.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as libc::sighandler_t;
    // SAFETY: the pointers are to a live `sigaction` and to none; the handler only adds to an atomic, which is
    // async-signal-safe.
    let result = unsafe { libc::sigaction(SIGNAL, &raw const action, ptr::null_mut()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// One signal to each thread but the caller's.
fn interrupt_all() {
    let own = gettid().as_raw_nonzero().get();
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else { return };
    for task in tasks.flatten() {
        let name = task.file_name();
        let Some(id) = name.to_str().and_then(|name| name.parse::<c_int>().ok()) else { continue };
        if id != own {
            interrupt(id);
        }
    }
}

/// One signal to a thread of this process. If it is gone, so is the need.
fn interrupt(thread: c_int) {
    let process = c_long::from(std::process::id());
    // SAFETY: the call takes numbers only; a signal that has a handler does nothing but run it, and the number of a
    // thread that has ended names none or another one of this process.
    let _ = unsafe { libc::syscall(libc::SYS_tgkill, process, c_long::from(thread), c_long::from(SIGNAL)) };
}
