//! Locks where the kernel refuses `membarrier`, as a sandbox may: a seccomp(2) filter refuses it for this program.
#![cfg(all(target_os = "linux", not(loom), not(miri), not(sockeye_portable)))]

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use sockeye_sync::BriefMutex;
use sockeye_sync::facade::heavy_fence;

/// Has the kernel refuse the call to this thread and those that it starts; false if there is no seccomp(2).
fn refuse_membarrier() -> bool {
    let step = |code: u32, jt, k| libc::sock_filter { code: code as u16, jt, jf: 0, k };
    let mut steps = [
        // The number of the call comes first in `seccomp_data`.
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, libc::SYS_membarrier as u32),
        step(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ALLOW),
        step(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32),
    ];
    let program = libc::sock_fprog { len: 4, filter: steps.as_mut_ptr() };
    // SAFETY: the call takes numbers only.
    let without_privileges = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    // SAFETY: the program and its steps outlive the call, which copies them.
    let filtered =
        unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) };
    (without_privileges, filtered) == (0, 0)
}

#[test]
fn waiters_of_a_lock_poll_where_the_kernel_refuses_membarrier() {
    if !refuse_membarrier() {
        println!("skipped: no seccomp(2)");
        return;
    }
    assert!(!heavy_fence(), "the filter lets the call pass");
    let mutex = Arc::new(BriefMutex::new(0));
    let guard = mutex.lock();
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let mutex = Arc::clone(&mutex);
            thread::spawn(move || {
                for _ in 0..50 {
                    let mut value = mutex.lock();
                    // So that the others run out of spins and yields.
                    thread::sleep(Duration::from_micros(100));
                    *value += 1;
                }
            })
        })
        .collect();
    thread::sleep(Duration::from_millis(5));
    drop(guard);
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    assert_eq!(*mutex.lock(), 200);
}
