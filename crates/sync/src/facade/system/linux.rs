//! Calls that only Linux has: futexes, fences for the whole process, pages that a fork wipes, the number of the CPU.
//!
//! `portable.rs` has the same names for other systems. Does not depend on any protocol. Tests: with the callers.

use core::ptr;
use core::sync::atomic::{AtomicU32, Ordering, compiler_fence};
use core::time::Duration;

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use rustix::thread::{MembarrierCommand, Timespec, futex, membarrier};

/// Sleeps while the word is `expected`, at most for `limit`; false if that time is over. Blocks, and may return early.
///
/// The kernel compares under the lock that [`wake_one`] takes.
pub(in crate::facade) fn wait(word: &AtomicU32, expected: u32, limit: Option<Duration>) -> bool {
    let limit = limit.map(|limit| Timespec {
        // A time that does not fit is as good as for ever.
        tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: limit.subsec_nanos().into(),
    });
    futex::wait(word, PRIVATE, expected, limit.as_ref()) != Err(Errno::TIMEDOUT)
}

/// Wakes one thread asleep on the word, if there is one. A system call of about a microsecond.
pub(in crate::facade) fn wake_one(word: &AtomicU32) {
    let _woken_count = futex::wake(word, PRIVATE, 1);
}

/// Wakes every thread asleep on the word. A system call of about a microsecond.
pub(in crate::facade) fn wake_all(word: &AtomicU32) {
    // The kernel takes the count as a signed number.
    let _woken_count = futex::wake(word, PRIVATE, i32::MAX as u32);
}

/// The side of the pair of fences that is passed often. No instruction.
#[inline(always)]
pub(in crate::facade) fn light_fence() {
    compiler_fence(Ordering::SeqCst);
}

/// The side that is passed seldom: a system call of microseconds, with an interrupt of every core that runs a thread of
/// this process. False if the kernel refuses, and then nothing is ordered.
pub(in crate::facade) fn heavy_fence() -> bool {
    if cfg!(miri) {
        return false;
    }
    // A process has to register once, and so may a child after a fork.
    let fence = || membarrier(MembarrierCommand::PrivateExpedited).is_ok();
    fence() || (membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok() && fence())
}

/// The CPU that the thread runs on. Some 2 ns where the C library keeps the number in the thread's restartable-sequences
/// area, 20 where it has to ask the vDSO; no system call.
#[inline]
pub(crate) fn current_cpu() -> u32 {
    // SAFETY: the call has no precondition.
    let cpu = unsafe { libc::sched_getcpu() };
    // It fails only on a kernel without the call; then there is one CPU as far as we know.
    u32::try_from(cpu).unwrap_or(0)
}

/// The clock of timer ticks, which asks no hardware.
pub(crate) const TICKS: Option<libc::clockid_t> = Some(libc::CLOCK_MONOTONIC_COARSE);

/// Zeroed memory of `len` bytes that a child of this process finds zeroed, too; `None` if the kernel does not offer that
/// (before Linux 4.14, and under qemu's user emulation, which accepts every advice and follows none).
pub(crate) fn wiped_on_fork(len: usize) -> Option<*mut u8> {
    // SAFETY: new memory, at a place of the kernel's choice.
    let at = unsafe {
        mmap_anonymous(ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
    };
    let at = at.ok()?;
    // SAFETY: the mapping is ours alone, and no advice has this number.
    let is_heard = unsafe { libc::madvise(at, len, libc::c_int::MAX) } != 0;
    // SAFETY: the mapping is ours alone, and its contents are zeros already.
    if is_heard && unsafe { madvise(at, len, Advice::LinuxWipeOnFork) }.is_ok() {
        return Some(at.cast());
    }
    // SAFETY: no other thread has seen it.
    let _unmapped = unsafe { munmap(at, len) };
    None
}

/// Fills the words with random bits; false if the system has none to give.
pub(crate) fn fill_random(words: &mut [u64; 2]) -> bool {
    let len = size_of_val(words);
    // SAFETY: the place is writable, and as long as it says.
    let drawn = unsafe { libc::getrandom(words.as_mut_ptr().cast(), len, 0) };
    usize::try_from(drawn) == Ok(len)
}

/// Sleepers and wakers share an address space, which spares the kernel a look at the mapping.
const PRIVATE: futex::Flags = futex::Flags::PRIVATE;
