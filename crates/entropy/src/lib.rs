//! One clock and one stream of random numbers for everything on a simulated thread.
//!
//! A program that links this crate has some functions of libc replaced ([`REPLACED`]). On a thread within the [`Scope`] of a [`Machine`], they answer
//! from the machine's virtual clock and its seed; on every other thread they do what libc does. So within a simulation `std`'s `Instant`, `SystemTime` and
//! `RandomState` (the order of a `HashMap`) and the crate `getrandom` follow from the seed, also deep inside libraries.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::{Duration, Instant};
//! use sockeye_entropy::Machine;
//!
//! let machine = Arc::new(Machine::new(7));
//! # if !sockeye_entropy::IS_SUPPORTED { return }
//! let _scope = machine.enter().unwrap();
//! let start = Instant::now();
//! machine.set_elapsed(Duration::from_secs(3600));
//! assert_eq!(start.elapsed(), Duration::from_secs(3600));
//! ```
//!
//! # What is not covered
//! * `RandomState` draws its keys once for each thread. A thread that used a `HashMap` before it entered has its keys already; a simulation therefore
//!   runs on a thread of its own ([`Machine::enter`] draws them at once there).
//! * System calls without libc's functions, such as those of `rustix`.
//! * State that a library draws once for the whole process, such as the seeds of `ahash` and `foldhash`.
//! * Waits of a thread for another one: they take real time, also where they have a limit.
//!
//! It does not depend on the simulator. The linker takes the replacements because it looks into the program before it looks into libc; nothing of another
//! crate is changed, and a build that does not link this crate has none of it. ADR 76 has the reasons. Tests: `tests/scope.rs`, `tests/waits.rs`.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use std::{fmt, io};

#[cfg_attr(
    all(
        target_os = "linux",
        target_pointer_width = "64",
        any(target_arch = "x86_64", target_arch = "aarch64")
    ),
    path = "linux.rs"
)]
#[cfg_attr(
    not(all(
        target_os = "linux",
        target_pointer_width = "64",
        any(target_arch = "x86_64", target_arch = "aarch64")
    )),
    path = "elsewhere.rs"
)]
mod system;
mod wait;

/// The registry's page of this crate.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

pub use system::{IS_SUPPORTED, Scope};
pub use wait::{SkippedWait, arm_wait, disarm_wait, take_wait};

/// The functions of libc that are replaced, if [`IS_SUPPORTED`]. In a static program all but `getaddrinfo`.
///
/// On a simulated thread, `nanosleep` and `clock_nanosleep` fail with `ENOTSUP`, so that `std::thread::sleep` panics, and `getaddrinfo` with `EAI_FAIL`: a
/// simulation would stand still for real time, and ask the real network. Each says so on the standard error output.
pub const REPLACED: [&str; 9] = [
    "clock_gettime",
    "clock_nanosleep",
    "getaddrinfo",
    "getentropy",
    "getrandom",
    "gettimeofday",
    "nanosleep",
    "syscall",
    "time",
];

/// Real time at the start of every machine: 2026-01-01 00:00:00 UTC.
pub const START_UNIX_SECS: u64 = 1_767_225_600;
/// Monotonic time at the start of every machine, seconds. Small, so that a thread which waits for a point of this clock in spite of all finds that it has passed.
const START_MONOTONIC_SECS: u64 = 1000;
const NANOS_PER_SEC: u64 = 1_000_000_000;

/// Reads of a clock that does not move, after which [`Machine::on_restless`] is called.
pub const READS_MAX: u64 = 1 << 22;

/// A clock and a stream of random numbers, for the threads that [enter](Self::enter) it.
///
/// Time stands still until [`set_elapsed`](Self::set_elapsed) moves it. If several threads are in one machine, their order decides who draws which number.
pub struct Machine {
    elapsed_nanos: AtomicU64,
    /// How often the clock was read since it moved.
    reads: AtomicU64,
    /// What is called when that is [`READS_MAX`].
    restless: OnceLock<fn()>,
    /// What the monotonic clock shows beyond the elapsed time.
    monotonic_offset: AtomicI64,
    /// What real time shows beyond the elapsed time.
    real_offset: AtomicI64,
    /// Where the stream of random numbers begins.
    random: u64,
    /// Words of it that were drawn.
    drawn: AtomicU64,
}

/// The golden ratio as a fraction of 2^64: the step of SplitMix64.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

impl Machine {
    /// A machine at its start, whose numbers follow from `seed`.
    pub fn new(seed: u64) -> Self {
        // Neighbouring seeds shall not give neighbouring streams, nor those of another user of the same generator and seed.
        let random = mix(seed ^ 0x510e_527f_ade6_82d1);
        Self {
            elapsed_nanos: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            restless: OnceLock::new(),
            monotonic_offset: AtomicI64::new(0),
            real_offset: AtomicI64::new(0),
            random,
            drawn: AtomicU64::new(0),
        }
    }

