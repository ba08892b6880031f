//! Children of fork(2) for tests: each test forks in a process where nothing runs but itself, each child is bounded by an
//! alarm and ends by `_exit`.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Seconds after which a child that hangs is killed.
const ALARM_SECS: u32 = 20;
const CASE: &str = "SOCKEYE_FORK_CASE";
/// The code of a child that panicked.
const PANICKED: i32 = 101;

/// Runs `body` in a new process of this test binary, so that other tests' threads are not in the way. `test` is the
/// name of the test that calls it.
pub fn alone(test: &str, body: impl FnOnce()) {
    if std::env::var_os(CASE).is_some_and(|case| case == test) {
        return body();
    }
    let binary = std::env::current_exe().expect("a test has a binary");
    // A name that no test has would run none, and succeed.
    let list =
        Command::new(&binary).args([test, "--exact", "--list"]).output().expect("a test can run itself");
    let list = String::from_utf8_lossy(&list.stdout);
    assert!(list.lines().any(|line| line == format!("{test}: test")), "no test is {test}: {list}");
    let mut process = Command::new(binary)
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(CASE, test)
        .stdin(Stdio::null())
        .spawn()
        .expect("a test can run itself");
    let end = Instant::now() + Duration::from_secs(120);
    loop {
        if let Some(status) = process.try_wait().expect("it is our process") {
            assert!(status.success(), "{test} alone: {status}");
            return;
        }
        if Instant::now() > end {
            let _gone_meanwhile = process.kill();
            panic!("{test} alone did not end");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A child that was forked.
#[must_use]
pub struct Child {
    pid: i32,
    answers: std::fs::File,
}

/// The file to which the child writes its answer.
pub struct Answer(std::fs::File);

impl Answer {
    pub fn give(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).expect("the parent reads");
    }
}

/// Forks. The child gets `Err` with a pipe to its parent, and has to end by [`end`].
pub fn fork() -> Result<Child, Answer> {
    let (reader, writer): (OwnedFd, OwnedFd) = std::io::pipe()
        .map(|(reader, writer)| (reader.into(), writer.into()))
        .expect("there are descriptors");
    // SAFETY: the child uses only calls that the crates under test document as usable after a fork, and the C library,
    // whose memory allocator works in a child.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "fork: {}", std::io::Error::last_os_error());
    if pid > 0 {
        return Ok(Child { pid, answers: reader.into() });
    }
    // SAFETY: no precondition.
    let _none_before = unsafe { libc::alarm(ALARM_SECS) };
    Err(Answer(writer.into()))
}

/// Runs the rest of a child.
pub fn end(rest: impl FnOnce()) -> ! {
    let is_done = catch_unwind(AssertUnwindSafe(rest)).is_ok();
    // SAFETY: no precondition; nothing of the test harness is to run in the child.
    unsafe { libc::_exit(if is_done { 0 } else { PANICKED }) }
}

/// Ends a child as a program does: with the destructors of the thread's locals.
pub fn exit() -> ! {
    std::process::exit(0)
}

impl Child {
    /// Waits until it has ended, and returns its answer.
    #[track_caller]
    pub fn answer(mut self) -> Vec<u8> {
        let mut answer = Vec::new();
        self.answers.read_to_end(&mut answer).expect("a pipe can be read");
        let mut status = 0;
        // SAFETY: the place is writable.
        let waited = unsafe { libc::waitpid(self.pid, &raw mut status, 0) };
        assert_eq!(waited, self.pid);
        let status: ExitStatus = std::os::unix::process::ExitStatusExt::from_raw(status);
        assert!(status.success(), "the child: {status}");
        answer
    }
}
