//! The replaced functions of libc, and the scope within which they answer differently.
//!
//! Each function has libc's name and signature. The linker resolves a name in the program's own objects first, so calls of `std` and of C libraries that are
//! linked statically come here; since libc.so defines the names too, they are also exported, and `dlsym` and shared libraries find them. Calls inside libc
//! do not come here.
//!
//! # Why it is sound
//! * [`CURRENT`] is null or points to a [`Machine`] that the innermost [`Scope`] of this thread keeps alive. A scope stays on its thread (it is not `Send`),
//!   sets the word when it is made and restores it when it is dropped. A scope that is dropped out of order finds another word than its own; then the word
//!   becomes null, since the machines of outer scopes may be gone, and it panics. A scope that is forgotten keeps its machine for ever.
//! * The word needs no destructor and no lazy start, so the functions may be called at any time: before `main`, from signal handlers, while a thread ends.
//! * Answers of a machine are loads and stores of atomic words: no lock, no allocation, no panic, nothing that could come back here. One read of the clock in
//!   [`READS_MAX`](crate::READS_MAX) writes to the standard error output, within no machine, and calls the embedder.
//! * Pointers from the caller are used as libc would use them: the contract of each function is libc's.
//!
//! # Other threads
//! `clock_gettime` is called often, so it goes on to libc's own function, which needs no system call (vDSO); `dlsym` finds it once. In a program without
//! dynamic linking it is the system call. The others are rare, and make the system call.

#![cfg_attr(target_env = "musl", allow(deprecated, reason = "its time_t has 64 bits here in every version"))]

use std::cell::Cell;
use std::ffi::{c_int, c_long, c_uint, c_void};
use std::io::{self, Write};
use std::marker::PhantomData;
use std::mem::transmute;
use std::ptr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use self::syscall::kernel;
use crate::{Machine, NANOS_PER_SEC, unsupported, wait};

mod syscall;

/// Whether anything is replaced on this system: Linux on x86-64 and 64-bit ARM.
pub const IS_SUPPORTED: bool = true;

thread_local! {
    /// The machine of this thread. See the module's head.
    static CURRENT: Cell<*const Machine> = const { Cell::new(ptr::null()) };
}

/// Within it, this thread's clock and random numbers are those of a machine: [`Machine::enter`].
///
/// Scopes of a thread end in the reverse order in which they began.
#[derive(Debug)]
pub struct Scope {
    machine: Arc<Machine>,
    outer: *const Machine,
    /// It stays on its thread.
    _local: PhantomData<Rc<()>>,
}

impl Scope {
    pub(crate) fn new(machine: Arc<Machine>) -> io::Result<Self> {
        let outer = CURRENT.replace(Arc::as_ptr(&machine));
        let scope = Self { machine, outer, _local: PhantomData };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        if now != scope.machine.real() {
            return Err(unsupported(
                "this program's std reads the system's clock in spite of sockeye-entropy: link it statically, without -C prefer-dynamic",
            ));
        }
        Ok(scope)
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        let current = CURRENT.replace(self.outer);
        if current != Arc::as_ptr(&self.machine) {
            // Neither word may be used any more: what they point to may be gone.
            CURRENT.set(ptr::null());
            assert!(
                std::thread::panicking(),
                "scopes of a thread end in the reverse order of their beginnings"
            );
        }
    }
}

/// Calls `f` with this thread's machine, if it has one.
fn with_machine<R>(f: impl FnOnce(&Machine) -> R) -> Option<R> {
    // Without a value while the thread is being ended, on systems where the word would need a destructor; here it does not.
    let machine = CURRENT.try_with(Cell::get).unwrap_or(ptr::null());
    // SAFETY: null, or the machine of a scope of this thread, which keeps it; see the module's head.
    unsafe { machine.as_ref() }.map(f)
}

fn is_simulated() -> bool {
    with_machine(|_| ()).is_some()
}

fn errno() -> c_int {
    // SAFETY: the location is this thread's own, and always there.
    unsafe { *libc::__errno_location() }
}

fn set_errno(errno: c_int) {
    // SAFETY: the location is this thread's own, and always there.
    unsafe { *libc::__errno_location() = errno };
}

/// Tells the user what a simulated program must not do. Not within a machine: output may ask for the time.
fn complain(what: &str) {
    let machine = CURRENT.replace(ptr::null());
    let _unheard = writeln!(io::stderr(), "sockeye-entropy: {what}");
    CURRENT.set(machine);
}

fn timespec(at: Duration) -> libc::timespec {
    let tv_sec = libc::time_t::try_from(at.as_secs()).unwrap_or(libc::time_t::MAX);
    libc::timespec { tv_sec, tv_nsec: c_long::from(at.subsec_nanos()) }
}