    /// Moves the clock to a point of time since the start: real time and monotonic time alike.
    pub fn set_elapsed(&self, elapsed: Duration) {
        let nanos = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
        // Relaxed, here and below: each is a value of its own, nothing is published through it.
        self.elapsed_nanos.store(nanos, Ordering::Relaxed);
        self.reads.store(0, Ordering::Relaxed);
    }

    /// Has `call` called when a thread has read the clock [`READS_MAX`] times and it has not moved: a program waits for time without saying so, and will wait for ever. On that
    /// thread, within its read of the clock; it must not panic. Once for each machine; a second call changes nothing.
    pub fn on_restless(&self, call: fn()) {
        let _ = self.restless.set(call);
    }

    /// A replaced function reads the clock. Whether that was once too often.
    #[inline]
    fn is_read_too_often(&self) -> bool {
        // Two threads at once may count one read: it is a bound, not a statistic.
        let reads = self.reads.load(Ordering::Relaxed) + 1;
        self.reads.store(reads, Ordering::Relaxed);
        reads == READS_MAX
    }

    /// Has the clocks show another time than the elapsed one, in nanoseconds beyond it: for clocks that go fast or slow, or were set. The monotonic clock
    /// must not go back by it. Shows nothing before the start.
    pub fn set_offsets(&self, monotonic: i64, real: i64) {
        self.monotonic_offset.store(monotonic, Ordering::Relaxed);
        self.real_offset.store(real, Ordering::Relaxed);
    }

    /// Calls `f` while the monotonic clock shows a nanosecond more: whether another clock follows it can be seen so.
    pub fn a_nanosecond_later<R>(&self, f: impl FnOnce() -> R) -> R {
        struct Back<'a>(&'a AtomicI64);
        impl Drop for Back<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::Relaxed);
            }
        }
        self.monotonic_offset.fetch_add(1, Ordering::Relaxed);
        let _back = Back(&self.monotonic_offset);
        f()
    }

    /// Time since the start.
    pub fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.elapsed_nanos.load(Ordering::Relaxed))
    }

    /// What the monotonic clock shows, as time since the start.
    pub fn shown(&self) -> Duration {
        self.monotonic().saturating_sub(Duration::from_secs(START_MONOTONIC_SECS))
    }

    /// Fills `bytes` with the next random numbers. Never blocks. Anyone with the seed knows them.
    pub fn fill(&self, bytes: &mut [u8]) {
        for part in bytes.chunks_mut(size_of::<u64>()) {
            let number = self.drawn.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
            let state = self.random.wrapping_add(number.wrapping_mul(STEP));
            part.copy_from_slice(&mix(state).to_le_bytes()[..part.len()]);
        }
    }

    /// Words of eight bytes that [`fill`](Self::fill) and the replaced functions have drawn so far: runs of one seed differ if these do.
    pub fn drawn(&self) -> u64 {
        self.drawn.load(Ordering::Relaxed)
    }

    /// Gives this thread the machine's clock and random numbers until the scope is dropped; then they are what they were before. Draws the
    /// thread's keys of `RandomState`, if it has none yet: they then do not depend on what else draws first.
    ///
    /// # Errors
    /// `Unsupported` on another system than Linux on x86-64 or 64-bit ARM, and if this program's `std` does not use the replaced functions (it was linked dynamically).
    pub fn enter(self: &Arc<Self>) -> io::Result<Scope> {
        let scope = Scope::new(Arc::clone(self))?;
        let _keys = std::hash::RandomState::new();
        Ok(scope)
    }

    /// Real time since 1970.
    fn real(&self) -> Duration {
        Duration::from_nanos(self.real_nanos())
    }

    /// Monotonic time.
    fn monotonic(&self) -> Duration {
        Duration::from_nanos(self.monotonic_nanos())
    }

    /// [`real`](Self::real) in nanoseconds: clocks are read so often that the detour over seconds shows.
    fn real_nanos(&self) -> u64 {
        let elapsed = self.elapsed_nanos.load(Ordering::Relaxed);
        (START_UNIX_SECS * NANOS_PER_SEC)
            .saturating_add(elapsed)
            .saturating_add_signed(self.real_offset.load(Ordering::Relaxed))
    }

    /// [`monotonic`](Self::monotonic) in nanoseconds.
    fn monotonic_nanos(&self) -> u64 {
        let elapsed = self.elapsed_nanos.load(Ordering::Relaxed);
        elapsed
            .saturating_add_signed(self.monotonic_offset.load(Ordering::Relaxed))
            .saturating_add(START_MONOTONIC_SECS * NANOS_PER_SEC)
    }
}

impl fmt::Debug for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Machine").field("elapsed", &self.elapsed()).finish_non_exhaustive()
    }
}

/// The finalizer of SplitMix64: every bit depends on every bit.
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn unsupported(message: &str) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, message)
}
