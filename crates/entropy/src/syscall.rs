//! `syscall`, libc's function for system calls by number: the way of `std` and `parking_lot` to a futex, and of `getrandom` 0.2.
//!
//! On a simulated thread, three numbers are answered here and all others go to the kernel:
//! * `getrandom` and `clock_gettime`, as the functions of these names;
//! * a wait for a futex until a point of the monotonic clock. `std` computes it from the machine's clock, which the kernel does not know. If the point has come, the
//!   wait is over. Otherwise the thread waits for another thread, and does so in real time for as long. On a thread that is
//!   [armed](crate::arm_wait) it does not wait at all.
//!
//! The definition has a fixed number of arguments and libc's declaration does not. On the two architectures that are supported, both pass the first arguments
//! in the same places: registers, and from the seventh on (x86-64) the stack above the return address. An argument that the caller did not pass is whatever is
//! there, which is read as a number and given to the kernel, which does not look at it. Tests: `tests/scope.rs`, `tests/waits.rs`.

use std::arch::asm;
use std::ffi::{c_int, c_long};
use std::time::Duration;

use super::{clock_gettime, getrandom, is_simulated, set_errno, timespec, with_machine};
use crate::{Machine, START_MONOTONIC_SECS, wait};

/// The kernel's error numbers are the results from -4095 on.
const ERRNO_MAX: c_long = 4095;

/// As libc's. See the module's head.
///
/// # Safety
/// As libc's: the contract of the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syscall(
    number: c_long,
    a: c_long,
    b: c_long,
    c: c_long,
    d: c_long,
    e: c_long,
    f: c_long,
) -> c_long {
    let args = [a, b, c, d, e, f];
    match number {
        // SAFETY: the caller's contract: these are the arguments of the function of the same name.
        libc::SYS_getrandom if is_simulated() => unsafe { getrandom(a as _, b as _, c as _) as c_long },
        // SAFETY: the caller's contract.
        libc::SYS_clock_gettime if is_simulated() => unsafe { c_long::from(clock_gettime(a as _, b as _)) },
        // SAFETY: the caller's contract.
        libc::SYS_futex if is_simulated() => unsafe { futex(args) },
        // SAFETY: the caller's contract.
        _ => unsafe { kernel(number, args) },
    }
}

/// A system call. Sets `errno`, and then returns -1, as libc does.
///
/// # Safety
/// The contract of the system call.
pub(super) unsafe fn kernel(number: c_long, args: [c_long; 6]) -> c_long {
    // SAFETY: the caller's contract.
    let result = unsafe { enter_kernel(number, args) };
    if (-ERRNO_MAX..0).contains(&result) {
        set_errno(c_int::try_from(-result).unwrap_or(libc::EINVAL));
        return -1;
    }
    result
}

/// # Safety
/// The contract of the system call.
#[cfg(target_arch = "x86_64")]
unsafe fn enter_kernel(number: c_long, [a, b, c, d, e, f]: [c_long; 6]) -> c_long {
    let result;
    // SAFETY: the instruction changes rax, rcx and r11 besides what the call is asked to change; the caller's contract.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number => result,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// # Safety
/// The contract of the system call.
#[cfg(target_arch = "aarch64")]
unsafe fn enter_kernel(number: c_long, [a, b, c, d, e, f]: [c_long; 6]) -> c_long {
    let result;
    // SAFETY: the instruction changes x0 besides what the call is asked to change; the caller's contract.
    unsafe {
        asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") a => result,
            in("x1") b, in("x2") c, in("x3") d, in("x4") e, in("x5") f,
            options(nostack),
        );
    }
    result
}

fn duration(at: libc::timespec) -> Duration {
    Duration::new(u64::try_from(at.tv_sec).unwrap_or(0), u32::try_from(at.tv_nsec).unwrap_or(0))
}

/// How a wait for a futex gives its limit.
#[derive(Clone, Copy)]
enum Limit {
    /// Its length.
    Relative,
    /// A point of the monotonic clock.
    Monotonic,
    /// A point of real time.
    Real,
}

/// The futex operation of a simulated thread.
///
/// # Safety
/// The contract of the system call.
unsafe fn futex(args: [c_long; 6]) -> c_long {
    let op = args[1] as c_int;
    let limit = match op & !(libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME) {
        libc::FUTEX_WAIT => Limit::Relative,
        libc::FUTEX_WAIT_BITSET if op & libc::FUTEX_CLOCK_REALTIME == 0 => Limit::Monotonic,
        libc::FUTEX_WAIT_BITSET => Limit::Real,
        // SAFETY: the caller's contract.
        _ => return unsafe { kernel(libc::SYS_futex, args) },
    };
    // SAFETY: the caller's contract: null or readable.
    let given = unsafe { (args[3] as *const libc::timespec).as_ref() }.copied().map(duration);
    let start = Duration::from_secs(START_MONOTONIC_SECS);
    let now = with_machine(Machine::monotonic).unwrap_or_default().saturating_sub(start);
    let real = || with_machine(Machine::real).unwrap_or_default();
    // The limit as monotonic time since the machine's start.
    let until = given.map(|given| match limit {
        Limit::Relative => now.saturating_add(given),
        Limit::Monotonic => given.saturating_sub(start),
        Limit::Real => now.saturating_add(given.saturating_sub(real())),
    });
    let Some(until) = until else {
        // SAFETY: the caller's contract.
        return unsafe { kernel(libc::SYS_futex, args) };
    };
    if until <= now {
        set_errno(libc::ETIMEDOUT);
        return -1;
    }
    if wait::is_skipped(until) {
        if !matches!(limit, Limit::Relative) {
            return 0;
        }
        wait::show_next(u64::try_from((until + start).as_nanos()).unwrap_or(u64::MAX));
        set_errno(libc::ETIMEDOUT);
        return -1;
    }
    let left = until - now;
    let mut real = timespec(Duration::ZERO);
    let clock = match limit {
        Limit::Relative => None,
        Limit::Monotonic => Some(libc::CLOCK_MONOTONIC),
        Limit::Real => Some(libc::CLOCK_REALTIME),
    };
    if let Some(clock) = clock {
        let to = &raw mut real;
        // SAFETY: the place is ours.
        unsafe { kernel(libc::SYS_clock_gettime, [c_long::from(clock), to as c_long, 0, 0, 0, 0]) };
    }
    let end = timespec(duration(real).saturating_add(left));
    let [word, op, value, _, second, bits] = args;
    // SAFETY: the caller's contract, but for the limit, which is ours.
    unsafe { kernel(libc::SYS_futex, [word, op, value, &raw const end as c_long, second, bits]) }
}