/// A thread reads a clock again and again that does not move meanwhile.
#[cold]
fn tell_restless() {
    complain(
        "a simulated program has read the clock some four million times at one moment: no time passes while a program computes, so a loop that waits for a point of time never \
         ends; await a timer instead",
    );
    if let Some(Some(call)) = with_machine(|machine| machine.restless.get().copied()) {
        call();
    }
}

type ClockGettime = unsafe extern "C" fn(libc::clockid_t, *mut libc::timespec) -> c_int;

/// libc's own `clock_gettime`; null until it was looked for.
static CLOCK_GETTIME: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

unsafe extern "C" fn clock_gettime_by_system_call(id: libc::clockid_t, to: *mut libc::timespec) -> c_int {
    // SAFETY: the caller's contract is libc's.
    unsafe { kernel(libc::SYS_clock_gettime, [c_long::from(id), to as c_long, 0, 0, 0, 0]) as c_int }
}

#[cold]
fn find_clock_gettime() -> *mut c_void {
    let by_system_call = clock_gettime_by_system_call as ClockGettime as *mut c_void;
    // In a static program there is no next one; musl's is usually static, and its `dlsym` then has nothing to find.
    let found = if cfg!(target_feature = "crt-static") {
        ptr::null_mut()
    } else {
        // SAFETY: the name ends with a zero.
        unsafe { libc::dlsym(libc::RTLD_NEXT, c"clock_gettime".as_ptr()) }
    };
    let found = if found.is_null() { by_system_call } else { found };
    // Relaxed: whoever finds it finds the same, and code needs no publication.
    CLOCK_GETTIME.store(found, Ordering::Relaxed);
    found
}

/// As libc's; on a simulated thread, the machine's time for all clocks but those of CPU time.
///
/// # Safety
/// As libc's: `to` can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_gettime(id: libc::clockid_t, to: *mut libc::timespec) -> c_int {
    let now = with_machine(|machine| match id {
        libc::CLOCK_REALTIME | libc::CLOCK_REALTIME_COARSE | libc::CLOCK_TAI => Some(machine.real_nanos()),
        libc::CLOCK_MONOTONIC
        | libc::CLOCK_MONOTONIC_RAW
        | libc::CLOCK_MONOTONIC_COARSE
        | libc::CLOCK_BOOTTIME => Some(wait::shown(machine.monotonic_nanos())),
        _ => None,
    });
    if let Some(now) = now.flatten() {
        if with_machine(Machine::is_read_too_often) == Some(true) {
            tell_restless();
        }
        // At most 2^64 nanoseconds: both parts fit.
        let [tv_sec, tv_nsec] = [now / NANOS_PER_SEC, now % NANOS_PER_SEC].map(|part| part as c_long);
        // SAFETY: the caller's contract is libc's.
        unsafe { *to = libc::timespec { tv_sec, tv_nsec } };
        return 0;
    }
    let found = match CLOCK_GETTIME.load(Ordering::Relaxed) {
        found if found.is_null() => find_clock_gettime(),
        found => found,
    };
    // SAFETY: the word holds nothing but functions of this type.
    let next = unsafe { transmute::<*mut c_void, ClockGettime>(found) };
    // SAFETY: the caller's contract is libc's.
    unsafe { next(id, to) }
}

/// As libc's; on a simulated thread, the machine's time.
///
/// # Safety
/// As libc's: `to` and `zone` are null or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gettimeofday(to: *mut libc::timeval, zone: *mut c_void) -> c_int {
    let Some(now) = with_machine(Machine::real) else {
        // SAFETY: the caller's contract is libc's.
        return unsafe {
            kernel(libc::SYS_gettimeofday, [to as c_long, zone as c_long, 0, 0, 0, 0]) as c_int
        };
    };
    // SAFETY: the caller's contract is libc's.
    if let Some(to) = unsafe { to.as_mut() } {
        let now = timespec(now);
        *to = libc::timeval { tv_sec: now.tv_sec, tv_usec: now.tv_nsec / 1000 };
    }
    0
}

/// As libc's; on a simulated thread, the machine's time.
///
/// # Safety
/// As libc's: `to` is null or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn time(to: *mut libc::time_t) -> libc::time_t {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the place is ours.
    unsafe { clock_gettime(libc::CLOCK_REALTIME, &mut now) };
    // SAFETY: the caller's contract is libc's.
    if let Some(to) = unsafe { to.as_mut() } {
        *to = now.tv_sec;
    }
    now.tv_sec
}

