//! How a child of fork(2) sees its parent's per-process values. Each child ends without returning to the test.
#![cfg(all(not(loom), not(miri)))]

use sockeye_sync::fork::{Origin, PerProcess, generation, nonce};

/// Runs `child` in a child of this process; true if it returned true in time.
fn in_child(child: impl FnOnce() -> bool) -> bool {
    // SAFETY: apart from the tested code, the child touches nothing that another thread may hold, and it ends with `_exit`.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: no precondition.
        let _none_before = unsafe { libc::alarm(10) };
        let code = i32::from(!child());
        // SAFETY: no precondition.
        unsafe { libc::_exit(code) }
    }
    assert!(pid > 0, "fork: {}", std::io::Error::last_os_error());
    let mut status = 0;
    // SAFETY: the place is writable.
    let waited = unsafe { libc::waitpid(pid, &raw mut status, 0) };
    assert_eq!(waited, pid);
    status == 0
}

#[test]
fn a_child_and_its_child_are_other_processes() {
    let origin = Origin::here();
    let (parent, parents_nonce) = (generation(), nonce());
    assert!(in_child(|| {
        let child = generation();
        let is_new = !origin.is_here() && child > parent && nonce() != parents_nonce;
        let here = Origin::here();
        let has_other_child = in_child(|| !here.is_here() && !origin.is_here() && generation() > child);
        origin.adopt();
        is_new && has_other_child && here.is_here() && origin.is_here() && generation() == child
    }));
    assert!(origin.is_here());
    assert_eq!((generation(), nonce()), (parent, parents_nonce));
}

#[test]
fn siblings_have_different_nonces() {
    let mut channel = [0; 2];
    // SAFETY: room for two descriptors.
    assert_eq!(unsafe { libc::pipe(channel.as_mut_ptr()) }, 0);
    for _ in 0..2 {
        // SAFETY: the bytes are there, and the descriptor is open.
        assert!(in_child(|| unsafe { libc::write(channel[1], nonce().as_ptr().cast(), 16) } == 16));
    }
    let mut nonces = [[0_u8; 16]; 2];
    // SAFETY: room for all that was written.
    assert_eq!(unsafe { libc::read(channel[0], nonces.as_mut_ptr().cast(), 32) }, 32);
    assert_ne!(nonces[0], nonces[1]);
    assert!(!nonces.contains(&nonce()));
}

#[test]
fn a_per_process_value_is_created_again_even_if_the_parents_is_being_created() {
    static SLOW: PerProcess<u32> = PerProcess::new();
    let (begun, may_end) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            SLOW.get_or_init(|| {
                begun.wait();
                may_end.wait();
                1
            })
        });
        begun.wait();
        assert!(in_child(|| *SLOW.get_or_init(|| 2) == 2));
        may_end.wait();
    });
    assert_eq!(*SLOW.get_or_init(|| 3), 1);
}