/// As libc's; on a simulated thread, the machine's numbers.
///
/// # Safety
/// As libc's: `len` bytes at `to` can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getrandom(to: *mut c_void, len: usize, flags: c_uint) -> isize {
    // SAFETY: the caller's contract is libc's.
    let filled = with_machine(|machine| unsafe { fill(machine, to, len) });
    match filled {
        Some(()) => isize::try_from(len).unwrap_or(isize::MAX),
        // SAFETY: the caller's contract is libc's.
        None => unsafe {
            kernel(libc::SYS_getrandom, [to as c_long, len as c_long, c_long::from(flags), 0, 0, 0]) as isize
        },
    }
}

/// # Safety
/// `len` bytes at `to` can be written to.
unsafe fn fill(machine: &Machine, to: *mut c_void, len: usize) {
    if len == 0 {
        // To ask whether the function is there, and then with any pointer.
        return;
    }
    // The memory may hold no values yet, of which there can be no slice.
    // SAFETY: the caller's contract.
    unsafe { ptr::write_bytes(to.cast::<u8>(), 0, len) };
    // SAFETY: the bytes have values now, and the caller's contract.
    machine.fill(unsafe { std::slice::from_raw_parts_mut(to.cast(), len) });
}

/// As libc's; on a simulated thread, the machine's numbers.
///
/// # Safety
/// As libc's: `len` bytes at `to` can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getentropy(to: *mut c_void, len: usize) -> c_int {
    /// The most that a call may ask for.
    const LEN_MAX: usize = 256;
    if len > LEN_MAX {
        set_errno(libc::EIO);
        return -1;
    }
    let mut done = 0;
    while done < len {
        // SAFETY: the caller's contract, and `done` is below `len`.
        match unsafe { getrandom(to.cast::<u8>().add(done).cast(), len - done, 0) } {
            more if more >= 0 => done += more.unsigned_abs(),
            _ if errno() == libc::EINTR => {}
            _ => return -1,
        }
    }
    0
}

/// Whether the caller is on a simulated thread, which is told that it must not sleep.
fn refuses_sleep() -> bool {
    let refuses = is_simulated();
    if refuses {
        complain(
            "a simulated program called thread::sleep, which would stop the whole simulation: use the sleep of tokio::time or \
             sockeye_sim::time, or sockeye_sim::blocking::sleep",
        );
    }
    refuses
}

/// As libc's; on a simulated thread, the error `ENOTSUP`.
///
/// # Safety
/// As libc's: `time` can be read, `left` is null or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nanosleep(time: *const libc::timespec, left: *mut libc::timespec) -> c_int {
    if refuses_sleep() {
        set_errno(libc::ENOTSUP);
        return -1;
    }
    // SAFETY: the caller's contract is libc's.
    unsafe { kernel(libc::SYS_nanosleep, [time as c_long, left as c_long, 0, 0, 0, 0]) as c_int }
}

/// As libc's; on a simulated thread, the error `ENOTSUP`.
///
/// # Safety
/// As libc's: `time` can be read, `left` is null or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_nanosleep(
    id: libc::clockid_t,
    flags: c_int,
    time: *const libc::timespec,
    left: *mut libc::timespec,
) -> c_int {
    if refuses_sleep() {
        return libc::ENOTSUP;
    }
    let args = [c_long::from(id), c_long::from(flags), time as c_long, left as c_long, 0, 0];
    // SAFETY: the caller's contract is libc's.
    match unsafe { kernel(libc::SYS_clock_nanosleep, args) } {
        // It returns the error instead of setting it.
        -1 => errno(),
        _ => 0,
    }
}

#[cfg(not(target_feature = "crt-static"))]
type Getaddrinfo = unsafe extern "C" fn(
    *const std::ffi::c_char,
    *const std::ffi::c_char,
    *const libc::addrinfo,
    *mut *mut libc::addrinfo,
) -> c_int;

/// As libc's; on a simulated thread, the error `EAI_FAIL`. Not in a static program, where libc's own could not be found.
///
/// # Safety
/// As libc's.
#[cfg(not(target_feature = "crt-static"))]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getaddrinfo(
    node: *const std::ffi::c_char,
    service: *const std::ffi::c_char,
    hints: *const libc::addrinfo,
    found: *mut *mut libc::addrinfo,
) -> c_int {
    if is_simulated() {
        complain(
            "a simulated program asked the machine's resolver: use lookup_host and connect of sockeye::tokio, which know the simulation's hosts",
        );
        return libc::EAI_FAIL;
    }
    // SAFETY: the name ends with a zero.
    let next = unsafe { libc::dlsym(libc::RTLD_NEXT, c"getaddrinfo".as_ptr()) };
    if next.is_null() {
        return libc::EAI_FAIL;
    }
    // SAFETY: libc's function of this name has this type.
    let next = unsafe { transmute::<*mut c_void, Getaddrinfo>(next) };
    // SAFETY: the caller's contract is libc's.
    unsafe { next(node, service, hints, found) }
}
